//! Replies, written straight into the buffer that will be sent.

use super::decimal::put_i64;
use bytes::BytesMut;

/// The protocol version that a client chose (HELLO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// What every connection begins with.
    #[default]
    Resp2,
    /// Maps, sets, pushes, booleans, doubles, one null.
    Resp3,
}

/// Appends replies to a buffer in a client's version of the protocol.
///
/// Aggregates are written head first: after [`Encoder::array`] of `n` come `n` replies, after
/// [`Encoder::map`] of `n` come `2n`.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut BytesMut,
    version: Version,
}

impl<'a> Encoder<'a> {
    /// An encoder that appends to `out`.
    pub fn new(out: &'a mut BytesMut, version: Version) -> Encoder<'a> {
        Encoder { out, version }
    }

    /// The version it writes.
    pub fn version(&self) -> Version {
        self.version
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A short status. Must not contain a line break.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: an upper-case code, a space and a sentence. Line breaks become spaces, since an
    /// error may quote what the client sent.
    pub fn error(&mut self, text: &str) {
        self.out.reserve(text.len() + 3);
        self.out.extend_from_slice(b"-");
        for piece in text.split_inclusive(['\r', '\n']) {
            let line = piece.trim_end_matches(['\r', '\n']);
            self.out.extend_from_slice(line.as_bytes());
            if line.len() < piece.len() {
                self.out.extend_from_slice(b" ");
            }
        }
        self.out.extend_from_slice(b"\r\n");
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        self.head(b':', value);
    }

    /// A string of bytes.
    pub fn bulk(&mut self, value: &[u8]) {
        self.out.reserve(value.len() + 16);
        self.head(b'$', value.len() as i64);
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A string of bytes, or null.
    pub fn bulk_or_null(&mut self, value: Option<&[u8]>) {
        match value {
            Some(value) => self.bulk(value),
            None => self.null(),
        }
    }

    /// No value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// No array (an aborted EXEC).
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"*-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// `len` replies follow.
    pub fn array(&mut self, len: usize) {
        self.head(b'*', len as i64);
    }

    /// `len` pairs follow; in RESP2 an array of twice as many.
    pub fn map(&mut self, len: usize) {
        match self.version {
            Version::Resp2 => self.head(b'*', 2 * len as i64),
            Version::Resp3 => self.head(b'%', len as i64),
        }
    }

    /// `len` different replies follow; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        match self.version {
            Version::Resp2 => self.head(b'*', len as i64),
            Version::Resp3 => self.head(b'~', len as i64),
        }
    }

    /// An unrequested message, of `len` replies; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        match self.version {
            Version::Resp2 => self.head(b'*', len as i64),
            Version::Resp3 => self.head(b'>', len as i64),
        }
    }

    /// Yes or no; in RESP2 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.version, value) {
            (Version::Resp2, false) => b":0\r\n",
            (Version::Resp2, true) => b":1\r\n",
            (Version::Resp3, false) => b"#f\r\n",
            (Version::Resp3, true) => b"#t\r\n",
        });
    }

    /// A number with a fraction; in RESP2 a string.
    pub fn double(&mut self, value: f64) {
        let text = if value.is_nan() {
            "nan".to_owned()
        } else if value.is_infinite() {
            (if value > 0.0 { "inf" } else { "-inf" }).to_owned()
        } else {
            value.to_string()
        };
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// Text for people; in RESP2 a string. `format` has three bytes: `txt` or `mkd`.
    pub fn verbatim(&mut self, format: &str, text: &str) {
        debug_assert_eq!(format.len(), 3);
        match self.version {
            Version::Resp2 => self.bulk(text.as_bytes()),
            Version::Resp3 => {
                self.head(b'=', (text.len() + 4) as i64);
                self.out.extend_from_slice(format.as_bytes());
                self.out.extend_from_slice(b":");
                self.out.extend_from_slice(text.as_bytes());
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn head(&mut self, marker: u8, value: i64) {
        // One digit is the common case by far: lengths of short arrays, counters, flags.
        if (0..10).contains(&value) {
            self.out.extend_from_slice(&[marker, b'0' + value as u8, b'\r', b'\n']);
        } else {
            self.out.extend_from_slice(&[marker]);
            put_i64(self.out, value);
            self.out.extend_from_slice(b"\r\n");
        }
    }

    fn line(&mut self, marker: u8, text: &[u8]) {
        debug_assert!(!text.contains(&b'\r') && !text.contains(&b'\n'));
        self.out.reserve(text.len() + 3);
        self.out.extend_from_slice(&[marker]);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Encoder<'_>)) -> (String, String) {
        let text = |version| {
            let mut out = BytesMut::new();
            write(&mut Encoder::new(&mut out, version));
            String::from_utf8(out.to_vec()).unwrap()
        };
        (text(Version::Resp2), text(Version::Resp3))
    }

    #[track_caller]
    fn check(write: impl Fn(&mut Encoder<'_>), resp2: &str, resp3: &str) {
        let (two, three) = both(write);
        assert_eq!((two.as_str(), three.as_str()), (resp2, resp3));
    }

    #[test]
    fn each_version_has_its_words() {
        check(|e| e.null(), "$-1\r\n", "_\r\n");
        check(|e| e.null_array(), "*-1\r\n", "_\r\n");
        check(|e| e.map(6), "*12\r\n", "%6\r\n");
        check(|e| e.set(2), "*2\r\n", "~2\r\n");
        check(|e| e.push(3), "*3\r\n", ">3\r\n");
        check(|e| e.boolean(true), ":1\r\n", "#t\r\n");
        check(|e| e.double(2.5), "$3\r\n2.5\r\n", ",2.5\r\n");
        check(|e| e.double(f64::NEG_INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|e| e.verbatim("txt", "a\r\nb"), "$4\r\na\r\nb\r\n", "=8\r\ntxt:a\r\nb\r\n");
        check(|e| e.integer(-42), ":-42\r\n", ":-42\r\n");
        check(|e| e.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n");
    }

    #[test]
    fn an_error_stays_one_line() {
        let line = "-ERR a  b \r\n";
        check(|e| e.error("ERR a\r\nb\n"), line, line);
    }
}
