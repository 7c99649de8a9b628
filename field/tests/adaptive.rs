//! Groups of keys that follow their users between three sites, as processes: no request fails, and
//! nothing is lost when the home of a group or its borrower is killed.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use field::deployment::{json, start};
use field::resp::Client;
use field::{Node, eventually};

const TIMEOUT: Duration = Duration::from_secs(300);
const DEADLINE: Duration = Duration::from_secs(30);
/// Between two requests of a user.
const APART: Duration = Duration::from_millis(20);

/// Three sites and an adaptive keyspace that all of them have.
fn sites(folder: &std::path::Path) -> [Node; 3] {
    let nodes = start(folder, ["a", "b", "c"]);
    let create = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
    let create = [&create[..], &["--placement", "adaptive"]].concat();
    eventually(TIMEOUT, || nodes[0].cli(&create)).expect("an adaptive keyspace");
    for node in &nodes {
        let knows = || json(node, &["keyspace", "show", "cars", "--json"]);
        let shown = eventually(TIMEOUT, knows).expect("a keyspace gets about");
        assert_eq!(shown["placement"], "adaptive");
    }
    nodes
}

/// The site that serves a key, and the owner of its slot.
fn place(node: &Node, key: &str) -> Result<(String, String), String> {
    let explained = json(node, &["placement", "explain", key, "--json"])?;
    let name = |field: &str| explained[field].as_str().unwrap_or_default().to_owned();
    Ok((name("owner"), name("home")))
}

/// A key of the keyspace that has its home at a site.
fn key_at(node: &Node, site: &str) -> String {
    let is_there = |key: &String| place(node, key).is_ok_and(|(_, home)| home == site);
    (0..100).map(|number| format!("car:{number}")).find(is_there).expect("a key of each site")
}

fn wait_served_at(asked: &Node, key: &str, site: &str) {
    let there = eventually(TIMEOUT, || match place(asked, key)? {
        (at, _) if at == site => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(there.is_ok(), "{key} at {site}: {there:?}");
}

/// Counts a key up at the node of the moment until it is to end. Returns how many of its requests
/// were answered; all of them must be.
fn count_up(nodes: &[Node], at: &AtomicUsize, ends: &AtomicBool, key: &str) -> i64 {
    let mut counted = 0;
    while !ends.load(Ordering::Relaxed) {
        let site = at.load(Ordering::Relaxed);
        let mut client = Client::connect(nodes[site].options.redis, DEADLINE).expect("a client");
        client.call(&["CLIENT", "SETNAME", "user-1"]).expect("its name");
        while at.load(Ordering::Relaxed) == site && !ends.load(Ordering::Relaxed) {
            let found = client.call(&["INCR", key]).expect("no request fails");
            counted += 1;
            assert_eq!(found.int(), Some(counted), "each is counted once");
            std::thread::sleep(APART);
        }
    }
    counted
}

#[test]
fn a_key_follows_its_user_from_site_to_site() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = sites(folder.path());
    let key = key_at(&nodes[0], "a");
    let (at, ends) = (AtomicUsize::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let user = scope.spawn(|| count_up(&nodes, &at, &ends, &key));
        for (site, name) in [(2, "c"), (1, "b"), (0, "a"), (2, "c")] {
            at.store(site, Ordering::Relaxed);
            wait_served_at(&nodes[1], &key, name);
        }
        // What the sites show of it.
        let ledger = eventually(TIMEOUT, || {
            let ledger = json(&nodes[2], &["placement", "ledger", "--json"])?;
            let saved = ledger["loans"]["windows"].as_array().is_some_and(|windows| {
                windows.iter().any(|window| window["saved_ms"].as_f64().is_some_and(|ms| ms > 0.0))
            });
            if saved { Ok(ledger) } else { Err(ledger.to_string()) }
        });
        let texts = [&["placement", "explain", key.as_str()][..], &["placement", "ledger"]];
        let texts = texts.map(|words| nodes[0].cli(words));
        let metrics = [0, 2].map(|site| nodes[site].admin("/metrics"));
        ends.store(true, Ordering::Relaxed);
        let counted = user.join().expect("the user");
        let ledger = ledger.expect("a window that saves");
        assert_eq!(ledger["loans"]["borrowed"][0]["from"], "a");
        assert_eq!(ledger["loans"]["borrowed"][0]["tag"], key);
        let [explained, lends] = texts.map(|text| text.expect("a table"));
        assert!(explained.contains("is lent to c by a"), "{explained}");
        assert!(explained.contains("last at"), "its user has a name: {explained}");
        assert!(lends.contains("site a lends 1 groups"), "{lends}");
        let [home, borrower] = metrics.map(|answer| answer.expect("metrics").1);
        let is_in = |text: &str, line: &str| text.lines().any(|one| one == line);
        assert!(is_in(&home, "portolan_placement_lent 1"), "{home}");
        assert!(is_in(&borrower, "portolan_placement_borrowed 1"), "{borrower}");
        assert!(is_in(&borrower, "portolan_placement_by_client 1"), "{borrower}");
        let moved = home.lines().find_map(|line| {
            line.strip_prefix("portolan_placement_moves_total ")?.parse::<u64>().ok()
        });
        assert!(moved >= Some(1), "{moved:?}");
        for node in &nodes {
            let mut client = Client::connect(node.options.redis, DEADLINE).expect("a client");
            let found = client.call(&["GET", &key]).expect("a read");
            assert_eq!(found.int(), Some(counted));
        }
    });
}

