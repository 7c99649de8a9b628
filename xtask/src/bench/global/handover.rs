//! Slots on their way from one site to another.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use field::resp::{Client, Error};
use serde::{Deserialize, Serialize};

use super::Extent;
use crate::bench::command::Programs;
use crate::bench::deployment::Deployment;
use crate::bench::load::Report;
use crate::bench::loads::{self, Command};

/// What moves.
pub(super) const SLOTS: &str = "0-499";
pub(super) const SLOT_COUNT: u32 = 500;
/// Slots that stay where they come to: commits are timed there.
const RESTING: &str = "1000-1099";
/// Value of a key where much is moved, and where little is.
pub(super) const LARGE_BYTES: usize = 1_000;
pub(super) const SMALL_BYTES: usize = 100;
/// Keys in the row `slots`, altogether.
pub(super) const FEW_KEYS: u64 = 20_000;
/// What reads and writes moving keys: so many clients, at most so many requests a second.
pub(super) const CLIENTS: usize = 8;
pub(super) const RATE_PER_S: f64 = 2_000.0;
/// How often it is asked whether slots are where they go.
const ASK_EVERY: Duration = Duration::from_micros(500);
const HANDOVER_MAX: Duration = Duration::from_secs(60);

/// One handover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Handover {
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    /// From the command's start until the destination answers for the slots itself, as a client
    /// sees it.
    pub(super) seen_s: f64,
    /// From begin to release, as the source reports.
    pub(super) took_s: f64,
    /// From the freeze until the source has received that the destination serves, as the source
    /// reports.
    pub(super) paused_us: f64,
    pub(super) sent_bytes: f64,
    /// What making a batch durable took on average meanwhile: at the source, and at the
    /// destination.
    pub(super) fsync_us: [f64; 2],
}

/// 100 MB that move under load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Move {
    pub(super) nodes: u64,
    pub(super) handover: Handover,
    /// A GET through a site that does not hold the key: the median of one client.
    pub(super) round_trip_us: f64,
    /// A SET at each of the two sites: the medians of one client.
    pub(super) commits_us: [f64; 2],
    /// The load without a move, and with one.
    pub(super) quiet: Report,
    pub(super) moving: Report,
    /// Whether the load went on until the move had ended.
    pub(super) covered: bool,
    pub(super) command: String,
}

impl Move {
    pub(super) fn mb_per_s(&self) -> f64 {
        let bytes = self.handover.keys as f64 * self.handover.value_bytes as f64;
        bytes / 1e6 / self.handover.seen_s
    }

    /// A round trip and two commits.
    pub(super) fn unit_us(&self) -> f64 {
        self.round_trip_us + self.commits_us[0] + self.commits_us[1]
    }
}

/// Moves much under load, between two sites of so many nodes.
pub(super) fn measure(programs: &Programs, nodes: u64, extent: Extent) -> Result<Move, String> {
    let sites = Deployment::start(programs, 2, nodes)?;
    sites.gather(SLOTS, 0)?;
    sites.gather(RESTING, 1)?;
    let (source, destination) = (sites.redis(&[0]), sites.redis(&[1]));
    loads::fill(programs, &source, SLOTS, extent.moved_keys, LARGE_BYTES)?;
    loads::fill(programs, &destination, RESTING, 1_000, LARGE_BYTES)?;
    sites.mirrored()?;

    let leader = |site: usize| -> Result<String, String> {
        Ok(sites.leader(site)?.options.redis.to_string())
    };
    let (source_leads, destination_leads) = (leader(0)?, leader(1)?);
    let one = |endpoint: &str, slots: &str, gets: u8| {
        let command = Command::new(endpoint, 1)
            .with("--slots", slots)
            .with("--value-bytes", LARGE_BYTES)
            .with("--gets", gets)
            .with("--keys", 1_000)
            .with("--requests", 2_000);
        let report = loads::all_right(command.run(programs)?, "one client")?;
        Ok::<_, String>(report.latency().map_or(f64::NAN, |latency| latency.p50_us))
    };
    let commits_us = [one(&source_leads, SLOTS, 0)?, one(&destination_leads, RESTING, 0)?];
    let round_trip_us = one(&destination_leads, SLOTS, 1)?;

    let load = Command::new(&sites.redis(&[0, 1]), CLIENTS)
        .with("--slots", SLOTS)
        .with("--value-bytes", LARGE_BYTES)
        .with("--gets", 0.5)
        .with("--keys", extent.moved_keys)
        .with("--rate-per-s", RATE_PER_S);
    let quiet = load.clone().lasting(extent.measured_s).run(programs)?;
    let command = load.lasting(extent.load_s);
    let (handover, moving, covered) = thread::scope(|scope| {
        let began = Instant::now();
        let loading = scope.spawn(|| command.run(programs));
        thread::sleep(Duration::from_secs(1));
        let handover = hand_over(&sites, extent.moved_keys, LARGE_BYTES);
        let covered = began.elapsed().as_secs_f64() < extent.load_s;
        let moving = loading.join().map_err(|_| "the load generator's thread failed")?;
        Ok::<_, String>((handover?, moving?, covered))
    })?;
    let command = command.text();
    let one = Move { nodes, handover, round_trip_us, commits_us, quiet, moving, covered, command };
    eprintln!(
        "  move-{nodes}     {:.0} MB/s, frozen {:.0} µs, longest write {:.0} µs (without a move \
         {:.0}), unit {:.0} µs, {} errors",
        one.mb_per_s(),
        one.handover.paused_us,
        one.moving.longest_put_us(),
        one.quiet.longest_put_us(),
        one.unit_us(),
        one.moving.errors,
    );
    Ok(one)
}

