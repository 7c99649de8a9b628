//! One operation: from a step of the workload to requests, and from answers to an outcome.

use std::time::Duration;

use model::{
    Answer, Body, Bytes, Command, Condition, Expiry, Failure, KeyspaceId, Query, ReadConsistency,
    Refusal, Request, RequestId, ScanFilter, Write,
};

use super::client::Client;
use super::pairs::{self, Left, Second};
use super::{ATTEMPT_MAX, OPERATION_MAX};
use crate::history::{Action, Outcome};
use crate::workload::Operation;
use crate::world::Clients;

/// What a request or an answer weighs besides keys and values, in bytes.
const OVERHEAD_BYTES: usize = 60;

/// An operation under way.
pub(super) struct Doing {
    /// The key, with its keyspace's prefix.
    pub(super) key: String,
    prefix_bytes: usize,
    /// The second key of a pair, and which of the client's operations on pairs it is.
    pub(super) second: Option<(String, u64)>,
    /// The keyspace, by its place in the world; `None`: the default one.
    pub(super) place: Option<usize>,
    /// What goes into the history; a scan does not.
    pub(super) action: Option<Action>,
    /// What follows when it is done.
    pub(super) then: Option<Operation>,
    body: Body,
    pub(super) stale: bool,
    pub(super) call: Duration,
    /// How long it waited before it was called, because the one before it was late.
    pub(super) waited: Duration,
    /// Which life of its site it was called in.
    pub(super) life: u64,
    deadline: Duration,
    repeat: bool,
    pub(super) attempts: u32,
    /// An attempt may have had its effect without an answer.
    doubt: bool,
}

/// What is asked, before it is turned into a request.
pub(super) struct Asked {
    /// The key, with its keyspace's prefix.
    pub(super) key: String,
    pub(super) prefix_bytes: usize,
    pub(super) operation: Operation,
    /// The second key, of a pair.
    pub(super) second: Option<Second>,
    /// The keyspace, by its place in the world, and its id where the client is.
    pub(super) keyspace: (Option<usize>, KeyspaceId),
    /// How long it waited because the one before it was late.
    pub(super) waited: Duration,
    /// Which life of the client's site it is.
    pub(super) life: u64,
}

/// What follows from an attempt's outcome.
pub(super) enum Next {
    /// Another attempt.
    Again,
    /// The operation is over; of a pair, with what came of the second key.
    Ended(Outcome, Option<Outcome>),
}

impl Next {
    /// The operation is over, alike for all its keys.
    fn ended(outcome: Outcome) -> Next {
        Next::Ended(outcome, None)
    }
}

/// A value that is unique by its beginning, filled up to a size.
fn value(client: &mut Client, value_bytes: usize) -> (String, Bytes) {
    client.values += 1;
    let text = format!("{}.{}", client.name, client.values);
    let padding = value_bytes.saturating_sub(text.len() + 1);
    let filled = match padding {
        0 => text.clone(),
        padding => format!("{text} {}", ".".repeat(padding)),
    };
    (text, filled.into())
}

/// What becomes of what a client puts.
fn expiry(spec: &Clients) -> Expiry {
    spec.expiry.map_or(Expiry::Never, |after| Expiry::AfterMs(after.as_millis() as u64))
}

/// The number of a client's next write, if it numbers them.
fn number(client: &mut Client, spec: &Clients) -> Option<RequestId> {
    spec.repeat.then(|| {
        client.sequence += 1;
        let sequence = client.sequence;
        RequestId { client: client.id, sequence, acknowledged_below: sequence }
    })
}

