//! At the root: what keys hold, for a site that is to hold them on demand, as content of a place of
//! the order.
//!
//! > the item at place s = the order before s, of these registers.
//!
//! The root's record shows `pending ∘ ordered` up to what it has imported. All that its own site
//! has written gets its place first, as before a clear; then the last assignment in the order from
//! what is imported up to s counts, and where there is none the record has no pending write: it
//! shows the order.
//!
//! The place is one of no site, and has no effect elsewhere. As it is in the order, it is kept,
//! released, sent and asked for like any write.

use super::super::records::Record;
use super::super::{Applying, tables};
use super::bridging::keeps;
use super::resync::row_after;
use super::{MachineError, Stopped, rows};
use crate::bugs::Bug;
use crate::machine::keys::check_key;
use crate::machine::records::SEVERAL;
use model::{
    Answer, Bytes, CausalWrite, Effect, KeyspaceId, Mark, Position, Refusal, SiteId, limits,
};
use storage::state::{Read as _, State};

const NOT_HERE: Refusal =
    Refusal::NotCausal("be fetched by a site that holds it whole, or is not of the deployment");
const BEHIND: Refusal =
    Refusal::NotCausal("be fetched while the root has not imported what it has ordered");

type Item = (Bytes, Option<Bytes>);

impl<S: State> Applying<'_, S> {
    /// Keys get a place at which a site holds them.
    pub(super) fn fetch(
        &mut self,
        epoch: u16,
        site: SiteId,
        keyspace: KeyspaceId,
        keys: &[Bytes],
    ) -> Result<Answer, Stopped> {
        self.check_gives(epoch)?;
        for key in keys {
            check_key(key)?;
        }
        let is_known = self.member()?.registry.site(site).is_some();
        let spec = self.known.keyspaces.spec(keyspace);
        if !is_known || spec.is_none_or(|spec| spec.on_demand_at(site).is_none()) {
            return Err(NOT_HERE.into());
        }
        let Some(place) = self.causal_place(keyspace) else { return Err(NOT_HERE.into()) };
        self.order_own(epoch)?;
        let (from, upto) = (self.modes.causal.head.applied, self.modes.causal.head.order_last);
        let mut behind = rows::ordered(&self.overlay, from, limits::CAUSAL_IMPORT_BYTES_MAX)?;
        if behind.last().is_some_and(|(last, ..)| *last < upto) {
            return Err(BEHIND.into());
        }
        behind.retain(|(.., write)| write.keyspace == keyspace);
        if self.modes.planted.is(Bug::FetchedUnfolded) {
            behind.clear();
        }
        let (mut items, mut bytes): (Vec<Item>, usize) = (Vec::new(), 0);
        for key in keys.iter().take(limits::CAUSAL_FETCHED_KEYS_MAX) {
            let row = self.ordered_row(place.generation, key, &behind)?;
            bytes += key.len() + row.as_ref().map_or(0, Bytes::len);
            if !items.is_empty() && bytes > limits::CAUSAL_FETCHED_BYTES_MAX {
                break;
            }
            items.push((key.clone(), row));
        }
        let count = items.len() as i64;
        self.order_here(epoch, keyspace, vec![Effect::Mark(Mark::Fetched { site, items })]);
        Ok(Answer::Integer(count))
    }

    /// The record of a key by the order up to its end, of which the last part is given.
    fn ordered_row(
        &self,
        generation: u64,
        key: &Bytes,
        behind: &[(Position, SiteId, CausalWrite)],
    ) -> Result<Option<Bytes>, MachineError> {
        let applied = self.modes.causal.head.applied;
        let row = self.overlay.get(&tables::record(generation, key))?;
        let mut row = row.map(|row| with_position(row, applied)).transpose()?;
        for (position, site, write) in behind {
            let keeps = keeps(write);
            let kept = keeps.get(key).copied();
            for effect in write.effects.iter().filter(|effect| !effect.is_mark()) {
                let removed = Effect::Delete { key: key.clone() };
                let effect = match effect.key() {
                    None => &removed,
                    Some(of) if of == key => effect,
                    Some(_) => continue,
                };
                let (of, version) = ((*site, write.revision), write.revision);
                let old = row.clone().map(Record::decode).transpose()?;
                if let Some(new) = row_after(old, effect, of, kept, (version, position.0))? {
                    row = new;
                }
            }
        }
        Ok(row)
    }
}

/// A record with a position that is not before its own: that of an own write without one comes with
/// the rest of the order.
pub(super) fn with_position(row: Bytes, applied: Position) -> Result<Bytes, MachineError> {
    let record = Record::decode(row)?;
    let position = match record.position {
        0 | SEVERAL => applied.0,
        position => position,
    };
    let payload = [&record.payload[..]];
    let (kind, version, expiry) = (record.kind, record.version, record.agreed());
    Ok(Record::encode_agreed(kind, version, expiry, position, &payload))
}

/// What a fetch brings a site: its content is for that alone.
pub(super) fn fetched_for(site: SiteId, effect: &Effect) -> Option<&[Item]> {
    match effect {
        Effect::Mark(Mark::Fetched { site: to, items }) if *to == site => Some(items),
        _ => None,
    }
}
