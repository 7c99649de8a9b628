//! Every run of three sites and one client, within bounds, of which one site holds keys on demand:
//! writes are ordered and imported one by one, keys are fetched and evicted, in any interleaving,
//! while the client writes, reads and moves.
//!
//! What decides is the rule that nodes go by ([`admit`]) and the tokens of the model; the sites are
//! as simple as can be. The root holds all that is ordered. A site that holds a key shows what it
//! has of it, in whatever way it came: the last write that was imported, or what a fetch brought. A
//! read counts all that its site shows, as that of a hash does. In every state in which the client
//! is served, no held key may show what lies before a write in the client's past; and what is held
//! and has no pending write is what the order makes of it up to what the site has imported.

use super::admission::{Admission, Here, NO_OTHERS, admit};
use super::trial::{Bug, Planted};
use model::{CausalToken, Position, RegionId, Revision, SiteId};
use std::collections::{BTreeSet, HashSet, VecDeque};

const SITES: usize = 3;
const KEYS: usize = 2;
/// The site that holds keys on demand.
const C: usize = 2;

/// A write: its site's place, and its number there.
type Id = (usize, usize);

/// A place of the order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Write(Id),
    /// What a key holds, for the site that holds it on demand.
    Fetched(usize, Option<Id>),
}

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Left {
    writes: u8,
    moves: u8,
    reads: u8,
    fetches: u8,
    evictions: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The keys that each site wrote, and the past of each write.
    written: [Vec<(usize, BTreeSet<Id>)>; SITES],
    order: Vec<Entry>,
    own_ordered: [usize; SITES],
    applied: [usize; SITES],
    /// What the site on demand has of each key that it holds.
    held: [Option<Option<Id>>; KEYS],
    at: usize,
    token: CausalToken,
    past: BTreeSet<Id>,
    left: Left,
}

fn position(count: usize) -> Position {
    if count == 0 { Position::default() } else { Position::new(1, count as u64) }
}

impl State {
    fn new(left: Left) -> State {
        State {
            written: Default::default(),
            order: Vec::new(),
            own_ordered: [0; SITES],
            applied: [0; SITES],
            held: [None; KEYS],
            at: C,
            token: CausalToken { region: RegionId(1), ..CausalToken::default() },
            past: BTreeSet::new(),
            left,
        }
    }

    fn here(&self, site: usize) -> Here {
        Here {
            region: RegionId(1),
            others: NO_OTHERS,
            own: SiteId(site as u32 + 1),
            applied: position(self.applied[site]),
            released: position(self.applied[site]),
            revision: Revision(self.written[site].len() as u64),
            rebuilt: None,
            lacks_own: None,
        }
    }

    fn admission(&self) -> Admission {
        admit(&self.token, &self.here(self.at), Planted::none())
    }

    fn key_of(&self, id: Id) -> usize {
        self.written[id.0][id.1].0
    }

    fn position(&self, id: Id) -> Option<usize> {
        self.order.iter().position(|of| *of == Entry::Write(id)).map(|at| at + 1)
    }

    /// The last write to a key among the first so many places.
    fn last_of(&self, key: usize, upto: usize) -> Option<Id> {
        self.order[..upto].iter().rev().find_map(|entry| match entry {
            Entry::Write(id) if self.key_of(*id) == key => Some(*id),
            _ => None,
        })
    }

    fn pending(&self, site: usize, key: usize) -> Option<Id> {
        let pending = (self.own_ordered[site]..self.written[site].len()).rev();
        pending.map(|number| (site, number)).find(|id| self.key_of(*id) == key)
    }

    /// What a key shows at a site; `None`: it is not held.
    fn shown(&self, site: usize, key: usize) -> Option<Option<Id>> {
        let ordered = match site {
            C => self.held[key]?,
            _ => self.last_of(key, self.applied[site]),
        };
        Some(self.pending(site, key).or(ordered))
    }

