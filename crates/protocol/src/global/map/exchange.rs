//! How all sites come to have the same map: push, and comparison.
//!
//! A site pushes each new fact to two other sites, drawn at random: a change reaches nearly all
//! sites in as many steps as the logarithm of their number. Comparison repairs what pushes missed:
//! every half second a site sends the digest of its map to another one.
//!
//! ```text
//! compare(digest) →            same(digest)          one map: nothing else is sent
//!                 ←          | buckets(digests)      1 KiB; then, of the buckets that differ:
//! facts(own, wants buckets) →
//!                 ←            facts(what that lacked)
//! ```
//!
//! The nodes of a site do the same with their leader; only the leader exchanges facts with other
//! sites.
//!
//! Demers and others (*Epidemic algorithms for replicated database maintenance*, 1987) call the two
//! rumour mongering and anti-entropy.

use super::facts::{BUCKETS, Buckets};
use super::{Fact, Raised, RunFact, SlotMap, Source, joined};
use crate::global::ring::mix;
use model::{BySlot, SiteId, Slot, limits};
use std::time::Duration;
use wire::inter_site::{MapFact, MapFacts, MapStep, put_failover};

/// How often a map is compared with another site's.
pub const COMPARE_INTERVAL: Duration = Duration::from_millis(500);
/// To how many sites a new fact is pushed.
const PUSHED_TO: usize = 2;

/// The random numbers of a site, and when it compares next.
#[derive(Clone, Debug)]
pub struct Exchange {
    random: u64,
    next: Duration,
}

impl Exchange {
    /// It compares at once. `seed`: drawn at each start.
    pub fn new(seed: u64) -> Exchange {
        Exchange { random: mix(seed ^ u64::from_le_bytes(*b"slot map")), next: Duration::ZERO }
    }

    /// Whether it is time to compare; then the next time is set.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = self.next <= now;
        if is_due {
            self.next = now + COMPARE_INTERVAL;
        }
        is_due
    }

    /// One of some, at random.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        self.random = mix(self.random);
        let at = self.random.checked_rem(all.len() as u64)?;
        all.get(at as usize).copied()
    }

    /// The sites that new facts are pushed to, drawn at random.
    pub fn pushed_to(&mut self, others: &[SiteId]) -> Vec<SiteId> {
        let mut left = others.to_vec();
        let mut drawn = Vec::new();
        while drawn.len() < PUSHED_TO
            && let Some(site) = self.one_of(&left)
        {
            left.retain(|other| *other != site);
            drawn.push(site);
        }
        drawn
    }
}

/// The question whether another map is the same.
pub fn compare(map: &SlotMap) -> MapStep {
    MapStep::Compare(map.facts().digest())
}

/// Facts for a node that did not request them.
pub fn push(facts: &[RunFact]) -> MapStep {
    MapStep::Facts(MapFacts { facts: facts.iter().map(put).collect(), ..MapFacts::default() })
}

/// Handles a step of another node; `site` is the one that agrees if both maps are the same. Returns
/// the answer, and the slots with a newer fact.
pub fn handle(
    map: &mut SlotMap,
    site: SiteId,
    step: MapStep,
    now: Duration,
) -> (Option<MapStep>, Vec<Raised>) {
    let own = map.facts().digest();
    match step {
        MapStep::Compare(digest) | MapStep::Same(digest) if digest == own => {
            map.agreed(site, now);
            (matches!(step, MapStep::Compare(_)).then_some(MapStep::Same(own)), Vec::new())
        }
        MapStep::Compare(_) => {
            let digests = map.facts().digests().iter().flat_map(|digest| digest.to_le_bytes());
            (Some(MapStep::Buckets(digests.collect::<Vec<u8>>().into())), Vec::new())
        }
        // Either map has changed meanwhile.
        MapStep::Same(_) => (None, Vec::new()),
        MapStep::Buckets(bytes) => (facts_of_differing(map, &bytes), Vec::new()),
        MapStep::Facts(reported) => {
            let reported_facts: Vec<RunFact> = reported.facts.iter().filter_map(take).collect();
            let learn = |run: &RunFact| map.learn(*run, Source::Other, now);
            let raised = reported_facts.iter().flat_map(learn).collect();
            let wants = <[u8; 16]>::try_from(&reported.wants[..]).map(u128::from_le_bytes);
            let lacked = wants.ok().map(|wants| lacking(map, wants, &reported_facts));
            (lacked.filter(|lacked| !lacked.is_empty()).map(|lacked| push(&lacked)), raised)
        }
    }
}

