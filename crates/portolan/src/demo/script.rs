//! What happens to the city while it is played, in which order: a site joins, one loses its leader,
//! one leaves.
//!
//! Each begins at a stated part of the run, but not before the one before it is over, so that what
//! is seen during one of them has one cause. On a slow machine they come later, and the run goes on
//! until the last one is over. This is a plain state machine: observations in, acts out.

use std::time::Duration;

/// When each begins, in percent of the run's length.
const JOIN_PERCENT: u32 = 20;
const KILL_PERCENT: u32 = 50;
const LEAVE_PERCENT: u32 = 70;
/// No slot must move for so long before a site counts as joined.
const QUIET: Duration = Duration::from_secs(1);

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Start the nodes of this site; they join.
    Join(usize),
    /// It has its share of the slots.
    Joined(usize),
    /// Stop this site's leader.
    Kill(usize),
    /// Order this site to hand everything over.
    Leave(usize),
    /// It has left and no vehicle uses it: stop its nodes.
    Dismiss(usize),
}

/// What is so.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Facts {
    /// How long it has been played.
    pub(super) elapsed: Duration,
    /// Slots that the joining site holds; none: its nodes are not up.
    pub(super) joined_slots: Option<usize>,
    /// Moves of slots under way, at all sites.
    pub(super) moves: usize,
    /// Whether the site that loses its leader has one now.
    pub(super) has_leader: bool,
    /// Other sites that still count the leaving one among the deployment's.
    pub(super) known_by: usize,
    /// Vehicles attached to the leaving site.
    pub(super) attached: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    BeforeJoin,
    Joining { quiet_since: Option<Duration> },
    BeforeKill,
    Leaderless,
    BeforeLeave,
    Leaving,
    Over,
}

/// Where in the script the run is.
#[derive(Debug)]
pub(super) struct Script {
    length: Duration,
    joins: Option<usize>,
    kills: Option<usize>,
    leaves: Option<usize>,
    step: Step,
}

impl Script {
    /// For a run of this length, and the sites that these things happen to.
    pub(super) fn new(
        length: Duration,
        joins: Option<usize>,
        kills: Option<usize>,
        leaves: Option<usize>,
    ) -> Self {
        Self { length, joins, kills, leaves, step: Step::BeforeJoin }
    }

    /// Whether all has happened that is to happen.
    pub(super) fn is_over(&self) -> bool {
        match self.step {
            Step::BeforeJoin => [self.joins, self.kills, self.leaves].iter().all(Option::is_none),
            Step::BeforeKill => self.kills.is_none() && self.leaves.is_none(),
            Step::BeforeLeave => self.leaves.is_none(),
            Step::Over => true,
            Step::Joining { .. } | Step::Leaderless | Step::Leaving => false,
        }
    }

