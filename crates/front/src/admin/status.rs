//! The shape of `GET /status`. Fields are added, never changed or removed, within version 1.

use serde::Serialize;
use server::{Handle, Role};

/// A node and its site as the node sees it. The content of `GET /status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The version of this shape: 1.
    pub format: u32,
    /// The version of the program.
    pub version: &'static str,
    /// The site.
    pub site: String,
    /// This node.
    pub node: u64,
    /// `leader`, `follower` or `candidate`.
    pub role: &'static str,
    /// Whether this node is a witness, without data.
    pub witness: bool,
    /// Whether it can answer requests now.
    pub ready: bool,
    /// The leader, if this node has one.
    pub leader: Option<u64>,
    /// The current term.
    pub term: u64,
    /// The log's entries here.
    pub log: Log,
    /// Writes applied to the state.
    pub revision: u64,
    /// Keys of all keyspaces.
    pub keys: u64,
    /// Log time applied here, in milliseconds since 1970.
    pub log_time_ms: u64,
    /// The queues of the node.
    pub queues: Queues,
    /// Why writes are refused, if the disk is the reason.
    pub disk_full: Option<String>,
    /// The jobs that the leader runs beside requests, at the leader; none elsewhere.
    pub jobs: Vec<Job>,
    /// The nodes of the site, ordered by id.
    pub members: Vec<Member>,
    /// Requests for keys of other sites; absent without a deployment.
    pub remote: Option<Remote>,
    /// Where the site's keys are kept: `embedded` or `etcd`.
    pub engine: &'static str,
    /// The health of the etcd cluster, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
}

/// A job of the site's leader. Counts are of this leader, and begin with it at 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Its name.
    pub name: &'static str,
    /// Whether an operator has paused it.
    pub paused: bool,
    /// What is left to do.
    pub left: u64,
    /// The unit of that; empty: it is not known how much is left.
    pub unit: &'static str,
    /// Bytes sent to other sites.
    pub sent_bytes: u64,
    /// Commands that were proposed or sent, and changes of the registry.
    pub steps: u64,
    /// The present rate of these.
    pub steps_per_min: u64,
    /// How many of these failed.
    pub errors: u64,
    /// The last error, if there was one.
    pub last_error: Option<String>,
}

impl Job {
    fn of(job: &model::JobStatus) -> Job {
        Job {
            name: job.name.as_str(),
            paused: job.paused,
            left: job.left,
            unit: job.name.unit(),
            sent_bytes: job.sent_bytes,
            steps: job.steps,
            steps_per_min: job.steps_per_min,
            errors: job.errors,
            last_error: (!job.last_error.is_empty()).then(|| job.last_error.clone()),
        }
    }
}

/// A node's requests for keys that other sites own, counted since it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remote {
    /// Requests that wait now, for other sites or for slots in a handover.
    pub waiting: usize,
    /// Requests that went directly to the owner of their key.
    pub direct: u64,
    /// Requests that did not.
    pub redirected: u64,
    /// Completed lookups on the ring.
    pub lookups: u64,
    /// The messages to other sites for these lookups.
    pub lookup_messages: u64,
    /// Pointers of the site on the ring.
    pub pointers: usize,
    /// Cached copies of keys that other sites own.
    pub copies: Copies,
    /// How many slots each site owns, by this node's map.
    pub slots: Vec<SlotShare>,
}

/// One site's slots, by a node's map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotShare {
    /// The site's id.
    pub site: u32,
    /// Its name; its id, if it is not listed any more.
    pub name: String,
    /// How many slots it owns.
    pub slots: u32,
    /// Whether that is this site, by its own tokens. Everything else is a hint.
    pub confirmed: bool,
    /// Of a hint: how old the oldest part of it is.
    pub age_ms: Option<u64>,
    /// `reached`, `silent` for a second or more, or `unreachable` for five.
    pub liveness: &'static str,
}

impl SlotShare {
    fn of(share: &server::Share, status: &server::Status) -> SlotShare {
        let registry = status.deployment.as_ref().map(|member| &member.registry);
        let entry = registry.and_then(|registry| registry.site(share.site));
        SlotShare {
            site: share.site.0,
            name: entry.map_or_else(|| share.site.to_string(), |entry| entry.name.to_string()),
            slots: share.slots,
            confirmed: share.is_confirmed,
            age_ms: share.age.map(|age| age.as_millis() as u64),
            liveness: match (share.is_lost, share.is_silent) {
                (true, _) => "unreachable",
                (false, true) => "silent",
                (false, false) => "reached",
            },
        }
    }
}

