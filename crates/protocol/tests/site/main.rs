//! A site's replicas together, in virtual time: elections to snapshots as scripts one can read,
//! crashes between any two outputs, and random runs that print their seed.

mod crashes;
mod random_runs;
mod scripts;
mod workload;
mod world;
