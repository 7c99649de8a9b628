//! The owners of slots and their addresses for clients, as this node has learned them.
//!
//! Making a map takes a request to the site's thread, which visits every slot; so a map is cached
//! briefly and shared by all connections. An outdated map is harmless: a client that uses it is
//! redirected by the node that it contacts.

use super::ClusterPort;
use crate::redis::refused::bare;
use model::{NodeId, Registry, SiteId, Slot, SlotSet};
use server::{Handle, MapView};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// The maximum age of a map for clients.
const KEPT: Duration = Duration::from_millis(50);

/// The map of one moment. It always has this site's shard, and this node in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Map {
    /// The registry's version: it grows with every change of sites and nodes.
    pub(super) epoch: u64,
    /// The sites that have nodes with an address for clients.
    pub(super) shards: Vec<Shard>,
    /// The indexes of this site and of this node in it.
    here: (usize, usize),
}

/// A site.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shard {
    /// 40 digits.
    pub(super) id: String,
    /// A number that no other site has or gets: its id.
    pub(super) epoch: u64,
    /// The slots to show for it; this site's include those of sites without an address for clients.
    pub(super) slots: SlotSet,
    /// Its nodes, the preferred one first.
    pub(super) nodes: Vec<Member>,
    /// Whether it answers.
    pub(super) health: Health,
}

/// Whether a site answers this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It does.
    Online,
    /// Not at the moment.
    Silent,
    /// It cannot be reached, or others have taken over from it.
    Failed,
}

/// A node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// 40 digits.
    pub(super) id: String,
    pub(super) address: Address,
    /// Its peer port, shown in place of Redis's cluster bus.
    pub(super) peer_port: u16,
}

/// The address for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name or an IP address, an IPv6 one without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Reads `host:port`.
    pub(super) fn of(text: &str) -> Address {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
        Address { host: bare(host).to_owned(), port: port.parse().unwrap_or_default() }
    }
}

/// The input of a map.
struct Seen<'a> {
    /// This site's id, and the registry; `None`: there is no deployment.
    deployment: Option<(SiteId, &'a Registry)>,
    /// This node, and its address for clients.
    node: NodeId,
    advertised: &'a Address,
    view: &'a MapView,
    /// Whether each slot is shown at its owner; else all are shown here.
    names_owners: bool,
}

impl Map {
    fn of(seen: &Seen<'_>) -> Map {
        let (own, registry) = seen.deployment.unzip();
        let own = own.unwrap_or(SiteId(0));
        let mut sites: BTreeMap<SiteId, BTreeMap<NodeId, (Address, u16)>> = BTreeMap::new();
        for site in registry.iter().flat_map(|registry| &registry.sites) {
            for node in &site.nodes {
                // This node is listed even if the registry does not have its port yet.
                let is_this = site.id == own && node.node == seen.node;
                if node.cluster.is_empty() && !is_this {
                    continue;
                }
                let at = (Address::of(&node.cluster), Address::of(&node.peer).port);
                sites.entry(site.id).or_default().insert(node.node, at);
            }
        }
        let this = sites.entry(own).or_default().entry(seen.node);
        this.or_insert_with(|| (seen.advertised.clone(), 0)).0 = seen.advertised.clone();

        let mut slots: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
        for owned in &seen.view.owners {
            let is_named = seen.names_owners && sites.contains_key(&owned.site);
            let shown = if is_named { owned.site } else { own };
            slots.entry(shown).or_default().extend(owned.slots.iter());
        }

        let deployment = registry.map_or(0, |registry| registry.deployment.0);
        let (mut shards, mut here) = (Vec::new(), (0, 0));
        for (site, nodes) in sites {
            let leader = seen.view.leaders.get(&site);
            let mut nodes: Vec<_> = nodes.into_iter().collect();
            nodes.sort_by_key(|(node, _)| (Some(node) != leader, *node));
            if site == own {
                let this = nodes.iter().position(|(node, _)| *node == seen.node);
                here = (shards.len(), this.expect("it is there"));
            }
            let node = |(node, (address, peer_port)): (NodeId, (Address, u16))| Member {
                id: id(deployment, site, node),
                address,
                peer_port,
            };
            let is_lost = registry.is_some_and(|registry| registry.is_lost(site));
            let is_silent = seen.view.silent.contains(&site);
            let health = match seen.view.lost.contains(&site) || is_lost && is_silent {
                _ if site == own => Health::Online,
                true => Health::Failed,
                false if is_silent => Health::Silent,
                false => Health::Online,
            };
            shards.push(Shard {
                health,
                id: id(deployment, site, NodeId(0)),
                epoch: u64::from(site.0),
                slots: slots.remove(&site).unwrap_or_default().into_iter().collect(),
                nodes: nodes.into_iter().map(node).collect(),
            });
        }
        Map { epoch: registry.map_or(0, |registry| registry.changes), shards, here }
    }

    /// This node's site.
    pub(super) fn own(&self) -> &Shard {
        &self.shards[self.here.0]
    }

    /// This node.
    pub(super) fn myself(&self) -> &Member {
        &self.own().nodes[self.here.1]
    }

    /// The node of this id: its site, and its place there.
    pub(super) fn find(&self, id: &[u8]) -> Option<(&Shard, usize)> {
        self.shards.iter().find_map(|shard| {
            let place = shard.nodes.iter().position(|node| node.id.as_bytes() == id)?;
            Some((shard, place))
        })
    }
}

/// The 40 digits of a node's Redis id. A site's id is that of its node 0, which never exists.
fn id(deployment: u64, site: SiteId, node: NodeId) -> String {
    format!("{deployment:016x}{:08x}{:016x}", site.0, node.0)
}

