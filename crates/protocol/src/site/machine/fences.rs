//! When a site is lost for good: how its backup takes over, and how it learns so if it comes back.
//!
//! A slot has one holder at an epoch, and only its holder can pass it on. If the holder is lost somebody
//! else must, so everybody who could have got a slot from it is asked first, and promises: a *fence* is
//! a command of every other site after which nothing passes between it and the lost one. Then the
//! slots that nobody else holds are known, and none of them can turn up anywhere but at the lost site.
//! Its backup takes them at epochs that are far above all that can have been given unseen.
//!
//! What was decided is a [`Promotion`] in the registry, which has one order and reaches everybody. Each
//! site follows it when it learns of it, by that same command:
//!
//! - the backup turns its mirror into slots that it holds;
//! - whoever was handing slots to the lost site takes them back, but for those of which the mirror
//!   shows that they had arrived;
//! - whoever had handed it slots that the mirror has not, and keeps them yet, holds them again;
//! - the lost site, should it come back (a *ghost*), gives up all it held, and throws it away.
//!
//! It says so by another change of the registry, and is a site like any other from then on: what it
//! begins after that bears higher numbers, by which the others tell it from what it had begun before.
//!
//! ```text
//! w lost → by (varint) ‖ number (varint)
//! ```

use super::super::trial::Bug;
use super::apply::Applying;
use super::tokens::Token;
use super::{MachineError, Stopped, tables};
use model::{
    Answer, BackupError, Epoch, Fenced, Fencing, IDS_SKIPPED, MoveId, NUMBERS_SKIPPED, Promotion,
    Refusal, Registry, RegistryChange, Revision, SiteId, Slot, SlotEpochs,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::state::{Read, State};
use wire::entry::{put_varint, take_varint};

/// Who is fenced for whose promotion, and which.
pub(super) type Fences = BTreeMap<SiteId, (SiteId, u64)>;

pub(super) fn load(state: &impl Read) -> Result<Fences, MachineError> {
    let mut fences = Fences::new();
    for (key, row) in super::rows(state, tables::FENCES)? {
        let read = (|| {
            let lost = tables::parse_fence(&key)?;
            let (by, len) = take_varint(&row)?;
            let (number, _) = take_varint(&row[len..])?;
            fences.insert(lost, (SiteId(u32::try_from(by).ok()?), number));
            Some(())
        })();
        read.ok_or(MachineError::Damaged { table: tables::FENCES as char })?;
    }
    Ok(fences)
}

fn refused<T>(error: BackupError) -> Result<T, Stopped> {
    Err(Refusal::from(error).into())
}

impl<S: State> Applying<'_, S> {
    /// Whether a move or mirror of another site counts for nothing here.
    pub(super) fn disowns(&self, site: SiteId, number: u64) -> bool {
        let member = self.known.deployment.member.as_ref();
        self.known.fences.contains_key(&site)
            || member.is_some_and(|member| {
                let registry = &member.registry;
                let has_left = site.0 < registry.site_next && registry.site(site).is_none();
                has_left || registry.backups.disowns(site, number)
            })
    }

    /// Whether nothing is to be handed to a site, as it may be lost.
    pub(super) fn is_fenced(&self, site: SiteId) -> bool {
        let member = self.known.deployment.member.as_ref();
        self.known.fences.contains_key(&site)
            || member.is_some_and(|member| member.registry.is_lost(site))
    }

    pub(super) fn fence(
        &mut self,
        lost: SiteId,
        by: SiteId,
        number: u64,
        step: &Fencing,
    ) -> Result<Answer, Stopped> {
        let member = self.member()?;
        let (own, registry) = (member.own, member.registry.clone());
        if *step == Fencing::Lift {
            if self.known.fences.get(&lost) == Some(&(by, number)) {
                self.lift_fence(lost);
            }
            return Ok(Answer::Done(self.known.head.revision));
        }
        if lost == own {
            return refused(BackupError::Answers(lost));
        }
        if let Some(promotion) = registry.backups.promotion(lost) {
            return refused(BackupError::Promoted(promotion.by));
        }
        match self.known.fences.get(&lost) {
            Some((other, _)) if *other != by => return refused(BackupError::Fenced(*other)),
            Some((_, newer)) if *newer > number => return refused(BackupError::Outdated),
            _ => {}
        }
        let mut row = Vec::new();
        put_varint(u64::from(by.0), &mut row);
        put_varint(number, &mut row);
        self.overlay.put(tables::fence(lost), row);
        self.known.fences.insert(lost, (by, number));
        self.refuse_arrivals(|id| id.from == lost);
        let (mut held, mut kept) = (Vec::new(), self.kept_from(lost));
        let mut given: BTreeMap<SiteId, Vec<(Slot, Epoch)>> = BTreeMap::new();
        for slot in Slot::all() {
            match self.known.slots.token(slot) {
                Token::Never => {}
                Token::Gone { epoch, to } => given.entry(to).or_default().push((slot, epoch)),
                // Whether it has arrived, nobody knows.
                Token::Leaving { epoch, number, frozen: true }
                    if self.known.giving.get(&number).is_some_and(|one| one.to == lost) =>
                {
                    kept.push((slot, epoch.next()));
                }
                Token::Held(epoch) | Token::Leaving { epoch, .. } => held.push((slot, epoch)),
            }
        }
        let given = given.into_iter().map(|(to, slots)| (to, SlotEpochs::gather(slots))).collect();
        let (held, kept) = (SlotEpochs::gather(held), SlotEpochs::gather(kept));
        let registry = Box::new((*registry).clone());
        let fenced = Fenced { held, given, kept, registry };
        Ok(Answer::Fenced(Box::new(fenced)))
    }

    fn lift_fence(&mut self, lost: SiteId) {
        if self.known.fences.remove(&lost).is_some() {
            self.overlay.remove(tables::fence(lost));
        }
    }

    /// Takes over from a lost site together with the right to change the registry.
    pub(super) fn promote(
        &mut self,
        promotion: &Promotion,
        latest: &Registry,
    ) -> Result<Answer, Stopped> {
        let member = self.member()?.clone();
        let (lost, own) = (promotion.lost, member.own);
        // Registrars decide on later ones.
        if !member.registry.is_of_before() {
            return refused(BackupError::Outdated);
        }
        if member.registry.backups.promotion(lost) == Some(promotion) {
            return Ok(Answer::Done(self.known.head.revision));
        }
        // Whoever has lifted the fence meanwhile may let the lost site go on.
        let fenced = self.known.fences.get(&lost) == Some(&(own, promotion.number));
        if promotion.by != own || !fenced || latest.deployment != member.registry.deployment {
            return refused(BackupError::Outdated);
        }
        let newer = latest.version > member.registry.version;
        let mut registry = if newer { latest.clone() } else { (*member.registry).clone() };
        registry.change(&RegistryChange::Promote(promotion.clone())).map_err(Refusal::from)?;
        // The lost site may have made changes that nobody has heard of.
        registry.changes += NUMBERS_SKIPPED;
        registry.version = Registry::version_of_before(registry.changes);
        registry.site_next = registry.site_next.saturating_add(IDS_SKIPPED);
        registry.keyspace_next = registry.keyspace_next.saturating_add(IDS_SKIPPED);
        self.learn_registry(&registry)
    }

    /// Does what the registry's promotions say of this site. Doing it again does nothing.
    pub(super) fn follow_promotions(&mut self) -> Result<(), Stopped> {
        let Some(member) = self.known.deployment.member.clone() else { return Ok(()) };
        // A site that joined beyond the end of a term hands that in, and is there again.
        let acceptor = self.known.deployment.acceptor.as_ref();
        let joins = acceptor.map(|acceptor| &acceptor.kept().joins[..]).unwrap_or_default();
        let hands_in = joins.iter().any(|site| site.id == member.own);
        let is_gone = member.registry.site(member.own).is_none() && !hands_in;
        if is_gone && !self.planted.is(Bug::GhostServes) {
            // It is gone for the others, and what it still held is theirs.
            self.give_up_all(member.registry.sites.first().map_or(member.own, |site| site.id));
        }
        for promotion in &member.registry.backups.promotions {
            if promotion.lost == member.own {
                self.lift_fence(member.own);
                if !self.planted.is(Bug::GhostServes) {
                    self.give_up_all(promotion.by);
                    self.point_to(promotion, member.own);
                }
                continue;
            }
            if promotion.by == member.own {
                self.take_over(promotion);
            }
            let fence = (promotion.by, promotion.number);
            let was_asked = self.known.fences.get(&promotion.lost) == Some(&fence);
            self.lift_fence(promotion.lost);
            self.refuse_arrivals(|id| id.from == promotion.lost);
            self.point_to(promotion, member.own);
            self.take_back(promotion, member.own, was_asked);
            self.hold_kept_again(promotion, member.own);
        }
        self.follow_backups();
        Ok(())
    }

    /// The backup's: what it mirrored and nobody else holds is its own.
    fn take_over(&mut self, promotion: &Promotion) {
        let from = promotion.lost;
        let taken: BTreeMap<Slot, Epoch> = promotion
            .taken
            .iter()
            .filter(|(slot, epoch)| self.known.slots.token(*slot).epoch() < *epoch)
            .collect();
        if taken.is_empty() {
            return;
        }
        let (revision, log_time_ms) = match self.known.mirrors.0.get(&from) {
            Some(mirror) => (mirror.revision, mirror.log_time_ms),
            None => (0, 0),
        };
        let head = &mut self.known.head;
        head.log_time_ms = head.log_time_ms.max(log_time_ms);
        self.skip_versions(revision);
        let globals = self.known.keyspaces.globals();
        for (slot, epoch) in taken {
            for keyspace in &globals {
                let store = match promotion.mirrored.contains(slot) {
                    true => self.take_mirrored(from, (*keyspace, slot)),
                    false => None,
                };
                if store.is_some() || self.known.slots.store(*keyspace, slot).is_some() {
                    self.set_store(*keyspace, slot, store);
                }
            }
            self.set_token(slot, Token::Held(epoch));
        }
        self.forget_mirror(from);
    }

    /// The ghost's: whatever it held, others hold now.
    fn give_up_all(&mut self, by: SiteId) {
        self.refuse_arrivals(|_| true);
        let moves: Vec<u64> = self.known.giving.keys().copied().collect();
        moves.into_iter().for_each(|number| self.end_giving(number));
        self.drop_all_kept();
        let held = |slot: &Slot| {
            matches!(self.known.slots.token(*slot), Token::Held(_) | Token::Leaving { .. })
        };
        let held: Vec<Slot> = Slot::all().filter(held).collect();
        for slot in &held {
            let epoch = self.known.slots.token(*slot).epoch();
            self.drop_slot(*slot, Token::Gone { epoch, to: by });
        }
        self.pin(&held.into_iter().collect(), false);
    }

    /// Slots were on their way to the lost site: they stay. Those that were frozen may have been
    /// installed there, and have gone on from there. Who was asked has said so, and the promotion says
    /// whose they are; who was not holds them. They go on at an epoch far above the lost site's, and at
    /// versions that were not given there.
    fn take_back(&mut self, promotion: &Promotion, own: SiteId, was_asked: bool) {
        let lost = promotion.lost;
        let again = promotion.kept_by(own);
        let mut any_frozen = false;
        let moves: Vec<u64> =
            self.known.giving.iter().filter(|(_, m)| m.to == lost).map(|(n, _)| *n).collect();
        for number in moves {
            let one = self.known.giving[&number].clone();
            for slot in one.slots.iter() {
                let (epoch, frozen) = match self.known.slots.token(slot) {
                    Token::Leaving { epoch, number: of, frozen } if of == number => (epoch, frozen),
                    _ => continue,
                };
                let there = epoch.next();
                if !frozen {
                    self.set_token(slot, Token::Held(epoch));
                } else if !was_asked || again.get(&slot) == Some(&there.far_on()) {
                    any_frozen = true;
                    self.set_token(slot, Token::Held(there.far_on()));
                } else {
                    self.drop_slot(slot, Token::Gone { epoch: there, to: lost });
                }
            }
            self.end_giving(number);
        }
        if any_frozen {
            self.skip_versions(0);
        }
    }

    /// Versions that a lost site gave unseen are not given again.
    pub(super) fn skip_versions(&mut self, known: u64) {
        let head = &mut self.known.head;
        head.revision = Revision(head.revision.0.max(known).saturating_add(NUMBERS_SKIPPED));
        self.next_revision();
    }

    /// Remembers where the slots are. Who holds one of them at a lower epoch was not asked, and holds
    /// it no more.
    fn point_to(&mut self, promotion: &Promotion, own: SiteId) {
        let taken = (&promotion.by, &promotion.taken);
        let kept = promotion.kept.iter().map(|(site, slots)| (site, slots));
        for (to, slots) in std::iter::once(taken).chain(kept).filter(|(to, _)| **to != own) {
            for (slot, epoch) in slots.iter() {
                if self.known.slots.token(slot).epoch() < epoch {
                    self.drop_slot(slot, Token::Gone { epoch, to: *to });
                }
            }
        }
    }

    /// A slot that was perhaps held here is not any more.
    fn drop_slot(&mut self, slot: Slot, token: Token) {
        for keyspace in self.known.keyspaces.globals() {
            if self.known.slots.store(keyspace, slot).is_some() {
                self.set_store(keyspace, slot, None);
            }
        }
        self.set_token(slot, token);
    }

    fn refuse_arrivals(&mut self, is_one: impl Fn(&MoveId) -> bool) {
        let ids = self.known.arrivals.under_way.keys().copied();
        let ids: Vec<MoveId> = ids.filter(is_one).collect();
        ids.into_iter().for_each(|id| self.refuse_arrival(id));
    }

    /// What the registry says of whose backup this site is.
    pub(super) fn note_backups(&mut self) {
        let deployment = &mut self.known.deployment;
        deployment.backs_up = super::deployment::backs_up(deployment.member.as_ref());
    }
}

impl<S: State> super::Machine<S> {
    /// Who is fenced here, for whose promotion.
    pub fn fences(&self) -> &BTreeMap<SiteId, (SiteId, u64)> {
        &self.known.fences
    }

    /// The registry, if this site belongs to a deployment.
    pub fn registry(&self) -> Option<&Arc<Registry>> {
        self.known.deployment.member.as_ref().map(|member| &member.registry)
    }
}
