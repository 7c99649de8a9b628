//! When a message that enters a link leaves it. Pure: the caller brings the time and the random
//! numbers.
//!
//! A link has three parts, each of which may be absent:
//!
//! - *propagation*: a [`Latency`], drawn anew for each message;
//! - *serialisation*: at most so many bits enter in a second, one message after the other. What has
//!   to wait for its turn stands in a queue of bounded length;
//! - *loss*: a packet that is lost is sent again. A user of a connection sees that as a delay (the
//!   retransmission timer, RFC 6298: never below [`RETRANSMIT_MIN`]), not as a gap.
//!
//! And it keeps order as a TCP connection does: a late message holds back the ones behind it.
//! [`Pipe`] is one direction of one connection. The simulation and [`crate::relay`] (real sockets)
//! use the same one.
//!
//! Left out: congestion control (a link's bandwidth is there at once), and connections that share a
//! link's bandwidth: each direction of each connection has its own.

use std::time::Duration;

use crate::random::Random;

/// A lost packet is noticed after this at the least.
pub const RETRANSMIT_MIN: Duration = Duration::from_millis(200);
/// Bytes of a packet, for loss: a message of more is lost more easily.
const PACKET_BYTES: usize = 1_448;
/// Longest one-way delay of a link, ms.
pub const DELAY_MAX_MS: f64 = 10_000.0;

/// How long a message travels, one way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Latency {
    /// Always this long.
    Constant {
        /// In ms.
        ms: f64,
    },
    /// Anything between two bounds, all alike.
    Uniform {
        /// Shortest, ms.
        from_ms: f64,
        /// Longest, ms.
        to_ms: f64,
    },
    /// A normal distribution, cut off at zero.
    Normal {
        /// Mean, ms.
        mean_ms: f64,
        /// Standard deviation, ms.
        deviation_ms: f64,
    },
}

impl Latency {
    /// One draw; never negative.
    pub fn draw(&self, random: &mut Random) -> Duration {
        let ms = match *self {
            Latency::Constant { ms } => ms,
            Latency::Uniform { from_ms, to_ms } => from_ms + (to_ms - from_ms) * random.fraction(),
            Latency::Normal { mean_ms, deviation_ms } => random.normal(mean_ms, deviation_ms),
        };
        Duration::from_secs_f64(ms.clamp(0.0, DELAY_MAX_MS) / 1_000.0)
    }

    /// The mean of the draws, ms (of a normal one without its cut).
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        match *self {
            Latency::Constant { ms } => ms,
            Latency::Uniform { from_ms, to_ms } => (from_ms + to_ms) / 2.0,
            Latency::Normal { mean_ms, .. } => mean_ms,
        }
    }
}

/// A link in one direction; both directions of a connection use the same one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Propagation, one way.
    pub latency: Latency,
    /// Megabits a second that enter it; `None`: as many as one likes.
    pub mbps: Option<f64>,
    /// The share of packets that are lost, 0 to below 1.
    pub loss: f64,
}

impl Link {
    /// A link with a constant delay and nothing else.
    #[must_use]
    pub fn constant(delay_ms: f64) -> Self {
        Self::of(Latency::Constant { ms: delay_ms })
    }

    /// A link with this latency and nothing else.
    #[must_use]
    pub fn of(latency: Latency) -> Self {
        Self { latency, mbps: None, loss: 0.0 }
    }

    /// How long `bytes` take to enter it.
    #[must_use]
    pub fn serialisation(&self, bytes: usize) -> Duration {
        // Bits over megabits a second are microseconds.
        self.mbps
            .map_or(Duration::ZERO, |mbps| Duration::from_secs_f64(bytes as f64 * 8.0 / mbps / 1e6))
    }

    /// How long lost packets of a message of so many bytes hold it up.
    fn retransmission(&self, bytes: usize, random: &mut Random) -> Duration {
        if self.loss <= 0.0 {
            return Duration::ZERO;
        }
        let packets = bytes.div_ceil(PACKET_BYTES).max(1) as i32;
        let lost = 1.0 - (1.0 - self.loss).powi(packets);
        let mut timer = RETRANSMIT_MIN.max(self.latency.draw(random) * 3);
        let mut held = Duration::ZERO;
        // The timer doubles with every loss of the same packet; four in a row are a broken link.
        for _ in 0..4 {
            if random.fraction() >= lost {
                break;
            }
            held += timer;
            timer *= 2;
        }
        held
    }
}

/// One direction of one connection over a link: keeps when the last message leaves, so that none
/// overtakes another, whatever the jitter and even when the link becomes shorter on the way.
#[derive(Debug, Clone, Default)]
pub struct Pipe {
    /// Until then the sender's side is busy with what was handed to it.
    busy_until: Duration,
    last_due: Duration,
}

impl Pipe {
    /// A pipe that delivers nothing before `opens_at` (a handshake, for example).
    #[must_use]
    pub fn opening(opens_at: Duration) -> Self {
        Self { busy_until: Duration::ZERO, last_due: opens_at }
    }

