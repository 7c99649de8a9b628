//! A site's replica: raft, the state machine it drives, and the requests that wait for it.
//!
//! [`Site`] is the core that `server` runs on a thread with clocks, sockets and disks, and the lab
//! in virtual time. It holds the state with its machine and four parts: the `replica`, its
//! `snapshots`, its part in the `deployment` and the volatile half of [`crate::global`]. What they do
//! is in files that each have one idea:
//!
//! - [`raft`]: the consensus, behind a façade;
//! - [`machine`]: what committed commands do to the state, and what the state answers;
//! - `writes`, `reads`: requests of this node's clients, batched;
//! - `forwarding`: what this node hands to the leader;
//! - `membership`, `handover`: the members of the site, and which is to lead it; [`lives`]: which
//!   life of a node a message is of;
//! - `snapshots`, `transfer`: for a log that is long and for nodes that lag;
//! - `across`, `forwarded`, `deployment`, `ring`: requests that other sites hold the keys of; this
//!   site's part in its deployment, and on the ring;
//! - `jobs`: what the leader runs beside requests ([`crate::job`]);
//! - `registrars`, `versions`: changes of the registry, and which one other sites have;
//! - `maps`: the map of slots, kept right and shown ([`crate::global::map`]);
//! - `copies`: copies of keys that other sites hold;
//! - `log_clock`, `moments`: log time, and the moments that people name;
//! - `requests`, `advance`: what comes in, and what follows from it;
//! - [`recovery`]: what a replica does with its disk before it starts;
//! - [`status`](Status): what can be seen of it;
//! - [`trial`]: bugs put in on purpose, and rare things made common; off unless built for it.
//!
//! One append is on its way to disk at a time; what comes meanwhile gathers and becomes the next
//! entry. A client's answer is given when its entry is applied, and an entry is applied when a
//! majority has it on disk, so *acknowledged* means *durable*.
//!
//! Left out on purpose: nothing here depends on Redis or gRPC, an address is only passed through,
//! and only the leader's clock decides about expiry (it goes through the log).

mod across;
mod admission;
mod advance;
mod backups;
mod balancing;
mod copies;
mod deployment;
mod forwarded;
mod forwarding;
mod gate;
mod handover;
mod heard;
mod jobs;
mod leaving;
pub mod lives;
mod log_clock;
pub mod machine;
mod maps;
pub mod membership;
mod moments;
pub mod raft;
mod reach;
pub mod reads;
pub mod recovery;
mod registering;
mod registrars;
mod release;
mod replica;
mod requests;
mod ring;
mod snapshots;
mod status;
mod stranded;
mod transfer;
pub mod trial;
mod versions;
mod writes;

use crate::Core;
use crate::admission::Sender;
use crate::global::Global;
use crate::global::straight::{Moved, Straight};
pub(crate) use backups::Backups;
pub use backups::Kept;
use deployment::Deployment;
pub use gate::ReadGate;
use jobs::Jobs;
use machine::{Machine, Reader};
pub use maps::{MapView, Share};
use model::{
    Answer, ClientId, DeploymentId, Failure, JobName, NodeId, Registry, Request, SiteEntry, SiteId,
    Slot, SlotEpochs, Time, limits,
};
use raft::{Persist, Ticks};
pub(crate) use reach::Reach;
use replica::Replica;
use snapshots::OwnSnapshots;
pub use status::{Standing, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use storage::log::{LogReader, LogStart, Recovered};
use storage::snapshot::{SnapshotHead, Snapshots};
use storage::state::State;
use trial::{Bug, Planted, Rare};
pub(crate) use versions::Versions;
use wire::across::Across;
use wire::peer::{self, Say};
pub(crate) use writes::forgotten_is_unknown;

/// The shell's name for a request; it comes back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The place that an answer goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client of this node.
    Client(Ticket),
    /// A client of this node, with a request that was sent to an earlier leader and not answered:
    /// whatever the outcome now, it may have been done then.
    Doubtful(Ticket),
    /// Another node, under its own number.
    Node { node: NodeId, id: u64 },
    /// A node of another site, under its own number. In doubt: a leader here was sent it and lost.
    /// About which slot, if about one.
    Across { site: SiteId, node: NodeId, id: u64, in_doubt: bool, slot: Option<Slot> },
    /// A request of [`Routing`] that this site carries out itself.
    Routed { id: u64, in_doubt: bool },
    /// A job of this site's leader, under its number.
    Job { job: JobName, id: u64 },
    /// A change of the registry that this site makes: a step of a registrar.
    Registrar(u64),
    /// None: the site itself, or a request that was already answered as unknown.
    Nobody,
}

impl Origin {
    /// How admission sees it.
    pub(crate) fn sender(&self) -> Sender {
        match self {
            Origin::Across { .. } => Sender::Site,
            _ => Sender::Client,
        }
    }

