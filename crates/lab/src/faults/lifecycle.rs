//! Two incarnations of one node: an old disk comes back, and an id is given twice.
//!
//! Neither may do harm. The old disk is refused, and the one that took its place is put in again;
//! the second machine is not taken in while the first one answers.

use std::time::Duration;

use super::Fault;
use super::apply::{Begun, all_vote};
use crate::random::Random;
use crate::simulation::{Belongs, Down, NodeIndex, Simulation};

/// How often the second machine asks, and how often the new incarnation is checked for its vote.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The old disk is thrown away if its successor has not become a voter by then.
const MEMBER_MAX: Duration = Duration::from_secs(20);

/// A node gets an empty disk, and its old one is kept. The site can spare it, as with any that is
/// lost.
pub(super) fn put_disk_aside<C>(
    simulation: &mut Simulation<C>,
    node: NodeIndex,
    random: &mut Random,
) -> Begun {
    simulation.crash(node, &Down::draw(random));
    simulation.put_disk_aside(node);
    Begun::For(LOOK_AGAIN)
}

/// Polls: when the new incarnation votes, the old disk is put in for the span.
pub(super) fn go_on<C>(
    simulation: &mut Simulation<C>,
    fault: &Fault,
    node: NodeIndex,
    since: Duration,
) -> Begun {
    let one = &simulation.nodes[node];
    if !one.has_disk_aside() {
        return Begun::Over;
    }
    if one.is_on_old_disk() {
        simulation.exchange_disks(node);
        return Begun::Over;
    }
    let is_doomed = one.doomed || one.refused.is_some();
    if is_doomed || since > MEMBER_MAX {
        simulation.discard_disk(node);
        return Begun::Over;
    }
    if one.belongs != Belongs::Member || !all_vote(simulation, fault.site) {
        return Begun::For(LOOK_AGAIN);
    }
    simulation.exchange_disks(node);
    Begun::For(fault.span)
}

/// The incarnation of the second machine.
fn second_life(fault: &Fault) -> u64 {
    fault.draw | 1
}

/// The node whose id the second machine uses, while that node is well and answers its leader.
///
/// A node whose links are back is well at once, but a slow leader counts it as lost until the first
/// message of it has come.
fn first_machine<C>(simulation: &Simulation<C>, fault: &Fault) -> Option<NodeIndex> {
    let node = simulation.sites[fault.site].nodes[fault.node];
    let leader = simulation.leader(fault.site)?;
    let is_heard = leader == node || {
        let id = simulation.nodes[node].id;
        let progress = simulation.status(leader)?.progress;
        progress.iter().any(|(other, _, is_alive)| other.0 == id && *is_alive)
    };
    (is_heard && simulation.is_well(node)).then_some(node)
}

/// A second machine is going to ask to be taken in under the id of a node that is well. It waits
/// for a look: a link that has come back just now has not carried a message yet.
pub(super) fn wait_to_ask<C>(simulation: &Simulation<C>, fault: &Fault) -> Begun {
    let is_well = first_machine(simulation, fault).is_some();
    if is_well && all_vote(simulation, fault.site) {
        Begun::For(LOOK_AGAIN)
    } else {
        Begun::Skipped
    }
}

/// Polls: the second machine sends its request while the first one is well, and must not have taken
/// its place. The next poll comes before the time after which the site counts the first one as
/// failed.
pub(super) fn check_first_machine<C>(
    simulation: &mut Simulation<C>,
    fault: &Fault,
    since: Duration,
) -> Begun {
    let node = simulation.sites[fault.site].nodes[fault.node];
    // The member that an operator has removed may be replaced.
    if simulation.nodes[node].doomed {
        return Begun::Over;
    }
    if simulation.listed_life(node) == Some(second_life(fault)) {
        let name = simulation.name(node).to_owned();
        let what = format!("{name} was well, and another machine with its id took its place");
        simulation.failure.get_or_insert(what);
        return Begun::Over;
    }
    if since >= fault.span {
        return Begun::Over;
    }
    let Some(node) = first_machine(simulation, fault) else { return Begun::Over };
    simulation.ask_as_another(node, second_life(fault));
    Begun::For(LOOK_AGAIN)
}
