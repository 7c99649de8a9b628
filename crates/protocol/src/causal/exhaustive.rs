//! Every run of three sites and one client, within bounds: writes are ordered and imported one by
//! one, in any interleaving, while the client writes, reads and moves.
//!
//! What decides is the rule that nodes go by ([`admit`]) and the tokens of the model; the sites are
//! as simple as can be. A write by others depends on all that its site shows, the strongest past
//! there can be. In every state in which the client is served, no key may show what lies before a
//! write in the client's past; and no write may get its position before its causes.

use super::admission::{Admission, Here, NO_OTHERS, admit, resolve_here};
use super::trial::{Bug, Planted};
use model::{CausalToken, Position, RegionId, Revision, SiteId};
use std::collections::{BTreeSet, HashSet, VecDeque};

const SITES: usize = 3;
const KEYS: u8 = 2;

/// A write: its site's place, and its number there.
type Id = (usize, usize);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The keys that each site wrote, and the past of each write.
    written: [Vec<(u8, BTreeSet<Id>)>; SITES],
    order: Vec<Id>,
    /// How many of its own writes each site has imported; how much of the order.
    own_ordered: [usize; SITES],
    applied: [usize; SITES],
    at: usize,
    token: CausalToken,
    past: BTreeSet<Id>,
    writes: u8,
    moves: u8,
    reads: u8,
}

