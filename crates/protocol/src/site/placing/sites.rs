//! The sites as the solver numbers them, and the round trips between them, as far as they are
//! known.
//!
//! This node's own are measured by requests and by probes ([`super::measuring`]); those of a site
//! with users come from that site, on request, each ten seconds. Where only one of two sites has
//! measured, both go by that. What cannot be a round trip, and what comes too late to be one, is
//! dropped and counted.

use super::measuring::{Measuring, QUESTIONS_PER_S_MAX};
use super::room::{ASKED_AGAIN, Offers};
use super::{INTERVAL, OPERATIONS_MAX, STABILITY};
use crate::job::{Effect, View};
use crate::placement::latencies::LATENCY_MS_MAX;
use crate::placement::plan::Limits;
use crate::placement::stability::Stability;
use crate::placement::{
    Bid, Decision, GroupKey, Groups, Latencies, Near, Origin as From, Rules, Site as Place, Solver,
};
use model::{Registry, SiteId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::State;
use wire::inter_site::{InterSite, LatenciesMessage};

/// The age at which a site of users is asked for its round trips again.
const ROW_AGE: Duration = Duration::from_secs(10);
/// Sites that are asked for their round trips in a second: one question is left for a probe.
const ASKED_MAX: usize = QUESTIONS_PER_S_MAX - 1;
/// After so long an answer shows nothing about the way.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Sites near to an origin that are looked at when operations are short.
const NEAR: usize = 8;

/// How long a byte takes on a link.
fn byte_ms(mbit_per_s: u32) -> f32 {
    8.0 / 1_000.0 / mbit_per_s.max(1) as f32
}

/// What a site has measured.
#[derive(Debug)]
struct Row {
    ms: BTreeMap<SiteId, f32>,
    version: u64,
    at: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Sites {
    pub(super) measuring: Measuring,
    rows: BTreeMap<SiteId, Row>,
    /// The last question to each site, by its number, and when that was.
    asked: BTreeMap<SiteId, (u64, Duration)>,
    questions: u64,
    /// When a better site is worth a move, by how accesses are counted now.
    pub(super) stability: Stability,
    /// By which sites are numbered.
    listed: Vec<SiteId>,
    /// Measurements that were dropped.
    dropped: u64,
    /// What sites with a limit have room for, and when they were last asked for that.
    pub(super) offers: Offers,
    bid: BTreeMap<SiteId, Duration>,
}

/// What a decision rests on.
pub(super) struct Picture {
    pub(super) latencies: Latencies,
    near: Near,
    pub(super) stability: Stability,
    pub(super) rules: Rules,
    pub(super) groups: Groups,
    /// What a byte costs at each site; empty: nothing.
    pub(super) prices: Vec<f32>,
    /// For how many bytes each has room; empty: for all that comes.
    pub(super) room: Vec<u64>,
}

impl Picture {
    /// Whether a site takes only so much.
    pub(super) fn is_limited(&self, site: Place) -> bool {
        self.room.get(usize::from(site.0)).is_some_and(|room| *room < u64::MAX)
    }

    pub(super) fn solver(&self) -> Solver<'_> {
        Solver::with_prices(self.latencies.mean(), &self.near, &self.rules, &self.prices)
    }

    /// A decision about so many groups that are at a site.
    pub(super) fn decision<'a>(
        &'a self,
        at: Place,
        groups: usize,
        limits: Limits,
        elapsed: Duration,
        homes: &'a BTreeMap<GroupKey, Place>,
    ) -> Decision<'a> {
        Decision {
            stability: &self.stability,
            matrix: self.latencies.mean(),
            near: &self.near,
            rules: &self.rules,
            at,
            operations_max: OPERATIONS_MAX,
            groups,
            limits,
            elapsed_s: elapsed.as_secs_f32(),
            prices: &self.prices,
            room: &self.room,
            homes,
        }
    }
}

