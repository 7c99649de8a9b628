//! What sites of a deployment agree on, and slots on their way between them.

use super::EntryError;
use super::compact::{Code, Input, VARINT_BYTES_MAX, code_enum, code_newtype, code_struct};
use model::{
    Ballot, DeploymentCommand, DeploymentId, DestinationStep, Epoch, GlobalCommand, HandedOn, Held,
    Holding, MoveError, MoveId, NodeEntry, Ordered, OrderedMove, Pin, RegistryChange,
    RegistryError, SiteEntry, SiteId, SiteName, Slot, SlotEpochs, SlotSet, SourceStep, StagedItem,
};

code_newtype!(DeploymentId, SiteId, SlotEpochs);
code_struct!(MoveId { from, number });
code_struct!(Pin { keyspace, tag, site });
code_struct!(NodeEntry { node, peer, cluster });

/// A site has several forms, so that what was written before there were failure domains, regions and
/// limits of what a site borrows is read, and a site without them is as it was:
///
/// ```text
/// site = id ‖ name ‖ incarnation ‖ capacity ‖ form ‖ nodes ‖ failure domain, if any ‖ region, if any
///        ‖ bytes that it borrows at most, if limited
/// form = leaving (0 or 1) + 2 with a failure domain + 4 with a region + 8 with a limit
/// ```
const WITH_DOMAIN: u8 = 2;
const WITH_REGION: u8 = 4;
const WITH_LIMIT: u8 = 8;

