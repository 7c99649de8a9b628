//! An order to move slots, which may be repeated.

use crate::call::{Caller, Repeat, deployment};
use crate::sequence::Begun;
use crate::{Error, v1};

/// A request to move slots to a site, with a number: however often it is repeated, and at whichever
/// node, it takes effect once, and each answer has its progress.
pub struct MoveOrder<'a> {
    caller: &'a Caller,
    number: Begun<'a>,
    slots: String,
    to: String,
}

impl<'a> MoveOrder<'a> {
    pub(crate) fn new(caller: &'a Caller, slots: String, to: String) -> MoveOrder<'a> {
        MoveOrder { caller, number: caller.sequence.begin(), slots, to }
    }

    /// Sends the order, or asks for its progress.
    pub async fn ask(&self) -> Result<v1::MoveSlotsResponse, Error> {
        let message = v1::MoveSlotsRequest {
            slots: self.slots.clone(),
            to: self.to.clone(),
            request: Some(self.number.id()),
        };
        let ask = |channel, request| async move { deployment(channel).move_slots(request).await };
        Ok(self.caller.call(Repeat::Numbered, message, ask).await?.into_inner())
    }
}
