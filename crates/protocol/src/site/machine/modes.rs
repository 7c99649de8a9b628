//! The modes of a site as the state machine has them: which family of commands is whose, and where
//! the keys of slots lie.

use super::causal::{self, Causal, NOT_HELD};
use super::deployment::{self, Deployment};
use super::global::Owner;
use super::global::claims::Claims;
use super::global::copies::Copies;
use super::global::destination::Arrivals;
use super::global::loans::Loans;
use super::global::lost_writes::GivenUp;
use super::global::mirroring::OwnMirrors;
use super::global::mirrors::Mirrors;
use super::global::orders::{self, Orders};
use super::global::source::{self, Move};
use super::global::stores::Slots;
use super::keys::Place;
use super::lineage::Whose;
use super::published::Published;
use super::query::Served;
use super::{Applying, Machine, MachineError, Stopped};
use crate::bugs::{self, Bug, Planted};
use crate::global::ownership::lending::Part;
use crate::machine::ModeState;
use model::{
    Answer, Changed, Command, DeploymentCommand, Epoch, GlobalCommand, Group, Keyspace, KeyspaceId,
    KeyspaceSpec, Refusal, RegistryChange, Revision, Slot, SlotRun, SlotSet,
};
use std::collections::BTreeMap;
use storage::state::{Read, State};

/// What a site has of its modes. All of it can be read from the state again.
#[derive(Debug)]
pub struct Modes {
    pub(super) deployment: Deployment,
    pub(super) slots: Slots,
    pub(super) outgoing: BTreeMap<u64, Move>,
    pub(super) copies: Copies,
    pub(super) causal: Causal,
    pub(super) loans: Loans,
    pub(super) claims: Claims,
    pub(super) orders: Orders,
    pub(super) arrivals: Arrivals,
    pub(super) mirrors: Mirrors,
    pub(super) own_mirrors: OwnMirrors,
    pub(super) given_up: GivenUp,
    /// Whose records lie under a generation of no keyspace.
    pub(super) owners: BTreeMap<u64, Owner>,
    /// The slots with a changed token since [`Machine::take_changed_tokens`].
    pub(super) changed_tokens: SlotSet,
    /// The slots with groups that came here on loan since [`Machine::take_borrowed_slots`].
    pub(super) borrowed_slots: SlotSet,
    pub(super) planted: Planted,
}

impl ModeState for Modes {
    type Published = Published;

    fn load(state: &impl Read) -> Result<Modes, MachineError> {
        let deployment = Deployment::load(state)?;
        let holds_all = deployment.member.as_ref().map(|member| member.founder);
        let mut slots = Slots::load(state, holds_all)?;
        slots.fence(deployment::is_fenced(state)?);
        let arrivals = Arrivals::load(state)?;
        let mirrors = Mirrors::load(state)?;
        let mut copies = Copies::load(state)?;
        mirrors.bind(&mut copies);
        let of_slot = |((keyspace, slot), store): (_, super::store::Store)| {
            (store.generation, Owner::Slot(keyspace, slot))
        };
        let mut owners: BTreeMap<u64, Owner> = slots.stores().map(of_slot).collect();
        owners.extend(arrivals.owners().chain(mirrors.owners()).chain(copies.owners()));
        let loans = Loans::load(state)?;
        owners.extend(loans.owners());
        let held = loans.parts().filter(|(_, part)| part.borrowed.part == Part::Held);
        let borrowed_slots = held.map(|(group, _)| group.slot()).collect();
        Ok(Modes {
            deployment,
            slots,
            outgoing: source::load(state)?,
            copies,
            causal: Causal::load(state)?,
            loans,
            claims: Claims::load(state)?,
            orders: orders::load(state)?,
            arrivals,
            mirrors,
            own_mirrors: OwnMirrors::load(state)?,
            given_up: GivenUp::load(state)?,
            owners,
            changed_tokens: SlotSet::default(),
            borrowed_slots,
            planted: Planted::default(),
        })
    }

    fn reload(&mut self, state: &impl Read) -> Result<(), MachineError> {
        *self = Modes { planted: self.planted, ..Modes::load(state)? };
        Ok(())
    }

    fn pass_time<S: State>(at: &mut Applying<'_, S>) -> Result<(), MachineError> {
        at.order_due()
    }

    fn time_due_ms(&self) -> Option<u64> {
        let member = self.deployment.member.as_ref()?;
        let region = member.registry.region_of(member.own);
        let clock_of_others_ms =
            region.and_then(|region| self.causal.clock_of_others_ms(&member.registry, region));
        self.causal.time_due_ms(region, member.own, clock_of_others_ms)
    }

