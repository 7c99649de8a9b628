//! What a fault does to a simulation, and how it ends.

use std::path::Path;
use std::time::Duration;

use model::{
    BackupChoice, Body, Command, GlobalCommand, NodeId, OperatorCommand, RegistryChange, Request,
    SiteId, SlotSet, SourceStep, limits,
};
use storage::disk::Disk;
use storage::disk::memory::Survival;

use super::{Fault, Kind, lend, lifecycle, lose, promote, rebuild, region, rules};
use crate::random::Random;
use crate::simulation::orders::Wanted;
use crate::simulation::site_lifecycle::{self, SiteLifecycle};
use crate::simulation::{Belongs, Down, NodeIndex, Simulation};

/// How long a removed node is given to be gone from its site before its disk is exchanged.
const REMOVAL: Duration = Duration::from_millis(300);
/// A link that flaps changes this often.
const FLAP: Duration = Duration::from_millis(120);
/// How long the nodes of a site that has left run on, if they are not stopped at once: what clients
/// were waiting for is answered by then.
const RUNS_ON: Duration = crate::clients::OPERATION_MAX;

/// What comes of a fault that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// [`go_on`] is to be called after this.
    For(Duration),
    /// It is over.
    Over,
    /// It was not done: the site was not well enough to survive it, or the node is down already.
    Skipped,
}

fn index<C>(simulation: &Simulation<C>, fault: &Fault, place: usize) -> NodeIndex {
    simulation.sites[fault.site].nodes[place]
}

/// Whether a site can spare a node's disk: by a leader's view, all others are voters and have on
/// disk whatever is committed, and whatever that node alone may have helped to commit.
pub(super) fn can_spare<C>(simulation: &Simulation<C>, site: usize, node: NodeIndex) -> bool {
    let group = &simulation.sites[site];
    let Some(leader) = simulation.leader(site) else { return false };
    let Some(status) = simulation.status(leader) else { return false };
    let id = simulation.nodes[node].id;
    let matched = |id: u64| {
        let found = status.progress.iter().find(|(node, ..)| node.0 == id);
        found.map_or(0, |(_, matched, _)| *matched)
    };
    let needed = status.committed_index.max(matched(id));
    let others = group.nodes.iter().filter(|one| **one != node && **one != leader);
    let all_vote = |node: &NodeIndex| status.members.voters.contains(&simulation.nodes[*node].id);
    status.members.voters_outgoing.is_empty()
        && group.nodes.iter().filter(|one| **one != node).all(all_vote)
        && others.into_iter().all(|one| {
            let node = &simulation.nodes[*one];
            matched(node.id) >= needed && node.up && !node.is_on_old_disk()
        })
}

/// Whether all nodes of a site are up and vote, and none is about to lose its disk.
pub(super) fn all_vote<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let Some(leader) = simulation.leader(site) else { return false };
    let Some(status) = simulation.status(leader) else { return false };
    let nodes = &simulation.sites[site].nodes;
    status.members.voters.len() == nodes.len()
        && nodes.iter().all(|node| {
            let node = &simulation.nodes[*node];
            node.up && !node.doomed && !node.is_on_old_disk() && node.belongs == Belongs::Member
        })
}

/// Resolves the node of a fault that is aimed at whichever node leads. Most of what can go wrong
/// goes wrong at the leader.
pub fn aim<C>(simulation: &Simulation<C>, fault: &mut Fault) {
    let nodes = &simulation.sites[fault.site].nodes;
    let leader = simulation.leader(fault.site).filter(|_| fault.at_leader);
    let place = leader.and_then(|leader| nodes.iter().position(|node| *node == leader));
    if let Some(place) = place.filter(|place| *place != fault.node) {
        if fault.other == place {
            fault.other = fault.node;
        }
        fault.node = place;
    }
}

