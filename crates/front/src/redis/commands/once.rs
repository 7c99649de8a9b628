//! PORTOLAN.ONCE: a put that a client may send to another site, should the first one not answer.
//! This is one attempt of it; the put has one effect. [`crate::numbered`] is the same for every
//! protocol.

use crate::numbered::{Attempt, is_everywhere};
use crate::redis::args::{is, text};
use crate::redis::refused::{Refused, refusal_text};
use crate::redis::step::{Op, Shape};
use bytes::Bytes;
use model::{ClientId, Command, Condition, Expiry, Keyspace, RequestId, Write};
use server::Handle;
use wire::resp::{Frame, parse_i64};

/// What comes before the put: the number, the site, which attempt it is.
const NAME_AT: usize = 4;

/// What one attempt states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) struct Once {
    attempt: Attempt,
    /// Where puts cannot be sent to several sites, it is made like any other.
    is_optional: bool,
}

impl Once {
    /// The put as this attempt; `None`: it is to be made like any other.
    pub(in crate::redis) fn command(
        &self,
        handle: &Handle,
        keyspace: &Keyspace,
        write: &Write,
    ) -> Result<Option<Command>, Refused> {
        if !is_everywhere(keyspace) {
            let name = &keyspace.spec.name;
            let text = format!(
                "NOTONCE puts are sent to several sites in causal keyspaces that all sites hold, and \
                 keyspace '{name}' is another one"
            );
            return if self.is_optional { Ok(None) } else { Err(Refused(text.into())) };
        }
        let pairs = write.clone().into_puts().ok_or(NO_PUT)?;
        let command = self.attempt.command(handle, keyspace, pairs);
        command.map(Some).map_err(|refusal| Refused(refusal_text(&refusal)))
    }
}

/// PORTOLAN.ONCE number site FIRST|AGAIN|OPTIONAL, and a put.
pub(super) fn once(frame: &Frame) -> Result<Op, Refused> {
    let request = number(frame.arg(1)).ok_or(NO_NUMBER)?;
    // What is cut off, or replaced, is no name of a site.
    let first = text(frame.arg(2)).into_owned();
    let (again, is_optional) = match frame.arg(3) {
        word if is(word, "first") => (false, false),
        word if is(word, "again") => (true, false),
        word if is(word, "optional") => (false, true),
        _ => return Err(NO_WORD),
    };
    let once = Once { attempt: Attempt { request, first, again }, is_optional };
    let op = Op::write(put(frame)?, Shape::Ok)?;
    Ok(Op { once: Some(Box::new(once)), ..op })
}

/// The put behind it.
fn put(frame: &Frame) -> Result<Write, Refused> {
    let name = frame.arg(NAME_AT);
    let mut pairs: Vec<(Bytes, Bytes)> = (NAME_AT + 1..frame.len() - 1)
        .step_by(2)
        .map(|at| (frame.bytes(at), frame.bytes(at + 1)))
        .collect();
    let is_whole = (frame.len() - NAME_AT) % 2 == 1;
    if is(name, "set") && is_whole && pairs.len() == 1 {
        let (key, value) = pairs.swap_remove(0);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        return Ok(Write::Put { key, value, condition, expiry, return_old: false });
    }
    if is(name, "mset") && is_whole {
        return Ok(Write::PutMany { pairs, if_all_absent: false });
    }
    Err(NO_PUT)
}

/// The client's number, a dash, and that of its put.
fn number(arg: &[u8]) -> Option<RequestId> {
    let dash = arg.iter().position(|byte| *byte == b'-')?;
    let positive = |digits: &[u8]| {
        let number = parse_i64(digits).and_then(|number| u64::try_from(number).ok());
        number.filter(|number| *number > 0)
    };
    let (client, sequence) = (positive(&arg[..dash])?, positive(&arg[dash + 1..])?);
    // Of those that the client has seen answered nothing is known: none is forgotten for that.
    Some(RequestId { client: ClientId(client), sequence, acknowledged_below: 0 })
}

const NO_NUMBER: Refused = Refused::because(
    "ERR the number of a put is CLIENT-PUT, two numbers from 1 to 9223372036854775807",
);
const NO_WORD: Refused =
    Refused::because("ERR behind the name of the site comes FIRST, AGAIN or OPTIONAL");
const NO_PUT: Refused = Refused::because(
    "ERR PORTOLAN.ONCE goes with SET key value and MSET key value [key value ...], without a \
     condition, an expiry or another option, and with no other command",
);

#[cfg(test)]
mod tests {
    use super::*;
    use model::Step;

    fn parsed(words: &str) -> Result<Op, Refused> {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        once(&Frame::of(&words))
    }

    #[test]
    fn an_attempt_is_read() {
        let op = parsed("portolan.once 7-12 pier FIRST SET k v").unwrap();
        let request = RequestId { client: ClientId(7), sequence: 12, acknowledged_below: 0 };
        let attempt = Attempt { request, first: "pier".to_owned(), again: false };
        assert_eq!(op.once, Some(Box::new(Once { attempt, is_optional: false })));
        let Step::Write(write) = op.step else { panic!("{:?}", op.step) };
        assert_eq!(write.into_puts(), Some(vec![("k".into(), "v".into())]));
        let again = parsed("portolan.once 7-12 pier again mset a 1 b 2").unwrap();
        assert!(again.once.is_some_and(|once| once.attempt.again && !once.is_optional));
        let Step::Write(write) = again.step else { panic!("{:?}", again.step) };
        assert_eq!(write.into_puts().map(|pairs| pairs.len()), Some(2));
        let optional = parsed("portolan.once 7-12  Optional set k v").unwrap();
        let once = optional.once.unwrap();
        assert!(!once.attempt.again && once.is_optional && once.attempt.first.is_empty());
    }

    #[test]
    fn what_is_none_is_refused_by_cause() {
        for number in ["7", "7-", "-12", "0-1", "1-0", "7-x", "7-1-2", "9223372036854775808-1"] {
            let refused = parsed(&format!("portolan.once {number} pier FIRST SET k v"));
            assert_eq!(refused, Err(NO_NUMBER), "{number}");
        }
        assert_eq!(parsed("portolan.once 7-1 pier SET SET k v"), Err(NO_WORD));
        for put in
            ["SET k v EX 9", "SET k v NX", "SET k v GET", "MSET k v k", "DEL k v", "HSET h f v"]
        {
            assert_eq!(
                parsed(&format!("portolan.once 7-1 pier FIRST {put}")),
                Err(NO_PUT),
                "{put}"
            );
        }
    }
}
