//! A site is lost for good, and others take over what it held: whatever else happens in between,
//! and in whatever order sites come back, each slot has one owner and no key is lost that a
//! reachable copy has.

use std::io::{BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use field::deployment::{self, LIMIT};
use field::ledger::Writers;
use field::resp::Client;
use field::{Ledger, Node, eventually, keys};
use serde_json::{Value, json};
use std::time::Duration;

/// How long one call of a writer may take.
const DEADLINE: Duration = Duration::from_secs(5);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("ledger:{number}")).collect()
}

/// Whatever one of these nodes acknowledges, all read: no slot has two owners.
fn agree(nodes: &[&Node], names: &[String], round: &str) {
    for node in nodes {
        let value = format!("{round} by {}", node.options.site);
        keys::write_all(node, names, &value);
        for reader in nodes {
            let differing = keys::differing(reader, names, &value);
            let (by, at) = (&node.options.site, &reader.options.site);
            assert!(differing.is_empty(), "{round}: written by {by}, read at {at}: {differing:?}");
        }
    }
}

/// A node takes a site for lost, and accepts what is lost by that.
fn promote(node: &Node, site: &str, more: &[&str]) -> String {
    let words = [&["site", "promote", site, "--accept-loss", "--deadline", "60s"], more].concat();
    eventually(LIMIT, || match node.cli(&words) {
        // By an order before, whose answer was too late.
        Err(done) if done.contains("has taken over from that site already") => Ok(done),
        ended => ended,
    })
    .unwrap()
}

/// The only failover that a node has learned of.
fn one_failover(node: &Node) -> Value {
    // The list is of the status that the node published last.
    let decided = eventually(LIMIT, || {
        let all = deployment::json(node, &["failover", "list", "--json"])?;
        match &all.as_array().unwrap()[..] {
            [one] if one["open"] == json!(false) => Ok(one.clone()),
            _ => Err(all.to_string()),
        }
    });
    decided.unwrap()
}

fn move_slots(node: &Node, slots: &str, to: &str) {
    eventually(LIMIT, || node.cli(&["slot", "move", slots, "--to", to])).unwrap();
}

/// g hands slots to c while its backup b is down; g and c are lost, b takes over, and they come
/// back.
fn lost_with_the_one_that_it_handed_to(first_back: &str) {
    let folder = tempfile::tempdir().unwrap();
    let [mut g, mut b, mut c] = deployment::start(folder.path(), ["g", "b", "c"]);
    g.cli(&["site", "backup", "g", "--at", "b"]).unwrap();
    move_slots(&g, "all", "g");
    let names = names(64);
    keys::write_all(&g, &names, "old");
    deployment::wait_mirrored("g", &[&g, &b]);
    b.kill();
    move_slots(&g, "0-8191", "c");
    keys::write_all(&c, &names, "unseen");
    g.kill();
    c.kill();
    b.restart();
    eventually(LIMIT, || b.cli(&["registry", "recover", "--without", "g,c", "--yes"])).unwrap();
    promote(&b, "g", &["--without", "c"]);
    assert_eq!(keys::differing(&b, &names, "old"), Vec::<String>::new());
    keys::write_all(&b, &names, "new");
    let (first, second) = if first_back == "g" { (&mut g, &mut c) } else { (&mut c, &mut g) };
    first.restart();
    deployment::wait_one_registry(&[&b, first]);
    for node in [&b, &*first] {
        assert_eq!(keys::differing(node, &names, "new"), Vec::<String>::new());
    }
    agree(&[&b, first], &names, "one is back");
    // Also the named site names what was lost with it.
    let id = one_failover(&b)["id"].as_str().unwrap().to_owned();
    second.restart();
    deployment::wait_one_registry(&[&b, first, second]);
    agree(&[&b, first, second], &names, "all are back");
    // Each of the two had some of the slots. Of what its own backup had got, which is down, too, by
    // then, a site says up to which revision it is not listed.
    let listed = eventually(LIMIT, || {
        let (mut listed, mut is_trimmed) = (Vec::new(), false);
        for site in ["c", "g"] {
            let list = deployment::json(&b, &["failover", "show", &id, "--at", site, "--json"])?;
            let writes = list["writes"].as_array().cloned().unwrap_or_default();
            listed.extend(writes.iter().map(|write| write["key"].as_str().unwrap().to_owned()));
            is_trimmed |= !list["trimmed"].is_null();
        }
        let is_whole = names.iter().all(|name| is_trimmed || listed.contains(name));
        let is_part = listed.len() >= names.len() / 4;
        let is_right = listed.iter().all(|name| names.contains(name));
        if is_whole && is_part && is_right { Ok(()) } else { Err(format!("{listed:?}")) }
    });
    listed.unwrap();
}

