//! What a node costs: memory and start-up, empty and with a million small keys.

use std::thread::sleep;
use std::time::{Duration, Instant};

use field::resp::Client;
use field::{Node, NodeOptions};
use serde::{Deserialize, Serialize};

use super::command::Programs;
use super::load;
use super::systems;

/// Size of a value.
pub(super) const VALUE_BYTES: usize = 100;
/// What is waited for background work to settle before memory is read.
const SETTLING: Duration = Duration::from_secs(5);
/// How often a starting node is asked whether it serves.
const ASK_EVERY: Duration = Duration::from_millis(2);
const START_MAX: Duration = Duration::from_secs(60);

/// One node's costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) keys: u64,
    /// From the start of the process to its first answer, with an empty folder.
    pub(super) empty_start_s: f64,
    pub(super) empty_rss_bytes: u64,
    pub(super) fill_ops_per_s: f64,
    pub(super) full_rss_bytes: u64,
    pub(super) full_disk_bytes: u64,
    /// From the start of the process after `kill -9` to the first correct GET.
    pub(super) full_start_s: f64,
    /// Resident memory after that start.
    pub(super) restarted_rss_bytes: u64,
}

/// Measures on a node of its own.
pub(super) fn measure(programs: &Programs, keys: u64) -> Result<Cost, String> {
    let folder = systems::folder()?;
    let mut options = NodeOptions::new(folder.path(), 1);
    options.program.clone_from(&programs.portolan);

    let began = Instant::now();
    let mut node = options.spawn();
    until_served(&node, &["PING"])?;
    let empty_start_s = began.elapsed().as_secs_f64();
    node.wait_ready();
    sleep(SETTLING);
    let empty_rss_bytes = node.rss_bytes();

    let report = load::fill_one(programs, options.redis, keys, VALUE_BYTES)?;
    sleep(SETTLING);
    let full_rss_bytes = node.rss_bytes();
    let full_disk_bytes = super::machine::disk_bytes(&options.data)?;

    node.kill();
    let began = Instant::now();
    node.respawn();
    let last = format!("key:{:012}", keys - 1);
    until_served(&node, &["GET", &last])?;
    let full_start_s = began.elapsed().as_secs_f64();
    sleep(SETTLING);
    let cost = Cost {
        keys,
        empty_start_s,
        empty_rss_bytes,
        fill_ops_per_s: report.ops_per_s,
        full_rss_bytes,
        full_disk_bytes,
        full_start_s,
        restarted_rss_bytes: node.rss_bytes(),
    };
    eprintln!(
        "  {:10} empty {:.1} MB in {empty_start_s:.3} s, full {:.1} MB in {full_start_s:.3} s",
        super::plan::COST,
        empty_rss_bytes as f64 / 1e6,
        full_rss_bytes as f64 / 1e6,
    );
    Ok(cost)
}

/// Asks until there is an answer that is no error; for a GET, one with a value of the right size.
fn until_served(node: &Node, words: &[&str]) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let answer = Client::connect(node.options.redis, Duration::from_secs(5))
            .map_err(|e| e.to_string())
            .and_then(|mut client| client.call(words).map_err(|e| e.to_string()));
        let why = match answer {
            Ok(_) if words[0] != "GET" => return Ok(()),
            Ok(value) if value.bytes().map(<[u8]>::len) == Some(VALUE_BYTES) => return Ok(()),
            Ok(_) => "the last key is not there".to_owned(),
            Err(why) => why,
        };
        if began.elapsed() > START_MAX {
            return Err(format!("{words:?} is not served: {why}\n{}", node.log()));
        }
        sleep(ASK_EVERY);
    }
}
