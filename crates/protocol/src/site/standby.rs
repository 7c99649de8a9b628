//! The job of a region's standby ([`crate::causal::standby`]): at the root, which has it in sync,
//! and at the standby, which takes over.

use super::causal::{CHANGE_HAS, CausalJob, Seen, Shown, region_in, sent};
use crate::causal::standby::{Context, Standbys, Step};
use crate::job::{Effect, View};
use model::{Command, SiteId};
use std::collections::BTreeSet;
use storage::state::State;
use wire::causal::CausalStep;

/// A region with fewer sites gets no standby by itself.
const SITES_MIN: usize = 3;

impl CausalJob for Standbys {
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        let effect = |step| match step {
            Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            Step::Hand { id, to, command } => Effect::ask(id, to, Command::Causal(command)),
            Step::Ask { to, message, again } => sent(to, CausalStep::Where(message), again),
            Step::Change { id, change } => {
                Effect::Change { id, change, request: None, timeout: CHANGE_HAS }
            }
            Step::Call(site) => Effect::Call(site),
        };
        let (view, region) = (seen.view, &seen.region);
        let lost = view.failure_detector.lost(view.now);
        let present = region.standby.map(|standby| standby.site);
        let is_wanted = region.orders() && present.is_none_or(|site| lost.contains(&site));
        let nearest = if is_wanted { nearest(view, present) } else { None };
        let has_registrars = has_registrars(view, &lost);
        let context = Context { nearest, lost, has_registrars };
        let steps = self.poll(view.now, &seen.shown, region, &context);
        steps.into_iter().map(effect).collect()
    }

    fn left<S: State>(&self, view: &View<'_, S>) -> u64 {
        let region = region_in(view);
        region.map_or(0, |region| self.left(&Shown::of(view.machine), &region))
    }

    fn waits_for<S: State>(&self, view: &View<'_, S>) -> Option<String> {
        self.waits_for(view.now, &region_in(view)?).map(str::to_owned)
    }

    /// Writes wait at the root while the standby is silent. A standby that is paused does not take
    /// over.
    fn is_awaited<S: State>(view: &View<'_, S>) -> bool {
        region_in(view).is_some_and(|region| region.orders())
    }
}

/// Whether most of the registrars are not lost, as far as is known.
fn has_registrars<S: State>(view: &View<'_, S>, lost: &BTreeSet<SiteId>) -> bool {
    let Some(member) = view.machine.membership() else { return false };
    let set = member.registry.registrars.set.sites();
    2 * set.iter().filter(|site| !lost.contains(site)).count() > set.len()
}

/// The best standby of this site beside the present one: the site that answers soonest, of those in
/// other failure domains if there are any.
fn nearest<S: State>(view: &View<'_, S>, present: Option<SiteId>) -> Option<SiteId> {
    let (member, region) = (view.machine.membership()?, view.machine.region()?);
    if member.registry.staying_of(region).count() < SITES_MIN {
        return None;
    }
    let staying: Vec<SiteId> = member.registry.full_replicas(region).map(|site| site.id).collect();
    let (lost, known) = (view.failure_detector.lost(view.now), view.round_trips.known());
    let can =
        |site: &&SiteId| **site != member.own && Some(**site) != present && !lost.contains(site);
    let far = |site: &SiteId| known.get(site).map_or(f32::INFINITY, |way| way.ms);
    let beside = |site: &SiteId| member.registry.fail_together(member.own, *site);
    let by_distance = |one: &&SiteId, other: &&SiteId| {
        beside(one).cmp(&beside(other)).then(far(one).total_cmp(&far(other)))
    };
    staying.iter().filter(can).min_by(by_distance).copied()
}
