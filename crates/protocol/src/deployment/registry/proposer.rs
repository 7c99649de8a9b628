//! One attempt to change the registry. Volatile: it can be lost at any moment.
//!
//! It is asked whom to ask for what ([`Proposer::asked`]), and takes their answers. It does not matter
//! how often a site is asked, or how late its answer is.

use super::Value;
use super::trial::{Bug, Planted};
use model::{Ballot, RegistrarSet, Registrars, SiteId};
use std::collections::BTreeSet;

/// What an attempt is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Work<V: Value> {
    /// A command.
    Change {
        /// What tells it from others.
        id: V::Id,
        /// What it does.
        change: V::Change,
    },
    /// What this site has kept of another term.
    HandIn(V::Kept),
    /// A recovery, in a ballot of the next term.
    Recover {
        /// The sites to be done without.
        without: Vec<SiteId>,
    },
}

/// What became of it, once its value is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<V: Value> {
    /// The command's, now or before.
    Done(V::Outcome),
    /// It would change the registrars, and has only made sure of a copy: another ballot is needed.
    Again,
    /// What was kept is in.
    HandedIn,
    /// The next term has begun.
    Recovered,
}

/// What an attempt asks sites for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked<V> {
    /// A promise, and what they accepted.
    Prepare,
    /// To accept this value.
    Accept(V),
    /// Nothing more.
    Nothing,
}

/// The sets of registrars of each of which a majority is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Needs(Vec<RegistrarSet>);

impl Needs {
    fn add(&mut self, set: RegistrarSet) {
        if !set.is_empty() && !self.0.contains(&set) {
            self.0.push(set);
        }
    }

    /// Whether these sites are enough.
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
        /// The copy's.
        version: Ballot,
        registrars: Registrars,
        /// The value of the highest ballot so far, the copy at first.
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
    /// An attempt by the copy that its site has, under a ballot that the site has logged.
    pub fn new(ballot: Ballot, copy: V, work: Work<V>, planted: Planted) -> Proposer<V> {
        let stage = Stage::Prepare {
            version: copy.version(),
            registrars: copy.registrars(),
            best: copy,
            promised: Vec::new(),
            work,
        };
        Proposer { ballot, stage, planted }
    }

    /// Its ballot.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whether a higher ballot was promised somewhere that it needed.
    pub fn is_refused(&self) -> bool {
        matches!(self.stage, Stage::Refused)
    }

    /// What it asks for, and the sites whose answers it lacks.
    pub fn asked(&self) -> (Asked<V>, Vec<SiteId>) {
        match &self.stage {
            Stage::Prepare { promised, best, work, .. } => {
                let mut sites = match work {
                    Work::Recover { without } => present(best, without),
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

    /// What the stage after this one could still need.
    pub fn needs_now(&self) -> Needs {
        match &self.stage {
            Stage::Accept { needs, .. } => needs.clone(),
            _ => self.needs(None),
        }
    }

    /// Whether it can still come to something without these sites.
    pub fn can_do_without(&self, refused: &BTreeSet<SiteId>) -> bool {
        match &self.stage {
            Stage::Prepare { best, work: Work::Recover { without }, .. } => {
                present(best, without).iter().all(|site| !refused.contains(site))
            }
            _ => self.needs_now().are_met(|site| !refused.contains(&site)),
        }
    }

    /// The sets that are needed: that of the copy, and those that a value read or written names beyond it.
    fn needs(&self, written: Option<&V>) -> Needs {
        let Stage::Prepare { registrars: own, best, .. } = &self.stage else {
            return Needs::default();
        };
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

    /// A site has promised, and says what it accepted. Once enough have, the attempt goes on to accept.
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
        let Stage::Prepare { best, promised, work, .. } = &self.stage else { return false };
        match work {
            Work::Recover { without } if self.planted.is(Bug::SomeUnasked) => {
                2 * promised.len() > present(best, without).len()
            }
            Work::Recover { without } => {
                present(best, without).iter().all(|site| promised.contains(site))
            }
            _ => self.needs(None).are_met(|site| promised.contains(&site)),
        }
    }

    fn propose(&mut self) {
        let Stage::Prepare { version, best, promised, work, .. } = &self.stage else {
            return;
        };
        // A version that is a count, in a trial.
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
                        let is_copy =
                            best.version() == *version || self.planted.is(Bug::RegistrarsUnchosen);
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
                let there: Vec<SiteId> =
                    present(best, without).into_iter().filter(|s| promised.contains(s)).collect();
                let set = best.choose(&there);
                value.recover(stamp(best, 1), without);
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

    /// A site has accepted. With a majority the value is chosen: it, and what became of the work.
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

    /// A site has promised a higher ballot: this one comes to nothing, or its value is chosen by others.
    pub fn refused(&mut self) {
        self.stage = Stage::Refused;
    }
}

/// The sites that a value lists, but for some.
fn present<V: Value>(value: &V, without: &[SiteId]) -> Vec<SiteId> {
    let mut sites = value.sites();
    sites.retain(|site| !without.contains(site));
    sites
}
