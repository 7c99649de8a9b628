//! The end of a run: its history, what it is judged by, and what came of it.

use super::{Figures, Ran, Run};
use crate::clients::Clients;
use crate::clients::Ids;
use crate::clients::sessions::Sessions;
use crate::history::{Action, Header, History, MarkKind, Promise};
use crate::verdict::{self, Verdict};

impl Run<'_> {
    /// What the history of this run is judged by.
    fn promises(&self, history: &History) -> Vec<Promise> {
        let mut promises = Vec::new();
        if !history.operations.is_empty() || history.requests.is_empty() {
            promises.push(Promise::Linearizable);
        }
        // In a short run no pair may have been read that was written.
        if !matches!(verdict::atomic::judge(history), Verdict::Undecided { .. }) {
            promises.push(Promise::Atomic);
        }
        if !history.requests.is_empty() {
            promises.extend([
                Promise::Causal,
                Promise::ReadYourWrites,
                Promise::MonotonicReads,
                Promise::MonotonicWrites,
                Promise::WritesFollowReads,
            ]);
        }
        promises.push(Promise::OneOwner);
        // Copies there are where more than one node of a site holds data, and the site has not
        // left.
        let copies = |site: usize| {
            let nodes = &self.lab.sites[site].nodes;
            nodes.iter().filter(|node| !self.lab.nodes[**node].witness).count()
        };
        let has_copies = self.sites_inside().into_iter().any(|site| copies(site) > 1);
        if has_copies || !history.requests.is_empty() {
            promises.push(Promise::Convergent);
        }
        let has_writes = history.operations.iter().any(|one| one.action != Action::Get);
        if has_writes || !history.requests.is_empty() {
            promises.push(Promise::Durable);
        }
        if !history.rings.is_empty() {
            promises.push(Promise::Ring);
        }
        if !self.plan.is_empty() {
            promises.push(Promise::Live);
        }
        promises
    }

    pub(super) fn finish(mut self) -> Ran {
        self.failed();
        let mut clients = self
            .clients
            .take()
            .unwrap_or_else(|| Clients::new(self.world, self.seed, self.duration, Ids::default()));
        let mut history = std::mem::take(&mut self.history);
        let audited = history.operations.split_off(
            history.operations.iter().take_while(|one| one.client.starts_with("loader-")).count(),
        );
        history.operations.append(&mut clients.history.operations);
        history.operations.extend(audited);
        self.declare_lost(&mut history);
        self.report_sessions(&mut history);
        let promises = self.promises(&history);
        history.header = Header {
            source: "lab".to_owned(),
            world: Some(self.world.name.to_string()),
            seed: Some(self.seed),
            promises,
            ..Header::default()
        };
        let judged = match &self.failure {
            // What was broken off is not judged by what it did not come to.
            Some(_) => Vec::new(),
            None => verdict::judge_patiently(&history),
        };
        let trails = self.sessions.as_mut().map(Sessions::trails).unwrap_or_default();
        clients.measure.advance(self.duration);
        // Faults are bands in a report; what is marked is their end.
        for mark in history.marks.iter().filter(|mark| mark.kind != MarkKind::Fault) {
            clients.measure.mark(clients.since_begin(mark.at_us), mark.text.clone());
        }
        Ran {
            seed: self.seed,
            judged,
            failure: self.failure,
            figures: Figures {
                virtual_time: self.lab.now(),
                events: self.lab.events,
                operations: (history.operations.len() + history.requests.len()) as u64,
                faults: self.done.iter().filter(|done| **done).count() as u64,
                elections: self.elections,
                inter_site_bytes: self.inter_site_bytes,
                ring_changes: self.pointers.changes,
                ring_judged: self.pointers.judged,
            },
            faults: self.plan.into_iter().zip(self.done).collect(),
            compared: clients.arithmetic.compare(self.world),
            by_site: clients.arithmetic.by_site(self.world),
            answered_by_site: std::mem::take(&mut clients.answered_by_site),
            trails: clients.trails().into_iter().chain(trails).collect(),
            measure: clients.measure,
            history,
            trace: self.lab.trace,
        }
    }
}
