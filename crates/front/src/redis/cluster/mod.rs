//! The Redis Cluster protocol, on a port of its own: clients connect to the site that owns a key.
//!
//! To such a client a site is a shard: its leader is the master, its other nodes are replicas,
//! which answer too, by forwarding to the leader. Only keyspaces of scope global are served here;
//! their 16,384 slots move between sites, and a request to the wrong site is redirected (MOVED).
//! The site itself decides that, with the routing of every request ([`model::Request::redirect`]);
//! this module publishes the map ([`map`]), and checks what the site cannot: which keys a command
//! may combine, and which this port serves ([`place`]).
//!
//! A client caches where a slot is, and never where a group of its keys was lent to, so each
//! request for such a group would go to the slot's owner first. So a site can show itself for all
//! slots and send requests where their keys are, in one hop ([`ClusterView`]); it does that by
//! itself as soon as a keyspace is adaptive.
//!
//! A site without nodes that have such a port is in no map. Its slots are shown as this site's, and
//! requests for them are not redirected but forwarded, as on the other port.
//!
//! The replies were compared with those of Redis 7.0, byte for byte. Left out: whatever changes a
//! cluster (MEET, SETSLOT, FAILOVER …), which `portolan site` and `portolan slot` do; failed nodes
//! of sites that answer, as a site has no record of which nodes of another site are down (a client
//! finds out); epochs of single slots.

mod info;
pub(super) mod map;
mod nodes;
pub(super) mod place;
mod slots;

use super::args::{integer, is, text};
use super::connection::Connection;
use super::refused::Refused;
use map::{Address, Map, Maps};
use model::{Slot, limits};
use server::Handle;
use server::config::ClusterView;
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::Frame;

/// What the port of the Redis Cluster protocol has in addition.
pub(super) struct ClusterPort {
    /// Its address for clients.
    advertised: Address,
    /// Whether it uses TLS; then the ports of the other nodes do, too.
    is_tls: bool,
    view: ClusterView,
    maps: Maps,
}

impl ClusterPort {
    /// `advertised`: `host:port`.
    pub(super) fn new(advertised: &str, is_tls: bool, view: ClusterView) -> ClusterPort {
        ClusterPort { advertised: Address::of(advertised), is_tls, view, maps: Maps::default() }
    }

    /// Whether clients are sent to the owners of slots.
    pub(super) fn names_owners(&self, handle: &Handle) -> bool {
        match self.view {
            ClusterView::Owners => true,
            ClusterView::Site => false,
            ClusterView::Auto => !handle.catalog().all().iter().any(|one| one.spec.is_adaptive()),
        }
    }
}

/// The action of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Map(About),
    KeySlot,
    CountKeys,
    GetKeys,
    Links,
    Help,
    /// Changes nodes: not available here.
    Sites,
    /// Changes the owners of slots: not available here.
    Handover,
}

/// The part of the map to reply with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Slots,
    Shards,
    Nodes,
    Replicas,
    Info,
    MyId,
    MyShardId,
    FailureReports,
}

/// Each subcommand: its number of arguments, CLUSTER and itself included (negative: at least so
/// many), and its text in HELP.
#[rustfmt::skip]
const SUBCOMMANDS: [(&str, i8, Ask, &str); 32] = [
    ("countkeysinslot", 3, Ask::CountKeys, "COUNTKEYSINSLOT <slot>\nReturn the number of keys in <slot> at this site."),
    ("count-failure-reports", 3, Ask::Map(About::FailureReports), "COUNT-FAILURE-REPORTS <node-id>\nReturn 0: nodes do not report each other here."),
    ("getkeysinslot", 4, Ask::GetKeys, "GETKEYSINSLOT <slot> <count>\nReturn key names stored by this site in a slot."),
    ("info", 2, Ask::Map(About::Info), "INFO\nReturn information about the deployment."),
    ("keyslot", 3, Ask::KeySlot, "KEYSLOT <key>\nReturn the hash slot for <key>."),
    ("links", 2, Ask::Links, "LINKS\nReturn an empty list: there is no cluster bus."),
    ("myid", 2, Ask::Map(About::MyId), "MYID\nReturn the node id."),
    ("myshardid", 2, Ask::Map(About::MyShardId), "MYSHARDID\nReturn the id of this node's site."),
    ("nodes", 2, Ask::Map(About::Nodes), "NODES\nReturn the nodes of all sites. Output format:\n<id> <ip:port@peer-port> <flags> <master> <pings> <pongs> <epoch> <link> <slot> ..."),
    ("replicas", 3, Ask::Map(About::Replicas), "REPLICAS <node-id>\nReturn the other nodes of the site that <node-id> leads."),
    ("shards", 2, Ask::Map(About::Shards), "SHARDS\nReturn the sites, their slots and their nodes."),
    ("slots", 2, Ask::Map(About::Slots), "SLOTS\nReturn which site holds which slots, and its nodes."),
    ("help", 2, Ask::Help, "HELP\nPrint this help."),
    ("slaves", 3, Ask::Map(About::Replicas), ""),
    ("addslots", -3, Ask::Handover, ""),
    ("addslotsrange", -4, Ask::Handover, ""),
    ("delslots", -3, Ask::Handover, ""),
    ("delslotsrange", -4, Ask::Handover, ""),
    ("flushslots", 2, Ask::Handover, ""),
    ("setslot", -4, Ask::Handover, ""),
    ("migration", -3, Ask::Handover, ""),
    ("migrateslots", -3, Ask::Handover, ""),
    ("bumpepoch", 2, Ask::Sites, ""),
    ("failover", -2, Ask::Sites, ""),
    ("forget", 3, Ask::Sites, ""),
    ("meet", -4, Ask::Sites, ""),
    ("replicate", 3, Ask::Sites, ""),
    ("reset", -2, Ask::Sites, ""),
    ("saveconfig", 2, Ask::Sites, ""),
    ("set-config-epoch", 3, Ask::Sites, ""),
    ("addnode", -3, Ask::Sites, ""),
    ("delnode", -3, Ask::Sites, ""),
];

