//! Every form is read again as it was written.

use super::super::{Batch, decode, decode_command, encode, encode_command};
use super::*;
use model::{
    Alteration, Bytes, ClientId, Command, DeploymentCommand, GlobalCommand, Keyspace, KeyspaceId,
    KeyspaceSpec, NodeId, Placement, Registry, RequestId, Revision,
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
        borrowed_bytes_max: None,
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
        Command::Deployment(DeploymentCommand::Found { deployment: DeploymentId(7), site: site() }),
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
            step: DestinationStep::Chunk { sequence: 1, resume: Bytes::from_static(b"x"), items },
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
    let found =
        Command::Deployment(DeploymentCommand::Found { deployment: DeploymentId(7), site: site() });
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
    let change =
        |entry| Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry)));
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
    for wrong in [&b"\x01\x0f\x05\x01\x01\x04\x03"[..], b"\x01\x0f\x05\x01\x01\x00\x80\x80\x01"] {
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
