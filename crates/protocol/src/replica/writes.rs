//! Writes on their way through the log.
//!
//! A write waits until no append is on its way to disk; then all that wait become one entry. Their
//! origins are kept beside the entry's index and term: when that index is applied with the same
//! term, the entry's answers are theirs; with another term, another leader's entry stands there and
//! ours is certain never to be applied, so its writes simply wait again. Before that nothing is
//! certain: an entry that was cut from this node's log may lie in another's and be committed yet.
//! Only a write with an entry that is still open at its deadline is answered as unknown.

use super::moments;
use crate::origin::Origin;
use model::{
    Answer, ClientId, Command, Condition, Failure, NodeId, Refusal, Revision, Slot, Write, limits,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::entry::{self, BatchEncoder};

/// A write that is not in the log yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) origin: Origin,
    pub(crate) command: Command,
    pub(crate) size_bytes: usize,
    pub(crate) deadline: Duration,
}

impl Waiting {
    /// Whether its number is one that a node gave it.
    pub(crate) fn is_numbered_by(&self, node: ClientId) -> bool {
        self.command.request_id().is_some_and(|id| id.client == node)
    }
}

/// The origin that waits for a write in the log.
#[derive(Debug)]
struct PendingWrite {
    origin: Origin,
    size_bytes: usize,
    deadline: Duration,
}

/// The writes of an entry that this node proposed: its commands need not be read back from it.
#[derive(Debug, Default)]
pub(crate) struct Proposed {
    pub(crate) batch: entry::Batch,
    /// One a command.
    pending: Vec<PendingWrite>,
}

impl Proposed {
    fn push(&mut self, write: Waiting) {
        let Waiting { origin, command, size_bytes, deadline } = write;
        self.pending.push(PendingWrite { origin, size_bytes, deadline });
        self.batch.commands.push(command);
    }

    /// Answers puts without conditions before they are durable: a bug, for a trial.
    pub(crate) fn acknowledge_puts(&mut self, index: u64, settled: &mut Vec<Settled>) {
        for (pending, command) in self.pending.iter_mut().zip(&self.batch.commands) {
            let Command::Write { write: Write::Put { condition: Condition::Always, .. }, .. } =
                command
            else {
                continue;
            };
            let origin = std::mem::replace(&mut pending.origin, Origin::Discard);
            let version = Revision(index);
            settled.push((origin, Ok(Answer::Put { applied: true, version, old: None })));
        }
    }

    fn into_waiting(self) -> impl DoubleEndedIterator<Item = Waiting> {
        self.pending.into_iter().zip(self.batch.commands).map(|(pending, command)| {
            let PendingWrite { origin, size_bytes, deadline } = pending;
            Waiting { origin, command, size_bytes, deadline }
        })
    }
}

/// An outcome, and its origin.
pub(crate) type Settled = (Origin, Result<Answer, Failure>);

/// The writes of one node.
pub(crate) struct Writes {
    /// Under which name this node numbers writes that it forwards; they may come back to it.
    numbers_as: ClientId,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// The writes of entries this node proposed and has not seen applied, by index and term.
    proposed: BTreeMap<(u64, u64), Proposed>,
    proposed_count: usize,
}

impl Writes {
    /// None yet. `numbers_as`: this process, among those that number requests.
    pub(crate) fn new(numbers_as: ClientId) -> Writes {
        Writes {
            numbers_as,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            proposed: BTreeMap::new(),
            proposed_count: 0,
        }
    }