/// Parses the subcommand.
fn read(frame: &Frame) -> Result<Ask, Refused> {
    let found = SUBCOMMANDS.iter().find(|(name, ..)| is(frame.arg(1), name));
    let Some((name, arity, ask, _)) = found else {
        return Err(Refused::unknown_subcommand("cluster", frame));
    };
    let wanted = usize::from(arity.unsigned_abs());
    let fits = if *arity < 0 { frame.len() >= wanted } else { frame.len() == wanted };
    if fits { Ok(*ask) } else { Err(Refused::arity(&format!("cluster|{name}"))) }
}

/// Parses a slot number; `otherwise` is Redis's error for invalid ones.
fn slot(arg: &[u8], otherwise: Refused) -> Result<Slot, Refused> {
    let number = u16::try_from(integer(arg)?).ok();
    number.and_then(Slot::new).ok_or(otherwise)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Runs CLUSTER with its subcommand.
    pub(super) async fn cluster(&mut self, frame: &Frame) -> Result<(), Refused> {
        let ask = read(frame)?;
        let thread = self.thread.clone();
        let Some(port) = &thread.shared.cluster else { return Err(Refused::NO_CLUSTER) };
        match ask {
            Ask::KeySlot => {
                let slot = Slot::of_key(frame.arg(2));
                self.encoder().integer(i64::from(slot.number()));
            }
            Ask::CountKeys => {
                let slot = slot(frame.arg(2), Refused::because("ERR Invalid slot"))?;
                let (count, _) =
                    thread.handle.in_slot(slot, 0, |keyspace| self.session.may_read(keyspace));
                self.encoder().integer(count as i64);
            }
            Ask::GetKeys => {
                const INVALID: Refused = Refused::because("ERR Invalid slot or number of keys");
                let (slot, max) = (slot(frame.arg(2), INVALID)?, integer(frame.arg(3))?);
                let max = usize::try_from(max).map_err(|_| INVALID)?;
                let max = max.min(limits::SCAN_PAGE_ITEMS_MAX);
                let (_, keys) =
                    thread.handle.in_slot(slot, max, |keyspace| self.session.may_read(keyspace));
                let mut out = self.encoder();
                out.array(keys.len());
                keys.iter().for_each(|key| out.bulk(key));
            }
            Ask::Links => self.encoder().array(0),
            Ask::Help => {
                let lines = help();
                let mut out = self.encoder();
                out.array(lines.len());
                lines.iter().for_each(|line| out.simple(line));
            }
            Ask::Sites => {
                return Err(Refused::because(
                    "ERR sites and their nodes come and go by other means than CLUSTER: see \
                     `portolan site`, `portolan member` and `portolan serve --join`",
                ));
            }
            Ask::Handover => {
                return Err(Refused::because(
                    "ERR slots change hands by other means than CLUSTER: see `portolan slot move`",
                ));
            }
            Ask::Map(about) => {
                let map = port.maps.now(&thread.handle, port).await;
                self.write_about(about, frame, &map, port.is_tls)?;
            }
        }
        Ok(())
    }

    /// Replies with a part of the map.
    fn write_about(
        &mut self,
        about: About,
        frame: &Frame,
        map: &Map,
        is_tls: bool,
    ) -> Result<(), Refused> {
        let is_ready = self.thread.handle.is_ready();
        let mut out = self.encoder();
        match about {
            About::Slots => slots::write_slots(map, &mut out),
            About::Shards => slots::write_shards(map, is_tls, &mut out),
            About::Nodes => out.verbatim("txt", &nodes::all(map)),
            About::Info => out.verbatim("txt", &info::text(map, is_ready)),
            About::MyId => out.bulk(map.myself().id.as_bytes()),
            About::MyShardId => out.bulk(map.own().id.as_bytes()),
            About::Replicas => {
                let (shard, node) = map.find(frame.arg(2)).ok_or_else(|| unknown_node(frame))?;
                if node != 0 {
                    return Err(Refused::because("ERR The specified node is not a master"));
                }
                let lines = nodes::replicas(map, shard);
                out.array(lines.len());
                lines.iter().for_each(|line| out.bulk(line.as_bytes()));
            }
            About::FailureReports => {
                map.find(frame.arg(2)).ok_or_else(|| unknown_node(frame))?;
                out.integer(0);
            }
        }
        Ok(())
    }
}

fn unknown_node(frame: &Frame) -> Refused {
    Refused(format!("ERR Unknown node {}", text(frame.arg(2))).into())
}

fn help() -> Vec<String> {
    let mut lines =
        vec!["CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:".to_owned()];
    for (.., text) in SUBCOMMANDS.iter().filter(|(.., text)| !text.is_empty()) {
        for (nth, line) in text.lines().enumerate() {
            let indent = if nth == 0 { "" } else { "    " };
            lines.push(format!("{indent}{line}"));
        }
    }
    lines
}
