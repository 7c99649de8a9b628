//! Every state within bounds, breadth first.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// What is searched: states that are small, and the steps from one to the next.
pub(crate) trait Explore {
    /// A state, as it is kept.
    type State: Copy;

    /// What identifies a state.
    fn key(&self, state: &Self::State) -> u64;
    /// Every step from a state.
    fn expand(&mut self, state: &Self::State, emit: &mut dyn FnMut(Self::State, &'static str));
    /// Brings states that come to the same into one form.
    fn reduce(&mut self, _: &mut Self::State) {}
    /// What is wrong with a state.
    fn fault(&mut self, state: &Self::State) -> Option<&'static str>;
    /// A state, for people.
    fn show(&self, state: &Self::State) -> String;
}

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

/// Hashes what is looked up all the time, and comes from here alone.
#[derive(Default)]
pub(crate) struct Quick(u64);

pub(crate) type Fast = BuildHasherDefault<Quick>;

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

/// A number of a state's numbers.
pub(crate) fn hash(numbers: impl IntoIterator<Item = u32>) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15u64;
    for number in numbers {
        hash ^= u64::from(number);
        hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash
}

/// Searches from a state on. `traced` keeps where each state came from, to show how it came to a
/// fault.
pub(crate) fn search<E: Explore>(
    world: &mut E,
    first: E::State,
    states_max: u64,
    traced: bool,
) -> Report {
    let mut seen: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    let mut from: HashMap<u64, (u64, &'static str)> = HashMap::default();
    let mut now = vec![first];
    seen.insert(world.key(&first));
    let mut depth = 0;
    loop {
        let mut next = Vec::new();
        let mut found = Vec::new();
        for state in &now {
            world.expand(state, &mut |state, what| found.push((state, what)));
            for (mut reached, what) in found.drain(..) {
                world.reduce(&mut reached);
                let key = world.key(&reached);
                if !seen.insert(key) {
                    continue;
                }
                if traced {
                    from.insert(key, (world.key(state), what));
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
