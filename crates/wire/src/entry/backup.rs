//! Backups of sites: mirrors, fences, promotions; and the registry, which contains them.
//!
//! The registry has several forms. As long as no backup was chosen or promoted it is written as it
//! was before there were any, so that nodes of that version go on reading it:
//!
//! ```text
//! registry = deployment ‖ version ‖ sites ‖ keyspaces ‖ next site ‖ next keyspace
//!          | 0 ‖ the same ‖ backups
//!          | 0 ‖ deployment ‖ 2^64 - 1 ‖ 100 ‖ changes ‖ version ‖ registrars ‖ outcomes ‖ how its
//!            term began ‖ sites ‖ keyspaces ‖ next site ‖ next keyspace ‖ backups
//! ```
//!
//! In the first two, of before there were registrars, the version counts changes. The third one is of
//! registries that registrars hold. With 170 in the place of 100 it has how several terms began, with 110 also
//! failovers at its end, with 230 also the sites that have handed their join in. With 240 it has all of that, and the
//! ids that terms assign, with 250 also regions whose roots are their first ones, with 251 regions whose root
//! was never lost, and with 252 regions without a standby. With 253 it has all of that, and the last failovers of sites,
//! with 254 also regions that have a standby, or are to have one.
//!
//! A deployment's id is never drawn as 0. A promotion has two forms likewise, as no site's id is 0: the
//! longer one has what sources have kept.
//!
//! ```text
//! promotion = lost ‖ by ‖ number ‖ taken ‖ mirrored
//!           | 0 ‖ the same ‖ kept
//! ```

use super::EntryError;
use super::causal::{FirstRegion, MovedRegion, SingleRegion};
use super::compact::{Code, Input, code_enum, code_struct};
use model::{
    BackupChoice, BackupError, Backups, CopyRun, DecidedFailover, DeploymentId, Failovers, Fencing,
    Inventory, Loss, Mirroring, OpenFailover, Promotion, Reached, Region, Registry, SiteId,
    SlotCopy, Tag, Taken, TermBegan,
};

code_enum!(BackupChoice as "choice of a backup" {
    1 => Next,
    2 => At(site),
    3 => Off,
});

code_struct!(Backups { chosen, promotions, returned });

code_enum!(Mirroring as "step of a mirror" {
    1 => Begin,
    2 => Piece { sequence, resume, gone, items, reached },
});

code_struct!(Reached { revision, log_time_ms, whole, holds });

code_enum!(Fencing as "step of a fence" {
    1 => Set,
    2 => Lift,
});

code_struct!(Tag { epoch, generation });
code_struct!(SlotCopy { tag, origin, position });
code_struct!(OpenFailover { opened, lost, without });
code_struct!(Taken { by, slots, from });
code_struct!(DecidedFailover { decided, opened, lost, without, taken, returned });

/// Without what is kept beyond the decisions, which has a place of its own.
impl Code for Failovers {
    fn put(&self, out: &mut Vec<u8>) {
        self.open.put(out);
        self.decided.put(out);
    }

    fn take(from: &mut Input) -> Result<Failovers, EntryError> {
        Ok(Failovers { open: Code::take(from)?, decided: Code::take(from)?, last: Vec::new() })
    }
}

code_struct!(CopyRun { copy, slots, keys });
code_struct!(Inventory { owners, copies, frozen });
code_struct!(Loss {
    lost,
    by,
    done,
    holds,
    mirrored,
    keys,
    revision,
    in_step_ms,
    answers,
    silent,
    empty,
});

code_enum!(BackupError as "backup error" {
    1 => NotTheBackup,
    2 => Outdated,
    3 => Fenced(by),
    4 => Promoted(by),
    5 => Answers(site),
    6 => Silent(sites),
    7 => None,
    190 => Worse,
});

/// How a term began, as earlier builds wrote it.
struct BeganBefore(TermBegan);

