//! Linearizable reads without writing to the log (Raft thesis, 6.4).
//!
//! All reads that wait become one *round*: the leader notes its commit index, makes sure by a
//! heartbeat that it still leads, and the round is answered from this node's state once that index
//! is applied here. The next round gathers while one is under way. A round that gets no answer
//! (a message was lost, the leader is new) is asked again under a new number.
//!
//! A round that the *leader* completes also is a lease: its followers will not vote for another
//! node for an election timeout after the heartbeats it was made of were sent. Keyspaces with lease
//! reads may read by it, less [`LEASE_MARGIN`] for clocks that run at different rates; others never
//! do. A lease proves leadership, not how far the leader's own state is: entries are committed by
//! the followers' acknowledgements while the leader's disk still writes them, the leader applies
//! only what its own disk has, and a follower that is ahead may have answered already. So a read by
//! lease waits, as any other, until the commit index of its arrival is applied here.
//!
//! A read that meets a key which is *due* (its time has come by the leader's clock, and no entry
//! has removed it yet) waits for the entry that does: once the key was gone for one read it must be
//! gone for all, and a clock alone does not ensure that. By what time keys are due is settled when
//! the read is first looked at, so that it waits for one tick and not for ever. The leader proposes
//! that tick by itself; a follower receives the time together with the read index, so it is never
//! too early.
//!
//! A request that goes to another site takes a read index of this site beside it
//! ([`Reads::want_index`]): all that leave until the next round begins share that round's index,
//! with reads of this site's own if there are any, so that it costs a message for each of its round
//! trips and not for each request.
//!
//! Two more things keep a lease true. A node that has just started grants no vote for an election
//! timeout, since it may have forgotten a heartbeat that it answered. And a leader that has begun
//! to hand leadership over has no lease for the rest of its term, since the message that lets the
//! other stand at once may still be on its way.

use crate::origin::Origin;
use model::{ClientId, KeyspaceId, Query, ReadConsistency, limits};
use std::collections::VecDeque;
use std::time::Duration;

/// The share of an election timeout that a lease does not use. Safe while no clock of the site runs
/// more than a fifth faster or slower than another.
pub const LEASE_MARGIN: f64 = 0.2;

/// A read that waits.
#[derive(Debug)]
pub(crate) struct WaitingRead {
    pub(crate) origin: Origin,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) query: Query,
    pub(crate) consistency: ReadConsistency,
    pub(crate) deadline: Duration,
    pub(crate) due: Due,
}

/// The time by which a key is due for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// By log time as it was applied here: nothing is due that is not gone.
    Applied,
    /// By the leader's clock at the moment when the read is first looked at.
    NotSettled,
    /// By this log time, or not beyond what was applied, as nothing can be proposed.
    By(Option<u64>),
}

struct Round {
    number: u64,
    started: Duration,
    ask_again: Duration,
    reads: Vec<WaitingRead>,
    /// Which index it is, for requests to other sites that wait for it; 0: none do.
    index: u64,
}

/// Reads that are good once an index of the log is applied.
struct Confirmed {
    applied: u64,
    reads: Vec<WaitingRead>,
    /// See [`Round::index`].
    index: u64,
}

/// The reads of one node.
#[derive(Default)]
pub(crate) struct Reads {
    gathering: Vec<WaitingRead>,
    /// Whether the next round is awaited by requests to other sites.
    index_wanted: bool,
    /// How many indexes were taken for such requests, and how many of them are applied.
    indexes: u64,
    indexes_applied: u64,
    round: Option<Round>,
    confirmed: VecDeque<Confirmed>,
    /// Those that have met a key that is due, and the log time at which it is gone.
    due: Vec<(u64, WaitingRead)>,
    rounds: u64,
}

impl Reads {
    /// None yet. Rounds are numbered from `process`, drawn at its start: an answer that was meant
    /// for an earlier process of this node must not be taken for one to this one's.
    pub(crate) fn new(process: ClientId) -> Reads {
        Reads { rounds: process.0, ..Reads::default() }
    }

    /// Takes in a read that may be answered once `index` is applied; `false`: too many wait.
    #[must_use]
    pub(crate) fn push_confirmed(&mut self, read: WaitingRead, index: u64) -> bool {
        if self.waiting() >= limits::READS_WAITING_MAX {
            return false;
        }
        match self.confirmed.back_mut() {
            // Those behind a higher index wait for it, too; it is on its way to this node's disk.
            Some(last) if last.applied >= index => last.reads.push(read),
            _ => {
                let reads = vec![read];
                self.confirmed.push_back(Confirmed { applied: index, reads, index: 0 });
            }
        }
        true
    }

