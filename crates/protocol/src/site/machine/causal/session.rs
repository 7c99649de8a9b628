//! What a session's token becomes by a read, and what a site lacks for a token, on any thread.
//!
//! A read looks at rows, and notes of each what it is: the version of another site has a position,
//! which the session has seen; an own one has a revision, which it has seen as written here, until
//! that is ordered. Where it is not known which write the reader saw (an absent key, a hash whose
//! fields are of several writes, a string whose value and expiry are, a scan, a count), the session
//! has seen all that this site shows.
//!
//! A token never names a position that this site has not imported.

use super::super::reader::{Reader, answer_at};
use super::super::records::Record;
use super::super::tables::RECORDS;
use super::rows::{self, Head};
use super::{Causal, MachineError, NOT_HELD, Stopped};
use crate::machine::query::{DueBy, Extent, extent};
use crate::machine::records::SEVERAL;
use model::{
    Answer, Bytes, CausalToken, HeldSize, KeyspaceId, Kind, LostEnd, Position, Query, Rebuilt,
    Refusal, RegionId, Revision, SiteId, limits,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use storage::state::{Read, State, StateError};

/// How far a site is in its region's order and in its own writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CausalPoint {
    /// The region; 0: the site has none yet.
    pub region: RegionId,
    /// The site.
    pub own: SiteId,
    /// The last position imported.
    pub applied: Position,
    /// The last own revision whose position is imported.
    pub own_ordered: Revision,
    /// The revision of the last own write to a causal keyspace.
    pub last_revision: Revision,
    /// What part of the order is lost, if a root was.
    pub rebuilt: Option<Rebuilt>,
    /// The own revisions after the first up to the second may be missing, though they were written.
    pub lacks_own: Option<(Revision, Revision)>,
}

/// What a node lacks for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The order up to there: the site must import it.
    Order(Position),
    /// A revision of the own site: this node must apply it.
    Revision(Revision),
    /// The position of a write of another site, or of an own one that a backup lacked. It takes its
    /// place in the token once it is known.
    PositionOf(SiteId, Revision),
    /// The token is not of this region: nothing helps.
    Region,
    /// The keyspace: other sites hold it.
    Keyspace,
    /// The session has seen a part of the order that is lost: nothing helps.
    Ended {
        /// The last position that is kept.
        have: Position,
    },
}

/// What comes of a read in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRead {
    /// Its answer, and the token from here on.
    Answered(Result<Answer, Refusal>, CausalToken),
    /// Nothing was read.
    Lacks(Lacks),
}

impl CausalPoint {
    /// The token of a session that has seen all that the site shows here, too: after a write, for
    /// one. One that has seen what is lost stays as it is: it is refused from then on.
    pub fn covering(&self, mut token: CausalToken) -> CausalToken {
        if self.rebuilt.is_some_and(|rebuilt| rebuilt.lacks(token.seen)) {
            return token;
        }
        self.settle(&mut token);
        token.sees(self.applied);
        if self.last_revision > self.own_ordered {
            token.writes(self.own, self.last_revision);
        }
        token
    }

    /// What the session has written here and is ordered is a part of the order that it has seen.
    fn settle(&self, token: &mut CausalToken) {
        token.region = self.region;
        if token.written.is_some_and(|(site, of)| site == self.own && of <= self.own_ordered) {
            token.written = None;
            token.sees(self.applied);
        }
    }
}

/// The same for readers, as numbers that each thread reads by itself.
#[derive(Debug, Default)]
pub(in crate::site::machine) struct Seen {
    region: AtomicU32,
    own: AtomicU32,
    applied: AtomicU64,
    own_ordered: AtomicU64,
    last_revision: AtomicU64,
    /// Of what is lost, the last end first.
    lost: [Lost; 1 + limits::EARLIER_ENDS_MAX],
    lacks_after: AtomicU64,
    lacks_upto: AtomicU64,
    held_keys: AtomicU64,
    held_bytes: AtomicU64,
}

/// The end of a lost root's order.
#[derive(Debug, Default)]
struct Lost {
    /// 0: there is none.
    until: AtomicU32,
    above: AtomicU64,
}

impl Lost {
    fn publish(&self, end: LostEnd) {
        self.above.store(end.above.0, Ordering::Release);
        self.until.store(u32::from(end.until), Ordering::Release);
    }

