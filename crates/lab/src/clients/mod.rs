//! Clients in virtual time: each does one thing after the other at the site it is attached to, over
//! a link, and writes down what it asked and what came back.
//!
//! A client behaves as a program with our client library does, or, where its group sets
//! `repeat = false`, as one with any Redis client. The first numbers its writes and repeats them,
//! at one node of its site after the other, until they are answered or [`OPERATION_MAX`] has
//! passed; the second asks once. Both distinguish *nothing was done* from *outcome unknown*, and
//! put it into the history.
//!
//! | file | its one idea |
//! | --- | --- |
//! | `asking` | one operation, from a step of the workload to a line of the history |
//! | `client` | one client: where it is, what it is doing, what it has seen |
//! | `pairs` | two keys of one slot, written together and read together |
//! | [`sessions`] | clients of causal keys |
//! | [`gateways`] | the way of a request as EdgeKV sends it |
//! | [`arithmetic`] | what an operation's latency should be, and what it was |
//!
//! Where nodes take a while for each request ([`crate::world::file::NodeFile::request_ms`]),
//! requests of clients wait for each other at the node that they reach first, and nowhere else.
//!
//! Every value that is put is unique by its beginning (`car-3.17`), which is what the history
//! keeps of it; the rest is padding. Keys belong to a site: in the history they carry its name.

pub mod arithmetic;
mod asking;
mod client;
pub mod gateways;
mod pairs;
pub mod sessions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use model::{Answer, Failure, KeyspaceId};
use protocol::site::Ticket;

use self::arithmetic::Arithmetic;
use self::asking::Doing;
pub(crate) use self::asking::understood;
use self::client::Client;
pub use self::client::Trail;
use self::gateways::{Gateways, Ways};
use self::pairs::Pair;
use crate::history::{Action, History, Operation, Outcome};
use crate::measure::{self, Measure};
use crate::random::Random;
use crate::run::Call;
use crate::simulation::{NodeIndex, Simulation};
use crate::workload::{Place, Step, Workload};
use crate::world::{Attach, World};

/// How long a client tries before it gives an operation up.
pub const OPERATION_MAX: Duration = Duration::from_secs(5);
/// How long a client that repeats waits for one answer.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(1);
/// How long it rests before it asks the next node.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(60));
/// An answer later than this counts as a stall.
const STALL: Duration = Duration::from_millis(500);
/// A client that moves more often in one go does nothing else for once.
const MOVES_MAX: usize = 100;
/// Most operations that one run's history keeps.
pub const OPERATIONS_MAX: usize = 5_000_000;

/// What operations are called, in the order in which they are measured.
pub const OPERATIONS: [&str; 10] = [
    "get",
    "put",
    "delete",
    "add",
    "compare-and-set",
    "scan",
    "read-in-session",
    "write-in-session",
    "read-pair",
    "write-pair",
];

/// A client's own events.
#[derive(Debug)]
pub struct Due {
    client: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    /// It does the next thing.
    Begin,
    /// An attempt is made.
    Ask,
    /// An attempt's request reaches its node.
    Arrive { attempt: u32 },
    /// The node has worked on it.
    Served { attempt: u32 },
    /// It is at the beginning of a leg of its way over gateways.
    Leg { attempt: u32, leg: usize },
    /// Its answer is, on the way back.
    Back { attempt: u32, leg: usize, outcome: Box<Result<Answer, Failure>> },
    /// An attempt's answer reaches the client.
    Reply { attempt: u32, outcome: Box<Result<Answer, Failure>> },
    /// An attempt has waited for long enough.
    Late { attempt: u32 },
}

type Lab = Simulation<Call>;

/// The ids of a world's keyspaces: each at each site.
#[derive(Debug, Clone, Default)]
pub struct Ids(pub Vec<Vec<KeyspaceId>>);

impl Ids {
    /// The id of a keyspace, by its place in the world, at a site; of the default one for `None`.
    #[must_use]
    pub fn of(&self, place: Option<usize>, site: usize) -> KeyspaceId {
        let known = place.and_then(|place| self.0.get(place)?.get(site));
        known.copied().unwrap_or(KeyspaceId::DEFAULT)
    }
}

