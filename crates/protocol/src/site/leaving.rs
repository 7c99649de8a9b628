//! A site that leaves goes when nothing rests with it.
//!
//! It has given all its slots away. It still has copies, and a record of owners. It asks all other
//! sites that can be reached what they have; the request also brings them the registry in which
//! this site is marked as leaving, so that they hand it nothing more. By the rules
//! ([`crate::global::ownership::leaving`]) it goes when no site freezes slots towards it, when
//! another site has every owner that it has a record of, and when for each of its copies there is
//! one elsewhere that is as good, and not at the owner.
//!
//! While the owner of a copy can be reached, the copy waits: the owner has another backup by now,
//! and reports when that is complete. Until then the owner feeds the copy here, too; that ends
//! before the copy is handed on or the site goes, so that others have it as it is. Other copies are
//! *handed on*: to a site that stays and does not own them, in chunks, each a command there
//! ([`super::machine::global::handing_on`]). A record of an owner that no other site has is sent to
//! one of them. Then the others are asked again. The registry's change that removes the site names
//! the sites that have its copies, and is refused if one of these leaves. It also names the decisions
//! of failovers by which the others were asked, and is refused after another one: this site may have
//! taken slots, or have the only copy beside that of the site that took them. The others are asked
//! again then.
//!
//! What the site has written to causal keys gets its place in the region's order first.
//!
//! If no site can take the copies, the leaving site stays until their owner is back, or was failed
//! over, or an operator discards them by name; the list of jobs shows whose they are.

use super::machine::Machine;
use super::machine::deployment::DeploymentMember;
use super::machine::global::handing_on::Place;
use super::machine::global::tokens::Token;
use crate::global::backups::backup_of;
use crate::global::inventories::Questions;
use crate::global::ownership::{Holding, Token as Right, leaving};
use crate::job::{Effect, Job, Progress, View};
use model::{
    Answer, Ballot, BySlot, Command, DestinationStep, Epoch, Failure, GlobalCommand, HandedOn,
    Inventory, LoanPart, MoveId, Region, RegistryChange, Revision, SiteId, Slot, SlotEpochs,
    SlotRun, SlotSet, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::State;

/// How long what a site was asked, or was to do, is waited for before inventories are requested
/// again.
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long owners that can be reached have to make copies void, before these are handed on as
/// well.
const OWNERS_HAVE: Duration = Duration::from_secs(60);

/// How long slots that are on their way here are waited for, before their moves are refused.
const ARRIVALS_HAVE: Duration = Duration::from_secs(10);

/// How long the registry's change has.
const CHANGE_HAS: Duration = Duration::from_secs(2);

/// What a leader has learned of the other sites, as its site leaves.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    questions: Questions,
    /// The decisions of failovers by which the others are asked.
    decisions: Vec<Ballot>,
    last_id: u64,
    /// Since when it owns nothing.
    since: Option<Duration>,
    /// Since when it owns nothing and has moves to it open.
    awaits_since: Option<Duration>,
    handing_on: Option<HandingOn>,
    /// The copies that no other site can take, by their owner, as of the last inventories.
    only_here: BTreeMap<SiteId, SlotSet>,
    /// No other site that stays answers.
    is_alone: bool,
}

/// Copies on their way to one site.
#[derive(Debug)]
struct HandingOn {
    id: MoveId,
    to: SiteId,
    slots: SlotSet,
    /// The step that is not answered.
    asked: u64,
    at: Option<Place>,
    sequence: u64,
    /// All chunks have gone.
    is_last: bool,
}

/// What a leaving site is to do.
enum Next {
    /// It may go; these have what it had copies of.
    Go(Vec<SiteId>),
    /// Copies of these slots go to that site.
    HandOn(SiteId, SlotSet),
    /// A record of an owner that no other site has goes to that site.
    Report { to: SiteId, owner: SiteId, slots: SlotEpochs },
    /// No other site can take the copies of these slots, if any, by their owner.
    Wait(BTreeMap<SiteId, SlotSet>),
}

