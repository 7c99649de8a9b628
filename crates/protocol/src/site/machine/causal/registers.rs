//! Which registers of a key have a write of this site that has no position here, and the last such
//! one of each: until that is ordered, nothing of others shows on the register.

use model::{Bytes, CausalWrite, Effect, KeyspaceId, Registers, Revision};
use std::collections::BTreeMap;

/// Of one key. Each is the revision of the last pending write that assigns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pending {
    /// The string and all fields.
    values: Option<Revision>,
    /// The string.
    string: Option<Revision>,
    /// These fields.
    fields: BTreeMap<Bytes, Revision>,
    /// The expiry.
    expiry: Option<Revision>,
}

type Keys = BTreeMap<(KeyspaceId, Bytes), Pending>;

impl Pending {
    /// A write of this site is pending from now on.
    pub(super) fn note(keys: &mut Keys, write: &CausalWrite) {
        let revision = write.revision;
        for effect in &write.effects {
            let Some(key) = effect.key().cloned() else { continue };
            let pending = keys.entry((write.keyspace, key)).or_default();
            match effect {
                Effect::Put { .. } | Effect::Delete { .. } | Effect::Expire { .. } => {
                    let revision = Some(revision);
                    *pending = Pending { values: revision, expiry: revision, ..Pending::default() };
                }
                Effect::Replace { .. } => {
                    let (values, expiry) = (Some(revision), pending.expiry);
                    *pending = Pending { values, expiry, ..Pending::default() };
                }
                Effect::SetExpiry { .. } => pending.expiry = Some(revision),
                Effect::Clear | Effect::Mark(_) => {}
                Effect::SetFields { fields, .. } => {
                    pending.string = Some(revision);
                    let names = fields.iter().map(|(name, _)| (name.clone(), revision));
                    pending.fields.extend(names);
                }
                Effect::DeleteFields { fields, .. } => {
                    pending.fields.extend(fields.iter().map(|name| (name.clone(), revision)));
                }
            }
        }
    }

    /// Of a key what was written up to a revision lies under what is imported now.
    pub(super) fn cover(keys: &mut Keys, keyspace: KeyspaceId, key: &Bytes, upto: Revision) {
        let at = (keyspace, key.clone());
        let Some(pending) = keys.get_mut(&at) else { return };
        let is_later = |revision: &Revision| *revision > upto;
        pending.values = pending.values.filter(is_later);
        pending.string = pending.string.filter(is_later);
        pending.expiry = pending.expiry.filter(is_later);
        pending.fields.retain(|_, revision| *revision > upto);
        if *pending == Pending::default() {
            keys.remove(&at);
        }
    }

    /// A write of this site is pending again, which others of later revisions may be, too.
    pub(super) fn note_again(keys: &mut Keys, write: &CausalWrite) {
        let revision = write.revision;
        let later = |known: &mut Option<Revision>| *known = (*known).max(Some(revision));
        for effect in &write.effects {
            let Some(key) = effect.key().cloned() else { continue };
            let pending = keys.entry((write.keyspace, key)).or_default();
            let mut field = |name: &Bytes| {
                let known = pending.fields.entry(name.clone()).or_default();
                *known = revision.max(*known);
            };
            match effect {
                Effect::Put { .. } | Effect::Delete { .. } | Effect::Expire { .. } => {
                    later(&mut pending.values);
                    later(&mut pending.expiry);
                }
                Effect::Replace { .. } => later(&mut pending.values),
                Effect::SetExpiry { .. } => later(&mut pending.expiry),
                Effect::Clear | Effect::Mark(_) => {}
                Effect::SetFields { fields, .. } => {
                    fields.iter().for_each(|(name, _)| field(name));
                    later(&mut pending.string);
                }
                Effect::DeleteFields { fields, .. } => fields.iter().for_each(field),
            }
        }
    }

    /// The pending write with the lowest revision has a position: what no later one assigns is
    /// ordered.
    pub(super) fn settle(keys: &mut Keys, write: &CausalWrite) {
        for effect in &write.effects {
            let Some(key) = effect.key().cloned() else { continue };
            let at = (write.keyspace, key);
            let Some(pending) = keys.get_mut(&at) else { continue };
            let is_later = |revision: &Revision| *revision > write.revision;
            pending.values = pending.values.filter(is_later);
            pending.string = pending.string.filter(is_later);
            pending.expiry = pending.expiry.filter(is_later);
            match effect {
                Effect::SetFields { fields, .. } => {
                    pending.settle_fields(fields.iter().map(|(name, _)| name), write.revision);
                }
                Effect::DeleteFields { fields, .. } => {
                    pending.settle_fields(fields.iter(), write.revision);
                }
                _ => {}
            }
            if *pending == Pending::default() {
                keys.remove(&at);
            }
        }
    }

    fn settle_fields<'a>(&mut self, names: impl Iterator<Item = &'a Bytes>, upto: Revision) {
        for name in names {
            if self.fields.get(name).is_some_and(|revision| *revision <= upto) {
                self.fields.remove(name);
            }
        }
    }

    /// The same with registers that are to stay as they are, too.
    pub(super) fn and(mut self, keeps: Option<&Registers>) -> Pending {
        let Some(Registers { values, string, fields, expiry }) = keeps else { return self };
        let above = |is_kept: &bool| is_kept.then_some(Revision(u64::MAX));
        self.values = self.values.max(above(values));
        self.string = self.string.max(above(string));
        self.expiry = self.expiry.max(above(expiry));
        self.fields.extend(fields.iter().map(|name| (name.clone(), Revision(u64::MAX))));
        self
    }

    /// Whether the string and all fields have a pending write.
    pub(super) fn has_values(&self) -> bool {
        self.values.is_some()
    }

    /// Whether neither the string nor a field has one.
    pub(super) fn has_no_value(&self) -> bool {
        self.values.is_none() && self.string.is_none() && self.fields.is_empty()
    }

    /// Whether its string has a pending write.
    pub(super) fn has_string(&self) -> bool {
        self.values.is_some() || self.string.is_some()
    }

    /// Whether a field has a pending write.
    pub(super) fn has_field(&self, name: &[u8]) -> bool {
        self.values.is_some() || self.fields.contains_key(name)
    }

    /// Whether its expiry has a pending write.
    pub(super) fn has_expiry(&self) -> bool {
        self.expiry.is_some()
    }
}
