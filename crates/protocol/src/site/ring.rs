//! This site on the ring: its leader keeps the pointers right, every node answers and looks up.
//!
//! The pointers are part of the replicated state, so each node of the site can answer the next step
//! of another site's lookup, and begin lookups of its own. What changes them is the leader's driver
//! ([`crate::global::ring::driver`]); when it has changed something it is put into the state. A
//! message for the leader is answered by other nodes with the leader's id.

use super::{Origin, Site};
use crate::global::ring::{
    Driver, LOOKUP_TIMEOUT, LookupOutput, Lookups, Point, Ring, RingOutput, virtual_count,
};
use model::{ClientId, Command, DeploymentCommand, NodeId, SiteId, Slot, limits};
use prost::Message as _;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::inter_site::{InterSite, InterSiteAnswers};
use wire::ring::{Content, RingMessage};

/// Pointers are put into the state this often at most.
const KEEP_INTERVAL: Duration = Duration::from_millis(500);

/// A node's part in the ring.
pub(super) struct OnRing {
    /// The pointers as the state has them.
    kept: Ring,
    kept_bytes: model::Bytes,
    /// The leader's upkeep of them.
    driver: Option<Driver>,
    lookups: Lookups,
    /// Which slot is looked up by which lookup.
    wanted: BTreeMap<u64, Slot>,
    next_keep: Duration,
    leaving: bool,
    /// How often the pointers, or the driver that keeps them, have changed.
    changes: u64,
}

impl OnRing {
    pub(super) fn new(process: ClientId) -> OnRing {
        OnRing {
            kept: Ring::empty(SiteId(0), 1),
            kept_bytes: model::Bytes::new(),
            driver: None,
            lookups: Lookups::new(process.0, LOOKUP_TIMEOUT),
            wanted: BTreeMap::new(),
            next_keep: Duration::ZERO,
            leaving: false,
            changes: 0,
        }
    }
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// The pointers of this site, as this node has them.
    pub fn ring(&self) -> &Ring {
        self.deployment.ring.driver.as_ref().map_or(&self.deployment.ring.kept, Driver::ring)
    }

