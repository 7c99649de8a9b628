//! Hand-made histories, thousands of small ones beside a judge that tries everything, and large
//! ones that must not take long.

use super::*;
use crate::history::Operation;
use crate::random::Random;
use crate::verdict::made::{self, Mix, Size};
use crate::verdict::{Verdict, failed};

fn verdict(lines: &str) -> Verdict {
    judge(&made::history(lines), &Options::default())
}

#[track_caller]
fn holds(lines: &str) {
    assert!(matches!(verdict(lines), Verdict::Holds { .. }), "{:?}", verdict(lines));
}

#[track_caller]
fn broken(lines: &str) -> Violation {
    match verdict(lines) {
        Verdict::Broken(violation) => violation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_single_copy_answers_holds() {
    holds("");
    holds("a x 0 10 get none");
    // A read beside a write sees it or does not.
    holds("a x 0 10 put 1 ok\n b x 2 4 get 1\n c x 2 4 get none");
    // Two writes at once, in either order.
    holds("a x 0 10 put 1 ok\n b x 0 10 put 2 ok\n c x 11 12 get 1");
    holds("a x 0 10 put 1 ok\n b x 0 10 put 2 ok\n c x 11 12 get 2");
    // Keys are independent of each other.
    holds("a x 0 1 put 1 ok\n a y 2 3 get none");
    holds("a x 0 1 put 1 ok\n a x 2 3 delete ok\n a x 4 5 get none");
    holds(
        "a x 0 1 add 2 = 2\n b x 2 3 add -3 = -1\n a x 4 5 get -1\n a x 6 7 cas -1 5 ok\n a x 8 9 add 1 = 6",
    );
    holds(
        "a x 0 1 cas none 1 ok\n b x 2 3 cas none 2 conflict\n b x 4 5 cas 1 2 ok\n a x 6 7 get 2",
    );
    // What touches overlaps.
    holds("a x 0 5 put 1 ok\n b x 5 9 get none");
}

#[test]
fn what_no_single_copy_answers_is_broken() {
    // A stale read.
    broken("a x 0 1 put 1 ok\n a x 2 3 put 2 ok\n b x 4 5 get 1");
    // Back and forth between two values.
    broken("a x 0 9 put 1 ok\n b x 0 9 put 2 ok\n c x 10 11 get 1\n c x 12 13 get 2");
    // Two readers see two writes in different orders.
    broken(
        "a x 0 9 put 1 ok\n b x 0 9 put 2 ok\n c x 0 3 get 1\n c x 4 6 get 2\n d x 0 3 get 2\n d x 4 6 get 1",
    );
    // A lost write, and one from nowhere.
    broken("a x 0 1 put 1 ok\n b x 2 3 get none");
    broken("a x 0 1 put 1 ok\n b x 2 3 get 7");
    broken("a x 0 1 put 1 failed\n b x 2 3 get 1");
    // From the future.
    broken("b x 0 1 get 1\n a x 2 3 put 1 ok");
    broken("b x 0 1 get 1\n a x 2 - put 1 unknown");
    // Counted twice, and not at all.
    broken("a x 0 1 add 1 = 1\n b x 2 3 get 2");
    broken("a x 0 1 add 1 = 1\n b x 0 1 add 1 = 1");
    broken("a x 0 1 put z ok\n b x 2 3 add 1 = 1");
    broken("a x 0 1 add 9223372036854775807 = -2");
    // Two win the same exchange, or one loses to none.
    broken("a x 0 9 cas none 1 ok\n b x 0 9 cas none 2 ok");
    broken("a x 0 1 cas none 1 conflict");
    // A deleted value comes back.
    broken("a x 0 1 put 1 ok\n a x 2 3 delete ok\n b x 4 5 get 1");
    // A number is not any text that reads as one.
    broken("a x 0 1 put 007 ok\n b x 2 3 add 1 = 8");
}

#[test]
fn unknown_outcomes_may_take_effect_at_any_time_or_never() {
    holds("a x 0 5 put 1 unknown\n b x 6 7 get none\n b x 8 9 get 1");
    holds("a x 0 - put 1 unknown\n b x 6 7 get none");
    broken("a x 0 5 put 1 unknown\n b x 6 7 get 1\n b x 8 9 get none");
    holds("a x 0 5 delete unknown\n b x 1 2 put 1 ok\n b x 6 7 get 1\n b x 8 9 get none");
    holds("a x 0 5 add 1 unknown\n a x 6 7 add 1 unknown\n b x 8 9 get 1\n b x 10 11 add 5 = 7");
    broken("a x 0 5 add 1 unknown\n a x 6 7 add 1 unknown\n b x 8 9 get 3");
    broken("a x 0 5 add 1 unknown\n b x 6 7 add 1 = 2\n b x 8 9 add 1 = 4");
    // Only the unanswered write explains the conflict.
    holds("a x 0 5 put 1 unknown\n b x 6 7 cas none 2 conflict\n b x 8 9 get 1");
    broken("a x 0 5 put 1 unknown\n b x 6 7 cas none 2 conflict\n b x 8 9 get none");
    // An answer without a return is none.
    holds("a x 0 - put 1 ok\n b x 6 7 get none");
    // The unanswered exchange took place, and only between the two others.
    holds("a x 0 1 put 1 ok\n a x 2 - cas 1 2 unknown\n b x 4 5 cas 2 3 ok\n b x 6 7 get 3");
    broken("a x 0 1 put 1 ok\n a x 2 - cas 0 2 unknown\n b x 4 5 cas 2 3 ok");
}

#[test]
fn stale_reads_are_left_out() {
    let mut history = made::history("a x 0 1 put 1 ok\n b x 4 5 get none");
    history.operations[1].stale = true;
    assert_eq!(judge(&history, &Options::default()), Verdict::Holds { examined: 2 });
}

#[test]
fn a_violation_is_shown_by_few_operations() {
    let violation = broken(
        "a x 0 1 put 1 ok\n a x 2 3 get 1\n a x 4 5 put 2 ok\n c y 4 5 get none\n b x 6 7 get 1\n a x 8 9 put 3 ok\n b x 10 11 get 2",
    );
    assert_eq!(violation.key.as_deref(), Some("x"));
    assert_eq!(violation.operations, [0, 2, 4]);
    assert_eq!(violation.at_us, Some(7));
    assert_eq!(
        violation.what,
        "no order explains the first 4 answers about key \"x\", though one explains the 3 before the \
         last of them, b get -> \"1\" (6 to 7 µs). It found \"1\", which comes from: a put \"1\" -> done \
         (0 to 1 µs); it could have found \"2\"."
    );
    let violation = broken("a x 0 9 put 1 ok\n b x 0 9 put 2 ok\n b x 10 11 get 5");
    assert!(violation.what.contains("no client had written; it could have found \"1\" or \"2\"."));
}

/// Whether some order of some of the operations explains all answers, by trying them all.
fn explained(history: &History) -> bool {
    let all: Vec<usize> = (0..history.operations.len())
        .filter(|&index| !failed(&history.operations[index]))
        .collect();
    extend(history, &all, None)
}

fn extend(history: &History, left: &[usize], held: Option<&str>) -> bool {
    let certain = |index: &usize| answered(&history.operations[*index]);
    if !left.iter().any(certain) {
        return true;
    }
    let due =
        left.iter().filter(|i| certain(i)).filter_map(|&i| history.operations[i].return_us).min();
    left.iter().enumerate().any(|(place, &index)| {
        let operation = &history.operations[index];
        if Some(operation.call_us) > due {
            return false;
        }
        let (answer, after) = ask(&operation.action, held);
        if answered(operation) && answer != without_version(&operation.outcome) {
            return false;
        }
        let rest = [&left[..place], &left[place + 1..]].concat();
        extend(history, &rest, after.as_deref())
    })
}

fn without_version(outcome: &Outcome) -> Outcome {
    match outcome.clone() {
        Outcome::Value { value, .. } => Outcome::Value { value, version: None },
        Outcome::Written { .. } => Outcome::Written { version: None },
        other => other,
    }
}

fn ask(action: &Action, held: Option<&str>) -> (Outcome, Option<String>) {
    let done = Outcome::Written { version: None };
    let same = held.map(str::to_owned);
    match action {
        Action::Get => (Outcome::Value { value: same.clone(), version: None }, same),
        Action::Put { value } => (done, Some(value.clone())),
        Action::Delete => (done, None),
        Action::Add { delta } => match held.unwrap_or("0").parse::<i64>() {
            Ok(number) => {
                let value = number + delta;
                (Outcome::Number { value }, Some(value.to_string()))
            }
            Err(_) => (Outcome::Failed { why: "not a number".to_owned() }, same),
        },
        Action::CompareAndSet { expected, value } if expected.as_deref() == held => {
            (done, Some(value.clone()))
        }
        Action::CompareAndSet { .. } => (Outcome::Conflict, same),
    }
}

/// A short history of a few clients at one key with answers that are often right by luck.
fn any_small(random: &mut Random) -> History {
    let values = ["0", "1", "2", "a", "b"];
    let value = |random: &mut Random| (*random.pick(&values)).to_owned();
    let kinds = *random.pick(&[
        [0, 0, 1, 1, 1],
        [0, 0, 1, 2, 1],
        [0, 3, 3, 3, 3],
        [0, 4, 4, 1, 2],
        [0, 1, 2, 3, 4],
    ]);
    let mut operations = Vec::new();
    for _ in 0..3 + random.below(5) {
        let action = match random.pick(&kinds) {
            0 => Action::Get,
            1 => Action::Put { value: value(random) },
            2 => Action::Delete,
            3 => Action::Add { delta: [1, 1, 1, 2, -1, 0][random.below(6) as usize] },
            _ => Action::CompareAndSet {
                expected: Some(value(random)).filter(|_| random.chance(700)),
                value: value(random),
            },
        };
        let call_us = random.below(16);
        let return_us = Some(call_us + random.below(5)).filter(|_| random.chance(900));
        operations.push(Operation {
            client: format!("c{}", operations.len()),
            site: None,
            key: "x".to_owned(),
            call_us,
            waited_us: 0,
            return_us,
            action,
            outcome: Outcome::Unknown { why: String::new() },
            stale: false,
            together: None,
        });
    }
    // Answers as a store would give that takes them up in some order of its own.
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|&index| operations[index].call_us + random.below(8));
    let mut held: Option<String> = None;
    for index in order {
        let (mut answer, after) = ask(&operations[index].action, held.as_deref());
        if random.chance(800) {
            held = after;
        }
        if random.chance(200)
            && let Outcome::Value { value: found, .. } = &mut answer
        {
            *found = Some(value(random));
        }
        if random.chance(900) {
            operations[index].outcome = answer;
        }
    }
    History { operations, ..History::default() }
}

#[test]
fn a_judge_that_tries_everything_agrees() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..30_000 {
        let history = any_small(&mut Random::stream(seed, "small", 0));
        let wanted = explained(&history);
        match judge(&history, &Options::default()) {
            Verdict::Holds { .. } if wanted => good += 1,
            Verdict::Broken(violation) if !wanted => {
                assert!(!violation.operations.is_empty(), "{violation:?}");
                bad += 1;
            }
            other => panic!("seed {seed}: {other:?} of {history:#?}"),
        }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} good ones and {bad} bad ones prove little");
}

