//! Requests: arrays of bulk strings, and the inline commands that a person types into telnet.

use super::decimal::{parse_i64, put_i64};
use bytes::{Bytes, BytesMut};
use model::limits;

/// An inline command with its line break.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// A `*` or `$` line without its line break; the longest sensible one has 21 bytes.
const HEADER_BYTES_MAX: usize = 64;
/// What a client may send before it has logged in, as in Redis.
const UNAUTHENTICATED_ARGS_MAX: usize = 10;
const UNAUTHENTICATED_ARG_BYTES_MAX: usize = 16 << 10;
/// Arguments whose places a connection keeps room for between commands.
const SPANS_KEPT: usize = 64;

/// One command as it arrived: its name and arguments, all slices of one piece of memory.
///
/// That memory is the buffer of the connection that the command came in. An argument that outlives
/// the command's execution must be copied, or a key of ten bytes keeps 16 KiB alive.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    bytes: Bytes,
    spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl Frame {
    /// How many arguments, the command's name included. At least one after a frame was parsed.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether nothing has been parsed into it.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// An argument to look at; 0 is the command's name.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn arg(&self, index: usize) -> &[u8] {
        let Span { start, end } = self.spans[index];
        &self.bytes[start as usize..end as usize]
    }

    /// An argument to hold on to for the time of the command.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn bytes(&self, index: usize) -> Bytes {
        let Span { start, end } = self.spans[index];
        self.bytes.slice(start as usize..end as usize)
    }

    /// All arguments from `first` on, to look at.
    pub fn args_from(&self, first: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        (first..self.len().max(first)).map(|index| self.arg(index))
    }

    /// All arguments from `first` on, to hold on to.
    pub fn bytes_from(&self, first: usize) -> Vec<Bytes> {
        (first..self.len()).map(|index| self.bytes(index)).collect()
    }

    /// Bytes of the command on the wire.
    pub fn wire_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The same command in memory of its own, for keeping.
    pub fn detached(&self) -> Frame {
        Frame { bytes: Bytes::copy_from_slice(&self.bytes), spans: self.spans.clone() }
    }

    /// Lets go of the connection's buffer.
    pub fn clear(&mut self) {
        self.bytes = Bytes::new();
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT);
    }

    /// A command made of these arguments.
    pub fn of(args: &[&[u8]]) -> Frame {
        let mut bytes = Vec::new();
        let spans = args.iter().map(|arg| push_span(&mut bytes, arg)).collect();
        Frame { bytes: bytes.into(), spans }
    }
}

fn push_span(bytes: &mut Vec<u8>, arg: &[u8]) -> Span {
    let start = bytes.len() as u32;
    bytes.extend_from_slice(arg);
    Span { start, end: bytes.len() as u32 }
}

/// What a client sent is no RESP, or is past a limit. The connection cannot go on: where the next
/// command would start is unknown. The texts are Redis's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each explains it")]
pub enum ProtocolError {
    #[error("ERR Protocol error: too big mbulk count string")]
    CountTooLong,
    #[error("ERR Protocol error: invalid multibulk length")]
    Count,
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    CountUnauthenticated,
    #[error("ERR Protocol error: expected '$', got '{}'", *.0 as char)]
    NoBulk(u8),
    #[error("ERR Protocol error: too big bulk count string")]
    LengthTooLong,
    #[error("ERR Protocol error: invalid bulk length")]
    Length,
    #[error("ERR Protocol error: unauthenticated bulk length")]
    LengthUnauthenticated,
    #[error("ERR Protocol error: expected a line break after a bulk string")]
    NoLineBreak,
    #[error("ERR Protocol error: a command has at most {max} bytes", max = limits::COMMAND_BYTES_MAX)]
    CommandTooLong,
    #[error("ERR Protocol error: too big inline request")]
    InlineTooLong,
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("ERR Protocol error: this is HTTP, and the port takes commands of Redis")]
    Http,
}

/// Finds commands in what a connection has received.
///
/// It remembers how far it has looked, so it must be given the same buffer every time, to which
/// bytes are only ever added. After an error it must not be used again.
#[derive(Debug, Default)]
pub struct RequestParser {
    /// Bytes at the front of the buffer that are understood: whole headers and arguments.
    understood: usize,
    /// Arguments of the command under way that are still to come.
    args_left: usize,
    /// Its next argument's length, once its header is understood.
    bulk_len: Option<usize>,
    /// Its arguments so far.
    spans: Vec<Span>,
    /// The client has logged in, or need not.
    authenticated: bool,
}

