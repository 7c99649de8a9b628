//! Commands of the mode of causal keys: the order at its root, and the order as each site imports
//! it.

use super::Properties;
use crate::{
    Ballot, Bridge, Bridged, Bytes, CausalWrite, ClientId, Import, KeyspaceId, Offer, Position,
    RequestId, Revision, SiteId,
};
use std::fmt;

/// A command of the mode of causal keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CausalCommand {
    /// Writes of a site get their positions, at the region's root. Those that have one keep it;
    /// after a gap nothing is done. [`crate::Answer::Done`] with the site's last revision that has
    /// a position.
    Order {
        /// The epoch of the root that is to order them: another one refuses.
        epoch: u16,
        /// The writes.
        offer: Offer,
    },
    /// Takes over what lies after `from` up to `upto` in the order, unless the site is elsewhere in
    /// it. [`crate::Answer::Done`].
    Import {
        /// Where the site must be.
        from: Position,
        /// Where it is from here on.
        upto: Position,
        /// What lies between, of what this site holds, in order.
        entries: Vec<Import>,
    },
    /// The root keeps no more of the order up to there. A site that has not imported so much has
    /// its keys replaced ([`Resync`]). [`crate::Answer::Done`].
    Trim {
        /// The last position that goes.
        upto: Position,
    },
    /// The causal keyspaces of a site that lacks what the root keeps no more, from the root.
    Resync(Resync),
    /// The root stops ordering, so that another site can go on. [`crate::Answer::Done`].
    Root {
        /// The epoch in which it is the root: in another one it refuses.
        epoch: u16,
        /// What it does.
        step: RootStep,
    },
    /// At the root: all keys of a keyspace are absent at the next place of the order, behind all
    /// that the root's own site has written. [`crate::Answer::Done`] with the position, as a
    /// revision of no site.
    Clear {
        /// Which keyspace.
        keyspace: KeyspaceId,
    },
    /// A put of a client's session under a number, at the site that is asked first: known numbers
    /// are not written again. [`crate::Answer::Put`].
    Numbered {
        /// The number.
        request: RequestId,
        /// Where.
        keyspace: KeyspaceId,
        /// Keys and their strings.
        pairs: Vec<(Bytes, Bytes)>,
    },
    /// The same at the root, in the place of a site that was asked first and did not answer: it
    /// gets a place unless it has one. [`crate::Answer::Placed`] with that.
    Retry {
        /// The number.
        request: RequestId,
        /// The site that was asked first.
        tried: SiteId,
        /// What its session had seen: the first attempt has no place up to there.
        since: Position,
        /// Where.
        keyspace: KeyspaceId,
        /// Keys and their strings.
        pairs: Vec<(Bytes, Bytes)>,
    },
    /// What a root that has stopped has ordered of each site, at the site that is to be the root in
    /// its place, before the order is given: a site that has imported the order may have kept less.
    /// What a site has already stays. [`crate::Answer::Done`].
    Ordered {
        /// The epoch of the root that has stopped: in another one it is refused.
        epoch: u16,
        /// Each site's last revision with a position.
        sites: Vec<LastOrdered>,
    },
    /// At the root: what keys hold at the next place of the order is content of that place, for a
    /// site that holds them on demand. [`crate::Answer::Integer`]: the first so many of the keys
    /// are in it.
    Fetch {
        /// The epoch of the root: in another one it refuses.
        epoch: u16,
        /// The site that is to hold them.
        site: SiteId,
        /// Where.
        keyspace: KeyspaceId,
        /// Which, each once.
        keys: Vec<Bytes>,
    },
    /// At a site that holds keys on demand: it does so no more, unless it has written one and not
    /// imported its place. [`crate::Answer::Done`].
    Evict {
        /// Where.
        keyspace: KeyspaceId,
        /// Which.
        keys: Vec<Bytes>,
    },
    /// At the root: places of another region's order get places here, in that order, each once it
    /// has what its region had taken of third ones. [`crate::Answer::Done`] with the last place of
    /// that region which is taken, as a revision: what begins behind it comes too early.
    Bridge {
        /// The epoch of the root: in another one it refuses.
        epoch: u16,
        /// The places.
        bridge: Bridge,
    },
    /// What the root, or its standby, commits to while the registry has nothing else of the
    /// standby: under another version it is refused, and ends. [`crate::Answer::Done`].
    Standby {
        /// The version ([`crate::Standby::since`]).
        since: Ballot,
        /// What.
        step: StandbyStep,
    },
}

