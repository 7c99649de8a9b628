//! A hundred maps over links that lose one message in ten: how soon they agree, and what that
//! costs.

use super::exchange::{COMPARE_INTERVAL, Exchange, compare, handle, push};
use super::{Fact, RunFact, SlotMap, Source};
use crate::global::ring::mix;
use model::{Epoch, SiteId};
use prost::Message as _;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::inter_site::{InterSite, InterSiteMessage, MapMessage, MapStep, RegistryVersion};
use wire::peer;

const SITES: u32 = 100;
const LOST_PERCENT: u64 = 10;
/// A tick of a site.
const TICK: Duration = Duration::from_millis(50);
/// The longest way of a message.
const WAY_MAX_MS: u64 = 100;

struct World {
    maps: Vec<SlotMap>,
    exchanges: Vec<Exchange>,
    now: Duration,
    random: u64,
    /// By when they arrive: from, to, what.
    under_way: BTreeMap<(Duration, u64), (usize, usize, MapStep)>,
    sent: u64,
    sent_bytes: u64,
    loses: bool,
    compares: bool,
}

impl World {
    /// One map that all have.
    fn new(seed: u64) -> World {
        let share = 16_384 / SITES as u16;
        let mut map = SlotMap::default();
        for site in 0..SITES as u16 {
            let last = if u32::from(site) + 1 == SITES { 16_383 } else { (site + 1) * share - 1 };
            map.learn(run(site * share, last, 1, u32::from(site)), Source::Stored, Duration::ZERO);
        }
        let mut random = mix(seed);
        let exchanges = (0..SITES).map(|_| {
            random = mix(random);
            let mut exchange = Exchange::new(random);
            // They do not begin together.
            exchange.is_due(Duration::from_millis(random % 500));
            exchange
        });
        World {
            exchanges: exchanges.collect(),
            maps: vec![map; SITES as usize],
            now: Duration::from_secs(1),
            random: mix(seed ^ 1),
            under_way: BTreeMap::new(),
            sent: 0,
            sent_bytes: 0,
            loses: true,
            compares: true,
        }
    }

    fn draw(&mut self, bound: u64) -> u64 {
        self.random = mix(self.random);
        self.random % bound
    }

    fn send(&mut self, from: usize, to: usize, step: MapStep) {
        self.sent += 1;
        let message = MapMessage { step: Some(step.clone()), ..MapMessage::default() };
        // As it is between real sites: with the registry's version, and which life its node is of.
        let version = RegistryVersion { round: 700, site: 40, ..RegistryVersion::default() };
        let inter_site =
            InterSiteMessage { content: Some(InterSite::Map(message)), version: Some(version) };
        let message = peer::Message {
            life: Some(peer::Life { incarnation: u64::MAX, since: 1 }),
            ..peer::Message::from(peer::Content::InterSite(inter_site))
        };
        // A frame has its length before it.
        self.sent_bytes += 4 + message.encoded_len() as u64;
        if self.loses && self.draw(100) < LOST_PERCENT {
            return;
        }
        let at = self.now + Duration::from_millis(1 + self.draw(WAY_MAX_MS));
        self.under_way.insert((at, self.sent), (from, to, step));
    }

    fn tick(&mut self) {
        self.now += TICK;
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let (from, to, step) = entry.remove();
            let (answer, _) = handle(&mut self.maps[to], SiteId(from as u32 + 1), step, self.now);
            if let Some(answer) = answer {
                self.send(to, from, answer);
            }
        }
        for site in 0..self.maps.len() {
            let others: Vec<SiteId> =
                (1..=SITES).map(SiteId).filter(|other| other.0 as usize != site + 1).collect();
            let unsent = self.maps[site].take_unsent();
            if !unsent.is_empty() {
                for other in self.exchanges[site].pushed_to(&others) {
                    self.send(site, other.0 as usize - 1, push(&unsent));
                }
            }
            if self.compares && self.exchanges[site].is_due(self.now) {
                let other = self.exchanges[site].one_of(&others).unwrap();
                let step = compare(&self.maps[site]);
                self.send(site, other.0 as usize - 1, step);
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.tick();
        }
    }

    /// How many maps have that fact.
    fn knowing(&self, run: RunFact) -> usize {
        let slot = model::Slot::new(run.first).unwrap();
        self.maps.iter().filter(|map| map.fact(slot) == Some(run.fact)).count()
    }

