//! Snapshots: made when the log is long, served to those who lag, taken in when this node does.

use super::transfer::{Incoming, Taking};
use super::{Output, Site, machine};
use bytes::Bytes;
use model::{NodeId, limits};
use prost::Message as _;
use std::time::Duration;
use storage::log::{LogReader, LogStart};
use storage::snapshot::{Chunk, SnapshotError, SnapshotHead, Snapshots};
use storage::state::State;
use wire::peer::{self, Say};

/// A snapshot that somebody has taken a piece of so lately is not replaced by a newer one.
const SNAPSHOT_IN_USE: Duration = Duration::from_secs(10);

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn snapshot_if_long(&mut self) {
        let in_use =
            self.last_chunk_served.is_some_and(|at| at + SNAPSHOT_IN_USE > self.now.monotonic);
        if self.log_bytes < self.snapshot_at_bytes || self.writing_snapshot || in_use {
            return;
        }
        let state_bytes = self.state.size_bytes();
        if self.log_bytes < state_bytes {
            self.snapshot_at_bytes = state_bytes;
            return;
        }
        self.write_snapshot();
    }

    pub(super) fn write_snapshot(&mut self) {
        self.writing_snapshot = true;
        self.log_bytes = 0;
        self.snapshot_at_bytes = self.options.log_bytes_before_snapshot;
        let head = SnapshotHead {
            index: self.applied,
            term: self.machine.applied().term,
            members: self.members.encode_to_vec().into(),
        };
        self.outputs.push_back(Output::WriteSnapshot { head, view: self.state.view() });
    }

    pub(super) fn snapshot_written(&mut self, written: Result<SnapshotHead, String>) {
        self.writing_snapshot = false;
        // A snapshot that failed is tried again when the log has grown as much once more.
        let Ok(head) = written else { return };
        if self.finish_witness_snapshot(&head) {
            return;
        }
        let start = self.raft.start();
        let kept = head.index.saturating_sub(limits::LOG_ENTRIES_KEPT_BEHIND_SNAPSHOT);
        let cut = kept.max(start.index);
        let term = if cut == start.index {
            start.term
        } else {
            self.raft.term_of(cut).unwrap_or(head.term)
        };
        let members = decode_members(&head.members);
        let at = LogStart { index: head.index, term: head.term };
        self.raft.snapshot_written(at, &members, LogStart { index: cut, term });
        self.snapshot = Some(head);
        if cut > start.index {
            self.outputs.push_back(Output::CutLog(LogStart { index: cut, term }));
        }
    }

    /// A follower asks for a piece of a snapshot of ours.
    pub(super) fn serve_chunk(&mut self, from: NodeId, wanted: peer::SnapshotWanted) {
        self.last_chunk_served = Some(self.now.monotonic);
        let bytes_max = limits::SNAPSHOT_CHUNK_BYTES_MAX;
        let chunk = match self.snapshots.read_chunk(wanted.index, wanted.offset, bytes_max) {
            Ok(chunk) => chunk,
            Err(SnapshotError::Absent { .. }) => {
                self.raft.snapshot_sent(from, false);
                Chunk { offset: wanted.offset, bytes: Bytes::new(), total_bytes: 0 }
            }
            Err(error) => return self.fail(error),
        };
        let Chunk { offset, bytes, total_bytes } = chunk;
        let chunk = peer::SnapshotChunk { index: wanted.index, offset, total_bytes, bytes };
        self.outputs
            .push_back(Output::Send { to: from, message: Say::SnapshotChunk(chunk).into() });
    }

    /// The leader says that we need a snapshot.
    pub(super) fn take_snapshot_offer(&mut self, from: NodeId, message: peer::Raft) {
        let Some(index) = message.snapshot.as_ref().map(|head| head.index) else { return };
        if self.incoming.as_ref().is_some_and(|incoming| {
            incoming.index == index || matches!(incoming.taking, Taking::Loading)
        }) {
            return;
        }
        if index <= self.applied {
            self.raft.step(message);
            return;
        }
        let taking = Taking::Pieces { offset: 0, ask_again: Duration::ZERO };
        self.incoming = Some(Incoming { from, index, message, taking });
        if self.options.witness {
            self.take_witness_snapshot();
        }
    }

    pub(super) fn want_chunk(&mut self) {
        let patience = self.options.election_timeout();
        let now = self.now.monotonic;
        let Some(incoming) = &mut self.incoming else { return };
        let to = incoming.from;
        if let Some(wanted) = incoming.next_wanted(now, patience) {
            let message = Say::SnapshotWanted(wanted).into();
            self.outputs.push_back(Output::Send { to, message });
        }
    }

    pub(super) fn take_chunk(&mut self, from: NodeId, piece: peer::SnapshotChunk) {
        let Some(incoming) = &mut self.incoming else { return };
        let asked =
            matches!(incoming.taking, Taking::Pieces { offset, .. } if offset == piece.offset);
        if incoming.from != from || incoming.index != piece.index || !asked {
            return;
        }
        if piece.total_bytes == 0 {
            self.incoming = None;
            return;
        }
        let chunk =
            Chunk { offset: piece.offset, bytes: piece.bytes, total_bytes: piece.total_bytes };
        match self.snapshots.receive(piece.index, &chunk) {
            Ok(next) => incoming.took(next, chunk.total_bytes),
            // Asked for again after a while, perhaps with room.
            Err(SnapshotError::Full { .. }) => return,
            Err(error) => return self.fail(error),
        }
        if matches!(incoming.taking, Taking::Loading) {
            self.outputs.push_back(Output::InstallSnapshot { index: piece.index });
            self.move_gate();
        }
    }

    pub(super) fn snapshot_installed(&mut self, installed: Result<SnapshotHead, String>) {
        let head = match installed {
            Ok(head) => head,
            // What the state holds now is not known; at the next start it is rebuilt.
            Err(why) => return self.fail(format!("a snapshot could not be installed: {why}")),
        };
        match self.machine.reload() {
            Ok(()) => self.take_effect(head),
            Err(error) => self.fail(error),
        }
    }

    /// A witness needs no more of a snapshot than what it is of.
    pub(super) fn take_witness_snapshot(&mut self) {
        let Some(incoming) = &mut self.incoming else { return };
        incoming.taking = Taking::Loading;
        let Some(head) = incoming.message.snapshot.clone() else { return };
        let members: Bytes = head.members.unwrap_or_default().encode_to_vec().into();
        let applied = machine::Applied { index: head.index, term: head.term };
        if let Err(error) = self.machine.skip_to(applied, members.clone()) {
            return self.fail(error);
        }
        let head = SnapshotHead { index: head.index, term: head.term, members };
        self.outputs.push_back(Output::WriteSnapshot { head, view: self.state.view() });
    }

    pub(super) fn finish_witness_snapshot(&mut self, head: &SnapshotHead) -> bool {
        let taken = self.options.witness
            && self.incoming.as_ref().is_some_and(|incoming| incoming.index == head.index);
        if taken {
            self.take_effect(head.clone());
        }
        taken
    }

    /// The state is that of a snapshot now: raft and everybody who waits are told.
    pub(super) fn take_effect(&mut self, head: SnapshotHead) {
        let Some(incoming) = self.incoming.take() else { return };
        self.applied = head.index;
        self.members = decode_members(&head.members);
        self.members_changed();
        self.last_log_time_ms = self.last_log_time_ms.max(self.machine.log_time_ms());
        self.log_bytes = 0;
        let mut settled = Vec::new();
        self.writes.covered_by_snapshot(head.index, &mut settled);
        self.settle(settled);
        self.snapshot = Some(head);
        self.raft.step(incoming.message);
        let held = std::mem::take(&mut self.held);
        self.apply(held);
        self.outputs.push_back(Output::Applied);
    }
}

fn decode_members(bytes: &Bytes) -> peer::Members {
    peer::Members::decode(bytes.clone()).expect("members are checked where they come in")
}
