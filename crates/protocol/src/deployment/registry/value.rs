//! What the cores must know of the value that they agree on.

use model::{Ballot, RegistrarSet, Registrars, SiteId};
use std::fmt::Debug;

/// A registry, as far as the cores are concerned.
pub trait Value: Clone + PartialEq + Debug {
    /// What tells one command from another.
    type Id: Copy + PartialEq + Debug;
    /// What a command does.
    type Change: Clone + PartialEq + Debug;
    /// What becomes of it.
    type Outcome: Clone + PartialEq + Debug;
    /// What sites hand in after a recovery.
    type Kept: Clone + Default + PartialEq + Debug;

    /// The ballot that wrote it.
    fn version(&self) -> Ballot;
    /// How many changes it has seen. For people, and for a bug to be found.
    fn count(&self) -> u64;
    /// The sites that hold it.
    fn registrars(&self) -> Registrars;
    /// All sites that it lists.
    fn sites(&self) -> Vec<SiteId>;

    /// Writes it as this version.
    fn stamp(&mut self, version: Ballot);
    /// Says who holds it from now on.
    fn set_registrars(&mut self, registrars: Registrars);
    /// What became of a command that it has; `None`: it has none of that id.
    fn outcome(&self, id: Self::Id) -> Option<Self::Outcome>;
    /// Applies a command. Of the registrars it may change the set; the rest follows.
    fn change(&mut self, id: Self::Id, change: &Self::Change, version: Ballot) -> Self::Outcome;

    /// Goes on in a new term, which begins with this version, without some sites.
    fn recover(&mut self, version: Ballot, without: &[SiteId]);
    /// The registrars of so many sites that answered a recovery.
    fn choose(&self, there: &[SiteId]) -> RegistrarSet;
    /// What a site whose copy this was has to hand in, now that it takes over `next`, a copy of another
    /// term; what it had to hand in before is in `kept` already.
    fn keep(&self, next: &Self, kept: &mut Self::Kept);
    /// Removes from `kept` what this value has.
    fn has_kept(&self, kept: &mut Self::Kept);
    /// Whether there is nothing to hand in.
    fn is_nothing(kept: &Self::Kept) -> bool;
    /// Adds what another term had and this one lacks.
    fn hand_in(&mut self, kept: &Self::Kept, version: Ballot);
}
