//! What a site knows of its deployment: who it is there, the registry, the ring's pointers.
//!
//! The registry has one order of versions, as only the site that holds its slot changes it; the
//! others take over what is newer than theirs, and make and drop keyspaces as it says. So a site
//! that is cut off still has all definitions and knows all sites.
//!
//! ```text
//! d d     → format 1 ‖ own id (varint) ‖ whether it began the deployment ‖ registry (wire::entry)
//! d f     → nothing, if this site began the deployment
//! d p     → ranges of slots (varints: first, last): they stay here whatever the hash says
//! d r     → the ring's pointers (protocol::global::ring)
//! y slot  → holder (varint) ‖ epoch (varint)
//! ```

use super::apply::Applying;
use super::tokens::Token;
use super::{MachineError, Stopped, tables};
use crate::global::backups::kept_at;
use model::{
    Answer, Backups, Bytes, DeploymentId, Epoch, Keyspace, KeyspaceId, Refusal, Registry,
    RegistryChange, SiteEntry, SiteId, Slot, SlotEpochs, SlotSet,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::state::{Read, State};
use wire::entry::{decode_registry, encode_registry, put_varint, take_varint};

const FORMAT: u8 = 1;

/// A site's place in its deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Its id.
    pub own: SiteId,
    /// Whether it began the deployment, and so held every slot at first.
    pub founder: bool,
    /// The latest registry it has heard of.
    pub registry: Arc<Registry>,
}

/// What a site knows of its deployment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deployment {
    pub(super) member: Option<Membership>,
    pub(super) ring: Bytes,
    pub(super) pinned: SlotSet,
    pub(super) registered: BTreeMap<Slot, (SiteId, Epoch)>,
    /// The sites whose mirrors are kept here.
    pub(super) backs_up: BTreeSet<SiteId>,
}

/// The sites whose backup a site is.
pub(super) fn backs_up(member: Option<&Membership>) -> BTreeSet<SiteId> {
    member.map_or_else(BTreeSet::new, |member| kept_at(&member.registry, member.own))
}

impl Deployment {
    pub(super) fn load(state: &impl Read) -> Result<Deployment, MachineError> {
        let member = membership(state)?;
        let ring = state.get(tables::RING)?.unwrap_or_default();
        let mut registered = BTreeMap::new();
        for (key, row) in super::rows(state, tables::REGISTERED)? {
            let read = tables::parse_slot(&key[1..]).zip(decode_holder(&row));
            let damaged = MachineError::Damaged { table: tables::REGISTERED as char };
            let (slot, holder) = read.ok_or(damaged)?;
            registered.insert(slot, holder);
        }
        let pinned = match state.get(tables::PINNED)? {
            Some(row) => decode_pinned(&row).ok_or(MachineError::Damaged { table: 'd' })?,
            None => SlotSet::default(),
        };
        let backs_up = backs_up(member.as_ref());
        Ok(Deployment { member, ring, pinned, registered, backs_up })
    }
}

/// Whether the site began its deployment, by the state.
pub(super) fn is_founder(state: &impl Read) -> Result<bool, MachineError> {
    Ok(state.get(tables::FOUNDER)?.is_some())
}

/// A site's place in its deployment, by the state.
pub(super) fn membership(state: &impl Read) -> Result<Option<Membership>, MachineError> {
    let Some(row) = state.get(tables::DEPLOYMENT)? else { return Ok(None) };
    let decoded = decode(row).ok_or(MachineError::Damaged { table: 'd' })?;
    Ok(Some(decoded))
}

fn decode(row: Bytes) -> Option<Membership> {
    let (&format, rest) = row.split_first()?;
    let (own, len) = take_varint(rest)?;
    let founder = *rest.get(len)? == 1;
    let registry = decode_registry(row.slice(2 + len..)).ok()?;
    let own = SiteId(u32::try_from(own).ok()?);
    (format == FORMAT).then_some(Membership { own, founder, registry: Arc::new(registry) })
}

