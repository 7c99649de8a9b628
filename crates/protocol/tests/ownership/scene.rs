//! One slot among a few sites, the registry, and what has gone wrong so far.
//!
//! The rules are the real ones (`protocol::global::ownership`); records are sets of writes, a bit each.

use model::{Ballot, Epoch, Failovers, OpenFailover, SiteId, SlotSet, Tag, Taken};
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
}

/// What a site has of the registry, as far as its own steps depend on that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Copied {
    pub(crate) version: Ballot,
    pub(crate) open: Option<OpenFailover>,
    /// Its own backup.
    pub(crate) backup: u8,
    pub(crate) left: u8,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Install {
    pub(crate) epoch: Epoch,
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) records: u8,
}

/// What no site has: the registry, the count of steps, and what must be true.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Global {
    pub(crate) registry: Rc<Registry>,
    /// The inventories of the open failover.
    pub(crate) found: Found,
    pub(crate) found_copy: u8,
    pub(crate) reported: u8,
    /// The highest copy that an owner reported as safe, and the sites with that copy.
    pub(crate) safe: Option<(Tag, u64, u8)>,
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) suspended: u8,
    pub(crate) backups: u8,
    pub(crate) leaves: u8,
    pub(crate) late: u8,
    /// The last decision, whether dropped or not: its failover, the sites that it fenced, and
    /// what was taken.
    pub(crate) truth: Option<(Ballot, u8, u8)>,
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
        Rc::new(Copied { version: self.version, open, backup, left: self.left })
    }
}

impl Global {
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Registry, Ballot)) {
        let mut registry = (*self.registry).clone();
        registry.version = later(registry.version);
        let version = registry.version;
        change(&mut registry, version);
        self.registry = Rc::new(registry);
    }

    pub(crate) fn fenced(&self) -> u8 {
        let Some(open) = &self.registry.failovers.open else { return 0 };
        open.without.iter().fold(bit(place(open.lost)), |mask, site| mask | bit(place(*site)))
    }

    pub(crate) fn end_inventories(&mut self) {
        (self.found, self.found_copy, self.reported) = (Found::default(), 0, 0);
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
        let opened = self.registry.failovers.open.as_ref().expect("one is open").opened;
        self.change(|registry, _| assert!(registry.failovers.close(opened)));
        self.end_inventories();
    }
}

impl Scene {
    pub(crate) fn is_there(&self, at: usize) -> bool {
        !has(self.global.registry.left, at)
    }

    pub(crate) fn fences(&self, at: usize, planted: Planted) -> Fences<'_> {
        let site = &self.sites[at];
        let open = site.registry.open.as_ref().or(site.stuck.as_deref());
        Fences::new(id(at), open, planted)
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

    /// Whether a site is a stale owner that a failover names.
    pub(crate) fn is_stale(&self, at: usize) -> bool {
        let Some((decided, fenced, _)) = self.global.truth else { return false };
        let site = &self.sites[at];
        let is_old = site.holding.token.epoch() < Epoch::of_failover(decided);
        is_old && site.registry.version < decided && has(fenced, at)
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

    /// A site takes the registry over.
    pub(crate) fn learn(&mut self, at: usize, planted: Planted) {
        let registry = self.global.registry.clone();
        let site = &mut self.sites[at];
        let (before, backup) = (site.registry.backup, registry.backups[at]);
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
                && self.global.truth.is_some_and(|(latest, _, had)| {
                    latest == one.decided && had & !self.sites[at].records != 0
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
            self.sites[at].registry = self.global.registry.of(at);
        }
    }

    pub(crate) fn inventory(&mut self, at: usize) {
        let lost = self.global.registry.failovers.open.as_ref().expect("one is open").lost;
        let site = &self.sites[at];
        let left = site.registry.left;
        let is_away = |to: SiteId| to == lost || has(left, place(to));
        let report = site.holding.report(id(at), is_away);
        let global = &mut self.global;
        let before = global.found.copy;
        global.found.add(id(at), &report, lost);
        if global.found.copy != before {
            let is_own = report.copy != site.holding.copy;
            global.found_copy = if is_own { site.records } else { site.copied };
        }
        global.reported |= bit(at);
    }

    pub(crate) fn may_decide(&self, skip: Option<usize>) -> bool {
        let done = self.global.fenced() | self.global.reported | self.global.registry.left;
        (0..self.sites.len()).all(|at| has(done, at) || skip == Some(at))
    }

    pub(crate) fn decide(&mut self, planted: Planted) {
        let fenced = self.global.fenced();
        let open = self.global.registry.failovers.open.clone().expect("one is open");
        let taker = self.global.found.taker(open.lost, planted);
        let had = self.global.found_copy;
        let taken = taker.map(|(by, copy)| Taken {
            by,
            slots: SlotSet::default(),
            from: Some((copy.tag.epoch, copy.position)),
        });
        let is_taken = taken.is_some();
        let global = &mut self.global;
        global.late |= fenced;
        global.change(|registry, version| {
            let taken = taken.into_iter().collect();
            assert!(registry.failovers.decide(version, open.opened, taken));
        });
        global.end_inventories();
        if is_taken {
            global.truth = Some((global.registry.version, fenced, had));
            global.named_lost |= global.acknowledged & !had;
            if open.without.is_empty() && global.mirrored & !had != 0 {
                global.broken = Some("a mirrored write is lost by one failed site");
            }
            global.mirrored &= had;
        }
    }

    pub(crate) fn forgets(&self) -> Option<Ballot> {
        let knows =
            |one: Ballot| move |site: SiteId| self.sites[place(site)].registry.version >= one;
        let listed = || (0..self.sites.len()).filter(|at| self.is_there(*at)).map(id);
        let decided = &self.global.registry.failovers.decided;
        let found = decided.iter().find(|one| {
            let taker = one.taken.first().map(|taken| taken.by);
            let pair = (one.lost, taker);
            takeover::may_be_forgotten(listed(), pair, knows(one.decided), Planted::none())
        });
        found.map(|one| one.decided)
    }
}