    /// The same, now that a leader was lost that was sent the request.
    fn in_doubt(self) -> Origin {
        match self {
            Origin::Client(ticket) => Origin::Doubtful(ticket),
            Origin::Across { site, node, id, slot, .. } => {
                Origin::Across { site, node, id, in_doubt: true, slot }
            }
            Origin::Routed { id, .. } => Origin::Routed { id, in_doubt: true },
            other => other,
        }
    }
}

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
    /// Entries that are kept behind a snapshot, for followers that lag a little.
    pub log_entries_kept: u64,
    /// The deployment to begin, if this site belongs to none.
    pub founding: Option<(DeploymentId, SiteEntry)>,
    /// Where clients of the Redis Cluster protocol find this node; empty: nowhere.
    pub cluster_address: String,
    /// Bytes a second that slots on their way to other sites may take; 0: as many as go.
    pub handover_bytes_per_s_max: u64,
    /// Whether this site has its mirror kept by its backup.
    pub mirrors: bool,
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
            cluster_address: String::new(),
            handover_bytes_per_s_max: 0,
            mirrors: true,
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

/// What happens to a replica.
#[derive(Debug)]
pub enum Input {
    /// A client of this node asks.
    Request {
        /// The shell's name for it.
        ticket: Ticket,
        /// What it asks.
        request: Request,
    },
    /// A message of another node.
    Message {
        /// The node.
        from: NodeId,
        /// What.
        message: peer::Message,
    },
    /// The link to a node broke: messages may have been lost.
    LinkLost(NodeId),
    /// A message of a node of another site of the deployment.
    Across {
        /// Which site.
        site: SiteId,
        /// The node.
        node: NodeId,
        /// What.
        message: Across,
    },
    /// The link to a node of another site broke, or there is none.
    AcrossLost {
        /// Which site.
        site: SiteId,
        /// The node.
        node: NodeId,
    },
    /// A site does not hold a slot, by its answer to a read that went past this core.
    Moved(Moved),
    /// A [`Output::Persist`] is durable, and all before it.
    Persisted(u64),
    /// There is no room for a persist (it goes on being tried), or writing altogether should stop
    /// before it comes to that.
    DiskFull(String),
    /// There is room again.
    DiskHasRoom,
    /// A [`Output::WriteSnapshot`] is durable, or failed.
    SnapshotWritten(Result<SnapshotHead, String>),
    /// A [`Output::InstallSnapshot`] is durable and loaded into the state, or failed.
    SnapshotInstalled(Result<SnapshotHead, String>),
}

/// What a replica wants done.
#[derive(Debug)]
pub enum Output<V> {
    /// Make something durable, then return [`Input::Persisted`]. In order.
    Persist(Box<Persist>),
    /// Forget entries that a snapshot covers.
    CutLog(LogStart),
    /// Send a message to a node. May be lost.
    Send {
        /// The receiving node.
        to: NodeId,
        /// What.
        message: Box<peer::Message>,
    },
    /// Send a message to a node of another site. May be lost.
    SendAcross {
        /// Which site.
        site: SiteId,
        /// The receiving node.
        node: NodeId,
        /// What.
        message: Box<Across>,
    },
    /// This site belongs to a deployment, under this id, and its sites are these now.
    Deployment {
        /// Its id.
        own: SiteId,
        /// The registry, with everybody's addresses.
        registry: Arc<Registry>,
        /// Whether it belongs to it no more. A site that joined beyond the end of a term is not listed
        /// until it has handed that in, and has not left.
        has_left: bool,
    },
    /// The site holds these slots, at these epochs, from here on (or did when it was last asked).
    Holds(SlotEpochs),
    /// Answer a client of this node.
    Answer {
        /// The shell's name for the request.
        ticket: Ticket,
        /// The answer.
        outcome: Result<Answer, Failure>,
    },
    /// Which reads may be answered from the state without asking this core. Fewer than before: this
    /// comes before anything else; more: behind all else.
    Gate(ReadGate),
    /// The state has moved on; watchers of the change log may look.
    Applied,
    /// The members are these now, with their addresses.
    Members(peer::Members),
    /// This life is a member since this log index. It is recorded before anything else is, as
    /// [`Options::member_since`] of the next start.
    MemberSince(u64),
    /// Write `view` as a snapshot, beside everything else; then return [`Input::SnapshotWritten`].
    WriteSnapshot {
        /// What it is of.
        head: SnapshotHead,
        /// The state then.
        view: V,
    },
    /// Finish the snapshot received for `index` and load it into the state, beside everything
    /// else; then return [`Input::SnapshotInstalled`].
    InstallSnapshot {
        /// Which.
        index: u64,
    },
    /// This node cannot go on. The process must end, loudly; its disk is left as it is.
    Fatal(String),
}

