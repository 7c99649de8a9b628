//! The smallest client of the Redis protocol that a vehicle needs: one command out, one reply in.
//!
//! It uses RESP2, in which every server starts, and has no list of commands. A connection on which
//! a call failed or timed out may have a reply pending and must be dropped: [`Connection::call`]
//! takes it by value and returns it only when it has none.

use std::{io, net::SocketAddr};

use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use wire::resp::{Encoder, Reply, ReplyParser, Version};

/// Longest reply: a zone's hazards are a few kilobytes.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A connection that is in step with its server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    parser: ReplyParser,
}

impl Connection {
    /// Connects. The caller sets the deadline.
    pub(crate) async fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: BytesMut::new(), parser: ReplyParser::new() })
    }

    /// Sends one command and waits for its reply. The caller sets the deadline.
    pub(crate) async fn call(self, command: &[&str]) -> io::Result<(Self, Reply)> {
        let (connection, [reply]) = self.call_all([command]).await?;
        Ok((connection, reply))
    }

    /// Sends some commands at once and waits for all replies. The caller sets the deadline.
    pub(crate) async fn call_all<const N: usize>(
        mut self,
        commands: [&[&str]; N],
    ) -> io::Result<(Self, [Reply; N])> {
        let mut request = BytesMut::new();
        for command in commands {
            let mut encoder = Encoder::new(&mut request, Version::Resp2);
            encoder.array(command.len());
            for part in command {
                encoder.bulk(part.as_bytes());
            }
        }
        self.stream.write_all(&request).await?;
        let mut replies = [const { Reply::Null }; N];
        for reply in &mut replies {
            *reply = self.next().await?;
        }
        Ok((self, replies))
    }

    async fn next(&mut self) -> io::Result<Reply> {
        loop {
            let reply = self.parser.next(&mut self.received);
            match reply.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Some(reply) => return Ok(reply),
                None if self.received.len() > REPLY_BYTES_MAX => {
                    let what = "the reply is longer than this client accepts";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                None if self.stream.read_buf(&mut self.received).await? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A server that waits for `expected` and answers with `pieces`, one packet each.
    async fn server(expected: &'static str, pieces: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; expected.len()];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(String::from_utf8(request).unwrap(), expected);
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        addr
    }

    #[tokio::test]
    async fn a_reply_in_pieces_is_one_reply() {
        let request = "*2\r\n$7\r\nHGETALL\r\n$10\r\nhazard:1.1\r\n";
        let addr = server(request, &["*2\r\n$1\r\n", "a\r", "\n$2\r\n", "bc\r\n"]).await;
        let connection = Connection::open(addr).await.unwrap();
        let (_, reply) = connection.call(&["HGETALL", "hazard:1.1"]).await.unwrap();
        let bulk = |text: &'static str| Reply::Bulk(text.into());
        assert_eq!(reply, Reply::Array(vec![bulk("a"), bulk("bc")]));
    }

    #[tokio::test]
    async fn an_end_in_the_middle_and_nonsense_are_errors() {
        let ping = "*1\r\n$4\r\nPING\r\n";
        for (pieces, kind) in [
            (["+PO"].as_slice(), io::ErrorKind::UnexpectedEof),
            (["HTTP/1.1 400 Bad Request\r\n"].as_slice(), io::ErrorKind::InvalidData),
        ] {
            let connection = Connection::open(server(ping, pieces).await).await.unwrap();
            assert_eq!(connection.call(&["PING"]).await.unwrap_err().kind(), kind);
        }
    }
}
