//! What sessions were answered, in the form of a history. Which write a read found is known by its
//! mark, and where that write is in the order by the order itself: once all is at rest.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use model::{Bytes, CausalWrite, Effect, KeyspaceId, NO_KEYSPACE, RegionId, Revision, SiteId};

use super::asking::{
    OF_MOMENT, is_mark_of_clear, mark_of, mark_of_clear, mark_of_moment, mark_of_write,
    position_of_clear,
};
use super::retried::Retried;
use crate::history::{Got, Instead, Position, Register, Request, WriteId};
use crate::simulation::rebuilt::Ends;
use crate::simulation::region::{Fate, Ordered, revision_of_none};

/// A request and what came of it, before it is known which writes it is about.
#[derive(Debug, Clone)]
pub struct Unresolved {
    pub(super) line: Request,
    /// By read: the mark of what it found.
    pub(super) marks: Vec<Option<String>>,
    /// Of its own write.
    pub(super) mark: Option<String>,
    /// Where that was acknowledged.
    pub(super) written: Option<(SiteId, Revision)>,
    /// How much of the order its session has seen with it, if it was answered.
    pub(super) seen: model::Position,
    /// Whether that is not in the order any more: [`leave_void_out`].
    pub(super) is_void: bool,
}

impl Unresolved {
    /// Two roots may have given the same position: of several regions a clear is known by that of the
    /// site which answered it.
    pub fn name_region(&mut self, region_of: impl Fn(&str) -> Option<RegionId>) {
        if let Some(position) = self.mark.as_deref().and_then(position_of_clear)
            && let Some(region) = region_of(&self.line.site)
        {
            self.mark = Some(mark_of_clear(revision_of_none(region, position)));
        }
    }
}

/// What sessions read that was lost with a root counts for nothing: it is in no order, and what they
/// wrote from then on is caused by nothing. No such session is served on where the next root orders.
/// One that was in another region by then may be: what that has taken is there still. `fate_of`: the
/// region of a site, and what became of a place there.
///
/// # Errors
/// One is: what it has seen is not there, and it was not refused.
pub fn leave_void_out(
    all: &mut [Unresolved],
    fate_of: impl Fn(&str, model::Position) -> (Option<RegionId>, Fate),
) -> Result<(), String> {
    let mut void: HashMap<String, (Option<RegionId>, model::Position)> = HashMap::new();
    let (mut wrong, mut lines) = (None, 0);
    for one in all.iter_mut().filter(|one| matches!(one.line.got, Got::Done)) {
        let Unresolved { line, marks, seen, is_void: is_marked, .. } = one;
        let (region, fate) = fate_of(&line.site, *seen);
        if fate != Fate::Kept {
            void.entry(line.client.clone()).or_insert((region, *seen));
        } else if let Some((of, before)) = void.remove(&line.client)
            && of == region
        {
            void.insert(line.client.clone(), (of, before));
            wrong.get_or_insert_with(|| {
                format!(
                    "{} had seen the order up to {before}, which was lost with its root, and was \
                     served on: {line}",
                    line.client
                )
            });
        }
        if fate == Fate::Lost {
            *is_marked = true;
            lines += 1;
            line.client = format!("{}!{lines}", line.client);
            line.reads.clear();
            marks.clear();
        }
    }
    wrong.map_or(Ok(()), Err)
}

/// The order of a region, as judges need it.
#[derive(Debug, Default)]
pub struct Ordering {
    by_mark: HashMap<String, WriteId>,
    /// Which write let a key expire at a moment; `None`: several did.
    by_moment: HashMap<String, Option<WriteId>>,
    /// The marks of writes that have several places: the first ones were lost, and another region
    /// has them.
    again: HashSet<String>,
    /// The places of all writes.
    pub positions: Vec<Position>,
    /// Whether every write that any site has taken is in it: none was lost.
    pub is_whole: bool,
    /// What must never happen, and did.
    pub wrong: Option<String>,
}

