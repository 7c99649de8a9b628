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

/// The body of a request, counted until it is dropped.
pub(super) struct Received<B> {
    inner: B,
    of: Receiving,
    /// All bytes that have come.
    bytes: usize,
    /// Those that are taken of the connection's room.
    taken: usize,
}

impl<B> Received<B> {
    pub(super) fn new(inner: B, of: Receiving) -> Received<B> {
        Received { inner, of, bytes: 0, taken: 0 }
    }

    fn count(&mut self, bytes: usize) -> Result<(), Status> {
        self.bytes += bytes;
        let more = self.bytes.saturating_sub(RECEIVING_FREE_BYTES) - self.taken;
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
        let counted = self.count(frame.data_ref().map_or(0, Bytes::len));
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

    #[test]
    fn requests_share_the_room_of_one_command() {
        let of = Receiving::default();
        let [mut one, mut other, mut small] = [(); 3].map(|()| Received::new((), of.clone()));
        one.count(RECEIVING_FREE_BYTES).unwrap();
        assert_eq!(one.taken, 0);
        one.count(COMMAND_BYTES_MAX - 7).unwrap();
        other.count(RECEIVING_FREE_BYTES + 7).unwrap();
        assert_eq!(other.taken, 7);
        let refused = other.count(1).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
        small.count(RECEIVING_FREE_BYTES).unwrap();
        drop(other);
        one.count(7).unwrap();
        drop((one, small));
        assert_eq!(of.0.load(Ordering::Relaxed), 0);
    }
}
