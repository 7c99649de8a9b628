//! What a front asks of its site.

use crate::{
    Ballot, Bytes, ClientName, Command, JobName, KeyspaceId, NodeId, OperatorCommand, Properties,
    Query, RegistryChange, RequestId, SessionToken, SiteId, excerpt,
};
use std::fmt;

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
    /// The client goes where its keys are by itself, whether it wants a redirect now or was sent
    /// here for this request. So where it is does not show, and its accesses are not counted.
    pub direct: bool,
    /// Which client asks, for those that count accesses.
    pub client: ClientName,
    /// What the client's session has seen. `None`: the request belongs to no session, and its
    /// answer brings no token.
    pub token: Option<SessionToken>,
}

/// What is asked. [`Body::properties`] has what else than carrying it out depends on the kind.
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
    /// Changes the registry. [`crate::Answer::Registered`], or [`crate::Answer::Keyspace`].
    Registry {
        /// How.
        change: Box<RegistryChange>,
        /// So that asking again does it once.
        id: Option<RequestId>,
    },
    /// A command of an operator's.
    Operator(OperatorCommand),
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
    /// Returns why a key is where it is, from the leader of its owner.
    /// [`crate::Answer::Placement`].
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

    /// What others than the site that carries it out need to know of it.
    pub fn properties(&self) -> BodyProperties {
        let changes = BodyProperties::default();
        let repeats = BodyProperties { is_repeatable: true, ..changes };
        let asks = BodyProperties { is_question: true, ..repeats };
        match self {
            Body::Read { .. } | Body::ExplainPlacement { .. } | Body::ListLostWrites { .. } => {
                BodyProperties { crosses_sites: true, ..asks }
            }
            Body::ShowRegistry | Body::ShowPlacementLedger | Body::ListJobs => asks,
            Body::SwitchJob { .. } | Body::RecoverRegistry { .. } => repeats,
            Body::TransferLeader { .. } => BodyProperties { manages_nodes: true, ..repeats },
            Body::Registry { id, .. } => BodyProperties { is_repeatable: id.is_some(), ..changes },
            Body::Write(command) => {
                let Properties { is_repeatable, crosses_sites, size_bytes } = command.properties();
                BodyProperties { is_repeatable, crosses_sites, size_bytes, ..changes }
            }
            // It crosses sites as a write.
            Body::AtSite { command, .. } => {
                BodyProperties { is_repeatable: command.properties().is_repeatable, ..changes }
            }
            Body::Operator(command) => command.properties(),
        }
    }

    /// The keyspace whose keys it reads or writes.
    pub fn keyspace(&self) -> Option<KeyspaceId> {
        match self {
            Body::Read { keyspace, .. }
            | Body::Write(
                Command::Write { keyspace, .. } | Command::Transaction { keyspace, .. },
            ) => Some(*keyspace),
            _ => None,
        }
    }
}

/// As traces write it.
impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Body::Read { query: Query::Get { key }, .. } => write!(f, "get {}", excerpt(key)),
            Body::Write(command) => command.fmt(f),
            Body::AtSite { site, command } => write!(f, "{site}: {command}"),
            Body::Registry { change, .. } => change.fmt(f),
            Body::Operator(command) => command.fmt(f),
            Body::TransferLeader { node } => write!(f, "transfer to {node}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What others than the site that carries it out need to know of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyProperties {
    /// Whether doing it twice is the same as doing it once.
    pub is_repeatable: bool,
    /// Whether another site may send it.
    pub crosses_sites: bool,
    /// Whether it changes nothing.
    pub is_question: bool,
    /// Whether it is about the nodes of the site: which there are, or which one leads.
    pub manages_nodes: bool,
    /// About how much memory its command takes, for limits.
    pub size_bytes: usize,
}

/// How fresh a read's answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadConsistency {
    /// It shows every write that was acknowledged before the read began.
    #[default]
    Linearizable,
    /// It shows a state that this node once had, perhaps an old one. Never waits.
    Stale,
    /// The same, of another site's mirror: asked of that site's backup by a node that cannot reach
    /// it.
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
