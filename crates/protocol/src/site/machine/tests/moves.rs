//! Slots that move: two sites' machines, and what passes between them.

use super::super::global::copying::Position;
use super::super::global::tokens::Token;
use super::*;
use crate::bugs::Planted;
use crate::global::handover::Handovers;
use crate::job::{Effect, Job as _};
use model::{
    ClientId, DeploymentId, DestinationStep, Epoch, Failure, KeyspaceSpec, MoveError, MoveId,
    Registry, RegistryChange, Slot, SlotEpochs, SlotSet, SourceStep,
};
use wire::row;

const CARS: KeyspaceId = KeyspaceId(1);
pub(super) const A: SiteId = SiteId(1);
pub(super) const B: SiteId = SiteId(2);

impl Site {
    fn registry(&self) -> Box<Registry> {
        Box::new((*self.machine.membership().unwrap().registry).clone())
    }

    fn put_global(&mut self, key: &'static str, value: &'static str) -> Result<Answer, Refusal> {
        self.write_in(CARS, put(key, value))
    }

    fn global(&self, key: &'static str) -> Result<Option<String>, Refusal> {
        let answer = self.ask_in(CARS, Query::Get { key: key.into() })?;
        let Answer::Value(value) = answer else { panic!("{answer:?}") };
        Ok(value.map(|found| String::from_utf8(found.value.to_vec()).unwrap()))
    }

    fn begin_move(&mut self, slots: &SlotSet) -> u64 {
        let begin = SourceStep::Begin { slots: slots.clone(), to: B, pinned: false };
        match self.run(Command::Global(GlobalCommand::Source { number: 0, step: begin })).unwrap() {
            Answer::Done(number) => number.0,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn give(&mut self, number: u64, step: SourceStep) -> Result<Answer, Refusal> {
        self.run(Command::Global(GlobalCommand::Source { number, step }))
    }

    fn receive(&mut self, number: u64, step: DestinationStep) -> Result<Answer, Refusal> {
        self.run(Command::Global(GlobalCommand::Destination {
            id: MoveId { from: A, number },
            step,
        }))
    }
}

/// Two sites of one deployment with a global keyspace, of which the first holds all slots.
pub(super) fn two_sites() -> (Site, Site) {
    let (mut a, mut b) = (Site::new(), Site::new());
    let deployment = DeploymentId(7);
    a.run(Command::Deployment(DeploymentCommand::Found { deployment, site: entry("a") })).unwrap();
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    a.run(Command::CreateKeyspace(spec)).unwrap();
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("b")))))
        .unwrap();
    b.run(Command::Deployment(DeploymentCommand::Enter { site: B, registry: a.registry() }))
        .unwrap();
    (a, b)
}

/// A move under way, driven by hand.
struct Moving {
    number: u64,
    at: Position,
    sequence: u64,
}

impl Moving {
    fn begin(a: &mut Site, b: &mut Site, slots: &SlotSet) -> Moving {
        let number = a.begin_move(slots);
        let one = a.machine.outgoing()[&number].clone();
        let epochs = a.machine.epochs_to_give(number, &one);
        b.receive(
            number,
            DestinationStep::Begin { slots: epochs, open_from: number, pinned: false },
        )
        .unwrap();
        Moving { number, at: Position::first(&one), sequence: 0 }
    }

    /// Sends the destination all there is to send now.
    fn report(&mut self, a: &Site, b: &mut Site) {
        loop {
            let one = a.machine.outgoing()[&self.number].clone();
            let chunk = a.machine.chunk(self.number, &one, &self.at).unwrap();
            if chunk.items.is_empty() && chunk.next == self.at {
                return;
            }
            let resume = row::encode(&chunk.next).into();
            assert_eq!(row::decode(&resume), Some(chunk.next.clone()));
            let step =
                DestinationStep::Chunk { sequence: self.sequence, resume, items: chunk.items };
            // Twice: the second one changes nothing.
            b.receive(self.number, step.clone()).unwrap();
            self.sequence += 1;
            let answer = b.receive(self.number, step).unwrap();
            assert!(matches!(answer, Answer::Staged { chunks, .. } if chunks == self.sequence));
            self.at = chunk.next;
        }
    }

