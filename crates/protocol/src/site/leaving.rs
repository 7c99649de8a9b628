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
//! and reports when that is complete. Other copies are *handed on*: to a site that stays and does
//! not own them, in pieces, each a command there ([`super::machine::handing_on`]). A record of an
//! owner that no other site has is sent to one of them. Then the others are asked again. The
//! registry's change that removes the site names the sites that have its copies, and is refused if
//! one of these leaves.
//!
//! If no site can take the copies, the leaving site stays until their owner is back, or was failed
//! over, or an operator discards them by name.

use super::machine::handing_on::Place;
use super::{Origin, Site};
use crate::global::backups::backup_of;
use crate::global::ownership::trial::Planted;
use crate::global::ownership::{Holding, Token as Right, leaving};
use model::{
    Answer, Body, BySlot, Command, Epoch, Failure, HandedOn, Inventory, MoveId, Receiving,
    RegistryChange, SiteId, Slot, SlotEpochs, SlotRun, SlotSet, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How long inventories are waited for before they are asked for again.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long owners that can be reached have to make copies void, before these are handed on as well.
const OWNERS_HAVE: Duration = Duration::from_secs(60);

/// How long slots that are on their way here are waited for, before their moves are refused.
const ARRIVALS_HAVE: Duration = Duration::from_secs(10);

/// What a leader has learned of the other sites, as its site leaves.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    asked_at: Option<Duration>,
    missing: BTreeMap<u64, SiteId>,
    told: BTreeMap<SiteId, Inventory>,
    last_id: u64,
    /// Since when it owns nothing.
    since: Option<Duration>,
    /// Since when it owns nothing and has moves to it open.
    awaits_since: Option<Duration>,
    handing_on: Option<HandingOn>,
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
    /// All pieces have gone.
    is_last: bool,
}

/// What a leaving site is to do.
enum Next {
    /// It may go; these have what it had copies of.
    Go(Vec<SiteId>),
    /// Copies of these slots go to that site.
    HandOn(SiteId, SlotSet),
    /// A record of an owner that no other site has goes to that site.
    Tell {
        to: SiteId,
        owner: SiteId,
        slots: SlotEpochs,
    },
    Wait,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// This site, which owns nothing any more, goes on with leaving. How the registry is to be changed, once it
    /// may go.
    pub(super) fn leave(&mut self) -> Option<RegistryChange> {
        let member = self.machine.membership()?;
        let (own, registry) = (member.own, member.registry.clone());
        if registry.failovers.open.is_some() {
            self.leaving = Leaving::default();
            return None;
        }
        let now = self.now.monotonic;
        if !self.machine.arrivals().is_empty() {
            let since = self.leaving.awaits_since.unwrap_or(now);
            self.leaving = Leaving { awaits_since: Some(since), ..Leaving::default() };
            if since + ARRIVALS_HAVE <= now {
                self.refuse_arrivals();
            }
            return None;
        }
        self.leaving.awaits_since = None;
        let since = *self.leaving.since.get_or_insert(now);
        if self.leaving.handing_on.is_some() {
            return None;
        }
        let others = registry.sites.iter().map(|site| site.id);
        let others = others.filter(|site| *site != own && !registry.is_lost(*site));
        let lost = self.reach.lost(now);
        let others: Vec<SiteId> = others.filter(|site| !lost.contains(site)).collect();
        let is_told = others.iter().all(|site| self.leaving.told.contains_key(site));
        if !others.is_empty() && is_told {
            let told = std::mem::take(&mut self.leaving.told);
            self.leaving.asked_at = None;
            match self.next_of_leaving(own, &told, since + OWNERS_HAVE <= now, &lost) {
                Next::Go(receivers) if receivers.is_empty() => {
                    return Some(RegistryChange::Remove(own));
                }
                Next::Go(receivers) => {
                    return Some(RegistryChange::RemoveTo { site: own, receivers });
                }
                Next::HandOn(to, slots) => self.begin_to_hand_on(own, to, slots),
                Next::Tell { to, owner, slots } => {
                    let command = Command::Register { holder: owner, slots };
                    self.ask_as_leaving(to, command, PATIENCE);
                    self.leaving.asked_at = Some(now);
                }
                Next::Wait => self.leaving.asked_at = Some(now),
            }
            return None;
        }
        if self.leaving.asked_at.is_none_or(|at| at + PATIENCE <= now) {
            self.leaving.asked_at = Some(now);
            (self.leaving.missing, self.leaving.told) = Default::default();
            for site in others {
                let registry = Box::new((*registry).clone());
                let command = Command::Inventory { registry, lost: own, failover: None };
                let id = self.ask_as_leaving(site, command, PATIENCE);
                self.leaving.missing.insert(id, site);
            }
        }
        None
    }

    /// Refuses the moves that bring slots here: a source that has taken one back does not end it, and may
    /// never begin another. One that has frozen its slots is answered so and serves them again.
    fn refuse_arrivals(&mut self) {
        let ids: Vec<MoveId> = self.machine.arrivals().keys().copied().collect();
        for id in ids {
            let command = Command::Receiving { id, step: Receiving::Decline };
            self.take_write(Origin::Nobody, command, self.now.monotonic + limits::REQUEST_DEADLINE);
        }
    }

    fn ask_as_leaving(&mut self, site: SiteId, command: Command, patience: Duration) -> u64 {
        self.leaving.last_id += 1;
        let id = self.leaving.last_id;
        let body = Body::AtSite { site, command: Box::new(command) };
        self.take_any(Origin::Leaving(id), body, self.now.monotonic + patience);
        id
    }

