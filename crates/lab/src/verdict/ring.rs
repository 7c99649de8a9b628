//! The ring in rest is one ring: each virtual node has the right predecessor and successors.
//!
//! **Judged**: the last ring line of each point, all of them together. Ordered by their points,
//! each one's first successor is the next one and its predecessor the one before, around the whole
//! ring. This is the *ideal* state that a correct Chord reaches when no site joins, leaves or fails
//! any more (Zave, *Reasoning about identifier spaces: how to make Chord correct*, 2017). The
//! writer of the lines takes care that they are written in rest. Counted are the points.

use std::collections::BTreeMap;

use super::{Verdict, Violation};
use crate::history::{History, Promise, RingMember};

/// Judges a history; counts the points.
#[must_use]
pub fn judge(history: &History) -> Verdict {
    let mut points: BTreeMap<&str, &RingMember> = BTreeMap::new();
    for member in &history.rings {
        let last = points.entry(&member.point).or_insert(member);
        if member.at_us >= last.at_us {
            *last = member;
        }
    }
    if points.is_empty() {
        return Verdict::Undecided { why: "the history has no ring lines".to_owned() };
    }
    let ordered: Vec<&RingMember> = points.into_values().collect();
    for (at, member) in ordered.iter().enumerate() {
        let next = ordered[(at + 1) % ordered.len()];
        let before = ordered[(at + ordered.len() - 1) % ordered.len()];
        let alone = ordered.len() == 1;
        let wrong = match (member.successors.first(), &member.predecessor) {
            (Some(first), _) if *first != next.point => Some(format!(
                "thinks that {first} comes next, and it is {} of {}",
                next.point, next.site
            )),
            (None, _) if !alone => Some("has no site that comes next".to_owned()),
            (_, Some(known)) if *known != before.point => Some(format!(
                "thinks that {known} is before it, and it is {} of {}",
                before.point, before.site
            )),
            (_, None) if !alone => Some("has no site that is before it".to_owned()),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Verdict::Broken(Violation {
                promise: Promise::Ring,
                key: None,
                what: format!("point {} of {} {wrong}.", member.point, member.site),
                operations: Vec::new(),
                requests: Vec::new(),
                at_us: Some(member.at_us),
            });
        }
    }
    Verdict::Holds { examined: ordered.len() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of `point before next`.
    fn verdict(lines: &[(&str, Option<&str>, &[&str])]) -> Verdict {
        let line = |&(point, predecessor, successors): &(&str, Option<&str>, &[&str])| RingMember {
            at_us: 1,
            point: point.to_owned(),
            site: format!("s{point}"),
            predecessor: predecessor.map(str::to_owned),
            successors: successors.iter().map(|point| (*point).to_owned()).collect(),
        };
        judge(&History { rings: lines.iter().map(line).collect(), ..History::default() })
    }

    #[test]
    fn a_ring_is_one_around_all() {
        let ring: &[(&str, Option<&str>, &[&str])] =
            &[("5", Some("3"), &["9"]), ("9", Some("5"), &["3", "5"]), ("3", Some("9"), &["5"])];
        assert_eq!(verdict(ring), Verdict::Holds { examined: 3 });
        assert_eq!(verdict(&[("5", None, &[])]), Verdict::Holds { examined: 1 });
        assert!(matches!(verdict(&[]), Verdict::Undecided { .. }));
    }

    #[test]
    fn whoever_is_passed_over_is_found() {
        let broken = |lines| match verdict(lines) {
            Verdict::Broken(violation) => violation.what,
            other => panic!("{other:?}"),
        };
        let passed =
            broken(&[("1", Some("3"), &["3"]), ("2", Some("1"), &["3"]), ("3", Some("2"), &["1"])]);
        assert_eq!(passed, "point 1 of s1 thinks that 3 comes next, and it is 2 of s2.");
        let behind = broken(&[("1", Some("2"), &["2"]), ("2", None, &["1"])]);
        assert_eq!(behind, "point 2 of s2 has no site that is before it.");
        // Two rings with no pointers to each other.
        let two = broken(&[
            ("1", Some("3"), &["3"]),
            ("3", Some("1"), &["1"]),
            ("2", Some("4"), &["4"]),
            ("4", Some("2"), &["2"]),
        ]);
        assert!(two.contains("point 1 of s1"), "{two}");
    }
}
