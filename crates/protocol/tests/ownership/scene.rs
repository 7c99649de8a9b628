//! One slot among a few sites, the registry, and what has gone wrong so far.
//!
//! The rules are the real ones (`protocol::global::ownership`); records are sets of writes, a bit
//! each.

use model::{Ballot, DecidedFailover, Epoch, Failovers, OpenFailover, SiteId, SlotSet, Tag, Taken};
use protocol::global::ownership::trial::{Bug, Planted};
use protocol::global::ownership::{Fences, Found, Holding, Records, Token, takeover};
use std::rc::Rc;

pub(crate) const SITES_MAX: usize = 4;

/// The registry, as far as one slot needs it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Registry {
    pub(crate) version: Ballot,
    pub(crate) failovers: Failovers,
    pub(crate) backups: [u8; SITES_MAX],
    pub(crate) left: u8,
    /// After a recovery: the version that it went on from.
    pub(crate) base: Option<Ballot>,
    /// Decisions of the term before, and the version of this one that brought each.
    pub(crate) brought: Vec<(Ballot, Ballot)>,
}

/// What a site has of the registry, as far as its own steps depend on that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copied {
    pub(crate) version: Ballot,
    pub(crate) open: Option<OpenFailover>,
    /// Its own backup.
    pub(crate) backup: u8,
    pub(crate) left: u8,
    /// The decisions in it, where a recovery may come, or a lost site may be removed.
    pub(crate) decided: Vec<DecidedFailover>,
}

/// An owner's report that a copy is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Safe {
    pub(crate) tag: Tag,
    pub(crate) position: u64,
    /// The sites with that copy.
    pub(crate) named: u8,
    /// The owner, where lost sites may be removed.
    pub(crate) by: u8,
}

/// A site.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub(crate) registry: Rc<Copied>,
    pub(crate) holding: Holding,
    /// What lies there as its own.
    pub(crate) records: u8,
    /// What its copy has.
    pub(crate) copied: u8,
    /// Which stream to its backup.
    pub(crate) generation: u8,
    /// The former backup, while that is fed, and which stream.
    pub(crate) former: Option<(u8, u8)>,
    /// What a fence has left behind, in a trial.
    pub(crate) stuck: Option<Rc<OpenFailover>>,
    /// Decisions of the term before that the site hands in.
    pub(crate) kept: Rc<Vec<DecidedFailover>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Install {
    pub(crate) epoch: Epoch,
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) records: u8,
}

/// A term of the registry: its last version, and the failover that is open in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Chain {
    pub(crate) registry: Rc<Registry>,
    /// The inventories of the open failover.
    pub(crate) found: Found,
    pub(crate) found_copy: u8,
    pub(crate) reported: u8,
}

/// A decision, whether dropped or not: its failover, the sites that it fenced, and what was taken.
pub(crate) type Truth = (Ballot, u8, u8);

/// What no site has: the registry, the count of steps, and what must be true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Global {
    pub(crate) chain: Chain,
    /// The term that a recovery ended, and the sites that have promised to take no part in it.
    pub(crate) ended: Option<Rc<(Chain, u8)>>,
    pub(crate) recoveries: u8,
    /// The highest copy that an owner reported as safe.
    pub(crate) safe: Option<Safe>,
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) suspended: u8,
    pub(crate) backups: u8,
    pub(crate) leaves: u8,
    /// How many lost sites may be removed yet, and whether any may.
    pub(crate) removals: u8,
    pub(crate) removes: bool,
    pub(crate) late: u8,
    /// The last decision of each term.
    pub(crate) truth: [Option<Truth>; 2],
    pub(crate) acknowledged: u8,
    pub(crate) named_lost: u8,
    /// Writes that one lost site must not take along.
    pub(crate) mirrored: u8,
    pub(crate) broken: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) sites: Vec<Site>,
    pub(crate) global: Global,
    pub(crate) installs: Vec<Install>,
}

pub(crate) fn id(at: usize) -> SiteId {
    SiteId(at as u32 + 1)
}

pub(crate) fn place(site: SiteId) -> usize {
    site.0 as usize - 1
}

pub(crate) fn bit(at: usize) -> u8 {
    1 << at
}

pub(crate) fn has(mask: u8, at: usize) -> bool {
    mask & bit(at) != 0
}

pub(crate) fn later(version: Ballot) -> Ballot {
    Ballot { round: version.round + 1, ..version }
}

