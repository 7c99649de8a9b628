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

/// The requests that wait for the end of a transfer.
#[derive(Debug, Default)]
pub(crate) struct LeaderTransfer {
    asked: Vec<Asked>,
}

impl LeaderTransfer {
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
    fn nobody_waits_past_the_deadline() {
        let (mut transfer, mut settled) = (asked(), Vec::new());
        transfer.give_up(Duration::from_millis(999), &mut settled);
        assert!(settled.is_empty());
        transfer.give_up(Duration::from_secs(1), &mut settled);
        assert!(matches!(settled[..], [(_, Err(Failure::Unknown { .. }))]));
    }
}
