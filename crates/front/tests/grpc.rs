//! The gRPC and admin ports of a real node, spoken to by the real client.

mod certificates;

use certificates::certificates;
use client::{
    Batch, BatchOutcome, Client, Credentials, Error, Put, ScanRange, Session, StepOutcome,
};
use front::admin::Admin;
use front::grpc::{self, Grpc};
use model::{
    Bytes, ChangeKind, Condition, Expiry, KeyspaceSpec, NodeId, Placement, Revision, SiteName,
};
use server::Node;
use server::config::{Config, TlsConfig};
use server::users::{Grant, Right, UserConfig, hash_password};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{Service as _, http};
use tonic::transport::Channel;
use wire::grpc::v1::{self, kv_client::KvClient};
use wire::grpc::{AGAIN_KEY, CLIENT_KEY, Reason, SESSION_KEY, TRIED_KEY};

/// A node with both ports open. Closed in the order of the fields.
struct Site {
    grpc: Grpc,
    admin: Admin,
    node: Option<Node>,
    _data: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop();
        }
    }
}

fn site(change: impl FnOnce(&mut Config), tls: Option<TlsConfig>) -> Site {
    let data = tempfile::tempdir().unwrap();
    let mut config = Config { data: data.path().join("node"), ..Config::default() };
    config.ports.peer = "127.0.0.1:0".parse().unwrap();
    change(&mut config);
    let node = Node::start(&config).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let options = grpc::Options { address: any, tls: tls.clone(), threads: 2, connections_max: 64 };
    Site {
        grpc: Grpc::open(&node, &options).unwrap(),
        admin: Admin::open(&node, any, tls.as_ref()).unwrap(),
        node: Some(node),
        _data: data,
    }
}

fn options() -> client::Options {
    client::Options { deadline: Duration::from_secs(30), ..client::Options::default() }
}

fn client(site: &Site) -> Client {
    Client::connect([site.grpc.address().to_string()], options()).unwrap()
}

/// Runs the client's side on a runtime of its own: a node may not be stopped on one.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(test)
}

/// The status code and the body of an HTTP request to the admin port.
fn http(site: &Site, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(site.admin.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[test]
fn keys_are_put_got_compared_and_deleted() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("");
        assert_eq!(keys.get("a").await.unwrap(), None);
        let first = keys.put("a", "1").await.unwrap();
        let found = keys.get("a").await.unwrap().unwrap();
        assert_eq!((&found.value[..], found.version), (&b"1"[..], first));
        let old = keys.clone().stale().get("a").await.unwrap().unwrap();
        assert_eq!(old.version, first, "a site of one node is never behind itself");

        let second = keys.compare_and_set("a", first, "2").await.unwrap();
        assert!(second.applied && second.version > first);
        let late = keys.compare_and_set("a", first, "3").await.unwrap();
        assert_eq!((late.applied, late.version), (false, second.version));

        let absent = Put { condition: Condition::IfAbsent, ..Put::default() };
        assert!(!keys.put_with("a", "4", absent).await.unwrap().applied);
        let old = Put { return_old: true, ..Put::default() };
        assert_eq!(keys.put_with("a", "5", old).await.unwrap().old, Some(Bytes::from("2")));
        let past = Put { expiry: Expiry::AtMs(1), ..Put::default() };
        keys.put_with("gone", "x", past).await.unwrap();
        assert_eq!(keys.get("gone").await.unwrap(), None);

        assert!(!keys.delete_if("a", first).await.unwrap());
        assert!(keys.delete("a").await.unwrap());
        assert!(!keys.delete("a").await.unwrap());
        assert!(matches!(keys.put("", "x").await, Err(Error::Invalid(_))));
    });
}

#[test]
fn a_scan_for_more_than_a_key_can_be_harms_nothing() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("");
        keys.put("a", "1").await.unwrap();
        let long = Bytes::from(vec![b'a'; 70_000]);
        let mut scan = keys.scan(ScanRange { glob: long.clone(), ..ScanRange::default() });
        assert!(scan.next().await.unwrap().is_none());
        for range in [
            ScanRange { from: long.clone(), ..ScanRange::default() },
            ScanRange { until: long.clone(), ..ScanRange::default() },
            ScanRange { prefix: long, ..ScanRange::default() },
        ] {
            assert!(keys.scan(range).next().await.is_err());
        }
        keys.put("a", "2").await.unwrap();
    });
}

