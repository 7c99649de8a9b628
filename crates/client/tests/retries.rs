//! The client's reaction to failed calls: what it repeats, at which node, under which request id,
//! and which error it returns in the end. The nodes are scripted, so that each failure happens
//! exactly when a test needs it; the sockets between are real.

use client::{
    Batch, BatchOutcome, Client, Error, Options, Roaming, RoamingError, ScanRange, Session, Sites,
    v1,
};
use model::{Bytes, KeyspaceSpec, Revision};
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::Server;
use tonic::{Request, Response, Status, async_trait};
use wire::grpc::{Lack, Reason, SESSION_KEY, TRIED_KEY};

/// A scripted node's reaction to a call.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Applies it and answers.
    Do,
    /// Refuses it with this reason.
    Refuse(Reason),
    /// Refuses it, as its session lacks this.
    Lack(Lack),
    /// Applies it, and the connection is cut before the answer.
    LoseAnswer,
    /// Answers with a stream that goes on; for other calls as `Do`.
    Stream,
    /// Answers with a stream that stalls after its first message; for other calls as `Do`.
    Stall,
    /// Neither applies it nor answers.
    Hang,
}

/// The writes that all nodes of the scripted site have applied: each request id once, as in a site.
#[derive(Clone, Default)]
struct Done(Arc<Mutex<Vec<v1::RequestId>>>);

impl Done {
    /// The write's version, the same for a repetition.
    fn put(&self, id: v1::RequestId) -> u64 {
        let mut done = self.0.lock().unwrap();
        let place = done.iter().position(|one| *one == id).unwrap_or_else(|| {
            done.push(id);
            done.len() - 1
        });
        place as u64 + 1
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A node that follows its script; the last step applies to all further calls.
#[derive(Clone)]
struct Node {
    address: String,
    done: Done,
    script: Arc<Mutex<VecDeque<Step>>>,
    /// The ids of the received writes, in order.
    asked: Arc<Mutex<Vec<v1::RequestId>>>,
    /// Of the received puts and batches: the site that they name as the first one tried.
    tried: Arc<Mutex<Vec<Option<String>>>>,
    /// The start positions of the received stream requests.
    begins: Arc<Mutex<Vec<String>>>,
    /// A second handle to each connection, to cut it.
    connections: Arc<Mutex<Vec<std::net::TcpStream>>>,
}

impl Node {
    async fn start(done: &Done, script: &[Step]) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node = Node {
            address: listener.local_addr().unwrap().to_string(),
            done: done.clone(),
            script: Arc::new(Mutex::new(script.iter().copied().collect())),
            asked: Arc::default(),
            tried: Arc::default(),
            begins: Arc::default(),
            connections: Arc::default(),
        };
        let (sender, incoming) = tokio::sync::mpsc::channel(16);
        let connections = node.connections.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let socket = socket.into_std().unwrap();
                connections.lock().unwrap().push(socket.try_clone().unwrap());
                let _ = sender.send(TcpStream::from_std(socket)).await;
            }
        });
        let service = v1::kv_server::KvServer::new(node.clone());
        let serving = Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(ReceiverStream::new(incoming)));
        node
    }

    fn note_tried(&self, metadata: &MetadataMap) {
        let tried = metadata.get(TRIED_KEY).map(|name| name.to_str().unwrap().to_owned());
        self.tried.lock().unwrap().push(tried);
    }

    fn tried(&self) -> Vec<Option<String>> {
        self.tried.lock().unwrap().clone()
    }

    fn asked(&self) -> Vec<v1::RequestId> {
        self.asked.lock().unwrap().clone()
    }

    fn next_step(&self) -> Step {
        let mut script = self.script.lock().unwrap();
        if script.len() > 1 { script.pop_front().unwrap() } else { script[0] }
    }

    fn cut(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            // The connection may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// The next step for a write (its version), or for a read, which has no id.
    async fn play(&self, id: Option<v1::RequestId>) -> Result<u64, Status> {
        self.asked.lock().unwrap().extend(id);
        match self.next_step() {
            Step::Do | Step::Stream | Step::Stall => Ok(id.map_or(0, |id| self.done.put(id))),
            Step::Refuse(reason) => Err(reason.status(format!("scripted: {reason:?}"))),
            Step::Lack(lack) => Err(lack.mark(Reason::Refused.status("scripted"))),
            Step::LoseAnswer => {
                id.map(|id| self.done.put(id));
                self.cut();
                std::future::pending().await
            }
            Step::Hang => std::future::pending().await,
        }
    }

    /// A stream with `rest`, or with `first` and `rest` (`Stream`); or it breaks after `first` where
    /// the script loses the answer, or stalls there (`Stall`).
    fn stream<T: Send + 'static>(&self, begin: String, first: T, rest: T) -> Streamed<T> {
        self.begins.lock().unwrap().push(begin);
        let step = self.next_step();
        let items = match step {
            Step::Stall => vec![Ok(first)],
            Step::LoseAnswer => vec![Ok(first), Err(Status::unavailable("connection reset"))],
            Step::Stream => vec![Ok(first), Ok(rest)],
            Step::Refuse(reason) => vec![Err(reason.status("scripted"))],
            Step::Lack(lack) => vec![Err(lack.mark(Reason::Refused.status("scripted")))],
            Step::Do | Step::Hang => vec![Ok(rest)],
        };
        let items = tokio_stream::iter(items);
        let items: Stream<T> = match step {
            Step::Stall => Box::pin(items.chain(tokio_stream::pending())),
            _ => Box::pin(items),
        };
        Ok(Response::new(items))
    }
}

