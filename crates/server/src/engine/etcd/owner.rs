//! Becoming the owner of a site in etcd, staying it, and the owner's transactions.
//!
//! The owner's key contains the process's name and the number of its last transaction; it is
//! attached to a lease, so it disappears when the process fails to renew the lease. Every
//! transaction compares the key's revision with the one that the previous transaction left, and
//! sets the key. So a transaction fails if another process has become the owner, and a request that
//! is repeated because its answer was lost takes effect once: a late duplicate finds another
//! revision and does nothing.
//!
//! Only etcd decides that a lease is over; no local clock does. A process that was suspended for an
//! hour finds out by its first transaction.
//!
//! A process that finds the key of an earlier process of its own data directory takes it over at
//! once: the directory's lock proves that the earlier process is gone. For the key of any other
//! process it waits.

use super::super::locked::{Ended, Locked, Op};
use super::api::compare::{CompareResult, CompareTarget, TargetUnion};
use super::api::request_op::Request as Is;
use super::api::response_op::Response as Was;
use super::api::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, TxnRequest,
    TxnResponse,
};
use super::client::{CallError, Client, EtcdError};
use super::health::Health;
use crate::config::EtcdConfig;
use model::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The pause before a failed call is repeated, and before the site's key is checked again.
const TRY_AGAIN: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often the lease is renewed per TTL.
const RENEWALS: u32 = 4;

/// Called when etcd has no room, and when it has room again.
pub(crate) type Room = Box<dyn FnMut(Option<String>) + Send>;

/// A site in etcd that this process owns.
pub(crate) struct Owner {
    runtime: tokio::runtime::Runtime,
    client: Arc<Client>,
    health: Health,
    stopping: Arc<AtomicBool>,
    prefix: Bytes,
    /// The id of this process: unique among all, before or after.
    name: String,
    lease: i64,
    /// The revision of the owner's key after the last transaction.
    lock: i64,
    transactions: u64,
    room: Option<Room>,
    full: bool,
}

/// The content of an owner's key: the data directory's id, the process's id, the transaction's
/// number.
fn value_of(name: &str, transactions: u64) -> Bytes {
    format!("{name} {transactions}").into()
}

fn is_at(key: Bytes, mod_revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        target_union: Some(TargetUnion::ModRevision(mod_revision)),
    }
}

fn op(is: Is) -> RequestOp {
    RequestOp { request: Some(is) }
}

fn look_at(key: Bytes) -> RequestOp {
    op(Is::RequestRange(RangeRequest { key, ..RangeRequest::default() }))
}

/// The owner's key as found by a transaction that did not succeed.
fn found(response: &TxnResponse) -> Option<&KeyValue> {
    response.responses.iter().find_map(|response| match &response.response {
        Some(Was::ResponseRange(range)) => range.kvs.first(),
        _ => None,
    })
}

