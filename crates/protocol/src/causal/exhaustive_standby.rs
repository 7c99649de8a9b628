//! Every run of a root, its standby, another site and one client, within bounds: the root goes on
//! without its standby, the standby takes over, changes of the registry come late and in any order,
//! and the old root goes on or comes back.
//!
//! What decides is what nodes go by: the changes of a region ([`model::Region::synced`],
//! [`model::Region::taken_over`]), what a root releases and when a standby is frozen, and the rule
//! by which sessions are admitted ([`admit`]). The sites are as simple as can be, and there is one
//! key. A site asks the registry whenever it may, not only when it has waited; so no run depends on
//! how long that is.
//!
//! In every state nothing that a session has seen lies behind the end that the standby goes on
//! from, and no session in which the client is served sees less than it has seen.

use super::admission::{Admission, Here, NO_OTHERS, admit, resolve_here};
use super::trial::Planted;
use model::{
    Ballot, CausalToken, Position, Region, RegionId, Revision, SiteId, Standby, StandbyChoice,
    StandbyRule,
};
use std::collections::{BTreeSet, HashSet, VecDeque};

const ROOT: usize = 0;
const STANDBY: usize = 1;
const SITES: usize = 3;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    ReleasedEarly,
    FrozenImports,
    UnfrozenEarly,
    InSyncEarly,
    Unversioned,
    OutOfSync,
    ResolvedUnreleased,
}

const BUGS: [Bug; 7] = [
    Bug::ReleasedEarly,
    Bug::FrozenImports,
    Bug::UnfrozenEarly,
    Bug::InSyncEarly,
    Bug::Unversioned,
    Bug::OutOfSync,
    Bug::ResolvedUnreleased,
];

/// How many writes, moves and reads there are, and versions of the registry beside the first.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    writes: u8,
    moves: u8,
    reads: u8,
    versions: u8,
    in_sync: bool,
}

/// A change of the registry that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Change {
    Sync(Ballot, bool),
    TakeOver(Ballot, Position),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Site {
    /// What it has of the registry.
    region: Region,
    /// What it has imported, and where that ends.
    imported: Vec<u8>,
    applied: Position,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The site of each write, and its past.
    written: Vec<(u8, u8)>,
    registry: Region,
    versions: u8,
    asked: BTreeSet<Change>,
    sites: [Site; SITES],
    /// The order of the root, and that of the standby once it is the root.
    orders: [Vec<u8>; 2],
    /// The root: under which version it holds, since which end of its order; what it has from the
    /// standby; how much it has sent.
    held: Option<Ballot>,
    held_from: usize,
    acknowledged: usize,
    sent: usize,
    frozen: Option<Ballot>,
    at: usize,
    token: CausalToken,
    past: u8,
    left: (u8, u8, u8),
}

fn id(site: usize) -> SiteId {
    SiteId(site as u32 + 1)
}

fn bit(write: u8) -> u8 {
    1 << write
}

impl State {
    fn new(bounds: Bounds) -> State {
        let since = Ballot { round: 1, ..Ballot::FIRST };
        let standby = Standby { site: id(STANDBY), in_sync: bounds.in_sync, since };
        let standby_rule = StandbyRule { choice: StandbyChoice::At(id(STANDBY)), by_hand: false };
        let region = Region {
            standby: Some(standby),
            standby_rule,
            ..Region::new(RegionId(1), 1, id(ROOT))
        };
        let site = Site { region, imported: Vec::new(), applied: Position::default() };
        State {
            written: Vec::new(),
            registry: region,
            versions: bounds.versions,
            asked: BTreeSet::new(),
            sites: [site.clone(), site.clone(), site],
            orders: Default::default(),
            held: bounds.in_sync.then_some(since),
            held_from: 0,
            acknowledged: 0,
            sent: 0,
            frozen: None,
            at: ROOT,
            token: CausalToken { region: RegionId(1), ..CausalToken::default() },
            past: 0,
            left: (bounds.writes, bounds.moves, bounds.reads),
        }
    }

