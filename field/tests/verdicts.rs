//! A second opinion: Porcupine, a checker that is not ours, judges the same histories as
//! `portolan lab verdict`, and both must give the same result for each.
//!
//! The histories are made here, from a seed (`PORTOLAN_SEED`): a store of a few keys that is right,
//! whose answers are then spoiled here and there in ways that may or may not matter. What is right
//! is decided by the two judges alone.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use field::{binary, number_from_env, toolchain};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

const SMALL: usize = 500;
const MEDIUM: usize = 200;
/// Each result must come so often at least.
const EACH_MIN: usize = 150;
/// Porcupine may leave so many open at most: it has a limit of time.
const UNKNOWN_MAX: usize = 5;

#[test]
fn porcupine_says_the_same_of_every_history() {
    if !toolchain::present("go", "version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let seed = number_from_env("PORTOLAN_SEED", 1);
    eprintln!("PORTOLAN_SEED={seed}");
    let files: Vec<PathBuf> = (0..SMALL + MEDIUM)
        .map(|number| {
            let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003) + number as u64);
            let length = match number < SMALL {
                true => random.random_range(3..20),
                false => random.random_range(50..150),
            };
            let file = folder.path().join(format!("{number}.jsonl"));
            std::fs::write(&file, history(&mut random, length)).unwrap();
            file
        })
        .collect();
    let (ours, theirs) = (our_opinions(&files), their_opinions(&files));
    assert_eq!((ours.len(), theirs.len()), (files.len(), files.len()));
    let (mut good, mut bad, mut unknown) = (0, 0, 0);
    for ((file, ours), theirs) in files.iter().zip(&ours).zip(&theirs) {
        match (ours.as_str(), theirs.as_str()) {
            ("holds", "linearizable") => good += 1,
            ("broken", "not linearizable") => bad += 1,
            (_, "unknown") => unknown += 1,
            _ => {
                let text = std::fs::read_to_string(file).unwrap();
                panic!("our verdict is {ours}, Porcupine's is {theirs}:\n{text}");
            }
        }
    }
    eprintln!("{good} linearizable, {bad} not, {unknown} not known");
    assert!(
        good >= EACH_MIN && bad >= EACH_MIN,
        "{good} good ones and {bad} bad ones prove little"
    );
    assert!(unknown <= UNKNOWN_MAX, "Porcupine left {unknown} open");
}

/// The result of `portolan lab verdict` for each file: one JSON document a file, in their order; it
/// ends with 0 if all hold and with 1 if one is broken.
fn our_opinions(files: &[PathBuf]) -> Vec<String> {
    let mut program = Command::new(binary::portolan());
    program.args(["lab", "verdict", "--json", "--only", "linearizable"]).args(files);
    let output = program.stderr(Stdio::inherit()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}", output.status);
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let opinion = |document: Value| {
        let verdict = &document["verdicts"][0];
        assert_eq!(verdict["promise"], "linearizable", "{document}");
        verdict["verdict"].as_str().unwrap_or_else(|| panic!("{document}")).to_owned()
    };
    documents.map(|document| opinion(document.unwrap())).collect()
}

