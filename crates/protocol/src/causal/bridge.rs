//! The order of a region on its way to the roots of the other regions, at its root's leader.
//!
//! What is released of the order goes to each other region's root as commands of that
//! ([`CausalCommand::Bridge`]), chained by position, a few at a time: this region's own writes
//! whole, with their stamps; of what it has taken from third regions the places there only, as the
//! other root gets those writes from their own region, and must have them first. Places without an
//! effect elsewhere are passed over.
//!
//! An answer has the last place that is taken. If that is before a command's end, the other root
//! lacks what this region has taken from a third one; it is sent the rest again after a pause,
//! which doubles while it takes nothing. After a gap or a failure it is asked how far it is.
//!
//! An order that is rebuilt goes on before what another region has of it, in a later epoch. That one
//! takes its last place before the end for its last one, once it knows of the end, and has the rest
//! sent. In turn the rebuilt order may lack what it had taken before: as long as that is kept it is
//! sent again; if not it is shown ([`Notice`]), as the keys of the two regions may differ from there
//! on. So the root states to have of others only what its other sites have, too ([`Stated`]).
//!
//! *What is lost of a third region's order*, and was taken into this one, comes from there no more: it
//! goes to all others whole, as a write of this order, with the stamp that it had.
//!
//! The beginning of an epoch, which is above all places of the epochs before, is sent by itself, before
//! its first place: what was cut is waited for no more. A root that goes on behind a cut states
//! neither what it has nor its clock before all others have sent their orders whole, and sends all
//! the same that what it sends is all: two regions may be rebuilt at once.
//!
//! While nothing is ordered, a message a second shows that the clock of the region goes on: keys
//! expire once the clocks of all regions have passed the moment.
//!
//! Left out: what the other root does with it (`site::machine::causal::bridging`).

use super::in_flight::Paced;
use super::{AGAIN, Durable, Part, Region};
use model::{
    Answer, Bridge as Places, Bridged, CausalCommand, Failure, Position, RegionId, SiteId, limits,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::causal::Reached;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause after a gap, and the first one when the other root lacks what a third one has.
const GAP_PAUSE: Duration = Duration::from_millis(20);
/// The clock of the order lags so much behind log time at most ([`model::Mark::Clock`]).
const CLOCK_LAG_MS: u64 = 10;

/// A command for another root. Its answer comes back under `id`.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) id: u64,
    pub(crate) to: SiteId,
    pub(crate) command: CausalCommand,
}

/// A site that lacks a part of the order and does not report for so long is not waited for.
const SILENT: Duration = Duration::from_secs(10);
/// So many places are known at which the order had something of others.
const STATED_MAX: usize = 64;

/// What people have to know of another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It takes nothing: it lacks what a third region has.
    LacksThird,
    /// It is sent nothing: this site does not keep what it lacks.
    NotKept,
    /// It has taken this region's order up to there, and the end of that is no part of the order
    /// any more.
    HasLost(Position),
    /// Its own order was cut, and this region's is kept from there on only: it may lack a part.
    MayLack(Position),
}

/// What goes to one region.
#[derive(Debug, Default)]
struct Cursor {
    /// Its root, and the epoch of that.
    to: Option<(SiteId, u16)>,
    /// It was sent the order up to there. `None`: it is asked how far it is.
    sent: Option<Position>,
    /// It has taken the order up to there.
    taken: Position,
    /// Of each command that is not answered the place before it, its end, and its bytes.
    open: BTreeMap<u64, (Position, Position, usize)>,
    not_before: Duration,
    last_sent: Option<Duration>,
    paced: Paced,
    /// How often in a row it has taken nothing of a command.
    stalled: u32,
    /// Whether its root is the first one since its order was cut.
    is_cut: bool,
    /// The end of the order when the other root's epoch was known here: with that it has all that
    /// came before.
    goal: Position,
    notice: Option<Notice>,
}

/// The commands of a root's leader.
#[derive(Debug, Default)]
pub(crate) struct Bridge {
    epoch: u16,
    cursors: BTreeMap<RegionId, Cursor>,
    stated: Stated,
    last_id: u64,
    sent_bytes: u64,
}