    fn end(&self) -> LostEnd {
        let until = self.until.load(Ordering::Acquire) as u16;
        LostEnd { until, above: Position(self.above.load(Ordering::Acquire)) }
    }
}

impl Seen {
    pub(in crate::site::machine) fn publish(
        &self,
        own: Option<SiteId>,
        rebuilt: Option<Rebuilt>,
        causal: &Causal,
    ) {
        if let Some(Rebuilt { end, earlier, .. }) = rebuilt {
            // In this order: an end is seen among the earlier ones before it is no more the last.
            let (last, before) = self.lost.split_first().expect("there is one");
            before.iter().zip(earlier).rev().for_each(|(lost, end)| lost.publish(end));
            last.publish(end);
        }
        let (lacks_after, lacks_upto) = causal.lacks_own().unwrap_or_default();
        self.lacks_upto.store(lacks_upto.0, Ordering::Release);
        self.lacks_after.store(lacks_after.0, Ordering::Release);
        let held = causal.held_total();
        self.held_keys.store(held.keys, Ordering::Relaxed);
        self.held_bytes.store(held.bytes, Ordering::Relaxed);
        let Head { region, applied, own_ordered, last, .. } = causal.head;
        self.region.store(u32::from(region.0), Ordering::Release);
        self.own.store(own.map_or(0, |own| own.0), Ordering::Release);
        // In this order: what is seen as ordered lies before what is seen as imported.
        self.applied.store(applied.0, Ordering::Release);
        self.own_ordered.store(own_ordered.0, Ordering::Release);
        self.last_revision.store(last.0, Ordering::Release);
    }

    fn held(&self) -> HeldSize {
        let keys = self.held_keys.load(Ordering::Relaxed);
        HeldSize { keys, bytes: self.held_bytes.load(Ordering::Relaxed) }
    }

    fn point(&self) -> CausalPoint {
        let last_revision = Revision(self.last_revision.load(Ordering::Acquire));
        let own_ordered = Revision(self.own_ordered.load(Ordering::Acquire));
        // The last one first, as the others are published before it.
        let [end, earlier @ ..] = self.lost.each_ref().map(Lost::end);
        let rebuilt = (end.until != 0).then_some(Rebuilt { end, earlier, is_open: false });
        let lacks_after = Revision(self.lacks_after.load(Ordering::Acquire));
        let lacks_upto = Revision(self.lacks_upto.load(Ordering::Acquire));
        let lacks_own = (lacks_after < lacks_upto).then_some((lacks_after, lacks_upto));
        CausalPoint {
            lacks_own,
            rebuilt,
            region: RegionId(self.region.load(Ordering::Acquire) as u16),
            own: SiteId(self.own.load(Ordering::Acquire)),
            applied: Position(self.applied.load(Ordering::Acquire)),
            own_ordered,
            last_revision,
        }
    }
}

/// What rows a read has met.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    /// The highest position of another site's version.
    position: Position,
    /// The highest revision of an own one.
    own: Revision,
    /// It is not known which writes it has seen.
    is_broad: bool,
}

/// A state that notes which records are read of it.
struct Noting<'a, R> {
    read: &'a R,
    noted: Cell<Noted>,
}

impl<'a, R: Read> Noting<'a, R> {
    fn new(read: &'a R, query: &Query) -> Noting<'a, R> {
        let is_broad = matches!(query, Query::Count | Query::Scan { .. });
        Noting { read, noted: Cell::new(Noted { is_broad, ..Noted::default() }) }
    }
}

impl<R: Read> Read for Noting<'_, R> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StateError> {
        let row = self.read.get(key)?;
        if key.first() == Some(&RECORDS) {
            let mut noted = self.noted.get();
            // The answer reports one that cannot be read.
            match row.as_deref().and_then(|row| Record::decode_head(row).ok()) {
                Some(record) if record.kind == Kind::String => match record.position {
                    0 => noted.own = noted.own.max(record.version),
                    SEVERAL => noted.is_broad = true,
                    position => noted.position = noted.position.max(Position(position)),
                },
                _ => noted.is_broad = true,
            }
            self.noted.set(noted);
        }
        Ok(row)
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(Bytes, Bytes) -> bool,
    ) -> Result<(), StateError> {
        self.read.scan(from, until, visit)
    }
}

