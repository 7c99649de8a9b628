//! Changes of the registry, and its recoveries, while sites are away.

use super::super::Acceptor;
use super::*;
use model::{
    Changed, DeploymentId, KeyspaceSpec, RegistrarSet, Registrars, Registry, RegistryChange,
    RequestId, SiteEntry, SiteName,
};
use std::sync::Arc;

type V = Arc<Registry>;
const NONE: Planted = Planted::none();

fn registry(sites: u32) -> V {
    let entry = |id: u32| SiteEntry {
        id: SiteId(id),
        name: SiteName::new(format!("s{id}")).unwrap(),
        incarnation: u64::from(id),
        capacity_percent: 100,
        leaving: false,
        failure_domain: None,
        borrowed_bytes_max: None,
        region: None,
        nodes: Vec::new(),
    };
    let mut registry = Registry::empty(DeploymentId(7), 1);
    registry.sites = (1..=sites).map(entry).collect();
    registry.site_next = sites + 1;
    registry.begin(SiteId(1));
    let set: RegistrarSet = (1..=sites).map(SiteId).collect();
    registry.registrars = Registrars { set, since: registry.version, before: set };
    Arc::new(registry)
}

fn change(number: u64) -> Work<V> {
    let spec = KeyspaceSpec::linearizable_global(format!("k{number}"), format!("k{number}:"));
    let id = RequestId { client: model::ClientId(1), sequence: number, acknowledged_below: 0 };
    Work::Change { id, change: RegistryChange::CreateKeyspace(spec) }
}

struct World {
    acceptors: BTreeMap<SiteId, Acceptor<V>>,
    drivers: BTreeMap<SiteId, Driver<V, u32>>,
    away: Vec<SiteId>,
    now: Duration,
    ends: Vec<(SiteId, u32, Result<Outcome<V>, Ended>)>,
}

impl World {
    fn new(sites: u32) -> World {
        let ids = || (1..=sites).map(SiteId);
        World {
            acceptors: ids().map(|id| (id, Acceptor::new(registry(sites)))).collect(),
            drivers: ids().map(|id| (id, Driver::new(id.0.into(), NONE))).collect(),
            away: Vec::new(),
            now: Duration::ZERO,
            ends: Vec::new(),
        }
    }

    fn want(&mut self, site: u32, number: u32, work: Work<V>) {
        let deadline = self.now + Duration::from_secs(10);
        self.drivers.get_mut(&SiteId(site)).unwrap().want(number, work, deadline);
    }

    fn take(&mut self, site: SiteId, step: Step<V>) -> Answered<V> {
        let acceptor = self.acceptors.get_mut(&site).unwrap();
        let answer = match step {
            Step::Reserve(above) => {
                return Answered::Reserved(acceptor.reserve(site, above, NONE));
            }
            Step::ReserveTerm => {
                let (ballot, accepted) = acceptor.reserve_term(site, NONE);
                return Answered::TermReserved(ballot, accepted);
            }
            Step::Prepare(ballot) => acceptor.prepare(ballot, NONE).map(Answered::Promised),
            Step::Accept(ballot, value) => {
                acceptor.accept(ballot, value).map(|()| Answered::Accepted)
            }
            Step::Learn(value) => {
                acceptor.learn(value, NONE);
                return Answered::Learned;
            }
        };
        answer.unwrap_or_else(Answered::Refused)
    }

    /// Runs the world for a time; sites take turns, message by message.
    fn run(&mut self, for_ms: u64) {
        let until = self.now + Duration::from_millis(for_ms);
        let mut under_way: VecDeque<(SiteId, u64, SiteId, Step<V>)> = VecDeque::new();
        while self.now < until {
            let sites: Vec<SiteId> = self.drivers.keys().copied().collect();
            for own in sites {
                let copy = self.acceptors[&own].copy().clone();
                let promised = self.acceptors[&own].promised();
                let context = Context { own, now: self.now, copy: &copy, promised };
                let effects = self.drivers.get_mut(&own).unwrap().advance(&context);
                self.perform(own, effects, &mut under_way);
            }
            match under_way.pop_front() {
                None => self.now += Duration::from_millis(10),
                Some((own, id, site, step)) => {
                    self.now += Duration::from_millis(1);
                    if self.away.contains(&site) || self.away.contains(&own) {
                        continue;
                    }
                    let answered = self.take(site, step);
                    let copy = self.acceptors[&own].copy().clone();
                    let promised = self.acceptors[&own].promised();
                    let context = Context { own, now: self.now, copy: &copy, promised };
                    let driver = self.drivers.get_mut(&own).unwrap();
                    let effects = driver.answered(id, answered, &context);
                    self.perform(own, effects, &mut under_way);
                }
            }
        }
    }

