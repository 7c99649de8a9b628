//! This site's part in its deployment: what its leader does, all of it from durable state.
//!
//! - A site that is to begin a deployment begins it.
//! - The registry reaches every site: the maker of a new version sends it to the others at once,
//!   and every site sends its version to another one now and then ([`super::versions`]).
//! - The registry has the addresses of this site's nodes.
//! - Its leader's jobs are polled ([`super::jobs`]).

use super::inter_site::{Outbox, name_of};
use super::jobs::When;
use super::machine::global::tokens::Token;
use super::maps::Maps;
use super::registrars::Changes;
use super::ring::OnRing;
use super::{Options, Origin, Output, Site};
use crate::deployment::failure_detector::FailureDetector;
use crate::deployment::versions::Versions;
use crate::global::handover::Progress;
use model::{
    Ballot, Body, Command, DeploymentCommand, NodeEntry, NodeId, RegistryChange, SiteEntry, SiteId,
    SiteName, Slot, SlotEpochs, SlotRun,
};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::InterSite;

/// How often this node sends its registry's version to another site.
const GOSSIP_INTERVAL: Duration = Duration::from_millis(1_000);
/// How often this site's description is compared with the registry.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What a node holds of its deployment beside the state: other sites, the registry, the ring and
/// the map, and what leaves for other sites.
pub(super) struct Deployment {
    pub(super) failure_detector: FailureDetector,
    pub(super) versions: Versions,
    pub(super) changes: Changes,
    pub(super) gossip: Gossip,
    pub(super) maps: Maps,
    pub(super) ring: OnRing,
    /// Lookups on the ring that ended, and the messages that they took.
    pub(super) hops: (u64, u64),
    pub(super) outbox: Outbox,
}

impl Deployment {
    pub(super) fn new(options: &Options) -> Deployment {
        Deployment {
            failure_detector: FailureDetector::default(),
            versions: Versions::default(),
            changes: Changes::new(options.client, options.seed, options.planted),
            gossip: Gossip::default(),
            maps: Maps::new(options.seed ^ options.client.0),
            ring: OnRing::new(options.client),
            hops: (0, 0),
            outbox: Outbox::default(),
        }
    }
}

/// What this node has sent, and when it looks again.
#[derive(Debug, Default)]
pub(super) struct Gossip {
    /// The version that the shell has.
    known: Option<Ballot>,
    next_gossip: Duration,
    next_look: Duration,
    /// The turn of the next site to send to.
    turn: usize,
    next_founding: Duration,
    /// The term in which it has notified all sites that it leads.
    led_in: Option<u64>,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// What was applied may have changed what this site holds, and its records of others.
    pub(super) fn follow_deployment(&mut self) {
        let changed = self.machine.take_changed_tokens();
        if !changed.is_empty() {
            self.jobs.balance.wake();
            self.feed_map(&changed);
            self.global.routing.wake();
            self.jobs.handover.wake(self.now.monotonic);
            self.jobs.mirror.wake(&changed);
            let held = self.machine.tokens(changed.runs()).filter_map(|(run, token)| match token {
                Token::Held(epoch) => Some((run, epoch)),
                _ => None,
            });
            let held = SlotEpochs::of_runs(held);
            self.drop_copies_of(&held);
            if !held.0.is_empty() {
                self.outputs.push_back(Output::Holds(held));
            }
        }
        let borrowed = self.machine.take_borrowed_slots();
        borrowed.iter().for_each(|slot| self.global.cache.drop_slot(slot));
        if self.machine.take_changed_loans() {
            self.jobs.lend.changes += 1;
            self.global.routing.wake();
        }
        self.follow_ring();
        let Some(member) = self.machine.membership() else { return };
        let version = member.registry.version;
        if self.deployment.gossip.known == Some(version) {
            return;
        }
        let (own, registry) = (member.own, member.registry.clone());
        self.global.preferred_owners.follow(&registry);
        self.global.cache.follow(&registry.keyspaces);
        self.follow_backup();
        self.global.routing.forget_gone(|site| registry.site(site).is_some());
        self.deployment.versions.forget_gone(|site| registry.site(site).is_some());
        let is_first = self.deployment.gossip.known.replace(version).is_none();
        let hands_in = self.machine.to_hand_in();
        let joins = hands_in.is_some_and(|kept| kept.joins.iter().any(|site| site.id == own));
        let has_left = registry.site(own).is_none() && !joins;
        self.outputs.push_back(Output::Deployment { own, registry, has_left });
        self.global.routing.wake();
        // Its maker sends it to all sites; one that misses that learns of it by any message.
        if self.leads() && version.site == own && !is_first {
            self.report_to_all(true);
        }
    }

