//! Causal keys: the root stops, and another site goes on, by hand.

use super::causal::{A, B, C, change, three_sites};
use super::*;
use model::{
    CausalCommand, Import, Offer, Position, RegionId, RegistryChange, RegistryError, RootStep,
};

fn step(epoch: u16, step: RootStep) -> CausalCommand {
    CausalCommand::Root { epoch, step }
}

fn at(epoch: u16, count: u64) -> Position {
    Position::new(epoch, count)
}

impl Site {
    /// All that it has for the order.
    fn all_for(&self, root: &Site) -> Offer {
        let after = root.machine.causal().ordered_of(self.own()).unwrap_or_default().0;
        let writes = self.machine.unordered(after, usize::MAX).unwrap();
        Offer { site: self.own(), after, writes }
    }

    fn order_of(&mut self, offer: Offer, epoch: u16) -> Result<Answer, Refusal> {
        self.causal(CausalCommand::Order { epoch, offer })
    }

    /// The order of a root, up to a position, from where the site is.
    fn import_upto(&mut self, order: &[(Position, SiteId, model::CausalWrite)], upto: Position) {
        let (own, from) = (self.own(), self.machine.causal().applied());
        let entries = order.iter().filter(|(at, ..)| *at > from && *at <= upto);
        let entries = entries.map(|(position, site, write)| match *site == own {
            true => Import::Own(*position),
            false => Import::Other { position: *position, site: *site, write: write.clone() },
        });
        let entries = entries.collect();
        self.causal(CausalCommand::Import { from, upto, entries }).unwrap();
    }
}

fn whole_order(root: &Site) -> Vec<(Position, SiteId, model::CausalWrite)> {
    let after = root.machine.causal().trimmed_upto();
    root.machine.ordered(after, usize::MAX).unwrap()
}

#[test]
fn a_root_stops_and_another_one_goes_on_behind_its_end() {
    let [mut a, mut b, mut c] = three_sites();
    b.put_cart("x", "b");
    c.put_cart("y", "c");
    for offer in [b.all_for(&a), c.all_for(&a)] {
        a.order_of(offer, 1).unwrap();
    }
    // In each state only some steps are taken.
    let refused = |outcome: Result<Answer, Refusal>| {
        assert!(matches!(outcome, Err(Refusal::NotCausal(_))), "{outcome:?}");
    };
    refused(a.causal(step(2, RootStep::Stop)));
    refused(b.causal(step(1, RootStep::Stop)));
    refused(a.causal(step(1, RootStep::Resume)));
    refused(a.causal(step(1, RootStep::Give)));
    a.causal(step(1, RootStep::Stop)).unwrap();
    c.put_cart("y", "c2");
    refused(a.order_of(c.all_for(&a), 1));
    a.causal(step(1, RootStep::Resume)).unwrap();
    a.causal(step(1, RootStep::Stop)).unwrap();
    a.causal(step(1, RootStep::Give)).unwrap();
    refused(a.causal(step(1, RootStep::Resume)));
    a.reopen();
    refused(a.order_of(c.all_for(&a), 1));
    assert_eq!(a.machine.causal().stopped_in(1), Some(true));

    // B has all, C lacks one.
    let (order, cut) = (whole_order(&a), a.machine.causal().order_last());
    assert_eq!(cut, at(1, 2));
    a.import_upto(&order, cut);
    b.import_upto(&order, cut);
    c.import_upto(&order, at(1, 1));
    let wanted = RegistryChange::MoveRoot(B);
    a.run(change(wanted)).unwrap();
    assert_eq!(a.machine.region().unwrap().next, Some(B));
    let changed = |to| RegistryChange::ChangeRoot { region: RegionId(1), epoch: 1, to, cut };
    a.run(change(changed(B))).unwrap();
    let registry = a.copy_of_registry();
    a.run(change(changed(C))).unwrap();
    assert_eq!(a.copy_of_registry(), registry, "that epoch is over");
    b.learn(&registry);
    c.learn(&registry);
    let region = *b.machine.region().unwrap();
    assert_eq!((region.epoch, region.root, region.next), (2, B, None));
    assert_eq!(a.machine.causal().applied(), at(2, 2));
    assert_eq!(c.machine.causal().applied(), at(1, 1), "it is not at the end");

    // The write that the first root did not order is the next one.
    refused(a.order_of(c.all_for(&b), 1));
    refused(a.order_of(c.all_for(&b), 2));
    assert_eq!(b.machine.causal().ordered_of(C).unwrap().1, at(1, 2));
    b.order_of(c.all_for(&b), 2).unwrap();
    let entries = whole_order(&b);
    assert_eq!(entries.iter().map(|(at, ..)| *at).collect::<Vec<_>>(), [at(2, 3)]);
    a.import_upto(&entries, at(2, 3));
    // What comes late of the epoch before is taken up to its end, which is the beginning.
    c.import_upto(&order, cut);
    assert_eq!(c.machine.causal().applied(), at(2, 2));
    c.import_upto(&entries, at(2, 3));
    b.import_upto(&entries, at(2, 3));
    for site in [&mut a, &mut b, &mut c] {
        assert_eq!(site.machine.causal().applied(), at(2, 3));
        let value =
            |key: &'static str| site.ask_in(super::causal::CARTS, Query::Get { key: key.into() });
        let Answer::Value(Some(found)) = value("y").unwrap() else { panic!("nothing") };
        assert_eq!(&found.value[..], b"c2");
        let of_c = site.machine.causal().ordered_of(C);
        site.reopen();
        assert_eq!((site.machine.causal().ordered_of(C), of_c.unwrap().1), (of_c, at(2, 3)));
    }
    assert_eq!(b.machine.causal().trimmed_upto(), at(2, 2));
}

