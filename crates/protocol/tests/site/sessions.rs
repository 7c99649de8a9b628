//! Tokens of sessions beside requests and answers, through a follower and between sites.
//!
//! No mode gives tokens here: the lab puts one beside each answer from node to node.

use super::pair::{EAST, MS, Sites, WAY, WEST, bytes};
use lab::link::Link;
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, Body, Cache, Command, Condition, Expiry, Failure, GlobalCommand, KeyspaceId, Query,
    ReadConsistency, Request, SessionToken, SiteId, Slot, SourceStep, Write,
};
use std::time::Duration;

const GIVEN: &str = "what the session has seen";

/// Asks a node in a session that begins; the token of the answer.
fn ask(
    lab: &mut Simulation,
    node: usize,
    body: Body,
) -> (Result<Answer, Failure>, Option<SessionToken>, Duration) {
    let (token, began) = (SessionToken::new(Default::default()), lab.now());
    let ticket = lab.ask(node, Request { token, ..Request::new(body) }).unwrap();
    let is_it = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
    assert!(lab.run_until(MS * 30_000, is_it), "{:?}", lab.failure);
    let at = lab.answered.iter().position(|one| one.ticket == ticket).unwrap();
    let answered = lab.answered.remove(at);
    (answered.outcome, answered.token, lab.now() - began)
}

fn given() -> Option<SessionToken> {
    SessionToken::new(GIVEN.into())
}

fn settings() -> Settings {
    Settings { answers_token: Some(GIVEN), ..Settings::default() }
}

fn put(keyspace: KeyspaceId, key: &str) -> Body {
    let write = Write::Put {
        key: bytes(key),
        value: bytes("a"),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    Body::Write(Command::Write { keyspace, write, request: None })
}

impl Sites {
    /// Asks the east in a session; nothing of it is kept at either site.
    fn in_session(&mut self, body: Body) -> (Option<SessionToken>, Duration) {
        let (outcome, token, took) = ask(&mut self.lab, EAST, body);
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!([WEST, EAST].map(|site| self.status(site).sessions), [0, 0]);
        (token, took)
    }
}

#[test]
fn an_answer_of_another_site_brings_its_token() {
    for cache in [Cache::Off, Cache::of("validated", None, None).unwrap()] {
        let mut sites = Sites::with(settings(), cache);
        let key = sites.key_at(WEST, "a");
        let write = put(sites.keyspace, &key);
        assert_eq!(sites.in_session(write).0, given());
        let read = sites.read(Query::Get { key: bytes(&key) }, ReadConsistency::Linearizable);
        for _ in 0..2 {
            assert_eq!(sites.in_session(read.clone()), (given(), WAY));
        }
        // A request without a token gets none.
        sites.get(EAST, &key);
        assert!(sites.lab.answered.iter().all(|one| one.token.is_none()));
    }
}

#[test]
fn so_does_the_answer_to_a_command_for_that_site() {
    let mut sites = Sites::with(settings(), Cache::Off);
    let slots = [Slot::of_key(sites.key_at(WEST, "a").as_bytes())].into_iter().collect();
    let step = SourceStep::Begin { slots, to: SiteId(2), pinned: true };
    let command = Command::Global(GlobalCommand::Source { number: 0, step });
    let there = Body::AtSite { site: SiteId(1), command: Box::new(command) };
    assert_eq!(sites.in_session(there).0, given());
}

#[test]
fn no_copy_answers_in_a_session() {
    let cache = Cache::of("stale", None, Some(60_000)).unwrap();
    let mut sites = Sites::with(settings(), cache);
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "a");
    assert_eq!(sites.get_stale(EAST, &key).1, WAY);
    assert_eq!(sites.get_stale(EAST, &key).1, Duration::ZERO, "of no session");
    let read = sites.read(Query::Get { key: bytes(&key) }, ReadConsistency::Stale);
    assert_eq!(sites.in_session(read), (given(), WAY));
}

#[test]
fn an_answer_of_the_leader_brings_its_token() {
    let mut lab = Simulation::new(1, settings());
    lab.add_site("west", Link::constant(1.0));
    for _ in 0..3 {
        lab.add_node(WEST, false);
    }
    assert!(lab.run_until(MS * 20_000, |lab| lab.is_whole(WEST)));
    let leader = lab.leader(WEST).unwrap();
    let follower = (leader + 1) % 3;
    let (outcome, token, _) = ask(&mut lab, follower, put(KeyspaceId::DEFAULT, "a"));
    assert!(outcome.is_ok() && token == given(), "{outcome:?} {token:?}");
    // The leader's own answer is its mode's to give.
    let (outcome, token, _) = ask(&mut lab, leader, put(KeyspaceId::DEFAULT, "a"));
    assert!(outcome.is_ok() && token.is_none(), "{outcome:?} {token:?}");
    assert!((0..3).all(|node| lab.status(node).unwrap().sessions == 0));
}
