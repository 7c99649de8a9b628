//! Three sites with causal keys, and three with keys of their own, at the same time and asked in
//! turn: what the machine does meanwhile meets both alike.

use std::time::{Duration, Instant};

use field::eventually;
use serde::{Deserialize, Serialize};

use crate::bench::command::Programs;
use crate::bench::deployment::{Deployment, KEYSPACE};
use crate::bench::load::Report;
use crate::bench::loads::{self, Command};

const SITES: usize = 3;
/// A site that is not the root: the first one founds the deployment, and so orders.
const ELSEWHERE: usize = 1;
pub(super) const VALUE_BYTES: usize = 100;
pub(super) const KEYS: u64 = 10_000;
/// Runs of one client in a repetition.
const RUNS: usize = 6;
const RUN_S: f64 = 1.0;
/// Updates of a run.
pub(super) const UPDATES: u64 = 150_000;
const UPDATES_QUICK: u64 = 15_000;
pub(super) const CLIENTS: usize = 48;
pub(super) const PIPELINE: usize = 16;
/// Clients that saturate the machine, distributed to all sites.
pub(super) const MANY: usize = 552;
/// For how long they write.
pub(super) const LASTING_S: [f64; 2] = [4.0, 12.0];
const LASTING_QUICK_S: [f64; 2] = [0.5, 1.0];
/// How long all sites may take to show what was written.
const SHOWN_MAX: Duration = Duration::from_secs(60);
/// The end of what a site wrote; its writes come in their order.
const LAST: &str = "key:last-of-";

/// The same requests, to causal keys and to keys of the site alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Local {
    pub(super) gets: bool,
    pub(super) causal: Report,
    pub(super) own: Report,
    pub(super) command: String,
}

/// A run of updates.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Rate {
    pub(super) updates: u64,
    /// Until all were answered.
    pub(super) answered_s: f64,
    /// Until all sites showed them.
    pub(super) shown_s: f64,
    /// Processor time of all sites meanwhile.
    pub(super) cpu_s: f64,
}

impl Rate {
    pub(super) fn per_s(&self) -> f64 {
        self.updates as f64 / self.shown_s
    }

    pub(super) fn cpu_us_each(&self) -> f64 {
        1e6 * self.cpu_s / self.updates as f64
    }
}

/// Updates that causal sites send each other, and such as clients write at each site.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Updates {
    pub(super) causal: Rate,
    pub(super) own: Rate,
    pub(super) command: String,
}

/// Writes of many clients for a while.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Lag {
    pub(super) lasting_s: f64,
    pub(super) per_s: f64,
    /// From the last answer until all sites showed all.
    pub(super) shown_after_s: f64,
}

/// The same for a shorter and for a longer time: where a queue grows, it is the longer then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Saturation {
    pub(super) short: Lag,
    pub(super) long: Lag,
    pub(super) command: String,
}

/// The two deployments.
pub(super) struct Pair<'a> {
    programs: &'a Programs,
    causal: Deployment,
    own: Deployment,
}

impl<'a> Pair<'a> {
    pub(super) fn start(programs: &'a Programs) -> Result<Self, String> {
        let causal = ["--consistency", "causal", "--scope", "region"];
        let pair = Pair {
            programs,
            causal: Deployment::start_with(programs, (SITES, 1), &causal)?,
            own: Deployment::start_with(programs, (SITES, 1), &[])?,
        };
        for sites in [&pair.causal, &pair.own] {
            for site in 0..SITES {
                let fill = command(sites, &[site], CLIENTS).with("--pipeline", PIPELINE);
                loads::all_right(fill.each_once(KEYS).run(programs)?, "writing the keys first")?;
            }
        }
        pair.wait_shown("first")?;
        Ok(pair)
    }

    /// One client at a site that is not the root.
    pub(super) fn local(&self, repetition: usize, quick: bool) -> Result<Vec<Local>, String> {
        let mut all = Vec::new();
        for run in 0..if quick { 1 } else { RUNS } {
            for gets in [true, false] {
                let command = |sites: &Deployment| {
                    let share = u8::from(gets);
                    command(sites, &[ELSEWHERE], 1).with("--keys", KEYS).with("--gets", share)
                };
                let ask = |sites| {
                    let report = command(sites).lasting(RUN_S).run(self.programs)?;
                    loads::all_right(report, "the requests of one client")
                };
                let (causal, own) =
                    in_turn(run + repetition, || ask(&self.causal), || ask(&self.own))?;
                let command = command(&self.causal).lasting(RUN_S).text();
                all.push(Local { gets, causal, own, command });
            }
        }
        Ok(all)
    }

