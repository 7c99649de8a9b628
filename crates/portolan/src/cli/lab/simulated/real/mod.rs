//! EdgeKV's throughput in real time: real nodes with real disks in this process, through links that
//! take as long as in Table 3, driven over the Redis protocol.
//!
//! Latency is for virtual time, where links and disks are all there is. Throughput is for real
//! time, where processors count; but they are this machine's, shared by all nodes, clients and
//! relays, so it shows how settings compare and not what a group of machines can do. Threads ask
//! one after the other, as in the paper, and stop after a while instead of after so many
//! operations.
//!
//! Left out: the paper's way over gateways, which no real node goes.

mod sites;

use crate::demo::resp::Connection;
use lab::paper::edgekv::experiment::real::{Measured, SHARES, THREADS};
use lab::paper::edgekv::{Point, Setting, Size};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sites::{Failure, Sites};
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use wire::resp::Reply;

/// How long threads ask before it counts, and how long it counts.
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(5);
/// The same of a quick pass.
const COUNTED_QUICK: Duration = Duration::from_secs(1);
/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that load records at once, at each site.
const LOADERS: usize = 16;

/// Measures all settings and shares, and shows the progress.
pub(super) fn measure(size: Size) -> Result<Vec<Measured>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut all = Vec::new();
        for setting in [Setting::Ours, Setting::Cloud] {
            let point = Point::usual(setting, size);
            let world = point.world();
            show_progress(&format!("{}: starting real nodes", world.title));
            let sites = Sites::start(&world).await?;
            let loads = [true, false].map(|global| load(&sites, &point, global));
            for load in loads {
                load.await?;
            }
            for share in SHARES {
                show_progress(&format!("{}: {share} % global in real time", world.title));
                let counted = if size == Size::Paper { COUNTED } else { COUNTED_QUICK };
                let (operations, updates) = drive(&sites, &point, share, counted).await?;
                let per_machine_s = point.groups as f64 * counted.as_secs_f64();
                all.push(Measured {
                    setting,
                    global_percent: share,
                    operations_s: operations as f64 / per_machine_s,
                    updates_s: updates as f64 / per_machine_s,
                });
            }
            sites.stop().await;
        }
        Ok(all)
    })
}

fn show_progress(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

fn key(global: bool, number: u64) -> String {
    format!("{}user{number}", if global { "g:" } else { "" })
}

fn value(point: &Point, seed: u64) -> String {
    format!("{seed:0width$}", width = point.value_bytes)
}

async fn call(connection: Connection, command: &[&str]) -> Result<Connection, Failure> {
    let (connection, reply) = timeout(CALL_TIMEOUT, connection.call(command)).await??;
    match reply {
        Reply::Error(text) => {
            Err(format!("{}: {}", command[0], String::from_utf8_lossy(&text)).into())
        }
        _ => Ok(connection),
    }
}

/// Writes every record: a site's own at each site, and global ones once.
async fn load(sites: &Sites, point: &Point, global: bool) -> Result<(), Failure> {
    let mut loading = JoinSet::new();
    for site in 0..if global { 1 } else { point.groups } {
        let addresses = sites.addresses(site);
        for loader in 0..LOADERS {
            let (address, point) = (addresses[loader % addresses.len()], *point);
            loading.spawn(async move {
                let mut connection = Connection::open(address).await?;
                for number in (loader as u64..point.records).step_by(LOADERS) {
                    let command = ["SET", &key(global, number), &value(&point, number)];
                    connection = call(connection, &command).await?;
                }
                Ok::<(), Failure>(())
            });
        }
    }
    while let Some(loaded) = loading.join_next().await {
        loaded??;
    }
    Ok(())
}

/// Lets all threads ask for a while; how many operations and updates were answered in the part that
/// counts.
async fn drive(
    sites: &Sites,
    point: &Point,
    global_percent: u32,
    counted: Duration,
) -> Result<(u64, u64), Failure> {
    let mut threads = JoinSet::new();
    let from = Instant::now() + WARM_UP;
    for site in 0..point.groups {
        let addresses = sites.addresses(site);
        for thread in 0..THREADS {
            let (address, point) = (addresses[thread % addresses.len()], *point);
            let seed = (site * THREADS + thread) as u64;
            let span = (from, from + counted);
            threads.spawn(ask(address, point, global_percent, seed, span));
        }
    }
    let (mut operations, mut updates) = (0, 0);
    while let Some(thread) = threads.join_next().await {
        let answered = thread??;
        operations += answered.0;
        updates += answered.1;
    }
    Ok((operations, updates))
}

/// One thread: half reads and half updates, one after the other.
async fn ask(
    address: SocketAddr,
    point: Point,
    global_percent: u32,
    seed: u64,
    (from, until): (Instant, Instant),
) -> Result<(u64, u64), Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut connection = Connection::open(address).await?;
    let (mut operations, mut updates) = (0, 0);
    while Instant::now() < until {
        let key = key(
            random.random_range(0..100) < global_percent,
            random.random_range(0..point.records),
        );
        let is_update = random.random_bool(0.5);
        connection = match is_update {
            true => call(connection, &["SET", &key, &value(&point, seed)]).await?,
            false => call(connection, &["GET", &key]).await?,
        };
        if (from..until).contains(&Instant::now()) {
            operations += 1;
            updates += u64::from(is_update);
        }
    }
    Ok((operations, updates))
}
