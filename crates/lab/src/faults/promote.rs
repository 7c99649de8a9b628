//! Sites are lost, alone or together, and operators do what is possible: they promote one, with and
//! without naming the others, at any site; they only look; they ask twice, and call it off. Lost
//! sites come back in any order, or not before the end.
//!
//! Nothing is waited for: mirrors lag, slots are on their way, another failover is open. And
//! operators do other things around a loss: [`super::besides`]. What a promotion loses is what its
//! decision gives up, which the run declares ([`crate::run`]).

use std::time::Duration;

use model::{AcceptedLoss, Body, Promotion, RegistryChange, Request, SiteId};

use super::Fault;
use super::apply::Begun;
use super::besides::{self, Besides};
use crate::random::Random;
use crate::simulation::site_lifecycle::SiteLifecycle;
use crate::simulation::{Down, Simulation};

/// How often operators look.
const LOOK: Duration = Duration::from_millis(250);
/// How many looks lie between two of their attempts, about.
const ATTEMPT_LOOKS: u64 = 14;
/// How long one of them may take.
const ATTEMPT: Duration = Duration::from_secs(4);
/// They do not go on for longer.
const LENGTH_MAX: Duration = Duration::from_secs(40);
/// Most sites that are lost at one time.
const LOST_MAX: usize = 3;

/// A site that is lost with the fault.
pub(super) struct Lost {
    pub(super) site: usize,
    /// With its power, or only from all other sites.
    with_power: bool,
    /// How long it is lost; `None`: until the end.
    back: Option<Duration>,
}

/// When what is done about a loss.
struct FailoverPlan {
    besides: Besides,
    /// How many looks after the beginning sites are lost.
    lost_at: u64,
    /// How many looks after that operators ask first, and how many after each time they call it
    /// off.
    first: u64,
    calls_off: Option<u64>,
    /// How many looks after the loss they do what else they do.
    besides_at: u64,
}

fn plan(fault: &Fault) -> FailoverPlan {
    let mut random = Random::new(fault.draw ^ 2);
    let (first, calls_off, after) = (4 + random.below(8), random.chance(300), 1 + random.below(8));
    let besides = Besides::draw(&mut random);
    FailoverPlan {
        besides,
        lost_at: match besides {
            // They have time to hand over and to serve what they were given.
            Besides::Island => 3 + random.below(4),
            Besides::TakesSlots => 1 + random.below(5),
            _ => 0,
        },
        first,
        calls_off: calls_off.then_some(after),
        besides_at: random.below(first),
    }
}

/// Which sites a fault loses.
fn lost<C>(simulation: &Simulation<C>, fault: &Fault) -> Vec<Lost> {
    let mut random = Random::new(fault.draw);
    let count = [1, 1, 1, 1, 2, 2, 2, 3][random.below(8) as usize];
    let is_island = plan(fault).besides == Besides::Island;
    let count = if is_island { count.max(2) } else { count };
    let mut sites = vec![fault.site];
    for _ in 1..count.min(simulation.sites.len().saturating_sub(2)) {
        let other = random.below(simulation.sites.len() as u64) as usize;
        if !sites.contains(&other) {
            sites.push(other);
        }
    }
    let mut lost = Vec::new();
    for site in sites {
        let with_power = random.chance(500);
        let mut fraction = random.fraction();
        // Mostly the others receive these sites' decisions long after the failover.
        if is_island && random.chance(700) {
            fraction = if site == fault.site { fraction / 2.0 } else { 0.6 + fraction };
        }
        let back = LOOK + fault.span.mul_f64(fraction);
        let back = (!random.chance(150)).then_some(back);
        lost.push(Lost { site, with_power, back });
    }
    lost
}

/// Whether a site's messages reach no other site now.
pub(super) fn is_away<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let nodes = &simulation.sites[site].nodes;
    simulation.is_parted(site) || nodes.iter().all(|node| !simulation.nodes[*node].up)
}

/// Loses the site, and others with it, unless too many are lost already.
pub(super) fn begin<C>(simulation: &mut Simulation<C>, fault: &Fault) -> Begun {
    let away = (0..simulation.sites.len())
        .filter(|site| simulation.is_there(*site) && is_away(simulation, *site));
    if simulation.sites[fault.site].id.is_none() || away.count() >= LOST_MAX {
        return Begun::Skipped;
    }
    let plan = plan(fault);
    match plan.lost_at {
        0 => lose(simulation, fault),
        _ => besides::begin(simulation, plan.besides, fault, &lost(simulation, fault)),
    }
    Begun::For(LOOK)
}

fn lose<C>(simulation: &mut Simulation<C>, fault: &Fault) {
    let mut random = Random::new(fault.draw ^ 1);
    for one in lost(simulation, fault) {
        if !simulation.is_there(one.site) {
            continue;
        }
        if one.with_power {
            for node in simulation.sites[one.site].nodes.clone() {
                simulation.crash(node, &Down::draw_power_loss(&mut random));
            }
        } else {
            simulation.part_site(one.site);
        }
    }
}

