//! Leadership on its way to another node, and the requests for that.
//!
//! A transfer may fail: the other node must hold the whole log first, and then win an election that
//! this node only gives it a head start in. So the request is answered when the next leader is
//! known, and not before.

use super::writes::{Settled, unknown};
use crate::origin::Origin;
use model::{Answer, Failure, MembershipError, NodeId};
use std::time::Duration;

/// A request that a node lead.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) node: NodeId,
    pub(crate) origin: Origin,
    pub(crate) deadline: Duration,
}

/// The requests that wait for the end of a transfer, and where the last one of its own accord went.
#[derive(Debug, Default)]
pub(crate) struct LeaderTransfer {
    asked: Vec<Asked>,
    /// The term, and the node that this one tried to hand over to in it.
    last_tried: Option<(u64, NodeId)>,
}

impl LeaderTransfer {
    /// The node to hand over to, of those that are able, with how much of the log each has: the one
    /// with most of it. One that did not take over when it was tried comes last: it may load a
    /// snapshot, or its disk may be full, which this node cannot see.
    pub(crate) fn choose(
        &mut self,
        term: u64,
        able: impl Iterator<Item = (u64, NodeId)>,
    ) -> Option<NodeId> {
        let is_other = |node| self.last_tried != Some((term, node));
        let (.., node) = able.map(|(matched, node)| (is_other(node), matched, node)).max()?;
        self.last_tried = Some((term, node));
        Some(node)
    }

    pub(crate) fn want(&mut self, asked: Asked) {
        self.asked.push(asked);
    }

    /// Settles what is decided by now. `transferring`: this node leads and tries to hand over.
    pub(crate) fn follow(
        &mut self,
        leader: Option<NodeId>,
        transferring: bool,
        settled: &mut Vec<Settled>,
    ) {
        let Some(leader) = leader.filter(|_| !transferring) else { return };
        for Asked { node, origin, .. } in self.asked.drain(..) {
            let outcome = match leader == node {
                true => Ok(Answer::Flag(true)),
                false => Err(Failure::Membership(MembershipError::NotHandedOver(node))),
            };
            settled.push((origin, outcome));
        }
    }

    /// Gives up what has waited past its deadline.
    pub(crate) fn give_up(&mut self, now: Duration, settled: &mut Vec<Settled>) {
        let (late, waiting) =
            std::mem::take(&mut self.asked).into_iter().partition(|asked| asked.deadline <= now);
        self.asked = waiting;
        let late: Vec<Asked> = late;
        for asked in late {
            let why = "there is no leader yet; `portolan status` shows who does";
            settled.push((asked.origin, Err(unknown(why))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Ticket;

    const N2: NodeId = NodeId(2);

    fn asked() -> LeaderTransfer {
        let mut transfer = LeaderTransfer::default();
        let origin = Origin::client(Ticket(1));
        transfer.want(Asked { node: N2, origin, deadline: Duration::from_secs(1) });
        transfer
    }

    fn outcome(leader: Option<u64>, transferring: bool) -> Option<Result<Answer, Failure>> {
        let mut settled = Vec::new();
        asked().follow(leader.map(NodeId), transferring, &mut settled);
        settled.pop().map(|(_, outcome)| outcome)
    }

    #[test]
    fn it_is_answered_when_it_is_known_who_leads() {
        assert_eq!(outcome(Some(1), true), None, "still trying");
        assert_eq!(outcome(None, false), None, "an election");
        assert_eq!(outcome(Some(2), false), Some(Ok(Answer::Flag(true))));
        let failed = Failure::Membership(MembershipError::NotHandedOver(N2));
        assert_eq!(outcome(Some(1), false), Some(Err(failed.clone())), "given up");
        assert_eq!(outcome(Some(3), false), Some(Err(failed)), "another was elected");
    }

    #[test]
    fn a_node_that_did_not_take_over_is_tried_last() {
        let mut transfer = LeaderTransfer::default();
        let able = || [(9, NodeId(2)), (9, NodeId(3)), (7, NodeId(4))].into_iter();
        assert_eq!(
            [(); 3].map(|()| transfer.choose(5, able())),
            [3, 2, 3].map(|n| Some(NodeId(n)))
        );
        assert_eq!(transfer.choose(6, able()), Some(NodeId(3)), "a new term");
        assert_eq!(transfer.choose(6, able().skip(1).take(1)), Some(NodeId(3)), "the only one");
        assert_eq!(transfer.choose(6, able().skip(1)), Some(NodeId(4)));
        assert_eq!(transfer.choose(6, [].into_iter()), None);
    }

    #[test]
    fn nobody_waits_past_the_deadline() {
        let (mut transfer, mut settled) = (asked(), Vec::new());
        transfer.give_up(Duration::from_millis(999), &mut settled);
        assert!(settled.is_empty());
        transfer.give_up(Duration::from_secs(1), &mut settled);
        assert!(matches!(settled[..], [(_, Err(Failure::Unknown { .. }))]));
    }
}
