//! Everything at once, by chance.

use super::super::driver::TIMEOUT;
use super::simulation::{Sim, ms};
use model::SiteId;

/// Sites come, go, crash and come back for half a minute; then nothing more happens, and the ring
/// must be as it should be.
fn churn(seed: u64, prepare: impl FnOnce(&mut Sim)) {
    let mut sim = Sim::new(seed);
    prepare(&mut sim);
    let virtuals = 1 + sim.chance(3) as u32;
    sim.begin(virtuals);
    let mut crashed: Vec<SiteId> = Vec::new();
    let mut newest = 1;
    for _ in 0..24 {
        let pause = sim.chance(2_500);
        sim.run(ms(pause));
        let members = sim.members();
        let one = members[sim.chance(members.len() as u64) as usize];
        match sim.chance(10) {
            0..=3 if newest < 14 => {
                newest += 1;
                let virtuals = 1 + sim.chance(3) as u32;
                sim.join(newest, virtuals, one.0);
            }
            4..=5 if sim.is_dispensable(one) => {
                sim.crash(one);
                crashed.push(one);
            }
            6 if sim.is_dispensable(one) => sim.leave(one),
            7..=8 if !crashed.is_empty() => {
                let nth = sim.chance(crashed.len() as u64) as usize;
                sim.come_back(crashed.swap_remove(nth));
            }
            _ => sim.remind(),
        }
    }
    sim.remind();
    sim.lost_permille = 0;
    sim.run_until_ideal(ms(120_000));
    assert!(sim.violation().is_ok());
}

#[test]
fn the_invariant_holds_whatever_happens() {
    for seed in 0..500 {
        churn(seed, |sim| {
            // Messages are lost, but not so many that a site is wrongly taken for dead: what is
            // repeated is received and answered.
            sim.lost_permille = 100;
            sim.calm_after_loss = TIMEOUT + ms(200);
        });
    }
}

#[test]
fn the_ring_heals_although_sites_are_wrongly_taken_for_dead() {
    for seed in 1_000..1_300 {
        churn(seed, |sim| {
            sim.lost_permille = 250;
            sim.watched = false;
        });
    }
}
