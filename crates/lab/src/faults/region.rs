//! The region of causal keys: operators choose its root and its standby, and its root is lost.

use std::time::Duration;

use model::{Body, RegistryChange, StandbyChoice, StandbyRule};

use super::apply::Begun;
use super::{Fault, promote};
use crate::random::Random;
use crate::simulation::{Down, Simulation};

/// An operator names the site that is to order causal writes, at any site; now and then another
/// operator has just named another one.
pub(super) fn move_root<C>(
    simulation: &mut Simulation<C>,
    fault: &Fault,
    random: &mut Random,
) -> Begun {
    let id = |site: usize| simulation.sites[site].id;
    let Some(site) = id(fault.site) else { return Begun::Skipped };
    let other = id(fault.other_site).filter(|_| random.chance(200));
    for to in other.into_iter().chain([site]) {
        let change = RegistryChange::MoveRoot(to);
        promote::ask_anywhere(
            simulation,
            Body::Registry { change: Box::new(change), id: None },
            random,
        );
    }
    Begun::Over
}

/// An operator chooses the standby of the root: mostly the nearest site, else the named one, or
/// none; one time in five it takes over by an operator's command only.
pub(super) fn set_standby<C>(
    simulation: &mut Simulation<C>,
    fault: &Fault,
    random: &mut Random,
) -> Begun {
    let Some(site) = simulation.sites[fault.site].id else { return Begun::Skipped };
    let (at, nearest) = (StandbyChoice::At(site), StandbyChoice::Nearest);
    let choice = *random.pick(&[nearest, nearest, nearest, at, at, StandbyChoice::Off]);
    let by_hand = random.chance(200);
    let rule = StandbyRule { choice, by_hand };
    let leaders = (0..simulation.sites.len()).filter_map(|site| simulation.leader(site));
    let several =
        leaders.filter_map(|node| simulation.registry(node)).find(|one| one.has_regions());
    let region = several.and_then(|registry| Some(registry.region_of(site)?.id));
    let change = match region {
        Some(region) => RegistryChange::SetStandbyOf { region, rule },
        None => RegistryChange::SetStandby(rule),
    };
    promote::ask_anywhere(
        simulation,
        Body::Registry { change: Box::new(change), id: None },
        random,
    );
    Begun::Over
}

/// Whether a site is the root of its region, as most sites know it.
pub(super) fn is_root<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let leaders = (0..simulation.sites.len()).filter_map(|site| simulation.leader(site));
    let registries = leaders.filter_map(|node| simulation.registry(node));
    let (mut is_root, mut all) = (0, 0);
    for registry in registries.filter(|registry| !registry.regions.is_empty()) {
        let id = simulation.sites[site].id;
        all += 1;
        is_root += usize::from(registry.regions.iter().any(|region| Some(region.root) == id));
    }
    2 * is_root > all
}

/// The site is lost for the span, if it is the root as most sites know it: with power, or from all
/// other sites.
pub(super) fn lose_root<C>(
    simulation: &mut Simulation<C>,
    fault: &Fault,
    random: &mut Random,
) -> Begun {
    if !is_root(simulation, fault.site) || simulation.is_parted(fault.site) {
        return Begun::Skipped;
    }
    if random.chance(500) {
        simulation.part_site(fault.site);
        return Begun::For(fault.span);
    }
    for node in simulation.sites[fault.site].nodes.clone() {
        let down = Down::draw_power_loss(random);
        let rest = fault.span + Duration::from_millis(random.below(200));
        if simulation.nodes[node].up {
            simulation.bounce(node, &down, rest);
        }
    }
    Begun::Over
}
