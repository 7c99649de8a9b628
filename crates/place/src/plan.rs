//! The next step of a slot's move, decided from what each server reports of itself.
//!
//! A move takes these steps, each of which is answered before the next begins:
//!
//! 1. the target marks the slot as *importing*;
//! 2. the source marks it as *migrating*: from now on it sends clients that ask for an absent key
//!    to the target, so no key is made at the source any more;
//! 3. keys are copied until the source has none;
//! 4. the slot is assigned to the target: at the target, at the source, at the other masters.
//!
//! Wherever a move stops, [`next`] finds from the open marks where to go on. The order matters: a
//! target that is assigned a slot while the source still has keys of it wins by its higher epoch,
//! and the source then deletes these keys. For the same reason no slot is assigned to its target
//! while a claim could lose ([`Unsettled`]).
//!
//! [`Unsettled`]: crate::cluster::Unsettled
//!
//! Where the target fails over in mid-move, its successor has the keys and no mark (versions before
//! Valkey 8), and the source's mark names the former target: the move goes on to the successor.

use crate::view::NodeId;
use model::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// What a master reports of one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The slot's owner in its view.
    pub owner: Option<NodeId>,
    /// It marks the slot as on its way to this server.
    pub migrating: Option<NodeId>,
    /// It marks the slot as on its way from this server.
    pub importing: Option<NodeId>,
    /// How many keys of the slot it has.
    pub keys: u64,
}

/// A slot at all masters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// The masters that answer, by their own report.
    pub parts: BTreeMap<NodeId, Part>,
    /// Masters, by the report of others, that do not.
    pub silent: BTreeSet<NodeId>,
    /// By a server that a migrating mark names and that is no master any more: the master that has
    /// taken its place, with its keys.
    pub successors: BTreeMap<NodeId, NodeId>,
}

/// One command to one or two servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// `SETSLOT IMPORTING` at the target.
    Import {
        /// The target.
        at: NodeId,
        /// The source.
        from: NodeId,
    },
    /// `SETSLOT MIGRATING` at the source.
    Migrate {
        /// The source.
        at: NodeId,
        /// The target.
        to: NodeId,
    },
    /// `MIGRATE` of some keys at the source.
    Copy {
        /// The source.
        from: NodeId,
        /// The target.
        to: NodeId,
    },
    /// `SETSLOT NODE`.
    Assign {
        /// The server that gets the command.
        at: NodeId,
        /// The owner.
        owner: NodeId,
    },
    /// `SETSLOT STABLE`: takes marks away.
    Stable {
        /// The server that gets the command.
        at: NodeId,
    },
}

/// Why a slot is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// A server that has a part in the slot does not answer.
    Silent(NodeId),
    /// No master owns it.
    NoOwner,
    /// Two masters own it.
    TwoOwners(NodeId, NodeId),
    /// A server that does not own it has keys of it, and no move explains them.
    Stray {
        /// The server.
        at: NodeId,
        /// How many.
        keys: u64,
    },
    /// The server that it is to go to is no master that answers.
    NoTarget(NodeId),
}

impl Trouble {
    /// A sentence, with names for servers.
    pub fn named(&self, shown: impl Fn(&NodeId) -> String) -> String {
        match self {
            Trouble::Silent(id) => {
                format!("server {} has a part in it and does not answer", shown(id))
            }
            Trouble::NoOwner => "no master owns it".to_owned(),
            Trouble::TwoOwners(a, b) => format!("both {} and {} own it", shown(a), shown(b)),
            Trouble::Stray { at, keys } => {
                format!("server {} has {keys} keys of it and does not own it", shown(at))
            }
            Trouble::NoTarget(id) => format!("{} is no master that answers", shown(id)),
        }
    }
}

/// What comes next for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This step; then ask again.
    Do(Step),
    /// Nothing: no mark is open and all agree on the owner, which is the goal if there is one.
    Done,
    /// Nothing: a person has to look.
    Leave(Trouble),
}

/// The next step of a slot on its way to `goal`; without a goal, of closing what is open. A move
/// that is open already goes to its own target first.
pub fn next(state: &SlotState, goal: Option<&NodeId>) -> Next {
    decide(state, goal).unwrap_or_else(Next::Leave)
}

