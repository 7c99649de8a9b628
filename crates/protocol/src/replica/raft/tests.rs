//! What the façade changes about the library, message by message.

use super::*;
use raft::Storage as _;
use std::path::Path;
use storage::disk::memory::MemoryDisk;
use storage::log::{self, LogWriter, Reader};

const TICKS: Ticks = Ticks { heartbeat: 2, election: 10 };
/// etcd's numbers for messages.
const APPEND: u32 = 3;
const REQUEST_VOTE: u32 = 5;
const REQUEST_VOTE_RESPONSE: u32 = 6;
const SNAPSHOT: u32 = 7;
const TIMEOUT_NOW: u32 = 14;
const REQUEST_PRE_VOTE: u32 = 17;
const REQUEST_PRE_VOTE_RESPONSE: u32 = 18;
/// Kinds of entries.
const COMMANDS: u32 = 1;
const MEMBERS: u32 = 2;

fn members(voters: &[u64]) -> peer::Members {
    let member = |node: &u64| peer::Member { node: *node, ..Default::default() };
    let nodes = voters.iter().map(member).collect();
    peer::Members { voters: voters.to_vec(), nodes, ..Default::default() }
}

/// A node with a log of empty entries, of these terms.
fn node(id: u64, voters: &[u64], terms: &[u64]) -> Raft<Reader> {
    let disk = MemoryDisk::new().shared();
    let folder = Path::new("log");
    let (_, mut writer, _) = log::open(&disk, folder).unwrap();
    let entries = (1..).zip(terms).map(|(index, term)| log::Entry {
        index,
        term: *term,
        kind: COMMANDS as u8,
        payload: Bytes::new(),
    });
    let term = terms.last().copied().unwrap_or_default();
    let hard_state = Some(HardState { term, vote: 0, commit: 0 });
    writer.write(&Append { hard_state, entries: entries.collect() }).unwrap();
    writer.sync().unwrap();
    drop(writer);
    let (recovered, _, reader) = log::open(&disk, folder).unwrap();
    Raft::new(NodeId(id), TICKS, 7, reader, &recovered, (&members(voters), None), 0)
}

/// All that it wants to send, its disk doing whatever it is asked at once.
fn sent(raft: &mut Raft<Reader>) -> Vec<peer::Raft> {
    let mut sent = Vec::new();
    while let Some(effects) = raft.ready() {
        sent.extend(effects.send);
        if let Some(persist) = effects.persist {
            raft.persisted(persist.number);
        }
    }
    sent
}

fn message(kind: u32, from: u64, to: u64, term: u64) -> peer::Raft {
    peer::Raft { kind, from, to, term, ..Default::default() }
}

/// Ticks until it stands for election.
fn silence(raft: &mut Raft<Reader>) -> usize {
    for ticks in 1..100 {
        raft.tick();
        if sent(raft).iter().any(|message| message.kind == REQUEST_PRE_VOTE) {
            return ticks;
        }
    }
    panic!("it never stands");
}

#[test]
fn votes_go_by_term_and_log_alone() {
    // A longer log of an older term does not outweigh a newer term; nor does what the candidate is.
    for (log_term, index, granted) in [(6, 3, true), (5, 4, true), (5, 3, false), (4, 9, false)] {
        for priority in [0, 1] {
            for kind in [REQUEST_PRE_VOTE, REQUEST_VOTE] {
                let mut voter = node(1, &[1, 2, 3], &[5, 5, 5, 5]);
                let ask = peer::Raft { log_term, index, priority, ..message(kind, 3, 1, 7) };
                assert!(voter.step(ask));
                let answer = sent(&mut voter).pop().expect("an answer");
                assert_eq!(answer.kind, kind + 1);
                assert_eq!(!answer.reject, granted, "{index}@{log_term} of priority {priority}");
            }
        }
    }
    assert_eq!([REQUEST_VOTE_RESPONSE, REQUEST_PRE_VOTE_RESPONSE], [6, 18]);
}

#[test]
fn who_stands_back_stands_when_all_others_have() {
    for id in 1..20 {
        let mut data = node(id, &[id, 100, 101], &[]);
        assert!((10..20).contains(&silence(&mut data)));
        let mut witness = node(id, &[id, 100, 101], &[]);
        witness.stand_back();
        assert!((20..30).contains(&silence(&mut witness)));
        // And no earlier node refuses it for that.
        let asks = sent_on_standing(&mut witness);
        assert!(asks.iter().all(|message| message.priority == PRIORITY));
    }
}

#[test]
fn who_loads_a_snapshot_stands_back_and_is_handed_nothing() {
    let mut loading = node(2, &[1, 2, 3], &[]);
    loading.set_loading(true);
    assert!((20..30).contains(&silence(&mut loading)));
    let mut whole = node(2, &[1, 2, 3], &[]);
    whole.set_loading(true);
    whole.set_loading(false);
    assert!((10..20).contains(&silence(&mut whole)));

    for (is_loading, role) in [(true, Role::Follower), (false, Role::Candidate)] {
        let mut raft = node(2, &[1, 2, 3], &[]);
        raft.set_loading(is_loading);
        assert!(raft.step(message(TIMEOUT_NOW, 1, 2, 1)));
        assert_eq!(raft.role(), role);
    }
}

