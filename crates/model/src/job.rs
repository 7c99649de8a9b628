//! What a site's leader does beside requests: names, and what people see of it.

/// Declares [`JobName`] from a table of all jobs: one line each.
macro_rules! jobs {
    ($($job:ident = $code:literal, $name:literal, $unit:literal, $about:literal;)*) => {
        /// A job of a site's leader.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum JobName {
            $(#[doc = $about] $job,)*
        }

        impl JobName {
            /// All of them, in the order in which they are listed.
            pub const ALL: [JobName; [$($code),*].len()] = [$(JobName::$job),*];

            /// Its byte on the wire.
            pub fn code(self) -> u8 {
                match self { $(JobName::$job => $code,)* }
            }

            /// The job of a byte; `None`: this version has none, a newer one may.
            pub fn from_code(code: u8) -> Option<JobName> {
                match code { $($code => Some(JobName::$job),)* _ => None }
            }

            /// As people write it.
            pub fn as_str(self) -> &'static str {
                match self { $(JobName::$job => $name,)* }
            }

            /// The unit of what is left to do; empty: it is not known how much is left.
            pub fn unit(self) -> &'static str {
                match self { $(JobName::$job => $unit,)* }
            }

            /// What it does, in a line.
            pub fn about(self) -> &'static str {
                match self { $(JobName::$job => $about,)* }
            }
        }
    };
}

// The job, its byte on the wire, which stays, its name, the unit of what is left to do, and what it
// does. The order is that of a list, and of the enum.
jobs! {
    Handover = 1, "handover", "slots", "sends slots to another site";
    Mirror = 2, "mirror", "revisions", "keeps the backup's copy of this site up to date";
    Balance = 3, "balance", "", "begins handovers of slots that belong to another site";
    Leave = 4, "leave", "sites", "has this site leave, once it owns nothing any more";
    Register = 5, "register", "", "registers slots that an operator has moved, so that lookups find them";
    Reclaim = 6, "reclaim", "slots", "serves slots again that are frozen for a site which has left";
    Confirm = 13, "confirm", "sites", "asks other sites which slots of this site they own by now, as it was restored or the registry recovered without it";
    Release = 7, "release", "slots", "asks the owners of slots whether copies here may go";
    Failover = 8, "failover", "sites", "has other sites take over from a lost one, as an operator asks";
    Place = 9, "place", "slots", "finds slots and groups of keys that would be better at another site, and moves the groups of adaptive keyspaces";
    Lend = 130, "lend", "groups", "brings lent groups to their borrowers, and what these write to the slots' owners";
    Export = 10, "export", "bytes", "offers this site's causal writes to the root of its region";
    Distribute = 11, "distribute", "writes", "sends the region's order to its sites, at the root";
    Import = 12, "import", "writes", "takes the region's order over, once it has the writes";
    Bridge = 26, "bridge", "writes", "sends the order of causal keys to the roots of other regions";
    Fetch = 25, "fetch", "keys", "fetches causal keys that are held here on demand, and evicts others";
    Resync = 14, "resync", "keys", "sends sites that lack what is trimmed of the order their keys anew";
    Root = 16, "root", "writes", "has another site order the region, as an operator asks or before this one leaves";
    Standby = 17, "standby", "writes", "has the standby in sync, at the root; takes over from a lost root, at the standby";
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
