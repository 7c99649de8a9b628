//! What vehicles do, as it is measured.

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
    /// Write the own record, of a key that this site owns.
    SaveLocal,
    /// Write the own record, of a key that another site owns.
    SaveRemote,
    /// Read a vehicle's record, of a key that this site owns.
    RecallLocal,
    /// Read a vehicle's record, of a key that another site owns.
    RecallRemote,
}

impl Operation {
    /// Names by index.
    pub(super) const NAMES: [&str; 8] = [
        "look",
        "report",
        "clear",
        "attach",
        "save-local",
        "save-remote",
        "recall-local",
        "recall-remote",
    ];

    /// Place in [`Operation::NAMES`].
    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// To write the own record.
    pub(super) fn save(is_local: bool) -> Self {
        if is_local { Self::SaveLocal } else { Self::SaveRemote }
    }

    /// To read a record.
    pub(super) fn recall(is_local: bool) -> Self {
        if is_local { Self::RecallLocal } else { Self::RecallRemote }
    }
}
