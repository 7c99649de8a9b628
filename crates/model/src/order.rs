//! Slots that an operator orders away: what a site answers to that.

use crate::{Epoch, MoveError, SiteId, SlotSet};

/// What came of an operator's order at one site, and what that site has recorded of its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ordered {
    /// The moves that were begun for it, and how far they are.
    pub moves: Vec<OrderedMove>,
    /// Why nothing (more) was begun although the site holds slots of the order.
    pub refused: Option<MoveError>,
    /// What the site's tokens state of the order's slots; not of those that it never had.
    pub holdings: Vec<Holding>,
}

/// A move that was begun for an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedMove {
    /// Its number at the source.
    pub number: u64,
    /// What it was begun with.
    pub slots: SlotSet,
    /// What has gone to the destination, once it is over; `None`: it is under way.
    pub gone: Option<SlotSet>,
}

/// Slots of which a site has the same record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which.
    pub slots: SlotSet,
    /// The highest epoch of them that the site has seen.
    pub epoch: Epoch,
    /// What they are to the site.
    pub held: Held,
}

/// What a slot is to a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It serves it.
    Here,
    /// It is handing it over, by the move of this number.
    Leaving(SiteId, u64),
    /// It has handed it over.
    Gone(SiteId),
}
