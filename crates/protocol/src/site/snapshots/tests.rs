//! What a node does whose own snapshot cannot be sent.

use crate::Core as _;
use crate::replica::recovery::{encode_members, recover};
use crate::site::machine::{Committed, Machine};
use crate::site::{Input, Options, Output, Site};
use model::{ClientId, NodeId, Time};
use std::path::Path;
use storage::disk::Disk as _;
use storage::disk::memory::MemoryDisk;
use storage::log::{self, LogStart, LogWriter as _, Reader};
use storage::snapshot::{Folder, SnapshotHead, Snapshots as _};
use storage::state::State as _;
use storage::state::memory::{MemoryState, MemoryView};
use wire::peer::{self, Content};

type Node = Site<MemoryState, Reader, Folder>;

/// n1 of two, which no node leads, with a snapshot of entry 1.
fn node() -> (Node, MemoryDisk) {
    let memory = MemoryDisk::new();
    let disk = memory.shared();
    let state = MemoryState::new();
    let member = |node| peer::Member { node, since: 1, ..Default::default() };
    let nodes = vec![member(1), member(2)];
    let members = peer::Members { voters: vec![1, 2], nodes, ..Default::default() };
    let members = encode_members(&members);
    let mut machine = Machine::open(state.clone()).unwrap();
    let first = Committed { index: 1, term: 1, batch: None, members: Some(members.clone()) };
    machine.apply(&[first], &mut Vec::new()).unwrap();
    let snapshots = Folder::open(&disk, Path::new("snapshots"), 0).unwrap();
    snapshots.write(&SnapshotHead { index: 1, term: 1, members }, &state.view()).unwrap();
    let (_, mut writer, _) = log::open(&disk, Path::new("log")).unwrap();
    writer.restart(LogStart { index: 1, term: 1 }).unwrap();
    drop(writer);
    let (mut recovered, mut writer, reader) = log::open(&disk, Path::new("log")).unwrap();
    let replica = recover(&mut recovered, &mut writer, &snapshots, state, &mut |_| {}).unwrap();
    let options = Options::new(NodeId(1), ClientId(1), 7);
    let now = Time::default();
    let mut site = Site::new(options, now, &recovered, reader, snapshots, replica);
    while site.poll().is_some() {}
    (site, memory)
}

/// What comes of n2's request for a chunk: the answer, and whether a snapshot is written.
fn ask(site: &mut Node, wanted: peer::SnapshotWanted) -> (peer::SnapshotChunk, bool) {
    let message = peer::Message::from(Content::SnapshotWanted(wanted));
    site.handle(Time::default(), Input::Message { from: NodeId(2), message });
    let (mut answer, mut writes) = (None, false);
    while let Some(output) = site.poll() {
        let output: Output<MemoryView> = output;
        match output {
            Output::Send { message, .. } => {
                if let Some(Content::SnapshotChunk(chunk)) = message.content {
                    answer = Some(chunk);
                }
            }
            Output::WriteSnapshot { head, .. } => {
                assert_eq!(head.index, 1);
                writes = true;
            }
            Output::Fatal(why) => panic!("ends: {why}"),
            _ => {}
        }
    }
    (answer.expect("an answer"), writes)
}

fn wanted(index: u64, offset: u64, is_damaged: bool) -> peer::SnapshotWanted {
    peer::SnapshotWanted { index, offset, is_damaged }
}

#[test]
fn a_refusal_names_the_place_that_was_asked_for() {
    let (mut site, _) = node();
    let (refusal, writes) = ask(&mut site, wanted(99, 5_000, false));
    assert_eq!((refusal.index, refusal.offset, refusal.total_bytes), (99, 5_000, 0));
    assert!(!writes, "there is nothing to replace");
}

#[test]
fn a_snapshot_that_arrives_damaged_is_written_anew_without_a_leader() {
    let (mut site, _) = node();
    let (refusal, writes) = ask(&mut site, wanted(1, 0, true));
    assert!(refusal.total_bytes == 0 && writes);
    let (_, writes) = ask(&mut site, wanted(1, 0, true));
    assert!(!writes, "it is being written");
}

#[test]
fn a_snapshot_that_cannot_be_read_is_written_anew() {
    let (mut site, disk) = node();
    let (chunk, writes) = ask(&mut site, wanted(1, 0, false));
    assert!(chunk.total_bytes > 0 && !writes);
    let folder = Path::new("snapshots");
    let name = &disk.list(folder).unwrap()[0];
    assert!(disk.flip(&folder.join(name), 0, 1));
    let (refusal, writes) = ask(&mut site, wanted(1, 0, false));
    assert!(refusal.total_bytes == 0 && writes);
}
