//! Facts about the owners of slots, and their digests.
//!
//! A fact never becomes wrong: at that epoch that site owned those slots. Of two facts about a slot
//! the one with the higher epoch counts, so the order in which facts are learnt does not matter,
//! and two sites with the same facts have the same map. Equal neighbours are one run: a map has as
//! many runs as there are borders between owners, and at most one for each slot.
//!
//! The digest of a bucket is the sum of the hashes of its slots' facts, that of the map the sum of
//! its buckets. Sums are kept up to date slot by slot: comparing maps costs nothing but the
//! comparison.

use crate::global::ring::mix;
use model::{Epoch, SiteId, Slot, SlotRun};
use std::collections::BTreeMap;
use std::time::Duration;

/// The buckets; their digests are sent when maps differ.
pub const BUCKETS: usize = 128;
/// Slots of each.
const BUCKET_SLOTS: u16 = Slot::COUNT / BUCKETS as u16;

/// A set of buckets, a bit for each.
pub type Buckets = u128;

/// The owner of a slot, or a former one. The higher fact counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fact {
    /// The epoch.
    pub epoch: Epoch,
    /// The site. No two sites own a slot at one epoch; if facts name two, all sites agree on one of
    /// them.
    pub owner: SiteId,
}

/// A fact about neighbouring slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFact {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// What holds for all of them.
    pub fact: Fact,
}

impl RunFact {
    /// A fact about these slots.
    pub fn new(slots: SlotRun, fact: Fact) -> RunFact {
        RunFact { first: slots.first.number(), last: slots.last.number(), fact }
    }

    /// The slots; `None`: there are no such slots.
    pub fn slots(&self) -> Option<SlotRun> {
        let (first, last) = Slot::new(self.first).zip(Slot::new(self.last))?;
        (first <= last).then_some(SlotRun { first, last })
    }
}

/// Slots of which something newer was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raised {
    /// What.
    pub run: RunFact,
    /// Whether it replaces an older fact.
    pub had: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    last: u16,
    fact: Fact,
    /// When it was learnt, for the oldest part of it; `None`: before this process began.
    learnt: Option<Duration>,
}

/// The facts about all slots.
#[derive(Clone, Debug)]
pub struct Facts {
    /// By their first slots; equal neighbours are one.
    runs: BTreeMap<u16, Run>,
    digests: Box<[u64; BUCKETS]>,
    digest: u64,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts { runs: BTreeMap::new(), digests: Box::new([0; BUCKETS]), digest: 0 }
    }
}

impl Facts {
    /// The fact about a slot.
    pub fn of(&self, slot: Slot) -> Option<Fact> {
        self.run_at(slot.number()).map(|(_, run)| run.fact)
    }

