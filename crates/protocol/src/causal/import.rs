//! The order on its way into a site's state: places from the root, joined with the writes of other
//! sites.
//!
//! Places are taken in order and without a gap, from what is imported on; what does not fit is left
//! out, and the root is asked for it. Writes come by themselves, in any order, and are kept within
//! a limit until their places come; those of this site need none, and those of keyspaces that it
//! does not hold ([`super::interest`]). As soon as the next places have their writes, one command
//! imports as many of them as fit. One such command is under way at a time: what comes meanwhile
//! gathers.
//!
//! A write that is missing for a while when its place is here is asked for: the root has all writes
//! of its order, and the write set out before the root ordered it. So are places, if a session waits
//! for one and nothing has come for as long. The root's own site takes both from its state, and
//! nothing that others send.
//!
//! A write that another region ordered a second time, as its root was lost, has two places, and may
//! have other content at the second one ([`Mark::Keeps`]). So a batch ends between the two, and the
//! content of the second one is waited for once the first one is imported.

use super::hints::fetched_for;
use super::interest::coverage;
use super::trial::{Bug, Planted};
use super::{AGAIN, Durable, ON_ITS_WAY, Part, Region};
use model::{
    CausalCommand, CausalWrite, Effect, Import as Entry, KeyspaceId, Mark, NO_KEYSPACE, Position,
    Revision, SiteId, limits,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use wire::causal::{PlaceOf, Places, Pull, Reached};

/// An import that has no effect after this is proposed again.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// After a gap the root is asked so often at most.
const GAP_PAUSE: Duration = Duration::from_millis(100);
/// Sessions that wait are stated at each tick.
const AWAITED_FOR: Duration = Duration::from_millis(500);

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// A command of this site.
    Propose(CausalCommand),
    /// A report for the root's leader. `silent`: it has not answered the last one.
    Report { message: Reached, silent: bool },
    /// A question for a node of the root.
    Pull(Pull),
}

#[derive(Clone, Debug)]
struct Place {
    position: Position,
    site: SiteId,
    revision: Revision,
    /// Where it is not this site's own, and of a keyspace that this site does not hold: that one.
    covers: Option<KeyspaceId>,
    /// Of a keyspace of which this site holds keys on demand: that one, and the write's keys by
    /// their hashes. None: its content is needed.
    on_demand: Option<(KeyspaceId, Vec<u32>)>,
    since: Duration,
}

/// What waits to be imported at a site's leader.
#[derive(Clone, Debug, Default)]
pub(crate) struct Import {
    planted: Planted,
    epoch: u16,
    /// Whether this site is the root of that epoch.
    is_root: bool,
    /// What follows the imported part of the order, up to `taken`.
    places: VecDeque<Place>,
    taken: Position,
    payloads: BTreeMap<(SiteId, Revision), CausalWrite>,
    payload_bytes: usize,
    /// The last imported write of each other site, since this node leads.
    imported: BTreeMap<SiteId, Revision>,
    /// The end of the import under way, and since when it is.
    proposed: Option<(Position, Duration)>,
    pulled: Option<Duration>,
    /// Whether the root's leader has sent anything since this node leads, or since it was silent.
    is_heard: bool,
    /// When the root was last sent a report, and up to which import.
    reported: Option<Duration>,
    reported_upto: Position,
    wants_again: bool,
    awaited: Option<Awaited>,
    /// When the root was last told that sessions wait.
    told: Option<Duration>,
    /// When anything came last.
    came: Duration,
}

/// Sessions wait for the order at a node of this site.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    upto: Position,
    /// Since when, and when they were seen to wait last.
    since: Duration,
    seen: Duration,
}

impl Import {
    pub(crate) fn new(planted: Planted) -> Import {
        Import { planted, ..Import::default() }
    }

