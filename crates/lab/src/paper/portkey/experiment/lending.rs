//! How long a group is served nowhere while it is lent or given back, and how many go in a second.
//!
//! Two whole sites 20 ms apart by round trip, of a node each whose commits take a millisecond, with
//! nothing else to do.

use std::time::Duration;

use model::{Bytes, JobName, Lending, LoanPart, SiteId, limits};

use super::cars::Cars;
use crate::link::Latency;
use crate::paper::sites::MS;
use crate::simulation::Simulation;

const WAY_MS: f64 = 10.0;
/// A round trip and two commits.
pub const PAUSE_MS_MAX: f64 = 2.0 * WAY_MS + 2.0;
/// How many groups are lent and given back one by one.
pub const PAUSES: usize = 40;
/// From one of these to the next: it falls anywhere into the intervals of jobs.
const APART: Duration = Duration::from_millis(1_007);
const VALUE_BYTES: usize = 1_024;
const HOME: usize = 0;
const BORROWER: usize = 1;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lent {
    /// For how long a group was served nowhere, in ms, at the most of [`PAUSES`]: lent, given back.
    pub pauses_ms: [f64; 2],
    /// Groups that are lent, and given back, together.
    pub groups: usize,
    /// How long that takes all of them, in s: lent, given back.
    pub took_s: [f64; 2],
}

impl Lent {
    /// Groups in a second, by the slower of the two ways.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.groups as f64 / self.took_s[0].max(self.took_s[1])
    }
}

/// Lends one group and gives it back; then so many together.
#[must_use]
pub fn lend(groups: usize) -> Lent {
    let mut cars = Cars::new(2, Latency::Constant { ms: WAY_MS }, &[]);
    // What is lent is decided here.
    for site in [HOME, BORROWER] {
        let ticket = cars.ask(site, model::Body::SwitchJob { job: JobName::Place, paused: true });
        cars.sites.answers(&[ticket]);
    }
    let keys = cars.keys_of(HOME, groups.max(1));
    for keys in keys.chunks(500) {
        let puts: Vec<_> = keys.iter().map(|key| cars.put(HOME, key, VALUE_BYTES)).collect();
        cars.sites.answers(&puts);
    }
    let mut pauses = [Duration::ZERO; 2];
    for one in keys[..PAUSES.min(keys.len())].chunks(1) {
        for (most, way) in pauses.iter_mut().zip([(HOME, BORROWER), (BORROWER, HOME)]) {
            *most = pause(&mut cars, one, way).max(*most);
            cars.sites.lab.run(APART);
        }
    }
    let all = [(HOME, BORROWER), (BORROWER, HOME)].map(|way| {
        let began = cars.sites.lab.now();
        begin(&mut cars, &keys, way);
        wait_for_all(&mut cars, &keys, way.1);
        let took = cars.sites.lab.now() - began;
        cars.sites.lab.run(1_000 * MS);
        took.as_secs_f64()
    });
    let ms = |span: Duration| span.as_secs_f64() * 1_000.0;
    Lent { pauses_ms: pauses.map(ms), groups: keys.len(), took_s: all }
}

/// From when the one no longer serves a group until the other does.
fn pause(cars: &mut Cars, one: &[Bytes], way: (usize, usize)) -> Duration {
    let group = cars.group(&one[0]);
    begin(cars, one, way);
    cars.sites.wait(|lab| !Cars::serves(lab, way.0, &group));
    let began = cars.sites.lab.now();
    cars.sites.wait(|lab| Cars::serves(lab, way.1, &group));
    cars.sites.lab.now() - began
}

/// Has the groups of these keys lent, or given back.
fn begin(cars: &mut Cars, keys: &[Bytes], (from, _): (usize, usize)) {
    for keys in keys.chunks(limits::LOANS_PER_COMMAND_MAX) {
        let groups = keys.iter().map(|key| cars.group(key));
        let step = if from == HOME {
            Lending::Lend { to: SiteId(2), groups: groups.collect() }
        } else {
            let held = groups.filter_map(|group| {
                let part = cars.sites.lab.part(BORROWER, &group)?.borrowed;
                (part.part == LoanPart::Held).then_some((group, part.loan))
            });
            Lending::GiveBack { loans: held.collect() }
        };
        cars.lend(from, step);
    }
}

fn wait_for_all(cars: &mut Cars, keys: &[Bytes], at: usize) {
    let groups: Vec<_> = keys.iter().map(|key| cars.group(key)).collect();
    // The last one to arrive is asked about first.
    let last = std::cell::Cell::new(0);
    let is_there = |lab: &Simulation| {
        Cars::serves(lab, at, &groups[last.get()])
            && groups.iter().enumerate().all(|(number, group)| {
                last.set(number);
                Cars::serves(lab, at, group)
            })
    };
    cars.sites.wait(is_there);
    cars.sites.lab.answered.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_a_round_trip_and_two_commits_at_most() {
        let lent = lend(600);
        assert!(lent.pauses_ms.iter().all(|ms| *ms > 0.0 && *ms <= PAUSE_MS_MAX), "{lent:?}");
        assert!(lent.per_s() >= 2_000.0, "{lent:?}");
    }
}