    fn forget_expiry<S: State>(
        at: &mut Applying<'_, S>,
        ms: u64,
        generation: u64,
        key: &[u8],
    ) -> Result<(), MachineError> {
        at.forget_agreed(ms, generation, key)
    }

    fn execute<S: State>(at: &mut Applying<'_, S>, command: &Command) -> Result<Answer, Stopped> {
        match command {
            Command::Deployment(command) => at.deployment(command),
            Command::Global(command) => at.global(command),
            Command::Causal(command) => at.causal(command),
            Command::Write { keyspace, write, .. } => at.causal_write(*keyspace, write),
            Command::Transaction { keyspace, guards, steps, .. } => {
                at.causal_transaction(*keyspace, guards, steps)
            }
            _ => unreachable!("the machine applies its own commands"),
        }
    }

    fn owns_writes(spec: &KeyspaceSpec) -> bool {
        causal::owns_writes(spec)
    }

    fn write<S: State>(at: &mut Applying<'_, S>) {
        at.write_stores();
        at.write_loans();
        at.write_tokens();
        at.write_copies();
        at.write_registered();
        at.write_given_up();
        at.write_mirrors();
        at.write_causal();
    }

    fn admit<S: State>(
        at: &mut Applying<'_, S>,
        command: &Command,
        slot: Slot,
    ) -> Result<Whose, Refusal> {
        let is_here = at.modes.slots.serves(slot);
        let lends = match command {
            Command::Write { keyspace, .. } | Command::Transaction { keyspace, .. } => {
                let spec = at.known.keyspaces.spec(*keyspace);
                spec.filter(|spec| spec.lends()).map(|_| *keyspace)
            }
            _ => None,
        };
        let Some(keyspace) = lends else {
            return if is_here { Ok(Whose::Own) } else { Err(Refusal::NotHeld(slot)) };
        };
        let group = Group { keyspace, tag: command.one_tag().ok_or(Refusal::CrossSlot)? };
        let is_home = at.modes.loans.row(Whose::Own, slot, &group).is_none();
        if is_here && (is_home || at.modes.planted.is(Bug::ServeLent)) {
            return Ok(Whose::Own);
        }
        let part = at.modes.loans.part(&group);
        let is_served = |part: &super::global::loans::PartRow| match part.borrowed.part {
            Part::Held => true,
            Part::Frozen => at.modes.planted.is(Bug::ServeGivenBack),
            _ => false,
        };
        match part.filter(|part| is_served(part) && !at.modes.is_fenced()) {
            Some(part) => {
                let more = command.properties().size_bytes as u64;
                if !at.may_grow(&group, &part, more) {
                    return Err(Refusal::NotHeld(slot));
                }
                at.touch(&group);
                Ok(Whose::Borrowed(part.generation))
            }
            None => Err(Refusal::NotHeld(slot)),
        }
    }

    fn served_since(&self, slot: Slot, whose: Whose) -> (Epoch, Revision) {
        let own = || {
            let changed = self.loans.count(Whose::Own, slot).changed;
            (self.slots.token(slot).epoch(), Revision(changed))
        };
        let Whose::Borrowed(generation) = whose else { return own() };
        let mut parts = self.loans.parts_of(SlotRun::one(slot));
        let part = parts.find(|(_, part)| part.generation == generation);
        part.map_or_else(own, |(_, part)| (part.served_under(), Revision(part.since)))
    }

    fn follow_records<S: State>(
        at: &mut Applying<'_, S>,
        run: SlotRun,
        from: Whose,
        to: Option<Whose>,
    ) {
        at.move_loans(run, from, to);
    }

    fn count(&self, keyspace: KeyspaceId) -> u64 {
        let lent = self.loans.lent_keys(keyspace, |slot| self.slots.serves(slot));
        let borrowed = self.borrowed(keyspace).map(|(_, part)| part.keys).sum::<u64>();
        (self.slots.count(keyspace) + borrowed).saturating_sub(lent)
    }

    fn served(&self, keyspace: KeyspaceId) -> Vec<Served> {
        let is_here = |of: KeyspaceId, slot| of == keyspace && self.slots.serves(slot);
        let here = self.slots.stores().filter(|((of, slot), _)| is_here(*of, *slot));
        let here = here.map(|((_, slot), store)| {
            let away = self.loans.rows_of(Whose::Own, SlotRun::one(slot));
            let away = away.filter(|(group, _)| group.keyspace == keyspace);
            let away = away.map(|(group, _)| group.tag.clone()).collect();
            Served { slot, tag: None, away, generation: store.generation }
        });
        let parts = self.borrowed(keyspace).map(|(group, part)| Served {
            slot: group.slot(),
            tag: Some(group.tag.clone()),
            away: Default::default(),
            generation: part.generation,
        });
        let mut all: Vec<Served> = here.chain(parts).collect();
        all.sort_by(|one, other| (one.slot, &one.tag).cmp(&(other.slot, &other.tag)));
        all
    }

