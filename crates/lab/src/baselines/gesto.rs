//! Gesto (Afonso, Bravo and Rodrigues, *Combining high throughput and low migration latency for
//! consistent data storage on the edge*, ICCCN 2020; here from the extended abstract of Afonso's
//! dissertation), §IV and §V.
//!
//! A timestamp has two parts. The *local* one is a site and its clock: what the client saw of the
//! site that it is attached to. The *regional* one is given by the broker: all else that it saw. A
//! write is taken at the client's site with a new local part. Its payload goes to the sites that
//! hold the key; its metadata goes, in the order of the site's clock, to the broker, which numbers
//! it and sends it on to the same sites; they make it visible in that order, once its payload is
//! there (§V-A, §V-B).
//!
//! A client that moves attaches: the target waits until what it took from the origin reaches the
//! local part, and what it took from the broker the regional one (§V-C). As the broker sends to a
//! site what it holds, a target that holds little of what is written may not get there by itself.
//! So the client asks its origin for a *snapshot* at the same time, a write of nothing to the
//! target; and each site makes one to all others now and then (§V-C, *Liveness*; the code that was
//! published has none).
//!
//! Clocks are Lamport's; the paper's are loosely synchronised, and a write may have to wait for
//! them. The paper leaves open which of two concurrent writes wins.
//!
//! *What shows:* metadata is imported one write after the other, so from some load on queues grow
//! (§VIII-D). With [`Attach::Shortcut`] a client whose regional part came from the target itself,
//! and that saw nothing of the origin, is admitted at once; the published code does so. What the
//! write of that part depends on may be missing: an effect without its cause.
//!
//! *Left out:* retried writes, several regions, failures and reconfiguration (the paper's future
//! work).

use std::collections::{HashSet, VecDeque};

use super::net::{Net, Node, Protocol};
use super::{Ask, KEY_BYTES, Layout, Replicas, VERSION_BYTES, Version};

/// Bytes of a multipart timestamp: twice a site and a clock.
pub const TIMESTAMP_BYTES: u64 = 2 * VERSION_BYTES;

/// When a target admits a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// As the paper has it.
    Paper,
    /// At once, where the regional part came from the target and the local part is empty.
    Shortcut,
}

/// A regional part: the broker's number, and whose write got it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regional {
    clock: u64,
    site: usize,
}

/// A client's timestamp.
#[derive(Debug, Clone, Copy, Default)]
pub struct Token {
    /// Of the site that it is attached to, or was.
    local: u64,
    regional: Regional,
    /// The highest clock in its past, for the next write's.
    clock: u64,
}

/// Metadata of a write, or of a snapshot for one site.
#[derive(Debug, Clone, Copy)]
pub struct Meta {
    version: Version,
    /// Of a write, its key; of a snapshot, its target.
    what: What,
    issued_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Write(u32),
    Snapshot(usize),
}

/// What is sent.
pub enum Message {
    /// A client asks; a write with its timestamp.
    Ask(usize, Ask, Token),
    /// Attach, coming from this site.
    Attach(usize, usize, Token),
    /// Snapshot for a target.
    Snapshot(usize),
    /// What was read, with the regional part of its version.
    Found(Version, Regional),
    /// What was written.
    Wrote(Version),
    /// Here it goes on, with this regional part; without one it has not moved.
    Attached(Option<Regional>),
    /// A payload.
    Payload(Version),
    /// A site's metadata, in order.
    Metas(Vec<Meta>),
    /// Numbered.
    Ordered(Vec<(u64, Meta)>),
    /// Export what there is.
    Beat,
    /// Take a snapshot for all others.
    Spontaneous,
}

#[derive(Default)]
struct Site {
    outbox: Vec<Meta>,
    payloads: HashSet<Version>,
    /// Ordered, and not yet visible.
    queue: VecDeque<(u64, Meta)>,
    /// By origin: the last clock that was taken, and the number that it had.
    taken: Vec<(u64, u64)>,
    /// The highest number that was taken.
    covered: u64,
    waiting: Vec<(usize, usize, Token)>,
}

/// Its state.
pub struct Gesto {
    attach: Attach,
    replicas: Replicas,
    sites: Vec<Site>,
    attached: Vec<usize>,
    issued_us: Vec<u64>,
    tokens: Vec<Token>,
    /// By site: the regional part of each key's newest version.
    regional: Vec<Vec<Regional>>,
    numbered: u64,
}

