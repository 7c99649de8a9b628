//! A writer's record of its own keys, and checks of the store's answers against it.
//!
//! Each writer has keys that no other client uses: a counter that it increments, and a pair of
//! values that it always writes together. A write without an answer is *unknown*: it may have taken
//! effect, may never, or may still. From that follow the allowed answers:
//!
//! - the counter lies between the acknowledged increments and those plus the unknown ones, so that
//!   no acknowledged increment is lost and none is applied twice; and every answer is larger than
//!   the one before;
//! - the pair is equal in both halves and complete, and it is the last acknowledged write or an
//!   unknown one, so that no torn and no stale value is returned.
//!
//! The rules are sound for retries inside the server and for writes that arrive late: a violation
//! is always a fault. They would miss an unknown write that is applied twice.
//!
//! With [`Ledger::recording`] a writer keeps a history as well: each half of the pair is a key of
//! its own there, and its value is the pair's number. Judges that are independent of these rules
//! check whether the whole history is consistent.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::history::History;
use crate::resp::{Client, Error, Value};

/// After a failed call a writer pauses this long, and goes to the next node.
const PAUSE: Duration = Duration::from_millis(20);

/// One writer's account.
#[derive(Debug)]
pub struct Ledger {
    writer: usize,
    /// Acknowledged increments.
    pub counted: u64,
    /// Increments with an unknown outcome.
    pub counted_unknown: u64,
    last_count: u64,
    /// The number of the last pair written, whatever its outcome.
    pair: u64,
    pair_acknowledged: u64,
    pair_unknown: BTreeSet<u64>,
    /// Start and end of each acknowledged write.
    pub acknowledged: Vec<(Instant, Instant)>,
    /// The history of all operations, if it is recorded.
    pub history: Option<History>,
}

/// Whether a call had an answer; the reason when it had none.
type Answered<T> = Result<T, Error>;

impl Ledger {
    /// An empty account for writer number `writer`; its keys must not exist yet.
    #[must_use]
    pub fn new(writer: usize) -> Self {
        Self {
            writer,
            counted: 0,
            counted_unknown: 0,
            last_count: 0,
            pair: 0,
            pair_acknowledged: 0,
            pair_unknown: BTreeSet::new(),
            acknowledged: Vec::new(),
            history: None,
        }
    }

    /// The same, which keeps a history too.
    #[must_use]
    pub fn recording(writer: usize) -> Self {
        Self { history: Some(History::new(format!("w{writer}"))), ..Self::new(writer) }
    }

    fn key(&self, name: &str) -> String {
        // One tag for all of a writer's keys, so that in a global keyspace they share a slot.
        format!("ledger:{{{}}}:{name}", self.writer)
    }

    /// Increments, writes a pair and reads it back. The inner error is a call without an answer,
    /// after which the caller should drop the connection; the outer one is a violation.
    pub fn step(&mut self, client: &mut Client) -> Result<Answered<()>, String> {
        if let Err(error) = self.increment(client)? {
            return Ok(Err(error));
        }
        if let Err(error) = self.write_pair(client) {
            return Ok(Err(error));
        }
        self.read_pair(client)
    }

    /// Reads everything and compares it with the record.
    pub fn check(&mut self, client: &mut Client) -> Result<Answered<()>, String> {
        let (key, sent) = (self.key("count"), Instant::now());
        let found = match client.call(&["GET", &key]) {
            Ok(value) => value.int(),
            Err(error) => return Ok(Err(error)),
        };
        if let Some(history) = &mut self.history {
            let value = found.map(|count| count.to_string());
            history.got(&key, (sent, Instant::now()), value.as_deref());
        }
        let count = found.unwrap_or(0) as u64;
        self.judge_count(count, count >= self.last_count)?;
        self.read_pair(client)
    }