const MIXES: [Mix; 5] = [made::REGISTER, made::DELETES, made::CAS, made::COUNTER, made::ALL];

#[test]
fn what_a_correct_store_answers_holds() {
    for (seed, mix) in (0..).zip(MIXES.iter().cycle().take(100)) {
        let size = Size { clients: 1 + seed % 12, keys: 1 + seed % 3, operations: 300 };
        let history = made::linearizable(seed, size, *mix);
        let verdict = judge(&history, &Options::default());
        assert_eq!(verdict, Verdict::Holds { examined: 300 }, "seed {seed}, {mix:?}");
    }
}

/// Changes one answer into one that cannot be. `false` if there is none that can be changed so.
fn spoil(history: &mut History, random: &mut Random) -> bool {
    let kind = random.below(3);
    let candidates: Vec<usize> = (0..history.operations.len())
        .filter(|&at| match &history.operations[at].outcome {
            Outcome::Value { .. } => kind < 2,
            Outcome::Number { .. } => kind == 2,
            _ => false,
        })
        .collect();
    if candidates.is_empty() {
        return false;
    }
    let at = *random.pick(&candidates);
    let (key, call_us) = (history.operations[at].key.clone(), history.operations[at].call_us);
    // A put that was over before another put began that was over before this read began.
    let before = |operation: &&Operation, call_us: u64| {
        operation.key == key
            && matches!(operation.outcome, Outcome::Written { .. })
            && operation.return_us.is_some_and(|at_us| at_us < call_us)
    };
    let overwritten = || {
        let later =
            history.operations.iter().filter(|o| before(o, call_us)).max_by_key(|o| o.call_us)?;
        let puts = history.operations.iter().filter(|o| before(o, later.call_us));
        puts.filter_map(|o| match &o.action {
            Action::Put { value } => Some(value.clone()),
            _ => None,
        })
        .next()
    };
    let value = match kind {
        0 => Some("from nowhere".to_owned()),
        1 => match overwritten() {
            Some(value) => Some(value),
            None => return false,
        },
        _ => None,
    };
    match &mut history.operations[at].outcome {
        Outcome::Value { value: found, .. } => *found = value,
        // Counted as if it were lost: others have been given the number that it needs to find.
        Outcome::Number { value } => *value = -1_000_000,
        _ => return false,
    }
    true
}