/// Begins a fault.
pub fn begin<C>(simulation: &mut Simulation<C>, fault: &Fault) -> Begun {
    let node = index(simulation, fault, fault.node);
    let (id, other) = (fault.node as u64 + 1, fault.other as u64 + 1);
    let mut random = Random::new(fault.draw);
    if !simulation.is_there(fault.site) && fault.kind != Kind::JoinSite {
        return Begun::Skipped;
    }
    let destroys = matches!(
        fault.kind,
        Kind::FlippedBit | Kind::LostSync | Kind::Replace | Kind::Remove | Kind::OldDisk
    );
    if destroys && !(all_vote(simulation, fault.site) && can_spare(simulation, fault.site, node)) {
        return Begun::Skipped;
    }
    let sites_nodes = simulation.sites[fault.site].nodes.clone();
    match fault.kind {
        Kind::Crash => {
            let down = Down::draw(&mut random);
            return crash(simulation, node, &down, fault);
        }
        Kind::SiteLoss => {
            let mut any = false;
            for one in sites_nodes {
                // Each machine keeps what its own disk kept.
                let down = Down::draw_power_loss(&mut random);
                any |= crash(simulation, one, &down, fault) != Begun::Skipped;
            }
            return if any { Begun::Over } else { Begun::Skipped };
        }
        Kind::DamagedState => {
            simulation.nodes[node].state.damage("its files were damaged");
            return crash(simulation, node, &Down::Killed, fault);
        }
        Kind::FlippedBit => {
            if !simulation.nodes[node].up {
                return Begun::Skipped;
            }
            simulation.crash(node, &Down::Killed);
            flip(simulation, node, &mut random);
        }
        Kind::LostSync => {
            if !simulation.nodes[node].up {
                return Begun::Skipped;
            }
            simulation.nodes[node].lies = true;
            simulation.nodes[node].doomed = true;
        }
        Kind::Pause => simulation.pause(node, fault.span),
        Kind::ClockRate => {
            // The extremes more often than what lies between.
            let rate = *random.pick(&[0.91, 1.09, 0.91 + 0.18 * random.clone().fraction()]);
            simulation.set_clock_rate(node, rate);
        }
        Kind::ClockJump => {
            // By a minute at most, or by hours.
            let most_ms = *random.pick(&[60_000, 12 * 3_600_000]);
            simulation.jump_clock(node, random.below(2 * most_ms) as i64 - most_ms as i64);
            return Begun::Over;
        }
        Kind::Isolate => simulation.isolate(fault.site, id),
        Kind::Halves => {
            each_pair(fault, &sites_nodes, |a, b| simulation.cut(fault.site, a, b));
        }
        Kind::Bridge => {
            // The bridge is `other`: it reaches both sides.
            each_pair(fault, &sites_nodes, |a, b| {
                if a != other && b != other {
                    simulation.cut(fault.site, a, b);
                }
            });
        }
        Kind::OneWay => simulation.cut_one_way(fault.site, id, other),
        Kind::Deaf | Kind::Mute => {
            for one in (1..=sites_nodes.len() as u64).filter(|one| *one != id) {
                match fault.kind {
                    Kind::Deaf => simulation.cut_one_way(fault.site, one, id),
                    _ => simulation.cut_one_way(fault.site, id, one),
                }
            }
        }
        Kind::Flapping => {
            simulation.cut(fault.site, id, other);
            return Begun::For(FLAP.min(fault.span));
        }
        Kind::Reset => {
            simulation.break_link(fault.site, id, other);
            return Begun::Over;
        }
        Kind::Drop => {
            simulation.sites[fault.site].network.drop_permille = *random.pick(&[20, 100, 300]);
        }
        Kind::SlowLink => {
            let extra = Duration::from_millis(10 + random.below(140));
            simulation.sites[fault.site].network.extra = extra;
        }
        Kind::SlowDisk => {
            simulation.nodes[node].slow = Duration::from_millis(20 + random.below(480));
        }
        Kind::FullDisk => simulation.nodes[node].disk.set_capacity(Some(0)),
        Kind::Replace => {
            simulation.crash(node, &Down::draw(&mut random));
            simulation.replace_disk(node);
            return Begun::Over;
        }
        Kind::Remove => {
            let Some(leader) = simulation.leader(fault.site) else { return Begun::Skipped };
            let removed = NodeId(id);
            let command = OperatorCommand::RemoveNode { node: removed, force: false, id: None };
            let body = Body::Operator(command);
            let deadline_ms = Some(REMOVAL.as_millis() as u64);
            simulation.ask(leader, Request { deadline_ms, ..Request::new(body) });
            simulation.nodes[node].doomed = true;
            return Begun::For(REMOVAL);
        }
        Kind::Transfer => {
            let body = Body::TransferLeader { node: NodeId(other) };
            let asked =
                simulation.ask(node, Request { deadline_ms: Some(5_000), ..Request::new(body) });
            return if asked.is_some() { Begun::Over } else { Begun::Skipped };
        }
        Kind::PartSite => simulation.part_site(fault.site),
        Kind::PartSites => simulation.part_sites(fault.site, fault.other_site),
        Kind::HalfPartSites => simulation.part_sites_one_way(fault.site, fault.other_site),
        Kind::FlappingSites => {
            simulation.part_sites(fault.site, fault.other_site);
            return Begun::For(FLAP.min(fault.span));
        }
        Kind::SlowSites => {
            let extra = Duration::from_millis(10 + random.below(191));
            simulation.slow_site(fault.site, extra);
        }
        Kind::BreakSites => {
            simulation.break_site(fault.site);
            return Begun::Over;
        }
        Kind::MoveSlots => return move_slots(simulation, fault, &mut random),
        Kind::SitesLoss => return lose_sites(simulation, fault, &mut random),
        Kind::LeaveSite => {
            // Some operators wait until no client uses a site any more, and some do not.
            let runs_on = if random.chance(500) { RUNS_ON } else { Duration::ZERO };
            return match simulation.leave(fault.site, runs_on) {
                true => Begun::For(site_lifecycle::STEP),
                false => Begun::Skipped,
            };
        }
        Kind::JoinSite => {
            return match simulation.enter(fault.site) {
                true => Begun::For(site_lifecycle::STEP),
                false => Begun::Skipped,
            };
        }
        Kind::LoseSite => return lose::begin(simulation, fault),
        Kind::PromoteSite => return promote::begin(simulation, fault),
        Kind::SetBackup => return set_backup(simulation, fault, &mut random),
        Kind::MoveRoot => return region::move_root(simulation, fault, &mut random),
        Kind::SetStandby => return region::set_standby(simulation, fault, &mut random),
        Kind::LoseRoot => return region::lose_root(simulation, fault, &mut random),
        Kind::RebuildRoot => return rebuild::begin(simulation, fault),
        Kind::LendGroups => return lend::begin(simulation, fault),
        Kind::AlterRules => return rules::begin(simulation, fault, &mut random),
        Kind::CutClients => simulation.sites[fault.site].clients_cut = true,
        Kind::OneDown => {
            if waits_for_disk(simulation, fault.site) {
                return Begun::Skipped;
            }
            bring_back(simulation, &sites_nodes);
        }
        Kind::OldDisk => return lifecycle::put_disk_aside(simulation, node, &mut random),
        Kind::SameId => return lifecycle::wait_to_ask(simulation, fault),
    }
    Begun::For(fault.span)
}

