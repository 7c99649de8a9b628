//! A node with a Redis port, and a client that shows replies as they came.

use bytes::BytesMut;
use front::redis::{Options, RedisFront};
use model::NodeId;
use server::Node;
use server::config::{Config, Ports};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tempfile::TempDir;
use wire::resp::{Reply, ReplyParser, encode_request};

/// No reply takes longer, however slow the machine.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A site of one node.
pub(crate) struct Site {
    front: Option<RedisFront>,
    node: Option<Node>,
    _data: TempDir,
}

impl Site {
    pub(crate) fn start() -> Site {
        Site::with(|_| {}, |_| {})
    }

    /// Without waiting until it serves: for a port with TLS, for example.
    pub(crate) fn not_waited_for(configure: impl FnOnce(&mut Config)) -> Site {
        Site::begin(configure, |_| {})
    }

    pub(crate) fn with(
        configure: impl FnOnce(&mut Config),
        options: impl FnOnce(&mut Options),
    ) -> Site {
        let site = Site::begin(configure, options);
        site.wait_until_ready();
        site
    }

    fn begin(configure: impl FnOnce(&mut Config), options: impl FnOnce(&mut Options)) -> Site {
        let data = tempfile::tempdir().unwrap();
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let ports = Ports { peer: any_port, redis: Some(any_port), ..Ports::default() };
        let mut config =
            Config { data: data.path().join("n1"), node: NodeId(1), ports, ..Config::default() };
        configure(&mut config);
        let node = Node::start(&config).unwrap();
        let mut front_options = Options::of(&config).unwrap();
        options(&mut front_options);
        let front = RedisFront::open(&node, front_options).unwrap();
        Site { front: Some(front), node: Some(node), _data: data }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.front.as_ref().unwrap().address()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    fn wait_until_ready(&self) {
        let mut client = self.connect();
        while client.raw("DBSIZE").starts_with("-CLUSTERDOWN") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.front.take());
        if let Some(node) = self.node.take() {
            node.stop();
        }
    }
}

/// Plain or encrypted bytes.
pub(crate) trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A connection.
pub(crate) struct Client {
    stream: Box<dyn Stream>,
    received: BytesMut,
    parser: ReplyParser,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        Client::over(tcp(address))
    }

    pub(crate) fn over(stream: impl Stream + 'static) -> Client {
        let stream = Box::new(stream);
        Client { stream, received: BytesMut::new(), parser: ReplyParser::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// A command, and its one reply.
    pub(crate) fn ask(&mut self, args: &[&str]) -> Reply {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        let mut request = BytesMut::new();
        encode_request(&mut request, &args);
        self.send(&request);
        self.reply().0
    }

    /// An inline command's reply as it came, line breaks shown as spaces.
    pub(crate) fn raw(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.reply().1
    }

    /// The same, or what there was when the connection was closed.
    pub(crate) fn raw_or_closed(&mut self, line: &str) -> String {
        let _ = self.stream.write_all(format!("{line}\r\n").as_bytes());
        match self.read() {
            0 => String::new(),
            _ => self.reply().1,
        }
    }

    /// The next reply, read and as it came.
    pub(crate) fn reply(&mut self) -> (Reply, String) {
        loop {
            let before = self.received.clone();
            if let Some(reply) = self.parser.next(&mut self.received).unwrap() {
                let raw = &before[..before.len() - self.received.len()];
                let lines = raw.strip_suffix(b"\r\n").unwrap_or(raw).split(|b| *b == b'\n');
                let lines: Vec<String> =
                    lines.map(|line| shown(line.strip_suffix(b"\r").unwrap_or(line))).collect();
                return (reply, lines.join(" "));
            }
            assert!(self.read() > 0, "the connection was closed");
        }
    }

    /// Reads what there is; 0: the other side has closed.
    pub(crate) fn read(&mut self) -> usize {
        let mut bytes = [0; 64 << 10];
        let read = self.stream.read(&mut bytes).unwrap_or(0);
        self.received.extend_from_slice(&bytes[..read]);
        read
    }

    /// Everything received and not yet taken as a reply.
    pub(crate) fn received(&self) -> &[u8] {
        &self.received
    }
}

/// A connection that waits for replies, but not for ever.
pub(crate) fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Bytes as text; those that are none escaped.
fn shown(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b'\'' | b'"' => (*byte as char).to_string(),
        byte => byte.escape_ascii().to_string(),
    };
    bytes.iter().map(shown).collect()
}
