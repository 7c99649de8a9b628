//! The connections that a port may have at once, and which are closed when there are more.
//!
//! A connection is *pending* until it has logged in (without users: until it has sent a request).
//! A pending connection costs its client nothing, so it must not keep other clients out: pending
//! connections have only a part of the permits, the rest is reserved for admitted ones. A new
//! connection that finds no permit gets that of the pending one that has been silent longest. Where
//! there are users, a pending connection is closed at the login deadline, unless its password is
//! being verified. Admitted connections are never closed to make room.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use server::Handle;
use server::admission::Closed;
use server::logins::Attempt;
use std::collections::{BTreeSet, HashMap};
use std::future::{Future as _, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// The permits of one port.
pub(crate) struct Permits {
    max: usize,
    /// The permits that pending connections may take.
    pending_max: usize,
    /// The time limit for a login.
    login_timeout: Option<Duration>,
    open: Gauge,
    closed: [Counter; 4],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: usize,
    /// Counts the actions of pending connections.
    now: u64,
    pending: HashMap<u64, Pending>,
    /// Closable connections: first those that never sent anything, then by their last action.
    by_silence: BTreeSet<(bool, u64, u64)>,
}

struct Pending {
    has_sent: bool,
    /// The value of `now` at its last action.
    acted_at: u64,
    /// The number of its passwords that are being verified.
    logins: u32,
    away: Arc<Notify>,
}

impl Pending {
    fn place(&self, id: u64) -> (bool, u64, u64) {
        (self.has_sent, self.acted_at, id)
    }
}

/// One permit; free again when it is dropped.
pub(crate) struct Permit {
    permits: Arc<Permits>,
    id: u64,
    address: IpAddr,
    is_admitted: AtomicBool,
    /// The number of wrong passwords on this connection.
    failures: AtomicU32,
    away: Arc<Notify>,
}

impl Permits {
    /// The permits of a port of a node.
    pub(crate) fn new(front: &'static str, max: usize, handle: &Handle) -> Arc<Permits> {
        let (clients, metrics) = (handle.clients(), handle.metrics());
        let all = [Closed::Full, Closed::Displaced, Closed::Login, Closed::Idle];
        let has_users = !handle.users().is_open();
        let percent = usize::from(clients.reserved_percent);
        let pending_max = match has_users {
            true => (max - (max * percent).div_ceil(100)).max(1),
            false => max,
        };
        Arc::new(Permits {
            max,
            pending_max,
            login_timeout: clients.login_timeout.filter(|_| has_users),
            open: metrics.connections(front),
            closed: all.map(|why| metrics.closed(front, why)),
            state: Mutex::default(),
        })
    }

    /// The number of taken permits.
    pub(crate) fn open(&self) -> usize {
        self.lock().open
    }

    /// A permit for a new connection, or `None`: all are taken by connections that keep theirs.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Permit>> {
        let away = Arc::new(Notify::new());
        let mut state = self.lock();
        if state.open >= self.max || state.pending.len() >= self.pending_max {
            let Some((_, _, id)) = state.by_silence.pop_first() else {
                self.count(Closed::Full);
                return None;
            };
            let pending = state.pending.remove(&id).expect("silent connections are pending");
            pending.away.notify_one();
            self.freed(&mut state);
            self.count(Closed::Displaced);
        }
        state.now += 1;
        let id = state.now;
        let pending = Pending { has_sent: false, acted_at: id, logins: 0, away: away.clone() };
        state.by_silence.insert(pending.place(id));
        state.pending.insert(id, pending);
        state.open += 1;
        self.open.inc();
        let (is_admitted, failures) = (AtomicBool::new(false), AtomicU32::new(0));
        Some(Arc::new(Permit { permits: self.clone(), id, address, is_admitted, failures, away }))
    }

    /// Counts a connection that was closed.
    pub(crate) fn count(&self, why: Closed) {
        self.closed[why as usize].inc();
    }

    fn freed(&self, state: &mut State) {
        state.open -= 1;
        self.open.dec();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The connection keeps its permit from now on.
    pub(crate) fn admit(&self) {
        if self.is_admitted.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.permits.lock();
        // If it is no longer a pending, it was closed meanwhile.
        if let Some(pending) = state.pending.remove(&self.id) {
            state.by_silence.remove(&pending.place(self.id));
            self.is_admitted.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    /// Records an action of a pending.
    pub(crate) fn touch(&self) {
        self.change(|_| {});
    }

    /// Marks a password of this connection as being verified, until the guard is dropped.
    pub(crate) fn logs_in(&self) -> LogsIn<'_> {
        self.change(|pending| pending.logins += 1);
        LogsIn(self)
    }

    /// Counts a wrong password.
    pub(crate) fn was_wrong(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The login attempt of this connection.
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt { address: self.address, failures: self.failures.load(Ordering::Relaxed) }
    }

    /// Counts the reason for which it was closed.
    pub(crate) fn count(&self, why: Closed) {
        self.permits.count(why);
    }

    fn change(&self, change: impl FnOnce(&mut Pending)) {
        if self.is_admitted() {
            return;
        }
        let mut state = self.permits.lock();
        let State { now, pending, by_silence, .. } = &mut *state;
        let Some(pending) = pending.get_mut(&self.id) else { return };
        by_silence.remove(&pending.place(self.id));
        *now += 1;
        (pending.has_sent, pending.acted_at) = (true, *now);
        change(pending);
        if pending.logins == 0 {
            by_silence.insert(pending.place(self.id));
        }
    }

    /// Completes when the connection must be closed: never, once it is admitted.
    pub(crate) async fn evicted(&self) {
        let mut evicted = pin!(self.evicted_while_pending());
        // Admitted connections do not pay for this check.
        poll_fn(|context| match self.is_admitted() {
            true => Poll::Pending,
            false => evicted.as_mut().poll(context),
        })
        .await;
    }

    async fn evicted_while_pending(&self) {
        let Some(timeout) = self.permits.login_timeout else { return self.away.notified().await };
        loop {
            tokio::select! {
                () = self.away.notified() => return,
                () = tokio::time::sleep(timeout) => if self.is_late() { return },
            }
        }
    }

    /// Whether it is still pending; its permit is free then.
    fn is_late(&self) -> bool {
        let mut state = self.permits.lock();
        let State { pending: all, by_silence, .. } = &mut *state;
        let Some(pending) = all.get(&self.id).filter(|one| one.logins == 0) else {
            return false;
        };
        by_silence.remove(&pending.place(self.id));
        all.remove(&self.id);
        self.permits.freed(&mut state);
        self.permits.count(Closed::Login);
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        let pending = state.pending.remove(&self.id);
        if let Some(pending) = &pending {
            state.by_silence.remove(&pending.place(self.id));
        }
        // Otherwise the connection was closed, and its permit is in use by another one.
        if pending.is_some() || self.is_admitted() {
            self.permits.freed(&mut state);
        }
    }
}

/// Exists while a password is being verified.
pub(crate) struct LogsIn<'a>(&'a Permit);

impl Drop for LogsIn<'_> {
    fn drop(&mut self) {
        self.0.change(|pending| pending.logins -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(max: usize, pending_max: usize, login_timeout: Option<Duration>) -> Arc<Permits> {
        let (open, closed) = (Gauge::default(), [(); 4].map(|()| Counter::default()));
        let state = Mutex::default();
        Arc::new(Permits { max, pending_max, login_timeout, open, closed, state })
    }

    fn take(permits: &Arc<Permits>) -> Option<Arc<Permit>> {
        permits.take(IpAddr::from([127, 0, 0, 1]))
    }

    fn closed(permits: &Permits) -> [u64; 4] {
        [0, 1, 2, 3].map(|why: usize| permits.closed[why].get())
    }

    /// Whether the connection must be closed, without waiting.
    async fn is_away(permit: &Permit) -> bool {
        let mut away = pin!(permit.evicted());
        poll_fn(|context| Poll::Ready(away.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_new_connection_displaces_the_one_silent_longest() {
        let permits = permits(3, 3, None);
        let [first, second, third] = [(); 3].map(|()| take(&permits).unwrap());
        first.touch();
        let _fourth = take(&permits).unwrap();
        assert!(is_away(&second).await && !is_away(&first).await && !is_away(&third).await);
        let _fifth = take(&permits).unwrap();
        assert!(is_away(&third).await, "a connection that sent nothing goes first");
        assert_eq!((permits.open(), closed(&permits)), (3, [0, 2, 0, 0]));
        drop((second, third));
        assert_eq!(permits.open(), 3, "their permits are in use again");
    }

    #[tokio::test]
    async fn admitted_connections_keep_their_permits_and_have_a_reserve() {
        let permits = permits(4, 2, None);
        let known: Vec<_> = (0..3).map(|_| take(&permits).unwrap()).collect();
        assert!(is_away(&known[0]).await, "pending connections have two of four permits");
        known[1].admit();
        known[2].admit();
        let (fourth, fifth) = (take(&permits).unwrap(), take(&permits).unwrap());
        let _sixth = take(&permits).unwrap();
        assert!(is_away(&fourth).await && !is_away(&fifth).await);
        fifth.admit();
        let seventh = take(&permits);
        assert!(
            seventh.is_some_and(|permit| {
                permit.admit();
                permit.is_admitted()
            }),
            "in place of the sixth"
        );
        let all = known.iter().skip(1).chain([&fifth]);
        for permit in all {
            assert!(!is_away(permit).await);
        }
        drop(known);
        assert_eq!(permits.open(), 1);
    }

    #[tokio::test]
    async fn admitted_and_verifying_connections_keep_their_permits() {
        let permits = permits(2, 2, None);
        let (one, other) = (take(&permits).unwrap(), take(&permits).unwrap());
        one.admit();
        let logs_in = other.logs_in();
        assert!(take(&permits).is_none() && !is_away(&other).await);
        drop(logs_in);
        other.was_wrong();
        assert_eq!(other.attempt().failures, 1);
        assert!(take(&permits).is_some() && is_away(&other).await, "its password was wrong");
        assert_eq!(closed(&permits), [1, 1, 0, 0]);
    }

    #[tokio::test]
    async fn a_connection_is_closed_at_the_login_deadline() {
        let permits = permits(9, 9, Some(Duration::from_millis(1)));
        let (pending, known) = (take(&permits).unwrap(), take(&permits).unwrap());
        known.admit();
        pending.evicted().await;
        assert!(!is_away(&known).await);
        assert_eq!((permits.open(), closed(&permits)), (1, [0, 0, 1, 0]));
        pending.admit();
        assert!(!pending.is_admitted(), "too late");
        drop((pending, known));
        assert_eq!(permits.open(), 0);
    }
}
