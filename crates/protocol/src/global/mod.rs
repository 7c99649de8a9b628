//! Linearizable keys of the whole deployment: who serves them, and how that changes.
//!
//! Exactly one site holds a slot at an epoch. That right is a *token* of the replicated state
//! ([`crate::site::machine::tokens`]) and changes hands by commands of the two sites concerned.
//! Everything here is volatile and may be wrong without harm: it finds the holder, and it drives what
//! the state says is under way.
//!
//! - [`cache`]: copies of keys that other sites hold;
//! - [`map`]: who owns which slots, as this site knows it, and how all sites come to know the same;
//! - [`routing`]: requests on their way to the site that holds their slot;
//! - [`straight`]: reads that need no core on the way there;
//! - [`handover`]: slots on their way to another site, carried by the giver's leader;
//! - [`ownership`]: the rules of who owns a slot and who has a copy of it;
//! - [`backups`]: which site is whose backup;
//! - [`mirroring`]: this site's mirror, told to its backup;
//! - [`failover`]: others take over from a lost site;
//! - [`homes`]: which site a slot belongs to, by the hash;
//! - [`ring`]: how a site that knows nothing of a slot finds one that does.
//!
//! EdgeKV (Sonbol and others, 2020) keeps global data so: groups of edge nodes, one truth a group,
//! found over a ring (§3 and §4 there). Left out: placement by use.

pub mod backups;
pub mod cache;
pub mod failover;
pub mod handover;
pub mod homes;
pub mod map;
pub mod mirroring;
pub mod ownership;
pub mod ring;
pub mod routing;
pub mod straight;
