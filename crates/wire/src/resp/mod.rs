//! RESP, the Redis serialization protocol, versions 2 and 3: requests in, replies out, and the
//! same from a client's side.
//!
//! - [`request`]: a connection's bytes become [`Frame`]s, one command each. The parser is
//!   incremental (a value of 64 MiB that arrives in a thousand pieces is scanned once) and copies
//!   nothing: a frame's arguments are slices of the buffer that the socket was read into.
//! - [`encode`]: replies go straight into the buffer that will be written. An [`Encoder`] has
//!   the version that its client chose, and maps the types of RESP3 to those of RESP2.
//! - [`reply`]: replies as a client reads them, for our own clients, tests and load generators.
//!
//! Left out: streamed strings and aggregates (`$?`, `*?`), attributes and big numbers on the way
//! out; no server sends the first, and we have no use for the rest.
//!
//! Sources: the [specification](https://redis.io/docs/latest/develop/reference/protocol-spec/),
//! and the behaviour of Redis 7.0 for what it leaves open (inline commands, error texts).

mod any;
mod decimal;
pub mod encode;
pub mod reply;
pub mod request;

pub use any::check_any;
pub use decimal::parse_i64;
pub use encode::{Encoder, Version};
pub use reply::{Reply, ReplyParser};
pub use request::{Frame, ProtocolError, RequestParser, encode_request};
