//! What a site keeps of the registry. Durable: each step is a command of the site's log.

use super::Value;
use super::trial::{Bug, Planted};
use model::{Ballot, SiteId, Term};

/// A site's part of the registry: its copy, and as a registrar what it promised and accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acceptor<V: Value> {
    /// Lower ballots are refused.
    promised: Ballot,
    /// The value of the highest ballot that it accepted.
    accepted: V,
    /// The newest chosen value that it knows.
    copy: V,
    /// The highest ballot that this site has used itself, recoveries apart.
    used: Ballot,
    /// What it has to hand in, after a recovery.
    kept: V::Kept,
}

impl<V: Value> Acceptor<V> {
    /// One that knows a chosen value and has promised nothing.
    pub fn new(copy: V) -> Acceptor<V> {
        Acceptor {
            promised: copy.version(),
            accepted: copy.clone(),
            copy,
            used: Ballot::default(),
            kept: V::Kept::default(),
        }
    }

    /// One as it was kept.
    pub fn restored(
        copy: V,
        accepted: V,
        (promised, used): (Ballot, Ballot),
        kept: V::Kept,
    ) -> Acceptor<V> {
        Acceptor { promised, accepted, copy, used, kept }
    }

    /// The newest chosen value that this site knows.
    pub fn copy(&self) -> &V {
        &self.copy
    }

    /// The highest ballot that it promised.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// The value of the highest ballot that it accepted.
    pub fn accepted(&self) -> &V {
        &self.accepted
    }

    /// The highest ballot that this site has used itself.
    pub fn used(&self) -> Ballot {
        self.used
    }

    /// What it has to hand in.
    pub fn kept(&self) -> &V::Kept {
        &self.kept
    }

    /// A ballot for an attempt of this site, of its copy's term, above one that was refused elsewhere.
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

    /// A ballot that begins the next term, which this site promises at once, and what it has accepted.
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
        // The promise is what logs it. `used` goes on counting in the copy's term.
        if !planted.is(Bug::NoPromise) {
            self.promised = self.promised.max(ballot);
        }
        (ballot, self.answer(ballot, planted))
    }

    /// Promises to refuse lower ballots, and answers with what it accepted.
    ///
    /// # Errors
    /// The higher ballot that it promised.
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
    /// The higher ballot that it promised.
    pub fn accept(&mut self, ballot: Ballot, value: V) -> Result<(), Ballot> {
        if ballot < self.promised {
            return Err(self.promised);
        }
        self.promised = ballot;
        self.accepted = value;
        Ok(())
    }

    /// Takes a chosen value over. Whether it is newer than the copy.
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
