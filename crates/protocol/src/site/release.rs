//! Copies that are void go.
//!
//! A site that has a copy which no stream feeds, or only the stream to a former backup, asks the
//! slot's owner, if that is known, whether the copy may go. The owner answers for the slots that
//! its backup has acknowledged, complete, with the tag and the position of those copies; the rules
//! ([`crate::global::ownership`]) decide whether that is enough. A site that does not own a slot
//! any more answers with the owner. Now and then any site is asked: a record of an owner ends
//! nowhere if the site that it leads to has left. Nothing of this is kept: it is asked for again.

use super::Site;
use super::machine::global::tokens::Token;
use super::stranded::stranded;
use crate::job::{Effect, Job, Progress, View};
use model::{
    BackupChoice, Command, Epoch, GlobalCommand, SiteEntry, SiteId, Slot, SlotEpochs, SlotRun,
    SlotSet,
};
use std::collections::BTreeMap;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::inter_site::{CopiesMessage, InterSite};

/// Slots that one message names at most.
const SLOTS_MAX: usize = 4_096;
/// One time in so many any site is asked instead of the owner.
const ANY_EVERY: usize = 4;
/// The generation of an owner that has no backup, as an operator chose it or there is no other
/// site: it does without copies.
const NO_BACKUP: u64 = u64::MAX - 1;

const ASKED: u32 = 0;
const SAFE: u32 = 1;
const OWNED: u32 = 2;

/// The slots to ask about next: those behind where the last share ended, and from the beginning
/// again.
fn share(slots: &SlotSet, ended_at: Option<Slot>) -> Vec<Slot> {
    let is_before = |slot: &Slot| ended_at.is_some_and(|ended_at| *slot <= ended_at);
    let behind = slots.iter().filter(|slot| !is_before(slot));
    behind.chain(slots.iter().filter(is_before)).take(SLOTS_MAX).collect()
}

/// The asking side: which slots come next.
#[derive(Debug, Default)]
pub(super) struct Release {
    /// The site to ask next about slots without a known owner.
    turn: usize,
    /// The last slots that others were asked about: of those with a copy here, of those with parts
    /// that are over, and of frozen ones.
    asked_to: Option<Slot>,
    parts_asked_to: Option<Slot>,
    frozen_asked_to: Option<Slot>,
}

impl<S: State> Job<S> for Release {
    /// Asks owners whether copies here may go.
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let machine = view.machine;
        let Some(member) = machine.membership() else { return Vec::new() };
        let (own, registry) = (member.own, &member.registry);
        let is_leaving = registry.site(own).is_some_and(|site| site.leaving);
        let frozen: BTreeMap<Slot, Epoch> = stranded(machine).into_values().flatten().collect();
        let (spare, retained) = (machine.spare_copies(), machine.retained_slots());
        let is_idle = spare.is_empty() && frozen.is_empty() && retained.is_empty();
        if is_idle || registry.failovers.open.is_some() {
            return Vec::new();
        }
        let others = registry.sites.iter().map(|site| site.id).filter(|site| *site != own);
        let others: Vec<SiteId> = others.collect();
        self.turn = self.turn.wrapping_add(1);
        let turn = others.get(self.turn % others.len().max(1)).copied();
        // The owner that is known may only know a next one that has left; another site may know one
        // that is there.
        let instead = self.turn.is_multiple_of(ANY_EVERY).then(|| {
            let any = self.turn / ANY_EVERY;
            others.get(any % others.len().max(1)).copied()
        });
        let instead = instead.flatten();
        let mut by_owner: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
        let asked = share(&spare, self.asked_to);
        self.asked_to = asked.last().copied();
        for slot in asked {
            let Some(copy) = machine.copy_of(slot) else { continue };
            let known = machine.owner(slot).map(|(site, _)| site);
            let known = known.filter(|site| *site == own || registry.site(*site).is_some());
            if let Some(owner) = instead.or(known).or(turn) {
                by_owner.entry(owner).or_default().push((slot, copy.tag.epoch));
            }
        }
        // What was borrowed is given up when the owner's mirror has it. Of a slot whose owner has
        // left, any site may know the next one.
        let without_copy = retained.iter().filter(|slot| !spare.contains(*slot)).collect();
        let asked = share(&without_copy, self.parts_asked_to);
        self.parts_asked_to = asked.last().copied();
        for slot in asked {
            let Some((owner, epoch)) = machine.owner_of_parts(slot) else { continue };
            let listed = Some(owner).filter(|owner| registry.site(*owner).is_some());
            if let Some(site) = instead.or(listed).or(turn) {
                by_owner.entry(site).or_default().push((slot, epoch));
            }
        }
        // Their destination is gone: the asked site may have a record of the owner by now.
        let asked = share(&frozen.keys().copied().collect(), self.frozen_asked_to);
        self.frozen_asked_to = asked.last().copied();
        if let Some(site) = turn.filter(|_| !asked.is_empty()) {
            let asked = asked.into_iter().map(|slot| (slot, frozen[&slot]));
            by_owner.entry(site).or_default().extend(asked);
        }
        let ask = |(to, slots): (SiteId, Vec<(Slot, Epoch)>)| {
            let slots = entry::encode_slots(&SlotEpochs::gather(slots));
            let message =
                InterSite::Copies(CopiesMessage { slots, kind: ASKED, ..CopiesMessage::default() });
            // Whether an owner can be reached decides what becomes of the copies of a site that
            // leaves.
            Effect::Send { to, message, awaited: is_leaving && to != own }
        };
        by_owner.into_iter().map(ask).collect()
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        Progress { left: view.machine.spare_copies().len() as u64, sent_bytes: 0 }
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Which of these slots this site owns and does not need the copies of that a site has.
    fn safe_slots(&self, site: SiteId, asked: &SlotSet) -> Option<(SlotEpochs, u64, u64)> {
        // It is fed until the new backup has everything, and keeps its copies until it is not.
        if self.machine.former_mirror().is_some_and(|former| former.to == site) {
            return None;
        }
        // Others may own these slots; and a restored site may lack what they have of them.
        if self.machine.is_unconfirmed() {
            return None;
        }
        let held = self.machine.tokens(asked.runs()).filter_map(|(run, token)| match token {
            Token::Held(epoch) => Some((run, epoch)),
            _ => None,
        });
        let held = SlotEpochs::of_runs(held);
        let owned = held.slots();
        if owned.is_empty() {
            return None;
        }
        if !self.does_without_backup() {
            return self.jobs.mirror.safe(&self.machine, &owned);
        }
        Some((held, NO_BACKUP, u64::MAX))
    }

