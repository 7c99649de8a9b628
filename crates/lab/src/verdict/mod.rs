//! Whether a history keeps what was promised.
//!
//! Each [`Promise`] has a judge, in a module of its name; its head names the definition it judges
//! and where that comes from. A judge sees a [`History`] and nothing else: not the protocol, not
//! the simulation. Any program that can write a history can have it judged, and no judge can excuse
//! a store for what it was trying to do.
//!
//! | module | what it judges |
//! | --- | --- |
//! | [`linearizable`] | each key behaves as one copy, in real time |
//! | [`atomic`] | what is written together is read together |
//! | [`causal`] | no client sees an effect before its cause |
//! | [`session`] | read your writes, monotonic reads, monotonic writes, writes follow reads |
//! | [`regional`] | the same for causal keys, by the order that their region gave to the writes |
//! | [`convergent`] | replicas that have received everything hold the same |
//! | [`one_owner`] | a unit has one owner at an epoch |
//! | [`ring`] | the ring in rest is one ring |
//! | [`durable`] | what was acknowledged is there in the end |
//! | [`live`] | after all faults have ended, what is asked is answered |
//!
//! There are three answers. [`Verdict::Holds`]: nothing in this history contradicts it; that is
//! not a proof for the store, only for what it was seen to do. [`Verdict::Broken`]: it cannot be
//! explained, with the few operations that show it. [`Verdict::Undecided`]: it cannot be judged,
//! because something is missing from the history or because the search for an explanation became
//! too long; never a silent pass.
//!
//! Left out of every verdict: reads that were marked as stale, and what was declared lost with a
//! site ([`crate::history::Lost`]).

pub mod atomic;
pub mod causal;
pub mod convergent;
pub mod durable;
pub mod linearizable;
pub mod live;
#[cfg(test)]
mod made;
pub mod one_owner;
pub mod regional;
pub mod ring;
pub mod session;

use std::fmt::Write as _;

use crate::history::{Action, History, MarkKind, Operation, Outcome, Promise, Request};

/// A judge's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing contradicts it.
    Holds {
        /// How many things were looked at: operations, or what the judge's head names.
        examined: u64,
    },
    /// The history shows that the promise was not kept.
    Broken(Violation),
    /// It cannot be judged.
    Undecided {
        /// Why not, as a sentence.
        why: String,
    },
}

/// How a promise was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// At which key, where it is one.
    pub key: Option<String>,
    /// What happened, in sentences for people.
    pub what: String,
    /// The few operations that show it: indexes into [`History::operations`], ascending.
    pub operations: Vec<usize>,
    /// The few requests that show it: indexes into [`History::requests`], ascending.
    pub requests: Vec<usize>,
    /// When it could first be seen.
    pub at_us: Option<u64>,
}

impl Violation {
    /// What happened and, a line each, the operations that show it; of many, the first ones.
    #[must_use]
    pub fn describe(&self, history: &History) -> String {
        const OPERATIONS_SHOWN: usize = 12;
        let mut text = self.what.clone();
        let shown = self.operations.iter().take(OPERATIONS_SHOWN);
        for operation in shown.filter_map(|at| history.operations.get(*at)) {
            let _ = write!(text, "\n{}", describe(operation));
        }
        let requests = self.requests.iter().filter_map(|at| history.requests.get(*at));
        for request in requests.take(OPERATIONS_SHOWN) {
            let _ = write!(text, "\n{request}");
        }
        let more = self.operations.len().saturating_sub(OPERATIONS_SHOWN);
        if more > 0 {
            let _ = write!(text, "\nand {more} more operations");
        }
        text
    }
}

/// A promise and its judge's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The promise.
    pub promise: Promise,
    /// Its judge's result.
    pub verdict: Verdict,
}

