//! Changes as a stream.

use super::call::Callee;
use model::{Answer, Bytes, ChangeKind, KeyspaceId, Query, ReadConsistency, Revision, Versioned};
use server::Watch;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::grpc::{self as convert, status, v1};

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

    async fn send_to(mut self, responses: mpsc::Sender<Result<v1::WatchResponse, Status>>) {
        let begins = v1::WatchResponse { changes: Vec::new(), progress: self.watch.position().0 };
        if responses.send(Ok(begins)).await.is_err() {
            return;
        }
        loop {
            let next = tokio::select! {
                next = self.watch.next() => next,
                () = responses.closed() => return,
            };
            let (response, ended) = match next {
                Ok(changes) => (Ok(self.response(changes).await), false),
                Err(failure) => (Err(status(&failure)), true),
            };
            if responses.send(response).await.is_err() || ended {
                return;
            }
        }
    }

    async fn response(&self, changes: Vec<model::Change>) -> v1::WatchResponse {
        let mut shown = Vec::with_capacity(changes.len());
        for change in changes {
            let cleared = change.kind == ChangeKind::Clear;
            if !cleared && !change.key.starts_with(&self.prefix) {
                continue;
            }
            let now = match self.with_values && !cleared {
                true => self.now(change.key.clone()).await,
                false => None,
            };
            shown.push(v1::Change { now, ..convert::change(change) });
        }
        v1::WatchResponse { changes: shown, progress: self.watch.position().0 }
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
