//! What a failover takes: which site takes which slots, and what is lost by that.

use crate::global::ownership::trial::{Bug, Planted};
use crate::global::ownership::{Found, Report};
use model::{Epoch, Inventory, Loss, Revision, SiteId, Slot, SlotCopy, Taken};
use std::collections::BTreeMap;

/// Which site takes which slots, by the inventories; and what is lost by that. A slot without a
/// copy begins empty at `loss.by`, unless a site was not asked: the slot may be there.
///
/// A slot whose owner is in no inventory, or is a site that has left, counts as the lost site's if
/// that is the only site that was not asked. One that a recovery has excluded may still be there
/// and hand its join in: its slots are its own.
pub(super) fn plan(
    reported: &BTreeMap<SiteId, Inventory>,
    loss: &mut Loss,
    all_asked: bool,
    has_left: impl Fn(SiteId) -> bool,
    planted: Planted,
) -> Vec<Taken> {
    let lost = loss.lost;
    let mut found: BTreeMap<Slot, Found> = BTreeMap::new();
    for (site, inventory) in reported {
        for (owner, slots) in &inventory.owners {
            for (slot, epoch) in slots.iter() {
                let report = Report { owner: Some((epoch, *owner)), copy: None };
                found.entry(slot).or_default().add(*site, &report, lost);
            }
        }
        for run in &inventory.copies {
            for slot in run.slots.iter() {
                let report = Report { owner: None, copy: Some(run.copy) };
                found.entry(slot).or_default().add(*site, &report, lost);
            }
        }
    }
    let mut runs: BTreeMap<_, Vec<Slot>> = BTreeMap::new();
    (loss.holds, loss.mirrored, loss.empty) = (0, 0, 0);
    let mut revision = None;
    for slot in Slot::all() {
        let found = found.get(&slot).copied().unwrap_or_default();
        let owner = found.owner.map(|(_, owner)| owner).filter(|owner| !has_left(*owner));
        let owner = owner.or(all_asked.then_some(lost));
        if owner != Some(lost) && !planted.is(Bug::HighestEpochIgnored) {
            continue;
        }
        loss.holds += 1;
        match found.taker(found.owner.map_or(lost, |(_, owner)| owner), planted) {
            Some((by, SlotCopy { tag, position, .. })) => {
                loss.mirrored += 1;
                note_position(&mut revision, position);
                runs.entry((by, Some((tag.epoch, position)))).or_default().push(slot);
            }
            None if all_asked => {
                loss.empty += 1;
                runs.entry((loss.by, None)).or_default().push(slot);
            }
            None => {}
        }
    }
    loss.revision = revision.unwrap_or_default();
    let take = |((by, from), slots): ((SiteId, _), Vec<Slot>)| Taken {
        by,
        slots: slots.into_iter().collect(),
        from,
    };
    let taken: Vec<Taken> = runs.into_iter().map(take).collect();
    loss.keys = taken.iter().map(|one| keys_taken(reported, one)).sum();
    name_taker(loss, &taken);
    taken
}

/// Sets `loss.by` to the site that takes the most slots.
fn name_taker(loss: &mut Loss, taken: &[Taken]) {
    if let Some(most) = taken.iter().max_by_key(|one| one.slots.len()) {
        loss.by = most.by;
    }
}

/// What a decision took, for an operator who asks for the outcome.
pub(super) fn count_taken(loss: &mut Loss, taken: &[Taken]) {
    let mut revision = None;
    for one in taken {
        let slots = one.slots.len() as u32;
        loss.holds += slots;
        match one.from {
            None => loss.empty += slots,
            Some((_, position)) => {
                loss.mirrored += slots;
                note_position(&mut revision, position);
            }
        }
    }
    loss.revision = revision.unwrap_or_default();
    name_taker(loss, taken);
}

/// All that is lost was acknowledged behind the least position, of copies that lack something.
fn note_position(least: &mut Option<Revision>, position: u64) {
    if position != SlotCopy::COMPLETE {
        *least = Some(least.map_or(Revision(position), |known| known.min(Revision(position))));
    }
}

/// From what each slot goes on that is taken.
pub(super) fn by_slot(taken: &[Taken]) -> BTreeMap<Slot, Option<(Epoch, u64)>> {
    taken.iter().flat_map(|one| one.slots.iter().map(|slot| (slot, one.from))).collect()
}

