//! Causal keys: the order goes on without a lost root, by hand.

use super::causal::{A, B, C, CARTS, change, resync, three_sites};
use super::causal_expiry::import;
use super::causal_roots::{at, whole_order};
use super::*;
use crate::site::machine::causal::session::{Lacks, SessionRead};
use model::{
    CausalCommand, CausalToken, Offer, Position, RegionId, RegistryChange, Resync, SiteId,
};

const REGION: RegionId = RegionId(1);
const NEXT: u16 = 1 + model::EPOCHS_SKIPPED;

impl Site {
    fn lacks(&self, seen: Position) -> Option<Lacks> {
        let token = CausalToken { region: REGION, seen, written: None };
        self.machine.reader().lacks(&token)
    }
}

/// Of three writes of C the root has ordered all, and B has imported the first.
fn three_ordered() -> [Site; 3] {
    let [mut a, mut b, mut c] = three_sites();
    for (key, value) in [("x", "1"), ("x", "2"), ("y", "3")] {
        c.put_cart(key, value);
    }
    a.order_of(c.all_for(&a), 1).unwrap();
    b.import_upto(&whole_order(&a), at(1, 1));
    [a, b, c]
}

/// The same, and C has imported all.
fn lost_root() -> [Site; 3] {
    let [a, b, mut c] = three_ordered();
    c.import_upto(&whole_order(&a), at(1, 3));
    [a, b, c]
}

fn rebuild(a: &mut Site, others: &mut [&mut Site], to: SiteId) {
    let epoch = a.machine.region().unwrap().epoch;
    a.run(change(RegistryChange::Rebuild { region: REGION, epoch, to })).unwrap();
    let registry = a.copy_of_registry();
    others.iter_mut().for_each(|site| site.learn(&registry));
}

fn settle(a: &mut Site, others: &mut [&mut Site], cut: Position) {
    let epoch = a.machine.region().unwrap().epoch;
    a.run(change(RegistryChange::SettleRebuild { region: REGION, epoch, cut })).unwrap();
    let registry = a.copy_of_registry();
    others.iter_mut().for_each(|site| site.learn(&registry));
}

#[test]
fn how_far_a_site_is_does_not_change_until_the_end_is_known() {
    let [mut a, mut b, mut c] = lost_root();
    let order = whole_order(&a);
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    let region = *b.machine.region().unwrap();
    assert_eq!((region.epoch, region.root, region.begin()), (NEXT, B, None));
    b.import_upto(&order, at(1, 3));
    assert_eq!(b.machine.causal().applied(), at(1, 1));
    assert!(b.order_of(c.all_for(&b), NEXT).is_err(), "nothing is ordered");
    assert_eq!(c.lacks(at(1, 3)), None, "nothing is lost yet");
    // The lost one may come to its own end, and keeps it until then.
    a.causal(CausalCommand::Trim { upto: at(1, 3) }).unwrap();
    a.import_upto(&order, at(1, 3));
    assert_eq!(a.machine.causal().applied(), at(1, 3));
    // It is back in time, and goes on as if nothing was.
    rebuild(&mut a, &mut [&mut b, &mut c], A);
    assert_eq!(a.machine.region().unwrap().epoch, NEXT + 1);
    settle(&mut a, &mut [&mut b, &mut c], at(1, 3));
    for site in [&a, &c] {
        assert_eq!(site.machine.causal().applied(), at(NEXT + 1, 3));
    }
    assert_eq!(c.lacks(at(1, 3)), None);
    c.put_cart("x", "4");
    assert!(matches!(a.order_of(c.all_for(&a), NEXT + 1), Ok(Answer::Done(_))));
    let twice = RegistryChange::SettleRebuild { region: REGION, epoch: NEXT + 1, cut: at(1, 1) };
    a.run(change(twice)).unwrap();
    assert_eq!(a.machine.region().unwrap().cut, Some(at(1, 3)), "once");
}

