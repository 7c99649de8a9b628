//! Saturn (Bravo, Rodrigues and Van Roy, *Saturn: a distributed metadata service for causal
//! consistency*, EuroSys 2017), with sites in the place of its datacenters, as in Gesto's
//! evaluation (ICCCN 2020, §VII).
//!
//! Each write has a *label*: a time and the site that took it. A site gives its labels to its
//! serializer in the order of their times; serializers are joined to a tree, keep the order of each
//! link, and pass a label on only where there are sites that hold the key. A site makes remote
//! writes visible in the order in which labels come, once their payload is there, which travels by
//! itself.
//!
//! A client keeps one label, the highest that it has seen. To move it first asks its site for a
//! migration label, which goes through the tree to the target after all that the site had shown;
//! then it attaches at the target, which admits it when that label has come. The two steps are one
//! after the other.
//!
//! *What shows:* labels take detours over serializers, so writes are visible later where these are
//! many; and a move takes a way to the old site and then waits for the tree.
//!
//! *Left out:* how a tree is found for a deployment (here it is part of the layout, without
//! artificial delays), replicated serializers, the way to go on without Saturn when the tree is
//! broken, remote reads.

use std::collections::{HashSet, VecDeque};

use super::net::{Net, Node, Protocol};
use super::{Ask, KEY_BYTES, Layout, Replicas, VERSION_BYTES, Version};

/// A label, as it goes through the tree.
#[derive(Debug, Clone, Copy)]
pub struct Label {
    version: Version,
    what: What,
    issued_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Write(u32),
    /// A client goes to this site.
    Migration(usize),
}

/// What is sent.
pub enum Message {
    /// A client asks, with its label's time.
    Ask(usize, Ask, u64),
    /// A client wants a migration label for a target.
    Leave(usize, usize, u64),
    /// It has one.
    Left(Version, usize),
    /// And goes on at the target, if the target has it. Coming from the same site it has none.
    Attach(usize, Option<Version>),
    /// What was read or written.
    Answer(Version),
    /// A payload.
    Payload(Version),
    /// Labels in order, from a site or a serializer.
    Labels(Vec<Label>, From),
    /// The same at their site.
    Arrived(Vec<Label>),
    /// Give labels to the serializer.
    Beat,
}

/// Where labels come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A site.
    Site,
    /// The serializer of this number.
    Serializer(usize),
}

#[derive(Default)]
struct Site {
    outbox: Vec<Label>,
    payloads: HashSet<Version>,
    queue: VecDeque<Label>,
    /// By origin: the time of the last label that was taken.
    taken: Vec<u64>,
    waiting: Vec<(usize, Option<Version>)>,
}

/// Its state.
pub struct Saturn {
    replicas: Replicas,
    sites: Vec<Site>,
    attached: Vec<usize>,
    issued_us: Vec<u64>,
    labels: Vec<u64>,
    /// By serializer and neighbour: the sites on that side.
    beyond: Vec<Vec<(usize, Vec<bool>)>>,
}

impl Saturn {
    /// At rest.
    #[must_use]
    pub fn new(layout: &Layout) -> Saturn {
        let count = layout.sites();
        let site = |_| Site { taken: vec![0; count], ..Site::default() };
        Saturn {
            replicas: Replicas::new(layout),
            sites: (0..count).map(site).collect(),
            attached: layout.homes.clone(),
            issued_us: vec![0; layout.homes.len()],
            labels: vec![0; layout.homes.len()],
            beyond: beyond(layout),
        }
    }

    fn serve(&mut self, net: &mut Net<Message>, site: usize, client: usize, ask: Ask, seen: u64) {
        let version = match ask {
            Ask::Read(key) => self.replicas.get(site, key),
            Ask::Write(key) => {
                let version = self.replicas.write(site, key, seen);
                let replicas: Vec<usize> = net.layout.replicas(key).collect();
                for replica in replicas.into_iter().filter(|replica| *replica != site) {
                    net.send(site, replica, VERSION_BYTES, Message::Payload(version));
                }
                let issued_us = self.issued_us[client];
                self.sites[site].outbox.push(Label { version, what: What::Write(key), issued_us });
                version
            }
            Ask::Move(_) => Version::default(),
        };
        net.send_down(site, client, VERSION_BYTES, Message::Answer(version));
    }

