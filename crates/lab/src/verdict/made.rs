//! Histories for tests: from short text, and from a simulated store that is right.

use crate::history::{Action, Header, History, Operation, Outcome};
use crate::random::Random;

/// What clients do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mix {
    pub(super) put: u64,
    pub(super) delete: u64,
    pub(super) add: u64,
    pub(super) compare_and_set: u64,
    /// Of a thousand operations, how many get no answer.
    pub(super) unknown_permille: u64,
}

pub(super) const REGISTER: Mix =
    Mix { put: 50, delete: 0, add: 0, compare_and_set: 0, unknown_permille: 5 };
pub(super) const DELETES: Mix = Mix { delete: 10, ..REGISTER };
pub(super) const CAS: Mix = Mix { compare_and_set: 30, ..REGISTER };
pub(super) const COUNTER: Mix = Mix { put: 0, add: 50, ..REGISTER };
pub(super) const ALL: Mix = Mix { delete: 10, add: 10, ..CAS };

/// How many clients, keys and operations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) clients: u64,
    pub(super) keys: u64,
    pub(super) operations: usize,
}

struct Planned {
    key: usize,
    effect_us: Option<u64>,
    kind: u64,
    number: u64,
    operation: Operation,
}

/// What a linearizable store would give: clients that are busy all the time, each operation taking
/// effect at one moment between its call and its return, an unanswered one perhaps much later or
/// never.
pub(super) fn linearizable(seed: u64, size: Size, mix: Mix) -> History {
    let mut random = Random::stream(seed, "made", 0);
    let mut planned = Vec::new();
    let mut free_us = vec![0_u64; size.clients as usize];
    for number in 0..size.operations as u64 {
        let client = (0..free_us.len()).min_by_key(|&client| free_us[client]).unwrap_or(0);
        let call_us = free_us[client] + random.below(20);
        let return_us = call_us + 1 + random.below(200);
        free_us[client] = return_us + 1 + random.below(20);
        let key = random.below(size.keys) as usize;
        let mut operation = Operation {
            client: format!("c{client}"),
            site: None,
            key: format!("k{key}"),
            call_us,
            waited_us: 0,
            return_us: Some(return_us),
            action: Action::Get,
            outcome: Outcome::Conflict,
            stale: false,
            together: None,
        };
        let mut effect_us = Some(call_us + random.below(return_us - call_us + 1));
        if random.chance(mix.unknown_permille) {
            operation.outcome = Outcome::Unknown { why: "timed out".to_owned() };
            operation.return_us = operation.return_us.filter(|_| random.chance(500));
            effect_us =
                [None, effect_us, Some(call_us + random.below(5_000))][random.below(3) as usize];
        } else if random.chance(10) {
            operation.outcome = Outcome::Failed { why: "no leader".to_owned() };
            effect_us = None;
        }
        planned.push(Planned { key, effect_us, kind: random.below(100), number, operation });
    }
    planned.sort_by_key(|planned| planned.effect_us);
    let mut held = vec![(None::<String>, 0_u64); size.keys as usize];
    for planned in &mut planned {
        planned.happen(&mut held, mix, &mut random);
    }
    planned.sort_by_key(|planned| planned.operation.call_us);
    History {
        header: Header::default(),
        operations: planned.into_iter().map(|planned| planned.operation).collect(),
        ..History::default()
    }
}

