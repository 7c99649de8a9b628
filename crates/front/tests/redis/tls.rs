//! TLS on the Redis port.

use crate::certificates::certificates;
use crate::support::{Client, Site, tcp};
use std::io::Read as _;
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::{ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use wire::resp::Reply;

#[test]
fn tls_is_spoken_with_clients_that_know_the_authority() {
    let certificates = certificates();
    let tls = certificates.port.clone();
    let site = Site::not_waited_for(|config| config.tls.redis = Some(tls));

    let connect = |roots: RootCertStore| {
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(tls, tcp(site.address()))
    };
    let mut roots = RootCertStore::empty();
    roots.add(PemObject::from_pem_slice(certificates.ca.as_bytes()).unwrap()).unwrap();
    let mut client = Client::over(connect(roots));
    while client.raw("SET k v") != "+OK" {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let value = "x".repeat(1 << 20);
    client.ask(&["SET", "big", &value]);
    assert_eq!(client.ask(&["GET", "big"]), Reply::Bulk(value.into()));

    let mut stranger = connect(RootCertStore::empty());
    assert!(stranger.read(&mut [0]).is_err(), "a client without the authority does not trust it");
    let mut plain = Client::connect(site.address());
    plain.send(b"PING\r\n");
    while plain.read() > 0 {}
    assert!(!plain.received().starts_with(b"+"), "nothing is answered in plain");
}