    /// What it waits for, for people; none if it waits for time to pass or for nothing.
    pub(super) fn waits_for(&self) -> Option<&'static str> {
        match self.step {
            Step::Joining { .. } => Some("a site that joins"),
            Step::Leaderless => Some("a new leader"),
            Step::Leaving => Some("a site that leaves"),
            _ => None,
        }
    }

    /// What to do now, if there is something. Asked again and again.
    pub(super) fn next(&mut self, facts: &Facts) -> Option<Act> {
        loop {
            let is_time = |percent: u32| facts.elapsed * 100 >= self.length * percent;
            let (step, act) = match (self.step, self.joins, self.kills, self.leaves) {
                (Step::BeforeJoin, None, ..) => (Step::BeforeKill, None),
                (Step::BeforeJoin, Some(site), ..) if is_time(JOIN_PERCENT) => {
                    (Step::Joining { quiet_since: None }, Some(Act::Join(site)))
                }
                (Step::Joining { quiet_since }, Some(site), ..) => {
                    let is_quiet = facts.moves == 0 && facts.joined_slots.is_some_and(|n| n > 0);
                    let since = is_quiet.then(|| quiet_since.unwrap_or(facts.elapsed));
                    match since {
                        Some(since) if facts.elapsed >= since + QUIET => {
                            (Step::BeforeKill, Some(Act::Joined(site)))
                        }
                        quiet_since => {
                            self.step = Step::Joining { quiet_since };
                            return None;
                        }
                    }
                }
                (Step::BeforeKill, _, None, _) => (Step::BeforeLeave, None),
                (Step::BeforeKill, _, Some(site), _)
                    if is_time(KILL_PERCENT) && facts.has_leader =>
                {
                    (Step::Leaderless, Some(Act::Kill(site)))
                }
                (Step::Leaderless, ..) if facts.has_leader => (Step::BeforeLeave, None),
                (Step::BeforeLeave, .., None) => (Step::Over, None),
                (Step::BeforeLeave, .., Some(site)) if is_time(LEAVE_PERCENT) => {
                    (Step::Leaving, Some(Act::Leave(site)))
                }
                (Step::Leaving, .., Some(site)) if facts.known_by == 0 && facts.attached == 0 => {
                    (Step::Over, Some(Act::Dismiss(site)))
                }
                _ => return None,
            };
            self.step = step;
            if act.is_some() {
                return act;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(100);

    fn script(joins: Option<usize>, kills: Option<usize>, leaves: Option<usize>) -> Script {
        Script::new(LENGTH, joins, kills, leaves)
    }

    /// Nothing moves, and there is a leader.
    fn at(second: u64) -> Facts {
        Facts {
            elapsed: Duration::from_secs(second),
            has_leader: true,
            known_by: 8,
            attached: 3,
            ..Facts::default()
        }
    }

    #[test]
    fn everything_happens_in_its_order_at_its_time() {
        let mut script = script(Some(5), Some(2), Some(1));
        assert_eq!(script.next(&at(19)), None);
        assert_eq!(script.next(&at(20)), Some(Act::Join(5)));
        let joined = |second| Facts { joined_slots: Some(900), ..at(second) };
        assert_eq!(script.next(&joined(21)), None);
        assert_eq!(script.next(&joined(22)), Some(Act::Joined(5)));
        assert_eq!(script.next(&at(49)), None);
        assert_eq!(script.next(&at(50)), Some(Act::Kill(2)));
        assert_eq!(script.next(&Facts { has_leader: false, ..at(80) }), None);
        assert_eq!(script.waits_for(), Some("a new leader"));
        assert_eq!(script.next(&at(81)), Some(Act::Leave(1)));
        assert!(!script.is_over());
        assert_eq!(script.next(&Facts { known_by: 0, ..at(85) }), None);
        assert_eq!(script.next(&Facts { attached: 0, ..at(85) }), None);
        assert_eq!(script.waits_for(), Some("a site that leaves"));
        let gone = Facts { known_by: 0, attached: 0, ..at(300) };
        assert_eq!(script.next(&gone), Some(Act::Dismiss(1)));
        assert!(script.is_over());
        assert_eq!(script.next(&gone), None);
    }

    #[test]
    fn a_site_has_joined_when_slots_have_come_and_rest() {
        let mut script = script(Some(5), None, None);
        assert!(!script.is_over());
        assert_eq!(script.next(&at(20)), Some(Act::Join(5)));
        let facts = |second, slots, moves| Facts { joined_slots: slots, moves, ..at(second) };
        for (second, slots, moves) in [
            (21, None, 0),
            (22, Some(0), 0),
            (25, Some(0), 0),
            (26, Some(9), 1),
            (27, Some(9), 0),
            // It begins again to be quiet.
            (28, Some(9), 2),
            (29, Some(9), 0),
        ] {
            assert_eq!(script.next(&facts(second, slots, moves)), None, "{second}");
        }
        assert_eq!(script.next(&facts(30, Some(9), 0)), Some(Act::Joined(5)));
        assert!(script.is_over());
    }

    #[test]
    fn what_a_world_does_not_have_does_not_hold_up_the_rest() {
        assert!(script(None, None, None).is_over());
        let mut nothing = script(None, None, None);
        assert_eq!(nothing.next(&at(99)), None);
        assert!(nothing.is_over());
        let mut kill = script(None, Some(0), None);
        assert_eq!(kill.next(&Facts { has_leader: false, ..at(60) }), None);
        assert_eq!(kill.next(&at(61)), Some(Act::Kill(0)));
        assert!(!kill.is_over());
        assert_eq!(kill.next(&at(62)), None);
        assert!(kill.is_over());
        let mut leave = script(None, None, Some(3));
        assert_eq!(leave.next(&at(70)), Some(Act::Leave(3)));
    }
}
