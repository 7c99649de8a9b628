//! Where the accesses of each group come from: profiles, sparse.
//!
//! Compressed rows (CSR): where the accesses of a group begin, the origin and rate of each, and of
//! each group its owner and size. 10 bytes a group and 6 bytes an access; with four origins 34
//! bytes.

use super::latencies::{Origin, Site};
use std::collections::BTreeMap;

/// A rate above this, per second, is an error.
pub const RATE_MAX: f32 = 1e9;

/// The accesses of one group: origins and their rates per second, of equal length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accesses<'a> {
    pub(super) origins: &'a [u16],
    pub(super) rates: &'a [f32],
}

impl<'a> Accesses<'a> {
    /// Each origin with its rate per second.
    pub fn iter(self) -> impl Iterator<Item = (Origin, f32)> + 'a {
        self.origins.iter().zip(self.rates).map(|(origin, rate)| (Origin(*origin), *rate))
    }

    /// The number of origins.
    pub fn len(self) -> usize {
        self.origins.len()
    }

    /// Whether the group has no users.
    pub fn is_empty(self) -> bool {
        self.origins.is_empty()
    }

    /// Accesses per second.
    pub fn rate(self) -> f32 {
        self.rates.iter().sum()
    }

    /// Accesses per second, and the origin with the most of them, the first of equals.
    pub(super) fn rate_and_heaviest(self) -> (f32, Option<(u16, f32)>) {
        let (mut sum, mut heaviest) = (0.0, (0, 0.0));
        for (origin, rate) in self.origins.iter().zip(self.rates) {
            sum += rate;
            if *rate > heaviest.1 {
                heaviest = (*origin, *rate);
            }
        }
        (sum, (heaviest.1 > 0.0).then_some(heaviest))
    }
}

/// Groups, by index.
#[derive(Clone, Debug)]
pub struct Groups {
    known_origins: usize,
    known_sites: usize,
    /// Of each group and one past the last: where its accesses begin.
    offsets: Vec<u32>,
    origins: Vec<u16>,
    rates: Vec<f32>,
    owners: Vec<u16>,
    bytes: Vec<u32>,
    /// Where a group pays no price, of those that have such a place.
    homes: BTreeMap<u32, u16>,
}

impl Groups {
    /// No groups yet, over this many origins and sites (those of the
    /// [latencies](super::Latencies)).
    pub fn new(origins: usize, sites: usize) -> Groups {
        Groups::with_capacity(origins, sites, 0, 0)
    }

    /// The same with memory for that many groups and accesses.
    pub fn with_capacity(origins: usize, sites: usize, groups: usize, accesses: usize) -> Groups {
        let mut offsets = Vec::with_capacity(groups + 1);
        offsets.push(0);
        Groups {
            known_origins: origins,
            known_sites: sites,
            offsets,
            origins: Vec::with_capacity(accesses),
            rates: Vec::with_capacity(accesses),
            owners: Vec::with_capacity(groups),
            bytes: Vec::with_capacity(groups),
            homes: BTreeMap::new(),
        }
    }

    /// Adds a group and returns its index. Accesses from unknown origins and those with a rate that
    /// is not positive or absurd are dropped. `None`: the owner is unknown, so is the group then.
    pub fn push(
        &mut self,
        owner: Site,
        bytes: u32,
        accesses: impl IntoIterator<Item = (Origin, f32)>,
    ) -> Option<usize> {
        if usize::from(owner.0) >= self.known_sites {
            return None;
        }
        for (origin, rate) in accesses {
            let is_known = usize::from(origin.0) < self.known_origins;
            if is_known && rate > 0.0 && rate <= RATE_MAX {
                self.origins.push(origin.0);
                self.rates.push(rate);
            }
        }
        let end = u32::try_from(self.origins.len()).expect("fewer than 2^32 accesses");
        self.offsets.push(end);
        self.owners.push(owner.0);
        self.bytes.push(bytes.max(1));
        Some(self.owners.len() - 1)
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Where the accesses of a group come from.
    pub fn accesses(&self, group: usize) -> Accesses<'_> {
        let range = self.offsets[group] as usize..self.offsets[group + 1] as usize;
        Accesses { origins: &self.origins[range.clone()], rates: &self.rates[range] }
    }

    /// Where a group is.
    pub fn owner(&self, group: usize) -> Site {
        Site(self.owners[group])
    }

    /// A group has moved.
    pub fn set_owner(&mut self, group: usize, owner: Site) {
        assert!(usize::from(owner.0) < self.known_sites, "an unknown site {owner:?}");
        self.owners[group] = owner.0;
    }

    /// A group has its place at this site for nothing, whatever others pay there.
    pub fn set_home(&mut self, group: usize, home: Site) {
        self.homes.insert(group as u32, home.0);
    }

    /// Where a group has its place for nothing.
    pub fn home(&self, group: usize) -> Option<Site> {
        self.homes.get(&(group as u32)).map(|site| Site(*site))
    }

    /// The size of a group, at least 1.
    pub fn bytes(&self, group: usize) -> u32 {
        self.bytes[group]
    }

    /// The bytes at each site.
    pub fn held(&self) -> Vec<u64> {
        let mut held = vec![0; self.known_sites];
        for (owner, bytes) in self.owners.iter().zip(&self.bytes) {
            held[usize::from(*owner)] += u64::from(*bytes);
        }
        held
    }

    /// Accesses of all groups.
    pub fn accesses_count(&self) -> usize {
        self.origins.len()
    }

    /// The memory that profiles take.
    pub fn memory_bytes(&self) -> usize {
        self.offsets.len() * 4 + self.origins.len() * 6 + self.owners.len() * 6
    }

    pub(super) fn origins_known(&self) -> usize {
        self.known_origins
    }

    pub(super) fn sites_known(&self) -> usize {
        self.known_sites
    }
}
