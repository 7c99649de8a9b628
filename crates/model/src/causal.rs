//! What causal keys are made of: positions of a region's order, sessions' tokens, and writes on
//! their way to the order.
//!
//! A *region* is a set of sites; one of them, its *root*, gives each write of the region's causal
//! keyspaces a [`Position`]. A write is a list of blind assignments ([`Effect`]): its outcome
//! depends on no other write, so that every site that folds the same writes in the same order has
//! the same keys.
//!
//! A key is a set of *registers*: its string, each field of its hash, and its expiry. An effect
//! assigns registers, and an absent register is assigned like any other value:
//!
//! | effect | string | fields | expiry |
//! | --- | --- | --- | --- |
//! | [`Effect::Put`] | the value | all absent | none |
//! | [`Effect::Replace`] | the value | all absent | stays |
//! | [`Effect::Delete`], [`Effect::Expire`] | absent | all absent | none |
//! | [`Effect::SetFields`] | absent | those named, the others stay | stays |
//! | [`Effect::DeleteFields`] | stays | those named are absent, the others stay | stays |
//! | [`Effect::SetExpiry`] | stays | stay | the moment, or none |
//! | [`Effect::Clear`] | absent, of all keys | all absent, of all keys | none, of all keys |
//!
//! A [`Mark`] assigns no register. [`Mark::Numbered`], [`Mark::Retried`] and [`Mark::Matched`] name
//! the request of a write, [`Mark::Fetched`] brings a site what keys hold. Of several regions
//! ([`crate::Bridge`]) [`Mark::Stamped`], [`Mark::Keeps`], [`Mark::Held`] and [`Mark::Clock`] state
//! by what their orders agree.
//!
//! Of each register the last effect in the order counts. A key with neither a string nor a field is
//! absent. No site removes a key by its clock: the root orders [`Effect::Expire`] once the moment
//! has come.
//!
//! Source: Gesto (multipart timestamps); the assignments are those of the Global Sequence Protocol
//! (Burckhardt 2015).

use crate::{
    Bytes, ClientId, KeyStamps, KeyspaceId, RegionId, Registers, Revision, SessionToken, SiteId,
    Stamp,
};
use std::fmt;

/// A place in a region's order: the epoch of the root that gave it (16 bits), then a count (48
/// bits) that goes on from epoch to epoch. 0: before the first write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    const COUNT_BITS: u32 = 48;

    /// The position of this count, given in this epoch.
    pub fn new(epoch: u16, count: u64) -> Position {
        debug_assert!(count < 1 << Position::COUNT_BITS, "2^48 writes");
        Position((u64::from(epoch) << Position::COUNT_BITS) | count)
    }

    /// The epoch of the root that gave it.
    pub fn epoch(self) -> u16 {
        (self.0 >> Position::COUNT_BITS) as u16
    }

    /// How many writes come before it and at it, in all epochs.
    pub fn count(self) -> u64 {
        self.0 & ((1 << Position::COUNT_BITS) - 1)
    }

    /// The position after it, in an epoch that is not lower.
    pub fn next(self, epoch: u16) -> Position {
        Position::new(epoch, self.count() + 1)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch(), self.count())
    }
}

/// What a session has seen, and where it wrote: two positions of two logs, 24 bytes at any scale.
///
/// ```text
/// token = format 1 (1 byte) ‖ flags 0 ‖ region (2 bytes) ‖ seen (8) ‖ site (4) ‖ written (8)
/// ```
///
/// All numbers are big-endian. As a [`SessionToken`] it is these bytes, or none: a session that
/// begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CausalToken {
    /// The region of both.
    pub region: RegionId,
    /// All that the session has seen of the region's order lies at this position or before it
    /// (the paper's `rts`).
    pub seen: Position,
    /// The session's writes, and what it has read of others' that has no position yet: the
    /// revisions up to this one of this site's log (the paper's `lts`). `None`: there are none, or
    /// `seen` covers them.
    pub written: Option<(SiteId, Revision)>,
}

impl CausalToken {
    /// How long it is.
    pub const BYTES: usize = 24;
    const FORMAT: u8 = 1;

    /// Its bytes.
    pub fn encode(&self) -> [u8; CausalToken::BYTES] {
        let (site, revision) = self.written.unwrap_or((SiteId(0), Revision(0)));
        let mut out = [0; CausalToken::BYTES];
        out[0] = CausalToken::FORMAT;
        out[2..4].copy_from_slice(&self.region.0.to_be_bytes());
        out[4..12].copy_from_slice(&self.seen.0.to_be_bytes());
        out[12..16].copy_from_slice(&site.0.to_be_bytes());
        out[16..].copy_from_slice(&revision.0.to_be_bytes());
        out
    }

