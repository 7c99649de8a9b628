//! Reads by lease at a leader whose disk is slower than its followers'.

use crate::world::World;
use model::{
    Answer, Body, Command, Condition, Expiry, KeyspaceId, KeyspaceSpec, Query, ReadConsistency,
    Request, Write,
};
use protocol::site::Ticket;
use std::time::Duration;

const SLOW: Duration = Duration::from_millis(300);

fn ask(world: &mut World, id: u64, body: Body) -> Ticket {
    let request = Request::new(body);
    world.ask(id, request).expect("it is up")
}

/// What a request is answered, and how long that took.
fn answer(world: &mut World, ticket: Ticket) -> (Answer, Duration) {
    let begin = world.now();
    world.run_until("it is answered", |simulation| {
        simulation.answered.iter().any(|one| one.ticket == ticket)
    });
    let at = world.answered.iter().position(|one| one.ticket == ticket).expect("just seen");
    let outcome = world.answered.swap_remove(at).outcome;
    (outcome.expect("nothing is refused"), world.now() - begin)
}

fn put(keyspace: KeyspaceId, value: &'static str) -> Body {
    let write = Write::Put {
        key: "k".into(),
        value: value.into(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    Body::Write(Command::Write { keyspace, write, request: None })
}

fn get(keyspace: KeyspaceId) -> Body {
    let query = Query::Get { key: "k".into() };
    Body::Read { keyspace, query, consistency: ReadConsistency::Linearizable }
}

fn value(answer: &Answer) -> &[u8] {
    match answer {
        Answer::Value(Some(found)) => &found.value,
        other => panic!("{other:?}"),
    }
}

fn follower_is_ahead(answer_at_front: bool) {
    let mut world = World::new(3);
    world.settings.answer_at_front = answer_at_front;
    (0..3).for_each(|_| world.add_node(false));
    world.run_until_whole();
    let spec =
        KeyspaceSpec { lease_reads: true, ..KeyspaceSpec::linearizable_site("leased", "l:") };
    let ticket = ask(&mut world, 1, Body::Write(Command::CreateKeyspace(spec)));
    let Answer::Keyspace(leased) = answer(&mut world, ticket).0 else { panic!("a keyspace") };
    let leased = leased.id;
    let ticket = ask(&mut world, 1, put(leased, "old"));
    answer(&mut world, ticket);
    // Its round is a lease; the next read needs none.
    for rounds in [1, 0] {
        let ticket = ask(&mut world, 1, get(leased));
        let (answer, took) = answer(&mut world, ticket);
        assert_eq!(value(&answer), b"old");
        assert_eq!(took, Duration::from_millis(2) * rounds);
    }
    world.node(1).slow = SLOW;
    ask(&mut world, 1, put(leased, "new"));
    world.run(Duration::from_millis(10));
    // The followers have made it durable, so it is committed, and one of them shows it.
    let ticket = ask(&mut world, 2, get(leased));
    assert_eq!(value(&answer(&mut world, ticket).0), b"new");
    let leader = world.status(1).expect("it is up");
    assert!(leader.applied_index < leader.committed_index, "the leader's own disk is slow");
    let ticket = ask(&mut world, 1, get(leased));
    let (answer, took) = answer(&mut world, ticket);
    assert_eq!(value(&answer), b"new", "answered after {} ms", took.as_millis());
    assert!(took > SLOW / 2);
}

#[test]
fn a_lease_waits_for_what_is_committed() {
    follower_is_ahead(false);
}

#[test]
fn the_gate_does_too() {
    follower_is_ahead(true);
}