/// The token of a session in which this is the next thing seen: all of them, in order.
fn token_after(request: &MetadataMap, seen: &str) -> Bytes {
    let token = request.get_bin(SESSION_KEY).map(|token| token.to_bytes().unwrap());
    let token = String::from_utf8(token.unwrap_or_default().into()).unwrap();
    format!("{token} {seen}").into()
}

type Stream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;
type Streamed<T> = Result<Response<Stream<T>>, Status>;

#[async_trait]
impl v1::kv_server::Kv for Node {
    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        self.play(None).await?;
        Ok(Response::new(v1::GetResponse::default()))
    }

    async fn put(
        &self,
        request: Request<v1::PutRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        assert!(request.metadata().contains_key("grpc-timeout"), "every call has a deadline");
        self.note_tried(request.metadata());
        let token = token_after(request.metadata(), "put");
        let version = self.play(request.into_inner().request).await?;
        let mut answer = Response::new(v1::PutResponse { applied: true, version, old: None });
        answer.metadata_mut().insert_bin(SESSION_KEY, MetadataValue::from_bytes(&token));
        Ok(answer)
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        self.play(request.into_inner().request).await?;
        Ok(Response::new(v1::DeleteResponse { deleted: true }))
    }

    async fn compare_and_set(
        &self,
        request: Request<v1::CompareAndSetRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        let version = self.play(request.into_inner().request).await?;
        Ok(Response::new(v1::PutResponse { applied: true, version, old: None }))
    }

    async fn batch(
        &self,
        request: Request<v1::BatchRequest>,
    ) -> Result<Response<v1::BatchResponse>, Status> {
        self.note_tried(request.metadata());
        self.play(request.into_inner().request).await?;
        Ok(Response::new(v1::BatchResponse { applied: true, results: vec![] }))
    }

    type ScanStream = Stream<v1::ScanResponse>;

    async fn scan(&self, request: Request<v1::ScanRequest>) -> Streamed<v1::ScanResponse> {
        // The pages are read ahead: their tokens are of what the session had seen at the opening.
        let metadata = request.metadata().clone();
        let from = String::from_utf8(request.into_inner().from.into()).unwrap();
        let page = |key: &'static str, next: &'static str| {
            let item = v1::Item { key: key.into(), ..v1::Item::default() };
            let session = token_after(&metadata, key);
            v1::ScanResponse { items: vec![item], next: next.into(), session }
        };
        self.stream(from, page("a", "b"), page("b", ""))
    }

    type WatchStream = Stream<v1::WatchResponse>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Streamed<v1::WatchResponse> {
        let after = format!("{:?}", request.into_inner().after_revision);
        let news = |progress| v1::WatchResponse { changes: vec![], progress };
        self.stream(after, news(5), news(9))
    }
}

