//! The Redis front on a running node of its own, spoken to over sockets.

#[path = "../certificates/mod.rs"]
mod certificates;
mod conformance;
mod door;
mod strain;
mod support;
mod tls;
