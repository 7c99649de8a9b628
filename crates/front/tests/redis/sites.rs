//! Several sites of one deployment in one process, with ports for Redis Cluster clients.

use crate::support::Client;
use front::redis::{Options, RedisFront};
use model::{
    Answer, Body, Bytes, Command, GlobalCommand, KeyspaceSpec, NodeId, PlacementClient, Request,
    SiteId, SiteName, Slot, SlotSet, SourceStep,
};
use server::config::{Config, Ports};
use server::{Handle, Node};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Sites, with the global keyspace `cars` (`car:`).
pub(crate) struct Deployment {
    pub(crate) sites: Vec<Place>,
    keyspace: KeyspaceSpec,
    configure: Box<dyn Fn(&mut Config)>,
    runtime: Runtime,
    data: TempDir,
}

/// A site.
pub(crate) struct Place {
    front: Option<RedisFront>,
    node: Option<Node>,
    handle: Handle,
    /// Its nodes 2 and up, with their ports.
    more: Vec<(RedisFront, Node)>,
}

impl Deployment {
    /// Begins with one site and lets others join. `with_port`: whether each has a port for the
    /// cluster protocol.
    pub(crate) fn start(with_port: &[bool]) -> Deployment {
        let keyspace = KeyspaceSpec::linearizable_global("cars", "car:");
        Deployment::start_with(with_port, keyspace)
    }

    /// The same with another keyspace `cars`.
    pub(crate) fn start_with(with_port: &[bool], keyspace: KeyspaceSpec) -> Deployment {
        Deployment::start_configured(with_port, keyspace, |_| {})
    }

    /// The same with nodes that are configured otherwise.
    pub(crate) fn start_configured(
        with_port: &[bool],
        keyspace: KeyspaceSpec,
        configure: impl Fn(&mut Config) + 'static,
    ) -> Deployment {
        let configure = Box::new(configure);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let data = tempfile::tempdir().unwrap();
        let mut deployment = Deployment { sites: Vec::new(), keyspace, configure, runtime, data };
        for with_port in with_port {
            deployment.add(*with_port);
        }
        deployment.wait_until_known();
        deployment
    }

    fn add(&mut self, with_port: bool) {
        let join = self.sites.first().map(Place::peer);
        let config = self.config(self.sites.len() + 1, 1, join, with_port);
        let node = Node::start(&config).unwrap();
        let options = Options::of_cluster(&config);
        let front = options.map(|options| RedisFront::open(&node, options).unwrap());
        let handle = {
            let _inside = self.runtime.enter();
            node.handle()
        };
        // No site joins before there is a deployment.
        until(|| handle.status().deployment.is_some());
        self.sites.push(Place { front, node: Some(node), handle, more: Vec::new() });
    }

    /// Adds a node to a site and waits until it votes and all sites have its port.
    pub(crate) fn add_node(&mut self, site: usize) {
        let number = self.sites[site].more.len() as u64 + 2;
        let config = self.config(site + 1, number, Some(self.sites[site].peer()), true);
        let node = Node::start(&config).unwrap();
        let options = Options::of_cluster(&config).unwrap();
        let front = RedisFront::open(&node, options).unwrap();
        self.sites[site].more.push((front, node));
        until(|| self.sites[site].handle.status().members.voters.len() as u64 == number);
        self.wait_until_known();
    }

    /// Waits until no slots have moved for a while, so that sites exchange only their regular
    /// messages.
    pub(crate) fn wait_until_quiet(&self) {
        const QUIET: usize = 150;
        let mut quiet = 0;
        until(|| {
            let moves = |site: &Place| site.handle.status().moves.len();
            quiet = if self.sites.iter().map(moves).sum::<usize>() == 0 { quiet + 1 } else { 0 };
            quiet > QUIET
        });
    }

    /// Has another node of a site lead it.
    pub(crate) fn let_lead(&self, site: usize, node: u64) {
        let body = Body::TransferLeader { node: NodeId(node) };
        let handle = &self.sites[site].handle;
        until(|| {
            let request = Request::new(body.clone());
            let asked = self.runtime.block_on(handle.call(request));
            asked.is_ok() && handle.status().leader == Some(NodeId(node))
        });
    }

