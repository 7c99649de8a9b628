//! Reads past the site's thread, at both ends: [`protocol::global::proxy_reads`] put on threads.
//!
//! A batcher's task offers what has gathered there before it goes to the site's thread; what may
//! is encoded on the front's thread and laid into the links. The links' thread answers what other
//! sites ask, hands answers out, and gives back to the site's thread what has no answer.

use super::Links;
use super::inter_site::Remote;
use crate::batcher::{batcher_of, is_same_call, lock};
use crate::node::{Batchers, Event};
use model::{NodeId, Request};
use protocol::global::proxy_reads::{Came, ProxyReads, Routes, answer_reads};
use protocol::site::Ticket;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use wire::across::{Across, AcrossSay, AnsweredAcross};
use wire::peer::{Forward, ForwardedRequest};

/// How often it is checked whether a node is silent, while anything is on its way.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The reads of a node's clients that went to other sites past the site's thread.
pub(crate) struct SharedProxyReads {
    /// Looked at without the lock: a site that belongs to no deployment has none.
    routes: Arc<Routes>,
    reads: Mutex<ProxyReads>,
    /// Some were sent.
    sent: Notify,
    batchers: Batchers,
}

impl SharedProxyReads {
    pub(crate) fn new(reads: ProxyReads, batchers: Batchers) -> SharedProxyReads {
        let routes = reads.routes().clone();
        SharedProxyReads { routes, reads: Mutex::new(reads), sent: Notify::new(), batchers }
    }
}

impl Links {
    /// From now on reads may pass the site's thread by.
    pub(crate) fn open_proxy_reads(&self, reads: SharedProxyReads) {
        let _ = self.0.proxy_reads.set(reads);
    }

    /// Sends those requests of one batcher off that may pass the site's thread; the others stay.
    pub(crate) fn send_proxy_reads(&self, requests: &mut Vec<(Ticket, Request)>) {
        let (Some(proxied), Some(join_service)) =
            (self.0.proxy_reads.get(), self.0.join_service.get())
        else {
            return;
        };
        if !proxied.routes.has_any() {
            return;
        }
        let shared = &join_service.0.shared;
        let now = shared.clock.monotonic();
        let count = requests.len();
        let catalog = shared.reader.catalog();
        let asked = (now, shared.gate.get());
        let sent = lock(&proxied.reads).take(asked, requests, &catalog, is_same_call);
        if sent.is_empty() {
            return;
        }
        shared.requests_waiting.fetch_sub(count - requests.len(), Ordering::Relaxed);
        for ((site, node), requests) in sent {
            self.send_inter_site(site, node, AcrossSay::Forward(Forward { requests }).into());
        }
        self.flush_inter_site();
        proxied.sent.notify_one();
    }

    /// Processes a message of another site's node; returns what is left for the site's thread.
    pub(super) fn receive_inter_site(
        &self,
        (site, node): Remote,
        message: Across,
    ) -> Option<Across> {
        match message.say {
            Some(AcrossSay::Forward(Forward { mut requests })) => {
                self.answer_reads((site, node), &mut requests);
                let is_left = !requests.is_empty();
                is_left.then(|| AcrossSay::Forward(Forward { requests }).into())
            }
            Some(AcrossSay::Answered(mut answered)) => {
                let is_left = self.hand_out(node, &mut answered);
                is_left.then(|| AcrossSay::Answered(answered).into())
            }
            _ => Some(message),
        }
    }

    fn answer_reads(&self, (site, node): Remote, requests: &mut Vec<ForwardedRequest>) {
        let Some(join_service) = self.0.join_service.get() else { return };
        let here = &join_service.0;
        let answers = answer_reads(requests, |keyspace, query, consistency| {
            here.answer_inter_site(site, keyspace, query, consistency)
        });
        if answers.is_empty() {
            return;
        }
        let leads = here.shared.gate.get().leads();
        let leader = if leads { self.0.identity.node.0 } else { 0 };
        let answered = AcrossSay::Answered(AnsweredAcross { answers, leader });
        self.send_inter_site(site, node, answered.into());
        self.flush_inter_site();
    }

    fn hand_out(&self, node: NodeId, answered: &mut AnsweredAcross) -> bool {
        let is_left = self.go_on(|reads, now, came| reads.answered(now, node, answered, came));
        is_left.unwrap_or(true)
    }

    /// The connection to a node of another site broke.
    pub(super) fn lose_proxy_reads(&self, place: Remote) {
        self.go_on(|reads, now, came| reads.lost(now, place, came));
    }

    /// Gives back what was sent to a silent node, for as long as the runtime runs.
    pub(crate) async fn turn_from_silent(self) {
        let Some(proxied) = self.0.proxy_reads.get() else { return };
        loop {
            proxied.sent.notified().await;
            let mut is_waiting = true;
            while is_waiting {
                tokio::time::sleep(LOOK_INTERVAL).await;
                is_waiting = self
                    .go_on(|reads, now, came| {
                        reads.turn_from_silent(now, came);
                        reads.deadline().is_some()
                    })
                    .unwrap_or(false);
            }
        }
    }

    /// Something has become of reads; those that it is over with are handed out or given back.
    fn go_on<T>(
        &self,
        what: impl FnOnce(&mut ProxyReads, Duration, &mut Vec<Came>) -> T,
    ) -> Option<T> {
        let (proxied, join_service) = (self.0.proxy_reads.get()?, self.0.join_service.get()?);
        let (now, mut came) = (join_service.0.shared.clock.monotonic(), Vec::new());
        let done = what(&mut lock(&proxied.reads), now, &mut came);
        self.settle(proxied, came);
        Some(done)
    }

    /// How many reads were answered so, and how many came back, since the start.
    pub(crate) fn proxy_read_counts(&self) -> (u64, u64) {
        self.0.proxy_reads.get().map_or((0, 0), |proxied| {
            let reads = lock(&proxied.reads);
            (reads.answered, reads.came_back)
        })
    }

    fn settle(&self, proxied: &SharedProxyReads, came: Vec<Came>) {
        let mut answers: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        let mut back = Vec::new();
        for one in came {
            match one {
                Came::Answer(ticket, outcome) => {
                    answers.entry(batcher_of(ticket)).or_default().push((ticket, outcome.into()));
                }
                Came::Moved(moved) => drop(self.0.events.send(Event::Moved(moved))),
                Came::Back(ticket, request) => back.push((ticket, request)),
            }
        }
        if !answers.is_empty() {
            let batchers = lock(&proxied.batchers);
            for (batcher, mut answers) in answers {
                if let Some(batcher) = batchers.get(batcher) {
                    batcher.deliver(&mut answers);
                }
            }
        }
        if back.is_empty() {
            return;
        }
        if let Some(join_service) = self.0.join_service.get() {
            join_service.0.shared.requests_waiting.fetch_add(back.len(), Ordering::Relaxed);
        }
        // A site's thread that is gone has stopped its node.
        let _ = self.0.events.send(Event::Requests(back));
    }
}