impl Planned {
    fn happen(&mut self, held: &mut [(Option<String>, u64)], mix: Mix, random: &mut Random) {
        let (value, version) = &mut held[self.key];
        let own = format!("v{}", self.number);
        let until = [mix.put, mix.delete, mix.add, mix.compare_and_set];
        let kind = until.iter().scan(0, |sum, part| {
            *sum += part;
            Some(*sum)
        });
        let kind = kind.take_while(|&until| self.kind >= until).count();
        let (found, read) = (value.clone(), Some(*version));
        let number = found.as_deref().map_or(Some(0), |text| text.parse::<i64>().ok());
        let happens = self.effect_us.is_some();
        let mut write = |to: Option<String>| {
            if happens {
                *value = to;
                *version += 1;
            }
            Outcome::Written { version: Some(*version) }
        };
        let (action, outcome) = match (kind, number) {
            (0, _) => (Action::Put { value: own.clone() }, write(Some(own))),
            (1, _) => (Action::Delete, write(None)),
            (2, Some(number)) => {
                let delta = 1 + random.below(2) as i64;
                write(Some((number + delta).to_string()));
                (Action::Add { delta }, Outcome::Number { value: number + delta })
            }
            (3, _) => {
                let lucky = random.chance(700);
                let guess = Some(format!("v{}", random.below(self.number + 1)));
                let expected = if lucky { found.clone() } else { guess };
                let outcome = match expected == found {
                    true => write(Some(own.clone())),
                    false => Outcome::Conflict,
                };
                (Action::CompareAndSet { expected, value: own }, outcome)
            }
            _ => (
                Action::Get,
                Outcome::Value { version: read.filter(|_| found.is_some()), value: found },
            ),
        };
        self.operation.action = action;
        if self.operation.outcome == Outcome::Conflict {
            self.operation.outcome = outcome;
        }
    }
}

/// A history in short lines: the client, the key, the call, the return (or `-`), what was asked,
/// and what came back.
///
/// ```text
/// a x 0 10 put 1 ok       b x 2 4 get 1@7         b x 2 4 get none
/// a x 0 10 add 2 = 5      a x 0 - cas 1 2 ok      a x 0 9 cas none 2 conflict
/// a x 0 5 delete ok@3     a x 0 5 put 3 failed    a x 0 - put 4 unknown
/// ```
///
/// `a+7` is the client `a`, and the number of the request that it is a part of.
pub(super) fn history(lines: &str) -> History {
    let operations = lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(operation);
    History { operations: operations.collect(), ..History::default() }
}

fn operation(line: &str) -> Operation {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [client, key, call, back, asked @ ..] = words.as_slice() else {
        panic!("too short: {line}")
    };
    let value = |word: &str| Some(word.to_owned()).filter(|word| word != "none");
    let (action, got) = match asked {
        ["get", got] => (Action::Get, *got),
        ["put", put, got] => (Action::Put { value: (*put).to_owned() }, *got),
        ["delete", got] => (Action::Delete, *got),
        ["add", delta, "=", got] => (Action::Add { delta: delta.parse().unwrap() }, *got),
        ["add", delta, got] => (Action::Add { delta: delta.parse().unwrap() }, *got),
        ["cas", expected, put, got] => {
            (Action::CompareAndSet { expected: value(expected), value: (*put).to_owned() }, *got)
        }
        _ => panic!("what is {line}?"),
    };
    let why = || "so it is".to_owned();
    let (word, version) = match got.split_once('@') {
        Some((word, version)) => (word, Some(version.parse().unwrap())),
        None => (got, None),
    };
    let outcome = match (word, &action) {
        ("failed", _) => Outcome::Failed { why: why() },
        ("unknown", _) => Outcome::Unknown { why: why() },
        ("conflict", _) => Outcome::Conflict,
        (number, Action::Add { .. }) => Outcome::Number { value: number.parse().unwrap() },
        (found, Action::Get) => Outcome::Value { value: value(found), version },
        ("ok", _) => Outcome::Written { version },
        _ => panic!("what is {got} in {line}?"),
    };
    let (client, together) = match client.split_once('+') {
        Some((client, number)) => (client, Some(number.parse().unwrap())),
        None => (*client, None),
    };
    Operation {
        client: client.to_owned(),
        site: None,
        key: (*key).to_owned(),
        call_us: call.parse().unwrap(),
        waited_us: 0,
        return_us: (*back != "-").then(|| back.parse().unwrap()),
        action,
        outcome,
        stale: false,
        together,
    }
}