/// How to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Most steps of a search for one key's order. A step is an operation taken up into an order
    /// that is being tried, and takes a microsecond or a few; a key whose values are distinct
    /// takes little more than one for each of its operations.
    pub search_steps_max: u64,
    /// Whether a causal history must also be one that can converge.
    pub causal_convergence: bool,
    /// How soon an operation must be answered after all faults have ended.
    pub live_within_us: u64,
    /// How long after the end of all faults that begins to count.
    pub live_grace_us: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            search_steps_max: 2_000_000,
            causal_convergence: false,
            live_within_us: 5_000_000,
            live_grace_us: 10_000_000,
        }
    }
}

/// Steps of a search that was given up once: minutes at most, and a gigabyte.
const PATIENT_STEPS_MAX: u64 = 100_000_000;

/// Judges a history by the promises of its header, and takes its time where the first search for an
/// order is given up: many writes of one key without an answer have many orders.
#[must_use]
pub fn judge_patiently(history: &History) -> Vec<Judged> {
    let mut judged = judge(history, &[], &Options::default());
    for one in &mut judged {
        if one.promise == Promise::Linearizable && matches!(one.verdict, Verdict::Undecided { .. })
        {
            one.verdict = linearizable_patiently(history);
        }
    }
    judged
}

fn linearizable_patiently(history: &History) -> Verdict {
    let options = Options { search_steps_max: PATIENT_STEPS_MAX / 10, ..Options::default() };
    if let Some(as_answered) = history.without_lost_as_answered()
        && let held @ Verdict::Holds { .. } = one(&as_answered, Promise::Linearizable, &options)
    {
        return held;
    }
    let options = Options { search_steps_max: PATIENT_STEPS_MAX, ..Options::default() };
    one(&history.without_lost().unwrap_or_else(|| history.clone()), Promise::Linearizable, &options)
}

/// Judges a history by these promises; without any, by those of its header; if that has none
/// either, by all that its lines allow ([`allowed`]).
#[must_use]
pub fn judge(history: &History, promises: &[Promise], options: &Options) -> Vec<Judged> {
    let known;
    let whole = history;
    let history = match history.without_lost() {
        Some(without) => {
            known = without;
            &known
        }
        None => history,
    };
    let all;
    let promises = match (promises, history.header.promises.as_slice()) {
        ([], []) => {
            all = allowed(history);
            &all
        }
        ([], promised) => promised,
        (asked, _) => asked,
    };
    let judged = |&promise: &Promise| {
        // Which write was lost matters to it.
        let history = if promise == Promise::Atomic { whole } else { history };
        Judged { promise, verdict: one(history, promise, options) }
    };
    promises.iter().map(judged).collect()
}

/// The promises that can be judged from a history: those of operations where it has
/// operations, those of sessions where answers carry versions, and so on.
#[must_use]
pub fn allowed(history: &History) -> Vec<Promise> {
    let (mut reads, mut versions) = (false, false);
    for operation in history.operations.iter().filter(|operation| answered(operation)) {
        reads |= matches!(operation.outcome, Outcome::Value { .. });
        versions |= matches!(
            operation.outcome,
            Outcome::Value { version: Some(_), .. } | Outcome::Written { version: Some(_) }
        );
    }
    let regional = history.requests.iter().any(Request::is_done);
    let healed = history.marks.iter().any(|mark| mark.kind == MarkKind::Healed);
    let says = |promise: &Promise| match promise {
        Promise::Linearizable => !history.operations.is_empty(),
        Promise::Atomic => history.operations.iter().any(atomic::is_read_together),
        Promise::Causal | Promise::Durable => reads || regional,
        Promise::ReadYourWrites
        | Promise::MonotonicReads
        | Promise::MonotonicWrites
        | Promise::WritesFollowReads => versions || regional,
        Promise::Convergent => !history.states.is_empty(),
        Promise::OneOwner => !history.owners.is_empty(),
        Promise::Ring => !history.rings.is_empty(),
        Promise::Live => healed && !history.operations.is_empty(),
    };
    Promise::ALL.into_iter().filter(says).collect()
}

