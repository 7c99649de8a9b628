//! Which assignments a write is. What depends on what it overwrites is none: another site that
//! orders it behind other writes would make something else of it. Where the keyspace lets this site
//! decide, see [`super::decided`].

use crate::machine::keys::{check_key, check_value};
use model::{Bytes, Condition, Effect, Expiry, ExpiryCondition, Refusal, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The assignments of a write at a log time, in order; a write of nothing has none.
///
/// # Errors
/// What a causal keyspace does not do, and what is too long.
pub(super) fn effects_of(write: &Write, now_ms: u64) -> Result<Vec<Effect>, Refusal> {
    let cannot = |what| Err(Refusal::NotCausal(what));
    let put = |key: &Bytes, value: &Bytes| {
        check_key(key)?;
        check_value(value.len())?;
        Ok(Effect::Put { key: key.clone(), value: value.clone() })
    };
    match write {
        Write::Put { condition, .. } if *condition != Condition::Always => cannot(
            "put a key only if it is there, absent or of some version unless its rmw is local",
        ),
        Write::Put { return_old: true, .. } | Write::Take { .. } => {
            cannot("answer with the value that a write replaces unless its rmw is local")
        }
        Write::Put { key, value, expiry: Expiry::Keep, .. } => {
            check_key(key)?;
            check_value(value.len())?;
            Ok(vec![Effect::Replace { key: key.clone(), value: value.clone() }])
        }
        Write::Put { key, value, expiry, .. } => {
            let put = put(key, value)?;
            Ok(expiring(put, *expiry, now_ms))
        }
        Write::PutMany { if_all_absent: true, .. } | Write::HashSetIfAbsent { .. } => {
            cannot("write only what is absent unless its rmw is local")
        }
        Write::PutMany { pairs, .. } => pairs.iter().map(|(key, value)| put(key, value)).collect(),
        Write::Delete { keys } => {
            let delete = |key: &Bytes| check_key(key).map(|()| Effect::Delete { key: key.clone() });
            keys.iter().map(delete).collect()
        }
        Write::HashSet { key, fields } => {
            check_key(key)?;
            // Of a field that is named twice the last value stays.
            let fields: BTreeMap<_, _> = fields.iter().cloned().collect();
            check_value(fields.iter().map(|(name, value)| name.len() + value.len()).sum())?;
            let fields: Vec<_> = fields.into_iter().collect();
            let is_nothing = fields.is_empty();
            let set = Effect::SetFields { key: key.clone(), fields };
            Ok(if is_nothing { Vec::new() } else { vec![set] })
        }
        Write::HashDelete { key, fields } => {
            check_key(key)?;
            let fields: BTreeSet<_> = fields.iter().cloned().collect();
            let fields: Vec<_> = fields.into_iter().collect();
            let is_nothing = fields.is_empty();
            let delete = Effect::DeleteFields { key: key.clone(), fields };
            Ok(if is_nothing { Vec::new() } else { vec![delete] })
        }
        Write::Append { .. } => cannot("append to a value unless its rmw is local"),
        Write::Add { .. } | Write::HashAdd { .. } => {
            cannot("add to a value unless its rmw is local")
        }
        Write::DeleteIf { .. } => {
            cannot("delete a key only if it has some version unless its rmw is local")
        }
        Write::SetExpiry { condition, .. } if *condition != ExpiryCondition::Always => cannot(
            "set an expiry only if there is one, none, a later or an earlier one unless its rmw is local",
        ),
        Write::GetAndExpire { key, expiry } | Write::SetExpiry { key, expiry, .. } => {
            check_key(key)?;
            Ok(set_expiry(key, *expiry, now_ms).into_iter().collect())
        }
        Write::Clear => cannot("be cleared in a transaction: its root does that"),
        Write::ClearAll => cannot("be cleared with others at once: clear each keyspace"),
    }
}

/// The moment that an expiry names; `None`: none. Other sites and the root compare it with their
/// own log times.
pub(super) fn moment(expiry: Expiry, now_ms: u64) -> Option<u64> {
    match expiry {
        Expiry::Never | Expiry::Keep => None,
        Expiry::AfterMs(ms) => Some(now_ms.saturating_add(ms)),
        Expiry::AtMs(ms) | Expiry::AtLogMs(ms) => Some(ms),
    }
}

/// A put, and when its key expires. A moment that has passed removes the key instead.
pub(super) fn expiring(put: Effect, expiry: Expiry, now_ms: u64) -> Vec<Effect> {
    let Some(key) = put.key().cloned() else { return vec![put] };
    match moment(expiry, now_ms) {
        None => vec![put],
        Some(ms) if ms <= now_ms => vec![Effect::Delete { key }],
        at_ms => vec![put, Effect::SetExpiry { key, at_ms }],
    }
}

/// A key's expiry, from here on. A moment that has passed removes the key.
pub(super) fn set_expiry(key: &Bytes, expiry: Expiry, now_ms: u64) -> Option<Effect> {
    let key = key.clone();
    match (expiry, moment(expiry, now_ms)) {
        (Expiry::Keep, _) => None,
        (_, Some(ms)) if ms <= now_ms => Some(Effect::Delete { key }),
        (_, at_ms) => Some(Effect::SetExpiry { key, at_ms }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Revision;

    const NOW_MS: u64 = 1_000;

    fn effects_of(write: &Write) -> Result<Vec<Effect>, Refusal> {
        super::effects_of(write, NOW_MS)
    }

    #[test]
    fn an_expiry_is_an_assignment_of_a_moment() {
        let key = Bytes::from("k");
        let put_of = || Effect::Put { key: key.clone(), value: "v".into() };
        let set = |at_ms| Effect::SetExpiry { key: key.clone(), at_ms };
        let delete = || Effect::Delete { key: key.clone() };
        for (expiry, expected) in [
            (Expiry::AfterMs(5), vec![put_of(), set(Some(1_005))]),
            (Expiry::AtLogMs(1_001), vec![put_of(), set(Some(1_001))]),
            (Expiry::AtLogMs(1_000), vec![delete()]),
            (Expiry::Keep, vec![Effect::Replace { key: key.clone(), value: "v".into() }]),
        ] {
            assert_eq!(effects_of(&put(Condition::Always, expiry, false)), Ok(expected));
        }
        for (expiry, expected) in [
            (Expiry::AfterMs(5), vec![set(Some(1_005))]),
            (Expiry::AfterMs(0), vec![delete()]),
            (Expiry::Never, vec![set(None)]),
            (Expiry::Keep, vec![]),
        ] {
            let (key, condition) = (key.clone(), ExpiryCondition::Always);
            let get = Write::GetAndExpire { key: key.clone(), expiry };
            assert_eq!(effects_of(&get), Ok(expected.clone()));
            let set = Write::SetExpiry { key, expiry, condition };
            assert_eq!(effects_of(&set), Ok(expected));
        }
    }

    fn put(condition: Condition, expiry: Expiry, return_old: bool) -> Write {
        Write::Put { key: "k".into(), value: "v".into(), condition, expiry, return_old }
    }

    #[test]
    fn writes_are_assignments() {
        let (key, value) = (Bytes::from("k"), Bytes::from("v"));
        let of_put = effects_of(&put(Condition::Always, Expiry::Never, false));
        assert_eq!(of_put, Ok(vec![Effect::Put { key: key.clone(), value: value.clone() }]));
        let pairs = vec![(key.clone(), value.clone()), (value.clone(), key.clone())];
        let many = effects_of(&Write::PutMany { pairs: pairs.clone(), if_all_absent: false });
        let each = pairs.into_iter().map(|(key, value)| Effect::Put { key, value });
        assert_eq!(many, Ok(each.collect()));
        let delete = effects_of(&Write::Delete { keys: vec![key.clone()] });
        assert_eq!(delete, Ok(vec![Effect::Delete { key: key.clone() }]));
        let fields = vec![(value.clone(), key.clone()), (value.clone(), value.clone())];
        let set = effects_of(&Write::HashSet { key: key.clone(), fields });
        let fields = vec![(value.clone(), value.clone())];
        assert_eq!(set, Ok(vec![Effect::SetFields { key: key.clone(), fields }]), "each once");
        let names = vec![value.clone(), key.clone(), value.clone()];
        let delete = effects_of(&Write::HashDelete { key: key.clone(), fields: names });
        let fields = vec![key.clone(), value];
        assert_eq!(delete, Ok(vec![Effect::DeleteFields { key: key.clone(), fields }]));
        assert_eq!(effects_of(&Write::HashSet { key, fields: vec![] }), Ok(vec![]));
    }

    #[test]
    fn what_reads_what_it_overwrites_is_refused() {
        let key = || Bytes::from("k");
        let writes = [
            put(Condition::IfAbsent, Expiry::Never, false),
            put(Condition::IfPresent, Expiry::Never, false),
            put(Condition::IfVersion(Revision(1)), Expiry::Never, false),
            put(Condition::Always, Expiry::Never, true),
            Write::PutMany { pairs: vec![], if_all_absent: true },
            Write::Append { key: key(), suffix: key() },
            Write::Add { key: key(), delta: 1 },
            Write::DeleteIf { key: key(), version: Revision(1) },
            Write::Take { key: key() },
            Write::SetExpiry {
                key: key(),
                expiry: Expiry::AfterMs(1),
                condition: ExpiryCondition::IfNone,
            },
            Write::HashSetIfAbsent { key: key(), field: key(), value: key() },
            Write::HashAdd { key: key(), field: key(), delta: 1 },
            Write::Clear,
            Write::ClearAll,
        ];
        for write in writes {
            assert!(matches!(effects_of(&write), Err(Refusal::NotCausal(_))), "{write:?}");
        }
    }
}
