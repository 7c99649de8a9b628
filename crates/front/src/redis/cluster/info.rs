//! CLUSTER INFO: the state of the deployment.

use super::map::{Health, Map};
use model::Slot;

/// The reply. There is no cluster bus, so its message counts are 0.
pub(super) fn text(map: &Map, is_ready: bool) -> String {
    let assigned: usize = map.shards.iter().map(|shard| shard.slots.len()).sum();
    let nodes: usize = map.shards.iter().map(|shard| shard.nodes.len()).sum();
    let holding = map.shards.iter().filter(|shard| !shard.slots.is_empty()).count();
    let slots_of = |health| {
        let shards = map.shards.iter().filter(|shard| shard.health == health);
        shards.map(|shard| shard.slots.len()).sum::<usize>()
    };
    let (silent, failed) = (slots_of(Health::Silent), slots_of(Health::Failed));
    // Sites that answer go on serving what they own, as Redis does without
    // `cluster-require-full-coverage`.
    let is_well = is_ready && assigned == usize::from(Slot::COUNT);
    let fields = [
        ("cluster_state", if is_well { "ok" } else { "fail" }.to_owned()),
        ("cluster_slots_assigned", assigned.to_string()),
        ("cluster_slots_ok", (assigned - silent - failed).to_string()),
        ("cluster_slots_pfail", silent.to_string()),
        ("cluster_slots_fail", failed.to_string()),
        ("cluster_known_nodes", nodes.to_string()),
        ("cluster_size", holding.to_string()),
        ("cluster_current_epoch", map.epoch.to_string()),
        ("cluster_my_epoch", map.own().epoch.to_string()),
        ("cluster_stats_messages_sent", "0".to_owned()),
        ("cluster_stats_messages_received", "0".to_owned()),
        ("total_cluster_links_buffer_limit_exceeded", "0".to_owned()),
    ];
    fields.map(|(name, value)| format!("{name}:{value}\r\n")).concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::cluster::map::made;

    #[test]
    fn a_deployment_is_well_while_this_node_can_answer() {
        let well = text(&made::map(), true);
        for line in [
            "cluster_state:ok",
            "cluster_slots_assigned:16384",
            "cluster_known_nodes:4",
            "cluster_size:2",
            "cluster_current_epoch:9",
            "cluster_my_epoch:1",
        ] {
            assert!(well.contains(&format!("{line}\r\n")), "{line} in {well}");
        }
        assert!(text(&made::map(), false).starts_with("cluster_state:fail\r\n"));
        let failed = text(&made::map_without(&[3], &[3]), true);
        for line in ["cluster_state:ok", "cluster_slots_ok:8143", "cluster_slots_fail:8241"] {
            assert!(failed.contains(&format!("{line}\r\n")), "{line} in {failed}");
        }
    }
}