impl Ordering {
    /// Of what the root gave, and of what sites wrote.
    #[must_use]
    pub fn of(
        order: &[Ordered],
        own_writes: &BTreeMap<(SiteId, Revision), CausalWrite>,
        prefix_of: impl Fn(KeyspaceId) -> String,
        was_void: impl Fn(SiteId, Revision) -> bool,
    ) -> Ordering {
        let mut ordering = Ordering::default();
        let mut expiries = Expiries::default();
        let mut retried = Retried::default();
        for (position, of_site, write) in order {
            let (mut site, revision) = (of_site.to_string(), write.revision.0);
            retried.follow(*position, write);
            let id = WriteId { site: site.clone(), revision };
            if let Some(mark) = mark_of_write(write)
                && let Some(before) = ordering.by_mark.insert(mark.clone(), id.clone())
            {
                if before == id && was_void(*of_site, write.revision) {
                    site = format!("{site} again at {position}");
                    ordering.again.insert(mark);
                } else {
                    let why = format!(
                        "write {mark} is in the order twice: as {before} and {site}:{revision}"
                    );
                    ordering.wrong.get_or_insert(why);
                }
            }
            let is_again = site != of_site.to_string();
            if let Err(why) = expiries.take(write, &site) {
                ordering.wrong.get_or_insert(format!("{position}: {why}"));
            }
            let mut removes = Vec::new();
            for effect in write.effects.iter().filter(|effect| !effect.is_mark()) {
                let Some(key) = effect.key() else {
                    let id = WriteId { site: site.clone(), revision };
                    ordering.by_mark.insert(mark_of_clear(write.revision), id);
                    removes.push(Register::Keyspace(prefix_of(write.keyspace)));
                    continue;
                };
                let key = String::from_utf8_lossy(key).into_owned();
                match effect {
                    Effect::Delete { .. } if is_again => removes.push(Register::Key(key)),
                    Effect::DeleteFields { fields, .. } if is_again => {
                        let text = |field: &Bytes| String::from_utf8_lossy(field).into_owned();
                        let of_key =
                            fields.iter().map(|field| Register::Field(key.clone(), text(field)));
                        removes.extend(of_key);
                    }
                    Effect::SetExpiry { at_ms: Some(ms), .. } => {
                        let id = Some(WriteId { site: site.clone(), revision });
                        let of = ordering.by_moment.entry(mark_of_moment(&key, *ms));
                        of.and_modify(|of| *of = None).or_insert(id);
                    }
                    Effect::Expire { .. } => removes.push(Register::Key(key)),
                    _ => {}
                }
            }
            ordering.positions.push(Position {
                site,
                revision,
                position: Some(position.count()),
                instead: Vec::new(),
                removes,
            });
            if write.keyspace == NO_KEYSPACE
                && let Some(own) = own_writes.get(&(*of_site, write.revision))
                && !retried.is_attempt(own)
            {
                ordering.gives_way(own, retried.instead_of(*of_site, own));
            }
        }
        ordering
    }

    /// The last place is that of a write which a retry has come in the place of: on these registers
    /// it counts elsewhere. What is left of it has the place before.
    fn gives_way(&mut self, own: &CausalWrite, instead: Vec<Instead>) {
        let Some(mark) = mark_of_write(own) else { return };
        let last = self.positions.last().expect("it was just noted");
        let id = WriteId { site: last.site.clone(), revision: last.revision };
        // What is left of it has its identity already.
        let id = self.by_mark.entry(mark).or_insert(id);
        let of_id = |place: &&mut Position| place.site == id.site && place.revision == id.revision;
        if let Some(place) = self.positions.iter_mut().rev().take(2).find(of_id) {
            place.instead = instead;
        }
    }

    /// Takes in what was made, acknowledged or not, by sites that went for good before the order had
    /// it. What was read at another site had been ordered: that is no excuse, unless its place was
    /// lost with a root.
    pub fn note_lost(
        &mut self,
        unresolved: &[Unresolved],
        own_writes: &BTreeMap<(SiteId, Revision), CausalWrite>,
        gone: &BTreeSet<SiteId>,
        ends: &Ends,
    ) {
        // What is acknowledged together has the last one's revision in its tokens.
        let of_gone = own_writes.iter().filter(|((site, _), _)| gone.contains(site));
        let made: HashMap<String, (SiteId, Revision)> =
            of_gone.filter_map(|(id, write)| Some((mark_of_write(write)?, *id))).collect();
        let mut readers: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for one in unresolved {
            for mark in one.marks.iter().flatten() {
                readers.entry(mark).or_default().insert(&one.line.site);
            }
        }
        let may_be_done = |one: &&Unresolved| !matches!(one.line.got, Got::Failed { .. });
        for one in unresolved.iter().filter(may_be_done) {
            let Some(mark) = &one.mark else { continue };
            // Without an answer there is no token of it.
            let written = one.written.filter(|_| matches!(one.line.got, Got::Done));
            let Some((site, revision)) = made.get(mark).copied().or(written) else { continue };
            let is_read_elsewhere = readers
                .get(mark.as_str())
                .is_some_and(|sites| sites.iter().any(|reader| *reader != one.line.site));
            let is_excused = !is_read_elsewhere || ends.had_void_place(site, revision);
            if !gone.contains(&site) || self.by_mark.contains_key(mark) || !is_excused {
                continue;
            }
            let (site, revision) = (site.to_string(), revision.0);
            self.by_mark.insert(mark.clone(), WriteId { site: site.clone(), revision });
            let (instead, removes) = (Vec::new(), Vec::new());
            self.positions.push(Position { site, revision, position: None, instead, removes });
        }
        // No site but the root has a clear before its place, by which it is known.
        let marks = unresolved.iter().filter(|one| one.is_void).filter_map(|one| one.mark.as_ref());
        for mark in marks.filter(|mark| is_mark_of_clear(mark)) {
            if self.by_mark.contains_key(mark) {
                continue;
            }
            let (site, revision) = (mark.clone(), 0);
            self.by_mark.insert(mark.clone(), WriteId { site: site.clone(), revision });
            let (instead, removes) = (Vec::new(), Vec::new());
            self.positions.push(Position { site, revision, position: None, instead, removes });
        }
    }

