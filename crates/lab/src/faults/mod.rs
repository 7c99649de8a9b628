//! What goes wrong in a world, and when.
//!
//! A *plan* is drawn before a run begins, from the world and a seed: which fault, where, when, for
//! how long. What a fault does is in [`apply`]. Because the plan is a list that exists beforehand,
//! a run can be repeated with any part of it, which is how a failed run is made small.
//!
//! Faults are of a site: its nodes, their clocks and disks, the links between them, its links to
//! other sites, its place in its deployment. All of them are ones that the store promises to
//! survive, in any number and order, with one care: what destroys the only trace of something
//! acknowledged on a disk (a bit flipped in its log, an fsync that did nothing, a disk exchanged)
//! is done only while all nodes of the site hold everything, and the node then waits for an
//! operator, who exchanges its disk once the others hold everything. That is what
//! `docs/promises.md` asks of an operator too: a disk that ignored an fsync counts as lost.

#[cfg(feature = "simulation")]
pub mod apply;
#[cfg(feature = "simulation")]
pub mod besides;
#[cfg(feature = "simulation")]
pub mod lend;
#[cfg(feature = "simulation")]
pub mod lifecycle;
#[cfg(feature = "simulation")]
pub mod lose;
pub mod plan;
#[cfg(feature = "simulation")]
pub mod promote;
#[cfg(feature = "simulation")]
mod rebuild;
#[cfg(feature = "simulation")]
mod region;
#[cfg(feature = "simulation")]
mod rules;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

use crate::world::Site;

