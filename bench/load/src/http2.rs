//! Unary gRPC calls over one HTTP/2 connection, and nothing else of HTTP/2.
//!
//! What makes it small: requests carry the same few headers every time, so the encoder is a list of
//! what the peer's dynamic table already holds; and answers' headers need not be read at all,
//! because a unary call answers with exactly one message when it succeeds and with none when it
//! fails. So a failure is known here only as a failure, without its text.
//!
//! Flow control is honoured in both directions. It leaves out TLS, priorities, server push, header
//! continuation on sending, and messages beyond one frame. Sources: RFC 9113 (HTTP/2), RFC 7541
//! (HPACK), "gRPC over HTTP2". The crate `h2` costs thirteen times the processor time a call
//! (bench/NOTES.md).

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use crate::connection::Session;
use crate::grpc::Service;
use crate::report::{Outcome, Samples};
use crate::workload::{Kind, Workload};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD_BYTES: usize = 9;
const GRPC_HEAD_BYTES: usize = 5;

/// What we let the peer send before it must wait for us, per stream and per connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// Every connection starts with this window, in both directions.
const INITIAL_WINDOW_BYTES: u32 = 65_535;
/// The connection's window is topped up after this much.
const TOP_UP_BYTES: u32 = CONNECTION_WINDOW_BYTES / 4;

mod frame {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;

    pub(super) const ACK: u8 = 0x1;
    pub(super) const END_STREAM: u8 = 0x1;
    pub(super) const END_HEADERS: u8 = 0x4;
    pub(super) const PADDED: u8 = 0x8;
}

mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// A call that waits for its answer.
struct Call {
    kind: Kind,
    started: Instant,
    /// What has come of the answer, with gRPC's five bytes before it.
    answer: Vec<u8>,
}

/// The clients that share one connection; each has one call in flight.
pub(crate) struct Calls {
    service: Service,
    clients: usize,
    headers: HeaderEncoder,
    authority: String,
    next_stream: u32,
    calls: HashMap<u32, Call>,
    /// Requests' data frames that the peer's window has no room for yet.
    blocked: VecDeque<Vec<u8>>,
    send_window: i64,
    received: u32,
    greeted: bool,
    /// The peer's first settings have come: calls may start.
    ready: bool,
}

impl Calls {
    pub(crate) fn new(peer: SocketAddr, clients: usize, service: Service) -> Self {
        Self {
            service,
            clients,
            headers: HeaderEncoder::default(),
            authority: peer.to_string(),
            next_stream: 1,
            calls: HashMap::with_capacity(clients),
            blocked: VecDeque::new(),
            send_window: i64::from(INITIAL_WINDOW_BYTES),
            received: 0,
            greeted: false,
            ready: false,
        }
    }

