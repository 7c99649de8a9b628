//! An operator sets where groups of keys may go: the sites that a keyspace is lent to, and pins.

use model::{
    Alteration, Body, Group, KeyspaceSpec, Pin, Placement, Registry, RegistryChange, SiteId,
};

use super::Fault;
use super::apply::Begun;
use super::promote::ask_anywhere;
use crate::random::Random;
use crate::simulation::Simulation;

/// What is asked for.
#[derive(Clone, Copy)]
enum Asked {
    LendToSome,
    LendToAll,
    /// It is adaptive no more, for a while: another one makes it so again.
    Placement,
    Pin,
    Unpin,
}

const ALL: [Asked; 9] = [
    Asked::LendToSome,
    Asked::LendToSome,
    Asked::LendToSome,
    Asked::LendToAll,
    Asked::Placement,
    Asked::Pin,
    Asked::Pin,
    Asked::Pin,
    Asked::Unpin,
];

pub(super) fn begin<C>(
    simulation: &mut Simulation<C>,
    fault: &Fault,
    random: &mut Random,
) -> Begun {
    let leader = simulation.leader(fault.site);
    let known = leader.and_then(|leader| simulation.status(leader)?.deployment);
    let change = known.and_then(|known| drawn(simulation, &known.registry, fault, random));
    let Some(change) = change else { return Begun::Skipped };
    ask_anywhere(simulation, Body::Registry { change: Box::new(change), id: None }, random);
    Begun::Over
}

fn drawn<C>(
    simulation: &Simulation<C>,
    registry: &Registry,
    fault: &Fault,
    random: &mut Random,
) -> Option<RegistryChange> {
    let lends = |one: &&model::Keyspace| KeyspaceSpec::lends(&one.spec);
    let keyspaces: Vec<_> = registry.keyspaces.iter().filter(lends).collect();
    if keyspaces.is_empty() {
        return None;
    }
    let keyspace = *random.pick(&keyspaces);
    let name = keyspace.spec.name.clone();
    let alter = |by| Some(RegistryChange::Alter { name, by });
    let adaptive = Alteration::of_placement(Placement::Adaptive);
    match *random.pick(&ALL) {
        Asked::LendToSome => {
            let sites = registry.sites.iter().map(|site| site.id);
            let some: Vec<SiteId> = sites.filter(|_| random.chance(500)).collect();
            alter(Alteration { lend_to: Some(some), ..adaptive })
        }
        Asked::LendToAll => alter(Alteration { lend_to: Some(Vec::new()), ..adaptive }),
        Asked::Placement => match keyspace.spec.is_adaptive() {
            true => alter(Alteration::of_placement(Placement::Off)),
            false => alter(adaptive),
        },
        Asked::Pin => {
            let groups: Vec<&Group> =
                simulation.groups().filter(|group| group.keyspace == keyspace.id).collect();
            if groups.is_empty() {
                return None;
            }
            let Group { keyspace, tag } = (*random.pick(&groups)).clone();
            let site = simulation.sites[fault.other_site].id?;
            Some(RegistryChange::Pin(Pin { keyspace, tag, site }))
        }
        Asked::Unpin if registry.pins.is_empty() => None,
        Asked::Unpin => {
            let Pin { keyspace, tag, .. } = random.pick(&registry.pins).clone();
            Some(RegistryChange::Unpin { keyspace, tag })
        }
    }
}
