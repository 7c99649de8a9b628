//! One window: from sketches and the cluster's own report to moves.

use crate::clients::Client;
use crate::cluster::{Cluster, ClusterError, Survey};
use crate::decide::{Decider, Decision, Move, Placed, Seen};
use crate::mover::Picture;
use crate::view::{Address, NodeId};
use model::{Slot, SlotSet};
use std::collections::{BTreeMap, BTreeSet};

/// The moves of a window of so many seconds, with so many bytes at a master at most.
///
/// # Errors
/// The cluster does not answer.
pub async fn decide(
    decider: &mut Decider,
    cluster: &mut Cluster,
    clients: &[Client],
    server_bytes_max: Option<u64>,
    window_s: f32,
) -> Result<Decision, ClusterError> {
    let used: BTreeSet<Slot> = clients.iter().flat_map(|one| one.slots.keys().copied()).collect();
    let used: SlotSet = used.into_iter().collect();
    let survey = cluster.survey().await?;
    let keys = cluster.count_keys(&survey, &used).await?;
    let room = cluster.room(&survey, server_bytes_max).await?;
    let picture = Picture { survey, keys, ..Picture::default() };
    let mut placed = BTreeMap::new();
    for slot in used.iter() {
        let Some(owner) = picture.owner(slot) else { continue };
        let keys = picture.keys.get(&slot).and_then(|keys| keys.get(owner)).copied();
        if let Some(address) = picture.survey.address(owner) {
            let owner = address.clone();
            placed.insert(slot, Placed { owner, keys: keys.unwrap_or_default() });
        }
    }
    let masters = &masters(&picture.survey)[..];
    Ok(decider.decide(&Seen { clients, placed: &placed, masters, room: &room }, window_s))
}

/// The addresses of the masters.
pub fn masters(survey: &Survey) -> Vec<Address> {
    survey.masters().filter_map(|(id, _)| survey.address(id).cloned()).collect()
}

/// The moves as the mover takes them; without those to servers that have gone.
///
/// # Errors
/// The cluster does not answer.
pub async fn goals(
    cluster: &mut Cluster,
    moves: &[Move],
) -> Result<Vec<(Slot, NodeId)>, ClusterError> {
    let survey = cluster.survey().await?;
    let at = |address: &Address| -> Option<NodeId> {
        let mut masters = survey.masters().map(|(id, _)| id);
        masters.find(|id| survey.address(id) == Some(address)).cloned()
    };
    Ok(moves.iter().filter_map(|one| Some((one.slot, at(&one.to)?))).collect())
}