impl Sites {
    pub(super) fn new(measuring: Measuring, link_mbit_per_s: u32) -> Sites {
        Sites {
            measuring,
            rows: BTreeMap::new(),
            asked: BTreeMap::new(),
            questions: 0,
            stability: Stability { byte_ms: byte_ms(link_mbit_per_s), ..STABILITY },
            listed: Vec::new(),
            dropped: 0,
            offers: Offers::default(),
            bid: BTreeMap::new(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.measuring.stop();
        self.rows.clear();
        self.asked.clear();
        self.listed.clear();
        self.offers.forget();
        self.bid.clear();
    }

    /// Numbers the sites that are listed. Whether they are others than before.
    pub(super) fn follow(&mut self, registry: &Registry) -> bool {
        let mut listed: Vec<SiteId> = registry.sites.iter().map(|site| site.id).collect();
        listed.sort_unstable();
        let are_others = self.listed != listed;
        if are_others {
            self.rows.retain(|site, _| listed.contains(site));
            self.asked.retain(|site, _| listed.contains(site));
            self.bid.retain(|site, _| listed.contains(site));
            self.listed = listed;
        }
        are_others
    }

    pub(super) fn len(&self) -> usize {
        self.listed.len()
    }

    /// What the site's link takes in a time.
    pub(super) fn link_bytes(&self, span: Duration) -> u64 {
        (span.as_secs_f32() * 1_000.0 / self.stability.byte_ms) as u64
    }

    /// All of them, as they are numbered.
    pub(super) fn all(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.listed.iter().copied()
    }

    pub(super) fn place(&self, site: SiteId) -> Option<Place> {
        self.listed.binary_search(&site).ok().map(|index| Place(index as u16))
    }

    pub(super) fn site(&self, place: Place) -> SiteId {
        self.listed[usize::from(place.0)]
    }

    /// The accesses of a group as the solver has them.
    pub(super) fn accesses<'a>(
        &'a self,
        rates: &'a BTreeMap<SiteId, f32>,
    ) -> impl Iterator<Item = (From, f32)> + 'a {
        rates.iter().filter_map(|(site, rate)| Some((From(self.place(*site)?.0), *rate)))
    }

    /// Sites that leave, and those in `barred`, own nothing more.
    pub(super) fn rules(&self, registry: &Registry, barred: &BTreeSet<SiteId>) -> Rules {
        let mut rules = Rules::none(self.len());
        let is_barred = |site: SiteId| registry.site(site).is_none_or(|one| one.leaving);
        let listed = self.listed.iter().enumerate();
        for (index, _) in listed.filter(|(_, site)| is_barred(**site) || barred.contains(site)) {
            rules.bar(Place(index as u16));
        }
        rules
    }

    /// Everything as it is.
    pub(super) fn picture(&self, own: SiteId, rules: Rules, groups: Groups) -> Picture {
        let latencies = self.latencies(own);
        let near = Near::new(latencies.mean(), NEAR);
        let (prices, room) = (Vec::new(), Vec::new());
        Picture { latencies, near, stability: self.stability, rules, groups, prices, room }
    }

    /// The round trips between all sites, as far as they are known.
    fn latencies(&self, own: SiteId) -> Latencies {
        let count = self.len();
        let mut latencies = Latencies::unknown(count, count);
        let measured = self.measuring.row();
        let rows = self.rows.iter().map(|(site, row)| (*site, &row.ms)).chain([(own, measured)]);
        let mut known = Vec::new();
        for (from, row) in rows {
            let Some(from) = self.place(from) else { continue };
            let to = row.iter().filter_map(|(to, ms)| Some((self.place(*to)?, *ms)));
            known.extend(to.filter(|(to, _)| *to != from).map(|(to, ms)| (from, to, ms)));
        }
        for (from, to, ms) in &known {
            latencies.learn(From(from.0), *to, *ms);
        }
        for (from, to, ms) in known {
            if latencies.get(From(to.0), from).is_none() {
                latencies.learn(From(to.0), from, ms);
            }
        }
        for index in 0..count as u16 {
            latencies.learn(From(index), Place(index), 0.0);
        }
        latencies
    }

