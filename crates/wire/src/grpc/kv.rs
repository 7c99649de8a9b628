//! The requests of `Kv` as commands and queries, and answers as its responses.
//!
//! Only what can be seen on the request itself is checked here; the site decides whether the state
//! allows it. The keyspace's name has been looked up already.

use super::{Invalid, v1};
use crate::entry::{put_epoch, take_epoch};
use model::{
    Answer, Bytes, ClientId, Command, Condition, Epoch, Expiry, Failure, Guard, KeyspaceId, Query,
    ReadConsistency, ReadPoint, RequestId, Revision, Step, Versioned, Write, limits,
};

mod scan;
pub use scan::ScanPlan;

/// How fresh a read must be.
pub fn consistency(asked: i32) -> Result<ReadConsistency, Invalid> {
    match v1::Consistency::try_from(asked) {
        Ok(v1::Consistency::Linearizable) => Ok(ReadConsistency::Linearizable),
        Ok(v1::Consistency::Stale) => Ok(ReadConsistency::Stale),
        Err(_) => Err(unknown_word("consistency", asked)),
    }
}

/// A get.
pub fn get(request: v1::GetRequest) -> Result<Query, Invalid> {
    Ok(Query::Get { key: key(request.key)? })
}

/// The fields of the hash that a get is about.
pub fn fields_of_get(request: &v1::GetRequest) -> Result<Query, Invalid> {
    Ok(Query::HashGetAll { key: key(request.key.clone())? })
}

/// Where the state is that a get is going to read from, or a later one.
pub fn point_of_get(request: &v1::GetRequest) -> Result<Query, Invalid> {
    Ok(Query::Watch { keys: vec![key(request.key.clone())?] })
}

/// The answer to that.
pub fn point(answer: Answer) -> v1::ReadPoint {
    let Answer::Watched { point, .. } = answer else {
        unreachable!("a watch is answered with the point at which it read");
    };
    let Epoch { failover, count: epoch } = point.epoch;
    let mut bytes = Vec::new();
    if failover != model::Ballot::FIRST {
        put_epoch(point.epoch, &mut bytes);
    }
    v1::ReadPoint { revision: point.revision.0, epoch, failover: bytes.into() }
}

fn read_point(point: v1::ReadPoint) -> Result<ReadPoint, Invalid> {
    let epoch = match &point.failover[..] {
        [] => Epoch::counted(point.epoch),
        bytes => take_epoch(bytes).map(|(epoch, _)| epoch).ok_or_else(|| Invalid::Value {
            field: "guards.absent_since.failover",
            what: "is not as it was given".to_owned(),
        })?,
    };
    Ok(ReadPoint { revision: Revision(point.revision), epoch })
}

/// A put.
pub fn put(keyspace: KeyspaceId, request: v1::PutRequest) -> Result<Command, Invalid> {
    let write = Write::Put {
        key: key(request.key)?,
        value: value(request.value)?,
        condition: condition(request.condition)?,
        expiry: expiry(request.expiry)?,
        return_old: request.return_old,
    };
    Ok(Command::Write { keyspace, write, request: request_id(request.request)? })
}

/// A delete.
pub fn delete(keyspace: KeyspaceId, request: v1::DeleteRequest) -> Result<Command, Invalid> {
    let key = key(request.key)?;
    let write = match request.if_version {
        None => Write::Delete { keys: vec![key] },
        Some(version) => Write::DeleteIf { key, version: Revision(version) },
    };
    Ok(Command::Write { keyspace, write, request: request_id(request.request)? })
}

/// A put with the condition that nothing has changed.
pub fn compare_and_set(
    keyspace: KeyspaceId,
    request: v1::CompareAndSetRequest,
) -> Result<Command, Invalid> {
    let write = Write::Put {
        key: key(request.key)?,
        value: value(request.value)?,
        condition: Condition::IfVersion(Revision(request.expected_version)),
        expiry: expiry(request.expiry)?,
        return_old: false,
    };
    Ok(Command::Write { keyspace, write, request: request_id(request.request)? })
}

/// Several steps at one moment.
pub fn batch(keyspace: KeyspaceId, request: v1::BatchRequest) -> Result<Command, Invalid> {
    at_most("guards", request.guards.len())?;
    at_most("steps", request.steps.len())?;
    if request.steps.is_empty() {
        return Err(Invalid::Missing("steps"));
    }
    let guard = |guard: v1::Guard| -> Result<Guard, Invalid> {
        let version = Revision(guard.version);
        if guard.absent_since.is_some() && version != Revision(0) {
            return Err(Invalid::Value {
                field: "guards.absent_since",
                what: "is for an absent key, of version 0".to_owned(),
            });
        }
        let absent_since = guard.absent_since.map(read_point).transpose()?;
        Ok(Guard { key: key(guard.key)?, version, absent_since })
    };
    Ok(Command::Transaction {
        keyspace,
        guards: request.guards.into_iter().map(guard).collect::<Result<_, _>>()?,
        steps: request.steps.into_iter().map(step).collect::<Result<_, _>>()?,
        request: request_id(request.request)?,
    })
}

