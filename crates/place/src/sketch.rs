//! What a client has seen: how long servers took to answer it, and which keys it used.
//!
//! A client sends one sketch a window, as JSON or in 8 bytes a server and 16 bytes a key. Both mean the
//! same; all numbers of the binary form are little-endian:
//!
//! ```text
//! "PSK1"  duration_ms u32  client: len u8, UTF-8
//! servers u16, each: len u8, "HOST:PORT", count u32, sum_us u32
//! slots u16, each: slot u16, keys u16, each: id u64, count u32, bytes u32
//! ```
//!
//! A key's id is any hash of it that all clients share; keys themselves are not sent.

use crate::view::Address;
use model::Slot;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// A latency above this is a broken clock.
const LATENCY_MAX_US: f64 = 60e6;
/// A window above this is none.
const DURATION_MAX_MS: u32 = 3_600_000;
/// Entries of one sketch: servers, slots, keys of a slot.
const ENTRIES_MAX: usize = 65_535;
/// The noise of one latency, as a part of it, that is reckoned with.
const NOISE: f64 = 0.3;
/// A server is taken to be as far as its mean and so many standard deviations of that.
const CAUTION_SIGMAS: f64 = 2.0;
/// A mean that is so many standard deviations away is of another place.
const MOVED_SIGMAS: f64 = 4.0;
/// What answers still weigh, a sketch later.
const KEPT: f64 = 0.9;
/// Clients that are kept; others are refused.
const CLIENTS_MAX: usize = 10_000;

/// What one client has seen in one window.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sketch {
    /// The version of the format: 1.
    pub v: u32,
    /// A name of the client, the same in each window.
    pub client: String,
    /// How long it counted.
    pub duration_ms: u32,
    /// By `HOST:PORT`: number of answers, sum of their latencies in microseconds.
    #[serde(default)]
    pub servers: BTreeMap<String, (u32, f64)>,
    /// By slot: id of a key, number of uses, bytes of the key.
    #[serde(default)]
    pub slots: BTreeMap<u16, Vec<(u64, u32, u32)>>,
}

/// A sketch that is refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Sketch {
    /// Reads one of either form.
    ///
    /// # Errors
    /// It is neither, or has values that no client can have seen.
    pub fn read(bytes: &[u8]) -> Result<Sketch, Refused> {
        let sketch = match bytes.strip_prefix(b"PSK1") {
            Some(rest) => {
                binary(&mut Input(rest)).ok_or_else(|| Refused("it is cut".to_owned()))?
            }
            None => serde_json::from_slice(bytes).map_err(|error| Refused(error.to_string()))?,
        };
        sketch.check().map_or(Ok(sketch), |why| Err(Refused(why.to_owned())))
    }

    fn check(&self) -> Option<&'static str> {
        if self.v != 1 {
            return Some("its version is not 1");
        }
        if self.client.is_empty() || self.client.len() > 255 {
            return Some("its client has no name of 1 to 255 bytes");
        }
        if self.duration_ms == 0 || self.duration_ms > DURATION_MAX_MS {
            return Some("its duration is not within an hour");
        }
        if self.servers.len() > ENTRIES_MAX
            || self.slots.values().any(|keys| keys.len() > ENTRIES_MAX)
        {
            return Some("it has too many entries");
        }
        let is_slot = |slot: &u16| Slot::new(*slot).is_some();
        (!self.slots.keys().all(is_slot)).then_some("it names a slot above 16383")
    }
}

/// Bytes that are left.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.take(1)?[0];
        String::from_utf8(self.take(len.into())?.to_vec()).ok()
    }
}

fn binary(input: &mut Input<'_>) -> Option<Sketch> {
    let mut sketch = Sketch { v: 1, duration_ms: input.u32()?, ..Sketch::default() };
    sketch.client = input.text()?;
    for _ in 0..input.u16()? {
        let server = input.text()?;
        sketch.servers.insert(server, (input.u32()?, f64::from(input.u32()?)));
    }
    for _ in 0..input.u16()? {
        let (slot, count) = (input.u16()?, input.u16()?);
        let keys = (0..count).map(|_| Some((input.u64()?, input.u32()?, input.u32()?)));
        let keys = keys.collect::<Option<Vec<_>>>()?;
        sketch.slots.entry(slot).or_default().extend(keys);
    }
    input.0.is_empty().then_some(sketch)
}

