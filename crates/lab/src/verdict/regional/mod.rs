//! The promises of causal keys, by the order that their region gave to the writes.
//!
//! [`causal`](super::causal) and [`session`](super::session) judge operations on single keys by
//! values and versions. Here a request may read several registers, assign several, or delete whole
//! keys; each read names the write that it found, and once the region is at rest each write has a
//! position. With a given order, judging is near-linear. **Judged** is, for the promise `causal`:
//!
//! - *Causes come first.* A write's position is higher than that of all that its session had read
//!   and written before.
//! - *Nothing older than the past.* A read finds, of its register, no version that comes before one
//!   in its session's past: what the session read and wrote, and transitively what the sessions of
//!   those writes had read and written before them.
//! - *One state.* What one request reads belongs together: the past of each version that it found
//!   counts for all its registers, and so does the rest of the write that made it.
//!
//! This is causal convergence (Bouajjani, Enea, Guerraoui and Hamza, *On verifying causal
//! consistency*, 2017) with the store's own order as the one that all replicas converge to. For the
//! four guarantees of sessions (Terry and others, 1994):
//!
//! | promise | what must hold |
//! | --- | --- |
//! | read your writes | a session's read finds what it wrote to that register before, or later |
//! | monotonic reads | a session's read finds what it read of that register before, or later |
//! | monotonic writes | a session's writes have ascending positions; and a session that saw one of them finds, of each register, what its writer had written there before it, or later |
//! | writes follow reads | a session's write has a higher position than what it read before; and a session that saw it finds, of each register, what its writer had read there before it, or later |
//!
//! # What is done about the rest
//!
//! - A write that is *superseded* counts just below the write that superseded it; a write that was
//!   *sent twice* counts once ([`Instead`](crate::history::Instead)). Causes go by the positions
//!   themselves.
//! - A *lost* write comes after all that was ordered, in the order of its site.
//! - Where *nothing* was found and no delete is named, some delete must come after what is in the
//!   past. The earliest that does is what the session has seen from then on. An unanswered delete
//!   may be that one for reads that returned after it was called.
//! - An *unanswered* write that was read, or whose identity is known, happened; it is caused by
//!   nothing and causes what read it.
//! - A position or an identity that is missing leaves everything undecided, unless the rest is
//!   broken.
//!
//! Of several regions the order is that of the writes' stamps, in which a history has them. Of an
//! order that was rebuilt after losses it is what is left. Left out is then what a session did once
//! it had seen a place that is lost: a history has such a request without its reads, under a client
//! of its own. The lab writes it so (`clients::sessions::leave_void_out`), for one region: where
//! there are several, none is rebuilt, and nothing is left out.
//!
//! *Durable*, of causal keys: each acknowledged write has a position, or is declared lost.
//!
//! Counted are the requests.

#[cfg(test)]
mod brute;
mod causal;
mod facts;
mod guarantees;
#[cfg(test)]
mod made;
mod past;
#[cfg(test)]
mod tests;

use self::facts::Facts;
use super::{Verdict, Violation};
use crate::history::{History, Promise, Request};

/// Judges the requests of a history by a promise: `causal`, `durable`, or one of a session.
#[must_use]
pub fn judge(history: &History, promise: Promise) -> Verdict {
    let facts = match Facts::of(history) {
        Ok(facts) => facts,
        Err(why) => return Verdict::Undecided { why },
    };
    let found = match promise {
        Promise::Causal => causal::judge(&facts),
        Promise::Durable => Ok(()),
        _ => guarantees::judge(&facts, promise),
    };
    match (found, facts.problem()) {
        (Err(Flaw::Broken(violation)), _) => Verdict::Broken(violation),
        (Err(Flaw::TooMuch(why)), _) => Verdict::Undecided { why },
        (Ok(()), Some(why)) => Verdict::Undecided { why: why.to_owned() },
        (Ok(()), None) => Verdict::Holds { examined: history.requests.len() as u64 },
    }
}

/// The verdict on operations, that on requests, or both joined. Where there are requests,
/// operations are of keys that are not causal, and of what both promise only durability is asked.
pub(super) fn joined(
    history: &History,
    promise: Promise,
    of_operations: impl Fn() -> Verdict,
) -> Verdict {
    if history.requests.is_empty() {
        return of_operations();
    }
    let of_requests = judge(history, promise);
    if history.operations.is_empty() || promise != Promise::Durable {
        return of_requests;
    }
    match (of_operations(), of_requests) {
        (Verdict::Holds { examined }, Verdict::Holds { examined: more }) => {
            Verdict::Holds { examined: examined + more }
        }
        (broken @ Verdict::Broken(_), _) | (Verdict::Holds { .. }, broken) => broken,
        (_, broken @ Verdict::Broken(_)) => broken,
        (undecided, _) => undecided,
    }
}

/// Why a promise does not hold, or is not judged.
enum Flaw {
    Broken(Violation),
    TooMuch(String),
}

impl From<Violation> for Flaw {
    fn from(violation: Violation) -> Flaw {
        Flaw::Broken(violation)
    }
}

/// A violation, with the requests that show it; the last of them is where it can be seen.
fn violation(
    history: &History,
    promise: Promise,
    key: String,
    what: String,
    requests: &[usize],
) -> Violation {
    let at = requests.last().map(|at| &history.requests[*at]);
    let at_us = at.map(|request: &Request| request.return_us.unwrap_or(request.call_us));
    let mut requests = requests.to_vec();
    requests.sort_unstable();
    requests.dedup();
    Violation { promise, key: Some(key), what, operations: Vec::new(), requests, at_us }
}
