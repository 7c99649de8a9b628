//! The order on its way from the root to every site: the places, without the writes. Only of what no site has written
//! ([`NO_SITE`]) the root sends the writes, too, ahead of their places.
//!
//! The root's leader has a cursor for each site: where the site is, by its last report, and up to where places
//! were sent. It sends what is new at once, so many places ahead of what the site has imported. A site that
//! reports nothing for a second is asked where it is, and is sent places from there; so is every site when
//! leadership begins. A site that lacks what the root keeps no more is sent nothing, and asked, until it has its
//! keys anew ([`super::resync`]). What a site reports with [`Reached::again`] is answered even if there is nothing new.

use super::interest::Interest;
use super::trial::{Bug, Planted};
use super::{AGAIN, Durable, Region};
use model::{CausalWrite, NO_KEYSPACE, NO_SITE, NodeId, Position, SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::causal::{Places, Reached, Where};

/// Bytes of writes that are read at once: their places are few bytes each.
const READ_BYTES: usize = 256 << 10;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Places for a site's leader.
    Places(SiteId, NodeId, Places),
    /// Writes of no site, for the same.
    Writes(SiteId, NodeId, Vec<CausalWrite>),
    /// A site is asked where it is. `again`: it has not answered the last time.
    Ask { to: SiteId, message: Where, again: bool },
}

#[derive(Debug, Default)]
struct Cursor {
    /// The site's leader, which reports; `None`: it must be asked.
    node: Option<NodeId>,
    applied: Position,
    sent: Position,
    /// An empty answer is wanted.
    wants_answer: bool,
    /// Since when there is no news of it; when it was asked last.
    since: Duration,
    asked: Option<Duration>,
}

/// The cursors of a root's leader.
#[derive(Debug, Default)]
pub(crate) struct Distribute {
    planted: Planted,
    /// The trimmed part, when it was polled last.
    trimmed: Position,
    epoch: u16,
    cursors: BTreeMap<SiteId, Cursor>,
}

impl Distribute {
    pub(crate) fn new(planted: Planted) -> Distribute {
        Distribute { planted, ..Distribute::default() }
    }

