//! The places of one site: claims of other owners, admitted by what they bid.
//!
//! The auction of [`super::auction`] with each site in charge of its own places. An owner that
//! wants to move a group claims a place at the target. The target sells its capacity to the highest
//! bids per byte; a claim that outbids the lowest incumbents is admitted, and those have to claim
//! places elsewhere. They *stay until admitted*: for them, and for what is on its way, there is
//! headroom above what is sold.
//!
//! An admission is a reservation: volatile, and gone after two windows of this site's time. What
//! counts is [`Market::install`], a command of the site's log: it checks room and rules again, and
//! refuses durably. So two owners that were both admitted never overfill the site.

use super::auction::step;
use super::latencies::Site;
use super::rules::{Bar, Rules};
use super::trial::{Bug, Planted};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept free above what is sold: 5 %.
pub const HEADROOM: f64 = 0.05;
/// A reservation is gone after so many windows.
pub const RESERVED_WINDOWS: u64 = 2;

/// A claim of a place for a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The group.
    pub group: u32,
    /// Its size.
    pub bytes: u32,
    /// The highest price of a byte at which it would stay, in ms a second.
    pub bid: f32,
}

/// Why a group gets no place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refusal {
    /// A byte costs this much.
    Price(f32),
    /// The headroom is taken by groups that are on their way: claim again later.
    Busy,
    /// It must not be there.
    Rule(Bar),
    /// The bid is not a number, or negative.
    Malformed,
}

/// What becomes of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The group has a place for two windows.
    Admitted {
        /// Groups here that have to claim another place, and stay until they have it.
        outbid: Vec<u32>,
    },
    /// It has none.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    bytes: u32,
    bid: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// Held, and to leave as soon as another site admits it.
    Outbid,
    /// Until this window.
    Reserved(u64),
}

/// The places of one site.
#[derive(Clone, Debug)]
pub struct Market {
    site: Site,
    /// All that the site can hold.
    limit_bytes: u64,
    places: BTreeMap<u32, Place>,
    /// Those that can be outbid, the lowest bid first. Bids are ordered by their bits: they are not
    /// negative.
    by_bid: BTreeSet<(u32, u32)>,
    /// Held and reserved; of these, outbid.
    taken_bytes: u64,
    outbid_bytes: u64,
    price: f32,
    /// The size of the last group that was refused for its bid.
    refused_bytes: u32,
    window: u64,
    planted: Planted,
}

impl Market {
    /// An empty site that can hold so much.
    pub fn new(site: Site, limit_bytes: u64, planted: Planted) -> Market {
        Market {
            site,
            limit_bytes,
            places: BTreeMap::new(),
            by_bid: BTreeSet::new(),
            taken_bytes: 0,
            outbid_bytes: 0,
            price: 0.0,
            refused_bytes: 0,
            window: 0,
            planted,
        }
    }

    /// What is sold.
    pub fn capacity_bytes(&self) -> u64 {
        (self.limit_bytes as f64 / (1.0 + HEADROOM)) as u64
    }

    /// What a byte costs, in ms a second.
    pub fn price(&self) -> f32 {
        self.price
    }

    /// The bytes of installed groups.
    pub fn held_bytes(&self) -> u64 {
        let is_held = |place: &&Place| !matches!(place.state, State::Reserved(_));
        self.places.values().filter(is_held).map(|place| u64::from(place.bytes)).sum()
    }

    /// Whether a group is installed here.
    pub fn holds(&self, group: u32) -> bool {
        self.places.get(&group).is_some_and(|place| !matches!(place.state, State::Reserved(_)))
    }