fn facts_of_differing(map: &SlotMap, bytes: &[u8]) -> Option<MapStep> {
    let mut digests = [0; BUCKETS];
    if bytes.len() != 8 * BUCKETS {
        // A version with other buckets.
        return None;
    }
    for (digest, bytes) in digests.iter_mut().zip(bytes.chunks_exact(8)) {
        *digest = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    let differing = map.facts().differing(&digests);
    if differing == 0 {
        return None;
    }
    let (facts, reported) = map.facts().in_buckets(differing, limits::MAP_FACTS_PER_MESSAGE_MAX);
    let facts = facts.iter().map(put).collect();
    Some(MapStep::Facts(MapFacts { facts, wants: reported.to_le_bytes().to_vec().into() }))
}

/// The facts of some buckets that are here and not in `reported`.
fn lacking(map: &SlotMap, buckets: Buckets, reported: &[RunFact]) -> Vec<RunFact> {
    let mut theirs = BySlot::<Fact>::default();
    for run in reported {
        let newer = |known: Option<&Fact>| known.copied().max(Some(run.fact));
        run.slots().into_iter().for_each(|slots| theirs.update(slots, newer));
    }
    let (known, _) = map.facts().in_buckets(buckets, limits::MAP_FACTS_PER_MESSAGE_MAX);
    let mut lacked = Vec::new();
    for run in known {
        let Some(slots) = run.slots() else { continue };
        let alike = slots.cut(|slot| theirs.run_at(slot).0);
        let older = alike.filter(|part| theirs.get(part.first) < Some(&run.fact));
        lacked.extend(older.map(|part| RunFact::new(part, run.fact)));
    }
    joined(lacked)
}

fn put(run: &RunFact) -> MapFact {
    let RunFact { first, last, fact: Fact { epoch, owner } } = *run;
    MapFact {
        first: u32::from(first),
        more: u32::from(last - first),
        owner: owner.0,
        count: epoch.count,
        failover: put_failover(epoch.failover),
    }
}

/// A fact, if it is one.
fn take(fact: &MapFact) -> Option<RunFact> {
    let first = u16::try_from(fact.first).ok().filter(|slot| *slot < Slot::COUNT)?;
    let last = u16::try_from(fact.first.checked_add(fact.more)?).ok();
    let last = last.filter(|slot| *slot < Slot::COUNT)?;
    let (owner, epoch) = (SiteId(fact.owner), fact.epoch());
    (owner.0 != 0).then_some(RunFact { first, last, fact: Fact { epoch, owner } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Epoch;

    const A: SiteId = SiteId(1);
    const B: SiteId = SiteId(2);
    const NOW: Duration = Duration::from_secs(1);

    fn run(first: u16, last: u16, count: u64, owner: SiteId) -> RunFact {
        RunFact { first, last, fact: Fact { epoch: Epoch::counted(count), owner } }
    }

    fn map(runs: &[RunFact]) -> SlotMap {
        let mut map = SlotMap::default();
        runs.iter().for_each(|run| drop(map.learn(*run, Source::Stored, NOW)));
        map
    }

    /// One comparison that `a` begins: the steps.
    fn exchange(a: &mut SlotMap, b: &mut SlotMap) -> Vec<MapStep> {
        let mut steps = vec![compare(a)];
        for turn in 0.. {
            let step = steps[turn].clone();
            let (map, from) = if turn % 2 == 0 { (&mut *b, A) } else { (&mut *a, B) };
            match handle(map, from, step, NOW).0 {
                Some(answer) => steps.push(answer),
                None => break,
            }
        }
        steps
    }

    #[test]
    fn equal_maps_are_told_apart_from_others_by_a_digest() {
        let all = [run(0, 16_383, 1, A), run(100, 200, 2, B)];
        let (mut a, mut b) = (map(&all), map(&all));
        assert!(matches!(exchange(&mut a, &mut b)[..], [MapStep::Compare(_), MapStep::Same(_)]));
        assert_eq!(
            (a.age(B, None, NOW), b.age(A, None, NOW)),
            (Some(Duration::ZERO), Some(Duration::ZERO))
        );
    }

    #[test]
    fn each_side_is_told_what_it_lacks_and_nothing_else() {
        let first = run(0, 16_383, 1, A);
        let mut a = map(&[first, run(100, 110, 2, B), run(9_000, 9_000, 5, A)]);
        let mut b = map(&[first, run(105, 120, 3, A), run(9_000, 9_000, 4, B)]);
        let steps = exchange(&mut a, &mut b);
        let [_, MapStep::Buckets(digests), MapStep::Facts(reported), MapStep::Facts(back)] =
            &steps[..]
        else {
            panic!("{steps:?}")
        };
        assert_eq!(digests.len(), 1_024);
        // Two buckets of 128 slots.
        assert_eq!(reported.facts.len(), 6, "{reported:?}");
        assert_eq!(back.facts, [put(&run(105, 120, 3, A))]);
        assert_eq!(a.facts().digest(), b.facts().digest());
        assert!(a.has_news() && b.has_news());
    }

    #[test]
    fn a_site_that_has_just_come_is_told_all_and_pushes_nothing() {
        let mut a = SlotMap::default();
        let mut b = map(&[run(0, 16_383, 1, A), run(100, 110, 2, B)]);
        assert_eq!(exchange(&mut a, &mut b).len(), 4);
        assert_eq!(a.facts().digest(), b.facts().digest());
        assert!(!a.has_news());
    }

    #[test]
    fn a_map_that_fits_no_message_is_told_in_several() {
        let mut a = SlotMap::default();
        let mut b = map(&[]);
        for slot in 0..Slot::COUNT {
            b.learn(run(slot, slot, 1 + u64::from(slot % 2), A), Source::Stored, NOW);
        }
        let rounds = (1..).find(|_| {
            exchange(&mut a, &mut b);
            a.facts().digest() == b.facts().digest()
        });
        assert_eq!(rounds, Some(4));
    }

    #[test]
    fn what_is_no_fact_is_not_learnt() {
        let good = put(&run(5, 9, 1, A));
        assert_eq!(take(&good), Some(run(5, 9, 1, A)));
        for wrong in [
            MapFact { owner: 0, ..good },
            MapFact { first: 16_384, more: 0, ..good },
            MapFact { more: 16_384, ..good },
            MapFact { more: u32::MAX, ..good },
        ] {
            assert_eq!(take(&wrong), None, "{wrong:?}");
        }
        let mut map = SlotMap::default();
        for step in [MapStep::Buckets("short".into()), MapStep::Same(9)] {
            assert_eq!(handle(&mut map, A, step, NOW), (None, Vec::new()));
        }
    }

    #[test]
    fn lots_are_drawn_without_repeating_and_reach_everybody() {
        let mut exchange = Exchange::new(1);
        let all: Vec<SiteId> = (1..=10).map(SiteId).collect();
        let mut drawn = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let two = exchange.pushed_to(&all);
            assert!(two.len() == 2 && two[0] != two[1]);
            drawn.extend(two);
        }
        assert_eq!(drawn.len(), 10);
        assert_eq!(exchange.pushed_to(&[A]), [A]);
        assert!(exchange.pushed_to(&[]).is_empty());
    }
}
