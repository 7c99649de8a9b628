//! CLUSTER NODES and CLUSTER REPLICAS: a line for each node.
//!
//! ```text
//! id ip:port@peer-port flags master ping-sent pong-received epoch link-state slots…
//! ```
//!
//! There are no pings, so both times are 0, which for Redis means that no ping is waited for.
//! A site that does not answer this one has failed as a whole: its nodes are flagged `fail?` while
//! it is silent and `fail` when it cannot be reached, and links to them are disconnected. It keeps
//! its slots, as a Redis Cluster's failed master does, until another site takes over.

use super::map::{Health, Map, Member, Shard};
use std::fmt::Write as _;

/// All nodes.
pub(super) fn all(map: &Map) -> String {
    let lines = map
        .shards
        .iter()
        .flat_map(|shard| (0..shard.nodes.len()).map(move |place| line(map, shard, place) + "\n"));
    lines.collect()
}

/// The nodes of a site except the first.
pub(super) fn replicas(map: &Map, shard: &Shard) -> Vec<String> {
    (1..shard.nodes.len()).map(|place| line(map, shard, place)).collect()
}

fn line(map: &Map, shard: &Shard, place: usize) -> String {
    let Member { id, address, peer_port } = &shard.nodes[place];
    let myself = if id == &map.myself().id { "myself," } else { "" };
    let (role, master) = match place {
        0 => ("master", "-"),
        _ => ("slave", shard.nodes[0].id.as_str()),
    };
    let (fails, link) = match shard.health {
        Health::Online => ("", "connected"),
        Health::Silent => (",fail?", "disconnected"),
        Health::Failed => (",fail", "disconnected"),
    };
    let (host, port, epoch) = (&address.host, address.port, shard.epoch);
    let mut line =
        format!("{id} {host}:{port}@{peer_port} {myself}{role}{fails} {master} 0 0 {epoch} {link}");
    if place == 0 {
        for (first, last) in shard.slots.ranges() {
            let _ = match first == last {
                true => write!(line, " {first}"),
                false => write!(line, " {first}-{last}"),
            };
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::cluster::map::made;

    #[test]
    fn a_line_is_as_redis_writes_it() {
        let map = made::map();
        let master = "000000000000feed000000010000000000000003";
        let expect = [
            format!("{master} 10.0.0.1:7403@7383 master - 0 0 1 connected 0-150 200-8191"),
            format!(
                "000000000000feed000000010000000000000001 10.0.0.1:7401@7381 slave {master} 0 0 1 \
                 connected"
            ),
            format!(
                "000000000000feed000000010000000000000002 10.0.0.1:7402@7382 myself,slave {master} \
                 0 0 1 connected"
            ),
            "000000000000feed000000030000000000000001 ::1:7404@7381 master - 0 0 3 connected \
             151-199 8192-16383"
                .to_owned(),
        ];
        assert_eq!(all(&map), expect.map(|line| line + "\n").concat());
        assert_eq!(replicas(&map, map.own()).len(), 2);
        assert!(replicas(&map, &map.shards[1]).is_empty());
    }

    #[test]
    fn a_site_that_does_not_answer_has_failed() {
        let third = |map: &Map| all(map).lines().last().unwrap().to_owned();
        let line = |flags: &str| {
            format!(
                "000000000000feed000000030000000000000001 ::1:7404@7381 {flags} - 0 0 3 \
                 disconnected 151-199 8192-16383"
            )
        };
        assert_eq!(third(&made::map_without(&[3], &[])), line("master,fail?"));
        assert_eq!(third(&made::map_without(&[3], &[3])), line("master,fail"));
        // The asked site itself is always there.
        assert!(!all(&made::map_without(&[1], &[1])).contains("fail"));
    }
}
