//! A causal keyspace is cleared: at the root, at a place of the order.

use super::causal::{A, B, CARTS, order, set, three_sites};
use super::causal_expiry::{expire, import, keys, put_for, settle};
use super::*;
use model::{CausalCommand, ChangeKind, Expiring, KeyspaceSpec, NO_SITE, Position, RootStep};

const CLEAR: CausalCommand = CausalCommand::Clear { keyspace: CARTS };

#[test]
fn a_clear_removes_what_lies_before_it_and_no_more() {
    let mut sites = three_sites();
    sites[1].put_cart("x", "1");
    sites[1].write_in(CARTS, put_for("due", "1", 500)).unwrap();
    sites[1].write_in(CARTS, set("h", "f", "1")).unwrap();
    settle(&mut sites);
    let [a, b, c] = &mut sites;
    // Before the clear, as the root has it already; behind it, as it comes later.
    a.put_cart("own", "1");
    b.write_in(CARTS, set("h", "g", "2")).unwrap();
    c.put_cart("x", "2");
    c.write_in(CARTS, expire("h", Expiry::AfterMs(9_000))).unwrap();
    let cleared = a.causal(CLEAR);
    assert_eq!(cleared, Ok(Answer::Placed(a.machine.causal().order_last())));
    assert_eq!(a.machine.causal().ordered_of(A).unwrap().1.count(), 4, "its own come first");
    assert_eq!(a.cart("x").as_deref(), Some("1"), "it is not imported yet");
    import(a);
    assert_eq!((keys(a), a.cart("own")), (Answer::Integer(0), None));
    for site in [&mut *b, c] {
        site.import_from(a).unwrap();
    }
    assert_eq!((keys(b), b.fields("h")), (Answer::Integer(1), vec![("g".into(), "2".into())]));
    assert_eq!((c.cart("x").as_deref(), keys(c)), (Some("2"), Answer::Integer(1)));
    assert_eq!((c.expiry("h"), b.expiry("h")), (Expiring::Absent, Expiring::Never));
    b.reopen();
    c.reopen();
    settle(&mut sites);
    for site in &sites {
        assert_eq!(site.fields("h"), [("g".into(), "2".into())]);
        assert_eq!((site.cart("x").as_deref(), site.cart("due")), (Some("2"), None));
        assert!(matches!(site.expiry("h"), Expiring::AtMs(_)));
        assert_eq!(keys(site), Answer::Integer(2));
    }
    sites[0].wait(9_000);
    settle(&mut sites);
    assert!(sites.iter().all(|site| keys(site) == Answer::Integer(1)));
    for site in &mut sites {
        while site.machine.tick_due_ms() == Some(0) {
            site.tick();
        }
        assert_eq!(site.rows(tables::RECORDS), 1, "nothing is left of what was cleared");
    }
}

#[test]
fn only_the_root_clears_while_it_orders() {
    let mut sites = three_sites();
    let [a, b, _] = &mut sites;
    b.put_cart("x", "1");
    assert!(matches!(b.causal(CLEAR), Err(Refusal::NotCausal(_))));
    let nowhere = CausalCommand::Clear { keyspace: KeyspaceId(9) };
    assert!(matches!(a.causal(nowhere), Err(Refusal::NoKeyspace(_))));
    a.causal(CausalCommand::Root { epoch: 1, step: RootStep::Stop }).unwrap();
    assert!(matches!(a.causal(CLEAR), Err(Refusal::NotCausal(_))));
    assert_eq!(a.machine.causal().order_last(), Position(0));
    assert!(a.machine.ordered(Position(0), usize::MAX).unwrap().is_empty());
    assert_eq!((b.own(), NO_SITE.0), (B, 0));
}

#[test]
fn other_keyspaces_stay_and_watchers_see_the_clear() {
    let mut sites = three_sites();
    let [a, b, _] = &mut sites;
    a.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("more", "more:"))).unwrap();
    b.learn(&a.copy_of_registry());
    let cursor =
        Command::SetCursor { name: "w".into(), keyspace: CARTS, position: b.machine.revision() };
    b.run(cursor).unwrap();
    b.put_cart("x", "1");
    b.write_in(KeyspaceId(2), put("x", "1")).unwrap();
    order(a, b);
    a.causal(CLEAR).unwrap();
    import(a);
    let before = b.machine.revision().0;
    b.import_from(a).unwrap();
    let kinds: Vec<_> = b.changes(CARTS, before).unwrap().iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [ChangeKind::Clear]);
    for site in [&*a, b] {
        assert_eq!(site.ask_in(KeyspaceId(2), Query::Count), Ok(Answer::Integer(1)));
        assert_eq!(keys(site), Answer::Integer(0));
    }
}
