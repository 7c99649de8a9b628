//! What a site has of its deployment: its identity there, the registry, the ring's pointers.
//!
//! Of the registry every site has a copy: the newest version that it has seen chosen. It takes over
//! what is newer, and makes and drops keyspaces as that states. So a site that is cut off still has
//! all definitions and a list of all sites. How it is changed is another matter ([`registrar`]).
//!
//! ```text
//! d d     → format 1 ‖ own id (varint) ‖ whether it began the deployment ‖ registry (wire::entry)
//! d f     → nothing, if this site began the deployment
//! d p     → ranges of slots (varints: first, last): they stay here wherever the hash puts them
//! d r     → the ring's pointers (protocol::global::ring)
//! d u     → nothing, if the site was restored from a backup and its slots are not confirmed;
//!           1, if they are not as a recovery of the registry began without the site
//! d x     → nothing, if the site is fenced: an open failover takes it for lost, or its slots are
//!           not confirmed
//! Y bucket → (0 | 1 ‖ owner (varint) ‖ epoch) of each slot   (slot_rows.rs)
//! ```

pub mod registrar;

use super::causal;
use super::global::tokens::Token;
use super::slot_rows::{self, Stale, Value};
use super::{Applying, Machine};
use super::{MachineError, Stopped, tables};
use crate::deployment::registry::Acceptor;
use crate::deployment::registry::trial::Planted;
use crate::global::backups::kept_at;
use model::{
    Answer, BySlot, Bytes, Changed, DeploymentId, Epoch, Keyspace, KeyspaceId, NUMBERS_SKIPPED,
    Refusal, Registry, RegistryChange, Revision, SiteEntry, SiteId, Slot, SlotEpochs, SlotRun,
    SlotSet,
};
use registrar::OwnAcceptor;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::state::{Batch, Read, State};
use wire::entry::{decode_registry, encode_registry};
use wire::row::{self, Code, Input, Rest};

/// A site's place in its deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentMember {
    /// Its id.
    pub own: SiteId,
    /// Whether it began the deployment, and so held every slot at first.
    pub founder: bool,
    /// The latest registry it has.
    pub registry: Arc<Registry>,
}

/// Why other sites may own the slots of a site by now: it serves none until they have stated what
/// they own ([`crate::site::confirming`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unconfirmed {
    /// It was restored from a backup, and its state is of former times.
    Restored,
    /// The registry was recovered, and the new term began without it. What failovers took until the
    /// join was handed in may be forgotten. Its state is complete.
    BegunWithout,
}

impl Unconfirmed {
    fn decode(row: &[u8]) -> Option<Unconfirmed> {
        match row {
            [] => Some(Unconfirmed::Restored),
            [1] => Some(Unconfirmed::BegunWithout),
            _ => None,
        }
    }

    fn row(self) -> &'static [u8] {
        match self {
            Unconfirmed::Restored => &[],
            Unconfirmed::BegunWithout => &[1],
        }
    }
}

/// What a site has of its deployment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deployment {
    pub(super) member: Option<DeploymentMember>,
    pub(super) ring: Bytes,
    pub(super) pinned: SlotSet,
    /// Why other sites may own its slots by now, if so.
    pub(super) unconfirmed: Option<Unconfirmed>,
    pub(super) registered: BySlot<(SiteId, Epoch)>,
    registered_rows: Stale,
    /// The sites whose mirrors are kept here.
    pub(super) backs_up: BTreeSet<SiteId>,
    /// Its part in holding the registry; its copy is the member's registry.
    pub(super) acceptor: Option<OwnAcceptor>,
}

impl Deployment {
    /// Whether the site was restored from a backup and has not confirmed what it owns.
    pub(super) fn is_restored(&self) -> bool {
        self.unconfirmed == Some(Unconfirmed::Restored)
    }

    /// A number that all nodes of the deployment have, and clients do not.
    pub(super) fn secret(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.registry.deployment.0)
    }
}

/// The sites whose backup a site is.
pub(super) fn backs_up(member: Option<&DeploymentMember>) -> BTreeSet<SiteId> {
    member.map_or_else(BTreeSet::new, |member| kept_at(&member.registry, member.own))
}

