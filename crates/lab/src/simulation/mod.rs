//! Sites in virtual time, on one thread: the shell that performs what cores ask for.
//!
//! It does what `server` does around a [`protocol::site::Site`], with a clock that jumps to
//! whatever happens next. The cores, the log, the snapshots are the ones that `serve` runs; links,
//! clocks, disks and the state's engine are the lab's, and fail on demand. Nothing here is left to
//! chance but what seeded generators decide, so the same seed gives the same trace, to the byte.
//!
//! The user of this module calls [`Simulation::step`] and looks at what has come: answers, requests
//! that a crash took along, and its own calls ([`Simulation::call_after`]), by which clients and
//! faults live in the same time. Whatever must never happen (a core that gives up, an answer given
//! twice) stops the simulation with a [`Simulation::failure`].
//!
//! | file | its one idea |
//! | --- | --- |
//! | `queue` | what happens next |
//! | `clock` | the time as a node reads it |
//! | `connections` | what passes between two nodes, in order, until it breaks |
//! | [`network`] | links between the nodes of a site |
//! | `between` | links between sites |
//! | [`site_lifecycle`] | sites that come and go |
//! | [`node`] | a disk, clocks, and a process that comes and goes |
//! | [`region`] | reads of sessions at fronts, and the order of causal keys |
//! | [`promoted`] | failovers that any node has learned of |
//! | `lifecycle` | what is done to nodes and links from outside |
//! | `shell` | the outputs of a core, performed |
//! | `view` | nodes and sites as one sees them from outside |
//! | `asking` | requests of clients |
//! | `text` | messages, requests and answers as one reads them in a trace |
//!
//! Left out: the time that computing takes. A core answers in no time; only links, disks and
//! background tasks take any. Throughput is measured with real processes, not here.

mod asking;
mod between;
mod chain;
mod clock;
mod connections;
mod lifecycle;
mod loans;
pub mod network;
pub mod node;
pub mod orders;
pub mod promoted;
mod proxy_reads;
pub(crate) mod queue;
pub mod rebuilt;
pub mod region;
mod restored;
mod shell;
pub mod site_lifecycle;
mod text;
mod view;

use crate::link::Link;
use crate::random::Random;
use between::Between;
use model::{
    Answer, CausalWrite, Failure, NodeId, RegionId, Request, Revision, SessionToken, SiteId,
    SlotEpochs, Time,
};
use network::Network;
pub use node::{Belongs, Down, Node};
use promoted::Promoted;
use protocol::Core;
use protocol::bugs::Planted;
use protocol::site::{Input, Ticket};
use queue::Queue;
use site_lifecycle::{AdminTask, SiteLifecycle, SitePlan};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
pub use view::JudgedRing;
use wire::peer::Message;

/// How long a node that was not taken in waits before it tries again; how long a full disk rests.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// Of a thousand connections of a node that crashes, so many bring what it had sent: packets that
/// have left its machine arrive.
const DRAINS_PERMILLE: u64 = 500;
/// The wall clock at the beginning of the world, ms.
pub const EPOCH_MS: u64 = 1_000_000;

/// A node's place in a simulation.
pub type NodeIndex = usize;

/// Something that is going to happen. `life`: only if the node is still in that incarnation.
enum Event<C> {
    Deliver { from: NodeIndex, to: NodeIndex, connection: u64, message: Box<Message> },
    LinkLost { node: NodeIndex, life: u64, other: u64 },
    DeliverInterSite { from: NodeIndex, to: NodeIndex, connection: u64, message: Box<Message> },
    InterSiteLost { node: NodeIndex, life: u64, other: NodeIndex },
    Disk { node: NodeIndex, life: u64 },
    BackgroundTask { node: NodeIndex, life: u64 },
    Ask { node: NodeIndex, life: u64 },
    Start { node: NodeIndex, life: u64 },
    Asked { node: NodeIndex, life: u64, ticket: Ticket, request: Box<Request> },
    Wake { node: NodeIndex },
    Call(C),
}

