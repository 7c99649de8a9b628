//! Causal keys that expire: by the root's log time, where the order contains that, and at no site
//! before that.

use super::super::causal::session::SessionRead;
use super::causal::{CARTS, change, delete, order, order_own, set, three_sites, unset};
use super::*;
use model::{
    CausalCommand, CausalToken, Effect, Expiring, ExpiryCondition, KeyspaceSpec, RegionId,
    RegistryChange, Rmw, limits,
};

pub(super) fn put_for(key: &'static str, value: &'static str, after_ms: u64) -> Write {
    put_with(key, value, Condition::Always, Expiry::AfterMs(after_ms))
}

pub(super) fn expire(key: &'static str, expiry: Expiry) -> Write {
    Write::SetExpiry { key: key.into(), expiry, condition: ExpiryCondition::Always }
}

impl Site {
    pub(super) fn expiry(&self, key: &'static str) -> Expiring {
        match self.ask_in(CARTS, Query::Expiry { key: key.into() }).unwrap() {
            Answer::Expiry(expiring) => expiring,
            other => panic!("{other:?}"),
        }
    }

    /// So much time passes here, and an entry brings it.
    pub(super) fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.tick();
    }

    fn due_ms(&self) -> Option<u64> {
        self.machine.tick_due_ms()
    }
}

/// Everything that each site has written gets its place, and every site imports all.
pub(super) fn settle(sites: &mut [Site; 3]) {
    let [a, b, c] = sites;
    for _ in 0..2 {
        order_own(a);
        order(a, b);
        order(a, c);
        import(a);
        for site in [&mut *b, &mut *c] {
            site.import_from(a).unwrap();
        }
    }
    assert_eq!(a.machine.causal().applied(), a.machine.causal().order_last());
}

pub(super) fn import(root: &mut Site) {
    let twin = root.twin();
    root.import_from(&twin).unwrap();
}

pub(super) fn keys(site: &Site) -> Answer {
    site.ask_in(CARTS, Query::Count).unwrap()
}

/// Records of a region that has ended go as garbage, a part of them a tick: until then their
/// expiries are there, at a node that goes on as at one that starts.
#[test]
fn what_is_kept_of_expiries_outlasts_a_region() {
    let [mut a, ..] = three_sites();
    a.write_in(CARTS, put_for("x", "1", 500)).unwrap();
    order_own(&mut a);
    import(&mut a);
    let due = a.due_ms();
    assert!(due.is_some());
    a.run(Command::DropKeyspace { name: "carts".into() }).unwrap();
    a.run(change(RegistryChange::Leave(a.own()))).unwrap();
    a.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("more", "more:"))).unwrap();
    assert_eq!(a.machine.causal().region(), RegionId(2));
    a.reopen();
    a.tick();
    a.reopen();
}

/// X12 within a region: the root's time removes a key at a place of the order, and nothing else
/// does.
#[test]
fn a_key_goes_by_the_roots_time_at_every_site() {
    let mut sites = three_sites();
    sites[1].write_in(CARTS, put_for("x", "1", 500)).unwrap();
    settle(&mut sites);
    let [a, b, c] = &mut sites;
    let moment = b.now_ms + 500;
    for site in [&*a, b, c] {
        assert_eq!(site.expiry("x"), Expiring::AtMs(moment));
    }
    assert_eq!((a.due_ms(), b.due_ms(), c.due_ms()), (Some(moment), None, None));
    // Their clocks are ahead.
    for site in [&mut *b, c] {
        site.wait(10_000);
        assert_eq!((site.cart("x").as_deref(), keys(site)), (Some("1"), Answer::Integer(1)));
        assert_eq!(site.expiry("x"), Expiring::AtMs(moment));
    }
    a.wait(499);
    assert_eq!(a.machine.causal().order_last().count(), 1);
    a.wait(1);
    let ordered = a.machine.ordered(a.machine.causal().applied(), usize::MAX).unwrap();
    let [(_, model::NO_SITE, write)] = &ordered[..] else { panic!("{ordered:?}") };
    let revision = b.machine.causal().last_revision();
    let expire = Effect::Expire { key: "x".into(), site: b.own(), revision };
    assert_eq!((&write.effects[..], write.keyspace), (&[expire][..], CARTS));
    assert_eq!(a.cart("x").as_deref(), Some("1"), "it is not imported yet");
    assert_eq!(a.due_ms(), None, "it is ordered");
    a.wait(1_000);
    assert_eq!(a.machine.causal().order_last().count(), 2, "once");
    settle(&mut sites);
    for site in &mut sites {
        assert_eq!((site.cart("x"), keys(site)), (None, Answer::Integer(0)));
        assert_eq!((site.expiry("x"), site.due_ms()), (Expiring::Absent, None));
        assert!(site.machine.causal().ordered_of(model::NO_SITE).is_none());
        site.reopen();
    }
}

