//! The order of causal keys: its commands, and the writes in them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_newtype, code_struct};
use model::{
    Bridge, Bridged, CausalCommand, CausalWrite, Effect, Import, KeyStamps, LastOrdered, LostEnd,
    Mark, Offer, OpenRetry, Position, Rebuilt, Region, RegionId, Registers, Resync, ResyncItem,
    RootStep, Stamp, Standby, StandbyChoice, StandbyRule, StandbyStep,
};

code_newtype!(Position, RegionId);

code_struct!(Region { id, epoch, root, cut, next, rebuilt, standby, standby_rule });
code_struct!(Standby { site, in_sync, since });
code_struct!(StandbyRule { choice, by_hand });

code_enum!(StandbyChoice as "choice of a standby" {
    1 => Off,
    2 => Nearest,
    3 => At(site),
});
code_struct!(LostEnd { until, above });

/// The last end, and in one byte whether it is open, and whether earlier ones follow.
impl Code for Rebuilt {
    fn put(&self, out: &mut Vec<u8>) {
        self.end.put(out);
        let earlier = self.earlier.iter().filter(|end| end.until != 0);
        let earlier: Vec<LostEnd> = earlier.copied().collect();
        let has_earlier = if earlier.is_empty() { 0 } else { WITH_EARLIER_ENDS };
        out.push(has_earlier + u8::from(self.is_open));
        if !earlier.is_empty() {
            earlier.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<Rebuilt, EntryError> {
        let mut rebuilt = Rebuilt::of(Code::take(from)?);
        let form = from.byte()?;
        if form > WITH_EARLIER_ENDS + 1 {
            return Err(from.malformed("form of a rebuild"));
        }
        rebuilt.is_open = form % WITH_EARLIER_ENDS == 1;
        if form >= WITH_EARLIER_ENDS {
            let earlier: Vec<LostEnd> = Code::take(from)?;
            if earlier.len() > rebuilt.earlier.len() {
                return Err(from.malformed("number of rebuilds"));
            }
            rebuilt.earlier.iter_mut().zip(earlier).for_each(|(end, read)| *end = read);
        }
        Ok(rebuilt)
    }
}

const WITH_EARLIER_ENDS: u8 = 2;

// The bytes of all families of commands are of one table, with those of `command`.
code_enum!(CausalCommand as "command of causal keys" {
    140 => Order { epoch, offer },
    141 => Import { from, upto, entries },
    142 => Trim { upto },
    143 => Resync(step),
    144 => Root { epoch, step },
    145 => Ordered { epoch, sites },
    146 => Standby { since, step },
    148 => Clear { keyspace },
    149 => Numbered { request, keyspace, pairs },
    150 => Retry { request, tried, since, keyspace, pairs },
    156 => Fetch { epoch, site, keyspace, keys },
    157 => Evict { keyspace, keys },
    158 => Bridge { epoch, bridge },
});

code_enum!(Resync as "step of a resync" {
    1 => Begin { epoch, floor, start, ordered, resume },
    2 => Chunk { start, sequence, resume, items },
    3 => Switch { start, chunks, upto },
});

code_enum!(ResyncItem as "item of a resync" {
    1 => Record { keyspace, key, row },
    2 => Entry { position, site, write },
    3 => Ordered { site, revision, position },
    4 => Retried(retry),
    5 => Earlier { position, site, write },
});

code_enum!(RootStep as "step of a root that stops" {
    1 => Stop,
    2 => Resume,
    3 => Give,
    4 => GiveTo(site),
});

code_enum!(StandbyStep as "step of a standby" {
    1 => Hold,
    2 => Freeze,
    3 => Rejoin { epoch },
});

code_struct!(OpenRetry { client, sequence, at, closed, tried, keyspace, keys });
code_struct!(LastOrdered { site, revision, position });
code_struct!(Offer { site, after, writes });
code_struct!(Bridge { of, after, upto, clock_ms, has, places });
code_struct!(Stamp { at_ms, count, region });
code_struct!(KeyStamps { floor, values, string, fields, expiry });
code_struct!(Registers { values, string, fields, expiry });
code_struct!(CausalWrite { revision, seen, keyspace, effects });

code_enum!(Effect as "effect" {
    1 => Put { key, value },
    2 => Delete { key },
    3 => SetFields { key, fields },
    4 => DeleteFields { key, fields },
    5 => Replace { key, value },
    6 => SetExpiry { key, at_ms },
    7 => Expire { key, site, revision },
    8 => Clear,
} else { Mark(Mark) });

code_enum!(Mark as "effect" {
    9 => Numbered { client, sequence },
    10 => Retried { client, sequence, tried },
    11 => Matched { client, sequence },
    12 => Fetched { site, items },
    13 => Stamped { stamp, taken },
    14 => Keeps { key, registers },
    15 => Clock { at_ms, log_ms, kept_after, floor, taken },
    16 => Held { stamps },
});

code_enum!(Bridged as "place of another region" {
    1 => Entry { position, stamp, site, write },
    2 => Taken { position, region, upto },
    3 => Clock { position, at_ms, has },
});

code_enum!(Import as "entry of the order" {
    1 => Own(position),
    2 => Other { position, site, write },
});

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClientId, KeyspaceId, Revision, SiteId};

