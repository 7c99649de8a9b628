//! A front's access to its site.

use crate::backup::{self, BackupError};
use crate::batcher::{Batcher, Outcome, Reply};
use crate::clock::Clock;
use crate::config::ClientsConfig;
use crate::engine::SiteState;
use crate::engine::etcd::health::{EtcdStatus, Health};
use crate::logins::{Attempt, LoginError, Logins};
use crate::metrics::Metrics;
use crate::node::Event;
use crate::peers::{PeerAuth, TokenError, TokenScope};
use crate::users::{User, Users};
use crate::watch::{Watch, Watched};
use model::HeldSize;
use model::{
    Answer, Bytes, Catalog, CausalToken, ClientName, DeploymentId, Failure, Keyspace, KeyspaceId,
    NodeId, Query, ReadConsistency, Request, Revision, SessionToken, SiteId, SiteName, Slot,
    SlotSet, limits,
};
use protocol::global::accesses::{Caller, Entry};
use protocol::placement::Sampler;
use protocol::site::machine::Reader;
use protocol::site::machine::causal::session::{CausalPoint, SessionRead};
use protocol::site::{MapView, ReadGate, Status};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, RwLock, mpsc};
use std::time::Duration;

/// What all handles of a node share.
pub(crate) struct Shared {
    pub(crate) site: SiteName,
    pub(crate) node: NodeId,
    pub(crate) clock: Clock,
    pub(crate) reader: Reader<SiteState>,
    pub(crate) gate: Gate,
    pub(crate) events: mpsc::Sender<Event>,
    /// Requests that the site's thread has not yet taken.
    pub(crate) requests_waiting: AtomicUsize,
    pub(crate) status: RwLock<Arc<Status>>,
    /// See [`Handle::is_current`].
    pub(crate) is_current: AtomicBool,
    pub(crate) applied: tokio::sync::watch::Sender<u64>,
    /// The revision up to which changes may be published; all of them, unless the site's keys are
    /// kept elsewhere.
    pub(crate) released: AtomicU64,
    pub(crate) etcd: Option<Health>,
    pub(crate) watched: Watched,
    pub(crate) logins: Logins,
    pub(crate) clients: ClientsConfig,
    pub(crate) auth: Arc<PeerAuth>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) data: PathBuf,
    /// Bytes of the disk that backups leave free.
    pub(crate) reserve_bytes: u64,
}

impl Shared {
    /// Answers a query on the calling thread if that is allowed now.
    pub(crate) fn answer(
        &self,
        caller: Caller<'_>,
        keyspace: KeyspaceId,
        query: &Query,
        consistency: ReadConsistency,
    ) -> Option<Outcome> {
        let now = || self.clock.monotonic();
        let closings = self.gate.closings();
        let gate = self.gate.get();
        let answer = gate.answer(now, &self.reader, keyspace, query, consistency, caller);
        // The state may have been replaced during the query; the core answers from a complete one.
        answer.filter(|_| self.gate.closings() == closings).map(Ok)
    }

    /// What is found in the state of this node. `None`: it has none to read (a witness, a removed
    /// node, one that is loading a snapshot), or that was replaced meanwhile.
    pub(crate) fn of_whole_state<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let closings = self.gate.closings();
        if matches!(self.gate.get(), ReadGate::Closed) {
            return None;
        }
        let found = read();
        (self.gate.closings() == closings).then_some(found)
    }
}

/// A node, as seen from one front thread. Clones share that thread's batcher; another runtime needs
/// a handle of its own from [`crate::Node::handle`].
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) batcher: Arc<Batcher>,
    /// Which accesses of this thread are counted.
    pub(crate) sampler: Arc<Sampler>,
}

