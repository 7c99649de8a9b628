//! Forged segments, for the fuzzer and for a property test: see [`open_forged`] and
//! [`open_edited`]. Not for other uses.

use super::format::{
    ALIGNMENT, Kind, RECORD_HEADER_BYTES, RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader,
};
use super::{Options, open_with, segment_name};
use crate::disk::Disk;
use crate::disk::memory::MemoryDisk;
use crate::log::{Append, Entry, HardState, LogReader, LogStart, LogWriter};
use model::Bytes;
use std::path::Path;

const OPTIONS: Options = Options { segment_bytes: 2048, grow_bytes: 256, reserve_bytes: 0 };

/// Hands out the input chunk by chunk; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self) -> u64 {
        // One length byte, so that small numbers and enormous ones are both near.
        let len = usize::from(self.bytes(1).first().copied().unwrap_or(0)) % 9;
        let mut number = [0; 8];
        let taken = self.bytes(len);
        number[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(number)
    }
}

/// Opens a log of two segments with the input's values in their headers and records, and with all
/// checksums right. Opening may be refused; otherwise the result must be a valid log.
pub fn open_forged(input: &[u8]) {
    let input = &mut Input(input);
    let disk = MemoryDisk::new();
    for sequence in 1..=2 {
        let header = SegmentHeader {
            sequence,
            previous_end: input.number(),
            next_index: input.number(),
            start: LogStart { index: input.number(), term: input.number() },
            hard_state: HardState { commit: input.number(), ..HardState::default() },
        };
        let mut file = header.encode().to_vec();
        for _ in 0..input.number() % 9 {
            let payload = input.bytes(input.0.first().map_or(0, |len| usize::from(*len)));
            let record = RecordHeader {
                payload_bytes: payload.len() as u32,
                payload_crc: crc32fast::hash(payload),
                first_index: input.number(),
                durable_before: input.number() as u32,
                entries: input.number() as u32,
                kind: if input.number() % 2 == 0 { Kind::Append } else { Kind::Start },
            };
            file.extend_from_slice(&record.encode(sequence, file.len() as u64));
            file.extend_from_slice(payload);
            file.resize(file.len().next_multiple_of(ALIGNMENT as usize), 0);
        }
        file.resize(file.len() + RECORD_HEADER_BYTES, 0);
        debug_assert!(file.len() as u64 > SEGMENT_HEADER_BYTES);
        let name = segment_name(sequence);
        disk.plant(&Path::new("/log").join(name), file);
    }
    check(&disk);
}

/// Writes a log, edits its files according to the input, and opens it. Opening may be refused;
/// otherwise each of its entries must be one that was written, and they must follow each other.
pub fn open_edited(input: &[u8]) {
    let input = &mut Input(input);
    let disk = MemoryDisk::new();
    let folder = Path::new("/log");
    let (_, mut writer, _) = open_with(&disk.shared(), folder, OPTIONS).expect("a new log");
    for first in (1..30).step_by(3) {
        let entries = (first..first + 3).map(written).collect();
        writer.write(&Append { hard_state: None, entries }).expect("it fits");
        writer.sync().expect("nothing fails");
    }
    drop(writer);
    let names = disk.list(folder).expect("it is there");
    for _ in 0..1 + input.number() % 4 {
        let path = folder.join(&names[input.number() as usize % names.len()]);
        let mut bytes = disk.read(&path).unwrap_or_default();
        let at = input.number() as usize % (bytes.len() + 1);
        match input.number() % 4 {
            0 => bytes.truncate(at),
            1 => {
                let len = usize::from(input.number() as u8);
                bytes.splice(at..at, input.bytes(len).iter().copied());
            }
            2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 + at as u8 % 255),
            _ => {
                let from = input.number() as usize % (bytes.len() + 1);
                let chunk = bytes[from.min(at)..from.max(at)].to_vec();
                bytes.extend_from_slice(&chunk);
            }
        }
        disk.plant(&path, bytes);
    }
    for entry in check(&disk) {
        assert_eq!(entry, written(entry.index));
    }
}

fn written(index: u64) -> Entry {
    let payload = Bytes::from(vec![index as u8; 40 + index as usize]);
    Entry { index, term: 1 + index / 10, kind: index as u8, payload }
}

/// The entries of a log; also checks that they stay the same after an append and another opening.
fn check(disk: &MemoryDisk) -> Vec<Entry> {
    let folder = Path::new("/log");
    let Ok((recovered, mut writer, reader)) = open_with(&disk.shared(), folder, OPTIONS) else {
        return Vec::new();
    };
    let low = recovered.start.index + 1;
    let entries = reader.entries(low, u64::MAX, usize::MAX).expect("it was just checked");
    assert!((low..).zip(&entries).all(|(index, entry)| entry.index == index));
    assert_eq!(entries.len() as u64, recovered.last_index - recovered.start.index);

    let added = Entry { index: recovered.last_index + 1, ..written(7) };
    let append = Append { hard_state: None, entries: vec![added.clone()] };
    writer.write(&append).expect("there is room");
    writer.sync().expect("nothing fails");
    let (again, _, reader) = open_with(&disk.shared(), folder, OPTIONS).expect("it was opened");
    assert_eq!((again.last_index, again.torn_bytes), (added.index, 0));
    let last = reader.entries(added.index, u64::MAX, usize::MAX);
    assert_eq!(last.expect("it is there"), [added]);
    entries
}

#[cfg(test)]
mod tests {
    use super::{open_edited, open_forged};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 3_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn forged_segments_are_refused_or_are_a_log(input in prop::collection::vec(any::<u8>(), 0..600)) {
            open_forged(&input);
        }

        /// Small numbers, which forged segments need to make any sense.
        #[test]
        fn plausible_segments_are_refused_or_are_a_log(input in prop::collection::vec(0..4_u8, 0..300)) {
            open_forged(&input);
        }

        #[test]
        fn edited_segments_are_refused_or_show_what_was_written(
            input in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..100),
        ) {
            open_edited(&input);
        }
    }
}
