//! What a key holds: one record, a string or a whole hash.
//!
//! ```text
//! record  = flags (1 byte) ‖ version (varint) ‖ expiry (varint, milliseconds; if flagged)
//!           ‖ who set it: site ‖ revision (varints; if flagged) ‖ position (varint; if flagged) ‖ payload
//! flags   = format 1 in the high four bits ‖ bit 3: sites agree on its expiry ‖ bit 2: it has a position
//!           ‖ bit 1: it expires ‖ bit 0: it is a hash
//! string  = its bytes
//! hash    = (field length (varint) ‖ field ‖ value length (varint) ‖ value)*, ordered by field
//! ```
//!
//! A position is the place of the record's last write in an order beyond this site's log, if a mode
//! imports it from there; 2^64 - 1: the record is of several writes, some of which have none. An
//! expiry that sites agree on ([`Agreed`]) removes nothing by itself. It may outlive its key: then
//! the record is a hash without fields, and the key is absent.
//!
//! A hash is read and written as a whole. That is right for what hashes are used for at the edge (a
//! vehicle's handful of attributes) and wrong for one with a million fields, which is what keys are
//! for.

use super::{MachineError, tables};
use bytes::Buf as _;
use model::{Bytes, Kind, Revision, SiteId};
use wire::entry::{put_varint, take_varint, varint_bytes};

const FORMAT: u8 = 1 << 4;
const FORMAT_MASK: u8 = 0xf0;
const AGREED: u8 = 8;
const ORDERED: u8 = 4;
const EXPIRES: u8 = 2;
const HASH: u8 = 1;

const DAMAGED: MachineError = MachineError::Damaged { table: tables::RECORDS as char };

/// The position of a record of which several writes have made parts, some of them without a
/// position.
pub(crate) const SEVERAL: u64 = u64::MAX;

/// One record, with its payload as it lies in the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// The revision that wrote it last.
    pub(crate) version: Revision,
    pub(crate) expires_ms: Option<u64>,
    /// The write that has set the expiry, if sites agree on that.
    pub(crate) expiry_of: Option<(SiteId, Revision)>,
    /// The place of that write in an order beyond this site's log; 0: it has none; or [`SEVERAL`].
    pub(crate) position: u64,
    pub(crate) payload: Bytes,
    /// The key is absent, and only its expiry is there.
    pub(crate) is_vacant: bool,
}

/// An expiry that sites agree on: a key goes by an order of theirs, which comes once the moment
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) ms: u64,
    /// The site of the write that has set it, and its revision there.
    pub(crate) of: (SiteId, Revision),
}

impl Record {
    /// Reads a record of the state.
    pub(crate) fn decode(mut bytes: Bytes) -> Result<Record, MachineError> {
        let (mut record, at) = Record::parse(&bytes).ok_or(DAMAGED)?;
        bytes.advance(at);
        record.payload = bytes;
        Ok(record)
    }

    /// Reads all but the payload, which then seems empty.
    pub(crate) fn decode_head(bytes: &[u8]) -> Result<Record, MachineError> {
        Ok(Record::parse(bytes).ok_or(DAMAGED)?.0)
    }

    /// The record without its payload, and where that begins.
    fn parse(bytes: &[u8]) -> Option<(Record, usize)> {
        let flags = *bytes.first()?;
        if flags & FORMAT_MASK != FORMAT || (flags & AGREED != 0 && flags & EXPIRES == 0) {
            return None;
        }
        let (version, len) = take_varint(&bytes[1..])?;
        let mut at = 1 + len;
        let mut expires_ms = None;
        if flags & EXPIRES != 0 {
            let (ms, len) = take_varint(&bytes[at..])?;
            expires_ms = Some(ms);
            at += len;
        }
        let mut expiry_of = None;
        if flags & AGREED != 0 {
            let (site, len) = take_varint(&bytes[at..])?;
            at += len;
            let (revision, len) = take_varint(&bytes[at..])?;
            at += len;
            expiry_of = Some((SiteId(u32::try_from(site).ok()?), Revision(revision)));
        }
        let mut position = 0;
        if flags & ORDERED != 0 {
            let (read, len) = take_varint(&bytes[at..])?;
            position = read;
            at += len;
        }
        let kind = if flags & HASH != 0 { Kind::Hash } else { Kind::String };
        let version = Revision(version);
        let is_vacant = expiry_of.is_some() && kind == Kind::Hash && at == bytes.len();
        let payload = Bytes::new();
        Some((Record { kind, version, expires_ms, expiry_of, position, payload, is_vacant }, at))
    }