fn decode_pinned(mut row: &[u8]) -> Option<SlotSet> {
    let mut ranges = Vec::new();
    while !row.is_empty() {
        let (first, len) = take_varint(row)?;
        let (last, last_len) = take_varint(&row[len..])?;
        row = &row[len + last_len..];
        ranges.push((u16::try_from(first).ok()?, u16::try_from(last).ok()?));
    }
    SlotSet::from_ranges(ranges)
}

fn decode_holder(row: &[u8]) -> Option<(SiteId, Epoch)> {
    let (site, len) = take_varint(row)?;
    let (epoch, _) = take_varint(&row[len..])?;
    Some((SiteId(u32::try_from(site).ok()?), Epoch(epoch)))
}

impl<S: State> Applying<'_, S> {
    fn done_now(&self) -> Answer {
        Answer::Done(self.known.head.revision)
    }

    /// This site's place; most steps need one.
    pub(super) fn member(&self) -> Result<&Membership, Refusal> {
        self.known.deployment.member.as_ref().ok_or(Refusal::NoDeployment)
    }

    pub(super) fn found(&mut self, deployment: DeploymentId, site: &SiteEntry) -> Answer {
        if self.known.deployment.member.is_none() {
            let own = SiteId(1);
            let registry = Registry {
                deployment,
                version: 1,
                sites: vec![SiteEntry { id: own, leaving: false, ..site.clone() }],
                keyspaces: self.known.keyspaces.made(),
                site_next: own.0 + 1,
                keyspace_next: self.known.head.keyspace_next,
                backups: Backups::default(),
            };
            self.known.slots.begin(true);
            self.set_member(Membership { own, founder: true, registry: Arc::new(registry) });
        }
        self.done_now()
    }

    pub(super) fn enter(&mut self, own: SiteId, registry: &Registry) -> Result<Answer, Stopped> {
        if let Some(member) = &self.known.deployment.member {
            let same = member.own == own && member.registry.deployment == registry.deployment;
            return if same { Ok(self.done_now()) } else { Err(Refusal::NoDeployment.into()) };
        }
        self.known.slots.begin(false);
        let registry = Arc::new(registry.clone());
        self.set_member(Membership { own, founder: false, registry });
        self.follow_keyspaces()?;
        Ok(self.done_now())
    }

    /// Takes a newer registry over.
    pub(super) fn learn_registry(&mut self, registry: &Registry) -> Result<Answer, Stopped> {
        let member = self.member()?;
        if member.registry.deployment != registry.deployment {
            return Err(Refusal::NoDeployment.into());
        }
        if member.registry.version < registry.version {
            let registry = Arc::new(registry.clone());
            self.set_member(Membership { registry, ..member.clone() });
            self.follow_keyspaces()?;
            self.follow_promotions()?;
        }
        Ok(self.done_now())
    }

    pub(super) fn change_registry(&mut self, change: &RegistryChange) -> Result<Answer, Stopped> {
        self.check_may_change()?;
        let member = self.member()?.clone();
        let mut registry = (*member.registry).clone();
        let site = registry.change(change).map_err(Refusal::from)?;
        if registry.version != member.registry.version {
            self.set_member(Membership { registry: Arc::new(registry.clone()), ..member });
            self.follow_promotions()?;
        }
        Ok(Answer::Registered { site, registry: Box::new(registry) })
    }

    /// Whether the registry may be changed here, if there is one.
    pub(super) fn check_may_change(&self) -> Result<(), Refusal> {
        let holds = self.known.slots.token(Registry::slot()).serves();
        match &self.known.deployment.member {
            Some(_) if !holds => Err(Refusal::NotHeld(Registry::slot())),
            _ => Ok(()),
        }
    }

    /// The keyspaces were changed here, at the site that may.
    pub(super) fn publish_keyspaces(&mut self) {
        let Some(member) = self.known.deployment.member.clone() else { return };
        let mut registry = (*member.registry).clone();
        registry.keyspaces = self.known.keyspaces.made();
        registry.keyspace_next = self.known.head.keyspace_next;
        registry.version += 1;
        self.set_member(Membership { registry: Arc::new(registry), ..member });
    }

    /// Makes and drops keyspaces as the registry has it.
    fn follow_keyspaces(&mut self) -> Result<(), Stopped> {
        let registry = self.member()?.registry.clone();
        let made = self.known.keyspaces.made();
        let wanted: BTreeSet<KeyspaceId> = registry.keyspaces.iter().map(|k| k.id).collect();
        let gone = made.iter().filter(|keyspace| !wanted.contains(&keyspace.id));
        for keyspace in gone {
            self.remove_keyspace(keyspace.id);
        }
        let there: BTreeSet<KeyspaceId> = made.iter().map(|keyspace| keyspace.id).collect();
        let new: Vec<Keyspace> =
            registry.keyspaces.iter().filter(|k| !there.contains(&k.id)).cloned().collect();
        for keyspace in new {
            self.add_keyspace(keyspace)?;
        }
        let next = self.known.head.keyspace_next.max(registry.keyspace_next);
        self.known.head.keyspace_next = next;
        Ok(())
    }

    pub(super) fn set_ring(&mut self, pointers: &Bytes) -> Answer {
        self.known.deployment.ring = pointers.clone();
        self.overlay.put(tables::RING, pointers.clone());
        self.done_now()
    }

    /// Slots stay here whatever the hash says, or no longer.
    pub(super) fn pin(&mut self, slots: &SlotSet, pinned: bool) {
        let before = self.known.deployment.pinned.clone();
        for slot in slots.iter() {
            match pinned {
                true => self.known.deployment.pinned.insert(slot),
                false => self.known.deployment.pinned.remove(slot),
            }
        }
        let after = &self.known.deployment.pinned;
        if *after != before {
            let mut row = Vec::new();
            for (first, last) in after.ranges() {
                put_varint(u64::from(*first), &mut row);
                put_varint(u64::from(*last), &mut row);
            }
            self.overlay.put(tables::PINNED, row);
        }
    }

    /// Notes who holds slots. What is known of a later epoch stays.
    pub(super) fn register(
        &mut self,
        holder: SiteId,
        slots: &SlotEpochs,
    ) -> Result<Answer, Stopped> {
        self.member()?;
        for (slot, epoch) in slots.iter() {
            let known = self.known.deployment.registered.get(&slot);
            if known.is_some_and(|(_, known)| *known >= epoch) {
                continue;
            }
            self.known.deployment.registered.insert(slot, (holder, epoch));
            let mut row = Vec::new();
            put_varint(u64::from(holder.0), &mut row);
            put_varint(epoch.0, &mut row);
            self.overlay.put(tables::registered(slot), row);
        }
        Ok(self.done_now())
    }

    fn set_member(&mut self, member: Membership) {
        let mut row = vec![FORMAT];
        put_varint(u64::from(member.own.0), &mut row);
        row.push(u8::from(member.founder));
        row.extend_from_slice(&encode_registry(&member.registry));
        self.overlay.put(tables::DEPLOYMENT, row);
        if member.founder {
            self.overlay.put(tables::FOUNDER, Bytes::new());
        }
        self.known.deployment.member = Some(member);
        self.note_backups();
    }
}

impl super::Known {
    /// Who holds a slot, as far as this site knows: itself, whom it gave it to, or who has said so.
    pub(super) fn holder(&self, slot: Slot) -> Option<(SiteId, Epoch)> {
        let own = self.deployment.member.as_ref()?.own;
        let by_token = match self.slots.token(slot) {
            Token::Never => None,
            Token::Held(epoch) | Token::Leaving { epoch, .. } => Some((own, epoch)),
            Token::Gone { epoch, to } => Some((to, epoch)),
        };
        let by_word = self.deployment.registered.get(&slot).copied();
        by_token.into_iter().chain(by_word).max_by_key(|(_, epoch)| *epoch)
    }
}