/// Several sites lose power at once, whatever they are about to do.
fn lose_sites<C>(simulation: &mut Simulation<C>, fault: &Fault, random: &mut Random) -> Begun {
    let there = (0..simulation.sites.len()).filter(|site| simulation.is_there(*site));
    let mut others: Vec<usize> = there.filter(|site| *site != fault.site).collect();
    let most = others.len().min(limits::RING_SUCCESSORS - 1);
    if most == 0 {
        return Begun::Skipped;
    }
    let mut sites = vec![fault.site];
    for _ in 0..=random.below(most as u64) {
        let place = random.below(others.len() as u64) as usize;
        sites.push(others.swap_remove(place));
    }
    let mut any = false;
    for site in sites {
        for node in simulation.sites[site].nodes.clone() {
            let down = Down::draw_power_loss(random);
            // They do not all come back at once.
            let rest = fault.span + Duration::from_millis(random.below(200));
            if simulation.nodes[node].up {
                any = true;
                simulation.bounce(node, &down, rest);
            }
        }
    }
    if any { Begun::Over } else { Begun::Skipped }
}

/// A site is on its way out or in; one that has left comes back after the span.
fn come_or_go<C>(simulation: &mut Simulation<C>, fault: &Fault) -> Begun {
    let was_there = simulation.is_there(fault.site);
    if simulation.see_to(fault.site) {
        return Begun::For(site_lifecycle::STEP);
    }
    match simulation.sites[fault.site].lifecycle {
        SiteLifecycle::Outside if was_there => Begun::For(fault.span.max(site_lifecycle::STEP)),
        SiteLifecycle::Outside => {
            simulation.enter(fault.site);
            Begun::For(site_lifecycle::STEP)
        }
        _ => Begun::Over,
    }
}

