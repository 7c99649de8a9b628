//! Slots that are frozen for a site which has left are served again.
//!
//! A site that could not be reached, or that a failover named, finds afterwards that the
//! destination of what it had frozen is not listed any more: no site can install it, or refuse it.
//! It asks all sites that are listed for their inventories, which also brings them the registry
//! without the destination, so that none of them takes anything from there any more. If one reports
//! a later owner that is listed, that one owns the slot, and what is here is a copy of former times
//! ([`super::release`] asks for that, too); else the slot is served here again, at an epoch above
//! all that are reported. The rule is [`leaving::reclaims`].
//!
//! What a site has reported stays true: an owner that no site has reported cannot come to be while
//! the slot is frozen here. So a site that has answered is not asked again under the same registry.

use super::machine::Machine;
use crate::global::inventories::Questions;
use crate::global::ownership::trial::Planted;
use crate::global::ownership::{Report, leaving};
use crate::job::{Effect, Job, Progress, View};
use model::{
    Answer, Ballot, Command, Epoch, Failure, GlobalCommand, Inventory, Registry, SiteId, Slot,
    SlotEpochs, SourceStep,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;

/// When all have answered, and some slot is not to be served here, they are requested again after
/// so long.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What others have reported to a leader, as slots are frozen here for a site that has left.
#[derive(Debug, Default)]
pub(super) struct Stranded {
    /// The registry by which they were asked: a site that was listed then need not be any more.
    version: Ballot,
    questions: Questions,
    last_id: u64,
}

/// Slots that are frozen here for a site that has left, by their moves.
pub(super) fn stranded<S: State>(machine: &Machine<S>) -> BTreeMap<u64, Vec<(Slot, Epoch)>> {
    let Some(member) = machine.membership() else { return BTreeMap::new() };
    let moves = machine.outgoing().iter();
    let moves = moves.filter(|(_, one)| one.frozen.is_some() && member.registry.has_left(one.to));
    let frozen = moves.map(|(number, one)| {
        let slots = machine.slots_to_give(*number, one);
        let with_epoch = |slot: Slot| (slot, machine.token(slot).epoch());
        (*number, slots.iter().map(with_epoch).collect())
    });
    frozen.collect()
}

impl<S: State> Job<S> for Stranded {
    /// Goes on with slots that are frozen for a site that has left: asks for their owners, and
    /// serves again those that no site owns.
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let stranded = stranded(view.machine);
        let Some(member) = view.machine.membership().filter(|_| !stranded.is_empty()) else {
            *self = Stranded { last_id: self.last_id, ..Stranded::default() };
            return effects;
        };
        let (own, registry) = (member.own, member.registry.clone());
        if self.version != registry.version {
            let last_id = self.last_id;
            *self = Stranded { version: registry.version, last_id, ..Stranded::default() };
        }
        if registry.failovers.open.is_some() {
            return effects;
        }
        // What others have taken from under a move is not waited for.
        for number in
            stranded.iter().filter(|(_, slots)| slots.is_empty()).map(|(number, _)| number)
        {
            effects.push(reclaim(*number, SlotEpochs::default()));
        }
        if stranded.values().all(Vec::is_empty) {
            return effects;
        }
        let others = registry.sites.iter().map(|site| site.id).filter(|site| *site != own);
        let missing = self.questions.missing(others);
        let now = view.now;
        if missing.is_empty() {
            let reported = std::mem::take(&mut self.questions.inventories).of_sites;
            self.questions.not_before = Some(now + ASK_AGAIN);
            effects.extend(reclaims(own, &registry, &stranded, &reported));
        } else if self.questions.is_due(now) {
            effects.extend(self.questions.ask(missing, (own, &registry), &mut self.last_id, now));
        }
        effects
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress {
            left: stranded(view.machine).values().map(|slots| slots.len() as u64).sum(),
            sent_bytes: 0,
        }
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        _: &View<'_, S>,
    ) -> Vec<Effect> {
        self.questions.answered(id, outcome);
        Vec::new()
    }
}

/// Every listed site has reported what it has.
fn reclaims(
    own: SiteId,
    registry: &Registry,
    stranded: &BTreeMap<u64, Vec<(Slot, Epoch)>>,
    reported: &BTreeMap<SiteId, Inventory>,
) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut reports: BTreeMap<Slot, Vec<Report>> = BTreeMap::new();
    for inventory in reported.values() {
        for (owner, slots) in &inventory.owners {
            for (slot, epoch) in slots.iter() {
                let owner = Some((epoch, *owner));
                reports.entry(slot).or_default().push(Report { owner, copy: None });
            }
        }
        for run in &inventory.copies {
            for slot in run.slots.iter() {
                let copy = Some(run.copy);
                reports.entry(slot).or_default().push(Report { owner: None, copy });
            }
        }
    }
    for (number, slots) in stranded {
        let again = slots.iter().filter_map(|(slot, frozen)| {
            let reports = reports.get(slot).map_or(&[][..], |all| all).iter().copied();
            let has_left = |site| registry.has_left(site);
            let at = leaving::reclaims(own, *frozen, reports, has_left, Planted::none())?;
            Some((*slot, at))
        });
        let again = SlotEpochs::gather(again.collect::<Vec<_>>());
        if !again.0.is_empty() {
            effects.push(reclaim(*number, again));
        }
    }
    effects
}

fn reclaim(number: u64, slots: SlotEpochs) -> Effect {
    Effect::Propose(Command::Global(GlobalCommand::Source {
        number,
        step: SourceStep::Reclaim { slots },
    }))
}
