//! Places of the entries, shared by the writer, the readers and recovery.
//!
//! The index does not contain every entry. A *mark* is the place of a record that begins a *run*:
//! records that follow each other in one segment, with entries that follow each other in index. To
//! find an entry, take the last mark at or before it and walk the run. A new run begins every
//! [`RUN_BYTES`], in every segment, and wherever entries were replaced; so the index of a log of
//! 128 MiB takes less than a megabyte, whatever the size of its entries.

use crate::disk::AnyFile;
use crate::log::LogStart;
use std::collections::VecDeque;
use std::path::PathBuf;

/// The length after which a run ends.
const RUN_BYTES: u64 = 4 << 10;

/// A segment file that is part of the log.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) sequence: u64,
    pub(super) path: PathBuf,
    pub(super) file: AnyFile,
    /// The index that the next entry had when the segment was begun.
    pub(super) next_index: u64,
    /// The end of its records.
    pub(super) end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The first entry of the record there.
    pub(super) index: u64,
    pub(super) sequence: u64,
    pub(super) offset: u64,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) start: LogStart,
    /// The last entry; `start.index` if there is none.
    pub(super) last_index: u64,
    /// In order of their sequence numbers, without gaps.
    pub(super) segments: VecDeque<Segment>,
    /// In order of index and of place.
    marks: VecDeque<Mark>,
}

impl Index {
    /// The index of a log that begins anew.
    pub(super) fn new(start: LogStart) -> Self {
        Self { start, last_index: start.index, ..Self::default() }
    }

    /// Adds a record of `entries` > 0 entries, which replace those from its first one on.
    pub(super) fn add(&mut self, record: Mark, entries: u64) {
        while self.marks.back().is_some_and(|mark| mark.index >= record.index) {
            self.marks.pop_back();
        }
        let in_run = record.index == self.last_index + 1
            && self.marks.back().is_some_and(|mark| {
                mark.sequence == record.sequence && record.offset - mark.offset < RUN_BYTES
            });
        if !in_run {
            self.marks.push_back(record);
        }
        self.last_index = record.index + entries - 1;
    }

    /// Removes the places of entries up to `start.index`.
    pub(super) fn cut(&mut self, start: LogStart) {
        self.start = start;
        self.last_index = self.last_index.max(start.index);
        while self.marks.get(1).is_some_and(|second| second.index <= start.index + 1) {
            self.marks.pop_front();
        }
        if self.last_index == start.index {
            self.marks.clear();
        }
    }

    /// The run that holds entry `index`, which must be in the log, and the index behind the run.
    pub(super) fn run(&self, index: u64) -> Option<(Mark, u64)> {
        let behind = self.marks.partition_point(|mark| mark.index <= index);
        let mark = *self.marks.get(behind.checked_sub(1)?)?;
        let until = self.marks.get(behind).map_or(self.last_index + 1, |next| next.index);
        Some((mark, until))
    }

    pub(super) fn segment(&self, sequence: u64) -> Option<&Segment> {
        let first = self.segments.front()?.sequence;
        self.segments.get(usize::try_from(sequence.checked_sub(first)?).ok()?)
    }

    /// Bytes of the records from the first one of the entries after the start.
    pub(super) fn size_bytes(&self) -> u64 {
        self.bytes_after(self.start.index)
    }

    /// Bytes of the records from the run on that holds the entry after `index`, or else from the
    /// last run on.
    pub(super) fn bytes_after(&self, index: u64) -> u64 {
        let Some((mark, _)) = self.run(index.max(self.start.index) + 1) else {
            return 0;
        };
        let counted = self.segments.iter().filter(|found| found.sequence >= mark.sequence);
        counted.map(|segment| segment.end).sum::<u64>() - mark.offset
    }
}