#[test]
fn a_spoiled_history_is_broken() {
    let mut spoiled = 0;
    for (seed, mix) in (0..).zip(MIXES.iter().cycle().take(200)) {
        let size = Size { clients: 2 + seed % 12, keys: 1 + seed % 3, operations: 300 };
        let mut history = made::linearizable(seed, size, *mix);
        if !spoil(&mut history, &mut Random::stream(seed, "spoil", 0)) {
            continue;
        }
        spoiled += 1;
        let verdict = judge(&history, &Options::default());
        assert!(matches!(verdict, Verdict::Broken(_)), "seed {seed}, {mix:?}: {verdict:?}");
    }
    assert!(spoiled > 100, "{spoiled}");
}

/// So many steps at most for each of its operations, on average.
#[track_caller]
fn takes(steps_each_max: u64, keys: u64, mix: Mix) {
    let size = Size { clients: 30, keys, operations: 100_000 };
    let history = made::linearizable(7, size, mix);
    let (verdict, steps) = judge_counting(&history, &Options::default());
    assert_eq!(verdict, Verdict::Holds { examined: size.operations as u64 }, "{size:?} {mix:?}");
    let most = steps_each_max * size.operations as u64;
    assert!(steps < most, "{mix:?}: {steps} steps for {} operations", size.operations);
}