    /// Installed groups that have to leave.
    pub fn outbid(&self) -> impl Iterator<Item = u32> + '_ {
        let is_outbid = |place: &Place| place.state == State::Outbid;
        self.places.iter().filter(move |(_, place)| is_outbid(place)).map(|(group, _)| *group)
    }

    /// A claim arrives. The owner of a group that is here already has its place.
    pub fn claim(&mut self, claim: Claim, rules: &Rules) -> Verdict {
        if !(0.0..=f32::MAX).contains(&claim.bid) {
            return Verdict::Refused(Refusal::Malformed);
        }
        if let Some(bar) = rules.forbids(claim.group as usize, self.site) {
            return Verdict::Refused(Refusal::Rule(bar));
        }
        if self.holds(claim.group) {
            self.update(claim);
            return Verdict::Admitted { outbid: Vec::new() };
        }
        // The same claim once more: it begins anew, for its size may have changed.
        self.remove(claim.group);
        if claim.bid < self.price {
            return Verdict::Refused(Refusal::Price(self.price));
        }
        let bytes = u64::from(claim.bytes);
        let bid = claim.bid.to_bits();
        let sold = self.taken_bytes - self.outbid_bytes;
        let mut short = (sold + bytes).saturating_sub(self.capacity_bytes());
        let mut outbid = Vec::new();
        for &(lowest, group) in &self.by_bid {
            if short == 0 || lowest >= bid {
                break;
            }
            outbid.push(group);
            short = short.saturating_sub(u64::from(self.places[&group].bytes));
        }
        if short > 0 {
            // The loser's bid is the price from now on.
            self.price = claim.bid;
            self.refused_bytes = claim.bytes;
            return Verdict::Refused(Refusal::Price(self.price));
        }
        if self.taken_bytes + bytes > self.limit_bytes && !self.planted.is(Bug::ReleaseFirst) {
            return Verdict::Refused(Refusal::Busy);
        }
        for group in &outbid {
            self.outbid_one(*group);
        }
        let state = State::Reserved(self.window + RESERVED_WINDOWS);
        self.insert(claim.group, Place { bytes: claim.bytes, bid, state });
        Verdict::Admitted { outbid }
    }

    fn outbid_one(&mut self, group: u32) {
        let Some(place) = self.places.get_mut(&group) else { return };
        if f32::from_bits(place.bid) > self.price {
            self.price = f32::from_bits(place.bid);
            self.refused_bytes = place.bytes;
        }
        if matches!(place.state, State::Reserved(_)) || self.planted.is(Bug::ReleaseFirst) {
            self.remove(group);
            return;
        }
        place.state = State::Outbid;
        self.by_bid.remove(&(place.bid, group));
        self.outbid_bytes += u64::from(place.bytes);
    }

    /// A group arrives, by a command of the site's log. It needs no reservation; but it needs room
    /// beside all that have one.
    pub fn install(&mut self, group: u32, bytes: u32, rules: &Rules) -> Result<(), Refusal> {
        if !self.planted.is(Bug::RulesAtClaimOnly)
            && let Some(bar) = rules.forbids(group as usize, self.site)
        {
            return Err(Refusal::Rule(bar));
        }
        let reserved = self.places.get(&group).copied();
        let others = self.taken_bytes - reserved.map_or(0, |place| u64::from(place.bytes));
        let fits = others + u64::from(bytes) <= self.limit_bytes;
        if !fits && !self.planted.is(Bug::CapacityAtClaimOnly) {
            return Err(Refusal::Busy);
        }
        self.remove(group);
        let bid = reserved.map_or(self.price.to_bits(), |place| place.bid);
        self.insert(group, Place { bytes, bid, state: State::Held });
        Ok(())
    }

    /// A group that is here grows or shrinks, or what it would bid for its place changes. One that
    /// was outbid and bids enough again stays.
    pub fn update(&mut self, claim: Claim) {
        let Some(place) = self.places.get(&claim.group).copied() else { return };
        let bid = if claim.bid > 0.0 { claim.bid.min(f32::MAX) } else { 0.0 };
        let (sold, bytes) = (self.taken_bytes - self.outbid_bytes, u64::from(claim.bytes));
        let is_outbid = place.state == State::Outbid;
        let stays = is_outbid && bid >= self.price && sold + bytes <= self.capacity_bytes();
        let state = if stays { State::Held } else { place.state };
        self.remove(claim.group);
        self.insert(claim.group, Place { bytes: claim.bytes, bid: bid.to_bits(), state });
    }

    /// A group has left, or a claim is withdrawn.
    pub fn remove(&mut self, group: u32) {
        let Some(place) = self.places.remove(&group) else { return };
        self.by_bid.remove(&(place.bid, group));
        self.taken_bytes -= u64::from(place.bytes);
        if place.state == State::Outbid {
            self.outbid_bytes -= u64::from(place.bytes);
        }
    }

    fn insert(&mut self, group: u32, place: Place) {
        self.taken_bytes += u64::from(place.bytes);
        if place.state == State::Outbid {
            self.outbid_bytes += u64::from(place.bytes);
        } else {
            self.by_bid.insert((place.bid, group));
        }
        self.places.insert(group, place);
    }

    /// A window ends: reservations run out, and the price goes towards what a place costs now.
    pub fn close_window(&mut self) {
        self.window += 1;
        let is_over =
            |place: &Place| matches!(place.state, State::Reserved(until) if until <= self.window);
        let over: Vec<u32> = self
            .places
            .iter()
            .filter(|(_, place)| is_over(place))
            .map(|(group, _)| *group)
            .collect();
        for group in over {
            self.remove(group);
        }
        let has_room = self.taken_bytes + u64::from(self.refused_bytes) <= self.capacity_bytes();
        let lowest = self.by_bid.first().map(|(bid, _)| f32::from_bits(*bid));
        self.price = step(self.price, has_room, lowest);
    }
}