impl<S: State> Job<S> for Leaving {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(member) = view.machine.membership().filter(|member| is_leaving(member)) else {
            return effects;
        };
        let holds = |(_, token)| matches!(token, Token::Held(_) | Token::Leaving { .. });
        if view.disk_is_full || view.machine.tokens(std::iter::once(SlotRun::ALL)).any(holds) {
            return effects;
        }
        if is_needed_as_root(member) {
            return effects;
        }
        // What it borrows goes back first (site::lending), and stays until the owners' mirrors have
        // it.
        if view.machine.parts().any(|(_, part)| part.borrowed.part != LoanPart::Never) {
            return effects;
        }
        if has_causal_writes(view.machine, member) {
            return effects;
        }
        let (own, registry) = (member.own, member.registry.clone());
        if registry.failovers.open.is_some() {
            self.begin_anew();
            return effects;
        }
        let now = view.now;
        if !view.machine.arrivals().is_empty() {
            let since = self.awaits_since.unwrap_or(now);
            self.begin_anew();
            self.awaits_since = Some(since);
            if since + ARRIVALS_HAVE <= now {
                effects.extend(refuse_arrivals(view.machine));
            }
            return effects;
        }
        self.awaits_since = None;
        let since = *self.since.get_or_insert(now);
        if self.handing_on.is_some() {
            return effects;
        }
        let others = registry.sites.iter().map(|site| site.id);
        let others = others.filter(|site| *site != own && !registry.is_lost(*site));
        let lost = view.failure_detector.lost(now);
        let others: Vec<SiteId> = others.filter(|site| !lost.contains(site)).collect();
        self.is_alone = others.is_empty();
        let is_reported = self.questions.missing(others.iter().copied()).is_empty();
        if !others.is_empty() && is_reported {
            let reported = std::mem::take(&mut self.questions.inventories).of_sites;
            self.questions.not_before = None;
            self.only_here.clear();
            match next_step(view, own, &reported, since + OWNERS_HAVE <= now, &lost) {
                Next::Go(_) if !view.machine.streams_of(&SlotSet::all()).is_empty() => {
                    effects.extend(self.end_streams(view, &SlotSet::all()));
                }
                Next::Go(destinations) => {
                    let decisions = self.decisions.clone();
                    let change = RegistryChange::RemoveBy { site: own, destinations, decisions };
                    effects.push(Effect::change(change, CHANGE_HAS));
                }
                Next::HandOn(_, slots) if !view.machine.streams_of(&slots).is_empty() => {
                    effects.extend(self.end_streams(view, &slots));
                }
                Next::HandOn(to, slots) => {
                    effects.push(self.begin_to_hand_on(view, own, to, slots))
                }
                Next::Report { to, owner, slots } => {
                    let command = Command::Global(GlobalCommand::Register { owner, slots });
                    effects.push(self.ask(to, command, TIMEOUT));
                    self.questions.not_before = Some(now + TIMEOUT);
                }
                Next::Wait(only_here) => {
                    self.only_here = only_here;
                    self.questions.not_before = Some(now + TIMEOUT);
                }
            }
            return effects;
        }
        if self.questions.is_due(now) {
            self.questions = Questions::default();
            self.decisions = registry.failovers.decisions();
            effects.extend(self.questions.ask(others, (own, &registry), &mut self.last_id, now));
        }
        effects
    }

    fn progress(&self, _: &View<'_, S>) -> Progress {
        Progress { left: self.questions.unanswered() as u64, sent_bytes: 0 }
    }

    fn waits_for(&self, view: &View<'_, S>) -> Option<String> {
        let member = view.machine.membership().filter(|member| is_leaving(member))?;
        if is_needed_as_root(member) {
            let why =
                "waits until another site is the root of the region (`portolan job show root`)";
            return Some(why.to_owned());
        }
        if self.is_alone {
            return Some("waits: no other site can be reached".to_owned());
        }
        let name = |site: &SiteId| match member.registry.site(*site) {
            Some(entry) => entry.name.to_string(),
            None => site.to_string(),
        };
        let each = |(owner, slots): (&SiteId, &SlotSet)| {
            format!("{} slots of {} ({slots})", slots.len(), name(owner))
        };
        let all: Vec<String> = self.only_here.iter().map(each).collect();
        let why = "has a copy, and no other site can take it";
        (!all.is_empty()).then(|| format!("waits: of {} only this site {why}", all.join(", ")))
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        if self.handing_on.as_ref().is_some_and(|one| one.asked == id) {
            return self.go_on_handing(view, outcome).into_iter().collect();
        }
        self.questions.answered(id, outcome);
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.begin_anew();
        Vec::new()
    }
}