/// What was refused or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Sketches that could not be read.
    pub malformed: u64,
    /// Entries of servers that are no masters of the cluster.
    pub unknown_servers: u64,
    /// Entries with a latency that is negative, no number, or above a minute.
    pub absurd_latencies: u64,
    /// Sketches of clients beyond the limit.
    pub clients: u64,
}

/// What one client has sent lately.
#[derive(Debug, Default)]
struct Sent {
    /// When the newest sketch came (since any fixed moment), and that.
    at: Duration,
    newest: Sketch,
    /// Its servers that are none of the cluster have not been counted.
    is_new: bool,
    /// By `HOST:PORT`.
    servers: BTreeMap<String, Answers>,
}

/// Answers of a server to a client: those of the last ten sketches or so, the newest weigh most.
#[derive(Clone, Copy, Debug)]
struct Answers {
    at: Duration,
    count: f64,
    sum_us: f64,
}

impl Answers {
    /// Adds those of one sketch. If they cannot be of the same place as the earlier ones, these are forgotten:
    /// the client or the server has moved.
    fn add(&mut self, new: Answers) {
        let (mean, new_mean) = (self.sum_us / self.count, new.sum_us / new.count);
        let error = NOISE * mean * (1.0 / self.count + 1.0 / new.count).sqrt();
        let (count, sum_us) = match (new_mean - mean).abs() > MOVED_SIGMAS * error {
            true => (0.0, 0.0),
            false => (KEPT * self.count, KEPT * self.sum_us),
        };
        *self = Answers { at: new.at, count: count + new.count, sum_us: sum_us + new.sum_us };
    }
}

/// What clients have sent lately.
#[derive(Debug, Default)]
pub struct Sketches {
    by_client: BTreeMap<String, Sent>,
    /// What was not taken.
    pub dropped: Dropped,
}

/// Keys of one slot: id, uses a second, bytes.
pub type Uses = Vec<(u64, f64, u32)>;

/// How far a server is from a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The mean in milliseconds.
    pub ms: f64,
    /// Of about how many answers.
    pub answers: f64,
}

impl Latency {
    /// What it is at most, given the noise of so few answers.
    pub fn at_most_ms(self) -> f64 {
        self.ms * (1.0 + CAUTION_SIGMAS * NOISE / self.answers.sqrt())
    }
}

/// What one client does now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    /// By server.
    pub latency: BTreeMap<Address, Latency>,
    /// The keys that it uses.
    pub slots: BTreeMap<Slot, Uses>,
}

impl Sketches {
    /// Takes a sketch that arrives now.
    ///
    /// # Errors
    /// It is refused, and counted.
    pub fn take(&mut self, bytes: &[u8], now: Duration) -> Result<(), Refused> {
        let mut sketch = Sketch::read(bytes).inspect_err(|_| self.dropped.malformed += 1)?;
        if self.by_client.len() >= CLIENTS_MAX && !self.by_client.contains_key(&sketch.client) {
            self.dropped.clients += 1;
            return Err(Refused("there are too many clients".to_owned()));
        }
        let sent = self.by_client.entry(sketch.client.clone()).or_default();
        for (server, (count, sum_us)) in std::mem::take(&mut sketch.servers) {
            let new = Answers { at: now, count: f64::from(count), sum_us };
            // Zero answers have no mean either.
            if !(0.0..=LATENCY_MAX_US).contains(&(new.sum_us / new.count)) {
                self.dropped.absurd_latencies += 1;
                continue;
            }
            sent.servers.entry(server).and_modify(|known| known.add(new)).or_insert(new);
        }
        (sent.at, sent.newest, sent.is_new) = (now, sketch, true);
        Ok(())
    }

    /// Forgets what was not sent again within three windows.
    pub fn forget(&mut self, now: Duration, window: Duration) {
        let is_kept = |at: Duration| at + 3 * window > now;
        self.by_client.retain(|_, sent| is_kept(sent.at));
        for sent in self.by_client.values_mut() {
            sent.servers.retain(|_, answers| is_kept(answers.at));
        }
    }

