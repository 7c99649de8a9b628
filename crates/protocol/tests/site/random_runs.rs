//! Random runs: everything that can go wrong, in an order that the seed decides.
//!
//! `PORTOLAN_SEEDS=200` runs so many seeds; `PORTOLAN_SEED=17` runs one and prints its trace.

#![expect(
    clippy::disallowed_methods,
    reason = "seeds are given by the environment, and a failed run leaves its trace in a file"
)]

use crate::workload::Workload;
use crate::world::World;
use lab::link::{Latency, Link};
use lab::simulation::{Belongs, Down};
use model::{Body, NodeId, Request};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const SEEDS_DEFAULT: u64 = 50;
/// Virtual time in which things go wrong.
const TROUBLE: Duration = Duration::from_secs(12);

/// The shape of a site: data nodes, and whether a witness joins them.
fn build(world: &mut World) {
    let (data, witness) = *world.random.pick(&[(3, false), (3, false), (5, false), (2, true)]);
    for _ in 0..data {
        world.add_node(false);
    }
    if witness {
        world.add_node(true);
    }
}

fn ms(low: u64, high: u64) -> (Duration, Duration) {
    (Duration::from_millis(low), Duration::from_millis(high))
}

/// One thing that goes wrong, or is done by an operator.
fn trouble(world: &mut World) {
    let ids = world.ids();
    let node = *world.random.pick(&ids);
    match world.random.below(14) {
        0..=3 => {
            let down = Down::draw(&mut world.random);
            let rest = world.random.between(ms(0, 1_500));
            world.bounce(node as usize - 1, &down, rest);
        }
        4 => world.isolate(node),
        5 => {
            let other = *world.random.pick(&ids);
            if other != node {
                world.cut(node, other);
            }
        }
        6..=7 => world.heal(),
        8 => {
            let other = *world.random.pick(&ids);
            if other != node {
                world.break_link(0, node, other);
            }
        }
        9 => world.sites[0].network.drop_permille = *world.random.pick(&[0, 0, 20, 200]),
        10 => {
            let (from_ms, to_ms) = *world.random.pick(&[(1.0, 1.0), (0.0, 5.0), (1.0, 60.0)]);
            let latency = Latency::Uniform { from_ms, to_ms };
            world.sites[0].network.link = Link::of(latency);
        }
        11 => world.settings.sync = *world.random.pick(&[ms(0, 1), ms(1, 10), ms(20, 200)]),
        12 => {
            let body = Body::TransferLeader { node: NodeId(*world.random.pick(&ids)) };
            world.ask(node, Request { body, deadline_ms: None });
        }
        _ => replace_or_damage(world, node),
    }
}

/// A node loses its disk, or only its state. Only while all others are well: a site that loses the
/// disks of a majority may lose what was acknowledged.
fn replace_or_damage(world: &mut World, node: u64) {
    if world.random.chance(300) {
        let down = Down::draw(&mut world.random);
        world.crash(node, &down);
        world.node(node).state.damage("it was flipped");
        world.start(node);
    } else if world.is_whole() && world.random.chance(800) {
        if world.random.chance(300) {
            let body = Body::RemoveNode { node: NodeId(node) };
            let leader = world.leader().expect("a whole site has one");
            world.ask(leader, Request { body, deadline_ms: Some(5_000) });
            world.run(Duration::from_millis(300));
        }
        let down = Down::draw(&mut world.random);
        world.crash(node, &down);
        world.replace_disk(node);
    }
}

fn run(seed: u64, world: &mut World) {
    let snapshots = *world.random.pick(&[(1 << 30, 10_000), (2_000, 5), (6_000, 2), (500, 0)]);
    world.set_snapshots(snapshots);
    world.settings.state_persist_permille = *world.random.pick(&[0, 100, 1_000]);
    build(world);
    world.run_until_whole();
    let mut workload = Workload::new(seed, 4, u64::MAX);
    workload.padding_bytes = *world.random.pick(&[0, 100, 2_000]);
    let end = world.now() + TROUBLE;
    while world.now() < end {
        let calm = world.random.between(ms(10, 500));
        let until = world.now() + calm;
        while world.now() < until {
            workload.drive(world);
            let next = world.now() + Duration::from_millis(2);
            world.run_to(next);
        }
        trouble(world);
    }
    world.note(|| "the trouble ends".to_owned());
    world.heal();
    world.sites[0].network.drop_permille = 0;
    world.sites[0].network.link = Link::constant(1.0);
    world.settings.sync = ms(1, 2);
    for id in world.ids() {
        world.start(id);
    }
    workload.left = 0;
    workload.finish(world);
    world.run_until("everybody is a member", |world| {
        world.nodes.iter().all(|node| node.belongs == Belongs::Member)
    });
    workload.check_end(world);
}

fn trace_of(seed: u64) -> String {
    let mut world = World::new(seed);
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, &mut world)));
    if ran.is_err() {
        let path = std::env::temp_dir().join(format!("portolan-seed-{seed}.trace"));
        let written = std::fs::write(&path, world.trace());
        let tail = world.trace().len().saturating_sub(6_000);
        let tail = (tail..).find(|at| world.trace().is_char_boundary(*at)).unwrap_or(0);
        eprintln!("{}", &world.trace()[tail..]);
        panic!("seed {seed} fails; its trace is in {} ({written:?})", path.display());
    }
    world.trace().to_owned()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2] {
        let (first, second) = (trace_of(seed), trace_of(seed));
        assert!(first == second, "seed {seed} gives two traces");
    }
}

#[test]
fn nothing_is_lost_or_done_twice() {
    if let Some(seed) = number("PORTOLAN_SEED") {
        eprintln!("{}", trace_of(seed));
        return;
    }
    let from = number("PORTOLAN_SEEDS_FROM").unwrap_or(1);
    for seed in from..from + number("PORTOLAN_SEEDS").unwrap_or(SEEDS_DEFAULT) {
        trace_of(seed);
    }
}
