//! A cluster in the solver's terms: a slot that is used is a group, a master is a site, a client is
//! an origin.
//!
//! Slots and masters keep their indices from window to window, as prices, regrets and the ledger
//! are by index.

use crate::clients::Uses;
use crate::decide::{Objective, Options, Seen, Weights};
use crate::view::NodeId;
use model::Slot;
use protocol::placement::trial::Planted;
use protocol::placement::weights::{self, Use};
use protocol::placement::{
    Capacities, Groups, Latencies, Matrix, Near, Origin, Prices, Rules, Site, Solver, Tail,
};
use std::collections::BTreeMap;

/// Of each origin, the sites that are tried first.
const NEAR: usize = 8;

/// The indices that have been given away.
#[derive(Debug, Default)]
pub(crate) struct Indices {
    /// By group.
    pub(crate) slots: Vec<Slot>,
    /// By site.
    pub(crate) masters: Vec<NodeId>,
    by_slot: BTreeMap<Slot, usize>,
    by_master: BTreeMap<NodeId, Site>,
}

impl Indices {
    fn extend(&mut self, seen: &Seen<'_>) {
        for master in seen.masters {
            if !self.by_master.contains_key(master) {
                self.by_master.insert(master.clone(), Site(self.masters.len() as u16));
                self.masters.push(master.clone());
            }
        }
        for slot in seen.placed.keys() {
            if !self.by_slot.contains_key(slot) {
                self.by_slot.insert(*slot, self.slots.len());
                self.slots.push(*slot);
            }
        }
    }

    pub(crate) fn group(&self, slot: Slot) -> Option<usize> {
        self.by_slot.get(&slot).copied()
    }

    pub(crate) fn master(&self, site: Site) -> &NodeId {
        &self.masters[usize::from(site.0)]
    }
}

/// A client's uses of one slot.
struct SlotUse<'a> {
    origin: Origin,
    keys: &'a Uses,
    /// Uses a second that count, all keys together.
    weight: f32,
}

/// What a window is decided from.
#[derive(Debug)]
pub(crate) struct Problem {
    /// As measured.
    pub(crate) latencies: Latencies,
    pub(crate) groups: Groups,
    pub(crate) rules: Rules,
    pub(crate) capacities: Option<Capacities>,
    /// What an access costs by the objective, at most: decisions are by that, or chance would move
    /// slots to servers that were seldom measured.
    pub(crate) matrix: Matrix,
    pub(crate) near: Near,
    /// What an access costs by the objective, as measured: gains are by that.
    pub(crate) measured: (Matrix, Near),
}

impl Problem {
    pub(crate) fn new(seen: &Seen<'_>, options: &Options, indices: &mut Indices) -> Problem {
        indices.extend(seen);
        let (origins, sites) = (seen.clients.len(), indices.masters.len());
        let mut latencies = Latencies::unknown(origins, sites);
        let mut at_most = Latencies::unknown(origins, sites);
        let mut users: BTreeMap<Slot, Vec<(Origin, &Uses)>> = BTreeMap::new();
        for (number, client) in seen.clients.iter().enumerate() {
            let origin = Origin(number as u16);
            for (master, latency) in &client.latency {
                if let Some(site) = indices.by_master.get(master) {
                    latencies.learn(origin, *site, latency.ms as f32);
                    at_most.learn(origin, *site, latency.at_most_ms() as f32);
                }
            }
            if let Objective::Quantile(quantile) = options.objective {
                for (master, spread) in client.spreads(quantile.into()) {
                    let Some(site) = indices.by_master.get(master) else { continue };
                    let caution = client.latency[master].caution() as f32;
                    at_most.learn_spread(origin, *site, spread.stretched(caution));
                    latencies.learn_spread(origin, *site, spread);
                }
            }
            for (slot, keys) in &client.slots {
                users.entry(*slot).or_default().push((origin, keys));
            }
        }
        let mut groups = Groups::new(origins, sites);
        let mut rules = Rules::none(sites);
        for (group, slot) in indices.slots.iter().enumerate() {
            let placed = seen.placed.get(slot);
            let site = placed.and_then(|placed| indices.by_master.get(&placed.owner));
            // A slot without an owner that answers stays out: it has no uses then.
            let users = match site {
                Some(_) => weighted(users.get(slot).map_or(&[][..], |users| users), options),
                None => Vec::new(),
            };
            let owner = site.copied().unwrap_or(Site(0));
            let bytes = placed.map_or(0, |placed| bytes(&users, placed.keys));
            let accesses = users.iter().map(|user| (user.origin, user.weight));
            groups.push(owner, bytes, accesses).expect("the site is known");
            if options.keep.contains(*slot) || seen.waiting.contains(*slot) {
                rules.pin(group, owner);
            }
        }
        let tail = match options.objective {
            Objective::Mean => None,
            Objective::Quantile(quantile) => Tail::find(&at_most, &groups, &rules, quantile),
        };
        let of = |latencies: &Latencies| {
            let mean = || latencies.mean().clone();
            let matrix = tail.map_or_else(mean, |tail| tail.matrix(latencies));
            let near = Near::new(&matrix, NEAR);
            (matrix, near)
        };
        let ((matrix, near), measured) = (of(&at_most), of(&latencies));
        let capacities = capacities(seen, &groups, indices);
        Problem { latencies, groups, rules, capacities, matrix, near, measured }
    }

