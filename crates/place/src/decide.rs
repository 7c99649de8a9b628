//! Which slots move where: each to the server at which its users wait least, if that is worth it.

use crate::sketch::{Client, Uses};
use crate::view::Address;
use model::Slot;
use std::collections::BTreeMap;

/// The least part of a slot's waiting that a move must save: sites closer than that never exchange it.
const MARGIN: f64 = 0.1;
/// What moving a byte costs in waiting, in milliseconds: 100 MB/s that others could have used.
const BYTE_MS: f64 = 1e-5;
/// What moving a slot costs besides: a few round trips in which its users are redirected.
const MOVE_MS: f64 = 50.0;

/// A slot as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its owner.
    pub owner: Address,
    /// How many keys it has.
    pub keys: u64,
}

/// A move and what it brings.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The slot.
    pub slot: Slot,
    /// Its owner.
    pub from: Address,
    /// The server that gets it.
    pub to: Address,
    /// Milliseconds of waiting saved each second, by all users together.
    pub gain: f64,
    /// What would be saved if each key could go to a server of its own; the rest of it is lost because
    /// the slot has several users.
    pub gain_apart: f64,
    /// About how many bytes are copied.
    pub bytes: u64,
}

/// What a window may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Moves.
    pub moves: usize,
    /// Bytes copied.
    pub bytes: u64,
}

/// What waiting has been lost by slots that are not where they should be: a slot moves when that exceeds
/// what the move costs.
#[derive(Clone, Debug, Default)]
pub struct Regret(BTreeMap<Slot, (Address, f64)>);

/// The moves of a window of so many seconds, best first by gain a byte. `None` as regret: each that is
/// worth its cost within a minute, for advice.
pub fn decide(
    clients: &[Client],
    placed: &BTreeMap<Slot, Placed>,
    masters: &[Address],
    budget: Budget,
    regret: Option<(&mut Regret, f64)>,
) -> Vec<Move> {
    let mut moves: Vec<Move> =
        placed.iter().filter_map(|(slot, now)| best(*slot, now, clients, masters)).collect();
    match regret {
        Some((regret, window_s)) => regret.filter(&mut moves, window_s),
        None => moves.retain(|one| one.gain * 60.0 >= cost(one)),
    }
    let worth = |one: &Move| one.gain / (one.bytes + 1) as f64;
    moves.sort_by(|a, b| worth(b).total_cmp(&worth(a)).then(a.slot.cmp(&b.slot)));
    let mut bytes = 0;
    moves.retain(|one| {
        let fits = bytes + one.bytes <= budget.bytes;
        bytes += if fits { one.bytes } else { 0 };
        fits
    });
    moves.truncate(budget.moves);
    moves
}

fn cost(one: &Move) -> f64 {
    MOVE_MS + one.bytes as f64 * BYTE_MS
}

impl Regret {
    fn filter(&mut self, moves: &mut Vec<Move>, window_s: f64) {
        let wanted =
            |slot: &Slot, to: &Address| moves.iter().any(|one| one.slot == *slot && one.to == *to);
        self.0.retain(|slot, (to, _)| wanted(slot, to));
        moves.retain(|one| {
            let (_, lost) = self.0.entry(one.slot).or_insert_with(|| (one.to.clone(), 0.0));
            *lost += one.gain * window_s;
            *lost >= cost(one)
        });
    }

    /// A slot has moved: what was lost is paid.
    pub fn paid(&mut self, slot: Slot) {
        self.0.remove(&slot);
    }
}