/// An operator hands slots over: some that hold something, and some of the rest.
fn move_slots<C>(simulation: &mut Simulation<C>, fault: &Fault, random: &mut Random) -> Begun {
    let to = simulation.sites[fault.other_site].id;
    let to = to.filter(|_| simulation.is_open(fault.other_site));
    let (Some(leader), Some(to)) = (simulation.leader(fault.site), to) else {
        return Begun::Skipped;
    };
    let (held, used) = simulation.held_slots(leader);
    let mut slots = SlotSet::default();
    for (from, max) in [(used, 12), (held, 60)] {
        for _ in 0..random.below(max) {
            if !from.is_empty() {
                slots.insert(*random.pick(&from));
            }
        }
    }
    if slots.is_empty() {
        return Begun::Skipped;
    }
    if random.chance(500) {
        order_slots(simulation, fault, &slots, to);
        return Begun::Over;
    }
    // As the ring does it.
    let step = SourceStep::Begin { slots, to, pinned: false };
    let body = Body::Write(Command::Global(GlobalCommand::Source { number: 0, step }));
    simulation.ask(leader, Request { deadline_ms: Some(5_000), ..Request::new(body) });
    Begun::Over
}

/// An operator sets the backup of a site.
fn set_backup<C>(simulation: &mut Simulation<C>, fault: &Fault, random: &mut Random) -> Begun {
    let id = |site: usize| simulation.sites[site].id;
    let Some(site) = id(fault.site) else { return Begun::Skipped };
    let other = id(fault.other_site).map_or(BackupChoice::Next, BackupChoice::At);
    let choice = *random.pick(&[other, other, other, BackupChoice::Next, BackupChoice::Off]);
    let change = RegistryChange::Backup(site, choice);
    promote::ask_anywhere(
        simulation,
        Body::Registry { change: Box::new(change), id: None },
        random,
    );
    Begun::Over
}

/// An operator has every site asked for the slots, as only a slot's owner is certain to have it;
/// and once more by way of another site, under the same number, as if the first one had not
/// answered.
fn order_slots<C>(simulation: &mut Simulation<C>, fault: &Fault, slots: &SlotSet, to: SiteId) {
    let wanted = Wanted { operator: fault.draw, slots: slots.clone(), to };
    for asked in [fault.site, fault.other_site] {
        let Some(asked) = simulation.leader(asked) else { continue };
        for site in 0..simulation.sites.len() {
            simulation.ask_order(asked, site, &wanted);
        }
    }
}