    /// When a message of so many bytes that enters at `now` leaves. Times are since any fixed
    /// instant.
    pub fn due(
        &mut self,
        now: Duration,
        bytes: usize,
        link: &Link,
        random: &mut Random,
    ) -> Duration {
        self.busy_until = self.busy_until.max(now) + link.serialisation(bytes);
        let arrival =
            self.busy_until + link.latency.draw(random) + link.retransmission(bytes, random);
        self.last_due = self.last_due.max(arrival);
        self.last_due
    }

    /// How long what was handed over before `now` still takes to enter the link.
    #[must_use]
    pub fn backlog(&self, now: Duration) -> Duration {
        self.busy_until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn mean_and_variance(latency: Latency) -> (f64, f64) {
        let mut random = Random::new(3);
        let draws: Vec<f64> =
            (0..20_000).map(|_| latency.draw(&mut random).as_secs_f64() * 1_000.0).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        (mean, draws.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / draws.len() as f64)
    }

    #[test]
    fn a_constant_link_adds_its_delay() {
        let (mut pipe, mut random) = (Pipe::default(), Random::new(1));
        let link = Link::constant(5.0);
        assert_eq!(pipe.due(10 * MS, 100, &link, &mut random), 15 * MS);
        assert_eq!(pipe.due(11 * MS, 100, &link, &mut random), 16 * MS);
    }

    #[test]
    fn order_survives_jitter_and_a_link_that_shrinks() {
        let (mut pipe, mut random) = (Pipe::default(), Random::new(2));
        let jittery = Link::of(Latency::Uniform { from_ms: 0.0, to_ms: 10.0 });
        let due: Vec<Duration> =
            (0..1_000).map(|step| pipe.due(step * MS / 10, 100, &jittery, &mut random)).collect();
        assert!(due.is_sorted());
        let held = pipe.due(100 * MS, 100, &Link::constant(50.0), &mut random);
        assert_eq!(pipe.due(101 * MS, 100, &Link::constant(1.0), &mut random), held);
    }

    #[test]
    fn latencies_have_the_moments_of_their_distribution() {
        let (mean, variance) = mean_and_variance(Latency::Uniform { from_ms: 6.0, to_ms: 14.0 });
        assert!((mean - 10.0).abs() < 0.1 && (variance - 64.0 / 12.0).abs() < 0.2, "{mean}");
        let (mean, variance) =
            mean_and_variance(Latency::Normal { mean_ms: 20.0, deviation_ms: 3.0 });
        assert!((mean - 20.0).abs() < 0.1 && (variance - 9.0).abs() < 0.4, "{mean} {variance}");
        let mut random = Random::new(4);
        let steep = Latency::Normal { mean_ms: 0.0, deviation_ms: 50.0 };
        let none_negative = (0..100).filter(|_| steep.draw(&mut random).is_zero()).count();
        assert!(none_negative > 20, "about half are cut off at zero");
    }

    #[test]
    fn bandwidth_makes_messages_wait_for_each_other() {
        let (mut pipe, mut random) = (Pipe::default(), Random::new(1));
        // 8 Mbit/s are 1,000 bytes a millisecond.
        let link = Link { mbps: Some(8.0), ..Link::constant(5.0) };
        assert_eq!(pipe.due(Duration::ZERO, 2_000, &link, &mut random), 7 * MS);
        assert_eq!(pipe.due(MS, 3_000, &link, &mut random), 10 * MS);
        assert_eq!(pipe.backlog(MS), 4 * MS);
        assert_eq!(pipe.due(20 * MS, 1_000, &link, &mut random), 26 * MS);
    }

    #[test]
    fn loss_is_a_delay_of_at_least_the_timer() {
        let mut random = Random::new(5);
        let link = Link { loss: 0.1, ..Link::constant(5.0) };
        let mut late = 0;
        for _ in 0..10_000 {
            let due = Pipe::default().due(Duration::ZERO, 100, &link, &mut random);
            assert!(due == 5 * MS || due >= 5 * MS + RETRANSMIT_MIN);
            late += u32::from(due > 5 * MS);
        }
        assert!((900..1_100).contains(&late), "{late}");
        let of_many = |bytes| {
            let mut random = Random::new(6);
            let due =
                (0..1_000).map(|_| Pipe::default().due(Duration::ZERO, bytes, &link, &mut random));
            due.filter(|due| *due > 5 * MS).count()
        };
        // Ten packets: 1 − 0.9¹⁰ = 65 %.
        assert!((600..700).contains(&of_many(14_480)), "{}", of_many(14_480));
    }

    #[test]
    fn nothing_leaves_before_the_pipe_opens() {
        let mut random = Random::new(4);
        let mut pipe = Pipe::opening(20 * MS);
        assert_eq!(pipe.due(2 * MS, 1, &Link::constant(1.0), &mut random), 20 * MS);
        assert_eq!(pipe.due(30 * MS, 1, &Link::constant(1.0), &mut random), 31 * MS);
    }
}
