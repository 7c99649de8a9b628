//! Bugs that are put in on purpose: what tells whether one of them is planted here.
//!
//! The bugs themselves are named where they are: of the registry's agreement in
//! [`deployment::registry::trial`](crate::deployment::registry::trial), of a site in
//! [`bugs`](crate::bugs).

/// The bug that is planted, if one is. Without the feature `trial` none ever is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Planted<Bug>(Option<Bug>);

impl<Bug> Default for Planted<Bug> {
    fn default() -> Planted<Bug> {
        Planted::none()
    }
}

impl<Bug> Planted<Bug> {
    /// None.
    pub const fn none() -> Planted<Bug> {
        Planted(None)
    }

    /// This one.
    pub fn of(bug: Bug) -> Planted<Bug> {
        Planted(Some(bug))
    }

    /// Whether bugs can be planted in this build.
    pub fn is_possible() -> bool {
        cfg!(feature = "trial")
    }
}

impl<Bug: PartialEq> Planted<Bug> {
    /// Whether it is this one.
    pub fn is(&self, bug: Bug) -> bool {
        cfg!(feature = "trial") && self.0 == Some(bug)
    }
}
