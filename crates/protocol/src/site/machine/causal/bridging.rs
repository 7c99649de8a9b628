//! Regions that are joined: what this site's order has of the orders of other regions, and which of
//! two writes counts.
//!
//! Each root takes the writes that other regions have ordered into its own order
//! ([`model::Bridge`]). A write that comes from another region may be older than one that has its
//! place here already. So in a deployment of several regions each write has a [`Stamp`], and of
//! each register the highest stamp counts:
//!
//! > visible(register) = pending ∘ the write with the highest stamp among those that are ordered.
//!
//! A region's own write has the highest stamp so far when it gets its place: it is above the clock
//! of the order, and what is taken from elsewhere moves that clock beyond its stamp. So only a
//! write of another region can have less effect than its own region gave it: the root has the
//! stamps of the registers that were written lately ([`Recent`]), and notes with the write which
//! registers stay as they are ([`Mark::Keeps`]). No other site compares stamps.
//!
//! | | where |
//! | --- | --- |
//! | the clock of the order | moved by [`Mark::Clock`], which the root orders from time to time, and by what comes from elsewhere |
//! | up to where other regions' orders are taken | noted with each of their writes ([`Mark::Stamped`]), and with each clock |
//! | what a key held that expires | beside that ([`Mark::Held`]): a region whose writes were not known there keeps those |
//! | stamps of registers | the order itself, which all sites that can be the root keep as long as it is needed |
//!
//! *How long the order is needed.* A stamp is compared with those of writes that come later from
//! other regions. A region that has taken a write gives higher stamps only from there on. So a
//! place is needed until every other region's order has it, as the places of that order show
//! ([`Bridged::Taken`], [`Bridged::Clock`]); the root notes so with the next clock (`kept_after`),
//! and the sites drop it. The highest stamp of what is dropped is the *floor*: what other regions
//! write later is above it. While a region is cut off the others keep much of their orders; past
//! [`limits::CAUSAL_BRIDGED_BYTES_MAX`] no more of the region's own writes are ordered.
//!
//! *An order that is cut* ([`model::Rebuilt`]) takes back what its root has stated: it may lack what
//! others have dropped as it had it, and third regions may have what it has lost. What lies behind
//! the cut is taken from nobody any more, and comes whole from each region that had taken it; the
//! root of that order takes it as a write of no site. What is here already is known by its stamp
//! ([`Recent::knows`]). The root gives no place to what its region writes before it is *level*: each
//! other region has sent its order whole since it knows of the cut. Then it sets the clock above
//! all of theirs, in the new epoch, which shows later roots that this was done. So each statement of
//! the new epoch lies behind all that any region had of the lost part, and each of its stamps is
//! above what others have dropped.
//!
//! *What is not in the order:* how far a region has come without a write, and what its order has of
//! the others. The root keeps that beside ([`Other`]), as of its epoch: another root begins anew
//! with it.
//!
//! Nothing of this is done while the deployment has one region.

use super::super::Applying;
use super::recent::Recent;
use super::{Causal, Stopped, causals, rows};
use crate::bugs::Bug;
use model::{
    Answer, Bridge, Bridged, Bytes, CausalWrite, Effect, KeyspaceId, Mark, NO_SITE, Position,
    Refusal, Region, RegionId, Registers, Registry, Revision, SiteId, Stamp, limits,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use storage::state::State;
use wire::row;

/// The order's clock is set this often at most, in log time.
const CLOCK_MS: u64 = 10;
/// A clock frees the places before so many clocks at most: as many are looked at.
const CLOCKS_FREED_MAX: usize = 64;
/// So many places that are not needed any more have the clock set though nothing is ordered.
const FREED_MIN: u64 = 1_024;

/// What an order has of those of other regions. All of it can be read from the state again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bridging {
    /// The order is kept here whole behind this place. `None`: this site was never in a region
    /// beside others.
    pub(super) whole_after: Option<Position>,
    clock_ms: u64,
    /// The log time at which that was set.
    clock_log_ms: u64,
    /// All regions have taken what lies up to there.
    kept_after: Position,
    /// The places of clocks behind that.
    clocks: VecDeque<Position>,
    /// The last of them: one is always kept.
    clock_at: Position,
    /// Of each other region the last place that is taken, by the order alone.
    taken: BTreeMap<RegionId, Position>,
    recent: Recent,
    /// At the root.
    others: BTreeMap<RegionId, Other>,
}

