//! Commands of the mode of causal keys: the order at its root, and the order as each site imports it.

use super::Properties;
use crate::{CausalWrite, Import, Offer, Position};
use std::fmt;

/// A command of the mode of causal keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CausalCommand {
    /// Writes of a site get their positions, at the region's root. Those that have one keep it; after a gap
    /// nothing is done. [`crate::Answer::Done`] with the site's last revision that has a position.
    Order {
        /// The epoch of the root that is to order them: another one refuses.
        epoch: u16,
        /// The writes.
        offer: Offer,
    },
    /// Takes over what lies after `from` up to `upto` in the order, unless the site is elsewhere in it.
    /// [`crate::Answer::Done`].
    Import {
        /// Where the site must be.
        from: Position,
        /// Where it is from here on.
        upto: Position,
        /// What lies between, of what this site holds, in order.
        entries: Vec<Import>,
    },
    /// Every site has imported the order up to there: the root keeps no more of it. [`crate::Answer::Done`].
    Trim {
        /// The last position that goes.
        upto: Position,
    },
}

impl CausalCommand {
    pub(super) fn properties(&self) -> Properties {
        let bytes = |writes: &[CausalWrite]| writes.iter().map(CausalWrite::payload_bytes).sum();
        match self {
            CausalCommand::Order { offer, .. } => {
                Properties::new(true, true).carrying(bytes(&offer.writes))
            }
            CausalCommand::Import { entries, .. } => {
                let of_entry = |entry: &Import| match entry {
                    Import::Own(_) => 0,
                    Import::Other { write, .. } => write.payload_bytes(),
                };
                Properties::new(true, false).carrying(entries.iter().map(of_entry).sum())
            }
            CausalCommand::Trim { .. } => Properties::new(true, false),
        }
    }
}

impl fmt::Display for CausalCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CausalCommand::Order { epoch, offer } => {
                let last = offer.writes.last().map_or(offer.after, |write| write.revision);
                write!(f, "order {}: {} to {} in epoch {epoch}", offer.site, offer.after, last)
            }
            CausalCommand::Import { from, upto, entries } => {
                write!(f, "import {from} to {upto}, {} entries", entries.len())
            }
            CausalCommand::Trim { upto } => write!(f, "trim the order up to {upto}"),
        }
    }
}
