//! Puts under a number, which a client may send again to another site: each has one effect.
//!
//! The site that is asked first carries out a numbered put like any write, and its number goes
//! along with it. An attempt at another site is carried out at the root, under the token of its
//! session:
//!
//! > it has a place: that is the answer. It has none: it gets the next one, *in the place of* the
//! > site that was asked first.
//!
//! That site may have written it, too, and offer it later. From the place of the retry on, until
//! the site's own attempt comes or one of its writes that has seen the retry:
//!
//! - its own attempt has no effect;
//! - of its other writes, which did not know of the retry, what they assign to the keys of the put
//!   has no effect: the site's readers have seen them overwritten, or see it now.
//!
//! What has no effect keeps its place ([`NO_KEYSPACE`]). What is left of a write is a write of no
//! site right before it. The site, when it imports the retry, shows it over the same writes, takes
//! no late attempt, and writes that it has imported it: a mark, which closes the retry at the root.
//!
//! All of this is in the order, so every site has of it what it has imported: another root goes on
//! with it.
//!
//! The numbers are kept of the last numbered writes. What a session has seen when it is asked again
//! bounds where the first attempt can be: if numbers from there on are forgotten, the retry is
//! refused.
//!
//! Of several regions each does all of this for its own sites: an attempt in another region is
//! refused. To the other regions a retry is a write of its region like any other, and what has no
//! effect is nothing.
//!
//! Puts of whole strings only: what they overwrite is all of their keys.

use super::super::{Applying, Machine};
use super::registers::Pending;
use super::settled::Settled;
use super::{Causal, Stopped, retry_rows, rows};
use crate::bugs::Bug;
use model::{
    Answer, Bytes, CausalWrite, ClientId, Effect, KeyspaceId, Mark, NO_KEYSPACE, NO_SITE,
    OpenRetry, Position, Refusal, Region, RequestId, ResyncItem, Revision, SiteId, Write, limits,
};
use std::collections::BTreeMap;
use storage::state::State;
use wire::row;

/// The number of a write.
pub(super) type Number = (ClientId, u64);

/// A retried write, as a site has imported it, or as the root has ordered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) at: Position,
    /// At the root: from where on it is open no more. It is kept for sites that have not come
    /// there.
    pub(super) closed: Option<Position>,
    pub(super) tried: SiteId,
    pub(super) keyspace: KeyspaceId,
    pub(super) keys: Vec<Bytes>,
    /// At the site that was asked first: its writes up to this one lie under it.
    pub(super) over: Revision,
}

/// A numbered write that has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) at: Position,
    /// This site's own revision of it; 0: another site has made it.
    pub(super) version: Revision,
}

/// What is known of numbered writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Retries {
    /// Those that have a place.
    pub(super) placed: BTreeMap<Number, Placed>,
    pub(super) numbers: BTreeMap<Position, Number>,
    /// Of all behind this place the numbers are known.
    pub(super) known_after: Position,
    /// This site's own without a place.
    pub(super) pending: BTreeMap<Number, Revision>,
    pub(super) open: BTreeMap<Number, Open>,
    pub(super) settled: Settled,
}

impl Open {
    fn of(retry: &OpenRetry) -> Open {
        let OpenRetry { at, closed, tried, keyspace, keys, .. } = retry.clone();
        Open { at, closed, tried, keyspace, keys, over: Revision(0) }
    }

    fn covers(&self, site: SiteId, write: &CausalWrite) -> bool {
        self.tried == site && self.closed.is_none() && self.keyspace == write.keyspace
    }
}

/// The number that a write has at its site.
pub(super) fn number_of(write: &CausalWrite) -> Option<Number> {
    write.effects.iter().find_map(|effect| match effect {
        Effect::Mark(Mark::Numbered { client, sequence }) => Some((*client, *sequence)),
        _ => None,
    })
}