    /// The expiry, if sites agree on it.
    pub(crate) fn agreed(&self) -> Option<Agreed> {
        let (ms, of) = self.expires_ms.zip(self.expiry_of)?;
        Some(Agreed { ms, of })
    }

    /// Writes a record whose payload is these parts.
    pub(crate) fn encode(
        kind: Kind,
        version: Revision,
        expires_ms: Option<u64>,
        payload: &[&[u8]],
    ) -> Bytes {
        Record::encode_at(kind, version, expires_ms, 0, payload)
    }

    /// The same, with a position; 0: it has none.
    pub(crate) fn encode_at(
        kind: Kind,
        version: Revision,
        expires_ms: Option<u64>,
        position: u64,
        payload: &[&[u8]],
    ) -> Bytes {
        Record::encode_with(kind, version, (expires_ms, None), position, payload)
    }

    /// The same with an expiry that sites agree on, or none.
    pub(crate) fn encode_agreed(
        kind: Kind,
        version: Revision,
        expiry: Option<Agreed>,
        position: u64,
        payload: &[&[u8]],
    ) -> Bytes {
        let expiry = expiry.map(|expiry| (expiry.ms, expiry.of)).unzip();
        Record::encode_with(kind, version, expiry, position, payload)
    }

    fn encode_with(
        kind: Kind,
        version: Revision,
        (expires_ms, expiry_of): (Option<u64>, Option<(SiteId, Revision)>),
        position: u64,
        payload: &[&[u8]],
    ) -> Bytes {
        let position_bytes = if position > 0 { varint_bytes(position) } else { 0 };
        let of_bytes = |(site, revision): (SiteId, Revision)| {
            varint_bytes(site.0.into()) + varint_bytes(revision.0)
        };
        let head_bytes = 1
            + varint_bytes(version.0)
            + expires_ms.map_or(0, varint_bytes)
            + expiry_of.map_or(0, of_bytes)
            + position_bytes;
        let payload_bytes: usize = payload.iter().map(|part| part.len()).sum();
        // Exactly as long as it gets: a longer one would cost a second allocation when shared.
        let mut out = Vec::with_capacity(head_bytes + payload_bytes);
        out.push(
            FORMAT
                | if expiry_of.is_some() { AGREED } else { 0 }
                | if position > 0 { ORDERED } else { 0 }
                | if expires_ms.is_some() { EXPIRES } else { 0 }
                | if kind == Kind::Hash { HASH } else { 0 },
        );
        put_varint(version.0, &mut out);
        if let Some(ms) = expires_ms {
            put_varint(ms, &mut out);
        }
        if let Some((site, revision)) = expiry_of {
            put_varint(site.0.into(), &mut out);
            put_varint(revision.0, &mut out);
        }
        if position > 0 {
            put_varint(position, &mut out);
        }
        for part in payload {
            out.extend_from_slice(part);
        }
        out.into()
    }

    /// Whether it is gone by this log time.
    pub(crate) fn is_expired(&self, log_time_ms: u64) -> bool {
        self.expiry_of.is_none() && self.expires_ms.is_some_and(|ms| ms <= log_time_ms)
    }
}

/// The fields of a hash in a payload, in order.
pub(crate) fn fields(payload: &Bytes) -> Fields<'_> {
    Fields { payload, at: 0 }
}

