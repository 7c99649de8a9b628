//! A stream: a snapshot and the changes behind it, from one site to another, in chunks.
//!
//! A stream outlives the leaders of both sites. The destination counts in its state the chunks that
//! it has taken in, beside the position that came with the last one. A new leader of the source
//! begins by asking for both, and goes on from there:
//!
//! ```text
//! source                                  destination
//!              ── begin ────────────────▶ numbers chunks anew
//!              ◀─ has n chunks, up to here
//!              ── chunk n, n + 1, … ────▶ takes each in its order, once
//!              ◀─ has n + 1, n + 2, … ──
//! ```
//!
//! - [`receiver`]: the numbers of chunks at the destination;
//! - [`sender`]: the window of chunks without an acknowledgement, gaps, the throttle, timeouts.
//!
//! Left out: what a chunk has is read from the state (`site::machine::global::copying`), and which
//! command carries it is the affair of the stream's user ([`crate::global::handover`],
//! [`crate::global::mirroring`], [`crate::causal::resync`]). The destination takes chunks in by
//! commands (`site::machine::global::destination`, `site::machine::global::mirrors`).

pub(crate) mod receiver;
pub(crate) mod sender;
