use super::super::{decode_command, encode_command};
use super::super::{decode_registry, decode_reply, encode_registry, encode_reply};
use super::super::{decode_taken, encode_taken};
use super::*;
use model::{
    Answer, Ballot, Bytes, Changed, ClientId, Command, Epoch, GlobalCommand, Refusal, RegionId,
    Registrars, RegistryError, Remembered, RequestId, Revision, SlotEpochs, StagedItem, Term,
    TermBegan, TermIds,
};

fn registry(backups: Backups) -> Registry {
    Registry { site_next: 3, keyspace_next: 2, backups, ..Registry::of_before(DeploymentId(7), 9) }
}

fn slots() -> SlotEpochs {
    SlotEpochs(vec![("0-3,9".parse().unwrap(), Epoch::counted(2))])
}

fn promotion() -> Promotion {
    let mirrored = "0-2".parse().unwrap();
    let (lost, by, kept) = (SiteId(2), SiteId(1), Vec::new());
    Promotion { lost, by, number: 300, taken: slots(), mirrored, kept }
}

fn promotion_with_kept() -> Promotion {
    Promotion { kept: vec![(SiteId(3), slots())], ..promotion() }
}

/// The bytes are this registry, and no part of them is one.
fn is_whole(bytes: &Bytes, registry: &Registry) {
    assert_eq!(decode_registry(bytes.clone()).as_ref(), Ok(registry));
    for cut in 0..bytes.len() {
        assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_registry_of_before_there_were_backups_is_read_and_written_as_then() {
    let old = Bytes::from_static(b"\x01\x07\x09\x00\x00\x03\x02");
    assert_eq!(decode_registry(old.clone()), Ok(registry(Backups::default())));
    assert_eq!(encode_registry(&registry(Backups::default())), old);
}

#[test]
fn a_registry_with_backups_stays_as_it_is() {
    let backups = Backups {
        chosen: vec![(SiteId(1), BackupChoice::At(SiteId(2))), (SiteId(2), BackupChoice::Off)],
        promotions: vec![promotion()],
        returned: vec![(SiteId(3), Revision(4))],
    };
    let bytes = encode_registry(&registry(backups.clone()));
    let expected = b"\x01\x00\x07\x09\x00\x00\x03\x02\x02\x01\x02\x02\x02\x03\x01\x02\x01\xac\x02\
        \x01\x02\x00\x03\x09\x09\x02\x01\x00\x02\x01\x03\x04";
    assert_eq!(&bytes[..], expected);
    assert_eq!(decode_registry(bytes), Ok(registry(backups)));
    let empty = Bytes::from_static(b"\x01\x00\x07\x09\x00\x00\x03\x02\x00\x00\x00");
    assert!(decode_registry(empty).is_err(), "there is one form of each registry");
}

#[test]
fn a_registry_that_registrars_hold_has_a_form_of_its_own() {
    let set = [SiteId(1), SiteId(2)].into_iter().collect();
    let version = Ballot { term: Term { number: 1, site: SiteId(2) }, round: 3, site: SiteId(1) };
    let since = Ballot { term: Term::default(), round: 300, site: SiteId(2) };
    let id = RequestId { client: ClientId(8), sequence: 4, acknowledged_below: 3 };
    let registry = Registry {
        version,
        changes: 12,
        registrars: Registrars { set, since, before: [SiteId(1)].into_iter().collect() },
        outcomes: vec![
            Remembered { id, outcome: Ok(Changed::Site(SiteId(2))) },
            Remembered { id, outcome: Err(RegistryError::TooManySites) },
        ],
        began: vec![TermBegan { after: since, site_next: 3, keyspace_next: 2, ids: None }],
        ..registry(Backups::default())
    };
    let bytes = encode_registry(&registry);
    let expected = b"\x01\x00\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x64\x0c\
        \x01\x02\x03\x01\x02\x01\x02\x00\x00\xac\x02\x02\x01\x01\
        \x02\x08\x04\x03\x01\x01\x02\x08\x04\x03\x00\x03\
        \x01\x00\x00\xac\x02\x02\x03\x02\
        \x00\x00\x03\x02\x00\x00\x00";
    assert_eq!(&bytes[..], expected);
    assert_eq!(decode_registry(bytes), Ok(registry.clone()));
    // Of several terms.
    let mut longer = registry;
    let (site_next, keyspace_next, ids) = (9, 8, None);
    longer.began.push(TermBegan { after: version, site_next, keyspace_next, ids });
    let bytes = encode_registry(&longer);
    let began = b"\x02\x00\x00\xac\x02\x02\x03\x02\x01\x02\x03\x01\x09\x08";
    assert_eq!(bytes[13], 170);
    assert!(bytes.windows(began.len()).any(|some| some == began), "{bytes:?}");
    assert_eq!(decode_registry(bytes), Ok(longer.clone()));
    // Of sites that have handed their join in.
    longer.handed_in = vec![SiteId(300), SiteId(301)];
    let bytes = encode_registry(&longer);
    assert_eq!(bytes[13], 230);
    assert!(bytes.ends_with(b"\x02\xac\x02\xad\x02"), "{bytes:?}");
    assert_eq!(decode_registry(bytes), Ok(longer.clone()));
    // With the ids that its terms assign.
    longer.handed_in.clear();
    longer.began[1].ids = Some(TermIds {
        site_first: 300,
        keyspace_first: 10,
        sites_dropped: vec![SiteId(9)],
        keyspaces_dropped: vec![model::KeyspaceId(8), model::KeyspaceId(9)],
    });
    let bytes = encode_registry(&longer);
    let began = b"\x02\x00\x00\xac\x02\x02\x03\x02\x00\x01\x02\x03\x01\x09\x08\
        \x01\xac\x02\x0a\x01\x09\x02\x08\x09";
    assert_eq!(bytes[13], 240);
    assert!(bytes.windows(began.len()).any(|some| some == began), "{bytes:?}");
    is_whole(&bytes, &longer);
    // With regions: all parts before them as in the form before.
    longer.regions = vec![Region::new(RegionId(1), 300, SiteId(7))];
    let before = bytes;
    let bytes = encode_registry(&longer);
    assert_eq!(bytes[13], 250);
    assert_eq!(bytes[14..before.len()], before[14..]);
    assert_eq!(bytes[before.len()..], *b"\x01\x01\xac\x02\x07");
    is_whole(&bytes, &longer);
    // With another root than the first one, or one that is to be it.
    longer.regions[0].cut = Some(model::Position(5));
    longer.regions[0].next = Some(SiteId(8));
    let bytes = encode_registry(&longer);
    assert_eq!(bytes[13], 251);
    assert_eq!(bytes[14..before.len()], before[14..]);
    assert_eq!(bytes[before.len()..], *b"\x01\x01\xac\x02\x07\x01\x05\x01\x08");
    is_whole(&bytes, &longer);
    // With one that was lost.
    let above = model::Position(300);
    longer.regions[0].rebuilt = Some(model::Rebuilt { until: 300, above, is_open: true });
    let bytes = encode_registry(&longer);
    assert_eq!(bytes[13], 252);
    assert_eq!(bytes[14..before.len()], before[14..]);
    assert_eq!(
        bytes[before.len()..],
        *b"\x01\x01\xac\x02\x07\x01\x05\x01\x08\x01\xac\x02\xac\x02\x01"
    );
    is_whole(&bytes, &longer);
    // With the last failovers of sites: all parts before them as in the form before.
    let mut failed = longer.clone();
    let last = Ballot { round: 9, site: SiteId(2), ..Ballot::FIRST };
    failed.failovers.last = vec![(SiteId(300), last)];
    let of_last = encode_registry(&failed);
    assert_eq!(of_last[13], 253);
    assert_eq!(of_last[14..bytes.len()], bytes[14..]);
    assert_eq!(of_last[bytes.len()..], *b"\x01\xac\x02\x00\x00\x09\x02");
    is_whole(&of_last, &failed);
    // With a standby.
    let since = Ballot { round: 9, site: SiteId(2), ..Ballot::FIRST };
    longer.regions[0].standby = Some(model::Standby { site: SiteId(8), in_sync: true, since });
    longer.regions[0].standby_rule.choice = model::StandbyChoice::At(SiteId(8));
    let with_rebuild = bytes;
    let bytes = encode_registry(&longer);
    assert_eq!(bytes[13], 254);
    assert_eq!(bytes[14..with_rebuild.len()], with_rebuild[14..]);
    assert_eq!(bytes[with_rebuild.len()..], *b"\x01\x08\x01\x00\x00\x09\x02\x03\x08\x00\x00");
    is_whole(&bytes, &longer);
    // With both.
    failed.regions = longer.regions;
    let with_standby = bytes;
    let bytes = encode_registry(&failed);
    let before = with_standby.len() - 1;
    assert_eq!(bytes[..before], with_standby[..before]);
    assert_eq!(bytes[before..], *b"\x01\xac\x02\x00\x00\x09\x02");
    assert_eq!(decode_registry(bytes), Ok(failed));
}

#[test]
fn a_promotion_says_what_was_kept_in_a_form_of_its_own() {
    let promotions = |one: Promotion| Backups { promotions: vec![one], ..Backups::default() };
    let short = encode_registry(&registry(promotions(promotion())));
    let long = encode_registry(&registry(promotions(promotion_with_kept())));
    let of_both = b"\x02\x01\xac\x02\x01\x02\x00\x03\x09\x09\x02\x01\x00\x02";
    let at = |bytes: &[u8]| bytes.windows(of_both.len()).position(|some| some == of_both);
    let (in_short, in_long) = (at(&short).unwrap(), at(&long).unwrap());
    assert_eq!(in_long, in_short + 1);
    assert_eq!(long[in_short], 0);
    let kept = &long[in_long + of_both.len()..];
    assert_eq!(kept, b"\x01\x03\x01\x02\x00\x03\x09\x09\x02\x00");
    assert_eq!(decode_registry(long), Ok(registry(promotions(promotion_with_kept()))));
    let empty = [&short[..in_short], b"\x00", of_both, b"\x00\x00"].concat();
    assert!(decode_registry(empty.into()).is_err(), "there is one form of each promotion");
}

#[test]
fn every_step_comes_back_and_none_is_another_when_it_is_cut() {
    let items = vec![StagedItem::Cleared { keyspace: model::KeyspaceId(1) }];
    let reached = Reached { revision: Revision(5), log_time_ms: 6, whole: slots(), holds: 7 };
    let chunk = MirrorStep::Chunk {
        sequence: 1,
        resume: Bytes::from_static(b"x"),
        gone: "7".parse().unwrap(),
        items,
        reached: Some(reached),
    };
    let (from, lost, by, number) = (SiteId(2), SiteId(2), SiteId(1), 300);
    let registry = Box::new(registry(Backups::default()));
    for command in [
        Command::Global(GlobalCommand::SetMirror { to: Some(by) }),
        Command::Global(GlobalCommand::EndMirror { of: from, number }),
        Command::Global(GlobalCommand::Mirror { from, number, step: MirrorStep::Begin }),
        Command::Global(GlobalCommand::Mirror { from, number, step: chunk }),
        Command::Global(GlobalCommand::Fence { lost, by, number, step: Fencing::Set }),
        Command::Global(GlobalCommand::Promote {
            promotion: promotion(),
            registry: registry.clone(),
        }),
        Command::Global(GlobalCommand::Promote {
            promotion: promotion_with_kept(),
            registry: registry.clone(),
        }),
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
        Answer::FromBackup { outcome: Box::new(Ok(Answer::Value(None))), in_step_ms: 5 },
        Answer::FromBackup { outcome: Box::new(Err(Refusal::WrongType)), in_step_ms: 5 },
        Answer::Mirrored { chunks: 1, resume: Bytes::new(), whole: slots() },
        Answer::Inventory(Box::new(inventory)),
        Answer::Loss(Box::new(Loss { silent: vec![SiteId(3)], ..Loss::of(lost, by) })),
        Answer::Foretold { loss: Box::new(Loss::of(lost, by)), taken },
    ] {
        assert_eq!(decode_reply(encode_reply(&Ok(answer.clone()))), Ok(Ok(answer)));
    }
}

#[test]
fn a_registry_has_its_failovers_in_a_form_of_its_own() {
    let mut without = registry(Backups::default());
    without.adopt(SiteId(1));
    let mut with = without.clone();
    let version = Ballot { round: 12, site: SiteId(1), ..Ballot::FIRST };
    with.failovers.open(version, SiteId(2), &[SiteId(3)]).unwrap();
    let taken = Taken { by: SiteId(1), slots: "7".parse().unwrap(), from: None };
    assert!(with.failovers.decide(version, version, vec![taken]));
    with.failovers.open(version, SiteId(3), &[]).unwrap();
    for one in [&without, &with] {
        assert_eq!(decode_registry(encode_registry(one)).as_ref(), Ok(one));
    }
    let (short, long) = (encode_registry(&without), encode_registry(&with));
    let at = short.iter().zip(&long).position(|(one, other)| one != other).unwrap();
    assert_eq!((short[at], long[at]), (FORM, FORM_WITH_FAILOVERS));
    assert_eq!(long[at + 1..short.len()], short[at + 1..]);
    for cut in short.len()..long.len() {
        assert!(decode_registry(long.slice(..cut)).is_err(), "cut at {cut}");
    }
}

#[test]
fn answers_of_backups_do_not_nest() {
    let mut bytes = vec![1, 1];
    bytes.extend([20, 1].repeat(100_000));
    assert!(decode_reply(bytes.into()).is_err());
}
