//! One non-blocking socket, and what the protocols above it must be able to do.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as StdTcpStream};
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use crate::report::Samples;
use crate::workload::Workload;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The callers on one connection: they write requests into a buffer and take answers from another.
pub(crate) trait Session {
    /// Starts as many requests as the closed loop allows now, appending them to `out`.
    fn refill(&mut self, now: Instant, workload: &mut Workload, out: &mut Vec<u8>);

    /// Takes the answers in `input`, as far as they are whole, and returns how many bytes that was.
    /// What the protocol itself must answer (for example an acknowledgement) goes to `out`.
    fn receive(
        &mut self,
        now: Instant,
        input: &[u8],
        out: &mut Vec<u8>,
        samples: &mut Samples,
    ) -> Result<usize, String>;

    /// Requests that wait for an answer.
    fn in_flight(&self) -> usize;
}

/// A socket with its buffers.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    peer: SocketAddr,
    session: Box<dyn Session>,
    input: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
}

impl Connection {
    pub(crate) fn open(peer: SocketAddr, session: Box<dyn Session>) -> Result<Self, String> {
        let connect = || -> io::Result<TcpStream> {
            let socket = StdTcpStream::connect_timeout(&peer, CONNECT_TIMEOUT)?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(TcpStream::from_std(socket))
        };
        let socket = connect().map_err(|e| format!("cannot connect to {peer}: {e}"))?;
        Ok(Self { socket, peer, session, input: Vec::new(), out: Vec::new(), sent: 0 })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    /// Asks what may be asked, and writes what the socket takes.
    pub(crate) fn advance(&mut self, now: Instant, workload: &mut Workload) -> Result<(), String> {
        self.session.refill(now, workload, &mut self.out);
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("{}: {e}", self.peer)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what has come and hands it to the session. `scratch` is any buffer to read into.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        scratch: &mut [u8],
        samples: &mut Samples,
    ) -> Result<(), String> {
        loop {
            let n = match self.socket.read(scratch) {
                Ok(0) => return Err(format!("{} closed the connection", self.peer)),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(format!("{}: {e}", self.peer)),
            };
            let fresh = &scratch[..n];
            let named = |e: String| format!("{}: {e}", self.peer);
            // Whole answers are the rule; only a rest is copied and kept.
            if self.input.is_empty() {
                let used =
                    self.session.receive(now, fresh, &mut self.out, samples).map_err(named)?;
                self.input.extend_from_slice(&fresh[used..]);
            } else {
                self.input.extend_from_slice(fresh);
                let used = self
                    .session
                    .receive(now, &self.input, &mut self.out, samples)
                    .map_err(named)?;
                self.input.drain(..used);
            }
            // A short read has emptied the socket: what comes later is a new event.
            if n < scratch.len() {
                return Ok(());
            }
        }
    }
}
