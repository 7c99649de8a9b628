//! Driving the load generator, and Redis's own one for a second opinion.

use std::net::SocketAddr;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::Extent;
use super::command::{Programs, output, output_of};
use super::plan::{Contestant, KEYS, Load, Protocol};
use super::systems::Running;

/// HTTP/2 connections that gRPC clients share: three to each of three nodes.
const CONNECTIONS: usize = 9;
/// How long the second opinion may take, about.
const SECOND_OPINION_S: f64 = 2.0;

/// What `load` reports, as far as it is used here. Times are in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) seconds: f64,
    pub(super) ops_per_s: f64,
    pub(super) gets: Option<Latency>,
    pub(super) puts: Option<Latency>,
    pub(super) misses: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    pub(super) own_cpu_s: f64,
    pub(super) servers: Vec<Usage>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Latency {
    pub(super) count: u64,
    pub(super) mean_us: f64,
    pub(super) p50_us: f64,
    pub(super) p90_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) max_us: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    pub(super) rss_bytes: u64,
}

impl Report {
    /// Latencies of the one kind of request that a row has.
    pub(super) fn latency(&self) -> Option<&Latency> {
        self.gets.as_ref().or(self.puts.as_ref())
    }

    /// How long the slowest write took.
    pub(super) fn longest_put_us(&self) -> f64 {
        self.puts.as_ref().map_or(f64::NAN, |latency| latency.max_us)
    }

    /// Processor time of all servers for one request, in microseconds.
    pub(super) fn server_us_per_op(&self) -> f64 {
        let cpu_s: f64 = self.servers.iter().map(|server| server.cpu_s).sum();
        cpu_s * 1e6 / (self.ops_per_s * self.seconds)
    }

    pub(super) fn line(&self) -> String {
        let (p50_us, p99_us) = self.latency().map_or((0.0, 0.0), |l| (l.p50_us, l.p99_us));
        let mut line =
            format!("{:.0} ops/s, p50 {p50_us:.0} µs, p99 {p99_us:.0} µs", self.ops_per_s);
        if self.errors > 0 || self.misses > 0 {
            let first = self.first_error.as_deref().unwrap_or_default();
            line += &format!(", {} misses, {} errors {first}", self.misses, self.errors);
        }
        line
    }
}

/// The command line of one measurement.
pub(super) fn arguments(
    row: &Load,
    contestant: &Contestant,
    running: &Running,
    extent: Extent,
) -> Result<Vec<String>, String> {
    let mut arguments = start(contestant.protocol, running, row.clients)?;
    let mut flag = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    if row.pipeline > 1 {
        flag("--pipeline", row.pipeline.to_string());
    }
    flag("--keys", KEYS.to_string());
    flag("--value-bytes", row.value_bytes.to_string());
    flag("--gets", if row.gets { "1" } else { "0" }.into());
    flag("--warmup-s", extent.warmup_s.to_string());
    flag("--duration-s", extent.duration_s.to_string());
    flag("--pid", running.pids()?);
    Ok(arguments)
}

fn start(protocol: Protocol, running: &Running, clients: usize) -> Result<Vec<String>, String> {
    Ok(opening(protocol, running.endpoints(protocol)?, clients))
}

fn opening(protocol: Protocol, endpoints: String, clients: usize) -> Vec<String> {
    let mut arguments: Vec<String> = vec![
        "--protocol".into(),
        protocol.name().into(),
        "--endpoints".into(),
        endpoints,
        "--clients".into(),
        clients.to_string(),
    ];
    if protocol != Protocol::Resp {
        arguments.extend(["--connections".into(), CONNECTIONS.min(clients).to_string()]);
    }
    arguments
}

/// Writes each of the keys that the rows use once.
pub(super) fn fill(
    programs: &Programs,
    running: &Running,
    protocol: Protocol,
    value_bytes: usize,
) -> Result<(), String> {
    let arguments = start(protocol, running, 256)?;
    sequential(programs, arguments, KEYS, value_bytes).map(drop)
}

/// Writes `keys` keys once to one node, by Redis pipelines.
pub(super) fn fill_one(
    programs: &Programs,
    redis: SocketAddr,
    keys: u64,
    value_bytes: usize,
) -> Result<Report, String> {
    let mut arguments = opening(Protocol::Resp, redis.to_string(), 50);
    arguments.extend(["--pipeline".into(), "16".into()]);
    sequential(programs, arguments, keys, value_bytes)
}

fn sequential(
    programs: &Programs,
    mut arguments: Vec<String>,
    keys: u64,
    value_bytes: usize,
) -> Result<Report, String> {
    let (keys, size) = (keys.to_string(), value_bytes.to_string());
    for word in
        ["--keys", &keys, "--requests", &keys, "--order", "sequential", "--value-bytes", &size]
    {
        arguments.push(word.into());
    }
    let report = run(programs, &arguments)?;
    if report.errors > 0 {
        return Err(format!("writing the keys first failed: {}", report.line()));
    }
    Ok(report)
}

/// Runs `load`.
pub(super) fn run(programs: &Programs, arguments: &[String]) -> Result<Report, String> {
    let json = output_of(Command::new(&programs.load).args(arguments).arg("--json"))?;
    serde_json::from_str(&json).map_err(|e| format!("load's report is not understood: {e}"))
}

/// What `redis-benchmark` makes of a row with a Redis protocol and one node; `None` where it is not
/// installed or the row is not for it. It is no judge here: it sends one constant value and shares
/// nothing with our generator, so that a mistake in either would show.
pub(super) fn second_opinion(row: &Load, running: &Running, ops_per_s: f64) -> Option<f64> {
    let endpoints = running.endpoints(Protocol::Resp).ok()?;
    let (host, port) = endpoints.rsplit_once(':')?;
    if endpoints.contains(',') || row.shape != super::plan::Shape::One {
        return None;
    }
    let requests = format!("{:.0}", (ops_per_s * SECOND_OPINION_S).max(1000.0));
    let (clients, pipeline) = (row.clients.to_string(), row.pipeline.to_string());
    let (keys, size) = (KEYS.to_string(), row.value_bytes.to_string());
    let test = if row.gets { "get" } else { "set" };
    let csv = output(
        "redis-benchmark",
        &[
            "-h", host, "-p", port, "-c", &clients, "-P", &pipeline, "-n", &requests, "-r", &keys,
            "-d", &size, "-t", test, "--csv",
        ],
    )
    .ok()?;
    // "test","rps",… and below it "SET","1234.56",…
    csv.lines().last()?.split(',').nth(1)?.trim_matches('"').parse().ok()
}