/// Goes on with a fault that lasts: ends it, or returns when to continue. `since`: how long ago it
/// began.
pub fn go_on<C>(simulation: &mut Simulation<C>, fault: &Fault, since: Duration) -> Begun {
    let node = index(simulation, fault, fault.node);
    let (id, other) = (fault.node as u64 + 1, fault.other as u64 + 1);
    let sites_nodes = simulation.sites[fault.site].nodes.clone();
    match fault.kind {
        Kind::FlippedBit => {
            simulation.start(node);
            // If it starts, the bit lay where nothing is: in the room that a segment has to grow,
            // or in what a snapshot covers. If not, it waits for another disk.
        }
        Kind::LostSync => {
            if std::mem::take(&mut simulation.nodes[node].lies) {
                // Nothing was synced in all that time.
                simulation.nodes[node].doomed = false;
                simulation.start(node);
                return Begun::Over;
            }
            doom(simulation, node, "its disk lost an fsync; it waits for another disk");
        }
        Kind::ClockRate => simulation.set_clock_rate(node, 1.0),
        Kind::Isolate | Kind::Deaf | Kind::Mute => {
            for one in (1..=sites_nodes.len() as u64).filter(|one| *one != id) {
                simulation.mend(fault.site, id, one);
            }
        }
        Kind::Halves | Kind::Bridge => {
            each_pair(fault, &sites_nodes, |a, b| simulation.mend(fault.site, a, b));
        }
        Kind::OneWay => simulation.mend(fault.site, id, other),
        Kind::Flapping => {
            let ends = since >= fault.span || simulation.faults_ended;
            if ends || simulation.sites[fault.site].network.is_cut(id, other) {
                simulation.mend(fault.site, id, other);
            } else {
                simulation.cut(fault.site, id, other);
            }
            if !ends {
                return Begun::For(FLAP.min(fault.span - since));
            }
        }
        Kind::Drop => simulation.sites[fault.site].network.drop_permille = 0,
        Kind::SlowLink => simulation.sites[fault.site].network.extra = Duration::ZERO,
        Kind::SlowDisk => simulation.nodes[node].slow = Duration::ZERO,
        Kind::FullDisk => simulation.nodes[node].disk.set_capacity(None),
        Kind::Remove => {
            // It is removed or it is not: in both cases it comes back with an empty disk, once the
            // others can spare the old one.
            doom(simulation, node, "it was removed; it waits for another disk");
        }
        Kind::LeaveSite | Kind::JoinSite => return come_or_go(simulation, fault),
        Kind::PartSite | Kind::LoseRoot => simulation.rejoin_site(fault.site),
        Kind::FlappingSites => {
            let ends = since >= fault.span || simulation.faults_ended;
            match ends || simulation.are_parted(fault.site, fault.other_site) {
                true => simulation.mend_sites(fault.site, fault.other_site),
                false => simulation.part_sites(fault.site, fault.other_site),
            }
            if !ends {
                return Begun::For(FLAP.min(fault.span - since));
            }
        }
        Kind::PartSites | Kind::HalfPartSites => {
            simulation.mend_sites(fault.site, fault.other_site);
        }
        Kind::SlowSites => simulation.slow_site(fault.site, Duration::ZERO),
        Kind::LoseSite => return lose::go_on(simulation, fault, since),
        Kind::LendGroups => return lend::go_on(simulation, fault, since),
        Kind::PromoteSite => return promote::go_on(simulation, fault, since),
        Kind::RebuildRoot => return rebuild::go_on(simulation, fault, since),
        Kind::CutClients => simulation.sites[fault.site].clients_cut = false,
        Kind::OldDisk => return lifecycle::go_on(simulation, fault, node, since),
        Kind::SameId => return lifecycle::check_first_machine(simulation, fault, since),
        Kind::OneDown if !waits_for_disk(simulation, fault.site) => {
            bring_back(simulation, &sites_nodes);
            let mut random = Random::new(fault.draw);
            if random.chance(500) {
                simulation.nodes[node].stays_down = true;
                simulation.crash(node, &Down::draw(&mut random));
            } else {
                simulation.nodes[node].stays_cut_off = true;
                simulation.isolate(fault.site, id);
            }
        }
        _ => {}
    }
    Begun::Over
}

/// Takes a node down until its disk is exchanged, unless that has been done already.
fn doom<C>(simulation: &mut Simulation<C>, node: NodeIndex, why: &str) {
    if simulation.nodes[node].doomed {
        simulation.crash(node, &Down::PowerLost(Survival::Nothing));
        simulation.nodes[node].refused = Some(why.to_owned());
    }
}