    fn install(&self, a: &Site) -> DestinationStep {
        DestinationStep::Install { chunks: self.sequence, revision: a.machine.revision() }
    }
}

fn slot(key: &str) -> Slot {
    Slot::of_key(key.as_bytes())
}

#[test]
fn a_global_keyspace_needs_a_deployment_and_keys_of_one_slot() {
    let mut alone = Site::new();
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    assert_eq!(alone.run(Command::CreateKeyspace(spec)), Err(Refusal::NoDeployment));
    let (mut a, mut b) = two_sites();
    a.put_global("x", "1").unwrap();
    assert_eq!(a.global("x"), Ok(Some("1".into())));
    assert_eq!(b.put_global("x", "2"), Err(Refusal::NotHeld(slot("x"))));
    assert_eq!(b.global("x"), Err(Refusal::NotHeld(slot("x"))));
    let both = Write::Delete { keys: vec!["x".into(), "y".into()] };
    assert_eq!(a.write_in(CARS, both), Err(Refusal::CrossSlot));
    let spec = KeyspaceSpec::linearizable_site("own", "own:");
    let not_here = Err(NOT_ALONE);
    assert_eq!(b.run(Command::CreateKeyspace(spec)), not_here);
}

/// Clients have all the cursors that they may have.
#[test]
fn a_move_begins_whole_whatever_cursors_there_are() {
    let (mut a, mut b) = two_sites();
    a.put_global("x", "1").unwrap();
    let cursors = (0..model::limits::CURSORS_MAX).map(|number| Command::SetCursor {
        name: number.to_string(),
        keyspace: CARS,
        position: Revision(0),
    });
    a.entry_unchecked(cursors.collect());
    let slots = [slot("x")].into_iter().collect();
    let moving = Moving::begin(&mut a, &mut b, &slots);
    assert_eq!(a.machine.outgoing().len(), 1);
    assert!(matches!(a.machine.token(slot("x")), Token::Leaving { .. }));
    drop(moving);
}

