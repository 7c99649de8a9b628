//! The handshake over real sockets.

use super::super::{Identity, Links};
use super::*;
use crate::clock::Clock;
use crate::config::{Config, PeersConfig, TlsConfig};
use crate::node::Event;
use crate::peers::{Hidden, TokenScope};
use crate::tls::{PeerTls, peer_name};
use bytes::BytesMut;
use field::tls::{Authority, Certificates};
use model::{NodeId, SiteName, limits};
use std::sync::{Arc, mpsc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::peer::{Content, Forward, ForwardedRequest, Hello, Message, Raft};

struct Peer {
    links: Links,
    events: mpsc::Receiver<Event>,
    address: String,
}

fn secret(letter: &str) -> PeersConfig {
    PeersConfig { secret: Some(Hidden::new(letter.repeat(32))), ..PeersConfig::default() }
}

async fn peer(node: u64, peers: PeersConfig) -> Peer {
    peer_of("pier", node, peers).await
}

async fn peer_of(site: &str, node: u64, peers: PeersConfig) -> Peer {
    peer_with(site, node, peers, None).await
}

async fn peer_with(site: &str, node: u64, peers: PeersConfig, tls: Option<TlsConfig>) -> Peer {
    let site = SiteName::new(site).unwrap();
    let data = "/nonexistent".into();
    let mut config = Config { site: site.clone(), peers, data, ..Config::default() };
    config.tls.peer = tls.clone();
    let auth = Arc::new(PeerAuth::open(&config, Clock::start()).unwrap());
    let identity = Identity { site, node: NodeId(node), incarnation: node };
    let (sender, events) = mpsc::channel();
    let tls = tls.map(|tls| PeerTls::load(&tls).unwrap());
    let links = Links::new(identity, tls, auth, sender, tokio::runtime::Handle::current());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(links.clone().accept(listener));
    Peer { links, events, address }
}

/// Dials again if the machine was too busy to prove anything in time.
async fn dial(from: &Peer, to: &Peer) -> Result<(), String> {
    loop {
        match from.links.dial_any(&to.address).await.map(drop) {
            Err(LinkError::Timeout | LinkError::Closed) => {}
            ended => return ended.map_err(|error| error.to_string()),
        }
    }
}

#[tokio::test]
async fn both_ends_prove_that_they_have_the_secret() {
    let (a, b) = (peer(1, secret("s")).await, peer(2, secret("s")).await);
    dial(&a, &b).await.unwrap();
    let quay = peer_of("quay", 1, secret("s")).await;
    dial(&quay, &a).await.unwrap();
    let other = peer(3, secret("t")).await;
    let refused = dial(&other, &a).await.unwrap_err();
    assert!(
        refused.contains("refuses this node") && refused.contains("another secret"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_refusal_of_a_node_without_the_secret_names_a_remedy() {
    let (asks, open) = (peer(1, secret("s")).await, peer(2, PeersConfig::default()).await);
    let refused = dial(&open, &asks).await.unwrap_err();
    assert!(refused.contains("n2 of site pier does not prove"), "{refused}");
    assert!(
        refused.contains("PORTOLAN_PEER_SECRET") && refused.contains("site token"),
        "{refused}"
    );
    let refused = dial(&asks, &open).await.unwrap_err();
    assert!(refused.contains("n2 of site pier does not prove"), "it asks whom it dials: {refused}");
    let lenient = PeersConfig { accept_unproved: Some(true), ..secret("s") };
    let lenient = peer(3, lenient).await;
    dial(&open, &lenient).await.unwrap();
    dial(&lenient, &open).await.unwrap();
    dial(&asks, &lenient).await.unwrap();
    assert!(
        dial(&peer(4, secret("t")).await, &lenient).await.is_err(),
        "a wrong secret is refused"
    );
}

#[tokio::test]
async fn nodes_without_secrets_talk_as_ever() {
    let (a, b) = (peer(1, PeersConfig::default()).await, peer(2, PeersConfig::default()).await);
    dial(&a, &b).await.unwrap();
}

#[tokio::test]
async fn a_token_lets_in_and_then_the_secret_does() {
    let site = peer(1, secret("s")).await;
    let (text, _) =
        site.links.auth().make_token(TokenScope::Site, Duration::from_secs(60)).unwrap();
    let token = JoinToken::parse(&text).unwrap();
    let joiner = peer(2, PeersConfig::default()).await;
    let data = tempfile::tempdir().unwrap();
    let at = [site.address.clone()];
    joiner.links.enrol(&at, &token, data.path()).await.unwrap();
    assert!(crate::peers::has_secret(data.path()));
    dial(&joiner, &site).await.unwrap();
    dial(&site, &joiner).await.unwrap();

    let strange = peer(3, secret("t")).await;
    let refused =
        joiner.links.enrol(std::slice::from_ref(&strange.address), &token, data.path()).await;
    assert!(refused.unwrap_err().contains("was not made with the secret of site pier"));
    let open = peer(4, PeersConfig::default()).await;
    let refused =
        joiner.links.enrol(std::slice::from_ref(&open.address), &token, data.path()).await;
    assert!(refused.unwrap_err().contains("has no secret"), "a site that requires no proof");
}

/// A program that speaks the frames and has no secret.
struct Unproved(TcpStream);

impl Unproved {
    async fn connect(to: &Peer, hello: &Hello) -> Unproved {
        let mut unproved = Unproved(TcpStream::connect(&to.address).await.unwrap());
        unproved.send(hello).await;
        unproved
    }

    async fn send(&mut self, message: &impl prost::Message) {
        let mut frame = BytesMut::new();
        peer::encode_frame(message, &mut frame);
        // The connection may be closed already.
        let _ = self.0.write_all(&frame).await;
    }

    /// All frames until the other end closes.
    async fn all(mut self) -> Vec<bytes::Bytes> {
        let (mut bytes, mut frames) = (BytesMut::new(), Vec::new());
        while self.0.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {}
        while let Some(frame) = peer::split_frame(&mut bytes).unwrap() {
            frames.push(frame);
        }
        frames
    }
}

fn hello(protocol: u32, challenge: usize) -> Hello {
    Hello {
        protocol,
        site: "pier".into(),
        node: 9,
        incarnation: 5,
        challenge: vec![7; challenge].into(),
        rules: peer::RULES,
        ..Hello::default()
    }
}

#[tokio::test]
async fn no_message_of_an_unproved_connection_is_processed() {
    let site = peer(1, secret("s")).await;
    let says: [Message; 2] = [
        Content::Raft(Raft { from: 9, to: 1, term: 100, ..Raft::default() }).into(),
        Content::Forward(Forward { requests: vec![ForwardedRequest::default()] }).into(),
    ];
    let proofs: [Handshake; 4] = [
        Proof::default().into(),
        Proof { macs: vec![vec![0; 32].into()], ..Proof::default() }.into(),
        Proof { macs: vec![vec![0; 32].into(); 9], ..Proof::default() }.into(),
        Proof { token: vec![0xff; 9].into(), ..Proof::default() }.into(),
    ];
    for challenge in [0, 32, 5] {
        for proof in &proofs {
            let mut unproved = Unproved::connect(&site, &hello(1, challenge)).await;
            unproved.send(proof).await;
            for message in &says {
                unproved.send(message).await;
            }
            let frames = unproved.all().await;
            // Its hello, and at most the reason of a refusal; no proof that could be used for
            // guessing.
            assert!(frames.len() <= 2, "{frames:?}");
            if let Some(frame) = frames.get(1) {
                let step = peer::decode::<Handshake>(frame.clone()).unwrap().step;
                assert!(matches!(step, Some(Step::Refused(_))), "{step:?}");
            }
        }
    }
    assert!(site.events.try_recv().is_err(), "the site's thread received something");
}

#[tokio::test]
async fn an_older_version_is_refused_in_its_own_words() {
    let site = peer(1, secret("s")).await;
    let frames = loop {
        let frames = Unproved::connect(&site, &hello(1, 0)).await.all().await;
        if frames.len() > 1 {
            break frames;
        }
    };
    let answer: Hello = peer::decode(frames[0].clone()).unwrap();
    // A node of protocol 1 refuses it: "it speaks protocol 2; this node speaks 1 to 1".
    assert_eq!(answer.protocol, 2);
    let step = peer::decode::<Handshake>(frames[1].clone()).unwrap().step;
    let Some(Step::Refused(Refused { why })) = step else { panic!("{step:?}") };
    assert!(why.contains("older protocol") && why.contains("accept_unproved"), "{why}");
    // Towards a node that requires no proof the hello is as before, and the link works.
    let open = peer(2, PeersConfig::default()).await;
    let mut older = Unproved::connect(&open, &hello(1, 0)).await;
    older.send(&Message::from(Content::Raft(Raft { from: 9, ..Raft::default() }))).await;
    let heard = tokio::task::spawn_blocking(move || open.events.recv()).await.unwrap();
    assert!(matches!(heard, Ok(Event::Message { from: NodeId(9), .. })));
}

/// The hello of a build that knew no failovers in epochs.
#[derive(Clone, PartialEq, prost::Message)]
struct OlderHello {
    #[prost(uint32, tag = "1")]
    protocol: u32,
    #[prost(string, tag = "2")]
    site: String,
    #[prost(uint64, tag = "3")]
    node: u64,
}

#[tokio::test]
async fn a_build_with_other_rules_of_ownership_is_refused() {
    let site = peer(1, PeersConfig::default()).await;
    let older = OlderHello { protocol: 1, site: "pier".into(), node: 9 };
    let mut unproved = Unproved(TcpStream::connect(&site.address).await.unwrap());
    unproved.send(&older).await;
    unproved.send(&Message::from(Content::Raft(Raft { from: 9, ..Raft::default() }))).await;
    assert_eq!(unproved.all().await.len(), 1, "its hello, and nothing else");
    assert!(site.events.try_recv().is_err(), "the site's thread received something");
    // A node that dials such a build gets the reason why there is no link.
    let listens = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listens.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listens.accept().await.unwrap();
        let mut frame = BytesMut::new();
        peer::encode_frame(&older, &mut frame);
        stream.write_all(&frame).await.unwrap();
        let _ = stream.read_buf(&mut frame).await;
    });
    let refused = site.links.dial_any(&at).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("rules 0") && refused.contains("one version"), "{refused}");
}

#[tokio::test]
async fn a_proof_seen_on_one_connection_is_worth_nothing_on_another() {
    let (a, b) = (peer(1, secret("s")).await, peer(2, secret("s")).await);
    // A man in the middle passes a's messages on to b, but as another node.
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = between.local_addr().unwrap().to_string();
    let to = b.address.clone();
    tokio::spawn(async move {
        let (mut from_a, _) = between.accept().await.unwrap();
        let mut to_b = TcpStream::connect(to).await.unwrap();
        let mut bytes = BytesMut::new();
        let first = loop {
            if let Some(frame) = peer::split_frame(&mut bytes).unwrap() {
                break frame;
            }
            from_a.read_buf(&mut bytes).await.unwrap();
        };
        let mut hello: Hello = peer::decode(first).unwrap();
        hello.node = 3;
        let mut frame = BytesMut::new();
        peer::encode_frame(&hello, &mut frame);
        to_b.write_all(&frame).await.unwrap();
        to_b.write_all(&bytes).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut from_a, &mut to_b).await;
    });
    let refused = a.links.dial_any(&at).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("another secret"), "{refused}");
    assert!(b.events.try_recv().is_err());
}

