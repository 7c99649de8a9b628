//! Connections, each between two nodes, as TCP gives them: in order, until one breaks and loses
//! what was on its way. Where one end's process ended, what that had sent may arrive all the same,
//! until the other end notices.
//!
//! One is made by the first message between its two ends, so there are as many as there are pairs
//! that talk. Which link it goes over, and what is in its way, is the caller's business.

use crate::link::{Link, Pipe};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Directions of broken connections, by number, of which what is on its way arrives.
    draining: BTreeSet<(E, E, u64)>,
}

#[derive(Debug)]
struct Direction {
    /// The connection's number: messages sent over an older one never arrive.
    number: u64,
    pipe: Pipe,
}

impl<E: Copy + Ord + Default> Connections<E> {
    pub(super) fn new() -> Connections<E> {
        Connections { made: 0, open: BTreeMap::new(), draining: BTreeSet::new() }
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
        // What comes over another connection does not come between.
        self.drained(from, to);
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

    /// Whether what a connection of that number carries arrives: it is still there, or drains.
    pub(super) fn holds(&self, from: E, to: E, number: u64) -> bool {
        self.open.get(&(from, to)).is_some_and(|direction| direction.number == number)
            || self.draining.contains(&(from, to, number))
    }

    /// Breaks a pair's connection; `false`: there is none. The next message makes another one.
    pub(super) fn break_one(&mut self, a: E, b: E) -> bool {
        self.drained(a, b);
        self.drained(b, a);
        self.open.remove(&(b, a));
        self.open.remove(&(a, b)).is_some()
    }

    /// The same, as the process at one end is dead: what that had sent may arrive all the same.
    pub(super) fn break_dead(&mut self, dead: E, other: E, drains: bool) -> bool {
        let number = self.open.get(&(dead, other)).map(|direction| direction.number);
        let was_there = self.break_one(dead, other);
        let sent = number.filter(|_| drains).map(|number| (dead, other, number));
        self.draining.extend(sent);
        was_there
    }

    /// Nothing arrives any more that was sent one way before a connection broke.
    pub(super) fn drained(&mut self, from: E, to: E) {
        self.draining.retain(|(a, b, _)| (*a, *b) != (from, to));
    }

    /// The same of all that an end had sent or was sent.
    pub(super) fn drained_at(&mut self, end: E) {
        self.draining.retain(|(from, to, _)| *from != end && *to != end);
    }

    /// The nodes that one is connected to.
    pub(super) fn of(&self, end: E) -> Vec<E> {
        let from = self.open.range((end, E::default())..);
        from.take_while(|((from, _), _)| *from == end).map(|((_, to), _)| *to).collect()
    }
}
