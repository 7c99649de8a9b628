//! When keys expire: by the root's log time, at a place of the order, and at no site before that.
//!
//! A key's expiry is a register: the moment, and the write that has set it. It lies in the key's
//! record, which no clock removes ([`Agreed`]), and is kept without a key, too: what another site
//! writes to the key next may have been ordered behind it. `K e` has the moments in order.
//!
//! The root looks for what is due as it applies an entry, and orders that it goes
//! ([`Effect::Expire`]), if it is certain that no other write to the key's expiry comes before that
//! place:
//!
//! - its own writes to the expiry all have positions that are imported, so that the record shows
//!   the order;
//! - of what is ordered and not imported nothing assigns the expiry.
//!
//! Otherwise that is imported soon, with an entry, and the root looks again. So an expiry never
//! removes what a later write has put or prolonged, and every site can take it as a removal.
//!
//! While no root orders, keys stay readable though their moment has passed.

use super::super::keys::Place;
use super::super::records::{Agreed, Record};
use super::super::{Applying, tables};
use super::rows;
use crate::bugs::Bug;
use crate::machine::MachineError;
use model::{
    Bytes, CausalWrite, ChangeKind, Effect, KeyspaceId, NO_SITE, Position, Region, Revision,
    SiteId, limits,
};
use std::collections::BTreeSet;
use storage::state::{Read as _, State};

impl super::Causal {
    /// When this site, as the root, should look for what is due: if nothing that it waits for
    /// brings an entry.
    pub(in crate::site::machine) fn time_due_ms(
        &self,
        region: Option<&Region>,
        own: SiteId,
        clock_of_others_ms: Option<u64>,
    ) -> Option<u64> {
        let region = region?;
        let is_settled = self.head.applied == self.head.order_last && self.unordered == 0;
        let orders = region.root == own
            && self.has_begun(region)
            && self.stopped_in(region.epoch).is_none()
            && (clock_of_others_ms.is_none() || self.is_level(region))
            && self.head.order_bytes
                < match clock_of_others_ms {
                    Some(_) => limits::CAUSAL_BRIDGED_BYTES_MAX,
                    None => limits::CAUSAL_ORDER_BYTES_MAX,
                };
        let is_said = |next: &u64| clock_of_others_ms.is_none_or(|said_ms| *next <= said_ms);
        self.next_expiry.filter(|_| is_settled && orders).filter(is_said)
    }
}