/// Judges a history by one promise.
#[must_use]
pub fn one(history: &History, promise: Promise, options: &Options) -> Verdict {
    if let Some(why) = history.operations.iter().enumerate().find_map(|(at, o)| misfit(at, o)) {
        return Verdict::Undecided { why };
    }
    match promise {
        Promise::Linearizable => linearizable::judge(history, options),
        Promise::Atomic => atomic::judge(history),
        Promise::Causal => regional::joined(history, promise, || causal::judge(history, options)),
        Promise::ReadYourWrites
        | Promise::MonotonicReads
        | Promise::MonotonicWrites
        | Promise::WritesFollowReads => {
            regional::joined(history, promise, || session::judge(history, promise))
        }
        Promise::Convergent => convergent::judge(history),
        Promise::OneOwner => one_owner::judge(history),
        Promise::Ring => ring::judge(history),
        Promise::Durable => regional::joined(history, promise, || durable::judge(history)),
        Promise::Live => live::judge(history, options),
    }
}

/// What is wrong with an operation as such, if anything: nothing can be judged then.
fn misfit(at: usize, operation: &Operation) -> Option<String> {
    let fits = match &operation.outcome {
        Outcome::Failed { .. } | Outcome::Unknown { .. } => true,
        Outcome::Value { .. } => operation.action == Action::Get,
        Outcome::Written { .. } => !matches!(operation.action, Action::Get | Action::Add { .. }),
        Outcome::Number { .. } => matches!(operation.action, Action::Add { .. }),
        Outcome::Conflict => matches!(operation.action, Action::CompareAndSet { .. }),
    };
    if !fits {
        return Some(format!(
            "operation {at} has an answer of another kind: {}",
            describe(operation)
        ));
    }
    let back = operation.return_us.is_some_and(|return_us| return_us < operation.call_us);
    back.then(|| format!("operation {at} returned before it was called: {}", describe(operation)))
}

/// Whether the operation was certainly answered as asked. One that never returned was not,
/// whatever its line contains.
fn answered(operation: &Operation) -> bool {
    operation.return_us.is_some()
        && !matches!(operation.outcome, Outcome::Failed { .. } | Outcome::Unknown { .. })
}

/// Whether it certainly had no effect.
fn failed(operation: &Operation) -> bool {
    matches!(operation.outcome, Outcome::Failed { .. })
}

/// An operation, as text for people.
#[must_use]
pub fn describe(operation: &Operation) -> String {
    let asked = match &operation.action {
        Action::Get => "get".to_owned(),
        Action::Put { value } => format!("put {}", shown(Some(value))),
        Action::Delete => "delete".to_owned(),
        Action::Add { delta } => format!("add {delta}"),
        Action::CompareAndSet { expected, value } => {
            format!("compare-and-set {} to {}", shown(expected.as_deref()), shown(Some(value)))
        }
    };
    let got = match &operation.outcome {
        Outcome::Value { value, .. } => shown(value.as_deref()),
        Outcome::Written { .. } => "done".to_owned(),
        Outcome::Number { value } => value.to_string(),
        Outcome::Conflict => "it held something else".to_owned(),
        Outcome::Failed { why } => format!("failed ({why})"),
        Outcome::Unknown { why } => format!("unknown ({why})"),
    };
    let when = match operation.return_us {
        Some(return_us) => format!("{} to {return_us} µs", operation.call_us),
        None => format!("{} µs, never returned", operation.call_us),
    };
    format!("{} {asked} -> {got} ({when})", operation.client)
}

