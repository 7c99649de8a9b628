//! Sites that are lost and promoted in a run: what may be lost with them is written into its history.

use std::collections::BTreeSet;
use std::time::Duration;

use model::{Ballot, KeyspaceSpec, SiteId, Slot};

use super::Run;
use crate::faults::Kind;
use crate::history::{History, Lost};

impl Run<'_> {
    /// Since when what a site acknowledges may be lost, if it is to be lost now: since its backup was
    /// last known by it to have everything.
    pub(super) fn lost_from_us(&self, number: usize) -> Option<u64> {
        let fault = &self.plan[number];
        if fault.kind != Kind::LoseSite {
            return None;
        }
        let leader = self.lab.leader(fault.site)?;
        let ago = self.lab.status(leader)?.mirror?.in_step_ago?;
        // By a clock that may run up to a tenth slow.
        let ago = ago.mul_f64(1.2) + Duration::from_millis(20);
        Some(self.lab.now().saturating_sub(ago).as_micros() as u64)
    }

    /// Looks at a fault that goes on: what its site's backup has taken, and whether that is over.
    pub(super) fn note_loss(&mut self, number: usize, is_over: bool) {
        let fault = &self.plan[number];
        let (site, kind) = (fault.site, fault.kind);
        if kind != Kind::LoseSite {
            return;
        }
        let Some(id) = self.lab.sites[site].id else { return };
        let Some(version) = self.note_promotions(site, id) else { return };
        // Whoever was lost knows it, if nobody waits for that any more.
        let is_known = version > Ballot::default();
        let leaders = (0..self.world.sites.len()).filter_map(|site| self.lab.leader(site));
        let mut registries = leaders.filter_map(|leader| self.lab.registry(leader));
        let has_returned = is_known
            && registries.any(|registry| registry.version > version && !registry.is_lost(id));
        if is_over || has_returned {
            self.end_loss(site);
        }
    }

    /// Notes which slots a lost site's backup has taken. The last version of the registry in which it
    /// waits for the lost one to hear of it; the lowest: it has taken nothing.
    fn note_promotions(&mut self, site: usize, id: SiteId) -> Option<Ballot> {
        let (from_us, slots) = self.losing.get_mut(&site)?;
        let mut version = Ballot::default();
        for one in self.lab.promotions_of(id, Duration::from_micros(*from_us)) {
            slots.extend(one.failover.taken.iter().flat_map(|taken| taken.slots.iter()));
            version = version.max(one.version);
        }
        Some(version)
    }

    fn end_loss(&mut self, site: usize) {
        let id = self.lab.sites[site].id;
        let version = id.and_then(|id| self.note_promotions(site, id));
        let Some((from_us, slots)) = self.losing.remove(&site) else { return };
        if version.is_some_and(|version| version > Ballot::default()) {
            let until_us = self.lab.now().as_micros() as u64;
            self.history.lost.push(Lost { from_us, until_us, keys: Vec::new() });
            self.lost_slots.push((site, slots));
        }
    }

    /// What is not over by the end of the run is over then.
    pub(super) fn end_losses(&mut self) {
        let sites: Vec<usize> = self.losing.keys().copied().collect();
        sites.into_iter().for_each(|site| self.end_loss(site));
    }
}

/// Names the keys that lie in slots that were lost: keys of global keyspaces, by their prefixes.
pub(super) fn name_keys(
    history: &mut History,
    slots: &[(usize, BTreeSet<Slot>)],
    keyspaces: &[KeyspaceSpec],
) {
    let is_global = |key: &String| {
        let mut globals = keyspaces.iter().filter(|spec| spec.is_global());
        globals.any(|spec| key.as_bytes().starts_with(&spec.prefix))
    };
    let keys = history.operations.iter().map(|one| &one.key);
    let keys: BTreeSet<&String> = keys.filter(|key| is_global(key)).collect();
    let keys: Vec<(Slot, String)> =
        keys.into_iter().map(|key| (Slot::of_key(key.as_bytes()), key.clone())).collect();
    for (lost, (_, slots)) in history.lost.iter_mut().zip(slots) {
        let of_slots = keys.iter().filter(|(slot, _)| slots.contains(slot));
        lost.keys = of_slots.map(|(_, key)| key.clone()).collect();
    }
}
