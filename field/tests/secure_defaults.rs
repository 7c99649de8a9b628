//! A port that other machines could reach does not open without credentials, and clients without
//! any keep no others out.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use field::resp::Client;
use field::{NodeOptions, eventually};

/// An address for documentation (RFC 5737): even a server that forgot the rule cannot open it here.
const ELSEWHERE: &str = "192.0.2.1:7379";

#[test]
fn a_remote_port_without_credentials_is_refused_and_the_flag_is_named() {
    for port in ["redis", "grpc", "admin", "peer"] {
        let folder = tempfile::tempdir().unwrap();
        let mut options = NodeOptions::new(folder.path(), 1);
        match port {
            "redis" => options.redis = ELSEWHERE.parse().unwrap(),
            "grpc" => options.grpc = ELSEWHERE.parse().unwrap(),
            "admin" => options.admin = ELSEWHERE.parse().unwrap(),
            _ => options.peer = ELSEWHERE.parse().unwrap(),
        }
        let mut node = options.spawn();
        let status = node.wait_exit(Duration::from_secs(30)).unwrap();
        assert!(!status.success(), "{port}: it ended well");
        let log = node.log();
        assert!(log.contains(ELSEWHERE), "{port}: it does not state which address: {log}");
        assert!(
            log.contains("--insecure") && log.contains("allow-remote-without-credentials"),
            "{port}: the flag is not named: {log}"
        );
        assert!(!options.data.exists(), "{port}: it touched the data folder first");
    }
}

/// The user `ops`, whose password is `secret`.
const USER: &str = r#"
[[user]]
name = "ops"
password_hash = "$argon2id$v=19$m=7168,t=5,p=1$xkA/GYGvxen4UxpB32WbSw$KGc4k2e+pEMJpPIzAOb7tjGRUdJOUIoBLFLYi5SdWEU"
rights = [{ keyspace = "*", allow = ["read", "write", "admin"] }]
"#;
const DEADLINE: Duration = Duration::from_secs(60);

#[test]
fn silent_connections_on_every_place_keep_no_user_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::new(folder.path(), 1);
    options.configure(&format!("{USER}\n[front]\nconnections_max = 20\n"));
    let node = options.start();

    let mut before = Client::connect(options.redis, DEADLINE).unwrap();
    before.call(&["AUTH", "ops", "secret"]).unwrap();
    let flood = |address| -> Vec<TcpStream> {
        (0..60).map(|_| TcpStream::connect(address).unwrap()).collect()
    };
    let mut silent = [flood(options.redis), flood(options.grpc), flood(options.admin)];
    // One that was silent before may be taken up after the user's, and take its place.
    let login = || {
        let mut user = Client::connect(options.redis, DEADLINE).map_err(|e| e.to_string())?;
        user.call(&["AUTH", "ops", "secret"]).map_err(|e| format!("{e:?}"))?;
        Ok::<_, String>(user)
    };
    let mut user = eventually(DEADLINE, login).unwrap();
    user.call(&["SET", "a", "1"]).unwrap();
    assert!(before.call(&["GET", "a"]).is_ok(), "an open connection stays");
    let password = folder.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let password = password.to_str().unwrap();
    let words = ["get", "a", "--user", "ops", "--password-file", password, "--deadline", "60s"];
    assert_eq!(node.cli(&words), Ok("1\n".to_owned()));

    // The first of them made room at once, and the last do not stay either.
    for each in silent.iter_mut().flatten() {
        each.set_read_timeout(Some(DEADLINE)).unwrap();
        let ended = each.read(&mut [0; 1024]);
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock));
    }
    assert!(user.call(&["PING"]).is_ok(), "that is not for users");
}
