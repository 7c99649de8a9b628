//! Sites join, leave, crash, are cut off and come back, one thing at a time.

use super::super::invariant::Violation;
use super::super::{Driver, Member, Ring};
use super::simulation::{Sim, ms};
use model::{SiteId, limits};
use std::collections::BTreeSet;
use std::time::Duration;

/// A ring of sites 1 to `count` that is as it should be.
fn settled(seed: u64, count: u32, virtuals: u32) -> Sim {
    let mut sim = Sim::new(seed);
    sim.begin(virtuals);
    for site in 2..=count {
        sim.join(site, virtuals, 1);
    }
    sim.run_until_ideal(ms(120_000));
    sim
}

#[test]
fn one_site_is_a_ring() {
    for virtuals in [1, 8] {
        let mut sim = Sim::new(1);
        sim.begin(virtuals);
        sim.run(ms(5_000));
        assert!(sim.is_ideal());
        assert_eq!(sim.messages(), 0);
    }
}

#[test]
fn sites_join_one_after_the_other() {
    for virtuals in [1, 3, 8] {
        let mut sim = Sim::new(2);
        sim.begin(virtuals);
        for site in 2..=12 {
            sim.join(site, virtuals, site - 1);
            sim.run_until_ideal(ms(20_000));
        }
    }
}

#[test]
fn sites_join_all_at_once() {
    for virtuals in [1, 8] {
        let mut sim = settled(3, 30, virtuals);
        sim.run(ms(5_000));
        assert!(sim.is_ideal(), "{}", sim.describe());
        assert!(sim.rings().iter().all(|ring| sim.driver(ring.site()).is_settled()));
    }
}

#[test]
fn a_join_by_way_of_nobody_waits_for_somebody() {
    let mut sim = Sim::new(4);
    sim.begin(3);
    // Site 3 is no member itself yet, and 9 is not there at all.
    sim.join(2, 3, 3);
    sim.run(ms(3_000));
    sim.join(3, 3, 9);
    sim.run(ms(5_000));
    assert_eq!(sim.members(), [SiteId(1)]);
    sim.with(SiteId(3), |driver, now| driver.join(now, SiteId(1)));
    sim.run_until_ideal(ms(20_000));
    assert_eq!(sim.members().len(), 3);
}

#[test]
fn a_site_that_leaves_is_gone_at_once() {
    let mut sim = settled(5, 10, 4);
    sim.leave(SiteId(4));
    // One way of a message, and no site waits for an answer to it.
    sim.run(ms(60));
    // (An answer on its way may still name it at the end of a list.)
    let named = |sim: &Sim, gone: SiteId| {
        let of_others = sim.rings().into_iter().filter(|ring| ring.site() != gone);
        let mut neighbours = of_others.flat_map(|ring| {
            let next = |own: Member| ring.successors(own.point).first().copied();
            let before = |own: Member| ring.predecessor(own.point);
            ring.members().flat_map(move |own| [next(own), before(own)])
        });
        neighbours.any(|member| member.is_some_and(|member| member.site == gone))
    };
    assert!(!named(&sim, SiteId(4)), "{}", sim.describe());
    // Lists are a member short at most.
    sim.run_until_ideal(ms(10_000));
    // Neighbours that leave together, and one that comes back under its name.
    for site in [5, 6, 7] {
        sim.leave(SiteId(site));
    }
    sim.run_until_ideal(ms(10_000));
    sim.join(6, 4, 1);
    sim.run_until_ideal(ms(10_000));
    assert_eq!(sim.members().len(), 7);
}

#[test]
fn crashed_sites_are_left_out() {
    let mut sim = settled(6, 10, 4);
    for site in [3, 1, 7] {
        sim.crash(SiteId(site));
        let took = sim.run_until_ideal(ms(30_000));
        assert!(took > ms(1_000), "a crash is seen by silence only");
    }
}

#[test]
fn a_crash_that_the_shell_sees_is_not_waited_for() {
    let mut sim = settled(7, 10, 1);
    sim.crash(SiteId(3));
    for _ in 0..200 {
        sim.run(ms(50));
        for site in sim.live() {
            sim.with(site, |driver, now| driver.unreachable(now, SiteId(3)));
        }
        if sim.is_ideal() {
            break;
        }
    }
    assert!(sim.is_ideal());
}

