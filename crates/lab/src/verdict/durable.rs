//! What was acknowledged is there in the end.
//!
//! **Judged**: of each key, the last answered read, or, where the history has a `healed` mark, the
//! last one called after it. It may lose nothing that had been acknowledged before it was called:
//!
//! - What it found must come from a write `s`, acknowledged or not, such that no acknowledged write
//!   was called after `s` had returned and had itself returned before the read was called. Nothing
//!   may be found if it comes from a delete in that way, or if no write had been acknowledged.
//! - For a key that is only added to and read, the number must be at least the sum of the adds that
//!   were acknowledged before the read was called, and at most that sum with all adds that may have
//!   happened besides (unanswered ones, and those under way during the read); with negative ones it
//!   is the other way around. Nothing found counts as 0.
//!
//! For the last read this is what Lamport calls *regular* (*On interprocess communication*, 1986):
//! an acknowledged write may only be missing if a later or concurrent one took its place. It asks
//! less than a linearizable history keeps, so it can be asked of stores that promise less. Sets and
//! their lost elements are judged in this way by Jepsen; the counter's bounds are those of its
//! counter checker.
//!
//! Keys that no operation read in the end are not judged, so the writer of a history reads all keys
//! in the end. A key that was both added to and written otherwise cannot be judged. Counted are the
//! keys.

use std::collections::BTreeMap;

use super::{Verdict, Violation, answered, describe, failed, shown};
use crate::history::{Action, History, MarkKind, Operation, Outcome, Promise};

/// Judges a history; counts the keys that were read in the end.
#[must_use]
pub fn judge(history: &History) -> Verdict {
    let healed = history.marks.iter().filter(|mark| mark.kind == MarkKind::Healed);
    let from_us = healed.map(|mark| mark.at_us).max().unwrap_or(0);
    let mut keys: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, operation) in history.operations.iter().enumerate() {
        keys.entry(&operation.key).or_default().push(index);
    }
    let (mut examined, mut mixed) = (0, None);
    for (name, operations) in &keys {
        let last = operations.iter().copied().filter(|&index| {
            let read = &history.operations[index];
            let is_read = read.action == Action::Get && answered(read) && !read.stale;
            is_read && read.call_us >= from_us
        });
        let Some(last) = last.max_by_key(|&index| history.operations[index].call_us) else {
            continue;
        };
        let key = Key { history, name, operations, last };
        let lost = match key.kind() {
            Kind::Register => key.lost_write(),
            Kind::Counter => key.lost_count(),
            Kind::Mixed => {
                mixed = mixed.or(Some(name));
                continue;
            }
        };
        if let Some(violation) = lost {
            return Verdict::Broken(violation);
        }
        examined += 1;
    }
    if let Some(name) = mixed {
        let why = format!("key {name:?} was both added to and written otherwise");
        return Verdict::Undecided { why };
    }
    match examined {
        0 => Verdict::Undecided { why: "no key was read in the end".to_owned() },
        examined => Verdict::Holds { examined },
    }
}

enum Kind {
    Register,
    Counter,
    Mixed,
}

struct Key<'h> {
    history: &'h History,
    name: &'h str,
    operations: &'h [usize],
    last: usize,
}

