//! When a client does the next thing.
//!
//! In a *closed* loop a client waits for its answer, thinks, and goes on: a slow store is asked
//! less. In an *open* loop operations come at their times whatever the store does, as requests of
//! many independent users do; the time an operation waits because the one before it is late belongs
//! to its latency, so measure from the start that [`Pace::next_start`] gave (Schroeder, Wierman and
//! Harchol-Balter, *Open versus closed: a cautionary tale*, NSDI 2006).

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::random::Random;

/// Longest think time, in milliseconds: one hour.
const THINK_MAX_MS: f64 = 3_600_000.0;
/// Highest rate of one client, per second.
const RATE_MAX_HZ: f64 = 100_000.0;
/// Lowest rate of one client, per second: about one operation a day.
const RATE_MIN_HZ: f64 = 0.000_01;

/// When a client does the next thing.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "loop", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pace {
    /// Some time after the last answer.
    Closed {
        /// How long after it.
        #[serde(default)]
        think: Think,
    },
    /// At a rate, whether or not the last answer has come.
    Open {
        /// Operations of each client per second, on the average.
        rate_hz: f64,
        /// How they are spread in time.
        #[serde(default)]
        arrivals: Arrivals,
    },
}

/// How long a client thinks between an answer and its next operation.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// Not at all.
    #[default]
    None,
    /// Always so many milliseconds.
    ConstantMs(f64),
    /// Evenly between two numbers of milliseconds.
    UniformMs(f64, f64),
    /// Exponentially, with so many milliseconds on the average.
    ExponentialMs(f64),
}

/// How operations of an open loop are spread in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Independently of each other.
    #[default]
    Poisson,
    /// Evenly.
    Constant,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Closed { think: Think::None }
    }
}

impl Pace {
    /// Whether the parameters make sense.
    ///
    /// # Errors
    /// They do not; a sentence names what would.
    pub fn check(&self) -> Result<(), String> {
        match *self {
            Pace::Closed { think } => think.check(),
            Pace::Open { rate_hz, .. } if (RATE_MIN_HZ..=RATE_MAX_HZ).contains(&rate_hz) => Ok(()),
            Pace::Open { rate_hz, .. } => {
                Err(format!("pace: rate_hz is {RATE_MIN_HZ} to {RATE_MAX_HZ}, is {rate_hz}"))
            }
        }
    }

    /// When the next operation starts, after one that was to start and one that ended at these
    /// times. Before the first operation both are the time at which the client comes up; then
    /// clients of an open loop, and those that think, do not all begin at once.
    #[must_use]
    pub fn next_start(
        &self,
        previous_start: Duration,
        previous_end: Duration,
        random: &mut Random,
    ) -> Duration {
        match *self {
            Pace::Closed { think } => previous_end + think.draw(random),
            Pace::Open { rate_hz, arrivals } => {
                let mean = Duration::from_secs_f64(1.0 / rate_hz);
                previous_start
                    + match arrivals {
                        Arrivals::Poisson => random.exponential(mean),
                        Arrivals::Constant => mean,
                    }
            }
        }
    }
}

impl Think {
    fn check(self) -> Result<(), String> {
        let in_range = |ms: f64| (0.0..=THINK_MAX_MS).contains(&ms);
        let good = match self {
            Think::None => true,
            Think::ConstantMs(ms) | Think::ExponentialMs(ms) => in_range(ms),
            Think::UniformMs(low, high) => in_range(low) && in_range(high) && low <= high,
        };
        if good {
            return Ok(());
        }
        Err(format!("pace: think times are 0 to {THINK_MAX_MS} ms, the lower first"))
    }

    fn draw(self, random: &mut Random) -> Duration {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1_000.0);
        match self {
            Think::None => Duration::ZERO,
            Think::ConstantMs(constant) => ms(constant),
            Think::UniformMs(low, high) => ms(low + (high - low) * random.fraction()),
            Think::ExponentialMs(mean) => random.exponential(ms(mean)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(text: &str) -> Pace {
        let pace: Pace = toml::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        pace.check().unwrap();
        pace
    }

    /// Mean and variance of the time between starts, in seconds, when an answer takes 100 ms.
    fn gaps(pace: &Pace, count: u32) -> (f64, f64) {
        let mut random = Random::new(5);
        let mut start = Duration::ZERO;
        let mut gaps = Vec::new();
        for _ in 0..count {
            let next = pace.next_start(start, start + SECOND / 10, &mut random);
            gaps.push((next - start).as_secs_f64());
            start = next;
        }
        let mean = gaps.iter().sum::<f64>() / f64::from(count);
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / f64::from(count);
        (mean, variance)
    }

    fn assert_gaps(text: &str, mean_s: f64, variance_s2: f64) {
        let (mean, variance) = gaps(&pace(text), 100_000);
        assert!((mean / mean_s - 1.0).abs() < 0.02, "{text}: mean {mean}");
        assert!((variance - variance_s2).abs() <= 0.05 * variance_s2 + 1e-12, "{text}: {variance}");
    }

    #[test]
    fn an_open_loop_keeps_its_rate_whatever_the_answers_take() {
        // The variance of exponential gaps is the square of their mean.
        assert_gaps("loop = \"open\"\nrate_hz = 50", 0.02, 0.0004);
        assert_gaps("loop = \"open\"\nrate_hz = 4\narrivals = \"constant\"", 0.25, 0.0);
    }

    #[test]
    fn a_closed_loop_thinks_after_the_answer() {
        assert_gaps("loop = \"closed\"", 0.1, 0.0);
        assert_gaps("loop = \"closed\"\nthink = \"none\"", 0.1, 0.0);
        assert_gaps("loop = \"closed\"\nthink = { constant_ms = 150 }", 0.25, 0.0);
        let uniform = "loop = \"closed\"\nthink = { uniform_ms = [100, 700] }";
        assert_gaps(uniform, 0.5, 0.36 / 12.0);
        assert_gaps("loop = \"closed\"\nthink = { exponential_ms = 300.0 }", 0.4, 0.09);
    }

    #[test]
    fn poisson_counts_vary_as_much_as_their_mean() {
        let pace = pace("loop = \"open\"\nrate_hz = 20");
        let mut random = Random::new(9);
        let mut counts = vec![0.0; 5_000];
        let mut start = Duration::ZERO;
        loop {
            start = pace.next_start(start, start, &mut random);
            let Some(count) = counts.get_mut(start.as_secs() as usize) else { break };
            *count += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 5_000.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 5_000.0;
        assert!((mean - 20.0).abs() < 0.4 && (variance / mean - 1.0).abs() < 0.1);
    }

    #[test]
    fn bad_parameters_are_refused() {
        for text in [
            "loop = \"open\"\nrate_hz = 0",
            "loop = \"open\"\nrate_hz = nan",
            "loop = \"closed\"\nthink = { constant_ms = -1 }",
            "loop = \"closed\"\nthink = { uniform_ms = [5, 1] }",
        ] {
            let sentence = toml::from_str::<Pace>(text).unwrap().check().unwrap_err();
            assert!(sentence.starts_with("pace: "), "{sentence}");
        }
        for text in ["loop = \"open\"", "loop = \"closed\"\nrate_hz = 3", "think = \"none\""] {
            assert!(toml::from_str::<Pace>(text).is_err(), "{text}");
        }
    }
}