impl RequestParser {
    /// A parser for a new connection, whose client is not trusted with large commands yet.
    pub fn new() -> RequestParser {
        RequestParser::default()
    }

    /// From now on all but the general limits are lifted, or imposed again.
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// How many bytes at least are missing to the command under way: what to make room for. It is
    /// what the client promised, not what it sent, so make room in steps.
    pub fn missing_bytes(&self, buffer: &BytesMut) -> usize {
        match self.bulk_len {
            Some(len) => (self.understood + len + 2).saturating_sub(buffer.len()),
            None => 0,
        }
    }

    /// Takes the next command off the front of `buffer` into `frame`; `false` when it is not all
    /// there yet. Empty commands are skipped, as in Redis.
    pub fn next(
        &mut self,
        buffer: &mut BytesMut,
        frame: &mut Frame,
    ) -> Result<bool, ProtocolError> {
        frame.clear();
        while self.args_left == 0 {
            match buffer.get(self.understood) {
                None => return Ok(false),
                Some(b'*') => {
                    let Some((count, after)) = self.count(buffer)? else { return Ok(false) };
                    if count == 0 {
                        let _ = buffer.split_to(after);
                    } else {
                        self.args_left = count;
                        self.understood = after;
                    }
                }
                Some(_) => match self.inline(buffer, frame)? {
                    None => return Ok(false),
                    Some(()) if frame.is_empty() => {}
                    Some(()) => return Ok(true),
                },
            }
        }
        while self.args_left > 0 {
            if !self.argument(buffer)? {
                return Ok(false);
            }
        }
        frame.bytes = buffer.split_to(self.understood).freeze();
        std::mem::swap(&mut frame.spans, &mut self.spans);
        self.understood = 0;
        Ok(true)
    }

    /// Reads a `*` line: how many arguments, and where they start.
    fn count(&self, buffer: &[u8]) -> Result<Option<(usize, usize)>, ProtocolError> {
        let line = match header(buffer, self.understood) {
            Header::Complete { line, after } => (line, after),
            Header::Partial => return Ok(None),
            Header::TooLong => return Err(ProtocolError::CountTooLong),
        };
        let count = parse_i64(line.0).ok_or(ProtocolError::Count)?;
        if count > limits::COMMAND_ARGS_MAX as i64 {
            return Err(ProtocolError::Count);
        }
        if count > UNAUTHENTICATED_ARGS_MAX as i64 && !self.authenticated {
            return Err(ProtocolError::CountUnauthenticated);
        }
        Ok(Some((count.max(0) as usize, line.1)))
    }

    /// Reads one argument, or as much of it as there is; whether it was all there.
    fn argument(&mut self, buffer: &[u8]) -> Result<bool, ProtocolError> {
        let len = match self.bulk_len {
            Some(len) => len,
            None => {
                match buffer.get(self.understood) {
                    None => return Ok(false),
                    Some(b'$') => {}
                    Some(other) => return Err(ProtocolError::NoBulk(*other)),
                }
                let (line, after) = match header(buffer, self.understood) {
                    Header::Complete { line, after } => (line, after),
                    Header::Partial => return Ok(false),
                    Header::TooLong => return Err(ProtocolError::LengthTooLong),
                };
                let len = parse_i64(line).and_then(|len| usize::try_from(len).ok());
                let len = len.filter(|len| *len <= limits::COMMAND_BYTES_MAX);
                let len = len.ok_or(ProtocolError::Length)?;
                if len > UNAUTHENTICATED_ARG_BYTES_MAX && !self.authenticated {
                    return Err(ProtocolError::LengthUnauthenticated);
                }
                if after + len > limits::COMMAND_BYTES_MAX {
                    return Err(ProtocolError::CommandTooLong);
                }
                self.understood = after;
                self.bulk_len = Some(len);
                len
            }
        };
        let end = self.understood + len;
        match buffer.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::NoLineBreak),
        }
        self.spans.push(Span { start: self.understood as u32, end: end as u32 });
        self.understood = end + 2;
        self.bulk_len = None;
        self.args_left -= 1;
        Ok(true)
    }

    /// Takes a line off the buffer and splits it into words; `None` when it is not all there.
    fn inline(
        &mut self,
        buffer: &mut BytesMut,
        frame: &mut Frame,
    ) -> Result<Option<()>, ProtocolError> {
        let searched = &buffer[..buffer.len().min(INLINE_BYTES_MAX)];
        let Some(end) = searched.iter().position(|b| *b == b'\n') else {
            let too_long = searched.len() == INLINE_BYTES_MAX;
            return if too_long { Err(ProtocolError::InlineTooLong) } else { Ok(None) };
        };
        let line = buffer.split_to(end + 1);
        let line = &line[..end];
        let mut words = Vec::with_capacity(end);
        split_words(line.strip_suffix(b"\r").unwrap_or(line), &mut words, &mut frame.spans)?;
        if frame
            .spans
            .first()
            .is_some_and(|word| is_http(&words[word.start as usize..word.end as usize]))
        {
            return Err(ProtocolError::Http);
        }
        frame.bytes = words.into();
        Ok(Some(()))
    }
}

