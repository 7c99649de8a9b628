//! How a site runs: event loop, peer links, clocks, TLS, metrics, configuration.
