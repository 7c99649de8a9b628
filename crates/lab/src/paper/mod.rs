//! Experiments of published papers, run again in virtual time, and what came out beside what was
//! published. Each has an `experiment` (what is run), a `result` (what came out) and a `report`.
//!
//! - [`edgekv`]: Sonbol and others, 2020.
//! - [`gesto`]: Afonso, Bravo and Rodrigues, 2020.
//! - [`portkey`]: Noor, Srivastava and Netravali, 2021.

pub mod edgekv;
pub mod gesto;
pub mod portkey;
