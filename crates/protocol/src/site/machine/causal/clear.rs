//! All keys of a keyspace are removed at once: at the root, at a place of the order.
//!
//! A clear is not a write of the site that is asked. There it would lie on top of whatever comes,
//! and be ordered behind all that others have written since: a site that was cut off for a day
//! would remove what it never saw. So the root orders it, when it comes, under the token of its
//! session: behind all that the session has seen and written. Of the root's own site that is what
//! has no place yet, so this gets its places first.
//!
//! At each site the keyspace's records lie under a new generation from there on. What is left is
//! what is pending there: its place comes later.

use super::super::Applying;
use super::super::keys::Place;
use super::super::records::Record;
use super::super::store::Store;
use super::super::tables;
use super::assign::{Becomes, assigned};
use super::bridging::Keeps;
use super::{MachineError, Stopped, rows};
use crate::bugs::Bug;
use model::{Answer, Bytes, Effect, KeyspaceId, Kind, Refusal, Region, Revision};
use std::collections::BTreeSet;
use storage::state::{Read as _, State};

const FULL: Refusal =
    Refusal::NotCausal("be cleared, or sent again, while the order is full: a site is away");

impl<S: State> Applying<'_, S> {
    /// At the root: a clear gets its position.
    pub(super) fn order_clear(&mut self, keyspace: KeyspaceId) -> Result<Answer, Stopped> {
        let Region { epoch, .. } = *self.region()?;
        self.check_gives(epoch)?;
        if self.causal_place(keyspace).is_none() {
            return Err(Refusal::NoKeyspace(keyspace.to_string()).into());
        }
        self.order_own(epoch)?;
        let position = self.order_here(epoch, keyspace, vec![Effect::Clear]);
        Ok(Answer::Placed(position))
    }

    /// All that the root's own site has written has its place from here on.
    pub(super) fn order_own(&mut self, epoch: u16) -> Result<(), Stopped> {
        let own = self.member()?.own;
        let causal = &self.modes.causal;
        let ordered = causal.ordered_of(own).map_or(Revision(0), |(revision, _)| revision);
        let after = ordered.max(causal.head.own_ordered);
        self.move_clock(epoch)?;
        for write in rows::own(&self.overlay, after, usize::MAX)? {
            if self.order_is_full() {
                return Err(FULL.into());
            }
            let at = self.order_write(epoch, own, &write);
            self.note_ordered(own, write.revision, at);
        }
        if self.order_is_full() {
            return Err(FULL.into());
        }
        Ok(())
    }

    /// A clear is imported: of a keyspace only what is pending here is left, and what is to stay.
    pub(super) fn clear_ordered(&mut self, place: Place, keeps: &Keeps<'_>) -> Result<(), Stopped> {
        let keyspace = place.keyspace;
        let pending = &self.modes.causal.pending;
        let of_keyspace = pending.range((keyspace, Bytes::new())..);
        let of_keyspace = of_keyspace.take_while(|((of, _), _)| *of == keyspace);
        let keys = of_keyspace.map(|((_, key), _)| key.clone());
        let keys: BTreeSet<Bytes> = keys.chain(keeps.keys().map(|key| (*key).clone())).collect();
        let mut store = Store { generation: self.next_generation(), count: 0 };
        let is_careful = !self.modes.planted.is(Bug::ClearPending);
        for key in keys.into_iter().filter(|_| is_careful) {
            if let Some(row) = self.left_by_clear(place, &key, keeps)? {
                store.count = self.stage_agreed(store, &key, Some(row))?;
            }
        }
        self.replace_records(keyspace, store.generation, store.count);
        Ok(())
    }

    /// The record of a key without what is not pending on it.
    fn left_by_clear(
        &self,
        place: Place,
        key: &Bytes,
        keeps: &Keeps<'_>,
    ) -> Result<Option<Bytes>, MachineError> {
        let Some(row) = self.overlay.get(&tables::record(place.generation, key))? else {
            return Ok(None);
        };
        let record = Record::decode(row)?;
        let pending = self.pending_of(place, key).and(keeps.get(key).copied());
        let expiry = record.agreed().filter(|_| pending.has_expiry());
        let delete = Effect::Delete { key: key.clone() };
        let old = Some(&record).filter(|record| !record.is_vacant);
        let row_of = |kind, payload: &[u8]| {
            let (version, position) = (record.version, record.position);
            Record::encode_agreed(kind, version, expiry, position, &[payload])
        };
        Ok(match (assigned(old, &delete, &pending)?.becomes, old) {
            (Becomes::Same, Some(record)) => Some(row_of(record.kind, &record.payload)),
            (Becomes::Record(kind, payload, _), _) => Some(row_of(kind, &payload)),
            (Becomes::Absent(_), _) | (Becomes::Same, None) => {
                expiry.map(|_| row_of(Kind::Hash, &[]))
            }
        })
    }
}
