//! A port that other machines could reach does not open without credentials.

use std::time::Duration;

use field::NodeOptions;

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
        assert!(log.contains(ELSEWHERE), "{port}: it does not say which address: {log}");
        assert!(
            log.contains("--insecure") && log.contains("allow-remote-without-credentials"),
            "{port}: the flag is not named: {log}"
        );
        assert!(!options.data.exists(), "{port}: it touched the data folder first");
    }
}
