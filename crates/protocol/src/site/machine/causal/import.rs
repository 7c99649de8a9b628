//! The order as it comes to a site, batch by batch: all of a batch, or nothing of it.
//!
//! An entry of another site lies under what is pending here. An own one changes no record: its
//! write is a part of them since it was made, and from now on nothing is pending of it. A site that
//! was restored from a backup may lack an own write: then that comes with its effects, as one of
//! another site. A write of a keyspace that this site does not hold comes without effects, and
//! takes its place; so does one that touches no key which it holds on demand (`held`).

use super::super::Applying;
use super::assign::Source;
use super::bridging::keeps;
use super::fetch::fetched_for;
use super::{Stopped, rows};
use crate::bugs::Bug;
use model::{Answer, CausalWrite, Import, NO_SITE, Position, Refusal, SiteId};
use std::collections::BTreeMap;
use storage::state::State;

impl<S: State> Applying<'_, S> {
    pub(super) fn import(
        &mut self,
        from: Position,
        upto: Position,
        entries: &[Import],
    ) -> Result<Answer, Stopped> {
        let is_here = from == self.modes.causal.head.applied && self.modes.causal.resync.is_none();
        let is_early = self.modes.planted.is(Bug::FetchedOutside) && from == upto;
        let is_in_order = is_early || is_in_order(from, upto, entries);
        if !is_here || self.is_frozen() || !is_in_order {
            return Ok(self.done_now());
        }
        let region = *self.region()?;
        // A site that was the root may come to the end of what it had ordered.
        let is_own = upto <= self.modes.causal.head.order_last;
        let is_behind = match region.is_rebuilding() {
            true => !is_own,
            false => region.cut.is_some_and(|cut| cut < upto),
        };
        let is_over = upto.epoch() < region.epoch && is_behind;
        if is_over {
            // Its epoch has ended before.
            return Ok(self.done_now());
        }
        let own_site = self.member()?.own;
        let mut ordered = BTreeMap::new();
        let mut retried = Vec::new();
        // The root has it recorded since it ordered it.
        let known_upto = self.modes.causal.head.order_last;
        let own = entries.iter().filter(|entry| matches!(entry, Import::Own(_))).count();
        let is_lacked =
            |entry: &&Import| matches!(entry, Import::Other { site, .. } if *site == own_site);
        let may_be_lacked = entries.iter().filter(is_lacked).count();
        self.check_import(own, entries)?;
        if own < entries.len() {
            self.next_revision();
        }
        let after = self.modes.causal.head.own_ordered;
        let mut own =
            rows::first_own(&self.overlay, after, own + may_be_lacked)?.into_iter().peekable();
        for entry in entries {
            match entry {
                Import::Own(position) => {
                    let (write, bytes) = own.next().ok_or(rows::DAMAGED)?;
                    ordered.insert(own_site, (write.revision, *position));
                    self.settle_own(&write, bytes)?;
                    if *position > known_upto {
                        self.follow_retries(*position, own_site, &write);
                        self.keep_imported(*position, own_site, &write)?;
                    }
                }
                // It has its place without what this site had written: that has no effect, or is what
                // came with the order.
                Import::Other { position, site, write }
                    if *site == own_site
                        && own.peek().is_some_and(|(one, _)| one.revision == write.revision) =>
                {
                    let (own_write, bytes) = own.next().ok_or(rows::DAMAGED)?;
                    ordered.insert(own_site, (write.revision, *position));
                    self.settle_own(&own_write, bytes)?;
                    if *position > known_upto {
                        self.follow_retries(*position, own_site, &own_write);
                        self.keep_imported(*position, own_site, write)?;
                    }
                }
                Import::Other { position, site, write } => {
                    if *position > known_upto {
                        self.follow_retries(*position, *site, write);
                        self.keep_imported(*position, *site, write)?;
                    }
                    let way = self.give_way(*position, write);
                    retried.extend(way.map(|number| (number, write.keyspace)));
                    if *site == own_site {
                        self.modes.causal.head.own_ordered = write.revision;
                    }
                    if *site != NO_SITE {
                        ordered.insert(*site, (write.revision, *position));
                    }
                    self.import_effects(*position, *site, write)?;
                }
            }
        }
        for (site, (last, at)) in ordered {
            self.note_ordered(site, last, at);
        }
        self.forget_kept()?;
        let causal = &mut self.modes.causal;
        causal.head.applied = upto;
        causal.is_dirty = true;
        if upto > known_upto {
            self.forget_closed(upto);
        }
        self.mark_imported(retried);
        self.drop_unneeded()?;
        self.follow_root();
        Ok(self.done_now())
    }

    /// What a write of another site assigns here: of a keyspace that is held on demand, to the keys
    /// that are held.
    fn import_effects(
        &mut self,
        at: Position,
        site: SiteId,
        write: &CausalWrite,
    ) -> Result<(), Stopped> {
        let Some(place) = self.causal_place(write.keyspace) else { return Ok(()) };
        let (own, is_on_demand) = (self.member()?.own, self.is_on_demand(write.keyspace));
        let keeps = keeps(write);
        for effect in &write.effects {
            if let Some(items) = fetched_for(own, effect).filter(|_| is_on_demand) {
                self.take_items(place, at, items)?;
                continue;
            }
            let is_held = |key| self.modes.causal.holds_key(write.keyspace, key);
            if !is_on_demand || effect.key().is_none_or(is_held) {
                self.assign(place, effect, (site, write.revision), Source::Other(at, &keeps))?;
            }
        }
        Ok(())
    }

    /// Whether a batch can be applied, before anything of it is.
    fn check_import(&self, own: usize, entries: &[Import]) -> Result<(), Refusal> {
        if own as u64 > self.modes.causal.unordered {
            let what =
                "go on from a state that lacks writes of this site which its region has ordered";
            return Err(Refusal::NotCausal(what));
        }
        let next = self.known.head.keyspace_next;
        for entry in entries {
            let Import::Other { write, .. } = entry else { continue };
            let is_whole = !self.is_on_demand(write.keyspace);
            if write.effects.is_empty() && is_whole && self.causal_place(write.keyspace).is_some() {
                return Err(Refusal::NotCausal("be imported without the content of its writes"));
            }
            if write.keyspace.0 >= next {
                // It was made, as a client has written to it: the registry that contains it is on
                // its way.
                return Err(Refusal::NoKeyspace(write.keyspace.to_string()));
            }
        }
        Ok(())
    }
}

/// Whether the places of entries ascend between two positions.
fn is_in_order(from: Position, upto: Position, entries: &[Import]) -> bool {
    let mut last = from;
    let ascend = entries.iter().all(|entry| {
        let before = std::mem::replace(&mut last, entry.position());
        before < last
    });
    ascend && last <= upto
}
