//! A causal keyspace that two of three sites hold, and the third one on demand.

use super::super::causal::session::{Lacks, SessionRead};
use super::causal::*;
use super::*;
use model::{
    Bytes, CausalCommand, CausalToken, CausalWrite, Effect, Import, KeyspaceSpec, Mark, Miss,
    NO_KEYSPACE, Position, Resync, Step, key_hash, limits,
};

const PLANS: KeyspaceId = KeyspaceId(2);
const HELD_BYTES_MAX: u64 = limits::CAUSAL_HELD_BYTES_MIN;

fn two_and_one() -> [Site; 3] {
    let [mut a, mut b, mut c] = three_sites();
    let miss = Miss::Fetch { held_bytes_max: HELD_BYTES_MAX };
    let spec = KeyspaceSpec::causal_region("plans", "plan:");
    let spec = KeyspaceSpec { sites: vec![A, B], miss, ..spec };
    a.run(Command::CreateKeyspace(spec)).unwrap();
    for site in [&mut b, &mut c] {
        site.learn(&a.copy_of_registry());
    }
    [a, b, c]
}

fn fetch(root: &mut Site, keys: &[&'static str]) -> Position {
    let keys: Vec<Bytes> = keys.iter().map(|key| Bytes::from(*key)).collect();
    let count = keys.len() as i64;
    let fetch = CausalCommand::Fetch { epoch: 1, site: C, keyspace: PLANS, keys };
    assert_eq!(root.causal(fetch), Ok(Answer::Integer(count)));
    root.machine.causal().order_last()
}

fn evict(site: &mut Site, keys: &[&'static str]) {
    let keys = keys.iter().map(|key| Bytes::from(*key)).collect();
    site.causal(CausalCommand::Evict { keyspace: PLANS, keys }).unwrap();
}

/// A write as it is imported at a site: without its effects, if it touches nothing there.
fn as_imported(site: &Site, write: CausalWrite) -> CausalWrite {
    let own = site.own();
    let is_for_another = |effect: &Effect| matches!(effect, Effect::Mark(Mark::Fetched { site, .. }) if *site != own);
    if write.effects.iter().any(is_for_another) {
        return CausalWrite { keyspace: NO_KEYSPACE, effects: Vec::new(), ..write };
    }
    let held = |effect: &Effect| {
        effect.key().is_none_or(|key| site.machine.causal().holds_hash(PLANS, key_hash(key)))
    };
    let spec = site.machine.spec(write.keyspace).unwrap();
    let is_needed = spec.is_held_by(own) || write.effects.iter().any(held);
    match is_needed {
        true => write,
        false => CausalWrite { effects: Vec::new(), ..write },
    }
}

/// One place after the other, up to one.
fn import(site: &mut Site, root: &Site, upto: Position) {
    let from = site.machine.causal().applied();
    for (position, of, write) in root.machine.ordered(from, usize::MAX).unwrap() {
        if position > upto {
            return;
        }
        let entry = match of == site.own() {
            true => Import::Own(position),
            false => Import::Other { position, site: of, write: as_imported(site, write) },
        };
        let (from, upto) = (site.machine.causal().applied(), position);
        site.causal(CausalCommand::Import { from, upto, entries: vec![entry] }).unwrap();
    }
}

fn import_all(site: &mut Site, root: &Site) {
    import(site, root, root.machine.causal().order_last());
}

fn read(site: &Site, query: &Query) -> Option<(Answer, CausalToken)> {
    match site.read_in_session(PLANS, query, CausalToken::default()) {
        SessionRead::Answered(answer, token) => Some((answer.unwrap(), token)),
        SessionRead::Lacks(lacks) => {
            assert_eq!(lacks, Lacks::Keyspace);
            None
        }
    }
}

/// What a key shows; `None`: the site does not hold it.
fn shown(site: &Site, key: &'static str) -> Option<Option<Bytes>> {
    let (answer, _) = read(site, &Query::Get { key: key.into() })?;
    let Answer::Value(value) = answer else { panic!("{answer:?}") };
    Some(value.map(|found| found.value))
}

fn holds(value: &'static str) -> Option<Option<Bytes>> {
    Some(Some(value.into()))
}

#[test]
fn a_key_is_held_from_the_place_on_at_which_it_was_fetched() {
    let [mut a, mut b, mut c] = two_and_one();
    b.write_in(PLANS, put("p", "1")).unwrap();
    order(&mut a, &b);
    b.write_in(PLANS, put("p", "2")).unwrap();
    order(&mut a, &b);
    let at = fetch(&mut a, &["p", "q"]);
    b.write_in(PLANS, put("p", "3")).unwrap();
    b.write_in(PLANS, put("o", "1")).unwrap();
    order(&mut a, &b);
    assert_eq!(a.machine.causal().applied(), Position(0), "the root has imported nothing");
    assert_eq!((shown(&c, "p"), shown(&c, "q")), (None, None));
    import(&mut c, &a, at);
    assert_eq!((shown(&c, "p"), shown(&c, "q")), (holds("2"), Some(None)));
    let size = c.machine.causal().held_size(PLANS);
    assert_eq!(size.keys, 2);
    assert!(size.bytes > 2 * limits::CAUSAL_HELD_KEY_OVERHEAD_BYTES, "{size:?}");
    let (_, token) = read(&c, &Query::Get { key: "p".into() }).unwrap();
    assert_eq!(token.seen, Position::new(1, 2), "its own place");
    import_all(&mut c, &a);
    assert_eq!((shown(&c, "p"), shown(&c, "o")), (holds("3"), None));
    // It is there after a start, and so is what it counts.
    let twin = c.twin();
    assert_eq!(twin.machine.causal(), c.machine.causal());
    assert_eq!(shown(&twin, "p"), holds("3"));
    // What names more than keys that are held is answered elsewhere.
    let keys = |keys: &[&'static str]| keys.iter().map(|key| Bytes::from(*key)).collect();
    assert!(read(&c, &Query::GetMany { keys: keys(&["p", "q"]) }).is_some());
    for query in [Query::GetMany { keys: keys(&["p", "o"]) }, Query::Count] {
        assert_eq!(read(&c, &query), None);
        assert!(c.ask_in(PLANS, query).is_err());
    }
    assert!(c.ask_in(PLANS, Query::Get { key: "p".into() }).is_ok(), "of no session");
    // The root and the other replica take the place, and nothing else.
    import_all(&mut b, &a);
    let from_itself = a.twin();
    import_all(&mut a, &from_itself);
    assert_eq!((shown(&a, "p"), shown(&b, "q")), (holds("3"), Some(None)));
}

#[test]
fn what_the_root_has_written_itself_is_ordered_before_what_it_sends() {
    let [mut a, _, mut c] = two_and_one();
    a.write_in(PLANS, put("p", "1")).unwrap();
    a.write_in(PLANS, set("h", "f", "1")).unwrap();
    fetch(&mut a, &["p", "h"]);
    assert_eq!(a.machine.causal().order_last(), Position::new(1, 3));
    import_all(&mut c, &a);
    assert_eq!(shown(&c, "p"), holds("1"));
    let fields = read(&c, &Query::HashGetAll { key: "h".into() }).unwrap().0;
    assert_eq!(fields, Answer::Fields(vec![("f".into(), "1".into())]));
}

#[test]
fn what_is_held_may_be_written_and_is_evicted_once_that_has_its_place() {
    let [mut a, b, mut c] = two_and_one();
    assert!(c.write_in(PLANS, put("p", "1")).is_err(), "it is not held");
    fetch(&mut a, &["p", "q"]);
    import_all(&mut c, &a);
    c.write_in(PLANS, put("p", "1")).unwrap();
    let steps = vec![Step::Read(Query::Get { key: "q".into() }), Step::Write(put("q", "1"))];
    let whole =
        |steps| Command::Transaction { keyspace: PLANS, guards: vec![], steps, request: None };
    c.run(whole(steps)).unwrap();
    for step in [Step::Write(put("o", "1")), Step::Read(Query::Count)] {
        assert!(c.run(whole(vec![Step::Write(put("p", "2")), step])).is_err());
    }
    assert_eq!(c.machine.causal().evictable(PLANS).count(), 0);
    evict(&mut c, &["p", "q"]);
    assert_eq!((shown(&c, "p"), shown(&c, "q")), (holds("1"), holds("1")));
    order(&mut a, &c);
    import_all(&mut c, &a);
    let size = c.machine.causal().held_size(PLANS);
    assert_eq!((size.keys, c.machine.least_read(PLANS, 1, 0).len()), (2, 1));
    // What was read last is evicted last.
    shown(&c, "q");
    shown(&c, "p");
    shown(&c, "q");
    assert_eq!(c.machine.least_read(PLANS, 1, 0), ["p"]);
    assert_eq!(c.machine.least_read(PLANS, size.bytes, 0), ["p", "q"]);
    evict(&mut c, &["p", "q", "o"]);
    assert_eq!((shown(&c, "p"), shown(&c, "q")), (None, None));
    assert_eq!(c.machine.causal().held_size(PLANS).bytes, 0);
    assert_eq!(c.twin().machine.causal(), c.machine.causal());
    drop(b);
}

#[test]
fn only_a_site_that_holds_on_demand_fetches() {
    let [mut a, ..] = two_and_one();
    let fetch = |site, keyspace| {
        let keys = vec![Bytes::from("p")];
        CausalCommand::Fetch { epoch: 1, site, keyspace, keys }
    };
    for (site, keyspace) in [(B, PLANS), (SiteId(9), PLANS), (C, CARTS)] {
        assert!(a.causal(fetch(site, keyspace)).is_err());
    }
    let CausalCommand::Fetch { site, keyspace, keys, .. } = fetch(C, PLANS) else { return };
    assert!(a.causal(CausalCommand::Fetch { epoch: 2, site, keyspace, keys }).is_err());
    assert_eq!(a.machine.causal().order_last(), Position(0));
}

#[test]
fn a_resync_leaves_nothing_that_was_held_on_demand() {
    let [mut a, mut b, mut c] = two_and_one();
    fetch(&mut a, &["p", "q"]);
    import_all(&mut c, &a);
    c.write_in(PLANS, put("p", "own")).unwrap();
    b.write_in(PLANS, put("q", "1")).unwrap();
    order(&mut a, &b);
    let from_itself = a.twin();
    import_all(&mut a, &from_itself);
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    let (ordered, resume) = (Revision(0), Bytes::from("r"));
    let begin = Resync::Begin { epoch: 1, floor: start, start, ordered, resume };
    c.causal(CausalCommand::Resync(begin)).unwrap();
    let switch = |chunks| Resync::Switch { start, chunks, upto: start };
    let Ok(Answer::Staged { chunks, .. }) = c.causal(CausalCommand::Resync(switch(1))) else {
        panic!("it was begun")
    };
    assert_eq!(c.causal(CausalCommand::Resync(switch(chunks))), Ok(Answer::Installed));
    assert_eq!((shown(&c, "p"), shown(&c, "q")), (None, None));
    assert_eq!(c.machine.causal().held_size(PLANS).keys, 0);
    // What it has written lies on top of what comes, and is nothing once it is ordered and not
    // held.
    let mut other = c.twin();
    fetch(&mut a, &["p"]);
    import_all(&mut c, &a);
    assert_eq!(shown(&c, "p"), holds("own"));
    order(&mut a, &other);
    let twin = a.twin();
    assert_eq!(twin.machine.causal().order_last(), Position::new(1, 4));
    import_all(&mut c, &a);
    assert_eq!(shown(&c, "p"), holds("own"));
    // The same, if it is evicted meanwhile: here it was never fetched.
    let entries = vec![
        Import::Other {
            position: Position::new(1, 3),
            site: model::NO_SITE,
            write: CausalWrite {
                revision: Revision(Position::new(1, 3).0),
                seen: Position(0),
                keyspace: NO_KEYSPACE,
                effects: vec![],
            },
        },
        Import::Own(Position::new(1, 4)),
    ];
    let (from, upto) = (other.machine.causal().applied(), Position::new(1, 4));
    other.causal(CausalCommand::Import { from, upto, entries }).unwrap();
    assert_eq!(other.machine.spec(PLANS).map(|spec| spec.is_held_by(C)), Some(false));
    assert_eq!((shown(&other, "p"), other.machine.causal_keys()), (None, 0));
}

/// Whatever is written, ordered, imported, fetched and evicted in whatever order: what the site
/// shows of a key that it holds is what another site shows that holds all, at the same place.
#[test]
fn what_is_held_is_what_the_order_makes_of_it() {
    const KEYS: [&str; 4] = ["k", "l", "m", "n"];
    let mut held = 0;
    for seed in 0..60_u64 {
        let [mut a, mut b, mut c] = two_and_one();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        for step in 0..120 {
            let key = KEYS[draw(4) as usize];
            let value: &'static str = ["1", "2", "3", "4", "5"][step % 5];
            let write = match draw(8) {
                0 => delete(key),
                1 => set(key, "f", value),
                2 => set(key, "g", value),
                3 => unset(key, "f"),
                4 => Write::SetExpiry {
                    key: key.into(),
                    expiry: model::Expiry::AtLogMs(1 << 50),
                    condition: model::ExpiryCondition::Always,
                },
                _ => put(key, value),
            };
            match draw(12) {
                0..3 => drop(a.write_in(PLANS, write)),
                3..5 => drop(c.write_in(PLANS, write)),
                5 => order(&mut a, &c),
                6 => order_own(&mut a),
                7 if draw(8) == 0 => drop(a.causal(CausalCommand::Clear { keyspace: PLANS })),
                7 | 8 => drop(fetch(&mut a, &[key])),
                9 => evict(&mut c, &[key]),
                10 => {
                    let from_itself = a.twin();
                    let applied = a.machine.causal().applied();
                    let ahead = applied.count() + draw(4);
                    let last = a.machine.causal().order_last();
                    import(&mut a, &from_itself, Position::new(1, ahead).min(last));
                }
                _ => {
                    let upto = c.machine.causal().applied().count() + draw(4);
                    let upto = Position::new(1, upto).min(a.machine.causal().order_last());
                    import(&mut c, &a, upto);
                    import(&mut b, &a, upto);
                }
            }
            let settled: Vec<Bytes> =
                c.machine.causal().evictable(PLANS).map(|(key, _)| key.clone()).collect();
            for key in settled {
                held += 1;
                for query in [
                    Query::Kind { key: key.clone() },
                    Query::HashGetAll { key: key.clone() },
                    Query::Get { key: key.clone() },
                ] {
                    let here = c.read_in_session(PLANS, &query, CausalToken::default());
                    let there = b.read_in_session(PLANS, &query, CausalToken::default());
                    let (SessionRead::Answered(here, _), SessionRead::Answered(there, _)) =
                        (here, there)
                    else {
                        panic!("it is held")
                    };
                    let bare = |answer: Result<Answer, Refusal>| match answer {
                        Ok(Answer::Value(value)) => format!("{:?}", value.map(|one| one.value)),
                        other => format!("{other:?}"),
                    };
                    assert_eq!(bare(here), bare(there), "seed {seed}, step {step}, {query:?}");
                }
            }
            if step % 20 == 0 {
                assert_eq!(c.twin().machine.causal(), c.machine.causal(), "seed {seed}");
            }
        }
    }
    assert!(held > 1_000, "{held}");
}

#[test]
fn a_key_that_is_too_long_is_refused_and_not_looked_up() {
    let [mut a, _, mut c] = two_and_one();
    let key = Bytes::from(vec![b'p'; limits::KEY_BYTES_MAX + 1]);
    let too_long = Refusal::KeyTooLong(key.len());
    let keys = vec!["q".into(), key.clone()];
    let fetch = CausalCommand::Fetch { epoch: 1, site: C, keyspace: PLANS, keys };
    assert_eq!(a.causal(fetch), Err(too_long.clone()));
    let put = Write::PutMany { pairs: vec![(key.clone(), "1".into())], if_all_absent: false };
    assert_eq!(c.write_in(PLANS, put), Err(too_long.clone()));
    let get = Query::Get { key };
    match c.read_in_session(PLANS, &get, CausalToken::default()) {
        SessionRead::Answered(refused, _) => assert_eq!(refused, Err(too_long)),
        SessionRead::Lacks(lacks) => panic!("{lacks:?}"),
    }
}
