//! The order on its way from the root to every site: the places, without the writes. Only of what
//! no site of the region has written ([`model::NO_SITE`], and sites of other regions), and of keys
//! that a site holds on demand ([`super::hints`]), the root sends the writes, too, ahead of their
//! places.
//!
//! The root's leader has a cursor for each site: where the site is, by its last report, and up to
//! where places were sent. It sends what is new at once, so many places ahead of what the site has
//! imported. A site that reports nothing for a second is asked where it is, and is sent places from
//! there; so is every site when leadership begins. A site that lacks what the root keeps no more is
//! sent nothing, and asked, until it has its keys anew ([`super::resync`]). What a site reports
//! with [`Reached::again`] is answered even if there is nothing new; with [`Reached::waits`] it is
//! sent once more what was sent a while ago.

use super::hints::{Hints, fetched_for, hashes_of};
use super::interest::Interest;
use super::trial::{Bug, Planted};
use super::{AGAIN, Durable, ON_ITS_WAY, Part, Region};
use model::{
    Bytes, CausalWrite, KeyspaceId, NO_KEYSPACE, NodeId, Position, SiteId, key_hash, limits,
};
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
    /// Writes of a site, or of none, for the same.
    Writes { to: SiteId, node: NodeId, of: SiteId, writes: Vec<CausalWrite> },
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
    /// When places were sent last.
    sent_at: Duration,
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
    hints: Hints,
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
        self.hints.retain(&region.layout.sites);
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
            let (sites, interest) = (&region.layout.sites, &region.layout.interest);
            let mut to = To { site: *site, sites, interest, hints: &mut self.hints };
            while let Some((places, content)) = cursor.next(state, last, epoch, &mut to) {
                for (of, writes) in content {
                    steps.push(Step::Writes { to: *site, node, of, writes });
                }
                if cursor.applied == cursor.sent {
                    cursor.since = now;
                }
                let count = places.sites.len() as u64;
                cursor.sent = cursor.sent.max(Position((places.first + count).saturating_sub(1)));
                (cursor.wants_answer, cursor.sent_at) = (false, now);
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
        // What was sent a moment ago is on its way, and shows by a gap what was lost before it.
        let is_lost = message.waits && cursor.sent_at + ON_ITS_WAY <= now;
        if cursor.node != Some(node) || message.again || is_lost {
            cursor.sent = taken;
        }
        cursor.sent = cursor.sent.max(taken);
        cursor.applied = applied;
        cursor.node = Some(node);
        cursor.asked = None;
        cursor.since = now;
        cursor.wants_answer |= message.again;
    }

    /// A site asks for the content of a write.
    pub(crate) fn pulled(&mut self, site: SiteId, write: &CausalWrite) {
        self.hints.learn(site, write.keyspace, hashes_of(write));
    }

    /// A site holds keys on demand no more.
    pub(crate) fn dropped(&mut self, site: SiteId, keyspace: KeyspaceId, keys: &[Bytes]) {
        let hashes: Vec<u32> = keys.iter().map(|key| key_hash(key)).collect();
        self.hints.forget(site, keyspace, &hashes);
    }

    /// A node leads its site no more: the site is asked where it is.
    pub(crate) fn turned(&mut self, site: SiteId, node: NodeId) {
        if let Some(cursor) = self.cursors.get_mut(&site).filter(|one| one.node == Some(node)) {
            (cursor.node, cursor.asked) = (None, None);
        }
    }

    /// How many places other sites have not imported yet.
    pub(crate) fn left(&self, state: &impl Durable) -> u64 {
        let last = state.order_last().count();
        self.cursors.values().map(|one| last.saturating_sub(one.applied.count())).sum()
    }
}

impl Part for Distribute {
    fn stop(&mut self) {
        self.cursors.clear();
    }

    /// When it must be polled at the latest. What is due by now was looked at just now.
    fn next_due(&self, now: Duration) -> Option<Duration> {
        let due = |one: &Cursor| match one.node {
            Some(_) => {
                let waits = one.applied < one.sent || one.lacks(self.trimmed);
                waits.then_some(one.since + AGAIN)
            }
            None => one.asked.map(|at| at + AGAIN),
        };
        self.cursors.values().filter_map(due).filter(|at| *at > now).min()
    }
}

/// Writes by their sites.
type Content = BTreeMap<SiteId, Vec<CausalWrite>>;

/// A site that places are sent to, and what it holds.
struct To<'a> {
    site: SiteId,
    /// The sites of the region.
    sites: &'a [SiteId],
    interest: &'a Interest,
    hints: &'a mut Hints,
}

