//! The standby: a site that has the order as far as it is released, and goes on with it when the
//! root is lost.
//!
//! It has the order as every site does, in its records, and nothing is sent to it that others are
//! not sent. It gets its places first: while it is *in sync*, the root releases no place before the
//! standby has imported it ([`Region::released`]). That is asked of everything that leaves the
//! root's order: places for other sites, imports of the root's own site, positions that sessions
//! ask for, and keys that a site gets anew.
//!
//! ```text
//! not in sync ── it is near ──▶ held ── it has all that was released ──▶ in sync ── the root is lost ──▶ frozen
//!      ▲                         │                                         │                              │
//!      └── no answer for 3 s ────┴─────────────────────────────────────────┘              the standby is the root
//! ```
//!
//! *Held*: the root has committed that it releases nothing without the standby, before it asks the
//! registry to state that the standby is in sync. So no leader of the root releases on without it
//! while that is under way. What was released before lies in the order that the leader sees then,
//! and the standby must have all of it.
//!
//! *Frozen*: the standby has committed that it imports nothing more, before it asks the registry to
//! be the root. So the position that it names is its last one, and nothing is released behind it.
//!
//! Each of these holds under one version of the registry ([`model::Standby::since`]), and each
//! change names it. If the root goes on without its standby while that is about to take over, the
//! registry takes one of both changes, and the other one does nothing.
//!
//! The lost root, when it is back, is a site like the others. What it had ordered and not released
//! gets its place from the new root: no client has seen the other one.

use super::rejoin::{self, Rejoin};
use super::reports::{Ask, Reports};
use super::trial::{Bug, Planted};
use super::{AGAIN, Durable, Part, Region};
use model::{
    Answer, Ballot, CausalCommand, Failure, LastOrdered, Position, RegistryChange, SiteId, Standby,
    StandbyChoice, StandbyStep,
};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::causal::{Reached, Where};

/// The standby is brought in sync once it lacks no more places than this.
const NEAR: u64 = 4_096;
/// What waits for the standby so long goes on without it.
const AWAITED: Duration = Duration::from_secs(3);
/// After that it is not brought in sync for so long.
const PAUSE: Duration = Duration::from_secs(5);
/// The root could not be reached for so long, since it counts as lost, when the standby takes over
/// by itself.
const LOST_FOR: Duration = Duration::from_secs(5);
/// A standby that was not heard of for so long gives way to another one, where the root chooses it.
const REPLACED_AFTER: Duration = Duration::from_secs(60);
/// What has no effect is done again after this.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// A command of this site.
    Propose(CausalCommand),
    /// A site is asked where it is.
    Ask { to: SiteId, message: Where, again: bool },
    /// A command of the standby. Its answer comes back under `id`.
    Hand { id: u64, to: SiteId, command: CausalCommand },
    /// A change of the registry. Its answer comes back under `id`, if there is one.
    Change { id: Option<u64>, change: RegistryChange },
    /// A site is called, to see whether it answers.
    Call(SiteId),
}

/// What a leader sees of other sites.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// Those that cannot be reached.
    pub(crate) lost: BTreeSet<SiteId>,
    /// At the root, where it chooses: the best standby beside the present one.
    pub(crate) nearest: Option<SiteId>,
    /// Most of the registrars are not among those.
    pub(crate) has_registrars: bool,
}

/// What was ordered of each site when the root held first, on its way to the standby.
#[derive(Debug)]
struct Handed {
    sites: Vec<LastOrdered>,
    /// The end of the order then: all that was released without the standby lies before it.
    upto: Position,
    first_id: Option<u64>,
    at: Duration,
    is_there: bool,
}

/// What the leader of a root, or of its standby, has.
#[derive(Debug, Default)]
pub(crate) struct Standbys {
    planted: Planted,
    epoch: u16,
    since: Option<Ballot>,
    reports: Reports,
    /// Since when a place waits for the standby, and how far that was then.
    waits: Option<(Position, Duration)>,
    not_before: Duration,
    handed: Option<Handed>,
    /// Set while this site, restored from a backup, has no part in it.
    rejoin: Option<Rejoin>,
    last_id: u64,
    /// When a command was proposed last, or a change asked for; when the root was called; since
    /// when it is lost.
    proposed: Option<Duration>,
    changed: Option<Duration>,
    called: Option<Duration>,
    lost: Option<Duration>,
    acknowledged: Position,
    /// Whether most of the registrars were reached when it was polled last.
    has_registrars: bool,
}

