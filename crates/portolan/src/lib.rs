//! The `portolan` program: serve a node, use a site, run it, play with it.
//!
//! A library under a binary of two lines, so that its own tests can turn its features on: see
//! `[dev-dependencies]`.

mod cli;
mod demo;

pub use cli::main;