impl Retries {
    /// An own write waits for its place.
    pub(super) fn note_own(&mut self, write: &CausalWrite) {
        if let Some(number) = number_of(write) {
            self.pending.insert(number, write.revision);
        }
    }

    /// It waits no more.
    pub(super) fn settle_own(&mut self, write: &CausalWrite) {
        if let Some(number) = number_of(write) {
            self.pending.remove(&number);
        }
    }

    /// What is kept takes effect once own writes without a place are noted.
    pub(super) fn cover(&self, pending: &mut BTreeMap<(KeyspaceId, Bytes), Pending>) {
        for open in self.open.values().filter(|open| open.over > Revision(0)) {
            for key in &open.keys {
                Pending::cover(pending, open.keyspace, key, open.over);
            }
        }
    }

    pub(super) fn open_retry((client, sequence): Number, open: &Open) -> OpenRetry {
        let Open { at, closed, tried, keyspace, keys, .. } = open.clone();
        OpenRetry { client, sequence, at, closed, tried, keyspace, keys }
    }
}

/// What becomes of open retries with a write of the order, of a resync for one.
pub(super) fn follow(open: &mut BTreeMap<Number, Open>, at: Position, write: &CausalWrite) {
    for effect in &write.effects {
        match effect {
            Effect::Mark(Mark::Retried { client, sequence, tried }) if *tried != NO_SITE => {
                let keys = keys_of(write);
                let (tried, keyspace, over) = (*tried, write.keyspace, Revision(0));
                let retry = Open { at, closed: None, tried, keyspace, keys, over };
                open.insert((*client, *sequence), retry);
            }
            Effect::Mark(Mark::Matched { client, sequence }) => {
                if let Some(open) = open.get_mut(&(*client, *sequence)) {
                    open.closed = Some(at);
                }
            }
            _ => {}
        }
    }
}

/// Whether it changes which retries are open.
pub(super) fn opens_or_closes(effect: &Effect) -> bool {
    matches!(effect, Effect::Mark(Mark::Retried { .. } | Mark::Matched { .. }))
}

fn keys_of(write: &CausalWrite) -> Vec<Bytes> {
    write.effects.iter().filter_map(|effect| effect.key().cloned()).collect()
}

impl Causal {
    /// Whether this site has made a put under this number.
    pub fn has_made(&self, request: &RequestId) -> bool {
        let number = (request.client, request.sequence);
        let is_placed = |placed: &Placed| placed.version > Revision(0);
        self.retries.pending.contains_key(&number)
            || self.retries.settled.revision(&number).is_some()
            || self.retries.placed.get(&number).is_some_and(is_placed)
    }
}

impl<S: State> Machine<S> {
    /// At the root: the retried writes that a site may not have come to yet.
    pub fn retries(&self) -> Vec<ResyncItem> {
        let open = self.causal().retries.open.iter();
        open.map(|(number, open)| ResyncItem::Retried(Retries::open_retry(*number, open))).collect()
    }
}

