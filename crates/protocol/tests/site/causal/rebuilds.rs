//! The root is lost, and the order goes on without it.

use super::roots::change;
use super::*;
use model::Region;

impl World {
    fn region_at(&self, site: usize) -> Region {
        *self.lab.registry(self.lab.sites[site].nodes[0]).unwrap().regions.last().unwrap()
    }

    /// An operator gives the root up, at this site.
    fn rebuild(&mut self, by: usize) {
        let Region { id: region, epoch, .. } = self.region_at(by);
        let to = self.lab.sites[by].id.unwrap();
        self.must(by, change(RegistryChange::Rebuild { region, epoch, to }));
    }

    /// All of these sites know of one root, which orders.
    pub(super) fn wait_rebuilt(&mut self, sites: &[usize]) -> Result<Region, String> {
        let sites = sites.to_vec();
        let all = sites.clone();
        let is_done = move |lab: &Simulation| {
            let of_node = |node: &NodeIndex| Some(*lab.registry(*node)?.regions.last()?);
            let nodes = sites.iter().flat_map(|site| lab.sites[*site].nodes.iter());
            let regions: Vec<_> = nodes.map(of_node).collect();
            let is_settled =
                |region: &Region| !region.is_rebuilding() && Some(*region) == regions[0];
            regions.iter().all(|one| one.as_ref().is_some_and(is_settled))
        };
        match self.lab.run_until(MS * 60_000, is_done) {
            true => Ok(self.region_at(all[0])),
            false => {
                Err(format!("{:?}", all.iter().map(|at| self.region_at(*at)).collect::<Vec<_>>()))
            }
        }
    }

    /// Asks in this session, of which goes on what is answered.
    pub(super) fn ask_in(
        &mut self,
        site: usize,
        body: Body,
        token: &mut SessionToken,
    ) -> Result<Answer, Failure> {
        let node = self.lab.leader(site).unwrap();
        let request =
            Request { token: Some(token.clone()), deadline_ms: Some(4_000), ..Request::new(body) };
        let ticket = self.lab.ask(node, request).unwrap();
        let is_there = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
        assert!(self.lab.run_until(MS * 30_000, is_there), "{:?}", self.lab.failure);
        let at = self.lab.answered.iter().position(|one| one.ticket == ticket).unwrap();
        let answered = self.lab.answered.remove(at);
        if let Some(next) = answered.token {
            *token = next;
        }
        answered.outcome
    }

    pub(super) fn found(&mut self, site: usize, number: u64) -> bool {
        !counts(&self.must(site, get(self.keyspace, number))).is_empty()
    }
}

pub(super) fn one(number: u64) -> Counts {
    Counts::from([(number, 1)])
}

pub(super) fn new_session() -> SessionToken {
    SessionToken::new(Bytes::new()).unwrap()
}

/// The root is cut off or crashes under load, is given up, and comes back.
fn run_rebuilds(seed: u64, nodes: u64, settings: Settings) -> Result<u64, String> {
    let mut world = World::new(seed, nodes, settings);
    let mut epoch = 1;
    for round in 0..3 {
        world.run(60, 3, false)?;
        (0..4).for_each(|_| world.scratch());
        let root = world.region_at(0).root;
        let lost = (0..3).find(|site| world.lab.sites[*site].id == Some(root)).unwrap();
        let others: Vec<usize> = (0..3).filter(|site| *site != lost).collect();
        let is_crash = world.random.below(2) == 0;
        let steps = world.random.below(20);
        world.run(steps, 3, false)?;
        if is_crash {
            for node in world.lab.sites[lost].nodes.clone() {
                let down = Down::draw(&mut world.random);
                world.lab.bounce(node, &down, MS * 45_000);
            }
        }
        world.lab.part_site(lost);
        let steps = world.random.below(30);
        world.run(steps, 3, false)?;
        let by = others[world.random.below(2) as usize];
        world.rebuild(by);
        world.run(100, 3, false)?;
        // Now and then it is back before another site has become the root.
        if world.random.below(4) > 0 {
            let region = world.wait_rebuilt(&others)?;
            if region.root == root || region.epoch <= epoch {
                return Err(format!("round {round}: {region:?}"));
            }
            world.run(100, 3, false)?;
        }
        world.lab.rejoin_site(lost);
        world.run(100, 3, false)?;
        epoch = world.wait_rebuilt(&[0, 1, 2])?.epoch;
        world.run(50, 3, false)?;
    }
    world.settle(3)?;
    Ok(world.served)
}

