//! The step of a data command, and the form of its reply.
//!
//! Every command on data is exactly one [`Step`]: alone it becomes a request, inside MULTI a step
//! of a transaction, and its reply is written from the step's answer in the same way.

use super::commands::once::Once;
use super::refused::{self, Refused};
use bytes::Bytes;
use model::{Answer, Expiring, Failure, Kind, Query, Refusal, Step, Write, glob};
use server::Outcome;
use server::users::Right;
use wire::resp::Encoder;

/// A parsed data command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) step: Step,
    pub(super) shape: Shape,
    /// It may be sent to another site, too.
    pub(super) once: Option<Box<Once>>,
}

/// How an answer becomes a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string or null.
    Value,
    /// An array of strings and nulls.
    Values,
    /// A number.
    Integer,
    /// The new number in a field of a hash: errors mention hash values.
    FieldSum,
    /// 1 or 0.
    Flag,
    /// OK, whatever the answer was.
    Ok,
    /// OK, or null when a put's condition did not hold.
    Put,
    /// 1 or 0: whether a put's condition held.
    PutFlag,
    /// What a put found, or null.
    Old,
    /// The length of a value, 0 for none.
    ValueLen,
    /// A map of fields and values.
    Fields,
    /// The fields of a hash.
    FieldNames,
    /// The values of a hash.
    FieldValues,
    /// One page with those fields that match.
    FieldPage {
        /// The fields.
        glob: Option<Bytes>,
    },
    /// The name of a kind.
    Kind,
    /// The remaining lifetime of a key; -1 without expiry, -2 absent.
    TimeLeft(Unit),
    /// When a key expires; -1 never, -2 absent.
    ExpiryTime(Unit),
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

impl Shape {
    /// Whether the reply contains a remaining time.
    pub(super) fn needs_now(&self) -> bool {
        matches!(self, Shape::TimeLeft(_))
    }
}

impl Op {
    pub(super) fn read(query: Query, shape: Shape) -> Result<Op, Refused> {
        Ok(Op { step: Step::Read(query), shape, once: None })
    }

    pub(super) fn write(write: Write, shape: Shape) -> Result<Op, Refused> {
        Ok(Op { step: Step::Write(write), shape, once: None })
    }

    /// The rights that the command needs.
    pub(super) fn rights(&self) -> &'static [Right] {
        match &self.step {
            Step::Read(_) | Step::ReadIn { .. } => &[Right::Read],
            Step::Write(write) if reads(write) => &[Right::Write, Right::Read],
            Step::Write(_) => &[Right::Write],
        }
    }
}

/// Whether the answer to a write contains a value: the write is a read as well.
fn reads(write: &Write) -> bool {
    match write {
        Write::Put { return_old, .. } => *return_old,
        Write::Take { .. } | Write::GetAndExpire { .. } => true,
        // The new number shows the old one.
        Write::Add { .. } | Write::HashAdd { .. } => true,
        Write::PutMany { .. }
        | Write::Append { .. }
        | Write::Delete { .. }
        | Write::DeleteIf { .. }
        | Write::SetExpiry { .. }
        | Write::HashSet { .. }
        | Write::HashSetIfAbsent { .. }
        | Write::HashDelete { .. }
        | Write::Clear
        | Write::ClearAll => false,
    }
}

/// Writes the reply to one command. Returns whether it was an error.
pub(super) fn write_outcome(
    outcome: Outcome,
    shape: &Shape,
    now_ms: u64,
    out: &mut Encoder<'_>,
) -> bool {
    match outcome {
        Ok(answer) => write_answer(answer, shape, now_ms, out),
        Err(Failure::Refused(refusal)) => write_refusal(&refusal, shape, out),
        Err(failure) => {
            out.error(&refused::failure_text(&failure));
            true
        }
    }
}

/// Writes the error of a refused step. Always an error.
pub(super) fn write_refusal(refusal: &Refusal, shape: &Shape, out: &mut Encoder<'_>) -> bool {
    match (refusal, shape) {
        (Refusal::NotAnInteger, Shape::FieldSum) => out.error("ERR hash value is not an integer"),
        _ => out.error(&refused::refusal_text(refusal)),
    }
    true
}