impl To<'_> {
    /// By what keyspace and keys the site decides whether it needs a write. What another site
    /// fetches is no write here.
    fn name(&mut self, of: SiteId, write: &CausalWrite) -> (KeyspaceId, Vec<u32>) {
        match fetched_for(of, write) {
            Some(site) if site == self.site => {
                self.hints.learn_fetched(site, write);
                (write.keyspace, Vec::new())
            }
            Some(_) => (NO_KEYSPACE, Vec::new()),
            None if self.interest.on_demand(self.site, write.keyspace).is_some() => {
                (write.keyspace, hashes_of(write))
            }
            None => (write.keyspace, Vec::new()),
        }
    }

    /// Whether it needs the content, and no other site sends it.
    fn needs(&self, of: SiteId, write: &CausalWrite, hashes: &[u32]) -> bool {
        // Nor does a site of another region.
        let is_of_none =
            !self.sites.contains(&of) && self.interest.holds(self.site, write.keyspace);
        let is_part = self.interest.on_demand(self.site, write.keyspace).is_some();
        let is_held = hashes.is_empty() || self.hints.holds_one(self.site, write.keyspace, hashes);
        is_of_none || (is_part && of != self.site && is_held)
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
        to: &mut To<'_>,
    ) -> Option<(Places, Content)> {
        let after = self.sent.0;
        let window = limits::CAUSAL_PLACES_INFLIGHT_MAX;
        let ahead = self.sent.count().saturating_sub(self.applied.count());
        let is_new = self.sent < last && ahead < window;
        let mut places = Places { epoch, after, first: 0, ..Places::default() };
        let (mut content, mut has_void) = (Content::new(), false);
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
                let (keyspace, hashes) = to.name(site, &write);
                has_void |= keyspace == NO_KEYSPACE;
                places.keyspaces.push(keyspace.0);
                places.hash_counts.push(hashes.len() as u32);
                if keyspace != NO_KEYSPACE && to.needs(site, &write, &hashes) {
                    content.entry(site).or_default().push(write);
                }
                places.hashes.extend(hashes);
            }
        }
        if to.interest.is_everywhere() && !has_void {
            places.keyspaces.clear();
        }
        if to.interest.all_on_demand(to.site).next().is_none() {
            places.hash_counts.clear();
        }
        (!places.sites.is_empty() || self.wants_answer).then_some((places, content))
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::simulation::{Store, region, write};
    use super::*;
    use model::NO_SITE;

    fn sent(steps: &[Step]) -> Vec<(u32, u64, usize)> {
        let of_step = |step: &Step| match step {
            Step::Places(site, _, places) => Some((site.0, places.after, places.sites.len())),
            Step::Ask { .. } | Step::Writes { .. } => None,
        };
        steps.iter().filter_map(of_step).collect()
    }

    fn reached(applied: u64, taken: u64, again: bool) -> Reached {
        let position = |count| Position::new(1, count).0;
        let (applied, taken) = (position(applied), position(taken));
        Reached { epoch: 1, applied, taken, again, waits: false }
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
    fn of_keys_on_demand_a_site_is_sent_what_it_seems_to_hold() {
        let mut distribute = Distribute::default();
        let interest = Interest::of_rules(&[(2, &[1, 2])]).fetched(2, 1_000);
        let layout = Layout::with((1..=3).map(SiteId).collect(), interest);
        let region = Region { layout, ..region(1) };
        let mut store = Store::of(1);
        let key = Bytes::from("k\0");
        let fetched = |site| {
            let items = vec![(key.clone(), None)];
            let effects =
                vec![model::Effect::Mark(model::Mark::Fetched { site: SiteId(site), items })];
            CausalWrite { effects, ..write(1) }
        };
        store.order(SiteId(2), write(4));
        store.order(NO_SITE, fetched(3));
        store.order(SiteId(2), write(5));
        store.order(NO_SITE, fetched(4));
        distribute.poll(Duration::ZERO, &store, &region);
        distribute.reached((SiteId(3), NodeId(7)), reached(0, 0, true), Duration::ZERO);
        let steps = distribute.poll(Duration::ZERO, &store, &region);
        let sent = |steps: &[Step]| {
            let mut all = Vec::new();
            for step in steps {
                match step {
                    Step::Writes { of, writes, .. } => all.push((of.0, writes.len())),
                    Step::Places(_, _, places) => {
                        assert_eq!(places.hashes, [key_hash(&key); 2]);
                        assert_eq!(places.hash_counts, [1, 0, 1, 0]);
                        assert_eq!(places.keyspaces, [2, 2, 2, 0], "another site's is void");
                    }
                    Step::Ask { .. } => {}
                }
            }
            all
        };
        assert_eq!(sent(&steps), [(0, 1), (2, 1)], "what it fetches, and the write behind");
        // A site that holds all gets places alone.
        distribute.reached((SiteId(2), NodeId(8)), reached(0, 0, true), Duration::ZERO);
        let steps = distribute.poll(Duration::ZERO, &store, &region);
        let [Step::Places(SiteId(2), _, places)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!((&places.hashes[..], &places.hash_counts[..]), (&[][..], &[][..]));
        assert_eq!(places.keyspaces, [2, 0, 2, 0]);
        // What it holds no more it is not sent.
        distribute.dropped(SiteId(3), KeyspaceId(2), std::slice::from_ref(&key));
        distribute.reached((SiteId(3), NodeId(7)), reached(0, 0, true), Duration::ZERO);
        distribute.pulled(SiteId(3), &write(9));
        let again = sent(&distribute.poll(Duration::ZERO, &store, &region));
        assert_eq!(again, [(0, 1), (2, 2)], "it asked for such a write");
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
