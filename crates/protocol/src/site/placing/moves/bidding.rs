//! Bids for room, at sites that take only so many bytes ([`super::super::room`]): what this site
//! would lend to others, and what it gives back for theirs.

use super::super::room::{self, Bids};
use super::super::sites::Sites;
use super::{BACKOFF, BorrowedUse, Moves, stays};
use crate::job::View;
use crate::placement::room::Incumbent;
use crate::placement::stability::Stability;
use crate::placement::{Bid, Chosen, GroupKey, Site as Place, Wanted};
use crate::site::counting::Counting;
use crate::site::machine::global::groups::Held;
use model::{Group, Registry, SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;

/// The homes of the groups that this site has borrowed, as far as these take only so much of others.
pub(super) fn homes<S: State>(
    view: &View<'_, S>,
    sites: &Sites,
    room: &[u64],
) -> BTreeMap<GroupKey, Place> {
    if room.is_empty() {
        return BTreeMap::new();
    }
    let accesses = view.machine.accesses();
    let borrowed = view.machine.borrowed_groups().filter_map(|(group, home)| {
        let place = sites.place(home).filter(|place| room[usize::from(place.0)] < u64::MAX)?;
        Some((accesses.group_of(group.keyspace, true, &group.tag), place))
    });
    borrowed.collect()
}

impl Moves {
    /// States what would go to sites without room for it, as large as it is.
    pub(super) fn bid<S: State>(
        &mut self,
        view: &View<'_, S>,
        (sites, registry): (&Sites, &Registry),
        wanted: Vec<Wanted>,
        counting: &mut Counting,
    ) {
        let mut by_slot: BTreeMap<u16, Vec<Wanted>> = BTreeMap::new();
        for one in wanted {
            // It is asked for its room, whatever comes of the bids.
            self.wanted.entry(sites.site(one.to)).or_default();
            by_slot.entry(one.group.slot()).or_default().push(one);
        }
        let accesses = view.machine.accesses();
        let mut keys_left = limits::LOANS_KEYS_EXAMINED_MAX;
        for (slot, wanted) in by_slot {
            let slot = model::Slot::new(slot).expect("a group has a slot");
            let Ok(Some(found)) = view.machine.groups_of(slot, &mut keys_left) else { return };
            let mut found: BTreeMap<GroupKey, (Group, Held)> = found
                .into_iter()
                .map(|(group, held)| {
                    (accesses.group_of(group.keyspace, true, &group.tag), (group, held))
                })
                .collect();
            for Wanted { group: key, to, gain, .. } in wanted {
                match found.remove(&key) {
                    None => self.has_no_records(view, key, counting),
                    Some((group, Held::AtHome { bytes })) if stays(view, &group, bytes) => {
                        self.resting.insert(key, view.now + BACKOFF);
                    }
                    Some((_, Held::AtHome { bytes } | Held::Borrowed { bytes, .. })) => {
                        counting.weighs(view.now, key, bytes);
                        self.bid_for(sites.site(to), registry, (bytes, gain));
                    }
                }
            }
        }
    }

    pub(super) fn bid_for(&mut self, to: SiteId, registry: &Registry, (bytes, gain): (u64, f32)) {
        let bids = self.wanted.entry(to).or_default();
        let limit_bytes = room::limit(registry, to).unwrap_or(u64::MAX);
        let may_fit = bytes <= limit_bytes.min(limits::LOANS_BYTES_MAX as u64);
        if may_fit && bytes > 0 && bids.len() < limits::BIDS_MAX {
            bids.push(Bid { bytes, value: gain / bytes as f32 });
        }
    }

    /// Keeps what the last revision was half a minute ago.
    pub(super) fn note_revision<S: State>(&mut self, view: &View<'_, S>) {
        self.revisions.push_back((view.now, view.machine.revision()));
        let is_old = |at: &Duration| *at + room::STAYS_FOR <= view.now;
        while self.revisions.get(1).is_some_and(|(at, _)| is_old(at)) {
            self.revisions.pop_front();
        }
    }

    /// Whether a part that came at this revision has been here for half a minute, all of which this
    /// node has led.
    fn has_stayed(&self, now: Duration, since: u64) -> bool {
        let then = self.revisions.front().filter(|(at, _)| *at + room::STAYS_FOR <= now);
        then.is_some_and(|(_, revision)| since <= revision.0)
    }

    /// Borrowed groups that go home, as others are worth more here.
    pub(super) fn outbid<S: State>(
        &self,
        view: &View<'_, S>,
        (own, registry): (SiteId, &Registry),
        (sites, counting): (&Sites, &Counting),
        (bids, stays): (&mut Bids, impl Fn(&GroupKey) -> bool),
    ) -> Vec<Chosen> {
        let Some(limit_bytes) = room::limit(registry, own) else {
            *bids = Bids::default();
            return Vec::new();
        };
        let Stability { margin, sigmas, memory_s, one_of, .. } = sites.stability;
        let mut borrowed = Vec::new();
        let incumbents = || {
            borrowed = self.borrowed(view, own, sites, counting);
            borrowed.retain(|one| !self.begun.contains_key(&one.group));
            let staying_bytes = borrowed.iter().map(|one| one.bytes).sum();
            let has_stayed = |one: &BorrowedUse| {
                one.is_known && self.has_stayed(view.now, one.since) && !stays(&one.key)
            };
            borrowed.retain(has_stayed);
            let incumbent = |one: &BorrowedUse| Incumbent {
                bid: Bid { bytes: one.bytes.max(1), value: one.saves / one.bytes.max(1) as f32 },
                counted: one.rate * memory_s / one_of,
            };
            (borrowed.iter().map(incumbent).collect(), staying_bytes)
        };
        let bytes = (limit_bytes, view.machine.borrowed_bytes());
        let outbid = bids.look(view.now, bytes, (margin, sigmas), incumbents);
        let goes_home = |index: usize| {
            let one = &borrowed[index];
            let to = sites.place(one.home)?;
            let (group, gain, rate) = (one.key, -one.saves, one.rate);
            Some(Chosen { group, to, gain, rate, waits_ms: 0.0 })
        };
        outbid.into_iter().filter_map(goes_home).collect()
    }
}
