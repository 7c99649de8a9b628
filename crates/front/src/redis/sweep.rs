//! Going over all keyspaces: SCAN, KEYS, DBSIZE. What a user may not read is not there for them.

use super::commands::scan::{may_hold_match, read_options};
use super::connection::Connection;
use super::cursors::Position;
use super::execution::refused;
use super::refused::Refused;
use bytes::Bytes;
use model::{Answer, Catalog, Command, Item, KeyspaceId, Query, ScanFilter, Write, limits};
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::Frame;

/// Bytes of keys that KEYS answers with.
const KEYS_BYTES_MAX: usize = limits::VALUE_BYTES_MAX;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The keyspaces of this port that this user may read and that may hold a match, in order.
    fn readable(&self, catalog: &Catalog, glob: Option<&Bytes>) -> Vec<KeyspaceId> {
        let all = catalog.all().into_iter();
        all.filter(|keyspace| !self.session.is_cluster() || keyspace.spec.is_global())
            .filter(|keyspace| self.session.may_read(keyspace) && may_hold_match(keyspace, glob))
            .map(|keyspace| keyspace.id)
            .collect()
    }

    async fn page(
        &self,
        from: Position,
        examine_max: usize,
        filter: ScanFilter,
    ) -> Result<(Vec<Item>, Option<Bytes>), Refused> {
        let query =
            Query::Scan { from: from.key, until: None, examine_max, filter, with_values: false };
        match self.ask(from.keyspace, query, self.session.consistency).await.map_err(refused)? {
            Answer::Page { items, next } => Ok((items, next)),
            other => Err(Refused(format!("ERR a scan was answered {other:?}").into())),
        }
    }

    /// One page of one keyspace; its end leads to the next keyspace.
    pub(super) async fn scan(&mut self, frame: &Frame) -> Result<(), Refused> {
        let options = read_options(frame, 1, true)?;
        let keyspaces = self.readable(&self.thread.handle.catalog(), options.filter.glob.as_ref());
        let begin = match options.cursor {
            0 => keyspaces.first().map(|first| Position { keyspace: *first, key: Bytes::new() }),
            cursor => Some(self.thread.shared.cursors().position(cursor).ok_or(UNKNOWN_CURSOR)?),
        };
        let (mut items, mut next) = (Vec::new(), None);
        if let (Some(begin), false) = (begin, options.matches_nothing) {
            let here = begin.keyspace;
            let (found, more) = self.page(begin, options.count, options.filter).await?;
            items = found;
            next = match more {
                Some(key) => Some(Position { keyspace: here, key }),
                None => keyspaces
                    .into_iter()
                    .find(|other| *other > here)
                    .map(|keyspace| Position { keyspace, key: Bytes::new() }),
            };
        }
        let cursor = next.map_or(0, |position| self.thread.shared.cursors().open(position));
        let mut out = self.encoder();
        out.array(2);
        out.bulk(cursor.to_string().as_bytes());
        out.array(items.len());
        items.iter().for_each(|item| out.bulk(&item.key));
        Ok(())
    }

    pub(super) async fn keys(&mut self, frame: &Frame) -> Result<(), Refused> {
        let glob = Some(frame.bytes(1));
        let keyspaces = self.readable(&self.thread.handle.catalog(), glob.as_ref());
        let filter = ScanFilter { glob, kind: None };
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for keyspace in keyspaces {
            let mut from = Some(Bytes::new());
            while let Some(key) = from {
                let position = Position { keyspace, key };
                let (items, next) =
                    self.page(position, limits::SCAN_PAGE_ITEMS_MAX, filter.clone()).await?;
                bytes += items.iter().map(|item| item.key.len()).sum::<usize>();
                if bytes > KEYS_BYTES_MAX {
                    let text =
                        format!("ERR these are more than {KEYS_BYTES_MAX} bytes of keys; use SCAN");
                    return Err(Refused(text.into()));
                }
                keys.extend(items.into_iter().map(|item| item.key));
                from = next;
            }
        }
        let mut out = self.encoder();
        out.array(keys.len());
        keys.iter().for_each(|key| out.bulk(key));
        Ok(())
    }

    /// Removes all keys of this port: by the Redis Cluster protocol, those that this site holds of
    /// global keyspaces, as clients ask every site.
    pub(super) async fn flush(&mut self) -> Result<(), Refused> {
        if !self.session.is_cluster() {
            return self.change(Command::ClearAll).await.map(drop);
        }
        let catalog = self.thread.handle.catalog();
        for keyspace in catalog.all().into_iter().filter(|keyspace| keyspace.spec.is_global()) {
            let (keyspace, write) = (keyspace.id, Write::Clear);
            self.change(Command::Write { keyspace, write, request: None }).await?;
        }
        Ok(())
    }

    pub(super) async fn db_size(&mut self) -> Result<(), Refused> {
        let mut keys = 0;
        for keyspace in self.readable(&self.thread.handle.catalog(), None) {
            let counted = self.ask(keyspace, Query::Count, self.session.consistency).await;
            if let Answer::Integer(count) = counted.map_err(refused)? {
                keys += count;
            }
        }
        self.encoder().integer(keys);
        Ok(())
    }
}

const UNKNOWN_CURSOR: Refused = Refused::because(
    "ERR this cursor is unknown here or was forgotten; begin the scan again with cursor 0",
);
