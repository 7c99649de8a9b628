//! Groups that follow their users: keyspaces with adaptive placement.

use super::pair::{EAST, MS, NORTH, Sites, WAY, WEST, bytes, some};
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, Body, ClientName, Command, Condition, Expiry, Failure, Group, GroupExplained, JobName,
    KeyspaceSpec, LoanPart, LoansLedger, Placement, PlacementReason, Query, ReadConsistency,
    RegistryChange, Request, SiteId, Slot, Write, limits,
};
use std::time::Duration;

pub(super) const OF_WEST: SiteId = SiteId(1);
pub(super) const OF_EAST: SiteId = SiteId(2);

pub(super) fn sites(count: usize, answer_at_front: bool) -> Sites {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let settings = Settings { answer_at_front, ..Settings::default() };
    Sites::of_sites(count, settings, KeyspaceSpec { placement: Placement::Adaptive, ..spec })
}

pub(super) fn group(sites: &Sites, key: &str) -> Group {
    Group::of_key(sites.keyspace, &bytes(key))
}

pub(super) fn part(lab: &Simulation, site: usize, group: &Group) -> LoanPart {
    lab.part(site, group).map(|part| part.borrowed.part).unwrap_or_default()
}

/// Reads a key at a site, ten times a second. What the last read took.
pub(super) fn read_for(sites: &mut Sites, at: usize, key: &str, seconds: u32) -> Duration {
    let mut last = MS;
    for _ in 0..seconds * 10 {
        let (found, took) = sites.get(at, key);
        // What was lost on the way is sent again after a second.
        assert!(found.is_some() && took < MS * 1_200, "{found:?} after {took:?}");
        last = took;
        sites.lab.run(MS * 80);
    }
    last
}

pub(super) fn explained(sites: &mut Sites, at: usize, key: &str) -> GroupExplained {
    let (keyspace, key) = (sites.keyspace, bytes(key));
    match sites.ask(at, Body::ExplainPlacement { keyspace, key }).0 {
        Answer::GroupPlacement(explained) => *explained,
        other => panic!("{other:?}"),
    }
}

pub(super) fn ledger(sites: &mut Sites, at: usize) -> LoansLedger {
    match sites.ask(at, Body::ShowPlacementLedger).0 {
        Answer::LedgerOfLoans(_, loans) => *loans,
        other => panic!("{other:?}"),
    }
}

fn count(sites: &mut Sites, at: usize) -> Answer {
    let count = sites.read(Query::Count, ReadConsistency::Linearizable);
    sites.ask(at, count).0
}

fn clear(sites: &mut Sites, at: usize) {
    let keyspace = sites.keyspace;
    sites.write(at, Command::Write { keyspace, write: Write::Clear, request: None });
}

#[test]
fn a_group_follows_its_users_there_and_back() {
    for answer_at_front in [false, true] {
        let mut sites = sites(2, answer_at_front);
        let key = sites.key_at(WEST, "a");
        let of_key = group(&sites, &key);
        sites.put(WEST, &key, "x");
        assert!(read_for(&mut sites, EAST, &key, 8) < MS * 10, "it is local by now");
        assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
        let found = explained(&mut sites, WEST, &key);
        assert_eq!((found.placed.owner, found.home), (OF_EAST, OF_WEST));
        assert_eq!(found.placed.why, PlacementReason::Best);
        assert_eq!(explained(&mut sites, EAST, &key).placed.owner, OF_EAST, "from any site");
        read_for(&mut sites, EAST, &key, 12);
        let (at_west, at_east) = (ledger(&mut sites, WEST), ledger(&mut sites, EAST));
        assert_eq!((at_west.lent_count, at_west.borrowed_count), (1, 0));
        assert_eq!((&at_west.lent[0].tag, at_west.lent[0].to), (&of_key.tag, OF_EAST));
        assert_eq!((at_east.lent_count, at_east.borrowed[0].from), (0, OF_WEST));
        assert!(at_east.borrowed[0].saves_us_per_s > 50_000, "{at_east:?}");
        let moves = |loans: &LoansLedger| loans.windows.iter().map(|one| one.moves).sum::<u64>();
        assert_eq!((moves(&at_west), moves(&at_east)), (1, 0));
        let saved: i64 = at_east.windows.iter().map(|one| one.saved_us).sum();
        assert!(saved > 100_000, "{at_east:?}");
        // What was written there is read at home, and its users go home as well.
        sites.put(EAST, &key, "y");
        assert!(read_for(&mut sites, WEST, &key, 20) < MS * 10, "it is home by now");
        assert_ne!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
        assert_eq!(sites.get(EAST, &key).0, some("y"));
        let found = explained(&mut sites, EAST, &key);
        assert_eq!((found.placed.owner, found.home), (OF_WEST, OF_WEST));
    }
}

