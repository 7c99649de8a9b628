//! Stores to compare with: models of published protocols for causal (and eventual) consistency, all
//! on one substrate in virtual time.
//!
//! A [`Store`] takes what clients ask and gives answers at later times. [`Modelled`] makes one of a
//! [`Protocol`], which sees messages and nothing of time but what the [`Net`] shows it: links with
//! latencies, processes that each work on one message after the other on their cores, and stated
//! costs. A store of real cores over simulated sites is a [`Store`] beside them.
//!
//! | module | what it models |
//! | --- | --- |
//! | [`layout`] | places, delays between them, which site holds which key, what work costs |
//! | [`net`] | messages, processors, what is counted |
//! | [`eventual`] | last writer wins, and nothing else |
//! | [`cops`] | COPS: explicit dependencies, checked where a write arrives |
//! | [`occult`] | Occult: the client checks what it read |
//! | [`saturn`] | Saturn: labels through a tree of serializers |
//! | [`gesto`] | Gesto: multipart timestamps and one broker |
//! | [`real`] | the same in real time |
//! | [`play`] | clients with a workload, what they measured, and their history |
//!
//! Each of them is the protocol as its paper has it, reduced to the setting of Gesto's evaluation:
//! one region, sites that do not fail, links that keep order, reads and writes of single keys. The
//! head of each module names what it leaves out. Versions are Lamport clocks with the site as the
//! tie-breaker, and the highest wins, in all of them: the papers leave conflicts to the
//! application, or to such a rule.

pub mod cops;
pub mod eventual;
pub mod gesto;
pub mod layout;
pub mod net;
pub mod occult;
pub mod play;
pub mod real;
pub mod saturn;
#[cfg(test)]
mod tests;

pub use self::layout::{Costs, Layout};
pub use self::net::{Modelled, Net, Node, Protocol, Spent, Visible};

/// The identity of a write: Lamport's clock and the site that took it. The highest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version {
    /// The clock; 0: nothing was written.
    pub clock: u64,
    /// The site.
    pub site: u16,
}

/// Bytes of a version among metadata: 8 of the clock, 4 of the site.
pub const VERSION_BYTES: u64 = 12;
/// Bytes of a key among metadata.
pub const KEY_BYTES: u64 = 8;

/// What a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// To read this key, which its site holds.
    Read(u32),
    /// To write it.
    Write(u32),
    /// To go on at this site.
    Move(usize),
}

/// What a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// When, in microseconds.
    pub at_us: u64,
    /// The client.
    pub client: usize,
    /// What it read or wrote; clock 0: there was nothing.
    pub version: Version,
}

/// A store with clients in virtual time. A client asks one thing at a time.
pub trait Store {
    /// A client asks now, at the time of the last answer or later.
    fn ask(&mut self, at_us: u64, client: usize, ask: Ask);
    /// Goes on to the next answer, or until this time if there is none before.
    fn advance(&mut self, until_us: u64) -> Option<Answer>;
    /// What it took so far.
    fn spent(&self) -> Spent;
    /// When writes became visible at other sites, since it was last asked.
    fn take_visible(&mut self) -> Vec<Visible>;
    /// All writes in the order to which it converges.
    fn order(&self) -> Vec<Version>;
    /// What a site shows of a key.
    fn shows(&self, site: usize, key: u32) -> Version;
}

/// The newest version of each key at each site: what all the models keep.
#[derive(Debug, Clone)]
pub(crate) struct Replicas {
    keys: usize,
    newest: Vec<Version>,
    clocks: Vec<u64>,
    written: Vec<Version>,
}

impl Replicas {
    pub(crate) fn new(layout: &Layout) -> Replicas {
        let (sites, keys) = (layout.sites(), layout.keys as usize);
        Replicas {
            keys,
            newest: vec![Version::default(); sites * keys],
            clocks: vec![0; sites],
            written: Vec::new(),
        }
    }

    pub(crate) fn get(&self, site: usize, key: u32) -> Version {
        self.newest[site * self.keys + key as usize]
    }

    /// A new version at a site, above what the site and its client have seen.
    pub(crate) fn write(&mut self, site: usize, key: u32, above: u64) -> Version {
        let clock = self.tick(site, above);
        let version = Version { clock, site: site as u16 };
        self.written.push(version);
        self.apply(site, key, version);
        version
    }

    /// A time of a site that no version of it has.
    pub(crate) fn tick(&mut self, site: usize, above: u64) -> u64 {
        let clock = self.clocks[site].max(above) + 1;
        self.clocks[site] = clock;
        clock
    }

    pub(crate) fn apply(&mut self, site: usize, key: u32, version: Version) {
        self.clocks[site] = self.clocks[site].max(version.clock);
        let newest = &mut self.newest[site * self.keys + key as usize];
        *newest = (*newest).max(version);
    }

    pub(crate) fn order(&self) -> Vec<Version> {
        let mut order = self.written.clone();
        order.sort_unstable();
        order
    }
}