/// All clients of a run.
pub struct Clients<'w> {
    world: &'w World,
    clients: Vec<Client>,
    /// One a group of clients.
    workloads: Vec<Workload>,
    ids: Ids,
    /// What each group may still do, where that is bounded.
    left: Vec<Option<u64>>,
    /// Until then a node works on requests that reached it.
    busy_until: BTreeMap<NodeIndex, Duration>,
    /// How requests about global keys are routed, if not directly.
    ways: Option<Ways>,
    asked: HashMap<Ticket, (usize, u32)>,
    began: Duration,
    stopped: bool,
    busy: usize,
    /// What was asked and what came back.
    pub history: History,
    /// Latencies, by operation and by second.
    pub measure: Measure,
    /// Latencies by the way that an operation took.
    pub arithmetic: Arithmetic,
    /// Operations that each site answered.
    pub answered_by_site: Vec<u64>,
    /// The keys that were written: site, its incarnation, key, and the keyspace they are in there.
    pub written: BTreeSet<(usize, u64, String, KeyspaceId)>,
}

impl<'w> Clients<'w> {
    /// The clients of a world, not yet begun.
    #[must_use]
    pub fn new(world: &'w World, seed: u64, duration: Duration, ids: Ids) -> Clients<'w> {
        let mut clients = Vec::with_capacity(world.client_count());
        let mut overall = 0;
        for (place, group) in world.clients.iter().enumerate() {
            for number in 0..group.count {
                // Those of causal keys are `Sessions`.
                if !world.is_causal(group.keyspace) {
                    clients.push(Client::new(world, place, number, seed, duration, overall));
                }
                overall += 1;
            }
        }
        Clients {
            world,
            clients,
            workloads: world.clients.iter().map(|group| Workload::new(&group.workload)).collect(),
            ids,
            left: world.clients.iter().map(|group| group.operations).collect(),
            busy_until: BTreeMap::new(),
            ways: None,
            asked: HashMap::new(),
            began: Duration::ZERO,
            stopped: false,
            busy: 0,
            history: History::default(),
            measure: Measure::new(&OPERATIONS, STALL),
            arithmetic: Arithmetic::default(),
            answered_by_site: vec![0; world.sites.len()],
            written: BTreeSet::new(),
        }
    }

    /// The clients begin, each after its first think time.
    pub fn begin(&mut self, lab: &mut Lab) {
        self.began = lab.now();
        for client in 0..self.clients.len() {
            let one = &mut self.clients[client];
            let pace = self.world.clients[one.group].pace;
            // Those that do not think still do not all begin in one instant.
            let stagger = Duration::from_micros(one.random.below(10_000));
            let start = pace.next_start(self.began, self.began, &mut one.random) + stagger;
            one.scheduled = start;
            let due = Due { client, what: What::Begin };
            lab.call_after(start - self.began, Call::Client(due));
        }
    }

    /// The keyspaces whose keys are the same at every site.
    pub fn global_keyspaces(&self) -> impl Iterator<Item = KeyspaceId> + '_ {
        let all = self.world.clients.iter().flat_map(|group| group.keyspaces());
        let globals = all.filter(|place| self.world.is_global(*place));
        globals.map(|place| self.ids.of(place, 0))
    }

    /// Requests about global keys go over gateways; `owners`: which site holds each slot.
    pub fn go_over(&mut self, gateways: Gateways, owners: Vec<usize>) {
        self.ways = Some(Ways::new(gateways, self.world.sites.len(), owners));
    }

