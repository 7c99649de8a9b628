//! Several sites of one deployment in one process, with ports for Redis Cluster clients.

use crate::support::Client;
use front::redis::{Options, RedisFront};
use model::{Command, Giving, KeyspaceSpec, Request, SiteName, Slot, SlotSet};
use server::config::{Config, Ports};
use server::{Handle, Node};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Sites of one node each, with the global keyspace `cars` (`car:`).
pub(crate) struct Deployment {
    pub(crate) sites: Vec<Place>,
    runtime: Runtime,
    data: TempDir,
}

/// A site.
pub(crate) struct Place {
    front: Option<RedisFront>,
    node: Option<Node>,
    handle: Handle,
}

impl Deployment {
    /// Begins with one site and lets others join: `with_port` says of each whether clients of the
    /// cluster protocol can go there.
    pub(crate) fn start(with_port: &[bool]) -> Deployment {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let data = tempfile::tempdir().unwrap();
        let mut deployment = Deployment { sites: Vec::new(), runtime, data };
        for with_port in with_port {
            deployment.add(*with_port);
        }
        deployment.wait_until_known();
        deployment
    }

    fn add(&mut self, with_port: bool) {
        let number = self.sites.len() + 1;
        let join: Vec<String> = self.sites.first().map(Place::peer).into_iter().collect();
        let ports = Ports {
            peer: SocketAddr::from(([127, 0, 0, 1], 0)),
            redis: None,
            redis_cluster: with_port.then(free_port),
            ..Ports::default()
        };
        let keyspaces = vec![KeyspaceSpec::linearizable_global("cars", "car:")];
        let config = Config {
            site: SiteName::new(format!("s{number}")).unwrap(),
            data: self.data.path().join(number.to_string()),
            keyspaces: if join.is_empty() { keyspaces } else { Vec::new() },
            join,
            ports,
            ..Config::default()
        };
        let node = Node::start(&config).unwrap();
        let options = Options::of_cluster(&config).unwrap();
        let front = options.map(|options| RedisFront::start(&node, options).unwrap());
        let handle = {
            let _inside = self.runtime.enter();
            node.handle()
        };
        // Nobody is let in before there is a deployment.
        until(|| handle.status().deployment.is_some());
        self.sites.push(Place { front, node: Some(node), handle });
    }

    /// Every site knows all of them with their addresses, and the keyspace.
    fn wait_until_known(&self) {
        let wanted = self.sites.iter().filter(|site| site.front.is_some()).count();
        for site in &self.sites {
            until(|| {
                let status = site.handle.status();
                let Some(member) = &status.deployment else { return false };
                let nodes = member.registry.sites.iter().flat_map(|site| &site.nodes);
                member.registry.sites.len() == self.sites.len()
                    && nodes.filter(|node| !node.cluster.is_empty()).count() == wanted
                    && site.handle.catalog().by_name("cars").is_some()
            });
        }
    }

    /// A connection to a site's cluster port.
    pub(crate) fn connect(&self, site: usize) -> Client {
        Client::connect(self.address(site))
    }

    pub(crate) fn address(&self, site: usize) -> SocketAddr {
        self.sites[site].front.as_ref().unwrap().address()
    }

    /// Hands a key's slot to a site, so that it stays there, and waits until it is there.
    pub(crate) fn give(&self, key: &str, to: usize) {
        let slot = Slot::of_key(key.as_bytes());
        let serves = |site: usize| self.sites[site].handle.serves(slot);
        // From wherever it is; a site that has it by itself might give it away again.
        until(|| {
            (0..self.sites.len()).any(|from| {
                let other = (to + 1) % self.sites.len();
                serves(from)
                    && self.begins(from, if from == to { other } else { to }, slot)
                    && from != to
            })
        });
        until(|| serves(to));
    }

    /// Begins to move a slot on purpose. It does not while it moves already.
    fn begins(&self, from: usize, to: usize, slot: Slot) -> bool {
        let status = self.sites[to].handle.status();
        let to = status.deployment.as_ref().unwrap().own;
        let step = Giving::Begin { slots: SlotSet::from_iter([slot]), to, pinned: true };
        let begin = Request::write(Command::Giving { number: 0, step });
        self.runtime.block_on(self.sites[from].handle.call(begin)).is_ok()
    }
}

impl Place {
    fn peer(&self) -> String {
        self.node.as_ref().unwrap().peer_address().to_string()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        for site in &mut self.sites {
            drop(site.front.take());
            if let Some(node) = site.node.take() {
                node.stop();
            }
        }
    }
}

/// Waits, without a bound on speed: a hang is the test runner's to end.
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn free_port() -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listener.local_addr().unwrap()
}
