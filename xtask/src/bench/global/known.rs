//! How often a request goes directly to the site that owns its key; and three sites at work.

use serde::{Deserialize, Serialize};

use super::Extent;
use super::handover::{SLOT_COUNT, SLOTS};
use crate::bench::command::Programs;
use crate::bench::deployment::Deployment;
use crate::bench::load::Report;
use crate::bench::loads::{self, Command};

/// Enough that every slot has some.
const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 256;
const CLIENTS: usize = 48;
/// Keys in the slots that move: some in each.
const KEYS_MOVED: u64 = 2 * SLOT_COUNT as u64;

/// What requests for keys elsewhere did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Routed {
    /// Requests that ended at other sites.
    pub(super) all: f64,
    /// Of those, that went directly to the owner. Older results name it `straight`.
    #[serde(alias = "straight")]
    pub(super) direct: f64,
}

/// Three sites of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Routing {
    /// Under a load of uniformly drawn keys, every slot having been asked for before.
    pub(super) steady: Routed,
    /// One client asks a third site for keys of slots that moved between two others: for each key
    /// once, and once more.
    pub(super) after_move: [Routed; 2],
    pub(super) command: String,
}

/// Three sites of three nodes under load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Three {
    pub(super) gets: Report,
    pub(super) sets: Report,
    pub(super) commands: [String; 2],
}

fn routed(sites: &Deployment, which: &[usize]) -> Result<Routed, String> {
    let mut sum = Routed { all: 0.0, direct: 0.0 };
    for site in which {
        let direct = sites.counter(*site, "portolan_routed_direct_total")?;
        sum.direct += direct;
        sum.all += direct + sites.counter(*site, "portolan_routed_redirected_total")?;
    }
    Ok(sum)
}

/// What was routed while `work` was done. What is counted is published a moment later.
fn routed_by(
    sites: &Deployment,
    which: &[usize],
    work: impl FnOnce() -> Result<(), String>,
) -> Result<Routed, String> {
    let published = || std::thread::sleep(std::time::Duration::from_millis(200));
    published();
    let before = routed(sites, which)?;
    work()?;
    published();
    let after = routed(sites, which)?;
    Ok(Routed { all: after.all - before.all, direct: after.direct - before.direct })
}

fn each_key(
    programs: &Programs,
    endpoint: &str,
    clients: usize,
    keys: u64,
    slots: Option<&str>,
) -> Result<(), String> {
    let command = Command::new(endpoint, clients).with("--gets", 1).each_once(keys);
    let command = match slots {
        Some(slots) => command.with("--slots", slots),
        None => command.with("--pipeline", 16),
    };
    loads::all_right(command.run(programs)?, "reading each key").map(drop)
}

pub(super) fn measure(programs: &Programs, extent: Extent) -> Result<Routing, String> {
    let sites = Deployment::start(programs, 3, 1)?;
    let all = [0, 1, 2];
    let fill = Command::new(&sites.redis(&all), CLIENTS)
        .with("--pipeline", 16)
        .with("--value-bytes", VALUE_BYTES)
        .each_once(KEYS);
    loads::all_right(fill.run(programs)?, "writing the keys first")?;
    for site in all {
        each_key(programs, &sites.redis(&[site]), CLIENTS, KEYS, None)?;
    }
    let load = Command::new(&sites.redis(&all), CLIENTS)
        .with("--keys", KEYS)
        .with("--value-bytes", VALUE_BYTES)
        .with("--gets", 0.9)
        .lasting(extent.measured_s);
    let steady =
        routed_by(&sites, &all, || loads::all_right(load.run(programs)?, "the load").map(drop))?;

    sites.gather(SLOTS, 0)?;
    loads::fill(programs, &sites.redis(&[0]), SLOTS, KEYS_MOVED, VALUE_BYTES)?;
    let third = sites.redis(&[2]);
    let read = || each_key(programs, &third, 1, KEYS_MOVED, Some(SLOTS));
    read()?;
    sites.gather(SLOTS, 1)?;
    let after_move = [routed_by(&sites, &[2], read)?, routed_by(&sites, &[2], read)?];
    eprintln!(
        "  known      {:.3} % direct; after a move {:.0} of {:.0} redirected, then {:.0}",
        steady.direct / steady.all * 100.0,
        after_move[0].all - after_move[0].direct,
        after_move[0].all,
        after_move[1].all - after_move[1].direct
    );
    Ok(Routing { steady, after_move, command: load.text() })
}

pub(super) fn three_of_three(programs: &Programs, extent: Extent) -> Result<Three, String> {
    let sites = Deployment::start(programs, 3, 3)?;
    let all = sites.redis(&[0, 1, 2]);
    let fill =
        Command::new(&all, 2 * CLIENTS).with("--value-bytes", VALUE_BYTES).each_once(KEYS / 10);
    loads::all_right(fill.run(programs)?, "writing the keys first")?;
    let load = |gets: u8| {
        Command::new(&all, 256)
            .with("--keys", KEYS / 10)
            .with("--value-bytes", VALUE_BYTES)
            .with("--gets", gets)
            .with("--pid", sites.pids())
            .lasting(extent.measured_s)
    };
    let (gets, sets) = (load(1), load(0));
    let three = Three {
        gets: loads::all_right(gets.run(programs)?, "GETs")?,
        sets: loads::all_right(sets.run(programs)?, "SETs")?,
        commands: [gets.text(), sets.text()],
    };
    eprintln!(
        "  three      {:.0} GETs/s, {:.0} SETs/s",
        three.gets.ops_per_s, three.sets.ops_per_s
    );
    Ok(three)
}
