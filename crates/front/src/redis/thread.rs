//! The state shared by the connections of one front thread, and by all threads of a port.

use super::clients::Clients;
use super::cluster::ClusterPort;
use super::cursors::Cursors;
use super::notifications::Audience;
use super::table::{CommandNumber, table};
use crate::permits::{Permit, Permits};
use bytes::BytesMut;
use prometheus_client::metrics::counter::Counter;
use server::Handle;
use server::durations::Durations;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The size of one read. Most requests fit.
pub(super) const READ_BYTES: usize = 16 << 10;
/// A larger buffer is dropped instead of kept.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// Buffers that a thread keeps for connections that become active.
const SPARES_MAX: usize = 64;

/// The state shared by all threads of one of a node's Redis ports.
pub(super) struct Shared {
    pub(super) cursors: Mutex<Cursors>,
    pub(super) clients: Clients,
    pub(super) audience: Arc<Audience>,
    pub(super) port: u16,
    pub(super) connections_max: usize,
    /// Set on the port of the Redis Cluster protocol; `None`: this is the other one.
    pub(super) cluster: Option<ClusterPort>,
    permits: Arc<Permits>,
    last_id: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        port: u16,
        connections_max: usize,
        salt: u64,
        cluster: Option<ClusterPort>,
        handle: &Handle,
    ) -> Shared {
        let front = front(cluster.as_ref());
        Shared {
            cursors: Mutex::new(Cursors::new(salt)),
            clients: Clients::default(),
            audience: Arc::default(),
            port,
            connections_max,
            cluster,
            permits: Permits::new(front, connections_max, handle),
            last_id: AtomicU64::new(0),
        }
    }

    /// The front's name in metrics.
    fn front(&self) -> &'static str {
        front(self.cluster.as_ref())
    }

    /// The number of open connections.
    pub(super) fn open(&self) -> usize {
        self.permits.open()
    }

    pub(super) fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The front's name in metrics.
fn front(cluster: Option<&ClusterPort>) -> &'static str {
    if cluster.is_some() { "redis_cluster" } else { "redis" }
}

/// A connection's number and permit; both are free again when it is dropped.
pub(super) struct Numbered {
    shared: Arc<Shared>,
    pub(super) permit: Arc<Permit>,
    pub(super) id: u64,
}

impl Numbered {
    /// Takes a permit; `None`: all are taken.
    pub(super) fn take(thread: &Thread, address: IpAddr) -> Option<Numbered> {
        let shared = thread.shared.clone();
        let permit = shared.permits.take(address)?;
        let id = shared.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Numbered { shared, permit, id })
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.shared.clients.remove(self.id as i64);
    }
}

/// The state shared by the connections of one front thread.
pub(super) struct Thread {
    pub(super) handle: Handle,
    pub(super) shared: Arc<Shared>,
    operations: Vec<OnceLock<Operation>>,
    spares: Mutex<Vec<BytesMut>>,
}

struct Operation {
    duration: Durations,
    errors: Counter,
}

impl Thread {
    pub(super) fn new(handle: Handle, shared: Arc<Shared>) -> Thread {
        let operations = table().all().iter().map(|_| OnceLock::new()).collect();
        Thread { handle, shared, operations, spares: Mutex::default() }
    }

    /// Counts `times` executions of one command, each of which took this long.
    pub(super) fn count(
        &self,
        command: CommandNumber,
        times: u64,
        duration: Duration,
        errors: u64,
    ) {
        let number = usize::from(command.0);
        let operation = self.operations[number].get_or_init(|| {
            let (name, metrics) = (table().all()[number].0.name, self.handle.metrics());
            let front = self.shared.front();
            let duration = metrics.operation(front, name);
            Operation { duration, errors: metrics.errors(front, name) }
        });
        operation.duration.observe_many(duration, times);
        if errors > 0 {
            operation.errors.inc_by(errors);
        }
    }

    /// The nodes besides this one that certainly have every acknowledged write: a majority less
    /// one.
    pub(super) fn other_nodes_with_every_write(&self) -> usize {
        self.handle.status().members.nodes.len() / 2
    }

    /// An empty buffer.
    pub(super) fn take_buffer(&self) -> BytesMut {
        let spare = self.spares().pop();
        spare.unwrap_or_else(|| BytesMut::with_capacity(READ_BYTES))
    }

    /// Keeps an unused buffer: an idle connection has none.
    pub(super) fn give_buffer(&self, mut buffer: BytesMut) {
        if buffer.capacity() == 0 {
            return;
        }
        buffer.clear();
        // The memory of earlier arguments is reused unless some of them are still referenced.
        buffer.reserve(READ_BYTES);
        let mut spares = self.spares();
        if buffer.capacity() <= SPARE_BYTES_MAX && spares.len() < SPARES_MAX {
            spares.push(buffer);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
