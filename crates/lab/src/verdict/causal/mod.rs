//! No client sees an effect before its cause.
//!
//! A read is caused by the write whose value it found; an operation of a session is caused by all
//! that the session did before. **Judged** is *causal consistency* in the sense of Bouajjani, Enea,
//! Guerraoui and Hamza (*On verifying causal consistency*, 2017): each read can be explained by
//! some order of the writes that caused it. They show that for histories with distinct values this
//! is so if and only if none of four patterns is there:
//!
//! | pattern | what is seen |
//! | --- | --- |
//! | thin-air read | a value that no operation wrote |
//! | cyclic causes | operations of which each causes the next, and the last the first |
//! | lost cause | nothing is found, though a write of the key is among the causes |
//! | old cause | a value is found, though a write of the key that was itself caused by that value's write is among the causes |
//!
//! Where all acknowledged writes carry versions, what converges is judged as well: versions must
//! not contradict causes. A write's version is later than those of all writes of its key that
//! caused it, and a read finds none that is older than one of its causes. With
//! [`Options::causal_convergence`], a history without versions is searched for their fifth pattern,
//! cyclic conflicts: no order at all of each key's writes could be that of all replicas. (The paper
//! calls that CCv instead of CC.)
//!
//! What each operation was caused by is kept as a vector of one number for each session, how far it
//! was caused by it, since a session's operations cause one another.
//!
//! # What is done about the rest
//!
//! - An *unanswered* write that no operation read is left out. One that was read happened after its
//!   call, at an unknown time: it is caused by its session and causes only the operations that read
//!   it.
//! - A *delete* is a write. Which delete a read found that found nothing is known from its version,
//!   or not: then it is enough that some delete, or the beginning, can explain it.
//! - A *compare-and-set* that succeeded is a read and a write; one that found something else is
//!   passed over.
//! - Keys that were added to, and keys to which one value was written twice, are passed over, and
//!   then nothing is decided unless the rest shows a violation.
//!
//! Counted are the reads and writes.

mod causes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use self::causes::Causes;
use super::session::Sessions;
use super::{Options, Verdict, Violation, answered, describe, failed};
use crate::history::{Action, History, Outcome, Promise};

/// Judges a history; counts the reads and writes.
#[must_use]
pub fn judge(history: &History, options: &Options) -> Verdict {
    let verdict = Sessions::of(history).and_then(|sessions| {
        let facts = Facts::of(history);
        let found = match facts.thin_air {
            Some(read) => Err(facts.told_thin_air(history, read)),
            None => Causes::of(history, &sessions, &facts)?.judge(options.causal_convergence),
        };
        match (found, &facts.problem) {
            (Err(violation), _) => Ok(Verdict::Broken(violation)),
            (Ok(()), Some(why)) => Err(why.clone()),
            (Ok(()), None) => Ok(Verdict::Holds { examined: facts.examined }),
        }
    });
    verdict.unwrap_or_else(|why| Verdict::Undecided { why })
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// What this operation wrote.
    Write(usize),
    /// Nothing, and what left it is unknown.
    Nothing,
}

/// What an operation did, as far as it matters here.
#[derive(Debug, Clone, Copy, Default)]
struct Fact {
    key: usize,
    /// What it read.
    source: Option<Source>,
    /// Whether it wrote.
    writes: bool,
    /// Whether it left nothing.
    deletes: bool,
    /// Whether it happened at an unknown time.
    loose: bool,
    version: Option<u64>,
}

/// What all operations did.
#[derive(Debug, Default)]
struct Facts {
    /// By operation; none for what is passed over.
    facts: Vec<Option<Fact>>,
    /// By key: whether it may have been deleted at an unknown time.
    loose_delete: Vec<bool>,
    /// A read that found what no operation wrote.
    thin_air: Option<usize>,
    /// Whether all acknowledged writes have versions of their own.
    versions: bool,
    problem: Option<String>,
    examined: u64,
}