    fn increment(&mut self, client: &mut Client) -> Result<Answered<()>, String> {
        let (key, sent) = (self.key("count"), Instant::now());
        match client.call(&["INCR", &key]) {
            Ok(value) => {
                let times = (sent, Instant::now());
                self.acknowledged.push(times);
                self.counted += 1;
                let number = value.int().ok_or_else(|| format!("INCR answers {value:?}"))?;
                if let Some(history) = &mut self.history {
                    history.incremented(&key, times, number);
                }
                let count = number as u64;
                self.judge_count(count, count > self.last_count)?;
                self.last_count = count;
                Ok(Ok(()))
            }
            Err(error) => {
                self.counted_unknown += 1;
                if let Some(history) = &mut self.history {
                    history.increment_unknown(&key, sent, &error.to_string());
                }
                Ok(Err(error))
            }
        }
    }

    fn judge_count(&self, count: u64, in_order: bool) -> Result<(), String> {
        let most = self.counted + self.counted_unknown;
        if !in_order || !(self.counted..=most).contains(&count) {
            return Err(format!(
                "writer {}: the counter is {count} after {}; {} increments are acknowledged and \
                 {} unknown",
                self.writer, self.last_count, self.counted, self.counted_unknown
            ));
        }
        Ok(())
    }

    /// Records the same for both halves of the pair.
    fn record_pair(&mut self, mut note: impl FnMut(&mut History, &str)) {
        let (a, b) = (self.key("a"), self.key("b"));
        if let Some(history) = &mut self.history {
            note(history, &a);
            note(history, &b);
        }
    }

    fn write_pair(&mut self, client: &mut Client) -> Answered<()> {
        self.pair += 1;
        let value = encode(self.pair);
        let (a, b) = (self.key("a"), self.key("b"));
        let sent = Instant::now();
        match client.call(&[b"MSET", a.as_bytes(), &value, b.as_bytes(), &value]) {
            Ok(_) => {
                let times = (sent, Instant::now());
                self.acknowledged.push(times);
                let value = self.pair.to_string();
                self.record_pair(|history, key| history.put(key, times, &value));
                self.pair_acknowledged = self.pair;
                Ok(())
            }
            Err(error) => {
                self.pair_unknown.insert(self.pair);
                let (value, why) = (self.pair.to_string(), error.to_string());
                self.record_pair(|history, key| history.put_unknown(key, sent, &value, &why));
                Err(error)
            }
        }
    }

    fn read_pair(&mut self, client: &mut Client) -> Result<Answered<()>, String> {
        let sent = Instant::now();
        let reply = match client.call(&["MGET", &self.key("a"), &self.key("b")]) {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(error)),
        };
        let times = (sent, Instant::now());
        let writer = self.writer;
        let fault = |what: String| Err(format!("writer {writer}: {what}"));
        let Value::Array(halves) = &reply else {
            return fault(format!("MGET answers {reply:?}"));
        };
        let [a, b] = halves.as_slice() else {
            return fault(format!("MGET of two keys answers {} values", halves.len()));
        };
        if a != b {
            let number = |v: &Value| v.bytes().and_then(decode);
            return fault(format!("a torn pair: {:?} and {:?}", number(a), number(b)));
        }
        let pair = match a.bytes() {
            None => 0,
            Some(bytes) => match decode(bytes) {
                Some(pair) => pair,
                None => return fault(format!("a torn value of {} bytes", bytes.len())),
            },
        };
        let value = (pair > 0).then(|| pair.to_string());
        self.record_pair(|history, key| history.got(key, times, value.as_deref()));
        if pair != self.pair_acknowledged && !self.pair_unknown.contains(&pair) {
            return fault(format!(
                "pair {pair} is served; {} is the last acknowledged, unknown are {:?}",
                self.pair_acknowledged, self.pair_unknown
            ));
        }
        Ok(Ok(()))
    }
}

/// The value with number `pair`: its size and every byte follow from the number.
fn encode(pair: u64) -> Vec<u8> {
    let size = 8 + (pair * 37 % 1999) as usize;
    let mut value = pair.to_be_bytes().to_vec();
    value.extend((0..size as u64).map(|at| (pair.wrapping_mul(31) + at) as u8));
    value
}

/// The number of a complete value, `None` for a torn one.
fn decode(value: &[u8]) -> Option<u64> {
    let pair = u64::from_be_bytes(value.get(..8)?.try_into().ok()?);
    (value == encode(pair)).then_some(pair)
}

/// Writers at work, each on a thread and a connection of its own.
#[derive(Debug)]
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Ledger, String>>>,
}

