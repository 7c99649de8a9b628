//! How a site runs: event loop, peer links, clocks, TLS, metrics, configuration.

pub mod config;
pub mod tls;
pub mod users;