/// Whether more would be lost than was accepted: a slot that was not lost, or one that goes on from
/// less.
pub(super) fn is_worse(
    accepted: &BTreeMap<Slot, Option<(Epoch, u64)>>,
    taken: &BTreeMap<Slot, Option<(Epoch, u64)>>,
) -> bool {
    taken.iter().any(|(slot, from)| accepted.get(slot).is_none_or(|accepted| from < accepted))
}

/// How many keys come with what a site takes; about, if it takes a part of a run.
fn keys_taken(reported: &BTreeMap<SiteId, Inventory>, one: &Taken) -> u64 {
    let Some(inventory) = reported.get(&one.by) else { return 0 };
    let is_it = |run: &&model::CopyRun| Some((run.copy.tag.epoch, run.copy.position)) == one.from;
    let runs = inventory.copies.iter().filter(is_it);
    runs.map(|run| {
        let taken = run.slots.iter().filter(|slot| one.slots.contains(*slot)).count() as u64;
        run.keys * taken / run.slots.len().max(1) as u64
    })
    .sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use model::{CopyRun, SlotEpochs, Tag};

    pub(in crate::global::failover) const LOST: SiteId = SiteId(1);
    pub(in crate::global::failover) const B: SiteId = SiteId(2);
    pub(in crate::global::failover) const C: SiteId = SiteId(3);

    pub(in crate::global::failover) fn slots(text: &str, count: u64) -> SlotEpochs {
        SlotEpochs(vec![(text.parse().unwrap(), Epoch::counted(count))])
    }

    pub(in crate::global::failover) fn mirror(text: &str, count: u64, position: u64) -> CopyRun {
        let tag = Tag { epoch: Epoch::counted(count), generation: 5 };
        let copy = SlotCopy { tag, origin: LOST, position };
        CopyRun { copy, slots: text.parse().unwrap(), keys: 100 }
    }

    fn planned(reported: Vec<(SiteId, Inventory)>, all_asked: bool) -> (Vec<Taken>, Loss) {
        let mut loss = Loss::of(LOST, B);
        let has_left = |site: SiteId| site.0 == 9;
        let reported = reported.into_iter().collect();
        let taken = plan(&reported, &mut loss, all_asked, has_left, Planted::none());
        (taken, loss)
    }

    #[test]
    fn more_may_not_be_lost_than_was_accepted() {
        let taken = |slots: &str, from| {
            let slots = slots.parse().unwrap();
            by_slot(&[Taken { by: B, slots, from }])
        };
        let at = |position| Some((Epoch::counted(2), position));
        let accepted = taken("0-9", at(7));
        assert!(!is_worse(&accepted, &taken("0-9", at(7))));
        assert!(!is_worse(&accepted, &taken("0-4", at(8))), "less is lost");
        assert!(is_worse(&accepted, &taken("9", at(6))), "a copy that is behind");
        assert!(is_worse(&accepted, &taken("9", None)), "a copy is gone");
        assert!(is_worse(&accepted, &taken("10", at(9))), "a slot that was not lost");
        assert!(!is_worse(&taken("3", None), &taken("3", None)));
    }

    #[test]
    fn copies_are_taken_where_they_lie_and_the_rest_begins_empty() {
        let reported = || {
            vec![
                (
                    B,
                    Inventory {
                        owners: vec![
                            (LOST, slots("0-9", 2)),
                            (B, slots("20-16380", 2)),
                            (SiteId(8), slots("16381", 2)),
                            (SiteId(9), slots("16382", 2)),
                        ],
                        copies: vec![mirror("0-4", 2, 7)],
                        ..Inventory::default()
                    },
                ),
                (
                    C,
                    Inventory {
                        owners: vec![(C, slots("4", 3)), (LOST, slots("9", 2))],
                        copies: vec![mirror("9", 2, 3)],
                        ..Inventory::default()
                    },
                ),
            ]
        };
        let (taken, loss) = planned(reported(), true);
        let by = |site, from| {
            let one = taken.iter().find(|one| one.by == site && one.from == from);
            one.map(|one| one.slots.to_string()).unwrap_or_default()
        };
        assert_eq!(by(B, Some((Epoch::counted(2), 7))), "0-3");
        assert_eq!(by(C, Some((Epoch::counted(2), 3))), "9");
        assert_eq!(by(B, None), "5-8,10-19,16382-16383", "no other site can have it");
        assert_eq!((loss.holds, loss.mirrored, loss.empty), (21, 5, 16));
        assert_eq!((loss.keys, loss.revision, loss.by), (180, Revision(3), B));
        let (taken, loss) = planned(reported(), false);
        assert!(taken.iter().all(|one| one.from.is_some()) && loss.empty == 0);
    }
}
