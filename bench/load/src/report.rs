//! What was measured, for a reader and for a script.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Options;
use crate::process::Usage;
use crate::workload::Kind;

/// Latencies above a minute are recorded as a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// What has been seen since measuring began.
pub(crate) struct Samples {
    gets: Histogram<u64>,
    puts: Histogram<u64>,
    pub(crate) misses: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

/// How one request ended.
pub(crate) enum Outcome {
    Done,
    /// A get found nothing.
    Missed,
    Failed(String),
}

impl Samples {
    pub(crate) fn new() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1_000, LATENCY_MAX_NS, 3).expect("these bounds are valid")
        };
        Self { gets: histogram(), puts: histogram(), misses: 0, errors: 0, first_error: None }
    }

    /// Forgets everything: the warm-up is over. The first error is kept, since it explains.
    pub(crate) fn reset(&mut self) {
        *self = Self { first_error: self.first_error.take(), ..Self::new() };
    }

    pub(crate) fn record(&mut self, kind: Kind, latency_ns: u64, outcome: Outcome) {
        match outcome {
            Outcome::Failed(reason) => {
                self.errors += 1;
                self.first_error.get_or_insert(reason);
                return;
            }
            Outcome::Missed => self.misses += 1,
            Outcome::Done => {}
        }
        match kind {
            Kind::Get => self.gets.saturating_record(latency_ns),
            Kind::Put => self.puts.saturating_record(latency_ns),
        }
    }

    /// Requests answered, errors included.
    pub(crate) fn answered(&self) -> u64 {
        self.gets.len() + self.puts.len() + self.errors
    }
}

/// Latencies of one kind of request, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    count: u64,
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |q| us(histogram.value_at_quantile(q));
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            p50_us: quantile(0.50),
            p90_us: quantile(0.90),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: us(histogram.max()),
        })
    }
}

/// The result of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) options: Options,
    /// Length of the measured part.
    pub(crate) seconds: f64,
    pub(crate) ops_per_s: f64,
    pub(crate) gets: Option<Latency>,
    pub(crate) puts: Option<Latency>,
    /// Gets that found nothing; they count as answered.
    pub(crate) misses: u64,
    /// Requests answered with an error; they are in no other figure.
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    /// Processor seconds of this load generator while measuring.
    pub(crate) own_cpu_s: f64,
    pub(crate) servers: Vec<Usage>,
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        samples: Samples,
        seconds: f64,
        own_cpu_s: f64,
        servers: Vec<Usage>,
    ) -> Self {
        let good = samples.gets.len() + samples.puts.len();
        Self {
            options: options.clone(),
            seconds,
            ops_per_s: good as f64 / seconds,
            gets: Latency::of(&samples.gets),
            puts: Latency::of(&samples.puts),
            misses: samples.misses,
            errors: samples.errors,
            first_error: samples.first_error,
            own_cpu_s,
            servers,
        }
    }

    /// The result in one line.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{:.0} ops/s in {:.1} s", self.ops_per_s, self.seconds);
        for (name, latency) in [("get", &self.gets), ("put", &self.puts)] {
            if let Some(l) = latency {
                line += &format!(
                    "; {name} µs p50 {:.0} p90 {:.0} p99 {:.0} max {:.0}",
                    l.p50_us, l.p90_us, l.p99_us, l.max_us
                );
            }
        }
        if self.misses > 0 {
            line += &format!("; {} misses", self.misses);
        }
        if self.errors > 0 {
            let reason = self.first_error.as_deref().unwrap_or_default();
            line += &format!("; {} errors, the first: {reason}", self.errors);
        }
        line += &format!("; cpu s: load {:.2}", self.own_cpu_s);
        for server in &self.servers {
            line += &format!(
                ", {} {:.2} ({:.1} MB)",
                server.pid,
                server.cpu_s,
                server.rss_bytes as f64 / 1e6
            );
        }
        line
    }
}
