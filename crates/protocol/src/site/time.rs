//! How time passes at this node: its clocks, those of its leader, and what readers see of them
//! ([`crate::replica::log_clock`]).

use super::Site;
use crate::replica::Pace;
use model::{NodeId, Time};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Something happens now.
    pub(super) fn now_is(&mut self, now: Time) {
        self.now = now;
        let leads = self.leads();
        self.replica.log_clock.go_on(now, leads);
        self.machine.note_time(self.replica.log_clock.now_ms());
    }

    pub(super) fn receive_clock(&mut self, from: NodeId, term: u64, clock: Option<peer::Clock>) {
        let Some(clock) = clock else { return };
        if self.replica.raft.leader() == Some(from)
            && self.replica.raft.term() == term
            && !self.leads()
        {
            self.replica.log_clock.receive(term, clock);
            if !clock.moves {
                self.wait_for_no_tick();
            }
        }
    }

    /// Shows readers how the clocks go, now and then and whenever it matters.
    pub(super) fn move_pace(&mut self) {
        let is_due_by = self.replica.moves_time(&self.options);
        let pace = Pace {
            at: self.now.monotonic,
            log_ms: self.replica.log_clock.now_ms(),
            wall_ahead_ms: self.replica.log_clock.wall_ahead_ms(),
            is_due_by,
        };
        let known = self.replica.pace;
        let is_same = (known.wall_ahead_ms, known.is_due_by) == (pace.wall_ahead_ms, is_due_by);
        if !is_same || known.at + self.options.tick <= pace.at {
            self.replica.pace = pace;
            self.machine.reader().set_pace(pace);
        }
    }
}