/// The destination learns that while the slots are on their way: nothing is left of it.
#[test]
fn a_keyspace_that_is_dropped_on_the_way_leaves_nothing() {
    let (mut a, mut b) = two_sites();
    a.put_global("x", "1").unwrap();
    let slots = [slot("x")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    moving.report(&a, &mut b);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    moving.report(&a, &mut b);
    let mut registry = a.registry();
    registry.keyspaces.clear();
    registry.version.round += 1;
    b.run(Command::Deployment(DeploymentCommand::LearnRegistry(registry))).unwrap();
    assert_eq!(b.receive(moving.number, moving.install(&a)), Ok(Answer::Installed));
    b.reopen();
    for _ in 0..3 {
        b.tick();
    }
}

#[test]
fn slots_pass_on_with_all_they_hold() {
    let (mut a, mut b) = two_sites();
    for key in ["x{t}", "y{t}", "z{t}", "elsewhere"] {
        a.put_global(key, "old").unwrap();
    }
    let timed = put_with("timed{t}", "t", Condition::Always, Expiry::AtMs(5_000));
    a.write_in(CARS, timed).unwrap();
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    moving.report(&a, &mut b);
    // Still served by the source; what changes follows.
    a.put_global("y{t}", "new").unwrap();
    a.write_in(CARS, Write::Delete { keys: vec!["z{t}".into()] }).unwrap();
    assert!(b.global("x{t}").is_err(), "staged is not served");
    moving.report(&a, &mut b);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    assert_eq!(a.put_global("x{t}", "late"), Err(Refusal::NotHeld(slot("t"))));
    assert_eq!(a.global("x{t}"), Err(Refusal::NotHeld(slot("t"))));
    assert_eq!(a.put_global("elsewhere", "still"), Ok(a.ask_put("elsewhere")));
    moving.report(&a, &mut b);
    let frozen = a.machine.outgoing()[&moving.number].frozen.unwrap();
    assert!(a.machine.is_sent(moving.number, &moving.at, frozen));
    assert_eq!(b.receive(moving.number, moving.install(&a)), Ok(Answer::Installed));
    assert_eq!(b.receive(moving.number, moving.install(&a)), Ok(Answer::Installed), "again");
    a.give(moving.number, SourceStep::Release).unwrap();
    assert_eq!(b.global("x{t}"), Ok(Some("old".into())));
    assert_eq!(b.global("y{t}"), Ok(Some("new".into())));
    assert_eq!(b.global("z{t}"), Ok(None));
    assert_eq!(b.machine.reader().in_slot(CARS, slot("t"), 9).unwrap().0, 3);
    assert_eq!(a.machine.token(slot("t")), Token::Gone { epoch: Epoch::counted(2), to: B });
    assert_eq!(b.machine.token(slot("t")), Token::Held(Epoch::counted(2)));
    assert_eq!(a.machine.owner(slot("t")), Some((B, Epoch::counted(2))));
    assert_eq!(a.machine.reader().count(CARS).unwrap(), 1);
    b.now_ms = 6_000;
    b.tick();
    assert_eq!(b.machine.reader().count(CARS).unwrap(), 2, "expired at its time");
    for _ in 0..3 {
        a.tick();
    }
    assert_eq!(a.rows(tables::GARBAGE), 0);
    assert_eq!((a.rows(tables::CURSORS), a.rows(tables::SOURCE)), (0, 0));
    assert_eq!((b.rows(tables::STAGED), b.rows(tables::ARRIVALS)), (0, 0));
    a.reopen();
    b.reopen();
    check_state(a.machine.state());
}

impl Site {
    /// What a put of the last revision is answered.
    fn ask_put(&self, _key: &str) -> Answer {
        Answer::Put { applied: true, version: self.machine.revision(), old: None }
    }
}

#[test]
fn a_repeated_request_is_known_to_the_next_holder() {
    let (mut a, mut b) = two_sites();
    let add = |sequence| Command::Write {
        keyspace: CARS,
        write: Write::Add { key: "n{t}".into(), delta: 1 },
        request: Some(RequestId { client: ClientId(9), sequence, acknowledged_below: 1 }),
    };
    assert_eq!(a.run(add(1)), Ok(Answer::Integer(1)));
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    moving.report(&a, &mut b);
    assert_eq!(a.run(add(2)), Ok(Answer::Integer(2)));
    a.give(moving.number, SourceStep::Freeze).unwrap();
    moving.report(&a, &mut b);
    b.receive(moving.number, moving.install(&a)).unwrap();
    assert_eq!(a.run(add(2)), Err(Refusal::NotHeld(slot("t"))), "not known here any more");
    assert_eq!(b.run(add(2)), Ok(Answer::Integer(2)), "known there");
    assert_eq!(b.run(add(1)), Ok(Answer::Integer(1)));
    assert_eq!(b.run(add(3)), Ok(Answer::Integer(3)));
    b.reopen();
    assert_eq!(b.run(add(3)), Ok(Answer::Integer(3)));
}

#[test]
fn versions_never_go_back_over_a_move() {
    let (mut a, mut b) = two_sites();
    for _ in 0..50 {
        a.put_global("x{t}", "v").unwrap();
    }
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    moving.report(&a, &mut b);
    b.receive(moving.number, moving.install(&a)).unwrap();
    let before = a.machine.revision();
    let Ok(Answer::Put { version, .. }) = b.put_global("x{t}", "w") else { panic!("not put") };
    assert!(version > before, "{version} after {before}");
}

#[test]
fn a_refused_move_is_refused_for_ever_and_its_slots_are_taken_back() {
    let (mut a, mut b) = two_sites();
    a.put_global("x{t}", "v").unwrap();
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    moving.report(&a, &mut b);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    let install = moving.install(&a);
    b.receive(moving.number, DestinationStep::Refuse).unwrap();
    let refused = Err(Refusal::Move(MoveError::Refused));
    assert_eq!(b.receive(moving.number, install), refused);
    let again = DestinationStep::Begin {
        slots: SlotEpochs::default(),
        open_from: moving.number,
        pinned: false,
    };
    assert_eq!(b.receive(moving.number, again), refused);
    let not_yet = a.give(moving.number, SourceStep::Abort { refused: false });
    assert!(not_yet.is_err(), "frozen: the destination may have installed it");
    a.give(moving.number, SourceStep::Abort { refused: true }).unwrap();
    assert_eq!(a.global("x{t}"), Ok(Some("v".into())));
    let again = Token::Held(Epoch::counted(2));
    assert_eq!(a.machine.token(slot("t")), again, "a late install finds the epoch taken");
    // Another one goes through, and what the first one brought is not in its way.
    let mut second = Moving::begin(&mut a, &mut b, &slots);
    a.give(second.number, SourceStep::Freeze).unwrap();
    second.report(&a, &mut b);
    b.receive(second.number, second.install(&a)).unwrap();
    a.give(second.number, SourceStep::Release).unwrap();
    assert_eq!(b.global("x{t}"), Ok(Some("v".into())));
    b.tick();
    assert_eq!(b.rows(tables::GARBAGE), 0);
    assert!(b.rows(tables::SETTLED) <= 2, "what lies behind the source's floor is forgotten");
}

#[test]
fn what_a_receiver_declines_by_itself_says_nothing_of_the_owner() {
    let (mut a, mut b) = two_sites();
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let moving = Moving::begin(&mut a, &mut b, &slots);
    a.give(moving.number, SourceStep::Abort { refused: false }).unwrap();
    // A may give the slot to another site now, at the same epoch.
    let before = b.machine.token(slot("t"));
    b.receive(moving.number, DestinationStep::Decline).unwrap();
    assert_eq!(b.machine.token(slot("t")), before);
    assert!(
        b.receive(moving.number, DestinationStep::Refuse).is_ok(),
        "the source may ask all the same"
    );
    let again = DestinationStep::Begin {
        slots: SlotEpochs::default(),
        open_from: moving.number,
        pinned: false,
    };
    assert_eq!(b.receive(moving.number, again), Err(Refusal::Move(MoveError::Refused)));
}

#[test]
fn an_install_that_came_is_not_refused_any_more() {
    let (mut a, mut b) = two_sites();
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    moving.report(&a, &mut b);
    b.receive(moving.number, moving.install(&a)).unwrap();
    assert_eq!(b.receive(moving.number, DestinationStep::Refuse), Ok(Answer::Installed));
    assert_eq!(b.machine.token(slot("t")), Token::Held(Epoch::counted(2)));
}

/// The source's leader is lost while its chunks are on their way. The next one asks what has come
/// and goes on from there; it may cut chunks elsewhere, as keys have come or gone since.
#[test]
fn pieces_of_an_earlier_leader_do_not_come_between() {
    let (mut a, mut b) = two_sites();
    a.put_global("x{t}", "v").unwrap();
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    let one = a.machine.outgoing()[&moving.number].clone();
    let chunk = a.machine.chunk(moving.number, &one, &moving.at).unwrap();
    let late = |sequence| DestinationStep::Chunk {
        sequence,
        resume: row::encode(&chunk.next).into(),
        items: chunk.items.clone(),
    };
    let epochs = a.machine.epochs_to_give(moving.number, &one);
    let ask = DestinationStep::Begin { slots: epochs, open_from: moving.number, pinned: false };
    let Ok(Answer::Staged { chunks, resume }) = b.receive(moving.number, ask.clone()) else {
        panic!("it is under way")
    };
    assert_eq!(row::decode::<Position>(&resume), None, "nothing has come");
    for sequence in 0..3 {
        let taken = b.receive(moving.number, late(sequence));
        let nothing = Answer::Staged { chunks, resume: resume.clone() };
        assert_eq!(taken, Ok(nothing), "chunk {sequence} of the earlier leader");
    }
    assert_eq!(b.rows(tables::STAGED), 0);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    let early = moving.install(&a);
    assert!(b.receive(moving.number, early).is_err(), "by the earlier leader's count");
    moving.sequence = chunks;
    moving.report(&a, &mut b);
    // It is known after a restart, too.
    b.reopen();
    assert_eq!(b.receive(moving.number, moving.install(&a)), Ok(Answer::Installed));
    assert_eq!(b.global("x{t}"), Ok(Some("v".into())));
}

#[test]
fn what_is_not_a_sites_own_is_not_its_to_give() {
    let (mut a, mut b) = two_sites();
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let begin = |to| {
        Command::Global(GlobalCommand::Source {
            number: 0,
            step: SourceStep::Begin { slots: slots.clone(), to, pinned: false },
        })
    };
    let not_held = Refusal::Move(MoveError::NotHeld);
    assert_eq!(b.run(begin(A)), Err(not_held.clone()));
    assert_eq!(a.run(begin(A)), Err(Refusal::Move(MoveError::NoDestination)));
    assert_eq!(a.run(begin(SiteId(9))), Err(Refusal::Move(MoveError::NoDestination)));
    a.run(begin(B)).unwrap();
    assert_eq!(a.run(begin(B)), Err(not_held));
    assert_eq!(a.give(77, SourceStep::Freeze), Err(Refusal::Move(MoveError::NoMove(77))));
    // A move that nothing was frozen for cannot be released.
    let number = *a.machine.outgoing().keys().next().unwrap();
    assert!(a.give(number, SourceStep::Release).is_err());
}

#[test]
fn keyspaces_follow_the_registry() {
    let (mut a, mut b) = two_sites();
    let spec = KeyspaceSpec::linearizable_site("own", "own:");
    a.run(Command::CreateKeyspace(spec)).unwrap();
    b.run(Command::Deployment(DeploymentCommand::LearnRegistry(a.registry()))).unwrap();
    let id = b.machine.reader().catalog().by_name("own").unwrap().id;
    assert_eq!(Some(id), a.machine.reader().catalog().by_name("own").map(|found| found.id));
    b.write_in(id, put("own:1", "v")).unwrap();
    a.run(Command::DropKeyspace { name: "own".into() }).unwrap();
    let old = b.registry();
    b.run(Command::Deployment(DeploymentCommand::LearnRegistry(a.registry()))).unwrap();
    assert!(b.machine.reader().catalog().by_name("own").is_none());
    b.run(Command::Deployment(DeploymentCommand::LearnRegistry(old))).unwrap();
    assert!(b.machine.reader().catalog().by_name("own").is_none(), "an older one changes nothing");
    let other = Registry { deployment: DeploymentId(8), ..*a.registry() };
    assert_eq!(
        b.run(Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(other)))),
        Err(Refusal::NoDeployment)
    );
    b.reopen();
    assert_eq!(b.machine.membership().unwrap().own, B);
}

