//! Global keys in a site's state: the right to serve slots, where their records lie, and all that
//! moves them.
//!
//! | file | idea |
//! | --- | --- |
//! | [`tokens`], `stores` | the right to serve slots of global keyspaces, and where they lie |
//! | [`source`], [`destination`], [`copying`] | slots that leave and slots that come |
//! | `receiving` | what a stream brings, item by item, to either |
//! | `orders` | operators' orders to hand slots over, by their numbers |
//! | [`copies`] | copies of slots that others own |
//! | [`mirrors`], [`mirroring`] | the streams that feed them, here and at others |
//! | `handing_on` | copies that a leaving site hands on |
//! | [`loans`], `lending`, `borrowing`, `claims`, `floors`, `groups` | groups that are lent to other sites, and those that come from them |
//! | `clearing` | all keys of a keyspace that this site serves |
//! | `ownership` | the owners of slots: the rules, failovers |
//! | `lost_writes` | the writes that failovers lost of this site |

mod borrowing;
pub(super) mod claims;
mod clearing;
pub mod copies;
pub mod copying;
pub mod destination;
mod floors;
pub(crate) mod groups;
pub(crate) mod handing_on;
mod lending;
pub mod loans;
pub(super) mod lost_writes;
pub mod mirroring;
pub mod mirrors;
pub(super) mod orders;
pub(super) mod ownership;
mod receiving;
pub mod source;
pub(super) mod stores;
pub mod tokens;

use super::{
    Applying, Machine, MachineError, Modes, Stopped, deployment, elsewhere, slot_rows, store,
};
use crate::machine::{changes, keys, lineage, numbered, query, records, requests, rows, tables};
use model::{KeyspaceId, MoveId, SiteId, Slot};

/// Whose records lie under a generation that no keyspace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site::machine) enum Owner {
    /// A slot's of a global keyspace.
    Slot(KeyspaceId, Slot),
    /// A move's that is bringing them.
    Staged { id: MoveId, keyspace: KeyspaceId, slot: Slot },
    /// A mirror's of another site.
    Mirrored { from: SiteId, keyspace: KeyspaceId, slot: Slot },
    /// A copy's of a slot that another site owns.
    Copied { keyspace: KeyspaceId, slot: Slot },
    /// A part's in a group of another site's slot.
    Borrowed { keyspace: KeyspaceId },
}
