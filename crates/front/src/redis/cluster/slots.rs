//! CLUSTER SLOTS and CLUSTER SHARDS: the slots of each site.

use super::map::{Health, Map, Member, Shard};
use wire::resp::Encoder;

/// CLUSTER SLOTS: each run of slots with the nodes of its site, in the order of slots.
pub(super) fn write_slots(map: &Map, out: &mut Encoder<'_>) {
    let ranges = map.shards.iter().flat_map(|shard| {
        shard.slots.ranges().iter().map(move |(first, last)| (*first, *last, shard))
    });
    let mut ranges: Vec<(u16, u16, &Shard)> = ranges.collect();
    ranges.sort_unstable_by_key(|(first, ..)| *first);
    out.array(ranges.len());
    for (first, last, shard) in ranges {
        out.array(2 + shard.nodes.len());
        out.integer(i64::from(first));
        out.integer(i64::from(last));
        for node in &shard.nodes {
            out.array(4);
            out.bulk(node.address.host.as_bytes());
            out.integer(i64::from(node.address.port));
            out.bulk(node.id.as_bytes());
            // The node has no other names.
            out.map(0);
        }
    }
}

/// CLUSTER SHARDS: each site with its slots and its nodes.
pub(super) fn write_shards(map: &Map, is_tls: bool, out: &mut Encoder<'_>) {
    out.array(map.shards.len());
    for shard in &map.shards {
        let ranges = shard.slots.ranges();
        out.map(2);
        out.bulk(b"slots");
        out.array(2 * ranges.len());
        for (first, last) in ranges {
            out.integer(i64::from(*first));
            out.integer(i64::from(*last));
        }
        out.bulk(b"nodes");
        out.array(shard.nodes.len());
        for (place, node) in shard.nodes.iter().enumerate() {
            write_node(node, (place == 0, shard.health), is_tls, out);
        }
    }
}

fn write_node(
    node: &Member,
    (is_master, health): (bool, Health),
    is_tls: bool,
    out: &mut Encoder<'_>,
) {
    let host = node.address.host.as_bytes();
    out.map(7);
    out.bulk(b"id");
    out.bulk(node.id.as_bytes());
    out.bulk(if is_tls { b"tls-port" } else { b"port" });
    out.integer(i64::from(node.address.port));
    out.bulk(b"ip");
    out.bulk(host);
    out.bulk(b"endpoint");
    out.bulk(host);
    out.bulk(b"role");
    out.bulk(if is_master { b"master" } else { b"replica" });
    // There is no replication stream with an offset.
    out.bulk(b"replication-offset");
    out.integer(0);
    out.bulk(b"health");
    // Redis has no state for a suspected failure here.
    out.bulk(if health == Health::Failed { b"fail" } else { b"online" });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::cluster::map::made;
    use bytes::BytesMut;
    use wire::resp::Version;

    fn text(version: Version, write: impl Fn(&Map, &mut Encoder<'_>)) -> String {
        let mut out = BytesMut::new();
        write(&made::map(), &mut Encoder::new(&mut out, version));
        String::from_utf8(out.to_vec()).unwrap().replace("\r\n", " ")
    }

    #[test]
    fn slots_come_in_order_with_the_nodes_of_their_site() {
        let in_2 = text(Version::Resp2, write_slots);
        let in_3 = text(Version::Resp3, write_slots);
        assert!(in_2.starts_with("*4 *5 :0 :150 *4 $8 10.0.0.1 :7403 $40 "), "{in_2}");
        let last = "*3 :8192 :16383 *4 $3 ::1 :7404 $40 000000000000feed000000030000000000000001";
        assert!(in_2.contains("*3 :151 :199 *4 $3 ::1"), "{in_2}");
        assert!(in_2.ends_with(&format!("{last} *0 ")), "{in_2}");
        assert!(in_3.ends_with(&format!("{last} %0 ")), "{in_3}");
    }

    #[test]
    fn a_shard_is_written_as_redis_writes_it() {
        let expect = "slots *4 :151 :199 :8192 :16383 $5 nodes *1 %7 $2 id $40 \
                      000000000000feed000000030000000000000001 $4 port :7404 $2 ip $3 ::1 $8 endpoint \
                      $3 ::1 $4 role $6 master $18 replication-offset :0 $6 health $6 online ";
        let plain = text(Version::Resp3, |map, out| write_shards(map, false, out));
        assert!(
            plain.starts_with("*2 %2 $5 slots *4 :0 :150 :200 :8191 $5 nodes *3 %7 "),
            "{plain}"
        );
        assert!(plain.ends_with(&format!("%2 $5 {expect}")), "{plain}");
        let tls = text(Version::Resp3, |map, out| write_shards(map, true, out));
        assert!(tls.ends_with(&format!("%2 $5 {}", expect.replace("$4 port", "$8 tls-port"))));
        let mut out = BytesMut::new();
        let failed = made::map_without(&[3], &[3]);
        write_shards(&failed, false, &mut Encoder::new(&mut out, Version::Resp3));
        assert!(String::from_utf8_lossy(&out).ends_with("$6\r\nhealth\r\n$4\r\nfail\r\n"));
        let in_2 = text(Version::Resp2, |map, out| write_shards(map, false, out));
        assert!(in_2.ends_with(&format!("*4 $5 {}", expect.replace("%7", "*14"))), "{in_2}");
    }
}