/// Options for calls that must be answered, however slow the machine is.
fn patient() -> Options {
    let limit = Duration::from_secs(60);
    Options { deadline: limit, attempt_deadline: limit, ..Options::default() }
}

/// Options for calls that are never answered.
fn impatient() -> Options {
    Options { deadline: Duration::from_secs(1), ..Options::default() }
}

fn client(nodes: &[&Node], options: Options) -> Client {
    Client::connect(nodes.iter().map(|node| &node.address), options).unwrap()
}

/// Sends a server's greeting (SETTINGS, which may be empty) and reads up to the head of an HTTP/2
/// request: behind the preface, the first frame of that type.
fn receive_a_request(caller: &mut std::net::TcpStream) -> std::io::Result<()> {
    const HEADERS: u8 = 1;
    caller.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])?;
    caller.read_exact(&mut [0; 24])?;
    loop {
        let mut head = [0; 9];
        caller.read_exact(&mut head)?;
        let [high, middle, low, kind, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        caller.read_exact(&mut vec![0; length as usize])?;
        if kind == HEADERS {
            return Ok(());
        }
    }
}

/// Checks that all attempts have one id; returns their number.
#[track_caller]
fn one_id(asked: &[v1::RequestId]) -> usize {
    assert!(
        asked.windows(2).all(|two| two[0] == two[1]),
        "an attempt had an id of its own: {asked:?}"
    );
    asked.len()
}

#[tokio::test]
async fn a_node_that_is_not_there_is_passed_over() {
    // Bound and not listening: a connection is refused, and no other process can take the port.
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let done = Done::default();
    let node = Node::start(&done, &[Step::Do]).await;
    let addresses = [unused.local_addr().unwrap().to_string(), node.address.clone()];
    let keys = Client::connect(&addresses, patient()).unwrap().keyspace("");
    assert_eq!(keys.put("a", "1").await, Ok(Revision(1)));
    assert_eq!(one_id(&node.asked()), 1);

    let alone = Client::connect(&addresses[..1], impatient()).unwrap().keyspace("");
    let nothing_done = alone.put("a", "1").await.unwrap_err();
    assert!(matches!(nothing_done, Error::Unavailable(_)), "{nothing_done:?}");
}

/// A port that sends this greeting, unlike a node, and then nothing more.
fn wrong_port(greeting: &'static [u8], hangs_up: bool) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        while let Ok((mut caller, _)) = listener.accept() {
            // Reads the client's preface and no more: a node that reads a request may apply it.
            caller.read_exact(&mut [0; 24]).unwrap();
            caller.write_all(greeting).unwrap();
            if hangs_up {
                let _ = caller.shutdown(Shutdown::Write);
            }
            silent.push(caller);
        }
    });
    address
}