    fn perform(
        &mut self,
        own: SiteId,
        effects: Vec<Effect<V, u32>>,
        under_way: &mut VecDeque<(SiteId, u64, SiteId, Step<V>)>,
    ) {
        for effect in effects {
            match effect {
                Effect::Take { id, site, step } => under_way.push_back((own, id, site, step)),
                Effect::Settle(origin, end) => self.ends.push((own, origin, end)),
            }
        }
    }
}

fn made(id: u32) -> Result<Outcome<V>, Ended> {
    Ok(Outcome::Done(Ok(Changed::Keyspace(model::KeyspaceId(id)))))
}

#[test]
fn a_change_is_made_with_a_minority_away() {
    let mut world = World::new(3);
    world.away = vec![SiteId(1)];
    world.want(2, 7, change(1));
    world.run(1_000);
    assert_eq!(world.ends, [(SiteId(2), 7, made(1))]);
    assert_eq!(world.acceptors[&SiteId(3)].accepted().keyspaces.len(), 1);
    assert_eq!(world.acceptors[&SiteId(3)].copy().keyspaces.len(), 0, "it has not learned it");
}

#[test]
fn changes_at_the_same_time_are_all_made() {
    let mut world = World::new(3);
    for site in 1..=3 {
        world.want(site, site, change(u64::from(site)));
    }
    world.run(9_000);
    let mut ids: Vec<_> = world.ends.iter().map(|(_, _, end)| format!("{end:?}")).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((world.ends.len(), ids.len()), (3, 3), "{:?}", world.ends);
    assert!(world.ends.iter().all(|(_, _, end)| matches!(end, Ok(Outcome::Done(Ok(_))))));
}

#[test]
fn a_change_that_is_asked_for_again_elsewhere_is_made_once() {
    let mut world = World::new(3);
    world.want(1, 1, change(1));
    world.run(500);
    world.want(2, 2, change(1));
    world.run(1_000);
    assert_eq!(world.ends, [(SiteId(1), 1, made(1)), (SiteId(2), 2, made(1))]);
}

#[test]
fn without_a_majority_it_ends_and_says_so() {
    let mut world = World::new(3);
    world.away = vec![SiteId(2), SiteId(3)];
    world.want(1, 1, change(1));
    world.run(12_000);
    assert_eq!(world.ends, [(SiteId(1), 1, Err(Ended::NoMajority))]);
    // The site is back: the waiting work is queued again.
    world.want(1, 2, change(2));
    world.run(1_000);
    world.away = vec![SiteId(3)];
    world.run(8_000);
    assert_eq!(world.ends.last(), Some(&(SiteId(1), 2, made(1))));
}

#[test]
fn a_recovery_goes_on_with_those_that_are_left() {
    let mut world = World::new(2);
    world.away = vec![SiteId(1)];
    world.want(2, 1, Work::Recover { without: vec![SiteId(1)] });
    world.want(2, 2, change(1));
    world.run(3_000);
    assert_eq!(world.ends[0], (SiteId(2), 1, Ok(Outcome::Recovered)));
    assert!(matches!(world.ends[1].2, Ok(Outcome::Done(Ok(Changed::Keyspace(_))))));
    let copy = world.acceptors[&SiteId(2)].copy();
    assert_eq!((copy.version.term.number, copy.registrars.set.sites()), (1, &[SiteId(2)][..]));
}

