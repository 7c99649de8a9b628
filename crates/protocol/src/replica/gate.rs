//! Which reads need not ask the core.

use super::{Pace, moments};
use crate::admission::{Admission, Right};
use crate::machine::Stopped;
use crate::origin::Caller;
use model::{Answer, Catalog, KeyspaceId, Query, ReadConsistency};
use std::sync::Arc;
use std::time::Duration;

/// Which reads may be answered from the state, on any thread, without asking the core. Ordered: a
/// later one allows more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadGate {
    /// None: the state is being replaced, or this node holds none.
    Closed,
    /// Stale ones.
    Stale,
    /// Stale ones, and until this moment (monotonic) linearizable ones of keyspaces with lease
    /// reads.
    Lease(Duration),
    /// All: this node is the only voter, so no other node can have acknowledged anything.
    Open,
}

/// The state, as any thread reads it.
pub trait Readable {
    /// The keyspaces.
    fn catalog(&self) -> Arc<Catalog>;

    /// How the clocks of this site go, as its core last reported.
    fn pace(&self) -> Pace;

    /// Answers a query; a key that is due by this log time stops it.
    ///
    /// # Errors
    /// When there is no answer.
    fn query_by(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        due_by: Option<&dyn Fn() -> u64>,
    ) -> Result<Answer, Stopped>;

    /// A read was answered beside the core.
    fn note_read(&self, caller: Caller<'_>, keyspace: KeyspaceId, query: &Query);
}

/// The gate of a core, and the gate that its shell has.
///
/// The shell performs outputs in order, and reads pass the core by meanwhile. So the gate *narrows*
/// before anything else leaves: before the message that lets another node lead or acknowledge, and
/// before the state is replaced. It *widens* once all else has been done.
#[derive(Debug)]
pub(crate) struct Gate {
    now: ReadGate,
    sent: ReadGate,
}

impl Gate {
    /// Closed, as every shell takes it to be at the start.
    pub(crate) fn closed() -> Gate {
        Gate { now: ReadGate::Closed, sent: ReadGate::Closed }
    }

    pub(crate) fn now(&self) -> ReadGate {
        self.now
    }

    pub(crate) fn set(&mut self, gate: ReadGate) {
        self.now = gate;
    }

    /// The gate that the shell is to receive before it performs anything else.
    pub(crate) fn narrowed(&mut self) -> Option<ReadGate> {
        (self.now < self.sent).then(|| self.send())
    }

    /// The gate that the shell is to receive when it has performed everything else.
    pub(crate) fn moved(&mut self) -> Option<ReadGate> {
        (self.now != self.sent).then(|| self.send())
    }

    fn send(&mut self) -> ReadGate {
        self.sent = self.now;
        self.now
    }
}

impl ReadGate {
    /// Answers a query from the state, if that is allowed now. `None`: the core is to be asked.
    pub fn answer(
        self,
        now: impl Fn() -> Duration,
        reader: &impl Readable,
        keyspace: KeyspaceId,
        query: &Query,
        consistency: ReadConsistency,
        caller: Caller<'_>,
    ) -> Option<Answer> {
        let lease_reads =
            || reader.catalog().by_id(keyspace).is_some_and(|keyspace| keyspace.spec.lease_reads);
        if Right::of_gate(self, &now).admit(consistency, lease_reads) != Admission::Here {
            return None;
        }
        // Looked at only where a key expires.
        let due_by = || {
            let pace = reader.pace();
            if pace.is_due_by { pace.log_ms(now()) } else { 0 }
        };
        let waits = consistency == ReadConsistency::Linearizable;
        match reader.query_by(keyspace, query, waits.then_some(&due_by)) {
            Ok(mut answer) => {
                if matches!(answer, Answer::Expiry(_)) {
                    let pace = reader.pace();
                    moments::for_others(&mut answer, pace.log_ms(now()), pace.wall_ahead_ms);
                }
                reader.note_read(caller, keyspace, query);
                Some(answer)
            }
            // The core meets the same and decides what is next: another site is asked, a key is
            // fetched, an entry is waited for, or the request is refused.
            Err(_) => None,
        }
    }

    /// Whether the state has all that the site has acknowledged, for a keyspace that reads by lease
    /// or does not.
    pub(crate) fn is_current(
        self,
        lease_reads: impl FnOnce() -> bool,
        now: impl FnOnce() -> Duration,
    ) -> bool {
        match self {
            ReadGate::Open => true,
            ReadGate::Lease(until) => now() < until && lease_reads(),
            ReadGate::Closed | ReadGate::Stale => false,
        }
    }

    /// Whether this node leads its site for sure.
    pub fn leads(self) -> bool {
        matches!(self, ReadGate::Open | ReadGate::Lease(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: ReadGate = ReadGate::Lease(Duration::from_secs(1));
    const LONGER: ReadGate = ReadGate::Lease(Duration::from_secs(2));

    #[test]
    fn it_narrows_first_and_widens_last() {
        let mut gate = Gate::closed();
        assert_eq!((gate.narrowed(), gate.moved()), (None, None));
        for wider in [ReadGate::Stale, LEASE, LONGER, ReadGate::Open] {
            gate.set(wider);
            assert_eq!(gate.narrowed(), None, "{wider:?}");
            assert_eq!(gate.moved(), Some(wider));
        }
        for narrower in [LONGER, LEASE, ReadGate::Stale, ReadGate::Closed] {
            gate.set(narrower);
            assert_eq!(gate.narrowed(), Some(narrower));
            assert_eq!(gate.moved(), None, "{narrower:?}");
        }
    }

    #[test]
    fn what_was_not_told_is_not_told_any_more() {
        let mut gate = Gate::closed();
        gate.set(ReadGate::Open);
        gate.set(ReadGate::Closed);
        assert_eq!((gate.narrowed(), gate.moved()), (None, None));
    }
}
