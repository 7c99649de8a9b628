//! Reads past the site's thread, at both ends: [`protocol::global::proxy_reads`] put on threads.
//!
//! A batcher's task offers what has gathered there before it goes to the site's thread; what may
//! is encoded on the front's thread and laid into the links. The links' thread answers what other
//! sites ask, hands answers out, and gives back to the site's thread what has no answer.

use crate::batcher::{BATCHERS_MAX, batcher_of, is_same_call, lock};
use crate::handle::Shared;
use crate::links::{Peers, Remote};
use crate::node::{Batchers, Event};
use model::{NodeId, Request};
use protocol::global::accesses::{Caller, Entry};
use protocol::global::proxy_reads::{Came, ProxyReads, Routes, answer_reads};
use protocol::placement::Sampler;
use protocol::site::Ticket;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use wire::inter_site::{InterSite, InterSiteAnswers, InterSiteMessage};
use wire::peer::{Forward, ForwardedRequest, in_parts};

/// How often it is checked whether a node is silent, while anything is on its way.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The reads of a node's clients that went to other sites past the site's thread.
pub(crate) struct SharedProxyReads {
    shared: Arc<Shared>,
    batchers: Batchers,
    /// Which reads of other sites are counted.
    sampler: Sampler,
    /// Looked at without the lock: a site that belongs to no deployment has none.
    routes: Arc<Routes>,
    reads: Mutex<ProxyReads>,
    /// Some were sent.
    sent: Notify,
}

impl SharedProxyReads {
    pub(crate) fn new(
        reads: ProxyReads,
        shared: Arc<Shared>,
        batchers: Batchers,
    ) -> SharedProxyReads {
        let routes = reads.routes().clone();
        // Batchers have the numbers below for their own.
        let sampler = Sampler::new(BATCHERS_MAX as u64);
        let (reads, sent) = (Mutex::new(reads), Notify::new());
        SharedProxyReads { shared, batchers, sampler, routes, reads, sent }
    }

    /// Sends those requests of one batcher off that may pass the site's thread; the others stay.
    pub(crate) fn send(&self, peers: &dyn Peers, requests: &mut Vec<(Ticket, Request)>) {
        if !self.routes.has_any() {
            return;
        }
        let shared = &self.shared;
        let now = shared.clock.monotonic();
        let count = requests.len();
        let catalog = shared.reader.catalog();
        let asked = (now, shared.gate.get());
        let sent = lock(&self.reads).take(asked, requests, &catalog, is_same_call);
        if sent.is_empty() {
            return;
        }
        shared.requests_waiting.fetch_sub(count - requests.len(), Ordering::Relaxed);
        for (remote, requests) in sent {
            for requests in in_parts(requests) {
                peers.send_inter_site(remote, InterSite::Forward(Forward { requests }).into());
            }
        }
        peers.flush_inter_site();
        self.sent.notify_one();
    }

    /// Processes a message of another site's node; returns what is left for the site's thread.
    pub(crate) fn receive(
        &self,
        peers: &dyn Peers,
        from: Remote,
        message: InterSiteMessage,
    ) -> Option<InterSiteMessage> {
        match message.content {
            Some(InterSite::Forward(Forward { mut requests })) => {
                self.answer(peers, from, &mut requests);
                let is_left = !requests.is_empty();
                is_left.then(|| InterSite::Forward(Forward { requests }).into())
            }
            Some(InterSite::Answered(mut answered)) => {
                let is_left = self.hand_out(from.1, &mut answered);
                is_left.then(|| InterSite::Answered(answered).into())
            }
            _ => Some(message),
        }
    }

    /// Answers those reads of another site that this thread may answer; the others stay.
    fn answer(&self, peers: &dyn Peers, from: Remote, requests: &mut Vec<ForwardedRequest>) {
        let shared = &self.shared;
        let entry = Entry::Site(from.0);
        let answers = answer_reads(requests, |client, keyspace, query, consistency| {
            let caller = Caller { entry, client, sampler: &self.sampler };
            // The failover under which the slot is served here.
            let served = shared.reader.served_under(keyspace, query);
            Some((shared.answer(caller, keyspace, query, consistency)?, served))
        });
        if answers.is_empty() {
            return;
        }
        let leader = if shared.gate.get().leads() { shared.node.0 } else { 0 };
        for answers in in_parts(answers) {
            let answered = InterSite::Answered(InterSiteAnswers { answers, leader });
            peers.send_inter_site(from, answered.into());
        }
        peers.flush_inter_site();
    }

    fn hand_out(&self, node: NodeId, answered: &mut InterSiteAnswers) -> bool {
        self.resume(|reads, now, came| reads.answered(now, node, answered, came))
    }

    /// The connection to a node of another site broke.
    pub(crate) fn lost(&self, remote: Remote) {
        self.resume(|reads, now, came| reads.lost(now, remote, came));
    }

    /// Gives back what was sent to a silent node, for as long as the runtime runs.
    pub(crate) async fn fail_over_from_silent(self: Arc<SharedProxyReads>) {
        loop {
            self.sent.notified().await;
            let mut is_waiting = true;
            while is_waiting {
                tokio::time::sleep(LOOK_INTERVAL).await;
                is_waiting = self.resume(|reads, now, came| {
                    reads.fail_over_from_silent(now, came);
                    reads.deadline().is_some()
                });
            }
        }
    }

    /// Something has become of reads; those that it is over with are handed out or given back.
    fn resume<T>(&self, what: impl FnOnce(&mut ProxyReads, Duration, &mut Vec<Came>) -> T) -> T {
        let (now, mut came) = (self.shared.clock.monotonic(), Vec::new());
        let done = what(&mut lock(&self.reads), now, &mut came);
        self.settle(came);
        done
    }

    /// How many reads were answered so, and how many came back, since the start.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let reads = lock(&self.reads);
        (reads.answered, reads.came_back)
    }

    fn settle(&self, came: Vec<Came>) {
        let events = &self.shared.events;
        let mut answers: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        let mut back = Vec::new();
        for one in came {
            match one {
                Came::Answer(ticket, outcome) => {
                    answers.entry(batcher_of(ticket)).or_default().push((ticket, outcome.into()));
                }
                Came::Moved(moved) => drop(events.send(Event::Moved(moved))),
                Came::Back(ticket, request) => back.push((ticket, request)),
            }
        }
        if !answers.is_empty() {
            let batchers = lock(&self.batchers);
            for (batcher, mut answers) in answers {
                if let Some(batcher) = batchers.get(batcher) {
                    batcher.deliver(&mut answers);
                }
            }
        }
        if back.is_empty() {
            return;
        }
        self.shared.requests_waiting.fetch_add(back.len(), Ordering::Relaxed);
        // A site's thread that is gone has stopped its node.
        let _ = events.send(Event::Requests(back));
    }
}
