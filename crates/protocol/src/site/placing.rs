//! Where this site's slots would be better: advice.
//!
//! Each second the leader looks at the slots that its site serves and that are accessed
//! ([`super::counting`]): which site would be the best owner, by the round trips that this node and the sites of
//! the users have measured ([`crate::global::round_trips`]), and whether that is worth a move
//! ([`crate::placement::stability`]). Nothing moves. Instead the job keeps an imagined owner of each slot, as if
//! its advice had been followed: the ledger states what that would have cost and saved, and the next decision
//! starts from there.
//!
//! A site's round trips come from that site, on request: those of sites with users each ten seconds, those of all
//! others in turn. Its answer is a measurement, too. A site with an unknown round trip to one of a slot's users is
//! no candidate; where only one of two sites has measured, both go by that.
//!
//! All of it is volatile: another leader begins anew, and so does this one when a site joins or leaves.

use super::Site;
use super::counting::{Counting, MEMORY_S};
use super::jobs::view;
use crate::job::{Effect, Job, Progress, View};
use crate::origin::Origin;
use crate::placement::explain::Why;
use crate::placement::ledger::Ledger;
use crate::placement::plan::{self, Limits};
use crate::placement::stability::{Regrets, Stability};
use crate::placement::{
    Assignment, Explanation, Groups, Latencies, Near, Origin as From, Rules, Site as Place, Solver,
    plan as planned,
};
use model::{
    AdvisedMove, Answer, PlacementCandidate, PlacementExplained, PlacementLedger, PlacementReason,
    PlacementWindow, Refusal, Registry, SiteId, Slot, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::across::{AcrossSay, LatenciesSay};

/// How often it is decided.
const INTERVAL: Duration = Duration::from_secs(1);
/// The window of the ledger and of the budget of moves.
const WINDOW: Duration = Duration::from_secs(10);
/// The moves of one window: in number, and in bytes.
const BUDGET: (u64, u64) = (64, 64 << 20);
/// The age at which a site of users is asked for its round trips again.
const ROW_AGE: Duration = Duration::from_secs(10);
/// Sites that are asked in a second.
const ASKED_MAX: usize = 8;
/// Operations of one decision: some milliseconds.
const OPERATIONS_MAX: u64 = 20_000_000;
/// Sites near to an origin that are looked at when operations are short.
const NEAR: usize = 8;
/// The size of a key that was never written while accesses were counted.
const KEY_BYTES: u64 = 100;
/// A move costs its users a pause of 50 ms, and 10 ms a megabyte.
const STABILITY: Stability = Stability {
    margin: 0.1,
    sigmas: 2.0,
    memory_s: MEMORY_S,
    byte_ms: 1e-5,
    pause_ms: 50.0,
    sites_are_origins: true,
    planted: crate::placement::trial::Planted::none(),
};

/// What a site has measured.
#[derive(Debug)]
struct Row {
    ms: BTreeMap<SiteId, f32>,
    at: Duration,
}

/// An imagined owner.
#[derive(Clone, Copy, Debug)]
struct Advice {
    to: SiteId,
    since: Duration,
    gain_ms_per_s: f32,
    bytes: u32,
}

/// The job. See the module's documentation.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) counting: Counting,
    rows: BTreeMap<SiteId, Row>,
    /// The last question to each site, by its number, and when that was.
    asked: BTreeMap<SiteId, (u64, Duration)>,
    questions: u64,
    decided: Option<Duration>,
    window_began: Duration,
    /// The sites of users, at the last decision.
    origins: BTreeSet<SiteId>,
    /// The sites by which the rest is numbered.
    sites: Vec<SiteId>,
    advised: BTreeMap<u16, Advice>,
    /// By slot.
    regrets: Option<Regrets>,
    ledger: Ledger,
}

/// What a decision rests on. Groups are slots.
struct Picture {
    latencies: Latencies,
    near: Near,
    rules: Rules,
    groups: Groups,
}

impl Picture {
    fn solver(&self) -> Solver<'_> {
        Solver::new(self.latencies.mean(), &self.near, &self.rules)
    }
}

impl Placing {
    pub(super) fn new(counting: Counting) -> Placing {
        Placing {
            counting,
            rows: BTreeMap::new(),
            asked: BTreeMap::new(),
            questions: 0,
            decided: None,
            window_began: Duration::ZERO,
            origins: BTreeSet::new(),
            sites: Vec::new(),
            advised: BTreeMap::new(),
            regrets: None,
            ledger: Ledger::default(),
        }
    }

    fn forget(&mut self) {
        if self.decided.take().is_some() {
            self.rows.clear();
            self.asked.clear();
            self.sites.clear();
            self.advised.clear();
            self.regrets = None;
            self.ledger = Ledger::default();
        }
    }