    /// A serializer passes labels on, to each side what is wanted there.
    fn pass(&self, net: &mut Net<Message>, at: Node, labels: &[Label], from: From) {
        let count = net.layout.sites();
        let serializer = at - 3 * count;
        let wants = |net: &Net<Message>, site: usize, label: &Label| match label.what {
            What::Migration(target) => site == target,
            What::Write(key) => {
                site != usize::from(label.version.site) && net.layout.holds(site, key)
            }
        };
        let bytes = |labels: &[Label]| (VERSION_BYTES + KEY_BYTES) * labels.len() as u64;
        for (neighbour, sites) in &self.beyond[serializer] {
            if from == From::Serializer(*neighbour) {
                continue;
            }
            let there =
                |label: &&Label| (0..count).any(|site| sites[site] && wants(net, site, label));
            let batch: Vec<Label> = labels.iter().filter(there).copied().collect();
            if !batch.is_empty() {
                let size = bytes(&batch);
                let message = Message::Labels(batch, From::Serializer(serializer));
                net.send(at, 3 * count + neighbour, size, message);
            }
        }
        for site in 0..count {
            if net.layout.serializer_of[site] != serializer {
                continue;
            }
            let batch: Vec<Label> =
                labels.iter().filter(|label| wants(net, site, label)).copied().collect();
            if !batch.is_empty() {
                net.send(at, count + site, bytes(&batch), Message::Arrived(batch));
            }
        }
    }

    fn import(&mut self, net: &mut Net<Message>, site: usize) {
        while let Some(label) = self.sites[site].queue.front().copied() {
            let version = label.version;
            if let What::Write(key) = label.what {
                if !self.sites[site].payloads.remove(&version) {
                    break;
                }
                net.occupy(site, net.layout.costs.apply_us);
                self.replicas.apply(site, key, version);
                net.visible(version.site.into(), site, label.issued_us);
            }
            let here = &mut self.sites[site];
            here.queue.pop_front();
            here.taken[usize::from(version.site)] = version.clock;
        }
        self.admit(net, site);
    }

    fn admit(&mut self, net: &mut Net<Message>, site: usize) {
        let waiting = std::mem::take(&mut self.sites[site].waiting);
        for (client, label) in waiting {
            let here = &self.sites[site];
            let is_there = |label: Version| here.taken[usize::from(label.site)] >= label.clock;
            if label.is_none_or(is_there) {
                net.send_down(site, client, 0, Message::Answer(Version::default()));
            } else {
                self.sites[site].waiting.push((client, label));
            }
        }
    }
}

/// Which sites are on which side of each serializer.
fn beyond(layout: &Layout) -> Vec<Vec<(usize, Vec<bool>)>> {
    let count = layout.serializers.len();
    let neighbours = |of: usize| {
        layout.joined.iter().filter_map(move |(one, other)| match of {
            _ if *one == of => Some(*other),
            _ if *other == of => Some(*one),
            _ => None,
        })
    };
    let side = |from: usize, to: usize| {
        let mut reached = vec![false; count];
        (reached[from], reached[to]) = (true, true);
        let mut next = vec![to];
        while let Some(at) = next.pop() {
            for neighbour in neighbours(at) {
                if !std::mem::replace(&mut reached[neighbour], true) {
                    next.push(neighbour);
                }
            }
        }
        reached[from] = false;
        layout.serializer_of.iter().map(|serializer| reached[*serializer]).collect()
    };
    (0..count).map(|from| neighbours(from).map(|to| (to, side(from, to))).collect()).collect()
}

impl Protocol for Saturn {
    type Message = Message;

