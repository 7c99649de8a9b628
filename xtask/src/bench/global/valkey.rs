//! Valkey's own way of moving slots: `CLUSTER MIGRATESLOTS` between two primaries.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use field::eventually;
use field::resp::{Client, Value};
use serde::{Deserialize, Serialize};

use super::handover::{FEW_KEYS, Prober, SLOT_COUNT, SLOTS, SMALL_BYTES};
use crate::bench::command::{Programs, output_of, run};
use crate::bench::loads;

const DEADLINE: Duration = Duration::from_secs(60);

/// One migration.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Migration {
    /// From the command until the target answers for the slots itself, as a client sees it.
    pub(super) seen_s: f64,
    /// From the command until the source reports `success`.
    pub(super) success_s: f64,
}

fn script(word: &str) -> Command {
    let mut script = Command::new(field::binary::root().join("bench/peers/valkey-cluster.sh"));
    script.arg(word);
    script
}

pub(super) fn install() -> Result<(), String> {
    run(&mut script("install"))
}

pub(super) fn version() -> Result<String, String> {
    output_of(&mut script("version"))
}

/// The two processes; ended and wiped with the value.
struct Cluster(Vec<SocketAddr>);

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(reason) = run(&mut script("wipe")) {
            eprintln!("{reason}");
        }
    }
}

impl Cluster {
    fn start() -> Result<Self, String> {
        run(&mut script("wipe"))?;
        let mut cluster = Self(Vec::new());
        run(&mut script("start"))?;
        let endpoints = output_of(&mut script("endpoints"))?;
        let addresses = endpoints.split(',').map(|one| one.parse().map_err(|_| endpoints.clone()));
        cluster.0 = addresses.collect::<Result<_, String>>()?;
        let [source, target] = cluster.0[..] else { return Err(endpoints) };
        let mut at_source = connect(source)?;
        ask(&mut at_source, &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"])?;
        ask(&mut connect(target)?, &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"])?;
        ask(&mut at_source, &["CLUSTER", "SET-CONFIG-EPOCH", "1"])?;
        ask(&mut connect(target)?, &["CLUSTER", "SET-CONFIG-EPOCH", "2"])?;
        let (host, port) = (target.ip().to_string(), target.port().to_string());
        ask(&mut at_source, &["CLUSTER", "MEET", &host, &port])?;
        for address in &cluster.0 {
            let mut client = connect(*address)?;
            eventually(DEADLINE, || match ask(&mut client, &["CLUSTER", "INFO"])? {
                info if info.contains("cluster_state:ok") => Ok(()),
                info => Err(info),
            })?;
        }
        Ok(cluster)
    }
}

fn connect(address: SocketAddr) -> Result<Client, String> {
    Client::connect(address, DEADLINE).map_err(|e| format!("{address}: {e}"))
}

fn ask(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let answer = client.call(words).map_err(|e| format!("{words:?}: {e}"))?;
    Ok(text(&answer))
}

/// Moves the slots that [`super::handover::slots`] moves, with the same in them.
pub(super) fn slots(programs: &Programs) -> Result<Migration, String> {
    let cluster = Cluster::start()?;
    let (source, target) = (cluster.0[0], cluster.0[1]);
    loads::fill(programs, &source.to_string(), SLOTS, FEW_KEYS, SMALL_BYTES)?;
    let node = ask(&mut connect(target)?, &["CLUSTER", "MYID"])?;
    let mut prober = Prober::new(target)?;
    let mut client = connect(source)?;
    let last = (SLOT_COUNT - 1).to_string();
    let began = Instant::now();
    ask(&mut client, &["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", &last, "NODE", &node])?;
    let seen = thread::scope(|scope| {
        let seen = scope.spawn(|| prober.until_there(began));
        let succeeded = loop {
            let answer = client.call(&["CLUSTER", "GETSLOTMIGRATIONS"]);
            let text = text(&answer.map_err(|e| e.to_string())?);
            if text.contains("success") {
                break Instant::now();
            }
            if text.contains("failed") || began.elapsed() > DEADLINE {
                return Err(format!("Valkey does not move the slots: {text}"));
            }
            thread::sleep(Duration::from_millis(1));
        };
        let seen = seen.join().map_err(|_| "the asking thread failed")??;
        Ok::<_, String>(Migration {
            seen_s: (seen - began).as_secs_f64(),
            success_s: (succeeded - began).as_secs_f64(),
        })
    })?;
    eprintln!(
        "  slots      Valkey {:.1} ms (to `success`: {:.1} ms)",
        seen.seen_s * 1e3,
        seen.success_s * 1e3
    );
    Ok(seen)
}

/// All text in an answer.
fn text(value: &Value) -> String {
    match value {
        Value::Array(values) => values.iter().map(|one| text(one) + " ").collect(),
        value => String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned(),
    }
}
