//! The same entries lead to the same bytes, however they come; and to what a simple map gives.

use super::simple::Simple;
use super::*;
use model::{ClientId, ExpiryCondition, Guard, KeyspaceSpec, ReadPoint, ScanFilter, Step};
use proptest::collection::vec;
use proptest::prelude::*;

fn key() -> impl Strategy<Value = Bytes> {
    "[a-d]".prop_map(Bytes::from)
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        (-3i64..3).prop_map(|n| Bytes::from(n.to_string())),
        "[a-c]{0,3}".prop_map(Bytes::from),
        Just(Bytes::from(i64::MAX.to_string())),
    ]
}

fn revision() -> impl Strategy<Value = Revision> {
    (0u64..20).prop_map(Revision)
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![
        Just(Expiry::Never),
        Just(Expiry::Keep),
        (0u64..300).prop_map(Expiry::AfterMs),
        (900u64..2_000).prop_map(Expiry::AtMs),
    ]
}

fn some_write() -> impl Strategy<Value = Write> {
    use ExpiryCondition::*;
    let condition = prop_oneof![
        Just(Condition::Always),
        Just(Condition::IfAbsent),
        Just(Condition::IfPresent),
        revision().prop_map(Condition::IfVersion),
    ];
    let expiry_condition =
        proptest::sample::select(vec![Always, IfNone, IfSome, IfLater, IfEarlier, IfSomeEarlier]);
    let pairs = || vec((key(), value()), 0..4);
    prop_oneof![
        4 => (key(), value(), condition, expiry(), any::<bool>()).prop_map(
            |(key, value, condition, expiry, return_old)| {
                Write::Put { key, value, condition, expiry, return_old }
            }
        ),
        1 => (pairs(), any::<bool>())
            .prop_map(|(pairs, if_all_absent)| Write::PutMany { pairs, if_all_absent }),
        1 => (key(), value()).prop_map(|(key, suffix)| Write::Append { key, suffix }),
        1 => (key(), -2i64..3).prop_map(|(key, delta)| Write::Add { key, delta }),
        1 => vec(key(), 0..3).prop_map(|keys| Write::Delete { keys }),
        1 => (key(), revision()).prop_map(|(key, version)| Write::DeleteIf { key, version }),
        1 => key().prop_map(|key| Write::Take { key }),
        2 => (key(), expiry(), expiry_condition).prop_map(|(key, expiry, condition)| {
            Write::SetExpiry { key, expiry, condition }
        }),
        2 => (key(), pairs()).prop_map(|(key, fields)| Write::HashSet { key, fields }),
        1 => (key(), key(), value())
            .prop_map(|(key, field, value)| Write::HashSetIfAbsent { key, field, value }),
        1 => (key(), vec(key(), 0..4)).prop_map(|(key, fields)| Write::HashDelete { key, fields }),
        1 => (key(), key(), -2i64..3)
            .prop_map(|(key, field, delta)| Write::HashAdd { key, field, delta }),
        1 => (key(), expiry()).prop_map(|(key, expiry)| Write::GetAndExpire { key, expiry }),
        1 => Just(Write::Clear),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    prop_oneof![
        key().prop_map(|key| Query::Get { key }),
        key().prop_map(|key| Query::Expiry { key }),
        key().prop_map(|key| Query::HashGetAll { key }),
        Just(Query::Count),
        Just(everything()),
    ]
}

fn everything() -> Query {
    let (from, until, filter) = (Bytes::new(), None, ScanFilter::default());
    Query::Scan { from, until, examine_max: 100, filter, with_values: true }
}

fn command() -> impl Strategy<Value = Command> {
    let keyspace = || (0u32..2).prop_map(KeyspaceId);
    let request = || {
        proptest::option::weighted(
            0.3,
            (0u64..2, 1u64..6).prop_map(|(client, sequence)| RequestId {
                client: ClientId(client),
                sequence,
                acknowledged_below: 1,
            }),
        )
    };
    let point = revision().prop_map(|revision| ReadPoint { revision, ..ReadPoint::default() });
    let absent_since = proptest::option::of(point);
    let version = prop_oneof![Just(Revision(0)), revision()];
    let guard = (key(), version, absent_since).prop_map(|(key, version, absent_since)| Guard {
        key,
        version,
        absent_since,
    });
    let whole = || prop_oneof![Just(Query::Count), Just(everything())];
    let step = prop_oneof![
        2 => query().prop_map(Step::Read),
        4 => some_write().prop_map(Step::Write),
        1 => Just(Step::Write(Write::ClearAll)),
        1 => (keyspace(), whole())
            .prop_map(|(keyspace, query)| Step::ReadIn { keyspace, query }),
    ];
    let cursor = || "[uvw]";
    prop_oneof![
        20 => (keyspace(), some_write(), request())
            .prop_map(|(keyspace, write, request)| Command::Write { keyspace, write, request }),
        4 => (keyspace(), vec(guard, 0..2), vec(step, 0..4), request()).prop_map(
            |(keyspace, guards, steps, request)| {
                Command::Transaction { keyspace, guards, steps, request }
            }
        ),
        1 => Just(Command::ClearAll),
        2 => Just(Command::Tick),
        2 => (cursor(), keyspace(), revision()).prop_map(|(name, keyspace, position)| {
            Command::SetCursor { name, keyspace, position }
        }),
        1 => (cursor(), keyspace())
            .prop_map(|(name, keyspace)| Command::DropCursor { name, keyspace }),
    ]
}

/// Entries whose time goes on, with a jump back now and then.
fn entries() -> impl Strategy<Value = Vec<Batch>> {
    vec((0u64..100, vec(command(), 0..6)), 1..20).prop_map(|entries| {
        let mut now_ms = 1_000;
        let spec = KeyspaceSpec::linearizable_site("cars", "car:");
        let mut batches =
            vec![Batch { log_time_ms: now_ms, commands: vec![Command::CreateKeyspace(spec)] }];
        for (passed_ms, commands) in entries {
            now_ms += passed_ms;
            let log_time_ms = if passed_ms % 7 == 0 { now_ms - 50 } else { now_ms };
            batches.push(Batch { log_time_ms, commands });
        }
        batches
    })
}

fn committed(batches: &[Batch], first_index: u64) -> Vec<Committed<'_>> {
    let numbered = batches.iter().zip(first_index..);
    numbered
        .map(|(batch, index)| Committed { index, term: 1, batch: Some(batch), members: None })
        .collect()
}

