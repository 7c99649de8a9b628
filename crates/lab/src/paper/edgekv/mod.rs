//! The evaluation of EdgeKV (Sonbol, Özkasap, Al-Oqily and Aloqaily, *EdgeKV: decentralized,
//! scalable, and consistent storage for the edge*, 2020, §5 and §6), run again in virtual time.
//!
//! Three groups of three store nodes, a gateway each, and a client machine with a hundred threads
//! at each. Threads do half reads and half updates of 10,000 records of 100 bytes, one after the
//! other (YCSB's workload A), 10,000 operations a machine. Every record is there twice, once among
//! the group's own keys and once among the global keys; each operation is drawn to go to the one or
//! the other. The same is done in three settings:
//!
//! | [`Setting`] | links (Table 3) | requests about global keys go |
//! | --- | --- | --- |
//! | edge | near | over gateways: [`crate::clients::gateways`] |
//! | cloud | 50 ms to the store, next to nothing inside it | over gateways |
//! | ours | as in edge | directly from a client's node to the leader of the owner |
//! | cached | as in edge | the same, with copies of remote keys that the owner is asked about |
//! | stale | as in edge | the same; reads of global keys may be stale and are answered from copies of at most a second |
//!
//! All run the same sites, with the same consensus, log and disks, from the worlds `edgekv` and
//! `edgekv-cloud`; a setting differs in links and in the way of requests and in nothing else. Every
//! point of every figure is a run with a fixed seed, and its history is judged like that of any
//! other run.
//!
//! *What is modelled.* Delay and bandwidth of each link; queues at gateways where the bandwidth of
//! a link makes them; consensus among the nodes of a group; fsyncs of 10 ms, several writes sharing
//! one, since the paper's machines have hard disks; and a constant 0.1 ms that a node works on a
//! request of its clients, one after the other, which makes 30,000 a second for a group. Those two
//! numbers are the ones that etcd's own documents give for a hard disk and for a cluster of three;
//! they were not fitted to anything here.
//!
//! *What is not.* Processors: but for that constant, virtual time has none, so the *throughput* is
//! that of closed loops over latency (threads divided by the time that an operation takes) until
//! nodes are busy all the time. Gateways work on a request in no time. Threads of one machine do
//! not share its link. gRPC, YCSB's program, and whatever else took the rest of the time that was
//! published, are missing too: expect the published direction and order, not the published
//! milliseconds. Nodes of different groups are taken to be as far apart as the way over their
//! gateways is long (14 ms), so that ours wins nothing by a shorter wire.
//!
//! *What the paper leaves open*, and what was chosen: which nodes clients ask (a machine's threads
//! are distributed to the nodes of its group); how many clients figures 11 and 12 mean (at each
//! group); request rates of figure 13 (200 to 1,000 a second and machine); its "zipfian", described
//! with a hot set of 20 % (YCSB's zipfian with θ = 0.99); and which group holds a key (a third of
//! the slots each, more or less, by consistent hashing).
//!
//! *Copies* make no update faster: a validated one saves bytes and no way, a stale one the way of a
//! read. Where figures show updates a second in closed loops, fast reads are seen as more updates.
//! [`experiment::copies`] has the reads themselves, and the bytes between groups.
//!
//! | part | its one idea |
//! | --- | --- |
//! | [`experiment`] | which runs make which figure |
//! | [`result`] | what came out, beside what was published |
//! | [`report`] | all of it as a page |

pub mod experiment;
pub mod report;
pub mod result;

use std::collections::BTreeMap;

use self::experiment::copies;
pub use self::experiment::figure::Figure;
pub use self::experiment::point::{Keys, Point, Setting};
pub use self::result::measured::Measured;
use self::result::{bars, constants};

/// The lowest and the highest number of a figure.
pub const FIGURES: (u8, u8) = (5, 13);

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// As much as in the paper.
    Paper,
    /// Little of it: to see that everything works.
    Quick,
}

/// What each point came to.
pub type Results = BTreeMap<Point, Measured>;

/// All points of some figures, each once, in a fixed order; and those that the bars need.
#[must_use]
pub fn points(figures: &[Figure], size: Size) -> Vec<Point> {
    let mut points: Vec<Point> = figures.iter().flat_map(|figure| figure.points(size)).collect();
    points.extend(bars::points(size));
    points.extend(copies::points(size));
    if figures.iter().any(|figure| figure.asks_for_constants()) {
        points.extend(constants::points(size));
    }
    points.sort_unstable();
    points.dedup();
    points
}