/// Whether a group is lent to the site where its client has been for three seconds, after half a
/// minute at home.
fn is_lent_to_new_place(name: &str, answer_at_front: bool) -> bool {
    let mut sites = sites(2, answer_at_front);
    sites.client = ClientName::of(None, name.as_bytes());
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    read_for(&mut sites, WEST, &key, 30);
    read_for(&mut sites, EAST, &key, 3);
    part(&sites.lab, EAST, &group(&sites, &key)) == LoanPart::Held
}

#[test]
fn a_group_follows_a_client_with_a_name_at_once() {
    for answer_at_front in [false, true] {
        assert!(is_lent_to_new_place("car-7", answer_at_front));
        // By site it stays: what was counted at home has to fade first.
        assert!(!is_lent_to_new_place("", answer_at_front));
    }
}

#[test]
fn a_name_that_is_at_both_sites_moves_nothing() {
    let mut sites = sites(2, true);
    sites.client = ClientName::of(None, b"shop");
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    for _ in 0..300 {
        sites.get(WEST, &key);
        sites.get(EAST, &key);
        sites.lab.run(MS * 80);
    }
    assert_eq!(moves(&mut sites, WEST), 0);
}

/// How many groups a site has moved, by its ledger.
pub(super) fn moves(sites: &mut Sites, at: usize) -> u64 {
    ledger(sites, at).windows.iter().map(|one| one.moves).sum()
}

#[test]
fn a_name_at_a_follower_and_at_another_site_moves_nothing() {
    let mut sites = sites(2, true);
    let key = sites.key_at(WEST, "a");
    let others = [(); 2].map(|()| sites.lab.add_node(WEST, false));
    assert!(sites.lab.run_until(MS * 20_000, |lab| lab.is_whole(WEST)));
    let leader = sites.lab.leader(WEST).expect("a leader");
    let follower = *others.iter().find(|node| **node != leader).expect("another node");
    sites.client = ClientName::of(None, b"shop");
    sites.put(WEST, &key, "x");
    for _ in 0..200 {
        sites.get(follower, &key);
        sites.get(EAST, &key);
        sites.lab.run(MS * 80);
    }
    assert_eq!(moves(&mut sites, WEST), 0);
}

#[test]
fn a_name_that_is_elsewhere_now_and_then_moves_its_group_a_few_times_only() {
    let mut sites = sites(2, true);
    sites.client = ClientName::of(None, b"car-7");
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    let mut made = 0;
    for minute in 0..4 {
        for _ in 0..6 {
            (0..10).for_each(|_| drop(sites.get(WEST, &key)));
            sites.lab.run(MS * 5_000);
            sites.get(EAST, &key);
            sites.lab.run(MS * 4_000);
        }
        let all = moves(&mut sites, WEST);
        // It counts by site for up to 80 s, then by client until it has left three times.
        assert!(all <= made + 3, "{all} moves, {made} before minute {minute}");
        made = all;
    }
}