impl<S: State> Applying<'_, S> {
    // ---- attempts ------------------------------------------------------------------------------

    /// The first attempt.
    pub(super) fn numbered_put(
        &mut self,
        request: &RequestId,
        keyspace: KeyspaceId,
        pairs: &[(Bytes, Bytes)],
    ) -> Result<Answer, Stopped> {
        check_keys(pairs)?;
        let retries = &self.modes.causal.retries;
        let number = (request.client, request.sequence);
        let own = retries.pending.get(&number).copied();
        let own = own.or_else(|| retries.settled.revision(&number));
        let placed = || retries.placed.get(&number).map(|placed| placed.version);
        if let Some(version) = own.or_else(placed) {
            return Ok(Answer::Put { applied: true, version, old: None });
        }
        let place = self.causal_begin(keyspace)?;
        self.check_held(keyspace, pairs.iter().map(|(key, _)| key))?;
        let retries = &self.modes.causal.retries;
        if retries.pending.len() >= limits::CAUSAL_NUMBERS_KEPT_MAX {
            return Err(Refusal::Unordered(self.modes.causal.unordered_bytes).into());
        }
        self.next_revision();
        let (client, sequence) = number;
        let mut effects = vec![Effect::Mark(Mark::Numbered { client, sequence })];
        let write = Write::PutMany { pairs: pairs.to_vec(), if_all_absent: false };
        self.causal_step(place, &write, &mut effects)?;
        self.causal_commit(keyspace, effects);
        let version = self.known.head.revision;
        Ok(Answer::Put { applied: true, version, old: None })
    }

    /// A later one, at the root.
    pub(super) fn retry_put(
        &mut self,
        request: &RequestId,
        (tried, since): (SiteId, Position),
        keyspace: KeyspaceId,
        pairs: &[(Bytes, Bytes)],
    ) -> Result<Answer, Stopped> {
        let Region { epoch, .. } = *self.region()?;
        self.check_gives(epoch)?;
        check_keys(pairs)?;
        for (key, value) in pairs {
            crate::machine::keys::check_key(key)?;
            crate::machine::keys::check_value(value.len())?;
        }
        if self.causal_place(keyspace).is_none() {
            return Err(Refusal::NoKeyspace(keyspace.to_string()).into());
        }
        self.order_own(epoch)?;
        let number = (request.client, request.sequence);
        let known = self.modes.causal.retries.placed.get(&number).copied();
        if let Some(Placed { at, .. }) =
            known.filter(|_| !self.modes.planted.is(Bug::RetryForgotten))
        {
            // A session that has seen an earlier place could have seen what is lost of its epoch.
            return Ok(Answer::Placed(at.max(Position::new(epoch, 0))));
        }
        if self.has_regions() && !self.is_of_this_region(tried)? {
            let what = "be sent again here, as its first site is of another region: whether it was made is not known";
            return Err(Refusal::NotCausal(what).into());
        }
        if since < self.modes.causal.retries.known_after {
            let what = "be sent again so late, or by a session that has seen nothing: whether it was made is not known";
            return Err(Refusal::NotCausal(what).into());
        }
        let tried = self.may_offer(tried)?;
        self.make_room(epoch)?;
        let (client, sequence) = number;
        let mut effects = vec![Effect::Mark(Mark::Retried { client, sequence, tried })];
        let puts = pairs.iter().cloned().map(|(key, value)| Effect::Put { key, value });
        effects.extend(puts);
        Ok(Answer::Placed(self.order_here(epoch, keyspace, effects)))
    }

    /// Whether a site is of the region of this one. Of one that has left that is not known.
    fn is_of_this_region(&self, site: SiteId) -> Result<bool, Stopped> {
        let own = self.region()?.id;
        let region = self.member()?.registry.region_of(site);
        Ok(region.is_some_and(|region| region.id == own))
    }

    /// The site that was asked first, or [`NO_SITE`] if nothing more comes from it.
    fn may_offer(&self, tried: SiteId) -> Result<SiteId, Stopped> {
        let registry = &self.member()?.registry;
        match registry.site(tried) {
            Some(_) => Ok(tried),
            // A node that does not know its deployment yet names no site.
            None if tried != NO_SITE && registry.has_left(tried) => Ok(NO_SITE),
            None => {
                let what = "be sent again in the place of a site that is not of the deployment";
                Err(Refusal::NotCausal(what).into())
            }
        }
    }

    /// Closes what sites have left open that are gone. Those that are closed count until every site
    /// has come there.
    fn make_room(&mut self, epoch: u16) -> Result<(), Stopped> {
        let registry = &self.member()?.registry;
        let open = &self.modes.causal.retries.open;
        let is_gone = |open: &Open| open.closed.is_none() && registry.site(open.tried).is_none();
        let gone = open.iter().filter(|(_, open)| is_gone(open));
        let gone: Vec<_> = gone.map(|(number, open)| (*number, open.keyspace)).collect();
        let max = limits::CAUSAL_RETRIES_OPEN_MAX;
        if open.len() >= max && gone.is_empty() {
            let what = "retried writes that a site which is away has not imported";
            return Err(Refusal::TooMany { what, max }.into());
        }
        for ((client, sequence), keyspace) in gone {
            self.order_here(
                epoch,
                keyspace,
                vec![Effect::Mark(Mark::Matched { client, sequence })],
            );
        }
        Ok(())
    }

    // ---- the order -----------------------------------------------------------------------------

    /// At the root: what a site's write becomes that open retries are in the place of, and the
    /// retry that is closed behind it. What is left of its effects is ordered.
    pub(super) fn match_retries(
        &mut self,
        epoch: u16,
        site: SiteId,
        write: &CausalWrite,
    ) -> Option<(CausalWrite, Vec<Effect>)> {
        if self.modes.planted.is(Bug::RetryUnmatched) {
            return None;
        }
        let void = || CausalWrite { keyspace: NO_KEYSPACE, effects: Vec::new(), ..write.clone() };
        let open = &self.modes.causal.retries.open;
        if let Some(number) = number_of(write)
            && open.get(&number).is_some_and(|open| open.covers(site, write))
        {
            let (client, sequence) = number;
            return Some((void(), vec![Effect::Mark(Mark::Matched { client, sequence })]));
        }
        let over = open.values().filter(|open| open.covers(site, write) && write.seen < open.at);
        let keys: Vec<&Bytes> = over.flat_map(|open| &open.keys).collect();
        // Nearly always: the write is not copied.
        if keys.is_empty() {
            return None;
        }
        let is_left = |effect: &&Effect| effect.key().is_none_or(|key| !keys.contains(&key));
        let left: Vec<_> = write.effects.iter().filter(is_left).cloned().collect();
        if left.len() == write.effects.len() {
            return None;
        }
        // A number stays known with what is left.
        if !left.is_empty() {
            self.order_here(epoch, write.keyspace, left);
        }
        Some((void(), Vec::new()))
    }

    /// A write has a place: what follows for numbers. At the root when it is ordered, elsewhere
    /// when it is imported.
    pub(super) fn follow_retries(&mut self, at: Position, site: SiteId, write: &CausalWrite) {
        let is_own = self.member().is_ok_and(|member| member.own == site);
        let version = if is_own { write.revision } else { Revision(0) };
        for effect in &write.effects {
            let (client, sequence) = match effect {
                Effect::Mark(
                    Mark::Numbered { client, sequence }
                    | Mark::Retried { client, sequence, .. }
                    | Mark::Matched { client, sequence },
                ) => (*client, *sequence),
                _ => continue,
            };
            if !matches!(effect, Effect::Mark(Mark::Matched { .. })) {
                self.know((client, sequence), Placed { at, version });
            }
        }
        if !write.effects.iter().any(opens_or_closes) {
            return;
        }
        let retries = &mut self.modes.causal.retries;
        let before = retries.open.clone();
        follow(&mut retries.open, at, write);
        let changed: Vec<Number> = retries.open.keys().copied().collect();
        for number in changed {
            if before.get(&number) != self.modes.causal.retries.open.get(&number) {
                self.put_open(number);
            }
        }
    }

    fn know(&mut self, number: Number, placed: Placed) {
        let at = placed.at;
        let retries = &mut self.modes.causal.retries;
        if retries.placed.contains_key(&number) || retries.numbers.contains_key(&at) {
            return;
        }
        retries.placed.insert(number, placed);
        retries.numbers.insert(at, number);
        let row = row::encode(&(number, placed.version));
        self.overlay.put(retry_rows::of_number(at), row);
        while self.modes.causal.retries.numbers.len() > limits::CAUSAL_NUMBERS_KEPT_MAX
            && let Some((at, number)) = self.modes.causal.retries.numbers.pop_first()
        {
            self.modes.causal.retries.placed.remove(&number);
            self.overlay.remove(retry_rows::of_number(at));
            self.know_after(at);
        }
    }

    fn know_after(&mut self, at: Position) {
        let retries = &mut self.modes.causal.retries;
        retries.known_after = retries.known_after.max(at);
        let row = row::encode(&retries.known_after);
        self.overlay.put(retry_rows::KNOWN_AFTER.to_vec(), row);
    }

    fn put_open(&mut self, number: Number) {
        let row = match self.modes.causal.retries.open.get(&number) {
            Some(open) => row::encode(open),
            None => return self.overlay.remove(retry_rows::of_open(number)),
        };
        self.overlay.put(retry_rows::of_open(number), row);
    }

    /// What was closed up to a place is not needed any more: all sites have come there, or this one
    /// is not the root.
    pub(super) fn forget_closed(&mut self, upto: Position) {
        let open = self.modes.causal.retries.open.iter();
        let closed = open.filter(|(_, open)| open.closed.is_some_and(|at| at <= upto));
        let closed: Vec<Number> = closed.map(|(number, _)| *number).collect();
        for number in closed {
            self.modes.causal.retries.open.remove(&number);
            self.put_open(number);
        }
    }

    // ---- the site that was asked first ---------------------------------------------------------

    /// A retry in the place of this site is imported, before what it assigns: what this site has
    /// written to its keys lies under it. Answers with its number.
    pub(super) fn give_way(&mut self, at: Position, write: &CausalWrite) -> Option<Number> {
        let own = self.member().ok()?.own;
        let number = write.effects.iter().find_map(|effect| match effect {
            Effect::Mark(Mark::Retried { client, sequence, tried }) if *tried == own => {
                Some((*client, *sequence))
            }
            _ => None,
        })?;
        let causal = &mut self.modes.causal;
        let last = causal.head.last;
        let over = causal.retries.pending.get(&number).copied().unwrap_or(last);
        let keys = keys_of(write);
        for key in &keys {
            Pending::cover(&mut causal.pending, write.keyspace, key, over);
        }
        if let Some(open) = causal.retries.open.get_mut(&number).filter(|open| open.at == at) {
            open.over = over;
            self.put_open(number);
        }
        Some(number)
    }

    /// This site has imported these retries: it writes so, which closes them.
    pub(super) fn mark_imported(&mut self, imported: Vec<(Number, KeyspaceId)>) {
        if imported.is_empty() || self.check_confirmed().is_err() {
            return;
        }
        let keyspace = imported[0].1;
        let mark = |((client, sequence), _)| Effect::Mark(Mark::Matched { client, sequence });
        let marks = imported.into_iter().map(mark).collect();
        self.causal_commit(keyspace, marks);
    }

    /// A restored site is confirmed: it could not write so of the retries that it has imported
    /// until now.
    pub(super) fn mark_all_imported(&mut self) {
        let Ok(own) = self.member().map(|member| member.own) else { return };
        let Causal { head, retries, .. } = &self.modes.causal;
        let is_imported =
            |open: &Open| open.tried == own && open.closed.is_none() && open.at <= head.applied;
        let imported = retries.open.iter().filter(|(_, open)| is_imported(open));
        let imported: Vec<_> = imported.map(|(number, open)| (*number, open.keyspace)).collect();
        if !imported.is_empty() {
            self.next_revision();
        }
        self.mark_imported(imported);
    }

    // ---- a resync ------------------------------------------------------------------------------

    /// The keys of this site's writes that lie under a retry, once a resync has brought the order
    /// up to a place: of a write what is left.
    pub(super) fn left_of_own(&self, write: &CausalWrite) -> Vec<Effect> {
        let open = self.modes.causal.retries.open.values();
        let over =
            open.filter(|open| open.over >= write.revision && open.keyspace == write.keyspace);
        let keys: Vec<&Bytes> = over.flat_map(|open| &open.keys).collect();
        let is_left = |effect: &&Effect| effect.key().is_none_or(|key| !keys.contains(&key));
        write.effects.iter().filter(is_left).cloned().collect()
    }

    /// What a resync has brought of retries takes the place of what was known: all numbers are
    /// known from its end on.
    pub(super) fn replace_retries(
        &mut self,
        upto: Position,
        brought: BTreeMap<Number, Open>,
    ) -> Result<Vec<(Number, KeyspaceId)>, Stopped> {
        let own = self.member().map(|member| member.own).unwrap_or(NO_SITE);
        let region = self.region().ok().copied();
        let old = std::mem::take(&mut self.modes.causal.retries);
        for number in old.open.into_keys() {
            self.overlay.remove(retry_rows::of_open(number));
        }
        self.modes.causal.retries.pending = old.pending;
        self.modes.causal.retries.settled = old.settled;
        // A late attempt must find that it was made. What was not imported, or was lost since, may
        // be made again.
        let applied = self.modes.causal.head.applied;
        let rebuilt = region.and_then(|region| region.rebuilt);
        let stands =
            |at: Position| at <= applied && !rebuilt.is_some_and(|rebuilt| rebuilt.lacks(at));
        for (number, placed) in old.placed {
            if stands(placed.at) {
                let retries = &mut self.modes.causal.retries;
                retries.placed.insert(number, placed);
                retries.numbers.insert(placed.at, number);
                continue;
            }
            self.overlay.remove(retry_rows::of_number(placed.at));
            if placed.version > Revision(0) {
                self.keep_settled(number, placed.version);
            }
        }
        self.know_after(upto);
        let writes = match brought.values().any(|open| open.tried == own) {
            true => rows::own(&self.overlay, Revision(0), usize::MAX)?,
            false => Vec::new(),
        };
        let mut imported = Vec::new();
        for (number, mut open) in brought {
            if open.at > upto || open.closed.is_some_and(|at| at <= upto) {
                continue;
            }
            open.closed = None;
            if open.tried == own {
                open.over = self.lies_under(&number, &open, &writes);
                imported.push((number, open.keyspace));
            }
            self.modes.causal.retries.open.insert(number, open);
            self.put_open(number);
            // A late attempt is known, though its place lies before what is known of others.
            let at = self.modes.causal.retries.open[&number].at;
            self.know(number, Placed { at, version: Revision(0) });
        }
        let Causal { retries, pending, .. } = &mut self.modes.causal;
        retries.cover(pending);
        Ok(imported)
    }

    /// The last write of this site that lies under a retry in its place, as the root has it: its own
    /// attempt, or the last one that has not seen the retry. It may have been imported before, and
    /// writes since have seen it.
    fn lies_under(&self, number: &Number, open: &Open, own: &[CausalWrite]) -> Revision {
        let causal = &self.modes.causal;
        if let Some(attempt) = causal.retries.pending.get(number) {
            return *attempt;
        }
        let first = own.iter().find(|write| write.seen >= open.at);
        first.map_or(causal.head.last, |write| Revision(write.revision.0 - 1))
    }
}

fn check_keys(pairs: &[(Bytes, Bytes)]) -> Result<(), Refusal> {
    let max = limits::CAUSAL_NUMBERED_KEYS_BYTES_MAX;
    match pairs.iter().map(|(key, _)| key.len()).sum::<usize>() {
        0 => Err(Refusal::NotCausal("be written without a key")),
        bytes if bytes > max => {
            Err(Refusal::TooMany { what: "bytes of the keys of a numbered put", max })
        }
        _ => Ok(()),
    }
}

/// A retry as a resync brings it.
pub(super) fn brought(retry: &OpenRetry) -> (Number, Open) {
    ((retry.client, retry.sequence), Open::of(retry))
}
