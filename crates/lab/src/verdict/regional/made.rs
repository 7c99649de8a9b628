//! Histories for tests, from short text: a request or a position a line, in the order of time.
//!
//! ```text
//! c@A put x=A1            c@A put x,h.f=A2        c@A del x=A3        c@A put x=?     (no answer)
//! d@B get x=A1            d@B get x=A2,y=none     d@B get x=none(A3)  c@R del p:*=R4
//! A1 @ 3                  A2 lost                 A3 @ 7 below 5      A4 @ 8 same 6   R5 @ 9 removes x
//! ```

use crate::history::{Assigned, Got, History, Instead, Position, Register, Request, Seen, WriteId};

pub(super) fn history(lines: &str) -> History {
    let mut history = History::default();
    for (number, line) in lines.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [who, verb, what] if who.contains('@') => {
                history.requests.push(request(who, verb, what, number as u64 * 10));
            }
            [id, place @ ..] => history.positions.push(position(id, place)),
            [] => {}
        }
    }
    history
}

fn id(word: &str) -> WriteId {
    WriteId { site: word[..1].to_owned(), revision: word[1..].parse().unwrap() }
}

fn register(word: &str) -> Register {
    match (word.split_once('.'), word.strip_suffix('*'), word.strip_suffix('!')) {
        (Some((key, field)), ..) => Register::Field(key.to_owned(), field.to_owned()),
        (_, Some(prefix), _) => Register::Keyspace(prefix.to_owned()),
        (_, _, Some(key)) => Register::Expiry(key.to_owned()),
        _ => Register::Key(word.to_owned()),
    }
}

fn request(who: &str, verb: &str, what: &str, call_us: u64) -> Request {
    let (client, site) = who.split_once('@').unwrap();
    let mut request = Request {
        client: client.to_owned(),
        site: site.to_owned(),
        call_us,
        return_us: Some(call_us + 5),
        reads: Vec::new(),
        writes: Vec::new(),
        write: None,
        got: Got::Done,
    };
    if verb == "get" {
        request.reads = what.split(',').map(seen).collect();
        return request;
    }
    let (registers, as_what) = what.split_once('=').unwrap();
    let assigned = |word| Assigned { register: register(word), deletes: verb == "del" };
    request.writes = registers.split(',').map(assigned).collect();
    match as_what {
        "?" => {
            request.got = Got::Unknown { why: "timed out".to_owned() };
            request.return_us = None;
        }
        word => request.write = Some(id(word)),
    }
    request
}

fn seen(word: &str) -> Seen {
    let (name, found) = word.split_once('=').unwrap();
    let absent = found.starts_with("none");
    let named = found.trim_start_matches("none").trim_matches(['(', ')']);
    let found = (!named.is_empty()).then(|| id(named));
    Seen { register: register(name), found, absent }
}

fn position(word: &str, place: &[&str]) -> Position {
    let WriteId { site, revision } = id(word);
    let mut line =
        Position { site, revision, position: None, instead: Vec::new(), removes: Vec::new() };
    let ["@", position, rest @ ..] = place else { return line };
    line.position = Some(position.parse().unwrap());
    match rest {
        ["below", of] => {
            let of = of.parse().unwrap();
            line.instead.push(Instead { of, same: false, registers: Vec::new() });
        }
        ["same", of] => {
            let of = of.parse().unwrap();
            line.instead.push(Instead { of, same: true, registers: Vec::new() });
        }
        ["removes", register_word] => line.removes.push(register(register_word)),
        _ => {}
    }
    line
}
