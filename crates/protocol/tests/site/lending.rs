//! Groups that are lent between two sites, and requests for them while they change hands.

use super::pair::{EAST, MS, Sites, WAY, WEST, bytes, some};
use lab::simulation::{Down, Settings, Simulation};
use model::{
    Answer, Body, Command, GlobalCommand, Group, JobName, KeyspaceSpec, Lending, LoanPart,
    Placement, Query, ReadConsistency, SiteId, Write,
};

const OF_EAST: SiteId = SiteId(2);

fn sites(answer_at_front: bool) -> Sites {
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    let settings = Settings { answer_at_front, ..Settings::default() };
    let spec = KeyspaceSpec { placement: Placement::Adaptive, ..spec };
    let mut sites = Sites::of_keyspace(settings, spec);
    for site in [WEST, EAST] {
        sites.ask(site, Body::SwitchJob { job: JobName::Place, paused: true });
    }
    sites
}

fn lending(step: Lending) -> Command {
    Command::Global(GlobalCommand::Lending(step))
}

fn group(sites: &Sites, key: &str) -> Group {
    Group::of_key(sites.keyspace, &bytes(key))
}

/// West lends the group of a key to east.
fn lend(sites: &mut Sites, key: &str) {
    let groups = vec![group(sites, key)];
    sites.write(WEST, lending(Lending::Lend { to: OF_EAST, groups }));
}

/// East is asked to give it back.
fn give_back(sites: &mut Sites, key: &str) {
    let group = group(sites, key);
    let loan = sites.lab.part(EAST, &group).unwrap().borrowed.loan;
    let command = Box::new(lending(Lending::GiveBack { loans: vec![(group, loan)] }));
    sites.ask(WEST, Body::AtSite { site: OF_EAST, command });
}

fn part(lab: &Simulation, group: &Group) -> LoanPart {
    lab.part(EAST, group).map(|part| part.borrowed.part).unwrap_or_default()
}

fn add(sites: &Sites, key: &str) -> Body {
    let write = Write::Add { key: bytes(key), delta: 1 };
    Body::Write(Command::Write { keyspace: sites.keyspace, write, request: None })
}

#[test]
fn a_group_is_served_where_it_is_lent_to() {
    for answer_at_front in [false, true] {
        let mut sites = sites(answer_at_front);
        let key = sites.key_at(WEST, "a");
        sites.put(WEST, &key, "1");
        assert!(sites.get(EAST, &key).1 >= WAY, "it is at its slot's owner");
        lend(&mut sites, &key);
        let of_key = group(&sites, &key);
        assert!(sites.lab.run_until(MS * 1_000, |lab| part(lab, &of_key) == LoanPart::Held));
        sites.lab.run(MS * 50);
        let (found, took) = sites.get(EAST, &key);
        assert!(found == some("1") && took < MS * 10, "{found:?} after {took:?}");
        sites.put(EAST, &key, "2");
        let (found, took) = sites.get(WEST, &key);
        assert!(found == some("2") && took >= WAY && took < WAY + MS * 10, "one hop: {took:?}");
        sites.put(WEST, &key, "3");
        assert_eq!(sites.get(EAST, &key).0, some("3"));
        // Keys of its slot's other groups stay, and a scan finds each key once.
        for site in [WEST, EAST] {
            let count = sites.read(Query::Count, ReadConsistency::Linearizable);
            let count = sites.ask(site, count).0;
            assert_eq!(count, Answer::Integer(i64::from(site == EAST)));
        }
        // What was written there is at home soon.
        assert!(sites.lab.run_until(MS * 1_000, |lab| {
            lab.part(EAST, &of_key).is_some_and(|part| part.changed <= part.fed)
        }));
        give_back(&mut sites, &key);
        assert!(sites.lab.run_until(MS * 1_000, |lab| part(lab, &of_key) == LoanPart::Retained));
        let (found, took) = sites.get(WEST, &key);
        assert!(found == some("3") && took < MS * 10, "{found:?} after {took:?}");
        assert_eq!(sites.get(EAST, &key).0, some("3"));
        // West's mirror is at east.
        assert!(sites.lab.run_until(MS * 10_000, |lab| part(lab, &of_key) == LoanPart::Never));
    }
}

