//! What clients count themselves, in little memory, and what is refused of it.
//!
//! Portkey's sketches (§4.1.2): 8 bytes a server (how often, and for how long in all) and for each
//! key its id and 8 bytes (how often, and how many bytes in all). For a quantile of latencies a
//! DDSketch. They go with the time in which they were counted, as a count without it is no rate.
//!
//! A client can send anything. A sketch with a value that cannot be is refused as a whole and
//! counted: what it states otherwise is worth nothing.
//!
//! DDSketch: Masson, Rim, Lee: *`DDSketch`: a fast and fully-mergeable quantile sketch*, VLDB 2019.

use super::latencies::LATENCY_MS_MAX;
use model::limits::{SKETCH_BUCKETS_MAX, SKETCH_KEYS_MAX, SKETCH_SERVERS_MAX};

/// The longest time in which a sketch is counted.
pub const DURATION_MS_MAX: u32 = 10 * 60 * 1_000;
/// More accesses a second than a client can make.
pub const ACCESSES_PER_S_MAX: u32 = 1_000_000;

/// How one server has served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerUse {
    /// Requests.
    pub count: u32,
    /// Their latencies together, in 10 µs.
    pub sum: u32,
}

impl ServerUse {
    /// The mean latency, if there was a request.
    pub fn mean_ms(self) -> Option<f32> {
        (self.count > 0).then(|| (f64::from(self.sum) / 100.0 / f64::from(self.count)) as f32)
    }
}

/// How one key was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// A hash of the key, or its slot.
    pub key: u64,
    /// Requests that went to the owner directly.
    pub count: u32,
    /// The sizes of what was read or written, together.
    pub bytes: u32,
}

/// What a client has counted since its last sketch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// In what time.
    pub duration_ms: u32,
    /// By the number of the server.
    pub servers: Vec<ServerUse>,
    /// Ascending by key.
    pub keys: Vec<KeyUse>,
}

/// Why a sketch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It was counted in no time, or in too long a one.
    Duration,
    /// It has too many servers, or more than there are.
    Servers,
    /// It has too many keys.
    Keys,
    /// This server's latencies cannot be.
    Server(usize),
    /// This key is out of order, or was not used.
    Key(usize),
    /// More accesses than a client can make in that time.
    Accesses,
}

impl Sketch {
    /// Counts a request.
    pub fn count(&mut self, server: usize, latency_ms: f32, key: u64, bytes: u32) {
        if self.servers.len() <= server && server < SKETCH_SERVERS_MAX {
            self.servers.resize(server + 1, ServerUse::default());
        }
        if let Some(at) = self.servers.get_mut(server) {
            at.count = at.count.saturating_add(1);
            at.sum = at.sum.saturating_add((latency_ms.clamp(0.0, LATENCY_MS_MAX) * 100.0) as u32);
        }
        match self.keys.binary_search_by_key(&key, |at| at.key) {
            Ok(index) => {
                let at = &mut self.keys[index];
                at.count = at.count.saturating_add(1);
                at.bytes = at.bytes.saturating_add(bytes);
            }
            Err(index) if self.keys.len() < SKETCH_KEYS_MAX => {
                self.keys.insert(index, KeyUse { key, count: 1, bytes });
            }
            Err(_) => {}
        }
    }

    /// The memory of its rows: 8 bytes a server and 16 bytes a key.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.servers) + size_of_val(&*self.keys)
    }

    /// Accesses of a key per second.
    pub fn rate(&self, at: KeyUse) -> f32 {
        at.count as f32 * 1_000.0 / self.duration_ms as f32
    }

    /// Whether all of it can be, where there are that many servers.
    pub fn check(&self, servers: usize) -> Result<(), Malformed> {
        if self.duration_ms == 0 || self.duration_ms > DURATION_MS_MAX {
            return Err(Malformed::Duration);
        }
        if self.servers.len() > servers.min(SKETCH_SERVERS_MAX) {
            return Err(Malformed::Servers);
        }
        if self.keys.len() > SKETCH_KEYS_MAX {
            return Err(Malformed::Keys);
        }
        let is_absurd = |at: &ServerUse| match at.mean_ms() {
            Some(mean_ms) => mean_ms > LATENCY_MS_MAX,
            None => at.sum > 0,
        };
        if let Some(server) = self.servers.iter().position(is_absurd) {
            return Err(Malformed::Server(server));
        }
        let is_wrong = |index: usize| {
            let is_unordered = index > 0 && self.keys[index - 1].key >= self.keys[index].key;
            is_unordered || self.keys[index].count == 0
        };
        if let Some(key) = (0..self.keys.len()).find(|index| is_wrong(*index)) {
            return Err(Malformed::Key(key));
        }
        let most = u64::from(ACCESSES_PER_S_MAX) * u64::from(self.duration_ms).div_ceil(1_000);
        let accesses: u64 = self.keys.iter().map(|at| u64::from(at.count)).sum();
        if accesses > most { Err(Malformed::Accesses) } else { Ok(()) }
    }
}

