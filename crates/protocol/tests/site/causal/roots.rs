//! The root of the region moves, leaves, and is forgotten by a registry that is recovered.

use super::*;
use std::collections::BTreeSet;

pub(super) fn change(change: RegistryChange) -> Body {
    Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(change)))
}

impl World {
    /// The region, by the newest registry that a site has.
    fn region(&self) -> model::Region {
        let nodes = self.lab.sites.iter().flat_map(|site| site.nodes.iter());
        let all = nodes.filter_map(|node| self.lab.registry(*node));
        let regions = all.filter_map(|registry| registry.regions.last().copied());
        regions.max_by_key(|region| region.epoch).unwrap()
    }

    /// An operator wants another root, if a leader takes the command.
    fn move_root(&mut self, to: usize) {
        let (by, to) = (self.random.below(3) as usize, self.lab.sites[to].id.unwrap());
        if let Some(node) = self.lab.leader(by) {
            self.lab.ask(node, Request::new(change(RegistryChange::MoveRoot(to))));
        }
    }

    /// Faults end: whatever was wanted is done.
    fn wait_for_root(&mut self) -> Result<(), String> {
        (0..3).for_each(|site| self.lab.rejoin_site(site));
        self.lab.heal();
        let registries = |lab: &Simulation| -> Vec<_> {
            let nodes = lab.sites.iter().flat_map(|site| site.nodes.iter());
            nodes.filter_map(|node| lab.registry(*node)).collect()
        };
        let is_done = move |lab: &Simulation| {
            registries(lab).iter().all(|one| one.regions.last().is_some_and(|of| of.next.is_none()))
        };
        match self.lab.run_until(MS * 180_000, is_done) {
            true => Ok(()),
            false => Err(format!("{:?} is not done", self.region())),
        }
    }
}

/// The root moves from site to site while all kinds of faults happen. How many were served, and the
/// epochs.
fn run_roots(seed: u64, nodes: u64, settings: Settings) -> Result<(u64, u16), String> {
    let mut world = World::new(seed, nodes, settings);
    world.run(100, 3, false)?;
    for round in 0..12 {
        let to = world.random.below(3) as usize;
        world.move_root(to);
        (0..4).for_each(|_| world.scratch());
        world.run(150, 3, round > 1)?;
        if round % 3 == 2 {
            world.wait_for_root()?;
            world.take_answers()?;
        }
    }
    world.wait_for_root()?;
    world.settle(3)?;
    Ok((world.served, world.region().epoch))
}

fn try_roots(nodes: u64, seeds: std::ops::Range<u64>) {
    let mut epochs = 0;
    for seed in seeds.clone() {
        let (served, epoch) = run_roots(seed, nodes, Settings::default())
            .unwrap_or_else(|error| panic!("{nodes} nodes a site, seed {seed}: {error}"));
        eprintln!("{nodes} nodes, seed {seed}: {served} served, epoch {epoch}");
        epochs += u64::from(epoch) - 1;
    }
    assert!(epochs >= 2 * (seeds.end - seeds.start), "{epochs} changes of the root");
}

