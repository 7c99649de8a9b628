//! What comes late, or to a site without the latest registry: messages of any age, and stale
//! owners.

use super::*;
use crate::site::machine::global::copying::Position;
use model::{MirrorStep, MoveError, Reached, Refusal};
use storage::state::State as _;

/// One step of a leader that carries A's mirror: what it asks of B.
fn asks(driver: &mut MirrorDriver, three: &mut Three) -> Vec<(u64, Command)> {
    three.now += Duration::from_millis(600);
    let mut asked = Vec::new();
    let view = JobView { backup: Some(B), ..three.sites[&A].view(three.now) };
    for effect in driver.poll(&view) {
        match effect {
            JobEffect::Propose(command) => drop(three.at(A).run(command)),
            JobEffect::Ask { id: Some(id), command, .. } => asked.push((id, command)),
            other => panic!("{other:?}"),
        }
    }
    asked
}

/// A leader that has asked B what it has, and has the answer.
fn begun(three: &mut Three) -> MirrorDriver {
    let mut driver = MirrorDriver::new(0);
    loop {
        if let Some((id, command)) = asks(&mut driver, three).pop() {
            assert!(matches!(
                command,
                Command::Global(GlobalCommand::Mirror { step: MirrorStep::Begin, .. })
            ));
            let outcome = three.at(B).run(command).map_err(Failure::Refused);
            let view = three.sites[&A].view(three.now);
            assert!(driver.answered(id, outcome, &view).is_empty());
            return driver;
        }
    }
}

/// Hands a key's slot over with all that is in it.
fn hand_over(three: &mut Three, key: &str, from: SiteId, to: SiteId) {
    let slots: SlotSet = [slot(key)].into_iter().collect();
    let begin = SourceStep::Begin { slots, to, pinned: false };
    let number = match three
        .at(from)
        .run(Command::Global(GlobalCommand::Source { number: 0, step: begin }))
        .unwrap()
    {
        Answer::Done(number) => number.0,
        other => panic!("{other:?}"),
    };
    let id = MoveId { from, number };
    let one = three.sites[&from].machine.outgoing()[&number].clone();
    let slots = three.sites[&from].machine.epochs_to_give(number, &one);
    let begin = DestinationStep::Begin { slots, open_from: number, pinned: false };
    three.at(to).run(Command::Global(GlobalCommand::Destination { id, step: begin })).unwrap();
    three
        .at(from)
        .run(Command::Global(GlobalCommand::Source { number, step: SourceStep::Freeze }))
        .unwrap();
    let one = three.sites[&from].machine.outgoing()[&number].clone();
    let (mut at, mut sequence) = (Position::first(&one), 0);
    loop {
        let chunk = three.sites[&from].machine.chunk(number, &one, &at).unwrap();
        if chunk.items.is_empty() && chunk.next == at {
            break;
        }
        let resume = wire::row::encode(&chunk.next).into();
        let step = DestinationStep::Chunk { sequence, resume, items: chunk.items };
        three.at(to).run(Command::Global(GlobalCommand::Destination { id, step })).unwrap();
        (at, sequence) = (chunk.next, sequence + 1);
    }
    let install = three.install(from, sequence);
    assert_eq!(
        three.at(to).run(Command::Global(GlobalCommand::Destination { id, step: install })),
        Ok(Answer::Installed)
    );
    three
        .at(from)
        .run(Command::Global(GlobalCommand::Source { number, step: SourceStep::Release }))
        .unwrap();
}

fn who_serves(three: &Three, key: &str) -> Vec<SiteId> {
    let serves = |(_, site): &(&SiteId, &Site)| site.machine.serves(slot(key));
    three.sites.iter().filter(serves).map(|(site, _)| *site).collect()
}

/// A chunk of an earlier leader comes after the next one has asked what there is. The next one's
/// first chunk has its number, is not taken, and was thought to be.
#[test]
fn a_late_piece_of_an_earlier_leader_is_not_taken_for_one_of_the_next() {
    let mut three = Three::new();
    three.put("x", "1");
    let mut earlier = begun(&mut three);
    let late = asks(&mut earlier, &mut three);
    assert_eq!(late.len(), 1);
    three.put("y", "acknowledged");
    three.driver = begun(&mut three);
    for (_, command) in late {
        drop(three.at(B).run(command));
    }
    three.mirror();
    let all: SlotSet = Slot::all().collect();
    let safe = three.driver.safe(&three.sites[&A].machine, &all);
    assert!(safe.is_some_and(|(slots, ..)| slots.slots().len() == 16_384), "reported as safe");
    assert_eq!(three.mirrored("x"), Ok(Some("1".into())));
    assert_eq!(three.mirrored("y"), Ok(Some("acknowledged".into())));
}

