//! Clients of a world that track which answers are possible.
//!
//! Each client does one thing after the other, at whichever node it picks:
//!
//! - adds 1 to a counter of its own, under a request id, and repeats that until it is answered: the
//!   answer must be one more than the last, so a lost or a doubled addition is seen at once;
//! - adds 1 to a counter that all share, without an id and without repeating: what was answered
//!   must have happened, what failed must not, and what is unknown may have;
//! - puts a number that grows into a register of its own, with padding to make the log long;
//! - reads any of these: the answer must lie between what was acknowledged before the read began
//!   and what was begun before it ended.

use crate::world::World;
use lab::random::Random;
use lab::simulation::Answered;
use model::{
    Answer, Body, Bytes, ClientId, Command, Condition, Expiry, Failure, KeyspaceId, Query,
    ReadConsistency, Request, RequestId, Write,
};
use protocol::site::Ticket;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is known of a number that only grows.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    /// It is at least this: it was answered.
    acknowledged: i64,
    /// It is at most this: no more was begun and is not known to have failed.
    begun: i64,
}

/// The numbers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Own(u64),
    Register(u64),
    Shared,
}

impl Number {
    fn key(self) -> Bytes {
        match self {
            Number::Own(client) => format!("own-{client}").into(),
            Number::Register(client) => format!("register-{client}").into(),
            Number::Shared => "shared".into(),
        }
    }
}

enum Doing {
    AddOwn,
    AddShared,
    Put,
    Read { number: Number, at_least: i64 },
}

struct Client {
    sequence: u64,
    doing: Option<Doing>,
    ticket: Option<Ticket>,
    not_before: Duration,
}

/// Clients and what is certain for them.
pub(crate) struct Workload {
    clients: BTreeMap<u64, Client>,
    numbers: BTreeMap<Number, Bounds>,
    random: Random,
    /// Operations that are still to be begun.
    pub(crate) left: u64,
    pub(crate) padding_bytes: usize,
    /// How long a client rests between two operations, at most.
    pub(crate) pause: Duration,
}

impl Workload {
    pub(crate) fn new(seed: u64, clients: u64, operations: u64) -> Workload {
        let client =
            || Client { sequence: 0, doing: None, ticket: None, not_before: Duration::ZERO };
        Workload {
            clients: (1..=clients).map(|id| (id, client())).collect(),
            numbers: BTreeMap::new(),
            random: Random::new(seed),
            left: operations,
            padding_bytes: 0,
            pause: Duration::from_millis(20),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.clients.values().all(|client| client.doing.is_none())
    }

    /// Takes in what was answered and lets clients go on.
    pub(crate) fn drive(&mut self, world: &mut World) {
        for Answered { ticket, outcome, .. } in std::mem::take(&mut world.answered) {
            self.answered(world, ticket, outcome);
        }
        for ticket in std::mem::take(&mut world.lost) {
            self.answered(world, ticket, Err(Failure::Unknown { why: "the node crashed" }));
        }
        let ids: Vec<_> = self.clients.keys().copied().collect();
        for id in ids {
            self.go_on(world, id);
        }
    }

    fn go_on(&mut self, world: &mut World, id: u64) {
        let clients = self.clients.len() as u64;
        let client = self.clients.get_mut(&id).expect("a client");
        if client.ticket.is_some() || client.not_before > world.now() {
            return;
        }
        if client.doing.is_none() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            client.doing = Some(match self.random.below(10) {
                0..=2 => {
                    client.sequence += 1;
                    self.numbers.entry(Number::Own(id)).or_default().begun += 1;
                    Doing::AddOwn
                }
                3..=4 => Doing::AddShared,
                5..=6 => {
                    self.numbers.entry(Number::Register(id)).or_default().begun += 1;
                    Doing::Put
                }
                _ => {
                    let other = 1 + self.random.below(clients);
                    let numbers = [Number::Own(other), Number::Register(other), Number::Shared];
                    let number = *self.random.pick(&numbers);
                    Doing::Read { number, at_least: 0 }
                }
            });
        }
        let node = *self.random.pick(&world.ids());
        let request = self.request(id);
        let client = self.clients.get_mut(&id).expect("a client");
        client.ticket = world.ask(node, request);
        match client.ticket {
            Some(_) if matches!(client.doing, Some(Doing::AddShared)) => {
                self.numbers.entry(Number::Shared).or_default().begun += 1;
            }
            Some(_) => {}
            None => client.not_before = world.now() + Duration::from_millis(10),
        }
    }