#[test]
fn one_owner_when_the_lost_site_is_back_first() {
    lost_with_the_one_that_it_handed_to("g");
}

#[test]
fn one_owner_when_the_named_site_is_back_first() {
    lost_with_the_one_that_it_handed_to("c");
}

#[test]
fn the_only_copy_stays_when_the_backup_changes() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, b, c] = deployment::start(folder.path(), ["a", "b", "c"]);
    b.cli(&["site", "backup", "a", "--at", "b"]).unwrap();
    let names = names(3_000);
    keys::write_all(&a, &names, "first");
    deployment::wait_mirrored("a", &[&a, &b]);
    a.kill();
    // What an operator does first: a replacement, and another backup.
    let d = deployment::options(folder.path(), "d", Some(&c)).start();
    eventually(LIMIT, || match deployment::slots(&d)? {
        all if all.iter().any(|(site, slots)| site == "d" && *slots > 0) => Ok(()),
        all => Err(format!("{all:?}")),
    })
    .unwrap();
    for backup in ["c", "d"] {
        eventually(LIMIT, || c.cli(&["site", "backup", "a", "--at", backup])).unwrap();
        deployment::wait_one_registry(&[&b, &c, &d]);
    }
    promote(&c, "a", &[]);
    for node in [&b, &c, &d] {
        assert_eq!(keys::differing(node, &names, "first"), Vec::<String>::new());
    }
    agree(&[&b, &c, &d], &names[..64], "taken over");
}

#[test]
fn a_site_is_promoted_while_a_registrar_with_slot_0_is_away() {
    let folder = tempfile::tempdir().unwrap();
    // The first three are the registrars.
    let [mut a, b, c, mut d] = deployment::start(folder.path(), ["a", "b", "c", "d"]);
    b.cli(&["site", "backup", "d", "--at", "b"]).unwrap();
    let registrars = eventually(LIMIT, || {
        let shown = deployment::json(&b, &["registry", "show", "--json"])?;
        let sites = shown["registrars"].as_array().cloned().unwrap_or_default();
        match sites.len() {
            3 => Ok(sites.iter().map(|one| one["site"].as_str().unwrap().to_owned()).collect()),
            _ => Err(shown.to_string()),
        }
    });
    let registrars: Vec<String> = registrars.unwrap();
    assert_eq!(registrars, ["a", "b", "c"]);
    move_slots(&b, "0", "a");
    let names = names(64);
    keys::write_all(&d, &names, "first");
    deployment::wait_mirrored("d", &[&d, &b]);
    d.kill();
    a.kill();
    let refused = c.cli(&["site", "promote", "d", "--accept-loss"]).unwrap_err();
    assert!(refused.contains("--without a"), "{refused}");
    let told = promote(&c, "d", &["--without", "a"]);
    assert!(told.contains("has taken over"), "{told}");
    let failover = one_failover(&c);
    assert_eq!((&failover["lost"], &failover["without"]), (&"d".into(), &json!(["a"])));
    assert_eq!((&failover["open"], &failover["returned"]), (&false.into(), &false.into()));
    let unconfirmed = failover["unconfirmed"].as_array().unwrap();
    assert!(unconfirmed.contains(&"a".into()) && unconfirmed.contains(&"d".into()), "{failover}");
    let shown = c.cli(&["failover", "show", failover["id"].as_str().unwrap()]).unwrap();
    assert!(shown.contains("d is not back"), "{shown}");
    a.restart();
    for node in [&a, &b, &c] {
        assert_eq!(keys::differing(node, &names, "first"), Vec::<String>::new());
    }
    d.restart();
    // Every site has it: it is dropped.
    eventually(LIMIT, || match deployment::json(&c, &["failover", "list", "--json"])? {
        all if all.as_array().is_some_and(Vec::is_empty) => Ok(()),
        all => Err(all.to_string()),
    })
    .unwrap();
    deployment::wait_one_registry(&[&a, &b, &c, &d]);
    agree(&[&a, &b, &c, &d], &names, "all are back");
}