    /// Whether one write certainly comes before another one in the order.
    fn is_before(&self, one: Option<Id>, other: Id) -> bool {
        let Some(one) = one else { return true };
        match (self.position(one), self.position(other)) {
            (Some(one), Some(other)) => one < other,
            (one_at, None) => one_at.is_some() || (one.0 == other.0 && one.1 < other.1),
            (None, Some(_)) => false,
        }
    }

    fn with_past(&self, past: &mut BTreeSet<Id>, id: Id) {
        past.insert(id);
        past.extend(self.written[id.0][id.1].1.iter().copied());
    }

    fn check(&self) -> Result<(), String> {
        for key in 0..KEYS {
            let expected = self.last_of(key, self.applied[C]);
            if let Some(held) = self.held[key].filter(|held| *held != expected) {
                return Err(format!("key {key} is held as {held:?}, and not {expected:?}"));
            }
        }
        if self.admission() != Admission::Served {
            return Ok(());
        }
        for key in 0..KEYS {
            let Some(shown) = self.shown(self.at, key) else { continue };
            let past = self.past.iter().filter(|id| self.key_of(**id) == key);
            if let Some(newer) = past.into_iter().find(|id| self.is_before(shown, **id)) {
                return Err(format!("key {key} shows {shown:?}, behind {newer:?}"));
            }
        }
        Ok(())
    }

    /// All states that may come next.
    fn next(&self, planted: Planted) -> Vec<State> {
        let mut all = Vec::new();
        for site in 0..SITES {
            self.order_next(site, &mut all);
            self.import_next(site, planted, &mut all);
            (0..KEYS).for_each(|key| self.write_by_others(site, key, &mut all));
            if self.left.moves > 0 && site != self.at {
                let mut next = self.clone();
                (next.at, next.left.moves) = (site, self.left.moves - 1);
                all.push(next);
            }
        }
        for key in 0..KEYS {
            self.fetch(key, planted, &mut all);
            self.evict(key, &mut all);
        }
        self.resolve(&mut all);
        if self.admission() == Admission::Served {
            (0..KEYS).for_each(|key| self.ask(key, &mut all));
        }
        all
    }

    fn order_next(&self, site: usize, all: &mut Vec<State>) {
        let is_of = |entry: &&Entry| matches!(entry, Entry::Write(id) if id.0 == site);
        let number = self.order.iter().filter(is_of).count();
        if number < self.written[site].len() {
            let mut next = self.clone();
            next.order.push(Entry::Write((site, number)));
            all.push(next);
        }
    }

    fn import_next(&self, site: usize, planted: Planted, all: &mut Vec<State>) {
        let Some(entry) = self.order.get(self.applied[site]) else { return };
        let mut next = self.clone();
        next.applied[site] += 1;
        match entry {
            Entry::Write(id) => {
                next.own_ordered[site] += usize::from(id.0 == site);
                let held = &mut next.held[self.key_of(*id)];
                if site == C && held.is_some() && !planted.is(Bug::CoveredFetched) {
                    *held = Some(Some(*id));
                }
            }
            Entry::Fetched(key, found) if site == C => {
                next.held[*key].get_or_insert(*found);
            }
            Entry::Fetched(..) => {}
        }
        all.push(next);
    }

    /// The root orders what a key holds.
    fn fetch(&self, key: usize, planted: Planted, all: &mut Vec<State>) {
        if self.left.fetches == 0 || self.held[key].is_some() {
            return;
        }
        let mut next = self.clone();
        next.left.fetches -= 1;
        let upto =
            if planted.is(Bug::FetchedUnfolded) { self.applied[0] } else { self.order.len() };
        let found = self.last_of(key, upto);
        match planted.is(Bug::FetchedOutside) {
            true => next.held[key] = Some(found),
            false => next.order.push(Entry::Fetched(key, found)),
        }
        all.push(next);
    }

    fn evict(&self, key: usize, all: &mut Vec<State>) {
        let is_pinned = self.pending(C, key).is_some();
        if self.left.evictions > 0 && self.held[key].is_some() && !is_pinned {
            let mut next = self.clone();
            next.left.evictions -= 1;
            next.held[key] = None;
            all.push(next);
        }
    }

