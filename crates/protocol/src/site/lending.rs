//! The job that brings loans of groups to their borrowers, and what borrowers write back to the
//! owners.
//!
//! Everything that it does is a question that may be asked again. At the owner of slots it offers
//! groups with a row to their borrowers until these have answered; at a borrower it reports the
//! parts that the owners do not have yet: with writes since the last report, frozen ones, and those
//! whose row the owner has to confirm. Every group gets its turn: those that are not held, which
//! are served nowhere, before the others, and either in the order of their slots, round and round.
//! What comes back is a command of this site. At most [`limits::LOANS_INFLIGHT_MAX`] commands are
//! on their way to a site, each for up to [`limits::LOANS_PER_COMMAND_MAX`] groups.
//!
//! Groups of a keyspace that is not adaptive any more go home, so do those that this site may not
//! have by the rules of their keyspace or their home's failure domain
//! ([`crate::global::borrowers`]), and everything of a site that leaves.
//!
//! Left out: which group is lent to whom is not decided here, but by [`super::placing`].

use super::Site;
use super::machine::global::loans::{LentRow, PartRow};
use crate::admission::{Context, GroupAt};
use crate::global::borrowers::{Borrowers, Homes};
use crate::job::{Effect, Job, Progress, View};
use crate::stream::sender::TIMEOUT;
use model::{
    Answer, Ballot, Command, Epoch, Failure, GlobalCommand, Group, Lending, LoanOffer, LoanPart,
    LoanReport, SiteId, Slot, SlotEpochs, StagedItem, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How long the outcome of an answer may take to show in the state.
const APPLIED: Duration = Duration::from_millis(50);

/// How long ago the owner of a slot may have sent its last message for a group to go home there.
const HEARD: Duration = Duration::from_secs(2);

/// How long after a look for groups that this site may not have it looks for them again.
const LOOK_AT_RULES: Duration = Duration::from_secs(1);

/// How long nothing is looked for after a look: every input of the core asks for one.
const LOOK: Duration = Duration::from_millis(5);

/// Which side of a loan a command is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Owner,
    Borrower,
}

/// A command on its way.
#[derive(Debug)]
struct Asked {
    to: SiteId,
    side: Side,
    groups: Vec<Group>,
}

/// The commands that are under way.
#[derive(Debug, Default)]
pub(super) struct Loans {
    last_id: u64,
    asked: BTreeMap<u64, Asked>,
    /// No group is asked about again before.
    not_before: BTreeMap<(Side, Group), Duration>,
    /// The last group that a site was asked about, of each side, among those that can wait and
    /// among those that cannot.
    last: BTreeMap<(SiteId, Side, bool), (Slot, Group)>,
    sent_bytes: u64,
    /// When it looked for something to do, and whether it was to look again too soon after that.
    looked: Option<Duration>,
    turn: usize,
    is_to_look: bool,
    /// Nothing more is given back before, of what goes home whatever its users do.
    gives_back: Option<Duration>,
    /// How often rows or parts have changed at this node.
    pub(super) changes: u64,
}

impl Loans {
    /// Those of these groups to ask a site about now: first those that cannot wait, and of either
    /// kind first those behind the last one that was asked about. Groups that are written all the
    /// time are due all the time, and would keep all behind them from their turn.
    fn next<'a>(
        &self,
        now: Duration,
        side: Side,
        groups: impl Iterator<Item = (SiteId, bool, &'a Group)>,
    ) -> BTreeMap<SiteId, Vec<Group>> {
        let mut by_site: BTreeMap<SiteId, [Vec<Group>; 4]> = BTreeMap::new();
        let mut has_room: BTreeMap<SiteId, bool> = BTreeMap::new();
        for (to, can_wait, group) in groups {
            if !*has_room.entry(to).or_insert_with(|| self.has_room(to, side)) {
                continue;
            }
            let last = self.last.get(&(to, side, can_wait));
            let had_turn = last.is_some_and(|(slot, last)| (group.slot(), group) <= (*slot, last));
            let lists = by_site.entry(to).or_default();
            let list = &mut lists[2 * usize::from(can_wait) + usize::from(had_turn)];
            let waits = self.not_before.get(&(side, group.clone()));
            if list.len() < limits::LOANS_PER_COMMAND_MAX && waits.is_none_or(|at| *at <= now) {
                list.push(group.clone());
            }
        }
        let first = |lists: [Vec<Group>; 4]| {
            lists.into_iter().flatten().take(limits::LOANS_PER_COMMAND_MAX).collect()
        };
        let groups = by_site.into_iter().map(|(to, lists)| (to, first(lists)));
        groups.filter(|(_, groups): &(_, Vec<Group>)| !groups.is_empty()).collect()
    }