    /// The sites that this node, if it leads, takes for dead on the ring.
    pub fn ring_suspects(&self) -> impl Iterator<Item = SiteId> + '_ {
        self.deployment.ring.driver.iter().flat_map(Driver::suspects)
    }

    /// How often this node has seen its pointers change. It begins with 0 at each start.
    pub fn ring_changes(&self) -> u64 {
        self.deployment.ring.changes
    }

    /// Whether this node leads, and its pointers count: others have taken the site in since it
    /// leads.
    pub fn is_on_ring(&self) -> bool {
        self.deployment.ring.driver.as_ref().is_some_and(Driver::is_confirmed)
    }

    /// The state's pointers may be other ones now.
    pub(super) fn follow_ring(&mut self) {
        let bytes = self.machine.ring();
        if *bytes == self.deployment.ring.kept_bytes {
            return;
        }
        if let Ok(ring) = Ring::decode(bytes) {
            self.deployment.ring.kept = ring;
        }
        self.deployment.ring.kept_bytes = bytes.clone();
    }

    pub(super) fn tick_ring(&mut self) {
        let now = self.now.monotonic;
        self.deployment.ring.lookups.timeout(now, &self.deployment.ring.kept);
        self.drive_ring(now);
        self.send_ring(now);
    }

    /// The leader's part.
    fn drive_ring(&mut self, now: Duration) {
        let Some(member) = self.machine.membership() else { return };
        if !self.leads() {
            self.deployment.ring.changes += u64::from(self.deployment.ring.driver.take().is_some());
            return;
        }
        let own = member.own;
        let others: Vec<SiteId> =
            member.registry.sites.iter().map(|site| site.id).filter(|site| *site != own).collect();
        let entry = member.registry.site(own);
        let leaving = entry.is_none_or(|entry| entry.leaving);
        let capacity = entry.map_or(1.0, |entry| f64::from(entry.capacity_percent) / 100.0);
        if self.deployment.ring.driver.is_none() {
            let known = self.deployment.ring.kept.site() == own;
            let ring = match (known, member.founder) {
                (true, _) => self.deployment.ring.kept.clone(),
                (false, true) => Ring::alone(own, virtual_count(capacity)),
                (false, false) => Ring::empty(own, virtual_count(capacity)),
            };
            let seed = self.options.seed ^ self.replica.raft.term();
            let mut driver = Driver::new(ring, seed);
            if let Some(via) = others.first().filter(|_| !driver.ring().is_member() && !leaving) {
                driver.join(now, *via);
            }
            self.deployment.ring.leaving = false;
            self.deployment.ring.changes += 1;
            self.deployment.ring.driver = Some(driver);
        }
        let Some(driver) = &mut self.deployment.ring.driver else { return };
        if leaving && !std::mem::replace(&mut self.deployment.ring.leaving, leaving) {
            driver.leave(now);
        }
        if !leaving {
            driver.remind(now, &others);
        }
        driver.timeout(now);
    }

    /// Handles a message of another site about the ring.
    pub(super) fn take_ring(&mut self, site: SiteId, node: NodeId, message: model::Bytes) {
        let Ok(message) = RingMessage::decode(message) else { return };
        let now = self.now.monotonic;
        match &message.content {
            Some(Content::Find(find)) => {
                let mut find = find.clone();
                find.without.truncate(limits::RING_AVOIDED_MAX);
                let found = RingMessage::from(Content::Found(self.ring().answer(&find)));
                let found = InterSite::Ring(found.encode_to_vec().into());
                return self.send_inter_site(site, node, found);
            }
            Some(Content::Found(found))
                if self.deployment.ring.lookups.handle(
                    now,
                    site,
                    found,
                    &self.deployment.ring.kept,
                ) =>
            {
                return self.send_ring(now);
            }
            _ => {}
        }
        match &mut self.deployment.ring.driver {
            Some(driver) => driver.handle(now, site, message),
            None => {
                // Only the leader can answer that.
                let leader = self.replica.raft.leader().map_or(0, |leader| leader.0);
                let answered = InterSiteAnswers { answers: Vec::new(), leader };
                return self.send_inter_site(site, node, InterSite::Answered(answered));
            }
        }
        self.send_ring(now);
    }

    pub(super) fn ring_lost(&mut self, site: SiteId) {
        let now = self.now.monotonic;
        self.deployment.ring.lookups.unreachable(now, site, &self.deployment.ring.kept);
        if let Some(driver) = &mut self.deployment.ring.driver {
            driver.unreachable(now, site);
        }
        self.send_ring(now);
    }

    /// Looks up who is responsible for a slot, for a request that has not come back yet. `false`:
    /// the ring is of no use here.
    pub(super) fn looks_up(&mut self, slot: Slot, request: u64) -> bool {
        if self.global.routing.returns(request) > 1 || !self.deployment.ring.kept.is_member() {
            return false;
        }
        let now = self.now.monotonic;
        let id = self.deployment.ring.lookups.begin(
            now,
            Point::of_slot(slot),
            &self.deployment.ring.kept,
        );
        self.deployment.ring.wanted.insert(id, slot);
        self.send_ring(now);
        true
    }

    /// Sends the ring's messages, and keeps its changes.
    fn send_ring(&mut self, now: Duration) {
        let mut messages = Vec::new();
        while let Some(output) = self.deployment.ring.driver.as_mut().and_then(Driver::poll) {
            match output {
                RingOutput::Send { to, message } => messages.push((to, message)),
                // What is kept is compared with what there is anyway.
                RingOutput::Changed => self.deployment.ring.changes += 1,
            }
        }
        while let Some(output) = self.deployment.ring.lookups.poll() {
            match output {
                LookupOutput::Send { to, message } => messages.push((to, message)),
                LookupOutput::Done { id, site, hops, .. } => {
                    let own = self.machine.membership().map(|member| member.own);
                    self.deployment.hops =
                        (self.deployment.hops.0 + 1, self.deployment.hops.1 + u64::from(hops));
                    let Some(slot) = self.deployment.ring.wanted.remove(&id) else { continue };
                    // This site registers the slot and has no other owner: the slot is at its
                    // preferred one.
                    let site = if Some(site) == own {
                        self.global.preferred_owners.of(slot)
                    } else {
                        Some(site)
                    };
                    if let Some(site) = site.filter(|site| Some(*site) != own) {
                        self.global.routing.guess(slot, site);
                        self.global.routing.wake();
                    }
                }
                LookupOutput::Failed { id, .. } => drop(self.deployment.ring.wanted.remove(&id)),
            }
        }
        for (to, message) in messages {
            let nodes = self.nodes_of(to);
            if let Some(node) = self.global.routing.node_of(to, &nodes) {
                self.send_inter_site(to, node, InterSite::Ring(message.encode_to_vec().into()));
            }
        }
        if self.deployment.ring.next_keep > now || !self.leads() || self.replica.disk_full.is_some()
        {
            return;
        }
        self.deployment.ring.next_keep = now + KEEP_INTERVAL;
        let Some(driver) = &self.deployment.ring.driver else { return };
        let pointers = driver.ring().encode();
        if pointers[..] != self.deployment.ring.kept_bytes[..] {
            let deadline = now + limits::REQUEST_DEADLINE;
            let command = Command::Deployment(DeploymentCommand::SetRing(pointers.into()));
            self.take_write(Origin::Discard, command, deadline);
        }
    }
}