    fn write_by_others(&self, site: usize, key: usize, all: &mut Vec<State>) {
        if self.left.writes == 0 || self.shown(site, key).is_none() {
            return;
        }
        let mut past = BTreeSet::new();
        (0..KEYS).for_each(|key| {
            let seen = self.shown(site, key).flatten();
            seen.into_iter().for_each(|id| self.with_past(&mut past, id));
        });
        let mut next = self.clone();
        next.left.writes -= 1;
        next.written[site].push((key, past));
        all.push(next);
    }

    /// The client's site learns the position of what the client wrote elsewhere.
    fn resolve(&self, all: &mut Vec<State>) {
        let Admission::Resolves(question) = self.admission() else { return };
        let Some((site, revision)) = question.written else { return };
        let id = (site.0 as usize - 1, revision.0 as usize - 1);
        let Some(at) = self.position(id) else { return };
        let mut next = self.clone();
        next.token.written = None;
        next.token.sees(position(at));
        all.push(next);
    }

    /// The client reads a key, or writes it, where it is held.
    fn ask(&self, key: usize, all: &mut Vec<State>) {
        let (site, own) = (self.at, SiteId(self.at as u32 + 1));
        let Some(shown) = self.shown(site, key) else { return };
        let mut token = self.token;
        token.written = token.written.filter(|(of, _)| *of == own);
        if self.left.writes > 0 {
            let mut next = State { token, ..self.clone() };
            next.left.writes -= 1;
            next.written[site].push((key, self.past.clone()));
            let number = next.written[site].len();
            next.past.insert((site, number - 1));
            next.token.writes(own, Revision(number as u64));
            all.push(next);
        }
        if self.left.reads > 0 {
            let mut next = State { token, ..self.clone() };
            next.left.reads -= 1;
            next.token.sees(position(self.applied[site]));
            let last = self.written[site].len();
            if last > self.own_ordered[site] {
                next.token.writes(own, Revision(last as u64));
            }
            if let Some(id) = shown {
                let mut past = std::mem::take(&mut next.past);
                next.with_past(&mut past, id);
                next.past = past;
            }
            all.push(next);
        }
    }
}

/// All states within bounds: how many there are, and how deep.
fn explore(left: Left, planted: Planted) -> Result<(usize, u32), String> {
    let first = State::new(left);
    let mut seen = HashSet::from([first.clone()]);
    let mut queue = VecDeque::from([(first, 0)]);
    let mut deepest = 0;
    while let Some((state, depth)) = queue.pop_front() {
        deepest = depth;
        state.check().map_err(|why| format!("{why} at depth {depth}: {state:?}"))?;
        for next in state.next(planted) {
            if seen.insert(next.clone()) {
                queue.push_back((next, depth + 1));
            }
        }
    }
    Ok((seen.len(), deepest))
}

const SMALL: Left = Left { writes: 2, moves: 1, reads: 1, fetches: 1, evictions: 1 };

#[test]
fn no_run_within_the_bounds_shows_what_is_older() {
    let (states, depth) = explore(SMALL, Planted::none()).unwrap_or_else(|why| panic!("{why}"));
    eprintln!("{SMALL:?}: {states} states, depth {depth}");
    assert!(states > 1_000);
}

#[test]
#[ignore = "minutes"]
fn no_run_within_wider_bounds_shows_what_is_older() {
    for left in [
        Left { writes: 3, moves: 1, reads: 2, fetches: 1, evictions: 1 },
        Left { writes: 2, moves: 1, reads: 2, fetches: 3, evictions: 2 },
    ] {
        let found = explore(left, Planted::none());
        eprintln!("{left:?}: {:?}", found.unwrap_or_else(|why| panic!("{why}")));
    }
}

#[test]
#[cfg(feature = "trial")]
fn each_planted_bug_of_a_fetch_is_found() {
    for bug in [Bug::FetchedOutside, Bug::FetchedUnfolded, Bug::CoveredFetched] {
        let found = explore(SMALL, Planted::of(bug)).err();
        eprintln!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