    pub(crate) fn solver(&self, prices: &Prices) -> Solver<'_> {
        Solver::with_prices(&self.matrix, &self.near, &self.rules, prices.per_byte())
    }

    /// The same by what was measured, and without prices.
    pub(crate) fn measured(&self) -> Solver<'_> {
        Solver::new(&self.measured.0, &self.measured.1, &self.rules)
    }

    /// What would be saved each second if every key of a slot could go to a master of its own, by
    /// the same solver over keys.
    pub(crate) fn gain_apart(
        &self,
        (slot, group): (Slot, usize),
        seen: &Seen<'_>,
        options: &Options,
    ) -> f64 {
        let users = seen.clients.iter().enumerate();
        let users = users
            .filter_map(|(number, client)| Some((Origin(number as u16), client.slots.get(&slot)?)));
        let users: Vec<(Origin, &Uses)> = users.collect();
        let mut keys = Groups::new(self.matrix.origins(), self.matrix.sites());
        for uses in by_key(&weighted(&users, options)).into_values() {
            keys.push(self.groups.owner(group), 0, uses);
        }
        let rules = Rules::none(self.matrix.sites());
        let (matrix, near) = &self.measured;
        let solution = Solver::new(matrix, near, &rules).solve(&keys, u64::MAX);
        (0..keys.len()).map(|key| f64::from(solution.gain(key))).sum()
    }
}

/// The uses of a slot as they count.
fn weighted<'a>(users: &[(Origin, &'a Uses)], options: &Options) -> Vec<SlotUse<'a>> {
    let rate = |keys: &Uses| keys.iter().map(|(_, rate, _)| *rate).sum::<f64>() as f32;
    let used = users.iter().map(|(origin, keys)| (*origin, *keys, rate(keys)));
    let used: Vec<(Origin, &Uses, f32)> = used.filter(|(_, _, rate)| *rate > 0.0).collect();
    let weights: Vec<f32> = match options.weights {
        Weights::Uses => used.iter().map(|(_, _, rate)| *rate).collect(),
        Weights::Clients => {
            let of_client = |(origin, _, rate): &(Origin, &Uses, f32)| Use {
                origin: *origin,
                rate: *rate,
                share: 1.0,
            };
            let clients: Vec<Use> = used.iter().map(of_client).collect();
            let equal = weights::equal(&clients, Planted::none());
            equal.into_iter().map(|(_, weight)| weight).collect()
        }
    };
    let used = used.into_iter().zip(weights);
    used.map(|((origin, keys, _), weight)| SlotUse { origin, keys, weight }).collect()
}

/// The uses of each key: a client's weight, by how much it uses the key among those of the slot.
fn by_key(users: &[SlotUse<'_>]) -> BTreeMap<u64, Vec<(Origin, f32)>> {
    let mut by_key: BTreeMap<u64, Vec<(Origin, f32)>> = BTreeMap::new();
    for user in users {
        let all: f64 = user.keys.iter().map(|(_, rate, _)| rate).sum();
        for (id, rate, _) in user.keys {
            let weight = user.weight * (rate / all) as f32;
            by_key.entry(*id).or_default().push((user.origin, weight));
        }
    }
    by_key
}

/// About how large a slot is. Keys that no sketch names are as large as those that are named.
fn bytes(users: &[SlotUse<'_>], count: u64) -> u32 {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, _, bytes) in users.iter().flat_map(|user| user.keys) {
        let size = sizes.entry(*id).or_default();
        *size = (*size).max(u64::from(*bytes));
    }
    let named = sizes.len() as u64;
    let mean = sizes.values().sum::<u64>() as f64 / named.max(1) as f64;
    (mean * count.max(named) as f64) as u32
}

/// What each master can hold of the slots that are used: what it has of them, and its room. `None`:
/// no master has a bound.
fn capacities(seen: &Seen<'_>, groups: &Groups, indices: &Indices) -> Option<Capacities> {
    if seen.room.is_empty() {
        return None;
    }
    let of_site = |(held, master): (u64, &NodeId)| match seen.room.get(master) {
        Some(room) => held.saturating_add(*room),
        None => u64::MAX / 2,
    };
    Some(groups.held().into_iter().zip(&indices.masters).map(of_site).collect())
}
