//! `load`: puts and gets against a key-value store, in a closed loop, and what they took.
//!
//! It shares the machine with the server it measures, so it is thrifty above all: one thread, one
//! buffer in and one out per connection, one read and one write a round. For the same reason it
//! brings its own HTTP/2 ([`http2`]) instead of a whole gRPC stack, whose cost per call would be
//! a good part of what is measured.
//!
//! *Closed loop*: every client waits for its answer before it asks again, so throughput is
//! clients ÷ latency, and a server's pause is seen once per client and not once per request that
//! would have come (no correction for coordinated omission is made). All systems are driven alike.
//!
//! Three protocols: `resp` (Redis, Valkey, Portolan), `etcd` (gRPC `etcdserverpb.KV`) and
//! `portolan` (gRPC `portolan.v1`). It leaves out TLS, authentication and redirections.

mod connection;
mod grpc;
mod http2;
mod process;
mod report;
mod resp;
mod run;
mod slots;
mod workload;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::Serialize;

/// Largest value over gRPC: a request must fit one HTTP/2 frame of the default size (16 KiB).
const GRPC_VALUE_BYTES_MAX: usize = 15 * 1024;

/// What is spoken to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    /// The Redis protocol: GET and SET.
    Resp,
    /// etcd v3: Range and Put.
    Etcd,
    /// Portolan's own gRPC: Get and Put.
    Portolan,
}

/// In which order keys are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// Uniformly at random.
    Random,
    /// One after the other, so that `--requests` equal to `--keys` writes each key once.
    Sequential,
}

/// Puts and gets against a key-value store, in a closed loop.
#[derive(Clone, Debug, Parser, Serialize)]
struct Options {
    /// The protocol.
    #[arg(long, value_enum)]
    protocol: Protocol,

    /// Servers; connections are distributed to them in turn.
    #[arg(long, value_delimiter = ',', required = true)]
    endpoints: Vec<SocketAddr>,

    /// Callers that each wait for an answer (or for a pipeline's answers) before asking again.
    #[arg(long, default_value_t = 50)]
    clients: usize,

    /// HTTP/2 connections that the clients of a gRPC protocol share; RESP has one a client.
    #[arg(long, default_value_t = 8)]
    connections: usize,

    /// Requests that a client sends at once (RESP only).
    #[arg(long, default_value_t = 1)]
    pipeline: usize,

    /// Number of different keys.
    #[arg(long, default_value_t = 10_000)]
    keys: u64,

    /// In which order keys are visited.
    #[arg(long, value_enum, default_value = "random")]
    order: Order,

    /// Keys lie in these slots of Redis Cluster (FIRST-LAST), one after the other, by a tag in
    /// braces.
    #[arg(long)]
    slots: Option<slots::Slots>,

    /// At most so many requests a second, all clients together (RESP only).
    #[arg(long)]
    rate_per_s: Option<f64>,

    /// Size of a value, in bytes; values do not compress.
    #[arg(long, default_value_t = 256)]
    value_bytes: usize,

    /// Share of gets among the requests, 0 to 1; the rest are puts.
    #[arg(long, default_value_t = 0.0)]
    gets: f64,

    /// Seconds before measuring begins.
    #[arg(long, default_value_t = 1.0)]
    warmup_s: f64,

    /// Seconds of measuring, unless --requests is given.
    #[arg(long, default_value_t = 5.0)]
    duration_s: f64,

    /// Send this many requests and stop; there is no warm-up then.
    #[arg(long)]
    requests: Option<u64>,

    /// Processes whose CPU time and memory are reported.
    #[arg(long = "pid", value_delimiter = ',')]
    pids: Vec<u32>,

    /// Print the result as JSON on standard output.
    #[arg(long)]
    json: bool,

    /// Seed of the choice of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Options {
    fn check(&self) -> Result<(), String> {
        if self.clients == 0 || self.connections == 0 || self.pipeline == 0 || self.keys == 0 {
            return Err("--clients, --connections, --pipeline and --keys start at 1".into());
        }
        if !(0.0..=1.0).contains(&self.gets) {
            return Err(format!("--gets {} is not a share between 0 and 1", self.gets));
        }
        if self.rate_per_s.is_some_and(|rate| rate.is_nan() || rate <= 0.0) {
            return Err("--rate-per-s is more than 0".into());
        }
        if self.protocol != Protocol::Resp {
            if self.rate_per_s.is_some() {
                return Err("--rate-per-s is for RESP".into());
            }
            if self.pipeline != 1 {
                return Err("--pipeline is for RESP; over gRPC raise --clients".into());
            }
            if self.value_bytes > GRPC_VALUE_BYTES_MAX {
                return Err(format!("--value-bytes over gRPC is at most {GRPC_VALUE_BYTES_MAX}"));
            }
        }
        Ok(())
    }

    fn warmup(&self) -> Duration {
        match self.requests {
            Some(_) => Duration::ZERO,
            None => Duration::from_secs_f64(self.warmup_s),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match options.check().and_then(|()| run::run(&options)) {
        Ok(report) => {
            eprintln!("{}", report.line());
            if options.json {
                let json = serde_json::to_string(&report).expect("a report has only plain fields");
                if writeln!(std::io::stdout(), "{json}").is_err() {
                    return ExitCode::FAILURE;
                }
            }
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("load: {reason}");
            ExitCode::FAILURE
        }
    }
}
