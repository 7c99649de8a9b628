//! Moments by the wall clock: at a leader that has not applied yet how much time is in the log, and
//! in a pipeline.

use crate::pair::{EAST, Sites, WEST, bytes};
use crate::world::World;
use lab::simulation::{Down, EPOCH_MS};
use model::{
    Answer, Body, Cache, Command, Condition, Expiry, KeyspaceId, Query, ReadConsistency, Request,
    Write,
};
use protocol::site::Ticket;
use std::time::Duration;

fn ask(world: &mut World, id: u64, body: Body) -> Ticket {
    world.ask(id, Request::new(body)).expect("it is up")
}

fn answer(world: &mut World, ticket: Ticket) -> Answer {
    world.run_until("it is answered", |simulation| {
        simulation.answered.iter().any(|one| one.ticket == ticket)
    });
    let at = world.answered.iter().position(|one| one.ticket == ticket).expect("just seen");
    world.answered.swap_remove(at).outcome.expect("nothing is refused")
}

fn put(key: &'static str, expiry: Expiry) -> Body {
    let value = "value".into();
    let (condition, return_old) = (Condition::Always, false);
    let write = Write::Put { key: key.into(), value, condition, expiry, return_old };
    Body::Write(Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None })
}

fn get(key: &'static str) -> Body {
    let (keyspace, consistency) = (KeyspaceId::DEFAULT, ReadConsistency::Linearizable);
    Body::Read { keyspace, query: Query::Get { key: key.into() }, consistency }
}

#[test]
fn a_key_that_expires_later_is_there_after_all_nodes_were_restarted() {
    let mut world = World::new(5);
    world.settings.state_persist_permille = 1_000;
    (0..3).for_each(|_| world.add_node(false));
    world.run_until_whole();
    let ticket = ask(&mut world, 1, put("first", Expiry::Never));
    answer(&mut world, ticket);
    // From here on the states on the disks are old; the log goes on, with an entry a minute.
    world.settings.state_persist_permille = 0;
    world.run(Duration::from_secs(600));
    for id in 1..=3 {
        world.crash(id, &Down::Killed);
    }
    for id in 1..=3 {
        world.start(id);
    }
    let wall_ms = EPOCH_MS + world.now().as_millis() as u64;
    // The leader takes it once it has applied that.
    let asked: Vec<Ticket> = [(1, "a"), (2, "b"), (3, "c")]
        .into_iter()
        .map(|(id, key)| ask(&mut world, id, put(key, Expiry::AtMs(wall_ms + 30_000))))
        .collect();
    for ticket in asked {
        answer(&mut world, ticket);
    }
    for key in ["a", "b", "c"] {
        let ticket = ask(&mut world, 1, get(key));
        let found = answer(&mut world, ticket);
        assert!(matches!(found, Answer::Value(Some(_))), "{key}: {found:?}");
    }
}

#[test]
fn a_write_that_names_a_moment_keeps_its_place_in_a_pipeline() {
    let mut sites = Sites::new(Cache::default());
    let key = sites.key_at(WEST, "k");
    // At the leader of the key's site, and through another site.
    for site in [WEST, EAST] {
        let put = Write::Put {
            key: bytes(&key),
            value: "value".into(),
            condition: Condition::Always,
            expiry: Expiry::AtMs(EPOCH_MS + 1_000_000_000),
            return_old: false,
        };
        let delete = Write::Delete { keys: vec![bytes(&key)] };
        let answers = sites.write_together(site, vec![put, delete]);
        assert!(matches!(answers[0], Answer::Put { applied: true, .. }), "{answers:?}");
        assert_eq!(answers[1], Answer::Integer(1), "it deletes what was put before it");
        assert_eq!(sites.get(site, &key).0, None);
    }
}