    /// Stores; importers and exporters, one core each; serializers.
    fn processes(layout: &Layout) -> Vec<(usize, usize)> {
        let sites = 0..layout.sites();
        let stores = sites.clone().map(|site| (site, layout.costs.cores));
        let others = sites.clone().chain(sites).chain(layout.serializers.iter().copied());
        stores.chain(others.map(|place| (place, 1))).collect()
    }

    fn cost_us(&self, layout: &Layout, at: Node, message: &Message) -> f64 {
        let costs = &layout.costs;
        match message {
            Message::Ask(_, Ask::Read(_), _) => costs.read_us,
            Message::Ask(..) => costs.write_us,
            Message::Leave(..) | Message::Attach(..) => costs.attach_us,
            Message::Payload(_) => costs.payload_us,
            Message::Beat => {
                costs.export_us * self.sites[at - 2 * layout.sites()].outbox.len() as f64
            }
            Message::Labels(labels, _) => costs.order_us * labels.len() as f64,
            Message::Arrived(labels) => costs.import_us * labels.len() as f64,
            Message::Left(..) | Message::Answer(_) => 0.0,
        }
    }

    fn begin(&mut self, net: &mut Net<Message>) {
        let count = net.layout.sites();
        for site in 0..count {
            net.after(2 * count + site, net.layout.costs.beat_us, Message::Beat);
        }
    }

    fn ask(&mut self, net: &mut Net<Message>, client: usize, ask: Ask) {
        self.issued_us[client] = net.now_us();
        let seen = self.labels[client];
        let site = self.attached[client];
        match ask {
            Ask::Move(target) if target == site => {
                net.send_up(client, site, 0, Message::Attach(client, None));
            }
            Ask::Move(target) => {
                net.send_up(client, site, VERSION_BYTES, Message::Leave(client, target, seen));
            }
            Ask::Read(_) => net.send_up(client, site, 0, Message::Ask(client, ask, seen)),
            Ask::Write(_) => {
                net.send_up(client, site, VERSION_BYTES, Message::Ask(client, ask, seen));
            }
        }
    }

    fn receive(&mut self, net: &mut Net<Message>, at: Node, message: Message) {
        let count = net.layout.sites();
        match message {
            Message::Ask(client, ask, seen) => self.serve(net, at, client, ask, seen),
            Message::Leave(client, target, seen) => {
                let version = Version { clock: self.replicas.tick(at, seen), site: at as u16 };
                let (what, issued_us) = (What::Migration(target), net.now_us());
                self.sites[at].outbox.push(Label { version, what, issued_us });
                net.send_down(at, client, VERSION_BYTES, Message::Left(version, target));
            }
            Message::Left(version, target) => {
                let client = net.client(at);
                self.attached[client] = target;
                let attach = Message::Attach(client, Some(version));
                net.send_up(client, target, VERSION_BYTES, attach);
            }
            Message::Attach(client, label) => {
                self.sites[at].waiting.push((client, label));
                self.admit(net, at);
            }
            Message::Answer(version) => {
                let client = net.client(at);
                self.labels[client] = self.labels[client].max(version.clock);
                net.answer(client, version);
            }
            Message::Payload(version) => {
                self.sites[at].payloads.insert(version);
                self.import(net, at);
            }
            Message::Labels(labels, from) => self.pass(net, at, &labels, from),
            Message::Arrived(labels) => {
                self.sites[at - count].queue.extend(labels);
                self.import(net, at - count);
            }
            Message::Beat => {
                let site = at - 2 * count;
                let labels = std::mem::take(&mut self.sites[site].outbox);
                if !labels.is_empty() {
                    let bytes = (VERSION_BYTES + KEY_BYTES) * labels.len() as u64;
                    let serializer = 3 * count + net.layout.serializer_of[site];
                    net.send(at, serializer, bytes, Message::Labels(labels, From::Site));
                }
                net.after(at, net.layout.costs.beat_us, Message::Beat);
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