#[test]
fn as_many_neighbours_as_a_list_has_less_one_crash_at_once() {
    let count = 30;
    for seed in 0..5 {
        let mut sim = settled(100 + seed, count, 1);
        let mut order: Vec<_> = sim.rings().iter().flat_map(|ring| ring.members()).collect();
        order.sort();
        let from = sim.chance(u64::from(count)) as usize;
        let neighbours = order.iter().cycle().skip(from).take(limits::RING_SUCCESSORS - 1);
        for member in neighbours.copied().collect::<Vec<_>>() {
            sim.crash(member.site);
        }
        sim.run_until_ideal(ms(60_000));
    }
}

#[test]
fn more_crashed_neighbours_than_that_are_overcome_by_seeking() {
    for (virtuals, reminded) in [(1, false), (1, true), (4, true)] {
        let mut sim = settled(8, 40, virtuals);
        sim.run(ms(30_000));
        if reminded {
            sim.remind();
        }
        sim.watched = false;
        let mut order: Vec<_> = sim.rings().iter().flat_map(|ring| ring.members()).collect();
        order.sort();
        let crashed: BTreeSet<SiteId> =
            order.iter().map(|member| member.site).take(limits::RING_SUCCESSORS + 2).collect();
        crashed.into_iter().for_each(|site| sim.crash(site));
        sim.run_until_ideal(ms(120_000));
    }
}

#[test]
fn halves_of_a_cut_ring_repair_themselves_and_merge_again() {
    for (seed, count, virtuals) in [(1, 12, 1), (2, 12, 1), (3, 12, 3), (4, 12, 8), (5, 4, 40)] {
        let mut sim = settled(200 + seed, count, virtuals);
        sim.remind();
        sim.watched = false;
        let (off, rest): (Vec<_>, Vec<_>) =
            sim.live().into_iter().partition(|site| site.0 % 3 == 0);
        sim.cut(&off);
        let start = sim.now;
        while !(sim.is_ideal_among(&off) && sim.is_ideal_among(&rest)) {
            assert!(sim.now - start < ms(120_000), "{}", sim.describe());
            sim.run(ms(250));
        }
        // The invariant cannot hold throughout: each side takes the other one for dead, and is right
        // to close its own ring.
        assert!(matches!(sim.violation(), Err(Violation::TwoRings(..))), "{:?}", sim.violation());
        sim.heal();
        assert!(!sim.is_ideal());
        let took = sim.run_until_ideal(ms(120_000));
        // Every site has to probe the other side once, every five seconds; how many virtual nodes
        // it has does not matter.
        assert!(took < ms(20_000), "{took:?}");
        sim.watched = true;
        sim.run(ms(20_000));
        assert!(sim.is_ideal());
    }
}

#[test]
fn without_a_directory_two_rings_stay_two() {
    let mut sim = settled(9, 12, 3);
    sim.watched = false;
    let (off, rest): (Vec<_>, Vec<_>) = sim.live().into_iter().partition(|site| site.0 % 3 == 0);
    sim.cut(&off);
    sim.run(ms(120_000));
    sim.heal();
    sim.run(ms(120_000));
    assert!(sim.is_ideal_among(&off) && sim.is_ideal_among(&rest));
}

#[test]
fn a_site_cut_off_alone_is_a_ring_by_itself_and_comes_back() {
    let mut sim = settled(10, 5, 4);
    sim.remind();
    sim.watched = false;
    sim.cut(&[SiteId(2)]);
    sim.run(ms(60_000));
    assert!(sim.is_ideal_among(&[SiteId(2)]));
    sim.heal();
    sim.run_until_ideal(ms(60_000));
}

#[test]
fn a_crashed_site_comes_back_with_its_old_pointers() {
    for seed in 0..10 {
        let mut sim = settled(300 + seed, 8, 3);
        sim.crash(SiteId(4));
        // Shorter and longer than any site notices; meanwhile its neighbours become others.
        sim.run(ms([50, 2_000, 30_000][seed as usize % 3]));
        for site in 9..14 {
            sim.join(site, 3, 1);
        }
        if seed % 2 == 0 {
            sim.leave(SiteId(6));
        }
        sim.run(ms([20, 500, 20_000][seed as usize / 3 % 3]));
        sim.come_back(SiteId(4));
        sim.run_until_ideal(ms(60_000));
    }
}