#[test]
fn a_batch_is_done_at_one_moment_or_not_at_all() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("default");
        let batch = || Batch::new().only_if("a", Revision(0)).put("a", "1").get("a").delete("b");
        let BatchOutcome::Applied(steps) = keys.batch(batch()).await.unwrap() else {
            panic!("the guard holds");
        };
        assert!(matches!(&steps[0], StepOutcome::Put(put) if put.applied));
        assert!(matches!(&steps[1], StepOutcome::Got(Some(got)) if got.value == "1"));
        assert_eq!(steps[2], StepOutcome::Deleted(false));
        assert_eq!(keys.batch(batch()).await.unwrap(), BatchOutcome::NotApplied);
    });
}

#[test]
fn a_batch_sees_that_an_absent_key_was_there_meanwhile() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("default");
        let lock = |seen: &client::Watched| {
            let batch = Batch::new().only_if_unchanged("lock", seen).put("lock", "mine");
            keys.batch(batch)
        };
        let seen = keys.watch_key("lock").await.unwrap();
        assert_eq!(seen.found, None);
        keys.put("lock", "theirs").await.unwrap();
        keys.delete("lock").await.unwrap();
        assert_eq!(lock(&seen).await.unwrap(), BatchOutcome::NotApplied);

        let seen = keys.watch_key("lock").await.unwrap();
        keys.put("other", "1").await.unwrap();
        keys.delete("other").await.unwrap();
        assert!(matches!(lock(&seen).await.unwrap(), BatchOutcome::Applied(_)));
        assert_eq!(lock(&seen).await.unwrap(), BatchOutcome::NotApplied, "it is there now");

        let seen = keys.watch_key("lock").await.unwrap();
        assert!(matches!(lock(&seen).await.unwrap(), BatchOutcome::Applied(_)));
        assert_eq!(lock(&seen).await.unwrap(), BatchOutcome::NotApplied, "its version is another");
    });
}

#[test]
fn a_scan_goes_over_pages() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("");
        for thousand in 0..3 {
            let mut batch = Batch::new();
            for n in 0..1_000 {
                batch = batch.put(format!("k{thousand}{n:03}"), "v");
            }
            keys.batch(batch).await.unwrap();
        }
        keys.put("other", "v").await.unwrap();
        let count = async |range: ScanRange| {
            let mut scan = keys.scan(range);
            let mut found = Vec::new();
            while let Some(item) = scan.next().await.unwrap() {
                found.push(item);
            }
            assert!(found.is_sorted_by(|a, b| a.key < b.key));
            found
        };
        let prefix = ScanRange { prefix: "k".into(), with_values: true, ..ScanRange::default() };
        let all = count(prefix.clone()).await;
        assert_eq!(all.len(), 3_000);
        assert_eq!(all[0].value.as_deref(), Some(&b"v"[..]));
        assert_eq!(count(ScanRange { limit: 1_500, ..prefix.clone() }).await.len(), 1_500);
        let glob = ScanRange { glob: "k?007".into(), limit: 2, ..ScanRange::default() };
        assert_eq!(count(glob).await.len(), 2);
        let bounds = ScanRange { from: "k2".into(), until: "k2010".into(), ..ScanRange::default() };
        assert_eq!(count(bounds).await.len(), 10);
    });
}

#[test]
fn a_watch_sends_every_change_and_resumes_from_a_revision() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("");
        let mut watch = keys.watch_after("car:", None, true).await.unwrap();
        let first = keys.put("car:1", "a").await.unwrap();
        keys.put("bus:1", "a").await.unwrap();
        keys.delete("car:1").await.unwrap();
        let mut changes = Vec::new();
        while changes.len() < 2 {
            changes.extend(watch.next().await.unwrap().changes);
        }
        assert_eq!((changes[0].revision, &changes[0].key[..]), (first, &b"car:1"[..]));
        assert_eq!(changes[0].kind, ChangeKind::Put);
        assert_eq!((changes[1].kind, &changes[1].now), (ChangeKind::Delete, &None));

        let mut again = keys.watch_after("car:", Some(first), false).await.unwrap();
        let mut changes = Vec::new();
        while changes.is_empty() {
            changes = again.next().await.unwrap().changes;
        }
        assert_eq!(changes[0].kind, ChangeKind::Delete);
    });
}

