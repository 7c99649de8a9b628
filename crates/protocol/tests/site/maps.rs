//! Maps of slots of real sites in the lab's virtual time: sites join one after the other, slots
//! move, and soon after the last move all maps have the owner of every slot.

use lab::link::Link;
use lab::simulation::{Down, Settings, Simulation};
use model::{
    Answer, Body, Command, DeploymentCommand, DeploymentId, GlobalCommand, RegistryChange, Request,
    SiteId, Slot, SlotSet, SourceStep,
};
use protocol::global::map::{Fact, Facts, RunFact};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// How soon after the last move all maps are right.
const RIGHT_WITHIN: Duration = Duration::from_secs(5);

struct Sites(Simulation);

impl Sites {
    /// Sites of one node that start one after the other, so long apart; all slots have arrived.
    fn started_apart(count: usize, apart: Duration, nodes: usize) -> Sites {
        let mut lab = Simulation::new(1, Settings { mirrors: false, ..Settings::default() });
        for site in 0..count {
            lab.add_site(format!("s{site}"), Link::constant(1.0));
            for _ in 0..nodes {
                lab.add_node(site, false);
            }
        }
        lab.set_site_links(|_, _| Link { loss: 0.1, ..Link::constant(10.0) });
        assert!(lab.run_until(MS * 10_000, |lab| (0..count).all(|site| lab.is_whole(site))));
        let mut sites = Sites(lab);
        let site = sites.0.entry(0).unwrap();
        sites.ask(
            0,
            Command::Deployment(DeploymentCommand::Found { deployment: DeploymentId(7), site }),
        );
        for site in 1..count {
            sites.0.run(apart);
            let join = RegistryChange::Join(sites.0.entry(site).unwrap());
            let joined =
                sites.ask(site - 1, Command::Deployment(DeploymentCommand::ChangeRegistry(join)));
            let Answer::Registered { site: id, registry } = joined else { panic!("{joined:?}") };
            sites.ask(site, Command::Deployment(DeploymentCommand::Enter { site: id, registry }));
        }
        let all_joined = |lab: &Simulation| {
            (0..count).all(|site| {
                let leader = lab.leader(site);
                let registry = leader.and_then(|leader| lab.registry(leader));
                registry.is_some_and(|registry| registry.sites.len() == count)
            })
        };
        assert!(sites.0.run_until(MS * 60_000, all_joined), "{:?}", sites.0.failure);
        sites.rest();
        sites
    }

    fn ask(&mut self, site: usize, command: Command) -> Answer {
        let leader = self.0.leader(site).unwrap();
        let body = Body::Write(command);
        self.0.ask(leader, Request::new(body)).unwrap();
        assert!(
            self.0.run_until(MS * 30_000, |lab| !lab.answered.is_empty()),
            "{:?}",
            self.0.failure
        );
        self.0.answered.pop().unwrap().outcome.unwrap()
    }

    /// The owners of slots, by their tokens; `None`: some are on their way.
    fn owners(lab: &Simulation) -> Option<Facts> {
        let mut owners = Facts::default();
        for site in 0..lab.sites.len() {
            let leader = lab.leader(site)?;
            let owner = lab.sites[site].id?;
            if !lab.moves(leader).is_empty() {
                return None;
            }
            for (slots, epoch) in lab.held_epochs(leader)?.0 {
                for (first, last) in slots.ranges() {
                    let fact = Fact { epoch, owner };
                    owners.learn(RunFact { first: *first, last: *last, fact }, None);
                }
            }
        }
        let is_whole = Slot::all().all(|slot| owners.of(slot).is_some());
        is_whole.then_some(owners)
    }

    /// Until no slot moves any more.
    fn rest(&mut self) {
        let mut rests = 0;
        for _ in 0..600 {
            self.0.run(MS * 100);
            // Preferred owners are looked at twice a second.
            rests = if Sites::owners(&self.0).is_some() { rests + 1 } else { 0 };
            if rests == 10 {
                return;
            }
        }
        panic!("slots do not come to rest: {:?}", self.0.failure);
    }