    /// A site is asked about a group: the next one is behind it.
    fn takes(&mut self, to: SiteId, side: Side, can_wait: bool, group: &Group) {
        self.last.insert((to, side, can_wait), (group.slot(), group.clone()));
    }

    fn has_room(&self, to: SiteId, side: Side) -> bool {
        let of_site = self.asked.values().filter(|one| one.to == to && one.side == side);
        of_site.count() < limits::LOANS_INFLIGHT_MAX
    }

    fn ask(
        &mut self,
        now: Duration,
        (to, side): (SiteId, Side),
        (groups, bytes): (Vec<Group>, usize),
        step: Lending,
    ) -> Effect {
        self.last_id += 1;
        self.sent_bytes += bytes as u64;
        for group in &groups {
            self.not_before.insert((side, group.clone()), now + limits::REQUEST_DEADLINE);
        }
        self.asked.insert(self.last_id, Asked { to, side, groups });
        Effect::ask(self.last_id, to, Command::Global(GlobalCommand::Lending(step)))
    }

    fn offer<S: State>(
        &mut self,
        view: &View<'_, S>,
        own: SiteId,
        (to, groups): (SiteId, Vec<Group>),
    ) -> Option<Effect> {
        let (mut offers, mut taken, mut bytes) = (Vec::new(), Vec::new(), 0);
        for group in groups {
            match view.machine.offer(&group) {
                Ok(Some(offer)) => {
                    self.takes(to, Side::Owner, false, &group);
                    bytes += offer_bytes(&offer);
                    offers.push(offer);
                    taken.push(group);
                }
                // It makes room for those behind it.
                Ok(None) => drop(self.not_before.insert((Side::Owner, group), view.now + TIMEOUT)),
                Err(error) => return Some(Effect::Fail(error.to_string())),
            }
            if bytes >= limits::LOANS_BYTES_MAX {
                break;
            }
        }
        if offers.is_empty() {
            return None;
        }
        let (revision, log_time_ms) = (view.machine.revision(), view.machine.log_time_to_send_ms());
        let step = Lending::Offer { from: own, revision, log_time_ms, offers };
        Some(self.ask(view.now, (to, Side::Owner), (taken, bytes), step))
    }

    fn report<S: State>(
        &mut self,
        view: &View<'_, S>,
        own: SiteId,
        (to, groups): (SiteId, Vec<Group>),
    ) -> Option<Effect> {
        let (mut parts, mut taken, mut bytes) = (Vec::new(), Vec::new(), 0);
        for group in groups {
            match view.machine.loan_report(&group) {
                Ok(Some(report)) => {
                    self.takes(to, Side::Borrower, report.part == LoanPart::Held, &group);
                    bytes += report_bytes(&report);
                    parts.push(report);
                    taken.push(group);
                }
                Ok(None) => {}
                Err(error) => return Some(Effect::Fail(error.to_string())),
            }
            if bytes >= limits::LOANS_BYTES_MAX {
                break;
            }
        }
        if parts.is_empty() {
            return None;
        }
        let (revision, log_time_ms) = (view.machine.revision(), view.machine.log_time_to_send_ms());
        let step = Lending::Report { by: own, revision, log_time_ms, parts };
        Some(self.ask(view.now, (to, Side::Borrower), (taken, bytes), step))
    }
}

