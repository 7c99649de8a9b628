//! The registry of several regions is recovered, and the order of one of them goes on before what
//! the others have of it: the machines of their roots, and the bridges between these.

use super::causal::change;
use super::causal_expiry::import;
use super::causal_regions::regions;
use super::causal_roots::whole_order;
use super::*;
use crate::causal::Part as _;
use crate::causal::Region;
use crate::causal::bridge::{Bridge, Notice};
use crate::causal::layout::Layout;
use crate::site::causal::Shown;
use model::{
    Ballot, CausalCommand, Failure, Position, RegionId, Registry, RegistryChange, Resync,
    ResyncItem, StandbyChoice, StandbyRule, Term,
};
use std::sync::Arc;
use std::time::Duration;

impl Site {
    fn epoch(&self) -> u16 {
        self.machine.region().unwrap().epoch
    }

    fn order_for(&mut self, site: &Site) {
        let epoch = self.epoch();
        self.order_of(site.all_for(self), epoch).unwrap();
    }

    fn order_own(&mut self) {
        let epoch = self.epoch();
        self.order_of(self.all_for(self), epoch).unwrap();
    }

    fn keeps_behind(&self, position: Position) -> bool {
        self.machine.causal().keeps_behind(self.machine.region().unwrap(), position)
    }

    fn is_at_end_of(&self, root: &Site) -> bool {
        let region = root.machine.causal().region();
        let taken = self.machine.causal().taken_of(&self.copy_of_registry(), region, self.epoch());
        taken == root.machine.causal().order_last()
    }

    /// The region, as its root's jobs see it.
    fn seen_by_jobs(&self) -> Region {
        let (registry, region) = (self.copy_of_registry(), *self.machine.region().unwrap());
        Region {
            id: region.id,
            own: self.own(),
            root: region.root,
            epoch: region.epoch,
            has_begun: self.machine.causal().has_begun(&region),
            is_rebuilding: region.is_rebuilding(),
            layout: Arc::new(Layout::of(&registry, self.own())),
            next: region.next,
            standby: region.standby,
            standby_rule: region.standby_rule,
            gate: None,
            is_frozen: false,
        }
    }

    /// What its bridge brings to the roots of the other regions, and what is shown of that. A root
    /// that is not among them cannot be reached.
    fn bridge_to(&self, others: &mut [&mut Site]) -> Option<(RegionId, Notice)> {
        let (mut bridge, region) = (Bridge::default(), self.seen_by_jobs());
        let shown = Shown::of(&self.machine);
        let mut now = Duration::ZERO;
        for _ in 0..20 {
            for step in bridge.poll(now, &shown, &region) {
                let outcome = match others.iter_mut().find(|site| site.own() == step.to) {
                    Some(other) => other.causal(step.command).map_err(Failure::Refused),
                    None => Err(Failure::NoLeader),
                };
                bridge.answered(step.id, &outcome, now);
            }
            now += Duration::from_millis(100);
        }
        bridge.notice()
    }
}

/// The second site of the second region is the standby of its root.
fn regions_with_standby() -> [Site; 4] {
    let [mut a, mut b, mut c, mut d] = regions();
    let rule = StandbyRule { choice: StandbyChoice::At(d.own()), by_hand: false };
    a.run(change(RegistryChange::SetStandby(rule))).unwrap();
    let registry = a.copy_of_registry();
    [&mut b, &mut c, &mut d].into_iter().for_each(|site| site.learn(&registry));
    [a, b, c, d]
}

/// The first one of three roots writes, and all of them take that.
fn write_and_take(roots: [&mut Site; 3]) {
    let [first, second, third] = roots;
    first.put_cart("v", "5");
    for site in [&mut *first, &mut *second, &mut *third] {
        site.now_ms += 20;
        site.order_own();
    }
    first.bridge_to(&mut [&mut *second, &mut *third]);
    second.bridge_to(&mut [&mut *first, &mut *third]);
    third.bridge_to(&mut [&mut *first, &mut *second]);
}