    /// How long it takes until all nodes are right.
    fn until_right(&mut self) -> Duration {
        let begun = self.0.now();
        let right = |lab: &Simulation| {
            let owners = Sites::owners(lab).expect("they rest");
            (0..lab.nodes.len()).all(|node| {
                lab.slot_facts(node).is_none_or(|facts| facts.digest() == owners.digest())
            })
        };
        let is_right = self.0.run_until(RIGHT_WITHIN, right);
        if !is_right {
            let owners = Sites::owners(&self.0).unwrap();
            let wrong = (0..self.0.nodes.len()).map(|node| {
                let facts = self.0.slot_facts(node).unwrap();
                Slot::all().filter(|slot| facts.of(*slot) != owners.of(*slot)).count()
            });
            panic!("wrong slots by node: {:?}", wrong.collect::<Vec<_>>());
        }
        self.0.now() - begun
    }
}

#[test]
fn three_sites_that_start_one_after_the_other_agree() {
    let mut sites = Sites::started_apart(3, MS * 1_500, 1);
    let took = sites.until_right();
    assert!(took <= RIGHT_WITHIN, "{took:?}");
    // The first one gave slots to the second that are the third's by now; its map follows without a
    // request for them.
    let facts = sites.0.slot_facts(0).unwrap();
    let passed_on = Slot::all().filter(|slot| facts.of(*slot).unwrap().epoch.count == 3).count();
    assert!(passed_on > 1_000, "{passed_on}");
}

#[test]
fn ten_sites_agree_after_moves_and_a_site_that_was_away_learns_of_them() {
    agree_after_moves(10);
}

#[test]
fn a_hundred_sites_agree_after_moves_and_one_that_was_away_learns_of_them() {
    agree_after_moves(100);
}

fn agree_after_moves(count: usize) {
    let mut sites = Sites::started_apart(count, MS * 1_500, 1);
    // No slot has moved for a second when they rest.
    eprintln!("{count} sites agree {:?} after that second", sites.until_right());
    sites.0.part_site(7);
    for (from, to) in [(0_usize, 1_u32), (3, 2), (4, 9)] {
        let slots: SlotSet = sites.0.held_slots(from).0.into_iter().take(100).collect();
        let step = SourceStep::Begin { slots, to: SiteId(to + 1), pinned: true };
        sites.ask(from, Command::Global(GlobalCommand::Source { number: 0, step }));
    }
    sites.0.run(MS * 8_000);
    sites.0.rejoin_site(7);
    sites.rest();
    let took = sites.until_right();
    eprintln!("{count} sites agree {took:?} after that second, one of them back");
    assert!(took <= RIGHT_WITHIN, "{took:?}");
}

#[test]
fn the_nodes_of_a_site_know_what_their_leader_knows() {
    let mut sites = Sites::started_apart(3, MS * 1_500, 3);
    sites.until_right();
    // A node that was down while slots moved between other sites has learned of no move.
    let down = sites.0.sites[0].nodes.iter().copied().find(|node| sites.0.leader(0) != Some(*node));
    let down = down.unwrap();
    sites.0.crash(down, &Down::Killed);
    let held = sites.0.held_slots(sites.0.leader(1).unwrap()).0;
    let slots: SlotSet = held.into_iter().take(100).collect();
    let step = SourceStep::Begin { slots, to: SiteId(3), pinned: true };
    sites.ask(1, Command::Global(GlobalCommand::Source { number: 0, step }));
    sites.rest();
    sites.0.start(down);
    sites.until_right();
    // Its own leader sends it the sites that do not answer.
    sites.0.part_site(2);
    sites.0.run(MS * 20_000);
    let view = sites.0.map_view(down).unwrap();
    assert!(view.lost.contains(&SiteId(3)) && !view.silent.contains(&SiteId(2)), "{view:?}");
    sites.0.rejoin_site(2);
    sites.0.run(MS * 5_000);
    let view = sites.0.map_view(down).unwrap();
    assert!(view.lost.is_empty() && view.silent.is_empty(), "{view:?}");
}