impl Bridge {
    /// A site's leader reports.
    pub(crate) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        if message.epoch == u32::from(self.epoch) {
            self.stated.reached(site, Position(message.applied), now);
        }
    }

    /// The next commands.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> Vec<Step> {
        if !region.orders() || region.layout.regions.is_empty() {
            self.cursors.clear();
            return Vec::new();
        }
        if self.epoch != region.epoch {
            self.cursors.clear();
            (self.epoch, self.stated) = (region.epoch, Stated::default());
        }
        let mut steps = Vec::new();
        self.stated.follow(now, state, region);
        let (stated, layout) = (&self.stated, &region.layout);
        // What is sent while an order's end is looked for may not be all that is to come.
        let sent_to = |id: RegionId| {
            layout.regions.iter().any(|(one, _)| *one == id) && !layout.is_rebuilding(id)
        };
        self.cursors.retain(|id, _| sent_to(*id));
        for (id, root) in layout.regions.iter().filter(|(id, _)| sent_to(*id)) {
            let cursor = self.cursors.entry(*id).or_default();
            let epoch = region.layout.epoch_of(*id);
            if cursor.to != Some((*root, epoch)) {
                let (to, not_before) = (Some((*root, epoch)), cursor.not_before);
                let is_cut = region.layout.is_cut(*id);
                let goal = state.order_last();
                *cursor = Cursor { to, not_before, is_cut, goal, ..Cursor::default() };
            }
            if now < cursor.not_before {
                continue;
            }
            while let Some(bridge) = cursor.next(now, state, region, stated) {
                self.last_id += 1;
                let bytes = bridge.places.iter().map(Bridged::payload_bytes).sum::<usize>();
                cursor.open.insert(self.last_id, (bridge.after, bridge.upto, bytes));
                cursor.paced.sent(now);
                cursor.sent = Some(bridge.upto);
                cursor.last_sent = Some(now);
                self.sent_bytes += bytes as u64;
                let command = CausalCommand::Bridge { epoch, bridge };
                steps.push(Step { id: self.last_id, to: *root, command });
            }
        }
        steps
    }

    /// How many places other regions have not taken.
    pub(crate) fn left(&self, state: &impl Durable) -> u64 {
        let last = state.order_last().count();
        self.cursors.values().map(|one| last.saturating_sub(one.taken.count())).sum()
    }

    /// What people have to know of a region: of one that takes nothing first.
    pub(crate) fn notice(&self) -> Option<(RegionId, Notice)> {
        let stalled = self.cursors.iter().find(|(_, cursor)| cursor.stalled > 0);
        let stalled = stalled.map(|(id, _)| (*id, Notice::LacksThird));
        stalled.or_else(|| self.cursors.iter().find_map(|(id, one)| Some((*id, one.notice?))))
    }
}

