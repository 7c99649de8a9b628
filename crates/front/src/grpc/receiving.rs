//! How much a connection may hold of requests that are not received to their end.
//!
//! A message is decoded once it is whole, and a connection has many requests at a time. So a
//! connection has the room of one largest command for what its requests hold beyond a small part
//! each, as a connection of the Redis port has one command at a time. A request that finds no room
//! is refused as overloaded: it cannot wait for others that wait for it.

use http_body::{Body, Frame, SizeHint};
use model::limits::{COMMAND_BYTES_MAX, RECEIVING_FREE_BYTES};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tonic::Status;
use tonic::codegen::Bytes;
use wire::grpc::Reason;

/// What the requests of a connection hold, beyond a free part each. Unit: bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receiving(Arc<AtomicUsize>);

impl Receiving {
    /// Takes so many bytes, if there is room.
    fn take(&self, bytes: usize) -> bool {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= COMMAND_BYTES_MAX);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// Bytes before a message: whether it is compressed, and its length.
const HEAD_BYTES: usize = 5;

/// The body of a request, counted until it is dropped. Room for a message is reserved once its
/// length is known, so it counts from then on.
pub(super) struct Received<B> {
    inner: B,
    of: Receiving,
    /// The beginning of the message, as much of it as has come.
    head: [u8; HEAD_BYTES],
    /// All bytes that have come.
    bytes: usize,
    /// Those that are taken of the connection's room.
    taken: usize,
}

impl<B> Received<B> {
    pub(super) fn new(inner: B, of: Receiving) -> Received<B> {
        Received { inner, of, head: [0; HEAD_BYTES], bytes: 0, taken: 0 }
    }

    /// The length of the message with its head. A longer one than there can be is refused by the
    /// decoder.
    fn announced(&self) -> usize {
        if self.bytes < HEAD_BYTES {
            return 0;
        }
        let [_, length @ ..] = self.head;
        HEAD_BYTES + (u32::from_be_bytes(length) as usize).min(COMMAND_BYTES_MAX)
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Status> {
        let missing = self.head.iter_mut().skip(self.bytes);
        missing.zip(data).for_each(|(place, byte)| *place = *byte);
        self.bytes += data.len();
        let held = self.bytes.max(self.announced()).saturating_sub(RECEIVING_FREE_BYTES);
        let more = held.saturating_sub(self.taken);
        if more > 0 && !self.of.take(more) {
            let text = "this connection sends too much at once: other requests on it are not \
                        received yet; nothing was done";
            return Err(Reason::Overloaded.status(text));
        }
        self.taken += more;
        Ok(())
    }
}

impl<B> Body for Received<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let counted = self.count(frame.data_ref().map_or(&[], |data| &data[..]));
        Poll::Ready(Some(counted.map(|()| frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for Received<B> {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of a message of that length.
    fn head(length: usize) -> [u8; HEAD_BYTES] {
        let [a, b, c, d] = u32::try_from(length).unwrap().to_be_bytes();
        [0, a, b, c, d]
    }

    #[test]
    fn requests_share_the_room_of_one_command() {
        let of = Receiving::default();
        let [mut one, mut other, mut small] = [(); 3].map(|()| Received::new((), of.clone()));
        let free = RECEIVING_FREE_BYTES - HEAD_BYTES;
        // A message counts whole as soon as its length is known.
        let longest = head(COMMAND_BYTES_MAX);
        one.count(&longest[..2]).unwrap();
        assert_eq!(one.taken, 0);
        one.count(&longest[2..]).unwrap();
        assert_eq!(one.taken, COMMAND_BYTES_MAX - free);
        one.count(&[0; 100]).unwrap();
        assert_eq!(one.taken, COMMAND_BYTES_MAX - free, "they were reserved");
        let refused = other.count(&head(2 * free + 1)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        drop(other);
        small.count(&head(free)).unwrap();
        small.count(&vec![0; free]).unwrap();
        assert_eq!(small.taken, 0);
        // One that says nothing of its length counts as it comes.
        let mut longer = Received::new((), of.clone());
        longer.count(&[&head(0)[..], &vec![0; free + 7]].concat()).unwrap();
        assert_eq!(longer.taken, 7);
        drop((one, small, longer));
        assert_eq!(of.0.load(Ordering::Relaxed), 0);
    }
}
