//! What a site's copy of the registry forbids it.

use super::trial::{Bug, Planted};
use model::{OpenFailover, SiteId};

/// The fences that a site knows. They bind its log: its nodes may go on sending requests to a fenced
/// site, and check the answers afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Fences<'a> {
    own: SiteId,
    open: Option<&'a OpenFailover>,
    planted: Planted,
}

impl<'a> Fences<'a> {
    /// Those of a site whose copy of the registry has this failover open.
    pub fn new(own: SiteId, open: Option<&'a OpenFailover>, planted: Planted) -> Fences<'a> {
        Fences { own, open, planted }
    }

    /// Whether a failover is open.
    pub fn are_up(&self) -> bool {
        self.open.is_some()
    }

    /// Whether another site is fenced.
    pub fn covers(&self, site: SiteId) -> bool {
        match self.planted.is(Bug::OnlyLostFenced) {
            true => self.open.is_some_and(|open| open.lost == site),
            false => self.open.is_some_and(|open| open.fences(site)),
        }
    }

    /// Whether this site itself is. It serves nothing then, and passes nothing on.
    pub fn covers_own(&self) -> bool {
        self.open.is_some_and(|open| open.fences(self.own))
    }

    /// Whether slots may pass between this site and another one.
    pub fn part_from(&self, site: SiteId) -> bool {
        self.covers_own() || self.covers(site)
    }

    pub(super) fn own(&self) -> SiteId {
        self.own
    }

    pub(super) fn planted(&self) -> Planted {
        self.planted
    }
}
