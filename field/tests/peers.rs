//! Which connections the peer port accepts: those of nodes that prove to belong there, and no
//! others.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use field::resp::Client;
use field::tls::{Authority, Certificates};
use field::{Node, NodeOptions, Site, binary, eventually};

const LIMIT: Duration = Duration::from_secs(300);
const PASSWORD: &str = "harbour";

/// A user who may do everything, as the configuration has it.
fn ops() -> String {
    let mut program = Command::new(binary::portolan());
    program.arg("hash-password").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{PASSWORD}").unwrap();
    let output = child.wait_with_output().unwrap();
    let hash = String::from_utf8(output.stdout).unwrap();
    format!(
        "[[user]]\nname = \"ops\"\npassword_hash = \"{}\"\n\
         rights = [{{ keyspace = \"*\", allow = [\"read\", \"write\", \"admin\"] }}]\n",
        hash.trim_end()
    )
}

/// A file that only its owner may read.
fn private(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn node_of(folder: &Path, site: &str, node: u64, users: Option<&str>) -> NodeOptions {
    let mut options = NodeOptions::new(&folder.join(site), node);
    site.clone_into(&mut options.site);
    if let Some(users) = users {
        fs::create_dir_all(folder.join(site)).unwrap();
        options.configure(users);
    }
    options
}

/// Runs a command at a node as the user that may do everything.
fn as_ops(folder: &Path, node: &Node, words: &[&str]) -> Result<String, String> {
    let password = private(folder, "password", PASSWORD).display().to_string();
    node.cli(&[words, &["--user", "ops", "--password-file", &password]].concat())
}

fn token(folder: &Path, node: &Node, words: &[&str]) -> String {
    as_ops(folder, node, &[&["site", "token"], words].concat()).unwrap()
}

/// Starts a node that must not be let in; what it prints when it ends.
fn refused(options: &NodeOptions) -> String {
    let mut node = options.spawn();
    let status = node.wait_exit(LIMIT).unwrap();
    assert!(!status.success(), "it ended well: {}", node.log());
    node.log()
}

fn with_token(options: &mut NodeOptions, folder: &Path, text: &str) {
    let file = private(folder, "join-token", text).display().to_string();
    options.more.extend(["--join-token-file".to_owned(), file]);
}

/// Waits until the site has so many voters.
fn nodes_of(folder: &Path, node: &Node, count: usize) {
    eventually(LIMIT, || {
        let shown = as_ops(folder, node, &["status", "--json"])?;
        let status: serde_json::Value = serde_json::from_str(&shown).map_err(|e| e.to_string())?;
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let voters = members.iter().filter(|member| member["role"] == "voter").count();
        if voters == count { Ok(()) } else { Err(shown) }
    })
    .unwrap();
}

/// A protobuf field of bytes.
fn bytes_field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// The key of a hello's field 220, the last one: the rules by which the node decides the owner of a
/// slot.
const RULES: [u8; 2] = [0xe0, 0x0d];

/// The rules of the node at the other end, of its hello.
fn rules_of(socket: &mut TcpStream) -> u8 {
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut hello = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap()];
    socket.read_exact(&mut hello).unwrap();
    let [.., first, second, rules] = hello[..] else { panic!("a short hello: {hello:?}") };
    assert_eq!([first, second], RULES, "the last field of {hello:?}");
    rules
}

/// The messages of a node 9 of the site `field` that joins without a proof: a hello, and a request.
fn says_that_it_is_a_node(rules: u8) -> Vec<u8> {
    let hello = [
        &[0x08, 1][..],
        &bytes_field(2, b"field"),
        &[0x18, 9],
        &[0x21, 5, 0, 0, 0, 0, 0, 0, 0],
        // Without them it is refused before any proof is asked for.
        &[&RULES[..], &[rules]].concat(),
    ];
    let member = [&[0x08, 9][..], &bytes_field(2, b"127.0.0.1:9"), &[0x19, 5, 0, 0, 0, 0, 0, 0, 0]];
    let request = [&[0x08, 5][..], &bytes_field(3, &member.concat())].concat();
    let forward = bytes_field(2, &bytes_field(1, &request));
    [frame(&hello.concat()), frame(&forward)].concat()
}

