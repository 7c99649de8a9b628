//! What else is done around the loss of a site that is promoted: the orders that hurt a store which
//! keeps too little, or which drops too soon.
//!
//! Slots are handed to a site that is lost before its backup has them; sites that are cut off
//! together go on among themselves; the lost site's backup is changed, or leaves, before the
//! promotion.

use model::{
    BackupChoice, Body, Command, GlobalCommand, RegistryChange, Request, SlotSet, SourceStep,
};
use protocol::global::backups::backup_of;

use super::Fault;
use super::promote::{Lost, ask_anywhere, is_away};
use crate::clients::OPERATION_MAX;
use crate::random::Random;
use crate::simulation::Simulation;
use crate::simulation::orders::Wanted;
use crate::simulation::site_lifecycle::SiteLifecycle;

/// Most slots that hold something and are handed over at once.
const SLOTS_MAX: usize = 16;
/// Of a thousand sites that are back, by way of so many slots are moved at once.
const ORDERS_PERMILLE: u64 = 400;
/// Slots of each site that such an order names.
const SLOTS_OF_EACH: usize = 2;

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Besides {
    /// Nothing.
    Nothing,
    /// The site that is about to be lost does not reach its backup any more, and is given slots.
    TakesSlots,
    /// The sites that are about to be lost reach each other only, and hand slots to each other.
    Island,
    /// Another site is to be the lost one's backup, before it is promoted.
    BackupChanges,
    /// The lost site's backup is ordered to leave, before the promotion.
    BackupLeaves,
}

impl Besides {
    pub(super) fn draw(random: &mut Random) -> Besides {
        match random.below(10) {
            0..3 => Besides::Nothing,
            3..5 => Besides::TakesSlots,
            5..7 => Besides::Island,
            7..9 => Besides::BackupChanges,
            _ => Besides::BackupLeaves,
        }
    }
}

/// The site, of those that are there, that is the backup of another one by that one's registry, or
/// by that of a site that is not cut off.
fn backup<C>(simulation: &Simulation<C>, site: usize) -> Option<usize> {
    let id = simulation.sites[site].id?;
    let others = (0..simulation.sites.len()).filter(|other| !is_away(simulation, *other));
    let mut sites = std::iter::once(site).chain(others);
    let registry = sites.find_map(|one| simulation.registry(simulation.leader(one)?))?;
    let backup = backup_of(&registry, id)?;
    (0..simulation.sites.len()).find(|one| simulation.sites[*one].id == Some(backup))
}

/// Begins what comes before the loss.
pub(super) fn begin<C>(
    simulation: &mut Simulation<C>,
    besides: Besides,
    fault: &Fault,
    lost: &[Lost],
) {
    let mut random = Random::new(fault.draw ^ 3);
    match besides {
        Besides::TakesSlots => {
            if let Some(backup) = backup(simulation, fault.site) {
                simulation.part_sites(fault.site, backup);
            }
            hand_over(simulation, fault.other_site, fault.site, &mut random);
        }
        Besides::Island => {
            for (a, b) in shores(simulation, lost) {
                simulation.part_sites(a, b);
            }
            let other = lost.iter().map(|one| one.site).find(|site| *site != fault.site);
            let Some(other) = other else { return };
            match random.below(3) {
                0 => hand_over(simulation, other, fault.site, &mut random),
                _ => hand_over(simulation, fault.site, other, &mut random),
            }
        }
        _ => {}
    }
}

/// The pairs of sites of which one is lost and the other is not.
fn shores<C>(simulation: &Simulation<C>, lost: &[Lost]) -> Vec<(usize, usize)> {
    let is_lost = |site: usize| lost.iter().any(|one| one.site == site);
    let others: Vec<usize> = (0..simulation.sites.len()).filter(|site| !is_lost(*site)).collect();
    let of = |one: &Lost| others.iter().map(|other| (one.site, *other)).collect::<Vec<_>>();
    lost.iter().flat_map(of).collect()
}

