//! How far the state has come. It is written with every batch, so that after a crash the log is
//! repeated from the right place.

use super::{MachineError, tables};
use model::{Bytes, Revision};
use storage::state::Read;
use wire::row;

/// The last log entry that was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Its index; 0 before the first one.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// The counters of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) applied: Applied,
    pub(crate) revision: Revision,
    /// The latest log time of any entry.
    pub(crate) log_time_ms: u64,
    /// The id of the next keyspace to be made.
    pub(crate) keyspace_next: u32,
    /// The next generation of a keyspace's records.
    pub(crate) generation_next: u64,
}

row!(Applied { index, term });
row!(Head { applied, revision, log_time_ms, keyspace_next, generation_next });

impl Default for Head {
    /// A state that nothing was applied to: it has the default keyspace, of generation 0.
    fn default() -> Head {
        Head {
            applied: Applied::default(),
            revision: Revision(0),
            log_time_ms: 0,
            keyspace_next: 1,
            generation_next: 1,
        }
    }
}

impl Head {
    /// The head of a state, or of a fresh one.
    pub(crate) fn load(state: &impl Read) -> Result<Head, MachineError> {
        match state.get(tables::HEAD)? {
            Some(row) => row::decode(&row).ok_or(MachineError::Damaged { table: 'z' }),
            None => Ok(Head::default()),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        row::encode(self).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Head {
        fn decode(row: &[u8]) -> Option<Head> {
            row::decode(&Bytes::copy_from_slice(row))
        }
    }

    #[test]
    fn format_1_stays_as_it_is() {
        let head = Head {
            applied: Applied { index: 200, term: 3 },
            revision: Revision(1000),
            log_time_ms: 5,
            keyspace_next: 2,
            generation_next: 4,
        };
        assert_eq!(&head.encode()[..], b"\x01\xc8\x01\x03\xe8\x07\x05\x02\x04");
        assert_eq!(Head::decode(&head.encode()), Some(head));
        assert_eq!(Head::decode(b"\x02\x00\x00\x00\x00\x00\x00"), None);
    }
}
