//! Clients with names: what they access counts for them, at whichever site they are.

use crate::sites::{Deployment, until};
use crate::support::{Client, Site};
use model::{KeyspaceSpec, Placement, SiteId};

const KEY: &str = "car:{t}";

/// What the clients of the key are to be.
type Holds<'a> = &'a dyn Fn(&[(u32, SiteId)]) -> bool;

/// The clients of the key by the sites that they were last at, as its owner counts them.
fn clients(deployment: &Deployment) -> Vec<(u32, SiteId)> {
    let clients = deployment.key_clients(0, KEY);
    clients.into_iter().map(|client| (client.number, client.site)).collect()
}

#[test]
fn a_client_is_the_same_at_each_site_by_its_name() {
    let keyspace = KeyspaceSpec {
        placement: Placement::Advise,
        ..KeyspaceSpec::linearizable_global("cars", "car:")
    };
    let deployment = Deployment::start_with(&[true, true], keyspace);
    let fronts = [deployment.open_plain(0), deployment.open_plain(1)];
    deployment.give(KEY, 0);
    let [mut here, mut there] = [0, 1].map(|site: usize| Client::connect(fronts[site].address()));
    let sites = [0, 1].map(|site| deployment.own_id(site).unwrap());
    let asks_until = |client: &mut Client, holds: Holds<'_>| {
        until(|| {
            client.raw(&format!("INCR {KEY}"));
            client.raw(&format!("GET {KEY}"));
            holds(&clients(&deployment))
        });
        clients(&deployment)
    };
    there.raw("CLIENT SETNAME car-7");
    let found = asks_until(&mut there, &|found| !found.is_empty());
    let [(number, at)] = found[..] else { panic!("{found:?}") };
    assert_eq!(at, sites[1]);
    // By the other command, at the other site; behind it the first one has nothing counted there
    // any more.
    here.raw("HELLO 2 SETNAME car-7");
    asks_until(&mut here, &|found| found == [(number, sites[0])]);
    here.raw("CLIENT SETNAME car-8");
    asks_until(&mut here, &|found| found.len() == 2);
    // What counts nowhere is not seen: car-9 comes behind it.
    here.raw("CLIENT SETNAME car-10");
    assert_eq!(here.raw("CLIENT NO-TOUCH ON"), "+OK");
    (0..20).for_each(|_| drop(here.raw(&format!("INCR {KEY}"))));
    assert!(here.raw("CLIENT INFO").contains(" flags=T "), "{}", here.raw("CLIENT INFO"));
    here.raw("CLIENT SETNAME car-9");
    assert_eq!(here.raw("CLIENT NO-TOUCH OFF"), "+OK");
    asks_until(&mut here, &|found| found.len() == 3);
    assert!(here.raw("CLIENT NO-TOUCH MAYBE").starts_with("-ERR"));
}

#[test]
fn a_name_is_checked_as_in_redis() {
    let site = Site::start();
    let mut client = site.connect();
    assert_eq!(client.raw(&format!("CLIENT SETNAME {}", "x".repeat(256))), "+OK");
    let refused = client.raw(&format!("CLIENT SETNAME {}", "x".repeat(257)));
    assert!(refused.starts_with("-ERR"), "{refused}");
    assert_eq!(client.raw("CLIENT GETNAME"), format!("$256 {}", "x".repeat(256)));
}
