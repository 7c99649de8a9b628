//! Where keys would be better, and, where their keyspaces ask for it, are brought.
//!
//! Each second the leader looks at what its site serves and what is accessed of it
//! ([`super::counting`]): which site would be the best owner, by the round trips that this node
//! ([`measuring`]) and the sites of the users have measured, and whether that is worth a move
//! ([`crate::placement::stability`]). Of keyspaces with `placement = advise` it states which slots
//! would be better elsewhere ([`advice`]); groups of keyspaces with `placement = adaptive` it lends
//! to other sites, and gives back ([`moves`]), by the rules of their keyspaces ([`kinds`]); what is
//! pinned goes to its pin ([`pins`]). A site with an unknown round trip to one of the users is no
//! candidate ([`sites`]). Some sites take only so many bytes ([`room`]).
//!
//! All of it is volatile: another leader begins anew, and so does this one when a site joins or
//! leaves.

mod advice;
mod kinds;
mod measuring;
mod moves;
mod pins;
mod room;
mod sites;

use super::Site;
use super::counting::{Counting, MEMORY_S};
use super::jobs::view;
use crate::job::{Effect, Job, Progress, View};
use crate::origin::Origin;
use crate::placement::explain::Why;
use crate::placement::ledger::Ledger;
use crate::placement::stability::Stability;
use crate::placement::{Bar, Candidate, Explanation, GroupKey, Site as Place};
use advice::Advice;
use measuring::Measuring;
use model::{
    Answer, Group, KeyspaceId, Placement, PlacementBar, PlacementCandidate, PlacementClient,
    PlacementExplained, PlacementLedger, PlacementReason, PlacementWindow, Refusal, SiteId, Slot,
    limits,
};
use moves::Moves;
use sites::Sites;
use std::collections::BTreeSet;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::{InterSite, LatenciesMessage};

/// How often it is decided.
const INTERVAL: Duration = Duration::from_secs(1);
/// The window of the ledger and of the budget of moves.
const WINDOW: Duration = Duration::from_secs(10);
/// Operations of one decision: some milliseconds.
const OPERATIONS_MAX: u64 = 20_000_000;
/// The size of a key that was never written while accesses were counted.
const KEY_BYTES: u64 = 100;
/// A move costs its users a pause of two commits and the way between the two sites, and what its
/// bytes take on the site's link ([`Options::link_mbit_per_s`](super::Options)).
const STABILITY: Stability = Stability {
    margin: 0.1,
    sigmas: 2.0,
    memory_s: MEMORY_S,
    one_of: 1.0,
    byte_ms: 1e-5,
    pause_ms: 10.0,
    sites_are_origins: true,
    planted: crate::placement::trial::Planted::none(),
};

/// The job. See the module's documentation.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) counting: Counting,
    sites: Sites,
    advice: Advice,
    moves: Moves,
    decided: Option<Duration>,
    /// The sites of users, at the last decision.
    origins: BTreeSet<SiteId>,
    /// As of the last decision, as a status may be asked for often; none at a node that does not
    /// lead, and while no keyspace counts accesses.
    pub(super) counts: Option<PlacementCounts>,
}

/// What a site's leader counts and has moved, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacementCounts {
    /// Groups with a profile of their own.
    pub groups: u64,
    /// Those of them that follow clients with a name.
    pub by_client: u64,
    /// Accesses that found no room to be counted.
    pub dropped: u64,
    /// Messages that were sent to other sites for the time of their answers alone.
    pub probes: u64,
    /// Latencies that were dropped: absurd, malformed or late.
    pub latencies_dropped: u64,
    /// Slots that would be better elsewhere.
    pub advised: u64,
    /// Groups of this site's slots that others serve.
    pub lent: u64,
    /// Groups that this site serves for others.
    pub borrowed: u64,
    /// Moves of groups that this node has made as a leader.
    pub moves: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// How long users have waited for them, in ms: an estimate.
    pub paused_ms: f64,
    /// What borrowed groups saved against their homes at the end of the last window, in ms a
    /// second.
    pub saved_ms_per_s: f64,
    /// Groups that the last decision looked at; the others are as they were.
    pub looked_at: u64,
    /// Groups that the last decision placed without looking at all sites, for want of operations.
    pub inexact: u64,
    /// Bytes of borrowed groups.
    pub borrowed_bytes: u64,
    /// The price of a megabyte at this site, in ms of waiting a second; 0 without a limit.
    pub price_of_mb: f64,
}

