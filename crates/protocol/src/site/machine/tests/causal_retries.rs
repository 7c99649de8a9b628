//! A numbered put at two sites, by hand: what each site shows and keeps of it, also once it is
//! opened again, and what a resync brings.

use super::causal::{A, B, CARTS, order, resync, set, three_sites};
use super::causal_expiry::{import, settle};
use super::*;
use model::{CausalCommand, ClientId, Position, RequestId, Resync, limits};

fn number(sequence: u64) -> RequestId {
    RequestId { client: ClientId(9), sequence, acknowledged_below: 0 }
}

fn numbered(sequence: u64, key: &'static str, value: &'static str) -> CausalCommand {
    let (request, pairs) = (number(sequence), vec![(key.into(), value.into())]);
    CausalCommand::Numbered { request, keyspace: CARTS, pairs }
}

pub(super) fn retry(
    sequence: u64,
    tried: SiteId,
    key: &'static str,
    value: &'static str,
) -> CausalCommand {
    let (request, pairs) = (number(sequence), vec![(key.into(), value.into())]);
    CausalCommand::Retry { request, tried, since: Position(0), keyspace: CARTS, pairs }
}

fn shows(sites: &[Site; 3], key: &'static str, value: &str) {
    for site in sites {
        assert_eq!(site.cart(key).as_deref(), Some(value), "{:?}", site.own());
    }
}

#[test]
fn the_first_site_shows_the_retry_over_what_it_wrote_before_also_when_opened_again() {
    let mut sites = three_sites();
    let [a, b, c] = &mut sites;
    b.put_cart("x", "w");
    b.write_in(
        CARTS,
        Write::PutMany {
            pairs: vec![("x".into(), "w2".into()), ("y".into(), "1".into())],
            if_all_absent: false,
        },
    )
    .unwrap();
    b.causal(numbered(1, "x", "u")).unwrap();
    b.put_cart("z", "1");
    assert!(matches!(a.causal(retry(1, B, "x", "u")), Ok(Answer::Placed(_))));
    import(a);
    c.import_from(a).unwrap();
    c.put_cart("x", "v");
    order(a, c);
    import(a);
    b.import_from(a).unwrap();
    assert_eq!(b.cart("x").as_deref(), Some("v"), "what comes behind the retry shows");
    b.reopen();
    // The same again, late, and at any site.
    for site in [&mut *b, &mut *c] {
        assert!(matches!(site.causal(numbered(1, "x", "late")), Ok(Answer::Put { .. })));
    }
    c.reopen();
    a.reopen();
    settle(&mut sites);
    shows(&sites, "x", "v");
    shows(&sites, "y", "1");
    shows(&sites, "z", "1");
    settle(&mut sites);
    assert_eq!(open_retries(&sites[0]), 0, "it is closed");
}

/// How many retries a root keeps open.
pub(super) fn open_retries(root: &Site) -> usize {
    let is_open = |item: &&model::ResyncItem| matches!(item, model::ResyncItem::Retried(retry) if retry.closed.is_none());
    root.machine.retries().iter().filter(is_open).count()
}

#[test]
fn a_write_that_has_its_place_is_not_ordered_again() {
    let mut sites = three_sites();
    sites[1].causal(numbered(1, "x", "u")).unwrap();
    let revision = sites[1].machine.causal().last_revision();
    assert!(revision > Revision(0), "it is a write of its own");
    let made = |version| Ok(Answer::Put { applied: true, version, old: None });
    assert_eq!(sites[1].causal(numbered(1, "x", "u")), made(revision));
    settle(&mut sites);
    assert_eq!(sites[1].causal(numbered(1, "x", "u")), made(revision), "it has its place");
    sites[1].reopen();
    assert_eq!(sites[1].causal(numbered(1, "x", "u")), made(revision));
    assert_eq!(sites[2].causal(numbered(1, "x", "u")), made(Revision(0)), "another one made it");
    let end = sites[0].machine.causal().order_last();
    assert_eq!(sites[0].causal(retry(1, B, "x", "u")), Ok(Answer::Placed(end)));
    // At the root's own site, where it has no place yet.
    let first = sites[0].causal(numbered(2, "y", "u"));
    let own = sites[0].causal(retry(2, A, "y", "u")).unwrap();
    assert_eq!(own, Answer::Placed(sites[0].machine.causal().order_last()));
    assert_eq!(sites[0].causal(retry(2, A, "y", "u")), Ok(own), "any number of times");
    assert_eq!(sites[0].causal(numbered(2, "y", "u")), first);
    settle(&mut sites);
    shows(&sites, "y", "u");
}

#[test]
fn what_cannot_be_retried_is_refused() {
    let [mut a, mut b, _] = three_sites();
    assert!(matches!(b.causal(retry(1, B, "x", "u")), Err(Refusal::NotCausal(_))), "no root");
    assert!(matches!(a.causal(retry(1, SiteId(9), "x", "u")), Err(Refusal::NotCausal(_))));
    let max = limits::CAUSAL_RETRIES_OPEN_MAX as u64;
    for sequence in 1..=max {
        a.causal(retry(sequence, B, "x", "u")).unwrap();
    }
    let full = a.causal(retry(max + 1, B, "x", "u"));
    assert!(matches!(full, Err(Refusal::TooMany { .. })), "{full:?}");
    // The site is back: it has imported all, and reports that. What all have imported is trimmed.
    import(&mut a);
    b.import_from(&a).unwrap();
    order(&mut a, &b);
    let upto = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto }).unwrap();
    a.causal(retry(max + 1, B, "x", "u")).unwrap();
}