fn try_rebuilds(nodes: u64, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let served = run_rebuilds(seed, nodes, Settings::default())
            .unwrap_or_else(|error| panic!("{nodes} nodes a site, seed {seed}: {error}"));
        eprintln!("{nodes} nodes, seed {seed}: {served} served");
    }
}

#[test]
fn roots_are_lost_and_nothing_is_that_comes_back() {
    try_rebuilds(1, 0..8);
    try_rebuilds(3, 0..2);
}

#[test]
#[ignore = "minutes"]
fn many_seeds_lose_the_root() {
    try_rebuilds(1, 8..300);
    try_rebuilds(3, 2..100);
}

/// What the root had ordered and no other site has is gone, and the sessions that have seen it
/// learn of that; when the root is back, its writes are.
#[test]
fn what_only_the_lost_root_had_comes_back_with_it() {
    for nodes in [1, 3] {
        let mut world = World::new(1, nodes, Settings::default());
        let keyspace = world.keyspace;
        world.must(1, put(keyspace, SCRATCH, &one(0)));
        world.lab.run(MS * 2_000);
        world.lab.part_site(0);
        let (mut saw, mut wrote) = (new_session(), new_session());
        world.ask_in(0, put(keyspace, SCRATCH + 1, &one(1)), &mut wrote).unwrap();
        let unordered = wrote.clone();
        world.lab.run(MS * 2_000);
        world.ask_in(0, get(keyspace, SCRATCH + 1), &mut saw).unwrap();
        // At another site, meanwhile.
        world.must(2, put(keyspace, SCRATCH + 2, &one(2)));
        world.rebuild(2);
        let region = world.wait_rebuilt(&[1, 2]).unwrap();
        assert_eq!(region.epoch, 1 + model::EPOCHS_SKIPPED);
        world.lab.run(MS * 3_000);
        for (number, is_there) in [(0, true), (1, false), (2, true)] {
            assert_eq!(world.found(1, SCRATCH + number), is_there, "{number}");
        }
        let refused = world.ask_in(1, get(keyspace, SCRATCH), &mut saw);
        assert!(
            matches!(refused, Err(Failure::Session(SessionError::Ended { .. }))),
            "{refused:?}"
        );
        let waits = world.ask_in(1, get(keyspace, SCRATCH), &mut wrote);
        assert!(
            matches!(waits, Err(Failure::Session(SessionError::Unordered { .. }))),
            "{waits:?}"
        );
        world.lab.rejoin_site(0);
        world.lab.run(MS * 30_000);
        for (site, number) in [(0, 0), (0, 1), (0, 2), (1, 1), (2, 1)] {
            assert!(world.found(site, SCRATCH + number), "{number} at {site}");
        }
        // The session that has written there finds it, though its place is another one now.
        let mut wrote = unordered;
        let answer = world.ask_in(2, get(keyspace, SCRATCH + 1), &mut wrote).unwrap();
        assert!(!counts(&answer).is_empty());
        world.settle(3).unwrap();
    }
}

