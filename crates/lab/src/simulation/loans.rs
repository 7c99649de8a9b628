//! Groups of keys that sites lend to each other: which there are, and who serves them.

use super::{NodeIndex, Simulation};
use model::{Body, Command, Group};
use protocol::site::GroupRight;
use protocol::site::machine::global::loans::{LentRow, PartRow};

/// Groups that are remembered.
const GROUPS_MAX: usize = 4_096;

impl<C> Simulation<C> {
    /// A request names a group, if all its keys share a tag.
    pub(super) fn note_group(&mut self, body: &Body) {
        if !self.settings.notes_groups || self.groups.len() >= GROUPS_MAX {
            return;
        }
        let (keyspace, tag) = match body {
            Body::Read { keyspace, query, .. } => (*keyspace, query.one_tag()),
            Body::Write(
                command @ (Command::Write { keyspace, .. } | Command::Transaction { keyspace, .. }),
            ) => (*keyspace, command.one_tag()),
            _ => return,
        };
        if let Some(tag) = tag {
            self.groups.insert(Group { keyspace, tag });
        }
    }

    /// The groups that requests were about.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    /// The part of a node's site in a group of another site's slot.
    #[must_use]
    pub fn part(&self, node: NodeIndex, group: &Group) -> Option<PartRow> {
        self.nodes[node].process.as_ref()?.site.part(group)
    }

    /// All parts of a node's site.
    pub fn parts(&self, node: NodeIndex) -> impl Iterator<Item = (&Group, &PartRow)> {
        let process = self.nodes[node].process.as_ref();
        process.into_iter().flat_map(|process| process.site.parts())
    }

    /// The groups that a node's site lends out of its slots.
    pub fn lent(&self, node: NodeIndex) -> impl Iterator<Item = (&Group, &LentRow)> {
        let process = self.nodes[node].process.as_ref();
        process.into_iter().flat_map(|process| process.site.lent())
    }

    /// By what right a node's site serves a group, by the node's state; `None`: it does not.
    #[must_use]
    pub fn serves_group(&self, node: NodeIndex, group: &Group) -> Option<GroupRight> {
        self.nodes[node].process.as_ref()?.site.serves_group(group)
    }

    /// Whether a node's site may have a group, by the rules of placement in the node's registry.
    #[must_use]
    pub fn may_have_group(&self, node: NodeIndex, group: &Group) -> bool {
        let process = self.nodes[node].process.as_ref();
        process.is_none_or(|process| process.site.may_have(group))
    }

    /// How many loans and parts of a node's site wait for an answer of another site.
    #[must_use]
    pub fn loans_under_way(&self, node: NodeIndex) -> usize {
        let process = self.nodes[node].process.as_ref();
        process.map_or(0, |process| process.site.loans_under_way())
    }
}
