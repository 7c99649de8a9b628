//! What a site's leader does beside requests: names, and what people see of it.

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
    /// Registers slots that are not at their preferred owner, so that lookups find them.
    Register,
    /// Serves slots again that are frozen for a site which has left.
    Reclaim,
    /// Confirms the slots of a restored site with the other sites.
    Confirm,
    /// Asks the owners of slots whether copies may go.
    Release,
    /// Has others take over from a lost site.
    Failover,
    /// Finds slots that would be better at another site.
    Place,
    /// Brings lent groups to their borrowers, and what these write back.
    Lend,
    /// Offers this site's causal writes to the root of its region.
    Export,
    /// Sends the region's order to its sites.
    Distribute,
    /// Takes the region's order over.
    Import,
    /// Sends the region's order to the roots of other regions.
    Bridge,
    /// Fetches keys that this site holds on demand, and evicts others.
    Fetch,
    /// Trims the region's order, and sends sites that lack it their keys anew.
    Resync,
    /// Brings the order of the region to another root.
    Root,
    /// Keeps the standby of the region's root in sync, and takes over from a lost root.
    Standby,
}

impl JobName {
    /// All of them, in the order in which they are listed.
    pub const ALL: [JobName; 19] = [
        JobName::Handover,
        JobName::Mirror,
        JobName::Balance,
        JobName::Leave,
        JobName::Register,
        JobName::Reclaim,
        JobName::Confirm,
        JobName::Release,
        JobName::Failover,
        JobName::Place,
        JobName::Lend,
        JobName::Export,
        JobName::Distribute,
        JobName::Import,
        JobName::Bridge,
        JobName::Fetch,
        JobName::Resync,
        JobName::Root,
        JobName::Standby,
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
            JobName::Confirm => "confirm",
            JobName::Release => "release",
            JobName::Failover => "failover",
            JobName::Place => "place",
            JobName::Lend => "lend",
            JobName::Export => "export",
            JobName::Distribute => "distribute",
            JobName::Import => "import",
            JobName::Bridge => "bridge",
            JobName::Fetch => "fetch",
            JobName::Resync => "resync",
            JobName::Root => "root",
            JobName::Standby => "standby",
        }
    }

    /// The unit of what is left to do; empty: it is not known how much is left.
    pub fn unit(self) -> &'static str {
        match self {
            JobName::Handover | JobName::Reclaim | JobName::Release | JobName::Place => "slots",
            JobName::Mirror => "revisions",
            JobName::Lend => "groups",
            JobName::Leave | JobName::Confirm | JobName::Failover => "sites",
            JobName::Export => "bytes",
            JobName::Distribute
            | JobName::Import
            | JobName::Bridge
            | JobName::Root
            | JobName::Standby => "writes",
            JobName::Resync | JobName::Fetch => "keys",
            JobName::Balance | JobName::Register => "",
        }
    }

    /// What it does, in a line.
    pub fn about(self) -> &'static str {
        match self {
            JobName::Handover => "sends slots to another site",
            JobName::Mirror => "keeps the backup's copy of this site up to date",
            JobName::Balance => "begins handovers of slots that belong to another site",
            JobName::Leave => "has this site leave, once it owns nothing any more",
            JobName::Register => {
                "registers slots that an operator has moved, so that lookups find them"
            }
            JobName::Reclaim => "serves slots again that are frozen for a site which has left",
            JobName::Confirm => {
                "asks other sites which slots of this restored site they own by now"
            }
            JobName::Release => "asks the owners of slots whether copies here may go",
            JobName::Failover => "has other sites take over from a lost one, as an operator asks",
            JobName::Place => {
                "finds slots and groups of keys that would be better at another site, and moves the groups of adaptive keyspaces"
            }
            JobName::Lend => {
                "brings lent groups to their borrowers, and what these write to the slots' owners"
            }
            JobName::Export => "offers this site's causal writes to the root of its region",
            JobName::Distribute => "sends the region's order to its sites, at the root",
            JobName::Resync => "sends sites that lack what is trimmed of the order their keys anew",
            JobName::Root => {
                "has another site order the region, as an operator asks or before this one leaves"
            }
            JobName::Standby => {
                "has the standby in sync, at the root; takes over from a lost root, at the standby"
            }
            JobName::Import => "takes the region's order over, once it has the writes",
            JobName::Bridge => "sends the order of causal keys to the roots of other regions",
            JobName::Fetch => "fetches causal keys that are held here on demand, and evicts others",
        }
    }
}

impl std::str::FromStr for JobName {
    type Err = ();

    fn from_str(name: &str) -> Result<JobName, ()> {
        JobName::ALL.into_iter().find(|job| job.as_str() == name).ok_or(())
    }
}

/// What a job does, at the site's leader. Counts are of this leader, and begin with it at 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// Which one.
    pub name: JobName,
    /// It begins nothing until it is resumed, or another node leads.
    pub paused: bool,
    /// What is left to do, in [`JobName::unit`].
    pub left: u64,
    /// Bytes that were sent to other sites.
    pub sent_bytes: u64,
    /// Steps: commands that were proposed or sent to other sites, and changes of the registry.
    pub steps: u64,
    /// The present rate of steps.
    pub steps_per_min: u64,
    /// Steps that failed, or had no answer in time.
    pub errors: u64,
    /// What it waits for in vain, else the last error; empty: neither.
    pub last_error: String,
    /// The age of that.
    pub last_error_ago_ms: u64,
}

impl std::fmt::Display for JobName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.as_str())
    }
}
