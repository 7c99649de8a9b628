//! What a run came to, from its history: what clients saw and nothing else.
//!
//! As in the paper, latencies are means over all operations of all client machines, and a
//! throughput is the mean of the machines': each one's operations divided by the time from its
//! first call to its last answer.

use std::collections::BTreeMap;

use model::Slot;

use crate::history::{Action, History, Operation, Outcome};

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// Operations that were answered.
    pub operations: u64,
    /// Mean latency of an update, ms.
    pub write_ms: f64,
    /// The same from when it was due: what an operation of an open loop waits for the one before
    /// counts.
    pub write_due_ms: f64,
    /// Mean latency of a read, ms.
    pub read_ms: f64,
    /// Updates a second of one machine.
    pub writes_s: f64,
    /// Operations a second of one machine, updates and reads.
    pub rate_hz: f64,
    /// Medians of reads and updates of global keys that another group holds, ms; none if there were
    /// none.
    pub remote_ms: Option<(f64, f64)>,
    /// Bytes between groups while clients worked, for each operation. Not from the history.
    pub inter_site_bytes: u64,
}

impl Measured {
    /// From a history.
    #[must_use]
    pub fn of(history: &History) -> Measured {
        let done: Vec<&Operation> =
            history.operations.iter().filter(|one| is_of_a_client(one)).collect();
        let writes = done.iter().filter(|one| one.action != Action::Get).copied();
        let reads = done.iter().filter(|one| one.action == Action::Get).copied();
        let writes: Vec<&Operation> = writes.collect();
        let waited_ms = |one: &&Operation| one.waited_us as f64 / 1_000.0;
        let (writes_s, rate_hz) = rates(&done);
        Measured {
            operations: done.len() as u64,
            write_ms: mean(writes.iter().map(|one| latency_ms(one))),
            write_due_ms: mean(writes.iter().map(|one| latency_ms(one) + waited_ms(one))),
            read_ms: mean(reads.map(latency_ms)),
            writes_s,
            rate_hz,
            remote_ms: remote_ms(history, &done),
            inter_site_bytes: 0,
        }
    }
}

/// Not one of the clients that load and look at the end; and it was answered.
fn is_of_a_client(one: &Operation) -> bool {
    let failed = matches!(one.outcome, Outcome::Failed { .. } | Outcome::Unknown { .. });
    one.client.starts_with("client-") && one.return_us.is_some() && !failed
}

