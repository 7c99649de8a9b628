//! Where a request comes from, and where its answer goes.

use crate::admission::Sender;
use crate::placement::Sampler;
use model::{Ballot, ClientName, JobName, NodeId, SiteId, Slot};

/// The shell's name for a request; it comes back with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The site by which a request entered the deployment, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// This one: a client that asks it about all keys.
    Here,
    /// Another one, which has forwarded it.
    Site(SiteId),
    /// A client that goes where its keys are by itself. Where it is does not show; if it counted as
    /// one of the owner's, no key would ever have a better place (`X5` of the design).
    Unknown,
}

/// Where a request comes from, for those that count accesses.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// By which site.
    pub entry: Entry,
    /// Of which client.
    pub client: ClientName,
    /// Of the thread that takes it in.
    pub sampler: &'a Sampler,
}

/// The place that an answer goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client of this node. `direct`: it goes where its keys are by itself.
    Client { ticket: Ticket, direct: bool, client: ClientName },
    /// A client of this node, with a request that was sent to an earlier leader and not answered:
    /// whatever the outcome now, it may have been done then.
    Doubtful(Ticket),
    /// Another node, under its own number.
    Node { node: NodeId, id: u64 },
    /// A node of another site, under its own number. In doubt: a leader here was sent it and lost.
    /// About which slot, if about one.
    Site {
        site: SiteId,
        node: NodeId,
        id: u64,
        in_doubt: bool,
        slot: Option<Slot>,
        /// About a group that this site borrows: the failover under which it was served as the
        /// request came.
        lent: Option<Ballot>,
        client: ClientName,
    },
    /// A request of [`crate::global::routing`] that this site carries out itself.
    Routed { id: u64, in_doubt: bool },
    /// A job of this site's leader, under its number.
    Job { job: JobName, id: u64 },
    /// A change of the registry that this site makes: a step of a registrar.
    Registrar(u64),
    /// None: the site itself, or a request that was already answered as unknown.
    Discard,
}

impl Origin {
    /// A client that asks this site about all keys.
    #[cfg(test)]
    pub(crate) fn client(ticket: Ticket) -> Origin {
        Origin::Client { ticket, direct: false, client: ClientName::NONE }
    }

    /// How admission sees it.
    pub(crate) fn sender(&self) -> Sender {
        match self {
            Origin::Site { .. } => Sender::Site,
            _ => Sender::Client,
        }
    }

    /// Which client it is of, as far as that is known.
    pub(crate) fn client_name(&self) -> ClientName {
        match self {
            Origin::Client { client, .. } | Origin::Site { client, .. } => *client,
            _ => ClientName::NONE,
        }
    }

    /// The same, now that a leader was lost that was sent the request.
    pub(crate) fn in_doubt(self) -> Origin {
        match self {
            Origin::Client { ticket, .. } => Origin::Doubtful(ticket),
            Origin::Site { site, node, id, slot, lent, client, .. } => {
                Origin::Site { site, node, id, in_doubt: true, slot, lent, client }
            }
            Origin::Routed { id, .. } => Origin::Routed { id, in_doubt: true },
            other => other,
        }
    }
}