impl Code for BeganBefore {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.after.put(out);
        self.0.site_next.put(out);
        self.0.keyspace_next.put(out);
    }

    fn take(from: &mut Input) -> Result<BeganBefore, EntryError> {
        let after = Code::take(from)?;
        let (site_next, keyspace_next) = (Code::take(from)?, Code::take(from)?);
        Ok(BeganBefore(TermBegan { after, site_next, keyspace_next, ids: None }))
    }
}

/// What stands in the place of a deployment's id when backups follow.
const WITH_BACKUPS: DeploymentId = DeploymentId(0);
/// What stands in the place of the version when registrars follow, and the form of that.
const WITH_REGISTRARS: u64 = u64::MAX;
const FORM: u8 = 100;
/// The same with how several terms began.
const FORM_WITH_TERMS: u8 = 170;
/// The same, with failovers at its end.
const FORM_WITH_FAILOVERS: u8 = 110;
/// The same, with the sites that have handed their join in at its end.
const FORM_WITH_HANDED_IN: u8 = 230;
/// The same, with the ids that terms assign; all parts may be empty.
const FORM_WITH_IDS: u8 = 240;
/// The same, with the regions of causal keyspaces at its end; all other parts may be empty.
const FORM_WITH_REGIONS: u8 = 250;
/// The same, with regions whose root has changed, or is to change.
const FORM_WITH_ROOTS: u8 = 251;
/// The same, with regions whose root was lost.
const FORM_WITH_REBUILDS: u8 = 252;
/// The same, with the last failovers of sites at its end; all other parts may be empty.
const FORM_WITH_LAST: u8 = 253;
/// The same, with regions that have a standby, or are to have one; the last failovers may be none.
const FORM_WITH_STANDBYS: u8 = 254;
const FORMS: [u8; 10] = [
    FORM,
    FORM_WITH_TERMS,
    FORM_WITH_FAILOVERS,
    FORM_WITH_HANDED_IN,
    FORM_WITH_IDS,
    FORM_WITH_REGIONS,
    FORM_WITH_ROOTS,
    FORM_WITH_REBUILDS,
    FORM_WITH_LAST,
    FORM_WITH_STANDBYS,
];
/// The forms with all parts of earlier ones, whether empty or not.
const LONG_FORMS: [u8; 6] = [
    FORM_WITH_IDS,
    FORM_WITH_REGIONS,
    FORM_WITH_ROOTS,
    FORM_WITH_REBUILDS,
    FORM_WITH_LAST,
    FORM_WITH_STANDBYS,
];

/// Regions as an earlier form has them.
fn put_regions<T: Code>(regions: &[Region], form: fn(Region) -> T, out: &mut Vec<u8>) {
    regions.iter().copied().map(form).collect::<Vec<_>>().put(out);
}

fn take_regions<T: Code>(
    from: &mut Input,
    region: fn(T) -> Region,
) -> Result<Vec<Region>, EntryError> {
    Ok(Vec::<T>::take(from)?.into_iter().map(region).collect())
}