/// See [`fields`]. Yields offsets as [`Field`], because most readers want few of them as values.
pub(crate) struct Fields<'a> {
    payload: &'a Bytes,
    at: usize,
}

/// One field of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, MachineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.payload.len() {
            return None;
        }
        let field = self.part().and_then(|name| Some(Field { name, value: self.part()? }));
        if field.is_none() {
            self.at = self.payload.len();
        }
        Some(field.ok_or(MachineError::Damaged { table: tables::RECORDS as char }))
    }
}

impl<'a> Fields<'a> {
    fn part(&mut self) -> Option<&'a [u8]> {
        let (len, len_bytes) = take_varint(&self.payload[self.at..])?;
        let from = self.at + len_bytes;
        let until = from.checked_add(usize::try_from(len).ok()?)?;
        let part = self.payload.get(from..until)?;
        self.at = until;
        Some(part)
    }
}

/// Appends a field to the payload of a hash.
pub(crate) fn put_field(field: Field<'_>, payload: &mut Vec<u8>) {
    for part in [field.name, field.value] {
        put_varint(part.len() as u64, payload);
        payload.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_1_stays_as_it_is() {
        let string = Record::encode(Kind::String, Revision(300), None, &[b"va", b"lue"]);
        assert_eq!(&string[..], b"\x10\xac\x02value");
        let mut payload = Vec::new();
        put_field(Field { name: b"f", value: b"1" }, &mut payload);
        put_field(Field { name: b"g", value: b"" }, &mut payload);
        let hash = Record::encode(Kind::Hash, Revision(1), Some(1000), &[&payload]);
        assert_eq!(&hash[..], b"\x13\x01\xe8\x07\x01f\x011\x01g\x00");
        let record = Record::decode(hash).unwrap();
        assert_eq!(record.expires_ms, Some(1000));
        let names: Vec<_> = fields(&record.payload).map(|f| f.unwrap().name).collect();
        assert_eq!((names, record.position), (vec![&b"f"[..], b"g"], 0));
        let ordered = Record::encode_at(Kind::String, Revision(300), Some(1), 200, &[b"v"]);
        assert_eq!(&ordered[..], b"\x16\xac\x02\x01\xc8\x01v");
        let record = Record::decode(ordered).unwrap();
        assert_eq!((record.position, &record.payload[..]), (200, &b"v"[..]));
        let expiry = Some(Agreed { ms: 1_000, of: (SiteId(2), Revision(300)) });
        let agreed = Record::encode_agreed(Kind::String, Revision(1), expiry, 7, &[b"v"]);
        assert_eq!(&agreed[..], b"\x1e\x01\xe8\x07\x02\xac\x02\x07v");
        let record = Record::decode(agreed).unwrap();
        assert_eq!((record.agreed(), record.is_vacant), (expiry, false));
        assert!(!record.is_expired(u64::MAX), "no clock removes it");
        let vacant = Record::encode_agreed(Kind::Hash, Revision(1), expiry, 0, &[]);
        assert!(Record::decode_head(&vacant).unwrap().is_vacant);
    }

    #[test]
    fn a_damaged_record_is_said_to_be_one() {
        for bytes in [&b""[..], b"\x20\x01", b"\x18\x01\x01\x01", b"\x14\x01", b"\x10", b"\x12\x01"]
        {
            assert!(Record::decode(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
        let payload = Bytes::from_static(b"\x01f\x05v");
        let read: Vec<_> = fields(&payload).collect();
        assert!(matches!(read[..], [Err(MachineError::Damaged { .. })]));
    }

    #[test]
    fn expiry_counts_from_its_own_moment() {
        let bytes = Record::encode(Kind::String, Revision(1), Some(10), &[]);
        let record = Record::decode(bytes.clone()).unwrap();
        assert!(!record.is_expired(9));
        assert!(record.is_expired(10));
    }
}
