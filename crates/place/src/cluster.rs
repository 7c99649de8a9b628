//! The servers of a cluster, and what each of them reports.

use crate::connection::{CallError, Connection, Credentials, text};
use crate::plan::{Part, SlotState};
use crate::tls::Tls;
use crate::view::{Address, Malformed, NodeId, Peer, View};
use model::{Slot, SlotSet};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::Instant;
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
    /// Reads `redis://[USER[:PASSWORD]@]HOST:PORT,HOST:PORT,…`; `rediss://` for TLS. The user and
    /// the password are percent-decoded.
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

/// Why a claim of a slot could lose it, with its keys. Of two claims servers take the one of the
/// higher epoch, and its maker gives it one above those that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsettled {
    /// A server does not know the last claim of a master: made by it, a claim could have too low an
    /// epoch; sent to it, it could lose to what it knows of the master.
    Uninformed {
        /// The server.
        server: NodeId,
        /// The master.
        master: NodeId,
    },
    /// Two masters have one epoch. They are about to give one of them another.
    Tied(NodeId, NodeId),
}

impl Unsettled {
    /// A sentence, with names for servers.
    pub fn named(&self, shown: impl Fn(&NodeId) -> String) -> String {
        match self {
            Unsettled::Uninformed { server, master } => format!(
                "server {} has not learned what {} has taken last, and could give the slot back",
                shown(server),
                shown(master)
            ),
            Unsettled::Tied(a, b) => {
                format!(
                    "{} and {} have one epoch, and the slot could go to either",
                    shown(a),
                    shown(b)
                )
            }
        }
    }
}

/// What all servers report.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// By server: those that answer.
    pub views: BTreeMap<NodeId, View>,
    /// Those that do not, and why; replicas too.
    pub absent: BTreeMap<NodeId, String>,
    /// By a silent master that owns nothing any more: its former replica, which owns slots now.
    pub failed_over: BTreeMap<NodeId, NodeId>,
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

    /// Why a claim of a slot that goes from one of these servers to the other could lose, if
    /// anything.
    pub fn unsettled(&self, ends: &[&NodeId]) -> Option<Unsettled> {
        // What no other server hears of, and what is still introduced, has no part in it, unless it
        // owns slots or is to.
        let owns = |id: &NodeId| {
            let own = self.views.get(id).and_then(|view| view.peers.get(id));
            own.is_some_and(|own| !own.slots.is_empty())
        };
        let is_heard = |id: &NodeId| {
            let is_known = |peer: &Peer| !peer.is_failing && !peer.is_joining;
            let mut others = self.views.iter().filter(|(other, _)| *other != id);
            ends.contains(&id)
                || owns(id)
                || others.any(|(_, view)| view.peers.get(id).is_some_and(is_known))
        };
        let masters = self.masters().filter(|(id, _)| is_heard(id));
        let masters: Vec<(&NodeId, &View, u64)> =
            masters.filter_map(|(id, view)| Some((id, view, view.peers.get(id)?.epoch))).collect();
        for (id, _, epoch) in &masters {
            let is_behind =
                |view: &View| view.peers.get(id).is_some_and(|known| known.epoch < *epoch);
            let behind =
                self.views.iter().find(|(server, view)| is_behind(view) && is_heard(server));
            if let Some((server, _)) = behind {
                let (server, master) = (server.clone(), (*id).clone());
                return Some(Unsettled::Uninformed { server, master });
            }
        }
        let mut pairs = masters
            .iter()
            .enumerate()
            .flat_map(|(at, one)| masters[at + 1..].iter().map(move |other| (one, other)));
        let tied = pairs.find(|((a, of_a, epoch), (b, of_b, other))| {
            epoch == other && of_a.peers.contains_key(*b) && of_b.peers.contains_key(*a)
        });
        tied.map(|((a, ..), (b, ..))| Unsettled::Tied((*a).clone(), (*b).clone()))
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
        let marked = self.masters().filter_map(|(_, view)| view.migrating.get(&slot));
        let successor = |id: &NodeId| Some((id.clone(), self.successor(id)?.clone()));
        SlotState {
            parts: self.masters().map(part).collect(),
            silent: self.silent(),
            successors: marked.filter_map(successor).collect(),
        }
    }

    /// The server that is master in place of this one: by its own report if it answers, else by
    /// that of all others, else by a failover.
    fn successor(&self, id: &NodeId) -> Option<&NodeId> {
        let own = self.views.get(id).and_then(|view| view.peers.get(id));
        let others = self.views.values().filter_map(|view| view.peers.get(id));
        let reports = own.into_iter().chain(others.filter(|_| own.is_none()));
        let masters: BTreeSet<_> = reports.map(|peer| peer.replica_of.as_ref()).collect();
        match masters.iter().collect::<Vec<_>>()[..] {
            [Some(master)] => Some(master),
            _ => self.failed_over.get(id),
        }
    }

    /// A server's addresses, by its own report or another's.
    fn addresses(&self, id: &NodeId) -> &[Address] {
        let own = self.views.get(id).into_iter();
        let peers = own.chain(self.views.values()).filter_map(|view| view.peers.get(id));
        let mut all = peers.map(|peer| &peer.addresses[..]);
        all.find(|addresses| !addresses.is_empty()).unwrap_or_default()
    }

    /// A server's address for servers.
    pub fn address(&self, id: &NodeId) -> Option<&Address> {
        self.addresses(id).first()
    }

    /// The masters by all their addresses; without an address that several announce, such as the
    /// name of a proxy before them.
    pub fn masters_by_address(&self) -> BTreeMap<Address, NodeId> {
        let (mut by_address, mut shared) = (BTreeMap::new(), BTreeSet::new());
        for (id, _) in self.masters() {
            for address in self.addresses(id) {
                let other = by_address.insert(address.clone(), id.clone());
                if other.is_some_and(|other| other != *id) {
                    shared.insert(address.clone());
                }
            }
        }
        by_address.retain(|address, _| !shared.contains(address));
        by_address
    }

    /// A server for people: its address, or its name where that is unknown.
    pub fn shown(&self, id: &NodeId) -> String {
        self.address(id).map_or_else(|| id.to_string(), Address::to_string)
    }
}

