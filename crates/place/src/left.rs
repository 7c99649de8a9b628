//! Slots that were left, and when they are tried again.
//!
//! A slot whose move fails each time would use up the budget of every window, and stop its source
//! in each.

use crate::mover::Outcome;
use model::{Slot, SlotSet};
use std::collections::BTreeMap;

/// In how many windows a slot that was left again and again is tried once.
const WAIT_MAX: u64 = 32;

/// What is remembered of a slot that was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    /// In how many windows it is tried once.
    windows: u64,
    /// The window in which it is tried next.
    until: u64,
}

/// The slots that were left, from window to window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftSlots {
    window: u64,
    waits: BTreeMap<Slot, Wait>,
}

impl LeftSlots {
    /// A window begins.
    pub fn next_window(&mut self) {
        self.window += 1;
        // One that was not tried for so long is on no way any more.
        self.waits.retain(|_, wait| self.window <= wait.until + WAIT_MAX);
    }

    /// The slots that are not tried in this window.
    pub fn waiting(&self) -> SlotSet {
        let waiting = self.waits.iter().filter(|(_, wait)| wait.until > self.window);
        waiting.map(|(slot, _)| *slot).collect()
    }

    /// What has come of this window. A slot that is left is tried in the next window, and when it
    /// is left again, after twice as many each time. One that was not tried costs nothing: it goes
    /// on as soon as its servers answer.
    pub fn take(&mut self, outcome: &Outcome) {
        for slot in outcome.arrived.iter() {
            self.waits.remove(&slot);
        }
        for slot in outcome.left.keys().filter(|slot| !outcome.untried.contains(**slot)) {
            let before = self.waits.get(slot).map_or(0, |wait| wait.windows);
            let windows = (before * 2).clamp(1, WAIT_MAX);
            self.waits.insert(*slot, Wait { windows, until: self.window + windows });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> Slot {
        Slot::new(7).unwrap()
    }

    /// The windows of the first hundred in which a slot is tried that is left in each.
    fn tried(left: &mut LeftSlots) -> Vec<u64> {
        let outcome = Outcome { left: [(slot(), "large".to_owned())].into(), ..Outcome::default() };
        let mut tried = Vec::new();
        for window in 1..=100 {
            left.next_window();
            if !left.waiting().contains(slot()) {
                tried.push(window);
                left.take(&outcome);
            }
        }
        tried
    }

    #[test]
    fn a_slot_that_is_left_again_and_again_is_tried_ever_more_seldom() {
        let mut left = LeftSlots::default();
        assert_eq!(tried(&mut left), [1, 2, 4, 8, 16, 32, 64, 96]);
        let arrived = [slot()].into_iter().collect();
        left.take(&Outcome { arrived, ..Outcome::default() });
        assert!(left.waiting().is_empty());
        assert_eq!(tried(&mut left)[..3], [1, 2, 4]);
    }

    #[test]
    fn a_slot_that_was_not_tried_for_long_is_forgotten() {
        let mut left = LeftSlots::default();
        tried(&mut left);
        (0..100).for_each(|_| left.next_window());
        assert_eq!(left.waits, BTreeMap::new());
    }
}
