//! `kill -9` at random moments under load: nothing acknowledged is lost, nothing is applied twice,
//! nothing torn is served. Besides, all that was asked and answered is a history that
//! `portolan lab verdict` finds linearizable and durable.
//!
//! Rounds: `PORTOLAN_ROUNDS` (10 by default, 200 for the record). The seed is printed and can be
//! given again as `PORTOLAN_SEED`; it fixes what is killed and for how long there is load before,
//! not what the processes do meanwhile.

use std::time::Duration;

use field::history::{self, History};
use field::resp::Client;
use field::{Ledger, Node, NodeOptions, Site, eventually, ledger::Writers, number_from_env};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const WRITERS: usize = 8;
/// How long a writer waits for an answer: longer than the server's own deadline, so that most
/// outcomes are answered and not guessed.
const DEADLINE: Duration = Duration::from_secs(15);

#[test]
fn one_node_is_killed_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = seeded();
    let mut faults = History::new("faults");
    let mut node = NodeOptions::new(folder.path(), 1).start();
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::recording).collect();
    for round in 1..=rounds() {
        let writers = Writers::start(ledgers, &[node.options.redis], DEADLINE);
        std::thread::sleep(Duration::from_millis(random.random_range(5..400)));
        faults.fault("the node is killed");
        node.kill();
        ledgers = writers.stop().unwrap_or_else(|fault| panic!("round {round}: {fault}"));
        node.restart();
        check(&mut ledgers, &node, round);
    }
    report(&ledgers);
    judged(&ledgers, &faults);
}

#[test]
fn nodes_of_three_are_killed_again_and_again() {
    // One alone is a failure that the site must hide; two or three stop it for a while.
    const VICTIMS: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2]];
    let folder = tempfile::tempdir().unwrap();
    let mut random = seeded();
    let mut faults = History::new("faults");
    let mut site = Site::start(folder.path(), 3, |_| {});
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::recording).collect();
    for round in 1..=rounds() {
        let writers = Writers::start(ledgers, &site.redis(), DEADLINE);
        std::thread::sleep(Duration::from_millis(random.random_range(5..400)));
        let victims = *VICTIMS.choose(&mut random).unwrap();
        faults.fault(&format!("nodes {victims:?} are killed"));
        for &victim in victims {
            site.nodes[victim].kill();
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..400)));
        for &victim in victims {
            site.nodes[victim].respawn();
        }
        ledgers = writers.stop().unwrap_or_else(|fault| panic!("round {round}: {fault}"));
        for &victim in victims {
            site.nodes[victim].wait_ready();
        }
        site.wait_writable();
        for node in &site.nodes {
            check(&mut ledgers, node, round);
        }
    }
    report(&ledgers);
    judged(&ledgers, &faults);
}

#[test]
fn a_killed_leader_is_replaced_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = History::new("faults");
    let mut site = Site::start(folder.path(), 3, |_| {});
    let ledgers: Vec<Ledger> = (0..WRITERS).map(Ledger::recording).collect();
    let writers = Writers::start(ledgers, &site.redis(), DEADLINE);
    std::thread::sleep(Duration::from_millis(500));
    let leader = site.leader().unwrap();
    faults.fault("the leader is killed");
    site.nodes[leader].kill();
    site.wait_writable();
    let mut ledgers = writers.stop().unwrap();
    assert_ne!(site.leader().unwrap(), leader);
    for node in site.nodes.iter().filter(|node| node.is_up()) {
        check(&mut ledgers, node, 1);
    }
    report(&ledgers);
    judged(&ledgers, &faults);
}

#[test]
fn the_first_request_after_a_kill_finds_its_keyspace() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeOptions::new(folder.path(), 1).start();
    node.cli(&["keyspace", "create", "cars", "--prefix", "car:"]).unwrap();
    let mut client = Client::connect(node.options.redis, DEADLINE).unwrap();
    // What is to be applied after a start, so that requests come before its end.
    for number in 0..2_000 {
        client.send(&["SET", &format!("car:{number}"), "0"]).unwrap();
    }
    (0..2_000).for_each(|_| drop(client.receive().unwrap()));
    for round in 1..=rounds() {
        node.respawn();
        let mut client = eventually(DEADLINE, || {
            Client::connect(node.options.redis, DEADLINE).map_err(|error| error.to_string())
        })
        .unwrap();
        let seen = client.call(&["INCR", "car:1"]).unwrap();
        assert_eq!(seen.int(), Some(round as i64), "round {round}: {seen:?}");
        let shown = node.cli(&["get", "--keyspace", "cars", "car:1"]).unwrap();
        assert_eq!(shown.trim(), round.to_string());
    }
}

fn rounds() -> u64 {
    number_from_env("PORTOLAN_ROUNDS", 10)
}

fn seeded() -> StdRng {
    let seed = number_from_env("PORTOLAN_SEED", u64::from(std::process::id()));
    eprintln!("PORTOLAN_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Compares every account with the answers of `node`.
fn check(ledgers: &mut [Ledger], node: &Node, round: u64) {
    for ledger in ledgers {
        let verdict = eventually(Duration::from_secs(60), || {
            let mut client = Client::connect(node.options.redis, DEADLINE)
                .map_err(|e| format!("no connection: {e}"))?;
            match ledger.check(&mut client) {
                Ok(Ok(())) => Ok(Ok(())),
                Ok(Err(error)) => Err(error.to_string()),
                Err(fault) => Ok(Err(fault)),
            }
        });
        let verdict = verdict.and_then(|inner| inner);
        assert!(verdict.is_ok(), "round {round}, node {}: {verdict:?}", node.options.node);
    }
}

/// Prints how much was at stake; a run without a single acknowledged write has shown nothing.
fn report(ledgers: &[Ledger]) {
    let counted: u64 = ledgers.iter().map(|ledger| ledger.counted).sum();
    let unknown: u64 = ledgers.iter().map(|ledger| ledger.counted_unknown).sum();
    eprintln!("{counted} increments acknowledged, {unknown} unknown");
    assert!(counted > 0);
}

/// Has all of it judged by a program that has no notion of ledgers. The file stays where it is if a
/// promise was broken.
fn judged(ledgers: &[Ledger], faults: &History) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let clients = ledgers.iter().filter_map(|ledger| ledger.history.as_ref());
    history::write(&file, clients.chain([faults])).unwrap();
    match history::judge(&file, &["linearizable", "durable"]) {
        Ok(document) => eprintln!("{} operations, judged", document["operations"]),
        Err(said) => {
            let kept = folder.keep();
            panic!("{said}\nThe history is in {}", kept.display());
        }
    }
}