    fn request(&mut self, id: u64) -> Request {
        let space = KeyspaceId::DEFAULT;
        let client = self.clients.get_mut(&id).expect("a client");
        let body = match client.doing.as_mut().expect("it does something") {
            Doing::AddOwn => {
                let sequence = client.sequence;
                let request =
                    RequestId { client: ClientId(id), sequence, acknowledged_below: sequence };
                let write = Write::Add { key: Number::Own(id).key(), delta: 1 };
                Body::Write(Command::Write { keyspace: space, write, request: Some(request) })
            }
            Doing::AddShared => {
                let write = Write::Add { key: Number::Shared.key(), delta: 1 };
                Body::Write(Command::Write { keyspace: space, write, request: None })
            }
            Doing::Put => {
                let number = self.numbers.entry(Number::Register(id)).or_default().begun;
                let value = format!("{number} {}", ".".repeat(self.padding_bytes)).into();
                let (condition, expiry) = (Condition::Always, Expiry::Never);
                let key = Number::Register(id).key();
                let write = Write::Put { key, value, condition, expiry, return_old: false };
                Body::Write(Command::Write { keyspace: space, write, request: None })
            }
            Doing::Read { number, at_least } => {
                *at_least = self.numbers.entry(*number).or_default().acknowledged;
                let query = Query::Get { key: number.key() };
                let consistency = ReadConsistency::Linearizable;
                Body::Read { keyspace: space, query, consistency }
            }
        };
        Request { deadline_ms: Some(200 + self.random.below(3_000)), ..Request::new(body) }
    }

    fn answered(&mut self, world: &World, ticket: Ticket, outcome: Result<Answer, Failure>) {
        let found = self.clients.iter_mut().find(|(_, client)| client.ticket == Some(ticket));
        let Some((id, client)) = found else { return };
        client.ticket = None;
        client.not_before =
            world.now() + self.random.between((Duration::from_millis(1), self.pause));
        let doing = client.doing.take().expect("it asked");
        let id = *id;
        match (doing, outcome) {
            (Doing::AddOwn, Ok(Answer::Integer(found))) => {
                let bounds = self.numbers.entry(Number::Own(id)).or_default();
                bounds.acknowledged += 1;
                let expected = bounds.acknowledged;
                assert_eq!(found, expected, "client {id}: an addition was lost or doubled");
            }
            (Doing::AddShared, Ok(Answer::Integer(_))) => {
                self.numbers.entry(Number::Shared).or_default().acknowledged += 1;
            }
            (Doing::AddShared, Err(Failure::Unknown { .. })) => {}
            (Doing::AddShared, Err(_)) => {
                self.numbers.entry(Number::Shared).or_default().begun -= 1;
            }
            (Doing::Put, Ok(Answer::Put { .. })) => {
                let bounds = self.numbers.entry(Number::Register(id)).or_default();
                bounds.acknowledged = bounds.begun;
            }
            (Doing::Read { number, at_least }, Ok(Answer::Value(found))) => {
                let found = found.map_or(0, |found| {
                    let text = String::from_utf8_lossy(&found.value).into_owned();
                    text.split(' ').next().and_then(|text| text.parse().ok()).expect("a number")
                });
                let at_most = self.numbers.entry(number).or_default().begun;
                assert!(
                    (at_least..=at_most).contains(&found),
                    "#{}: {number:?} is read as {found}; it must be {at_least} to {at_most}",
                    ticket.0
                );
            }
            (_, Err(Failure::Refused(refusal))) => {
                panic!("#{}: a valid request is refused: {refusal}", ticket.0)
            }
            // It goes on until the outcome is certain.
            (doing @ (Doing::AddOwn | Doing::Put | Doing::Read { .. }), Err(_)) => {
                client.doing = Some(doing);
            }
            (_, Ok(other)) => panic!("#{}: an answer of another kind: {other:?}", ticket.0),
        }
    }

    /// Runs until all is done.
    ///
    /// # Panics
    /// When it is not within two minutes of virtual time.
    pub(crate) fn finish(&mut self, world: &mut World) {
        let until = world.now() + Duration::from_secs(120);
        while !self.is_done() {
            self.drive(world);
            let next = world.now() + Duration::from_millis(1);
            assert!(world.now() < until, "the clients are stuck");
            world.run_to(next);
        }
    }

    /// Everything heals and comes to rest: what was acknowledged must be there, and all that hold
    /// data must hold the same.
    pub(crate) fn check_end(&mut self, world: &mut World) {
        world.run_until_whole();
        let data: Vec<_> = (0..world.nodes.len()).filter(|at| !world.nodes[*at].witness).collect();
        let first = world.rows(data[0]);
        for node in &data[1..] {
            let names = (world.name(data[0]), world.name(*node));
            assert_eq!(world.rows(*node), first, "{names:?} hold different states");
        }
        for number in self.numbers.keys().copied().collect::<Vec<_>>() {
            let client = *self.clients.keys().next().expect("a client");
            self.clients.get_mut(&client).expect("a client").doing =
                Some(Doing::Read { number, at_least: 0 });
            self.finish(world);
        }
    }
}
