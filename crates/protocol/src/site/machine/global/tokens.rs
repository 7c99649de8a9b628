//! The right to serve a slot, as a site has it recorded.
//!
//! Exactly one site holds a slot at an epoch (DESIGN of global keys: ARCHITECTURE.md). What is here
//! is that site's own record of it, replicated among its nodes: a token changes hands by commands
//! and by nothing else, and what others believe about it is a hint.

use super::slot_rows::Value;
use super::tables;
use model::{BySlot, Epoch, SiteId, Slot, SlotRun};
use wire::row::{Code, EntryError, Input};

/// What a site has recorded of its right to serve a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Token {
    /// It never had it.
    #[default]
    Never,
    /// It serves the slot.
    Held(Epoch),
    /// It is handing the slot over, by the move of this number.
    Leaving {
        /// Its epoch here; the destination's is the next one.
        epoch: Epoch,
        /// Which move.
        number: u64,
        /// It serves the slot no more, as the destination may.
        frozen: bool,
    },
    /// It has handed the slot over.
    Gone {
        /// The destination's epoch.
        epoch: Epoch,
        /// The destination.
        to: SiteId,
    },
}

impl Token {
    /// Whether the slot is read and written here.
    pub fn serves(self) -> bool {
        matches!(self, Token::Held(_) | Token::Leaving { frozen: false, .. })
    }

    /// The epoch at which this site owns the slot, also while it is frozen for its next owner.
    pub fn owned_at(self) -> Option<Epoch> {
        match self {
            Token::Held(epoch) | Token::Leaving { epoch, .. } => Some(epoch),
            Token::Never | Token::Gone { .. } => None,
        }
    }

    /// The highest epoch that this site has seen.
    pub fn epoch(self) -> Epoch {
        match self {
            Token::Never => Epoch::default(),
            Token::Held(epoch) | Token::Leaving { epoch, .. } | Token::Gone { epoch, .. } => epoch,
        }
    }
}

impl Value for Token {
    const TABLE: u8 = tables::TOKENS;
}

impl Code for Token {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, number) = match *self {
            Token::Never => (0, 0),
            Token::Held(_) => (1, 0),
            Token::Leaving { number, frozen: false, .. } => (2, number),
            Token::Leaving { number, frozen: true, .. } => (3, number),
            Token::Gone { to, .. } => (4, u64::from(to.0)),
        };
        out.push(tag);
        (self.epoch(), number).put(out);
    }

    fn take(from: &mut Input) -> Result<Token, EntryError> {
        let (tag, (epoch, number)) = (from.byte()?, <(Epoch, u64)>::take(from)?);
        Ok(match (tag, u32::try_from(number)) {
            (0, _) => Token::Never,
            (1, _) => Token::Held(epoch),
            (2, _) => Token::Leaving { epoch, number, frozen: false },
            (3, _) => Token::Leaving { epoch, number, frozen: true },
            (4, Ok(to)) => Token::Gone { epoch, to: SiteId(to) },
            _ => return Err(from.malformed("token")),
        })
    }
}

/// The tokens of all slots but those of which nothing was ever noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens(BySlot<Token>);

impl Tokens {
    /// Those of the site that began the deployment, before anything was moved, or of any other one.
    pub(super) fn all_first(holds_all: bool) -> Tokens {
        let mut tokens = Tokens::default();
        tokens.set(SlotRun::ALL, Tokens::first(holds_all));
        tokens
    }

    /// What one of them is before it was moved.
    pub(in crate::site::machine) fn first(holds_all: bool) -> Token {
        if holds_all { Token::Held(Epoch::counted(1)) } else { Token::Never }
    }

    pub(in crate::site::machine) fn get(&self, slot: Slot) -> Token {
        self.run_at(slot).1
    }

    /// The token of a slot, and a slot up to which all have the same.
    pub(in crate::site::machine) fn run_at(&self, slot: Slot) -> (Slot, Token) {
        let (last, token) = self.0.run_at(slot);
        (last, token.copied().unwrap_or_default())
    }

    pub(in crate::site::machine) fn set(&mut self, run: SlotRun, token: Token) {
        self.0.set(run, Some(token).filter(|token| *token != Token::Never));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_as_they_are_read() {
        for (token, bytes) in [
            (Token::Held(Epoch::counted(3)), &[1, 3, 0][..]),
            (
                Token::Leaving { epoch: Epoch::counted(3), number: 300, frozen: false },
                &[2, 3, 0xac, 2],
            ),
            (Token::Leaving { epoch: Epoch::counted(3), number: 7, frozen: true }, &[3, 3, 7]),
            (Token::Gone { epoch: Epoch::counted(4), to: SiteId(2) }, &[4, 4, 2]),
        ] {
            let mut row = Vec::new();
            token.put(&mut row);
            assert_eq!(row, bytes);
            assert_eq!(Token::parse(bytes), Some((token, bytes.len())));
        }
        assert_eq!(Token::parse(&[9, 0, 0]), None);
        assert_eq!(Token::parse(&[1]), None);
    }
}