#[test]
fn a_recovery_goes_on_from_no_less_than_what_its_site_learns_meanwhile() {
    // Site 3 has accepted one more keyspace than site 2 learns while it recovers.
    for more in [false, true] {
        let mut own = Acceptor::new(registry(3));
        let mut other = Acceptor::new(registry(3));
        let create = |value: &V, number, round| {
            let mut next = value.clone();
            let version = Ballot { round, site: SiteId(1), ..value.version };
            let Work::Change { id, change } = change(number) else { unreachable!() };
            next.change(id, &change, version).unwrap();
            next.stamp(version);
            next
        };
        let chosen = create(own.copy(), 1, 8);
        if more {
            let accepted = create(&chosen, 2, 9);
            other.accept(accepted.version, accepted).unwrap();
        }
        let mut driver: Driver<V, ()> = Driver::new(1, NONE);
        let without = vec![SiteId(1)];
        driver.want((), Work::Recover { without }, Duration::from_secs(10));
        let (site, now) = (SiteId(2), Duration::ZERO);
        let copy = own.copy().clone();
        let promised = Ballot::default();
        let context = Context { own: site, now, copy: &copy, promised };
        let effects = driver.advance(&context);
        let [Effect::Take { id, step: Step::ReserveTerm, .. }] = effects[..] else { panic!() };
        let (ballot, accepted) = own.reserve_term(site, NONE);
        let effects = driver.answered(id, Answered::TermReserved(ballot, accepted), &context);
        let [Effect::Take { id, site: SiteId(3), .. }] = effects[..] else { panic!() };
        assert!(own.learn(chosen.clone(), NONE));
        let accepted = other.prepare(ballot, NONE).unwrap();
        let context = Context { own: site, now, copy: &chosen, promised };
        let effects = driver.answered(id, Answered::Promised(accepted), &context);
        let Effect::Take { step: Step::Accept(_, value), .. } = &effects[0] else { panic!() };
        assert_eq!(value.keyspaces, chosen.keyspaces);
        let dropped = value.began[0].ids.as_ref().unwrap().keyspaces_dropped.len();
        assert_eq!((value.began[0].after.round, dropped), if more { (9, 1) } else { (8, 0) });
    }
}

#[test]
fn a_recovery_does_not_wait_for_what_cannot_be_done_without_it() {
    let mut world = World::new(3);
    world.away = vec![SiteId(1), SiteId(3)];
    world.want(2, 1, change(1));
    world.run(1_000);
    world.want(2, 2, Work::Recover { without: world.away.clone() });
    world.run(1_000);
    assert_eq!(world.ends[0], (SiteId(2), 2, Ok(Outcome::Recovered)));
    world.run(1_000);
    let change = &world.ends[1];
    assert!(matches!(change, (SiteId(2), 1, Ok(Outcome::Done(Ok(_))))), "{change:?}");
}

#[test]
fn one_that_has_promised_another_term_is_done_without() {
    let mut world = World::new(3);
    // A recovery that stops half-way.
    world.take(SiteId(3), Step::ReserveTerm);
    world.want(1, 1, change(1));
    world.run(1_000);
    assert_eq!(world.ends, [(SiteId(1), 1, made(1))]);
    assert!(world.drivers[&SiteId(1)].above().term.number == 1, "it was refused there");
}

#[test]
fn a_term_that_most_have_promised_blocks_changes_until_a_recovery_ends() {
    let mut world = World::new(3);
    world.take(SiteId(1), Step::ReserveTerm);
    world.take(SiteId(2), Step::ReserveTerm);
    world.want(3, 1, change(1));
    world.run(12_000);
    assert_eq!(world.ends, [(SiteId(3), 1, Err(Ended::Blocked))]);
    assert!(world.drivers[&SiteId(3)].blocked_since(&registry(3)).is_some());
    world.want(3, 2, Work::Recover { without: Vec::new() });
    world.want(3, 3, change(2));
    world.run(3_000);
    assert_eq!(world.ends[1], (SiteId(3), 2, Ok(Outcome::Recovered)));
    assert!(matches!(world.ends[2], (SiteId(3), 3, Ok(Outcome::Done(Ok(_))))));
    assert_eq!(world.drivers[&SiteId(3)].blocked_since(&registry(3)), None);
    assert_eq!(world.acceptors[&SiteId(3)].copy().registrars.set.sites().len(), 3);
}