impl<C> Event<C> {
    /// The node in which it happens.
    fn node(&self) -> Option<NodeIndex> {
        match self {
            Event::Deliver { to: node, .. }
            | Event::LinkLost { node, .. }
            | Event::DeliverInterSite { to: node, .. }
            | Event::InterSiteLost { node, .. }
            | Event::Disk { node, .. }
            | Event::BackgroundTask { node, .. }
            | Event::Ask { node, .. }
            | Event::Asked { node, .. }
            | Event::Wake { node } => Some(*node),
            Event::Start { .. } | Event::Call(_) => None,
        }
    }
}

/// What a step was.
#[derive(Debug, PartialEq, Eq)]
pub enum Stepped<C> {
    /// Something happened among the nodes.
    Something,
    /// A call of the user's is due.
    Call(C),
    /// Nothing more is due by the given time, which it is now; or the simulation has failed.
    Nothing,
}

/// What a client of a node was answered.
#[derive(Debug)]
pub struct Answered {
    /// The request.
    pub ticket: Ticket,
    /// The answer.
    pub outcome: Result<Answer, Failure>,
    /// The token of its session from here on, if the request had one.
    pub token: Option<SessionToken>,
}

/// A node was seen to lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Led {
    /// When, in true time.
    pub at: Duration,
    /// The node.
    pub node: NodeIndex,
    /// In which term.
    pub term: u64,
}

/// A site was seen to hold slots of global keyspaces.
#[derive(Debug, Clone)]
pub struct Held {
    /// When, in true time.
    pub at: Duration,
    /// Which site, by its place in the simulation.
    pub site: usize,
    /// Which life of it.
    pub life: u64,
    /// Its id in the deployment.
    pub id: SiteId,
    /// Which slots, at which epochs.
    pub slots: SlotEpochs,
}

/// What is the same for all nodes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long an fsync takes, between two bounds.
    pub sync: (Duration, Duration),
    /// How long a background task (a snapshot written, loaded) takes.
    pub background: (Duration, Duration),
    /// Of a thousand commits, after how many the state's engine makes itself durable.
    pub state_persist_permille: u64,
    /// A snapshot is made after so many bytes of log …
    pub log_bytes_before_snapshot: u64,
    /// … and so many entries are kept behind it.
    pub log_entries_kept: u64,
    /// Sites of a deployment have their global keys mirrored by their backups.
    pub mirrors: bool,
    /// Bytes of a region's order that are kept for sites that are away.
    pub causal_kept_bytes_max: u64,
    /// About how much a chunk of causal keyspaces takes that a site gets anew.
    pub causal_resync_bytes_max: usize,
    /// Each client of a group counts as much as any other in placement.
    pub equal_clients: bool,
    /// The log's files.
    pub log: storage::log::Options,
    /// Reads that need no question are answered by the front, as `server` does.
    pub answer_at_front: bool,
    /// The order of causal keys is noted as its root gives it: [`Simulation::order`].
    pub notes_order: bool,
    /// The groups that requests are about are noted: [`Simulation::groups`].
    pub notes_groups: bool,
    /// The token beside each answer from node to node, as a mode that has sessions gives it.
    pub answers_token: Option<&'static str>,
    /// The bug that every node has, in a trial.
    pub planted: Planted,
    /// Of a thousand chances for something rare in the cores, how many are taken, in a trial.
    pub rare_permille: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        let ms = Duration::from_millis;
        Settings {
            sync: (ms(2), ms(2)),
            background: (ms(5), ms(5)),
            state_persist_permille: 0,
            log_bytes_before_snapshot: 1 << 30,
            log_entries_kept: 10_000,
            mirrors: true,
            causal_kept_bytes_max: model::limits::CAUSAL_ORDER_KEPT_BYTES_MAX,
            causal_resync_bytes_max: model::limits::CAUSAL_RESYNC_BYTES_MAX,
            equal_clients: false,
            // Small segments, so that a short run sees many.
            log: storage::log::Options {
                segment_bytes: 8 << 10,
                grow_bytes: 1 << 10,
                reserve_bytes: 0,
            },
            answer_at_front: false,
            notes_order: false,
            notes_groups: false,
            answers_token: None,
            planted: Planted::default(),
            rare_permille: 0,
        }
    }
}

