//! The outputs of a site on etcd that may not be released yet, and the requests that wait for them.
//!
//! The core's outputs gather here with what the state's recorder has seen, until no round is on its
//! way; then all of it is the next round, and leaves when that is durable. Because a round is as
//! old as the last thing in it, and begins when everything in it is there, an answer always leaves
//! after a look at the lock that came after its question.
//!
//! A request past its deadline is answered so, while the round may wait on: a write's outcome is
//! unknown then, and the round's later answer to it is dropped. The core has requests by numbers of
//! this module's, which are never used again: the ticket of a call that has all its answers is
//! given to another call, for which an answer that comes late must not be taken.

use super::recording::{Changes, Recorder};
use crate::batcher::Outcome;
use model::{Body, Failure, MembershipError, Request, limits};
use protocol::site::{Output, ReadGate, Status, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A round that has been on its way for so long is trouble, and the node is not ready.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What leaves together.
struct Round<V> {
    outputs: Vec<Output<V>>,
    /// As it was when the round began.
    status: Arc<Status>,
    since: Duration,
}

/// What may leave now.
pub(crate) struct Released<V> {
    /// To be performed, in this order.
    pub(crate) outputs: Vec<Output<V>>,
    /// What the site is like, as far as it is durable.
    pub(crate) status: Arc<Status>,
}

struct Asked {
    ticket: Ticket,
    deadline: Duration,
    is_write: bool,
}

/// Outputs that wait for their round, and requests that wait for their outputs.
pub(crate) struct OutputBuffer<V> {
    recorder: Arc<Recorder>,
    rounds: mpsc::Sender<Changes>,
    gathering: Vec<Output<V>>,
    on_its_way: Option<Round<V>>,
    /// By their tickets in the core.
    asked: BTreeMap<u64, Asked>,
    /// The same, by when they give up.
    due: BTreeSet<(Duration, u64)>,
    numbers: u64,
    /// Answers that depend on nothing.
    refused: Vec<(Ticket, Outcome)>,
}

impl<V> OutputBuffer<V> {
    pub(crate) fn new(recorder: Arc<Recorder>, rounds: mpsc::Sender<Changes>) -> OutputBuffer<V> {
        OutputBuffer {
            recorder,
            rounds,
            gathering: Vec::new(),
            on_its_way: None,
            asked: BTreeMap::new(),
            due: BTreeSet::new(),
            numbers: 0,
            refused: Vec::new(),
        }
    }

    /// Registers a request. The ticket for the core; `None`: refused, it does not reach the core.
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        ticket: Ticket,
        request: &Request,
    ) -> Option<Ticket> {
        let failure = match request.body.properties().manages_nodes {
            true => Some(Failure::Membership(MembershipError::KeptInEtcd)),
            false => self.is_full(),
        };
        if let Some(failure) = failure {
            self.refused.push((ticket, Err(failure)));
            return None;
        }
        let wait = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let is_write = !matches!(request.body, Body::Read { .. });
        let deadline = now + wait;
        self.numbers += 1;
        self.asked.insert(self.numbers, Asked { ticket, deadline, is_write });
        self.due.insert((deadline, self.numbers));
        Some(Ticket(self.numbers))
    }

    /// Whether so much waits for etcd that nothing more may.
    pub(crate) fn is_full(&self) -> Option<Failure> {
        let full = self.asked.len() >= limits::ETCD_ANSWERS_WAITING_MAX
            || self.recorder.bytes() >= limits::ETCD_WAITING_BYTES_MAX;
        full.then_some(Failure::Overloaded { what: "answers that wait for etcd" })
    }

    /// Takes an output in. What comes back is for now.
    pub(crate) fn take(&mut self, output: Output<V>) -> Option<Output<V>> {
        match output {
            // The log is no more than the core's memory, and no other node needs a snapshot.
            Output::Persist(_) | Output::CutLog(_) | Output::Fatal(_) => Some(output),
            Output::Warn(_) => Some(output),
            Output::WriteSnapshot { .. } | Output::InstallSnapshot { .. } => Some(output),
            // Only the loop may answer: what is in the state may not be in etcd yet.
            Output::Gate(ReadGate::Closed) => Some(output),
            Output::Gate(_) => Some(Output::Gate(ReadGate::Stale)),
            output => {
                self.gathering.push(output);
                None
            }
        }
    }

    /// Begins the next round, if there is something for it and none is on its way.
    pub(crate) fn begin_round(&mut self, now: Duration, status: impl FnOnce() -> Status) {
        if self.on_its_way.is_some() || self.gathering.is_empty() && self.recorder.bytes() == 0 {
            return;
        }
        let round = Round {
            outputs: std::mem::take(&mut self.gathering),
            status: Arc::new(status()),
            since: now,
        };
        // The changes last: they include everything that the outputs report.
        let _ = self.rounds.send(self.recorder.take());
        self.on_its_way = Some(round);
    }

    /// Whether all that the core has done is in etcd.
    pub(crate) fn is_even(&self) -> bool {
        self.on_its_way.is_none() && self.gathering.is_empty() && self.recorder.bytes() == 0
    }

    /// Whether a round has been on its way for longer than one should be.
    pub(crate) fn is_stuck(&self, now: Duration) -> bool {
        self.on_its_way.as_ref().is_some_and(|round| round.since + TIMEOUT <= now)
    }

    /// The round on its way is durable.
    pub(crate) fn release(&mut self) -> Option<Released<V>> {
        let Round { outputs, status, .. } = self.on_its_way.take()?;
        let for_whoever_waits = |output| match output {
            Output::Answer { ticket, outcome, token } => {
                let ticket = self.forget(ticket.0)?.ticket;
                Some(Output::Answer { ticket, outcome, token })
            }
            other => Some(other),
        };
        let outputs = outputs.into_iter().filter_map(for_whoever_waits).collect();
        Some(Released { outputs, status })
    }

    fn forget(&mut self, number: u64) -> Option<Asked> {
        let asked = self.asked.remove(&number)?;
        self.due.remove(&(asked.deadline, number));
        Some(asked)
    }

    /// The outcomes of requests that were refused or have waited too long.
    pub(crate) fn late(&mut self, now: Duration) -> Vec<(Ticket, Outcome)> {
        let mut settled = std::mem::take(&mut self.refused);
        while let Some((deadline, number)) = self.due.first().copied() {
            if deadline > now {
                break;
            }
            settled.extend(self.give_up(number, "etcd did not answer in time"));
        }
        settled
    }

    /// The outcomes of all waiting requests, once nothing more will leave.
    pub(crate) fn end(&mut self) -> Vec<(Ticket, Outcome)> {
        let mut settled = std::mem::take(&mut self.refused);
        while let Some((_, number)) = self.due.first().copied() {
            settled.extend(self.give_up(number, "this process lost the site in etcd"));
        }
        settled
    }

    fn give_up(&mut self, number: u64, why: &'static str) -> Option<(Ticket, Outcome)> {
        let asked = self.forget(number)?;
        let failure = if asked.is_write { Failure::Unknown { why } } else { Failure::NoLeader };
        Some((asked.ticket, Err(failure)))
    }

    /// The next deadline of a waiting request.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(deadline, _)| *deadline)
    }
}

/// The answer to nodes that want to join: a site on etcd has one.
pub(crate) fn refuse_joins(forward: &wire::peer::Forward) -> Option<wire::peer::Message> {
    let joins = forward.requests.iter().filter(|request| request.join.is_some());
    let outcome = Err(Failure::Membership(MembershipError::KeptInEtcd));
    let answers: Vec<_> = joins
        .map(|request| wire::peer::ForwardedAnswer {
            id: request.id,
            outcome: wire::entry::encode_reply(&outcome),
            ..Default::default()
        })
        .collect();
    (!answers.is_empty())
        .then(|| wire::peer::Content::Answered(wire::peer::Answered { answers }).into())
}

#[cfg(test)]
mod tests;