/// Whether groups stay with their honest client, which reads each ten times in ten seconds or so,
/// when a liar at the other site reads them ten times as often, each time under another name.
fn stay_with_honest(groups: usize, equal_clients: bool) -> bool {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let settings = Settings { answer_at_front: true, equal_clients, ..Settings::default() };
    let spec = KeyspaceSpec { placement: Placement::Adaptive, ..spec };
    let mut sites = Sites::of_sites(2, settings, spec);
    let keys: Vec<_> =
        (0..groups).map(|number| sites.key_at(WEST, &format!("{number}-"))).collect();
    sites.client = ClientName::of(Some("ann"), b"car-7");
    keys.iter().for_each(|key| sites.put(WEST, key, "x"));
    let read = |sites: &Sites, key: &String| {
        sites.read(Query::Get { key: bytes(key) }, ReadConsistency::Linearizable)
    };
    for round in 0..150 {
        let all: Vec<_> = keys.iter().map(|key| read(&sites, key)).collect();
        if round % 10 == 0 {
            sites.client = ClientName::of(Some("ann"), b"car-7");
            sites.ask_all(WEST, all.clone());
        }
        sites.client = ClientName::of(Some("liar"), format!("car-{round}").as_bytes());
        sites.ask_all(EAST, all);
        sites.lab.run(MS * 80);
    }
    let is_lent = |key: &String| part(&sites.lab, EAST, &group(&sites, key)) == LoanPart::Held;
    !keys.iter().any(is_lent)
}

#[test]
fn a_liar_with_many_names_moves_nothing_where_users_weigh_alike() {
    for groups in [1, 40] {
        assert!(stay_with_honest(groups, true), "{groups} groups");
    }
    assert!(!stay_with_honest(1, false), "by accesses the loud one has it");
}

#[test]
fn a_group_goes_from_borrower_to_borrower_by_its_home() {
    let mut sites = sites(3, true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "x");
    read_for(&mut sites, EAST, &key, 8);
    assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
    sites.put(EAST, &key, "y");
    assert!(read_for(&mut sites, NORTH, &key, 20) < MS * 10, "it is local by now");
    assert_eq!(part(&sites.lab, NORTH, &of_key), LoanPart::Held);
    // A site that was its borrower has no hint of the next one.
    sites.get(EAST, &key);
    for site in [WEST, EAST, NORTH] {
        let (found, took) = sites.get(site, &key);
        assert!(found == some("y") && took < WAY + MS * 10, "one hop: {found:?} after {took:?}");
    }
}

#[test]
fn groups_with_users_at_both_sites_alike_stay() {
    let mut sites = sites(2, true);
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    for _ in 0..300 {
        sites.get(WEST, &key);
        sites.get(EAST, &key);
        sites.lab.run(MS * 80);
    }
    assert_eq!(moves(&mut sites, WEST), 0);
}

#[test]
fn a_group_that_is_too_large_or_has_no_records_stays() {
    let mut sites = sites(2, true);
    let (large, absent) = (sites.key_at(WEST, "a"), sites.key_at(WEST, "b"));
    sites.put(WEST, &large, &"x".repeat((1 << 20) + 1));
    for _ in 0..80 {
        sites.get(EAST, &large);
        assert_eq!(sites.get(EAST, &absent).0, None);
        sites.lab.run(MS * 60);
    }
    assert_eq!(explained(&mut sites, EAST, &large).placed.why, PlacementReason::TooLarge);
    assert_eq!(ledger(&mut sites, WEST).lent, []);
}

/// So many groups at home in the west, each with one key of so many KiB.
fn of_kib(sites: &mut Sites, count: usize, kib: usize) -> Vec<(String, Group)> {
    let mut made = Vec::new();
    for number in 0..count {
        let key = sites.key_at(WEST, &format!("{number}-"));
        sites.put(WEST, &key, &"x".repeat(kib << 10));
        made.push((key.clone(), group(sites, &key)));
    }
    made
}

/// A site asks for all of them, and waits a tenth of a second. Whether this held meanwhile, at any
/// moment.
fn use_all(
    sites: &mut Sites,
    at: usize,
    groups: &[(String, Group)],
    holds: impl Fn(&Simulation) -> bool,
) -> bool {
    for (key, _) in groups {
        let exists = Query::Exists { keys: vec![bytes(key)] };
        let read = sites.read(exists, ReadConsistency::Linearizable);
        sites.lab.ask(at, Request { client: sites.client, ..Request::new(read) }).unwrap();
    }
    let held = sites.lab.run_until(MS * 100, holds);
    sites.lab.answered.clear();
    held
}

