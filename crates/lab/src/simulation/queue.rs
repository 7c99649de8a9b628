//! What is going to happen, soonest first; what is due at the same time, in the order in which it
//! was put in. That order is what makes a run repeatable.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Events and when they are due.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Entry<E>>,
    added: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Duration,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (Duration, u64) {
        (self.at, self.number)
    }
}

// The heap gives its greatest first: the soonest is the greatest.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> Queue<E> {
    pub(crate) fn new() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), added: 0 }
    }

    pub(crate) fn push(&mut self, at: Duration, event: E) {
        self.added += 1;
        self.heap.push(Entry { at, number: self.added, event });
    }

    /// When the soonest is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// The soonest, if it is due by `until`.
    pub(crate) fn pop(&mut self, until: Duration) -> Option<(Duration, E)> {
        if self.heap.peek()?.at > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_comes_first_and_equals_come_in_order() {
        let ms = Duration::from_millis;
        let mut queue = Queue::new();
        for (at, event) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'e'), (5, 'd')] {
            queue.push(ms(at), event);
        }
        let taken: String =
            std::iter::from_fn(|| queue.pop(ms(5))).map(|(_, event)| event).collect();
        assert_eq!(taken, "abcd");
        assert_eq!(queue.pop(ms(9)), Some((ms(9), 'e')));
    }
}