#[test]
fn own_writes_whose_places_are_lost_are_pending_again() {
    let [mut a, mut b, mut c] = lost_root();
    let before = c.machine.causal().own_ordered();
    c.put_cart("z", "4");
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    settle(&mut a, &mut [&mut b, &mut c], at(1, 1));
    assert_eq!(b.machine.causal().applied(), at(NEXT, 1));
    // What is behind the end is seen by no session from here on, at any site.
    for site in [&b, &c] {
        assert_eq!(site.lacks(at(1, 2)), Some(Lacks::Ended { have: at(1, 1) }));
    }
    assert_eq!(b.lacks(at(1, 1)), None);
    // C gets its keys anew: all but its first write is pending then, the last place of each key
    // first.
    let ordered = b.machine.causal().ordered_of(C).unwrap().0;
    let (floor, start) = (at(NEXT, 1), at(NEXT, 1));
    let begin = Resync::Begin { epoch: NEXT, floor, start, ordered, resume: Bytes::new() };
    assert_eq!(c.machine.unordered(Revision(0), usize::MAX).unwrap().len(), 1);
    let staged = c.causal(CausalCommand::Resync(begin));
    let Ok(Answer::Staged { chunks: sequence, .. }) = staged else { panic!("{staged:?}") };
    c.reopen();
    let pending = c.machine.unordered(Revision(0), usize::MAX).unwrap();
    assert_eq!(pending.len(), 3);
    assert!(pending[0].revision > ordered && pending[1].revision == before);
    assert_eq!(c.machine.causal().own_ordered(), ordered);
    let records = b.machine.causal_records(None, usize::MAX, &|_| true).unwrap().items;
    let chunk = Resync::Chunk { start, sequence, resume: Bytes::new(), items: records };
    c.causal(CausalCommand::Resync(chunk)).unwrap();
    let switch = Resync::Switch { start, chunks: sequence + 1, upto: start };
    assert_eq!(c.causal(CausalCommand::Resync(switch)), Ok(Answer::Installed));
    c.reopen();
    let offer = c.all_for(&b);
    assert_eq!(offer.writes.len(), 3);
    b.order_of(offer, NEXT).unwrap();
    let order = whole_order(&b);
    for site in [&mut b, &mut c] {
        site.import_upto(&order, at(NEXT, 4));
        for (key, value) in [("x", "2"), ("y", "3"), ("z", "4")] {
            assert_eq!(site.cart(key).as_deref(), Some(value), "{key}");
        }
    }
    assert_eq!(c.machine.causal().unordered_bytes(), 0);
}

/// What it shows is a part of the order like any other's.
#[test]
fn a_site_that_was_getting_its_keys_goes_on_from_what_it_shows() {
    let [mut a, mut b, mut c] = three_ordered();
    b.put_cart("w", "0");
    a.order_of(b.all_for(&a), 1).unwrap();
    let start = whole_order(&a).last().unwrap().0;
    let ordered = a.machine.causal().ordered_of(B).unwrap().0;
    let (epoch, floor) = (1, start);
    let begin = Resync::Begin { epoch, floor, start, ordered, resume: Bytes::new() };
    assert!(matches!(b.causal(CausalCommand::Resync(begin)), Ok(Answer::Staged { .. })));
    assert_eq!(b.machine.unordered(Revision(0), usize::MAX).unwrap(), []);
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    assert_eq!(b.machine.whole_upto(), Some(at(1, 1)));
    settle(&mut a, &mut [&mut b, &mut c], at(1, 1));
    assert!(!b.machine.causal().is_resyncing());
    assert_eq!(b.machine.causal().applied(), at(NEXT, 1));
    b.reopen();
    let own = b.machine.unordered(Revision(0), usize::MAX).unwrap();
    assert_eq!((own.len(), b.cart("w").as_deref()), (1, Some("0")));
    b.order_of(c.all_for(&b), NEXT).unwrap();
    b.order_of(b.all_for(&b), NEXT).unwrap();
    assert_eq!(b.machine.causal().order_last(), at(NEXT, 4));
}

/// Its writes whose places were in what it got are not offered until it gets its keys from the
/// new root: what it writes then must not come before them.
#[test]
fn a_site_that_gets_its_keys_as_the_root_is_lost_offers_nothing_behind_what_is_kept() {
    let [mut a, mut b, mut c] = three_ordered();
    let order = whole_order(&a);
    let ordered = a.machine.causal().ordered_of(C).unwrap().0;
    let own = c.machine.causal().own_ordered();
    let start = *order.last().map(|(position, ..)| position).unwrap();
    let (epoch, floor) = (1, start);
    let begin = Resync::Begin { epoch, floor, start, ordered, resume: Bytes::new() };
    assert!(matches!(c.causal(CausalCommand::Resync(begin)), Ok(Answer::Staged { .. })));
    c.put_cart("z", "4");
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    settle(&mut a, &mut [&mut b, &mut c], at(1, 1));
    assert!(own < ordered, "{own} {ordered}");
    let kept = c.machine.causal().kept_upto();
    let offer = Offer { after: kept, ..c.all_for(&b) };
    assert_eq!((kept, offer.writes.len()), (ordered, 1));
    let has = b.machine.causal().ordered_of(C).unwrap().0;
    assert_eq!(b.order_of(offer, NEXT), Ok(Answer::Done(has)), "there is a gap");
}

