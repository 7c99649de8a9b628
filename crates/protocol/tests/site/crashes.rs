//! A crash between any two outputs: whatever was about to be done is not, and the node comes back
//! with what its disk kept.

use crate::workload::Workload;
use crate::world::World;
use lab::simulation::Down;
use std::path::Path;
use std::time::Duration;
use storage::disk::Disk as _;
use storage::disk::memory::Survival;

const DOWN_FOR: Duration = Duration::from_millis(30);

/// One run; how many outputs it took.
fn run(nodes: u64, crash_at: Option<u64>, down: &Down) -> u64 {
    let mut world = World::new(7);
    world.set_snapshots((2_000, 3));
    world.settings.state_persist_permille = 300;
    for _ in 0..nodes {
        world.add_node(false);
    }
    world.run_until_whole();
    let begin = world.outputs;
    world.crash_at = crash_at.map(|at| (begin + at, down.clone(), DOWN_FOR));
    let mut workload = Workload::new(11, 3, 40);
    workload.padding_bytes = 100;
    workload.finish(&mut world);
    workload.check_end(&mut world);
    world.outputs - begin
}

fn at_every_output(nodes: u64, step: usize) {
    let downs = [
        Down::Killed,
        Down::PowerLost(Survival::Nothing),
        Down::PowerLost(Survival::Bytes(100)),
        Down::PowerLost(Survival::Everything),
    ];
    let outputs = run(nodes, None, &Down::Killed);
    assert!(outputs > 100, "the run does something");
    for at in (1..=outputs).step_by(step) {
        // Each way of going down in turn: all of them at every output would be four runs.
        let down = &downs[at as usize / step % downs.len()];
        eprintln!("{nodes} nodes, a crash instead of output {at}: {down:?}");
        run(nodes, Some(at), down);
    }
}

/// The leader reads its own snapshot only to send it, and the node that asks for it has a whole
/// disk: neither stops, whether a block or the head has decayed.
#[test]
fn a_snapshot_that_decays_at_its_leader_is_made_anew() {
    decays_at_its_leader(|len_bytes| len_bytes / 2);
    decays_at_its_leader(|_| 0);
}

fn decays_at_its_leader(place: impl Fn(u64) -> u64) {
    let mut world = World::new(5);
    world.set_snapshots((2_000, 3));
    for _ in 0..3 {
        world.add_node(false);
    }
    world.run_until_whole();
    world.crash(3, &Down::Killed);
    let mut workload = Workload::new(3, 2, 60);
    workload.padding_bytes = 300;
    workload.finish(&mut world);
    let mut decayed = 0;
    for node in [1, 2] {
        let disk = world.node(node).disk.clone();
        let folder = Path::new("snapshots");
        for name in disk.list(folder).expect("snapshots") {
            let path = folder.join(name);
            let len_bytes = disk.read(&path).expect("a file").len() as u64;
            decayed += u32::from(disk.flip(&path, place(len_bytes), 1));
        }
    }
    assert_eq!(decayed, 2);
    world.start(3);
    world.run_until_whole();
    assert!(world.trace().contains("n3: installs the snapshot of"));
}

/// The snapshot has the rows of what the witness was before: how far it had come, and the members.
#[test]
fn a_witness_is_rebuilt_from_a_snapshot_that_came_late() {
    let mut world = World::new(5);
    world.set_snapshots((2_000, 3));
    [false, false, true].into_iter().for_each(|witness| world.add_node(witness));
    world.run_until_whole();
    world.crash(3, &Down::Killed);
    let mut workload = Workload::new(3, 2, 60);
    workload.padding_bytes = 300;
    workload.finish(&mut world);
    world.start(3);
    world.run_until_whole();
    world.crash(3, &Down::PowerLost(Survival::Nothing));
    world.start(3);
    world.run_until_whole();
}

#[test]
fn one_node_may_crash_anywhere() {
    at_every_output(1, 1);
}

#[test]
fn three_nodes_may_crash_anywhere() {
    at_every_output(3, 1);
}