#[test]
fn what_was_put_or_prolonged_since_stays() {
    let mut sites = three_sites();
    let keep = |value| put_with("keep", value, Condition::Always, Expiry::Keep);
    for key in ["put", "prolonged", "root", "keep"] {
        sites[1].write_in(CARTS, put_for(key, "1", 500)).unwrap();
    }
    settle(&mut sites);
    let [a, b, c] = &mut sites;
    b.write_in(CARTS, put("put", "2")).unwrap();
    c.write_in(CARTS, expire("prolonged", Expiry::AfterMs(5_000))).unwrap();
    a.write_in(CARTS, put("root", "2")).unwrap();
    b.write_in(CARTS, keep("2")).unwrap();
    // Ordered, and not imported at the root.
    order(a, b);
    order(a, c);
    a.wait(1_000);
    let count = a.machine.causal().order_last().count();
    assert_eq!(count, 4 + 3 + 1, "of `keep` no site has set the expiry");
    settle(&mut sites);
    sites[0].wait(1);
    settle(&mut sites);
    for site in &sites {
        assert_eq!(site.cart("put").as_deref(), Some("2"));
        assert_eq!(site.expiry("put"), Expiring::Never);
        assert_eq!(site.cart("prolonged").as_deref(), Some("1"));
        assert_eq!(site.cart("root").as_deref(), Some("2"));
        assert_eq!(site.cart("keep"), None);
    }
    sites[0].wait(5_000);
    settle(&mut sites);
    assert!(sites.iter().all(|site| site.cart("prolonged").is_none()));
}

#[test]
#[cfg(feature = "trial")]
fn an_expiry_by_what_the_root_has_imported_is_found() {
    use crate::bugs::{Bug, Planted};
    let mut sites = three_sites();
    sites[1].write_in(CARTS, put_for("x", "1", 500)).unwrap();
    settle(&mut sites);
    let [a, b, _] = &mut sites;
    a.machine.plant(Planted::of(Bug::ExpireUnseen));
    b.write_in(CARTS, put("x", "2")).unwrap();
    order(a, b);
    a.wait(1_000);
    settle(&mut sites);
    assert_eq!(sites[1].cart("x"), None, "what was put since is gone");
}

/// The expiry is a register of its own: it is there without the key, as what is written next may
/// come behind it.
#[test]
fn an_expiry_without_its_key_is_kept_alike() {
    let mut sites = three_sites();
    sites[1].write_in(CARTS, set("h", "f", "1")).unwrap();
    settle(&mut sites);
    let [a, b, c] = &mut sites;
    // None of the three has seen the others.
    c.write_in(CARTS, unset("h", "f")).unwrap();
    b.write_in(CARTS, expire("h", Expiry::AfterMs(500))).unwrap();
    a.write_in(CARTS, set("h", "g", "2")).unwrap();
    order(a, c);
    order(a, b);
    import(a);
    c.import_from(a).unwrap();
    assert_eq!((c.expiry("h"), keys(c)), (Expiring::Absent, Answer::Integer(0)));
    c.reopen();
    assert_eq!(a.fields("h").len(), 1, "its own is pending");
    settle(&mut sites);
    for site in &sites {
        assert_eq!(site.fields("h"), [("g".into(), "2".into())]);
        assert!(matches!(site.expiry("h"), Expiring::AtMs(_)));
    }
    sites[0].wait(500);
    settle(&mut sites);
    for site in &sites {
        assert_eq!((site.fields("h").len(), keys(site)), (0, Answer::Integer(0)));
    }
}