/// A site: its nodes and the links between them.
pub struct Group {
    /// Its name, for traces; empty where there is only one.
    pub name: String,
    /// Its id in its deployment, once it belongs to one.
    pub id: Option<SiteId>,
    /// Its nodes; node `n` stands at place `n − 1`.
    pub nodes: Vec<NodeIndex>,
    /// Whether the last notice to one of them was that the site has left its deployment.
    pub has_left: bool,
    /// The links between them.
    pub network: Network,
    /// Which life of it this is, from 1: one that has left comes back as a new site.
    pub life: u64,
    /// Where it stands in its deployment.
    pub lifecycle: SiteLifecycle,
    /// Clients do not reach it, and it does not reach them: for users of this module that have
    /// clients.
    pub clients_cut: bool,
    /// How much it should hold, relative to others: 100 is one share.
    pub capacity_percent: u32,
    /// What it can fail together with, from the next start of its nodes on.
    pub failure_domain: Option<model::SiteName>,
    /// The region in which it founds a deployment or joins one.
    pub region: Option<model::SiteName>,
    /// How many bytes of others' groups it takes, from the next start of its nodes on.
    pub borrowed_bytes_max: Option<u64>,
    plan: SitePlan,
}

/// Sites in virtual time. `C` is what the user's calls carry.
pub struct Simulation<C = ()> {
    /// What is the same for all nodes; changes take effect at once.
    pub settings: Settings,
    /// The sites.
    pub sites: Vec<Group>,
    /// All nodes of all sites.
    pub nodes: Vec<Node>,
    /// How many sites have come to the deployment while it ran.
    pub sites_entered: u64,
    /// Bytes that nodes have sent to other sites, over links that have a bandwidth.
    pub inter_site_bytes: u64,
    /// Answers that came since they were last taken.
    pub answered: Vec<Answered>,
    /// Requests that a crashed node had taken in: their outcome is unknown.
    pub lost: Vec<Ticket>,
    /// Nodes that were seen to lead since this was last taken.
    pub led: Vec<Led>,
    /// Sites that were seen to own slots since this was last taken.
    pub held: Vec<Held>,
    /// The order of causal keys so far in each region, if it is noted.
    pub order_of: BTreeMap<RegionId, Vec<region::Ordered>>,
    /// Which site was the root in an epoch, if the order is noted.
    root_of: BTreeMap<(RegionId, u16), SiteId>,
    /// The end of the order as each node had it when it was last looked at.
    looked_at: BTreeMap<NodeIndex, model::Position>,
    /// The causal writes of each site so far as it made them, if the order is noted.
    pub own_writes: BTreeMap<(SiteId, Revision), CausalWrite>,
    /// Sites that were removed while they were lost: what they alone had of causal keys is gone.
    pub removed_lost: BTreeSet<SiteId>,
    /// Whether a root has given places that its order lacks after a takeover.
    pub gave_places_up: bool,
    /// What became of the order of causal keys as its root changed.
    pub ends: rebuilt::Ends,
    /// Whether any site's pointers on the ring have changed since the last look.
    pub ring_changed: bool,
    /// Whether any site's loans of groups have changed since the last look.
    pub loans_changed: bool,
    /// The groups that requests were about, where keyspaces may lend them.
    groups: BTreeSet<model::Group>,
    /// Whether all faults have ended: none begins anything new.
    pub faults_ended: bool,
    promoted: Vec<Promoted>,
    /// When a node first had a registry that was recovered.
    recovered: Option<Duration>,
    /// Until when sites had the operator's order to have no backup; the last time of each.
    without_backup: BTreeMap<SiteId, Duration>,
    chain: chain::Chain,
    /// Outputs performed so far, by all nodes.
    pub outputs: u64,
    /// Events that happened so far.
    pub events: u64,
    /// Instead of performing the output of this number, its node crashes, and starts again after a
    /// while.
    pub crash_at: Option<(u64, Down, Duration)>,
    /// A text trace of what happened; `None`: not recorded.
    pub trace: Option<String>,
    /// What must never happen, and did: nothing happens any more.
    pub failure: Option<String>,
    now: Duration,
    seed: u64,
    random: Random,
    /// What of a dead node's messages arrives.
    dying: Random,
    between: Between,
    admin_tasks: BTreeMap<Ticket, AdminTask>,
    /// Operators' orders that are not answered.
    orders: BTreeMap<Ticket, orders::Asked>,
    queue: Queue<Event<C>>,
    last_ticket: u64,
    traced_at: Duration,
}