/// A server.
#[derive(Debug, Default)]
struct Node {
    /// By which it was given.
    seed: Option<Address>,
    /// By the last survey.
    addresses: Vec<Address>,
    connection: Option<Connection>,
}

impl Node {
    /// Where it may be reached, in the order in which that is tried. There is one at least.
    fn reached_at(&self) -> Vec<Address> {
        let new = self.addresses.iter().filter(|address| Some(*address) != self.seed.as_ref());
        self.seed.iter().chain(new).cloned().collect()
    }
}

/// A cluster with a connection to each server.
#[derive(Debug)]
pub struct Cluster {
    access: Access,
    /// The name of this run's connections.
    name: String,
    /// Other runs have not been looked for since a connection was lost.
    is_new: bool,
    /// When they are looked for once more.
    look_again: Option<Instant>,
    nodes: BTreeMap<NodeId, Node>,
    /// The servers that have answered the last survey, and each question since.
    answering: BTreeSet<NodeId>,
    /// The master of each server that was a replica when it last reported itself as one, until both
    /// are masters.
    masters: BTreeMap<NodeId, NodeId>,
}

impl Cluster {
    /// Nothing is asked before the first call.
    pub fn new(access: Access) -> Cluster {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{NAME}{}-{:x}", std::process::id(), now.as_nanos());
        let (nodes, answering, masters) = Default::default();
        Cluster { access, name, is_new: true, look_again: None, nodes, answering, masters }
    }

    /// For looking only: it stops no run that moves slots.
    pub fn to_look_at(access: Access) -> Cluster {
        Cluster { name: "portolan-status".to_owned(), ..Cluster::new(access) }
    }