#[test]
fn a_snapshot_that_the_log_had_reached_is_offered_and_applied_all_the_same() {
    let mut raft = node(2, &[1, 2, 3], &[1, 1, 1]);
    let members = members(&[1, 2, 3]);
    let head = peer::SnapshotHead { index: 2, term: 1, members: Some(members.clone()) };
    assert!(raft.step(peer::Raft { snapshot: Some(head), ..message(SNAPSHOT, 1, 2, 1) }));
    while let Some(effects) = raft.ready() {
        assert!(effects.persist.is_none_or(|persist| persist.restart.is_none()), "no use for it");
    }
    assert_eq!(raft.node.store().snapshot(0, 3).ok(), None);
    raft.know_members(&members);
    raft.snapshot_loaded(LogStart { index: 2, term: 1 }, &members);
    assert_eq!(raft.node.raft.raft_log.applied, 2);
    let offered = raft.node.store().snapshot(0, 3).expect("a snapshot");
    assert_eq!(offered.get_metadata().index, 2);
    raft.offer_snapshot_no_more();
    assert!(raft.node.store().snapshot(0, 3).is_err() && raft.take_snapshot_wanted());
}

#[test]
fn what_a_loaded_snapshot_covers_may_become_durable_after_it() {
    let mut raft = node(2, &[1, 2, 3], &[]);
    let members = members(&[1, 2, 3]);
    let mut numbers = Vec::new();
    for index in 1..=3 {
        let entry = peer::Entry { index, term: 1, kind: COMMANDS, payload: Bytes::new() };
        let at = peer::Raft {
            index: index - 1,
            log_term: u64::from(index > 1),
            commit: index,
            ..message(APPEND, 1, 2, 1)
        };
        assert!(raft.step(peer::Raft { entries: vec![entry], ..at }));
        while let Some(effects) = raft.ready() {
            assert!(effects.committed.is_empty(), "none is durable");
            numbers.extend(effects.persist.map(|persist| persist.number));
        }
    }
    let head = peer::SnapshotHead { index: 3, term: 1, members: Some(members.clone()) };
    assert!(raft.step(peer::Raft { snapshot: Some(head), ..message(SNAPSHOT, 1, 2, 1) }));
    raft.snapshot_loaded(LogStart { index: 3, term: 1 }, &members);
    for number in numbers {
        raft.persisted(number);
        while let Some(effects) = raft.ready() {
            if let Some(last) = effects.committed.last() {
                raft.applied(last.index);
            }
        }
    }
    assert_eq!(raft.node.raft.raft_log.applied, 3);
}

fn sent_on_standing(raft: &mut Raft<Reader>) -> Vec<peer::Raft> {
    raft.campaign();
    let asks: Vec<_> = sent(raft).into_iter().filter(|one| one.kind == REQUEST_PRE_VOTE).collect();
    assert_eq!(asks.len(), 2);
    asks
}

/// n2 of two nodes has applied the removal of n1, which led, and has an entry of n1's that is not
/// durable yet.
fn left_alone() -> Raft<Reader> {
    let mut raft = node(2, &[1, 2], &[]);
    let member = Some(peer::Member { node: 1, ..Default::default() });
    let kind = peer::MemberChangeKind::Remove as i32;
    let change = peer::MembersChange {
        changes: vec![peer::MemberChange { kind, member }],
        ..Default::default()
    };
    let removal =
        peer::Entry { index: 1, term: 1, kind: MEMBERS, payload: change.encode_to_vec().into() };
    let append = peer::Raft { entries: vec![removal], commit: 1, ..message(APPEND, 1, 2, 1) };
    assert!(raft.step(append));
    let mut all = members(&[1, 2]);
    while let Some(effects) = raft.ready() {
        if let Some(persist) = effects.persist {
            raft.persisted(persist.number);
        }
        for entry in effects.committed {
            if let EntryContent::Members(change) = &entry.content {
                raft.apply_members(&mut all, change, entry.index);
            }
            raft.applied(entry.index);
        }
    }
    assert_eq!(all.voters, [2]);
    let entry = peer::Entry { index: 2, term: 1, kind: COMMANDS, payload: Bytes::new() };
    let place = peer::Raft { index: 1, log_term: 1, commit: 1, ..message(APPEND, 1, 2, 1) };
    assert!(raft.step(peer::Raft { entries: vec![entry], ..place }));
    raft
}

#[test]
fn a_node_that_is_left_alone_stands_once_its_log_is_durable() {
    let mut raft = left_alone();
    // What came is not even on its way to the disk.
    raft.campaign();
    (0..40).for_each(|_| raft.tick());
    assert!(raft.step(message(TIMEOUT_NOW, 1, 2, 1)));
    let effects = raft.ready().expect("an entry");
    let persist = effects.persist.expect("an entry");
    // It is on its way.
    raft.campaign();
    (0..40).for_each(|_| raft.tick());
    for kind in [TIMEOUT_NOW, REQUEST_VOTE_RESPONSE, REQUEST_PRE_VOTE_RESPONSE] {
        assert!(raft.step(message(kind, 1, 2, 1)));
    }
    assert_eq!(raft.role(), Role::Follower);
    raft.persisted(persist.number);
    sent(&mut raft);
    (0..40).for_each(|_| raft.tick());
    sent(&mut raft);
    assert_eq!((raft.role(), raft.committed_index()), (Role::Leader, 3));
}
