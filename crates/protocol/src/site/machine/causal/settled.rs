//! The numbers of this site's own puts whose places it does not know: a resync has brought what
//! they made.
//!
//! Without them the first attempt, which may come again at this site, would be a new write.
//!
//! ```text
//! K k revision → number   (wire::row)
//! ```

use super::super::tables::CAUSAL;
use super::retries::Number;
use super::rows::{DAMAGED, number_of, numbered};
use super::{Applying, MachineError};
use model::{Revision, limits};
use std::collections::BTreeMap;
use storage::state::{Read, State};
use wire::row;

const SETTLED: u8 = b'k';

/// The last [`limits::CAUSAL_NUMBERS_KEPT_MAX`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    by_number: BTreeMap<Number, Revision>,
    by_revision: BTreeMap<Revision, Number>,
}

impl Settled {
    /// The revision of a put under a number.
    pub(super) fn revision(&self, number: &Number) -> Option<Revision> {
        self.by_number.get(number).copied()
    }

    fn insert(&mut self, number: Number, revision: Revision) {
        if let Some(before) = self.by_number.insert(number, revision) {
            self.by_revision.remove(&before);
        }
        self.by_revision.insert(revision, number);
    }

    /// The oldest, if they are too many.
    fn pop_beyond(&mut self, max: usize) -> Option<Revision> {
        let (revision, number) = match self.by_revision.len() > max {
            true => self.by_revision.pop_first()?,
            false => return None,
        };
        self.by_number.remove(&number);
        Some(revision)
    }
}

pub(super) fn load(read: &impl Read) -> Result<Settled, MachineError> {
    let (mut all, mut is_damaged) = (Settled::default(), false);
    read.scan(&[CAUSAL, SETTLED], Some(&[CAUSAL, SETTLED + 1]), &mut |key, row| {
        match number_of(&key).zip(row::decode(&row)) {
            Some((revision, number)) => all.insert(number, Revision(revision)),
            None => is_damaged = true,
        }
        !is_damaged
    })?;
    if is_damaged { Err(DAMAGED) } else { Ok(all) }
}

impl<S: State> Applying<'_, S> {
    /// A put of this site has a place that it does not know.
    pub(super) fn keep_settled(&mut self, number: Number, revision: Revision) {
        let settled = &mut self.modes.causal.retries.settled;
        settled.insert(number, revision);
        let gone = settled.pop_beyond(limits::CAUSAL_NUMBERS_KEPT_MAX);
        self.overlay.put(numbered(SETTLED, revision.0).to_vec(), row::encode(&number));
        if let Some(revision) = gone {
            self.overlay.remove(numbered(SETTLED, revision.0).to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ClientId;

    #[test]
    fn the_oldest_go_and_a_number_has_one_revision() {
        let number = |of| (ClientId(of), 1);
        let mut settled = Settled::default();
        for (of, revision) in [(7, 3), (8, 4), (7, 5)] {
            settled.insert(number(of), Revision(revision));
        }
        assert_eq!(settled.revision(&number(7)), Some(Revision(5)));
        assert_eq!((settled.pop_beyond(2), settled.pop_beyond(1)), (None, Some(Revision(4))));
        assert_eq!(settled.revision(&number(8)), None);
        assert_eq!(numbered(SETTLED, 7), *b"Kk\0\0\0\0\0\0\0\x07");
        assert_eq!(row::encode(&number(5)), b"\x01\x05\x01");
    }
}
