//! What a table has of each slot, in rows of 128 neighbouring slots.
//!
//! Neighbours mostly have equal values, as they move together, and a row holds runs of equal
//! values. So a command about a thousand slots changes a few rows, and a site that starts reads at
//! most 128 rows a table and not 16,384. What is known in memory is the truth while entries are
//! applied; the rows that differ from it are written at the end of a batch.
//!
//! ```text
//! table bucket → format 1 ‖ (how many slots (varint) ‖ value)*     of all 128 slots of the bucket
//! ```
//!
//! A row of which all values are those of a slot that nothing was ever noted of is not there.

use super::overlay::Overlay;
use super::{MachineError, tables};
use model::{Bytes, Slot, SlotRun};
use std::collections::BTreeSet;
use storage::state::Read;
use wire::row::{Code, FORMAT, Input};

/// How many slots are in a row.
const ROW_SLOTS: u16 = 128;

/// A value that such a table holds.
pub(super) trait Value: Code + PartialEq {
    /// The table.
    const TABLE: u8;

    /// The value that bytes begin with, and its length.
    #[cfg(test)]
    fn parse(row: &[u8]) -> Option<(Self, usize)> {
        let mut input = Input::new(Bytes::copy_from_slice(row));
        let value = Self::take(&mut input).ok()?;
        Some((value, input.offset()))
    }
}

/// The buckets whose rows are older than what is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stale(BTreeSet<u8>);

impl Stale {
    /// The values of slots have changed.
    pub(super) fn note(&mut self, run: SlotRun) {
        self.0.extend(bucket(run.first)..=bucket(run.last));
    }

    /// Brings the rows into the state. `value`: that of a slot, and a slot up to which all have the
    /// same.
    pub(super) fn write<V: Value>(
        &mut self,
        overlay: &mut Overlay<'_, impl Read>,
        unnoted: V,
        value: impl Fn(Slot) -> (Slot, V),
    ) {
        for bucket in std::mem::take(&mut self.0) {
            match encode(slots(bucket), &value, &unnoted) {
                Some(row) => overlay.put(tables::of_bucket(V::TABLE, bucket), row),
                None => overlay.remove(tables::of_bucket(V::TABLE, bucket)),
            }
        }
    }
}

/// Visits the values of all slots that have a row.
pub(super) fn load<V: Value>(
    state: &impl Read,
    mut visit: impl FnMut(SlotRun, &V),
) -> Result<(), MachineError> {
    for (key, row) in super::rows(state, V::TABLE)? {
        let mut rest = Some(slots(tables::parse_bucket(&key).ok_or_else(damaged::<V>)?));
        for run in runs::<V>(row) {
            let (count, value) = run.ok_or_else(damaged::<V>)?;
            let cut = rest.and_then(|rest| rest.split_at(count));
            let (run, behind) = cut.ok_or_else(damaged::<V>)?;
            visit(run, &value);
            rest = behind;
        }
    }
    Ok(())
}

/// The value of one slot, by the state.
pub(super) fn find<V: Value>(state: &impl Read, slot: Slot) -> Result<Option<V>, MachineError> {
    let Some(row) = state.get(&tables::of_bucket(V::TABLE, bucket(slot)))? else {
        return Ok(None);
    };
    let mut end = 0;
    let place = usize::from(slot.number() % ROW_SLOTS);
    let covers = |run: &Option<(usize, V)>| {
        end += run.as_ref().map_or(usize::from(ROW_SLOTS), |(count, _)| *count);
        end > place
    };
    let run = runs(row).find(covers).flatten();
    run.map(|(_, value)| Some(value)).ok_or_else(damaged::<V>)
}

fn damaged<V: Value>() -> MachineError {
    MachineError::Damaged { table: V::TABLE as char }
}

/// A row; `None` if all values are `unnoted`.
fn encode<V: Value>(
    slots: SlotRun,
    value: impl Fn(Slot) -> (Slot, V),
    unnoted: &V,
) -> Option<Bytes> {
    let mut row = vec![FORMAT];
    let values = slots.cut(|slot| value(slot).0).map(|run| (run.len(), value(run.first).1));
    let mut values = values.peekable();
    let mut any = false;
    while let Some((mut count, value)) = values.next() {
        while let Some((more, _)) = values.next_if(|(_, next)| *next == value) {
            count += more;
        }
        any |= value != *unnoted;
        count.put(&mut row);
        value.put(&mut row);
    }
    any.then(|| row.into())
}

