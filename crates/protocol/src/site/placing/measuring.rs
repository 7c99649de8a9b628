//! This node's round trips: which are measured by probes, and what other sites have of them.
//!
//! Answers to requests measure most of those that matter ([`crate::global::round_trips`]); the rest are probed, by the
//! rule of [`crate::placement::probing`]. All questions of a site are at most [`QUESTIONS_PER_S_MAX`] a second. What other sites have of them, and
//! this node's own decisions go by, is a *version*: another one is made when a round trip is shorter than it was published, or longer by more than
//! the rule's share, or a site has come or gone, with these alone. After as long as a full round those that are a little longer
//! rise by a fourth of that. Noise only adds to a round trip, and of a site that is seldom asked the least is the noisier one: so what is published
//! nears the way itself. Noise of a few percent moves no group. A question for round trips that have not changed is answered by
//! their version alone.

use super::{WINDOW, us};
use crate::global::round_trips::RoundTrips;
use crate::placement::probing::{Known, Prober, Rule};
use model::{SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::inter_site::LatenciesMessage;

/// Questions of a site in a second: for round trips, and probes. With their answers, and with as many from other sites,
/// they are less than 2 KB/s, headers of packets included, while round trips are as they were: those of a hundred sites are half a KB.
pub(super) const QUESTIONS_PER_S_MAX: usize = 3;

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
        let published = |(site, ms): (SiteId, f32)| {
            let next_ms = match self.row.get(&site) {
                Some(then) if ms < *then || ms > (1.0 + self.rule.change) * then => ms,
                Some(then) if is_due => then + (ms - then) / 4.0,
                Some(then) => *then,
                None => ms,
            };
            (site, next_ms)
        };
        let row: BTreeMap<SiteId, f32> = of.all_ms().into_iter().map(published).collect();
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

    /// The sites to probe now, of `others`, at most `most`. `was_asked`: a question to it is under way, and measures as
    /// well.
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
                Some((ms, at)) => Known { ms: Some(*ms), fresh: *at >= began },
                None => Known::default(),
            };
            let known = others.iter().map(|site| (*site, of_site(site))).collect();
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            self.prober.window(&self.rule, &known, self.random >> 16);
        }
        let began = self.window_began.unwrap_or(now);
        let is_fresh = |site| {
            was_asked(site) || known.get(&site).is_some_and(|(_, at)| *at >= began && began < now)
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
    fn a_version_changes_with_a_round_trip_that_changes_by_more_than_the_share() {
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
        let shorter = |ms, seconds, one: &mut Measuring| {
            measured(2, ms, seconds);
            published(one, seconds);
            one.row()[&SiteId(2)]
        };
        assert_eq!(shorter(85, 2, &mut one), 85.0, "noise only adds");
        let second = one.version;
        assert_ne!(second, first);
        known.forget_gone(|site| site != SiteId(3));
        let third = published(&mut one, 4);
        assert!(third != second && one.row().len() == 1);
        // A little longer: it is followed in the end. More than a fifth: at once.
        for second in (10..=80).step_by(10) {
            measured(2, 95, second);
        }
        let fourth = published(&mut one, 80);
        assert_eq!((fourth, published(&mut one, 299)), (third, third));
        assert_ne!(published(&mut one, 300), third, "after as long as a full round");
        assert_eq!(one.row()[&SiteId(2)], 85.0 + 10.0 / 4.0);
        for second in (310..=380).step_by(10) {
            measured(2, 110, second);
        }
        published(&mut one, 380);
        assert_eq!(one.row()[&SiteId(2)], 110.0);
        let last = one.version;
        assert_eq!(published(&mut one, 599), last, "nothing has changed");
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

    /// The bar: 2 KB/s a site. With a thousand others no request measures any, and the nearest move all the time.
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