impl Code for Registry {
    fn put(&self, out: &mut Vec<u8>) {
        let Registry {
            deployment,
            version,
            changes,
            registrars,
            outcomes,
            began,
            sites,
            keyspaces,
            site_next,
            keyspace_next,
            backups,
            failovers,
            handed_in,
            regions,
        } = self;
        let is_of_before = self.is_of_before();
        let is_long = !is_of_before || !backups.is_empty() || *deployment == WITH_BACKUPS;
        let has_ids = began.iter().any(|one| one.ids.is_some());
        let form = match (is_of_before, handed_in.is_empty(), failovers.is_empty(), began.len()) {
            (false, ..) if !regions.iter().all(SingleRegion::is) => FORM_WITH_STANDBYS,
            (false, ..) if !failovers.last.is_empty() => FORM_WITH_LAST,
            (false, ..) if !regions.iter().all(MovedRegion::is) => FORM_WITH_REBUILDS,
            (false, ..) if !regions.iter().all(FirstRegion::is) => FORM_WITH_ROOTS,
            (false, ..) if !regions.is_empty() => FORM_WITH_REGIONS,
            (false, ..) if has_ids => FORM_WITH_IDS,
            (false, false, _, _) => FORM_WITH_HANDED_IN,
            (false, true, false, _) => FORM_WITH_FAILOVERS,
            (false, true, true, 2..) => FORM_WITH_TERMS,
            _ => FORM,
        };
        if is_long {
            WITH_BACKUPS.put(out);
        }
        deployment.put(out);
        if is_of_before {
            changes.put(out);
        } else {
            WITH_REGISTRARS.put(out);
            out.push(form);
            changes.put(out);
            version.put(out);
            registrars.put(out);
            outcomes.put(out);
            let before = || began.iter().cloned().map(BeganBefore);
            match form {
                FORM => before().next().put(out),
                form if LONG_FORMS.contains(&form) => began.put(out),
                _ => before().collect::<Vec<_>>().put(out),
            }
        }
        sites.put(out);
        keyspaces.put(out);
        site_next.put(out);
        keyspace_next.put(out);
        if is_long {
            backups.put(out);
        }
        let is_long = LONG_FORMS.contains(&form);
        if is_long || [FORM_WITH_FAILOVERS, FORM_WITH_HANDED_IN].contains(&form) {
            failovers.put(out);
        }
        if is_long || form == FORM_WITH_HANDED_IN {
            handed_in.put(out);
        }
        match form {
            FORM_WITH_REGIONS => put_regions(regions, FirstRegion, out),
            FORM_WITH_ROOTS => put_regions(regions, MovedRegion, out),
            FORM_WITH_REBUILDS => put_regions(regions, SingleRegion, out),
            FORM_WITH_LAST => {
                put_regions(regions, SingleRegion, out);
                failovers.last.put(out);
            }
            FORM_WITH_STANDBYS => {
                regions.put(out);
                failovers.last.put(out);
            }
            _ => {}
        }
    }

