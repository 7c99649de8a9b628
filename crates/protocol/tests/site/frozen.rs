//! Requests of another site's clients about slots that a failover has taken.

use super::leaving::{A, B, C, KEYS, Sites, bytes, key};
use model::{
    Answer, Body, Command, Condition, Expiry, Failure, GlobalCommand, Query, ReadConsistency,
    Request, SiteId, Slot, SourceStep, Write,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Four sites of which A is lost, and keys of A that B owns since.
fn taken_by_b() -> (Sites, Vec<String>) {
    let mut sites = Sites::new(4);
    let of_a = sites.lab.held_slots(A).0;
    sites.lose_a();
    assert!(sites.promote(B, Vec::new()).done);
    // What was taken goes on to where it belongs.
    sites.lab.run(MS * 20_000);
    let of_b = sites.lab.held_slots(B).0;
    let is_taken = |key: &String| {
        let slot = Slot::of_key(key.as_bytes());
        of_a.contains(&slot) && of_b.contains(&slot)
    };
    let keys: Vec<String> = (0..KEYS).map(key).filter(is_taken).collect();
    assert!(!keys.is_empty(), "all of them have gone on to others");
    (sites, keys)
}

/// The owner applies a write and the freeze behind it together, and answers when both are applied.
/// The answer names the failover by which it owned the slot, so that it is not taken for one of an
/// owner that was failed over.
#[test]
fn a_write_just_before_its_slot_is_frozen_is_answered_after_a_failover_too() {
    let (mut sites, keys) = taken_by_b();
    let key = keys[0].clone();
    let slot = Slot::of_key(key.as_bytes());
    let (mut tickets, mut owner) = (Vec::new(), B);
    for round in 0..10 {
        let next = if owner == B { 3 } else { B };
        let begin = SourceStep::Begin {
            slots: [slot].into_iter().collect(),
            to: SiteId(next as u32 + 1),
            pinned: true,
        };
        let command = Command::Global(GlobalCommand::Source { number: 0, step: begin });
        assert!(matches!(sites.write(owner, command), Answer::Done(_)));
        for number in 0..300 {
            let write = Write::Put {
                key: bytes(&key),
                value: bytes(&format!("{round}/{number}")),
                condition: Condition::Always,
                expiry: Expiry::Never,
                return_old: false,
            };
            let command = Command::Write { keyspace: sites.keyspace, write, request: None };
            tickets.extend(sites.lab.ask(C, Request::write(command)));
            sites.lab.run(MS);
        }
        assert!(sites.lab.run_until(MS * 20_000, |lab| lab.serves(next, slot).is_some()));
        sites.lab.run(MS * 500);
        owner = next;
    }
    let all = tickets.len();
    assert!(sites.lab.run_until(MS * 20_000, |lab| lab.answered.len() >= all));
    let unknown =
        |outcome: &Result<Answer, Failure>| matches!(outcome, Err(Failure::Unknown { .. }));
    let unknown = sites.lab.answered.iter().filter(|one| unknown(&one.outcome)).count();
    assert_eq!(unknown, 0, "of {all}");
    assert!(!sites.lab.held_slots(A).0.is_empty(), "it has not learned of it");
}

/// The backup of a silent owner owns nothing, so its answer names no failover.
#[test]
fn a_backup_answers_stale_reads_after_a_failover_too() {
    let (mut sites, keys) = taken_by_b();
    sites.lab.part_site(B);
    sites.lab.run(MS * 3_000);
    let mut from_backup = [0; 2];
    for (asked, count) in [C, 3].into_iter().zip(&mut from_backup) {
        for key in &keys {
            let (keyspace, query) = (sites.keyspace, Query::Get { key: bytes(key) });
            let consistency = ReadConsistency::Stale;
            let found = sites.ask(asked, Body::Read { keyspace, query, consistency });
            *count += u32::from(matches!(found, Ok(Answer::FromBackup { .. })));
            assert!(found.is_ok(), "{asked}: {found:?}");
        }
    }
    assert!(from_backup.iter().all(|count| *count > 0), "{from_backup:?} of {}", keys.len());
}
