//! Replies as a client reads them, in both versions of the protocol.

use super::decimal::parse_i64;
use bytes::{Bytes, BytesMut};
use model::limits;

/// How deep aggregates may nest.
const DEPTH_MAX: usize = 16;
/// A header line without its line break; errors and statuses are lines too.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Elements of one reply, all levels together.
const ELEMENTS_MAX: usize = 16 << 20;

/// One reply of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`
    Simple(Bytes),
    /// `-ERR …`, without the minus.
    Error(Bytes),
    /// A whole number.
    Integer(i64),
    /// A string of bytes.
    Bulk(Bytes),
    /// Any of the nulls: `$-1`, `*-1`, `_`.
    Null,
    /// Replies in order.
    Array(Vec<Reply>),
    /// Pairs in order (RESP3).
    Map(Vec<(Reply, Reply)>),
    /// Different replies (RESP3).
    Set(Vec<Reply>),
    /// An unrequested message (RESP3).
    Push(Vec<Reply>),
    /// Yes or no (RESP3).
    Boolean(bool),
    /// A number with a fraction (RESP3).
    Double(f64),
    /// Text for people and its format (RESP3).
    Verbatim {
        /// `txt` or `mkd`.
        format: Bytes,
        /// The text.
        text: Bytes,
    },
    /// A number of any size, as its digits (RESP3).
    BigNumber(Bytes),
}

/// The server sent something that is no reply. The connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply cannot be understood: {0}")]
pub struct ReplyError(pub &'static str);

/// Finds replies in what a client has received. Like the request parser it remembers how far it
/// has looked and must always be given the same growing buffer.
#[derive(Debug, Default)]
pub struct ReplyParser {
    /// Bytes at the front of the buffer that are understood.
    understood: usize,
    /// Elements still to come before the reply is whole, once its first has been seen.
    elements_left: usize,
    /// Elements seen.
    elements: usize,
}

impl ReplyParser {
    /// A parser for a new connection.
    pub fn new() -> ReplyParser {
        ReplyParser::default()
    }

    /// Takes the next reply off the front of `buffer`; `None` when it is not all there yet.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Reply>, ReplyError> {
        if self.understood == 0 {
            (self.elements_left, self.elements) = (1, 0);
        }
        while self.elements_left > 0 {
            let Some(element) = Element::read(buffer, self.understood)? else { return Ok(None) };
            self.understood = element.after;
            self.elements += 1;
            self.elements_left = self.elements_left - 1 + element.children();
            if self.elements + self.elements_left > ELEMENTS_MAX {
                return Err(ReplyError("it has too many elements"));
            }
        }
        let bytes = buffer.split_to(self.understood).freeze();
        self.understood = 0;
        build(&bytes, &mut 0, 0).map(Some)
    }
}

/// One element: a marker, the rest of its header, and its own bytes if it has any.
struct Element {
    marker: u8,
    /// The header's line, or the bulk string's bytes.
    start: usize,
    end: usize,
    /// Elements inside; -1 for a null.
    len: i64,
    after: usize,
}

impl Element {
    fn read(buffer: &[u8], at: usize) -> Result<Option<Element>, ReplyError> {
        let Some(&marker) = buffer.get(at) else { return Ok(None) };
        let rest = &buffer[at + 1..];
        let searched = &rest[..rest.len().min(LINE_BYTES_MAX)];
        let Some(line_len) = searched.iter().position(|b| *b == b'\n') else {
            let too_long = searched.len() == LINE_BYTES_MAX;
            return if too_long { Err(ReplyError("a line is too long")) } else { Ok(None) };
        };
        let Some(line) = rest[..line_len].strip_suffix(b"\r") else {
            return Err(ReplyError("a line does not end in CR LF"));
        };
        let (start, end) = (at + 1, at + 1 + line.len());
        let element = Element { marker, start, end, len: 0, after: end + 2 };
        match marker {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Ok(Some(element)),
            b'$' | b'=' | b'!' | b'*' | b'%' | b'~' | b'>' => {
                let len = parse_i64(line).filter(|len| *len >= -1);
                let len = len.ok_or(ReplyError("a length is no number"))?;
                if len < 0 || matches!(marker, b'*' | b'%' | b'~' | b'>') {
                    return Ok(Some(Element { len, ..element }));
                }
                if len > limits::COMMAND_BYTES_MAX as i64 {
                    return Err(ReplyError("a string is too long"));
                }
                let (start, end) = (element.after, element.after + len as usize);
                match buffer.get(end..end + 2) {
                    None => Ok(None),
                    Some(b"\r\n") => Ok(Some(Element { start, end, len, after: end + 2, marker })),
                    Some(_) => Err(ReplyError("a string does not end in CR LF")),
                }
            }
            _ => Err(ReplyError("an unknown marker")),
        }
    }