    /// Takes in a read; `false`: too many wait.
    #[must_use]
    pub(crate) fn push(&mut self, read: WaitingRead) -> bool {
        if self.waiting() >= limits::READS_WAITING_MAX {
            return false;
        }
        self.gathering.push(read);
        true
    }

    /// A request leaves for another site: the number of the read index that its answer waits for.
    pub(crate) fn want_index(&mut self) -> u64 {
        self.index_wanted = true;
        self.indexes + 1
    }

    /// Up to which number the read indexes are applied here.
    pub(crate) fn indexes_applied(&self) -> u64 {
        self.indexes_applied
    }

    /// No request waits for an index any more.
    pub(crate) fn want_no_index(&mut self) {
        self.index_wanted = false;
        self.round.take_if(|round| round.reads.is_empty());
    }

    pub(crate) fn waiting(&self) -> usize {
        let confirmed = self.confirmed.iter().map(|one| one.reads.len());
        let under_way = self.round.as_ref().map_or(0, |round| round.reads.len());
        self.gathering.len() + under_way + confirmed.sum::<usize>() + self.due.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.gathering.is_empty()
            && !self.index_wanted
            && self.round.is_none()
            && self.confirmed.is_empty()
            && self.due.is_empty()
    }

    /// A read waits until this log time is applied. Gives it back if too many wait.
    pub(crate) fn wait_for(&mut self, log_time_ms: u64, read: WaitingRead) -> Option<WaitingRead> {
        if self.waiting() >= limits::READS_WAITING_MAX {
            return Some(read);
        }
        self.due.push((log_time_ms, read));
        None
    }

    /// The reads that have waited for a log time that is applied now.
    pub(crate) fn take_due(&mut self, log_time_ms: u64) -> Vec<WaitingRead> {
        let is_over = |(at, _): &mut (u64, WaitingRead)| *at <= log_time_ms;
        self.due.extract_if(.., is_over).map(|(_, read)| read).collect()
    }

    /// Begins a round, or the one under way anew when it has waited too long. Answers with the
    /// number to ask under.
    pub(crate) fn next_round(&mut self, now: Duration, timeout: Duration) -> Option<u64> {
        let (mut reads, mut index) = match &mut self.round {
            Some(round) if round.ask_again > now => return None,
            Some(round) => (std::mem::take(&mut round.reads), round.index),
            None if self.gathering.is_empty() && !self.index_wanted => return None,
            None => (Vec::new(), 0),
        };
        reads.append(&mut self.gathering);
        if std::mem::take(&mut self.index_wanted) {
            self.indexes += 1;
            index = self.indexes;
        }
        self.rounds = self.rounds.wrapping_add(1);
        let number = self.rounds;
        self.round = Some(Round { number, started: now, ask_again: now + timeout, reads, index });
        Some(number)
    }

    /// The leader or the term is another: whatever was asked is asked again.
    pub(crate) fn ask_again(&mut self) {
        if let Some(round) = &mut self.round {
            round.ask_again = Duration::ZERO;
        }
    }

    /// A round was answered: its reads are good once `index` is applied. When it began, if it is
    /// the one under way.
    pub(crate) fn confirmed(&mut self, number: u64, index: u64) -> Option<Duration> {
        let round = self.round.take_if(|round| round.number == number)?;
        let Round { reads, index: of_round, .. } = round;
        self.confirmed.push_back(Confirmed { applied: index, reads, index: of_round });
        Some(round.started)
    }

    /// The reads that may be answered now.
    pub(crate) fn take_ready(&mut self, applied: u64) -> Option<Vec<WaitingRead>> {
        if self.confirmed.front()?.applied > applied {
            return None;
        }
        let Confirmed { reads, index, .. } = self.confirmed.pop_front()?;
        self.indexes_applied = self.indexes_applied.max(index);
        Some(reads)
    }