fn decide(state: &SlotState, goal: Option<&NodeId>) -> Result<Next, Trouble> {
    if let Some(id) = state.named().find(|id| state.silent.contains(*id)) {
        return Err(Trouble::Silent(id.clone()));
    }
    let owner = match state.owners()[..] {
        [] => return Err(Trouble::NoOwner),
        [owner] => owner,
        [a, b] => {
            return state
                .outdated(a, b)
                .or_else(|| state.outdated(b, a))
                .map(Next::Do)
                .ok_or(Trouble::TwoOwners(a.clone(), b.clone()));
        }
        [a, b, ..] => return Err(Trouble::TwoOwners(a.clone(), b.clone())),
    };
    let own = &state.parts[owner];
    if own.migrating.is_some() {
        return state.under_way(owner);
    }
    if let Some(target) = state.half_begun(owner, goal)? {
        return Ok(Next::Do(Step::Migrate { at: owner.clone(), to: target.clone() }));
    }
    if let Some(step) = state.marks_to_close(owner) {
        return Ok(Next::Do(step));
    }
    match goal {
        Some(goal) if goal != owner => match state.parts.contains_key(goal) {
            true => Ok(Next::Do(Step::Import { at: goal.clone(), from: owner.clone() })),
            false => Err(Trouble::NoTarget(goal.clone())),
        },
        _ => Ok(Next::Done),
    }
}

impl SlotState {
    /// All servers that a report on the slot names.
    fn named(&self) -> impl Iterator<Item = &NodeId> {
        self.parts
            .values()
            .flat_map(|part| part.owner.iter().chain(self.target(part)).chain(&part.importing))
    }

    /// The server to which a migrating mark leads: the one that it names, or its successor.
    fn target<'a>(&'a self, part: &'a Part) -> Option<&'a NodeId> {
        let named = part.migrating.as_ref()?;
        Some(self.successors.get(named).unwrap_or(named))
    }

    /// The masters that own it by their own report.
    fn owners(&self) -> Vec<&NodeId> {
        let own = self.parts.iter().filter(|(id, part)| part.owner.as_ref() == Some(*id));
        own.map(|(id, _)| id).collect()
    }

    /// The only owner.
    pub fn owner(&self) -> Option<&NodeId> {
        match self.owners()[..] {
            [owner] => Some(owner),
            _ => None,
        }
    }

