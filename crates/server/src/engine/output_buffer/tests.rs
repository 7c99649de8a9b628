//! When outputs leave, and which answers waiting requests get.

use super::*;
use model::{
    Answer, Body, Bytes, Command, KeyspaceId, NodeId, OperatorCommand, Query, ReadConsistency,
};
use protocol::replica::raft::Role;
use storage::state::memory::MemoryState;
use storage::state::{Batch, State as _};

use super::super::recording::Recorded;

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    buffer: OutputBuffer<()>,
    rounds: mpsc::Receiver<Changes>,
    state: Recorded<MemoryState>,
}

fn bench() -> Bench {
    let recorder = Arc::new(Recorder::default());
    let state = Recorded::recording(MemoryState::new(), recorder.clone());
    let (sender, rounds) = mpsc::channel();
    Bench { buffer: OutputBuffer::new(recorder, sender), rounds, state }
}

impl Bench {
    fn change(&self, key: &'static str) {
        let mut batch = Batch::default();
        batch.put(key, Bytes::from_static(b"value"));
        self.state.commit(batch).unwrap();
    }

    /// The core answers; whether it may leave now.
    fn answer(&mut self, ticket: Ticket, number: i64) -> bool {
        let outcome = Ok(Answer::Integer(number));
        self.buffer.take(Output::Answer { ticket, outcome, token: None }).is_some()
    }

    fn begin(&mut self) {
        self.buffer.begin_round(Duration::ZERO, status);
    }

    /// The answers that leave with the round on its way.
    fn released(&mut self) -> Vec<(u64, i64)> {
        let outputs = self.buffer.release().map(|released| released.outputs);
        let answer = |output| match output {
            Output::Answer { ticket, outcome: Ok(Answer::Integer(number)), .. } => {
                Some((ticket.0, number))
            }
            _ => None,
        };
        outputs.into_iter().flatten().filter_map(answer).collect()
    }
}

fn status() -> Status {
    Status {
        jobs: Vec::new(),
        node: NodeId(1),
        role: Role::Leader,
        as_of: Duration::ZERO,
        witness: false,
        leader: Some(NodeId(1)),
        term: 1,
        last_index: 0,
        committed_index: 0,
        applied_index: 0,
        revision: model::Revision(0),
        snapshot_index: 0,
        first_index: 0,
        members: wire::peer::Members::default(),
        progress: Vec::new(),
        writes_waiting: 0,
        writes_in_flight: 0,
        reads_waiting: 0,
        forwarded: 0,
        routed: 0,
        routed_direct: (0, 0),
        sessions: 0,
        copies: Default::default(),
        ring_lookups: (0, 0),
        ring_pointers: 0,
        deployment: None,
        failovers_known: Vec::new(),
        shares: Vec::new(),
        moves: Vec::new(),
        handed_over: Default::default(),
        mirror: None,
        mirrors_kept: Vec::new(),
        placement: None,
        disk_full: None,
        ready: true,
    }
}

fn write() -> Request {
    Request::write(Command::ClearAll)
}

fn read() -> Request {
    Request::read(KeyspaceId::DEFAULT, Query::Count, ReadConsistency::Linearizable)
}

#[test]
fn an_answer_leaves_with_the_round_that_began_after_it_was_asked_for() {
    let mut bench = bench();
    let first = bench.buffer.admit(Duration::ZERO, Ticket(70), &write()).unwrap();
    bench.change("a");
    assert!(!bench.answer(first, 1));
    bench.begin();
    assert_eq!(bench.rounds.try_recv().unwrap().len(), 1);
    // This one comes while that round is on its way: its look at the lock may be over already.
    let second = bench.buffer.admit(Duration::ZERO, Ticket(71), &read()).unwrap();
    assert!(!bench.answer(second, 2));
    bench.begin();
    assert!(bench.rounds.try_recv().is_err(), "one round at a time");
    assert_eq!(bench.released(), [(70, 1)]);
    assert!(!bench.buffer.is_even());
    bench.begin();
    assert_eq!(
        bench.rounds.try_recv().unwrap(),
        Changes::new(),
        "nothing changed, but it is asked"
    );
    assert_eq!(bench.released(), [(71, 2)]);
    assert!(bench.buffer.is_even());
    bench.begin();
    assert!(bench.rounds.try_recv().is_err(), "nothing waits");
}

#[test]
fn a_late_request_fails_once_and_none_gets_the_answer_of_another() {
    let mut bench = bench();
    let asked = [(1, write()), (2, read())].map(|(ticket, request)| {
        let request = Request { deadline_ms: Some(1_000), ..request };
        bench.buffer.admit(Duration::ZERO, Ticket(ticket), &request).unwrap()
    });
    for (nth, ticket) in asked.into_iter().enumerate() {
        bench.answer(ticket, nth as i64);
    }
    bench.begin();
    assert_eq!(bench.buffer.late(SECOND / 2), []);
    assert_eq!(bench.buffer.next_due(), Some(SECOND));
    let late = bench.buffer.late(SECOND);
    assert!(matches!(late[0], (Ticket(1), Err(Failure::Unknown { .. }))), "{late:?}");
    assert_eq!(late[1], (Ticket(2), Err(Failure::NoLeader)));
    // The same tickets again: their calls were over.
    let again = bench.buffer.admit(SECOND, Ticket(1), &write()).unwrap();
    assert_eq!(bench.released(), []);
    bench.answer(again, 7);
    bench.begin();
    assert_eq!(bench.released(), [(1, 7)]);
}

#[test]
fn when_the_site_is_lost_all_waiting_requests_fail() {
    let mut bench = bench();
    let first = bench.buffer.admit(Duration::ZERO, Ticket(1), &write()).unwrap();
    bench.answer(first, 1);
    bench.begin();
    bench.buffer.admit(Duration::ZERO, Ticket(2), &write()).unwrap();
    let late = bench.buffer.end();
    assert_eq!(late.len(), 2);
    assert!(late.iter().all(|(_, late)| matches!(late, Err(Failure::Unknown { .. }))));
    assert_eq!(bench.released(), []);
}

#[test]
fn fronts_read_stale_at_the_most() {
    let mut buffer = bench().buffer;
    let lease = ReadGate::Lease(SECOND);
    for (gate, left) in [
        (ReadGate::Open, ReadGate::Stale),
        (lease, ReadGate::Stale),
        (ReadGate::Stale, ReadGate::Stale),
        (ReadGate::Closed, ReadGate::Closed),
    ] {
        let out = buffer.take(Output::Gate(gate));
        assert!(matches!(out, Some(Output::Gate(out)) if out == left), "{gate:?}");
    }
}

#[test]
fn other_nodes_are_refused_and_what_waits_has_a_limit() {
    let mut bench = bench();
    let remove = OperatorCommand::RemoveNode { node: NodeId(1), force: false, id: None };
    let request = Request { body: Body::Operator(remove), ..read() };
    assert_eq!(bench.buffer.admit(Duration::ZERO, Ticket(1), &request), None);
    let failure = Failure::Membership(MembershipError::KeptInEtcd);
    assert_eq!(bench.buffer.late(Duration::ZERO), [(Ticket(1), Err(failure))]);
    for ticket in 0..limits::ETCD_ANSWERS_WAITING_MAX as u64 {
        bench.buffer.admit(Duration::ZERO, Ticket(ticket), &write()).unwrap();
    }
    assert_eq!(bench.buffer.admit(Duration::ZERO, Ticket(1), &write()), None);
    let late = bench.buffer.late(Duration::ZERO);
    assert!(matches!(late[..], [(_, Err(Failure::Overloaded { .. }))]), "{late:?}");
}
