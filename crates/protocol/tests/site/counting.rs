//! Which accesses are counted, and where.

use super::pair::{EAST, MS, Sites, WEST, bytes};
use lab::simulation::Settings;
use model::{
    Answer, Body, Cache, ClientName, Command, KeyspaceSpec, Placement, PlacementExplained,
    PlacementLedger, PlacementReason, Query, ReadConsistency, SiteId, Slot, Step, Write,
};
use std::collections::BTreeSet;

const OF_WEST: SiteId = SiteId(1);
const OF_EAST: SiteId = SiteId(2);

fn sites(placement: Placement, cache: Cache, answer_at_front: bool) -> Sites {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let settings = Settings { answer_at_front, ..Settings::default() };
    Sites::of_keyspace(settings, KeyspaceSpec { placement, cache, ..spec })
}

fn explained(sites: &mut Sites, at: usize, key: &str) -> PlacementExplained {
    let (keyspace, key) = (sites.keyspace, bytes(key));
    match sites.ask(at, Body::ExplainPlacement { keyspace, key }).0 {
        Answer::Placement(explained) => *explained,
        other => panic!("{other:?}"),
    }
}

fn ledger(sites: &mut Sites, at: usize) -> PlacementLedger {
    match sites.ask(at, Body::ShowPlacementLedger).0 {
        Answer::PlacementLedger(ledger) => *ledger,
        other => panic!("{other:?}"),
    }
}

/// The accesses of a key that the leader of a site has counted by now, by site; about a
/// tenth of them has faded.
fn counted(sites: &mut Sites, at: usize, key: &str) -> Vec<(SiteId, u32)> {
    sites.lab.run(MS * 1_100);
    let users = explained(sites, at, key).key_users.into_iter();
    users.map(|(site, per_1000_s)| (site, (per_1000_s as f32 * 0.0107).round() as u32)).collect()
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
        assert_eq!(counted(&mut sites, EAST, &key).len(), 2, "the owner is asked, from any site");
    }
}

/// The clients of a key by their sites, as its owner shows them; a name each.
fn clients(sites: &mut Sites, at: usize, key: &str) -> Vec<(SiteId, u32)> {
    sites.lab.run(MS * 1_100);
    let clients = explained(sites, at, key).key_clients;
    let numbers: BTreeSet<u32> = clients.iter().map(|client| client.number).collect();
    assert_eq!(numbers.len(), clients.len());
    let count = |per_1000_s: u64| (per_1000_s as f32 * 0.0107).round() as u32;
    clients.into_iter().map(|client| (client.site, count(client.per_1000_s))).collect()
}

#[test]
fn an_access_counts_for_its_client_whichever_way_it_takes() {
    let copies = Cache::of("validated", None, None).unwrap();
    for (answer_at_front, cache) in [(false, Cache::Off), (true, Cache::Off), (true, copies)] {
        let mut sites = sites(Placement::Advise, cache, answer_at_front);
        let key = sites.key_at(WEST, "a");
        sites.put(WEST, &key, "x");
        sites.client = ClientName::of(None, b"car-7");
        (0..2).for_each(|_| sites.put(WEST, &key, "x"));
        (0..3).for_each(|_| drop(sites.get(WEST, &key)));
        sites.client = ClientName::of(None, b"car-8");
        (0..3).for_each(|_| sites.put(EAST, &key, "y"));
        (0..4).for_each(|_| drop(sites.get(EAST, &key)));
        // The first put has no name.
        let found = clients(&mut sites, EAST, &key);
        assert_eq!(found, [(OF_EAST, 7), (OF_WEST, 5)], "{cache:?}, at fronts: {answer_at_front}");
        sites.get(WEST, &key);
        let found = clients(&mut sites, EAST, &key);
        assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), [OF_WEST; 2], "it has moved");
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
    assert!(found.contains(&(OF_WEST, 3)), "{found:?}");
}

