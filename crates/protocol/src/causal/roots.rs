//! Another root: when the present one stops, and which site goes on.
//!
//! An operator names the site that is to be the root; a root that is to leave takes the site with
//! the lowest id that answers. The root's leader brings it about, by commands of its own site
//! ([`model::RootStep`]) and one change of the registry:
//!
//! ```text
//! orders ── the other site is near ──▶ stopped ── it has all, and so has this one ──▶ given ──▶ another epoch
//!    ▲                                   │                                             the other site, or this
//!    └──────────── 10 seconds ───────────┘                                             one again
//! ```
//!
//! While the root has stopped, sites serve their clients, and what they write waits. So it stops
//! only when the other site lacks little, and nothing that the root keeps no more. It waits a
//! moment for the rest of the sites, too: one that is at the end goes on with the next epoch, and
//! one that is not gets its keys anew.
//!
//! Whatever fails, one of two things is left to do, and both are right. Before the order is given,
//! the root goes on, as no other site was asked anything. Afterwards only the registry decides
//! which site goes on: the change names the epoch that ends, so that the first one counts and all
//! others do nothing. If the other site cannot be the root any more (it leaves, or has not reported
//! that it has all), the root takes the next epoch itself.
//!
//! Before it gives the order, the root hands the next one each site's last write that has a
//! position. That site kept them while it imported, if it did so from the beginning on: states of
//! earlier builds did not.
//!
//! The order is given to one site, and that is kept: a registry that was recovered may have
//! forgotten that this site is the root already. So no other site is asked to go on, in the epoch
//! that it has or gets, or the root itself, in an epoch that none of the forgotten ones is
//! ([`model::EPOCHS_SKIPPED`]). A root that has imported more than it ordered finds that the other
//! one was the root, and waits for it.
//!
//! A leader that takes over finds all of it in the state, and asks the sites how far they are.

use super::rebuild::Rebuild;
use super::reports::{Ask, Reports};
use super::trial::{Bug, Planted};
use super::{Durable, Part, Region};
use model::{
    Answer, CausalCommand, Failure, LastOrdered, Position, RegistryChange, RootStep, SiteId,
};
use std::time::Duration;
use wire::causal::{Reached, Where};

/// The root stops when the next one lacks no more places than this.
const NEAR: u64 = 4_096;
/// The other sites have so long to come to the end.
const OTHERS_HAVE: Duration = Duration::from_secs(3);
/// The root has stopped for so long at most, in vain.
const STOPPED_MAX: Duration = Duration::from_secs(10);
/// After that it orders for so long at least.
const PAUSE: Duration = Duration::from_secs(30);
/// What has no effect is done again after this.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// A command of this site.
    Propose(CausalCommand),
    /// A site is asked where it is.
    Ask { to: SiteId, message: Where, again: bool },
    /// A command of the site that is to be the root. Its answer comes back under `id`.
    Hand { id: u64, to: SiteId, command: CausalCommand },
    /// A change of the registry.
    Change(RegistryChange),
}

/// What was ordered of each site, on its way to the next root.
#[derive(Debug)]
struct Hand {
    to: SiteId,
    /// Any answer to this one or a later one will do: nothing is ordered meanwhile.
    first_id: u64,
    at: Duration,
    is_there: bool,
}

/// What a root's leader needs to let another site go on.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    planted: Planted,
    epoch: u16,
    reports: Reports,
    /// Set while the end of a lost root's order is looked for.
    rebuild: Option<Rebuild>,
    /// Since when it is stopped, and since when the order is given, as far as this leader has seen.
    stopped: Option<Duration>,
    given: Option<Duration>,
    hand: Option<Hand>,
    last_id: u64,
    /// What was proposed last, and when; when the registry was asked for the change.
    proposed: Option<(RootStep, Duration)>,
    changed: Option<Duration>,
    not_before: Duration,
    /// The site that is to be the root, when it was polled last.
    next: Option<SiteId>,
}

impl Roots {
    pub(crate) fn new(planted: Planted) -> Roots {
        Roots { planted, ..Roots::default() }
    }

