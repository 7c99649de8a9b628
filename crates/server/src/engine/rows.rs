//! How the rows of a state are stored in etcd, below the site's prefix.
//!
//! ```text
//! row/ KEY                          0 ‖ value, or 1 ‖ parts ‖ length of a row that is cut
//! part/ KEY's length ‖ KEY ‖ nth    a part of a longer row
//! redo/…                            a round that did not fit one transaction   (redo.rs)
//! identity                          the site's identity                        (begin.rs)
//! owner                             the process that serves it                 (etcd/owner.rs)
//! ```
//!
//! KEY is the state's own key, byte for byte; numbers are big-endian and of fixed length. A part's
//! key begins with the length of KEY, so that the parts of one row are one range. Memory holds the
//! list of cut rows: when such a row is changed or removed, its parts are removed with it.

use super::locked::{Ended, Locked, Op};
use super::recording::Changes;
use model::{Bytes, limits};
use std::collections::BTreeMap;

pub(crate) const ROW: &[u8] = b"row/";
pub(crate) const PART: &[u8] = b"part/";

const WHOLE: u8 = 0;
const CUT: u8 = 1;

/// The rows that are cut, and the number of their parts.
#[derive(Debug, Default)]
pub(crate) struct CutRows(pub(super) BTreeMap<Bytes, u32>);

/// What is known about the parts that a row had before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// [`CutRows`] has the number.
    Known,
    /// Unknown: there may be any number.
    Unknown,
}

/// The end of the range of keys with this prefix.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    *end.last_mut().expect("a prefix is not empty") += 1;
    end
}

fn row_name(key: &[u8]) -> Bytes {
    [ROW, key].concat().into()
}

fn part_name(key: &[u8], nth: u32) -> Bytes {
    let length = u16::try_from(key.len()).expect("a state's key has at most 64 KiB");
    [PART, &length.to_be_bytes(), key, &nth.to_be_bytes()].concat().into()
}

impl CutRows {
    /// The etcd operations for these changes. Records the rows as changed.
    pub(crate) fn ops(&mut self, changes: &Changes, before: Before) -> Vec<Op> {
        let mut ops = Vec::with_capacity(changes.len());
        for (key, value) in changes {
            let parts = value.as_ref().map_or(0, |value| match value.len() {
                short if short <= limits::ETCD_ROW_BYTES_MAX => 0,
                long => long.div_ceil(limits::ETCD_PART_BYTES_MAX) as u32,
            });
            let had = match parts {
                0 => self.0.remove(key),
                parts => self.0.insert(key.clone(), parts),
            };
            let had = if before == Before::Unknown { u32::MAX } else { had.unwrap_or(0) };
            if had > parts {
                let (from, until) = (part_name(key, parts), part_name(key, u32::MAX));
                ops.push(Op::DeleteRange { from, until });
            }
            let Some(value) = value else {
                ops.push(Op::Delete { key: row_name(key) });
                continue;
            };
            let row = match parts {
                0 => [&[WHOLE], value.as_ref()].concat(),
                _ => {
                    let length = value.len() as u64;
                    [&[CUT], &parts.to_be_bytes()[..], &length.to_be_bytes()].concat()
                }
            };
            ops.push(Op::Put { key: row_name(key), value: row.into() });
            for nth in 0..parts {
                let from = nth as usize * limits::ETCD_PART_BYTES_MAX;
                let until = value.len().min(from + limits::ETCD_PART_BYTES_MAX);
                ops.push(Op::Put { key: part_name(key, nth), value: value.slice(from..until) });
            }
        }
        ops
    }

    /// Reads all rows, page by page, and records which of them are cut. Returns the number of rows.
    /// The pages are of different moments; they are consistent if there are no writes meanwhile,
    /// which the caller verifies by [`Locked::check`] afterwards.
    pub(crate) fn read(
        &mut self,
        store: &mut impl Locked,
        take: &mut dyn FnMut(Vec<(Bytes, Bytes)>) -> Result<(), Ended>,
    ) -> Result<u64, Ended> {
        let (mut from, until) = (ROW.to_vec(), end_of(ROW));
        let mut count = 0;
        loop {
            let page = store.page(&from, &until, limits::ETCD_PAGE_ROWS_MAX)?;
            let Some((last, _)) = page.last() else { return Ok(count) };
            from = [last.as_ref(), &[0]].concat();
            count += page.len() as u64;
            let mut rows = Vec::with_capacity(page.len());
            for (name, row) in page {
                let key = name.slice(ROW.len()..);
                let value = self.value(store, &key, row)?;
                rows.push((key, value));
            }
            take(rows)?;
        }
    }

    fn value(&mut self, store: &mut impl Locked, key: &Bytes, row: Bytes) -> Result<Bytes, Ended> {
        let damaged = |what: &str| {
            let name = key.escape_ascii();
            Ended::Failed(format!(
                "the row {name} in etcd is not readable ({what}): something else has written below \
                 this site's prefix; restore a backup of etcd"
            ))
        };
        match row.first() {
            Some(&WHOLE) => return Ok(row.slice(1..)),
            Some(&CUT) if row.len() == 13 => {}
            _ => return Err(damaged("its kind is unknown")),
        }
        let parts = u32::from_be_bytes(row[1..5].try_into().expect("four bytes"));
        let length = u64::from_be_bytes(row[5..].try_into().expect("eight bytes"));
        let mut value = Vec::new();
        for nth in 0..parts {
            let name = part_name(key, nth);
            let until = [name.as_ref(), &[0]].concat();
            let found = store.page(&name, &until, 1)?;
            let (_, part) = found.first().ok_or_else(|| damaged("a part is missing"))?;
            value.extend_from_slice(part);
        }
        if value.len() as u64 != length {
            return Err(damaged("its parts have another length"));
        }
        self.0.insert(key.clone(), parts);
        Ok(value.into())
    }
}