impl Handle {
    /// Answers a query on the calling thread if that is allowed now: a stale read, a read of a
    /// keyspace with lease reads while the lease lasts, or any read on a node that is its site's
    /// only voter. `direct` and `client`: see [`Request`]. `None`: use [`Handle::call`].
    pub fn answer_here(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        consistency: ReadConsistency,
        (direct, client): (bool, ClientName),
    ) -> Option<Outcome> {
        let entry = if direct { Entry::Unknown } else { Entry::Here };
        let caller = Caller { entry, client, sampler: &self.sampler };
        self.shared.answer(caller, keyspace, query, consistency)
    }

    /// Answers a query of a causal keyspace in a session, with the session's token from here on, if
    /// what this node has applied covers that. `None`: use [`Handle::call_in_session`].
    pub fn answer_in_session(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        token: CausalToken,
    ) -> Option<(Outcome, CausalToken)> {
        let shared = &*self.shared;
        let closings = shared.gate.closings();
        // The core has the clock by which people name moments.
        if shared.gate.get() == ReadGate::Closed || matches!(query, Query::Expiry { .. }) {
            return None;
        }
        match shared.reader.in_session(keyspace, query, None, token) {
            Ok(SessionRead::Answered(answer, token)) if shared.gate.closings() == closings => {
                Some((answer.map_err(Failure::Refused), token))
            }
            _ => None,
        }
    }

    /// Whether this site holds a keyspace, which a causal one may not.
    pub fn holds(&self, keyspace: KeyspaceId) -> bool {
        self.shared.reader.check_held(keyspace).is_ok()
    }

    /// How far this node is in its region's order.
    pub fn causal(&self) -> CausalPoint {
        self.shared.reader.causal()
    }

    /// What this node's site holds on demand of causal keyspaces.
    pub fn held(&self) -> HeldSize {
        self.shared.reader.held()
    }

    /// Sends a request of a session to the site and waits for its answer.
    pub async fn call_in_session(&self, request: Request) -> Reply {
        let reply = self.ask_many(vec![request]).await.pop().expect("one answer a request");
        Reply { outcome: self.unmark(reply.outcome).0, ..reply }
    }

    /// Sends a request to the site and waits for its answer.
    pub async fn call(&self, request: Request) -> Outcome {
        let mut outcomes = self.call_many(vec![request]).await;
        outcomes.pop().expect("one answer a request")
    }

    /// The same for a read; with the age of the answer if it came from the backup of an unreachable
    /// site.
    pub async fn call_marked(&self, request: Request) -> (Outcome, Option<Duration>) {
        let mut replies = self.ask_many(vec![request]).await;
        self.unmark(replies.pop().expect("one answer a request").outcome)
    }

    /// Unwraps an answer that is marked as from a backup.
    fn unmark(&self, outcome: Outcome) -> (Outcome, Option<Duration>) {
        match outcome {
            Ok(Answer::FromBackup { outcome, caught_up_ms }) => {
                self.shared.metrics.read_from_backup();
                let now_ms = self.shared.clock.now().wall_ms;
                let age = Duration::from_millis(now_ms.saturating_sub(caught_up_ms));
                ((*outcome).map_err(Failure::Refused), Some(age))
            }
            outcome => (outcome, None),
        }
    }

    /// Sends several requests. Those on one key, and all on keys that this site holds, take effect
    /// in this order, unless one is refused. Returns when all answers are there.
    pub async fn call_many(&self, requests: Vec<Request>) -> Vec<Outcome> {
        let replies = self.ask_many(requests).await;
        replies.into_iter().map(|reply| self.unmark(reply.outcome).0).collect()
    }

    async fn ask_many(&self, requests: Vec<Request>) -> Vec<Reply> {
        let shared = &*self.shared;
        let count = requests.len();
        if shared.requests_waiting.fetch_add(count, Ordering::Relaxed) > limits::INPUTS_WAITING_MAX
        {
            shared.requests_waiting.fetch_sub(count, Ordering::Relaxed);
            let failure = Failure::Overloaded { what: "requests for the site's thread" };
            return (0..count).map(|_| Err(failure.clone()).into()).collect();
        }
        let call = self.batcher.open(count);
        let numbered = requests.into_iter().enumerate();
        self.batcher.send(numbered.map(|(nth, request)| (call.ticket(nth), request)));
        call.answers().await
    }