impl Writers {
    /// Starts the ledgers' writers on `nodes`; after a failed call a writer goes to the next node.
    #[must_use]
    pub fn start(ledgers: Vec<Ledger>, nodes: &[SocketAddr], deadline: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = ledgers
            .into_iter()
            .map(|ledger| {
                let (stop, nodes) = (Arc::clone(&stop), nodes.to_vec());
                std::thread::spawn(move || write_until(&stop, ledger, &nodes, deadline))
            })
            .collect();
        Self { stop, threads }
    }

    /// Ends the work. The accounts, or the first violation.
    ///
    /// # Panics
    /// When a writer panicked.
    pub fn stop(self) -> Result<Vec<Ledger>, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|t| t.join().expect("writers do not panic")).collect()
    }
}

fn write_until(
    stop: &AtomicBool,
    mut ledger: Ledger,
    nodes: &[SocketAddr],
    deadline: Duration,
) -> Result<Ledger, String> {
    let mut next = ledger.writer;
    let mut connected: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(client) = &mut connected else {
            connected = Client::connect(nodes[next % nodes.len()], deadline).ok();
            next += 1;
            if connected.is_none() {
                std::thread::sleep(PAUSE);
            }
            continue;
        };
        if ledger.step(client)?.is_err() {
            connected = None;
            std::thread::sleep(PAUSE);
        }
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// A client whose calls are answered with `replies`, whatever it asks.
    fn scripted(replies: &'static [&'static [u8]]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(socket.try_clone().unwrap());
            for reply in replies {
                let mut word = String::new();
                // The commands used have a fixed last argument; its line ends the command.
                while !word.starts_with("ledger:{7}:count") && !word.starts_with("ledger:{7}:b") {
                    word.clear();
                    lines.read_line(&mut word).unwrap();
                }
                socket.write_all(reply).unwrap();
            }
        });
        Client::connect(address, Duration::from_secs(5)).unwrap()
    }

    #[test]
    fn a_true_history_is_accepted() {
        let mut ledger = Ledger::new(7);
        let mut client = scripted(&[b":1\r\n", b":2\r\n", b":5\r\n"]);
        ledger.increment(&mut client).unwrap().unwrap();
        ledger.increment(&mut client).unwrap().unwrap();
        ledger.counted_unknown += 2;
        ledger.increment(&mut client).unwrap().unwrap();
    }

    #[test]
    fn a_lost_increment_is_seen() {
        let mut ledger = Ledger::new(7);
        let mut client = scripted(&[b":1\r\n", b":1\r\n"]);
        ledger.increment(&mut client).unwrap().unwrap();
        assert!(ledger.increment(&mut client).is_err());
    }

    #[test]
    fn an_increment_applied_twice_is_seen() {
        let mut ledger = Ledger::new(7);
        let mut client = scripted(&[b":1\r\n", b":3\r\n"]);
        ledger.increment(&mut client).unwrap().unwrap();
        assert!(ledger.increment(&mut client).is_err());
    }

    #[test]
    fn a_lost_pair_is_seen() {
        let mut ledger = Ledger::new(7);
        ledger.pair_acknowledged = 1;
        let mut client = scripted(&[b"*2\r\n$-1\r\n$-1\r\n"]);
        assert!(ledger.read_pair(&mut client).unwrap_err().contains("pair 0 is served"));
    }

    #[test]
    fn a_torn_pair_is_seen() {
        let mut ledger = Ledger::new(7);
        let mut client = scripted(&[b"*2\r\n$-1\r\n$1\r\nx\r\n"]);
        assert!(ledger.read_pair(&mut client).unwrap_err().contains("torn pair"));
        let mut client = scripted(&[b"*2\r\n$1\r\nx\r\n$1\r\nx\r\n"]);
        assert!(ledger.read_pair(&mut client).unwrap_err().contains("torn value"));
    }

    #[test]
    fn a_value_is_whole_or_nothing() {
        for pair in 1..200 {
            let value = encode(pair);
            assert_eq!(decode(&value), Some(pair));
            assert_eq!(decode(&value[..value.len() - 1]), None);
        }
    }
}
