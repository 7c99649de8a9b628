//! What the cores require of the value that registrars agree on.

use model::{Ballot, RegistrarSet, Registrars, SiteId};
use std::fmt::Debug;

/// A registry, as the cores see it.
pub trait Value: Clone + PartialEq + Debug {
    /// Identifies a command.
    type Id: Copy + PartialEq + Debug;
    /// A command.
    type Change: Clone + PartialEq + Debug;
    /// The outcome of a command.
    type Outcome: Clone + PartialEq + Debug;
    /// What sites hand in after a recovery.
    type Retained: Clone + Default + PartialEq + Debug;

    /// The ballot that wrote the value.
    fn version(&self) -> Ballot;
    /// The number of changes applied. For display, and for one planted bug.
    fn count(&self) -> u64;
    /// The sites that hold it.
    fn registrars(&self) -> Registrars;
    /// All listed sites.
    fn sites(&self) -> Vec<SiteId>;

    /// Sets the version that writes the value.
    fn stamp(&mut self, version: Ballot);
    /// Sets the registrars.
    fn set_registrars(&mut self, registrars: Registrars);
    /// The outcome of a command that the value contains; `None`: it contains none with this id.
    fn outcome(&self, id: Self::Id) -> Option<Self::Outcome>;
    /// Applies a command. It may change the set of registrars; the caller derives the rest.
    fn change(&mut self, id: Self::Id, change: &Self::Change, version: Ballot) -> Self::Outcome;

    /// Continues in a new term that begins with this version. `known` is the newest copy of its
    /// proposer; what this value has beyond that may never have been chosen.
    fn recover(&mut self, version: Ballot, known: &Self);
    /// The registrars, chosen from the sites that answered a recovery.
    fn choose(&self, there: &[SiteId]) -> RegistrarSet;
    /// Adds to `kept` what a site with this copy has to hand in when it replaces it with `next`, of
    /// another term. `kept` holds what the site had to hand in before.
    fn keep(&self, next: &Self, kept: &mut Self::Retained);
    /// Removes from `kept` what this value contains.
    fn has_kept(&self, kept: &mut Self::Retained);
    /// Whether there is nothing to hand in.
    fn is_nothing(kept: &Self::Retained) -> bool;
    /// Adds what another term had and this one lacks.
    fn hand_in(&mut self, kept: &Self::Retained, version: Ballot);
}