    /// Many clients at all sites.
    pub(super) fn updates(&self, repetition: usize, quick: bool) -> Result<Updates, String> {
        let updates = if quick { UPDATES_QUICK } else { UPDATES };
        let all: Vec<usize> = (0..SITES).collect();
        let command = |sites: &Deployment, times: u64| {
            let command = command(sites, &all, CLIENTS).with("--pipeline", PIPELINE);
            command.with("--keys", KEYS).with("--gets", 0).with("--requests", times * updates)
        };
        let measure = |sites: &Deployment, times: u64| {
            let (cpu_s, began) = (sites.cpu_s()?, Instant::now());
            let report = command(sites, times).run(self.programs)?;
            loads::all_right(report, "the updates")?;
            let answered_s = began.elapsed().as_secs_f64();
            if times == 1 {
                self.wait_shown(&format!("{repetition}"))?;
            }
            let shown_s = began.elapsed().as_secs_f64();
            Ok(Rate { updates, answered_s, shown_s, cpu_s: sites.cpu_s()? - cpu_s })
        };
        let times = SITES as u64;
        let (causal, own) =
            in_turn(repetition, || measure(&self.causal, 1), || measure(&self.own, times))?;
        eprintln!(
            "  updates    {:.0} a second, {:.1} µs each; written at each site: {:.0}, {:.1} µs",
            causal.per_s(),
            causal.cpu_us_each(),
            own.per_s(),
            own.cpu_us_each()
        );
        Ok(Updates { causal, own, command: command(&self.causal, 1).text() })
    }

    /// Clients without a pause, as many as saturate the machine.
    pub(super) fn saturation(&self, repetition: usize, quick: bool) -> Result<Saturation, String> {
        let all: Vec<usize> = (0..SITES).collect();
        let writes = |lasting_s| {
            let command = command(&self.causal, &all, MANY).with("--keys", KEYS);
            command.with("--gets", 0).lasting(lasting_s)
        };
        let lag = |lasting_s: f64| {
            let report = writes(lasting_s).run(self.programs)?;
            let per_s = loads::all_right(report, "the writes of many clients")?.ops_per_s;
            let ended = Instant::now();
            self.wait_shown(&format!("{repetition}-{lasting_s}"))?;
            let shown_after_s = ended.elapsed().as_secs_f64();
            eprintln!(
                "  saturation {per_s:.0} a second for {lasting_s} s: shown {shown_after_s:.2} s later"
            );
            Ok::<_, String>(Lag { lasting_s, per_s, shown_after_s })
        };
        let [short, long] = if quick { LASTING_QUICK_S } else { LASTING_S };
        let command = writes(long).text();
        Ok(Saturation { short: lag(short)?, long: lag(long)?, command })
    }

    /// Waits until each site shows what each has written before.
    fn wait_shown(&self, mark: &str) -> Result<(), String> {
        let key = |site: usize| format!("{LAST}{site}");
        for site in 0..SITES {
            self.causal.first(site).cli(&["put", "--keyspace", KEYSPACE, &key(site), mark])?;
        }
        for (at, from) in (0..SITES).flat_map(|at| (0..SITES).map(move |from| (at, from))) {
            let get = ["get", "--keyspace", KEYSPACE, &key(from)];
            eventually(SHOWN_MAX, || match self.causal.first(at).cli(&get) {
                Ok(found) if found.trim() == mark => Ok(()),
                found => Err(format!("site {at} shows {found:?} of site {from}")),
            })?;
        }
        Ok(())
    }
}

fn command(sites: &Deployment, which: &[usize], clients: usize) -> Command {
    Command::new(&sites.redis(which), clients).with("--value-bytes", VALUE_BYTES)
}

/// Two measurements, of which each comes first every other time.
fn in_turn<T>(
    turn: usize,
    one: impl FnOnce() -> Result<T, String>,
    other: impl FnOnce() -> Result<T, String>,
) -> Result<(T, T), String> {
    if turn.is_multiple_of(2) {
        let one = one()?;
        return Ok((one, other()?));
    }
    let other = other()?;
    Ok((one()?, other))
}