impl Loans {
    /// What goes home whatever its users do: everything at a site that leaves; elsewhere groups of
    /// keyspaces that are not adaptive any more, and those that this site may not have, to owners
    /// that have sent something lately and have room on their disks. A group on its way to another
    /// one would be served nowhere.
    fn give_back<S: State>(&mut self, view: &View<'_, S>, leaves: bool) -> Vec<Effect> {
        let machine = view.machine;
        let Some(member) = machine.membership() else { return Vec::new() };
        let ends = leaves || machine.specs().any(|spec| spec.was_adaptive);
        let has_rules = has_rules(view);
        if !(ends || has_rules) || self.gives_back.is_some_and(|at| view.now < at) {
            return Vec::new();
        }
        // All parts are looked at, most often for nothing.
        self.gives_back = Some(view.now + TIMEOUT);
        let mut unheard = BTreeSet::new();
        let (all, mut homes) = (Homes::of(&member.registry), BTreeMap::new());
        let mut goes = |(group, part): &(&Group, &PartRow)| {
            if part.borrowed.part != LoanPart::Held {
                return false;
            }
            if leaves {
                return true;
            }
            let spec = machine.spec(group.keyspace);
            let Some(spec) = spec.filter(|spec| spec.was_adaptive || has_rules) else {
                return false;
            };
            let owner = machine.lender(group, part);
            let borrowers = homes.entry(owner).or_insert_with(|| all.borrowers(owner));
            if !spec.was_adaptive && !borrowers.sends_home(spec, group, member.own) {
                return false;
            }
            let since = view.now.saturating_sub(HEARD);
            let takes_it = view.failure_detector.may_commit_since(owner, since);
            if !takes_it {
                unheard.insert(owner);
            }
            takes_it
        };
        let mut room = machine.room_home();
        let loans = machine.parts().filter(|one| goes(one)).take(limits::LOANS_PER_COMMAND_MAX);
        let loans = loans.take_while(|(_, part)| room.takes(part.bytes));
        let loans: Vec<_> =
            loans.map(|(group, part)| (group.clone(), part.borrowed.loan)).collect();
        let mut effects: Vec<Effect> = unheard.into_iter().map(Effect::Call).collect();
        if loans.is_empty() && effects.is_empty() && !ends {
            // Rules stay, and all parts are looked at.
            self.gives_back = Some(view.now + LOOK_AT_RULES);
        }
        if !loans.is_empty() {
            effects.push(propose(Lending::GiveBack { loans }));
        }
        effects
    }
}

/// Whether there are rules by which groups go home that are at this site.
fn has_rules<S: State>(view: &View<'_, S>) -> bool {
    let Some(member) = view.machine.membership() else { return false };
    let own = member.registry.site(member.own);
    let has_domain = own.is_some_and(|site| site.failure_domain.is_some());
    has_domain || view.machine.specs().any(|spec| !spec.lend_to.is_empty())
}

fn items_bytes(items: &[StagedItem]) -> usize {
    let bytes = |item: &StagedItem| match item {
        StagedItem::Record { key, row, .. } => key.len() + row.len(),
        StagedItem::Remembered { row, .. } => row.len(),
        _ => 0,
    };
    items.iter().map(bytes).sum()
}

fn offer_bytes(offer: &LoanOffer) -> usize {
    offer.group.tag.len() + items_bytes(&offer.records)
}

fn report_bytes(report: &LoanReport) -> usize {
    report.group.tag.len() + report.records.as_deref().map_or(0, items_bytes)
}

fn propose(step: Lending) -> Effect {
    Effect::Propose(Command::Global(GlobalCommand::Lending(step)))
}

/// The right by which a site serves a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRight {
    /// It owns the slot at this epoch, and the group is home.
    Slot(Epoch),
    /// It has borrowed the group, from an owner with this version of the registry.
    Loan(Ballot),
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// This site's part in a group of another site's slot.
    pub fn part(&self, group: &Group) -> Option<PartRow> {
        self.machine.part(group)
    }

    /// All of its parts.
    pub fn parts(&self) -> impl Iterator<Item = (&Group, &PartRow)> + '_ {
        self.machine.parts()
    }

    /// The groups that this site lends out of its slots, by this replica's state.
    pub fn lent(&self) -> impl Iterator<Item = (&Group, &LentRow)> + '_ {
        self.machine.lent()
    }

    /// By what right this site serves a group, by this replica's state; `None`: it does not.
    pub fn serves_group(&self, group: &Group) -> Option<GroupRight> {
        match self.group_at(group) {
            GroupAt::Here => {
                let part = self.machine.part(group)?;
                Some(GroupRight::Loan(part.borrowed.known))
            }
            GroupAt::Between => None,
            // A hint of this node, where the slot is not here.
            GroupAt::At(..) | GroupAt::Slot => {
                let slot = group.slot();
                let is_home = self.machine.borrower_of(group).is_none();
                (is_home && self.machine.serves(slot))
                    .then(|| GroupRight::Slot(self.machine.token(slot).epoch()))
            }
        }
    }

    /// Whether the rules of placement let this site have a group that it has borrowed, by this
    /// replica's state.
    pub fn may_have(&self, group: &Group) -> bool {
        let machine = &self.machine;
        let (Some(member), Some(part)) = (machine.membership(), machine.part(group)) else {
            return true;
        };
        let borrowers = Borrowers::of(&member.registry, machine.lender(group, &part));
        let spec = machine.spec(group.keyspace);
        !spec.is_some_and(|spec| borrowers.sends_home(spec, group, member.own))
    }

    /// How often this node has seen a row or a part come, go or change hands. It begins with 0 at
    /// each start.
    pub fn loan_changes(&self) -> u64 {
        self.jobs.lend.changes
    }

    /// How many loans and parts wait for an answer of another site, by this replica's state.
    pub fn loans_under_way(&self) -> usize {
        self.machine.offered().count() + self.machine.parts_due().count()
    }
}