impl Standbys {
    pub(crate) fn new(planted: Planted) -> Standbys {
        Standbys { planted, ..Standbys::default() }
    }

    /// How far the standby has the order for sure.
    pub(crate) fn acknowledged(&self) -> Position {
        match self.planted.is(Bug::ReleasedEarly) {
            true => Position(u64::MAX),
            false => self.acknowledged,
        }
    }

    /// The next steps.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
        context: &Context,
    ) -> Vec<Step> {
        let since = region.standby.map(|standby| standby.since);
        if (self.epoch, self.since) != (region.epoch, since) {
            self.begin(region.epoch, since);
            // It may have been restored to less than it had reported.
            let unsynced = region.standby.filter(|standby| !standby.in_sync);
            unsynced.into_iter().for_each(|standby| self.reports.forget(standby.site));
        }
        self.has_registrars = context.has_registrars;
        if state.is_restored() {
            return self.rejoin(now, region);
        }
        self.rejoin = None;
        match region.standby {
            _ if region.orders() => self.at_root(now, state, region, context),
            Some(standby) if standby.site == region.own && !region.is_rebuilding => {
                self.at_standby(now, state, (region, standby), context).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Under another version of the registry: what was asked for under the one before is done, or
    /// never will be.
    fn begin(&mut self, epoch: u16, since: Option<Ballot>) {
        let (planted, last_id, not_before) = (self.planted, self.last_id, self.not_before);
        let before = std::mem::take(self);
        *self = Standbys { planted, last_id, not_before, epoch, since, ..Standbys::default() };
        self.reports = Reports::of(epoch);
        self.rejoin = before.rejoin;
        if before.epoch == epoch {
            self.reports = before.reports;
        }
    }

    /// At a restored site.
    fn rejoin(&mut self, now: Duration, region: &Region) -> Vec<Step> {
        let rejoin = self.rejoin.get_or_insert_with(Rejoin::default);
        let step = |step| match step {
            rejoin::Step::Ask(Ask { to, message, again }) => Step::Ask { to, message, again },
            rejoin::Step::Change { id, change } => Step::Change { id: Some(id), change },
            rejoin::Step::Propose(command) => Step::Propose(command),
        };
        rejoin.poll(now, region, &mut self.last_id).into_iter().map(step).collect()
    }

    // ---- at the root ----------------------------------------------------------------------------

    fn at_root(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
        context: &Context,
    ) -> Vec<Step> {
        let Some(standby) = region.standby else {
            return self.name(now, region, context).into_iter().collect();
        };
        self.acknowledged = self.reports.applied(standby.site);
        let last = state.order_last();
        let waited = self.waited(now, last, region);
        let is_asked = !standby.in_sync || waited.is_some_and(|waited| waited >= AGAIN);
        let is_unknown = self.acknowledged == Position(0) && last > Position(0);
        let mut steps = Vec::new();
        if is_asked || is_unknown {
            let asks = self.reports.ask_one(standby.site, now);
            steps.extend(asks.map(|Ask { to, message, again }| Step::Ask { to, message, again }));
        }
        let is_late = waited.is_some_and(|waited| waited >= AWAITED);
        let step = if is_late {
            self.not_before = now + PAUSE;
            self.sync(now, region, standby, false)
        } else if standby.in_sync {
            None
        } else if context.lost.contains(&standby.site) && !region.holds() {
            self.name(now, region, context)
        } else {
            self.lost = None;
            self.bring_in_sync(now, state, region, standby)
        };
        steps.extend(step);
        steps
    }

    /// How long a place has waited for the standby by now, without a report of it.
    fn waited(&mut self, now: Duration, last: Position, region: &Region) -> Option<Duration> {
        if !region.holds() || self.acknowledged >= last {
            self.waits = None;
            return None;
        }
        let waits = self.waits.filter(|(acknowledged, _)| *acknowledged == self.acknowledged);
        let (_, since) = *self.waits.insert(waits.unwrap_or((self.acknowledged, now)));
        Some(now - since)
    }

    fn bring_in_sync(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
        standby: Standby,
    ) -> Option<Step> {
        let (to, has, last) = (standby.site, self.acknowledged, state.order_last());
        if !region.holds() {
            self.handed = None;
            let is_near = has.count() + NEAR >= last.count() && has >= state.trimmed_upto();
            let is_ready = self.reports.is_fresh(to, now) && is_near && self.not_before <= now;
            let may = is_ready && state.stopped_in(region.epoch).is_none();
            return if may { self.commit(now, standby, StandbyStep::Hold) } else { None };
        }
        let handed = self.handed.get_or_insert_with(|| Handed::of(state));
        if has < handed.upto && !self.planted.is(Bug::InSyncEarly) {
            return None;
        }
        if handed.is_there {
            return self.sync(now, region, standby, true);
        }
        if handed.first_id.is_some() && now < handed.at + RETRY_AFTER {
            return None;
        }
        self.last_id += 1;
        let id = self.last_id;
        (handed.first_id, handed.at) = (handed.first_id.or(Some(id)), now);
        let sites = handed.sites.clone();
        Some(Step::Hand { id, to, command: CausalCommand::Ordered { epoch: region.epoch, sites } })
    }

    /// The registry is to state that the standby is in sync, or that it is not.
    fn sync(
        &mut self,
        now: Duration,
        region: &Region,
        standby: Standby,
        in_sync: bool,
    ) -> Option<Step> {
        let (id, epoch, since) = (region.id, region.epoch, standby.since);
        self.change(now, RegistryChange::SyncStandby { region: id, epoch, since, in_sync })
    }

    /// The registry is to have a standby, or another one, if that is left to the root.
    fn name(&mut self, now: Duration, region: &Region, context: &Context) -> Option<Step> {
        let since = *self.lost.get_or_insert(now);
        let is_due = region.standby.is_none() || since + REPLACED_AFTER <= now;
        let is_free = region.standby_rule.choice == StandbyChoice::Nearest && is_due;
        let site = context.nearest.filter(|_| is_free)?;
        let (region, epoch) = (region.id, region.epoch);
        self.change(now, RegistryChange::NameStandby { region, epoch, site })
    }

    // ---- at the standby -------------------------------------------------------------------------

    fn at_standby(
        &mut self,
        now: Duration,
        state: &impl Durable,
        (region, standby): (&Region, Standby),
        context: &Context,
    ) -> Vec<Step> {
        if region.is_frozen {
            let (id, epoch, since) = (region.id, region.epoch, standby.since);
            let is_called = self.call(now, region.root);
            // The root is back: it stays, and no other site needs its keys anew. This one is in
            // sync again later.
            let is_needed = region.next == Some(region.own) || context.lost.contains(&region.root);
            let change = match is_needed {
                true => {
                    let cut = state.applied();
                    self.change(now, RegistryChange::TakeOver { region: id, epoch, since, cut })
                }
                false => self.sync(now, region, standby, false),
            };
            return is_called.into_iter().chain(change).collect();
        }
        if !standby.in_sync || state.is_resyncing() {
            (self.lost, self.called) = (None, None);
            return Vec::new();
        }
        let mut steps: Vec<Step> = self.call(now, region.root).into_iter().collect();
        if !context.lost.contains(&region.root) {
            self.lost = None;
            return steps;
        }
        let since = *self.lost.get_or_insert(now);
        let is_wanted = region.next == Some(region.own);
        let by_itself = !region.standby_rule.by_hand && since + LOST_FOR <= now;
        // Without the registrars it would be frozen for as long as they are away, though the root
        // be back before.
        if (is_wanted || by_itself) && context.has_registrars {
            steps.extend(self.commit(now, standby, StandbyStep::Freeze));
        }
        steps
    }

    fn call(&mut self, now: Duration, root: SiteId) -> Option<Step> {
        if self.called.is_some_and(|at| now < at + AGAIN) {
            return None;
        }
        self.called = Some(now);
        Some(Step::Call(root))
    }

    // ---- both -----------------------------------------------------------------------------------

    fn commit(&mut self, now: Duration, standby: Standby, step: StandbyStep) -> Option<Step> {
        if self.proposed.is_some_and(|at| now < at + RETRY_AFTER) {
            return None;
        }
        self.proposed = Some(now);
        Some(Step::Propose(CausalCommand::Standby { since: standby.since, step }))
    }

    fn change(&mut self, now: Duration, change: RegistryChange) -> Option<Step> {
        if self.changed.is_some_and(|at| now < at + RETRY_AFTER) {
            return None;
        }
        self.changed = Some(now);
        Some(Step::Change { id: None, change })
    }

    /// A site's leader reports.
    pub(crate) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        self.reports.reached(site, message, now);
        if let Some(rejoin) = &mut self.rejoin {
            rejoin.reached(site, message, now);
        }
    }

    /// What it waits for, for people.
    pub(crate) fn waits_for(&self, now: Duration, region: &Region) -> Option<&'static str> {
        if let Some(rejoin) = &self.rejoin {
            return Some(rejoin.waits_for());
        }
        let standby = region.standby?;
        match (region.orders(), standby.in_sync) {
            (true, false) if self.reports.is_fresh(standby.site, now) => {
                Some("the standby is not in sync yet: it has to get what it lacks of the order")
            }
            (true, false) => Some("the standby is not in sync: it does not answer"),
            (true, true) => None,
            (false, _) if region.is_frozen => {
                Some("takes over from the root; for that most of the registrars must answer")
            }
            (false, true) if self.lost.is_some() && !self.has_registrars => Some(
                "the root cannot be reached, and most of the registrars neither: see `portolan registry show`",
            ),
            (false, true) if self.lost.is_some() && region.standby_rule.by_hand => Some(
                "the root cannot be reached: `portolan region move-root` has this site take over",
            ),
            (false, true) if self.lost.is_some() => Some("the root cannot be reached"),
            (false, _) => None,
        }
    }

    /// How many places the standby lacks, at the root.
    pub(crate) fn left(&self, state: &impl Durable, region: &Region) -> u64 {
        if !region.orders() || region.standby.is_none() {
            return 0;
        }
        state.order_last().count().saturating_sub(self.acknowledged.count())
    }
}

