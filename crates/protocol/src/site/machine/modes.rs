//! The modes of a site as the state machine has them: which family of commands is whose, and where the keys
//! of slots lie.

use super::causal::{self, Causal};
use super::copies::Copies;
use super::deployment::{self, Deployment};
use super::giving::{self, Move};
use super::keys::Place;
use super::mirroring::OwnMirrors;
use super::mirrors::Mirrors;
use super::orders::{self, Orders};
use super::published::Published;
use super::receiving::Arrivals;
use super::stores::Slots;
use super::{Applying, Machine, MachineError, Stopped, kept};
use crate::bugs::{self, Planted};
use crate::machine::ModeState;
use model::{
    Answer, Changed, Command, DeploymentCommand, Epoch, GlobalCommand, Keyspace, KeyspaceId,
    KeyspaceSpec, MoveId, Refusal, RegistryChange, SiteId, Slot, SlotEpochs, SlotSet,
};
use std::collections::BTreeMap;
use storage::state::{Read, State};

/// What a site knows of its modes. All of it can be read from the state again.
#[derive(Debug)]
pub struct Modes {
    pub(super) deployment: Deployment,
    pub(super) slots: Slots,
    pub(super) giving: BTreeMap<u64, Move>,
    pub(super) copies: Copies,
    pub(super) causal: Causal,
    /// What an earlier version kept of moves, until the next entry.
    pub(super) kept: BTreeMap<u64, SlotEpochs>,
    pub(super) orders: Orders,
    pub(super) arrivals: Arrivals,
    pub(super) mirrors: Mirrors,
    pub(super) own_mirrors: OwnMirrors,
    /// Whose records lie under a generation of no keyspace.
    pub(super) owners: BTreeMap<u64, Owner>,
    /// The slots with a changed token since [`Machine::take_changed_tokens`].
    pub(super) changed_tokens: SlotSet,
    pub(super) planted: Planted,
}

/// Whose records lie under a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A slot's of a global keyspace.
    Slot(KeyspaceId, Slot),
    /// A move's that is bringing them.
    Staged { id: MoveId, keyspace: KeyspaceId, slot: Slot },
    /// A mirror's of another site.
    Mirrored { from: SiteId, keyspace: KeyspaceId, slot: Slot },
    /// A copy's of a slot that another site owns.
    Copied { keyspace: KeyspaceId, slot: Slot },
}

impl ModeState for Modes {
    type Published = Published;

    fn load(state: &impl Read) -> Result<Modes, MachineError> {
        let deployment = Deployment::load(state)?;
        let holds_all = deployment.member.as_ref().map(|member| member.founder);
        let mut slots = Slots::load(state, holds_all)?;
        slots.fence(deployment::is_fenced(state)?);
        let arrivals = Arrivals::load(state)?;
        let mut mirrors = Mirrors::load(state)?;
        let mut copies = Copies::load(state)?;
        mirrors.bind(&mut copies);
        let of_slot = |((keyspace, slot), store): (_, super::stores::Store)| {
            (store.generation, Owner::Slot(keyspace, slot))
        };
        let mut owners: BTreeMap<u64, Owner> = slots.stores().map(of_slot).collect();
        owners.extend(arrivals.owners().chain(mirrors.owners()).chain(copies.owners()));
        Ok(Modes {
            deployment,
            slots,
            giving: giving::load(state)?,
            copies,
            causal: Causal::load(state)?,
            kept: kept::load(state)?,
            orders: orders::load(state)?,
            arrivals,
            mirrors,
            own_mirrors: OwnMirrors::load(state)?,
            owners,
            changed_tokens: SlotSet::default(),
            planted: Planted::default(),
        })
    }

    fn reload(&mut self, state: &impl Read) -> Result<(), MachineError> {
        *self = Modes { planted: self.planted, ..Modes::load(state)? };
        Ok(())
    }

