//! Operators' changes of the site's members, at its leader.

use super::{Origin, Site};
use crate::replica::contact::ticks_of_the_lost;
use crate::replica::membership::{self, Wanted};
use model::{Answer, Failure, MembershipError, NodeId, RequestId};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    /// Another node asks for something that the next leader is to do. The answer leaves before
    /// anything that would make that node doubt what became of its request.
    pub(super) fn send_on_to_next_leader(&mut self, requester: Origin) {
        self.settle(vec![(requester, Err(Failure::NoLeader))]);
        self.send_replies();
        self.transfer_leadership();
    }

    /// The tick that it is now, and the one by which it is known that a member is lost, `times`
    /// over; before a request's deadline, so that its sender receives the reason.
    pub(super) fn timeout(&self, times: u64, deadline: Duration) -> (u64, u64) {
        let ticks = self.replica.contact.ticks();
        let left = deadline.saturating_sub(self.now.monotonic);
        let ticks_left = (left.as_nanos() / self.options.tick.as_nanos()) as u64;
        (ticks, ticks + (times * ticks_of_the_lost(&self.options) as u64).min(ticks_left))
    }

    pub(super) fn take_removal(
        &mut self,
        origin: Origin,
        node: NodeId,
        (force, id): (bool, Option<RequestId>),
        deadline: Duration,
    ) -> Result<(), MembershipError> {
        // Until a majority goes by it, nothing is answered of the last change.
        if self.replica.is_settled() {
            if membership::is_done(&self.replica.members, id) {
                self.settle(vec![(origin, Ok(Answer::Flag(true)))]);
                return Ok(());
            }
            membership::check_remove(&self.replica.members, node)?;
        }
        if matches!(origin, Origin::Node { .. }) && node == self.options.node {
            self.send_on_to_next_leader(origin);
            return Ok(());
        }
        let (asked_at_tick, refuse_at_tick) = self.timeout(2, deadline);
        self.replica.membership.want(Wanted::Leave {
            node,
            force,
            asked_at_tick,
            refuse_at_tick,
            id,
            origin,
            deadline,
        });
        Ok(())
    }

    pub(super) fn take_join(
        &mut self,
        origin: Origin,
        member: peer::Member,
        (force, id): (bool, Option<RequestId>),
        deadline: Duration,
    ) {
        if self.replica.is_settled() && membership::is_done(&self.replica.members, id) {
            return self.settle(vec![(origin, Ok(Answer::Flag(true)))]);
        }
        let (_, refuse_at_tick) = self.timeout(3, deadline);
        match membership::check_add(&self.replica.members, &member, force) {
            Ok(()) => {
                let asked_in_silence = self.replica.is_lost(&self.options, NodeId(member.node));
                self.replica.membership.want(Wanted::Join {
                    member,
                    force,
                    asked_in_silence,
                    refuse_at_tick,
                    id,
                    origin,
                    deadline,
                });
            }
            Err(error) => self.settle(vec![(origin, Err(Failure::Membership(error)))]),
        }
    }
}