    /// Those that have waited past their deadline.
    pub(crate) fn give_up(&mut self, now: Duration) -> Vec<Origin> {
        let queues = [Some(&mut self.gathering), self.round.as_mut().map(|round| &mut round.reads)];
        let confirmed = self.confirmed.iter_mut().map(|one| &mut one.reads);
        let mut late = Vec::new();
        for queue in queues.into_iter().flatten().chain(confirmed) {
            queue.retain(|read| {
                let keep = read.deadline > now;
                if !keep {
                    late.push(read.origin);
                }
                keep
            });
        }
        late.extend(self.due.extract_if(.., |(_, r)| r.deadline <= now).map(|(_, r)| r.origin));
        self.round.take_if(|round| round.reads.is_empty() && round.index == 0);
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Ticket;

    fn read(ticket: u64) -> WaitingRead {
        WaitingRead {
            origin: Origin::client(Ticket(ticket)),
            keyspace: KeyspaceId::DEFAULT,
            query: Query::Count,
            consistency: ReadConsistency::Linearizable,
            deadline: Duration::from_secs(10),
            due: Due::NotSettled,
        }
    }

    const TIMEOUT: Duration = Duration::from_millis(200);

    #[test]
    fn reads_gather_while_a_round_is_under_way() {
        let mut reads = Reads::default();
        assert!(reads.push(read(1)));
        let first = reads.next_round(Duration::ZERO, TIMEOUT).unwrap();
        assert!(reads.push(read(2)));
        assert_eq!(reads.next_round(Duration::from_millis(1), TIMEOUT), None);
        assert_eq!(reads.confirmed(first, 5), Some(Duration::ZERO));
        assert!(reads.take_ready(4).is_none(), "index 5 is not applied yet");
        assert_eq!(reads.take_ready(5).unwrap()[0].origin, Origin::client(Ticket(1)));
        assert!(reads.next_round(Duration::from_millis(2), TIMEOUT).is_some());
    }

    #[test]
    fn reads_by_lease_wait_for_what_is_committed() {
        let mut reads = Reads::default();
        assert!(reads.push_confirmed(read(1), 5));
        assert!(reads.push_confirmed(read(2), 5));
        assert!(reads.push_confirmed(read(3), 7));
        assert_eq!(reads.waiting(), 3);
        assert!(reads.take_ready(4).is_none());
        assert_eq!(reads.take_ready(6).unwrap().len(), 2);
        assert!(reads.take_ready(6).is_none(), "index 7 is not applied yet");
        assert_eq!(reads.take_ready(7).unwrap()[0].origin, Origin::client(Ticket(3)));
        assert!(reads.is_idle());
    }

    #[test]
    fn requests_to_other_sites_share_an_index_with_reads() {
        let mut reads = Reads::default();
        assert_eq!((reads.want_index(), reads.want_index()), (1, 1));
        assert!(!reads.is_idle() && reads.push(read(1)));
        let first = reads.next_round(Duration::ZERO, TIMEOUT).unwrap();
        assert_eq!(reads.want_index(), 2, "what leaves now needs a later one");
        assert!(reads.confirmed(first, 5).is_some());
        assert!(reads.take_ready(4).is_none() && reads.indexes_applied() == 0);
        assert_eq!(reads.take_ready(5).unwrap().len(), 1);
        assert_eq!(reads.indexes_applied(), 1);
        reads.next_round(Duration::ZERO, TIMEOUT).unwrap();
        assert_eq!(reads.give_up(TIMEOUT), [], "a round without reads is awaited, too");
        let again = reads.next_round(TIMEOUT, TIMEOUT).unwrap();
        assert!(reads.confirmed(again, 6).is_some());
        assert!(reads.take_ready(6).unwrap().is_empty());
        assert_eq!(reads.indexes_applied(), 2);
        reads.want_index();
        reads.want_no_index();
        assert!(reads.is_idle());
    }

    #[test]
    fn what_is_due_is_waited_for_until_the_deadline() {
        let mut reads = Reads::default();
        assert!(reads.wait_for(500, read(1)).is_none() && reads.wait_for(900, read(2)).is_none());
        assert!(!reads.is_idle() && reads.take_due(499).is_empty());
        assert_eq!(reads.take_due(500)[0].origin, Origin::client(Ticket(1)));
        assert_eq!(reads.give_up(Duration::from_secs(10)), [Origin::client(Ticket(2))]);
        assert!(reads.is_idle());
    }

    #[test]
    fn no_more_wait_than_the_limit_says() {
        let mut reads = Reads::default();
        for _ in 0..limits::READS_WAITING_MAX {
            assert!(reads.push_confirmed(read(1), 5));
        }
        assert!(!reads.push_confirmed(read(2), 5));
        assert!(!reads.push(read(2)));
    }

    #[test]
    fn an_answer_to_a_round_that_was_asked_again_counts_for_nothing() {
        let mut reads = Reads::default();
        assert!(reads.push(read(1)));
        let first = reads.next_round(Duration::ZERO, TIMEOUT).unwrap();
        assert!(reads.push(read(2)));
        let second = reads.next_round(TIMEOUT, TIMEOUT).unwrap();
        assert_eq!(reads.confirmed(first, 5), None);
        assert_eq!(reads.confirmed(second, 6), Some(TIMEOUT));
        assert_eq!(reads.take_ready(6).unwrap().len(), 2);
    }
}