    pub(super) fn leaving_answered(&mut self, id: u64, outcome: Result<Answer, Failure>) {
        if self.leaving.handing_on.as_ref().is_some_and(|one| one.asked == id) {
            return self.go_on_handing(outcome);
        }
        let Some(site) = self.leaving.missing.remove(&id) else { return };
        if let Ok(Answer::Inventory(inventory)) = outcome {
            self.leaving.told.insert(site, *inventory);
        }
    }

    /// What is to be done next, by the inventories of the others.
    fn next_of_leaving(
        &self,
        own: SiteId,
        told: &BTreeMap<SiteId, Inventory>,
        is_late: bool,
        lost: &BTreeSet<SiteId>,
    ) -> Next {
        let Some(registry) = self.machine.registry() else { return Next::Wait };
        let others = holdings(own, told);
        let (mut receivers, mut is_stuck) = (BTreeSet::new(), false);
        let mut to_hand_on: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
        let mut to_tell: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
        let stays = |site: SiteId| registry.staying().any(|entry| entry.id == site);
        let all_there: Vec<(SiteId, Holding)> =
            told.keys().map(|site| (*site, Holding::default())).collect();
        for slot in Slot::all() {
            let mine = self.machine.holding(slot);
            let mut theirs = others.get(slot).cloned().unwrap_or_default();
            if leaving::may_leave(own, &mine, &theirs, Planted::none()) {
                receivers.extend(leaving::kept_by(&mine, &theirs, Planted::none()));
                continue;
            }
            let owner = self.machine.holder(slot).map(|(site, _)| site);
            let is_awaited =
                theirs.iter().any(|(_, other)| matches!(other.token, Right::Frozen { .. }));
            if let Right::Gone { epoch, to } = mine.token
                && mine.copy.is_none()
                && !is_awaited
            {
                to_tell.entry(to).or_default().push((slot, epoch));
                continue;
            }
            let is_kept = leaving::kept_by(&mine, &theirs, Planted::none()).is_some();
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
            let able = theirs.iter().filter(|(site, other)| {
                stays(*site) && leaving::may_receive(&mine, (*site, other))
            });
            let able: Vec<SiteId> = able.map(|(site, _)| *site).collect();
            let backup = backup_of(registry, copy.origin).filter(|site| able.contains(site));
            match backup.or(able.first().copied()) {
                Some(to) => to_hand_on.entry(to).or_default().push(slot),
                None => is_stuck = true,
            }
        }
        if let Some((to, slots)) = to_hand_on.pop_first() {
            let some = slots.into_iter().take(limits::SLOTS_PER_MOVE_MAX);
            return Next::HandOn(to, some.collect());
        }
        if let Some((owner, slots)) = to_tell.pop_first() {
            let to = told.keys().copied().find(|site| *site != owner && stays(*site));
            let slots = SlotEpochs::gather(slots);
            return to.map_or(Next::Wait, |to| Next::Tell { to, owner, slots });
        }
        if is_stuck { Next::Wait } else { Next::Go(receivers.into_iter().collect()) }
    }

    fn begin_to_hand_on(&mut self, own: SiteId, to: SiteId, slots: SlotSet) {
        // Another process of this node uses other numbers, and moves use none as high.
        let number = 1 << 63 | (self.options.client.0 >> 2).wrapping_add(self.leaving.last_id);
        let id = MoveId { from: own, number };
        let command = Command::Receiving { id, step: Receiving::BeginCopies(slots.clone()) };
        let (asked, at, sequence, is_last) = (self.leaving.last_id + 1, None, 0, false);
        self.leaving.handing_on = Some(HandingOn { id, to, slots, asked, at, sequence, is_last });
        self.ask_as_leaving(to, command, limits::REQUEST_DEADLINE);
    }

    /// The receiver has answered; what comes next, or the others are asked again.
    fn go_on_handing(&mut self, outcome: Result<Answer, Failure>) {
        let Some(mut one) = self.leaving.handing_on.take() else { return };
        let is_next =
            matches!(&outcome, Ok(Answer::Staged { pieces, .. }) if *pieces == one.sequence);
        if !is_next || !self.leads() {
            return;
        }
        let step = if one.is_last {
            Receiving::TakeCopies { pieces: one.sequence, copies: self.runs_of_copies(&one.slots) }
        } else {
            let (items, next) = match self.machine.copied_piece(&one.slots, one.at.take()) {
                Ok(piece) => piece,
                Err(error) => return self.fail(error),
            };
            one.is_last = next.is_none();
            one.at = next;
            one.sequence += 1;
            let (sequence, resume) = (one.sequence - 1, model::Bytes::new());
            Receiving::Piece { sequence, resume, items }
        };
        let (id, to) = (one.id, one.to);
        one.asked = self.leaving.last_id + 1;
        self.leaving.handing_on = Some(one);
        let command = Command::Receiving { id, step };
        self.ask_as_leaving(to, command, limits::REQUEST_DEADLINE);
    }

    fn runs_of_copies(&self, slots: &SlotSet) -> Vec<HandedOn> {
        let mut runs: BTreeMap<_, Vec<Slot>> = BTreeMap::new();
        for slot in slots.iter() {
            let Holding { token, copy: Some(copy) } = self.machine.holding(slot) else { continue };
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
}

/// What other sites record of each slot, by their inventories.
fn holdings(own: SiteId, told: &BTreeMap<SiteId, Inventory>) -> BySlot<Vec<(SiteId, Holding)>> {
    let mut all = BySlot::default();
    for (site, inventory) in told {
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

/// Notes what a site knows of slots; the sites come one after the other.
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
