//! Places, delays between them, which site holds which key, and what work costs.

use crate::random::Random;

/// Lyon: the datacenter, and the broker.
pub const LYON: usize = 2;

/// Half round trips of Gesto's Table I, ms, between its places in its order: Lille, Luxembourg,
/// Lyon, Nancy, Nantes, Rennes, Sophia.
const TABLE_ONE_MS: [(usize, usize, f64); 21] = [
    (0, 1, 5.7),
    (0, 2, 6.6),
    (0, 3, 4.8),
    (0, 4, 13.0),
    (0, 5, 13.6),
    (0, 6, 9.7),
    (1, 2, 8.5),
    (1, 3, 1.2),
    (1, 4, 15.0),
    (1, 5, 15.6),
    (1, 6, 11.7),
    (2, 3, 7.5),
    (2, 4, 6.9),
    (2, 5, 7.4),
    (2, 6, 3.5),
    (3, 4, 14.0),
    (3, 5, 14.6),
    (3, 6, 10.7),
    (4, 5, 0.8),
    (4, 6, 10.0),
    (5, 6, 10.6),
];

/// A client and its own site, one way: two machines of one place.
const CLIENT_US: u64 = 100;
/// Two processes of one place.
const LOCAL_US: u64 = 20;
/// Cloudlets that hold a key, beside the datacenter.
const CLOUDLETS_A_KEY: usize = 3;

/// A deployment.
#[derive(Debug, Clone)]
pub struct Layout {
    /// One way, in microseconds, by place.
    pub delay_us: Vec<Vec<u64>>,
    /// The datacenter: it holds every key.
    pub root: usize,
    /// How many keys there are.
    pub keys: u32,
    /// The first so many keys are at every site.
    pub full_keys: u32,
    /// The groups of sites that hold the other keys: a key's group is its number modulo their
    /// count.
    pub groups: Vec<Vec<usize>>,
    /// The place of each client.
    pub homes: Vec<usize>,
    /// Saturn's serializers: places, which pairs are joined, and to which each site is attached.
    pub serializers: Vec<usize>,
    /// Pairs of serializers.
    pub joined: Vec<(usize, usize)>,
    /// By site.
    pub serializer_of: Vec<usize>,
    /// What work costs.
    pub costs: Costs,
}

/// What work costs, in microseconds of one core. They are assumptions, the same for all stores; no
/// paper states its own. What the figures compare depends on their ratios.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Cores of a site.
    pub cores: usize,
    /// A read.
    pub read_us: f64,
    /// A write.
    pub write_us: f64,
    /// To take a remote write into the store.
    pub apply_us: f64,
    /// To keep a payload until its metadata is there.
    pub payload_us: f64,
    /// To export the metadata of one write, at one core of its own.
    pub export_us: f64,
    /// To import the metadata of one write, at one core of its own.
    pub import_us: f64,
    /// To order or pass on the metadata of one write, at a core of the broker or serializer.
    pub order_us: f64,
    /// To check one dependency.
    pub dependency_us: f64,
    /// To look at one write that waits, whenever something is applied.
    pub waiting_us: f64,
    /// To attach a client.
    pub attach_us: f64,
    /// How often metadata is exported, and heartbeats are sent.
    pub beat_us: u64,
    /// How often Gesto's sites take a snapshot by themselves; 0: never.
    pub snapshot_us: u64,
}

impl Default for Costs {
    fn default() -> Costs {
        Costs {
            cores: 8,
            read_us: 100.0,
            write_us: 150.0,
            apply_us: 100.0,
            payload_us: 10.0,
            export_us: 20.0,
            import_us: 50.0,
            order_us: 5.0,
            dependency_us: 10.0,
            waiting_us: 0.5,
            attach_us: 50.0,
            beat_us: 2_000,
            snapshot_us: 100_000,
        }
    }
}

impl Layout {
    /// Gesto's seven places, so many clients at each; 10,000 keys, of which 100 are everywhere.
    #[must_use]
    pub fn table_one(clients: usize) -> Layout {
        let mut delay_us = vec![vec![LOCAL_US; 7]; 7];
        for (one, other, ms) in TABLE_ONE_MS {
            delay_us[one][other] = (ms * 1_000.0) as u64;
            delay_us[other][one] = delay_us[one][other];
        }
        // Serializers where sites are near each other, joined through Lyon.
        let mut layout = Layout::of(delay_us, LYON, clients, 1);
        layout.serializers = vec![3, LYON, 4];
        layout.joined = vec![(0, 1), (1, 2)];
        layout.serializer_of = vec![0, 0, 1, 0, 2, 2, 1];
        layout
    }

