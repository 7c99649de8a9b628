//! Causal keys: a site that was restored from a backup, by hand.

use super::causal::{A, B, C, CARTS, change, order, resync, three_sites};
use super::causal_expiry::{import, settle};
use super::causal_retries::{open_retries, retry};
use super::causal_roots::{at, whole_order};
use super::restored::restored;
use super::*;
use crate::site::machine::causal::session::Lacks;
use model::{
    Ballot, CausalCommand, CausalToken, Import, LastOrdered, Position, RegionId, RegistryChange,
    Resync, SlotEpochs, Standby, StandbyChoice, StandbyRule, StandbyStep,
};

const REGION: RegionId = RegionId(1);

fn rejoin(site: &mut Site, since: Ballot, epoch: u16) -> Result<Answer, Refusal> {
    site.causal(CausalCommand::Standby { since, step: StandbyStep::Rejoin { epoch } })
}

fn confirm(site: &mut Site) {
    let (revision, later) = (Revision(0), SlotEpochs::default());
    let above = DeploymentCommand::ConfirmAbove { revision, later };
    site.run(Command::Deployment(above)).unwrap();
}

fn standby_of(site: &Site) -> Standby {
    site.machine.region().unwrap().standby.unwrap()
}

#[test]
fn a_restored_standby_neither_freezes_nor_comes_in_sync_before_it_is_none_of_before() {
    let [mut a, mut b, _] = three_sites();
    let rule = StandbyRule { choice: StandbyChoice::At(B), by_hand: false };
    a.run(change(RegistryChange::SetStandby(rule))).unwrap();
    let sync = |a: &mut Site, in_sync| {
        let since = standby_of(a).since;
        let change_of = RegistryChange::SyncStandby { region: REGION, epoch: 1, since, in_sync };
        a.run(change(change_of)).unwrap();
    };
    sync(&mut a, true);
    b.learn(&a.copy_of_registry());
    let mut b = restored(&b);
    let since = standby_of(&b).since;
    let freeze = |since| CausalCommand::Standby { since, step: StandbyStep::Freeze };
    assert!(b.causal(freeze(since)).is_err());
    assert!(rejoin(&mut b, since, 1).is_err(), "by the registry it is in sync");
    let sites = vec![LastOrdered { site: C, revision: Revision(1), position: at(1, 1) }];
    let handed = CausalCommand::Ordered { epoch: 1, sites };
    assert!(b.causal(handed.clone()).is_err());
    sync(&mut a, false);
    b.learn(&a.copy_of_registry());
    assert!(rejoin(&mut b, since, 1).is_err(), "of another version");
    assert!(rejoin(&mut b, standby_of(&a).since, 2).is_err(), "of another epoch");
    assert!(b.machine.causal().is_restored());
    rejoin(&mut b, standby_of(&a).since, 1).unwrap();
    b.reopen();
    assert!(!b.machine.causal().is_restored());
    b.causal(handed).unwrap();
    sync(&mut a, true);
    b.learn(&a.copy_of_registry());
    b.causal(freeze(standby_of(&a).since)).unwrap();
}

#[test]
fn a_restored_root_orders_in_another_epoch_only() {
    let [mut a, mut b, mut c] = three_sites();
    c.put_cart("x", "1");
    a.order_of(c.all_for(&a), 1).unwrap();
    let backup = a.twin();
    c.put_cart("x", "2");
    a.order_of(c.all_for(&a), 1).unwrap();
    let order = whole_order(&a);
    c.import_upto(&order, at(1, 2));
    let mut a = restored(&backup);
    c.put_cart("x", "3");
    let region = *a.machine.region().unwrap();
    assert!(!a.machine.causal().has_begun(&region));
    assert!(a.order_of(c.all_for(&c), 1).is_err(), "the second position is given");
    a.run(change(RegistryChange::Rebuild { region: REGION, epoch: 1, to: A })).unwrap();
    let epoch = a.machine.region().unwrap().epoch;
    a.run(change(RegistryChange::Rebuild { region: REGION, epoch, to: C })).unwrap();
    let epoch = a.machine.region().unwrap().epoch;
    let settled = RegistryChange::SettleRebuild { region: REGION, epoch, cut: at(1, 2) };
    a.run(change(settled)).unwrap();
    let registry = a.copy_of_registry();
    [&mut b, &mut c].into_iter().for_each(|site| site.learn(&registry));
    assert_eq!(c.machine.causal().applied(), at(epoch, 2));
    assert_eq!(a.machine.causal().applied(), Position(0), "it gets its keys anew");
    rejoin(&mut a, Ballot::FIRST, epoch).unwrap();
    assert!(!a.machine.causal().is_restored());
    c.order_of(c.all_for(&c), epoch).unwrap();
    assert_eq!(c.machine.causal().order_last(), at(epoch, 3));
}