/// A site gets its keys anew from a root, with what that keeps of the order.
fn resync(root: &Site, to: &mut Site) {
    let (causal, epoch) = (root.machine.causal(), root.epoch());
    let (start, resume) = (causal.order_last(), Bytes::new());
    let ordered = causal.ordered_of(to.own()).unwrap_or_default().0;
    let begin = Resync::Begin { epoch, floor: start, start, ordered, resume: resume.clone() };
    let staged = to.causal(CausalCommand::Resync(begin));
    let Ok(Answer::Staged { chunks: sequence, .. }) = staged else { panic!("{staged:?}") };
    let kept = root.machine.ordered(causal.kept_after(), usize::MAX).unwrap().into_iter();
    let kept = kept.map(|(position, site, write)| ResyncItem::Earlier { position, site, write });
    let records = root.machine.causal_records(None, usize::MAX, &|_| true).unwrap().items;
    let items = kept.chain(records).collect();
    let chunk = Resync::Chunk { start, sequence, resume, items };
    to.causal(CausalCommand::Resync(chunk)).unwrap();
    let switch = Resync::Switch { start, chunks: sequence + 1, upto: start };
    assert_eq!(to.causal(CausalCommand::Resync(switch)), Ok(Answer::Installed));
}

/// The registry is recovered without a site of the second region, whose order goes on where `by`
/// has it.
fn recovered(of: &Registry, by: &Site) -> Registry {
    let mut registry = of.clone();
    let term = Term { number: 1, site: SiteId(1) };
    let version = Ballot { term, round: 0, site: SiteId(1) };
    registry.recover(version, of);
    let region = by.machine.causal().region();
    registry.version = version;
    let epoch = registry.region(region).unwrap().epoch;
    registry.change(&RegistryChange::Rebuild { region, epoch, to: by.own() }).unwrap();
    let epoch = registry.region(region).unwrap().epoch;
    let cut = by.machine.causal().applied();
    registry.change(&RegistryChange::SettleRebuild { region, epoch, cut }).unwrap();
    registry.version.round += 1;
    registry
}

#[test]
fn a_region_that_has_more_of_an_order_than_is_left_gets_all_from_the_cut_on() {
    for more in ["", "1", "12", "123", "1234", "12345678"] {
        let [mut a, mut b, mut c, mut d] = regions_with_standby();
        d.put_cart("x", "1");
        b.order_for(&d);
        let order = whole_order(&b);
        d.import_upto(&order, b.machine.causal().order_last());
        // The rest of the order is lost with the root, and the first region has it.
        a.put_cart("v", "5");
        a.order_own();
        assert_eq!(a.bridge_to(&mut [&mut b, &mut c]), None);
        b.put_cart("y", "2");
        b.order_own();
        d.put_cart("z", "3");
        b.order_for(&d);
        assert_eq!(b.bridge_to(&mut [&mut a, &mut c]), None);
        assert!(a.is_at_end_of(&b));
        let had = b.machine.causal().order_last();
        let registry = recovered(&a.copy_of_registry(), &d);
        [&mut a, &mut c, &mut d].into_iter().for_each(|site| site.learn(&registry));
        let begun = d.machine.causal().order_last();
        assert!(d.machine.is_root() && begun.count() < had.count());
        // Nothing is written behind the cut before both have sent what they had.
        for other in [&mut a, &mut c] {
            d.order_own();
            assert!(!d.machine.causal().is_level(d.machine.region().unwrap()));
            let ordered = d.machine.ordered(begun, usize::MAX).unwrap();
            assert!(
                ordered.iter().all(|(.., write)| write.stamp().is_some_and(|of| of.1.is_some()))
            );
            assert_eq!(other.bridge_to(&mut [&mut d]), None);
        }
        d.order_own();
        for value in more.chars() {
            let value = Box::leak(value.to_string().into_boxed_str());
            d.put_cart("w", value);
            d.order_own();
        }
        for _ in 0..3 {
            d.bridge_to(&mut [&mut a, &mut c]);
            a.bridge_to(&mut [&mut d, &mut c]);
        }
        assert!(a.is_at_end_of(&d) && c.is_at_end_of(&d), "{more}");
        assert!(c.is_at_end_of(&a) && d.is_at_end_of(&a), "{more}");
        assert_eq!(d.bridge_to(&mut [&mut a, &mut c]), None);
        for site in [&mut a, &mut c, &mut d] {
            import(site);
            let carts = ["x", "y", "z", "v", "w"].map(|key| site.cart(key));
            let last = more.chars().last().map(String::from);
            let wanted = ["1", "2", "3", "5"].map(|text| Some(text.to_owned()));
            assert_eq!(carts[..4], wanted, "{}", site.own());
            assert_eq!(carts[4], last, "{}", site.own());
        }
    }
}

