//! Strings: GET, SET with all its options, counters, several at once.

use crate::redis::args::{expiry_option, integer, is, positive_time};
use crate::redis::refused::Refused;
use crate::redis::step::{Op, Shape, Unit};
use crate::redis::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::redis::table::{CommandSpec, Family, Keys};
use bytes::Bytes;
use model::{Condition, Expiry, Query, Write};
use wire::resp::Frame;

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "string",
    category: "@string",
    commands: &[
        CommandSpec::data("get", 2, READONLY | FAST, Keys::FIRST, "1.0.0", "The string of a key", get),
        CommandSpec::data("set", -3, WRITE | DENYOOM, Keys::FIRST, "1.0.0", "Puts a string", set),
        CommandSpec::data("getset", 3, WRITE | DENYOOM | FAST, Keys::FIRST, "1.0.0", "Puts a string and returns the one before", getset),
        CommandSpec::data("getdel", 2, WRITE | FAST, Keys::FIRST, "6.2.0", "Returns a string and deletes its key", getdel),
        CommandSpec::data("getex", -2, WRITE | FAST, Keys::FIRST, "6.2.0", "Returns a string and sets or clears its expiry", getex),
        CommandSpec::data("setnx", 3, WRITE | DENYOOM | FAST, Keys::FIRST, "1.0.0", "Puts a string if the key is absent", setnx),
        CommandSpec::data("setex", 4, WRITE | DENYOOM, Keys::FIRST, "2.0.0", "Puts a string that expires, in seconds", setex),
        CommandSpec::data("psetex", 4, WRITE | DENYOOM, Keys::FIRST, "2.6.0", "Puts a string that expires, in milliseconds", psetex),
        CommandSpec::data("mget", -2, READONLY | FAST, Keys::ALL, "1.0.0", "The strings of several keys at one moment", mget),
        CommandSpec::data("mset", -3, WRITE | DENYOOM, Keys::PAIRS, "1.0.1", "Puts several strings at once", mset),
        CommandSpec::data("msetnx", -3, WRITE | DENYOOM, Keys::PAIRS, "1.0.1", "Puts several strings if all of their keys are absent", msetnx),
        CommandSpec::data("append", 3, WRITE | DENYOOM | FAST, Keys::FIRST, "2.0.0", "Appends to a string", append),
        CommandSpec::data("strlen", 2, READONLY | FAST, Keys::FIRST, "2.2.0", "The length of a string in bytes", strlen),
        CommandSpec::data("incr", 2, WRITE | DENYOOM | FAST, Keys::FIRST, "1.0.0", "Adds one to a number", |f| add(f, Ok(1))),
        CommandSpec::data("decr", 2, WRITE | DENYOOM | FAST, Keys::FIRST, "1.0.0", "Takes one from a number", |f| add(f, Ok(-1))),
        CommandSpec::data("incrby", 3, WRITE | DENYOOM | FAST, Keys::FIRST, "1.0.0", "Adds to a number", |f| add(f, integer(f.arg(2)))),
        CommandSpec::data("decrby", 3, WRITE | DENYOOM | FAST, Keys::FIRST, "1.0.0", "Takes from a number", decrby),
    ],
};

fn get(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::Get { key: frame.bytes(1) }, Shape::Value)
}

/// A put with the given condition and expiry and no other options.
fn put(frame: &Frame, value: usize, condition: Condition, expiry: Expiry) -> Write {
    let (key, value) = (frame.bytes(1), frame.bytes(value));
    Write::Put { key, value, condition, expiry, return_old: false }
}

fn set(frame: &Frame) -> Result<Op, Refused> {
    if frame.len() == 3 {
        return Op::write(put(frame, 2, Condition::Always, Expiry::Never), Shape::Put);
    }
    let (mut condition, mut expiry, mut return_old) = (None, None, false);
    let mut at = 3;
    while at < frame.len() {
        let word = frame.arg(at);
        if is(word, "nx") && condition != Some(Condition::IfPresent) {
            condition = Some(Condition::IfAbsent);
        } else if is(word, "xx") && condition != Some(Condition::IfAbsent) {
            condition = Some(Condition::IfPresent);
        } else if is(word, "get") {
            return_old = true;
        } else if is(word, "keepttl") && matches!(expiry, None | Some(Expiry::Keep)) {
            expiry = Some(Expiry::Keep);
        } else if expiry.is_none()
            && let Some(found) = expiry_option(frame, at, "set")?
        {
            expiry = Some(found);
            at += 1;
        } else {
            return Err(Refused::SYNTAX);
        }
        at += 1;
    }
    let write = Write::Put {
        key: frame.bytes(1),
        value: frame.bytes(2),
        condition: condition.unwrap_or_default(),
        expiry: expiry.unwrap_or_default(),
        return_old,
    };
    Op::write(write, if return_old { Shape::Old } else { Shape::Put })
}

