//! The state of a machine, as the parts of [`crate::causal`] see it.

use crate::causal::Durable;
use crate::job::Effect;
use crate::site::machine::{Machine, MachineError};
use model::{
    Bytes, CausalWrite, HeldSize, KeyspaceId, Position, RegionId, ResyncItem, Revision, SiteId,
};
use std::cell::RefCell;
use storage::state::State;

/// What the parts see of a machine.
pub(in crate::site) struct Shown<'a, S: State> {
    machine: &'a Machine<S>,
    /// Why something could not be read.
    failed: RefCell<Option<String>>,
}

impl<'a, S: State> Shown<'a, S> {
    pub(in crate::site) fn of(machine: &'a Machine<S>) -> Shown<'a, S> {
        Shown { machine, failed: RefCell::new(None) }
    }

    fn read<T>(&self, rows: Result<Vec<T>, MachineError>) -> Vec<T> {
        rows.unwrap_or_else(|error| {
            *self.failed.borrow_mut() = Some(error.to_string());
            Vec::new()
        })
    }

    /// The node ends when its state cannot be read.
    pub(in crate::site) fn failure(self) -> Option<Effect> {
        self.failed.into_inner().map(Effect::Fail)
    }
}

impl<S: State> Durable for Shown<'_, S> {
    fn applied(&self) -> Position {
        self.machine.causal().applied()
    }

    fn kept_upto(&self) -> Revision {
        self.machine.causal().kept_upto()
    }

    fn unordered(&self, after: Revision, bytes_max: usize) -> Vec<CausalWrite> {
        match after < self.machine.causal().last_revision() {
            true => self.read(self.machine.unordered(after, bytes_max)),
            false => Vec::new(),
        }
    }

    fn order_last(&self) -> Position {
        self.machine.causal().order_last()
    }

    fn ordered_of(&self, site: SiteId) -> Option<(Revision, Position)> {
        self.machine.causal().ordered_of(site)
    }

    fn ordered(&self, after: Position, bytes_max: usize) -> Vec<(Position, SiteId, CausalWrite)> {
        self.read(self.machine.ordered(after, bytes_max))
    }

    fn trimmed_upto(&self) -> Position {
        self.machine.causal().trimmed_upto()
    }

    fn order_bytes(&self) -> u64 {
        self.machine.causal().order_bytes()
    }

    fn stopped_in(&self, epoch: u16) -> Option<bool> {
        self.machine.causal().stopped_in(epoch)
    }

    fn given_to(&self) -> Option<SiteId> {
        self.machine.causal().given_to()
    }

    fn ordered_all(&self) -> Vec<(SiteId, Revision, Position)> {
        self.machine.causal().ordered_all().collect()
    }

    fn last_revision(&self) -> Revision {
        self.machine.causal().last_revision()
    }

    fn whole_upto(&self) -> Option<Position> {
        self.machine.whole_upto()
    }

    fn is_resyncing(&self) -> bool {
        self.machine.causal().is_resyncing()
    }

    fn is_restored(&self) -> bool {
        self.machine.causal().is_restored()
    }

    fn lacks_own(&self, revision: Revision) -> bool {
        let lacked = self.machine.causal().lacks_own();
        lacked.is_some_and(|(after, upto)| after < revision && revision <= upto)
    }

    fn records(
        &self,
        after: Option<&(KeyspaceId, Bytes)>,
        bytes_max: usize,
        is_asked_for: &dyn Fn(KeyspaceId) -> bool,
    ) -> (Vec<ResyncItem>, Option<(KeyspaceId, Bytes)>) {
        let found = self.machine.causal_records(after, bytes_max, is_asked_for);
        match found {
            Ok(found) => (found.items, found.last),
            Err(error) => {
                *self.failed.borrow_mut() = Some(error.to_string());
                (Vec::new(), after.cloned())
            }
        }
    }

    fn log_time_ms(&self) -> u64 {
        self.machine.log_time_ms()
    }

    fn clock_ms(&self) -> u64 {
        self.machine.causal().clock_ms()
    }

    fn is_level(&self) -> bool {
        let is_level = |region| self.machine.causal().is_level(region);
        self.machine.region().is_none_or(is_level)
    }

    fn kept_after(&self) -> Option<Position> {
        let member = self.machine.membership()?;
        member.registry.has_regions().then(|| self.machine.causal().kept_after())
    }

    fn keeps_behind(&self, position: Position) -> bool {
        let keeps = |region| self.machine.causal().keeps_behind(region, position);
        self.machine.region().is_some_and(keeps)
    }

    fn taken_all(&self) -> Vec<(RegionId, Position)> {
        let Some((member, region)) = self.machine.membership().zip(self.machine.region()) else {
            return Vec::new();
        };
        self.machine.causal().taken_all(&member.registry, region)
    }

    fn taken_of(&self, region: RegionId) -> Position {
        let Some((member, own)) = self.machine.membership().zip(self.machine.region()) else {
            return Position::default();
        };
        self.machine.causal().taken_of(&member.registry, region, own.epoch)
    }

    fn holds_key(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        self.machine.causal().holds_key(keyspace, key)
    }

    fn holds_hash(&self, keyspace: KeyspaceId, hash: u32) -> bool {
        self.machine.causal().holds_hash(keyspace, hash)
    }

    fn held_size(&self, keyspace: KeyspaceId) -> HeldSize {
        self.machine.causal().held_size(keyspace)
    }

    fn least_read(&self, keyspace: KeyspaceId, bytes: u64, keys: u64) -> Vec<Bytes> {
        self.machine.least_read(keyspace, bytes, keys)
    }

    fn retries(&self) -> Vec<ResyncItem> {
        self.machine.retries()
    }
}