    /// Whether there is no other site in the deployment.
    pub(super) fn is_alone(&self) -> bool {
        match self.machine.membership() {
            Some(member) => member.registry.sites.len() <= 1 && self.is_well_described(),
            None => self.options.founding.is_none(),
        }
    }

    pub(super) fn tick_deployment(&mut self) {
        let now = self.now.monotonic;
        let mut settled = Vec::new();
        let machine = &self.machine;
        self.global.routing.give_up(now, |site| name_of(machine, site), &mut settled);
        self.settle(settled);
        self.fail_over_from_silent();
        self.found();
        if self.machine.membership().is_none() {
            return;
        }
        self.tick_counting();
        self.run_jobs(When::Counted);
        self.tick_ring();
        self.tick_map();
        self.tick_backups();
        self.take_waiting_messages();
        self.tick_views();
        let leads_in = self.leads_in();
        if std::mem::replace(&mut self.deployment.gossip.led_in, leads_in) != leads_in
            && leads_in.is_some()
        {
            // Where to send clients from now on.
            self.report_to_all(false);
        }
        if self.deployment.gossip.next_gossip <= now {
            self.deployment.gossip.next_gossip = now + GOSSIP_INTERVAL;
            self.report_to_one();
        }
        if self.deployment.gossip.next_look <= now {
            self.deployment.gossip.next_look = now + LOOK_INTERVAL;
            self.describe();
            self.tend_registry();
            self.run_jobs(When::Look);
        }
    }

    fn found(&mut self) {
        let Some((deployment, site)) = &self.options.founding else { return };
        let now = self.now.monotonic;
        let is_due = self.deployment.gossip.next_founding <= now;
        if self.leads() && self.machine.membership().is_none() && is_due {
            self.deployment.gossip.next_founding = now + LOOK_INTERVAL;
            let failure_domain = SiteEntry::domain(self.options.failure_domain.as_ref(), None);
            let nodes = self.described_nodes();
            let borrowed_bytes_max = SiteEntry::limit(self.options.borrowed_bytes_max, None);
            let site = SiteEntry { nodes, failure_domain, borrowed_bytes_max, ..site.clone() };
            self.propose(Command::Deployment(DeploymentCommand::Found {
                deployment: *deployment,
                site,
            }));
        }
    }

    // ---- the registry ---------------------------------------------------------------------------

    /// The site's nodes as they should stand in the registry.
    fn described_nodes(&self) -> Vec<NodeEntry> {
        let known = self.machine.membership();
        let known = known.and_then(|member| member.registry.site(member.own));
        let describe = |member: &wire::peer::Member| {
            let node = NodeId(member.node);
            let mut cluster = known
                .and_then(|site| site.nodes.iter().find(|entry| entry.node == node))
                .map(|entry| entry.cluster.clone())
                .unwrap_or_default();
            if node == self.options.node {
                cluster.clone_from(&self.options.cluster_address);
            }
            NodeEntry { node, peer: member.address.clone(), cluster }
        };
        self.replica.members.nodes.iter().map(describe).collect()
    }

    fn described_domain(&self, entry: &SiteEntry) -> Option<SiteName> {
        SiteEntry::domain(self.options.failure_domain.as_ref(), entry.failure_domain.as_ref())
    }

    fn described_limit(&self, entry: &SiteEntry) -> Option<u64> {
        SiteEntry::limit(self.options.borrowed_bytes_max, entry.borrowed_bytes_max)
    }

