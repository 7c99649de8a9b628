//! What a node holds of its site's replica beside the state: consensus, requests on their way through it,
//! members, time, and the right to read.

use super::forwarding::Forwarding;
use super::gate::Gate;
use super::handover::Handover;
use super::heard::Heard;
use super::log_clock::LogClock;
use super::machine::Pace;
use super::membership::Membership;
use super::raft::{Committed, Raft, Role};
use super::reads::Reads;
use super::trial::Bug;
use super::writes::Writes;
use super::{Options, ReadGate};
use model::{NodeId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::log::{LogReader, Recovered};
use storage::snapshot::SnapshotHead;
use wire::peer;

/// See the module's documentation.
pub(super) struct Replica<R: LogReader> {
    pub(super) raft: Raft<R>,
    pub(super) members: peer::Members,
    /// The leader and its term when requests were last sent there.
    pub(super) led_by: (Option<NodeId>, u64),
    /// How far the state is.
    pub(super) applied: u64,
    /// Committed entries that wait while a snapshot is being loaded.
    pub(super) held: Vec<Committed>,

    pub(super) writes: Writes,
    pub(super) reads: Reads,
    pub(super) forwarding: Forwarding,
    /// Answers to requests that other nodes have forwarded, until the end of a round.
    pub(super) replies: BTreeMap<NodeId, Vec<peer::ForwardedAnswer>>,

    pub(super) membership: Membership,
    pub(super) handover: Handover,
    pub(super) heard: Heard,
    pub(super) removed: bool,
    /// The log index since which this life is a member, as the last list with it says.
    pub(super) member_since: Option<u64>,

    pub(super) log_clock: LogClock,
    pub(super) pace: Pace,
    pub(super) tick_proposed: bool,
    pub(super) disk_full: Option<String>,

    pub(super) gate: Gate,
    pub(super) lease_until: Option<Duration>,
    /// A term in which leadership was being handed over: no leases in it.
    pub(super) lease_barred_term: u64,
    /// Until then it grants no vote: see [`super::reads`].
    pub(super) silent_until: Duration,
}

impl<R: LogReader> Replica<R> {
    /// As its disk has it. `state`: how far the state is, and its log time.
    pub(super) fn new(
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
            handover: Handover::default(),
            heard: Heard::default(),
            removed: false,
            member_since: (options.member_since > 0).then_some(options.member_since),
            log_clock: LogClock::new(log_time_ms, now, by_wall_clock),
            pace: Pace::default(),
            tick_proposed: false,
            disk_full: None,
            gate: Gate::closed(),
            lease_until: None,
            lease_barred_term: 0,
            silent_until: now.monotonic + options.election_timeout(),
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.raft.role() == Role::Leader
    }

    /// Whether all that this node knows to be committed is applied here. A leader may lag: the others'
    /// disks are enough to commit, and it applies what its own has.
    pub(super) fn has_applied_all(&self, options: &Options) -> bool {
        self.applied >= self.raft.committed_index() || options.planted.is(Bug::LeaseBehindCommit)
    }

    fn is_only_voter(&self, options: &Options) -> bool {
        self.members.voters == [options.node.0] && self.members.voters_outgoing.is_empty()
    }

    fn is_giving_way(&self, options: &Options) -> bool {
        self.raft.is_transferring() && !options.planted.is(Bug::LeaseThroughHandover)
    }

    /// Whether it is certain, without a question, that no other node leads: by what gate this
    /// node's reads could go if its state were as far as its log.
    pub(super) fn leads_for_sure(&self, options: &Options) -> ReadGate {
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
    pub(super) fn is_quiet(&self, options: &Options) -> bool {
        self.leads()
            && self.is_only_voter(options)
            && self.members.learners.is_empty()
            && self.writes.is_idle()
            && self.reads.is_idle()
            && self.forwarding.is_idle()
            && self.membership.is_idle()
    }
}