impl<C> Simulation<C> {
    /// Nothing yet, at time zero. Its own draws (jitter, fsyncs) come from `seed`.
    #[must_use]
    pub fn new(seed: u64, settings: Settings) -> Simulation<C> {
        Simulation {
            settings,
            sites: Vec::new(),
            nodes: Vec::new(),
            sites_entered: 0,
            inter_site_bytes: 0,
            answered: Vec::new(),
            lost: Vec::new(),
            led: Vec::new(),
            held: Vec::new(),
            order_of: BTreeMap::new(),
            root_of: BTreeMap::new(),
            looked_at: BTreeMap::new(),
            own_writes: BTreeMap::new(),
            removed_lost: BTreeSet::new(),
            gave_places_up: false,
            ends: rebuilt::Ends::default(),
            ring_changed: false,
            loans_changed: false,
            groups: BTreeSet::new(),
            faults_ended: false,
            promoted: Vec::new(),
            recovered: None,
            without_backup: BTreeMap::new(),
            chain: chain::Chain::default(),
            outputs: 0,
            events: 0,
            crash_at: None,
            trace: None,
            failure: None,
            now: Duration::ZERO,
            seed,
            random: Random::stream(seed, "simulation", 0),
            dying: Random::stream(seed, "dying", 0),
            between: Between::new(seed),
            admin_tasks: BTreeMap::new(),
            orders: BTreeMap::new(),
            queue: Queue::new(),
            last_ticket: 0,
            traced_at: Duration::MAX,
        }
    }

    /// The true time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    // ---- building ------------------------------------------------------------------------------

    /// Adds a site without nodes.
    pub fn add_site(&mut self, name: impl Into<String>, link: Link) -> usize {
        let group = Group {
            name: name.into(),
            id: None,
            nodes: Vec::new(),
            has_left: false,
            network: Network::new(link),
            life: 1,
            lifecycle: SiteLifecycle::Inside,
            clients_cut: false,
            capacity_percent: 100,
            failure_domain: None,
            region: None,
            borrowed_bytes_max: None,
            plan: SitePlan::default(),
        };
        self.sites.push(group);
        self.sites.len() - 1
    }

    /// A site that has not come yet: see [`Simulation::enter`]. Called before it has nodes.
    pub fn keep_outside(&mut self, site: usize) {
        (self.sites[site].lifecycle, self.sites[site].life) = (SiteLifecycle::Outside, 0);
    }

    /// Adds a node to a site; its first one begins the site, the others ask to be taken in.
    pub fn add_node(&mut self, site: usize, witness: bool) -> NodeIndex {
        let (index, group) = (self.nodes.len(), &mut self.sites[site]);
        group.nodes.push(index);
        let id = group.nodes.len() as u64;
        let name = match group.name.as_str() {
            "" => format!("n{id}"),
            site => format!("{site}/n{id}"),
        };
        let random = Random::stream(self.seed, "node", index as u64);
        self.nodes.push(Node::new(site, id, name, witness, random));
        self.start(index);
        index
    }

    // ---- traces --------------------------------------------------------------------------------

    /// The clocks of a node now.
    fn time(&self, node: NodeIndex) -> Time {
        self.nodes[node].clock.at(self.now)
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        let Some(trace) = &mut self.trace else { return };
        if self.traced_at != self.now {
            self.traced_at = self.now;
            let ms = self.now.as_micros() as f64 / 1_000.0;
            trace.push_str(&format!("@ {ms} ms\n"));
        }
        trace.push_str(&line());
        trace.push('\n');
    }

    fn note_of(&mut self, node: NodeIndex, what: impl FnOnce() -> String) {
        if self.trace.is_some() {
            let line = format!("{}: {}", self.nodes[node].name, what());
            self.note(|| line);
        }
    }