/// The part of a value that makes it unique.
pub(super) fn unique_part(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// What an answer weighs on its way.
pub(super) fn answer_bytes(outcome: &Result<Answer, Failure>) -> usize {
    OVERHEAD_BYTES
        + match outcome {
            Ok(Answer::Value(Some(found))) => found.value.len(),
            Ok(Answer::Values(found)) => found.iter().flatten().map(Bytes::len).sum(),
            Ok(Answer::Page { items, .. }) => items
                .iter()
                .map(|item| item.key.len() + item.value.as_ref().map_or(0, Bytes::len))
                .sum(),
            _ => 0,
        }
}

/// What is asked: what goes into the history, what follows, and the request.
type Made = (Option<Action>, Option<Operation>, Body);

impl Doing {
    pub(super) fn new(client: &mut Client, asked: Asked, spec: &Clients, call: Duration) -> Doing {
        let place = asked.keyspace.0;
        let mut also = spec.also.iter().filter(|also| Some(also.keyspace) == place);
        let stale = spec.stale_reads || also.any(|also| also.stale_reads);
        let consistency =
            if stale { ReadConsistency::Stale } else { ReadConsistency::Linearizable };
        let (action, then, body) = match &asked.second {
            None => Doing::of_key(client, &asked, spec, consistency),
            Some(second) => Doing::of_pair(client, &asked, second, spec, consistency),
        };
        let second = asked.second.map(|second| {
            client.pairs_asked += 1;
            (second.key, client.pairs_asked)
        });
        Doing {
            prefix_bytes: asked.prefix_bytes,
            place,
            key: asked.key,
            second,
            action,
            then,
            body,
            stale,
            call,
            waited: asked.waited,
            life: asked.life,
            deadline: call + OPERATION_MAX,
            repeat: spec.repeat,
            attempts: 0,
            doubt: false,
        }
    }

    /// An operation on one key.
    fn of_key(
        client: &mut Client,
        asked: &Asked,
        spec: &Clients,
        consistency: ReadConsistency,
    ) -> Made {
        let Asked { key, operation, keyspace: (_, keyspace), life, .. } = asked;
        let (operation, keyspace) = (*operation, *keyspace);
        let bytes = || Bytes::from(key.clone());
        let get = || Body::Read { keyspace, query: Query::Get { key: bytes() }, consistency };
        let put = |value: Bytes, condition| Write::Put {
            key: bytes(),
            value,
            condition,
            expiry: expiry(spec),
            return_old: false,
        };
        let seen = client.seen.get(&format!("{}#{life}:{key}", client.site)).cloned();
        let mut then = None;
        let (action, write) = match operation {
            Operation::Get | Operation::Move => (Some(Action::Get), None),
            Operation::ReadModifyWrite { value_bytes } => {
                then = Some(Operation::Put { value_bytes });
                (Some(Action::Get), None)
            }
            Operation::Put { value_bytes } => {
                let (value, filled) = value(client, value_bytes);
                (Some(Action::Put { value }), Some(put(filled, Condition::Always)))
            }
            Operation::Delete => {
                (Some(Action::Delete), Some(Write::Delete { keys: vec![bytes()] }))
            }
            Operation::Add { delta } => {
                (Some(Action::Add { delta }), Some(Write::Add { key: bytes(), delta }))
            }
            Operation::CompareAndSet { value_bytes } => match seen {
                // A client compares with what it has read; one that has read nothing reads first.
                None => {
                    then = Some(operation);
                    (Some(Action::Get), None)
                }
                Some((expected, version)) => {
                    let condition = match expected {
                        Some(_) => Condition::IfVersion(version),
                        None => Condition::IfAbsent,
                    };
                    let (value, filled) = value(client, value_bytes);
                    let action = Action::CompareAndSet { expected, value };
                    (Some(action), Some(put(filled, condition)))
                }
            },
            Operation::Scan { .. } => (None, None),
        };
        let body = match (write, operation) {
            (Some(write), _) => {
                let request = number(client, spec);
                Body::Write(Command::Write { keyspace, write, request })
            }
            (None, Operation::Scan { count }) => {
                let query = Query::Scan {
                    from: bytes(),
                    until: None,
                    examine_max: count,
                    filter: ScanFilter::default(),
                    with_values: true,
                };
                Body::Read { keyspace, query, consistency }
            }
            (None, _) => get(),
        };
        (action, then, body)
    }

    /// An operation on a pair.
    fn of_pair(
        client: &mut Client,
        asked: &Asked,
        second: &Second,
        spec: &Clients,
        consistency: ReadConsistency,
    ) -> Made {
        let (action, left) = match asked.operation {
            Operation::Put { value_bytes } => {
                let (value, filled) = value(client, value_bytes);
                (Action::Put { value }, Left::Value(filled, expiry(spec)))
            }
            Operation::Delete => (Action::Delete, Left::Nothing),
            _ => (Action::Get, Left::Same),
        };
        let request = number(client, spec);
        let body = second.body(&asked.key, asked.keyspace.1, left, consistency, request);
        (Some(action), None, body)
    }

    /// Which of [`super::OPERATIONS`] it is.
    pub(super) fn kind(&self) -> usize {
        match &self.action {
            Some(Action::Get) if self.second.is_some() => 8,
            Some(_) if self.second.is_some() => 9,
            Some(Action::Get) => 0,
            Some(Action::Put { .. }) => 1,
            Some(Action::Delete) => 2,
            Some(Action::Add { .. }) => 3,
            Some(Action::CompareAndSet { .. }) => 4,
            None => 5,
        }
    }

    /// The key as the workload named it.
    pub(super) fn step_key(&self) -> &str {
        &self.key[self.prefix_bytes..]
    }

    /// What a question about its key weighs.
    pub(super) fn question_bytes(&self) -> usize {
        OVERHEAD_BYTES + self.key.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let value = match &self.body {
            Body::Write(Command::Write { write: Write::Put { value, .. }, .. }) => value.len(),
            Body::Write(command) if self.second.is_some() => command.properties().size_bytes,
            _ => 0,
        };
        self.question_bytes() + value
    }

    /// How long the attempt that leaves now is waited for.
    pub(super) fn timeout(&self, now: Duration) -> Duration {
        let left = self.deadline.saturating_sub(now);
        if self.repeat { left.min(ATTEMPT_MAX) } else { left }
    }

    fn is_read(&self) -> bool {
        matches!(self.body, Body::Read { .. })
    }
}

impl Client {
    /// The request of an attempt that reaches its node now.
    pub(super) fn request(&self, now: Duration) -> Option<Request> {
        let doing = self.doing.as_ref()?;
        let left = doing.deadline.saturating_sub(now).as_millis() as u64;
        let request = Request::new(doing.body.clone());
        Some(Request { deadline_ms: Some(left.max(1)), client: self.known_as, ..request })
    }

    /// The outcome of its operation, as the site of the local key that it is about is gone.
    pub(super) fn gone(&self) -> Outcome {
        let why = "the site has left".to_owned();
        match self.doing.as_ref().is_some_and(|doing| doing.doubt) {
            true => Outcome::Unknown { why },
            false => Outcome::Failed { why },
        }
    }

    /// What follows from the outcome of an attempt.
    pub(super) fn judge(&mut self, outcome: Result<Answer, Failure>, now: Duration) -> Next {
        let Some(doing) = self.doing.as_mut() else {
            return Next::ended(Outcome::Failed { why: "nothing is being done".to_owned() });
        };
        let is_delete = doing.action == Some(Action::Delete);
        let failure = match outcome {
            Ok(answer) if doing.second.is_some() => {
                let why = || Outcome::Unknown { why: "it is about one key".to_owned() };
                let each = pairs::understood_each(answer, is_delete);
                let (first, second) = each.unwrap_or_else(|| (why(), why()));
                return Next::Ended(first, Some(second));
            }
            // How many keys a delete removed is not in a history.
            Ok(Answer::Integer(_)) if is_delete => {
                return Next::ended(Outcome::Written { version: None });
            }
            Ok(answer) => return Next::ended(understood(answer)),
            // A client that gives its writes no numbers never receives one.
            Err(Failure::Refused(Refusal::RequestForgotten)) if doing.repeat => {
                doing.doubt = true;
                Failure::Refused(Refusal::RequestForgotten)
            }
            Err(failure) => failure,
        };
        doing.doubt |= matches!(failure, Failure::Unknown { .. }) && !doing.is_read();
        let is_over = matches!(failure, Failure::Refused(_)) || now >= doing.deadline;
        // A read leaves nothing behind: any client repeats it.
        if !is_over && (doing.repeat || doing.is_read()) {
            return Next::Again;
        }
        let why = failure.to_string();
        Next::ended(match doing.doubt {
            true => Outcome::Unknown { why },
            false => Outcome::Failed { why },
        })
    }
}

/// An answer in the form of a history.
pub(crate) fn understood(answer: Answer) -> Outcome {
    match answer {
        Answer::Value(found) => match found {
            Some(found) => Outcome::Value {
                value: Some(unique_part(&found.value)),
                version: Some(found.version.0),
            },
            None => Outcome::Value { value: None, version: None },
        },
        Answer::Put { applied: true, version, .. } => Outcome::Written { version: Some(version.0) },
        Answer::Put { applied: false, .. } => Outcome::Conflict,
        Answer::Integer(value) => Outcome::Number { value },
        // A scan's pages are measured, not judged.
        _ => Outcome::Written { version: None },
    }
}
