//! Which reads pass the core, and what becomes of those without an answer.

use super::*;
use model::{Answer, Ballot, Command, Keyspace, KeyspaceSpec, Scope, Write};

const CARS: KeyspaceId = KeyspaceId(1);
const PLACE: (SiteId, NodeId) = (SiteId(2), NodeId(1));

fn catalog(cache: Cache) -> Catalog {
    let spec = KeyspaceSpec::linearizable_site("cars", "car:");
    let spec = KeyspaceSpec { scope: Scope::Global, cache, ..spec };
    Catalog::new(vec![Keyspace { id: CARS, spec }])
}

fn get(key: &'static str) -> Request {
    let query = Query::Get { key: key.into() };
    Request::read(CARS, query, ReadConsistency::Linearizable)
}

fn routes_to(key: &str) -> Routes {
    let routes = Routes::default();
    routes.set(Slot::of_key(key.as_bytes()), PLACE.0, PLACE.1);
    routes
}

fn routed(key: &str) -> ProxyReads {
    ProxyReads::new(ClientId(u64::MAX), Arc::new(routes_to(key)))
}

fn send(reads: &mut ProxyReads, at_ms: u64, ticket: u64, request: Request) -> u64 {
    let mut requests = vec![(Ticket(ticket), request)];
    let now = Duration::from_millis(at_ms);
    let sent = reads.take((now, ReadGate::Open), &mut requests, &catalog(Cache::Off), |_, _| false);
    sent[&PLACE][0].id
}

/// How many of some requests of one call go reads.
fn sent(requests: &[Request], cache: Cache, routes: Routes) -> usize {
    sent_by(ReadGate::Open, requests, catalog(cache), routes)
}

fn sent_by(gate: ReadGate, requests: &[Request], catalog: Catalog, routes: Routes) -> usize {
    let mut all: Vec<_> = requests.iter().map(|one| (Ticket(1), one.clone())).collect();
    let mut reads = ProxyReads::new(ClientId(1), Arc::new(routes));
    let sent = reads.take((Duration::ZERO, gate), &mut all, &catalog, |a, b| a == b);
    let sent = sent.values().map(Vec::len).sum();
    assert_eq!(sent + all.len(), requests.len());
    sent
}

#[test]
fn only_calls_of_plain_reads_with_a_route_pass_the_core() {
    assert_eq!(sent(&[get("a"), get("a")], Cache::Off, routes_to("a")), 2);
    assert_eq!(sent(&[get("a"), get("b")], Cache::Off, routes_to("a")), 0);
    let redirect = Request { redirect: true, ..get("a") };
    assert_eq!(sent(&[redirect], Cache::Off, routes_to("a")), 0);
    let hurried = Request { deadline_ms: Some(1_000), ..get("a") };
    assert_eq!(sent(&[hurried], Cache::Off, routes_to("a")), 0);
    let copied = Cache::Validated { bytes_max: 1 << 20 };
    assert_eq!(sent(&[get("a")], copied, routes_to("a")), 0);
    let write = Write::Take { key: "a".into() };
    let write = Request::write(Command::Write { keyspace: CARS, write, request: None });
    assert_eq!(sent(&[get("a"), write], Cache::Off, routes_to("a")), 0);
    let routes = routes_to("a");
    routes.forget_all();
    assert_eq!(sent(&[get("a")], Cache::Off, routes), 0);
}

#[test]
fn only_a_node_that_knows_all_of_its_site_sends_reads_itself() {
    let by = |gate, lease_reads| {
        let mut keyspace = catalog(Cache::Off).by_id(CARS).unwrap().clone();
        keyspace.spec.lease_reads = lease_reads;
        sent_by(gate, &[get("a")], Catalog::new(vec![keyspace]), routes_to("a"))
    };
    let lease = ReadGate::Lease(Duration::from_millis(1));
    assert_eq!([by(ReadGate::Open, false), by(lease, true)], [1, 1]);
    assert_eq!([by(lease, false), by(ReadGate::Stale, true)], [0, 0]);
    assert_eq!(by(ReadGate::Lease(Duration::ZERO), true), 0, "it has run out");
}

fn answers(id: u64, outcome: &Outcome) -> InterSiteAnswers {
    let outcome = entry::encode_reply(outcome);
    let answer = InterSiteAnswer { id, outcome, ..InterSiteAnswer::default() };
    let of_core = InterSiteAnswer { id: 7, ..InterSiteAnswer::default() };
    InterSiteAnswers { answers: vec![of_core, answer], leader: 1 }
}