impl State {
    fn new((writes, moves, reads): (u8, u8, u8)) -> State {
        State {
            written: Default::default(),
            order: Vec::new(),
            own_ordered: [0; SITES],
            applied: [0; SITES],
            at: 0,
            token: CausalToken { region: RegionId(1), ..CausalToken::default() },
            past: BTreeSet::new(),
            writes,
            moves,
            reads,
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

    fn position(&self, id: Id) -> Option<usize> {
        self.order.iter().position(|of| *of == id).map(|at| at + 1)
    }

    /// What a key shows at a site.
    fn shown(&self, site: usize, key: u8) -> Option<Id> {
        let pending = (self.own_ordered[site]..self.written[site].len()).rev();
        let mut pending = pending.map(|number| (site, number));
        let of_key = |id: &Id| self.written[id.0][id.1].0 == key;
        let ordered = self.order[..self.applied[site]].iter().copied();
        pending.find(of_key).or_else(|| ordered.rev().find(of_key))
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

    fn check_reads(&self, planted: Planted) -> Result<(), String> {
        if admit(&self.token, &self.here(self.at), planted) != Admission::Served {
            return Ok(());
        }
        for key in 0..KEYS {
            let shown = self.shown(self.at, key);
            let past = self.past.iter().filter(|id| self.written[id.0][id.1].0 == key);
            if let Some(newer) = past.into_iter().find(|id| self.is_before(shown, **id)) {
                return Err(format!("key {key} shows {shown:?}, behind {newer:?}"));
            }
        }
        Ok(())
    }

    /// All states that may come next.
    fn next(&self, planted: Planted) -> Result<Vec<State>, String> {
        let mut all = Vec::new();
        for site in 0..SITES {
            self.order_next(site, planted, &mut all)?;
            self.import_next(site, &mut all);
            for key in 0..KEYS {
                self.write_by_others(site, key, &mut all);
            }
            if self.moves > 0 && site != self.at {
                all.push(State { at: site, moves: self.moves - 1, ..self.clone() });
            }
        }
        self.resolve(planted, &mut all);
        if admit(&self.token, &self.here(self.at), planted) == Admission::Served {
            (0..KEYS).for_each(|key| self.ask(key, planted, &mut all));
        }
        Ok(all)
    }

    /// The root orders a write of a site: the next one, or any if offers are not chained.
    fn order_next(
        &self,
        site: usize,
        planted: Planted,
        all: &mut Vec<State>,
    ) -> Result<(), String> {
        let ordered = self.order.iter().filter(|id| id.0 == site);
        let first = ordered.map(|id| id.1 + 1).max().unwrap_or(0);
        let last =
            if planted.is(Bug::OffersUnchained) { self.written[site].len() } else { first + 1 };
        for number in first..last.min(self.written[site].len()) {
            let (_, past) = &self.written[site][number];
            if let Some(cause) = past.iter().find(|cause| self.position(**cause).is_none()) {
                return Err(format!("{:?} is ordered before {cause:?}", (site, number)));
            }
            let mut next = self.clone();
            next.order.push((site, number));
            all.push(next);
        }
        Ok(())
    }

    fn import_next(&self, site: usize, all: &mut Vec<State>) {
        let Some(id) = self.order.get(self.applied[site]) else { return };
        let mut next = self.clone();
        next.applied[site] += 1;
        next.own_ordered[site] += usize::from(id.0 == site);
        all.push(next);
    }

    fn write_by_others(&self, site: usize, key: u8, all: &mut Vec<State>) {
        if self.writes == 0 {
            return;
        }
        let mut past = BTreeSet::new();
        let ids = self.order[..self.applied[site]].iter().copied();
        let pending = (self.own_ordered[site]..self.written[site].len()).map(|one| (site, one));
        ids.chain(pending).for_each(|id| self.with_past(&mut past, id));
        let mut next = State { writes: self.writes - 1, ..self.clone() };
        next.written[site].push((key, past));
        all.push(next);
    }

    /// The client's site learns the position of what the client wrote elsewhere.
    fn resolve(&self, planted: Planted, all: &mut Vec<State>) {
        let admission = admit(&self.token, &self.here(self.at), planted);
        let Admission::Resolves(question) = admission else { return };
        let Some((site, revision)) = question.written else { return };
        let imported = &self.order[..self.applied[self.at]];
        let ordered_of = |site: SiteId| {
            let last = imported.iter().rposition(|id| SiteId(id.0 as u32 + 1) == site)?;
            Some((Revision(imported[last].1 as u64 + 1), position(last + 1)))
        };
        let mut next = self.clone();
        resolve_here(&mut next.token, &self.here(self.at), &ordered_of);
        if next.token != self.token {
            all.push(next);
        }
        let site = site.0 as usize - 1;
        let ordered = self.order.iter().filter(|id| id.0 == site);
        let Some(last) = ordered.map(|id| id.1).max() else { return };
        if last as u64 + 1 < revision.0 && !planted.is(Bug::ResolvedEarly) {
            return;
        }
        let mut next = self.clone();
        next.token.written = None;
        next.token.sees(position(self.position((site, last)).unwrap_or(0)));
        all.push(next);
    }

    /// The client reads a key, or writes it.
    fn ask(&self, key: u8, planted: Planted, all: &mut Vec<State>) {
        let (site, own) = (self.at, SiteId(self.at as u32 + 1));
        let mut token = self.token;
        token.written = token.written.filter(|(of, _)| *of == own);
        if self.writes > 0 {
            let mut next = State { writes: self.writes - 1, token, ..self.clone() };
            next.written[site].push((key, self.past.clone()));
            let number = next.written[site].len();
            next.past.insert((site, number - 1));
            next.token.writes(own, Revision(number as u64));
            all.push(next);
        }
        if self.reads > 0 {
            let shown = self.shown(site, key);
            let mut next = State { reads: self.reads - 1, token, ..self.clone() };
            match shown {
                Some(id) if id.0 == site && id.1 >= self.own_ordered[site] => {
                    next.token.writes(own, Revision(id.1 as u64 + 1));
                }
                Some(id) if id.0 != site => {
                    next.token.sees(position(self.position(id).unwrap_or(0)));
                }
                // Its own by the time it was ordered, or nothing: all that is shown.
                _ => {
                    next.token.sees(position(self.applied[site]));
                    let last = self.written[site].len();
                    if shown.is_none() && last > self.own_ordered[site] {
                        next.token.writes(own, Revision(last as u64));
                    }
                }
            }
            if let Some(id) = shown {
                let mut past = std::mem::take(&mut next.past);
                next.with_past(&mut past, id);
                next.past = past;
            }
            if planted.is(Bug::ReadsUnmerged) {
                next.token = token;
            }
            all.push(next);
        }
    }
}

fn position(count: usize) -> Position {
    if count == 0 { Position::default() } else { Position::new(1, count as u64) }
}

/// All states within so many writes, moves and reads: how many there are, and how deep.
fn explore(bounds: (u8, u8, u8), planted: Planted) -> Result<(usize, u32), String> {
    let first = State::new(bounds);
    let mut seen = HashSet::from([first.clone()]);
    let mut queue = VecDeque::from([(first, 0)]);
    let mut deepest = 0;
    while let Some((state, depth)) = queue.pop_front() {
        deepest = depth;
        state.check_reads(planted).map_err(|why| format!("{why} at depth {depth}: {state:?}"))?;
        for next in state.next(planted)? {
            if seen.insert(next.clone()) {
                queue.push_back((next, depth + 1));
            }
        }
    }
    Ok((seen.len(), deepest))
}

#[test]
fn no_run_within_the_bounds_shows_what_is_older() {
    for bounds in [(2, 2, 1), (2, 1, 2)] {
        let found = explore(bounds, Planted::none());
        let (states, depth) = found.unwrap_or_else(|why| panic!("{bounds:?}: {why}"));
        eprintln!("{bounds:?}: {states} states, depth {depth}");
        assert!(states > 1_000);
    }
}

#[test]
#[ignore = "minutes"]
fn no_run_within_wider_bounds_shows_what_is_older() {
    let found = explore((3, 2, 1), Planted::none());
    eprintln!("{:?}", found.unwrap_or_else(|why| panic!("{why}")));
}

#[test]
#[cfg(feature = "trial")]
fn each_planted_bug_of_the_rules_is_found() {
    for bug in [
        Bug::WrittenIgnored,
        Bug::SeenIgnored,
        Bug::OffersUnchained,
        Bug::ResolvedEarly,
        Bug::ReadsUnmerged,
    ] {
        let found = [(2, 2, 1), (2, 1, 2), (3, 2, 1)]
            .into_iter()
            .find_map(|bounds| explore(bounds, Planted::of(bug)).err());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