#[test]
fn the_lost_root_does_not_go_on_at_an_end_behind_which_it_has_ordered() {
    let [mut a, mut b, mut c] = lost_root();
    // As far as B it has imported its own order, too.
    let order = whole_order(&a);
    a.import_upto(&order, at(1, 1));
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    settle(&mut a, &mut [&mut b, &mut c], at(1, 1));
    assert_eq!(a.machine.causal().applied(), at(1, 1), "it gets its keys anew");
    // Its list names places that are void.
    assert_eq!(a.machine.causal().ordered_of(C).unwrap().1, at(1, 3));
    assert_eq!(b.machine.causal().ordered_of(C).unwrap().1, at(1, 1));
}

/// Of the order between the first end and the last one a session has seen what stands, or what is
/// lost. One that begins after both has not.
#[test]
fn a_new_session_reads_what_was_written_between_two_rebuilds() {
    let [mut a, mut b, mut c] = lost_root();
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    settle(&mut a, &mut [&mut b, &mut c], at(1, 3));
    let order = whole_order(&a);
    b.import_upto(&order, at(1, 3));
    c.put_cart("k", "v");
    b.order_of(c.all_for(&b), NEXT).unwrap();
    let order = whole_order(&b);
    for site in [&mut b, &mut c] {
        site.import_upto(&order, at(NEXT, 4));
    }
    rebuild(&mut a, &mut [&mut b, &mut c], B);
    settle(&mut a, &mut [&mut b, &mut c], at(NEXT, 4));
    assert_eq!(b.machine.causal().applied().epoch(), NEXT + model::EPOCHS_SKIPPED);
    assert_eq!(b.lacks(at(NEXT, 4)), None);
    assert_eq!(b.lacks(at(NEXT, 5)), Some(Lacks::Ended { have: at(NEXT, 4) }));
    let begins = CausalToken { region: REGION, ..CausalToken::default() };
    let read = b.read_in_session(CARTS, &Query::Get { key: "k".into() }, begins);
    let SessionRead::Answered(Ok(Answer::Value(Some(_))), token) = read else { panic!("{read:?}") };
    for site in [&b, &c] {
        assert_eq!(site.machine.reader().lacks(&token), None);
    }
}

/// The keys come anew from a root that is given up then: what it had ordered of the site's own
/// writes is lost with it, and the site has them still.
#[test]
fn own_writes_outlast_a_resync_from_a_root_that_is_lost() {
    for is_shown in [true, false] {
        let [mut a, mut b, mut c] = three_ordered();
        import(&mut a);
        a.causal(CausalCommand::Trim { upto: at(1, 3) }).unwrap();
        let chunks = resync(&a, &mut c, at(1, 3), at(1, 3)).unwrap();
        assert_eq!(c.machine.unordered(Revision(0), usize::MAX).unwrap(), []);
        c.reopen();
        if is_shown {
            let (start, upto) = (at(1, 3), at(1, 3));
            let switch = CausalCommand::Resync(Resync::Switch { start, chunks, upto });
            assert_eq!(c.causal(switch), Ok(Answer::Installed));
        }
        rebuild(&mut a, &mut [&mut b, &mut c], B);
        settle(&mut a, &mut [&mut b, &mut c], at(1, 1));
        let ordered = b.machine.causal().ordered_of(C).unwrap().0;
        let (floor, start) = (at(NEXT, 1), at(NEXT, 1));
        let begin = Resync::Begin { epoch: NEXT, floor, start, ordered, resume: Bytes::new() };
        let Ok(Answer::Staged { .. }) = c.causal(CausalCommand::Resync(begin)) else { panic!() };
        c.reopen();
        let pending = c.machine.unordered(Revision(0), usize::MAX).unwrap();
        assert_eq!(pending.len(), 2, "shown: {is_shown}");
        assert_eq!(c.cart("y").as_deref(), Some("3"));
        b.order_of(c.all_for(&b), NEXT).unwrap();
        import(&mut b);
        assert_eq!((b.cart("x").as_deref(), b.cart("y").as_deref()), (Some("2"), Some("3")));
    }
}
