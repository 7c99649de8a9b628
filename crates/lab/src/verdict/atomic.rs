//! What is written together is read together.
//!
//! **Judged**: keys that are only ever written by requests that write all of them (operations with
//! the same number in [`together`](Operation::together)). Every answered request that reads several
//! of them finds at each what one and the same request left there, or nothing at any. The opposite
//! is a *fractured read* (Bailis, Fekete, Ghodsi, Hellerstein and Stoica, *Scalable atomic
//! visibility with RAMP transactions*, 2014). That each key is linearizable by itself does not
//! exclude it: while two writes are under way, or where the outcome of one is unknown, either value
//! is right at either key. That both hold makes these keys linearizable as one.
//!
//! **With a site that was lost** ([`Lost`]) the rest of a write that was declared lost may be there:
//! a mirror that is behind is of no single moment. Not so if the line states that requests were lost
//! whole. So a read may find different writes if one of
//! them was declared lost, the loss was over when the read was called, and no write of these keys
//! was called after that, and either found or acknowledged before the read was called. What such a
//! write leaves is whole again.
//!
//! Values should be unique: where several requests put the same one, a read may have found any. Keys
//! that are written otherwise too are left out, and so are stale reads. Counted are the requests
//! that read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Verdict, Violation, answered, failed, shown};
use crate::history::{Action, History, Lost, Operation, Outcome, Promise};

/// Judges a history, with what was declared lost; counts the requests that read several keys.
#[must_use]
pub fn judge(history: &History) -> Verdict {
    let all = Requests::of(history);
    let mut examined = 0;
    for reads in all.by_number.values() {
        for (keys, found) in all.found(reads) {
            match all.torn(keys, &found) {
                None => examined += 1,
                Some(_) if found.iter().any(|read| all.is_lost(read)) => {}
                Some(of) if all.is_rest_of_lost(keys, &found, &of) => examined += 1,
                Some(of) => return Verdict::Broken(all.violation(&found, &of)),
            }
        }
    }
    match examined {
        0 => Verdict::Undecided {
            why: "no request read several keys that are written together".to_owned(),
        },
        examined => Verdict::Holds { examined },
    }
}

/// Whether a request read several keys, and was answered.
pub(super) fn is_read_together(operation: &Operation) -> bool {
    operation.together.is_some() && operation.action == Action::Get && answered(operation)
}

/// Keys that are only written together.
type Keys<'h> = BTreeSet<&'h str>;
/// A request: its client, and the client's number of it.
type Number<'h> = (&'h str, u64);

struct Requests<'h> {
    history: &'h History,
    /// The operations of each request of several.
    by_number: BTreeMap<Number<'h>, Vec<&'h Operation>>,
    /// With which keys a key is written, itself included; `None`: with others each time.
    written_with: HashMap<&'h str, Option<Keys<'h>>>,
    /// Of each key and value the requests that leave it there.
    writers: HashMap<(&'h str, Option<&'h str>), Vec<Number<'h>>>,
}

/// What an operation leaves at its key; `None`: it may leave nothing behind, or that is unknown.
fn leaves(operation: &Operation) -> Option<Option<&str>> {
    match &operation.action {
        Action::Put { value } => Some(Some(value)),
        Action::Delete => Some(None),
        Action::Get | Action::Add { .. } | Action::CompareAndSet { .. } => None,
    }
}

fn may_write(operation: &Operation) -> bool {
    let is_idle = operation.action == Action::Get || operation.outcome == Outcome::Conflict;
    !is_idle && !failed(operation)
}