#[test]
fn nothing_counts_without_the_option() {
    let mut sites = sites(Placement::Off, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    sites.put(EAST, &key, "x");
    assert_eq!(counted(&mut sites, WEST, &key), []);
}

/// Reads of a key at a site, ten a second.
fn read_for(sites: &mut Sites, at: usize, key: &str, seconds: u32) {
    for _ in 0..seconds * 10 {
        sites.get(at, key);
        sites.lab.run(MS * 80);
    }
}

#[test]
fn a_key_that_another_site_reads_would_be_better_there() {
    let mut sites = sites(Placement::Advise, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    read_for(&mut sites, EAST, &key, 6);
    let found = explained(&mut sites, WEST, &key);
    assert_eq!((found.owner, found.slot), (OF_WEST, Slot::of_key(key.as_bytes())));
    assert_eq!(found.slot_users[0].0, OF_EAST);
    let PlacementReason::Advised { to: OF_EAST, gain_us } = found.why else { panic!("{found:?}") };
    assert!((15_000..21_000).contains(&gain_us), "{gain_us} of a round trip of 20 ms");
    let means: Vec<_> = found.candidates.iter().map(|one| (one.site, one.mean_us)).collect();
    assert_eq!((means[0].0, means[1].0), (OF_EAST, OF_WEST), "the best first: {means:?}");
    assert!(means[0].1 < means[1].1);
    assert!((1..1_000).contains(&found.bytes), "one key: {}", found.bytes);
    // Nothing moves, and both sites see the same.
    assert!(sites.lab.held_slots(WEST).0.contains(&found.slot));
    assert!(matches!(explained(&mut sites, EAST, &key).why, PlacementReason::Advised { .. }));
    read_for(&mut sites, EAST, &key, 10);
    let ledger = ledger(&mut sites, WEST);
    let [advised] = ledger.advised[..] else { panic!("{ledger:?}") };
    assert_eq!((advised.slot, advised.from, advised.to), (found.slot, OF_WEST, OF_EAST));
    assert!(advised.gain_us_per_s > 50_000, "{advised:?}");
    let moves: u64 = ledger.windows.iter().map(|window| window.moves).sum();
    let saved_us: i64 = ledger.windows.iter().map(|window| window.saved_us).sum();
    assert_eq!(moves, 1);
    assert!(saved_us > 100_000, "{ledger:?}");
}

#[test]
fn a_key_whose_users_come_back_is_advised_no_more() {
    let mut sites = sites(Placement::Advise, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    read_for(&mut sites, EAST, &key, 6);
    assert_eq!(ledger(&mut sites, WEST).advised.len(), 1);
    read_for(&mut sites, WEST, &key, 40);
    assert_eq!(ledger(&mut sites, WEST).advised, []);
    assert_eq!(explained(&mut sites, EAST, &key).why, PlacementReason::Best);
}

#[test]
fn a_key_without_users_is_where_it_is() {
    let mut sites = sites(Placement::Advise, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    assert_eq!(explained(&mut sites, EAST, &key).why, PlacementReason::Unused);
    read_for(&mut sites, WEST, &key, 3);
    assert_eq!(explained(&mut sites, EAST, &key).why, PlacementReason::Best);
    assert_eq!(ledger(&mut sites, EAST), PlacementLedger::default());
}

/// The core of such a site sleeps while its front answers.
#[test]
fn a_site_of_one_node_counts_what_only_its_front_sees() {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let spec = KeyspaceSpec { placement: Placement::Advise, ..spec };
    let settings = Settings { answer_at_front: true, ..Settings::default() };
    let mut sites = Sites::of_sites(1, settings, spec);
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    sites.lab.run(MS * 60_000);
    (0..5).for_each(|_| drop(sites.get(WEST, &key)));
    assert_eq!(counted(&mut sites, WEST, &key), [(OF_WEST, 5)]);
}

#[test]
fn a_client_that_asks_for_it_counts_nowhere() {
    let mut sites = sites(Placement::Advise, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    for name in [ClientName::UNCOUNTED, ClientName::of(None, b"car-7")] {
        sites.client = name;
        (0..3).for_each(|_| sites.put(WEST, &key, "x"));
        (0..3).for_each(|_| drop(sites.get(EAST, &key)));
        sites.lab.run(MS * 2_100);
        let (all, is_counted) = (counted(&mut sites, WEST, &key), name != ClientName::UNCOUNTED);
        assert_eq!(!all.is_empty(), is_counted, "{all:?}");
    }
}

#[test]
fn accesses_at_a_follower_count_at_its_leader() {
    let mut sites = sites(Placement::Advise, Cache::Off, true);
    let key = sites.key_at(WEST, "a");
    let others = [(); 2].map(|()| sites.lab.add_node(WEST, false));
    assert!(sites.lab.run_until(MS * 20_000, |lab| lab.is_whole(WEST)));
    let leader = sites.lab.leader(WEST).expect("a leader");
    let follower = *others.iter().find(|node| **node != leader).expect("another node");
    sites.lab.run(MS * 1_000);
    sites.client = ClientName::of(None, b"car-7");
    (0..2).for_each(|_| sites.put(follower, &key, "x"));
    (0..4).for_each(|_| drop(sites.get(follower, &key)));
    // The follower sends them first, up to a second later.
    sites.lab.run(MS * 1_100);
    assert_eq!(counted(&mut sites, follower, &key), [(OF_WEST, 6)]);
    assert_eq!(explained(&mut sites, follower, &key).key_clients.len(), 1);
}