/// What a root, or its standby, commits to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyStep {
    /// The root releases nothing that the standby does not have, whether the registry has it in
    /// sync or not.
    Hold,
    /// The standby takes nothing more of the order: what it has is what it goes on from, should it
    /// take over.
    Freeze,
    /// A site that was restored from a backup gives positions, or is a standby, again: what the
    /// registry states was stated since. `since` is [`Ballot::FIRST`] if it is no standby.
    Rejoin {
        /// The epoch of its region: in another one it is refused.
        epoch: u16,
    },
}

/// What an order has of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastOrdered {
    /// The site.
    pub site: SiteId,
    /// Its last revision with a position.
    pub revision: Revision,
    /// That.
    pub position: Position,
}

/// What a root does that another site is to take the place of. In each state only some steps are
/// taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootStep {
    /// It orders nothing more.
    Stop,
    /// It goes on, as nothing was given.
    Resume,
    /// It orders nothing more in this epoch, whatever comes: what it has ordered may be the end of
    /// it. Of earlier builds, which did not keep to which site.
    Give,
    /// The same, to this site: no other one but itself goes on from there.
    GiveTo(SiteId),
}

/// A step by which a site gets its causal keyspaces anew: the root's records while it goes on
/// writing, with the order from before the first of them until behind the last. What has come is
/// answered ([`crate::Answer::Staged`]), or that the site needs nothing
/// ([`crate::Answer::Installed`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resync {
    /// Begins, or goes on. Chunks are numbered anew.
    Begin {
        /// The epoch of the root.
        epoch: u16,
        /// The root keeps the order behind it only: what has come must reach as far, or is dropped.
        floor: Position,
        /// Of one that begins: the position from which on the order is going to come. It names the
        /// resync.
        start: Position,
        /// Of one that begins: the last revision of the importing site with a position up to
        /// `start`.
        ordered: Revision,
        /// Of one that begins: where the source goes on.
        resume: Bytes,
    },
    /// Some of it.
    Chunk {
        /// Which resync.
        start: Position,
        /// Its number.
        sequence: u64,
        /// Where the source goes on after it.
        resume: Bytes,
        /// What it brings, in order.
        items: Vec<ResyncItem>,
    },
    /// All has come: it takes the place of the site's causal keyspaces.
    Switch {
        /// Which resync.
        start: Position,
        /// How many chunks there are.
        chunks: u64,
        /// The position of the order that it shows.
        upto: Position,
    },
}

/// A retried write whose first site may still offer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRetry {
    /// Who numbers.
    pub client: ClientId,
    /// Which of its writes.
    pub sequence: u64,
    /// Its place.
    pub at: Position,
    /// The place from which on it is open no more, if that is known.
    pub closed: Option<Position>,
    /// The site that was asked first.
    pub tried: SiteId,
    /// Where.
    pub keyspace: KeyspaceId,
    /// What it puts.
    pub keys: Vec<Bytes>,
}

/// What a chunk of a resync brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResyncItem {
    /// A record of the root.
    Record {
        /// Where.
        keyspace: KeyspaceId,
        /// Its key.
        key: Bytes,
        /// The record, with a position that is not before its own.
        row: Bytes,
    },
    /// The next write of the order.
    Entry {
        /// Its place.
        position: Position,
        /// Its site.
        site: SiteId,
        /// The write.
        write: CausalWrite,
    },
    /// A retried write whose first site may still offer it.
    Retried(OpenRetry),
    /// A write of the order before the resync begins, which a root needs beside other regions.
    Earlier {
        /// Its place.
        position: Position,
        /// Its site.
        site: SiteId,
        /// The write.
        write: CausalWrite,
    },
    /// What the root has ordered of a site, at a position that the resync comes to.
    Ordered {
        /// The site.
        site: SiteId,
        /// Its last revision with a position.
        revision: Revision,
        /// That.
        position: Position,
    },
}

impl ResyncItem {
    /// How many bytes of keys, fields and values it carries.
    pub fn payload_bytes(&self) -> usize {
        match self {
            ResyncItem::Record { key, row, .. } => key.len() + row.len(),
            ResyncItem::Entry { write, .. } | ResyncItem::Earlier { write, .. } => {
                write.payload_bytes()
            }
            ResyncItem::Retried(retry) => retry.keys.iter().map(Bytes::len).sum(),
            ResyncItem::Ordered { .. } => 0,
        }
    }
}