#[test]
fn a_watch_with_long_values_goes_on() {
    let site = site(|_| {}, None);
    run(async {
        let keys = client(&site).keyspace("");
        let before = keys.put("before", "x").await.unwrap();
        // Together they are longer than a message may be.
        let value = Bytes::from(vec![7; 5 << 20]);
        // Changes are kept from the first watch on, which takes few of them before they are read.
        let mut watch = keys.watch_after("long:", Some(before), true).await.unwrap();
        assert_eq!(watch.next().await.unwrap().changes, []);
        for n in 0..20 {
            keys.put(format!("long:{n}"), value.clone()).await.unwrap();
        }
        let (mut seen, mut progress) = (Vec::new(), before);
        while seen.len() < 20 {
            let next = tokio::time::timeout(Duration::from_secs(30), watch.next());
            let update = next.await.expect("it goes on").unwrap();
            assert!(update.progress >= progress);
            progress = update.progress;
            for change in update.changes {
                assert!(change.revision <= progress);
                assert_eq!(change.now.unwrap().value.len(), value.len());
                seen.push(change.key);
            }
        }
        let written: Vec<_> = (0..20).map(|n| Bytes::from(format!("long:{n}"))).collect();
        assert_eq!(seen, written);
    });
}

#[test]
fn a_site_is_administered() {
    let site = site(|_| {}, None);
    run(async {
        let client = client(&site);
        let cluster = client.cluster();
        let cars = KeyspaceSpec::linearizable_site("cars", "car:");
        let made = cluster.create_keyspace(&cars).await.unwrap();
        assert_eq!(made.spec, cars);
        client.keyspace("cars").put("car:1", "x").await.unwrap();
        assert_eq!(cluster.keyspace("cars").await.unwrap().1, Some(1));
        assert_eq!(cluster.keyspaces().await.unwrap().len(), 2);
        let reason = |error| match error {
            Error::Refused { reason, .. } => reason,
            other => panic!("{other:?}"),
        };
        let again = cluster.create_keyspace(&cars).await.unwrap_err();
        assert_eq!(reason(again), Reason::KeyspaceExists);
        cluster.drop_keyspace("cars").await.unwrap();
        let gone = client.keyspace("cars").get("car:1").await.unwrap_err();
        assert_eq!(reason(gone), Reason::NoKeyspace);

        let status = cluster.status().await.unwrap();
        assert_eq!((status.node, status.leader, status.members.len()), (1, 1, 1));
        let last = cluster.remove_node(NodeId(1), false).await.unwrap_err();
        assert_eq!(reason(last), Reason::Membership);
    });
}

#[test]
fn a_backup_is_restored_as_it_was() {
    let office = tempfile::tempdir().unwrap();
    let (file, data) = (office.path().join("site.backup"), office.path().join("restored"));
    {
        let site = site(|_| {}, None);
        let bytes = run(async {
            let client = client(&site);
            let big = vec![7u8; 3 << 20];
            client.keyspace("").put("big", big).await.unwrap();
            client.keyspace("").put("small", "s").await.unwrap();
            let mut backup = client.cluster().backup().await.unwrap();
            let mut bytes = Vec::new();
            let mut total = 0;
            while let Some((chunk, total_bytes)) = backup.next().await.unwrap() {
                bytes.extend_from_slice(&chunk);
                total = total_bytes;
            }
            assert_eq!(bytes.len() as u64, total);
            bytes
        });
        std::fs::write(&file, bytes).unwrap();
    }
    let name = Config::default().site;
    let peer = "127.0.0.1:0";
    server::backup::restore(&file, &data, &name, NodeId(1), peer).unwrap();
    let site = site(|config| config.data = data.clone(), None);
    run(async {
        let keys = client(&site).keyspace("");
        assert_eq!(keys.get("big").await.unwrap().unwrap().value.len(), 3 << 20);
        assert_eq!(keys.get("small").await.unwrap().unwrap().value, "s");
    });
}