impl Part for Standbys {
    /// The standby's answer to what was ordered of each site, or the registrars' to a change.
    fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>, _: Duration) {
        if let Some(rejoin) = &mut self.rejoin {
            rejoin.answered(id, outcome);
        }
        let is_it = |handed: &&mut Handed| handed.first_id.is_some_and(|first| first <= id);
        if let Some(handed) = self.handed.as_mut().filter(is_it) {
            handed.is_there |= outcome.is_ok();
        }
    }

    fn stop(&mut self) {
        // A late answer must not be taken for one to a later step.
        *self = Standbys { last_id: self.last_id, ..Standbys::new(self.planted) };
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        let again = |at: Option<Duration>, pause| at.map(|at| at + pause);
        let awaited =
            self.waits.map(|(_, at)| if at + AGAIN > now { at + AGAIN } else { at + AWAITED });
        let all = [
            awaited,
            again(self.proposed, RETRY_AFTER),
            again(self.changed, RETRY_AFTER),
            again(self.called, AGAIN),
            again(self.lost, LOST_FOR),
        ];
        let rejoin = self.rejoin.iter().flat_map(Rejoin::next_due);
        let all = all.into_iter().flatten().chain(rejoin).chain(self.reports.next_due());
        all.filter(|at| *at > now).min()
    }
}

impl Handed {
    fn of(state: &impl Durable) -> Handed {
        let of_site = |(site, revision, position)| LastOrdered { site, revision, position };
        let sites = state.ordered_all().into_iter().map(of_site).collect();
        let upto = state.order_last();
        Handed { sites, upto, first_id: None, at: Duration::ZERO, is_there: false }
    }
}

#[cfg(test)]
mod tests;
