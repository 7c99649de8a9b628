//! The members of the site, and how they change.
//!
//! One change at a time, each a committed entry. A node joins as a learner and becomes a voter
//! once it has caught up; the leader drives that, by the members' list itself, so that the next
//! leader goes on where the last one stopped.
//!
//! A node that lost its disk has forgotten its votes and its entries, so it must not take part
//! under its old membership. Each life of a node has an *incarnation*, drawn when its disk was
//! empty; asking to join as a known node with a new incarnation first removes the old life and then
//! adds the new one as a learner. Until that is committed the node is silent.
//!
//! A leader that is to be removed hands over first, and the next leader removes it. One that finds
//! itself removed all the same (by a change that the leader before it had proposed) steps down.
//!
//! A *witness* votes and keeps the log, but no data: the third of two nodes and a witness. It
//! stands back in elections, and hands leadership on at once if it has to win one.

use super::writes::Settled;
use crate::origin::Origin;
use model::{Failure, MembershipError, NodeId, RequestId, limits};
use std::time::Duration;
use wire::peer::{Member, MemberChange, MemberChangeKind, Members, MembersChange, Numbered};

/// A learner this many entries behind becomes a voter: the rest arrives with the next messages.
pub(crate) const CAUGHT_UP_ENTRIES: u64 = 1_000;

/// A change with the request that waits for it.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// This life of a node is to be a member.
    Join {
        member: Member,
        /// Also in the place of a life that answers.
        force: bool,
        /// The life in whose place it would come was silent when this one last asked. An earlier
        /// request does not count: who asked then may have given up since, and the site would
        /// lose a member in vain.
        asked_in_silence: bool,
        /// While one answers, it waits until this tick of the leader's for it to fall silent.
        /// Silence is counted in ticks, too: a pause of the leader is none.
        refuse_at_tick: u64,
        /// The number that the operator gave it.
        id: Option<RequestId>,
        origin: Origin,
        deadline: Duration,
    },
    /// A node is to be gone.
    Leave {
        node: NodeId,
        /// Also a voter that answers, while others do not.
        force: bool,
        asked_at_tick: u64,
        /// A voter that answers waits until this tick of the leader's for a message of each of the
        /// others, unless one is known to be lost.
        refuse_at_tick: u64,
        id: Option<RequestId>,
        origin: Origin,
        deadline: Duration,
    },
}

/// What a leader looks at to decide about requested changes.
pub(crate) struct Context<'a> {
    pub(crate) members: &'a Members,
    /// Ticks that it has counted.
    pub(crate) ticks: u64,
    /// Whether a member is silent.
    pub(crate) is_lost: &'a dyn Fn(NodeId) -> bool,
    /// The tick after which a message of a member last came.
    pub(crate) contact_tick: &'a dyn Fn(NodeId) -> u64,
}

/// What to do next about one requested change.
#[derive(Debug, PartialEq)]
enum Next {
    Done,
    Propose(MembersChange),
    Wait,
    Refuse(MembershipError),
}

/// The changes that wait at this node for its leadership to carry them out.
#[derive(Default)]
pub(crate) struct Membership {
    wanted: Vec<Wanted>,
}

