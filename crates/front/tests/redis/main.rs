//! The Redis front on a running node of its own, spoken to over sockets.

mod causal;
#[path = "../certificates/mod.rs"]
mod certificates;
mod cluster;
mod conformance;
mod copies;
mod listener;
mod names;
mod once;
mod pending;
mod proxy_reads;
mod sites;
mod strain;
mod support;
mod tls;
