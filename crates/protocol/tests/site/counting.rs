//! Which accesses are counted, and where.

use super::pair::{EAST, MS, Sites, WEST, bytes};
use lab::simulation::Settings;
use model::{
    Cache, Command, KeyspaceSpec, Placement, Query, ReadConsistency, SiteId, Slot, Step, Write,
};

const OF_WEST: SiteId = SiteId(1);
const OF_EAST: SiteId = SiteId(2);

fn sites(placement: Placement, cache: Cache, answer_at_front: bool) -> Sites {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let settings = Settings { answer_at_front, ..Settings::default() };
    Sites::of_keyspace(settings, KeyspaceSpec { placement, cache, ..spec })
}

/// The accesses of a key that the leader of a site has counted by now, by site; about a
/// tenth of them has faded.
fn counted(sites: &mut Sites, at: usize, key: &str) -> Vec<(SiteId, u32)> {
    sites.lab.run(MS * 1_100);
    let users = sites.lab.users_of(at, key.as_bytes());
    let mut users: Vec<_> =
        users.into_iter().map(|(site, rate)| (site, (rate * 10.7).round() as u32)).collect();
    users.sort_unstable();
    users
}

#[test]
fn an_access_counts_once_wherever_it_is_answered() {
    // By the cores, and at fronts and links.
    for answer_at_front in [false, true] {
        let mut sites = sites(Placement::Advise, Cache::Off, answer_at_front);
        let key = sites.key_at(WEST, "a");
        (0..2).for_each(|_| sites.put(WEST, &key, "x"));
        (0..3).for_each(|_| sites.put(EAST, &key, "y"));
        (0..4).for_each(|_| drop(sites.get(EAST, &key)));
        (0..2).for_each(|_| drop(sites.get(WEST, &key)));
        sites.get_stale(WEST, &key);
        let passed = sites.lab.proxy_reads(EAST).0;
        assert_eq!(passed > 0, answer_at_front);
        let found = counted(&mut sites, WEST, &key);
        assert_eq!(found, [(OF_WEST, 5), (OF_EAST, 7)], "answered at fronts: {answer_at_front}");
        assert_eq!(counted(&mut sites, EAST, &key), [], "it owns another slot");
    }
}

#[test]
fn a_transaction_counts_and_a_scan_does_not() {
    let mut sites = sites(Placement::Advise, Cache::Off, false);
    let key = sites.key_at(WEST, "a");
    let steps = vec![
        Step::Read(Query::Get { key: bytes(&key) }),
        Step::Write(Write::Append { key: bytes(&key), suffix: bytes("x") }),
    ];
    let keyspace = sites.keyspace;
    let transaction = Command::Transaction { keyspace, guards: vec![], steps, request: None };
    sites.write(EAST, transaction);
    sites.ask(WEST, sites.read(Query::Count, ReadConsistency::Linearizable));
    assert_eq!(counted(&mut sites, WEST, &key), [(OF_EAST, 1)]);
}

#[test]
fn a_copy_that_the_owner_confirms_counts_for_its_site() {
    let cache = Cache::of("validated", None, None).unwrap();
    let mut sites = sites(Placement::Advise, cache, true);
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    (0..3).for_each(|_| drop(sites.get(EAST, &key)));
    assert_eq!(counted(&mut sites, WEST, &key), [(OF_WEST, 1), (OF_EAST, 3)]);
}

#[test]
fn what_counts_moves_to_the_owner() {
    let mut sites = sites(Placement::Advise, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    sites.hand_over(Slot::of_key(key.as_bytes()), WEST);
    (0..3).for_each(|_| drop(sites.get(WEST, &key)));
    let found = counted(&mut sites, EAST, &key);
    assert!(found.iter().any(|one| *one == (OF_WEST, 3)), "{found:?}");
}

#[test]
fn nothing_counts_without_the_option() {
    let mut sites = sites(Placement::Off, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    sites.put(EAST, &key, "x");
    assert_eq!(counted(&mut sites, WEST, &key), []);
}