    fn place<S: State>(at: &mut Applying<'_, S>, keyspace: KeyspaceId, slot: Slot) -> Place {
        match at.whose {
            Whose::Borrowed(generation) => Place { keyspace, slot: Some(slot), generation },
            _ => at.place_in_slot(keyspace, slot),
        }
    }

    fn recount(&mut self, place: Place, keys: i64, bytes: i64) {
        let Some(slot) = place.slot else { return };
        // Of what is at home the keys are counted alone.
        let may_be_part = keys != 0 || self.loans.has_parts();
        match self.owners.get(&place.generation).filter(|_| may_be_part) {
            Some(Owner::Borrowed { .. }) => {
                self.loans.recount_part(slot, place.generation, keys, bytes);
            }
            _ if keys == 0 => {}
            _ => self.slots.recount(place.keyspace, slot, keys),
        }
    }

    fn expire<S: State>(at: &mut Applying<'_, S>, generation: u64, key: &[u8]) -> Option<Place> {
        match *at.modes.owners.get(&generation)? {
            Owner::Slot(keyspace, slot) => {
                let tag = model::Bytes::copy_from_slice(model::tag(key));
                let group = Group { keyspace, tag };
                if at.modes.loans.row(Whose::Own, slot, &group).is_none() {
                    return Some(Place { keyspace, slot: Some(slot), generation });
                }
                at.expire_lent(&group, generation, key);
            }
            Owner::Borrowed { keyspace } => {
                let tag = model::Bytes::copy_from_slice(model::tag(key));
                let group = Group { keyspace, tag };
                let slot = Some(group.slot());
                // It is reported also if the part is not served now.
                at.touch(&group);
                let record = crate::machine::tables::record(generation, key);
                let row_bytes =
                    |row: Option<&[u8]>| row.map_or(0, |row| (key.len() + row.len()) as i64);
                let bytes = match at.overlay.look(&record, row_bytes) {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        at.failed = Some(error.into());
                        return None;
                    }
                };
                if at.modes.serves_part(&group) {
                    at.modes.loans.recount_part(group.slot(), generation, 0, -bytes);
                    return Some(Place { keyspace, slot, generation });
                }
                at.overlay.remove(record);
                at.modes.loans.recount_part(group.slot(), generation, -1, -bytes);
            }
            Owner::Staged { id, keyspace, slot } => at.expire_staged(id, keyspace, slot, key),
            Owner::Mirrored { from, keyspace, slot } => {
                at.expire_mirrored(from, (keyspace, slot), key);
            }
            Owner::Copied { keyspace, slot } => at.expire_copied(keyspace, slot, key),
        }
        None
    }

    fn check_read<S: State>(at: &mut Applying<'_, S>, keyspace: KeyspaceId) -> Result<(), Refusal> {
        let is_causal = at.known.keyspaces.spec(keyspace).is_some_and(KeyspaceSpec::is_causal);
        // It is about all of the keyspace.
        let is_part = at.causal_place(keyspace).is_none() || at.is_on_demand(keyspace);
        match is_causal && is_part {
            true => Err(NOT_HELD),
            false => Ok(()),
        }
    }

    fn create_keyspace<S: State>(
        at: &mut Applying<'_, S>,
        spec: &KeyspaceSpec,
    ) -> Result<Option<Answer>, Stopped> {
        if at.modes.deployment.member.is_none() {
            let is_shared = spec.is_global() || spec.is_causal();
            return if is_shared { Err(Refusal::NoDeployment.into()) } else { Ok(None) };
        }
        let change = RegistryChange::CreateKeyspace(spec.clone());
        let Changed::Keyspace(id) = at.change_alone(&change)? else {
            return Err(Refusal::NoDeployment.into());
        };
        Ok(Some(Answer::Keyspace(Box::new(Keyspace { id, spec: spec.clone() }))))
    }

    fn drop_keyspace<S: State>(
        at: &mut Applying<'_, S>,
        name: &str,
    ) -> Result<Option<Answer>, Stopped> {
        if at.modes.deployment.member.is_none() {
            return Ok(None);
        }
        at.change_alone(&RegistryChange::DropKeyspace(name.to_owned()))?;
        Ok(Some(at.done_now()))
    }

    fn keyspace_begins<S: State>(
        at: &mut Applying<'_, S>,
        keyspace: KeyspaceId,
    ) -> Result<(), Stopped> {
        at.watch_for_moves(keyspace)?;
        at.watch_for_mirror(keyspace)
    }

    fn keyspace_ends<S: State>(at: &mut Applying<'_, S>, keyspace: KeyspaceId) {
        at.drop_stores(keyspace);
        at.drop_loans_of(keyspace);
        at.drop_mirrored(keyspace);
        at.drop_resynced(keyspace);
    }

    fn check_clear<S: State>(
        at: &mut Applying<'_, S>,
        keyspace: KeyspaceId,
    ) -> Result<(), Refusal> {
        let Some(spec) = at.known.keyspaces.spec(keyspace).cloned() else { return Ok(()) };
        // It serves none of its slots: its mirror would be cleared, and its keys would not.
        if spec.is_global() && at.modes.is_fenced() {
            return Err(Refusal::Move(super::global::ownership::FAILOVER_OPEN));
        }
        if spec.lends() {
            at.check_clear_loans(keyspace)?;
        }
        match at.modes.outgoing.is_empty() || !spec.is_global() {
            true if spec.is_causal() => {
                Err(Refusal::NotCausal("be cleared with others at once: clear each keyspace"))
            }
            true => Ok(()),
            false => Err(Refusal::NotGlobal("be cleared while its slots move; try again")),
        }
    }

    fn clear<S: State>(at: &mut Applying<'_, S>, keyspace: KeyspaceId) {
        if let Err(error) = at.clear_served(keyspace) {
            at.failed = Some(error);
        }
    }
}