impl Owner {
    /// Waits until this process owns the site below the configured prefix. `directory`: the data
    /// directory's id; `process`: this process's random id.
    pub(crate) fn campaign(
        config: &EtcdConfig,
        directory: u64,
        process: u64,
        health: Health,
    ) -> Result<Owner, EtcdError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .map_err(|error| {
                EtcdError::Refused(format!("the system refuses a runtime: {error}"))
            })?;
        let client = {
            let _inside = runtime.enter();
            Arc::new(Client::new(config)?)
        };
        let mut owner = Owner {
            runtime,
            client,
            health,
            stopping: Arc::default(),
            prefix: Bytes::from(format!("{}/", config.prefix)),
            name: format!("{directory:016x} {process:016x}"),
            lease: 0,
            lock: 0,
            transactions: 0,
            room: None,
            full: false,
        };
        owner.win(config.lease_ttl, directory).map_err(|ended| match ended {
            Ended::Failed(why) | Ended::Lost(why) => EtcdError::Refused(why),
            Ended::Stopped => EtcdError::Refused("it was stopped".to_owned()),
        })?;
        owner.renew(config.lease_ttl);
        Ok(owner)
    }

    fn win(&mut self, ttl: Duration, directory: u64) -> Result<(), Ended> {
        let key = self.key(b"owner");
        let mut warned = false;
        loop {
            let request = RangeRequest { key: key.clone(), ..RangeRequest::default() };
            let there = self.again(async |client| client.range(request.clone()).await)?;
            let there = there.kvs.into_iter().next();
            let own = format!("{directory:016x} ");
            if let Some(other) =
                there.as_ref().filter(|other| !other.value.starts_with(own.as_bytes()))
            {
                if !warned {
                    tracing::info!(
                        "the site is served by another process (it owns {}); this one waits and takes over \
                         when that one is gone",
                        key.escape_ascii()
                    );
                    tracing::debug!("the owner is {}", other.value.escape_ascii());
                    warned = true;
                }
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            let granted = self.again(async |client| client.grant(ttl).await)?;
            self.lease = granted.id;
            let put = PutRequest {
                key: key.clone(),
                value: value_of(&self.name, 0),
                lease: self.lease,
                ignore_lease: false,
            };
            let seen = there.as_ref().map_or(0, |there| there.mod_revision);
            let request = TxnRequest {
                compare: vec![is_at(key.clone(), seen)],
                success: vec![op(Is::RequestPut(put))],
                failure: vec![look_at(key.clone())],
            };
            // Not repeated unchanged: the lease may be over by then.
            let answer = self.wait(async |client| client.txn(request).await);
            let won = match answer {
                Ok(response) if response.succeeded => response.header.map(|header| header.revision),
                // An earlier attempt succeeded, but its answer was lost.
                Ok(response) => found(&response)
                    .filter(|there| there.value == value_of(&self.name, 0))
                    .filter(|there| there.lease == self.lease)
                    .map(|there| there.mod_revision),
                Err(CallError::Again(_) | CallError::Full(_)) => None,
                Err(CallError::Refused(why)) => return Err(Ended::Failed(why)),
            };
            if let Some(revision) = won {
                self.lock = revision;
                return Ok(());
            }
            if let Some(last) = there.filter(|there| there.lease != 0) {
                tracing::debug!("the owner's key was {}", last.value.escape_ascii());
            }
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Renews the lease until the owner is dropped.
    fn renew(&self, ttl: Duration) {
        let (client, lease) = (self.client.clone(), self.lease);
        self.runtime.spawn(async move {
            loop {
                match client.keep_alive(lease).await {
                    // The next transaction reports what this means.
                    Ok(false) => return,
                    Ok(true) => tokio::time::sleep(ttl / RENEWALS).await,
                    Err(_) => tokio::time::sleep(TRY_AGAIN).await,
                }
            }
        });
    }

    /// Sets the function that is called about a lack of room.
    pub(crate) fn report_room(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// When set, all repeated calls end.
    pub(crate) fn stopping(&self) -> Arc<AtomicBool> {
        self.stopping.clone()
    }

    /// Gives the site up, so that its next owner need not wait for the end of the lease. Tried
    /// once.
    pub(crate) fn resign(&mut self) {
        // The key is removed with its lease.
        let _ = self.runtime.block_on(self.client.revoke(self.lease));
    }

    fn key(&self, name: &[u8]) -> Bytes {
        [self.prefix.as_ref(), name].concat().into()
    }

    fn wait<A>(
        &self,
        call: impl AsyncFnOnce(&Client) -> Result<A, CallError>,
    ) -> Result<A, CallError> {
        self.runtime.block_on(call(&self.client))
    }

    /// Repeats a call until it has an answer. The call must be idempotent.
    fn again<A>(
        &mut self,
        call: impl AsyncFn(&Client) -> Result<A, CallError>,
    ) -> Result<A, Ended> {
        loop {
            let endpoint = self.client.endpoint().to_owned();
            match self.runtime.block_on(call(&self.client)) {
                Ok(answer) => {
                    if std::mem::take(&mut self.full) {
                        self.log_room(None);
                    }
                    return Ok(answer);
                }
                Err(CallError::Refused(why)) => return Err(Ended::Failed(format!("etcd: {why}"))),
                Err(CallError::Full(why)) => {
                    self.health.retry(&endpoint, &why);
                    if !std::mem::replace(&mut self.full, true) {
                        self.log_room(Some(why));
                    }
                }
                Err(CallError::Again(why)) => {
                    if self.health.retry(&endpoint, &why) {
                        tracing::warn!("etcd at {endpoint} did not answer; retrying: {why}");
                    }
                }
            }
            if self.stopping.load(Ordering::Relaxed) {
                return Err(Ended::Stopped);
            }
            std::thread::sleep(TRY_AGAIN);
        }
    }

    fn log_room(&mut self, full: Option<String>) {
        if let Some(room) = &mut self.room {
            room(full.map(|why| {
                format!("etcd reports {why:?}: compact and defragment it, then disarm its alarm")
            }));
        }
    }

    /// The error for a lock that is gone.
    fn lost(response: &TxnResponse) -> Ended {
        Ended::Lost(match found(response) {
            Some(_) => "another process has taken the site over".to_owned(),
            None => {
                "the lease on the site ran out: etcd was not reached in time, or this process was \
                     suspended"
                    .to_owned()
            }
        })
    }

    fn in_etcd(&self, op_: Op) -> RequestOp {
        op(match op_ {
            Op::Put { key, value } => {
                Is::RequestPut(PutRequest { key: self.key(&key), value, ..PutRequest::default() })
            }
            Op::Delete { key } => Is::RequestDeleteRange(DeleteRangeRequest {
                key: self.key(&key),
                range_end: Bytes::new(),
            }),
            Op::DeleteRange { from, until } => Is::RequestDeleteRange(DeleteRangeRequest {
                key: self.key(&from),
                range_end: self.key(&until),
            }),
        })
    }
}

impl Locked for Owner {
    fn commit(&mut self, ops: Vec<Op>) -> Result<(), Ended> {
        let (key, value) = (self.key(b"owner"), value_of(&self.name, self.transactions + 1));
        let mut success: Vec<_> = ops.into_iter().map(|op| self.in_etcd(op)).collect();
        success.push(op(Is::RequestPut(PutRequest {
            key: key.clone(),
            value: value.clone(),
            lease: 0,
            ignore_lease: true,
        })));
        let request = TxnRequest {
            compare: vec![is_at(key.clone(), self.lock)],
            success,
            failure: vec![look_at(key)],
        };
        let began = Instant::now();
        let response = self.again(async |client| client.txn(request.clone()).await)?;
        self.lock = match response.header {
            Some(header) if response.succeeded => header.revision,
            // The first attempt took effect, but its answer was lost.
            _ => match found(&response).filter(|there| there.value == value) {
                Some(there) => there.mod_revision,
                None => return Err(Self::lost(&response)),
            },
        };
        self.transactions += 1;
        self.health.transaction(self.client.endpoint(), began.elapsed());
        Ok(())
    }

    fn check(&mut self) -> Result<(), Ended> {
        let key = self.key(b"owner");
        // The transaction must read something: etcd answers one without any operation from the
        // asked member's local state, which may be stale.
        let request = TxnRequest {
            compare: vec![is_at(key.clone(), self.lock)],
            success: vec![look_at(key.clone())],
            failure: vec![look_at(key)],
        };
        let began = Instant::now();
        let response = self.again(async |client| client.txn(request.clone()).await)?;
        if !response.succeeded {
            return Err(Self::lost(&response));
        }
        self.health.transaction(self.client.endpoint(), began.elapsed());
        Ok(())
    }

    fn page(
        &mut self,
        from: &[u8],
        until: &[u8],
        rows_max: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, Ended> {
        let request = RangeRequest {
            key: self.key(from),
            range_end: self.key(until),
            limit: rows_max as i64,
        };
        let answer = self.again(async |client| client.range(request.clone()).await)?;
        let below = |row: KeyValue| (row.key.slice(self.prefix.len()..), row.value);
        Ok(answer.kvs.into_iter().map(below).collect())
    }
}
