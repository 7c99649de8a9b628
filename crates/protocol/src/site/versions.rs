//! Every message between sites carries the registry version of its sender, and the older side takes
//! over the newer registry first.
//!
//! A site that receives an older version sends its own registry, which the other site appends to
//! its log, and continues. A site that receives a newer version asks for that registry and holds
//! the message back until this node has it: the message may depend on it. The wait is short: no
//! safety rests on it, and a site that cannot write its log now still answers reads. Answers, signs
//! of life, and messages about the registry and the ring do not wait.

use super::{Origin, Site};
use model::{Ballot, Body, Command, DeploymentCommand, NodeId, Registry, SiteId, limits};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::across::{Across, AcrossSay, RegistryNews};
use wire::entry;

/// The interval at which a site is at most sent, or asked for, one version.
const AGAIN: Duration = Duration::from_millis(300);
/// A message that has waited this long is handled with the present registry.
const PATIENCE: Duration = Duration::from_millis(500);

/// Messages that wait for a newer registry, and the versions sent to and received from each site.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// In the order in which their waits end.
    ahead: VecDeque<Ahead>,
    ahead_bytes: usize,
    /// The version that waiting messages were last compared with.
    looked_at: Option<Ballot>,
    /// The version that each site has reported.
    known: BTreeMap<SiteId, Ballot>,
    sent: BTreeMap<SiteId, (Ballot, Duration)>,
    wanted: BTreeMap<SiteId, (Ballot, Duration)>,
    /// The version on its way into the log.
    learning: Option<(Ballot, Duration)>,
}

#[derive(Debug)]
struct Ahead {
    site: SiteId,
    node: NodeId,
    version: Ballot,
    until: Duration,
    bytes: usize,
    say: AcrossSay,
}

impl Versions {
    /// Queues a message, unless there is no room.
    fn push(&mut self, one: Ahead) -> Option<AcrossSay> {
        let is_full = self.ahead.len() >= limits::MESSAGES_AHEAD_MAX
            || self.ahead_bytes + one.bytes > limits::MESSAGES_AHEAD_BYTES_MAX;
        if is_full {
            return Some(one.say);
        }
        self.ahead_bytes += one.bytes;
        self.ahead.push_back(one);
        None
    }

    /// Removes the messages that need not wait any more, now that this node has this version.
    fn take_ready(&mut self, own: Ballot, now: Duration) -> Vec<Ahead> {
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

    fn is_due(
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
    pub(super) fn forget_gone(&mut self, is_there: impl Fn(SiteId) -> bool) {
        self.known.retain(|site, _| is_there(*site));
        self.sent.retain(|site, _| is_there(*site));
        self.wanted.retain(|site, _| is_there(*site));
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    fn own_version(&self) -> Option<Ballot> {
        Some(self.machine.membership()?.registry.version)
    }

    /// An outgoing message with this site's version.
    pub(super) fn stamped(&self, say: AcrossSay) -> Across {
        Across { say: Some(say), version: self.own_version().map(Into::into) }
    }

    /// Whether a site's message can be handled now. Otherwise it waits until it can.
    pub(super) fn is_of_known_registry(
        &mut self,
        site: SiteId,
        node: NodeId,
        message: Across,
    ) -> Option<AcrossSay> {
        let now = self.now.monotonic;
        let say = message.say?;
        // A version without registrars is carried in the news only.
        let by_news = match &say {
            AcrossSay::Registry(news) => Some(Registry::version_of_before(news.version)),
            _ => None,
        };
        let version = message.version.map(Ballot::from).or(by_news);
        let (Some(version), Some(own)) = (version, self.own_version()) else { return Some(say) };
        let known = self.deployment.versions.known.entry(site).or_default();
        *known = version.max(*known);
        if version < own {
            if Versions::is_due(&mut self.deployment.versions.sent, site, own, now) {
                self.send_registry(site, node);
            }
            return Some(say);
        }
        if version == own {
            return Some(say);
        }
        let brings_it = matches!(&say, AcrossSay::Registry(news) if !news.registry.is_empty());
        if !brings_it && Versions::is_due(&mut self.deployment.versions.wanted, site, version, now)
        {
            // The site with the newer registry sends it.
            self.say_version(site, node);
        }
        if !matches!(say, AcrossSay::Forward(_) | AcrossSay::Mirror(_)) {
            return Some(say);
        }
        let bytes = say.encoded_len();
        self.deployment.versions.push(Ahead {
            site,
            node,
            version,
            until: now + PATIENCE,
            bytes,
            say,
        })
    }

    /// Handles the messages that have waited for this node's registry, or long enough.
    pub(super) fn take_waiting_messages(&mut self) {
        let Some(own) = self.own_version().filter(|_| !self.deployment.versions.ahead.is_empty())
        else {
            return;
        };
        let now = self.now.monotonic;
        for one in self.deployment.versions.take_ready(own, now) {
            self.take_say(one.site, one.node, one.say);
        }
    }

    pub(super) fn news_of(&self, whole: bool) -> Option<RegistryNews> {
        let member = self.machine.membership()?;
        let registry = match whole {
            true => entry::encode_registry(&member.registry),
            false => bytes::Bytes::new(),
        };
        let leader = self.replica.raft.leader().map_or(0, |leader| leader.0);
        Some(RegistryNews { version: member.registry.changes, registry, leader })
    }

    fn send_registry(&mut self, site: SiteId, node: NodeId) {
        if let Some(news) = self.news_of(true) {
            self.say_across(site, node, AcrossSay::Registry(news));
        }
    }

    fn say_version(&mut self, site: SiteId, node: NodeId) {
        if let Some(news) = self.news_of(false) {
            self.say_across(site, node, AcrossSay::Registry(news));
        }
    }

    /// Handles another site's news: its leader, and perhaps its registry version.
    pub(super) fn take_news(&mut self, site: SiteId, news: RegistryNews) {
        if news.leader != 0 {
            self.global.routing.learn_leader(site, NodeId(news.leader));
        }
        if news.registry.is_empty() {
            return;
        }
        let Ok(registry) = entry::decode_registry(news.registry) else { return };
        let now = self.now.monotonic;
        let Some(own) = self.own_version() else { return };
        let is_under_way =
            |(version, at): (Ballot, Duration)| version >= registry.version && at + AGAIN * 3 > now;
        if registry.version <= own || self.deployment.versions.learning.is_some_and(is_under_way) {
            return;
        }
        self.deployment.versions.learning = Some((registry.version, now));
        let body =
            Body::Write(Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(registry))));
        let deadline = now + limits::REQUEST_DEADLINE;
        self.take_here(Origin::Nobody, body, deadline);
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
        let say = AcrossSay::Forward(Forward::default());
        Ahead { site, node, version: version(round), until, bytes, say }
    }

    #[test]
    fn what_waits_is_taken_with_its_registry_or_when_its_patience_ends() {
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

    /// A decision that only the other side of a recovery has chosen: versions of the new term are later
    /// than it, and do not contain it.
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
