//! The Redis front on a running node of its own, spoken to over sockets.

mod conformance;
mod door;
mod strain;
mod support;
mod tls;
