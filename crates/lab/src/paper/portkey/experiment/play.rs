//! The substrate: keys at sites, accesses that go to them, and moves, in virtual time. It is the
//! same for each strategy.
//!
//! A strategy decides at the beginning of a second and sees the accesses before it. A move takes
//! two commits, a round trip between the two sites and the key's way over both their links; an
//! access to a key on its way waits until it has arrived, and counts with its wait. Each site has
//! one link, on which answers and moved keys follow each other.
//!
//! *Left out*: how an access finds where its key is. All strategies are taken to find it at once.

use super::workload::{Access, Load, VALUE_BYTES};
use super::world::{WINDOW_S, World};

/// A commit at a site, in ms.
pub const COMMIT_MS: f64 = 1.0;
/// An interval of the time line, in seconds.
pub const INTERVAL_S: usize = 30;
const BIN_MS: f64 = 0.1;
const BINS: usize = 50_000;

/// Which keys go where.
pub trait Decide {
    /// The second begins; `owners`: where each key is. Keys, and the sites where they should be.
    fn decide(&mut self, second: usize, owners: &[u16]) -> Vec<(usize, u16)>;

    /// An access was made.
    fn saw(&mut self, _access: &Access) {}

    /// Whether its moves take time.
    fn pays(&self) -> bool {
        true
    }

    /// Bytes that it sends beside moves, for so many seconds and accesses.
    fn overhead_bytes(&self, _seconds: f64, _accesses: u64) -> f64 {
        0.0
    }
}

/// How the run is made.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Seconds that are not measured.
    pub warm_s: usize,
    /// The strategy decides from then on.
    pub starts_s: usize,
    /// Megabits a second of each site's link.
    pub mbps: f64,
}

/// What came of it, after the warm-up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Mean latency of accesses.
    pub mean_ms: f64,
    /// The 95th percentile of their latencies.
    pub p95_ms: f64,
    /// How many there were.
    pub accesses: u64,
    /// Moves.
    pub moves: u64,
    /// What accesses waited for moves, in ms, of all together.
    pub waited_ms: f64,
    /// The share of accesses whose key was not at a site nearest to them.
    pub misplaced: f64,
    /// The 95th percentile if each of these had gone to the nearest site beyond: no strategy that
    /// misplaces these has a lower one.
    pub p95_floor_ms: f64,
    /// How long a client stays at an origin, in seconds, on average.
    pub residence_s: f64,
    /// Bytes of moves and of what the strategy has to know, as a share of the bytes of accesses.
    pub overhead: f64,
    /// The same without moves.
    pub overhead_still: f64,
    /// Mean and 95th percentile of each interval, from the very beginning.
    pub intervals: Vec<(f64, f64)>,
}

#[derive(Clone)]
struct Histogram {
    bins: Vec<u32>,
    count: u64,
    sum_ms: f64,
}

impl Histogram {
    fn new() -> Histogram {
        Histogram { bins: vec![0; BINS], count: 0, sum_ms: 0.0 }
    }

    fn add(&mut self, ms: f64) {
        self.bins[((ms / BIN_MS) as usize).min(BINS - 1)] += 1;
        self.count += 1;
        self.sum_ms += ms;
    }

    fn mean_and_p95(&self) -> (f64, f64) {
        let mut left = self.count - self.count * 95 / 100;
        let slowest = self.bins.iter().rposition(|bin| {
            let bin = u64::from(*bin);
            let is_it = left > 0 && bin >= left;
            left = left.saturating_sub(bin);
            is_it
        });
        (
            self.sum_ms / self.count.max(1) as f64,
            slowest.map_or(0.0, |bin| (bin as f64 + 0.5) * BIN_MS),
        )
    }
}

/// A key on its way: it leaves and arrives then, in ms.
#[derive(Clone, Copy, Default)]
struct Way {
    from: u16,
    leaves_ms: f64,
    arrives_ms: f64,
}