/// A site's replica. See the module's documentation.
pub struct Site<S: State, R: LogReader, N: Snapshots> {
    options: Options,
    now: Time,
    next_tick: Duration,
    state: S,
    machine: Machine<S>,
    replica: Replica<R>,
    snapshots: OwnSnapshots<N>,
    jobs: Jobs,
    deployment: Deployment,
    global: Global,
    outputs: VecDeque<Output<S::View>>,
    failed: bool,
    rare: Rare,
}

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// A replica as [`recovery`] left its disk.
    pub fn new(
        options: Options,
        now: Time,
        recovered: &Recovered,
        reader: R,
        snapshots: N,
        recovery: recovery::Replica<S>,
    ) -> Site<S, R, N> {
        let recovery::Replica { state, mut machine, members, snapshot } = recovery;
        machine.plant(options.planted);
        let applied = (machine.applied().index, machine.log_time_ms());
        let log = (recovered, reader);
        let mut site = Site {
            now,
            next_tick: now.monotonic + options.tick,
            replica: Replica::new(&options, now, log, (members, snapshot.as_ref()), applied),
            snapshots: OwnSnapshots::new(snapshots, snapshot, &options),
            state,
            machine,
            jobs: Jobs::new(&options),
            deployment: Deployment::new(&options),
            global: Global::new(options.client),
            outputs: VecDeque::new(),
            failed: false,
            rare: Rare::new(options.rare_permille, options.seed),
            options,
        };
        // A node that was just taken in has no members yet; its shell has their addresses.
        if !site.replica.members.nodes.is_empty() {
            site.outputs.push_back(Output::Members(site.replica.members.clone()));
        }
        site.begin_own_life();
        site.move_gate();
        site.follow_deployment();
        site
    }

    /// Nothing rare is made common any more, in a trial.
    pub fn calm(&mut self) {
        self.rare = Rare::default();
    }

    /// Reads the state on any thread, as far as [`Output::Gate`] allows.
    pub fn reader(&self) -> Reader<S> {
        self.machine.reader()
    }

    /// What sends reads past this core.
    pub fn straight(&self) -> Straight {
        Straight::new(self.options.client, self.global.routing.routes().clone())
    }

    /// The state itself, for a snapshot's loading.
    pub fn state(&self) -> &S {
        &self.state
    }

    fn leads(&self) -> bool {
        self.replica.leads()
    }

    fn send(&mut self, to: NodeId, say: Say) {
        let mut message = peer::Message::from(say);
        if let Some(Say::Raft(raft)) = &message.say {
            message.clock = self.clock_of(raft);
        }
        message.life = self.own_life();
        self.outputs.push_back(Output::Send { to, message: Box::new(message) });
    }

    fn fail(&mut self, why: impl std::fmt::Display) {
        self.failed = true;
        self.replica.gate.set(ReadGate::Closed);
        self.outputs.push_back(Output::Fatal(why.to_string()));
    }
}

impl<S: State, R: LogReader, N: Snapshots> Core for Site<S, R, N> {
    type Input = Input;
    type Output = Output<S::View>;

    fn handle(&mut self, now: Time, input: Input) {
        self.now_is(now);
        if self.failed {
            return;
        }
        match input {
            Input::Request { ticket, request } => self.take_request(ticket, request),
            Input::Message { from, message } => self.take_message(from, message),
            Input::LinkLost(node) => self.link_lost(node),
            Input::Across { site, node, message } => self.take_across(site, node, message),
            Input::AcrossLost { site, node } => self.across_lost(site, node),
            Input::Moved(moved) => self.hear_moved(moved),
            Input::Persisted(number) => self.replica.raft.persisted(number),
            Input::DiskFull(why) => self.disk_is_full(why),
            Input::DiskHasRoom => self.replica.disk_full = None,
            Input::SnapshotWritten(written) => self.snapshot_written(written),
            Input::SnapshotInstalled(installed) => self.snapshot_installed(installed),
        }
    }

    fn timeout(&mut self, now: Time) {
        self.now_is(now);
        if self.failed || self.next_tick > now.monotonic {
            return;
        }
        // After a pause time is not made up for: a burst of ticks would depose a leader before its
        // messages are read.
        self.next_tick = now.monotonic + self.options.tick;
        self.replica.raft.tick();
        self.on_tick();
    }

    fn poll(&mut self) -> Option<Self::Output> {
        if self.outputs.is_empty() && !self.failed {
            self.advance();
        }
        let narrowed = match self.options.planted.is(Bug::GateLast) {
            true => None,
            false => self.replica.gate.narrowed().map(Output::Gate),
        };
        narrowed
            .or_else(|| self.outputs.pop_front())
            .or_else(|| self.replica.gate.moved().map(Output::Gate))
    }

    fn deadline(&self) -> Option<Duration> {
        if self.failed {
            return None;
        }
        if !self.is_quiet() {
            let changes = self.deployment.changes.next_due().filter(|_| self.leads());
            let soon = [
                self.global.routing.next_due(),
                self.jobs.next_due::<S>(self.now.monotonic),
                changes,
            ];
            let soon = soon.into_iter().flatten().map(|at| at.max(self.now.monotonic));
            return Some(soon.fold(self.next_tick, Duration::min));
        }
        // The only voter has no other node to exchange messages with: it sleeps until a key
        // expires, or time is to be let into the log.
        let due_ms = [self.machine.tick_due_ms(), self.replica.log_clock.idle_until_ms()];
        let due_ms = due_ms.into_iter().flatten().min()?;
        let left = Duration::from_millis(due_ms.saturating_sub(self.replica.log_clock.now_ms()));
        Some(self.next_tick.max(self.now.monotonic + left))
    }
}