impl Gesto {
    /// At rest.
    #[must_use]
    pub fn new(layout: &Layout, attach: Attach) -> Gesto {
        let count = layout.sites();
        let site = |_| Site { taken: vec![(0, 0); count], ..Site::default() };
        Gesto {
            attach,
            replicas: Replicas::new(layout),
            sites: (0..count).map(site).collect(),
            attached: layout.homes.clone(),
            issued_us: vec![0; layout.homes.len()],
            tokens: vec![Token::default(); layout.homes.len()],
            regional: vec![vec![Regional::default(); layout.keys as usize]; count],
            numbered: 0,
        }
    }

    fn serve(
        &mut self,
        net: &mut Net<Message>,
        site: usize,
        client: usize,
        ask: Ask,
        token: Token,
    ) {
        match ask {
            Ask::Read(key) => {
                let found = self.replicas.get(site, key);
                let regional = self.regional[site][key as usize];
                net.send_down(site, client, TIMESTAMP_BYTES, Message::Found(found, regional));
            }
            Ask::Write(key) => {
                let version = self.replicas.write(site, key, token.clock);
                // Until the broker numbers it, it stands for what its writer had seen of others.
                self.regional[site][key as usize] = token.regional;
                let replicas: Vec<usize> = net.layout.replicas(key).collect();
                for replica in replicas.into_iter().filter(|replica| *replica != site) {
                    net.send(site, replica, VERSION_BYTES, Message::Payload(version));
                }
                let issued_us = self.issued_us[client];
                self.sites[site].outbox.push(Meta { version, what: What::Write(key), issued_us });
                net.send_down(site, client, TIMESTAMP_BYTES, Message::Wrote(version));
            }
            Ask::Move(_) => {}
        }
    }

    fn snapshot(&mut self, net: &Net<Message>, site: usize, target: usize) {
        let clock = self.replicas.tick(site, 0);
        let version = Version { clock, site: site as u16 };
        let what = What::Snapshot(target);
        self.sites[site].outbox.push(Meta { version, what, issued_us: net.now_us() });
    }

    /// The broker numbers what it gets in the order in which it gets it.
    fn number(&mut self, net: &mut Net<Message>, broker: Node, metas: Vec<Meta>) {
        let count = net.layout.sites();
        let mut batches: Vec<Vec<(u64, Meta)>> = vec![Vec::new(); count];
        for meta in metas {
            self.numbered += 1;
            let mut put = |site: usize| batches[site].push((self.numbered, meta));
            match meta.what {
                What::Snapshot(target) => put(target),
                What::Write(key) => {
                    let others = net.layout.replicas(key);
                    others.filter(|site| *site != usize::from(meta.version.site)).for_each(put);
                }
            }
        }
        for (site, batch) in batches.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty())
        {
            let bytes = (TIMESTAMP_BYTES + KEY_BYTES) * batch.len() as u64;
            net.send(broker, count + site, bytes, Message::Ordered(batch));
        }
    }

    /// Makes visible what has its payload, in order.
    fn import(&mut self, net: &mut Net<Message>, site: usize) {
        while let Some((number, meta)) = self.sites[site].queue.front().copied() {
            let version = meta.version;
            if let What::Write(key) = meta.what {
                if !self.sites[site].payloads.remove(&version) {
                    break;
                }
                net.occupy(site, net.layout.costs.apply_us);
                self.replicas.apply(site, key, version);
                if self.replicas.get(site, key) == version {
                    let origin = usize::from(version.site);
                    self.regional[site][key as usize] = Regional { clock: number, site: origin };
                }
                net.visible(version.site.into(), site, meta.issued_us);
            }
            let here = &mut self.sites[site];
            here.queue.pop_front();
            here.taken[usize::from(version.site)] = (version.clock, number);
            here.covered = number;
        }
        self.admit(net, site);
    }

    fn admit(&mut self, net: &mut Net<Message>, site: usize) {
        let waiting = std::mem::take(&mut self.sites[site].waiting);
        for (client, origin, token) in waiting {
            let here = &self.sites[site];
            let (clock, number) = here.taken[origin];
            let is_short =
                self.attach == Attach::Shortcut && token.local == 0 && token.regional.site == site;
            let is_covered = clock >= token.local && here.covered >= token.regional.clock;
            if origin == site || is_short || is_covered {
                // The origin's last part is among what is covered: it is a regional one from here
                // on.
                let last = Regional { clock: number, site: origin };
                let folded = if token.local > 0 { last } else { token.regional };
                let regional = (origin != site).then(|| folded.max(token.regional));
                net.send_down(site, client, TIMESTAMP_BYTES, Message::Attached(regional));
            } else {
                self.sites[site].waiting.push((client, origin, token));
            }
        }
    }

    fn learn(&mut self, client: usize, message: &Message) -> Version {
        let token = &mut self.tokens[client];
        match message {
            Message::Found(version, regional) => {
                token.clock = token.clock.max(version.clock);
                token.regional = token.regional.max(*regional);
                if usize::from(version.site) == self.attached[client] {
                    token.local = token.local.max(version.clock);
                }
                *version
            }
            Message::Wrote(version) => {
                token.clock = version.clock;
                token.local = version.clock;
                *version
            }
            Message::Attached(Some(regional)) => {
                token.regional = *regional;
                token.local = 0;
                Version::default()
            }
            _ => Version::default(),
        }
    }
}

