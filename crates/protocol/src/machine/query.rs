//! Answers to questions, from any view of the state: as it is, as it was, or as it will be in the
//! middle of a transaction.

use super::hashes::find;
use super::keys::check_key;
use super::records::{Record, fields};
use super::{MachineError, Stopped, expiry, tables};
use model::glob::{literal_prefix, matches};
use model::{
    Answer, Bytes, Expiring, Item, Kind, Query, ReadPoint, Refusal, Revision, ScanFilter, Slot,
    Versioned, limits,
};
use std::collections::{BTreeMap, BTreeSet};
use storage::state::Read;

/// One keyspace (or slot of it) at one moment.
pub(crate) struct ReadContext<'a, R> {
    pub(crate) read: &'a R,
    pub(crate) generation: u64,
    pub(crate) log_time_ms: u64,
    /// How many keys there are, if that is asked.
    pub(crate) count: Option<u64>,
    /// How far the state has come, if that is asked.
    pub(crate) point: ReadPoint,
    /// The time by which a key that has not expired is due, if that matters. Asked only for keys
    /// that expire.
    pub(crate) due_by: DueBy<'a>,
}

/// See [`ReadContext`].
pub(crate) type DueBy<'a> = Option<&'a dyn Fn() -> u64>;

/// Counts what an answer is going to carry.
pub(crate) fn charge(answer_bytes: &mut usize, bytes: usize) -> Result<(), Refusal> {
    *answer_bytes = answer_bytes.saturating_add(bytes);
    if *answer_bytes > limits::ANSWER_BYTES_MAX {
        return Err(Refusal::AnswerTooLong);
    }
    Ok(())
}

/// How much of a state a query looks at.
pub(crate) enum Extent {
    /// One row.
    Row,
    /// Several, to be seen at one moment.
    Rows,
    /// A range of them.
    Range,
}

/// How much of a state a query looks at.
pub(crate) fn extent(query: &Query) -> Extent {
    match query {
        Query::GetMany { keys } | Query::Exists { keys } | Query::Versions { keys } => {
            if keys.len() == 1 { Extent::Row } else { Extent::Rows }
        }
        // The keys, and how far the state has come.
        Query::Watch { .. } => Extent::Rows,
        Query::Scan { .. } | Query::Count => Extent::Range,
        _ => Extent::Row,
    }
}

/// Where records of a slot lie that are served.
#[derive(Clone, Debug)]
pub struct Served {
    /// The slot.
    pub(crate) slot: Slot,
    /// Of one group only; `None`: of all groups of the slot but those that are `away`.
    pub(crate) tag: Option<Bytes>,
    /// The tags of groups that are served elsewhere.
    pub(crate) away: BTreeSet<Bytes>,
    /// Where.
    pub(crate) generation: u64,
}

/// Answers a query; `answer_bytes` counts what it carries.
pub(crate) fn answer<R: Read>(
    context: &ReadContext<'_, R>,
    query: &Query,
    answer_bytes: &mut usize,
) -> Result<Answer, Stopped> {
    Ok(match query {
        Query::Get { key } => {
            let record = context.record_of(key, Kind::String)?;
            charge(answer_bytes, record.as_ref().map_or(0, |record| record.payload.len()))?;
            Answer::Value(record.map(|r| Versioned { value: r.payload, version: r.version }))
        }
        Query::GetMany { keys } => {
            let mut values = Vec::new();
            for key in keys {
                let record = context.record(key)?.filter(|record| record.kind == Kind::String);
                charge(answer_bytes, record.as_ref().map_or(0, |record| record.payload.len()))?;
                values.push(record.map(|record| record.payload));
            }
            Answer::Values(values)
        }
        Query::Exists { keys } => {
            let mut there = 0;
            for key in keys {
                there += i64::from(context.record(key)?.is_some());
            }
            Answer::Integer(there)
        }
        Query::Expiry { key } => Answer::Expiry(match context.record(key)? {
            None => Expiring::Absent,
            Some(record) => record.expires_ms.map_or(Expiring::Never, Expiring::AtMs),
        }),
        Query::Kind { key } => Answer::Kind(context.record(key)?.map(|record| record.kind)),
        Query::Length { key } => {
            let record = context.record_of(key, Kind::String)?;
            Answer::Integer(record.map_or(0, |record| record.payload.len() as i64))
        }
        Query::Versions { keys } => Answer::Versions(context.versions(keys)?),
        Query::Watch { keys } => {
            Answer::Watched { versions: context.versions(keys)?, point: context.point }
        }
        Query::HashGet { key, field } => {
            let Some(record) = context.record_of(key, Kind::Hash)? else {
                return Ok(Answer::Value(None));
            };
            let value = find(&record.payload, field)?.map(|value| record.payload.slice_ref(value));
            Answer::Value(value.map(|value| Versioned { value, version: record.version }))
        }
        Query::HashGetMany { key, fields: names } => {
            let payload = context.hash(key)?;
            let mut by_name = BTreeMap::new();
            for field in fields(&payload) {
                let field = field?;
                by_name.insert(field.name, field.value);
            }
            let mut values = Vec::new();
            for name in names {
                let value = by_name.get(&name[..]).map(|value| payload.slice_ref(value));
                charge(answer_bytes, value.as_ref().map_or(0, Bytes::len))?;
                values.push(value);
            }
            Answer::Values(values)
        }
        Query::HashGetAll { key } => {
            let payload = context.hash(key)?;
            charge(answer_bytes, payload.len())?;
            let mut all = Vec::new();
            for field in fields(&payload) {
                let field = field?;
                all.push((payload.slice_ref(field.name), payload.slice_ref(field.value)));
            }
            Answer::Fields(all)
        }
        Query::HashExists { key, field } => {
            Answer::Flag(find(&context.hash(key)?, field)?.is_some())
        }
        Query::HashLen { key } => {
            let payload = context.hash(key)?;
            let mut len = 0;
            for field in fields(&payload) {
                field?;
                len += 1;
            }
            Answer::Integer(len)
        }
        Query::Count => {
            context.check_first_expiry()?;
            Answer::Integer(context.count.unwrap_or(0) as i64)
        }
        Query::Scan { from, until, examine_max, filter, with_values } => {
            let page = Page {
                from,
                until: until.as_deref(),
                examine_max: (*examine_max).clamp(1, limits::SCAN_PAGE_ITEMS_MAX),
                filter,
                with_values: *with_values,
            };
            context.scan(&page, answer_bytes)?.1
        }
    })
}

