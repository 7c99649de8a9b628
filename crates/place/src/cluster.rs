//! The servers of a cluster, and what each of them reports.

use crate::connection::{CallError, Connection, Credentials, text};
use crate::plan::{Part, SlotState};
use crate::tls::Tls;
use crate::view::{Address, Malformed, NodeId, View};
use model::{Slot, SlotSet};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use wire::resp::Reply;

/// The names that this program gives its connections begin so.
const NAME: &str = "portolan-place-";
/// How many answers a server is to prepare at once: a slot's count costs it about 50 bytes.
const PIPELINE: usize = 1_024;

/// Where a cluster is, and how to get in.
#[derive(Clone, Debug)]
pub struct Access {
    /// Some of its servers.
    pub seeds: Vec<Address>,
    /// For all servers.
    pub credentials: Option<Credentials>,
    /// The servers are reached by TLS alone; how, is for [`Access::tls`].
    pub is_secret: bool,
    /// For all servers.
    pub tls: Option<Tls>,
    /// How long a server may take to answer.
    pub deadline: Duration,
}

impl Access {
    /// Reads `redis://[USER[:PASSWORD]@]HOST:PORT,HOST:PORT,…`; `rediss://` for TLS. The user and the password
    /// are percent-decoded.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(url: &str, deadline: Duration) -> Result<Access, Malformed> {
        let plain = url.strip_prefix("redis://").or_else(|| url.strip_prefix("valkey://"));
        let secret = url.strip_prefix("rediss://").or_else(|| url.strip_prefix("valkeys://"));
        let rest = plain.or(secret).ok_or_else(|| {
            Malformed::new(
                "a cluster is given as redis://HOST:PORT,HOST:PORT,… (rediss:// for TLS)",
            )
        })?;
        let (login, servers) = match rest.rsplit_once('@') {
            Some((login, servers)) => (Some(login), servers),
            None => (None, rest),
        };
        let credentials = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            Ok(Credentials { user: decoded(user)?, password: decoded(password)? })
        });
        let credentials = credentials.transpose()?;
        let servers = servers.trim_end_matches('/').split(',');
        let seeds = servers.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Access { seeds, credentials, is_secret: secret.is_some(), tls: None, deadline })
    }
}

/// A part of a URL, percent-decoded.
fn decoded(text: &str) -> Result<String, Malformed> {
    let decoded = percent_decode_str(text).decode_utf8();
    let wrong = |_| Malformed::new("the user or the password is not UTF-8 when percent-decoded");
    decoded.map(Cow::into_owned).map_err(wrong)
}

/// Why a cluster cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// No server answers.
    #[error("no server of the cluster answers: {0}")]
    Unreachable(String),
    /// A server answers, with an error.
    #[error("{at}: {error}")]
    Call {
        /// Which.
        at: Address,
        /// What.
        error: CallError,
    },
    /// An answer is not understood.
    #[error("{at}: {error}")]
    Malformed {
        /// Whose.
        at: Address,
        /// What.
        error: Malformed,
    },
    /// An owner of slots does not answer.
    #[error("{0} owns slots and does not answer: nothing is moved")]
    Silent(String),
    /// Another one moves slots.
    #[error("another `portolan place` moves slots of this cluster (its connection comes from {0})")]
    Busy(String),
}

/// What all servers report.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// By server: those that answer.
    pub views: BTreeMap<NodeId, View>,
    /// Those that do not, and why; replicas too.
    pub absent: BTreeMap<NodeId, String>,
}

impl Survey {
    /// The servers that call themselves masters.
    pub fn masters(&self) -> impl Iterator<Item = (&NodeId, &View)> {
        self.views.iter().filter(|(_, view)| view.is_master())
    }

    /// Servers that do not answer and that another one calls a master.
    pub fn silent(&self) -> BTreeSet<NodeId> {
        let is_master = |id: &NodeId| {
            let peers = self.views.values().filter_map(|view| view.peers.get(id));
            peers.into_iter().any(|peer| peer.replica_of.is_none())
        };
        self.absent.keys().filter(|id| is_master(id)).cloned().collect()
    }

    /// Of those, the ones that own slots in the view of a server that answers.
    pub fn silent_owners(&self) -> BTreeSet<NodeId> {
        let owns = |id: &NodeId| {
            let peers = self.views.values().filter_map(|view| view.peers.get(id));
            peers.into_iter().any(|peer| !peer.slots.is_empty())
        };
        self.silent().into_iter().filter(owns).collect()
    }

