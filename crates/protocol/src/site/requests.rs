//! Requests, from their arrival to where they are carried out.

use super::registrars::as_change;
use super::{Origin, Site, Ticket};
use crate::admission::{Admission, Arrival, Target, Wait, admit, group_of, target_of};
use crate::replica::leader_transfer::Asked;
use crate::replica::membership;
use crate::replica::moments;
use crate::replica::reads::{Due, WaitingRead};
use crate::replica::writes::Waiting;
use model::{
    Body, CausalCommand, Command, DeploymentCommand, Failure, OperatorCommand, ReadConsistency,
    Request, SiteId, Write, limits,
};
use std::time::Duration;
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::peer;

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn take_request(&mut self, ticket: Ticket, request: Request) {
        let deadline = request.deadline_ms.map_or(limits::REQUEST_DEADLINE, Duration::from_millis);
        let deadline = self.now.monotonic + deadline;
        let Request { direct, client, .. } = request;
        let origin = Origin::Client { ticket, direct, client };
        self.sessions.begin(origin, request.token);
        if self.replica.removed {
            let failure = Failure::NotServing("it was removed from its site");
            return self.settle(vec![(origin, Err(failure))]);
        }
        match request.redirect {
            true => self.take_or_redirect(origin, request.body, deadline),
            false => self.take_any(origin, request.body, deadline),
        }
    }

    /// A request of any origin: it goes where its keys are.
    pub(super) fn take_any(&mut self, origin: Origin, body: Body, deadline: Duration) {
        match &body {
            Body::Read { .. }
            | Body::Write(Command::Write { .. } | Command::Transaction { .. }) => {
                self.take_of_keys(origin, body, deadline);
            }
            _ => match as_change(body, self.machine.membership().is_some()) {
                Body::AtSite { site, command } => {
                    self.take_at_site(origin, site, *command, deadline);
                }
                body @ Body::Write(Command::Causal(CausalCommand::Retry { .. })) => {
                    self.take_retry(origin, body, deadline);
                }
                body => self.take_of_keys(origin, body, deadline),
            },
        }
    }

    /// One that its keyspace decides about, if it has one. Almost all requests are: a body is large,
    /// and is looked at here rather than moved.
    fn take_of_keys(&mut self, origin: Origin, body: Body, deadline: Duration) {
        if let Some(keyspace) = self.causal_keyspace(&body) {
            return match &body {
                Body::Write(Command::Write { write: Write::Clear, .. }) => {
                    self.take_clear(origin, keyspace, deadline);
                }
                Body::Write(Command::Causal(CausalCommand::Clear { .. })) => {
                    self.take_at_root(origin, body, deadline);
                }
                _ => self.take_in_session(origin, body, deadline),
            };
        }
        match target_of(&body, self) {
            Ok(target) => self.take(origin, body, target, deadline),
            Err(refusal) => self.settle(vec![(origin, Err(Failure::Refused(refusal)))]),
        }
    }

    /// A command that a site is to carry out, this one perhaps.
    pub(super) fn take_at_site(
        &mut self,
        origin: Origin,
        site: SiteId,
        mut command: Command,
        deadline: Duration,
    ) {
        self.narrow_order(site, &mut command);
        self.take(origin, Body::Write(command), Target::Site(site), deadline);
    }

    pub(super) fn take(&mut self, origin: Origin, body: Body, target: Target, deadline: Duration) {
        let group = group_of(&body, self);
        let arrival = Arrival { group, ..Arrival::new(target, &body, origin.sender()) };
        match admit(&arrival, self) {
            Admission::Refuse(failure) if target == Target::Own => {
                self.settle(vec![(origin, Err(failure))]);
            }
            here @ (Admission::Here | Admission::Wait(Wait::Index | Wait::Applied))
                if self.goes_straight(origin, &body, target) =>
            {
                if target == Target::Own {
                    self.clear_copies(&body);
                }
                self.carry_out(origin, body, here, deadline);
            }
            _ if self.answer_from_copy(origin, &body) => {}
            Admission::Here => {
                self.route(origin, body, target, deadline);
                // A write behind it may go straight, and must not come before it in the log.
                self.route_due();
            }
            _ => self.route(origin, body, target, deadline),
        }
    }

    /// Whether a request that is carried out here goes without [`crate::global::routing`], which
    /// keeps what another node may have to be sent: a write that leaves this node, or names a
    /// moment, which the log turns into one of this site's own. A read, and a leader's write, come
    /// back with all that is needed if their slot has moved meanwhile ([`Site::route_later`]).
    fn goes_straight(&self, origin: Origin, body: &Body, target: Target) -> bool {
        match (target, origin, body) {
            (Target::Own | Target::Site(_), ..) => true,
            (_, Origin::Client { .. } | Origin::Site { .. }, Body::Read { .. }) => true,
            (_, Origin::Client { .. } | Origin::Site { .. }, Body::Write(command)) => {
                self.leads() && !moments::names_one(command)
            }
            _ => false,
        }
    }

    /// A request that this site carries out.
    pub(super) fn take_here(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let here = admit(&Arrival::new(Target::Own, &body, origin.sender()), self);
        self.carry_out(origin, body, here, deadline);
    }

    /// A request that was admitted here.
    pub(super) fn carry_out(
        &mut self,
        origin: Origin,
        body: Body,
        here: Admission,
        deadline: Duration,
    ) {
        self.note_access(origin, &body);
        match body {
            Body::Read { keyspace, query, consistency } => {
                let due = match consistency {
                    ReadConsistency::Linearizable => Due::NotSettled,
                    ReadConsistency::Stale | ReadConsistency::Backup => Due::Applied,
                };
                let read = WaitingRead { origin, keyspace, query, consistency, deadline, due };
                self.take_read(read, here);
            }
            body if self.leads() => self.take_for_leader(origin, body, deadline),
            body => {
                if let Err(refused) = self.replica.forwarding.push(origin, body, deadline) {
                    self.settle(vec![refused]);
                }
            }
        }
    }

    /// A request that only the leader can carry out, at the leader.
    pub(super) fn take_for_leader(&mut self, origin: Origin, body: Body, deadline: Duration) {
        let refused = match body {
            Body::Write(command @ Command::Deployment(DeploymentCommand::Registrar(_))) => {
                return self.take_registrar_step(origin, command, deadline);
            }
            Body::Write(command) => return self.take_write(origin, command, deadline),
            Body::Registry { change, id } => {
                return self.take_change(origin, *change, id, deadline);
            }
            Body::ExplainPlacement { keyspace, key } => {
                return self.explain_placement(origin, keyspace, &key);
            }
            Body::ShowPlacementLedger => return self.show_placement_ledger(origin),
            Body::ListJobs => return self.show_jobs(origin),
            Body::ListLostWrites { failover, page, .. } => {
                return self.show_lost_writes(origin, failover, page);
            }
            Body::SwitchJob { job, paused } => return self.switch_job(origin, job, paused),
            Body::ShowRegistry => return self.take_view(origin, Vec::new(), false, deadline),
            Body::RecoverRegistry { without, accept } => {
                return self.take_view(origin, without, accept, deadline);
            }
            // No node forwards these.
            Body::Read { .. } | Body::AtSite { .. } => {
                self.sessions.end(origin);
                return;
            }
            Body::Operator(OperatorCommand::AddNode { node, address, witness, force, id }) => {
                let member = peer::Member { node: node.0, address, witness, ..Default::default() };
                return self.take_join(origin, member, (force, id), deadline);
            }
            Body::Operator(OperatorCommand::RemoveNode { node, force, id }) => {
                self.take_removal(origin, node, (force, id), deadline)
            }
            Body::Operator(OperatorCommand::Promote(promotion)) => {
                return self.take_promotion(origin, promotion, deadline);
            }
            Body::TransferLeader { node } => {
                membership::check_transfer(&self.replica.members, node).map(|()| {
                    self.transfer_to(node);
                    self.replica.leader_transfer.want(Asked { node, origin, deadline });
                })
            }
        };
        if let Err(error) = refused {
            self.settle(vec![(origin, Err(Failure::Membership(error)))]);
        }
    }

    pub(super) fn take_write(&mut self, origin: Origin, command: Command, deadline: Duration) {
        if let Some(why) = &self.replica.disk_full {
            return self.settle(vec![(origin, Err(Failure::DiskFull(why.clone())))]);
        }
        if self.rare.happens() && origin != Origin::Discard {
            let failure = Failure::Overloaded { what: "writes" };
            return self.settle(vec![(origin, Err(failure))]);
        }
        self.note_session_write(origin, &command);
        let size_bytes = command.properties().size_bytes;
        let write = Waiting { origin, command, size_bytes, deadline };
        if let Err(refused) = self.replica.writes.push(write) {
            self.settle(vec![refused]);
        }
    }
}
