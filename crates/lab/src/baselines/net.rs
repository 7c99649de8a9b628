//! Messages, processors, and what is counted.
//!
//! A process stands at a place and has cores. A message takes its link's delay, then waits for a
//! core, then takes its cost; what it causes happens when it is done. Links keep order and lose
//! nothing. Bytes of payloads are not counted, those of metadata are: what a message has beside the
//! key and the value.

use std::time::Duration;

use super::{Answer, Ask, Layout, Store, Version};
use crate::simulation::queue::Queue;

/// A process, or a client.
pub type Node = usize;

/// What a store took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Of all processors.
    pub cpu_us: f64,
    /// On all links.
    pub metadata_bytes: u64,
    /// Messages on all links.
    pub messages: u64,
    /// The longest that a message waited for a core so far.
    pub queued_us: u64,
}

/// A write became visible at another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visible {
    /// Where it was written.
    pub from: usize,
    /// Where it became visible.
    pub at: usize,
    /// When it was asked for.
    pub issued_us: u64,
    /// When it was visible.
    pub visible_us: u64,
}

/// How a store does it.
pub trait Protocol {
    /// What its processes and clients send.
    type Message;
    /// The processes, in order: places and cores. The first ones are the sites' stores.
    fn processes(layout: &Layout) -> Vec<(usize, usize)>;
    /// What a message costs where it arrives, in microseconds of a core.
    fn cost_us(&self, layout: &Layout, at: Node, message: &Self::Message) -> f64;
    /// Before the start: timers.
    fn begin(&mut self, _net: &mut Net<Self::Message>) {}
    /// A client asks.
    fn ask(&mut self, net: &mut Net<Self::Message>, client: usize, ask: Ask);
    /// A message is done with at a process, or is at a client.
    fn receive(&mut self, net: &mut Net<Self::Message>, at: Node, message: Self::Message);
    /// All writes in the order to which it converges.
    fn order(&self) -> Vec<Version>;
    /// What a site shows of a key.
    fn shows(&self, site: usize, key: u32) -> Version;
}

enum Event<M> {
    Arrived(Node, M),
    Done(Node, M),
}

/// What happens, and with how much metadata it has come over a link; `None`: over none.
struct Due<M> {
    event: Event<M>,
    metadata_bytes: Option<u64>,
}

/// What protocols run on.
pub struct Net<M> {
    /// Where everything is.
    pub layout: Layout,
    now_us: u64,
    queue: Queue<Due<M>>,
    places: Vec<usize>,
    /// By process and core: until when it is busy.
    busy_us: Vec<Vec<f64>>,
    answers: Vec<Answer>,
    visible: Vec<Visible>,
    spent: Spent,
}

impl<M> Net<M> {
    fn new(layout: Layout, processes: &[(usize, usize)]) -> Net<M> {
        Net {
            layout,
            now_us: 0,
            queue: Queue::new(),
            places: processes.iter().map(|(place, _)| *place).collect(),
            busy_us: processes.iter().map(|(_, cores)| vec![0.0; (*cores).max(1)]).collect(),
            answers: Vec::new(),
            visible: Vec::new(),
            spent: Spent::default(),
        }
    }

