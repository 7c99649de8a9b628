//! The groups of the experiment as a deployment in this process: real nodes, with the distances of
//! a world.
//!
//! Every node has a relay before its peer port, which keeps the nodes of its own site near and
//! those of other sites far, and another before its Redis port for the clients. A link that is
//! shorter than the resolution of the relay's timer is left out: the socket itself is as near as
//! that.

use crate::demo::distance::link_to;
use front::redis::{self, RedisFront};
use lab::link::Link;
use lab::relay::Relay;
use lab::world::World;
use model::{NodeId, limits};
use server::config::{ClusterView, Config, MemoryConfig, Ports};
use server::{Handle, Node};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// How long the groups may take to become a deployment in which no slot moves.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// How often to look whether they have.
const READY_POLL: Duration = Duration::from_millis(50);
/// How long no slot must have moved.
const QUIET: Duration = Duration::from_secs(2);
/// The relay's timer rounds up to whole milliseconds.
const SHORTEST_MS: f64 = 0.5;
/// Many nodes share this machine.
const MEMTABLE_BYTES: u64 = 4 << 20;

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// All groups, running.
pub(super) struct Sites {
    nodes: Vec<Running>,
    _data: tempfile::TempDir,
}

/// One node.
struct Running {
    site: usize,
    redis: SocketAddr,
    handle: Handle,
    up: Up,
}

/// What a node needs while it is up.
struct Up {
    node: Node,
    front: RedisFront,
    _peers: Option<Relay>,
    _clients: Option<Relay>,
}

impl Sites {
    /// Starts all nodes of all sites, one after the other, and waits until the slots are where they
    /// belong.
    pub(super) async fn start(world: &World) -> Result<Sites, Failure> {
        let data = tempfile::Builder::new().prefix("portolan-paper-").tempdir()?;
        let mut sites = Sites { nodes: Vec::new(), _data: data };
        let mut first = None;
        for site in 0..world.sites.len() {
            let mut join: Option<String> = first.clone();
            for number in 1..=world.sites[site].nodes as u64 {
                let (running, peer) = sites.start_node(world, site, number, join.clone()).await?;
                sites.nodes.push(running);
                if number == 1 {
                    join = Some(peer.clone());
                    first.get_or_insert(peer);
                }
            }
            let nodes = world.sites[site].nodes;
            sites
                .wait_until("a site has not gathered its nodes", |sites| {
                    sites.of(site).all(|node| {
                        let status = node.handle.status();
                        status.deployment.is_some() && status.members.voters.len() == nodes
                    })
                })
                .await?;
        }
        let mut moved = Instant::now();
        sites
            .wait_until("slots have not come to rest", |sites| {
                let all = world.sites.len();
                let is_known = sites.nodes.iter().all(|node| {
                    let status = node.handle.status();
                    let known = status.deployment.as_ref();
                    let keyspaces = &world.keyspaces;
                    known.is_some_and(|member| member.registry.sites.len() == all)
                        && keyspaces
                            .iter()
                            .all(|one| node.handle.catalog().by_name(&one.name).is_some())
                });
                let moves = sites.nodes.iter().any(|node| !node.handle.status().moves.is_empty());
                if moves || !is_known {
                    moved = Instant::now();
                }
                moved.elapsed() > QUIET
            })
            .await?;
        Ok(sites)
    }

    /// Where the clients of a site find its nodes.
    pub(super) fn addresses(&self, site: usize) -> Vec<SocketAddr> {
        self.of(site).map(|node| node.redis).collect()
    }

    /// Stops them all.
    pub(super) async fn stop(self) {
        let stopping = spawn_blocking(move || {
            for running in self.nodes {
                let Up { node, front, .. } = running.up;
                drop(front);
                node.stop();
            }
        });
        if let Err(panic) = stopping.await {
            tracing::error!("a node did not stop: {panic}");
        }
    }

    fn of(&self, site: usize) -> impl Iterator<Item = &Running> {
        self.nodes.iter().filter(move |node| node.site == site)
    }

    async fn wait_until(
        &self,
        otherwise: &str,
        mut holds: impl FnMut(&Sites) -> bool,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + READY_TIMEOUT;
        while !holds(self) {
            if Instant::now() > deadline {
                return Err(format!("{otherwise} in {READY_TIMEOUT:?}").into());
            }
            sleep(READY_POLL).await;
        }
        Ok(())
    }

    /// A node, and where others find it.
    async fn start_node(
        &self,
        world: &World,
        site: usize,
        number: u64,
        join: Option<String>,
    ) -> Result<(Running, String), Failure> {
        let place = &world.sites[site];
        let seed = (site as u64) << 8 | number;
        let other = (site + 1) % world.sites.len();
        let (near, far) = (world.node_link(site), world.site_link(site, other));
        let peers = match is_long(&near) || is_long(&far) {
            true => {
                Some(Relay::open_by_greeting(link_to(Arc::new(world.clone()), site), seed).await?)
            }
            false => None,
        };
        let client = world.client_link(place.at, site);
        let clients = match is_long(&client) {
            true => Some(Relay::open(client, seed).await?),
            false => None,
        };
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let advertise = peers.as_ref().map(|relay| relay.addr().to_string());
        let ports = Ports {
            redis: None,
            grpc: None,
            peer: free,
            admin: None,
            advertise,
            ..Ports::default()
        };
        let config = Config {
            site: place.name.clone(),
            node: NodeId(number),
            data: self._data.path().join(format!("{site}-{number}")),
            keyspaces: if join.is_none() { world.keyspaces.clone() } else { Vec::new() },
            join: join.into_iter().collect(),
            ports,
            memory: MemoryConfig { memtable_bytes: MEMTABLE_BYTES, ..MemoryConfig::default() },
            ..Config::default()
        };
        // Joining waits for the site, and waiting must not hold up a thread of this runtime.
        let started = spawn_blocking(move || -> Result<(Running, String), Failure> {
            let node = Node::start(&config)?;
            let options = redis::Options {
                address: free,
                threads: 1,
                connections_max: limits::CONNECTIONS_MAX,
                tls: None,
                cluster: None,
                cluster_view: ClusterView::default(),
            };
            let front = RedisFront::open(&node, options)?;
            let peer = match &peers {
                Some(relay) => {
                    relay.set_target(node.peer_address());
                    relay.addr()
                }
                None => node.peer_address(),
            };
            let redis = match &clients {
                Some(relay) => {
                    relay.set_target(front.address());
                    relay.addr()
                }
                None => front.address(),
            };
            let handle = node.handle();
            let up = Up { node, front, _peers: peers, _clients: clients };
            Ok((Running { site, redis, handle, up }, peer.to_string()))
        });
        started.await?
    }
}

fn is_long(link: &Link) -> bool {
    link.latency.mean_ms() >= SHORTEST_MS
}
