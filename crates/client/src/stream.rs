//! Scans and watches: streams that resume at their position when a connection breaks.
//!
//! The first message of a stream belongs to the call that opens it: a server may answer with a
//! stream before it has read anything, and a failure then is one of the call, with its pauses and
//! its deadline.

use crate::call::{Caller, Repeat, kv};
use crate::error::{Verdict, judge};
use crate::keyspace::versioned;
use crate::session::Session;
use crate::{Error, v1};
use model::{Bytes, ChangeKind, Item, Kind, Revision, Versioned};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Response, Status, Streaming};

/// The keys of a scan. All of them by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanRange {
    /// Only keys that begin with this.
    pub prefix: Bytes,
    /// Only keys from this one on.
    pub from: Bytes,
    /// Only keys before this one; empty: to the end.
    pub until: Bytes,
    /// Only keys that match this glob, as in Redis; empty: all.
    pub glob: Bytes,
    /// Return the strings too.
    pub with_values: bool,
    /// Stop after this many keys; 0: at the end.
    pub limit: u64,
}

impl ScanRange {
    pub(crate) fn request(self, keyspace: String, consistency: i32) -> v1::ScanRequest {
        v1::ScanRequest {
            keyspace,
            prefix: self.prefix,
            from: self.from,
            until: self.until,
            glob: self.glob,
            with_values: self.with_values,
            limit: self.limit,
            consistency,
        }
    }
}

/// A running scan. Keys that are written meanwhile may or may not be returned; every other key is
/// returned once.
pub struct Scan {
    caller: Arc<Caller>,
    session: Option<Session>,
    request: v1::ScanRequest,
    open: Option<Open<v1::ScanResponse>>,
    /// The session's token after the last page.
    token: Bytes,
    page: VecDeque<Item>,
    done: bool,
}

impl Scan {
    pub(crate) fn new(
        caller: Arc<Caller>,
        session: Option<Session>,
        keyspace: String,
        range: ScanRange,
        consistency: i32,
    ) -> Scan {
        let request = range.request(keyspace, consistency);
        let (token, page) = (Bytes::new(), VecDeque::new());
        Scan { caller, session, request, open: None, token, page, done: false }
    }

    /// The next key in byte order; `None`: there is no more.
    pub async fn next(&mut self) -> Result<Option<Item>, Error> {
        loop {
            if let Some(item) = self.page.pop_front() {
                return Ok(Some(item));
            }
            if self.done {
                return Ok(None);
            }
            self.next_page().await?;
        }
    }

    async fn next_page(&mut self) -> Result<(), Error> {
        let mut turn = match &self.session {
            Some(session) => Some(session.turn().await),
            None => None,
        };
        if turn.as_ref().is_some_and(|turn| *turn.token() != self.token) {
            // The server reads ahead, so the next page of this stream may lack what the session has
            // seen since the last one.
            self.open = None;
        }
        // The session's turn is held meanwhile, and its other calls wait for it.
        let within = Some(self.caller.attempt_deadline());
        let page = match next_message(&mut self.open, &self.caller, within).await? {
            Some(page) => page,
            None => {
                let caller = &self.caller;
                let scan = |channel, request| {
                    let mut request = caller.streaming(request);
                    if let Some(turn) = &turn {
                        turn.write(request.metadata_mut());
                    }
                    async move { first_message(kv(channel).scan(request).await?).await }
                };
                let request = self.request.clone();
                let (at, (messages, page)) = caller.call_at(Repeat::Read, request, scan).await?;
                self.open = Some(Open { at, messages });
                page
            }
        };
        if let Some(turn) = &mut turn {
            turn.read_page(page.session.clone());
            self.token = turn.token().clone();
        }
        (self.page, self.done) = take_page(&mut self.request, page);
        Ok(())
    }
}

/// The items of a page, and whether it is the last one; the request goes on behind them.
pub(crate) fn take_page(
    request: &mut v1::ScanRequest,
    page: v1::ScanResponse,
) -> (VecDeque<Item>, bool) {
    let mut is_last = page.next.is_empty();
    request.from = page.next;
    if request.limit > 0 {
        request.limit = request.limit.saturating_sub(page.items.len() as u64);
        is_last |= request.limit == 0;
    }
    (page.items.into_iter().map(item).collect(), is_last)
}

/// A running watch.
pub struct Watch {
    caller: Arc<Caller>,
    request: v1::WatchRequest,
    open: Option<Open<v1::WatchResponse>>,
}