/// The best move of a slot, if one saves enough.
fn best(slot: Slot, now: &Placed, clients: &[Client], masters: &[Address]) -> Option<Move> {
    let users: Vec<(&Client, &Uses)> =
        clients.iter().filter_map(|client| Some((client, client.slots.get(&slot)?))).collect();
    // Waiting at a server; unknown if a user has not measured it.
    let waiting = |at: &Address, of: &dyn Fn(&(u64, f64, u32)) -> bool| -> Option<f64> {
        let mut sum = 0.0;
        for (client, keys) in &users {
            let rate: f64 = keys.iter().filter(|key| of(key)).map(|(_, rate, _)| rate).sum();
            if rate > 0.0 {
                sum += rate * client.latency_ms.get(at)?;
            }
        }
        Some(sum)
    };
    let all = |_: &(u64, f64, u32)| true;
    let here = waiting(&now.owner, &all)?;
    let others = masters.iter().filter(|at| **at != now.owner);
    let there = others.filter_map(|at| Some((at, waiting(at, &all)?)));
    let (to, there) = there.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let gain = here - there;
    if gain <= 0.0 || gain < MARGIN * here {
        return None;
    }
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, _, bytes) in users.iter().flat_map(|(_, keys)| keys.iter()) {
        let size = sizes.entry(*id).or_default();
        *size = (*size).max(u64::from(*bytes));
    }
    let apart = |id: &u64| {
        let one = |key: &(u64, f64, u32)| key.0 == *id;
        let least = masters.iter().filter_map(|at| waiting(at, &one)).min_by(f64::total_cmp);
        Some(waiting(&now.owner, &one)? - least?)
    };
    let gain_apart = sizes.keys().filter_map(apart).sum();
    let mean = sizes.values().sum::<u64>() as f64 / sizes.len().max(1) as f64;
    // Keys that no sketch names are as large as those that are named.
    let bytes = (mean * (now.keys.max(sizes.len() as u64)) as f64) as u64;
    let (from, to) = (now.owner.clone(), to.clone());
    Some(Move { slot, from, to, gain, gain_apart, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Budget = Budget { moves: 100, bytes: u64::MAX };

    fn slot() -> Slot {
        Slot::new(7).unwrap()
    }

    fn masters() -> Vec<Address> {
        ["a:1", "b:1", "c:1"].map(|text| text.parse().unwrap()).to_vec()
    }

    /// A client that uses one key of the slot, with its latencies; below zero: unknown.
    fn client(key: u64, rate: f64, latencies: [f64; 3]) -> Client {
        let latency_ms = masters().into_iter().zip(latencies).filter(|(_, ms)| *ms >= 0.0);
        let slots = [(slot(), vec![(key, rate, 1_000)])].into();
        Client { latency_ms: latency_ms.collect(), slots }
    }

    fn advised(clients: &[Client], budget: Budget) -> Vec<Move> {
        let placed = [(slot(), Placed { owner: masters()[0].clone(), keys: 2 })].into();
        decide(clients, &placed, &masters(), budget, None)
    }

    #[test]
    fn a_slot_goes_where_its_users_are() {
        let [one] = &advised(&[client(1, 10.0, [40.0, 2.0, 30.0])], MANY)[..] else { panic!() };
        assert_eq!((&one.to, one.gain, one.gain_apart), (&masters()[1], 380.0, 380.0));
        assert_eq!(one.bytes, 2_000);
    }

    #[test]
    fn what_several_users_lose_is_stated() {
        let users = [client(1, 10.0, [40.0, 2.0, 40.0]), client(2, 5.0, [40.0, 40.0, 2.0])];
        let [one] = &advised(&users, MANY)[..] else { panic!() };
        assert_eq!((&one.to, one.gain, one.gain_apart), (&masters()[1], 380.0, 570.0));
    }

    #[test]
    fn an_unknown_latency_excludes_a_server() {
        let [one] = &advised(&[client(1, 10.0, [40.0, -1.0, 30.0])], MANY)[..] else { panic!() };
        assert_eq!(one.to, masters()[2]);
        assert_eq!(advised(&[client(1, 10.0, [-1.0, 2.0, 2.0])], MANY), []);
    }

    #[test]
    fn equals_never_exchange_a_slot_and_a_budget_is_kept() {
        assert_eq!(advised(&[client(1, 10.0, [10.0, 9.5, 10.0])], MANY), []);
        let far = [client(1, 10.0, [40.0, 2.0, 30.0])];
        assert_eq!(advised(&far, Budget { moves: 0, bytes: u64::MAX }), []);
        assert_eq!(advised(&far, Budget { moves: 9, bytes: 1_999 }), []);
    }

    #[test]
    fn a_move_waits_until_as_much_is_lost_as_it_costs() {
        let placed = [(slot(), Placed { owner: masters()[0].clone(), keys: 2 })].into();
        let mut regret = Regret::default();
        let clients = [client(1, 0.1, [40.0, 2.0, 30.0])];
        let mut windows = 0;
        while decide(&clients, &placed, &masters(), MANY, Some((&mut regret, 10.0))).is_empty() {
            windows += 1;
        }
        // 3.8 ms saved a second, 38 a window; 50 is the cost.
        assert_eq!(windows, 1);
        regret.paid(slot());
        let again = decide(&clients, &placed, &masters(), MANY, Some((&mut regret, 10.0)));
        assert_eq!(again, []);
    }
}