/// Moves many slots that hold little, without any load.
pub(super) fn slots(programs: &Programs) -> Result<Handover, String> {
    let sites = Deployment::start(programs, 2, 1)?;
    sites.gather(SLOTS, 0)?;
    loads::fill(programs, &sites.redis(&[0]), SLOTS, FEW_KEYS, SMALL_BYTES)?;
    sites.mirrored()?;
    let handover = hand_over(&sites, FEW_KEYS, SMALL_BYTES)?;
    eprintln!(
        "  slots      Portolan {:.1} ms (begin to release: {:.1} ms)",
        handover.seen_s * 1e3,
        handover.took_s * 1e3
    );
    Ok(handover)
}

fn hand_over(sites: &Deployment, keys: u64, value_bytes: usize) -> Result<Handover, String> {
    let counters = || {
        let of = |name: &str| sites.counter(0, &format!("portolan_slot_moves_{name}_total"));
        Ok::<_, String>([of("seconds")?, of("paused_seconds")?, of("sent_bytes")?])
    };
    let before = counters()?;
    let fsyncs = [sites.fsyncs(0)?, sites.fsyncs(1)?];
    let mut prober = Prober::new(sites.cluster(1))?;
    let (began, seen) = thread::scope(|scope| {
        let began = Instant::now();
        let to = sites.name(1);
        let command = scope.spawn(move || sites.first(0).cli(&["slot", "move", SLOTS, "--to", to]));
        let seen = prober.until_there(began);
        command.join().map_err(|_| "the command's thread failed")??;
        Ok::<_, String>((began, seen?))
    })?;
    let fsync_us =
        [sites.fsyncs(0)?.mean_us_since(fsyncs[0]), sites.fsyncs(1)?.mean_us_since(fsyncs[1])];
    // What is published is up to a moment old.
    let after = field::eventually(HANDOVER_MAX, || match counters()? {
        after if after[0] > before[0] => Ok(after),
        _ => Err("the source does not report that it has handed over".into()),
    })?;
    Ok(Handover {
        keys,
        value_bytes,
        seen_s: (seen - began).as_secs_f64(),
        took_s: after[0] - before[0],
        paused_us: (after[1] - before[1]) * 1e6,
        sent_bytes: after[2] - before[2],
        fsync_us,
    })
}

/// Asks a node of a Redis Cluster for a key of the moving slots until it answers for it itself. So
/// both stores are looked at alike, from outside.
pub(super) struct Prober {
    client: Client,
    key: String,
}

impl Prober {
    pub(super) fn new(address: SocketAddr) -> Result<Self, String> {
        let io = |e: &dyn std::fmt::Display| format!("{address}: {e}");
        let mut client = Client::connect(address, HANDOVER_MAX).map_err(|e| io(&e))?;
        for number in 0..100_000 {
            let key = format!("key:{number}");
            let slot = client.call(&["CLUSTER", "KEYSLOT", &key]).map_err(|e| io(&e))?;
            if slot.int().is_some_and(|slot| slot < i64::from(SLOT_COUNT)) {
                return Ok(Self { client, key });
            }
        }
        Err(format!("{address} has no key of slots {SLOTS}"))
    }

    /// When it did.
    pub(super) fn until_there(&mut self, began: Instant) -> Result<Instant, String> {
        loop {
            match self.client.call(&["GET", &self.key]) {
                Ok(_) => return Ok(Instant::now()),
                Err(Error::Refused(why)) if why.starts_with("MOVED") => {}
                Err(error) => return Err(format!("asking for {}: {error}", self.key)),
            }
            if began.elapsed() > HANDOVER_MAX {
                return Err(format!("slots {SLOTS} are not there after a minute"));
            }
            thread::sleep(ASK_EVERY);
        }
    }
}
