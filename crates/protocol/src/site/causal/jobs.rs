//! The jobs of causal keys at a site's leader: what their steps are as effects. The standby's is in `site::standby`.

use super::{CHANGE_HAS, Shown, inter_site, region_in};
use crate::causal::Region;
use crate::causal::bridge::{self, Bridge};
use crate::causal::distribute::{self, Distribute};
use crate::causal::export::{self, Export};
use crate::causal::fetch::{self, Fetch};
use crate::causal::import::{self, Import};
use crate::causal::resync::Resync;
use crate::causal::roots::{self, Roots};
use crate::job::{Effect, Job, Progress, View};
use model::{Answer, CausalCommand, CausalWrite, Command, Failure, SiteId};
use std::time::Duration;
use storage::state::State;
use wire::causal::{CausalStep, Keys, Writes};
use wire::entry::encode_writes;

impl<S: State> Job<S> for Export {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effects = |step| match step {
            export::Step::Offer { id, to, epoch, offer } => {
                let command = Command::Causal(CausalCommand::Order { epoch, offer });
                vec![Effect::ask(id, to, command)]
            }
            export::Step::Share(writes) => share(&region, &writes),
        };
        let shown = Shown::of(view.machine);
        let steps = Export::poll(self, view.now, &shown, &region);
        steps.into_iter().flat_map(effects).chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Export::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Export::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = view.machine.causal().unordered_bytes();
        Progress { left, sent_bytes: self.sent_bytes() }
    }

    fn waits_for(&self, _: &View<'_, S>) -> Option<String> {
        let why = "room in the order at the root: it is full";
        self.is_refused().then(|| why.to_owned())
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Export::next_due(self, now)
    }
}

/// Writes go to the sites that neither made nor order them, and hold their keyspaces.
fn share(region: &Region, writes: &[CausalWrite]) -> Vec<Effect> {
    let all = encode_writes(&writes.to_vec());
    let interest = &region.layout.interest;
    let others =
        region.layout.sites.iter().filter(|site| **site != region.own && **site != region.root);
    let of_site = |to: &SiteId| {
        let writes = match interest.holds_all(*to) {
            true => all.clone(),
            false => {
                let held = interest.select(*to, writes);
                encode_writes(&(!held.is_empty()).then_some(held)?)
            }
        };
        let message = inter_site(CausalStep::Writes(Writes { site: region.own.0, writes }));
        Some(Effect::Send { to: *to, message, awaited: false })
    };
    others.filter_map(of_site).collect()
}

impl<S: State> Job<S> for Distribute {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view) else { return Vec::new() };
        let effect = |step| match step {
            distribute::Step::Places(site, node, places) => {
                Effect::SendNode { site, node, message: inter_site(CausalStep::Places(places)) }
            }
            distribute::Step::Writes { to: site, node, of, writes } => {
                let writes = Writes { site: of.0, writes: encode_writes(&writes) };
                Effect::SendNode { site, node, message: inter_site(CausalStep::Writes(writes)) }
            }
            distribute::Step::Ask { to, message: question, again } => {
                sent(to, CausalStep::Where(question), again)
            }
        };
        let shown = Shown::of(view.machine);
        let steps = Distribute::poll(self, view.now, &shown, &region);
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Distribute::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress { left: self.left(&Shown::of(view.machine)), sent_bytes: 0 }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Distribute::next_due(self, now)
    }
}

impl<S: State> Job<S> for Resync {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let shown = Shown::of(view.machine);
        let steps = Resync::poll(self, view.now, &shown, &region);
        steps.into_iter().chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Resync::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Resync::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = self.left(view.machine.causal_keys());
        Progress { left, sent_bytes: self.sent_bytes() }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Resync::next_due(self, now)
    }
}

impl<S: State> Job<S> for Roots {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effect = |step| match step {
            roots::Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            roots::Step::Hand { id, to, command } => Effect::ask(id, to, Command::Causal(command)),
            roots::Step::Ask { to, message, again } => sent(to, CausalStep::Where(message), again),
            roots::Step::Change(change) => Effect::change(change, CHANGE_HAS),
        };
        let shown = Shown::of(view.machine);
        let steps = Roots::poll(self, view.now, &shown, &region, next_root(view));
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        _: &View<'_, S>,
    ) -> Vec<Effect> {
        Roots::answered(self, id, &outcome);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Roots::stop(self);
        Vec::new()
    }

    /// What has begun comes to an end: no write has a position meanwhile.
    fn poll_paused(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let region = view.machine.region();
        let stopped = |region: &model::Region| view.machine.causal().stopped_in(region.epoch);
        match region.and_then(stopped) {
            Some(_) => Job::poll(self, view),
            None => Vec::new(),
        }
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress { left: self.left(&Shown::of(view.machine)), sent_bytes: 0 }
    }

    fn waits_for(&self, view: &View<'_, S>) -> Option<String> {
        Roots::waits_for(self, view.now, &Shown::of(view.machine)).map(str::to_owned)
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Roots::next_due(self, now)
    }
}