enum Header<'a> {
    Complete { line: &'a [u8], after: usize },
    Partial,
    TooLong,
}

/// Finds a header's line: between its marker at `at` and its line break.
fn header(buffer: &[u8], at: usize) -> Header<'_> {
    let rest = &buffer[at + 1..];
    let searched = &rest[..rest.len().min(HEADER_BYTES_MAX)];
    match searched.iter().position(|b| *b == b'\n') {
        Some(end) => {
            let line = &rest[..end];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            Header::Complete { line, after: at + 1 + end + 1 }
        }
        None if searched.len() == HEADER_BYTES_MAX => Header::TooLong,
        None => Header::Partial,
    }
}

/// Whether a line begins as a line of HTTP does. A web page can have a browser send one to a port
/// of its own machine, with commands of Redis in the body; as with Redis, the connection ends
/// before they are read.
fn is_http(word: &[u8]) -> bool {
    [&b"POST"[..], b"Host:"].into_iter().any(|begin| word.eq_ignore_ascii_case(begin))
}

/// Splits an inline command at its blanks. Words may be in single quotes (with `\'`) or in double
/// quotes (with `\n \r \t \b \a \xHH` and `\` before anything else standing for itself).
fn split_words(
    line: &[u8],
    bytes: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c | 0);
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|b| is_blank(b)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Ok(());
        }
        let start = bytes.len() as u32;
        // A word may begin bare and go on quoted; a closing quote ends it.
        loop {
            match rest {
                [] => break,
                [blank, ..] if is_blank(blank) => break,
                [quote @ (b'"' | b'\''), quoted @ ..] => {
                    let after = unquote(*quote, quoted, bytes).ok_or(ProtocolError::Quotes)?;
                    if after.first().is_some_and(|next| !is_blank(next)) {
                        return Err(ProtocolError::Quotes);
                    }
                    rest = after;
                    break;
                }
                [bare, after @ ..] => {
                    bytes.push(*bare);
                    rest = after;
                }
            }
        }
        spans.push(Span { start, end: bytes.len() as u32 });
    }
}

/// Reads up to the closing quote; what comes after it, or `None` when there is no such quote.
fn unquote<'a>(quote: u8, mut rest: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    loop {
        match rest {
            [] => return None,
            [end, after @ ..] if *end == quote => return Some(after),
            [b'\\', b'\'', after @ ..] if quote == b'\'' => {
                bytes.push(b'\'');
                rest = after;
            }
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && hex(*high).is_some() && hex(*low).is_some() =>
            {
                bytes.push(hex(*high)? << 4 | hex(*low)?);
                rest = after;
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = after;
            }
            [plain, after @ ..] => {
                bytes.push(*plain);
                rest = after;
            }
        }
    }
}