impl Part for Bridge {
    /// Another root's answer to a command.
    fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>, now: Duration) {
        let found = self.cursors.values_mut().find(|cursor| cursor.open.contains_key(&id));
        let Some(cursor) = found else { return };
        let Some((after, upto, _)) = cursor.open.remove(&id) else { return };
        match outcome {
            Ok(Answer::Done(taken)) => {
                let taken = Position(taken.0);
                cursor.taken = taken;
                cursor.stalled =
                    if taken == after && taken < upto { cursor.stalled + 1 } else { 0 };
                if taken < upto {
                    let pause = GAP_PAUSE * (1 << cursor.stalled.min(6));
                    cursor.begin_again(now + pause, Some(taken));
                }
            }
            _ => cursor.begin_again(now + PAUSE, None),
        }
    }

    fn stop(&mut self) {
        self.cursors.clear();
        self.stated = Stated::default();
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        let due = |cursor: &Cursor| match cursor.not_before > now {
            true => Some(cursor.not_before),
            false if cursor.open.is_empty() => cursor.last_sent.map(|at| at + AGAIN),
            false => cursor.paced.due(cursor.open.len(), now),
        };
        self.cursors.values().filter_map(due).filter(|at| *at > now).min()
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

impl Cursor {
    fn begin_again(&mut self, at: Duration, sent: Option<Position>) {
        self.open.clear();
        self.sent = sent;
        self.not_before = at;
    }

    /// The next command, if there is one to send.
    fn next(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
        stated: &Stated,
    ) -> Option<Places> {
        let bytes = self.open.values().map(|(.., bytes)| bytes).sum();
        let has_room = match self.stalled > 0 {
            true => self.open.is_empty(),
            false => self.paced.may_send(self.open.len(), bytes, now),
        };
        if !has_room {
            return None;
        }
        let last = region.released(state.order_last());
        let Some(after) = self.sent else {
            // A gap, unless it has all: the answer has how far it is.
            let (of, has, places) = (region.id, Vec::new(), Vec::new());
            let asks = Places { of, after: last, upto: last, clock_ms: 0, has, places };
            return self.open.is_empty().then_some(asks);
        };
        let is_idle = after >= last && self.open.is_empty();
        if after >= last && !(is_idle && self.last_sent.is_none_or(|at| at + AGAIN <= now)) {
            return None;
        }
        let (upto, mut places) = match after < last {
            true => self.behind(after, last, state, region)?,
            false => (after, Vec::new()),
        };
        for place in &mut places {
            if let Bridged::Clock { position, has, .. } = place
                && !stated.is_safe(*position)
            {
                has.clear();
            }
        }
        let log_ms = state.log_time_ms().saturating_sub(CLOCK_LAG_MS);
        let is_level = state.is_level();
        let is_all = upto == state.order_last() && is_level;
        let clock_ms = if is_all { log_ms.max(state.clock_ms()) } else { 0 };
        // Under load the end of the order is never sent: both go with each command.
        let mut has = if is_level { stated.has_upto(upto) } else { Vec::new() };
        has.extend((upto >= self.goal).then_some((region.id, upto)));
        Some(Places { of: region.id, after, upto, clock_ms, has, places })
    }

    /// The places behind one, and the end of them.
    fn behind(
        &mut self,
        after: Position,
        last: Position,
        state: &impl Durable,
        region: &Region,
    ) -> Option<(Position, Vec<Bridged>)> {
        if !state.keeps_behind(after) {
            // All regions have had what lies up to there.
            let upto = state.kept_after().unwrap_or_default().min(last);
            if upto <= after {
                self.notice = Some(Notice::NotKept);
                return None;
            }
            if self.is_cut {
                self.notice = Some(Notice::MayLack(upto));
            }
            return Some((upto, Vec::new()));
        }
        let mut all = state.ordered(after, limits::CAUSAL_OFFER_BYTES_MAX);
        all.retain(|(position, ..)| *position <= last);
        let first = all.first().map(|(first, ..)| *first);
        // Where nothing lies between, another epoch has begun.
        let begin = first.map_or(last.count(), |first| first.count() - 1);
        if begin != after.count() {
            // If that is known to be lost, the other root goes back itself once it knows.
            let is_known = region.layout.is_lost(region.id, after);
            self.notice = Some(Notice::HasLost(after)).filter(|_| !is_known);
            self.taken = Position::new(after.epoch(), begin.min(after.count()));
        }
        if let Some(first) = first.filter(|first| first.epoch() != after.epoch()) {
            return Some((Position(first.0 - 1), Vec::new()));
        }
        let of_epoch = all.partition_point(|(position, ..)| position.epoch() == after.epoch());
        all.truncate(of_epoch.min(limits::CAUSAL_OFFER_WRITES_MAX));
        let upto = all.last().map_or(last, |(position, ..)| *position);
        let places = all.into_iter();
        let is_lost = |id, position| region.layout.is_lost(id, position);
        let places = places
            .filter_map(|(position, site, write)| Bridged::of(position, site, write, is_lost));
        Some((upto, places.collect()))
    }
}

/// What the region states to have of others: what one of its sites that does not answer may be the
/// only one to have is not stated, as the others keep it no more then.
#[derive(Debug, Default)]
struct Stated {
    /// How far the other sites that can be the root have imported the order, by their last reports,
    /// and since when they lack a part of it and do not report.
    sites: BTreeMap<SiteId, (Option<Position>, Duration)>,
    /// All of them that answer have it up to there; `None`: none answers.
    upto: Option<Position>,
    /// What the order had at its last places.
    taken: VecDeque<(Position, Vec<(RegionId, Position)>)>,
}

impl Stated {
    fn reached(&mut self, site: SiteId, applied: Position, now: Duration) {
        if let Some(known) = self.sites.get_mut(&site) {
            *known = (Some(applied), now);
        }
    }

    fn follow(&mut self, now: Duration, state: &impl Durable, region: &Region) {
        let can = &region.layout.can_order;
        self.sites.retain(|site, _| can.contains(site));
        for site in can.iter().filter(|site| **site != region.own) {
            self.sites.entry(*site).or_insert((None, now));
        }
        let (last, trimmed) = (state.order_last(), state.trimmed_upto());
        let mut upto = None;
        for (applied, since) in self.sites.values_mut() {
            if applied.is_some_and(|applied| applied >= last) {
                *since = now;
            }
            // One that gets its keys anew may take long.
            let counts = *since + SILENT > now && applied.is_none_or(|applied| applied >= trimmed);
            if counts {
                let applied = applied.unwrap_or_default();
                upto = Some(upto.map_or(applied, |upto: Position| upto.min(applied)));
            }
        }
        self.upto = upto;
        let is_same = self.taken.back().is_some_and(|(at, _)| *at == last);
        if is_same || self.taken.len() == STATED_MAX {
            self.taken.pop_back();
        }
        self.taken.push_back((last, state.taken_all()));
        while self.taken.get(1).is_some_and(|(at, _)| self.is_safe(*at)) {
            self.taken.pop_front();
        }
    }

    fn is_safe(&self, position: Position) -> bool {
        self.upto.is_none_or(|upto| position <= upto)
    }

    /// What the order had up to a place.
    fn has_upto(&self, upto: Position) -> Vec<(RegionId, Position)> {
        let safe = self.taken.iter().rev().find(|(at, _)| *at <= upto && self.is_safe(*at));
        safe.map(|(_, has)| has.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::simulation::{Store, region, write};
    use super::*;
    use model::{
        CausalWrite, DeploymentId, Effect, KeyspaceId, LostEnd, Mark, Rebuilt, Registry, Revision,
        Stamp,
    };
    use std::sync::Arc;

    const OTHER: RegionId = RegionId(2);
    const ROOT: SiteId = SiteId(9);

    fn beside_another() -> Region {
        let mut region = region(1);
        let mut layout = Layout::clone(&region.layout);
        layout.regions = vec![(OTHER, ROOT)];
        region.layout = Arc::new(layout);
        region
    }

    fn at(count: u64) -> Position {
        Position::new(1, count)
    }

    fn took(upto: Position) -> Result<Answer, Failure> {
        Ok(Answer::Done(Revision(upto.0)))
    }

    fn stamped(revision: u64, taken: Option<(RegionId, Position)>) -> CausalWrite {
        let mut write = write(revision);
        let stamp = Stamp { at_ms: 5, count: revision, region: RegionId(1) };
        write.effects.push(Effect::Mark(Mark::Stamped { stamp, taken }));
        write
    }

    fn sent(steps: &[Step]) -> Vec<(Position, Position, usize)> {
        let of_step = |step: &Step| {
            assert_eq!(step.to, ROOT);
            let CausalCommand::Bridge { epoch: 1, bridge } = &step.command else {
                panic!("{:?}", step.command)
            };
            (bridge.after, bridge.upto, bridge.places.len())
        };
        steps.iter().map(of_step).collect()
    }

    #[test]
    fn the_order_goes_to_another_root_from_where_that_is() {
        let (mut bridge, region, mut store) = (Bridge::default(), beside_another(), Store::of(1));
        store.order(SiteId(3), stamped(7, None));
        store.order(SiteId(8), stamped(4, Some((RegionId(3), Position::new(1, 40)))));
        // One without an effect.
        store.order(SiteId(3), CausalWrite { effects: vec![], ..write(8) });
        let now = Duration::ZERO;
        let asks = bridge.poll(now, &store, &region);
        assert_eq!(sent(&asks), [(at(3), at(3), 0)], "it is asked how far it is");
        assert!(bridge.poll(now, &store, &region).is_empty());
        bridge.answered(asks[0].id, &took(Position(0)), now);
        assert!(bridge.poll(now, &store, &region).is_empty());
        let now = now + GAP_PAUSE;
        assert_eq!(bridge.next_due(Duration::ZERO), Some(now));
        let steps = bridge.poll(now, &store, &region);
        assert_eq!(sent(&steps), [(Position(0), at(0), 0), (at(0), at(3), 2)]);
        bridge.answered(steps[0].id, &took(at(0)), now);
        let CausalCommand::Bridge { bridge: places, .. } = &steps[1].command else { panic!() };
        let (position, seen) = (at(1), Position(0));
        let Bridged::Entry { stamp, site, write, .. } = &places.places[0] else { panic!() };
        assert_eq!((stamp.count, *site, write.seen), (7, SiteId(3), seen));
        assert!(!write.effects.iter().any(Effect::is_mark), "{write:?}");
        assert_eq!((places.places[0].position(), write.revision), (position, Revision(7)));
        let taken =
            Bridged::Taken { position: at(2), region: RegionId(3), upto: Position::new(1, 40) };
        assert_eq!(places.places[1], taken);

        // It lacks what a third region has.
        bridge.answered(steps[1].id, &took(at(1)), now);
        assert_eq!((bridge.notice(), bridge.left(&store)), (None, 2));
        let now = now + GAP_PAUSE;
        let steps = bridge.poll(now, &store, &region);
        assert_eq!(sent(&steps), [(at(1), at(3), 1)]);
        bridge.answered(steps[0].id, &took(at(1)), now);
        let stalls = Some((OTHER, Notice::LacksThird));
        assert_eq!((bridge.notice(), bridge.left(&store)), (stalls, 2));
        assert!(bridge.poll(now + GAP_PAUSE, &store, &region).is_empty(), "the pause doubles");
        let now = now + 2 * GAP_PAUSE;
        let steps = bridge.poll(now, &store, &region);
        assert_eq!(sent(&steps), [(at(1), at(3), 1)]);
        bridge.answered(steps[0].id, &took(at(3)), now);
        assert_eq!((bridge.notice(), bridge.left(&store)), (None, 0));
        assert!(bridge.poll(now, &store, &region).is_empty());
        assert_eq!(bridge.next_due(now), Some(now + AGAIN));
        let idle = bridge.poll(now + AGAIN, &store, &region);
        assert_eq!(sent(&idle), [(at(3), at(3), 0)], "its clock goes on");
        // A failure: it is asked anew.
        let no_leader = Err(Failure::NoLeader);
        bridge.answered(idle[0].id, &no_leader, now + AGAIN);
        assert!(bridge.poll(now + AGAIN, &store, &region).is_empty());
        let asks = bridge.poll(now + AGAIN + PAUSE, &store, &region);
        assert_eq!(sent(&asks), [(at(3), at(3), 0)]);
        bridge.answered(asks[0].id + 7, &took(Position(0)), now);
        bridge.stop();
        assert_eq!(bridge.next_due(now), None);
    }

    #[test]
    fn what_is_not_released_stays() {
        let (mut bridge, mut store) = (Bridge::default(), Store::of(1));
        let region = Region { gate: Some(at(1)), ..beside_another() };
        store.order(SiteId(3), stamped(7, None));
        store.order(SiteId(3), stamped(8, None));
        let asks = bridge.poll(Duration::ZERO, &store, &region);
        assert_eq!(sent(&asks), [(at(1), at(1), 0)]);
        bridge.answered(asks[0].id, &took(Position(0)), Duration::ZERO);
        let steps = bridge.poll(GAP_PAUSE, &store, &region);
        assert_eq!(sent(&steps), [(Position(0), at(0), 0), (at(0), at(1), 1)]);
        let CausalCommand::Bridge { bridge: places, .. } = &steps[1].command else { panic!() };
        assert_eq!(places.clock_ms, 0, "what is behind it may have a lower stamp");
    }

    #[test]
    fn where_an_epoch_begins_is_sent_before_its_first_place() {
        let (mut bridge, region, mut store) = (Bridge::default(), beside_another(), Store::of(1));
        store.order(SiteId(3), stamped(7, None));
        store.order_in(65, SiteId(3), stamped(8, None));
        let (begin, first) = (Position::new(65, 1), Position::new(65, 2));
        for (has, wanted) in [
            (at(1), vec![(at(1), begin, 0), (begin, first, 1)]),
            (at(0), vec![(at(0), at(1), 1), (at(1), begin, 0), (begin, first, 1)]),
        ] {
            let asks = bridge.poll(Duration::ZERO, &store, &region);
            bridge.answered(asks[0].id, &took(has), Duration::ZERO);
            assert_eq!(sent(&bridge.poll(GAP_PAUSE, &store, &region)), wanted);
            bridge.stop();
        }
    }

    /// The order was cut at its second place, and goes on in epoch 9; the other region has taken
    /// more of it, or the order of an epoch that the registry has forgotten.
    #[test]
    fn behind_a_cut_all_goes_to_a_region_that_had_more_and_no_place_is_skipped() {
        for had in [at(2), at(3), at(4), at(50), Position::new(3, 3), Position::new(3, 50)] {
            for ordered in 0..4 {
                let (mut bridge, mut store) = (Bridge::default(), Store::of(1));
                let region = Region { epoch: 9, ..beside_another() };
                let command_of = |step: &Step| match &step.command {
                    CausalCommand::Bridge { bridge, .. } => bridge.clone(),
                    other => panic!("{other:?}"),
                };
                (7..9).for_each(|revision| store.order(SiteId(3), stamped(revision, None)));
                store.begun = Position::new(9, 2);
                (0..ordered).for_each(|more| store.order_in(9, SiteId(3), stamped(9 + more, None)));
                let (mut now, mut has) = (Duration::ZERO, had);
                let mut came = Vec::new();
                for _ in 0..10 {
                    for step in bridge.poll(now, &store, &region) {
                        let Places { after, upto, places, .. } = command_of(&step);
                        if after <= has {
                            let places = places.iter().map(Bridged::position);
                            came.extend(places.filter(|place| *place > has));
                            has = has.max(upto);
                        }
                        bridge.answered(step.id, &took(has), now);
                    }
                    now += GAP_PAUSE;
                }
                let wanted = (0..ordered).map(|more| Position::new(9, 3 + more));
                assert_eq!(came, wanted.collect::<Vec<_>>(), "behind {had}");
                assert_eq!((has, bridge.left(&store)), (store.order_last(), 0));
                let had_more = Some((OTHER, Notice::HasLost(had))).filter(|_| had.count() > 2);
                assert_eq!(bridge.notice(), had_more, "{ordered} behind {had}");
            }
        }
    }

    #[test]
    fn what_is_kept_goes_to_a_region_that_lost_it_and_else_it_is_shown() {
        let (mut store, region) = (Store::of(1), beside_another());
        (7..11).for_each(|revision| store.order(SiteId(3), stamped(revision, None)));
        store.kept_after = Some(at(3));
        let after_ask = |store: &Store, is_cut: bool| {
            let mut bridge = Bridge::default();
            let asks = bridge.poll(Duration::ZERO, store, &region);
            bridge.cursors.get_mut(&OTHER).unwrap().is_cut = is_cut;
            bridge.answered(asks[0].id, &took(at(1)), Duration::ZERO);
            let steps = sent(&bridge.poll(GAP_PAUSE, store, &region));
            (steps, bridge.notice().map(|(_, notice)| notice))
        };
        assert_eq!(after_ask(&store, true), (vec![(at(1), at(4), 3)], None));
        store.trimmed = at(2);
        let skips = vec![(at(1), at(3), 0), (at(3), at(4), 1)];
        assert_eq!(after_ask(&store, false), (skips.clone(), None));
        assert_eq!(after_ask(&store, true), (skips, Some(Notice::MayLack(at(3)))));
        store.kept_after = None;
        assert_eq!(after_ask(&store, true), (vec![], Some(Notice::NotKept)));
    }

    /// Of a third region's order all behind its second place is lost.
    #[test]
    fn what_a_third_region_has_lost_goes_whole() {
        let (mut bridge, mut region, mut store) =
            (Bridge::default(), beside_another(), Store::of(1));
        let mut registry = Registry::empty(DeploymentId(7), 1);
        let end = LostEnd { until: 65, above: at(2) };
        let rebuilt = Some(Rebuilt::of(end));
        registry.regions =
            vec![model::Region { rebuilt, ..model::Region::new(RegionId(3), 65, SiteId(8)) }];
        let registry = Some(Arc::new(registry));
        region.layout = Arc::new(Layout { registry, ..Layout::clone(&region.layout) });
        store.order(SiteId(8), stamped(4, Some((RegionId(3), at(2)))));
        store.order(SiteId(8), stamped(5, Some((RegionId(3), at(3)))));
        let asks = bridge.poll(Duration::ZERO, &store, &region);
        bridge.answered(asks[0].id, &took(at(0)), Duration::ZERO);
        let steps = bridge.poll(GAP_PAUSE, &store, &region);
        let CausalCommand::Bridge { bridge: sent, .. } = &steps[0].command else { panic!() };
        let kept = Bridged::Taken { position: at(1), region: RegionId(3), upto: at(2) };
        assert_eq!(sent.places[0], kept);
        let Bridged::Entry { position, stamp, site, .. } = &sent.places[1] else { panic!() };
        assert_eq!((*position, stamp.count, *site), (at(2), 5, SiteId(8)));
    }

    #[test]
    fn what_a_region_may_lose_is_not_stated() {
        let (mut bridge, region, mut store) = (Bridge::default(), beside_another(), Store::of(1));
        let clock = |taken| {
            let (kept_after, floor) = (Position(0), Stamp::default());
            let clock = Mark::Clock { at_ms: 1, log_ms: 1, kept_after, floor, taken };
            CausalWrite { effects: vec![Effect::Mark(clock)], ..write(9) }
        };
        let taken = vec![(OTHER, Position::new(2, 7))];
        store.order(model::NO_SITE, clock(taken.clone()));
        store.taken.clone_from(&taken);
        let asks = bridge.poll(Duration::ZERO, &store, &region);
        let reached = |bridge: &mut Bridge, site: u32, count: u64, now: Duration| {
            let applied = at(count).0;
            let message = Reached { epoch: 1, applied, taken: applied, again: true, waits: false };
            bridge.reached(SiteId(site), message, now);
        };
        let stated = |bridge: &mut Bridge, store: &Store, now: Duration| {
            let steps = bridge.poll(now, store, &region);
            let CausalCommand::Bridge { bridge: sent, .. } = &steps.last().unwrap().command else {
                panic!()
            };
            let clock = sent.places.iter().find_map(|place| match place {
                Bridged::Clock { has, .. } => Some(has.clone()),
                _ => None,
            });
            bridge.answered(steps.last().unwrap().id, &took(at(0)), now);
            let mut has = sent.has.clone();
            has.retain(|(of, _)| *of == OTHER);
            (clock.unwrap(), has)
        };
        bridge.answered(asks[0].id, &took(at(0)), Duration::ZERO);
        // The other two sites have not reported.
        let mut now = GAP_PAUSE;
        assert_eq!(stated(&mut bridge, &store, now), (vec![], vec![]));
        reached(&mut bridge, 2, 1, now);
        now += Duration::from_secs(1);
        assert_eq!(stated(&mut bridge, &store, now), (vec![], vec![]), "one may be the next root");
        reached(&mut bridge, 3, 1, now);
        now += Duration::from_secs(1);
        assert_eq!(stated(&mut bridge, &store, now), (taken.clone(), taken.clone()));
        // More is ordered, and one site does not answer any more.
        let more = vec![(OTHER, Position::new(2, 9))];
        store.order(model::NO_SITE, clock(more.clone()));
        store.taken.clone_from(&more);
        now += Duration::from_secs(1);
        assert_eq!(stated(&mut bridge, &store, now), (taken.clone(), taken.clone()));
        reached(&mut bridge, 2, 2, now);
        now += SILENT;
        reached(&mut bridge, 2, 2, now);
        assert_eq!(stated(&mut bridge, &store, now), (taken, more));
    }

    #[test]
    fn what_a_key_held_goes_along_when_it_expires() {
        let expire = Effect::Expire { key: "k".into(), site: SiteId(3), revision: Revision(2) };
        let held = Effect::Mark(Mark::Held { stamps: model::KeyStamps::default() });
        let stamp = Stamp { at_ms: 5, count: 1, region: RegionId(1) };
        let effects =
            vec![held.clone(), expire.clone(), Effect::Mark(Mark::Stamped { stamp, taken: None })];
        let (revision, seen, keyspace) = (Revision(1), Position(0), KeyspaceId(1));
        let write = CausalWrite { revision, seen, keyspace, effects };
        let Some(Bridged::Entry { write, .. }) =
            Bridged::of(at(1), model::NO_SITE, write, |_, _| false)
        else {
            panic!("it has an effect")
        };
        assert_eq!(write.effects, [held, expire]);
    }
}
