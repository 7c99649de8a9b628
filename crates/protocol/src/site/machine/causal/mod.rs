//! Causal keys in a site's state: what it has written, and what it has imported of its region's
//! order.
//!
//! Each register of a key shows
//!
//! > visible = pending ∘ ordered: the region's order up to `applied`, under this site's own writes
//! > that have no position there, in the order of their revisions.
//!
//! A write of this site changes the records at once and keeps its effects as a row until the site
//! imports its position. An entry of another site is applied to the registers on which nothing of
//! this site is pending: so a pending write is never overtaken and restored. Nothing else is kept
//! of the state under the pending writes, as of each register only the last effect counts.
//!
//! | file | idea |
//! | --- | --- |
//! | `effects` | which assignments a write is |
//! | `decided` | the same of a write that depends on what it overwrites |
//! | `registers` | which registers of a key have a pending write |
//! | `assign` | an assignment to a key's record, for own writes and others' alike |
//! | `expires` | when keys expire: the root orders it |
//! | `clear` | all keys of a keyspace at once |
//! | `write` | a request of this site |
//! | `order` | at the root: positions for the writes of all sites |
//! | `roots` | another root: where an order ends, and goes on |
//! | `standby` | what the root and its standby commit to |
//! | `retries` | puts that a client may send to two sites |
//! | `settled` | own ones of them whose places are not known here |
//! | `restored` | a site that was restored from a backup |
//! | `bridging` | what the order has of other regions', and which of two writes counts |
//! | `import` | the order as it comes here |
//! | `held` | keys that this site holds on demand |
//! | `fetch` | at the root: what such keys hold, at a place of the order |
//! | [`resync`] | the keyspaces anew, when the root keeps no more of what this site lacks |
//! | `rows`, `retry_rows` | where it lies in the state |
//! | `recent` | which registers were written lately, with their stamps |
//! | `recency` | when keys that are held on demand were read |
//! | [`session`] | what a reader's token becomes, and what a site lacks for one |
//!
//! There is one list of writes without a position for all causal keyspaces, in the order of
//! revisions, so that a keyspace never overtakes another on the way to the order.
//!
//! An entry of a keyspace that was dropped here changes nothing, and takes its place. One of a
//! keyspace that this site has no definition of yet is refused together with its batch: the
//! registry comes first.
//!
//! Left out: what travels between sites. Sources: the Global Sequence Protocol (Burckhardt 2015),
//! Gesto.

mod assign;
pub(crate) mod bridging;
mod clear;
mod decided;
mod effects;
mod expires;
mod fetch;
mod held;
mod import;
mod order;
mod own;
pub(super) mod recency;
mod recent;
mod registers;
pub(super) mod restored;
pub mod resync;
mod retries;
mod retry_rows;
mod roots;
mod rows;
pub mod session;
mod settled;
mod standby;
mod write;

pub(super) use rows::is_held;
#[cfg(test)]
pub(super) use rows::{STAGED_ROWS, of_expiry};
pub(super) use write::owns_writes;

use super::{Applying, Machine, MachineError, Stopped};
use crate::machine::keyspaces::Keyspaces;
use bridging::Bridging;
use model::{
    Answer, Bytes, CausalCommand, CausalWrite, KeyspaceId, Position, Refusal, Region, RegionId,
    Revision, SiteId, limits,
};
use registers::Pending;
use restored::Restored;
use resync::Resync;
use retries::Retries;
use roots::Root;
use rows::Head;
use standby::Committed;
use std::collections::BTreeMap;
use storage::state::{Read, State};

/// What a site has of its region's order. All of it can be read from the state again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Causal {
    head: Head,
    is_dirty: bool,
    /// The registers with own writes that have no position here, by keyspace and key.
    pending: BTreeMap<(KeyspaceId, Bytes), Pending>,
    /// How many own writes have no position here, and the bytes of their rows.
    unordered: u64,
    unordered_bytes: u64,
    /// Bytes of the rows of own writes whose positions are imported: should those be lost, they are
    /// pending again.
    kept_bytes: u64,
    /// The first own write that has a row, kept or pending: a scan from the beginning would pass the
    /// remains of all that went.
    oldest_own: Option<Revision>,
    /// The last own write, beyond those, whose position is in what a resync brings.
    own_brought: Revision,
    root: Root,
    committed: Committed,
    restored: Option<Restored>,
    /// The last revision of each site that has a position, and that: at the root in its order,
    /// elsewhere in what is imported of it.
    ordered: BTreeMap<SiteId, (Revision, Position)>,
    retries: Retries,
    bridging: Bridging,
    /// What is held on demand.
    held: held::Held,
    /// The earliest moment at which a key expires.
    next_expiry: Option<u64>,
    /// What is to take the place of the keyspaces.
    resync: Option<Resync>,
}

