//! Raft, behind a small façade.
//!
//! The consensus itself is the crate `raft` (TiKV's; etcd's contract). This module is the only one
//! that uses it. It narrows the library to what a site needs: propose a payload, change the
//! membership, ask for a read index, hand over leadership; and it turns the library's `Ready` into
//! one value, [`Effects`].
//!
//! Two rules are kept here and nowhere else:
//!
//! - **Nothing that depends on durability leaves before it is durable.** A follower's answers and a
//!   candidate's votes are withheld until [`Raft::persisted`]; a leader's appends may leave at once
//!   (Ongaro's thesis, 10.2.1).
//! - **The same inputs give the same outputs.** The library draws its election timeouts from a
//!   thread's generator; the façade overwrites each with one that is a function of seed, node and
//!   term.
//! - **Votes go by term and log alone.** The library also compares priorities with the log's
//!   length, which can leave two nodes that refuse each other for good. All nodes have one priority
//!   here; a node that is to stand back waits longer before it stands ([`Raft::stand_back`]).
//! - **A node without other voters does not stand while it makes entries durable.** It would be
//!   elected at once, and the library demands that an elected node's log is on disk.
//!
//! Left out: the library's lease reads (they have no margin for clock drift; see `reads`) and its
//! proposal forwarding (answers must find their way back; see `forwarding`).

mod convert;
mod store;
#[cfg(test)]
mod tests;

use crate::bugs::{Bug, Planted};
use crate::replica::lives;
use bytes::Bytes;
use model::{NodeId, limits};
use prost::Message as _;
use raft::eraftpb::{Entry, Message, MessageType, Snapshot};
use raft::{Config, INVALID_ID, ProgressState, RawNode, ReadOnlyOption, StateRole};
use std::collections::VecDeque;
use storage::log::{Append, HardState, LogReader, LogStart, Recovered};
use storage::snapshot::SnapshotHead;
use store::Store;
use wire::peer;

/// The priority of all nodes in elections. It is that of nodes of earlier versions, so that those
/// that still compare refuse no vote.
const PRIORITY: i64 = 1;
/// How many election timeouts a node that stands back waits before it stands. All others have stood
/// by then.
const STANDS_BACK_TIMEOUTS: usize = 2;

/// How a replica behaves in time, counted in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// A leader sends heartbeats this often.
    pub heartbeat: usize,
    /// Without a leader for at least this long, and less than twice that, a node stands for
    /// election (later, if it [stands back](Raft::stand_back)). Also how long a node refuses votes
    /// after a heartbeat of a leader.
    pub election: usize,
}

/// What this node is in its site at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It follows a leader, or waits for one.
    Follower,
    /// It stands for election.
    Candidate,
    /// It leads.
    Leader,
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// Where it stands in the log.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// What it carries.
    pub content: EntryContent,
}

/// What an entry carries.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryContent {
    /// A batch of commands; empty for a new leader's first entry.
    Commands(Bytes),
    /// A change of the membership.
    Members(peer::MembersChange),
}

/// Something to make durable; [`Raft::persisted`] with its number reports that it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Persist {
    /// 1, 2, 3, …, not all of them used. Done in order.
    pub number: u64,
    /// First of all, begin the log anew behind an installed snapshot.
    pub restart: Option<LogStart>,
    /// What to write.
    pub append: Append,
}

/// What follows from what happened.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be made durable.
    pub persist: Option<Persist>,
    /// To be sent now.
    pub send: Vec<peer::Raft>,
    /// To be applied now, in order.
    pub committed: Vec<Committed>,
    /// Read rounds that may be answered once `applied` has reached the index: (round, index).
    pub reads: Vec<(u64, u64)>,
}

/// One node's part in Raft.
pub struct Raft<R: LogReader> {
    node: RawNode<Store<R>>,
    seed: u64,
    ticks: Ticks,
    /// Numbers whose `Persist` is under way; `true`: it had nothing to write and only waits for
    /// those before it.
    persisting: VecDeque<(u64, bool, Vec<peer::Raft>)>,
    /// Withheld messages that may leave now.
    released: Vec<peer::Raft>,
    last_persisting_index: u64,
    /// The members are others than before. That this is committed is to be durable, too, and soon:
    /// elections go by the members that a node has when it starts, and one that was replaced
    /// since cannot vote for those that the others have forgotten again.
    must_keep_commit: bool,
    /// The shortest silence, in ticks, after which this node stands for election.
    stands_after: usize,
    /// A snapshot is being loaded: see [`Raft::set_loading`].
    is_loading: bool,
    /// The members are of a joint configuration, between two.
    is_joint: bool,
    planted: Planted,
}