fn getset(frame: &Frame) -> Result<Op, Refused> {
    let write = Write::Put {
        key: frame.bytes(1),
        value: frame.bytes(2),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: true,
    };
    Op::write(write, Shape::Old)
}

fn getdel(frame: &Frame) -> Result<Op, Refused> {
    Op::write(Write::Take { key: frame.bytes(1) }, Shape::Value)
}

fn getex(frame: &Frame) -> Result<Op, Refused> {
    let key = frame.bytes(1);
    let expiry = match frame.len() {
        2 => return Op::read(Query::Get { key }, Shape::Value),
        3 if is(frame.arg(2), "persist") => Expiry::Never,
        4 => expiry_option(frame, 2, "getex")?.ok_or(Refused::SYNTAX)?,
        _ => return Err(Refused::SYNTAX),
    };
    Op::write(Write::GetAndExpire { key, expiry }, Shape::Value)
}

fn setnx(frame: &Frame) -> Result<Op, Refused> {
    Op::write(put(frame, 2, Condition::IfAbsent, Expiry::Never), Shape::PutFlag)
}

fn setex(frame: &Frame) -> Result<Op, Refused> {
    let time = positive_time(frame.arg(2), Unit::Seconds, "setex")?;
    Op::write(put(frame, 3, Condition::Always, Expiry::AfterMs(time)), Shape::Ok)
}

fn psetex(frame: &Frame) -> Result<Op, Refused> {
    let time = positive_time(frame.arg(2), Unit::Milliseconds, "psetex")?;
    Op::write(put(frame, 3, Condition::Always, Expiry::AfterMs(time)), Shape::Ok)
}

fn mget(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::GetMany { keys: frame.bytes_from(1) }, Shape::Values)
}

fn pairs(frame: &Frame, command: &str) -> Result<Vec<(Bytes, Bytes)>, Refused> {
    if frame.len().is_multiple_of(2) {
        return Err(Refused::arity(command));
    }
    Ok((1..frame.len()).step_by(2).map(|at| (frame.bytes(at), frame.bytes(at + 1))).collect())
}

fn mset(frame: &Frame) -> Result<Op, Refused> {
    let pairs = pairs(frame, "mset")?;
    Op::write(Write::PutMany { pairs, if_all_absent: false }, Shape::Ok)
}

fn msetnx(frame: &Frame) -> Result<Op, Refused> {
    let pairs = pairs(frame, "msetnx")?;
    Op::write(Write::PutMany { pairs, if_all_absent: true }, Shape::Flag)
}

fn append(frame: &Frame) -> Result<Op, Refused> {
    Op::write(Write::Append { key: frame.bytes(1), suffix: frame.bytes(2) }, Shape::Integer)
}

fn strlen(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::Length { key: frame.bytes(1) }, Shape::Integer)
}

fn add(frame: &Frame, delta: Result<i64, Refused>) -> Result<Op, Refused> {
    Op::write(Write::Add { key: frame.bytes(1), delta: delta? }, Shape::Integer)
}

fn decrby(frame: &Frame) -> Result<Op, Refused> {
    let delta = integer(frame.arg(2))?.checked_neg();
    add(frame, delta.ok_or(Refused::because("ERR decrement would overflow")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Step;

    fn set_of(args: &[&str]) -> Result<Write, String> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        match set(&Frame::of(&args)) {
            Ok(Op { step: Step::Write(write), .. }) => Ok(write),
            Ok(other) => Err(format!("{other:?}")),
            Err(Refused(text)) => Err(text.into_owned()),
        }
    }

    fn expiry_of(args: &[&str]) -> Expiry {
        match set_of(args).unwrap() {
            Write::Put { expiry, .. } => expiry,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn set_reads_its_options() {
        assert_eq!(expiry_of(&["set", "k", "v"]), Expiry::Never);
        assert_eq!(expiry_of(&["set", "k", "v", "EX", "10"]), Expiry::AfterMs(10_000));
        assert_eq!(expiry_of(&["set", "k", "v", "PXAT", "99"]), Expiry::AtMs(99));
        assert_eq!(expiry_of(&["set", "k", "v", "xx", "get", "keepttl"]), Expiry::Keep);
    }

    #[test]
    fn set_refuses_what_contradicts_itself() {
        for args in [
            &["set", "k", "v", "nx", "xx"][..],
            &["set", "k", "v", "ex", "1", "px", "1"],
            &["set", "k", "v", "keepttl", "ex", "1"],
            &["set", "k", "v", "ex"],
            &["set", "k", "v", "what"],
        ] {
            assert_eq!(set_of(args), Err("ERR syntax error".into()), "{args:?}");
        }
        let text = "ERR invalid expire time in 'set' command";
        for time in ["0", "-1", "9223372036854775807"] {
            assert_eq!(set_of(&["set", "k", "v", "ex", time]), Err(text.into()), "{time}");
        }
    }
}