/// Appends a command as a client sends it.
pub fn encode_request(out: &mut BytesMut, args: &[&[u8]]) {
    out.extend_from_slice(b"*");
    put_i64(out, args.len() as i64);
    out.extend_from_slice(b"\r\n");
    for arg in args {
        out.extend_from_slice(b"$");
        put_i64(out, arg.len() as i64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::any::{Commands, check_any, requests as parse};
    use proptest::prelude::*;

    #[track_caller]
    fn check(input: &[u8], expect: &[&[&[u8]]]) {
        let (commands, error) = parse(&[input], true);
        assert_eq!(error, None);
        assert_eq!(commands, expect, "{}", input.escape_ascii());
    }

    #[track_caller]
    fn check_error(input: &[u8], expect: &str) {
        let (_, error) = parse(&[input], true);
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text, format!("ERR Protocol error: {expect}"), "{}", input.escape_ascii());
    }

    #[test]
    fn http_ends_the_connection() {
        let http = "this is HTTP, and the port takes commands of Redis";
        check_error(b"POST / HTTP/1.1\r\n\r\nset pwned 1\r\n", http);
        check_error(b"host: 127.0.0.1\r\nset pwned 1\r\n", http);
        check(b"posts\r\nget post\r\n", &[&[b"posts"], &[b"get", b"post"]]);
    }

    #[test]
    fn arrays_and_lines() {
        check(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &[&[b"GET", b"k"]]);
        check(b"*1\r\n$0\r\n\r\n", &[&[b""]]);
        check(b"*0\r\n*-1\r\n\r\n  \r\nPING\r\n", &[&[b"PING"]]);
        check(b"set k 'it\\'s' \"a\\x41\\n\\q\"\n", &[&[b"set", b"k", b"it's", b"aA\nq"]]);
        check(b"get \"\" ''\r\nPING\r\n", &[&[b"get", b"", b""], &[b"PING"]]);
        check(b"*2\r\n$3\r\nGET\r\n$1\r\n", &[]);
    }

    #[test]
    fn what_redis_refuses() {
        check_error(b"*x\r\n", "invalid multibulk length");
        check_error(b"*1048577\r\n", "invalid multibulk length");
        check_error(b"*1\r\nGET\r\n", "expected '$', got 'G'");
        check_error(b"*1\r\n$-1\r\n", "invalid bulk length");
        check_error(b"*1\r\n$99999999999\r\n", "invalid bulk length");
        check_error(b"*1\r\n$ 1\r\n", "invalid bulk length");
        check_error(&[b'*'; 100], "too big mbulk count string");
        check_error(&[b"*1\r\n$".as_slice(), &[b'1'; 100]].concat(), "too big bulk count string");
        check_error(&[b'a'; 64 << 10], "too big inline request");
        check_error(b"get 'a\r\n", "unbalanced quotes in request");
        check_error(b"get \"a\"b\r\n", "unbalanced quotes in request");
        check_error(b"*1\r\n$1\r\nabc\r\n", "expected a line break after a bulk string");
    }

    #[test]
    fn a_command_is_bounded_as_a_whole() {
        let half = limits::COMMAND_BYTES_MAX / 2;
        let mut input = format!("*3\r\n${half}\r\n").into_bytes();
        input.resize(input.len() + half, b'x');
        input.extend_from_slice(format!("\r\n${half}\r\n").as_bytes());
        check_error(&input, "a command has at most 83886080 bytes");
    }

    #[test]
    fn a_client_without_login_may_send_little() {
        let (_, error) = parse(&[b"*11\r\n"], false);
        assert_eq!(error, Some(ProtocolError::CountUnauthenticated));
        let (_, error) = parse(&[b"*1\r\n$16385\r\n"], false);
        assert_eq!(error, Some(ProtocolError::LengthUnauthenticated));
    }

    #[test]
    fn room_is_asked_for_only_once_the_length_is_known() {
        let mut parser = RequestParser::new();
        let mut buffer = BytesMut::from(&b"*2\r\n$3\r\nGET\r\n$100\r\nabc"[..]);
        assert!(!parser.next(&mut buffer, &mut Frame::default()).unwrap());
        assert_eq!(parser.missing_bytes(&buffer), 99);
    }

    fn commands() -> impl Strategy<Value = Commands> {
        let arg = prop::collection::vec(any::<u8>(), 0..20);
        prop::collection::vec(prop::collection::vec(arg, 1..6), 0..8)
    }

    fn split_at(input: &[u8], mut cuts: Vec<usize>) -> Vec<&[u8]> {
        cuts.iter_mut().for_each(|cut| *cut %= input.len() + 1);
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|cut| &input[cut[0]..cut[1]]).collect()
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_commands(commands in commands(), cuts: Vec<usize>) {
            let mut input = BytesMut::new();
            for command in &commands {
                let args: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
                encode_request(&mut input, &args);
            }
            let (parsed, error) = parse(&split_at(&input, cuts), true);
            prop_assert_eq!(error, None);
            prop_assert_eq!(parsed, commands);
        }

        #[test]
        fn hostile_bytes_are_read_the_same_however_they_come(
            // From the alphabet of the protocol, so that much of it almost makes sense.
            picks in prop::collection::vec(0usize..16, 0..200), cuts: Vec<usize>,
        ) {
            let input: Vec<u8> = picks.iter().map(|pick| b"*$\r\n\r\n0123-1a\"' "[*pick]).collect();
            check_any(&split_at(&input, cuts));
        }
    }
}