    /// How to get in.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Asks all servers what they report; finds those that are new. A server that answers that it
    /// cannot answer now is as absent as one that is down: one replica that loads a snapshot would
    /// stop all moves.
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
            false => {
                self.follow_failovers(&mut survey);
                self.answering = survey.views.keys().cloned().collect();
                Ok(survey)
            }
        }
    }

    /// What those servers report that have answered up to now: one that does not is not waited for
    /// again before a survey finds it.
    pub async fn answering(&mut self) -> Survey {
        let ids: Vec<NodeId> = self.answering.iter().cloned().collect();
        let replies = self.each(&ids, |_| vec![vec!["CLUSTER".into(), "NODES".into()]]).await;
        let mut survey = Survey::default();
        for (id, replies) in replies {
            if let Ok(Ok(view)) = self.understood(&id, replies)
                && view.me == id
            {
                survey.views.insert(id, view);
            }
        }
        self.answering = survey.views.keys().cloned().collect();
        survey
    }

    /// Servers do not report whose place a master has taken while that one is away, so replicas
    /// are remembered. A master without slots is no proof: it may have been emptied.
    fn follow_failovers(&mut self, survey: &mut Survey) {
        for (id, view) in &survey.views {
            let master = view.peers.get(id).and_then(|me| me.replica_of.clone());
            self.masters.extend(master.map(|master| (id.clone(), master)));
        }
        // A replica that became a master beside its own takes no place from then on.
        let is_master = |id: &NodeId| survey.views.get(id).is_some_and(View::is_master);
        self.masters.retain(|id, of| !(is_master(id) && is_master(of)));
        let owners = survey.silent_owners();
        for gone in survey.silent().difference(&owners) {
            let is_successor = |(id, view): &(&NodeId, &View)| {
                let owns = view.peers.get(*id).is_some_and(|me| !me.slots.is_empty());
                owns && self.masters.get(*id) == Some(gone)
            };
            let found: Vec<NodeId> =
                survey.masters().filter(is_successor).map(|(id, _)| id.clone()).collect();
            if let [successor] = &found[..] {
                survey.failed_over.insert(gone.clone(), successor.clone());
            }
        }
    }

    fn understood(
        &self,
        id: &NodeId,
        replies: Result<Vec<Reply>, CallError>,
    ) -> Result<Result<View, CallError>, ClusterError> {
        let at = || self.at(id);
        match replies.map(|mut replies| replies.pop()) {
            Err(error) => Ok(Err(error)),
            Ok(Some(Reply::Error(text))) => {
                let error = CallError::Refused(String::from_utf8_lossy(&text).into_owned());
                match error.is_passing() {
                    true => Ok(Err(error)),
                    false => Err(ClusterError::Call { at: at(), error }),
                }
            }
            Ok(reply) => {
                let text = reply.and_then(text).unwrap_or_default();
                let view = View::parse(&text);
                view.map(Ok).map_err(|error| ClusterError::Malformed { at: at(), error })
            }
        }
    }

    /// A server's first address, for errors.
    fn at(&self, id: &NodeId) -> Address {
        self.nodes[id].reached_at().swap_remove(0)
    }

    fn take(&mut self, survey: &mut Survey, view: View) {
        for (id, peer) in &view.peers {
            if !peer.is_joining && !peer.addresses.is_empty() {
                self.nodes.entry(id.clone()).or_default().addresses.clone_from(&peer.addresses);
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
            let answer = match opened {
                Ok(mut connection) => connection.call(&["CLUSTER", "MYID"]).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(reply) => {
                    let id = NodeId::from(&*text(reply).unwrap_or_default());
                    self.nodes.insert(id, Node { seed: Some(address), ..Node::default() });
                }
                Err(CallError::Lost(error)) => why = format!("{address}: {error}"),
                Err(error) if error.is_passing() => why = format!("{address}: {error}"),
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
            let (connection, addresses) = (node.connection.take(), node.reached_at());
            let (access, name) = (self.access.clone(), self.name.clone());
            let (id, commands) = (id.clone(), commands(id));
            running.spawn(async move {
                let mut kept = connection;
                let replies = asked(&mut kept, (&id, &addresses), &access, &name, &commands).await;
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
        let node = self.nodes.get_mut(id).ok_or_else(unknown)?;
        let addresses = node.reached_at();
        let connection = &mut node.connection;
        let replies = asked(connection, (id, &addresses), &self.access, &self.name, commands).await;
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
                let at = || self.at(&id);
                let replies = replies.map_err(|error| ClusterError::Call { at: at(), error })?;
                for (slot, reply) in some.iter().zip(replies) {
                    let error = match reply {
                        Reply::Integer(keys) => {
                            let of_slot = counts.entry(*slot).or_default();
                            of_slot.insert(id.clone(), keys.unsigned_abs());
                            continue;
                        }
                        Reply::Error(text) => {
                            CallError::Refused(String::from_utf8_lossy(&text).into_owned())
                        }
                        _ => CallError::Strange("COUNTKEYSINSLOT".to_owned()),
                    };
                    return Err(ClusterError::Call { at: at(), error });
                }
            }
        }
        Ok(counts)
    }

    /// How many bytes more each master may hold: up to so many in all, else up to nine tenths of
    /// its own `maxmemory`. A master without a bound is absent.
    ///
    /// # Errors
    /// A master does not answer, or with an error.
    pub async fn room(
        &mut self,
        survey: &Survey,
        bytes_max: Option<u64>,
    ) -> Result<BTreeMap<NodeId, u64>, ClusterError> {
        let masters: Vec<NodeId> = survey.masters().map(|(id, _)| id.clone()).collect();
        let info = |_: &NodeId| vec![vec!["INFO".to_owned(), "memory".to_owned()]];
        let mut room = BTreeMap::new();
        for (id, replies) in self.each(&masters, info).await {
            let at = || self.at(&id);
            let error = match replies.map(|mut replies| replies.pop()) {
                Ok(Some(Reply::Error(text))) => {
                    CallError::Refused(String::from_utf8_lossy(&text).into_owned())
                }
                Ok(reply) => match memory(&reply.and_then(text).unwrap_or_default()) {
                    Some((used, own_max)) => {
                        let own_max = own_max.map(|bytes| bytes / 10 * 9);
                        let bound = own_max.into_iter().chain(bytes_max).min();
                        let left = bound.map(|bytes: u64| bytes.saturating_sub(used));
                        room.extend(left.map(|left| (id, left)));
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

    /// [`Cluster::alone`] if a connection was lost since it was last asked, and once more when
    /// older connections have their names.
    ///
    /// # Errors
    /// The same.
    pub async fn still_alone(&mut self, survey: &Survey) -> Result<(), ClusterError> {
        match self.is_new || self.look_again.is_some_and(|at| at <= Instant::now()) {
            true => self.alone(survey).await,
            false => Ok(()),
        }
    }

    /// Refuses to go on while another run has an older connection to a master: of two runs one goes
    /// on at most. Nothing is written to the cluster, and a run that is killed leaves nothing
    /// behind. An older connection may not have its name yet, for as long as a server has to
    /// answer: [`Cluster::still_alone`] finds it then.
    ///
    /// # Errors
    /// [`ClusterError::Busy`], or a master that does not list its connections.
    pub async fn alone(&mut self, survey: &Survey) -> Result<(), ClusterError> {
        let masters: Vec<NodeId> = survey.masters().map(|(id, _)| id.clone()).collect();
        let list = |_: &NodeId| vec![vec!["CLIENT".to_owned(), "LIST".to_owned()]];
        for (id, replies) in self.each(&masters, list).await {
            let at = || self.at(&id);
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
        let now = Instant::now();
        self.look_again = match std::mem::take(&mut self.is_new) {
            true => Some(now + self.access.deadline),
            false => self.look_again.filter(|at| *at > now),
        };
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

/// A connection to a server by the first of its addresses that leads to it: its certificate may be
/// for its hostname alone, and the network may reach it by one of them only.
async fn opened(
    id: &NodeId,
    addresses: &[Address],
    access: &Access,
) -> Result<Connection, CallError> {
    let mut first = None;
    for address in addresses {
        match opened_at(id, address, access).await {
            Err(lost @ CallError::Lost(_)) => drop(first.get_or_insert(lost)),
            done => return done,
        }
    }
    Err(first.unwrap_or_else(|| CallError::Lost("its address is unknown".to_owned())))
}

/// The same by one address. A hostname may lead to another server of the cluster, which would carry
/// out what is meant for this one.
async fn opened_at(
    id: &NodeId,
    address: &Address,
    access: &Access,
) -> Result<Connection, CallError> {
    let (credentials, tls) = (access.credentials.as_ref(), access.tls.as_ref());
    let mut new = Connection::open(address, credentials, tls, access.deadline).await?;
    let answers = NodeId::from(&*text(new.call(&["CLUSTER", "MYID"]).await?).unwrap_or_default());
    match answers == *id {
        true => Ok(new),
        false => Err(CallError::Lost(format!("{answers} answers at {address} instead"))),
    }
}

/// Over the connection that is there, or over a new one.
async fn asked<W: AsRef<[u8]>>(
    connection: &mut Option<Connection>,
    (id, addresses): (&NodeId, &[Address]),
    access: &Access,
    name: &str,
    commands: &[Vec<W>],
) -> Result<Vec<Reply>, CallError> {
    let open = match connection.take() {
        Some(open) => connection.insert(open),
        None => {
            let mut new = opened(id, addresses, access).await?;
            new.call(&["CLIENT", "SETNAME", name]).await?;
            connection.insert(new)
        }
    };
    open.pipeline(commands).await
}

#[cfg(test)]
mod tests;
