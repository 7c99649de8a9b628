//! One window: from sketches and the cluster's own report to moves.

use crate::clients::Client;
use crate::cluster::{Cluster, ClusterError, Survey};
use crate::decide::{Decider, Decision, Placed, Seen};
use crate::view::NodeId;
use model::{Slot, SlotSet};
use std::collections::{BTreeMap, BTreeSet};

/// The moves of a window of so many seconds, with so many bytes at a master at most, and without
/// the slots that wait.
///
/// # Errors
/// The cluster does not answer.
pub async fn decide(
    decider: &mut Decider,
    cluster: &mut Cluster,
    survey: &Survey,
    clients: &[Client],
    server_bytes_max: Option<u64>,
    waiting: &SlotSet,
    window_s: f32,
) -> Result<Decision, ClusterError> {
    decider.settle(|slot| survey.owners(slot).next());
    let used: BTreeSet<Slot> = clients.iter().flat_map(|one| one.slots.keys().copied()).collect();
    let used: SlotSet = used.into_iter().collect();
    let keys = cluster.count_keys(survey, &used).await?;
    let room = cluster.room(survey, server_bytes_max).await?;
    let mut placed = BTreeMap::new();
    for slot in used.iter() {
        let Some(owner) = survey.owners(slot).next().cloned() else { continue };
        let keys = keys.get(&slot).and_then(|keys| keys.get(&owner)).copied();
        placed.insert(slot, Placed { owner, keys: keys.unwrap_or_default() });
    }
    let masters: Vec<NodeId> = survey.masters().map(|(id, _)| id.clone()).collect();
    let seen = Seen { clients, placed: &placed, masters: &masters, room: &room, waiting };
    Ok(decider.decide(&seen, window_s))
}
