//! Causal keys over real sites: a session moves among them, nodes are killed meanwhile, and a site
//! that is cut off answers that within the deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use field::deployment::{self, LIMIT, json};
use field::resp::{Client, Error, Value};
use field::{Node, eventually};

const DEADLINE: Duration = Duration::from_secs(15);

/// Three sites with the causal keyspace `cars` (`car:`). The first is the root.
fn start(folder: &std::path::Path) -> [Node; 3] {
    let nodes = deployment::start(folder, ["a", "b", "c"]);
    deployment::create_causal(&nodes);
    for node in &nodes {
        let knows = eventually(LIMIT, || match json(node, &["region", "show", "--json"])? {
            region if region["root"] == "a" => Ok(()),
            region => Err(region.to_string()),
        });
        knows.expect("the region gets about");
    }
    nodes
}

fn connect(node: &Node) -> Result<Client, String> {
    Client::connect(node.options.redis, DEADLINE).map_err(|error| error.to_string())
}

/// A reply; what the site refuses, by its text.
fn call(client: &mut Client, words: &[&str]) -> Result<Value, String> {
    client.call(words).map_err(|error| match error {
        Error::Refused(text) => text,
        other => format!("{other:?}"),
    })
}

fn text(value: &Value) -> Option<String> {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn token(client: &mut Client) -> Result<String, String> {
    text(&call(client, &["PORTOLAN.TOKEN"])?).ok_or_else(|| "no token".to_owned())
}

/// Opens a connection that goes on with a session, once the site lets it.
fn attach(node: &Node, token: &str) -> Result<Client, String> {
    let mut client = connect(node)?;
    call(&mut client, &["PORTOLAN.ATTACH", token, "WITHIN", "2000"])?;
    Ok(client)
}

#[test]
fn a_session_moves_while_sites_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    let mut carried = token(&mut connect(&nodes[0]).unwrap()).unwrap();
    for round in 0..24_usize {
        let at = round % 3;
        if round == 8 {
            // The site that the session has just written at, perhaps before that write is ordered.
            nodes[1].kill();
            nodes[1].restart();
        }
        if round == 15 {
            // The root.
            nodes[0].kill();
            nodes[0].restart();
        }
        let mut client = eventually(LIMIT, || attach(&nodes[at], &carried)).unwrap();
        if round > 0 {
            let seen = text(&call(&mut client, &["GET", "car:1"]).unwrap());
            assert_eq!(seen, Some((round - 1).to_string()), "round {round} at {at}");
        }
        call(&mut client, &["SET", "car:1", &round.to_string()]).unwrap();
        let seen = text(&call(&mut client, &["GET", "car:1"]).unwrap());
        assert_eq!(seen, Some(round.to_string()), "round {round}");
        carried = token(&mut client).unwrap();
    }
    // All sites come to the same.
    for node in &nodes {
        let same = eventually(LIMIT, || {
            match text(&call(&mut connect(node)?, &["GET", "car:1"])?).as_deref() {
                Some("23") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        same.unwrap();
    }
}

#[test]
fn a_site_that_is_cut_off_says_so_within_the_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, mut b, mut c] = start(folder.path());
    call(&mut connect(&c).unwrap(), &["SET", "car:c", "here"]).unwrap();
    // Suspended it would still find what the system has received for it.
    c.kill();
    let mut client = connect(&b).unwrap();
    call(&mut client, &["SET", "car:1", "seen"]).unwrap();
    let ordered = eventually(LIMIT, || {
        let region = json(&b, &["region", "show", "--json"])?;
        match region["last_revision"] == region["ordered_revision"] {
            true => Ok(()),
            false => Err(region.to_string()),
        }
    });
    ordered.expect("the root orders while a site is away");
    assert_eq!(text(&call(&mut client, &["GET", "car:1"]).unwrap()).as_deref(), Some("seen"));
    let carried = token(&mut client).unwrap();
    a.kill();
    b.kill();
    c.restart();

    let began = Instant::now();
    let mut client = eventually(LIMIT, || connect(&c)).unwrap();
    let refused = call(&mut client, &["PORTOLAN.ATTACH", &carried, "WITHIN", "500"]);
    let error = refused.expect_err("it lacks what the session has seen");
    assert!(error.starts_with("BEHIND this site has the region's order up to"), "{error}");
    assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
    // The site goes on for its own sessions.
    let mut alone = eventually(LIMIT, || connect(&c)).unwrap();
    assert_eq!(text(&call(&mut alone, &["GET", "car:c"]).unwrap()).as_deref(), Some("here"));
    call(&mut alone, &["SET", "car:c", "alone"]).unwrap();

    a.restart();
    b.restart();
    let mut client = eventually(LIMIT, || attach(&c, &carried)).unwrap();
    assert_eq!(text(&call(&mut client, &["GET", "car:1"]).unwrap()).as_deref(), Some("seen"));
    let there =
        eventually(LIMIT, || match text(&call(&mut connect(&b)?, &["GET", "car:c"])?).as_deref() {
            Some("alone") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    there.unwrap();
}

#[test]
fn the_root_moves_while_clients_write_and_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    let mut carried = token(&mut connect(&nodes[0]).unwrap()).unwrap();
    let root = |node: &Node| -> Result<String, String> {
        let region = json(node, &["region", "show", "--json"])?;
        Ok(region["root"].as_str().unwrap_or_default().to_owned())
    };
    let asked = nodes[2].cli(&["region", "move-root", "--to", "b"]).unwrap();
    assert!(asked.contains("b is to be the root in the place of a"), "{asked}");
    for round in 0..30_usize {
        let at = round % 3;
        if round == 10 {
            // The old root, or the new one, in the middle of it.
            nodes[0].kill();
            nodes[0].restart();
        }
        let mut client = eventually(LIMIT, || attach(&nodes[at], &carried)).unwrap();
        if round > 0 {
            let seen = text(&call(&mut client, &["GET", "car:1"]).unwrap());
            assert_eq!(seen, Some((round - 1).to_string()), "round {round} at {at}");
        }
        call(&mut client, &["SET", "car:1", &round.to_string()]).unwrap();
        carried = token(&mut client).unwrap();
    }
    let moved = eventually(LIMIT, || match root(&nodes[2])?.as_str() {
        "b" => Ok(()),
        other => Err(other.to_owned()),
    });
    moved.expect("b becomes the root");
    // The root leaves: a goes on.
    nodes[0].cli(&["site", "leave", "b"]).unwrap();
    for node in [&nodes[0], &nodes[2]] {
        let moved = eventually(LIMIT, || match root(node)?.as_str() {
            "a" => Ok(()),
            other => Err(other.to_owned()),
        });
        moved.expect("a becomes the root");
    }
    let mut client = eventually(LIMIT, || attach(&nodes[2], &carried)).unwrap();
    assert_eq!(text(&call(&mut client, &["GET", "car:1"]).unwrap()).as_deref(), Some("29"));
    call(&mut client, &["SET", "car:1", "after"]).unwrap();
    let there = eventually(LIMIT, || {
        match text(&call(&mut connect(&nodes[0])?, &["GET", "car:1"])?).as_deref() {
            Some("after") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    there.expect("the order goes on");
}

#[test]
fn counters_go_by_what_the_site_shows() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = start(folder.path());
    let create = ["keyspace", "create", "tallies", "--prefix", "tally:", "--rmw", "local"];
    let create = [&create[..], &["--consistency", "causal", "--scope", "region"]].concat();
    nodes[0].cli(&create).unwrap();
    for node in &nodes {
        let shown = eventually(LIMIT, || json(node, &["keyspace", "show", "tallies", "--json"]));
        assert_eq!(shown.unwrap()["rmw"], "local");
    }
    let mut carried = token(&mut connect(&nodes[0]).unwrap()).unwrap();
    for round in 1..=12_i64 {
        let node = &nodes[round as usize % 3];
        let mut client = eventually(LIMIT, || attach(node, &carried)).unwrap();
        assert_eq!(call(&mut client, &["INCR", "tally:n"]), Ok(Value::Int(round)));
        let before = call(&mut client, &["GETSET", "tally:last", &round.to_string()]).unwrap();
        assert_eq!(text(&before), (round > 1).then(|| (round - 1).to_string()));
        assert_eq!(call(&mut client, &["SETNX", "tally:last", "x"]), Ok(Value::Int(0)));
        carried = token(&mut client).unwrap();
    }
    let mut client = connect(&nodes[1]).unwrap();
    call(&mut client, &["PORTOLAN.ATTACH", &carried]).unwrap();
    let mut other = connect(&nodes[1]).unwrap();
    // A transaction that another one has overtaken does nothing, and the next one works.
    for (is_overtaken, expected) in [(true, 13), (false, 14)] {
        call(&mut client, &["WATCH", "tally:n"]).unwrap();
        if is_overtaken {
            call(&mut other, &["INCR", "tally:n"]).unwrap();
        }
        call(&mut client, &["MULTI"]).unwrap();
        call(&mut client, &["INCR", "tally:n"]).unwrap();
        let done = call(&mut client, &["EXEC"]).unwrap();
        assert_eq!(done == Value::Nil, is_overtaken, "{done:?}");
        let now = text(&call(&mut client, &["GET", "tally:n"]).unwrap());
        assert_eq!(now, Some(expected.to_string()));
    }
    let refused = call(&mut client, &["INCR", "car:n"]).unwrap_err();
    assert!(refused.contains("unless its rmw is local"), "{refused}");
    let create = ["keyspace", "create", "wrong", "--prefix", "w:", "--rmw", "local"];
    let refused = nodes[0].cli(&create).unwrap_err();
    assert!(refused.contains("only consistency causal"), "{refused}");
}

/// Two of three sites hold a keyspace; the third one passes requests on, or refuses them, as the
/// keyspace states.
#[test]
fn a_site_without_a_keyspace_forwards_or_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    let create = |name: &str, more: &[&str]| {
        let prefix = format!("{name}:");
        let words = ["keyspace", "create", name, "--prefix", &prefix, "--scope", "region"];
        nodes[2].cli(&[&words[..], &["--consistency", "causal"], more].concat())
    };
    let refused = create("alone", &["--sites", "a"]).unwrap_err();
    assert!(refused.contains("no site could take the place of the root"), "{refused}");
    let refused = create("other", &["--sites", "b,c"]).unwrap_err();
    assert!(refused.contains("a must hold the keyspace, too"), "{refused}");
    let refused = create("unknown", &["--sites", "a,x"]).unwrap_err();
    assert!(refused.contains("there is no site"), "{refused}");
    create("plan", &["--sites", "a,b"]).unwrap();
    create("log", &["--sites", "b,a", "--miss", "refuse"]).unwrap();
    deployment::wait_one_registry(&nodes.iter().collect::<Vec<_>>());
    let shown = json(&nodes[2], &["keyspace", "show", "log", "--json"]).unwrap();
    assert_eq!(shown["sites"], serde_json::json!(["a", "b"]));
    assert_eq!((&shown["miss"], &shown["keys"]), (&"refuse".into(), &serde_json::Value::Null));

    // At the third site, whole requests go to a site that holds the keyspace.
    let mut client = connect(&nodes[2]).unwrap();
    call(&mut client, &["SET", "car:1", "seen"]).unwrap();
    eventually(LIMIT, || call(&mut client, &["SET", "plan:1", "far"])).unwrap();
    assert_eq!(text(&call(&mut client, &["GET", "plan:1"]).unwrap()).as_deref(), Some("far"));
    for words in [&["MULTI"][..], &["SET", "plan:2", "both"], &["GET", "plan:1"]] {
        call(&mut client, words).unwrap();
    }
    let done = call(&mut client, &["EXEC"]).unwrap();
    let Value::Array(answers) = &done else { panic!("{done:?}") };
    assert_eq!(text(&answers[1]).as_deref(), Some("far"), "{done:?}");
    let shown = json(&nodes[2], &["keyspace", "show", "plan", "--json"]).unwrap();
    assert_eq!((&shown["keys"], &shown["miss"]), (&2.into(), &"forward".into()));
    // The session goes on at the others, and back.
    let mut carried = token(&mut client).unwrap();
    for at in [1, 0, 2] {
        let mut client = eventually(LIMIT, || attach(&nodes[at], &carried)).unwrap();
        for (key, expected) in [("plan:2", "both"), ("plan:1", "far"), ("car:1", "seen")] {
            let found = text(&call(&mut client, &["GET", key]).unwrap());
            assert_eq!(found.as_deref(), Some(expected), "{key} at {at}");
        }
        carried = token(&mut client).unwrap();
    }
    // In a pipeline what another site carries out comes after what is before it, and the session
    // names all of it.
    for round in 0..10 {
        let mut client = connect(&nodes[2]).unwrap();
        let value = round.to_string();
        for key in ["car:2", "plan:3", "car:3", "car:4", "plan:4"] {
            client.send(&["SET", key, &value]).unwrap();
        }
        (0..5).for_each(|_| drop(client.receive().unwrap()));
        carried = token(&mut client).unwrap();
        for at in [1, 0, 2] {
            let mut client = eventually(LIMIT, || attach(&nodes[at], &carried)).unwrap();
            for key in ["plan:4", "car:4", "car:3", "plan:3", "car:2"] {
                let found = text(&call(&mut client, &["GET", key]).unwrap());
                assert_eq!(found.as_ref(), Some(&value), "{key} at {at}");
            }
        }
        // A session that has written elsewhere goes on with what another one has written here.
        let mut other = connect(&nodes[2]).unwrap();
        call(&mut other, &["SET", "car:5", &value]).unwrap();
        let here = token(&mut other).unwrap();
        let mut client = connect(&nodes[2]).unwrap();
        call(&mut client, &["SET", "plan:5", &value]).unwrap();
        call(&mut client, &["PORTOLAN.ATTACH", &here]).unwrap();
        carried = token(&mut client).unwrap();
        let mut client = eventually(LIMIT, || attach(&nodes[1], &carried)).unwrap();
        for key in ["car:5", "plan:5"] {
            let found = text(&call(&mut client, &["GET", key]).unwrap());
            assert_eq!(found.as_ref(), Some(&value), "{key}");
        }
    }
    // What is refused is not done, and the connection goes on.
    let mut client = connect(&nodes[2]).unwrap();
    for words in [&["SET", "log:1", "x"][..], &["GET", "log:1"], &["DBSIZE"]] {
        let refused = call(&mut client, words).unwrap_err();
        assert!(refused.contains("does not hold it"), "{words:?}: {refused}");
    }
    assert_eq!(text(&call(&mut client, &["GET", "car:1"]).unwrap()).as_deref(), Some("seen"));
    let mut there = connect(&nodes[1]).unwrap();
    assert_eq!(call(&mut there, &["GET", "log:1"]), Ok(Value::Nil));
    call(&mut there, &["SET", "log:1", "y"]).unwrap();

    // Neither may the third site order, nor may the last one that holds all leave.
    let refused = nodes[2].cli(&["region", "move-root", "--to", "c"]).unwrap_err();
    assert!(refused.contains("c does not hold all causal keyspaces"), "{refused}");
    nodes[0].cli(&["site", "leave", "b"]).unwrap();
    let refused = nodes[0].cli(&["site", "leave", "a"]).unwrap_err();
    assert!(refused.contains("a is the last site that stays and holds all"), "{refused}");
    // While no site that holds the keyspace is there, requests for it fail, and others are served.
    let gone = eventually(LIMIT, || match nodes[2].cli(&["site", "list"])? {
        list if list.lines().any(|line| line.contains(" b ")) => Err(list),
        _ => Ok(()),
    });
    gone.expect("b leaves");
    nodes[0].kill();
    let mut client = connect(&nodes[2]).unwrap();
    call(&mut client, &["GET", "plan:1"]).unwrap_err();
    let mut client = eventually(LIMIT, || connect(&nodes[2])).unwrap();
    assert_eq!(text(&call(&mut client, &["GET", "car:1"]).unwrap()).as_deref(), Some("seen"));
    nodes[0].restart();
    let back = eventually(LIMIT, || {
        match text(&call(&mut connect(&nodes[2])?, &["GET", "plan:2"])?).as_deref() {
            Some("both") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    back.unwrap();
}

/// To attach asks for nothing of any keyspace.
#[test]
fn a_session_attaches_where_the_first_keyspace_is_not_held() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = start(folder.path());
    nodes[0].cli(&["keyspace", "drop", "cars", "--yes"]).unwrap();
    for (name, more) in [("log", &["--sites", "a,b", "--miss", "refuse"][..]), ("car", &[])] {
        let prefix = format!("{name}:");
        let words = ["keyspace", "create", name, "--prefix", &prefix, "--scope", "region"];
        nodes[0].cli(&[&words[..], &["--consistency", "causal"], more].concat()).unwrap();
    }
    deployment::wait_one_registry(&nodes.iter().collect::<Vec<_>>());
    let mut client = connect(&nodes[0]).unwrap();
    eventually(LIMIT, || call(&mut client, &["SET", "car:1", "x"])).unwrap();
    let carried = token(&mut client).unwrap();
    let mut client = eventually(LIMIT, || attach(&nodes[2], &carried)).unwrap();
    assert_eq!(text(&call(&mut client, &["GET", "car:1"]).unwrap()).as_deref(), Some("x"));
}

/// An operator gives the root up, whose site was killed, and it comes back.
#[test]
fn the_order_goes_on_without_a_lost_root() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    let shows = |node: &Node, key: &str| {
        eventually(LIMIT, || match text(&call(&mut connect(node)?, &["GET", key])?) {
            Some(_) => Ok(()),
            None => Err(format!("no {key}")),
        })
    };
    call(&mut connect(&nodes[0]).unwrap(), &["SET", "car:before", "1"]).unwrap();
    shows(&nodes[1], "car:before").unwrap();
    shows(&nodes[2], "car:before").unwrap();
    let refused = nodes[1].cli(&["region", "rebuild"]).unwrap_err();
    assert!(refused.contains("a is the root of the region and can be reached"), "{refused}");
    // What only the root has: it has ordered that, and no other site is up.
    nodes[1].kill();
    nodes[2].kill();
    let mut client = connect(&nodes[0]).unwrap();
    call(&mut client, &["SET", "car:alone", "1"]).unwrap();
    let ordered = || -> Result<(), String> {
        let region = json(&nodes[0], &["region", "show", "--json"])?;
        match region["last_revision"] == region["ordered_revision"] {
            true => Ok(()),
            false => Err(region.to_string()),
        }
    };
    eventually(LIMIT, ordered).expect("the root orders while all other sites are away");
    assert_eq!(text(&call(&mut client, &["GET", "car:alone"]).unwrap()).as_deref(), Some("1"));
    let saw = token(&mut client).unwrap();
    nodes[0].kill();
    nodes[1].restart();
    nodes[2].restart();
    call(&mut connect(&nodes[2]).unwrap(), &["SET", "car:2", "1"]).unwrap();
    eventually(LIMIT, || nodes[1].cli(&["region", "rebuild"])).expect("the root is away");
    let root = |node: &Node| -> Result<serde_json::Value, String> {
        let region = json(node, &["region", "show", "--json"])?;
        match region["epoch"].as_u64() > Some(1) && region["rebuilding"] == false {
            true => Ok(region),
            false => Err(region.to_string()),
        }
    };
    let region = eventually(LIMIT, || root(&nodes[1])).expect("another site is the root");
    assert!(region["root"] != "a" && region["lost"]["above"].is_string(), "{region}");
    shows(&nodes[1], "car:2").unwrap();
    let lost = |node: &Node| match attach(node, &saw) {
        Err(error) if error.starts_with("LOST ") => Ok(()),
        other => Err(format!("{:?}", other.err())),
    };
    eventually(LIMIT, || lost(&nodes[2])).expect("what it has seen is lost");

    nodes[0].restart();
    for node in &nodes {
        shows(node, "car:alone").expect("the lost root's write is back with it");
        shows(node, "car:2").unwrap();
    }
    call(&mut connect(&nodes[0]).unwrap(), &["SET", "car:after", "1"]).unwrap();
    shows(&nodes[2], "car:after").unwrap();
}

/// How long the order may rest after its root was killed, on a machine that is busy otherwise: ten
/// seconds are stated.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(30);

/// The root is killed while its standby is in sync and clients write: the order goes on by itself,
/// no session is refused, and no write is lost.
#[test]
fn a_standby_goes_on_by_itself_when_the_root_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    nodes[2].cli(&["region", "standby", "--at", "b"]).unwrap();
    let region = |node: &Node| json(node, &["region", "show", "--json"]);
    let is_in_sync = |node: &Node, root: &str, standby: &str| {
        let region = region(node)?;
        let is_it = region["root"] == root && region["standby"]["site"] == standby;
        match is_it && region["standby"]["in_sync"] == true {
            true => Ok(()),
            false => Err(region.to_string()),
        }
    };
    for node in &nodes {
        eventually(LIMIT, || is_in_sync(node, "a", "b")).expect("the standby is in sync");
    }
    let table = nodes[0].cli(&["region", "show"]).unwrap();
    assert!(table.contains("b (in sync)"), "{table}");

    // One session that moves between b and c, and writers at each site.
    let mut session = connect(&nodes[0]).unwrap();
    for count in 0..200 {
        let (value, site) = (count.to_string(), count % 3);
        call(&mut session, &["SET", "car:moving", &value]).unwrap();
        let taken = token(&mut session).unwrap();
        session = attach(&nodes[site], &taken).unwrap();
        let found = text(&call(&mut session, &["GET", "car:moving"]).unwrap());
        assert_eq!(found, Some(value));
        let key = format!("car:{site}:{count}");
        call(&mut connect(&nodes[site]).unwrap(), &["SET", &key, "1"]).unwrap();
    }
    let taken = token(&mut session).unwrap();
    session = attach(&nodes[2], &taken).unwrap();
    let (root, others) = nodes.split_at_mut(1);
    let stop = AtomicBool::new(false);
    // Sites serve their own sessions meanwhile.
    let write_on = |site: usize| -> u64 {
        let mut client = connect(&others[site]).unwrap();
        let (mut count, began) = (0, Instant::now());
        while began.elapsed() < 2 * TAKES_OVER_WITHIN && !stop.load(Ordering::Relaxed) {
            call(&mut client, &["SET", &format!("car:on:{site}:{count}"), "1"]).unwrap();
            count += 1;
        }
        count
    };
    let (taken, written) = std::thread::scope(|scope| {
        let write_on = &write_on;
        let writers = [0, 1].map(|site| scope.spawn(move || write_on(site)));
        std::thread::sleep(Duration::from_secs(1));
        root[0].kill();
        let killed = Instant::now();
        call(&mut session, &["SET", "car:moving", "after"]).unwrap();
        let taken = token(&mut session).unwrap();
        let goes_on = eventually(TAKES_OVER_WITHIN, || match attach(&others[0], &taken) {
            Ok(mut client) => Ok(text(&call(&mut client, &["GET", "car:moving"])?)),
            Err(error) if error.starts_with("LOST") || error.starts_with("BADTOKEN") => {
                panic!("a session is refused: {error}")
            }
            Err(error) => Err(error),
        });
        assert_eq!(goes_on.expect("the order goes on"), Some("after".to_owned()));
        eprintln!("the order went on {:?} after the root was killed", killed.elapsed());
        stop.store(true, Ordering::Relaxed);
        (taken, writers.map(|writer| writer.join().unwrap()))
    });
    eprintln!("written meanwhile: {written:?}");
    let now = region(&nodes[1]).unwrap();
    assert_eq!((&now["root"], &now["lost"]), (&"b".into(), &serde_json::Value::Null), "{now}");

    nodes[0].restart();
    for node in &nodes {
        eventually(LIMIT, || is_in_sync(node, "b", "a")).expect("the old root is the standby");
        for count in 0..200 {
            let key = format!("car:{}:{count}", count % 3);
            let is_there = || match text(&call(&mut connect(node)?, &["GET", &key])?) {
                Some(_) => Ok(()),
                None => Err(format!("no {key}")),
            };
            eventually(LIMIT, is_there).expect("no write is lost");
        }
        for (site, count) in written.iter().enumerate() {
            let keys: Vec<String> =
                (0..*count).map(|number| format!("car:on:{site}:{number}")).collect();
            for keys in keys.chunks(500) {
                let words: Vec<&str> =
                    ["EXISTS"].into_iter().chain(keys.iter().map(|key| &key[..])).collect();
                let are_there = || {
                    let found = call(&mut connect(node)?, &words)?;
                    match found == Value::Int(keys.len() as i64) {
                        true => Ok(()),
                        false => Err(format!("{found:?} of {} keys", keys.len())),
                    }
                };
                eventually(LIMIT, are_there).expect("no write is lost");
            }
        }
        attach(node, &taken).expect("no session is refused");
    }
}

/// The third site holds keys on demand: it fetches what is asked for, serves it while it is cut
/// off, and evicts what was read least lately.
#[test]
fn a_site_holds_keys_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = start(folder.path());
    let create = |name: &str, more: &[&str]| {
        let prefix = format!("{name}:");
        let words = ["keyspace", "create", name, "--prefix", &prefix, "--scope", "region"];
        nodes[2].cli(&[&words[..], &["--consistency", "causal"], more].concat())
    };
    let refused = create("x", &["--miss", "fetch"]).unwrap_err();
    assert!(refused.contains("name the sites that hold all of it"), "{refused}");
    let refused = create("x", &["--sites", "a,b", "--held-bytes-max", "5000"]).unwrap_err();
    assert!(refused.contains("with --miss fetch"), "{refused}");
    create("map", &["--sites", "a,b", "--miss", "fetch", "--held-bytes-max", "5000"]).unwrap();
    deployment::wait_one_registry(&nodes.iter().collect::<Vec<_>>());
    let shown = json(&nodes[2], &["keyspace", "show", "map", "--json"]).unwrap();
    assert_eq!((&shown["miss"], &shown["held_bytes_max"]), (&"fetch".into(), &5_000.into()));

    let mut there = connect(&nodes[1]).unwrap();
    for key in 0..40 {
        call(&mut there, &["SET", &format!("map:{key}"), &format!("v{key}")]).unwrap();
    }
    let carried = token(&mut there).unwrap();
    let mut client = eventually(LIMIT, || attach(&nodes[2], &carried)).unwrap();
    let held = |node: &_| json(node, &["region", "show", "--json"]).unwrap()["held_keys"].as_u64();
    assert_eq!(held(&nodes[2]), Some(0));
    let found = text(&call(&mut client, &["GET", "map:7"]).unwrap());
    assert_eq!(found.as_deref(), Some("v7"));
    assert_eq!(call(&mut client, &["GET", "map:none"]), Ok(Value::Nil));
    assert_eq!(held(&nodes[2]), Some(2), "an absent one, too");
    // All keys are asked of a site that holds them, several keys here.
    let values = call(&mut client, &["MGET", "map:7", "map:8"]).unwrap();
    let Value::Array(values) = &values else { panic!("{values:?}") };
    assert_eq!(text(&values[1]).as_deref(), Some("v8"));
    call(&mut client, &["SET", "map:new", "1"]).unwrap();
    assert_eq!(call(&mut client, &["EXISTS", "map:new", "map:39"]), Ok(Value::Int(2)));
    let shown = json(&nodes[2], &["keyspace", "show", "map", "--json"]).unwrap();
    assert_eq!(shown["keys"], 41);

    // What others write comes; and more is read than it may hold.
    call(&mut there, &["SET", "map:7", "again"]).unwrap();
    let is_new = || match text(&call(&mut connect(&nodes[2])?, &["GET", "map:7"])?).as_deref() {
        Some("again") => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually(LIMIT, is_new).unwrap();
    for key in 0..40 {
        let found = text(&call(&mut client, &["GET", &format!("map:{key}")]).unwrap());
        let expected = if key == 7 { "again".to_owned() } else { format!("v{key}") };
        assert_eq!(found, Some(expected), "{key}");
    }
    let fits = || match held(&nodes[2]) {
        Some(keys @ 20..=38) => Ok(keys),
        other => Err(format!("{other:?} keys are held")),
    };
    eventually(LIMIT, fits).unwrap();

    // The others are gone: what is held is served, and nothing else.
    nodes[0].kill();
    nodes[1].kill();
    let mut alone = connect(&nodes[2]).unwrap();
    assert_eq!(text(&call(&mut alone, &["GET", "map:39"]).unwrap()).as_deref(), Some("v39"));
    call(&mut alone, &["SET", "map:39", "mine"]).unwrap();
    assert_eq!(text(&call(&mut alone, &["GET", "map:39"]).unwrap()).as_deref(), Some("mine"));
}
