//! This node's round trips: which are measured by probes, and what other sites have of them.
//!
//! Answers to requests measure most of those that matter ([`crate::global::round_trips`]); the rest
//! are probed, by the rule of [`crate::placement::probing`]. All questions of a site are at most
//! [`QUESTIONS_PER_S_MAX`] a second. What other sites have of them, and this node's own decisions
//! go by, is a *version*: another one is made when a round trip differs from the published one by
//! more than three times its error and a fiftieth, or a site has come or gone, with these alone.
//! After as long as a full round the others come nearer to what is measured by a fourth: that is
//! less noisy than a single measurement, and follows slow change. So sites that are alike but for
//! noise stay alike for those that decide. A question for round trips that have not changed is
//! answered by their version alone.

use super::{WINDOW, us};
use crate::global::round_trips::{RoundTrip, RoundTrips};
use crate::placement::probing::{Measured, Prober, Rule};
use model::{SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::inter_site::LatenciesMessage;

/// Questions of a site in a second: for round trips, and probes. With their answers, and with as
/// many from other sites, they are less than 2 KB/s, headers of packets included, while round trips
/// are as they were: those of a hundred sites are half a KB.
pub(super) const QUESTIONS_PER_S_MAX: usize = 3;

/// By so many times its error, and by this share, a round trip differs from the published one for
/// sure.
const ERRORS: f32 = 3.0;
const CHANGE_MIN: f32 = 0.02;
/// By how much of the difference the others change after as long as a full round.
const FOLLOWED: f32 = 0.25;

/// See the module.
#[derive(Debug)]
pub(super) struct Measuring {
    rule: Rule,
    prober: Prober,
    window_began: Option<Duration>,
    random: u64,
    row: BTreeMap<SiteId, f32>,
    version: u64,
    version_began: Duration,
    /// Probes that were sent.
    probes: u64,
}

impl Measuring {
    /// `seed`: drawn at each start, or versions of two nodes could be taken for each other.
    pub(super) fn new(rule: Rule, seed: u64) -> Measuring {
        Measuring {
            rule,
            prober: Prober::default(),
            window_began: None,
            // Xorshift must not begin with zero.
            random: seed | 1,
            row: BTreeMap::new(),
            // 0 is none.
            version: (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1).max(1),
            version_began: Duration::ZERO,
            probes: 0,
        }
    }

    /// Nothing is to be probed any more.
    pub(super) fn stop(&mut self) {
        self.prober = Prober::default();
        self.window_began = None;
    }

    /// Makes another version, if it is time.
    pub(super) fn publish(&mut self, now: Duration, of: &RoundTrips) {
        let is_due = self.version_began + WINDOW * self.rule.full_windows <= now;
        let published = |(site, way): (SiteId, RoundTrip)| {
            let ms = match self.row.get(&site) {
                None => way.ms,
                Some(then) => {
                    let (change, noise) = (way.ms - then, ERRORS * way.error_ms);
                    match change.abs() > noise.max(CHANGE_MIN * then) {
                        true => way.ms,
                        false if is_due => then + FOLLOWED * change,
                        false => *then,
                    }
                }
            };
            (site, ms)
        };
        let row: BTreeMap<SiteId, f32> = of.known().into_iter().map(published).collect();
        if self.row != row {
            (self.row, self.version) = (row, self.version + 1);
        }
        if is_due {
            self.version_began = now;
        }
    }

    /// The round trips that are published, in ms.
    pub(super) fn row(&self) -> &BTreeMap<SiteId, f32> {
        &self.row
    }

    /// The answer to a question for them: the nearest, unless the other site has this version.
    pub(super) fn answer(&self, question: &LatenciesMessage) -> LatenciesMessage {
        let &LatenciesMessage { number, version, probes, .. } = question;
        let answer = LatenciesMessage { number, probes, ..LatenciesMessage::default() };
        if probes {
            return answer;
        }
        let answer = LatenciesMessage { version: self.version, ..answer };
        if version == self.version {
            return answer;
        }
        let mut row: Vec<(SiteId, f32)> = self.row.iter().map(|(site, ms)| (*site, *ms)).collect();
        row.sort_by(|a, b| a.1.total_cmp(&b.1));
        row.truncate(limits::ROUND_TRIPS_MAX);
        let (sites, ms): (Vec<u32>, Vec<f32>) =
            row.into_iter().map(|(site, ms)| (site.0, ms)).unzip();
        let round_trips_us = ms.into_iter().map(|ms| us(ms) as u32).collect();
        LatenciesMessage { sites, round_trips_us, ..answer }
    }

    /// The sites to probe now, of `others`, at most `most`. `was_asked`: a question to it is under
    /// way, and measures as well.
    pub(super) fn probe(
        &mut self,
        now: Duration,
        others: &[SiteId],
        of: &RoundTrips,
        was_asked: impl Fn(SiteId) -> bool,
        most: usize,
    ) -> Vec<SiteId> {
        let known = of.known();
        if self.window_began.is_none_or(|began| began + WINDOW <= now) {
            let began = self.window_began.replace(now).unwrap_or(now);
            let of_site = |site: &SiteId| match known.get(site) {
                Some(way) => {
                    let RoundTrip { ms, doubtful, .. } = *way;
                    Measured { ms: Some(ms), fresh: way.answered >= began, doubtful }
                }
                None => Measured::default(),
            };
            let known = others.iter().map(|site| (*site, of_site(site))).collect();
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.prober.window(&self.rule, &known, self.random >> 16);
        }
        let began = self.window_began.unwrap_or(now);
        let is_fresh = |site| {
            was_asked(site)
                || known.get(&site).is_some_and(|way| way.answered >= began && began < now)
        };
        let probed = self.prober.take(most, is_fresh);
        self.probes += probed.len() as u64;
        probed
    }

    /// Probes that were sent.
    pub(super) fn probes(&self) -> u64 {
        self.probes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::inter_site::{InterSite, InterSiteMessage, RegistryVersion};
    use wire::peer::{Content, Life, Message, encode_frame};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn measuring() -> Measuring {
        Measuring::new(Rule::default(), 7)
    }

    #[test]
    fn a_version_changes_with_a_round_trip_that_has_changed_for_sure() {
        let (mut one, known) = (measuring(), RoundTrips::default());
        let published = |one: &mut Measuring, seconds| {
            one.publish(at(seconds), &known);
            one.version
        };
        let measured = |site, ms, seconds| {
            known.measured(SiteId(site), Duration::from_millis(ms), at(seconds));
        };
        let none = published(&mut one, 0);
        measured(2, 100, 1);
        measured(3, 50, 1);
        let first = published(&mut one, 1);
        assert_ne!(first, none);
        // Of few answers it is not known how noisy they are. Then they are followed slowly, after
        // as long as a full round.
        measured(2, 80, 11);
        assert_eq!((published(&mut one, 11), published(&mut one, 299)), (first, first));
        let second = published(&mut one, 300);
        assert_ne!(second, first);
        assert_eq!(one.row()[&SiteId(2)], 100.0 - 20.0 / 4.0);
        // They agree: that is the way.
        (2..8).for_each(|span| measured(2, 80, 10 * span + 1));
        let third = published(&mut one, 301);
        assert!(third != second && one.row()[&SiteId(2)] == 80.0);
        assert_eq!(published(&mut one, 302), third, "nothing has changed");
        // A change of less than a fiftieth is not worth a version.
        (8..40).for_each(|span| measured(2, 81, 10 * span + 1));
        assert_eq!((known.known()[&SiteId(2)].ms, published(&mut one, 599)), (81.0, third));
        assert_ne!(published(&mut one, 600), third);
        known.forget_gone(|site| site != SiteId(3));
        let last = published(&mut one, 601);
        assert!(last != third && one.row().len() == 1);
    }

    #[test]
    fn a_site_that_has_the_version_is_sent_no_round_trips() {
        let (mut one, known) = (measuring(), RoundTrips::default());
        known.measured(SiteId(2), Duration::from_millis(20), at(1));
        known.measured(SiteId(3), Duration::from_millis(10), at(1));
        one.publish(at(1), &known);
        let asks = LatenciesMessage { asks: true, number: 4, ..LatenciesMessage::default() };
        let whole = one.answer(&asks);
        assert_eq!(
            (&whole.sites[..], &whole.round_trips_us[..]),
            (&[3, 2][..], &[10_000, 20_000][..])
        );
        let again = one.answer(&LatenciesMessage { version: whole.version, ..asks.clone() });
        let same =
            LatenciesMessage { number: 4, version: whole.version, ..LatenciesMessage::default() };
        assert_eq!(again, same);
        let probe = LatenciesMessage { probes: true, ..asks };
        assert_eq!(one.answer(&probe), LatenciesMessage { asks: false, ..probe });
    }

    /// The bar: 2 KB/s a site. With a thousand others no request measures any, and the nearest move
    /// all the time.
    #[test]
    fn a_site_sends_and_receives_less_than_2_kb_a_second() {
        let bytes = |probes, asks, row: usize| {
            let message = LatenciesMessage {
                asks,
                number: 1 << 40,
                sites: (0..row as u32).map(|site| 60_000 + site).collect(),
                round_trips_us: vec![3_000_000; row],
                version: if probes { 0 } else { u64::MAX >> 1 },
                probes,
                ..LatenciesMessage::default()
            };
            // About the registry of a deployment that has changed often.
            let version =
                RegistryVersion { round: 1 << 40, site: 60_000, term: 1 << 20, term_site: 60_000 };
            let message = InterSite::Latencies(message);
            InterSiteMessage { content: Some(message), version: Some(version) }
        };
        let on_wire = |message: InterSiteMessage| {
            let mut frame = bytes::BytesMut::new();
            let content = Content::InterSite(message);
            let life = Some(Life { incarnation: u64::MAX, since: u64::MAX });
            encode_frame(&Message { content: Some(content), clock: None, life }, &mut frame);
            // And the headers of TLS, TCP and IP, where each is a packet of its own.
            frame.len() as u64 + 29 + 52
        };
        let probe = on_wire(bytes(true, true, 0)) + on_wire(bytes(true, false, 0));
        let (mut one, known) = (measuring(), RoundTrips::default());
        let others: Vec<SiteId> = (2..=1_001).map(SiteId).collect();
        let mut sent = 0;
        for second in 0..3_600 {
            // Its own questions, and those of all others, as many.
            for site in one.probe(at(second), &others, &known, |_| false, QUESTIONS_PER_S_MAX) {
                let took =
                    Duration::from_micros(1_000 + second * 1_000 / (1 + u64::from(site.0 % 7)));
                known.measured(site, took, at(second));
                sent += 2 * probe;
            }
        }
        assert!(sent / 3_600 > 1_000, "full rounds all the time: {} B/s", sent / 3_600);
        assert!(sent / 3_600 < 2_000, "{} B/s, {probe} B a probe", sent / 3_600);
    }
}
