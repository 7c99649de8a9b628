//! Which other sites answer.
//!
//! A site that was asked something and sends nothing for the timeout, from any of its nodes, is
//! silent until its next message. While it is silent all its nodes are asked whether they are
//! there, so that this does not last longer than it must.
//!
//! A site whose leader's disk is full answers, and commits nothing. Its leader sends that to the
//! other sites, which ask it until it has room.

use model::SiteId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an answer from another site is waited for before another node of it is asked.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);
/// A site that was asked and has sent nothing for this long cannot be reached: what was sent there
/// and may be done once only is in doubt.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// How often a silent site is asked whether it is there.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// When each site's last message came, and since when it has not answered.
#[derive(Debug, Default)]
pub(crate) struct FailureDetector {
    contacts: BTreeMap<SiteId, Duration>,
    /// The first question since then.
    asked: BTreeMap<SiteId, Duration>,
    /// Those whose disks are full.
    full: BTreeSet<SiteId>,
    next_ask: Duration,
    next_notice: Duration,
}

impl FailureDetector {
    /// A message of a site has come.
    pub(crate) fn record_contact(&mut self, site: SiteId, now: Duration) {
        self.contacts.insert(site, now);
        self.asked.remove(&site);
    }

    /// A site's leader has sent whether its disk is full.
    pub(crate) fn noted(&mut self, site: SiteId, is_full: bool) {
        match is_full {
            true => self.full.insert(site),
            false => self.full.remove(&site),
        };
    }

    /// The sites whose disks are full.
    pub(crate) fn full(&self) -> &BTreeSet<SiteId> {
        &self.full
    }

    /// Whether a message of a site has come since then, and its disk has room.
    pub(crate) fn may_commit_since(&self, site: SiteId, since: Duration) -> bool {
        self.had_contact_since(site, since) && !self.full.contains(&site)
    }

    /// Whether the other sites are to get to know now, as they are now and then, that this one's
    /// disk is full.
    pub(crate) fn is_to_note(&mut self, now: Duration) -> bool {
        let is_due = self.next_notice <= now;
        if is_due {
            self.next_notice = now + ASK_AGAIN;
        }
        is_due
    }

    /// A site is asked something.
    pub(crate) fn asked(&mut self, site: SiteId, now: Duration) {
        self.asked.entry(site).or_insert(now);
    }

    /// Whether a site was asked and has sent nothing for the timeout.
    pub(crate) fn is_silent(&self, site: SiteId, now: Duration) -> bool {
        self.asked.get(&site).is_some_and(|since| *since + TIMEOUT <= now)
    }

    /// The sites that cannot be reached: each was asked several times and has sent nothing at all.
    pub(crate) fn lost(&self, now: Duration) -> BTreeSet<SiteId> {
        let lost = self.asked.iter().filter(|(_, since)| **since + LOST_AFTER <= now);
        lost.map(|(site, _)| *site).collect()
    }

    /// The sites that are silent at the moment.
    pub(crate) fn silent(&self, now: Duration) -> BTreeSet<SiteId> {
        let silent = self.asked.iter().filter(|(_, since)| **since + TIMEOUT <= now);
        silent.map(|(site, _)| *site).collect()
    }

    /// Whether a message of a site has come since then.
    pub(crate) fn had_contact_since(&self, site: SiteId, since: Duration) -> bool {
        self.contacts.get(&site).is_some_and(|at| *at >= since)
    }

    /// Whether a message of a site has come lately.
    pub(crate) fn is_heard(&self, site: SiteId, now: Duration) -> bool {
        self.contacts.get(&site).is_some_and(|at| *at + TIMEOUT > now)
    }

    /// The sites to ask whether they are there, now and then; those that are gone are dropped.
    pub(crate) fn next_to_ask(
        &mut self,
        now: Duration,
        is_there: impl Fn(SiteId) -> bool,
    ) -> Vec<SiteId> {
        if self.next_ask > now || (self.asked.is_empty() && self.full.is_empty()) {
            return Vec::new();
        }
        self.next_ask = now + ASK_AGAIN;
        self.asked.retain(|site, _| is_there(*site));
        self.full.retain(|site| is_there(*site));
        let waits = |(_, since): &(&SiteId, &Duration)| **since + ASK_AGAIN <= now;
        let silent = self.asked.iter().filter(waits).map(|(site, _)| *site);
        silent.chain(self.full.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}