    /// The next steps.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> Vec<Step> {
        if self.epoch != region.epoch {
            *self = Import { epoch: region.epoch, ..Import::new(self.planted) };
        }
        self.is_root = region.is_root();
        self.follow(state.applied(), now);
        // Of a lost root's order it may be the end: see `rebuild`.
        let applied = match region.is_rebuilding {
            true => state.whole_upto().unwrap_or_default(),
            false => state.applied(),
        };
        if state.is_resyncing() {
            // What was on its way before lies behind the order that comes with the keys.
            self.places.clear();
            self.payloads.clear();
            (self.payload_bytes, self.taken, self.proposed) = (0, state.applied(), None);
            return match region.is_root() {
                true => Vec::new(),
                false => self.next_report(now, applied).into_iter().collect(),
            };
        }
        if region.is_root() {
            self.take_own_order(now, state, region);
        }
        let mut steps = Vec::new();
        if self.proposed.is_none()
            && let Some(command) = self.next_import(state, region)
        {
            self.proposed = Some((command.1, now));
            steps.push(Step::Propose(command.0));
        }
        if !region.is_root() {
            steps.extend(self.next_pull(now, state, region).map(Step::Pull));
            steps.extend(self.next_report(now, applied));
        }
        steps
    }

    /// Drops what is imported.
    fn follow(&mut self, applied: Position, now: Duration) {
        while self.places.front().is_some_and(|place| place.position <= applied)
            && let Some(place) = self.places.pop_front()
        {
            let last = self.imported.entry(place.site).or_default();
            *last = place.revision.max(*last);
            if let Some(write) = self.payloads.remove(&(place.site, place.revision)) {
                self.payload_bytes -= write.payload_bytes();
            }
        }
        self.taken = self.taken.max(applied);
        self.proposed =
            self.proposed.filter(|(upto, since)| *upto > applied && now < *since + RETRY_AFTER);
    }

    fn take_own_order(&mut self, now: Duration, state: &impl Durable, region: &Region) {
        let last = region.released(state.order_last());
        if self.payload_bytes > limits::CAUSAL_IMPORT_BYTES_MAX || last <= self.taken {
            return;
        }
        let all = state.ordered(self.taken, limits::CAUSAL_IMPORT_BYTES_MAX);
        for (position, site, write) in all.into_iter().filter(|(at, ..)| *at <= last) {
            let revision = write.revision;
            // What a fetch brings is for another site.
            let covers = fetched_for(site, &write).map(|_| NO_KEYSPACE);
            if covers.is_none() && self.payloads.contains_key(&(site, revision)) {
                // Its second place.
                break;
            }
            self.taken = position;
            let (on_demand, since) = (None, now);
            self.places.push_back(Place { position, site, revision, covers, on_demand, since });
            if covers.is_some() {
                continue;
            }
            self.payload_bytes += write.payload_bytes();
            self.payloads.insert((site, revision), write);
        }
    }

    fn next_import(
        &self,
        state: &impl Durable,
        region: &Region,
    ) -> Option<(CausalCommand, Position)> {
        let from = state.applied();
        if self.planted.is(Bug::FetchedOutside)
            && let Some(early) = self.next_early(state, region)
        {
            return Some((CausalCommand::Import { from, upto: from, entries: vec![early] }, from));
        }
        let (mut entries, mut bytes, mut upto) = (Vec::new(), 0, None);
        let mut given = BTreeSet::new();
        for place in self.places.iter().take(limits::CAUSAL_OFFER_WRITES_MAX) {
            let Place { position, site, revision, .. } = *place;
            let mut is_last = false;
            if bytes > limits::CAUSAL_IMPORT_BYTES_MAX {
                break;
            }
            // Of an own write without an effect what is kept with its place is that.
            let is_void = place.covers == Some(NO_KEYSPACE);
            if site == region.own && !state.lacks_own(revision) && !is_void {
                entries.push(Entry::Own(position));
            } else if let Some(keyspace) = self.covers(place, state) {
                let write = coverage(keyspace, revision);
                entries.push(Entry::Other { position, site, write });
            } else if let Some(write) = self.payloads.get(&(site, revision)) {
                if !given.insert((site, revision)) {
                    // Its second place.
                    break;
                }
                bytes += write.payload_bytes();
                // Whether what comes behind is needed shows in the state then.
                is_last = fetched_for(site, write) == Some(region.own);
                entries.push(Entry::Other { position, site, write: write.clone() });
            } else if !self.planted.is(Bug::PayloadSkipped) {
                break;
            }
            upto = Some(position);
            if is_last {
                break;
            }
        }
        let upto = upto?;
        Some((CausalCommand::Import { from, upto, entries }, upto))
    }

    /// The keyspace of a place whose content this site does not need.
    fn covers(&self, place: &Place, state: &impl Durable) -> Option<KeyspaceId> {
        let of_keys = |(keyspace, hashes): &(KeyspaceId, Vec<u32>)| {
            let is_held = |hash: &u32| state.holds_hash(*keyspace, *hash);
            let is_blind = self.planted.is(Bug::CoveredFetched);
            let is_needed = hashes.is_empty() || (!is_blind && hashes.iter().any(is_held));
            (!is_needed).then_some(*keyspace)
        };
        place.covers.or_else(|| place.on_demand.as_ref().and_then(of_keys))
    }

    /// A bug to be found: what a fetch brings is taken as soon as it comes.
    fn next_early(&self, state: &impl Durable, region: &Region) -> Option<Entry> {
        let is_new = |write: &CausalWrite| {
            let is_held = |effect: &Effect| match effect {
                Effect::Mark(Mark::Fetched { items, .. }) => {
                    items.iter().all(|(key, _)| state.holds_key(write.keyspace, key))
                }
                _ => true,
            };
            !write.effects.iter().all(is_held)
        };
        let is_own = |site, write: &CausalWrite| fetched_for(site, write) == Some(region.own);
        let all = self.payloads.iter().map(|((site, _), write)| (*site, write));
        let (site, write) =
            all.into_iter().find(|(site, write)| is_own(*site, write) && is_new(write))?;
        let position = Position(write.revision.0);
        Some(Entry::Other { position, site, write: write.clone() })
    }

    fn next_pull(&mut self, now: Duration, state: &impl Durable, region: &Region) -> Option<Pull> {
        let is_missing = |place: &&Place| {
            let is_here = place.site == region.own && !state.lacks_own(place.revision);
            let needs = !is_here && self.covers(place, state).is_none();
            needs && !self.payloads.contains_key(&(place.site, place.revision))
        };
        let first = self.places.iter().find(is_missing)?;
        // No site sends what is held on demand, unless the root does so with the place.
        let on_its_way =
            |place: &Place| if place.on_demand.is_some() { Duration::ZERO } else { ON_ITS_WAY };
        let due = first.since + on_its_way(first);
        let again = self.pulled.map_or(Duration::ZERO, |at| at + 2 * ON_ITS_WAY);
        if now < due.max(again) {
            return None;
        }
        let old = self.places.iter().take_while(|place| place.since + on_its_way(place) <= now);
        let positions = old.filter(is_missing).map(|place| place.position.0);
        let positions = positions.take(limits::CAUSAL_PULLED_MAX).collect();
        self.pulled = Some(now);
        Some(Pull { positions })
    }

    fn next_report(&mut self, now: Duration, applied: Position) -> Option<Step> {
        let wants = self.wants_awaited(now);
        let is_due = |pause: Duration| self.reported.is_none_or(|at| at + pause <= now);
        let is_silent = !self.is_heard && is_due(AGAIN);
        let again = is_silent || (self.wants_again && is_due(GAP_PAUSE));
        let is_told = self.told.is_some_and(|at| now < at + 2 * ON_ITS_WAY);
        let waits = self.is_heard && wants && !is_told && !again;
        if !again && !waits && (applied <= self.reported_upto || !self.is_heard) {
            return None;
        }
        if waits {
            self.told = Some(now);
        }
        let silent = is_silent && self.reported.is_some();
        self.reported_upto = applied;
        if again {
            self.reported = Some(now);
            self.wants_again = false;
        }
        let (applied, taken) = (applied.0, self.taken.0);
        let message = Reached { epoch: u32::from(self.epoch), applied, taken, again, waits };
        Some(Step::Report { message, silent })
    }

    /// Sessions wait here for the order up to a position.
    pub(crate) fn awaited(&mut self, upto: Position, now: Duration) {
        let before = self.awaited.filter(|one| one.seen + AWAITED_FOR > now);
        if self.is_root || before.is_some_and(|one| one.upto > upto) {
            // The one that waits for more states that as long as it does.
            return;
        }
        let since = before.map_or(now, |one| one.since);
        self.awaited = Some(Awaited { upto, since, seen: now });
    }

    /// Whether a session waits for places, and nothing has come for a while.
    fn wants_awaited(&mut self, now: Duration) -> bool {
        let (taken, came) = (self.taken, self.came);
        self.awaited = self.awaited.filter(|one| one.upto > taken && one.seen + AWAITED_FOR > now);
        self.awaited.is_some_and(|one| one.since.max(came) + ON_ITS_WAY <= now)
    }

    /// The root's leader asks where this site is.
    pub(crate) fn asked(&mut self, epoch: u32) {
        if epoch == u32::from(self.epoch) {
            self.is_heard = true;
            self.wants_again = true;
            self.reported = None;
        }
    }

    /// The node that was sent a report does not lead the root's site. `turns`: the one that does is
    /// asked from now on; else all nodes are, after a while.
    pub(crate) fn led_by_another(&mut self, turns: bool) {
        self.is_heard = false;
        if turns {
            self.reported = None;
        }
    }

    /// Places have come.
    pub(crate) fn take_places(&mut self, places: &Places, now: Duration, region: &Region) {
        if places.epoch != u32::from(self.epoch) {
            return;
        }
        let Some(entries) = places.entries() else { return };
        (self.is_heard, self.came) = (true, now);
        if places.after > self.taken.0 {
            self.wants_again = true;
            return;
        }
        for PlaceOf { position, site, revision, keyspace, hashes } in entries {
            if self.places.len() as u64 >= limits::CAUSAL_PLACES_INFLIGHT_MAX {
                return;
            }
            if position > self.taken {
                let covers = keyspace.filter(|keyspace| self.is_covered(*keyspace, region));
                let is_part = |of: &KeyspaceId| region.layout.interest.on_demand(region.own, *of);
                let on_demand = keyspace.filter(|keyspace| is_part(keyspace).is_some());
                let on_demand = on_demand.map(|keyspace| (keyspace, hashes));
                let since = now;
                self.places.push_back(Place { position, site, revision, covers, on_demand, since });
                self.taken = position;
            }
        }
    }

    /// Whether a write of a keyspace takes its place without its content.
    fn is_covered(&self, keyspace: KeyspaceId, region: &Region) -> bool {
        if keyspace == NO_KEYSPACE {
            return true;
        }
        let is_planted =
            self.planted.is(Bug::CoveredHeld) && !region.layout.interest.is_everywhere();
        let interest = &region.layout.interest;
        let is_part = interest.on_demand(region.own, keyspace).is_some();
        is_planted || !(interest.holds(region.own, keyspace) || is_part)
    }

    /// Writes of another site have come.
    pub(crate) fn take_writes(&mut self, site: SiteId, writes: Vec<CausalWrite>, now: Duration) {
        if self.is_root {
            // Sites that have the root before in their registry send them here, too.
            return;
        }
        let imported = self.imported.get(&site).copied().unwrap_or_default();
        // What another region orders a second time, as its root was lost, has two places.
        let has_place = |revision| {
            self.places.iter().any(|place| (place.site, place.revision) == (site, revision))
        };
        let is_wanted =
            |write: &CausalWrite| write.revision > imported || has_place(write.revision);
        let writes: Vec<CausalWrite> = writes.into_iter().filter(is_wanted).collect();
        self.came = now;
        for write in writes {
            let key = (site, write.revision);
            let bytes = write.payload_bytes();
            if self.payloads.contains_key(&key) || !self.make_room(key, bytes) {
                continue;
            }
            self.payload_bytes += bytes;
            self.payloads.insert(key, write);
        }
    }

    /// Makes room for a write: one without a place gives way to one that has one, and the next one
    /// always has room.
    fn make_room(&mut self, key: (SiteId, Revision), bytes: usize) -> bool {
        if self.payload_bytes + bytes <= limits::CAUSAL_PAYLOADS_BYTES_MAX {
            return true;
        }
        let named = |place: &Place| (place.site, place.revision);
        if !self.places.iter().any(|place| named(place) == key) {
            return false;
        }
        let wanted: BTreeSet<_> = self.places.iter().map(named).collect();
        self.payloads.retain(|key, _| wanted.contains(key));
        self.payload_bytes = self.payloads.values().map(CausalWrite::payload_bytes).sum();
        let needed = self.places.iter().filter(|place| place.covers.is_none());
        let mut places = needed.map(named);
        let next = places.find(|place| !self.payloads.contains_key(place));
        next == Some(key) || self.payload_bytes + bytes <= limits::CAUSAL_PAYLOADS_BYTES_MAX
    }

    /// How many places wait to be imported.
    pub(crate) fn left(&self) -> u64 {
        self.places.len() as u64
    }
}

