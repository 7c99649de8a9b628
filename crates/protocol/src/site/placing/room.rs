//! Sites that take only so many bytes of others' groups: what this one has room for, and what the
//! others have.
//!
//! | who | knows |
//! | --- | --- |
//! | the registry | each site's limit |
//! | the site itself | what it has borrowed, what its users are spared by that, a price |
//! | a site that would lend | the room and the price, from the last answer to its questions for round trips, each two seconds while it would |
//!
//! A question carries the groups for which there is no room. The site that is asked looks at these
//! bids once, and gives back what is worth less ([`crate::placement::room`]). What comes in spite of
//! the limit is refused as it is applied, so an answer that is old leads to a refusal at most: then
//! the room there counts as none until the next answer. What is lent counts against an answer that
//! may not have it yet.
//!
//! Counts begin anew where a group comes, so what came in the last half minute, or before this node
//! led for as long, is not given back for a bid; nor is what has users at an unknown distance.

use super::WINDOW;
use super::sites::Sites;
use crate::placement::Bid;
use crate::placement::room::{Incumbent, admit, next_price};
use model::{Registry, SiteId, limits};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use wire::inter_site::LatenciesMessage;

/// How old the room of a site may be that groups would go to, before it is asked again.
pub(super) const ASKED_AGAIN: Duration = Duration::from_secs(2);
/// How old it may be at all.
const COUNTS_FOR: Duration = Duration::from_secs(30);
/// What was lent may take so long to arrive.
const ARRIVES_IN: Duration = Duration::from_secs(5);
/// What has come of late is not given back for a bid: of its accesses too few are counted by then.
pub(super) const STAYS_FOR: Duration = Duration::from_secs(30);
/// A byte spares and costs no more than this, in ms of waiting a second: what a message states is
/// cut off there.
const VALUE_MAX: f32 = 1e9;

/// How many bytes of others' groups a site takes; `None`: as many as come.
pub(super) fn limit(registry: &Registry, site: SiteId) -> Option<u64> {
    registry.site(site)?.borrowed_bytes_max
}

/// What another site has, by its last answer.
#[derive(Clone, Copy, Debug)]
struct Offered {
    room_bytes: u64,
    price: f32,
    at: Duration,
}

/// What the others have.
#[derive(Debug, Default)]
pub(super) struct Offers(BTreeMap<SiteId, Offered>);

impl Offers {
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// A site has answered.
    pub(super) fn take(&mut self, site: SiteId, answer: &LatenciesMessage, now: Duration) {
        // Of a node that does not lead there is none.
        let Some(room_bytes) = answer.room_bytes else { return };
        // Not a number counts as nothing.
        let price = if answer.price > 0.0 { answer.price.min(VALUE_MAX) } else { 0.0 };
        self.0.insert(site, Offered { room_bytes, price, at: now });
    }

    /// The room at each site as they are numbered; empty: no other site has a limit. `refused`: when
    /// one last refused a group.
    pub(super) fn room(
        &self,
        (sites, registry, own): (&Sites, &Registry, SiteId),
        now: Duration,
        sent: &Sent,
        refused: &BTreeMap<SiteId, Duration>,
    ) -> Vec<u64> {
        let is_limited = |site: SiteId| site != own && limit(registry, site).is_some();
        if !sites.all().any(is_limited) {
            return Vec::new();
        }
        let room = |site: SiteId| {
            if !is_limited(site) {
                return u64::MAX;
            }
            let counts = |one: &&Offered| {
                now < one.at + COUNTS_FOR
                    && refused.get(&site).is_none_or(|refused| *refused < one.at)
            };
            let Some(offered) = self.0.get(&site).filter(counts) else { return 0 };
            offered.room_bytes.saturating_sub(sent.since(site, offered.at))
        };
        sites.all().map(room).collect()
    }