    /// Numbers the sites that are listed; the rest begins anew if they are others.
    fn follow(&mut self, registry: &Registry) {
        let mut sites: Vec<SiteId> = registry.sites.iter().map(|site| site.id).collect();
        sites.sort_unstable();
        if self.sites != sites {
            self.rows.retain(|site, _| sites.contains(site));
            self.asked.retain(|site, _| sites.contains(site));
            self.advised.clear();
            self.regrets = None;
            self.ledger = Ledger::default();
            self.sites = sites;
        }
    }

    fn place(&self, site: SiteId) -> Option<Place> {
        self.sites.binary_search(&site).ok().map(|index| Place(index as u16))
    }

    fn site(&self, place: Place) -> SiteId {
        self.sites[usize::from(place.0)]
    }

    // ---- what is known -----------------------------------------------------------------------------

    /// The round trips between all sites, as far as they are known.
    fn latencies<S: State>(&self, view: &View<'_, S>, own: SiteId) -> Latencies {
        let count = self.sites.len();
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

    /// Everything as it is. `imagined`: as if all advice had been followed.
    fn picture<S: State>(
        &mut self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        imagined: bool,
    ) -> Option<Picture> {
        let at = self.place(own)?;
        let latencies = self.latencies(view, own);
        let count = self.sites.len();
        let mut rules = Rules::none(count);
        let lost = view.reach.lost(view.now);
        for site in &registry.sites {
            if let Some(place) = self.place(site.id)
                && (site.leaving || lost.contains(&site.id))
            {
                rules.bar(place);
            }
        }
        let users = self.counting.slots(view.now);
        self.origins = users.values().flat_map(|users| users.rates.keys().copied()).collect();
        let keys = view.machine.keys_by_slot();
        let mut groups = Groups::new(count, count);
        for slot in Slot::all() {
            let users = users.get(&slot.number()).filter(|_| view.machine.serves(slot));
            let advised = self.advised.get(&slot.number()).filter(|_| imagined);
            let owner = advised.and_then(|advice| self.place(advice.to)).unwrap_or(at);
            let bytes = users.map_or(0, |users| {
                let keys = keys.get(&slot).copied().unwrap_or_default();
                keys * users.mean_bytes().unwrap_or(KEY_BYTES)
            });
            let rates = users.into_iter().flat_map(|users| &users.rates);
            let rates = rates.filter_map(|(site, rate)| Some((From(self.place(*site)?.0), *rate)));
            groups.push(owner, u32::try_from(bytes).unwrap_or(u32::MAX), rates);
        }
        let near = Near::new(latencies.mean(), NEAR);
        Some(Picture { latencies, near, rules, groups })
    }

    // ---- decisions ---------------------------------------------------------------------------------

    fn decide<S: State>(&mut self, view: &View<'_, S>, own: SiteId, registry: &Registry) {
        let elapsed = view.now.saturating_sub(self.decided.unwrap_or(view.now));
        if self.decided.replace(view.now).is_none() {
            self.window_began = view.now;
        }
        // What has moved, by an operator perhaps, is for its next owner to advise.
        let serves = |slot: &u16| Slot::new(*slot).is_some_and(|slot| view.machine.serves(slot));
        self.advised.retain(|slot, _| serves(slot));
        let Some(mut picture) = self.picture(view, (own, registry), true) else { return };
        let count = picture.groups.len();
        let mut regrets = self.regrets.take().unwrap_or_else(|| Regrets::new(count));
        let moves = {
            let (solver, groups) = (picture.solver(), &picture.groups);
            let solution = solver.solve(groups, OPERATIONS_MAX);
            let elapsed_s = elapsed.as_secs_f32();
            let ready = regrets.ready(&STABILITY, &solver, groups, &solution, elapsed_s);
            let wanted = Assignment::of_ready(groups, &solution, &ready);
            let spent = self.ledger.current();
            let limits = Limits {
                moves_max: BUDGET.0.saturating_sub(spent.moves) as usize,
                bytes_max: BUDGET.1.saturating_sub(spent.bytes),
                site_bytes_max: BUDGET.1,
            };
            planned(&plan::moves(&solver, groups, &wanted), groups, None, limits).moves
        };
        for one in &moves {
            let group = one.group as usize;
            let rate = picture.groups.accesses(group).rate();
            self.ledger.moved(one, f64::from(STABILITY.cost_of_move_ms(rate, 0)));
            regrets.moved(&STABILITY, group);
            picture.groups.set_owner(group, one.to);
            let slot = one.group as u16;
            match self.site(one.to) {
                to if to == own => drop(self.advised.remove(&slot)),
                to => {
                    let (bytes, since) = (one.bytes, view.now);
                    let advice = Advice { to, since, gain_ms_per_s: one.gain, bytes };
                    self.advised.insert(slot, advice);
                }
            }
        }
        self.regrets = Some(regrets);
        self.account(view.now, own, &picture);
    }

    /// What the advice is worth now; and the window's account, when it ends.
    fn account(&mut self, now: Duration, own: SiteId, picture: &Picture) {
        let (solver, groups) = (picture.solver(), &picture.groups);
        let Some(at) = self.place(own) else { return };
        for (slot, advice) in &mut self.advised {
            let group = usize::from(*slot);
            let there = solver.cost(groups, group, groups.owner(group));
            let gain = solver.cost(groups, group, at) - there;
            advice.gain_ms_per_s = if gain.is_finite() { gain } else { 0.0 };
            advice.bytes = groups.bytes(group);
        }
        let elapsed = now.saturating_sub(self.window_began);
        if elapsed >= WINDOW {
            self.ledger.close(&solver, groups, elapsed.as_secs_f64());
            self.window_began = now;
        }
    }

    // ---- round trips -------------------------------------------------------------------------------

    /// Asks sites for their round trips: those with users, and one of the others in turn.
    fn ask(&mut self, now: Duration, own: SiteId) -> Vec<Effect> {
        let others = self.sites.iter().copied().filter(|site| *site != own);
        let others: Vec<SiteId> = others.collect();
        if others.is_empty() {
            return Vec::new();
        }
        let is_old = |site: &SiteId| self.rows.get(site).is_none_or(|row| row.at + ROW_AGE <= now);
        let was_asked =
            |site: &SiteId| self.asked.get(site).is_some_and(|(_, at)| now < *at + 3 * INTERVAL);
        let users = self.origins.iter().copied();
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
            let say = LatenciesSay { asks: true, number, ..LatenciesSay::default() };
            Effect::Send { to, say: AcrossSay::Latencies(say), awaited: false }
        };
        wanted.into_iter().map(ask).collect()
    }

