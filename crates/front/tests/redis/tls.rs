//! TLS on the Redis port.

use crate::certificates::{Certificates, certificates};
use crate::sites::Deployment;
use crate::support::{Client, Site, tcp};
use model::{KeyspaceSpec, Slot};
use server::peers::Hidden;
use server::users::{Grant, Right, UserConfig, hash_password};
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::{ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use wire::resp::Reply;

fn connect(address: SocketAddr, roots: RootCertStore) -> StreamOwned<ClientConnection, TcpStream> {
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(tls, tcp(address))
}

fn roots(certificates: &Certificates) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(PemObject::from_pem_slice(certificates.ca.as_bytes()).unwrap()).unwrap();
    roots
}

#[test]
fn tls_serves_clients_that_trust_the_authority() {
    let certificates = certificates();
    let tls = certificates.port.clone();
    let site = Site::not_waited_for(|config| config.tls.redis = Some(tls));

    let mut client = Client::over(connect(site.address(), roots(&certificates)));
    while client.raw("SET k v") != "+OK" {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let value = "x".repeat(1 << 20);
    client.ask(&["SET", "big", &value]);
    assert_eq!(client.ask(&["GET", "big"]), Reply::Bulk(value.into()));

    let mut untrusting = connect(site.address(), RootCertStore::empty());
    assert!(untrusting.read(&mut [0]).is_err(), "a client without the authority does not trust it");
    let mut plain = Client::connect(site.address());
    plain.send(b"PING\r\n");
    while plain.read() > 0 {}
    assert!(!plain.received().starts_with(b"+"), "nothing is answered in plain");
}

#[test]
fn the_cluster_port_serves_tls_and_checks_users() {
    let certificates = certificates();
    let tls = certificates.port.clone();
    let keyspace = KeyspaceSpec::linearizable_global("cars", "car:");
    let deployment = Deployment::start_configured(&[true, true], keyspace, move |config| {
        config.tls.redis = Some(tls.clone());
        let reads = Grant { keyspace: "cars".into(), allow: vec![Right::Read] };
        let all = Grant { keyspace: "*".into(), allow: vec![Right::Read, Right::Write] };
        let user = |name: &str, grant: Grant| UserConfig {
            name: name.into(),
            password_hash: hash_password(b"secret", [1; 16]).unwrap(),
            rights: vec![grant],
        };
        config.users = vec![user("looks", reads), user("drives", all)];
        config.peers.secret = Some(Hidden::new("0123456789abcdef0123456789abcdef"));
    });
    deployment.give("car:{t}", 0);
    let client = |site| Client::over(connect(deployment.address(site), roots(&certificates)));
    let (mut a, mut b) = (client(0), client(1));
    for command in ["GET car:{t}", "CLUSTER SLOTS", "CLUSTER COUNTKEYSINSLOT 1"] {
        assert!(a.raw(command).starts_with("-NOAUTH"), "{command}");
    }
    assert!(a.raw("AUTH drives wrong").starts_with("-WRONGPASS"));
    assert_eq!(a.raw("AUTH drives secret"), "+OK");
    assert_eq!(b.raw("AUTH looks secret"), "+OK");
    assert_eq!(a.raw("SET car:{t} v"), "+OK");
    let there = format!("-MOVED {} {}", Slot::of_key(b"car:{t}"), deployment.address(0));
    assert_eq!(b.raw("GET car:{t}"), there, "to the port that speaks TLS, too");
    assert!(b.raw("SET car:{t} w").starts_with("-NOPERM"));
    let mut plain = Client::connect(deployment.address(0));
    plain.send(b"PING\r\n");
    while plain.read() > 0 {}
    assert!(!plain.received().starts_with(b"+"), "nothing is answered in plain");
}