/// The sites are lost now: their links are as any lost site's.
pub(super) fn end<C>(
    simulation: &mut Simulation<C>,
    besides: Besides,
    fault: &Fault,
    lost: &[Lost],
) {
    match besides {
        Besides::TakesSlots => {
            for other in 0..simulation.sites.len() {
                if other != fault.site {
                    simulation.mend_sites(fault.site, other);
                }
            }
        }
        Besides::Island => {
            for (a, b) in shores(simulation, lost) {
                simulation.mend_sites(a, b);
            }
        }
        _ => {}
    }
}

/// A site hands slots that hold something to another one.
fn hand_over<C>(simulation: &mut Simulation<C>, from: usize, to: usize, random: &mut Random) {
    let to = simulation.sites[to].id;
    let (Some(leader), Some(to)) = (simulation.leader(from), to) else { return };
    let (_, used) = simulation.held_slots(leader);
    if used.is_empty() {
        return;
    }
    let count = 1 + random.below(SLOTS_MAX as u64);
    let slots: SlotSet = (0..count).map(|_| *random.pick(&used)).collect();
    let step = SourceStep::Begin { slots, to, pinned: true };
    let body = Body::Write(Command::Global(GlobalCommand::Source { number: 0, step }));
    simulation.ask(leader, Request { deadline_ms: Some(5_000), ..Request::new(body) });
}

/// Does what comes after the loss.
pub(super) fn follow<C>(
    simulation: &mut Simulation<C>,
    besides: Besides,
    fault: &Fault,
    random: &mut Random,
) {
    let Some(site) = simulation.sites[fault.site].id else { return };
    match besides {
        Besides::BackupChanges => {
            let is_other = |one: &usize| *one != fault.site && !is_away(simulation, *one);
            let ids = (0..simulation.sites.len()).filter(is_other);
            let ids: Vec<_> = ids.filter_map(|one| simulation.sites[one].id).collect();
            if ids.is_empty() {
                return;
            }
            let change = RegistryChange::Backup(site, BackupChoice::At(*random.pick(&ids)));
            ask_anywhere(simulation, Body::Registry { change: Box::new(change), id: None }, random);
        }
        Besides::BackupLeaves => {
            if let Some(backup) = backup(simulation, fault.site) {
                // What clients wait for is answered before its nodes are stopped.
                simulation.leave(backup, OPERATION_MAX);
            }
        }
        _ => {}
    }
}

/// Now and then an operator asks a site that is just back, and has only an old registry, to have
/// slots of all sites moved.
pub(super) fn order<C>(simulation: &mut Simulation<C>, fault: &Fault, asked: usize) {
    let mut random = Random::stream(fault.draw, "orders", asked as u64);
    let Some(leader) = simulation.leader(asked).filter(|_| random.chance(ORDERS_PERMILLE)) else {
        return;
    };
    let mut slots = SlotSet::default();
    for site in 0..simulation.sites.len() {
        let used = simulation.leader(site).map(|leader| simulation.held_slots(leader).1);
        for _ in 0..SLOTS_OF_EACH {
            let used = used.as_ref().filter(|used| !used.is_empty());
            used.into_iter().for_each(|used| slots.insert(*random.pick(used)));
        }
    }
    let to = random.below(simulation.sites.len() as u64) as usize;
    let Some(to) = simulation.sites[to].id.filter(|_| simulation.is_open(to)) else { return };
    let wanted = Wanted { operator: fault.draw ^ asked as u64, slots, to };
    for site in 0..simulation.sites.len() {
        simulation.ask_order(leader, site, &wanted);
    }
}

/// Goes on with sites that leave; whether any is on its way.
pub(super) fn see_to<C>(simulation: &mut Simulation<C>, besides: Besides) -> bool {
    if besides != Besides::BackupLeaves {
        return false;
    }
    let leaving = |lifecycle| matches!(lifecycle, SiteLifecycle::Leaving | SiteLifecycle::Left);
    let sites = 0..simulation.sites.len();
    let sites: Vec<usize> =
        sites.filter(|site| leaving(simulation.sites[*site].lifecycle)).collect();
    // Each of them, whatever the others are at.
    let on_the_way = sites.into_iter().map(|site| simulation.see_to(site));
    on_the_way.filter(|is_on_the_way| *is_on_the_way).count() > 0
}
