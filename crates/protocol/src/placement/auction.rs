//! Capacity by prices.
//!
//! Each site has a price per byte. A group goes where cost + price × bytes is least, and bids for
//! its place what it would lose at its second best: the highest price at which it stays. A site
//! that is full keeps the highest bids; its price rises to the highest one that it has refused, and
//! the loser goes elsewhere. That is Bertsekas' auction; with groups of equal sizes its result is
//! within the margins of the optimum.
//!
//! Groups that are where they are begin as incumbents, and leave for a gain of the margin only; and
//! only those bid that are ready to move, so that no group is outbid by one that then stays where
//! it is. So little moves from window to window, where Portkey's greedy throws out whatever is well
//! placed.
//!
//! Prices stay from window to window too, so that groups can judge a place by them before they bid;
//! but what made them is soon gone. So each auction begins by going half of the way from each price
//! to what a place there costs now: what the lowest bidder would pay for it, or nothing where there
//! is room.
//!
//! For any prices D(λ) = Σ min(cost + λ bytes) − Σ λ capacity is below the cost of *every*
//! placement within the capacities: the certificate of how good one is.

use super::greedy::{Assignment, Capacities};
use super::groups::Groups;
use super::latencies::{Matrix, Site};
use super::near::Near;
use super::rules::Rules;
use super::scan::Scan;
use super::solver::Solver;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The part of the way that a price goes to what a place costs now.
const STEP: f32 = 0.5;
/// A price below this moves nothing.
const LEAST: f32 = 1e-9;

/// A price, a step on. `lowest`: the least bid of those that have a place.
///
/// A site has room if it has enough for the group that it refused last. Otherwise a large group
/// comes at the lower price, outbids smaller ones, and the price that they leave behind falls
/// again, for ever.
fn step(price: f32, has_room: bool, lowest: Option<f32>) -> f32 {
    let towards = if has_room { 0.0 } else { lowest.unwrap_or(price) };
    let next = price + STEP * (towards - price);
    if next < LEAST { 0.0 } else { next }
}

/// The price of a byte at each site, in ms of waiting a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    per_byte: Vec<f32>,
    /// The size of the last group that was refused for its bid.
    refused_bytes: Vec<u32>,
}

/// How an auction is held.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Costs of accesses.
    pub matrix: &'a Matrix,
    /// Near sites.
    pub near: &'a Near,
    /// Where groups may go.
    pub rules: &'a Rules,
    /// What sites can hold.
    pub capacities: &'a Capacities,
    /// The share of its cost that a group must gain to leave its place, or to take one from
    /// another.
    pub margin: f32,
    /// The groups that may leave for a better place ([`super::Regrets::ready`]); empty: all. The
    /// others leave if they are outbid, or if they must not be where they are.
    pub ready: &'a [bool],
    /// Bids, at most; groups that have no place then stay where they are.
    pub bids_max: u64,
}

impl Prices {
    /// All places are free of charge.
    pub fn none(sites: usize) -> Prices {
        Prices { per_byte: vec![0.0; sites], refused_bytes: vec![0; sites] }
    }

    /// The price of a byte at each site.
    pub fn per_byte(&self) -> &[f32] {
        &self.per_byte
    }

    /// D(λ): no placement within the capacities costs less, in ms a second.
    pub fn bound(&self, terms: &Terms<'_>, groups: &Groups) -> f64 {
        let solver = Solver::with_prices(terms.matrix, terms.near, terms.rules, &self.per_byte);
        let mut scan = Scan::new(terms.matrix);
        let least = |group: usize| match solver.fill(&mut scan, groups, group) {
            least if least.is_finite() => f64::from(least),
            _ => 0.0,
        };
        let groups_pay: f64 = (0..groups.len()).map(least).sum();
        let sites_get = |(price, bytes): (&f32, &u64)| f64::from(*price) * *bytes as f64;
        groups_pay - self.per_byte.iter().zip(terms.capacities).map(sites_get).sum::<f64>()
    }

    /// Assigns groups, and sets the prices at which they stay.
    pub fn auction(&mut self, terms: &Terms<'_>, groups: &Groups) -> Assignment {
        assert_eq!(
            terms.capacities.len(),
            self.per_byte.len(),
            "the capacities are of other sites"
        );
        let mut auction = Auction::new(terms, groups, self);
        auction.seat_incumbents();
        let mut bids = 0;
        while let Some(group) = auction.homeless.pop() {
            if bids == terms.bids_max {
                auction.homeless.push(group);
                break;
            }
            bids += 1;
            auction.bid(group);
        }
        auction.finish()
    }
}

/// The bid of a group that has no other place.
const UNBEATEN: f32 = f32::MAX / 2.0;

/// Bids are ordered by their bits: they are not negative.
type Bid = u32;

struct Auction<'a> {
    terms: &'a Terms<'a>,
    groups: &'a Groups,
    solver: Solver<'a>,
    prices: &'a mut Prices,
    scan: Scan,
    /// Of each site: who has a place, the lowest bid first.
    seated: Vec<BinaryHeap<Reverse<(Bid, u32)>>>,
    held: Vec<u64>,
    sites: Vec<u16>,
    homeless: Vec<u32>,
    /// Groups that have lost their own place: it is worth no more to them than any other.
    outbid: Vec<bool>,
    unplaced: u64,
}

