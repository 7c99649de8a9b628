//! A site's replicas together, in the lab's virtual time: elections to snapshots as scripts one can
//! read, and a crash between any two outputs. Random runs with every kind of fault are the lab's
//! own tests (`crates/lab/tests`).

mod adaptive;
mod causal;
mod copies;
mod counting;
mod crashes;
mod forwards;
mod frozen;
mod leases;
mod leaving;
mod lending;
mod loan_changes;
mod log_length;
mod maps;
mod moments;
mod moves;
mod pair;
mod proxy_reads;
mod registry;
mod residence;
mod room;
mod scripts;
mod sessions;
mod voters;
mod workload;
mod world;
