//! Reads of remote keys that pass the cores by.

use super::pair::{EAST, MS, Sites, WAY, WEST, some};
use lab::simulation::Settings;
use model::{Cache, Slot};

fn sites() -> Sites {
    Sites::with(Settings { answer_at_front: true, ..Settings::default() }, Cache::Off)
}

#[test]
fn who_has_answered_is_asked_without_the_cores() {
    let mut sites = sites();
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "first");
    assert_eq!(sites.get(EAST, &key), (some("first"), WAY));
    assert_eq!(sites.lab.proxy_reads(EAST), (0, 0), "the core finds the way");
    for text in ["second", "third"] {
        sites.put(WEST, &key, text);
        assert_eq!(sites.get(EAST, &key), (some(text), WAY));
    }
    assert_eq!(sites.lab.proxy_reads(EAST), (2, 0));
    // Written here: its answer has come, so a read sees it.
    sites.put(EAST, &key, "fourth");
    assert_eq!(sites.get(EAST, &key), (some("fourth"), WAY));
    assert_eq!(sites.get_stale(EAST, &key).0, some("fourth"));
    assert_eq!(sites.lab.proxy_reads(EAST), (3, 0), "a stale read may be for a backup");
    assert_eq!(sites.get(WEST, &key).0, some("fourth"));
    assert_eq!(sites.lab.proxy_reads(WEST), (0, 0), "what is here is not sent");
}

#[test]
fn a_slot_that_comes_and_goes_is_found_again() {
    let mut sites = sites();
    let key = sites.key_at(WEST, "a");
    let slot = Slot::of_key(key.as_bytes());
    sites.put(WEST, &key, "here");
    sites.get(EAST, &key);
    sites.get(EAST, &key);
    assert_eq!(sites.lab.proxy_reads(EAST), (1, 0));
    sites.hand_over(slot, WEST);
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    sites.get(WEST, &key);
    sites.get(WEST, &key);
    assert_eq!((sites.lab.proxy_reads(WEST), sites.lab.proxy_reads(EAST)), ((1, 0), (1, 0)));
    sites.hand_over(slot, EAST);
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    assert_eq!(sites.get(WEST, &key).0, some("here"));
}

#[test]
fn a_read_that_nobody_answers_goes_on_with_the_core() {
    let mut sites = sites();
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "here");
    sites.get(EAST, &key);
    // It is lost on the way, and no site receives it.
    sites.lab.hold_sites(WEST, EAST);
    let read = model::Query::Get { key: super::pair::bytes(&key) };
    let body = sites.read(read, model::ReadConsistency::Linearizable);
    let request = model::Request::new(body);
    let ticket = sites.lab.ask(EAST, request).unwrap();
    sites.lab.run(MS * 500);
    assert!(sites.lab.drop_held(WEST, EAST, usize::MAX) > 0);
    sites.lab.release_sites(WEST, EAST);
    let is_done = |lab: &lab::simulation::Simulation| {
        lab.answered.iter().any(|one| one.ticket == ticket && one.outcome.is_ok())
    };
    assert!(sites.lab.run_until(MS * 5_000, is_done));
    assert_eq!(sites.lab.proxy_reads(EAST), (0, 1));
}
