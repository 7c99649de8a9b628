use super::super::{decode_command, encode_command};
use super::super::{decode_registry, decode_reply, encode_registry, encode_reply};
use super::super::{decode_taken, encode_taken};
use super::*;
use model::{
    Answer, Ballot, Bytes, Changed, ClientId, Command, DeploymentCommand, DeploymentId, Epoch,
    GlobalCommand, Refusal, Region, RegionId, Registrars, RegistryChange, RegistryError,
    Remembered, RequestId, Revision, SiteId, SlotEpochs, StagedItem, Term, TermBegan, TermIds,
};

fn registry() -> Registry {
    Registry { site_next: 3, keyspace_next: 2, ..Registry::empty(DeploymentId(7), 9) }
}

fn slots() -> SlotEpochs {
    SlotEpochs(vec![("0-3,9".parse().unwrap(), Epoch::counted(2))])
}

#[test]
fn format_1_of_a_registry_stays_as_it_is() {
    let version = Ballot { term: Term { number: 1, site: SiteId(2) }, round: 3, site: SiteId(1) };
    let since = Ballot { round: 300, site: SiteId(2), ..Ballot::FIRST };
    let id = RequestId { client: ClientId(8), sequence: 4, acknowledged_below: 3 };
    let mut failovers = Failovers::default();
    failovers.open(since, SiteId(2), &[SiteId(3)]).unwrap();
    let taken = Taken { by: SiteId(1), slots: "7".parse().unwrap(), from: None };
    assert!(failovers.decide(version, since, vec![taken]));
    failovers.last = vec![(SiteId(300), since)];
    let ids = TermIds {
        site_first: 300,
        keyspace_first: 10,
        sites_dropped: vec![SiteId(9)],
        keyspaces_dropped: vec![model::KeyspaceId(8)],
    };
    let standby = model::Standby { site: SiteId(8), in_sync: true, since };
    let end = model::LostEnd { until: 300, above: model::Position(300) };
    let rebuilt = model::Rebuilt { is_open: true, ..model::Rebuilt::of(end) };
    let mut region = Region::new(RegionId(1), 300, SiteId(7));
    region.cut = Some(model::Position(5));
    region.next = Some(SiteId(8));
    region.rebuilt = Some(rebuilt);
    region.standby = Some(standby);
    region.standby_rule.choice = model::StandbyChoice::At(SiteId(8));
    let registry = Registry {
        version,
        changes: 12,
        registrars: Registrars {
            set: [SiteId(1), SiteId(2)].into_iter().collect(),
            since,
            before: [SiteId(1)].into_iter().collect(),
        },
        outcomes: vec![
            Remembered { id, outcome: Ok(Changed::Site(SiteId(2))) },
            Remembered { id, outcome: Err(RegistryError::TooManySites) },
        ],
        began: vec![TermBegan { after: since, site_next: 3, keyspace_next: 2, ids: Some(ids) }],
        backups: Backups { chosen: vec![(SiteId(1), BackupChoice::At(SiteId(2)))] },
        failovers,
        handed_in: vec![SiteId(301)],
        regions: vec![region],
        ..registry()
    };
    let bytes = encode_registry(&registry);
    let expected = b"\x01\x07\x01\x02\x03\x01\x0c\
        \x02\x01\x02\x00\x00\xac\x02\x02\x01\x01\
        \x02\x08\x04\x03\x01\x01\x02\x08\x04\x03\x00\x03\
        \x01\x00\x00\xac\x02\x02\x03\x02\x01\xac\x02\x0a\x01\x09\x01\x08\
        \x00\x00\x03\x02\x01\x01\x02\x02\
        \x00\x01\x01\x02\x03\x01\x00\x00\xac\x02\x02\x02\x01\x03\x01\x01\x01\x07\x07\x00\x00\
        \x01\xac\x02\x00\x00\xac\x02\x02\x01\xad\x02\
        \x01\x01\xac\x02\x07\x01\x05\x01\x08\x01\xac\x02\xac\x02\x01\
        \x01\x08\x01\x00\x00\xac\x02\x02\x03\x08\x00";
    assert_eq!(&bytes[..], expected);
    assert_eq!(decode_registry(bytes.clone()).as_ref(), Ok(&registry));
    for cut in 0..bytes.len() {
        assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
    }
    // With ends of earlier rebuilds.
    let earlier = model::LostEnd { until: 9, above: model::Position(8) };
    let mut twice = registry.clone();
    let rebuilt = twice.regions[0].rebuilt.as_mut().expect("it was rebuilt");
    (rebuilt.earlier[0], rebuilt.is_open) = (earlier, false);
    let bytes = encode_registry(&twice);
    let at = expected.len() - 11;
    assert_eq!(&expected[at - 5..at], b"\xac\x02\xac\x02\x01");
    let with = [&expected[..at - 1], b"\x02\x01\x09\x08", &expected[at..]].concat();
    assert_eq!(bytes, with);
    assert_eq!(decode_registry(bytes.clone()).as_ref(), Ok(&twice));
    for cut in 0..bytes.len() {
        assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
    }
    let later = [&expected[..at - 1], b"\x04", &expected[at..]].concat();
    assert!(decode_registry(later.into()).is_err(), "a form of a later version");
    let too_many = model::limits::EARLIER_ENDS_MAX + 1;
    let ends = [&[2, too_many as u8][..], &b"\x09\x08".repeat(too_many)].concat();
    let many = [&expected[..at - 1], &ends, &expected[at..]].concat();
    assert!(decode_registry(many.into()).is_err(), "more than there is room for");
    // With pins; without them it is read as it was before there were any.
    let pin = model::Pin { keyspace: model::KeyspaceId(3), tag: "7".into(), site: SiteId(300) };
    let pinned = Registry { pins: vec![pin], ..registry };
    let bytes = encode_registry(&pinned);
    let expected = [b"\x01\x00\x02", &expected[1..], b"\x01\x03\x017\xac\x02"].concat();
    assert_eq!(bytes, expected);
    assert_eq!(decode_registry(bytes.clone()).as_ref(), Ok(&pinned));
    for cut in 0..bytes.len() {
        assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
    }
    let later = [b"\x01\x00\x03", &bytes[3..]].concat();
    assert!(decode_registry(later.into()).is_err(), "a form of a later version");
}

