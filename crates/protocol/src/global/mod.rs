//! Linearizable keys of the whole deployment: which site serves them, and how that changes.
//!
//! Exactly one site holds a slot at an epoch. That right is a *token* of the replicated state
//! ([`crate::site::machine::global::tokens`]) and changes hands by commands of the two sites
//! concerned. Everything here is volatile and may be wrong without harm: it finds the owner, and it
//! drives what is under way in the state.
//!
//! - [`accesses`]: which sites access the keys that are here;
//! - [`cache`]: copies of keys that other sites hold;
//! - [`map`]: the owners of slots, and how all sites come to have the same map of them;
//! - [`round_trips`]: how long other sites take to answer;
//! - [`routing`]: requests on their way to the site that holds their slot;
//! - [`proxy_reads`]: reads that need no core on the way there;
//! - [`handover`]: slots on their way to another site, driven by the source's leader;
//! - [`ownership`]: the rules for the owner of a slot and its copies;
//! - [`backups`]: which site is the backup of which;
//! - [`borrowers`]: which sites may have groups of another one, by what operators state;
//! - [`mirroring`]: this site's mirror, sent to its backup;
//! - [`failover`]: others take over from a lost site;
//! - [`preferred_owners`]: which site a slot belongs to, by the hash;
//! - [`ring`]: how a site without a fact about a slot finds a site that has one.
//!
//! EdgeKV (Sonbol and others, 2020) keeps global data so: groups of edge nodes, one truth a group,
//! found over a ring (§3 and §4 there).

pub mod accesses;
pub mod backups;
pub(crate) mod borrowers;
pub mod cache;
pub mod failover;
pub(crate) mod groups;
pub mod handover;
pub(crate) mod inventories;
pub mod map;
pub mod mirroring;
pub mod ownership;
pub mod preferred_owners;
pub mod proxy_reads;
pub mod ring;
pub mod round_trips;
pub mod routing;

use backups::Backups;
use cache::Cache;
use model::{ClientId, SiteId};
use preferred_owners::PreferredOwners;
use routing::Routing;

/// What a node holds of global keys beside the state: requests on their way, copies, and backups.
pub(crate) struct Global {
    pub(crate) routing: Routing,
    pub(crate) cache: Cache,
    pub(crate) preferred_owners: PreferredOwners,
    /// The site that is to keep this one's mirror.
    pub(crate) backup: Option<SiteId>,
    pub(crate) backups: Backups,
}

impl Global {
    /// Nothing yet. `process`: this process, among those that number requests.
    pub(crate) fn new(process: ClientId) -> Global {
        Global {
            routing: Routing::new(process),
            cache: Cache::default(),
            preferred_owners: PreferredOwners::default(),
            backup: None,
            backups: Backups::default(),
        }
    }
}
