//! The owners of slots, by this site's log: the rules of [`crate::global::ownership`], carried out
//! on records.
//!
//! Whatever changes a token or a copy goes through [`Applying::step`]: it applies the rules, and
//! moves the records accordingly. A newer registry is followed in the command that brings it: its
//! open failover fences sites, and what was decided meanwhile takes slots and gives them away.

use super::Applying;
use super::claims;
use super::deployment::DeploymentMember;
use super::lineage::Whose;
use super::tokens::Token;
use super::{MachineError, Modes, Stopped};
use crate::bugs::{Bug, of_rules};
use crate::global::ownership::trial::Planted;
use crate::global::ownership::{Fences, Holding, Records, Token as Right};
use model::{
    Answer, Ballot, CopyRun, DecidedFailover, Epoch, Failovers, Inventory, MoveError, MoveId,
    NUMBERS_SKIPPED, Refusal, Registry, RegistryError, Revision, SiteId, Slot, SlotCopy,
    SlotEpochs, SlotRun, SlotSet, Tag,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::state::State;

/// What is refused while a failover is open, and asked for again.
pub(in crate::site::machine) const FAILOVER_OPEN: MoveError =
    MoveError::NotReady("a failover is under way, or a site is not back from one");

impl Modes {
    /// This site's record of a slot.
    pub(in crate::site::machine) fn holding(&self, slot: Slot) -> Holding {
        let token = match self.slots.token(slot) {
            Token::Never => Right::Never,
            Token::Held(epoch) | Token::Leaving { epoch, frozen: false, .. } => Right::Held(epoch),
            Token::Leaving { epoch, number, frozen: true } => {
                let to = self.outgoing.get(&number).map_or(SiteId(0), |one| one.to);
                Right::Frozen { epoch, to }
            }
            Token::Gone { epoch, to } => Right::Gone { epoch, to },
        };
        Holding { token, copy: self.copy_of(slot) }
    }

    /// A slot up to which this site has the same records of all as of this one.
    pub(super) fn same_holding_until(&self, slot: Slot) -> Slot {
        self.slots.token_run(slot).0.min(self.same_copy_until(slot))
    }

    /// The registry, if this site belongs to a deployment, and which site it is.
    pub(in crate::site::machine) fn place(&self) -> Option<(SiteId, Arc<Registry>)> {
        let member = self.deployment.member.as_ref()?;
        Some((member.own, member.registry.clone()))
    }

    /// Whether a failover is under way.
    pub(super) fn is_failover_open(&self) -> bool {
        let member = self.deployment.member.as_ref();
        member.is_some_and(|member| member.registry.failovers.open.is_some())
    }

    /// The fences of this site by its copy of the registry.
    pub(super) fn fences<'a>(
        &self,
        own: SiteId,
        failovers: &'a Failovers,
        planted: Planted,
    ) -> Fences<'a> {
        let fences = Fences::new(own, failovers.open.as_ref(), planted);
        fences.decided(&failovers.decided).unconfirmed(self.deployment.unconfirmed.is_some())
    }

    /// Whether this site serves nothing: a failover that is open takes it for lost, or what it owns
    /// is not confirmed.
    pub(in crate::site::machine) fn is_fenced(&self) -> bool {
        let member = self.deployment.member.as_ref();
        let is_lost = |member: &DeploymentMember| member.registry.failovers.is_fenced(member.own);
        self.deployment.unconfirmed.is_some() || member.is_some_and(is_lost)
    }
}

