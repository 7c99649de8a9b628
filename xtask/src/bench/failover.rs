//! The leader is killed under load: how long clients cannot write, and whether anything is lost.

use std::thread::sleep;
use std::time::{Duration, Instant};

use field::resp::Client;
use field::{Ledger, NodeOptions, Site, eventually, ledger};
use serde::{Deserialize, Serialize};

use super::command::Programs;
use super::systems;

pub(super) const WRITERS: usize = 32;
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(6);
/// How long a writer waits for one answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// What clients saw of one killed leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failover {
    /// From the kill to the first answer to a write that was sent after it.
    pub(super) first_s: Option<f64>,
    /// From the kill until every writer has had such an answer; nothing when one never had.
    pub(super) all_s: Option<f64>,
    pub(super) acknowledged: usize,
    pub(super) unknown: u64,
    /// What was found wrong: an acknowledged write lost or applied twice, a torn or stale answer.
    pub(super) violation: Option<String>,
}

/// Kills the leader of a site of three.
pub(super) fn measure(programs: &Programs) -> Result<Failover, String> {
    let folder = systems::folder()?;
    let program = &programs.portolan;
    let adjust = |options: &mut NodeOptions| options.program.clone_from(program);
    let mut site = Site::start(folder.path(), 3, adjust);

    let ledgers = (0..WRITERS).map(Ledger::new).collect();
    let writers = ledger::Writers::start(ledgers, &site.redis(), DEADLINE);
    sleep(BEFORE);
    let leader = site.leader()?;
    let killed = Instant::now();
    site.nodes[leader].kill();
    sleep(AFTER);
    let ledgers = match writers.stop() {
        Ok(ledgers) => ledgers,
        Err(violation) => {
            return Ok(Failover {
                first_s: None,
                all_s: None,
                acknowledged: 0,
                unknown: 0,
                violation: Some(violation),
            });
        }
    };

    let resumed: Vec<Option<f64>> = ledgers.iter().map(|l| resumed_s(l, killed)).collect();
    let survivor = site.nodes.iter().find(|node| node.is_up()).expect("one of three was killed");
    let failover = Failover {
        first_s: resumed.iter().flatten().copied().reduce(f64::min),
        all_s: resumed.into_iter().reduce(|a, b| Some(a?.max(b?))).flatten(),
        acknowledged: ledgers.iter().map(|ledger| ledger.acknowledged.len()).sum(),
        unknown: ledgers.iter().map(|ledger| ledger.counted_unknown).sum(),
        violation: check(ledgers, survivor)?,
    };
    eprintln!("  {:10} {failover:?}", super::plan::FAILOVER);
    Ok(failover)
}

/// When the writer first had an answer to something sent after the kill.
fn resumed_s(ledger: &Ledger, killed: Instant) -> Option<f64> {
    let (_, answered) = ledger.acknowledged.iter().find(|(sent, _)| *sent > killed)?;
    Some((*answered - killed).as_secs_f64())
}

/// Compares all accounts with what the site answers now.
fn check(ledgers: Vec<Ledger>, node: &field::Node) -> Result<Option<String>, String> {
    for mut ledger in ledgers {
        let judged = eventually(Duration::from_secs(10), || {
            let mut client = Client::connect(node.options.redis, DEADLINE)
                .map_err(|e| format!("no connection to check with: {e}"))?;
            match ledger.check(&mut client) {
                Ok(Ok(())) => Ok(None),
                Ok(Err(error)) => Err(format!("no answer to check with: {error}")),
                Err(violation) => Ok(Some(violation)),
            }
        })?;
        if judged.is_some() {
            return Ok(judged);
        }
    }
    Ok(None)
}