/// What came of a slot since it was whole is in the copy itself, and nothing grows beside it.
#[test]
fn a_slot_that_is_said_to_be_whole_again_keeps_its_records() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let mirror = three.sites[&B].machine.mirrors()[&A].clone();
    let step = MirrorStep::Chunk {
        sequence: mirror.chunks,
        resume: model::Bytes::new(),
        gone: SlotSet::default(),
        items: Vec::new(),
        reached: Some(Reached {
            revision: Revision(mirror.revision),
            complete: SlotEpochs::gather([(slot("x"), Epoch::counted(1))]),
            holds: 16_384,
        }),
    };
    three
        .at(B)
        .run(Command::Global(GlobalCommand::Mirror { from: A, number: mirror.number, step }))
        .unwrap();
    assert_eq!(three.mirrored("x"), Ok(Some("1".into())));
}

/// A stale owner is handed nothing before the registry has its return: it may be removed until
/// then, by what the others reported before.
#[test]
fn nothing_is_handed_to_a_stale_owner_before_its_return() {
    let mut three = Three::new();
    three.put("x", "mirrored");
    three.mirror();
    three.promote(true, &[], &[]).unwrap();
    assert_eq!(who_serves(&three, "x"), [A, B], "A has not heard");
    let slots = || [slot("x")].into_iter().collect();
    let begin = SourceStep::Begin { slots: slots(), to: A, pinned: false };
    let begin = Command::Global(GlobalCommand::Source { number: 0, step: begin });
    let refused = three.at(B).run(begin);
    assert!(matches!(refused, Err(Refusal::Move(MoveError::NotReady(_)))), "{refused:?}");
    // An order is not remembered as refused.
    let id = RequestId { client: ClientId(7), sequence: 1, acknowledged_below: 1 };
    let order = || SourceStep::Order { id, slots: slots(), to: A };
    let order = || Command::Global(GlobalCommand::Source { number: 0, step: order() });
    let ordered = |answer| match answer {
        Ok(Answer::Ordered(ordered)) => (ordered.moves.len(), ordered.refused.is_some()),
        other => panic!("{other:?}"),
    };
    assert_eq!(ordered(three.at(B).run(order())), (0, true));
    three.hears(A);
    assert_eq!(who_serves(&three, "x"), [B]);
    three.is_back(A);
    three.hears(A);
    assert_eq!(ordered(three.at(B).run(order())), (1, false));
}

/// A stale owner is the backup of the site that has taken over, and has not learned of that.
#[test]
fn a_stream_shows_a_stale_owner_that_it_is_one() {
    let mut three = Three::new();
    let choice = model::BackupChoice::At(A);
    three.change(B, &RegistryChange::Backup(B, choice)).unwrap();
    three.hears(A);
    three.put("x", "mirrored");
    three.mirror();
    three.promote(true, &[], &[]).unwrap();
    let Token::Held(epoch) = three.sites[&B].machine.token(slot("x")) else { panic!("not held") };
    let mirror =
        |step| Command::Global(GlobalCommand::Mirror { from: B, number: 9_000_000_000, step });
    three.at(A).run(mirror(MirrorStep::Begin)).unwrap();
    let step = MirrorStep::Chunk {
        sequence: 0,
        resume: model::Bytes::new(),
        gone: SlotSet::default(),
        items: Vec::new(),
        reached: Some(Reached {
            revision: Revision(9_000_000_001),
            complete: SlotEpochs::gather([(slot("x"), epoch)]),
            holds: 16_384,
        }),
    };
    // B takes this for: A has a complete copy, others may go.
    three.at(A).run(mirror(step)).unwrap();
    let copy = three.sites[&A].machine.copy_of(slot("x"));
    assert_eq!(copy.map(|copy| copy.tag.epoch), Some(epoch), "B reports that");
    assert_eq!(who_serves(&three, "x"), [B], "A has learned of a higher epoch");
}

/// A write that a failover has lost, sent again to its site when that has the slot again.
#[test]
fn what_was_answered_for_a_write_that_is_lost_is_forgotten_with_it() {
    let mut three = Three::new();
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    assert_eq!(three.at(A).run(add(2)), Ok(Answer::Integer(2)), "in the lag");
    three.promote(true, &[], &[]).unwrap();
    three.is_back(A);
    three.hears(A);
    hand_over(&mut three, "n{t}", B, A);
    assert_eq!(three.held(A, "n{t}"), Ok(Some("1".into())));
    assert_eq!(three.at(A).run(add(2)), Ok(Answer::Integer(2)));
    assert_eq!(three.held(A, "n{t}"), Ok(Some("2".into())), "it was acknowledged just now");
}

