//! A site's writes on their way to the root, and their content on its way to the other sites.
//!
//! An offer names the write before its first: the root orders it only if that has its position, so
//! no write overtakes another of its site. Several offers are under way at a time. An answer has
//! the last write that the root has ordered; if that is before an offer's end, the offer came too
//! early, and the offers begin anew from there, after a pause. So they do after a failure. If there
//! is no gap between what is ordered and the offer, the root's order is full: the pause doubles
//! with each such answer.
//!
//! A write's content leaves for the other sites when the write is first offered, and once more
//! under each new leader. What is lost of it the other sites ask the root for.

use super::in_flight::Paced;
use super::trial::{Bug, Planted};
use super::{Durable, Part, Region};
use model::{Answer, CausalWrite, Failure, Offer, Revision, SiteId, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause while the order of the root is full.
const FULL_PAUSE_MAX: Duration = Duration::from_secs(8);
/// How often the pause doubles while the root lacks what is kept here: 2 s.
const LACKING_DOUBLED_MAX: u32 = 3;
/// The pause after a gap.
const GAP_PAUSE: Duration = Duration::from_millis(50);

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// The root is asked to order writes; its answer comes back under `id`.
    Offer { id: u64, to: SiteId, epoch: u16, offer: Offer },
    /// These writes of this site go to the other sites.
    Share(Vec<CausalWrite>),
}

/// The offers of a site's leader.
#[derive(Debug, Default)]
pub(crate) struct Export {
    planted: Planted,
    /// The root and its epoch.
    to: Option<(SiteId, u16)>,
    /// The last write that was offered; before it, all were. `None`: nothing since the last
    /// failure.
    offered: Option<Revision>,
    /// The write before the first of each offer that is not answered, its last one, and its bytes.
    open: BTreeMap<u64, (Revision, Revision, usize)>,
    /// How often in a row the root's order was full.
    full: u32,
    /// How often in a row the root lacked what is kept here. It is offered once this site gets its
    /// keys anew.
    lacking: u32,
    kept: Revision,
    paced: Paced,
    last_id: u64,
    not_before: Duration,
    /// The last write whose content was sent.
    shared: Revision,
    sent_bytes: u64,
}

impl Export {
    pub(crate) fn new(planted: Planted) -> Export {
        Export { planted, ..Export::default() }
    }

    /// The next offers.
    pub(crate) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        let to = Some((region.root, region.epoch));
        if self.to != to {
            self.to = to;
            // The root before has what it was offered only.
            self.shared = Revision::default();
            self.begin_again(now, None);
        }
        if now < self.not_before {
            return steps;
        }
        let kept = state.kept_upto();
        if kept != self.kept {
            (self.kept, self.lacking) = (kept, 0);
        }
        while self.has_room(now) {
            // No earlier one, whatever the root has ordered: what is kept is not offered, and would
            // be left out of the order where the root lacks it.
            let after = self.offered.unwrap_or(kept).max(kept);
            let mut writes = state.unordered(after, limits::CAUSAL_OFFER_BYTES_MAX);
            writes.truncate(limits::CAUSAL_OFFER_WRITES_MAX);
            let Some(last) = writes.last().map(|write| write.revision) else { break };
            let new = writes.iter().filter(|write| write.revision > self.shared);
            let new: Vec<CausalWrite> = new.cloned().collect();
            if !new.is_empty() && region.layout.sites.iter().any(|site| !self.has_it(region, *site))
            {
                steps.push(Step::Share(new));
            }
            self.shared = self.shared.max(last);
            self.offered = Some(last);
            self.paced.sent(now);
            self.last_id += 1;
            let bytes = writes.iter().map(CausalWrite::payload_bytes).sum::<usize>();
            self.open.insert(self.last_id, (after, last, bytes));
            self.sent_bytes += bytes as u64;
            let after = if self.planted.is(Bug::OffersUnchained) { Revision(0) } else { after };
            let offer = Offer { site: region.own, after, writes };
            let (to, epoch) = (region.root, region.epoch);
            steps.push(Step::Offer { id: self.last_id, to, epoch, offer });
        }
        steps
    }

    fn has_room(&self, now: Duration) -> bool {
        let bytes = self.open.values().map(|(.., bytes)| bytes).sum::<usize>();
        self.paced.may_send(self.open.len(), bytes, now)
    }

    /// Whether a site has a write's content without being sent it.
    fn has_it(&self, region: &Region, site: SiteId) -> bool {
        site == region.own || site == region.root
    }

    fn begin_again(&mut self, at: Duration, ordered: Option<Revision>) {
        self.open.clear();
        self.offered = ordered;
        self.not_before = at;
    }

    /// Whether the root has no room for what is offered.
    pub(crate) fn is_refused(&self) -> bool {
        self.full > 0
    }
}

