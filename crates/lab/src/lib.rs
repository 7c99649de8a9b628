//! Worlds to try Portolan in: where the sites stand, how far apart they are in milliseconds, how
//! clients move between them, and what was measured.
//!
//! | module | its one idea |
//! | --- | --- |
//! | [`world`] | one TOML file that describes a world, with errors that point at the line |
//! | [`geo`] | points on the earth, metres between them, a local grid of zones |
//! | [`mobility`] | where a client is at a time: from a recorded trace or from a generator |
//! | [`workload`] | what a client does next, and when |
//! | [`link`] | when a message that enters a link leaves it; pure arithmetic |
//! | [`relay`] | the same link between real sockets |
//! | [`faults`] | what goes wrong, and when |
//! | [`simulation`] | sites in virtual time: the shell around the cores |
//! | [`clients`] | clients in the same time: they send, wait, retry, move on |
//! | [`run`] | a world and a seed, from the first node to the verdicts |
//! | [`explore`] | many seeds, and a failed run made small |
//! | [`history`] | what clients asked and what came back, as a file |
//! | [`verdict`] | whether a history keeps what was promised |
//! | [`measure`] | latencies by operation and by second, and what went wrong |
//! | [`report`] | one HTML page that works offline, with CSV beside it |
//! | [`paper`] | experiments of published papers, run again |
//! | [`baselines`] | models of published stores, to compare with |
//! | [`random`] | the only source of chance: one small generator, seeded |
//!
//! Everything here except [`relay`] is pure: time is a number that the caller passes in, and random
//! numbers come from a generator that the caller seeds. [`simulation`] alone depends on how a site
//! works inside, for it runs the cores; what judges a run reads histories and nothing else.

#[cfg(feature = "simulation")]
pub mod baselines;
#[cfg(feature = "simulation")]
pub mod clients;
#[cfg(feature = "simulation")]
pub mod explore;
pub mod faults;
pub mod geo;
pub mod history;
pub mod link;
pub mod measure;
pub mod mobility;
#[cfg(feature = "simulation")]
pub mod paper;
pub mod random;
pub mod relay;
pub mod report;
#[cfg(feature = "simulation")]
pub mod run;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod verdict;
pub mod workload;
pub mod world;
