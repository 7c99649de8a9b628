//! Copies of remote keys.

use super::pair::{EAST, MS, NORTH, Sites, WAY, WEST, bytes, some, value};
use lab::simulation::{Settings, Simulation};
use model::{
    Body, Cache, Command, GlobalCommand, Group, JobName, KeyspaceSpec, Lending, LoanPart,
    Placement, Query, ReadConsistency, SiteId, Slot, Write,
};
use std::time::Duration;

impl Sites {
    /// Stale reads from copies, reads that were found unchanged, and others.
    fn counted(&self, site: usize) -> (u64, u64, u64) {
        let copies = self.status(site).copies;
        (copies.hits, copies.unchanged, copies.misses)
    }
}

#[test]
fn the_holder_says_whether_a_copy_is_still_right() {
    let mut sites = Sites::new(Cache::of("validated", None, None).unwrap());
    let key = sites.key_at(WEST, "a");
    let long = "x".repeat(10_000);
    sites.put(WEST, &key, &long);
    assert_eq!(sites.get(EAST, &key), (Some(long.clone()), WAY));
    let from = sites.lab.trace.as_ref().unwrap().len();
    // It goes to the owner all the same, which answers briefly.
    assert_eq!(sites.get(EAST, &key), (Some(long.clone()), WAY));
    let trace = &sites.lab.trace.as_ref().unwrap()[from..];
    assert!(trace.contains("Answered unchanged"), "{trace}");
    assert_eq!(sites.counted(EAST), (0, 1, 1));
    // Stale reads are not answered from it in this keyspace, but found unchanged too.
    assert_eq!(sites.get_stale(EAST, &key), (Some(long), WAY));
    assert_eq!(sites.counted(EAST), (0, 2, 1));
    // Written at the owner, at the requester, deleted: always what is there.
    sites.put(WEST, &key, "second");
    assert_eq!(sites.get(EAST, &key).0, some("second"));
    sites.put(EAST, &key, "third");
    assert_eq!(sites.get(EAST, &key).0, some("third"));
    let write = Write::Delete { keys: vec![bytes(&key)] };
    let delete = Command::Write { keyspace: sites.keyspace, write, request: None };
    sites.write(WEST, delete);
    assert_eq!(sites.get(EAST, &key).0, None);
    assert_eq!(sites.counted(EAST), (0, 2, 4));
    // That a key is absent is cached, too, until it is there.
    assert_eq!(sites.get(EAST, &key).0, None);
    assert_eq!(sites.counted(EAST), (0, 3, 4));
    sites.put(WEST, &key, "fourth");
    assert_eq!(sites.get(EAST, &key).0, some("fourth"));
    // No copy is made of what is here.
    assert_eq!(sites.get(WEST, &key).0, some("fourth"));
    assert_eq!((sites.counted(WEST), sites.status(EAST).copies.copies), ((0, 0, 0), 1));
}

#[test]
fn a_young_copy_answers_stale_reads_without_asking() {
    let mut sites = Sites::new(Cache::of("stale", None, Some(500)).unwrap());
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "first");
    assert_eq!(sites.get_stale(EAST, &key), (some("first"), WAY));
    assert_eq!(sites.get_stale(EAST, &key), (some("first"), Duration::ZERO));
    // Written elsewhere: linearizable reads see it at once, others when the copy is old.
    sites.put(WEST, &key, "second");
    assert_eq!(sites.get_stale(EAST, &key), (some("first"), Duration::ZERO));
    assert_eq!(sites.get(EAST, &key), (some("second"), WAY));
    assert_eq!(sites.get_stale(EAST, &key), (some("second"), Duration::ZERO));
    sites.put(WEST, &key, "third");
    sites.lab.run(MS * 600);
    assert_eq!(sites.get_stale(EAST, &key), (some("third"), WAY));
    // Written here: seen here.
    sites.put(EAST, &key, "fourth");
    assert_eq!(sites.get_stale(EAST, &key), (some("fourth"), WAY));
    assert_eq!(sites.counted(EAST).0, 3);
    // The other site is out of reach: a young copy still answers.
    sites.lab.part_sites(WEST, EAST);
    assert_eq!(sites.get_stale(EAST, &key), (some("fourth"), Duration::ZERO));
}

