//! The versions of the registry at each site, and the messages that wait for a newer one.
//!
//! See `site::versions`, which sends and takes them.

use model::{Ballot, NodeId, SiteId, limits};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::inter_site::InterSite;

/// The interval at which a site is at most sent, or asked for, one version.
pub(crate) const AGAIN: Duration = Duration::from_millis(300);
/// A message that has waited this long is handled with the present registry.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// Messages that wait for a newer registry, and the versions sent to and received from each site.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// In the order in which their waits end.
    pub(crate) ahead: VecDeque<Ahead>,
    ahead_bytes: usize,
    /// The version that waiting messages were last compared with.
    pub(crate) looked_at: Option<Ballot>,
    /// The version that each site has reported.
    pub(crate) known: BTreeMap<SiteId, Ballot>,
    pub(crate) sent: BTreeMap<SiteId, (Ballot, Duration)>,
    pub(crate) wanted: BTreeMap<SiteId, (Ballot, Duration)>,
    /// The version on its way into the log.
    pub(crate) learning: Option<(Ballot, Duration)>,
}

#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) site: SiteId,
    pub(crate) node: NodeId,
    pub(crate) version: Ballot,
    pub(crate) until: Duration,
    pub(crate) bytes: usize,
    pub(crate) message: InterSite,
}

impl Versions {
    /// Queues a message, unless there is no room.
    pub(crate) fn push(&mut self, one: Ahead) -> Option<InterSite> {
        let is_full = self.ahead.len() >= limits::MESSAGES_AHEAD_MAX
            || self.ahead_bytes + one.bytes > limits::MESSAGES_AHEAD_BYTES_MAX;
        if is_full {
            return Some(one.message);
        }
        self.ahead_bytes += one.bytes;
        self.ahead.push_back(one);
        None
    }

    /// Removes the messages that need not wait any more, now that this node has this version.
    pub(crate) fn take_ready(&mut self, own: Ballot, now: Duration) -> Vec<Ahead> {
        let mut ready = Vec::new();
        if self.looked_at.replace(own) != Some(own) {
            for one in std::mem::take(&mut self.ahead) {
                match one.version <= own {
                    true => ready.push(one),
                    false => self.ahead.push_back(one),
                }
            }
        }
        while self.ahead.front().is_some_and(|one| one.until <= now) {
            ready.extend(self.ahead.pop_front());
        }
        self.ahead_bytes -= ready.iter().map(|one| one.bytes).sum::<usize>();
        ready
    }

    /// Whether a site is to be sent, or asked for, a version now.
    pub(crate) fn is_due(
        of: &mut BTreeMap<SiteId, (Ballot, Duration)>,
        site: SiteId,
        version: Ballot,
        now: Duration,
    ) -> bool {
        let before = of.get(&site);
        let is_due = before.is_none_or(|(known, at)| *known < version || *at + AGAIN <= now);
        if is_due {
            of.insert(site, (version, now));
        }
        is_due
    }

    /// Whether a site has reported a version, or a later one of its term. Those of later terms need
    /// not contain it.
    pub(crate) fn has(&self, site: SiteId, version: Ballot) -> bool {
        let has = |known: &Ballot| known.term == version.term && *known >= version;
        self.known.get(&site).is_some_and(has)
    }

    /// Drops sites that have left.
    pub(crate) fn forget_gone(&mut self, is_there: impl Fn(SiteId) -> bool) {
        self.known.retain(|site, _| is_there(*site));
        self.sent.retain(|site, _| is_there(*site));
        self.wanted.retain(|site, _| is_there(*site));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Term;
    use wire::peer::Forward;

    fn version(round: u64) -> Ballot {
        Ballot { term: Term::default(), round, site: SiteId(1) }
    }

    fn ahead(round: u64, until_ms: u64, bytes: usize) -> Ahead {
        let (site, node, until) = (SiteId(2), NodeId(1), Duration::from_millis(until_ms));
        let message = InterSite::Forward(Forward::default());
        Ahead { site, node, version: version(round), until, bytes, message }
    }

    #[test]
    fn what_waits_is_taken_with_its_registry_or_when_its_timeout_ends() {
        let mut versions = Versions::default();
        for (round, until_ms) in [(3, 500), (2, 510), (3, 520)] {
            assert_eq!(versions.push(ahead(round, until_ms, 10)), None);
        }
        let mut take = |round, now_ms| -> Vec<u64> {
            let ready = versions.take_ready(version(round), Duration::from_millis(now_ms));
            ready.iter().map(|one| one.version.round).collect()
        };
        assert_eq!(take(1, 400), [0; 0]);
        assert_eq!(take(2, 400), [2]);
        assert_eq!(take(2, 500), [3], "it is not dropped");
        assert_eq!(take(2, 600), [3]);
        assert_eq!((versions.ahead_bytes, versions.ahead.len()), (0, 0));
    }

    #[test]
    fn what_finds_no_room_does_not_wait() {
        let mut versions = Versions::default();
        let half = limits::MESSAGES_AHEAD_BYTES_MAX / 2;
        assert_eq!(versions.push(ahead(2, 500, half)), None);
        assert!(versions.push(ahead(2, 500, half + 1)).is_some());
        assert_eq!(versions.push(ahead(2, 500, half)), None);
    }

    /// A decision that only the other side of a recovery has chosen: versions of the new term are
    /// later than it, and do not contain it.
    #[test]
    fn a_later_term_is_not_known_to_contain_what_an_earlier_one_decided() {
        let mut versions = Versions::default();
        let decided = version(7);
        let other_side = Ballot { term: Term { number: 1, site: SiteId(2) }, ..version(3) };
        versions.known.insert(SiteId(2), other_side);
        assert!(other_side > decided);
        assert!(!versions.has(SiteId(2), decided), "it is forgotten before that site has it");
    }
}
