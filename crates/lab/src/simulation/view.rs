//! Nodes and sites as one sees them from outside.

use super::{NodeIndex, Simulation};
use model::{Epoch, NodeId, SiteId, Slot};
use protocol::global::ring::invariant;
use protocol::site::{Standing, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::state::Read;

/// What there is to the ring at a moment.
#[derive(Debug)]
pub struct JudgedRing {
    /// Whether the pointers are as they must be at every moment that keeps the promise.
    pub holds: Result<(), invariant::Violation>,
    /// Whether those of every site that is there are as they are to be in the end.
    pub is_ideal: bool,
    /// Whether the promise ends: a site on the ring takes another one on it for dead, or none is
    /// left on it.
    pub ends_promise: bool,
}

impl<C> Simulation<C> {
    /// A node's name in traces and histories.
    #[must_use]
    pub fn name(&self, node: NodeIndex) -> &str {
        &self.nodes[node].name
    }

    /// A replica as it is now; `None`: it is down.
    #[must_use]
    pub fn status(&self, node: NodeIndex) -> Option<Status> {
        let mut status = self.nodes.get(node)?.process.as_ref()?.site.status();
        let since = self.time(node).monotonic.saturating_sub(status.as_of);
        if let Some(ago) = status.mirror.as_mut().and_then(|mirror| mirror.caught_up_ago.as_mut()) {
            *ago += since;
        }
        Some(status)
    }

    /// How far a replica is; `None`: it is down. Cheap.
    #[must_use]
    pub fn standing(&self, node: NodeIndex) -> Option<Standing> {
        Some(self.nodes.get(node)?.process.as_ref()?.site.standing())
    }

    /// The log time of the last entry that a node has applied, ms; `None`: it is down.
    #[must_use]
    pub fn log_time_ms(&self, node: NodeIndex) -> Option<u64> {
        Some(self.nodes.get(node)?.process.as_ref()?.site.reader().log_time_ms())
    }

    /// Which backup a node's site last recorded as having everything, and how long ago that was, if
    /// the node leads.
    #[must_use]
    pub fn caught_up(&self, node: NodeIndex) -> Option<(SiteId, Duration)> {
        let progress = self.nodes[node].process.as_ref()?.site.mirror_progress()?;
        // As of the node's last event, which is not long ago: it is woken all the time.
        Some((progress.to, progress.caught_up_ago?))
    }

    /// Whether a node leads by its own state. Cheap.
    #[must_use]
    pub fn leads(&self, node: NodeIndex) -> bool {
        let process = self.nodes[node].process.as_ref();
        process.is_some_and(|process| process.site.leads_in().is_some())
    }

    /// The node that leads a site by its own state.
    #[must_use]
    pub fn leader(&self, site: usize) -> Option<NodeIndex> {
        let nodes = self.sites[site].nodes.iter().filter(|node| self.leads(**node));
        let standings = nodes.filter_map(|node| Some((*node, self.standing(*node)?)));
        let own = |node: NodeIndex| Some(NodeId(self.nodes[node].id));
        let leads = standings.filter(|(node, one)| one.leader == own(*node) && one.ready);
        leads.max_by_key(|(_, one)| one.term).map(|(node, _)| node)
    }

    /// Whether all nodes of a site are voters by its leader's state, and all of them have applied
    /// what it has.
    #[must_use]
    pub fn is_whole(&self, site: usize) -> bool {
        let Some(leader) = self.leader(site) else { return false };
        let Some(standing) = self.standing(leader) else { return false };
        let (nodes, id) = (&self.sites[site].nodes, NodeId(self.nodes[leader].id));
        let has_followed = |node: &NodeIndex| {
            self.standing(*node).is_some_and(|one| {
                one.applied_index == standing.last_index && one.leader == Some(id)
            })
        };
        nodes.iter().all(has_followed)
            && self.status(leader).is_some_and(|status| {
                status.members.voters.len() == nodes.len()
                    && status.members.voters_outgoing.is_empty()
                    && status.members.nodes.len() == nodes.len()
            })
    }

    /// The registry that a node has; `None`: it is down, or its site belongs to no deployment.
    #[must_use]
    pub fn registry(&self, node: NodeIndex) -> Option<std::sync::Arc<model::Registry>> {
        self.nodes[node].process.as_ref()?.site.registry()
    }

    /// The slots that a node's site holds, and those of them that hold something.
    #[must_use]
    pub fn held_slots(&self, node: NodeIndex) -> (Vec<Slot>, Vec<Slot>) {
        let process = self.nodes[node].process.as_ref();
        process.map(|process| process.site.held_slots()).unwrap_or_default()
    }

    /// The moves under way that give slots of a node's site away.
    #[must_use]
    pub fn moves(&self, node: NodeIndex) -> Vec<protocol::global::handover::Progress> {
        let process = self.nodes[node].process.as_ref();
        process.map(|process| process.site.moves()).unwrap_or_default()
    }

    /// The epoch at which a node's site serves a slot, by the node's state; `None`: it does not.
    #[must_use]
    pub fn serves(&self, node: NodeIndex, slot: Slot) -> Option<Epoch> {
        self.nodes[node].process.as_ref()?.site.serves(slot)
    }

    /// As [`Simulation::serves`], and a slot up to which it is the same.
    #[must_use]
    pub fn serves_run(&self, node: NodeIndex, slot: Slot) -> (Slot, Option<Epoch>) {
        let process = self.nodes[node].process.as_ref();
        process.map_or((Slot::LAST, None), |process| process.site.serves_run(slot))
    }

    /// A node's map of the owners of slots; `None`: it is down.
    #[must_use]
    pub fn slot_facts(&self, node: NodeIndex) -> Option<&protocol::global::map::Facts> {
        Some(self.nodes[node].process.as_ref()?.site.slot_facts())
    }

    /// What a node would show of where slots are; `None`: it is down.
    #[must_use]
    pub fn map_view(&self, node: NodeIndex) -> Option<protocol::site::MapView> {
        Some(self.nodes[node].process.as_ref()?.site.map_view())
    }

    /// The slots that a node's site holds, at which epochs; `None`: it is down.
    #[must_use]
    pub fn held_epochs(&self, node: NodeIndex) -> Option<model::SlotEpochs> {
        let process = self.nodes[node].process.as_ref()?;
        let held = self.held_slots(node).0.into_iter();
        let epoch = |slot: Slot| (slot, process.site.token(slot).epoch());
        Some(model::SlotEpochs::gather(held.map(epoch)))
    }

    /// The state of a slot at a node's site, as text.
    #[must_use]
    pub fn token(&self, node: NodeIndex, slot: Slot) -> Option<String> {
        let process = self.nodes[node].process.as_ref();
        process.map(|process| format!("{:?}", process.site.token(slot)))
    }

    /// A node's pointers on the ring: of each virtual node its point, its predecessor and its
    /// successors.
    #[must_use]
    pub fn ring(&self, node: NodeIndex) -> Vec<(u64, Option<u64>, Vec<u64>)> {
        let Some(process) = &self.nodes[node].process else { return Vec::new() };
        let ring = process.site.ring();
        let pointers = ring.members().map(|own| {
            let before = ring.predecessor(own.point).map(|member| member.point.0);
            let after = ring.successors(own.point).iter().map(|member| member.point.0);
            (own.point.0, before, after.collect())
        });
        pointers.collect()
    }

    /// The pointers of all sites together.
    pub fn judge_ring(&self) -> JudgedRing {
        // A leader takes others for dead also before its site is on the ring again.
        let running = self.nodes.iter().filter_map(|node| node.process.as_ref());
        let mut suspects = running.flat_map(|process| process.site.ring_suspects());
        let leaders = (0..self.sites.len()).filter_map(|site| {
            let nodes = self.sites[site].nodes.iter().copied();
            let processes = nodes.filter_map(|node| self.nodes[node].process.as_ref());
            let leads = processes.filter(|process| process.site.is_on_ring());
            leads.max_by_key(|process| process.site.leads_in())
        });
        let leaders: Vec<_> = leaders.collect();
        let rings: Vec<_> = leaders.iter().map(|process| process.site.ring()).collect();
        let live: BTreeSet<SiteId> = rings.iter().map(|ring| ring.site()).collect();
        let ends_promise = live.len() < 2 || suspects.any(|site| live.contains(&site));
        let holds = match rings.is_empty() {
            true => Ok(()),
            false => invariant::check(&rings, &live),
        };
        let there = (0..self.sites.len()).filter(|site| self.is_there(*site)).count();
        let is_ideal = rings.len() == there && invariant::is_ideal(&rings, &live);
        JudgedRing { holds, is_ideal, ends_promise }
    }

    /// The rows of a node's state; `None`: it cannot be read.
    #[must_use]
    pub fn rows(&self, node: NodeIndex) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut rows = BTreeMap::new();
        let mut visit = |key: model::Bytes, value: model::Bytes| {
            rows.insert(key.to_vec(), value.to_vec());
            true
        };
        self.nodes[node].state.scan(b"", None, &mut visit).ok()?;
        Some(rows)
    }
}