impl Leaving {
    /// Forgets what others have reported. No number is given again: the answer to an earlier
    /// question may still come.
    fn begin_anew(&mut self) {
        *self = Leaving { last_id: self.last_id, ..Leaving::default() };
    }

    fn ask(&mut self, to: SiteId, command: Command, timeout: Duration) -> Effect {
        self.last_id += 1;
        Effect::Ask { id: Some(self.last_id), to, command, timeout }
    }

    /// Ends the streams that feed copies of these slots, which others are to have as they are; then
    /// all are asked again.
    fn end_streams<S: State>(&mut self, view: &View<'_, S>, slots: &SlotSet) -> Vec<Effect> {
        self.questions.not_before = Some(view.now + TIMEOUT);
        let end = |(of, number)| Command::Global(GlobalCommand::EndMirror { of, number });
        view.machine.streams_of(slots).into_iter().map(end).map(Effect::Propose).collect()
    }

    fn begin_to_hand_on<S: State>(
        &mut self,
        view: &View<'_, S>,
        own: SiteId,
        to: SiteId,
        slots: SlotSet,
    ) -> Effect {
        // Another process of this node uses other numbers, and moves use none as high.
        let number = 1 << 63 | (view.client.0 >> 2).wrapping_add(self.last_id);
        let id = MoveId { from: own, number };
        let command = Command::Global(GlobalCommand::Destination {
            id,
            step: DestinationStep::BeginCopies(slots.clone()),
        });
        let (asked, at, sequence, is_last) = (self.last_id + 1, None, 0, false);
        self.handing_on = Some(HandingOn { id, to, slots, asked, at, sequence, is_last });
        self.ask(to, command, limits::REQUEST_DEADLINE)
    }

    /// The destination has answered; what comes next, or the others are asked again.
    fn go_on_handing<S: State>(
        &mut self,
        view: &View<'_, S>,
        outcome: Result<Answer, Failure>,
    ) -> Option<Effect> {
        let mut one = self.handing_on.take()?;
        let is_next =
            matches!(&outcome, Ok(Answer::Staged { chunks, .. }) if *chunks == one.sequence);
        if !is_next || !view.leads {
            return None;
        }
        let step = if one.is_last {
            DestinationStep::TakeCopies {
                chunks: one.sequence,
                copies: runs_of_copies(view.machine, &one.slots),
            }
        } else {
            let (items, next) = match view.machine.copied_chunk(&one.slots, one.at.take()) {
                Ok(chunk) => chunk,
                Err(error) => return Some(Effect::Fail(error.to_string())),
            };
            one.is_last = next.is_none();
            one.at = next;
            one.sequence += 1;
            let (sequence, resume) = (one.sequence - 1, model::Bytes::new());
            DestinationStep::Chunk { sequence, resume, items }
        };
        let (id, to) = (one.id, one.to);
        one.asked = self.last_id + 1;
        self.handing_on = Some(one);
        let command = Command::Global(GlobalCommand::Destination { id, step });
        Some(self.ask(to, command, limits::REQUEST_DEADLINE))
    }
}

