//! A front thread's outgoing requests, and the calls that wait for their answers.
//!
//! Waking another thread costs a system call, and the site's thread is most efficient with many
//! requests at once. So each front thread has a batcher with its own task. All connections of the
//! thread put their requests there; the task runs after the connections that were ready with it,
//! and sends these requests to the site together. The site's thread puts all its answers there at
//! once and wakes the task once; the task hands them out on its own thread.

use crate::node::Event;
use model::{Answer, Failure, Request, SessionToken};
use protocol::site::Ticket;
use slab::Slab;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use tokio::sync::Notify;

/// The result of a request.
pub type Outcome = Result<Answer, Failure>;

/// The result of a request of a session.
#[derive(Debug, PartialEq)]
pub struct Reply {
    /// The result.
    pub outcome: Outcome,
    /// The session's token from here on; `None`: the request had none, or its keyspace keeps no
    /// sessions.
    pub token: Option<SessionToken>,
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Reply {
        Reply { outcome, token: None }
    }
}

/// A ticket names a batcher (10 bits), a call waiting there (30 bits) and a request of it (24
/// bits). So each of the three fronts may have as many threads as the configuration allows.
const CALL_SHIFT: u32 = 24;
const BATCHER_SHIFT: u32 = 54;
/// Requests of one call.
pub const CALL_REQUESTS_MAX: usize = 1 << CALL_SHIFT;
/// Calls of one batcher. Never reached: far fewer requests may wait in a node.
const CALLS_MAX: usize = 1 << (BATCHER_SHIFT - CALL_SHIFT);
/// Batchers of a node.
pub const BATCHERS_MAX: usize = 1 << (64 - BATCHER_SHIFT);

/// The batcher that a ticket belongs to.
pub(crate) fn batcher_of(ticket: Ticket) -> usize {
    (ticket.0 >> BATCHER_SHIFT) as usize
}

/// Whether two tickets belong to one call.
pub(crate) fn is_same_call(a: Ticket, b: Ticket) -> bool {
    a.0 >> CALL_SHIFT == b.0 >> CALL_SHIFT
}

struct Call {
    replies: Vec<Option<Reply>>,
    missing: usize,
    waker: Option<Waker>,
    /// The caller waits no more; the place is free again when the last answer has arrived.
    abandoned: bool,
}

/// One front thread's waiting requests.
pub(crate) struct Batcher {
    number: usize,
    calls: Mutex<Slab<Call>>,
    outbox: Mutex<Vec<(Ticket, Request)>>,
    inbox: Mutex<Vec<(Ticket, Reply)>>,
    work: Notify,
}

impl Batcher {
    pub(crate) fn new(number: usize) -> Arc<Batcher> {
        Arc::new(Batcher {
            number,
            calls: Mutex::default(),
            outbox: Mutex::default(),
            inbox: Mutex::default(),
            work: Notify::new(),
        })
    }

    /// Opens a call of this many requests. Its tickets are [`WaitingCall::ticket`]s.
    pub(crate) fn open(self: &Arc<Batcher>, requests: usize) -> WaitingCall {
        debug_assert!(requests < CALL_REQUESTS_MAX);
        let replies = std::iter::repeat_with(|| None).take(requests).collect();
        let call = Call { replies, missing: requests, waker: None, abandoned: false };
        let call = lock(&self.calls).insert(call);
        WaitingCall { batcher: self.clone(), call, taken: false }
    }

    /// Queues requests for the site.
    pub(crate) fn send(&self, requests: impl Iterator<Item = (Ticket, Request)>) {
        lock(&self.outbox).extend(requests);
        self.work.notify_one();
    }

    /// Queues answers for their calls. Called by the site's thread.
    pub(crate) fn deliver(&self, answers: &mut Vec<(Ticket, Reply)>) {
        lock(&self.inbox).append(answers);
        self.work.notify_one();
    }

    /// Sends requests to the site and hands answers out, until the batcher is dropped. Runs on the
    /// front's thread. `proxy_reads` takes out the requests that go to other sites without the
    /// site's thread.
    pub(crate) async fn run(
        self: Arc<Batcher>,
        site: mpsc::Sender<Event>,
        proxy_reads: impl Fn(&mut Vec<(Ticket, Request)>) + Send,
    ) {
        let mut answers = Vec::new();
        loop {
            self.work.notified().await;
            let mut requests = take_all(&mut lock(&self.outbox));
            if !requests.is_empty() {
                proxy_reads(&mut requests);
            }
            if !requests.is_empty()
                && let Err(unsent) = site.send(Event::Requests(requests))
            {
                answers.extend(refused(unsent.0));
            }
            answers.append(&mut lock(&self.inbox));
            let mut calls = lock(&self.calls);
            for (ticket, reply) in answers.drain(..) {
                settle(&mut calls, ticket, reply);
            }
        }
    }
}

