//! Changes as a stream.

use super::call::Callee;
use model::{
    Answer, Bytes, Change, ChangeKind, KeyspaceId, Query, ReadConsistency, Revision, Versioned,
    limits,
};
use server::Watch;
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::grpc::{self as convert, status, v1};

type Responses = mpsc::Sender<Result<v1::WatchResponse, Status>>;

/// One caller's watch.
pub(super) struct Changes {
    callee: Callee,
    watch: Watch,
    keyspace: KeyspaceId,
    prefix: Bytes,
    with_values: bool,
}

impl Changes {
    /// Begins the watch; the stream's first response has its start position.
    pub(super) async fn follow(
        callee: &Callee,
        keyspace: KeyspaceId,
        request: v1::WatchRequest,
    ) -> Result<ReceiverStream<Result<v1::WatchResponse, Status>>, Status> {
        let after = request.after_revision.map(Revision);
        let watch = callee.handle.watch(vec![keyspace], after).await;
        let changes = Changes {
            callee: callee.clone(),
            watch: watch.map_err(|failure| status(&failure))?,
            keyspace,
            prefix: request.prefix,
            with_values: request.with_values,
        };
        // The change log holds the changes that a slow reader has not read yet, not this channel.
        let (responses, stream) = mpsc::channel(1);
        tokio::spawn(changes.send_to(responses));
        Ok(ReceiverStream::new(stream))
    }

    async fn send_to(mut self, responses: Responses) {
        let mut progress = self.watch.position();
        let begins = v1::WatchResponse { changes: Vec::new(), progress: progress.0 };
        if responses.send(Ok(begins)).await.is_err() {
            return;
        }
        loop {
            let next = tokio::select! {
                next = self.watch.next() => next,
                () = responses.closed() => return,
            };
            let sent = match next {
                Ok(changes) => self.send(changes, &mut progress, &responses).await,
                Err(failure) => {
                    // The stream ends with that, and an error means that its reader is gone.
                    let _ = responses.send(Err(status(&failure))).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Sends what was read at once as responses of about a page each. So the values of one page are
    /// in memory at a time, and no response is longer than a message may be.
    async fn send(
        &self,
        changes: Vec<Change>,
        progress: &mut Revision,
        responses: &Responses,
    ) -> Result<(), SendError<Result<v1::WatchResponse, Status>>> {
        let (mut shown, mut bytes) = (Vec::new(), 0);
        let mut values = HashMap::new();
        let mut changes = changes.into_iter().peekable();
        while let Some(change) = changes.next() {
            let next = changes.peek().map(|next| next.revision);
            if next != Some(change.revision) {
                *progress = change.revision;
            }
            let cleared = change.kind == ChangeKind::Clear;
            if cleared || change.key.starts_with(&self.prefix) {
                let now = match self.with_values && !cleared {
                    true => self.now_once(&mut values, &change.key).await,
                    false => None,
                };
                bytes += change.key.len() + now.as_ref().map_or(0, |now| now.value.len());
                shown.push(v1::Change { now, ..convert::change(change) });
            }
            let is_page =
                shown.len() >= limits::SCAN_PAGE_ITEMS_MAX || bytes > limits::SCAN_PAGE_BYTES_MAX;
            if is_page || next.is_none() {
                let changes = std::mem::take(&mut shown);
                let response = v1::WatchResponse { changes, progress: progress.0 };
                responses.send(Ok(response)).await?;
                bytes = 0;
                values.clear();
            }
        }
        Ok(())
    }

    /// The key's string, read once for all changes of a response.
    async fn now_once(
        &self,
        values: &mut HashMap<Bytes, Option<v1::Versioned>>,
        key: &Bytes,
    ) -> Option<v1::Versioned> {
        if let Some(now) = values.get(key) {
            return now.clone();
        }
        let now = self.now(key.clone()).await;
        values.insert(key.clone(), now.clone());
        now
    }

    /// The key's string at this node, which has applied the change, so it is at least as new.
    async fn now(&self, key: Bytes) -> Option<v1::Versioned> {
        let query = Query::Get { key };
        let stale = ReadConsistency::Stale;
        let answer = self.callee.read(self.keyspace, query, stale, None).await;
        match answer {
            Ok(Answer::Value(found)) => found.map(|found: Versioned| convert::versioned(found)),
            // A hash has no string, and a stopping node sends nothing more.
            _ => None,
        }
    }
}