#[test]
fn what_a_region_has_lost_and_no_other_one_keeps_is_shown() {
    let [mut a, mut b, mut c, mut d] = regions_with_standby();
    // All regions have it but the site that goes on, so that the first one drops it.
    for _ in 0..4 {
        write_and_take([&mut a, &mut b, &mut c]);
        import(&mut a);
    }
    let upto = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto }).unwrap();
    let dropped = a.machine.causal().kept_after();
    assert!(dropped > Position(0) && !a.keeps_behind(Position(0)));
    let registry = recovered(&a.copy_of_registry(), &d);
    [&mut a, &mut c, &mut d].into_iter().for_each(|site| site.learn(&registry));
    let region = d.machine.causal().region();
    assert_eq!(a.bridge_to(&mut [&mut d, &mut c]), Some((region, Notice::MayLack(dropped))));
    assert!(d.is_at_end_of(&a));
}

/// The first region has taken it, so that the third one cannot take the first one's order before
/// it; and what is ordered behind the cut comes from the first region. The site that goes on has
/// the order before the cut, or nothing of it.
#[test]
fn what_one_region_has_of_a_lost_order_stops_no_other_one() {
    for has_imported in [true, false] {
        let [mut a, mut b, mut c, mut d] = regions_with_standby();
        d.put_cart("x", "1");
        b.order_for(&d);
        if has_imported {
            let order = whole_order(&b);
            d.import_upto(&order, b.machine.causal().order_last());
        }
        b.bridge_to(&mut [&mut a, &mut c]);
        b.put_cart("y", "2");
        b.order_own();
        b.bridge_to(&mut [&mut a]);
        a.put_cart("v", "5");
        a.order_own();
        let registry = recovered(&a.copy_of_registry(), &d);
        [&mut a, &mut c, &mut d].into_iter().for_each(|site| site.learn(&registry));
        a.bridge_to(&mut [&mut d]);
        assert!(d.is_at_end_of(&a) && !c.is_at_end_of(&a), "{has_imported}");
        for _ in 0..2 {
            d.bridge_to(&mut [&mut a, &mut c]);
            a.bridge_to(&mut [&mut d, &mut c]);
        }
        assert!(c.is_at_end_of(&a) && c.is_at_end_of(&d), "{has_imported}");
    }
}

/// It had dropped more of the order than the site that goes on, which lacks the clock that allowed
/// that.
#[test]
fn a_root_that_is_one_no_more_keeps_all_that_a_resync_brings() {
    let [mut a, mut b, mut c, mut d] = regions_with_standby();
    (0..4).for_each(|_| write_and_take([&mut b, &mut a, &mut c]));
    d.import_upto(&whole_order(&b), b.machine.causal().order_last());
    let kept_after = d.machine.causal().kept_after();
    (0..4).for_each(|_| write_and_take([&mut b, &mut a, &mut c]));
    let upto = b.machine.causal().order_last();
    b.causal(CausalCommand::Trim { upto }).unwrap();
    assert!(b.machine.causal().trimmed_upto() > kept_after);
    let registry = recovered(&a.copy_of_registry(), &d);
    [&mut b, &mut d].into_iter().for_each(|site| site.learn(&registry));
    resync(&d, &mut b);
    b.reopen();
    assert!(b.keeps_behind(kept_after));
    assert_eq!(b.machine.causal().order_bytes(), d.machine.causal().order_bytes());
    assert_eq!(b.machine.causal().of_order(), d.machine.causal().of_order());
}
