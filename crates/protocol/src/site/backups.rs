//! Backups, as a site's nodes see to them: its own mirror, those it keeps, and stale reads of what
//! cannot be reached.
//!
//! A stale read of a key whose holder is silent goes to that holder's backup, which looks for itself
//! whether the holder answers, and answers from the mirror if it does not. No other read does, and
//! nobody is asked but the backup.

use super::machine::Stopped;
use super::{Origin, Site, moments};
use crate::global::backups::backup_of;
use crate::global::promotion::{self, Sight, Wanted};
use crate::global::routing::Target;
use crate::global::{mirroring, promotion::Promotions};
use model::{
    Answer, BackupError, Failure, KeyspaceId, Query, Refusal, RegistryChange, Revision, SiteId,
    Slot, limits,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::across::{AcrossSay, Alive, MirrorNews};

/// How often a backup is told how far its mirror is.
const NEWS_INTERVAL: Duration = Duration::from_millis(1_000);

/// What a node knows of mirrors beside what its state says.
#[derive(Debug, Default)]
pub(super) struct Backups {
    pub(super) promotions: Promotions,
    /// By original: which mirror, when it was last heard to be in step (log time, ms), and how far it
    /// was behind when it was last heard of.
    heard: BTreeMap<SiteId, (u64, u64, u64)>,
    next_news: Duration,
}

/// A mirror that is kept here, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whose.
    pub from: SiteId,
    /// How many slots the original held, and how many of them are whole here.
    pub holds: u32,
    /// See above.
    pub whole: u32,
    /// Keys in them.
    pub keys: u64,
    /// The original's revision that it was in step with.
    pub revision: Revision,
    /// How many revisions it was behind when the original was last heard; `None`: it was not heard by
    /// this node.
    pub behind: Option<u64>,
    /// When it was last known to be in step, milliseconds since 1970; 0: never.
    pub in_step_ms: u64,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Who keeps this site's mirror, as the registry has it.
    fn own_backup(&self) -> Option<SiteId> {
        let member = self.machine.membership()?;
        let is_lost = member.registry.is_lost(member.own);
        backup_of(&member.registry, member.own).filter(|_| !is_lost && self.options.mirrors)
    }

    pub(super) fn drive_mirror(&mut self) {
        if !self.leads() || self.disk_full.is_some() {
            return self.mirror.drop_all();
        }
        let now = self.now.monotonic;
        let wishes = self.mirror.advance(&self.machine, self.backup, now);
        wishes.into_iter().for_each(|wish| self.grant_mirror(wish));
    }

    /// The registry is another one: so may be this site's backup.
    pub(super) fn follow_backup(&mut self) {
        self.backup = self.own_backup();
    }

    pub(super) fn mirror_answered(&mut self, id: u64, outcome: Result<Answer, Failure>) {
        let wish = self.mirror.answered(&self.machine, id, outcome, self.now.monotonic);
        wish.into_iter().for_each(|wish| self.grant_mirror(wish));
    }

    fn grant_mirror(&mut self, wish: mirroring::Wish) {
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        match wish {
            mirroring::Wish::Propose(command) => self.take_write(Origin::Nobody, command, deadline),
            mirroring::Wish::Ask { id, to, body } => {
                self.route(Origin::Mirror(id), body, Target::Site(to), deadline);
            }
            mirroring::Wish::Fail(why) => self.fail(why),
        }
    }

    pub(super) fn tick_backups(&mut self) {
        self.tick_reach();
        self.drive_promotions();
        let now = self.now.monotonic;
        if !self.leads() || self.backups.next_news > now {
            return;
        }
        self.backups.next_news = now + NEWS_INTERVAL;
        self.say_returned();
        self.send_receipts();
        let Some(progress) = self.mirror.progress(&self.machine, now) else { return };
        let Some(own) = self.machine.own_mirror() else { return };
        let nodes = self.nodes_of(own.to);
        if let Some(node) = self.routing.node_of(own.to, &nodes) {
            let news = MirrorNews { number: own.number, behind: progress.behind };
            self.say_across(own.to, node, AcrossSay::Mirror(news));
        }
    }

    /// This site was lost and has come back, and has given up what it held: it says so.
    fn say_returned(&mut self) {
        let Some(member) = self.machine.membership() else { return };
        let Some(promotion) = member.registry.backups.promotion(member.own) else { return };
        let from = self.machine.revision().next();
        let change = RegistryChange::Return(member.own, promotion.number, from);
        let deadline = self.now.monotonic + 2 * NEWS_INTERVAL;
        self.change_registry(Origin::Nobody, change, deadline);
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
        let heard = self.backups.heard.entry(site).or_insert((news.number, 0, 0));
        if heard.0 != news.number {
            *heard = (news.number, 0, 0);
        }
        heard.2 = news.behind;
        if news.behind == 0 {
            heard.1 = self.log_clock.now_ms();
        }
    }

    /// When a mirror was last in step, by this node's wall clock; 0: never.
    fn in_step_ms(&self, from: SiteId) -> u64 {
        let Some(mirror) = self.machine.mirrors().get(&from) else { return 0 };
        let heard = self.backups.heard.get(&from).filter(|heard| heard.0 == mirror.number);
        match heard.map_or(0, |heard| heard.1).max(mirror.in_step_ms) {
            0 => 0,
            at_ms => {
                let age_ms = self.log_clock.now_ms().saturating_sub(at_ms);
                self.now.wall_ms.saturating_sub(age_ms).max(1)
            }
        }
    }

    /// How far this site's own mirror has come, as its leader knows.
    pub fn mirror_progress(&self) -> Option<mirroring::Progress> {
        let leads = self.leads();
        let progress = self.mirror.progress(&self.machine, self.now.monotonic);
        progress.filter(|_| leads)
    }

    /// The mirrors of other sites that are kept here.
    pub fn mirrors_kept(&self) -> Vec<Kept> {
        let kept = |(from, mirror): (&SiteId, &super::machine::mirrors::Mirror)| {
            let heard = self.backups.heard.get(from).filter(|heard| heard.0 == mirror.number);
            Kept {
                from: *from,
                holds: mirror.holds,
                whole: mirror.whole.len() as u32,
                keys: mirror.keys(),
                revision: Revision(mirror.revision),
                behind: heard.map(|heard| heard.2),
                in_step_ms: self.in_step_ms(*from),
            }
        };
        self.machine.mirrors().iter().map(kept).collect()
    }

    // ---- stale reads -------------------------------------------------------------------------------

    /// Sees to a stale read of a slot whose holder is silent. Whether it did.
    pub(super) fn reads_from_backup(&mut self, id: u64, slot: Slot, holder: SiteId) -> bool {
        let now = self.now.monotonic;
        let Some((keyspace, query)) = self.routing.stale_read(id) else { return false };
        if !self.reach.is_silent(holder, now) {
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
                        let settled = self.routing.end(id, outcome);
                        self.settle(settled.into_iter().collect());
                        true
                    }
                }
            }
            Some(backup) if backup != own && !self.reach.is_silent(backup, now) => {
                let nodes = self.nodes_of(backup);
                let Some(node) = self.routing.node_of(backup, &nodes) else { return false };
                self.reach.asked(backup, now);
                let sent = self.routing.go_to_backup(id, backup, node, now);
                if let Some(request) = sent {
                    self.outbox.push(backup, node, request);
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
        let Some((keyspace, query)) = self.routing.backup_read(id) else { return false };
        let Some(holder) = self.machine.mirror_of(slot) else { return false };
        if self.options.witness || self.reach.is_heard(holder, now) {
            return false;
        }
        if !self.reach.is_silent(holder, now) {
            self.ask_alive(holder);
            self.routing.rest(id, now);
            return true;
        }
        let outcome = self.answer_from_mirror(holder, keyspace, &query);
        let settled = self.routing.end(id, outcome);
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
                let (now_ms, ahead) = (self.log_clock.now_ms(), self.log_clock.wall_ahead_ms());
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

    // ---- promotion ---------------------------------------------------------------------------------

    /// Where an operator's wish to promote is to go.
    pub(super) fn target_of_promotion(
        &self,
        lost: SiteId,
        by: Option<SiteId>,
    ) -> Result<Target, Refusal> {
        let member = self.machine.membership().ok_or(Refusal::NoDeployment)?;
        if let Some(promotion) = member.registry.backups.promotion(lost) {
            return Err(BackupError::Promoted(promotion.by).into());
        }
        let by = by.or_else(|| backup_of(&member.registry, lost));
        by.map(Target::Site).ok_or_else(|| BackupError::None.into())
    }

    pub(super) fn take_promotion(&mut self, wanted: Wanted) {
        let lost = wanted.lost;
        let mut wishes = Vec::new();
        self.with_promotions(lost, |promotions, sight| wishes = promotions.want(wanted, sight));
        wishes.into_iter().for_each(|wish| self.grant_promotion(wish));
    }

    fn drive_promotions(&mut self) {
        let lost = self.backups.promotions.lost_sites();
        if lost.is_empty() {
            return;
        }
        let mut wishes = Vec::new();
        if self.leads() {
            for lost in lost {
                self.with_promotions(lost, |promotions, sight| {
                    wishes.extend(promotions.advance(lost, sight));
                });
            }
        } else {
            wishes = self.backups.promotions.drop_all();
        }
        wishes.into_iter().for_each(|wish| self.grant_promotion(wish));
    }

    pub(super) fn promotion_answered(&mut self, id: u64, outcome: Result<Answer, Failure>) {
        let Some(lost) = self.backups.promotions.lost_of(id) else { return };
        let mut wishes = Vec::new();
        self.with_promotions(lost, |promotions, sight| {
            wishes = promotions.answered(id, outcome, sight);
        });
        wishes.into_iter().for_each(|wish| self.grant_promotion(wish));
    }

    fn with_promotions(&mut self, lost: SiteId, act: impl FnOnce(&mut Promotions, &Sight<'_>)) {
        let mut promotions = std::mem::take(&mut self.backups.promotions);
        if let Some(member) = self.machine.membership() {
            let sight = Sight {
                now: self.now.monotonic,
                own: member.own,
                registry: &member.registry,
                mirror: self.machine.mirrors().get(&lost),
                revision: self.machine.revision().0,
                in_step_ms: self.in_step_ms(lost),
                heard_since: &|site, since| self.reach.is_heard_since(site, since),
            };
            act(&mut promotions, &sight);
        }
        self.backups.promotions = promotions;
    }

    fn grant_promotion(&mut self, wish: promotion::Wish) {
        let deadline = self.now.monotonic + limits::REQUEST_DEADLINE;
        match wish {
            promotion::Wish::Call(site) => self.ask_alive(site),
            promotion::Wish::Ask { id, to, body } => {
                self.route(Origin::Promotion(id), body, Target::Site(to), deadline);
            }
            promotion::Wish::Change { id, change } => {
                if let RegistryChange::Promote(promotion) = &change {
                    self.recover_for_promotion(promotion.lost, deadline);
                }
                self.change_registry(Origin::Promotion(id), change, deadline);
            }
            promotion::Wish::Here { id, command } => {
                self.take_write(Origin::Promotion(id), command, deadline);
            }
            promotion::Wish::Settle(origin, outcome) => self.settle(vec![(origin, outcome)]),
        }
    }
}
