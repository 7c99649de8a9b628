//! One attempt to change the registry. Volatile: it can be lost at any moment.
//!
//! [`Proposer::asked`] returns the requests that are due and the sites they go to; the other
//! methods take the answers. Repeated requests and late answers are harmless.

use super::Value;
use super::trial::{Bug, Planted};
use model::{Ballot, RegistrarSet, Registrars, SiteId};
use std::collections::BTreeSet;

/// The purpose of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Work<V: Value> {
    /// A command.
    Change {
        /// Identifies the command.
        id: V::Id,
        /// What the command does.
        change: V::Change,
    },
    /// What this site has kept of another term.
    HandIn(V::Retained),
    /// A recovery, in a ballot of the next term.
    Recover {
        /// The excluded sites.
        without: Vec<SiteId>,
    },
}

/// The outcome of an attempt, once its value is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<V: Value> {
    /// The outcome of the command, applied now or earlier.
    Done(V::Outcome),
    /// The registrars would change, but the attempt only made sure of a copy: another ballot is
    /// needed.
    Again,
    /// The kept entries are in the registry.
    HandedIn,
    /// The next term has begun.
    Recovered,
}

/// The request that an attempt sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked<V> {
    /// For a promise and the accepted value.
    Prepare,
    /// To accept this value.
    Accept(V),
    /// No further request.
    Nothing,
}

/// The sets of registrars, each of which must give a majority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Needs(Vec<RegistrarSet>);

impl Needs {
    fn add(&mut self, set: RegistrarSet) {
        if !set.is_empty() && !self.0.contains(&set) {
            self.0.push(set);
        }
    }

    /// Whether the sites for which `by` is true are enough.
    pub fn are_met(&self, by: impl Fn(SiteId) -> bool) -> bool {
        self.0.iter().all(|set| set.has_majority(&by))
    }

    /// The sites of all sets, in order.
    pub fn sites(&self) -> Vec<SiteId> {
        let all = self.0.iter().flat_map(|set| set.sites().iter().copied());
        let mut all: Vec<SiteId> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// One attempt. See the module's documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposer<V: Value> {
    ballot: Ballot,
    stage: Stage<V>,
    planted: Planted,
}

#[derive(Clone, Debug, PartialEq)]
enum Stage<V: Value> {
    Prepare {
        /// The copy that the attempt extends.
        copy: V,
        /// The value of the highest ballot so far, initially the copy.
        best: V,
        promised: Vec<SiteId>,
        work: Work<V>,
    },
    Accept {
        value: V,
        needs: Needs,
        accepted: Vec<SiteId>,
        outcome: Outcome<V>,
    },
    Refused,
}

impl<V: Value> Proposer<V> {
    /// An attempt that extends its site's copy, under a ballot that the site has logged.
    pub fn new(ballot: Ballot, copy: V, work: Work<V>, planted: Planted) -> Proposer<V> {
        let stage = Stage::Prepare { best: copy.clone(), copy, promised: Vec::new(), work };
        Proposer { ballot, stage, planted }
    }

    /// Its ballot.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whether a needed site has promised a higher ballot, or this one has learned of one.
    pub fn is_refused(&self) -> bool {
        matches!(self.stage, Stage::Refused)
    }

    /// The current request, and the sites that have not answered it.
    pub fn asked(&self) -> (Asked<V>, Vec<SiteId>) {
        match &self.stage {
            Stage::Prepare { promised, best, copy, work } => {
                let mut sites = match work {
                    Work::Recover { without } => to_answer(best, copy, without),
                    _ => self.needs(None).sites(),
                };
                sites.retain(|site| !promised.contains(site));
                (Asked::Prepare, sites)
            }
            Stage::Accept { value, needs, accepted, .. } => {
                let mut sites = needs.sites();
                sites.retain(|site| !accepted.contains(site));
                (Asked::Accept(value.clone()), sites)
            }
            Stage::Refused => (Asked::Nothing, Vec::new()),
        }
    }

