//! Numbers writes, so that a repeated one is applied once.

use model::{ClientId, RequestId};
use std::collections::BTreeSet;
use std::sync::Mutex;
use wire::grpc::v1;

/// The numbers of one client's writes.
pub(crate) struct Sequence {
    client: ClientId,
    state: Mutex<State>,
}

struct State {
    next: u64,
    /// Numbers of writes that are not finished. The site may drop answers with lower numbers.
    open: BTreeSet<u64>,
}

impl Sequence {
    /// `client`: a random id, unique to this client.
    pub(crate) fn new(client: ClientId) -> Sequence {
        Sequence { client, state: Mutex::new(State { next: 1, open: BTreeSet::new() }) }
    }

    /// A number for a new write, which is in progress until the guard is dropped.
    pub(crate) fn begin(&self) -> Begun<'_> {
        let mut state = self.state.lock().expect("no panic while it is held");
        let sequence = state.next;
        state.next += 1;
        state.open.insert(sequence);
        let acknowledged_below = *state.open.first().expect("one was just inserted");
        let id = RequestId { client: self.client, sequence, acknowledged_below };
        Begun { sequence: self, id }
    }
}

/// A write in progress.
pub(crate) struct Begun<'a> {
    sequence: &'a Sequence,
    id: RequestId,
}

impl Begun<'_> {
    /// The write's id, the same for each attempt.
    pub(crate) fn id(&self) -> v1::RequestId {
        v1::RequestId {
            client: self.id.client.0,
            sequence: self.id.sequence,
            acknowledged_below: self.id.acknowledged_below,
        }
    }
}

impl Drop for Begun<'_> {
    /// Answered or given up: the client does not repeat it any more. A late attempt of a write that
    /// was given up is then refused as forgotten, as the caller would want.
    fn drop(&mut self) {
        let mut state = self.sequence.state.lock().expect("no panic while it is held");
        state.open.remove(&self.id.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_not_acknowledged() {
        let sequence = Sequence::new(ClientId(7));
        let first = sequence.begin();
        let second = sequence.begin();
        assert_eq!((first.id().sequence, second.id().sequence), (1, 2));
        assert_eq!(second.id().acknowledged_below, 1, "the first is still under way");
        drop(first);
        assert_eq!(second.id().acknowledged_below, 1, "an attempt repeats its id as it was");
        assert_eq!(sequence.begin().id().acknowledged_below, 2);
        drop(second);
        assert_eq!(sequence.begin().id().acknowledged_below, 4);
    }
}
