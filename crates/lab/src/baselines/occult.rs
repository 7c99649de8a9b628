//! Occult (Mehdi, Littley, Crooks, Alvisi, Bronson and Lloyd, *I can't believe it's not causal!*,
//! NSDI 2017), as Gesto's authors evaluated it (ICCCN 2020, §VII): the datacenter is the master of
//! all shards, causal timestamps are compressed in time to ten entries, and a client tries three
//! times locally.
//!
//! A write goes to the master, which stamps it with its clock and sends it to the other replicas,
//! in order; they take it at once. A reader checks: its causal timestamp has a time for each of the
//! shards that it saw last, and one for all others together. If the shard's time at the replica is
//! below that, what it read may be older than its past: it reads again, and in the end at the
//! master. What it accepts brings the causal timestamp of the version along. A client that moves
//! takes nothing but its timestamp.
//!
//! A shard here is a group of keys with the same replicas, since a replica has a shard's time only
//! if it gets all of it. Heartbeats of the master keep the times of quiet shards going.
//!
//! *What shows:* a write takes the way to the datacenter, and a read after a write may, too.
//!
//! *Left out:* transactions, masters that change, several masters (then times of different clocks
//! meet).

use std::collections::HashMap;

use super::net::{Net, Node, Protocol};
use super::{Ask, Layout, Replicas, VERSION_BYTES, Version};

/// Entries of a causal timestamp, the one for all others included.
const ENTRIES: usize = 10;
/// Local attempts of a read.
const ATTEMPTS: u8 = 3;
/// Bytes of an entry: a shard and a time.
const ENTRY_BYTES: u64 = 12;

/// A causal timestamp, compressed: the times of the shards that were seen last, and one for all
/// others.
#[derive(Debug, Clone, Default)]
pub struct Stamp {
    recent: Vec<(usize, u64)>,
    others: u64,
}

impl Stamp {
    fn of(&self, shard: usize) -> u64 {
        let recent = self.recent.iter().find(|(one, _)| *one == shard);
        recent.map_or(self.others, |(_, time)| *time)
    }

    fn raise(&mut self, shard: usize, time: u64) {
        match self.recent.iter_mut().find(|(one, _)| *one == shard) {
            Some((_, known)) => *known = (*known).max(time),
            None => self.recent.push((shard, time.max(self.others))),
        }
        self.recent.sort_unstable_by_key(|(_, time)| std::cmp::Reverse(*time));
        for (_, time) in self.recent.drain((ENTRIES - 1).min(self.recent.len())..) {
            self.others = self.others.max(time);
        }
    }

    fn merge(&mut self, other: &Stamp) {
        // A shard that only one of them names may be among the others of the other one.
        let shards = self.recent.iter().chain(&other.recent).map(|(shard, _)| *shard);
        let mut times: Vec<(usize, u64)> =
            shards.map(|shard| (shard, self.of(shard).max(other.of(shard)))).collect();
        times.sort_unstable();
        times.dedup();
        self.others = self.others.max(other.others);
        self.recent.clear();
        for (shard, time) in times {
            self.raise(shard, time);
        }
    }

    fn bytes(&self) -> u64 {
        (self.recent.len() as u64 + 1) * ENTRY_BYTES
    }
}

/// What is sent.
pub enum Message {
    /// A client asks; whether the master is to read.
    Ask(usize, Ask, bool),
    /// A write, with its writer's timestamp.
    Write(usize, u32, Stamp),
    /// What was found, its causal timestamp, the shard's time at the replica.
    Found(u32, Version, Stamp, u64),
    /// What was written.
    Wrote(u32, Version),
    /// Here it goes on.
    Moved,
    /// From the master, in order; and where and when it was asked for.
    Update(u32, Version, Stamp, (usize, u64)),
    /// The master's time: all before it was sent.
    Beat(u64),
    /// The master's timer.
    Tick,
}

/// Its state.
pub struct Occult {
    replicas: Replicas,
    attached: Vec<usize>,
    issued_us: Vec<u64>,
    attempts: Vec<u8>,
    stamps: Vec<Stamp>,
    /// By site and key: the causal timestamp of its version.
    kept: HashMap<(usize, u32), Stamp>,
    /// By site and shard: its time; and the master's time at the site.
    times: Vec<Vec<u64>>,
    beats: Vec<u64>,
}

impl Occult {
    /// At rest.
    #[must_use]
    pub fn new(layout: &Layout) -> Occult {
        let clients = layout.homes.len();
        Occult {
            replicas: Replicas::new(layout),
            attached: layout.homes.clone(),
            issued_us: vec![0; clients],
            attempts: vec![0; clients],
            stamps: vec![Stamp::default(); clients],
            kept: HashMap::new(),
            times: vec![vec![0; layout.groups.len() + 1]; layout.sites()],
            beats: vec![0; layout.sites()],
        }
    }

    fn shard(layout: &Layout, key: u32) -> usize {
        layout.group(key).unwrap_or(layout.groups.len())
    }

