//! What a site stores of the registry. Durable: each step is a command of the site's log.

use super::Value;
use super::trial::{Bug, Planted};
use model::{Ballot, SiteId, Term};

/// A site's copy of the registry and, if it is a registrar, its promise and its accepted value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acceptor<V: Value> {
    /// The highest ballot promised. Lower ones are refused.
    promised: Ballot,
    /// The value of the highest accepted ballot.
    accepted: V,
    /// The newest chosen value that this site has learned.
    copy: V,
    /// The highest ballot that this site has used itself, not counting recoveries.
    used: Ballot,
    /// What this site has to hand in after a recovery.
    kept: V::Retained,
}

impl<V: Value> Acceptor<V> {
    /// An acceptor that has a chosen value and has promised nothing.
    pub fn new(copy: V) -> Acceptor<V> {
        Acceptor {
            promised: copy.version(),
            accepted: copy.clone(),
            copy,
            used: Ballot::default(),
            kept: V::Retained::default(),
        }
    }

    /// An acceptor restored from its stored parts.
    pub fn restored(
        copy: V,
        accepted: V,
        (promised, used): (Ballot, Ballot),
        kept: V::Retained,
    ) -> Acceptor<V> {
        Acceptor { promised, accepted, copy, used, kept }
    }

    /// The newest chosen value that this site has learned.
    pub fn copy(&self) -> &V {
        &self.copy
    }

    /// The highest ballot promised.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// The value of the highest accepted ballot.
    pub fn accepted(&self) -> &V {
        &self.accepted
    }

    /// The highest ballot that this site has used itself.
    pub fn used(&self) -> Ballot {
        self.used
    }

    /// What this site has to hand in.
    pub fn kept(&self) -> &V::Retained {
        &self.kept
    }

    /// Reserves a ballot for an attempt of this site, in its copy's term and above one refused
    /// elsewhere.
    pub fn reserve(&mut self, own: SiteId, above: Ballot, planted: Planted) -> Ballot {
        let term = self.copy.version().term;
        let of_term = |ballot: Ballot| if ballot.term == term { ballot.round } else { 0 };
        let known = [self.copy.version(), self.promised, self.used, above].map(of_term);
        let round = match planted.is(Bug::BallotNotLogged) {
            true => of_term(self.copy.version()),
            false => known.into_iter().max().unwrap_or(0),
        };
        let ballot = Ballot { term, round: round + 1, site: own };
        self.used = self.used.max(ballot);
        ballot
    }

    /// Reserves a ballot that begins the next term. This site promises it at once; its accepted
    /// value is returned too.
    pub fn reserve_term(&mut self, own: SiteId, planted: Planted) -> (Ballot, V) {
        let known = match planted.is(Bug::TermNotLogged) || planted.is(Bug::NoPromise) {
            true => self.copy.version().term.number,
            false => self.promised.term.number,
        };
        let number = known + 1;
        let ballot = match planted.is(Bug::SameTerm) {
            true => {
                Ballot { term: Term { number, site: SiteId(0) }, round: own.0.into(), site: own }
            }
            false => Ballot { term: Term { number, site: own }, round: 0, site: own },
        };
        // The promise logs the ballot. `used` continues in the copy's term.
        if !planted.is(Bug::NoPromise) {
            self.promised = self.promised.max(ballot);
        }
        (ballot, self.answer(ballot, planted))
    }

    /// Promises to refuse lower ballots. Returns the accepted value.
    ///
    /// # Errors
    /// The higher ballot that was promised.
    pub fn prepare(&mut self, ballot: Ballot, planted: Planted) -> Result<V, Ballot> {
        if ballot < self.promised {
            return Err(self.promised);
        }
        if !(planted.is(Bug::NoPromise) && is_recovery(ballot)) {
            self.promised = ballot;
        }
        Ok(self.answer(ballot, planted))
    }

    fn answer(&self, ballot: Ballot, planted: Planted) -> V {
        match planted.is(Bug::CopiesOnly) && is_recovery(ballot) {
            true => self.copy.clone(),
            false => self.accepted.clone(),
        }
    }

    /// Accepts a ballot's value.
    ///
    /// # Errors
    /// The higher ballot that was promised.
    pub fn accept(&mut self, ballot: Ballot, value: V) -> Result<(), Ballot> {
        if ballot < self.promised {
            return Err(self.promised);
        }
        self.promised = ballot;
        self.accepted = value;
        Ok(())
    }

    /// Replaces the copy with a chosen value if that is newer. Returns whether it was.
    pub fn learn(&mut self, value: V, planted: Planted) -> bool {
        let version = value.version();
        if version <= self.copy.version() {
            return false;
        }
        value.has_kept(&mut self.kept);
        if version.term != self.copy.version().term && !planted.is(Bug::NothingHandedIn) {
            self.copy.keep(&value, &mut self.kept);
        }
        self.copy = value.clone();
        if planted.is(Bug::LowerTermAccepted) {
            return true;
        }
        if version > self.accepted.version() {
            self.accepted = value;
        }
        self.promised = self.promised.max(version);
        true
    }
}

/// Round 0 begins a term.
fn is_recovery(ballot: Ballot) -> bool {
    ballot.round == 0
}
