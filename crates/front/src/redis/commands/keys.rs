//! Keys of any type: deletion, existence, expiry.

use crate::redis::args::{TIME_MS_MAX, integer, is, text};
use crate::redis::refused::Refused;
use crate::redis::session::Session;
use crate::redis::step::{Op, Shape, Unit};
use crate::redis::table::flag::{FAST, NOSCRIPT, READONLY, WRITE};
use crate::redis::table::{CommandSpec, Family, Keys};
use model::{Expiry, ExpiryCondition, Query, Write};
use wire::resp::{Encoder, Frame};

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "generic",
    category: "@keyspace",
    commands: &[
        CommandSpec::data("del", -2, WRITE, Keys::ALL, "1.0.0", "Deletes keys", delete),
        CommandSpec::data("unlink", -2, WRITE | FAST, Keys::ALL, "4.0.0", "Deletes keys", delete),
        CommandSpec::data("exists", -2, READONLY | FAST, Keys::ALL, "1.0.0", "How many of the keys exist", exists),
        CommandSpec::data("touch", -2, READONLY | FAST, Keys::ALL, "3.2.1", "How many of the keys exist", exists),
        CommandSpec::data("type", 2, READONLY | FAST, Keys::FIRST, "1.0.0", "What a key holds", kind),
        CommandSpec::data("expire", -3, WRITE | FAST, Keys::FIRST, "1.0.0", "Lets a key expire after seconds", |f| expire(f, "expire", Unit::Seconds, false)),
        CommandSpec::data("pexpire", -3, WRITE | FAST, Keys::FIRST, "2.6.0", "Lets a key expire after milliseconds", |f| expire(f, "pexpire", Unit::Milliseconds, false)),
        CommandSpec::data("expireat", -3, WRITE | FAST, Keys::FIRST, "1.2.0", "Lets a key expire at a moment in seconds since 1970", |f| expire(f, "expireat", Unit::Seconds, true)),
        CommandSpec::data("pexpireat", -3, WRITE | FAST, Keys::FIRST, "2.6.0", "Lets a key expire at a moment in milliseconds since 1970", |f| expire(f, "pexpireat", Unit::Milliseconds, true)),
        CommandSpec::data("ttl", 2, READONLY | FAST, Keys::FIRST, "1.0.0", "How long a key lives, in seconds", |f| expiry(f, Shape::TimeLeft(Unit::Seconds))),
        CommandSpec::data("pttl", 2, READONLY | FAST, Keys::FIRST, "2.6.0", "How long a key lives, in milliseconds", |f| expiry(f, Shape::TimeLeft(Unit::Milliseconds))),
        CommandSpec::data("expiretime", 2, READONLY | FAST, Keys::FIRST, "7.0.0", "When a key expires, in seconds since 1970", |f| expiry(f, Shape::ExpiryTime(Unit::Seconds))),
        CommandSpec::data("pexpiretime", 2, READONLY | FAST, Keys::FIRST, "7.0.0", "When a key expires, in milliseconds since 1970", |f| expiry(f, Shape::ExpiryTime(Unit::Milliseconds))),
        CommandSpec::data("persist", 2, WRITE | FAST, Keys::FIRST, "2.2.0", "Clears a key's expiry", persist),
        CommandSpec::local("wait", 3, NOSCRIPT, "3.0.0", "How many other nodes hold this connection's writes", wait),
    ],
};

fn delete(frame: &Frame) -> Result<Op, Refused> {
    Op::write(Write::Delete { keys: frame.bytes_from(1) }, Shape::Integer)
}

fn exists(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::Exists { keys: frame.bytes_from(1) }, Shape::Integer)
}

fn kind(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::Kind { key: frame.bytes(1) }, Shape::Kind)
}

fn expiry(frame: &Frame, shape: Shape) -> Result<Op, Refused> {
    Op::read(Query::Expiry { key: frame.bytes(1) }, shape)
}

