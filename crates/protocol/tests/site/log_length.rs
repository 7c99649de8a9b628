//! How long a log becomes: it is cut behind snapshots, however often its node restarts.

use crate::world::World;
use lab::simulation::Down;
use model::{Body, Command, Condition, Expiry, KeyspaceId, Request, Write};
use std::time::Duration;

const NODE: u64 = 1;

/// A site of one node that makes a snapshot after so many bytes of log.
fn world(log_bytes: u64, entries_kept: u64) -> World {
    let mut world = World::new(3);
    world.set_snapshots((log_bytes, entries_kept));
    world.settings.state_persist_permille = 1_000;
    world.add_node(false);
    world.run_until_whole();
    world
}

/// Writes one key anew, if the node is up, and gives a snapshot the time to be made.
fn put(world: &mut World, len: usize) {
    let (key, value) = ("key".into(), vec![b'v'; len].into());
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let write = Write::Put { key, value, condition, expiry, return_old: false };
    let command = Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None };
    world.ask(NODE, Request::new(Body::Write(command)));
    world.run(Duration::from_millis(20));
}

/// The index of the latest snapshot, and how many entries the log holds.
fn lengths(world: &World) -> (u64, u64) {
    let status = world.status(NODE).expect("it is up");
    (status.snapshot_index, status.last_index + 1 - status.first_index)
}

#[test]
fn a_log_is_cut_though_no_process_writes_enough_for_a_snapshot() {
    let mut world = world(2_000, 3);
    for _ in 0..50 {
        put(&mut world, 1_000);
        world.crash(NODE, &Down::Killed);
        world.start(NODE);
        world.run_until_whole();
    }
    let (snapshot_index, entries) = lengths(&world);
    assert!(snapshot_index > 50, "the latest snapshot is of {snapshot_index}");
    assert!(entries < 30, "the log holds {entries} entries");
}

#[test]
fn a_cut_that_a_crash_prevented_is_made_up_for() {
    for at in 1..=100 {
        let mut world = world(2_000, 3);
        world.crash_at = Some((world.outputs + at, Down::Killed, Duration::from_millis(30)));
        while world.crash_at.is_some() {
            put(&mut world, 300);
        }
        world.run_until_whole();
        let (snapshot_index, entries) = lengths(&world);
        let status = world.status(NODE).expect("it is up");
        let kept = (snapshot_index + 1).saturating_sub(status.first_index);
        assert!(kept <= 3, "a crash at {at}: {kept} of {entries} are behind the snapshot");
    }
}

#[test]
fn large_entries_are_kept_behind_a_snapshot_up_to_a_limit_of_bytes() {
    let mut world = world(20_000, 10_000);
    for _ in 0..100 {
        put(&mut world, 4_000);
    }
    let (snapshot_index, entries) = lengths(&world);
    assert!(snapshot_index > 80, "the latest snapshot is of {snapshot_index}");
    assert!(entries < 20, "the log holds {entries} entries");
    assert!(entries >= 4, "what fits is kept for followers that lag a little");
}