/// A copy of another stream than the one that is fed: the answers of the stream are remembered, its
/// records are not there.
#[test]
fn what_a_growing_mirror_remembers_is_not_taken_with_an_older_copy() {
    let mut three = Three::new();
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    // Another mirror begins, and its first chunk comes, not the last.
    three.at(A).run(Command::Global(GlobalCommand::SetMirror { to: Some(B) })).unwrap();
    assert_eq!(three.at(A).run(add(2)), Ok(Answer::Integer(2)));
    three.driver = begun(&mut three);
    let mut driver = std::mem::take(&mut three.driver);
    for (_, command) in asks(&mut driver, &mut three) {
        let Command::Global(GlobalCommand::Mirror { from, number, step }) = command else {
            panic!()
        };
        let MirrorStep::Chunk { sequence, resume, gone, items, .. } = step else { panic!() };
        let step = MirrorStep::Chunk { sequence, resume, gone, items, reached: None };
        three.at(B).run(Command::Global(GlobalCommand::Mirror { from, number, step })).unwrap();
    }
    three.promote(true, &[], &[]).unwrap();
    assert_eq!(three.held(B, "n{t}"), Ok(Some("1".into())), "the copy that is complete");
    assert_eq!(three.at(B).run(add(2)), Ok(Answer::Integer(2)));
    assert_eq!(three.held(B, "n{t}"), Ok(Some("2".into())), "it was acknowledged just now");
}

/// An operator discards copies of a site that goes on feeding them.
#[test]
fn a_mirror_begins_anew_when_its_copies_were_discarded() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.at(B).run(Command::Global(GlobalCommand::DiscardCopies { of: A })).unwrap();
    three.put("y", "2");
    three.mirror();
    let all: SlotSet = Slot::all().collect();
    let safe = three.driver.safe(&three.sites[&A].machine, &all);
    let safe = safe.map_or(0, |(slots, ..)| slots.slots().len());
    let copies = three.sites[&B].machine.copies().count();
    assert_eq!((safe, copies), (16_384, 16_384), "what is reported as safe is there");
    assert_eq!(three.mirrored("x"), Ok(Some("1".into())));
}

/// What is remembered with copies and with what grows beside them is in the state, and comes back.
#[test]
fn what_is_remembered_with_copies_outlives_a_restart() {
    let mut three = Three::new();
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    let rows = three.at(B).rows(tables::SLOT_ANSWERS);
    assert_eq!(rows, 1);
    three.at(B).reopen();
    three.promote(true, &[], &[]).unwrap();
    assert_eq!(three.at(B).run(add(1)), Ok(Answer::Integer(1)), "it was asked again");
    assert_eq!(three.held(B, "n{t}"), Ok(Some("1".into())));
    three.is_back(A);
    three.hears(A);
    assert_eq!(three.at(A).run(add(1)), Err(Refusal::NotHeld(slot("n{t}"))));
    let kept = three.sites[&A].machine.copy_of(slot("n{t}"));
    assert!(kept.is_some() && three.sites[&A].rows(tables::SLOT_ANSWERS) == 1, "with the copy");
    three.at(A).run(Command::Global(GlobalCommand::DiscardCopies { of: A })).unwrap();
    assert_eq!(three.sites[&A].rows(tables::SLOT_ANSWERS), 0, "and it goes with it");
}

/// A version that did not distinguish them remembered what came of a slot as if it were its own.
#[test]
fn what_an_earlier_version_remembered_of_a_copy_is_taken_with_it() {
    let mut three = Three::new();
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    let state = three.sites[&B].machine.state().clone();
    for table in [tables::SLOT_CLIENTS, tables::SLOT_ANSWERS] {
        let rows = super::super::super::rows(&state, table).unwrap();
        let mut batch = storage::state::Batch::default();
        for (key, row) in rows {
            let earlier = [&key[..1], &key[2..]].concat();
            let row = if table == tables::SLOT_ANSWERS {
                [&[1], &row[..]].concat()
            } else {
                row.to_vec()
            };
            batch.remove(key);
            batch.put(earlier, row);
        }
        state.commit(batch).unwrap();
    }
    three.at(B).machine = Machine::open(state).unwrap();
    three.promote(true, &[], &[]).unwrap();
    assert_eq!(three.at(B).run(add(1)), Ok(Answer::Integer(1)), "it was asked again");
    assert_eq!(three.held(B, "n{t}"), Ok(Some("1".into())));
}