#[test]
fn a_slot_that_moves_makes_everything_miss() {
    let mut sites = Sites::new(Cache::of("validated", None, None).unwrap());
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "here");
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    let slot = Slot::of_key(key.as_bytes());
    sites.hand_over(slot, WEST);
    sites.hand_over(slot, EAST);
    // Held here in between, the copy went.
    assert_eq!(sites.status(EAST).copies.copies, 0);
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    assert_eq!(sites.counted(EAST), (0, 0, 2));
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    assert_eq!(sites.counted(EAST), (0, 1, 2));
}

#[test]
fn a_copy_that_went_meanwhile_is_asked_for_again() {
    let mut sites = Sites::new(Cache::of("validated", Some(4 << 10), None).unwrap());
    let (a, b) = (sites.key_at(WEST, "a"), sites.key_at(WEST, "b"));
    let long = "x".repeat(2_500);
    sites.put(WEST, &a, &long);
    sites.put(WEST, &b, &long);
    assert_eq!(sites.get(EAST, &a).0, Some(long.clone()));
    // The other one's value comes first, and there is no room for both.
    let read =
        |key: &str| sites.read(Query::Get { key: bytes(key) }, ReadConsistency::Linearizable);
    let both = vec![read(&b), read(&a)];
    let (answers, took) = sites.ask_all(EAST, both);
    for answer in answers {
        assert_eq!(value(answer.unwrap()), Some(long.clone()));
    }
    assert_eq!(took, 2 * WAY);
    assert_eq!(sites.counted(EAST), (0, 0, 3));
    assert_eq!(sites.status(EAST).copies.evictions, 2);
}

/// West, east and north with copies of keys whose groups are lent: the group of a key at west that
/// has a value, of which east and north have copies, is lent to east.
fn lent_to_east() -> (Sites, String) {
    let cache = Cache::of("stale", None, Some(60_000)).unwrap();
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let spec = KeyspaceSpec { placement: Placement::Adaptive, cache, ..spec };
    let mut sites = Sites::of_sites(3, Settings::default(), spec);
    for site in [WEST, EAST, NORTH] {
        sites.ask(site, Body::SwitchJob { job: JobName::Place, paused: true });
    }
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "first");
    for site in [EAST, NORTH] {
        assert_eq!(sites.get_stale(site, &key), (some("first"), WAY));
        assert_eq!(sites.get_stale(site, &key), (some("first"), Duration::ZERO));
    }
    let groups = vec![Group::of_key(sites.keyspace, &bytes(&key))];
    let is_held = {
        let group = groups[0].clone();
        move |lab: &Simulation| {
            lab.part(EAST, &group).is_some_and(|part| part.borrowed.part == LoanPart::Held)
        }
    };
    let lend = Lending::Lend { to: SiteId(2), groups };
    sites.write(WEST, Command::Global(GlobalCommand::Lending(lend)));
    assert!(sites.lab.run_until(MS * 1_000, is_held));
    sites.lab.run(MS * 50);
    (sites, key)
}

#[test]
fn what_was_written_at_a_borrower_shows_there_when_its_group_is_home_again() {
    let (mut sites, key) = lent_to_east();
    sites.put(EAST, &key, "second");
    let group = Group::of_key(sites.keyspace, &bytes(&key));
    let loan = sites.lab.part(EAST, &group).unwrap().borrowed.loan;
    let give_back = Lending::GiveBack { loans: vec![(group.clone(), loan)] };
    sites.write(EAST, Command::Global(GlobalCommand::Lending(give_back)));
    assert!(sites.lab.run_until(MS * 1_000, |lab| {
        lab.part(EAST, &group).is_some_and(|part| part.borrowed.part == LoanPart::Retained)
    }));
    assert_eq!(sites.get_stale(EAST, &key).0, some("second"));
}

/// A borrower's answer is not copied.
#[test]
fn what_was_read_at_a_borrower_is_not_followed_by_an_older_copy() {
    let (mut sites, key) = lent_to_east();
    sites.put(EAST, &key, "second");
    assert_eq!(sites.get(NORTH, &key).0, some("second"));
    assert_eq!(sites.get_stale(NORTH, &key).0, some("second"));
}
