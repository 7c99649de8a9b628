//! What a site decides: pure, deterministic cores.