impl Protocol for Gesto {
    type Message = Message;

    /// Stores; importers and exporters, one core each; the broker.
    fn processes(layout: &Layout) -> Vec<(usize, usize)> {
        let sites = 0..layout.sites();
        let stores = sites.clone().map(|site| (site, layout.costs.cores));
        let others = sites.clone().chain(sites).map(|site| (site, 1));
        stores.chain(others).chain([(layout.root, 1)]).collect()
    }

    fn cost_us(&self, layout: &Layout, at: Node, message: &Message) -> f64 {
        let costs = &layout.costs;
        match message {
            Message::Ask(_, Ask::Read(_), _) => costs.read_us,
            Message::Ask(..) => costs.write_us,
            Message::Attach(..) => costs.attach_us,
            Message::Payload(_) | Message::Snapshot(_) => costs.payload_us,
            Message::Beat => {
                costs.export_us * self.sites[at - 2 * layout.sites()].outbox.len() as f64
            }
            Message::Metas(metas) => costs.order_us * metas.len() as f64,
            Message::Ordered(batch) => costs.import_us * batch.len() as f64,
            _ => 0.0,
        }
    }

    fn begin(&mut self, net: &mut Net<Message>) {
        let (count, costs) = (net.layout.sites(), net.layout.costs);
        for site in 0..count {
            net.after(2 * count + site, costs.beat_us, Message::Beat);
            if costs.snapshot_us > 0 {
                net.after(site, costs.snapshot_us, Message::Spontaneous);
            }
        }
    }

    fn ask(&mut self, net: &mut Net<Message>, client: usize, ask: Ask) {
        self.issued_us[client] = net.now_us();
        let token = self.tokens[client];
        match ask {
            Ask::Move(target) => {
                let origin = std::mem::replace(&mut self.attached[client], target);
                if origin != target {
                    net.send_up(client, origin, VERSION_BYTES, Message::Snapshot(target));
                }
                let attach = Message::Attach(client, origin, token);
                net.send_up(client, target, TIMESTAMP_BYTES, attach);
            }
            _ => {
                let is_write = matches!(ask, Ask::Write(_));
                let bytes = if is_write { TIMESTAMP_BYTES } else { 0 };
                net.send_up(client, self.attached[client], bytes, Message::Ask(client, ask, token));
            }
        }
    }

    fn receive(&mut self, net: &mut Net<Message>, at: Node, message: Message) {
        let count = net.layout.sites();
        match message {
            Message::Ask(client, ask, token) => self.serve(net, at, client, ask, token),
            Message::Attach(client, origin, token) => {
                self.sites[at].waiting.push((client, origin, token));
                self.admit(net, at);
            }
            Message::Snapshot(target) => self.snapshot(net, at, target),
            Message::Spontaneous => {
                for target in (0..count).filter(|target| *target != at) {
                    self.snapshot(net, at, target);
                }
                net.after(at, net.layout.costs.snapshot_us, Message::Spontaneous);
            }
            Message::Payload(version) => {
                self.sites[at].payloads.insert(version);
                self.import(net, at);
            }
            Message::Beat => {
                let metas = std::mem::take(&mut self.sites[at - 2 * count].outbox);
                if !metas.is_empty() {
                    let bytes = (TIMESTAMP_BYTES + KEY_BYTES) * metas.len() as u64;
                    net.send(at, 3 * count, bytes, Message::Metas(metas));
                }
                net.after(at, net.layout.costs.beat_us, Message::Beat);
            }
            Message::Metas(metas) => self.number(net, at, metas),
            Message::Ordered(batch) => {
                self.sites[at - count].queue.extend(batch);
                self.import(net, at - count);
            }
            answer => {
                let client = net.client(at);
                let version = self.learn(client, &answer);
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