impl<'h> Requests<'h> {
    fn of(history: &'h History) -> Requests<'h> {
        let mut by_number: BTreeMap<_, Vec<&Operation>> = BTreeMap::new();
        for operation in &history.operations {
            if let Some(number) = operation.together {
                by_number.entry((operation.client.as_str(), number)).or_default().push(operation);
            }
        }
        let mut all =
            Requests { history, by_number, written_with: HashMap::new(), writers: HashMap::new() };
        for (number, operations) in &all.by_number {
            let writes = || operations.iter().filter(|one| may_write(one));
            let keys: Keys<'_> = writes().map(|one| one.key.as_str()).collect();
            for write in writes() {
                let key = write.key.as_str();
                // What depends on what was there is not known to be of one request.
                let with = leaves(write).map(|_| keys.clone());
                let known = all.written_with.entry(key).or_insert_with(|| with.clone());
                if *known != with {
                    *known = None;
                }
                if let Some(left) = leaves(write) {
                    all.writers.entry((key, left)).or_default().push(*number);
                }
            }
        }
        let alone = |one: &&Operation| one.together.is_none() && may_write(one);
        for write in history.operations.iter().filter(alone) {
            all.written_with.insert(&write.key, None);
        }
        all
    }

    /// The answered reads of a request, by the keys that are written together.
    fn found(&self, request: &[&'h Operation]) -> Vec<(&Keys<'h>, Vec<&'h Operation>)> {
        let mut found: Vec<(&Keys<'h>, Vec<&'h Operation>)> = Vec::new();
        for read in request.iter().filter(|one| is_read_together(one) && !one.stale) {
            let Some(Some(keys)) = self.written_with.get(read.key.as_str()) else { continue };
            match found.iter_mut().find(|(of, _)| *of == keys) {
                Some((_, reads)) => reads.push(read),
                None => found.push((keys, vec![read])),
            }
        }
        found.retain(|(_, reads)| reads.len() > 1);
        found
    }

    fn writers_of(&self, read: &'h Operation) -> &[Number<'h>] {
        let Outcome::Value { value, .. } = &read.outcome else { return &[] };
        let writers = self.writers.get(&(read.key.as_str(), value.as_deref()));
        writers.map_or(&[], Vec::as_slice)
    }

    /// The requests that left what was found, if it is not of one request.
    fn torn(&self, keys: &Keys<'h>, found: &[&'h Operation]) -> Option<BTreeSet<Number<'h>>> {
        let is_absent =
            |read: &Operation| matches!(&read.outcome, Outcome::Value { value: None, .. });
        let absent = found.iter().filter(|read| is_absent(read)).count();
        let of_one =
            |writer: &Number<'h>| found.iter().all(|read| self.writers_of(read).contains(writer));
        let is_whole = match absent {
            0 => self.writers_of(found[0]).iter().any(of_one),
            absent => absent == found.len(),
        };
        let of = |read: &&'h Operation| self.writers_of(read).iter().copied();
        (!is_whole && keys.len() > 1).then(|| found.iter().flat_map(of).collect())
    }

    /// Whether an answer was declared lost.
    fn is_lost(&self, operation: &Operation) -> bool {
        self.history.lost.iter().any(|lost| lost.names(operation) && lost.covers_time(operation))
    }