    /// The time.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    fn push(&mut self, at_us: u64, event: Event<M>) {
        let due = Due { event, metadata_bytes: None };
        self.queue.push(Duration::from_micros(at_us), due);
    }

    fn carry(&mut self, delay_us: u64, metadata_bytes: u64, event: Event<M>) {
        self.spent.metadata_bytes += metadata_bytes;
        self.spent.messages += 1;
        let due = Due { event, metadata_bytes: Some(metadata_bytes) };
        self.queue.push(Duration::from_micros(self.now_us + delay_us), due);
    }

    /// From process to process; `metadata_bytes`: of it beside the key and the value.
    pub fn send(&mut self, from: Node, to: Node, metadata_bytes: u64, message: M) {
        let delay_us = self.layout.delay_us[self.places[from]][self.places[to]];
        self.carry(delay_us, metadata_bytes, Event::Arrived(to, message));
    }

    /// From a client to a process.
    pub fn send_up(&mut self, client: usize, to: Node, metadata_bytes: u64, message: M) {
        let delay_us = self.layout.client_us(client, self.places[to]);
        self.carry(delay_us, metadata_bytes, Event::Arrived(to, message));
    }

    /// From a process to a client.
    pub fn send_down(&mut self, from: Node, client: usize, metadata_bytes: u64, message: M) {
        let delay_us = self.layout.client_us(client, self.places[from]);
        let to = self.places.len() + client;
        self.carry(delay_us, metadata_bytes, Event::Done(to, message));
    }

    /// To itself, later.
    pub fn after(&mut self, at: Node, wait_us: u64, message: M) {
        self.push(self.now_us + wait_us, Event::Arrived(at, message));
    }

    /// The client that a node is, if it is none of the processes.
    #[must_use]
    pub fn client(&self, node: Node) -> usize {
        node - self.places.len()
    }

    /// A client has its answer.
    pub fn answer(&mut self, client: usize, version: Version) {
        self.answers.push(Answer { at_us: self.now_us, client, version });
    }

    /// A write became visible here.
    pub fn visible(&mut self, from: usize, at: usize, issued_us: u64) {
        self.visible.push(Visible { from, at, issued_us, visible_us: self.now_us });
    }

    /// Takes a core for work that nothing waits for.
    pub fn occupy(&mut self, node: Node, cost_us: f64) {
        self.work(node, cost_us);
    }

    /// When a core has done this.
    fn work(&mut self, node: Node, cost_us: f64) -> u64 {
        let now_us = self.now_us as f64;
        let cores = &mut self.busy_us[node];
        let first = cores.iter().enumerate().min_by(|one, other| one.1.total_cmp(other.1));
        let core = first.map_or(0, |(core, _)| core);
        let starts_us = cores[core].max(now_us);
        cores[core] = starts_us + cost_us;
        self.spent.cpu_us += cost_us;
        self.spent.queued_us = self.spent.queued_us.max((starts_us - now_us) as u64);
        cores[core].ceil() as u64
    }
}

/// A store of a protocol.
pub struct Modelled<P: Protocol> {
    net: Net<P::Message>,
    /// The protocol's state.
    pub protocol: P,
}

impl<P: Protocol> Modelled<P> {
    /// Everything at rest.
    #[must_use]
    pub fn new(layout: Layout, mut protocol: P) -> Modelled<P> {
        let processes = P::processes(&layout);
        let mut net = Net::new(layout, &processes);
        protocol.begin(&mut net);
        Modelled { net, protocol }
    }

    /// The next answer that there is.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        self.net.answers.pop()
    }

    /// When something happens next.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.net.queue.next().map(|at| at.as_micros() as u64)
    }

    /// What is due first happens, if that is by then: at its time, or `late` at that one. With how
    /// much metadata it came over a link; `None`: nothing is due.
    pub(super) fn step(&mut self, until_us: u64, late_us: Option<u64>) -> Option<Option<u64>> {
        let (at, due) = self.net.queue.pop(Duration::from_micros(until_us))?;
        self.net.now_us = late_us.unwrap_or(at.as_micros() as u64);
        match due.event {
            Event::Arrived(node, message) => {
                let cost_us = self.protocol.cost_us(&self.net.layout, node, &message);
                let done_us = self.net.work(node, cost_us);
                self.net.push(done_us, Event::Done(node, message));
            }
            Event::Done(node, message) => self.protocol.receive(&mut self.net, node, message),
        }
        Some(due.metadata_bytes)
    }
}

impl<P: Protocol> Store for Modelled<P> {
    fn ask(&mut self, at_us: u64, client: usize, ask: Ask) {
        self.net.now_us = self.net.now_us.max(at_us);
        self.protocol.ask(&mut self.net, client, ask);
    }

    fn advance(&mut self, until_us: u64) -> Option<Answer> {
        loop {
            if let Some(answer) = self.answer() {
                return Some(answer);
            }
            self.step(until_us, None)?;
        }
    }

    fn spent(&self) -> Spent {
        self.net.spent
    }

    fn take_visible(&mut self) -> Vec<Visible> {
        std::mem::take(&mut self.net.visible)
    }

    fn order(&self) -> Vec<Version> {
        self.protocol.order()
    }

    fn shows(&self, site: usize, key: u32) -> Version {
        self.protocol.shows(site, key)
    }
}