    /// What the next stage may still need.
    pub fn needs_now(&self) -> Needs {
        match &self.stage {
            Stage::Accept { needs, .. } => needs.clone(),
            _ => self.needs(None),
        }
    }

    /// Whether the attempt can succeed without these sites.
    pub fn can_do_without(&self, refused: &BTreeSet<SiteId>) -> bool {
        match &self.stage {
            Stage::Prepare { best, copy, work: Work::Recover { without }, .. } => {
                to_answer(best, copy, without).iter().all(|site| !refused.contains(site))
            }
            _ => self.needs_now().are_met(|site| !refused.contains(&site)),
        }
    }

    /// The needed sets: that of the copy, and later ones named by a value read or written.
    fn needs(&self, written: Option<&V>) -> Needs {
        let Stage::Prepare { copy, best, .. } = &self.stage else {
            return Needs::default();
        };
        let own = copy.registrars();
        let mut needs = Needs::default();
        if self.planted.is(Bug::NewSetOnly) {
            needs.add(written.unwrap_or(best).registrars().set);
            if written.is_none() {
                needs.add(own.set);
            }
            return needs;
        }
        needs.add(own.set);
        if self.planted.is(Bug::OldSetOnly) {
            return needs;
        }
        for value in [Some(best), written].into_iter().flatten() {
            let other = value.registrars();
            let is_other = match self.planted.is(Bug::SetsByMembers) {
                true => other.set != own.set,
                false => other.since != own.since,
            };
            if is_other {
                needs.add(other.set);
                if !self.planted.is(Bug::SetBeforeUnnamed) {
                    needs.add(other.before);
                }
            }
        }
        needs
    }

    /// Records that this site has a newer copy. A recovery keeps more then of what it finds
    /// accepted, and goes on from no less than what was chosen. It is over if another one has begun
    /// a higher term: its own ballot is below what it would go on from.
    pub fn learn(&mut self, newer: &V) {
        if matches!(self.stage, Stage::Prepare { .. }) && newer.version() > self.ballot {
            self.stage = Stage::Refused;
        }
        let Stage::Prepare { copy, best, work: Work::Recover { .. }, .. } = &mut self.stage else {
            return;
        };
        for older in [copy, best] {
            if newer.version() > older.version() {
                *older = newer.clone();
            }
        }
    }

    /// Records a promise and the accepted value. With enough promises the attempt asks sites to
    /// accept.
    pub fn promised(&mut self, by: SiteId, accepted: V) {
        let is_counted = self.planted.is(Bug::CountedVersions);
        let unread = self.planted.is(Bug::HighestUnread);
        let Stage::Prepare { best, promised, work, .. } = &mut self.stage else { return };
        if !promised.contains(&by) {
            promised.push(by);
            promised.sort_unstable();
        }
        let is_recovery = matches!(work, Work::Recover { .. });
        let order = |value: &V| match is_counted && is_recovery {
            true => (Ballot { round: 0, ..value.version() }, value.count()),
            false => (value.version(), 0),
        };
        if order(&accepted) > order(best) && (!unread || is_recovery) {
            *best = accepted;
        }
        if self.has_promises() {
            self.propose();
        }
    }

    fn has_promises(&self) -> bool {
        let Stage::Prepare { best, copy, promised, work } = &self.stage else { return false };
        match work {
            Work::Recover { without } if self.planted.is(Bug::SomeUnasked) => {
                2 * promised.len() > to_answer(best, copy, without).len()
            }
            Work::Recover { without } => {
                to_answer(best, copy, without).iter().all(|site| promised.contains(site))
            }
            _ => self.needs(None).are_met(|site| promised.contains(&site)),
        }
    }

