//! A plan of faults, drawn from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Fault, Kind};
use crate::random::Random;

/// Most faults in one plan.
const FAULTS_MAX: usize = 100_000;

/// Faults that come at random.
#[derive(Debug, Clone, PartialEq)]
pub struct Chances {
    /// The mean time between two faults of one site.
    pub every: Duration,
    /// Before this, none.
    pub calm: Duration,
    /// Of a thousand that may, so many last until all faults end.
    pub never_permille: u64,
    /// Whether each seed has about half of the kinds only, so that each mixture gets its room.
    pub some_kinds: bool,
    /// How often each kind comes, relative to the others; those not named do not come.
    pub weights: BTreeMap<Kind, f64>,
}

/// Draws the faults of a run over so many `nodes` by site, of whatever lies before `end`. In order
/// of time; the same seed gives the same plan.
#[must_use]
pub fn draw(seed: u64, nodes: &[usize], chances: &Chances, end: Duration) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut left_out = Random::stream(seed, "kinds", 0);
    let is_in = |_: &Kind| !chances.some_kinds || left_out.chance(500);
    let some: BTreeSet<Kind> = chances.weights.keys().copied().filter(is_in).collect();
    for (site, count) in nodes.iter().enumerate() {
        let kinds: Vec<(Kind, f64)> = chances
            .weights
            .iter()
            .map(|(kind, weight)| (*kind, *weight))
            .filter(|(kind, weight)| {
                *weight > 0.0
                    && (some.contains(kind) || some.is_empty())
                    && (*count > 1 || !kind.needs_several())
                    && (nodes.len() > 1 || !kind.is_between_sites())
            })
            .collect();
        let total: f64 = kinds.iter().map(|(_, weight)| weight).sum();
        let mut random = Random::stream(seed, "faults", site as u64);
        let mut at = chances.calm;
        while !kinds.is_empty() && faults.len() < FAULTS_MAX {
            at += random.exponential(chances.every);
            if at >= end {
                break;
            }
            let mut ticket = random.fraction() * total;
            let drawn = kinds.iter().find(|(_, weight)| {
                ticket -= weight;
                ticket < 0.0
            });
            let kind = drawn.unwrap_or(&kinds[kinds.len() - 1]).0;
            let node = random.below(*count as u64) as usize;
            let step = 1 + random.below(*count as u64 - u64::from(*count > 1)) as usize;
            faults.push(Fault {
                number: 0,
                at,
                span: match chances.never_permille {
                    0 => span(kind, &mut random),
                    permille => match random.chance(permille) && kind.may_stay() {
                        true => end,
                        false => span(kind, &mut random),
                    },
                },
                kind,
                site,
                node,
                other: (node + step) % count,
                at_leader: random.chance(500),
                draw: random.draw(),
                other_site: match kind.is_between_sites() {
                    true => {
                        (site + 1 + random.below(nodes.len() as u64 - 1) as usize) % nodes.len()
                    }
                    false => site,
                },
            });
        }
    }
    number(faults)
}

/// How long one lasts. A third of all are short: what comes back at once meets what is still there.
fn span(kind: Kind, random: &mut Random) -> Duration {
    let (shortest, longest) = kind.spans();
    let drawn = random.between((shortest, longest));
    match random.below(3) {
        0 => shortest + (drawn - shortest) / 20,
        _ => drawn,
    }
}

/// Puts faults in order of time and numbers them.
#[must_use]
pub fn number(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.sort_by_key(|fault| (fault.at, fault.site));
    for (number, fault) in faults.iter_mut().enumerate() {
        fault.number = number;
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Chances {
        Chances {
            every: Duration::from_secs(1),
            calm: Duration::from_secs(2),
            never_permille: 0,
            some_kinds: false,
            weights: Kind::ALL.into_iter().map(|kind| (kind, 1.0)).collect(),
        }
    }

    #[test]
    fn a_seed_gives_one_plan_of_all_kinds() {
        let hour = Duration::from_secs(3_600);
        let plan = draw(7, &[3, 3], &all(), hour);
        assert_eq!(plan, draw(7, &[3, 3], &all(), hour));
        assert_ne!(plan, draw(8, &[3, 3], &all(), hour));
        // Poisson: 7,196 expected, its deviation is 85.
        assert!((6_900..7_500).contains(&plan.len()), "{}", plan.len());
        assert!(plan.is_sorted_by_key(|fault| fault.at));
        assert!(plan.iter().enumerate().all(|(place, fault)| fault.number == place));
        for kind in Kind::ALL {
            let count = plan.iter().filter(|fault| fault.kind == kind).count();
            assert!((100..260).contains(&count), "{kind}: {count}");
        }
        for fault in &plan {
            assert_eq!(fault.kind.is_between_sites(), fault.site != fault.other_site, "{fault:?}");
            assert!(fault.node < 3 && fault.other < 3 && fault.node != fault.other);
            assert!(fault.at >= Duration::from_secs(2) && fault.at < hour);
        }
    }

    #[test]
    fn a_site_of_one_is_only_given_what_it_can_survive() {
        let plan = draw(1, &[1], &all(), Duration::from_secs(600));
        assert!(plan.len() > 400);
        assert!(plan.iter().all(|fault| !fault.kind.needs_several() && fault.other == 0));
        assert!(plan.iter().all(|fault| !fault.kind.is_between_sites()));
        let two = draw(1, &[1, 1], &all(), Duration::from_secs(600));
        assert!(two.iter().any(|fault| fault.kind.is_between_sites()));
    }

    #[test]
    fn what_has_no_weight_does_not_come() {
        let chances = Chances { weights: [(Kind::Pause, 2.0), (Kind::Crash, 0.0)].into(), ..all() };
        let plan = draw(1, &[3], &chances, Duration::from_secs(60));
        assert!(!plan.is_empty() && plan.iter().all(|fault| fault.kind == Kind::Pause));
    }
}