/// A page over several slots of a global keyspace, in the order of the slots.
///
/// The next page's first key shows by its slot and its tag where to resume.
pub(crate) fn scan_slots<R: Read>(
    read: &R,
    log_time_ms: u64,
    due_by: DueBy<'_>,
    served: &[Served],
    query: &Query,
) -> Result<Answer, Stopped> {
    let Query::Scan { from, until, examine_max, filter, with_values } = query else {
        unreachable!("only a scan looks at slots one after the other")
    };
    if until.is_some() {
        return Err(
            Refusal::NotGlobal("be scanned up to a key, as its keys are ordered by slot").into()
        );
    }
    check_key(from)?;
    let (first, first_tag) = (Slot::of_key(from), model::tag(from));
    let mut left = (*examine_max).clamp(1, limits::SCAN_PAGE_ITEMS_MAX);
    let (mut all, mut answer_bytes, point) = (Vec::new(), 0, ReadPoint::default());
    let is_before = |one: &&Served| {
        one.slot == first && one.tag.as_ref().is_some_and(|tag| &tag[..] < first_tag)
    };
    for one in served.iter().filter(|one| one.slot >= first && !is_before(one)) {
        let generation = one.generation;
        let context = ReadContext { read, generation, log_time_ms, count: None, point, due_by };
        let is_first = one.slot == first && one.tag.as_ref().is_none_or(|tag| tag == first_tag);
        let from = if is_first { &from[..] } else { b"" };
        let is_full = left == 0 || answer_bytes >= limits::SCAN_PAGE_BYTES_MAX;
        let page =
            Page { from, until: None, examine_max: left.max(1), filter, with_values: *with_values };
        let (examined, answer) = context.scan(&page, &mut answer_bytes)?;
        let Answer::Page { items, next } = answer else { unreachable!("a scan gives a page") };
        if is_full {
            // Looked at only to see whether there is more, and where.
            match context.first(from)? {
                Some(key) => return Ok(Answer::Page { items: all, next: Some(key) }),
                None => continue,
            }
        }
        left -= examined.min(left);
        let is_here =
            |item: &Item| one.away.is_empty() || !one.away.contains(model::tag(&item.key));
        all.extend(items.into_iter().filter(is_here));
        if next.is_some() {
            return Ok(Answer::Page { items: all, next });
        }
    }
    Ok(Answer::Page { items: all, next: None })
}

/// Which page of a scan.
struct Page<'a> {
    from: &'a [u8],
    until: Option<&'a [u8]>,
    examine_max: usize,
    filter: &'a ScanFilter,
    with_values: bool,
}

