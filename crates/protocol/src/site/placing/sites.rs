//! The sites as the solver numbers them, and the round trips between them, as far as they are known.
//!
//! A site's round trips come from that site, on request: those of sites with users each ten seconds, those of all
//! others in turn. Its answer is a measurement, too. Where only one of two sites has measured, both go by that.

use super::INTERVAL;
use crate::job::{Effect, View};
use crate::placement::{Groups, Latencies, Near, Origin as From, Rules, Site as Place, Solver};
use model::{Registry, SiteId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::State;
use wire::inter_site::{InterSite, LatenciesMessage};

/// The age at which a site of users is asked for its round trips again.
const ROW_AGE: Duration = Duration::from_secs(10);
/// Sites that are asked in a second.
const ASKED_MAX: usize = 8;
/// Sites near to an origin that are looked at when operations are short.
const NEAR: usize = 8;

/// What a site has measured.
#[derive(Debug)]
struct Row {
    ms: BTreeMap<SiteId, f32>,
    at: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sites {
    rows: BTreeMap<SiteId, Row>,
    /// The last question to each site, by its number, and when that was.
    asked: BTreeMap<SiteId, (u64, Duration)>,
    questions: u64,
    /// By which sites are numbered.
    listed: Vec<SiteId>,
}

/// What a decision rests on.
pub(super) struct Picture {
    latencies: Latencies,
    near: Near,
    pub(super) rules: Rules,
    pub(super) groups: Groups,
}

impl Picture {
    pub(super) fn solver(&self) -> Solver<'_> {
        Solver::new(self.latencies.mean(), &self.near, &self.rules)
    }
}

impl Sites {
    pub(super) fn forget(&mut self) {
        self.rows.clear();
        self.asked.clear();
        self.listed.clear();
    }

    /// Numbers the sites that are listed. Whether they are others than before.
    pub(super) fn follow(&mut self, registry: &Registry) -> bool {
        let mut listed: Vec<SiteId> = registry.sites.iter().map(|site| site.id).collect();
        listed.sort_unstable();
        let are_others = self.listed != listed;
        if are_others {
            self.rows.retain(|site, _| listed.contains(site));
            self.asked.retain(|site, _| listed.contains(site));
            self.listed = listed;
        }
        are_others
    }

    pub(super) fn len(&self) -> usize {
        self.listed.len()
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
    pub(super) fn picture<S: State>(
        &self,
        view: &View<'_, S>,
        own: SiteId,
        rules: Rules,
        groups: Groups,
    ) -> Picture {
        let latencies = self.latencies(view, own);
        let near = Near::new(latencies.mean(), NEAR);
        Picture { latencies, near, rules, groups }
    }

    /// The round trips between all sites, as far as they are known.
    fn latencies<S: State>(&self, view: &View<'_, S>, own: SiteId) -> Latencies {
        let count = self.len();
        let mut latencies = Latencies::unknown(count, count);
        let measured = view.round_trips.all_ms();
        let rows = self.rows.iter().map(|(site, row)| (*site, &row.ms)).chain([(own, &measured)]);
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

    /// Asks sites for their round trips: those with users, and one of the others in turn.
    pub(super) fn ask(
        &mut self,
        now: Duration,
        own: SiteId,
        origins: &BTreeSet<SiteId>,
    ) -> Vec<Effect> {
        let others = self.listed.iter().copied().filter(|site| *site != own);
        let others: Vec<SiteId> = others.collect();
        if others.is_empty() {
            return Vec::new();
        }
        let is_old = |site: &SiteId| self.rows.get(site).is_none_or(|row| row.at + ROW_AGE <= now);
        let was_asked =
            |site: &SiteId| self.asked.get(site).is_some_and(|(_, at)| now < *at + 3 * INTERVAL);
        let users = origins.iter().copied();
        let wanted = users.filter(|site| others.contains(site) && is_old(site));
        let mut wanted: Vec<SiteId> =
            wanted.filter(|site| !was_asked(site)).take(ASKED_MAX - 1).collect();
        let next = others[self.questions as usize % others.len()];
        if !wanted.contains(&next) {
            wanted.push(next);
        }
        let ask = |to| {
            self.questions += 1;
            self.asked.insert(to, (self.questions, now));
            let number = self.questions;
            let message = LatenciesMessage { asks: true, number, ..LatenciesMessage::default() };
            Effect::Send { to, message: InterSite::Latencies(message), awaited: false }
        };
        wanted.into_iter().map(ask).collect()
    }

    /// A site's round trips have come. When it was asked for them, if this is the answer to the last question.
    pub(super) fn take_row(
        &mut self,
        site: SiteId,
        message: &LatenciesMessage,
        now: Duration,
    ) -> Option<Duration> {
        let (number, asked) = *self.asked.get(&site)?;
        let each = message.sites.iter().zip(&message.round_trips_us).take(limits::ROUND_TRIPS_MAX);
        let ms = each.map(|(site, us)| (SiteId(*site), *us as f32 / 1_000.0)).collect();
        self.rows.insert(site, Row { ms, at: now });
        (number == message.number).then_some(asked)
    }
}