/// What the root has of another region beside what is ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Other {
    /// The epoch of this region in which that is so.
    epoch: u16,
    /// The last place of that region that is taken.
    taken: Position,
    /// No write that it orders later has a stamp before that.
    clock_ms: u64,
    /// What it has taken of each region, this one too; and its own order, as far as that was here
    /// whole.
    has: Vec<(RegionId, Position)>,
}

row!(Other { epoch, taken, clock_ms, has });

/// The registers of each key that a write leaves as they are.
pub(super) type Keeps<'a> = BTreeMap<&'a Bytes, &'a Registers>;

/// What a write leaves as it is.
pub(super) fn keeps(write: &CausalWrite) -> Keeps<'_> {
    let mut all = Keeps::new();
    for effect in &write.effects {
        if let Effect::Mark(Mark::Keeps { key, registers }) = effect {
            all.insert(key, registers);
        }
    }
    all
}

impl Bridging {
    /// Where nothing is known yet but this.
    pub(super) fn whole(after: Position) -> Bridging {
        Bridging { whole_after: Some(after), ..Bridging::default() }
    }

    /// What a place of the order brings.
    pub(super) fn follow(&mut self, at: Position, write: &CausalWrite) {
        for effect in &write.effects {
            if let Effect::Mark(Mark::Clock { at_ms, log_ms, kept_after, floor, taken }) = effect {
                self.clock_ms = self.clock_ms.max(*at_ms);
                self.clock_log_ms = *log_ms;
                self.kept_after = self.kept_after.max(*kept_after);
                self.clocks.push_back(at);
                self.clock_at = at;
                while self.clocks.front().is_some_and(|clock| *clock <= self.kept_after) {
                    self.clocks.pop_front();
                }
                self.recent.floor = self.recent.floor.max(*floor);
                self.recent.forget(self.kept_after);
                for (region, upto) in taken {
                    self.take(*region, *upto);
                }
            }
        }
        if let Some((stamp, taken)) = write.stamp() {
            if let Some((region, taken)) = taken {
                self.take(region, taken);
                self.clock_ms = self.clock_ms.max(stamp.at_ms + 1);
            }
            self.recent.note(at, write, stamp);
        }
    }

    fn take(&mut self, region: RegionId, upto: Position) {
        let known = self.taken.entry(region).or_default();
        *known = upto.max(*known);
    }

    fn other(&self, region: RegionId, epoch: u16) -> Other {
        let known = self.others.get(&region).filter(|known| known.epoch == epoch);
        known.cloned().unwrap_or_else(|| Other { epoch, ..Other::default() })
    }

    pub(super) fn insert_other(&mut self, region: RegionId, other: Other) {
        self.others.insert(region, other);
    }

    /// Up to where a region's order is taken here: what is lost of it is no part of that.
    fn taken(&self, region: &Region, epoch: u16) -> Position {
        let ordered = self.taken.get(&region.id).copied().unwrap_or_default();
        region.kept_upto(ordered.max(self.other(region.id, epoch).taken))
    }

    /// Whether all of a region's order was here once, since that knows of this epoch.
    fn has_all_of(&self, region: RegionId, epoch: u16) -> bool {
        let known = self.others.get(&region).filter(|known| known.epoch == epoch);
        known.is_some_and(|known| known.has.iter().any(|(of, _)| *of == region))
    }

    /// Up to where a region's order has that of another one.
    fn has(&self, region: RegionId, epoch: u16, of: RegionId) -> Position {
        let known = self.others.get(&region).filter(|known| known.epoch == epoch);
        let has = known.and_then(|known| known.has.iter().find(|(one, _)| *one == of));
        has.map_or(Position::default(), |(_, upto)| *upto)
    }
}