impl Facts {
    fn of(history: &History) -> Facts {
        let mut keys: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, operation) in history.operations.iter().enumerate() {
            keys.entry(&operation.key).or_default().push(index);
        }
        let mut facts = Facts {
            facts: vec![None; history.operations.len()],
            loose_delete: vec![false; keys.len()],
            versions: true,
            ..Facts::default()
        };
        for (key, (name, operations)) in keys.iter().enumerate() {
            facts.take_up(history, key, name, operations);
        }
        facts.examined = facts.facts.iter().flatten().count() as u64;
        facts
    }

    fn take_up(&mut self, history: &History, key: usize, name: &str, operations: &[usize]) {
        let happened = |&index: &usize| {
            let operation = &history.operations[index];
            !failed(operation) && operation.outcome != Outcome::Conflict
        };
        let happened: Vec<usize> = operations.iter().copied().filter(happened).collect();
        let mut writers: HashMap<&str, usize> = HashMap::new();
        let mut deleters: HashMap<u64, usize> = HashMap::new();
        let mut versions: HashMap<u64, usize> = HashMap::new();
        for &index in &happened {
            let operation = &history.operations[index];
            let version = version(&operation.outcome).filter(|_| answered(operation));
            let value = match &operation.action {
                Action::Get => continue,
                Action::Add { .. } => {
                    let why = || format!("key {name:?} was added to, and numbers repeat");
                    self.problem.get_or_insert_with(why);
                    return;
                }
                Action::Put { value } | Action::CompareAndSet { value, .. } => Some(value),
                Action::Delete => None,
            };
            if let Some(other) = value.and_then(|value| writers.insert(value, index)) {
                let other = describe(&history.operations[other]);
                let why = || {
                    format!(
                        "key {name:?} got one value twice: {other}, and {}",
                        describe(operation)
                    )
                };
                self.problem.get_or_insert_with(why);
                return;
            }
            if answered(operation) {
                let unique =
                    version.is_some_and(|version| versions.insert(version, index).is_none());
                self.versions &= unique;
                if let (None, Some(version)) = (value, version) {
                    deleters.insert(version, index);
                }
            } else {
                self.loose_delete[key] |= value.is_none();
            }
        }
        let mut found = Vec::new();
        for &index in &happened {
            let operation = &history.operations[index];
            if operation.stale || !answered(operation) {
                continue;
            }
            let (value, version) = match (&operation.action, &operation.outcome) {
                (_, Outcome::Value { value, version }) => (value, *version),
                (Action::CompareAndSet { expected, .. }, _) => (expected, None),
                _ => continue,
            };
            let source = match value {
                Some(value) => writers.get(value.as_str()).copied(),
                None => version.and_then(|version| deleters.get(&version).copied()),
            };
            if value.is_some() && source.is_none() {
                self.thin_air = self.thin_air.or(Some(index));
            }
            found.push((index, source.map_or(Source::Nothing, Source::Write)));
        }
        let fact = Fact { key, ..Fact::default() };
        for &(index, source) in &found {
            self.facts[index] = Some(Fact { source: Some(source), ..fact });
        }
        let seen = found.iter().filter_map(|&(_, source)| match source {
            Source::Write(write) => Some(write),
            Source::Nothing => None,
        });
        let certain =
            happened.iter().copied().filter(|&index| answered(&history.operations[index]));
        for index in certain.chain(seen) {
            let operation = &history.operations[index];
            if operation.action == Action::Get {
                continue;
            }
            let fact = self.facts[index].get_or_insert(fact);
            fact.writes = true;
            fact.deletes = operation.action == Action::Delete;
            fact.loose = !answered(operation);
            fact.version = version(&operation.outcome).filter(|_| !fact.loose);
        }
    }

    fn told_thin_air(&self, history: &History, read: usize) -> Violation {
        let operation = &history.operations[read];
        let what = format!("no client wrote what was found: {}.", describe(operation));
        violation(history, what, vec![read], read)
    }
}

fn version(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Value { version, .. } | Outcome::Written { version } => *version,
        _ => None,
    }
}

fn violation(history: &History, what: String, mut operations: Vec<usize>, at: usize) -> Violation {
    operations.sort_unstable();
    operations.dedup();
    let seen = &history.operations[at];
    Violation {
        promise: Promise::Causal,
        key: Some(seen.key.clone()),
        what,
        operations,
        requests: Vec::new(),
        at_us: seen.return_us.or(Some(seen.call_us)),
    }
}