/// The runs of a row; `None` where it makes no sense, which is the last item then.
fn runs<V: Value>(row: Bytes) -> impl Iterator<Item = Option<(usize, V)>> {
    let mut input = Input::new(row);
    let mut left = if input.byte() == Ok(FORMAT) { usize::from(ROW_SLOTS) } else { 0 };
    let mut take = move || {
        let (count, value) = <(usize, V)>::take(&mut input).ok()?;
        left = left.checked_sub(count).filter(|_| count > 0)?;
        Some((count, value, left == 0 && input.is_empty()))
    };
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let run = take();
        is_over = run.as_ref().is_none_or(|(.., is_last)| *is_last);
        Some(run.map(|(count, value, _)| (count, value)))
    })
}

fn bucket(slot: Slot) -> u8 {
    (slot.number() / ROW_SLOTS) as u8
}

fn slots(bucket: u8) -> SlotRun {
    let first = u16::from(bucket) * ROW_SLOTS;
    let slot =
        |number| Slot::new(number).expect("there are as many buckets as there are slots for");
    SlotRun { first: slot(first), last: slot(first + ROW_SLOTS - 1) }
}

#[cfg(test)]
mod tests {
    use super::super::global::tokens::Token;
    use super::*;
    use model::{Epoch, SiteId};
    use std::collections::BTreeMap;
    use storage::state::memory::MemoryState;
    use storage::state::{Batch, State};

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn state(rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> MemoryState {
        let mut batch = Batch::default();
        rows.into_iter().for_each(|(key, row)| batch.put(key, row));
        let state = MemoryState::new();
        state.commit(batch).unwrap();
        state
    }

    fn all(state: &MemoryState) -> BTreeMap<Slot, Token> {
        let mut tokens = BTreeMap::new();
        load(state, |run, token: &Token| {
            tokens.extend(run.slots().map(|slot| (slot, *token)));
        })
        .unwrap();
        tokens
    }

    fn write(state: &MemoryState, stale: &mut Stale, tokens: &BTreeMap<Slot, Token>) {
        let mut overlay = Overlay::new(state, 0);
        stale.write(&mut overlay, Token::Never, |slot| {
            (slot, tokens.get(&slot).copied().unwrap_or_default())
        });
        state.commit(overlay.into_batch()).unwrap();
    }

    #[test]
    fn format_1_stays_as_it_is() {
        let tokens: BTreeMap<Slot, Token> = [
            (slot(130), Token::Held(Epoch::counted(3))),
            (slot(131), Token::Held(Epoch::counted(3))),
            (slot(255), Token::Gone { epoch: Epoch::counted(300), to: SiteId(2) }),
        ]
        .into();
        let state = MemoryState::new();
        let mut stale = Stale::default();
        tokens.keys().for_each(|slot| stale.note(SlotRun::one(*slot)));
        write(&state, &mut stale, &tokens);
        let rows = super::super::rows(&state, Token::TABLE).unwrap();
        let row = [1, 2, 0, 0, 0, 2, 1, 3, 0, 123, 0, 0, 0, 1, 4, 0xac, 2, 2];
        assert_eq!(rows, [(Bytes::from_static(b"T\x01"), Bytes::from(row.to_vec()))]);
        let mut read = all(&state);
        assert_eq!(read.len(), usize::from(ROW_SLOTS));
        read.retain(|_, token| *token != Token::Never);
        assert_eq!(read, tokens);
        for (number, token) in
            [(128, Some(Token::Never)), (130, Some(tokens[&slot(130)])), (0, None)]
        {
            assert_eq!(find(&state, slot(number)).unwrap(), token);
        }
        assert_eq!(find(&state, slot(255)).unwrap(), Some(tokens[&slot(255)]));
        // Nothing is left of what is as at the beginning.
        let mut stale = Stale::default();
        stale.note(SlotRun::ALL);
        write(&state, &mut stale, &BTreeMap::new());
        assert_eq!(super::super::rows(&state, Token::TABLE).unwrap(), []);
    }

    #[test]
    fn a_damaged_row_is_told_as_such() {
        for row in [
            &[][..],
            &[2, 0x80, 1, 0, 0, 0],
            &[1],
            &[1, 127, 0, 0, 0],
            &[1, 0x81, 1, 0, 0, 0],
            &[1, 0, 0, 0, 0],
            &[1, 0x80, 1, 9, 0, 0],
            &[1, 0x80, 1, 0, 0, 0, 0],
        ] {
            let state = state([(vec![b'T', 0], row.to_vec())]);
            let read = load(&state, |_, _: &Token| {});
            assert!(matches!(read, Err(MachineError::Damaged { table: 'T' })), "{row:?}");
        }
        for key in [&b"T"[..], b"T\x80", b"T\0\0"] {
            let state = state([(key.to_vec(), vec![1, 0x80, 1, 0, 0, 0])]);
            assert!(load(&state, |_, _: &Token| {}).is_err());
        }
    }
}
