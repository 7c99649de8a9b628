//! How long sites take to answer, and when one is nearer.
//!
//! A session's site is left for a nearer one only if that answers clearly sooner, by the medians of
//! the last pings, and not soon after the last move: two sites at like distances do not make
//! sessions swing.

use super::error::SitesError;
use std::collections::VecDeque;
use std::time::Duration;

/// Pings of a site that its distance is the median of.
const PINGS_KEPT: usize = 5;
/// So many are needed before a session goes by them.
const PINGS_NEEDED: usize = 3;

/// When a session leaves a site that answers, and how long it asks.
#[derive(Clone, Debug, PartialEq)]
pub struct Roaming {
    /// False: only when the site fails.
    pub nearer: bool,
    /// Between pings to each site.
    pub ping_every: Duration,
    /// The other site answers in at most this share of the time of the own one …
    pub share: f64,
    /// … and sooner by this at least.
    pub gain: Duration,
    /// A session stays at a site this long at least, while the site answers.
    pub stay: Duration,
    /// What a session may wait for the nearer site to have all that it has seen; otherwise it
    /// stays.
    pub wait: Duration,
    /// The time limit of a call, at all sites together.
    pub deadline: Duration,
    /// The time limit of one attempt at the session's site.
    pub attempt_deadline: Duration,
    /// For how long a write that was sent is asked for at its site, before its outcome is unknown.
    pub settle: Duration,
    /// Whether a put that was sent goes on at other sites then, and is made once. Off by default: a
    /// site that leaves and comes back under its name meanwhile may show it over a later write for
    /// a moment. Each put takes some tens of bytes at every site for that, of the last 65,536.
    pub elsewhere: bool,
}

impl Default for Roaming {
    fn default() -> Roaming {
        Roaming {
            nearer: true,
            ping_every: Duration::from_secs(5),
            share: 0.7,
            gain: Duration::from_millis(1),
            stay: Duration::from_secs(30),
            wait: Duration::from_millis(250),
            deadline: Duration::from_secs(5),
            attempt_deadline: Duration::from_secs(2),
            settle: Duration::from_secs(2),
            elsewhere: false,
        }
    }
}

impl Roaming {
    pub(super) fn checked(self) -> Result<Roaming, SitesError> {
        let ms = Duration::from_millis;
        let may_be = self.ping_every >= ms(10)
            && self.stay >= ms(1000)
            && self.wait >= ms(1)
            && self.share > 0.0
            && self.share < 1.0
            && self.attempt_deadline >= ms(10)
            && self.deadline >= ms(10);
        may_be.then_some(self).ok_or(SitesError::Roaming)
    }
}

/// The last pings of each site.
pub(super) struct Distances {
    pings: Vec<VecDeque<Duration>>,
}

impl Distances {
    pub(super) fn new(sites: usize) -> Distances {
        Distances { pings: vec![VecDeque::new(); sites] }
    }

    /// A site has answered a ping.
    pub(super) fn answered(&mut self, site: usize, took: Duration) {
        let pings = &mut self.pings[site];
        if pings.len() == PINGS_KEPT {
            pings.pop_front();
        }
        pings.push_back(took);
    }

    /// A site does not answer: what its pings took counts no more.
    pub(super) fn failed(&mut self, site: usize) {
        self.pings[site].clear();
    }

    /// The median of a site's last pings; `None`: too few were answered.
    pub(super) fn of(&self, site: usize) -> Option<Duration> {
        let mut pings: Vec<Duration> = self.pings[site].iter().copied().collect();
        pings.sort_unstable();
        let (low, high) = (pings.len().checked_sub(1)? / 2, pings.len() / 2);
        (pings.len() >= PINGS_NEEDED).then(|| (pings[low] + pings[high]) / 2)
    }

    /// A site that a session should leave this one for.
    pub(super) fn nearer_than(&self, site: usize, rule: &Roaming) -> Option<usize> {
        let here = self.of(site)?;
        let known = (0..self.pings.len()).filter_map(|other| Some((self.of(other)?, other)));
        let (least, best) = known.min()?;
        (least <= here.mul_f64(rule.share) && here - least >= rule.gain).then_some(best)
    }

    /// All sites in the order to try: the last one, then the others, the nearest first; one that
    /// did not answer in time comes at the end.
    pub(super) fn in_turn(&self, last: Option<usize>, silent: Option<usize>) -> Vec<usize> {
        let mut sites: Vec<usize> = (0..self.pings.len()).collect();
        let far = Duration::MAX;
        sites.sort_by_key(|&site| {
            (silent == Some(site), last != Some(site), self.of(site).unwrap_or(far))
        });
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(medians_us: &[&[u64]]) -> Distances {
        let mut distances = Distances::new(medians_us.len());
        for (site, pings) in medians_us.iter().enumerate() {
            for &us in *pings {
                distances.answered(site, Duration::from_micros(us));
            }
        }
        distances
    }

    #[test]
    fn a_distance_is_the_median_of_the_last_five() {
        let rule = Roaming::default();
        let far = &[9_000, 9_000, 9_000, 9_000, 9_000][..];
        let distances = measured(&[far, &[1_000, 90_000, 1_000, 2_000, 80_000, 3_000, 2_500]]);
        assert_eq!(distances.of(1), Some(Duration::from_micros(2_500)), "1 and 90 are forgotten");
        assert_eq!(distances.nearer_than(0, &rule), Some(1));
        assert_eq!(distances.nearer_than(1, &rule), None);
        assert_eq!(measured(&[far, &[1, 1]]).nearer_than(0, &rule), None, "two are too few");
        assert_eq!(measured(&[&[9], &[1, 1, 1]]).nearer_than(0, &rule), None);
    }

    #[test]
    fn only_a_clearly_nearer_site_is_nearer() {
        let rule = Roaming::default();
        let moves = |here: u64, there: u64| {
            measured(&[&[here; 5], &[there; 5]]).nearer_than(0, &rule).is_some()
        };
        assert!(moves(10_000, 7_000));
        assert!(!moves(10_000, 7_100), "more than 0.7 of the time");
        assert!(!moves(2_000, 1_100), "less than 1 ms sooner");
        assert!(moves(2_000, 1_000));
        assert!(!moves(1_000, 10_000));
    }

    #[test]
    fn the_last_site_comes_first_and_a_silent_one_at_the_end() {
        let mut distances = measured(&[&[5; 3], &[3; 3], &[], &[1; 3]]);
        assert_eq!(distances.in_turn(None, None), [3, 1, 0, 2], "not measured is far");
        assert_eq!(distances.in_turn(Some(2), None), [2, 3, 1, 0]);
        assert_eq!(distances.in_turn(Some(3), Some(3)), [1, 0, 2, 3]);
        distances.failed(3);
        assert_eq!(distances.in_turn(Some(0), None), [0, 1, 2, 3]);
    }

    #[test]
    fn rules_without_sense_are_refused() {
        let with = |change: fn(&mut Roaming)| {
            let mut rule = Roaming::default();
            change(&mut rule);
            rule.checked().is_ok()
        };
        assert!(with(|_| {}));
        assert!(!with(|rule| rule.share = 1.0));
        assert!(!with(|rule| rule.share = f64::NAN));
        assert!(!with(|rule| rule.ping_every = Duration::ZERO));
        assert!(!with(|rule| rule.stay = Duration::ZERO));
    }
}
