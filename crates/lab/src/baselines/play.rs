//! Clients with Gesto's workloads, what they measured, and their history.
//!
//! *W1* is 90 % reads and 10 % writes at the client's own site. *W2* is 70 % reads, 10 % writes and
//! 20 % moves to any site (§VIII, *Workloads*). Clients ask again as soon as they have an answer. A
//! client stays at its place when it moves to another site: what follows takes the way there. Keys
//! are drawn evenly from those that its site holds. `reads_a_full_write`: after so many reads, the
//! next write is of a key that is at all sites; others are not. That is what the evaluation calls
//! the access pattern, the number of dependencies of a client.

use super::net::{Spent, Visible};
use super::{Answer, Ask, Layout, Store, Version};
use crate::history::{
    Assigned, Got, History, Position, Promise, Register, ReplicaState, Request, Seen, WriteId,
};
use crate::random::Random;

/// What clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Of each site's clients, in their order, every so many-th has W2; 0: none has.
    pub movers_every: usize,
    /// Reads before a write of a key that is everywhere; 0: a write is of any key.
    pub reads_a_full_write: u32,
    /// What is measured begins then, after the start.
    pub warm_us: u64,
    /// And lasts so long.
    pub measured_us: u64,
    /// What chance is drawn from.
    pub seed: u64,
    /// Whether a history is kept.
    pub has_history: bool,
}

/// What clients measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Latencies of reads, in microseconds, ascending.
    pub reads_us: Vec<u64>,
    /// Of writes.
    pub writes_us: Vec<u64>,
    /// Of moves to another site.
    pub moves_us: Vec<u64>,
    /// The same, with their sites.
    pub moved: Vec<Moved>,
    /// From the asking to the visibility at another site.
    pub visible_us: Vec<u64>,
    /// The same, with both sites.
    pub visible: Vec<Visible>,
    /// Reads and writes that were answered while measured.
    pub operations: u64,
    /// What the store took meanwhile.
    pub spent: Spent,
    /// The longest that a message waited for a processor, whenever.
    pub queued_us: u64,
    /// For how long it was measured.
    pub measured_us: u64,
    /// How many of the sites show the same as the root in the end; all, if it converged.
    pub differing_keys: u64,
    /// What clients asked and got.
    pub history: History,
}

/// A client went on at another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Where the client stays.
    pub home: usize,
    /// The site before.
    pub from: usize,
    /// The site after.
    pub to: usize,
    /// How long it took, in microseconds.
    pub took_us: u64,
}

impl Measured {
    /// Operations a second.
    #[must_use]
    pub fn rate_hz(&self) -> f64 {
        self.operations as f64 / (self.measured_us as f64 / 1e6).max(1e-9)
    }

    /// Operations for each second that some core was busy.
    #[must_use]
    pub fn per_cpu_s(&self) -> f64 {
        self.operations as f64 / (self.spent.cpu_us / 1e6).max(1e-9)
    }

    /// Metadata for each operation.
    #[must_use]
    pub fn metadata_bytes(&self) -> f64 {
        self.spent.metadata_bytes as f64 / (self.operations as f64).max(1.0)
    }
}

/// A quantile of ascending values.
#[must_use]
pub fn quantile(values: &[u64], share: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).map_or(f64::NAN, |value| *value as f64)
}

struct Client {
    random: Random,
    site: usize,
    moves: bool,
    reads: u32,
    asked: Ask,
    asked_us: u64,
}

struct Play<'s> {
    layout: &'s Layout,
    load: Load,
    clients: Vec<Client>,
    /// By site: the keys it holds that are not everywhere.
    held: Vec<Vec<u32>>,
    measured: Measured,
}

/// Runs clients on a store, and lets it come to rest.
pub fn play(store: &mut dyn Store, layout: &Layout, load: Load) -> Measured {
    let held =
        |site| (layout.full_keys..layout.keys).filter(|key| layout.holds(site, *key)).collect();
    let mut in_site = vec![0_usize; layout.sites()];
    let client = |(number, home): (usize, &usize)| {
        in_site[*home] += 1;
        Client {
            random: Random::stream(load.seed, "client", number as u64),
            site: *home,
            moves: load.movers_every > 0 && in_site[*home].is_multiple_of(load.movers_every),
            reads: 0,
            asked: Ask::Move(*home),
            asked_us: 0,
        }
    };
    let mut play = Play {
        layout,
        load,
        clients: layout.homes.iter().enumerate().map(client).collect(),
        held: (0..layout.sites()).map(held).collect(),
        measured: Measured { measured_us: load.measured_us, ..Measured::default() },
    };
    play.run(store);
    play.finish(store)
}