/// What happens beside the loss of site a; its backup is b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// a is killed.
    Loss,
    /// e joins.
    Join,
    /// The named site leaves.
    Leave(&'static str),
    /// What a had is taken over.
    Promotion,
}

/// The name of a site's backup, once it is another one than this.
fn backup_beside(node: &Node, left: &str) -> String {
    let backup = eventually(LIMIT, || {
        let shown = deployment::json(node, &["site", "show", &node.options.site, "--json"])?;
        match shown["backup"].as_str() {
            Some(backup) if backup != left => Ok(backup.to_owned()),
            _ => Err(shown.to_string()),
        }
    });
    backup.unwrap()
}

/// a, b, c and d are up; these steps are taken while clients write, a comes back, no key is lost,
/// and no increment is lost or applied twice.
fn in_order(steps: [Step; 4]) {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, b, c, d] = deployment::start(folder.path(), ["a", "b", "c", "d"]);
    b.cli(&["site", "backup", "a", "--at", "b"]).unwrap();
    let names = names(64);
    keys::write_all(&a, &names, "first");
    deployment::wait_mirrored("a", &[&a, &b]);
    let (mut joined, mut left) = (None, "");
    let write = |ledgers| Writers::start(ledgers, &[d.options.redis], DEADLINE);
    let mut writers = write((0..3).map(Ledger::new).collect());
    for step in steps {
        match step {
            Step::Loss => {
                // What it has got meanwhile has to be in its mirror, too.
                let ledgers = writers.stop().unwrap();
                let backup = backup_beside(&a, left);
                let others = [Some(&b), Some(&c), Some(&d), joined.as_ref()];
                let named = |node: &&Node| node.options.site == backup;
                let backup = others.into_iter().flatten().find(named).expect("it is listed");
                deployment::wait_mirrored("a", &[&a, backup]);
                a.kill();
                writers = write(ledgers);
            }
            Step::Join => joined = Some(deployment::options(folder.path(), "e", Some(&d)).start()),
            Step::Leave(site) => {
                left = site;
                let leave = ["site", "leave", site, "--no-wait"];
                eventually(LIMIT, || d.cli(&leave)).unwrap();
            }
            Step::Promotion => drop(promote(&d, "a", &[])),
        }
    }
    let sites = [Some(&b), Some(&c), Some(&d), joined.as_ref()];
    let sites = sites.into_iter().flatten().filter(|node| node.options.site != left);
    let mut stay: Vec<&Node> = sites.collect();
    eventually(LIMIT, || match deployment::slots(&d)? {
        all if all.iter().all(|(site, _)| site != left) => Ok(()),
        all => Err(format!("{left} stays: {all:?}")),
    })
    .unwrap();
    for node in &stay {
        let differing = keys::differing(node, &names, "first");
        assert!(differing.is_empty(), "{steps:?}: at {}: {differing:?}", node.options.site);
    }
    a.restart();
    stay.push(&a);
    deployment::wait_one_registry(&stay);
    agree(&stay, &names, "all are back");
    for ledger in &mut writers.stop().unwrap() {
        assert!(ledger.counted > 0, "a writer wrote nothing");
        for node in &stay {
            eventually(LIMIT, || {
                let client = Client::connect(node.options.redis, DEADLINE);
                let mut client = client.map_err(|error| error.to_string())?;
                ledger.check(&mut client).unwrap().map_err(|error| error.to_string())
            })
            .unwrap();
        }
    }
}