    /// So many sites on a plane, one of them in the middle; a tree of serializers with four
    /// branches each.
    #[must_use]
    pub fn plane(sites: usize, clients: usize, seed: u64) -> Layout {
        let mut random = Random::stream(seed, "plane", 0);
        let place = |random: &mut Random| (random.fraction() - 0.5, random.fraction() - 0.5);
        let places: Vec<(f64, f64)> =
            (0..sites).map(|at| if at == 0 { (0.0, 0.0) } else { place(&mut random) }).collect();
        let between = |one: &(f64, f64), other: &(f64, f64)| {
            let far = (one.0 - other.0).hypot(one.1 - other.1);
            LOCAL_US + (far * 14_000.0) as u64
        };
        let row = |one| places.iter().map(|other| between(one, other)).collect();
        let mut layout = Layout::of(places.iter().map(row).collect(), 0, clients, seed);
        let serializers = sites.div_ceil(4);
        layout.serializers = (0..serializers).map(|one| one * 4).collect();
        layout.joined = (1..serializers).map(|one| ((one - 1) / 4, one)).collect();
        layout.serializer_of = (0..sites).map(|site| site / 4).collect();
        layout
    }

    fn of(delay_us: Vec<Vec<u64>>, root: usize, clients: usize, seed: u64) -> Layout {
        let sites = delay_us.len();
        let mut random = Random::stream(seed, "holders", 0);
        let cloudlets: Vec<usize> = (0..sites).filter(|site| *site != root).collect();
        let group = |at: usize| {
            let mut held = vec![root];
            // Each cloudlet is in some group.
            let first = cloudlets[at % cloudlets.len().max(1)];
            held.push(first);
            while held.len() < (CLOUDLETS_A_KEY + 1).min(sites) {
                let next = *random.pick(&cloudlets);
                if !held.contains(&next) {
                    held.push(next);
                }
            }
            held.sort_unstable();
            held
        };
        let groups = (0..cloudlets.len().max(20)).map(group).collect();
        Layout {
            root,
            keys: 10_000,
            full_keys: 100,
            groups,
            homes: (0..sites).flat_map(|site| vec![site; clients]).collect(),
            serializers: vec![root],
            joined: Vec::new(),
            serializer_of: vec![0; sites],
            costs: Costs::default(),
            delay_us,
        }
    }

    /// With so many keys, of which so many are everywhere.
    #[cfg(test)]
    pub(super) fn with_keys(self, keys: u32, full_keys: u32) -> Layout {
        Layout { keys, full_keys, ..self }
    }

    /// How many sites there are.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.delay_us.len()
    }

    /// The group of a key; none: all sites hold it.
    #[must_use]
    pub fn group(&self, key: u32) -> Option<usize> {
        (key >= self.full_keys).then(|| key as usize % self.groups.len())
    }

    /// Whether a site holds a key.
    #[must_use]
    pub fn holds(&self, site: usize, key: u32) -> bool {
        self.group(key).is_none_or(|group| self.groups[group].contains(&site))
    }

    /// The sites that hold a key.
    pub fn replicas(&self, key: u32) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.sites()).filter(move |site| self.holds(*site, key))
    }

    /// The way from a client to a process at a place, one way.
    #[must_use]
    pub fn client_us(&self, client: usize, place: usize) -> u64 {
        let home = self.homes[client];
        if home == place { CLIENT_US } else { CLIENT_US + self.delay_us[home][place] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_site_holds_something_and_the_root_holds_all() {
        for layout in [Layout::table_one(2), Layout::plane(40, 1, 1)] {
            for site in 0..layout.sites() {
                let held = (0..layout.keys).filter(|key| layout.holds(site, *key)).count();
                assert!(held > layout.full_keys as usize, "{site}");
                assert!((site == layout.root) == (held == layout.keys as usize), "{site}");
            }
            assert_eq!(layout.replicas(layout.full_keys).count(), 4);
        }
        assert_eq!(Layout::table_one(1).delay_us[6][LYON], 3_500);
    }
}
