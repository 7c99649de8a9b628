//! The root's site is lost while its standby is in sync: the order goes on by itself, and nothing
//! that was released is lost.

use super::rebuilds::{new_session, one};
use super::roots::change;
use super::*;
use model::{Region, StandbyChoice, StandbyRule};

impl World {
    /// The region, by the newest registry that a site has.
    fn newest(&self) -> Region {
        let nodes = self.lab.sites.iter().flat_map(|site| site.nodes.iter());
        let all = nodes.filter_map(|node| self.lab.registry(*node));
        *all.max_by_key(|registry| registry.version).unwrap().regions.last().unwrap()
    }

    fn place_of(&self, id: SiteId) -> usize {
        (0..3).find(|site| self.lab.sites[*site].id == Some(id)).unwrap()
    }

    fn set_standby(&mut self, by: usize, choice: StandbyChoice, by_hand: bool) {
        self.must(by, change(RegistryChange::SetStandby(StandbyRule { choice, by_hand })));
    }

    /// The root's own site has the registry in which its standby is in sync.
    fn wait_in_sync(&mut self) -> Result<Region, String> {
        let is_done = |lab: &Simulation| {
            let region = |node: &NodeIndex| Some(*lab.registry(*node)?.regions.last()?);
            let all: Vec<_> = lab.sites.iter().flat_map(|site| site.nodes.iter()).collect();
            let all: Vec<_> = all.into_iter().filter_map(region).collect();
            all.iter().all(|one| *one == all[0] && one.standby.is_some_and(|one| one.in_sync))
        };
        match self.lab.run_until(MS * 60_000, is_done) {
            true => Ok(self.newest()),
            false => Err(format!("not in sync: {:?}", self.newest())),
        }
    }

    /// Another root goes on.
    fn wait_for_other(&mut self, lost: SiteId, within: Duration) -> Result<Region, String> {
        let is_done = move |lab: &Simulation| {
            let nodes = lab.sites.iter().filter(|site| site.id != Some(lost));
            let nodes = nodes.flat_map(|site| site.nodes.iter());
            let mut regions = nodes.filter_map(|node| Some(*lab.registry(*node)?.regions.last()?));
            regions.all(|region| region.root != lost)
        };
        let (mut left, step) = (within, MS * 10);
        while !is_done(&self.lab) {
            if left == Duration::ZERO {
                return Err(format!("no other root: {:?}", self.newest()));
            }
            self.run(1, 3, false)?;
            left -= step;
        }
        Ok(self.newest())
    }
}

/// The root's site crashes, or is cut off, under load, and comes back.
fn run_standbys(seed: u64, nodes: u64, settings: Settings) -> Result<u64, String> {
    let mut world = World::new(seed, nodes, settings);
    world.loses_nothing = true;
    let choice = match world.random.below(2) {
        0 => StandbyChoice::Nearest,
        _ => StandbyChoice::At(world.lab.sites[1].id.unwrap()),
    };
    world.set_standby(2, choice, false);
    let mut epoch = 1;
    for round in 0..3 {
        world.run(60, 3, false)?;
        let Region { root, .. } = world.wait_in_sync()?;
        world.run(60, 3, false)?;
        (0..4).for_each(|_| world.scratch());
        let lost = world.place_of(root);
        let steps = world.random.below(20);
        world.run(steps, 3, false)?;
        if world.random.below(2) == 0 {
            for node in world.lab.sites[lost].nodes.clone() {
                let down = Down::draw(&mut world.random);
                world.lab.bounce(node, &down, MS * 20_000);
            }
        }
        world.lab.part_site(lost);
        let region = world.wait_for_other(root, MS * 20_000)?;
        if region.epoch <= epoch {
            return Err(format!("round {round}: {region:?}"));
        }
        epoch = region.epoch;
        world.run(200, 3, false)?;
        world.lab.rejoin_site(lost);
        world.run(100, 3, false)?;
        world.wait_in_sync()?;
    }
    world.settle(3)?;
    Ok(world.served)
}

fn try_standbys(nodes: u64, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let served = run_standbys(seed, nodes, Settings::default())
            .unwrap_or_else(|error| panic!("{nodes} nodes a site, seed {seed}: {error}"));
        eprintln!("{nodes} nodes, seed {seed}: {served} served");
    }
}