/// Whether a site is to leave a deployment with others.
fn is_leaving(member: &DeploymentMember) -> bool {
    member.registry.sites.len() > 1
        && member.registry.site(member.own).is_some_and(|site| site.leaving)
}

/// Whether the region's order lacks causal writes of a site, or may: with a root that was lost went
/// the places behind where the next one began, and the site has its own writes without these once
/// it gets its keys anew.
fn has_causal_writes<S: State>(machine: &Machine<S>, member: &DeploymentMember) -> bool {
    let causal = machine.causal();
    let is_behind = |region: &Region| {
        region.is_rebuilding() || region.begin().is_some_and(|begin| causal.applied() < begin)
    };
    let may_lack = causal.last_revision() > Revision(0)
        && member.registry.keyspaces.iter().any(|keyspace| keyspace.spec.is_causal())
        && member.registry.region_of(member.own).is_some_and(is_behind);
    may_lack || causal.own_ordered() < causal.last_revision()
}

/// Whether it orders the writes of causal keyspaces.
fn is_needed_as_root(member: &DeploymentMember) -> bool {
    let registry = &member.registry;
    let is_root = registry.region_of(member.own).is_some_and(|region| region.root == member.own);
    is_root && registry.keyspaces.iter().any(|keyspace| keyspace.spec.is_causal())
}

/// Refuses the moves that bring slots here: a source that has taken one back does not end it, and
/// may never begin another. One that has frozen its slots is answered so and serves them again.
fn refuse_arrivals<S: State>(machine: &Machine<S>) -> Vec<Effect> {
    let decline = |id: &MoveId| {
        Command::Global(GlobalCommand::Destination { id: *id, step: DestinationStep::Decline })
    };
    machine.arrivals().keys().map(|id| Effect::Propose(decline(id))).collect()
}

/// What is to be done next, by the inventories of the others.
fn next_step<S: State>(
    view: &View<'_, S>,
    own: SiteId,
    reported: &BTreeMap<SiteId, Inventory>,
    is_late: bool,
    lost: &BTreeSet<SiteId>,
) -> Next {
    let Some(registry) = view.machine.registry() else { return Next::Wait(BTreeMap::new()) };
    let (others, planted) = (holdings(own, reported), view.machine.planted_rules());
    let (mut destinations, mut is_stuck) = (BTreeSet::new(), false);
    let mut to_hand_on: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
    let mut only_here: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
    let mut to_report: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
    let stays = |site: SiteId| registry.staying().any(|entry| entry.id == site);
    let all_there: Vec<(SiteId, Holding)> =
        reported.keys().map(|site| (*site, Holding::default())).collect();
    for slot in Slot::all() {
        let mine = view.machine.holding(slot);
        let mut theirs = others.get(slot).cloned().unwrap_or_default();
        if leaving::may_leave(own, &mine, &theirs, planted) {
            destinations.extend(leaving::kept_by(&mine, &theirs, planted));
            continue;
        }
        let owner = view.machine.owner(slot).map(|(site, _)| site);
        let is_awaited =
            theirs.iter().any(|(_, other)| matches!(other.token, Right::Frozen { .. }));
        if let Right::Gone { epoch, to } = mine.token
            && mine.copy.is_none()
            && !is_awaited
        {
            to_report.entry(to).or_default().push((slot, epoch));
            continue;
        }
        let is_kept = leaving::kept_by(&mine, &theirs, planted).is_some();
        let is_waited_for = owner.is_some_and(|owner| {
            registry.site(owner).is_some() && !lost.contains(&owner) && !is_late
        });
        let Some(copy) = mine.copy.filter(|_| !is_waited_for && !is_kept) else {
            is_stuck = true;
            continue;
        };
        // A site with no report on this slot may take its copy, too.
        let known: BTreeSet<SiteId> = theirs.iter().map(|(site, _)| *site).collect();
        theirs.extend(all_there.iter().filter(|(site, _)| !known.contains(site)));
        let able = theirs
            .iter()
            .filter(|(site, other)| stays(*site) && leaving::may_receive(&mine, (*site, other)));
        let able: Vec<SiteId> = able.map(|(site, _)| *site).collect();
        let backup = backup_of(registry, copy.origin).filter(|site| able.contains(site));
        match backup.or(able.first().copied()) {
            Some(to) => to_hand_on.entry(to).or_default().push(slot),
            None => only_here.entry(copy.origin).or_default().push(slot),
        }
    }
    if let Some((to, slots)) = to_hand_on.pop_first() {
        let some = slots.into_iter().take(limits::SLOTS_PER_MOVE_MAX);
        return Next::HandOn(to, some.collect());
    }
    if let Some((owner, slots)) = to_report.pop_first() {
        let to = reported.keys().copied().find(|site| *site != owner && stays(*site));
        let slots = SlotEpochs::gather(slots);
        let wait = || Next::Wait(BTreeMap::new());
        return to.map_or_else(wait, |to| Next::Report { to, owner, slots });
    }
    if is_stuck || !only_here.is_empty() {
        let slots = |(owner, slots): (_, Vec<Slot>)| (owner, slots.into_iter().collect());
        return Next::Wait(only_here.into_iter().map(slots).collect());
    }
    Next::Go(destinations.into_iter().collect())
}

