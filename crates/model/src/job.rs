//! What a site's leader does beside requests, by name.

/// A job of a site's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobName {
    /// Brings slots to another site.
    Handover,
    /// Keeps the backup's copy of this site up to date.
    Mirror,
    /// Begins handovers of slots that belong to another site.
    Balance,
    /// Has a site that owns nothing any more leave its deployment.
    Leave,
    /// Registers slots that are not at home, so that lookups find them.
    Register,
    /// Serves slots again that are frozen for a site which has left.
    Reclaim,
}

impl JobName {
    /// All of them, in the order in which they are listed.
    pub const ALL: [JobName; 6] = [
        JobName::Handover,
        JobName::Mirror,
        JobName::Balance,
        JobName::Leave,
        JobName::Register,
        JobName::Reclaim,
    ];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            JobName::Handover => "handover",
            JobName::Mirror => "mirror",
            JobName::Balance => "balance",
            JobName::Leave => "leave",
            JobName::Register => "register",
            JobName::Reclaim => "reclaim",
        }
    }
}

impl std::fmt::Display for JobName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}