#[test]
fn what_an_ended_epoch_has_beyond_its_end_is_not_taken() {
    let [mut a, mut b, mut c] = three_sites();
    b.put_cart("x", "b");
    c.put_cart("y", "c");
    for offer in [b.all_for(&a), c.all_for(&a)] {
        a.order_of(offer, 1).unwrap();
    }
    let order = whole_order(&a);
    b.import_upto(&order, at(1, 1));
    let cut = at(1, 1);
    let rebuilt = RegistryChange::ChangeRoot { region: RegionId(1), epoch: 1, to: B, cut };
    b.run(change(rebuilt.clone())).unwrap_err();
    a.run(change(rebuilt)).unwrap();
    let registry = a.copy_of_registry();
    b.learn(&registry);
    c.learn(&registry);
    assert_eq!(b.machine.causal().applied(), at(2, 1));
    c.import_upto(&order, at(1, 2));
    assert_eq!(c.machine.causal().applied(), Position(0));
    c.import_upto(&order, at(1, 1));
    assert_eq!(c.machine.causal().applied(), at(2, 1));
}

#[test]
fn only_a_site_that_stays_is_to_be_the_root() {
    let [mut a, ..] = three_sites();
    let refused = |a: &mut Site, wanted| match a.run(change(wanted)) {
        Err(Refusal::Registry(error)) => error,
        other => panic!("{other:?}"),
    };
    let gone = refused(&mut a, RegistryChange::MoveRoot(SiteId(9)));
    assert!(matches!(gone, RegistryError::NoSite(_)));
    a.run(change(RegistryChange::MoveRoot(C))).unwrap();
    assert_eq!(a.machine.region().unwrap().next, Some(C));
    a.run(change(RegistryChange::MoveRoot(A))).unwrap();
    assert_eq!(a.machine.region().unwrap().next, None, "it is to stay");
    a.run(change(RegistryChange::MoveRoot(C))).unwrap();
    a.run(change(RegistryChange::Leave(C))).unwrap();
    assert_eq!(a.machine.region().unwrap().next, None);
    let leaves = refused(&mut a, RegistryChange::MoveRoot(C));
    assert!(matches!(leaves, RegistryError::RootLeaves(_)));
    // A root that leaves stays until another one is the root.
    a.run(change(RegistryChange::Leave(A))).unwrap();
    let stays = refused(&mut a, RegistryChange::Remove(A));
    assert!(matches!(stays, RegistryError::Root(_)));
    a.run(Command::CreateKeyspace(model::KeyspaceSpec::causal_region("more", "more:"))).unwrap();
    assert_eq!(a.machine.region().unwrap().id, RegionId(1), "there is an order already");
}
