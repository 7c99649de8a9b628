//! Scans and watches: streams that resume at their position when a connection breaks.

use crate::call::{Caller, Repeat, kv};
use crate::error::{Verdict, judge};
use crate::keyspace::versioned;
use crate::session::Session;
use crate::{Error, v1};
use model::{Bytes, ChangeKind, Item, Kind, Revision, Versioned};
use std::collections::VecDeque;
use std::sync::Arc;
use tonic::Streaming;

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
    stream: Option<Streaming<v1::ScanResponse>>,
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
        Scan { caller, session, request, stream: None, page: VecDeque::new(), done: false }
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
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let caller = &self.caller;
                let turn = match &self.session {
                    Some(session) => Some(session.turn().await),
                    None => None,
                };
                let scan = |channel, request| {
                    let mut request = caller.streaming(request);
                    if let Some(turn) = &turn {
                        turn.write(request.metadata_mut());
                    }
                    async move { kv(channel).scan(request).await }
                };
                let opened = caller.call(Repeat::Read, self.request.clone(), scan).await?;
                self.stream.insert(opened.into_inner())
            }
        };
        match stream.message().await {
            Ok(Some(page)) => {
                if let Some(session) = &self.session {
                    session.turn().await.read_page(page.session);
                }
                self.done = page.next.is_empty();
                self.request.from = page.next;
                if self.request.limit > 0 {
                    self.request.limit = self.request.limit.saturating_sub(page.items.len() as u64);
                    self.done |= self.request.limit == 0;
                }
                self.page = page.items.into_iter().map(item).collect();
                Ok(())
            }
            Ok(None) => {
                self.stream = None;
                Ok(())
            }
            Err(status) => {
                self.stream = None;
                broken(&status)
            }
        }
    }
}

/// A running watch.
pub struct Watch {
    caller: Arc<Caller>,
    request: v1::WatchRequest,
    stream: Option<Streaming<v1::WatchResponse>>,
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
        let mut watch = Watch { caller, request, stream: None };
        if watch.request.after_revision.is_none() {
            watch.next().await?;
        }
        Ok(watch)
    }

    /// Waits for changes. A connection that breaks is opened again at the last progress, so a
    /// change may be returned twice and none is missed.
    pub async fn next(&mut self) -> Result<WatchUpdate, Error> {
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => {
                    let caller = &self.caller;
                    let watch = |channel, request| async move {
                        kv(channel).watch(caller.streaming(request)).await
                    };
                    let opened = caller.call(Repeat::Read, self.request.clone(), watch).await?;
                    self.stream.insert(opened.into_inner())
                }
            };
            match stream.message().await {
                Ok(Some(update)) => {
                    self.request.after_revision = Some(update.progress);
                    return Ok(WatchUpdate {
                        changes: update.changes.into_iter().filter_map(change).collect(),
                        progress: Revision(update.progress),
                    });
                }
                Ok(None) => self.stream = None,
                Err(status) => {
                    self.stream = None;
                    broken(&status)?;
                }
            }
        }
    }
}

/// Whether a stream that broke may be opened again.
fn broken(status: &tonic::Status) -> Result<(), Error> {
    match judge(status) {
        Verdict::Final(error) => Err(error),
        Verdict::Again(_) | Verdict::Perhaps(_) | Verdict::NoNode(_) => Ok(()),
    }
}

pub(crate) fn item(item: v1::Item) -> Item {
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