    /// What all clients do, by name: uses by their newest sketch, latencies by the last ones.
    pub fn clients(&mut self, masters: &[Address]) -> Vec<(String, Client)> {
        let Sketches { by_client, dropped } = self;
        let clients = by_client.iter_mut().map(|(name, sent)| {
            let mut client = Client::default();
            for (server, Answers { count, sum_us, .. }) in &sent.servers {
                let server = server.parse::<Address>().ok().filter(|one| masters.contains(one));
                let Some(server) = server else {
                    dropped.unknown_servers += u64::from(sent.is_new);
                    continue;
                };
                let latency = Latency { ms: sum_us / count / 1e3, answers: *count };
                client.latency.insert(server, latency);
            }
            sent.is_new = false;
            let seconds = f64::from(sent.newest.duration_ms) / 1e3;
            let rate =
                |(id, count, bytes): &(u64, u32, u32)| (*id, f64::from(*count) / seconds, *bytes);
            let slots = sent.newest.slots.iter().filter_map(|(slot, keys)| {
                Some((Slot::new(*slot)?, keys.iter().map(rate).collect()))
            });
            client.slots = slots.collect();
            (name.clone(), client)
        });
        clients.collect()
    }
}

/// Takes any bytes as sketches of one client: what is not refused has only values that a client can have. For
/// tests and the fuzzer.
pub fn check_any(bytes: &[u8]) {
    let masters: Vec<Address> =
        ["10.0.0.1:1", "10.0.0.2:1"].iter().filter_map(|text| text.parse().ok()).collect();
    let mut sketches = Sketches::default();
    let is_taken = sketches.take(bytes, Duration::ZERO).is_ok();
    assert_eq!(sketches.dropped.malformed, u64::from(!is_taken));
    for (name, client) in sketches.clients(&masters) {
        assert!((1..=255).contains(&name.len()), "{name}");
        let is_sane =
            |one: &Latency| (0.0..=LATENCY_MAX_US / 1e3).contains(&one.ms) && one.answers > 0.0;
        assert!(client.latency.values().all(is_sane), "{client:?}");
        let rates = client.slots.values().flatten().map(|(_, rate, _)| rate);
        assert!(rates.into_iter().all(|rate| (0.0..=1e3 * f64::from(u32::MAX)).contains(rate)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const JSON: &str = r#"{"v":1,"client":"app","duration_ms":10000,
        "servers":{"10.0.0.1:1":[10,20000],"10.0.0.2:1":[2,100000]},
        "slots":{"7":[[5,100,1000],[6,50,10]]}}"#;

    fn packed() -> Vec<u8> {
        let mut out = b"PSK1".to_vec();
        out.extend(10_000_u32.to_le_bytes());
        out.extend(b"\x03app\x02\x00");
        for (name, count, sum) in [("10.0.0.1:1", 10_u32, 20_000_u32), ("10.0.0.2:1", 2, 100_000)] {
            out.push(name.len() as u8);
            out.extend(name.as_bytes());
            out.extend([count.to_le_bytes(), sum.to_le_bytes()].concat());
        }
        out.extend([1, 0, 7, 0, 2, 0]);
        for (id, count, bytes) in [(5_u64, 100_u32, 1_000_u32), (6, 50, 10)] {
            out.extend(id.to_le_bytes());
            out.extend([count.to_le_bytes(), bytes.to_le_bytes()].concat());
        }
        out
    }

    fn masters() -> Vec<Address> {
        ["10.0.0.1:1", "10.0.0.2:1"].map(|text| text.parse().unwrap()).to_vec()
    }

    #[test]
    fn both_forms_are_the_same() {
        assert_eq!(Sketch::read(JSON.as_bytes()).unwrap(), Sketch::read(&packed()).unwrap());
    }

    /// The clients' packages read the same file.
    #[test]
    fn sketches_of_all_languages_are_read() {
        let vectors = include_str!("../../../clients/vectors.json");
        let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
        for one in vectors["sketches"].as_array().unwrap() {
            let packed = one["packed"].as_str().unwrap();
            let byte = |at: usize| u8::from_str_radix(&packed[at..at + 2], 16).unwrap();
            let packed: Vec<u8> = (0..packed.len()).step_by(2).map(byte).collect();
            let sketch = Sketch::read(&packed).unwrap();
            assert_eq!(sketch, Sketch::read(one["json"].as_str().unwrap().as_bytes()).unwrap());
            assert_eq!(sketch.client, one["client"].as_str().unwrap());
        }
    }

    #[test]
    fn malformed_sketches_are_refused_and_counted() {
        let mut sketches = Sketches::default();
        let packed = packed();
        for cut in 0..packed.len() {
            assert!(sketches.take(&packed[..cut], Duration::ZERO).is_err(), "{cut}");
        }
        let too_long = [&packed[..], b"x"].concat();
        assert!(sketches.take(&too_long, Duration::ZERO).is_err());
        for (old, new) in [
            ("\"v\":1", "\"v\":2"),
            ("app", ""),
            ("10000", "0"),
            ("10000", "99999999"),
            ("\"7\"", "\"16384\""),
            ("100,", "-1,"),
            ("client", "user"),
        ] {
            let text = JSON.replacen(old, new, 1);
            assert!(sketches.take(text.as_bytes(), Duration::ZERO).is_err(), "{new}");
        }
        assert_eq!(sketches.dropped.malformed, packed.len() as u64 + 8);
        assert_eq!(sketches.clients(&masters()), []);
    }

    proptest! {
        /// Half a sketch and half noise.
        #[test]
        fn any_bytes_are_read_or_refused(
            kept in 0_usize..90,
            noise in proptest::collection::vec(any::<u8>(), 0..60),
            is_packed: bool,
        ) {
            let whole = if is_packed { packed() } else { JSON.as_bytes().to_vec() };
            let mut bytes = whole[..kept.min(whole.len())].to_vec();
            bytes.extend(&noise);
            check_any(&bytes);
            bytes.extend(whole.get(bytes.len()..).unwrap_or_default());
            check_any(&bytes);
            check_any(&whole);
        }
    }

    #[test]
    fn a_client_is_what_it_sent() {
        let mut sketches = Sketches::default();
        sketches.take(JSON.as_bytes(), Duration::ZERO).unwrap();
        let [(name, client)] = &sketches.clients(&masters())[..] else { panic!("one client") };
        assert_eq!(name, "app");
        let latencies: Vec<f64> = client.latency.values().map(|one| one.ms).collect();
        assert_eq!(latencies, [2.0, 50.0]);
        assert_eq!(client.slots[&Slot::new(7).unwrap()], [(5, 10.0, 1_000), (6, 5.0, 10)]);
    }

    #[test]
    fn unknown_servers_and_absurd_latencies_are_dropped_and_counted() {
        let mut sketches = Sketches::default();
        let text = r#"{"v":1,"client":"liar","duration_ms":10000,"servers":{"10.0.0.9:1":[1,1],
            "x":[1,1],"10.0.0.1:1":[1,-5],"10.0.0.2:1":[0,7]}}"#;
        sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
        assert_eq!(sketches.clients(&masters())[0].1.latency, BTreeMap::new());
        assert_eq!((sketches.dropped.unknown_servers, sketches.dropped.absurd_latencies), (2, 2));
    }

    #[test]
    fn sketches_die_after_three_windows() {
        let mut sketches = Sketches::default();
        let window = Duration::from_secs(10);
        sketches.take(JSON.as_bytes(), Duration::ZERO).unwrap();
        sketches.forget(window * 3 - Duration::from_secs(1), window);
        assert_eq!(sketches.clients(&masters()).len(), 1);
        sketches.forget(window * 3, window);
        assert_eq!(sketches.clients(&masters()), []);
    }

    #[test]
    fn latencies_are_remembered_until_a_client_moves() {
        let mut sketches = Sketches::default();
        let mut after = |sum_us: u32| {
            let text = format!(
                r#"{{"v":1,"client":"car","duration_ms":10000,"servers":{{"10.0.0.1:1":[10,{sum_us}]}}}}"#
            );
            sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
            let latency = sketches.clients(&masters())[0].1.latency[&masters()[0]];
            (latency.ms, latency.answers)
        };
        assert_eq!(after(200_000), (20.0, 10.0));
        let (ms, answers) = after(240_000);
        assert!((ms - 22.1).abs() < 0.1 && answers == 19.0, "{ms} {answers}");
        assert_eq!(after(400_000), (40.0, 10.0), "it has moved");
    }
}
