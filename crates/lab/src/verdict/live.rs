//! After all faults have ended, what is asked is answered.
//!
//! **Judged**: every operation that was called [`Options::live_grace_us`] or later after the last
//! `healed` mark was answered as asked (a compare-and-set that found something else was, too),
//! within [`Options::live_within_us`] of its call. Liveness proper means *eventually*, which no
//! finite history can break (Alpern and Schneider, *Defining liveness*, 1985); the two times make
//! it a promise that can be judged. An operation that was never answered breaks it. If the history
//! ends sooner than that after the call, that is the writer's fault: histories should be written
//! until the last answer is there or overdue.
//!
//! Counted are the operations after the mark, and the requests about causal keys. Stale reads count
//! too: they are asked and answered.

use super::{Options, Verdict, Violation, answered, describe};
use crate::history::{History, MarkKind, Promise};

/// Judges a history; counts the operations that had to be answered.
#[must_use]
pub fn judge(history: &History, options: &Options) -> Verdict {
    let healed = history.marks.iter().filter(|mark| mark.kind == MarkKind::Healed);
    let Some(healed_us) = healed.map(|mark| mark.at_us).max() else {
        return Verdict::Undecided { why: "the history has no healed mark".to_owned() };
    };
    let from_us = healed_us.saturating_add(options.live_grace_us);
    let mut examined = 0;
    for (index, operation) in history.operations.iter().enumerate() {
        if operation.call_us < from_us {
            continue;
        }
        examined += 1;
        let late = operation.return_us.unwrap_or(u64::MAX).saturating_sub(operation.call_us);
        if answered(operation) && late <= options.live_within_us {
            continue;
        }
        return Verdict::Broken(Violation {
            promise: Promise::Live,
            key: Some(operation.key.clone()),
            what: format!(
                "all faults had ended at {healed_us} µs, but an operation called {} µs later was not \
                 answered within {} µs: {}.",
                operation.call_us - healed_us,
                options.live_within_us,
                describe(operation)
            ),
            operations: vec![index],
            requests: Vec::new(),
            at_us: Some(operation.call_us.saturating_add(options.live_within_us)),
        });
    }
    for (index, request) in history.requests.iter().enumerate() {
        if request.call_us < from_us {
            continue;
        }
        examined += 1;
        let late = request.return_us.unwrap_or(u64::MAX).saturating_sub(request.call_us);
        if request.is_done() && late <= options.live_within_us {
            continue;
        }
        return Verdict::Broken(Violation {
            promise: Promise::Live,
            key: None,
            what: format!(
                "all faults had ended at {healed_us} µs, but a request called {} µs later was not \
                 answered within {} µs: {request}.",
                request.call_us - healed_us,
                options.live_within_us,
            ),
            operations: Vec::new(),
            requests: vec![index],
            at_us: Some(request.call_us.saturating_add(options.live_within_us)),
        });
    }
    match examined {
        0 => Verdict::Undecided {
            why: format!(
                "nothing was asked {} µs or later after the healed mark",
                options.live_grace_us
            ),
        },
        examined => Verdict::Holds { examined },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Mark;
    use crate::verdict::made;

    fn verdict(lines: &str) -> Verdict {
        let mut history = made::history(lines);
        let mark = |at_us, kind| Mark { at_us, kind, text: "so it is".to_owned() };
        history.marks =
            vec![mark(5, MarkKind::Healed), mark(20, MarkKind::Fault), mark(50, MarkKind::Healed)];
        judge(&history, &Options { live_grace_us: 10, live_within_us: 100, ..Options::default() })
    }

    #[test]
    fn what_is_asked_before_is_not_judged() {
        let before = "a x 10 - put 1 unknown\n a x 59 70 put 2 failed\n";
        let after = "a x 60 160 put 3 ok\n a x 161 162 cas 1 2 conflict";
        assert_eq!(verdict(&format!("{before}{after}")), Verdict::Holds { examined: 2 });
        assert!(matches!(verdict(before), Verdict::Undecided { .. }));
        let unhealed = judge(&made::history(after), &Options::default());
        assert!(matches!(unhealed, Verdict::Undecided { .. }));
    }

    #[test]
    fn what_is_not_answered_or_late_is_found() {
        let answers = ["a x 60 - get none", "a x 60 61 get failed", "a x 60 61 put 1 unknown"];
        for line in answers.into_iter().chain(["a x 60 161 put 1 ok"]) {
            let Verdict::Broken(violation) = verdict(&format!("b x 60 61 get none\n{line}")) else {
                panic!("not found: {line}");
            };
            assert_eq!((violation.operations, violation.at_us), (vec![1], Some(160)));
            assert!(violation.what.contains("called 10 µs later"), "{}", violation.what);
        }
    }
}
