//! Operators' orders: done once however often they are repeated, and reported exactly.

use super::moves::{A, B, two_sites};
use super::*;
use model::{
    ClientId, Epoch, Held, Holding, MoveError, Ordered, OrderedMove, Slot, SlotSet, SourceStep,
    limits,
};

fn order(number: u64, slots: &SlotSet, to: SiteId) -> Command {
    let id = RequestId { client: ClientId(5), sequence: number, acknowledged_below: 0 };
    Command::Global(GlobalCommand::Source {
        number: 0,
        step: SourceStep::Order { id, slots: slots.clone(), to },
    })
}

impl Site {
    fn ordered(&mut self, number: u64, slots: &SlotSet, to: SiteId) -> Ordered {
        match self.run(order(number, slots, to)).unwrap() {
            Answer::Ordered(ordered) => *ordered,
            other => panic!("{other:?}"),
        }
    }
}

fn slots(text: &str) -> SlotSet {
    text.parse().unwrap()
}

#[test]
fn an_order_asked_again_begins_nothing_and_tells_how_far_it_is() {
    let (mut a, _) = two_sites();
    let wanted = slots("0-9");
    let begun = a.ordered(1, &wanted, B);
    let [OrderedMove { number, .. }] = begun.moves[..] else { panic!("{begun:?}") };
    assert_eq!(begun.moves, [OrderedMove { number, slots: wanted.clone(), gone: None }]);
    let leaving =
        Holding { slots: wanted.clone(), epoch: Epoch::counted(1), held: Held::Leaving(B, number) };
    assert_eq!((begun.refused.clone(), &begun.holdings[..]), (None, &[leaving][..]));
    assert_eq!(a.ordered(1, &wanted, B), begun);
    a.reopen();
    assert_eq!(a.ordered(1, &wanted, B), begun, "and after a restart");
    a.give(number, SourceStep::Freeze).unwrap();
    a.give(number, SourceStep::Release).unwrap();
    let gone = Holding { slots: wanted.clone(), epoch: Epoch::counted(2), held: Held::Gone(B) };
    let over = OrderedMove { number, slots: wanted.clone(), gone: Some(wanted.clone()) };
    let ordered = Ordered { moves: vec![over], refused: None, holdings: vec![gone] };
    assert_eq!(a.ordered(1, &wanted, B), ordered);
    a.reopen();
    assert_eq!(a.ordered(1, &wanted, B), ordered);
    assert!(a.machine.outgoing().is_empty());
}

#[test]
fn what_an_order_finds_at_its_destination_stays_there() {
    let (mut a, _) = two_sites();
    let wanted = slots("0-9");
    let there = a.ordered(1, &wanted, A);
    assert!(there.moves.is_empty());
    assert_eq!(there.holdings[0].held, Held::Here);
    assert_eq!(*a.machine.pinned(), wanted, "it is not balanced away");
}

#[test]
fn what_is_taken_back_has_not_gone_and_goes_by_another_number_only() {
    let (mut a, _) = two_sites();
    let wanted = slots("0-9");
    let number = a.ordered(1, &wanted, B).moves[0].number;
    a.give(number, SourceStep::Abort { refused: false }).unwrap();
    let again = a.ordered(1, &wanted, B);
    assert_eq!(again.moves[0].gone, Some(SlotSet::default()));
    assert_eq!(again.holdings[0].held, Held::Here);
    let next = a.ordered(2, &wanted, B);
    assert_eq!((next.moves.len(), next.moves[0].gone.clone()), (1, None));
}

#[test]
fn an_order_is_cut_into_moves_and_names_what_stays() {
    let (mut a, mut b) = two_sites();
    let all = SlotSet::all();
    let ordered = a.ordered(1, &all, B);
    let moves = usize::from(Slot::COUNT) / limits::SLOTS_PER_MOVE_MAX;
    assert_eq!((ordered.moves.len(), ordered.refused), (moves, None));
    // Its destination is asked what it has, and a site that has nothing reports that.
    assert_eq!(b.ordered(1, &all, B), Ordered::default());
    assert_eq!(b.ordered(2, &all, A), Ordered::default());
    let number = ordered.moves[0].number;
    a.give(number, SourceStep::Abort { refused: false }).unwrap();
    // One that is not there is refused, and everything stays as it was.
    let wanted = slots("0-9");
    let nowhere = a.ordered(2, &wanted, SiteId(9));
    assert_eq!((nowhere.moves.len(), nowhere.refused), (0, Some(MoveError::NoDestination)));
    assert_eq!(nowhere.holdings[0].held, Held::Here);
}

#[test]
fn moves_past_the_limit_wait_for_another_order() {
    let (mut a, _) = two_sites();
    let one = |number: usize| slots(&number.to_string());
    for number in 0..limits::MOVES_MAX {
        assert_eq!(a.ordered(number as u64, &one(number), B).refused, None);
    }
    let more = a.ordered(1_000, &one(1_000), B);
    assert_eq!((more.moves.len(), more.refused), (0, Some(MoveError::TooManyMoves)));
    assert_eq!(more.holdings[0].held, Held::Here);
}

#[test]
fn orders_are_forgotten_by_age_and_by_number_but_not_while_they_go_on() {
    let (mut a, _) = two_sites();
    let (held, none) = (slots("7"), SlotSet::default());
    let going_on = a.ordered(0, &held, B);
    for number in 1..limits::ORDERS_REMEMBERED_MAX as u64 {
        a.entry_unchecked(vec![order(number, &none, B)]).pop().unwrap().unwrap();
    }
    let too_many = Err(Refusal::Move(MoveError::TooManyMoves));
    assert_eq!(a.run(order(5_000, &none, B)), too_many, "each may be asked again yet");
    a.now_ms += limits::ORDER_ASKED_AGAIN_MS;
    a.ordered(5_001, &none, B);
    a.now_ms += limits::ORDER_REMEMBERED_MS;
    a.ordered(5_002, &none, B);
    assert_eq!(a.ordered(0, &held, B), going_on);
}