    /// A site's round trips have come. When it was asked for them, if this is the answer to the last question.
    fn take_row(&mut self, site: SiteId, say: &LatenciesSay, now: Duration) -> Option<Duration> {
        let (number, asked) = *self.asked.get(&site)?;
        let each = say.sites.iter().zip(&say.round_trips_us).take(limits::ROUND_TRIPS_MAX);
        let ms = each.map(|(site, us)| (SiteId(*site), *us as f32 / 1_000.0)).collect();
        self.rows.insert(site, Row { ms, at: now });
        (number == say.number).then_some(asked)
    }

    // ---- what is shown -----------------------------------------------------------------------------

    fn explain<S: State>(&mut self, view: &View<'_, S>, key: &[u8]) -> Option<PlacementExplained> {
        let member = view.machine.membership()?;
        let (own, registry) = (member.own, member.registry.clone());
        self.follow(&registry);
        let picture = self.picture(view, (own, &registry), false)?;
        let (solver, groups, slot) = (picture.solver(), &picture.groups, Slot::of_key(key));
        let group = usize::from(slot.number());
        let regrets = self.regrets.take().unwrap_or_else(|| Regrets::new(groups.len()));
        let explanation = regrets.explain(&STABILITY, &solver, groups, group);
        self.regrets = Some(regrets);
        let why = self.reason(slot, &explanation);
        let Explanation { bytes, accesses, candidates, alone_ms, .. } = explanation;
        let candidates = candidates.into_iter().map(|one| PlacementCandidate {
            site: self.site(one.site),
            mean_us: one.mean_ms.map(us),
            barred: picture.rules.is_barred(one.site),
        });
        let candidates = candidates.collect();
        let users = accesses.into_iter();
        let slot_users = users.map(|(from, rate)| (self.site(Place(from.0)), per_1000_s(rate)));
        let slot_users = slot_users.collect();
        let of_key = self.counting.users(view.now, view.machine.accesses().group_of(key));
        let key_users = of_key.into_iter().map(|(site, rate)| (site, per_1000_s(rate))).collect();
        Some(PlacementExplained {
            slot,
            owner: own,
            bytes: u64::from(bytes),
            key_users,
            slot_users,
            candidates,
            alone_us: us(alone_ms),
            why,
        })
    }