impl<'a> Auction<'a> {
    fn new(terms: &'a Terms<'a>, groups: &'a Groups, prices: &'a mut Prices) -> Auction<'a> {
        let sites = terms.matrix.sites();
        Auction {
            terms,
            groups,
            solver: Solver::with_prices(terms.matrix, terms.near, terms.rules, &prices.per_byte),
            prices,
            scan: Scan::new(terms.matrix),
            seated: vec![BinaryHeap::new(); sites],
            held: vec![0; sites],
            sites: (0..groups.len()).map(|group| groups.owner(group).0).collect(),
            homeless: Vec::new(),
            outbid: vec![false; groups.len()],
            unplaced: 0,
        }
    }

    /// The margin of a group that costs so much, in ms a second. An access counts a millisecond at
    /// least, or bids of groups that cost nothing would never rise.
    fn margin(&self, group: usize, cost: f32) -> f32 {
        self.terms.margin * cost.max(self.groups.accesses(group).rate()).max(f32::MIN_POSITIVE)
    }

    /// All begin where they are; those with a better place by the margin leave, and so do the
    /// lowest bids where a site has less room than it holds.
    fn seat_incumbents(&mut self) {
        for group in 0..self.groups.len() {
            let owner = self.groups.owner(group);
            let at_owner = self.solver.cost(self.groups, group, owner);
            if self.solver.stays(self.groups, group, at_owner) {
                let is_idle = self.groups.accesses(group).is_empty();
                self.seat(group as u32, owner.0, if is_idle { 0.0 } else { f32::MAX });
                continue;
            }
            let least = self.solver.fill(&mut self.scan, self.groups, group);
            let here =
                std::mem::replace(&mut self.scan.sums()[usize::from(owner.0)], f32::INFINITY);
            let margin = self.margin(group, at_owner);
            let is_ready = self.terms.ready.get(group).is_none_or(|is_ready| *is_ready);
            if here < f32::INFINITY && (!is_ready || here - margin <= least) {
                let bid = (self.scan.least() - at_owner + margin) / self.groups.bytes(group) as f32;
                self.seat(group as u32, owner.0, bid);
            } else {
                self.homeless.push(group as u32);
            }
        }
        (0..self.held.len()).for_each(|site| self.reprice(site as u16));
        (0..self.held.len()).for_each(|site| self.evict(site as u16));
    }

    /// The price goes towards what a place costs now.
    fn reprice(&mut self, site: u16) {
        let index = usize::from(site);
        let refused = u64::from(self.prices.refused_bytes[index]);
        let has_room = self.held[index] + refused <= self.terms.capacities[index];
        let lowest = self.seated[index].peek().map(|Reverse((bid, _))| f32::from_bits(*bid));
        // One that cannot leave bids nothing that others could go by.
        let lowest = lowest.filter(|bid| *bid < UNBEATEN);
        self.set_price(site, step(self.prices.per_byte[index], has_room, lowest));
    }

    fn set_price(&mut self, site: u16, price: f32) {
        self.prices.per_byte[usize::from(site)] = price;
        if !self.terms.rules.is_barred(Site(site)) {
            self.solver.set_price(site, price);
        }
    }

    fn seat(&mut self, group: u32, site: u16, bid: f32) {
        self.seated[usize::from(site)].push(Reverse((bid.clamp(0.0, f32::MAX).to_bits(), group)));
        self.held[usize::from(site)] += u64::from(self.groups.bytes(group as usize));
        self.sites[group as usize] = site;
    }

    /// The lowest bids leave until the rest fits.
    fn evict(&mut self, site: u16) {
        let index = usize::from(site);
        while self.held[index] > self.terms.capacities[index] {
            let Some(Reverse((bid, group))) = self.seated[index].pop() else { break };
            let (bid, bytes) = (f32::from_bits(bid), self.groups.bytes(group as usize));
            if bid == f32::MAX {
                // Nothing here can leave.
                self.seated[index].push(Reverse((bid.to_bits(), group)));
                break;
            }
            self.held[index] -= u64::from(bytes);
            if bid > self.prices.per_byte[index] {
                self.prices.refused_bytes[index] = bytes;
                self.set_price(site, bid);
            }
            self.outbid[group as usize] |= self.groups.owner(group as usize).0 == site;
            self.homeless.push(group);
        }
    }

    /// A group takes its best place, for the highest price at which it stays there.
    fn bid(&mut self, group: u32) {
        let index = group as usize;
        let bytes = self.groups.bytes(index);
        let is_idle = self.groups.accesses(index).is_empty();
        self.solver.fill(&mut self.scan, self.groups, index);
        let owner = self.groups.owner(index);
        if !is_idle && !self.outbid[index] {
            // Its own place is worth the margin more to it.
            let at_owner = self.solver.cost(self.groups, index, owner);
            self.scan.sums()[usize::from(owner.0)] -= self.margin(index, at_owner);
        }
        let mut least = self.scan.least();
        let site = loop {
            let Some(site) = self.scan.find(least) else {
                return self.give_up(group);
            };
            // A group without users outbids none.
            let others = if is_idle { self.held[usize::from(site)] } else { 0 };
            if others + u64::from(bytes) <= self.terms.capacities[usize::from(site)] {
                break site;
            }
            self.scan.sums()[usize::from(site)] = f32::INFINITY;
            least = self.scan.least();
        };
        self.scan.sums()[usize::from(site)] = f32::INFINITY;
        let second = self.scan.least();
        let cost = self.solver.cost(self.groups, index, Site(site));
        let bid = (second - cost + self.margin(index, cost)) / bytes as f32;
        self.seat(group, site, if bid.is_finite() { bid } else { UNBEATEN });
        self.evict(site);
    }

    /// No site may take the group: it stays, whatever its site can hold.
    fn give_up(&mut self, group: u32) {
        self.unplaced += 1;
        self.sites[group as usize] = self.groups.owner(group as usize).0;
    }

    fn finish(mut self) -> Assignment {
        for group in std::mem::take(&mut self.homeless) {
            self.give_up(group);
        }
        Assignment { sites: self.sites, unplaced: self.unplaced }
    }
}
