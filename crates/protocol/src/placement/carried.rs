//! Which groups a decision looks at: what the one before has settled is carried on.
//!
//! Counts of a group that nothing accesses fade alike, so its best site stays what it was, and a
//! move is worth less with each second. Let `s` of its counts be left. They had accesses K, which
//! wait G less at the better site and H where they are, and the squares of the differences add up
//! to Q; the access that is counted in addition waits `w` longer there. A move is worth it
//! ([`super::stability`]) if
//!
//! ```text
//! s (G − θ H) ≥ w    and    (s G − w)² (s K + 5) ≥ 4 (s Q + w²) (s K + 1)
//! ```
//!
//! What fails them together at some `s` fails them together at each lower one: the first one does,
//! and where that holds (`s G ≥ w`) the quotient of both sides of the second one grows with `s`. So a
//! group that was left where it is, waits for nothing and has not been accessed since is not looked
//! at: its answer would be the same. That holds while latencies and rules are the same, counts rest
//! on no more samples than before (of fewer accesses each counts for more, and counts have faded
//! meanwhile), and no byte has a price, which weighs more as rates fall. Else all groups are looked
//! at. So they are each tenth time: counts that have faded to nothing are dropped, and a profile of
//! many sites is tried by clients again, with the largest four. What waits (for a budget, for its
//! regret, for the site that takes it) is *open*, and looked at each time; if that is much, all are.
//!
//! Rules of keys count as others do: where keyspaces or failure domains exclude sites, all groups are
//! looked at when a borrowed one has come or gone.

use super::counter::GroupKey;
use super::latencies::{Matrix, Site};
use super::profile::{Profile, Tick};
use super::rules::Rules;

/// So many decisions in a row carry on what was settled.
const CARRIED_MAX: u32 = 9;

/// What a decision rests on beside the accesses.
#[derive(Clone, Copy, Debug)]
pub struct Basis<'a> {
    /// What an access costs.
    pub matrix: &'a Matrix,
    /// Where nothing may go.
    pub rules: &'a Rules,
    /// Where all the groups are.
    pub at: Site,
    /// Of how many accesses one was counted.
    pub one_of: f32,
    /// How much is left at least of what was counted by the last decision: 1 is all.
    pub left: f32,
}

/// What the last decision rested on.
#[derive(Clone, Debug)]
struct Rested {
    matrix: Matrix,
    rules: Rules,
    at: Site,
    one_of: f32,
}

impl Rested {
    /// Whether what was settled then is settled by this one.
    fn is_confirmed(&self, by: &Basis<'_>) -> bool {
        let is_as_sure = by.one_of >= by.left * self.one_of;
        is_as_sure && (by.at, by.matrix, by.rules) == (self.at, &self.matrix, &self.rules)
    }
}

/// What is known of the last decision.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// `None`: all groups are looked at next.
    rested: Option<Rested>,
    since: Tick,
    /// In order.
    open: Vec<GroupKey>,
    in_a_row: u32,
    /// Whether the present decision looks at all.
    is_whole: bool,
}

impl Carried {
    /// More groups than these are not kept as open: then all are looked at.
    pub const OPEN_MAX: usize = 1 << 14;

    /// A decision begins. `basis`: `None` if nothing that it settles is settled for later ones.
    /// Whether it looks at all groups.
    pub fn begin(&mut self, basis: Option<Basis<'_>>) -> bool {
        let known =
            self.rested.as_mut().zip(basis).filter(|(before, now)| before.is_confirmed(now));
        self.is_whole = match known {
            Some((before, now)) => {
                before.one_of = now.one_of;
                self.in_a_row >= CARRIED_MAX
            }
            None => {
                self.rested = basis.map(|Basis { matrix, rules, at, one_of, .. }| Rested {
                    matrix: matrix.clone(),
                    rules: rules.clone(),
                    at,
                    one_of,
                });
                true
            }
        };
        self.in_a_row = if self.is_whole { 0 } else { self.in_a_row + 1 };
        self.is_whole
    }

    /// Whether the decision looks at a group.
    pub fn looks_at(&self, group: GroupKey, profile: &Profile) -> bool {
        self.is_whole
            || !profile.faded_at().is_before(self.since)
            || self.open.binary_search(&group).is_ok()
    }

    /// The decision was made at that time, and has left these groups open.
    pub fn end(&mut self, now: Tick, mut open: Vec<GroupKey>) {
        if open.len() > Carried::OPEN_MAX {
            open.clear();
            self.rested = None;
        }
        open.sort_unstable();
        (self.since, self.open) = (now, open);
    }

    /// The memory that open groups take.
    pub fn memory_bytes(&self) -> usize {
        self.open.capacity() * size_of::<GroupKey>()
    }
}