/// How many of these groups east has in this way.
fn at_east(lab: &Simulation, groups: &[(String, Group)], as_part: LoanPart) -> usize {
    groups.iter().filter(|(_, group)| part(lab, EAST, group) == as_part).count()
}

#[test]
fn groups_of_a_megabyte_together_all_go_within_seconds() {
    let mut sites = sites(2, true);
    let groups = of_kib(&mut sites, 5, 300);
    let mut rounds = 0;
    while at_east(&sites.lab, &groups, LoanPart::Held) == 0 {
        use_all(&mut sites, EAST, &groups, |_| false);
        rounds += 1;
        assert!(rounds < 200, "none has gone");
    }
    for _ in 0..30 {
        use_all(&mut sites, EAST, &groups, |_| false);
    }
    assert_eq!(at_east(&sites.lab, &groups, LoanPart::Held), groups.len());
}

#[test]
fn few_groups_are_on_their_way_home_at_a_time() {
    let mut sites = sites(2, true);
    let groups = of_kib(&mut sites, 12, 600);
    let held = |sites: &Sites| at_east(&sites.lab, &groups, LoanPart::Held);
    for at in [EAST, WEST] {
        let goal = if at == EAST { groups.len() } else { 0 };
        let mut rounds = 0;
        while held(&sites) != goal {
            // 2 MiB and one more.
            let are_many = |lab: &Simulation| at_east(lab, &groups, LoanPart::Frozen) > 4;
            assert!(!use_all(&mut sites, at, &groups, are_many));
            rounds += 1;
            assert!(rounds < 600, "{} are at east", held(&sites));
        }
    }
}

#[test]
fn a_group_with_a_long_tag_is_shown_as_one_that_stays() {
    let mut sites = sites(2, true);
    let key = sites.key_at(WEST, &"a".repeat(limits::LOANS_TAG_BYTES_MAX));
    sites.put(WEST, &key, "x");
    assert!(read_for(&mut sites, EAST, &key, 8) >= WAY);
    assert_eq!(explained(&mut sites, EAST, &key).placed.why, PlacementReason::TooLarge);
    assert_eq!(ledger(&mut sites, WEST).lent, []);
}

#[test]
fn nothing_is_lent_to_a_site_that_leaves_and_what_it_has_goes_home() {
    let mut sites = sites(3, true);
    let (one, other) = (sites.key_at(WEST, "a"), sites.key_at(WEST, "b"));
    sites.put(WEST, &one, "x");
    sites.put(WEST, &other, "x");
    read_for(&mut sites, EAST, &one, 8);
    assert_eq!(part(&sites.lab, EAST, &group(&sites, &one)), LoanPart::Held);
    let change = RegistryChange::Leave(OF_EAST);
    sites.ask(EAST, Body::Registry { change: Box::new(change), id: None });
    for _ in 0..8 {
        sites.get(EAST, &one);
        read_for(&mut sites, EAST, &other, 1);
        assert_ne!(part(&sites.lab, EAST, &group(&sites, &other)), LoanPart::Held);
    }
    assert_ne!(part(&sites.lab, EAST, &group(&sites, &one)), LoanPart::Held);
    assert_eq!(sites.get(NORTH, &one).0, some("x"));
}

