//! Reads that bypass the cores, as on the threads of fronts and links: reads answered by the gate,
//! and proxy reads at other sites. The counterpart of `server::proxy_reads`.

use super::node::Process;
use super::{NodeIndex, Simulation};
use model::{
    Answer, ClientName, Failure, KeyspaceId, NodeId, Query, ReadConsistency, Request, SiteId, Time,
};
use protocol::global::accesses::{Caller, Entry};
use protocol::global::proxy_reads::{Came, answer_reads};
use protocol::site::{Input, Ticket};
use wire::inter_site::{InterSite, InterSiteAnswers, InterSiteMessage};
use wire::peer::{Content, Forward};

impl Process {
    /// Answers a query as a front does on its own thread, if that is allowed now: see
    /// `server::Handle::answer_here`.
    pub(super) fn answer_here(
        &self,
        now: Time,
        keyspace: KeyspaceId,
        query: &Query,
        consistency: ReadConsistency,
        (entry, client): (Entry, ClientName),
    ) -> Option<Result<Answer, Failure>> {
        let caller = Caller { entry, client, sampler: &self.sampler };
        let reader = self.site.reader();
        let answer =
            self.gate.answer(|| now.monotonic, &reader, keyspace, query, consistency, caller);
        answer.map(Ok)
    }
}

impl<C> Simulation<C> {
    /// Sends a proxy read to another site, if it may; gives back what is for the core.
    pub(super) fn send_proxy_read(
        &mut self,
        node: NodeIndex,
        ticket: Ticket,
        request: Request,
    ) -> Option<Request> {
        if !self.settings.answer_at_front {
            return Some(request);
        }
        let now = self.time(node).monotonic;
        let Some(process) = &mut self.nodes[node].process else { return Some(request) };
        let mut requests = vec![(ticket, request)];
        let catalog = process.site.reader().catalog();
        let asked = (now, process.gate);
        let sent = process.proxy_reads.take(asked, &mut requests, &catalog, |a, b| a == b);
        for ((site, other), requests) in sent {
            self.send_to(node, site, other, InterSite::Forward(Forward { requests }).into());
        }
        requests.pop().map(|(_, request)| request)
    }

    /// How many proxy reads of a node's process were answered, and how many came back to the core.
    #[must_use]
    pub fn proxy_reads(&self, node: NodeIndex) -> (u64, u64) {
        let process = self.nodes[node].process.as_ref();
        process.map_or((0, 0), |one| (one.proxy_reads.answered, one.proxy_reads.came_back))
    }

    /// Sends a message to a node of another site, if there is one.
    pub(super) fn send_to(
        &mut self,
        node: NodeIndex,
        site: SiteId,
        other: NodeId,
        message: InterSiteMessage,
    ) {
        let group = self.sites.iter().find(|group| group.id == Some(site));
        let place = (other.0 as usize).wrapping_sub(1);
        if let Some(to) = group.and_then(|group| group.nodes.get(place)).copied() {
            self.send_inter_site(node, to, Content::InterSite(message).into());
        }
    }

    /// Processes a message from a node of another site; returns what is left for the core.
    pub(super) fn receive_inter_site(
        &mut self,
        node: NodeIndex,
        (site, other): (SiteId, NodeId),
        message: InterSiteMessage,
    ) -> Option<InterSiteMessage> {
        if !self.settings.answer_at_front {
            return Some(message);
        }
        let now = self.time(node);
        let own = NodeId(self.nodes[node].id);
        let process = self.nodes[node].process.as_mut()?;
        match message.content {
            Some(InterSite::Forward(Forward { mut requests })) => {
                let answers =
                    answer_reads(&mut requests, |client, keyspace, query, consistency| {
                        let served = process.site.reader().served_under(keyspace, query);
                        let caller = (Entry::Site(site), client);
                        let outcome =
                            process.answer_here(now, keyspace, query, consistency, caller)?;
                        Some((outcome, served))
                    });
                let leader = if process.gate.leads() { own.0 } else { 0 };
                if !answers.is_empty() {
                    let answered = InterSiteAnswers { answers, leader };
                    self.send_to(node, site, other, InterSite::Answered(answered).into());
                }
                let is_left = !requests.is_empty();
                is_left.then(|| InterSite::Forward(Forward { requests }).into())
            }
            Some(InterSite::Answered(mut answered)) => {
                let mut came = Vec::new();
                let proxy_reads = &mut process.proxy_reads;
                let is_left = proxy_reads.answered(now.monotonic, other, &mut answered, &mut came);
                self.settle_proxy_reads(node, came);
                is_left.then(|| InterSite::Answered(answered).into())
            }
            _ => Some(message),
        }
    }

    /// The connection to a node of another site broke.
    pub(super) fn proxy_reads_lost(&mut self, node: NodeIndex, place: (SiteId, NodeId)) {
        let (now, mut came) = (self.time(node).monotonic, Vec::new());
        if let Some(process) = &mut self.nodes[node].process {
            process.proxy_reads.lost(now, place, &mut came);
        }
        self.settle_proxy_reads(node, came);
    }

    /// Gives proxy reads at nodes that do not answer back to the core.
    pub(super) fn time_out_proxy_reads(&mut self, node: NodeIndex) {
        let (now, mut came) = (self.time(node).monotonic, Vec::new());
        if let Some(process) = &mut self.nodes[node].process {
            process.proxy_reads.fail_over_from_silent(now, &mut came);
        }
        self.settle_proxy_reads(node, came);
    }

    fn settle_proxy_reads(&mut self, node: NodeIndex, came: Vec<Came>) {
        for one in came {
            match one {
                Came::Answer(ticket, outcome) => self.answer(node, ticket, (outcome, None)),
                Came::Moved(moved) => self.input(node, Input::Moved(moved)),
                Came::Back(ticket, request) => self.input(node, Input::Request { ticket, request }),
            }
        }
    }
}