    /// The same for requests of a session, or of none.
    pub async fn call_many_in_session(&self, requests: Vec<Request>) -> Vec<Reply> {
        let replies = self.ask_many(requests).await;
        let unmarked = |reply: Reply| Reply { outcome: self.unmark(reply.outcome).0, ..reply };
        replies.into_iter().map(unmarked).collect()
    }

    /// The keyspaces, as this node has applied them. Until it [is current](Self::is_current), those
    /// that clients were answered may be missing.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.shared.reader.catalog()
    }

    /// Whether this node has applied all that its site had agreed on at some moment after the
    /// node's start. Before that its catalog may be empty: a node that starts applies its log only
    /// when a leader tells it how much of it counts.
    pub fn is_current(&self) -> bool {
        self.shared.is_current.load(Ordering::Acquire)
    }

    /// Whether this node can answer requests: it is a member, the leader or in contact with it, and
    /// current, unless it is a witness.
    pub fn is_ready(&self) -> bool {
        let status = self.status();
        status.ready && (self.is_current() || status.witness)
    }

    /// Waits until this node is current, for `timeout` at most.
    ///
    /// # Errors
    /// [`Failure::NoLeader`] and [`Failure::NotServing`]: it is not current yet, or never will be.
    /// What was to be done has no effect.
    pub async fn wait_until_current(&self, timeout: Duration) -> Result<(), Failure> {
        const LOOK_AGAIN: Duration = Duration::from_millis(5);
        let look = async {
            while !self.is_current() {
                if self.status().witness {
                    return Err(Failure::NotServing("it is a witness and holds no data"));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        let looked = tokio::time::timeout(timeout, look).await;
        looked.unwrap_or_else(|_| match self.status().leader {
            None => Err(Failure::NoLeader),
            Some(_) => {
                Err(Failure::NotServing("it has just started and has not applied its log yet"))
            }
        })
    }

    /// Waits until this node has applied all entries up to a read index of its site that is taken
    /// now.
    pub(crate) async fn catch_up(&self) {
        const TRY_AGAIN: Duration = Duration::from_millis(5);
        // `default` is local: its linearizable reads are answered by this node's own state.
        let read =
            || Request::read(KeyspaceId::DEFAULT, Query::Count, ReadConsistency::Linearizable);
        while self.call(read()).await.is_err() {
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    /// Once it has caught up after its start.
    pub(crate) fn set_current(&self) {
        self.shared.is_current.store(true, Ordering::Release);
    }

    /// Waits until this node has a created keyspace, or until a deadline.
    pub async fn wait_for_keyspace(&self, keyspace: KeyspaceId) {
        const LOOK_AGAIN: Duration = Duration::from_millis(5);
        const LOOKS_MAX: usize = 400;
        for _ in 0..LOOKS_MAX {
            if self.catalog().by_id(keyspace).is_some() {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The owners of slots, as this node has learned them; empty: its site belongs to no
    /// deployment.
    pub async fn slot_map(&self) -> Vec<(SlotSet, SiteId)> {
        let mut by_site: BTreeMap<SiteId, Vec<Slot>> = BTreeMap::new();
        for owned in self.map_view().await.owners {
            by_site.entry(owned.site).or_default().extend(owned.slots.iter());
        }
        by_site.into_iter().map(|(site, slots)| (slots.into_iter().collect(), site)).collect()
    }

    /// The same, with how certain each owner is, the leaders of the sites that have sent a message,
    /// and the sites that do not answer.
    pub async fn map_view(&self) -> MapView {
        let (caller, answer) = tokio::sync::oneshot::channel();
        match self.shared.events.send(Event::SlotMap(caller)) {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => MapView::default(),
        }
    }

    /// Whether this site serves a slot of global keyspaces, as far as this node has applied the
    /// log.
    pub fn serves(&self, slot: Slot) -> bool {
        self.shared.reader.serves(slot)
    }

    /// Whether this site serves a key of a global keyspace, as far as this node has applied the
    /// log. The key's group may be lent, here or elsewhere.
    pub fn serves_key(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        self.shared.reader.serves_key(keyspace, key)
    }

    /// The number of keys of global keyspaces in a slot that this site serves, and a limited number
    /// of them, restricted to keyspaces that `may_read` allows.
    pub fn in_slot(
        &self,
        slot: Slot,
        keys_max: usize,
        may_read: impl Fn(&Keyspace) -> bool,
    ) -> (u64, Vec<Bytes>) {
        let catalog = self.catalog();
        let (mut count, mut keys) = (0, Vec::new());
        let is_asked = |keyspace: &&Keyspace| keyspace.spec.is_global() && may_read(keyspace);
        for keyspace in catalog.all().into_iter().filter(is_asked) {
            let left = keys_max - keys.len();
            if let Ok((more, found)) = self.shared.reader.in_slot(keyspace.id, slot, left) {
                count += more;
                keys.extend(found);
            }
        }
        (count, keys)
    }

    /// Watches the changes of some keyspaces, from now on or from just after a revision.
    pub async fn watch(
        &self,
        keyspaces: Vec<KeyspaceId>,
        after: Option<Revision>,
    ) -> Result<Watch, Failure> {
        Watch::open(self.clone(), keyspaces, after).await
    }

    /// The users and their rights.
    pub fn users(&self) -> &Users {
        self.shared.logins.users()
    }

    /// The client of a user by the name that it gives itself, as sites count its accesses; empty:
    /// none.
    pub fn client_name(&self, user: &User, name: &[u8]) -> ClientName {
        let user = (!self.users().is_open()).then(|| user.name());
        ClientName::of(user, name)
    }

    /// The user of a login whose password was verified before.
    pub fn recall(&self, name: &str, password: &[u8]) -> Option<Arc<User>> {
        let user = self.users().recall(name, password)?;
        self.shared.metrics.admission.login("right");
        Some(user)
    }

    /// Verifies a login, on another thread if the password was not verified before.
    pub async fn login(
        &self,
        attempt: Attempt,
        name: String,
        password: Vec<u8>,
    ) -> Result<Arc<User>, LoginError> {
        if let Some(user) = self.recall(&name, &password) {
            return Ok(user);
        }
        let (logins, metrics) = (&self.shared.logins, &self.shared.metrics.admission);
        let verified = logins.verify(attempt, name, password).await;
        metrics.login(match &verified {
            Ok(_) => "right",
            Err(LoginError::Denied(_)) => "wrong",
            Err(LoginError::Busy) => "busy",
        });
        verified
    }

    /// The settings for clients.
    pub fn clients(&self) -> &ClientsConfig {
        &self.shared.clients
    }

    /// Creates a join token for a new node; with its expiry time, in milliseconds since 1970.
    pub fn make_join_token(
        &self,
        scope: TokenScope,
        life: Duration,
    ) -> Result<(String, u64), TokenError> {
        self.shared.auth.make_token(scope, life)
    }

    /// A session's token as its client carries it; `None`: the site belongs to no deployment, or
    /// the system provides no random numbers.
    pub fn seal_session(&self, token: &SessionToken) -> Option<Bytes> {
        self.shared.auth.seal(self.deployment()?, token)
    }

    /// The token in what a client carries; `None`: no node of this deployment has sealed it, or one
    /// with a secret that this node lacks.
    pub fn open_session(&self, sealed: &[u8]) -> Option<SessionToken> {
        self.shared.auth.seals(self.deployment()?).open(sealed)
    }

    /// By the state, not by the status: that one lags by a tick, and a client may have a token
    /// before it.
    fn deployment(&self) -> Option<DeploymentId> {
        self.shared.reader.deployment()
    }

    /// The node's metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.shared.metrics
    }

    /// The status of the replica, at most one tick old.
    pub fn status(&self) -> Arc<Status> {
        self.shared.status.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The health of the etcd cluster that holds the site's keys, if there is one.
    pub fn etcd(&self) -> Option<EtcdStatus> {
        self.shared.etcd.as_ref().map(Health::status)
    }

    /// The revision up to which changes may be published.
    pub(crate) fn released(&self) -> Revision {
        Revision(self.shared.released.load(Ordering::SeqCst))
    }

    /// The site this node belongs to.
    pub fn site(&self) -> &SiteName {
        &self.shared.site
    }

    /// This node's id in its site.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// This process's clocks.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// The node's data directory.
    pub fn data(&self) -> &PathBuf {
        &self.shared.data
    }

    /// The latest log time that this node has applied, in milliseconds since 1970. It decides
    /// expiry.
    pub fn log_time_ms(&self) -> u64 {
        self.shared.reader.log_time_ms()
    }

    /// The number of keys in all keyspaces.
    pub fn key_count(&self) -> u64 {
        let catalog = self.catalog();
        let counts =
            catalog.all().into_iter().map(|keyspace| self.shared.reader.count(keyspace.id));
        counts.map(Result::unwrap_or_default).sum()
    }

    /// The number of keys in all keyspaces that have an expiry.
    pub fn expiring_count(&self) -> u64 {
        let catalog = self.catalog();
        let counts = catalog
            .all()
            .into_iter()
            .map(|keyspace| self.shared.reader.expiring_count(keyspace.id));
        counts.map(Result::unwrap_or_default).sum()
    }

    /// Whether this node has a state that it can write a backup of.
    pub fn can_back_up(&self) -> bool {
        backup::is_possible(&self.shared)
    }

    /// Writes a backup of the present state to `path` (which must not exist) while the node keeps
    /// serving, as long as the file is wanted. Slow: call it on a thread that may block. Returns
    /// the revision of the backup.
    pub fn write_backup(
        &self,
        path: &std::path::Path,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Revision, BackupError> {
        backup::write(&self.shared, path, is_wanted)
    }
}

/// The gate as the site's thread last set it, readable without a lock.
pub(crate) struct Gate {
    now: AtomicU64,
    /// How often it was closed. A reader that passed it before may read a state that is being
    /// replaced.
    closings: AtomicU64,
}

const CLOSED: u64 = 0;
const STALE: u64 = 1;
const OPEN: u64 = u64::MAX;

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate { now: AtomicU64::new(CLOSED), closings: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, gate: ReadGate) {
        let value = match gate {
            ReadGate::Closed => CLOSED,
            ReadGate::Stale => STALE,
            ReadGate::Lease(until) => (until.as_nanos() as u64).clamp(STALE + 1, OPEN - 1),
            ReadGate::Open => OPEN,
        };
        self.now.store(value, Ordering::SeqCst);
        if value == CLOSED {
            self.closings.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(crate) fn closings(&self) -> u64 {
        // Orders all earlier reads of the state before this load.
        fence(Ordering::Acquire);
        self.closings.load(Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> ReadGate {
        match self.now.load(Ordering::SeqCst) {
            CLOSED => ReadGate::Closed,
            STALE => ReadGate::Stale,
            OPEN => ReadGate::Open,
            until => ReadGate::Lease(Duration::from_nanos(until)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_keeps_what_it_is_set_to() {
        let gate = Gate::new();
        for set in [
            ReadGate::Stale,
            ReadGate::Open,
            ReadGate::Lease(Duration::from_millis(7)),
            ReadGate::Closed,
        ] {
            gate.set(set);
            assert_eq!(gate.get(), set);
        }
    }

    #[test]
    fn a_read_that_passed_the_gate_before_it_closed_can_detect_it() {
        let gate = Gate::new();
        gate.set(ReadGate::Stale);
        let closings = gate.closings();
        gate.set(ReadGate::Open);
        gate.set(ReadGate::Stale);
        assert_eq!(gate.closings(), closings);
        gate.set(ReadGate::Closed);
        gate.set(ReadGate::Stale);
        assert_ne!(gate.closings(), closings, "also when it is open again");
    }
}
