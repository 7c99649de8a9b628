//! What this site has handed over and keeps until it is safe at its receiver.
//!
//! A receiver may be lost for good right after it has installed a slot, before its own mirror has heard
//! of it; and then nobody would have what was acknowledged long before. So *release* makes the slot
//! the receiver's and keeps the records where they lie. Nobody reads them: the token says that they
//! are gone. The receiver says when its mirror has them, or that it has none, and they are forgotten.
//!
//! If it is lost before, this site says so when it is fenced, and the promotion decides that it holds
//! those slots again. What comes back by a move of its own is kept no more.
//!
//! ```text
//! v number → format 1 ‖ to (varint) ‖ slots and the epochs they have there (tokens.rs)
//! ```

use super::apply::Applying;
use super::tokens::{Token, put_epochs, take_epochs};
use super::{MachineError, Stopped, tables};
use model::{
    Answer, Bytes, Epoch, KeyspaceId, MoveError, Promotion, SiteId, Slot, SlotEpochs, SlotSet,
};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::entry::{put_varint, take_varint};

const FORMAT: u8 = 1;

/// What is kept of a move that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMove {
    /// The receiver.
    pub to: SiteId,
    /// Its slots, and their epochs there.
    pub slots: SlotEpochs,
}

/// What is kept, by the moves' numbers.
pub(super) fn load(state: &impl Read) -> Result<BTreeMap<u64, KeptMove>, MachineError> {
    super::numbered(state, tables::KEPT, decode)
}

fn encode(kept: &KeptMove) -> Vec<u8> {
    let mut row = vec![FORMAT];
    put_varint(u64::from(kept.to.0), &mut row);
    put_epochs(&kept.slots, &mut row);
    row
}

fn decode(row: &[u8]) -> Option<KeptMove> {
    let (&format, rest) = row.split_first()?;
    let (to, len) = take_varint(rest)?;
    let to = SiteId(u32::try_from(to).ok()?);
    (format == FORMAT).then_some(KeptMove { to, slots: take_epochs(&rest[len..])? })
}

impl<S: State> Applying<'_, S> {
    /// A move is over; its slots have these epochs with their receiver.
    pub(super) fn keep(&mut self, number: u64, to: SiteId, slots: SlotEpochs) {
        let kept = KeptMove { to, slots };
        self.overlay.put(tables::kept(number), encode(&kept));
        self.known.kept.insert(number, kept);
    }

    /// The receiver says that a move's slots are safe with it.
    pub(super) fn forget_kept(&mut self, number: u64) -> Result<Answer, Stopped> {
        let kept = self.known.kept.get(&number).ok_or_else(|| {
            let is_open = self.known.giving.contains_key(&number);
            let not_ready = MoveError::NotReady("the move has not ended here");
            if is_open { not_ready } else { MoveError::NoMove(number) }
        })?;
        // It may be lost, and whoever fenced it was told that this is kept.
        if self.is_fenced(kept.to) {
            return Err(MoveError::NoReceiver.into());
        }
        self.drop_kept(number);
        Ok(Answer::Done(self.known.head.revision))
    }

    /// What is kept of all moves to a site.
    pub(super) fn kept_from(&self, to: SiteId) -> Vec<(Slot, Epoch)> {
        let of_site = self.known.kept.values().filter(|kept| kept.to == to);
        of_site.flat_map(|kept| kept.slots.iter()).collect()
    }

    /// Slots have come back. All of a move at once: each alone would read all that is kept.
    pub(super) fn keep_no_more(&mut self, back: &SlotSet) {
        let has = |kept: &KeptMove| kept.slots.iter().any(|(slot, _)| back.contains(slot));
        let numbers: Vec<u64> =
            self.known.kept.iter().filter(|(_, kept)| has(kept)).map(|(n, _)| *n).collect();
        for number in numbers {
            let KeptMove { to, slots } = self.known.kept[&number].clone();
            let others = SlotEpochs::gather(slots.iter().filter(|(slot, _)| !back.contains(*slot)));
            match others.0.is_empty() {
                true => self.remove_kept(number),
                false => self.keep(number, to, others),
            }
        }
    }

    /// The site that this one gave slots to was lost. Those that the promotion leaves to it are held
    /// here again, at versions that were not given there; the others are forgotten.
    pub(super) fn hold_kept_again(&mut self, promotion: &Promotion, own: SiteId) {
        let numbers: Vec<u64> = self
            .known
            .kept
            .iter()
            .filter(|(_, kept)| kept.to == promotion.lost)
            .map(|(n, _)| *n)
            .collect();
        if numbers.is_empty() {
            return;
        }
        let again = promotion.kept_by(own);
        let mut any = false;
        for number in numbers {
            for (slot, epoch) in self.known.kept[&number].slots.clone().iter() {
                let is_gone =
                    matches!(self.token(slot), Token::Gone { epoch: gone, .. } if gone == epoch);
                if is_gone && again.get(&slot) == Some(&epoch.far_on()) {
                    self.set_token(slot, Token::Held(epoch.far_on()));
                    any = true;
                }
            }
            self.drop_kept(number);
        }
        if any {
            self.skip_versions(0);
        }
    }

    /// Nothing is kept any more.
    pub(super) fn drop_all_kept(&mut self) {
        let numbers: Vec<u64> = self.known.kept.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.drop_kept(number));
    }

    /// A kept record's time has come. Whoever holds the slot tells others.
    pub(super) fn expire_kept(
        &mut self,
        (keyspace, slot): (KeyspaceId, Slot),
        generation: u64,
        key: &Bytes,
    ) {
        self.overlay.remove(tables::record(generation, key));
        self.known.slots.recount(keyspace, slot, -1);
    }

    fn token(&self, slot: Slot) -> Token {
        self.known.slots.token(slot)
    }

    /// Forgets what is kept of a move, but for slots that are held here again.
    fn drop_kept(&mut self, number: u64) {
        let Some(kept) = self.known.kept.get(&number).cloned() else { return };
        let globals = self.known.keyspaces.globals();
        for (slot, epoch) in kept.slots.iter() {
            // Gone a second time, it is another move's to keep.
            if !matches!(self.token(slot), Token::Gone { epoch: gone, .. } if gone == epoch) {
                continue;
            }
            for keyspace in &globals {
                if self.known.slots.store(*keyspace, slot).is_some() {
                    self.set_store(*keyspace, slot, None);
                }
            }
        }
        self.remove_kept(number);
    }

    fn remove_kept(&mut self, number: u64) {
        self.overlay.remove(tables::kept(number));
        self.known.kept.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let slots = SlotEpochs(vec![("0-3,300".parse().unwrap(), Epoch(2))]);
        let kept = KeptMove { to: SiteId(5), slots };
        let row = encode(&kept);
        assert_eq!(row, [1, 5, 2, 2, 0, 3, 0xac, 2, 0xac, 2]);
        assert_eq!(decode(&row), Some(kept));
        assert_eq!(decode(&[2, 5]), None);
        assert_eq!(decode(&[1, 5, 2, 1]), None);
    }
}
