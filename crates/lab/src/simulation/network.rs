//! The links between the nodes of one site, as TCP gives them: in order, until the connection breaks
//! and loses what was on its way.

use crate::link::{Link, Pipe};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What may wait to enter a link before the sender drops messages, as its buffer would be full.
const BACKLOG_MAX: Duration = Duration::from_secs(1);

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
    connections: BTreeMap<(u64, u64), Connection>,
}

#[derive(Debug, Default)]
struct Connection {
    /// Messages sent by an older one never arrive.
    number: u64,
    pipes: [Pipe; 2],
}

fn pair(a: u64, b: u64) -> (u64, u64) {
    (a.min(b), a.max(b))
}

impl Network {
    pub(super) fn new(link: Link) -> Network {
        Network {
            link,
            extra: Duration::ZERO,
            drop_permille: 0,
            cut: BTreeSet::new(),
            connections: BTreeMap::new(),
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
        let connection = self.connections.entry(pair(from, to)).or_default();
        let pipe = &mut connection.pipes[usize::from(from > to)];
        if pipe.backlog(now) > BACKLOG_MAX {
            return None;
        }
        Some((pipe.due(now + self.extra, bytes, &self.link, random), connection.number))
    }

    /// Whether a connection of that number is still there: what it carries arrives then. A cut breaks
    /// it first, so nothing that was on its way comes through one.
    pub(super) fn holds(&self, from: u64, to: u64, connection: u64) -> bool {
        self.connections.get(&pair(from, to)).is_none_or(|found| found.number == connection)
    }

    /// How long word of a broken connection takes.
    pub(super) fn delay(&self, random: &mut Random) -> Duration {
        self.link.latency.draw(random) + self.extra
    }

    /// Breaks a pair's connection; another one takes its place at once.
    pub(super) fn break_link(&mut self, a: u64, b: u64) {
        let connection = self.connections.entry(pair(a, b)).or_default();
        *connection = Connection { number: connection.number + 1, ..Connection::default() };
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