proptest! {
    #[test]
    fn the_machine_does_what_a_map_would(batches in entries()) {
        let mut site = Site::new();
        let mut simple = Simple::default();
        for (at, batch) in batches.iter().enumerate() {
            site.now_ms = batch.log_time_ms;
            let answers = site.entry(batch.commands.clone());
            if at == 0 {
                simple.entry(&Batch { log_time_ms: batch.log_time_ms, commands: vec![] });
            } else {
                prop_assert_eq!(answers, simple.entry(batch), "entry {}", at);
            }
            for keyspace in [KeyspaceId(0), KeyspaceId(1)] {
                for query in [everything(), Query::Count] {
                    let expected = simple.read(keyspace, &query);
                    prop_assert_eq!(site.ask_in(keyspace, query), expected);
                }
            }
        }
    }

    #[test]
    fn a_cursor_from_the_beginning_misses_no_change(batches in entries()) {
        let mut site = Site::new();
        let mut simple = Simple::default();
        let mut is_first = true;
        for batch in &batches {
            site.now_ms = batch.log_time_ms;
            let mut commands = batch.commands.clone();
            commands.retain(|command| !matches!(command, Command::DropCursor { .. }));
            for command in &mut commands {
                if let Command::SetCursor { position, .. } = command {
                    *position = Revision(0);
                }
            }
            let batch = Batch { log_time_ms: batch.log_time_ms, commands };
            site.entry(batch.commands.clone());
            if std::mem::take(&mut is_first) {
                simple.entry(&Batch { log_time_ms: batch.log_time_ms, commands: vec![] });
                for keyspace in [KeyspaceId(0), KeyspaceId(1)] {
                    let (name, position) = ("all".to_string(), Revision(0));
                    site.run(Command::SetCursor { name, keyspace, position }).unwrap();
                }
            } else {
                simple.entry(&batch);
            }
        }
        for keyspace in [KeyspaceId(0), KeyspaceId(1)] {
            let mut expected: Vec<_> =
                simple.changes.iter().filter(|c| c.keyspace == keyspace).cloned().collect();
            let mut found = site.changes(keyspace, 0).unwrap();
            prop_assert!(found.is_sorted_by_key(|change| change.revision));
            // What expires together is ordered by time here and there, and by nothing else.
            for changes in [&mut expected, &mut found] {
                changes.sort_by_key(|c| (c.revision, (c.kind == model::ChangeKind::Expire).then(|| c.key.clone())));
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn groups_and_restarts_leave_no_trace(
        batches in entries(),
        group in 1usize..5,
        restart_at in 0usize..20,
    ) {
        let mut one_by_one = Site::new();
        let mut expected_answers = Vec::new();
        for batch in &batches {
            one_by_one.now_ms = batch.log_time_ms;
            expected_answers.extend(one_by_one.entry(batch.commands.clone()));
        }

        let mut grouped = Site::new();
        let mut answers = Vec::new();
        for (i, entries) in committed(&batches, 1).chunks(group).enumerate() {
            if i == restart_at {
                grouped.reopen();
            }
            grouped.machine.apply(entries, &mut answers).unwrap();
        }
        prop_assert_eq!(dump(grouped.machine.state()), dump(one_by_one.machine.state()));
        prop_assert_eq!(answers, expected_answers);
    }

    #[test]
    fn replaying_from_an_older_state_gives_the_same_bytes(
        batches in entries(),
        persisted_at in 0usize..20,
    ) {
        let persisted_at = persisted_at.min(batches.len());
        let state = MemoryState::new();
        let mut machine = Machine::open(state.clone()).unwrap();
        let (before, after) = batches.split_at(persisted_at);
        let mut answers = Vec::new();
        machine.apply(&committed(before, 1), &mut answers).unwrap();
        state.persist();
        answers.clear();
        machine.apply(&committed(after, persisted_at as u64 + 1), &mut answers).unwrap();
        let expected = dump(&state);

        state.crash();
        let mut machine = Machine::open(state.clone()).unwrap();
        prop_assert_eq!(machine.applied().index, persisted_at as u64);
        let mut repeated = Vec::new();
        machine.apply(&committed(after, persisted_at as u64 + 1), &mut repeated).unwrap();
        prop_assert_eq!(dump(&state), expected);
        prop_assert_eq!(repeated, answers);
    }

    #[test]
    fn what_is_at_hand_is_what_the_state_says(batches in entries()) {
        let mut site = Site::new();
        for batch in &batches {
            site.now_ms = batch.log_time_ms;
            site.entry(batch.commands.clone());
        }
        site.tick();
        site.tick();
        let reopened = Machine::open(site.machine.state().clone()).unwrap();
        prop_assert_eq!(site.machine.known.head, reopened.known.head);
        prop_assert_eq!(&site.machine.known.keyspaces, &reopened.known.keyspaces);
        prop_assert_eq!(&site.machine.known.clients, &reopened.known.clients);
    }
}
