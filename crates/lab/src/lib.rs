//! Worlds to try Portolan in: where the sites stand, how far apart they are in milliseconds, who
//! moves between them, and what was seen when they did.
//!
//! | module | its one idea |
//! | --- | --- |
//! | [`random`] | the only source of chance: one small generator, seeded |
//! | [`history`] | what clients asked and what came back, as a file |
//! | [`geo`] | points on the earth, metres between them, a local grid of zones |
//! | [`world`] | one TOML file that says all of the below, with errors that point at the line |
//! | [`mobility`] | where a vehicle is at a time: from a recorded trace or from a generator |
//! | [`link`] | when a message that enters a link leaves it; pure arithmetic |
//! | [`simulation`] | sites in virtual time: the shell around the cores |
//! | [`relay`] | the same link between real sockets |
//! | [`measure`] | latencies by operation and by second, and what went wrong |
//! | [`report`] | one HTML page that works offline, with CSV beside it |
//!
//! Everything here except [`relay`] is pure: time is a number that the caller passes in, and random
//! numbers come from a generator that the caller seeds. [`simulation`] alone knows how a site works
//! inside, for it runs the cores; what judges a run reads histories and nothing else.

pub mod geo;
pub mod history;
pub mod link;
pub mod measure;
pub mod mobility;
pub mod random;
pub mod relay;
pub mod report;
pub mod simulation;
pub mod world;