    #[test]
    fn the_steps_of_a_resync_stay_as_they_are() {
        let write = CausalWrite {
            revision: Revision(5),
            seen: Position(3),
            keyspace: KeyspaceId(2),
            effects: vec![Effect::Delete { key: "k".into() }],
        };
        let items = vec![
            ResyncItem::Record { keyspace: KeyspaceId(2), key: "k".into(), row: "r".into() },
            ResyncItem::Entry { position: Position(4), site: SiteId(3), write },
            ResyncItem::Ordered { site: SiteId(3), revision: Revision(300), position: Position(4) },
        ];
        let (start, ordered, resume) = (Position(6), Revision(7), "z".into());
        let cases = [
            (
                Resync::Begin { epoch: 1, floor: Position(2), start, ordered, resume },
                &b"\x8f\x01\x01\x02\x06\x07\x01z"[..],
            ),
            (
                Resync::Chunk { start, sequence: 8, resume: "z".into(), items },
                b"\x8f\x02\x06\x08\x01z\x03\x01\x02\x01k\x01r\x02\x04\x03\x05\x03\x02\x01\x02\x01k\x03\x03\xac\x02\x04",
            ),
            (Resync::Switch { start, chunks: 9, upto: Position(10) }, b"\x8f\x03\x06\x09\x0a"),
        ];
        for (step, bytes) in cases {
            let mut out = Vec::new();
            let command = CausalCommand::Resync(step);
            command.put(&mut out);
            assert_eq!(out, bytes, "{command}");
        }
    }

