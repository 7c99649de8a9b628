//! The jobs of causal keys at a site's leader: what they have in common as jobs, and what their
//! steps are as effects. The standby's is in `site::standby`.

use super::{CHANGE_HAS, Shown, inter_site, region_in};
use crate::causal::bridge::{Bridge, Notice};
use crate::causal::distribute::{self, Distribute};
use crate::causal::export::{self, Export};
use crate::causal::fetch::{self, Fetch};
use crate::causal::import::{self, Import};
use crate::causal::resync::Resync;
use crate::causal::roots::{self, Roots};
use crate::causal::{Part, Region};
use crate::job::{Effect, Job, Progress, View};
use model::{Answer, CausalCommand, CausalWrite, Command, Failure, SiteId};
use std::time::Duration;
use storage::state::State;
use wire::causal::{CausalStep, Keys, Writes};
use wire::entry::encode_writes;

/// What a job of causal keys sees as it is polled.
pub(in crate::site) struct Seen<'a, S: State> {
    pub(in crate::site) view: &'a View<'a, S>,
    /// The state, as the parts see it.
    pub(in crate::site) shown: Shown<'a, S>,
    pub(in crate::site) region: Region,
}

/// A part as a job: the pieces in which the jobs of causal keys differ.
pub(in crate::site) trait CausalJob: Part {
    /// Whether it does nothing while the log's disk is full.
    const NEEDS_DISK: bool = true;

    /// The next steps.
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect>;

    /// What is left to do, in [`model::JobName::unit`].
    fn left<S: State>(&self, view: &View<'_, S>) -> u64;

    /// Why it can do nothing, for people.
    fn waits_for<S: State>(&self, _: &View<'_, S>) -> Option<String> {
        None
    }

    /// Whether requests wait for it, so that it goes on while it is paused.
    fn is_awaited<S: State>(_: &View<'_, S>) -> bool {
        false
    }
}

impl<S: State, J: CausalJob> Job<S> for J {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let is_held_up = J::NEEDS_DISK && view.disk_is_full;
        let Some(region) = region_in(view).filter(|_| !is_held_up) else { return Vec::new() };
        let seen = Seen { view, shown: Shown::of(view.machine), region };
        let effects = self.steps(&seen);
        // What cannot be read looks as if it were not there: steps that follow from it are void.
        seen.shown.failure().map_or(effects, |failure| vec![failure])
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        Part::answered(self, id, &outcome, view.now);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        Part::stop(self);
        Vec::new()
    }

    fn poll_paused(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        if J::is_awaited(view) { self.poll(view) } else { Vec::new() }
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress { left: self.left(view), sent_bytes: self.sent_bytes() }
    }

    fn waits_for(&self, view: &View<'_, S>) -> Option<String> {
        CausalJob::waits_for(self, view)
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        Part::next_due(self, now)
    }
}

impl CausalJob for Export {
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        let effects = |step| match step {
            export::Step::Offer { id, to, epoch, offer } => {
                let command = Command::Causal(CausalCommand::Order { epoch, offer });
                vec![Effect::ask(id, to, command)]
            }
            export::Step::Share(writes) => share(&seen.region, &writes),
        };
        self.poll(seen.view.now, &seen.shown, &seen.region).into_iter().flat_map(effects).collect()
    }

    fn left<S: State>(&self, view: &View<'_, S>) -> u64 {
        view.machine.causal().unordered_bytes()
    }

    fn waits_for<S: State>(&self, _: &View<'_, S>) -> Option<String> {
        let why =
            "room in the order at the root: it is full, or was rebuilt and waits for other regions";
        self.is_refused().then(|| why.to_owned())
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

impl CausalJob for Distribute {
    const NEEDS_DISK: bool = false;

    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
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
        self.poll(seen.view.now, &seen.shown, &seen.region).into_iter().map(effect).collect()
    }

    fn left<S: State>(&self, view: &View<'_, S>) -> u64 {
        self.left(&Shown::of(view.machine))
    }
}

impl CausalJob for Resync {
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        self.poll(seen.view.now, &seen.shown, &seen.region)
    }

    fn left<S: State>(&self, view: &View<'_, S>) -> u64 {
        self.left(view.machine.causal_keys())
    }
}

