//! How a node's core behaves, as its shell starts it.

use crate::bugs::Planted;
use crate::placement::probing;
use crate::replica::raft::Ticks;
use model::{ClientId, DeploymentId, NodeId, SiteEntry, SiteName, limits};
use std::time::Duration;

/// How a replica behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// This node.
    pub node: NodeId,
    /// Which life of it: drawn when its disk was empty; 0: not known.
    pub incarnation: u64,
    /// The log index since which this life is a member; 0: it has not been one yet.
    pub member_since: u64,
    /// This process, among those that number requests. Random, new at each start.
    pub client: ClientId,
    /// Where the differences between nodes' election timeouts come from. Random.
    pub seed: u64,
    /// It votes and keeps the log, but no data.
    pub witness: bool,
    /// The length of a tick.
    pub tick: Duration,
    /// Heartbeats and elections, in ticks.
    pub ticks: Ticks,
    /// A snapshot is made when the log has grown by this much and by the size of the state.
    pub log_bytes_before_snapshot: u64,
    /// Entries that are kept behind a snapshot, for followers that lag a little; fewer if they are
    /// longer than [`Options::log_bytes_before_snapshot`].
    pub log_entries_kept: u64,
    /// The deployment to begin, if this site belongs to none.
    pub founding: Option<(DeploymentId, SiteEntry)>,
    /// What this site can fail together with, as the registry is to have it
    /// ([`SiteEntry::domain`]).
    pub failure_domain: Option<SiteName>,
    /// How many bytes of other sites' groups this site takes, as the registry is to have it
    /// ([`SiteEntry::limit`]).
    pub borrowed_bytes_max: Option<u64>,
    /// Where clients of the Redis Cluster protocol find this node; empty: nowhere.
    pub cluster_address: String,
    /// Bytes a second that slots on their way to other sites may take; 0: as many as go.
    pub handover_bytes_per_s_max: u64,
    /// Bytes of a region's order that are kept for sites that are away.
    pub causal_kept_bytes_max: u64,
    /// About how much a chunk of causal keyspaces takes that a site gets anew.
    pub causal_resync_bytes_max: usize,
    /// Whether this site has its mirror kept by its backup.
    pub mirrors: bool,
    /// Groups of which the leader keeps a profile of their users.
    pub profiles_max: usize,
    /// The rate of the site's link to others, by which a move's bytes are weighed, in Mbit a second.
    pub link_mbit_per_s: u32,
    /// Which other sites are asked for the latency to them.
    pub probing: probing::Rule,
    /// Whether each client of a group counts as much as any other in placement, whatever it asks.
    pub equal_clients: bool,
    /// The bug to be found, in a trial.
    pub planted: Planted,
    /// Of a thousand chances for something rare, how many are taken, in a trial.
    pub rare_permille: u64,
}

impl Options {
    /// The defaults: a heartbeat every 100 ms, elections after 500 to 1,000 ms of silence.
    pub fn new(node: NodeId, client: ClientId, seed: u64) -> Options {
        Options {
            node,
            incarnation: 0,
            member_since: 0,
            client,
            seed,
            witness: false,
            tick: Duration::from_millis(50),
            ticks: Ticks { heartbeat: 2, election: 10 },
            log_bytes_before_snapshot: limits::LOG_BYTES_BEFORE_SNAPSHOT,
            log_entries_kept: limits::LOG_ENTRIES_KEPT_BEHIND_SNAPSHOT,
            founding: None,
            failure_domain: None,
            borrowed_bytes_max: None,
            cluster_address: String::new(),
            handover_bytes_per_s_max: 0,
            causal_kept_bytes_max: limits::CAUSAL_ORDER_KEPT_BYTES_MAX,
            causal_resync_bytes_max: limits::CAUSAL_RESYNC_BYTES_MAX,
            mirrors: true,
            profiles_max: limits::PROFILES_MAX,
            link_mbit_per_s: limits::LINK_MBIT_PER_S_DEFAULT,
            probing: probing::Rule::default(),
            equal_clients: false,
            planted: Planted::default(),
            rare_permille: 0,
        }
    }

    /// The shortest silence after which a follower stands for election.
    pub fn election_timeout(&self) -> Duration {
        self.tick * self.ticks.election as u32
    }

    /// The interval of the leader's heartbeats; also how long to wait before asking again.
    pub fn heartbeat(&self) -> Duration {
        self.tick * self.ticks.heartbeat as u32
    }
}