    /// The next messages.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        if !region.orders() {
            self.stop();
            return steps;
        }
        if self.epoch != region.epoch {
            *self = Distribute { epoch: region.epoch, ..Distribute::new(self.planted) };
        }
        self.trimmed = state.trimmed_upto();
        self.cursors.retain(|site, _| region.layout.sites.contains(site));
        let last = state.order_last();
        if last == Position::default() && self.cursors.values().all(|one| !one.wants_answer) {
            return steps;
        }
        let epoch = u32::from(region.epoch);
        let is_blind = self.planted.is(Bug::TrimmedUnimported);
        let trimmed = if is_blind { Position::default() } else { state.trimmed_upto() };
        for site in region.layout.sites.iter().filter(|site| **site != region.own) {
            let cursor = self.cursors.entry(*site).or_default();
            let lacks = cursor.lacks(trimmed);
            if (lacks || cursor.applied < cursor.sent) && cursor.since + AGAIN <= now {
                cursor.node = None;
            }
            let Some(node) = cursor.node else {
                if cursor.asked.is_none_or(|at| at + AGAIN <= now) {
                    let again = cursor.asked.replace(now).is_some();
                    steps.push(Step::Ask { to: *site, message: Where { epoch }, again });
                }
                continue;
            };
            if lacks {
                continue;
            }
            let last = region.released_to(*site, last);
            while let Some((places, writes)) =
                cursor.next(state, last, epoch, &region.layout.interest)
            {
                let writes = region.layout.interest.select(*site, &writes);
                if !writes.is_empty() {
                    steps.push(Step::Writes(*site, node, writes));
                }
                if cursor.applied == cursor.sent {
                    cursor.since = now;
                }
                let count = places.sites.len() as u64;
                cursor.sent = cursor.sent.max(Position((places.first + count).saturating_sub(1)));
                cursor.wants_answer = false;
                steps.push(Step::Places(*site, node, places));
            }
        }
        steps
    }

    /// A site's leader reports.
    pub(crate) fn reached(
        &mut self,
        (site, node): (SiteId, NodeId),
        message: Reached,
        now: Duration,
    ) {
        if message.epoch != u32::from(self.epoch) {
            return;
        }
        let cursor = self.cursors.entry(site).or_default();
        let (applied, taken) = (Position(message.applied), Position(message.taken));
        if cursor.node != Some(node) || message.again {
            cursor.sent = taken;
        }
        cursor.sent = cursor.sent.max(taken);
        cursor.applied = applied;
        cursor.node = Some(node);
        cursor.asked = None;
        cursor.since = now;
        cursor.wants_answer |= message.again;
    }

    /// A node leads its site no more: the site is asked where it is.
    pub(crate) fn turned(&mut self, site: SiteId, node: NodeId) {
        if let Some(cursor) = self.cursors.get_mut(&site).filter(|one| one.node == Some(node)) {
            (cursor.node, cursor.asked) = (None, None);
        }
    }

    /// This node leads no more.
    pub(crate) fn stop(&mut self) {
        self.cursors.clear();
    }

    /// When it must be polled at the latest. What is due by now was looked at just now.
    pub(crate) fn next_due(&self, now: Duration) -> Option<Duration> {
        let due = |one: &Cursor| match one.node {
            Some(_) => {
                let waits = one.applied < one.sent || one.lacks(self.trimmed);
                waits.then_some(one.since + AGAIN)
            }
            None => one.asked.map(|at| at + AGAIN),
        };
        self.cursors.values().filter_map(due).filter(|at| *at > now).min()
    }

    /// How many places other sites have not imported yet.
    pub(crate) fn left(&self, state: &impl Durable) -> u64 {
        let last = state.order_last().count();
        self.cursors.values().map(|one| last.saturating_sub(one.applied.count())).sum()
    }
}

impl Cursor {
    /// Whether the site is known to be before what the root keeps.
    fn lacks(&self, trimmed: Position) -> bool {
        self.node.is_some() && self.applied.min(self.sent) < trimmed
    }

    /// The next message, if there is one to send.
    fn next(
        &self,
        state: &impl Durable,
        last: Position,
        epoch: u32,
        interest: &Interest,
    ) -> Option<(Places, Vec<CausalWrite>)> {
        let after = self.sent.0;
        let window = limits::CAUSAL_PLACES_INFLIGHT_MAX;
        let ahead = self.sent.count().saturating_sub(self.applied.count());
        let is_new = self.sent < last && ahead < window;
        let mut places = Places { epoch, after, first: 0, ..Places::default() };
        let (mut of_no_site, mut has_void) = (Vec::new(), false);
        if is_new {
            let room = (window - ahead).min(limits::CAUSAL_BATCH_PLACES_MAX as u64) as usize;
            let all = state.ordered(self.sent, READ_BYTES);
            let mut next = None;
            let all = all.into_iter().filter(|(position, ..)| *position <= last);
            for (position, site, write) in all.take(room) {
                if next.is_some_and(|next| next != position) {
                    break;
                }
                next = Some(Position(position.0 + 1));
                if places.sites.is_empty() {
                    places.first = position.0;
                }
                places.sites.push(site.0);
                places.revisions.push(write.revision.0);
                has_void |= write.keyspace == NO_KEYSPACE;
                places.keyspaces.push(write.keyspace.0);
                if site == NO_SITE {
                    of_no_site.push(write);
                }
            }
        }
        if interest.is_everywhere() && !has_void {
            places.keyspaces.clear();
        }
        (!places.sites.is_empty() || self.wants_answer).then_some((places, of_no_site))
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Store, region, write};
    use super::*;