impl Causal {
    pub(super) fn load(state: &impl Read) -> Result<Causal, MachineError> {
        rows::load(state)
    }

    /// The region that all of it is about; 0: none yet.
    pub fn region(&self) -> RegionId {
        self.head.region
    }

    /// The last position that this site has imported.
    pub fn applied(&self) -> Position {
        self.head.applied
    }

    /// The last own revision whose position this site has imported.
    pub fn own_ordered(&self) -> Revision {
        self.head.own_ordered
    }

    /// The revision of this site's last write to a causal keyspace.
    pub fn last_revision(&self) -> Revision {
        self.head.last
    }

    /// Bytes of the own writes whose positions this site has not imported.
    pub fn unordered_bytes(&self) -> u64 {
        self.unordered_bytes
    }

    /// Whether what is shown while the keyspaces are on their way anew is the order up to what is
    /// imported, with all own writes behind it, if what has come is thrown away. It is not if own
    /// writes that are in it are pending again, or some behind it may be forgotten, or this site has
    /// ordered more itself.
    fn is_whole_without_resync(&self, own: SiteId) -> bool {
        let own_ordered = self.head.own_ordered;
        let is_taken_back = self.ordered_of(own).is_some_and(|(last, _)| last > own_ordered);
        let may_be_forgotten = self.oldest_own.is_some_and(|oldest| oldest > own_ordered)
            && self.kept_bytes > limits::CAUSAL_OWN_KEPT_BYTES_MAX / 2;
        !is_taken_back && !may_be_forgotten && self.head.order_last <= self.head.applied
    }

    /// Whether the keyspaces are on their way anew: until they are here nothing is imported.
    pub fn is_resyncing(&self) -> bool {
        self.resync.is_some()
    }

    /// At the root: the last position given.
    pub fn order_last(&self) -> Position {
        self.head.order_last
    }

    /// At the root: the last position of which it keeps no more than the number.
    pub fn trimmed_upto(&self) -> Position {
        self.head.trimmed_upto.max(self.root.begun)
    }

    /// At the root: bytes of the order that it keeps.
    pub fn order_bytes(&self) -> u64 {
        self.head.order_bytes
    }

    /// The last revision of a site that has a position, and that position: at the root in its
    /// order, elsewhere in what is imported of it.
    pub fn ordered_of(&self, site: SiteId) -> Option<(Revision, Position)> {
        self.ordered.get(&site).copied()
    }

    /// The same of all sites.
    pub fn ordered_all(&self) -> impl Iterator<Item = (SiteId, Revision, Position)> + '_ {
        self.ordered.iter().map(|(site, (revision, position))| (*site, *revision, *position))
    }

    /// Where this site began when it became a root that is not the first one.
    pub fn begun(&self) -> Position {
        self.root.begun
    }

    /// Whether this site, the root in this epoch, has all that it needs to order.
    pub fn has_begun(&self, region: &Region) -> bool {
        // A recovered registry may be back at an epoch that has ended here: the first one, too.
        let has_begun = region.begin().unwrap_or_default() == self.root.begun;
        has_begun && !region.is_rebuilding() && !self.is_restored()
    }

    /// Whether this site has stopped to be the root in this epoch, and whether it has given the
    /// order away.
    pub fn stopped_in(&self, epoch: u16) -> Option<bool> {
        (self.root.stopped == epoch && epoch != 0).then_some(self.root.given)
    }

    /// The site that this one has given the order to when it stopped last, if it has.
    pub fn given_to(&self) -> Option<SiteId> {
        self.root.given_to
    }
}

impl<S: State> Machine<S> {
    /// What this site has of its region's order.
    pub fn causal(&self) -> &Causal {
        &self.modes.causal
    }

    /// The region of this site's causal keyspaces, by its registry.
    pub fn region(&self) -> Option<&Region> {
        let member = self.membership()?;
        member.registry.region_of(member.own)
    }

    /// Whether the deployment has regions beside this site's, by its registry.
    pub fn has_other_regions(&self) -> bool {
        self.membership().is_some_and(|member| member.registry.has_regions())
    }

    /// Whether this site is the root of its region, by its registry.
    pub fn is_root(&self) -> bool {
        let own = self.membership().map(|member| member.own);
        self.region().is_some_and(|region| Some(region.root) == own)
    }