#[test]
fn a_clear_waits_while_the_root_moves() {
    let mut world = World::new(3, 3, Settings::default());
    world.run(100, 3, false).unwrap();
    let (keyspace, epoch) = (world.keyspace, world.region().epoch);
    let root = world.region().root;
    let to = (0..3).find(|site| world.lab.sites[*site].id != Some(root)).unwrap();
    world.move_root(to);
    let mut asked = BTreeSet::new();
    for round in 0..150 {
        let node = world.lab.leader(round % 3).unwrap();
        let clear = Command::Write { keyspace, write: Write::Clear, request: None };
        asked.extend(world.lab.ask(node, Request::new(Body::Write(clear))));
        world.lab.run(MS * 7);
    }
    world.wait_for_root().unwrap();
    world.lab.run(MS * 10_000);
    assert!(world.region().epoch > epoch);
    for answered in &world.lab.answered {
        if asked.remove(&answered.ticket) {
            assert!(answered.outcome.is_ok(), "{answered:?}");
        }
    }
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn the_root_moves_while_clients_write_and_sessions_never_go_back() {
    try_roots(1, 0..6);
    try_roots(3, 0..2);
}

#[test]
#[ignore = "minutes"]
fn many_seeds_move_the_root() {
    try_roots(1, 6..300);
    try_roots(3, 2..100);
}

#[test]
fn each_planted_bug_of_a_change_of_the_root_is_found() {
    if !Planted::is_possible() {
        return;
    }
    for bug in [Bug::RootUndrained, Bug::RootOrdersOn, Bug::RootForgetsOrdered] {
        let settings = Settings { planted: Planted::of(bug), ..Settings::default() };
        let found = (0..20).find(|seed| run_roots(*seed, 1, settings.clone()).is_err());
        eprintln!("{bug:?}: seed {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}

#[test]
fn a_planned_change_of_the_root_refuses_no_session() {
    let mut world = World::new(1, 1, Settings::default());
    world.run(100, 3, false).unwrap();
    for to in [1, 2, 0] {
        world.move_root(to);
        world.run(300, 3, false).unwrap();
        assert_eq!(world.region().root, world.lab.sites[to].id.unwrap());
    }
    assert_eq!((world.refused, world.region().epoch), (0, 4));
    world.settle(3).unwrap();
}

#[test]
fn the_root_leaves_and_another_site_goes_on() {
    for nodes in [1, 3] {
        let mut world = World::new(1, nodes, Settings::default());
        world.run(200, 3, false).unwrap();
        let leave = RegistryChange::Leave(world.lab.sites[0].id.unwrap());
        world.must(1, change(leave));
        for client in world.clients.iter_mut().filter(|client| client.site == 0) {
            client.site = 1;
        }
        assert!(world.lab.run_until(MS * 120_000, |lab| lab.sites[0].has_left));
        let region = world.region();
        assert_eq!((region.epoch, region.root), (2, world.lab.sites[1].id.unwrap()));
        world.lab.run(MS * 5_000);
        let keyspace = world.keyspace;
        world.must(2, put(keyspace, 1, &Counts::from([(1, 1_000_000)])));
        world.lab.run(MS * 5_000);
        assert_eq!(counts(&world.must(1, get(keyspace, 1)))[&1], 1_000_000);
    }
}

#[test]
fn a_root_that_leaves_does_not_wait_for_a_lost_site() {
    let mut world = World::new(1, 1, Settings::default());
    world.run(100, 3, false).unwrap();
    let id = |world: &World, site: usize| world.lab.sites[site].id.unwrap();
    world.lab.part_site(1);
    let named = RegistryChange::MoveRoot(id(&world, 1));
    world.must(2, change(named));
    world.lab.run(MS * 5_000);
    assert_eq!(world.region().epoch, 1);
    let leave = RegistryChange::Leave(id(&world, 0));
    world.must(2, change(leave));
    let is_next = |lab: &Simulation| {
        let registry = lab.registry(lab.sites[2].nodes[0]);
        let region = registry.and_then(|registry| registry.regions.last().copied());
        region.is_some_and(|region| Some(region.root) == lab.sites[2].id)
    };
    assert!(world.lab.run_until(MS * 120_000, is_next), "{:?}", world.region());
}

impl World {
    fn registry(&self, site: usize) -> std::sync::Arc<model::Registry> {
        self.lab.registry(self.lab.sites[site].nodes[0]).unwrap()
    }

    /// Reads a scratch key at a site.
    fn scratched(&mut self, site: usize, number: u64) -> Counts {
        counts(&self.must(site, get(self.keyspace, number)))
    }

    /// The second site is the root of an epoch that the recovered registry has forgotten: the third
    /// one knew nothing of it, and goes on without the others. All are cut off from each other.
    fn with_forgotten_root(is_imported: bool) -> World {
        let mut world = World::new(1, 1, Settings::default());
        world.run(100, 3, false).unwrap();
        world.lab.run(MS * 10_000);
        world.take_answers().unwrap();
        world.lab.part_site(2);
        let (node, to) = (world.lab.leader(0).unwrap(), world.lab.sites[1].id.unwrap());
        world.lab.ask(node, Request::new(change(RegistryChange::MoveRoot(to))));
        let knows =
            |lab: &Simulation| (0..2).all(|site| lab.registry(site).unwrap().regions[0].epoch == 2);
        assert!(world.lab.run_until(MS * 30_000, knows));
        if !is_imported {
            world.lab.part_site(0);
        }
        let keyspace = world.keyspace;
        world.must(1, put(keyspace, SCRATCH, &Counts::from([(1, 1)])));
        world.lab.run(MS * 3_000);
        (0..2).for_each(|site| world.lab.part_site(site));
        let without = world.lab.sites[..2].iter().map(|site| site.id.unwrap()).collect();
        let recover = Body::RecoverRegistry { without, accept: true };
        assert!(matches!(world.must(2, recover), Answer::RegistryView(view) if view.recovered));
        assert_eq!(world.registry(2).regions[0].epoch, 1, "it is forgotten");
        world
    }

    fn has_epoch(&mut self, sites: &[usize], epoch: u16) {
        let knows = |lab: &Simulation| {
            let of_site = |site: &usize| lab.registry(*site).unwrap();
            sites.iter().all(|site| of_site(site).version.term.number == 1)
                && sites.iter().all(|site| of_site(site).regions[0].epoch == epoch)
        };
        let found = self.lab.run_until(MS * 120_000, knows);
        assert!(
            found,
            "{:?}",
            sites.iter().map(|site| self.registry(*site).regions[0]).collect::<Vec<_>>()
        );
    }
}

/// The root of before takes an epoch of its own: what the other one has ordered in its epoch is of
/// no order any more, and gets other places when that is back.
#[test]
fn a_root_that_its_registry_has_forgotten_shares_no_epoch_with_the_next_one() {
    let mut world = World::with_forgotten_root(false);
    let keyspace = world.keyspace;
    [0, 2].into_iter().for_each(|site| world.lab.rejoin_site(site));
    world.has_epoch(&[0, 2], 1 + model::EPOCHS_SKIPPED);
    for (site, number) in [(0, SCRATCH + 1), (2, SCRATCH + 2)] {
        world.must(site, put(keyspace, number, &Counts::from([(2, 2)])));
    }
    world.lab.run(MS * 3_000);
    assert_eq!(world.scratched(0, SCRATCH + 2), Counts::from([(2, 2)]));
    // The forgotten root goes on by itself until it learns of it.
    world.must(1, put(keyspace, SCRATCH + 3, &Counts::from([(3, 3)])));
    world.lab.rejoin_site(1);
    world.has_epoch(&[0, 1, 2], 1 + model::EPOCHS_SKIPPED);
    world.lab.run(MS * 20_000);
    world.must(1, put(keyspace, SCRATCH + 4, &Counts::from([(4, 4)])));
    world.lab.run(MS * 5_000);
    for number in 0..5 {
        let all: Vec<Counts> = (0..3).map(|site| world.scratched(site, SCRATCH + number)).collect();
        assert!(all.iter().all(|one| !one.is_empty()), "{number}: {all:?}");
    }
    world.settle(3).unwrap();
}

/// It is back before the root of before has waited for long enough, or has seen its order: nothing
/// is lost.
#[test]
fn a_root_that_its_registry_has_forgotten_goes_on() {
    for is_imported in [false, true] {
        let mut world = World::with_forgotten_root(is_imported);
        let keyspace = world.keyspace;
        if is_imported {
            [0, 2].into_iter().for_each(|site| world.lab.rejoin_site(site));
            world.lab.run(MS * 30_000);
            world.has_epoch(&[0, 2], 1);
        }
        (0..3).for_each(|site| world.lab.rejoin_site(site));
        world.has_epoch(&[0, 1, 2], 2);
        world.must(2, put(keyspace, SCRATCH + 1, &Counts::from([(2, 2)])));
        world.lab.run(MS * 5_000);
        for (site, number) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
            assert!(!world.scratched(site, SCRATCH + number).is_empty(), "{number} at {site}");
        }
        world.settle(3).unwrap();
    }
}
