//! One site in the lab's virtual time, its nodes called by their ids.

use lab::link::Link;
use lab::simulation::{Down, Node, Settings, Simulation};
use model::Request;
use protocol::site::{Status, Ticket};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The only site.
const SITE: usize = 0;
/// The incarnation of a second machine with the id of a node.
const SECOND_LIFE: u64 = 77;
/// How long one waits for something that must come.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A simulation of one site, with a trace. What it does to nodes takes their ids, from 1.
pub(crate) struct World(Simulation);

impl Deref for World {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.0
    }
}

fn index(id: u64) -> usize {
    usize::try_from(id - 1).expect("a node's id")
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut simulation = Simulation::new(seed, Settings::default());
        simulation.trace = Some(String::new());
        simulation.add_site("", Link::constant(1.0));
        World(simulation)
    }

    pub(crate) fn set_snapshots(&mut self, (bytes, entries_kept): (u64, u64)) {
        self.settings.log_bytes_before_snapshot = bytes;
        self.settings.log_entries_kept = entries_kept;
    }

    /// What was noted so far.
    pub(crate) fn trace(&self) -> &str {
        self.trace.as_deref().unwrap_or_default()
    }

    /// Adds the next node; the first one begins the site, the others ask to be taken in.
    pub(crate) fn add_node(&mut self, witness: bool) {
        self.0.add_node(SITE, witness);
        self.assert_well();
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    pub(crate) fn node(&mut self, id: u64) -> &mut Node {
        &mut self.0.nodes[index(id)]
    }

    pub(crate) fn status(&self, id: u64) -> Option<Status> {
        self.0.status(index(id))
    }

    /// # Panics
    /// When something happened that must never happen, or a node refuses to start.
    pub(crate) fn assert_well(&self) {
        let is_replaced = |node: &Node| {
            node.is_on_old_disk() || self.listed_life(index(node.id)) == Some(SECOND_LIFE)
        };
        let members = self.nodes.iter().filter(|node| !is_replaced(node));
        let refused = members.filter_map(|node| node.refused.as_ref()).next();
        if let Some(why) = self.failure.as_ref().or(refused) {
            panic!("{why}\n{}", self.trace());
        }
    }

    pub(crate) fn run(&mut self, span: Duration) {
        self.0.run(span);
        self.assert_well();
    }

    pub(crate) fn run_to(&mut self, until: Duration) {
        self.run(until.saturating_sub(self.now()));
    }

    /// # Panics
    /// When it does not hold within a minute of virtual time: the site is stuck.
    pub(crate) fn run_until(&mut self, what: &str, holds: impl Fn(&Simulation) -> bool) {
        let held = self.0.run_until(TIMEOUT, holds);
        self.assert_well();
        if !held {
            let statuses: Vec<_> = self.ids().into_iter().map(|id| self.status(id)).collect();
            panic!("it never came to be that {what}: {statuses:#?}");
        }
    }

    pub(crate) fn run_until_whole(&mut self) {
        self.run_until("all nodes vote and hold the same", |simulation| simulation.is_whole(SITE));
    }

    /// A client asks a node. `None`: the node is down.
    pub(crate) fn ask(&mut self, id: u64, request: Request) -> Option<Ticket> {
        self.0.ask(index(id), request)
    }

    /// It starts, though it may have refused before.
    pub(crate) fn start(&mut self, id: u64) {
        self.node(id).refused = None;
        self.0.start(index(id));
        self.assert_well();
    }

    pub(crate) fn jump(&mut self, id: u64, ms: i64) {
        self.0.jump_clock(index(id), ms);
    }

    pub(crate) fn crash(&mut self, id: u64, down: &Down) {
        self.0.crash(index(id), down);
    }

    /// A node that is down comes back with an empty disk.
    pub(crate) fn replace_disk(&mut self, id: u64) {
        self.0.replace_disk(index(id));
        self.assert_well();
    }

    pub(crate) fn put_disk_aside(&mut self, id: u64) {
        self.0.put_disk_aside(index(id));
    }

    /// What is refused then is looked at in the trace.
    pub(crate) fn exchange_disks(&mut self, id: u64) {
        self.0.exchange_disks(index(id));
    }

    pub(crate) fn ask_as_another(&mut self, id: u64) {
        self.0.ask_as_another(index(id), SECOND_LIFE);
    }

    pub(crate) fn pause(&mut self, id: u64, ms: u64) {
        self.0.pause(index(id), Duration::from_millis(ms));
    }

    pub(crate) fn cut(&mut self, a: u64, b: u64) {
        self.0.cut(SITE, a, b);
    }

    pub(crate) fn isolate(&mut self, id: u64) {
        self.0.isolate(SITE, id);
    }
}