    /// The next steps. `next`: the site that is to be the root.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
        next: Option<SiteId>,
    ) -> Vec<Step> {
        if self.epoch != region.epoch {
            self.stop();
            (self.epoch, self.reports) = (region.epoch, Reports::of(region.epoch));
        }
        if region.is_rebuilding {
            return self.rebuild(now, state, region);
        }
        (self.next, self.rebuild) = (next, None);
        let stopped = state.stopped_in(region.epoch);
        if !region.orders() || (next.is_none() && stopped.is_none()) {
            (self.stopped, self.given, self.hand) = (None, None, None);
            return Vec::new();
        }
        let mut steps: Vec<Step> = self.reports.ask(now, region).into_iter().map(asked).collect();
        let step = match stopped {
            None => {
                (self.stopped, self.hand) = (None, None);
                self.may_stop(now, state).then_some(RootStep::Stop)
            }
            Some(false) => {
                let since = *self.stopped.get_or_insert(now);
                let to = next.filter(|_| self.is_drained(now, state, region));
                steps.extend(to.and_then(|to| self.hand(to, now, state)));
                let is_there = self.hand.as_ref().is_some_and(|hand| hand.is_there);
                match to.filter(|_| is_there) {
                    Some(to) => Some(RootStep::GiveTo(to)),
                    None if next.is_none() || since + STOPPED_MAX <= now => {
                        self.not_before = now + PAUSE;
                        Some(RootStep::Resume)
                    }
                    None => None,
                }
            }
            Some(true) => {
                let since = *self.given.get_or_insert(now);
                let cut = state.order_last();
                let named = state.given_to().or(next);
                // The registry refuses one that leaves, though it has all.
                let named = named.filter(|site| region.layout.can_order.contains(site));
                let to = named.filter(|site| self.has(*site, cut));
                let is_late = named.is_none() || since + STOPPED_MAX <= now;
                // Beyond the end this site is only if the other one goes on from there.
                let is_at_end = state.applied().count() == cut.count();
                let to = to.or(Some(region.own).filter(|_| is_late && is_at_end));
                let is_due = self.changed.is_none_or(|at| at + RETRY_AFTER <= now);
                if let Some(to) = to.filter(|_| is_due) {
                    self.changed = Some(now);
                    let epoch = region.epoch;
                    let change = RegistryChange::ChangeRoot { region: region.id, epoch, to, cut };
                    steps.push(Step::Change(change));
                }
                return steps;
            }
        };
        if let Some(step) = step.filter(|step| self.is_due(*step, now)) {
            self.proposed = Some((step, now));
            let epoch = region.epoch;
            steps.push(Step::Propose(CausalCommand::Root { epoch, step }));
        }
        steps
    }

    /// The next root gets what was ordered of each site, until it has that.
    fn hand(&mut self, to: SiteId, now: Duration, state: &impl Durable) -> Option<Step> {
        let hand = self.hand.take().filter(|hand| hand.to == to);
        let is_due =
            hand.as_ref().is_none_or(|hand| !hand.is_there && hand.at + RETRY_AFTER <= now);
        if !is_due {
            self.hand = hand;
            return None;
        }
        self.last_id += 1;
        let (id, first_id) = (self.last_id, hand.map_or(self.last_id, |hand| hand.first_id));
        self.hand = Some(Hand { to, first_id, at: now, is_there: false });
        let of_site = |(site, revision, position)| LastOrdered { site, revision, position };
        let sites = state.ordered_all().into_iter().map(of_site).collect();
        Some(Step::Hand { id, to, command: CausalCommand::Ordered { epoch: self.epoch, sites } })
    }

    /// Whether a step was not proposed just now.
    fn is_due(&self, step: RootStep, now: Duration) -> bool {
        self.proposed.is_none_or(|(proposed, at)| proposed != step || at + RETRY_AFTER <= now)
    }

    /// In the place of a lost root: its site looks after the order.
    fn rebuild(&mut self, now: Duration, state: &impl Durable, region: &Region) -> Vec<Step> {
        if !region.is_root() {
            self.rebuild = None;
            return Vec::new();
        }
        let rebuild = self.rebuild.get_or_insert_with(|| Rebuild::of(region.epoch));
        let (asks, change) = rebuild.poll(now, state, region);
        asks.into_iter().map(asked).chain(change.map(Step::Change)).collect()
    }

    /// Whether a site has the order up to there, for sure.
    fn has(&self, site: SiteId, upto: Position) -> bool {
        self.reports.applied(site) >= upto || self.planted.is(Bug::RootUndrained)
    }

    fn may_stop(&self, now: Duration, state: &impl Durable) -> bool {
        let Some(next) = self.next.filter(|_| self.not_before <= now) else { return false };
        let applied = self.reports.applied(next);
        let is_near = applied.count() + NEAR >= state.order_last().count();
        // What is trimmed comes with its keys anew, which may take long.
        self.reports.is_fresh(next, now) && is_near && applied >= state.trimmed_upto()
    }

    /// Whether the order ends at the last position everywhere, or long enough was waited for that.
    fn is_drained(&self, now: Duration, state: &impl Durable, region: &Region) -> bool {
        let (last, own) = (state.order_last(), region.own);
        let Some(next) = self.next else { return false };
        let others = region.layout.sites.iter().filter(|site| **site != own && **site != next);
        let all = others
            .filter(|site| self.reports.is_fresh(**site, now))
            .all(|site| self.has(*site, last));
        let is_late = self.stopped.is_some_and(|since| since + OTHERS_HAVE <= now);
        let is_whole = state.applied() == last || self.planted.is(Bug::RootUndrained);
        is_whole && self.has(next, last) && (all || is_late)
    }

    /// A site's leader reports.
    pub(crate) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        self.reports.reached(site, message, now);
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.reached(site, message, now);
        }
    }

    /// What it waits for, for people.
    pub(crate) fn waits_for(&self, now: Duration, state: &impl Durable) -> Option<&'static str> {
        if let Some(rebuild) = &self.rebuild {
            return rebuild.waits_for();
        }
        let next = self.next?;
        let is_near = self.reports.is_fresh(next, now) && self.may_stop(now, state);
        match (self.stopped, now < self.not_before) {
            (None, true) => Some("waits: the site that is to be the root did not get all in time"),
            (None, false) if !is_near => Some(
                "waits until the site that is to be the root answers and has most of the order",
            ),
            _ => None,
        }
    }

    /// How many places the next root lacks.
    pub(crate) fn left(&self, state: &impl Durable) -> u64 {
        let Some(next) = self.next else { return 0 };
        state.order_last().count().saturating_sub(self.reports.applied(next).count())
    }
}

