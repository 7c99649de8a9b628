//! Which site serves a slot: never two sites, but for those that a failover took for lost and that
//! have not learned of it; and in the end, when all sites are back, one.
//!
//! What a site serves is read from a leader that has applied all that its site had committed
//! before. Where no such leader is there, the site is looked at later.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Ballot, Epoch, SiteId, Slot, SlotRun, SlotSet};

use super::Run;
use super::form::TIMEOUT;
use crate::simulation::{Held, NodeIndex};

/// How long ago a mirror has had everything, at rest.
const MIRROR_LAG_MAX: Duration = Duration::from_secs(5);

/// The site that serves a slot, and at which epoch.
type Serving = (SiteId, Epoch);

impl Run<'_> {
    /// A site was seen to hold slots: no other site may serve them.
    pub(super) fn judge_owners(&mut self, held: &Held) {
        self.judge_slots(&held.slots.slots());
        self.judge_groups();
    }

    /// Looks again at what could not be determined.
    pub(super) fn judge_unsure(&mut self) {
        let slots = std::mem::take(&mut self.unsure);
        self.judge_slots(&slots);
        if std::mem::take(&mut self.groups_unsure) {
            self.judge_groups();
        }
    }

    fn judge_slots(&mut self, slots: &SlotSet) {
        if slots.is_empty() || self.lab.failure.is_some() {
            return;
        }
        let (mut sure, mut is_unsure) = (Vec::new(), false);
        for site in 0..self.lab.sites.len() {
            let Some(id) = self.lab.sites[site].id.filter(|_| self.lab.is_there(site)) else {
                continue;
            };
            match self.sure_leader(site) {
                Some(leader) => sure.push((id, leader)),
                None => is_unsure = true,
            }
        }
        let until = |slot| {
            let served = sure.iter().map(|(_, leader)| self.lab.serves_run(*leader, slot).0);
            served.min().unwrap_or(Slot::LAST)
        };
        let alike: Vec<SlotRun> = slots.runs().flat_map(|run| run.cut(until)).collect();
        for SlotRun { first: slot, .. } in alike {
            let serving =
                sure.iter().filter_map(|(id, leader)| Some((*id, self.lab.serves(*leader, slot)?)));
            let serving: Vec<Serving> = serving.collect();
            if let Some((one, other)) = self.both(&serving) {
                let (a, b) = (self.name_of(one.0), self.name_of(other.0));
                let what = format!(
                    "slot {slot} is served by two sites: {a} at {:?}, and {b} at {:?}",
                    one.1, other.1
                );
                self.lab.failure.get_or_insert(what);
                return;
            }
        }
        if is_unsure {
            slots.runs().for_each(|run| self.unsure.insert_run(run));
        }
    }

    /// Two of those that serve a slot and must not.
    fn both(&self, serving: &[Serving]) -> Option<(Serving, Serving)> {
        let mut pairs = serving.iter().flat_map(|one| serving.iter().map(move |two| (*one, *two)));
        pairs.find(|(one, other)| {
            let is_pair = one.0 != other.0 && one.1 <= other.1;
            is_pair && !self.is_stale(*one, other.1)
        })
    }

    /// Whether a failover that a site has not learned of has given a slot away that it serves.
    fn is_stale(&self, (site, epoch): Serving, later: Epoch) -> bool {
        self.lab.promotions().iter().any(|one| {
            let decided = Epoch::of_failover(one.failover.decided);
            let is_between = epoch < decided && decided <= later;
            let may_serve = one.fences(site) || self.has_another_term(site, one.failover.decided);
            is_between && may_serve && !one.received.contains_key(&site)
        })
    }

    /// Whether a recovery has parted the registry that a site has from that of a decision: until
    /// the two meet, what one side has overruled may go on at the other one, also at sites that
    /// have joined that.
    pub(super) fn has_another_term(&self, id: SiteId, decided: Ballot) -> bool {
        let site = self.lab.sites.iter().position(|site| site.id == Some(id));
        let leader = site.and_then(|site| self.sure_leader(site));
        let registry = leader.and_then(|leader| self.lab.registry(leader));
        registry.is_some_and(|registry| registry.version.term != decided.term)
    }

    /// A leader that is certainly the latest one, and has applied all that its site has committed.
    pub(super) fn sure_leader(&self, site: usize) -> Option<NodeIndex> {
        let leader = self.latest_leader(site)?;
        let standing = self.lab.standing(leader)?;
        (standing.applied_index >= standing.committed_index).then_some(leader)
    }

    /// A leader that is certainly the latest one. It may have to apply what its site has committed.
    pub(super) fn latest_leader(&self, site: usize) -> Option<NodeIndex> {
        let leader = self.lab.leader(site)?;
        let term = self.lab.standing(leader)?.term;
        let known = self.terms.get(&(site, self.lab.sites[site].life));
        known.is_none_or(|known| *known <= term).then_some(leader)
    }

    pub(super) fn name_of(&self, id: SiteId) -> String {
        let site = self.lab.sites.iter().position(|site| site.id == Some(id));
        site.map_or_else(|| id.to_string(), |site| self.lab.label(site))
    }

    /// Every site is back: no failover is open any more, every slot is served, by one site, and
    /// every mirror has what its site has.
    pub(super) fn look_at_slots(&mut self) {
        if !self.is_deployment() || self.failure.is_some() {
            return;
        }
        let until = self.lab.now() + TIMEOUT;
        loop {
            let Some(wrong) = self.wrong_slots() else { return };
            if self.lab.now() >= until {
                return self.fail(format!("all sites are back, and {wrong}"));
            }
            if let Some(why) = self.lab.failure.take() {
                return self.fail(why);
            }
            self.lab.run(Duration::from_secs(1));
        }
    }

    fn wrong_slots(&self) -> Option<String> {
        let mut served = BTreeSet::new();
        for site in self.sites_inside() {
            let Some(leader) = self.sure_leader(site) else {
                return Some(format!("{} has no leader", self.lab.label(site)));
            };
            let registry = self.lab.registry(leader);
            if let Some(open) = registry.and_then(|registry| registry.failovers.open.clone()) {
                let lost = self.name_of(open.lost);
                return Some(format!("{} has the failover of {lost} open", self.lab.label(site)));
            }
            if let Some(wrong) = self.wrong_mirror(site, leader) {
                return Some(wrong);
            }
            for slot in self.lab.held_slots(leader).0 {
                if self.lab.serves(leader, slot).is_some() && !served.insert(slot) {
                    return Some(format!("slot {slot} is served twice"));
                }
            }
        }
        let missing: Vec<String> = Slot::all()
            .filter(|slot| !served.contains(slot))
            .map(|slot| slot.to_string())
            .collect();
        let first = missing.first()?;
        Some(format!("{} slots are served by no site, the first is {first}", missing.len()))
    }

    /// A mirror that does not have what its site has. A site writes without any client, as keys
    /// expire: so it is enough that the mirror had everything a moment ago.
    fn wrong_mirror(&self, site: usize, leader: NodeIndex) -> Option<String> {
        let mirror = self.lab.status(leader)?.mirror?;
        let is_near = mirror.caught_up_ago.is_some_and(|ago| ago <= MIRROR_LAG_MAX);
        if is_near && mirror.complete == mirror.holds {
            return None;
        }
        let (of, at) = (self.lab.label(site), self.name_of(mirror.to));
        let (complete, holds, behind) = (mirror.complete, mirror.holds, mirror.behind);
        Some(format!(
            "the mirror of {of} at {at} has {complete} of {holds} slots and is {behind} writes \
             behind"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Options;
    use crate::world::ready;

    #[test]
    fn a_mirror_that_does_not_catch_up_fails_a_run() {
        let world = ready::load("global", None).unwrap();
        let options = Options::default();
        let mut run = Run::new(&world, &options);
        run.form().unwrap();
        run.look_at_slots();
        assert_eq!(run.failure, None);
        // A new leader has to ask the backup what that has, and does not reach it.
        run.lab.part_site(0);
        let leader = run.lab.leader(0).unwrap();
        run.lab.bounce(leader, &crate::simulation::Down::Killed, Duration::from_secs(1));
        run.look_at_slots();
        let why = run.failure.unwrap_or_default();
        assert!(why.contains("the mirror of "), "{why}");
    }
}
