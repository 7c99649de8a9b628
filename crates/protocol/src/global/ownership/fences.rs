//! The fences that a site derives from its copy of the registry.

use super::trial::{Bug, Planted};
use model::{DecidedFailover, OpenFailover, SiteId};

/// The fences in effect at a site. They bind its log only: its nodes may forward requests to a
/// fenced site and check the answers afterwards.
#[derive(Clone, Copy, Debug)]
pub struct Fences<'a> {
    own: SiteId,
    open: Option<&'a OpenFailover>,
    decided: &'a [DecidedFailover],
    planted: Planted,
    /// Whether what the site owns is to be confirmed by others.
    unconfirmed: bool,
}

impl<'a> Fences<'a> {
    /// The fences of a site with this open failover in its copy of the registry.
    pub fn new(own: SiteId, open: Option<&'a OpenFailover>, planted: Planted) -> Fences<'a> {
        Fences { own, open, decided: &[], planted, unconfirmed: false }
    }

    /// The same, with the decided failovers in the site's copy of the registry. A lost site may be
    /// removed by what the others reported before the decision, until the registry has its return:
    /// no slot goes there meanwhile.
    pub fn decided(self, decided: &'a [DecidedFailover]) -> Fences<'a> {
        Fences { decided, ..self }
    }

    /// The same, of a site that may have to confirm what it owns: it was restored from a backup, or
    /// the registry was recovered without it.
    pub fn unconfirmed(self, unconfirmed: bool) -> Fences<'a> {
        Fences { unconfirmed, ..self }
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

    /// Whether this site is fenced, by a failover or as one that is not confirmed: it serves nothing and hands
    /// nothing over.
    pub fn covers_own(&self) -> bool {
        self.unconfirmed || self.open.is_some_and(|open| open.fences(self.own))
    }

    /// Whether slots must not move between this site and another one.
    pub fn part_from(&self, site: SiteId) -> bool {
        self.covers_own() || self.covers(site) || self.is_away(site) || self.is_away(self.own)
    }

    /// Whether what a site reports as safe counts: the registry lists it, and slots may pass between
    /// it and this one.
    pub fn count_reports_of(&self, site: SiteId, is_listed: bool) -> bool {
        (is_listed && !self.part_from(site)) || self.planted.is(Bug::SafeByLost)
    }

    /// Whether a site was lost, and the registry does not have its return.
    fn is_away(&self, site: SiteId) -> bool {
        let mut of_site = self.decided.iter().filter(|one| one.lost == site);
        of_site.any(|one| !one.returned) && !self.planted.is(Bug::FenceEndsAtDecision)
    }

    pub(super) fn own(&self) -> SiteId {
        self.own
    }

    pub(super) fn planted(&self) -> Planted {
        self.planted
    }
}