impl<S: State> Applying<'_, S> {
    /// The moment at which a key expires is another one.
    pub(super) fn move_expiry(
        &mut self,
        generation: u64,
        key: &[u8],
        old: Option<Agreed>,
        new: Option<Agreed>,
    ) -> Result<(), MachineError> {
        let (old, new) = (old.map(|one| one.ms), new.map(|one| one.ms));
        if old == new {
            return Ok(());
        }
        if let Some(ms) = new {
            self.overlay.put(rows::of_expiry(ms, generation, key), Bytes::new());
            let next = &mut self.modes.causal.next_expiry;
            *next = Some(next.map_or(ms, |next| next.min(ms)));
        }
        if let Some(ms) = old {
            self.forget_agreed(ms, generation, key)?;
        }
        Ok(())
    }

    /// A record has no expiry any more, or goes as garbage.
    pub(in crate::site::machine) fn forget_agreed(
        &mut self,
        ms: u64,
        generation: u64,
        key: &[u8],
    ) -> Result<(), MachineError> {
        self.overlay.remove(rows::of_expiry(ms, generation, key));
        if self.modes.causal.next_expiry == Some(ms) {
            self.modes.causal.next_expiry = rows::first_expiries(&self.overlay, ms, 0, 0)?.1;
        }
        Ok(())
    }

    /// At the root: keys that are due by log time are ordered to go, an entry's share of them.
    pub(in crate::site::machine) fn order_due(&mut self) -> Result<(), MachineError> {
        let mut now_ms = self.known.head.log_time_ms;
        if self.modes.planted.is(Bug::ExpireByOwnClock) {
            return self.hide_due();
        }
        let Some(next_ms) = self.modes.causal.next_expiry.filter(|next| *next <= now_ms) else {
            return Ok(());
        };
        let Ok(region) = self.region().copied() else { return Ok(()) };
        let epoch = region.epoch;
        if self.check_gives(epoch).is_err() {
            return Ok(());
        }
        let registry = self.member().map(|member| member.registry.clone());
        let clock_of_others_ms = registry
            .ok()
            .and_then(|registry| self.modes.causal.clock_of_others_ms(&registry, &region));
        let has_regions = clock_of_others_ms.is_some();
        // Another region may have prolonged it before it was due.
        now_ms = now_ms.min(clock_of_others_ms.unwrap_or(u64::MAX));
        let Some(on_its_way) = self.assigned_unimported()? else { return Ok(()) };
        let max = limits::EXPIRED_PER_ENTRY_MAX;
        let (due, _) = rows::first_expiries(&self.overlay, next_ms, now_ms, max)?;
        for (ms, generation, key) in due {
            if self.order_is_full() {
                return Ok(());
            }
            // What has no owner goes as garbage. Its row would keep others from being looked at.
            let Some(keyspace) = self.known.keyspaces.owner(generation) else {
                self.forget_agreed(ms, generation, &key)?;
                continue;
            };
            let place = Place { keyspace, slot: None, generation };
            let head = |row: Option<&[u8]>| row.map(Record::decode_head).transpose();
            let record = self.overlay.look(&tables::record(generation, &key), head)??;
            let Some(Agreed { of: (site, revision), .. }) =
                record.and_then(|record| record.agreed()).filter(|expiry| expiry.ms == ms)
            else {
                continue;
            };
            let is_known = !self.pending_of(place, &key).has_expiry()
                && !on_its_way.contains(&(keyspace, key.clone()));
            if is_known || self.modes.planted.is(Bug::ExpireUnseen) {
                let expire = Effect::Expire { key, site, revision };
                let effects = match has_regions {
                    true => self.expire_in_all(keyspace, expire),
                    false => vec![expire],
                };
                self.order_here(epoch, keyspace, effects);
            }
        }
        Ok(())
    }

    /// A bug to be found: every site removes keys by its own log time.
    fn hide_due(&mut self) -> Result<(), MachineError> {
        let now_ms = self.known.head.log_time_ms;
        let (due, _) = rows::first_expiries(&self.overlay, 0, now_ms, usize::MAX)?;
        for (ms, generation, key) in due {
            self.forget_agreed(ms, generation, &key)?;
            let Some(keyspace) = self.known.keyspaces.owner(generation) else { continue };
            let place = Place { keyspace, slot: None, generation };
            if let Ok(cell) = self.cell_unread(place, &key) {
                self.erase_agreed(cell, None, ChangeKind::Expire);
            }
        }
        Ok(())
    }

    /// A write of no site gets the next position.
    pub(super) fn order_here(
        &mut self,
        epoch: u16,
        keyspace: KeyspaceId,
        effects: Vec<Effect>,
    ) -> Position {
        let seen = self.modes.causal.head.applied;
        let revision = Revision(self.modes.causal.head.order_last.next(epoch).0);
        let write = CausalWrite { revision, seen, keyspace, effects };
        self.give_position(epoch, NO_SITE, &write)
    }

    /// The keys whose expiry is assigned by what is ordered and not imported here; `None`: that is
    /// much, or all of a keyspace.
    fn assigned_unimported(&self) -> Result<Option<BTreeSet<(KeyspaceId, Bytes)>>, MachineError> {
        let (mut from, mut keys) = (self.modes.causal.head.applied, BTreeSet::new());
        let until = self.modes.causal.head.order_last;
        let found = rows::ordered(&self.overlay, from, limits::CAUSAL_IMPORT_BYTES_MAX)?;
        for (position, _, write) in found {
            from = position;
            for effect in write.effects.into_iter().filter(|effect| !effect.is_mark()) {
                let stays = matches!(
                    effect,
                    Effect::Replace { .. } | Effect::SetFields { .. } | Effect::DeleteFields { .. }
                );
                match effect.key() {
                    None => return Ok(None),
                    Some(key) if !stays => drop(keys.insert((write.keyspace, key.clone()))),
                    Some(_) => {}
                }
            }
        }
        Ok((from >= until).then_some(keys))
    }
}
