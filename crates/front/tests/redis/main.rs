//! The Redis front on a running node of its own, spoken to over sockets.

#[path = "../certificates/mod.rs"]
mod certificates;
mod cluster;
mod conformance;
mod copies;
mod door;
mod sites;
mod straight;
mod strain;
mod strangers;
mod support;
mod tls;
