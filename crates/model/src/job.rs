//! What a site's leader does beside requests, by name.

/// A job of a site's leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobName {
    /// Brings slots to another site.
    Handover,
    /// Keeps the backup's copy of this site up to date.
    Mirror,
}

impl JobName {
    /// All of them, in the order in which they are listed.
    pub const ALL: [JobName; 2] = [JobName::Handover, JobName::Mirror];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            JobName::Handover => "handover",
            JobName::Mirror => "mirror",
        }
    }
}

impl std::fmt::Display for JobName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}
