//! Experiments of published papers, run again in virtual time, and what came out beside what was
//! published.
//!
//! - [`edgekv`]: Sonbol and others, 2020.
//! - [`portkey`]: Noor, Srivastava and Netravali, 2021.

pub mod edgekv;
pub mod portkey;