impl<'h> Key<'h> {
    fn operation(&self, index: usize) -> &'h Operation {
        &self.history.operations[index]
    }

    /// The operations that may have changed it, in order of their calls.
    fn writes(&self) -> Vec<usize> {
        let may = |&index: &usize| {
            let operation = self.operation(index);
            let had_none = failed(operation) || operation.outcome == Outcome::Conflict;
            !had_none && operation.action != Action::Get
        };
        let mut writes: Vec<usize> = self.operations.iter().copied().filter(may).collect();
        writes.sort_by_key(|&index| self.operation(index).call_us);
        writes
    }

    fn kind(&self) -> Kind {
        let writes = self.writes();
        let is_add = |&index: &usize| matches!(self.operation(index).action, Action::Add { .. });
        match writes.iter().filter(|index| is_add(index)).count() {
            0 => Kind::Register,
            adds if adds == writes.len() => Kind::Counter,
            _ => Kind::Mixed,
        }
    }

    fn found(&self) -> Option<&'h str> {
        match &self.operation(self.last).outcome {
            Outcome::Value { value, .. } => value.as_deref(),
            _ => None,
        }
    }

    fn lost_write(&self) -> Option<Violation> {
        let (read, writes, found) = (self.operation(self.last), self.writes(), self.found());
        let overdue = |index: &usize| {
            let write = self.operation(*index);
            answered(write) && write.return_us < Some(read.call_us)
        };
        // Of the writes that had certainly happened, the one that was called last.
        let newest = writes.iter().rev().find(|index| overdue(index)).copied()?;
        let newest_call_us = self.operation(newest).call_us;
        let comes_from = |index: &usize| {
            let write = self.operation(*index);
            let left = match &write.action {
                Action::Put { value } | Action::CompareAndSet { value, .. } => Some(value.as_str()),
                _ => None,
            };
            left == found && Some(write.call_us) <= read.return_us
        };
        let sources: Vec<usize> = writes.iter().copied().filter(comes_from).collect();
        let taken_over = |&index: &usize| {
            let source = self.operation(index);
            answered(source) && source.return_us < Some(newest_call_us)
        };
        if sources.iter().any(|source| !taken_over(source)) {
            return None;
        }
        let source = sources.last();
        let origin = match source {
            Some(&index) => format!("which comes from {}", describe(self.operation(index))),
            None if found.is_none() => "and no client had deleted it".to_owned(),
            None => "which no client had written".to_owned(),
        };
        let what = format!(
            "key {:?} lost an acknowledged write: {}. In the end {} found {}, {origin}.",
            self.name,
            describe(self.operation(newest)),
            describe(read),
            shown(found),
        );
        let shows = source.copied().into_iter().chain([newest, self.last]);
        Some(self.violation(what, shows.collect()))
    }

    fn lost_count(&self) -> Option<Violation> {
        let read = self.operation(self.last);
        // Sums of 64-bit numbers, of which there are fewer than 2⁶⁴.
        let (mut low, mut high, mut sum, mut certain) = (0_i128, 0_i128, 0_i128, 0);
        for index in self.writes() {
            let add = self.operation(index);
            let Action::Add { delta } = add.action else { continue };
            let delta = i128::from(delta);
            if answered(add) && add.return_us < Some(read.call_us) {
                certain += 1;
                sum += delta;
            } else if Some(add.call_us) <= read.return_us {
                low += delta.min(0);
                high += delta.max(0);
            }
        }
        let (low, high) = (sum + low, sum + high);
        let number = match self.found() {
            None => Some(0),
            Some(text) => text.parse::<i64>().ok().map(i128::from),
        };
        if number.is_some_and(|number| low <= number && number <= high) {
            return None;
        }
        let what = format!(
            "key {:?} must count from {low} to {high} in the end: {certain} adds were acknowledged, \
             together {sum}. But {} found {}.",
            self.name,
            describe(read),
            shown(self.found()),
        );
        Some(self.violation(what, vec![self.last]))
    }

    fn violation(&self, what: String, mut operations: Vec<usize>) -> Violation {
        operations.sort_unstable();
        Violation {
            promise: Promise::Durable,
            key: Some(self.name.to_owned()),
            what,
            operations,
            requests: Vec::new(),
            at_us: self.operation(self.last).return_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Mark;
    use crate::random::Random;
    use crate::verdict::made::{self, Size};

    fn verdict(lines: &str) -> Verdict {
        judge(&made::history(lines))
    }

    #[track_caller]
    fn holds(lines: &str) {
        assert_eq!(verdict(lines), Verdict::Holds { examined: 1 });
    }

    #[track_caller]
    fn broken(lines: &str) -> Violation {
        match verdict(lines) {
            Verdict::Broken(violation) => violation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_acknowledged_write_or_a_later_one_is_there() {
        holds("a x 0 1 get none");
        holds("a x 0 1 put 1 ok\n a x 2 3 put 2 ok\n b x 4 5 get 2");
        // Writes at once, in either order.
        holds("a x 0 3 put 1 ok\n b x 2 5 put 2 ok\n b x 6 7 get 1");
        // When, or whether, the unanswered one happened is unknown.
        holds("a x 0 1 put 1 unknown\n a x 2 3 put 2 ok\n b x 4 5 get 1");
        holds("a x 0 1 put 1 unknown\n a x 2 3 put 2 ok\n b x 4 5 get 2");
        holds("a x 0 1 put 1 ok\n a x 2 3 delete unknown\n b x 4 5 get none");
        holds("a x 0 1 put 1 ok\n a x 2 3 delete ok\n b x 4 5 get none");
        // A write under way during the read.
        holds("a x 0 1 put 1 ok\n a x 4 7 put 2 ok\n b x 6 9 get 1");
        holds("a x 0 1 put 1 ok\n a x 4 7 put 2 ok\n b x 6 9 get 2");
        // Only the last read counts, and its value may have been written twice.
        holds("a x 0 1 put 1 ok\n b x 2 3 get none\n b x 4 5 get 1");
        holds("a x 0 1 put 1 ok\n a x 2 3 put 2 ok\n a x 4 5 put 1 ok\n b x 6 7 get 1");
        holds("a x 0 1 cas none 1 ok\n a x 2 3 cas none 2 conflict\n b x 4 5 get 1");
    }

    #[test]
    fn a_lost_write_is_found() {
        let violation = broken("a x 0 1 put 1 ok\n a x 2 3 put 2 ok\n b x 4 5 get 1");
        assert_eq!((violation.operations, violation.at_us), (vec![0, 1, 2], Some(5)));
        assert!(
            violation.what.contains("lost an acknowledged write: a put \"2\""),
            "{}",
            violation.what
        );
        broken("a x 0 1 put 1 ok\n b x 4 5 get none");
        broken("a x 0 1 delete ok\n a x 2 3 put 1 ok\n b x 4 5 get none");
        broken("a x 0 1 put 1 ok\n a x 2 3 delete ok\n b x 4 5 get 1");
        broken("a x 0 1 put 1 ok\n b x 4 5 get 7");
        broken("a x 0 1 put 1 ok\n a x 2 3 put 2 failed\n b x 4 5 get 2");
        broken("a x 0 1 put 1 ok\n a x 6 7 put 2 ok\n b x 4 5 get 2");
        broken("a x 0 1 put 1 ok\n a x 2 3 cas 1 2 ok\n b x 4 5 get 1");
    }

    #[test]
    fn a_counter_is_within_its_bounds() {
        let adds = "a x 0 1 add 1 = 1\n a x 2 3 add 2 = 3\n a x 4 5 add 4 unknown\n a x 6 7 add -1 unknown\n a x 7 8 add 9 failed\n";
        for found in ["2", "3", "6", "7"] {
            holds(&format!("{adds} b x 10 11 get {found}"));
        }
        for found in ["1", "8", "none", "many"] {
            broken(&format!("{adds} b x 10 11 get {found}"));
        }
        holds("a x 0 9 add 5 = 5\n b x 2 3 get none");
        holds("a x 0 9 add 5 = 5\n b x 2 3 get 5");
        broken("a x 9 10 add 5 = 5\n b x 2 3 get 5");
    }

    #[test]
    fn what_cannot_be_judged_is_said() {
        assert!(matches!(verdict("a x 0 1 put 1 ok"), Verdict::Undecided { .. }));
        assert!(matches!(
            verdict("a x 0 1 put 1 ok\n a x 2 3 get failed"),
            Verdict::Undecided { .. }
        ));
        let mixed = "a x 0 1 put 1 ok\n a x 2 3 add 1 = 2\n a x 4 5 get 2";
        assert!(matches!(verdict(mixed), Verdict::Undecided { .. }));
        let mut stale = made::history("a x 0 1 put 1 ok\n a x 4 5 get none");
        stale.operations[1].stale = true;
        assert!(matches!(judge(&stale), Verdict::Undecided { .. }));
    }

    #[test]
    fn after_a_healed_mark_only_reads_after_it_count() {
        let mut history = made::history("a x 0 1 put 1 ok\n b x 4 5 get none");
        let mark = |at_us| Mark { at_us, kind: MarkKind::Healed, text: String::new() };
        history.marks = vec![mark(3), mark(6)];
        assert!(matches!(judge(&history), Verdict::Undecided { .. }));
        history.marks.pop();
        assert!(matches!(judge(&history), Verdict::Broken(_)));
    }

    /// What a right store wrote, and a read of each key in the end; then the same with what the
    /// last acknowledged write left taken away.
    #[test]
    fn a_right_store_loses_nothing_and_one_that_does_is_found() {
        for (seed, mix) in (0..)
            .zip([made::REGISTER, made::DELETES, made::CAS, made::COUNTER].iter().cycle().take(80))
        {
            let size = Size { clients: 1 + seed % 9, keys: 3, operations: 200 };
            let mut history = made::linearizable(seed, size, *mix);
            assert!(matches!(judge(&history), Verdict::Holds { examined: 3 }), "seed {seed}");
            let mut random = Random::stream(seed, "lose", 0);
            let key = format!("k{}", random.below(3));
            let end_us = history.operations.iter().filter_map(|o| o.return_us).max().unwrap() + 1;
            let last_value = match mix.add {
                0 => "never-written".to_owned(),
                // One of the acknowledged adds is missing, and no unanswered one makes up for it.
                _ => {
                    let unknown = |o: &Operation| matches!(o.outcome, Outcome::Unknown { .. });
                    history.operations.retain(|o| o.key != key || !unknown(o));
                    let adds = history.operations.iter().filter(|o| o.key == key);
                    let sum = adds.filter(|o| answered(o)).map(|o| match o.action {
                        Action::Add { delta } => delta,
                        _ => 0,
                    });
                    (sum.sum::<i64>() - 1).to_string()
                }
            };
            let line = format!("z {key} {end_us} {} get {last_value}", end_us + 1);
            history.operations.extend(made::history(&line).operations);
            let Verdict::Broken(violation) = judge(&history) else {
                panic!("seed {seed}: not found")
            };
            assert_eq!(violation.key, Some(key));
        }
    }
}