fn persist(frame: &Frame) -> Result<Op, Refused> {
    let (expiry, condition) = (Expiry::Never, ExpiryCondition::Always);
    Op::write(Write::SetExpiry { key: frame.bytes(1), expiry, condition }, Shape::Flag)
}

fn expire(frame: &Frame, command: &str, unit: Unit, is_moment: bool) -> Result<Op, Refused> {
    let condition = expire_condition(frame)?;
    let time = integer(frame.arg(2))?;
    let ms = time.checked_mul(unit.ms()).filter(|ms| is_moment || *ms < TIME_MS_MAX);
    let ms = ms.ok_or_else(|| Refused::expire_time(command))?;
    let expiry = match u64::try_from(ms) {
        Ok(ms) if is_moment => Expiry::AtMs(ms),
        Ok(ms) => Expiry::AfterMs(ms),
        // A time before all others: it has passed, so the key is removed.
        Err(_) => Expiry::AtMs(0),
    };
    Op::write(Write::SetExpiry { key: frame.bytes(1), expiry, condition }, Shape::Flag)
}

fn expire_condition(frame: &Frame) -> Result<ExpiryCondition, Refused> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for word in frame.args_from(3) {
        match () {
            () if is(word, "nx") => nx = true,
            () if is(word, "xx") => xx = true,
            () if is(word, "gt") => gt = true,
            () if is(word, "lt") => lt = true,
            () => return Err(Refused(format!("ERR Unsupported option {}", text(word)).into())),
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Refused::because(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    match (nx, xx, gt, lt) {
        (_, _, true, true) => {
            Err(Refused::because("ERR GT and LT options at the same time are not compatible"))
        }
        (_, true, _, true) => Ok(ExpiryCondition::IfSomeEarlier),
        (true, ..) => Ok(ExpiryCondition::IfNone),
        // A key without an expiry counts as living forever, so GT implies XX.
        (_, _, true, _) => Ok(ExpiryCondition::IfLater),
        (.., true) => Ok(ExpiryCondition::IfEarlier),
        (_, true, ..) => Ok(ExpiryCondition::IfSome),
        _ => Ok(ExpiryCondition::Always),
    }
}

/// Every acknowledged write is on the disks of a majority: there is nothing to wait for.
fn wait(session: &mut Session, frame: &Frame, out: &mut Encoder<'_>) -> Result<(), Refused> {
    integer(frame.arg(1))?;
    if integer(frame.arg(2))? < 0 {
        return Err(Refused::because("ERR timeout is negative"));
    }
    out.integer(session.thread().other_nodes_with_every_write() as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&[u8]], expect: Result<(Expiry, ExpiryCondition), &str>) {
        let op = expire(&Frame::of(args), "expire", Unit::Seconds, false);
        let found = op.map(|op| match op.step {
            model::Step::Write(Write::SetExpiry { expiry, condition, .. }) => (expiry, condition),
            other => panic!("{other:?}"),
        });
        assert_eq!(found.map_err(|Refused(text)| text.into_owned()), expect.map_err(str::to_owned));
    }

    #[test]
    fn expire_reads_its_conditions() {
        let after = Expiry::AfterMs(5000);
        check(&[b"expire", b"k", b"5"], Ok((after, ExpiryCondition::Always)));
        check(&[b"expire", b"k", b"5", b"xx", b"GT"], Ok((after, ExpiryCondition::IfLater)));
        check(&[b"expire", b"k", b"5", b"lt", b"XX"], Ok((after, ExpiryCondition::IfSomeEarlier)));
        check(&[b"expire", b"k", b"-5", b"LT"], Ok((Expiry::AtMs(0), ExpiryCondition::IfEarlier)));
        check(&[b"expire", b"k", b"5", b"zz"], Err("ERR Unsupported option zz"));
        check(
            &[b"expire", b"k", b"5", b"nx", b"gt"],
            Err("ERR NX and XX, GT or LT options at the same time are not compatible"),
        );
        check(
            &[b"expire", b"k", b"9223372036854775807"],
            Err("ERR invalid expire time in 'expire' command"),
        );
    }
}
