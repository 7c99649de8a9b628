//! Requests that other sites answer late, or not at all.

use super::*;
use crate::origin::Ticket;
use model::{Command, GlobalCommand, Refusal, SourceStep, Write};

const AT: (SiteId, NodeId) = (SiteId(2), NodeId(1));
const DEADLINE: Duration = Duration::from_secs(10);

fn with_one_sent(command: Command) -> Routing {
    let mut routing = Routing::new(ClientId(7));
    let origin = Origin::client(Ticket(1));
    let target = Target::Site(AT.0);
    let id = routing.push(origin, Body::Write(command), target, DEADLINE).unwrap();
    assert_eq!(routing.take_due(Duration::ZERO), [id]);
    assert!(routing.go_away(id, AT.0, AT.1, Duration::ZERO).is_some());
    routing
}

fn once_only() -> Command {
    let step = SourceStep::Begin { slots: "0-9".parse().unwrap(), to: SiteId(3), pinned: true };
    Command::Global(GlobalCommand::Source { number: 0, step })
}

#[test]
fn what_may_be_done_once_only_waits_for_a_busy_site() {
    let mut routing = with_one_sent(once_only());
    let mut settled = Vec::new();
    let unanswered = routing.unanswered(|_, _, _| Contact::Overdue, &mut settled);
    assert_eq!(unanswered, (Vec::new(), BTreeSet::from([AT.0])), "its site is asked for a sign");
    assert_eq!((settled.len(), routing.waiting()), (0, 1));
    let wire_id = routing.id_there(1);
    let done = Ok(model::Answer::Done(model::Revision(5)));
    let answered = routing.answered(wire_id, done.clone(), None, DEADLINE);
    assert_eq!(answered, Some((Origin::client(Ticket(1)), done)));
}

#[test]
fn what_may_be_done_once_only_is_in_doubt_when_its_site_is_lost() {
    let mut routing = with_one_sent(once_only());
    let mut settled = Vec::new();
    routing.unanswered(|_, _, _| Contact::Lost, &mut settled);
    assert!(matches!(settled[..], [(_, Err(Failure::Unknown { .. }))]));
}

#[test]
fn that_a_number_is_forgotten_proves_nothing_about_the_numbers_of_others() {
    let outcome = |request| {
        let write = Write::Add { key: "k".into(), delta: 1 };
        let keyspace = KeyspaceId::DEFAULT;
        let mut routing = with_one_sent(Command::Write { keyspace, write, request });
        let forgotten = Err(Failure::Refused(Refusal::RequestForgotten));
        let wire_id = routing.id_there(1);
        routing.answered(wire_id, forgotten, None, DEADLINE).expect("an answer").1
    };
    assert!(matches!(outcome(None), Err(Failure::Unknown { .. })));
    let client = ClientId(8);
    let request = RequestId { client, sequence: 1, acknowledged_below: 0 };
    let reported = Err(Failure::Refused(Refusal::RequestForgotten));
    assert_eq!(outcome(Some(request)), reported, "the client that numbered it can judge it");
}

#[test]
fn keys_of_several_tags_are_refused_and_may_have_been_written_before() {
    let request = Some(RequestId { client: ClientId(8), sequence: 1, acknowledged_below: 0 });
    let pairs = vec![("k{a}".into(), "1".into()), ("{a}".into(), "1".into())];
    let write = Write::PutMany { pairs, if_all_absent: false };
    let outcome = |is_lost: bool| {
        let keyspace = KeyspaceId::DEFAULT;
        let write = write.clone();
        let mut routing = with_one_sent(Command::Write { keyspace, write, request });
        if is_lost {
            routing.unanswered(|_, _, _| Contact::Lost, &mut Vec::new());
            routing.take_due(Duration::ZERO);
            assert!(routing.go_away(1, SiteId(3), NodeId(1), Duration::ZERO).is_some());
        }
        let wire_id = routing.id_there(1);
        let refused = Err(Failure::Refused(Refusal::CrossSlot));
        routing.answered(wire_id, refused, None, DEADLINE).expect("an answer").1
    };
    assert_eq!(outcome(false), Err(Failure::Refused(Refusal::CrossSlot)));
    assert!(matches!(outcome(true), Err(Failure::Unknown { .. })));
}