/// Cached copies of keys that other sites own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Copies {
    /// Their present number.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Stale reads answered from a copy, without a message.
    pub hits: u64,
    /// Reads with a copy that the owner confirmed.
    pub unchanged: u64,
    /// Reads that an owner answered with the value.
    pub misses: u64,
    /// Copies removed to make room.
    pub evictions: u64,
}

impl Remote {
    fn of(status: &server::Status) -> Remote {
        let copies = status.copies;
        Remote {
            waiting: status.routed,
            direct: status.routed_direct.0,
            redirected: status.routed_direct.1,
            lookups: status.ring_lookups.0,
            lookup_messages: status.ring_lookups.1,
            pointers: status.ring_pointers,
            copies: Copies {
                count: copies.copies,
                bytes: copies.bytes,
                hits: copies.hits,
                unchanged: copies.unchanged,
                misses: copies.misses,
                evictions: copies.evictions,
            },
            slots: status.shares.iter().map(|share| SlotShare::of(share, status)).collect(),
        }
    }
}

/// The etcd cluster that holds a site's keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Etcd {
    /// The endpoint of the last call.
    pub endpoint: String,
    /// The duration of the last transaction, in microseconds.
    pub round_trip_us: u64,
    /// Transactions since this process serves the site.
    pub transactions: u64,
    /// Failed calls that were repeated.
    pub retries: u64,
    /// The error of the last failed call.
    pub last_error: Option<String>,
    /// Milliseconds since the last success while calls fail; otherwise 0.
    pub failing_for_ms: u64,
}

/// Entries of the log, by index; 0: none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Log {
    /// The first that is still stored.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// The last that is known to be committed.
    pub committed: u64,
    /// The last that is applied to the state.
    pub applied: u64,
    /// The last that the newest snapshot contains.
    pub snapshot: u64,
}

/// Waiting requests of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Writes that wait for their turn.
    pub writes_waiting: usize,
    /// Writes in the log that are not applied yet.
    pub writes_in_flight: usize,
    /// Reads that wait for a read index.
    pub reads_waiting: usize,
    /// Requests that wait for the leader's answer.
    pub forwarded: usize,
}

/// A node of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its id.
    pub node: u64,
    /// Its peer port.
    pub address: String,
    /// `voter`, `witness`, or `learner` until it has caught up and is one of them.
    pub role: &'static str,
    /// On the leader: the last entry that the member has acknowledged.
    pub match_index: Option<u64>,
    /// On the leader: whether the member has recently responded.
    pub active: Option<bool>,
}

impl Status {
    /// The node behind a handle, now.
    pub fn of(handle: &Handle) -> Status {
        let status = handle.status();
        let etcd = handle.etcd().map(|etcd| Etcd {
            endpoint: etcd.endpoint,
            round_trip_us: etcd.round_trip.as_micros() as u64,
            transactions: etcd.transactions,
            retries: etcd.retries,
            last_error: etcd.last_error,
            failing_for_ms: etcd.failing_for.as_millis() as u64,
        });
        let member = |member: &wire::peer::Member| {
            let known = status.progress.iter().find(|(node, ..)| node.0 == member.node);
            Member {
                node: member.node,
                address: member.address.clone(),
                role: match (status.members.voters.contains(&member.node), member.witness) {
                    (false, _) => "learner",
                    (true, false) => "voter",
                    (true, true) => "witness",
                },
                match_index: known.map(|(_, index, _)| *index),
                active: known.map(|(.., active)| *active),
            }
        };
        Status {
            format: 1,
            version: env!("CARGO_PKG_VERSION"),
            site: handle.site().to_string(),
            node: status.node.0,
            role: match status.role {
                Role::Leader => "leader",
                Role::Follower => "follower",
                Role::Candidate => "candidate",
            },
            witness: status.witness,
            ready: handle.is_ready(),
            leader: status.leader.map(|leader| leader.0),
            term: status.term,
            log: Log {
                first: status.first_index,
                last: status.last_index,
                committed: status.committed_index,
                applied: status.applied_index,
                snapshot: status.snapshot_index,
            },
            revision: status.revision.0,
            keys: handle.key_count(),
            log_time_ms: handle.log_time_ms(),
            queues: Queues {
                writes_waiting: status.writes_waiting,
                writes_in_flight: status.writes_in_flight,
                reads_waiting: status.reads_waiting,
                forwarded: status.forwarded,
            },
            disk_full: status.disk_full.clone(),
            members: status.members.nodes.iter().map(member).collect(),
            jobs: status.jobs.iter().map(Job::of).collect(),
            remote: status.deployment.is_some().then(|| Remote::of(&status)),
            engine: if etcd.is_some() { "etcd" } else { "embedded" },
            etcd,
        }
    }
}