    /// Stops a node of a site, not its first; returns the leader after that.
    pub(crate) fn stop(&mut self, site: usize, node: usize) -> usize {
        let (front, stopped) = self.sites[site].more.remove(node - 2);
        drop(front);
        stopped.stop();
        let status = || self.sites[site].handle.status();
        until(|| status().leader.is_some_and(|leader| leader != NodeId(node as u64)));
        status().leader.unwrap().0 as usize
    }

    /// Where clients find another node of a site.
    pub(crate) fn address_of(&self, site: usize, node: usize) -> SocketAddr {
        match node {
            1 => self.address(site),
            node => self.sites[site].more[node - 2].0.address(),
        }
    }

    fn config(&self, site: usize, node: u64, join: Option<String>, with_port: bool) -> Config {
        let ports = Ports {
            peer: SocketAddr::from(([127, 0, 0, 1], 0)),
            redis: None,
            redis_cluster: with_port.then(field::ports::free),
            ..Ports::default()
        };
        let keyspaces = vec![self.keyspace.clone()];
        let mut config = Config {
            site: SiteName::new(format!("s{site}")).unwrap(),
            node: NodeId(node),
            data: self.data.path().join(format!("{site}-{node}")),
            keyspaces: if join.is_none() { keyspaces } else { Vec::new() },
            join: join.into_iter().collect(),
            ports,
            ..Config::default()
        };
        (self.configure)(&mut config);
        config
    }

    /// Waits until every site has all sites with their addresses, and the keyspace.
    fn wait_until_known(&self) {
        let more = self.sites.iter().map(|site| site.more.len());
        let first = self.sites.iter().filter(|site| site.front.is_some()).count();
        let wanted = first + more.sum::<usize>();
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

    /// A port for clients of the plain protocol.
    pub(crate) fn open_plain(&self, site: usize) -> RedisFront {
        let ports = Ports { redis: Some(field::ports::free()), ..Ports::default() };
        let config = Config { ports, ..self.config(site + 1, 1, None, false) };
        let options = Options::of(&config).unwrap();
        RedisFront::open(self.sites[site].node.as_ref().unwrap(), options).unwrap()
    }

    /// How a site's first node is.
    pub(crate) fn status(&self, site: usize) -> std::sync::Arc<server::Status> {
        self.sites[site].handle.status()
    }

    /// What Prometheus reads there.
    pub(crate) fn metrics(&self, site: usize) -> String {
        let handle = &self.sites[site].handle;
        handle.metrics().render(handle)
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
        // A source that has not received the end of its move keeps requests until then, and
        // forwards them.
        let keeps = |site| site != to && self.owner(site, slot) == self.own_id(site);
        until(|| !(0..self.sites.len()).any(keeps));
    }

    /// The owner of a slot in a site's map.
    pub(crate) fn owner(&self, site: usize, slot: Slot) -> Option<SiteId> {
        let map = self.runtime.block_on(self.sites[site].handle.slot_map());
        map.into_iter().find(|(slots, _)| slots.contains(slot)).map(|(_, owner)| owner)
    }

    /// The clients of a key of `cars`, asked at a site.
    pub(crate) fn key_clients(&self, site: usize, key: &str) -> Vec<PlacementClient> {
        let handle = &self.sites[site].handle;
        let keyspace = handle.catalog().by_name("cars").unwrap().id;
        let key = Bytes::copy_from_slice(key.as_bytes());
        let request = Request::new(Body::ExplainPlacement { keyspace, key });
        match self.runtime.block_on(handle.call(request)) {
            Ok(Answer::Placement(explained)) => explained.key_clients,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn own_id(&self, site: usize) -> Option<SiteId> {
        self.sites[site].handle.status().deployment.as_ref().map(|member| member.own)
    }

    /// Begins to move a slot on purpose. It does not while it moves already.
    fn begins(&self, from: usize, to: usize, slot: Slot) -> bool {
        let status = self.sites[to].handle.status();
        let to = status.deployment.as_ref().unwrap().own;
        let step = SourceStep::Begin { slots: SlotSet::from_iter([slot]), to, pinned: true };
        let begin = Request::write(Command::Global(GlobalCommand::Source { number: 0, step }));
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
            for (front, node) in site.more.drain(..) {
                drop(front);
                node.stop();
            }
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
