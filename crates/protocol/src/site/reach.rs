//! Which other sites answer.
//!
//! A site that was asked something and sends nothing for the patience, from any of its nodes, is
//! silent until its next message. While it is silent all its nodes are asked whether they are
//! there, so that this does not last longer than it must.

use super::Site;
use crate::global::routing::PATIENCE;
use model::SiteId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::across::{AcrossSay, Alive};

/// A site that was asked and has sent nothing for this long cannot be reached: what was sent there
/// and may be done once only is in doubt.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// How often a silent site is asked whether it is there.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// When each site's last message came, and since when it has not answered.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    heard: BTreeMap<SiteId, Duration>,
    /// The first question since then.
    asked: BTreeMap<SiteId, Duration>,
    next_ask: Duration,
}

impl Reach {
    /// A message of a site has come.
    pub(super) fn heard(&mut self, site: SiteId, now: Duration) {
        self.heard.insert(site, now);
        self.asked.remove(&site);
    }

    /// A site is asked something.
    pub(super) fn asked(&mut self, site: SiteId, now: Duration) {
        self.asked.entry(site).or_insert(now);
    }

    /// Whether a site was asked and has sent nothing for the patience.
    pub(super) fn is_silent(&self, site: SiteId, now: Duration) -> bool {
        self.asked.get(&site).is_some_and(|since| *since + PATIENCE <= now)
    }

    /// The sites that cannot be reached: each was asked several times and has sent nothing at all.
    pub(super) fn lost(&self, now: Duration) -> BTreeSet<SiteId> {
        let lost = self.asked.iter().filter(|(_, since)| **since + LOST_AFTER <= now);
        lost.map(|(site, _)| *site).collect()
    }

    /// The sites that are silent at the moment.
    pub(super) fn silent(&self, now: Duration) -> BTreeSet<SiteId> {
        let silent = self.asked.iter().filter(|(_, since)| **since + PATIENCE <= now);
        silent.map(|(site, _)| *site).collect()
    }

    /// Whether a message of a site has come since then.
    pub(crate) fn is_heard_since(&self, site: SiteId, since: Duration) -> bool {
        self.heard.get(&site).is_some_and(|at| *at >= since)
    }

    /// Whether a message of a site has come lately.
    pub(super) fn is_heard(&self, site: SiteId, now: Duration) -> bool {
        self.heard.get(&site).is_some_and(|at| *at + PATIENCE > now)
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Asks all nodes of a site whether they are there.
    pub(super) fn ask_alive(&mut self, site: SiteId) {
        self.deployment.reach.asked(site, self.now.monotonic);
        for node in self.nodes_of(site) {
            self.say_across(site, node, AcrossSay::Alive(Alive { asks: true }));
        }
    }

    pub(super) fn tick_reach(&mut self) {
        let now = self.now.monotonic;
        if self.deployment.reach.next_ask > now || self.deployment.reach.asked.is_empty() {
            return;
        }
        self.deployment.reach.next_ask = now + ASK_AGAIN;
        let Some(member) = self.machine.membership() else { return };
        let registry = member.registry.clone();
        self.deployment.reach.asked.retain(|site, _| registry.site(*site).is_some());
        let waits =
            |(site, since): (&SiteId, &Duration)| (*since + ASK_AGAIN <= now).then_some(*site);
        let silent: Vec<SiteId> = self.deployment.reach.asked.iter().filter_map(waits).collect();
        silent.into_iter().for_each(|site| self.ask_alive(site));
    }
}
