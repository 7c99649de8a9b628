//! Replicas that have received everything hold the same.
//!
//! **Judged**: of each group, the last state line of each replica has the same digest. The writer
//! of the lines takes them when everything has been received; then this is the
//! convergence of strong eventual consistency (Shapiro, Preguiça, Baquero and Zawirski,
//! *Conflict-free replicated data types*, 2011). Counted are the replicas.
//!
//! A group with one replica shows nothing; if all are like that, nothing is decided.

use std::collections::BTreeMap;

use super::{Verdict, Violation};
use crate::history::{History, Promise, ReplicaState};

/// Judges a history; counts the replicas.
#[must_use]
pub fn judge(history: &History) -> Verdict {
    let mut groups: BTreeMap<&str, BTreeMap<&str, &ReplicaState>> = BTreeMap::new();
    for state in &history.states {
        let replicas = groups.entry(&state.group).or_default();
        let last = replicas.entry(&state.replica).or_insert(state);
        // Of two at one time the later line counts.
        if state.at_us >= last.at_us {
            *last = state;
        }
    }
    let mut examined = 0;
    for (group, replicas) in &groups {
        if replicas.len() > 1 {
            examined += replicas.len() as u64;
        }
        let mut states = replicas.values();
        let Some(first) = states.next() else { continue };
        if let Some(other) = states.find(|state| state.digest != first.digest) {
            return Verdict::Broken(Violation {
                promise: Promise::Convergent,
                key: None,
                what: format!(
                    "the replicas of group {group:?} differ in the end: {} holds {} at {} µs, and {} \
                     holds {} at {} µs.",
                    first.replica,
                    first.digest,
                    first.at_us,
                    other.replica,
                    other.digest,
                    other.at_us
                ),
                operations: Vec::new(),
                requests: Vec::new(),
                at_us: Some(first.at_us.max(other.at_us)),
            });
        }
    }
    match examined {
        0 => {
            let why = "no group has the states of two replicas, so none can differ".to_owned();
            Verdict::Undecided { why }
        }
        examined => Verdict::Holds { examined },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(states: &[(u64, &str, &str, &str)]) -> Verdict {
        let state = |&(at_us, group, replica, digest): &(u64, &str, &str, &str)| ReplicaState {
            at_us,
            group: group.to_owned(),
            replica: replica.to_owned(),
            digest: digest.to_owned(),
        };
        judge(&History { states: states.iter().map(state).collect(), ..History::default() })
    }

    #[test]
    fn the_last_states_of_a_group_agree() {
        let both = [(1, "g", "a", "x"), (1, "g", "b", "y"), (9, "g", "b", "x"), (1, "h", "a", "z")];
        assert_eq!(verdict(&both), Verdict::Holds { examined: 2 });
        // The line of the later time counts, wherever it is, and of one time the later line.
        assert_eq!(
            verdict(&[(9, "g", "a", "x"), (1, "g", "a", "y"), (1, "g", "b", "x")]),
            Verdict::Holds { examined: 2 }
        );
        assert_eq!(
            verdict(&[(1, "g", "a", "y"), (1, "g", "a", "x"), (1, "g", "b", "x")]),
            Verdict::Holds { examined: 2 }
        );
    }

    #[test]
    fn replicas_that_differ_in_the_end_are_found() {
        let Verdict::Broken(violation) = verdict(&[
            (1, "g", "a", "x"),
            (1, "g", "b", "x"),
            (2, "g", "c", "x"),
            (7, "g", "b", "y"),
        ]) else {
            panic!("not found");
        };
        assert_eq!(
            violation.what,
            "the replicas of group \"g\" differ in the end: a holds x at 1 µs, and b holds y at 7 µs."
        );
    }

    #[test]
    fn without_two_replicas_nothing_is_decided() {
        assert!(matches!(verdict(&[]), Verdict::Undecided { .. }));
        assert!(matches!(
            verdict(&[(1, "g", "a", "x"), (1, "h", "b", "y")]),
            Verdict::Undecided { .. }
        ));
    }
}