fn step(step: v1::Step) -> Result<Step, Invalid> {
    use v1::step::Step as Asked;
    Ok(match step.step.ok_or(Invalid::Missing("steps.step"))? {
        Asked::Get(asked) => Step::Read(Query::Get { key: key(asked)? }),
        Asked::Put(asked) => Step::Write(Write::Put {
            key: key(asked.key)?,
            value: value(asked.value)?,
            condition: condition(asked.condition)?,
            expiry: expiry(asked.expiry)?,
            return_old: asked.return_old,
        }),
        Asked::Delete(asked) => Step::Write(Write::Delete { keys: vec![key(asked.key)?] }),
    })
}

/// The answer to a get.
pub fn got(answer: Answer) -> v1::GetResponse {
    let Answer::Value(found) = answer else { unreachable!("a get is answered with a value") };
    v1::GetResponse { found: found.map(versioned), ..v1::GetResponse::default() }
}

/// The answer to a question about a hash.
pub fn got_fields(answer: Answer) -> v1::GetResponse {
    let Answer::Fields(fields) = answer else {
        unreachable!("all fields are answered with fields");
    };
    let field = |(name, value)| v1::HashField { name, value };
    let hash = v1::Hash { fields: fields.into_iter().map(field).collect() };
    v1::GetResponse { hash: Some(hash), ..v1::GetResponse::default() }
}

/// A write with a known number is answered with what that number's request did: here, something
/// else.
fn of_another_kind() -> Invalid {
    Invalid::Value {
        field: "request",
        what: "this number was of another kind of request; each request takes a new one".to_owned(),
    }
}

/// The answer to a put or a compare-and-set.
///
/// # Errors
/// [`Invalid`] when the answer is of another kind of request, which had the same number.
pub fn was_put(answer: Answer) -> Result<v1::PutResponse, Invalid> {
    match answer {
        Answer::Put { applied, version, old } => {
            Ok(v1::PutResponse { applied, version: version.0, old })
        }
        // Made again at another site, which has no version of it.
        Answer::Placed(_) => Ok(v1::PutResponse { applied: true, version: 0, old: None }),
        _ => Err(of_another_kind()),
    }
}

/// The answer to a delete, with or without a version.
///
/// # Errors
/// As [`was_put`].
pub fn was_deleted(answer: Answer) -> Result<v1::DeleteResponse, Invalid> {
    let deleted = match answer {
        Answer::Integer(count) => count > 0,
        Answer::Flag(deleted) => deleted,
        _ => return Err(of_another_kind()),
    };
    Ok(v1::DeleteResponse { deleted })
}

/// The answer to a batch.
///
/// # Errors
/// As [`was_put`].
pub fn was_batched(answer: Answer) -> Result<v1::BatchResponse, Invalid> {
    use v1::step_result::Result as Did;
    let steps = match answer {
        Answer::Steps(steps) => steps,
        Answer::Aborted => return Ok(v1::BatchResponse { applied: false, results: Vec::new() }),
        _ => return Err(of_another_kind()),
    };
    let result = |step| -> Result<v1::StepResult, Invalid> {
        let did = match step {
            Err(refusal) => Did::Refused(Failure::Refused(refusal).to_string()),
            Ok(answer @ Answer::Value(_)) => Did::Get(got(answer)),
            Ok(answer @ Answer::Put { .. }) => Did::Put(was_put(answer)?),
            Ok(answer) => Did::Delete(was_deleted(answer)?),
        };
        Ok(v1::StepResult { result: Some(did) })
    };
    let results = steps.into_iter().map(result).collect::<Result<_, Invalid>>()?;
    Ok(v1::BatchResponse { applied: true, results })
}

/// The answer to a batch of so many puts that may be sent to several sites: it is one put.
///
/// # Errors
/// As [`was_put`].
pub fn was_batched_once(answer: Answer, steps: usize) -> Result<v1::BatchResponse, Invalid> {
    let put = v1::step_result::Result::Put(was_put(answer)?);
    let results = vec![v1::StepResult { result: Some(put) }; steps];
    Ok(v1::BatchResponse { applied: true, results })
}

