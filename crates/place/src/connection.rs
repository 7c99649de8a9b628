//! One connection to a server: RESP2 over TCP or TLS, a deadline on each call.
//!
//! `wire::resp` does the encoding. A client library would choose servers by itself, and here each
//! command is for one server.

use crate::tls::Tls;
use crate::view::Address;
use bytes::BytesMut;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::resp::{Reply, ReplyParser, encode_request};

/// The name and password of a user; servers before version 6 have no names.
#[derive(Clone, Default)]
pub struct Credentials {
    /// Empty: the default user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.user)
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error: its text, code first.
    #[error("{0}")]
    Refused(String),
    /// The connection failed or the deadline passed. The command may have taken effect.
    #[error("no answer: {0}")]
    Lost(String),
    /// The answer is not one that this command has.
    #[error("{0} has a strange answer")]
    Strange(String),
}

impl CallError {
    /// The server works and cannot answer now: it loads a snapshot, a script runs, or it is a
    /// replica that waits for its master.
    pub(crate) fn is_passing(&self) -> bool {
        let CallError::Refused(text) = self else { return false };
        matches!(text.split(' ').next(), Some("LOADING" | "BUSY" | "MASTERDOWN"))
    }
}

/// Bytes both ways.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection.
pub struct Connection {
    stream: Box<dyn Stream>,
    parser: ReplyParser,
    inbound: BytesMut,
    deadline: Duration,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects and logs in, each within `deadline`, which is that of every call from then on.
    ///
    /// # Errors
    /// No connection, or the credentials are refused.
    pub async fn open(
        address: &Address,
        credentials: Option<&Credentials>,
        tls: Option<&Tls>,
        deadline: Duration,
    ) -> Result<Connection, CallError> {
        let connecting = TcpStream::connect((address.host.as_str(), address.port));
        let socket = timeout(deadline, connecting).await.map_err(|_| late(deadline))?;
        let socket = socket.map_err(|error| CallError::Lost(error.to_string()))?;
        // Without it a call costs up to 40 ms more; a failure is no reason to give up.
        let _ = socket.set_nodelay(true);
        let stream: Box<dyn Stream> = match tls {
            Some(tls) => {
                let securing = tls.secure(address, socket);
                let stream = timeout(deadline, securing).await.map_err(|_| late(deadline))?;
                Box::new(stream.map_err(|error| CallError::Lost(format!("TLS: {error}")))?)
            }
            None => Box::new(socket),
        };
        let (parser, inbound) = (ReplyParser::new(), BytesMut::new());
        let mut connection = Connection { stream, parser, inbound, deadline };
        match credentials {
            Some(Credentials { user, password }) if user.is_empty() => {
                connection.call(&["AUTH", password]).await?;
            }
            Some(Credentials { user, password }) => {
                connection.call(&["AUTH", user, password]).await?;
            }
            None => {}
        }
        Ok(connection)
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// See [`CallError`]; an error that the server answers with is one, too.
    pub async fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply, CallError> {
        let mut replies = self.pipeline(&[words]).await?;
        match replies.pop() {
            Some(Reply::Error(text)) => {
                Err(CallError::Refused(String::from_utf8_lossy(&text).into_owned()))
            }
            Some(reply) => Ok(reply),
            None => Err(CallError::Strange("the server".to_owned())),
        }
    }

    /// Sends commands at once and waits for all answers; the server's errors are among them.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn pipeline<C, W>(&mut self, commands: &[C]) -> Result<Vec<Reply>, CallError>
    where
        C: AsRef<[W]>,
        W: AsRef<[u8]>,
    {
        let mut out = BytesMut::new();
        for command in commands {
            let words: Vec<&[u8]> = command.as_ref().iter().map(AsRef::as_ref).collect();
            encode_request(&mut out, &words);
        }
        let deadline = self.deadline;
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let (parser, inbound) = (&mut self.parser, &mut self.inbound);
        // Both at once: a server does not read on while its answers are not read.
        let send = async {
            writer.write_all(&out).await.map_err(lost)?;
            writer.flush().await.map_err(lost)
        };
        let receive = async {
            let mut replies = Vec::with_capacity(commands.len());
            while replies.len() < commands.len() {
                match parser.next(inbound) {
                    Ok(Some(reply)) => replies.push(reply),
                    Ok(None) => {
                        if reader.read_buf(inbound).await.map_err(lost)? == 0 {
                            return Err(CallError::Lost("the connection was closed".to_owned()));
                        }
                    }
                    Err(error) => return Err(CallError::Lost(error.to_string())),
                }
            }
            Ok(replies)
        };
        let both = async { tokio::try_join!(send, receive) };
        let ((), replies) = timeout(deadline, both).await.map_err(|_| late(deadline))??;
        Ok(replies)
    }
}

fn lost(error: std::io::Error) -> CallError {
    CallError::Lost(error.to_string())
}

fn late(deadline: Duration) -> CallError {
    CallError::Lost(format!("nothing within {} ms", deadline.as_millis()))
}

/// The text of an answer that is a string.
pub(crate) fn text(reply: Reply) -> Option<String> {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) | Reply::Verbatim { text: bytes, .. } => {
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => None,
    }
}