/// Whether a node of a site waits until all others are up, so that its disk may be exchanged.
fn waits_for_disk<C>(simulation: &Simulation<C>, site: usize) -> bool {
    let mut nodes = simulation.sites[site].nodes.iter().map(|node| &simulation.nodes[*node]);
    nodes.any(|node| {
        node.doomed
            || node.is_on_old_disk()
            || node.refused.is_some()
            || node.belongs != Belongs::Member
    })
}

/// Nodes that were to stay down start, and those that were to stay cut off reach the others again.
pub fn bring_back<C>(simulation: &mut Simulation<C>, nodes: &[NodeIndex]) {
    for index in nodes {
        let node = &mut simulation.nodes[*index];
        let (site, id) = (node.site, node.id);
        let was_cut_off = std::mem::take(&mut node.stays_cut_off);
        if std::mem::take(&mut node.stays_down) {
            simulation.start(*index);
        }
        for other in 1..=simulation.sites[site].nodes.len() as u64 {
            if was_cut_off && other != id {
                simulation.mend(site, id, other);
            }
        }
    }
}

/// Exchanges the disks of nodes that wait for it, where the others of their site hold everything.
pub fn tend<C>(simulation: &mut Simulation<C>) {
    for node in 0..simulation.nodes.len() {
        let one = &simulation.nodes[node];
        let waits = one.refused.is_some() && !one.is_on_old_disk();
        if waits && can_spare(simulation, simulation.nodes[node].site, node) {
            simulation.replace_disk(node);
        }
    }
}

/// Everything that went wrong is right again: links, clocks, disks, and nodes that are down start.
/// What waits for an operator goes on waiting: see [`tend`]. So does what was to stay lost: see
/// [`bring_back`].
pub fn end_all<C>(simulation: &mut Simulation<C>) {
    simulation.faults_ended = true;
    simulation.heal();
    simulation.calm();
    for group in &mut simulation.sites {
        group.network.drop_permille = 0;
        group.network.extra = Duration::ZERO;
        group.clients_cut = false;
    }
    for node in 0..simulation.nodes.len() {
        simulation.set_clock_rate(node, 1.0);
        if simulation.nodes[node].is_on_old_disk() {
            simulation.exchange_disks(node);
        }
        simulation.discard_disk(node);
        let one = &mut simulation.nodes[node];
        one.slow = Duration::ZERO;
        if std::mem::take(&mut one.lies) {
            one.doomed = false;
        }
        one.disk.set_capacity(None);
        let (site, id, stays_cut_off) = (one.site, one.id, one.stays_cut_off);
        simulation.start(node);
        if stays_cut_off {
            simulation.isolate(site, id);
        }
    }
}

fn crash<C>(simulation: &mut Simulation<C>, node: NodeIndex, down: &Down, fault: &Fault) -> Begun {
    if !simulation.nodes[node].up {
        return Begun::Skipped;
    }
    simulation.bounce(node, down, fault.span);
    Begun::Over
}

/// The pairs of nodes on different sides: the first side has the drawn number of nodes, beginning
/// with the fault's node.
fn each_pair(fault: &Fault, nodes: &[NodeIndex], mut done: impl FnMut(u64, u64)) {
    let count = nodes.len();
    let first_side = 1 + (fault.draw as usize % (count - 1).max(1));
    let side = |place: usize| (place + count - fault.node) % count < first_side;
    for a in 0..count {
        for b in a + 1..count {
            if side(a) != side(b) {
                done(a as u64 + 1, b as u64 + 1);
            }
        }
    }
}

/// Flips a bit in the first half of one of the log's files: not in the record that was written
/// last, which cannot be distinguished from a torn one.
fn flip<C>(simulation: &Simulation<C>, node: NodeIndex, random: &mut Random) {
    let disk = &simulation.nodes[node].disk;
    let folder = Path::new("log");
    let Ok(names) = disk.list(folder) else { return };
    if names.is_empty() {
        return;
    }
    let path = folder.join(random.pick(&names));
    let used = disk.read(&path).unwrap_or_default();
    let end = used.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
    disk.flip(&path, random.below(end / 2 + 1), 1 << random.below(8));
}
