//! What one server reports of the cluster: its answer to `CLUSTER NODES`.
//!
//! Open slots are in the server's own line only (`[93->-ID]` for a slot on its way out, `[93-<-ID]`
//! for one on its way in), so a picture of the cluster needs the view of each server.

use model::{Slot, SlotRun, SlotSet};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The name that a server gives itself: 40 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(String);

impl NodeId {
    /// All of it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeId {
    fn from(text: &str) -> NodeId {
        NodeId(text.to_owned())
    }
}

impl fmt::Display for NodeId {
    /// The first eight characters, as people quote them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get(..8).unwrap_or(&self.0))
    }
}

/// Where a server listens for clients.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Address {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Address, Malformed> {
        let wrong = || Malformed(format!("{text:?} is no address: HOST:PORT"));
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        Ok(Address { host: host.to_owned(), port: port.parse().map_err(|_| wrong())? })
    }
}

/// A server as another one (or itself) sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where clients reach it: by its IP address, then by the hostname that it announces. Empty:
    /// the server that reports has neither.
    pub addresses: Vec<Address>,
    /// Its master, if it is a replica.
    pub replica_of: Option<NodeId>,
    /// It does not answer the server that reports, or most servers.
    pub is_failing: bool,
    /// It is still being introduced: its name is a placeholder.
    pub is_joining: bool,
    /// Of its last claim of slots: of two claims of a slot, servers take the one of the higher
    /// epoch.
    pub epoch: u64,
    /// The slots that it owns.
    pub slots: SlotSet,
}

impl Peer {
    /// Where servers reach it: by its IP address if it has one.
    pub fn address(&self) -> Option<&Address> {
        self.addresses.first()
    }
}

/// What a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The server itself.
    pub me: NodeId,
    /// All servers, itself too.
    pub peers: BTreeMap<NodeId, Peer>,
    /// Its slots that are marked as on their way to another server.
    pub migrating: BTreeMap<Slot, NodeId>,
    /// Slots that are marked as on their way to it, and from which server.
    pub importing: BTreeMap<Slot, NodeId>,
}

/// An answer that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    pub(crate) fn new(text: &str) -> Malformed {
        Malformed(text.to_owned())
    }
}

impl View {
    /// Reads an answer to `CLUSTER NODES`.
    ///
    /// # Errors
    /// A line that is not understood, or no line of the server itself.
    pub fn parse(text: &str) -> Result<View, Malformed> {
        let mut view = View {
            me: NodeId(String::new()),
            peers: BTreeMap::new(),
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            view.take(line).ok_or_else(|| {
                Malformed(format!("a line of CLUSTER NODES is not understood: {line}"))
            })?;
        }
        match view.me.0.is_empty() {
            true => Err(Malformed("CLUSTER NODES does not name the server asked".to_owned())),
            false => Ok(view),
        }
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, address, flags, master, _ping, _pong, epoch, _link, slots @ ..] = &words[..]
        else {
            return None;
        };
        let id = NodeId::from(*id);
        let has = |flag: &str| flags.split(',').any(|one| one == flag);
        let mut peer = Peer {
            addresses: client_addresses(address),
            replica_of: (*master != "-").then(|| NodeId::from(*master)),
            is_failing: has("fail") || has("fail?"),
            is_joining: has("handshake"),
            epoch: epoch.parse().ok()?,
            slots: SlotSet::default(),
        };
        for word in slots {
            match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
                None => peer.slots.insert_run(run(word)?),
                Some(open) => {
                    let (slot, other) = open.split_once('-')?;
                    let slot = Slot::new(slot.parse().ok()?)?;
                    match other.split_at_checked(2)? {
                        (">-", to) => self.migrating.insert(slot, NodeId::from(to)),
                        ("<-", from) => self.importing.insert(slot, NodeId::from(from)),
                        _ => return None,
                    };
                }
            }
        }
        if has("myself") {
            self.me = id.clone();
        }
        self.peers.insert(id, peer);
        Some(())
    }

    /// The owner of a slot in this view.
    pub fn owner(&self, slot: Slot) -> Option<&NodeId> {
        self.peers.iter().find(|(_, peer)| peer.slots.contains(slot)).map(|(id, _)| id)
    }

    /// Whether the server reports itself as a master.
    pub fn is_master(&self) -> bool {
        self.peers.get(&self.me).is_some_and(|me| me.replica_of.is_none())
    }
}

