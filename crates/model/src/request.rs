//! What a front asks of its site.

use crate::{
    Ballot, Bytes, ClientName, Command, JobName, KeyspaceId, NodeId, OperatorCommand, Query,
    RegistryChange, RequestId, SessionToken, SiteId,
};

/// One request to a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub body: Body,
    /// Give up after this many milliseconds; `None`: [`crate::limits::REQUEST_DEADLINE`].
    pub deadline_ms: Option<u64>,
    /// The client goes where its keys are by itself: for a slot that another site holds it wants a
    /// redirect ([`crate::Failure::Moved`]), not an answer. Counts at the node that is asked, and
    /// stays there.
    pub redirect: bool,
    /// The client goes where its keys are by itself, whether it wants a redirect now or was sent here for this
    /// request. So where it is does not show, and its accesses are not counted.
    pub direct: bool,
    /// Which client asks, for those that count accesses.
    pub client: ClientName,
    /// What the client's session has seen. `None`: the request belongs to no session, and its answer brings
    /// no token.
    pub token: Option<SessionToken>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A question to the state.
    Read {
        /// Where.
        keyspace: KeyspaceId,
        /// What.
        query: Query,
        /// How fresh the answer must be.
        consistency: ReadConsistency,
    },
    /// Something for the log.
    Write(Command),
    /// Something for the log of one site of the deployment.
    AtSite {
        /// Which site.
        site: SiteId,
        /// What.
        command: Box<Command>,
    },
    /// Has a site's backup take over from it ([`crate::Answer::Loss`]), or returns what that would lose
    /// ([`crate::Answer::Foretold`]).
    Promote {
        /// The lost site.
        lost: SiteId,
        /// The site that takes over; `None`: its backup.
        by: Option<SiteId>,
        /// Sites that are not asked, whatever they may hold.
        without: Vec<SiteId>,
        /// Whether to do it: what is lost is accepted.
        accept: bool,
    },
    /// Changes the registry. [`crate::Answer::Registered`], or [`crate::Answer::Keyspace`].
    Registry {
        /// How.
        change: RegistryChange,
        /// So that asking again does it once.
        id: Option<RequestId>,
    },
    /// A command of an operator's under a number: a repetition returns the outcome.
    Operator {
        /// The number.
        id: RequestId,
        /// What.
        command: OperatorCommand,
    },
    /// Returns the registrars, and whether they answer. [`crate::Answer::RegistryView`].
    ShowRegistry,
    /// Goes on with the registry without sites that are lost, or returns what that may cost.
    /// [`crate::Answer::RegistryView`].
    RecoverRegistry {
        /// The sites that are lost.
        without: Vec<SiteId>,
        /// Whether to do it.
        accept: bool,
    },
    /// Adds a node as a learner, which becomes a voter once it has caught up.
    AddNode {
        /// Its id.
        node: NodeId,
        /// Where its peer port is (`host:port`).
        address: String,
        /// It votes and keeps the log's order, but no data: the third of two nodes and a witness.
        witness: bool,
    },
    /// Removes a node.
    RemoveNode {
        /// Its id.
        node: NodeId,
    },
    /// Adds a node, also where one of its id is a member and answers: that one is removed.
    ForceAddNode {
        /// Its id.
        node: NodeId,
        /// Where its peer port is (`host:port`).
        address: String,
        /// It votes and keeps the log's order, but no data.
        witness: bool,
    },
    /// Removes a node, whichever others are left.
    ForceRemoveNode {
        /// Its id.
        node: NodeId,
    },
    /// Returns why a key is where it is, from the leader of its owner. [`crate::Answer::Placement`].
    ExplainPlacement {
        /// The key's keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: Bytes,
    },
    /// Returns what the site's leader advises. [`crate::Answer::PlacementLedger`].
    ShowPlacementLedger,
    /// Returns the jobs of the site's leader. [`crate::Answer::Jobs`].
    ListJobs,
    /// Pauses or resumes a job of the site's leader. [`crate::Answer::Jobs`].
    SwitchJob {
        /// Which.
        job: JobName,
        /// Whether it is to pause.
        paused: bool,
    },
    /// Returns which writes of a site failovers have lost. [`crate::Answer::LostWrites`].
    ListLostWrites {
        /// The site that made them.
        at: SiteId,
        /// The version that decided the failover; `None`: which lists the site has.
        failover: Option<Ballot>,
        /// The page of its list, from 0 on.
        page: u32,
    },
    /// Hands leadership to a node.
    TransferLeader {
        /// Its id.
        node: NodeId,
    },
}

impl Body {
    /// Where it keeps its number; `None`: it cannot have one.
    pub fn request_id_mut(&mut self) -> Option<&mut Option<RequestId>> {
        match self {
            Body::Write(Command::Write { request, .. } | Command::Transaction { request, .. }) => {
                Some(request)
            }
            Body::Registry { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Whether doing it twice is the same as doing it once.
    ///
    /// A promotion is: a second request joins the one that is under way, and once the registry has
    /// it, that is the answer.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Body::Read { .. }
            | Body::Promote { .. }
            | Body::TransferLeader { .. }
            | Body::ShowRegistry
            | Body::ExplainPlacement { .. }
            | Body::ShowPlacementLedger
            | Body::ListJobs
            | Body::ListLostWrites { .. }
            | Body::SwitchJob { .. }
            | Body::Operator { .. }
            | Body::RecoverRegistry { .. } => true,
            Body::Registry { id, .. } => id.is_some(),
            Body::Write(command) => command.properties().is_repeatable,
            Body::AtSite { command, .. } => command.properties().is_repeatable,
            Body::AddNode { .. }
            | Body::RemoveNode { .. }
            | Body::ForceAddNode { .. }
            | Body::ForceRemoveNode { .. } => false,
        }
    }
}

/// How fresh a read's answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadConsistency {
    /// It shows every write that was acknowledged before the read began.
    #[default]
    Linearizable,
    /// It shows a state that this node once had, perhaps an old one. Never waits.
    Stale,
    /// The same, of another site's mirror: asked of that site's backup by a node that cannot reach it.
    Backup,
}

impl Request {
    /// A request with the default deadline, of no session.
    pub fn new(body: Body) -> Request {
        Request {
            body,
            deadline_ms: None,
            redirect: false,
            direct: false,
            client: ClientName::NONE,
            token: None,
        }
    }

    /// A read.
    pub fn read(keyspace: KeyspaceId, query: Query, consistency: ReadConsistency) -> Request {
        Request::new(Body::Read { keyspace, query, consistency })
    }

    /// A write.
    pub fn write(command: Command) -> Request {
        Request::new(Body::Write(command))
    }
}
