//! Who should own what: the solver of placement.
//!
//! A *group* is what moves as one: the keys of one tag, or a slot of a Redis Cluster. A *site* is a
//! place where a group can be. An *origin* is a place where its requests come from. From the rate
//! of each origin's accesses and the latencies between origins and sites follows the cost of a
//! group at each site: the time that its users wait, in milliseconds per second. The solver finds
//! the site where that is least, and the moves that are worth making.
//!
//! Pure and deterministic: values in, values out. Nothing here uses a mode, a clock, a message or a
//! server. Time comes in as numbers, and so does how much work a call may do.
//!
//! # The way of a decision
//!
//! ```text
//! latencies ─┐                      ┌ scan      exact, over all sites
//! groups ────┼─> solver (a budget) ─┼ near      k nearest sites of each origin, with a certificate
//! rules ─────┘                      └ dominant  the nearest site of the heaviest origin
//!                     └─> auction (prices) or greedy ─> stability ─> plan (a window's budget) ─> moves
//!                                                        └─> explain     ledger <─ what was moved ─┘
//! ```
//!
//! - [`latencies`]: the matrix of latencies. An unknown latency excludes its site, an absurd one is
//!   dropped. [`probing`]: which of them a site measures by messages of its own.
//! - [`groups`]: where the accesses of each group come from, sparse (CSR): 10 bytes a group, 6
//!   bytes an origin. [`profile`], [`counter`], [`sampler`]: how an owner counts them, in bounded
//!   memory. [`sketch`]: how the latencies of a client vary.
//! - [`rules`]: barred sites and pins of groups; excluded sites and priorities of kinds of groups.
//! - [`scan`], [`near`]: the least cost of one group.
//! - [`solver`]: the best site of each group within a budget of operations.
//! - [`quantile`]: the objective p95, or any other quantile, in place of the mean.
//! - [`order`]: groups by utility, the largest first.
//! - [`auction`]: capacities by prices, with a certificate. [`room`]: the same between sites that know
//!   each other's groups by bids alone.
//! - [`mod@greedy`]: Portkey's assignment under capacities; a baseline.
//! - [`stability`]: margin and regret: when a better site is worth a move.
//! - [`weights`]: one vote for each client, against liars; [`Counter::with_votes`] counts so.
//! - [`mod@plan`]: which moves a window makes. [`decide`]: all of that for the groups of one owner,
//!   in batches. [`carried`]: which groups it need not look at again.
//! - [`mod@explain`], [`ledger`]: what an operator asks for, as values.
//!
//! # What must stay true
//!
//! A site with an unknown latency to one of a group's origins is never chosen for that group, a
//! barred one never, one that is excluded for its kind never, and a pinned group goes to its pin
//! only. A group whose cost where it is cannot be stated stays. Of equal sites the owner wins, then
//! the lowest index: the same inputs give the same moves.
//!
//! # What is left out
//!
//! Replicas beyond the owner (their placement is a question of durability), load (latencies are of
//! the network alone, or all groups would flee to the idle site at once), and the messages that
//! carry accesses, latencies and moves.
//!
//! # Sources
//!
//! Noor, Srivastava, Netravali: *Portkey: Adaptive Key-Value Placement over Dynamic Edge Networks*,
//! `SoCC` 2021: costs (§4.2.1), greedy by utility per byte and the dominant node (§4.2.2), equal
//! weights and the cut-off (§7). Bertsekas: *The auction algorithm*, 1988: prices.

pub mod auction;
pub mod carried;
pub mod counter;
pub mod decide;
pub mod explain;
pub mod greedy;
pub mod groups;
pub mod latencies;
pub mod ledger;
pub mod near;
pub mod order;
pub mod plan;
pub mod probing;
pub mod profile;
pub mod quantile;
pub mod room;
pub mod rules;
pub mod sampler;
pub mod scan;
pub mod sketch;
pub mod solver;
pub mod stability;
#[cfg(test)]
mod tests;
pub mod trial;
mod votes;
pub mod weights;

pub use auction::{Prices, Terms};
pub use carried::{Basis, Carried};
pub use counter::{Counter, GroupKey};
pub use decide::{Choice, Chosen, Decision, Waiting, Wanted};
pub use explain::{Candidate, Explanation, Why, explain};
pub use greedy::{Assignment, Capacities, greedy};
pub use groups::{Accesses, Groups};
pub use latencies::{Latencies, Matrix, Origin, Site};
pub use ledger::{Ledger, Window};
pub use near::Near;
pub use plan::{Limits, Move, Plan, plan};
pub use profile::{Client, Profile, Tick};
pub use quantile::Tail;
pub use room::Bid;
pub use rules::{Bar, ByKey, Kind, Rules};
pub use sampler::Sampler;
pub use sketch::Distribution;
pub use solver::{Answer, Method, Solution, Solver};
pub use stability::{Judgement, Regrets, Stability};