    /// Whether what is found may be what a lost site left of a write that was declared lost.
    fn is_rest_of_lost(
        &self,
        keys: &Keys<'h>,
        found: &[&'h Operation],
        of: &BTreeSet<Number<'h>>,
    ) -> bool {
        let read = found[0];
        let of_loss = |lost: &&Lost| {
            let is_over = !lost.whole && lost.until_us < read.call_us && lost.names(read);
            let mut writes = of.iter().flat_map(|number| &self.by_number[number]);
            let is_of_lost = |write: &&Operation| lost.names(write) && may_be_lost(lost, write);
            is_over && writes.any(is_of_lost)
        };
        // What was written after the loss is whole.
        let is_later = |lost: &Lost| {
            found.iter().any(|read| {
                let writers = self.writers_of(read);
                let mut writes = writers.iter().flat_map(|number| &self.by_number[number]);
                let is_there = matches!(&read.outcome, Outcome::Value { value: Some(_), .. });
                is_there && writes.all(|write| write.call_us > lost.until_us)
            })
        };
        let is_settled = |lost: &Lost| {
            let mut writes = self.history.operations.iter().filter(|one| {
                one.together.is_some() && answered(one) && keys.contains(one.key.as_str())
            });
            writes.any(|write| {
                leaves(write).is_some()
                    && lost.until_us < write.call_us
                    && write.return_us.is_some_and(|at_us| at_us < read.call_us)
                    && !self.is_lost(write)
            })
        };
        let mut losses = self.history.lost.iter().filter(of_loss);
        losses.any(|lost| !is_later(lost) && !is_settled(lost))
    }

    fn violation(&self, found: &[&'h Operation], of: &BTreeSet<Number<'h>>) -> Violation {
        let read = found[0];
        let each = found.iter().map(|read| {
            let value = match &read.outcome {
                Outcome::Value { value, .. } => shown(value.as_deref()),
                _ => String::new(),
            };
            format!("{value} at {:?}", read.key)
        });
        let each: Vec<String> = each.collect();
        let is_shown = |one: &Operation| {
            let number = one.together.map(|number| (one.client.as_str(), number));
            let is_read = number == read.together.map(|number| (read.client.as_str(), number));
            is_read || number.is_some_and(|number| of.contains(&number))
        };
        let operations = self.history.operations.iter().enumerate();
        Violation {
            promise: Promise::Atomic,
            key: Some(read.key.clone()),
            what: format!(
                "{} found {} in one request, and no request wrote both: these keys are only written \
                 together.",
                read.client,
                each.join(" and ")
            ),
            operations: operations.filter(|(_, one)| is_shown(one)).map(|(at, _)| at).collect(),
            requests: Vec::new(),
            at_us: read.return_us,
        }
    }
}

/// Whether a write may have taken effect while a site was lost. One without an answer may at any
/// time.
fn may_be_lost(lost: &Lost, write: &Operation) -> bool {
    let is_open = matches!(write.outcome, Outcome::Unknown { .. });
    write.call_us <= lost.until_us && (is_open || lost.covers_time(write))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{self, Options, made};

    fn verdict(lines: &str) -> Verdict {
        judge(&made::history(lines))
    }

    fn examined(lines: &str) -> u64 {
        match verdict(lines) {
            Verdict::Holds { examined } => examined,
            other => panic!("{other:?}\n{lines}"),
        }
    }

    fn broken(lines: &str) -> Violation {
        match verdict(lines) {
            Verdict::Broken(violation) => violation,
            other => panic!("{other:?}\n{lines}"),
        }
    }

    /// Two requests that write both keys at one time.
    const WRITES: &str = "
        a+1 x 0 100 put 1 ok
        a+1 y 0 100 put 1 ok
        b+1 x 0 100 put 2 ok
        b+1 y 0 100 put 2 ok
    ";

    #[test]
    fn both_values_are_of_one_write() {
        let reads = "
            c+1 x 10 20 get none
            c+1 y 10 20 get none
            c+2 x 30 40 get 2
            c+2 y 30 40 get 2
            c+3 x 50 60 get 1
            c+3 y 50 60 get 1
        ";
        assert_eq!(examined(&format!("{WRITES}{reads}")), 3);
    }

    #[test]
    fn a_torn_pair_is_found_where_each_key_is_linearizable() {
        for (one, other) in [("1", "2"), ("2", "1"), ("none", "1"), ("2", "none")] {
            let torn = format!("{WRITES} c+1 x 30 40 get {one}\n c+1 y 30 40 get {other}");
            let violation = broken(&torn);
            assert_eq!((violation.promise, violation.at_us), (Promise::Atomic, Some(40)));
            assert!(violation.what.contains("in one request"), "{}", violation.what);
            assert!(violation.operations.ends_with(&[4, 5]), "{:?}", violation.operations);
            let alone =
                verdict::one(&made::history(&torn), Promise::Linearizable, &Options::default());
            assert!(matches!(alone, Verdict::Holds { .. }), "{alone:?}");
        }
    }

    #[test]
    fn a_write_without_an_answer_is_done_whole_or_not_at_all() {
        let unknown = WRITES.replace("2 ok", "2 unknown");
        assert_eq!(examined(&format!("{unknown} c+1 x 30 40 get 2\n c+1 y 30 40 get 2")), 1);
        broken(&format!("{unknown} c+1 x 30 40 get 2\n c+1 y 30 40 get 1"));
        let deleted = "a+1 x 0 9 put 1 ok\n a+1 y 0 9 put 1 ok\n b+1 x 5 20 delete ok\n b+1 y 5 20 delete ok\n";
        assert_eq!(examined(&format!("{deleted} c+1 x 30 40 get none\n c+1 y 30 40 get none")), 1);
        broken(&format!("{deleted} c+1 x 12 15 get 1\n c+1 y 12 15 get none"));
    }

    #[test]
    fn what_is_written_otherwise_or_read_apart_is_not_judged() {
        let undecided = |lines: &str| {
            let verdict = verdict(lines);
            assert!(matches!(verdict, Verdict::Undecided { .. }), "{verdict:?}\n{lines}");
        };
        let torn = "c+1 x 30 40 get 1\n c+1 y 30 40 get 2";
        undecided(&format!("{WRITES} d x 0 10 put 3 ok\n {torn}"));
        undecided(&format!("{WRITES} d+1 x 0 10 put 3 ok\n {torn}"));
        undecided(&format!("{WRITES} d+1 x 0 10 cas 1 3 ok\n d+1 y 0 10 cas 1 3 ok\n {torn}"));
        undecided(&format!("{WRITES} c x 30 40 get 1\n c y 30 40 get 2"));
        undecided(&format!("{WRITES} c+1 x 30 40 get 1\n c+2 y 30 40 get 2"));
        undecided(&format!("{WRITES} c+1 x 30 40 get failed\n c+1 y 30 40 get 2"));
        // What certainly was not done, or compared and left, is no other write.
        broken(&format!("{WRITES} d x 0 10 put 3 failed\n d x 12 15 cas 7 3 conflict\n {torn}"));
        let mut stale = made::history(&format!("{WRITES} {torn}"));
        stale.operations.iter_mut().for_each(|one| one.stale = one.action == Action::Get);
        assert!(matches!(judge(&stale), Verdict::Undecided { .. }));
    }

    fn with_loss(lines: &str, span: (u64, u64)) -> Verdict {
        with_loss_of(lines, span, false)
    }

    fn with_loss_of(lines: &str, (from_us, until_us): (u64, u64), whole: bool) -> Verdict {
        let mut history = made::history(lines);
        let keys = vec!["x".to_owned(), "y".to_owned()];
        history.lost = vec![Lost { from_us, until_us, keys, whole }];
        let judged = verdict::judge(&history, &[Promise::Atomic], &Options::default());
        judged.into_iter().next().unwrap().verdict
    }

    #[test]
    fn of_a_write_that_was_declared_lost_a_part_may_be_left() {
        let writes = "
            a+1 x 0 10 put 1 ok
            a+1 y 0 10 put 1 ok
            b+1 x 20 30 put 2 ok
            b+1 y 20 30 put 2 ok
        ";
        let read = "c+1 x 60 70 get 2\n c+1 y 60 70 get 1\n";
        let torn = format!("{writes}{read}");
        let holds = |verdict: &Verdict| matches!(verdict, Verdict::Holds { .. });
        assert!(holds(&with_loss(&torn, (25, 50))), "the second write is lost");
        assert!(!holds(&with_loss_of(&torn, (25, 50), true)), "no part of it is left");
        assert!(!holds(&with_loss(&torn, (35, 50))), "the backup had both");
        assert!(!holds(&with_loss(&torn, (2, 15))), "none of the second write is");
        // What is answered while the site is lost counts for nothing.
        let verdict = with_loss(&torn, (25, 65));
        assert!(matches!(verdict, Verdict::Undecided { .. }), "{verdict:?}");
        // Behind a write that is not lost it is whole again.
        let whole = format!("{writes} d+1 x 52 55 put 3 ok\n d+1 y 52 55 put 3 ok\n {read}");
        assert!(matches!(with_loss(&whole, (25, 50)), Verdict::Broken(_)));
        let beside = format!("{writes} d+1 x 52 65 put 3 ok\n d+1 y 52 65 put 3 ok\n {read}");
        assert!(holds(&with_loss(&beside, (25, 50))), "it may come later");
        // One without an answer may have come to the lost site at any time.
        let open = torn.replace("2 ok", "2 unknown");
        assert!(holds(&with_loss(&open, (35, 50))));
        assert!(!holds(&with_loss(&open, (2, 15))));
    }
}