#[tokio::test]
async fn a_write_to_a_wrong_port_was_not_sent() {
    let ports: [(&[u8], bool, &str); 6] = [
        (b"-ERR unknown command 'PRI'\r\n", false, "answers as a Redis port does"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", true, "answers as an HTTP port does"),
        (&[0x15, 3, 3, 0, 2, 2, 50], true, "speaks TLS"),
        (b"+O", true, "answers as a Redis port does"),
        (b"", true, "closes the connection without an answer"),
        (b"", false, "nothing"),
    ];
    for (greeting, hangs_up, says) in ports {
        let address = wrong_port(greeting, hangs_up);
        let client = Client::connect([&address], impatient()).unwrap();
        let error = client.keyspace("").put("a", "1").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{greeting:?}: {error:?}");
        // With the shortest deadline the error may lack a reason.
        let reported = error.to_string();
        assert!(reported.contains(&address), "{reported}");
        assert!(says == "nothing" || reported.contains(says), "{says:?} is not in {reported}");
        let cars = KeyspaceSpec::linearizable_site("cars", "car:");
        let error = client.cluster().create_keyspace(&cars).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{greeting:?}: {error:?}");
        assert!(client.trying().is_none(), "no call is under way");
    }
}

#[tokio::test]
async fn a_port_that_is_no_node_is_given_up_at_once_if_there_is_no_other() {
    let redis = wrong_port(b"-ERR unknown command\r\n", false);
    let forever = Duration::from_secs(24 * 60 * 60);
    let options = Options { deadline: forever, ..Options::default() };
    let error = Client::connect([&redis, &redis], options.clone()).unwrap();
    let error = error.keyspace("").get("a").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let node = Node::start(&Done::default(), &[Step::Do]).await;
    let keys = Client::connect([&redis, &node.address], patient()).unwrap().keyspace("");
    assert_eq!(keys.put("a", "1").await, Ok(Revision(1)));
}

#[tokio::test]
async fn a_waiting_call_shows_what_it_waits_for() {
    let unused = TcpSocket::new_v4().unwrap();
    unused.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = unused.local_addr().unwrap().to_string();
    let client = Client::connect([&address], patient()).unwrap();
    assert!(client.trying().is_none());
    let asking = client.clone();
    let asked = tokio::spawn(async move { asking.keyspace("").get("a").await });
    let trying = loop {
        match client.trying() {
            Some(trying) if !trying.failed.is_empty() => break trying,
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(trying.node, address);
    assert_eq!(trying.failed, format!("{address}: nothing listens there"));
    asked.abort();
    assert!(asked.await.is_err());
    assert!(client.trying().is_none(), "the call is over");
}

#[tokio::test]
async fn what_was_not_done_is_asked_for_again() {
    for reason in [Reason::NoLeader, Reason::NotServing, Reason::Overloaded] {
        let done = Done::default();
        let refuse = Step::Refuse(reason);
        let node = Node::start(&done, &[refuse, refuse, Step::Do]).await;
        let keys = client(&[&node], patient()).keyspace("");
        assert_eq!(keys.put("a", "1").await, Ok(Revision(1)), "{reason:?}");
        assert_eq!((one_id(&node.asked()), done.count()), (3, 1), "{reason:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_elsewhere_and_the_write_done_once() {
    let done = Done::default();
    let first = Node::start(&done, &[Step::LoseAnswer]).await;
    let second = Node::start(&done, &[Step::Do]).await;
    let keys = client(&[&first, &second], patient()).keyspace("");
    assert_eq!(keys.put("a", "1").await, Ok(Revision(1)), "the answer of the first time");
    assert_eq!(one_id(&[first.asked(), second.asked()].concat()), 2);
    assert_eq!(done.count(), 1);

    assert!(keys.delete("a").await.unwrap());
    assert_eq!((first.asked().len(), second.asked().len()), (1, 2), "it stays where it was served");
    assert!(keys.compare_and_set("a", Revision(0), "2").await.unwrap().applied);
    keys.batch(client::Batch::new().delete("a")).await.unwrap();
    assert_eq!(done.count(), 4);
}

#[tokio::test]
async fn a_node_that_hangs_costs_one_attempt() {
    let done = Done::default();
    let first = Node::start(&done, &[Step::Hang]).await;
    let second = Node::start(&done, &[Step::Do]).await;
    let options = Options { attempt_deadline: Duration::from_secs(1), ..patient() };
    let keys = client(&[&first, &second], options).keyspace("");
    assert_eq!(keys.put("a", "1").await, Ok(Revision(1)));
    assert!(!first.asked().is_empty(), "the first node was asked first");
    one_id(&[first.asked(), second.asked()].concat());
    assert_eq!(done.count(), 1);
    assert_eq!(keys.get("a").await, Ok(None));
}

#[tokio::test]
async fn a_site_that_goes_on_refusing_is_given_up_at_the_deadline() {
    let done = Done::default();
    let nodes = [
        Node::start(&done, &[Step::Refuse(Reason::NoLeader)]).await,
        Node::start(&done, &[Step::Refuse(Reason::NotServing)]).await,
    ];
    let keys = client(&[&nodes[0], &nodes[1]], impatient()).keyspace("");
    let error = keys.put("a", "1").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("scripted: No"), "it states why: {error}");
    for node in &nodes {
        assert!(one_id(&node.asked()) >= 1, "both were asked");
    }
    assert_eq!(done.count(), 0);
}

#[tokio::test]
async fn what_may_have_been_done_is_unknown() {
    let lost = Step::LoseAnswer;
    for (script, why) in [
        (&[Step::Hang][..], "there was never an answer"),
        (&[lost], "each answer was lost"),
        (&[lost, Step::Refuse(Reason::NoLeader)], "a later try was not done, the first perhaps"),
        (&[lost, Step::Refuse(Reason::Denied)], "the right may have gone meanwhile"),
        (&[lost, Step::Refuse(Reason::DiskFull)], "so may the room on the disk"),
        (&[lost, Step::Lack(Lack::Lost)], "a session is judged before the write's id"),
        (&[Step::Refuse(Reason::UnknownOutcome)], "the site itself does not know"),
        (&[Step::Refuse(Reason::RequestForgotten)], "the site knew once"),
    ] {
        let node = Node::start(&Done::default(), script).await;
        let error = client(&[&node], impatient()).keyspace("").put("a", "1").await.unwrap_err();
        assert!(matches!(error, Error::Unknown(_)), "{why}: {error:?}");
        assert!(error.to_string().contains("may or may not have been applied"), "{error}");
        one_id(&node.asked());
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_resolved_by_a_repetition() {
    for doubt in [Step::LoseAnswer, Step::Refuse(Reason::UnknownOutcome)] {
        let done = Done::default();
        let node = Node::start(&done, &[doubt, Step::Do]).await;
        let keys = client(&[&node], patient()).keyspace("");
        assert_eq!(keys.put("a", "1").await, Ok(Revision(1)), "{doubt:?}");
        assert_eq!((one_id(&node.asked()), done.count()), (2, 1), "{doubt:?}");
    }
    // The site would recognize the id of an applied write, so its refusal is certain.
    let script = [Step::LoseAnswer, Step::Refuse(Reason::Refused)];
    let node = Node::start(&Done::default(), &script).await;
    let error = client(&[&node], patient()).keyspace("").put("a", "1").await.unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Reason::Refused, .. }), "{error:?}");
}

#[tokio::test]
async fn a_refusal_is_not_asked_for_again() {
    for reason in [
        Reason::Refused,
        Reason::NoKeyspace,
        Reason::Invalid,
        Reason::Unauthenticated,
        Reason::Denied,
        Reason::DiskFull,
        Reason::RequestForgotten,
    ] {
        let node = Node::start(&Done::default(), &[Step::Refuse(reason)]).await;
        let error = client(&[&node], patient()).keyspace("").put("a", "1").await.unwrap_err();
        let right = match reason {
            Reason::Invalid => matches!(error, Error::Invalid(_)),
            Reason::Unauthenticated => matches!(error, Error::Unauthenticated(_)),
            Reason::Denied => matches!(error, Error::Denied(_)),
            Reason::DiskFull => matches!(error, Error::Exhausted(_)),
            Reason::RequestForgotten => matches!(error, Error::Unknown(_)),
            _ => matches!(error, Error::Refused { reason: given, .. } if given == reason),
        };
        assert!(right, "{reason:?} came back as {error:?}");
        assert!(error.to_string().contains(&format!("scripted: {reason:?}")), "{error}");
        assert_eq!(node.asked().len(), 1, "{reason:?}");
    }
}

#[tokio::test]
async fn a_read_leaves_nothing_in_doubt() {
    for script in [&[Step::Hang][..], &[Step::LoseAnswer]] {
        let node = Node::start(&Done::default(), script).await;
        let error = client(&[&node], impatient()).keyspace("").get("a").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{script:?}: {error:?}");
    }
    let script = [Step::LoseAnswer, Step::Refuse(Reason::Denied)];
    let node = Node::start(&Done::default(), &script).await;
    let error = client(&[&node], patient()).keyspace("").get("a").await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error:?}");
}

#[tokio::test]
async fn a_recovery_is_asked_for_again_and_is_unknown_without_an_answer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    std::thread::spawn(move || {
        // A node that closes every connection after a request.
        while let Ok((mut caller, _)) = listener.accept() {
            receive_a_request(&mut caller).unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let deployment = Client::connect([&address, &address], impatient()).unwrap().deployment();
    let error = deployment.recover_registry(&[], true).await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert!(calls.load(Ordering::Relaxed) > 1);
}

#[tokio::test]
async fn every_write_has_its_own_id_and_acknowledges_earlier_ones() {
    let node = Node::start(&Done::default(), &[Step::Do]).await;
    let (one, other) = (client(&[&node], patient()), client(&[&node], patient()));
    one.keyspace("").put("a", "1").await.unwrap();
    one.clone().keyspace("").put("a", "1").await.unwrap();
    other.keyspace("").put("a", "1").await.unwrap();
    let asked = node.asked();
    let numbers: Vec<_> = asked.iter().map(|id| (id.sequence, id.acknowledged_below)).collect();
    assert_eq!(numbers, [(1, 1), (2, 2), (1, 1)]);
    assert!(asked[0].client == asked[1].client && asked[1].client != asked[2].client);
}

#[tokio::test]
async fn a_broken_stream_goes_on_where_it_was() {
    let done = Done::default();
    let first = Node::start(&done, &[Step::LoseAnswer, Step::Do]).await;
    let keys = client(&[&first], patient()).keyspace("");
    let mut scan = keys.scan(ScanRange::default());
    let mut found = Vec::new();
    while let Some(item) = scan.next().await.unwrap() {
        found.push(item.key);
    }
    assert_eq!(found, ["a", "b"], "every key once");
    assert_eq!(*first.begins.lock().unwrap(), ["", "b"]);

    let lost = Step::LoseAnswer;
    let forgotten = Step::Refuse(Reason::ChangesTrimmed);
    let second = Node::start(&done, &[lost, Step::Do, forgotten]).await;
    let mut watch = client(&[&second], patient()).keyspace("").watch("").await.unwrap();
    assert_eq!(watch.next().await.unwrap().progress, Revision(9));
    assert_eq!(*second.begins.lock().unwrap(), ["None", "Some(5)"]);
    let error = watch.next().await.unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Reason::ChangesTrimmed, .. }), "{error:?}");
    assert_eq!(*second.begins.lock().unwrap(), ["None", "Some(5)", "Some(9)"]);
}

#[tokio::test]
async fn a_node_whose_streams_fail_is_left() {
    let done = Done::default();
    for reason in [Reason::NotServing, Reason::Overloaded] {
        let away = Node::start(&done, &[Step::Refuse(reason)]).await;
        let alone = client(&[&away], impatient()).keyspace("");
        let given_up = alone.scan(ScanRange::default()).next().await.unwrap_err();
        assert!(matches!(given_up, Error::Unavailable(_)), "{given_up:?}");
        let given_up = alone.watch("").await.map(drop).unwrap_err();
        assert!(matches!(given_up, Error::Unavailable(_)), "{given_up:?}");
        let asked = away.begins.lock().unwrap().len();
        assert!(asked < 100, "there are pauses: {asked}");

        let serves = Node::start(&done, &[Step::Do]).await;
        let scan = || client(&[&away, &serves], patient()).keyspace("").scan(Default::default());
        assert_eq!(scan().next().await.unwrap().unwrap().key, "b");
        let keys = client(&[&away, &serves], patient()).keyspace("");
        assert_eq!(keys.watch("").await.unwrap().next().await.unwrap().progress, Revision(9));
    }

    // A stream that breaks in the middle goes on at another node.
    let breaks = Node::start(&done, &[Step::LoseAnswer]).await;
    let serves = Node::start(&done, &[Step::Do]).await;
    let mut scan = client(&[&breaks, &serves], patient()).keyspace("").scan(Default::default());
    assert_eq!(scan.next().await.unwrap().unwrap().key, "a");
    assert_eq!(scan.next().await.unwrap().unwrap().key, "b");
    assert_eq!((breaks.begins.lock().unwrap().len(), serves.begins.lock().unwrap().len()), (1, 1));
}

#[tokio::test]
async fn a_page_that_was_read_ahead_does_not_take_the_session_back() {
    let node = Node::start(&Done::default(), &[Step::Stream]).await;
    let session = Session::begin();
    let keys = client(&[&node], patient()).keyspace("").in_session(&session);
    let mut scan = keys.scan(ScanRange::default());
    assert_eq!(scan.next().await.unwrap().unwrap().key, "a");
    assert_eq!(scan.next().await.unwrap().unwrap().key, "b");
    assert_eq!(*node.begins.lock().unwrap(), [""], "nothing was seen in between");

    node.script.lock().unwrap().push_back(Step::Do);
    let session = Session::begin();
    let keys = client(&[&node], patient()).keyspace("").in_session(&session);
    let mut scan = keys.scan(ScanRange::default());
    assert_eq!(scan.next().await.unwrap().unwrap().key, "a");
    keys.put("car:7", "Pier 39").await.unwrap();
    assert_eq!(scan.next().await.unwrap().unwrap().key, "b");
    assert_eq!(session.token().await, " a put b");
    assert_eq!(*node.begins.lock().unwrap(), ["", "", "b"]);
}

#[tokio::test]
async fn a_scan_that_stalls_goes_on_elsewhere_and_gives_its_turn_back() {
    let done = Done::default();
    let stalls = Node::start(&done, &[Step::Stall]).await;
    let serves = Node::start(&done, &[Step::Do]).await;
    let session = Session::begin();
    let options = Options { attempt_deadline: Duration::from_secs(1), ..patient() };
    let keys = client(&[&stalls, &serves], options).keyspace("").in_session(&session);
    let mut scan = keys.scan(ScanRange::default());
    assert_eq!(scan.next().await.unwrap().unwrap().key, "a");
    assert_eq!(scan.next().await.unwrap().unwrap().key, "b");
    assert_eq!(*serves.begins.lock().unwrap(), ["b"]);
    assert_eq!(keys.put("a", "1").await, Ok(Revision(1)));
}

/// Two sites of one node each.
fn two_sites(a: &Node, b: &Node) -> Sites {
    let limit = Duration::from_secs(60);
    let roaming = Roaming {
        nearer: false,
        deadline: limit,
        attempt_deadline: limit,
        settle: limit,
        elsewhere: true,
        ..Roaming::default()
    };
    let addresses = [("a", vec![&a.address]), ("b", vec![&b.address])];
    Sites::connect(addresses, &Options::default(), roaming).unwrap()
}

#[tokio::test]
async fn a_put_without_an_answer_goes_on_at_another_site_as_one_write() {
    let done = Done::default();
    let away = Step::Refuse(Reason::NotServing);
    let a = Node::start(&done, &[Step::LoseAnswer, away]).await;
    let b = Node::start(&done, &[away, Step::Refuse(Reason::Session), Step::Do]).await;
    let session = two_sites(&a, &b).session();
    assert_eq!(session.keyspace("cars").put("car:1", "1").await, Ok(Revision(1)));
    let both = [a.asked(), b.asked()].concat();
    assert!(one_id(&both) >= 4, "{both:?}");
    let tried = [a.tried(), b.tried()].concat();
    assert!(tried.iter().all(|name| name.as_deref() == Some("a")), "{tried:?}");
    assert_eq!((done.count(), session.site().await.as_deref()), (1, Some("b")));
}

#[tokio::test]
async fn a_batch_that_only_puts_goes_on_at_another_site_and_no_other_one() {
    let done = Done::default();
    let away = Step::Refuse(Reason::NotServing);
    let a = Node::start(&done, &[Step::LoseAnswer, away]).await;
    let b = Node::start(&done, &[away, Step::Do]).await;
    let puts = || Batch::new().put("car:1", "1").put("car:2", "2");
    let cars = two_sites(&a, &b).session().keyspace("cars");
    assert_eq!(cars.batch(puts()).await, Ok(BatchOutcome::Applied(Vec::new())));
    one_id(&[a.asked(), b.asked()].concat());
    let tried = [a.tried(), b.tried()].concat();
    assert!(tried.iter().all(|name| name.as_deref() == Some("a")), "{tried:?}");
    assert_eq!(done.count(), 1);

    let others = [
        puts().only_if("car:1", Revision(7)),
        puts().get("car:1"),
        puts().delete("car:1"),
        puts().put_expiring("car:1", "1", model::Expiry::AfterMs(9)),
        puts().put("k".repeat(5_000), "1"),
    ];
    for other in others {
        let lost = Node::start(&done, &[Step::LoseAnswer, Step::Refuse(Reason::Denied)]).await;
        let cars = two_sites(&lost, &b).session().keyspace("cars");
        let unknown = cars.batch(other.clone()).await;
        assert!(matches!(unknown, Err(RoamingError::Unknown(_))), "{other:?}: {unknown:?}");
        assert!(lost.tried().iter().all(Option::is_none), "{other:?}");
    }
}

#[tokio::test]
async fn an_attempt_that_was_not_made_leaves_the_next_site_the_first_one() {
    let done = Done::default();
    let a = Node::start(&done, &[Step::Refuse(Reason::NoLeader)]).await;
    let b = Node::start(&done, &[Step::Do]).await;
    let session = two_sites(&a, &b).session();
    assert_eq!(session.keyspace("cars").put("car:1", "1").await, Ok(Revision(1)));
    assert_eq!(b.tried(), [Some("b".to_owned())]);
}

#[tokio::test]
async fn a_put_that_may_not_go_elsewhere_is_one_like_any_other() {
    let done = Done::default();
    let a = Node::start(&done, &[Step::Refuse(Reason::Invalid), Step::Do]).await;
    let b = Node::start(&done, &[Step::Do]).await;
    let cars = two_sites(&a, &b).session().keyspace("cars");
    assert_eq!(cars.put("car:1", "1").await, Ok(Revision(1)));
    assert_eq!(cars.put("car:1", "2").await, Ok(Revision(2)));
    assert_eq!(a.tried(), [Some("a".to_owned()), None, None], "the keyspace is remembered");

    // Of another write no other site has a record.
    let lost = Node::start(&done, &[Step::LoseAnswer, Step::Refuse(Reason::Denied)]).await;
    let cars = two_sites(&lost, &b).session().keyspace("cars");
    let unknown = cars.delete("car:1").await;
    assert!(matches!(unknown, Err(RoamingError::Unknown(_))), "{unknown:?}");
    assert!(b.asked().is_empty(), "it was made nowhere else");
}
