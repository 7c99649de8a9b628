//! How far each site is in the order, as its leader has reported: asked for once a second while it
//! is needed, as nothing flows in a region without writes.
//!
//! A report is durable where it comes from, and a site has no less than it reported: old ones do no
//! harm. One that was restored from a backup does: it reports less for longer than a new leader,
//! which has not applied all of its log yet.

use super::{AGAIN, Region};
use model::{Position, SiteId};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::causal::{Reached, Where};

/// A report is of now for so long.
const FRESH: Duration = Duration::from_secs(5);

/// A site that is to be asked where it is; all its nodes, if it was asked `again`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ask {
    pub(super) to: SiteId,
    pub(super) message: Where,
    pub(super) again: bool,
}

/// A site that has reported less for so long has less.
const LESS_FOR: Duration = Duration::from_secs(2);

/// Since when a site reports less than before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reported {
    less_since: Option<Duration>,
}

impl Reported {
    /// How far a site is that was known to be somewhere, by what it reports now.
    pub(super) fn follow(
        &mut self,
        known: Position,
        reported: Position,
        now: Duration,
    ) -> Position {
        if reported >= known {
            self.less_since = None;
            return reported;
        }
        let since = *self.less_since.get_or_insert(now);
        if since + LESS_FOR <= now { reported } else { known }
    }
}

/// What the sites of a region have reported in one epoch.
#[derive(Debug, Default)]
pub(super) struct Reports {
    epoch: u16,
    known: BTreeMap<SiteId, (Position, Duration)>,
    reported: BTreeMap<SiteId, Reported>,
    asked: BTreeMap<SiteId, Duration>,
}

impl Reports {
    pub(super) fn of(epoch: u16) -> Reports {
        Reports { epoch, ..Reports::default() }
    }

    /// The other sites that are due to be asked.
    pub(super) fn ask(&mut self, now: Duration, region: &Region) -> Vec<Ask> {
        let others = region.layout.sites.iter().filter(|site| **site != region.own);
        others.filter_map(|site| self.ask_one(*site, now)).collect()
    }

    /// The same of one site.
    pub(super) fn ask_one(&mut self, to: SiteId, now: Duration) -> Option<Ask> {
        let at = self.asked.get(&to).copied();
        if at.is_some_and(|at| now < at + AGAIN) {
            return None;
        }
        self.asked.insert(to, now);
        let again = at.is_some() && !self.is_fresh(to, now);
        Some(Ask { to, message: Where { epoch: u32::from(self.epoch) }, again })
    }

    /// A site's leader reports.
    pub(super) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        if message.epoch == u32::from(self.epoch) {
            let reported = self.reported.entry(site).or_default();
            let known = self.known.get(&site).map(|(applied, _)| *applied).unwrap_or_default();
            let applied = reported.follow(known, Position(message.applied), now);
            self.known.insert(site, (applied, now));
        }
    }

    /// What a site has reported counts no more.
    pub(super) fn forget(&mut self, site: SiteId) {
        self.known.remove(&site);
    }

    pub(super) fn is_fresh(&self, site: SiteId, now: Duration) -> bool {
        self.known.get(&site).is_some_and(|(_, at)| *at + FRESH > now)
    }

    /// How far a site is at least.
    pub(super) fn applied(&self, site: SiteId) -> Position {
        self.known.get(&site).map_or(Position(0), |(applied, _)| *applied)
    }

    /// When a site is asked next.
    pub(super) fn next_due(&self) -> impl Iterator<Item = Duration> {
        self.asked.values().map(|at| *at + AGAIN)
    }
}
