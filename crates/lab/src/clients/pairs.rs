//! Pairs of keys: two keys of one slot that are written together and read together, each time in one
//! request that must be atomic.
//!
//! No other operation touches them, so both hold what one and the same write left there; the
//! verdict [`atomic`](crate::verdict::atomic) looks at that, beside what is judged of each key. What
//! a client draws for them is of a stream of its own.

use model::{Answer, Body, Bytes, Command, Condition, Expiry, KeyspaceId, Query};
use model::{ReadConsistency, RequestId, Step, Write};

use super::asking::{understood, unique_part};
use crate::history::Outcome;
use crate::random::Random;
use crate::workload::{Operation, Step as Act};

/// How many pairs there are in a keyspace.
const PAIRS: u64 = 4;
/// Of a thousand operations on pairs, how many read, and how many remove both keys.
const READS_PERMILLE: u64 = 550;
const DELETES_PERMILLE: u64 = 50;
/// Of a thousand requests, how many are transactions: others are commands of several keys.
const TRANSACTIONS_PERMILLE: u64 = 500;

/// An operation on a pair.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    /// What it is about, and the first key.
    pub(super) step: Act,
    /// How the second key is asked for.
    pub(super) second: Second,
}

/// The second key of an operation.
#[derive(Debug, Clone)]
pub(super) struct Second {
    /// The key.
    pub(super) key: String,
    /// Whether both are steps of a transaction.
    is_transaction: bool,
}

impl Pair {
    /// What a client does next with one of the pairs.
    pub(super) fn draw(random: &mut Random, value_bytes: usize) -> Pair {
        let pair = random.below(PAIRS);
        let drawn = random.below(1_000);
        let operation = match drawn {
            0..READS_PERMILLE => Operation::Get,
            _ if drawn < READS_PERMILLE + DELETES_PERMILLE => Operation::Delete,
            _ => Operation::Put { value_bytes },
        };
        let is_transaction = random.chance(TRANSACTIONS_PERMILLE);
        Pair {
            step: Act { key: format!("{{p{pair}}}1"), operation },
            second: Second { key: format!("{{p{pair}}}2"), is_transaction },
        }
    }
}

/// What both keys hold afterwards.
pub(super) enum Left {
    /// What they do now: it is a read.
    Same,
    Nothing,
    Value(Bytes, Expiry),
}

impl Second {
    /// With its keyspace's prefix.
    pub(super) fn under(self, prefix: &str) -> Second {
        Second { key: format!("{prefix}{}", self.key), ..self }
    }

    /// The request about both keys.
    pub(super) fn body(
        &self,
        first: &str,
        keyspace: KeyspaceId,
        left: Left,
        consistency: ReadConsistency,
        request: Option<RequestId>,
    ) -> Body {
        let keys = || [first, &self.key].map(|key| Bytes::from(key.to_owned()));
        let write = match &left {
            Left::Same if !self.is_transaction || consistency != ReadConsistency::Linearizable => {
                let query = Query::GetMany { keys: keys().to_vec() };
                return Body::Read { keyspace, query, consistency };
            }
            Left::Nothing if !self.is_transaction => Write::Delete { keys: keys().to_vec() },
            Left::Value(value, Expiry::Never) if !self.is_transaction => {
                let pairs = keys().map(|key| (key, value.clone())).to_vec();
                Write::PutMany { pairs, if_all_absent: false }
            }
            left => {
                let step = |key: Bytes| match left {
                    Left::Same => Step::Read(Query::Get { key }),
                    Left::Nothing => Step::Write(Write::Delete { keys: vec![key] }),
                    Left::Value(value, expiry) => Step::Write(Write::Put {
                        key,
                        value: value.clone(),
                        condition: Condition::Always,
                        expiry: *expiry,
                        return_old: false,
                    }),
                };
                let steps = keys().map(step).to_vec();
                let guards = Vec::new();
                return Body::Write(Command::Transaction { keyspace, guards, steps, request });
            }
        };
        Body::Write(Command::Write { keyspace, write, request })
    }
}

/// What an answer shows of each of two keys; `None`: it is no answer to a request about two.
pub(super) fn understood_each(answer: Answer, is_delete: bool) -> Option<(Outcome, Outcome)> {
    let written = || Outcome::Written { version: None };
    match answer {
        Answer::Values(values) => {
            let value = |value: Option<Bytes>| Outcome::Value {
                value: value.as_deref().map(unique_part),
                version: None,
            };
            let mut values = values.into_iter().map(value);
            Some((values.next()?, values.next()?))
        }
        Answer::Steps(steps) => {
            let step = |step| match step {
                Ok(Answer::Integer(_)) if is_delete => Some(written()),
                Ok(answer) => Some(understood(answer)),
                Err(_) => None,
            };
            let mut steps = steps.into_iter().map(step);
            Some((steps.next()??, steps.next()??))
        }
        Answer::Flag(true) | Answer::Integer(_) => Some((written(), written())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Slot;

    #[test]
    fn both_keys_of_a_pair_are_in_one_slot_and_of_one_group() {
        let mut random = Random::new(1);
        let mut pairs = std::collections::BTreeSet::new();
        for _ in 0..1_000 {
            let Pair { step, second } = Pair::draw(&mut random, 16);
            let keys = [step.key, second.key].map(|key| format!("car:{key}"));
            let slots = keys.each_ref().map(|key| Slot::of_key(key.as_bytes()));
            assert!(keys[0] != keys[1] && slots[0] == slots[1], "{keys:?}");
            assert_eq!(model::tag(keys[0].as_bytes()), model::tag(keys[1].as_bytes()));
            pairs.insert(keys);
        }
        assert_eq!(pairs.len() as u64, PAIRS);
    }

    #[test]
    fn an_answer_shows_what_both_keys_held() {
        let value = |text: &str| Outcome::Value { value: Some(text.to_owned()), version: None };
        let values = Answer::Values(vec![Some("a.1 ....".into()), None]);
        let nothing = Outcome::Value { value: None, version: None };
        assert_eq!(understood_each(values, false), Some((value("a.1"), nothing)));
        let written = Outcome::Written { version: None };
        let both = Some((written.clone(), written));
        let removed = || Ok(Answer::Integer(1));
        assert_eq!(understood_each(Answer::Steps(vec![removed(), removed()]), true), both);
        assert_eq!(understood_each(Answer::Integer(2), true), both);
        assert_eq!(understood_each(Answer::Flag(true), false), both);
        assert_eq!(understood_each(Answer::Values(Vec::new()), false), None);
    }
}
