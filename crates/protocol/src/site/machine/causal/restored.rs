//! A site that was restored from a backup file: what it did since the backup was made is not in its
//! state, and others know of it.
//!
//! > It may have been the root, and have given positions that others have imported. It may have
//! > been the standby in sync, and have acknowledged positions that it does not have. And others
//! > have writes of it that it does not know of.
//!
//! So it begins *open*: it gives no positions, and is not the standby that takes over, nor one that
//! can be brought in sync. That ends by a command ([`model::StandbyStep::Rejoin`]), once the
//! registry was changed, or read by most of the registrars, since it was restored: the epoch, and
//! the version that a standby stands by, are then of its present life (`crate::causal::rejoin`).
//!
//! Own writes that are missing here, and have positions, are imported like those of another site.
//! Their revisions are not given again: no causal write is taken before the site is confirmed
//! (`site::confirming`), and from then on it counts on far above them. What it had acknowledged
//! since the backup, and the root had not ordered, is lost with its disks.

use super::super::Applying;
use super::{Causal, Stopped, rows};
use model::{Answer, Ballot, Refusal, Revision};
use storage::state::{Batch, Read, State};
use wire::row;

/// What a restored site lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Restored {
    /// Own writes after this revision …
    pub(super) after: Revision,
    /// … up to this one are of the life before.
    pub(super) upto: Revision,
    /// Whether the life before may have been root or standby, by what the registry states.
    pub(super) is_open: bool,
}

const NOT_OPEN: Refusal = Refusal::NotCausal(
    "take its part in the region again: the registry has gone on, or states that the site is the standby in sync",
);

/// Marks a state that was restored from a backup.
pub(in crate::site::machine) fn mark(
    state: &impl Read,
    batch: &mut Batch,
) -> Result<(), super::MachineError> {
    let head = rows::head(state)?;
    if head.region == model::RegionId::default() {
        return Ok(());
    }
    // What the life before that lacked may not be imported yet.
    let before = rows::restored(state)?.filter(|before| head.own_ordered < before.upto);
    let after = before.map_or(head.last, |before| before.after.min(head.last));
    let restored = Restored { after, upto: Revision(u64::MAX), is_open: true };
    batch.put(rows::RESTORED.to_vec(), row::encode(&restored));
    Ok(())
}

impl Causal {
    /// Whether this site was restored, and may have been root or standby since the backup was made.
    pub fn is_restored(&self) -> bool {
        self.restored.is_some_and(|restored| restored.is_open)
    }

    /// The own revisions after the first up to the second may be missing here, though they were
    /// written.
    pub fn lacks_own(&self) -> Option<(Revision, Revision)> {
        let restored = self.restored?;
        let after = restored.after.max(self.head.own_ordered);
        (after < restored.upto).then_some((after, restored.upto))
    }
}

impl<S: State> Applying<'_, S> {
    /// What is written from here on is numbered above this revision.
    pub(in crate::site::machine) fn confirm_causal(&mut self) {
        let upto = self.known.head.revision;
        if let Some(restored) = &mut self.modes.causal.restored {
            restored.upto = upto;
            self.put_restored();
            self.mark_all_imported();
        }
    }

    /// The site takes its part in the region again, as of this epoch, and of this version of the
    /// standby if it is that.
    pub(super) fn rejoin(&mut self, since: Ballot, epoch: u16) -> Result<Answer, Stopped> {
        let (region, own) = (*self.region()?, self.member()?.own);
        let standby = region.standby.filter(|standby| standby.site == own);
        let is_as_of = standby.map_or(Ballot::FIRST, |standby| standby.since) == since;
        let is_in_sync = standby.is_some_and(|standby| standby.in_sync);
        if region.epoch != epoch || !is_as_of || is_in_sync {
            return Err(NOT_OPEN.into());
        }
        if let Some(restored) = &mut self.modes.causal.restored {
            restored.is_open = false;
            self.put_restored();
        }
        Ok(self.done_now())
    }

    /// Whether the site may write: its next revision was not given before.
    pub(super) fn check_confirmed(&self) -> Result<(), Refusal> {
        match self.modes.deployment.is_restored() && self.modes.causal.restored.is_some() {
            true => Err(Refusal::NotCausal(
                "be written yet: the site was restored from a backup, and other sites have to answer",
            )),
            false => Ok(()),
        }
    }

    fn put_restored(&mut self) {
        if let Some(restored) = &self.modes.causal.restored {
            let row = row::encode(restored);
            self.overlay.put(rows::RESTORED.to_vec(), row);
        }
    }
}
