//! Versions of the registry, and the sites that hold it.

use crate::{SiteId, limits};
use std::fmt;
use std::str::FromStr;

/// A chain of versions of the registry. A recovery begins the next term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// One more than the highest term number that the recovering site has promised.
    pub number: u32,
    /// The site that recovered, so that two recoveries begin two terms. 0: the first term.
    pub site: SiteId,
}

/// An attempt to change the registry, and the version that it writes. Each attempt has its own
/// ballot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// The term that it belongs to.
    pub term: Term,
    /// The number of the attempt within its term.
    pub round: u64,
    /// The site that made it.
    pub site: SiteId,
}

impl Ballot {
    /// The lowest ballot. No attempt uses it.
    pub const FIRST: Ballot =
        Ballot { term: Term { number: 0, site: SiteId(0) }, round: 0, site: SiteId(0) };
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ballot { term, round, site } = self;
        if *term != Term::default() {
            write!(f, "{}@{}/", term.number, term.site)?;
        }
        write!(f, "{round}@{site}")
    }
}

impl FromStr for Ballot {
    type Err = ();

    fn from_str(text: &str) -> Result<Ballot, ()> {
        let number_at = |text: &str| -> Option<(u64, SiteId)> {
            let (number, site) = text.split_once('@')?;
            let site = site.strip_prefix('s')?.parse().ok()?;
            Some((number.parse().ok()?, SiteId(site)))
        };
        let parse = || -> Option<Ballot> {
            let (term, attempt) = match text.split_once('/') {
                None => (Term::default(), text),
                Some((term, attempt)) => {
                    let (number, site) = number_at(term)?;
                    (Term { number: u32::try_from(number).ok()?, site }, attempt)
                }
            };
            let (round, site) = number_at(attempt)?;
            Some(Ballot { term, round, site })
        };
        parse().ok_or(())
    }
}

/// The sites that hold the registry: a few, in order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistrarSet {
    sites: [SiteId; limits::REGISTRARS_MAX],
    len: u8,
}

impl RegistrarSet {
    /// The sites.
    pub fn sites(&self) -> &[SiteId] {
        &self.sites[..usize::from(self.len)]
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a site is in the set.
    pub fn contains(&self, site: SiteId) -> bool {
        self.sites().contains(&site)
    }

    /// Whether the sites for which `of` is true are more than half of the set.
    pub fn has_majority(&self, of: impl Fn(SiteId) -> bool) -> bool {
        let count = self.sites().iter().filter(|site| of(**site)).count();
        2 * count > self.sites().len()
    }

    /// The number of registrars for a number of sites: 1 of 1, 2 of 2, 3 from three sites, 5 from
    /// nine.
    pub fn size_for(sites: usize) -> usize {
        match sites {
            0..=2 => sites,
            3..=8 => 3,
            _ => limits::REGISTRARS_MAX,
        }
    }
}

/// Takes the first sites, up to the limit.
impl FromIterator<SiteId> for RegistrarSet {
    fn from_iter<I: IntoIterator<Item = SiteId>>(sites: I) -> RegistrarSet {
        let mut set = RegistrarSet::default();
        for site in sites.into_iter().take(limits::REGISTRARS_MAX) {
            if !set.contains(site) {
                set.sites[usize::from(set.len)] = site;
                set.len += 1;
            }
        }
        set.sites[..usize::from(set.len)].sort_unstable();
        set
    }
}

/// Which sites hold the registry, since when, and which held it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registrars {
    /// The current set.
    pub set: RegistrarSet,
    /// The version that set it. It distinguishes two sets of the same sites.
    pub since: Ballot,
    /// The set before the current one.
    pub before: RegistrarSet,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(sites: &[u32]) -> RegistrarSet {
        sites.iter().map(|site| SiteId(*site)).collect()
    }

    #[test]
    fn a_majority_is_more_than_half() {
        assert!(set(&[1]).has_majority(|site| site == SiteId(1)));
        assert!(!set(&[1, 2]).has_majority(|site| site == SiteId(1)));
        assert!(set(&[1, 2, 3]).has_majority(|site| site != SiteId(2)));
        assert!(!set(&[1, 2, 3, 4]).has_majority(|site| site.0 <= 2));
        assert_eq!(set(&[3, 1, 2, 1]).sites(), [SiteId(1), SiteId(2), SiteId(3)]);
        let sizes: Vec<usize> = [1, 2, 3, 8, 9, 10_000].map(RegistrarSet::size_for).into();
        assert_eq!(sizes, [1, 2, 3, 3, 5, 5]);
    }

    #[test]
    fn a_term_comes_before_a_round_and_a_round_before_a_site() {
        let ballot = |number, round, site| Ballot {
            term: Term { number, site: SiteId(u32::from(number > 0)) },
            round,
            site: SiteId(site),
        };
        assert!(ballot(1, 0, 1) > ballot(0, 9, 9) && ballot(0, 2, 1) > ballot(0, 1, 9));
        assert!(ballot(0, 1, 2) > ballot(0, 1, 1));
        assert_eq!(ballot(0, 7, 2).to_string(), "7@s2");
        assert_eq!(ballot(2, 7, 2).to_string(), "2@s1/7@s2");
    }
}
