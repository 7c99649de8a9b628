//! The paper's six workloads (§2.2) as accesses in the order of time, the same for each strategy.
//!
//! Keys and clients are those of [`crate::workload::portkey`]: 16 keys for each client, 128 for the
//! groups of four clients, 128 for all, and here 5 for the region of each of the 25 access points.
//! Clients access keys independently of each other, at a fixed rate (a Poisson process); a read and
//! a write are alike.

use super::world::{JITTER, World};
use crate::random::Random;

/// Bytes of a key's value.
pub const VALUE_BYTES: u32 = 1_024;
const CLIENTS_OF_GROUP: usize = 4;

/// One of the workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Keys of a single client.
    PerClient,
    /// Keys of a region, for the clients in it.
    Regional,
    /// Keys of four clients.
    Group,
    /// Keys of all clients.
    Global,
    /// All of these; reads and writes.
    AllRw,
    /// The same; reads.
    AllR,
}

impl Workload {
    /// All six.
    pub const ALL: [Workload; 6] = [
        Workload::PerClient,
        Workload::Regional,
        Workload::Group,
        Workload::Global,
        Workload::AllRw,
        Workload::AllR,
    ];

    /// The paper's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::PerClient => "per-client",
            Workload::Regional => "regional",
            Workload::Group => "group",
            Workload::Global => "global",
            Workload::AllRw => "all-RW",
            Workload::AllR => "all-R",
        }
    }

    /// Of ten accesses of a client: to its own keys, those of its region, of its group, of all.
    fn tenths(self) -> [u64; 4] {
        match self {
            Workload::PerClient => [10, 0, 0, 0],
            Workload::Regional => [0, 10, 0, 0],
            Workload::Group => [0, 0, 10, 0],
            Workload::Global => [0, 0, 0, 10],
            Workload::AllRw | Workload::AllR => [4, 2, 2, 2],
        }
    }

    /// Accesses a second of a client with which a key has two a second or more: 20,000 in ten
    /// minutes, and more where they go to all classes.
    #[must_use]
    pub fn rate_hz(self) -> f64 {
        match self {
            Workload::AllRw | Workload::AllR => 80.0,
            _ => 100.0 / 3.0,
        }
    }
}

/// Keys with the same users: they are accessed alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    class: usize,
    /// Client, region or group.
    index: usize,
    /// Its keys.
    pub keys: std::ops::Range<usize>,
}

/// What clients access, and how often.
#[derive(Debug, Clone)]
pub struct Load {
    workload: Workload,
    /// Accesses a second of each client.
    pub rate_hz: f64,
    /// All keys, by their users.
    pub units: Vec<Unit>,
    /// The first unit of each class.
    first: [usize; 4],
}

/// An access.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Access {
    /// When it begins, in µs.
    pub at_us: u32,
    /// What it accesses.
    pub key: u16,
    /// Which client makes it.
    pub client: u16,
    /// Where that is.
    pub origin: u16,
    jitter: u16,
}

impl Access {
    /// What its latency is multiplied with.
    #[must_use]
    pub fn factor(&self) -> f32 {
        1.0 + JITTER * (f32::from(self.jitter) / 32_768.0 - 1.0)
    }

    /// In which second it begins.
    #[must_use]
    pub fn second(&self) -> usize {
        self.at_us as usize / 1_000_000
    }
}

impl Load {
    /// So many keys for each client, and the paper's of the other classes.
    #[must_use]
    pub fn new(workload: Workload, world: &World, keys_of_client: usize, rate_hz: f64) -> Load {
        let clients = world.places.len();
        let groups = clients.div_ceil(CLIENTS_OF_GROUP);
        let shapes = [
            (clients, keys_of_client),
            (world.sites, 128 / world.sites),
            (groups, 128 / groups.max(1)),
            (1, 128),
        ];
        let (mut units, mut first, mut next) = (Vec::new(), [0; 4], 0);
        for (class, (count, keys)) in shapes.into_iter().enumerate() {
            first[class] = units.len();
            let count = if workload.tenths()[class] > 0 { count } else { 0 };
            for index in 0..count {
                units.push(Unit { class, index, keys: next..next + keys.max(1) });
                next += keys.max(1);
            }
        }
        Load { workload, rate_hz, units, first }
    }

