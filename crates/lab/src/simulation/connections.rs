//! Connections, each between two nodes, as TCP gives them: in order, until one breaks and loses
//! what was on its way.
//!
//! One is made by the first message between its two ends, so there are as many as there are pairs
//! that talk. Which link it goes over, and what is in its way, is the caller's business.

use crate::link::{Link, Pipe};
use crate::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;

/// What may wait to enter a link before the sender drops messages, as its buffer would be full.
const BACKLOG_MAX: Duration = Duration::from_secs(1);

/// Connections between ends that go by `E`.
#[derive(Debug)]
pub(super) struct Connections<E> {
    /// How many were ever made.
    made: u64,
    /// Both directions of each, by sender and receiver.
    open: BTreeMap<(E, E), Direction>,
}

#[derive(Debug)]
struct Direction {
    /// The connection's number: messages sent over an older one never arrive.
    number: u64,
    pipe: Pipe,
}

impl<E: Copy + Ord + Default> Connections<E> {
    pub(super) fn new() -> Connections<E> {
        Connections { made: 0, open: BTreeMap::new() }
    }

    /// When a message of so many bytes sent at `now` arrives, and over which connection; `None`:
    /// never. `extra` is added to the delay of its link.
    pub(super) fn send(
        &mut self,
        (from, to): (E, E),
        now: Duration,
        bytes: usize,
        link: &Link,
        extra: Duration,
        random: &mut Random,
    ) -> Option<(Duration, u64)> {
        if !self.open.contains_key(&(from, to)) {
            self.made += 1;
            for way in [(from, to), (to, from)] {
                self.open.insert(way, Direction { number: self.made, pipe: Pipe::default() });
            }
        }
        let direction = self.open.get_mut(&(from, to))?;
        if direction.pipe.backlog(now) > BACKLOG_MAX {
            return None;
        }
        Some((direction.pipe.due(now + extra, bytes, link, random), direction.number))
    }

    /// Whether a connection of that number is still there: what it carries arrives then.
    pub(super) fn holds(&self, from: E, to: E, number: u64) -> bool {
        self.open.get(&(from, to)).is_some_and(|direction| direction.number == number)
    }

    /// Breaks a pair's connection; `false`: there is none. The next message makes another one.
    pub(super) fn break_one(&mut self, a: E, b: E) -> bool {
        self.open.remove(&(b, a));
        self.open.remove(&(a, b)).is_some()
    }

    /// The nodes that one is connected to.
    pub(super) fn of(&self, end: E) -> Vec<E> {
        let from = self.open.range((end, E::default())..);
        from.take_while(|((from, _), _)| *from == end).map(|((_, to), _)| *to).collect()
    }
}
