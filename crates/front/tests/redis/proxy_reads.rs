//! Proxy reads: reads of remote keys that bypass both sites' cores once the owner is known.

use crate::copies::metric;
use crate::sites::{Deployment, until};
use crate::support::Client;

#[test]
fn reads_that_pass_by_see_what_was_written_before_them() {
    let deployment = Deployment::start(&[true, true]);
    let fronts = [deployment.open_plain(0), deployment.open_plain(1)];
    let [mut here, mut there] = [0, 1].map(|site: usize| Client::connect(fronts[site].address()));
    deployment.give("car:{t}", 0);
    assert_eq!(here.raw("SET car:{t} first"), "+OK");
    assert_eq!(there.raw("GET car:{t}"), "$5 first");
    let direct = || metric(&deployment.metrics(1), "routed_direct_total");
    let before = direct();

    // Some at once, of which some are refused; and behind writes of the same client and of another
    // one.
    there.send(b"GET car:{t}\r\nMGET car:{t} car:{t}2\r\nHGET car:{t} f\r\nEXISTS car:{t}\r\n");
    assert_eq!(there.reply().1, "$5 first");
    assert_eq!(there.reply().1, "*2 $5 first $-1");
    assert!(there.reply().1.starts_with("-WRONGTYPE"));
    assert_eq!(there.reply().1, ":1");
    for n in 0..100 {
        there.send(format!("SET car:{{t}} {n}\r\nGET car:{{t}}\r\n").as_bytes());
        assert_eq!(there.reply().1, "+OK");
        assert_eq!(there.reply().1, format!("${} {n}", n.to_string().len()));
        assert_eq!(here.raw(&format!("SET car:{{t}} x{n}")), "+OK");
        let value = format!("x{n}");
        assert_eq!(there.raw("GET car:{t}"), format!("${} {value}", value.len()));
    }
    // What is shown is a moment old.
    until(|| direct() >= before + 304);

    // The slot comes and goes.
    for to in [1, 0, 1, 0] {
        deployment.give("car:{t}", to);
        for _ in 0..3 {
            assert_eq!(there.raw("GET car:{t}"), "$3 x99");
            assert_eq!(here.raw("GET car:{t}"), "$3 x99");
        }
    }
}
