//! Every step that can come next.
//!
//! Being away is taking no step. Installs are kept for ever and come at any time, late or again;
//! every other message brings a fact that stays true.

use super::scene::{
    Chain, Global, Install, Registry, SITES_MAX, Safe, Scene, Site, bit, has, id, place,
};
use super::search::{Explore, Fast, hash};
use model::{Ballot, Epoch, Failovers, OpenFailover, SiteId, SlotCopy, Tag};
use protocol::global::ownership::trial::{Bug, Planted};
use protocol::global::ownership::{Holding, Records, Token, leaving};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::rc::Rc;

const INSTALLS_MAX: usize = 4;
/// Added to a step's first number in a term that a recovery has ended.
pub(crate) const OF_ENDED: usize = 16;

/// How far the search goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) sites: usize,
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) failovers: u8,
    pub(crate) backups: u8,
    pub(crate) leaves: u8,
    pub(crate) recoveries: u8,
    /// Lost sites that are removed. Without any, sites that are lost are not parted from others for
    /// longer than their failover: fewer steps are ruled out, and no return needs to be reported.
    pub(crate) removals: u8,
}

/// A state: numbers of sites, installs and what no site has. 0: none.
pub(crate) type State = [u32; SITES_MAX + INSTALLS_MAX + 1];

/// Values and their numbers, from 1.
struct Table<T>(Vec<Rc<T>>, HashMap<Rc<T>, u32, Fast>);

impl<T: Hash + Eq> Table<T> {
    fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.1.get(&value) {
            return *number;
        }
        let value = Rc::new(value);
        self.0.push(value.clone());
        self.1.insert(value, self.0.len() as u32);
        self.0.len() as u32
    }

    fn value(&self, number: u32) -> &T {
        &self.0[number as usize - 1]
    }
}

/// Steps that have a site, or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Write,
    Learn,
    Hear,
    Freeze,
    Refuse,
    Resume,
    Release,
    Install,
    Sync,
    Safe,
    EndFormer,
    HandOn,
    Drop,
    Leave,
    Remove,
    Return,
    Backup,
    Suspend,
    Close,
    Inventory,
    Decide,
    Forget,
    LateFence,
    Reclaim,
    Recover,
    RecoverAccepted,
    HandIn,
}

pub(crate) struct World {
    pub(crate) bounds: Bounds,
    pub(crate) planted: Planted,
    sites: Table<Site>,
    globals: Table<Global>,
    installs: Table<Install>,
    names: HashMap<(Verb, u8, u8), &'static str, Fast>,
    /// A trial: what sites have of an ended term of the registry is dropped.
    pub(crate) hands_in_nothing: bool,
    /// Whether states that come to the same are brought into one form.
    pub(crate) settles: bool,
    /// The forms of all states that were looked at, if they are wanted.
    pub(crate) forms: Option<HashSet<State, Fast>>,
}

impl World {
    pub(crate) fn new(bounds: Bounds, planted: Planted) -> World {
        let table = || Table(Vec::new(), HashMap::default());
        World {
            bounds,
            planted,
            sites: table(),
            globals: Table(Vec::new(), HashMap::default()),
            installs: Table(Vec::new(), HashMap::default()),
            names: HashMap::default(),
            hands_in_nothing: false,
            settles: true,
            forms: None,
        }
    }

    /// The first site owns the slot, and the second has its mirror.
    pub(crate) fn begin(&mut self) -> State {
        let first = Epoch::counted(1);
        let mut backups = [0; SITES_MAX];
        (0..self.bounds.sites).for_each(|at| backups[at] = ((at + 1) % self.bounds.sites) as u8);
        let version = Ballot { round: 1, ..Ballot::FIRST };
        let failovers = Failovers::default();
        let registry = Rc::new(Registry {
            version,
            failovers,
            backups,
            left: 0,
            base: None,
            brought: Vec::new(),
        });
        let site = |at: usize| {
            let token = match at {
                0 => Token::Held(first),
                _ => Token::Gone { epoch: first, to: id(0) },
            };
            let tag = Tag { epoch: first, generation: 0 };
            let copy = SlotCopy { tag, origin: id(0), position: 0 };
            Site {
                registry: registry.of(at),
                holding: Holding { token, copy: (at == 1).then_some(copy) },
                records: 0,
                copied: 0,
                generation: 0,
                former: None,
                stuck: None,
                kept: Rc::default(),
            }
        };
        let sites = (0..self.bounds.sites).map(site).collect();
        let global = Global {
            chain: Chain::of(registry.clone()),
            ended: None,
            recoveries: 0,
            safe: None,
            writes: 0,
            moves: 0,
            suspended: 0,
            backups: 0,
            leaves: 0,
            removals: self.bounds.removals,
            removes: self.bounds.removals > 0,
            late: 0,
            truth: [None, None],
            acknowledged: 0,
            named_lost: 0,
            mirrored: 0,
            broken: None,
        };
        self.pack(Scene { sites, global, installs: Vec::new() })
    }

