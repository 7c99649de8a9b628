//! What can be seen of a replica from outside.

use super::placing::PlacementCounts;
use super::{MirrorStatus, Share, Site, machine};
use crate::global::cache::Counted;
use crate::global::handover::{HandedOver, Progress};
use crate::global::mirroring::Progress as MirrorProgress;
use crate::replica::raft::Role;
use model::{Ballot, JobStatus, NodeId, Revision, SiteId};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer;

/// A replica at one moment, for `portolan status` and for metrics.
#[derive(Clone, Debug)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// What it is now.
    pub role: Role,
    /// Its monotonic clock at its last input: ages in here are as of then.
    pub as_of: Duration,
    /// Whether it holds no data.
    pub witness: bool,
    /// The leader, as far as it has learned.
    pub leader: Option<NodeId>,
    /// The current term.
    pub term: u64,
    /// The last entry of its log.
    pub last_index: u64,
    /// How far the log is known to be committed.
    pub committed_index: u64,
    /// How far it is applied here.
    pub applied_index: u64,
    /// How many writes the state has seen.
    pub revision: Revision,
    /// The index of its latest snapshot; 0: none.
    pub snapshot_index: u64,
    /// The first entry its log still holds.
    pub first_index: u64,
    /// The members and what they are. A leader shows a new voter as a learner until a majority of
    /// the voters counts it, too.
    pub members: peer::Members,
    /// For a leader: how far each other member holds the log, and whether it has answered lately.
    pub progress: Vec<(NodeId, u64, bool)>,
    /// Writes that wait for their turn.
    pub writes_waiting: usize,
    /// Writes in the log whose entry is not applied yet.
    pub writes_in_flight: usize,
    /// Reads that wait for a read index.
    pub reads_waiting: usize,
    /// Requests that wait for the leader's answer.
    pub forwarded: usize,
    /// Requests that wait for other sites, or for slots on their way.
    pub routed: usize,
    /// Of those that ended: how many went to their slot's owner at once, and how many were
    /// redirected.
    pub routed_direct: (u64, u64),
    /// Requests with the token of a session that are not answered.
    pub sessions: usize,
    /// Copies of keys that other sites hold.
    pub copies: Counted,
    /// Lookups on the ring that ended, and the messages to other sites that they took.
    pub ring_lookups: (u64, u64),
    /// Pointers that the site has on the ring.
    pub ring_pointers: usize,
    /// This site's place in its deployment, with the sites and keyspaces of it.
    pub deployment: Option<machine::deployment::DeploymentMember>,
    /// Which sites are known to have each failover that was decided, by the version that decided
    /// it.
    pub failovers_known: Vec<(Ballot, Vec<SiteId>)>,
    /// How many slots each site owns, by this node's map, and whether the sites answer.
    pub shares: Vec<Share>,
    /// Slots on their way to other sites.
    pub moves: Vec<Progress>,
    /// The jobs of the site's leader, at the leader; none elsewhere.
    pub jobs: Vec<JobStatus>,
    /// What this node has handed over as a leader, since its start.
    pub handed_over: HandedOver,
    /// This site's mirror, at its leader.
    pub mirror: Option<MirrorProgress>,
    /// The mirrors of other sites that are kept here.
    pub mirrors_kept: Vec<MirrorStatus>,
    /// What is counted and moved for keyspaces with a placement, at the leader.
    pub placement: Option<PlacementCounts>,
    /// Why the disk takes no writes, if it takes none.
    pub disk_full: Option<String>,
    /// Whether this node can answer a request now: it leads, or has a leader, and is a member.
    pub ready: bool,
}

/// How far a replica is: what is asked of it often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The leader, as far as it has learned.
    pub leader: Option<NodeId>,
    /// The current term.
    pub term: u64,
    /// The last entry of its log.
    pub last_index: u64,
    /// How far it is committed, as far as this replica has learned.
    pub committed_index: u64,
    /// How far it is applied here. A leader may lag behind what is committed: the others' disks are
    /// enough for that.
    pub applied_index: u64,
    /// How many writes the state has seen.
    pub revision: Revision,
    /// See [`Status::ready`].
    pub ready: bool,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// How far this replica is. Cheap: ask as often as you like.
    pub fn standing(&self) -> Standing {
        let leader = self.replica.raft.leader();
        let leads = self.replica.raft.role() == Role::Leader;
        let serves = if leads { self.replica.raft.committed_in_term() } else { leader.is_some() };
        Standing {
            leader,
            term: self.replica.raft.term(),
            last_index: self.replica.raft.last_index(),
            committed_index: self.replica.raft.committed_index(),
            applied_index: self.replica.applied,
            revision: self.machine.reader().revision(),
            ready: serves && !self.replica.removed,
        }
    }

    /// The term in which this replica leads, if it does. Cheap: ask as often as you like.
    pub fn leads_in(&self) -> Option<u64> {
        self.leads().then(|| self.replica.raft.term())
    }

    /// This replica now.
    pub fn status(&self) -> Status {
        let standing = self.standing();
        let others =
            self.replica.members.nodes.iter().filter(|member| member.node != self.options.node.0);
        let progress = others.filter_map(|member| {
            let node = NodeId(member.node);
            let (matched, _) = self.replica.raft.progress(node)?;
            Some((node, matched, self.replica.is_alive(&self.options, node)))
        });
        let leads = self.replica.raft.role() == Role::Leader;
        Status {
            node: self.options.node,
            role: self.replica.raft.role(),
            as_of: self.now.monotonic,
            witness: self.options.witness,
            leader: standing.leader,
            term: standing.term,
            last_index: standing.last_index,
            committed_index: self.replica.raft.committed_index(),
            applied_index: standing.applied_index,
            revision: standing.revision,
            snapshot_index: self.snapshots.latest.as_ref().map_or(0, |head| head.index),
            first_index: self.replica.raft.start().index + 1,
            members: self.replica.shown_members(),
            progress: if leads { progress.collect() } else { Vec::new() },
            writes_waiting: self.replica.writes.waiting(),
            writes_in_flight: self.replica.writes.in_flight(),
            reads_waiting: self.replica.reads.waiting(),
            forwarded: self.replica.forwarding.waiting(),
            routed: self.global.routing.waiting(),
            routed_direct: (self.global.routing.direct, self.global.routing.redirected),
            sessions: self.sessions.waiting(),
            copies: self.global.cache.counted(),
            ring_lookups: self.deployment.hops,
            ring_pointers: self.ring().len(),
            deployment: self.machine.membership().cloned(),
            failovers_known: self.failovers_known(),
            shares: self.shares(),
            moves: self.moves(),
            jobs: self.job_list(),
            handed_over: self.jobs.handover.done,
            mirror: self.mirror_progress(),
            mirrors_kept: self.mirrors_kept(),
            placement: self.jobs.place.counts,
            disk_full: self.replica.disk_full.clone(),
            ready: standing.ready,
        }
    }
}
