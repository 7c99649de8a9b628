//! The life of a log's writer beside a model of what it wrote: after any crash the log must show a
//! state that the model thinks possible.

use model::Bytes;
use std::path::Path;
use storage::disk::memory::MemoryDisk;
use storage::log::{
    Append, Entry, HardState, LogError, LogReader, LogStart, LogWriter, Options, Reader, Recovered,
    Writer, open_with,
};

pub(crate) const OPTIONS: Options =
    Options { segment_bytes: 2560, grow_bytes: 256, reserve_bytes: 0 };

pub(crate) fn folder() -> &'static Path {
    Path::new("/log")
}

pub(crate) fn open(disk: &MemoryDisk) -> Result<(Recovered, Writer, Reader), LogError> {
    open_with(&disk.shared(), folder(), OPTIONS)
}

/// What a log holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) hard_state: HardState,
    pub(crate) start: LogStart,
    /// Those behind the start.
    pub(crate) entries: Vec<Entry>,
}

/// A step of a writer's life.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Appends entries, of which the first replaces the last `replaces` ones.
    Append {
        entries: usize,
        len: usize,
        replaces: usize,
        hard_state: bool,
    },
    Sync,
    /// Cuts the log, this many entries before its end.
    Cut {
        before_end: usize,
    },
    /// Begins anew, so far behind its end.
    Restart {
        behind_end: u64,
    },
    /// Has a spare made, if one is due.
    Spare,
}

impl Model {
    pub(crate) fn last_index(&self) -> u64 {
        self.start.index + self.entries.len() as u64
    }

    pub(crate) fn term(&self) -> u64 {
        self.entries.last().map_or(self.start.term, |entry| entry.term)
    }

    pub(crate) fn read(recovered: &Recovered, reader: &Reader) -> Result<Self, LogError> {
        let entries = reader.entries(recovered.start.index + 1, u64::MAX, usize::MAX)?;
        let found = Self { hard_state: recovered.hard_state, start: recovered.start, entries };
        assert_eq!(found.last_index(), recovered.last_index);
        let mut terms: Vec<LogStart> = Vec::new();
        for entry in &found.entries {
            if terms.last().is_none_or(|run| run.term != entry.term) {
                terms.push(LogStart { index: entry.index, term: entry.term });
            }
        }
        assert_eq!(terms, recovered.terms);
        Ok(found)
    }

    /// The append of a step.
    pub(crate) fn append(&self, step: &Step, number: u64) -> Option<Append> {
        let Step::Append { entries, len, replaces, hard_state } = *step else {
            return None;
        };
        let replaced = replaces.min(self.entries.len());
        let first = self.last_index() + 1 - replaced as u64;
        let term = self.term() + u64::from(replaced > 0);
        let entry = |index| Entry {
            index,
            term,
            kind: number as u8,
            payload: Bytes::from(vec![number as u8; len + index as usize % 5]),
        };
        Some(Append {
            hard_state: hard_state.then_some(HardState {
                term,
                vote: number,
                commit: self.start.index,
            }),
            entries: (first..first + entries as u64).map(entry).collect(),
        })
    }

    pub(crate) fn apply(&mut self, append: &Append) {
        if let Some(hard_state) = append.hard_state {
            self.hard_state = hard_state;
        }
        if let Some(first) = append.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend_from_slice(&append.entries);
        }
    }

    pub(crate) fn cut(&mut self, start: LogStart) {
        self.start = start;
        self.entries.retain(|entry| entry.index > start.index);
        self.hard_state.commit = self.hard_state.commit.max(start.index);
    }

    pub(crate) fn cut_before_end(&self, before_end: usize) -> LogStart {
        let position = self.entries.len().saturating_sub(before_end);
        match position.checked_sub(1) {
            Some(last) => {
                LogStart { index: self.entries[last].index, term: self.entries[last].term }
            }
            None => self.start,
        }
    }
}

/// A writer's life, with all that may be found if it ends now.
pub(crate) struct Life {
    pub(crate) now: Model,
    /// What was durable for certain, and every state since.
    pub(crate) possible: Vec<Model>,
    pub(crate) number: u64,
}

impl Life {
    pub(crate) fn new(found: Model) -> Self {
        Self { possible: vec![found.clone()], now: found, number: 0 }
    }

    /// Does a step, and keeps account of what it may have left.
    pub(crate) fn step(&mut self, writer: &mut Writer, step: &Step) -> Result<(), LogError> {
        self.number += 1;
        let mut next = self.now.clone();
        let outcome = match step {
            Step::Append { .. } => {
                let append = self.now.append(step, self.number).expect("an append");
                next.apply(&append);
                writer.write(&append)
            }
            Step::Sync => writer.sync(),
            Step::Cut { before_end } => {
                let start = self.now.cut_before_end(*before_end);
                next.cut(start);
                writer.cut(start)
            }
            Step::Restart { behind_end } => {
                let start =
                    LogStart { index: self.now.last_index() + behind_end, term: self.now.term() };
                next.cut(start);
                next.entries.clear();
                writer.restart(start)
            }
            Step::Spare => writer.spare_due().map_or(Ok(()), |spare| match spare.prepare() {
                // The log continues without it.
                Err(LogError::Full { .. }) => Ok(()),
                other => other,
            }),
        };
        match &outcome {
            // Without a trace.
            Err(LogError::Full { .. }) => return outcome,
            Err(_) => {
                self.possible.push(next);
                return outcome;
            }
            Ok(()) => {}
        }
        self.possible.push(next.clone());
        self.now = next;
        let cut_nothing = matches!(step, Step::Cut { .. })
            && self.now.start == self.possible[self.possible.len() - 2].start;
        if !matches!(step, Step::Append { .. } | Step::Spare) && !cut_nothing {
            self.possible = vec![self.now.clone()];
        }
        Ok(())
    }

    /// Opens what a crash left, and checks the promise.
    pub(crate) fn check(&self, disk: &MemoryDisk, context: &str) -> Model {
        let (recovered, _, reader) =
            open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found =
            Model::read(&recovered, &reader).unwrap_or_else(|error| panic!("{context}: {error}"));
        let alike = |model: &Model| {
            // The commit index is a hint; and of it a start is as good a source.
            let hard_state = HardState { commit: found.hard_state.commit, ..model.hard_state };
            Model { hard_state, ..model.clone() } == found
        };
        assert!(
            self.possible.iter().any(alike),
            "{context}: found {found:?}, possible were {:#?}",
            self.possible
        );
        found
    }
}
