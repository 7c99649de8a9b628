//! A site that was restored from a backup, or that a recovery of the registry began without, confirms
//! its slots before it serves them.
//!
//! The backup may be old: other sites may own by now what the restored state takes for its own. If
//! the site served that, it would read old values and acknowledge writes that are lost as soon as
//! it reaches the owner. So its state is marked when it is restored, and a marked site is fenced as
//! one that a failover takes for lost: it serves no slot and hands none over. Its leader asks all
//! other listed sites for their inventories, registers each later owner that one reports, adopts
//! the loans of groups that others have a part in, and confirms once none is newer than the site's
//! own records. What it had borrowed itself it gives up: the owners of the slots have that, as of
//! its last report.
//!
//! What a site has reported stays true: while this one is fenced, no site can become an owner of
//! its slots but by a failover, which the registry states. So a site that has answered is not asked
//! again under the same registry. A site that cannot be reached holds this one up; if it is lost
//! for good, it has to be removed after its failover: `site promote`, then `site leave`.
//!
//! Other sites have copies that this one fed before it was restored, up to revisions that it does
//! not have. It goes on above those, and feeds its mirror anew: a stream that went on from the
//! backup's position would send nothing of what is written below that.
//!
//! A slot that the site owns by its records, and that others know as its own at a later epoch, goes
//! on above that. A slot that it got after the backup was made is not among its records: it does
//! not confirm then, as an operator can have another site take over what others have copies of.
//!
//! A site that joined beyond the end of a term of the registry is not listed in the next one until
//! its join is handed in. Meanwhile failovers take slots that it owns, and are forgotten once the
//! listed sites have them, so its registry may never have what took them. It is marked, and confirms
//! once it is listed: a decision about it is not forgotten from then on before it has it, and what was
//! forgotten before is in the others' records. Its own state is complete: it gives up nothing else,
//! and goes on as a registrar.
//!
//! Left out on purpose: keyspaces of one site, which no other site has, and causal ones, whose
//! order notices that revisions are missing (`machine::causal`).

use super::machine::Machine;
use super::machine::global::tokens::Token;
use crate::global::failover::CLAIMS_MAX;
use crate::global::inventories::{Inventories, Questions};
use crate::job::{Effect, Job, Progress, View};
use model::{
    Answer, Ballot, Command, DeploymentCommand, Failure, GlobalCommand, Group, Inventory, Lending,
    LoanClaim, Revision, SiteId, SlotCopy, SlotEpochs, SlotRun, SlotSet,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;

/// How long the adoption of claims is waited for.
const TIMEOUT: Duration = Duration::from_millis(1_500);

/// What other sites have reported to the leader of one that is to confirm its slots.
#[derive(Debug, Default)]
pub(crate) struct Confirming {
    /// The registry by which they were asked.
    version: Ballot,
    questions: Questions,
    /// The adoption of some of the claims that is under way.
    adopting: Option<u64>,
    last_id: u64,
}

/// The listed sites that have not reported by this registry; `None`: there is nothing to confirm.
fn missing<S: State>(job: &Confirming, machine: &Machine<S>) -> Option<Vec<SiteId>> {
    let member = machine.membership().filter(|_| machine.is_unconfirmed())?;
    let is_current = job.version == member.registry.version;
    let others = member.registry.sites.iter().map(|site| site.id).filter(|id| *id != member.own);
    Some(if is_current { job.questions.missing(others) } else { others.collect() })
}

impl<S: State> Job<S> for Confirming {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let member = view.machine.membership().filter(|_| view.machine.is_unconfirmed());
        let Some(member) = member else {
            return Job::<S>::stop(self);
        };
        if self.version != member.registry.version {
            let (version, last_id) = (member.registry.version, self.last_id);
            *self = Confirming { version, last_id, ..Confirming::default() };
        }
        // A decision may be forgotten that this site does not have, while it is not listed.
        let is_listed = member.registry.site(member.own).is_some();
        if !is_listed || member.registry.failovers.open.is_some() {
            return Vec::new();
        }
        let missing = missing(self, view.machine).unwrap_or_default();
        if missing.is_empty() {
            let reported = &self.questions.inventories.of_sites;
            let registers = |inventory| registers(view.machine, inventory);
            let mut effects: Vec<Effect> = reported.values().flat_map(registers).collect();
            if effects.is_empty() {
                effects.extend(self.adopt(view));
            }
            let Inventories { of_sites: reported, claims } = &self.questions.inventories;
            if effects.is_empty() && claims.is_empty() {
                let above =
                    reported.values().map(|inventory| reported_up_to(member.own, inventory));
                let above = Revision(above.max().unwrap_or_default());
                let (later, gained) = later_epochs(view.machine, reported);
                if gained.is_empty() {
                    let confirm = DeploymentCommand::ConfirmAbove { revision: above, later };
                    effects.push(Effect::Propose(Command::Deployment(confirm)));
                }
            }
            return effects;
        }
        if !self.questions.is_due(view.now) {
            return Vec::new();
        }
        self.questions.ask(missing, (member.own, &member.registry), &mut self.last_id, view.now)
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        _: &View<'_, S>,
    ) -> Vec<Effect> {
        if self.adopting == Some(id) {
            self.adopting = None;
            if outcome.is_ok() {
                let adopted = self.next_claims().len();
                let claims = &mut self.questions.inventories.claims;
                *claims = std::mem::take(claims).into_iter().skip(adopted).collect();
            }
            return Vec::new();
        }
        self.questions.answered(id, outcome);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        *self = Confirming { last_id: self.last_id, ..Confirming::default() };
        Vec::new()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = missing(self, view.machine).map_or(0, |missing| missing.len() as u64);
        Progress { left, sent_bytes: 0 }
    }

    fn waits_for(&self, view: &View<'_, S>) -> Option<String> {
        let missing = missing(self, view.machine)?;
        let member = view.machine.membership()?;
        let why = match view.machine.is_restored() {
            true => "the site was restored from a backup and serves no slot until",
            false => "the registry was recovered without the site, which serves no slot until",
        };
        if member.registry.site(member.own).is_none() {
            return Some(format!(
                "{why} the registry lists it and the others have stated what they own"
            ));
        }
        let (_, gained) = later_epochs(view.machine, &self.questions.inventories.of_sites);
        if missing.is_empty() && !gained.is_empty() {
            return Some(format!(
                "the site was restored from a backup and got {} slots after that was made: stop it and promote it, as \
                 others have copies of them ({gained})",
                gained.len()
            ));
        }
        let name = |site: &SiteId| member.registry.site(*site).map(|one| one.name.to_string());
        let names: Vec<String> = missing.iter().filter_map(name).collect();
        let names = Some(names.join(", ")).filter(|names| !names.is_empty())?;
        Some(format!(
            "{why} {names} have stated what they own (if one of them is lost for good: \
             `portolan site promote` it, then `portolan site leave`)"
        ))
    }
}

