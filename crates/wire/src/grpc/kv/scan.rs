//! A scan, page by page.

use super::super::{Invalid, v1};
use super::consistency;
use model::{Answer, Bytes, Kind, Query, ReadConsistency, ScanFilter, limits};

/// What of a scan is still to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPlan {
    /// Where the next page starts.
    pub(super) from: Bytes,
    /// Where the last one ends; `None`: at the end of the keyspace.
    pub(super) until: Option<Bytes>,
    filter: ScanFilter,
    with_values: bool,
    /// How many keys are still wanted; `None`: all.
    wanted: Option<u64>,
    /// How fresh each page must be.
    pub consistency: ReadConsistency,
}

impl ScanPlan {
    /// What a request asks for.
    pub fn new(request: v1::ScanRequest) -> Result<ScanPlan, Invalid> {
        let given = |bytes: Bytes| (!bytes.is_empty()).then_some(bytes);
        let until = match (given(request.until), after_prefix(&request.prefix)) {
            (Some(until), Some(end)) => Some(until.min(end)),
            (until, end) => until.or(end),
        };
        Ok(ScanPlan {
            from: request.from.max(request.prefix),
            until,
            filter: ScanFilter { glob: given(request.glob), kind: None },
            with_values: request.with_values,
            wanted: (request.limit > 0).then_some(request.limit),
            consistency: consistency(request.consistency)?,
        })
    }

    /// The query of the next page, which looks at no more than `items_max` keys.
    pub fn page(&self, items_max: usize) -> Query {
        let wanted = self.wanted.map_or(usize::MAX, |w| usize::try_from(w).unwrap_or(usize::MAX));
        // With a glob most keys may not match: fewer wanted does not mean fewer looked at.
        let examine_max =
            if self.filter.glob.is_some() { items_max } else { items_max.min(wanted) };
        Query::Scan {
            from: self.from.clone(),
            until: self.until.clone(),
            examine_max: examine_max.clamp(1, limits::SCAN_PAGE_ITEMS_MAX),
            filter: self.filter.clone(),
            with_values: self.with_values,
        }
    }

    /// Takes a page's answer: the response to send, and whether another page is due.
    pub fn take(&mut self, answer: Answer) -> (v1::ScanResponse, bool) {
        let Answer::Page { mut items, mut next } = answer else {
            unreachable!("a scan is answered with a page");
        };
        if let Some(wanted) = &mut self.wanted {
            let keep = usize::try_from(*wanted).unwrap_or(usize::MAX);
            if items.len() > keep {
                next = Some(items[keep].key.clone());
                items.truncate(keep);
            }
            *wanted -= items.len() as u64;
        }
        if let Some(next) = &next {
            self.from = next.clone();
        }
        let more = next.is_some() && self.wanted != Some(0);
        let items = items.into_iter().map(item).collect();
        (
            v1::ScanResponse {
                items,
                next: next.unwrap_or_default(),
                ..v1::ScanResponse::default()
            },
            more,
        )
    }
}

fn item(item: model::Item) -> v1::Item {
    let kind = match item.kind {
        Kind::String => v1::Kind::String,
        Kind::Hash => v1::Kind::Hash,
    };
    v1::Item { key: item.key, kind: kind.into(), version: item.version.0, value: item.value }
}

/// The first key after all those that begin with `prefix`; `None`: there is none.
pub(super) fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}