impl Part for Roots {
    /// The next root's answer to that.
    fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>, _: Duration) {
        if let Some(hand) = self.hand.as_mut().filter(|hand| hand.first_id <= id) {
            hand.is_there |= outcome.is_ok();
        }
    }

    fn stop(&mut self) {
        // A late answer must not be taken for one to a later step.
        *self = Roots { last_id: self.last_id, ..Roots::new(self.planted) };
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        if let Some(rebuild) = &self.rebuild {
            return rebuild.next_due(now);
        }
        if self.next.is_none() && self.given.is_none() {
            return None;
        }
        let asked = self.reports.next_due();
        let proposed = self.proposed.map(|(_, at)| at + RETRY_AFTER);
        let changed = self.changed.map(|at| at + RETRY_AFTER);
        let stopped = self.stopped.map(|at| at + OTHERS_HAVE);
        let given = self.given.map(|at| at + STOPPED_MAX);
        let all = asked.chain(proposed).chain(changed).chain(stopped).chain(given);
        all.filter(|at| *at > now).min()
    }
}

fn asked(Ask { to, message, again }: Ask) -> Step {
    Step::Ask { to, message, again }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::simulation::{Store, region, write};
    use super::*;
    use model::{RegionId, Revision};
    use std::sync::Arc;

    const AT: fn(u64) -> Duration = Duration::from_millis;
    const OTHER: SiteId = SiteId(2);

    fn report(roots: &mut Roots, site: u32, count: u64, at: Duration) {
        let applied = Position::new(1, count).0;
        let message = Reached { epoch: 1, applied, taken: applied, again: true, waits: false };
        roots.reached(SiteId(site), message, at);
    }

    fn done(steps: Vec<Step>) -> Vec<Step> {
        steps.into_iter().filter(|step| !matches!(step, Step::Ask { .. })).collect()
    }

    fn root(step: RootStep) -> Vec<Step> {
        vec![Step::Propose(CausalCommand::Root { epoch: 1, step })]
    }

    /// A root that has ordered five writes, and imported them.
    fn store() -> Store {
        let mut store = Store::of(1);
        (1..=5).for_each(|revision| store.order(OTHER, write(revision)));
        store.applied = Position::new(1, 5);
        store
    }

    #[test]
    fn the_order_is_given_once_the_next_root_has_all_of_it() {
        let (mut roots, region, mut store) = (Roots::default(), region(1), store());
        assert!(roots.poll(AT(0), &store, &region, None).is_empty(), "there is no request for it");
        let steps = roots.poll(AT(0), &store, &region, Some(OTHER));
        assert_eq!(steps.len(), 2, "both are asked, and it goes on: {steps:?}");
        report(&mut roots, 2, 3, AT(10));
        assert_eq!(done(roots.poll(AT(10), &store, &region, Some(OTHER))), root(RootStep::Stop));
        assert!(done(roots.poll(AT(20), &store, &region, Some(OTHER))).is_empty(), "under way");
        store.stopped = Some(false);
        assert!(done(roots.poll(AT(30), &store, &region, Some(OTHER))).is_empty(), "it lacks two");
        report(&mut roots, 2, 5, AT(40));
        report(&mut roots, 3, 4, AT(40));
        assert!(done(roots.poll(AT(40), &store, &region, Some(OTHER))).is_empty(), "one lacks one");
        report(&mut roots, 3, 5, AT(50));
        // What was ordered of each site goes first, until it is there.
        let handed = |id| {
            let (site, revision, position) = (OTHER, Revision(5), Position::new(1, 5));
            let sites = vec![LastOrdered { site, revision, position }];
            let command = CausalCommand::Ordered { epoch: 1, sites };
            vec![Step::Hand { id, to: OTHER, command }]
        };
        assert_eq!(done(roots.poll(AT(50), &store, &region, Some(OTHER))), handed(1));
        assert!(done(roots.poll(AT(55), &store, &region, Some(OTHER))).is_empty(), "under way");
        roots.answered(1, &Err(Failure::NoLeader), AT(55));
        let again = roots.poll(AT(50) + RETRY_AFTER, &store, &region, Some(OTHER));
        assert_eq!(done(again), handed(2));
        // The answer to the first one will do.
        let done_now = Ok(Answer::Done(Revision(7)));
        roots.answered(1, &done_now, AT(50) + RETRY_AFTER);
        let at = AT(60) + RETRY_AFTER;
        let given = done(roots.poll(at, &store, &region, Some(OTHER)));
        assert_eq!(given, root(RootStep::GiveTo(OTHER)));
        (store.stopped, store.given_to) = (Some(true), Some(OTHER));
        let (region_id, cut) = (RegionId(1), Position::new(1, 5));
        let change = |to| {
            let change = RegistryChange::ChangeRoot { region: region_id, epoch: 1, to, cut };
            vec![Step::Change(change)]
        };
        assert_eq!(done(roots.poll(at, &store, &region, Some(OTHER))), change(OTHER));
        assert!(
            done(roots.poll(at + AT(10), &store, &region, Some(OTHER))).is_empty(),
            "under way"
        );
        let again = roots.poll(at + RETRY_AFTER, &store, &region, Some(OTHER));
        assert_eq!(done(again), change(OTHER));
        // Another leader does not know how far it is; another root is wanted no more, or a third
        // one.
        roots.stop();
        assert!(done(roots.poll(AT(9_000), &store, &region, None)).is_empty());
        assert!(done(roots.poll(AT(9_100), &store, &region, Some(SiteId(3)))).is_empty());
        assert_eq!(roots.next_due(AT(9_100)), Some(AT(10_000)), "it is asked again");
        let late = AT(9_000) + STOPPED_MAX;
        assert_eq!(done(roots.poll(late, &store, &region, None)), change(SiteId(1)));
        report(&mut roots, 3, 5, late);
        report(&mut roots, 2, 5, late);
        let other = done(roots.poll(late + RETRY_AFTER, &store, &region, Some(SiteId(3))));
        assert_eq!(other, change(OTHER), "no other one");
    }

    #[test]
    fn a_root_that_has_more_than_it_ordered_does_not_go_on_by_itself() {
        let (mut roots, region, mut store) = (Roots::default(), region(1), store());
        (store.stopped, store.given_to) = (Some(true), Some(OTHER));
        // The other one was the root, and its registry was forgotten.
        store.applied = Position::new(2, 6);
        assert!(done(roots.poll(AT(0), &store, &region, None)).is_empty());
        assert!(done(roots.poll(STOPPED_MAX, &store, &region, None)).is_empty());
        report(&mut roots, 2, 5, STOPPED_MAX);
        let (id, cut) = (RegionId(1), Position::new(1, 5));
        let change = RegistryChange::ChangeRoot { region: id, epoch: 1, to: OTHER, cut };
        assert_eq!(done(roots.poll(STOPPED_MAX, &store, &region, None)), [Step::Change(change)]);
    }

    #[test]
    fn a_root_goes_on_if_the_site_that_has_its_order_leaves() {
        let (mut roots, mut region, mut store) = (Roots::default(), region(1), store());
        (store.stopped, store.given_to) = (Some(true), Some(OTHER));
        let only = |can_order| Arc::new(Layout { can_order, ..(*region.layout).clone() });
        let (none, all_but) = (only(Vec::new()), only(vec![SiteId(1), SiteId(3)]));
        roots.poll(AT(0), &store, &Region { layout: none, ..region.clone() }, None);
        region.layout = all_but;
        report(&mut roots, 2, 5, AT(10));
        let (id, cut) = (RegionId(1), Position::new(1, 5));
        let change = RegistryChange::ChangeRoot { region: id, epoch: 1, to: SiteId(1), cut };
        let steps = done(roots.poll(AT(10) + RETRY_AFTER, &store, &region, Some(OTHER)));
        assert_eq!(steps, [Step::Change(change)], "the registry would refuse the other one");
    }

    #[test]
    fn a_root_that_has_stopped_in_vain_goes_on() {
        let (mut roots, region, mut store) = (Roots::default(), region(1), store());
        roots.poll(AT(0), &store, &region, Some(OTHER));
        report(&mut roots, 2, 3, AT(0));
        store.stopped = Some(false);
        assert!(done(roots.poll(AT(0), &store, &region, Some(OTHER))).is_empty());
        let late = AT(0) + STOPPED_MAX;
        assert_eq!(done(roots.poll(late, &store, &region, Some(OTHER))), root(RootStep::Resume));
        store.stopped = None;
        report(&mut roots, 2, 3, late);
        assert!(done(roots.poll(late, &store, &region, Some(OTHER))).is_empty(), "a pause");
        report(&mut roots, 2, 3, late + PAUSE);
        let again = done(roots.poll(late + PAUSE, &store, &region, Some(OTHER)));
        assert_eq!(again, root(RootStep::Stop));
        // It is called off.
        store.stopped = Some(false);
        let called_off = done(roots.poll(late + PAUSE + AT(1), &store, &region, None));
        assert_eq!(called_off, root(RootStep::Resume));
    }

    #[test]
    fn a_root_does_not_stop_for_a_site_that_gets_its_keys_anew() {
        let (mut roots, region, mut store) = (Roots::default(), region(1), store());
        store.trimmed = Position::new(1, 4);
        roots.poll(AT(0), &store, &region, Some(OTHER));
        report(&mut roots, 2, 3, AT(10));
        assert!(done(roots.poll(AT(10), &store, &region, Some(OTHER))).is_empty());
        report(&mut roots, 2, 4, AT(20));
        assert_eq!(done(roots.poll(AT(20), &store, &region, Some(OTHER))), root(RootStep::Stop));
    }

    #[test]
    fn a_site_that_is_away_is_waited_for_a_moment_only() {
        let (mut roots, region, mut store) = (Roots::default(), region(1), store());
        roots.poll(AT(0), &store, &region, Some(OTHER));
        store.stopped = Some(false);
        report(&mut roots, 2, 5, AT(0));
        report(&mut roots, 3, 1, AT(0));
        assert!(done(roots.poll(AT(0), &store, &region, Some(OTHER))).is_empty());
        let steps = done(roots.poll(AT(0) + OTHERS_HAVE, &store, &region, Some(OTHER)));
        assert!(matches!(steps[..], [Step::Hand { to: OTHER, .. }]), "{steps:?}");
        // What the other one refuses is not given.
        roots.answered(1, &Err(Failure::NoLeader), AT(0) + OTHERS_HAVE);
        assert!(done(roots.poll(AT(0) + OTHERS_HAVE, &store, &region, Some(OTHER))).is_empty());
        let late = done(roots.poll(AT(0) + STOPPED_MAX, &store, &region, Some(OTHER)));
        let [Step::Hand { id: 2, .. }, last] = &late[..] else { panic!("{late:?}") };
        assert_eq!(*last, root(RootStep::Resume)[0]);
    }
}