    fn pack(&mut self, mut scene: Scene) -> State {
        if self.settles {
            scene.settle(self.planted, self.bounds.recoveries);
        }
        self.keep(scene)
    }

    fn keep(&mut self, mut scene: Scene) -> State {
        scene.installs.sort_unstable();
        let mut state = State::default();
        for (at, site) in scene.sites.into_iter().enumerate() {
            state[at] = self.sites.number(site);
        }
        for (at, install) in scene.installs.into_iter().enumerate() {
            state[SITES_MAX + at] = self.installs.number(install);
        }
        state[SITES_MAX + INSTALLS_MAX] = self.globals.number(scene.global);
        state
    }

    pub(crate) fn unpack(&self, state: &State) -> Scene {
        let there =
            |numbers: &[u32]| numbers.iter().copied().filter(|n| *n != 0).collect::<Vec<_>>();
        let sites = there(&state[..SITES_MAX]);
        let installs = there(&state[SITES_MAX..SITES_MAX + INSTALLS_MAX]);
        Scene {
            sites: sites.into_iter().map(|number| self.sites.value(number).clone()).collect(),
            installs: installs.into_iter().map(|number| *self.installs.value(number)).collect(),
            global: self.globals.value(state[SITES_MAX + INSTALLS_MAX]).clone(),
        }
    }

