//! Moves that bring nothing: between sites that are alike but for noise, and after a client that
//! jumps. Whole sites.

use std::time::Duration;

use model::{Body, ClientName, JobName};

use super::cars::Cars;
use crate::link::Latency;
use crate::random::Random;

/// How often a group is read in a second, on average.
const READS_PER_S: u32 = 4;
const JUMP_WAY_MS: f64 = 10.0;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// After how many seconds the client jumps.
pub const JUMPS_S: [u32; 6] = [1, 2, 3, 5, 10, 30];

/// Sites that are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alike {
    /// Groups whose users are at a third site, which may not borrow.
    pub groups: usize,
    /// For how long.
    pub hours: f64,
    /// How often one went from one of the two sites to the other, by their own accounts.
    pub moves: usize,
}

impl Alike {
    /// Moves of a group in an hour.
    #[must_use]
    pub fn per_hour(&self) -> f64 {
        self.moves as f64 / self.groups as f64 / self.hours
    }
}

/// One way, of which the round trip varies by 30 % of its mean (standard deviation).
pub const NOISY: Latency = Latency::Uniform { from_ms: 2.65, to_ms: 17.35 };

/// Two sites whose ways to the users vary alike, each by itself; after the first minute.
#[must_use]
pub fn alike(groups: usize, span: Duration, ways: Latency) -> Alike {
    let mut cars = Cars::new(3, ways, &[1, 2]);
    let mut keys = cars.keys_of(0, groups.div_ceil(2));
    keys.extend(cars.keys_of(1, groups / 2));
    let puts: Vec<_> = keys.iter().map(|key| cars.put(2, key, 100)).collect();
    cars.sites.answers(&puts);
    let moves = |cars: &Cars| -> u64 {
        let counts = [0, 1].map(|site| cars.sites.lab.status(site).and_then(|one| one.placement));
        counts.into_iter().flatten().map(|one| one.moves).sum()
    };
    let read_for = |cars: &mut Cars, span: Duration| {
        let until = cars.sites.lab.now() + span;
        while cars.sites.lab.now() < until {
            for key in &keys {
                cars.ask_read(2, key);
            }
            cars.sites.lab.run(Duration::from_secs(1) / READS_PER_S);
            cars.sites.lab.answered.clear();
        }
    };
    // Until round trips are known.
    read_for(&mut cars, Duration::from_secs(60));
    let before = moves(&cars);
    read_for(&mut cars, span);
    let moves = (moves(&cars) - before) as usize;
    Alike { groups, hours: span.as_secs_f64() / 3_600.0, moves }
}

/// A client with a name that jumps between two sites.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jumped {
    /// After how many seconds each time.
    pub every_s: u32,
    /// What its moves cost it, in s: how long reads took beyond a round trip.
    pub paid_s: f64,
    /// What it waited in all, in s.
    pub waited_s: f64,
    /// What it would have waited without any move, in s.
    pub would_have_s: f64,
}

/// Its group follows it, and stays.
#[must_use]
pub fn jump(every_s: u32, span: Duration) -> Jumped {
    let once = |follows: bool| {
        let mut cars = Cars::new(2, Latency::Constant { ms: JUMP_WAY_MS }, &[]);
        for site in [0, 1].into_iter().filter(|_| !follows) {
            let ticket = cars.ask(site, Body::SwitchJob { job: JobName::Place, paused: true });
            cars.sites.answers(&[ticket]);
        }
        let key = cars.keys_of(0, 1).remove(0);
        let put = cars.put(0, &key, 1_024);
        cars.sites.answers(&[put]);
        cars.client = ClientName::of(None, b"car");
        let began = cars.sites.lab.now();
        let (mut waited, mut paid) = (Duration::ZERO, Duration::ZERO);
        // At even intervals no read would come while a decision's move is under way, or each would.
        let mut gaps = Random::stream(1, "jump", u64::from(every_s));
        while cars.sites.lab.now() - began < span {
            let gap = gaps.exponential(Duration::from_secs(1) / READS_PER_S);
            let next = cars.sites.lab.now() + gap;
            let at = (cars.sites.lab.now() - began).as_secs() as u32 / every_s % 2;
            let took = cars.read(at as usize, &key);
            (waited, paid) = (waited + took, paid + took.saturating_sub(ROUND_TRIP));
            cars.sites.lab.run(next.saturating_sub(cars.sites.lab.now()));
        }
        (waited.as_secs_f64(), paid.as_secs_f64())
    };
    let ((waited_s, paid_s), (would_have_s, _)) = (once(true), once(false));
    Jumped { every_s, paid_s, waited_s, would_have_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_that_are_alike_keep_what_is_read_in_bursts() {
        let alike = alike(20, Duration::from_secs(600), NOISY);
        assert_eq!(alike.moves, 0);
    }

    #[test]
    fn a_little_noise_moves_nothing() {
        let ways = Latency::Uniform { from_ms: 9.7, to_ms: 10.3 };
        let alike = alike(4, Duration::from_secs(300), ways);
        assert_eq!(alike.moves, 0);
    }

    #[test]
    fn a_client_that_stays_for_long_is_followed_and_one_that_jumps_pays_little() {
        let span = Duration::from_secs(120);
        let (restless, calm) = (jump(1, span), jump(30, span));
        for one in [restless, calm] {
            assert!(one.paid_s <= one.would_have_s, "{one:?}");
            assert!(one.waited_s <= 2.0 * one.would_have_s, "{one:?}");
        }
        assert!(calm.waited_s < 0.5 * calm.would_have_s, "{calm:?}");
    }
}
