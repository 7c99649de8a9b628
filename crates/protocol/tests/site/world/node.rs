//! One node of a world: a disk, and the process that runs on it or does not.

use super::random::Random;
use model::{ClientId, NodeId, Time};
use protocol::site::raft::Persist;
use protocol::site::recovery::{self, RecoveryError};
use protocol::site::{Options, Site};
use std::collections::VecDeque;
use std::path::Path;
use storage::disk::memory::{MemoryDisk, Survival};
use storage::log::{self, LogStart, Reader, Writer};
use storage::snapshot::{Folder, SnapshotHead};
use storage::state::memory::{MemoryState, MemoryView};
use wire::peer::Member;

pub(crate) type TestSite = Site<MemoryState, Reader, Folder>;

/// How a node goes down.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    /// The process dies, the machine does not: all that was written is there.
    Killed,
    /// The power goes: of what was not synced so much survives, and the state goes back to when
    /// its engine last made it durable by itself.
    PowerLost(Survival),
}

/// A piece of work for the log's thread.
#[derive(Debug)]
pub(crate) enum DiskJob {
    Persist(Persist),
    Cut(LogStart),
}

/// A piece of long work.
pub(crate) enum Chore {
    Write { head: SnapshotHead, view: MemoryView },
    Finish { index: u64 },
    Load { head: SnapshotHead },
}

/// What a process has that a crash takes away.
pub(crate) struct Process {
    pub(crate) site: TestSite,
    pub(crate) writer: Writer,
    pub(crate) snapshots: Folder,
    pub(crate) jobs: VecDeque<DiskJob>,
    /// The number of the last persist that is written and being synced.
    pub(crate) syncing: Option<u64>,
    pub(crate) disk_busy: bool,
    pub(crate) disk_full: bool,
    pub(crate) chores: VecDeque<Chore>,
    pub(crate) chore_busy: bool,
}

/// Whether a node belongs to its site, as its identity file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    /// It begins the site.
    Begins,
    /// It asks to be taken in.
    Asks,
    /// It is a member, or was.
    Member,
}

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) witness: bool,
    pub(crate) disk: MemoryDisk,
    pub(crate) state: MemoryState,
    pub(crate) incarnation: u64,
    pub(crate) belongs: Belongs,
    /// How often it has started: what was meant for an earlier life does not reach it.
    pub(crate) life: u64,
    pub(crate) up: bool,
    pub(crate) process: Option<Process>,
    pub(crate) log_bytes_before_snapshot: u64,
    pub(crate) log_entries_kept: u64,
}

/// Small segments, so that tests see many.
pub(crate) const LOG: log::Options =
    log::Options { segment_bytes: 8 << 10, grow_bytes: 1 << 10, reserve_bytes: 0 };

impl Node {
    pub(crate) fn member(&self) -> Member {
        Member {
            node: self.id,
            address: format!("n{}", self.id),
            incarnation: self.incarnation,
            witness: self.witness,
        }
    }

    /// Starts the process of a node that need not ask anybody. What was repaired is told to `warn`.
    pub(crate) fn start(
        &mut self,
        now: Time,
        random: &mut Random,
        warn: &mut dyn FnMut(String),
    ) -> Result<(), RecoveryError> {
        let disk = self.disk.shared();
        let (mut recovered, mut writer, reader) = log::open_with(&disk, Path::new("log"), LOG)?;
        let snapshots = Folder::open(&disk, Path::new("snapshots"))?;
        if self.belongs == Belongs::Begins {
            recovery::begin_site(self.member(), &mut writer, &snapshots, &self.state)?;
            self.belongs = Belongs::Member;
        }
        let state = self.state.clone();
        let replica = recovery::recover(&mut recovered, &mut writer, &snapshots, state, warn)?;
        let options = Options {
            witness: self.witness,
            log_bytes_before_snapshot: self.log_bytes_before_snapshot,
            log_entries_kept: self.log_entries_kept,
            ..Options::new(NodeId(self.id), ClientId(random.next()), random.next())
        };
        let site = Site::new(options, now, &recovered, reader, snapshots.clone(), replica);
        self.process = Some(Process {
            site,
            writer,
            snapshots,
            jobs: VecDeque::new(),
            syncing: None,
            disk_busy: false,
            disk_full: false,
            chores: VecDeque::new(),
            chore_busy: false,
        });
        Ok(())
    }

    pub(crate) fn stop(&mut self, down: &Down) {
        self.process = None;
        self.up = false;
        self.life += 1;
        match down {
            Down::Killed => self.disk.kill(),
            Down::PowerLost(survival) => {
                self.disk.crash(survival);
                self.state.crash();
            }
        }
    }

    /// Puts a new, empty disk in.
    pub(crate) fn wipe(&mut self, incarnation: u64) {
        self.disk = MemoryDisk::new();
        self.state = MemoryState::new();
        self.incarnation = incarnation;
        self.belongs = Belongs::Asks;
    }
}