/// Plays all accesses against a strategy. `look` sees where keys are at the end of each window.
pub fn play(
    world: &World,
    accesses: &[Access],
    mut owners: Vec<u16>,
    decider: &mut dyn Decide,
    rules: Rules,
    look: &mut dyn FnMut(usize, &[u16]),
) -> Measured {
    let seconds = world.places.first().map_or(0, Vec::len);
    let bytes_ms = 8.0 / (rules.mbps * 1_000.0);
    let mut ways = vec![Way::default(); owners.len()];
    let mut free_ms = vec![0.0_f64; world.sites];
    let (mut all, mut interval) = (Histogram::new(), Histogram::new());
    let mut measured = Measured { residence_s: world.residence_s(), ..Measured::default() };
    let nearest_ms: Vec<f32> = (0..world.sites as u16).map(|at| world.nearest_ms(at)).collect();
    let beyond_ms: Vec<f32> =
        (0..world.sites as u16).map(|at| world.beyond_nearest_ms(at)).collect();
    let mut floor = Histogram::new();
    let (mut misplaced, mut next) = (0_u64, 0);
    for second in 0..seconds {
        let begins_ms = second as f64 * 1_000.0;
        let is_measured = second >= rules.warm_s;
        let moves =
            if second >= rules.starts_s { decider.decide(second, &owners) } else { Vec::new() };
        for (key, to) in moves {
            let from = std::mem::replace(&mut owners[key], to);
            debug_assert!(from != to && world.open[usize::from(to)], "a move to nowhere");
            measured.moves += u64::from(is_measured);
            if decider.pays() {
                let [a, b] = [usize::from(from), usize::from(to)];
                let leaves_ms = begins_ms.max(free_ms[a]).max(free_ms[b]);
                let sent_ms = leaves_ms + f64::from(VALUE_BYTES) * bytes_ms;
                (free_ms[a], free_ms[b]) = (sent_ms, sent_ms);
                let arrives_ms = sent_ms + 2.0 * COMMIT_MS + f64::from(world.latency_ms(from, to));
                ways[key] = Way { from, leaves_ms, arrives_ms };
            }
        }
        while let Some(access) = accesses.get(next).filter(|access| access.second() == second) {
            next += 1;
            let begins_ms = f64::from(access.at_us) / 1_000.0;
            let way = &ways[usize::from(access.key)];
            let mut owner = owners[usize::from(access.key)];
            let mut at_ms = begins_ms;
            if begins_ms < way.leaves_ms {
                owner = way.from;
            } else if begins_ms < way.arrives_ms {
                at_ms = way.arrives_ms;
            }
            let waited_ms = at_ms - begins_ms;
            let links = [Some(owner), (access.origin != owner).then_some(access.origin)];
            for link in links.into_iter().flatten() {
                let free_ms = &mut free_ms[usize::from(link)];
                at_ms = at_ms.max(*free_ms) + f64::from(VALUE_BYTES) * bytes_ms;
                *free_ms = at_ms;
            }
            let latency_ms = f64::from(world.latency_ms(access.origin, owner) * access.factor());
            let ms = at_ms - begins_ms + latency_ms;
            interval.add(ms);
            if is_measured {
                all.add(ms);
                measured.waited_ms += waited_ms;
                let origin = usize::from(access.origin);
                let is_misplaced = world.latency_ms(access.origin, owner) > nearest_ms[origin];
                misplaced += u64::from(is_misplaced);
                let least_ms = if is_misplaced { beyond_ms[origin] } else { nearest_ms[origin] };
                floor.add(f64::from(least_ms * access.factor()));
            }
            decider.saw(access);
        }
        if (second + 1) % INTERVAL_S == 0 {
            measured.intervals.push(interval.mean_and_p95());
            interval = Histogram::new();
        }
        if (second + 1) % WINDOW_S == 0 {
            look(second, &owners);
        }
    }
    (measured.mean_ms, measured.p95_ms) = all.mean_and_p95();
    (_, measured.p95_floor_ms) = floor.mean_and_p95();
    measured.accesses = all.count;
    measured.misplaced = misplaced as f64 / all.count.max(1) as f64;
    let measured_s = seconds.saturating_sub(rules.warm_s) as f64;
    let moved = measured.moves as f64 * f64::from(VALUE_BYTES + crate::paper::portkey::MOVE_BYTES);
    let still = decider.overhead_bytes(measured_s, all.count);
    let own = all.count as f64 * f64::from(VALUE_BYTES + crate::paper::portkey::REQUEST_BYTES);
    measured.overhead = (moved + still) / own.max(1.0);
    measured.overhead_still = still / own.max(1.0);
    measured
}

