//! What an operator asks of a site under a number, so that asking again does it once.

use crate::{NodeId, SiteId, Taken};

/// A command of an operator. Its number and what came of it are remembered where it takes effect: in the
/// list of the site's members, or in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// Adds a node as a learner, which becomes a voter once it has caught up.
    AddNode {
        /// Its id.
        node: NodeId,
        /// Where its peer port is (`host:port`).
        address: String,
        /// It votes and keeps the log's order, but no data.
        witness: bool,
        /// Also where one of its id is a member and answers: that one is removed.
        force: bool,
    },
    /// Removes a node.
    RemoveNode {
        /// Its id.
        node: NodeId,
        /// Also if it can be reached while another voter cannot.
        force: bool,
    },
    /// Has others take over from a site that is lost; what is lost with it is accepted.
    /// [`crate::Answer::Loss`]. It is refused if any slot goes on from less than the inventories
    /// show before it is opened.
    Promote {
        /// The lost site.
        lost: SiteId,
        /// The site that takes the slots without a copy; `None`: its backup.
        by: Option<SiteId>,
        /// Sites that are not asked, whatever they may hold.
        without: Vec<SiteId>,
    },
    /// The same, with the preview that the operator accepted: refused if any slot goes on from less.
    PromoteAsReported {
        /// Who is lost.
        lost: SiteId,
        /// Who takes over what there is no copy of; `None`: its backup.
        by: Option<SiteId>,
        /// Sites that are not asked, whatever they may hold.
        without: Vec<SiteId>,
        /// Of [`crate::Answer::Foretold`].
        reported: Vec<Taken>,
    },
}

impl OperatorCommand {
    /// The lost site of a failover, and the site that takes the slots without a copy.
    pub fn promotes(&self) -> Option<(SiteId, Option<SiteId>)> {
        match self {
            OperatorCommand::Promote { lost, by, .. }
            | OperatorCommand::PromoteAsReported { lost, by, .. } => Some((*lost, *by)),
            _ => None,
        }
    }
}