    fn children(&self) -> usize {
        let len = self.len.clamp(0, ELEMENTS_MAX as i64) as usize;
        match self.marker {
            b'*' | b'~' | b'>' => len,
            b'%' => 2 * len,
            _ => 0,
        }
    }
}

/// Builds the reply at `at` from bytes that are known to be all there.
fn build(bytes: &Bytes, at: &mut usize, depth: usize) -> Result<Reply, ReplyError> {
    if depth > DEPTH_MAX {
        return Err(ReplyError("it nests too deep"));
    }
    let element = Element::read(bytes, *at)?.ok_or(ReplyError("it ends early"))?;
    *at = element.after;
    let children = element.children();
    let text = || bytes.slice(element.start..element.end);
    let mut list = || -> Result<Vec<Reply>, ReplyError> {
        (0..children).map(|_| build(bytes, at, depth + 1)).collect()
    };
    Ok(match element.marker {
        _ if element.len < 0 => Reply::Null,
        b'_' => Reply::Null,
        b'+' => Reply::Simple(text()),
        b'-' | b'!' => Reply::Error(text()),
        b'$' => Reply::Bulk(text()),
        b'(' => Reply::BigNumber(text()),
        b':' => Reply::Integer(parse_i64(&text()).ok_or(ReplyError("an integer is no number"))?),
        b'#' => match &text()[..] {
            b"t" => Reply::Boolean(true),
            b"f" => Reply::Boolean(false),
            _ => return Err(ReplyError("a boolean is neither t nor f")),
        },
        b',' => {
            let number = std::str::from_utf8(&text()).ok().and_then(|text| text.parse().ok());
            Reply::Double(number.ok_or(ReplyError("a double is no number"))?)
        }
        b'=' => {
            let text = text();
            if text.get(3) != Some(&b':') {
                return Err(ReplyError("a verbatim string has no format"));
            }
            Reply::Verbatim { format: text.slice(..3), text: text.slice(4..) }
        }
        b'*' => Reply::Array(list()?),
        b'~' => Reply::Set(list()?),
        b'>' => Reply::Push(list()?),
        _ => {
            let pairs = (0..children / 2)
                .map(|_| Ok((build(bytes, at, depth + 1)?, build(bytes, at, depth + 1)?)));
            Reply::Map(pairs.collect::<Result<_, ReplyError>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::any::{check_any, replies};
    use crate::resp::{Encoder, Version};
    use proptest::prelude::*;

    fn parse(pieces: &[&[u8]]) -> Result<Vec<Reply>, ReplyError> {
        let (replies, error) = replies(pieces);
        error.map_or(Ok(replies), Err)
    }

    #[test]
    fn every_kind_is_read() {
        let mut out = BytesMut::new();
        let mut encoder = Encoder::new(&mut out, Version::Resp3);
        encoder.map(1);
        encoder.simple("k");
        encoder.array(3);
        encoder.integer(-7);
        encoder.null();
        encoder.boolean(true);
        encoder.push(1);
        encoder.verbatim("txt", "hi");
        encoder.set(1);
        encoder.double(0.5);
        encoder.error("ERR no");
        encoder.bulk(b"a\r\nb");
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let list = vec![Reply::Integer(-7), Reply::Null, Reply::Boolean(true)];
        let expect = vec![
            Reply::Map(vec![(Reply::Simple(text("k")), Reply::Array(list))]),
            Reply::Push(vec![Reply::Verbatim { format: text("txt"), text: text("hi") }]),
            Reply::Set(vec![Reply::Double(0.5)]),
            Reply::Error(text("ERR no")),
            Reply::Bulk(text("a\r\nb")),
        ];
        assert_eq!(parse(&[&out]), Ok(expect));
        assert_eq!(parse(&[b"$-1\r\n*-1\r\n"]), Ok(vec![Reply::Null, Reply::Null]));
    }

    #[test]
    fn nonsense_is_refused() {
        let deep = b"*1\r\n".repeat(40);
        for input in [&b"?\r\n"[..], b"$x\r\n", b":1\n", b"#x\r\n", b"$1\r\nabc", b"=3\r\ntxt\r\n"]
        {
            assert!(parse(&[input]).is_err(), "{}", input.escape_ascii());
        }
        assert!(parse(&[&deep, b":1\r\n"]).is_err());
        assert!(parse(&[b"*99999999\r\n"]).is_err());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_replies(
            picks in prop::collection::vec(0usize..20, 0..120), cut in any::<usize>(),
        ) {
            let input: Vec<u8> = picks.iter().map(|p| b"*$\r\n\r\n012:+-#t_%>~=,"[*p]).collect();
            let cut = cut % (input.len() + 1);
            check_any(&[&input[..cut], &input[cut..]]);
        }
    }
}
