//! What sessions were told, in the form of a history. Which write a read found is known by its mark, and where
//! that write is in the order by the order itself: once all is at rest.

use std::collections::{BTreeMap, HashMap};

use model::{Effect, KeyspaceId};

use super::asking::{mark_of, mark_of_write};
use crate::history::{Got, Position, Request, WriteId};
use crate::simulation::region::Ordered;

/// A request and what came of it, before it is known which writes it is about.
#[derive(Debug, Clone)]
pub struct Told {
    pub(super) line: Request,
    /// By read: the mark of what it found.
    pub(super) marks: Vec<Option<String>>,
    /// Of its own write.
    pub(super) mark: Option<String>,
}

/// The order of a region, as judges need it.
#[derive(Debug, Default)]
pub struct Ordering {
    by_mark: HashMap<String, WriteId>,
    /// The places of all writes.
    pub positions: Vec<Position>,
    /// What must never happen, and did.
    pub wrong: Option<String>,
}

impl Ordering {
    /// Of what the root gave.
    #[must_use]
    pub fn of(order: &[Ordered]) -> Ordering {
        let mut ordering = Ordering::default();
        for (position, site, write) in order {
            let (site, revision) = (site.to_string(), write.revision.0);
            let id = WriteId { site: site.clone(), revision };
            if let Some(mark) = mark_of_write(write)
                && let Some(before) = ordering.by_mark.insert(mark.clone(), id)
            {
                let why = format!(
                    "write {mark} is in the order twice: as {before} and {site}:{revision}"
                );
                ordering.wrong.get_or_insert(why);
            }
            ordering.positions.push(Position {
                site,
                revision,
                position: Some(position.count()),
                instead: Vec::new(),
                removes: Vec::new(),
            });
        }
        ordering
    }

    /// A request with the identities of the writes that it is about.
    pub fn request(&mut self, told: Told) -> Request {
        // A write that is in no order is named by its mark, and has no position.
        let id = |mark: String| match self.by_mark.get(&mark) {
            Some(id) => id.clone(),
            None => WriteId { site: mark, revision: 0 },
        };
        let Told { mut line, marks, mark } = told;
        for (seen, mark) in line.reads.iter_mut().zip(marks) {
            seen.found = mark.map(id);
        }
        let is_ordered = mark.as_ref().is_some_and(|mark| self.by_mark.contains_key(mark));
        match line.got {
            Got::Failed { .. } if is_ordered => {
                self.wrong.get_or_insert(format!("what was not done is in the order: {line}"));
            }
            Got::Done => line.write = mark.map(id),
            Got::Unknown { .. } if is_ordered => line.write = mark.map(id),
            _ => {}
        }
        line
    }
}

/// What all sites must hold in the end: by keyspace and register, the mark of the last write.
#[must_use]
pub fn folded(order: &[Ordered]) -> BTreeMap<KeyspaceId, BTreeMap<String, String>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut all: BTreeMap<KeyspaceId, BTreeMap<String, String>> = BTreeMap::new();
    for (_, _, write) in order {
        let keys = all.entry(write.keyspace).or_default();
        for effect in &write.effects {
            let key = text(effect.key());
            match effect {
                Effect::Put { value, .. } => {
                    clear(keys, &key);
                    keys.insert(key, mark_of(value));
                }
                Effect::Delete { .. } => clear(keys, &key),
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
    all
}

fn clear(keys: &mut BTreeMap<String, String>, key: &str) {
    keys.remove(key);
    let of_hash = format!("{key}.");
    keys.retain(|register, _| !register.starts_with(&of_hash));
}
