//! Causal keys: what is volatile about the order of a region's writes.
//!
//! A *region* is a set of sites: all of the deployment, or those that name it. Each site serves its
//! clients by itself: it commits a write in its own log and answers. One site, the *root*, gives
//! every write a place in one order, and every site imports that order. What a client has seen is a
//! token of two numbers ([`model::CausalToken`]), and a site serves a request once it has what the
//! token names. So no answer is older than what its session has seen or done, at whichever site,
//! and all sites end with the same keys.
//!
//! What must not be lost is in the state and changes by commands ([`model::CausalCommand`]): the
//! writes of this site that have no place yet, how far it has imported the order, and at the root
//! the order itself. The parts here bring that from site to site. Each sees the state ([`Durable`])
//! and may be lost at any moment; each message may be lost, repeated, or overtaken:
//!
//! ```text
//! origin                             root                               another site
//! write: revision 7
//! ── Order(after 6, [7]) ──────────▶ order: place 31 is (origin, 7)
//! ── Writes([7]) ──────────────────────────────────────────────────────▶ kept until its place comes
//! ◀───────────── Places(30, [..]) ── to every site ── Places(30, [..]) ─▶ import place 31
//! import place 31: own
//! ── Reached(31) ─────────────────▶                  ◀───── Reached(31) ──
//! ```
//!
//! | part | where | what it does |
//! | --- | --- | --- |
//! | [`export`] | each site's leader | offers writes to the root, chained by revision, a few offers at a time; sends them to the other sites |
//! | [`distribute`] | the root's leader | sends places to each site, in a window, from where the site is |
//! | [`import`] | each site's leader | joins places and writes, in order, to imports; asks for what is missing |
//! | [`bridge`] | the root's leader | sends the order to the roots of other regions |
//! | [`resolve`] | the root's nodes | answers which position a write has, once it has one |
//! | [`clears`] | the root's nodes | answers a clear once its place is released |
//! | [`resync`] | the root's leader | trims the order, and sends their keys anew to sites that lack what is gone |
//! | [`roots`] | the root's leader | has another site go on with the order |
//! | [`standby`] | the leaders of the root and of its standby | has the standby in sync, and take over when the root is lost |
//! | [`rejoin`] | the leader of a restored site | has the registry state that it is neither root nor standby of its life before |
//! | [`fetch`] | each site's leader | has the root order what keys hold that are wanted here, and evicts others |
//! | [`hints`] | the root's leader | which keys sites hold on demand, to send them writes unasked |
//! | [`interest`] | all | which keyspaces a site holds; what it does not hold takes its place without content |
//! | [`layout`] | all | the sites of a region, and what each holds, by one registry |
//! | [`rebuild`] | the leader of a root in the place of a lost one | finds the end of the order: the farthest site goes on |
//! | [`in_flight`] | `export`, `bridge` | how many messages may be under way to a root |
//! | [`admission`] | every node | keeps requests until the node has what their sessions have seen |
//!
//! *Why this suffices.* Offers are chained, so a write's place comes after those of the same site
//! before it; and what a session has seen of other sites was in the order before. So a write's
//! causes have lower positions, and a site that has imported the order up to a position has all
//! causes of what it has. A session's token covers its past: a position for what is in the order,
//! and one revision of one site for what is not.
//!
//! Within a region nothing flows while nothing is written and every site has the order. A part that
//! lacks an answer asks again once a second.
//!
//! Left out on purpose: what a write does to the keys (`site::machine`), and a site's choice of
//! nodes to send to.
//!
//! Sources: Gesto (step by step, the driver and the broker); the Global Sequence Protocol
//! (Burckhardt 2015) for the state of a site; causal convergence (Bouajjani and others, 2017) for
//! the promise.

