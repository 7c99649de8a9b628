//! What a stream of another site brings ([`crate::stream`]), item by item: the same for slots that
//! come to stay ([`super::destination`]) and for those whose copy is fed ([`super::mirrors`]).
//!
//! Answers and loans are remembered with the records that they are about; of a record the caller is
//! returned where it belongs, as only the caller has the place where it keeps it. Times of the
//! other site follow its clock in the stream.

use super::Owner;
use super::elsewhere::Elsewhere;
use super::lineage::Whose;
use super::records::Record;
use super::requests::ClientKey;
use super::store::Store;
use super::{Applying, MachineError, Stopped, tables};
use model::{Bytes, KeyspaceId, MoveError, Slot, StagedItem};
use storage::state::{Read, State};

/// A record that came, or the absence of one.
pub(super) struct Received<'a> {
    pub(super) at: (KeyspaceId, Slot),
    pub(super) key: &'a Bytes,
    pub(super) row: Option<Bytes>,
}

impl<S: State> Applying<'_, S> {
    /// Whether a chunk can be taken: all of it or nothing is.
    pub(super) fn check_chunk(&self, items: &[StagedItem]) -> Result<(), MoveError> {
        let registry = self.modes.place().map(|(_, registry)| registry);
        // One that was dropped is passed over; one that is on its way is waited for.
        let is_unknown = |id: KeyspaceId| {
            let comes = || registry.as_ref().is_some_and(|known| known.may_be_handed_in(id));
            let is_here = self.known.keyspaces.generation(id).is_some();
            !is_here && (id.0 >= self.known.head.keyspace_next || comes())
        };
        let unknown = |item: &StagedItem| match item {
            StagedItem::Record { keyspace, .. }
            | StagedItem::Absent { keyspace, .. }
            | StagedItem::Cleared { keyspace } => is_unknown(*keyspace),
            StagedItem::Lent { group, .. } => is_unknown(group.keyspace),
            StagedItem::Loans { .. } | StagedItem::Remembered { .. } | StagedItem::Clock { .. } => {
                false
            }
        };
        match items.iter().any(unknown) {
            true => Err(MoveError::NotReady("a keyspace is not known there")),
            false => Ok(()),
        }
    }

    /// Takes an item that is no record; a record is returned, unless its keyspace was dropped in
    /// the meantime.
    ///
    /// `whose`: the records that answers and loans of a slot are about.
    pub(super) fn receive<'a>(
        &mut self,
        item: &'a StagedItem,
        elsewhere: &mut Elsewhere,
        whose: impl FnOnce(&Self, Slot) -> Whose,
    ) -> Result<Option<Received<'a>>, Stopped> {
        let (keyspace, key, row) = match item {
            StagedItem::Record { keyspace, key, row } => {
                (*keyspace, key, Some(elsewhere.row(row)?))
            }
            StagedItem::Absent { keyspace, key } => (*keyspace, key, None),
            StagedItem::Remembered { slot, .. } => {
                self.take_answer(item, *slot, whose(self, *slot), *elsewhere);
                return Ok(None);
            }
            StagedItem::Lent { group, .. } => {
                self.take_loan_item(whose(self, group.slot()), item);
                return Ok(None);
            }
            StagedItem::Loans { slot, .. } => {
                self.take_loan_item(whose(self, *slot), item);
                return Ok(None);
            }
            StagedItem::Clock { log_time_ms } => {
                *elsewhere = self.elsewhere(*log_time_ms);
                return Ok(None);
            }
            StagedItem::Cleared { .. } => return Ok(None),
        };
        let is_known = self.known.keyspaces.is_global(keyspace);
        let at = (keyspace, Slot::of_key(key));
        Ok(is_known.then_some(Received { at, key, row }))
    }

    /// Remembers what another site has answered a client about a slot.
    pub(super) fn take_answer(
        &mut self,
        item: &StagedItem,
        of: Slot,
        whose: Whose,
        elsewhere: Elsewhere,
    ) {
        if let StagedItem::Remembered { slot, client, sequence, floor, seen_ms, row } = item
            && *slot == of
        {
            let client_key = ClientKey { whose, slot: Some(of), client: *client };
            self.take_over_answer(client_key, *sequence, *floor, elsewhere.moment(*seen_ms), row);
        }
    }

    /// How times that another site sends are taken from here on, by its log time.
    pub(super) fn elsewhere(&self, log_time_ms: u64) -> Elsewhere {
        Elsewhere::new(log_time_ms, self.known.head.log_time_ms)
    }

    /// Where records come to lie that nothing has come of yet.
    pub(super) fn new_store(&mut self, owner: Owner) -> Store {
        let generation = self.next_generation();
        self.modes.owners.insert(generation, owner);
        Store { generation, count: 0 }
    }

    /// Puts a record where it lies from now on, or removes it. How many there are then.
    pub(super) fn stage(
        &mut self,
        store: Store,
        key: &[u8],
        row: Option<&Bytes>,
    ) -> Result<u64, Stopped> {
        let at = tables::record(store.generation, key);
        let head = |row: Option<&[u8]>| row.map(Record::decode_head).transpose();
        let old = self.overlay.look(&at, head).map_err(MachineError::from)??;
        let mut count = store.count;
        if let Some(old) = &old {
            count -= 1;
            if let Some(ms) = old.expires_ms {
                self.remove_expiry(ms, store.generation, key);
            }
        }
        let Some(row) = row else {
            self.overlay.remove(at);
            return Ok(count);
        };
        if let Some(ms) = Record::decode_head(row)?.expires_ms {
            self.put_expiry(ms, store.generation, key);
        }
        self.overlay.put(at, row.clone());
        Ok(count + 1)
    }
}
