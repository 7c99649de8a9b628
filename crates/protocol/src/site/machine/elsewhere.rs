//! Times that come from another site.
//!
//! Log times of two sites have nothing to do with each other. What another site sends states first
//! what its log time was then ([`model::StagedItem::Clock`]); what follows is taken by its distance
//! from that, so that a key has as much time left here as it had there, and an answer is as old.

use super::MachineError;
use super::records::Record;
use model::Bytes;

/// How another site's log time is taken here; at first as if it were this site's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Elsewhere {
    there_ms: u64,
    here_ms: u64,
}

impl Elsewhere {
    pub(super) fn new(there_ms: u64, here_ms: u64) -> Elsewhere {
        Elsewhere { there_ms, here_ms }
    }

    /// A moment of it.
    pub(super) fn moment(self, ms: u64) -> u64 {
        match ms.checked_sub(self.there_ms) {
            Some(later) => self.here_ms.saturating_add(later),
            None => self.here_ms.saturating_sub(self.there_ms - ms),
        }
    }

    /// A record with its expiry.
    pub(super) fn row(self, row: &Bytes) -> Result<Bytes, MachineError> {
        let head = Record::decode_head(row)?;
        let Some(expires_ms) = head.expires_ms else { return Ok(row.clone()) };
        let moment = self.moment(expires_ms);
        if moment == expires_ms {
            return Ok(row.clone());
        }
        let record = Record::decode(row.clone())?;
        Ok(Record::encode(record.kind, record.version, Some(moment), &[&record.payload]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Kind, Revision};

    #[test]
    fn a_key_has_as_much_time_left_as_it_had() {
        let hours = Elsewhere::new(10_000_000, 500);
        let row = Record::encode(Kind::Hash, Revision(7), Some(10_000_600), &[b"x"]);
        let here = Record::decode(hours.row(&row).unwrap()).unwrap();
        assert_eq!((here.expires_ms, here.version), (Some(1_100), Revision(7)));
        assert_eq!((here.kind, &here.payload[..]), (Kind::Hash, &b"x"[..]));
        assert_eq!(hours.moment(9_999_900), 400, "an answer is as old");
        assert_eq!(hours.moment(1), 0);
        let never = Record::encode(Kind::String, Revision(7), None, &[b"x"]);
        assert_eq!(hours.row(&never).unwrap(), never);
    }

    #[test]
    fn without_a_clock_times_are_taken_as_they_are() {
        let row = Record::encode(Kind::String, Revision(7), Some(600), &[b"x"]);
        assert_eq!(Elsewhere::default().row(&row).unwrap(), row);
        assert_eq!(Elsewhere::default().moment(600), 600);
    }
}
