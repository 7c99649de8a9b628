//! Snapshots: made when the log is long, served to nodes that lag, taken in when this node does.

#[cfg(test)]
mod tests;

use super::{Output, Site, machine};
use crate::replica::changing::LastChange;
use crate::replica::snapshots::{Incoming, NotInstalled, Taking};
use bytes::Bytes;
use model::{NodeId, limits};
use prost::Message as _;
use std::time::Duration;
use storage::log::{LogReader, LogStart};
use storage::snapshot::{Chunk, SnapshotError, SnapshotHead, Snapshots};
use storage::state::State;
use wire::peer::{self, Content};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn snapshot_if_long(&mut self) {
        let state_bytes = || self.state.size_bytes();
        let is_whole = !self.snapshots.is_loading();
        if is_whole && self.snapshots.is_due(self.now.monotonic, state_bytes) {
            self.write_snapshot();
        }
    }

    pub(super) fn write_snapshot(&mut self) {
        self.snapshots.is_writing = true;
        self.snapshots.log_bytes = 0;
        self.snapshots.due_at_bytes = self.options.log_bytes_before_snapshot;
        let head = SnapshotHead {
            index: self.replica.applied,
            term: self.machine.applied().term,
            members: self.replica.members.encode_to_vec().into(),
        };
        self.outputs.push_back(Output::WriteSnapshot { head, view: self.state.view() });
    }

    pub(super) fn snapshot_written(&mut self, written: Result<SnapshotHead, String>) {
        let own = std::mem::take(&mut self.snapshots.is_writing);
        // A snapshot that failed is tried again when the log has grown as much once more; one that
        // a witness was to take in, when it is offered again.
        let Ok(head) = written else {
            if self.options.witness && !own {
                self.snapshots.incoming = None;
                let held = std::mem::take(&mut self.replica.held);
                self.apply(held);
            }
            return;
        };
        if self.finish_witness_snapshot(&head) {
            return;
        }
        self.snapshots.latest = Some(head);
        self.cut_log();
    }

    /// Cuts the log behind the latest snapshot. A process that ended between the two leaves that
    /// to the next one.
    pub(super) fn cut_log(&mut self) {
        let Some(head) = &self.snapshots.latest else { return };
        let start = self.replica.raft.start();
        let cut = self.last_not_kept(head.index).max(start.index);
        let term = if cut == start.index {
            start.term
        } else {
            self.replica.raft.term_of(cut).unwrap_or(head.term)
        };
        let members = decode_members(&head.members);
        let at = LogStart { index: head.index, term: head.term };
        self.replica.raft.snapshot_written(at, &members, LogStart { index: cut, term });
        if cut > start.index {
            self.outputs.push_back(Output::CutLog(LogStart { index: cut, term }));
        }
    }

    /// The last entry that is not kept behind a snapshot of `index`. Those kept are limited in
    /// number, and in bytes by what the log grows by before the next snapshot.
    fn last_not_kept(&self, index: u64) -> u64 {
        let bytes_max = self.options.log_bytes_before_snapshot;
        // After a start the state may lag behind the snapshot, and needs what follows it.
        let mut high = index.min(self.replica.applied);
        let mut low = index.saturating_sub(self.options.log_entries_kept).min(high);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.replica.raft.bytes_between(middle, index) <= bytes_max {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    /// A follower asks for a chunk of a snapshot of ours.
    pub(super) fn serve_chunk(&mut self, from: NodeId, wanted: peer::SnapshotWanted) {
        if wanted.is_damaged {
            return self.replace_damaged(from, &wanted, "it arrives damaged");
        }
        self.snapshots.last_chunk_served = Some(self.now.monotonic);
        if let Some(since) = self.snapshots.offered.get_mut(&from) {
            *since = self.now.monotonic;
        }
        let bytes_max = if self.rare.happens() { 200 } else { limits::SNAPSHOT_CHUNK_BYTES_MAX };
        let chunk = match self.snapshots.store.read_chunk(wanted.index, wanted.offset, bytes_max) {
            Ok(chunk) => chunk,
            Err(SnapshotError::Absent { .. }) => return self.refuse_chunk(from, &wanted),
            Err(error) => return self.replace_damaged(from, &wanted, &error.to_string()),
        };
        let Chunk { offset, bytes, total_bytes } = chunk;
        let chunk = peer::SnapshotChunk { index: wanted.index, offset, total_bytes, bytes };
        self.send(from, Content::SnapshotChunk(chunk));
    }

    /// A snapshot of ours that cannot be read, or was sent whole and has arrived damaged, is no more
    /// offered. The state is as good: another is written from it at once, as this node may have to
    /// start from its snapshot too.
    fn replace_damaged(&mut self, to: NodeId, wanted: &peer::SnapshotWanted, why: &str) {
        let index = wanted.index;
        self.warn(format!("the snapshot of entry {index} cannot be sent to node {}: {why}", to.0));
        if self.snapshots.latest.as_ref().is_some_and(|head| head.index == index) {
            self.replica.raft.offer_snapshot_no_more();
            if !self.snapshots.is_loading() && !self.snapshots.is_writing {
                self.write_snapshot();
            }
        }
        self.refuse_chunk(to, wanted);
    }

    /// The receiver takes this only in answer to what it asked for last.
    fn refuse_chunk(&mut self, to: NodeId, wanted: &peer::SnapshotWanted) {
        self.replica.raft.snapshot_sent(to, false);
        let (index, offset) = (wanted.index, wanted.offset);
        let chunk = peer::SnapshotChunk { index, offset, ..peer::SnapshotChunk::default() };
        self.send(to, Content::SnapshotChunk(chunk));
    }

    /// The leader's message that this node needs a snapshot.
    pub(super) fn take_snapshot_offer(&mut self, from: NodeId, message: peer::Raft) {
        let Some(index) = message.snapshot.as_ref().map(|head| head.index) else { return };
        if message.term < self.replica.raft.term() {
            return;
        }
        // One that is offered again goes on where it is, unless another node offers it: the first
        // may be gone, and the other's file need not be the same to the byte.
        if self.snapshots.incoming.as_ref().is_some_and(|incoming| {
            let same = incoming.index == index && incoming.from == from;
            same || matches!(incoming.taking, Taking::Loading)
        }) {
            return;
        }
        if index <= self.replica.applied {
            self.replica.raft.step(message);
            return;
        }
        let taking = Taking::Chunks { offset: 0, ask_again: Duration::ZERO };
        let is_damaged = false;
        self.snapshots.incoming = Some(Incoming { from, index, message, taking, is_damaged });
        if self.options.witness {
            self.take_witness_snapshot();
        }
    }

    /// A leader offers a snapshot again to a node that has not asked for a chunk of it for long:
    /// the offer, or the report that it was taken in, may have been lost.
    pub(super) fn offer_again(&mut self) {
        let now = self.now.monotonic;
        let timeout = 2 * self.options.election_timeout();
        let others = self.replica.members.nodes.iter().map(|member| NodeId(member.node));
        let behind: Vec<_> =
            others.filter(|node| self.replica.raft.wants_snapshot(*node)).collect();
        self.snapshots.offered.retain(|node, _| behind.contains(node));
        for node in behind {
            let since = self.snapshots.offered.entry(node).or_insert(now);
            if *since + timeout <= now {
                *since = now;
                self.replica.raft.snapshot_sent(node, false);
            }
        }
    }

    pub(super) fn want_chunk(&mut self) {
        let timeout = self.options.election_timeout();
        let now = self.now.monotonic;
        let Some(incoming) = &mut self.snapshots.incoming else { return };
        let to = incoming.from;
        if let Some(wanted) = incoming.next_wanted(now, timeout) {
            self.send(to, Content::SnapshotWanted(wanted));
        }
    }

    pub(super) fn take_chunk(&mut self, from: NodeId, chunk: peer::SnapshotChunk) {
        let timeout = self.options.election_timeout();
        let Some(incoming) = &mut self.snapshots.incoming else { return };
        let asked =
            matches!(incoming.taking, Taking::Chunks { offset, .. } if offset == chunk.offset);
        if incoming.from != from || incoming.index != chunk.index || !asked {
            return;
        }
        if chunk.total_bytes == 0 {
            self.snapshots.incoming = None;
            return;
        }
        let received =
            Chunk { offset: chunk.offset, bytes: chunk.bytes, total_bytes: chunk.total_bytes };
        // A whole snapshot is loaded over the state.
        let state_bytes = if chunk.offset == 0 { self.state.size_bytes() } else { 0 };
        match self.snapshots.store.receive(chunk.index, &received, state_bytes) {
            Ok(next) => {
                incoming.took(next, chunk.total_bytes);
                self.snapshots.lacks_room = false;
            }
            // What was received is gone: all of it is asked for again after a while, perhaps with
            // room.
            Err(error @ (SnapshotError::Full { .. } | SnapshotError::OutOfOrder { .. })) => {
                incoming.begin_anew(self.now.monotonic + timeout);
                let lacks_room = matches!(error, SnapshotError::Full { .. });
                if lacks_room && !std::mem::replace(&mut self.snapshots.lacks_room, true) {
                    self.warn(format!("this node lags until it has room for a snapshot: {error}"));
                }
                return;
            }
            Err(error) => return self.fail(error),
        }
        if matches!(incoming.taking, Taking::Loading) {
            self.outputs.push_back(Output::InstallSnapshot { index: chunk.index });
            self.move_gate();
        }
    }

    pub(super) fn snapshot_installed(&mut self, installed: Result<SnapshotHead, NotInstalled>) {
        let head = match installed {
            Ok(head) => head,
            Err(NotInstalled::Damaged(_)) => return self.take_in_again(true),
            Err(NotInstalled::Gone(_)) => return self.take_in_again(false),
            Err(NotInstalled::Failed(why)) => {
                return self.fail(format!("a snapshot could not be installed: {why}"));
            }
        };
        match self.machine.reload() {
            Ok(()) => self.take_effect(head),
            Err(error) => self.fail(error),
        }
    }

    /// The state is as it was before a snapshot came: it goes on, and asks for another.
    fn take_in_again(&mut self, is_damaged: bool) {
        let then = self.now.monotonic + self.options.election_timeout();
        let Some(incoming) = &mut self.snapshots.incoming else { return };
        incoming.is_damaged = is_damaged;
        incoming.begin_anew(then);
        let held = std::mem::take(&mut self.replica.held);
        self.apply(held);
        self.move_gate();
    }

    /// A witness needs no more of a snapshot than what it is of.
    pub(super) fn take_witness_snapshot(&mut self) {
        let Some(incoming) = &mut self.snapshots.incoming else { return };
        incoming.taking = Taking::Loading;
        let Some(head) = incoming.message.snapshot.clone() else { return };
        let members: Bytes = head.members.unwrap_or_default().encode_to_vec().into();
        let head = SnapshotHead { index: head.index, term: head.term, members };
        // The state follows when this is durable: it must never be ahead of log and snapshot.
        self.outputs.push_back(Output::WriteSnapshot { head, view: self.state.view() });
    }

    pub(super) fn finish_witness_snapshot(&mut self, head: &SnapshotHead) -> bool {
        let taken = self.options.witness && self.snapshots.takes_in(head.index);
        if taken {
            let applied = machine::Applied { index: head.index, term: head.term };
            match self.machine.skip_to(applied, head.members.clone()) {
                Ok(()) => self.take_effect(head.clone()),
                Err(error) => self.fail(error),
            }
        }
        taken
    }

    /// The state is that of a snapshot now: raft and all waiting requests follow.
    pub(super) fn take_effect(&mut self, head: SnapshotHead) {
        let Some(Incoming { mut message, .. }) = self.snapshots.incoming.take() else { return };
        self.replica.applied = head.index;
        self.replica.members = decode_members(&head.members);
        self.replica.last_change = Some(LastChange::unknown(head.index));
        if let Err(why) = self.check_own_life() {
            self.fail(why);
            return;
        }
        self.members_changed();
        self.replica.log_clock.reached(self.machine.log_time_ms());
        self.snapshots.log_bytes = 0;
        let mut settled = Vec::new();
        self.replica.writes.covered_by_snapshot(head.index, &mut settled);
        self.settle(settled);
        let at = LogStart { index: head.index, term: head.term };
        self.snapshots.latest = Some(head);
        let held = std::mem::take(&mut self.replica.held);
        let (covered, later): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|entry| entry.index <= self.replica.applied);
        self.reconfigure(&covered);
        // What is committed stays so in every later term; a message of an earlier one is ignored.
        if message.term < self.replica.raft.term() {
            message.term = self.replica.raft.term();
            message.from = self.replica.raft.leader().map_or(message.from, |leader| leader.0);
        }
        self.replica.raft.step(message);
        self.replica.raft.snapshot_loaded(at, &self.replica.members);
        self.apply(later);
        self.outputs.push_back(Output::Applied);
    }
}

fn decode_members(bytes: &Bytes) -> peer::Members {
    peer::Members::decode(bytes.clone()).expect("members are checked where they come in")
}