    /// Takes in a write, or refuses it as too many wait.
    #[expect(clippy::result_large_err, reason = "an outcome, moved once, to what waits for it")]
    pub(crate) fn push(&mut self, write: Waiting) -> Result<(), Settled> {
        let too_many = self.waiting.len() >= limits::WRITES_WAITING_MAX;
        let too_much = self.waiting_bytes + write.size_bytes > limits::WRITES_WAITING_BYTES_MAX;
        if too_many || too_much {
            return Err((write.origin, Err(Failure::Overloaded { what: "writes" })));
        }
        self.waiting_bytes += write.size_bytes;
        self.waiting.push_back(write);
        Ok(())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a write that waits names a moment by the wall clock.
    pub(crate) fn name_moments(&self) -> bool {
        self.waiting.iter().any(|write| moments::names_one(&write.command))
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.proposed_count
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.proposed.is_empty()
    }

    /// Takes what fits one entry off the queue, at most so many, and encodes it.
    /// The moments in them become log time, which the wall clock is ahead of by so much.
    pub(crate) fn take_batch(
        &mut self,
        count_max: usize,
        wall_ahead_ms: i64,
    ) -> (Proposed, BatchEncoder) {
        let mut encoder = BatchEncoder::with_capacity(self.waiting_bytes);
        let mut batch = Proposed::default();
        let count_max = self.waiting.len().min(count_max);
        batch.pending.reserve_exact(count_max);
        batch.batch.commands.reserve_exact(count_max);
        while !encoder.is_full() && batch.pending.len() < count_max {
            let Some(mut write) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= write.size_bytes;
            moments::to_log_time(&mut write.command, wall_ahead_ms);
            encoder.push(&write.command);
            batch.push(write);
        }
        (batch, encoder)
    }

    /// All that wait, to be forwarded.
    pub(crate) fn take_all(&mut self) -> VecDeque<Waiting> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    /// Puts writes back to the front of the queue, in their order.
    pub(crate) fn put_back(&mut self, writes: Proposed) {
        for write in writes.into_waiting().rev() {
            self.waiting_bytes += write.size_bytes;
            self.waiting.push_front(write);
        }
    }

    /// Remembers the origins of an entry's writes.
    pub(crate) fn proposed(&mut self, index: u64, term: u64, writes: Proposed) {
        self.proposed_count += writes.pending.len();
        self.proposed.insert((index, term), writes);
    }

    /// What an entry carries, if this node proposed it.
    pub(crate) fn batch_of(&self, index: u64, term: u64) -> Option<&entry::Batch> {
        Some(&self.proposed.get(&(index, term))?.batch)
    }

    /// An entry was applied. If it is one of ours its writes are settled by `answers`, one a
    /// command; those that ours of other terms carry at this index wait again. A write of a client
    /// of this node whose slot was not here any more is given to `moved`, to go where the slot is.
    pub(crate) fn applied(
        &mut self,
        index: u64,
        term: u64,
        answers: impl Iterator<Item = Result<Answer, Refusal>>,
        (settled, moved): (&mut Vec<Settled>, &mut Vec<(Slot, Waiting)>),
    ) {
        if let Some(writes) = self.proposed.remove(&(index, term)) {
            self.proposed_count -= writes.pending.len();
            for (write, answer) in writes.into_waiting().zip(answers) {
                let own = write.is_numbered_by(self.numbers_as);
                match (write.origin, answer) {
                    (Origin::Client { .. }, Err(Refusal::NotHeld(slot))) if !own => {
                        moved.push((slot, write));
                    }
                    (origin, answer) => {
                        let outcome = answer.map_err(Failure::Refused);
                        settled.push((
                            origin,
                            if own { forgotten_is_unknown(outcome) } else { outcome },
                        ));
                    }
                }
            }
        }
        let later = self.proposed.split_off(&(index + 1, 0));
        for writes in std::mem::replace(&mut self.proposed, later).into_values().rev() {
            self.proposed_count -= writes.pending.len();
            self.put_back(writes);
        }
    }

    /// A snapshot took the place of all entries up to `index`: the outcome of ours among them
    /// cannot be found any more.
    pub(crate) fn covered_by_snapshot(&mut self, index: u64, settled: &mut Vec<Settled>) {
        let later = self.proposed.split_off(&(index + 1, 0));
        for writes in std::mem::replace(&mut self.proposed, later).into_values() {
            self.proposed_count -= writes.pending.len();
            for pending in writes.pending {
                settled.push((
                    pending.origin,
                    Err(unknown("the node was behind and took a snapshot")),
                ));
            }
        }
    }

    /// Gives up what has waited past its deadline.
    pub(crate) fn give_up(&mut self, now: Duration, settled: &mut Vec<Settled>) {
        if self.waiting.iter().any(|write| write.deadline <= now) {
            let (late, waiting): (VecDeque<_>, _) =
                std::mem::take(&mut self.waiting).into_iter().partition(|w| w.deadline <= now);
            self.waiting = waiting;
            for write in late {
                self.waiting_bytes -= write.size_bytes;
                settled.push((write.origin, Err(Failure::NoLeader)));
            }
        }
        for write in self.proposed.values_mut().flat_map(|proposed| &mut proposed.pending) {
            if write.deadline <= now && write.origin != Origin::Discard {
                let origin = std::mem::replace(&mut write.origin, Origin::Discard);
                settled.push((origin, Err(unknown("its deadline passed on the way to a quorum"))));
            }
        }
    }

    /// Refuses all that wait: the disk is full.
    pub(crate) fn refuse_waiting(&mut self, failure: &Failure, settled: &mut Vec<Settled>) {
        for write in self.take_all() {
            settled.push((write.origin, Err(failure.clone())));
        }
    }

    /// Answers what is in the log and not durable: it may be, once there is room.
    pub(crate) fn doubt_proposed(&mut self, settled: &mut Vec<Settled>) {
        for write in self.proposed.values_mut().flat_map(|proposed| &mut proposed.pending) {
            let origin = std::mem::replace(&mut write.origin, Origin::Discard);
            settled.push((origin, Err(unknown("the disk became full under it"))));
        }
    }

    /// Requests of other nodes that wait here, when this node no longer leads: they are sent back.
    pub(crate) fn take_foreign(&mut self) -> Vec<(NodeId, u64)> {
        let mut foreign = Vec::new();
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        for write in waiting {
            match write.origin {
                Origin::Node { node, id, .. } => foreign.push((node, id)),
                _ => {
                    self.waiting_bytes += write.size_bytes;
                    self.waiting.push_back(write);
                }
            }
        }
        foreign
    }
}

/// The outcome of a write that this node numbered itself: its client never saw the number, and a
/// site that has forgotten it may have applied the write. A client that numbers its writes receives
/// the outcome as it is.
pub(crate) fn forgotten_is_unknown(outcome: Result<Answer, Failure>) -> Result<Answer, Failure> {
    match outcome {
        Err(Failure::Refused(Refusal::RequestForgotten)) => Err(unknown(FORGOTTEN)),
        outcome => outcome,
    }
}

const FORGOTTEN: &str =
    "it was sent again, and the site has no record any more of whether it was applied";

/// The outcome that such a write has by a planted bug.
pub(crate) fn forgotten_is_refused(outcome: Result<Answer, Failure>) -> Result<Answer, Failure> {
    match outcome {
        Err(Failure::Unknown { why: FORGOTTEN }) => {
            Err(Failure::Refused(Refusal::RequestForgotten))
        }
        outcome => outcome,
    }
}

/// A write with an unknown outcome.
pub(crate) fn unknown(why: &'static str) -> Failure {
    Failure::Unknown { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Ticket;
    use model::{KeyspaceId, RequestId};

    const NODE: ClientId = ClientId(7);

    fn with(ticket: u64, command: Command) -> Proposed {
        let origin = Origin::client(Ticket(ticket));
        let deadline = Duration::from_secs(10);
        let mut proposed = Proposed::default();
        proposed.push(Waiting { origin, command, size_bytes: 64, deadline });
        proposed
    }

    fn write(ticket: u64) -> Proposed {
        with(ticket, Command::ClearAll)
    }

    #[test]
    fn that_a_number_is_forgotten_says_nothing_to_who_did_not_give_it() {
        let outcome = |client| {
            let write = Write::Add { key: "k".into(), delta: 1 };
            let request = Some(RequestId { client, sequence: 3, acknowledged_below: 0 });
            let command = Command::Write { keyspace: KeyspaceId::DEFAULT, write, request };
            let (mut writes, mut settled) = (Writes::new(NODE), Vec::new());
            writes.proposed(12, 1, with(1, command));
            writes.applied(
                12,
                1,
                [Err(Refusal::RequestForgotten)].into_iter(),
                (&mut settled, &mut Vec::new()),
            );
            settled.pop().expect("an answer").1
        };
        assert!(matches!(outcome(NODE), Err(Failure::Unknown { .. })));
        let reported = Err(Failure::Refused(Refusal::RequestForgotten));
        assert_eq!(outcome(ClientId(8)), reported, "the client that numbered it can judge it");
    }

    fn proposed_twice_at_one_index() -> Writes {
        let mut writes = Writes::new(NODE);
        writes.proposed(12, 1, write(1));
        // Another leader's entries cut 12 from this node's log; it leads again in term 3.
        writes.proposed(12, 3, write(2));
        assert_eq!((writes.waiting(), writes.in_flight()), (0, 2), "both may be committed yet");
        writes
    }

    #[test]
    fn an_entry_cut_from_this_log_may_be_committed_from_another() {
        let mut writes = proposed_twice_at_one_index();
        let mut settled = Vec::new();
        let answers = [Ok(Answer::Flag(true))];
        writes.applied(12, 1, answers.into_iter(), (&mut settled, &mut Vec::new()));
        assert_eq!(settled, [(Origin::client(Ticket(1)), Ok(Answer::Flag(true)))]);
        assert_eq!((writes.waiting(), writes.in_flight()), (1, 0), "the other waits again");
    }

    #[test]
    fn writes_wait_again_once_another_entry_stands_in_their_place() {
        let mut writes = proposed_twice_at_one_index();
        let mut settled = Vec::new();
        writes.applied(12, 2, std::iter::empty(), (&mut settled, &mut Vec::new()));
        assert!(settled.is_empty());
        assert_eq!((writes.waiting(), writes.in_flight()), (2, 0));
    }
}