#[test]
fn a_pending_write_stays_on_top_of_an_expiry() {
    let mut sites = three_sites();
    sites[1].write_in(CARTS, set("h", "f", "1")).unwrap();
    sites[1].write_in(CARTS, expire("h", Expiry::AfterMs(100))).unwrap();
    sites[1].write_in(CARTS, put_for("x", "1", 100)).unwrap();
    settle(&mut sites);
    let [a, b, c] = &mut sites;
    c.write_in(CARTS, set("h", "g", "2")).unwrap();
    c.write_in(CARTS, expire("x", Expiry::AfterMs(9_000))).unwrap();
    a.wait(100);
    import(a);
    for site in [&mut *b, c] {
        site.import_from(a).unwrap();
    }
    assert_eq!(b.cart("x"), None);
    assert_eq!((c.cart("x"), c.fields("h").len()), (None, 1), "only what is pending is left");
    settle(&mut sites);
    for site in &sites {
        assert_eq!((site.fields("h").len(), site.cart("x")), (1, None));
        assert_eq!(site.expiry("h"), Expiring::Never, "the field was written behind the expiry");
    }
    // The moment that was set behind the removal goes too, once it has come.
    assert_eq!(sites[0].rows(tables::RECORDS), 2);
    sites[0].wait(9_000);
    settle(&mut sites);
    assert!(sites.iter().all(|site| site.rows(tables::RECORDS) == 1));
}

#[test]
fn a_site_answers_as_redis_does() {
    let mut sites = three_sites();
    let a = &mut sites[0];
    assert_eq!(a.write_in(CARTS, expire("x", Expiry::AfterMs(5))), Ok(Answer::Flag(false)));
    a.write_in(CARTS, put("x", "1")).unwrap();
    assert_eq!(a.write_in(CARTS, expire("x", Expiry::Never)), Ok(Answer::Flag(false)));
    assert_eq!(a.write_in(CARTS, expire("x", Expiry::AfterMs(5_000))), Ok(Answer::Flag(true)));
    assert_eq!(a.expiry("x"), Expiring::AtMs(6_000));
    let get = |expiry| Write::GetAndExpire { key: "x".into(), expiry };
    let Ok(Answer::Value(Some(found))) = a.write_in(CARTS, get(Expiry::AtLogMs(7_000))) else {
        panic!("no value")
    };
    assert_eq!((found.value, a.expiry("x")), ("1".into(), Expiring::AtMs(7_000)));
    a.write_in(CARTS, put_with("x", "2", Condition::Always, Expiry::Keep)).unwrap();
    assert_eq!(a.expiry("x"), Expiring::AtMs(7_000));
    assert_eq!(a.write_in(CARTS, expire("x", Expiry::Never)), Ok(Answer::Flag(true)));
    assert_eq!(a.expiry("x"), Expiring::Never);
    let condition = ExpiryCondition::IfNone;
    let guarded = Write::SetExpiry { key: "x".into(), expiry: Expiry::AfterMs(5), condition };
    assert!(matches!(a.write_in(CARTS, guarded), Err(Refusal::NotCausal(_))));
    // A moment that has passed removes the key, as the client wants it to.
    assert_eq!(a.write_in(CARTS, expire("x", Expiry::AtLogMs(1))), Ok(Answer::Flag(true)));
    assert_eq!(a.cart("x"), None);
    // A hash that begins anew has no expiry.
    a.write_in(CARTS, set("h", "f", "1")).unwrap();
    a.write_in(CARTS, expire("h", Expiry::AfterMs(50))).unwrap();
    a.write_in(CARTS, unset("h", "f")).unwrap();
    a.write_in(CARTS, set("h", "f", "2")).unwrap();
    assert_eq!(a.expiry("h"), Expiring::Never);
    a.write_in(CARTS, put_for("y", "1", 50)).unwrap();
    a.write_in(CARTS, delete("y")).unwrap();
    assert_eq!((a.expiry("y"), keys(a)), (Expiring::Absent, Answer::Integer(1)));
    settle(&mut sites);
    sites[0].wait(1_000);
    assert!(sites.iter().all(|site| site.fields("h").len() == 1 && site.cart("y").is_none()));
}

#[test]
fn where_a_site_decides_it_keeps_and_sets_expiries() {
    let mut sites = three_sites();
    let spec = KeyspaceSpec::causal_region("tallies", "t:");
    sites[0].run(Command::CreateKeyspace(KeyspaceSpec { rmw: Rmw::Local, ..spec })).unwrap();
    let (a, tallies) = (&mut sites[0], KeyspaceId(2));
    let lock = put_with("lock", "me", Condition::IfAbsent, Expiry::AfterMs(500));
    let taken = |answer: Answer| matches!(answer, Answer::Put { applied: true, .. });
    assert!(taken(a.write_in(tallies, lock.clone()).unwrap()));
    assert!(!taken(a.write_in(tallies, lock.clone()).unwrap()));
    let expiry = |a: &Site, key: &'static str| a.ask_in(tallies, Query::Expiry { key: key.into() });
    assert_eq!(expiry(a, "lock"), Ok(Answer::Expiry(Expiring::AtMs(1_500))));
    a.write_in(tallies, put_for("n", "1", 500)).unwrap();
    a.write_in(tallies, Write::Add { key: "n".into(), delta: 1 }).unwrap();
    assert_eq!(expiry(a, "n"), Ok(Answer::Expiry(Expiring::AtMs(1_500))));
    let prolong = |condition, ms| Write::SetExpiry {
        key: "n".into(),
        expiry: Expiry::AfterMs(ms),
        condition,
    };
    for (condition, ms, is_done) in [
        (ExpiryCondition::IfNone, 900, false),
        (ExpiryCondition::IfLater, 400, false),
        (ExpiryCondition::IfLater, 900, true),
        (ExpiryCondition::IfSome, 800, true),
    ] {
        assert_eq!(a.write_in(tallies, prolong(condition, ms)), Ok(Answer::Flag(is_done)));
    }
    // A lock whose holder is gone is free again.
    order_own(a);
    import(a);
    a.wait(500);
    import(a);
    assert!(taken(a.write_in(tallies, lock).unwrap()));
}