    /// The price of a byte at each site as they are numbered; empty: all are free, as most are.
    pub(super) fn prices(
        &self,
        (sites, registry, own): (&Sites, &Registry, SiteId),
        now: Duration,
    ) -> Vec<f32> {
        let price = |site: SiteId| {
            let offered = self.0.get(&site).filter(|one| now < one.at + COUNTS_FOR);
            let is_limited = site != own && limit(registry, site).is_some();
            offered.filter(|_| is_limited).map_or(0.0, |one| one.price)
        };
        let prices: Vec<f32> = sites.all().map(price).collect();
        match prices.iter().any(|price| *price > 0.0) {
            true => prices,
            false => Vec::new(),
        }
    }
}

/// What was lent to sites with a limit of late.
#[derive(Debug, Default)]
pub(super) struct Sent(BTreeMap<SiteId, VecDeque<(Duration, u64)>>);

impl Sent {
    pub(super) fn add(&mut self, site: SiteId, now: Duration, bytes: u64) {
        let of = self.0.entry(site).or_default();
        while of.front().is_some_and(|(at, _)| *at + COUNTS_FOR + ARRIVES_IN <= now) {
            of.pop_front();
        }
        of.push_back((now, bytes));
    }

    /// The bytes that an answer of this time may not count yet.
    fn since(&self, site: SiteId, answered: Duration) -> u64 {
        let of = self.0.get(&site).into_iter().flatten();
        of.filter(|(at, _)| *at + ARRIVES_IN > answered).map(|(_, bytes)| bytes).sum()
    }
}

/// What others would lend to this site, and the price of a byte here.
#[derive(Debug, Default)]
pub(super) struct Bids {
    price: f32,
    of: BTreeMap<SiteId, Vec<Bid>>,
    window_began: Duration,
}

impl Bids {
    pub(super) fn price(&self) -> f32 {
        self.price
    }

    /// A site asks for round trips: these are its bids now. What cannot be one does not count.
    pub(super) fn take(&mut self, site: SiteId, question: &LatenciesMessage) {
        let LatenciesMessage { wanted_bytes, wanted_values, probes, .. } = question;
        if *probes {
            return;
        }
        let bids = wanted_bytes.iter().zip(wanted_values).take(limits::BIDS_MAX);
        let bids = bids.map(|(bytes, value)| Bid { bytes: *bytes, value: value.min(VALUE_MAX) });
        let is_one = |bid: &Bid| {
            (1..=limits::LOANS_BYTES_MAX as u64).contains(&bid.bytes) && bid.value > 0.0
        };
        let bids: Vec<Bid> = bids.filter(is_one).collect();
        match bids.is_empty() {
            true => drop(self.of.remove(&site)),
            false => drop(self.of.insert(site, bids)),
        }
    }

    /// The answer of this site's leader, if it has a limit.
    pub(super) fn answer(
        &self,
        answer: LatenciesMessage,
        limit_bytes: Option<u64>,
        held_bytes: u64,
    ) -> LatenciesMessage {
        let room_bytes = limit_bytes.map(|limit| limit.saturating_sub(held_bytes));
        let price = if limit_bytes.is_some() { self.price } else { 0.0 };
        LatenciesMessage { room_bytes, price, ..answer }
    }

    /// Looks at the bids that have come: what is given back for them, by its place. `incumbents`:
    /// what may be given back, and the bytes of all that is not on its way home.
    pub(super) fn look(
        &mut self,
        now: Duration,
        (limit_bytes, held_bytes): (u64, u64),
        (margin, sigmas): (f32, f32),
        incumbents: impl FnOnce() -> (Vec<Incumbent>, u64),
    ) -> Vec<usize> {
        let ends_window = self.window_began + WINDOW <= now;
        let has_to_fall = ends_window && self.price > 0.0;
        if self.of.is_empty() && held_bytes <= limit_bytes && !has_to_fall {
            return Vec::new();
        }
        if ends_window {
            self.window_began = now;
        }
        let bids = std::mem::take(&mut self.of).into_values().flatten().collect();
        let (incumbents, staying_bytes) = incumbents();
        let admitted = admit(&incumbents, bids, (limit_bytes, staying_bytes), (margin, sigmas));
        self.price = next_price(self.price, &admitted, limit_bytes, ends_window);
        admitted.evicted
    }
}
