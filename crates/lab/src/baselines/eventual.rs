//! Eventual consistency: what Gesto's evaluation (Afonso, Bravo and Rodrigues, ICCCN 2020, §VII)
//! takes as the best that can be reached, since it keeps no metadata but a version.
//!
//! A write is taken at the client's site, answered, and sent to the sites that hold the key, which
//! take whatever comes, whenever it comes. A client that moves carries nothing along.
//!
//! *What shows:* effects before their causes, and sessions that go back, whenever a client moves,
//! and also without that, between links of different lengths.
//!
//! *Left out:* repair of lost messages: links lose none.

use super::net::{Net, Node, Protocol};
use super::{Ask, Layout, Replicas, VERSION_BYTES, Version};

/// Its state.
pub struct Eventual {
    replicas: Replicas,
    attached: Vec<usize>,
}

/// What is sent.
pub enum Message {
    /// A client asks, since.
    Ask(usize, Ask, u64),
    /// An answer.
    Answer(Version),
    /// A write, and when it was asked for.
    Update(u32, Version, u64),
}

impl Eventual {
    /// At rest.
    #[must_use]
    pub fn new(layout: &Layout) -> Eventual {
        Eventual { replicas: Replicas::new(layout), attached: layout.homes.clone() }
    }

    fn serve(&mut self, net: &mut Net<Message>, site: usize, ask: Ask, issued_us: u64) -> Version {
        match ask {
            Ask::Read(key) => self.replicas.get(site, key),
            Ask::Write(key) => {
                let version = self.replicas.write(site, key, 0);
                let replicas: Vec<usize> = net.layout.replicas(key).collect();
                for replica in replicas.into_iter().filter(|replica| *replica != site) {
                    net.send(
                        site,
                        replica,
                        VERSION_BYTES,
                        Message::Update(key, version, issued_us),
                    );
                }
                version
            }
            Ask::Move(_) => Version::default(),
        }
    }
}

impl Protocol for Eventual {
    type Message = Message;

    fn processes(layout: &Layout) -> Vec<(usize, usize)> {
        (0..layout.sites()).map(|site| (site, layout.costs.cores)).collect()
    }

    fn cost_us(&self, layout: &Layout, _at: Node, message: &Message) -> f64 {
        let costs = &layout.costs;
        match message {
            Message::Ask(_, Ask::Read(_), _) => costs.read_us,
            Message::Ask(_, Ask::Write(_), _) => costs.write_us,
            Message::Ask(..) => costs.attach_us,
            Message::Update(..) => costs.apply_us,
            Message::Answer(_) => 0.0,
        }
    }

    fn ask(&mut self, net: &mut Net<Message>, client: usize, ask: Ask) {
        if let Ask::Move(site) = ask {
            self.attached[client] = site;
        }
        net.send_up(client, self.attached[client], 0, Message::Ask(client, ask, net.now_us()));
    }

    fn receive(&mut self, net: &mut Net<Message>, at: Node, message: Message) {
        match message {
            Message::Ask(client, ask, issued_us) => {
                let version = self.serve(net, at, ask, issued_us);
                net.send_down(at, client, VERSION_BYTES, Message::Answer(version));
            }
            Message::Update(key, version, issued_us) => {
                self.replicas.apply(at, key, version);
                net.visible(version.site.into(), at, issued_us);
            }
            Message::Answer(version) => net.answer(net.client(at), version),
        }
    }

    fn order(&self) -> Vec<Version> {
        self.replicas.order()
    }

    fn shows(&self, site: usize, key: u32) -> Version {
        self.replicas.get(site, key)
    }
}
