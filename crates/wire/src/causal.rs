//! The messages of causal keys between sites.
//!
//! A write takes two ways: its content goes from its site to the others at once ([`Writes`]), its
//! place in the order from the root to all ([`Places`]). Each message may be lost, repeated, and
//! overtaken by others. Writes reach the root as commands ([`model::CausalCommand::Order`]),
//! forwarded like others.

use bytes::Bytes;
use model::{KeyspaceId, Position, Revision, SiteId, limits};

/// A message about the order of causal keys.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CausalMessage {
    /// One step; `None`: one that is unknown to this version.
    #[prost(oneof = "CausalStep", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub step: Option<CausalStep>,
}

/// A step of the exchange.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum CausalStep {
    /// Writes of a site.
    #[prost(message, tag = "1")]
    Writes(Writes),
    /// A root's leader asks a site where it is.
    #[prost(message, tag = "2")]
    Where(Where),
    /// Where a site is, from its leader.
    #[prost(message, tag = "3")]
    Reached(Reached),
    /// Places of the order, from a root's leader.
    #[prost(message, tag = "4")]
    Places(Places),
    /// A site lacks writes that have a place.
    #[prost(message, tag = "5")]
    Pull(Pull),
    /// A node asks a root for the position of a write.
    #[prost(message, tag = "6")]
    Resolve(Resolve),
    /// The answer.
    #[prost(message, tag = "7")]
    Resolved(Resolved),
    /// The sender is no leader, and the message before was for one. The leader of its site; 0: not
    /// known.
    #[prost(uint64, tag = "8")]
    LedBy(u64),
    /// Keys that a site holds on demand no more, from its leader to the root's.
    #[prost(message, tag = "9")]
    Drop(Keys),
}

/// Keys of a keyspace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Keys {
    /// Which keyspace.
    #[prost(uint32, tag = "1")]
    pub keyspace: u32,
    /// The keys.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub keys: Vec<Bytes>,
}

/// Writes of a site.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Writes {
    /// The site.
    #[prost(uint32, tag = "1")]
    pub site: u32,
    /// The writes, in the order of their revisions ([`crate::entry::encode_writes`]).
    #[prost(bytes = "bytes", tag = "2")]
    pub writes: Bytes,
}

/// A question for [`Reached`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Where {
    /// The epoch of the root.
    #[prost(uint32, tag = "1")]
    pub epoch: u32,
}

/// Where a site is in the order.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Reached {
    /// The epoch of the root, as far as is known at the site.
    #[prost(uint32, tag = "1")]
    pub epoch: u32,
    /// The position up to which it has imported the order: durable.
    #[prost(uint64, tag = "2")]
    pub applied: u64,
    /// The position up to which its leader has the places.
    #[prost(uint64, tag = "3")]
    pub taken: u64,
    /// Places are to be sent from `taken` on, and an answer is wanted if there are none.
    #[prost(bool, tag = "4")]
    pub again: bool,
    /// Sessions wait there for places, and nothing has come for a while: what was sent after `taken`
    /// may be lost. A version without it waits until it asks by itself.
    #[prost(bool, tag = "120")]
    pub waits: bool,
}

/// A run of the order, without the writes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Places {
    /// The epoch of the root.
    #[prost(uint32, tag = "1")]
    pub epoch: u32,
    /// The position before the first.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    /// The first position; the others follow one by one.
    #[prost(uint64, tag = "3")]
    pub first: u64,
    /// The site of the write at each.
    #[prost(uint32, repeated, tag = "4")]
    pub sites: Vec<u32>,
    /// Its revision there.
    #[prost(uint64, repeated, tag = "5")]
    pub revisions: Vec<u64>,
    /// The keyspace of each. Empty, as in earlier versions: all sites hold all keyspaces.
    #[prost(uint32, repeated, tag = "6")]
    pub keyspaces: Vec<u32>,
    /// How many of `hashes` belong to each. Empty: the site holds no keys on demand.
    #[prost(uint32, repeated, tag = "7")]
    pub hash_counts: Vec<u32>,
    /// The keys of each, by [`model::key_hash`]. None of one: its content is needed, whatever the
    /// site holds.
    #[prost(fixed32, repeated, tag = "8")]
    pub hashes: Vec<u32>,
}

/// A place of the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceOf {
    /// Which one.
    pub position: Position,
    /// The site of the write there.
    pub site: SiteId,
    /// Its revision there.
    pub revision: Revision,
    /// Its keyspace, if that is named.
    pub keyspace: Option<KeyspaceId>,
    /// Its keys, by their hashes: see [`Places::hashes`].
    pub hashes: Vec<u32>,
}