impl Modes {
    /// Whether this site serves a group as its borrower.
    pub(super) fn serves_part(&self, group: &Group) -> bool {
        let part = self.loans.part(group);
        part.is_some_and(|part| part.borrowed.part == Part::Held) && !self.is_fenced()
    }

    /// The parts of a keyspace that this site serves.
    fn borrowed(
        &self,
        keyspace: KeyspaceId,
    ) -> impl Iterator<Item = (&Group, &super::global::loans::PartRow)> + '_ {
        let is_fenced = self.is_fenced();
        let parts = self.loans.parts().filter(move |(group, _)| group.keyspace == keyspace);
        parts.filter(move |(_, part)| part.borrowed.part == Part::Held && !is_fenced)
    }
}

impl<S: State> Machine<S> {
    /// Of what is planted, what the rules of ownership have to do with.
    pub(in crate::site) fn planted_rules(&self) -> crate::global::ownership::trial::Planted {
        bugs::of_rules(self.modes.planted)
    }

    /// Has a bug from here on, in a trial.
    pub(in crate::site) fn plant(&mut self, planted: Planted) {
        self.modes.planted = planted;
        self.plant_here(bugs::of_machine(planted));
    }
}

impl<S: State> Applying<'_, S> {
    fn deployment(&mut self, command: &DeploymentCommand) -> Result<Answer, Stopped> {
        match command {
            DeploymentCommand::Found { deployment, site } => Ok(self.found(*deployment, site)),
            DeploymentCommand::Enter { site, registry } => self.enter(*site, registry),
            DeploymentCommand::ChangeRegistry(change) => self.change_registry(change),
            DeploymentCommand::LearnRegistry(registry) => self.learn_registry(registry),
            DeploymentCommand::SetRing(pointers) => Ok(self.set_ring(pointers)),
            DeploymentCommand::Confirm => Ok(self.confirm(None)),
            DeploymentCommand::ConfirmAbove { revision, later } => {
                Ok(self.confirm(Some((*revision, later))))
            }
            DeploymentCommand::Registrar(step) => self.registrar(step),
        }
    }

    fn global(&mut self, command: &GlobalCommand) -> Result<Answer, Stopped> {
        match command {
            GlobalCommand::Register { owner, slots } => self.register(*owner, slots),
            GlobalCommand::Source { number, step } => self.step_at_source(*number, step),
            GlobalCommand::Destination { id, step } => self.step_at_destination(*id, step),
            GlobalCommand::SetMirror { to } => self.set_mirror(*to),
            GlobalCommand::EndMirror { of, number } => self.end_mirror(*of, *number),
            GlobalCommand::Mirror { from, number, step } => self.mirror(*from, *number, step),
            GlobalCommand::Inventory { registry, lost, failover } => {
                self.inventory(registry, *lost, *failover)
            }
            GlobalCommand::Supersede { slots, generation, position } => {
                Ok(self.supersede(slots, *generation, *position))
            }
            GlobalCommand::SupersedeBy { by, .. } if !self.may_report(*by) => Ok(self.done_now()),
            GlobalCommand::SupersedeBy { slots, generation, position, .. } => {
                Ok(self.supersede(slots, *generation, *position))
            }
            GlobalCommand::DiscardCopies { of } => self.discard_copies(*of),
            GlobalCommand::Lending(step) => self.lending(step),
        }
    }
}