use Step::{Join, Leave, Loss, Promotion};

#[test]
fn loss_join_leave_promotion() {
    in_order([Loss, Join, Leave("c"), Promotion]);
}

#[test]
fn leave_loss_promotion_join() {
    in_order([Leave("c"), Loss, Promotion, Join]);
}

#[test]
fn join_loss_promotion_leave() {
    in_order([Join, Loss, Promotion, Leave("c")]);
}

/// What only a's backup has goes on to another site, with the backup gone.
#[test]
fn loss_leave_of_the_backup_join_promotion() {
    in_order([Loss, Leave("b"), Join, Promotion]);
}

/// The other orders, of which each is a minute of a busy machine.
#[test]
#[ignore = "takes minutes: by hand"]
fn loss_join_leave_and_promotion_in_every_order() {
    let (leave, backup_leaves) = (Leave("c"), Leave("b"));
    for order in [
        [Loss, Join, Promotion, leave],
        [Loss, leave, Join, Promotion],
        [Loss, leave, Promotion, Join],
        [Loss, Promotion, Join, leave],
        [Loss, Promotion, leave, Join],
        [Join, Loss, leave, Promotion],
        [Join, leave, Loss, Promotion],
        [leave, Loss, Join, Promotion],
        [leave, Join, Loss, Promotion],
        [Loss, Join, backup_leaves, Promotion],
        [Loss, Join, Promotion, backup_leaves],
        [Loss, backup_leaves, Promotion, Join],
        [Loss, Promotion, Join, backup_leaves],
        [Loss, Promotion, backup_leaves, Join],
        [Join, Loss, backup_leaves, Promotion],
        [Join, Loss, Promotion, backup_leaves],
        [backup_leaves, Loss, Join, Promotion],
        [backup_leaves, Loss, Promotion, Join],
        [backup_leaves, Join, Loss, Promotion],
        [Join, backup_leaves, Loss, Promotion],
    ] {
        eprintln!("{order:?}");
        in_order(order);
    }
}

/// An operator at a terminal, who is asked to agree to what `site promote` has printed.
struct Operator {
    process: Child,
    printed: Receiver<u8>,
    text: String,
}

impl Operator {
    /// Runs the command at this node, in a terminal of its own, until it asks.
    fn asked(node: &Node, words: &str) -> Self {
        let program = node.options.program.display();
        let line = format!("{program} {words} --server {}", node.options.grpc);
        let mut process = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("util-linux is there");
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, printed) = channel();
        std::thread::spawn(move || {
            for byte in output.bytes().map_while(Result::ok) {
                if sender.send(byte).is_err() {
                    return;
                }
            }
        });
        let mut operator = Self { process, printed, text: String::new() };
        operator.read_until("Type yes:");
        operator
    }

    fn read_until(&mut self, end: &str) {
        while !self.text.ends_with(end) {
            let byte = self.printed.recv_timeout(LIMIT);
            let byte = byte.unwrap_or_else(|error| panic!("{error} after {}", self.text));
            self.text.push(char::from(byte));
        }
    }

    /// Types this, and returns whether the command succeeds, and all that it printed.
    fn types(mut self, line: &str) -> (bool, String) {
        let mut input = self.process.stdin.take().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        self.text.extend(self.printed.iter().map(char::from));
        let status = self.process.wait().unwrap();
        (status.success(), self.text)
    }
}

