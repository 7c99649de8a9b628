//! Classic anomalies, small histories beside a judge that compares everything with everything, and
//! a simulated store of several sites.

use super::*;
use crate::history::Operation;
use crate::random::Random;
use crate::verdict::made::{self, Size};

const CONVERGENT: Options =
    Options { search_steps_max: 0, causal_convergence: true, live_within_us: 0, live_grace_us: 0 };

fn verdict(lines: &str) -> Verdict {
    judge(&made::history(lines), &Options::default())
}

#[track_caller]
fn holds(lines: &str) {
    assert!(matches!(verdict(lines), Verdict::Holds { .. }), "{:?}", verdict(lines));
}

#[track_caller]
fn broken(lines: &str, pattern: &str) {
    match verdict(lines) {
        Verdict::Broken(violation) => {
            assert!(violation.what.contains(pattern), "{}", violation.what);
            assert!(!violation.operations.is_empty());
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn undecided(lines: &str, because: &str) {
    match verdict(lines) {
        Verdict::Undecided { why } => assert!(why.contains(because), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_effect_without_its_cause_is_found() {
    // The answer is seen and the question is not.
    broken(
        "a x 0 1 put 1 ok\n b x 2 3 get 1\n b y 4 5 put 2 ok\n c y 6 7 get 2\n c x 8 9 get none",
        "found nothing",
    );
    // A session loses what it wrote, and what it read.
    broken("a x 0 1 put 1 ok\n a x 2 3 get none", "found nothing");
    broken("a x 0 1 put 1 ok\n b x 2 3 get 1\n b x 4 5 get none", "found nothing");
    // What had been overwritten before the cause.
    broken(
        "a x 0 1 put 1 ok\n a x 2 3 put 2 ok\n a y 4 5 put 3 ok\n c y 6 7 get 3\n c x 8 9 get 1",
        "overwritten",
    );
    broken("a x 0 1 put 1 ok\n b x 2 3 get 1\n b x 4 5 cas 1 2 ok\n b x 6 7 get 1", "overwritten");
    broken("a x 0 1 get 7", "no client wrote");
    broken("a x 0 1 put 7 failed\n b x 2 3 get 7", "no client wrote");
    // Each sees the other's write before it was made.
    broken("a x 0 1 get 1\n a y 2 3 put 2 ok\n b y 0 1 get 2\n b x 2 3 put 1 ok", "circle");
    broken("a x 0 1 get 1\n a x 2 3 put 1 ok", "circle");
}

#[test]
fn what_is_not_a_cause_need_not_be_seen() {
    holds("");
    // Real time is no cause.
    holds("a x 0 1 put 1 ok\n b x 2 3 get none\n b x 4 5 get 1");
    // Two of which neither causes the other, seen in either order.
    let two = "a x 0 1 put 1 ok\n b x 0 1 put 2 ok\n";
    holds(&format!("{two} c x 2 3 get 1\n c x 4 5 get 2\n d x 2 3 get 2\n d x 4 5 get 1"));
    holds(&format!("{two} a x 2 3 get 2\n b x 2 3 get 1"));
    // The cause was overwritten by an operation that it did not cause.
    holds("a x 0 1 put 1 ok\n a y 2 3 put 3 ok\n b x 0 1 put 2 ok\n c y 4 5 get 3\n c x 6 7 get 2");
    // A stale read promises nothing.
    let mut stale = made::history("a x 0 1 put 1 ok\n a x 2 3 get none");
    stale.operations[1].stale = true;
    assert_eq!(judge(&stale, &Options::default()), Verdict::Holds { examined: 1 });
}

#[test]
fn replicas_that_can_never_agree_are_found_when_asked_for() {
    let judged = |lines: &str| judge(&made::history(lines), &CONVERGENT);
    let two = "a x 0 1 put 1 ok\n b x 0 1 put 2 ok\n";
    for reads in [
        "c x 2 3 get 1\n c x 4 5 get 2\n d x 2 3 get 2\n d x 4 5 get 1",
        "a x 2 3 get 2\n b x 2 3 get 1",
    ] {
        let Verdict::Broken(violation) = judged(&format!("{two}{reads}")) else {
            panic!("{reads}")
        };
        assert!(violation.operations.contains(&0) && violation.operations.contains(&1));
    }
    let agreed =
        judged(&format!("{two} a x 2 3 get 2\n b x 2 3 get 2\n c x 2 3 get 1\n c x 4 5 get 2"));
    assert_eq!(agreed, Verdict::Holds { examined: 6 });
}

#[test]
fn versions_do_not_contradict_causes() {
    broken("a x 0 1 put 1 ok@5\n b x 2 3 get 1\n b x 4 5 put 2 ok@4", "contradict");
    broken(
        "a x 0 1 put 1 ok@2\n b x 0 1 put 2 ok@1\n c x 2 3 get 1\n c x 4 5 get 2",
        "found version 1",
    );
    holds("a x 0 1 put 1 ok@1\n b x 0 1 put 2 ok@2\n c x 2 3 get 1\n c x 4 5 get 2");
    // Where not all writes have one, they do not count.
    holds(
        "a x 0 1 put 1 ok@2\n b x 0 1 put 2 ok@1\n c x 2 3 get 1\n c x 4 5 get 2\n c y 6 7 put 3 ok",
    );
}

#[test]
fn unanswered_writes_cause_only_operations_that_read_them() {
    holds("a x 0 1 put 1 unknown\n a y 2 3 put 2 ok\n b y 4 5 get 2\n b x 6 7 get none");
    holds(
        "a x 0 1 put 1 unknown\n a y 2 3 put 2 ok\n b y 4 5 get 2\n b x 6 7 get none\n b x 8 9 get 1",
    );
    broken("a x 0 1 put 1 unknown\n b x 4 5 get 1\n b x 6 7 get none", "found nothing");
    broken(
        "a y 0 1 put 1 ok\n a x 2 3 put 2 unknown\n b x 4 5 get 2\n b y 6 7 get none",
        "found nothing",
    );
    broken("a x 0 1 get 1\n a x 2 3 put 1 unknown", "circle");
}

#[test]
fn nothing_may_be_what_a_delete_left() {
    holds("a x 0 1 put 1 ok\n a x 2 3 delete ok\n a x 4 5 get none");
    holds("a x 0 1 put 1 ok\n b x 2 3 delete ok\n a x 4 5 get none");
    holds("a x 0 1 put 1 ok\n b x 2 3 delete unknown\n a x 4 5 get none");
    broken("a x 0 1 delete ok\n a x 2 3 put 1 ok\n a x 4 5 get none", "no delete explains");
    broken("a x 2 3 put 1 ok\n a x 4 5 get none\n a x 6 7 delete ok", "no delete explains");
    // The version shows which delete it was.
    let two = "a x 0 1 delete ok@1\n a x 2 3 put 1 ok@2\n b x 0 1 delete ok@3\n";
    holds(&format!("{two} a x 4 5 get none@3"));
    broken(&format!("{two} a x 4 5 get none@1"), "overwritten");
}

#[test]
fn what_cannot_be_distinguished_is_not_decided() {
    undecided("a x 0 1 put 1 ok\n b x 2 3 put 1 ok", "key \"x\" got one value twice");
    undecided("a x 0 1 add 1 = 1\n b x 2 3 get 1", "key \"x\" was added to");
    undecided("a x 0 3 put 1 ok\n a x 2 5 put 2 ok", "no session");
    // The other keys are judged all the same.
    broken("a x 0 1 put 1 ok\n b x 2 3 put 1 ok\n a y 4 5 get 3", "no client wrote");
    // A write that failed and was tried again is one.
    holds("a x 0 1 put 1 failed\n a x 2 3 put 1 ok\n b x 4 5 get 1");
}

/// The four patterns, as published, with the causes of everything as one table.
fn patterns(history: &History) -> bool {
    let all = &history.operations;
    let count = all.len();
    let write_of =
        |read: &Operation| match &read.outcome {
            Outcome::Value { value: Some(value), .. } => Some(all.iter().position(|o| {
                o.key == read.key && o.action == Action::Put { value: value.clone() }
            })),
            _ => None,
        };
    let mut causes = vec![vec![false; count]; count];
    for (b, later) in all.iter().enumerate() {
        for (a, earlier) in all.iter().enumerate() {
            causes[a][b] = earlier.client == later.client && earlier.call_us < later.call_us;
        }
        match write_of(later) {
            Some(Some(write)) => causes[write][b] = true,
            Some(None) => return true,
            None => {}
        }
    }
    for via in 0..count {
        for a in 0..count {
            for b in 0..count {
                causes[a][b] |= causes[a][via] && causes[via][b];
            }
        }
    }
    let is_write = |index: usize| matches!(all[index].action, Action::Put { .. });
    (0..count).any(|index| causes[index][index])
        || (0..count).filter(|&read| !is_write(read)).any(|read| {
            (0..count).any(|write| {
                let of_key = is_write(write) && all[write].key == all[read].key;
                of_key
                    && causes[write][read]
                    && match write_of(&all[read]).flatten() {
                        None => true,
                        Some(source) => source != write && causes[source][write],
                    }
            })
        })
}

#[test]
fn a_judge_that_compares_everything_agrees() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..20_000 {
        let mut random = Random::stream(seed, "causal", 0);
        let mut lines = String::new();
        let count = 4 + random.below(6);
        for number in 0..count {
            let (client, key) = (random.below(3), random.below(2));
            let at = 10 * number;
            let what = match random.below(2) {
                0 => format!("put {} ok", number * 2 + key),
                _ if random.chance(300) => "get none".to_owned(),
                _ => format!("get {}", random.below(count) * 2 + key),
            };
            lines += &format!("c{client} k{key} {at} {} {what}\n", at + 1);
        }
        let mut history = made::history(&lines);
        // Mostly values that an operation wrote; sometimes ones that none did.
        let values: Vec<(String, String)> = history
            .operations
            .iter()
            .filter_map(|o| match &o.action {
                Action::Put { value } => Some((o.key.clone(), value.clone())),
                _ => None,
            })
            .collect();
        for operation in &mut history.operations {
            let own: Vec<&String> = values
                .iter()
                .filter(|(key, _)| *key == operation.key)
                .map(|(_, value)| value)
                .collect();
            if let Outcome::Value { value: Some(found), .. } = &mut operation.outcome
                && !own.is_empty()
                && random.chance(980)
            {
                *found = (*random.pick(&own)).clone();
            }
        }
        match judge(&history, &Options::default()) {
            Verdict::Holds { .. } if !patterns(&history) => good += 1,
            Verdict::Broken(_) if patterns(&history) => bad += 1,
            other => panic!("seed {seed}: {other:?} of\n{history:#?}"),
        }
    }
    assert!(good > 4_000 && bad > 4_000, "{good} good ones and {bad} bad ones prove little");
}

#[test]
fn a_single_copy_is_causal() {
    for (seed, mix) in (0..).zip([made::REGISTER, made::DELETES, made::CAS].iter().cycle().take(60))
    {
        let size = Size { clients: 1 + seed % 12, keys: 1 + seed % 5, operations: 300 };
        let mut history = made::linearizable(seed, size, *mix);
        for versions in [true, false] {
            let verdict = judge(&history, &CONVERGENT);
            assert!(
                matches!(verdict, Verdict::Holds { .. }),
                "seed {seed}, {versions}: {verdict:?}"
            );
            history.operations.iter_mut().for_each(forget_version);
        }
    }
}

fn forget_version(operation: &mut Operation) {
    if let Outcome::Value { version, .. } | Outcome::Written { version } = &mut operation.outcome {
        *version = None;
    }
}

/// A write on its way from site to site.
#[derive(Clone)]
struct Sent {
    key: usize,
    value: Option<String>,
    version: u64,
    /// Which writes of each site its site had when it was made.
    after: Vec<usize>,
    site: usize,
}

/// The history of a store of several sites, each with clients of its own. Writes go to the others
/// later; of two writes of a key the later version stays. With `waits`, a site takes up a write
/// only after all that it may have been caused by, so that the store is causal.
fn sites(seed: u64, operations: usize, waits: bool) -> History {
    const SITES: usize = 3;
    const KEYS: usize = 4;
    let mut random = Random::stream(seed, "sites", 0);
    let mut held = vec![vec![(0_u64, None::<String>); KEYS]; SITES];
    let mut has = vec![vec![0_usize; SITES]; SITES];
    let mut pending: Vec<Vec<Sent>> = vec![Vec::new(); SITES];
    let mut clock = [0_u64; SITES];
    let mut lines = Vec::new();
    for number in 0..operations {
        let site = random.below(SITES as u64) as usize;
        let key = random.below(KEYS as u64) as usize;
        let client = format!("s{site}c{}", random.below(3));
        let at = 10 * number;
        let mut line = format!("{client} k{key} {at} {} ", at + 1);
        if random.chance(500) {
            clock[site] += 1;
            let version = clock[site] * SITES as u64 + site as u64;
            let value = random.chance(850).then(|| format!("v{number}"));
            held[site][key] = (version, value.clone());
            let after = has[site].clone();
            has[site][site] += 1;
            line += &match &value {
                Some(value) => format!("put {value} ok@{version}"),
                None => format!("delete ok@{version}"),
            };
            for to in (0..SITES).filter(|&to| to != site) {
                pending[to].push(Sent {
                    key,
                    value: value.clone(),
                    version,
                    after: after.clone(),
                    site,
                });
            }
        } else {
            line += &match &held[site][key] {
                (0, _) => "get none".to_owned(),
                (version, Some(value)) => format!("get {value}@{version}"),
                (version, None) => format!("get none@{version}"),
            };
        }
        lines.push(line);
        let to = random.below(SITES as u64) as usize;
        for _ in 0..random.below(3) {
            let fits = |sent: &Sent| !waits || sent.after.iter().zip(&has[to]).all(|(a, h)| a <= h);
            let fitting: Vec<usize> =
                (0..pending[to].len()).filter(|&i| fits(&pending[to][i])).collect();
            if fitting.is_empty() {
                break;
            }
            let sent = pending[to].remove(*random.pick(&fitting));
            has[to][sent.site] += 1;
            clock[to] = clock[to].max(sent.version / SITES as u64);
            if held[to][sent.key].0 < sent.version {
                held[to][sent.key] = (sent.version, sent.value);
            }
        }
    }
    made::history(&lines.join("\n"))
}

#[test]
fn a_causal_store_of_several_sites_holds() {
    for seed in 0..60 {
        let mut history = sites(seed, 400, true);
        assert_eq!(judge(&history, &CONVERGENT), Verdict::Holds { examined: 400 }, "seed {seed}");
        history.operations.iter_mut().for_each(forget_version);
        assert_eq!(judge(&history, &CONVERGENT), Verdict::Holds { examined: 400 }, "seed {seed}");
    }
}

#[test]
fn a_store_that_does_not_wait_for_causes_is_found() {
    let found = |options: &Options, versions: bool| {
        let broken = (0..60).filter(|&seed| {
            let mut history = sites(seed, 400, false);
            if !versions {
                history.operations.iter_mut().for_each(forget_version);
            }
            matches!(judge(&history, options), Verdict::Broken(_))
        });
        broken.count()
    };
    let found = [
        found(&Options::default(), true),
        found(&Options::default(), false),
        found(&CONVERGENT, false),
    ];
    // A write that came too soon is not always read in time; versions show it oftener.
    assert!(found.iter().all(|&found| found >= 5) && found[0] >= 25, "{found:?}");
}

#[test]
fn a_hundred_thousand_operations_are_judged() {
    let size = Size { clients: 30, keys: 100, operations: 100_000 };
    let history = made::linearizable(7, size, made::REGISTER);
    assert!(matches!(judge(&history, &CONVERGENT), Verdict::Holds { .. }));
}