#[test]
fn each_site_clears_what_it_serves() {
    let mut sites = sites(2, true);
    let (key, stays) = (sites.key_at(WEST, "a"), sites.key_at(WEST, "b"));
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "x");
    sites.put(WEST, &stays, "x");
    read_for(&mut sites, EAST, &key, 8);
    for site in [WEST, EAST] {
        sites.ask(site, Body::SwitchJob { job: JobName::Place, paused: true });
    }
    assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
    // The group is its borrower's, and its copy at home stays.
    clear(&mut sites, WEST);
    assert_eq!((sites.get(WEST, &stays).0, sites.get(WEST, &key).0), (None, some("x")));
    assert_eq!(
        (count(&mut sites, WEST), count(&mut sites, EAST)),
        (Answer::Integer(0), Answer::Integer(1))
    );
    let give_back = |sites: &mut Sites| {
        let loan = sites.lab.part(EAST, &of_key).unwrap().borrowed.loan;
        let step = model::Lending::GiveBack { loans: vec![(of_key.clone(), loan)] };
        sites.write(EAST, Command::Global(model::GlobalCommand::Lending(step)));
        let is_back = |lab: &Simulation| part(lab, EAST, &of_key) != LoanPart::Frozen;
        assert!(sites.lab.run_until(MS * 5_000, is_back));
    };
    give_back(&mut sites);
    assert_eq!((sites.get(EAST, &key).0, count(&mut sites, WEST)), (some("x"), Answer::Integer(1)));
    // Where it is served it is cleared, and its home learns of it.
    for site in [WEST, EAST] {
        sites.ask(site, Body::SwitchJob { job: JobName::Place, paused: false });
    }
    read_for(&mut sites, EAST, &key, 8);
    assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
    clear(&mut sites, EAST);
    assert_eq!((sites.get(WEST, &key).0, count(&mut sites, EAST)), (None, Answer::Integer(0)));
    give_back(&mut sites);
    assert_eq!((sites.get(WEST, &key).0, count(&mut sites, WEST)), (None, Answer::Integer(0)));
}

#[test]
fn a_group_whose_home_does_not_answer_stays_at_its_borrower() {
    let mut sites = sites(3, true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "x");
    read_for(&mut sites, EAST, &key, 8);
    // By the answer of its home north learns of its borrower.
    sites.get(NORTH, &key);
    sites.lab.part_site(WEST);
    assert!(read_for(&mut sites, NORTH, &key, 15) < WAY + MS * 10);
    assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
    sites.put(EAST, &key, "y");
    sites.lab.rejoin_site(WEST);
    assert!(read_for(&mut sites, NORTH, &key, 20) < MS * 10);
    assert_eq!(sites.get(WEST, &key).0, some("y"));
}

#[test]
fn a_borrower_that_does_not_answer_is_named_soon() {
    let mut sites = sites(3, true);
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "x");
    read_for(&mut sites, EAST, &key, 8);
    assert_eq!(part(&sites.lab, EAST, &group(&sites, &key)), LoanPart::Held);
    sites.lab.part_site(EAST);
    let slot = Slot::of_key(key.as_bytes());
    let unreachable = Err(Failure::BorrowerUnreachable { slot, borrower: "east".into() });
    // Its home, and a site that has to ask the home first.
    for (site, longest) in [(WEST, MS * 1_500), (NORTH, MS * 2_500), (WEST, MS * 10)] {
        let body = Body::ExplainPlacement { keyspace: sites.keyspace, key: bytes(&key) };
        let (answers, took) = sites.ask_all(site, vec![body]);
        assert_eq!(answers, std::slice::from_ref(&unreachable));
        assert!(took <= longest, "{took:?} at {site}");
    }
    // Other requests wait for it until their deadline.
    let get = Query::Get { key: bytes(&key) };
    let read = sites.read(get, ReadConsistency::Linearizable);
    for site in [WEST, NORTH] {
        let answers = sites.ask_all(site, vec![read.clone()]).0;
        assert_eq!(answers, std::slice::from_ref(&unreachable));
    }
    sites.lab.rejoin_site(EAST);
    sites.lab.run(MS * 3_000);
    assert_eq!(explained(&mut sites, WEST, &key).placed.owner, OF_EAST);
}

fn alter(sites: &mut Sites, at: usize, placement: Placement) {
    let change = RegistryChange::AlterKeyspace { name: "cars".into(), placement };
    let (answer, _) = sites.ask(at, Body::Registry { change: Box::new(change), id: None });
    let Answer::Keyspace(altered) = answer else { panic!("{answer:?}") };
    assert_eq!(altered.spec.placement, placement);
}

