//! What sites of a deployment agree on, and slots on their way between them.

use super::EntryError;
use super::compact::{Code, Input, code_enum, code_newtype, code_struct};
use model::{
    Ballot, DeploymentCommand, DeploymentId, DestinationStep, Epoch, GlobalCommand, HandedOn, Held,
    Holding, MoveError, MoveId, NodeEntry, Ordered, OrderedMove, Pin, RegistryChange,
    RegistryError, SiteEntry, SiteId, SiteName, Slot, SlotEpochs, SlotSet, SourceStep, StagedItem,
};

code_newtype!(DeploymentId, SiteId, SlotEpochs);
code_struct!(MoveId { from, number });
code_struct!(Pin { keyspace, tag, site });
code_struct!(NodeEntry { node, peer, cluster });

/// A site has several forms, so that what was written before there were failure domains and regions
/// is read, and a site without them is as it was:
///
/// ```text
/// site = id ‖ name ‖ incarnation ‖ capacity ‖ form ‖ nodes ‖ failure domain, if any ‖ region, if any
/// form = leaving (0 or 1) + 2 with a failure domain + 4 with a region
/// ```
const WITH_DOMAIN: u8 = 2;
const WITH_REGION: u8 = 4;

impl Code for SiteEntry {
    fn put(&self, out: &mut Vec<u8>) {
        let SiteEntry { id, name, incarnation, capacity_percent, leaving, nodes, .. } = self;
        let SiteEntry { failure_domain, region, .. } = self;
        id.put(out);
        name.put(out);
        incarnation.put(out);
        capacity_percent.put(out);
        let mut form = u8::from(*leaving);
        form += if failure_domain.is_some() { WITH_DOMAIN } else { 0 };
        form += if region.is_some() { WITH_REGION } else { 0 };
        out.push(form);
        nodes.put(out);
        for name in [failure_domain, region].into_iter().flatten() {
            name.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<SiteEntry, EntryError> {
        let (id, name) = Code::take(from)?;
        let (incarnation, capacity_percent) = Code::take(from)?;
        let form = from.byte()?;
        if form > 1 + WITH_DOMAIN + WITH_REGION {
            return Err(from.malformed("form of a site"));
        }
        let (leaving, nodes) = (form & 1 == 1, Code::take(from)?);
        let mut named = |with: u8| (form & with == with).then(|| Code::take(from)).transpose();
        let (failure_domain, region) = (named(WITH_DOMAIN)?, named(WITH_REGION)?);
        Ok(SiteEntry {
            id,
            name,
            incarnation,
            capacity_percent,
            leaving,
            failure_domain,
            region,
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
    5 => Node(site, node),
    10 => Backup(site, choice),
    110 => OpenFailover { lost, without },
    111 => DecideFailover { opened, taken },
    112 => CloseFailover(opened),
    113 => ForgetFailover(decided),
    114 => Returned(site),
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
    136 => RebuildOfSeveral(name),
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

/// Appends an epoch, as rows of the state have it.
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
const EPOCH_BYTES_MAX: usize = 6 * super::VARINT_BYTES_MAX;

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
mod tests {
    use super::super::{Batch, decode, decode_command, encode, encode_command};
    use super::*;
    use model::{
        Alteration, Bytes, ClientId, Command, DeploymentCommand, GlobalCommand, Keyspace,
        KeyspaceId, KeyspaceSpec, NodeId, Placement, Registry, RequestId, Revision,
    };
    use proptest::prelude::*;

    fn site() -> SiteEntry {
        SiteEntry {
            id: SiteId(2),
            name: SiteName::new("pier").unwrap(),
            incarnation: 300,
            capacity_percent: 100,
            leaving: false,
            failure_domain: None,
            region: None,
            nodes: vec![NodeEntry { node: NodeId(1), peer: "p:1".into(), cluster: "c:2".into() }],
        }
    }

    fn registry() -> Registry {
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        Registry {
            sites: vec![site()],
            keyspaces: vec![Keyspace { id: KeyspaceId(1), spec }],
            site_next: 3,
            keyspace_next: 2,
            ..Registry::empty(DeploymentId(7), 9)
        }
    }

    fn slots() -> SlotEpochs {
        SlotEpochs(vec![("0-3,9".parse().unwrap(), Epoch::counted(2))])
    }

    fn order() -> SourceStep {
        let id = RequestId { client: ClientId(300), sequence: 4, acknowledged_below: 3 };
        SourceStep::Order { id, slots: "0-9".parse().unwrap(), to: SiteId(2) }
    }

    /// One of each kind.
    fn commands() -> Vec<Command> {
        let id = MoveId { from: SiteId(1), number: 5 };
        let (key, row) = (Bytes::from_static(b"k"), Bytes::from_static(b"r"));
        let items = vec![
            StagedItem::Clock { log_time_ms: 300 },
            StagedItem::Record { keyspace: KeyspaceId(1), key: key.clone(), row: row.clone() },
            StagedItem::Absent { keyspace: KeyspaceId(1), key },
            StagedItem::Remembered {
                slot: Slot::new(3).unwrap(),
                client: ClientId(8),
                sequence: 4,
                floor: 2,
                seen_ms: 6,
                row,
            },
        ];
        let begin = SourceStep::Begin { slots: "9".parse().unwrap(), to: SiteId(2), pinned: true };
        let install = DestinationStep::Install { chunks: 3, revision: Revision(5) };
        vec![
            Command::Deployment(DeploymentCommand::Found {
                deployment: DeploymentId(7),
                site: site(),
            }),
            Command::Deployment(DeploymentCommand::Enter {
                site: SiteId(2),
                registry: Box::new(registry()),
            }),
            Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(site()))),
            Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Node(
                SiteId(2),
                site().nodes.remove(0),
            ))),
            Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(registry()))),
            Command::Deployment(DeploymentCommand::SetRing(Bytes::from_static(b"ring"))),
            Command::Deployment(DeploymentCommand::Confirm),
            Command::Deployment(DeploymentCommand::ConfirmAbove {
                revision: model::Revision(300),
                later: SlotEpochs(vec![("0-9".parse().unwrap(), Epoch::counted(3))]),
            }),
            Command::Global(GlobalCommand::Register { owner: SiteId(2), slots: slots() }),
            Command::Global(GlobalCommand::Source { number: 5, step: begin }),
            Command::Global(GlobalCommand::Source {
                number: 5,
                step: SourceStep::Abort { refused: true },
            }),
            Command::Global(GlobalCommand::Source { number: 0, step: order() }),
            Command::Global(GlobalCommand::Source {
                number: 5,
                step: SourceStep::Reclaim { slots: slots() },
            }),
            Command::Global(GlobalCommand::Destination {
                id,
                step: DestinationStep::Begin { slots: slots(), open_from: 5, pinned: false },
            }),
            Command::Global(GlobalCommand::Destination {
                id,
                step: DestinationStep::Chunk {
                    sequence: 1,
                    resume: Bytes::from_static(b"x"),
                    items,
                },
            }),
            Command::Global(GlobalCommand::Destination { id, step: install }),
            Command::Global(GlobalCommand::Destination { id, step: DestinationStep::Refuse }),
            Command::Global(GlobalCommand::Destination { id, step: DestinationStep::Decline }),
            Command::Global(GlobalCommand::Destination {
                id,
                step: DestinationStep::BeginCopies("9".parse().unwrap()),
            }),
            Command::Global(GlobalCommand::Destination { id, step: take_copies() }),
            Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::RemoveTo {
                site: SiteId(2),
                destinations: vec![SiteId(3)],
            })),
        ]
    }

    fn take_copies() -> DestinationStep {
        let copy = model::SlotCopy::retained(Epoch::counted(3), SiteId(5));
        let owner = Some((SiteId(6), Epoch::counted(4)));
        let copies = vec![HandedOn { slots: "9".parse().unwrap(), copy, owner }];
        DestinationStep::TakeCopies { chunks: 7, copies }
    }

    #[test]
    fn format_1_stays_as_it_is() {
        let step = DestinationStep::Begin { slots: slots(), open_from: 5, pinned: true };
        let command = Command::Global(GlobalCommand::Destination {
            id: MoveId { from: SiteId(1), number: 5 },
            step,
        });
        let expected = b"\x01\x10\x01\x05\x01\x01\x02\x00\x03\x09\x09\x02\x05\x01";
        assert_eq!(&encode_command(&command)[..], expected);
        let items = vec![StagedItem::Clock { log_time_ms: 300 }];
        let step = DestinationStep::Chunk { sequence: 2, resume: Bytes::new(), items };
        let command = Command::Global(GlobalCommand::Destination {
            id: MoveId { from: SiteId(1), number: 5 },
            step,
        });
        assert_eq!(&encode_command(&command)[..], b"\x01\x10\x01\x05\x02\x02\x00\x01\x82\xac\x02");
        let order =
            encode_command(&Command::Global(GlobalCommand::Source { number: 0, step: order() }));
        assert_eq!(&order[..], b"\x01\x0f\x00\xa0\xac\x02\x04\x03\x01\x00\x09\x02");
        let reclaim = Command::Global(GlobalCommand::Source {
            number: 5,
            step: SourceStep::Reclaim { slots: slots() },
        });
        assert_eq!(&encode_command(&reclaim)[..], b"\x01\x0f\x05\xdc\x01\x02\x00\x03\x09\x09\x02");
        let found = Command::Deployment(DeploymentCommand::Found {
            deployment: DeploymentId(7),
            site: site(),
        });
        let expected = b"\x01\x09\x07\x02\x04pier\xac\x02\x64\x00\x01\x01\x03p:1\x03c:2";
        assert_eq!(&encode_command(&found)[..], expected);
    }

    #[test]
    fn a_site_with_a_failure_domain_is_of_another_form() {
        let change = |entry| {
            Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Update(entry)))
        };
        let hall = SiteName::new("hall").ok();
        let mut entry = SiteEntry { failure_domain: hall, nodes: Vec::new(), ..site() };
        for (leaving, form) in [(false, 2), (true, 3)] {
            entry.leaving = leaving;
            let bytes = encode_command(&change(entry.clone()));
            let head = b"\x01\x0b\x02\x02\x04pier\xac\x02\x64";
            assert_eq!(bytes, [&head[..], &[form, 0], b"\x04hall"].concat());
            assert_eq!(decode_command(bytes), Ok(change(entry.clone())));
        }
        let later = b"\x01\x0b\x02\x02\x04pier\xac\x02\x64\x08\x00\x04hall";
        assert!(decode_command(Bytes::from_static(later)).is_err());
    }

    #[test]
    fn a_site_with_a_region_is_of_another_form() {
        let change = |entry| {
            Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry)))
        };
        let (hall, east) = (SiteName::new("hall").ok(), SiteName::new("east").ok());
        let head = b"\x01\x0b\x01\x02\x04pier\xac\x02\x64";
        for (failure_domain, leaving, form, tail) in [
            (None, false, 4, &b"\x04east"[..]),
            (None, true, 5, b"\x04east"),
            (hall.clone(), false, 6, b"\x04hall\x04east"),
            (hall, true, 7, b"\x04hall\x04east"),
        ] {
            let region = east.clone();
            let entry = SiteEntry { failure_domain, leaving, region, nodes: Vec::new(), ..site() };
            let bytes = encode_command(&change(entry.clone()));
            assert_eq!(bytes, [&head[..], &[form, 0], tail].concat());
            for cut in 0..bytes.len() {
                assert!(decode_command(bytes.slice(..cut)).is_err(), "cut at {cut}");
            }
            assert_eq!(decode_command(bytes), Ok(change(entry)));
        }
    }

    #[test]
    fn a_standby_of_one_of_several_regions_has_a_byte_of_its_own() {
        let (choice, by_hand) = (model::StandbyChoice::At(SiteId(300)), true);
        let rule = model::StandbyRule { choice, by_hand };
        for (change, expected) in [
            (RegistryChange::SetStandby(rule), &b"\x7c\x03\xac\x02\x01"[..]),
            (
                RegistryChange::SetStandbyOf { region: model::RegionId(2), rule },
                b"\x80\x02\x03\xac\x02\x01",
            ),
        ] {
            let command = Command::Deployment(DeploymentCommand::ChangeRegistry(change));
            let bytes = encode_command(&command);
            assert_eq!(bytes, [b"\x01\x0b", expected].concat());
            assert_eq!(decode_command(bytes), Ok(command));
        }
    }

    #[test]
    fn changes_of_rules_and_pins_stay_as_they_are() {
        let pin = Pin { keyspace: KeyspaceId(3), tag: "7".into(), site: SiteId(300) };
        let by = Alteration {
            placement: Some(Placement::Adaptive),
            lend_to: Some(vec![SiteId(2)]),
            priority: Some(300),
        };
        let none = Alteration::default();
        let name = "cars".to_owned();
        for (change, expected) in [
            (
                RegistryChange::AlterKeyspace { name: name.clone(), placement: Placement::Off },
                &b"\x67\x04cars\x01"[..],
            ),
            (
                RegistryChange::Alter { name: name.clone(), by },
                b"\x68\x04cars\x01\x02\x01\x01\x02\x01\xac\x02",
            ),
            (RegistryChange::Alter { name, by: none }, b"\x68\x04cars\x00\x00\x00"),
            (RegistryChange::Pin(pin), b"\x69\x03\x017\xac\x02"),
            (RegistryChange::Unpin { keyspace: KeyspaceId(3), tag: "7".into() }, b"\x6a\x03\x017"),
        ] {
            let command = Command::Deployment(DeploymentCommand::ChangeRegistry(change));
            let bytes = encode_command(&command);
            assert_eq!(bytes, [b"\x01\x0b", expected].concat());
            assert_eq!(decode_command(bytes), Ok(command));
        }
    }

    #[test]
    fn every_command_comes_back_and_none_is_another_when_it_is_cut() {
        let batch = Batch { log_time_ms: 1, commands: commands() };
        assert_eq!(decode(encode(&batch)), Ok(batch));
        for command in commands() {
            let bytes = encode_command(&command);
            for cut in 0..bytes.len() {
                assert!(decode_command(bytes.slice(..cut)).is_err(), "{command:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_came_of_an_order_comes_back() {
        let slots = |text: &str| -> SlotSet { text.parse().unwrap() };
        let holding = |held| Holding { slots: slots("5"), epoch: Epoch::counted(3), held };
        let ordered = Ordered {
            moves: vec![
                OrderedMove { number: 7, slots: slots("0-3"), gone: None },
                OrderedMove { number: 9, slots: slots("4-8"), gone: Some(slots("4")) },
            ],
            refused: Some(MoveError::TooManyMoves),
            holdings: [Held::Here, Held::Leaving(SiteId(2), 7), Held::Gone(SiteId(3))]
                .map(holding)
                .to_vec(),
        };
        let outcome = Ok(model::Answer::Ordered(Box::new(ordered)));
        let bytes = super::super::encode_reply(&outcome);
        assert_eq!(super::super::decode_reply(bytes.clone()), Ok(outcome));
        for cut in 0..bytes.len() {
            assert!(super::super::decode_reply(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn an_epoch_without_a_failover_is_the_count_that_it_always_was() {
        let put = |epoch: Epoch| {
            let mut out = Vec::new();
            put_epoch(epoch, &mut out);
            assert_eq!(take_epoch(&out), Some((epoch, out.len())));
            out
        };
        assert_eq!(put(Epoch::counted(300)), [0xac, 2]);
        let decided = Ballot { round: 7, site: SiteId(2), ..Ballot::FIRST };
        let marker = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let long = [&marker[..], &[0, 0, 7, 2, 1]].concat();
        assert_eq!(put(Epoch::of_failover(decided).next()), long);
        assert_eq!(take_epoch(&[&marker[..], &[0, 0, 0, 0, 1]].concat()), None, "one form of each");
    }

    #[test]
    fn slots_that_are_none_are_refused() {
        for wrong in [&b"\x01\x0f\x05\x01\x01\x04\x03"[..], b"\x01\x0f\x05\x01\x01\x00\x80\x80\x01"]
        {
            assert!(decode_command(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn no_change_of_good_bytes_does_harm(which in 0usize..14, at in any::<usize>(), to in any::<u8>()) {
            let mut bytes = encode_command(&commands()[which]).to_vec();
            let at = at % bytes.len();
            bytes[at] = to;
            super::super::check_any(&bytes);
        }
    }
}