#[test]
fn a_scan_goes_through_the_slots_that_are_served() {
    let (mut a, mut b) = two_sites();
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    for key in keys {
        a.put_global(key, "v").unwrap();
    }
    let slots: SlotSet = [slot("c")].into_iter().collect();
    let mut moving = Moving::begin(&mut a, &mut b, &slots);
    a.give(moving.number, SourceStep::Freeze).unwrap();
    moving.report(&a, &mut b);
    b.receive(moving.number, moving.install(&a)).unwrap();
    a.give(moving.number, SourceStep::Release).unwrap();
    for examine_max in [1, 2, 3, 100] {
        let (mut from, mut found) = (Bytes::new(), Vec::new());
        loop {
            let query = Query::Scan {
                from,
                until: None,
                examine_max,
                filter: model::ScanFilter::default(),
                with_values: false,
            };
            let Answer::Page { items, next } = a.ask_in(CARS, query).unwrap() else { panic!() };
            found.extend(items.into_iter().map(|item| item.key));
            match next {
                Some(key) => from = key,
                None => break,
            }
        }
        found.sort();
        let expected: Vec<_> =
            keys.iter().filter(|key| **key != "c").map(|k| Bytes::from(*k)).collect();
        assert_eq!(found, expected, "{examine_max} at a time");
    }
    assert_eq!(a.ask_in(CARS, Query::Count), Ok(Answer::Integer(6)));
}

