//! TLS on every port, with clients that have nothing of ours but the authority that signed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use field::tls::{Certificates, certificates};
use field::{NodeOptions, Site, binary, toolchain};

/// A configuration with TLS on all ports, mutual between nodes.
fn tls_everywhere(options: &mut NodeOptions, pem: &Certificates) {
    let (cert, key, ca) = (pem.cert.display(), pem.key.display(), pem.ca.display());
    options.configure(&format!(
        "[tls]\ncert = \"{cert}\"\nkey = \"{key}\"\n\n\
         [tls.peer]\ncert = \"{cert}\"\nkey = \"{key}\"\nca = \"{ca}\"\n"
    ));
    options.admin_ca = Some(pem.ca.clone());
}

/// One node with TLS on all ports; `None`, loudly, where there is no curl to ask it.
fn node(folder: &Path) -> Option<(field::Node, Certificates)> {
    if !toolchain::present("curl", "--version") {
        return None;
    }
    let pem = certificates(folder);
    let mut options = NodeOptions::new(folder, 1);
    tls_everywhere(&mut options, &pem);
    Some((options.start(), pem))
}

#[test]
fn unmodified_redis_clients_come_in_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let Some((node, pem)) = node(folder.path()) else { return };
    let run = |mut program: Command| {
        let redis = format!("localhost:{}", node.options.redis.port());
        toolchain::run(program.env("PORTOLAN_REDIS", redis).env("PORTOLAN_CA", &pem.ca));
    };
    toolchain::for_each_client(run);
    if toolchain::present("redis-cli", "--version") {
        let port = node.options.redis.port().to_string();
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "localhost", "-p", &port, "--tls", "--cacert"]).arg(&pem.ca).arg("PING");
        let output = cli.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "PONG\n", "{output:?}");
    }
}

#[test]
fn the_command_line_speaks_grpc_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let Some((node, pem)) = node(folder.path()) else { return };
    let server = format!("localhost:{}", node.options.grpc.port());
    let ca = pem.ca.display().to_string();
    let run =
        |words: &[&str]| binary::run(binary::portolan(), &[words, &["--server", &server]].concat());
    run(&["put", "key", "value", "--tls-ca", &ca]).unwrap();
    assert_eq!(run(&["get", "key", "--tls-ca", &ca]).unwrap(), "value\n");
    assert!(run(&["get", "key", "--deadline", "2s"]).is_err(), "it answers without TLS");
}

#[test]
fn the_admin_port_answers_over_tls_to_trusted_clients_only() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut node, _pem)) = node(folder.path()) else { return };
    let (code, body) = node.admin("/metrics").unwrap();
    assert_eq!(code, 200);
    assert!(body.contains("# TYPE"), "{body}");

    let other = tempfile::tempdir().unwrap();
    node.options.admin_ca = Some(certificates(other.path()).ca);
    assert!(node.admin("/metrics").is_err(), "a stranger's authority vouches for it");
    node.options.admin_ca = None;
    assert!(node.admin("/metrics").is_err(), "it answers without TLS");
}

#[test]
fn nodes_join_over_mutual_tls_and_an_untrusted_one_does_not() {
    if !toolchain::present("curl", "--version") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let pem = certificates(folder.path());
    // Clients in the clear, so that the site's own client can drive it; only nodes use TLS.
    let (cert, key, ca) = (pem.cert.display(), pem.key.display(), pem.ca.display());
    let peers = format!("[tls.peer]\ncert = \"{cert}\"\nkey = \"{key}\"\nca = \"{ca}\"\n");
    let site = Site::start(folder.path(), 3, |options| options.configure(&peers));

    let elsewhere = tempfile::tempdir().unwrap();
    let strange = certificates(elsewhere.path());
    let mut options = NodeOptions::new(elsewhere.path(), 4);
    options.join = Some(site.nodes[0].options.peer);
    let (cert, key, ca) = (strange.cert.display(), strange.key.display(), strange.ca.display());
    options.configure(&format!("[tls.peer]\ncert = \"{cert}\"\nkey = \"{key}\"\nca = \"{ca}\"\n"));
    let mut stranger = options.spawn();
    std::thread::sleep(Duration::from_secs(3));
    let ready = stranger.exited().is_none() && matches!(stranger.admin("/readyz"), Ok((200, _)));
    assert!(!ready, "a node with a certificate of another authority has joined");
    site.wait_writable();
}