/// The latest map.
#[derive(Default)]
pub(super) struct Maps(Mutex<Option<(Duration, Arc<Map>)>>);

impl Maps {
    /// The present map, or one from the cache.
    pub(super) async fn now(&self, handle: &Handle, port: &ClusterPort) -> Arc<Map> {
        // Concurrent callers wait here, and share the one answer.
        let mut kept = self.0.lock().await;
        let now = handle.clock().monotonic();
        if let Some((made, map)) = &*kept
            && *made + KEPT > now
        {
            return map.clone();
        }
        let view = handle.map_view().await;
        let status = handle.status();
        let deployment = status.deployment.as_ref();
        let map = Arc::new(Map::of(&Seen {
            deployment: deployment.map(|member| (member.own, &*member.registry)),
            node: handle.node(),
            advertised: &port.advertised,
            view: &view,
            names_owners: port.names_owners(handle),
        }));
        *kept = Some((now, map.clone()));
        map
    }
}

/// A deployment for tests of replies about it.
#[cfg(test)]
pub(super) mod made {
    use super::*;
    use model::{DeploymentId, NodeEntry, SiteEntry, SiteName};
    use server::{Owned, Standing};

    fn site(id: u32, nodes: &[(u64, &str)]) -> SiteEntry {
        let node = |(node, cluster): &(u64, &str)| NodeEntry {
            node: NodeId(*node),
            peer: format!("10.0.0.{id}:738{node}"),
            cluster: (*cluster).to_owned(),
        };
        SiteEntry {
            id: SiteId(id),
            name: SiteName::new(format!("site-{id}")).unwrap(),
            incarnation: 0,
            capacity_percent: 100,
            leaving: false,
            failure_domain: None,
            region: None,
            borrowed_bytes_max: None,
            nodes: nodes.iter().map(node).collect(),
        }
    }

    /// The view of node 2 of site 1: that site has three nodes, of which the third leads; site 2
    /// has no address, site 3 a node at an IPv6 address.
    pub(in crate::redis::cluster) fn map() -> Map {
        map_with(MapView::default())
    }

    /// The same, while sites do not answer.
    pub(in crate::redis::cluster) fn map_without(silent: &[u32], lost: &[u32]) -> Map {
        let sites = |sites: &[u32]| sites.iter().map(|site| SiteId(*site)).collect();
        map_with(MapView { silent: sites(silent), lost: sites(lost), ..MapView::default() })
    }

    /// The same, where each site shows itself.
    pub(in crate::redis::cluster) fn map_of_site() -> Map {
        map_as(MapView::default(), false)
    }

    fn map_with(view: MapView) -> Map {
        map_as(view, true)
    }

    fn map_as(view: MapView, names_owners: bool) -> Map {
        let first = site(1, &[(1, "10.0.0.1:7401"), (2, ""), (3, "10.0.0.1:7403")]);
        let registry = Registry {
            sites: vec![first, site(2, &[(1, "")]), site(3, &[(1, "[::1]:7404")])],
            site_next: 4,
            ..Registry::empty(DeploymentId(0xfeed), 9)
        };
        let set = |ranges: &[(u16, u16)]| SlotSet::from_ranges(ranges.to_vec()).unwrap();
        Map::of(&Seen {
            deployment: Some((SiteId(1), &registry)),
            node: NodeId(2),
            advertised: &Address::of("10.0.0.1:7402"),
            view: &MapView {
                owners: vec![
                    owned(set(&[(0, 99), (200, 8191)]), 1),
                    owned(set(&[(100, 150)]), 2),
                    owned(set(&[(151, 199), (8192, 16383)]), 3),
                ],
                leaders: BTreeMap::from([(SiteId(1), NodeId(3))]),
                ..view
            },
            names_owners,
        })
    }

    fn owned(slots: SlotSet, site: u32) -> Owned {
        Owned { slots, site: SiteId(site), standing: Standing::Hint { age: None } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_comes_first_and_whoever_asks_is_there() {
        let map = made::map();
        let ports: Vec<u16> = map.own().nodes.iter().map(|node| node.address.port).collect();
        assert_eq!(ports, [7403, 7401, 7402]);
        assert_eq!(map.myself().address.port, 7402, "the registry does not have it yet");
        assert_eq!(map.myself().id, "000000000000feed000000010000000000000002");
        let (shard, place) = map.find(map.myself().id.as_bytes()).unwrap();
        assert_eq!((shard.epoch, place), (1, 2));
        assert!(map.find(b"000000000000feed000000010000000000000004").is_none());
    }

    #[test]
    fn what_clients_cannot_go_to_is_shown_as_held_here() {
        let map = made::map();
        assert_eq!(map.shards.len(), 2);
        assert_eq!(map.own().slots.ranges(), [(0, 150), (200, 8191)]);
        assert_eq!(map.shards[1].slots.ranges(), [(151, 199), (8192, 16383)]);
        let shown: usize = map.shards.iter().map(|shard| shard.slots.len()).sum();
        assert_eq!(shown, usize::from(Slot::COUNT));
    }

    #[test]
    fn a_site_can_show_itself_for_all_slots() {
        let map = made::map_of_site();
        assert_eq!(map.own().slots.ranges(), [(0, 16383)]);
        assert_eq!((map.shards.len(), map.shards[1].slots.len()), (2, 0), "others are listed");
    }

    #[test]
    fn a_site_without_a_deployment_has_itself() {
        let advertised = Address::of("localhost:1");
        let map = Map::of(&Seen {
            deployment: None,
            node: NodeId(1),
            advertised: &advertised,
            view: &MapView::default(),
            names_owners: true,
        });
        assert_eq!(map.myself().address, advertised);
        assert!(map.own().slots.is_empty());
    }
}
