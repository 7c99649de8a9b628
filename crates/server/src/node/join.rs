//! How a node with an empty data directory becomes a member: of a new site, of an existing one, or,
//! as the first node of its site, of a deployment.

use super::StartError;
use super::files::Files;
use super::start::PeerPort;
use crate::config::Config;
use crate::engine::Opened;
use crate::identity::Identity;
use crate::links::enter::{self, Found};
use crate::links::join;
use crate::peers;
use model::{NodeEntry, SiteEntry, SiteId};
use protocol::replica::recovery;
use protocol::site::machine::Modes;
use wire::peer::Member;

/// Where a node begins.
enum Begin {
    /// As the first node of its site.
    Site,
    /// In a site that has nodes already, at one of these peer addresses.
    At(Vec<String>),
}

/// Makes the node a member, and records it. Waits until a site that has nodes already has added it.
pub(super) fn become_member(
    config: &Config,
    own: &mut Identity,
    engine: &mut Opened,
    peers: &PeerPort,
    files: &mut Files,
) -> Result<(), StartError> {
    let begin = look_around(config, own, peers)?;
    let member = Member {
        node: config.node.0,
        address: peers.advertised.clone(),
        incarnation: own.incarnation,
        witness: config.witness,
        since: 0,
    };
    let members = match (engine, begin) {
        (Opened::Etcd(kept, _), Begin::Site) if own.let_in => return kept.was_let_in(),
        (Opened::Etcd(..), Begin::Site) => return Ok(()),
        (Opened::Etcd(..), Begin::At(_)) => {
            return Err(StartError::Join(format!(
                "there is a site {} already, and its keys are not below this etcd prefix; start \
                 this one with the etcd settings of that one, or with another --site",
                config.site
            )));
        }
        (Opened::Embedded, Begin::Site) => {
            let Files { writer, snapshots, state, .. } = files;
            recovery::begin_site::<_, Modes>(member.clone(), writer, snapshots, state)?;
            recovery::first_members(member)
        }
        (Opened::Embedded, Begin::At(addresses)) => {
            let joining = join::join(&peers.links, &addresses, &member);
            peers.runtime.block_on(joining).map_err(StartError::Join)?
        }
    };
    own.became_member(&config.data, &members)?;
    Ok(())
}

/// Asks the addresses of `--join` for this node's site; if none has it, it joins the deployment.
fn look_around(config: &Config, own: &mut Identity, peers: &PeerPort) -> Result<Begin, StartError> {
    if config.join.is_empty() {
        return match peers::join_token(config)? {
            Some(_) => Err(StartError::NowhereToJoin),
            None => Ok(Begin::Site),
        };
    }
    tracing::info!("requesting to join at {}", config.join.join(", "));
    let (links, runtime) = (&peers.links, &peers.runtime);
    let token = peers::join_token(config)?.filter(|_| !links.auth().is_enrolled(&config.peers));
    if let Some(token) = token {
        let enrolling = links.enrol(&config.join, &token, &config.data);
        runtime.block_on(enrolling).map_err(StartError::Join)?;
    }
    let site = own_entry(config, own, &peers.advertised);
    let looking = enter::look(links, &config.join, &site);
    match runtime.block_on(looking).map_err(StartError::Join)? {
        Found::LetIn(id, _) => {
            tracing::info!("joined a deployment as site {} ({id})", config.site);
            own.let_in = true;
            Ok(Begin::Site)
        }
        Found::OwnSite(mut addresses) => {
            addresses.extend(config.join.iter().cloned());
            Ok(Begin::At(addresses))
        }
    }
}

/// This site's entry in the registry.
pub(super) fn own_entry(config: &Config, own: &Identity, peer_address: &str) -> SiteEntry {
    let node = NodeEntry {
        node: config.node,
        peer: peer_address.to_owned(),
        cluster: cluster_address(config),
    };
    SiteEntry {
        id: SiteId(0),
        name: config.site.clone(),
        incarnation: own.incarnation,
        capacity_percent: config.capacity_percent,
        leaving: false,
        failure_domain: SiteEntry::domain(config.failure_domain.as_ref(), None),
        region: SiteEntry::stated_region(config.region.as_ref()),
        borrowed_bytes_max: SiteEntry::limit(config.placement.borrowed_bytes_max, None),
        nodes: vec![node],
    }
}

/// The address for clients of the Redis Cluster port; empty: none.
pub(super) fn cluster_address(config: &Config) -> String {
    let advertised = config.ports.advertise_redis_cluster.clone();
    let bound = || config.ports.redis_cluster.map(|address| address.to_string());
    advertised.or_else(bound).unwrap_or_default()
}
