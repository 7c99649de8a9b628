//! Where groups must not go, must be, and which of them matter more.
//!
//! Rules are of a group, by its index, of a site, or of a [`Kind`] of groups: those of one
//! keyspace, say, with one home. Groups that come in batches have their kinds by their keys
//! ([`ByKey`]); where no kind has rules a batch costs nothing more.

use super::counter::GroupKey;
use super::latencies::Site;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a group must not go to a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// The site is absent, or about to leave.
    Barred,
    /// The group is pinned to another one.
    Pinned,
    /// The site can fail together with all that has a copy of the group.
    Domain,
    /// Groups of this kind are not given to the site.
    LendTo,
    /// The latency from one of the group's origins is unknown.
    Unknown,
    /// The site takes only so much, and what it has is worth more.
    Room,
}

/// What a group does not have.
const NONE: u16 = u16::MAX;

/// What holds for groups of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Why they must not go to each site; empty: they may go to all.
    bars: Arc<[Option<Bar>]>,
    /// The site where they may be all the same.
    home: u16,
    priority: f32,
}

impl Kind {
    /// `bars`: of each site. `priority`: what a millisecond of their users counts.
    pub fn new(bars: Vec<Option<Bar>>, priority: f32) -> Kind {
        let has_any = bars.iter().any(Option::is_some);
        let bars = if has_any { bars } else { Vec::new() };
        Kind { bars: bars.into(), home: NONE, priority }
    }

    /// The same kind with a site where its groups may be, whatever excludes others. The reasons are
    /// shared.
    #[must_use]
    pub fn at_home(&self, home: Site) -> Kind {
        Kind { home: home.0, ..self.clone() }
    }

    /// The same kind where some more sites are excluded.
    #[must_use]
    pub fn with_bars(&self, sites: usize, more: impl Fn(Site) -> Option<Bar>) -> Kind {
        let bar = |site: usize| {
            let there = self.bars.get(site).copied().flatten();
            there.or_else(|| more(Site(site as u16)))
        };
        Kind { home: self.home, ..Kind::new((0..sites).map(bar).collect(), self.priority) }
    }

    fn bar(&self, site: usize) -> Option<Bar> {
        self.bars.get(site).copied().flatten().filter(|_| site != usize::from(self.home))
    }
}

/// The kinds of groups that come in batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByKey {
    kinds: Vec<Kind>,
    of_all: Option<u16>,
    classes: BTreeMap<u16, u16>,
    keys: BTreeMap<GroupKey, u16>,
}

impl ByKey {
    /// Whether no group has rules of a kind.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// One kind more, by its number. The first 65,535 count; the rest is like the last of them.
    pub fn add(&mut self, kind: Kind) -> u16 {
        if self.kinds.len() < usize::from(NONE) {
            self.kinds.push(kind);
        }
        (self.kinds.len() - 1) as u16
    }

    /// The kind of groups whose class and key have none.
    pub fn set_all(&mut self, kind: u16) {
        self.of_all = Some(kind);
    }

    /// The kind of the groups of a class whose keys have none.
    pub fn set_class(&mut self, class: u16, kind: u16) {
        self.classes.insert(class, kind);
    }

    /// The kind of one group.
    pub fn set_key(&mut self, key: GroupKey, kind: u16) {
        self.keys.insert(key, kind);
    }

    fn kind(&self, key: GroupKey) -> u16 {
        let of_class = || self.classes.get(&key.class()).copied().or(self.of_all);
        self.keys.get(&key).copied().or_else(of_class).unwrap_or(NONE)
    }
}

/// The rules of one keyspace or cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    barred: Vec<bool>,
    /// Sites that take nothing now: what is best there stays where it is.
    refusing: Vec<bool>,
    pins: BTreeMap<u32, u16>,
    by_key: Arc<ByKey>,
    /// The kind of each group of a batch; empty: none has one.
    kinds: Vec<u16>,
}

impl Rules {
    /// All groups may be at all sites.
    pub fn none(sites: usize) -> Rules {
        Rules {
            barred: vec![false; sites],
            refusing: vec![false; sites],
            pins: BTreeMap::new(),
            by_key: Arc::default(),
            kinds: Vec::new(),
        }
    }

    /// Groups of batches are of these kinds.
    pub fn set_kinds(&mut self, by_key: ByKey) {
        self.by_key = Arc::new(by_key);
    }

    /// The rules of a batch of these groups, by their places in it; `None`: no kind has rules, and
    /// they are these.
    pub fn of_batch(&self, keys: &[GroupKey]) -> Option<Rules> {
        if self.by_key.is_empty() {
            return None;
        }
        let kinds = keys.iter().map(|key| self.by_key.kind(*key)).collect();
        Some(Rules { kinds, ..self.clone() })
    }

    fn kind(&self, group: usize) -> Option<&Kind> {
        let kind = self.kinds.get(group)?;
        self.by_key.kinds.get(usize::from(*kind))
    }

    /// Its kind, if that excludes sites.
    fn excluding(&self, group: usize) -> Option<&Kind> {
        self.kind(group).filter(|kind| !kind.bars.is_empty())
    }

    /// Nothing goes to this site: it is absent or draining.
    pub fn bar(&mut self, site: Site) {
        self.barred[usize::from(site.0)] = true;
    }

    /// The site takes nothing now. It may be the best one still: what would go there waits where it
    /// is.
    pub fn refuse(&mut self, site: Site) {
        self.refusing[usize::from(site.0)] = true;
    }

    /// Whether it takes nothing now.
    pub fn is_refusing(&self, site: Site) -> bool {
        self.refusing[usize::from(site.0)]
    }

    /// The group stays at this site, or goes there.
    pub fn pin(&mut self, group: usize, site: Site) {
        self.pins.insert(group as u32, site.0);
    }

    /// What a millisecond of this group's users counts: 1, unless its kind has another number. Not
    /// positive: the group never moves.
    pub fn priority(&self, group: usize) -> f32 {
        self.kind(group).map_or(1.0, |kind| kind.priority)
    }

    /// Where the group is pinned.
    pub fn pinned(&self, group: usize) -> Option<Site> {
        self.pins.get(&(group as u32)).map(|site| Site(*site))
    }

    /// Whether groups may go to this site at all.
    pub fn is_barred(&self, site: Site) -> bool {
        self.barred[usize::from(site.0)]
    }

    /// Why the group must not go to that site. To be asked when a move is decided and again when it
    /// is installed, as rules change in between.
    pub fn forbids(&self, group: usize, site: Site) -> Option<Bar> {
        if self.is_barred(site) {
            return Some(Bar::Barred);
        }
        if self.pinned(group).is_some_and(|pin| pin != site) {
            return Some(Bar::Pinned);
        }
        self.excluding(group).and_then(|kind| kind.bar(usize::from(site.0)))
    }

    /// Whether the group has rules of its own.
    pub(super) fn is_special(&self, group: usize) -> bool {
        self.pinned(group).is_some() || self.excluding(group).is_some()
    }

    /// The sites that the group's kind excludes.
    pub(super) fn excluded(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        let sites = move |kind: &Kind| 0..kind.bars.len();
        self.excluding(group)
            .into_iter()
            .flat_map(move |kind| sites(kind).filter(move |site| kind.bar(*site).is_some()))
    }

    pub(super) fn sites(&self) -> usize {
        self.barred.len()
    }

    pub(super) fn has_barred(&self) -> bool {
        self.barred.contains(&true)
    }
}