/// Its writes had places, which are void: they get others before it goes.
#[test]
fn a_lost_root_that_is_back_and_leaves_brings_its_writes_into_the_order_again() {
    for nodes in [1, 3] {
        let mut world = World::new(1, nodes, Settings::default());
        let keyspace = world.keyspace;
        world.must(1, put(keyspace, SCRATCH, &one(0)));
        world.lab.run(MS * 2_000);
        world.lab.part_site(0);
        world.must(0, put(keyspace, SCRATCH + 1, &one(1)));
        world.lab.run(MS * 2_000);
        world.rebuild(2);
        world.wait_rebuilt(&[1, 2]).unwrap();
        let lost = world.lab.sites[0].id.unwrap();
        world.must(1, change(RegistryChange::Leave(lost)));
        world.lab.rejoin_site(0);
        let has_left = move |lab: &Simulation| {
            let node = lab.sites[1].nodes[0];
            lab.registry(node).is_some_and(|registry| registry.site(lost).is_none())
        };
        assert!(world.lab.run_until(MS * 60_000, has_left));
        for site in [1, 2] {
            assert!(world.found(site, SCRATCH + 1), "at {site}");
        }
    }
}

/// The site that is asked has less of the order than another one that answers.
#[test]
fn the_farthest_site_goes_on() {
    let mut world = World::new(1, 1, Settings::default());
    let keyspace = world.keyspace;
    world.lab.part_site(2);
    let mut token = new_session();
    world.ask_in(0, put(keyspace, SCRATCH, &one(0)), &mut token).unwrap();
    world.lab.run(MS * 2_000);
    world.ask_in(1, get(keyspace, SCRATCH), &mut token).unwrap();
    world.lab.part_site(0);
    world.lab.rejoin_site(2);
    world.rebuild(2);
    let region = world.wait_rebuilt(&[1, 2]).unwrap();
    assert_eq!(region.root, world.lab.sites[1].id.unwrap());
    world.lab.run(MS * 10_000);
    let answer = world.ask_in(2, get(keyspace, SCRATCH), &mut token).unwrap();
    assert!(!counts(&answer).is_empty(), "no session is refused, and nothing is lost");
    world.settle(3).unwrap();
}

/// It answers before the others have settled: it has the most, and orders on.
#[test]
fn a_root_that_is_back_in_time_stays_it() {
    let mut world = World::new(1, 1, Settings::default());
    let keyspace = world.keyspace;
    world.lab.part_site(0);
    let mut token = new_session();
    world.ask_in(0, put(keyspace, SCRATCH, &one(0)), &mut token).unwrap();
    world.lab.run(MS * 2_000);
    world.ask_in(0, get(keyspace, SCRATCH), &mut token).unwrap();
    world.rebuild(1);
    world.lab.rejoin_site(0);
    let region = world.wait_rebuilt(&[0, 1, 2]).unwrap();
    assert_eq!(region.root, world.lab.sites[0].id.unwrap());
    world.lab.run(MS * 10_000);
    let answer = world.ask_in(2, get(keyspace, SCRATCH), &mut token).unwrap();
    assert!(!counts(&answer).is_empty());
    world.settle(3).unwrap();
}

/// A site that does not answer is not waited for. What it has of its own is not lost.
#[test]
fn a_silent_site_is_waited_for_a_moment_only() {
    let mut world = World::new(1, 1, Settings::default());
    world.join(3, 1);
    world.lab.run(MS * 5_000);
    let keyspace = world.keyspace;
    world.must(0, put(keyspace, SCRATCH, &one(0)));
    world.lab.run(MS * 2_000);
    world.lab.part_site(0);
    world.rebuild(1);
    world.lab.part_site(3);
    world.wait_rebuilt(&[1, 2]).unwrap();
    for site in 1..4 {
        world.must(site, put(keyspace, SCRATCH + site as u64, &one(site as u64)));
    }
    world.lab.run(MS * 3_000);
    assert!(world.found(2, SCRATCH + 1) && world.found(1, SCRATCH + 2));
    [0, 3].into_iter().for_each(|site| world.lab.rejoin_site(site));
    world.lab.run(MS * 30_000);
    for site in 0..4 {
        let found: Vec<bool> = (0..4).map(|number| world.found(site, SCRATCH + number)).collect();
        assert!(found.iter().all(|is_there| *is_there), "{site}: {found:?}");
    }
    world.settle(4).unwrap();
}