impl Membership {
    pub(crate) fn is_idle(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Takes a change in. A repetition before the answer is the same change.
    pub(crate) fn want(&mut self, wanted: Wanted) {
        let origin = wanted.origin();
        let asks_again = |one: &&mut Wanted| one.origin() == origin && origin != Origin::Discard;
        match (self.wanted.iter_mut().find(asks_again), &wanted) {
            (
                Some(Wanted::Join { asked_in_silence: earlier, .. }),
                Wanted::Join { asked_in_silence, .. },
            ) => *earlier = *asked_in_silence,
            (Some(_), _) => {}
            (None, _) => self.wanted.push(wanted),
        }
    }

    /// Settles the requested changes that are done and returns the one to propose next, if any.
    pub(crate) fn next(
        &mut self,
        context: &Context<'_>,
        settled: &mut Vec<Settled>,
    ) -> Option<MembersChange> {
        let mut proposal = None;
        self.wanted.retain_mut(|wanted| {
            if proposal.is_some() {
                return true;
            }
            match wanted.next(context) {
                Next::Wait => true,
                Next::Refuse(error) => {
                    settled.push((wanted.take_origin(), Err(Failure::Membership(error))));
                    false
                }
                Next::Propose(change) => {
                    proposal = Some(change);
                    true
                }
                Next::Done => {
                    settled.push((wanted.take_origin(), Ok(model::Answer::Flag(true))));
                    false
                }
            }
        });
        proposal
    }

    /// The requests to remove this node, `own`, for the leader that comes after it.
    pub(crate) fn take_leaving(
        &mut self,
        own: NodeId,
    ) -> Vec<(Origin, (bool, Option<RequestId>), Duration)> {
        let mut leaving = Vec::new();
        self.wanted.retain(|wanted| match wanted {
            Wanted::Leave { node, force, id, origin, deadline, .. } if *node == own => {
                leaving.push((*origin, (*force, *id), *deadline));
                false
            }
            _ => true,
        });
        leaving
    }

    /// Gives up what has waited past its deadline, or everything when this node, `own`, no longer
    /// leads; but not its own removal, for which it handed leadership over.
    pub(crate) fn give_up(
        &mut self,
        now: Duration,
        own: NodeId,
        leads: bool,
        settled: &mut Vec<Settled>,
    ) {
        self.wanted.retain_mut(|wanted| {
            let is_own_removal = matches!(wanted, Wanted::Leave { node, .. } if *node == own);
            let (Wanted::Join { deadline, .. } | Wanted::Leave { deadline, .. }) = wanted;
            if (leads || is_own_removal) && *deadline > now {
                return true;
            }
            let why = "the change of the membership did not end in time; `portolan status` shows where it is";
            settled.push((wanted.take_origin(), Err(Failure::Unknown { why })));
            false
        });
    }
}

impl Wanted {
    fn take_origin(&mut self) -> Origin {
        let (Wanted::Join { origin, .. } | Wanted::Leave { origin, .. }) = self;
        std::mem::replace(origin, Origin::Discard)
    }

    fn origin(&self) -> Origin {
        let (Wanted::Join { origin, .. } | Wanted::Leave { origin, .. }) = self;
        *origin
    }

