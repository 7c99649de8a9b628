//! What an operator asks of a site about its nodes, and about other sites that are lost.
//!
//! A command may bear a number, so that asking again does it once: the number and what came of it
//! are remembered where it takes effect, in the list of the site's members, or in the registry.

use crate::{Body, BodyProperties, NodeId, RequestId, SiteId, Taken};
use std::fmt;

/// A command of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// Adds a node as a learner, which becomes a voter once it has caught up.
    AddNode {
        /// Its id.
        node: NodeId,
        /// Where its peer port is (`host:port`).
        address: String,
        /// It votes and keeps the log's order, but no data: the third of two nodes and a witness.
        witness: bool,
        /// Also where one of its id is a member and answers: that one is removed.
        force: bool,
        /// So that a repetition returns the outcome.
        id: Option<RequestId>,
    },
    /// Removes a node.
    RemoveNode {
        /// Its id.
        node: NodeId,
        /// Also if it can be reached while another voter cannot.
        force: bool,
        /// So that a repetition returns the outcome.
        id: Option<RequestId>,
    },
    /// Has others take over from a site that is lost.
    Promote(Promotion),
}

/// Others take over from a site that is lost ([`crate::Answer::Loss`]), or it is returned what that
/// would lose ([`crate::Answer::Foretold`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// The lost site.
    pub lost: SiteId,
    /// The site that takes the slots without a copy; `None`: its backup.
    pub by: Option<SiteId>,
    /// Sites that are not asked, whatever they may hold.
    pub without: Vec<SiteId>,
    /// What may be lost.
    pub accepts: AcceptedLoss,
}

/// What an operator accepts to be lost with a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcceptedLoss {
    /// Nothing: it is a preview.
    Nothing,
    /// What the inventories show. It is refused if any slot goes on from less before it is opened.
    AsFound {
        /// So that a repetition returns the outcome.
        id: Option<RequestId>,
    },
    /// What a preview showed. It is refused if any slot goes on from less.
    AsReported {
        /// So that a repetition returns the outcome.
        id: RequestId,
        /// Of [`crate::Answer::Foretold`].
        reported: Vec<Taken>,
    },
}

impl Promotion {
    /// The site's backup takes over, whatever is lost with that.
    pub fn of(lost: SiteId) -> Promotion {
        Promotion {
            lost,
            by: None,
            without: Vec::new(),
            accepts: AcceptedLoss::AsFound { id: None },
        }
    }
}

impl From<Promotion> for Body {
    fn from(promotion: Promotion) -> Body {
        Body::Operator(OperatorCommand::Promote(promotion))
    }
}

impl OperatorCommand {
    /// What others than the site that carries it out need to know of it.
    pub(crate) fn properties(&self) -> BodyProperties {
        let of_nodes = BodyProperties { manages_nodes: true, ..BodyProperties::default() };
        match self {
            OperatorCommand::AddNode { id, .. } | OperatorCommand::RemoveNode { id, .. } => {
                BodyProperties { is_repeatable: id.is_some(), ..of_nodes }
            }
            // A second request joins the one that is under way, and once the registry has it, that
            // is the answer.
            OperatorCommand::Promote(_) => BodyProperties {
                is_repeatable: true,
                crosses_sites: true,
                ..BodyProperties::default()
            },
        }
    }
}

/// As traces write it.
impl fmt::Display for OperatorCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let force = |force: &bool| if *force { "force " } else { "" };
        match self {
            OperatorCommand::AddNode { node, witness, force: forced, .. } => {
                let role = if *witness { " as witness" } else { "" };
                write!(f, "{}add {node}{role}", force(forced))
            }
            OperatorCommand::RemoveNode { node, force: forced, .. } => {
                write!(f, "{}remove {node}", force(forced))
            }
            OperatorCommand::Promote(promotion) => write!(f, "{promotion:?}"),
        }
    }
}