#[test]
fn no_request_fails_and_none_is_lost_while_a_group_goes_to_and_fro() {
    let mut sites = sites(true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    let mut added = 0;
    let mut add_some = |sites: &mut Sites| {
        let bodies = (0..4).map(|_| add(sites, &key)).collect();
        for (site, bodies) in [(WEST, bodies), (EAST, vec![add(sites, &key)])] {
            let (outcomes, took) = sites.ask_all(site, bodies);
            assert!(took < MS * 400, "{took:?}");
            for outcome in outcomes {
                added += 1;
                assert!(matches!(outcome, Ok(Answer::Integer(_))), "{outcome:?}");
            }
        }
    };
    for _ in 0..5 {
        lend(&mut sites, &key);
        (0..3).for_each(|_| add_some(&mut sites));
        assert!(sites.lab.run_until(MS * 2_000, |lab| part(lab, &of_key) == LoanPart::Held));
        (0..3).for_each(|_| add_some(&mut sites));
        give_back(&mut sites, &key);
        (0..3).for_each(|_| add_some(&mut sites));
        assert!(sites.lab.run_until(MS * 2_000, |lab| part(lab, &of_key) == LoanPart::Retained));
    }
    assert_eq!(sites.get(WEST, &key).0, some(&added.to_string()));
}

#[test]
fn a_loan_goes_on_after_a_crash_of_either_side() {
    let mut sites = sites(true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, "1");
    for (site, value) in [(WEST, "2"), (EAST, "3"), (WEST, "4"), (EAST, "5")] {
        lend(&mut sites, &key);
        sites.lab.crash(site, &Down::Killed);
        sites.lab.start(site);
        assert!(sites.lab.run_until(MS * 20_000, |lab| part(lab, &of_key) == LoanPart::Held));
        sites.put(EAST, &key, value);
        give_back(&mut sites, &key);
        sites.lab.crash(site, &Down::Killed);
        sites.lab.start(site);
        let is_back = |lab: &Simulation| part(lab, &of_key) == LoanPart::Retained;
        assert!(sites.lab.run_until(MS * 20_000, is_back));
        assert_eq!(sites.get(WEST, &key).0, some(value));
    }
}

/// What a write waits as its group is lent, and as it comes back: nothing else is done at either
/// site.
#[test]
fn a_group_changes_hands_within_a_round_trip_and_two_commits() {
    let mut sites = sites(true);
    let key = sites.key_at(WEST, "a");
    let of_key = group(&sites, &key);
    sites.put(WEST, &key, &"v".repeat(1_024));
    // A commit of a site of one node, by a write where it is served.
    let began = sites.lab.now();
    sites.put(WEST, &key, &"w".repeat(1_024));
    let commit = sites.lab.now() - began;
    let most = WAY + 2 * commit;
    for round in 0..4 {
        sites.lab.run(MS * 1_000);
        let began = sites.lab.now();
        lend(&mut sites, &key);
        // West has stopped with that answer, or before.
        let lent = sites.lab.now();
        let is_there = |lab: &Simulation| lab.serves_group(EAST, &of_key).is_some();
        assert!(sites.lab.run_until(MS * 1_000, is_there));
        let (from_command, pause) = (sites.lab.now() - began, sites.lab.now() - lent);
        eprintln!("round {round}: lent: {from_command:?} from the command, {pause:?} at no site");
        assert!(from_command <= most + commit, "{from_command:?} of {most:?}");
        assert!(pause <= most, "{pause:?} of {most:?}");
        sites.put(EAST, &key, &"x".repeat(1_024));
        sites.lab.run(MS * 1_000);
        let loan = sites.lab.part(EAST, &of_key).unwrap().borrowed.loan;
        let began = sites.lab.now();
        sites.write(EAST, lending(Lending::GiveBack { loans: vec![(of_key.clone(), loan)] }));
        let frozen = sites.lab.now();
        let is_home = |lab: &Simulation| lab.serves_group(WEST, &of_key).is_some();
        assert!(sites.lab.run_until(MS * 1_000, is_home));
        let (from_command, pause) = (sites.lab.now() - began, sites.lab.now() - frozen);
        eprintln!("round {round}: back: {from_command:?} from the command, {pause:?} at no site");
        assert!(from_command <= most + commit, "{from_command:?} of {most:?}");
        assert!(pause <= most, "{pause:?} of {most:?}");
    }
}

/// As many as a job has to send: the links carry them, and no processor is waited for.
#[test]
fn thousands_of_groups_change_hands_in_a_second() {
    const GROUPS: usize = 2_048;
    let mut sites = sites(true);
    let keys: Vec<String> = (0..GROUPS).map(|n| sites.key_at(WEST, &format!("{n}x"))).collect();
    for some in keys.chunks(256) {
        let put = |key: &String| {
            let pairs = vec![(bytes(key), bytes(&"v".repeat(1_024)))];
            let write = Write::PutMany { pairs, if_all_absent: false };
            Body::Write(Command::Write { keyspace: sites.keyspace, write, request: None })
        };
        let bodies = some.iter().map(put).collect();
        sites.ask_all(WEST, bodies);
    }
    let groups: Vec<Group> = keys.iter().map(|key| group(&sites, key)).collect();
    let began = sites.lab.now();
    for some in groups.chunks(256) {
        sites.write(WEST, lending(Lending::Lend { to: OF_EAST, groups: some.to_vec() }));
    }
    let are = |lab: &Simulation, at| groups.iter().all(|one| lab.serves_group(at, one).is_some());
    assert!(sites.lab.run_until(MS * 10_000, |lab| are(lab, EAST)));
    let lent = sites.lab.now() - began;
    sites.lab.run(MS * 1_000);
    let began = sites.lab.now();
    for some in groups.chunks(256) {
        let loan = |one: &Group| (one.clone(), sites.lab.part(EAST, one).unwrap().borrowed.loan);
        let loans = some.iter().map(loan).collect();
        sites.write(EAST, lending(Lending::GiveBack { loans }));
    }
    assert!(sites.lab.run_until(MS * 10_000, |lab| are(lab, WEST)));
    let back = sites.lab.now() - began;
    eprintln!("{GROUPS} groups lent in {lent:?}, given back in {back:?}");
    let most = MS * 1_000 * GROUPS as u32 / 2_000;
    assert!(lent <= most && back <= most, "{lent:?} and {back:?} of {most:?}");
}
