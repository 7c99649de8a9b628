//! GETs of one site's keys, at that site and through another.

use serde::{Deserialize, Serialize};

use super::Extent;
use super::handover::SLOTS;
use crate::bench::command::Programs;
use crate::bench::deployment::Deployment;
use crate::bench::load::Report;
use crate::bench::loads::{self, Command};

pub(super) const CLIENTS: usize = 50;
pub(super) const PIPELINES: [usize; 2] = [1, 16];
const KEYS: u64 = 10_000;
const VALUE_BYTES: usize = 256;

/// The same GETs at both sites.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Forwarded {
    pub(super) pipeline: usize,
    /// At the site that holds the keys.
    pub(super) local: Report,
    /// At the one that does not.
    pub(super) forwarded: Report,
    pub(super) command: String,
}

/// Measures between two sites of one node.
pub(super) fn measure(
    programs: &Programs,
    repetition: usize,
    extent: Extent,
) -> Result<Vec<Forwarded>, String> {
    let sites = Deployment::start(programs, 2, 1)?;
    sites.gather(SLOTS, 0)?;
    loads::fill(programs, &sites.redis(&[0]), SLOTS, KEYS, VALUE_BYTES)?;
    sites.mirrored()?;
    let mut all = Vec::new();
    for pipeline in PIPELINES {
        let gets = |site: usize| {
            Command::new(&sites.redis(&[site]), CLIENTS)
                .with("--pipeline", pipeline)
                .with("--slots", SLOTS)
                .with("--keys", KEYS)
                .with("--value-bytes", VALUE_BYTES)
                .with("--gets", 1)
                .with("--pid", sites.pids())
                .lasting(extent.measured_s)
        };
        let run = |site| loads::all_right(gets(site).run(programs)?, "GETs");
        // Who goes first changes.
        let (local, forwarded) = match repetition % 2 {
            1 => (run(0)?, run(1)?),
            _ => {
                let forwarded = run(1)?;
                (run(0)?, forwarded)
            }
        };
        eprintln!(
            "  forward    pipeline {pipeline}: {:.0} of {:.0} GETs/s: {:.0} %",
            forwarded.ops_per_s,
            local.ops_per_s,
            forwarded.ops_per_s / local.ops_per_s * 100.0
        );
        all.push(Forwarded { pipeline, local, forwarded, command: gets(1).text() });
    }
    Ok(all)
}