fn with_users(config: &mut Config) {
    let user = |name: &str, keyspace: &str, allow: &[Right]| UserConfig {
        name: name.into(),
        password_hash: hash_password(b"secret", [3; 16]).unwrap(),
        rights: vec![Grant { keyspace: keyspace.into(), allow: allow.into() }],
    };
    config.users = vec![
        user("root", "*", &[Right::Read, Right::Write, Right::Admin]),
        user("reader", "default", &[Right::Read]),
    ];
}

#[test]
fn users_do_what_they_have_the_right_to() {
    let site = site(with_users, None);
    run(async {
        let as_user = |name: &str, password: &str| {
            let credentials = Credentials { name: name.into(), password: password.into() };
            let options = client::Options { credentials: Some(credentials), ..options() };
            Client::connect([site.grpc.address().to_string()], options).unwrap()
        };
        let anonymous = client(&site).keyspace("").get("a").await;
        assert!(matches!(anonymous, Err(Error::Unauthenticated(_))), "{anonymous:?}");
        let wrong = as_user("root", "guess").keyspace("").get("a").await;
        assert!(matches!(wrong, Err(Error::Unauthenticated(_))), "{wrong:?}");

        as_user("root", "secret").keyspace("").put("a", "1").await.unwrap();
        let reader = as_user("reader", "secret");
        assert!(reader.keyspace("").get("a").await.unwrap().is_some());
        let write = reader.keyspace("").put("a", "2").await;
        assert!(matches!(write, Err(Error::Denied(_))), "{write:?}");
        let secret = KeyspaceSpec::linearizable_site("secret", "secret:");
        as_user("root", "secret").cluster().create_keyspace(&secret).await.unwrap();
        assert_eq!(as_user("root", "secret").cluster().keyspaces().await.unwrap().len(), 2);
        let listed = reader.cluster().keyspaces().await.unwrap();
        assert_eq!(listed.iter().map(|one| &one.spec.name[..]).collect::<Vec<_>>(), ["default"]);
        let hidden = reader.keyspace("absent").get("a").await;
        assert!(matches!(hidden, Err(Error::Denied(_))), "absence is not revealed: {hidden:?}");
        let admin = reader.cluster().status().await;
        assert!(matches!(admin, Err(Error::Denied(_))), "{admin:?}");
    });
    let basic = |pair: &str| format!("authorization: Basic {pair}\r\n");
    assert_eq!(http(&site, "/status", "").0, 401);
    assert_eq!(http(&site, "/status", &basic("cmVhZGVyOnNlY3JldA==")).0, 403);
    assert_eq!(http(&site, "/metrics", &basic("cm9vdDpzZWNyZXQ=")).0, 200);
    assert_eq!(http(&site, "/healthz", "").0, 200, "an orchestrator has no password");
}

#[test]
fn what_is_not_logged_in_sends_no_long_requests() {
    let site = site(with_users, None);
    run(async {
        let endpoint = Channel::from_shared(format!("http://{}", site.grpc.address())).unwrap();
        let mut channel = endpoint.connect().await.unwrap();
        let (body, rest) = tokio::sync::mpsc::channel(1);
        let body_stream = axum::body::Body::from_stream(ReceiverStream::new(rest));
        let request = http::Request::post("/portolan.v1.Kv/Put")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(tonic::body::Body::new(body_stream))
            .unwrap();
        // The head states 80 MiB, of which one comes, and the stream stays open.
        let mut part = vec![0; 5 + (1 << 20)];
        part[1..5].copy_from_slice(&(80_u32 << 20).to_be_bytes());
        body.send(Ok::<_, std::convert::Infallible>(Bytes::from(part))).await.unwrap();
        std::future::poll_fn(|context| channel.poll_ready(context)).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), channel.call(request));
        let answer = answer.await.expect("it is refused before its message is there").unwrap();
        let status = tonic::Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), tonic::Code::Unauthenticated, "{status:?}");
        drop(body);
    });
}