/// Which keyspaces ask for what.
fn asks<S: State>(view: &View<'_, S>, placement: Placement) -> bool {
    let catalog = view.machine.reader().catalog();
    catalog.all().iter().any(|one| one.spec.is_global() && one.spec.placement == placement)
}

impl Placing {
    pub(super) fn new(options: &super::Options) -> Placing {
        Placing {
            counting: Counting::new(options.seed, options.profiles_max, options.equal_clients),
            sites: Sites::new(
                Measuring::new(options.probing, options.seed),
                options.link_mbit_per_s,
            ),
            advice: Advice::default(),
            moves: Moves::default(),
            decided: None,
            origins: BTreeSet::new(),
            counts: None,
        }
    }

    fn forget(&mut self) {
        if self.decided.take().is_some() {
            self.sites.forget();
            self.advice = Advice::default();
            self.moves.begin(Duration::ZERO);
            self.counts = None;
        }
    }

    /// Numbers the sites that are listed; the rest begins anew if they are others.
    fn follow<S: State>(&mut self, view: &View<'_, S>, registry: &model::Registry) {
        self.sites.measuring.publish(view.now, view.round_trips);
        self.sites.stability.one_of = self.counting.one_of();
        if self.sites.follow(registry) {
            self.advice.begin(view.now);
            self.moves.begin(view.now);
        }
    }

    fn decide<S: State>(
        &mut self,
        view: &View<'_, S>,
        own: SiteId,
        registry: &model::Registry,
    ) -> Vec<Effect> {
        // While the job is paused no user's waiting is counted.
        let elapsed = view.now.saturating_sub(self.decided.unwrap_or(view.now)).min(2 * INTERVAL);
        self.decided = Some(view.now);
        self.origins.clear();
        if asks(view, Placement::Advise) {
            let slots = self.counting.slots(view.now);
            self.origins = advice::origins(&slots);
            self.advice.decide(view, (own, registry), (&self.sites, &slots), elapsed);
        }
        if !asks(view, Placement::Adaptive) {
            return Vec::new();
        }
        let seen = (&self.sites, &mut self.counting);
        let effects = self.moves.decide(view, (own, registry), seen, elapsed);
        self.origins.extend(&self.moves.look.origins);
        effects
    }

    fn explain<S: State>(
        &mut self,
        view: &View<'_, S>,
        keyspace: KeyspaceId,
        key: &model::Bytes,
    ) -> Option<Answer> {
        let member = view.machine.membership()?;
        let (own, registry) = (member.own, member.registry.clone());
        self.follow(view, &registry);
        let place = (own, &*registry);
        let spec = view.machine.spec(keyspace)?;
        let group = Group::of_key(keyspace, key);
        // One that was lent before the placement was changed is on its way home.
        let is_away =
            || view.machine.borrower_of(&group).is_some() || view.machine.serves_borrowed(&group);
        if spec.is_adaptive() || spec.lends() && is_away() {
            let is_home = view.machine.serves(group.slot());
            let is_home = is_home && view.machine.borrower_of(&group).is_none();
            if !is_home && !view.machine.serves_borrowed(&group) {
                return None;
            }
            let mut explained =
                self.moves.explain(view, place, (&self.sites, &mut self.counting), &group)?;
            let key = view.machine.accesses().group_of(keyspace, true, &group.tag);
            explained.placed.key_clients = self.clients(view.now, key);
            return Some(Answer::GroupPlacement(Box::new(explained)));
        }
        let slot = Slot::of_key(key);
        if !view.machine.serves(slot) {
            return None;
        }
        let slots = self.counting.slots(view.now);
        let mut explained = self.advice.explain(view, place, (&self.sites, &slots), slot)?;
        let group = view.machine.accesses().group_of(keyspace, false, key);
        let of_key = self.counting.users(view.now, group).into_iter();
        explained.key_users = of_key.map(|(site, rate)| (site, per_1000_s(rate))).collect();
        explained.key_clients = self.clients(view.now, group);
        Some(Answer::Placement(Box::new(explained)))
    }

    fn clients(&mut self, now: Duration, group: GroupKey) -> Vec<PlacementClient> {
        let clients = self.counting.clients(now, group).into_iter();
        let shown = clients.map(|(number, site, rate)| PlacementClient {
            number,
            site,
            per_1000_s: per_1000_s(rate),
        });
        shown.collect()
    }