impl Registry {
    /// A site's copy.
    pub(crate) fn of(&self, at: usize) -> Rc<Copied> {
        let (open, backup) = (self.failovers.open.clone(), self.backups[at]);
        let decided = self.failovers.decided.clone();
        Rc::new(Copied { version: self.version, open, backup, left: self.left, decided })
    }

    /// From which version on a site has a decision.
    fn brought_by(&self, decided: Ballot) -> Ballot {
        let brought = self.brought.iter().find(|(one, _)| *one == decided);
        brought.map_or(decided, |(_, version)| *version)
    }

    /// Adds decisions that sites of the term before have.
    pub(crate) fn bring(&mut self, version: Ballot, decisions: &[DecidedFailover]) {
        for one in decisions {
            if self.lacks(one) {
                self.failovers.decided.push(one.clone());
                self.brought.push((one.decided, version));
            }
        }
        self.failovers.decided.sort_by_key(|one| one.decided);
        self.brought.sort_unstable();
    }

    fn lacks(&self, one: &DecidedFailover) -> bool {
        !self.failovers.decided.iter().any(|there| there.decided == one.decided)
    }
}

impl Chain {
    pub(crate) fn of(registry: Rc<Registry>) -> Chain {
        Chain { registry, found: Found::default(), found_copy: 0, reported: 0 }
    }
}

impl Global {
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Registry, Ballot)) {
        let mut registry = (*self.chain.registry).clone();
        registry.version = later(registry.version);
        let version = registry.version;
        change(&mut registry, version);
        self.chain.registry = Rc::new(registry);
    }

    pub(crate) fn fenced(&self) -> u8 {
        let Some(open) = &self.chain.registry.failovers.open else { return 0 };
        open.without.iter().fold(bit(place(open.lost)), |mask, site| mask | bit(place(*site)))
    }

    pub(crate) fn end_inventories(&mut self) {
        let registry = self.chain.registry.clone();
        self.chain = Chain::of(registry);
    }

    pub(crate) fn suspend(&mut self, lost: usize, mask: u8) {
        let without: Vec<SiteId> =
            (0..SITES_MAX).filter(|at| has(mask, *at) && *at != lost).map(id).collect();
        self.change(|registry, version| {
            registry.failovers.open(version, id(lost), &without).expect("none is open");
        });
        self.suspended += 1;
    }

    pub(crate) fn close(&mut self) {
        self.late |= self.fenced();
        let opened = self.chain.registry.failovers.open.as_ref().expect("one is open").opened;
        self.change(|registry, _| assert!(registry.failovers.close(opened)));
        self.end_inventories();
    }
}

impl Scene {
    pub(crate) fn is_there(&self, at: usize) -> bool {
        !has(self.global.chain.registry.left, at)
    }

