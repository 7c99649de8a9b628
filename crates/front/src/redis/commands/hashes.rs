//! Hashes: one record each, so that a scan of one is always a single page.

use crate::redis::args::integer;
use crate::redis::commands::scan::read_options;
use crate::redis::refused::Refused;
use crate::redis::step::{Op, Shape};
use crate::redis::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::redis::table::{CommandSpec, Family, Keys};
use bytes::Bytes;
use model::{Query, Write};
use wire::resp::Frame;

#[rustfmt::skip]
pub(super) static FAMILY: Family = Family {
    group: "hash",
    category: "@hash",
    commands: &[
        CommandSpec::data("hset", -4, WRITE | DENYOOM | FAST, Keys::FIRST, "2.0.0", "Sets fields of a hash", hset),
        CommandSpec::data("hmset", -4, WRITE | DENYOOM | FAST, Keys::FIRST, "2.0.0", "Sets fields of a hash", hmset),
        CommandSpec::data("hget", 3, READONLY | FAST, Keys::FIRST, "2.0.0", "A field of a hash", |f| field(f, Shape::Value)),
        CommandSpec::data("hmget", -3, READONLY | FAST, Keys::FIRST, "2.0.0", "Several fields of a hash", hmget),
        CommandSpec::data("hgetall", 2, READONLY, Keys::FIRST, "2.0.0", "All fields of a hash with their values", |f| all(f, Shape::Fields)),
        CommandSpec::data("hdel", -3, WRITE | FAST, Keys::FIRST, "2.0.0", "Removes fields of a hash", hdel),
        CommandSpec::data("hexists", 3, READONLY | FAST, Keys::FIRST, "2.0.0", "Whether a hash has a field", hexists),
        CommandSpec::data("hlen", 2, READONLY | FAST, Keys::FIRST, "2.0.0", "How many fields a hash has", hlen),
        CommandSpec::data("hsetnx", 4, WRITE | DENYOOM | FAST, Keys::FIRST, "2.0.0", "Sets a field of a hash if it is absent", hsetnx),
        CommandSpec::data("hincrby", 4, WRITE | DENYOOM | FAST, Keys::FIRST, "2.0.0", "Adds to a number in a field of a hash", hincrby),
        CommandSpec::data("hkeys", 2, READONLY, Keys::FIRST, "2.0.0", "All fields of a hash", |f| all(f, Shape::FieldNames)),
        CommandSpec::data("hvals", 2, READONLY, Keys::FIRST, "2.0.0", "All values of a hash", |f| all(f, Shape::FieldValues)),
        CommandSpec::data("hstrlen", 3, READONLY | FAST, Keys::FIRST, "3.2.0", "The length of a field of a hash", |f| field(f, Shape::ValueLen)),
        CommandSpec::data("hscan", -3, READONLY, Keys::FIRST, "2.8.0", "The fields of a hash that match, in one page", hscan),
    ],
};

fn fields(frame: &Frame, command: &str) -> Result<Write, Refused> {
    if !frame.len().is_multiple_of(2) {
        return Err(Refused::arity(command));
    }
    let places = (2..frame.len()).step_by(2);
    let fields: Vec<(Bytes, Bytes)> =
        places.map(|at| (frame.bytes(at), frame.bytes(at + 1))).collect();
    Ok(Write::HashSet { key: frame.bytes(1), fields })
}

fn hset(frame: &Frame) -> Result<Op, Refused> {
    Op::write(fields(frame, "hset")?, Shape::Integer)
}

fn hmset(frame: &Frame) -> Result<Op, Refused> {
    Op::write(fields(frame, "hmset")?, Shape::Ok)
}

fn field(frame: &Frame, shape: Shape) -> Result<Op, Refused> {
    Op::read(Query::HashGet { key: frame.bytes(1), field: frame.bytes(2) }, shape)
}

fn hmget(frame: &Frame) -> Result<Op, Refused> {
    let query = Query::HashGetMany { key: frame.bytes(1), fields: frame.bytes_from(2) };
    Op::read(query, Shape::Values)
}

fn all(frame: &Frame, shape: Shape) -> Result<Op, Refused> {
    Op::read(Query::HashGetAll { key: frame.bytes(1) }, shape)
}

fn hdel(frame: &Frame) -> Result<Op, Refused> {
    let write = Write::HashDelete { key: frame.bytes(1), fields: frame.bytes_from(2) };
    Op::write(write, Shape::Integer)
}

fn hexists(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::HashExists { key: frame.bytes(1), field: frame.bytes(2) }, Shape::Flag)
}

fn hlen(frame: &Frame) -> Result<Op, Refused> {
    Op::read(Query::HashLen { key: frame.bytes(1) }, Shape::Integer)
}

fn hsetnx(frame: &Frame) -> Result<Op, Refused> {
    let (key, field, value) = (frame.bytes(1), frame.bytes(2), frame.bytes(3));
    Op::write(Write::HashSetIfAbsent { key, field, value }, Shape::Flag)
}

fn hincrby(frame: &Frame) -> Result<Op, Refused> {
    let delta = integer(frame.arg(3))?;
    Op::write(Write::HashAdd { key: frame.bytes(1), field: frame.bytes(2), delta }, Shape::FieldSum)
}

fn hscan(frame: &Frame) -> Result<Op, Refused> {
    let options = read_options(frame, 2, false)?;
    if options.cursor != 0 {
        return Err(Refused::because("ERR a hash is scanned in one page: its only cursor is 0"));
    }
    all(frame, Shape::FieldPage { glob: options.filter.glob })
}
