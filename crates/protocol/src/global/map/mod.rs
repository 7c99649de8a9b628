//! The map of slots: the owner of each, as far as this site has learned it.
//!
//! One store of slots and their sites: requests are routed by it, clients of the Redis Cluster
//! protocol and operators are shown it. Its sources are this site's tokens, the redirects of other
//! sites, and other sites' maps ([`exchange`]): a new fact is pushed on, and maps are compared all
//! the while, so that all sites that can be reached have the same map a few seconds after the last
//! slot has moved.
//!
//! Safety does not depend on it: the owner is the site with the token. It holds
//!
//! - *facts* ([`facts`]): which site owned a slot at an epoch. They come from tokens, are never
//!   made up, and the higher epoch counts; so only facts travel.
//! - *guesses*: the site to ask first, as it has answered for the slot or the ring named it. They
//!   stay here and end with the next fact about their slot.
//!
//! Left out on purpose: groups lent out of a slot; their owner has their places.

pub mod exchange;
pub mod facts;
#[cfg(test)]
mod simulation;

pub use exchange::Exchange;
pub use facts::{Fact, Facts, Raised, RunFact};
use model::{Epoch, SiteId, Slot, SlotRun, SlotSet, limits};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where a fact comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This site's state, as this process found it.
    Stored,
    /// This site's state: a slot has changed hands.
    Token,
    /// Another site.
    Other,
}

/// How certain the owner of a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The asked site owns it.
    Confirmed,
    /// The asked node learned it from another site.
    Hint {
        /// How long ago the owner agreed to that, or it was learnt; `None`: neither since this
        /// process began.
        age: Option<Duration>,
    },
}

/// Slots of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Which.
    pub slots: SlotSet,
    /// The owner.
    pub site: SiteId,
    /// How certain that is.
    pub standing: Standing,
}

/// A node's map of slots.
#[derive(Clone, Debug, Default)]
pub struct SlotMap {
    facts: Facts,
    guesses: BTreeMap<Slot, SiteId>,
    /// When a site had the same map, and so agreed to what the map has of that site's slots.
    agreed: BTreeMap<SiteId, Duration>,
    /// To be pushed.
    unsent: Vec<RunFact>,
}

impl SlotMap {
    /// The facts, without the guesses.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The last known owner of a slot.
    pub fn fact(&self, slot: Slot) -> Option<Fact> {
        self.facts.of(slot)
    }

    /// The site to ask first about a slot, though there is no fact that it owns it.
    pub fn guess(&self, slot: Slot) -> Option<SiteId> {
        self.guesses.get(&slot).copied()
    }

    /// Whether there is a fact or a guess about a slot.
    pub fn locates(&self, slot: Slot) -> bool {
        self.guesses.contains_key(&slot) || self.facts.of(slot).is_some()
    }

    /// Learns a fact; what of it was news.
    pub fn learn(&mut self, run: RunFact, source: Source, now: Duration) -> Vec<Raised> {
        let learnt = (source != Source::Stored).then_some(now);
        let raised = self.facts.learn(run, learnt);
        for one in &raised {
            let RunFact { first, last, .. } = one.run;
            let slots = Slot::new(first).zip(Slot::new(last));
            if let Some((first, last)) = slots.filter(|_| !self.guesses.is_empty()) {
                self.guesses.retain(|slot, _| !(first..=last).contains(slot));
            }
            // A slot without an earlier fact here is no news to other sites: this one has just
            // joined.
            let is_new = match source {
                Source::Stored => false,
                Source::Token => true,
                Source::Other => one.had,
            };
            if is_new && self.unsent.len() < limits::MAP_UNSENT_MAX {
                self.unsent.push(one.run);
            }
        }
        raised
    }

    /// A site is to be asked about a slot first.
    pub fn set_guess(&mut self, slot: Slot, site: SiteId) {
        match self.facts.of(slot).is_some_and(|fact| fact.owner == site) {
            true => drop(self.guesses.remove(&slot)),
            false => drop(self.guesses.insert(slot, site)),
        }
    }

    /// A site is not to be asked about a slot first.
    pub fn drop_guess(&mut self, slot: Slot, site: SiteId) {
        if self.guesses.get(&slot) == Some(&site) {
            self.guesses.remove(&slot);
        }
    }

    /// Sites that are gone are not to be asked. Facts about them stay: their slots were taken at
    /// higher epochs.
    pub fn forget_gone(&mut self, is_there: impl Fn(SiteId) -> bool) {
        self.guesses.retain(|_, site| is_there(*site));
        self.agreed.retain(|site, _| is_there(*site));
    }

    /// A site has the same map.
    pub fn agreed(&mut self, site: SiteId, now: Duration) {
        self.agreed.insert(site, now);
    }

