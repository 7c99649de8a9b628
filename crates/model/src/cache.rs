//! What a keyspace states about the copies that nodes may keep of keys that other sites hold.

use crate::limits;
use std::fmt;

/// Whether nodes keep copies of remote keys of a keyspace, and what they do with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cache {
    /// None are kept.
    #[default]
    Off,
    /// The owner is asked whether a copy is still right before it is used: the promise stays what
    /// it is, and the answer is a few bytes where it would have been the value.
    Validated {
        /// Bytes of copies that a node keeps of this keyspace.
        bytes_max: u64,
    },
    /// As validated; and a read that may be stale is answered from a young copy without asking.
    Stale {
        /// Bytes of copies that a node keeps of this keyspace.
        bytes_max: u64,
        /// How long after it was asked for a copy answers stale reads.
        age_ms_max: u64,
    },
}

impl Cache {
    /// By its word (`off`, `validated`, `stale`) and its numbers, where they are stated.
    ///
    /// # Errors
    /// There is no such word, or a number has no meaning with it.
    pub fn of(
        word: &str,
        bytes_max: Option<u64>,
        age_ms_max: Option<u64>,
    ) -> Result<Cache, String> {
        let bytes = bytes_max.unwrap_or(limits::CACHE_BYTES_DEFAULT);
        let age_ms = age_ms_max.unwrap_or(limits::CACHE_AGE_MS_DEFAULT);
        match word {
            "off" if bytes_max.is_some() => {
                Err("cache_bytes_max needs cache = \"validated\" or \"stale\"".to_owned())
            }
            "off" | "validated" if age_ms_max.is_some() => {
                Err("cache_age_ms_max needs cache = \"stale\"".to_owned())
            }
            "off" => Ok(Cache::Off),
            "validated" => Ok(Cache::Validated { bytes_max: bytes }),
            "stale" => Ok(Cache::Stale { bytes_max: bytes, age_ms_max: age_ms }),
            _ => Err(format!("{word:?} is no cache: use off, validated or stale")),
        }
    }

    /// Whether any copies are kept.
    pub fn is_on(self) -> bool {
        self != Cache::Off
    }

    /// Bytes of copies that a node keeps.
    pub fn bytes_max(self) -> u64 {
        match self {
            Cache::Off => 0,
            Cache::Validated { bytes_max } | Cache::Stale { bytes_max, .. } => bytes_max,
        }
    }

    /// How long a copy answers stale reads; `None`: it does not.
    pub fn age_ms_max(self) -> Option<u64> {
        match self {
            Cache::Stale { age_ms_max, .. } => Some(age_ms_max),
            Cache::Off | Cache::Validated { .. } => None,
        }
    }

    /// Whether its numbers are within their limits.
    pub(crate) fn is_within_limits(self) -> bool {
        let bytes = limits::CACHE_BYTES_MIN..=limits::CACHE_BYTES_MAX;
        let ages_ms = 1..=limits::CACHE_AGE_MS_MAX;
        !self.is_on()
            || bytes.contains(&self.bytes_max())
                && self.age_ms_max().is_none_or(|age_ms| ages_ms.contains(&age_ms))
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cache::Off => "off",
            Cache::Validated { .. } => "validated",
            Cache::Stale { .. } => "stale",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_with_the_word() {
        assert_eq!(Cache::of("off", None, None), Ok(Cache::Off));
        let bytes_max = limits::CACHE_BYTES_DEFAULT;
        assert_eq!(Cache::of("validated", None, None), Ok(Cache::Validated { bytes_max }));
        let stale = Cache::of("stale", Some(5_000), Some(70));
        assert_eq!(stale, Ok(Cache::Stale { bytes_max: 5_000, age_ms_max: 70 }));
        for (word, bytes, age_ms, complaint) in [
            ("off", Some(5_000), None, "cache_bytes_max needs"),
            ("validated", None, Some(70), "cache_age_ms_max needs"),
            ("always", None, None, "use off, validated or stale"),
        ] {
            let error = Cache::of(word, bytes, age_ms).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
        for word in ["off", "validated", "stale"] {
            assert_eq!(Cache::of(word, None, None).unwrap().to_string(), word);
        }
    }
}
