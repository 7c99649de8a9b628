//! The number of a run's requests that are with the site at once.
//!
//! The answers to all of them are in memory before the first is sent to the client, and a short
//! request may have a long answer. So requests for values go to the site in parts, whose size
//! follows the answers of the connection so far: many short answers come at once, long ones few by
//! few.

use super::connection::REPLY_BYTES;
use model::{Answer, Body, Command, Request, Write, limits};

/// The size of a connection's first part.
const FIRST: usize = 64;

/// The size of a connection's next part, in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartSize(usize);

impl Default for PartSize {
    fn default() -> PartSize {
        PartSize(FIRST)
    }
}

impl PartSize {
    /// How many of a run's requests are sent next.
    pub(super) fn of(self, requests: &[Request]) -> usize {
        match requests.iter().any(|request| may_be_long(&request.body)) {
            true => self.0.min(requests.len()),
            false => requests.len(),
        }
    }

    /// The size after a part with answers of so many bytes.
    fn after(self, answer_bytes: usize) -> PartSize {
        match answer_bytes < REPLY_BYTES {
            true => PartSize((self.0 * 2).min(limits::PIPELINE_MAX)),
            false => PartSize((self.0 / 2).max(1)),
        }
    }

    /// Follows the answers to a part. Short ones count only of a full part.
    pub(super) fn follow(&mut self, requests: usize, answer_bytes: usize) {
        if requests == self.0 || answer_bytes >= REPLY_BYTES {
            *self = self.after(answer_bytes);
        }
    }
}

/// Whether an answer may be as long as a value.
fn may_be_long(body: &Body) -> bool {
    match body {
        Body::Read { .. } => true,
        Body::Write(Command::Write { write, .. }) => matches!(
            write,
            Write::Put { return_old: true, .. } | Write::Take { .. } | Write::GetAndExpire { .. }
        ),
        _ => false,
    }
}

/// The bytes of values and fields in an answer. The reply may be shorter: STRLEN reads the value.
pub(super) fn answer_bytes(answer: &Answer) -> usize {
    match answer {
        Answer::Value(value) => value.as_ref().map_or(0, |value| value.value.len()),
        Answer::Values(values) => values.iter().flatten().map(|value| value.len()).sum(),
        Answer::Fields(fields) => {
            fields.iter().map(|(field, value)| field.len() + value.len()).sum()
        }
        Answer::Put { old, .. } => old.as_ref().map_or(0, |old| old.len()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{KeyspaceId, Query, ReadConsistency};

    fn get() -> Request {
        let query = Query::Get { key: "k".into() };
        Request::read(KeyspaceId::DEFAULT, query, ReadConsistency::Linearizable)
    }

    fn write(write: Write) -> Request {
        Request::write(Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None })
    }

    #[test]
    fn parts_grow_while_answers_are_short_and_shrink_otherwise() {
        let mut size = PartSize::default();
        let mut parts = Vec::new();
        let mut left = vec![get(); limits::PIPELINE_MAX];
        while !left.is_empty() {
            let part = size.of(&left);
            left.truncate(left.len() - part);
            size.follow(part, 100 * part);
            parts.push(part);
        }
        assert_eq!(parts, [64, 128, 256, 512, 64]);
        assert_eq!(size, PartSize(limits::PIPELINE_MAX), "kept: the last part was a small one");
        assert_eq!(size.of(&[get(), get()]), 2);
        (0..20).for_each(|_| size.follow(size.0, REPLY_BYTES));
        assert_eq!(size, PartSize(1));
        size.follow(1, 10);
        assert_eq!(size, PartSize(2));
    }

    #[test]
    fn short_answers_count_only_of_a_full_part() {
        let mut size = PartSize::default();
        size.follow(3, 30);
        assert_eq!(size, PartSize::default());
        size.follow(3, REPLY_BYTES);
        assert_eq!(size, PartSize(FIRST / 2));
    }

    #[test]
    fn writes_that_return_no_value_are_one_part() {
        let delete = || write(Write::Delete { keys: vec!["k".into()] });
        let take = || write(Write::Take { key: "k".into() });
        let size = PartSize(1);
        assert_eq!(size.of(&[delete(), delete(), delete()]), 3);
        assert_eq!(size.of(&[delete(), take(), delete()]), 1);
    }
}