    /// Asks sites with users for their round trips, and those to which groups would go for their
    /// room, and probes others.
    pub(super) fn ask<S: State>(
        &mut self,
        view: &View<'_, S>,
        own: SiteId,
        origins: &BTreeSet<SiteId>,
        bids: &BTreeMap<SiteId, Vec<Bid>>,
    ) -> Vec<Effect> {
        let now = view.now;
        let others: Vec<SiteId> = self.listed.iter().copied().filter(|site| *site != own).collect();
        let is_old = |site: &SiteId| self.rows.get(site).is_none_or(|row| row.at + ROW_AGE <= now);
        let was_asked =
            |site: SiteId| self.asked.get(&site).is_some_and(|(_, at)| now < *at + 3 * INTERVAL);
        let users =
            origins.iter().copied().filter(|site| *site != own && self.place(*site).is_some());
        let users = users.filter(|site| is_old(site) && !was_asked(*site));
        let is_due = |site: &SiteId| {
            let bid = self.bid.get(site);
            bid.is_none_or(|at| *at + ASKED_AGAIN <= now) && self.place(*site).is_some()
        };
        let full = bids.keys().copied().filter(|site| is_due(site) && !was_asked(*site));
        // The one that was asked longest ago, so that each has its turn.
        let full = full.min_by_key(|site| self.bid.get(site).copied());
        let users: Vec<SiteId> = users.filter(|site| Some(*site) != full).collect();
        let wanted = full.into_iter().chain(users);
        let wanted: Vec<SiteId> = wanted.take(ASKED_MAX).collect();
        let is_measured = |site| was_asked(site) || wanted.contains(&site);
        let most = QUESTIONS_PER_S_MAX - wanted.len();
        let probed = self.measuring.probe(now, &others, view.round_trips, is_measured, most);
        let none = Vec::new();
        let questions = wanted.into_iter().map(|to| (to, Some(bids.get(&to).unwrap_or(&none))));
        let each = questions.chain(probed.into_iter().map(|to| (to, None)));
        each.map(|(to, bids)| self.question(now, to, bids.map(Vec::as_slice))).collect()
    }

    /// A question for round trips, with bids for room; `None`: a probe.
    fn question(&mut self, now: Duration, to: SiteId, bids: Option<&[Bid]>) -> Effect {
        let probes = bids.is_none();
        if bids.is_some() {
            self.bid.insert(to, now);
        }
        let (wanted_bytes, wanted_values) =
            bids.unwrap_or_default().iter().map(|bid| (bid.bytes, bid.value)).unzip();
        self.questions += 1;
        self.asked.insert(to, (self.questions, now));
        let version = self.rows.get(&to).filter(|_| !probes).map_or(0, |row| row.version);
        let (number, asks) = (self.questions, true);
        let message = LatenciesMessage {
            asks,
            number,
            version,
            probes,
            wanted_bytes,
            wanted_values,
            ..LatenciesMessage::default()
        };
        Effect::Send { to, message: InterSite::Latencies(message), awaited: false }
    }

    /// A site has answered: with its round trips, unless they are as they were or it was only
    /// probed. How long the answer took, if this is that to the last question and came in time.
    pub(super) fn take_answer(
        &mut self,
        site: SiteId,
        message: &LatenciesMessage,
        now: Duration,
    ) -> Option<Duration> {
        self.offers.take(site, message, now);
        let (number, asked) = *self.asked.get(&site)?;
        if !message.probes {
            self.take_row(site, message, now);
        }
        if number != message.number {
            return None;
        }
        self.asked.remove(&site);
        let took = now.saturating_sub(asked);
        self.dropped += u64::from(took > ANSWER_DEADLINE);
        (took <= ANSWER_DEADLINE).then_some(took)
    }

    fn take_row(&mut self, site: SiteId, message: &LatenciesMessage, now: Duration) {
        if let Some(row) = self.rows.get_mut(&site).filter(|row| row.version == message.version) {
            row.at = now;
            return;
        }
        let LatenciesMessage { sites, round_trips_us, version, .. } = message;
        if sites.len() != round_trips_us.len() || sites.len() > limits::ROUND_TRIPS_MAX {
            self.dropped += sites.len().max(round_trips_us.len()) as u64;
            return;
        }
        let each =
            sites.iter().zip(round_trips_us).map(|(to, us)| (SiteId(*to), *us as f32 / 1_000.0));
        let is_possible = |(to, ms): &(SiteId, f32)| *to != site && *ms <= LATENCY_MS_MAX;
        let (ms, absurd): (BTreeMap<SiteId, f32>, BTreeMap<SiteId, f32>) =
            each.partition(is_possible);
        self.dropped += absurd.len() as u64;
        self.rows.insert(site, Row { ms, version: *version, at: now });
    }