#[test]
fn own_writes_that_a_backup_lacks_come_with_the_order() {
    let [mut a, mut b, _] = three_sites();
    b.put_cart("x", "1");
    b.put_cart("y", "1");
    let backup = b.twin();
    b.put_cart("x", "2");
    b.put_cart("z", "2");
    a.order_of(b.all_for(&a), 1).unwrap();
    let order = whole_order(&a);
    let last = b.machine.causal().last_revision();
    let mut b = restored(&backup);
    let refused = b.write_in(CARTS, put("x", "new"));
    assert!(matches!(refused, Err(Refusal::NotCausal(_))), "{refused:?}");
    confirm(&mut b);
    b.reopen();
    b.put_cart("w", "new");
    assert!(b.machine.causal().last_revision() > last);
    let token = |revision| {
        let written = Some((B, revision));
        CausalToken { region: REGION, seen: at(0, 0), written }
    };
    let reader = b.machine.reader();
    assert_eq!(reader.lacks(&token(last)), Some(Lacks::PositionOf(B, last)));
    assert_eq!(reader.lacks(&token(b.machine.causal().last_revision())), None);
    let lacked = b.machine.causal().lacks_own().unwrap();
    let entry = |(position, site, write): (_, SiteId, model::CausalWrite)| {
        let is_lacked = lacked.0 < write.revision && write.revision <= lacked.1;
        match site == B && !is_lacked {
            true => Import::Own(position),
            false => Import::Other { position, site, write },
        }
    };
    let entries: Vec<_> = order.into_iter().map(entry).collect();
    let own = entries.iter().filter(|entry| matches!(entry, Import::Own(_))).count();
    assert_eq!((own, entries.len()), (2, 4));
    let (from, upto) = (b.machine.causal().applied(), at(1, 4));
    b.causal(CausalCommand::Import { from, upto, entries }).unwrap();
    let found: Vec<_> = ["x", "y", "z", "w"].into_iter().map(|key| b.cart(key)).collect();
    let texts = ["2", "1", "2", "new"].map(|text| Some(text.to_owned()));
    assert_eq!(found, texts);
    assert_eq!(b.machine.causal().own_ordered(), last);
    b.reopen();
    a.order_of(b.all_for(&a), 1).unwrap();
    assert_eq!(a.machine.causal().order_last(), at(1, 5));
    b.import_upto(&whole_order(&a), at(1, 5));
    assert_eq!(b.machine.causal().unordered_bytes(), 0);
    assert_eq!(b.machine.reader().lacks(&token(last)), None);
}

/// The root keeps a retry open until the site that was asked first has marked it, and takes no more
/// than so many.
#[test]
fn retries_that_come_before_a_restored_site_is_confirmed_are_closed() {
    // They come with the order, or with the keys anew.
    for is_anew in [false, true] {
        let mut sites = three_sites();
        let [a, b, c] = &mut sites;
        b.put_cart("x", "w");
        order(a, b);
        import(a);
        *b = restored(b);
        a.causal(retry(1, B, "x", "u")).unwrap();
        a.causal(retry(2, B, "y", "u")).unwrap();
        import(a);
        c.import_from(a).unwrap();
        match is_anew {
            false => {
                b.import_from(a).unwrap();
            }
            true => {
                let start = a.machine.causal().order_last();
                a.causal(CausalCommand::Trim { upto: start }).unwrap();
                let chunks = resync(a, b, start, start).unwrap();
                let switch = CausalCommand::Resync(Resync::Switch { start, chunks, upto: start });
                assert_eq!(b.causal(switch), Ok(Answer::Installed));
            }
        }
        assert_eq!(b.machine.causal().unordered_bytes(), 0, "it writes nothing yet");
        confirm(b);
        b.reopen();
        settle(&mut sites);
        settle(&mut sites);
        let [a, b, _] = &sites;
        assert_eq!(open_retries(a), 0, "anew: {is_anew}");
        assert_eq!(b.machine.causal().unordered_bytes(), 0);
        assert_eq!(b.cart("x").as_deref(), Some("u"));
    }
}
