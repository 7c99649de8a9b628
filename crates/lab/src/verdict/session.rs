//! The four guarantees of a session, one by one.
//!
//! A session is a client's operations, one after the other. The guarantees are those of Terry,
//! Demers, Petersen, Spreitzer, Theimer and Welch (*Session guarantees for weakly consistent
//! replicated data*, 1994). They speak of the writes that a server has taken up when it answers;
//! from outside, the version that comes with an answer shows that: the writes of a key have an
//! order, and a session that is given version 7 has all up to it. **Judged** is, for session `S`,
//! key `x` and reads `r` of it:
//!
//! | promise | what must hold |
//! | --- | --- |
//! | read your writes | after `S` wrote `x`, each `r` of `S` finds that version or a later one |
//! | monotonic reads | after `S` read `x`, each `r` of `S` finds that version or a later one |
//! | monotonic writes | the versions of `S`'s writes of `x` increase; and a session that has seen a write of `S` and then reads `x` finds what `S` had written to `x` before it, or later |
//! | writes follow reads | if `S` writes `x` after reading it, the new version is later than the one it read; and a session that has seen a write of `S` and then reads `x` finds what `S` had read of `x` before it, or later |
//!
//! The last two are judged for sessions that saw the write itself, by its version; what follows by
//! going through others as well is the business of [`causal`](super::causal).
//!
//! Where nothing is found and no version is given, the version is 0; if the key may have been
//! deleted by then, the read may have found any of these deletes, and is taken for the latest. Adds
//! are answered without a version and are left out. If other answers carry none, or if two writes
//! of a key carry the same, nothing is decided unless the rest shows a violation. Counted are the
//! reads and writes with a version.

use std::collections::{BTreeMap, HashMap};

use super::{Verdict, Violation, answered, describe, failed};
use crate::history::{Action, History, Operation, Outcome, Promise};

/// Judges a history by one of the four promises; counts the reads and writes with a version.
#[must_use]
pub fn judge(history: &History, promise: Promise) -> Verdict {
    let sessions = match Sessions::of(history) {
        Ok(sessions) => sessions,
        Err(why) => return Verdict::Undecided { why },
    };
    let seen = Seen::of(history, &sessions);
    if seen.examined == 0 {
        return Verdict::Undecided { why: "no answer carries a version".to_owned() };
    }
    let judge = Judge { history, sessions: &sessions, seen: &seen, promise };
    let violation = match promise {
        Promise::ReadYourWrites | Promise::MonotonicReads => judge.own_reads(),
        _ => judge.own_writes().or_else(|| judge.reads_of_others()),
    };
    match (violation, seen.problem) {
        (Some(violation), _) => Verdict::Broken(violation),
        (None, Some(why)) => Verdict::Undecided { why },
        (None, None) => Verdict::Holds { examined: seen.examined },
    }
}

/// The operations of each client, in order.
#[derive(Debug)]
pub(super) struct Sessions {
    /// Indexes of operations.
    pub(super) chains: Vec<Vec<usize>>,
}

impl Sessions {
    /// Sorts operations by their clients.
    ///
    /// # Errors
    /// A client called something while it was waiting for something else: that is no session.
    pub(super) fn of(history: &History) -> Result<Sessions, String> {
        let mut clients: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, operation) in history.operations.iter().enumerate() {
            clients.entry(&operation.client).or_default().push(index);
        }
        for (client, chain) in &mut clients {
            chain.sort_by_key(|&index| history.operations[index].call_us);
            for pair in chain.windows(2) {
                let (first, second) = (&history.operations[pair[0]], &history.operations[pair[1]]);
                let is_one_request = first.together.is_some() && first.together == second.together;
                if first.return_us > Some(second.call_us) && !is_one_request {
                    return Err(format!(
                        "client {client:?} is no session: it called operation {} before operation {} \
                         had returned",
                        pair[1], pair[0]
                    ));
                }
            }
        }
        Ok(Sessions { chains: clients.into_values().collect() })
    }
}

