//! Groups by utility, the largest first.
//!
//! Utility is what moving a byte of the group would gain: priority × (cost where it is − cost at
//! its best site) / bytes (Portkey §4.2.2). A utility and its group are one number of 64 bits,
//! sorted by radix in three passes: a float that is not negative has the order of its bits.

use super::groups::Groups;
use super::solver::{Solution, Solver};

const DIGIT_BITS: u32 = 11;
const PASSES: usize = 3;

/// All groups, the one with the highest utility first; equal ones by index.
pub fn by_utility(solver: &Solver<'_>, groups: &Groups, solution: &Solution) -> Vec<u32> {
    let utility = |group: usize| {
        let gain = solution.gain(group) * solver.rules().priority(group);
        (gain / groups.bytes(group) as f32).max(0.0)
    };
    descending(groups.len(), utility)
}

/// Indices in the order of falling values, which are not negative.
pub(super) fn descending(count: usize, value: impl Fn(usize) -> f32) -> Vec<u32> {
    let digit = |key: u64, pass: usize| {
        (key >> (32 + pass as u32 * DIGIT_BITS)) as usize & ((1 << DIGIT_BITS) - 1)
    };
    let mut counts = [[0_u32; 1 << DIGIT_BITS]; PASSES];
    let key = |index: usize| {
        let key = u64::from(!value(index).to_bits()) << 32 | index as u64;
        for (pass, counts) in counts.iter_mut().enumerate() {
            counts[digit(key, pass)] += 1;
        }
        key
    };
    let mut keys: Vec<u64> = (0..count).map(key).collect();
    let mut sorted = vec![0; count];
    for (pass, places) in counts.iter_mut().enumerate() {
        let mut before = 0;
        for place in places.iter_mut() {
            before += std::mem::replace(place, before);
        }
        for key in &keys {
            let place = &mut places[digit(*key, pass)];
            sorted[*place as usize] = *key;
            *place += 1;
        }
        std::mem::swap(&mut keys, &mut sorted);
    }
    keys.into_iter().map(|key| key as u32).collect()
}