    fn sent(steps: &[Step]) -> Vec<(u32, u64, usize)> {
        let of_step = |step: &Step| match step {
            Step::Places(site, _, places) => Some((site.0, places.after, places.sites.len())),
            Step::Ask { .. } | Step::Writes(..) => None,
        };
        steps.iter().filter_map(of_step).collect()
    }

    fn reached(applied: u64, taken: u64, again: bool) -> Reached {
        let position = |count| Position::new(1, count).0;
        let (applied, taken) = (position(applied), position(taken));
        Reached { epoch: 1, applied, taken, again }
    }

    #[test]
    fn a_site_is_sent_what_it_lacks_and_asked_when_it_is_silent() {
        let (mut distribute, region) = (Distribute::default(), region(1));
        let at = Duration::from_millis;
        let mut store = Store::of(1);
        assert!(distribute.poll(at(0), &store, &region).is_empty(), "nothing was ordered");
        store.order(SiteId(2), write(4));
        store.order(SiteId(3), write(9));
        let steps = distribute.poll(at(0), &store, &region);
        assert_eq!(steps.len(), 2, "both are asked: {steps:?}");
        assert!(distribute.poll(at(10), &store, &region).is_empty());
        distribute.reached((SiteId(2), NodeId(7)), reached(0, 0, true), at(20));
        let steps = distribute.poll(at(20), &store, &region);
        assert_eq!(sent(&steps), [(2, Position::new(1, 0).0, 2)]);
        assert_eq!(distribute.next_due(at(20)), Some(at(1_000)), "the silent one is asked again");
        // It reports, and there is nothing new.
        distribute.reached((SiteId(2), NodeId(7)), reached(2, 2, false), at(40));
        distribute.reached((SiteId(3), NodeId(8)), reached(2, 2, false), at(40));
        assert!(distribute.poll(at(40), &store, &region).is_empty());
        assert_eq!((distribute.next_due(at(40)), distribute.left(&store)), (None, 0));
        // A new leader of the site is answered, though nothing is new.
        distribute.reached((SiteId(2), NodeId(6)), reached(2, 2, true), at(50));
        assert_eq!(
            sent(&distribute.poll(at(50), &store, &region)),
            [(2, Position::new(1, 2).0, 0)]
        );
        store.order(SiteId(1), write(1));
        assert_eq!(sent(&distribute.poll(at(60), &store, &region)).len(), 2);
        distribute.reached((SiteId(3), NodeId(8)), reached(3, 3, false), at(70));
        let steps = distribute.poll(at(1_060), &store, &region);
        let message = Where { epoch: 1 };
        assert_eq!(steps, [Step::Ask { to: SiteId(2), message, again: false }]);
        // It had lost the message.
        distribute.reached((SiteId(2), NodeId(6)), reached(2, 2, true), at(1_070));
        assert_eq!(sent(&distribute.poll(at(1_070), &store, &region)).len(), 1);
    }

    #[test]
    fn so_many_places_are_ahead_of_a_site() {
        let (mut distribute, region) = (Distribute::default(), region(1));
        let mut store = Store::of(1);
        let window = limits::CAUSAL_PLACES_INFLIGHT_MAX;
        (1..=window + 100).for_each(|revision| store.order(SiteId(2), write(revision)));
        distribute.poll(Duration::ZERO, &store, &region);
        distribute.reached((SiteId(3), NodeId(8)), reached(0, 0, true), Duration::ZERO);
        let count = |steps: &[Step]| sent(steps).iter().map(|(.., count)| *count as u64).sum();
        let first: u64 = count(&distribute.poll(Duration::ZERO, &store, &region));
        assert_eq!(first, window);
        distribute.reached((SiteId(3), NodeId(8)), reached(60, window, false), Duration::ZERO);
        let second: u64 = count(&distribute.poll(Duration::ZERO, &store, &region));
        assert_eq!(second, 60);
    }
}
