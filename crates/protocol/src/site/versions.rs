//! Every message between sites carries the registry version of its sender, and the older side takes
//! over the newer registry first.
//!
//! A site that receives an older version sends its own registry, which the other site appends to
//! its log, and continues. A site that receives a newer version asks for that registry and holds
//! the message back until this node has it: the message may depend on it. The wait is short: no
//! safety rests on it, and a site that cannot write its log now still answers reads. Answers, signs
//! of life, and messages about the registry and the ring do not wait.

use super::{Origin, Site};
use crate::deployment::versions::{AGAIN, Ahead, TIMEOUT, Versions};
use model::{Ballot, Body, Command, DeploymentCommand, NodeId, SiteId, limits};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::inter_site::{InterSite, InterSiteMessage, RegistryGossip};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    fn own_version(&self) -> Option<Ballot> {
        Some(self.machine.membership()?.registry.version)
    }

    /// An outgoing message with this site's version.
    pub(super) fn stamped(&self, message: InterSite) -> InterSiteMessage {
        InterSiteMessage { content: Some(message), version: self.own_version().map(Into::into) }
    }

    /// Whether a site's message can be handled now. Otherwise it waits until it can.
    pub(super) fn is_of_known_registry(
        &mut self,
        site: SiteId,
        node: NodeId,
        message: InterSiteMessage,
    ) -> Option<InterSite> {
        let now = self.now.monotonic;
        let content = message.content?;
        let version = message.version.map(Ballot::from);
        let (Some(version), Some(own)) = (version, self.own_version()) else {
            return Some(content);
        };
        let known = self.deployment.versions.known.entry(site).or_default();
        *known = version.max(*known);
        if version < own {
            if Versions::is_due(&mut self.deployment.versions.sent, site, own, now) {
                self.send_registry(site, node);
            }
            return Some(content);
        }
        if version == own {
            return Some(content);
        }
        let brings_it =
            matches!(&content, InterSite::Registry(gossip) if !gossip.registry.is_empty());
        if !brings_it && Versions::is_due(&mut self.deployment.versions.wanted, site, version, now)
        {
            // The site with the newer registry sends it.
            self.report_version(site, node);
        }
        if !matches!(content, InterSite::Forward(_) | InterSite::Mirror(_)) {
            return Some(content);
        }
        let bytes = content.encoded_len();
        self.deployment.versions.push(Ahead {
            site,
            node,
            version,
            until: now + TIMEOUT,
            bytes,
            message: content,
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
            self.take_site_message(one.site, one.node, one.message);
        }
    }

    pub(super) fn gossip_of(&self, whole: bool) -> Option<RegistryGossip> {
        let member = self.machine.membership()?;
        let registry = match whole {
            true => entry::encode_registry(&member.registry),
            false => bytes::Bytes::new(),
        };
        let leader = self.replica.raft.leader().map_or(0, |leader| leader.0);
        Some(RegistryGossip { registry, leader })
    }

    fn send_registry(&mut self, site: SiteId, node: NodeId) {
        if let Some(gossip) = self.gossip_of(true) {
            self.send_inter_site(site, node, InterSite::Registry(gossip));
        }
    }

    fn report_version(&mut self, site: SiteId, node: NodeId) {
        if let Some(gossip) = self.gossip_of(false) {
            self.send_inter_site(site, node, InterSite::Registry(gossip));
        }
    }

    /// Handles another site's gossip: its leader, and perhaps its registry version.
    pub(super) fn take_gossip(&mut self, site: SiteId, gossip: RegistryGossip) {
        if gossip.leader != 0 {
            self.global.routing.learn_leader(site, NodeId(gossip.leader), self.now.monotonic);
        }
        if gossip.registry.is_empty() {
            return;
        }
        let Ok(registry) = entry::decode_registry(gossip.registry) else { return };
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
        self.take_here(Origin::Discard, body, deadline);
    }
}