    fn count<S: State>(&self, view: &View<'_, S>) -> PlacementCounts {
        let total = self.moves.ledger().total();
        let (advises, lends) = (asks(view, Placement::Advise), asks(view, Placement::Adaptive));
        let (groups, by_client) = self.counting.groups();
        PlacementCounts {
            groups,
            by_client,
            dropped: self.counting.dropped(),
            probes: self.sites.measuring.probes(),
            latencies_dropped: self.sites.dropped(),
            advised: if advises { self.advice.len() as u64 } else { 0 },
            lent: view.machine.lent().count() as u64,
            borrowed: view.machine.borrowed_groups().count() as u64,
            moves: total.moves,
            moved_bytes: total.bytes,
            paused_ms: total.paused_ms,
            saved_ms_per_s: if lends { self.moves.saves_ms_per_s() } else { 0.0 },
            looked_at: if lends { self.moves.look.count as u64 } else { 0 },
            inexact: if lends { self.moves.inexact } else { 0 },
            borrowed_bytes: view.machine.borrowed_bytes(),
            price_of_mb: f64::from(self.moves.bids.price()) * 1e6,
        }
    }

    fn report<S: State>(&self, view: &View<'_, S>, own: SiteId) -> Answer {
        let (advised, windows) = self.advice.report(view.now, own);
        let (groups, dropped) = (self.counting.groups().0, self.counting.dropped());
        let ledger = PlacementLedger { advised, windows, groups, dropped };
        let machine = view.machine;
        let has_loans =
            machine.lent().next().is_some() || machine.borrowed_groups().next().is_some();
        if !asks(view, Placement::Adaptive) && !has_loans {
            return Answer::PlacementLedger(Box::new(ledger));
        }
        let loans = self.moves.report(view, own, &self.sites, &self.counting);
        Answer::LedgerOfLoans(Box::new(ledger), Box::new(loans))
    }
}

fn windows(ledger: &Ledger) -> Vec<PlacementWindow> {
    let windows = ledger.windows().map(|window| PlacementWindow {
        number: window.number,
        moves: window.moves,
        bytes: window.bytes,
        expected_us_per_s: us(window.expected_ms_per_s as f32),
        saved_us: (window.saved_ms * 1_000.0) as i64,
        paused_us: us(window.paused_ms as f32),
    });
    windows.collect()
}

/// Why a group or a slot is where it is, as operators read it.
fn reason(sites: &Sites, why: Why) -> PlacementReason {
    match why {
        Why::Unused => PlacementReason::Unused,
        Why::Best | Why::Pinned => PlacementReason::Best,
        Why::UnknownHere => PlacementReason::UnknownHere,
        Why::NoCandidate => PlacementReason::NoCandidate,
        Why::WithinMargin { to, gain_ms, needed_ms } => {
            let (gain_us, needed_us) = less_us(gain_ms, needed_ms);
            PlacementReason::WithinMargin { to: sites.site(to), gain_us, needed_us }
        }
        Why::WithinNoise { to, gain_ms, noise_ms } => {
            let (gain_us, needed_us) = less_us(gain_ms, noise_ms);
            PlacementReason::WithinNoise { to: sites.site(to), gain_us, needed_us }
        }
        Why::Waits { to, gain_ms, .. } => {
            PlacementReason::Waits { to: sites.site(to), gain_us: us(gain_ms) }
        }
        Why::Moves { to, gain_ms } => {
            PlacementReason::Moves { to: sites.site(to), gain_us: us(gain_ms) }
        }
    }
}

