//! The counterexamples of causal keys as histories that are refused, histories beside them that are
//! right, and long ones from a model of a region.

use super::super::Verdict;
use super::{judge, made};
use crate::history::{Assigned, Got, History, Position, Promise, Register, Request, Seen, WriteId};
use crate::random::Random;

const SESSIONS: [Promise; 4] = [
    Promise::ReadYourWrites,
    Promise::MonotonicReads,
    Promise::MonotonicWrites,
    Promise::WritesFollowReads,
];

#[track_caller]
fn holds(lines: &str) {
    let history = made::history(lines);
    for promise in SESSIONS.into_iter().chain([Promise::Causal]) {
        let verdict = judge(&history, promise);
        assert!(matches!(verdict, Verdict::Holds { .. }), "{promise}: {verdict:?}");
    }
}

/// It breaks these promises, `causal` first, and no other.
#[track_caller]
fn broken(lines: &str, promises: &[Promise], what: &str) {
    let history = made::history(lines);
    for promise in SESSIONS.into_iter().chain([Promise::Causal]) {
        match judge(&history, promise) {
            Verdict::Broken(violation) => {
                assert!(promises.contains(&promise), "{promise}: {}", violation.what);
                assert!(
                    promise != promises[0] || violation.what.contains(what),
                    "{}",
                    violation.what
                );
                assert!(!violation.requests.is_empty() && violation.key.is_some());
                assert!(violation.describe(&history).lines().count() > violation.requests.len());
            }
            Verdict::Holds { .. } => assert!(!promises.contains(&promise), "{promise} holds"),
            Verdict::Undecided { why } => panic!("{promise}: {why}"),
        }
    }
}

#[track_caller]
fn undecided(lines: &str, because: &str) {
    match judge(&made::history(lines), Promise::Causal) {
        Verdict::Undecided { why } => assert!(why.contains(because), "{why}"),
        other => panic!("{other:?}"),
    }
}

const CAUSAL: Promise = Promise::Causal;
const RYW: Promise = Promise::ReadYourWrites;
const MR: Promise = Promise::MonotonicReads;
const MW: Promise = Promise::MonotonicWrites;
const WFR: Promise = Promise::WritesFollowReads;

#[test]
fn x1_a_target_admits_its_own_version_without_what_comes_before() {
    let written = "r@R put x=R1\n w@C put y=C1\n R1 @ 1\n C1 @ 2\n m@A get x=R1\n m@A get y=C1\n";
    broken(&format!("{written} m@C get x=none"), &[CAUSAL, MR], "no delete explains it");
    holds(&format!("{written} m@C get x=R1"));
}

#[test]
fn x2_a_write_is_forgotten_when_its_writer_moves() {
    let written = "m@A put x=A1\n A1 @ 1\n";
    broken(&format!("{written} m@R get y=none\n m@C get x=none"), &[CAUSAL, RYW], "found nothing");
    holds(&format!("{written} m@R get y=none\n m@C get x=A1"));
}

#[test]
fn x3_a_pending_write_is_overtaken_and_restored() {
    let written = "a@A put x=A1\n r@R put x=R1\n R1 @ 1\n A1 @ 2\n";
    let flip = "b@A get x=A1\n b@A get x=R1\n b@A get x=A1";
    broken(&format!("{written} {flip}"), &[CAUSAL, MR], "has position 2, and is in its past");
    holds(&format!("{written} b@A get x=A1\n b@A get x=A1\n c@C get x=R1\n c@C get x=A1"));
}

#[test]
fn x4_what_is_fetched_is_followed_by_what_is_older() {
    let written = "r@R put x=R1\n r@R put x=R2\n R1 @ 1\n R2 @ 2\n";
    broken(&format!("{written} c@C get x=R2\n c@C get x=R1"), &[CAUSAL, MR], "older than its past");
    holds(&format!("{written} c@C get x=R1\n c@C get x=R2"));
}