    /// A request with the identities of the writes that it is about.
    pub fn request(&mut self, unresolved: Unresolved) -> Request {
        // A write that is in no order is named by its mark, and has no position.
        let id = |mark: String| match self.by_mark.get(&mark) {
            Some(id) => id.clone(),
            None => WriteId { site: mark, revision: 0 },
        };
        let Unresolved { mut line, mut marks, mark, .. } = unresolved;
        // Of a write with several places it is not known which one was read.
        let is_once =
            |mark: &Option<String>| mark.as_ref().is_none_or(|mark| !self.again.contains(mark));
        let mut once = marks.iter().map(is_once);
        line.reads.retain(|_| once.next().unwrap_or(true));
        marks.retain(is_once);
        for (seen, mark) in line.reads.iter_mut().zip(marks) {
            // Of a moment that several writes named it is not known which one was found.
            seen.found = match &mark {
                Some(mark) if mark.contains(OF_MOMENT) => {
                    self.by_moment.get(mark).cloned().flatten()
                }
                _ => mark.map(id),
            };
        }
        let is_ordered = mark.as_ref().is_some_and(|mark| self.by_mark.contains_key(mark));
        match line.got {
            Got::Failed { .. } if is_ordered => {
                self.wrong.get_or_insert(format!("what was not done is in the order: {line}"));
            }
            Got::Done => line.write = mark.map(id),
            Got::Unknown { .. } if is_ordered => line.write = mark.map(id),
            // What is in no order was not done, and explains no read that found nothing.
            Got::Unknown { .. } if self.is_whole && mark.is_some() => {
                line.writes.retain(|assigned| !assigned.deletes);
            }
            _ => {}
        }
        line
    }
}

/// Which write set each key's expiry last, as an order goes on.
#[derive(Debug, Default)]
struct Expiries(BTreeMap<(KeyspaceId, Bytes), (String, u64, u64)>);

impl Expiries {
    /// # Errors
    /// What the root removes has another expiry by then.
    fn take(&mut self, write: &CausalWrite, by: &str) -> Result<(), String> {
        for effect in write.effects.iter().filter(|effect| !effect.is_mark()) {
            let Some(key) = effect.key() else {
                self.0.retain(|(keyspace, _), _| *keyspace != write.keyspace);
                continue;
            };
            let at = (write.keyspace, key.clone());
            match effect {
                Effect::SetExpiry { at_ms: Some(ms), .. } => {
                    self.0.insert(at, (by.to_owned(), write.revision.0, *ms));
                }
                Effect::Replace { .. } | Effect::SetFields { .. } | Effect::DeleteFields { .. } => {
                }
                Effect::Expire { key, site, revision } => {
                    let last = self.0.remove(&at);
                    let is_last = last.as_ref().is_some_and(|(of, number, _)| {
                        *of == site.to_string() && *number == revision.0
                    });
                    if !is_last {
                        return Err(format!(
                            "{} expires by write {site}:{revision}, and its expiry is {last:?}",
                            String::from_utf8_lossy(key)
                        ));
                    }
                }
                _ => drop(self.0.remove(&at)),
            }
        }
        Ok(())
    }
}

/// A key that is to expire, by the order, and when.
#[must_use]
pub fn expiring(order: &[Ordered]) -> Option<(String, u64)> {
    let mut expiries = Expiries::default();
    for (_, site, write) in order {
        // What is wrong is reported with the places.
        let _ = expiries.take(write, &site.to_string());
    }
    let first = expiries.0.into_iter().min_by_key(|(_, (.., ms))| *ms)?;
    Some((String::from_utf8_lossy(&first.0.1).into_owned(), first.1.2))
}

/// The mark of a key that is to expire, in what sites hold in the end: the moment itself cannot
/// always be seen.
pub(super) const EXPIRES: &str = "a moment";