/// Porcupine's result for each file.
fn their_opinions(files: &[PathBuf]) -> Vec<String> {
    let mut program = toolchain::go("judges/porcupine");
    let output = program.args(files).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What clients do to a key; keys differ in it, since a counter is no register.
const KINDS: [&[&str]; 4] = [
    &["get", "put"],
    &["get", "put", "delete"],
    &["get", "put", "compare_and_set"],
    &["get", "add"],
];

/// An operation on its way: what it does, when, and what it will return.
struct Planned {
    key: usize,
    kind: &'static str,
    client: usize,
    call_us: u64,
    effect_us: Option<u64>,
    return_us: Option<u64>,
    action: Value,
    got: Value,
}

/// A history of so many operations, as text.
fn history(random: &mut StdRng, length: usize) -> String {
    let kinds: Vec<&[&'static str]> =
        (0..random.random_range(1..4)).map(|_| *KINDS.choose(random).unwrap()).collect();
    let mut planned = plan(random, &kinds, length);
    happen(random, &mut planned, kinds.len());
    planned.sort_by_key(|planned| planned.call_us);
    if random.random_bool(0.7) {
        spoil(random, &mut planned);
    }
    let header = json!({"type": "header", "format": 1, "source": "field"});
    let mut lines = vec![header.to_string()];
    lines.extend(planned.iter().map(|planned| planned.line().to_string()));
    lines.join("\n")
}

/// The client, its call, and when it takes effect, if it does.
fn plan(random: &mut StdRng, kinds: &[&[&'static str]], length: usize) -> Vec<Planned> {
    let mut free_us: VecDeque<(usize, u64)> =
        (0..random.random_range(2..6)).map(|client| (client, 0)).collect();
    let mut planned = Vec::new();
    for _ in 0..length {
        let Some((client, from_us)) = free_us.pop_front() else { break };
        let call_us = from_us + random.random_range(0..30);
        let back_us = call_us + random.random_range(0..60);
        free_us.push_back((client, back_us + 1));
        let key = random.random_range(0..kinds.len());
        let (mut effect_us, mut return_us) =
            (Some(random.random_range(call_us..=back_us)), Some(back_us));
        let mut got = Value::Null;
        if random.random_bool(0.05) {
            got = json!({"unknown": {"why": "timed out"}});
            let later = call_us + random.random_range(0..300);
            effect_us = random.random_bool(0.6).then_some(later);
            return_us = return_us.filter(|_| random.random_bool(0.5));
        } else if random.random_bool(0.03) {
            got = json!({"failed": {"why": "no leader"}});
            effect_us = None;
        }
        let kind = kinds[key].choose(random).unwrap();
        planned.push(Planned {
            key,
            kind,
            client,
            call_us,
            effect_us,
            return_us,
            action: Value::Null,
            got,
        });
    }
    planned
}

/// Lets everything take effect in its order; what the store answers stays with each operation.
fn happen(random: &mut StdRng, planned: &mut [Planned], keys: usize) {
    planned.sort_by_key(|planned| planned.effect_us);
    let mut held: Vec<Option<String>> = vec![None; keys];
    for (number, planned) in planned.iter_mut().enumerate() {
        let held = &mut held[planned.key];
        let value = format!("v{number}");
        let written = json!({"written": {}});
        let (action, got, after) = match planned.kind {
            "get" => (json!("get"), json!({"value": {"value": held}}), held.clone()),
            "put" => (json!({"put": {"value": value}}), written, Some(value)),
            "delete" => (json!("delete"), written, None),
            "add" => {
                let delta = *[1, 1, 2, -1].choose(random).unwrap();
                let sum = held.as_deref().map_or(0, |text| text.parse::<i64>().unwrap()) + delta;
                (
                    json!({"add": {"delta": delta}}),
                    json!({"number": {"value": sum}}),
                    Some(sum.to_string()),
                )
            }
            _ => {
                let expected = match random.random_bool(0.6) {
                    true => held.clone(),
                    false => Some(format!("v{}", random.random_range(0..=number))),
                };
                let action = json!({"compare_and_set": {"expected": expected, "value": value}});
                match expected == *held {
                    true => (action, written, Some(value)),
                    false => (action, json!("conflict"), held.clone()),
                }
            }
        };
        planned.action = action;
        if planned.got.is_null() {
            planned.got = got;
        }
        if planned.effect_us.is_some() {
            *held = after;
        }
    }
}

/// Changes an answer or two, or the time at which one came.
fn spoil(random: &mut StdRng, planned: &mut [Planned]) {
    for _ in 0..random.random_range(1..5) {
        let at = random.random_range(0..planned.len());
        let same = |other: &Planned| other.key == planned[at].key && other.kind == planned[at].kind;
        let like: Vec<usize> = (0..planned.len()).filter(|&other| same(&planned[other])).collect();
        let other = *like.choose(random).unwrap();
        match random.random_range(0..4) {
            // Two answers change places.
            0 if planned[at].kind != "compare_and_set" => {
                let got = planned[at].got.clone();
                planned[at].got = std::mem::replace(&mut planned[other].got, got);
            }
            // An exchange that was won was lost, or the other way around.
            1 if planned[at].got == json!("conflict") => planned[at].got = json!({"written": {}}),
            1 if planned[at].kind == "compare_and_set" => planned[at].got = json!("conflict"),
            // Nothing was there.
            1 if planned[at].kind == "get" => planned[at].got = json!({"value": {"value": null}}),
            // It was refused after all.
            2 => planned[at].got = json!({"failed": {"why": "spoiled"}}),
            // It was over sooner.
            _ => planned[at].return_us = planned[at].return_us.map(|_| planned[at].call_us),
        }
    }
}

impl Planned {
    fn line(&self) -> Value {
        let mut line = json!({
            "type": "op",
            "client": format!("c{}", self.client),
            "key": format!("k{}", self.key),
            "call_us": self.call_us,
            "do": self.action,
            "got": self.got,
        });
        if let Some(return_us) = self.return_us {
            line["return_us"] = json!(return_us);
        }
        line
    }
}