#[test]
fn x5_a_deleted_value_comes_back() {
    let written = "r@R put x=R1\n r@R del x=R2\n R1 @ 1\n R2 @ 2\n";
    // The answer names the delete.
    broken(
        &format!("{written} m@A get x=none(R2)\n m@C get x=R1"),
        &[CAUSAL, MR],
        "older than its past",
    );
    // It does not, but only the delete explains that there was nothing.
    let seen = format!("{written} m@A get x=R1\n m@A get x=none\n");
    broken(&format!("{seen} m@C get x=R1"), &[CAUSAL, MR], "came back after its delete");
    // It may have been the beginning.
    holds(&format!("{written} m@A get x=none\n m@C get x=R1\n m@C get x=none"));
}

#[test]
fn x6_a_retried_write_takes_effect_twice() {
    // Sent to A without an answer, ordered at the root, read and overwritten; then A's own counts
    // as new.
    let written = "m@A put x=?\n m@R put x=R1\n o@R get x=R1\n o@R put x=R2\n R1 @ 1\n R2 @ 2\n";
    let end = "o@R get x=A1";
    // What A offers is a write of its own, at 3; the other's session then reads u again, as the
    // newest.
    holds(&format!("{written} A1 @ 3 same 1"));
    broken(&format!("{written} A1 @ 3 same 1\n {end}"), &[CAUSAL, RYW], "older than its past");
}

#[test]
fn x7_a_superseded_write_is_restored_by_its_own_position() {
    let written = "a@A put x=A1\n b@A get x=A1\n m@A put x=?\n m@R put x=R1\n";
    let reads = "b@A get x=R1\n b@A get x=A1";
    broken(
        &format!("{written} {reads}\n R1 @ 1\n A1 @ 2 below 1"),
        &[CAUSAL, MR],
        "has a place below position 1; but",
    );
    // Not superseded, it is the later one; then the reads between break it.
    broken(&format!("{written} {reads}\n R1 @ 1\n A1 @ 2"), &[CAUSAL, MR], "has position 2");
    holds(&format!(
        "{written} b@A get x=R1\n R1 @ 1\n A1 @ 2 below 1\n A2 @ 3 same 1\n b@A get x=A2"
    ));
}

#[test]
fn x8_an_effect_overtakes_its_cause_through_another_keyspace() {
    let written = "m@A put p:x=A1\n m@A put q:y=A2\n A2 @ 1\n A1 @ 2\n";
    broken(written, &[CAUSAL, MW], "ordered before its cause");
    broken(
        &format!("{written} c@C get q:y=A2,p:x=none"),
        &[CAUSAL, MW],
        "ordered before its cause",
    );
    // The order may be right and what is shown wrong.
    let written = "m@A put p:x=A1\n m@A put q:y=A2\n A1 @ 1\n A2 @ 2\n";
    broken(&format!("{written} c@C get q:y=A2\n c@C get p:x=none"), &[CAUSAL, MW], "found nothing");
    broken(
        &format!("{written} c@C get q:y=A2,p:x=none"),
        &[CAUSAL],
        "the same request found elsewhere",
    );
    holds(&format!("{written} c@C get q:y=A2,p:x=A1"));
    holds(&format!("{written} c@C get p:x=none\n c@C get q:y=A2"));
}

#[test]
fn a_past_is_transitive_and_exact() {
    // Through two sessions and three keys.
    let chain = "a@A put x=A1\n b@B get x=A1\n b@B put y=B1\n c@C get y=B1\n c@C put z=C1\n \
                 A1 @ 1\n B1 @ 2\n C1 @ 3\n d@D get z=C1\n";
    broken(&format!("{chain} d@D get x=none"), &[CAUSAL], "is in its past: by d@D read z = C:1");
    holds(&format!("{chain} d@D get x=A1"));
    // What has a lower position and did not cause it need not be seen.
    holds("a@A put x=A1\n b@B put y=B1\n A1 @ 1\n B1 @ 2\n c@C get y=B1\n c@C get x=none");
    // A write after reading is higher than what was read.
    broken(
        "a@A put x=A1\n b@B get x=A1\n b@B put y=B1\n B1 @ 1\n A1 @ 2",
        &[CAUSAL, WFR],
        "before its cause",
    );
}

