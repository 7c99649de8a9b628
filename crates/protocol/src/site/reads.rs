//! Reads at this node: when each may be answered, and its answer.

use super::machine;
use super::machine::causal::NOT_HELD;
use super::{Origin, Output, Site};
use crate::admission::{Admission, Target, Wait};
use crate::replica::moments;
use crate::replica::reads::{Due, WaitingRead};
use model::{Answer, Body, Failure, KeyspaceId, Query, Refusal};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn take_read(&mut self, read: WaitingRead, here: Admission) {
        let origin = read.origin;
        let is_taken = match here {
            Admission::Here => return self.answer_read(read),
            Admission::Refuse(failure) => return self.settle(vec![(origin, Err(failure))]),
            Admission::Wait(Wait::Applied) => {
                let index = self.replica.raft.committed_index();
                self.replica.reads.push_confirmed(read, index)
            }
            Admission::Wait(_) | Admission::At(_) => {
                !self.rare.happens() && self.replica.reads.push(read)
            }
        };
        if !is_taken {
            let failure = Failure::Overloaded { what: "linearizable reads" };
            self.settle(vec![(origin, Err(failure))]);
        }
    }

    pub(super) fn answer_read(&mut self, mut read: WaitingRead) {
        if read.due == Due::NotSettled {
            read.due = Due::By(self.replica.due_by_ms(&self.options));
        }
        if self.answer_by_validator(&read) {
            return;
        }
        let in_session = self.answer_in_session(&read).map(Ok);
        let outcome =
            in_session.unwrap_or_else(|| self.query(read.keyspace, &read.query, read.due));
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(at_ms) => match self.replica.reads.wait_for(at_ms, read) {
                None => return,
                Some(refused) => {
                    read = refused;
                    Err(Failure::Overloaded { what: "linearizable reads" })
                }
            },
        };
        if outcome == Err(Failure::Refused(NOT_HELD)) && self.is_on_demand(read.keyspace) {
            // The key was evicted while the read waited: it does not wait for that once more.
            let WaitingRead { origin, keyspace, query, consistency, deadline, .. } = read;
            let body = Body::Read { keyspace, query, consistency };
            return self.move_on(origin, body, deadline);
        }
        match (read.origin, outcome) {
            (origin @ Origin::Client { .. }, Err(Failure::Refused(Refusal::NotHeld(slot)))) => {
                let WaitingRead { keyspace, query, consistency, deadline, .. } = read;
                let body = Body::Read { keyspace, query, consistency };
                self.route_later(origin, body, Target::Slot(slot), deadline);
            }
            (origin @ Origin::Client { ticket, .. }, outcome) => {
                let token = self.sessions.end(origin);
                self.outputs.push_back(Output::Answer { ticket, outcome, token });
            }
            (origin, outcome) => self.settle(vec![(origin, outcome)]),
        }
    }

    /// No tick can come now: what was applied must do for the reads that wait for one.
    pub(super) fn wait_for_no_tick(&mut self) {
        if self.snapshots.is_loading() {
            return;
        }
        for mut read in self.replica.reads.take_due(u64::MAX) {
            read.due = Due::By(None);
            self.answer_read(read);
        }
    }

    /// What the state answers; or the log time for which the query must wait.
    pub(super) fn query(
        &mut self,
        keyspace: KeyspaceId,
        query: &Query,
        due: Due,
    ) -> Result<Result<Answer, Failure>, u64> {
        let by_ms = match due {
            Due::By(by_ms) => by_ms,
            Due::Applied | Due::NotSettled => None,
        };
        let due_by = || by_ms.unwrap_or_default();
        let due_by = by_ms.is_some().then_some(&due_by as &dyn Fn() -> u64);
        match self.machine.reader().query_by(keyspace, query, due_by) {
            Ok(mut answer) => {
                let (now_ms, ahead) =
                    (self.replica.log_clock.now_ms(), self.replica.log_clock.wall_ahead_ms());
                moments::for_others(&mut answer, now_ms, ahead);
                Ok(Ok(answer))
            }
            Err(machine::Stopped::Refused(refusal)) => Ok(Err(Failure::Refused(refusal))),
            Err(machine::Stopped::Due(at_ms)) => Err(at_ms),
            Err(machine::Stopped::Failed(error)) => {
                self.fail(error);
                Ok(Err(Failure::NotServing("its state cannot be read")))
            }
        }
    }
}