/// Of three registrars two are lost, which may have let site 4 in and made it one.
#[test]
fn a_recovery_waits_for_a_site_that_the_excluded_ones_may_have_made_a_registrar() {
    let mut joined = registry(3);
    let at = Ballot { round: 8, site: SiteId(1), ..joined.version };
    let id = RequestId { client: model::ClientId(1), sequence: 1, acknowledged_below: 0 };
    joined.change(id, &RegistryChange::Join(registry(4).sites[3].clone()), at).unwrap();
    joined.stamp(at);
    let ids = |ids: &[u32]| ids.iter().copied().map(SiteId).collect::<Vec<_>>();
    let to_answer = |without: &[u32]| super::super::to_answer(&joined, &registry(3), &ids(without));
    assert_eq!(to_answer(&[2, 3]), ids(&[1, 4]));
    assert_eq!(to_answer(&[2, 3, 4]), ids(&[1]));
    assert_eq!(to_answer(&[3]), ids(&[1, 2]));
}

/// Site 1 has accepted that site 3 joins; site 2 is lost before it could.
#[test]
fn a_recovery_does_not_wait_for_a_site_that_may_never_have_joined() {
    let mut world = World::new(2);
    let mut joined = registry(2);
    let at = Ballot { round: 8, site: SiteId(1), ..joined.version };
    let id = RequestId { client: model::ClientId(1), sequence: 1, acknowledged_below: 0 };
    let join = RegistryChange::Join(registry(3).sites[2].clone());
    joined.change(id, &join, at).unwrap();
    joined.stamp(at);
    assert_eq!(joined.sites.len(), 3);
    world.take(SiteId(1), Step::Accept(at, joined));
    world.away = vec![SiteId(2), SiteId(3)];
    world.want(1, 1, Work::Recover { without: vec![SiteId(2)] });
    world.run(12_000);
    assert_eq!(world.ends, [(SiteId(1), 1, Ok(Outcome::Recovered))]);
}

/// Another site's recovery ends the term that blocked this one.
#[test]
fn a_repetition_that_is_not_needed_any_more_begins_no_term() {
    let mut world = World::new(3);
    world.take(SiteId(1), Step::ReserveTerm);
    world.take(SiteId(2), Step::ReserveTerm);
    world.want(3, 1, change(1));
    world.run(1_000);
    world.want(1, 2, Work::Recover { without: Vec::new() });
    world.run(1_000);
    let term = world.acceptors[&SiteId(1)].copy().version.term;
    let copy = world.acceptors[&SiteId(1)].copy().clone();
    world.take(SiteId(3), Step::Learn(copy));
    world.want(3, 3, Work::Recover { without: Vec::new() });
    world.run(2_000);
    let recovered = |site: u32, number| (SiteId(site), number, Ok(Outcome::Recovered));
    assert!(world.ends.contains(&recovered(1, 2)) && world.ends.contains(&recovered(3, 3)));
    assert_eq!(world.acceptors[&SiteId(3)].copy().version.term, term);
}

#[test]
fn a_recovery_of_a_term_that_somebody_has_begun_begins_the_next_one() {
    let mut world = World::new(3);
    let begun = world.take(SiteId(3), Step::ReserveTerm);
    let Answered::TermReserved(ballot, _) = begun else { panic!("{begun:?}") };
    world.take(SiteId(3), Step::Prepare(Ballot { round: 0, ..ballot }));
    world.away = vec![SiteId(1)];
    world.want(2, 1, Work::Recover { without: vec![SiteId(1)] });
    world.run(5_000);
    assert_eq!(world.ends, [(SiteId(2), 1, Ok(Outcome::Recovered))]);
    assert_eq!(world.acceptors[&SiteId(2)].copy().version.term.number, 2);
}
