//! What versions without copies kept of moves that were over: it becomes copies.
//!
//! Their sources kept the records of a slot where they lay until the destination's mirror had them, under a
//! row that named the move; the token has the slot as gone. That is a copy of all of the epoch
//! before ([`super::copies`]), and with the first entry that is applied it is written as one. From
//! then on the slot's owner is asked whether it may go, as with every copy.
//!
//! ```text
//! v number → format 1 ‖ to (varint) ‖ slots and the epochs they have there (tokens.rs)
//! ```

use super::Applying;
use super::tokens::{Token, take_epochs};
use super::{MachineError, tables};
use model::{Epoch, SlotCopy, SlotEpochs, SlotRun};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::entry::take_varint;

const FORMAT: u8 = 1;

/// What an earlier version kept, by the moves' numbers.
pub(super) fn load(state: &impl Read) -> Result<BTreeMap<u64, SlotEpochs>, MachineError> {
    super::numbered(state, tables::KEPT, decode)
}

fn decode(row: &[u8]) -> Option<SlotEpochs> {
    let (&format, rest) = row.split_first()?;
    let (_, len) = take_varint(rest)?;
    (format == FORMAT).then_some(take_epochs(&rest[len..])?)
}

impl<S: State> Applying<'_, S> {
    /// Makes copies of what an earlier version kept.
    pub(super) fn copy_kept(&mut self) {
        for (number, slots) in std::mem::take(&mut self.modes.kept) {
            self.overlay.remove(tables::kept(number));
            let Some(own) = self.modes.deployment.member.as_ref().map(|member| member.own) else {
                continue;
            };
            for (slot, epoch) in slots.iter() {
                // Whatever else it is by now lies under its own rows.
                let is_kept =
                    |token| matches!(token, Token::Gone { epoch: gone, .. } if gone == epoch);
                if !is_kept(self.modes.slots.token(slot)) {
                    continue;
                }
                let stores = self.take_stores(SlotRun::one(slot));
                let before = Epoch { count: epoch.count.saturating_sub(1), ..epoch };
                let copy = SlotCopy::retained(before, own);
                // It may be the destination's backup, too, and have a mirror of later.
                if self.modes.copy_of(slot).is_some_and(|other| other.tag > copy.tag) {
                    stores.into_values().for_each(|store| self.discard(store.generation));
                } else {
                    self.put_copy(SlotRun::one(slot), copy, stores, false);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_is_still_read() {
        let row = [1, 5, 2, 2, 0, 3, 0xac, 2, 0xac, 2];
        let slots = SlotEpochs(vec![("0-3,300".parse().unwrap(), Epoch::counted(2))]);
        assert_eq!(decode(&row), Some(slots));
        assert_eq!(decode(&[2, 5]), None);
        assert_eq!(decode(&[1, 5, 2, 1]), None);
    }
}
