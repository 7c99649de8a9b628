//! What moves have cost and what they have saved, window by window.
//!
//! A move is judged by what happens after it, not by what was expected: as long as the ledger
//! follows a group, each window adds what its users waited less than they would have at the place
//! it came from, by the profile and latencies of that window. That can be negative.

use super::groups::Groups;
use super::latencies::Site;
use super::plan::Move;
use super::solver::Solver;
use model::limits;
use std::collections::{BTreeMap, VecDeque};

/// Windows for which a moved group is followed.
pub const FOLLOWED_WINDOWS: u64 = 6;

/// The account of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Its number.
    pub number: u64,
    /// Moves made.
    pub moves: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Waiting that these moves were expected to save, in ms a second.
    pub expected_ms_per_s: f64,
    /// Waiting that moves of this and earlier windows have saved in this one, in ms.
    pub saved_ms: f64,
    /// Waiting of requests while groups were on their way, in ms.
    pub paused_ms: f64,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    from: Site,
    since: u64,
}

/// The accounts of the last windows.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    current: Window,
    /// Of all windows that have ended.
    ended: Window,
    windows: VecDeque<Window>,
    followed: BTreeMap<u32, Followed>,
    order: VecDeque<(u64, u32)>,
}

impl Ledger {
    /// A new one, whose totals go on from another one's.
    pub fn after(other: &Ledger) -> Ledger {
        Ledger { ended: Window { number: 0, ..other.total() }, ..Ledger::default() }
    }

    /// A move was made that is not followed: its group is counted where it went. Requests have
    /// waited for it so long.
    pub fn made(&mut self, bytes: u64, gain_ms_per_s: f64, paused_ms: f64) {
        self.current.moves += 1;
        self.current.bytes += bytes;
        self.current.expected_ms_per_s += gain_ms_per_s;
        self.current.paused_ms += paused_ms;
    }

    /// A move was made; requests have waited for it so long.
    pub fn moved(&mut self, a_move: &Move, paused_ms: f64) {
        self.made(u64::from(a_move.bytes), f64::from(a_move.gain), paused_ms);
        let since = self.current.number;
        let followed = Followed { from: a_move.from, since };
        self.followed.insert(a_move.group, followed);
        self.order.push_back((since, a_move.group));
        while self.order.len() > limits::LEDGER_FOLLOWED_MAX {
            self.forget_first();
        }
    }

    /// The window ends. Its savings are reckoned by the profiles in it.
    pub fn close(&mut self, solver: &Solver<'_>, groups: &Groups, window_s: f64) -> Window {
        let mut saved_ms = 0.0;
        for (group, followed) in &self.followed {
            let group = *group as usize;
            if group >= groups.len() {
                continue;
            }
            let then = solver.cost(groups, group, followed.from);
            let now = solver.cost(groups, group, groups.owner(group));
            let saved = f64::from(then) - f64::from(now);
            if saved.is_finite() {
                saved_ms += saved * window_s;
            }
        }
        self.end(saved_ms)
    }

    /// The window ends, in which so much was saved.
    pub fn end(&mut self, saved_ms: f64) -> Window {
        self.current.saved_ms += saved_ms;
        let closed = self.current;
        self.ended = self.total();
        self.windows.push_back(closed);
        if self.windows.len() > limits::LEDGER_WINDOWS_MAX {
            self.windows.pop_front();
        }
        self.current = Window { number: closed.number + 1, ..Window::default() };
        let oldest = (self.current.number + 1).saturating_sub(FOLLOWED_WINDOWS);
        while self.order.front().is_some_and(|(since, _)| *since < oldest) {
            self.forget_first();
        }
        closed
    }

    fn forget_first(&mut self) {
        let Some((since, group)) = self.order.pop_front() else { return };
        // It may have moved again since.
        if self.followed.get(&group).is_some_and(|followed| followed.since == since) {
            self.followed.remove(&group);
        }
    }

    /// The windows that have ended, the oldest first.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.windows.iter()
    }

    /// All windows together, and the number of the present one.
    pub fn total(&self) -> Window {
        let (ended, current) = (&self.ended, &self.current);
        Window {
            number: current.number,
            moves: ended.moves + current.moves,
            bytes: ended.bytes + current.bytes,
            expected_ms_per_s: ended.expected_ms_per_s + current.expected_ms_per_s,
            saved_ms: ended.saved_ms + current.saved_ms,
            paused_ms: ended.paused_ms + current.paused_ms,
        }
    }

    /// The window that has not ended.
    pub fn current(&self) -> &Window {
        &self.current
    }
}