pub(crate) mod admission;
pub(crate) mod bridge;
pub(crate) mod clears;
pub(crate) mod distribute;
#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod exhaustive_fetch;
#[cfg(test)]
mod exhaustive_import;
#[cfg(test)]
mod exhaustive_standby;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod hints;
pub(crate) mod import;
pub(crate) mod in_flight;
pub(crate) mod interest;
pub(crate) mod layout;
mod rebuild;
mod rejoin;
mod reports;
pub(crate) mod resolve;
pub(crate) mod resync;
pub(crate) mod roots;
#[cfg(test)]
mod simulation;
pub(crate) mod standby;
pub mod trial;

use layout::Layout;
use model::{
    Answer, Bytes, CausalWrite, Failure, HeldSize, KeyspaceId, Position, RegionId, ResyncItem,
    Revision, SiteId, Standby, StandbyRule,
};
use std::sync::Arc;
use std::time::Duration;

/// What is not answered is asked for again after this.
pub(crate) const AGAIN: Duration = Duration::from_secs(1);
/// What was sent has so long to arrive.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_millis(100);

/// What the parts see of a node's state.
pub(crate) trait Durable {
    /// The position up to which the order is imported.
    fn applied(&self) -> Position;
    /// The last of this site's writes that is not pending: its position is imported, or is in what a
    /// resync brings.
    fn kept_upto(&self) -> Revision;
    /// This site's writes after this one that have no position here, oldest first: the first, and
    /// as many more as these bytes allow.
    fn unordered(&self, after: Revision, bytes_max: usize) -> Vec<CausalWrite>;
    /// At the root, the last position of the order.
    fn order_last(&self) -> Position;
    /// At the root, the last write of a site that has a position, and that position.
    fn ordered_of(&self, site: SiteId) -> Option<(Revision, Position)>;
    /// At the root, the order after this position: the first write, and as many more as these bytes
    /// allow.
    fn ordered(&self, after: Position, bytes_max: usize) -> Vec<(Position, SiteId, CausalWrite)>;
    /// At the root, the position up to which the order is not kept, and the bytes of what is.
    fn trimmed_upto(&self) -> Position;
    fn order_bytes(&self) -> u64;
    /// Whether this site has stopped to be the root in this epoch, and whether the order is given
    /// away.
    fn stopped_in(&self, epoch: u16) -> Option<bool>;
    /// The site that the order was given to, if it is known.
    fn given_to(&self) -> Option<SiteId>;
    /// Of each site the last write that has a position, and that.
    fn ordered_all(&self) -> Vec<(SiteId, Revision, Position)>;
    /// The last of this site's writes.
    fn last_revision(&self) -> Revision;
    /// Whether the keys are on their way anew, so that nothing is imported.
    fn is_resyncing(&self) -> bool;
    /// How far this site has the order whole, so that it can go on from there: as far as it is
    /// imported, also while the keys are on their way anew, if that is not void.
    fn whole_upto(&self) -> Option<Position>;
    /// Whether this site was restored from a backup, and may have been root or standby since that
    /// was made.
    fn is_restored(&self) -> bool;
    /// Whether this own write may be missing here.
    fn lacks_own(&self, revision: Revision) -> bool;
    /// A chunk of about so many bytes of the records behind one, of keyspaces that are asked for,
    /// and the last of them; `None`: there are no more.
    fn records(
        &self,
        after: Option<&(KeyspaceId, Bytes)>,
        bytes_max: usize,
        is_asked_for: &dyn Fn(KeyspaceId) -> bool,
    ) -> (Vec<ResyncItem>, Option<(KeyspaceId, Bytes)>);
    /// At the root: the retried writes that a site may not have come to.
    fn retries(&self) -> Vec<ResyncItem> {
        Vec::new()
    }
    /// Log time, in milliseconds since 1970.
    fn log_time_ms(&self) -> u64 {
        0
    }
    /// Beside other regions: the clock of the order. What the region writes later has no stamp before
    /// it.
    fn clock_ms(&self) -> u64 {
        0
    }
    /// Beside other regions: whether this region has, since its order was cut, what they have.
    fn is_level(&self) -> bool {
        true
    }
    /// Beside other regions: what lies up to there is not needed to be a root.
    fn kept_after(&self) -> Option<Position> {
        None
    }
    /// Beside other regions, at the root: whether all of the order behind a position is kept.
    fn keeps_behind(&self, position: Position) -> bool {
        self.trimmed_upto() <= position
    }
    /// At the root: up to where the orders of other regions are taken.
    fn taken_all(&self) -> Vec<(RegionId, Position)> {
        Vec::new()
    }
    /// At the root: up to where another region's order is taken.
    fn taken_of(&self, _: RegionId) -> Position {
        Position::default()
    }
    /// Whether a key is held on demand here.
    fn holds_key(&self, _: KeyspaceId, _: &Bytes) -> bool {
        false
    }
    /// Whether one with this hash is ([`model::key_hash`]).
    fn holds_hash(&self, _: KeyspaceId, _: u32) -> bool {
        false
    }
    /// How much of a keyspace is held on demand here.
    fn held_size(&self, _: KeyspaceId) -> HeldSize {
        HeldSize::default()
    }
    /// Of what is held on demand here and may be evicted what was read least lately: so many bytes
    /// and so many keys at least, and no more keys than one command evicts.
    fn least_read(&self, _: KeyspaceId, _bytes: u64, _keys: u64) -> Vec<Bytes> {
        Vec::new()
    }
}

