//! A world: nodes, their disks and the links between them, in virtual time on one thread.
//!
//! It does what `server` does around a [`protocol::site::Site`], with a clock that jumps to whatever
//! happens next. Nothing here is left to chance but what the seeded [`Random`] decides, so the same
//! seed gives the same trace, to the byte. A node can be made to crash between any two outputs.

mod network;
mod node;
mod random;
mod text;

use model::{Answer, Failure, NodeId, Request, Time};
pub(crate) use network::Network;
pub(crate) use node::{Belongs, Down, Node};
use node::{Chore, DiskJob, Process};
use protocol::Core;
use protocol::site::{Input, Output, Status, Ticket};
pub(crate) use random::Random;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::disk::memory::{MemoryDisk, Survival};
use storage::log::{LogError, LogWriter};
use storage::snapshot::Snapshots;
use storage::state::Read;
use storage::state::memory::{MemoryState, MemoryView};
pub(crate) use text::{outcome as outcome_text, request as request_text};
use wire::entry;
use wire::peer::{Forward, ForwardedRequest, Message, Say};

/// How long a node that was not taken in waits before it asks again; how long a full disk rests.
const ASK_AGAIN: Duration = Duration::from_millis(300);
/// The wall clock at the beginning of the world.
const EPOCH_MS: u64 = 1_000_000;

/// Something that is going to happen. `life`: only if the node still lives that life.
enum Event {
    Deliver { from: u64, to: u64, connection: u64, message: Box<Message> },
    LinkLost { node: u64, life: u64, other: u64 },
    Disk { node: u64, life: u64 },
    Chore { node: u64, life: u64 },
    Ask { node: u64, life: u64 },
    Start { node: u64, life: u64 },
}

/// What a client of a node was answered.
pub(crate) struct Answered {
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Result<Answer, Failure>,
}

/// How long the disks of a world take.
#[derive(Clone, Copy)]
pub(crate) struct DiskTimes {
    pub(crate) sync: (Duration, Duration),
    pub(crate) chore: (Duration, Duration),
}

