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
    Inventory, Loss, MirrorStep, OpenFailover, Promotion, Reached, Region, Registry, SiteId,
    SlotCopy, Tag, Taken, TermBegan,
};

code_enum!(BackupChoice as "choice of a backup" {
    1 => Next,
    2 => At(site),
    3 => Off,
});

code_struct!(Backups { chosen, promotions, returned });

code_enum!(MirrorStep as "step of a mirror" {
    1 => Begin,
    2 => Chunk { sequence, resume, gone, items, reached },
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
mod tests;