impl Code for SiteEntry {
    fn put(&self, out: &mut Vec<u8>) {
        let SiteEntry { id, name, incarnation, capacity_percent, leaving, nodes, .. } = self;
        let SiteEntry { failure_domain, region, borrowed_bytes_max, .. } = self;
        id.put(out);
        name.put(out);
        incarnation.put(out);
        capacity_percent.put(out);
        let mut form = u8::from(*leaving);
        form += if failure_domain.is_some() { WITH_DOMAIN } else { 0 };
        form += if region.is_some() { WITH_REGION } else { 0 };
        form += if borrowed_bytes_max.is_some() { WITH_LIMIT } else { 0 };
        out.push(form);
        nodes.put(out);
        for name in [failure_domain, region].into_iter().flatten() {
            name.put(out);
        }
        if let Some(bytes_max) = borrowed_bytes_max {
            bytes_max.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<SiteEntry, EntryError> {
        let (id, name) = Code::take(from)?;
        let (incarnation, capacity_percent) = Code::take(from)?;
        let form = from.byte()?;
        if form > 1 + WITH_DOMAIN + WITH_REGION + WITH_LIMIT {
            return Err(from.malformed("form of a site"));
        }
        let (leaving, nodes) = (form & 1 == 1, Code::take(from)?);
        let mut named = |with: u8| (form & with == with).then(|| Code::take(from)).transpose();
        let (failure_domain, region) = (named(WITH_DOMAIN)?, named(WITH_REGION)?);
        let is_limited = form & WITH_LIMIT == WITH_LIMIT;
        let borrowed_bytes_max = is_limited.then(|| Code::take(from)).transpose()?;
        Ok(SiteEntry {
            id,
            name,
            incarnation,
            capacity_percent,
            leaving,
            failure_domain,
            region,
            borrowed_bytes_max,
            nodes,
        })
    }
}

// The bytes of all families of commands are of one table, with those of `command`.
code_enum!(DeploymentCommand as "command of the deployment" {
    9 => Found { deployment, site },
    10 => Enter { site, registry },
    11 => ChangeRegistry(change),
    12 => LearnRegistry(registry),
    13 => SetRing(pointers),
    100 => Registrar(step),
    101 => Confirm,
    102 => ConfirmAbove { revision, later },
});

code_enum!(GlobalCommand as "command of global keys" {
    14 => Register { owner, slots },
    15 => Source { number, step },
    16 => Destination { id, step },
    20 => SetMirror { to },
    21 => Mirror { from, number, step },
    110 => Inventory { registry, lost, failover },
    111 => Supersede { slots, generation, position },
    117 => SupersedeBy { slots, generation, position, by },
    112 => DiscardCopies { of },
    113 => EndMirror { of, number },
    130 => Lending(step),
});

code_enum!(RegistryChange as "change of the registry" {
    1 => Join(entry),
    2 => Update(entry),
    3 => Leave(site),
    4 => Remove(site),
    190 => RemoveTo { site, destinations },
    116 => RemoveBy { site, destinations, decisions },
    5 => Node(site, node),
    10 => Backup(site, choice),
    110 => OpenFailover { lost, without },
    111 => DecideFailover { opened, taken },
    112 => CloseFailover(opened),
    113 => ForgetFailover(decided),
    114 => Returned(site),
    115 => ReturnedBy { site, known },
    100 => CreateKeyspace(spec),
    101 => DropKeyspace(name),
    103 => AlterKeyspace { name, placement },
    104 => Alter { name, by },
    105 => Pin(pin),
    106 => Unpin { keyspace, tag },
    102 => Registrar(site),
    120 => MoveRoot(to),
    121 => ChangeRoot { region, epoch, to, cut },
    122 => Rebuild { region, epoch, to },
    123 => SettleRebuild { region, epoch, cut },
    124 => SetStandby(rule),
    128 => SetStandbyOf { region, rule },
    125 => NameStandby { region, epoch, site },
    126 => SyncStandby { region, epoch, since, in_sync },
    127 => TakeOver { region, epoch, since, cut },
});

code_enum!(RegistryError as "registry error" {
    1 => NameTaken(name),
    2 => NoSite(name),
    3 => TooManySites,
    4 => LastSite(name),
    10 => OwnBackup(name),
    110 => FailoverOpen(name),
    111 => NoFailover,
    112 => FailoverDecided,
    190 => ReceiverLeaves(name),
    100 => Keyspace(error),
    101 => KeyspaceExists(name),
    102 => NoKeyspace(name),
    103 => DefaultKeyspace,
    104 => TooManyKeyspaces,
    105 => NoRecovery,
    106 => Answers(name),
    107 => Silent(names),
    108 => Root(name),
    120 => NoRegion,
    121 => RootLeaves(name),
    122 => RootAnswers(name),
    123 => StandbyIsRoot(name),
    124 => StandbyLeaves(name),
    125 => MustHold(name),
    126 => HoldsNotAll(name),
    127 => TooFewHold,
    128 => LastReplica(name),
    129 => NotAllAsked(name),
    130 => NewRegion { name, all },
    131 => TooManyRegions,
    132 => LastOfRegion(name),
    133 => OtherRegion(name),
    134 => NoneHolds(name),
    135 => WhichRegion,
    137 => NoRegionNamed(name),
    140 => PinPlacement(keyspace),
    141 => PinTag,
    142 => PinLendTo { keyspace, site },
    143 => TooManyPins,
    144 => NoPin,
});

code_enum!(MoveError as "move error" {
    1 => NotHeld,
    2 => NoDestination,
    3 => NoMove(number),
    4 => TooManyMoves,
    5 => Refused,
    6 => NotReady(what),
});

code_enum!(SourceStep as "step of a source" {
    1 => Begin { slots, to, pinned },
    2 => Freeze,
    3 => Release,
    4 => Abort { refused },
    5 => Pause(paused),
    160 => Order { id, slots, to },
    220 => Reclaim { slots },
});

code_struct!(Ordered { moves, refused, holdings });
code_struct!(OrderedMove { number, slots, gone });
code_struct!(Holding { slots, epoch, held });

code_enum!(Held as "holding of slots" {
    1 => Here,
    2 => Leaving(to, number),
    3 => Gone(to),
});

code_enum!(DestinationStep as "step of a destination" {
    1 => Begin { slots, open_from, pinned },
    2 => Chunk { sequence, resume, items },
    3 => Install { chunks, revision },
    4 => Refuse,
    190 => BeginCopies(slots),
    191 => TakeCopies { chunks, copies },
    230 => Decline,
});

code_struct!(HandedOn { slots, copy, owner });

code_enum!(StagedItem as "staged item" {
    1 => Record { keyspace, key, row },
    2 => Absent { keyspace, key },
    3 => Remembered { slot, client, sequence, floor, seen_ms, row },
    10 => Cleared { keyspace },
    130 => Clock { log_time_ms },
    140 => Lent { group, row, fed, keys },
    141 => Loans { slot, count },
});

/// What stands in the place of an epoch's count when a failover comes before it. An epoch has two
/// forms, so that what was written before there were failovers in it is read as counts:
///
/// ```text
/// epoch = count
///       | 2^64 - 1 ‖ failover ‖ count
/// ```
const WITH_FAILOVER: u64 = u64::MAX;

impl Code for Epoch {
    fn put(&self, out: &mut Vec<u8>) {
        let Epoch { failover, count } = *self;
        let is_long = failover != Ballot::FIRST || count == WITH_FAILOVER;
        if is_long {
            WITH_FAILOVER.put(out);
            failover.put(out);
        }
        count.put(out);
    }

    fn take(from: &mut Input) -> Result<Epoch, EntryError> {
        let count = u64::take(from)?;
        if count != WITH_FAILOVER {
            return Ok(Epoch::counted(count));
        }
        let (failover, count) = Code::take(from)?;
        if failover == Ballot::FIRST && count != WITH_FAILOVER {
            return Err(from.malformed("epoch of the shorter form"));
        }
        Ok(Epoch { failover, count })
    }
}

/// Appends an epoch, as read points have it that clients keep.
pub fn put_epoch(epoch: Epoch, out: &mut Vec<u8>) {
    epoch.put(out);
}

/// Reads an epoch from the beginning of `bytes`; returns it and how many bytes it took.
pub fn take_epoch(bytes: &[u8]) -> Option<(Epoch, usize)> {
    let mut input =
        Input::new(bytes::Bytes::copy_from_slice(&bytes[..bytes.len().min(EPOCH_BYTES_MAX)]));
    let epoch = Epoch::take(&mut input).ok()?;
    Some((epoch, input.offset()))
}

/// Six numbers.
const EPOCH_BYTES_MAX: usize = 6 * VARINT_BYTES_MAX;

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

#[cfg(test)]
mod tests;
