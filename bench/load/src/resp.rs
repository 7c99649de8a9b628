//! The Redis protocol's client side, as little of it as GET and SET need.

use std::time::Instant;

use crate::connection::Session;
use crate::report::{Outcome, Samples};
use crate::workload::{Kind, Workload};

/// One client: sends `depth` commands at once and waits for all their replies.
pub(crate) struct Pipeline {
    depth: usize,
    started: Option<Instant>,
    /// Commands of the present round; those before `answered` have their reply.
    kinds: Vec<Kind>,
    answered: usize,
}

impl Pipeline {
    pub(crate) fn new(depth: usize) -> Self {
        Self { depth, started: None, kinds: Vec::with_capacity(depth), answered: 0 }
    }
}

impl Session for Pipeline {
    fn refill(&mut self, now: Instant, workload: &mut Workload, out: &mut Vec<u8>) {
        if self.in_flight() > 0 {
            return;
        }
        self.kinds.clear();
        self.answered = 0;
        self.started = Some(now);
        while self.kinds.len() < self.depth {
            let Some(request) = workload.next() else {
                break;
            };
            match request.kind {
                Kind::Get => command(out, &[b"GET", request.key]),
                Kind::Put => command(out, &[b"SET", request.key, request.value]),
            }
            self.kinds.push(request.kind);
        }
    }

    fn receive(
        &mut self,
        now: Instant,
        input: &[u8],
        _out: &mut Vec<u8>,
        samples: &mut Samples,
    ) -> Result<usize, String> {
        let mut used = 0;
        while let Some((length, outcome)) = reply(&input[used..])? {
            used += length;
            let (Some(&kind), Some(started)) = (self.kinds.get(self.answered), self.started) else {
                return Err("a reply came that no command waits for".into());
            };
            self.answered += 1;
            samples.record(kind, (now - started).as_nanos() as u64, outcome);
        }
        Ok(used)
    }

    fn in_flight(&self) -> usize {
        self.kinds.len() - self.answered
    }
}

/// Appends a command: an array of bulk strings.
fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    number(out, b'*', words.len());
    for word in words {
        number(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn number(out: &mut Vec<u8>, mark: u8, mut value: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.push(mark);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// The first reply in `input`: its length and its content; `None` while it is incomplete. GET and
/// SET are answered with a simple string, an error or a bulk string, in RESP2 (no HELLO is sent).
fn reply(input: &[u8]) -> Result<Option<(usize, Outcome)>, String> {
    let Some(end) = input.iter().position(|&b| b == b'\n') else {
        return Ok(None);
    };
    let line = input[..end].trim_ascii_end();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match line.first() {
        Some(b'+') => Ok(Some((end + 1, Outcome::Done))),
        Some(b'-') => Ok(Some((end + 1, Outcome::Failed(text(&line[1..]))))),
        Some(b'$') if &line[1..] == b"-1" => Ok(Some((end + 1, Outcome::Missed))),
        Some(b'$') => {
            let length: usize =
                text(&line[1..]).parse().map_err(|_| format!("bad length in {:?}", text(line)))?;
            let whole = end + 1 + length + 2;
            Ok((input.len() >= whole).then_some((whole, Outcome::Done)))
        }
        _ => Err(format!("a reply that GET and SET do not have: {:?}", text(line))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &[b"SET", b"key:1", b"0123456789"]);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$5\r\nkey:1\r\n$10\r\n0123456789\r\n");
    }

    #[test]
    fn a_reply_is_taken_only_when_whole() {
        let whole = b"$5\r\na\r\nbc\r\n";
        for cut in 0..whole.len() {
            assert!(reply(&whole[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let (length, outcome) = reply(whole).unwrap().unwrap();
        assert_eq!(length, whole.len());
        assert!(matches!(outcome, Outcome::Done));
    }

    #[test]
    fn absence_and_errors_are_told_apart_from_success() {
        assert!(matches!(reply(b"$-1\r\n"), Ok(Some((5, Outcome::Missed)))));
        assert!(
            matches!(reply(b"-ERR no\r\n"), Ok(Some((9, Outcome::Failed(text)))) if text == "ERR no")
        );
        assert!(matches!(reply(b"+OK\r\n"), Ok(Some((5, Outcome::Done)))));
        assert!(reply(b"hello\r\n").is_err());
    }
}
