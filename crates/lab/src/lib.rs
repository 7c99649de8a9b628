//! Worlds to try it in: topology, links, mobility, reports.