    #[test]
    fn effects_stay_as_they_are() {
        let (key, value) = (model::Bytes::from("k"), model::Bytes::from("v"));
        let fields = vec![(value.clone(), value.clone())];
        let of_expiry = (SiteId(2), Revision(300));
        let cases = [
            (Effect::Put { key: key.clone(), value: value.clone() }, &b"\x01\x01k\x01v"[..]),
            (Effect::Delete { key: key.clone() }, b"\x02\x01k"),
            (Effect::SetFields { key: key.clone(), fields }, b"\x03\x01k\x01\x01v\x01v"),
            (
                Effect::DeleteFields { key: key.clone(), fields: vec![value.clone()] },
                b"\x04\x01k\x01\x01v",
            ),
            (Effect::Replace { key: key.clone(), value }, b"\x05\x01k\x01v"),
            (Effect::SetExpiry { key: key.clone(), at_ms: Some(300) }, b"\x06\x01k\x01\xac\x02"),
            (Effect::SetExpiry { key: key.clone(), at_ms: None }, b"\x06\x01k\x00"),
            (
                Effect::Expire { key, site: of_expiry.0, revision: of_expiry.1 },
                b"\x07\x01k\x02\xac\x02",
            ),
            (Effect::Clear, b"\x08"),
            (
                Effect::Mark(Mark::Numbered { client: ClientId(5), sequence: 300 }),
                b"\x09\x05\xac\x02",
            ),
            (
                Effect::Mark(Mark::Retried {
                    client: ClientId(5),
                    sequence: 300,
                    tried: SiteId(2),
                }),
                b"\x0a\x05\xac\x02\x02",
            ),
            (
                Effect::Mark(Mark::Matched { client: ClientId(5), sequence: 300 }),
                b"\x0b\x05\xac\x02",
            ),
            (
                Effect::Mark(Mark::Fetched {
                    site: SiteId(2),
                    items: vec![("k".into(), Some("r".into())), ("l".into(), None)],
                }),
                b"\x0c\x02\x02\x01k\x01\x01r\x01l\x00",
            ),
        ];
        for (effect, bytes) in cases {
            let mut out = Vec::new();
            effect.put(&mut out);
            assert_eq!(out, bytes, "{effect:?}");
        }
        let mut out = Vec::new();
        CausalCommand::Clear { keyspace: KeyspaceId(300) }.put(&mut out);
        assert_eq!(out, b"\x94\xac\x02");
        let (keyspace, keys) = (KeyspaceId(300), vec![model::Bytes::from("k")]);
        for (command, bytes) in [
            (
                CausalCommand::Fetch { epoch: 1, site: SiteId(2), keyspace, keys: keys.clone() },
                &b"\x9c\x01\x02\xac\x02\x01\x01k"[..],
            ),
            (CausalCommand::Evict { keyspace, keys }, b"\x9d\xac\x02\x01\x01k"),
        ] {
            let mut out = Vec::new();
            command.put(&mut out);
            assert_eq!(out, bytes, "{command}");
        }
        let mut out = Vec::new();
        model::Answer::Placed(Position(300)).put(&mut out);
        assert_eq!(out, b"\x8c\xac\x02");
    }

    #[test]
    fn what_joins_regions_stays_as_it_is() {
        let key = model::Bytes::from("k");
        let stamp = Stamp { at_ms: 300, count: 2, region: RegionId(3) };
        let registers =
            Registers { values: false, string: true, fields: vec!["f".into()], expiry: true };
        let stamps = KeyStamps {
            floor: stamp,
            values: Some(stamp),
            string: None,
            fields: vec![("f".into(), stamp)],
            expiry: None,
        };
        let cases = [
            (Effect::Mark(Mark::Stamped { stamp, taken: None }), &b"\x0d\xac\x02\x02\x03\x00"[..]),
            (
                Effect::Mark(Mark::Stamped { stamp, taken: Some((RegionId(4), Position(5))) }),
                b"\x0d\xac\x02\x02\x03\x01\x04\x05",
            ),
            (
                Effect::Mark(Mark::Keeps { key: key.clone(), registers }),
                b"\x0e\x01k\x00\x01\x01\x01f\x01",
            ),
            (
                Effect::Mark(Mark::Held { stamps }),
                b"\x10\xac\x02\x02\x03\x01\xac\x02\x02\x03\x00\x01\x01f\xac\x02\x02\x03\x00",
            ),
            (
                Effect::Mark(Mark::Clock {
                    at_ms: 300,
                    log_ms: 1,
                    kept_after: Position(2),
                    floor: stamp,
                    taken: vec![(RegionId(4), Position(5))],
                }),
                b"\x0f\xac\x02\x01\x02\xac\x02\x02\x03\x01\x04\x05",
            ),
        ];
        for (effect, bytes) in cases {
            let mut out = Vec::new();
            effect.put(&mut out);
            assert_eq!(out, bytes, "{effect:?}");
        }
        let write = CausalWrite {
            revision: Revision(5),
            seen: Position(0),
            keyspace: KeyspaceId(2),
            effects: vec![Effect::Delete { key }],
        };
        let places = vec![
            Bridged::Entry { position: Position(8), stamp, site: SiteId(6), write: write.clone() },
            Bridged::Taken { position: Position(9), region: RegionId(4), upto: Position(5) },
            Bridged::Clock { position: Position(10), at_ms: 1, has: vec![] },
        ];
        let (of, after, upto, clock_ms) = (RegionId(3), Position(7), Position(9), 300);
        let has = vec![(RegionId(4), Position(5))];
        let bridge = Bridge { of, after, upto, clock_ms, has, places };
        let (command, mut out) = (CausalCommand::Bridge { epoch: 1, bridge }, Vec::new());
        command.put(&mut out);
        let bytes = b"\x9e\x01\x03\x07\x09\xac\x02\x01\x04\x05\x03\
            \x01\x08\xac\x02\x02\x03\x06\x05\x00\x02\x01\x02\x01k\x02\x09\x04\x05\x03\x0a\x01\x00";
        assert_eq!(out, bytes, "{command}");
        let (position, site) = (Position(8), SiteId(6));
        let mut out = Vec::new();
        ResyncItem::Earlier { position, site, write }.put(&mut out);
        assert_eq!(out, b"\x05\x08\x06\x05\x00\x02\x01\x02\x01k");
    }