impl<S: State> Applying<'_, S> {
    /// Whether slots may pass between this site and another one.
    pub(super) fn is_parted_from(&self, site: SiteId) -> bool {
        let Some((own, registry)) = self.modes.place() else { return false };
        self.modes.fences(own, &registry.failovers, Planted::none()).part_from(site)
    }

    /// These slots in runs of which this site has the same records, and of which one step is taken.
    pub(in crate::site::machine) fn alike(&self, slots: &SlotSet) -> Vec<SlotRun> {
        let until = |slot| self.modes.same_holding_until(slot);
        slots.runs().flat_map(|run| run.cut(until)).collect()
    }

    /// Takes a step of slots of which this site has the same records, and moves those accordingly.
    /// Whether anything changed.
    pub(in crate::site::machine) fn step(
        &mut self,
        run: SlotRun,
        step: impl FnOnce(&mut Holding, &Fences<'_>) -> Records,
    ) -> bool {
        let Some((own, registry)) = self.modes.place() else { return false };
        let before = self.modes.holding(run.first);
        let mut after = before;
        let fences = self.modes.fences(own, &registry.failovers, of_rules(self.modes.planted));
        let records = step(&mut after, &fences);
        match records {
            Records::Stay | Records::Install => {}
            Records::Retain => {
                let stores = self.take_stores(run);
                if let Some(copy) = after.copy {
                    self.put_copy(run, copy, stores, false);
                }
                self.move_answers(run, Whose::Own, Whose::Copied);
            }
            Records::Drop | Records::BeginEmpty => {
                for store in self.take_stores(run).into_values() {
                    self.discard(store.generation);
                }
                self.drop_answers(run, Whose::Own);
            }
            Records::Take => {
                let copied = self.remove_copy(run);
                for store in self.take_stores(run).into_values() {
                    self.discard(store.generation);
                }
                for ((slot, keyspace), store) in copied {
                    self.set_store(keyspace, slot, Some(store));
                }
                self.serve_answers(run, Whose::Copied, before.token.is_own());
            }
        }
        if let Right::Gone { epoch, .. } = after.token
            && before.token.is_own()
            && epoch.failover > before.token.epoch().failover
        {
            self.modes.given_up.add(run, before.token.epoch());
        }
        if after.copy.is_none() && before.copy.is_some() {
            self.drop_copy(run);
        }
        if after.token != before.token {
            self.set_token(
                run,
                match after.token {
                    Right::Never => Token::Never,
                    Right::Held(epoch) => Token::Held(epoch),
                    // Only a move freezes, and it writes its number itself.
                    Right::Frozen { epoch, .. } => Token::Held(epoch),
                    Right::Gone { epoch, to } => Token::Gone { epoch, to },
                },
            );
        }
        after != before
    }

    /// A site owns slots at these epochs: what this site has at lower ones it serves no more, nor a
    /// group of an owner before a failover, until this one confirms the loan. The decision itself
    /// may never come: it is forgotten once all sites have it that are listed.
    pub(in crate::site::machine) fn learn_owner(&mut self, owner: SiteId, slots: &SlotEpochs) {
        let mut away = SlotSet::default();
        for (slots, epoch) in &slots.0 {
            let mut news = SlotSet::default();
            for run in self.alike(slots) {
                let was_own = self.modes.holding(run.first).token.is_own();
                if self.step(run, |holding, fences| holding.learn(*epoch, owner, fences)) {
                    news.insert_run(run);
                    if was_own {
                        away.insert_run(run);
                    }
                }
            }
            self.loans_taken(epoch.failover, &news, owner);
        }
        self.pin(&away, false);
    }

    /// Follows a newer registry, `before` being the one that this site had.
    pub(in crate::site::machine) fn follow_failovers(
        &mut self,
        before: &Registry,
    ) -> Result<(), MachineError> {
        let Some((own, registry)) = self.modes.place() else { return Ok(()) };
        // A site that joined beyond the end of a term hands that in, and is there again.
        let acceptor = self.modes.deployment.acceptor.as_ref();
        let joins = acceptor.map(|acceptor| &acceptor.kept().joins[..]).unwrap_or_default();
        let hands_in = joins.iter().any(|site| site.id == own);
        if registry.site(own).is_none()
            && !hands_in
            && !self.modes.planted.is(Bug::StaleOwnerServes)
        {
            // It is gone for the others, and what it still held is theirs.
            self.give_up_all(registry.sites.first().map_or(own, |site| site.id));
        }
        // A site that handed copies on and is gone has completed that, or handed them to another
        // site.
        self.forget_copies_of(|from| registry.site(from).is_none());
        // Nor is anything installed that a site gave which has left since: its slots may be served
        // again.
        self.refuse_arrivals(|id| registry.has_left(id.from));
        let known: BTreeSet<Ballot> =
            before.failovers.decided.iter().map(|one| one.decided).collect();
        for one in registry.failovers.decided.iter().filter(|one| !known.contains(&one.decided)) {
            for taken in &one.taken {
                self.loans_taken(one.decided, &taken.slots, taken.by);
            }
            self.follow_decision(own, one)?;
        }
        self.loans_failed();
        self.settle_loans(SlotRun::ALL);
        self.follow_claims();
        self.follow_backups();
        Ok(())
    }

    fn follow_decision(&mut self, own: SiteId, one: &DecidedFailover) -> Result<(), MachineError> {
        if one.lost == own && self.modes.planted.is(Bug::StaleOwnerServes) {
            return Ok(());
        }
        let decided = Epoch::of_failover(one.decided);
        let mirrored = self.modes.mirrors.0.get(&one.lost).map_or(0, |mirror| mirror.revision);
        let (mut any_taken, mut away) = (false, SlotSet::default());
        // A copy that a leaving site has handed on is of no mirror that is here.
        let mut highest = mirrored;
        let mut lost = Vec::new();
        for taken in &one.taken {
            for run in self.alike(&taken.slots) {
                let before = self.modes.holding(run.first);
                if taken.by != own {
                    lost.extend(self.lost_of(run, decided, taken.from));
                }
                let was_own = before.token.is_own();
                let from = claims::From::of(&before);
                let counts = self.counts_before(run, &from);
                let taker = (taken.by, taken.from);
                let changed =
                    self.step(run, |holding, fences| holding.follow(decided, taker, fences));
                if changed && taken.by == own {
                    let position = taken.from.map(|(_, position)| position);
                    let position = position.filter(|position| *position != SlotCopy::COMPLETE);
                    highest = highest.max(position.unwrap_or_default());
                    // The lost site may have had groups back that these records have as lent.
                    self.offer_anew(run, None);
                    self.adopt_claims((run, one.opened), &from, &counts);
                }
                self.modes.given_up.forget(run);
                any_taken |= changed && taken.by == own;
                if changed && was_own && taken.by != own {
                    away.insert_run(run);
                }
            }
        }
        if any_taken {
            // Versions that the lost site gave unseen are not given again.
            let head = &mut self.known.head;
            let highest = head.revision.0.max(highest);
            head.revision = Revision(highest.saturating_add(NUMBERS_SKIPPED));
            self.next_revision();
        }
        self.pin(&away, false);
        self.end_moves_to(own, one.lost);
        if one.lost != own {
            self.refuse_arrivals(|id| id.from == one.lost);
        }
        self.list_lost_writes(one.decided, &lost)
    }

    /// Moves that have lost their slots to a failover end; those that had not frozen anything for
    /// the lost site do, too.
    fn end_moves_to(&mut self, own: SiteId, lost: SiteId) {
        let numbers: Vec<u64> = self.modes.outgoing.keys().copied().collect();
        for number in numbers {
            let one = self.modes.outgoing[&number].clone();
            let is_off = one.frozen.is_none() && (one.to == lost || own == lost);
            let mut is_left = false;
            for run in self.alike(&one.slots) {
                if let Token::Leaving { epoch, number: of, .. } = self.modes.slots.token(run.first)
                    && of == number
                {
                    is_left = true;
                    if is_off {
                        self.set_token(run, Token::Held(epoch));
                    }
                }
            }
            if is_off || !is_left {
                self.end_move(number);
            }
        }
    }

    /// Whatever this site held, others hold now.
    fn give_up_all(&mut self, by: SiteId) {
        self.refuse_arrivals(|_| true);
        let moves: Vec<u64> = self.modes.outgoing.keys().copied().collect();
        moves.into_iter().for_each(|number| self.end_move(number));
        let mut held = self.alike(&SlotSet::all());
        held.retain(|run| self.modes.holding(run.first).token.is_own());
        for run in &held {
            let epoch = self.modes.slots.token(run.first).epoch();
            for store in self.take_stores(*run).into_values() {
                self.discard(store.generation);
            }
            self.drop_answers(*run, Whose::Own);
            self.set_token(*run, Token::Gone { epoch, to: by });
        }
        self.pin(&held.into_iter().collect(), false);
    }

    fn refuse_arrivals(&mut self, is_one: impl Fn(&MoveId) -> bool) {
        let ids = self.modes.arrivals.under_way.keys().copied();
        let ids: Vec<MoveId> = ids.filter(is_one).collect();
        ids.into_iter().for_each(|id| self.refuse_arrival(id));
    }

    /// The sites that have this one as their backup, by the registry.
    pub(in crate::site::machine) fn note_backups(&mut self) {
        let deployment = &mut self.modes.deployment;
        deployment.backs_up = super::deployment::backs_up(deployment.member.as_ref());
    }

    // ---- what others ask ------------------------------------------------------------------------

    /// What this site records of all slots, by this registry or a newer one.
    pub(in crate::site::machine) fn inventory(
        &mut self,
        registry: &Registry,
        lost: SiteId,
        failover: Option<Ballot>,
    ) -> Result<Answer, Stopped> {
        self.learn_registry(registry)?;
        let (own, registry) = self.modes.place().ok_or(Refusal::NoDeployment)?;
        if let Some(opened) = failover {
            let open = registry.failovers.open.as_ref().filter(|open| open.opened == opened);
            let open = open.ok_or(Refusal::Registry(RegistryError::NoFailover))?;
            // A site that answers is not lost, whatever the failover states.
            if open.fences(own) {
                return Err(Refusal::Registry(RegistryError::NoFailover).into());
            }
        }
        if failover.is_none() {
            // It may have been restored.
            self.offer_anew(SlotRun::ALL, Some(lost));
            self.report_parts_anew(lost);
        }
        // A leaving site needs the sites that rely on it; others, what there is.
        let leaves = registry.site(lost).is_some_and(|site| site.leaving) && failover.is_none();
        let is_away = |to: SiteId| to == lost || !leaves && registry.has_left(to);
        let mut owners: BTreeMap<SiteId, Vec<(SlotRun, Epoch)>> = BTreeMap::new();
        let mut copies: BTreeMap<(Tag, u64, SiteId), (SlotSet, u64)> = BTreeMap::new();
        let mut frozen: BTreeMap<SiteId, SlotSet> = BTreeMap::new();
        for run in self.alike(&SlotSet::all()) {
            let holding = self.modes.holding(run.first);
            let report = holding.report(own, is_away);
            if let Some((epoch, owner)) = report.owner {
                owners.entry(owner).or_default().push((run, epoch));
            }
            if let Some(copy) = report.copy {
                let all = copies.entry((copy.tag, copy.position, copy.origin)).or_default();
                all.0.insert_run(run);
                all.1 += self.keys_of(run, holding.token.is_own());
            }
            if let Right::Frozen { to, .. } = holding.token {
                frozen.entry(to).or_default().insert_run(run);
            }
        }
        let owners =
            owners.into_iter().map(|(site, runs)| (site, SlotEpochs::of_runs(runs))).collect();
        let run = |((tag, position, origin), (slots, keys)): (_, (SlotSet, u64))| CopyRun {
            copy: SlotCopy { tag, origin, position },
            slots,
            keys,
        };
        let copies = copies.into_iter().map(run).collect();
        let frozen = frozen.into_iter().collect();
        let inventory = Box::new(Inventory { owners, copies, frozen });
        let claims = self.own_claims();
        Ok(match claims.is_empty() {
            true => Answer::Inventory(inventory),
            false => Answer::InventoryOfLoans(inventory, claims),
        })
    }

    fn keys_of(&self, run: SlotRun, own: bool) -> u64 {
        if !own {
            return self.modes.copies.keys_of(run);
        }
        let globals = self.known.keyspaces.globals();
        let stores = globals.into_iter().flat_map(|id| self.modes.slots.stores_of(id, run));
        stores.map(|(_, store)| store.count).sum()
    }

    /// Whether what a site reports of its slots counts.
    pub(in crate::site::machine) fn may_report(&self, by: SiteId) -> bool {
        let Some((own, registry)) = self.modes.place() else { return false };
        let fences = self.modes.fences(own, &registry.failovers, Planted::none());
        fences.count_reports_of(by, registry.site(by).is_some())
    }

    /// The owner of slots reports that copies of them are safe elsewhere.
    pub(in crate::site::machine) fn supersede(
        &mut self,
        slots: &SlotEpochs,
        generation: u64,
        position: u64,
    ) -> Answer {
        for (slots, epoch) in &slots.0 {
            let tag = Tag { epoch: *epoch, generation };
            for run in self.alike(slots) {
                self.step(run, |holding, fences| {
                    holding.superseded((tag, position), fences);
                    Records::Stay
                });
                self.forget_parts_of(run, *epoch, position);
            }
        }
        self.follow_backups();
        self.done_now()
    }

    /// An operator does without the copies of what a site owned.
    pub(in crate::site::machine) fn discard_copies(
        &mut self,
        of: SiteId,
    ) -> Result<Answer, Stopped> {
        let (_, registry) = self.modes.place().ok_or(Refusal::NoDeployment)?;
        if registry.failovers.open.is_some() {
            return Err(FAILOVER_OPEN.into());
        }
        let copies = self.modes.copies.by_slot.runs();
        let of_site = copies.filter(|(_, copy)| copy.origin == of);
        let runs: Vec<SlotRun> = of_site.map(|(run, _)| run).collect();
        runs.into_iter().for_each(|run| self.drop_copy(run));
        // Its stream begins anew, if that site is there after all: what it has sent is not here any
        // more.
        self.forget_mirror(of);
        Ok(self.done_now())
    }
}

impl<S: State> super::Machine<S> {
    /// The registry, if this site belongs to a deployment.
    pub fn registry(&self) -> Option<&Arc<Registry>> {
        self.modes.deployment.member.as_ref().map(|member| &member.registry)
    }

    /// This site's record of a slot.
    pub fn holding(&self, slot: Slot) -> Holding {
        self.modes.holding(slot)
    }

    /// Whether a slot is served here: it is this site's, and no failover takes the site for lost.
    pub fn serves(&self, slot: Slot) -> bool {
        self.modes.slots.token(slot).serves() && !self.modes.is_fenced()
    }
}