#[test]
fn a_keyspace_becomes_adaptive_while_it_is_used_and_its_groups_come_home_again() {
    for placement in [Placement::Off, Placement::Advise] {
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let spec = KeyspaceSpec { placement, ..spec };
        let mut sites = Sites::of_sites(3, Settings::default(), spec);
        let key = sites.key_at(WEST, "a");
        let of_key = group(&sites, &key);
        sites.put(WEST, &key, "x");
        assert!(read_for(&mut sites, EAST, &key, 8) >= WAY, "the hash decides");
        alter(&mut sites, EAST, Placement::Adaptive);
        assert!(read_for(&mut sites, EAST, &key, 10) < MS * 10, "it is local by now");
        assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
        sites.put(EAST, &key, "y");
        alter(&mut sites, NORTH, placement);
        // Its users go on, and their group goes home.
        assert!(read_for(&mut sites, EAST, &key, 6) >= WAY);
        assert_ne!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
        assert!(sites.lab.lent(WEST).next().is_none(), "nothing is stranded");
        for site in [WEST, EAST, NORTH] {
            assert_eq!(sites.get(site, &key).0, some("y"));
        }
        // It stays there, and is adaptive again when it is asked to be.
        assert!(read_for(&mut sites, EAST, &key, 10) >= WAY);
        alter(&mut sites, WEST, Placement::Adaptive);
        assert!(read_for(&mut sites, EAST, &key, 10) < MS * 10);
        assert_eq!(sites.get(WEST, &key).0, some("y"));
    }
}

#[test]
fn a_group_of_a_keyspace_that_was_adaptive_waits_for_a_home_that_does_not_answer() {
    let mut sites = sites(3, true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "x");
    read_for(&mut sites, EAST, &key, 8);
    assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
    sites.lab.part_site(WEST);
    sites.lab.run(MS * 3_000);
    alter(&mut sites, EAST, Placement::Off);
    assert!(read_for(&mut sites, EAST, &key, 10) < MS * 10, "its borrower serves on");
    sites.put(EAST, &key, "y");
    assert_eq!(part(&sites.lab, EAST, &of_key), LoanPart::Held);
    assert_eq!(ledger(&mut sites, EAST).borrowed_count, 1, "it is shown");
    sites.lab.rejoin_site(WEST);
    let is_home = |lab: &Simulation| part(lab, EAST, &of_key) != LoanPart::Held;
    assert!(sites.lab.run_until(MS * 10_000, is_home));
    for site in [WEST, EAST, NORTH] {
        assert_eq!(sites.get(site, &key).0, some("y"));
    }
}

/// It is asked again, and takes groups once it has room.
#[test]
fn nothing_goes_to_a_site_with_a_full_disk() {
    let mut sites = sites(2, true);
    let (lent, at_home) = (sites.key_at(WEST, "a"), sites.key_at(EAST, "b"));
    let (of_lent, of_home) = (group(&sites, &lent), group(&sites, &at_home));
    sites.put(WEST, &lent, "x");
    sites.put(EAST, &at_home, "x");
    read_for(&mut sites, EAST, &lent, 8);
    assert_eq!(part(&sites.lab, EAST, &of_lent), LoanPart::Held);
    sites.lab.nodes[WEST].disk.set_capacity(Some(0));
    // What it writes next has no room in the part of the log that is there already.
    let write = Write::Put {
        key: bytes(&sites.key_at(WEST, "c")),
        value: vec![0; 2 << 20].into(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    let write = Command::Write { keyspace: sites.keyspace, write, request: None };
    sites.lab.ask(WEST, Request::write(write)).unwrap();
    sites.lab.run(MS * 2_000);
    // Both are served where they are.
    for key in [&lent, &at_home] {
        assert!(read_for(&mut sites, WEST, key, 15) >= WAY);
    }
    assert_eq!(part(&sites.lab, EAST, &of_lent), LoanPart::Held);
    assert_eq!(part(&sites.lab, WEST, &of_home), LoanPart::Never);
    assert!(sites.lab.lent(EAST).next().is_none());
    sites.lab.nodes[WEST].disk.set_capacity(None);
    for key in [&lent, &at_home] {
        assert!(read_for(&mut sites, WEST, key, 20) < MS * 10, "it is local by now");
    }
}