#[test]
fn every_step_comes_back_and_none_is_another_when_it_is_cut() {
    let items = vec![StagedItem::Cleared { keyspace: model::KeyspaceId(1) }];
    let reached = Reached { revision: Revision(5), complete: slots(), holds: 7 };
    let chunk = MirrorStep::Chunk {
        sequence: 1,
        resume: Bytes::from_static(b"x"),
        gone: "7".parse().unwrap(),
        items,
        reached: Some(reached),
    };
    let (from, lost, by, number) = (SiteId(2), SiteId(2), SiteId(1), 300);
    for command in [
        Command::Global(GlobalCommand::SetMirror { to: Some(by) }),
        Command::Global(GlobalCommand::EndMirror { of: from, number }),
        Command::Global(GlobalCommand::Mirror { from, number, step: MirrorStep::Begin }),
        Command::Global(GlobalCommand::Mirror { from, number, step: chunk }),
    ] {
        let bytes = encode_command(&command);
        for cut in 0..bytes.len() {
            assert!(decode_command(bytes.slice(..cut)).is_err(), "{command:?} cut at {cut}");
        }
        assert_eq!(decode_command(bytes), Ok(command));
    }
    let copy = SlotCopy::retained(Epoch::counted(2), by);
    let inventory = Inventory {
        owners: vec![(SiteId(3), slots())],
        copies: vec![CopyRun { copy, slots: "7".parse().unwrap(), keys: 300 }],
        frozen: vec![(lost, "8".parse().unwrap())],
    };
    let slots_taken = "7".parse().unwrap();
    let taken = vec![Taken { by, slots: slots_taken, from: Some((Epoch::counted(2), 9)) }];
    assert_eq!(decode_taken(encode_taken(&taken)), Ok(taken.clone()));
    for answer in [
        Answer::FromBackup { outcome: Box::new(Ok(Answer::Value(None))), caught_up_ms: 5 },
        Answer::FromBackup { outcome: Box::new(Err(Refusal::WrongType)), caught_up_ms: 5 },
        Answer::Mirrored { chunks: 1, resume: Bytes::new(), complete: slots() },
        Answer::Inventory(Box::new(inventory)),
        Answer::Loss(Box::new(Loss { silent: vec![SiteId(3)], ..Loss::of(lost, by) })),
        Answer::Foretold { loss: Box::new(Loss::of(lost, by)), taken },
    ] {
        assert_eq!(decode_reply(encode_reply(&Ok(answer.clone()))), Ok(Ok(answer)));
    }
}

#[test]
fn answers_of_backups_do_not_nest() {
    let mut bytes = vec![1, 1];
    bytes.extend([20, 1].repeat(100_000));
    assert!(decode_reply(bytes.into()).is_err());
}

/// The removal of a site, as it is written and as it was before it named decisions.
#[test]
fn format_1_of_a_removal_stays_as_it_is() {
    let (site, destinations) = (SiteId(3), vec![SiteId(4)]);
    let decided = Ballot { round: 300, site: SiteId(2), ..Ballot::FIRST };
    let decisions = vec![decided];
    let changes = [
        (RegistryChange::Remove(site), vec![11, 4, 3]),
        (
            RegistryChange::RemoveTo { site, destinations: destinations.clone() },
            vec![11, 190, 3, 1, 4],
        ),
        (
            RegistryChange::RemoveBy { site, destinations, decisions },
            vec![11, 116, 3, 1, 4, 1, 0, 0, 0xac, 2, 2],
        ),
    ];
    for (change, bytes) in changes {
        let command = Command::Deployment(DeploymentCommand::ChangeRegistry(change));
        let encoded = encode_command(&command);
        assert_eq!(encoded[1..], bytes);
        assert_eq!(decode_command(encoded), Ok(command));
    }
}

/// The return of a site, as it is written and as it was before it named a version.
#[test]
fn format_1_of_a_return_stays_as_it_is() {
    let known = Ballot { round: 300, site: SiteId(2), ..Ballot::FIRST };
    let changes = [
        (RegistryChange::Returned(SiteId(3)), vec![11, 114, 3]),
        (RegistryChange::ReturnedBy { site: SiteId(3), known }, vec![11, 115, 3, 0, 0, 0xac, 2, 2]),
    ];
    for (change, bytes) in changes {
        let command = Command::Deployment(DeploymentCommand::ChangeRegistry(change));
        let encoded = encode_command(&command);
        assert_eq!(encoded[1..], bytes);
        assert_eq!(decode_command(encoded), Ok(command));
    }
}