    fn is_well_described(&self) -> bool {
        let Some(member) = self.machine.membership() else { return true };
        let Some(entry) = member.registry.site(member.own) else { return true };
        // What the site's nodes are started with may differ while they are restarted one by one.
        let is_stated = entry.failure_domain == self.described_domain(entry)
            && entry.borrowed_bytes_max == self.described_limit(entry);
        (is_stated || !self.leads()) && entry.nodes == self.described_nodes()
    }

    /// Keeps the registry's entries of this site and this node up to date.
    fn describe(&mut self) {
        let Some(member) = self.machine.membership() else { return };
        if self.replica.members.nodes.is_empty() || self.is_well_described() {
            return;
        }
        let Some(entry) = member.registry.site(member.own) else { return };
        let nodes = self.described_nodes();
        let change = if self.leads() {
            let failure_domain = self.described_domain(entry);
            let borrowed_bytes_max = self.described_limit(entry);
            let stated = SiteEntry { nodes, failure_domain, borrowed_bytes_max, ..entry.clone() };
            RegistryChange::Update(stated)
        } else {
            let own = nodes.into_iter().find(|node| node.node == self.options.node);
            let stands = |own: &NodeEntry| entry.nodes.contains(own);
            let Some(own) = own.filter(|own| !stands(own)) else { return };
            RegistryChange::Node(entry.id, own)
        };
        let deadline = self.now.monotonic + 4 * LOOK_INTERVAL;
        match self.leads() {
            true => self.change_registry(Origin::Discard, change, deadline),
            false => {
                let body = Body::Registry { change: Box::new(change), id: None };
                self.take_here(Origin::Discard, body, deadline);
            }
        }
    }

    pub(super) fn other_sites(&self) -> Vec<SiteId> {
        let Some(member) = self.machine.membership() else { return Vec::new() };
        let sites = member.registry.sites.iter().map(|site| site.id);
        sites.filter(|site| *site != member.own).collect()
    }

    fn report(&mut self, site: SiteId, whole: bool) {
        let nodes = self.nodes_of(site);
        if let (Some(node), Some(gossip)) =
            (self.global.routing.node_of(site, &nodes), self.gossip_of(whole))
        {
            self.send_inter_site(site, node, InterSite::Registry(gossip));
        }
    }

    fn report_to_all(&mut self, whole: bool) {
        for site in self.other_sites() {
            self.report(site, whole);
        }
    }

    fn report_to_one(&mut self) {
        let sites = self.other_sites();
        if !self.leads() || sites.is_empty() {
            return;
        }
        self.deployment.gossip.turn = self.deployment.gossip.turn.wrapping_add(1);
        self.report(sites[self.deployment.gossip.turn % sites.len()], false);
    }

    // ---- what is shown --------------------------------------------------------------------------

    /// The slots that this site holds and does not give away just now, and those that hold
    /// something.
    pub fn held_slots(&self) -> (Vec<Slot>, Vec<Slot>) {
        let held = |slot: &Slot| matches!(self.machine.token(*slot), Token::Held(_));
        let runs = self.machine.tokens(std::iter::once(SlotRun::ALL));
        let runs = runs.filter(|(_, token)| matches!(token, Token::Held(_)));
        let all = runs.flat_map(|(run, _)| run.slots()).collect();
        let used = self.machine.used_slots().into_iter().filter(held).collect();
        (all, used)
    }

    /// This replica's copy of the registry; `None`: its site belongs to no deployment.
    pub fn registry(&self) -> Option<std::sync::Arc<model::Registry>> {
        self.machine.membership().map(|member| member.registry.clone())
    }

    /// This site's record of its right to a slot.
    pub fn token(&self, slot: Slot) -> Token {
        self.machine.token(slot)
    }

    /// The epoch at which this site serves a slot, by this replica's state; `None`: it does not.
    pub fn serves(&self, slot: Slot) -> Option<model::Epoch> {
        self.machine.serves(slot).then(|| self.machine.token(slot).epoch())
    }

    /// As [`Site::serves`], and a slot up to which the answer is the same.
    pub fn serves_run(&self, slot: Slot) -> (Slot, Option<model::Epoch>) {
        (self.machine.token_run(slot).0, self.serves(slot))
    }

    /// How far the moves of this site have come.
    pub fn moves(&self) -> Vec<Progress> {
        self.jobs.handover.progress(&self.machine)
    }
}