/// An explanation as operators read it. The accesses are of the group or the slot that it is about.
fn shown(
    (own, sites): (SiteId, &Sites),
    slot: Slot,
    explanation: Explanation,
    why: PlacementReason,
) -> PlacementExplained {
    let Explanation { owner, bytes, accesses, mut candidates, alone_ms, .. } = explanation;
    if explanation.why == Why::Best {
        // What is nearer, and no better, costs too much.
        let here = candidates.iter().find(|one| one.site == owner).and_then(|one| one.mean_ms);
        let is_dear = |one: &&mut Candidate| one.price_ms > 0.0 && one.mean_ms < here;
        let dear = candidates.iter_mut().filter(is_dear);
        dear.for_each(|one| one.bar = one.bar.or(Some(Bar::Room)));
    }
    let candidates = candidates.into_iter().map(|one| PlacementCandidate {
        site: sites.site(one.site),
        mean_us: one.mean_ms.map(us),
        bar: one.bar.and_then(|bar| match bar {
            Bar::Barred => Some(PlacementBar::Leaves),
            Bar::LendTo => Some(PlacementBar::LendTo),
            Bar::Domain => Some(PlacementBar::Domain),
            Bar::Pinned => Some(PlacementBar::Pinned),
            Bar::Room => Some(PlacementBar::NoRoom),
            Bar::Unknown => None,
        }),
    });
    let users = accesses.into_iter();
    let users: Vec<_> =
        users.map(|(from, rate)| (sites.site(Place(from.0)), per_1000_s(rate))).collect();
    PlacementExplained {
        slot,
        owner: own,
        bytes: u64::from(bytes),
        key_users: users.clone(),
        key_clients: Vec::new(),
        slot_users: users,
        candidates: candidates.collect(),
        alone_us: us(alone_ms),
        why,
    }
}

/// A gain and what it would have to be, which stays more when both are rounded.
fn less_us(gain_ms: f32, needed_ms: f32) -> (u64, u64) {
    let gain_us = us(gain_ms);
    (gain_us, us(needed_ms).max(gain_us + 1))
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
        self.follow(view, &registry);
        let mut effects = self.decide(view, own, &registry);
        effects.extend(self.sites.ask(view, own, &self.origins, self.moves.wanted()));
        self.counts = Some(self.count(view));
        effects
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.forget();
        Vec::new()
    }

    fn progress(&self, _view: &View<'_, S>) -> Progress {
        Progress { left: (self.advice.len() + self.moves.len()) as u64, sent_bytes: 0 }
    }

    fn waits_for(&self, _view: &View<'_, S>) -> Option<String> {
        let (mib, answers_mib) =
            (limits::LOANS_BYTES_MAX >> 20, limits::LOAN_ANSWERS_BYTES_MAX >> 20);
        let resting = Some(self.moves.resting()).filter(|resting| *resting > 0)?;
        Some(format!(
            "{resting} groups stay at home: above {mib} MiB, or above {answers_mib} MiB of answers that are remembered \
             with their slots"
        ))
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Another site asks for this node's round trips, or has sent its own.
    pub(super) fn take_latencies(
        &mut self,
        site: SiteId,
        node: model::NodeId,
        message: LatenciesMessage,
    ) {
        let (now, leads) = (self.now.monotonic, self.leads());
        let round_trips = self.global.routing.round_trips();
        let sites = &mut self.jobs.place.sites;
        if !message.asks {
            if let Some(took) = sites.take_answer(site, &message, now) {
                round_trips.measured(site, took, now);
            }
            return;
        }
        sites.measuring.publish(now, round_trips);
        let mut answer = sites.measuring.answer(&message);
        if let Some(member) = self.machine.membership().filter(|_| leads) {
            let bids = &mut self.jobs.place.moves.bids;
            bids.take(site, &message);
            let limit_bytes = room::limit(&member.registry, member.own);
            answer = bids.answer(answer, limit_bytes, self.machine.borrowed_bytes());
        }
        self.send_inter_site(site, node, InterSite::Latencies(answer));
    }

    /// Why a key is where it is, at the leader of the site that serves it.
    pub(super) fn explain_placement(
        &mut self,
        origin: Origin,
        keyspace: KeyspaceId,
        key: &model::Bytes,
    ) {
        let (view, jobs) = (view!(self), &mut self.jobs);
        let explained = jobs.place.explain(&view, keyspace, key);
        let outcome = explained.ok_or_else(|| Refusal::NotHeld(Slot::of_key(key)).into());
        self.settle(vec![(origin, outcome)]);
    }

    pub(super) fn show_placement_ledger(&mut self, origin: Origin) {
        let (view, jobs) = (view!(self), &mut self.jobs);
        let report = view.machine.membership().map(|member| {
            jobs.place.follow(&view, &member.registry);
            jobs.place.report(&view, member.own)
        });
        let outcome = report.ok_or_else(|| Refusal::NoDeployment.into());
        self.settle(vec![(origin, outcome)]);
    }
}