impl CausalJob for Roots {
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        let effect = |step| match step {
            roots::Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            roots::Step::Hand { id, to, command } => Effect::ask(id, to, Command::Causal(command)),
            roots::Step::Ask { to, message, again } => sent(to, CausalStep::Where(message), again),
            roots::Step::Change(change) => Effect::change(change, CHANGE_HAS),
        };
        let steps = self.poll(seen.view.now, &seen.shown, &seen.region, next_root(seen.view));
        steps.into_iter().map(effect).collect()
    }

    fn left<S: State>(&self, view: &View<'_, S>) -> u64 {
        self.left(&Shown::of(view.machine))
    }

    fn waits_for<S: State>(&self, view: &View<'_, S>) -> Option<String> {
        let waits = self.waits_for(view.now, &Shown::of(view.machine)).map(str::to_owned);
        waits.or_else(|| level_with(view))
    }

    /// What has begun comes to an end: no write has a position meanwhile.
    fn is_awaited<S: State>(view: &View<'_, S>) -> bool {
        let region = view.machine.region();
        region.is_some_and(|region| view.machine.causal().stopped_in(region.epoch).is_some())
    }
}

/// The region that a rebuilt order waits for.
fn level_with<S: State>(view: &View<'_, S>) -> Option<String> {
    let (member, region) = (view.machine.membership()?, view.machine.region()?);
    let causal = view.machine.causal();
    let is_here = region.root == member.own && causal.has_begun(region);
    let other = causal.lacks_all_of(&member.registry, region).filter(|_| is_here)?;
    let name = other.0;
    Some(format!(
        "what is written gets places once region {name} has sent what it had of the order that was rebuilt"
    ))
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
    let others = registry.full_replicas(region).map(|site| site.id);
    let is_standby = |site: &SiteId| region.standby.is_some_and(|standby| standby.site == *site);
    let can = others.filter(|site| is_needed && !lost.contains(site));
    can.min_by_key(|site| (!is_standby(site), *site))
}

/// A message for a site's leader. `is_lost`: nothing came of the last one, so that all nodes are
/// asked.
pub(in crate::site) fn sent(to: SiteId, step: CausalStep, is_lost: bool) -> Effect {
    match is_lost {
        true => Effect::SendAll { to, message: inter_site(step) },
        false => Effect::Send { to, message: inter_site(step), awaited: false },
    }
}

impl CausalJob for Import {
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        let effect = |step| match step {
            import::Step::Propose(command) => Effect::Propose(Command::Causal(command)),
            import::Step::Report { message, silent } => {
                sent(seen.region.root, CausalStep::Reached(message), silent)
            }
            import::Step::Pull(pull) => sent(seen.region.root, CausalStep::Pull(pull), false),
        };
        self.poll(seen.view.now, &seen.shown, &seen.region).into_iter().map(effect).collect()
    }

    fn left<S: State>(&self, _: &View<'_, S>) -> u64 {
        self.left()
    }
}

impl CausalJob for Bridge {
    const NEEDS_DISK: bool = false;

    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        let steps = self.poll(seen.view.now, &seen.shown, &seen.region).into_iter();
        steps.map(|step| Effect::ask(step.id, step.to, Command::Causal(step.command))).collect()
    }

    fn left<S: State>(&self, view: &View<'_, S>) -> u64 {
        self.left(&Shown::of(view.machine))
    }

    fn waits_for<S: State>(&self, _: &View<'_, S>) -> Option<String> {
        let (region, notice) = self.notice()?;
        Some(format!("region {}: {}", region.0, described(notice)))
    }
}

fn described(notice: Notice) -> String {
    const DIFFER: &str = "keys that were written at that time may differ in the two regions";
    match notice {
        Notice::LacksThird => "it lacks what a third region has".to_owned(),
        Notice::NotKept => {
            "it lacks a part of the order that this site does not keep: move the root to another site"
                .to_owned()
        }
        Notice::HasLost(upto) => {
            format!("it has this region's order up to {upto}, the end of which was lost here: {DIFFER}")
        }
        Notice::MayLack(upto) => format!(
            "it may have lost what it had taken of this region's order up to {upto}, which is not kept any more: {DIFFER}"
        ),
    }
}

impl CausalJob for Fetch {
    fn steps<S: State>(&mut self, seen: &Seen<'_, S>) -> Vec<Effect> {
        let effects = |step| match step {
            fetch::Step::Fetch { id, to, epoch, keyspace, keys } => {
                let command = CausalCommand::Fetch { epoch, site: seen.region.own, keyspace, keys };
                vec![Effect::ask(id, to, Command::Causal(command))]
            }
            fetch::Step::Evict { id, keyspace, keys } => {
                let dropped = Keys { keyspace: keyspace.0, keys: keys.clone() };
                let evict = Command::Causal(CausalCommand::Evict { keyspace, keys });
                vec![
                    Effect::ask(id, seen.region.own, evict),
                    sent(seen.region.root, CausalStep::Drop(dropped), false),
                ]
            }
        };
        self.poll(seen.view.now, &seen.shown, &seen.region).into_iter().flat_map(effects).collect()
    }

    fn left<S: State>(&self, _: &View<'_, S>) -> u64 {
        self.left()
    }
}
