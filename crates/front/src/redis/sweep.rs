//! Commands over all keyspaces: SCAN, KEYS, DBSIZE. Keys that a user may not read are left out.

use super::commands::scan::{ScanOptions, check_flush, may_hold_match, read_options};
use super::connection::Connection;
use super::cursors::Position;
use super::execution::refused;
use super::refused::{self as refused_text, Refused};
use super::table::Own;
use super::thread::Thread;
use bytes::Bytes;
use model::{
    Answer, Catalog, Command, Item, Keyspace, KeyspaceId, Query, Refusal, ScanFilter, Step, Write,
    limits,
};
use tokio::io::{AsyncRead, AsyncWrite};
use wire::resp::{Encoder, Frame};

/// The most bytes of keys in a reply to KEYS.
const KEYS_BYTES_MAX: usize = limits::VALUE_BYTES_MAX;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The keyspaces of this port that this user may read and that may hold a match, in order.
    fn readable(&self, catalog: &Catalog, glob: Option<&Bytes>) -> Vec<KeyspaceId> {
        let all = catalog.all().into_iter();
        all.filter(|keyspace| self.may_scan(keyspace) && may_hold_match(keyspace, glob))
            .map(|keyspace| keyspace.id)
            .collect()
    }

    /// Whether a keyspace is of this port and this user may read it.
    fn may_scan(&self, keyspace: &Keyspace) -> bool {
        let is_of_port = !self.session.is_cluster() || keyspace.spec.is_global();
        is_of_port && self.session.may_read(keyspace)
    }

    async fn page(
        &mut self,
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
        let (begin, keyspaces, options) = self.begin_scan(frame)?;
        let (mut items, mut next) = (Vec::new(), None);
        if let Some(begin) = begin {
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
        let thread = self.thread.clone();
        write_page(&items, next, &thread, &mut self.encoder());
        Ok(())
    }

    /// The start of a SCAN, if it can match anything, and the keyspaces that it covers.
    fn begin_scan(
        &self,
        frame: &Frame,
    ) -> Result<(Option<Position>, Vec<KeyspaceId>, ScanOptions), Refused> {
        let options = read_options(frame, 1, true)?;
        let catalog = self.thread.handle.catalog();
        let keyspaces = self.readable(&catalog, options.filter.glob.as_ref());
        let begin = match options.cursor {
            0 => keyspaces.first().map(|first| Position { keyspace: *first, key: Bytes::new() }),
            cursor => {
                let position = self.thread.shared.cursors().position(cursor);
                // Another user may have opened it, who may read more.
                let may_go_on = |position: &Position| {
                    let keyspace = catalog.by_id(position.keyspace);
                    keyspace.is_some_and(|keyspace| self.may_scan(keyspace))
                };
                Some(position.filter(may_go_on).ok_or(UNKNOWN_CURSOR)?)
            }
        };
        Ok((begin.filter(|_| !options.matches_nothing), keyspaces, options))
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

    /// Removes all keys of this port: with the Redis Cluster protocol, the keys of global keyspaces
    /// that this site owns, as clients send FLUSHALL to every site.
    pub(super) async fn flush(&mut self) -> Result<(), Refused> {
        let catalog = self.thread.handle.catalog();
        if !self.session.is_cluster() {
            // First what may have to wait, or be refused as the root is away.
            for keyspace in catalog.all().into_iter().filter(|keyspace| keyspace.spec.is_causal()) {
                let (keyspace, write) = (keyspace.id, Write::Clear);
                self.change_in_session(Command::Write { keyspace, write, request: None }).await?;
            }
            return self.change(Command::ClearAll).await.map(drop);
        }
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

/// The reply of a command over all keys inside a transaction, and how many of the transaction's
/// answers belong to it.
pub(super) enum Whole {
    /// OK.
    Flush,
    /// The sum of this many counts.
    DbSize(usize),
    /// The keys of this many pages, each of which must be the last of its keyspace.
    Keys(usize),
    /// A page of this keyspace, if there is one; the scan continues in the other one.
    Scan(Option<KeyspaceId>, Option<KeyspaceId>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Refuses steps over all keyspaces if one of those is causal: a transaction is a write of one
    /// keyspace, and reads none of a session's.
    fn check_none_is_causal(&self, catalog: &Catalog) -> Result<(), Refused> {
        let all = self.readable(catalog, None);
        let causal =
            all.iter().filter_map(|id| catalog.by_id(*id)).find(|one| one.spec.is_causal());
        causal.map_or(Ok(()), |keyspace| {
            let text = format!(
                "ERR DBSIZE, SCAN and KEYS are about all keyspaces, and the keys of '{}' are read in a \
                 session: they cannot be in a transaction",
                keyspace.spec.name
            );
            Err(Refused(text.into()))
        })
    }

    /// The steps of a transaction for such a command, and its reply.
    pub(super) fn read_whole(
        &self,
        frame: &Frame,
        own: Own,
    ) -> Result<(Vec<Step>, Whole), Refused> {
        let catalog = self.thread.handle.catalog();
        if own != Own::Flush {
            self.check_none_is_causal(&catalog)?;
        }
        let page = |from: Position, examine_max, filter: &ScanFilter| Step::ReadIn {
            keyspace: from.keyspace,
            query: Query::Scan {
                from: from.key,
                until: None,
                examine_max,
                filter: filter.clone(),
                with_values: false,
            },
        };
        match own {
            Own::Flush => {
                check_flush(frame)?;
                Ok((vec![Step::Write(Write::ClearAll)], Whole::Flush))
            }
            Own::DbSize => {
                let count = |keyspace| Step::ReadIn { keyspace, query: Query::Count };
                let steps: Vec<_> = self.readable(&catalog, None).into_iter().map(count).collect();
                let reply = Whole::DbSize(steps.len());
                Ok((steps, reply))
            }
            Own::Keys => {
                let filter = ScanFilter { glob: Some(frame.bytes(1)), kind: None };
                let keyspaces = self.readable(&catalog, filter.glob.as_ref()).into_iter();
                let first = |keyspace| Position { keyspace, key: Bytes::new() };
                let steps: Vec<_> = keyspaces
                    .map(|keyspace| page(first(keyspace), limits::SCAN_PAGE_ITEMS_MAX, &filter))
                    .collect();
                let reply = Whole::Keys(steps.len());
                Ok((steps, reply))
            }
            _ => {
                let (begin, keyspaces, options) = self.begin_scan(frame)?;
                let here = begin.as_ref().map(|begin| begin.keyspace);
                let then = here.and_then(|here| keyspaces.into_iter().find(|other| *other > here));
                let steps = begin.map(|begin| page(begin, options.count, &options.filter));
                Ok((steps.into_iter().collect(), Whole::Scan(here, then)))
            }
        }
    }
}

impl Whole {
    /// Takes its answers and writes the reply.
    pub(super) fn write(
        self,
        answers: &mut impl Iterator<Item = Result<Answer, Refusal>>,
        thread: &Thread,
        out: &mut Encoder<'_>,
    ) {
        let steps = match &self {
            Whole::Flush => 1,
            Whole::DbSize(steps) | Whole::Keys(steps) => *steps,
            Whole::Scan(here, _) => usize::from(here.is_some()),
        };
        let answers: Result<Vec<_>, _> =
            answers.by_ref().take(steps).collect::<Vec<_>>().into_iter().collect();
        let answers = match answers {
            Ok(answers) => answers,
            Err(refusal) => return out.error(&refused_text::refusal_text(&refusal)),
        };
        let pages = answers.iter().filter_map(|answer| match answer {
            Answer::Page { items, next } => Some((items, next)),
            _ => None,
        });
        match self {
            Whole::Flush => out.ok(),
            Whole::DbSize(_) => {
                let count = |answer: &Answer| match answer {
                    Answer::Integer(count) => *count,
                    _ => 0,
                };
                out.integer(answers.iter().map(count).sum());
            }
            Whole::Keys(_) if pages.clone().any(|(_, next)| next.is_some()) => {
                let max = limits::SCAN_PAGE_ITEMS_MAX;
                out.error(&format!(
                    "ERR inside a transaction KEYS looks at {max} keys of a keyspace at most, and \
                     there are more; use SCAN"
                ));
            }
            Whole::Keys(_) => {
                out.array(pages.clone().map(|(items, _)| items.len()).sum());
                pages.for_each(|(items, _)| items.iter().for_each(|item| out.bulk(&item.key)));
            }
            Whole::Scan(here, then) => {
                let page = pages.clone().next();
                let next = page.and_then(|(_, next)| next.clone());
                let next = match (here, next) {
                    (Some(keyspace), Some(key)) => Some(Position { keyspace, key }),
                    _ => then.map(|keyspace| Position { keyspace, key: Bytes::new() }),
                };
                write_page(page.map_or(&[], |(items, _)| items), next, thread, out);
            }
        }
    }
}

/// Writes a page of a scan that continues at `next`.
fn write_page(items: &[Item], next: Option<Position>, thread: &Thread, out: &mut Encoder<'_>) {
    let cursor = next.map_or(0, |position| thread.shared.cursors().open(position));
    out.array(2);
    out.bulk(cursor.to_string().as_bytes());
    out.array(items.len());
    items.iter().for_each(|item| out.bulk(&item.key));
}

const UNKNOWN_CURSOR: Refused = Refused::because(
    "ERR this cursor is unknown here or was forgotten; begin the scan again with cursor 0",
);
