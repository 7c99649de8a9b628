//! The connections that a port may have at once, and which are closed when there are more.
//!
//! A *stranger* is a connection that has not logged in (without users: has sent no request yet).
//! Strangers cost their client nothing, so they must not keep other clients out: they may take only
//! a part of the seats, the rest is reserved for known connections; a new connection that finds no
//! seat gets that of the stranger that has been silent longest; and where there are users, a
//! stranger that does not log in before the deadline is closed. During the verification of its
//! password a stranger keeps its seat. Known connections are never closed to make room.

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

/// The seats of one port.
pub(crate) struct Seats {
    max: usize,
    /// The seats that strangers may take.
    strangers_max: usize,
    /// The time limit for a login.
    login_timeout: Option<Duration>,
    open: Gauge,
    closed: [Counter; 4],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: usize,
    /// Counts the actions of strangers.
    now: u64,
    strangers: HashMap<u64, Stranger>,
    /// Closable strangers: first those that never sent anything, then by their last action.
    by_silence: BTreeSet<(bool, u64, u64)>,
}

struct Stranger {
    has_spoken: bool,
    /// The value of `now` at its last action.
    heard: u64,
    /// The number of its passwords that are being verified.
    logins: u32,
    away: Arc<Notify>,
}

impl Stranger {
    fn place(&self, id: u64) -> (bool, u64, u64) {
        (self.has_spoken, self.heard, id)
    }
}

/// One seat; free again when it is dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    address: IpAddr,
    is_known: AtomicBool,
    /// The number of wrong passwords on this connection.
    failures: AtomicU32,
    away: Arc<Notify>,
}

impl Seats {
    /// The seats of a port of a node.
    pub(crate) fn new(front: &'static str, max: usize, handle: &Handle) -> Arc<Seats> {
        let (clients, metrics) = (handle.clients(), handle.metrics());
        let all = [Closed::Full, Closed::Displaced, Closed::Login, Closed::Idle];
        let has_users = handle.users().anonymous().is_none();
        let percent = usize::from(clients.reserved_percent);
        let strangers_max = match has_users {
            true => (max - (max * percent).div_ceil(100)).max(1),
            false => max,
        };
        Arc::new(Seats {
            max,
            strangers_max,
            login_timeout: clients.login_timeout.filter(|_| has_users),
            open: metrics.connections(front),
            closed: all.map(|why| metrics.closed(front, why)),
            state: Mutex::default(),
        })
    }

    /// The number of taken seats.
    pub(crate) fn open(&self) -> usize {
        self.lock().open
    }

    /// A seat for a new connection, or `None`: all are taken by connections that keep theirs.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Arc<Seat>> {
        let away = Arc::new(Notify::new());
        let mut state = self.lock();
        if state.open >= self.max || state.strangers.len() >= self.strangers_max {
            let Some((_, _, id)) = state.by_silence.pop_first() else {
                self.count(Closed::Full);
                return None;
            };
            let stranger = state.strangers.remove(&id).expect("those who are silent are strangers");
            stranger.away.notify_one();
            self.freed(&mut state);
            self.count(Closed::Displaced);
        }
        state.now += 1;
        let id = state.now;
        let stranger = Stranger { has_spoken: false, heard: id, logins: 0, away: away.clone() };
        state.by_silence.insert(stranger.place(id));
        state.strangers.insert(id, stranger);
        state.open += 1;
        self.open.inc();
        let (is_known, failures) = (AtomicBool::new(false), AtomicU32::new(0));
        Some(Arc::new(Seat { seats: self.clone(), id, address, is_known, failures, away }))
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

impl Seat {
    /// The connection is known: it keeps its seat from now on.
    pub(crate) fn known(&self) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.seats.lock();
        // If it is no longer a stranger, it was closed meanwhile.
        if let Some(stranger) = state.strangers.remove(&self.id) {
            state.by_silence.remove(&stranger.place(self.id));
            self.is_known.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Records an action of a stranger.
    pub(crate) fn heard(&self) {
        self.change(|_| {});
    }

    /// Marks a password of this connection as being verified, until the guard is dropped.
    pub(crate) fn logs_in(&self) -> LogsIn<'_> {
        self.change(|stranger| stranger.logins += 1);
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
        self.seats.count(why);
    }

    fn change(&self, change: impl FnOnce(&mut Stranger)) {
        if self.is_known() {
            return;
        }
        let mut state = self.seats.lock();
        let State { now, strangers, by_silence, .. } = &mut *state;
        let Some(stranger) = strangers.get_mut(&self.id) else { return };
        by_silence.remove(&stranger.place(self.id));
        *now += 1;
        (stranger.has_spoken, stranger.heard) = (true, *now);
        change(stranger);
        if stranger.logins == 0 {
            by_silence.insert(stranger.place(self.id));
        }
    }

    /// Completes when the connection must be closed: never, once it is known.
    pub(crate) async fn sent_away(&self) {
        let mut sent_away = pin!(self.sent_away_as_a_stranger());
        // Known connections do not pay for this check.
        poll_fn(|context| match self.is_known() {
            true => Poll::Pending,
            false => sent_away.as_mut().poll(context),
        })
        .await;
    }

