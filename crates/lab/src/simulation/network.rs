//! The links between the nodes of one site.

use super::connections::Connections;
use crate::link::Link;
use crate::random::Random;
use std::collections::BTreeSet;
use std::time::Duration;

/// All links of one site. Nodes go by their ids.
#[derive(Debug)]
pub struct Network {
    /// What each of them is like.
    pub link: Link,
    /// Every message travels this much longer.
    pub extra: Duration,
    /// Messages of a thousand that are dropped though the connection holds (its buffer was full).
    pub drop_permille: u64,
    /// Directed pairs between which nothing passes.
    cut: BTreeSet<(u64, u64)>,
    connections: Connections<u64>,
}

impl Network {
    pub(super) fn new(link: Link) -> Network {
        Network {
            link,
            extra: Duration::ZERO,
            drop_permille: 0,
            cut: BTreeSet::new(),
            connections: Connections::new(),
        }
    }

    /// When a message of so many bytes sent now arrives, and by which connection; `None`: never.
    pub(super) fn send(
        &mut self,
        from: u64,
        to: u64,
        now: Duration,
        bytes: usize,
        random: &mut Random,
    ) -> Option<(Duration, u64)> {
        if self.cut.contains(&(from, to)) || random.chance(self.drop_permille) {
            return None;
        }
        self.connections.send((from, to), now, bytes, &self.link, self.extra, random)
    }

    /// Whether a connection of that number is still there: what it carries arrives then. A cut
    /// breaks it first, so nothing that was on its way comes through one.
    pub(super) fn holds(&self, from: u64, to: u64, connection: u64) -> bool {
        self.connections.holds(from, to, connection)
    }

    /// How long the notice of a broken connection takes.
    pub(super) fn delay(&self, random: &mut Random) -> Duration {
        self.link.latency.draw(random) + self.extra
    }

    /// Breaks a pair's connection; another one takes its place at once.
    pub(super) fn break_link(&mut self, a: u64, b: u64) {
        self.connections.break_one(a, b);
    }

    /// The same, as one of the two is dead; `drains`: what that had sent arrives.
    pub(super) fn break_dead(&mut self, dead: u64, other: u64, drains: bool) {
        self.connections.break_dead(dead, other, drains);
    }

    /// Nothing arrives any more that a node had sent to another one before its connection broke.
    pub(super) fn drained(&mut self, from: u64, to: u64) {
        self.connections.drained(from, to);
    }

    /// The same of all that a node had sent or was sent.
    pub(super) fn drained_at(&mut self, node: u64) {
        self.connections.drained_at(node);
    }

    /// Nothing passes from one node to another until [`Network::heal`].
    pub(super) fn cut(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    /// Something passes again.
    pub(super) fn mend(&mut self, from: u64, to: u64) {
        self.cut.remove(&(from, to));
    }

    /// Whether nothing passes.
    #[must_use]
    pub fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cut.contains(&(from, to))
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }
}
