//! A site that joins a deployment, and one that was removed from it and comes back: what clients
//! see at their Redis ports, and what the other sites list.

use std::fs;
use std::time::{Duration, Instant};

use field::deployment::{self, LIMIT};
use field::resp::{Client, Value};
use field::{eventually, keys};

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// How many answers of a site that joins are looked at.
const ANSWERS: usize = 40;

#[test]
fn a_site_that_joins_answers_global_keys_right_from_its_first_answer_on() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = deployment::start(folder.path(), ["a", "b"]);
    keys::write(&a, "ledger:old", "here");
    keys::write(&a, "ledger:count", "100");
    let mut count = 100;
    for name in ["c", "d"] {
        let mut joins = deployment::options(folder.path(), name, Some(&b)).spawn();
        let begun = Instant::now();
        let mut answers = 0;
        // Without a pause: what is wrong is so for some milliseconds.
        while answers < ANSWERS {
            assert!(begun.elapsed() < LIMIT, "{name} does not answer");
            let Ok(mut client) = Client::connect(joins.options.redis, DEADLINE) else { continue };
            while let Ok(old) = client.call(&["GET", "ledger:old"]) {
                assert_eq!(old.bytes(), Some(&b"here"[..]), "at {name}");
                let Ok(Value::Int(next)) = client.call(&["INCR", "ledger:count"]) else { break };
                assert!(next > count, "{name} counts {next} after {count}");
                count = next;
                answers += 1;
                if answers >= ANSWERS {
                    break;
                }
            }
        }
        joins.wait_ready();
    }
    assert_eq!(keys::read(&a, "ledger:count"), Some(count.to_string()));
}

#[test]
fn a_removed_site_that_comes_back_is_not_taken_for_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let [a, mut b, c] = deployment::start(folder.path(), ["a", "b", "c"]);
    b.kill();
    eventually(LIMIT, || c.cli(&["site", "promote", "b", "--accept-loss"])).unwrap();
    // At once: the site that is asked may not have heard yet of what was decided.
    eventually(LIMIT, || c.cli(&["site", "leave", "b"])).unwrap();
    let mut again = b.options.spawn();
    eventually(LIMIT, || match fs::read_to_string(b.options.log()) {
        Ok(log) if log.contains("this site has left its deployment") => Ok(()),
        Ok(log) => Err(log),
        Err(error) => Err(error.to_string()),
    })
    .unwrap();
    again.kill();
    // Its next start is refused.
    let mut refused = b.options.spawn();
    let ended = eventually(LIMIT, || refused.exited().ok_or_else(|| "it runs".to_owned()));
    assert!(!ended.unwrap().success());
    for node in [&a, &c] {
        let sites = deployment::slots(node).unwrap();
        assert!(sites.iter().all(|(site, _)| site != "b"), "{sites:?}");
    }
}