#[test]
fn an_answer_is_handed_out_once_and_a_core_keeps_its_own() {
    let mut reads = routed("a");
    let id = send(&mut reads, 0, 3, get("a"));
    let outcome = Ok(Answer::Integer(1));
    for expected in [vec![Came::Answer(Ticket(3), outcome.clone())], vec![]] {
        let (mut said, mut came) = (answers(id, &outcome), Vec::new());
        assert!(reads.answered(Duration::ZERO, NodeId(1), &mut said, &mut came));
        assert_eq!(came, expected);
        assert_eq!(said.answers.len(), 1, "the core's own");
    }
    assert_eq!((reads.answered, reads.came_back, reads.deadline()), (1, 0, None));
}

#[test]
fn a_core_hears_who_leads() {
    let mut reads = routed("a");
    for (leader, is_left) in [(0, false), (1, false), (2, true)] {
        let id = send(&mut reads, 0, 3, get("a"));
        let mut said = answers(id, &Ok(Answer::Integer(1)));
        said.answers.remove(0);
        said.leader = leader;
        let left = reads.answered(Duration::ZERO, NodeId(1), &mut said, &mut Vec::new());
        assert_eq!(left, is_left, "leader {leader}");
    }
}

#[test]
fn a_read_whose_slot_has_moved_goes_to_the_core_with_the_time_that_is_left() {
    let mut reads = routed("a");
    let request = Request { deadline_ms: Some(5_000), ..get("a") };
    let id = send(&mut reads, 0, 3, request);
    let slot = Slot::of_key(b"a");
    let moved = Err(Failure::Refused(Refusal::NotHeld(slot)));
    let (now, mut came) = (Duration::from_millis(200), Vec::new());
    reads.answered(now, NodeId(1), &mut answers(id, &moved), &mut came);
    let left = Request { deadline_ms: Some(4_800), ..get("a") };
    let reported = Moved { slot, by: PLACE.0, owner: (SiteId(0), Epoch::counted(0)) };
    assert_eq!(came, [Came::Moved(reported), Came::Back(Ticket(3), left)]);
    assert_eq!(reads.routes().of(slot), None, "no other read goes there");
}

#[test]
fn what_a_silent_or_lost_node_was_asked_comes_back() {
    let mut reads = routed("a");
    send(&mut reads, 0, 1, get("a"));
    send(&mut reads, 600, 2, get("a"));
    let mut came = Vec::new();
    reads.fail_over_from_silent(TIMEOUT - Duration::from_millis(1), &mut came);
    assert_eq!(came, []);
    reads.fail_over_from_silent(TIMEOUT, &mut came);
    assert!(matches!(came[..], [Came::Back(Ticket(1), _)]));
    reads.lost(TIMEOUT, (SiteId(2), NodeId(2)), &mut came);
    assert_eq!(came.len(), 1, "another node was lost");
    reads.lost(TIMEOUT, PLACE, &mut came);
    assert!(matches!(came[..], [_, Came::Back(Ticket(2), _)]));
}

#[test]
fn reads_behind_a_write_wait_for_the_core() {
    let write = Write::Take { key: "a".into() };
    let write = Request::write(Command::Write { keyspace: CARS, write, request: None });
    let forwarded = |id, request: &Request| ForwardedRequest {
        id,
        request: entry::encode_request(request),
        ..ForwardedRequest::default()
    };
    let all = [(1, get("a")), (2, write), (3, get("a"))];
    let mut requests: Vec<_> = all.iter().map(|(id, one)| forwarded(*id, one)).collect();
    let mut asked = 0;
    let answers = answer_reads(&mut requests, |_, _, _, _| {
        asked += 1;
        let failover = Ballot { round: 3, ..Ballot::FIRST };
        Some((Ok(Answer::Integer(1)), ServedUnder { failover, borrowed: true }))
    });
    assert!(answers[0].served.is_some(), "or the requester takes it for a stale owner's");
    assert!(answers[0].borrowed, "or the requester does not look for a failover of the borrower");
    let ids = |all: &[u64]| all.to_vec();
    assert_eq!(answers.iter().map(|one| one.id).collect::<Vec<_>>(), ids(&[1]));
    assert_eq!(requests.iter().map(|one| one.id).collect::<Vec<_>>(), ids(&[2, 3]));
    assert_eq!(asked, 1);
    let none = answer_reads(&mut requests.split_off(1), |_, _, _, _| None);
    assert_eq!(none, []);
}