    fn before_entry<S: State>(at: &mut Applying<'_, S>) {
        at.copy_mirrored();
        at.copy_kept();
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
        at.write_tokens();
        at.write_copies();
        at.write_registered();
        at.write_mirrors();
        at.write_causal();
    }

    fn serves(&self, slot: Slot) -> bool {
        self.slots.serves(slot)
    }

    fn epoch(&self, slot: Slot) -> Epoch {
        self.slots.token(slot).epoch()
    }

    fn count(&self, keyspace: KeyspaceId) -> u64 {
        self.slots.count(keyspace)
    }

    fn generations(&self, keyspace: KeyspaceId) -> Vec<(Slot, u64)> {
        let is_here = |of: KeyspaceId, slot| of == keyspace && self.slots.serves(slot);
        let here = self.slots.stores().filter(|((of, slot), _)| is_here(*of, *slot));
        here.map(|((_, slot), store)| (slot, store.generation)).collect()
    }

    fn place<S: State>(at: &mut Applying<'_, S>, keyspace: KeyspaceId, slot: Slot) -> Place {
        at.place_in_slot(keyspace, slot)
    }

    fn recount(&mut self, keyspace: KeyspaceId, slot: Slot, by: i64) {
        self.slots.recount(keyspace, slot, by);
    }

    fn expire<S: State>(at: &mut Applying<'_, S>, generation: u64, key: &[u8]) -> Option<Place> {
        match *at.modes.owners.get(&generation)? {
            Owner::Slot(keyspace, slot) => {
                return Some(Place { keyspace, slot: Some(slot), generation });
            }
            Owner::Staged { id, keyspace, slot } => at.expire_staged(id, keyspace, slot, key),
            Owner::Mirrored { from, keyspace, slot } => {
                at.expire_mirrored(from, (keyspace, slot), key);
            }
            Owner::Copied { keyspace, slot } => at.expire_copied(keyspace, slot, key),
        }
        None
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
        Ok(Some(Answer::Keyspace(Keyspace { id, spec: spec.clone() })))
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
        at.drop_mirrored(keyspace);
        at.drop_resynced(keyspace);
    }

    fn check_clear(&self, spec: &KeyspaceSpec) -> Result<(), Refusal> {
        match self.giving.is_empty() || !spec.is_global() {
            true if spec.is_causal() => {
                Err(Refusal::NotCausal("be cleared; delete its keys, or drop it"))
            }
            true => Ok(()),
            false => Err(Refusal::NotGlobal("be cleared while its slots move; try again")),
        }
    }

    fn clear<S: State>(at: &mut Applying<'_, S>, keyspace: KeyspaceId) {
        at.clear_slots(keyspace);
    }
}

impl<S: State> Machine<S> {
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
            DeploymentCommand::Confirm => Ok(self.confirm()),
            DeploymentCommand::Registrar(step) => self.registrar(step),
        }
    }

    fn global(&mut self, command: &GlobalCommand) -> Result<Answer, Stopped> {
        match command {
            GlobalCommand::Register { holder, slots } => self.register(*holder, slots),
            GlobalCommand::Giving { number, step } => self.giving(*number, step),
            GlobalCommand::Receiving { id, step } => self.receiving(*id, step),
            GlobalCommand::SetMirror { to } => self.set_mirror(*to),
            GlobalCommand::EndMirror { of, number } => self.end_mirror(*of, *number),
            GlobalCommand::Mirror { from, number, step } => self.mirror(*from, *number, step),
            // Of versions that knew no failovers.
            GlobalCommand::Fence { .. } | GlobalCommand::Promote { .. } => {
                Err(Refusal::from(model::BackupError::Outdated).into())
            }
            GlobalCommand::Inventory { registry, lost, failover } => {
                self.inventory(registry, *lost, *failover)
            }
            GlobalCommand::Supersede { slots, generation, position } => {
                Ok(self.supersede(slots, *generation, *position))
            }
            GlobalCommand::DiscardCopies { of } => self.discard_copies(*of),
        }
    }
}
