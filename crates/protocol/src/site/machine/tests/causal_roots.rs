//! Causal keys: the root stops, and another site goes on, by hand.

use super::causal::{A, B, C, change, three_sites};
use super::*;
use model::{
    CausalCommand, EPOCHS_SKIPPED, Import, LastOrdered, Offer, Position, RegionId, RegistryChange,
    RegistryError, RootStep,
};
use storage::state::{Batch, Read as _, State as _};

fn step(epoch: u16, step: RootStep) -> CausalCommand {
    CausalCommand::Root { epoch, step }
}

pub(super) fn at(epoch: u16, count: u64) -> Position {
    Position::new(epoch, count)
}

impl Site {
    /// All that it has for the order.
    pub(super) fn all_for(&self, root: &Site) -> Offer {
        let after = root.machine.causal().ordered_of(self.own()).unwrap_or_default().0;
        let writes = self.machine.unordered(after, usize::MAX).unwrap();
        Offer { site: self.own(), after, writes }
    }

    pub(super) fn order_of(&mut self, offer: Offer, epoch: u16) -> Result<Answer, Refusal> {
        self.causal(CausalCommand::Order { epoch, offer })
    }

    /// The order of a root, up to a position, from where the site is.
    pub(super) fn import_upto(
        &mut self,
        order: &[(Position, SiteId, model::CausalWrite)],
        upto: Position,
    ) {
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

/// What a root hands to the next one.
fn handed(root: &Site, epoch: u16) -> CausalCommand {
    let all = root.machine.causal().ordered_all();
    let of_site = |(site, revision, position)| LastOrdered { site, revision, position };
    CausalCommand::Ordered { epoch, sites: all.map(of_site).collect() }
}

pub(super) fn whole_order(root: &Site) -> Vec<(Position, SiteId, model::CausalWrite)> {
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

/// As in a state that was written before sites kept the last ordered write of each site while they
/// imported.
fn forget_ordered(site: &mut Site) {
    let mut rows = Batch::default();
    let (from, until) = (b"Ks".to_vec(), b"Kt".to_vec());
    let state = site.machine.state().clone();
    state
        .scan(&from, Some(&until), &mut |key, _| {
            rows.remove(key.to_vec());
            true
        })
        .unwrap();
    state.commit(rows).unwrap();
    site.machine = Machine::open(state).unwrap();
    assert_eq!(site.machine.causal().ordered_all().count(), 0);
}

#[test]
fn a_root_that_kept_no_last_writes_is_handed_them() {
    let [mut a, mut b, mut c] = three_sites();
    c.put_cart("x", "1");
    c.put_cart("y", "2");
    a.order_of(c.all_for(&a), 1).unwrap();
    let (order, cut) = (whole_order(&a), at(1, 2));
    for site in [&mut a, &mut b, &mut c] {
        site.import_upto(&order, cut);
    }
    let last = b.machine.causal().ordered_of(C).unwrap();
    forget_ordered(&mut b);
    a.causal(step(1, RootStep::Stop)).unwrap();
    // Not to itself, nor in another epoch; twice is once, and what is known already stays.
    let refused = |outcome: Result<Answer, Refusal>| {
        assert!(matches!(outcome, Err(Refusal::NotCausal(_))), "{outcome:?}");
    };
    let all = handed(&a, 1);
    refused(a.causal(all.clone()));
    refused(b.causal(handed(&a, 2)));
    for command in [all.clone(), all] {
        b.causal(command).unwrap();
        assert_eq!(b.machine.causal().ordered_of(C), Some(last));
    }
    let (site, revision, position) = (C, Revision(1), at(1, 1));
    let older = vec![LastOrdered { site, revision, position }];
    b.causal(CausalCommand::Ordered { epoch: 1, sites: older }).unwrap();
    b.reopen();
    assert_eq!(b.machine.causal().ordered_of(C), Some(last));
    a.causal(step(1, RootStep::GiveTo(B))).unwrap();
    a.reopen();
    assert_eq!(a.machine.causal().given_to(), Some(B));
    a.causal(step(1, RootStep::GiveTo(C))).unwrap();
    assert_eq!(a.machine.causal().given_to(), Some(B), "it is given once");
    a.run(change(RegistryChange::ChangeRoot { region: RegionId(1), epoch: 1, to: B, cut }))
        .unwrap();
    let registry = a.copy_of_registry();
    [&mut b, &mut c].into_iter().for_each(|site| site.learn(&registry));
    // C goes on behind its last ordered write: a root that does not know that would wait for those
    // before.
    c.put_cart("x", "3");
    let offer = Offer { after: c.machine.causal().own_ordered(), ..c.all_for(&b) };
    let done = b.order_of(offer, 2);
    assert_eq!(done, Ok(Answer::Done(c.machine.causal().last_revision())));
    assert_eq!(whole_order(&b).len(), 1);
}

#[test]
fn a_registry_that_forgets_a_root_gives_its_epoch_to_no_other_one() {
    let [mut a, mut b, mut c] = three_sites();
    c.put_cart("x", "1");
    a.order_of(c.all_for(&a), 1).unwrap();
    let (order, cut) = (whole_order(&a), at(1, 1));
    for site in [&mut a, &mut b, &mut c] {
        site.import_upto(&order, cut);
    }
    let before = a.copy_of_registry();
    a.causal(step(1, RootStep::Stop)).unwrap();
    a.causal(step(1, RootStep::GiveTo(B))).unwrap();
    let to = |to| RegistryChange::ChangeRoot { region: RegionId(1), epoch: 1, to, cut };
    b.learn(&before);
    a.run(change(to(B))).unwrap();
    b.learn(&a.copy_of_registry());
    b.put_cart("x", "2");
    b.order_of(b.all_for(&b), 2).unwrap();
    b.import_upto(&whole_order(&b), at(2, 2));
    // The registry was recovered by C, which had not learned of it.
    let mut recovered = (*before).clone();
    let version = model::Ballot { term: model::Term { number: 1, site: C }, round: 0, site: C };
    recovered.recover(version, &before);
    recovered.version = version;
    for site in [&mut a, &mut b, &mut c] {
        site.learn(&recovered);
        assert_eq!(site.machine.region().unwrap().epoch, 1);
    }
    assert_eq!((a.machine.causal().applied(), b.machine.causal().applied()), (at(2, 1), at(2, 2)));
    let (mut again, mut other) = (recovered.clone(), recovered);
    for (registry, site) in [(&mut again, B), (&mut other, A)] {
        registry.change(&to(site)).unwrap();
        registry.version.round += 1;
    }
    // Asked for again, B goes on as if nothing was.
    assert_eq!((again.regions[0].epoch, again.regions[0].root), (2, B));
    let mut same =
        Site { machine: Machine::open(b.machine.state().clone()).unwrap(), now_ms: b.now_ms };
    same.learn(&again);
    c.put_cart("x", "3");
    same.order_of(c.all_for(&same), 2).unwrap();
    assert_eq!(whole_order(&same).last().unwrap().0, at(2, 3));
    // If A goes on itself, no position of B's is one of the new order.
    let epoch = 1 + EPOCHS_SKIPPED;
    assert_eq!((other.regions[0].epoch, other.regions[0].root), (epoch, A));
    for site in [&mut a, &mut b, &mut c] {
        site.learn(&other);
    }
    assert_eq!(a.machine.causal().applied(), at(epoch, 1), "it has what the beginning has");
    assert_eq!(c.machine.causal().applied(), at(epoch, 1));
    assert_eq!(b.machine.causal().applied(), at(2, 2), "it is before the beginning");
    a.order_of(c.all_for(&a), epoch).unwrap();
    assert_eq!(whole_order(&a).last().unwrap().0, at(epoch, 2));
    refused_by(&mut b, at(2, 3));
}

/// What comes late of an order that was forgotten is not taken.
fn refused_by(site: &mut Site, upto: Position) {
    let from = site.machine.causal().applied();
    site.causal(CausalCommand::Import { from, upto, entries: Vec::new() }).unwrap();
    assert_eq!(site.machine.causal().applied(), from);
}

#[test]
fn a_root_does_not_order_in_an_epoch_that_it_has_left() {
    let [mut a, ..] = three_sites();
    let before = a.copy_of_registry();
    a.causal(step(1, RootStep::Stop)).unwrap();
    a.causal(step(1, RootStep::GiveTo(B))).unwrap();
    let (region, cut) = (RegionId(1), Position(0));
    a.run(change(RegistryChange::ChangeRoot { region, epoch: 1, to: A, cut })).unwrap();
    a.put_cart("x", "1");
    a.order_of(a.all_for(&a), 1 + EPOCHS_SKIPPED).unwrap();
    let mut recovered = (*before).clone();
    recovered.version.term = model::Term { number: 1, site: C };
    a.learn(&recovered);
    assert_eq!(a.machine.region().unwrap().epoch, 1);
    a.put_cart("x", "2");
    assert!(matches!(a.order_of(a.all_for(&a), 1), Err(Refusal::NotCausal(_))));
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
