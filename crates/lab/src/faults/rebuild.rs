//! The root of causal keys is lost, and operators have the other sites go on with the order without
//! it: at any of them, now and then at two. Then it comes back as a site like the others; or it is
//! lost for good: its backup is promoted, it is removed, and a new one comes on empty disks.
//!
//! Nothing is waited for: a root that is back before another site goes on stays the root. What is
//! lost is what the registry names; sessions that have seen it, and no others, are refused, which
//! the run judges (`crate::run`).

use std::time::Duration;

use model::{AcceptedLoss, Body, Promotion, Region, RegistryChange, Request};

use super::Fault;
use super::apply::Begun;
use super::promote::is_away;
use super::region::is_root;
use crate::random::Random;
use crate::simulation::site_lifecycle::{self, SiteLifecycle};
use crate::simulation::{Down, Simulation};

/// How often operators look.
const LOOK: Duration = Duration::from_millis(250);
/// How many looks lie between two of their attempts.
const ATTEMPT_LOOKS: u64 = 14;
/// How long one of them may take.
const ATTEMPT: Duration = Duration::from_secs(4);
/// A site that is still not removed by then comes back.
const LENGTH_MAX: Duration = Duration::from_secs(60);

/// What is done about a loss.
struct Plan {
    with_power: bool,
    for_good: bool,
    /// How many looks after the loss operators ask first.
    first: u64,
    /// Whether another one asks at the same time.
    twice: bool,
}

fn plan(fault: &Fault) -> Plan {
    let mut random = Random::new(fault.draw);
    Plan {
        with_power: random.chance(500),
        for_good: random.chance(350),
        first: 1 + random.below(16),
        twice: random.chance(200),
    }
}

/// Loses the site, if it is the root and two others are there.
pub(super) fn begin<C>(simulation: &mut Simulation<C>, fault: &Fault) -> Begun {
    let others = others(simulation, fault.site);
    if !is_root(simulation, fault.site) || is_away(simulation, fault.site) || others.len() < 2 {
        return Begun::Skipped;
    }
    if plan(fault).with_power {
        let mut random = Random::new(fault.draw ^ 1);
        for node in simulation.sites[fault.site].nodes.clone() {
            simulation.crash(node, &Down::draw_power_loss(&mut random));
        }
    } else {
        simulation.part_site(fault.site);
    }
    Begun::For(LOOK)
}

/// The other sites of its region that are inside and not away.
fn others<C>(simulation: &Simulation<C>, site: usize) -> Vec<usize> {
    let is_inside = |other: &usize| {
        simulation.sites[*other].region == simulation.sites[site].region
            && simulation.sites[*other].lifecycle == SiteLifecycle::Inside
            && !is_away(simulation, *other)
            && simulation.leader(*other).is_some()
    };
    (0..simulation.sites.len()).filter(|other| *other != site).filter(is_inside).collect()
}

/// Goes on: operators ask, and the site comes back or is removed.
pub(super) fn go_on<C>(simulation: &mut Simulation<C>, fault: &Fault, since: Duration) -> Begun {
    let (plan, site) = (plan(fault), fault.site);
    if simulation.is_on_its_way(site) {
        simulation.see_to(site);
        return Begun::For(site_lifecycle::STEP);
    }
    if !simulation.is_there(site) {
        if since < fault.span && !simulation.faults_ended {
            return Begun::For(LOOK);
        }
        simulation.enter(site);
        return Begun::For(site_lifecycle::STEP);
    }
    if simulation.faults_ended {
        return Begun::Over;
    }
    let look = (since.as_micros() / LOOK.as_micros()) as u64;
    let is_turn = look >= plan.first && (look - plan.first).is_multiple_of(ATTEMPT_LOOKS);
    let mut random = Random::new(fault.draw ^ (look << 20));
    if !is_away(simulation, site) {
        // It answers.
    } else if is_root(simulation, site) {
        for _ in 0..1 + u64::from(plan.twice) {
            if is_turn {
                rebuild(simulation, site, &mut random);
            }
        }
    } else if plan.for_good && is_removable(simulation, site) {
        simulation.leave(site, Duration::ZERO);
    } else if plan.for_good && is_turn && has_gone_on(simulation, site) {
        promote(simulation, site, &mut random);
    }
    let until = if plan.for_good { LENGTH_MAX } else { fault.span };
    // Another fault may have brought one of its nodes back.
    if since < until && is_away(simulation, site) {
        return Begun::For(LOOK);
    }
    match plan.with_power {
        true => {
            let nodes = simulation.sites[site].nodes.clone();
            nodes.into_iter().for_each(|node| simulation.start(node));
        }
        false => simulation.rejoin_site(site),
    }
    Begun::Over
}

/// An operator has some other site look after the order, as that site knows the region.
fn rebuild<C>(simulation: &mut Simulation<C>, site: usize, random: &mut Random) {
    let others = others(simulation, site);
    let Some(leader) = random_leader(simulation, &others, random) else { return };
    let by = simulation.sites[simulation.nodes[leader].site].id;
    let registry = simulation.registry(leader);
    let regions = registry.map(|registry| registry.regions.clone()).unwrap_or_default();
    let of_lost = |region: &Region| Some(region.root) == simulation.sites[site].id;
    let (Some(region), Some(to)) = (regions.into_iter().find(of_lost), by) else { return };
    let change = RegistryChange::Rebuild { region: region.id, epoch: region.epoch, to };
    ask(simulation, leader, Body::Registry { change: Box::new(change), id: None });
}

/// An operator gives the lost site up, whatever its backup has.
fn promote<C>(simulation: &mut Simulation<C>, site: usize, random: &mut Random) {
    let Some(lost) = simulation.sites[site].id else { return };
    let others = others(simulation, site);
    let Some(leader) = random_leader(simulation, &others, random) else { return };
    let accepts = AcceptedLoss::AsFound { id: None };
    ask(simulation, leader, Promotion { accepts, ..Promotion::of(lost) }.into());
}

fn random_leader<C>(
    simulation: &Simulation<C>,
    sites: &[usize],
    random: &mut Random,
) -> Option<crate::simulation::NodeIndex> {
    (!sites.is_empty()).then(|| simulation.leader(*random.pick(sites))).flatten()
}

fn ask<C>(simulation: &mut Simulation<C>, leader: crate::simulation::NodeIndex, body: Body) {
    let deadline_ms = Some(ATTEMPT.as_millis() as u64);
    simulation.ask(leader, Request { deadline_ms, ..Request::new(body) });
}

/// Whether another site orders by now, where there are several regions: one whose sites were all
/// getting their keys anew needs the lost one.
fn has_gone_on<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let Some(lost) = simulation.sites[site].id else { return false };
    let leaders = (0..simulation.sites.len()).filter(|other| *other != site);
    leaders.filter_map(|other| simulation.registry(simulation.leader(other)?)).all(|registry| {
        let is_open = registry.region_of(lost).is_some_and(Region::is_rebuilding);
        !registry.has_regions() || !is_open
    })
}

/// Whether the site is given up, by the registry of any other site.
fn is_removable<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let Some(lost) = simulation.sites[site].id else { return false };
    let leaders = (0..simulation.sites.len()).filter(|other| *other != site);
    leaders
        .filter_map(|other| simulation.registry(simulation.leader(other)?))
        .any(|registry| registry.is_lost(lost))
}
