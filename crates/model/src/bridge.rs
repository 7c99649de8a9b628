//! What the orders of several regions have of each other.
//!
//! Each region's root takes what the other regions have ordered into its own order, each of them in
//! its order. Two regions may do so with the same two writes the one way and the other; so that
//! both end with the same keys, each write has a [`Stamp`], and of each register the write with the
//! highest stamp counts: what comes behind it with a lower one leaves that register as it is
//! ([`Registers`]).
//!
//! A stamp is above that of every write with a lower position in the order that gave it, so cause
//! and effect never have the same winner wrong. It is a hybrid clock: the root's log time where
//! that is ahead, else what it has seen.
//!
//! Source: hybrid logical clocks (Kulkarni and others, 2014); Gesto, steps 5 to 9.

use crate::{Bytes, CausalWrite, Effect, Mark, Position, RegionId, SiteId};

/// What a key held when its expiry was ordered: in other regions so much of it goes. A register
/// that has a higher stamp there stays, as what is in it was written without knowing that the key
/// is gone, or after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyStamps {
    /// Whatever is not named here has a stamp up to this one.
    pub floor: Stamp,
    /// Of the write that assigned the string and all fields.
    pub values: Option<Stamp>,
    /// Of that which assigned the string.
    pub string: Option<Stamp>,
    /// Of those which assigned these fields.
    pub fields: Vec<(Bytes, Stamp)>,
    /// Of that which assigned the expiry.
    pub expiry: Option<Stamp>,
}

/// By which of two writes of one register all regions decide: the higher counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The clock of the order that gave it, in milliseconds since 1970.
    pub at_ms: u64,
    /// The count of its position there.
    pub count: u64,
    /// The region of that.
    pub region: RegionId,
}

impl KeyStamps {
    /// How many bytes of fields it carries.
    pub fn payload_bytes(&self) -> usize {
        self.fields.iter().map(|(name, _)| name.len() + size_of::<Stamp>()).sum()
    }
}

/// The registers of a key that a write leaves as they are: what they hold has a higher stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The string and all fields.
    pub values: bool,
    /// The string.
    pub string: bool,
    /// These fields.
    pub fields: Vec<Bytes>,
    /// The expiry.
    pub expiry: bool,
}

/// Places of a region's order on their way to the root of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Which region's.
    pub of: RegionId,
    /// The position before the first.
    pub after: Position,
    /// The last position; those that are not among `places` have no effect elsewhere.
    pub upto: Position,
    /// No later write of that region has a stamp before this. Above 0 if nothing lies behind `upto`.
    pub clock_ms: u64,
    /// What its order has of other regions up to `upto`, the receiver's too, if that is stated. And
    /// of itself, if these are all places that it had when it knew of the receiver's epoch.
    pub has: Vec<(RegionId, Position)>,
    /// The places, in order.
    pub places: Vec<Bridged>,
}

/// One place of another region's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bridged {
    /// A write of that region; or one that it has taken of another one, which has lost it.
    Entry {
        /// Its place there.
        position: Position,
        /// Its stamp.
        stamp: Stamp,
        /// Its site.
        site: SiteId,
        /// The write.
        write: CausalWrite,
    },
    /// A write of a third region, which that one has taken: it comes from there.
    Taken {
        /// Its place there.
        position: Position,
        /// The third region.
        region: RegionId,
        /// Its place in the third region's order.
        upto: Position,
    },
    /// The clock of that order ([`Mark::Clock`]).
    Clock {
        /// Its place there.
        position: Position,
        /// What it is from there on.
        at_ms: u64,
        /// What that order has of other regions there.
        has: Vec<(RegionId, Position)>,
    },
}

impl Bridged {
    /// What a place of an order is to other regions; `None`: it has no effect there. `is_lost`:
    /// whether a place of another region is, so that it comes from there no more.
    pub fn of(
        position: Position,
        site: SiteId,
        write: CausalWrite,
        is_lost: impl Fn(RegionId, Position) -> bool,
    ) -> Option<Bridged> {
        if let Some(Effect::Mark(Mark::Clock { at_ms, taken, .. })) = write.effects.first() {
            return Some(Bridged::Clock { position, at_ms: *at_ms, has: taken.clone() });
        }
        match write.stamp()? {
            (_, Some((region, upto))) if !is_lost(region, upto) => {
                Some(Bridged::Taken { position, region, upto })
            }
            (stamp, _) => {
                let mut effects = write.effects;
                effects.retain(|effect| {
                    !effect.is_mark() || matches!(effect, Effect::Mark(Mark::Held { .. }))
                });
                let write = CausalWrite { seen: Position(0), effects, ..write };
                let is_none = write.effects.iter().all(Effect::is_mark);
                (!is_none).then_some(Bridged::Entry { position, stamp, site, write })
            }
        }
    }

    /// Its place in the order of the region that it comes from.
    pub fn position(&self) -> Position {
        match self {
            Bridged::Entry { position, .. }
            | Bridged::Taken { position, .. }
            | Bridged::Clock { position, .. } => *position,
        }
    }

    /// How many bytes of keys, fields and values it carries.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Bridged::Entry { write, .. } => write.payload_bytes(),
            Bridged::Taken { .. } | Bridged::Clock { .. } => 0,
        }
    }
}

impl CausalWrite {
    /// Its stamp, and of a write of another region that one and its place there. `None`: there is
    /// one region, or it has no effect.
    pub fn stamp(&self) -> Option<(Stamp, Option<(RegionId, Position)>)> {
        self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Mark(Mark::Stamped { stamp, taken }) => Some((*stamp, *taken)),
            _ => None,
        })
    }
}

impl Registers {
    /// How many bytes of fields it carries.
    pub fn payload_bytes(&self) -> usize {
        self.fields.iter().map(Bytes::len).sum()
    }
}
