//! A put that may be sent to several sites: as one of them is asked for it, and what failures mean
//! for it.

use model::{Body, Bytes, CausalCommand, Command, KeyspaceId, Position, RequestId, SiteId};

/// A put under a number.
#[derive(Debug, Clone)]
pub(super) struct Numbered {
    request: RequestId,
    keyspace: KeyspaceId,
    pairs: Vec<(Bytes, Bytes)>,
    /// The site that was asked first, if that may have made it.
    first: Option<SiteId>,
    /// It may have been made.
    pub(super) is_unsure: bool,
}

impl Numbered {
    /// A request as such a put, if it is a put of whole strings and nothing else.
    pub(super) fn of(body: &Body, request: RequestId) -> Option<Numbered> {
        let Body::Write(Command::Write { keyspace, write, .. }) = body else { return None };
        let pairs = write.clone().into_puts()?;
        Some(Numbered { request, keyspace: *keyspace, pairs, first: None, is_unsure: false })
    }

    /// The next attempt.
    pub(super) fn attempt(&self) -> Body {
        let Numbered { request, keyspace, pairs, first, .. } = self.clone();
        let since = Position(0);
        Body::Write(Command::Causal(match first {
            None => CausalCommand::Numbered { request, keyspace, pairs },
            Some(tried) => CausalCommand::Retry { request, tried, since, keyspace, pairs },
        }))
    }

    /// A node of this site has an attempt.
    pub(super) fn came_to(&mut self, site: SiteId) {
        self.first.get_or_insert(site);
    }

    /// The attempt was certainly not made. If no other one was, either, any site can be the first
    /// one.
    pub(super) fn was_not_made(&mut self) {
        if !self.is_unsure {
            self.first = None;
        }
    }
}