    /// The number of keys.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.units.last().map_or(0, |unit| unit.keys.end)
    }

    fn unit_of(&self, class: usize, client: usize, origin: u16) -> usize {
        let index = match class {
            0 => client,
            1 => usize::from(origin),
            2 => {
                let groups = self.units.iter().filter(|unit| unit.class == 2).count();
                client % groups.max(1)
            }
            _ => 0,
        };
        self.first[class] + index
    }

    /// Of each unit: how many accesses a second each of its keys is to expect from each origin.
    #[must_use]
    pub fn rates(&self, world: &World, second: usize) -> Vec<Vec<(u16, f32)>> {
        let mut rates = vec![Vec::new(); self.units.len()];
        for (client, places) in world.places.iter().enumerate() {
            let Some(origin) = places[second] else { continue };
            for (class, tenths) in self.workload.tenths().into_iter().enumerate() {
                if tenths > 0 {
                    let unit = self.unit_of(class, client, origin);
                    let keys = self.units[unit].keys.len();
                    let rate = self.rate_hz * tenths as f64 / 10.0 / keys as f64;
                    rates[unit].push((origin, rate as f32));
                }
            }
        }
        rates
    }

    /// All accesses, in the order of time.
    #[must_use]
    pub fn accesses(&self, world: &World, seed: u64) -> Vec<Access> {
        let mut random = Random::stream(seed, "accesses", self.workload as u64);
        let seconds = world.places.first().map_or(0, Vec::len);
        let clients = world.places.len() as u64;
        let mean_us = 1e6 / (self.rate_hz * clients as f64);
        let mut accesses = Vec::new();
        let mut at_us = 0.0;
        loop {
            at_us -= mean_us * (1.0 - random.fraction()).ln();
            if at_us >= seconds as f64 * 1e6 {
                return accesses;
            }
            let client = random.below(clients) as usize;
            let mut tenth = random.below(10);
            let mut class = 0;
            while tenth >= self.workload.tenths()[class] {
                tenth -= self.workload.tenths()[class];
                class += 1;
            }
            let (key, jitter) = (random.draw(), random.draw() as u16);
            let Some(origin) = world.places[client][at_us as usize / 1_000_000] else { continue };
            let keys = &self.units[self.unit_of(class, client, origin)].keys;
            let key = (keys.start + key as usize % keys.len()) as u16;
            let (at_us, client) = (at_us as u32, client as u16);
            accesses.push(Access { at_us, key, client, origin, jitter });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::TIERS;
    use super::*;

    #[test]
    fn keys_have_their_users_and_their_rates() {
        let world = World::grid(TIERS, 32, 30, 1);
        for (workload, keys) in Workload::ALL.into_iter().zip([512, 125, 128, 128, 893, 893]) {
            let load = Load::new(workload, &world, 16, workload.rate_hz());
            assert_eq!(load.keys(), keys);
            let accesses = load.accesses(&world, 1);
            let expected = 32.0 * 30.0 * workload.rate_hz();
            assert!((accesses.len() as f64 / expected - 1.0).abs() < 0.02);
            let total = |second| -> f64 {
                let rates = load.rates(&world, second);
                let of = |(unit, rates): (&Unit, &Vec<(u16, f32)>)| {
                    let sum: f32 = rates.iter().map(|(_, rate)| rate).sum();
                    f64::from(sum) * unit.keys.len() as f64
                };
                load.units.iter().zip(&rates).map(of).sum()
            };
            assert!((total(7) / (32.0 * workload.rate_hz()) - 1.0).abs() < 1e-3);
            assert!(accesses.is_sorted_by_key(|access| access.at_us));
            for access in accesses {
                let unit =
                    load.units.iter().find(|unit| unit.keys.contains(&usize::from(access.key)));
                let unit = unit.unwrap();
                let client = usize::from(access.client);
                assert_eq!(Some(access.origin), world.places[client][access.second()]);
                let is_its = match unit.class {
                    0 => unit.index == client,
                    1 => unit.index == usize::from(access.origin),
                    2 => unit.index == client % 8,
                    _ => true,
                };
                assert!(is_its && (0.9..=1.1).contains(&access.factor()));
            }
        }
    }
}
