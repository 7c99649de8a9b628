//! A site of a deployment that is restored from a backup: other sites may own its slots by now.

use field::deployment::{self, LIMIT};
use field::resp::Client;
use field::{binary, eventually, keys};
use std::time::Duration;

/// How long a request is waited for that must not be served.
const TIMEOUT: Duration = Duration::from_secs(3);

#[test]
fn a_restored_site_serves_no_slot_before_the_others_have_stated_what_they_own() {
    let folder = tempfile::tempdir().unwrap();
    let [mut a, mut b] = deployment::start(folder.path(), ["a", "b"]);
    eventually(LIMIT, || a.cli(&["slot", "move", "all", "--to", "a"])).unwrap();
    let names: Vec<String> = (0..64).map(|number| format!("ledger:{number}")).collect();
    keys::write_all(&a, &names, "old");
    let file = folder.path().join("a.backup").display().to_string();
    a.cli(&["backup", &file, "--quiet"]).unwrap();
    // Half of them are b's from here on; a's own life ends.
    eventually(LIMIT, || a.cli(&["slot", "move", "0-8191", "--to", "b"])).unwrap();
    keys::write_all(&b, &names, "new");
    a.kill();
    b.kill();

    let mut options = a.options.clone();
    options.data = folder.path().join("restored");
    options.join = None;
    let (data, peer) = (options.data.display().to_string(), options.peer.to_string());
    let restore = [
        "restore", &file, "--data", &data, "--site", "a", "--node", "1", "--peer", &peer, "--quiet",
    ];
    binary::run(binary::portolan(), &restore).unwrap();
    let a = options.start();
    let ask = |words: &[&str]| Client::connect(a.options.redis, TIMEOUT).unwrap().call(words);
    let (read, written) = (ask(&["GET", &names[0]]), ask(&["SET", "ledger:unknown", "late"]));
    assert!(read.is_err(), "read as it was when the backup was made: {read:?}");
    assert!(written.is_err(), "acknowledged, though b may own it: {written:?}");
    let jobs = eventually(LIMIT, || match a.cli(&["job", "list"])? {
        list if list.contains("until b have stated") => Ok(list),
        list => Err(list),
    });
    jobs.unwrap();

    b.restart();
    let is_new = |name: &&String| keys::read(&a, name) == Some(format!("{name} new"));
    let (there, here): (Vec<&String>, Vec<&String>) = names.iter().partition(is_new);
    assert!(!there.is_empty() && !here.is_empty(), "b's: {there:?}; a's: {here:?}");
    // What stayed a's is as it was when the backup was made.
    let here: Vec<String> = here.into_iter().cloned().collect();
    assert_eq!(keys::differing(&b, &here, "old"), Vec::<String>::new());
    keys::write_all(&a, &names, "after");
    assert_eq!(keys::differing(&b, &names, "after"), Vec::<String>::new());
}
