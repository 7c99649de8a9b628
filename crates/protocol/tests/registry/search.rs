//! Every state within bounds, breadth first.

use super::world::{State, World};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// What came of a search.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) states: u64,
    pub(crate) depth: u32,
    /// Whether there was nothing left to try.
    pub(crate) complete: bool,
    /// What is wrong, and how it came to that.
    pub(crate) fault: Option<(&'static str, Vec<&'static str>)>,
}

/// The hashes that the set keeps are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a number is hashed")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

fn hash(state: &State) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15u64;
    for number in state.sites.into_iter().chain(state.attempts) {
        hash ^= u64::from(number);
        hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash
}

/// Searches from a state on. `traced` keeps where each state came from, to tell how it came to a fault.
pub(crate) fn search(world: &mut World, first: State, states_max: u64, traced: bool) -> Report {
    let mut seen: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    let mut from: HashMap<u64, (u64, &'static str)> = HashMap::default();
    let mut now = vec![first];
    seen.insert(hash(&first));
    let mut depth = 0;
    loop {
        let mut next = Vec::new();
        let mut found = Vec::new();
        for state in &now {
            world.expand(state, &mut |state, what| found.push((state, what)));
            for (mut reached, what) in found.drain(..) {
                world.reduce(&mut reached);
                let key = hash(&reached);
                if !seen.insert(key) {
                    continue;
                }
                if traced {
                    from.insert(key, (hash(state), what));
                }
                if let Some(fault) = world.fault(&reached) {
                    let mut steps = Vec::new();
                    let mut at = key;
                    while let Some((before, what)) = from.get(&at) {
                        steps.push(*what);
                        at = *before;
                    }
                    steps.reverse();
                    eprintln!("{}", world.show(&reached));
                    let fault = Some((fault, steps));
                    let states = seen.len() as u64;
                    return Report { states, depth: depth + 1, complete: false, fault };
                }
                next.push(reached);
            }
            if seen.len() as u64 >= states_max {
                let states = seen.len() as u64;
                return Report { states, depth, complete: false, fault: None };
            }
        }
        if next.is_empty() {
            let states = seen.len() as u64;
            return Report { states, depth, complete: true, fault: None };
        }
        depth += 1;
        now = next;
    }
}