    /// The site that orders, as a site has recorded: if it has no other one.
    fn root_of(&self, site: usize) -> Option<usize> {
        let region = &self.sites[site].region;
        let root = [ROOT, STANDBY].into_iter().find(|root| id(*root) == region.root)?;
        let has_begun =
            root == ROOT || region.begin().is_some_and(|at| self.sites[root].applied >= at);
        (self.sites[root].region.epoch == region.epoch && has_begun).then_some(root)
    }

    fn own(&self, site: usize) -> impl Iterator<Item = u8> + '_ {
        let of = move |write: &u8| usize::from(self.written[usize::from(*write)].0) == site;
        (0..self.written.len() as u8).filter(of)
    }

    fn revision(&self, write: u8) -> Revision {
        let site = usize::from(self.written[usize::from(write)].0);
        Revision(self.own(site).position(|own| own == write).expect("it is there") as u64 + 1)
    }

    /// The position of a place of an order, by its count.
    fn position(&self, root: usize, count: usize) -> Position {
        let count = count as u64;
        let cut = self.sites[STANDBY].region.cut.filter(|_| root == STANDBY);
        match cut {
            _ if count == 0 => Position::default(),
            Some(cut) if count > cut.count() => {
                Position::new(self.sites[STANDBY].region.epoch, count)
            }
            _ => Position::new(1, count),
        }
    }

    fn pending(&self, site: usize) -> impl Iterator<Item = u8> + '_ {
        let imported = &self.sites[site].imported;
        self.own(site).filter(|write| !imported.contains(write))
    }

    fn shown(&self, site: usize) -> Option<u8> {
        self.pending(site).last().or_else(|| self.sites[site].imported.last().copied())
    }

    /// How much of its order a root releases.
    fn released(&self, root: usize, bug: Option<Bug>) -> usize {
        let last = self.orders[root].len();
        let holds = root == ROOT && self.sites[ROOT].region.holds(self.held);
        if !holds || bug == Some(Bug::ReleasedEarly) {
            return last;
        }
        last.min(self.acknowledged.max(self.sites[ROOT].imported.len()))
    }

    fn here(&self, site: usize) -> Here {
        Here {
            region: RegionId(1),
            others: NO_OTHERS,
            own: id(site),
            applied: self.sites[site].applied,
            released: self.sites[site].applied,
            revision: Revision(self.own(site).count() as u64),
            rebuilt: None,
            lacks_own: None,
        }
    }

    /// The order that counts.
    fn order(&self) -> &[u8] {
        match (self.registry.epoch, self.orders[STANDBY].is_empty()) {
            (1, _) => &self.orders[ROOT],
            (_, true) => &self.sites[STANDBY].imported,
            _ => &self.orders[STANDBY],
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(cut) = self.registry.cut {
            let end = cut.count() as usize;
            let seen = [ROOT, 2].map(|site| &self.sites[site]);
            let seen = seen.iter().filter(|site| site.applied.epoch() <= 1);
            let is_behind = seen.map(|site| site.imported.len()).any(|count| count > end);
            let is_lost = self.token.seen.epoch() == 1 && self.token.seen > cut;
            if is_behind || is_lost {
                return Err(format!("what was released lies behind {cut}"));
            }
        }
        if admit(&self.token, &self.here(self.at), Planted::none()) != Admission::Served {
            return Ok(());
        }
        let (order, shown) = (self.order(), self.shown(self.at));
        let place = |write: u8| order.iter().position(|of| *of == write);
        for write in (0..self.written.len() as u8).filter(|write| self.past & bit(*write) != 0) {
            let is_behind = match shown {
                None => true,
                Some(shown) => match (place(shown), place(write)) {
                    (Some(shown), Some(write)) => shown < write,
                    (Some(_), None) => true,
                    (None, Some(_)) => false,
                    (None, None) => {
                        let same = self.written[usize::from(shown)].0
                            == self.written[usize::from(write)].0;
                        same && shown < write
                    }
                },
            };
            if is_behind {
                return Err(format!("{shown:?} is shown after {write}"));
            }
        }
        Ok(())
    }

    fn next(&self, bug: Option<Bug>) -> Result<Vec<State>, String> {
        let mut all = Vec::new();
        for site in 0..SITES {
            self.order_next(site, &mut all)?;
            self.import_next(site, bug, &mut all);
            self.write(site, None, &mut all);
            self.learn(site, &mut all);
            if self.left.1 > 0 && site != self.at {
                let left = (self.left.0, self.left.1 - 1, self.left.2);
                all.push(State { at: site, left, ..self.clone() });
            }
        }
        self.root_steps(bug, &mut all);
        self.standby_steps(bug, &mut all);
        self.registry_steps(bug, &mut all);
        self.client_steps(bug, &mut all);
        Ok(all)
    }

    /// A root orders the next write of a site.
    fn order_next(&self, site: usize, all: &mut Vec<State>) -> Result<(), String> {
        let Some(root) = self.root_of(site) else { return Ok(()) };
        let order = &self.orders[root];
        let Some(write) = self.own(site).find(|write| !order.contains(write)) else {
            return Ok(());
        };
        let (_, past) = self.written[usize::from(write)];
        let is_there = |cause: u8| past & bit(cause) == 0 || order.contains(&cause);
        if let Some(cause) = (0..write).find(|cause| !is_there(*cause)) {
            return Err(format!("{write} is ordered before {cause}"));
        }
        let mut next = self.clone();
        next.orders[root].push(write);
        all.push(next);
        Ok(())
    }

    fn import_next(&self, site: usize, bug: Option<Bug>, all: &mut Vec<State>) {
        let Some(root) = self.root_of(site) else { return };
        let here = &self.sites[site];
        let has = here.imported.len();
        if root == STANDBY {
            // What is not at the beginning of its epoch gets its keys anew.
            let begin = here.region.begin().expect("it has begun");
            let mut next = self.clone();
            next.sites[site].imported = match here.applied >= begin {
                true if has == self.orders[STANDBY].len() => return,
                true => self.orders[STANDBY][..has + 1].to_vec(),
                false => self.orders[STANDBY].clone(),
            };
            let upto = self.position(STANDBY, next.sites[site].imported.len());
            next.sites[site].applied = upto.max(begin);
            all.push(next);
            return;
        }
        let is_frozen = here.region.is_frozen(id(site), self.frozen);
        let last = match site {
            ROOT => self.released(ROOT, bug),
            STANDBY if is_frozen && bug != Some(Bug::FrozenImports) => has,
            STANDBY => self.orders[ROOT].len(),
            _ => self.sent.max(self.released(ROOT, bug)),
        };
        if has < last {
            let mut next = self.clone();
            next.sites[site].imported.push(self.orders[ROOT][has]);
            next.sites[site].applied = Position::new(1, has as u64 + 1);
            next.sent = if site == 2 { last } else { self.sent };
            all.push(next);
        }
    }

    /// A write of a site, which depends on all that it shows, or of the client's past.
    fn write(&self, site: usize, past: Option<u8>, all: &mut Vec<State>) -> Option<u8> {
        if self.left.0 == 0 {
            return None;
        }
        let with_past =
            |past: u8, write: u8| past | bit(write) | self.written[usize::from(write)].1;
        let shown = self.sites[site].imported.iter().copied().chain(self.pending(site));
        let past = past.unwrap_or_else(|| shown.fold(0, with_past));
        let mut next = self.clone();
        next.left.0 -= 1;
        next.written.push((site as u8, past));
        all.push(next);
        Some(self.written.len() as u8)
    }

    fn learn(&self, site: usize, all: &mut Vec<State>) {
        if self.sites[site].region == self.registry {
            return;
        }
        let mut next = self.clone();
        let here = &mut next.sites[site];
        here.region = self.registry;
        if let (Some(cut), Some(begin)) = (here.region.cut, here.region.begin()) {
            let knows_more = site == ROOT && self.orders[ROOT].len() as u64 > cut.count();
            if here.applied == cut && !knows_more {
                here.applied = begin;
                if site == STANDBY {
                    next.orders[STANDBY] = next.sites[STANDBY].imported.clone();
                }
            }
        }
        all.push(next);
    }

    fn ask(&self, change: Change, all: &mut Vec<State>) {
        if !self.asked.contains(&change) {
            let mut next = self.clone();
            next.asked.insert(change);
            all.push(next);
        }
    }

    fn root_steps(&self, bug: Option<Bug>, all: &mut Vec<State>) {
        let region = &self.sites[ROOT].region;
        let (1, Some(standby)) = (region.epoch, region.standby) else { return };
        // What was released before leaves later, too.
        let released = self.released(ROOT, bug);
        if self.sent < released {
            all.push(State { sent: released, ..self.clone() });
        }
        let has = self.sites[STANDBY].imported.len().min(self.orders[ROOT].len());
        let speaks = self.sites[STANDBY].region.epoch == 1;
        if self.acknowledged < has && speaks {
            all.push(State { acknowledged: has, ..self.clone() });
        }
        if !standby.in_sync && self.held != Some(standby.since) {
            let (held, held_from) = (Some(standby.since), self.orders[ROOT].len());
            all.push(State { held, held_from, ..self.clone() });
        }
        let is_there = self.acknowledged >= self.held_from || bug == Some(Bug::InSyncEarly);
        if !standby.in_sync && self.held == Some(standby.since) && is_there {
            self.ask(Change::Sync(standby.since, true), all);
        }
        if region.holds(self.held) {
            self.ask(Change::Sync(standby.since, false), all);
        }
    }

    fn standby_steps(&self, bug: Option<Bug>, all: &mut Vec<State>) {
        let region = &self.sites[STANDBY].region;
        let (1, Some(standby)) = (region.epoch, region.standby) else { return };
        if region.is_frozen(id(STANDBY), self.frozen) {
            self.ask(Change::TakeOver(standby.since, self.sites[STANDBY].applied), all);
            if bug == Some(Bug::UnfrozenEarly) {
                all.push(State { frozen: None, ..self.clone() });
            }
        } else if standby.in_sync || bug == Some(Bug::OutOfSync) {
            all.push(State { frozen: Some(standby.since), ..self.clone() });
        }
    }

    /// The registry takes one of the changes that were asked for, whenever that was.
    fn registry_steps(&self, bug: Option<Bug>, all: &mut Vec<State>) {
        if self.versions == 0 {
            return;
        }
        let mut registry = self.registry;
        let Some(standby) = registry.standby.as_mut() else { return };
        standby.in_sync |= bug == Some(Bug::OutOfSync);
        let (present, version) = (standby.since, standby.since.round + 1);
        let version = Ballot { round: version, ..Ballot::FIRST };
        for change in &self.asked {
            let named = |since: Ballot| if bug == Some(Bug::Unversioned) { present } else { since };
            let changed = match change {
                Change::Sync(since, in_sync) => {
                    registry.synced((1, named(*since)), *in_sync, version)
                }
                Change::TakeOver(since, cut) => {
                    registry.taken_over((1, named(*since)), *cut, version)
                }
            };
            if let Some(changed) = changed {
                let mut next =
                    State { registry: changed, versions: self.versions - 1, ..self.clone() };
                next.asked.remove(change);
                all.push(next);
            }
        }
    }

    /// The client's site has imported what the client wrote elsewhere.
    fn resolve_here(&self, all: &mut Vec<State>) {
        let at = self.at;
        let ordered_of = |site: SiteId| {
            let imported = &self.sites[at].imported;
            let is_of = |write: &u8| id(self.written[usize::from(*write)].0.into()) == site;
            let last = imported.iter().rposition(is_of)?;
            let root = if self.sites[at].applied.epoch() == 1 { ROOT } else { STANDBY };
            Some((self.revision(imported[last]), self.position(root, last + 1)))
        };
        let mut next = self.clone();
        resolve_here(&mut next.token, &self.here(at), &ordered_of);
        if next.token != self.token {
            all.push(next);
        }
    }

    fn client_steps(&self, bug: Option<Bug>, all: &mut Vec<State>) {
        let at = self.at;
        match admit(&self.token, &self.here(at), Planted::none()) {
            Admission::Resolves(question) => {
                self.resolve_here(all);
                let Some((site, revision)) = question.written else { return };
                let Some(root) = self.root_of(at) else { return };
                let site = site.0 as usize - 1;
                let is_it = |write: &u8| usize::from(self.written[usize::from(*write)].0) == site;
                let Some(last) = self.orders[root].iter().rposition(is_it) else { return };
                let is_there = self.revision(self.orders[root][last]) >= revision;
                // Any node of the root answers, by what its site has imported while it holds.
                let holds = root == ROOT && self.sites[ROOT].region.holds(self.held);
                let is_released = !holds || last < self.sites[ROOT].imported.len();
                if is_there && (is_released || bug == Some(Bug::ResolvedUnreleased)) {
                    let mut next = self.clone();
                    next.token.written = None;
                    next.token.sees(self.position(root, last + 1));
                    all.push(next);
                }
            }
            Admission::Served => {
                let mut token = self.token;
                token.written = token.written.filter(|(site, _)| *site == id(at));
                let from = all.len();
                if let Some(write) = self.write(at, Some(self.past), all) {
                    let next = &mut all[from];
                    next.token = token;
                    next.token.writes(id(at), next.revision(write));
                    next.past |= bit(write);
                }
                if self.left.2 > 0 {
                    all.push(self.read(token));
                }
            }
            _ => {}
        }
    }

    fn read(&self, token: CausalToken) -> State {
        let (at, here) = (self.at, &self.sites[self.at]);
        let mut next =
            State { token, left: (self.left.0, self.left.1, self.left.2 - 1), ..self.clone() };
        let shown = self.shown(at);
        let is_pending = shown.is_some_and(|shown| self.pending(at).any(|write| write == shown));
        match shown {
            Some(shown) if is_pending => next.token.writes(id(at), self.revision(shown)),
            Some(shown) if usize::from(self.written[usize::from(shown)].0) != at => {
                let count =
                    here.imported.iter().position(|of| *of == shown).expect("it is there") + 1;
                let root = if here.applied.epoch() > 1 { STANDBY } else { ROOT };
                next.token.sees(self.position(root, count));
            }
            _ => next.token.sees(here.applied),
        }
        if let Some(shown) = shown {
            next.past |= bit(shown) | self.written[usize::from(shown)].1;
        }
        next
    }
}