    /// The slots with a mark at any master.
    pub fn open(&self) -> SlotSet {
        let marked = |(_, view): (_, &View)| {
            let marked: Vec<Slot> =
                view.migrating.keys().chain(view.importing.keys()).copied().collect();
            marked
        };
        self.masters().flat_map(marked).collect()
    }

    /// The masters that own a slot by their own report.
    pub fn owners(&self, slot: Slot) -> impl Iterator<Item = &NodeId> {
        let own = move |(id, view): &(&NodeId, &View)| {
            view.peers.get(*id).is_some_and(|me| me.slots.contains(slot))
        };
        self.masters().filter(own).map(|(id, _)| id)
    }

    /// A slot at all masters, given the number of keys that each has of it.
    pub fn state(&self, slot: Slot, keys: &BTreeMap<NodeId, u64>) -> SlotState {
        let part = |(id, view): (&NodeId, &View)| {
            let part = Part {
                owner: view.owner(slot).cloned(),
                migrating: view.migrating.get(&slot).cloned(),
                importing: view.importing.get(&slot).cloned(),
                keys: keys.get(id).copied().unwrap_or_default(),
            };
            (id.clone(), part)
        };
        SlotState { parts: self.masters().map(part).collect(), silent: self.silent() }
    }

    /// A server's address, by its own report or another's.
    pub fn address(&self, id: &NodeId) -> Option<&Address> {
        let own = self.views.get(id).into_iter();
        own.chain(self.views.values()).find_map(|view| view.peers.get(id)?.address.as_ref())
    }

    /// A server for people: its address, or its name where that is unknown.
    pub fn shown(&self, id: &NodeId) -> String {
        self.address(id).map_or_else(|| id.to_string(), Address::to_string)
    }
}

/// A server.
#[derive(Debug)]
struct Node {
    address: Address,
    connection: Option<Connection>,
}

/// A cluster with a connection to each server.
#[derive(Debug)]
pub struct Cluster {
    access: Access,
    /// The name of this run's connections.
    name: String,
    /// Other runs have not been looked for since a connection was lost.
    is_new: bool,
    nodes: BTreeMap<NodeId, Node>,
}

impl Cluster {
    /// Nothing is asked before the first call.
    pub fn new(access: Access) -> Cluster {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{NAME}{}-{:x}", std::process::id(), now.as_nanos());
        Cluster { access, name, is_new: true, nodes: BTreeMap::new() }
    }

    /// For looking only: it stops no run that moves slots.
    pub fn to_look_at(access: Access) -> Cluster {
        Cluster { name: "portolan-status".to_owned(), ..Cluster::new(access) }
    }

    /// How to get in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Asks all servers what they report; finds those that are new.
    ///
    /// # Errors
    /// No server answers, or one answers what is not understood.
    pub async fn survey(&mut self) -> Result<Survey, ClusterError> {
        if self.nodes.is_empty() {
            self.meet().await?;
        }
        let mut survey = Survey::default();
        let mut asked = BTreeSet::new();
        loop {
            let ids = self.nodes.keys().filter(|id| !asked.contains(*id));
            let ids: Vec<NodeId> = ids.cloned().collect();
            if ids.is_empty() {
                break;
            }
            asked.extend(ids.iter().cloned());
            let replies = self.each(&ids, |_| vec![vec!["CLUSTER".into(), "NODES".into()]]).await;
            for (id, replies) in replies {
                match self.understood(&id, replies)? {
                    Ok(view) if view.me == id => self.take(&mut survey, view),
                    Ok(view) => {
                        // Another server has come to listen there.
                        survey.absent.insert(id, format!("{} answers instead", view.me));
                    }
                    Err(error) => {
                        survey.absent.insert(id, error.to_string());
                    }
                }
            }
        }
        match survey.views.is_empty() {
            true => {
                let why = survey.absent.values().next().cloned().unwrap_or_default();
                Err(ClusterError::Unreachable(why))
            }
            false => Ok(survey),
        }
    }