impl CausalCommand {
    pub(super) fn properties(&self) -> Properties {
        let bytes = |writes: &[CausalWrite]| writes.iter().map(CausalWrite::payload_bytes).sum();
        match self {
            CausalCommand::Order { offer, .. } => {
                Properties::new(true, true).carrying(bytes(&offer.writes))
            }
            CausalCommand::Import { entries, .. } => {
                let of_entry = |entry: &Import| match entry {
                    Import::Own(_) => 0,
                    Import::Other { write, .. } => write.payload_bytes(),
                };
                Properties::new(true, false).carrying(entries.iter().map(of_entry).sum())
            }
            CausalCommand::Trim { .. }
            | CausalCommand::Root { .. }
            | CausalCommand::Standby { .. } => Properties::new(true, false),
            CausalCommand::Numbered { pairs, .. } | CausalCommand::Retry { pairs, .. } => {
                let bytes = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
                Properties::new(true, true).carrying(bytes)
            }
            // Once more it gets another place, where the keys are held already.
            CausalCommand::Fetch { keys, .. } => {
                Properties::new(true, true).carrying(keys.iter().map(Bytes::len).sum())
            }
            CausalCommand::Evict { keys, .. } => {
                Properties::new(true, false).carrying(keys.iter().map(Bytes::len).sum())
            }
            CausalCommand::Bridge { bridge, .. } => {
                let bytes = bridge.places.iter().map(Bridged::payload_bytes).sum();
                Properties::new(true, true).carrying(bytes)
            }
            // Once more it would remove what was written in between.
            CausalCommand::Clear { .. } => Properties::new(false, true),
            CausalCommand::Ordered { sites, .. } => {
                Properties::new(true, true).carrying(size_of_val(&sites[..]))
            }
            CausalCommand::Resync(Resync::Chunk { items, .. }) => Properties::new(true, true)
                .carrying(items.iter().map(ResyncItem::payload_bytes).sum()),
            CausalCommand::Resync(_) => Properties::new(true, true),
        }
    }
}

impl fmt::Display for CausalCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CausalCommand::Order { epoch, offer } => {
                let last = offer.writes.last().map_or(offer.after, |write| write.revision);
                write!(f, "order {}: {} to {} in epoch {epoch}", offer.site, offer.after, last)
            }
            CausalCommand::Import { from, upto, entries } => {
                write!(f, "import {from} to {upto}, {} entries", entries.len())
            }
            CausalCommand::Root { epoch, step } => write!(f, "root of epoch {epoch}: {step:?}"),
            CausalCommand::Standby { since, step } => write!(f, "standby of {since}: {step:?}"),
            CausalCommand::Ordered { epoch, sites } => {
                write!(f, "what epoch {epoch} has ordered of {} sites", sites.len())
            }
            CausalCommand::Numbered { request, keyspace, pairs } => {
                let RequestId { client, sequence, .. } = request;
                write!(
                    f,
                    "put {} keys of keyspace {keyspace} as {client:?} {sequence}",
                    pairs.len()
                )
            }
            CausalCommand::Retry { request, tried, .. } => {
                let RequestId { client, sequence, .. } = request;
                write!(f, "retry {client:?} {sequence}, tried at {tried}")
            }
            CausalCommand::Clear { keyspace } => write!(f, "clear keyspace {keyspace}"),
            CausalCommand::Fetch { epoch, site, keyspace, keys } => {
                let count = keys.len();
                write!(f, "fetch {count} keys of keyspace {keyspace} for {site} in epoch {epoch}")
            }
            CausalCommand::Evict { keyspace, keys } => {
                write!(f, "evict {} keys of keyspace {keyspace}", keys.len())
            }
            CausalCommand::Bridge { epoch, bridge: Bridge { of, after, upto, places, .. } } => {
                let (of, count) = (of.0, places.len());
                write!(f, "take {after} to {upto} of region {of}, {count} places, in epoch {epoch}")
            }
            CausalCommand::Trim { upto } => write!(f, "trim the order up to {upto}"),
            CausalCommand::Resync(Resync::Begin { floor, start, ordered, .. }) => {
                write!(f, "resync from {start}, {ordered} ordered, if not at {floor}")
            }
            CausalCommand::Resync(Resync::Chunk { start, sequence, items, .. }) => {
                write!(f, "resync from {start}: chunk {sequence}, {} items", items.len())
            }
            CausalCommand::Resync(Resync::Switch { start, chunks, upto }) => {
                write!(f, "resync from {start}: switch to {upto} with {chunks} chunks")
            }
        }
    }
}