#[test]
fn accesses_count_for_the_client_that_the_metadata_names() {
    let cars = KeyspaceSpec {
        placement: Placement::Advise,
        ..KeyspaceSpec::linearizable_global("cars", "car:")
    };
    let site = site(|config| config.keyspaces.push(cars), None);
    run(async {
        let connect = |name: Option<&str>| {
            let options = client::Options { name: name.map(str::to_owned), ..options() };
            Client::connect([site.grpc.address().to_string()], options)
        };
        let requester = connect(None).unwrap();
        while requester.keyspace("cars").get("x").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Two objects of one name are one client, and one without a name has one of its own.
        let mut seen = Vec::new();
        for name in [Some("car-7"), Some("car-7"), Some("car-8"), None] {
            let cars = connect(name).unwrap().keyspace("cars");
            loop {
                cars.put("car:7", "x").await.unwrap();
                cars.get("car:7").await.unwrap();
                let explained = requester.deployment().explain_placement(b"car:7").await;
                let found = explained.map(|one| one.key_clients.len()).unwrap_or_default();
                if found > seen.last().copied().unwrap_or_default()
                    || name == Some("car-7") && found == 1
                {
                    seen.push(found);
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        assert_eq!(seen, [1, 1, 2, 3]);
        let name = Some("car-9".to_owned());
        let uncounted = client::Options { name, uncounted: true, ..options() };
        let uncounted = Client::connect([site.grpc.address().to_string()], uncounted).unwrap();
        for _ in 0..20 {
            uncounted.keyspace("cars").put("car:8", "x").await.unwrap();
        }
        connect(Some("car-10")).unwrap().keyspace("cars").put("car:8", "x").await.unwrap();
        let counted = async || {
            let explained = requester.deployment().explain_placement(b"car:8").await;
            explained.map(|one| one.key_clients.len()).unwrap_or_default()
        };
        while counted().await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(counted().await, 1);
        for wrong in ["", "car 7", "é", &"x".repeat(257)] {
            assert!(matches!(connect(Some(wrong)), Err(client::ConnectError::Name)), "{wrong}");
        }
        // What other clients send.
        let mut raw = KvClient::connect(format!("http://{}", site.grpc.address())).await.unwrap();
        let mut get = async |name: &str| {
            let get = v1::GetRequest {
                keyspace: "cars".into(),
                key: "car:7".into(),
                ..Default::default()
            };
            let mut request = tonic::Request::new(get);
            request.metadata_mut().insert(CLIENT_KEY, name.parse().unwrap());
            raw.get(request).await
        };
        assert!(get(&"x".repeat(256)).await.is_ok());
        let refused = get(&"x".repeat(257)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    });
}

#[test]
fn the_admin_port_reports_the_state_of_the_node() {
    let site = site(|_| {}, None);
    run(async {
        client(&site).keyspace("").put("a", "1").await.unwrap();
    });
    assert_eq!(http(&site, "/healthz", ""), (200, "ok\n".into()));
    // What it publishes about itself follows its answers.
    while http(&site, "/readyz", "").0 != 200 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(http(&site, "/readyz", ""), (200, "ready\n".into()));
    let (code, metrics) = http(&site, "/metrics", "");
    assert_eq!(code, 200);
    for needed in [
        "portolan_operation_duration_seconds_count{front=\"grpc\",operation=\"put\"} 1",
        "portolan_raft_is_leader 1",
        "portolan_log_fsync_duration_seconds_bucket",
        "portolan_connections{front=\"grpc\"} ",
    ] {
        assert!(metrics.contains(needed), "{needed} is not in\n{metrics}");
    }
    let (code, status) = http(&site, "/status", "");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((code, &status["role"], &status["ready"]), (200, &"leader".into(), &true.into()));
    assert_eq!((&status["members"][0]["role"], &status["keys"]), (&"voter".into(), &1.into()));
    assert_eq!(http(&site, "/else", "").0, 404);
}

#[test]
fn tls_serves_clients_that_trust_the_authority() {
    let certificates = certificates();
    let site = site(|_| {}, Some(certificates.port.clone()));

    run(async {
        let tls = client::Tls { ca: certificates.ca.clone(), ..client::Tls::default() };
        let options = client::Options { tls: Some(tls), ..options() };
        let trusting = Client::connect([site.grpc.address().to_string()], options).unwrap();
        trusting.keyspace("").put("a", "1").await.unwrap();
        let short = Duration::from_millis(300);
        let plain = client::Options {
            deadline: short,
            attempt_deadline: short,
            ..client::Options::default()
        };
        let plain = Client::connect([site.grpc.address().to_string()], plain).unwrap();
        plain.keyspace("").get("a").await.unwrap_err();
    });
}

#[test]
fn silent_connections_and_password_guesses_delay_no_user() {
    let root = UserConfig {
        name: "root".into(),
        password_hash: hash_password(b"secret", [1; 16]).unwrap(),
        rights: vec![Grant {
            keyspace: "*".into(),
            allow: vec![Right::Read, Right::Write, Right::Admin],
        }],
    };
    let change = |config: &mut Config| {
        config.users = vec![root];
        config.clients.login_timeout = None;
    };
    let site = site(change, None);
    let user = |password: &str| {
        let credentials = Credentials { name: "root".into(), password: password.into() };
        let options = client::Options { credentials: Some(credentials), ..options() };
        Client::connect([site.grpc.address().to_string()], options).unwrap()
    };
    // Both ports have fewer places than that.
    let flood = |address: SocketAddr, count: usize| -> Vec<TcpStream> {
        (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
    };
    let silent = [flood(site.grpc.address(), 100), flood(site.admin.address(), 300)];
    run(async {
        let known = user("secret");
        let ready = async |client: &Client| loop {
            match client.keyspace("").put("a", "1").await {
                Err(Error::Unavailable(_)) => {}
                done => break done.map(drop),
            }
        };
        assert_eq!(ready(&known).await, Ok(()));
        let guesses: Vec<_> = (0..30)
            .map(|_| {
                let guess = user("wrong");
                tokio::spawn(async move { guess.keyspace("").get("a").await })
            })
            .collect();
        assert_eq!(ready(&user("secret")).await, Ok(()));
        for guess in guesses {
            let error = guess.await.unwrap().unwrap_err();
            let right = matches!(error, Error::Unauthenticated(_) | Error::Unavailable(_));
            assert!(right, "{error:?}");
        }
        let _more = flood(site.grpc.address(), 100);
        assert_eq!(ready(&known).await, Ok(()), "a logged-in client keeps its connection");
    });
    let ops = "authorization: Basic cm9vdDpzZWNyZXQ=\r\n";
    let (code, metrics) = http(&site, "/metrics", ops);
    assert_eq!(code, 200);
    for counted in [
        "portolan_connections_closed_total{front=\"grpc\",reason=\"displaced\"}",
        "portolan_connections_closed_total{front=\"admin\",reason=\"displaced\"}",
        "portolan_logins_total{outcome=\"wrong\"}",
    ] {
        assert!(metrics.contains(counted), "{counted} is not in\n{metrics}");
    }
    drop(silent);
}

/// Two sites of a deployment with a causal keyspace.
fn two_sites() -> [Site; 2] {
    let pier = site(
        |config| {
            config.site = SiteName::new("pier").unwrap();
            config.keyspaces = vec![KeyspaceSpec::causal_region("cars", "car:")];
        },
        None,
    );
    let peer = pier.node.as_ref().unwrap().peer_address().to_string();
    let quay = site(
        |config| {
            config.site = SiteName::new("quay").unwrap();
            config.join = vec![peer];
        },
        None,
    );
    [pier, quay]
}

#[test]
fn a_session_of_causal_keys_moves_between_sites() {
    let [pier, quay] = two_sites();
    run(async {
        let at = [&pier, &quay].map(|site| client(site).keyspace("cars"));
        while !matches!(at[1].get("car:1").await, Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let session = Session::begin();
        for round in 0..10_usize {
            // Each client waits until its site has what the session has seen.
            let here = at[round % 2].clone().in_session(&session);
            if round > 0 {
                let found = here.get("car:1").await.unwrap().expect("the session has written it");
                assert_eq!(&found.value[..], (round - 1).to_string().as_bytes());
                let mut scan = here.scan(ScanRange { with_values: true, ..ScanRange::default() });
                let item = scan.next().await.unwrap().unwrap();
                assert_eq!(item.key, "car:1");
                assert!(scan.next().await.unwrap().is_none());
            }
            here.put("car:1", round.to_string()).await.unwrap();
            assert_eq!(session.token().await.len(), 53);
        }
        let region = client(&quay).deployment().region().await.unwrap();
        assert_eq!((region.id, region.epoch), (1, 1));
        assert!(region.last_revision > 0, "{region:?}");

        let foreign = Session::of_token(vec![7; 53]);
        let refused = at[0].clone().in_session(&foreign).get("car:1").await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert!(at[0].get("car:1").await.unwrap().is_some(), "a call is a session of its own");
    });
}

#[test]
fn a_put_that_is_sent_to_two_sites_is_made_once() {
    let [pier, quay] = two_sites();
    run(async {
        let keys = client(&quay).keyspace("cars");
        while !matches!(keys.get("car:1").await, Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let number = v1::RequestId { client: 7, sequence: 1, acknowledged_below: 0 };
        let put = |value: &str, tried: Option<&'static str>, number| {
            let mut request = tonic::Request::new(v1::PutRequest {
                keyspace: "cars".to_owned(),
                key: "car:1".into(),
                value: Bytes::copy_from_slice(value.as_bytes()),
                request: number,
                ..v1::PutRequest::default()
            });
            let none = tonic::metadata::MetadataValue::from_bytes(b"");
            request.metadata_mut().insert_bin(SESSION_KEY, none);
            if let Some(tried) = tried {
                request.metadata_mut().insert(TRIED_KEY, tried.parse().unwrap());
            }
            request
        };
        let connect = |site: &Site| KvClient::connect(format!("http://{}", site.grpc.address()));
        let (mut at_pier, mut at_quay) =
            (connect(&pier).await.unwrap(), connect(&quay).await.unwrap());
        let first = at_quay.put(put("u", Some(""), Some(number))).await.unwrap().into_inner();
        assert!(first.applied && first.version > 0, "{first:?}");
        at_quay.put(put("v", None, None)).await.unwrap();
        let keys = client(&pier).keyspace("cars");
        while keys.get("car:1").await.unwrap().is_none_or(|found| &found.value[..] != b"v") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let again = at_pier.put(put("u", Some("quay"), Some(number))).await.unwrap().into_inner();
        assert!(again.applied && again.version == 0, "{again:?}");
        for (tried, is_later) in [("quay", false), ("", false), ("quay", true)] {
            let mut request = put("u", Some(tried), Some(number));
            if is_later {
                request.metadata_mut().insert(AGAIN_KEY, "".parse().unwrap());
            }
            let again = at_quay.put(request).await.unwrap();
            assert_eq!(again.into_inner(), first, "it is known there");
        }
        // A site that has come back under the name does not know it: the root does.
        let third = v1::RequestId { client: 7, sequence: 3, acknowledged_below: 0 };
        let mut request = put("t", Some("quay"), Some(third));
        request.metadata_mut().insert(AGAIN_KEY, "".parse().unwrap());
        let by_root = at_quay.put(request).await.unwrap().into_inner();
        assert!(by_root.applied && by_root.version == 0, "{by_root:?}");
        // What the site writes before it has the root's place of that counts below it.
        let there = client(&quay).keyspace("cars");
        while there.get("car:1").await.unwrap().is_none_or(|found| &found.value[..] != b"t") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        at_quay.put(put("v", None, None)).await.unwrap();
        while keys.get("car:1").await.unwrap().is_none_or(|found| &found.value[..] != b"v") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            &keys.get("car:1").await.unwrap().unwrap().value[..],
            b"v",
            "it is not made again"
        );
        // One that came to no site before.
        let other = v1::RequestId { client: 7, sequence: 2, acknowledged_below: 0 };
        at_quay.put(put("w", Some("pier"), Some(other))).await.unwrap();
        while keys.get("car:1").await.unwrap().is_none_or(|found| &found.value[..] != b"w") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let nowhere = at_quay.put(put("x", Some("nowhere"), Some(other))).await;
        assert!(nowhere.is_err(), "{nowhere:?}");
        let unnumbered = at_quay.put(put("x", Some(""), None)).await.unwrap_err();
        assert_eq!(unnumbered.code(), tonic::Code::InvalidArgument, "{unnumbered:?}");
        for tried in ["", "pier"] {
            let mut request = put("x", Some(tried), Some(other));
            request.get_mut().keyspace.clear();
            let elsewhere = at_quay.put(request).await.unwrap_err();
            assert_eq!(elsewhere.code(), tonic::Code::InvalidArgument, "{elsewhere:?}");
        }
    });
}

/// A batch of two puts, and of something else perhaps, as an attempt of one tried at `quay`.
fn two_puts(value: &str, more: Option<v1::step::Step>) -> tonic::Request<v1::BatchRequest> {
    let put = |key: &'static str| {
        let value = Bytes::copy_from_slice(value.as_bytes());
        v1::step::Step::Put(v1::PutStep { key: key.into(), value, ..v1::PutStep::default() })
    };
    let steps = [put("car:1"), put("car:2")].into_iter().chain(more);
    let mut request = tonic::Request::new(v1::BatchRequest {
        keyspace: "cars".to_owned(),
        steps: steps.map(|step| v1::Step { step: Some(step) }).collect(),
        request: Some(v1::RequestId { client: 8, sequence: 1, acknowledged_below: 0 }),
        ..v1::BatchRequest::default()
    });
    let none = tonic::metadata::MetadataValue::from_bytes(b"");
    request.metadata_mut().insert_bin(SESSION_KEY, none);
    request.metadata_mut().insert(TRIED_KEY, "quay".parse().unwrap());
    request
}

#[test]
fn a_batch_of_puts_that_is_sent_to_two_sites_is_made_once() {
    let [pier, quay] = two_sites();
    run(async {
        let cars = client(&quay).keyspace("cars");
        while !matches!(cars.get("car:1").await, Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let connect = |site: &Site| KvClient::connect(format!("http://{}", site.grpc.address()));
        let (mut at_pier, mut at_quay) =
            (connect(&pier).await.unwrap(), connect(&quay).await.unwrap());
        let versions = |response: tonic::Response<v1::BatchResponse>| {
            let response = response.into_inner();
            assert!(response.applied);
            let put = |one: v1::StepResult| match one.result {
                Some(v1::step_result::Result::Put(put)) if put.applied => put.version,
                other => panic!("{other:?}"),
            };
            response.results.into_iter().map(put).collect::<Vec<_>>()
        };
        let first = versions(at_quay.batch(two_puts("u", None)).await.unwrap());
        assert!(first.len() == 2 && first[0] > 0 && first[1] == first[0], "{first:?}");
        cars.put("car:2", "v").await.unwrap();
        let there = client(&pier).keyspace("cars");
        while there.get("car:2").await.unwrap().is_none_or(|found| &found.value[..] != b"v") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut again = two_puts("u", None);
        again.metadata_mut().insert(AGAIN_KEY, "".parse().unwrap());
        assert_eq!(versions(at_pier.batch(again).await.unwrap()), [0, 0]);
        assert_eq!(&there.get("car:2").await.unwrap().unwrap().value[..], b"v");
        let delete = v1::step::Step::Delete(v1::DeleteStep { key: "car:1".into() });
        for more in [v1::step::Step::Get("car:1".into()), delete] {
            let refused = at_quay.batch(two_puts("x", Some(more))).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
        }
        let mut guarded = two_puts("x", None);
        guarded.get_mut().guards.push(v1::Guard { key: "car:9".into(), ..v1::Guard::default() });
        let refused = at_quay.batch(guarded).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    });
}