/// The highest revision of this site's that a reported copy of its slots has: its position, or the
/// number of the stream that fed it.
fn reported_up_to(own: SiteId, inventory: &Inventory) -> u64 {
    let copies = inventory.copies.iter().map(|run| run.copy).filter(|copy| copy.origin == own);
    // What a site has retained itself has neither.
    let fed = copies.filter(|copy| copy.position != SlotCopy::COMPLETE);
    fed.map(|copy| copy.position.max(copy.tag.generation)).max().unwrap_or_default()
}

/// Slots of which other sites have learned later epochs of this one than its records have: those
/// that it owns by its records, and those that it got after the backup was made.
fn later_epochs<S: State>(
    machine: &Machine<S>,
    reported: &BTreeMap<SiteId, Inventory>,
) -> (SlotEpochs, SlotSet) {
    let Some(own) = machine.membership().map(|member| member.own) else {
        return Default::default();
    };
    let of_own = reported.values().flat_map(|inventory| &inventory.owners);
    let of_own = of_own.filter(|(owner, _)| *owner == own).flat_map(|(_, slots)| slots.iter());
    let for_own = || reported.values().flat_map(|inventory| &inventory.frozen);
    let is_frozen = |slot| for_own().any(|(to, slots)| *to == own && slots.contains(slot));
    let (mut later, mut gained) = (BTreeMap::new(), SlotSet::default());
    for (slot, epoch) in of_own.filter(|(slot, epoch)| machine.token(*slot).epoch() < *epoch) {
        match machine.token(slot) {
            Token::Held(_) => {
                let known = later.entry(slot).or_insert(epoch);
                *known = epoch.max(*known);
            }
            // Where it is frozen for this site, it has not left for certain.
            _ if is_frozen(slot) => {}
            _ => gained.insert(slot),
        }
    }
    (SlotEpochs::gather(later), gained)
}

impl Confirming {
    /// Those of a slot are adopted together, by the count that its records have before.
    fn next_claims(&self) -> Vec<(Group, LoanClaim)> {
        let claims = &self.questions.inventories.claims;
        let last = claims.keys().nth(CLAIMS_MAX - 1).map(|(slot, _)| *slot);
        let claims = claims.iter();
        let claims = claims.take_while(|((slot, _), _)| last.is_none_or(|last| *slot <= last));
        claims.map(|((_, group), claim)| (group.clone(), *claim)).collect()
    }

    /// What others have borrowed since the backup, before the site serves it itself: some of it at
    /// a time.
    fn adopt<S: State>(&mut self, view: &View<'_, S>) -> Option<Effect> {
        let own = view.machine.membership()?.own;
        if self.questions.inventories.claims.is_empty() || self.adopting.is_some() {
            return None;
        }
        let claims = self.next_claims();
        self.last_id += 1;
        self.adopting = Some(self.last_id);
        let step = Lending::Prepare { opened: Ballot::FIRST, claims };
        let command = Command::Global(GlobalCommand::Lending(step));
        Some(Effect::Ask { id: Some(self.last_id), to: own, command, timeout: TIMEOUT })
    }
}

/// The later owners of slots that a site has reported.
fn registers<S: State>(machine: &Machine<S>, inventory: &Inventory) -> Vec<Effect> {
    let Some(own) = machine.membership().map(|member| member.own) else { return Vec::new() };
    let others = inventory.owners.iter().filter(|(owner, _)| *owner != own);
    let later = others.filter_map(|(owner, slots)| {
        let alike = |run: SlotRun| run.cut(|slot| machine.token_run(slot).0);
        let runs = slots.runs().flat_map(|(run, epoch)| alike(run).map(move |run| (run, epoch)));
        let later = runs.filter(|(run, epoch)| machine.token(run.first).epoch() < *epoch);
        let slots = SlotEpochs::of_runs(later);
        (!slots.0.is_empty()).then(|| GlobalCommand::Register { owner: *owner, slots })
    });
    later.map(|command| Effect::Propose(Command::Global(command))).collect()
}
