//! Links as TCP gives them: in order, until the connection breaks and loses what was on its way.

use super::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All links of a world.
pub(crate) struct Network {
    /// How long a message travels, from and to.
    pub(crate) delay: (Duration, Duration),
    /// Messages of a thousand that are dropped though the connection holds (its buffer was full).
    pub(crate) drop_permille: u64,
    cut: BTreeSet<(u64, u64)>,
    /// The number of a pair's connection: messages sent by an older one never arrive.
    connections: BTreeMap<(u64, u64), u64>,
    last_arrival: BTreeMap<(u64, u64), Duration>,
}

fn pair(a: u64, b: u64) -> (u64, u64) {
    (a.min(b), a.max(b))
}

impl Network {
    pub(crate) fn new() -> Network {
        Network {
            delay: (Duration::from_millis(1), Duration::from_millis(1)),
            drop_permille: 0,
            cut: BTreeSet::new(),
            connections: BTreeMap::new(),
            last_arrival: BTreeMap::new(),
        }
    }

    /// When a message sent now arrives, and by which connection; `None`: never.
    pub(crate) fn send(
        &mut self,
        from: u64,
        to: u64,
        now: Duration,
        random: &mut Random,
    ) -> Option<(Duration, u64)> {
        if self.cut.contains(&pair(from, to)) || random.chance(self.drop_permille) {
            return None;
        }
        let arrival = now + random.between(self.delay);
        let last = self.last_arrival.entry((from, to)).or_default();
        *last = arrival.max(*last);
        Some((*last, self.connection(from, to)))
    }

    pub(crate) fn connection(&self, a: u64, b: u64) -> u64 {
        self.connections.get(&pair(a, b)).copied().unwrap_or(0)
    }

    /// Breaks a pair's connection; another one takes its place at once.
    pub(crate) fn break_link(&mut self, a: u64, b: u64) {
        *self.connections.entry(pair(a, b)).or_default() += 1;
        self.last_arrival.remove(&(a, b));
        self.last_arrival.remove(&(b, a));
    }

    /// Nothing passes between two nodes until [`Network::heal`].
    pub(crate) fn cut(&mut self, a: u64, b: u64) {
        self.cut.insert(pair(a, b));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }
}
