//! A site that was restored from a backup takes its part in the region again: at its leader.
//!
//! Since the backup was made it may have been the root, and the standby in sync; and its copy of
//! the registry is as old. What the registry states about it counts again once that was written
//! since it was restored. So it has the registry read by most of the registrars first, by a change
//! without effect. If that names this site as
//!
//! - *the root*, the epoch ends as that of a lost root does ([`super::rebuild`]): the site that is
//!   farthest goes on, this one perhaps. It waits until all others report how far they are, or the
//!   standby in sync does, which has all that was released.
//! - *the standby*, the registry is changed to state that it is not in sync, under another version.
//!   What the root knew of it before counts no more then ([`super::standby`]).
//!
//! From there on it is a site like the others, and commits to that
//! ([`model::StandbyStep::Rejoin`]). Until then it gives no positions, and does not take over.

use super::Region;
use super::reports::{Ask, Reports};
use model::{Answer, Ballot, CausalCommand, Failure, RegistryChange, SiteId, Standby, StandbyStep};
use std::time::Duration;
use wire::causal::Reached;

/// What has no effect is done again after this.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Ask(Ask),
    /// A change of the registry. Its answer comes back under `id`.
    Change {
        id: u64,
        change: RegistryChange,
    },
    Propose(CausalCommand),
}

/// What the leader of a restored site has.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    reports: Reports,
    epoch: u16,
    /// The epoch, and the version that this site stands by as the standby, as most registrars had
    /// it since it was restored.
    seen: Option<(u16, Option<Ballot>)>,
    first_id: Option<u64>,
    is_read: bool,
    /// When a change was asked for last, and when the command was proposed.
    changed: Option<Duration>,
    proposed: Option<Duration>,
    waits_for_others: bool,
}

fn own_standby(region: &Region) -> Option<Standby> {
    region.standby.filter(|standby| standby.site == region.own)
}

impl Rejoin {
    /// The next steps; `last_id`: the last number that a change got.
    pub(super) fn poll(&mut self, now: Duration, region: &Region, last_id: &mut u64) -> Vec<Step> {
        if self.epoch != region.epoch {
            (self.epoch, self.reports) = (region.epoch, Reports::of(region.epoch));
        }
        self.waits_for_others = false;
        let standby = own_standby(region);
        let since = standby.map(|standby| standby.since);
        if self.seen.is_none() && self.is_read {
            self.seen = Some((region.epoch, since));
        }
        let (id, epoch) = (region.id, region.epoch);
        let unsync =
            |since| RegistryChange::SyncStandby { region: id, epoch, since, in_sync: false };
        let Some((epoch_seen, since_seen)) = self.seen else {
            // Of no version: it does nothing.
            return self.change(now, unsync(Ballot::FIRST), last_id).into_iter().collect();
        };
        if region.is_root() && region.is_rebuilding {
            return Vec::new();
        }
        if region.is_root() && epoch == epoch_seen {
            let mut steps: Vec<Step> =
                self.reports.ask(now, region).into_iter().map(Step::Ask).collect();
            self.waits_for_others = !self.knows_the_end(now, region);
            if !self.waits_for_others {
                let change = RegistryChange::Rebuild { region: id, epoch, to: region.own };
                steps.extend(self.change(now, change, last_id));
            }
            return steps;
        }
        let of_before = |one: Standby| one.in_sync || Some(one.since) == since_seen;
        if let Some(standby) = standby.filter(|standby| of_before(*standby)) {
            return self.change(now, unsync(standby.since), last_id).into_iter().collect();
        }
        if self.proposed.is_some_and(|at| now < at + RETRY_AFTER) {
            return Vec::new();
        }
        self.proposed = Some(now);
        let step = StandbyStep::Rejoin { epoch };
        let since = since.unwrap_or(Ballot::FIRST);
        vec![Step::Propose(CausalCommand::Standby { since, step })]
    }

    /// Whether all that was released is known to be at sites that answer.
    fn knows_the_end(&self, now: Duration, region: &Region) -> bool {
        let is_fresh = |site: &SiteId| self.reports.is_fresh(*site, now);
        let in_sync = region.standby.filter(|standby| standby.in_sync);
        in_sync.is_some_and(|standby| is_fresh(&standby.site))
            || region.layout.sites.iter().filter(|site| **site != region.own).all(is_fresh)
    }

    fn change(&mut self, now: Duration, change: RegistryChange, last_id: &mut u64) -> Option<Step> {
        if self.changed.is_some_and(|at| now < at + RETRY_AFTER) {
            return None;
        }
        self.changed = Some(now);
        *last_id += 1;
        self.first_id = self.first_id.or(Some(*last_id));
        Some(Step::Change { id: *last_id, change })
    }