impl<S: State> Job<S> for Loans {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let machine = view.machine;
        self.is_to_look = self.looked.is_some_and(|at| view.now < at + LOOK);
        if self.is_to_look {
            return Vec::new();
        }
        self.looked = Some(view.now);
        // A restored site's parts are of former times.
        let may = machine.has_loans() && !view.disk_is_full && !machine.is_unconfirmed();
        let Some(member) = machine.membership().filter(|_| may) else { return Vec::new() };
        let own = member.own;
        self.not_before.retain(|_, at| *at > view.now);
        let is_there = |to: SiteId| to == own || member.registry.site(to).is_some();
        let offered = machine.offered().filter(|(to, _)| is_there(*to));
        let offered = offered.map(|(to, group)| (to, false, group));
        let offered = self.next(view.now, Side::Owner, offered);
        // Of a slot whose owner has left, any site may know the next one.
        let others = member.registry.sites.iter().map(|site| site.id).filter(|site| *site != own);
        let others: Vec<SiteId> = others.collect();
        self.turn = self.turn.wrapping_add(1);
        let any = others.get(self.turn % others.len().max(1)).copied();
        let due = machine.parts_due();
        let due = due.filter_map(|(to, group)| match is_there(to) {
            true => Some((to, group)),
            false => Some((any?, group)),
        });
        // A part that is not held is served nowhere until its owner has it.
        let can_wait =
            |group| machine.part(group).is_some_and(|part| part.borrowed.part == LoanPart::Held);
        let due = due.map(|(to, group)| (to, can_wait(group), group));
        let due = self.next(view.now, Side::Borrower, due);
        let mut effects = Vec::new();
        let leaves = member.registry.site(own).is_some_and(|site| site.leaving);
        effects.extend(self.give_back(view, leaves));
        for one in offered {
            effects.extend(self.offer(view, own, one));
        }
        for one in due {
            effects.extend(self.report(view, own, one));
        }
        effects
    }

    fn answered(
        &mut self,
        id: u64,
        outcome: Result<Answer, Failure>,
        view: &View<'_, S>,
    ) -> Vec<Effect> {
        let Some(Asked { to, side, groups }) = self.asked.remove(&id) else { return Vec::new() };
        let wait = if outcome.is_ok() { APPLIED } else { TIMEOUT };
        for group in groups {
            self.not_before.insert((side, group), view.now + wait);
        }
        match outcome {
            Ok(Answer::Borrowed(parts)) => vec![propose(Lending::Answered { by: to, parts })],
            Ok(Answer::Lent { revision, states, elsewhere }) => {
                let mut effects = Vec::new();
                if !states.is_empty() {
                    effects.push(propose(Lending::Follow { owner: to, revision, states }));
                }
                let mut by_owner: BTreeMap<SiteId, Vec<_>> = BTreeMap::new();
                for (slot, (owner, epoch)) in elsewhere {
                    if view.machine.token(slot).epoch() < epoch {
                        by_owner.entry(owner).or_default().push((slot, epoch));
                    }
                }
                effects.extend(by_owner.into_iter().map(|(owner, slots)| {
                    let slots = SlotEpochs::gather(slots);
                    let register = GlobalCommand::Register { owner, slots };
                    Effect::Propose(Command::Global(register))
                }));
                effects
            }
            _ => Vec::new(),
        }
    }

    fn progress(&self, view: &View<'_, S>) -> Progress {
        let left = view.machine.offered().count() + view.machine.parts_due().count();
        Progress { left: left as u64, sent_bytes: self.sent_bytes }
    }

    /// The next leader asks anew.
    fn stop(&mut self) -> Vec<Effect> {
        self.asked.clear();
        self.not_before.clear();
        Vec::new()
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        let look = self.looked.filter(|_| self.is_to_look).map(|at| at + LOOK);
        self.not_before.values().copied().chain(look).filter(|at| *at > now).min()
    }
}