impl Part for Export {
    /// The root's answer to an offer.
    fn answered(&mut self, id: u64, outcome: &Result<Answer, Failure>, now: Duration) {
        let Some((after, last, _)) = self.open.remove(&id) else { return };
        match outcome {
            Ok(Answer::Done(ordered)) if *ordered >= last => (self.full, self.lacking) = (0, 0),
            Ok(Answer::Done(ordered)) if *ordered >= after => {
                let pause = PAUSE * (1 << self.full.min(5));
                self.full += 1;
                self.begin_again(now + pause.min(FULL_PAUSE_MAX), Some(*ordered));
            }
            Ok(Answer::Done(ordered)) if *ordered < self.kept => {
                let pause = PAUSE * (1 << self.lacking.min(LACKING_DOUBLED_MAX));
                self.lacking += 1;
                self.begin_again(now + pause, Some(*ordered));
            }
            Ok(Answer::Done(ordered)) => self.begin_again(now + GAP_PAUSE, Some(*ordered)),
            _ => self.begin_again(now + PAUSE, None),
        }
    }

    fn stop(&mut self) {
        // A late answer must not be taken for one to a later offer.
        let last_id = self.last_id;
        *self = Export { last_id, ..Export::new(self.planted) };
    }

    fn next_due(&self, now: Duration) -> Option<Duration> {
        match self.not_before > now {
            true => Some(self.not_before),
            false => self.paced.due(self.open.len(), now),
        }
    }

    /// Bytes of writes that were offered.
    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Store, region, write};
    use super::*;

    fn offers(steps: &[Step]) -> Vec<(u64, u64, Vec<u64>)> {
        let of_step = |step: &Step| match step {
            Step::Offer { id, offer, .. } => {
                let revisions = offer.writes.iter().map(|write| write.revision.0).collect();
                Some((*id, offer.after.0, revisions))
            }
            Step::Share(_) => None,
        };
        steps.iter().filter_map(of_step).collect()
    }

    #[test]
    fn offers_are_chained_and_begin_again_after_a_gap() {
        let (mut export, region, now) = (Export::default(), region(2), Duration::ZERO);
        let mut store = Store::of(2);
        assert!(export.poll(now, &store, &region).is_empty(), "nothing was written");
        store.commit(write(3));
        store.commit(write(5));
        let first = export.poll(now, &store, &region);
        assert_eq!(offers(&first), [(1, 0, vec![3, 5])]);
        assert!(matches!(&first[0], Step::Share(writes) if writes.len() == 2));
        store.commit(write(6));
        assert_eq!(offers(&export.poll(now, &store, &region)), [(2, 5, vec![6])]);
        assert!(export.poll(now, &store, &region).is_empty(), "all is under way");
        // The second came first.
        export.answered(2, &Ok(Answer::Done(Revision(0))), now);
        export.answered(1, &Ok(Answer::Done(Revision(5))), now);
        let now = now + GAP_PAUSE;
        let again = export.poll(now, &store, &region);
        assert_eq!(offers(&again), [(3, 0, vec![3, 5, 6])]);
        assert_eq!(again.len(), 1, "their content was sent");
        export.answered(3, &Err(Failure::NoLeader), now);
        assert!(export.poll(now, &store, &region).is_empty(), "a pause");
        assert_eq!(export.next_due(now), Some(now + PAUSE));
        assert_eq!(offers(&export.poll(now + PAUSE, &store, &region)), [(4, 0, vec![3, 5, 6])]);
        export.answered(4, &Ok(Answer::Done(Revision(6))), now);
        store.own_ordered = Revision(6);
        assert!(export.poll(now + PAUSE, &store, &region).is_empty());
        assert_eq!(export.next_due(now + PAUSE), None);
    }

    #[test]
    fn a_few_offers_are_under_way() {
        let (mut export, region, now) = (Export::default(), region(2), Duration::ZERO);
        let mut store = Store::of(2);
        store.one_each = true;
        (1..100).for_each(|revision| store.commit(write(revision)));
        let mut open = offers(&export.poll(now, &store, &region)).len();
        assert_eq!(open, limits::CAUSAL_OFFERS_AT_ONCE_MAX);
        // The others follow one by one, as many as may be under way.
        let mut now = now;
        while let Some(due) = export.next_due(now) {
            assert!(export.poll(now, &store, &region).is_empty());
            now = due;
            open += offers(&export.poll(now, &store, &region)).len();
        }
        assert_eq!(open, limits::CAUSAL_OFFERS_INFLIGHT_MAX);
        export.answered(1, &Ok(Answer::Done(Revision(1))), now);
        assert_eq!(offers(&export.poll(now, &store, &region)).len(), 1);
        // Another root.
        let epoch = Region { epoch: 2, ..region };
        assert_eq!(offers(&export.poll(now, &store, &epoch))[0].1, 0);
    }
}