    fn take(from: &mut Input) -> Result<Registry, EntryError> {
        let first = DeploymentId::take(from)?;
        let is_long = first == WITH_BACKUPS;
        let deployment = if is_long { Code::take(from)? } else { first };
        let changes = u64::take(from)?;
        let mut registry = Registry::of_before(deployment, changes);
        let has_registrars = is_long && changes == WITH_REGISTRARS;
        let mut form = FORM;
        if has_registrars {
            form = from.byte()?;
            if !FORMS.contains(&form) {
                return Err(from.malformed("form of a registry"));
            }
            registry.changes = Code::take(from)?;
            registry.version = Code::take(from)?;
            registry.registrars = Code::take(from)?;
            registry.outcomes = Code::take(from)?;
            let before: Vec<BeganBefore> = match form {
                FORM => <Option<BeganBefore> as Code>::take(from)?.into_iter().collect(),
                form if LONG_FORMS.contains(&form) => Vec::new(),
                _ => Code::take(from)?,
            };
            registry.began = match form {
                form if LONG_FORMS.contains(&form) => Code::take(from)?,
                _ => before.into_iter().map(|one| one.0).collect(),
            };
            let has_ids = registry.began.iter().any(|one| one.ids.is_some());
            let is_short = form == FORM_WITH_TERMS && registry.began.len() < 2;
            if is_short || form == FORM_WITH_IDS && !has_ids {
                return Err(from.malformed("registry of the shorter form"));
            }
            if registry.is_of_before() {
                return Err(from.malformed("registrar"));
            }
        }
        registry.sites = Code::take(from)?;
        registry.keyspaces = Code::take(from)?;
        registry.site_next = Code::take(from)?;
        registry.keyspace_next = Code::take(from)?;
        if is_long {
            registry.backups = Code::take(from)?;
            let is_short = registry.backups.is_empty() && registry.deployment != WITH_BACKUPS;
            if is_short && !has_registrars {
                return Err(from.malformed("registry of the shorter form"));
            }
        }
        let has_all = LONG_FORMS.contains(&form);
        if has_all || [FORM_WITH_FAILOVERS, FORM_WITH_HANDED_IN].contains(&form) {
            registry.failovers = Code::take(from)?;
            if form == FORM_WITH_FAILOVERS && registry.failovers.is_empty() {
                return Err(from.malformed("registry of the shorter form"));
            }
        }
        if has_all || form == FORM_WITH_HANDED_IN {
            registry.handed_in = Code::take(from)?;
            if form == FORM_WITH_HANDED_IN && registry.handed_in.is_empty() {
                return Err(from.malformed("registry of the shorter form"));
            }
        }
        registry.regions = match form {
            FORM_WITH_REGIONS => take_regions(from, |FirstRegion(one)| one)?,
            FORM_WITH_ROOTS => take_regions(from, |MovedRegion(one)| one)?,
            FORM_WITH_REBUILDS | FORM_WITH_LAST => take_regions(from, |SingleRegion(one)| one)?,
            FORM_WITH_STANDBYS => Code::take(from)?,
            _ => Vec::new(),
        };
        if [FORM_WITH_LAST, FORM_WITH_STANDBYS].contains(&form) {
            registry.failovers.last = Code::take(from)?;
        }
        let is_short = match form {
            FORM_WITH_REGIONS => registry.regions.is_empty(),
            FORM_WITH_ROOTS => registry.regions.iter().all(FirstRegion::is),
            FORM_WITH_REBUILDS => registry.regions.iter().all(MovedRegion::is),
            FORM_WITH_LAST => registry.failovers.last.is_empty(),
            FORM_WITH_STANDBYS => registry.regions.iter().all(SingleRegion::is),
            _ => false,
        };
        if is_short {
            return Err(from.malformed("registry of the shorter form"));
        }
        Ok(registry)
    }
}

/// What stands in the place of a lost site's id in the longer form.
const WITH_KEPT: SiteId = SiteId(0);

impl Code for Promotion {
    fn put(&self, out: &mut Vec<u8>) {
        let Promotion { lost, by, number, taken, mirrored, kept } = self;
        let is_long = !kept.is_empty() || *lost == WITH_KEPT;
        if is_long {
            WITH_KEPT.put(out);
        }
        lost.put(out);
        by.put(out);
        number.put(out);
        taken.put(out);
        mirrored.put(out);
        if is_long {
            kept.put(out);
        }
    }

    fn take(from: &mut Input) -> Result<Promotion, EntryError> {
        let first = SiteId::take(from)?;
        let is_long = first == WITH_KEPT;
        let mut promotion = Promotion {
            lost: if is_long { Code::take(from)? } else { first },
            by: Code::take(from)?,
            number: Code::take(from)?,
            taken: Code::take(from)?,
            mirrored: Code::take(from)?,
            kept: Vec::new(),
        };
        if is_long {
            promotion.kept = Code::take(from)?;
            if promotion.kept.is_empty() && promotion.lost != WITH_KEPT {
                return Err(from.malformed("promotion of the shorter form"));
            }
        }
        Ok(promotion)
    }
}

