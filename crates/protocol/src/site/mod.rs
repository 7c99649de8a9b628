//! A site at one node: the state, and all that decides about it.
//!
//! [`Site`] is the core that `server` runs on a thread with clocks, sockets and disks, and the lab
//! in virtual time. It holds the state with its machine, the [`replica`](crate::replica) and its
//! snapshots, the node's part in the deployment, the volatile halves of [`crate::global`] and
//! [`crate::causal`], the leader's jobs and the sessions of requests. Here they are composed:
//!
//! - `requests`, `peers`, `inter_site`: what comes in from clients, nodes and other sites; `reads`,
//!   `members`, `answers`, `advance`: what follows from it; `admission`: what the core sees when it
//!   decides where a request goes ([`crate::admission`]);
//! - [`machine`]: what committed commands do to the state, and what the state answers;
//! - `snapshots`, `own_life`, `time`: the replica's snapshots, identity and clocks, put to work;
//! - `deployment`, `ring`, `failure_detector`, `registrars`, `versions`: this site's part in its
//!   deployment;
//! - `forwarded`, `copies`, `backups`, `maps`: the volatile half of global keys;
//! - `causal`, `interest`, `region`, `sessions`: the order of causal keys, and the requests of
//!   their sessions;
//! - `counting`, `placing`: which sites access the keys that are here, and where slots would be
//!   better;
//! - `jobs`: what the leader runs beside requests ([`crate::job`]): `balancing`, `confirming`,
//!   `leaving`, `lending`, `registering`, `release`, `standby`, `stranded` are its jobs that see
//!   more of the site than one mode;
//! - [`status`](Status): what can be seen of it.
//!
//! Still here, though they are no composition: the machine, which has the tables of the modes, and
//! the files of the deployment and of global keys, which act on all of the site at once.
//!
//! One append is on its way to disk at a time; what comes meanwhile gathers and becomes the next
//! entry. A client's answer is given when its entry is applied, and an entry is applied when a
//! majority has it on disk, so *acknowledged* means *durable*.
//!
//! Left out on purpose: nothing here depends on Redis or gRPC, an address is only passed through,
//! and only the leader's clock decides about expiry (it goes through the log).

mod admission;
mod advance;
mod answers;
mod backups;
mod balancing;
mod causal;
pub(crate) mod confirming;
mod copies;
mod counting;
mod deployment;
mod failure_detector;
mod forwarded;
mod inter_site;
mod interest;
mod jobs;
mod leaving;
mod lending;
pub mod machine;
mod maps;
mod members;
mod own_life;
mod peers;
mod placing;
mod reads;
mod region;
mod registering;
mod registrars;
mod release;
mod requests;
mod ring;
mod sessions;
mod snapshots;
mod standby;
mod status;
mod stranded;
mod time;
#[cfg(test)]
mod toy;
mod versions;