fn run(word: &str) -> Option<SlotRun> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let slot = |text: &str| Slot::new(text.parse().ok()?);
    let run = SlotRun { first: slot(first)?, last: slot(last)? };
    (run.first <= run.last).then_some(run)
}

/// Of `IP:PORT@BUS,HOSTNAME,…`, in which either host may be absent.
fn client_addresses(word: &str) -> Vec<Address> {
    let (address, more) = word.split_once(',').unwrap_or((word, ""));
    let address = address.split('@').next().and_then(|address| address.parse::<Address>().ok());
    let Some(Address { host: ip, port: port @ 1.. }) = address else { return Vec::new() };
    let name = more.split(',').next().filter(|name| !name.contains('='));
    let hosts = [Some(&*ip), name].into_iter().flatten().filter(|host| !host.is_empty());
    hosts.map(|host| Address { host: host.to_owned(), port }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
07c37d 127.0.0.1:7404@17404,host-4 slave e7d1ee 0 1426238317239 4 connected
67ed2d 127.0.0.1:7402@17402 master - 0 1426238316232 2 connected 5461-10921 10923
292f8b 127.0.0.1:7403@17403,,shard-id=69bc master,fail - 0 0 3 disconnected 10924-16383
824fe1 :0@0 master,noaddr - 0 0 0 disconnected
aaaaaa ::1:7405@17405 handshake - 0 0 0 connected
e7d1ee 127.0.0.1:7401@17401 myself,master - 0 0 1 connected 0-5460 [93->-67ed2d] [77-<-292f8b] 10922
";

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    #[test]
    fn an_answer_is_read() {
        let view = View::parse(TEXT).unwrap();
        assert_eq!(view.me, "e7d1ee".into());
        assert!(view.is_master());
        let peer = |id: &str| &view.peers[&NodeId::from(id)];
        assert_eq!(peer("07c37d").replica_of, Some("e7d1ee".into()));
        assert_eq!(peer("67ed2d").slots.to_string(), "5461-10921,10923");
        assert_eq!((peer("67ed2d").epoch, peer("e7d1ee").epoch), (2, 1));
        assert!(peer("292f8b").is_failing && !peer("67ed2d").is_failing);
        assert_eq!(peer("824fe1").addresses, []);
        assert!(peer("aaaaaa").is_joining);
        let address = peer("aaaaaa").address().unwrap();
        assert_eq!((&*address.host, address.to_string()), ("::1", "[::1]:7405".to_owned()));
        assert_eq!(view.migrating, [(slot(93), "67ed2d".into())].into());
        assert_eq!(view.importing, [(slot(77), "292f8b".into())].into());
        assert_eq!(view.owner(slot(10_922)), Some(&"e7d1ee".into()));
        assert_eq!(view.owner(slot(10_923)), Some(&"67ed2d".into()));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let me = "a 1.1.1.1:1@2 myself,master - 0 0 1 connected";
        assert!(View::parse(me).is_ok());
        let old = "a 1.1.1.1:1@2 myself,master - 0 0 old connected";
        for wrong in ["", "a b c", "a 1.1.1.1:1@2 master - 0 0 1 connected", old] {
            assert!(View::parse(wrong).is_err(), "{wrong}");
        }
        for slots in ["16384", "9-3", "x", "[5]", "[5-x-a]", "[99999->-a]"] {
            assert!(View::parse(&format!("{me} {slots}")).is_err(), "{slots}");
        }
    }

    #[test]
    fn a_server_has_its_ip_address_and_its_hostname() {
        let all = |word| {
            let addresses: Vec<String> =
                client_addresses(word).iter().map(Address::to_string).collect();
            addresses.join(" ")
        };
        assert_eq!(all("10.0.0.1:7401@17401,pier-39"), "10.0.0.1:7401 pier-39:7401");
        assert_eq!(all("10.0.0.1:7401@17401"), "10.0.0.1:7401");
        assert_eq!(all("10.0.0.1:7401@17401,,shard-id=69bc"), "10.0.0.1:7401");
        assert_eq!(all("10.0.0.1:7401@17401,shard-id=69bc"), "10.0.0.1:7401");
        assert_eq!(all("fe80::1:7401@17401,pier-39,tls-port=0"), "[fe80::1]:7401 pier-39:7401");
        assert_eq!(all(":7401@17401,pier-39"), "pier-39:7401");
        for none in [":7401@17401", ":7401@17401,,tls-port=0", "10.0.0.1:0@0,pier-39", "x"] {
            assert_eq!(all(none), "", "{none}");
        }
    }
}