    /// Whether this site is the root and gives that up just now, or has to begin.
    pub fn moves_root(&self) -> bool {
        let Some(region) = self.region().filter(|_| self.is_root()) else { return false };
        let causal = self.causal();
        let has_to_begin =
            !region.is_rebuilding() && !causal.is_restored() && !causal.has_begun(region);
        causal.stopped_in(region.epoch).is_some() || has_to_begin
    }

    /// Own writes without a position after a revision, in order: as many as fit so many bytes, and
    /// the first one whatever it takes.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn unordered(
        &self,
        after: Revision,
        bytes_max: usize,
    ) -> Result<Vec<CausalWrite>, MachineError> {
        rows::own(&self.state, after.max(self.causal().kept_upto()), bytes_max)
    }

    /// How far the site has the order whole. While its keys are on their way anew that is what it
    /// shows, unless that is nothing, or lies in an order that was given up, or may: a registry that
    /// was recovered has forgotten epochs. Beside other regions nothing of either goes on: these do not
    /// wait any more for the writes of an order that was given up, and what a resync has begun to
    /// replace is not kept for them.
    pub fn whole_upto(&self) -> Option<Position> {
        let (causal, applied) = (self.causal(), self.causal().applied());
        let (member, region) = (self.membership()?, self.region()?);
        let is_recovered = member.registry.version.term != model::Term::default();
        let is_void = region.rebuilt.is_some_and(|rebuilt| rebuilt.lacks(applied));
        if member.registry.has_regions() {
            let is_whole = !is_void && !causal.is_resyncing() && causal.is_whole();
            return is_whole.then_some(applied);
        }
        let may_be_void = is_recovered || is_void || applied == Position(0);
        let is_whole = !may_be_void && causal.is_whole_without_resync(member.own);
        (!causal.is_resyncing() || is_whole).then_some(applied)
    }

    /// Own writes after a revision, in order, with and without a position, of what is kept.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn causal_own(&self, after: Revision) -> Result<Vec<CausalWrite>, MachineError> {
        rows::own(&self.state, after, usize::MAX)
    }

    /// At the root: the order after a position, of what it keeps: as many entries as fit so many
    /// bytes, and the first one whatever it takes. Ask for what lies after [`Causal::trimmed_upto`]
    /// only.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn ordered(
        &self,
        after: Position,
        bytes_max: usize,
    ) -> Result<Vec<(Position, SiteId, CausalWrite)>, MachineError> {
        rows::ordered(&self.state, after, bytes_max)
    }
}

/// What a request is answered where it cannot be carried out whole.
pub(in crate::site) const NOT_HELD: Refusal = Refusal::NotCausal(
    "be read or written at a site that does not hold it: `portolan keyspace show` lists the sites that do",
);

/// The keyspaces of this mode, ordered by id.
fn causals(keyspaces: &Keyspaces) -> Vec<KeyspaceId> {
    let made = keyspaces.made().into_iter();
    made.filter(|one| one.spec.is_causal()).map(|one| one.id).collect()
}

impl<S: State> Applying<'_, S> {
    pub(super) fn causal(&mut self, command: &CausalCommand) -> Result<Answer, Stopped> {
        self.member()?;
        self.follow_region()?;
        match command {
            CausalCommand::Order { epoch, offer } => self.order_offer(*epoch, offer),
            CausalCommand::Import { from, upto, entries } => self.import(*from, *upto, entries),
            CausalCommand::Clear { keyspace } => self.order_clear(*keyspace),
            CausalCommand::Numbered { request, keyspace, pairs } => {
                self.numbered_put(request, *keyspace, pairs)
            }
            CausalCommand::Retry { request, tried, since, keyspace, pairs } => {
                self.retry_put(request, (*tried, *since), *keyspace, pairs)
            }
            CausalCommand::Fetch { epoch, site, keyspace, keys } => {
                self.fetch(*epoch, *site, *keyspace, keys)
            }
            CausalCommand::Evict { keyspace, keys } => self.evict(*keyspace, keys),
            CausalCommand::Bridge { epoch, bridge } => self.take_bridge(*epoch, bridge),
            CausalCommand::Trim { upto } => self.trim_order(*upto),
            CausalCommand::Resync(step) => self.resync(step),
            CausalCommand::Root { epoch, step } => self.root_step(*epoch, *step),
            CausalCommand::Standby { since, step } => self.standby_step(*since, *step),
            CausalCommand::Ordered { epoch, sites } => self.take_last_ordered(*epoch, sites),
        }
    }
}
