//! Backups at a site's nodes: its own mirror, those it keeps, and stale reads of what cannot be
//! reached.
//!
//! A stale read of a key with a silent holder goes to that holder's backup, which checks itself
//! whether the holder answers, and answers from the mirror if it does not. No other read does, and
//! no other site is asked.

use super::machine::Stopped;
use super::trial::of_rules;
use super::{Origin, Site, moments};
use crate::global::backups::backup_of;
use crate::global::failover::{Effect, FailoverJobs, View, Wanted};
use crate::global::mirroring;
use crate::global::ownership::takeover;
use crate::global::routing::Target;
use model::{
    Answer, Ballot, Body, Failure, JobName, KeyspaceId, Query, Refusal, RegistryChange, RequestId,
    Revision, SiteId, Slot, Taken, limits,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::across::{AcrossSay, Alive, MirrorNews};

/// How often a backup is notified of its mirror's progress.
const NEWS_INTERVAL: Duration = Duration::from_millis(1_000);

/// A failover that has been open for this long goes on no more: it is called off.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// What an operator wants of the sites that are there, as another one is lost.
pub(super) struct Promotion {
    pub(super) lost: SiteId,
    /// The site that takes the slots without a copy; `None`: its backup.
    pub(super) by: Option<SiteId>,
    pub(super) without: Vec<SiteId>,
    /// Otherwise the answer is what would be lost.
    pub(super) accept: bool,
    /// The preview that was accepted, if there is one.
    pub(super) told: Option<Vec<Taken>>,
    pub(super) id: Option<RequestId>,
}

/// What a node has of mirrors beside its state.
#[derive(Debug, Default)]
pub(crate) struct Backups {
    pub(super) failovers: FailoverJobs,
    open_since: OpenSince,
    /// Of each decision of a failover the version of the registry in which this leader first saw it, in
    /// the term that there is: it may have been handed in long after it was decided.
    seen_in: BTreeMap<Ballot, Ballot>,
    next_change: Duration,
    /// The site to ask next about slots without a known owner.
    pub(super) turn: usize,
    /// The last slots that others were asked about: of those with a copy here, and of frozen ones.
    pub(super) asked_to: Option<Slot>,
    pub(super) frozen_asked_to: Option<Slot>,
    /// By original, from its messages: which mirror, when it was last in step (log time, ms), and
    /// how far it was behind by the last message.
    heard: BTreeMap<SiteId, (u64, u64, u64)>,
    next_news: Duration,
}

/// A failover that is open, and since when this leader has seen it so.
#[derive(Debug, Default)]
struct OpenSince(Option<(Ballot, Duration)>);

impl OpenSince {
    /// Whether it goes on no more. What an earlier leadership of this node saw does not count: a
    /// leader in between may have gone on with it.
    fn is_abandoned(&mut self, open: Option<Ballot>, now: Duration) -> bool {
        let since = self.0.filter(|(of, _)| Some(*of) == open);
        self.0 = since.or(open.map(|opened| (opened, now)));
        self.0.is_some_and(|(_, since)| since + ABANDONED_AFTER <= now)
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

/// A mirror that is kept here, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The original.
    pub from: SiteId,
    /// How many slots the original held, and how many of them are whole here.
    pub holds: u32,
    /// See above.
    pub whole: u32,
    /// Keys in them.
    pub keys: u64,
    /// The original's revision that it was in step with.
    pub revision: Revision,
    /// How many revisions it was behind by the last message of the original; `None`: none has come
    /// to this node.
    pub behind: Option<u64>,
    /// When it was last known to be in step, milliseconds since 1970; 0: never.
    pub in_step_ms: u64,
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
        self.drive_failovers();
        let now = self.now.monotonic;
        if !self.leads() || self.global.backups.next_news > now {
            return;
        }
        self.global.backups.next_news = now + NEWS_INTERVAL;
        self.ask_for_copies();
        self.run_job(JobName::Reclaim);
        let Some(progress) = self.jobs.mirror.progress(&self.machine, now) else { return };
        let Some(own) = self.machine.own_mirror() else { return };
        let nodes = self.nodes_of(own.to);
        if let Some(node) = self.global.routing.node_of(own.to, &nodes) {
            let news = MirrorNews { number: own.number, behind: progress.behind };
            self.say_across(own.to, node, AcrossSay::Mirror(news));
        }
    }

    pub(super) fn take_alive(&mut self, site: SiteId, node: model::NodeId, alive: Alive) {
        if alive.asks {
            self.say_across(site, node, AcrossSay::Alive(Alive { asks: false }));
        }
    }

    pub(super) fn take_mirror_news(&mut self, site: SiteId, news: MirrorNews) {
        let known = self.machine.mirrors().get(&site).map(|mirror| mirror.number);
        if known != Some(news.number) {
            return;
        }
        let heard = self.global.backups.heard.entry(site).or_insert((news.number, 0, 0));
        if heard.0 != news.number {
            *heard = (news.number, 0, 0);
        }
        heard.2 = news.behind;
        if news.behind == 0 {
            heard.1 = self.replica.log_clock.now_ms();
        }
    }

    /// When a mirror was last in step, by this node's wall clock; 0: never.
    fn in_step_ms(&self, from: SiteId) -> u64 {
        let Some(mirror) = self.machine.mirrors().get(&from) else { return 0 };
        let heard = self.global.backups.heard.get(&from).filter(|heard| heard.0 == mirror.number);
        match heard.map_or(0, |heard| heard.1).max(mirror.in_step_ms) {
            0 => 0,
            at_ms => {
                let age_ms = self.replica.log_clock.now_ms().saturating_sub(at_ms);
                self.now.wall_ms.saturating_sub(age_ms).max(1)
            }
        }
    }

    /// The progress of this site's own mirror, at its leader.
    pub fn mirror_progress(&self) -> Option<mirroring::Progress> {
        let leads = self.leads();
        let progress = self.jobs.mirror.progress(&self.machine, self.now.monotonic);
        progress.filter(|_| leads)
    }

    /// The mirrors of other sites that are kept here.
    pub fn mirrors_kept(&self) -> Vec<Kept> {
        let kept = |(from, mirror): (&SiteId, &super::machine::mirrors::Mirror)| {
            let heard =
                self.global.backups.heard.get(from).filter(|heard| heard.0 == mirror.number);
            Kept {
                from: *from,
                holds: mirror.holds,
                whole: mirror.whole.len() as u32,
                keys: self.machine.mirrored_keys(*from),
                revision: Revision(mirror.revision),
                behind: heard.map(|heard| heard.2),
                in_step_ms: self.in_step_ms(*from),
            }
        };
        self.machine.mirrors().iter().map(kept).collect()
    }

    // ---- stale reads -------------------------------------------------------------------------------

    /// Handles a stale read of a slot if its holder is silent. Returns whether it did.
    pub(super) fn reads_from_backup(&mut self, id: u64, slot: Slot, holder: SiteId) -> bool {
        let now = self.now.monotonic;
        let Some((keyspace, query)) = self.global.routing.stale_read(id) else { return false };
        if !self.deployment.reach.is_silent(holder, now) {
            return false;
        }
        let Some(member) = self.machine.membership() else { return false };
        let own = member.own;
        match backup_of(&member.registry, holder) {
            Some(backup) if backup == own && !self.options.witness => {
                let answer = self.answer_from_mirror(holder, keyspace, &query);
                match answer {
                    Err(Failure::Refused(Refusal::NotHeld(of))) if of == slot => false,
                    outcome => {
                        let settled = self.global.routing.end(id, outcome);
                        self.settle(settled.into_iter().collect());
                        true
                    }
                }
            }
            Some(backup) if backup != own && !self.deployment.reach.is_silent(backup, now) => {
                let nodes = self.nodes_of(backup);
                let Some(node) = self.global.routing.node_of(backup, &nodes) else { return false };
                self.deployment.reach.asked(backup, now);
                let sent = self.global.routing.go_to_backup(id, backup, node, now);
                if let Some(request) = sent {
                    self.deployment.outbox.push(backup, node, request);
                }
                true
            }
            _ => false,
        }
    }

    /// Another site cannot reach a slot's holder and asks this one, its backup. Whether that is seen
    /// to; otherwise the slot is simply not here.
    pub(super) fn answers_as_backup(&mut self, id: u64, slot: Slot) -> bool {
        let now = self.now.monotonic;
        let Some((keyspace, query)) = self.global.routing.backup_read(id) else { return false };
        let Some(holder) = self.machine.mirror_of(slot) else { return false };
        if self.options.witness || self.deployment.reach.is_heard(holder, now) {
            return false;
        }
        if !self.deployment.reach.is_silent(holder, now) {
            self.ask_alive(holder);
            self.global.routing.rest(id, now);
            return true;
        }
        let outcome = self.answer_from_mirror(holder, keyspace, &query);
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
        let in_step_ms = self.in_step_ms(from);
        Ok(Answer::FromBackup { outcome: Box::new(outcome), in_step_ms })
    }

    // ---- failover ----------------------------------------------------------------------------------

    /// The site that drives an operator's failover: the backup, which has the age of its copies; if
    /// that cannot be reached, any site does.
    pub(super) fn target_of_promotion(
        &self,
        lost: SiteId,
        by: Option<SiteId>,
    ) -> Result<Target, Refusal> {
        let member = self.machine.membership().ok_or(Refusal::NoDeployment)?;
        let by = by.or_else(|| backup_of(&member.registry, lost));
        let by = by.filter(|site| !self.deployment.reach.is_silent(*site, self.now.monotonic));
        Ok(Target::Site(by.filter(|site| *site != lost).unwrap_or(member.own)))
    }

    pub(super) fn take_promotion(
        &mut self,
        origin: Origin,
        promotion: Promotion,
        deadline: Duration,
    ) {
        let Promotion { lost, by, without, accept, told, id } = promotion;
        let Some(member) = self.machine.membership() else {
            return self.settle(vec![(origin, Err(Refusal::NoDeployment.into()))]);
        };
        let taker = by.or_else(|| backup_of(&member.registry, lost));
        let taker = taker.filter(|site| *site != lost && !without.contains(site));
        let by = taker.unwrap_or(member.own);
        let wanted = Wanted { origin, lost, by, without, accept, told, id, deadline };
        let mut effects = Vec::new();
        self.with_failovers(lost, |jobs, view| effects = jobs.want(wanted, view));
        effects.into_iter().for_each(|effect| self.perform_failover(effect));
    }

    fn drive_failovers(&mut self) {
        let lost = self.global.backups.failovers.lost_sites();
        if !lost.is_empty() {
            let mut effects = Vec::new();
            if self.leads() {
                for lost in lost {
                    self.with_failovers(lost, |jobs, view| effects.extend(jobs.poll(lost, view)));
                }
            } else {
                effects = self.global.backups.failovers.drop_all();
            }
            effects.into_iter().for_each(|effect| self.perform_failover(effect));
        }
        match self.leads() {
            true => self.tend_failovers(),
            false => self.global.backups.open_since.forget(),
        }
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

    /// Ends failovers that go on no more, and forgets decisions that every site has.
    fn tend_failovers(&mut self) {
        let Some(member) = self.machine.membership() else { return };
        let (own, registry) = (member.own, member.registry.clone());
        if registry.failovers.is_empty() && registry.backups.promotion(own).is_none() {
            self.global.backups.open_since.forget();
            self.global.backups.seen_in.clear();
            return;
        }
        let now = self.now.monotonic;
        let mut change = None;
        let opened = registry.failovers.open.as_ref().map(|open| open.opened);
        let is_abandoned = self.global.backups.open_since.is_abandoned(opened, now);
        if let Some(open) = &registry.failovers.open {
            // A site that answers is not lost, whatever the failover states.
            if open.fences(own) || is_abandoned {
                change = Some(RegistryChange::CloseFailover(open.opened));
            }
        }
        if registry.is_lost(own) {
            change = change.or(Some(RegistryChange::Returned(own)));
        }
        let is_there =
            |decided: &Ballot| registry.failovers.decided.iter().any(|one| one.decided == *decided);
        self.global
            .backups
            .seen_in
            .retain(|decided, version| is_there(decided) && version.term == registry.version.term);
        let planted = of_rules(self.options.planted);
        for one in &registry.failovers.decided {
            let seen_in =
                *self.global.backups.seen_in.entry(one.decided).or_insert(registry.version);
            let listed = registry.sites.iter().map(|site| site.id);
            let knows = |site: SiteId| site == own || self.deployment.versions.has(site, seen_in);
            let taker = one.taken.first().map(|taken| taken.by);
            // One site makes the change; any other, if that one is gone.
            let is_first = one.decided.site == own
                || registry.site(one.decided.site).is_none()
                    && registry.staying().next().is_some_and(|site| site.id == own);
            let is_known = takeover::may_be_forgotten(listed, (one.lost, taker), knows, planted);
            if is_first && is_known {
                change = change.or(Some(RegistryChange::ForgetFailover(one.decided)));
            }
        }
        if let Some(change) = change
            && self.global.backups.next_change <= now
        {
            self.global.backups.next_change = now + NEWS_INTERVAL;
            self.change_registry(Origin::Nobody, change, now + 2 * NEWS_INTERVAL);
        }
    }

    pub(super) fn failover_answered(&mut self, id: u64, outcome: Result<Answer, Failure>) {
        let Some(lost) = self.global.backups.failovers.lost_of(id) else { return };
        let mut effects = Vec::new();
        self.with_failovers(lost, |jobs, view| effects = jobs.answered(id, outcome, view));
        effects.into_iter().for_each(|effect| self.perform_failover(effect));
    }

    fn with_failovers(&mut self, lost: SiteId, act: impl FnOnce(&mut FailoverJobs, &View<'_>)) {
        let mut failovers = std::mem::take(&mut self.global.backups.failovers);
        if let Some(member) = self.machine.membership() {
            let view = View {
                now: self.now.monotonic,
                own: member.own,
                registry: &member.registry,
                in_step_ms: self.in_step_ms(lost),
                planted: of_rules(self.options.planted),
                heard_since: &|site, since| self.deployment.reach.is_heard_since(site, since),
            };
            act(&mut failovers, &view);
        }
        self.global.backups.failovers = failovers;
    }

    fn perform_failover(&mut self, effect: Effect) {
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        match effect {
            Effect::Call(site) => self.ask_alive(site),
            Effect::Ask { id, to, command } => {
                let own = self.machine.membership().map(|member| member.own);
                match own == Some(to) {
                    true => self.take_write(Origin::Failover(id), command, deadline),
                    false => {
                        let body = Body::Write(command);
                        self.route(Origin::Failover(id), body, Target::Site(to), deadline);
                    }
                }
            }
            Effect::Change { id, change, request } => {
                if let RegistryChange::OpenFailover { lost, .. } = &change {
                    self.recover_for_promotion(*lost, deadline);
                }
                let origin = if id == 0 { Origin::Nobody } else { Origin::Failover(id) };
                match request {
                    Some(_) => self.take_change(origin, change, request, deadline),
                    None => self.change_registry(origin, change, deadline),
                }
            }
            Effect::Settle(origin, outcome) => self.settle(vec![(origin, outcome)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_is_called_off_by_a_leader_that_has_seen_nothing_come_of_it() {
        let opened = Some(Ballot { round: 5, ..Ballot::FIRST });
        let later = Some(Ballot { round: 6, ..Ballot::FIRST });
        let mut since = OpenSince::default();
        let at = Duration::from_secs;
        assert!(!since.is_abandoned(opened, at(100)) && !since.is_abandoned(opened, at(159)));
        assert!(since.is_abandoned(opened, at(160)));
        assert!(!since.is_abandoned(later, at(160)), "another one");
        assert!(!since.is_abandoned(None, at(900)) && !since.is_abandoned(later, at(900)));
        since.forget();
        assert!(!since.is_abandoned(later, at(2_000)), "another node led meanwhile");
    }
}
