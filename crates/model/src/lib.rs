//! The vocabulary of all crates: ids, keys, keyspaces, requests, answers, errors, limits.
//!
//! Every other crate depends on this one and it depends on none of them. There is no I/O here, no
//! clock and no async: only values and what follows from a value alone.
//!
//! The way of a request in these words: a front turns bytes into a [`Request`]; the site answers
//! it with an [`Answer`] or a [`Failure`]. What must survive becomes a [`Command`] of the site's
//! replicated log; what applying a command changed becomes a [`Change`] of its change log.

mod answer;
mod backup;
mod ballot;
mod bridge;
mod by_slot;
mod cache;
mod catalog;
mod causal;
mod change;
mod client_name;
mod command;
mod deployment;
mod epoch;
mod failover;
mod failure;
pub mod glob;
mod handover;
mod id;
mod job;
mod key_slots;
mod keyspace;
pub mod limits;
mod loan;
mod lost_write;
mod operator;
mod order;
mod placement;
mod query;
mod recovery;
mod region;
mod request;
mod session;
mod slot;
mod time;

pub use answer::{Answer, Expiring, Item, Kind, RegistrarAnswer, Versioned};
pub use backup::{BackupChoice, Backups, IDS_SKIPPED, Loss, MirrorStep, NUMBERS_SKIPPED, Reached};
pub use ballot::{Ballot, RegistrarSet, Registrars, Term};
pub use bridge::{Bridge, Bridged, KeyStamps, Registers, Stamp};
pub use by_slot::BySlot;
pub use bytes::Bytes;
pub use cache::Cache;
pub use catalog::Catalog;
pub use causal::{
    CausalToken, CausalWrite, Effect, HeldSize, Import, Mark, NO_KEYSPACE, NO_SITE, Offer,
    Position, key_hash,
};
pub use change::{Change, ChangeKind};
pub use client_name::ClientName;
pub use command::{
    CausalCommand, Command, Condition, DeploymentCommand, Expiry, ExpiryCondition, GlobalCommand,
    Guard, LastOrdered, Lending, OpenRetry, Properties, ReadPoint, RegistrarStep, Resync,
    ResyncItem, RootStep, SourceStep, StandbyStep, Step, Write, excerpt,
};
pub use deployment::{
    Changed, DeploymentId, NodeEntry, Pin, Registry, RegistryChange, RegistryError, Remembered,
    SiteEntry,
};
pub use epoch::{Epoch, SlotCopy, Tag};
pub use failover::{CopyRun, DecidedFailover, Failovers, Inventory, OpenFailover, Taken};
pub use failure::{BackupError, Failure, MembershipError, MoveError, Refusal};
pub use handover::{DestinationStep, HandedOn, MoveId, SlotEpochs, StagedItem};
pub use id::{ClientId, KeyspaceId, NodeId, RequestId, Revision, SiteId, SiteName};
pub use job::{JobName, JobStatus};
pub use key_slots::KeySlots;
pub use keyspace::{
    Alteration, Consistency, Keyspace, KeyspaceError, KeyspaceSpec, Miss, Placement, Rmw, Scope,
};
pub use loan::{
    Group, Loan, LoanClaim, LoanOffer, LoanPart, LoanReport, LoanRow, LoanState, LoanTaken,
};
pub use lost_write::{LostReport, LostWrite, LostWrites};
pub use operator::{AcceptedLoss, OperatorCommand, Promotion};
pub use order::{Held, Holding, Ordered, OrderedMove};
pub use placement::{
    AdvisedMove, BorrowedGroup, GroupExplained, LentGroup, LoansLedger, PlacementBar,
    PlacementCandidate, PlacementClient, PlacementExplained, PlacementLedger, PlacementReason,
    PlacementWindow,
};
pub use query::{Query, ScanFilter};
pub use recovery::{RegistrarView, RegistryView, Retained, TermBegan, TermIds};
pub use region::{
    EPOCHS_FORGOTTEN, EPOCHS_SKIPPED, LostEnd, REPLICAS_MIN, Rebuilt, Region, RegionId, Standby,
    StandbyChoice, StandbyRule,
};
pub use request::{Body, BodyProperties, ReadConsistency, Request};
pub use session::{SessionError, SessionToken};
pub use slot::{Slot, SlotRun, SlotSet, crc16, tag};
pub use time::Time;