/// All that is queued. The next queue has room for as much, within a limit, as growing moves what
/// is in it.
fn take_all<T>(queue: &mut Vec<T>) -> Vec<T> {
    const ROOM_MAX: usize = 4_096;
    match queue.is_empty() {
        true => Vec::new(),
        false => std::mem::replace(queue, Vec::with_capacity(queue.len().min(ROOM_MAX))),
    }
}

/// Answers for requests that the site's thread no longer takes.
fn refused(unsent: Event) -> Vec<(Ticket, Reply)> {
    let Event::Requests(requests) = unsent else { return Vec::new() };
    let refuse = |(ticket, _)| (ticket, Reply::from(Err(Failure::NotServing("it is stopping"))));
    requests.into_iter().map(refuse).collect()
}

fn settle(calls: &mut Slab<Call>, ticket: Ticket, reply: Reply) {
    let key = (ticket.0 >> CALL_SHIFT) as usize % CALLS_MAX;
    let nth = ticket.0 as usize % CALL_REQUESTS_MAX;
    let Some(call) = calls.get_mut(key) else { return };
    if call.replies[nth].replace(reply).is_some() {
        return;
    }
    call.missing -= 1;
    if call.missing > 0 {
        return;
    }
    if call.abandoned {
        calls.remove(key);
    } else if let Some(waker) = call.waker.take() {
        waker.wake();
    }
}

/// A call that waits for its answers.
pub(crate) struct WaitingCall {
    batcher: Arc<Batcher>,
    call: usize,
    taken: bool,
}

impl WaitingCall {
    /// The ticket of the `nth` request.
    pub(crate) fn ticket(&self, nth: usize) -> Ticket {
        let batcher = (self.batcher.number as u64) << BATCHER_SHIFT;
        Ticket(batcher | (self.call as u64) << CALL_SHIFT | nth as u64)
    }

    /// All answers, in the order of the requests.
    pub(crate) async fn answers(mut self) -> Vec<Reply> {
        poll_fn(|context| {
            let mut calls = lock(&self.batcher.calls);
            let call = calls.get_mut(self.call).expect("open until its answers are taken");
            if call.missing > 0 {
                call.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            let replies = calls.remove(self.call).replies;
            self.taken = true;
            // In place: a reply and perhaps a reply take as much memory.
            Poll::Ready(replies.into_iter().map(|reply| reply.expect("none is missing")).collect())
        })
        .await
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        // The place must not be given to another call while answers to this one may still come.
        let mut calls = lock(&self.batcher.calls);
        match calls.get_mut(self.call) {
            Some(call) if call.missing > 0 => call.abandoned = true,
            _ => drop(calls.try_remove(self.call)),
        }
    }
}

/// Ignores poisoning: a thread panicked while it held these plain values, but they are consistent
/// between any two statements here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_gets_all_its_answers_in_order() {
        let batcher = Batcher::new(BATCHERS_MAX - 1);
        let (site, _events) = mpsc::channel();
        tokio::spawn(batcher.clone().run(site, |_| {}));
        let call = batcher.open(2);
        assert_eq!(batcher_of(call.ticket(0)), BATCHERS_MAX - 1);
        let mut answers = vec![
            (call.ticket(1), Ok(Answer::Integer(1)).into()),
            (call.ticket(0), Ok(Answer::Integer(0)).into()),
        ];
        batcher.deliver(&mut answers);
        assert_eq!(
            call.answers().await,
            [Ok(Answer::Integer(0)).into(), Ok(Answer::Integer(1)).into()]
        );
    }

    #[tokio::test]
    async fn a_late_answer_never_reaches_another_call() {
        let batcher = Batcher::new(0);
        let (site, _events) = mpsc::channel();
        tokio::spawn(batcher.clone().run(site, |_| {}));
        let given_up = batcher.open(1);
        let late = given_up.ticket(0);
        drop(given_up);
        let call = batcher.open(1);
        assert_ne!(call.ticket(0), late);
        batcher.deliver(&mut vec![(late, Ok(Answer::Integer(1)).into())]);
        batcher.deliver(&mut vec![(call.ticket(0), Ok(Answer::Integer(2)).into())]);
        assert_eq!(call.answers().await, [Ok(Answer::Integer(2)).into()]);
        assert!(lock(&batcher.calls).is_empty());
    }

    #[tokio::test]
    async fn requests_of_one_round_leave_together_and_a_site_that_stops_refuses_them() {
        let batcher = Batcher::new(0);
        let (site, events) = mpsc::channel();
        tokio::spawn(batcher.clone().run(site, |_| {}));
        let calls = [batcher.open(1), batcher.open(1)];
        let request = || Request::write(model::Command::ClearAll);
        for call in &calls {
            batcher.send([(call.ticket(0), request())].into_iter());
        }
        tokio::task::yield_now().await;
        let Ok(Event::Requests(requests)) = events.try_recv() else { panic!("nothing left") };
        assert_eq!(requests.len(), 2);
        drop(events);
        let late = batcher.open(1);
        batcher.send([(late.ticket(0), request())].into_iter());
        assert_eq!(late.answers().await, [Err(Failure::NotServing("it is stopping")).into()]);
    }
}
