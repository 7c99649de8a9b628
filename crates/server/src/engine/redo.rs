//! Makes a round's changes durable, however many they are.
//!
//! A round that fits one transaction is one. Otherwise it is first written as a redo record: the
//! changes as one string of bytes, in chunks, and with the last chunk a mark that the record is
//! complete. From then on the round is durable. The rows follow in several transactions, and the
//! last one removes the record. A new owner finds either no mark, and drops the chunks, or a
//! complete record, and applies it again: it only sets and removes rows, so applying it twice is
//! harmless.

use super::locked::{Ended, Locked, Op, fit, groups};
use super::recording::Changes;
use super::rows::{Before, CutRows, end_of};
use model::{Bytes, limits};
use wire::entry::{put_varint, take_varint};

const REDO: &[u8] = b"redo/";
const MARK: &[u8] = b"redo/whole";
const PIECE: &[u8] = b"redo/piece/";
/// A chunk with its overhead fits a request.
const CHUNK_BYTES_MAX: usize = limits::ETCD_REQUEST_BYTES_MAX - (8 << 10);
const FORMAT: u8 = 1;

fn piece_name(nth: u32) -> Bytes {
    [PIECE, &nth.to_be_bytes()].concat().into()
}

fn gone() -> Op {
    Op::DeleteRange { from: Bytes::from_static(REDO), until: end_of(REDO).into() }
}

/// Makes a round durable. Calls `durable` as soon as it is; more work may follow before the next
/// round can begin.
pub(crate) fn flush(
    store: &mut impl Locked,
    cut: &mut CutRows,
    changes: &Changes,
    durable: &mut dyn FnMut(),
) -> Result<(), Ended> {
    if changes.is_empty() {
        store.check()?;
        durable();
        return Ok(());
    }
    let ops = cut.ops(changes, Before::Known);
    if fit(&ops) {
        store.commit(ops)?;
        durable();
        return Ok(());
    }
    let record = encode(changes);
    let chunks = record.len().div_ceil(CHUNK_BYTES_MAX) as u32;
    for nth in 0..chunks {
        let from = nth as usize * CHUNK_BYTES_MAX;
        let value = record.slice(from..record.len().min(from + CHUNK_BYTES_MAX));
        let mut ops = vec![Op::Put { key: piece_name(nth), value }];
        if nth + 1 == chunks {
            let mark = [&[FORMAT], &chunks.to_be_bytes()[..]].concat();
            ops.push(Op::Put { key: Bytes::from_static(MARK), value: mark.into() });
        }
        store.commit(ops)?;
    }
    durable();
    finish(store, ops)
}

/// Writes the rows of a round after its record is complete, and removes the record.
fn finish(store: &mut impl Locked, mut ops: Vec<Op>) -> Result<(), Ended> {
    ops.push(gone());
    groups(ops).into_iter().try_for_each(|group| store.commit(group))
}

/// Completes an earlier owner's unfinished round. Called before anything is read.
pub(crate) fn recover(store: &mut impl Locked) -> Result<(), Ended> {
    let mark = store.page(MARK, &end_of(MARK), 1)?;
    let Some((_, mark)) = mark.first() else {
        let left = store.page(REDO, &end_of(REDO), 1)?;
        return match left.is_empty() {
            true => Ok(()),
            false => store.commit(vec![gone()]),
        };
    };
    let unreadable = || {
        Ended::Failed(
            "what the last owner of this site left unfinished in etcd is not readable: was it a newer \
             version, or has something else written below this site's prefix?"
                .to_owned(),
        )
    };
    let chunks = match mark.split_first() {
        Some((&FORMAT, chunks)) => chunks.try_into().map(u32::from_be_bytes).ok(),
        _ => None,
    };
    let mut record = Vec::new();
    for nth in 0..chunks.ok_or_else(unreadable)? {
        let name = piece_name(nth);
        let found = store.page(&name, &[name.as_ref(), &[0]].concat(), 1)?;
        record.extend_from_slice(&found.first().ok_or_else(unreadable)?.1);
    }
    let changes = decode(&record.into()).ok_or_else(unreadable)?;
    tracing::info!("finishing what the last owner of this site began: {} rows", changes.len());
    // The parts of rows from before the record are not known here.
    finish(store, CutRows::default().ops(&changes, Before::Unknown))
}

fn encode(changes: &Changes) -> Bytes {
    let mut out = Vec::new();
    for (key, value) in changes {
        put_varint(key.len() as u64, &mut out);
        out.extend_from_slice(key);
        match value {
            None => put_varint(0, &mut out),
            Some(value) => {
                put_varint(value.len() as u64 + 1, &mut out);
                out.extend_from_slice(value);
            }
        }
    }
    out.into()
}

fn decode(record: &Bytes) -> Option<Changes> {
    let mut at = 0;
    let mut changes = Changes::new();
    let number = |at: &mut usize| {
        let (number, bytes) = take_varint(&record[*at..])?;
        *at += bytes;
        usize::try_from(number).ok()
    };
    let bytes = |at: &mut usize, length: usize| {
        let end = at.checked_add(length).filter(|end| *end <= record.len())?;
        let taken = record.slice(*at..end);
        *at = end;
        Some(taken)
    };
    while at < record.len() {
        let length = number(&mut at)?;
        let key = bytes(&mut at, length)?;
        let value = match number(&mut at)? {
            0 => None,
            more => Some(bytes(&mut at, more - 1)?),
        };
        changes.insert(key, value);
    }
    Some(changes)
}

#[cfg(test)]
mod tests;
