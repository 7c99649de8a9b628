//! How many messages with writes may be under way to a root.
//!
//! If each commit were not sent as it comes, over a long way writes would wait for the answers to
//! those before. If each were sent, the root would have a message for every commit of every site.
//! So a few are sent at once, and more with a pause in which commits gather.

use model::limits;
use std::time::Duration;

/// The pause between two messages, once as many are under way as are sent at once.
const PAUSE: Duration = Duration::from_millis(2);

/// When the last message was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paced {
    last: Option<Duration>,
}

impl Paced {
    /// Whether one more may be sent, beside so many of so many bytes.
    pub(crate) fn may_send(&self, messages: usize, bytes: usize, now: Duration) -> bool {
        messages < limits::CAUSAL_OFFERS_INFLIGHT_MAX
            && bytes < limits::CAUSAL_OFFERS_INFLIGHT_BYTES_MAX
            && self.due(messages, now).is_none()
    }

    pub(crate) fn sent(&mut self, now: Duration) {
        self.last = Some(now);
    }

    /// When the pause ends that so many messages need, if it has not ended.
    pub(crate) fn due(&self, messages: usize, now: Duration) -> Option<Duration> {
        let last = self.last.filter(|_| messages >= limits::CAUSAL_OFFERS_AT_ONCE_MAX);
        last.map(|last| last + PAUSE).filter(|due| *due > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_sent_at_once_and_more_with_pauses() {
        let (at, mut paced) = (Duration::from_millis, Paced::default());
        assert!(paced.may_send(40, 5, at(1)));
        paced.sent(at(1));
        assert!(paced.may_send(limits::CAUSAL_OFFERS_AT_ONCE_MAX - 1, 5, at(1)));
        assert!(!paced.may_send(limits::CAUSAL_OFFERS_AT_ONCE_MAX, 5, at(2)));
        let due = |now| paced.due(limits::CAUSAL_OFFERS_AT_ONCE_MAX, at(now));
        assert_eq!((due(2), due(3), paced.due(1, at(2))), (Some(at(3)), None, None));
        assert!(paced.may_send(limits::CAUSAL_OFFERS_INFLIGHT_MAX - 1, 5, at(3)));
        assert!(!paced.may_send(limits::CAUSAL_OFFERS_INFLIGHT_MAX, 5, at(9)));
        assert!(!paced.may_send(1, limits::CAUSAL_OFFERS_INFLIGHT_BYTES_MAX, at(9)));
    }
}