#[test]
fn what_may_be_repeated_is_sent_to_another_node() {
    let mut routing = with_one_sent(Command::Tick);
    let mut settled = Vec::new();
    let unanswered = routing.unanswered(|_, _, _| Contact::Overdue, &mut settled);
    assert_eq!((unanswered, settled.len()), ((vec![AT], BTreeSet::new()), 0));
    assert_eq!(routing.take_due(Duration::ZERO).len(), 1);
}

#[test]
fn a_late_answer_of_another_site_does_not_count() {
    let mut routing = with_one_sent(Command::Tick);
    let wire_id = routing.id_there(1);
    assert!(routing.is_with(wire_id, AT.0) && !routing.is_with(wire_id, SiteId(3)));
    routing.unanswered(|_, _, _| Contact::Overdue, &mut Vec::new());
    assert!(!routing.is_with(wire_id, AT.0), "it is to be looked at again");
    assert_eq!(routing.take_due(Duration::ZERO), [1]);
    assert!(routing.go_away(1, SiteId(3), NodeId(1), Duration::ZERO).is_some());
    assert!(routing.is_with(wire_id, SiteId(3)) && !routing.is_with(wire_id, AT.0));
}

#[test]
fn an_answer_that_is_held_measures_its_way() {
    let mut routing = Routing::new(ClientId(7));
    let slot = Slot::of_key(b"k");
    let query = model::Query::Get { key: "k".into() };
    let consistency = model::ReadConsistency::Linearizable;
    let body = Body::Read { keyspace: KeyspaceId::DEFAULT, query, consistency };
    let origin = Origin::client(Ticket(1));
    let id = routing.push(origin, body, Target::Slot(slot), DEADLINE).unwrap();
    assert_eq!(routing.take_due(Duration::ZERO), [id]);
    assert!(routing.go_away(id, AT.0, AT.1, Duration::ZERO).is_some());
    let (outcome, served) = (Ok(model::Answer::Value(None)), Default::default());
    let held = held_answers::HeldAnswer { outcome, served, leads: true, token: None };
    let [came, handed_out] = [40, 90].map(Duration::from_millis);
    assert!(routing.hold(routing.id_there(id), held, came).is_ok());
    assert!(routing.hand_out(id, handed_out).is_some());
    // Without the time for which it was held, and once.
    assert_eq!(routing.round_trips().known()[&AT.0].ms, 40.0);
}

/// What becomes of a request about a lent group, whose borrower does not answer, at its deadline.
fn late_at_borrower(body: Body, is_sent_again: bool) -> Failure {
    let mut routing = Routing::new(ClientId(7));
    let slot = Slot::of_key(b"k");
    let origin = Origin::client(Ticket(1));
    let id = routing.push(origin, body, Target::Slot(slot), DEADLINE).unwrap();
    let group = Group { keyspace: KeyspaceId::DEFAULT, tag: "k".into() };
    routing.note_group(id, Some(group));
    routing.take_due(Duration::ZERO);
    routing.note_borrower(id, true);
    assert!(routing.go_away(id, AT.0, AT.1, Duration::ZERO).is_some());
    if !is_sent_again {
        routing.unanswered(|_, _, _| Contact::Lost, &mut Vec::new());
    }
    let mut settled = Vec::new();
    routing.give_up(DEADLINE, |site| format!("name of {site}"), &mut settled);
    settled.pop().expect("it is late").1.unwrap_err()
}

#[test]
fn what_waits_for_a_borrower_names_it_at_its_deadline() {
    let slot = Slot::of_key(b"k");
    let keyspace = KeyspaceId::DEFAULT;
    let unreachable = Failure::BorrowerUnreachable { slot, borrower: "name of s2".into() };
    let read = Body::Read {
        keyspace,
        query: Query::Get { key: "k".into() },
        consistency: ReadConsistency::Linearizable,
    };
    let explain = Body::ExplainPlacement { keyspace, key: "k".into() };
    for body in [read, explain] {
        for is_sent_again in [true, false] {
            assert_eq!(late_at_borrower(body.clone(), is_sent_again), unreachable);
        }
    }
    let write = Write::Delete { keys: vec!["k".into()] };
    let write = Body::Write(Command::Write { keyspace, write, request: None });
    let Failure::Unknown { why } = late_at_borrower(write.clone(), true) else { panic!() };
    assert!(why.contains("lent"), "{why}");
    // It may have been done there.
    assert!(matches!(late_at_borrower(write, false), Failure::Unknown { .. }));
}