#[test]
fn a_site_that_finds_nobody_it_knew_joins_again() {
    let mut sim = settled(14, 4, 2);
    sim.crash(SiteId(4));
    for site in 5..9 {
        sim.join(site, 2, 1);
    }
    sim.run_until_ideal(ms(30_000));
    for site in 1..4 {
        sim.crash(SiteId(site));
        sim.run_until_ideal(ms(30_000));
    }
    // It is no ring by itself meanwhile.
    sim.come_back(SiteId(4));
    sim.remind();
    sim.run_until_ideal(ms(30_000));
}

#[test]
fn a_site_that_comes_back_and_is_cut_off_is_a_ring_by_itself() {
    let mut sim = settled(15, 4, 2);
    sim.watched = false;
    sim.cut(&[SiteId(4)]);
    sim.crash(SiteId(4));
    sim.come_back(SiteId(4));
    sim.remind();
    sim.run(ms(60_000));
    assert!(sim.is_ideal_among(&[SiteId(4)]), "{}", sim.describe());
    sim.heal();
    sim.run_until_ideal(ms(60_000));
}

#[test]
fn sites_come_back_one_after_the_other_when_all_were_away() {
    let mut sim = settled(16, 8, 3);
    sim.watched = false;
    let all = sim.live();
    all.iter().for_each(|site| sim.crash(*site));
    for site in all {
        sim.come_back(site);
        sim.remind();
        sim.run(ms(7_000));
    }
    sim.run_until_ideal(ms(120_000));
}

#[test]
fn all_sites_come_back_together() {
    let mut sim = settled(11, 8, 3);
    let all = sim.live();
    sim.watched = false;
    all.iter().for_each(|site| sim.crash(*site));
    sim.run(ms(60_000));
    all.iter().for_each(|site| sim.come_back(*site));
    sim.watched = true;
    assert!(sim.is_ideal(), "nothing has happened to the pointers");
    assert!(!all.iter().any(|site| sim.driver(*site).is_confirmed()));
    sim.run(ms(30_000));
    assert!(sim.is_ideal());
    assert!(all.iter().all(|site| sim.driver(*site).is_confirmed()));
    sim.join(9, 3, 1);
    sim.run_until_ideal(ms(20_000));
}

#[test]
fn a_new_leader_changes_nothing() {
    let mut sim = settled(12, 8, 3);
    sim.run(ms(10_000));
    let before: Vec<Ring> = sim.rings().into_iter().cloned().collect();
    let ring = sim.driver(SiteId(5)).ring().clone();
    sim.start(ring);
    assert!(!sim.driver(SiteId(5)).is_settled());
    sim.run(ms(2_000));
    assert!(sim.driver(SiteId(5)).is_settled());
    assert_eq!(sim.rings().into_iter().cloned().collect::<Vec<_>>(), before);
}

#[test]
fn fingers_become_what_they_should_be() {
    let mut sim = settled(13, 40, 2);
    sim.run(ms(60_000));
    let members: Vec<_> = sim.rings().iter().flat_map(|ring| ring.members()).collect();
    let right = super::super::ideal(&members);
    for ring in sim.rings() {
        assert_eq!(ring, &right[&ring.site()]);
    }
    assert!(right.values().any(|ring| ring.members().any(|own| ring.fingers(own.point).len() > 1)));
}

#[test]
fn a_driver_at_rest_asks_nothing_without_a_deadline() {
    let mut driver = Driver::new(Ring::empty(SiteId(3), 4), 1);
    assert_eq!(driver.deadline(), None, "it has no order to join");
    driver.join(ms(5), SiteId(1));
    for step in 1..2_000u64 {
        while driver.poll().is_some() {}
        let deadline = driver.deadline().expect("it has asked a site");
        assert!(deadline > ms(5) && deadline < Duration::from_secs(2) * step as u32);
        driver.timeout(deadline);
    }
}
