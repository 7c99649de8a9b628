//! Keys that a site holds on demand: which it fetches, and which it evicts; at its leader.
//!
//! A request that needs keys which are not here waits at its node, and the leader has the root
//! order what they hold ([`model::CausalCommand::Fetch`]): at that place they come, and are held
//! from there on. A question without an effect is asked again, of the next root if there is one: a
//! key that is fetched twice is held once. So nothing of it is kept.
//!
//! ```text
//! leader of C             root                                 C
//! get x: waits
//! Fetch(C, [x]) ────────▶ place 31: what x holds before 31
//!                         ── Places(.., [31]), its content ──▶ imports up to 31: x is held
//! get x: served
//! ```
//!
//! What is held counts its bytes. Past the limit of the keyspace the keys that were read least
//! lately go by a command, as many as bring it a good part below the limit. Keys with a write of
//! this site that has no place stay. What is about to go is not taken for held any more: a request
//! that came now would find it gone.

use super::{AGAIN, Durable, Part, Region};
use model::{Answer, Bytes, Failure, KeyspaceId, SiteId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A question that failed is asked again after this.
const PAUSE: Duration = Duration::from_millis(100);
/// What is evicted at once at least: this part of the limit.
const EVICTED_PART: u64 = 8;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// The root is asked to order what keys hold; its answer comes back under `id`.
    Fetch { id: u64, to: SiteId, epoch: u16, keyspace: KeyspaceId, keys: Vec<Bytes> },
    /// Keys are held no more, by a command of this site under `id`; the root need not send what is
    /// written to them.
    Evict { id: u64, keyspace: KeyspaceId, keys: Vec<Bytes> },
}

/// A key that is waited for.
#[derive(Clone, Copy, Debug)]
struct Want {
    /// So long.
    until: Duration,
    /// When it is asked for, again perhaps.
    due: Duration,
}

/// What a site's leader has about the keys that it holds on demand, beside the state.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    epoch: u16,
    wants: BTreeMap<(KeyspaceId, Bytes), Want>,
    /// The questions under way.
    open: BTreeMap<u64, (KeyspaceId, Vec<Bytes>)>,
    last_id: u64,
    /// The evictions under way, one of a keyspace at a time.
    evictions: Evictions,
    /// How many are over.
    evictions_over: u64,
    /// Nothing is evicted before.
    evicts_at: Duration,
    sent_bytes: u64,
}

type Evictions = BTreeMap<u64, (KeyspaceId, BTreeSet<Bytes>)>;

fn is_in(evictions: &Evictions, keyspace: KeyspaceId, key: &Bytes) -> bool {
    evictions.values().any(|(of, keys)| *of == keyspace && keys.contains(key))
}

impl Fetch {
    /// A request waits for a key, so long at most. Whether there is room for it.
    pub(crate) fn want(&mut self, keyspace: KeyspaceId, key: Bytes, until: Duration) -> bool {
        let is_full = self.wants.len() >= limits::CAUSAL_WANTS_MAX;
        let at = (keyspace, key);
        match self.wants.get_mut(&at) {
            Some(want) => want.until = want.until.max(until),
            None if is_full => return false,
            None => drop(self.wants.insert(at, Want { until, due: Duration::ZERO })),
        }
        true
    }