impl Causal {
    /// At the root: up to where another region's order is taken, in an epoch of this one.
    pub fn taken_of(&self, registry: &Registry, region: RegionId, epoch: u16) -> Position {
        registry.region(region).map(|of| self.bridging.taken(of, epoch)).unwrap_or_default()
    }

    /// At the root: up to where the orders of other regions are taken, in an epoch of this one.
    pub fn taken_all(&self, registry: &Registry, region: &Region) -> Vec<(RegionId, Position)> {
        let others = registry.regions.iter().filter(|other| other.id != region.id);
        others.map(|other| (other.id, self.bridging.taken(other, region.epoch))).collect()
    }

    /// At the root, beside other regions: whether it has what they had of this one's order since
    /// that was cut last. See [`bridging`](self).
    pub fn is_level(&self, region: &Region) -> bool {
        let end = region.rebuilt.map(|rebuilt| rebuilt.end.until).unwrap_or_default();
        self.bridging.clock_at.epoch() >= end
    }

    /// The first other region that it waits for.
    pub fn lacks_all_of(&self, registry: &Registry, region: &Region) -> Option<RegionId> {
        let others = registry.regions.iter().map(|other| other.id).filter(|id| *id != region.id);
        let mut lacks = others.filter(|id| !self.bridging.has_all_of(*id, region.epoch));
        lacks.next().filter(|_| !self.is_level(region))
    }

    /// The clock of the order: what the region writes from here on has no stamp before it.
    pub fn clock_ms(&self) -> u64 {
        self.bridging.clock_ms
    }

    /// Whether this site keeps all of the order that a root needs beside other regions.
    pub fn is_whole(&self) -> bool {
        self.bridging.whole_after.is_none_or(|after| after <= self.bridging.kept_after)
    }

    /// Whether this site keeps all of its region's order behind a position. Behind one at which the
    /// order before this epoch has ended, or past that, nothing lies until the epoch begins.
    pub fn keeps_behind(&self, region: &Region, position: Position) -> bool {
        let whole_after = self.bridging.whole_after.unwrap_or_default();
        let kept_after = whole_after.max(self.head.trimmed_upto);
        let is_past_end = region.cut.is_some_and(|cut| cut <= position);
        let begin = region.begin().filter(|_| is_past_end).unwrap_or_default();
        kept_after <= position.max(begin)
    }

    /// The moment that the clocks of all other regions have passed: what they order later has a
    /// higher stamp. `None`: there are none.
    pub(in crate::site::machine) fn clock_of_others_ms(
        &self,
        registry: &Registry,
        region: &Region,
    ) -> Option<u64> {
        let others = registry.regions.iter().filter(|other| other.id != region.id);
        others.map(|other| self.bridging.other(other.id, region.epoch).clock_ms).min()
    }

    /// What the order has of other regions, without what only roots know, and without stamps.
    #[cfg(test)]
    pub(in crate::site::machine) fn of_order(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let Bridging { clock_ms, kept_after, taken, .. } = self.bridging.clone();
        (clock_ms, kept_after, taken)
    }

    /// All regions have taken what lies up to there.
    pub fn kept_after(&self) -> Position {
        self.bridging.kept_after
    }
}

const NO_OTHER: Refusal = Refusal::NotCausal("be taken from a region that is none of the others");