    pub(crate) fn fences(&self, at: usize, planted: Planted) -> Fences<'_> {
        let site = &self.sites[at];
        let open = site.registry.open.as_ref().or(site.stuck.as_deref());
        let fences = Fences::new(id(at), open, planted);
        if self.global.removes { fences.decided(&site.registry.decided) } else { fences }
    }

    /// Changes a holding, and the records with it.
    pub(crate) fn step(
        &mut self,
        at: usize,
        planted: Planted,
        step: impl FnOnce(&mut Holding, &Fences<'_>) -> Records,
    ) {
        let mut holding = self.sites[at].holding;
        let records = step(&mut holding, &self.fences(at, planted));
        let site = &mut self.sites[at];
        let before = std::mem::replace(&mut site.holding, holding);
        if holding.token.epoch() < before.token.epoch() {
            self.global.broken = Some("a token decreases");
        }
        match records {
            Records::Stay => {}
            Records::Retain => site.copied = std::mem::take(&mut site.records),
            Records::Drop | Records::BeginEmpty => site.records = 0,
            Records::Take => site.records = std::mem::take(&mut site.copied),
            Records::Install => {}
        }
        if holding.copy.is_none() {
            site.copied = 0;
        }
        if before.token != holding.token && matches!(holding.token, Token::Held(_))
            || !holding.token.is_own()
        {
            (site.generation, site.former) = (0, None);
        }
    }

    /// Whether a site is a stale owner that a failover names, or, after a recovery of the registry,
    /// that one of the other side has overruled.
    pub(crate) fn is_stale(&self, at: usize) -> bool {
        let site = &self.sites[at];
        let version = site.registry.version;
        self.global.truth.iter().flatten().any(|(decided, fenced, _)| {
            let is_old = site.holding.token.epoch() < Epoch::of_failover(*decided);
            let is_parted = version.term != decided.term;
            is_old && (is_parted || version < *decided && has(*fenced, at))
        })
    }

    pub(crate) fn serves(&self, at: usize) -> bool {
        let site = &self.sites[at];
        let is_fenced = site.registry.open.as_ref().is_some_and(|open| open.fences(id(at)));
        matches!(site.holding.token, Token::Held(_)) && !is_fenced && self.is_there(at)
    }

    /// Whether the slot is frozen here for a site that has left.
    pub(crate) fn is_stranded(&self, at: usize) -> bool {
        let token = self.sites[at].holding.token;
        matches!(token, Token::Frozen { to, .. } if !self.is_there(place(to)))
    }

    /// The registry loses a site, and has other backups for those that had it as theirs.
    pub(crate) fn remove(&mut self, at: usize) {
        let sites = self.sites.len();
        self.global.change(|registry, _| {
            registry.left |= bit(at);
            registry.failovers.site_gone(id(at));
            for of in 0..sites {
                if usize::from(registry.backups[of]) == at {
                    let stays = |one: &usize| *one != of && !has(registry.left, *one);
                    let backup = (0..sites).find(stays).unwrap_or(of);
                    registry.backups[of] = backup as u8;
                }
            }
        });
        (self.sites[at].holding.copy, self.sites[at].copied) = (None, 0);
    }

    /// The registry has the return of a lost site.
    pub(crate) fn returned(&mut self, at: usize) {
        self.global.change(|registry, _| {
            registry.failovers.all_returned(id(at));
        });
    }

    /// A site takes the registry over.
    pub(crate) fn learn(&mut self, at: usize, planted: Planted) {
        let registry = self.global.chain.registry.clone();
        let site = &mut self.sites[at];
        let (before, backup) = (site.registry.backup, registry.backups[at]);
        if site.registry.version.term != registry.version.term {
            let is_beyond = registry.base.is_some_and(|base| site.registry.version > base);
            let decided = site.registry.decided.iter().filter(|_| is_beyond).cloned();
            site.kept = Rc::new(decided.collect());
        }
        if site.kept.iter().any(|one| !registry.lacks(one)) {
            Rc::make_mut(&mut site.kept).retain(|one| registry.lacks(one));
        }
        site.registry = registry.of(at);
        if before != backup && site.holding.token.is_own() {
            let former = site.former.or(Some((before, site.generation)));
            site.former = former.filter(|(former, _)| *former != backup);
            site.generation += 1;
        }
        if planted.is(Bug::MirrorDropped)
            && let Some(copy) = site.holding.copy
            && copy.tag.generation != u64::MAX
            && usize::from(registry.backups[place(copy.origin)]) != at
        {
            (site.holding.copy, site.copied) = (None, 0);
        }
        for one in &registry.failovers.decided {
            let Some(taken) = one.taken.first() else { continue };
            let decided = Epoch::of_failover(one.decided);
            let (taker, taken_before) = (taken.by, self.sites[at].holding);
            let pair = (taker, taken.from);
            self.step(at, planted, |holding, fences| holding.follow(decided, pair, fences));
            let is_news = taken_before.token.epoch() < decided;
            if taker == id(at)
                && is_news
                // One without it takes nothing, and reports that: a recovery may have closed the
                // failover for some of the sites before its decision is handed in.
                && (self.global.recoveries == 0
                    || matches!(self.sites[at].holding.token, Token::Held(_)))
                && self.global.truth.iter().flatten().any(|(latest, _, had)| {
                    *latest == one.decided && had & !self.sites[at].records != 0
                })
            {
                self.global.broken = Some("the taker has lost the copy that it reported");
            }
        }
        let is_back = |decided: &Ballot, lost: SiteId| {
            lost == id(at) && self.sites[at].registry.version >= *decided
        };
        let forgotten: Vec<Ballot> = registry
            .failovers
            .decided
            .iter()
            .filter(|one| {
                let taker = one.taken.first().map(|taken| taken.by);
                let knows = |site: SiteId| self.sites[place(site)].registry.version >= one.decided;
                let is_planted =
                    planted.is(Bug::ForgottenOnReturn) || planted.is(Bug::ForgottenOnceTaken);
                is_planted
                    && is_back(&one.decided, one.lost)
                    && takeover::may_be_forgotten([], (one.lost, taker), knows, planted)
            })
            .map(|one| one.decided)
            .collect();
        for decided in forgotten {
            self.global.change(|registry, _| assert!(registry.failovers.forget(decided)));
            self.sites[at].registry = self.global.chain.registry.of(at);
        }
    }

    pub(crate) fn inventory(&mut self, at: usize) {
        let lost = self.global.chain.registry.failovers.open.as_ref().expect("one is open").lost;
        let site = &self.sites[at];
        let left = site.registry.left;
        let is_away = |to: SiteId| to == lost || has(left, place(to));
        let report = site.holding.report(id(at), is_away);
        let global = &mut self.global;
        let before = global.chain.found.copy;
        global.chain.found.add(id(at), &report, lost);
        if global.chain.found.copy != before {
            let is_own = report.copy != site.holding.copy;
            global.chain.found_copy = if is_own { site.records } else { site.copied };
        }
        global.chain.reported |= bit(at);
    }

    pub(crate) fn may_decide(&self, skip: Option<usize>) -> bool {
        let done =
            self.global.fenced() | self.global.chain.reported | self.global.chain.registry.left;
        (0..self.sites.len()).all(|at| has(done, at) || skip == Some(at))
    }

    pub(crate) fn decide(&mut self, planted: Planted) {
        let fenced = self.global.fenced();
        let open = self.global.chain.registry.failovers.open.clone().expect("one is open");
        // A slot whose owner has left counts as the lost site's, if that alone was not asked.
        let left = self.global.chain.registry.left;
        let owner = self.global.chain.found.owner.map(|(_, owner)| owner);
        let counts = |owner: &SiteId| has(left, place(*owner)) && open.without.is_empty();
        let lost = owner.filter(counts).filter(|_| self.global.removes).unwrap_or(open.lost);
        let taker = self.global.chain.found.taker(lost, planted);
        let had = self.global.chain.found_copy;
        let taken = taker.map(|(by, copy)| Taken {
            by,
            slots: SlotSet::default(),
            from: Some((copy.tag.epoch, copy.position)),
        });
        // Nothing is left behind by a site that may be removed.
        let begins_empty = taken.is_none()
            && self.global.removes
            && open.without.is_empty()
            && self.global.chain.found.is_lost(lost);
        let mut others = (0..self.sites.len()).filter(|at| self.is_there(*at) && !has(fenced, *at));
        let empty = others.next().filter(|_| begins_empty).map(|at| Taken {
            by: id(at),
            slots: SlotSet::default(),
            from: None,
        });
        let taken = taken.or(empty);
        let is_taken = taken.is_some();
        let has_met = self.has_met(fenced);
        let global = &mut self.global;
        global.late |= fenced;
        global.change(|registry, version| {
            let taken = taken.into_iter().collect();
            assert!(registry.failovers.decide(version, open.opened, taken));
        });
        global.end_inventories();
        if is_taken {
            let decided = global.chain.registry.version;
            global.truth[0] = Some((decided, fenced, had));
            // One of a later term stands, whatever comes of this one.
            if global.truth[1].is_some_and(|(other, ..)| other > decided) {
                return;
            }
            global.named_lost |= global.acknowledged & !had;
            if has_met && open.without.is_empty() && global.mirrored & !had != 0 {
                global.broken = Some("a mirrored write is lost by one failed site");
            }
            global.mirrored &= had;
        }
    }

    pub(crate) fn forgets(&self) -> Option<Ballot> {
        let registry = &self.global.chain.registry;
        let knows = |one: Ballot| {
            let brought_by = registry.brought_by(one);
            move |site: SiteId| {
                let version = self.sites[place(site)].registry.version;
                version >= brought_by && version.term == brought_by.term
            }
        };
        let listed = || (0..self.sites.len()).filter(|at| self.is_there(*at)).map(id);
        let decided = &self.global.chain.registry.failovers.decided;
        let found = decided.iter().find(|one| {
            let taker = one.taken.first().map(|taken| taken.by);
            let pair = (one.lost, taker);
            takeover::may_be_forgotten(listed(), pair, knows(one.decided), Planted::none())
        });
        found.map(|one| one.decided)
    }
}
