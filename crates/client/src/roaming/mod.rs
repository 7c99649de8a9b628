//! Sessions that move among the sites of a deployment by themselves.
//!
//! [`Sites`] are the sites that a program may use, and how long each takes to answer. A
//! [`RoamingSession`] is at one of them: it stays there while that serves, goes on at another one
//! when it does not, and moves when another one is clearly nearer. What it has seen goes with it,
//! so it reads its own writes and never less than it has read.
//!
//! | module | purpose |
//! | --- | --- |
//! | `error` | why a call failed, and what to do about it |
//! | `distance` | how long sites take to answer, and which one is nearer |
//! | `place` | where a session is, and in which order it tries the sites: no sockets, any clock |
//! | `reach` | one request to one site |
//! | `sites` | the sites, and the task that measures them |
//! | `session` | what an application calls |
//!
//! A put, or a batch of puts, that was sent and gets no answer is sent to other sites with
//! `elsewhere`: the root finds by its number whether it was made. Any other write is asked for again at the same site only, as no other one
//! has a record of it. The rules and their numbers are those of the packages for other languages
//! (docs/causal.md), except that no other write of theirs has a number.

mod distance;
mod error;
mod place;
mod reach;
mod session;
mod sites;

pub use distance::Roaming;
pub use error::{RoamingError, SitesError};
pub use place::SessionStats;
pub use session::{RoamingKeyspace, RoamingScan, RoamingSession};
pub use sites::Sites;