#[test]
fn a_slot_takes_the_time_that_is_left_along_and_not_the_time() {
    const HOURS_MS: u64 = 6 * 3_600_000;
    for (a_ms, b_ms) in [(HOURS_MS, 2_000), (2_000, HOURS_MS)] {
        let (mut a, mut b) = two_sites();
        (a.now_ms, b.now_ms) = (a_ms, b_ms);
        let lock = put_with("lock{t}", "t", Condition::Always, Expiry::AfterMs(600_000));
        a.write_in(CARS, lock).unwrap();
        let id = RequestId { client: ClientId(9), sequence: 1, acknowledged_below: 0 };
        let add = || Write::Add { key: "n{t}".into(), delta: 1 };
        let write = |write| Command::Write { keyspace: CARS, write, request: Some(id) };
        assert_eq!(a.run(write(add())), Ok(Answer::Integer(1)));
        a.now_ms += 200_000;
        let slots: SlotSet = [slot("t")].into_iter().collect();
        let mut moving = Moving::begin(&mut a, &mut b, &slots);
        moving.report(&a, &mut b);
        a.give(moving.number, SourceStep::Freeze).unwrap();
        moving.report(&a, &mut b);
        let (chunks, revision) = (moving.sequence, a.machine.revision());
        let install = DestinationStep::Install { chunks, revision };
        assert_eq!(b.receive(moving.number, install), Ok(Answer::Installed));
        assert_eq!(b.machine.log_time_ms(), b_ms, "a site's time is its own");
        // The lock has 400 s left, and the answer is 200 s old.
        b.now_ms += 399_000;
        b.tick();
        assert_eq!(b.global("lock{t}"), Ok(Some("t".into())));
        assert_eq!(b.run(write(add())), Ok(Answer::Integer(1)), "it was applied there");
        assert_eq!(b.global("n{t}"), Ok(Some("1".into())));
        b.now_ms += 2_000;
        b.tick();
        assert_eq!(b.global("lock{t}"), Ok(None));
    }
}