#[test]
fn registers_are_assigned_by_what_covers_them() {
    let fields = "a@A put h.f=A1\n a@A put h.g=A2\n a@A del h=A3\n A1 @ 1\n A2 @ 2\n A3 @ 3\n";
    broken(
        &format!("{fields} b@B get h.f=none(A3)\n b@B get h.g=A2"),
        &[CAUSAL],
        "older than its past",
    );
    holds(&format!("{fields} b@B get h.f=A1,h.g=A2\n b@B get h.f=none(A3),h.g=none"));
    let cleared = "a@A put p:x=A1\n r@R del p:*=R1\n A1 @ 1\n R1 @ 2\n b@B get p:y=none(R1)\n";
    broken(&format!("{cleared} b@B get p:x=A1"), &[CAUSAL], "older than its past");
    holds(&format!("{cleared} b@B get p:x=none,q:x=none"));
    // The region lets a key expire by itself.
    let expired = "a@A put x=A1\n A1 @ 1\n R9 @ 2 removes x\n b@B get x=A1\n b@B get x=none(R9)\n";
    holds(expired);
    broken(&format!("{expired} b@B get x=A1"), &[CAUSAL, MR], "older than its past");
}

#[test]
fn a_transaction_is_seen_whole() {
    let written = "a@A put x,y=A1\n a@A put x,y=A2\n A1 @ 1\n A2 @ 2\n";
    broken(&format!("{written} b@B get x=A2,y=A1"), &[CAUSAL], "is part of it");
    holds(&format!("{written} b@B get x=A1,y=A1\n b@B get x=A2,y=A2"));
}

#[test]
fn what_is_not_known_is_not_judged() {
    undecided("a@A put x=A1", "has no position");
    undecided("a@A put x=A1\n a@A put y=A2\n A1 @ 1\n A2 @ 1", "both have position 1");
    undecided("a@A put x=A1\n A1 @ 1\n A1 @ 2", "two positions");
    undecided("a@A put x=A1\n b@A put y=A1\n A1 @ 1", "two writes have the identity A:1");
    undecided("m@A put x=?\n b@A get x=A1", "was read and has no position");
    // What the rest shows is shown all the same.
    let history = made::history("a@A put x=A1\n A1 @ 1\n a@A get x=none\n b@B put y=B1");
    assert!(matches!(judge(&history, CAUSAL), Verdict::Broken(_)));
    let nowhere = made::history("a@A put x=A1\n A1 @ 1\n b@A get x=A7");
    let Verdict::Broken(violation) = judge(&nowhere, CAUSAL) else { panic!("it is from nowhere") };
    assert!(violation.what.contains("no request wrote A:7"), "{}", violation.what);
}

#[test]
fn an_unanswered_write_that_was_read_happened() {
    let written = "m@A put x=?\n A1 @ 1\n b@A get x=A1\n";
    holds(written);
    broken(&format!("{written} b@B get x=none"), &[CAUSAL, MR], "no delete explains it");
    // It was read before something that must come later.
    let caused = format!("{written} b@A put y=A2\n A2 @ 2\n c@C get y=A2\n");
    broken(&format!("{caused} c@C get x=none"), &[CAUSAL, WFR], "no delete explains it");
    holds(&format!("{caused} c@C get x=A1"));
}

#[test]
fn lost_writes_come_after_all_others() {
    // Their readers were at the lost site, and end there.
    holds("a@A put x=A1\n a@A put x=A2\n b@A get x=A2\n b2@B get x=A1\n A1 @ 1\n A2 lost");
    broken(
        "a@A put x=A2\n b@A get x=A2\n b@B put y=B1\n A2 lost\n B1 @ 1",
        &[CAUSAL, WFR],
        "lost with its site",
    );
    let durable = |lines: &str| judge(&made::history(lines), Promise::Durable);
    assert!(matches!(durable("a@A put x=A2\n A2 lost"), Verdict::Holds { .. }));
    assert!(matches!(durable("a@A put x=A2"), Verdict::Undecided { .. }));
}