#[test]
fn the_root_chooses_the_nearest_standby_in_another_failure_domain() {
    for (in_hall, chosen) in [(&[][..], 1), (&[0, 1], 2), (&[0, 1, 2], 1)] {
        let mut world = World::new(1, 1, Settings::default());
        for site in in_hall {
            world.lab.sites[*site].failure_domain = SiteName::new("hall").ok();
            let node = world.lab.sites[*site].nodes[0];
            world.lab.bounce(node, &Down::Killed, MS * 10);
        }
        world.lab.run(MS * 10_000);
        world.set_standby(0, StandbyChoice::Nearest, false);
        let region = world.wait_in_sync().unwrap();
        let standby = region.standby.map(|standby| world.place_of(standby.site));
        assert_eq!(standby, Some(chosen), "{in_hall:?}");
    }
}

#[test]
fn roots_are_lost_and_their_standbys_go_on() {
    try_standbys(1, 0..6);
    try_standbys(3, 0..2);
}

#[test]
#[ignore = "minutes"]
fn many_seeds_lose_the_root_with_a_standby() {
    try_standbys(1, 6..300);
    try_standbys(3, 2..100);
}

/// All kinds of faults, with a standby that falls out and comes back, or takes over.
fn run_faults(seed: u64, nodes: u64, settings: Settings) -> Result<(u64, u16), String> {
    let mut world = World::new(seed, nodes, settings);
    world.loses_nothing = true;
    world.set_standby(0, StandbyChoice::Nearest, false);
    for _ in 0..20 {
        (0..4).for_each(|_| world.scratch());
        world.run(250, 3, true)?;
    }
    (0..3).for_each(|site| world.lab.rejoin_site(site));
    world.lab.heal();
    world.settle(3)?;
    Ok((world.served, world.newest().epoch))
}

#[test]
fn a_standby_falls_out_and_comes_back_while_all_kinds_of_faults_happen() {
    let mut epochs = 0;
    // Eight seeds, and on to the first takeover: what takes over shifts with every message.
    for seed in 0..40 {
        if seed >= 8 && epochs > 0 {
            break;
        }
        let (served, epoch) = run_faults(seed, 1, Settings::default())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        eprintln!("seed {seed}: {served} served, epoch {epoch}");
        epochs += u64::from(epoch) - 1;
    }
    assert!(epochs > 0, "no standby has taken over");
}

