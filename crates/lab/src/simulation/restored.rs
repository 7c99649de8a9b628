//! Sites that are restored from a backup file, as `server::backup` does it: the state as it was,
//! one node, and a mark that others may know more.

use super::node::Belongs;
use super::{Down, NodeIndex, Simulation};
use protocol::bugs::Bug;
use protocol::replica::recovery;
use protocol::site::machine::deployment::mark_restored;
use protocol::site::machine::{Committed, Machine};
use std::path::Path;
use storage::log::{self, LogStart, LogWriter as _};
use storage::snapshot::{Folder, SnapshotHead, Snapshots as _};
use storage::state::memory::MemoryState;
use storage::state::{Batch, State as _};
use wire::peer::Member;

/// A backup of a site.
pub struct Backup(Batch);

impl<C> Simulation<C> {
    /// A backup of a site, as this node has it.
    #[must_use]
    pub fn back_up(&self, node: NodeIndex) -> Option<Backup> {
        let mut rows = Batch::default();
        self.rows(node)?.into_iter().for_each(|(key, row)| rows.put(key, row));
        Some(Backup(rows))
    }

    /// A site of one node loses its disk, and is restored from a backup.
    ///
    /// # Panics
    /// When the backup cannot be read.
    pub fn restore(&mut self, index: NodeIndex, backup: Backup) {
        self.crash(index, &Down::Killed);
        self.drained_at(index);
        let is_planted = self.settings.planted.is(Bug::RestoredUnmarked);
        let log_options = self.settings.log;
        let node = &mut self.nodes[index];
        node.wipe();
        let state = MemoryState::new();
        state.commit(backup.0).expect("an engine in memory");
        if !is_planted {
            mark_restored(&state).expect("a state");
        }
        let mut machine: Machine<MemoryState> = Machine::open(state.clone()).expect("a state");
        let last = machine.applied();
        let (index_next, term) = (last.index + 1, last.term + 1);
        let mut members = recovery::first_members(Member { since: index_next, ..node.member() });
        members.nodes.iter_mut().for_each(|member| member.since = index_next);
        let encoded = recovery::encode_members(&members);
        let members = Some(encoded.clone());
        let entry = Committed { index: index_next, term, batch: None, members };
        machine.apply(&[entry], &mut Vec::new()).expect("a state");
        let disk = node.disk.shared();
        let snapshots = Folder::open(&disk, Path::new("snapshots"), 0).expect("a disk in memory");
        let head = SnapshotHead { index: index_next, term, members: encoded };
        snapshots.write(&head, &state.view()).expect("a disk in memory");
        let opened = log::open_with(&disk, Path::new("log"), log_options);
        let (_, mut writer, _) = opened.expect("a disk in memory");
        writer.restart(LogStart { index: index_next, term }).expect("a disk in memory");
        (node.state, node.belongs, node.member_since) = (state, Belongs::Member, index_next);
        self.note_of(index, || "is restored from a backup".to_owned());
        self.start(index);
    }
}
