//! COPS (Lloyd, Freedman, Kaminsky and Andersen, *Don't settle for eventual*, SOSP 2011), in the
//! version with partial replication that Gesto's authors made for their evaluation (ICCCN 2020,
//! §VII).
//!
//! A client keeps the versions that it read and wrote since its last compression. A write is taken
//! at its site with that list, answered, and sent with it to the sites that hold the key. There it
//! waits until each dependency on a key that the site holds is met. In COPS the list shrinks to the
//! write itself after each write, since a site that has the write has all that it depends on: the
//! nearest dependencies. With partial replication that is so only after a write of a key that is at
//! all sites; after another the version is added like a read. Dependencies that are older than five
//! seconds are at all sites and are dropped (COPS's transitive garbage collection). A client that
//! moves waits until the target meets its list.
//!
//! Two ways to treat dependencies that a site cannot check, as it does not hold the key:
//!
//! - [`Lists::Direct`], as evaluated: a list holds what the client itself read and wrote. What a
//!   version on a key that is not held depends on in turn is lost. *What shows:* effects before
//!   their causes.
//! - [`Lists::Inherited`]: each version carries the list of its writer, and its readers take it
//!   over. That is causal, and *what shows* is that lists grow with all that is written in five
//!   seconds.
//!
//! *Left out:* COPS-GT and its transactions, sites of several servers, failures.

use std::collections::{BTreeMap, HashMap};

use super::net::{Net, Node, Protocol};
use super::{Ask, KEY_BYTES, Layout, Replicas, VERSION_BYTES, Version};

/// After this each write is at all sites (COPS, §4.4: the limit of its garbage collection).
const EVERYWHERE_US: u64 = 5_000_000;

/// What a list of dependencies holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// What the client itself has seen.
    Direct,
    /// That and what it depends on.
    Inherited,
}

/// By key: the version, and since when it is known.
type Dependencies = BTreeMap<u32, (Version, u64)>;

/// A write, as it is sent and waits.
#[derive(Clone)]
pub struct Update {
    key: u32,
    version: Version,
    issued_us: u64,
    dependencies: Dependencies,
}

/// What is sent.
pub enum Message {
    /// A client asks; a write and a move with its list.
    Ask(usize, Ask, Dependencies),
    /// What was read or written, and what it depends on.
    Answer(Ask, Version, Dependencies),
    /// A write.
    Update(Update),
}

enum Waiting {
    Update(Update),
    Client(usize, Dependencies),
}

/// Its state.
pub struct Cops {
    lists: Lists,
    replicas: Replicas,
    attached: Vec<usize>,
    issued_us: Vec<u64>,
    contexts: Vec<Dependencies>,
    /// By client: the highest clock that it has seen.
    clocks: Vec<u64>,
    /// By site and key: the list of its newest version.
    kept: HashMap<(usize, u32), Dependencies>,
    /// By site.
    waiting: Vec<Vec<Waiting>>,
}

impl Cops {
    /// At rest.
    #[must_use]
    pub fn new(layout: &Layout, lists: Lists) -> Cops {
        Cops {
            lists,
            replicas: Replicas::new(layout),
            attached: layout.homes.clone(),
            issued_us: vec![0; layout.homes.len()],
            contexts: vec![Dependencies::new(); layout.homes.len()],
            clocks: vec![0; layout.homes.len()],
            kept: HashMap::new(),
            waiting: (0..layout.sites()).map(|_| Vec::new()).collect(),
        }
    }

    fn is_met(&self, layout: &Layout, site: usize, dependencies: &Dependencies) -> bool {
        let met = |(key, (version, _)): (&u32, &(Version, u64))| {
            !layout.holds(site, *key) || self.replicas.get(site, *key) >= *version
        };
        dependencies.iter().all(met)
    }

    fn apply(&mut self, net: &mut Net<Message>, site: usize, update: Update) {
        let Update { key, version, issued_us, dependencies } = update;
        self.keep(&net.layout, site, key, version, dependencies);
        self.replicas.apply(site, key, version);
        net.visible(version.site.into(), site, issued_us);
    }

    fn keep(
        &mut self,
        layout: &Layout,
        site: usize,
        key: u32,
        version: Version,
        dependencies: Dependencies,
    ) {
        // What a site-wide version depends on is wherever it is.
        if self.lists == Lists::Inherited
            && layout.group(key).is_some()
            && self.replicas.get(site, key) <= version
        {
            self.kept.insert((site, key), dependencies);
        }
    }