#[test]
fn operations_beside_requests_are_of_other_keys() {
    let options = super::super::Options::default();
    let mut history = made::history("a@A put x=A1\n A1 @ 1\n a@A get x=A1");
    let promises = super::super::allowed(&history);
    assert!(promises.contains(&CAUSAL) && !promises.contains(&Promise::Linearizable));
    let one = |history: &History| super::super::one(history, CAUSAL, &options);
    assert_eq!(one(&history), Verdict::Holds { examined: 2 });
    // No session is promised anything about these.
    let others = super::super::made::history("a k 0 1 put 1 ok\n a k 2 3 get none");
    history.operations = others.operations;
    assert_eq!(one(&history), Verdict::Holds { examined: 2 });
    history.requests[1].reads[0].found = None;
    history.requests[1].reads[0].absent = true;
    assert!(matches!(one(&history), Verdict::Broken(violation) if violation.operations.is_empty()));
}

/// A region as it should be: sites that show a prefix of one order with their own pending writes on
/// top, and sessions that wait where they come to. `skips`: of a thousand moves, how many do not
/// wait.
fn region(seed: u64, count: usize, skips: u64) -> History {
    let mut random = Random::stream(seed, "region", 0);
    let (sites, keys, clients) = (3_usize, 5, 6_usize);
    let mut history = History::default();
    let mut order: Vec<(usize, usize, u64)> = Vec::new(); // site, key, revision
    let mut pending: Vec<Vec<(usize, u64)>> = vec![Vec::new(); sites];
    let mut covered = vec![0_usize; sites];
    let mut at: Vec<usize> = (0..clients).map(|client| client % sites).collect();
    // How far into the order each client has seen.
    let mut past = vec![0_usize; clients];
    let mut last_write: Vec<Option<usize>> = vec![None; clients];
    let name = |site: usize| char::from(b'A' + site as u8).to_string();
    for number in 0..count {
        let client = random.below(clients as u64) as usize;
        if random.chance(300) {
            let site = random.below(sites as u64) as usize;
            for (key, revision) in std::mem::take(&mut pending[site]) {
                order.push((site, key, revision));
            }
        }
        let site = random.below(sites as u64) as usize;
        let more = random.below((order.len() - covered[site]) as u64 + 1) as usize;
        covered[site] += more;
        if random.chance(100) {
            let target = random.below(sites as u64) as usize;
            if let Some(origin) = last_write[client].filter(|origin| *origin != target) {
                // The own writes are ordered first.
                for (key, revision) in std::mem::take(&mut pending[origin]) {
                    order.push((origin, key, revision));
                }
                past[client] = order.len();
            }
            at[client] = target;
            if !random.chance(skips) {
                covered[target] = covered[target].max(past[client]);
            }
        }
        let site = at[client];
        let mut request = Request {
            client: format!("c{client}"),
            site: name(site),
            call_us: 10 * number as u64,
            return_us: Some(10 * number as u64 + 5),
            reads: Vec::new(),
            writes: Vec::new(),
            write: None,
            got: Got::Done,
        };
        let key = random.below(keys) as usize;
        let register = |key: usize| Register::Key(format!("k{key}"));
        if random.chance(400) {
            request.writes =
                vec![Assigned { register: register(key), deletes: random.chance(100) }];
            request.write = Some(WriteId { site: name(site), revision: number as u64 });
            pending[site].push((key, number as u64));
            last_write[client] = Some(site);
        } else {
            for key in [key, (key + 1) % keys as usize] {
                let own = pending[site].iter().rev().find(|(of, _)| *of == key);
                let own = own.map(|(_, revision)| (site, *revision));
                // An ordered write of this site stays on top until the site covers it.
                let late = order[covered[site]..].iter().rev();
                let mut late = late.filter(|(origin, of, _)| *origin == site && *of == key);
                let late = late.next().map(|(_, _, revision)| (site, *revision));
                let seen = order[..covered[site]].iter().rev().find(|(_, of, _)| *of == key);
                let seen = seen.map(|(origin, _, revision)| (*origin, *revision));
                let found = own.or(late).or(seen);
                let found = found.map(|(site, revision)| WriteId { site: name(site), revision });
                let absent = found.is_none();
                request.reads.push(Seen { register: register(key), found, absent });
            }
            past[client] = past[client].max(covered[site]);
            // What it saw of this site's own.
            last_write[client] = Some(site);
        }
        history.requests.push(request);
    }
    for (site, pending) in pending.into_iter().enumerate() {
        order.extend(pending.into_iter().map(|(key, revision)| (site, key, revision)));
    }
    for (place, (site, _, revision)) in order.into_iter().enumerate() {
        let position = Some(place as u64 + 1);
        let (instead, removes) = (Vec::new(), Vec::new());
        history.positions.push(Position { site: name(site), revision, position, instead, removes });
    }
    history
}

