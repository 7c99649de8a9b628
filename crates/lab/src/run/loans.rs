//! Lent groups: which site serves each, and what may be lost with a borrower.
//!
//! Never do two sites serve a group, but for those that a failover took for lost and that have not
//! learned of it. In the end, when all sites are back, one does, no loan waits for an answer, and
//! no site has a group that it may not have.
//!
//! What a borrower wrote is lost with it beyond what the slot's owner has of it, or the copy from
//! which another site takes the slot. So it is noted when owners have all that borrowers have
//! written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Bytes, Epoch, Group, LoanPart, SiteId};
use protocol::site::GroupRight;
use protocol::site::machine::global::loans::PartRow;

use super::Run;
use super::form::TIMEOUT;
use crate::simulation::NodeIndex;
use crate::simulation::promoted::Promoted;

/// What was seen of a loan at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The slot's owner at this epoch had all that the borrower had written.
    InStep(Epoch),
    /// Perhaps it had not.
    Behind,
    /// The borrower had nothing that the slot's owner did not have, and no part in the group.
    Over,
}

/// What was seen of loans, by group and borrower.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<(Group, SiteId), Vec<(Duration, Look)>>);

impl Run<'_> {
    /// The leaders of the sites that are there, and the sites without such a one.
    fn leaders(
        &self,
        leader_of: impl Fn(&Self, usize) -> Option<NodeIndex>,
    ) -> (Vec<(SiteId, NodeIndex)>, Vec<SiteId>) {
        let (mut leaders, mut others) = (Vec::new(), Vec::new());
        for site in (0..self.lab.sites.len()).filter(|site| self.lab.is_there(*site)) {
            let Some(id) = self.lab.sites[site].id else { continue };
            match leader_of(self, site) {
                Some(leader) => leaders.push((id, leader)),
                None => others.push(id),
            }
        }
        (leaders, others)
    }

    /// Those of these groups that are lent, or were, by any of these leaders' states.
    fn groups_in_play(&self, leaders: &[(SiteId, NodeIndex)]) -> BTreeSet<Group> {
        let lent = leaders.iter().flat_map(|(_, leader)| self.lab.lent(*leader));
        let parts = leaders.iter().flat_map(|(_, leader)| self.lab.parts(*leader));
        lent.map(|(group, _)| group).chain(parts.map(|(group, _)| group)).cloned().collect()
    }

    /// No group is served by two sites now.
    pub(super) fn judge_groups(&mut self) {
        if !self.lab.settings.notes_groups || self.lab.failure.is_some() {
            return;
        }
        let (leaders, others) = self.leaders(Self::sure_leader);
        self.groups_unsure |= !others.is_empty();
        for group in self.groups_in_play(&leaders) {
            let serving = leaders
                .iter()
                .filter_map(|(id, leader)| Some((*id, self.lab.serves_group(*leader, &group)?)));
            let serving: Vec<(SiteId, GroupRight)> = serving.collect();
            // A site that has to learn of a failover may serve what is no more its own.
            let is_wrong = |one: (SiteId, GroupRight), other: (SiteId, GroupRight)| {
                !self.is_former(one, other.1) && !self.is_former(other, one.1)
            };
            let mut pairs = (0..serving.len()).flat_map(|at| {
                let (one, others) = (serving[at], &serving[at + 1..]);
                others.iter().map(move |other| (one, *other))
            });
            if let Some((one, other)) = pairs.find(|(one, other)| is_wrong(*one, *other)) {
                let (a, b) = (self.name_of(one.0), self.name_of(other.0));
                let tag = String::from_utf8_lossy(&group.tag);
                let what = format!(
                    "group {tag} is served by two sites: {a} by {:?}, and {b} by {:?}",
                    one.1, other.1
                );
                self.lab.failure.get_or_insert(what);
                return;
            }
        }
    }

    /// Whether a failover that a site has not learned of has given a group away that it serves, beside
    /// one that serves it by another right.
    fn is_former(&self, (site, right): (SiteId, GroupRight), beside: GroupRight) -> bool {
        let later = match beside {
            GroupRight::Slot(epoch) => epoch.failover,
            GroupRight::Loan(known) => known,
        };
        self.lab.promotions().iter().any(|one| {
            let decided = one.failover.decided;
            // One that is of another term, too, by a recovery that does not know it.
            let is_parted = || decided <= later && self.has_another_term(site, decided);
            let is_older = match right {
                GroupRight::Slot(epoch) => epoch < Epoch::of_failover(decided),
                GroupRight::Loan(known) => known < decided,
            };
            let may_serve = one.fences(site) || is_parted();
            is_older && may_serve && !one.received.contains_key(&site)
        })
    }

    /// Every site is back: each group is served by one site, and no loan waits.
    pub(super) fn look_at_groups(&mut self) {
        if !self.lab.settings.notes_groups || self.failure.is_some() {
            return;
        }
        let until = self.lab.now() + TIMEOUT;
        while let Some(wrong) = self.wrong_groups() {
            if self.lab.now() >= until {
                return self.fail(format!("all sites are back, and {wrong}"));
            }
            if let Some(why) = self.lab.failure.take() {
                return self.fail(why);
            }
            self.lab.run(Duration::from_secs(1));
        }
    }

    fn wrong_groups(&self) -> Option<String> {
        let (leaders, others) = self.leaders(Self::sure_leader);
        if let Some(site) = others.first() {
            return Some(format!("{} has no leader that has applied all", self.name_of(*site)));
        }
        for (id, leader) in &leaders {
            let left = self.lab.loans_under_way(*leader);
            if left > 0 {
                return Some(format!("{left} loans wait for an answer at {}", self.name_of(*id)));
            }
            let is_held = |(_, part): &(&Group, &PartRow)| part.borrowed.part == LoanPart::Held;
            let mut held = self.lab.parts(*leader).filter(is_held);
            if let Some((group, _)) =
                held.find(|(group, _)| !self.lab.may_have_group(*leader, group))
            {
                let tag = String::from_utf8_lossy(&group.tag);
                return Some(format!("group {tag} is where it may not be: {}", self.name_of(*id)));
            }
        }
        let groups = self.lab.groups().cloned().chain(self.groups_in_play(&leaders));
        for group in groups {
            let serves = |(_, leader): &&(SiteId, NodeIndex)| {
                self.lab.serves_group(*leader, &group).is_some()
            };
            let count = leaders.iter().filter(serves).count();
            if count != 1 {
                let tag = String::from_utf8_lossy(&group.tag);
                return Some(format!("group {tag} is served by {count} sites"));
            }
        }
        None
    }

    // ---- what may be lost -----------------------------------------------------------------------

    /// Notes how far the owners of slots are behind the borrowers of groups.
    pub(super) fn note_loans(&mut self) {
        if !self.lab.settings.notes_groups {
            return;
        }
        let (leaders, _) = self.leaders(Self::latest_leader);
        let at = self.lab.now();
        for (borrower, leader) in &leaders {
            let parts = self.lab.parts(*leader);
            let parts: Vec<_> = parts.map(|(group, part)| (group.clone(), *part)).collect();
            for (group, part) in parts {
                let look = self.look_at_loan(&leaders, *borrower, &group, &part);
                let seen = self.loans.0.entry((group, *borrower)).or_default();
                let last = seen.last().map(|(_, look)| *look);
                if look != Look::Over && look != Look::Behind || last != Some(look) {
                    seen.push((at, look));
                }
            }
        }
    }

    fn look_at_loan(
        &self,
        leaders: &[(SiteId, NodeIndex)],
        borrower: SiteId,
        group: &Group,
        part: &PartRow,
    ) -> Look {
        match part.borrowed.part {
            LoanPart::Never => return Look::Over,
            LoanPart::Retained if part.back.is_some() => return Look::Over,
            _ => {}
        }
        let row = leaders.iter().filter_map(|(_, leader)| {
            let epoch = self.lab.serves(*leader, group.slot())?;
            let (_, row) = self.lab.lent(*leader).find(|(lent, _)| *lent == group)?;
            let is_it = row.row.to == borrower && row.row.loan == part.borrowed.loan;
            is_it.then_some((epoch, row.fed))
        });
        let has_written = part.changed > part.since;
        match row.max() {
            Some((epoch, fed)) if fed >= part.changed || !has_written => Look::InStep(epoch),
            _ => Look::Behind,
        }
    }

    /// The groups that sites lost by a decision had borrowed, by their tags, and since when their
    /// writes may be lost.
    pub(super) fn lost_loans(&self, promoted: &Promoted) -> Vec<(Duration, Bytes)> {
        let mut lost = Vec::new();
        for ((group, borrower), seen) in &self.loans.0 {
            let taken = promoted.failover.taken.iter();
            let mut taken = taken.filter(|taken| taken.slots.contains(group.slot()));
            let taken = taken.next();
            let is_lost = promoted.failover.lost == *borrower
                || promoted.fences(*borrower) && taken.is_some();
            if !is_lost {
                continue;
            }
            let mut cutoff = match taken {
                Some(taken) => self.lost_since(promoted, group.slot(), taken),
                None => promoted.at,
            };
            let until = |cutoff: Duration| seen.iter().rev().find(move |(at, _)| *at <= cutoff);
            if until(cutoff).is_none_or(|(_, look)| *look == Look::Over) {
                continue;
            }
            // Before the last look at which an owner had all, by records that no other failover has
            // replaced.
            let from = loop {
                let before = seen.iter().rev().find_map(|(at, look)| match look {
                    Look::InStep(epoch) if *at <= cutoff => Some((*at, Some(*epoch))),
                    Look::Over if *at <= cutoff => Some((*at, None)),
                    _ => None,
                });
                let Some((at, Some(epoch))) = before else {
                    break before.map_or(Duration::ZERO, |(at, _)| at);
                };
                match self.replaced_since(promoted, group, epoch).filter(|since| *since < at) {
                    Some(since) => cutoff = since,
                    None => break at,
                }
            };
            lost.push((from, group.tag.clone()));
        }
        lost
    }

    /// Since when what the records of an epoch had of a group may lack in those of a later
    /// failover, before this decision.
    fn replaced_since(&self, promoted: &Promoted, group: &Group, epoch: Epoch) -> Option<Duration> {
        let before = self.lab.promotions().iter().filter(|one| {
            let decided = one.failover.decided;
            decided < promoted.failover.decided && epoch < Epoch::of_failover(decided)
        });
        let since = before.filter_map(|one| {
            let mut taken = one.failover.taken.iter();
            let taken = taken.find(|taken| taken.slots.contains(group.slot()))?;
            Some(self.lost_since(one, group.slot(), taken))
        });
        since.min()
    }
}