impl<R: Read> ReadContext<'_, R> {
    /// What a key holds, if it is there and its time has not come.
    fn record(&self, key: &[u8]) -> Result<Option<Record>, Stopped> {
        check_key(key)?;
        let at = tables::record(self.generation, key);
        let Some(row) = self.read.get(&at).map_err(MachineError::from)? else { return Ok(None) };
        let record = Record::decode(row)?;
        Ok(self.is_there(&record)?.then_some(record))
    }

    /// Whether a record's time has not come.
    fn is_there(&self, record: &Record) -> Result<bool, Stopped> {
        let Some(ms) = record.expires_ms else { return Ok(true) };
        if record.expiry_of.is_some() {
            // It goes when the order of the sites contains that.
            return Ok(!record.is_vacant);
        }
        if ms <= self.log_time_ms {
            return Ok(false);
        }
        match self.due_by {
            Some(due_by) if ms <= due_by() => Err(Stopped::Due(ms)),
            _ => Ok(true),
        }
    }

    /// What counts keys must not count one that is due. The first expiry may be of another
    /// keyspace: then it waits a moment for nothing.
    pub(crate) fn check_first_expiry(&self) -> Result<(), Stopped> {
        let Some(due_by) = self.due_by else { return Ok(()) };
        match expiry::NextExpiry::load(self.read)?.ms {
            Some(ms) if ms > self.log_time_ms && ms <= due_by() => Err(Stopped::Due(ms)),
            _ => Ok(()),
        }
    }

    /// The versions of keys, 0 for an absent one.
    fn versions(&self, keys: &[Bytes]) -> Result<Vec<Revision>, Stopped> {
        let version = |key: &Bytes| Ok(self.record(key)?.map_or(Revision(0), |r| r.version));
        keys.iter().map(version).collect()
    }

    /// What a key holds if that is of this kind.
    fn record_of(&self, key: &[u8], kind: Kind) -> Result<Option<Record>, Stopped> {
        match self.record(key)? {
            Some(record) if record.kind != kind => Err(Refusal::WrongType.into()),
            record => Ok(record),
        }
    }

    /// The payload of a hash, empty when it is absent.
    fn hash(&self, key: &[u8]) -> Result<Bytes, Stopped> {
        Ok(self.record_of(key, Kind::Hash)?.map(|record| record.payload).unwrap_or_default())
    }

    /// A page ends after so many keys were looked at, or so many bytes of them: matching or not,
    /// returned or not, so that no filter makes it long.
    /// Returns how many keys it looked at, too.
    fn scan(&self, page: &Page<'_>, answer_bytes: &mut usize) -> Result<(usize, Answer), Stopped> {
        let empty = (0, Answer::Page { items: Vec::new(), next: None });
        check_key(page.from)?;
        page.until.map_or(Ok(()), check_key)?;
        let glob = page.filter.glob.as_deref();
        let prefix = glob.map(literal_prefix).unwrap_or_default();
        if check_key(&prefix).is_err() {
            // No key is so long.
            return Ok(empty);
        }
        let first = page.from.max(&prefix[..]);
        let from = tables::record(self.generation, first);
        let (_, end) = tables::records(self.generation);
        let until = page.until.map(|until| tables::record(self.generation, until));
        let until = until.as_deref().unwrap_or(&end);
        if until <= &from[..] {
            return Ok(empty);
        }
        let prefix_bytes = tables::record_prefix_bytes(self.generation);

        let mut items = Vec::new();
        let mut next = None;
        let mut examined = 0;
        let mut examined_bytes = 0;
        let mut stopped = None;
        let scanned = self.read.scan(&from, Some(until), &mut |at, row| {
            let key = at.slice(prefix_bytes..);
            if !key.starts_with(&prefix) {
                return false;
            }
            if examined == page.examine_max || examined_bytes >= limits::SCAN_PAGE_BYTES_MAX {
                next = Some(key);
                return false;
            }
            examined += 1;
            examined_bytes += key.len() + row.len();
            match Record::decode(row) {
                Ok(record) => match self.item(page, glob, key, record) {
                    Ok(item) => items.extend(item),
                    Err(error) => stopped = Some(error),
                },
                Err(error) => stopped = Some(error.into()),
            }
            stopped.is_none()
        });
        scanned.map_err(MachineError::from)?;
        if let Some(error) = stopped {
            return Err(error);
        }
        charge(answer_bytes, examined_bytes)?;
        Ok((examined, Answer::Page { items, next }))
    }

    /// The first key from there on, whatever it holds.
    fn first(&self, from: &[u8]) -> Result<Option<Bytes>, Stopped> {
        let (_, end) = tables::records(self.generation);
        let prefix_bytes = tables::record_prefix_bytes(self.generation);
        let mut first = None;
        let scanned =
            self.read.scan(&tables::record(self.generation, from), Some(&end), &mut |at, _| {
                first = Some(at.slice(prefix_bytes..));
                false
            });
        scanned.map_err(MachineError::from)?;
        Ok(first)
    }

    fn item(
        &self,
        page: &Page<'_>,
        glob: Option<&[u8]>,
        key: Bytes,
        record: Record,
    ) -> Result<Option<Item>, Stopped> {
        let is_wanted = page.filter.kind.is_none_or(|kind| kind == record.kind)
            && glob.is_none_or(|glob| matches(glob, &key))
            && self.is_there(&record)?;
        let value = (page.with_values && record.kind == Kind::String).then_some(record.payload);
        Ok(is_wanted.then_some(Item { key, kind: record.kind, version: record.version, value }))
    }
}