    /// Whether no client has anything left to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_idle() && !self.left.is_empty() && self.left.iter().all(|left| *left == Some(0))
    }

    /// No client begins anything new.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Whether no client waits for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Since the clients began.
    #[must_use]
    pub fn elapsed(&self, lab: &Lab) -> Duration {
        lab.now().saturating_sub(self.began)
    }

    /// A moment of the history, since the clients began.
    #[must_use]
    pub fn since_begin(&self, at_us: u64) -> Duration {
        Duration::from_micros(at_us).saturating_sub(self.began)
    }

    /// Where the clients were, and at which site.
    pub fn trails(&mut self) -> Vec<Trail> {
        self.clients.iter_mut().map(|client| std::mem::take(&mut client.trail)).collect()
    }

    /// Takes in what nodes answered since the last time, and what crashes took along.
    pub fn take_answers(&mut self, lab: &mut Lab) {
        while let Some(answered) = lab.answered.pop() {
            self.send_back(lab, answered.ticket, answered.outcome);
        }
        while let Some(ticket) = lab.lost.pop() {
            let lost = Failure::Unknown { why: "the connection broke" };
            self.send_back(lab, ticket, Err(lost));
        }
    }

    /// An answer leaves a node for the client that asked.
    fn send_back(&mut self, lab: &mut Lab, ticket: Ticket, outcome: Result<Answer, Failure>) {
        let Some((client, attempt)) = self.asked.remove(&ticket) else { return };
        if lab.sites[self.clients[client].site].clients_cut {
            return;
        }
        if self.clients[client].way.is_some() {
            return self.come_back(lab, client, attempt, 0, Box::new(outcome));
        }
        let delay = self.clients[client].delay_down(lab.now(), asking::answer_bytes(&outcome));
        let what = What::Reply { attempt, outcome: Box::new(outcome) };
        lab.call_after(delay, Call::Client(Due { client, what }));
    }

    /// Something of a client's is due.
    pub fn take(&mut self, lab: &mut Lab, due: Due) {
        let Due { client, what } = due;
        match what {
            What::Begin => self.begin_operation(lab, client),
            What::Ask => self.ask(lab, client),
            What::Arrive { attempt } => self.arrive(lab, client, attempt),
            What::Served { attempt } => self.served(lab, client, attempt),
            What::Leg { attempt, leg } => self.travel(lab, client, attempt, leg),
            What::Back { attempt, leg, outcome } => {
                self.come_back(lab, client, attempt, leg, outcome);
            }
            What::Reply { attempt, outcome } => self.reply(lab, client, attempt, *outcome),
            What::Late { attempt } => {
                let late = Failure::Unknown { why: "no answer in time" };
                self.reply(lab, client, attempt, Err(late));
            }
        }
    }

    fn begin_operation(&mut self, lab: &mut Lab, client: usize) {
        if self.stopped {
            return;
        }
        let elapsed = self.elapsed(lab);
        let one = &mut self.clients[client];
        let group = &self.world.clients[one.group];
        if let Some(left) = &mut self.left[one.group] {
            let Some(less) = left.checked_sub(1) else { return };
            *left = less;
        }
        if one.go_where_it_is(self.world, elapsed, |site| lab.is_open(site)) {
            self.measure.moved();
        }
        if one.go_where_it_can(self.world, |site| lab.is_open(site)) {
            self.measure.moved();
        }
        let pair = match one.pairs.chance(u64::from(group.pairs_permille)) {
            true => Some(Pair::draw(&mut one.pairs, group.workload.value_bytes())),
            false => None,
        };
        let (step, second) = match pair {
            Some(Pair { step, second }) => (step, Some(second)),
            None => match self.next_step(lab, client) {
                Some(step) => (step, None),
                None => return self.go_on_later(lab, client),
            },
        };
        let one = &mut self.clients[client];
        let random = if second.is_some() { &mut one.pairs } else { &mut one.random };
        let place = match group.also.is_empty() {
            true => group.keyspace,
            false => group.draw_keyspace(random.fraction()),
        };
        let keyspace = (place, self.ids.of(place, one.site));
        let waited = lab.now().saturating_sub(one.scheduled);
        let life = lab.sites[one.site].life;
        one.take_up(self.world, (step, second), keyspace, (lab.now(), waited), life);
        self.busy += 1;
        self.ask(lab, client);
    }

    /// What a client's workload has it do next, after it has moved as that decides; `None`: it does
    /// nothing but move.
    fn next_step(&mut self, lab: &Lab, client: usize) -> Option<Step> {
        let (sites, count) = (self.world.sites.len(), self.clients.len());
        let one = &mut self.clients[client];
        let group = &self.world.clients[one.group];
        for _ in 0..=MOVES_MAX {
            let place = Place {
                client: one.number,
                clients: group.count.min(count),
                site: one.site,
                sites,
            };
            let step = self.workloads[one.group].next(&place, &mut one.random);
            if step.operation != crate::workload::Operation::Move {
                return Some(step);
            }
            // Where a client stands decides about its site, or its workload does.
            if matches!(group.attach, Attach::Spread) && sites > 1 {
                let other = one.random.below(sites as u64 - 1) as usize;
                let other = if other < one.site { other } else { other + 1 };
                if lab.is_open(other) {
                    one.go_to(self.world, other);
                    self.measure.moved();
                }
            }
        }
        None
    }

    /// One attempt leaves the client.
    fn ask(&mut self, lab: &mut Lab, client: usize) {
        let one = &mut self.clients[client];
        let Some(doing) = &one.doing else { return };
        let is_same = lab.is_there(one.site) && lab.sites[one.site].life == doing.life;
        if self.world.is_global(doing.place) {
            // Its keys are anywhere.
            if one.go_where_it_can(self.world, |site| lab.is_open(site)) {
                self.measure.moved();
            }
        } else if !is_same {
            let outcome = one.gone();
            return self.end(lab, client, outcome, None);
        }
        let one = &mut self.clients[client];
        let Some((delay, timeout)) = one.send(lab.now()) else { return };
        let attempt = one.attempt;
        let arrive = Due { client, what: What::Arrive { attempt } };
        lab.call_after(delay, Call::Client(arrive));
        lab.call_after(timeout, Call::Client(Due { client, what: What::Late { attempt } }));
    }

    /// Whether an attempt is still the one that a client waits for.
    fn is_waited_for(&self, client: usize, attempt: u32) -> bool {
        self.clients[client].attempt == attempt && self.clients[client].doing.is_some()
    }

    /// A request has reached its node, which works on those before it first.
    fn arrive(&mut self, lab: &mut Lab, client: usize, attempt: u32) {
        if self.world.node.request_ms == 0.0 {
            return self.served(lab, client, attempt);
        }
        if !self.is_waited_for(client, attempt) {
            return;
        }
        let one = &self.clients[client];
        let until = self.busy_until.entry(lab.sites[one.site].nodes[one.node]).or_default();
        let work = Duration::from_secs_f64(self.world.node.request_ms / 1_000.0);
        *until = lab.now().max(*until) + work;
        let served = Due { client, what: What::Served { attempt } };
        lab.call_after(*until - lab.now(), Call::Client(served));
    }

    fn served(&mut self, lab: &mut Lab, client: usize, attempt: u32) {
        if !self.is_waited_for(client, attempt) || lab.sites[self.clients[client].site].clients_cut
        {
            return;
        }
        let one = &mut self.clients[client];
        one.way = None;
        if let (Some(ways), Some(doing)) = (&self.ways, &one.doing)
            && self.world.is_global(doing.place)
        {
            one.way = Some(ways.of(doing, one.site, one.node, lab));
            return self.travel(lab, client, attempt, 0);
        }
        let node = lab.sites[one.site].nodes[one.node];
        self.ask_node(lab, client, attempt, node);
    }

    /// A request is asked of the node that it was for.
    fn ask_node(&mut self, lab: &mut Lab, client: usize, attempt: u32, node: NodeIndex) {
        let one = &mut self.clients[client];
        let life = one.doing.as_ref().map(|doing| doing.life);
        let is_global = one.doing.as_ref().is_some_and(|doing| self.world.is_global(doing.place));
        if !is_global && life != Some(lab.sites[one.site].life) {
            return self.refuse(lab, client, attempt, "the site has left");
        }
        let one = &mut self.clients[client];
        let Some(request) = one.request(lab.now()) else { return };
        one.at_leader = lab.leads(node);
        match lab.ask(node, request) {
            Some(ticket) => drop(self.asked.insert(ticket, (client, attempt))),
            None => self.refuse(lab, client, attempt, "the node is down"),
        }
    }

    fn refuse(&mut self, lab: &mut Lab, client: usize, attempt: u32, why: &'static str) {
        let delay = self.clients[client].delay_down(lab.now(), 0);
        let outcome = Box::new(Err(Failure::NotServing(why)));
        let what = What::Reply { attempt, outcome };
        lab.call_after(delay, Call::Client(Due { client, what }));
    }

    fn reply(
        &mut self,
        lab: &mut Lab,
        client: usize,
        attempt: u32,
        outcome: Result<Answer, Failure>,
    ) {
        if !self.is_waited_for(client, attempt) {
            return;
        }
        let one = &mut self.clients[client];
        // Whatever else comes of this attempt comes too late.
        one.attempt += 1;
        match one.judge(outcome, lab.now()) {
            asking::Next::Again => {
                let nodes = lab.sites[one.site].nodes.len();
                one.node = (one.node + 1) % nodes;
                let rest = one.random.between(BACKOFF);
                self.measure.retry(lab.now().saturating_sub(self.began));
                lab.call_after(rest, Call::Client(Due { client, what: What::Ask }));
            }
            asking::Next::Ended(outcome, second) => {
                self.end(lab, client, outcome, second);
            }
        }
    }

    /// An operation ends: it goes into the history, and the next one is planned. `second`: what came
    /// of the second key of a pair, if that is not the same.
    fn end(&mut self, lab: &mut Lab, client: usize, outcome: Outcome, second: Option<Outcome>) {
        let now = lab.now();
        let one = &mut self.clients[client];
        let Some(done) = one.doing.take() else { return };
        self.busy -= 1;
        let ok = !matches!(outcome, Outcome::Failed { .. } | Outcome::Unknown { .. });
        // In an open loop an operation that began late has waited all the same.
        let latency = now - done.call + done.waited;
        let kind = done.kind();
        let group = &self.world.clients[one.group];
        let leased = done.place.is_some_and(|place| self.world.keyspaces[place].lease_reads);
        let is_global = self.world.is_global(done.place);
        // What waits for others besides takes longer than links and disks add up to.
        let is_alone = self.world.node.request_ms == 0.0 && done.second.is_none();
        let plain = !group.stale_reads && !leased && !is_global && is_alone;
        let result = if ok { measure::Outcome::Ok } else { measure::Outcome::Error };
        self.measure.record(now.saturating_sub(self.began), kind, latency, result);
        if ok {
            self.answered_by_site[one.site] += 1;
            if done.attempts == 1 && plain {
                let at_leader = one.at_leader;
                self.arithmetic.record(OPERATIONS[kind], one.site, at_leader, now - done.call);
            }
        }
        let then = one.saw(&done, &outcome);
        let place = done.place;
        self.note(client, &done, outcome, second, now);
        let one = &mut self.clients[client];
        match then {
            Some(step) if ok && !self.stopped => {
                // The second half of a read-modify-write.
                let keyspace = (place, self.ids.of(place, one.site));
                let life = lab.sites[one.site].life;
                one.take_up(self.world, (step, None), keyspace, (now, Duration::ZERO), life);
                self.busy += 1;
                self.ask(lab, client);
            }
            _ => self.go_on_later(lab, client),
        }
    }

    /// What an operation was and what came of it goes into the history: a line each key.
    fn note(
        &mut self,
        client: usize,
        done: &Doing,
        outcome: Outcome,
        second: Option<Outcome>,
        now: Duration,
    ) {
        let one = &self.clients[client];
        let Some(action) = &done.action else { return };
        let site = self.world.sites[one.site].name.as_str();
        let is_global = self.world.is_global(done.place);
        let together = done.second.as_ref().map(|(_, number)| *number);
        let other = done.second.as_ref().map(|(key, _)| {
            let outcome = second.unwrap_or_else(|| outcome.clone());
            (key, outcome)
        });
        for (key, outcome) in std::iter::once((&done.key, outcome)).chain(other) {
            if self.history.operations.len() >= OPERATIONS_MAX {
                return;
            }
            if *action != Action::Get {
                let keyspace = self.ids.of(done.place, one.site);
                self.written.insert((one.site, done.life, key.clone(), keyspace));
            }
            self.history.operations.push(Operation {
                client: one.name.clone(),
                site: Some(site.to_owned()),
                key: match is_global {
                    true => key.clone(),
                    false => match done.life {
                        0 | 1 => format!("{site}:{key}"),
                        life => format!("{site}#{life}:{key}"),
                    },
                },
                call_us: done.call.as_micros() as u64,
                waited_us: done.waited.as_micros() as u64,
                return_us: Some(now.as_micros() as u64),
                stale: done.stale && *action == Action::Get,
                together,
                action: action.clone(),
                outcome,
            });
        }
    }

    fn go_on_later(&mut self, lab: &mut Lab, client: usize) {
        let now = lab.now();
        let one = &mut self.clients[client];
        let pace = self.world.clients[one.group].pace;
        let start = pace.next_start(one.scheduled, now, &mut one.random);
        one.scheduled = start;
        let due = Due { client, what: What::Begin };
        lab.call_after(start.saturating_sub(now), Call::Client(due));
    }
}

/// The generator of one part of a client.
fn stream(seed: u64, part: &str, client: usize) -> Random {
    Random::stream(seed, part, client as u64)
}