    fn understood(
        &self,
        id: &NodeId,
        replies: Result<Vec<Reply>, CallError>,
    ) -> Result<Result<View, CallError>, ClusterError> {
        let at = || self.nodes[id].address.clone();
        match replies.map(|mut replies| replies.pop()) {
            Err(error) => Ok(Err(error)),
            Ok(Some(Reply::Error(text))) => {
                let error = CallError::Refused(String::from_utf8_lossy(&text).into_owned());
                Err(ClusterError::Call { at: at(), error })
            }
            Ok(reply) => {
                let text = reply.and_then(text).unwrap_or_default();
                let view = View::parse(&text);
                view.map(Ok).map_err(|error| ClusterError::Malformed { at: at(), error })
            }
        }
    }

    fn take(&mut self, survey: &mut Survey, view: View) {
        for (id, peer) in &view.peers {
            if let Some(address) = peer.address.clone().filter(|_| !peer.is_joining) {
                let node = Node { address, connection: None };
                self.nodes.entry(id.clone()).or_insert(node);
            }
        }
        survey.views.insert(view.me.clone(), view);
    }

    /// Asks the seeds for their names.
    async fn meet(&mut self) -> Result<(), ClusterError> {
        let mut why = String::new();
        for address in self.access.seeds.clone() {
            let credentials = self.access.credentials.as_ref();
            let tls = self.access.tls.as_ref();
            let opened = Connection::open(&address, credentials, tls, self.access.deadline).await;
            let mut connection = match opened {
                Ok(connection) => connection,
                Err(CallError::Lost(error)) => {
                    why = format!("{address}: {error}");
                    continue;
                }
                Err(error) => return Err(ClusterError::Call { at: address, error }),
            };
            match connection.call(&["CLUSTER", "MYID"]).await {
                Ok(reply) => {
                    let id = NodeId::from(&*text(reply).unwrap_or_default());
                    self.nodes.insert(id, Node { address, connection: None });
                }
                Err(CallError::Lost(error)) => why = format!("{address}: {error}"),
                Err(error) => return Err(ClusterError::Call { at: address, error }),
            }
        }
        match self.nodes.is_empty() {
            true => Err(ClusterError::Unreachable(why)),
            false => Ok(()),
        }
    }