#[test]
fn a_node_that_did_not_answer_is_avoided_though_its_site_names_it() {
    let (mut routing, site, now) = (Routing::new(ClientId(7)), AT.0, DEADLINE);
    let nodes = [1, 2, 3].map(NodeId);
    let near = |routing: &Routing| routing.node_of(site, &nodes).map(|node| node.0);
    routing.learn_leader(site, NodeId(2), now);
    routing.avoid(site, NodeId(2), now);
    routing.fail_over_from(site, NodeId(2), &nodes, now);
    assert_eq!(near(&routing), Some(3));
    routing.learn_leader(site, NodeId(2), now);
    assert_eq!(near(&routing), Some(3), "the answer of another node names it");
    for (from, to) in [(3, 1), (1, 3), (2, 3)] {
        routing.fail_over_from(site, NodeId(from), &nodes, now);
        assert_eq!(near(&routing), Some(to), "from {from}");
    }
    routing.learn_leader(site, NodeId(2), now + AVOIDED);
    assert_eq!(near(&routing), Some(2), "it may be reached again");
    routing.avoid(site, NodeId(2), now + AVOIDED);
    routing.fail_over_from(site, NodeId(2), &nodes, now + AVOIDED);
    routing.note_contact(site, NodeId(2));
    routing.learn_leader(site, NodeId(2), now + AVOIDED);
    assert_eq!(near(&routing), Some(2), "it has sent something");
    // Where all are silent the next one is asked.
    nodes.iter().for_each(|node| routing.avoid(site, *node, now + AVOIDED));
    routing.fail_over_from(site, NodeId(2), &nodes, now + AVOIDED);
    assert_eq!(near(&routing), Some(3));
}

#[test]
fn a_node_that_is_of_no_use_is_left_for_one_that_may_be() {
    let (mut routing, site, now) = (Routing::new(ClientId(7)), AT.0, DEADLINE);
    let nodes = [1, 2, 3].map(NodeId);
    let near = |routing: &Routing| routing.node_of(site, &nodes).map(|node| node.0);
    // The second one leads, and did not answer once; the others pass nothing on to it.
    let leader = Some(NodeId(2));
    routing.learn_leader(site, NodeId(2), now);
    routing.avoid(site, NodeId(2), now);
    routing.fail_over_from(site, NodeId(2), &nodes, now);
    for (from, to) in [(3, 1), (1, 2)] {
        routing.turn_from((site, NodeId(from)), leader, &nodes, now);
        assert_eq!(near(&routing), Some(to), "from {from}");
    }
    // The only one that answers, and that knows no leader for the moment.
    routing.avoid(site, NodeId(2), now);
    routing.fail_over_from(site, NodeId(2), &nodes, now);
    assert_eq!(near(&routing), Some(3));
    routing.turn_from((site, NodeId(3)), None, &nodes, now);
    assert_eq!(near(&routing), Some(3), "it stays");
}

#[test]
fn a_request_is_taken_back_unless_it_may_have_been_done() {
    let write = Write::Add { key: "k".into(), delta: 1 };
    let command = Command::Write { keyspace: KeyspaceId::DEFAULT, write, request: None };
    let mut routing = with_one_sent(command.clone());
    // That site does not serve: the request rests.
    let wire_id = routing.id_there(1);
    let refused = Err(Failure::NotServing("its site is in no region"));
    assert_eq!(routing.answered(wire_id, refused, None, Duration::ZERO), None);
    let back = routing.take_back(1);
    assert_eq!(back, Some((Origin::client(Ticket(1)), Body::Write(command.clone()), DEADLINE)));
    assert!(routing.is_idle());
    let mut routing = with_one_sent(command);
    routing.unanswered(|_, _, _| Contact::Lost, &mut Vec::new());
    assert_eq!(routing.take_back(1), None);
}
