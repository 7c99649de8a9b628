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

/// The sketches of the last windows.
#[derive(Debug, Default)]
pub struct Sketches {
    /// By client: when each arrived (since any fixed moment), oldest first.
    by_client: BTreeMap<String, Vec<(Duration, Sketch)>>,
    /// What was not taken.
    pub dropped: Dropped,
}

/// Keys of one slot: id, uses a second, bytes.
pub type Uses = Vec<(u64, f64, u32)>;

/// What one client does now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    /// Mean latency in milliseconds by server.
    pub latency_ms: BTreeMap<Address, f64>,
    /// The keys that it uses.
    pub slots: BTreeMap<Slot, Uses>,
}

impl Sketches {
    /// Takes a sketch that arrives now.
    ///
    /// # Errors
    /// It is refused, and counted.
    pub fn take(&mut self, bytes: &[u8], now: Duration) -> Result<(), Refused> {
        let sketch = Sketch::read(bytes).inspect_err(|_| self.dropped.malformed += 1)?;
        if self.by_client.len() >= CLIENTS_MAX && !self.by_client.contains_key(&sketch.client) {
            self.dropped.clients += 1;
            return Err(Refused("there are too many clients".to_owned()));
        }
        let of_client = self.by_client.entry(sketch.client.clone()).or_default();
        of_client.push((now, sketch));
        Ok(())
    }

    /// Forgets what is older than three windows.
    pub fn forget(&mut self, now: Duration, window: Duration) {
        for sketches in self.by_client.values_mut() {
            sketches.retain(|(at, _)| *at + 3 * window > now);
        }
        self.by_client.retain(|_, sketches| !sketches.is_empty());
    }

    /// What all clients do, by name: uses by their newest sketch, latencies by all that are kept.
    pub fn clients(&mut self, masters: &[Address]) -> Vec<(String, Client)> {
        let Sketches { by_client, dropped } = self;
        let clients = by_client.iter().filter_map(|(name, sketches)| {
            let mut sums: BTreeMap<Address, (f64, f64)> = BTreeMap::new();
            for (server, (count, sum_us)) in sketches.iter().flat_map(|(_, one)| &one.servers) {
                let server = server.parse::<Address>().ok().filter(|one| masters.contains(one));
                let Some(server) = server else {
                    dropped.unknown_servers += 1;
                    continue;
                };
                let mean = sum_us / f64::from(*count);
                if !(0.0..=LATENCY_MAX_US).contains(&mean) {
                    dropped.absurd_latencies += 1;
                    continue;
                }
                let sum = sums.entry(server).or_default();
                *sum = (sum.0 + f64::from(*count), sum.1 + sum_us);
            }
            let (_, newest) = sketches.last()?;
            let seconds = f64::from(newest.duration_ms) / 1e3;
            let rate =
                |(id, count, bytes): &(u64, u32, u32)| (*id, f64::from(*count) / seconds, *bytes);
            let slots = newest.slots.iter().filter_map(|(slot, keys)| {
                Some((Slot::new(*slot)?, keys.iter().map(rate).collect()))
            });
            let latency_ms = sums.into_iter().map(|(at, (count, sum))| (at, sum / count / 1e3));
            let client = Client { latency_ms: latency_ms.collect(), slots: slots.collect() };
            Some((name.clone(), client))
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
        let are_sane = |ms: &f64| (0.0..=LATENCY_MAX_US / 1e3).contains(ms);
        assert!(client.latency_ms.values().all(are_sane), "{client:?}");
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
        let latencies: Vec<f64> = client.latency_ms.values().copied().collect();
        assert_eq!(latencies, [2.0, 50.0]);
        assert_eq!(client.slots[&Slot::new(7).unwrap()], [(5, 10.0, 1_000), (6, 5.0, 10)]);
    }

    #[test]
    fn unknown_servers_and_absurd_latencies_are_dropped_and_counted() {
        let mut sketches = Sketches::default();
        let text = r#"{"v":1,"client":"liar","duration_ms":10000,"servers":{"10.0.0.9:1":[1,1],
            "x":[1,1],"10.0.0.1:1":[1,-5],"10.0.0.2:1":[0,7]}}"#;
        sketches.take(text.as_bytes(), Duration::ZERO).unwrap();
        assert_eq!(sketches.clients(&masters())[0].1.latency_ms, BTreeMap::new());
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
}
