//! What sites of a deployment agree on, and slots on their way between them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_newtype, code_struct};
use model::{
    DeploymentId, Epoch, Giving, MoveError, MoveId, NodeEntry, Receiving, Registry, RegistryChange,
    RegistryError, SiteEntry, SiteId, SiteName, Slot, SlotEpochs, SlotSet, StagedItem,
};

code_newtype!(DeploymentId, Epoch, SiteId, SlotEpochs);
code_struct!(MoveId { from, number });
code_struct!(NodeEntry { node, peer, cluster });
code_struct!(SiteEntry { id, name, incarnation, capacity_percent, leaving, nodes });
code_struct!(Registry { deployment, version, sites, keyspaces, site_next, keyspace_next });

code_enum!(RegistryChange as "change of the registry" {
    1 => Join(entry),
    2 => Update(entry),
    3 => Leave(site),
    4 => Remove(site),
    5 => Node(site, node),
});

code_enum!(RegistryError as "registry error" {
    1 => NameTaken(name),
    2 => NoSite(name),
    3 => TooManySites,
    4 => LastSite(name),
});

code_enum!(MoveError as "move error" {
    1 => NotHeld,
    2 => NoReceiver,
    3 => NoMove(number),
    4 => TooManyMoves,
    5 => Refused,
    6 => NotReady(what),
});

code_enum!(Giving as "step of giving slots" {
    1 => Begin { slots, to, pinned },
    2 => Freeze,
    3 => Release,
    4 => TakeBack { refused },
    5 => Pause(paused),
});

code_enum!(Receiving as "step of receiving slots" {
    1 => Begin { slots, open_from, pinned },
    2 => Piece { sequence, resume, items },
    3 => Install { pieces, log_time_ms, revision, registry },
    4 => Refuse,
});

code_enum!(StagedItem as "staged item" {
    1 => Record { keyspace, key, row },
    2 => Absent { keyspace, key },
    3 => Remembered { slot, client, sequence, floor, seen_ms, row },
});

impl Code for Slot {
    fn put(&self, out: &mut Vec<u8>) {
        self.number().put(out);
    }

    fn take(from: &mut Input) -> Result<Slot, EntryError> {
        Slot::new(u16::take(from)?).ok_or_else(|| from.malformed("slot"))
    }
}

impl Code for SlotSet {
    fn put(&self, out: &mut Vec<u8>) {
        self.ranges().to_vec().put(out);
    }

    fn take(from: &mut Input) -> Result<SlotSet, EntryError> {
        SlotSet::from_ranges(Vec::take(from)?).ok_or_else(|| from.malformed("set of slots"))
    }
}

impl Code for SiteName {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_str().to_owned().put(out);
    }

    fn take(from: &mut Input) -> Result<SiteName, EntryError> {
        SiteName::new(String::take(from)?).map_err(|_| from.malformed("site name"))
    }
}