    /// The masters that do not own it.
    fn others<'a>(&'a self, owner: &'a NodeId) -> impl Iterator<Item = (&'a NodeId, &'a Part)> {
        self.parts.iter().filter(move |(id, _)| *id != owner)
    }

    /// `source` has given all keys to `target`, which has been assigned the slot, and has not
    /// learned of it.
    fn outdated(&self, source: &NodeId, target: &NodeId) -> Option<Step> {
        let part = &self.parts[source];
        let is_given = self.target(part) == Some(target) && part.keys == 0;
        is_given.then(|| Step::Assign { at: source.clone(), owner: target.clone() })
    }

    /// The owner marks the slot as migrating: the move goes on from where it stands.
    fn under_way(&self, owner: &NodeId) -> Result<Next, Trouble> {
        let own = &self.parts[owner];
        let to = self.target(own).filter(|to| *to != owner && self.parts.contains_key(*to));
        if let Some(stray) = self.stray(owner, to) {
            return Err(stray);
        }
        let Some(to) = to else {
            // The target is gone, and no key of the slot is anywhere else.
            return Ok(Next::Do(Step::Stable { at: owner.clone() }));
        };
        let unrelated = |(id, part): &(&NodeId, &Part)| *id != to && part.importing.is_some();
        if let Some((id, _)) = self.others(owner).find(unrelated) {
            return Ok(Next::Do(Step::Stable { at: id.clone() }));
        }
        let (owner, to) = (owner.clone(), to.clone());
        Ok(Next::Do(match self.parts[&to].importing.as_ref() == Some(&owner) {
            false => Step::Import { at: to, from: owner },
            // The mark sends clients to the server that it names.
            true if own.migrating.as_ref() != Some(&to) => Step::Migrate { at: owner, to },
            true if own.keys > 0 => Step::Copy { from: owner, to },
            true => Step::Assign { at: to.clone(), owner: to },
        }))
    }

    /// A target that imports from the owner, which does not migrate yet. With a goal, only the
    /// goal: an import to elsewhere that has no keys yet is not worth a move.
    fn half_begun<'a>(
        &'a self,
        owner: &'a NodeId,
        goal: Option<&NodeId>,
    ) -> Result<Option<&'a NodeId>, Trouble> {
        let imports = |part: &Part| part.importing.as_ref() == Some(owner);
        let from_owner = || self.others(owner).filter(|(_, part)| imports(part));
        let begun = from_owner().find(|(_, part)| part.keys > 0);
        let begun = begun.or_else(|| from_owner().find(|(id, _)| goal.is_none_or(|g| g == *id)));
        let target = begun.map(|(id, _)| id);
        self.stray(owner, target).map_or(Ok(target), Err)
    }

    /// Keys at a server that is neither the owner nor the target.
    fn stray(&self, owner: &NodeId, target: Option<&NodeId>) -> Option<Trouble> {
        let mut others = self.others(owner).filter(|(id, _)| Some(*id) != target);
        let (id, part) = others.find(|(_, part)| part.keys > 0)?;
        Some(Trouble::Stray { at: id.clone(), keys: part.keys })
    }

    /// The slot is on no way; marks that are left would later send it to where it once was to go.
    fn marks_to_close(&self, owner: &NodeId) -> Option<Step> {
        let stable = |id: &NodeId| Step::Stable { at: id.clone() };
        let assign = |id: &NodeId| Step::Assign { at: id.clone(), owner: owner.clone() };
        if self.parts[owner].importing.is_some() {
            return Some(stable(owner));
        }
        let others = || self.others(owner);
        let migrating = others().find(|(_, part)| part.migrating.is_some());
        let importing = || others().find(|(_, part)| part.importing.is_some());
        let outdated = || others().find(|(_, part)| part.owner.as_ref() != Some(owner));
        migrating.map(|(id, _)| assign(id)).or_else(|| {
            importing().map(|(id, _)| stable(id)).or_else(|| outdated().map(|(id, _)| assign(id)))
        })
    }

    /// Whether a mark is open somewhere.
    pub fn is_open(&self) -> bool {
        self.parts.values().any(|part| part.migrating.is_some() || part.importing.is_some())
    }

    /// Notes that a step other than [`Step::Copy`] has been done.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Import { at, from } => {
                self.part(at).importing = Some(from.clone());
            }
            Step::Migrate { at, to } => self.part(at).migrating = Some(to.clone()),
            Step::Copy { .. } => {}
            Step::Assign { at, owner } => {
                let part = self.part(at);
                part.owner = Some(owner.clone());
                if part.keys == 0 || at == owner {
                    part.migrating = None;
                }
                if at == owner {
                    part.importing = None;
                }
            }
            Step::Stable { at } => {
                let part = self.part(at);
                (part.migrating, part.importing) = (None, None);
            }
        }
    }

    fn part(&mut self, id: &NodeId) -> &mut Part {
        self.parts.entry(id.clone()).or_default()
    }
}

impl Step {
    /// The server that gets the command.
    pub fn at(&self) -> &NodeId {
        match self {
            Step::Copy { from, .. } => from,
            Step::Import { at, .. }
            | Step::Migrate { at, .. }
            | Step::Assign { at, .. }
            | Step::Stable { at } => at,
        }
    }

    /// The arguments of the command; [`Step::Copy`] has none, as it depends on the keys.
    pub fn words(&self, slot: Slot) -> Vec<String> {
        let (word, id) = match self {
            Step::Import { from, .. } => ("IMPORTING", Some(from)),
            Step::Migrate { to, .. } => ("MIGRATING", Some(to)),
            Step::Assign { owner, .. } => ("NODE", Some(owner)),
            Step::Stable { .. } => ("STABLE", None),
            Step::Copy { .. } => return Vec::new(),
        };
        let mut words = vec!["CLUSTER".to_owned(), "SETSLOT".to_owned(), slot.to_string()];
        words.push(word.to_owned());
        words.extend(id.map(|id| id.as_str().to_owned()));
        words
    }
}

#[cfg(test)]
mod tests;