/// What a source's leader wants to propose, once its destination has answered all that it is asked
/// now.
fn carry(driver: &mut Handovers, a: &Site, b: &mut Site, round: u64) -> Vec<SourceStep> {
    let now = std::time::Duration::from_secs(round);
    let mut proposed = Vec::new();
    let view = a.view(now);
    let mut effects = driver.poll(&view);
    while let Some(effect) = effects.pop() {
        match effect {
            Effect::Propose(Command::Global(GlobalCommand::Source { step, .. })) => {
                proposed.push(step)
            }
            Effect::Ask { id: Some(id), command, .. } => {
                let outcome = b.run(command).map_err(Failure::Refused);
                effects.extend(driver.answered(id, outcome, &view));
            }
            Effect::Owned { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    proposed
}

#[test]
fn what_has_expired_at_its_source_does_not_come_back_at_its_destination() {
    let (mut a, mut b) = two_sites();
    let many = model::limits::EXPIRED_PER_ENTRY_MAX * 3 + 10;
    let key = |number: usize| Bytes::from(format!("{{t}}{number:05}"));
    let puts = (0..many).map(|number| {
        let (condition, expiry) = (Condition::Always, Expiry::AtMs(2_000));
        let (key, value, return_old) = (key(number), Bytes::from("v"), false);
        let write = Write::Put { key, value, condition, expiry, return_old };
        Command::Write { keyspace: CARS, write, request: None }
    });
    a.entry(puts.collect());
    let slots: SlotSet = [slot("t")].into_iter().collect();
    let number = a.begin_move(&slots);
    let mut driver = Handovers::new(0, Planted::default());
    // All is copied, long before it expires.
    for round in 0..30 {
        carry(&mut driver, &a, &mut b, round);
    }
    assert_eq!(carry(&mut driver, &a, &mut b, 30), [SourceStep::Freeze]);
    a.now_ms = 2_000;
    a.tick();
    assert_eq!(carry(&mut driver, &a, &mut b, 31), [], "some is due yet, and nothing is frozen");
    // It is frozen all the same: more was due when the entry came than when it was proposed.
    a.give(number, SourceStep::Freeze).unwrap();
    assert!(!a.machine.has_expired_due());
    assert_eq!(carry(&mut driver, &a, &mut b, 32), [], "what is due is not sent yet");
    a.tick();
    a.tick();
    let mut proposed = Vec::new();
    for round in 33..36 {
        proposed.extend(carry(&mut driver, &a, &mut b, round));
    }
    assert_eq!(proposed.first(), Some(&SourceStep::Release), "it is installed");
    // There it is earlier yet.
    for number in 0..many {
        let query = Query::Get { key: key(number) };
        assert_eq!(b.ask_in(CARS, query), Ok(Answer::Value(None)), "{number}");
    }
}