    fn next(&self, context: &Context<'_>) -> Next {
        let Context { members, ticks, is_lost, .. } = *context;
        let (Wanted::Join { id, .. } | Wanted::Leave { id, .. }) = self;
        if is_done(members, *id) {
            return Next::Done;
        }
        match self {
            Wanted::Leave { node, force, asked_at_tick, refuse_at_tick, .. } => {
                let Some(member) = find(members, *node) else { return Next::Done };
                if members.voters == [node.0] {
                    return Next::Refuse(MembershipError::LastVoter(*node));
                }
                let is_other_lost = |voter: &u64| *voter != node.0 && is_lost(NodeId(*voter));
                let may_come = !members.voters.iter().any(is_other_lost);
                match remaining(context, *node, *asked_at_tick) {
                    Err(_) if !force && may_come && ticks < *refuse_at_tick => Next::Wait,
                    Err(error) if !force => Next::Refuse(error),
                    _ => propose(MemberChangeKind::Remove, member, *id),
                }
            }
            Wanted::Join { member, force, asked_in_silence, refuse_at_tick, .. } => {
                let is_free = |node| *asked_in_silence && is_lost(node);
                match find(members, NodeId(member.node)) {
                    Some(known) if known.incarnation == member.incarnation => Next::Done,
                    // Announced by `member add`, and now it is here.
                    Some(known) if known.incarnation == 0 && is_learner(members, member.node) => {
                        propose(MemberChangeKind::Listen, member, *id)
                    }
                    // Another machine has this id, or the life that was here fell silent a moment
                    // ago.
                    Some(known)
                        if known.incarnation != 0 && !force && !is_free(NodeId(known.node)) =>
                    {
                        match ticks < *refuse_at_tick {
                            true => Next::Wait,
                            false => Next::Refuse(in_use(known)),
                        }
                    }
                    // Only what comes after it carries the command out.
                    Some(known) => propose(MemberChangeKind::Remove, known, None),
                    None => propose(MemberChangeKind::Listen, member, *id),
                }
            }
        }
    }
}

fn in_use(member: &Member) -> MembershipError {
    MembershipError::IdInUse { node: NodeId(member.node), address: member.address.clone() }
}

fn propose(kind: MemberChangeKind, member: &Member, id: Option<RequestId>) -> Next {
    let done = id.map(numbered);
    Next::Propose(MembersChange { done, ..one_change(kind, member) })
}

fn one_change(kind: MemberChangeKind, member: &Member) -> MembersChange {
    let change = MemberChange { kind: kind.into(), member: Some(member.clone()) };
    MembersChange { changes: vec![change], done: None }
}

fn numbered(id: RequestId) -> Numbered {
    Numbered { client: id.client.0, sequence: id.sequence }
}

/// Whether the command with this number was carried out.
pub(crate) fn is_done(members: &Members, id: Option<RequestId>) -> bool {
    id.is_some_and(|id| members.done.contains(&numbered(id)))
}

/// Whether a change takes a node out. A leader never proposes that of itself: it hands over, and
/// the next one does.
pub(crate) fn removes(change: &MembersChange, node: NodeId) -> bool {
    change.changes.iter().any(|one| {
        let is_it = one.member.as_ref().is_some_and(|member| member.node == node.0);
        is_it && one.kind() == MemberChangeKind::Remove
    })
}

/// The member of this id.
pub fn find(members: &Members, node: NodeId) -> Option<&Member> {
    members.nodes.iter().find(|member| member.node == node.0)
}

fn is_learner(members: &Members, node: u64) -> bool {
    members.learners.contains(&node)
}

/// Whether a node can be added.
pub(crate) fn check_add(
    members: &Members,
    member: &Member,
    force: bool,
) -> Result<(), MembershipError> {
    match find(members, NodeId(member.node)) {
        Some(known) if member.incarnation == 0 && known.incarnation != 0 && !force => {
            Err(MembershipError::AlreadyAMember(NodeId(member.node)))
        }
        Some(_) => Ok(()),
        None if members.nodes.len() >= limits::NODES_MAX => Err(MembershipError::TooManyNodes),
        None => Ok(()),
    }
}

/// Whether a member is silent, as far as its leader can know: a leader that receives from no
/// majority of the voters may be the one that is cut off.
pub(crate) fn is_lost(members: &Members, node: NodeId, is_alive: impl Fn(NodeId) -> bool) -> bool {
    let alive = members.voters.iter().filter(|voter| is_alive(NodeId(**voter))).count();
    !is_alive(node) && 2 * alive > members.voters.len()
}

/// Whether a node can be removed at all.
pub(crate) fn check_remove(members: &Members, node: NodeId) -> Result<(), MembershipError> {
    if find(members, node).is_none() {
        return Err(MembershipError::NotAMember(node));
    }
    match members.voters == [node.0] {
        true => Err(MembershipError::LastVoter(node)),
        false => Ok(()),
    }
}

/// Whether the voters that remain without a node have all sent a message since it was asked.
/// Without that a voter that answers stays, unless its removal is forced: each such step brings the
/// site nearer to having no majority, and often it is another one that was meant. Earlier messages
/// do not count: one that died a moment ago is missed soon.
fn remaining(
    context: &Context<'_>,
    node: NodeId,
    asked_at_tick: u64,
) -> Result<(), MembershipError> {
    let members = context.members;
    if !members.voters.contains(&node.0) || (context.is_lost)(node) {
        return Ok(());
    }
    let remaining = members.voters.iter().filter(|voter| **voter != node.0);
    let voters = remaining.clone().count() as u64;
    let answers = |voter: &&u64| (context.contact_tick)(NodeId(**voter)) > asked_at_tick;
    let reachable = remaining.filter(answers).count() as u64;
    match reachable < voters {
        true => Err(MembershipError::FewerReachable { node, voters, reachable }),
        false => Ok(()),
    }
}

/// Whether leadership can be handed to a node.
pub(crate) fn check_transfer(members: &Members, node: NodeId) -> Result<(), MembershipError> {
    let member = find(members, node).ok_or(MembershipError::NotAMember(node))?;
    if member.witness || is_learner(members, node.0) {
        return Err(MembershipError::CannotLead(node));
    }
    Ok(())
}

/// The change that makes a learner a voter, for the first one that `has_caught_up`.
pub(crate) fn promotion(
    members: &Members,
    has_caught_up: impl Fn(NodeId) -> bool,
) -> Option<MembersChange> {
    let mut learners = members.nodes.iter().filter(|member| is_learner(members, member.node));
    let member =
        learners.find(|member| member.incarnation != 0 && has_caught_up(NodeId(member.node)))?;
    Some(one_change(MemberChangeKind::Vote, member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::Served;
    use crate::replica::recovery::first_members;

    fn member(node: u64, incarnation: u64) -> Member {
        Member { node, address: format!("n{node}:1"), incarnation, ..Member::default() }
    }

    fn join(node: u64, incarnation: u64) -> Wanted {
        let deadline = Duration::from_secs(1);
        let refuse_at_tick = 5;
        let (member, origin) = (member(node, incarnation), Origin::Discard);
        let (force, asked_in_silence) = (false, true);
        Wanted::Join { member, force, asked_in_silence, refuse_at_tick, id: None, origin, deadline }
    }

    fn leave(node: u64, force: bool) -> Wanted {
        let (id, origin, deadline) = (None, Origin::Discard, Duration::from_secs(1));
        let (node, asked_at_tick, refuse_at_tick) = (NodeId(node), 2, 5);
        Wanted::Leave { node, force, asked_at_tick, refuse_at_tick, id, origin, deadline }
    }

    /// At a leader of which all others are heard, or lost.
    fn at(members: &Members, ticks: u64, all_lost: bool) -> Context<'_> {
        let is_lost: &dyn Fn(NodeId) -> bool = if all_lost { &|_| true } else { &|_| false };
        Context { members, ticks, is_lost, contact_tick: &|_| u64::MAX }
    }

    fn kind_of(next: Next) -> Option<MemberChangeKind> {
        match next {
            Next::Propose(change) => Some(change.changes[0].kind()),
            Next::Done | Next::Wait | Next::Refuse(_) => None,
        }
    }

    #[test]
    fn a_node_with_an_empty_disk_is_removed_before_it_is_added() {
        let mut members = first_members(member(1, 11));
        assert_eq!(
            kind_of(join(2, 22).next(&at(&members, 0, true))),
            Some(MemberChangeKind::Listen)
        );
        members.nodes.push(member(2, 22));
        members.voters.push(2);
        assert_eq!(kind_of(join(2, 22).next(&at(&members, 0, true))), None);
        assert_eq!(
            kind_of(join(2, 23).next(&at(&members, 0, true))),
            Some(MemberChangeKind::Remove)
        );
        members.nodes.pop();
        members.voters.pop();
        assert_eq!(
            kind_of(join(2, 23).next(&at(&members, 0, true))),
            Some(MemberChangeKind::Listen)
        );
    }

    #[test]
    fn a_life_that_answers_is_not_replaced() {
        let mut members = first_members(member(1, 11));
        members.nodes.push(member(2, 22));
        members.voters.push(2);
        let next = |joins: Wanted, ticks| joins.next(&at(&members, ticks, false));
        assert_eq!(next(join(2, 23), 0), Next::Wait, "it may just have lost its power");
        assert_eq!(next(join(2, 23), 5), Next::Refuse(in_use(&members.nodes[1])));
        assert_eq!(next(join(2, 22), 5), Next::Done);
        let mut forced = join(2, 23);
        let Wanted::Join { force, .. } = &mut forced else { unreachable!("it is a join") };
        *force = true;
        assert_eq!(kind_of(next(forced, 0)), Some(MemberChangeKind::Remove));
    }

    #[test]
    fn only_a_machine_that_asked_in_the_silence_of_a_life_takes_its_place() {
        let mut members = first_members(member(1, 11));
        members.nodes.push(member(2, 22));
        members.voters.push(2);
        let asks = |silent: bool| {
            let mut join = join(2, 23);
            let Wanted::Join { origin, asked_in_silence, .. } = &mut join else {
                unreachable!("it is a join")
            };
            (*origin, *asked_in_silence) =
                (Origin::Node { node: NodeId(2), id: 23, served: Served::NONE }, silent);
            join
        };
        let mut membership = Membership::default();
        let next =
            |membership: &mut Membership| membership.next(&at(&members, 0, true), &mut Vec::new());
        membership.want(asks(false));
        assert_eq!(next(&mut membership), None, "it may have given up since");
        membership.want(asks(true));
        assert!(next(&mut membership).is_some_and(|change| removes(&change, NodeId(2))));
        membership.want(asks(false));
        assert_eq!(next(&mut membership), None, "the life answered when it asked last");
        assert_eq!(membership.wanted.len(), 1);
    }

    #[test]
    fn who_asks_again_asks_once() {
        let mut membership = Membership::default();
        let origin = Origin::Node { node: NodeId(2), id: 23, served: Served::NONE };
        for _ in 0..3 {
            let mut asked = leave(3, false);
            if let Wanted::Leave { origin: from, .. } = &mut asked {
                *from = origin;
            }
            membership.want(asked);
        }
        assert_eq!(membership.wanted.len(), 1);
    }

    #[test]
    fn a_command_that_was_carried_out_is_not_carried_out_again() {
        let id = RequestId { client: model::ClientId(9), sequence: 4, acknowledged_below: 1 };
        let mut members = first_members(member(1, 11));
        let (origin, deadline) = (Origin::Discard, Duration::from_secs(1));
        let add = Wanted::Join {
            member: member(2, 0),
            force: true,
            asked_in_silence: false,
            refuse_at_tick: 0,
            id: Some(id),
            origin,
            deadline,
        };
        let next = |members: &Members| add.next(&at(members, 0, false));
        let Next::Propose(change) = next(&members) else { panic!("it is to be added") };
        assert_eq!(change.done, Some(numbered(id)));
        // It was added and has joined; then it was removed again.
        members.nodes.push(member(2, 22));
        members.done.extend(change.done);
        assert_eq!(next(&members), Next::Done);
        members.nodes.pop();
        assert_eq!(next(&members), Next::Done);
        let mut remove = leave(1, false);
        if let Wanted::Leave { id: number, .. } = &mut remove {
            *number = Some(id);
        }
        assert_eq!(remove.next(&at(&members, 0, false)), Next::Done);
    }

    #[test]
    fn a_voter_that_answers_is_removed_when_all_others_have_answered_since() {
        let mut members = first_members(member(1, 11));
        members.nodes.extend([member(2, 22), member(3, 33), member(4, 44)]);
        members.voters = vec![1, 2, 3];
        members.learners = vec![4];
        let next = |wanted: Wanted, ticks, third_at: u64, lost: Option<u64>| {
            let contact_tick = |node: NodeId| if node == NodeId(3) { third_at } else { u64::MAX };
            wanted.next(&Context {
                members: &members,
                ticks,
                is_lost: &|node| lost == Some(node.0),
                contact_tick: &contact_tick,
            })
        };
        let remove = Some(MemberChangeKind::Remove);
        assert_eq!(next(leave(2, false), 2, 2, None), Next::Wait, "that was before it was asked");
        assert_eq!(kind_of(next(leave(2, false), 4, 3, None)), remove);
        let (node, voters, reachable) = (NodeId(2), 2, 1);
        let refused = MembershipError::FewerReachable { node, voters, reachable };
        assert!(refused.to_string().contains("no majority"), "{refused}");
        assert_eq!(next(leave(2, false), 2, 2, Some(3)), Next::Refuse(refused.clone()));
        assert_eq!(next(leave(2, false), 5, 2, None), Next::Refuse(refused));
        assert_eq!(kind_of(next(leave(2, true), 2, 2, Some(3))), remove, "it is forced");
        assert_eq!(kind_of(next(leave(3, false), 2, 2, Some(3))), remove, "it is the lost one");
        assert_eq!(kind_of(next(leave(4, false), 2, 2, Some(3))), remove, "it does not vote");
    }

    #[test]
    fn a_leader_that_hears_no_majority_takes_no_member_for_lost() {
        let mut members = first_members(member(1, 11));
        members.nodes.extend([member(2, 22), member(3, 33)]);
        members.voters = vec![1, 2, 3];
        let own = |node: NodeId| node == NodeId(1);
        assert!(!is_lost(&members, NodeId(2), own), "the leader may be deaf");
        assert!(is_lost(&members, NodeId(2), |node| node != NodeId(2)));
    }

    #[test]
    fn the_last_voter_stays() {
        let members = first_members(member(1, 11));
        assert_eq!(check_remove(&members, NodeId(1)), Err(MembershipError::LastVoter(NodeId(1))));
        assert_eq!(check_remove(&members, NodeId(2)), Err(MembershipError::NotAMember(NodeId(2))));
    }

    #[test]
    fn a_site_has_a_limit() {
        let mut members = first_members(member(1, 11));
        members.nodes.extend((2..=7).map(|node| member(node, node)));
        assert_eq!(check_add(&members, &member(8, 8), false), Err(MembershipError::TooManyNodes));
        assert_eq!(
            check_add(&members, &member(7, 77), false),
            Ok(()),
            "a known node may come back"
        );
    }
}