    /// Nothing happens any more.
    fn fail(&mut self, what: String) {
        self.note(|| what.clone());
        self.failure.get_or_insert(what);
    }

    // ---- time ----------------------------------------------------------------------------------

    /// Gives this back from [`Simulation::step`] after a while.
    pub fn call_after(&mut self, delay: Duration, call: C) {
        self.after(delay, Event::Call(call));
    }

    fn after(&mut self, delay: Duration, event: Event<C>) {
        self.queue.push(self.now + delay, event);
    }

    /// Lets the next thing happen, if it is due by `until`.
    pub fn step(&mut self, until: Duration) -> Stepped<C> {
        if self.failure.is_some() {
            return Stepped::Nothing;
        }
        let Some((at, event)) = self.queue.pop(until) else {
            self.now = self.now.max(until);
            return Stepped::Nothing;
        };
        self.now = at;
        if let Event::Call(call) = event {
            return Stepped::Call(call);
        }
        self.events += 1;
        let paused_until =
            event.node().map_or(Duration::ZERO, |node| self.nodes[node].paused_until);
        if paused_until > at {
            self.queue.push(paused_until, event);
        } else {
            self.happen(event);
        }
        Stepped::Something
    }

    /// Lets a span of time pass; calls that fall due in it are thrown away.
    pub fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while !matches!(self.step(until), Stepped::Nothing) {}
    }

    /// Runs until something holds; `false`: it does not within `timeout`.
    #[must_use]
    pub fn run_until(&mut self, timeout: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + timeout;
        while !holds(self) {
            if matches!(self.step(until), Stepped::Nothing) {
                return false;
            }
        }
        true
    }

    fn happen(&mut self, event: Event<C>) {
        match event {
            Event::Deliver { from, to, connection, message } => {
                self.deliver(from, to, connection, *message);
            }
            Event::LinkLost { node, life, other } if self.is_current_life(node, life) => {
                let (site, id) = (self.nodes[node].site, self.nodes[node].id);
                self.sites[site].network.drained(other, id);
                self.input(node, Input::LinkLost(NodeId(other)));
            }
            Event::DeliverInterSite { from, to, connection, message }
                if self.nodes[to].up && self.between.holds(from, to, connection) =>
            {
                self.deliver_inter_site(from, to, *message);
            }
            Event::InterSiteLost { node, life, other } if self.is_current_life(node, life) => {
                self.between.drained(other, node);
                self.inter_site_lost(node, other);
            }
            Event::Disk { node, life } if self.is_current_life(node, life) => self.disk_done(node),
            Event::BackgroundTask { node, life } if self.is_current_life(node, life) => {
                self.background_done(node)
            }
            Event::Ask { node, life } if self.is_current_life(node, life) => self.ask_to_join(node),
            Event::Start { node, life } if self.is_current_life(node, life) => self.start(node),
            Event::Asked { node, life, ticket, request } if self.is_current_life(node, life) => {
                self.take(node, ticket, *request);
            }
            Event::Wake { node } => self.wake(node),
            _ => {}
        }
    }

    fn is_current_life(&self, node: NodeIndex, life: u64) -> bool {
        self.nodes[node].life == life
    }

    fn deliver(&mut self, from: NodeIndex, to: NodeIndex, connection: u64, message: Message) {
        let (sender, receiver) = (self.nodes[from].id, &self.nodes[to]);
        let network = &self.sites[receiver.site].network;
        if !receiver.up || !network.holds(sender, receiver.id, connection) {
            return;
        }
        self.note_message(from, "→", to, &message);
        if self.nodes[to].process.is_some() {
            return self.input(to, Input::Message { from: NodeId(sender), message });
        }
        self.taken_in(to, message);
    }

    fn wake(&mut self, node: NodeIndex) {
        // Another one came sooner and planned the next; one that a pause held up is late.
        if self.nodes[node].wakes_at.is_none_or(|wakes_at| wakes_at > self.now) {
            return;
        }
        self.nodes[node].wakes_at = None;
        let now = self.time(node);
        if let Some(process) = &mut self.nodes[node].process {
            process.site.timeout(now);
        }
        self.time_out_proxy_reads(node);
        self.perform_all(node);
    }
}