/// What a session had written or read of a key up to a place: the latest version so far.
#[derive(Debug, Clone, Copy)]
struct Mark {
    place: usize,
    version: u64,
    operation: usize,
}

/// The marks of a key, by session, each in order of places.
type Marks = Vec<(usize, Vec<Mark>)>;

#[derive(Debug, Default)]
struct KeySeen {
    written: Marks,
    read: Marks,
    writers: HashMap<u64, (usize, usize, usize)>,
}

/// What a read found, at least and at most.
#[derive(Debug, Clone, Copy)]
struct Found {
    low: u64,
    high: u64,
}

/// What the answers show about versions.
#[derive(Debug, Default)]
struct Seen<'h> {
    keys: HashMap<&'h str, KeySeen>,
    /// By operation: what a read found, or the version that a write has.
    found: Vec<Option<Found>>,
    written: Vec<Option<u64>>,
    examined: u64,
    problem: Option<String>,
}

impl<'h> Seen<'h> {
    fn of(history: &'h History, sessions: &Sessions) -> Seen<'h> {
        let count = history.operations.len();
        let mut seen =
            Seen { found: vec![None; count], written: vec![None; count], ..Seen::default() };
        let deletes = deletes(history);
        for (session, chain) in sessions.chains.iter().enumerate() {
            for (place, &index) in chain.iter().enumerate() {
                let operation = &history.operations[index];
                match version(operation, &deletes) {
                    VersionShown::Nothing => {}
                    VersionShown::NoVersion => {
                        let why =
                            || format!("an answer carries no version: {}", describe(operation));
                        seen.problem.get_or_insert_with(why);
                    }
                    VersionShown::Read(found) => {
                        seen.found[index] = Some(found);
                        let key = seen.keys.entry(&operation.key).or_default();
                        note(
                            &mut key.read,
                            session,
                            Mark { place, version: found.low, operation: index },
                        );
                        seen.examined += 1;
                    }
                    VersionShown::Written(version) => {
                        seen.written[index] = Some(version);
                        let key = seen.keys.entry(&operation.key).or_default();
                        note(&mut key.written, session, Mark { place, version, operation: index });
                        if let Some((_, _, other)) =
                            key.writers.insert(version, (session, place, index))
                        {
                            let other = describe(&history.operations[other]);
                            let why = format!(
                                "two writes of key {:?} have version {version}: {other}, and {}",
                                operation.key,
                                describe(operation)
                            );
                            seen.problem.get_or_insert(why);
                        }
                        seen.examined += 1;
                    }
                }
            }
        }
        seen
    }
}

/// Adds a mark; a session is noted from its beginning to its end, so its marks are the last.
fn note(marks: &mut Marks, session: usize, mut mark: Mark) {
    if marks.last().is_none_or(|&(last, _)| last != session) {
        marks.push((session, Vec::new()));
    }
    let Some((_, marks)) = marks.last_mut() else { return };
    if let Some(last) = marks.last().filter(|last| last.version >= mark.version) {
        mark = Mark { place: mark.place, ..*last };
    }
    marks.push(mark);
}

/// The latest version before a place.
fn before(marks: &[Mark], place: usize) -> Option<Mark> {
    let count = marks.partition_point(|mark| mark.place < place);
    count.checked_sub(1).map(|last| marks[last])
}

/// What an answer shows about versions.
enum VersionShown {
    Nothing,
    NoVersion,
    Read(Found),
    Written(u64),
}

fn version(operation: &Operation, deletes: &HashMap<&str, Vec<(u64, u64)>>) -> VersionShown {
    if !answered(operation) || operation.stale {
        return VersionShown::Nothing;
    }
    match &operation.outcome {
        Outcome::Value { version: Some(version), .. } => {
            VersionShown::Read(Found { low: *version, high: *version })
        }
        Outcome::Value { value: None, version: None } => {
            let deletes = deletes.get(operation.key.as_str()).map_or(&[][..], Vec::as_slice);
            let may = deletes.iter().filter(|&&(call_us, _)| Some(call_us) <= operation.return_us);
            let high = may.map(|&(_, version)| version).max().unwrap_or(0);
            VersionShown::Read(Found { low: 0, high })
        }
        Outcome::Value { .. } | Outcome::Written { version: None } => VersionShown::NoVersion,
        Outcome::Written { version: Some(version) } => VersionShown::Written(*version),
        _ => VersionShown::Nothing,
    }
}

/// By key, the calls of deletes that may have happened, and their versions.
fn deletes(history: &History) -> HashMap<&str, Vec<(u64, u64)>> {
    let mut deletes: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
    for operation in &history.operations {
        if operation.action == Action::Delete && !failed(operation) {
            let version = match operation.outcome {
                Outcome::Written { version: Some(version) } => version,
                _ => u64::MAX,
            };
            deletes.entry(&operation.key).or_default().push((operation.call_us, version));
        }
    }
    deletes
}

struct Judge<'h> {
    history: &'h History,
    sessions: &'h Sessions,
    seen: &'h Seen<'h>,
    promise: Promise,
}

