//! Experiments of published papers, run again in virtual time, and what came out beside what was
//! published. Each has an `experiment` (what is run), a `result` (what came out) and a `report`.
//!
//! - [`edgekv`]: Sonbol and others, 2020.
//! - [`gesto`]: Afonso, Bravo and Rodrigues, 2020.
//! - [`portkey`]: Noor, Srivastava and Netravali, 2021.
//!
//! [`bar`]: goals of ours. `sites`: whole sites of our own, for what models cannot show.

pub mod bar;
pub mod edgekv;
pub mod gesto;
pub mod portkey;
mod sites;
