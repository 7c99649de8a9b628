//! Clients that lie about what they access.
//!
//! Each key has so many honest clients at one site, where it is, with two accesses a second each;
//! as many liars sit at another site and claim a million accesses a second, of one key or of
//! thousands. With equal weights of authenticated clients no key may move there.

use super::play::Decide;
use super::strategy::{Goal, Ours};
use super::world::{TIERS, World};

const HONEST_AT: u16 = 6;
const LIARS_AT: u16 = 18;
const SECONDS: usize = 30;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lied {
    /// Honest clients of each key, and liars.
    pub honest: u16,
    /// Keys that the liars name.
    pub named: usize,
    /// Keys that moved away with equal weights.
    pub moved: usize,
    /// The same where claims count as they are.
    pub moved_by_claims: usize,
}

/// Runs one.
#[must_use]
pub fn lie(honest: u16, keys: usize, named: usize) -> Lied {
    let moved = |equal: bool| {
        let world = World::grid(TIERS, 1, 1, 1);
        let mut ours = Ours::new(&world, keys, Goal { equal, ..Goal::default() }, 1);
        let mut owners = vec![HONEST_AT; keys];
        for second in 0..SECONDS {
            let at_ms = second as u64 * 1_000;
            for key in 0..keys {
                // Honest clients use 16 keys each, liars all that they name.
                let first = 1_000 + (key / 16) as u16 * honest;
                (0..honest)
                    .for_each(|client| ours.count(at_ms, key, first + client, HONEST_AT, 2.0));
                if key < named {
                    (0..honest).for_each(|liar| ours.count(at_ms, key, liar, LIARS_AT, 1e6));
                }
            }
            ours.decide(second + 1, &owners).into_iter().for_each(|(key, to)| owners[key] = to);
        }
        owners.iter().filter(|owner| **owner != HONEST_AT).count()
    };
    Lied { honest, named, moved: moved(true), moved_by_claims: moved(false) }
}

/// One key and thousands, with one, two and four honest clients.
#[must_use]
pub fn all(keys: usize) -> Vec<Lied> {
    let of = |honest| [lie(honest, keys, 1), lie(honest, keys, keys)];
    [1, 2, 4].into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_keep_keys_with_their_honest_clients() {
        // So few that the table of profiles throws none out.
        for honest in [1, 2] {
            for named in [1, 6] {
                let lied = lie(honest, 6, named);
                assert_eq!((lied.moved, lied.moved_by_claims), (0, named), "{lied:?}");
            }
        }
    }
}