/// The relative error of a quantile.
pub const ACCURACY: f32 = 0.02;

/// Latencies, for quantiles that are right within 2 %: a `DDSketch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Ascending by index: bucket i has the values above γ^(i−1) ms and up to γ^i ms.
    buckets: Vec<(i16, u32)>,
}

impl Distribution {
    /// From rows that were sent. `None`: they are out of order, empty or too many.
    pub fn from_rows(rows: &[(i16, u32)]) -> Option<Distribution> {
        let is_ordered = rows.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let is_possible = |&(index, count): &(i16, u32)| {
            count > 0 && Distribution::value_ms(index) <= LATENCY_MS_MAX && index >= -1_000
        };
        let is_sound =
            is_ordered && rows.len() <= SKETCH_BUCKETS_MAX && rows.iter().all(is_possible);
        is_sound.then(|| Distribution { buckets: rows.to_vec() })
    }

    /// The rows, 6 bytes each.
    pub fn rows(&self) -> &[(i16, u32)] {
        &self.buckets
    }

    fn log_gamma() -> f32 {
        ((1.0 + ACCURACY) / (1.0 - ACCURACY)).ln()
    }

    /// The value that stands for a bucket.
    fn value_ms(index: i16) -> f32 {
        (f32::from(index) * Distribution::log_gamma()).exp() * (1.0 - ACCURACY)
    }

    /// Adds a latency; what cannot be is left out, and `false`.
    pub fn add(&mut self, ms: f32) -> bool {
        if !(0.0..=LATENCY_MS_MAX * (1.0 - ACCURACY)).contains(&ms) {
            return false;
        }
        let index = (ms.max(0.001).ln() / Distribution::log_gamma()).ceil() as i16;
        self.put(index, 1);
        true
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Distribution) {
        other.buckets.iter().for_each(|(index, count)| self.put(*index, *count));
    }

    fn put(&mut self, index: i16, count: u32) {
        match self.buckets.binary_search_by_key(&index, |bucket| bucket.0) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(count),
            Err(at) => self.buckets.insert(at, (index, count)),
        }
        if self.buckets.len() > SKETCH_BUCKETS_MAX {
            let (_, lowest) = self.buckets.remove(0);
            self.buckets[0].1 = self.buckets[0].1.saturating_add(lowest);
        }
    }

    /// The same with every latency so many times as long, to the nearest bucket.
    #[must_use]
    pub fn stretched(&self, factor: f32) -> Distribution {
        let steps = (factor.ln() / Distribution::log_gamma()).round() as i16;
        let most = (LATENCY_MS_MAX.ln() / Distribution::log_gamma()).floor() as i16;
        let mut all = Distribution::default();
        for (index, count) in &self.buckets {
            all.put(index.saturating_add(steps).min(most), *count);
        }
        all
    }

    /// The value of each bucket, ascending, and which share of all latencies it has.
    pub fn shares(&self) -> impl Iterator<Item = (f32, f32)> {
        let all = self.count() as f64;
        let share = move |count: u32| (f64::from(count) / all) as f32;
        self.buckets.iter().map(move |(at, count)| (Distribution::value_ms(*at), share(*count)))
    }

    /// How many latencies it has.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// A quantile; `None`: it is empty.
    pub fn quantile_ms(&self, quantile: f64) -> Option<f32> {
        let needed = (self.count() as f64 * quantile).max(1.0);
        let mut sum = 0.0;
        let reaches = |(_, count): &&(i16, u32)| {
            sum += f64::from(*count);
            sum >= needed
        };
        self.buckets.iter().find(reaches).map(|(index, _)| Distribution::value_ms(*index))
    }

    /// The share of latencies above that; `None`: it is empty. As the cost of an access in a matrix
    /// it is the objective quantile over distributions.
    pub fn share_above(&self, ms: f32) -> Option<f32> {
        let above = |(index, _): &&(i16, u32)| Distribution::value_ms(*index) > ms;
        let slow: u64 = self.buckets.iter().filter(above).map(|(_, count)| u64::from(*count)).sum();
        (self.count() > 0).then(|| (slow as f64 / self.count() as f64) as f32)
    }
}