impl<'h> Judge<'h> {
    /// Each operation of each session, in order.
    fn each(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        self.sessions.chains.iter().enumerate().flat_map(|(session, chain)| {
            chain.iter().enumerate().map(move |(place, &index)| (session, place, index))
        })
    }

    fn key(&self, index: usize) -> Option<&'h KeySeen> {
        self.seen.keys.get(self.history.operations[index].key.as_str())
    }

    /// The marks of the kind that this promise goes by.
    fn marks(&self, key: &'h KeySeen) -> &'h Marks {
        match self.promise {
            Promise::ReadYourWrites | Promise::MonotonicWrites => &key.written,
            _ => &key.read,
        }
    }

    /// What a session had written, or read, of the key of this operation before this place.
    fn own(&self, session: usize, place: usize, index: usize) -> Option<Mark> {
        let marks = self.marks(self.key(index)?);
        let at = marks.binary_search_by_key(&session, |&(session, _)| session).ok()?;
        before(&marks[at].1, place)
    }

    /// Reads that miss what their own session had written or read.
    fn own_reads(&self) -> Option<Violation> {
        self.each().find_map(|(session, place, index)| {
            let found = self.seen.found[index]?;
            let mark = self.own(session, place, index)?;
            if found.high >= mark.version {
                return None;
            }
            let what = format!(
                "a session's read is older than what it had {}: first {}, with version {}, then {}, \
                 with version {}.",
                if self.promise == Promise::ReadYourWrites { "written" } else { "read" },
                describe(&self.history.operations[mark.operation]),
                mark.version,
                describe(&self.history.operations[index]),
                found.high
            );
            Some(self.violation(what, &[mark.operation, index]))
        })
    }

    /// Writes whose version is not later than what their own session had written or read.
    fn own_writes(&self) -> Option<Violation> {
        self.each().find_map(|(session, place, index)| {
            let version = self.seen.written[index]?;
            let mark = self.own(session, place, index)?;
            if version > mark.version {
                return None;
            }
            let what = format!(
                "a session's write has version {version}, which is not later than what it had {} \
                 before: first {}, with version {}, then {}.",
                if self.promise == Promise::MonotonicWrites { "written" } else { "read" },
                describe(&self.history.operations[mark.operation]),
                mark.version,
                describe(&self.history.operations[index]),
            );
            Some(self.violation(what, &[mark.operation, index]))
        })
    }

    /// Reads that miss what the writer of something seen before had written or read before that.
    fn reads_of_others(&self) -> Option<Violation> {
        for (reader, chain) in self.sessions.chains.iter().enumerate() {
            // By writer: the last place of a write of its that was seen, the write, the session
            // that saw it.
            let mut known: Vec<Option<(usize, usize, usize)>> =
                vec![None; self.sessions.chains.len()];
            for &index in chain {
                let (Some(found), Some(key)) = (self.seen.found[index], self.key(index)) else {
                    continue;
                };
                for (writer, marks) in self.marks(key) {
                    let Some((place, write, by)) = known[*writer] else { continue };
                    let Some(mark) = before(marks, place) else { continue };
                    if found.high < mark.version {
                        return Some(self.missed(mark, write, by, index, found));
                    }
                }
                let writer =
                    (found.low == found.high).then(|| key.writers.get(&found.low)).flatten();
                if let Some(&(writer, place, write)) = writer
                    && writer != reader
                    && known[writer].is_none_or(|(last, ..)| last < place)
                {
                    known[writer] = Some((place, write, index));
                }
            }
        }
        None
    }

    fn missed(&self, mark: Mark, write: usize, by: usize, index: usize, found: Found) -> Violation {
        let describe = |index: usize| describe(&self.history.operations[index]);
        let what = format!(
            "a session {} version {} of a key, {}, and then wrote {}. A client saw that write, {}, and \
             after it found only version {} of the key: {}.",
            if self.promise == Promise::MonotonicWrites { "wrote" } else { "read" },
            mark.version,
            describe(mark.operation),
            describe(write),
            describe(by),
            found.high,
            describe(index)
        );
        self.violation(what, &[mark.operation, write, by, index])
    }

    fn violation(&self, what: String, operations: &[usize]) -> Violation {
        let last = operations.last().map(|&last| &self.history.operations[last]);
        let mut operations = operations.to_vec();
        operations.sort_unstable();
        Violation {
            promise: self.promise,
            key: last.map(|last| last.key.clone()),
            what,
            operations,
            requests: Vec::new(),
            at_us: last.and_then(|last| last.return_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::made::{self, Size};

    const FOUR: [Promise; 4] = [
        Promise::ReadYourWrites,
        Promise::MonotonicReads,
        Promise::MonotonicWrites,
        Promise::WritesFollowReads,
    ];

    /// The promises that a history breaks, and that the others hold.
    fn broken(lines: &str) -> Vec<Promise> {
        let history = made::history(lines);
        let breaks = |promise: &Promise| match judge(&history, *promise) {
            Verdict::Broken(violation) => {
                assert_eq!(violation.promise, *promise);
                assert!(violation.operations.len() >= 2, "{violation:?}");
                true
            }
            Verdict::Holds { .. } => false,
            Verdict::Undecided { why } => panic!("{why}"),
        };
        FOUR.into_iter().filter(breaks).collect()
    }

    #[test]
    fn each_guarantee_is_broken_alone() {
        let two = "w x 0 1 put 1 ok@1\n w x 2 3 put 2 ok@2\n";
        assert_eq!(broken(&format!("{two} w x 4 5 get 1@1")), [Promise::ReadYourWrites]);
        assert_eq!(
            broken(&format!("{two} r x 4 5 get 2@2\n r x 6 7 get 1@1")),
            [Promise::MonotonicReads]
        );
        assert_eq!(broken("w x 0 1 put 1 ok@2\n w x 2 3 put 2 ok@1"), [Promise::MonotonicWrites]);
        // The reader sees the second write of the writer and not its first.
        let pair = "w x 0 1 put 1 ok@1\n w y 2 3 put 2 ok@1\n r y 4 5 get 2@1\n";
        assert_eq!(broken(&format!("{pair} r x 6 7 get none")), [Promise::MonotonicWrites]);
        // The reader sees the answer and not the question.
        let answer =
            "w x 0 1 put 1 ok@1\n v x 2 3 get 1@1\n v y 4 5 put 2 ok@1\n r y 6 7 get 2@1\n";
        assert_eq!(broken(&format!("{answer} r x 8 9 get none")), [Promise::WritesFollowReads]);
        let before = "w x 0 1 put 1 ok@2\n v x 2 3 get 1@2\n v x 4 5 put 2 ok@1";
        assert_eq!(broken(before), [Promise::WritesFollowReads]);
    }

    #[test]
    fn what_the_guarantees_allow_holds() {
        // Another session may be behind, and a session may see a key before another that is older.
        assert_eq!(broken("w x 0 1 put 1 ok@1\n w y 2 3 put 2 ok@1\n r x 4 5 get none"), []);
        assert_eq!(broken("w x 0 1 put 1 ok@1\n r x 4 5 get none\n r x 6 7 get 1@1"), []);
        // What the writer did after the write that was seen need not be there.
        assert_eq!(
            broken("w y 0 1 put 2 ok@1\n w x 2 3 put 1 ok@1\n r y 4 5 get 2@1\n r x 6 7 get none"),
            []
        );
        // A read before what it would have to follow.
        assert_eq!(
            broken("w x 0 1 put 1 ok@1\n w y 2 3 put 2 ok@1\n r x 4 5 get none\n r y 6 7 get 2@1"),
            []
        );
    }

    #[test]
    fn nothing_found_may_be_what_a_delete_left() {
        assert_eq!(broken("w x 0 1 put 1 ok@1\n w x 4 5 get none"), [Promise::ReadYourWrites]);
        assert_eq!(broken("w x 0 1 put 1 ok@1\n v x 2 3 delete ok@2\n w x 4 5 get none"), []);
        assert_eq!(broken("w x 0 1 put 1 ok@1\n v x 2 - delete unknown\n w x 4 5 get none"), []);
        // All deletes are older than the write, or were called later.
        let old =
            "v x 0 1 delete ok@1\n w x 2 3 put 1 ok@2\n w x 4 5 get none\n v x 6 7 delete ok@3";
        assert_eq!(broken(old), [Promise::ReadYourWrites]);
    }

    #[test]
    fn without_versions_or_sessions_nothing_is_decided() {
        let undecided = |lines: &str| {
            FOUR.iter().all(|&promise| {
                matches!(judge(&made::history(lines), promise), Verdict::Undecided { .. })
            })
        };
        assert!(undecided(""));
        assert!(undecided("w x 0 1 put 1 ok\n r x 2 3 get 1"));
        assert!(undecided("w x 0 1 put 1 ok@1\n r x 2 3 get 1"));
        assert!(undecided("w x 0 1 put 1 ok@1\n r x 2 3 put 2 ok@1"));
        assert!(undecided("w x 0 3 put 1 ok@1\n w x 2 5 put 2 ok@2"));
        // What can be seen in spite of that is reported.
        let history = made::history("w x 0 1 put 1 ok@1\n w x 2 3 get none\n r y 2 3 get 1");
        assert!(matches!(judge(&history, Promise::ReadYourWrites), Verdict::Broken(_)));
    }

    #[test]
    fn a_single_copy_keeps_all_four() {
        for (seed, mix) in
            (0..).zip([made::REGISTER, made::DELETES, made::CAS].iter().cycle().take(60))
        {
            let size = Size { clients: 1 + seed % 12, keys: 1 + seed % 5, operations: 300 };
            let history = made::linearizable(seed, size, *mix);
            for promise in FOUR {
                let verdict = judge(&history, promise);
                assert!(matches!(verdict, Verdict::Holds { .. }), "seed {seed}: {verdict:?}");
            }
        }
    }

    /// A read that goes back behind what its own session saw breaks monotonic reads, wherever it
    /// is.
    #[test]
    fn a_read_that_goes_back_is_found() {
        let mut spoiled = 0;
        for seed in 0..50 {
            let size = Size { clients: 4, keys: 2, operations: 200 };
            let mut history = made::linearizable(seed, size, made::REGISTER);
            let read = |o: &Operation| match o.outcome {
                Outcome::Value { version: Some(version), .. } => Some(version),
                _ => None,
            };
            let pair = (100..200).find_map(|late| {
                let after = &history.operations[late];
                read(after)?;
                let early = history.operations[..late].iter().find(|early| {
                    early.client == after.client && early.key == after.key && read(early) > Some(1)
                })?;
                Some((late, read(early)? - 1))
            });
            let Some((late, older)) = pair else { continue };
            if let Outcome::Value { version, .. } = &mut history.operations[late].outcome {
                *version = Some(older);
            }
            let Verdict::Broken(violation) = judge(&history, Promise::MonotonicReads) else {
                panic!("seed {seed}: not found");
            };
            assert!(violation.operations.contains(&late));
            spoiled += 1;
        }
        assert!(spoiled > 40, "{spoiled}");
    }
}