impl<R: LogReader> Raft<R> {
    /// A node as its disk remembers it.
    pub fn new(
        node: NodeId,
        ticks: Ticks,
        seed: u64,
        reader: R,
        recovered: &Recovered,
        (members, snapshot): (&peer::Members, Option<&SnapshotHead>),
        applied: u64,
    ) -> Raft<R> {
        let members = convert::conf_state(members);
        let is_joint = !members.voters_outgoing.is_empty();
        let mut store =
            Store::new(reader, recovered, members, applied, limits::ENTRIES_CACHED_BYTES_MAX);
        if let Some(head) = snapshot {
            let members = peer::Members::decode(head.members.clone()).unwrap_or_default();
            store.set_snapshot(convert::snapshot(head.index, head.term, &members));
        }
        let config = Config {
            id: node.0,
            election_tick: ticks.election,
            max_election_tick: ticks.election * (STANDS_BACK_TIMEOUTS + 1),
            priority: PRIORITY,
            heartbeat_tick: ticks.heartbeat,
            applied,
            max_size_per_msg: limits::APPEND_BYTES_MAX as u64,
            max_inflight_msgs: limits::APPENDS_INFLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            batch_append: true,
            max_committed_size_per_ready: limits::APPEND_BYTES_MAX as u64,
            ..Config::default()
        };
        let silent = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, store, &silent)
            .expect("the configuration is made here and the store answers from memory");
        let persisting = VecDeque::new();
        let last_persisting_index = recovered.last_index;
        let mut raft = Raft {
            node,
            seed,
            ticks,
            persisting,
            released: Vec::new(),
            last_persisting_index,
            must_keep_commit: false,
            stands_after: ticks.election,
            is_loading: false,
            is_joint,
            planted: Planted::default(),
        };
        raft.fix_election_timeout();
        raft
    }

    /// One tick of time.
    pub fn tick(&mut self) {
        if self.must_not_stand() {
            return;
        }
        self.node.tick();
        self.fix_election_timeout();
    }

    /// Stands for election now: at the start of a site of one.
    pub fn campaign(&mut self) {
        if self.must_not_stand() {
            return;
        }
        let _ = self.node.campaign();
        self.fix_election_timeout();
    }

    /// Whether this node would be elected by its own vote, before its log is durable: the others
    /// were removed while their entries were on the way to its disk. It stands a tick after they
    /// are there.
    fn must_not_stand(&self) -> bool {
        let raft = &self.node.raft;
        let is_durable = raft.raft_log.last_index() == raft.raft_log.persisted;
        if is_durable || self.role() == Role::Leader {
            return false;
        }
        let members = raft.prs().conf().to_conf_state();
        members.voters == [raft.id] && members.voters_outgoing.is_empty()
    }

    /// Takes in another node's message. `false`: this version does not understand it.
    pub fn step(&mut self, message: peer::Raft) -> bool {
        let Some(mut message) = convert::message_from_wire(message) else { return false };
        let kind = message.get_msg_type();
        let elects = matches!(
            kind,
            MessageType::MsgTimeoutNow
                | MessageType::MsgRequestVoteResponse
                | MessageType::MsgRequestPreVoteResponse
        );
        if elects && self.must_not_stand() {
            return true;
        }
        if self.is_loading && kind == MessageType::MsgTimeoutNow {
            return true;
        }
        // A witness of an earlier version sends a lower one.
        if !self.planted.is(Bug::WitnessPriority) {
            message.priority = PRIORITY;
        }
        // Refusals here are about messages that came too late to matter.
        let _ = self.node.step(message);
        self.fix_election_timeout();
        true
    }

    /// Proposes an entry. `None`: this node does not lead, or is handing leadership over.
    pub fn propose(&mut self, payload: Bytes) -> Option<(u64, u64)> {
        if self.role() != Role::Leader || self.is_transferring() {
            return None;
        }
        let entry = Entry { data: payload, ..Entry::default() };
        self.propose_entry(entry)
    }

    /// Proposes a change of the membership. `None`: not the leader, or a change is under way.
    pub fn propose_members(&mut self, change: &peer::MembersChange) -> Option<(u64, u64)> {
        if self.role() != Role::Leader || self.is_transferring() || self.members_change_pending() {
            return None;
        }
        let context = change.encode_to_vec();
        self.node.propose_conf_change(context, convert::conf_change(change)).ok()?;
        Some((self.node.raft.raft_log.last_index(), self.term()))
    }

    fn propose_entry(&mut self, entry: Entry) -> Option<(u64, u64)> {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        message.set_entries(vec![entry].into());
        self.node.raft.step(message).ok()?;
        Some((self.node.raft.raft_log.last_index(), self.term()))
    }

    /// Asks the leader how far this node must have applied to answer reads that began before now.
    /// The answer may never come: ask again, with another round.
    pub fn read_index(&mut self, round: u64) {
        let context = [self.node.raft.id.to_be_bytes(), round.to_be_bytes()].concat();
        self.node.read_index(context);
    }

    /// Hands leadership to another voter.
    pub fn transfer_to(&mut self, node: NodeId) {
        self.node.transfer_leader(node.0);
    }

    /// What follows from everything since the last call; `None`: nothing.
    pub fn ready(&mut self) -> Option<Effects> {
        let has_news = self.node.has_ready() || self.must_keep_commit;
        if !has_news && self.released.is_empty() {
            return None;
        }
        let mut effects =
            Effects { send: std::mem::take(&mut self.released), ..Effects::default() };
        if !has_news {
            return Some(effects);
        }
        let mut ready = self.node.ready();
        effects.send.extend(ready.take_messages().into_iter().map(convert::message_to_wire));
        effects.committed.extend(ready.take_committed_entries().into_iter().map(committed));
        effects.reads.extend(ready.take_read_states().into_iter().filter_map(|state| {
            let round = state.request_ctx.get(8..16)?;
            Some((u64::from_be_bytes(round.try_into().ok()?), state.index))
        }));

        let number = ready.number();
        let restart = (!ready.snapshot().is_empty()).then(|| {
            let metadata = ready.snapshot().get_metadata();
            LogStart { index: metadata.index, term: metadata.term }
        });
        if let Some(start) = restart {
            self.node.mut_store().restart(start);
            // The state is the snapshot's already. The library would learn it from the next entry
            // that is applied only, and to stand for election before that it would look for entries
            // that are not in the log any more.
            self.node.raft.raft_log.applied = start.index;
            let snapshot = ready.snapshot().clone();
            let members = snapshot.get_metadata().get_conf_state();
            self.is_joint = !members.voters_outgoing.is_empty();
            self.node.mut_store().set_snapshot(snapshot);
        }
        let entries = ready.take_entries();
        self.node.mut_store().append(&entries);
        if let Some(last) = entries.last() {
            self.last_persisting_index = last.index;
        }
        let withheld: Vec<_> =
            ready.take_persisted_messages().into_iter().map(convert::message_to_wire).collect();
        if std::mem::take(&mut self.must_keep_commit) || ready.must_sync() {
            let append = Append {
                hard_state: Some(self.hard_state()),
                entries: entries.iter().map(convert::entry_to_log).collect(),
            };
            effects.persist = Some(Persist { number, restart, append });
            self.persisting.push_back((number, false, withheld));
        } else {
            self.persisting.push_back((number, true, withheld));
        }
        self.node.advance_append_async(ready);
        self.settle_persisted(0);
        effects.send.append(&mut self.released);
        Some(effects)
    }

    /// Everything up to `number` is durable.
    pub fn persisted(&mut self, number: u64) {
        self.settle_persisted(number);
        if self.persisting.is_empty() {
            let durable = self.last_persisting_index;
            self.node.mut_store().shrink(durable);
        }
        self.fix_election_timeout();
    }

    /// Reports to the library the persists that are done: those up to `number`, and those behind
    /// them that had nothing to write.
    fn settle_persisted(&mut self, number: u64) {
        let mut done = None;
        while let Some((first, nothing_to_write, _)) = self.persisting.front() {
            if !nothing_to_write && *first > number {
                break;
            }
            let (first, _, withheld) = self.persisting.pop_front().expect("just looked at");
            self.released.extend(withheld);
            done = Some(first);
        }
        if let Some(done) = done {
            self.node.on_persist_ready(done);
        }
    }

    /// Whether a persist is under way.
    pub fn is_persisting(&self) -> bool {
        !self.persisting.is_empty()
    }

    /// Committed entries up to `index` have been applied.
    pub fn applied(&mut self, index: u64) {
        // Entries that a loaded snapshot covers come late where they were not durable then: the
        // library has the snapshot's index, and panics at one before it.
        if index >= self.node.raft.raft_log.applied {
            self.node.advance_apply_to(index);
        }
    }

    /// Makes a committed change of the membership take effect, that of the entry at `index`.
    pub fn apply_members(
        &mut self,
        members: &mut peer::Members,
        change: &peer::MembersChange,
        index: u64,
    ) {
        // An error is a change that means nothing here (leaving a joint configuration twice, say):
        // every node finds the same and none changes.
        let Ok(state) = self.node.apply_conf_change(&convert::conf_change(change)) else { return };
        self.is_joint = !state.voters_outgoing.is_empty();
        self.must_keep_commit = true;
        // The library goes on leading, and would panic when it counts its own progress.
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && raft.prs().get(raft.id).is_none() {
            raft.become_follower(raft.term, INVALID_ID);
            self.fix_election_timeout();
        }
        for one in &change.changes {
            let Some(member) = &one.member else { continue };
            let known = members.nodes.iter().find(|other| other.node == member.node);
            let since = lives::since(known, member, index);
            members.nodes.retain(|other| other.node != member.node);
            if one.kind() != peer::MemberChangeKind::Remove {
                members.nodes.push(peer::Member { since, ..member.clone() });
            }
        }
        members.nodes.sort_by_key(|member| member.node);
        convert::set_conf_state(members, &state);
        if let Some(done) = change.done {
            if members.done.len() >= limits::MEMBER_COMMANDS_REMEMBERED_MAX {
                members.done.remove(0);
            }
            members.done.push(done);
        }
    }

    /// There is a snapshot now; the log may be cut behind `start`, at or before the snapshot.
    pub fn snapshot_written(&mut self, at: LogStart, members: &peer::Members, start: LogStart) {
        self.node.mut_store().set_snapshot(convert::snapshot(at.index, at.term, members));
        self.node.mut_store().cut(start);
    }

    /// The snapshot that came with the last message is the state now. Where the log had reached it
    /// meanwhile, the library had no use for it: others are offered it all the same, and what it
    /// covers is applied.
    pub fn snapshot_loaded(&mut self, at: LogStart, members: &peer::Members) {
        self.node.mut_store().set_snapshot(convert::snapshot(at.index, at.term, members));
        let log = &mut self.node.raft.raft_log;
        if log.unstable.snapshot.is_none() && log.committed >= at.index {
            log.applied = log.applied.max(at.index);
        }
    }

    /// The snapshot is damaged: another is needed before any is offered.
    pub fn offer_snapshot_no_more(&mut self) {
        self.node.mut_store().set_snapshot(Snapshot::default());
    }

    /// Whether a follower needs a newer snapshot than the latest.
    pub fn take_snapshot_wanted(&self) -> bool {
        self.node.store().take_snapshot_wanted()
    }

    /// The snapshot that was on its way to `node` has arrived, or has not.
    pub fn snapshot_sent(&mut self, node: NodeId, arrived: bool) {
        let status =
            if arrived { raft::SnapshotStatus::Finish } else { raft::SnapshotStatus::Failure };
        self.node.report_snapshot(node.0, status);
    }

    /// Messages to `node` are being lost.
    pub fn unreachable(&mut self, node: NodeId) {
        self.node.report_unreachable(node.0);
    }

    /// The term of the entry at `index`, if the log (or its start) still has it.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        let unstable = self.node.raft.raft_log.term(index).ok();
        unstable.filter(|term| *term > 0).or_else(|| self.node.store().term_of(index))
    }

    /// What this node is.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// The leader, as far as this node has learned.
    pub fn leader(&self) -> Option<NodeId> {
        Some(self.node.raft.leader_id).filter(|id| *id != INVALID_ID).map(NodeId)
    }

    /// The current term.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// How far the log is known to be committed.
    pub fn committed_index(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The last entry of the log, durable or not.
    pub fn last_index(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// The entry before the first that is kept.
    pub fn start(&self) -> LogStart {
        self.node.store().start()
    }

    /// The bytes on disk of the entries behind `after`, up to `until`, to within a few KiB.
    pub fn bytes_between(&self, after: u64, until: u64) -> u64 {
        self.node.store().bytes_between(after, until)
    }

    /// Whether an entry of the current term is committed: only then can a leader serve.
    pub fn committed_in_term(&self) -> bool {
        self.node.raft.commit_to_current_term()
    }

    /// Whether a change of the membership is in the log and not yet applied, or has left the site
    /// in a joint configuration.
    pub fn members_change_pending(&self) -> bool {
        self.node.raft.has_pending_conf() || self.is_joint
    }

    /// Whether leadership is being handed over.
    pub fn is_transferring(&self) -> bool {
        self.node.raft.lead_transferee.is_some()
    }

    /// For a leader: how far `node` has acknowledged the log, and whether it has answered lately.
    pub fn progress(&self, node: NodeId) -> Option<(u64, bool)> {
        let progress = self.node.raft.prs().get(node.0)?;
        Some((progress.matched, progress.recent_active))
    }

    /// This node.
    pub fn id(&self) -> NodeId {
        NodeId(self.node.raft.id)
    }

    /// For a leader: up to which index `node` has entries committed, by its answers.
    pub fn committed_at(&self, node: NodeId) -> u64 {
        match node.0 == self.node.raft.id {
            true => self.committed_index(),
            false => {
                self.node.raft.prs().get(node.0).map_or(0, |progress| progress.committed_index)
            }
        }
    }

    /// For a leader: whether `node` has to be sent a snapshot.
    pub fn wants_snapshot(&self, node: NodeId) -> bool {
        let progress = self.node.raft.prs().get(node.0);
        progress.is_some_and(|progress| progress.state == ProgressState::Snapshot)
    }

    fn hard_state(&self) -> HardState {
        let state = self.node.raft.hard_state();
        let (term, vote) = match self.planted.is(Bug::ForgetVote) {
            true => (1, 0),
            false => (state.term, state.vote),
        };
        HardState { term, vote, commit: state.commit }
    }

    /// Has a bug from here on, in a trial.
    pub fn plant(&mut self, planted: Planted) {
        self.planted = planted;
    }

    /// This node is to lead only where no other can: it waits longer than all others before it
    /// stands for election. It votes, and is voted for, like any other.
    pub fn stand_back(&mut self) {
        if self.planted.is(Bug::WitnessPriority) {
            return self.node.set_priority(0);
        }
        self.stands_after = STANDS_BACK_TIMEOUTS * self.ticks.election;
        self.fix_election_timeout();
    }

    /// A snapshot is being loaded into the state, or no more. While it is, this node could lead but
    /// apply nothing, for as long as that takes: it stands back, and takes leadership over from no
    /// node.
    pub fn set_loading(&mut self, is_loading: bool) {
        if self.is_loading != is_loading {
            self.is_loading = is_loading;
            self.fix_election_timeout();
        }
    }

    /// The members are these now.
    pub fn know_members(&mut self, members: &peer::Members) {
        self.node.mut_store().know_members(members);
    }

    /// This node holds no data that a snapshot could give to another: a follower that the log does
    /// not reach back to has to wait for a leader that does.
    pub fn serve_no_snapshots(&mut self) {
        self.node.mut_store().serve_no_snapshots();
    }

    fn fix_election_timeout(&mut self) {
        let draw = mix(self.seed ^ mix(self.node.raft.id) ^ self.node.raft.term);
        let stands_after = match self.is_loading {
            true => self.stands_after.max(STANDS_BACK_TIMEOUTS * self.ticks.election),
            false => self.stands_after,
        };
        let timeout = stands_after + draw as usize % self.ticks.election;
        self.node.raft.set_randomized_election_timeout(timeout);
    }
}

fn committed(entry: Entry) -> Committed {
    let (index, term) = (entry.index, entry.term);
    let content = match convert::members_change(&entry) {
        Some(change) => EntryContent::Members(change),
        None => EntryContent::Commands(entry.data),
    };
    Committed { index, term, content }
}

/// SplitMix64's finaliser: spreads numbers that differ in few bits.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
