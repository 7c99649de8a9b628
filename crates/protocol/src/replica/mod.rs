//! A site's replica at one node, beside the state: consensus, requests on their way through it,
//! members, time, and the right to read.
//!
//! - [`raft`]: the consensus, behind a façade;
//! - [`writes`], [`reads`]: requests of this node's clients, batched;
//! - [`forwarding`]: what this node hands to the leader;
//! - [`gate`]: which reads are answered from the state, on any thread;
//! - [`membership`], [`changing`], [`leader_transfer`]: the members of the site, and which is to
//!   lead it;
//! - [`contact`], [`lives`]: which members respond, and which life of a node a message is of;
//! - [`log_clock`], [`moments`]: log time, and the moments that people name;
//! - [`snapshots`]: for a log that is long and for nodes that lag;
//! - [`recovery`]: what a replica does with its disk before it starts.
//!
//! The replica names no mode: it orders commands, and reads what they do to the state, whatever
//! they are. `cargo xtask verify` proves that nothing here names a mode or the site above.
//!
//! Left out on purpose: what one of these asks of another, and what leaves the node, is composed in
//! [`crate::site`].

pub(crate) mod changing;
pub(crate) mod contact;
pub(crate) mod forwarding;
pub(crate) mod gate;
pub(crate) mod leader_transfer;
pub mod lives;
pub(crate) mod log_clock;
pub mod membership;
pub(crate) mod moments;
pub mod raft;
pub mod reads;
pub mod recovery;
pub(crate) mod snapshots;
pub(crate) mod writes;

use crate::bugs::Bug;
use crate::options::Options;
use changing::LastChange;
use contact::LastContact;
use forwarding::Forwarding;
use gate::Gate;
pub use gate::{ReadGate, Readable};
use leader_transfer::LeaderTransfer;
use log_clock::LogClock;
pub use log_clock::Pace;
use membership::Membership;
use model::{NodeId, Time};
use raft::{Committed, Raft, Role};
use reads::Reads;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::{LogReader, Recovered};
use storage::snapshot::SnapshotHead;
use wire::peer;
use writes::Writes;

/// See the module's documentation.
pub(crate) struct Replica<R: LogReader> {
    pub(crate) raft: Raft<R>,
    pub(crate) members: peer::Members,
    /// The leader and its term when requests were last sent there.
    pub(crate) led_by: (Option<NodeId>, u64),
    /// How far the state is.
    pub(crate) applied: u64,
    /// Committed entries that wait while a snapshot is being loaded.
    pub(crate) held: Vec<Committed>,

    pub(crate) writes: Writes,
    pub(crate) reads: Reads,
    pub(crate) forwarding: Forwarding,
    /// Answers to requests that other nodes have forwarded, until the end of a round.
    pub(crate) replies: BTreeMap<NodeId, Vec<peer::ForwardedAnswer>>,

    pub(crate) membership: Membership,
    pub(crate) last_change: Option<LastChange>,
    pub(crate) leader_transfer: LeaderTransfer,
    pub(crate) contact: LastContact,
    pub(crate) removed: bool,
    /// The log index since which this life is a member, as the last list with it states.
    pub(crate) member_since: Option<u64>,

    pub(crate) log_clock: LogClock,
    pub(crate) pace: Pace,
    pub(crate) tick_proposed: bool,
    pub(crate) disk_full: Option<String>,
    /// Ticks for which the disk has been full, and nothing of what is committed beyond was applied.
    pub(crate) stuck_ticks: usize,
    stuck_at: u64,

    pub(crate) gate: Gate,
    pub(crate) lease_until: Option<Duration>,
    /// A term in which leadership was being handed over: no leases in it.
    pub(crate) lease_barred_term: u64,
    /// Until then it grants no vote: see [`reads`].
    pub(crate) silent_until: Duration,
}

impl<R: LogReader> Replica<R> {
    /// As its disk has it. `state`: how far the state is, and its log time.
    pub(crate) fn new(
        options: &Options,
        now: Time,
        (recovered, reader): (&Recovered, R),
        (members, snapshot): (peer::Members, Option<&SnapshotHead>),
        (applied, log_time_ms): (u64, u64),
    ) -> Replica<R> {
        let mut raft = Raft::new(
            options.node,
            options.ticks,
            options.seed,
            reader,
            recovered,
            (&members, snapshot),
            applied,
        );
        raft.plant(options.planted);
        raft.know_members(&members);
        if options.witness {
            // It is elected only where no data node can be.
            raft.stand_back();
            raft.serve_no_snapshots();
        }
        if members.voters == [options.node.0] {
            raft.campaign();
        }
        let by_wall_clock = options.planted.is(Bug::TimeByWallClock);
        Replica {
            raft,
            members,
            led_by: (None, 0),
            applied,
            held: Vec::new(),
            writes: Writes::new(options.client),
            reads: Reads::new(options.client),
            forwarding: Forwarding::new(options.client),
            replies: BTreeMap::new(),
            membership: Membership::default(),
            last_change: Some(LastChange::unknown(applied)),
            leader_transfer: LeaderTransfer::default(),
            contact: LastContact::default(),
            removed: false,
            member_since: (options.member_since > 0).then_some(options.member_since),
            log_clock: LogClock::new(log_time_ms, now, by_wall_clock),
            pace: Pace::default(),
            tick_proposed: false,
            disk_full: None,
            stuck_ticks: 0,
            stuck_at: 0,
            gate: Gate::closed(),
            lease_until: None,
            lease_barred_term: 0,
            silent_until: now.monotonic + options.election_timeout(),
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.raft.role() == Role::Leader
    }

    /// Whether all that this node has as committed is applied here. A leader may lag: the others'
    /// disks are enough to commit, and it applies what its own has.
    pub(crate) fn has_applied_all(&self, options: &Options) -> bool {
        self.applied >= self.raft.committed_index() || options.planted.is(Bug::LeaseBehindCommit)
    }

    /// A node below its reserve of room still takes entries: it is stuck only where none of them
    /// arrives.
    pub(crate) fn count_stuck_ticks(&mut self) {
        let lacks = self.disk_full.is_some() && self.applied < self.raft.committed_index();
        let is_stuck = lacks && self.stuck_at == self.applied;
        self.stuck_ticks = if is_stuck { self.stuck_ticks + 1 } else { 0 };
        self.stuck_at = self.applied;
    }

    fn is_only_voter(&self, options: &Options) -> bool {
        self.members.voters == [options.node.0] && self.members.voters_outgoing.is_empty()
    }

    fn is_giving_way(&self, options: &Options) -> bool {
        self.raft.is_transferring() && !options.planted.is(Bug::LeaseThroughTransfer)
    }

    /// Whether it is certain, without a question, that no other node leads: by what gate this
    /// node's reads could go if its state were as far as its log.
    pub(crate) fn leads_for_sure(&self, options: &Options) -> ReadGate {
        if !self.leads() || !self.raft.committed_in_term() {
            ReadGate::Stale
        } else if self.is_only_voter(options) && !self.raft.members_change_pending() {
            ReadGate::Open
        } else {
            let until = self.lease_until.filter(|_| !self.is_giving_way(options));
            until.map_or(ReadGate::Stale, ReadGate::Lease)
        }
    }

    /// Whether this node is the only one of its site and nothing waits here.
    pub(crate) fn is_quiet(&self, options: &Options) -> bool {
        self.leads()
            && self.is_only_voter(options)
            && self.members.learners.is_empty()
            && self.writes.is_idle()
            && self.reads.is_idle()
            && self.forwarding.is_idle()
            && self.membership.is_idle()
    }
}
