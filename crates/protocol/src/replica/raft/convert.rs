//! Between the consensus library's types and ours.
//!
//! An entry's payload is ours on disk and on the wire. For a membership change the library wants
//! its own protobuf in the entry; it is made here from our payload and turned back here, so that
//! the library's parser only ever sees what the library wrote (RUSTSEC-2024-0437).

#![expect(
    clippy::field_reassign_with_default,
    reason = "the library's generated messages have fields that a literal cannot name"
)]

use bytes::Bytes;
use prost::Message as _;
use protobuf::Message as _;
use raft::eraftpb::{
    self, ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState, EntryType, MessageType,
};
use storage::log::Entry as LogEntry;
use wire::peer::{self, MemberChangeKind, MembersChange};

/// An entry that carries a batch of commands (empty: a new leader's first entry).
const KIND_COMMANDS: u8 = 1;
/// An entry that changes the membership.
const KIND_MEMBERS: u8 = 2;

pub(super) fn entry_to_log(entry: &eraftpb::Entry) -> LogEntry {
    let (kind, payload) = kind_and_payload(entry);
    LogEntry { index: entry.index, term: entry.term, kind, payload }
}

pub(super) fn entry_from_log(entry: LogEntry) -> eraftpb::Entry {
    make_entry(entry.index, entry.term, entry.kind, entry.payload)
        .expect("a record with a good checksum holds what this program wrote")
}

/// The membership change that an entry carries, if it carries one.
pub(super) fn members_change(entry: &eraftpb::Entry) -> Option<MembersChange> {
    if entry.get_entry_type() == EntryType::EntryNormal {
        return None;
    }
    // The context holds our own payload; an entry the library made by itself (to leave a joint
    // configuration) has none and changes nothing but that.
    Some(MembersChange::decode(entry.context.clone()).expect("checked when it came in"))
}

/// The library's form of a change.
pub(super) fn conf_change(change: &MembersChange) -> ConfChangeV2 {
    let mut out = ConfChangeV2::default();
    let singles = change.changes.iter().map(|one| {
        let mut single = ConfChangeSingle::default();
        single.node_id = one.member.as_ref().map_or(0, |member| member.node);
        single.set_change_type(match one.kind() {
            MemberChangeKind::Vote => ConfChangeType::AddNode,
            MemberChangeKind::Remove => ConfChangeType::RemoveNode,
            MemberChangeKind::Listen => ConfChangeType::AddLearnerNode,
        });
        single
    });
    out.set_changes(singles.collect::<Vec<_>>().into());
    out
}

pub(super) fn message_to_wire(message: eraftpb::Message) -> peer::Raft {
    let entries = message.entries.iter().map(|entry| {
        let (kind, payload) = kind_and_payload(entry);
        peer::Entry { index: entry.index, term: entry.term, kind: u32::from(kind), payload }
    });
    let snapshot = (message.get_msg_type() == MessageType::MsgSnapshot).then(|| {
        let metadata = message.get_snapshot().get_metadata();
        let members = peer::Members::decode(message.get_snapshot().data.clone());
        peer::SnapshotHead {
            index: metadata.index,
            term: metadata.term,
            members: Some(members.expect("written by set_snapshot")),
        }
    });
    peer::Raft {
        kind: message.get_msg_type() as u32,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: entries.collect(),
        commit: message.commit,
        commit_term: message.commit_term,
        snapshot,
        request_snapshot: message.request_snapshot,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.context.clone(),
        priority: message.priority,
    }
}

/// `None` for a message that no node of this version sends.
pub(super) fn message_from_wire(wire: peer::Raft) -> Option<eraftpb::Message> {
    const KINDS: [MessageType; 13] = [
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTransferLeader,
        MessageType::MsgTimeoutNow,
        MessageType::MsgReadIndex,
        MessageType::MsgReadIndexResp,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
    ];
    let kind = KINDS.into_iter().find(|kind| *kind as u32 == wire.kind)?;
    let mut message = eraftpb::Message::default();
    message.set_msg_type(kind);
    message.to = wire.to;
    message.from = wire.from;
    message.term = wire.term;
    message.log_term = wire.log_term;
    message.index = wire.index;
    message.commit = wire.commit;
    message.commit_term = wire.commit_term;
    message.request_snapshot = wire.request_snapshot;
    message.reject = wire.reject;
    message.reject_hint = wire.reject_hint;
    message.context = wire.context.clone();
    message.priority = wire.priority;
    if kind == MessageType::MsgReadIndex || kind == MessageType::MsgReadIndexResp {
        // The context of a read travels in an entry that is none of the log's.
        let entries = wire.entries.into_iter().map(|entry| {
            let mut carrier = eraftpb::Entry::default();
            carrier.data = entry.payload;
            carrier
        });
        message.set_entries(entries.collect::<Vec<_>>().into());
        return Some(message);
    }
    let mut entries = Vec::with_capacity(wire.entries.len());
    for entry in wire.entries {
        let kind = u8::try_from(entry.kind).ok()?;
        entries.push(make_entry(entry.index, entry.term, kind, entry.payload)?);
    }
    message.set_entries(entries.into());
    if kind == MessageType::MsgSnapshot {
        let head = wire.snapshot?;
        message.set_snapshot(snapshot(head.index, head.term, &head.members?));
    }
    Some(message)
}

/// The library's form of a snapshot: what it is of; the content travels apart.
pub(super) fn snapshot(index: u64, term: u64, members: &peer::Members) -> eraftpb::Snapshot {
    let mut snapshot = eraftpb::Snapshot::default();
    snapshot.mut_metadata().index = index;
    snapshot.mut_metadata().term = term;
    snapshot.mut_metadata().set_conf_state(conf_state(members));
    snapshot.data = members.encode_to_vec().into();
    snapshot
}

pub(super) fn conf_state(members: &peer::Members) -> ConfState {
    let mut state = ConfState::default();
    state.set_voters(members.voters.clone());
    state.set_learners(members.learners.clone());
    state.set_voters_outgoing(members.voters_outgoing.clone());
    state.set_learners_next(members.learners_next.clone());
    state.auto_leave = members.auto_leave;
    state
}

/// Takes the library's configuration over into our list of members.
pub(super) fn set_conf_state(members: &mut peer::Members, state: &ConfState) {
    members.voters = state.voters.clone();
    members.learners = state.learners.clone();
    members.voters_outgoing = state.voters_outgoing.clone();
    members.learners_next = state.learners_next.clone();
    members.auto_leave = state.auto_leave;
}

fn kind_and_payload(entry: &eraftpb::Entry) -> (u8, Bytes) {
    match entry.get_entry_type() {
        EntryType::EntryNormal => (KIND_COMMANDS, entry.data.clone()),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
            (KIND_MEMBERS, entry.context.clone())
        }
    }
}

/// `None` for an entry that no node of this version writes.
fn make_entry(index: u64, term: u64, kind: u8, payload: Bytes) -> Option<eraftpb::Entry> {
    let mut entry = eraftpb::Entry::default();
    entry.index = index;
    entry.term = term;
    match kind {
        KIND_COMMANDS => entry.data = payload,
        KIND_MEMBERS => {
            let change = MembersChange::decode(payload.clone()).ok()?;
            let data = conf_change(&change).write_to_bytes().expect("memory grows as needed");
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            entry.data = data.into();
            entry.context = payload;
        }
        _ => return None,
    }
    Some(entry)
}