    async fn sent_away_as_a_stranger(&self) {
        let Some(timeout) = self.seats.login_timeout else { return self.away.notified().await };
        loop {
            tokio::select! {
                () = self.away.notified() => return,
                () = tokio::time::sleep(timeout) => if self.is_late() { return },
            }
        }
    }

    /// Whether it is still a stranger; its seat is free then.
    fn is_late(&self) -> bool {
        let mut state = self.seats.lock();
        let State { strangers, by_silence, .. } = &mut *state;
        let Some(stranger) = strangers.get(&self.id).filter(|one| one.logins == 0) else {
            return false;
        };
        by_silence.remove(&stranger.place(self.id));
        strangers.remove(&self.id);
        self.seats.freed(&mut state);
        self.seats.count(Closed::Login);
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.seats.lock();
        let stranger = state.strangers.remove(&self.id);
        if let Some(stranger) = &stranger {
            state.by_silence.remove(&stranger.place(self.id));
        }
        // Otherwise the connection was closed, and its seat is in use by another one.
        if stranger.is_some() || self.is_known() {
            self.seats.freed(&mut state);
        }
    }
}

/// Exists while a password is being verified.
pub(crate) struct LogsIn<'a>(&'a Seat);

impl Drop for LogsIn<'_> {
    fn drop(&mut self) {
        self.0.change(|stranger| stranger.logins -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(max: usize, strangers_max: usize, login_timeout: Option<Duration>) -> Arc<Seats> {
        let (open, closed) = (Gauge::default(), [(); 4].map(|()| Counter::default()));
        let state = Mutex::default();
        Arc::new(Seats { max, strangers_max, login_timeout, open, closed, state })
    }

    fn take(seats: &Arc<Seats>) -> Option<Arc<Seat>> {
        seats.take(IpAddr::from([127, 0, 0, 1]))
    }

    fn closed(seats: &Seats) -> [u64; 4] {
        [0, 1, 2, 3].map(|why: usize| seats.closed[why].get())
    }

    /// Whether the connection must be closed, without waiting.
    async fn is_away(seat: &Seat) -> bool {
        let mut away = pin!(seat.sent_away());
        poll_fn(|context| Poll::Ready(away.as_mut().poll(context).is_ready())).await
    }

    #[tokio::test]
    async fn a_newcomer_gets_the_seat_of_who_was_silent_longest() {
        let seats = seats(3, 3, None);
        let [first, second, third] = [(); 3].map(|()| take(&seats).unwrap());
        first.heard();
        let _fourth = take(&seats).unwrap();
        assert!(is_away(&second).await && !is_away(&first).await && !is_away(&third).await);
        let _fifth = take(&seats).unwrap();
        assert!(is_away(&third).await, "who has said nothing goes before who has");
        assert_eq!((seats.open(), closed(&seats)), (3, [0, 2, 0, 0]));
        drop((second, third));
        assert_eq!(seats.open(), 3, "their seats are others' now");
    }

    #[tokio::test]
    async fn who_is_known_gives_way_to_nobody_and_strangers_leave_them_room() {
        let seats = seats(4, 2, None);
        let known: Vec<_> = (0..3).map(|_| take(&seats).unwrap()).collect();
        assert!(is_away(&known[0]).await, "strangers have two of four seats");
        known[1].known();
        known[2].known();
        let (fourth, fifth) = (take(&seats).unwrap(), take(&seats).unwrap());
        let _sixth = take(&seats).unwrap();
        assert!(is_away(&fourth).await && !is_away(&fifth).await);
        fifth.known();
        let seventh = take(&seats);
        assert!(
            seventh.is_some_and(|seat| {
                seat.known();
                seat.is_known()
            }),
            "in place of the sixth"
        );
        let all = known.iter().skip(1).chain([&fifth]);
        for seat in all {
            assert!(!is_away(seat).await);
        }
        drop(known);
        assert_eq!(seats.open(), 1);
    }

    #[tokio::test]
    async fn all_known_is_full_and_so_is_who_logs_in_just_now() {
        let seats = seats(2, 2, None);
        let (one, other) = (take(&seats).unwrap(), take(&seats).unwrap());
        one.known();
        let logs_in = other.logs_in();
        assert!(take(&seats).is_none() && !is_away(&other).await);
        drop(logs_in);
        other.was_wrong();
        assert_eq!(other.attempt().failures, 1);
        assert!(take(&seats).is_some() && is_away(&other).await, "its password was wrong");
        assert_eq!(closed(&seats), [1, 1, 0, 0]);
    }

    #[tokio::test]
    async fn who_does_not_log_in_in_time_is_sent_away() {
        let seats = seats(9, 9, Some(Duration::from_millis(1)));
        let (stranger, known) = (take(&seats).unwrap(), take(&seats).unwrap());
        known.known();
        stranger.sent_away().await;
        assert!(!is_away(&known).await);
        assert_eq!((seats.open(), closed(&seats)), (1, [0, 0, 1, 0]));
        stranger.known();
        assert!(!stranger.is_known(), "too late");
        drop((stranger, known));
        assert_eq!(seats.open(), 0);
    }
}
