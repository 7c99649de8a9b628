//! Keyspaces that some sites hold, over whole sites: what is asked of the others.

use super::rebuilds::new_session;
use super::*;
use model::{Miss, Refusal};

/// The third site.
const AWAY: usize = 2;

impl World {
    fn make(&mut self, name: &str, miss: Miss) -> KeyspaceId {
        let sites = vec![SiteId(1), SiteId(2)];
        let spec = KeyspaceSpec::causal_region(name.to_owned(), name.to_owned());
        let spec = KeyspaceSpec { sites, miss, ..spec };
        let made = self.must(0, Body::Write(Command::CreateKeyspace(spec)));
        let Answer::Keyspace(made) = made else { panic!("{made:?}") };
        self.lab.run(MS * 3_000);
        made.id
    }
}

fn put_in(keyspace: KeyspaceId, value: &'static str) -> Body {
    let write = Write::Put {
        key: "k".into(),
        value: value.into(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    Body::Write(Command::Write { keyspace, write, request: None })
}

fn get_in(keyspace: KeyspaceId) -> Body {
    let query = Query::Get { key: "k".into() };
    Body::Read { keyspace, query, consistency: ReadConsistency::Linearizable }
}

fn shown(answer: Result<Answer, Failure>) -> Option<Bytes> {
    match answer {
        Ok(Answer::Value(value)) => value.map(|found| found.value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_here_is_asked_of_a_site_that_holds_it() {
    let mut world = World::new(5, 1, Settings::default());
    let (here, plans) = (world.keyspace, world.make("plans", Miss::Forward));
    let mut token = new_session();
    // A session reads at a site that holds nothing of it what it wrote there, and elsewhere.
    world.ask_in(AWAY, put_in(plans, "1"), &mut token).unwrap();
    assert_eq!(shown(world.ask_in(AWAY, get_in(plans), &mut token)), Some("1".into()));
    // The next local request waits for what the forwarded one has seen.
    let mut other = new_session();
    world.ask_in(1, put_in(here, "cause"), &mut other).unwrap();
    world.ask_in(1, put_in(plans, "effect"), &mut other).unwrap();
    loop {
        if shown(world.ask_in(AWAY, get_in(plans), &mut token)) == Some("effect".into()) {
            break;
        }
    }
    assert_eq!(shown(world.ask_in(AWAY, get_in(here), &mut token)), Some("cause".into()));
    assert_eq!(shown(world.ask_in(1, get_in(plans), &mut token)), Some("effect".into()));
    // A transaction goes whole.
    let steps = vec![Step::Read(Query::Get { key: "k".into() })];
    let guards = Vec::new();
    let whole = Command::Transaction { keyspace: plans, guards, steps, request: None };
    let answer = world.ask_in(AWAY, Body::Write(whole), &mut token);
    assert!(matches!(answer, Ok(Answer::Steps(_))), "{answer:?}");
    // And one that reads a keyspace of its site beside it goes not at all.
    let query = Query::Count;
    let steps = vec![Step::ReadIn { keyspace: KeyspaceId::DEFAULT, query }];
    let guards = Vec::new();
    let mixed = Command::Transaction { keyspace: plans, guards, steps, request: None };
    let answer = world.ask_in(AWAY, Body::Write(mixed), &mut token);
    assert!(matches!(answer, Err(Failure::Refused(Refusal::NotCausal(_)))), "{answer:?}");
}

#[test]
fn what_is_not_here_is_refused_if_the_keyspace_says_so() {
    let mut world = World::new(6, 1, Settings::default());
    let plans = world.make("plans", Miss::Refuse);
    let mut token = new_session();
    for body in [put_in(plans, "1"), get_in(plans)] {
        let answer = world.ask_in(AWAY, body, &mut token);
        assert!(matches!(answer, Err(Failure::Refused(Refusal::NotCausal(_)))), "{answer:?}");
    }
    world.ask_in(1, put_in(plans, "1"), &mut token).unwrap();
    assert_eq!(shown(world.ask_in(0, get_in(plans), &mut token)), Some("1".into()));
}

#[test]
fn another_holder_answers_while_the_root_is_away() {
    let mut world = World::new(7, 1, Settings::default());
    let plans = world.make("plans", Miss::Forward);
    let mut token = new_session();
    world.ask_in(AWAY, put_in(plans, "1"), &mut token).unwrap();
    world.lab.run(MS * 2_000);
    // The position of the write, so that any site can serve the session.
    shown(world.ask_in(1, get_in(plans), &mut token));
    world.lab.part_site(0);
    let mut last = None;
    for _ in 0..20 {
        last = Some(world.ask_in(AWAY, get_in(plans), &mut token));
        if matches!(last, Some(Ok(_))) {
            break;
        }
        world.lab.run(MS * 1_000);
    }
    assert_eq!(shown(last.unwrap()), Some("1".into()));
    world.ask_in(AWAY, put_in(plans, "2"), &mut token).unwrap();
    assert_eq!(shown(world.ask_in(1, get_in(plans), &mut token)), Some("2".into()));
}
