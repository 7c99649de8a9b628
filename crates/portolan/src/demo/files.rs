//! Open files: every vehicle needs a handful of sockets, and common default limits are low.

use lab::world::World;

use super::DemoError;

/// The vehicle's own socket, its relay's listener and two sockets, and the node's; and as many
/// again for a moment while it moves.
const FILES_PER_VEHICLE: u64 = 8;
/// Listeners, log and state of a node, and its links with ten others: each is four sockets, as a
/// relay is between. Generously.
const FILES_PER_NODE: u64 = 200;
/// What the process has open anyway.
const FILES_BASE: u64 = 64;

/// Raises this process's limit of open files to what the demo needs.
#[cfg(unix)]
pub(super) fn allow(vehicles: usize, world: &World) -> Result<(), DemoError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let nodes: usize = world.sites.iter().map(|site| site.nodes).sum();
    let needed = FILES_BASE + vehicles as u64 * FILES_PER_VEHICLE + nodes as u64 * FILES_PER_NODE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(needed), ..limit };
    setrlimit(Resource::Nofile, raised).map_err(|_| DemoError::Files {
        needed,
        allowed: limit.maximum.or(limit.current).unwrap_or(u64::MAX),
    })
}

/// Elsewhere there is no such limit to raise.
#[cfg(not(unix))]
pub(super) fn allow(_vehicles: usize, _world: &World) -> Result<(), DemoError> {
    Ok(())
}