/// Where hash placement puts keys: any site that is open, each as likely.
#[must_use]
pub fn by_hash(world: &World, keys: usize, seed: u64) -> Vec<u16> {
    let mut random = crate::random::Random::stream(seed, "hash", 0);
    let open: Vec<u16> =
        (0..world.sites as u16).filter(|site| world.open[usize::from(*site)]).collect();
    (0..keys).map(|_| *random.pick(&open)).collect()
}

/// The same, with as many at each site as at any other, or one more.
#[must_use]
pub fn in_turn(world: &World, load: &Load, seed: u64) -> Vec<u16> {
    let mut random = crate::random::Random::stream(seed, "turn", 0);
    let mut sites: Vec<u16> = (0..load.keys()).map(|key| (key % world.sites) as u16).collect();
    for place in (1..sites.len()).rev() {
        sites.swap(place, random.below(place as u64 + 1) as usize);
    }
    sites
}

#[cfg(test)]
mod tests {
    use super::super::workload::Workload;
    use super::super::world::TIERS;
    use super::*;

    /// Moves all keys to a site in one second.
    struct Once(usize, u16);

    impl Decide for Once {
        fn decide(&mut self, second: usize, owners: &[u16]) -> Vec<(usize, u16)> {
            let due = (0..owners.len()).filter(|key| second == self.0 && owners[*key] != self.1);
            due.map(|key| (key, self.1)).collect()
        }
    }

    fn measured(decider: &mut dyn Decide, mbps: f64) -> Measured {
        let world = World::grid(TIERS, 8, 40, 1);
        let load = Load::new(Workload::PerClient, &world, 4, 20.0);
        let rules = Rules { warm_s: 10, starts_s: 0, mbps };
        let owners = vec![0; load.keys()];
        play(&world, &load.accesses(&world, 1), owners, decider, rules, &mut |_, _| {})
    }

    #[test]
    fn an_access_to_a_key_on_its_way_waits_for_it() {
        let still = measured(&mut Once(99, 0), 1_000.0);
        assert_eq!((still.moves, still.waited_ms), (0, 0.0));
        let moved = measured(&mut Once(20, 24), 1_000.0);
        assert_eq!(moved.moves, 32);
        // 160 accesses a second, each of a pause of about 47 ms long, waits for half of it.
        let expected = 160.0 * 0.047 * 47.0 / 2.0;
        assert!((0.3..3.0).contains(&(moved.waited_ms / expected)), "{}", moved.waited_ms);
        assert!(moved.overhead > still.overhead);
        // A move before the measurement costs nothing in it.
        assert_eq!(measured(&mut Once(2, 24), 1_000.0).waited_ms, 0.0);
    }

    #[test]
    fn a_narrow_link_makes_accesses_queue() {
        let (wide, narrow) = (measured(&mut Once(99, 0), 1_000.0), measured(&mut Once(99, 0), 2.0));
        // 8,192 bits at 2 Mbit/s are 4 ms, at the owner's link and at the client's.
        assert!(narrow.mean_ms > wide.mean_ms + 7.0, "{} {}", narrow.mean_ms, wide.mean_ms);
    }

    #[test]
    fn a_histogram_has_its_mean_and_its_tail() {
        let mut histogram = Histogram::new();
        (1..=100).for_each(|ms| histogram.add(f64::from(ms)));
        let (mean, p95) = histogram.mean_and_p95();
        assert!((mean - 50.5).abs() < 1e-9 && (p95 - 96.0).abs() < 0.11, "{mean} {p95}");
        assert_eq!(Histogram::new().mean_and_p95(), (0.0, 0.0));
    }
}