    /// All runs, ascending, and when each was learnt.
    pub fn runs(&self) -> impl Iterator<Item = (RunFact, Option<Duration>)> + '_ {
        self.runs.iter().map(|(first, run)| {
            let Run { last, fact, learnt } = *run;
            (RunFact { first: *first, last, fact }, learnt)
        })
    }

    /// Learns a fact; what of it was news. Slots beyond the last one are none.
    pub fn learn(&mut self, run: RunFact, learnt: Option<Duration>) -> Vec<Raised> {
        let RunFact { first, last, fact } = run;
        let last = last.min(Slot::COUNT - 1);
        if first > last {
            return Vec::new();
        }
        let mut raised = Vec::new();
        let mut raise = |first, last, had| {
            raised.push(Raised { run: RunFact { first, last, fact }, had });
        };
        let mut at = first;
        let from = self.run_at(first).map_or(first, |(first, _)| first);
        for (&start, run) in self.runs.range(from..=last) {
            if at < start {
                raise(at, start - 1, false);
            }
            if run.fact < fact {
                raise(start.max(first), run.last.min(last), true);
            }
            at = run.last.saturating_add(1);
        }
        if at <= last {
            raise(at, last, false);
        }
        for one in &raised {
            self.put(one.run, learnt);
        }
        raised
    }

    fn run_at(&self, slot: u16) -> Option<(u16, Run)> {
        let (first, run) = self.runs.range(..=slot).next_back()?;
        (run.last >= slot).then_some((*first, *run))
    }

    /// Puts a fact in the place of one run's, or of nothing's.
    fn put(&mut self, new: RunFact, learnt: Option<Duration>) {
        let RunFact { mut first, mut last, fact } = new;
        if let Some((start, old)) = self.run_at(first) {
            self.runs.remove(&start);
            if start < first {
                self.runs.insert(start, Run { last: first - 1, ..old });
            }
            if last < old.last {
                self.runs.insert(last + 1, old);
            }
            self.add((first, last), old.fact, u64::wrapping_sub);
        }
        self.add((first, last), fact, u64::wrapping_add);
        let mut learnt = learnt;
        let before = first.checked_sub(1).and_then(|slot| self.run_at(slot));
        if let Some((start, run)) = before.filter(|(_, run)| run.fact == fact) {
            learnt = learnt.min(run.learnt);
            self.runs.remove(&start);
            first = start;
        }
        if let Some((start, run)) = self.run_at(last + 1).filter(|(_, run)| run.fact == fact) {
            learnt = learnt.min(run.learnt);
            self.runs.remove(&start);
            last = run.last;
        }
        self.runs.insert(first, Run { last, fact, learnt });
    }

    fn add(&mut self, (first, last): (u16, u16), fact: Fact, add: impl Fn(u64, u64) -> u64) {
        let fact = hash(fact);
        for slot in first..=last {
            let hash = mix(fact ^ u64::from(slot));
            let bucket = &mut self.digests[usize::from(slot / BUCKET_SLOTS)];
            *bucket = add(*bucket, hash);
            self.digest = add(self.digest, hash);
        }
    }

    /// The digest of the map.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// The digests of its buckets.
    pub fn digests(&self) -> &[u64; BUCKETS] {
        &self.digests
    }

    /// The buckets with another digest.
    pub fn differing(&self, digests: &[u64; BUCKETS]) -> Buckets {
        let differs = |bucket: &usize| self.digests[*bucket] != digests[*bucket];
        (0..BUCKETS).filter(differs).fold(0, |all, bucket| all | 1 << bucket)
    }

    /// The facts of buckets, up to so many, and the buckets that they cover.
    pub fn in_buckets(&self, wanted: Buckets, facts_max: usize) -> (Vec<RunFact>, Buckets) {
        let (mut facts, mut reported) = (Vec::<RunFact>::new(), 0);
        for bucket in (0..BUCKETS as u16).filter(|bucket| wanted & 1 << bucket != 0) {
            let (first, last) = (bucket * BUCKET_SLOTS, (bucket + 1) * BUCKET_SLOTS - 1);
            let len = facts.len();
            let from = self.run_at(first).map_or(first, |(first, _)| first);
            for (&start, run) in self.runs.range(from..=last) {
                let (first, last) = (start.max(first), run.last.min(last));
                match facts.last_mut() {
                    // It goes on from the bucket before.
                    Some(one) if one.fact == run.fact && one.last + 1 == first => one.last = last,
                    _ => facts.push(RunFact { first, last, fact: run.fact }),
                }
            }
            if facts.len() > facts_max && reported != 0 {
                facts.truncate(len);
                // What the bucket before was given of this one is true all the same.
                break;
            }
            reported |= 1 << bucket;
        }
        (facts, reported)
    }
}