    /// Sends what a connection begins with, once. A server may send first: its settings must not be
    /// answered before this.
    fn greet(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.greeted, true) {
            return;
        }
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        for (id, value) in
            [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES)]
        {
            settings.extend_from_slice(&id.to_be_bytes());
            settings.extend_from_slice(&u32::to_be_bytes(value));
        }
        put_frame(out, frame::SETTINGS, 0, 0, &settings);
        top_up(out, CONNECTION_WINDOW_BYTES - INITIAL_WINDOW_BYTES);
    }

    fn start(&mut self, now: Instant, kind: Kind, message: &[u8], out: &mut Vec<u8>) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.headers.encode(&[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", self.service.path(kind)),
            (b":authority", self.authority.as_bytes()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        ]);
        put_frame(out, frame::HEADERS, frame::END_HEADERS, stream, &block);

        let mut body = Vec::with_capacity(GRPC_HEAD_BYTES + message.len());
        body.push(0); // not compressed
        body.extend_from_slice(&(message.len() as u32).to_be_bytes());
        body.extend_from_slice(message);
        let mut data = Vec::with_capacity(FRAME_HEAD_BYTES + body.len());
        put_frame(&mut data, frame::DATA, frame::END_STREAM, stream, &body);
        self.blocked.push_back(data);
        self.calls.insert(stream, Call { kind, started: now, answer: Vec::new() });
    }

    /// Sends data frames, in order, as far as the peer's window for the connection allows.
    fn send_blocked(&mut self, out: &mut Vec<u8>) {
        while let Some(data) = self.blocked.front() {
            let size = (data.len() - FRAME_HEAD_BYTES) as i64;
            if size > self.send_window {
                return;
            }
            self.send_window -= size;
            out.extend_from_slice(data);
            self.blocked.pop_front();
        }
    }

    fn settings(&self, payload: &[u8]) -> Result<(), String> {
        for entry in payload.chunks_exact(6) {
            let id = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match id {
                setting::HEADER_TABLE_SIZE if value < HeaderEncoder::TABLE_BYTES => {
                    return Err(format!("a header table of {value} bytes is too small for us"));
                }
                setting::MAX_CONCURRENT_STREAMS if (value as usize) < self.clients => {
                    return Err(format!(
                        "{value} calls at once are allowed on a connection and {} are wanted: \
                         raise --connections",
                        self.clients
                    ));
                }
                setting::INITIAL_WINDOW_SIZE if value < INITIAL_WINDOW_BYTES => {
                    return Err(format!("a stream window of {value} bytes is too small for us"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self, now: Instant, stream: u32, samples: &mut Samples) {
        let Some(call) = self.calls.remove(&stream) else {
            return;
        };
        let outcome = match unary(&call.answer) {
            None => Outcome::Failed("the call failed (its gRPC status is not read)".into()),
            Some(_) if call.kind == Kind::Put => Outcome::Done,
            Some(message) => match self.service.found(message) {
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::Missed,
                Err(reason) => Outcome::Failed(reason),
            },
        };
        samples.record(call.kind, (now - call.started).as_nanos() as u64, outcome);
    }

    fn data(&mut self, stream: u32, flags: u8, payload: &[u8], out: &mut Vec<u8>) {
        self.received += payload.len() as u32;
        if self.received >= TOP_UP_BYTES {
            top_up(out, self.received);
            self.received = 0;
        }
        let padding = match payload.first() {
            Some(&length) if flags & frame::PADDED != 0 => Some(length as usize),
            _ => None,
        };
        let content = match padding {
            Some(length) => payload.get(1..payload.len().saturating_sub(length)),
            None => Some(payload),
        };
        if let (Some(call), Some(content)) = (self.calls.get_mut(&stream), content) {
            call.answer.extend_from_slice(content);
        }
    }
}

impl Session for Calls {
    fn refill(&mut self, now: Instant, workload: &mut Workload, out: &mut Vec<u8>) {
        self.greet(out);
        while self.ready && self.calls.len() < self.clients {
            let Some(request) = workload.next() else {
                break;
            };
            let message = self.service.encode(&request);
            self.start(now, request.kind, &message, out);
        }
        self.send_blocked(out);
    }

    fn receive(
        &mut self,
        now: Instant,
        input: &[u8],
        out: &mut Vec<u8>,
        samples: &mut Samples,
    ) -> Result<usize, String> {
        self.greet(out);
        let mut used = 0;
        while let Some((head, payload)) = take_frame(&input[used..]) {
            used += FRAME_HEAD_BYTES + payload.len();
            match head.kind {
                frame::DATA => self.data(head.stream, head.flags, payload, out),
                frame::SETTINGS if head.flags & frame::ACK == 0 => {
                    self.settings(payload)?;
                    put_frame(out, frame::SETTINGS, frame::ACK, 0, &[]);
                    self.ready = true;
                }
                frame::PING if head.flags & frame::ACK == 0 => {
                    put_frame(out, frame::PING, frame::ACK, 0, payload);
                }
                frame::WINDOW_UPDATE if head.stream == 0 && payload.len() == 4 => {
                    let more = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
                    self.send_window += i64::from(more & 0x7fff_ffff);
                }
                frame::GOAWAY => {
                    let text = String::from_utf8_lossy(payload.get(8..).unwrap_or_default());
                    return Err(format!("the server ends the connection: {text:?}"));
                }
                _ => {}
            }
            let ends = match head.kind {
                frame::DATA | frame::HEADERS => head.flags & frame::END_STREAM != 0,
                kind => kind == frame::RST_STREAM,
            };
            if ends {
                self.finish(now, head.stream, samples);
            }
        }
        Ok(used)
    }

    fn in_flight(&self) -> usize {
        self.calls.len()
    }
}

struct FrameHead {
    kind: u8,
    flags: u8,
    stream: u32,
}

/// The first frame in `input`, once it is whole.
fn take_frame(input: &[u8]) -> Option<(FrameHead, &[u8])> {
    let head = input.get(..FRAME_HEAD_BYTES)?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let payload = input.get(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES + length)?;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Some((FrameHead { kind: head[3], flags: head[4], stream }, payload))
}

fn put_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.push(kind);
    out.push(flags);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Lets the peer send `bytes` more on the connection.
fn top_up(out: &mut Vec<u8>, bytes: u32) {
    put_frame(out, frame::WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes());
}

/// The one message of a unary answer, or `None` when the answer holds none.
fn unary(answer: &[u8]) -> Option<&[u8]> {
    let (head, message) = answer.split_at_checked(GRPC_HEAD_BYTES)?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    (message.len() == length).then_some(message)
}

/// HPACK for few and constant headers: a header goes out in full once, and as an index into the
/// peer's dynamic table from then on. Nothing is ever evicted, for all of them fit in the table.
#[derive(Default)]
struct HeaderEncoder {
    /// Headers in the peer's dynamic table, in the order in which they entered it.
    sent: Vec<(Vec<u8>, Vec<u8>)>,
}

impl HeaderEncoder {
    /// The table's size unless the peer sets another; we use a few hundred bytes of it.
    const TABLE_BYTES: u32 = 4096;
    /// The static table has 61 entries; the newest dynamic entry follows them.
    const FIRST_DYNAMIC: usize = 62;

    fn encode(&mut self, headers: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        for &(name, value) in headers {
            match self.sent.iter().position(|(n, v)| n == name && v == value) {
                Some(at) => {
                    let age = self.sent.len() - 1 - at;
                    // An indexed field; all of ours stay below the prefix's limit of 127.
                    block.push(0x80 | (Self::FIRST_DYNAMIC + age) as u8);
                }
                None => {
                    block.push(0x40); // literal with incremental indexing, new name
                    for text in [name, value] {
                        block.push(text.len() as u8); // below 127, and not Huffman-coded
                        block.extend_from_slice(text);
                    }
                    self.sent.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_sent_in_full_once_and_then_by_index() {
        let mut encoder = HeaderEncoder::default();
        let first = encoder.encode(&[(b":path", b"/a"), (b"te", b"trailers")]);
        assert_eq!(first, b"\x40\x05:path\x02/a\x40\x02te\x08trailers");
        // "te" entered last, so it is the newest: 62.
        assert_eq!(encoder.encode(&[(b":path", b"/a"), (b"te", b"trailers")]), [0xbf, 0xbe]);
        // Another path becomes the newest and moves the others by one.
        let third = encoder.encode(&[(b":path", b"/b"), (b"te", b"trailers")]);
        assert_eq!(third, b"\x40\x05:path\x02/b\xbf");
    }

    #[test]
    fn frames_are_taken_only_when_whole() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, frame::DATA, frame::END_STREAM, 7, b"abc");
        for cut in 0..bytes.len() {
            assert!(take_frame(&bytes[..cut]).is_none(), "cut at {cut}");
        }
        let (head, payload) = take_frame(&bytes).unwrap();
        assert_eq!((head.kind, head.flags, head.stream, payload), (0, 1, 7, &b"abc"[..]));
    }

    #[test]
    fn an_answer_without_its_one_message_is_a_failure() {
        assert_eq!(unary(b""), None);
        assert_eq!(unary(b"\0\0\0\0\x02a"), None);
        assert_eq!(unary(b"\0\0\0\0\0"), Some(&b""[..]));
        assert_eq!(unary(b"\0\0\0\0\x02ab"), Some(&b"ab"[..]));
    }
}