    fn name(&mut self, verb: Verb, one: usize, other: usize) -> &'static str {
        let key = (verb, one as u8, other as u8);
        self.names.entry(key).or_insert_with(|| {
            let site = |at: usize| char::from(b'a' + at as u8);
            let (term, one) = match one.checked_sub(OF_ENDED) {
                Some(one) => ("old ", one),
                None => ("", one),
            };
            let named = match verb {
                Verb::Close | Verb::Decide | Verb::Forget => format!("{verb:?}"),
                Verb::Freeze | Verb::Sync | Verb::HandOn => {
                    format!("{verb:?} {}>{}", site(one), site(other))
                }
                Verb::Backup => format!("Backup {}={}", site(one), site(other)),
                Verb::Suspend => {
                    let others = (0..SITES_MAX).filter(|at| has(other as u8, *at) && *at != one);
                    let others: String = others.map(|at| format!("+{}", site(at))).collect();
                    format!("Suspend {}{others}", site(one))
                }
                Verb::Recover | Verb::RecoverAccepted => {
                    let sites = (0..SITES_MAX).filter(|at| has(other as u8, *at)).map(site);
                    format!("{verb:?} {}", sites.collect::<String>())
                }
                _ => format!("{verb:?} {}", site(one)),
            };
            Box::leak(format!("{term}{}", named.to_lowercase()).into_boxed_str())
        })
    }

    /// Every step from a scene.
    fn steps(&self, scene: &Scene, out: &mut Vec<(Scene, (Verb, usize, usize))>) {
        for at in (0..scene.sites.len()).filter(|at| scene.is_there(*at)) {
            self.steps_of(scene, at, out);
            for other in (0..scene.sites.len()).filter(|one| *one != at && scene.is_there(*one)) {
                self.steps_of_two(scene, at, other, out);
            }
        }
        self.steps_of_registry(scene, out);
        self.steps_of_recovery(scene, out);
        self.installs(scene, out);
    }

    fn steps_of(&self, scene: &Scene, at: usize, out: &mut Vec<(Scene, (Verb, usize, usize))>) {
        let planted = self.planted;
        let site = &scene.sites[at];
        let mut add = |verb: Verb, change: &dyn Fn(&mut Scene)| {
            let mut next = scene.clone();
            change(&mut next);
            out.push((next, (verb, at, 0)));
        };
        if site.registry.version < scene.global.chain.registry.version {
            add(Verb::Learn, &|next| next.learn(at, planted));
        }
        let is_owner = matches!(site.holding.token, Token::Held(_));
        if is_owner
            && !scene.fences(at, planted).covers_own()
            && scene.global.writes < self.bounds.writes
        {
            add(Verb::Write, &|next| {
                let write = 1 << next.global.writes;
                next.global.writes += 1;
                next.sites[at].records |= write;
                next.global.acknowledged |= write;
                if next.is_stale(at) {
                    next.global.named_lost |= write;
                }
            });
        }
        if let (Some(_), Some(safe)) = (site.holding.copy, scene.global.safe) {
            let is_other = !planted.is(Bug::SafeWithoutGeneration) || safe.named & !bit(at) != 0;
            let by = usize::from(safe.by);
            let is_listed = !has(site.registry.left, by);
            let counts = !scene.global.removes
                || scene.fences(at, planted).count_reports_of(id(by), is_listed);
            let mut dropped = scene.clone();
            let mut goes = false;
            dropped.step(at, planted, |holding, fences| {
                goes = holding.superseded((safe.tag, safe.position), fences);
                Records::Stay
            });
            if goes && is_other && counts {
                out.push((dropped, (Verb::Drop, at, 0)));
            }
        }
        self.leave(scene, at, out);
        self.remove_or_return(scene, at, out);
        self.reclaim(scene, at, out);
    }

    /// What is frozen for a site that has left is served again when no site owns it.
    pub(crate) fn reclaim(
        &self,
        scene: &Scene,
        at: usize,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let site = &scene.sites[at];
        let Token::Frozen { epoch, to } = site.holding.token else { return };
        let left = site.registry.left;
        let has_left = |site: SiteId| has(left, place(site));
        let others = (0..scene.sites.len()).filter(|one| *one != at && !has(left, *one));
        let others: Vec<usize> = others.collect();
        let version = site.registry.version;
        let all_tell = others.iter().all(|one| scene.sites[*one].registry.version >= version);
        let is_open = site.registry.open.is_some();
        let unasked = self.planted.is(Bug::ReclaimedUnasked);
        if !has_left(to) || !(all_tell || unasked) || is_open {
            return;
        }
        let reports = others.iter().map(|one| {
            let other = &scene.sites[*one];
            other.holding.report(id(*one), |to| has(other.registry.left, place(to)))
        });
        let Some(again) = leaving::reclaims(id(at), epoch, reports, has_left, self.planted) else {
            return;
        };
        let mut next = scene.clone();
        next.step(at, self.planted, |holding, fences| {
            holding.reclaim(again, fences);
            Records::Stay
        });
        out.push((next, (Verb::Reclaim, at, 0)));
    }

    fn leave(&self, scene: &Scene, at: usize, out: &mut Vec<(Scene, (Verb, usize, usize))>) {
        let registry = &scene.global.chain.registry;
        let is_due = scene.global.leaves < self.bounds.leaves
            && registry.failovers.open.is_none()
            && scene.sites[at].registry.version == registry.version;
        if !is_due {
            return;
        }
        let others = (0..scene.sites.len()).filter(|one| *one != at && scene.is_there(*one));
        // Those that can be reached.
        let others: Vec<_> = others.map(|one| (id(one), scene.sites[one].holding)).collect();
        let own = &scene.sites[at].holding;
        let may = |mask: u8| {
            let reported = others.iter().filter(|(site, _)| has(mask, place(*site))).copied();
            let reported: Vec<_> = reported.collect();
            !reported.is_empty() && leaving::may_leave(id(at), own, &reported, self.planted)
        };
        if !(1..bit(scene.sites.len())).any(may) {
            return;
        }
        let mut next = scene.clone();
        next.global.leaves += 1;
        next.remove(at);
        out.push((next, (Verb::Leave, at, 0)));
    }

    /// A lost site is removed unasked, by what the others have reported; or its return becomes
    /// known first.
    fn remove_or_return(
        &self,
        scene: &Scene,
        at: usize,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let failovers = &scene.global.chain.registry.failovers;
        if !scene.global.removes || !failovers.is_away(id(at)) {
            return;
        }
        let last = failovers.last_decided(id(at)).expect("it is away");
        let is_alone = (0..scene.sites.len()).all(|one| one == at || !scene.is_there(one));
        let may_go = last.without.is_empty() && failovers.open.is_none() && !is_alone;
        if may_go && scene.global.removals > 0 {
            let mut next = scene.clone();
            next.global.removals -= 1;
            next.remove(at);
            // One of the others may be lost at once: what two of them have stays, unless a copy is
            // on its way out since the removed site has one.
            let sites = (0..next.sites.len()).filter(|one| next.is_there(*one));
            let had: Vec<u8> =
                sites.map(|one| next.sites[one].records | next.sites[one].copied).collect();
            let twice = |write: &u8| had.iter().filter(|had| *had & write != 0).count() > 1;
            let writes = (0..u8::BITS).map(|write| 1 << write).filter(twice);
            next.global.mirrored &= match scene.global.safe {
                Some(safe) if has(safe.named, at) => 0,
                _ => writes.fold(0, |all, write| all | write),
            };
            out.push((next, (Verb::Remove, at, 0)));
        }
        if scene.sites[at].registry.decided.iter().any(|one| one.lost == id(at)) {
            let mut next = scene.clone();
            next.returned(at);
            out.push((next, (Verb::Return, at, 0)));
        }
    }

    fn steps_of_two(
        &self,
        scene: &Scene,
        at: usize,
        other: usize,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let planted = self.planted;
        let (site, theirs) = (&scene.sites[at], &scene.sites[other]);
        let add = |next: Scene, verb: Verb, out: &mut Vec<_>| out.push((next, (verb, at, other)));
        match site.holding.token {
            Token::Held(epoch) => {
                let mut next = scene.clone();
                let mut done = false;
                next.step(at, planted, |holding, fences| {
                    done = holding.freeze(id(other), fences);
                    Records::Stay
                });
                if done
                    && scene.global.moves < self.bounds.moves
                    && next.installs.len() < INSTALLS_MAX
                {
                    next.global.moves += 1;
                    let (from, to) = (at as u8, other as u8);
                    let records = site.records;
                    next.installs.push(Install { epoch: epoch.next(), from, to, records });
                    add(next, Verb::Freeze, out);
                }
                if usize::from(site.registry.backup) == other {
                    let tag = Tag { epoch, generation: site.generation.into() };
                    self.mirror(scene, (at, other), tag, out);
                    self.safe(scene, (at, other), tag, out);
                }
                if let Some((_, stream)) = site.former.filter(|(to, _)| usize::from(*to) == other) {
                    let tag = Tag { epoch, generation: stream.into() };
                    self.mirror(scene, (at, other), tag, out);
                    if planted.is(Bug::SafeByFormer) {
                        let tag = Tag { generation: site.generation.into(), ..tag };
                        self.safe(scene, (at, other), tag, out);
                    }
                }
            }
            Token::Frozen { epoch, to } if to == id(other) => {
                self.end(scene, (at, other), epoch, out);
                let mut next = scene.clone();
                let mut done = false;
                let parted = scene.fences(at, planted).part_from(id(other));
                next.step(other, planted, |holding, fences| {
                    done = holding.refuse(epoch.next(), id(at), fences);
                    Records::Stay
                });
                if done && !parted && !planted.is(Bug::AbortUnasked) {
                    out.push((next, (Verb::Refuse, other, at)));
                }
            }
            _ => {}
        }
        // Any message may name the slot's owner, by its sender's token.
        let known = match theirs.holding.token {
            Token::Held(epoch) => Some((epoch, id(other))),
            Token::Gone { epoch, to } => Some((epoch, to)),
            _ => None,
        };
        if let Some((epoch, owner)) = known.filter(|(epoch, _)| *epoch > site.holding.token.epoch())
        {
            let mut next = scene.clone();
            next.step(at, planted, |holding, fences| holding.learn(epoch, owner, fences));
            if next.sites[at] != *site {
                add(next, Verb::Hear, out);
            }
        }
        self.hand_on(scene, (at, other), out);
    }

    /// What is frozen is served again, or released, when its destination has refused or had it.
    pub(crate) fn end(
        &self,
        scene: &Scene,
        (at, other): (usize, usize),
        epoch: Epoch,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let planted = self.planted;
        let theirs = &scene.sites[other].holding;
        let has_refused = theirs.has_refused(epoch.next(), id(at));
        if has_refused || planted.is(Bug::AbortUnasked) {
            let mut next = scene.clone();
            let mut done = false;
            next.step(at, planted, |holding, fences| {
                done = holding.resume(fences);
                Records::Stay
            });
            if done {
                out.push((next, (Verb::Resume, at, other)));
            }
        }
        if !has_refused && theirs.token.epoch() >= epoch.next() {
            let mut next = scene.clone();
            next.step(at, planted, |holding, fences| holding.release(fences));
            out.push((next, (Verb::Release, at, other)));
        }
    }

    /// A site's backup, or its former one, receives what it has.
    fn mirror(
        &self,
        scene: &Scene,
        (at, other): (usize, usize),
        tag: Tag,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let planted = self.planted;
        let (site, theirs) = (&scene.sites[at], &scene.sites[other]);
        let fences = scene.fences(at, planted);
        if fences.part_from(id(other)) {
            return;
        }
        if theirs.holding.may_be_fed(tag, id(at), &scene.fences(other, planted)) {
            let mut next = scene.clone();
            next.step(other, planted, |holding, fences| holding.fed(tag, id(at), fences));
            let position = site.records.count_ones().into();
            next.sites[other].holding.completed(SlotCopy { tag, origin: id(at), position });
            next.sites[other].copied = site.records;
            if !scene.is_stale(at) {
                next.global.mirrored |= site.records;
            }
            if next.sites[other] != *theirs || next.global != scene.global {
                out.push((next, (Verb::Sync, at, other)));
            }
        }
    }

    /// A site reports what its backup has; then its former one is fed no more.
    fn safe(
        &self,
        scene: &Scene,
        (at, other): (usize, usize),
        tag: Tag,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let planted = self.planted;
        let (site, theirs) = (&scene.sites[at], &scene.sites[other]);
        if scene.fences(at, planted).part_from(id(other)) {
            return;
        }
        let by_former = planted.is(Bug::SafeByFormer) && site.former.is_some();
        let has = |copy: SlotCopy| copy.tag == tag || by_former && copy.tag.epoch == tag.epoch;
        let is_complete = theirs.holding.copy.is_some_and(has);
        let behind = planted.is(Bug::SafeWhileBehind);
        if is_complete && site.former.is_some() {
            let mut next = scene.clone();
            next.sites[at].former = None;
            out.push((next, (Verb::EndFormer, at, other)));
        }
        if is_complete || behind {
            let position = theirs.holding.copy.filter(|_| is_complete).map_or(0, |c| c.position);
            let mut next = scene.clone();
            let before = next.global.safe.filter(|known| known.tag.epoch == tag.epoch);
            let named = before.map_or(0, |known| known.named) | bit(other);
            let is_new = |known: Safe| (known.tag, known.position) < (tag, position);
            if next.global.safe.is_none_or(is_new) {
                let by = if scene.global.removes { at as u8 } else { 0 };
                next.global.safe = Some(Safe { tag, position, named, by });
                out.push((next, (Verb::Safe, at, other)));
            }
        }
    }

    fn hand_on(
        &self,
        scene: &Scene,
        (at, other): (usize, usize),
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let Holding { token, copy: Some(copy) } = scene.sites[at].holding else { return };
        let parted = scene.fences(at, self.planted).are_up();
        if scene.global.leaves >= self.bounds.leaves || parted {
            return;
        }
        let mut next = scene.clone();
        let mut done = false;
        let (records, had) = (scene.sites[other].records, scene.sites[at].copied);
        next.step(other, self.planted, |holding, fences| {
            done = holding.take_copy(copy, token, id(at), fences);
            Records::Stay
        });
        if done {
            assert_eq!(records, next.sites[other].records);
            next.sites[other].copied = had;
            out.push((next, (Verb::HandOn, at, other)));
        }
    }

    pub(crate) fn steps_of_registry(
        &self,
        scene: &Scene,
        out: &mut Vec<(Scene, (Verb, usize, usize))>,
    ) {
        let sites = scene.sites.len();
        let all = bit(sites) - 1;
        let registry = &scene.global.chain.registry;
        let left = registry.left;
        let mut add = |verb: Verb, pair: (usize, usize), change: &dyn Fn(&mut Scene)| {
            let mut next = scene.clone();
            change(&mut next);
            out.push((next, (verb, pair.0, pair.1)));
        };
        for at in (0..sites).filter(|at| !has(left, *at)) {
            if scene.global.backups < self.bounds.backups {
                for other in (0..sites).filter(|other| {
                    *other != at
                        && usize::from(registry.backups[at]) != *other
                        && !has(left, *other)
                }) {
                    add(Verb::Backup, (at, other), &|next| {
                        next.global.backups += 1;
                        next.global.change(|registry, _| registry.backups[at] = other as u8);
                    });
                }
            }
            let is_open = registry.failovers.open.is_some();
            if !is_open && scene.global.suspended < self.bounds.failovers {
                for mask in (1..all).filter(|mask| has(*mask, at) && mask | left != all) {
                    add(Verb::Suspend, (at, mask.into()), &|next| next.global.suspend(at, mask));
                }
            }
            let stuck = scene.global.late & !bit(at);
            if self.planted.is(Bug::LateFence) && stuck != 0 && scene.sites[at].stuck.is_none() {
                add(Verb::LateFence, (at, 0), &|next| {
                    let mut fenced = (0..sites).filter(|one| has(stuck, *one)).map(id);
                    let lost = fenced.next().expect("there is one");
                    let without = fenced.collect();
                    next.sites[at].stuck =
                        Some(Rc::new(OpenFailover { opened: Ballot::FIRST, lost, without }));
                });
            }
        }
        if let Some(open) = &registry.failovers.open {
            add(Verb::Close, (0, 0), &|next| next.global.close());
            let done = scene.global.fenced() | scene.global.chain.reported | left;
            for at in (0..sites).filter(|at| !has(done, *at)) {
                let version = scene.sites[at].registry.version;
                if version >= open.opened && version.term == open.opened.term {
                    add(Verb::Inventory, (at, 0), &|next| next.inventory(at));
                } else if self.planted.is(Bug::InventorySkipped)
                    && scene.may_decide(Some(at))
                    && scene.global.fenced() | left | bit(at) != all
                {
                    add(Verb::Decide, (0, 0), &|next| next.decide(self.planted));
                }
            }
            if scene.may_decide(None) {
                add(Verb::Decide, (0, 0), &|next| next.decide(self.planted));
            }
        }
        let is_planted =
            self.planted.is(Bug::ForgottenOnReturn) || self.planted.is(Bug::ForgottenOnceTaken);
        if let Some(decided) = scene.forgets().filter(|_| !is_planted) {
            add(Verb::Forget, (0, 0), &|next| {
                next.global.change(|registry, _| assert!(registry.failovers.forget(decided)));
            });
        }
    }

    pub(crate) fn installs(&self, scene: &Scene, out: &mut Vec<(Scene, (Verb, usize, usize))>) {
        for install in &scene.installs {
            let (from, to) = (usize::from(install.from), usize::from(install.to));
            if !scene.is_there(to) || !scene.is_there(from) {
                continue;
            }
            let mut next = scene.clone();
            let mut done = false;
            next.step(to, self.planted, |holding, fences| {
                let records = holding.install(install.epoch, id(from), fences);
                done = records.is_some();
                records.unwrap_or(Records::Stay)
            });
            if done {
                next.sites[to].records = install.records;
                let is_void = scene
                    .global
                    .truth
                    .iter()
                    .flatten()
                    .any(|(decided, ..)| install.epoch < Epoch::of_failover(*decided));
                if !is_void {
                    next.global.mirrored |= install.records & !next.global.named_lost;
                }
                out.push((next, (Verb::Install, to, from)));
            }
        }
    }

    /// The state after these steps, none of which may be faulty.
    pub(crate) fn play(&mut self, steps: &[&str]) -> State {
        let mut state = self.begin();
        for wanted in steps {
            let mut found = None;
            let mut offered = Vec::new();
            self.expand(&state, &mut |next, name| {
                offered.push(name);
                if name == *wanted {
                    found = Some(next);
                }
            });
            state = found.unwrap_or_else(|| panic!("no step {wanted:?} among {offered:?}"));
        }
        state
    }

    /// Whether a step can come next.
    pub(crate) fn offers(&mut self, state: &State, wanted: &str) -> bool {
        let mut found = false;
        self.expand(state, &mut |_, name| found |= name == wanted);
        found
    }
}

impl Explore for World {
    type State = State;

    fn key(&self, state: &State) -> u64 {
        hash(*state)
    }

    fn expand(&mut self, state: &State, emit: &mut dyn FnMut(State, &'static str)) {
        let scene = self.unpack(state);
        let mut steps = Vec::new();
        self.steps(&scene, &mut steps);
        for (next, (verb, one, other)) in steps {
            let next = self.pack(next);
            let name = self.name(verb, one, other);
            emit(next, name);
        }
    }

    fn fault(&mut self, state: &State) -> Option<&'static str> {
        let scene = self.unpack(state);
        let fault = self.fault_in(&scene);
        if self.forms.is_some() {
            let mut settled = scene;
            settled.settle(self.planted, self.bounds.recoveries);
            let form = self.keep(settled);
            self.forms.as_mut().expect("they are wanted").insert(form);
        }
        fault
    }

    fn show(&self, state: &State) -> String {
        let scene = self.unpack(state);
        let mut text: String = scene.sites.iter().map(|site| format!("{site:?}\n")).collect();
        text += &format!("{:?}\n{:?}\n", scene.global, scene.installs);
        text
    }
}