    /// Whatever waits at a site and need not.
    fn wake(&mut self, net: &mut Net<Message>, site: usize) {
        loop {
            let ready = self.waiting[site].iter().position(|waiting| match waiting {
                Waiting::Update(update) => self.is_met(&net.layout, site, &update.dependencies),
                Waiting::Client(_, list) => self.is_met(&net.layout, site, list),
            });
            let cost_us = net.layout.costs.waiting_us * self.waiting[site].len() as f64;
            net.occupy(site, cost_us);
            match ready.map(|at| self.waiting[site].remove(at)) {
                None => return,
                Some(Waiting::Update(update)) => self.apply(net, site, update),
                Some(Waiting::Client(client, _)) => {
                    let none = (Version::default(), Dependencies::new());
                    let answer = Message::Answer(Ask::Move(site), none.0, none.1);
                    net.send_down(site, client, 0, answer);
                }
            }
        }
    }

    fn serve(
        &mut self,
        net: &mut Net<Message>,
        site: usize,
        client: usize,
        ask: Ask,
        list: Dependencies,
    ) {
        match ask {
            Ask::Read(key) => {
                let version = self.replicas.get(site, key);
                let inherited = self.kept.get(&(site, key)).cloned().unwrap_or_default();
                let bytes = VERSION_BYTES + bytes(&inherited);
                net.send_down(site, client, bytes, Message::Answer(ask, version, inherited));
            }
            Ask::Write(key) => {
                let version = self.replicas.write(site, key, self.clocks[client]);
                self.keep(&net.layout, site, key, version, list.clone());
                let replicas: Vec<usize> = net.layout.replicas(key).collect();
                for replica in replicas.into_iter().filter(|replica| *replica != site) {
                    let dependencies = list.clone();
                    let issued_us = self.issued_us[client];
                    let update = Update { key, version, issued_us, dependencies };
                    net.send(site, replica, VERSION_BYTES + bytes(&list), Message::Update(update));
                }
                let answer = Message::Answer(ask, version, Dependencies::new());
                net.send_down(site, client, VERSION_BYTES, answer);
                self.wake(net, site);
            }
            Ask::Move(_) => {
                self.waiting[site].push(Waiting::Client(client, list));
                self.wake(net, site);
            }
        }
    }

    /// What a client has seen, taken up into its list.
    fn learn(
        &mut self,
        net: &Net<Message>,
        client: usize,
        ask: Ask,
        version: Version,
        more: Dependencies,
    ) {
        let now_us = net.now_us();
        self.clocks[client] = self.clocks[client].max(version.clock);
        let list = &mut self.contexts[client];
        match ask {
            Ask::Write(key) if net.layout.group(key).is_none() => list.clear(),
            _ => {}
        }
        if let Ask::Read(key) | Ask::Write(key) = ask
            && version.clock > 0
        {
            let one = list.entry(key).or_insert((version, now_us));
            *one = (*one).max((version, now_us));
        }
        for (key, of) in more {
            let one = list.entry(key).or_insert(of);
            *one = (*one).max(of);
        }
        list.retain(|_, (_, since_us)| *since_us + EVERYWHERE_US > now_us);
    }
}

fn bytes(list: &Dependencies) -> u64 {
    list.len() as u64 * (KEY_BYTES + VERSION_BYTES)
}

impl Protocol for Cops {
    type Message = Message;

    fn processes(layout: &Layout) -> Vec<(usize, usize)> {
        (0..layout.sites()).map(|site| (site, layout.costs.cores)).collect()
    }

    fn cost_us(&self, layout: &Layout, _at: Node, message: &Message) -> f64 {
        let costs = &layout.costs;
        let check = |list: &Dependencies| costs.dependency_us * list.len() as f64;
        match message {
            Message::Ask(_, Ask::Read(_), _) => costs.read_us,
            Message::Ask(_, Ask::Write(_), _) => costs.write_us,
            Message::Ask(_, Ask::Move(_), list) => costs.attach_us + check(list),
            Message::Update(update) => costs.apply_us + check(&update.dependencies),
            Message::Answer(..) => 0.0,
        }
    }

    fn ask(&mut self, net: &mut Net<Message>, client: usize, ask: Ask) {
        self.issued_us[client] = net.now_us();
        let list = match ask {
            Ask::Read(_) => Dependencies::new(),
            _ => self.contexts[client].clone(),
        };
        if let Ask::Move(site) = ask {
            self.attached[client] = site;
        }
        net.send_up(client, self.attached[client], bytes(&list), Message::Ask(client, ask, list));
    }

    fn receive(&mut self, net: &mut Net<Message>, at: Node, message: Message) {
        match message {
            Message::Ask(client, ask, list) => self.serve(net, at, client, ask, list),
            Message::Update(update) => {
                self.waiting[at].push(Waiting::Update(update));
                self.wake(net, at);
            }
            Message::Answer(ask, version, more) => {
                let client = net.client(at);
                self.learn(net, client, ask, version, more);
                net.answer(client, version);
            }
        }
    }

    fn order(&self) -> Vec<Version> {
        self.replicas.order()
    }

    fn shows(&self, site: usize, key: u32) -> Version {
        self.replicas.get(site, key)
    }
}