/// What it makes travels: it is part of the format.
fn hash(fact: Fact) -> u64 {
    let Fact { epoch: Epoch { failover, count }, owner } = fact;
    let words = [
        failover.round,
        u64::from(failover.site.0) << 32 | u64::from(failover.term.number),
        u64::from(failover.term.site.0) << 32 | u64::from(owner.0),
        count,
    ];
    words.into_iter().fold(0, |hash, word| mix(hash ^ word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Ballot, Term};
    use proptest::prelude::*;

    fn run(first: u16, last: u16, count: u64, owner: u32) -> RunFact {
        let fact = Fact { epoch: Epoch::counted(count), owner: SiteId(owner) };
        RunFact { first, last, fact }
    }

    fn all(facts: &Facts) -> Vec<RunFact> {
        facts.runs().map(|(run, _)| run).collect()
    }

    #[test]
    fn the_higher_epoch_counts_and_equal_neighbours_are_one_run() {
        let mut facts = Facts::default();
        facts.learn(run(0, 16_383, 1, 1), None);
        let raised = facts.learn(run(100, 199, 2, 2), Some(Duration::ZERO));
        assert_eq!(raised, [Raised { run: run(100, 199, 2, 2), had: true }]);
        let around = [Raised { run: run(200, 250, 2, 1), had: true }];
        assert_eq!(facts.learn(run(150, 250, 2, 1), None), around, "one of two is agreed on");
        let mut facts = Facts::default();
        facts.learn(run(0, 16_383, 1, 1), None);
        facts.learn(run(100, 149, 2, 2), None);
        facts.learn(run(150, 199, 2, 2), None);
        let expect = [run(0, 99, 1, 1), run(100, 199, 2, 2), run(200, 16_383, 1, 1)];
        assert_eq!(all(&facts), expect);
        assert_eq!(facts.learn(run(120, 130, 2, 2), None), []);
        assert_eq!(facts.of(Slot::new(199).unwrap()), Some(run(0, 0, 2, 2).fact));
        assert_eq!(facts.learn(run(7, 3, 9, 9), None), [], "no slots");
    }

    #[test]
    fn a_run_is_as_old_as_its_oldest_part() {
        let (early, late) = (Duration::from_secs(1), Duration::from_secs(9));
        let mut facts = Facts::default();
        facts.learn(run(0, 9, 1, 1), Some(early));
        facts.learn(run(10, 19, 1, 1), Some(late));
        assert_eq!(facts.runs().next().unwrap(), (run(0, 19, 1, 1), Some(early)));
        facts.learn(run(20, 20, 1, 1), None);
        assert_eq!(facts.runs().next().unwrap(), (run(0, 20, 1, 1), None));
    }

    #[test]
    fn the_digests_are_part_of_the_format() {
        let mut facts = Facts::default();
        facts.learn(run(0, 16_383, 1, 1), None);
        let term = Term { number: 2, site: SiteId(4) };
        let epoch = Epoch::of_failover(Ballot { term, round: 9, site: SiteId(3) });
        let fact = Fact { epoch, owner: SiteId(7) };
        facts.learn(RunFact { first: 130, last: 300, fact }, None);
        assert_eq!(
            format!("{:016x} {:016x}", facts.digest(), facts.digests()[1]),
            "249ef6bb225ea84e 1a14e9441328f53e"
        );
    }

    #[test]
    fn buckets_are_told_as_far_as_there_is_room() {
        let mut facts = Facts::default();
        facts.learn(run(0, 16_383, 1, 1), None);
        assert_eq!(facts.in_buckets(!0, 1), (vec![run(0, 16_383, 1, 1)], !0));
        let apart = vec![run(0, 127, 1, 1), run(256, 383, 1, 1)];
        assert_eq!(facts.in_buckets(0b101, 9), (apart, 0b101));
        for slot in (0..512).step_by(2) {
            facts.learn(run(slot, slot, 2, 2), None);
        }
        let (reported, buckets) = facts.in_buckets(0b1111, 300);
        assert_eq!((reported.len(), buckets), (256, 0b11));
        // One bucket is returned, whatever the limit.
        assert_eq!(facts.in_buckets(0b1111, 1).1, 0b1);
    }

    proptest! {
        #[test]
        fn a_map_is_what_a_map_of_slots_is(
            learnt in proptest::collection::vec((0u16..600, 0u16..200, 1u64..5, 1u32..4), 0..40),
            split in 0usize..40,
        ) {
            let mut facts = Facts::default();
            let mut plain = BTreeMap::new();
            let runs: Vec<_> =
                learnt.iter().map(|&(first, more, count, owner)| run(first, first + more, count, owner)).collect();
            for one in &runs {
                let mut news = 0;
                for slot in one.first..=one.last {
                    let known = plain.get(&slot).copied();
                    if known.is_none_or(|known| known < one.fact) {
                        plain.insert(slot, one.fact);
                        news += 1;
                    }
                }
                let raised = facts.learn(*one, None);
                prop_assert_eq!(raised.iter().map(|one| one.run.last - one.run.first + 1).sum::<u16>(), news);
            }
            let shown = all(&facts);
            prop_assert!(shown.windows(2).all(|two| two[0].last < two[1].first
                && (two[0].fact != two[1].fact || two[0].last + 1 < two[1].first)));
            let slots: BTreeMap<u16, Fact> =
                shown.iter().flat_map(|one| (one.first..=one.last).map(|slot| (slot, one.fact))).collect();
            prop_assert_eq!(&slots, &plain);
            // In any order, and by buckets, it is the same map with the same digests.
            let mut other = Facts::default();
            let at = split.min(runs.len());
            for one in runs[at..].iter().rev().chain(&runs[..at]) {
                other.learn(*one, None);
            }
            prop_assert_eq!(all(&other), shown);
            prop_assert_eq!((other.digest(), other.digests()), (facts.digest(), facts.digests()));
            let mut third = Facts::default();
            loop {
                let wanted = third.differing(facts.digests());
                if wanted == 0 {
                    break;
                }
                facts.in_buckets(wanted, 7).0.into_iter().for_each(|one| drop(third.learn(one, None)));
            }
            prop_assert_eq!(third.digest(), facts.digest());
        }
    }
}