/// A string with its version.
pub fn versioned(found: Versioned) -> v1::Versioned {
    v1::Versioned { value: found.value, version: found.version.0 }
}

/// A change, without the string that it led to.
pub fn change(change: model::Change) -> v1::Change {
    let kind = change_kind(change.kind).into();
    v1::Change { revision: change.revision.0, key: change.key, kind, now: None }
}

/// What happened to a key.
pub fn change_kind(kind: model::ChangeKind) -> v1::ChangeKind {
    use model::ChangeKind as Happened;
    match kind {
        Happened::Put => v1::ChangeKind::Put,
        Happened::Append => v1::ChangeKind::Append,
        Happened::Add => v1::ChangeKind::Add,
        Happened::Delete => v1::ChangeKind::Delete,
        Happened::Expire => v1::ChangeKind::Expire,
        Happened::SetExpiry => v1::ChangeKind::SetExpiry,
        Happened::ClearExpiry => v1::ChangeKind::ClearExpiry,
        Happened::HashSet => v1::ChangeKind::HashSet,
        Happened::HashDelete => v1::ChangeKind::HashDelete,
        Happened::HashAdd => v1::ChangeKind::HashAdd,
        Happened::Clear => v1::ChangeKind::Clear,
        // Nothing of it is shown: the keys are as they were.
        Happened::Loan => v1::ChangeKind::ChangeUnspecified,
    }
}

fn key(key: Bytes) -> Result<Bytes, Invalid> {
    match key.len() {
        1..=limits::KEY_BYTES_MAX => Ok(key),
        0 => Err(Invalid::Missing("key")),
        bytes => Err(too_long("key", bytes, limits::KEY_BYTES_MAX)),
    }
}

fn value(value: Bytes) -> Result<Bytes, Invalid> {
    match value.len() {
        0..=limits::VALUE_BYTES_MAX => Ok(value),
        bytes => Err(too_long("value", bytes, limits::VALUE_BYTES_MAX)),
    }
}

fn condition(asked: i32) -> Result<Condition, Invalid> {
    match v1::PutCondition::try_from(asked) {
        Ok(v1::PutCondition::Always) => Ok(Condition::Always),
        Ok(v1::PutCondition::IfAbsent) => Ok(Condition::IfAbsent),
        Ok(v1::PutCondition::IfPresent) => Ok(Condition::IfPresent),
        Err(_) => Err(unknown_word("condition", asked)),
    }
}

fn expiry(asked: Option<v1::Expiry>) -> Result<Expiry, Invalid> {
    use v1::expiry::When;
    let Some(asked) = asked else { return Ok(Expiry::Never) };
    match asked.when.ok_or(Invalid::Missing("expiry.when"))? {
        When::AfterMs(0) => Err(Invalid::Value {
            field: "expiry.after_ms",
            what: "must be 1 or more; to remove a key, delete it".to_owned(),
        }),
        When::AfterMs(ms) => Ok(Expiry::AfterMs(ms)),
        When::AtMs(ms) => Ok(Expiry::AtMs(ms)),
        When::Keep(true) => Ok(Expiry::Keep),
        When::Keep(false) => Ok(Expiry::Never),
    }
}

/// The number of a request that may be sent again, if it bears one.
///
/// # Errors
/// When it makes no sense.
pub fn request_id(id: Option<v1::RequestId>) -> Result<Option<RequestId>, Invalid> {
    let Some(v1::RequestId { client, sequence, acknowledged_below }) = id else { return Ok(None) };
    if client == 0 {
        return Err(Invalid::Missing("request.client"));
    }
    if sequence == 0 {
        return Err(Invalid::Missing("request.sequence"));
    }
    if acknowledged_below > sequence {
        return Err(Invalid::Value {
            field: "request.acknowledged_below",
            what: format!("must not be above the request's own sequence {sequence}"),
        });
    }
    Ok(Some(RequestId { client: ClientId(client), sequence, acknowledged_below }))
}

fn at_most(field: &'static str, count: usize) -> Result<(), Invalid> {
    let max = limits::TRANSACTION_STEPS_MAX;
    if count <= max {
        return Ok(());
    }
    Err(Invalid::Value { field, what: format!("there are {count}, and at most {max} can be") })
}

fn too_long(field: &'static str, bytes: usize, max: usize) -> Invalid {
    Invalid::Value { field, what: format!("has {bytes} bytes, and at most {max} can be") }
}

fn unknown_word(field: &'static str, number: i32) -> Invalid {
    Invalid::Value { field, what: format!("{number} is not known to this version") }
}

#[cfg(test)]
mod tests;
