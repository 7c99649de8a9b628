//! What vehicles do, as it is measured.

use super::records::Kind;

/// What is measured, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Read all hazards of a zone.
    Look,
    /// Report a hazard.
    Report,
    /// Clear a hazard.
    Clear,
    /// Connect to another site and receive an answer.
    Attach,
    /// Write the own record of the keyspace that follows its users.
    CarSave,
    /// Read a record of that keyspace.
    CarRead,
    /// Write the own record of the keyspace that is placed by hash.
    FixedSave,
    /// Read a record of that keyspace.
    FixedRead,
    /// Have the session of trips admitted at another site.
    TripAttach,
    /// Write the own trip, a causal key.
    TripSave,
    /// Read a trip.
    TripRead,
}

impl Operation {
    /// Names by index.
    pub(super) const NAMES: [&str; 11] = [
        "look",
        "report",
        "clear",
        "attach",
        "car-save",
        "car-read",
        "fixed-save",
        "fixed-read",
        "trip-attach",
        "trip-save",
        "trip-read",
    ];

    /// Place in [`Operation::NAMES`].
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Whether it belongs to the session of a vehicle's trips.
    pub(super) fn is_in_session(self) -> bool {
        matches!(self, Self::TripSave | Self::TripRead)
    }

    /// To write an own record.
    pub(super) fn save(kind: Kind) -> Self {
        match kind {
            Kind::Car => Self::CarSave,
            Kind::Fixed => Self::FixedSave,
        }
    }

    /// To read a record.
    pub(super) fn read(kind: Kind) -> Self {
        match kind {
            Kind::Car => Self::CarRead,
            Kind::Fixed => Self::FixedRead,
        }
    }

    /// Which kind of record it writes or reads; none: another thing.
    pub(super) fn kind(self) -> Option<Kind> {
        match self {
            Self::CarSave | Self::CarRead => Some(Kind::Car),
            Self::FixedSave | Self::FixedRead => Some(Kind::Fixed),
            Self::Look | Self::Report | Self::Clear | Self::Attach => None,
            Self::TripAttach | Self::TripSave | Self::TripRead => None,
        }
    }
}