    /// How long it takes until all maps are one, at most.
    fn until_one(&mut self, timeout: Duration) -> Option<Duration> {
        let begun = self.now;
        while self.now < begun + timeout {
            self.tick();
            let first = self.maps[0].facts().digest();
            if self.maps.iter().all(|map| map.facts().digest() == first) {
                return Some(self.now - begun);
            }
        }
        None
    }

    /// The new owner of slots learns that from its token.
    fn moved(&mut self, run: RunFact) {
        let owner = run.fact.owner.0 as usize - 1;
        self.maps[owner].learn(run, Source::Token, self.now);
    }
}

fn run(first: u16, last: u16, count: u64, site: u32) -> RunFact {
    let fact = Fact { epoch: Epoch::counted(count), owner: SiteId(site + 1) };
    RunFact { first, last, fact }
}

/// A move every 100 ms for ten seconds.
fn moves(world: &mut World) {
    for count in 0..100_u64 {
        let first = 32 * world.draw(512) as u16;
        let site = world.draw(u64::from(SITES)) as u32;
        world.moved(run(first, first + 31, 2 + count, site));
        world.run(2 * TICK);
    }
}

#[test]
fn a_hundred_maps_agree_soon_after_the_last_move() {
    let mut worst = Duration::ZERO;
    for seed in 0..20 {
        let mut world = World::new(seed);
        moves(&mut world);
        let took = world.until_one(Duration::from_secs(60)).expect("they agree");
        worst = worst.max(took);
    }
    eprintln!("100 sites: the slowest of 20 worlds agreed after {worst:?}");
    assert!(worst <= Duration::from_secs(5), "{worst:?}");
}

#[test]
fn what_push_does_not_reach_comparison_finds() {
    let mut world = World::new(1);
    world.compares = false;
    moves(&mut world);
    assert_eq!(world.until_one(Duration::from_secs(60)), None, "some never hear of a move");
    world.compares = true;
    assert!(world.until_one(Duration::from_secs(10)).is_some());
}

#[test]
fn idle_sites_spend_little() {
    let mut world = World::new(1);
    world.loses = false;
    let span = 100 * COMPARE_INTERVAL;
    world.run(span);
    let each = world.sent_bytes as f64 / f64::from(SITES) / span.as_secs_f64();
    eprintln!("idle: {each:.0} B/s a site");
    // Each compares twice a second, is asked as often, and sends half of four messages for each.
    assert!(2.0 * each <= 512.0, "{each}");
    assert!(world.maps.iter().all(|map| !map.has_news()));
}

#[test]
fn a_moved_run_costs_each_site_little() {
    let mut world = World::new(1);
    world.run(COMPARE_INTERVAL);
    let (mut pushed, mut reported) = (0, 0);
    world.compares = false;
    for count in 0..50 {
        let run = run(32 * count, 32 * count + 31, 2, u32::from(count));
        let before = world.sent;
        world.moved(run);
        world.run(Duration::from_secs(3));
        pushed += world.sent - before;
        reported += world.knowing(run) as u64;
    }
    let each = pushed as f64 / 50.0 / f64::from(SITES);
    let reached = reported as f64 / 50.0 / f64::from(SITES);
    let bytes = put_bytes();
    eprintln!(
        "a moved run: {each:.2} pushes a site, {bytes} B each beside the frame; {:.0} % hear of it by push",
        100.0 * reached
    );
    assert!(each <= 2.1 && reached > 0.7, "{each} {reached}");
    assert!(each * bytes as f64 <= 64.0, "{each} {bytes}");
}

#[test]
fn all_that_a_move_costs_is_bounded() {
    let bytes_of = |moves: u16| {
        let mut world = World::new(1);
        for count in 0..50 {
            if count < moves {
                world.moved(run(32 * count, 32 * count + 31, 2, u32::from(count)));
            }
            world.run(Duration::from_secs(3));
        }
        assert!(world.until_one(Duration::from_secs(5)).is_some());
        world.sent_bytes as f64 / f64::from(SITES)
    };
    let each = (bytes_of(50) - bytes_of(0)) / 50.0;
    eprintln!("a move by itself: {each:.0} B sent by each site until all agree");
    assert!(each <= 2_048.0, "{each}");
}

/// The bytes of a fact as it is pushed.
fn put_bytes() -> usize {
    let failover = RegistryVersion { round: 700, site: 40, term: 1, term_site: 3 };
    let MapStep::Facts(facts) = push(&[run(12_000, 12_031, 9, 90)]) else { unreachable!() };
    let fact = wire::inter_site::MapFact { failover: Some(failover), ..facts.facts[0] };
    // With its tag and length.
    2 + fact.encoded_len()
}