/// What was not answered may have been done before all that was, unless its place is known.
#[test]
fn a_delete_without_an_answer_may_have_come_at_any_time() {
    let lines = "w@A put x=A1\n d@B del x=?\n r@B get x=A1\n r@B get x=none\n w@A put x=A3\n r@B get x=A3\n \
         e@A del x=A5\n A1 @ 1\n A3 @ 3\n B2 @ 2\n A5 @ 5";
    holds(lines);
    let mut history = made::history(lines);
    let id = WriteId { site: "B".to_owned(), revision: 2 };
    history.requests[1].write = Some(id.clone());
    for promise in SESSIONS.into_iter().chain([CAUSAL]) {
        let verdict = judge(&history, promise);
        assert!(matches!(verdict, Verdict::Holds { .. }), "{promise}: {verdict:?}");
    }
    // It came after the write that was found again.
    let place = history.positions.iter_mut().find(|place| place.site == id.site).unwrap();
    place.position = Some(4);
    for promise in [MR, CAUSAL] {
        assert!(matches!(judge(&history, promise), Verdict::Broken(_)), "{promise}");
    }
}

/// A read that returned before a delete was called did not see it, whatever became of it.
#[test]
fn a_delete_without_an_answer_explains_no_read_before_it() {
    let written = "w@A put x=A1\n A1 @ 1\n r@B get x=A1\n";
    let missed = format!("{written} r@B get x=none\n d@B del x=?");
    broken(&missed, &[CAUSAL, MR], "no delete explains it");
    holds(&format!("{written} d@B del x=?\n r@B get x=none"));
    // Of several the earliest counts, also of what clears whole keyspaces.
    holds(&format!("{written} d@B del *=?\n r@B get x=none\n e@B del x=?"));
    let other = "w@A put y=A2\n A2 @ 2\n r@B get y=A2\n r@B get x=none\n d@B del x=?";
    broken(&format!("{written} {other}"), &[CAUSAL, MR, MW], "no delete explains it");
    // It may still run when a read that was called before it returns.
    let mut history = made::history(&missed);
    history.requests[2].return_us = Some(history.requests[3].call_us + 1);
    let verdict = judge(&history, CAUSAL);
    assert!(matches!(verdict, Verdict::Holds { .. }), "{verdict:?}");
}

#[test]
fn a_region_that_is_right_passes_and_one_that_does_not_wait_fails() {
    let mut broken = 0;
    for seed in 0..40 {
        let right = region(seed, 400, 0);
        for promise in SESSIONS.into_iter().chain([CAUSAL]) {
            let verdict = judge(&right, promise);
            assert_eq!(verdict, Verdict::Holds { examined: 400 }, "seed {seed}, {promise}");
        }
        broken += u32::from(matches!(judge(&region(seed, 400, 500), CAUSAL), Verdict::Broken(_)));
    }
    assert!(broken >= 35, "{broken} of 40");
}

/// Ten times the requests take about ten times the steps: what is counted here is looked up, not
/// time.
#[test]
fn long_histories_are_judged() {
    let history = region(1, 20_000, 0);
    for promise in SESSIONS.into_iter().chain([CAUSAL]) {
        assert_eq!(judge(&history, promise), Verdict::Holds { examined: 20_000 });
    }
}
