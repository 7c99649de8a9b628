//! Who belongs to the site, and how that changes.
//!
//! One change at a time, each a committed entry. A node joins as a learner and becomes a voter
//! once it has caught up; the leader drives that, from what the members' list itself says, so that
//! the next leader goes on where the last one stopped.
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

use super::Origin;
use super::writes::Settled;
use model::{Failure, MembershipError, NodeId, limits};
use std::time::Duration;
use wire::peer::{Member, MemberChange, MemberChangeKind, Members, MembersChange};

/// A learner this many entries behind becomes a voter: the rest arrives with the next messages.
pub(super) const CAUGHT_UP_ENTRIES: u64 = 1_000;

/// A change that somebody asked for and waits for.
#[derive(Debug)]
pub(super) enum Wanted {
    /// This life of a node is to be a member.
    Join { member: Member, origin: Origin, deadline: Duration },
    /// A node is to be gone.
    Leave { node: NodeId, origin: Origin, deadline: Duration },
}

/// What to do next about one wish.
#[derive(Debug, PartialEq)]
enum Next {
    Done,
    Propose(MembersChange),
}

/// The changes that wait at this node for its leadership to carry them out.
#[derive(Default)]
pub(super) struct Membership {
    wanted: Vec<Wanted>,
}

impl Membership {
    pub(super) fn is_idle(&self) -> bool {
        self.wanted.is_empty()
    }

    pub(super) fn want(&mut self, wanted: Wanted) {
        self.wanted.push(wanted);
    }

    /// Settles the wishes that have come true and answers with the change to propose next, if any.
    pub(super) fn next(
        &mut self,
        members: &Members,
        settled: &mut Vec<Settled>,
    ) -> Option<MembersChange> {
        let mut proposal = None;
        self.wanted.retain_mut(|wanted| {
            if proposal.is_some() {
                return true;
            }
            match wanted.next(members) {
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

    /// Those who want `node`, this one, to be gone, for the leader that comes after it.
    pub(super) fn take_leaving(&mut self, own: NodeId) -> Vec<(Origin, Duration)> {
        let mut leaving = Vec::new();
        self.wanted.retain(|wanted| match wanted {
            Wanted::Leave { node, origin, deadline } if *node == own => {
                leaving.push((*origin, *deadline));
                false
            }
            _ => true,
        });
        leaving
    }

    /// Gives up what has waited past its deadline, or everything when this node, `own`, no longer
    /// leads; but not its own removal, for which it handed leadership over.
    pub(super) fn give_up(
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
        std::mem::replace(origin, Origin::Nobody)
    }

    fn next(&self, members: &Members) -> Next {
        match self {
            Wanted::Leave { node, .. } => match find(members, *node) {
                Some(member) => propose(MemberChangeKind::Remove, member),
                None => Next::Done,
            },
            Wanted::Join { member, .. } => match find(members, NodeId(member.node)) {
                Some(known) if known.incarnation == member.incarnation => Next::Done,
                // Announced by `member add`, and now it is here.
                Some(known) if known.incarnation == 0 && is_learner(members, member.node) => {
                    propose(MemberChangeKind::Listen, member)
                }
                Some(known) => propose(MemberChangeKind::Remove, known),
                None => propose(MemberChangeKind::Listen, member),
            },
        }
    }
}

fn propose(kind: MemberChangeKind, member: &Member) -> Next {
    Next::Propose(one_change(kind, member))
}

fn one_change(kind: MemberChangeKind, member: &Member) -> MembersChange {
    let change = MemberChange { kind: kind.into(), member: Some(member.clone()) };
    MembersChange { changes: vec![change] }
}

/// Whether a change takes a node out. A leader never proposes that of itself: it hands over, and the
/// next one does.
pub(super) fn removes(change: &MembersChange, node: NodeId) -> bool {
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

/// Whether a wish to add a node can be granted.
pub(super) fn check_add(members: &Members, member: &Member) -> Result<(), MembershipError> {
    match find(members, NodeId(member.node)) {
        Some(known) if member.incarnation == 0 && known.incarnation != 0 => {
            Err(MembershipError::AlreadyAMember(NodeId(member.node)))
        }
        Some(_) => Ok(()),
        None if members.nodes.len() >= limits::NODES_MAX => Err(MembershipError::TooManyNodes),
        None => Ok(()),
    }
}

/// Whether a wish to remove a node can be granted.
pub(super) fn check_remove(members: &Members, node: NodeId) -> Result<(), MembershipError> {
    if find(members, node).is_none() {
        return Err(MembershipError::NotAMember(node));
    }
    if members.voters == [node.0] {
        return Err(MembershipError::LastVoter(node));
    }
    Ok(())
}

/// Whether leadership can be handed to a node.
pub(super) fn check_transfer(members: &Members, node: NodeId) -> Result<(), MembershipError> {
    let member = find(members, node).ok_or(MembershipError::NotAMember(node))?;
    if member.witness || is_learner(members, node.0) {
        return Err(MembershipError::CannotLead(node));
    }
    Ok(())
}

/// The change that makes a learner a voter, for the first one that `has_caught_up`.
pub(super) fn promotion(
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
    use super::super::recovery::first_members;
    use super::*;

    fn member(node: u64, incarnation: u64) -> Member {
        Member { node, address: format!("n{node}:1"), incarnation, ..Member::default() }
    }

    fn join(node: u64, incarnation: u64) -> Wanted {
        let deadline = Duration::from_secs(1);
        Wanted::Join { member: member(node, incarnation), origin: Origin::Nobody, deadline }
    }

    fn kind_of(next: Next) -> Option<MemberChangeKind> {
        match next {
            Next::Done => None,
            Next::Propose(change) => Some(change.changes[0].kind()),
        }
    }

    #[test]
    fn a_node_with_an_empty_disk_is_removed_before_it_is_added() {
        let mut members = first_members(member(1, 11));
        assert_eq!(kind_of(join(2, 22).next(&members)), Some(MemberChangeKind::Listen));
        members.nodes.push(member(2, 22));
        members.voters.push(2);
        assert_eq!(kind_of(join(2, 22).next(&members)), None);
        assert_eq!(kind_of(join(2, 23).next(&members)), Some(MemberChangeKind::Remove));
        members.nodes.pop();
        members.voters.pop();
        assert_eq!(kind_of(join(2, 23).next(&members)), Some(MemberChangeKind::Listen));
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
        assert_eq!(check_add(&members, &member(8, 8)), Err(MembershipError::TooManyNodes));
        assert_eq!(check_add(&members, &member(7, 77)), Ok(()), "a known node may come back");
    }
}
