//! A blocking Redis client of the simplest kind: one connection, one command at a time, a deadline
//! on each. Tests of unmodified clients are elsewhere; this one is for driving and checking.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `+OK`
    Simple(String),
    /// `:1`
    Int(i64),
    /// `$3`
    Bytes(Vec<u8>),
    /// `$-1`, `*-1`, `_`
    Nil,
    /// `*2`
    Array(Vec<Value>),
}

/// Why there is no reply.
#[derive(Debug)]
pub enum Error {
    /// The server answered with an error: its text, code first.
    Refused(String),
    /// The connection failed or the deadline passed. It is unknown whether the command took effect.
    Unknown(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(text) => write!(f, "refused: {text}"),
            Self::Unknown(e) => write!(f, "outcome unknown: {e}"),
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Self {
        Self::Unknown(e)
    }
}

impl Value {
    /// The bytes of a string reply.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// A number, given as an integer or as text.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            other => std::str::from_utf8(other.bytes()?).ok()?.parse().ok(),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    socket: BufReader<TcpStream>,
}

impl Client {
    /// Connects; every command from then on must be answered within `deadline`.
    pub fn connect(address: SocketAddr, deadline: Duration) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, deadline)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(deadline))?;
        socket.set_write_timeout(Some(deadline))?;
        Ok(Self { socket: BufReader::new(socket) })
    }

    /// Sends a command and waits for its reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value, Error> {
        self.send(words)?;
        self.receive()
    }

    /// Sends a command without waiting, for pipelines.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            out.extend_from_slice(word);
            out.extend_from_slice(b"\r\n");
        }
        self.socket.get_mut().write_all(&out)
    }

    /// Waits for the next reply.
    pub fn receive(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        if self.socket.read_line(&mut line)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let line = line.trim_end();
        let Some((mark, rest)) = line.split_at_checked(1) else { return Err(strange(line)) };
        let number = || rest.parse::<i64>().map_err(|_| strange(line));
        match mark {
            "+" => Ok(Value::Simple(rest.into())),
            "-" => Err(Error::Refused(rest.into())),
            ":" => Ok(Value::Int(number()?)),
            "_" => Ok(Value::Nil),
            "$" | "*" if number()? < 0 => Ok(Value::Nil),
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.socket.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(Value::Bytes(bytes))
            }
            "*" => {
                (0..number()?).map(|_| self.receive()).collect::<Result<_, _>>().map(Value::Array)
            }
            _ => Err(strange(line)),
        }
    }
}

fn strange(line: &str) -> Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("strange reply {line:?}")).into()
}