    fn write(&mut self, net: &mut Net<Message>, client: usize, key: u32, stamp: Stamp) {
        let (root, sites) = (net.layout.root, net.layout.sites());
        let shard = Self::shard(&net.layout, key);
        // The master's clock is time, so that times of quiet shards go on.
        let version = self.replicas.write(root, key, net.now_us());
        self.times[root][shard] = version.clock;
        let mut own = stamp;
        own.raise(shard, version.clock);
        self.kept.insert((root, key), own.clone());
        let issued = (self.attached[client], self.issued_us[client]);
        if issued.0 != root {
            net.visible(issued.0, root, issued.1);
        }
        let replicas: Vec<usize> = net.layout.replicas(key).collect();
        for replica in replicas.into_iter().filter(|replica| *replica != root) {
            let update = Message::Update(key, version, own.clone(), issued);
            net.send(root, sites + replica, VERSION_BYTES + own.bytes(), update);
        }
        net.send_down(root, client, VERSION_BYTES, Message::Wrote(key, version));
    }

    fn found(&mut self, net: &mut Net<Message>, client: usize, found: (u32, Version, Stamp, u64)) {
        let (key, version, stamp, time) = found;
        let shard = Self::shard(&net.layout, key);
        if time >= self.stamps[client].of(shard) {
            self.stamps[client].merge(&stamp);
            self.attempts[client] = 0;
            net.answer(client, version);
            return;
        }
        self.attempts[client] += 1;
        let is_for_master = self.attempts[client] >= ATTEMPTS;
        let to = if is_for_master { net.layout.root } else { self.attached[client] };
        net.send_up(client, to, 0, Message::Ask(client, Ask::Read(key), is_for_master));
    }
}

impl Protocol for Occult {
    type Message = Message;

    /// Stores, then receivers, one a site: they keep the order of the master's stream.
    fn processes(layout: &Layout) -> Vec<(usize, usize)> {
        let stores = (0..layout.sites()).map(|site| (site, layout.costs.cores));
        stores.chain((0..layout.sites()).map(|site| (site, 1))).collect()
    }

    fn cost_us(&self, layout: &Layout, _at: Node, message: &Message) -> f64 {
        let costs = &layout.costs;
        match message {
            Message::Ask(_, Ask::Read(_), _) => costs.read_us,
            Message::Ask(..) => costs.attach_us,
            Message::Write(..) => costs.write_us,
            Message::Update(..) => costs.payload_us,
            _ => 0.0,
        }
    }

    fn begin(&mut self, net: &mut Net<Message>) {
        net.after(net.layout.root, net.layout.costs.beat_us, Message::Tick);
    }

    fn ask(&mut self, net: &mut Net<Message>, client: usize, ask: Ask) {
        self.issued_us[client] = net.now_us();
        match ask {
            Ask::Write(key) => {
                let stamp = self.stamps[client].clone();
                let (root, bytes) = (net.layout.root, stamp.bytes());
                net.send_up(client, root, bytes, Message::Write(client, key, stamp));
                return;
            }
            Ask::Move(site) => self.attached[client] = site,
            Ask::Read(_) => {}
        }
        net.send_up(client, self.attached[client], 0, Message::Ask(client, ask, false));
    }

    fn receive(&mut self, net: &mut Net<Message>, at: Node, message: Message) {
        let (root, sites) = (net.layout.root, net.layout.sites());
        match message {
            Message::Ask(client, Ask::Read(key), _) => {
                let version = self.replicas.get(at, key);
                let stamp = self.kept.get(&(at, key)).cloned().unwrap_or_default();
                let shard = Self::shard(&net.layout, key);
                let time = self.times[at][shard].max(self.beats[at]);
                let time = if at == root { u64::MAX } else { time };
                let bytes = VERSION_BYTES + stamp.bytes() + ENTRY_BYTES;
                net.send_down(at, client, bytes, Message::Found(key, version, stamp, time));
            }
            Message::Ask(client, ..) => net.send_down(at, client, 0, Message::Moved),
            Message::Write(client, key, stamp) => self.write(net, client, key, stamp),
            Message::Update(key, version, stamp, (from, issued_us)) => {
                let site = at - sites;
                net.occupy(site, net.layout.costs.apply_us);
                self.replicas.apply(site, key, version);
                self.kept.insert((site, key), stamp);
                self.times[site][Self::shard(&net.layout, key)] = version.clock;
                if from != site {
                    net.visible(from, site, issued_us);
                }
            }
            Message::Beat(time) => self.beats[at - sites] = time,
            Message::Tick => {
                let time = self.replicas.tick(root, net.now_us());
                for site in (0..sites).filter(|site| *site != root) {
                    net.send(root, sites + site, ENTRY_BYTES, Message::Beat(time));
                }
                net.after(root, net.layout.costs.beat_us, Message::Tick);
            }
            Message::Found(key, version, stamp, time) => {
                self.found(net, net.client(at), (key, version, stamp, time));
            }
            Message::Wrote(key, version) => {
                let client = net.client(at);
                let shard = Self::shard(&net.layout, key);
                self.stamps[client].raise(shard, version.clock);
                net.answer(client, version);
            }
            Message::Moved => net.answer(net.client(at), Version::default()),
        }
    }

    fn order(&self) -> Vec<Version> {
        self.replicas.order()
    }

    fn shows(&self, site: usize, key: u32) -> Version {
        self.replicas.get(site, key)
    }
}