/// A message of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchUpdate {
    /// In order; may be empty.
    pub changes: Vec<Change>,
    /// All changes up to this revision have been returned: the position to resume from later.
    pub progress: Revision,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The write that made it.
    pub revision: Revision,
    /// The key; empty when the whole keyspace was cleared.
    pub key: Bytes,
    /// The kind of change.
    pub kind: ChangeKind,
    /// If values were requested: its present string, of this change or of a later one.
    pub now: Option<Versioned>,
}

impl Watch {
    /// Returns once the node watches, so that no later change is missed.
    pub(crate) async fn open(
        caller: Arc<Caller>,
        request: v1::WatchRequest,
    ) -> Result<Watch, Error> {
        let mut watch = Watch { caller, request, open: None };
        if watch.request.after_revision.is_none() {
            watch.next().await?;
        }
        Ok(watch)
    }

    /// Waits for changes. A connection that breaks is opened again at the last progress, so a
    /// change may be returned twice and none is missed.
    pub async fn next(&mut self) -> Result<WatchUpdate, Error> {
        // However long nothing changes.
        let update = match next_message(&mut self.open, &self.caller, None).await? {
            Some(update) => update,
            None => {
                let caller = &self.caller;
                // A node sends its position as soon as it watches.
                let watch = |channel, request| async move {
                    first_message(kv(channel).watch(caller.streaming(request)).await?).await
                };
                let request = self.request.clone();
                let (at, (messages, update)) = caller.call_at(Repeat::Read, request, watch).await?;
                self.open = Some(Open { at, messages });
                update
            }
        };
        self.request.after_revision = Some(update.progress);
        Ok(WatchUpdate {
            changes: update.changes.into_iter().filter_map(change).collect(),
            progress: Revision(update.progress),
        })
    }
}

/// An open stream.
struct Open<T> {
    /// The node that it comes from.
    at: usize,
    messages: Streaming<T>,
}

/// A stream with its first message.
pub(crate) async fn first_message<T>(
    opened: Response<Streaming<T>>,
) -> Result<(Streaming<T>, T), Status> {
    let mut messages = opened.into_inner();
    let first = messages.message().await?;
    let first =
        first.ok_or_else(|| Status::unavailable("the stream has ended without a message"))?;
    Ok((messages, first))
}

/// The next message of a stream, `within` a time if one is given. `None`: there is no stream, or it
/// broke, or has brought nothing in time; then its node is left, and the stream can be opened
/// again.
async fn next_message<T>(
    open: &mut Option<Open<T>>,
    caller: &Caller,
    within: Option<Duration>,
) -> Result<Option<T>, Error> {
    let Some(Open { at, messages }) = open else { return Ok(None) };
    let at = *at;
    let next = match within {
        Some(within) => timeout(within, messages.message()).await.unwrap_or(Ok(None)),
        None => messages.message().await,
    };
    if let Ok(Some(message)) = next {
        return Ok(Some(message));
    }
    *open = None;
    if let Err(status) = next
        && let Verdict::Final(error) = judge(&status)
    {
        return Err(error);
    }
    caller.nodes().leave(at);
    Ok(None)
}

fn item(item: v1::Item) -> Item {
    let kind = match item.kind() {
        v1::Kind::String => Kind::String,
        v1::Kind::Hash => Kind::Hash,
    };
    Item { key: item.key, kind, version: Revision(item.version), value: item.value }
}

/// A change; `None`: of a kind from a newer version.
fn change(change: v1::Change) -> Option<Change> {
    let kind = match change.kind() {
        v1::ChangeKind::ChangeUnspecified => return None,
        v1::ChangeKind::Put => ChangeKind::Put,
        v1::ChangeKind::Append => ChangeKind::Append,
        v1::ChangeKind::Add => ChangeKind::Add,
        v1::ChangeKind::Delete => ChangeKind::Delete,
        v1::ChangeKind::Expire => ChangeKind::Expire,
        v1::ChangeKind::SetExpiry => ChangeKind::SetExpiry,
        v1::ChangeKind::ClearExpiry => ChangeKind::ClearExpiry,
        v1::ChangeKind::HashSet => ChangeKind::HashSet,
        v1::ChangeKind::HashDelete => ChangeKind::HashDelete,
        v1::ChangeKind::HashAdd => ChangeKind::HashAdd,
        v1::ChangeKind::Clear => ChangeKind::Clear,
    };
    Some(Change {
        revision: Revision(change.revision),
        key: change.key,
        kind,
        now: change.now.map(versioned),
    })
}
