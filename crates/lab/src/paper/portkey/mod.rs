//! The evaluation of Portkey (Noor, Srivastava, Netravali: *Portkey: Adaptive Key-Value Placement
//! over Dynamic Edge Networks*, `SoCC` 2021, §6), run again in virtual time, with ours among its
//! strategies.
//!
//! *What is modelled.* 25 access points with a site each in a grid, latencies drawn from the
//! paper's three tiers, 32 clients that move as its taxis do (in 72 % of the windows of 10 s one of
//! them changes its access point), its six workloads at fixed rates, links of limited bandwidth,
//! and the time that accesses wait while their key moves. All strategies see the same accesses in
//! the same world. Before the measurement they run for a minute, but where the cold start is what
//! is shown.
//!
//! *What is not.* Servers that are busy, lost messages, consensus inside a site (a commit takes a
//! constant millisecond), and how a request finds the owner of its key. Reads and writes are alike,
//! so *all-R* differs from *all-RW* by its draws only. The paper's regions are not described: here
//! one is an access point's surroundings for keys, and the 3 × 3 around it for latencies.
//!
//! | part | its one idea |
//! | --- | --- |
//! | [`experiment`] | which runs make which figure |
//! | [`result`] | what came out, beside what was published and what is the goal |
//! | [`report`] | all of it as a page and as JSON |

pub mod experiment;
pub mod report;
pub mod result;

pub use self::experiment::Results;
pub use self::experiment::play::Measured;
pub use self::experiment::point::{Point, Scene, Strategy};
pub use self::experiment::workload::Workload;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// As much as in the paper.
    Paper,
    /// Little of it: to see that everything works.
    Quick,
}

/// What a request and its answer have beside the value.
pub(crate) const REQUEST_BYTES: u32 = 64;
/// What a move has beside the value: the messages of two commits.
pub(crate) const MOVE_BYTES: u32 = 256;