fn runs_of_copies<S: State>(machine: &Machine<S>, slots: &SlotSet) -> Vec<HandedOn> {
    let mut runs: BTreeMap<_, Vec<Slot>> = BTreeMap::new();
    for slot in slots.iter() {
        let Holding { token, copy: Some(copy) } = machine.holding(slot) else { continue };
        let owner = match token {
            Right::Gone { epoch, to } => Some((to, epoch)),
            _ => None,
        };
        let key = (copy.tag, copy.origin, copy.position, owner);
        runs.entry(key).or_default().push(slot);
    }
    let run = |((tag, origin, position, owner), slots): (_, Vec<Slot>)| HandedOn {
        slots: slots.into_iter().collect(),
        copy: model::SlotCopy { tag, origin, position },
        owner,
    };
    runs.into_iter().map(run).collect()
}

/// What other sites record of each slot, by their inventories.
fn holdings(own: SiteId, reported: &BTreeMap<SiteId, Inventory>) -> BySlot<Vec<(SiteId, Holding)>> {
    let mut all = BySlot::default();
    for (site, inventory) in reported {
        for (owner, slots) in &inventory.owners {
            for (run, epoch) in slots.runs() {
                let token = match owner == site {
                    true => Right::Held(epoch),
                    false => Right::Gone { epoch, to: *owner },
                };
                note(&mut all, run, *site, |holding| holding.token = token);
            }
        }
        for copies in &inventory.copies {
            for run in copies.slots.runs() {
                note(&mut all, run, *site, |holding| holding.copy = Some(copies.copy));
            }
        }
        for (to, slots) in inventory.frozen.iter().filter(|(to, _)| *to == own) {
            for run in slots.runs() {
                let token = Right::Frozen { epoch: Epoch::default(), to: *to };
                note(&mut all, run, *site, |holding| holding.token = token);
            }
        }
    }
    all
}

/// Notes what a site reports of slots; the sites come one after the other.
fn note(
    all: &mut BySlot<Vec<(SiteId, Holding)>>,
    run: SlotRun,
    site: SiteId,
    change: impl Fn(&mut Holding),
) {
    all.update(run, |known| {
        let mut of_slot = known.cloned().unwrap_or_default();
        if of_slot.last().is_none_or(|(last, _)| *last != site) {
            of_slot.push((site, Holding::default()));
        }
        if let Some((_, holding)) = of_slot.last_mut() {
            change(holding);
        }
        Some(of_slot)
    });
}