/// All states within these bounds and so many steps: how many there are, and how deep.
fn explore(bounds: Bounds, steps: u32, bug: Option<Bug>) -> Result<(usize, u32), String> {
    let first = State::new(bounds);
    let mut seen = HashSet::from([first.clone()]);
    let mut queue = VecDeque::from([(first, 0)]);
    let mut deepest = 0;
    while let Some((state, depth)) = queue.pop_front() {
        deepest = depth;
        state.check().map_err(|why| format!("{why} at depth {depth}: {state:?}"))?;
        if depth == steps {
            continue;
        }
        for next in state.next(bug).map_err(|why| format!("{why} at depth {depth}"))? {
            if seen.insert(next.clone()) {
                queue.push_back((next, depth + 1));
            }
        }
    }
    Ok((seen.len(), deepest))
}

const IN_SYNC: Bounds = Bounds { writes: 1, moves: 1, reads: 1, versions: 2, in_sync: true };
const CHANGES: Bounds = Bounds { writes: 1, moves: 1, reads: 1, versions: 4, in_sync: false };

#[test]
fn nothing_that_was_released_is_lost_within_the_bounds() {
    for (bounds, steps) in [(IN_SYNC, 12), (CHANGES, 11)] {
        let found = explore(bounds, steps, None);
        let (states, depth) = found.unwrap_or_else(|why| panic!("{bounds:?}: {why}"));
        eprintln!("{bounds:?}: {states} states, depth {depth}");
        assert!(states > 1_000);
    }
}

#[test]
#[ignore = "minutes"]
fn nothing_that_was_released_is_lost_within_wider_bounds() {
    let wider = Bounds { writes: 2, ..IN_SYNC };
    for (bounds, steps) in [(IN_SYNC, 60), (CHANGES, 18), (wider, 16)] {
        let found = explore(bounds, steps, None);
        eprintln!("{bounds:?}: {:?}", found.unwrap_or_else(|why| panic!("{why}")));
    }
}

#[test]
fn each_bug_is_found() {
    for bug in BUGS {
        let bounds = match bug {
            Bug::ResolvedUnreleased => Bounds { versions: 1, ..IN_SYNC },
            _ => Bounds { moves: 0, reads: 0, versions: 3, ..IN_SYNC },
        };
        let found = explore(bounds, 20, Some(bug)).err();
        eprintln!("{bug:?}: {}", found.as_deref().unwrap_or("not found"));
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
