//! Groups of a site's slots are lent to another site, and after a while given back or lent on, as
//! the decisions of a placement would have it, but drawn.
//!
//! Which groups is decided by their names and the fault, of those that clients have asked for: so
//! nothing is kept between its steps, and a group that has changed hands meanwhile is asked for
//! where it is.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Body, Command, GlobalCommand, Group, Lending, LoanPart, Request, SiteId};

use super::Fault;
use super::apply::Begun;
use crate::random::Random;
use crate::simulation::{NodeIndex, Simulation};

/// How often groups that are to be lent on are looked for at home.
const LOOK: Duration = Duration::from_millis(100);
/// For how long.
const TIMEOUT: Duration = Duration::from_secs(3);
const DEADLINE_MS: u64 = 5_000;

/// What comes after the span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Stays,
    GivenBack,
    LentOn,
}

fn then(fault: &Fault) -> Then {
    *Random::new(fault.draw ^ 1).pick(&[Then::Stays, Then::GivenBack, Then::LentOn])
}

/// The groups that a fault is about.
fn chosen<C>(simulation: &Simulation<C>, fault: &Fault) -> Vec<Group> {
    let permille = *Random::new(fault.draw).pick(&[50, 200, 700]);
    let is_chosen = |group: &&Group| {
        let name = String::from_utf8_lossy(&group.tag);
        Random::stream(fault.draw, &name, 0).chance(permille)
    };
    simulation.groups().filter(is_chosen).cloned().collect()
}

/// Lends those of the groups that are home at a site.
fn lend<C>(simulation: &mut Simulation<C>, node: NodeIndex, to: SiteId, groups: &[Group]) -> bool {
    let is_home = |group: &&Group| {
        simulation.serves(node, group.slot()).is_some()
            && simulation.lent(node).all(|(lent, _)| lent != *group)
    };
    let groups: Vec<Group> = groups.iter().filter(is_home).cloned().collect();
    if groups.is_empty() || simulation.sites[simulation.nodes[node].site].id == Some(to) {
        return false;
    }
    let step = Lending::Lend { to, groups };
    ask(simulation, node, Body::Write(Command::Global(GlobalCommand::Lending(step))));
    true
}

fn ask<C>(simulation: &mut Simulation<C>, node: NodeIndex, body: Body) {
    simulation.ask(node, Request { deadline_ms: Some(DEADLINE_MS), ..Request::new(body) });
}

pub(super) fn begin<C>(simulation: &mut Simulation<C>, fault: &Fault) -> Begun {
    let to = simulation.sites[fault.other_site].id;
    let to = to.filter(|_| simulation.is_open(fault.other_site));
    let (Some(leader), Some(to)) = (simulation.leader(fault.site), to) else {
        return Begun::Skipped;
    };
    let groups = chosen(simulation, fault);
    match (lend(simulation, leader, to, &groups), then(fault)) {
        (false, _) => Begun::Skipped,
        (true, Then::Stays) => Begun::Over,
        (true, _) => Begun::For(fault.span.max(LOOK)),
    }
}

pub(super) fn go_on<C>(simulation: &mut Simulation<C>, fault: &Fault, since: Duration) -> Begun {
    let groups = chosen(simulation, fault);
    if since <= fault.span.max(LOOK) {
        give_back(simulation, fault, &groups);
    }
    let until = fault.span + TIMEOUT;
    if then(fault) != Then::LentOn || since >= until || simulation.faults_ended {
        return Begun::Over;
    }
    let mut random = Random::new(fault.draw ^ 2);
    let to = random.below(simulation.sites.len() as u64) as usize;
    let Some(to) = simulation.sites[to].id.filter(|_| simulation.is_open(to)) else {
        return Begun::Over;
    };
    for site in 0..simulation.sites.len() {
        if let Some(leader) = simulation.leader(site) {
            lend(simulation, leader, to, &groups);
        }
    }
    Begun::For(LOOK)
}

/// Has the borrowers asked to give groups back, by way of the site that lent them.
fn give_back<C>(simulation: &mut Simulation<C>, fault: &Fault, groups: &[Group]) {
    let Some(asked) = simulation.leader(fault.site) else { return };
    let mut by_site: BTreeMap<SiteId, Vec<_>> = BTreeMap::new();
    for site in 0..simulation.sites.len() {
        let (Some(id), Some(leader)) = (simulation.sites[site].id, simulation.leader(site)) else {
            continue;
        };
        for group in groups {
            let part = simulation.part(leader, group).map(|part| part.borrowed);
            if let Some(borrowed) = part.filter(|one| one.part == LoanPart::Held) {
                by_site.entry(id).or_default().push((group.clone(), borrowed.loan));
            }
        }
    }
    for (site, loans) in by_site {
        let command = Command::Global(GlobalCommand::Lending(Lending::GiveBack { loans }));
        ask(simulation, asked, Body::AtSite { site, command: Box::new(command) });
    }
}