/// The site that is to be the root in the place of this one: by an operator, or as this one leaves.
fn next_root<S: State>(view: &View<'_, S>) -> Option<SiteId> {
    let (member, region) = (view.machine.membership()?, view.machine.region()?);
    let registry = &member.registry;
    let leaves = registry.site(member.own).is_some_and(|site| site.leaving);
    let lost = view.failure_detector.lost(view.now);
    // A site that leaves does not wait for a lost one.
    let next = region.next.filter(|next| !leaves || !lost.contains(next));
    if region.root != member.own || next.is_some() || !leaves {
        return next;
    }
    let is_needed = registry.keyspaces.iter().any(|keyspace| keyspace.spec.is_causal());
    let others = registry.holders(region).map(|site| site.id);
    let is_standby = |site: &SiteId| region.standby.is_some_and(|standby| standby.site == *site);
    let can = others.filter(|site| is_needed && !lost.contains(site));
    can.min_by_key(|site| (!is_standby(site), *site))
}

/// A message for a site's leader. `is_lost`: nothing came of the last one, so that all nodes are asked.
pub(in crate::site) fn sent(to: SiteId, step: CausalStep, is_lost: bool) -> Effect {
    match is_lost {
        true => Effect::SendAll { to, message: inter_site(step) },
        false => Effect::Send { to, message: inter_site(step), awaited: false },
    }
}

impl<S: State> Job<S> for Import {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effect = |step| match step {
            import::Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            import::Step::Report { message, silent } => {
                sent(region.root, CausalStep::Reached(message), silent)
            }
            import::Step::Pull(pull) => sent(region.root, CausalStep::Pull(pull), false),
        };
        let shown = Shown::of(view.machine);
        let steps = Import::poll(self, view.now, &shown, &region);
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Import::stop(self);
        Vec::new()
    }

    fn progress(&self, _: &View<'_, S>) -> Progress {
        Progress { left: self.left(), sent_bytes: 0 }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Import::next_due(self, now)
    }
}

impl<S: State> Job<S> for Bridge {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view) else { return Vec::new() };
        let shown = Shown::of(view.machine);
        let steps = Bridge::poll(self, view.now, &shown, &region);
        let effect =
            |step: bridge::Step| Effect::ask(step.id, step.to, Command::Causal(step.command));
        steps.into_iter().map(effect).chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Bridge::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Bridge::stop(self);
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = self.left(&Shown::of(view.machine));
        Progress { left, sent_bytes: self.sent_bytes() }
    }

    fn waits_for(&self, _: &View<'_, S>) -> Option<String> {
        let region = Bridge::waits_for(self)?;
        Some(format!("region {}: it lacks what a third region has", region.0))
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Bridge::next_due(self, now)
    }
}

impl<S: State> Job<S> for Fetch {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let Some(region) = region_in(view).filter(|_| !view.disk_is_full) else {
            return Vec::new();
        };
        let effects = |step| match step {
            fetch::Step::Fetch { id, to, epoch, keyspace, keys } => {
                let command = CausalCommand::Fetch { epoch, site: region.own, keyspace, keys };
                vec![Effect::ask(id, to, Command::Causal(command))]
            }
            fetch::Step::Evict { id, keyspace, keys } => {
                let dropped = Keys { keyspace: keyspace.0, keys: keys.clone() };
                let evict = Command::Causal(CausalCommand::Evict { keyspace, keys });
                vec![
                    Effect::ask(id, region.own, evict),
                    sent(region.root, CausalStep::Drop(dropped), false),
                ]
            }
        };
        let shown = Shown::of(view.machine);
        let steps = Fetch::poll(self, view.now, &shown, &region);
        steps.into_iter().flat_map(effects).chain(shown.failure()).collect()
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Fetch::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Fetch::stop(self);
        Vec::new()
    }

    fn progress(&self, _: &View<'_, S>) -> Progress {
        Progress { left: self.left(), sent_bytes: self.sent_bytes() }
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Fetch::next_due(self, now)
    }
}
