//! What owners report of the placement of their slots. Numbers are integers, as they travel: rates
//! in accesses per 1,000 seconds, latencies in microseconds.

use crate::{Bytes, KeyspaceId, SiteId, Slot};

/// Where a key is, which sites access it, and where it would be better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementExplained {
    /// The slot of the key: what would move.
    pub slot: Slot,
    /// The site that owns it.
    pub owner: SiteId,
    /// About how much the slot holds.
    pub bytes: u64,
    /// Accesses of the key's group (of its tag, or of the key), by site.
    pub key_users: Vec<(SiteId, u64)>,
    /// The clients with a name that access the key's group, the most first; empty where they are
    /// too many to be counted one by one.
    pub key_clients: Vec<PlacementClient>,
    /// Accesses of the whole slot, by site, the most first.
    pub slot_users: Vec<(SiteId, u64)>,
    /// Where the slot could be, the least latency first, the excluded sites last.
    pub candidates: Vec<PlacementCandidate>,
    /// The mean latency of an access if each site had the slot to itself.
    pub alone_us: u64,
    /// Why it is where it is.
    pub why: PlacementReason,
}

/// A client of a group of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementClient {
    /// A number that the site has for it, the same for all its groups.
    pub number: u32,
    /// The site that it was last at.
    pub site: SiteId,
    /// Its accesses.
    pub per_1000_s: u64,
}

/// A site that could own a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementCandidate {
    /// Which.
    pub site: SiteId,
    /// The mean latency of an access if it were the owner; `None`: one that counts is unknown.
    pub mean_us: Option<u64>,
    /// Why it must not be the owner.
    pub bar: Option<PlacementBar>,
}

/// Why a group must not be at a site, whatever its users would gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementBar {
    /// The site is about to leave, or does not answer.
    Leaves,
    /// The keyspace is not lent to it.
    LendTo,
    /// All copies would be in one failure domain.
    Domain,
    /// The group is pinned to another site.
    Pinned,
    /// The site takes only so much, and what it has is worth more.
    NoRoom,
}

/// Why a slot is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementReason {
    /// Nothing was counted.
    Unused,
    /// No other site would be better.
    Best,
    /// A latency to the owner is unknown, so no gain can be stated.
    UnknownHere,
    /// All other sites are excluded.
    NoCandidate,
    /// Another site is better, by less than a move must gain.
    WithinMargin {
        /// Which.
        to: SiteId,
        /// What an access gains there.
        gain_us: u64,
        /// What it must gain.
        needed_us: u64,
    },
    /// Another site is better, by less than so few accesses can show.
    WithinNoise {
        /// Which.
        to: SiteId,
        /// What an access gains there.
        gain_us: u64,
        /// What it must gain.
        needed_us: u64,
    },
    /// Another site is better, and users have not yet waited as long as a move costs.
    Waits {
        /// Which.
        to: SiteId,
        /// What an access gains there.
        gain_us: u64,
    },
    /// Another site is better: a move there is advised.
    Advised {
        /// Which.
        to: SiteId,
        /// What an access gains there.
        gain_us: u64,
    },
    /// Another site is better, and it is on its way there.
    Moves {
        /// Which.
        to: SiteId,
        /// What an access gains there.
        gain_us: u64,
    },
    /// It is larger than groups that move.
    TooLarge,
    /// It is pinned to a site: there, on its way there, or waiting for that site.
    Pinned {
        /// Which.
        to: SiteId,
    },
}

/// Where a group is that may be lent. `placed` is about the group; its owner is the site that
/// serves the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupExplained {
    /// As of a slot.
    pub placed: PlacementExplained,
    /// The owner of the group's slot.
    pub home: SiteId,
}

/// What a site lends and has borrowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoansLedger {
    /// Groups of this site's slots that it lends: some of them.
    pub lent: Vec<LentGroup>,
    /// How many they are.
    pub lent_count: u64,
    /// Groups of other sites' slots that it serves, the largest saving first: some of them.
    pub borrowed: Vec<BorrowedGroup>,
    /// How many they are.
    pub borrowed_count: u64,
    /// The last windows, the oldest first: the moves that this site has begun, and what the groups
    /// that it has borrowed have saved against their homes.
    pub windows: Vec<PlacementWindow>,
}

/// A group that is served elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentGroup {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The tag of its keys.
    pub tag: Bytes,
    /// Its borrower.
    pub to: SiteId,
}

/// A group that is served here for another site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BorrowedGroup {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The tag of its keys.
    pub tag: Bytes,
    /// The owner of its slot.
    pub from: SiteId,
    /// The waiting that this saves at the present rate, in microseconds a second.
    pub saves_us_per_s: i64,
}

/// What a site advises, and what that would have saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementLedger {
    /// Slots of this site that would be better elsewhere, the largest gain first.
    pub advised: Vec<AdvisedMove>,
    /// The last windows, the oldest first.
    pub windows: Vec<PlacementWindow>,
    /// Groups of keys with a profile of their own.
    pub groups: u64,
    /// Accesses that found no room to be counted.
    pub dropped: u64,
}

/// A move that would shorten the waiting of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvisedMove {
    /// The slot.
    pub slot: Slot,
    /// Its owner.
    pub from: SiteId,
    /// Where it would be better.
    pub to: SiteId,
    /// The waiting that this would save at the present rate, in microseconds a second.
    pub gain_us_per_s: u64,
    /// About how much would move.
    pub bytes: u64,
    /// How long it has been advised, in milliseconds.
    pub for_ms: u64,
}

/// What was advised in some seconds, and what following all advice would have saved in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementWindow {
    /// Its number, by the present leader.
    pub number: u64,
    /// Moves that were advised in it.
    pub moves: u64,
    /// About how much they would have moved.
    pub bytes: u64,
    /// What they were expected to save, in microseconds a second.
    pub expected_us_per_s: u64,
    /// What the moves of this and of earlier windows would have saved in it, in microseconds.
    /// Negative: users would have waited longer.
    pub saved_us: i64,
    /// How long users have waited for what was on its way, or would have, in microseconds: an
    /// estimate, by the rate of each group and a pause of 50 ms.
    pub paused_us: u64,
}
