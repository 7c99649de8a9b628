//! Sites that are lost and promoted in a run: what may be lost with them is written into its
//! history.
//!
//! A decision names the slots that are taken, and from copies of which epoch and position: what was
//! written beyond that may be lost, until the last site that the failover fenced has learned of it.
//! And it may not give up more than it has to: what the lost site had recorded as being at a backup
//! that is not fenced is there, and so is what a site handed to the lost one and still has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Ballot, Epoch, KeyspaceSpec, SiteId, Slot, SlotCopy, Taken};

use super::Run;
use super::deployment::Serving;
use crate::faults::Kind;
use crate::history::{History, Lost};
use crate::simulation::promoted::Promoted;

/// The state of a site's leader at some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    at: Duration,
    site: SiteId,
    /// How many writes its state had seen.
    revision: u64,
    /// The backup that had everything at that time.
    caught_up: Option<(SiteId, Duration)>,
}

/// Whether faults of this kind lose sites.
fn loses(kind: Kind) -> bool {
    matches!(kind, Kind::LoseSite | Kind::PromoteSite | Kind::RebuildRoot)
}

impl Run<'_> {
    /// Notes the positions of the sites' backups, where that may matter.
    pub(super) fn note_backups(&mut self) {
        if !self.plan.iter().any(|fault| loses(fault.kind)) {
            return;
        }
        let at = self.lab.now();
        for site in 0..self.lab.sites.len() {
            let (Some(id), Some(leader)) = (self.lab.sites[site].id, self.lab.leader(site)) else {
                continue;
            };
            let Some(standing) = self.lab.standing(leader) else { continue };
            let caught_up = self.lab.caught_up(leader).map(|(backup, ago)| {
                // By a clock that may run up to a tenth slow, and as of its last event.
                let ago = ago.mul_f64(1.2) + Duration::from_millis(150);
                (backup, at.saturating_sub(ago))
            });
            let revision = standing.revision.0;
            self.known.push(Observed { at, site: id, revision, caught_up });
        }
    }

    /// Whether another site of those that are lost one at a time is lost already.
    pub(super) fn must_wait(&self, number: usize) -> bool {
        self.plan[number].kind == Kind::LoseSite && !self.losing.is_empty()
    }

    /// A fault has begun.
    pub(super) fn note_losing(&mut self, number: usize) {
        let fault = &self.plan[number];
        if fault.kind == Kind::LoseSite {
            self.losing.insert(fault.site, self.lab.now());
        }
    }

    /// Looks at a fault that goes on: whether the lost site is back.
    pub(super) fn note_return(&mut self, number: usize, is_over: bool) {
        let fault = &self.plan[number];
        let (site, kind) = (fault.site, fault.kind);
        let Some(began) = self.losing.get(&site).filter(|_| kind == Kind::LoseSite) else { return };
        let Some(id) = self.lab.sites[site].id else { return };
        let versions = self.lab.promotions_of(id, *began).map(|one| one.version);
        let version = versions.max().unwrap_or_default();
        // The lost site has learned of it, if no site waits for that any more.
        let is_known = version > Ballot::default();
        let leaders = (0..self.world.sites.len()).filter_map(|site| self.lab.leader(site));
        let mut registries = leaders.filter_map(|leader| self.lab.registry(leader));
        let has_returned = is_known
            && registries.any(|registry| registry.version > version && !registry.is_lost(id));
        if is_over || has_returned {
            self.losing.remove(&site);
        }
    }

    /// Writes down what may have been lost.
    pub(super) fn declare_lost(&self, history: &mut History) {
        let keys = global_keys(history, &self.world.keyspaces);
        for promoted in self.lab.promotions() {
            let ids = std::iter::once(&promoted.failover.lost).chain(&promoted.failover.without);
            let heard = ids.map(|id| self.lab.received_by(promoted, *id));
            let until_us = heard.max().unwrap_or_default().as_micros() as u64;
            let of = |slot| promoted.failover.taken.iter().find(|one| one.slots.contains(slot));
            let mut spans: BTreeMap<(u64, bool), Vec<String>> = BTreeMap::new();
            for (slot, keys) in &keys {
                let Some(taken) = of(*slot) else { continue };
                let from_us = self.lost_since(promoted, *slot, taken).as_micros() as u64;
                spans.entry((from_us, false)).or_default().extend(keys.iter().cloned());
            }
            for (from, tag) in self.lost_loans(promoted) {
                let slot = Slot::of_key(&tag);
                let of_slot = keys.get(&slot).into_iter().flatten();
                let of_group = of_slot.filter(|key| model::tag(key.as_bytes()) == &tag[..]);
                // Each report has all of the group; what a mirror had of it may be behind.
                let mut upto_here = self
                    .lab
                    .promotions()
                    .iter()
                    .filter(|one| one.failover.decided <= promoted.failover.decided);
                let is_taken = |one: &Promoted| {
                    one.failover.taken.iter().any(|taken| taken.slots.contains(slot))
                };
                let whole = !upto_here.any(is_taken);
                let from_us = from.as_micros() as u64;
                spans.entry((from_us, whole)).or_default().extend(of_group.cloned());
            }
            let span = |((from_us, whole), keys)| Lost { from_us, until_us, keys, whole };
            history.lost.extend(spans.into_iter().map(span));
        }
    }

    /// Since when what was written to a slot that is taken may be lost.
    pub(super) fn lost_since(&self, promoted: &Promoted, slot: Slot, taken: &Taken) -> Duration {
        let decided = Epoch::of_failover(promoted.failover.decided);
        let owners = || self.owners_before(slot, decided);
        let named = taken.from.map_or(Duration::ZERO, |(epoch, position)| {
            // A site that was not asked may have owned it since; and a last one that was to have no
            // backup had the copies of those before it removed.
            let mut last = owners().next_back().into_iter();
            let had_all = last.any(|(_, who)| {
                promoted.fences(who.id) && self.lab.was_without_backup(who.id, who.since)
            });
            let is_gone = |who: &Serving| had_all || promoted.fences(who.id);
            let later = owners().filter(|(of, who)| *of > epoch && is_gone(who));
            let later = later.map(|(_, who)| who.since).min();
            let owner = self
                .owners
                .get(&epoch)
                .and_then(|of| of.get(slot))
                .filter(|_| position != SlotCopy::COMPLETE);
            let behind = owner.map(|owner| self.last_at(owner.id, position));
            later.into_iter().chain(behind).min().unwrap_or(promoted.at)
        });
        // A stale owner that has written nothing more reads what is old once another one serves.
        let named = named.min(promoted.at);
        named.max(self.certain_until(promoted, slot).unwrap_or_default())
    }

    /// The known owners of a slot at the epochs before one.
    fn owners_before(
        &self,
        slot: Slot,
        epoch: Epoch,
    ) -> impl DoubleEndedIterator<Item = (Epoch, &Serving)> {
        let before = self.owners.range(..epoch);
        before.filter_map(move |(epoch, of)| Some((*epoch, of.get(slot)?)))
    }

    /// When a site was last seen without more than so many writes.
    fn last_at(&self, site: SiteId, revision: u64) -> Duration {
        let known = self.known.iter().filter(|one| one.site == site && one.revision <= revision);
        known.map(|one| one.at).max().unwrap_or_default()
    }

    /// Until when what was written to a slot of the lost site must be at a site that was asked.
    fn certain_until(&self, promoted: &Promoted, slot: Slot) -> Option<Duration> {
        let lost = promoted.failover.lost;
        let decided = Epoch::of_failover(promoted.failover.decided);
        let mut owners = self.owners_before(slot, decided).rev();
        let (_, owner) = owners.next().filter(|(_, owner)| owner.id == lost)?;
        let is_asked = |id: SiteId| {
            !promoted.fences(id) && self.lab.sites.iter().any(|site| site.id == Some(id))
        };
        let known = self.known.iter().rev();
        let mut known = known.filter(|one| one.site == lost && one.at <= promoted.at);
        // Of backups that it had before, the last one.
        let backup = known.find_map(|one| one.caught_up);
        let (at, is_kept) = match backup.filter(|(_, at)| *at >= owner.since) {
            Some((to, at)) => (at, is_asked(to)),
            // The source of the handover has it as it was then.
            None => {
                let (_, source) = owners.next()?;
                (owner.since, is_asked(source.id) && source.id != lost)
            }
        };
        // An owner that is to have no backup does without all copies there are.
        let is_done_without = self.lab.was_without_backup(lost, at);
        (is_kept && !is_done_without).then_some(at)
    }
}

/// The keys of global keyspaces that were asked for, by their slots.
fn global_keys(history: &History, keyspaces: &[KeyspaceSpec]) -> BTreeMap<Slot, BTreeSet<String>> {
    let is_global = |key: &String| {
        let mut globals = keyspaces.iter().filter(|spec| spec.is_global());
        globals.any(|spec| key.as_bytes().starts_with(&spec.prefix))
    };
    let mut keys: BTreeMap<Slot, BTreeSet<String>> = BTreeMap::new();
    for one in history.operations.iter().filter(|one| is_global(&one.key)) {
        keys.entry(Slot::of_key(one.key.as_bytes())).or_default().insert(one.key.clone());
    }
    keys
}
