//! A site's backup: which other site mirrors what it holds, and what is decided when it is lost.

use crate::{
    Bytes, Registry, RegistryError, Revision, SiteEntry, SiteId, SlotEpochs, SlotSet, StagedItem,
};

/// Which site is to be a site's backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackupChoice {
    /// The next one on the ring.
    #[default]
    Next,
    /// This one; the next one on the ring while it is not there.
    At(SiteId),
    /// None.
    Off,
}

/// What the registry contains of backups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backups {
    /// The choices that operators made, ordered by site; [`BackupChoice::Next`] is not listed.
    pub chosen: Vec<(SiteId, BackupChoice)>,
}

impl Backups {
    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        *self == Backups::default()
    }

    /// What was chosen for a site.
    pub fn choice(&self, site: SiteId) -> BackupChoice {
        let found = self.chosen.iter().find(|(of, _)| *of == site);
        found.map_or(BackupChoice::Next, |(_, choice)| *choice)
    }

    /// Records what is chosen for a site. Whether that is anything else than before.
    pub(crate) fn choose(&mut self, site: SiteId, choice: BackupChoice) -> bool {
        if self.choice(site) == choice {
            return false;
        }
        self.chosen.retain(|(of, _)| *of != site);
        if choice != BackupChoice::Next {
            self.chosen.push((site, choice));
            self.chosen.sort_unstable_by_key(|(of, _)| *of);
        }
        true
    }

    /// A site is gone for good.
    pub(crate) fn forget(&mut self, site: SiteId) {
        self.chosen.retain(|(of, choice)| *of != site && *choice != BackupChoice::At(site));
    }
}

impl Registry {
    /// Whether a site was lost and has not come back, so that nothing is to be given to it.
    pub fn is_lost(&self, site: SiteId) -> bool {
        self.failovers.is_away(site)
    }

    /// A lost site stays while sites that its last failover did not ask may have its slots: once it
    /// is gone no failover of it can take them. It goes before those that are lost themselves if
    /// one of them has to wait for another failover, too: that one asks all that are left, and
    /// takes what no site owns.
    pub(crate) fn check_all_asked(&self, id: SiteId) -> Result<(), RegistryError> {
        let last_of = |lost| self.failovers.last_decided(lost);
        let (Some(last), Some(lost)) = (last_of(id), self.site(id)) else { return Ok(()) };
        // Of before a recovery: what has come to the site since may be in no report.
        if last.decided.term != self.version.term {
            return Err(RegistryError::NotAllAsked(lost.name.clone()));
        }
        let listed = last.without.iter().filter(|site| self.site(**site).is_some());
        let all_lost = listed.clone().all(|site| self.is_lost(*site));
        let mut decided = listed.filter_map(|site| last_of(*site));
        match last.without.is_empty() || all_lost && decided.any(|one| !one.without.is_empty()) {
            true => Ok(()),
            false => Err(RegistryError::NotAllAsked(lost.name.clone())),
        }
    }

    /// The sites that slots may be given to.
    pub fn staying(&self) -> impl Iterator<Item = &SiteEntry> {
        self.sites.iter().filter(|site| !site.leaving && !self.is_lost(site.id))
    }
}

/// A step of a mirror, taken by the backup site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorStep {
    /// The mirror of this number begins, or goes on: what is not whole is thrown away.
    /// [`crate::Answer::Mirrored`].
    Begin,
    /// A chunk.
    Chunk {
        /// Chunks are taken in this order, from 0.
        sequence: u64,
        /// Where the original goes on after it: opaque here, given back when it asks.
        resume: Bytes,
        /// Slots that the original does not hold any more.
        gone: SlotSet,
        /// What it brings.
        items: Vec<StagedItem>,
        /// The mirror is caught up after it.
        reached: Option<Reached>,
    },
}

/// What a mirror is of when it is caught up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The original's revision.
    pub revision: Revision,
    /// Slots that are whole from here on, at their epochs.
    pub complete: SlotEpochs,
    /// How many slots the original holds.
    pub holds: u32,
}

/// What an operator is shown about a promotion, before it and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Who is lost.
    pub lost: SiteId,
    /// Its backup.
    pub by: SiteId,
    /// Whether it was done.
    pub done: bool,
    /// How many slots the original held, by its last report.
    pub holds: u32,
    /// How many of them the mirror has whole.
    pub mirrored: u32,
    /// How many keys are in them.
    pub keys: u64,
    /// The original's revision that the mirror is of.
    pub revision: Revision,
    /// When the mirror was last known to be caught up, milliseconds since 1970; 0: never.
    pub caught_up_ms: u64,
    /// Whether the original answers: then it is not lost.
    pub answers: bool,
    /// Other sites that do not answer: they may hold slots that the lost site gave them.
    pub silent: Vec<SiteId>,
    /// Slots that were taken and begin empty.
    pub empty: u32,
}

impl Loss {
    /// Nothing is known yet.
    pub fn of(lost: SiteId, by: SiteId) -> Loss {
        Loss {
            lost,
            by,
            done: false,
            holds: 0,
            mirrored: 0,
            keys: 0,
            revision: Revision(0),
            caught_up_ms: 0,
            answers: false,
            silent: Vec::new(),
            empty: 0,
        }
    }
}

/// How far the registry's version and the revision are moved on when a lost site's slots are taken:
/// further than the lost site, and the sites that could not be asked, can have moved them on
/// unseen.
pub const NUMBERS_SKIPPED: u64 = 1 << 32;
/// How far the ids of sites and keyspaces are moved on when the right to give them was lost.
pub const IDS_SKIPPED: u32 = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_kept_in_order_and_the_default_is_not_written_down() {
        let mut backups = Backups::default();
        assert!(backups.choose(SiteId(2), BackupChoice::Off));
        assert!(backups.choose(SiteId(1), BackupChoice::At(SiteId(2))));
        assert!(!backups.choose(SiteId(1), BackupChoice::At(SiteId(2))));
        assert_eq!(backups.chosen[0].0, SiteId(1));
        assert!(backups.choose(SiteId(2), BackupChoice::Next));
        assert!(!backups.choose(SiteId(2), BackupChoice::Next));
        backups.forget(SiteId(2));
        assert!(backups.is_empty(), "who was to be a backup is gone");
    }
}