/// What can go wrong.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A process is killed, or its machine loses power: what was not synced is lost, whole or in
    /// part or torn. It starts again after the span.
    Crash,
    /// All nodes of the site lose power at once.
    SiteLoss,
    /// A process stands still for the span, without a sign of it.
    Pause,
    /// A node's clocks run up to 9 % fast or slow for the span.
    ClockRate,
    /// A node's wall clock jumps, by up to a minute or up to twelve hours, either way.
    ClockJump,
    /// A node is cut off from all others.
    Isolate,
    /// The site falls into two parts that do not reach each other.
    Halves,
    /// Messages from one node do not reach another; those of the other do reach it.
    OneWay,
    /// A node receives nothing, and its messages reach all others.
    Deaf,
    /// A node's messages reach no other, and it receives all of theirs.
    Mute,
    /// Two halves reach each other through one node only.
    Bridge,
    /// A link goes and comes, many times.
    Flapping,
    /// A connection breaks, with all that is on its way, and is there again.
    Reset,
    /// Messages are dropped now and then, as from full buffers.
    Drop,
    /// All links of the site become slow.
    SlowLink,
    /// A disk takes long for every fsync.
    SlowDisk,
    /// A disk has no room.
    FullDisk,
    /// A bit flips in a node's log while it is down.
    FlippedBit,
    /// An fsync does nothing and reports success; then the power goes.
    LostSync,
    /// The state's engine finds its files damaged at the next start.
    DamagedState,
    /// A node comes back with an empty disk.
    Replace,
    /// A node is removed from the site, and taken in again with an empty disk.
    Remove,
    /// Leadership is handed to another node.
    Transfer,
    /// The site is cut off from all other sites.
    PartSite,
    /// Two sites do not reach each other.
    PartSites,
    /// Messages from one site do not reach another site; those of the other do reach it.
    HalfPartSites,
    /// All links of the site to other sites become slow.
    SlowSites,
    /// All connections of the site to other sites break, with all that is on its way, and are there
    /// again.
    BreakSites,
    /// Some of the site's slots of global keyspaces are handed to another site.
    MoveSlots,
    /// The site and others lose power at once: as many as a ring's successor list is long, at most.
    SitesLoss,
    /// The site leaves its deployment, is stopped when it is out, and comes back after the span as
    /// a new one, on empty disks. Two others stay at least.
    LeaveSite,
    /// A site that is not there, as it has not come yet or has left, joins the deployment.
    JoinSite,
    /// The site is lost, with power or from all other sites, and its backup is promoted; then it
    /// comes back. What it had acknowledged of late may be lost, and is declared so. Only where it
    /// is asked for.
    LoseSite,
    /// A node is lost, with power or from all others of its site, and stays so even when all other
    /// faults have ended: until another one is lost in the same way, within the span after this one
    /// is back. Only where it is asked for.
    OneDown,
    /// A node gets an empty disk, becomes a member with it, and then starts on its old disk again,
    /// for the span; then it has the newer one back.
    OldDisk,
    /// A second machine is given the id of a node that is well, and asks to be taken in for the
    /// span.
    SameId,
    /// The site is lost, alone or with others, with power or from all other sites. Operators ask
    /// any site to promote it, with and without naming the others, repeat the order, only look,
    /// call it off; those that are lost come back in any order within the span, or not before the
    /// end. What a decision gives up is declared lost. Only where it is asked for.
    PromoteSite,
    /// An operator sets which site is to be the site's backup, that it is to be the next one on the
    /// ring, or that there is to be none. Only where it is asked for.
    SetBackup,
    /// The site's clients do not reach it, and it does not reach them. Only where it is asked for.
    CutClients,
    /// An operator has the site order its region's causal writes, or calls that off. Only where it
    /// is asked for.
    MoveRoot,
    /// An operator chooses the standby of the region's root, or none, and whether it takes over by
    /// itself. Only where it is asked for.
    SetStandby,
    /// The site is lost, with power or from all other sites, if it is the root of its region. Only
    /// where it is asked for.
    LoseRoot,
    /// Groups of the site's slots are lent to another site; after the span they stay there, are
    /// given back, or are lent on. Only where it is asked for.
    LendGroups,
    /// An operator sets which sites an adaptive keyspace is lent to, or that it is adaptive no
    /// more, or pins a group to a site. Only where it is asked for.
    AlterRules,
    /// The site is lost, with power or from all other sites, if it is the root of its region, and
    /// operators have the others go on with the order. Then it comes back; or it is given up and
    /// removed, and a new one comes after the span. Only where it is asked for.
    RebuildRoot,
    /// The link between two sites goes and comes, many times. Only where it is asked for.
    FlappingSites,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 46] = [
        Kind::Crash,
        Kind::SiteLoss,
        Kind::Pause,
        Kind::ClockRate,
        Kind::ClockJump,
        Kind::Isolate,
        Kind::Halves,
        Kind::OneWay,
        Kind::Deaf,
        Kind::Mute,
        Kind::Bridge,
        Kind::Flapping,
        Kind::Reset,
        Kind::Drop,
        Kind::SlowLink,
        Kind::SlowDisk,
        Kind::FullDisk,
        Kind::FlippedBit,
        Kind::LostSync,
        Kind::DamagedState,
        Kind::Replace,
        Kind::Remove,
        Kind::Transfer,
        Kind::PartSite,
        Kind::PartSites,
        Kind::HalfPartSites,
        Kind::SlowSites,
        Kind::BreakSites,
        Kind::MoveSlots,
        Kind::SitesLoss,
        Kind::LeaveSite,
        Kind::JoinSite,
        Kind::LoseSite,
        Kind::OneDown,
        Kind::OldDisk,
        Kind::SameId,
        Kind::PromoteSite,
        Kind::SetBackup,
        Kind::CutClients,
        Kind::MoveRoot,
        Kind::SetStandby,
        Kind::LoseRoot,
        Kind::LendGroups,
        Kind::AlterRules,
        Kind::RebuildRoot,
        Kind::FlappingSites,
    ];

    /// Those that come where a world names none: all that lose nothing, and end.
    pub fn by_default() -> impl Iterator<Item = Kind> {
        let asked_for = |kind: &Kind| {
            matches!(
                kind,
                Kind::LoseSite
                    | Kind::OneDown
                    | Kind::PromoteSite
                    | Kind::SetBackup
                    | Kind::CutClients
                    | Kind::MoveRoot
                    | Kind::SetStandby
                    | Kind::LoseRoot
                    | Kind::LendGroups
                    | Kind::AlterRules
                    | Kind::RebuildRoot
                    | Kind::FlappingSites
            )
        };
        Kind::ALL.into_iter().filter(move |kind| !asked_for(kind))
    }

    /// Its name in a world file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Crash => "crash",
            Kind::SiteLoss => "site_loss",
            Kind::Pause => "pause",
            Kind::ClockRate => "clock_rate",
            Kind::ClockJump => "clock_jump",
            Kind::Isolate => "isolate",
            Kind::Halves => "halves",
            Kind::OneWay => "one_way",
            Kind::Deaf => "deaf",
            Kind::Mute => "mute",
            Kind::Bridge => "bridge",
            Kind::Flapping => "flapping",
            Kind::Reset => "reset",
            Kind::Drop => "drop",
            Kind::SlowLink => "slow_link",
            Kind::SlowDisk => "slow_disk",
            Kind::FullDisk => "full_disk",
            Kind::FlippedBit => "flipped_bit",
            Kind::LostSync => "lost_sync",
            Kind::DamagedState => "damaged_state",
            Kind::Replace => "replace",
            Kind::Remove => "remove",
            Kind::Transfer => "transfer",
            Kind::PartSite => "part_site",
            Kind::PartSites => "part_sites",
            Kind::HalfPartSites => "half_part_sites",
            Kind::SlowSites => "slow_sites",
            Kind::BreakSites => "break_sites",
            Kind::MoveSlots => "move_slots",
            Kind::SitesLoss => "sites_loss",
            Kind::LeaveSite => "leave_site",
            Kind::JoinSite => "join_site",
            Kind::LoseSite => "lose_site",
            Kind::OneDown => "one_down",
            Kind::OldDisk => "old_disk",
            Kind::SameId => "same_id",
            Kind::PromoteSite => "promote_site",
            Kind::SetBackup => "set_backup",
            Kind::CutClients => "cut_clients",
            Kind::MoveRoot => "move_root",
            Kind::SetStandby => "set_standby",
            Kind::LoseRoot => "lose_root",
            Kind::LendGroups => "lend_groups",
            Kind::AlterRules => "alter_rules",
            Kind::RebuildRoot => "rebuild_root",
            Kind::FlappingSites => "flapping_sites",
        }
    }

    /// Whether it only makes sense among several nodes.
    #[must_use]
    pub fn needs_several(self) -> bool {
        match self {
            Kind::Isolate
            | Kind::Halves
            | Kind::OneWay
            | Kind::Deaf
            | Kind::Mute
            | Kind::Bridge
            | Kind::Flapping
            | Kind::Reset
            | Kind::Drop
            | Kind::SlowLink
            | Kind::Transfer
            // A disk that is lost is only survived by what others hold.
            | Kind::FlippedBit
            | Kind::LostSync
            | Kind::Replace
            | Kind::Remove
            | Kind::OneDown
            | Kind::OldDisk
            | Kind::SameId => true,
            Kind::Crash
            | Kind::SiteLoss
            | Kind::Pause
            | Kind::ClockRate
            | Kind::ClockJump
            | Kind::SlowDisk
            | Kind::FullDisk
            | Kind::DamagedState
            | Kind::PartSite
            | Kind::PartSites
            | Kind::HalfPartSites
            | Kind::FlappingSites
            | Kind::SlowSites
            | Kind::BreakSites
            | Kind::MoveSlots
            | Kind::SitesLoss
            | Kind::LeaveSite
            | Kind::JoinSite
            | Kind::LoseSite
            | Kind::PromoteSite
            | Kind::SetBackup
            | Kind::CutClients
            | Kind::MoveRoot
            | Kind::SetStandby
            | Kind::LoseRoot
            | Kind::LendGroups
            | Kind::AlterRules
            | Kind::RebuildRoot => false,
        }
    }

    /// Whether it is about a site among others: it only makes sense where there are several.
    #[must_use]
    pub fn is_between_sites(self) -> bool {
        self.needs_deployment()
            || matches!(
                self,
                Kind::PartSite
                    | Kind::PartSites
                    | Kind::HalfPartSites
                    | Kind::FlappingSites
                    | Kind::SlowSites
                    | Kind::BreakSites
                    | Kind::SitesLoss
                    | Kind::LoseSite
            )
    }

    /// Whether it is about a site's part in a deployment: it only makes sense where there is one.
    #[must_use]
    pub fn needs_deployment(self) -> bool {
        matches!(
            self,
            Kind::MoveSlots
                | Kind::LeaveSite
                | Kind::JoinSite
                | Kind::PromoteSite
                | Kind::SetBackup
                | Kind::MoveRoot
                | Kind::SetStandby
                | Kind::LoseRoot
                | Kind::LendGroups
                | Kind::AlterRules
                | Kind::RebuildRoot
        )
    }

    /// Whether one that is drawn may go on until all faults end.
    #[must_use]
    pub fn may_stay(self) -> bool {
        matches!(
            self,
            Kind::Crash
                | Kind::SiteLoss
                | Kind::ClockRate
                | Kind::Isolate
                | Kind::Halves
                | Kind::OneWay
                | Kind::Deaf
                | Kind::Mute
                | Kind::Bridge
                | Kind::Flapping
                | Kind::Drop
                | Kind::SlowLink
                | Kind::SlowDisk
                | Kind::FullDisk
                | Kind::PartSite
                | Kind::PartSites
                | Kind::HalfPartSites
                | Kind::FlappingSites
                | Kind::SlowSites
                | Kind::CutClients
        )
    }

    /// The shortest and the longest span of one that is drawn.
    #[must_use]
    pub fn spans(self) -> (Duration, Duration) {
        let ms = Duration::from_millis;
        match self {
            Kind::Crash | Kind::DamagedState | Kind::FlippedBit => (ms(0), ms(2_000)),
            Kind::SiteLoss => (ms(0), ms(1_500)),
            Kind::OneDown => (ms(0), ms(300)),
            Kind::SitesLoss => (ms(0), ms(3_000)),
            Kind::LeaveSite => (ms(0), ms(8_000)),
            Kind::Pause => (ms(20), ms(3_000)),
            Kind::ClockRate => (ms(1_000), ms(10_000)),
            Kind::Isolate
            | Kind::Halves
            | Kind::OneWay
            | Kind::Deaf
            | Kind::Mute
            | Kind::Bridge
            | Kind::Flapping
            | Kind::PartSite
            | Kind::PartSites
            | Kind::HalfPartSites
            | Kind::FlappingSites => (ms(100), ms(4_000)),
            Kind::Drop | Kind::SlowLink | Kind::SlowDisk | Kind::SlowSites => (ms(500), ms(4_000)),
            Kind::FullDisk => (ms(200), ms(3_000)),
            Kind::LoseSite => (ms(6_000), ms(12_000)),
            Kind::PromoteSite => (ms(4_000), ms(24_000)),
            Kind::LoseRoot => (ms(8_000), ms(24_000)),
            Kind::RebuildRoot => (ms(4_000), ms(36_000)),
            Kind::CutClients => (ms(100), ms(6_000)),
            Kind::LendGroups => (ms(0), ms(8_000)),
            Kind::LostSync => (ms(1), ms(200)),
            Kind::OldDisk => (ms(500), ms(4_000)),
            Kind::SameId => (ms(1_000), ms(6_000)),
            Kind::ClockJump
            | Kind::Reset
            | Kind::Replace
            | Kind::Remove
            | Kind::Transfer
            | Kind::BreakSites
            | Kind::MoveSlots
            | Kind::JoinSite
            | Kind::SetBackup
            | Kind::MoveRoot
            | Kind::SetStandby
            | Kind::AlterRules => (ms(0), ms(0)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One fault of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its place in the plan.
    pub number: usize,
    /// When it begins, since the clients began.
    pub at: Duration,
    /// How long it lasts.
    pub span: Duration,
    /// What it is.
    pub kind: Kind,
    /// The site, by its place in the world.
    pub site: usize,
    /// The node it is about, by its place in the site. One in two of those that are drawn is aimed
    /// at the node that leads when it begins: see [`apply::aim`].
    pub node: usize,
    /// Whether it is aimed at the node that leads.
    pub at_leader: bool,
    /// Another one of the same site, where it takes two; the same one in a site of one.
    pub other: usize,
    /// Another site, where it takes two; the same one in a world of one.
    pub other_site: usize,
    /// Decides whatever else there is to decide about it.
    pub draw: u64,
}

impl Fault {
    /// Where it is, for people: the node that it is drawn for, or the sites.
    #[must_use]
    pub fn place(&self, sites: &[Site]) -> String {
        let (site, other) = (&sites[self.site].name, &sites[self.other_site].name);
        match self.kind {
            Kind::PartSites => format!("{site} and {other}"),
            Kind::HalfPartSites | Kind::MoveSlots | Kind::SetBackup | Kind::LendGroups => {
                format!("{site} to {other}")
            }
            kind if kind.is_between_sites() => site.to_string(),
            _ => format!("{site}/n{}", self.node + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_a_world_file() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            let (shortest, longest) = kind.spans();
            assert!(shortest <= longest);
        }
    }
}