#[test]
fn who_does_not_order_lets_nothing_expire_and_the_next_root_does() {
    let mut sites = three_sites();
    sites[1].write_in(CARTS, put_for("x", "1", 100)).unwrap();
    settle(&mut sites);
    let [a, ..] = &mut sites;
    a.causal(CausalCommand::Root { epoch: 1, step: model::RootStep::Stop }).unwrap();
    a.wait(1_000);
    assert_eq!((a.machine.causal().order_last().count(), a.due_ms()), (1, None));
    a.causal(CausalCommand::Root { epoch: 1, step: model::RootStep::Resume }).unwrap();
    assert!(a.due_ms().is_some_and(|due| due < a.now_ms));
    a.tick();
    assert_eq!(a.machine.causal().order_last().count(), 2);
}

#[test]
fn a_keyspace_that_is_dropped_takes_its_moments_along() {
    let mut sites = three_sites();
    sites[1].write_in(CARTS, put_for("x", "1", 100)).unwrap();
    settle(&mut sites);
    let [a, ..] = &mut sites;
    a.run(Command::DropKeyspace { name: "carts".into() }).unwrap();
    while a.due_ms() == Some(0) {
        a.tick();
    }
    assert_eq!((a.due_ms(), a.rows(tables::RECORDS)), (None, 0));
    a.reopen();
    assert_eq!(a.machine.spec(CARTS), None);
}

/// Of a string whose value and expiry are of two writes a session has seen both.
#[test]
fn a_string_of_two_writes_is_seen_as_both() {
    let keep = put_with("x", "2", Condition::Always, Expiry::Keep);
    let later = expire("x", Expiry::AfterMs(9_000));
    for (own, other) in [(keep.clone(), later.clone()), (later, keep)] {
        let mut sites = three_sites();
        sites[0].put_cart("x", "1");
        settle(&mut sites);
        let [a, b, c] = &mut sites;
        b.write_in(CARTS, own).unwrap();
        c.write_in(CARTS, other).unwrap();
        let written = Some((b.own(), b.machine.causal().last_revision()));
        for (site, written) in [(SiteId(3), written), (b.own(), None)] {
            order(a, if site == b.own() { b } else { c });
            import(a);
            b.import_from(a).unwrap();
            b.reopen();
            for query in [Query::Get { key: "x".into() }, Query::Expiry { key: "x".into() }] {
                let begins = CausalToken::default();
                let SessionRead::Answered(Ok(_), token) = b.read_in_session(CARTS, &query, begins)
                else {
                    panic!("not answered")
                };
                let seen = a.machine.causal().order_last();
                assert_eq!((token.seen, token.written), (seen, written), "{query:?}");
            }
        }
    }
}

/// The moments of keys that a clear has removed keep no other key from expiring.
#[test]
fn keys_expire_behind_many_that_were_cleared() {
    let mut sites = three_sites();
    let a = &mut sites[0];
    for number in 0..2 * limits::EXPIRED_PER_ENTRY_MAX {
        let key = format!("k{number}").leak();
        a.write_in(CARTS, put_for(key, "1", 500)).unwrap();
    }
    settle(&mut sites);
    sites[0].causal(CausalCommand::Clear { keyspace: CARTS }).unwrap();
    sites[0].write_in(CARTS, put_for("x", "1", 600)).unwrap();
    settle(&mut sites);
    let a = &mut sites[0];
    let before = a.machine.causal().order_last().count();
    (0..4).for_each(|_| a.wait(1_000));
    assert_eq!(a.machine.causal().order_last().count(), before + 1);
}