/// Positions whose writes the sender lacks.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pull {
    /// The positions, ascending.
    #[prost(uint64, repeated, tag = "1")]
    pub positions: Vec<u64>,
}

/// A question for the position of a write.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Resolve {
    /// The site.
    #[prost(uint32, tag = "1")]
    pub site: u32,
    /// The revision there.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// Of a session that comes from another region: that one. The position that is asked for is one
    /// behind all that it has seen and written there; `site` is 0 if it has written nothing that
    /// has no position. 0: it comes from this region.
    #[prost(uint32, tag = "3")]
    pub region: u32,
    /// What it has seen of that region's order.
    #[prost(uint64, tag = "4")]
    pub seen: u64,
}

/// The position of a write, or a later one.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Resolved {
    /// The site.
    #[prost(uint32, tag = "1")]
    pub site: u32,
    /// The revision there.
    #[prost(uint64, tag = "2")]
    pub revision: u64,
    /// 0: the site is gone, and its write had no position.
    #[prost(uint64, tag = "3")]
    pub position: u64,
    /// As in the question.
    #[prost(uint32, tag = "4")]
    pub region: u32,
    /// As in the question.
    #[prost(uint64, tag = "5")]
    pub seen: u64,
}

impl Places {
    /// The positions, with the write at each; `None`: the message makes no sense.
    pub fn entries(&self) -> Option<Vec<PlaceOf>> {
        let count = self.sites.len();
        let has_keyspaces = [0, count].contains(&self.keyspaces.len());
        let counts = &self.hash_counts;
        let is_counted =
            counts.iter().map(|count| *count as usize).sum::<usize>() == self.hashes.len();
        let has_hashes = [0, count].contains(&counts.len()) && is_counted;
        let has_all = count == self.revisions.len() && has_keyspaces && has_hashes;
        if !has_all || count > limits::CAUSAL_BATCH_PLACES_MAX {
            return None;
        }
        let all = self.sites.iter().zip(&self.revisions).zip(0u64..);
        let mut hashes = self.hashes.iter().copied();
        let entry = |((site, revision), at): ((&u32, &u64), u64)| {
            let position = Position(self.first.checked_add(at)?);
            let keyspace = self.keyspaces.get(at as usize).copied().map(KeyspaceId);
            let (site, revision) = (SiteId(*site), Revision(*revision));
            let count = counts.get(at as usize).copied().unwrap_or_default() as usize;
            let hashes = hashes.by_ref().take(count).collect();
            let is_behind = position.0 > self.after;
            is_behind.then_some(PlaceOf { position, site, revision, keyspace, hashes })
        };
        all.map(entry).collect()
    }
}