impl Part for Import {
    fn stop(&mut self) {
        *self = Import::new(self.planted);
    }

    /// When it must be polled at the latest. What is due by now was looked at just now: a pause, or
    /// a full disk, holds it up.
    fn next_due(&self, now: Duration) -> Option<Duration> {
        let report = self.wants_again.then(|| self.reported.unwrap_or_default() + GAP_PAUSE);
        let pull = self.places.front().map(|place| {
            (place.since + ON_ITS_WAY).max(self.pulled.unwrap_or_default() + 2 * ON_ITS_WAY)
        });
        let proposed = self.proposed.map(|(_, since)| since + RETRY_AFTER);
        let awaited = self.awaited.filter(|one| one.upto > self.taken).map(|one| {
            let again = self.told.map_or(Duration::ZERO, |at| at + 2 * ON_ITS_WAY);
            (one.since.max(self.came) + ON_ITS_WAY).max(again)
        });
        let all = [report, pull.filter(|_| proposed.is_none()), proposed, awaited];
        all.into_iter().flatten().filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::interest::Interest;
    use super::super::layout::Layout;
    use super::super::simulation::{Store, region, write};
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;

    fn places(after: u64, entries: &[(u32, u64)]) -> Places {
        let (sites, revisions) = entries.iter().copied().unzip();
        let position = |count| Position::new(1, count).0;
        let after = if after == 0 { 0 } else { position(after) };
        let first = position(Position(after).count() + 1);
        Places { epoch: 1, after, first, sites, revisions, ..Places::default() }
    }

    fn proposed(steps: &[Step]) -> Option<(u64, usize)> {
        steps.iter().find_map(|step| match step {
            Step::Propose(CausalCommand::Import { upto, entries, .. }) => {
                Some((upto.count(), entries.len()))
            }
            _ => None,
        })
    }

    fn report(steps: &[Step]) -> Option<(u64, u64, bool)> {
        steps.iter().find_map(|step| match step {
            Step::Report { message, .. } => Some((
                Position(message.applied).count(),
                Position(message.taken).count(),
                message.again,
            )),
            _ => None,
        })
    }

    #[test]
    fn places_and_writes_are_joined_in_order() {
        let (mut import, region) = (Import::default(), region(3));
        let mut store = Store::of(3);
        let first = import.poll(AT(0), &store, &region);
        assert_eq!(report(&first), Some((0, 0, true)), "a leader begins by reporting where it is");
        import.take_places(&places(0, &[(2, 4), (3, 1), (2, 5)]), AT(10), &region);
        import.take_writes(SiteId(2), vec![write(5)], AT(0));
        let waits = import.poll(AT(20), &store, &region);
        assert_eq!(waits, [], "the first write is missing");
        let pulls = import.poll(AT(110), &store, &region);
        assert_eq!(pulls, [Step::Pull(Pull { positions: vec![Position::new(1, 1).0] })]);
        import.take_writes(SiteId(2), vec![write(4)], AT(0));
        assert_eq!(import.next_due(AT(200)), Some(AT(310)));
        assert_eq!(import.next_due(AT(310)), None, "if it is paused, this changes nothing");
        assert_eq!(proposed(&import.poll(AT(120), &store, &region)), Some((3, 3)));
        assert!(import.poll(AT(130), &store, &region).is_empty(), "it is under way");
        store.applied = Position::new(1, 3);
        let done = import.poll(AT(140), &store, &region);
        assert_eq!((report(&done), done.len()), (Some((3, 3, false)), 1));
        assert_eq!((import.payload_bytes, import.next_due(AT(140))), (0, None));
        // What comes again is nothing new.
        import.take_writes(SiteId(2), vec![write(4)], AT(0));
        import.take_places(&places(0, &[(2, 4), (3, 1)]), AT(150), &region);
        assert_eq!((import.payloads.len(), import.places.len()), (0, 0));
        assert!(import.poll(AT(100_000), &store, &region).is_empty(), "idle");
    }

    /// Another region's order was cut, and what survived is ordered again.
    #[test]
    fn a_write_with_a_second_place_is_imported_again() {
        let (mut import, region) = (Import::default(), region(3));
        let mut store = Store::of(3);
        import.poll(AT(0), &store, &region);
        import.take_places(&places(0, &[(9, 5), (9, 6)]), AT(10), &region);
        import.take_writes(SiteId(9), vec![write(5), write(6)], AT(0));
        assert_eq!(proposed(&import.poll(AT(20), &store, &region)), Some((2, 2)));
        store.applied = Position::new(1, 2);
        import.poll(AT(30), &store, &region);
        import.take_places(&places(2, &[(9, 5), (9, 7)]), AT(40), &region);
        import.take_writes(SiteId(9), vec![write(5), write(6)], AT(0));
        assert_eq!(import.payloads.len(), 1, "of the other one there is no place");
        assert_eq!(proposed(&import.poll(AT(50), &store, &region)), Some((3, 1)));
        store.applied = Position::new(1, 3);
        import.take_writes(SiteId(9), vec![write(7)], AT(0));
        assert_eq!(proposed(&import.poll(AT(60), &store, &region)), Some((4, 1)));
        store.applied = Position::new(1, 4);
        import.poll(AT(70), &store, &region);
        import.take_writes(SiteId(9), vec![write(6)], AT(0));
        assert_eq!(import.payloads.len(), 0, "it is as far as the last one");
    }

    /// Its content may be another one there.
    #[test]
    fn the_second_place_of_a_write_is_not_given_the_content_of_the_first() {
        let (mut import, region) = (Import::default(), region(3));
        let mut store = Store::of(3);
        import.poll(AT(0), &store, &region);
        import.take_places(&places(0, &[(9, 5), (9, 5)]), AT(10), &region);
        import.take_writes(SiteId(9), vec![write(5)], AT(0));
        assert_eq!(proposed(&import.poll(AT(20), &store, &region)), Some((1, 1)));
        store.applied = Position::new(1, 1);
        assert_eq!(proposed(&import.poll(AT(30), &store, &region)), None);
        let pulls = import.poll(AT(110), &store, &region);
        assert_eq!(pulls, [Step::Pull(Pull { positions: vec![Position::new(1, 2).0] })]);
        import.take_writes(SiteId(9), vec![write(5)], AT(0));
        assert_eq!(proposed(&import.poll(AT(120), &store, &region)), Some((2, 1)));
    }

    #[test]
    fn what_is_not_held_takes_its_place_without_its_content() {
        let mut import = Import::default();
        let interest = Interest::of_rules(&[(2, &[1, 2])]);
        let layout = Layout::with((1..=3).map(SiteId).collect(), interest);
        let region = Region { layout, ..region(3) };
        let store = Store::of(3);
        import.poll(AT(0), &store, &region);
        let keyspaces = vec![2, 3];
        let places = Places { keyspaces, ..places(0, &[(2, 4), (2, 5)]) };
        import.take_places(&places, AT(10), &region);
        // The first one is covered; the second one is of a keyspace that all sites hold.
        let steps = import.poll(AT(10), &store, &region);
        let [Step::Propose(CausalCommand::Import { upto, entries, .. })] = &steps[..] else {
            panic!("{steps:?}");
        };
        let write = coverage(KeyspaceId(2), Revision(4));
        let position = Position::new(1, 1);
        assert_eq!(*upto, position);
        assert_eq!(entries[..], [Entry::Other { position, site: SiteId(2), write }]);
        let pulls = import.poll(AT(150), &store, &region);
        assert_eq!(pulls, [Step::Pull(Pull { positions: vec![Position::new(1, 2).0] })]);
        // A root that names no keyspaces has its writes waited for.
        let mut import = Import::default();
        import.poll(AT(0), &store, &region);
        import.take_places(&Places { keyspaces: vec![], ..places }, AT(10), &region);
        assert_eq!(proposed(&import.poll(AT(10), &store, &region)), None);
    }

    #[test]
    fn what_is_held_on_demand_is_waited_for_from_its_place_on() {
        let mut import = Import::default();
        let interest = Interest::of_rules(&[(2, &[1, 2])]).fetched(2, 1_000);
        let layout = Layout::with((1..=3).map(SiteId).collect(), interest);
        let region = Region { layout, ..region(3) };
        let mut store = Store::of(3);
        import.poll(AT(0), &store, &region);
        // A write to k, what a fetch brings of it, another write, and one to another key.
        let hash = model::key_hash(b"k\0");
        let places = Places {
            keyspaces: vec![2; 4],
            hash_counts: vec![1, 0, 1, 1],
            hashes: vec![hash, hash, hash + 1],
            ..places(0, &[(2, 4), (0, Position::new(1, 2).0), (2, 5), (2, 6)])
        };
        import.take_places(&places, AT(10), &region);
        let pulls = import.poll(AT(10), &store, &region);
        let [Step::Propose(_), Step::Pull(pull)] = &pulls[..] else { panic!("{pulls:?}") };
        assert_eq!(proposed(&pulls), Some((1, 1)), "k is not held");
        assert_eq!(pull.positions, [Position::new(1, 2).0], "and nothing else, at once");
        store.applied = Position::new(1, 1);
        let items = vec![(model::Bytes::from("k\0"), None)];
        let effects = vec![Effect::Mark(Mark::Fetched { site: SiteId(3), items })];
        let (revision, seen) = (Revision(Position::new(1, 2).0), Position(0));
        let fetched = CausalWrite { revision, seen, keyspace: KeyspaceId(2), effects };
        import.take_writes(model::NO_SITE, vec![fetched], AT(0));
        import.take_writes(SiteId(2), vec![write(5)], AT(0));
        let steps = import.poll(AT(20), &store, &region);
        assert_eq!(proposed(&steps), Some((2, 1)), "what comes behind shows in the state then");
        store.applied = Position::new(1, 2);
        store.held.insert("k\0".into(), 1);
        let steps = import.poll(AT(30), &store, &region);
        let Some(Step::Propose(CausalCommand::Import { entries, .. })) = steps.first() else {
            panic!("{steps:?}")
        };
        let of_entry = |entry: &Entry| match entry {
            Entry::Other { write, .. } => write.effects.len(),
            Entry::Own(_) => 0,
        };
        assert_eq!(entries.iter().map(of_entry).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn after_a_gap_the_root_is_asked() {
        let (mut import, region) = (Import::default(), region(3));
        let store = Store::of(3);
        import.poll(AT(0), &store, &region);
        import.take_places(&places(2, &[(2, 9)]), AT(10), &region);
        assert!(import.poll(AT(10), &store, &region).is_empty(), "a moment ago it was asked");
        assert_eq!(import.next_due(AT(10)), Some(GAP_PAUSE));
        assert_eq!(report(&import.poll(AT(100), &store, &region)), Some((0, 0, true)));
        assert!(import.poll(AT(2_000), &store, &region).is_empty());
        // It is silent about a new leader's report, or has another leader.
        import.led_by_another(true);
        assert_eq!(report(&import.poll(AT(2_010), &store, &region)), Some((0, 0, true)));
        assert_eq!(report(&import.poll(AT(2_020), &store, &region)), None);
        assert_eq!(report(&import.poll(AT(3_010), &store, &region)), Some((0, 0, true)));
    }

    #[test]
    fn what_sessions_wait_for_is_asked_for_once_nothing_comes() {
        let (mut import, region) = (Import::default(), region(3));
        let store = Store::of(3);
        let asks =
            |import: &mut Import, at| report(&import.poll(AT(at), &store, &region)).is_some();
        assert!(asks(&mut import, 0));
        import.take_places(&places(0, &[(2, 4)]), AT(1_000), &region);
        // Of what is here the import is under way; of what is not, it may be.
        import.awaited(Position::new(1, 1), AT(1_010));
        assert!(!asks(&mut import, 1_500));
        import.awaited(Position::new(1, 2), AT(1_510));
        import.take_places(&places(1, &[]), AT(1_550), &region);
        assert!(!asks(&mut import, 1_610));
        assert_eq!(import.next_due(AT(1_610)), Some(AT(1_650)));
        assert!(asks(&mut import, 1_650));
        import.awaited(Position::new(1, 2), AT(1_700));
        assert!(!asks(&mut import, 1_840), "and so often");
        assert!(asks(&mut import, 1_850));
        import.take_places(&places(1, &[(2, 5)]), AT(1_860), &region);
        assert!(!asks(&mut import, 2_060), "it is here");
        import.awaited(Position::new(1, 9), AT(2_100));
        assert!(!asks(&mut import, 2_600), "no session waits any more");
    }

    #[test]
    fn the_next_write_always_finds_room() {
        let mut import = Import { epoch: 1, ..Import::default() };
        let of = |revision| {
            let mut one = write(revision);
            let value = vec![0; limits::CAUSAL_PAYLOADS_BYTES_MAX / 2 - 100].into();
            one.effects = vec![model::Effect::Put { key: "k".into(), value }];
            one
        };
        import.take_writes(SiteId(2), vec![of(7), of(8), of(9)], AT(0));
        assert_eq!(import.payloads.len(), 2, "no place needs them");
        import.take_places(&places(0, &[(2, 5), (2, 6), (2, 7)]), AT(0), &region(3));
        import.take_writes(SiteId(2), vec![of(6)], AT(0));
        let kept = |import: &Import| import.payloads.keys().map(|key| key.1.0).collect::<Vec<_>>();
        assert_eq!(kept(&import), [6, 7], "8 has no place");
        import.take_writes(SiteId(2), vec![of(5)], AT(0));
        assert_eq!(kept(&import), [5, 6, 7], "it is the next");
    }

    #[test]
    fn a_root_imports_from_its_own_state() {
        let (mut import, region) = (Import::default(), region(1));
        let mut store = Store::of(1);
        assert!(import.poll(AT(0), &store, &region).is_empty());
        store.order(SiteId(2), write(4));
        store.order(SiteId(1), write(9));
        assert_eq!(proposed(&import.poll(AT(0), &store, &region)), Some((2, 2)));
        assert_eq!(import.next_due(AT(0)), Some(RETRY_AFTER));
        assert_eq!(proposed(&import.poll(RETRY_AFTER, &store, &region)), Some((2, 2)), "once more");
        store.applied = Position::new(1, 2);
        assert!(import.poll(RETRY_AFTER, &store, &region).is_empty());
    }

    #[test]
    fn a_root_imports_the_second_place_of_a_write_by_itself() {
        let (mut import, region, mut store) = (Import::default(), region(1), Store::of(1));
        [4, 5, 5].into_iter().for_each(|revision| store.order(SiteId(9), write(revision)));
        assert_eq!(proposed(&import.poll(AT(0), &store, &region)), Some((2, 2)));
        store.applied = Position::new(1, 2);
        assert_eq!(proposed(&import.poll(AT(10), &store, &region)), Some((3, 1)));
        store.applied = Position::new(1, 3);
        import.poll(AT(20), &store, &region);
        assert_eq!((import.payload_bytes, import.left()), (0, 0));
    }

    /// They have the root before in their registry.
    #[test]
    fn what_others_send_a_root_does_not_keep_it_from_importing() {
        let (mut import, region, mut store) = (Import::default(), region(1), Store::of(1));
        import.poll(AT(0), &store, &region);
        let mut one = write(7);
        let value = vec![0; limits::CAUSAL_IMPORT_BYTES_MAX + 1].into();
        one.effects = vec![Effect::Put { key: "k".into(), value }];
        import.take_writes(SiteId(2), vec![one.clone()], AT(0));
        store.order(SiteId(2), one);
        assert_eq!(proposed(&import.poll(AT(10), &store, &region)), Some((1, 1)));
        store.applied = Position::new(1, 1);
        import.poll(AT(20), &store, &region);
        assert_eq!(import.payload_bytes, 0);
    }
}