/// A value, as text for people: quoted, and cut when it is long.
fn shown(value: Option<&str>) -> String {
    const CHARS_MAX: usize = 60;
    match value {
        None => "nothing".to_owned(),
        Some(text) if text.chars().count() <= CHARS_MAX => format!("\"{text}\""),
        Some(text) => {
            let start: String = text.chars().take(CHARS_MAX).collect();
            format!("\"{start}…\" ({} bytes)", text.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Header, Mark, Owner, ReplicaState};

    fn promises(judged: &[Judged]) -> Vec<Promise> {
        judged.iter().map(|judged| judged.promise).collect()
    }

    #[test]
    fn what_was_asked_goes_before_what_was_promised_and_what_can_be_judged() {
        let mut history = made::history("a x 0 1 put 1 ok@1\n a x 2 3 get 1@1");
        let options = Options::default();
        assert_eq!(
            promises(&judge(&history, &[], &options)),
            [
                Promise::Linearizable,
                Promise::Causal,
                Promise::ReadYourWrites,
                Promise::MonotonicReads,
                Promise::MonotonicWrites,
                Promise::WritesFollowReads,
                Promise::Durable,
            ]
        );
        history.header = Header { promises: vec![Promise::Live], ..Header::default() };
        assert_eq!(promises(&judge(&history, &[], &options)), [Promise::Live]);
        let asked = [Promise::Durable, Promise::Causal];
        let judged = judge(&history, &asked, &options);
        assert_eq!(promises(&judged), asked);
        assert!(judged.iter().all(|j| matches!(j.verdict, Verdict::Holds { .. })), "{judged:?}");
    }

    #[test]
    fn lines_allow_what_they_speak_of() {
        let mut history = History::default();
        assert_eq!(allowed(&history), []);
        let (at_us, unit, text) = (1, "l".to_owned(), String::new());
        history.marks = vec![Mark { at_us, kind: MarkKind::Healed, text: text.clone() }];
        history.owners = vec![Owner { at_us, unit, epoch: 1, owner: text.clone() }];
        history.states =
            vec![ReplicaState { at_us, group: text.clone(), replica: text.clone(), digest: text }];
        assert_eq!(allowed(&history), [Promise::Convergent, Promise::OneOwner]);
        history.operations = made::history("a x 0 1 put 1 ok").operations;
        let allowed = allowed(&history);
        assert_eq!(
            allowed,
            [Promise::Linearizable, Promise::Convergent, Promise::OneOwner, Promise::Live]
        );
    }

    #[test]
    fn an_answer_of_another_kind_is_not_judged() {
        let mut history = made::history("a x 0 1 put 1 ok\n a x 2 3 get 1");
        history.operations[1].outcome = Outcome::Conflict;
        for promise in Promise::ALL {
            let verdict = one(&history, promise, &Options::default());
            let Verdict::Undecided { why } = verdict else { panic!("{verdict:?}") };
            assert!(why.starts_with("operation 1 has an answer of another kind: a get"), "{why}");
        }
        let backwards = made::history("a x 5 1 put 1 ok");
        let verdict = one(&backwards, Promise::Linearizable, &Options::default());
        assert!(matches!(verdict, Verdict::Undecided { .. }));
    }

    #[test]
    fn a_violation_is_shown_with_its_first_operations() {
        let history = made::history(&"a x 0 1 put 1 ok\n".repeat(20));
        let mut violation = Violation {
            promise: Promise::Durable,
            key: None,
            what: "It is gone.".to_owned(),
            operations: (0..12).collect(),
            requests: Vec::new(),
            at_us: None,
        };
        let text = violation.describe(&history);
        assert!(text.starts_with("It is gone.\na put \"1\" -> done"), "{text}");
        assert_eq!(text.lines().count(), 13);
        violation.operations = (0..15).collect();
        let text = violation.describe(&history);
        assert!(text.ends_with("(0 to 1 µs)\nand 3 more operations"), "{text}");
    }

    #[test]
    fn long_values_are_cut_when_shown() {
        assert_eq!(shown(Some("ä")), "\"ä\"");
        assert_eq!(shown(Some(&"ä".repeat(61))), format!("\"{}…\" (122 bytes)", "ä".repeat(60)));
    }
}