/// What a node answers to a peer that only claims to be one, until it closes.
fn stranger(node: &Node) -> String {
    let mut socket = TcpStream::connect(node.options.peer).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let rules = rules_of(&mut socket);
    let mut answer = Vec::new();
    let _ = socket.write_all(&says_that_it_is_a_node(rules));
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_client_without_login_gets_nothing_of_a_site_with_users() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let users = ops();
    let node = node_of(folder, "field", 1, Some(&users)).start();
    as_ops(folder, &node, &["put", "key", "value"]).unwrap();

    let answer = stranger(&node);
    assert!(answer.contains("older protocol"), "{answer:?}");
    // By the program itself: as a node of the site, and as another site of its deployment.
    for (site, number) in [("field", 2), ("east", 1)] {
        let mut options = node_of(folder, site, number, None);
        options.join = Some(node.options.peer);
        let log = refused(&options);
        assert!(log.contains("does not prove") && log.contains("portolan site token"), "{log}");
    }
    nodes_of(folder, &node, 1);
    let sites = as_ops(folder, &node, &["site", "list"]).unwrap();
    assert!(!sites.contains("east"), "{sites}");
    assert_eq!(as_ops(folder, &node, &["get", "key"]).unwrap(), "value\n");
    assert!(node.cli(&["site", "token"]).unwrap_err().contains("--user"), "without a password");
}

#[test]
fn a_node_joins_with_a_token_and_comes_back_without() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let users = ops();
    let first = node_of(folder, "field", 1, Some(&users)).start();

    let mut options = node_of(folder, "field", 2, Some(&users));
    options.join = Some(first.options.peer);
    let expired = token(folder, &first, &["--expires", "1s"]);
    std::thread::sleep(Duration::from_millis(1_100));
    let bare = options.more.clone();
    with_token(&mut options, folder, &expired);
    let log = refused(&options);
    assert!(log.contains("expired") && log.contains("portolan site token"), "{log}");
    assert!(!log.contains(expired.trim()), "a token is in the log");

    options.more.clone_from(&bare);
    with_token(&mut options, folder, &token(folder, &first, &[]));
    let mut second = options.start();
    nodes_of(folder, &first, 2);
    let kept = options.data.join("peer-secret");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    as_ops(folder, &second, &["put", "key", "value"]).unwrap();

    // The token is only for the first time; the node that came by it lets no other in either.
    second.options.more = bare;
    second.stop();
    second.restart();
    nodes_of(folder, &second, 2);
    assert_eq!(as_ops(folder, &second, &["get", "key"]).unwrap(), "value\n");
    assert!(stranger(&second).contains("older protocol"));
    let secret = fs::read_to_string(kept).unwrap();
    let shown = binary::run(binary::portolan(), &["check-config"]).unwrap();
    assert!(!shown.contains(secret.trim()) && !second.log().contains(secret.trim()));
}

#[test]
fn a_site_joins_a_deployment_with_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let users = ops();
    let first = node_of(folder, "field", 1, Some(&users)).start();

    let mut options = node_of(folder, "east", 1, Some(&users));
    options.join = Some(first.options.peer);
    let bare = options.more.clone();
    with_token(&mut options, folder, &token(folder, &first, &["--site"]));
    let log = refused(&options);
    assert!(log.contains("is for a node of site field"), "{log}");

    options.more.clone_from(&bare);
    with_token(&mut options, folder, &token(folder, &first, &["--deployment"]));
    let mut east = options.start();
    east.options.more = bare;
    east.stop();
    east.restart();
    for node in [&first, &east] {
        eventually(LIMIT, || {
            let sites = as_ops(folder, node, &["site", "list"])?;
            if sites.contains("east") && sites.contains("field") { Ok(()) } else { Err(sites) }
        })
        .unwrap();
    }
    // Keys of one are read at the other: links between sites are proved too.
    let create = ["keyspace", "create", "cars", "--prefix", "car:", "--scope", "global"];
    as_ops(folder, &first, &create).unwrap();
    eventually(LIMIT, || as_ops(folder, &east, &["put", "car:1", "x", "--keyspace", "cars"]))
        .unwrap();
    let read =
        eventually(LIMIT, || as_ops(folder, &first, &["get", "car:1", "--keyspace", "cars"]));
    assert_eq!(read.unwrap(), "x\n");
}