    /// How long ago a site agreed to what was learnt then of its slots.
    pub fn age(&self, owner: SiteId, learnt: Option<Duration>, now: Duration) -> Option<Duration> {
        let agreed_at = self.agreed.get(&owner).copied().max(learnt);
        agreed_at.map(|at| now.saturating_sub(at))
    }

    /// Whether anything is to be pushed.
    pub fn has_news(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// What is to be pushed, once. What was overtaken meanwhile is left out.
    pub fn take_unsent(&mut self) -> Vec<RunFact> {
        let mut unsent = std::mem::take(&mut self.unsent);
        let facts = &self.facts;
        let is_so = |slot| Slot::new(slot).and_then(|slot| facts.of(slot));
        unsent
            .retain(|run| [run.first, run.last].iter().any(|slot| is_so(*slot) == Some(run.fact)));
        unsent.sort_by_key(|run| run.first);
        joined(unsent)
    }
}

/// Runs that go on from each other, as one: where the map before had borders they come in pieces.
fn joined(runs: impl IntoIterator<Item = RunFact>) -> Vec<RunFact> {
    let mut joined: Vec<RunFact> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(one) if one.fact == run.fact && run.first <= one.last + 1 => {
                one.last = one.last.max(run.last);
            }
            _ => joined.push(run),
        }
    }
    joined
}

/// Slots and the facts about them, in as few runs as there can be.
pub fn runs_of(slots: impl IntoIterator<Item = (SlotRun, Fact)>) -> Vec<RunFact> {
    let mut runs: Vec<RunFact> = Vec::new();
    for (SlotRun { first, last }, fact) in slots {
        let (first, last) = (first.number(), last.number());
        match runs.last_mut() {
            Some(run) if run.fact == fact && run.last + 1 == first => run.last = last,
            _ => runs.push(RunFact { first, last, fact }),
        }
    }
    runs
}

/// A fact about one slot.
pub fn of_slot(slot: Slot, owner: SiteId, epoch: Epoch) -> RunFact {
    RunFact { first: slot.number(), last: slot.number(), fact: Fact { epoch, owner } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SiteId = SiteId(1);
    const B: SiteId = SiteId(2);
    const NOW: Duration = Duration::from_secs(1);

    fn slot(number: u16) -> Slot {
        Slot::new(number).unwrap()
    }

    fn run(first: u16, last: u16, count: u64, owner: SiteId) -> RunFact {
        RunFact { first, last, fact: Fact { epoch: Epoch::counted(count), owner } }
    }

    #[test]
    fn a_guess_ends_with_the_next_fact() {
        let mut map = SlotMap::default();
        map.set_guess(slot(5), B);
        assert!(map.locates(slot(5)) && map.fact(slot(5)).is_none());
        map.learn(run(0, 9, 3, A), Source::Other, NOW);
        assert_eq!((map.guess(slot(5)), map.fact(slot(5)).unwrap().owner), (None, A));
        map.set_guess(slot(5), B);
        map.learn(run(0, 9, 2, A), Source::Other, NOW);
        assert_eq!(map.guess(slot(5)), Some(B), "that was no news");
        map.set_guess(slot(5), A);
        assert_eq!(map.guess(slot(5)), None, "it is known already");
    }

    #[test]
    fn news_is_what_others_may_not_know() {
        let mut map = SlotMap::default();
        map.learn(run(0, 99, 1, A), Source::Stored, NOW);
        map.learn(run(100, 199, 1, A), Source::Other, NOW);
        assert!(!map.has_news(), "this site has just come");
        map.learn(run(100, 150, 2, B), Source::Other, NOW);
        map.learn(run(200, 209, 1, B), Source::Token, NOW);
        map.learn(run(151, 170, 2, B), Source::Other, NOW);
        assert_eq!(map.take_unsent(), [run(100, 170, 2, B), run(200, 209, 1, B)]);
        assert!(!map.has_news());
        map.learn(run(7, 7, 2, B), Source::Token, NOW);
        map.learn(run(7, 7, 3, A), Source::Token, NOW);
        assert_eq!(map.take_unsent(), [run(7, 7, 3, A)], "the other one was overtaken");
    }

    #[test]
    fn a_hint_is_as_old_as_what_was_last_heard_of_it() {
        let mut map = SlotMap::default();
        let at = Duration::from_secs;
        map.learn(run(0, 9, 1, A), Source::Stored, NOW);
        assert_eq!(map.age(A, None, at(9)), None);
        map.agreed(A, at(4));
        assert_eq!(map.age(A, None, at(9)), Some(at(5)));
        assert_eq!(map.age(A, Some(at(7)), at(9)), Some(at(2)));
        map.forget_gone(|site| site != A);
        assert_eq!(map.age(A, None, at(9)), None);
    }
}