/// What all sites must hold in the end: by keyspace and register, the mark of the last write; and
/// which strings are to expire.
#[must_use]
pub fn folded(order: &[Ordered]) -> BTreeMap<KeyspaceId, BTreeMap<String, String>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut all: BTreeMap<KeyspaceId, BTreeMap<String, String>> = BTreeMap::new();
    let mut expiries = Expiries::default();
    for (_, site, write) in order {
        // What is wrong is reported with the places.
        let _ = expiries.take(write, &site.to_string());
        let keys = all.entry(write.keyspace).or_default();
        for effect in write.effects.iter().filter(|effect| !effect.is_mark()) {
            let Some(key) = effect.key().map(|key| text(key)) else {
                keys.clear();
                continue;
            };
            match effect {
                Effect::Put { value, .. } | Effect::Replace { value, .. } => {
                    clear(keys, &key);
                    keys.insert(key, mark_of(value));
                }
                Effect::Delete { .. } | Effect::Expire { .. } => clear(keys, &key),
                Effect::SetExpiry { .. } | Effect::Clear | Effect::Mark(_) => {}
                Effect::SetFields { fields, .. } => {
                    keys.remove(&key);
                    for (field, value) in fields {
                        keys.insert(format!("{key}.{}", text(field)), mark_of(value));
                    }
                }
                Effect::DeleteFields { fields, .. } => {
                    for field in fields {
                        keys.remove(&format!("{key}.{}", text(field)));
                    }
                }
            }
        }
    }
    for (keyspace, key) in expiries.0.into_keys() {
        let (key, keys) = (text(&key), all.entry(keyspace).or_default());
        // An expiry outlives its key, and hashes are read without it.
        if keys.contains_key(&key) {
            keys.insert(Register::Expiry(key).to_string(), EXPIRES.to_owned());
        }
    }
    all
}

fn clear(keys: &mut BTreeMap<String, String>, key: &str) {
    keys.remove(key);
    let of_hash = format!("{key}.");
    keys.retain(|register, _| !register.starts_with(&of_hash));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Assigned;

    fn unanswered(mark: Option<&str>) -> Unresolved {
        let line = Request {
            client: "c".to_owned(),
            site: "west".to_owned(),
            call_us: 5,
            return_us: Some(9),
            reads: Vec::new(),
            writes: vec![Assigned { register: Register::Key("k".to_owned()), deletes: true }],
            write: None,
            got: Got::Unknown { why: "no answer in time".to_owned() },
        };
        let mark = mark.map(str::to_owned);
        Unresolved {
            line,
            marks: Vec::new(),
            mark,
            written: None,
            seen: model::Position(0),
            is_void: false,
        }
    }

    #[test]
    fn what_sites_hold_in_the_end_has_the_expiries_of_strings() {
        let (keyspace, site) = (KeyspaceId(3), SiteId(1));
        let key = |name: &str| Bytes::from(name.to_owned());
        let put = |name: &str| Effect::Put { key: key(name), value: key("c.1") };
        let expires = |name: &str, at_ms| Effect::SetExpiry { key: key(name), at_ms };
        let fields =
            |name: &str| Effect::SetFields { key: key(name), fields: vec![(key("f"), key("c.2"))] };
        let all = [
            vec![put("stays"), expires("stays", Some(9))],
            vec![put("ended"), expires("ended", Some(9)), expires("ended", None)],
            vec![put("anew"), expires("anew", Some(9)), put("anew")],
            vec![expires("absent", Some(9))],
            vec![fields("hash"), expires("hash", Some(9))],
            vec![put("gone"), expires("gone", Some(9))],
            vec![Effect::Expire { key: key("gone"), site, revision: Revision(6) }],
        ];
        let order: Vec<Ordered> = (1..)
            .zip(all)
            .map(|(number, effects)| {
                let (revision, seen) = (Revision(number), model::Position(0));
                let write = CausalWrite { revision, seen, keyspace, effects };
                (model::Position::new(1, number), site, write)
            })
            .collect();
        let folded = folded(&order).remove(&keyspace).unwrap_or_default();
        let found: Vec<&str> = folded.keys().map(String::as_str).collect();
        assert_eq!(found, ["anew", "ended", "hash.f", "stays", "the expiry of stays"]);
        assert_eq!(folded["the expiry of stays"], EXPIRES);
    }

    #[test]
    fn an_unanswered_delete_that_is_in_no_order_was_not_done() {
        let mut ordering = Ordering::default();
        let assigned = |ordering: &mut Ordering, mark| ordering.request(unanswered(mark)).writes;
        // With a lost site it may have been done.
        assert_eq!(assigned(&mut ordering, Some("c.1")).len(), 1);
        ordering.is_whole = true;
        assert_eq!(assigned(&mut ordering, Some("c.1")), []);
        // A clear without an answer has no mark.
        assert_eq!(assigned(&mut ordering, None).len(), 1);
        let id = WriteId { site: "2".to_owned(), revision: 7 };
        ordering.by_mark.insert("c.1".to_owned(), id.clone());
        let ordered = ordering.request(unanswered(Some("c.1")));
        assert_eq!((ordered.writes.len(), ordered.write), (1, Some(id)));
    }
}