pub(crate) struct World {
    pub(crate) now: Duration,
    pub(crate) random: Random,
    pub(crate) network: Network,
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) disk_times: DiskTimes,
    /// Of a thousand commits, after how many the state's engine makes itself durable.
    pub(crate) state_persist_permille: u64,
    /// Outputs performed so far, by all nodes.
    pub(crate) outputs: u64,
    /// Instead of performing the output of this number, its node crashes, and starts again after a
    /// while.
    pub(crate) crash_at: Option<(u64, Down, Duration)>,
    pub(crate) trace: String,
    pub(crate) answered: Vec<Answered>,
    /// Requests that a crashed node had taken in: nobody knows what became of them.
    pub(crate) lost: Vec<Ticket>,
    /// Snapshots are made after so many bytes of log, which keeps so many entries behind them.
    pub(crate) snapshots: (u64, u64),
    events: BTreeMap<(Duration, u64), Event>,
    scheduled: u64,
    tickets: BTreeMap<Ticket, u64>,
    last_ticket: u64,
    traced_at: Duration,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let ms = Duration::from_millis;
        World {
            now: Duration::ZERO,
            random: Random::new(seed),
            network: Network::new(),
            nodes: BTreeMap::new(),
            disk_times: DiskTimes { sync: (ms(2), ms(2)), chore: (ms(5), ms(5)) },
            state_persist_permille: 0,
            outputs: 0,
            crash_at: None,
            trace: String::new(),
            answered: Vec::new(),
            lost: Vec::new(),
            snapshots: (1 << 30, 10_000),
            events: BTreeMap::new(),
            scheduled: 0,
            tickets: BTreeMap::new(),
            last_ticket: 0,
            traced_at: Duration::MAX,
        }
    }

    /// Whether a leader knows of so many voters, and all of them have applied what it has.
    pub(crate) fn is_whole(&self, voters: u64) -> bool {
        let Some(leader) = self.leader() else { return false };
        let status = self.status(leader).expect("a leader runs");
        status.members.voters.len() as u64 == voters
            && status.members.nodes.len() as u64 == voters
            && status.members.voters.iter().all(|id| {
                self.status(*id).is_some_and(|one| {
                    one.applied_index == status.last_index && one.leader == Some(NodeId(leader))
                })
            })
    }

    /// Adds a node; the first one begins the site, the others ask to be taken in.
    pub(crate) fn add_node(&mut self, id: u64, witness: bool) {
        let belongs = if self.nodes.is_empty() { Belongs::Begins } else { Belongs::Asks };
        let (log_bytes_before_snapshot, log_entries_kept) = self.snapshots;
        let node = Node {
            id,
            witness,
            disk: MemoryDisk::new(),
            state: MemoryState::new(),
            incarnation: self.random.next() | 1,
            belongs,
            life: 0,
            up: false,
            process: None,
            log_bytes_before_snapshot,
            log_entries_kept,
        };
        self.nodes.insert(id, node);
        self.start(id);
    }

    /// The monotonic clock and the wall clock of every node.
    fn time(&self) -> Time {
        Time { monotonic: self.now, wall_ms: EPOCH_MS + self.now.as_millis() as u64 }
    }

    pub(crate) fn note(&mut self, line: &str) {
        if self.traced_at != self.now {
            self.traced_at = self.now;
            let ms = self.now.as_micros() as f64 / 1_000.0;
            self.trace.push_str(&format!("@ {ms} ms\n"));
        }
        self.trace.push_str(line);
        self.trace.push('\n');
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now + delay, self.scheduled), event);
    }

    /// Lets the next thing happen, if it is due by `until`; otherwise it is `until` now.
    pub(crate) fn step(&mut self, until: Duration) -> bool {
        let deadlines = self.nodes.values().filter_map(|node| {
            let deadline = node.process.as_ref()?.site.deadline()?;
            Some((deadline.max(self.now), node.id))
        });
        let deadline = deadlines.min();
        let event = self.events.keys().next().copied();
        let next = event.map(|(at, _)| at).into_iter().chain(deadline.map(|(at, _)| at)).min();
        let Some(next) = next.filter(|at| *at <= until) else {
            self.now = until;
            return false;
        };
        self.now = next;
        match event {
            Some(key) if key.0 == next => {
                let event = self.events.remove(&key).expect("just seen");
                self.happen(event);
            }
            _ => {
                let (_, node) = deadline.expect("something is due");
                let now = self.time();
                if let Some(process) = self.process(node) {
                    process.site.timeout(now);
                }
                self.perform_all(node);
            }
        }
        true
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while self.step(until) {}
    }

    /// Runs until something holds.
    ///
    /// # Panics
    /// When it does not within a minute of virtual time: the site is stuck.
    pub(crate) fn run_until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let until = self.now + Duration::from_secs(60);
        while !holds(self) {
            if !self.step(until) {
                let statuses: Vec<_> =
                    self.nodes.keys().map(|id| (*id, self.status(*id))).collect();
                panic!("it never came to be that {what}: {statuses:#?}");
            }
        }
    }

    pub(crate) fn leader(&self) -> Option<u64> {
        let leads = |status: &Status| status.leader == Some(status.node) && status.ready;
        let statuses = self.nodes.keys().filter_map(|id| self.status(*id));
        statuses.filter(leads).max_by_key(|status| status.term).map(|status| status.node.0)
    }

    pub(crate) fn status(&self, node: u64) -> Option<Status> {
        Some(self.nodes.get(&node)?.process.as_ref()?.site.status())
    }

    fn process(&mut self, node: u64) -> Option<&mut Process> {
        self.nodes.get_mut(&node)?.process.as_mut()
    }

    fn lives(&self, node: u64, life: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.life == life)
    }

    /// A client asks a node. `None`: the node is down.
    pub(crate) fn ask(&mut self, node: u64, request: Request) -> Option<Ticket> {
        let now = self.time();
        let ticket = Ticket(self.last_ticket + 1);
        self.process(node)?;
        self.last_ticket += 1;
        self.note(&format!("n{node}: asked #{} {}", ticket.0, request_text(&request)));
        self.tickets.insert(ticket, node);
        self.process(node)?.site.handle(now, Input::Request { ticket, request });
        self.perform_all(node);
        Some(ticket)
    }

    fn input(&mut self, node: u64, input: Input) {
        let now = self.time();
        if let Some(process) = self.process(node) {
            process.site.handle(now, input);
            process.site.timeout(now);
        }
        self.perform_all(node);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, connection, message } => {
                let up = self.nodes.get(&to).is_some_and(|node| node.up);
                if !up || self.network.connection(from, to) != connection {
                    return;
                }
                if let Some(line) = text::message(&message) {
                    self.note(&format!("n{from} → n{to}  {line}"));
                }
                if self.nodes[&to].process.is_some() {
                    return self
                        .input(to, Input::Message { from: NodeId(from), message: *message });
                }
                self.taken_in(to, *message);
            }
            Event::LinkLost { node, life, other } if self.lives(node, life) => {
                self.input(node, Input::LinkLost(NodeId(other)));
            }
            Event::Disk { node, life } if self.lives(node, life) => self.disk_done(node),
            Event::Chore { node, life } if self.lives(node, life) => self.chore_done(node),
            Event::Ask { node, life } if self.lives(node, life) => self.ask_to_join(node),
            Event::Start { node, life } if self.lives(node, life) => self.start(node),
            _ => {}
        }
    }

    // ---- nodes that go and come ------------------------------------------------------------

    /// Starts a node that is down.
    pub(crate) fn start(&mut self, id: u64) {
        let (now, mut warnings) = (self.time(), Vec::new());
        let Some(node) = self.nodes.get_mut(&id).filter(|node| !node.up) else { return };
        node.up = true;
        let life = node.life;
        if node.belongs == Belongs::Asks {
            self.note(&format!("n{id}: starts with an empty disk"));
            return self.after(Duration::ZERO, Event::Ask { node: id, life });
        }
        let started = node.start(now, &mut self.random, &mut |what| warnings.push(what));
        self.note(&format!("n{id}: starts"));
        warnings.iter().for_each(|what| self.note(&format!("n{id}: {what}")));
        if let Err(error) = started {
            panic!("n{id} does not start: {error}\n{}", self.trace);
        }
        self.perform_all(id);
    }

    fn ask_to_join(&mut self, id: u64) {
        let node = &self.nodes[&id];
        if node.process.is_some() {
            return;
        }
        let (member, life) = (node.member(), node.life);
        let others: Vec<_> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        let to = self.random.pick(&others);
        let request = ForwardedRequest { id: 1, join: Some(member), ..Default::default() };
        let message = Say::Forward(Forward { requests: vec![request] }).into();
        self.send(id, to, message);
        self.after(ASK_AGAIN, Event::Ask { node: id, life });
    }

    /// A node that asked to be taken in hears an answer.
    fn taken_in(&mut self, id: u64, message: Message) {
        let Some(Say::Answered(answered)) = message.say else { return };
        let Some(answer) = answered.answers.into_iter().next() else { return };
        if !matches!(entry::decode_reply(answer.outcome), Ok(Ok(_))) {
            return;
        }
        let node = self.nodes.get_mut(&id).expect("it was sent something");
        node.belongs = Belongs::Member;
        node.up = false;
        self.start(id);
    }

    pub(crate) fn crash(&mut self, id: u64, down: &Down) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.up) else { return };
        node.stop(down);
        self.note(&format!("n{id}: crashes ({down:?})"));
        let lost = self.tickets.iter().filter(|(_, at)| **at == id).map(|(ticket, _)| *ticket);
        let lost: Vec<_> = lost.collect();
        self.tickets.retain(|ticket, _| !lost.contains(ticket));
        self.lost.extend(lost);
        let others: Vec<_> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            self.break_link(other, id);
        }
    }

    /// Crashes a node, and starts it again after a while.
    pub(crate) fn bounce(&mut self, id: u64, down: &Down, rest: Duration) {
        self.crash(id, down);
        let life = self.nodes[&id].life;
        self.after(rest, Event::Start { node: id, life });
    }

    /// Breaks the connection of two nodes. Both notice.
    pub(crate) fn break_link(&mut self, a: u64, b: u64) {
        self.network.break_link(a, b);
        for (node, other) in [(a, b), (b, a)] {
            let life = self.nodes[&node].life;
            let delay = self.random.between(self.network.delay);
            self.after(delay, Event::LinkLost { node, life, other });
        }
    }

    /// Cuts a node off from all others.
    pub(crate) fn isolate(&mut self, id: u64) {
        let others: Vec<_> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            self.cut(id, other);
        }
    }

    pub(crate) fn cut(&mut self, a: u64, b: u64) {
        self.note(&format!("n{a} and n{b} are cut off from each other"));
        self.break_link(a, b);
        self.network.cut(a, b);
    }

    pub(crate) fn heal(&mut self) {
        self.note("all links work");
        self.network.heal();
    }

    /// A survival that keeps something of what was not synced, and tears the rest.
    pub(crate) fn draw_down(&mut self) -> Down {
        match self.random.below(5) {
            0 => Down::Killed,
            1 => Down::PowerLost(Survival::Everything),
            2 => Down::PowerLost(Survival::Nothing),
            3 => Down::PowerLost(Survival::Bytes(self.random.below(4_096))),
            _ => {
                let sectors = (0..8).map(|_| self.random.chance(500)).collect();
                Down::PowerLost(Survival::Sectors(sectors))
            }
        }
    }

    // ---- what a shell does -------------------------------------------------------------------

    fn perform_all(&mut self, id: u64) {
        while let Some(output) = self.process(id).and_then(|process| process.site.poll()) {
            self.outputs += 1;
            if let Some((_, down, rest)) = self.crash_at.take_if(|(at, ..)| *at == self.outputs) {
                return self.bounce(id, &down, rest);
            }
            self.perform(id, output);
        }
    }

    fn perform(&mut self, id: u64, output: Output<MemoryView>) {
        match output {
            Output::Persist(persist) => {
                let entries = persist.append.entries.iter();
                let entries: Vec<_> = entries
                    .map(|one| {
                        let payload = text::payload(u32::from(one.kind), &one.payload);
                        format!("{}@{}{payload}", one.index, one.term)
                    })
                    .collect();
                let state = persist.append.hard_state.unwrap_or_default();
                let restart = persist.restart.map_or(String::new(), |start| {
                    format!(" anew after {}@{}", start.index, start.term)
                });
                let line = format!(
                    "n{id}: persists{restart} [{}] t{} vote n{}",
                    entries.join(", "),
                    state.term,
                    state.vote
                );
                self.note(&line);
                self.disk_job(id, DiskJob::Persist(*persist));
            }
            Output::CutLog(start) => {
                self.note(&format!("n{id}: cuts its log after {}", start.index));
                self.disk_job(id, DiskJob::Cut(start));
            }
            Output::Send { to, message } => self.send(id, to.0, *message),
            Output::Answer { ticket, outcome } => {
                self.note(&format!("n{id}: answers #{} {}", ticket.0, outcome_text(&outcome)));
                assert!(self.tickets.remove(&ticket).is_some(), "#{} is answered twice", ticket.0);
                self.answered.push(Answered { ticket, outcome });
            }
            Output::Gate(_) => {}
            Output::Applied => {
                if self.random.chance(self.state_persist_permille) {
                    self.nodes[&id].state.persist();
                }
            }
            Output::Members(members) => {
                let line = format!(
                    "n{id}: members are voters {:?} learners {:?}",
                    members.voters, members.learners
                );
                self.note(&line);
            }
            Output::WriteSnapshot { head, view } => {
                self.note(&format!("n{id}: writes a snapshot of {}", head.index));
                self.chore(id, Chore::Write { head, view });
            }
            Output::InstallSnapshot { index } => {
                self.note(&format!("n{id}: installs the snapshot of {index}"));
                self.chore(id, Chore::Finish { index });
            }
            Output::Fatal(why) => panic!("n{id} cannot go on: {why}\n{}", self.trace),
        }
    }

    fn send(&mut self, from: u64, to: u64, message: Message) {
        if let Some((arrival, connection)) = self.network.send(from, to, self.now, &mut self.random)
        {
            let message = Box::new(message);
            self.after(arrival - self.now, Event::Deliver { from, to, connection, message });
        } else if let Some(line) = text::message(&message) {
            self.note(&format!("n{from} ✗ n{to}  {line}"));
        }
    }

    fn disk_job(&mut self, id: u64, job: DiskJob) {
        let Some(process) = self.process(id) else { return };
        process.jobs.push_back(job);
        if !process.disk_busy {
            process.disk_busy = true;
            self.write_jobs(id);
        }
    }

    /// Writes all that waits; [`Self::disk_done`] makes it durable.
    fn write_jobs(&mut self, id: u64) {
        let life = self.nodes[&id].life;
        let Some(process) = self.process(id) else { return };
        while let Some(job) = process.jobs.front() {
            let written = match job {
                DiskJob::Cut(start) => process.writer.cut(*start),
                DiskJob::Persist(persist) => {
                    let restarted =
                        persist.restart.map_or(Ok(()), |start| process.writer.restart(start));
                    restarted.and_then(|()| process.writer.write(&persist.append))
                }
            };
            match written {
                Ok(()) => {
                    if let Some(DiskJob::Persist(persist)) = process.jobs.pop_front() {
                        process.syncing = Some(persist.number);
                    }
                }
                Err(LogError::Full { .. }) => {
                    let was_full = std::mem::replace(&mut process.disk_full, true);
                    self.after(ASK_AGAIN, Event::Disk { node: id, life });
                    if !was_full {
                        self.note(&format!("n{id}: its disk is full"));
                        self.input(id, Input::DiskFull("it is full".to_owned()));
                    }
                    return;
                }
                Err(error) => panic!("n{id}: {error}\n{}", self.trace),
            }
        }
        let sync = self.random.between(self.disk_times.sync);
        self.after(sync, Event::Disk { node: id, life });
    }

    fn disk_done(&mut self, id: u64) {
        let Some(process) = self.process(id) else { return };
        process.writer.sync().expect("a disk that lives syncs");
        let synced = process.syncing.take();
        let had_room = process.jobs.is_empty() && std::mem::take(&mut process.disk_full);
        if let Some(number) = synced {
            self.input(id, Input::Persisted(number));
        }
        if had_room {
            self.note(&format!("n{id}: its disk has room"));
            self.input(id, Input::DiskHasRoom);
        }
        let Some(process) = self.process(id) else { return };
        match process.jobs.is_empty() {
            true => process.disk_busy = false,
            false => self.write_jobs(id),
        }
    }

    fn chore(&mut self, id: u64, chore: Chore) {
        let Some(process) = self.process(id) else { return };
        process.chores.push_back(chore);
        if !std::mem::replace(&mut process.chore_busy, true) {
            self.begin_chore(id);
        }
    }

    fn begin_chore(&mut self, id: u64) {
        let life = self.nodes[&id].life;
        let delay = self.random.between(self.disk_times.chore);
        self.after(delay, Event::Chore { node: id, life });
    }

    fn chore_done(&mut self, id: u64) {
        let persist_state = self.random.chance(self.state_persist_permille);
        let Some(process) = self.process(id) else { return };
        let Some(chore) = process.chores.pop_front() else { return };
        let input = match chore {
            Chore::Write { head, view } => {
                let written = process.snapshots.write(&head, &view);
                Some(Input::SnapshotWritten(
                    written.map(|()| head).map_err(|error| error.to_string()),
                ))
            }
            Chore::Finish { index } => match process.snapshots.finish(index) {
                Ok(head) => {
                    process.chores.push_front(Chore::Load { head });
                    None
                }
                Err(error) => Some(Input::SnapshotInstalled(Err(error.to_string()))),
            },
            Chore::Load { head } => {
                let state = process.site.state().clone();
                let loaded = process.snapshots.load(head.index, &state);
                if persist_state {
                    state.persist();
                }
                Some(Input::SnapshotInstalled(
                    loaded.map(|()| head).map_err(|error| error.to_string()),
                ))
            }
        };
        match process.chores.is_empty() {
            true => process.chore_busy = false,
            false => self.begin_chore(id),
        }
        if let Some(input) = input {
            self.input(id, input);
        }
    }

    // ---- what must be true -------------------------------------------------------------------

    /// The rows of a node's state.
    pub(crate) fn rows(&self, id: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut rows = BTreeMap::new();
        let mut visit = |key: model::Bytes, value: model::Bytes| {
            rows.insert(key.to_vec(), value.to_vec());
            true
        };
        self.nodes[&id].state.scan(b"", None, &mut visit).expect("a state in memory reads");
        rows
    }
}
