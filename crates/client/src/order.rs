//! An order to move slots, which may be asked again as often as one likes.

use crate::call::{Caller, Repeat, deployment};
use crate::sequence::Begun;
use crate::{Error, v1};

/// Slots that are to be a site's, under one number: whoever is asked, and however often, it is done
/// once, and the answer tells how far it is.
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

    /// Asks for it, or how far it is.
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
