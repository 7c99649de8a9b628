//! The order of causal keys: its commands, and the writes in them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_newtype, code_struct};
use model::{
    CausalCommand, CausalWrite, Effect, Import, Offer, Position, Region, RegionId, Resync,
    ResyncItem,
};

code_newtype!(Position, RegionId);

code_struct!(Region { id, epoch, root });

// The bytes of all families of commands are of one table, with those of `command`.
code_enum!(CausalCommand as "command of causal keys" {
    140 => Order { epoch, offer },
    141 => Import { from, upto, entries },
    142 => Trim { upto },
    143 => Resync(step),
});

code_enum!(Resync as "step of a resync" {
    1 => Begin { epoch, floor, start, ordered, resume },
    2 => Piece { start, sequence, resume, items },
    3 => Switch { start, pieces, upto },
});

code_enum!(ResyncItem as "item of a resync" {
    1 => Record { keyspace, key, row },
    2 => Entry { position, site, write },
});

code_struct!(Offer { site, after, writes });
code_struct!(CausalWrite { revision, seen, keyspace, effects });

code_enum!(Effect as "effect" {
    1 => Put { key, value },
    2 => Delete { key },
    3 => SetFields { key, fields },
    4 => DeleteFields { key, fields },
});

code_enum!(Import as "entry of the order" {
    1 => Own(position),
    2 => Other { position, site, write },
});

#[cfg(test)]
mod tests {
    use super::*;
    use model::{KeyspaceId, Revision, SiteId};

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
        ];
        let (start, ordered, resume) = (Position(6), Revision(7), "z".into());
        let cases = [
            (
                Resync::Begin { epoch: 1, floor: Position(2), start, ordered, resume },
                &b"\x8f\x01\x01\x02\x06\x07\x01z"[..],
            ),
            (
                Resync::Piece { start, sequence: 8, resume: "z".into(), items },
                b"\x8f\x02\x06\x08\x01z\x02\x01\x02\x01k\x01r\x02\x04\x03\x05\x03\x02\x01\x02\x01k",
            ),
            (Resync::Switch { start, pieces: 9, upto: Position(10) }, b"\x8f\x03\x06\x09\x0a"),
        ];
        for (step, bytes) in cases {
            let mut out = Vec::new();
            let command = CausalCommand::Resync(step);
            command.put(&mut out);
            assert_eq!(out, bytes, "{command}");
        }
    }
}
