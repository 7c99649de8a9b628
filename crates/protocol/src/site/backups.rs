//! Backups at a site's nodes: its own mirror, those it keeps, and stale reads of what cannot be
//! reached.
//!
//! A stale read of a key with a silent owner goes to that owner's backup, which checks itself
//! whether the owner answers, and answers from the mirror if it does not. No other read does, and
//! no other site is asked.

use super::jobs::{When, view};
use super::machine::Stopped;
use super::{Origin, Site};
use crate::global::backups::backup_of;
use crate::global::failover::Wanted;
use crate::global::mirroring;
use crate::replica::moments;
use model::{
    AcceptedLoss, Answer, Ballot, Failure, JobName, KeyspaceId, Promotion, Query, Refusal,
    Revision, SiteId, Slot,
};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::{InterSite, MirrorLag};

/// How often a backup is notified of its mirror's progress.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(1_000);

/// A mirror that is kept here, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// The original.
    pub from: SiteId,
    /// How many slots the original held, and how many of them are whole here.
    pub holds: u32,
    /// See above.
    pub complete: u32,
    /// Keys in them.
    pub keys: u64,
    /// The original's revision that it was caught up with.
    pub revision: Revision,
    /// How many revisions it was behind by the last message of the original; `None`: none has come
    /// to this node.
    pub behind: Option<u64>,
    /// When it was last known to be caught up, milliseconds since 1970; 0: never.
    pub caught_up_ms: u64,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// The site that keeps this site's mirror, by the registry.
    fn own_backup(&self) -> Option<SiteId> {
        let member = self.machine.membership()?;
        let is_lost = member.registry.is_lost(member.own);
        backup_of(&member.registry, member.own).filter(|_| !is_lost && self.options.mirrors)
    }

    /// The registry is another one: so may be this site's backup.
    pub(super) fn follow_backup(&mut self) {
        self.global.backup = self.own_backup();
    }

    pub(super) fn tick_backups(&mut self) {
        self.tick_reach();
        self.run_jobs(When::Tick);
        let now = self.now.monotonic;
        if !self.leads() || self.global.backups.next_gossip > now {
            return;
        }
        self.global.backups.next_gossip = now + GOSSIP_INTERVAL;
        self.run_jobs(When::Gossip);
        let mirror = &self.jobs.mirror;
        let current = mirror.progress(&self.machine, now);
        let former = mirror.progress_of_former(&self.machine, now);
        for progress in current.into_iter().chain(former) {
            let lag = MirrorLag { number: progress.number, behind: progress.behind };
            self.send_to_site(progress.to, InterSite::Mirror(lag));
        }
    }

    /// The writes that a failover lost of this site.
    pub(super) fn show_lost_writes(&mut self, origin: Origin, failover: Option<Ballot>, page: u32) {
        let outcome = match self.machine.lost_writes(failover, page) {
            Ok(lost) => Ok(Answer::LostWrites(Box::new(lost))),
            Err(error) => {
                self.fail(error);
                Err(Failure::NotServing("its state cannot be read"))
            }
        };
        self.settle(vec![(origin, outcome)]);
    }

    pub(super) fn take_mirror_lag(&mut self, site: SiteId, lag: MirrorLag) {
        let mirror = self.machine.mirrors().get(&site).filter(|one| one.number == lag.number);
        let Some(is_complete) = mirror.map(|mirror| mirror.is_complete()) else { return };
        let reported = self.global.backups.reported.entry(site).or_insert((lag.number, 0, 0));
        if reported.0 != lag.number {
            *reported = (lag.number, 0, 0);
        }
        reported.2 = lag.behind;
        if lag.behind == 0 && is_complete {
            reported.1 = self.replica.log_clock.now_ms();
        }
    }

    fn caught_up_ms(&self, from: SiteId) -> u64 {
        let (log_now_ms, wall_ms) = (self.replica.log_clock.now_ms(), self.now.wall_ms);
        self.global.backups.caught_up_ms(from, &self.machine, log_now_ms, wall_ms)
    }

    /// The progress of this site's own mirror, at its leader.
    pub fn mirror_progress(&self) -> Option<mirroring::Progress> {
        let leads = self.leads();
        let progress = self.jobs.mirror.progress(&self.machine, self.now.monotonic);
        progress.filter(|_| leads)
    }

    /// The mirrors of other sites that are kept here.
    pub fn mirrors_kept(&self) -> Vec<MirrorStatus> {
        let kept = |(from, mirror): (&SiteId, &super::machine::global::mirrors::Mirror)| {
            let reported = self
                .global
                .backups
                .reported
                .get(from)
                .filter(|reported| reported.0 == mirror.number);
            MirrorStatus {
                from: *from,
                holds: mirror.holds,
                complete: mirror.complete.len() as u32,
                keys: self.machine.mirrored_keys(*from),
                revision: Revision(mirror.revision),
                behind: reported.map(|reported| reported.2),
                caught_up_ms: self.caught_up_ms(*from),
            }
        };
        self.machine.mirrors().iter().map(kept).collect()
    }

    // ---- stale reads ----------------------------------------------------------------------------

    /// Handles a stale read of a slot if its owner is silent. Returns whether it did.
    pub(super) fn reads_from_backup(&mut self, id: u64, slot: Slot, owner: SiteId) -> bool {
        let now = self.now.monotonic;
        let Some((keyspace, query)) = self.global.routing.stale_read(id) else { return false };
        if !self.deployment.failure_detector.is_silent(owner, now) {
            return false;
        }
        let Some(member) = self.machine.membership() else { return false };
        let own = member.own;
        match backup_of(&member.registry, owner) {
            Some(backup) if backup == own && !self.options.witness => {
                let answer = self.answer_from_mirror(owner, keyspace, &query);
                match answer {
                    Err(Failure::Refused(Refusal::NotHeld(of))) if of == slot => false,
                    outcome => {
                        let settled = self.global.routing.end(id, outcome);
                        self.settle(settled.into_iter().collect());
                        true
                    }
                }
            }
            Some(backup)
                if backup != own && !self.deployment.failure_detector.is_silent(backup, now) =>
            {
                let nodes = self.nodes_of(backup);
                let Some(node) = self.global.routing.node_of(backup, &nodes) else { return false };
                self.deployment.failure_detector.asked(backup, now);
                let sent = self.global.routing.go_to_backup(id, backup, node, now);
                if let Some(mut request) = sent {
                    request.token = self.session_asked(Origin::Routed { id, in_doubt: false });
                    self.deployment.outbox.push(backup, node, request);
                }
                true
            }
            _ => false,
        }
    }

    /// Another site cannot reach a slot's owner and asks this one, its backup. Whether that is seen
    /// to; otherwise the slot is simply not here.
    pub(super) fn answers_as_backup(&mut self, id: u64, slot: Slot) -> bool {
        let now = self.now.monotonic;
        let Some((keyspace, query)) = self.global.routing.backup_read(id) else { return false };
        let Some(owner) = self.machine.mirror_of(slot) else { return false };
        if self.options.witness || self.deployment.failure_detector.is_heard(owner, now) {
            return false;
        }
        if !self.deployment.failure_detector.is_silent(owner, now) {
            self.ask_alive(owner);
            self.global.routing.rest(id, now);
            return true;
        }
        let outcome = self.answer_from_mirror(owner, keyspace, &query);
        let settled = self.global.routing.end(id, outcome);
        self.settle(settled.into_iter().collect());
        true
    }

    fn answer_from_mirror(
        &mut self,
        from: SiteId,
        keyspace: KeyspaceId,
        query: &Query,
    ) -> Result<Answer, Failure> {
        let outcome = match self.machine.ask_mirror(from, keyspace, query) {
            Ok(mut answer) => {
                let (now_ms, ahead) =
                    (self.replica.log_clock.now_ms(), self.replica.log_clock.wall_ahead_ms());
                moments::for_others(&mut answer, now_ms, ahead);
                Ok(answer)
            }
            Err(Stopped::Refused(Refusal::NotHeld(slot))) => {
                return Err(Failure::Refused(Refusal::NotHeld(slot)));
            }
            Err(Stopped::Refused(refusal)) => Err(refusal),
            Err(Stopped::Due(_)) => unreachable!("a mirror is asked by its own log time"),
            Err(Stopped::Failed(error)) => {
                self.fail(error);
                return Err(Failure::NotServing("its state cannot be read"));
            }
        };
        let caught_up_ms = self.caught_up_ms(from);
        Ok(Answer::FromBackup { outcome: Box::new(outcome), caught_up_ms })
    }

    // ---- failover -------------------------------------------------------------------------------

    /// The site that drives an operator's failover: the backup, which has the age of its copies; if
    /// that cannot be reached, any site does.
    pub(super) fn driver_of(&self, lost: SiteId, by: Option<SiteId>) -> Result<SiteId, Refusal> {
        let member = self.machine.membership().ok_or(Refusal::NoDeployment)?;
        let by = by.or_else(|| backup_of(&member.registry, lost));
        let by = by
            .filter(|site| !self.deployment.failure_detector.is_silent(*site, self.now.monotonic));
        Ok(by.filter(|site| *site != lost).unwrap_or(member.own))
    }

    pub(super) fn take_promotion(
        &mut self,
        origin: Origin,
        promotion: Promotion,
        deadline: Duration,
    ) {
        let Promotion { lost, by, without, accepts } = promotion;
        let (accept, reported, id) = match accepts {
            AcceptedLoss::Nothing => (false, None, None),
            AcceptedLoss::AsFound { id } => (true, None, id),
            AcceptedLoss::AsReported { id, reported } => (true, Some(reported), Some(id)),
        };
        let Some(member) = self.machine.membership() else {
            return self.settle(vec![(origin, Err(Refusal::NoDeployment.into()))]);
        };
        let taker = by.or_else(|| backup_of(&member.registry, lost));
        let taker = taker.filter(|site| *site != lost && !without.contains(site));
        let by = taker.unwrap_or(member.own);
        let wanted = Wanted { origin, lost, by, without, accept, reported, id, deadline };
        let effects = self.jobs.failover.request(wanted, &view!(self));
        self.perform(JobName::Failover, effects);
    }

    /// Which sites are known to have each failover that was decided.
    pub(super) fn failovers_known(&self) -> Vec<(Ballot, Vec<SiteId>)> {
        let Some(member) = self.machine.membership() else { return Vec::new() };
        let sites = member.registry.sites.iter().map(|site| site.id);
        let knows = |site: &SiteId, decided| {
            *site == member.own || self.deployment.versions.has(*site, decided)
        };
        let known = |decided| sites.clone().filter(|site| knows(site, decided)).collect();
        let decided = member.registry.failovers.decided.iter().map(|one| one.decided);
        decided.map(|decided| (decided, known(decided))).collect()
    }
}