    /// The next steps.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> Vec<Step> {
        if self.epoch != region.epoch {
            // What the root before has answered may be lost with its order.
            self.epoch = region.epoch;
            self.open.clear();
            self.wants.values_mut().for_each(|want| want.due = now);
        }
        let interest = &region.layout.interest;
        self.wants.retain(|(keyspace, key), want| {
            let is_wanted = want.until > now && interest.on_demand(region.own, *keyspace).is_some();
            let is_here =
                state.holds_key(*keyspace, key) && !is_in(&self.evictions, *keyspace, key);
            is_wanted && !is_here
        });
        let mut steps = Vec::new();
        while self.open.len() < limits::CAUSAL_FETCHES_INFLIGHT_MAX
            && let Some(step) = self.next_fetch(now, region)
        {
            steps.push(step);
        }
        for (keyspace, bytes_max) in interest.all_on_demand(region.own) {
            steps.extend(self.next_eviction(now, state, keyspace, bytes_max));
        }
        steps
    }

    fn next_fetch(&mut self, now: Duration, region: &Region) -> Option<Step> {
        let evictions = &self.evictions;
        let is_due = |(keyspace, key): &(KeyspaceId, Bytes), want: &Want| {
            want.due <= now && !is_in(evictions, *keyspace, key)
        };
        let first = self.wants.iter().find(|(at, want)| is_due(at, want))?;
        let keyspace = first.0.0;
        let of_keyspace = self.wants.iter_mut().filter(|((of, _), _)| *of == keyspace);
        let due = of_keyspace.filter(|(at, want)| is_due(at, want));
        let mut keys = Vec::new();
        for ((_, key), want) in due.take(limits::CAUSAL_FETCHED_KEYS_MAX) {
            want.due = now + limits::REQUEST_DEADLINE;
            self.sent_bytes += key.len() as u64;
            keys.push(key.clone());
        }
        self.last_id += 1;
        let id = self.last_id;
        self.open.insert(id, (keyspace, keys.clone()));
        Some(Step::Fetch { id, to: region.root, epoch: region.epoch, keyspace, keys })
    }

    fn next_eviction(
        &mut self,
        now: Duration,
        state: &impl Durable,
        keyspace: KeyspaceId,
        bytes_max: u64,
    ) -> Option<Step> {
        if now < self.evicts_at {
            return None;
        }
        let size = state.held_size(keyspace);
        let keys_max = limits::CAUSAL_HELD_KEYS_MAX as u64;
        let is_under_way = self.evictions.values().any(|(of, _)| *of == keyspace);
        if is_under_way || (size.bytes <= bytes_max && size.keys <= keys_max) {
            return None;
        }
        let bytes = size.bytes.saturating_sub(bytes_max - bytes_max / EVICTED_PART);
        let count = size.keys.saturating_sub(keys_max - keys_max / EVICTED_PART);
        let keys = state.least_read(keyspace, bytes, count);
        if keys.is_empty() {
            // All have writes without a place.
            self.evicts_at = now + PAUSE;
            return None;
        }
        self.last_id += 1;
        self.evictions.insert(self.last_id, (keyspace, keys.iter().cloned().collect()));
        Some(Step::Evict { id: self.last_id, keyspace, keys })
    }

    /// Whether a key is about to be held no more.
    pub(crate) fn evicts(&self, keyspace: KeyspaceId, key: &Bytes) -> bool {
        is_in(&self.evictions, keyspace, key)
    }

    /// How many evictions are over, whatever came of them.
    pub(crate) fn evictions_over(&self) -> u64 {
        self.evictions_over
    }

    /// How many keys are waited for.
    pub(crate) fn left(&self) -> u64 {
        self.wants.len() as u64
    }
}