    #[test]
    fn the_attempts_of_a_write_stay_as_they_are() {
        let request =
            model::RequestId { client: ClientId(5), sequence: 300, acknowledged_below: 2 };
        let (keyspace, pairs) = (KeyspaceId(1), vec![("k".into(), "v".into())]);
        let numbered = CausalCommand::Numbered { request, keyspace, pairs: pairs.clone() };
        let (tried, since) = (SiteId(2), Position(7));
        let retry = CausalCommand::Retry { request, tried, since, keyspace, pairs };
        for (command, bytes) in [
            (numbered, &b"\x95\x05\xac\x02\x02\x01\x01\x01k\x01v"[..]),
            (retry, b"\x96\x05\xac\x02\x02\x02\x07\x01\x01\x01k\x01v"),
        ] {
            let mut out = Vec::new();
            command.put(&mut out);
            assert_eq!(out, bytes, "{command}");
        }
        let retry = OpenRetry {
            client: ClientId(5),
            sequence: 300,
            at: Position(7),
            closed: Some(Position(8)),
            tried,
            keyspace,
            keys: vec!["k".into()],
        };
        let mut out = Vec::new();
        ResyncItem::Retried(retry).put(&mut out);
        assert_eq!(out, b"\x04\x05\xac\x02\x07\x01\x08\x02\x01\x01\x01k");
    }

    #[test]
    fn the_steps_of_a_root_that_stops_stay_as_they_are() {
        for (step, byte) in [(RootStep::Stop, 1), (RootStep::Resume, 2), (RootStep::Give, 3)] {
            let (command, mut out) = (CausalCommand::Root { epoch: 300, step }, Vec::new());
            command.put(&mut out);
            assert_eq!(out, [0x90, 0xac, 0x02, byte], "{command}");
        }
        let (mut given, step) = (Vec::new(), RootStep::GiveTo(SiteId(7)));
        CausalCommand::Root { epoch: 300, step }.put(&mut given);
        assert_eq!(given, [0x90, 0xac, 0x02, 4, 7]);
        let since = model::Ballot { round: 300, site: SiteId(2), ..model::Ballot::FIRST };
        for (step, byte) in [(StandbyStep::Hold, 1), (StandbyStep::Freeze, 2)] {
            let (command, mut out) = (CausalCommand::Standby { since, step }, Vec::new());
            command.put(&mut out);
            assert_eq!(out, [0x92, 0, 0, 0xac, 0x02, 2, byte], "{command}");
        }
        let (site, revision, position) = (SiteId(2), Revision(300), Position(4));
        let sites = vec![LastOrdered { site, revision, position }];
        let (command, mut out) = (CausalCommand::Ordered { epoch: 1, sites }, Vec::new());
        command.put(&mut out);
        assert_eq!(out, b"\x91\x01\x01\x02\xac\x02\x04", "{command}");
    }
}
