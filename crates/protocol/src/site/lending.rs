//! The job that brings loans of groups to their borrowers, and what borrowers write back to the owners.
//!
//! Everything that it does is a question that may be asked again. At the owner of slots it offers groups with a
//! row to their borrowers until these have answered; at a borrower it reports the parts that the owners do not
//! have yet: with writes since the last report, frozen ones, and those whose row the owner has to confirm. What
//! comes back is a command of this site. At most [`limits::LOANS_INFLIGHT_MAX`] commands are on their way to a
//! site, each for up to [`limits::LOANS_PER_COMMAND_MAX`] groups.
//!
//! Left out: which group is lent to whom is not decided here, but by [`super::placing`].

use super::Site;
use super::machine::loans::PartRow;
use crate::job::{Effect, Job, Progress, View};
use crate::stream::sender::TIMEOUT;
use model::{
    Answer, Command, Failure, GlobalCommand, Group, Lending, LoanOffer, LoanPart, LoanReport,
    SiteId, SlotEpochs, StagedItem, limits,
};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;

/// How long the outcome of an answer may take to show in the state.
const APPLIED: Duration = Duration::from_millis(50);

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
    sent_bytes: u64,
    /// A site that leaves gives nothing more back before.
    gives_back: Option<Duration>,
}

impl Loans {
    /// Those of these groups to ask a site about now.
    fn next<'a>(
        &self,
        now: Duration,
        side: Side,
        groups: impl Iterator<Item = (SiteId, &'a Group)>,
    ) -> BTreeMap<SiteId, Vec<Group>> {
        let mut by_site: BTreeMap<SiteId, Vec<Group>> = BTreeMap::new();
        for (to, group) in groups {
            let waits = self.not_before.get(&(side, group.clone()));
            let of_site = by_site.entry(to).or_default();
            if waits.is_none_or(|at| *at <= now) && of_site.len() < limits::LOANS_PER_COMMAND_MAX {
                of_site.push(group.clone());
            }
        }
        by_site.retain(|to, groups| !groups.is_empty() && self.has_room(*to, side));
        by_site
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
                    bytes += offer_bytes(&offer);
                    offers.push(offer);
                    taken.push(group);
                }
                Ok(None) => {}
                Err(error) => return Some(Effect::Fail(error.to_string())),
            }
            if bytes >= limits::LOANS_BYTES_MAX {
                break;
            }
        }
        if offers.is_empty() {
            return None;
        }
        let (revision, log_time_ms) = (view.machine.revision(), view.machine.time_to_say());
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
        let (revision, log_time_ms) = (view.machine.revision(), view.machine.time_to_say());
        let step = Lending::Report { by: own, revision, log_time_ms, parts };
        Some(self.ask(view.now, (to, Side::Borrower), (taken, bytes), step))
    }
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

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// This site's part in a group of another site's slot.
    pub fn part(&self, group: &Group) -> Option<PartRow> {
        self.machine.part(group)
    }
}

impl<S: State> Job<S> for Loans {
    fn poll(&mut self, view: &View<'_, S>) -> Vec<Effect> {
        let machine = view.machine;
        let may = machine.has_loans() && !view.disk_is_full;
        let Some(member) = machine.membership().filter(|_| may) else { return Vec::new() };
        let own = member.own;
        let is_there = |to: SiteId| to == own || member.registry.site(to).is_some();
        let offered = machine.offered().filter(|(to, _)| is_there(*to));
        let offered = self.next(view.now, Side::Owner, offered);
        let due = machine.parts_due().filter(|(to, _)| is_there(*to));
        let due = self.next(view.now, Side::Borrower, due);
        let mut effects = Vec::new();
        if member.registry.site(own).is_some_and(|site| site.leaving) {
            let held = machine.parts().filter(|(_, part)| part.borrowed.part == LoanPart::Held);
            let loans = held.take(limits::LOANS_PER_COMMAND_MAX);
            let loans: Vec<_> =
                loans.map(|(group, part)| (group.clone(), part.borrowed.loan)).collect();
            if !loans.is_empty() && self.gives_back.is_none_or(|at| at <= view.now) {
                self.gives_back = Some(view.now + TIMEOUT);
                effects.push(propose(Lending::GiveBack { loans }));
            }
        }
        for one in offered {
            effects.extend(self.offer(view, own, one));
        }
        for one in due {
            effects.extend(self.report(view, own, one));
        }
        if self.asked.is_empty() {
            self.not_before.retain(|_, at| *at > view.now);
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
                effects.extend(by_owner.into_iter().map(|(holder, slots)| {
                    let slots = SlotEpochs::gather(slots);
                    let register = GlobalCommand::Register { holder, slots };
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
        self.not_before.values().copied().filter(|at| *at > now).min()
    }
}
