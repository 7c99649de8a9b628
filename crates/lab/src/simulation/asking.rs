//! Requests of clients, which ask a node from beside it.

use super::{Event, NodeIndex, Simulation, text};
use model::Request;
use protocol::Core;
use protocol::global::accesses::Entry;
use protocol::site::{Input, Ticket};
use std::time::Duration;

impl<C> Simulation<C> {
    /// A client asks a node, from beside it. `None`: the node is down, or not a member yet.
    pub fn ask(&mut self, node: NodeIndex, request: Request) -> Option<Ticket> {
        let ticket = self.announce(node)?;
        self.take_or_wait(node, ticket, request);
        Some(ticket)
    }

    /// Asks a node several things that its core takes one after the other before it moves on, as it
    /// does with the requests of a pipeline. Empty: it is down.
    pub fn ask_together(&mut self, node: NodeIndex, requests: Vec<Request>) -> Vec<Ticket> {
        let now = self.time(node);
        let mut tickets = Vec::new();
        for request in requests {
            let Some(ticket) = self.announce(node) else { break };
            self.note_of(node, || format!("asked #{} {}", ticket.0, text::request(&request)));
            self.note_group(&request.body);
            if let Some(process) = &mut self.nodes[node].process {
                process.site.handle(now, Input::Request { ticket, request });
            }
            tickets.push(ticket);
        }
        self.perform_all(node);
        tickets
    }

    /// The ticket of a request that a node is about to be asked. `None`: it is down.
    pub(super) fn announce(&mut self, node: NodeIndex) -> Option<Ticket> {
        let process = self.nodes[node].process.as_mut()?;
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        process.tickets.insert(ticket, self.now);
        Some(ticket)
    }

    /// A request that a node was asked so long ago and has not answered, if there is one.
    #[must_use]
    pub fn unanswered(&self, for_longer_than: Duration) -> Option<(NodeIndex, Ticket)> {
        let all = self.nodes.iter().enumerate().filter_map(|(node, one)| {
            let (ticket, asked) = one.process.as_ref()?.tickets.first_key_value()?;
            // A process that stood still goes on then.
            let since = one.paused_until.max(*asked);
            (since + for_longer_than <= self.now).then_some((node, *ticket))
        });
        all.min_by_key(|(_, ticket)| ticket.0)
    }

    pub(super) fn take_or_wait(&mut self, node: NodeIndex, ticket: Ticket, request: Request) {
        let (life, paused_until) = (self.nodes[node].life, self.nodes[node].paused_until);
        self.note_of(node, || format!("asked #{} {}", ticket.0, text::request(&request)));
        self.note_group(&request.body);
        if paused_until > self.now {
            // It lies in a socket that no process reads.
            let request = Box::new(request);
            self.queue.push(paused_until, Event::Asked { node, life, ticket, request });
        } else {
            self.take(node, ticket, request);
        }
    }

    pub(super) fn take(&mut self, node: NodeIndex, ticket: Ticket, request: Request) {
        let now = self.time(node);
        let Some(process) = &mut self.nodes[node].process else { return };
        let entry = if request.direct { Entry::Unknown } else { Entry::Here };
        let caller = (entry, request.client);
        // Whatever has a token is of a session of causal keys, which counts before the gate does.
        if self.settings.answer_at_front
            && let (model::Body::Read { keyspace, query, .. }, Some(token)) =
                (&request.body, &request.token)
        {
            if let Some((outcome, token)) = self.answer_session_here(node, *keyspace, query, token)
            {
                return self.answer(node, ticket, (outcome, Some(token)));
            }
        } else if self.settings.answer_at_front
            && let model::Body::Read { keyspace, query, consistency } = &request.body
            && let Some(outcome) = process.answer_here(now, *keyspace, query, *consistency, caller)
        {
            return self.answer(node, ticket, (outcome, None));
        }
        if let Some(request) = self.send_proxy_read(node, ticket, request) {
            let Some(process) = &mut self.nodes[node].process else { return };
            process.site.handle(now, Input::Request { ticket, request });
        }
        self.perform_all(node);
    }
}