#[test]
fn a_hundred_thousand_operations_on_many_keys_are_judged_in_few_steps() {
    MIXES.iter().for_each(|&mix| takes(2, 100, mix));
}

#[test]
fn a_hundred_thousand_operations_on_a_few_keys_are_judged_in_few_steps() {
    MIXES[..4].iter().for_each(|&mix| takes(2, 3, mix));
}

#[test]
fn a_hundred_thousand_operations_on_one_key_are_judged_in_few_steps() {
    MIXES[..4].iter().for_each(|&mix| takes(2, 1, mix));
}

/// They are no evidence: a history is judged alike without them.
#[test]
fn versions_lead_through_many_unknown_outcomes() {
    let mix = Mix { delete: 10, unknown_permille: 60, ..made::CAS };
    let size = Size { clients: 12, keys: 1, operations: 400 };
    let options = Options { search_steps_max: 1_000_000, ..Options::default() };
    let (mut with, mut without) = (0, 0);
    for seed in 0..20 {
        let mut history = made::linearizable(seed, size, mix);
        let (verdict, steps) = judge_counting(&history, &options);
        assert!(matches!(verdict, Verdict::Holds { .. }), "seed {seed}: {verdict:?}");
        with += steps;
        for operation in &mut history.operations {
            operation.outcome = without_version(&operation.outcome);
        }
        let (verdict, steps) = judge_counting(&history, &options);
        assert!(!matches!(verdict, Verdict::Broken(_)), "seed {seed}: {verdict:?}");
        without += steps;
    }
    assert!(2 * with < without, "{with} steps, {without} without versions");
}

#[test]
fn in_a_large_history_a_stale_read_is_found() {
    for mix in [made::REGISTER, made::DELETES, made::CAS] {
        let size = Size { clients: 30, keys: 1, operations: 20_000 };
        let mut history = made::linearizable(7, size, mix);
        let read = |at: usize| match &history.operations[at].outcome {
            Outcome::Value { value: Some(value), .. } => Some(value.clone()),
            _ => None,
        };
        let old = (0..).find_map(read).unwrap();
        let late = (18_000..).find(|&at| read(at).is_some()).unwrap();
        history.operations[late].outcome = Outcome::Value { value: Some(old), version: None };
        match judge(&history, &Options::default()) {
            Verdict::Broken(violation) => assert!(violation.operations.contains(&late)),
            other => panic!("{mix:?}: {other:?}"),
        }
    }
}

#[test]
fn a_search_that_is_too_long_decides_nothing() {
    let history =
        made::linearizable(7, Size { clients: 30, keys: 1, operations: 1_000 }, made::ALL);
    let verdict = judge(&history, &Options { search_steps_max: 500, ..Options::default() });
    assert!(
        matches!(&verdict, Verdict::Undecided { why } if why.contains("key \"k0\"")),
        "{verdict:?}"
    );
}