#[test]
#[ignore = "minutes"]
fn many_seeds_of_faults_with_a_standby() {
    for seed in 8..300 {
        run_faults(seed, 1, Settings::default())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_root_that_releases_early_is_found() {
    if !Planted::is_possible() {
        return;
    }
    // The others need one order of events each: `lab/tests/golden.rs`,
    // `protocol::causal::exhaustive_standby`.
    let planted = Planted::of(Bug::ReleasedEarly);
    let settings = Settings { planted, ..Settings::default() };
    let found = (0..10).find(|seed| run_standbys(*seed, 1, settings.clone()).is_err());
    eprintln!("released-early: seed {found:?}");
    assert!(found.is_some(), "it is not found");
}

#[test]
fn a_root_goes_on_without_its_standby_and_it_comes_back() {
    for nodes in [1, 3] {
        let mut world = World::new(1, nodes, Settings::default());
        world.loses_nothing = true;
        let standby = world.lab.sites[1].id.unwrap();
        world.set_standby(0, StandbyChoice::At(standby), false);
        world.wait_in_sync().unwrap();
        world.lab.part_site(1);
        let keyspace = world.keyspace;
        world.must(0, put(keyspace, SCRATCH, &Counts::from([(1, 1)])));
        world.lab.run(MS * 1_000);
        assert!(counts(&world.must(2, get(keyspace, SCRATCH))).is_empty(), "it waits");
        world.lab.run(MS * 5_000);
        assert_eq!(counts(&world.must(2, get(keyspace, SCRATCH)))[&1], 1);
        assert!(!world.newest().standby.unwrap().in_sync);
        world.lab.rejoin_site(1);
        world.wait_in_sync().unwrap();
        assert_eq!(world.newest().epoch, 1);
        world.settle(3).unwrap();
    }
}

#[test]
fn a_standby_that_is_to_wait_takes_over_by_an_operators_word() {
    let mut world = World::new(1, 1, Settings::default());
    world.loses_nothing = true;
    let standby = world.lab.sites[1].id.unwrap();
    world.set_standby(0, StandbyChoice::At(standby), true);
    let root = world.wait_in_sync().unwrap().root;
    world.lab.part_site(0);
    world.run(3_000, 3, false).unwrap();
    assert_eq!(world.newest().root, root);
    world.must(2, change(RegistryChange::MoveRoot(standby)));
    world.wait_for_other(root, MS * 10_000).unwrap();
    assert_eq!(world.newest().root, standby);
    world.lab.rejoin_site(0);
    world.settle(3).unwrap();
}

#[test]
fn a_registry_that_is_recovered_has_no_standby_in_sync() {
    let mut world = World::new(1, 1, Settings::default());
    let standby = world.lab.sites[1].id.unwrap();
    world.set_standby(0, StandbyChoice::At(standby), false);
    world.wait_in_sync().unwrap();
    // The root, and most of the registrars, are lost.
    [0, 2].into_iter().for_each(|site| world.lab.part_site(site));
    world.lab.run(MS * 30_000);
    assert_eq!(world.newest().epoch, 1, "without a majority no site takes over");
    let without = [0, 2].map(|site| world.lab.sites[site].id.unwrap()).to_vec();
    let recover = Body::RecoverRegistry { without, accept: true };
    assert!(matches!(world.must(1, recover), Answer::RegistryView(view) if view.recovered));
    let registry = world.lab.registry(world.lab.sites[1].nodes[0]).unwrap();
    let (region, root) = (*registry.regions.last().unwrap(), world.lab.sites[0].id.unwrap());
    assert_eq!(region.standby.map(|one| (one.site, one.in_sync)), Some((root, false)));
    // Another standby may have taken over by what is forgotten: the order goes on as without a lost
    // root.
    let region = world.wait_rebuilt(&[1]).unwrap();
    assert_eq!((region.root, region.epoch), (standby, 1 + model::EPOCHS_FORGOTTEN));
}

/// A registry that is recovered without the sites of a takeover has nothing of it. No position is
/// of two orders all the same, sessions that have seen what is gone learn of that, and the sites
/// agree when they meet.
#[test]
fn a_takeover_that_a_registry_forgets_shares_no_epoch_with_what_comes() {
    let mut world = World::new(1, 1, Settings::default());
    let (keyspace, root) = (world.keyspace, world.lab.sites[0].id.unwrap());
    let standby = world.lab.sites[1].id.unwrap();
    world.set_standby(0, StandbyChoice::At(standby), false);
    world.wait_in_sync().unwrap();
    world.lab.part_site(0);
    world.lab.run(MS * 20_000);
    assert_eq!((world.newest().root, world.newest().epoch), (standby, 2));
    let mut saw = new_session();
    world.ask_in(1, put(keyspace, SCRATCH, &one(1)), &mut saw).unwrap();
    world.lab.run(MS * 3_000);
    world.ask_in(2, get(keyspace, SCRATCH), &mut saw).unwrap();
    [1, 2].into_iter().for_each(|site| world.lab.part_site(site));
    let without = [1, 2].map(|site| world.lab.sites[site].id.unwrap()).to_vec();
    let recover = Body::RecoverRegistry { without, accept: true };
    assert!(matches!(world.must(0, recover), Answer::RegistryView(view) if view.recovered));
    let region = world.wait_rebuilt(&[0]).unwrap();
    assert_eq!((region.root, region.epoch), (root, 1 + model::EPOCHS_FORGOTTEN));
    world.must(0, put(keyspace, SCRATCH + 1, &one(2)));
    let refused = world.ask_in(0, get(keyspace, SCRATCH), &mut saw.clone());
    assert!(matches!(refused, Err(Failure::Session(SessionError::Ended { .. }))), "{refused:?}");
    (0..3).for_each(|site| world.lab.rejoin_site(site));
    world.lab.run(MS * 30_000);
    for (site, number) in (0..3).flat_map(|site| [(site, 0), (site, 1)]) {
        assert!(world.found(site, SCRATCH + number), "{number} at {site}");
    }
    world.settle(3).unwrap();
}

/// Registrars are away, and so is the root for a moment: the standby imports on once the root is
/// back.
#[test]
fn a_standby_without_registrars_does_not_stop_the_order() {
    let mut world = World::new(1, 1, Settings::default());
    let keyspace = world.keyspace;
    let standby = world.lab.sites[1].id.unwrap();
    world.set_standby(0, StandbyChoice::At(standby), false);
    world.wait_in_sync().unwrap();
    world.lab.part_site(2);
    world.lab.run(MS * 8_000);
    world.lab.part_site(0);
    world.lab.run(MS * 20_000);
    world.lab.rejoin_site(0);
    world.must(0, put(keyspace, SCRATCH, &one(1)));
    world.lab.run(MS * 5_000);
    assert!(world.found(1, SCRATCH), "the standby imports");
    world.lab.rejoin_site(2);
    world.settle(3).unwrap();
}