/// A part that a site's leader runs as a job ([`crate::job::Job`]). How its steps are made is its
/// own.
pub(crate) trait Part {
    /// The outcome of a step, under its number.
    fn answered(&mut self, _id: u64, _outcome: &Result<Answer, Failure>, _now: Duration) {}

    /// This node leads no more.
    fn stop(&mut self);

    /// When it must be polled at the latest.
    fn next_due(&self, now: Duration) -> Option<Duration>;

    /// Bytes that were sent to other sites.
    fn sent_bytes(&self) -> u64 {
        0
    }
}

/// Which region a site belongs to, and its part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Which one.
    pub(crate) id: RegionId,
    /// This site.
    pub(crate) own: SiteId,
    /// The site that orders.
    pub(crate) root: SiteId,
    /// The epoch of the root.
    pub(crate) epoch: u16,
    /// Whether this site, if it is the root, has all that it needs for that.
    pub(crate) has_begun: bool,
    /// The root before is lost: the sites report how far they are, and nothing is ordered.
    pub(crate) is_rebuilding: bool,
    /// Its sites.
    pub(crate) layout: Arc<Layout>,
    /// The site that an operator wants as the root.
    pub(crate) next: Option<SiteId>,
    /// The site that can take the root's place, and how that is chosen.
    pub(crate) standby: Option<Standby>,
    pub(crate) standby_rule: StandbyRule,
    /// At the root: how far the standby has the order, while nothing behind that is released.
    pub(crate) gate: Option<Position>,
    /// At the standby: it takes nothing more of the order.
    pub(crate) is_frozen: bool,
}

impl Region {
    /// Whether this site is the root.
    pub(crate) fn is_root(&self) -> bool {
        self.own == self.root
    }

    /// Whether nothing is released that the standby does not have.
    pub(crate) fn holds(&self) -> bool {
        self.gate.is_some()
    }

    /// Up to where an order that ends there may leave the root.
    pub(crate) fn released(&self, last: Position) -> Position {
        self.gate.map_or(last, |gate| last.min(gate))
    }

    /// Up to where a site may be sent it: the standby is sent all.
    fn released_to(&self, site: SiteId, last: Position) -> Position {
        let is_standby = self.standby.is_some_and(|standby| standby.site == site);
        if is_standby { last } else { self.released(last) }
    }

    /// Whether it can order.
    pub(crate) fn orders(&self) -> bool {
        self.is_root() && self.has_begun
    }
}