/// The token after a read that has met these rows at this point.
fn merge(noted: Noted, point: &CausalPoint, mut token: CausalToken) -> CausalToken {
    if noted.is_broad {
        return point.covering(token);
    }
    point.settle(&mut token);
    if noted.position > Position::default() {
        // Of an epoch of before a rebuild a part is lost, and by the position alone this may be of
        // it. What is shown here is not.
        token.sees(noted.position.max(Position::new(point.applied.epoch(), 0)));
    }
    match noted.own {
        Revision(0) => {}
        own if own > point.own_ordered => token.writes(point.own, own),
        _ => token.sees(point.applied),
    }
    token
}

/// The same by a state that does not change.
fn point_of(read: &impl Read, own: SiteId) -> Result<CausalPoint, MachineError> {
    let Head { region, applied, own_ordered, last, .. } = rows::head(read)?;
    let (rebuilt, lacks_own) = (None, None);
    Ok(CausalPoint { region, own, applied, own_ordered, last_revision: last, rebuilt, lacks_own })
}

impl<S: State> Reader<S> {
    /// How far this node's site is, as this node has applied it.
    pub fn causal(&self) -> CausalPoint {
        self.published().causal.point()
    }

    /// What this node's site holds on demand of causal keyspaces, as this node has applied it.
    pub fn held(&self) -> HeldSize {
        self.published().causal.held()
    }

    /// What this node lacks for a session; `None`: it covers the token.
    pub fn lacks(&self, token: &CausalToken) -> Option<Lacks> {
        if *token == CausalToken::default() {
            return None;
        }
        let point = self.causal();
        if token.region != point.region {
            return Some(Lacks::Region);
        }
        if let Some(have) = point.rebuilt.and_then(|rebuilt| rebuilt.lost_behind(token.seen)) {
            return Some(Lacks::Ended { have });
        }
        let is_lacked = |revision| {
            point.lacks_own.is_some_and(|(after, upto)| after < revision && revision <= upto)
        };
        match token.written {
            Some((site, revision)) if site != point.own || is_lacked(revision) => {
                return Some(Lacks::PositionOf(site, revision));
            }
            Some((_, revision)) if revision > self.revision() => {
                return Some(Lacks::Revision(revision));
            }
            _ => {}
        }
        (token.seen > point.applied).then_some(Lacks::Order(token.seen))
    }

    /// Answers a query of a causal keyspace in a session, from what this node has applied.
    ///
    /// # Errors
    /// As [`Reader::query_by`]; a refusal is an answer.
    pub fn in_session(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        due_by: DueBy<'_>,
        token: CausalToken,
    ) -> Result<SessionRead, Stopped> {
        if let Some(lacks) = self.lacks(&token) {
            return Ok(SessionRead::Lacks(lacks));
        }
        let undisturbed = match extent(query) {
            Extent::Row => self.undisturbed(|| {
                let noting = Noting::new(self.state(), query);
                let answer = self.answer_published(&noting, keyspace, query, due_by);
                (answer, noting.noted.get(), Ok(self.causal()))
            }),
            Extent::Rows | Extent::Range => None,
        };
        let own = self.causal().own;
        let (answer, noted, point) = undisturbed.unwrap_or_else(|| match extent(query) {
            Extent::Row | Extent::Rows => {
                let now = self.state().now();
                let held = self.check_keys(&now, keyspace, query);
                noted_at(&now, own, keyspace, query, (held, due_by))
            }
            Extent::Range => {
                let held = self.check_held(keyspace);
                noted_at(&self.state().view(), own, keyspace, query, (held, due_by))
            }
        });
        let answer = match answer {
            Ok(answer) => Ok(answer),
            Err(Stopped::Refused(NOT_HELD)) => return Ok(SessionRead::Lacks(Lacks::Keyspace)),
            Err(Stopped::Refused(refusal)) => Err(refusal),
            Err(stopped) => return Err(stopped),
        };
        Ok(SessionRead::Answered(answer, merge(noted, &point?, token)))
    }
}

type At = (Result<Answer, Stopped>, Noted, Result<CausalPoint, MachineError>);

fn noted_at(
    read: &impl Read,
    own: SiteId,
    keyspace: KeyspaceId,
    query: &Query,
    (held, due_by): (Result<(), Stopped>, DueBy<'_>),
) -> At {
    let noting = Noting::new(read, query);
    let answer = held.and_then(|()| answer_at(&noting, keyspace, query, due_by));
    (answer, noting.noted.get(), point_of(read, own))
}