/// The only copy goes between what an operator reads and what the operator agrees to.
#[test]
fn a_promotion_that_has_become_worse_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, b, c, d] = deployment::start(folder.path(), ["a", "b", "c", "d"]);
    b.cli(&["site", "backup", "a", "--at", "b"]).unwrap();
    let names = names(64);
    keys::write_all(&a, &names, "first");
    deployment::wait_mirrored("a", &[&a, &b]);
    a.kill();
    // It takes a moment until a counts as silent.
    let unasked = eventually(LIMIT, || match c.cli(&["site", "promote", "a"]) {
        Err(why) if why.contains("give --accept-loss") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    unasked.unwrap();
    let operator = Operator::asked(&c, "site promote a");
    assert!(operator.text.contains("b has a mirror of"), "{}", operator.text);
    let leave = ["site", "leave", "b", "--discard", "a", "--no-wait"];
    eventually(LIMIT, || d.cli(&leave)).unwrap();
    let (is_done, printed) = operator.types("yes\n");
    assert!(!is_done && printed.contains("more would be lost than was accepted"), "{printed}");
    // Nothing was taken: a goes on with all that it had.
    a.restart();
    for site in [&a, &c, &d] {
        let differing = keys::differing(site, &names, "first");
        assert!(differing.is_empty(), "at {}: {differing:?}", site.options.site);
    }
    deployment::wait_one_registry(&[&a, &c, &d]);
    assert_eq!(deployment::json(&c, &["failover", "list", "--json"]), Ok(json!([])));
    agree(&[&a, &c, &d], &names, "nothing was taken");
}

/// A site writes on while its backup is down, is lost, and comes back: it names exactly the keys
/// that were lost.
#[test]
fn a_site_that_is_back_names_the_keys_with_lost_writes() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, mut b, c] = deployment::start(folder.path(), ["a", "b", "c"]);
    a.cli(&["site", "backup", "a", "--at", "b"]).unwrap();
    move_slots(&a, "all", "a");
    eventually(LIMIT, || match deployment::slots(&a)? {
        all if all.contains(&("a".to_owned(), 16_384)) => Ok(()),
        all => Err(format!("{all:?}")),
    })
    .unwrap();
    let names = names(64);
    keys::write_all(&a, &names, "mirrored");
    deployment::wait_mirrored("a", &[&a, &b]);
    b.kill();
    let lost: Vec<String> = names.iter().step_by(5).cloned().collect();
    keys::write_all(&a, &lost, "lost");
    a.kill();
    b.restart();
    promote(&c, "a", &[]);
    let id = one_failover(&c)["id"].as_str().unwrap().to_owned();
    let list_of_a = |node: &Node| {
        let list = deployment::json(node, &["failover", "show", &id, "--at", "a", "--json"])?;
        match list["slots"].as_str() {
            Some(slots) if !slots.is_empty() => Ok(list),
            _ => Err(list.to_string()),
        }
    };
    a.restart();
    let list = eventually(LIMIT, || list_of_a(&c)).unwrap();
    let named = list["writes"].as_array().unwrap().iter();
    let mut named: Vec<&str> = named.map(|write| write["key"].as_str().unwrap()).collect();
    let mut expected: Vec<&str> = lost.iter().map(String::as_str).collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected, "{list}");
    assert_eq!((&list["trimmed"], &list["more"]), (&Value::Null, &json!(false)));
    // The list stays when all sites know of the failover, and over a restart.
    deployment::wait_one_registry(&[&a, &b, &c]);
    eventually(LIMIT, || match deployment::json(&a, &["failover", "list", "--json"])? {
        none if none == json!([]) => Ok(()),
        some => Err(some.to_string()),
    })
    .unwrap();
    a.kill();
    a.restart();
    let text = eventually(LIMIT, || a.cli(&["failover", "show", &id])).unwrap();
    assert!(text.contains("known to all, and forgotten"), "{text}");
    assert!(lost.iter().all(|key| text.contains(key.as_str())), "{text}");
    assert_eq!(eventually(LIMIT, || list_of_a(&b)), Ok(list));
    assert_eq!(keys::differing(&a, &names, "mirrored"), Vec::<String>::new());
}