impl From<CausalStep> for CausalMessage {
    fn from(step: CausalStep) -> CausalMessage {
        CausalMessage { step: Some(step) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{decode_writes, encode_writes};
    use crate::inter_site::{InterSite, InterSiteMessage};
    use model::{CausalWrite, Effect, KeyspaceId};
    use prost::Message as _;

    #[test]
    fn the_messages_stay_as_they_are() {
        let write = CausalWrite {
            revision: Revision(5),
            seen: Position(3),
            keyspace: KeyspaceId(2),
            effects: vec![Effect::Put { key: "k".into(), value: "v".into() }],
        };
        let writes = encode_writes(&vec![write.clone()]);
        assert_eq!(decode_writes(writes.clone()).unwrap(), [write]);
        let cases = [
            (
                CausalStep::Writes(Writes { site: 3, writes: "w".into() }),
                &b"\x0a\x05\x08\x03\x12\x01w"[..],
            ),
            (CausalStep::Where(Where { epoch: 1 }), b"\x12\x02\x08\x01"),
            (
                CausalStep::Reached(Reached {
                    epoch: 1,
                    applied: 2,
                    taken: 3,
                    again: true,
                    waits: false,
                }),
                b"\x1a\x08\x08\x01\x10\x02\x18\x03\x20\x01",
            ),
            (
                CausalStep::Reached(Reached { waits: true, ..Reached::default() }),
                b"\x1a\x03\xc0\x07\x01",
            ),
            (
                CausalStep::Places(Places {
                    epoch: 1,
                    after: 2,
                    first: 3,
                    sites: vec![4, 5],
                    revisions: vec![6, 7],
                    ..Places::default()
                }),
                b"\x22\x0e\x08\x01\x10\x02\x18\x03\x22\x02\x04\x05\x2a\x02\x06\x07",
            ),
            (
                CausalStep::Places(Places {
                    epoch: 1,
                    after: 2,
                    first: 3,
                    sites: vec![4, 5],
                    revisions: vec![6, 7],
                    keyspaces: vec![2, 3],
                    ..Places::default()
                }),
                b"\x22\x12\x08\x01\x10\x02\x18\x03\x22\x02\x04\x05\x2a\x02\x06\x07\x32\x02\x02\x03",
            ),
            (
                CausalStep::Places(Places {
                    sites: vec![4, 5],
                    hash_counts: vec![0, 1],
                    hashes: vec![6],
                    ..Places::default()
                }),
                b"\x22\x0e\x22\x02\x04\x05\x3a\x02\x00\x01\x42\x04\x06\x00\x00\x00",
            ),
            (
                CausalStep::Drop(Keys { keyspace: 2, keys: vec!["k".into()] }),
                b"\x4a\x05\x08\x02\x12\x01k",
            ),
            (CausalStep::Pull(Pull { positions: vec![8, 9] }), b"\x2a\x04\x0a\x02\x08\x09"),
            (
                CausalStep::Resolve(Resolve { site: 1, revision: 2, ..Resolve::default() }),
                b"\x32\x04\x08\x01\x10\x02",
            ),
            (
                CausalStep::Resolve(Resolve { region: 3, seen: 4, ..Resolve::default() }),
                b"\x32\x04\x18\x03\x20\x04",
            ),
            (
                CausalStep::Resolved(Resolved {
                    site: 1,
                    revision: 2,
                    position: 3,
                    ..Resolved::default()
                }),
                b"\x3a\x06\x08\x01\x10\x02\x18\x03",
            ),
            (
                CausalStep::Resolved(Resolved { region: 3, seen: 4, ..Resolved::default() }),
                b"\x3a\x04\x20\x03\x28\x04",
            ),
            (CausalStep::LedBy(7), b"\x40\x07"),
        ];
        for (step, bytes) in cases {
            let message = CausalMessage::from(step);
            assert_eq!(message.encode_to_vec(), bytes, "{message:?}");
            assert_eq!(CausalMessage::decode(bytes), Ok(message.clone()));
            let inter_site = InterSiteMessage::from(InterSite::Causal(message));
            assert_eq!(InterSiteMessage::decode(&inter_site.encode_to_vec()[..]), Ok(inter_site));
        }
        assert_eq!(writes[..], encode_writes(&decode_writes(writes.clone()).unwrap())[..]);
        // A step of a later version.
        assert_eq!(CausalMessage::decode(&b"\xca\x02\x01x"[..]).unwrap().step, None);
    }

    #[test]
    fn places_that_make_no_sense_are_none() {
        let good = Places {
            after: 2,
            first: 3,
            sites: vec![1, 2],
            revisions: vec![7, 8],
            ..Places::default()
        };
        let wanted = |keyspaces: [Option<u32>; 2]| {
            let all = [(3, 1, 7), (4, 2, 8)].into_iter().zip(keyspaces);
            let place = |((position, site, revision), keyspace): ((u64, u32, u64), Option<u32>)| {
                let (position, site) = (Position(position), SiteId(site));
                let (revision, keyspace) = (Revision(revision), keyspace.map(KeyspaceId));
                PlaceOf { position, site, revision, keyspace, hashes: Vec::new() }
            };
            Some(all.map(place).collect())
        };
        assert_eq!(good.entries(), wanted([None, None]));
        let named = Places { keyspaces: vec![5, 6], ..good.clone() };
        assert_eq!(named.entries(), wanted([Some(5), Some(6)]));
        let hashed = Places { hash_counts: vec![2, 0], hashes: vec![5, 6], ..good.clone() };
        let hashes: Vec<Vec<u32>> =
            hashed.entries().unwrap().into_iter().map(|one| one.hashes).collect();
        assert_eq!(hashes, [vec![5, 6], vec![]]);
        let many = limits::CAUSAL_BATCH_PLACES_MAX + 1;
        for bad in [
            Places { revisions: vec![7], ..good.clone() },
            Places { keyspaces: vec![7], ..good.clone() },
            Places { hash_counts: vec![2, 1], ..hashed.clone() },
            Places { hash_counts: vec![2], ..hashed },
            Places { first: 2, ..good.clone() },
            Places { first: u64::MAX, ..good.clone() },
            Places { sites: vec![1; many], revisions: vec![1; many], ..good },
        ] {
            assert_eq!(bad.entries(), None);
        }
    }
}