impl Deployment {
    pub(super) fn load(state: &impl Read) -> Result<Deployment, MachineError> {
        let member = membership(state)?;
        let ring = state.get(tables::RING)?.unwrap_or_default();
        let mut registered = BySlot::default();
        slot_rows::load(state, |run, owner: &Option<(SiteId, Epoch)>| {
            registered.set(run, *owner);
        })?;
        let pinned = match state.get(tables::PINNED)? {
            Some(row) => decode_pinned(row).ok_or(MachineError::Damaged { table: 'd' })?,
            None => SlotSet::default(),
        };
        let unconfirmed = match state.get(tables::UNCONFIRMED)? {
            Some(row) => {
                let decoded = Unconfirmed::decode(&row);
                Some(decoded.ok_or(MachineError::Damaged { table: 'd' })?)
            }
            None => None,
        };
        let backs_up = backs_up(member.as_ref());
        let acceptor = registrar::load(state, member.as_ref())?;
        Ok(Deployment {
            member,
            ring,
            pinned,
            unconfirmed,
            registered,
            registered_rows: Stale::default(),
            backs_up,
            acceptor,
        })
    }
}

/// Whether the site began its deployment, by the state.
pub(super) fn is_founder(state: &impl Read) -> Result<bool, MachineError> {
    Ok(state.get(tables::FOUNDER)?.is_some())
}

/// Marks a state that was restored from a backup: the site serves none of its slots until all other
/// sites have stated what they own ([`DeploymentCommand::ConfirmAbove`]), and is no root of causal
/// keys until it is certain how far the order is. A site without others is not marked. Returns
/// whether it was.
///
/// [`DeploymentCommand::ConfirmAbove`]: model::DeploymentCommand::ConfirmAbove
pub fn mark_restored(state: &impl State) -> Result<bool, MachineError> {
    let is_other =
        |member: &DeploymentMember| member.registry.sites.iter().any(|site| site.id != member.own);
    let has_others = membership(state)?.as_ref().is_some_and(is_other);
    if has_others {
        let mut batch = Batch::default();
        batch.put(tables::UNCONFIRMED, Bytes::from_static(Unconfirmed::Restored.row()));
        batch.put(tables::FENCED, Bytes::new());
        causal::restored::mark(state, &mut batch)?;
        state.commit(batch)?;
    }
    Ok(has_others)
}

/// Whether the site is fenced, by the state.
pub(super) fn is_fenced(state: &impl Read) -> Result<bool, MachineError> {
    Ok(state.get(tables::FENCED)?.is_some())
}

/// A site's place in its deployment, by the state.
pub(super) fn membership(state: &impl Read) -> Result<Option<DeploymentMember>, MachineError> {
    let Some(row) = state.get(tables::DEPLOYMENT)? else { return Ok(None) };
    let decoded = decode(row).ok_or(MachineError::Damaged { table: 'd' })?;
    Ok(Some(decoded))
}

fn decode(row: Bytes) -> Option<DeploymentMember> {
    let (own, (founder, Rest(registry))) = row::decode(&row)?;
    let registry = Arc::new(decode_registry(registry).ok()?);
    Some(DeploymentMember { own, founder, registry })
}

fn decode_pinned(row: Bytes) -> Option<SlotSet> {
    let (mut row, mut ranges) = (Input::new(row), Vec::new());
    while !row.is_empty() {
        ranges.push(Code::take(&mut row).ok()?);
    }
    SlotSet::from_ranges(ranges)
}

/// The owner of a slot, as it was registered here.
impl Value for Option<(SiteId, Epoch)> {
    const TABLE: u8 = tables::REGISTERED;
}