fn latency_ms(one: &Operation) -> f64 {
    let return_us = one.return_us.unwrap_or(one.call_us);
    return_us.saturating_sub(one.call_us) as f64 / 1_000.0
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0_u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// Updates a second, and all operations a second, of a machine.
fn rates(done: &[&Operation]) -> (f64, f64) {
    #[derive(Clone, Copy)]
    struct Machine {
        first_call_us: u64,
        last_return_us: u64,
        updates: u64,
        operations: u64,
    }
    let none = Machine { first_call_us: u64::MAX, last_return_us: 0, updates: 0, operations: 0 };
    let mut machines: BTreeMap<&str, Machine> = BTreeMap::new();
    for one in done {
        let name = one.client.rsplit_once('-').map_or(one.client.as_str(), |(name, _)| name);
        let machine = machines.entry(name).or_insert(none);
        machine.first_call_us = machine.first_call_us.min(one.call_us);
        machine.last_return_us = machine.last_return_us.max(one.return_us.unwrap_or_default());
        machine.updates += u64::from(one.action != Action::Get);
        machine.operations += 1;
    }
    let rate = |of: fn(&Machine) -> u64| {
        mean(machines.values().map(|machine| {
            let span_us = machine.last_return_us.saturating_sub(machine.first_call_us).max(1);
            of(machine) as f64 / (span_us as f64 / 1e6)
        }))
    };
    (rate(|machine| machine.updates), rate(|machine| machine.operations))
}

fn remote_ms(history: &History, done: &[&Operation]) -> Option<(f64, f64)> {
    let mut owners: BTreeMap<u16, (u64, &str)> = BTreeMap::new();
    for owner in &history.owners {
        let slot = owner.unit.strip_prefix("slot/").and_then(|slot| slot.parse().ok());
        let Some(slot) = slot else { continue };
        let latest = owners.entry(slot).or_default();
        if owner.epoch >= latest.0 {
            *latest = (owner.epoch, &owner.owner);
        }
    }
    let is_remote = |one: &&&Operation| {
        // A key of a group's own carries the group's name.
        let slot = Slot::of_key(one.key.as_bytes()).number();
        let owner = owners.get(&slot).map(|(_, owner)| *owner);
        one.key.starts_with("g:") && owner.is_some() && owner != one.site.as_deref()
    };
    let remote: Vec<&&Operation> = done.iter().filter(is_remote).collect();
    let of = |read: bool| {
        let same = remote.iter().filter(|one| (one.action == Action::Get) == read);
        median(same.map(|one| latency_ms(one)).collect())
    };
    Some((of(true)?, of(false)?))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Owner;

    fn operation(
        client: &str,
        key: &str,
        write: bool,
        (call_us, return_us): (u64, u64),
    ) -> Operation {
        let (action, outcome) = match write {
            true => (Action::Put { value: "v".to_owned() }, Outcome::Written { version: Some(1) }),
            false => (Action::Get, Outcome::Value { value: None, version: None }),
        };
        let group = client.split('-').nth(1).unwrap();
        Operation {
            client: client.to_owned(),
            site: Some(format!("group-{group}")),
            key: key.to_owned(),
            call_us,
            waited_us: 0,
            return_us: Some(return_us),
            action,
            outcome,
            stale: false,
            together: None,
        }
    }

    #[test]
    fn means_are_over_all_and_rates_over_machines() {
        let mut history = History {
            operations: vec![
                operation("loader-group-1", "a", true, (0, 9_000_000)),
                operation("client-1-1", "a", true, (0, 10_000)),
                operation("client-1-2", "a", true, (0, 30_000)),
                operation("client-1-2", "a", false, (30_000, 500_000)),
                operation("client-2-1", "a", true, (1_000_000, 1_250_000)),
            ],
            ..History::default()
        };
        let measured = Measured::of(&history);
        assert_eq!(measured.operations, 4);
        assert!((measured.write_ms - 290.0 / 3.0).abs() < 1e-9, "{measured:?}");
        assert_eq!(measured.read_ms, 470.0);
        // Two of three in half a second, and one in a quarter.
        assert_eq!((measured.writes_s, measured.rate_hz), (4.0, 5.0));
        assert_eq!(measured.write_due_ms, measured.write_ms);
        history.operations[1].waited_us = 30_000;
        let waited = Measured::of(&history);
        assert_eq!((waited.write_ms, waited.write_due_ms), (measured.write_ms, 320.0 / 3.0));
        history.operations[1].outcome = Outcome::Unknown { why: String::new() };
        assert_eq!(Measured::of(&history).operations, 3);
        assert_eq!(Measured::of(&History::default()), Measured::default());
    }

    #[test]
    fn remote_is_what_another_group_held_last() {
        let slot = Slot::of_key(b"g:k").number();
        let owner = |epoch, owner: &str| Owner {
            at_us: 0,
            unit: format!("slot/{slot}"),
            epoch,
            owner: owner.to_owned(),
        };
        let history = History {
            operations: vec![
                operation("client-1-1", "g:k", true, (0, 10_000)),
                operation("client-2-1", "g:k", true, (0, 40_000)),
                operation("client-2-1", "g:k", false, (40_000, 90_000)),
                operation("client-2-1", "group-2:k", false, (90_000, 91_000)),
            ],
            owners: vec![owner(1, "group-1"), owner(3, "group-1"), owner(2, "group-2")],
            ..History::default()
        };
        assert_eq!(Measured::of(&history).remote_ms, Some((50.0, 40.0)));
    }
}
