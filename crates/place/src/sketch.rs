//! What a client has seen: how long servers took to answer it, and which keys it used.
//!
//! A client sends one sketch a window, as JSON or in 8 bytes a server and 16 bytes a key. Both mean
//! the same; all numbers of the binary form are little-endian:
//!
//! ```text
//! "PSK1"  duration_ms u32  client: len u8, UTF-8
//! servers u16, each: len u8, "HOST:PORT", count u32, sum_us u32
//! slots u16, each: slot u16, keys u16, each: id u64, count u32, bytes u32
//! ```
//!
//! A key's id is any hash of it that all clients share; keys themselves are not sent.
//!
//! Version 2 is for quantiles: it ends with a DDSketch of the latencies of some of the servers, 6
//! bytes a bucket. Bucket *i* counts the latencies above γ^(i−1) ms and up to γ^i ms, with γ = 1.02
//! / 0.98.
//!
//! ```text
//! "PSK2"  as above, then
//! spreads u16, each: len u8, "HOST:PORT", buckets u16, each, ascending: index i16, count u32
//! ```

use model::Slot;
use protocol::placement::Distribution;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A window above this is none.
const DURATION_MAX_MS: u32 = 3_600_000;
/// Entries of one sketch: servers, slots, keys of a slot.
const ENTRIES_MAX: usize = 65_535;
/// What one client has seen in one window.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sketch {
    /// The version of the format: 1, or 2 with spreads.
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
    /// By `HOST:PORT`: the buckets of a DDSketch, index and count.
    #[serde(default)]
    pub spreads: BTreeMap<String, Vec<(i16, u32)>>,
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
        let packed = bytes.strip_prefix(b"PSK").and_then(|rest| rest.split_first());
        let sketch = match packed {
            Some((version, rest)) => {
                let sketch = binary(version.wrapping_sub(b'0').into(), &mut Input(rest));
                sketch.ok_or_else(|| Refused("it is cut".to_owned()))?
            }
            None => serde_json::from_slice(bytes).map_err(|error| Refused(error.to_string()))?,
        };
        sketch.check().map_or(Ok(sketch), |why| Err(Refused(why.to_owned())))
    }

    fn check(&self) -> Option<&'static str> {
        if !(1..=2).contains(&self.v) {
            return Some("its version is neither 1 nor 2");
        }
        if self.v == 1 && !self.spreads.is_empty() {
            return Some("it has spreads, which need version 2");
        }
        if self.client.is_empty() || self.client.len() > 255 {
            return Some("its client has no name of 1 to 255 bytes");
        }
        if self.duration_ms == 0 || self.duration_ms > DURATION_MAX_MS {
            return Some("its duration is not within an hour");
        }
        if self.servers.len().max(self.spreads.len()) > ENTRIES_MAX
            || self.slots.values().any(|keys| keys.len() > ENTRIES_MAX)
        {
            return Some("it has too many entries");
        }
        if !self.spreads.values().all(|rows| Distribution::from_rows(rows).is_some()) {
            return Some(
                "a spread has buckets that are out of order, empty, too many or above a minute",
            );
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

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_le_bytes(self.take(2)?.try_into().ok()?))
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

fn binary(version: u32, input: &mut Input<'_>) -> Option<Sketch> {
    let mut sketch = Sketch { v: version, duration_ms: input.u32()?, ..Sketch::default() };
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
    if version >= 2 {
        for _ in 0..input.u16()? {
            let server = input.text()?;
            let count = input.u16()?;
            let rows = (0..count).map(|_| Some((input.i16()?, input.u32()?)));
            let rows = rows.collect::<Option<Vec<_>>>()?;
            sketch.spreads.insert(server, rows);
        }
    }
    input.0.is_empty().then_some(sketch)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const JSON: &str = r#"{"v":1,"client":"app","duration_ms":10000,
        "servers":{"10.0.0.1:1":[10,20000],"10.0.0.2:1":[2,100000]},
        "slots":{"7":[[5,100,1000],[6,50,10]]}}"#;

    pub(crate) fn packed() -> Vec<u8> {
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
    pub(crate) const WITH_SPREADS: &str = r#"{"v":2,"client":"app","duration_ms":10000,
        "servers":{"10.0.0.1:1":[10,20000],"10.0.0.2:1":[2,100000]},
        "slots":{"7":[[5,100,1000],[6,50,10]]},
        "spreads":{"10.0.0.1:1":[[-3,1],[17,9]]}}"#;

    pub(crate) fn packed_with_spreads() -> Vec<u8> {
        let mut out = packed();
        out[3] = b'2';
        out.extend(b"\x01\x00\x0a10.0.0.1:1\x02\x00");
        for (index, count) in [(-3_i16, 1_u32), (17, 9)] {
            out.extend(index.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
        out
    }

    #[test]
    fn version_2_has_spreads_in_both_forms() {
        let read = Sketch::read(WITH_SPREADS.as_bytes()).unwrap();
        assert_eq!(read.spreads["10.0.0.1:1"], [(-3, 1), (17, 9)]);
        assert_eq!(Sketch::read(&packed_with_spreads()).unwrap(), read);
        // The same without spreads is version 1's sketch.
        let Sketch { servers, slots, .. } = Sketch::read(&packed()).unwrap();
        assert_eq!((servers, slots), (read.servers, read.slots));
    }

    #[test]
    fn malformed_spreads_are_refused() {
        let packed = packed_with_spreads();
        for cut in 0..packed.len() {
            assert!(Sketch::read(&packed[..cut]).is_err(), "{cut}");
        }
        for (old, new) in [
            ("\"v\":2", "\"v\":1"),
            ("\"v\":2", "\"v\":3"),
            ("[-3,1],[17,9]", "[17,9],[-3,1]"),
            ("[-3,1]", "[-3,0]"),
            ("[17,9]", "[1700,9]"),
            ("[17,9]", "[17,-9]"),
            ("[-3,1]", "[-40000,1]"),
        ] {
            let text = WITH_SPREADS.replacen(old, new, 1);
            assert!(Sketch::read(text.as_bytes()).is_err(), "{new}");
        }
    }
}