impl<S: State> Applying<'_, S> {
    pub(super) fn done_now(&self) -> Answer {
        Answer::Done(self.known.head.revision)
    }

    /// This site's place; most steps need one.
    pub(super) fn member(&self) -> Result<&DeploymentMember, Refusal> {
        self.modes.deployment.member.as_ref().ok_or(Refusal::NoDeployment)
    }

    pub(super) fn found(&mut self, deployment: DeploymentId, site: &SiteEntry) -> Answer {
        if self.modes.deployment.member.is_none() {
            let own = SiteId(1);
            let mut registry = Registry {
                sites: vec![SiteEntry { id: own, leaving: false, ..site.clone() }],
                keyspaces: self.known.keyspaces.made(),
                site_next: own.0 + 1,
                keyspace_next: self.known.head.keyspace_next,
                ..Registry::empty(deployment, 0)
            };
            registry.begin(own);
            registry.changes = 1;
            self.modes.slots.begin(true);
            self.set_member(DeploymentMember { own, founder: true, registry: Arc::new(registry) });
        }
        self.done_now()
    }

    pub(super) fn enter(&mut self, own: SiteId, registry: &Registry) -> Result<Answer, Stopped> {
        if let Some(member) = &self.modes.deployment.member {
            let same = member.own == own && member.registry.deployment == registry.deployment;
            return if same { Ok(self.done_now()) } else { Err(Refusal::NoDeployment.into()) };
        }
        self.modes.slots.begin(false);
        let registry = Arc::new(registry.clone());
        self.set_member(DeploymentMember { own, founder: false, registry });
        self.follow_keyspaces()?;
        Ok(self.done_now())
    }

    /// Takes a newer registry over.
    pub(super) fn learn_registry(&mut self, registry: &Registry) -> Result<Answer, Stopped> {
        let member = self.member()?.clone();
        if member.registry.deployment != registry.deployment {
            return Err(Refusal::NoDeployment.into());
        }
        let value = Arc::new(registry.clone());
        let acceptor = self.modes.deployment.acceptor.as_mut().ok_or(Refusal::NoDeployment)?;
        if acceptor.learn(value.clone(), Planted::none()) {
            let before = member.registry.clone();
            self.unconfirm(&before, registry);
            self.set_member(DeploymentMember { registry: value, ..member });
            // What is refused of the keyspaces is no reason to miss a failover.
            let keyspaces = self.follow_keyspaces();
            self.follow_failovers(&before)?;
            keyspaces?;
        }
        Ok(self.done_now())
    }

    /// A term of the registry that began without this site may have decided failovers about its
    /// slots, and forgotten them, as the site was not listed. Its slots are to be confirmed.
    fn unconfirm(&mut self, before: &Registry, registry: &Registry) {
        let deployment = &mut self.modes.deployment;
        let Some(own) = deployment.member.as_ref().map(|member| member.own) else { return };
        // The same, if it has not handed its join in since the recovery before.
        let kept = deployment.acceptor.as_ref().map(|acceptor| &acceptor.kept().joins[..]);
        let hands_in = || kept.unwrap_or_default().iter().any(|site| site.id == own);
        let is_other_term = registry.version.term != before.version.term;
        if is_other_term
            && deployment.unconfirmed.is_none()
            && (before.is_begun_without(registry, own) || hands_in())
        {
            let why = Unconfirmed::BegunWithout;
            deployment.unconfirmed = Some(why);
            self.overlay.put(tables::UNCONFIRMED, Bytes::from_static(why.row()));
        }
    }

    pub(super) fn change_registry(&mut self, change: &RegistryChange) -> Result<Answer, Stopped> {
        let changed = self.change_alone(change)?;
        let registry = Box::new((*self.member()?.registry).clone());
        let Changed::Site(site) = changed else { return Ok(self.done_now()) };
        Ok(Answer::Registered { site, registry })
    }

    /// Makes, changes and drops keyspaces as the registry has it.
    fn follow_keyspaces(&mut self) -> Result<(), Stopped> {
        let registry = self.member()?.registry.clone();
        let made = self.known.keyspaces.made();
        // What was made beyond the end of a term is handed in, with all that it holds.
        let acceptor = self.modes.deployment.acceptor.as_ref();
        let kept = acceptor.map(|acceptor| &acceptor.kept().keyspaces[..]).unwrap_or_default();
        let wanted: BTreeSet<KeyspaceId> =
            registry.keyspaces.iter().chain(kept).map(|keyspace| keyspace.id).collect();
        let gone = made.iter().filter(|keyspace| !wanted.contains(&keyspace.id));
        for keyspace in gone {
            self.remove_keyspace(keyspace.id);
        }
        for keyspace in &registry.keyspaces {
            self.follow_agreed(keyspace.id, &keyspace.spec);
        }
        let there: BTreeSet<KeyspaceId> = made.iter().map(|keyspace| keyspace.id).collect();
        let new: Vec<Keyspace> =
            registry.keyspaces.iter().filter(|k| !there.contains(&k.id)).cloned().collect();
        for keyspace in new {
            self.add_keyspace(keyspace)?;
        }
        let next = self.known.head.keyspace_next.max(registry.keyspace_next);
        self.known.head.keyspace_next = next;
        self.follow_region()
    }

    pub(super) fn set_ring(&mut self, pointers: &Bytes) -> Answer {
        self.modes.deployment.ring = pointers.clone();
        self.overlay.put(tables::RING, pointers.clone());
        self.done_now()
    }

    /// Slots stay here wherever the hash puts them, or no longer.
    pub(super) fn pin(&mut self, slots: &SlotSet, pinned: bool) {
        let before = self.modes.deployment.pinned.clone();
        for run in slots.runs() {
            match pinned {
                true => self.modes.deployment.pinned.insert_run(run),
                false => self.modes.deployment.pinned.remove_run(run),
            }
        }
        let after = &self.modes.deployment.pinned;
        if *after != before {
            let mut row = Vec::new();
            after.ranges().iter().for_each(|range| range.put(&mut row));
            self.overlay.put(tables::PINNED, row);
        }
    }

    /// Notes who holds slots. What is known of a later epoch stays.
    pub(super) fn register(
        &mut self,
        owner: SiteId,
        slots: &SlotEpochs,
    ) -> Result<Answer, Stopped> {
        self.member()?;
        self.learn_owner(owner, slots);
        let Deployment { registered, registered_rows, .. } = &mut self.modes.deployment;
        for (run, epoch) in slots.runs() {
            let older: Vec<SlotRun> = run
                .cut(|slot| registered.run_at(slot).0)
                .filter(|run| registered.get(run.first).is_none_or(|(_, known)| *known < epoch))
                .collect();
            for run in older {
                registered.set(run, Some((owner, epoch)));
                registered_rows.note(run);
                // The map of slots follows.
                self.modes.slots.dirty.tokens.insert_run(run);
            }
        }
        Ok(self.done_now())
    }

    /// Brings the registered owners that changed into the state.
    pub(super) fn write_registered(&mut self) {
        let Deployment { registered_rows, registered, .. } = &mut self.modes.deployment;
        registered_rows.write(&mut self.overlay, None, |slot| {
            let (last, owner) = registered.run_at(slot);
            (last, owner.copied())
        });
    }

    fn set_member(&mut self, member: DeploymentMember) {
        let registry = Rest(encode_registry(&member.registry));
        let row = row::encode(&(member.own, (member.founder, registry)));
        self.overlay.put(tables::DEPLOYMENT, row);
        if member.founder {
            self.overlay.put(tables::FOUNDER, Bytes::new());
        }
        let deployment = &mut self.modes.deployment;
        // Only at the beginning: from then on the acceptor has taken it over first.
        let copy = || Acceptor::new(member.registry.clone());
        deployment.acceptor.get_or_insert_with(copy);
        deployment.member = Some(member);
        self.write_acceptor();
        self.note_backups();
        self.follow_fence();
    }

    /// The slots of a site that had to confirm them are its own, and those that are not are given
    /// up. Others have copies of them from before, up to this revision, and have learned of later epochs of its
    /// own; `None`: an earlier version did not ask for that.
    pub(super) fn confirm(&mut self, before: Option<(Revision, &SlotEpochs)>) -> Answer {
        let is_listed = |member: &DeploymentMember| member.registry.site(member.own).is_some();
        if !self.modes.deployment.member.as_ref().is_some_and(is_listed) {
            return self.done_now();
        }
        if let Some(why) = self.modes.deployment.unconfirmed.take() {
            self.overlay.remove(tables::UNCONFIRMED);
            self.follow_fence();
            if let Some((above, later)) = before {
                // No number is given again, and the mirror begins anew: the backup is further than
                // the state is.
                let head = &mut self.known.head;
                let highest = head.revision.0.max(above.0);
                head.revision = Revision(highest.saturating_add(NUMBERS_SKIPPED));
                self.next_revision();
                self.forget_own_mirrors();
                let alike = |(slots, epoch): &(SlotSet, Epoch)| (self.alike(slots), *epoch);
                for (runs, epoch) in later.0.iter().map(alike).collect::<Vec<_>>() {
                    for run in runs {
                        // No site takes a stream or a slot at an epoch below one that it has
                        // learned.
                        if matches!(self.modes.slots.token(run.first), Token::Held(own) if own < epoch)
                        {
                            self.set_token(run, Token::Held(epoch.next()));
                        }
                    }
                }
            }
            if why == Unconfirmed::Restored {
                self.confirm_causal();
                self.give_up_parts();
            }
            self.offer_anew(SlotRun::ALL, None);
        }
        self.done_now()
    }

    fn follow_fence(&mut self) {
        let fenced = self.modes.is_fenced();
        if self.modes.slots.fence(fenced) {
            match fenced {
                true => self.overlay.put(tables::FENCED, Bytes::new()),
                false => self.overlay.remove(tables::FENCED),
            }
        }
    }
}

impl super::Modes {
    /// The owner of a slot in this site's records: itself, the destination of its own handover, or
    /// a site that registered the slot here.
    pub(super) fn owner(&self, slot: Slot) -> Option<(SiteId, Epoch)> {
        let own = self.deployment.member.as_ref()?.own;
        let by_token = match self.slots.token(slot) {
            Token::Never => None,
            Token::Held(epoch) | Token::Leaving { epoch, .. } => Some((own, epoch)),
            Token::Gone { epoch, to } => Some((to, epoch)),
        };
        let by_word = self.deployment.registered.get(slot).copied();
        by_token.into_iter().chain(by_word).max_by_key(|(_, epoch)| *epoch)
    }

    /// A slot up to which all have the same owner in these records as this one.
    pub(super) fn same_owner_until(&self, slot: Slot) -> Slot {
        self.slots.token_run(slot).0.min(self.deployment.registered.run_at(slot).0)
    }
}