    /// The registrars' answer to a change.
    pub(super) fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>) {
        if self.first_id.is_some_and(|first| first <= id) && outcome.is_ok() {
            (self.is_read, self.changed) = (true, None);
        }
    }

    /// A site's leader reports.
    pub(super) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        self.reports.reached(site, message, now);
    }

    /// What it waits for, for people.
    pub(super) fn waits_for(&self) -> &'static str {
        match self.waits_for_others {
            true => {
                "the site was restored from a backup, and is the root: it waits until all others report how far they have the \
                 order. `portolan region rebuild --force` does not wait for those that are lost"
            }
            false => "the site was restored from a backup: most of the registrars must answer",
        }
    }

    /// When it must be polled at the latest.
    pub(super) fn next_due(&self) -> impl Iterator<Item = Duration> {
        let all = [self.changed, self.proposed].into_iter().flatten();
        all.map(|at| at + RETRY_AFTER).chain(self.reports.next_due())
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::region;
    use super::*;
    use model::{Position, RegionId, Revision};

    const AT: fn(u64) -> Duration = Duration::from_millis;
    const ROOT: SiteId = SiteId(1);
    const OTHER: SiteId = SiteId(2);

    fn version(round: u64) -> Ballot {
        Ballot { round, ..Ballot::FIRST }
    }

    fn standby(round: u64, in_sync: bool) -> Option<Standby> {
        Some(Standby { site: OTHER, in_sync, since: version(round) })
    }

    fn unsync(id: u64, since: Ballot) -> Vec<Step> {
        let (region, epoch, in_sync) = (RegionId(1), 1, false);
        let change = RegistryChange::SyncStandby { region, epoch, since, in_sync };
        vec![Step::Change { id, change }]
    }

    fn rejoin(since: Ballot, epoch: u16) -> Vec<Step> {
        let step = StandbyStep::Rejoin { epoch };
        vec![Step::Propose(CausalCommand::Standby { since, step })]
    }

    fn done() -> Result<Answer, Failure> {
        Ok(Answer::Done(Revision(1)))
    }

    #[test]
    fn what_it_knows_of_the_registry_is_read_first() {
        let (mut job, mut last, region) = (Rejoin::default(), 0, region(3));
        assert_eq!(job.poll(AT(0), &region, &mut last), unsync(1, Ballot::FIRST));
        assert!(job.poll(AT(10), &region, &mut last).is_empty(), "under way");
        job.answered(1, &Err(Failure::NoLeader));
        assert_eq!(job.poll(AT(2_000), &region, &mut last), unsync(2, Ballot::FIRST));
        // The answer to the first one will do.
        job.answered(1, &done());
        assert_eq!(job.poll(AT(2_010), &region, &mut last), rejoin(Ballot::FIRST, 1));
        assert!(job.poll(AT(2_020), &region, &mut last).is_empty(), "under way");
        assert_eq!(job.poll(AT(4_010), &region, &mut last), rejoin(Ballot::FIRST, 1));
    }

    #[test]
    fn a_standby_is_one_of_another_version_first() {
        let (mut job, mut last) = (Rejoin::default(), 0);
        let mut region = Region { standby: standby(5, false), ..region(2) };
        job.poll(AT(0), &region, &mut last);
        job.answered(1, &done());
        // The root may have asked for "in sync" by what it knew before.
        assert_eq!(job.poll(AT(10), &region, &mut last), unsync(2, version(5)));
        job.answered(2, &done());
        region.standby = standby(6, true);
        assert_eq!(job.poll(AT(20), &region, &mut last), unsync(3, version(6)));
        region.standby = standby(7, false);
        assert_eq!(job.poll(AT(30), &region, &mut last), rejoin(version(7), 1));
    }

    #[test]
    fn a_root_ends_its_epoch_once_the_end_of_it_is_known() {
        let (mut job, mut last, mut region) = (Rejoin::default(), 0, region(1));
        job.poll(AT(0), &region, &mut last);
        job.answered(1, &done());
        let asked = |steps: &[Step]| steps.iter().filter(|one| matches!(one, Step::Ask(_))).count();
        let steps = job.poll(AT(10), &region, &mut last);
        assert_eq!((asked(&steps), steps.len()), (2, 2));
        let message = |count| {
            let applied = Position::new(1, count).0;
            Reached { epoch: 1, applied, taken: applied, again: true, waits: false }
        };
        job.reached(OTHER, message(5), AT(20));
        assert!(job.poll(AT(20), &region, &mut last).is_empty());
        assert!(job.waits_for().contains("until all others"));
        // The standby in sync has all that was released.
        let of_other = Region { standby: standby(2, true), ..region.clone() };
        let (id, epoch) = (RegionId(1), 1);
        let rebuild = |id_of| {
            let change = RegistryChange::Rebuild { region: id, epoch, to: ROOT };
            vec![Step::Change { id: id_of, change }]
        };
        assert_eq!(job.poll(AT(30), &of_other, &mut last), rebuild(2));
        job.answered(2, &Err(Failure::NoLeader));
        job.reached(SiteId(3), message(4), AT(2_040));
        job.reached(OTHER, message(5), AT(2_040));
        let steps = job.poll(AT(2_040), &region, &mut last);
        assert_eq!(steps.last(), rebuild(3).last());
        (region.epoch, region.is_rebuilding) = (65, true);
        assert!(job.poll(AT(2_050), &region, &mut last).is_empty(), "the end is looked for");
        region.is_rebuilding = false;
        assert_eq!(job.poll(AT(2_060), &region, &mut last), rejoin(Ballot::FIRST, 65));
    }
}
