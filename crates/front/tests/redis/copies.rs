//! Copies of remote keys, as clients at another site see them.

use crate::sites::{Deployment, until};
use crate::support::Client;
use model::{Cache, KeyspaceSpec};

/// The value of a line of Prometheus's text.
pub(crate) fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("portolan_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

#[test]
fn copies_answer_stale_reads_and_are_asked_about_for_others() {
    // An hour: how fast the machine is makes no difference.
    let cache = Cache::Stale { bytes_max: 1 << 20, age_ms_max: 3_600_000 };
    let spec = KeyspaceSpec { cache, ..KeyspaceSpec::linearizable_global("cars", "car:") };
    let deployment = Deployment::start_with(&[true, true], spec);
    let fronts = [deployment.open_plain(0), deployment.open_plain(1)];
    let [mut here, mut there] = [0, 1].map(|site: usize| Client::connect(fronts[site].address()));
    deployment.give("car:7", 0);

    assert_eq!(here.raw("SET car:7 first"), "+OK");
    assert_eq!(there.raw("GET car:7"), "$5 first");
    assert_eq!(there.raw("GET car:7"), "$5 first");
    assert_eq!(there.raw("READONLY"), "+OK");
    assert_eq!(there.raw("GET car:7"), "$5 first");
    // Written elsewhere: stale reads see the cached value until a validation.
    assert_eq!(here.raw("SET car:7 second"), "+OK");
    assert_eq!(there.raw("GET car:7"), "$5 first");
    assert_eq!(there.raw("READWRITE"), "+OK");
    assert_eq!(there.raw("GET car:7"), "$6 second");
    assert_eq!(there.raw("READONLY"), "+OK");
    assert_eq!(there.raw("GET car:7"), "$6 second");
    // What was written through this node is seen there, by stale reads too; of transactions and
    // hashes as well.
    assert_eq!(there.raw("SET car:7 third"), "+OK");
    assert_eq!(there.raw("GET car:7"), "$5 third");
    assert_eq!(there.raw("STRLEN car:7"), ":5");
    for (command, answer) in [
        ("MULTI", "+OK"),
        ("DEL car:7", "+QUEUED"),
        ("HSET car:7 a 1", "+QUEUED"),
        ("EXEC", "*2 :1 :1"),
        ("HGET car:7 a", "$1 1"),
        ("HGET car:7 b", "$-1"),
        ("HSET car:7 b 2", ":1"),
        ("HGET car:7 b", "$1 2"),
    ] {
        assert_eq!(there.raw(command), answer, "{command}");
    }
    assert!(there.raw("GET car:7").starts_with("-WRONGTYPE"));
    assert!(there.raw("GET car:7").starts_with("-WRONGTYPE"), "a refusal is not copied");
    // How long it lives is asked by the clock, and asked anew.
    assert_eq!(here.raw("PEXPIRE car:7 100000000"), ":1");
    let left_s = there.raw("TTL car:7");
    assert!(left_s.trim_start_matches(':').parse::<u64>().unwrap() > 90_000, "{left_s}");
    assert_eq!(here.raw("PERSIST car:7"), ":1");
    assert_eq!(there.raw("TTL car:7"), ":-1");

    // What is shown is a moment old.
    until(|| deployment.status(1).copies.misses == 7);
    let text = deployment.metrics(1);
    assert_eq!(metric(&text, "cache_hits_total"), 3);
    assert_eq!(metric(&text, "cache_unchanged_total"), 1);
    assert_eq!((metric(&text, "cache_misses_total"), metric(&text, "cache_copies")), (7, 1));
    assert!(metric(&text, "cache_size_bytes") > 0);
    let direct = metric(&text, "routed_direct_total");
    let all = direct + metric(&text, "routed_redirected_total");
    assert!(direct > 10 && all >= direct, "{direct} of {all}");
    // A site comes onto the ring in its own time.
    until(|| metric(&deployment.metrics(1), "ring_pointers") > 0);
    // The owner needs no copies.
    assert_eq!(deployment.status(0).copies.misses, 0);

    // The slot comes here: there is no copy any more, and stale reads see what is here.
    deployment.give("car:7", 1);
    until(|| deployment.status(1).copies.copies == 0);
    assert_eq!(here.raw("HSET car:7 b 3"), ":0");
    assert_eq!(there.raw("HGET car:7 b"), "$1 3");
}