    fn reason(&self, slot: Slot, explanation: &Explanation) -> PlacementReason {
        if let Some(advice) = self.advised.get(&slot.number())
            && let Some(place) = self.place(advice.to)
        {
            let mean = |place| {
                let candidates = &explanation.candidates;
                candidates.iter().find(|one| one.site == place).and_then(|one| one.mean_ms)
            };
            let gain = mean(explanation.owner).zip(mean(place)).map_or(0.0, |(a, b)| a - b);
            return PlacementReason::Advised { to: advice.to, gain_us: us(gain) };
        }
        match explanation.why {
            Why::Unused => PlacementReason::Unused,
            Why::Best | Why::Pinned => PlacementReason::Best,
            Why::UnknownHere => PlacementReason::UnknownHere,
            Why::NoCandidate => PlacementReason::NoCandidate,
            Why::WithinMargin { to, gain_ms, needed_ms } => {
                let (to, gain_us, needed_us) = (self.site(to), us(gain_ms), us(needed_ms));
                PlacementReason::WithinMargin { to, gain_us, needed_us }
            }
            Why::WithinNoise { to, gain_ms, noise_ms } => {
                let (to, gain_us, needed_us) = (self.site(to), us(gain_ms), us(noise_ms));
                PlacementReason::WithinNoise { to, gain_us, needed_us }
            }
            Why::Waits { to, gain_ms, .. } | Why::Moves { to, gain_ms } => {
                PlacementReason::Waits { to: self.site(to), gain_us: us(gain_ms) }
            }
        }
    }

    fn report(&self, now: Duration, own: SiteId) -> PlacementLedger {
        let advised = self.advised.iter().filter_map(|(slot, advice)| {
            Some(AdvisedMove {
                slot: Slot::new(*slot)?,
                from: own,
                to: advice.to,
                gain_us_per_s: us(advice.gain_ms_per_s),
                bytes: u64::from(advice.bytes),
                for_ms: now.saturating_sub(advice.since).as_millis() as u64,
            })
        });
        let mut advised: Vec<AdvisedMove> = advised.collect();
        advised.sort_by_key(|one| (std::cmp::Reverse(one.gain_us_per_s), one.slot));
        let windows = self.ledger.windows().map(|window| PlacementWindow {
            number: window.number,
            moves: window.moves,
            bytes: window.bytes,
            expected_us_per_s: us(window.expected_ms_per_s as f32),
            saved_us: (window.saved_ms * 1_000.0) as i64,
        });
        let (windows, groups) = (windows.collect(), self.counting.groups() as u64);
        PlacementLedger { advised, windows, groups, dropped: self.counting.dropped() }
    }
}

fn us(ms: f32) -> u64 {
    (ms * 1_000.0).round() as u64
}

fn per_1000_s(rate: f32) -> u64 {
    (rate * 1_000.0).round() as u64
}

impl<S: State> Job<S> for Placing {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(member) = view.machine.membership().filter(|_| view.machine.accesses().is_on())
        else {
            self.forget();
            return Vec::new();
        };
        if self.decided.is_some_and(|at| view.now < at + INTERVAL) {
            return Vec::new();
        }
        let (own, registry) = (member.own, member.registry.clone());
        self.follow(&registry);
        self.decide(view, own, &registry);
        self.ask(view.now, own)
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.forget();
        Vec::new()
    }

    fn progress(&self, _view: &View<'_, S>) -> Progress {
        Progress { left: self.advised.len() as u64, sent_bytes: 0 }
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Another site asks for this node's round trips, or has sent its own.
    pub(super) fn take_latencies(&mut self, site: SiteId, node: model::NodeId, say: LatenciesSay) {
        let now = self.now.monotonic;
        if !say.asks {
            if let Some(asked) = self.jobs.place.take_row(site, &say, now) {
                let took = now.saturating_sub(asked);
                self.global.routing.round_trips().measured(site, took, now);
            }
            return;
        }
        let mut known: Vec<_> = self.global.routing.round_trips().all_ms().into_iter().collect();
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        known.truncate(limits::ROUND_TRIPS_MAX);
        let answer = LatenciesSay {
            asks: false,
            number: say.number,
            sites: known.iter().map(|(site, _)| site.0).collect(),
            round_trips_us: known.iter().map(|(_, ms)| us(*ms) as u32).collect(),
        };
        self.say_across(site, node, AcrossSay::Latencies(answer));
    }

    /// Why a key is where it is, at the leader of its owner.
    pub(super) fn explain_placement(&mut self, origin: Origin, key: &[u8]) {
        let slot = Slot::of_key(key);
        let explained = match self.machine.serves(slot) {
            true => {
                let (view, jobs) = (view!(self), &mut self.jobs);
                jobs.place.explain(&view, key)
            }
            false => None,
        };
        let outcome = match explained {
            Some(explained) => Ok(Answer::Placement(Box::new(explained))),
            None => Err(Refusal::NotHeld(slot).into()),
        };
        self.settle(vec![(origin, outcome)]);
    }

    pub(super) fn show_placement_ledger(&mut self, origin: Origin) {
        let outcome = match self.machine.membership() {
            Some(member) => {
                let report = self.jobs.place.report(self.now.monotonic, member.own);
                Ok(Answer::PlacementLedger(Box::new(report)))
            }
            None => Err(Refusal::NoDeployment.into()),
        };
        self.settle(vec![(origin, outcome)]);
    }
}
