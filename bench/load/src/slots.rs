//! Keys that lie in chosen slots of Redis Cluster, by a tag in braces.
//!
//! The slot of a key is CRC16 (XMODEM) of its tag, modulo 16,384: the Redis Cluster specification.

use std::str::FromStr;

use serde::Serialize;

const COUNT: u16 = 16_384;

/// A run of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Slots {
    first: u16,
    last: u16,
}

impl FromStr for Slots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last && last < COUNT => Ok(Self { first, last }),
            _ => Err(format!("slots are FIRST-LAST, 0 to {}", COUNT - 1)),
        }
    }
}

impl Slots {
    /// A tag for each of the slots.
    pub(crate) fn tags(self) -> Vec<String> {
        let mut tags = vec![String::new(); usize::from(self.last - self.first) + 1];
        let mut left = tags.len();
        for number in 0_u32.. {
            let tag = number.to_string();
            let slot = crc16(tag.as_bytes()) % COUNT;
            let at = slot.checked_sub(self.first).and_then(|at| tags.get_mut(usize::from(at)));
            if let Some(empty) = at.filter(|found| found.is_empty()) {
                *empty = tag;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // From the specification, and the answers of `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b"foo") % COUNT, 12_182);
    }

    #[test]
    fn every_slot_has_a_tag_of_its_own() {
        let slots: Slots = "16000-16383".parse().unwrap();
        for (tag, slot) in slots.tags().iter().zip(16_000..) {
            assert_eq!(crc16(tag.as_bytes()) % COUNT, slot, "{tag}");
        }
        assert!("5-4".parse::<Slots>().is_err());
        assert!("0-16384".parse::<Slots>().is_err());
    }
}
