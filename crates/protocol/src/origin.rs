//! Where a request comes from, and where its answer goes.

use crate::admission::Sender;
use crate::placement::Sampler;
use model::{Ballot, ClientName, JobName, NodeId, SiteId, Slot};
use wire::inter_site::{put_failover, take_failover};

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

/// Under which failover a site serves what it answers about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedUnder {
    /// Of a slot that it owns: that of the slot's epoch; [`Ballot::FIRST`]: none, or it is not
    /// served. Of a group that it has borrowed: the version of the registry up to which it has
    /// followed all failovers.
    pub failover: Ballot,
    /// Whether it has borrowed the group.
    pub borrowed: bool,
}

impl ServedUnder {
    pub(crate) fn to_wire(self) -> wire::peer::Served {
        wire::peer::Served { failover: put_failover(self.failover), borrowed: self.borrowed }
    }

    pub(crate) fn of_wire(served: &wire::peer::Served) -> ServedUnder {
        let failover = take_failover(served.failover);
        ServedUnder { failover, borrowed: served.borrowed }
    }
}

/// By what the failover is found under which a request of another node or site is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// About which slot, if about one: by its token as it is answered.
    pub(crate) slot: Option<Slot>,
    /// About a group that this site borrows: the failover under which it was served as the request
    /// came.
    pub(crate) lent: Option<Ballot>,
    /// What this site's leader had, which has answered. This node's state may be another one: it
    /// lags, or has seen a later failover.
    pub(crate) by_leader: Option<ServedUnder>,
}

impl Served {
    /// About no key.
    pub(crate) const NONE: Served = Served { slot: None, lent: None, by_leader: None };

    /// Whether it is about a key that has an owner.
    pub(crate) fn is_about_key(&self) -> bool {
        self.slot.is_some() || self.lent.is_some()
    }
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
    Node { node: NodeId, id: u64, served: Served },
    /// A node of another site, under its own number. In doubt: a leader here was sent it and lost.
    Site { site: SiteId, node: NodeId, id: u64, in_doubt: bool, served: Served, client: ClientName },
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
            Origin::Site { site, node, id, served, client, .. } => {
                let served = Served { by_leader: None, ..served };
                Origin::Site { site, node, id, in_doubt: true, served, client }
            }
            Origin::Routed { id, .. } => Origin::Routed { id, in_doubt: true },
            other => other,
        }
    }

    /// The same, now that this site's leader has answered it.
    pub(crate) fn served_by_leader(self, under: ServedUnder) -> Origin {
        match self {
            Origin::Site { site, node, id, in_doubt, served, client } => {
                let served = Served { by_leader: Some(under), ..served };
                Origin::Site { site, node, id, in_doubt, served, client }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lost_leader_had_does_not_count_for_the_next_one() {
        let (site, node, id, client) = (SiteId(1), NodeId(2), 3, ClientName::NONE);
        let served = Served { slot: Slot::new(4), ..Served::NONE };
        let origin = Origin::Site { site, node, id, in_doubt: false, served, client };
        let under = ServedUnder { failover: Ballot::FIRST, borrowed: false };
        let answered = origin.served_by_leader(under);
        let Origin::Site { served: by_leader, .. } = answered else { panic!("{answered:?}") };
        assert_eq!((by_leader.slot, by_leader.by_leader), (served.slot, Some(under)));
        let Origin::Site { served: later, in_doubt, .. } = answered.in_doubt() else {
            panic!("{answered:?}")
        };
        assert_eq!((later, in_doubt), (served, true));
    }
}