#[tokio::test]
async fn before_the_proof_a_frame_is_short() {
    let site = peer(1, secret("s")).await;
    let mut unproved = Unproved(TcpStream::connect(&site.address).await.unwrap());
    let length = limits::PEER_HELLO_BYTES_MAX as u32 + 1;
    unproved.0.write_all(&length.to_be_bytes()).await.unwrap();
    assert_eq!(unproved.all().await.len(), 1, "it waits for {length} bytes");
}

#[tokio::test]
async fn unproved_connections_are_limited() {
    let site = peer(1, secret("s")).await;
    let here = std::net::IpAddr::from([127, 0, 0, 1]);
    let enter = |_| site.links.0.unproved.enter(here);
    let places: Vec<_> = (0..limits::PEER_LINKS_UNPROVED_PER_ADDRESS_MAX).map(enter).collect();
    assert!(places.iter().all(Option::is_some));
    let mut more = TcpStream::connect(&site.address).await.unwrap();
    assert!(more.read_u8().await.is_err(), "a hello, past the limit");
    drop(places);
    let friend = peer(2, secret("s")).await;
    dial(&friend, &site).await.unwrap();
    assert!(enter(0).is_some(), "a link that is proved takes no place");
}

/// A CA, and certificates for loopback that it signed.
struct Office {
    authority: Authority,
    _folder: tempfile::TempDir,
}