/// Writes an answer in a command's shape. Returns whether it was an error: an answer of an
/// unexpected kind (never, while all nodes run the same version).
pub(super) fn write_answer(
    answer: Answer,
    shape: &Shape,
    now_ms: u64,
    out: &mut Encoder<'_>,
) -> bool {
    match (shape, answer) {
        (Shape::Value, Answer::Value(value)) => {
            out.bulk_or_null(value.as_ref().map(|value| &value.value[..]));
        }
        (Shape::Ok, _) | (Shape::Put, Answer::Put { applied: true, .. }) => out.ok(),
        (Shape::Put, Answer::Put { .. }) => out.null(),
        (Shape::PutFlag, Answer::Put { applied, .. }) => out.integer(i64::from(applied)),
        (Shape::Old, Answer::Put { old, .. }) => out.bulk_or_null(old.as_deref()),
        (Shape::Integer | Shape::FieldSum, Answer::Integer(number)) => out.integer(number),
        (Shape::Flag, Answer::Flag(flag)) => out.integer(i64::from(flag)),
        (Shape::Values, Answer::Values(values)) => {
            out.array(values.len());
            for value in &values {
                out.bulk_or_null(value.as_deref());
            }
        }
        (Shape::ValueLen, Answer::Value(value)) => {
            out.integer(value.map_or(0, |value| value.value.len() as i64));
        }
        (Shape::Fields, Answer::Fields(fields)) => {
            out.map(fields.len());
            write_pairs(fields.iter(), out);
        }
        (Shape::FieldNames, Answer::Fields(fields)) => {
            out.array(fields.len());
            fields.iter().for_each(|(field, _)| out.bulk(field));
        }
        (Shape::FieldValues, Answer::Fields(fields)) => {
            out.array(fields.len());
            fields.iter().for_each(|(_, value)| out.bulk(value));
        }
        (Shape::FieldPage { glob }, Answer::Fields(mut fields)) => {
            if let Some(glob) = glob {
                fields.retain(|(field, _)| glob::matches(glob, field));
            }
            out.array(2);
            out.bulk(b"0");
            out.array(2 * fields.len());
            write_pairs(fields.iter(), out);
        }
        (Shape::Kind, Answer::Kind(kind)) => out.simple(match kind {
            None => "none",
            Some(Kind::String) => "string",
            Some(Kind::Hash) => "hash",
        }),
        (Shape::TimeLeft(unit), Answer::Expiry(expiring)) => {
            // Rounded to the nearest second, as in Redis.
            let left_ms = match expiring {
                Expiring::At { left_ms, .. } => left_ms,
                Expiring::AtMs(ms) => ms.saturating_sub(now_ms),
                Expiring::Absent | Expiring::Never => 0,
            };
            let left = unit.of_ms(left_ms.saturating_add(unit.half_ms())) as i64;
            out.integer(expiry_number(expiring, |_| left));
        }
        (Shape::ExpiryTime(unit), Answer::Expiry(expiring)) => {
            out.integer(expiry_number(expiring, |ms| {
                unit.of_ms(ms.saturating_add(unit.half_ms())) as i64
            }));
        }
        (shape, answer) => {
            let text = format!("ERR the site answered {answer:?} where {shape:?} was expected");
            out.error(&text[..text.len().min(200)]);
            return true;
        }
    }
    false
}

fn write_pairs<'a>(pairs: impl Iterator<Item = &'a (Bytes, Bytes)>, out: &mut Encoder<'_>) {
    for (field, value) in pairs {
        out.bulk(field);
        out.bulk(value);
    }
}

fn expiry_number(expiring: Expiring, number: impl Fn(u64) -> i64) -> i64 {
    match expiring {
        Expiring::Absent => -2,
        Expiring::Never => -1,
        Expiring::AtMs(ms) | Expiring::At { wall_ms: ms, .. } => number(ms),
    }
}

impl Unit {
    /// Its length in milliseconds.
    pub(super) fn ms(self) -> i64 {
        match self {
            Unit::Seconds => 1000,
            Unit::Milliseconds => 1,
        }
    }

    fn of_ms(self, ms: u64) -> u64 {
        ms / self.ms() as u64
    }

    fn half_ms(self) -> u64 {
        self.ms() as u64 / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::table::{Run, table};
    use wire::resp::Frame;

    fn rights(line: &str) -> &'static [Right] {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let frame = Frame::of(&args);
        let Some((_, spec)) = table().find(frame.arg(0)) else { panic!("{line}") };
        let Run::Data(parse) = spec.run else { panic!("{line}") };
        parse(&frame).unwrap_or_else(|_| panic!("{line}")).rights()
    }

    #[test]
    fn a_write_that_returns_a_value_needs_the_right_to_read_as_well() {
        for line in ["get k", "hget h f", "exists k", "strlen k", "getex k"] {
            assert_eq!(rights(line), [Right::Read], "{line}");
        }
        for line in ["set k v", "append k v", "del k", "hset h f v", "hdel h f", "expire k 9"] {
            assert_eq!(rights(line), [Right::Write], "{line}");
        }
        let both = [
            "incr k",
            "decr k",
            "incrby k 0",
            "decrby k 0",
            "hincrby h f 0",
            "set k v get",
            "getset k v",
            "getdel k",
            "getex k ex 9",
        ];
        for line in both {
            assert_eq!(rights(line), [Right::Write, Right::Read], "{line}");
        }
    }
}
