//! Where groups must not go, must be, and which of them matter more.

use super::latencies::Site;
use std::collections::BTreeMap;

/// Why a group must not go to a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bar {
    /// The site is absent, or about to leave.
    Barred,
    /// The group is pinned to another one.
    Pinned,
    /// The site can fail together with the group's mirror.
    Domain,
    /// The latency from one of the group's origins is unknown.
    Unknown,
}

/// What a group does not have.
const NONE: u16 = u16::MAX;

/// The rules of one keyspace or cluster.
#[derive(Clone, Debug)]
pub struct Rules {
    barred: Vec<bool>,
    /// The failure domain of each site: a number of its own unless set.
    domains: Vec<u32>,
    pins: BTreeMap<u32, u16>,
    priorities: BTreeMap<u32, f32>,
    /// Of each group; empty: none has one.
    mirrors: Vec<u16>,
}

impl Rules {
    /// All groups may be at all sites, and each site fails alone.
    pub fn none(sites: usize) -> Rules {
        // Above any number that is set.
        let alone = |site: usize| u32::from(u16::MAX) + 1 + site as u32;
        Rules {
            barred: vec![false; sites],
            domains: (0..sites).map(alone).collect(),
            pins: BTreeMap::new(),
            priorities: BTreeMap::new(),
            mirrors: Vec::new(),
        }
    }

    /// Nothing goes to this site: it is absent or draining.
    pub fn bar(&mut self, site: Site) {
        self.barred[usize::from(site.0)] = true;
    }

    /// Groups may go to this site again.
    pub fn admit(&mut self, site: Site) {
        self.barred[usize::from(site.0)] = false;
    }

    /// Sites of one domain fail together.
    pub fn set_domain(&mut self, site: Site, domain: u16) {
        self.domains[usize::from(site.0)] = u32::from(domain);
    }

    /// The group stays at this site, or goes there.
    pub fn pin(&mut self, group: usize, site: Site) {
        self.pins.insert(group as u32, site.0);
    }

    /// What a millisecond of this group's users counts, 1 unless set. Not positive: the group never moves.
    pub fn set_priority(&mut self, group: usize, priority: f32) {
        self.priorities.insert(group as u32, priority);
    }

    /// The group has its mirror there, so its owner must be in another failure domain; only the mirror itself
    /// can be the next owner (it needs another mirror then).
    pub fn set_mirror(&mut self, group: usize, mirror: Site) {
        if self.mirrors.len() <= group {
            self.mirrors.resize(group + 1, NONE);
        }
        self.mirrors[group] = mirror.0;
    }

    /// What a millisecond of this group's users counts.
    pub fn priority(&self, group: usize) -> f32 {
        self.priorities.get(&(group as u32)).copied().unwrap_or(1.0)
    }

    /// Where the group is pinned.
    pub fn pinned(&self, group: usize) -> Option<Site> {
        self.pins.get(&(group as u32)).map(|site| Site(*site))
    }

    /// Whether groups may go to this site at all.
    pub fn is_barred(&self, site: Site) -> bool {
        self.barred[usize::from(site.0)]
    }

    /// Why the group must not go to that site. To be asked when a move is decided and again when it is
    /// installed, as rules change in between.
    pub fn forbids(&self, group: usize, site: Site) -> Option<Bar> {
        if self.is_barred(site) {
            return Some(Bar::Barred);
        }
        if self.pinned(group).is_some_and(|pin| pin != site) {
            return Some(Bar::Pinned);
        }
        self.shares_fate(group, site).then_some(Bar::Domain)
    }

    fn shares_fate(&self, group: usize, site: Site) -> bool {
        let Some(mirror) = self.mirror(group).filter(|mirror| *mirror != site) else {
            return false;
        };
        self.domains[usize::from(mirror.0)] == self.domains[usize::from(site.0)]
    }

    /// The site that has the group's mirror.
    pub fn mirror(&self, group: usize) -> Option<Site> {
        self.mirrors.get(group).filter(|site| **site != NONE).map(|site| Site(*site))
    }

    /// Whether the group has rules of its own.
    pub(super) fn is_special(&self, group: usize) -> bool {
        self.mirror(group).is_some() || self.pinned(group).is_some()
    }

    /// The sites that the group's mirror excludes.
    pub(super) fn beside_mirror(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        let mirror = self.mirror(group);
        let domain = mirror.map(|site| self.domains[usize::from(site.0)]);
        // A domain of its own has no other site.
        let shared = domain.filter(|domain| *domain <= u32::from(u16::MAX));
        let sites = if shared.is_some() { self.domains.len() } else { 0 };
        (0..sites).filter(move |&site| {
            Some(self.domains[site]) == shared && mirror != Some(Site(site as u16))
        })
    }

    pub(super) fn sites(&self) -> usize {
        self.barred.len()
    }

    pub(super) fn has_barred(&self) -> bool {
        self.barred.contains(&true)
    }
}