#[cfg(test)]
mod tests {
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
        Registry {
            site_next: 3,
            keyspace_next: 2,
            backups,
            ..Registry::of_before(DeploymentId(7), 9)
        }
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
        let expected =
            b"\x01\x00\x07\x09\x00\x00\x03\x02\x02\x01\x02\x02\x02\x03\x01\x02\x01\xac\x02\
            \x01\x02\x00\x03\x09\x09\x02\x01\x00\x02\x01\x03\x04";
        assert_eq!(&bytes[..], expected);
        assert_eq!(decode_registry(bytes), Ok(registry(backups)));
        let empty = Bytes::from_static(b"\x01\x00\x07\x09\x00\x00\x03\x02\x00\x00\x00");
        assert!(decode_registry(empty).is_err(), "there is one form of each registry");
    }

    #[test]
    fn a_registry_that_registrars_hold_has_a_form_of_its_own() {
        let set = [SiteId(1), SiteId(2)].into_iter().collect();
        let version =
            Ballot { term: Term { number: 1, site: SiteId(2) }, round: 3, site: SiteId(1) };
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
        assert_eq!(decode_registry(bytes.clone()), Ok(longer.clone()));
        for cut in 0..bytes.len() {
            assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
        // With regions: all parts before them as in the form before.
        longer.regions = vec![Region::new(RegionId(1), 300, SiteId(7))];
        let before = bytes;
        let bytes = encode_registry(&longer);
        assert_eq!(bytes[13], 250);
        assert_eq!(bytes[14..before.len()], before[14..]);
        assert_eq!(bytes[before.len()..], *b"\x01\x01\xac\x02\x07");
        assert_eq!(decode_registry(bytes.clone()), Ok(longer.clone()));
        for cut in 0..bytes.len() {
            assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
        // With another root than the first one, or one that is to be it.
        longer.regions[0].cut = Some(model::Position(5));
        longer.regions[0].next = Some(SiteId(8));
        let bytes = encode_registry(&longer);
        assert_eq!(bytes[13], 251);
        assert_eq!(bytes[14..before.len()], before[14..]);
        assert_eq!(bytes[before.len()..], *b"\x01\x01\xac\x02\x07\x01\x05\x01\x08");
        assert_eq!(decode_registry(bytes.clone()), Ok(longer.clone()));
        for cut in 0..bytes.len() {
            assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
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
        assert_eq!(decode_registry(bytes.clone()), Ok(longer.clone()));
        for cut in 0..bytes.len() {
            assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
        // With the last failovers of sites: all parts before them as in the form before.
        let mut failed = longer.clone();
        let last = Ballot { round: 9, site: SiteId(2), ..Ballot::FIRST };
        failed.failovers.last = vec![(SiteId(300), last)];
        let of_last = encode_registry(&failed);
        assert_eq!(of_last[13], 253);
        assert_eq!(of_last[14..bytes.len()], bytes[14..]);
        assert_eq!(of_last[bytes.len()..], *b"\x01\xac\x02\x00\x00\x09\x02");
        assert_eq!(decode_registry(of_last.clone()), Ok(failed.clone()));
        for cut in 0..of_last.len() {
            assert!(decode_registry(of_last.slice(..cut)).is_err(), "cut at {cut}");
        }
        // With a standby.
        let since = Ballot { round: 9, site: SiteId(2), ..Ballot::FIRST };
        longer.regions[0].standby = Some(model::Standby { site: SiteId(8), in_sync: true, since });
        longer.regions[0].standby_rule.choice = model::StandbyChoice::At(SiteId(8));
        let with_rebuild = bytes;
        let bytes = encode_registry(&longer);
        assert_eq!(bytes[13], 254);
        assert_eq!(bytes[14..with_rebuild.len()], with_rebuild[14..]);
        assert_eq!(bytes[with_rebuild.len()..], *b"\x01\x08\x01\x00\x00\x09\x02\x03\x08\x00\x00");
        assert_eq!(decode_registry(bytes.clone()), Ok(longer.clone()));
        for cut in 0..bytes.len() {
            assert!(decode_registry(bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
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
        let piece = Mirroring::Piece {
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
            Command::Global(GlobalCommand::Mirror { from, number, step: Mirroring::Begin }),
            Command::Global(GlobalCommand::Mirror { from, number, step: piece }),
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
            Answer::Mirrored { pieces: 1, resume: Bytes::new(), whole: slots() },
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
}