impl<S: State> Applying<'_, S> {
    /// Whether the deployment has several regions.
    pub(super) fn has_regions(&self) -> bool {
        self.member().is_ok_and(|member| member.registry.has_regions())
    }

    /// Whether this site can be the root of a region beside others, and so keeps the order.
    pub(super) fn keeps_order(&self) -> bool {
        self.has_regions()
            && self.member().is_ok_and(|member| member.registry.holds_all_causal(member.own))
    }

    /// Whether what the region writes gets places: not beside other regions that have not answered
    /// since the order was cut.
    pub(super) fn is_level(&self) -> bool {
        let is_level = |region: &Region| self.modes.causal.is_level(region);
        !self.has_regions() || self.region().is_ok_and(is_level)
    }

    /// The other regions.
    fn other_regions(&self) -> Result<Vec<RegionId>, Refusal> {
        let (own, member) = (self.region()?.id, self.member()?);
        let all = member.registry.regions.iter().map(|region| region.id);
        Ok(all.filter(|id| *id != own).collect())
    }

    // ---- the order, at every site --------------------------------------------------------------

    /// A write as it is kept with its place.
    pub(super) fn stamped<'a>(&self, at: Position, write: &'a CausalWrite) -> Cow<'a, CausalWrite> {
        // What has no effect elsewhere moves no other region's clock.
        let is_none = write.effects.iter().all(Effect::is_mark);
        if is_none || !self.has_regions() || write.stamp().is_some() {
            return Cow::Borrowed(write);
        }
        let at_ms = match self.modes.planted.is(Bug::ClockUnmerged) {
            true => self.known.head.log_time_ms,
            false => self.modes.causal.bridging.clock_ms,
        };
        let stamp = Stamp { at_ms, count: at.count(), region: self.modes.causal.head.region };
        let mut write = write.clone();
        write.effects.push(Effect::Mark(Mark::Stamped { stamp, taken: None }));
        Cow::Owned(write)
    }

    /// A place that is imported is kept here, if this site can be the root of a region beside
    /// others.
    pub(super) fn keep_imported(
        &mut self,
        at: Position,
        site: SiteId,
        write: &CausalWrite,
    ) -> Result<(), Stopped> {
        if !self.has_regions() {
            return Ok(());
        }
        if !self.keeps_order() {
            let others = std::mem::take(&mut self.modes.causal.bridging.others);
            self.modes.causal.bridging = Bridging { others, ..Bridging::default() };
            self.set_whole_after(at);
            return Ok(());
        }
        if self.modes.causal.bridging.whole_after.is_none() {
            self.set_whole_after(self.modes.causal.head.applied);
        }
        let write = self.stamped(at, write).into_owned();
        self.put_kept(at, site, &write);
        self.modes.causal.bridging.follow(at, &write);
        Ok(())
    }

    /// Keeps a place of the order.
    pub(super) fn put_kept(&mut self, at: Position, site: SiteId, write: &CausalWrite) {
        let row = rows::encode_ordered(site, write);
        let causal = &mut self.modes.causal;
        causal.head.order_bytes += row.len() as u64;
        causal.is_dirty = true;
        self.overlay.put(rows::of_position(at), row);
    }

    /// The order is kept whole here behind this place: from its beginning on, if no place of any
    /// epoch is before that.
    pub(super) fn set_whole_after(&mut self, after: Position) {
        let after = if after.count() == 0 { Position(0) } else { after };
        if self.modes.causal.bridging.whole_after != Some(after) {
            self.modes.causal.bridging.whole_after = Some(after);
            self.put_whole();
        }
    }

    fn put_whole(&mut self) {
        let after = self.modes.causal.bridging.whole_after.unwrap_or_default();
        self.overlay.put(rows::WHOLE.to_vec(), row::encode(&after));
    }

    /// What is kept and no region needs any more goes, a command's share of it.
    pub(super) fn drop_unneeded(&mut self) -> Result<(), Stopped> {
        let upto = self.modes.causal.bridging.kept_after.min(self.modes.causal.head.applied);
        // The root keeps it for its sites, too.
        let is_root = self.region()?.root == self.member()?.own;
        if !is_root && self.has_regions() && upto > self.modes.causal.head.trimmed_upto {
            self.drop_kept(upto)?;
        }
        Ok(())
    }

    /// Places that are kept go up to one, a command's share of them.
    pub(super) fn drop_kept(&mut self, upto: Position) -> Result<(), Stopped> {
        let max = limits::CAUSAL_TRIMMED_PER_COMMAND_MAX;
        let from = self.modes.causal.head.trimmed_upto;
        let found = rows::ordered_between(&self.overlay, from, upto, max)?;
        let is_all = found.len() < max;
        let last = found.last().map_or(Position(0), |(position, ..)| *position);
        let head = &mut self.modes.causal.head;
        head.trimmed_upto = head.trimmed_upto.max(if is_all { upto } else { last });
        self.remove_rows(found);
        Ok(())
    }

    /// Places behind one are void up to another one: an epoch has ended between them.
    pub(super) fn drop_void(&mut self, after: Position, before: Position) -> Result<(), Stopped> {
        if self.modes.causal.bridging.whole_after.is_none() {
            return Ok(());
        }
        let found = rows::ordered_between(&self.overlay, after, before, usize::MAX)?;
        if found.is_empty() {
            return Ok(());
        }
        self.remove_rows(found);
        self.reload_kept()
    }

    /// Nothing of the order is kept here any more: it comes anew.
    pub(super) fn forget_kept_order(&mut self) -> Result<(), Stopped> {
        let (from, upto) = (Position(0), Position(u64::MAX));
        let found = rows::ordered_between(&self.overlay, from, upto, usize::MAX)?;
        self.remove_rows(found);
        let others = std::mem::take(&mut self.modes.causal.bridging.others);
        self.modes.causal.bridging = Bridging { others, ..Bridging::default() };
        self.set_whole_after(self.modes.causal.head.applied);
        Ok(())
    }

    /// The order that a resync has brought is here, from before this place on.
    pub(super) fn load_kept_order(&mut self, start: Position) -> Result<(), Stopped> {
        let first = rows::ordered_between(&self.overlay, Position(0), Position(u64::MAX), 1)?;
        let before = first.first().map_or(start, |(first, ..)| Position(first.0 - 1));
        let after = match self.keeps_order() {
            true => before.min(start),
            false => self.modes.causal.head.applied,
        };
        // What was kept before it is gone, whatever was trimmed of that.
        self.modes.causal.head.trimmed_upto = after;
        self.set_whole_after(after);
        self.reload_kept()
    }

    fn reload_kept(&mut self) -> Result<(), Stopped> {
        let Bridging { whole_after, others, .. } = &self.modes.causal.bridging;
        let (after, others) = (whole_after.unwrap_or_default(), others.clone());
        let mut bridging = Bridging { others, ..Bridging::whole(after) };
        let from = after.max(self.modes.causal.head.trimmed_upto);
        for (at, _, write) in rows::ordered(&self.overlay, from, usize::MAX)? {
            bridging.follow(at, &write);
        }
        self.modes.causal.bridging = bridging;
        Ok(())
    }

    fn remove_rows(&mut self, found: Vec<(Position, Bytes, usize)>) {
        for (_, key, bytes) in found {
            self.modes.causal.head.order_bytes -= bytes as u64;
            self.overlay.remove(key);
        }
        self.modes.causal.is_dirty = true;
    }

    // ---- at the root ---------------------------------------------------------------------------

    /// A write is about to get its place.
    pub(super) fn follow_ordered(&mut self, at: Position, write: &CausalWrite) {
        if !self.has_regions() {
            return;
        }
        if self.modes.causal.bridging.whole_after.is_none() {
            self.set_whole_after(self.modes.causal.head.order_last);
        }
        self.modes.causal.bridging.follow(at, write);
    }

    /// Whether what the region itself writes must wait: too much of the order is kept.
    pub(super) fn order_is_full(&self) -> bool {
        let max = match self.has_regions() {
            true => limits::CAUSAL_BRIDGED_BYTES_MAX,
            false => limits::CAUSAL_ORDER_BYTES_MAX,
        };
        self.modes.causal.head.order_bytes >= max
    }

    /// Moves the clock of the order, if it is time.
    pub(super) fn move_clock(&mut self, epoch: u16) -> Result<(), Stopped> {
        let now_ms = self.known.head.log_time_ms;
        let Bridging { mut clock_ms, clock_log_ms, .. } = self.modes.causal.bridging;
        let is_level = self.is_level();
        // Another root's log time may be behind.
        if !self.has_regions() || (is_level && now_ms.abs_diff(clock_log_ms) < CLOCK_MS) {
            return Ok(());
        }
        let others = self.other_regions()?;
        if !is_level {
            let bridging = &self.modes.causal.bridging;
            if !others.iter().all(|other| bridging.has_all_of(*other, epoch)) {
                return Ok(());
            }
            // They may keep no more what the cut order had taken of theirs.
            let clocks = others.iter().map(|other| bridging.other(*other, epoch).clock_ms + 1);
            clock_ms = clocks.fold(clock_ms, u64::max);
        }
        // A clock is a place, too.
        if is_level && self.order_is_full() && !self.frees_much(epoch)? {
            return Ok(());
        }
        let Some(keyspace) = causals(&self.known.keyspaces).into_iter().min() else {
            return Ok(());
        };
        let (kept_after, floor) = self.needed_after(epoch)?;
        let (region, member) = (*self.region()?, self.member()?);
        let taken = self.modes.causal.taken_all(&member.registry, &region);
        let at_ms = now_ms.max(clock_ms);
        let clock = Effect::Mark(Mark::Clock { at_ms, log_ms: now_ms, kept_after, floor, taken });
        self.order_here(epoch, keyspace, vec![clock]);
        Ok(())
    }

    /// The last clock that all other regions have taken, if one behind what is needed is.
    fn last_taken_clock(&self, epoch: u16) -> Result<Option<Position>, Refusal> {
        let bridging = &self.modes.causal.bridging;
        let (own, others) = (self.region()?.id, self.other_regions()?);
        let has = |region: &RegionId| bridging.has(*region, epoch, own);
        let upto = others.iter().map(has).min().unwrap_or_default();
        let first = bridging.clocks.iter().take(CLOCKS_FREED_MAX);
        Ok(first.copied().take_while(|clock| *clock <= upto).last())
    }

    /// The place before that, and the highest stamp up to there.
    fn needed_after(&self, epoch: u16) -> Result<(Position, Stamp), Stopped> {
        let Bridging { kept_after, ref recent, .. } = self.modes.causal.bridging;
        let clock = self.last_taken_clock(epoch)?;
        let Some(before) = clock.map(|clock| Position(clock.0 - 1)) else {
            return Ok((kept_after, recent.floor));
        };
        let (mut from, mut floor) = (kept_after, recent.floor);
        while from < before {
            let page = rows::ordered(&self.overlay, from, limits::CAUSAL_IMPORT_BYTES_MAX)?;
            let Some((last, ..)) = page.last() else { break };
            from = *last;
            let freed = page.iter().take_while(|(at, ..)| *at <= before);
            floor = freed
                .filter_map(|(.., write)| write.stamp())
                .map(|(stamp, _)| stamp)
                .fold(floor, Stamp::max);
        }
        Ok((before.max(kept_after), floor))
    }

    /// That a key expires, with what other regions have to know of it.
    pub(super) fn expire_in_all(&self, keyspace: KeyspaceId, expire: Effect) -> Vec<Effect> {
        let recent = &self.modes.causal.bridging.recent;
        let stamps = expire.key().map(|key| recent.held(keyspace, key)).unwrap_or_default();
        vec![Effect::Mark(Mark::Held { stamps }), expire]
    }

    /// Places of another region's order.
    pub(super) fn take_bridge(&mut self, epoch: u16, bridge: &Bridge) -> Result<Answer, Stopped> {
        self.check_orders(epoch)?;
        let Bridge { of, after, upto, clock_ms, has, places } = bridge;
        let others = self.other_regions()?;
        if !others.contains(of) {
            return Err(NO_OTHER.into());
        }
        let registry = self.member()?.registry.clone();
        let region = registry.region(*of).ok_or(NO_OTHER)?;
        let mut other = self.modes.causal.bridging.other(*of, epoch);
        let mut taken = self.modes.causal.bridging.taken(region, epoch);
        if *after > taken || !region.may_be_taken(*upto) {
            return Ok(Answer::Done(Revision(taken.0)));
        }
        // Of this order what is lost was never there.
        let own = *self.region()?;
        let note_has = |has: &mut Vec<_>, (of, upto): (RegionId, Position)| {
            note_has(has, of, if of == own.id { own.kept_upto(upto) } else { upto });
        };
        let next = self.known.head.keyspace_next;
        let (mut is_all, mut has_ordered) = (true, false);
        for place in places {
            if place.position() <= taken {
                continue;
            }
            is_all = match place {
                Bridged::Entry { write, .. } => write.keyspace.0 < next,
                Bridged::Taken { region: third, upto, .. } => {
                    let is_other = others.contains(third) && third != of;
                    let third = registry.region(*third).filter(|third| third.id != *of);
                    // It may never have been here, and comes whole once that root knows.
                    let is_lost = third.is_some_and(|third| third.lacks(*upto));
                    let is_here = third.is_none_or(|third| {
                        *upto <= self.modes.causal.bridging.taken(third, epoch)
                    });
                    let is_passed = self.modes.planted.is(Bug::LostTakenPassed);
                    (!is_lost || is_passed)
                        && (!is_other || is_here || self.modes.planted.is(Bug::BridgeUnordered))
                }
                Bridged::Clock { .. } => true,
            };
            if !is_all {
                break;
            }
            taken = place.position();
            match place {
                Bridged::Entry { stamp, site, write, .. } => {
                    // No later one is before it.
                    other.clock_ms = other.clock_ms.max(stamp.at_ms);
                    if !self.modes.causal.bridging.recent.knows(*stamp) {
                        self.order_bridged(epoch, *stamp, (*of, taken), *site, write);
                        has_ordered = true;
                    }
                }
                Bridged::Taken { region, upto, .. } => note_has(&mut other.has, (*region, *upto)),
                Bridged::Clock { at_ms, has, .. } => {
                    other.clock_ms = other.clock_ms.max(*at_ms);
                    has.iter().for_each(|has| note_has(&mut other.has, *has));
                }
            }
        }
        if is_all {
            taken = taken.max(*upto);
            other.clock_ms = other.clock_ms.max(*clock_ms);
            has.iter().for_each(|has| note_has(&mut other.has, *has));
        }
        other.taken = taken;
        self.overlay.put(rows::of_other(*of), row::encode(&other));
        self.modes.causal.bridging.insert_other(*of, other);
        if has_ordered || !self.is_level() || self.frees_much(epoch)? {
            self.move_clock(epoch)?;
        }
        Ok(Answer::Done(Revision(taken.0)))
    }

    /// Whether much of the order is not needed any more.
    fn frees_much(&self, epoch: u16) -> Result<bool, Refusal> {
        let kept_after = self.modes.causal.bridging.kept_after.count();
        let is_little = self.modes.causal.head.order_bytes < limits::CAUSAL_BRIDGED_BYTES_MIN;
        let min = if self.order_is_full() { 1 } else { FREED_MIN };
        let clock = self.last_taken_clock(epoch)?;
        Ok(!is_little && clock.is_some_and(|clock| clock.count() > kept_after + min))
    }

    /// A write of another region gets a place here.
    fn order_bridged(
        &mut self,
        epoch: u16,
        stamp: Stamp,
        taken: (RegionId, Position),
        site: SiteId,
        write: &CausalWrite,
    ) {
        let causal = &self.modes.causal;
        let is_blind = self.modes.planted.is(Bug::BridgeUnstamped);
        let mut effects = match is_blind {
            true => Vec::new(),
            false => causal.bridging.recent.kept(write.keyspace, &write.effects, stamp),
        };
        effects.extend(write.effects.iter().cloned());
        effects.push(Effect::Mark(Mark::Stamped { stamp, taken: Some(taken) }));
        // What this region had written itself and lost: its site may write it again, with another
        // place, and imports this one as of no site.
        let site = if stamp.region == causal.head.region { NO_SITE } else { site };
        let revision = match site {
            NO_SITE => Revision(causal.head.order_last.next(epoch).0),
            _ => write.revision,
        };
        let (seen, keyspace) = (causal.head.applied, write.keyspace);
        let write = CausalWrite { revision, seen, keyspace, effects };
        let at = self.give_position(epoch, site, &write);
        if site != NO_SITE {
            self.note_ordered(site, revision, at);
        }
    }
}

fn note_has(has: &mut Vec<(RegionId, Position)>, region: RegionId, upto: Position) {
    match has.iter_mut().find(|(of, _)| *of == region) {
        Some((_, known)) => *known = upto.max(*known),
        None => has.push((region, upto)),
    }
}
