//! Which reads need not ask the core.

use super::machine::{Reader, Stopped};
use model::{Answer, Failure, KeyspaceId, Query, ReadConsistency, Refusal};
use std::time::Duration;
use storage::state::State;

/// Which reads may be answered from the state, on any thread, without asking the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadGate {
    /// None: the state is being replaced, or this node holds none.
    Closed,
    /// Stale ones.
    Stale,
    /// Stale ones, and until this moment (monotonic) linearizable ones of keyspaces with lease
    /// reads.
    Lease(Duration),
    /// All: this node is the only voter, so nobody else can have acknowledged anything.
    Open,
}

impl ReadGate {
    /// Answers a query from the state, if that is allowed now. `None`: the core is to be asked.
    pub fn answer<S: State>(
        self,
        now: impl FnOnce() -> Duration,
        reader: &Reader<S>,
        keyspace: KeyspaceId,
        query: &Query,
        consistency: ReadConsistency,
    ) -> Option<Result<Answer, Failure>> {
        let here = match self {
            ReadGate::Open => true,
            ReadGate::Closed => false,
            _ if consistency == ReadConsistency::Stale => true,
            ReadGate::Lease(until) => {
                now() < until
                    && reader.catalog().by_id(keyspace).is_some_and(|k| k.spec.lease_reads)
            }
            ReadGate::Stale => false,
        };
        if !here {
            return None;
        }
        match reader.query(keyspace, query) {
            Ok(answer) => Some(Ok(answer)),
            // Another site is to be asked, or it comes back in a moment.
            Err(Stopped::Refused(Refusal::NotHeld(_))) => None,
            Err(Stopped::Refused(refusal)) => Some(Err(Failure::Refused(refusal))),
            // The core meets the same error and says what happens next.
            Err(Stopped::Failed(_)) => None,
        }
    }

    /// Whether this node leads its site for sure.
    pub fn leads(self) -> bool {
        matches!(self, ReadGate::Open | ReadGate::Lease(_))
    }
}