    /// Reads what [`CausalToken::encode`] wrote; `None`: it is none, or of a newer version.
    pub fn decode(bytes: &[u8]) -> Option<CausalToken> {
        let bytes: &[u8; CausalToken::BYTES] = bytes.try_into().ok()?;
        let number = |from: usize, len: usize| {
            bytes[from..from + len].iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let site = SiteId(number(12, 4) as u32);
        let written = (site != SiteId(0)).then(|| (site, Revision(number(16, 8))));
        (bytes[..2] == [CausalToken::FORMAT, 0]).then(|| CausalToken {
            region: RegionId(number(2, 2) as u16),
            seen: Position(number(4, 8)),
            written,
        })
    }

    /// The token of a session; one that begins has seen nothing. `None`: it is none, or of a newer
    /// version.
    pub fn of_session(token: &SessionToken) -> Option<CausalToken> {
        match token.bytes().is_empty() {
            true => Some(CausalToken::default()),
            false => CausalToken::decode(token.bytes()),
        }
    }

    /// As it travels beside a request.
    pub fn into_session(self) -> SessionToken {
        let bytes = Bytes::copy_from_slice(&self.encode());
        SessionToken::new(bytes).expect("24 bytes are within the limit")
    }

    /// The session has seen what lies at a position, too.
    pub fn sees(&mut self, position: Position) {
        self.seen = self.seen.max(position);
    }

    /// The session has seen a write of this site that has no position yet, or has made it. What it
    /// had written at another site must have a position in [`CausalToken::seen`] by now.
    pub fn writes(&mut self, site: SiteId, revision: Revision) {
        debug_assert!(self.written.is_none_or(|(of, _)| of == site), "resolved at admission");
        let before = self.written.map_or(Revision(0), |(_, revision)| revision);
        self.written = Some((site, before.max(revision)));
    }
}

/// An assignment to the registers of one key. See the module's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The key is this string.
    Put {
        /// The key.
        key: Bytes,
        /// Its string.
        value: Bytes,
    },
    /// The key is absent.
    Delete {
        /// The key.
        key: Bytes,
    },
    /// These fields of a hash have these values.
    SetFields {
        /// The key.
        key: Bytes,
        /// Fields and values, each field once.
        fields: Vec<(Bytes, Bytes)>,
    },
    /// These fields of a hash are absent.
    DeleteFields {
        /// The key.
        key: Bytes,
        /// Each once.
        fields: Vec<Bytes>,
    },
    /// The key is this string, and expires as before.
    Replace {
        /// The key.
        key: Bytes,
        /// Its string.
        value: Bytes,
    },
    /// The key expires then.
    SetExpiry {
        /// The key.
        key: Bytes,
        /// Milliseconds since 1970; `None`: it does not.
        at_ms: Option<u64>,
    },
    /// The moment has come that a write has set: the key is absent. The root orders it where that
    /// write is still the last one to have set the key's expiry.
    Expire {
        /// The key.
        key: Bytes,
        /// The site of that write.
        site: SiteId,
        /// Its revision there.
        revision: Revision,
    },
    /// All keys of the keyspace are absent. Only the root orders it, and only by itself.
    Clear,
    /// It assigns nothing.
    Mark(Mark),
}

/// What stands beside the assignments of a write, and assigns no register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The write is this request of a client: ahead of its assignments.
    Numbered {
        /// Who numbers.
        client: ClientId,
        /// Which of its writes.
        sequence: u64,
    },
    /// The same, ordered by the root in the place of a site that did not answer: what that site has
    /// made of it has no effect, nor have its earlier writes to the same keys.
    Retried {
        /// Who numbers.
        client: ClientId,
        /// Which of its writes.
        sequence: u64,
        /// The site that was asked first. [`NO_SITE`]: one that has left.
        tried: SiteId,
    },
    /// Of a retried request nothing more comes from the site that was asked first.
    Matched {
        /// Who numbers.
        client: ClientId,
        /// Which of its writes.
        sequence: u64,
    },
    /// What keys hold right before its place, for a site that holds them on demand from there on.
    /// Only the root orders it.
    Fetched {
        /// The site.
        site: SiteId,
        /// The keys, each with its record; `None`: it is absent.
        items: Vec<(Bytes, Option<Bytes>)>,
    },
    /// With what stamp the write counts in all regions. Behind its assignments.
    Stamped {
        /// That.
        stamp: Stamp,
        /// Of a write of another region: that one, and its place there.
        taken: Option<(RegionId, Position)>,
    },
    /// The write leaves registers of a key as they are. Ahead of its assignments.
    Keeps {
        /// The key.
        key: Bytes,
        /// Which registers.
        registers: Registers,
    },
    /// What a key that expires held: beside [`Effect::Expire`], where there are several regions.
    Held {
        /// That.
        stamps: KeyStamps,
    },
    /// The clock of the order, where there are several regions. Only the root orders it, and only
    /// by itself.
    Clock {
        /// It is that from here on, in milliseconds since 1970.
        at_ms: u64,
        /// The root's log time.
        log_ms: u64,
        /// All regions have taken what lies up to this position, so that it is not needed to take a
        /// root's place.
        kept_after: Position,
        /// The highest stamp up to there: what other regions order from now on has a higher one.
        floor: Stamp,
        /// Of each other region the last place that lies before this one.
        taken: Vec<(RegionId, Position)>,
    },
}

