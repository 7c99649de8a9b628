//! Which records a remembered answer is about.
//!
//! A site may have several sets of a slot's records: those that it serves, a copy, what grows
//! beside that, what arrives. They come from one owner and are still not the same: one of them may
//! lack a write that another one has. So an answer is remembered with the records that the write is
//! in. It arrives with them, becomes a copy's with them, is served with them and goes with them; an
//! answer that outlived its write would acknowledge, when the write is sent again, what no site
//! has.
//!
//! They are forgotten by their age and by the limits all together ([`super::requests`]).

use super::apply::Applying;
use super::modes::ModeState;
use super::requests::ClientKey;
use model::{MoveId, SiteId, Slot, SlotRun};
use storage::state::State;

/// The records of a slot that an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// Those that this site serves or has frozen. Of slots of which it has none: what a version
    /// that did not distinguish them has left.
    Own,
    /// Those of the copy.
    Copied,
    /// Those that grow in the mirror of a site.
    Mirrored(SiteId),
    /// Those that a move brings.
    Staged(MoveId),
    /// Those of a part of the slot that this site borrows, under this generation.
    Borrowed(u64),
}

impl<S: State, M: ModeState> Applying<'_, S, M> {
    /// Records of slots become others: what is remembered goes with them, in the place of what is
    /// there.
    pub(crate) fn move_answers(&mut self, run: SlotRun, from: Whose, to: Whose) {
        self.drop_answers(run, to);
        self.add_answers(run, from, to);
    }

    /// Records of slots are this site's own now, in the place of those that it had, if it had any.
    pub(crate) fn serve_answers(&mut self, run: SlotRun, from: Whose, had_own: bool) {
        if had_own {
            self.drop_answers(run, Whose::Own);
        }
        self.add_answers(run, from, Whose::Own);
    }

    fn add_answers(&mut self, run: SlotRun, from: Whose, to: Whose) {
        M::follow_records(self, run, from, Some(to));
        for client_key in self.known.clients.client_keys(from, run) {
            match self.take_answers(client_key) {
                Ok(answers) => {
                    let client_key = ClientKey { whose: to, ..client_key };
                    for (sequence, floor, seen_ms, row) in answers {
                        self.take_over_answer(client_key, sequence, floor, seen_ms, &row);
                    }
                }
                Err(error) => self.failed = Some(error),
            }
        }
    }

    /// Records of slots go.
    pub(crate) fn drop_answers(&mut self, run: SlotRun, whose: Whose) {
        M::follow_records(self, run, whose, None);
        for client_key in self.known.clients.client_keys(whose, run) {
            self.forget(client_key);
        }
    }

    /// Records of many slots go.
    pub(crate) fn drop_all_answers(&mut self, whose: Whose, is_one: impl Fn(Slot) -> bool) {
        for slot in Slot::all().filter(|slot| is_one(*slot)) {
            M::follow_records(self, SlotRun::one(slot), whose, None);
        }
        for client_key in self.known.clients.client_keys(whose, SlotRun::ALL) {
            if client_key.slot.is_some_and(&is_one) {
                self.forget(client_key);
            }
        }
    }
}