impl Play<'_> {
    fn run(&mut self, store: &mut dyn Store) {
        let end_us = self.load.warm_us + self.load.measured_us;
        for client in 0..self.clients.len() {
            // Not all at once.
            let at_us = self.clients[client].random.below(1_000);
            while let Some(answer) = store.advance(at_us) {
                self.took(answer);
                self.ask(store, answer.client, answer.at_us);
            }
            self.ask(store, client, at_us);
        }
        let mut before = None;
        while let Some(answer) = store.advance(end_us) {
            if before.is_none() && answer.at_us >= self.load.warm_us {
                before = Some(store.spent());
                store.take_visible();
            }
            self.took(answer);
            self.ask(store, answer.client, answer.at_us);
        }
        let (before, after) = (before.unwrap_or_default(), store.spent());
        self.measured.spent = Spent {
            cpu_us: after.cpu_us - before.cpu_us,
            metadata_bytes: after.metadata_bytes - before.metadata_bytes,
            messages: after.messages - before.messages,
            queued_us: after.queued_us,
        };
        self.measured.queued_us = after.queued_us;
    }

    fn ask(&mut self, store: &mut dyn Store, client: usize, at_us: u64) {
        let ask = self.next(client);
        let one = &mut self.clients[client];
        (one.asked, one.asked_us) = (ask, at_us);
        store.ask(at_us, client, ask);
    }

    fn next(&mut self, client: usize) -> Ask {
        let sites = self.layout.sites() as u64;
        let Client { random, site, moves, reads, .. } = &mut self.clients[client];
        let percent = random.below(100);
        if *moves && percent >= 80 {
            return Ask::Move(random.below(sites) as usize);
        }
        let held = &self.held[*site];
        let any = |random: &mut Random| {
            let full = u64::from(self.layout.full_keys);
            let at = random.below(full + held.len() as u64);
            if at < full { at as u32 } else { held[(at - full) as usize] }
        };
        let is_write = percent < 10;
        let pattern = self.load.reads_a_full_write;
        if !is_write {
            *reads += 1;
            return Ask::Read(any(random));
        }
        if pattern == 0 {
            return Ask::Write(any(random));
        }
        if *reads >= pattern || held.is_empty() {
            *reads = 0;
            return Ask::Write(random.below(u64::from(self.layout.full_keys)) as u32);
        }
        Ask::Write(*random.pick(held))
    }

    /// Takes an answer up.
    fn took(&mut self, answer: Answer) -> bool {
        let client = &mut self.clients[answer.client];
        let (asked, asked_us) = (client.asked, client.asked_us);
        let latency_us = answer.at_us - asked_us;
        let is_measured = answer.at_us >= self.load.warm_us;
        let home = self.layout.homes[answer.client];
        // Latencies of operations are of those that went to the own site.
        let is_near = client.site == home;
        match asked {
            Ask::Read(_) if is_measured && is_near => self.measured.reads_us.push(latency_us),
            Ask::Write(_) if is_measured && is_near => self.measured.writes_us.push(latency_us),
            Ask::Move(to) => {
                if is_measured && client.site != to {
                    self.measured.moves_us.push(latency_us);
                    let (from, took_us) = (client.site, latency_us);
                    self.measured.moved.push(Moved { home, from, to, took_us });
                }
                client.site = to;
            }
            _ => {}
        }
        if is_measured && !matches!(asked, Ask::Move(_)) {
            self.measured.operations += 1;
        }
        if self.load.has_history {
            self.note(answer, asked, asked_us);
        }
        true
    }

    fn note(&mut self, answer: Answer, asked: Ask, asked_us: u64) {
        let id = (answer.version.clock > 0).then(|| identity(answer.version));
        let register = |key: u32| Register::Key(format!("k{key}"));
        let mut request = Request {
            client: format!("c{}", answer.client),
            site: format!("s{}", self.clients[answer.client].site),
            call_us: asked_us,
            return_us: Some(answer.at_us),
            reads: Vec::new(),
            writes: Vec::new(),
            write: None,
            got: Got::Done,
        };
        match asked {
            Ask::Read(key) => {
                let absent = id.is_none();
                request.reads.push(Seen { register: register(key), found: id, absent });
            }
            Ask::Write(key) => {
                request.writes.push(Assigned { register: register(key), deletes: false });
                request.write = id;
            }
            Ask::Move(_) => return,
        }
        self.measured.history.requests.push(request);
    }

    /// Lets everything arrive, and looks at what there is.
    fn finish(mut self, store: &mut dyn Store) -> Measured {
        const REST_US: u64 = 3_000_000;
        let end_us = self.load.warm_us + self.load.measured_us;
        let visible = store.take_visible();
        if self.load.has_history {
            while store.advance(end_us + REST_US).is_some_and(|answer| self.took(answer)) {}
            self.measured.differing_keys = self.differing(store);
            self.position(store);
        }
        let measured = &mut self.measured;
        measured.visible_us = visible.iter().map(|one| one.visible_us - one.issued_us).collect();
        measured.visible = visible;
        for values in [
            &mut measured.reads_us,
            &mut measured.writes_us,
            &mut measured.moves_us,
            &mut measured.visible_us,
        ] {
            values.sort_unstable();
        }
        self.measured
    }

    fn differing(&self, store: &dyn Store) -> u64 {
        let root = self.layout.root;
        let differs = |key: &u32| {
            let mut replicas = self.layout.replicas(*key);
            replicas.any(|site| store.shows(site, *key) != store.shows(root, *key))
        };
        (0..self.layout.keys).filter(differs).count() as u64
    }

    fn position(&mut self, store: &dyn Store) {
        let history = &mut self.measured.history;
        for (place, version) in store.order().into_iter().enumerate() {
            let WriteId { site, revision } = identity(version);
            let position = Some(place as u64 + 1);
            let (instead, removes) = (Vec::new(), Vec::new());
            history.positions.push(Position { site, revision, position, instead, removes });
        }
        let state = |replica: usize| ReplicaState {
            at_us: self.load.warm_us + self.load.measured_us,
            group: "everywhere".to_owned(),
            replica: format!("s{replica}"),
            digest: (0..self.layout.full_keys)
                .map(|key| store.shows(replica, key))
                .fold(0_u64, |sum, one| sum.rotate_left(7) ^ one.clock ^ u64::from(one.site) << 48)
                .to_string(),
        };
        history.states = (0..self.layout.sites()).map(state).collect();
        history.header.source = "lab".to_owned();
        history.header.promises = vec![
            Promise::Causal,
            Promise::ReadYourWrites,
            Promise::MonotonicReads,
            Promise::MonotonicWrites,
            Promise::WritesFollowReads,
            Promise::Convergent,
            Promise::Durable,
        ];
    }
}

fn identity(version: Version) -> WriteId {
    WriteId { site: format!("s{}", version.site), revision: version.clock }
}