impl Office {
    fn new() -> Office {
        let folder = tempfile::tempdir().unwrap();
        Office { authority: Authority::new(folder.path()), _folder: folder }
    }

    fn issue(&self, name: &str, role: Option<&str>) -> Option<TlsConfig> {
        let Certificates { ca, cert, key } = self.authority.issue(name, role);
        Some(TlsConfig { cert, key, ca: Some(ca) })
    }
}

#[tokio::test]
async fn a_certificate_is_a_nodes_only_if_it_names_the_role() {
    let office = Office::new();
    let nothing = PeersConfig::default;
    let of_pier = |name| office.issue(name, Some("portolan://node/pier"));
    let a = peer_with("pier", 1, nothing(), of_pier("a")).await;
    let b = peer_with("pier", 2, nothing(), of_pier("b")).await;
    dial(&a, &b).await.unwrap();
    let client = peer_with("pier", 3, nothing(), office.issue("client", None)).await;
    let quay = office.issue("quay", Some("portolan://node/quay"));
    let liar = peer_with("pier", 4, nothing(), quay.clone()).await;
    let second = office.issue("second", Some("portolan://node/pier/2"));
    let fifth = peer_with("pier", 5, nothing(), second).await;
    for (dialler, words) in [
        (&client, "does not state that it is a node: it needs portolan://node/pier "),
        (&liar, "the certificate of another: it states portolan://node/quay"),
        (&fifth, "the certificate of another: it states portolan://node/pier/2"),
    ] {
        let refused = dial(dialler, &a).await.unwrap_err();
        assert!(refused.contains("refuses this node") && refused.contains(words), "{refused}");
        let refused = dial(&a, dialler).await.unwrap_err();
        assert!(refused.contains(words), "it looks at whom it dials, too: {refused}");
    }
    dial(&peer_with("quay", 1, nothing(), quay).await, &a).await.unwrap();
}

#[tokio::test]
async fn a_proof_is_bound_to_its_tls_connection() {
    let office = Office::new();
    let of = |name| office.issue(name, None);
    let a = peer_with("pier", 1, secret("s"), of("a")).await;
    let b = peer_with("pier", 2, secret("s"), of("b")).await;
    dial(&a, &b).await.unwrap();
    let c = peer_with("pier", 3, secret("s"), of("c")).await;
    // A client with a certificate of the same CA sits between them and passes everything on
    // unchanged.
    let tls = PeerTls::load(&of("client").unwrap()).unwrap();
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = between.local_addr().unwrap().to_string();
    let to = c.address.clone();
    tokio::spawn(async move {
        let (from_a, _) = between.accept().await.unwrap();
        let mut from_a = tokio_rustls::TlsAcceptor::from(tls.accept).accept(from_a).await.unwrap();
        let to_c = TcpStream::connect(&to).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(tls.connect);
        let mut to_c = connector.connect(peer_name(&to).unwrap(), to_c).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut from_a, &mut to_c).await;
    });
    let refused = a.links.dial_any(&at).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("another secret"), "{refused}");
    assert!(c.events.try_recv().is_err());
}