#[test]
fn a_resync_brings_the_retries_that_the_site_may_offer_to() {
    let mut sites = three_sites();
    let [a, b, c] = &mut sites;
    b.put_cart("x", "w");
    b.causal(numbered(1, "x", "u")).unwrap();
    b.write_in(CARTS, set("h", "f", "1")).unwrap();
    a.causal(retry(1, B, "x", "u")).unwrap();
    import(a);
    c.import_from(a).unwrap();
    c.put_cart("x", "v");
    order(a, c);
    import(a);
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    c.put_cart("more", "1");
    order(a, c);
    let upto = a.machine.causal().order_last();
    let chunks = resync(a, b, start, start).unwrap();
    b.reopen();
    let switch = CausalCommand::Resync(Resync::Switch { start, chunks, upto });
    assert_eq!(b.causal(switch), Ok(Answer::Installed));
    assert_eq!(b.cart("x").as_deref(), Some("v"), "under it lies what was written before");
    b.reopen();
    settle(&mut sites);
    shows(&sites, "x", "v");
    assert_eq!(sites[2].fields("h").len(), 1);
    settle(&mut sites);
    assert_eq!(open_retries(&sites[0]), 0, "it is closed");
}

#[test]
fn a_first_attempt_after_a_resync_is_not_a_new_write() {
    let mut sites = three_sites();
    let [a, b, c] = &mut sites;
    let made = |version| Ok(Answer::Put { applied: true, version, old: None });
    // The place of the first is known here; that of the second comes with a resync; the third has
    // none.
    let put = |b: &mut Site, sequence, key| {
        b.causal(numbered(sequence, key, "u")).unwrap();
        b.machine.causal().last_revision()
    };
    let first = put(b, 1, "x");
    order(a, b);
    import(a);
    b.import_from(a).unwrap();
    let second = put(b, 2, "y");
    order(a, b);
    import(a);
    c.import_from(a).unwrap();
    let third = put(b, 3, "z");
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    let chunks = resync(a, b, start, start).unwrap();
    let switch = CausalCommand::Resync(Resync::Switch { start, chunks, upto: start });
    assert_eq!(b.causal(switch), Ok(Answer::Installed));
    for _ in 0..2 {
        for (sequence, key, version) in [(1, "x", first), (2, "y", second), (3, "z", third)] {
            assert_eq!(b.causal(numbered(sequence, key, "late")), made(version), "{key}");
        }
        b.reopen();
    }
    settle(&mut sites);
    for key in ["x", "y", "z"] {
        shows(&sites, key, "u");
    }
}

#[test]
fn a_late_attempt_after_a_resync_is_not_a_new_write() {
    let mut sites = three_sites();
    let [a, b, c] = &mut sites;
    // The first attempt is on its way to B. The root makes the put, B reports that it has it, and
    // gets its keys anew.
    a.causal(retry(1, B, "x", "u")).unwrap();
    import(a);
    b.import_from(a).unwrap();
    order(a, b);
    c.put_cart("x", "v");
    order(a, c);
    import(a);
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    let chunks = resync(a, b, start, start).unwrap();
    let switch = CausalCommand::Resync(Resync::Switch { start, chunks, upto: start });
    assert_eq!(b.causal(switch), Ok(Answer::Installed));
    for _ in 0..2 {
        let late = b.causal(numbered(1, "x", "u"));
        assert_eq!(late, Ok(Answer::Put { applied: true, version: Revision(0), old: None }));
        b.reopen();
    }
    settle(&mut sites);
    shows(&sites, "x", "v");
}

#[test]
fn two_first_attempts_leave_the_sites_alike() {
    let mut sites = three_sites();
    let [a, b, c] = &mut sites;
    b.causal(numbered(1, "x", "u")).unwrap();
    c.causal(numbered(1, "x", "u")).unwrap();
    order(a, b);
    a.put_cart("x", "w");
    order(a, c);
    settle(&mut sites);
    let shown = sites[0].cart("x");
    shows(&sites, "x", &shown.expect("a value"));
}

/// The site has imported the retry, and written over it, before it gets its keys anew; the root has
/// none of its writes.
#[test]
fn what_was_written_over_a_retry_stays_over_it_in_a_resync() {
    let mut sites = three_sites();
    let [a, b, c] = &mut sites;
    assert!(matches!(a.causal(retry(1, B, "x", "u")), Ok(Answer::Placed(_))));
    import(a);
    b.import_from(a).unwrap();
    b.put_cart("x", "w");
    c.import_from(a).unwrap();
    c.put_cart("more", "1");
    order(a, c);
    import(a);
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    let chunks = resync(a, b, start, start).unwrap();
    b.reopen();
    let switch = CausalCommand::Resync(Resync::Switch { start, chunks, upto: start });
    assert_eq!(b.causal(switch), Ok(Answer::Installed));
    assert_eq!(b.cart("x").as_deref(), Some("w"));
    b.reopen();
    settle(&mut sites);
    shows(&sites, "x", "w");
}