/// Goes on: sites come back when it is time, and operators ask.
pub(super) fn go_on<C>(simulation: &mut Simulation<C>, fault: &Fault, since: Duration) -> Begun {
    let (plan, lost) = (plan(fault), lost(simulation, fault));
    let lost_after = LOOK * plan.lost_at as u32;
    // What was to come has not come when all faults end.
    let has_ended = simulation.faults_ended;
    if since <= lost_after && has_ended {
        return Begun::Over;
    }
    if since <= lost_after && plan.lost_at > 0 {
        if since == lost_after {
            lose(simulation, fault);
            besides::end(simulation, plan.besides, fault, &lost);
        }
        return Begun::For(LOOK);
    }
    let since = since - lost_after;
    let before = since.saturating_sub(LOOK);
    for one in &lost {
        let is_due = one.back.is_some_and(|back| (before..since).contains(&back));
        if is_due && simulation.is_there(one.site) {
            bring_back(simulation, one);
        }
        let was_due = one.back.map(|back| back + LOOK);
        if was_due.is_some_and(|back| (before..since).contains(&back)) && !has_ended {
            besides::order(simulation, fault, one.site);
        }
    }
    let look = (since.as_micros() / LOOK.as_micros()) as u64;
    let mut random = Random::new(fault.draw ^ (look << 20));
    if look == plan.besides_at && !has_ended {
        besides::follow(simulation, plan.besides, fault, &mut random);
    }
    if look >= plan.first {
        let turn = (look - plan.first) % ATTEMPT_LOOKS;
        if turn == 0 {
            ask(simulation, fault, &lost, &mut random);
        } else if plan.calls_off == Some(turn) {
            call_off(simulation, &mut random);
        }
    }
    let is_busy = besides::see_to(simulation, plan.besides);
    let all_back = lost.iter().all(|one| one.back.is_none_or(|back| back < since));
    let is_over = since >= LENGTH_MAX || (all_back && since >= fault.span + 2 * ATTEMPT);
    if is_over && !is_busy { Begun::Over } else { Begun::For(LOOK) }
}

fn bring_back<C>(simulation: &mut Simulation<C>, one: &Lost) {
    if one.with_power {
        for node in simulation.sites[one.site].nodes.clone() {
            simulation.start(node);
        }
    } else {
        simulation.rejoin_site(one.site);
    }
}

/// An operator asks some site to promote the lost one, or what that would cost.
fn ask<C>(simulation: &mut Simulation<C>, fault: &Fault, lost: &[Lost], random: &mut Random) {
    let id = |site: usize| simulation.sites[site].id;
    let Some(of) = id(fault.site) else { return };
    // Mostly the others that are lost; also none, and now and then a site that is well.
    let named = |one: &&Lost| one.site != fault.site;
    let mut without: Vec<SiteId> = match random.below(4) {
        0 => Vec::new(),
        _ => lost.iter().filter(named).filter_map(|one| id(one.site)).collect(),
    };
    if random.chance(100) {
        let other = id(random.below(simulation.sites.len() as u64) as usize);
        without.extend(other.filter(|other| *other != of && !without.contains(other)));
    }
    without.sort();
    let accepts = match random.chance(850) {
        true => AcceptedLoss::AsFound { id: None },
        false => AcceptedLoss::Nothing,
    };
    let promotion = Promotion { without, accepts, ..Promotion::of(of) };
    ask_anywhere(simulation, promotion.into(), random);
}

/// An operator calls off any failover that is open, by the registry of some site.
fn call_off<C>(simulation: &mut Simulation<C>, random: &mut Random) {
    let leaders = (0..simulation.sites.len()).filter_map(|site| simulation.leader(site));
    let mut registries = leaders.filter_map(|leader| simulation.registry(leader));
    let open = registries.find_map(|registry| registry.failovers.open.as_ref().map(|f| f.opened));
    if let Some(opened) = open {
        let change = RegistryChange::CloseFailover(opened);
        ask_anywhere(simulation, Body::Registry { change: Box::new(change), id: None }, random);
    }
}

/// Asks the leader of some site that is up, whether or not its messages reach others.
pub(super) fn ask_anywhere<C>(simulation: &mut Simulation<C>, body: Body, random: &mut Random) {
    let is_in = |site: &usize| simulation.sites[*site].lifecycle == SiteLifecycle::Inside;
    let sites = (0..simulation.sites.len()).filter(is_in);
    let leaders: Vec<_> = sites.filter_map(|site| simulation.leader(site)).collect();
    if !leaders.is_empty() {
        let leader = *random.pick(&leaders);
        let deadline_ms = Some(ATTEMPT.as_millis() as u64);
        simulation.ask(leader, Request { deadline_ms, ..Request::new(body) });
    }
}