    /// Sends some servers commands, all servers at once.
    async fn each(
        &mut self,
        ids: &[NodeId],
        commands: impl Fn(&NodeId) -> Vec<Vec<String>>,
    ) -> Vec<(NodeId, Result<Vec<Reply>, CallError>)> {
        let mut running = JoinSet::new();
        for id in ids {
            let Some(node) = self.nodes.get_mut(id) else { continue };
            let (connection, address) = (node.connection.take(), node.address.clone());
            let (access, name) = (self.access.clone(), self.name.clone());
            let (id, commands) = (id.clone(), commands(id));
            running.spawn(async move {
                let mut kept = connection;
                let replies = asked(&mut kept, &address, &access, &name, &commands).await;
                (id, kept.filter(|_| replies.is_ok()), replies)
            });
        }
        let mut all = Vec::new();
        while let Some(done) = running.join_next().await {
            let Ok((id, connection, replies)) = done else { continue };
            self.is_new |= connection.is_none();
            if let Some(node) = self.nodes.get_mut(&id) {
                node.connection = connection;
            }
            all.push((id, replies));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Sends one server commands at once, of any bytes.
    ///
    /// # Errors
    /// The server is unknown or does not answer. Its errors are among the answers.
    pub async fn pipeline<W: AsRef<[u8]>>(
        &mut self,
        id: &NodeId,
        commands: &[Vec<W>],
    ) -> Result<Vec<Reply>, CallError> {
        let unknown = || CallError::Lost(format!("the server {id} is unknown"));
        let Node { address, connection } = self.nodes.get_mut(id).ok_or_else(unknown)?;
        let replies = asked(connection, address, &self.access, &self.name, commands).await;
        if replies.is_err() {
            *connection = None;
            self.is_new = true;
        }
        replies
    }

    /// Sends one server one command.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn call<W: AsRef<[u8]>>(
        &mut self,
        id: &NodeId,
        words: Vec<W>,
    ) -> Result<Reply, CallError> {
        match self.pipeline(id, &[words]).await?.pop() {
            Some(Reply::Error(text)) => {
                Err(CallError::Refused(String::from_utf8_lossy(&text).into_owned()))
            }
            Some(reply) => Ok(reply),
            None => Err(CallError::Strange("the server".to_owned())),
        }
    }

    /// How many keys each master has of each of these slots.
    ///
    /// # Errors
    /// A master does not answer, or with an error.
    pub async fn count_keys(
        &mut self,
        survey: &Survey,
        slots: &SlotSet,
    ) -> Result<BTreeMap<Slot, BTreeMap<NodeId, u64>>, ClusterError> {
        let masters: Vec<NodeId> = survey.masters().map(|(id, _)| id.clone()).collect();
        let slots: Vec<Slot> = slots.iter().collect();
        let mut counts: BTreeMap<Slot, BTreeMap<NodeId, u64>> = BTreeMap::new();
        for some in slots.chunks(PIPELINE) {
            let count = |slot: &Slot| {
                vec!["CLUSTER".to_owned(), "COUNTKEYSINSLOT".to_owned(), slot.to_string()]
            };
            let commands: Vec<Vec<String>> = some.iter().map(count).collect();
            for (id, replies) in self.each(&masters, |_| commands.clone()).await {
                let at = || self.nodes[&id].address.clone();
                let replies = replies.map_err(|error| ClusterError::Call { at: at(), error })?;
                for (slot, reply) in some.iter().zip(replies) {
                    let Reply::Integer(keys) = reply else {
                        let error = CallError::Strange("COUNTKEYSINSLOT".to_owned());
                        return Err(ClusterError::Call { at: at(), error });
                    };
                    let of_slot = counts.entry(*slot).or_default();
                    of_slot.insert(id.clone(), keys.unsigned_abs());
                }
            }
        }
        Ok(counts)
    }

    /// How many bytes more each master may hold: up to so many in all, else up to nine tenths of its own
    /// `maxmemory`. A master without a bound is absent.
    ///
    /// # Errors
    /// A master does not answer, or with an error.
    pub async fn room(
        &mut self,
        survey: &Survey,
        bytes_max: Option<u64>,
    ) -> Result<BTreeMap<Address, u64>, ClusterError> {
        let masters: Vec<NodeId> = survey.masters().map(|(id, _)| id.clone()).collect();
        let info = |_: &NodeId| vec![vec!["INFO".to_owned(), "memory".to_owned()]];
        let mut room = BTreeMap::new();
        for (id, replies) in self.each(&masters, info).await {
            let at = || self.nodes[&id].address.clone();
            let error = match replies.map(|mut replies| replies.pop()) {
                Ok(Some(Reply::Error(text))) => {
                    CallError::Refused(String::from_utf8_lossy(&text).into_owned())
                }
                Ok(reply) => match memory(&reply.and_then(text).unwrap_or_default()) {
                    Some((used, own_max)) => {
                        let own_max = own_max.map(|bytes| bytes / 10 * 9);
                        let bound = own_max.into_iter().chain(bytes_max).min();
                        let left = bound.map(|bytes: u64| bytes.saturating_sub(used));
                        room.extend(survey.address(&id).cloned().zip(left));
                        continue;
                    }
                    None => CallError::Strange("INFO memory".to_owned()),
                },
                Err(error) => error,
            };
            return Err(ClusterError::Call { at: at(), error });
        }
        Ok(room)
    }

    /// Refuses to go on while another run has an older connection to a master: of two runs one goes on at
    /// most. Nothing is written to the cluster, and a run that is killed leaves nothing behind.
    ///
    /// # Errors
    /// [`ClusterError::Busy`], or a master that does not list its connections.
    pub async fn alone(&mut self, survey: &Survey) -> Result<(), ClusterError> {
        if !self.is_new {
            return Ok(());
        }
        let masters: Vec<NodeId> = survey.masters().map(|(id, _)| id.clone()).collect();
        let list = |_: &NodeId| vec![vec!["CLIENT".to_owned(), "LIST".to_owned()]];
        for (id, replies) in self.each(&masters, list).await {
            let at = || self.nodes[&id].address.clone();
            let error = match replies.map(|mut replies| replies.pop()) {
                Ok(Some(Reply::Error(text))) => {
                    CallError::Refused(String::from_utf8_lossy(&text).into_owned())
                }
                Ok(reply) => match older_run(&reply.and_then(text).unwrap_or_default(), &self.name)
                {
                    Some(address) => return Err(ClusterError::Busy(address)),
                    None => continue,
                },
                Err(error) => error,
            };
            return Err(ClusterError::Call { at: at(), error });
        }
        self.is_new = false;
        Ok(())
    }
}

/// Bytes in use, and how many there may be at most, from `INFO memory`.
fn memory(info: &str) -> Option<(u64, Option<u64>)> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.trim_end().strip_prefix(name));
        value?.parse::<u64>().ok()
    };
    Some((field("used_memory:")?, field("maxmemory:").filter(|bytes| *bytes > 0)))
}

