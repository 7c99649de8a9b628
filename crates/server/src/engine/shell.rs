//! A site's engine while its core runs: what passes between the core and the node's threads at
//! once, and what waits until it is durable elsewhere.
//!
//! With the embedded engine everything passes: the disk's thread reports durability to the core
//! itself.

use super::output_buffer::{self, Released};
use super::takeover::Running;
use crate::batcher::Outcome;
use model::Request;
use protocol::site::{Output, Status, Ticket};
use std::time::Duration;
use storage::state::fjall::FjallView;
use wire::peer::{Content, Message};

/// How an engine takes inputs to the core and outputs from it.
pub(crate) enum Shell {
    /// As they come.
    Embedded,
    /// In rounds that are durable in etcd.
    Etcd(Box<Running>),
}

/// Which status of the site may be published.
pub(crate) enum Publish {
    /// The core's, as it is.
    Current,
    /// The last one, as not ready: etcd does not answer.
    NotReady,
    /// None: the status comes with the round that makes it durable.
    Later,
}

impl Shell {
    /// When [`Shell::late`] has something next.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        match self {
            Shell::Embedded => None,
            Shell::Etcd(etcd) => etcd.buffer.next_due(),
        }
    }

    /// The ticket under which the core takes a request; `None`: it is refused, and answered by
    /// [`Shell::late`].
    pub(crate) fn admit(
        &mut self,
        now: Duration,
        ticket: Ticket,
        request: &Request,
    ) -> Option<Ticket> {
        match self {
            Shell::Embedded => Some(ticket),
            Shell::Etcd(etcd) => etcd.buffer.admit(now, ticket, request),
        }
    }

    /// The answer to a node's message that is not for the core.
    pub(crate) fn refusal(&self, message: &Message) -> Option<Message> {
        match (self, &message.content) {
            (Shell::Etcd(_), Some(Content::Forward(forward))) => {
                output_buffer::refuse_joins(forward)
            }
            _ => None,
        }
    }

    /// Whether messages of other sites are dropped, because too much waits already. Their senders
    /// repeat them.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Shell::Embedded => false,
            Shell::Etcd(etcd) => etcd.buffer.is_full().is_some(),
        }
    }

    /// Takes an output; returns those that need not wait.
    pub(crate) fn hold_back(&mut self, output: Output<FjallView>) -> Option<Output<FjallView>> {
        match self {
            Shell::Embedded => Some(output),
            Shell::Etcd(etcd) => etcd.buffer.take(output),
        }
    }

    /// Whether a snapshot is only made to cut the log: no other node of the site requests one.
    pub(crate) fn needs_no_snapshots(&self) -> bool {
        matches!(self, Shell::Etcd(_))
    }

    /// Begins the next round, if it is due.
    pub(crate) fn begin_round(&mut self, now: Duration, status: impl FnOnce() -> Status) {
        if let Shell::Etcd(etcd) = self {
            etcd.buffer.begin_round(now, status);
        }
    }

    /// The round on its way is durable: its outputs are due.
    pub(crate) fn flushed(&mut self) {
        if let Shell::Etcd(etcd) = self {
            etcd.released = etcd.buffer.release();
        }
    }

    /// What may leave since the last call, and the status that comes with it.
    pub(crate) fn take_released(&mut self) -> Option<Released<FjallView>> {
        match self {
            Shell::Embedded => None,
            Shell::Etcd(etcd) => etcd.released.take(),
        }
    }

    /// Answers to requests that were refused, or that have waited too long.
    pub(crate) fn late(&mut self, now: Duration) -> Vec<(Ticket, Outcome)> {
        match self {
            Shell::Embedded => Vec::new(),
            Shell::Etcd(etcd) => etcd.buffer.late(now),
        }
    }

    pub(crate) fn publish(&self, now: Duration) -> Publish {
        match self {
            Shell::Etcd(etcd) if etcd.buffer.is_stuck(now) => Publish::NotReady,
            Shell::Etcd(etcd) if !etcd.buffer.is_even() => Publish::Later,
            _ => Publish::Current,
        }
    }

    /// Whether something that the core has done is not durable yet.
    pub(crate) fn is_behind(&self) -> bool {
        match self {
            Shell::Embedded => false,
            Shell::Etcd(etcd) => !etcd.buffer.is_even(),
        }
    }

    /// Ends all waiting for etcd. Answers to all requests that still wait.
    pub(crate) fn stop(&mut self) -> Vec<(Ticket, Outcome)> {
        match self {
            Shell::Embedded => Vec::new(),
            Shell::Etcd(etcd) => {
                etcd.stop();
                etcd.buffer.end()
            }
        }
    }
}