#[test]
fn secrets_are_given_in_files_and_changed_while_the_site_runs() {
    let folder = tempfile::tempdir().unwrap();
    let secrets = |name: &str, letters: &[&str]| {
        let lines: String = letters.iter().map(|letter| letter.repeat(40) + "\n").collect();
        private(folder.path(), name, &lines).display().to_string()
    };
    let given = |file: String| vec!["--peer-secret-file".to_owned(), file];
    let old = secrets("old", &["o"]);
    let mut site = Site::start(folder.path(), 2, |options| options.more = given(old.clone()));

    let mut other = NodeOptions::new(folder.path(), 3);
    other.join = Some(site.nodes[0].options.peer);
    other.more = given(secrets("other", &["x"]));
    let log = refused(&other);
    assert!(log.contains("has another secret than site field"), "{log}");

    for step in [secrets("both", &["n", "o"]), secrets("new", &["n"])] {
        for node in &mut site.nodes {
            node.options.more = given(step.clone());
            node.stop();
            node.restart();
        }
        site.wait_writable();
    }
    // What others can read is not used.
    let readable = secrets("readable", &["n"]);
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).unwrap();
    other.more = given(readable);
    let log = refused(&other);
    assert!(log.contains("chmod 600"), "{log}");
}

/// TLS between nodes only, so that clients can drive the site as ever.
fn by_certificate(options: &mut NodeOptions, pem: &Certificates, more: &str) {
    let (cert, key, ca) = (pem.cert.display(), pem.key.display(), pem.ca.display());
    options.configure(&format!(
        "[tls.peer]\ncert = \"{cert}\"\nkey = \"{key}\"\nca = \"{ca}\"\n{more}"
    ));
}

#[test]
fn a_certificate_must_name_the_role_and_site_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path());
    let of_site = authority.issue("node", Some("portolan://node/field"));
    let site = Site::start(folder.path(), 2, |options| by_certificate(options, &of_site, ""));

    let refused_with = |pem: &Certificates, more: &str| {
        let mut options = NodeOptions::new(folder.path(), 3);
        options.join = Some(site.nodes[0].options.peer);
        by_certificate(&mut options, pem, more);
        let log = refused(&options);
        fs::remove_file(options.log()).unwrap();
        log
    };
    // A client's certificate of the same authority, used by a program that checks nothing itself.
    let of_client = authority.issue("client", None);
    let log = refused_with(&of_client, "[peers]\naccept_unproved = true\n");
    assert!(log.contains("refuses this node") && log.contains("portolan://node/field"), "{log}");
    for (name, role) in [("none", None), ("east", Some("portolan://node/east"))] {
        let log = refused_with(&authority.issue(name, role), "");
        assert!(log.contains("[tls.peer] cert") && log.contains("portolan://node/field"), "{log}");
    }

    let mut options = NodeOptions::new(folder.path(), 3);
    options.join = Some(site.nodes[0].options.peer);
    by_certificate(&mut options, &authority.issue("three", Some("portolan://node/field/3")), "");
    let third = options.start();
    eventually(LIMIT, || match third.status()?.voters() {
        3 => Ok(()),
        voters => Err(format!("{voters} voters")),
    })
    .unwrap();
}

#[test]
fn loopback_without_any_configuration_is_as_easy_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    let first = NodeOptions::new(folder.path(), 1).start();
    let mut options = NodeOptions::new(folder.path(), 2);
    options.join = Some(first.options.peer);
    let second = options.start();
    let mut client = Client::connect(second.options.redis, LIMIT).unwrap();
    client.call(&["SET", "key", "value"]).unwrap();
    // So does a node that cannot prove anything.
    let mut older = TcpStream::connect(first.options.peer).unwrap();
    let rules = rules_of(&mut older);
    older.write_all(&says_that_it_is_a_node(rules)).unwrap();
    eventually(LIMIT, || match first.status()?.members.len() {
        3 => Ok(()),
        count => Err(format!("{count} members")),
    })
    .unwrap();
    assert!(!first.options.data.join("peer-secret").exists());
}
