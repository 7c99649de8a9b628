//! Commands over all keyspaces: SCAN, KEYS, DBSIZE, FLUSHALL and FLUSHDB.
//!
//! Redis has numbered databases; here the keys of all keyspaces together are the only one.

use crate::redis::args::{integer, is};
use crate::redis::refused::Refused;
use crate::redis::table::flag::{FAST, READONLY, WRITE};
use crate::redis::table::{CommandSpec, Family, Own};
use bytes::Bytes;
use model::{Keyspace, Kind, ScanFilter, glob, limits};
use wire::resp::{Frame, parse_i64};

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "generic",
    category: "@keyspace",
    commands: &[
        CommandSpec::own("scan", -2, READONLY, "2.8.0", "A page of keys", Own::Scan),
        CommandSpec::own("keys", 2, READONLY, "1.0.0", "All keys that match; SCAN is kinder", Own::Keys),
        CommandSpec::own("dbsize", 1, READONLY | FAST, "1.0.0", "How many keys there are", Own::DbSize),
        CommandSpec::own("flushall", -1, WRITE, "1.0.0", "Removes every key of every keyspace", Own::Flush),
        CommandSpec::own("flushdb", -1, WRITE, "1.0.0", "Removes every key of every keyspace", Own::Flush),
    ],
};

/// Keys visited by one SCAN without COUNT.
const COUNT_DEFAULT: usize = 10;

/// The options of a SCAN or HSCAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) struct ScanOptions {
    pub(in crate::redis) cursor: u64,
    pub(in crate::redis) filter: ScanFilter,
    pub(in crate::redis) count: usize,
    /// The requested type does not exist here: nothing matches.
    pub(in crate::redis) matches_nothing: bool,
}

/// Parses a cursor at `at` and the options behind it.
pub(in crate::redis) fn read_options(
    frame: &Frame,
    at: usize,
    takes_type: bool,
) -> Result<ScanOptions, Refused> {
    let cursor = std::str::from_utf8(frame.arg(at)).ok().and_then(|text| text.parse().ok());
    let cursor = cursor.ok_or(Refused::because("ERR invalid cursor"))?;
    let filter = ScanFilter::default();
    let mut options = ScanOptions { cursor, filter, count: COUNT_DEFAULT, matches_nothing: false };
    let mut at = at + 1;
    while at < frame.len() {
        let word = frame.arg(at);
        if at + 1 >= frame.len() {
            return Err(Refused::SYNTAX);
        }
        let value = frame.arg(at + 1);
        if is(word, "count") {
            let count = parse_i64(value).ok_or(Refused::NOT_AN_INTEGER)?;
            if count < 1 {
                return Err(Refused::SYNTAX);
            }
            options.count = (count as usize).min(limits::SCAN_PAGE_ITEMS_MAX);
        } else if is(word, "match") {
            options.filter.glob = (value != b"*").then(|| Bytes::copy_from_slice(value));
        } else if is(word, "type") && takes_type {
            match () {
                () if is(value, "string") => options.filter.kind = Some(Kind::String),
                () if is(value, "hash") => options.filter.kind = Some(Kind::Hash),
                () => options.matches_nothing = true,
            }
        } else {
            return Err(Refused::SYNTAX);
        }
        at += 2;
    }
    Ok(options)
}

/// Whether a keyspace may hold a key that the glob matches: each begins with the keyspace's prefix
/// and with the glob's literal part.
pub(in crate::redis) fn may_hold_match(keyspace: &Keyspace, glob: Option<&Bytes>) -> bool {
    let Some(glob) = glob else { return true };
    let (literal, prefix) = (glob::literal_prefix(glob), &keyspace.spec.prefix);
    literal.starts_with(prefix) || prefix.starts_with(&literal)
}

/// Checks the arguments of FLUSHALL and FLUSHDB. ASYNC and SYNC are the same here: clearing is one
/// small command whatever the number of keys.
pub(in crate::redis) fn check_flush(frame: &Frame) -> Result<(), Refused> {
    let is_known = |word: &[u8]| is(word, "async") || is(word, "sync");
    if frame.len() > 2 || !frame.args_from(1).all(is_known) {
        return Err(Refused::SYNTAX);
    }
    Ok(())
}

/// Parses the number of a database; only 0 exists.
pub(in crate::redis) fn check_database(arg: &[u8]) -> Result<(), Refused> {
    match integer(arg)? {
        0 => Ok(()),
        _ => Err(Refused::because("ERR DB index is out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{KeyspaceId, KeyspaceSpec};

    fn options(args: &[&[u8]]) -> Result<ScanOptions, Refused> {
        read_options(&Frame::of(args), 1, true)
    }

    #[test]
    fn scan_reads_its_options() {
        let read =
            options(&[b"scan", b"7", b"MATCH", b"car:*", b"count", b"100", b"type", b"hash"]);
        let read = read.unwrap();
        assert_eq!((read.cursor, read.count), (7, 100));
        assert_eq!(read.filter.glob.as_deref(), Some(&b"car:*"[..]));
        assert_eq!(read.filter.kind, Some(Kind::Hash));
        assert!(options(&[b"scan", b"0", b"type", b"zset"]).unwrap().matches_nothing);
        assert_eq!(options(&[b"scan", b"x"]), Err(Refused::because("ERR invalid cursor")));
        assert_eq!(options(&[b"scan", b"0", b"count", b"0"]), Err(Refused::SYNTAX));
        assert_eq!(options(&[b"scan", b"0", b"match"]), Err(Refused::SYNTAX));
    }

    #[test]
    fn a_keyspace_is_passed_over_when_nothing_in_it_can_match() {
        let spec = KeyspaceSpec::linearizable_site("cars", "car:");
        let cars = Keyspace { id: KeyspaceId(1), spec };
        for (glob, may) in [("car:1*", true), ("c*", true), ("*", true), ("bus:*", false)] {
            assert_eq!(may_hold_match(&cars, Some(&Bytes::from(glob))), may, "{glob}");
        }
    }
}