/// By what a place names a key, for sites that hold some keys on demand: FNV-1a, of 32 bits.
pub fn key_hash(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

impl Effect {
    /// Whether it assigns nothing.
    pub fn is_mark(&self) -> bool {
        matches!(self, Effect::Mark(_))
    }

    /// The key that it is about; `None`: all of them, or none.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Effect::Clear | Effect::Mark(_) => None,
            Effect::Put { key, .. }
            | Effect::Delete { key }
            | Effect::SetFields { key, .. }
            | Effect::DeleteFields { key, .. }
            | Effect::Replace { key, .. }
            | Effect::SetExpiry { key, .. }
            | Effect::Expire { key, .. } => Some(key),
        }
    }

    /// How many bytes of keys, fields and values it carries.
    pub fn payload_bytes(&self) -> usize {
        self.key().map_or(0, Bytes::len)
            + match self {
                Effect::Put { value, .. } | Effect::Replace { value, .. } => value.len(),
                Effect::Delete { .. }
                | Effect::SetExpiry { .. }
                | Effect::Expire { .. }
                | Effect::Clear => 0,
                Effect::SetFields { fields, .. } => {
                    fields.iter().map(|(field, value)| field.len() + value.len()).sum()
                }
                Effect::DeleteFields { fields, .. } => fields.iter().map(Bytes::len).sum(),
                Effect::Mark(mark) => mark.payload_bytes(),
            }
    }
}

impl Mark {
    fn payload_bytes(&self) -> usize {
        match self {
            Mark::Numbered { .. }
            | Mark::Retried { .. }
            | Mark::Matched { .. }
            | Mark::Stamped { .. } => 0,
            Mark::Keeps { key, registers } => key.len() + registers.payload_bytes(),
            Mark::Held { stamps } => stamps.payload_bytes(),
            Mark::Clock { taken, .. } => size_of_val(&taken[..]),
            Mark::Fetched { items, .. } => {
                let of_item = |(key, row): &(Bytes, Option<Bytes>)| {
                    key.len() + row.as_ref().map_or(0, Bytes::len)
                };
                items.iter().map(of_item).sum()
            }
        }
    }
}

/// The site of what no site has written: the root makes it as it orders it, and its revision is its
/// position.
pub const NO_SITE: SiteId = SiteId(0);

/// The keyspace of a place that has no effect.
pub const NO_KEYSPACE: KeyspaceId = KeyspaceId(0);

/// A write of one site to a causal keyspace, on its way to the order. A transaction is one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausalWrite {
    /// Its number in its site's log: its identity, with that site.
    pub revision: Revision,
    /// The position up to which its site had imported the order when it was committed.
    pub seen: Position,
    /// Where.
    pub keyspace: KeyspaceId,
    /// What, in order.
    pub effects: Vec<Effect>,
}

impl CausalWrite {
    /// How many bytes of keys, fields and values it carries.
    pub fn payload_bytes(&self) -> usize {
        self.effects.iter().map(Effect::payload_bytes).sum()
    }
}

/// Writes of one site for the order: all that it has between two of its revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The site.
    pub site: SiteId,
    /// The revision of its write before the first of these; 0: there is none.
    pub after: Revision,
    /// The writes, in the order of their revisions.
    pub writes: Vec<CausalWrite>,
}

/// One place of the order, as a site imports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Import {
    /// The next of the importing site's own writes without a position has this one.
    Own(Position),
    /// A write of another site.
    Other {
        /// Its place.
        position: Position,
        /// Its site.
        site: SiteId,
        /// The write.
        write: CausalWrite,
    },
}

impl Import {
    /// Its place.
    pub fn position(&self) -> Position {
        match self {
            Import::Own(position) | Import::Other { position, .. } => *position,
        }
    }
}

/// How much of a keyspace a site holds on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldSize {
    /// How many keys, absent ones too.
    pub keys: u64,
    /// Their bytes and those of what they hold, and something for each.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_on_from_epoch_to_epoch() {
        let last = Position::new(1, 7);
        assert_eq!((last.next(1), last.next(2)), (Position::new(1, 8), Position::new(2, 8)));
        assert!(last.next(2) > last.next(1).next(1));
        assert_eq!(last.next(2).to_string(), "2.8");
    }

    #[test]
    fn format_1_of_a_token_stays_as_it_is() {
        let written = Some((SiteId(3), Revision(0x0405)));
        let token = CausalToken { region: RegionId(2), seen: Position::new(1, 9), written };
        let bytes = token.encode();
        assert_eq!(bytes, [1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4, 5]);
        assert_eq!(CausalToken::decode(&bytes), Some(token));
        let begins = CausalToken { written: None, ..token };
        assert_eq!(CausalToken::decode(&begins.encode()), Some(begins));
        for bad in [&bytes[..23], &[], &[2; 24]] {
            assert_eq!(CausalToken::decode(bad), None);
        }
    }

    #[test]
    fn a_session_never_goes_back() {
        let mut token = CausalToken::default();
        token.sees(Position::new(1, 5));
        token.sees(Position::new(1, 4));
        token.writes(SiteId(1), Revision(8));
        token.writes(SiteId(1), Revision(7));
        assert_eq!(
            (token.seen, token.written),
            (Position::new(1, 5), Some((SiteId(1), Revision(8))))
        );
    }
}