    /// Measurements that were dropped: absurd, malformed or late.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::probing::Rule;

    const OWN: SiteId = SiteId(1);
    const FAR: SiteId = SiteId(3);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// This site and two others, of which `FAR` was asked for its round trips, 1 s after the
    /// beginning.
    fn asked() -> Sites {
        let mut sites = Sites::new(Measuring::new(Rule::default(), 7), 800);
        sites.listed = vec![OWN, SiteId(2), FAR];
        sites.question(at(1), FAR, Some(&[]));
        sites
    }

    fn answer(to: &[u32], us: &[u32]) -> LatenciesMessage {
        let (sites, round_trips_us) = (to.to_vec(), us.to_vec());
        LatenciesMessage {
            number: 1,
            version: 5,
            sites,
            round_trips_us,
            ..LatenciesMessage::default()
        }
    }

    fn known(sites: &Sites, from: SiteId, to: SiteId) -> Option<f32> {
        let place = |site| sites.place(site).unwrap();
        sites.latencies(OWN).get(From(place(from).0), place(to))
    }

    #[test]
    fn a_megabyte_takes_ten_ms_at_800_mbit_a_second() {
        assert!((byte_ms(800) * 1e6 - 10.0).abs() < 1e-3);
        assert!((byte_ms(10) * 1e6 - 800.0).abs() < 1e-1);
        let sites = Sites::new(Measuring::new(Rule::default(), 7), 80);
        assert!(sites.link_bytes(at(10)).abs_diff(100_000_000) < 1_000);
    }

    #[test]
    fn absurd_and_malformed_round_trips_are_dropped_and_counted() {
        for (to, us, dropped) in [
            (&[1, 2][..], &[10_000, 20_000][..], 0),
            // A negative one, as it would look like; more than a minute; to itself.
            (&[1, 2], &[10_000, u32::MAX], 1),
            (&[1, 2, 3], &[10_000, 61_000_000, 5], 2),
            (&[1, 2], &[10_000], 2),
        ] {
            let mut sites = asked();
            assert_eq!(sites.take_answer(FAR, &answer(to, us), at(2)), Some(at(1)));
            assert_eq!(sites.dropped(), dropped);
            let has = (known(&sites, FAR, OWN), known(&sites, FAR, SiteId(2)));
            let is_well_formed = to.len() == us.len();
            assert_eq!(has.0, is_well_formed.then_some(10.0));
            assert_eq!(has.1, (dropped == 0).then_some(20.0), "never zero, never a guess");
        }
    }

    #[test]
    fn an_answer_that_is_late_or_was_not_asked_for_measures_nothing() {
        let mut sites = asked();
        assert_eq!(sites.take_answer(SiteId(2), &answer(&[1], &[5]), at(2)), None, "not asked");
        assert_eq!(known(&sites, SiteId(2), OWN), None);
        assert_eq!(sites.take_answer(FAR, &answer(&[1], &[10_000]), at(7)), None);
        assert_eq!((sites.dropped(), known(&sites, FAR, OWN)), (1, Some(10.0)), "the rest counts");
        assert_eq!(sites.take_answer(FAR, &answer(&[1], &[10_000]), at(7)), None, "once");
    }

    #[test]
    fn round_trips_that_have_not_changed_stay() {
        let mut sites = asked();
        sites.take_answer(FAR, &answer(&[1, 2], &[10_000, 20_000]), at(2));
        let Effect::Send { message: InterSite::Latencies(message), .. } =
            sites.question(at(12), FAR, Some(&[]))
        else {
            panic!("it is asked");
        };
        assert_eq!(message.version, 5);
        let same = LatenciesMessage { number: 2, version: 5, ..LatenciesMessage::default() };
        assert!(sites.take_answer(FAR, &same, at(13)).is_some());
        assert_eq!((known(&sites, FAR, SiteId(2)), sites.rows[&FAR].at), (Some(20.0), at(13)));
        // A site that has begun anew has no answers.
        sites.question(at(23), FAR, Some(&[]));
        let none = LatenciesMessage { number: 3, version: 9, ..LatenciesMessage::default() };
        sites.take_answer(FAR, &none, at(24));
        assert_eq!(known(&sites, FAR, SiteId(2)), None);
    }
}