impl Part for Fetch {
    /// The root's answer to a question: it has ordered what the first so many of the keys hold. Or
    /// what came of an eviction.
    fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>, now: Duration) {
        if self.evictions.remove(&id).is_some() {
            self.evictions_over += 1;
            return;
        }
        let Some((keyspace, keys)) = self.open.remove(&id) else { return };
        let (count, pause) = match outcome {
            Ok(Answer::Integer(count)) => (usize::try_from(*count).unwrap_or(0), Duration::ZERO),
            _ => (0, PAUSE),
        };
        for (at, key) in keys.into_iter().enumerate() {
            // It comes soon, or was lost with a root.
            let due = if at < count { now + AGAIN } else { now + pause };
            if let Some(want) = self.wants.get_mut(&(keyspace, key)) {
                want.due = due;
            }
        }
    }

    fn stop(&mut self) {
        // A late answer must not be taken for one to a later question.
        *self = Fetch { last_id: self.last_id, sent_bytes: self.sent_bytes, ..Fetch::default() };
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        let wants = self.wants.values().map(|want| want.due.min(want.until));
        wants.filter(|at| *at > now).min()
    }

    /// Bytes of keys that were asked for.
    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::interest::Interest;
    use super::super::layout::Layout;
    use super::super::simulation::{Store, region};
    use super::*;

    const AT: fn(u64) -> Duration = Duration::from_millis;
    const KEYSPACE: KeyspaceId = KeyspaceId(2);

    /// The third of three sites, which holds so many bytes of a keyspace.
    fn on_demand(held_bytes_max: u64) -> Region {
        let interest = Interest::of_rules(&[(2, &[1, 2])]).fetched(2, held_bytes_max);
        let layout = Layout::with((1..=3).map(SiteId).collect(), interest);
        Region { layout, ..region(3) }
    }

    fn asked(steps: &[Step]) -> Vec<(u64, Vec<&[u8]>)> {
        let mut all = Vec::new();
        for step in steps {
            if let Step::Fetch { id, keys, .. } = step {
                all.push((*id, keys.iter().map(|key| &key[..]).collect()));
            }
        }
        all
    }

    #[test]
    fn what_is_wanted_is_asked_for_until_it_is_here() {
        let (mut fetch, region, mut store) = (Fetch::default(), on_demand(1_000), Store::of(3));
        assert!(fetch.poll(AT(0), &store, &region).is_empty());
        for key in ["a", "b"] {
            assert!(fetch.want(KEYSPACE, key.into(), AT(9_000)));
        }
        let steps = fetch.poll(AT(0), &store, &region);
        assert_eq!(asked(&steps), [(1, vec![&b"a"[..], b"b"])]);
        assert!(matches!(steps[0], Step::Fetch { to: SiteId(1), epoch: 1, .. }));
        assert!(fetch.poll(AT(10), &store, &region).is_empty(), "under way");
        // One has found no room in the place.
        fetch.answered(1, &Ok(Answer::Integer(1)), AT(20));
        assert_eq!(asked(&fetch.poll(AT(20), &store, &region)), [(2, vec![&b"b"[..]])]);
        fetch.answered(2, &Err(Failure::NoLeader), AT(30));
        assert!(fetch.poll(AT(30), &store, &region).is_empty(), "a pause");
        assert_eq!(fetch.next_due(AT(30)), Some(AT(30) + PAUSE));
        store.held.insert("a".into(), 10);
        assert_eq!(asked(&fetch.poll(AT(200), &store, &region)), [(3, vec![&b"b"[..]])]);
        fetch.answered(3, &Ok(Answer::Integer(1)), AT(210));
        // The root is lost with the place, and another one goes on.
        let next = Region { epoch: 65, root: SiteId(2), ..region.clone() };
        assert_eq!(asked(&fetch.poll(AT(220), &store, &next)), [(4, vec![&b"b"[..]])]);
        store.held.insert("b".into(), 10);
        assert!(fetch.poll(AT(230), &store, &next).is_empty());
        assert_eq!((fetch.left(), fetch.next_due(AT(230))), (0, None));
        // What no request waits for is not asked for.
        fetch.want(KEYSPACE, "c".into(), AT(300));
        assert!(fetch.poll(AT(300), &store, &next).is_empty());
    }

    #[test]
    fn past_the_limit_what_was_read_least_lately_goes() {
        let (mut fetch, region, mut store) = (Fetch::default(), on_demand(1_000), Store::of(3));
        for key in 0..10_u8 {
            store.held.insert(vec![key].into(), 100);
        }
        assert!(fetch.poll(AT(0), &store, &region).is_empty(), "they fit");
        store.held.insert("z".into(), 100);
        let steps = fetch.poll(AT(0), &store, &region);
        let keys: Vec<Bytes> = (0..3_u8).map(|key| vec![key].into()).collect();
        let evict = |id| [Step::Evict { id, keyspace: KEYSPACE, keys: keys.clone() }];
        assert_eq!(steps, evict(1));
        assert!(fetch.evicts(KEYSPACE, &keys[0]) && !fetch.evicts(KEYSPACE, &"z".into()));
        // What goes is asked for once it is gone.
        fetch.want(KEYSPACE, keys[0].clone(), AT(9_000));
        assert!(fetch.poll(AT(10), &store, &region).is_empty(), "under way");
        fetch.answered(1, &Err(Failure::NoLeader), AT(20));
        assert_eq!(fetch.poll(AT(20), &store, &region), evict(2), "it was lost");
        assert_eq!(fetch.left(), 0, "it is here after all");
        fetch.want(KEYSPACE, keys[0].clone(), AT(9_000));
        store.held.retain(|key, _| !keys.contains(key));
        fetch.answered(2, &Ok(Answer::Done(model::Revision(7))), AT(30));
        assert_eq!(asked(&fetch.poll(AT(30), &store, &region)), [(3, vec![&keys[0][..]])]);
        // A site that holds all evicts nothing.
        let whole = Region { own: SiteId(2), ..on_demand(1) };
        fetch.stop();
        assert!(fetch.poll(AT(40), &store, &whole).is_empty());
    }
}