#[test]
fn a_keyspace_becomes_adaptive_and_is_it_no_more_while_a_user_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = sites(folder.path());
    let alter = |node: &Node, placement: &str| {
        let words = ["keyspace", "alter", "cars", "--placement", placement];
        eventually(TIMEOUT, || node.cli(&words)).expect("a change of the placement");
        for node in &nodes {
            let shown = eventually(TIMEOUT, || match node.cli(&["keyspace", "list"])? {
                list if list.contains(placement) => Ok(()),
                list => Err(list),
            });
            shown.expect("a change gets about");
        }
    };
    let key = key_at(&nodes[0], "a");
    alter(&nodes[0], "off");
    let (at, ends) = (AtomicUsize::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let user = scope.spawn(|| count_up(&nodes, &at, &ends, &key));
        let lent = |node: &Node| {
            let ledger = json(node, &["placement", "ledger", "--json"])?;
            Ok::<u64, String>(ledger["loans"]["lent_count"].as_u64().unwrap_or_default())
        };
        let steps = [("adaptive", 1), ("advise", 0), ("adaptive", 1), ("off", 0)];
        let outcome = steps.map(|(placement, expected)| {
            alter(&nodes[1], placement);
            eventually(TIMEOUT, || match lent(&nodes[0])? {
                count if count == expected => Ok(()),
                count => Err(format!("{count} groups are lent while the placement is {placement}")),
            })
        });
        ends.store(true, Ordering::Relaxed);
        let counted = user.join().expect("the user");
        outcome.into_iter().for_each(|step| step.expect("groups follow the placement"));
        for node in &nodes {
            let mut client = Client::connect(node.options.redis, DEADLINE).expect("a client");
            let found = client.call(&["GET", &key]).expect("a read");
            assert_eq!(found.int(), Some(counted), "nothing is lost");
        }
    });
}

/// Counts a key up at a node for as long as it is up, and goes on when it is again. Returns how
/// many were answered, and how many are unknown.
fn count_on(node: &Node, ends: &AtomicBool, answered: &AtomicI64, key: &str) -> i64 {
    let mut unknown = 0;
    while !ends.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::connect(node.options.redis, DEADLINE) else {
            std::thread::sleep(APART);
            continue;
        };
        while !ends.load(Ordering::Relaxed) {
            if client.call(&["INCR", key]).is_err() {
                unknown += 1;
                break;
            }
            answered.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(APART);
        }
    }
    unknown
}

/// A user at `c` has a key of `a` there; then the node of one of the two is killed and comes back.
fn killed(which: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = sites(folder.path());
    let key = key_at(&nodes[0], "a");
    let (ends, answered) = (AtomicBool::new(false), AtomicI64::new(0));
    let [a, b, c] = &mut nodes;
    let unknown = std::thread::scope(|scope| {
        let (killed, user) = if which == 0 { (a, &*c) } else { (c, &*a) };
        let user_at_c = which == 0;
        let at_c = if user_at_c { user.options.redis } else { killed.options.redis };
        let mut asks_at_c = Client::connect(at_c, DEADLINE).expect("a client");
        let lent = eventually(TIMEOUT, || {
            asks_at_c.call(&["INCR", &key]).map_err(|error| error.to_string())?;
            answered.fetch_add(1, Ordering::Relaxed);
            match place(b, &key)? {
                (at, _) if at == "c" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        lent.expect("it is lent");
        let counts = scope.spawn(|| count_on(user, &ends, &answered, &key));
        std::thread::sleep(Duration::from_secs(1));
        killed.kill();
        let before = answered.load(Ordering::Relaxed);
        let served = |more: i64| {
            eventually(TIMEOUT, || match answered.load(Ordering::Relaxed) - before {
                since if since > more => Ok(()),
                since => Err(format!("{since} since then")),
            })
        };
        std::thread::sleep(Duration::from_secs(3));
        // The borrower serves on while the home is away.
        let alone = if user_at_c { served(20) } else { Ok(()) };
        killed.restart();
        let again = served(100);
        // Also if that failed: the user would count for ever.
        ends.store(true, Ordering::Relaxed);
        let unknown = counts.join().expect("the user");
        alone.expect("it is served without the home");
        again.expect("it is served again");
        unknown
    });
    let answered = answered.load(Ordering::Relaxed);
    for node in &nodes {
        let found = eventually(TIMEOUT, || {
            let client = Client::connect(node.options.redis, DEADLINE);
            let mut client = client.map_err(|error| error.to_string())?;
            client.call(&["GET", &key]).map_err(|error| error.to_string())
        });
        let found = found.expect("a read").int().expect("a number");
        assert!(
            (answered..=answered + unknown).contains(&found),
            "{found}: {answered} + {unknown}"
        );
    }
}

#[test]
fn a_killed_home_leaves_its_groups_with_their_borrowers() {
    killed(0);
}

#[test]
fn a_killed_borrower_goes_on_with_its_groups() {
    killed(2);
}