use crate::Core;
use crate::bugs::{Bug, Rare};
use crate::global::Global;
use crate::global::proxy_reads::{Moved, ProxyReads};
pub use crate::options::Options;
pub(crate) use crate::origin::Origin;
pub use crate::origin::Ticket;
pub use crate::replica::ReadGate;
use crate::replica::raft::Persist;
pub use crate::replica::snapshots::NotInstalled;
use crate::replica::snapshots::OwnSnapshots;
use crate::replica::{Replica, recovery};
pub use backups::MirrorStatus;
use causal::Causal;
use deployment::Deployment;
use jobs::Jobs;
pub use lending::GroupRight;
use machine::{Machine, Modes, Reader};
pub use maps::{MapView, Share};
use model::{Answer, Failure, NodeId, Registry, Request, SessionToken, SiteId, SlotEpochs, Time};
pub use placing::PlacementCounts;
pub use region::RegionStanding;
use sessions::Sessions;
pub use status::{Standing, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use storage::log::{LogReader, LogStart, Recovered};
use storage::snapshot::{SnapshotHead, Snapshots};
use storage::state::State;
use wire::inter_site::InterSiteMessage;
use wire::peer::{self, Content};

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
    InterSite {
        /// Which site.
        site: SiteId,
        /// The node.
        node: NodeId,
        /// What.
        message: InterSiteMessage,
    },
    /// The link to a node of another site broke, or there is none.
    InterSiteLost {
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
    /// A [`Output::InstallSnapshot`] is durable and loaded into the state, or is not.
    SnapshotInstalled(Result<SnapshotHead, NotInstalled>),
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
    SendInterSite {
        /// Which site.
        site: SiteId,
        /// The receiving node.
        node: NodeId,
        /// What.
        message: Box<InterSiteMessage>,
    },
    /// This site belongs to a deployment, under this id, and its sites are these now.
    Deployment {
        /// Its id.
        own: SiteId,
        /// The registry, with the addresses of all sites.
        registry: Arc<Registry>,
        /// Whether it belongs to it no more. A site that joined beyond the end of a term is not
        /// listed until it has handed that in, and has not left.
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
        /// The token of the client's session from here on, if the request had one.
        token: Option<SessionToken>,
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
    /// The operator of this node should see this. The node goes on.
    Warn(String),
    /// This node cannot go on. The process must end, loudly; its disk is left as it is.
    Fatal(String),
}

/// What recovery made of a site's disk.
pub type Recovery<S> = recovery::Replica<S, Modes>;

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
    causal: Causal,
    sessions: Sessions,
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
        recovery: Recovery<S>,
    ) -> Site<S, R, N> {
        let Recovery { state, mut machine, members, snapshot } = recovery;
        machine.plant(options.planted);
        let applied = (machine.applied().index, machine.log_time_ms());
        let log = (recovered, reader);
        let replica = Replica::new(&options, now, log, (members, snapshot.as_ref()), applied);
        let covered = snapshot.as_ref().map_or(0, |head| head.index);
        let log_bytes = replica.raft.bytes_between(covered, replica.applied);
        let mut site = Site {
            now,
            next_tick: now.monotonic + options.tick,
            replica,
            snapshots: OwnSnapshots::new(snapshots, snapshot, log_bytes, &options),
            state,
            machine,
            jobs: Jobs::new(&options),
            deployment: Deployment::new(&options),
            global: Global::new(options.client),
            causal: Causal::new(&options),
            sessions: Sessions::default(),
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
        if !site.failed {
            site.cut_log();
        }
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
    pub fn proxy_reads(&self) -> ProxyReads {
        ProxyReads::new(self.options.client, self.global.routing.routes().clone())
    }

    /// The state itself, for a snapshot's loading.
    pub fn state(&self) -> &S {
        &self.state
    }

    fn leads(&self) -> bool {
        self.replica.leads()
    }

    fn send(&mut self, to: NodeId, message: Content) {
        let mut message = peer::Message::from(message);
        if let Some(Content::Raft(raft)) = &message.content {
            message.clock = self.replica.clock_of(&self.options, raft);
        }
        message.life = self.replica.own_life(&self.options);
        self.outputs.push_back(Output::Send { to, message: Box::new(message) });
    }

    fn warn(&mut self, what: String) {
        self.outputs.push_back(Output::Warn(what));
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
            Input::InterSite { site, node, message } => self.take_inter_site(site, node, message),
            Input::InterSiteLost { site, node } => self.inter_site_lost(site, node),
            Input::Moved(moved) => self.receive_moved(moved),
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
            // Elsewhere the jobs are stopped.
            let (jobs, changes) = match self.leads() {
                true => (
                    self.jobs.next_due::<S>(self.now.monotonic),
                    self.deployment.changes.next_due(),
                ),
                false => (None, None),
            };
            let soon = [self.global.routing.next_due(), jobs, changes];
            let soon = soon.into_iter().flatten().map(|at| at.max(self.now.monotonic));
            return Some(soon.fold(self.next_tick, Duration::min));
        }
        // The only voter has no other node to exchange messages with: it sleeps until a key
        // expires, time is to be let into the log, or what fronts have noted is to be counted.
        let due_ms = [self.machine.tick_due_ms(), self.replica.log_clock.idle_until_ms()];
        let in_log = due_ms.into_iter().flatten().min().map(|due_ms| {
            let left_ms = due_ms.saturating_sub(self.replica.log_clock.now_ms());
            self.now.monotonic + Duration::from_millis(left_ms)
        });
        let due = in_log.into_iter().chain(self.next_count()).min()?;
        Some(self.next_tick.max(due))
    }
}