    /// Whether an operator wants no backup for this site, or there is no other site that could be
    /// one, or there is nothing to mirror. A site that could be one and is lost may come back.
    fn does_without_backup(&self) -> bool {
        let Some(member) = self.machine.membership() else { return false };
        let registry = &member.registry;
        let could_be_one = |site: &SiteEntry| site.id != member.own && !site.leaving;
        let is_off = registry.backups.choice(member.own) == BackupChoice::Off;
        let is_alone = !registry.sites.iter().any(could_be_one);
        is_off || is_alone || !self.options.mirrors || !self.machine.has_globals()
    }

    pub(super) fn take_copies(&mut self, site: SiteId, message: CopiesMessage) {
        if !self.leads() {
            return;
        }
        let Ok(slots) = entry::decode_slots(message.slots) else { return };
        let Some(member) = self.machine.membership() else { return };
        if member.registry.failovers.open.is_some() {
            return;
        }
        match message.kind {
            ASKED => self.answer_for_copies(site, &slots),
            SAFE => {
                let (generation, position, by) = (message.generation, message.position, site);
                self.propose(Command::Global(GlobalCommand::SupersedeBy {
                    slots,
                    generation,
                    position,
                    by,
                }));
            }
            // Who has left owns nothing any more, and its slots may be served again where they came
            // from.
            OWNED if member.registry.has_left(SiteId(message.owner)) => {}
            OWNED => {
                let news =
                    |(slot, epoch): &(Slot, Epoch)| self.machine.token(*slot).epoch() < *epoch;
                let slots = SlotEpochs::gather(slots.iter().filter(news));
                if !slots.0.is_empty() {
                    self.propose(Command::Global(GlobalCommand::Register {
                        owner: SiteId(message.owner),
                        slots,
                    }));
                }
            }
            _ => {}
        }
    }

    fn answer_for_copies(&mut self, site: SiteId, asked: &SlotEpochs) {
        let slots = asked.slots();
        if let Some((slots, generation, position)) = self.safe_slots(site, &slots)
            && !slots.0.is_empty()
        {
            let slots = entry::encode_slots(&slots);
            let message = CopiesMessage { slots, kind: SAFE, generation, position, owner: 0 };
            self.send_to_site(site, InterSite::Copies(message));
        }
        let mut by_owner: BTreeMap<SiteId, Vec<(SlotRun, Epoch)>> = BTreeMap::new();
        for (slots, epoch) in asked.runs() {
            for run in slots.cut(|slot| self.machine.same_owner_until(slot)) {
                let later = self.machine.owner(run.first).filter(|(_, known)| *known > epoch);
                if let Some((owner, epoch)) = later.filter(|(owner, _)| *owner != site) {
                    by_owner.entry(owner).or_default().push((run, epoch));
                }
            }
        }
        for (owner, slots) in by_owner {
            let slots = entry::encode_slots(&SlotEpochs::of_runs(slots));
            let owner = owner.0;
            let message = CopiesMessage { slots, kind: OWNED, owner, ..CopiesMessage::default() };
            self.send_to_site(site, InterSite::Copies(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_gets_its_turn() {
        let all: SlotSet = Slot::all().take(SLOTS_MAX + 100).collect();
        let first = share(&all, None);
        assert_eq!(first.len(), SLOTS_MAX);
        let second = share(&all, first.last().copied());
        assert_eq!(second.len(), SLOTS_MAX);
        let both: SlotSet = first.into_iter().chain(second).collect();
        assert_eq!(both, all);
        let few: SlotSet = Slot::all().take(3).collect();
        let again = share(&few, few.iter().last());
        assert_eq!(again.into_iter().collect::<SlotSet>(), few, "all of few, each time");
        assert!(share(&SlotSet::default(), Slot::new(5)).is_empty());
    }
}