/// The address of an older connection of another run: servers number connections in their order.
fn older_run(list: &str, own: &str) -> Option<String> {
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|word| Some(word.strip_prefix(name)?.to_owned()))
    };
    let id = |line: &str| field(line, "id=").and_then(|id| id.parse::<u64>().ok());
    let of_a_run = |line: &&str| field(line, "name=").is_some_and(|name| name.starts_with(NAME));
    let is_own = |line: &&str| field(line, "name=").is_some_and(|name| name == own);
    let own_id = list.lines().find(is_own).and_then(id);
    let mut others = list.lines().filter(|line| of_a_run(line) && !is_own(line));
    let older = others.find(|line| own_id.is_none() || id(line) < own_id)?;
    Some(field(older, "addr=").unwrap_or_default())
}

/// Over the connection that is there, or over a new one.
async fn asked<W: AsRef<[u8]>>(
    connection: &mut Option<Connection>,
    address: &Address,
    access: &Access,
    name: &str,
    commands: &[Vec<W>],
) -> Result<Vec<Reply>, CallError> {
    let open = match connection.take() {
        Some(open) => connection.insert(open),
        None => {
            let credentials = access.credentials.as_ref();
            let tls = access.tls.as_ref();
            let mut new = Connection::open(address, credentials, tls, access.deadline).await?;
            new.call(&["CLIENT", "SETNAME", name]).await?;
            connection.insert(new)
        }
    };
    open.pipeline(commands).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_given_by_some_of_its_servers() {
        let read = |url| Access::parse(url, Duration::from_secs(1));
        let access = read("redis://10.0.0.1:7001,pier:7002").unwrap();
        let seeds: Vec<String> = access.seeds.iter().map(Address::to_string).collect();
        assert_eq!(seeds, ["10.0.0.1:7001", "pier:7002"]);
        assert!(access.credentials.is_none());
        let login = read("redis://ann:s@cret@pier:7002/").unwrap().credentials.unwrap();
        assert_eq!((&*login.user, &*login.password), ("ann", "s@cret"));
        let login = |url| read(url).unwrap().credentials.map(|one| (one.user, one.password));
        let is = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(login("redis://:secret@pier:1"), is("", "secret"));
        assert_eq!(login("redis://ann@pier:1"), is("ann", ""));
        assert_eq!(login("redis://a%3An%40n:s%2F%25%C3%A9+@pier:1"), is("a:n@n", "s/%é+"));
        // What is no encoded byte stays as it is.
        assert_eq!(login("redis://ann:100%@pier:1"), is("ann", "100%"));
        assert!(read("redis://ann:%FF@pier:1").is_err());
        assert!(!read("valkey://pier:1").unwrap().is_secret);
        assert!(read("rediss://pier:1").unwrap().is_secret);
        for wrong in ["pier:7002", "redis://", "redis://pier", "redis://a:1,", "http://a:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_may_bound_its_memory() {
        let info = "# Memory\r\nused_memory:1000\r\nused_memory_human:1K\r\nmaxmemory:";
        assert_eq!(memory(&format!("{info}0\r\n")), Some((1_000, None)));
        assert_eq!(memory(&format!("{info}5000\r\n")), Some((1_000, Some(5_000))));
        assert_eq!(memory("# Memory\r\n"), None);
    }

    #[test]
    fn an_older_run_is_seen_by_the_name_of_its_connection() {
        let list = "id=3 addr=1.1.1.1:5 name= cmd=ping\n\
                    id=4 addr=1.1.1.1:6 name=portolan-place-1-a cmd=client\n\
                    id=9 addr=1.1.1.1:7 name=portolan-place-2-b cmd=client\n";
        assert_eq!(older_run(list, "portolan-place-1-a"), None);
        assert_eq!(older_run(list, "portolan-place-2-b"), Some("1.1.1.1:6".to_owned()));
        assert_eq!(older_run(list, "portolan-place-3-c"), Some("1.1.1.1:6".to_owned()));
    }
}