    fn propose(&mut self) {
        let Stage::Prepare { copy, best, promised, work } = &self.stage else {
            return;
        };
        // In a trial the version is a count.
        let stamp = |value: &V, more: u64| match self.planted.is(Bug::CountedVersions) {
            true => Ballot { round: value.count() + more, site: SiteId(0), ..self.ballot },
            false => self.ballot,
        };
        let mut value = best.clone();
        let outcome = match work {
            Work::Change { id, change } => {
                let known = best.outcome(*id).filter(|_| !self.planted.is(Bug::NoIds));
                match known {
                    Some(outcome) => Outcome::Done(outcome),
                    None => {
                        let before = best.registrars();
                        let outcome = value.change(*id, change, stamp(best, 1));
                        let now = value.registrars().set;
                        let is_copy = best.version() == copy.version()
                            || self.planted.is(Bug::RegistrarsUnchosen);
                        if now == before.set {
                            Outcome::Done(outcome)
                        } else if is_copy {
                            let since = self.ballot;
                            let made = Registrars { set: now, since, before: before.set };
                            value.set_registrars(made);
                            Outcome::Done(outcome)
                        } else {
                            value = best.clone();
                            Outcome::Again
                        }
                    }
                }
            }
            Work::HandIn(kept) => {
                let mut missing = kept.clone();
                best.has_kept(&mut missing);
                if !V::is_nothing(&missing) {
                    value.hand_in(&missing, stamp(best, 1));
                }
                Outcome::HandedIn
            }
            Work::Recover { without } => {
                // All registrars have answered if none is excluded: whatever was chosen in its term
                // is in this value.
                let known = if without.is_empty() { best } else { copy };
                value.recover(stamp(best, 1), known);
                let there = present(&value, without).into_iter();
                let there: Vec<SiteId> = there.filter(|site| promised.contains(site)).collect();
                let set = value.choose(&there);
                value.set_registrars(Registrars { set, since: self.ballot, before: set });
                Outcome::Recovered
            }
        };
        value.stamp(stamp(&value, 0));
        let needs = match work {
            Work::Recover { .. } => {
                let mut needs = Needs::default();
                needs.add(value.registrars().set);
                needs
            }
            _ => self.needs(Some(&value)),
        };
        self.stage = Stage::Accept { value, needs, accepted: Vec::new(), outcome };
    }

    /// Records an acceptance. With a majority the value is chosen: it is returned with the outcome.
    pub fn accepted(&mut self, by: SiteId) -> Option<(V, Outcome<V>)> {
        let Stage::Accept { accepted, .. } = &mut self.stage else { return None };
        if !accepted.contains(&by) {
            accepted.push(by);
            accepted.sort_unstable();
        }
        let Stage::Accept { value, needs, accepted, outcome } = &self.stage else { return None };
        let is_chosen = match self.planted.is(Bug::SpreadUnchosen) {
            true => !accepted.is_empty(),
            false => needs.are_met(|site| accepted.contains(&site)),
        };
        is_chosen.then(|| (value.clone(), outcome.clone()))
    }

    /// A site has promised a higher ballot: this one fails, or other sites choose its value.
    pub fn refused(&mut self) {
        self.stage = Stage::Refused;
    }
}

/// The sites that must answer a recovery which goes on from `best`: those that it lists, except the
/// excluded ones. One that the proposer's copy does not list may never have joined. It must answer
/// only if it may be a registrar: if it is one in `best`, or if the excluded sites alone may have
/// made it one since.
pub fn to_answer<V: Value>(best: &V, copy: &V, without: &[SiteId]) -> Vec<SiteId> {
    let (known, Registrars { set, before, .. }) = (copy.sites(), best.registrars());
    let is_excluded = |site: SiteId| without.contains(&site);
    let may_have_gone_on = set.has_majority(is_excluded) || before.has_majority(is_excluded);
    let may_be_registrar =
        |site: SiteId| may_have_gone_on || set.contains(site) || before.contains(site);
    let mut sites = present(best, without);
    sites.retain(|site| known.contains(site) || may_be_registrar(*site));
    sites
}

/// The sites that a value lists, except some.
fn present<V: Value>(value: &V, without: &[SiteId]) -> Vec<SiteId> {
    let mut sites = value.sites();
    sites.retain(|site| !without.contains(site));
    sites
}
