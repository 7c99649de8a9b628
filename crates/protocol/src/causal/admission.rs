//! When a node may serve a request of a session: once it has all that the session has seen and done.
//!
//! | the token names | the node needs |
//! | --- | --- |
//! | a revision of its own site | its state has applied that revision |
//! | a revision of another site | the position of that write, from the root; from then on the token names that |
//! | a position | the order is imported up to it |
//!
//! All of them are needed, of every request: that a write is this site's own does not show that this site has
//! what the session saw before it. A request that waits is looked at again whenever the state has moved on, and
//! ends at its deadline with [`SessionError`], and nothing done.

use super::AGAIN;
use super::trial::{Bug, Planted};
use model::{CausalToken, Position, Rebuilt, RegionId, Revision, SessionError, SiteId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::causal::{Resolve, Resolved};

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Here {
    pub(crate) region: RegionId,
    pub(crate) own: SiteId,
    /// The position up to which the order is imported.
    pub(crate) applied: Position,
    /// The revision of the last command applied.
    pub(crate) revision: Revision,
    /// What part of the order is lost, if a root was.
    pub(crate) rebuilt: Option<Rebuilt>,
    /// Own revisions after the first up to the second may be missing here, though they were written.
    pub(crate) lacks_own: Option<(Revision, Revision)>,
}

impl Here {
    /// Whether a write is this site's, and its state has it if it is as far as that.
    fn has_own(&self, (site, revision): (SiteId, Revision)) -> bool {
        let is_lacked = |(after, upto)| after < revision && revision <= upto;
        site == self.own && !self.lacks_own.is_some_and(is_lacked)
    }

    /// Whether a session has seen what is lost.
    fn lost(&self, token: &CausalToken) -> Option<SessionError> {
        let rebuilt = self.rebuilt.filter(|rebuilt| rebuilt.lacks(token.seen))?;
        Some(SessionError::Ended { have: rebuilt.above, need: token.seen })
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is served.
    Served,
    /// It waits until the state has moved on.
    Waits,
    /// It waits for the position of what its session wrote at another site.
    Resolves(SiteId, Revision),
    /// It is not served.
    Refused(SessionError),
}

/// Decides of a request by the token of its session.
pub(crate) fn admit(token: &CausalToken, here: &Here, planted: Planted) -> Admission {
    if token.region != here.region {
        return Admission::Refused(SessionError::Foreign);
    }
    if let Some(lost) = here.lost(token) {
        return Admission::Refused(lost);
    }
    let is_seen = token.seen <= here.applied || planted.is(Bug::SeenIgnored);
    match token.written {
        Some((site, revision)) if here.has_own((site, revision)) => {
            if is_seen && revision <= here.revision { Admission::Served } else { Admission::Waits }
        }
        Some((site, revision)) if !planted.is(Bug::WrittenIgnored) => {
            Admission::Resolves(site, revision)
        }
        _ if is_seen => Admission::Served,
        _ => Admission::Waits,
    }
}

/// What a request whose deadline has come is answered.
fn late(token: &CausalToken, here: &Here) -> SessionError {
    if let Some(lost) = here.lost(token) {
        return lost;
    }
    match token.written {
        Some((site, revision)) if !here.has_own((site, revision)) || token.seen <= here.applied => {
            SessionError::Unordered { site }
        }
        _ => SessionError::Behind { have: here.applied, need: token.seen },
    }
}

#[derive(Debug)]
struct Request<T> {
    what: T,
    bytes: usize,
    token: CausalToken,
    deadline: Duration,
}

/// The requests that wait at a node.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    planted: Planted,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Request<T>>,
    waiting_bytes: usize,
    last_id: u64,
    /// The writes whose positions are asked for, and when they were last.
    asked: BTreeMap<(SiteId, Revision), Option<Duration>>,
    looked_at: Option<Here>,
}

impl<T> Requests<T> {
    pub(crate) fn new(planted: Planted) -> Requests<T> {
        let (waiting, asked) = Default::default();
        Requests { planted, waiting, waiting_bytes: 0, last_id: 0, asked, looked_at: None }
    }

    /// Whether a request may be served now.
    pub(crate) fn admit(&self, token: &CausalToken, here: &Here) -> Admission {
        admit(token, here, self.planted)
    }

    /// Whether none waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A request of so many bytes waits; or there are too many.
    pub(crate) fn push(
        &mut self,
        (what, bytes): (T, usize),
        token: CausalToken,
        deadline: Duration,
        here: &Here,
    ) -> Result<(), T> {
        let too_many = self.waiting.len() >= limits::CAUSAL_REQUESTS_WAITING_MAX;
        if too_many || self.waiting_bytes + bytes > limits::WRITES_WAITING_BYTES_MAX {
            return Err(what);
        }
        if let Admission::Resolves(site, revision) = self.admit(&token, here) {
            self.asked.entry((site, revision)).or_default();
        }
        self.last_id += 1;
        self.waiting_bytes += bytes;
        self.waiting.insert(self.last_id, Request { what, bytes, token, deadline });
        self.looked_at = None;
        Ok(())
    }

    /// What may be served now, with the token of its session by now.
    pub(crate) fn take_admitted(&mut self, here: &Here) -> Vec<(T, CausalToken)> {
        if self.waiting.is_empty() || self.looked_at == Some(*here) {
            return Vec::new();
        }
        self.looked_at = Some(*here);
        let planted = self.planted;
        let admitted = self.take_where(|one| admit(&one.token, here, planted) == Admission::Served);
        admitted.into_iter().map(|one| (one.what, one.token)).collect()
    }

    /// The questions for a node of the root that are due, and of each whether the node that was asked before has
    /// not answered.
    pub(crate) fn take_questions(&mut self, now: Duration) -> Vec<(Resolve, bool)> {
        let is_due = |at: &Option<Duration>| at.is_none_or(|at| at + AGAIN <= now);
        let due = self.asked.iter_mut().filter(|(_, at)| is_due(at));
        let question = |((site, revision), at): (&(SiteId, Revision), &mut Option<Duration>)| {
            let again = at.replace(now).is_some();
            (Resolve { site: site.0, revision: revision.0 }, again)
        };
        due.map(question).collect()
    }

    /// Another node of the root is to be asked.
    pub(crate) fn ask_again(&mut self) {
        self.asked.values_mut().for_each(|at| *at = None);
    }

    /// A position is known: the tokens that name the write name that from here on. What can never be
    /// served is given back.
    pub(crate) fn resolved(&mut self, answer: Resolved) -> Vec<(T, SessionError)> {
        let write = (SiteId(answer.site), Revision(answer.revision));
        let position = Position(answer.position);
        if self.asked.remove(&write).is_none() {
            return Vec::new();
        }
        self.looked_at = None;
        if position == Position::default() {
            let lost = self.take_where(|one| one.token.written == Some(write));
            let error = SessionError::Lost { site: write.0 };
            return lost.into_iter().map(|one| (one.what, error.clone())).collect();
        }
        for one in self.waiting.values_mut().filter(|one| one.token.written == Some(write)) {
            one.token.written = None;
            one.token.sees(position);
        }
        Vec::new()
    }

    /// What has waited until its deadline.
    pub(crate) fn give_up(&mut self, now: Duration, here: &Here) -> Vec<(T, SessionError)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let given_up = self.take_where(|one| one.deadline <= now);
        let waiting = self.waiting.values().filter_map(|one| one.token.written);
        let waiting: BTreeSet<_> = waiting.collect();
        self.asked.retain(|write, _| waiting.contains(write));
        given_up.into_iter().map(|one| (one.what, late(&one.token, here))).collect()
    }

    fn take_where(&mut self, is_taken: impl Fn(&Request<T>) -> bool) -> Vec<Request<T>> {
        let taken = self.waiting.iter().filter(|(_, one)| is_taken(one));
        let taken: Vec<u64> = taken.map(|(id, _)| *id).collect();
        let taken = taken.iter().filter_map(|id| self.waiting.remove(id));
        let taken: Vec<Request<T>> = taken.collect();
        self.waiting_bytes -= taken.iter().map(|one| one.bytes).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGION: RegionId = RegionId(1);

    fn here(applied: u64, revision: u64) -> Here {
        let (applied, revision) = (Position(applied), Revision(revision));
        let (rebuilt, lacks_own) = (None, None);
        Here { region: REGION, own: SiteId(1), applied, revision, rebuilt, lacks_own }
    }

    fn token(seen: u64, written: Option<(u32, u64)>) -> CausalToken {
        let written = written.map(|(site, revision)| (SiteId(site), Revision(revision)));
        CausalToken { region: REGION, seen: Position(seen), written }
    }

    #[test]
    fn all_that_a_token_names_is_needed() {
        use Admission::{Refused, Resolves, Served, Waits};
        let cases = [
            (token(5, None), Served),
            (token(6, None), Waits),
            (token(5, Some((1, 9))), Served),
            (token(5, Some((1, 10))), Waits),
            // Its own write alone shows nothing: the session saw more before it came.
            (token(6, Some((1, 9))), Waits),
            (token(0, Some((2, 1))), Resolves(SiteId(2), Revision(1))),
            (CausalToken { region: RegionId(2), ..token(0, None) }, Refused(SessionError::Foreign)),
        ];
        for (token, wanted) in cases {
            assert_eq!(admit(&token, &here(5, 9), Planted::none()), wanted, "{token:?}");
        }
    }

    #[test]
    fn a_request_waits_for_its_past_and_not_past_its_deadline() {
        let mut requests = Requests::new(Planted::none());
        let at = Duration::from_secs;
        let push = |requests: &mut Requests<u8>, what, token| {
            requests.push((what, 1), token, at(10), &here(5, 9)).unwrap();
        };
        push(&mut requests, 1, token(7, None));
        push(&mut requests, 2, token(0, Some((2, 4))));
        push(&mut requests, 3, token(0, Some((2, 4))));
        push(&mut requests, 4, token(0, Some((3, 1))));
        let questions = requests.take_questions(at(1));
        let question = |site, revision| (Resolve { site, revision }, false);
        assert_eq!(questions, [question(2, 4), question(3, 1)], "each once");
        assert!(requests.take_questions(at(1)).is_empty());
        assert!(requests.take_admitted(&here(5, 9)).is_empty());
        assert!(requests.resolved(Resolved { site: 2, revision: 4, position: 6 }).is_empty());
        let lost = requests.resolved(Resolved { site: 3, revision: 1, position: 0 });
        assert_eq!(lost, [(4, SessionError::Lost { site: SiteId(3) })]);
        let admitted = requests.take_admitted(&here(6, 9));
        assert_eq!(admitted, [(2, token(6, None)), (3, token(6, None))]);
        let late = requests.give_up(at(10), &here(6, 9));
        let (have, need) = (Position(6), Position(7));
        assert_eq!(late, [(1, SessionError::Behind { have, need })]);
        assert!(requests.waiting.is_empty());
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let mut requests = Requests::new(Planted::none());
        let mut push = |what: u8, bytes| {
            let deadline = Duration::from_secs(u64::from(what));
            requests.push((what, bytes), token(7, None), deadline, &here(5, 9))
        };
        assert_eq!(push(1, limits::WRITES_WAITING_BYTES_MAX - 9), Ok(()));
        assert_eq!((push(2, 10), push(2, 9), push(3, 1)), (Err(2), Ok(()), Err(3)));
        assert_eq!(requests.give_up(Duration::from_secs(1), &here(5, 9)).len(), 1);
        assert_eq!(requests.waiting_bytes, 9);
    }

    #[test]
    fn a_question_is_repeated_and_ends_with_its_request() {
        let mut requests = Requests::new(Planted::none());
        let at = Duration::from_secs;
        requests.push((1, 1), token(0, Some((2, 4))), at(3), &here(5, 9)).unwrap();
        let question = Resolve { site: 2, revision: 4 };
        assert_eq!(requests.take_questions(at(0)), [(question, false)]);
        assert_eq!(requests.take_questions(at(1)), [(question, true)], "of another node");
        let late = requests.give_up(at(3), &here(5, 9));
        assert_eq!(late, [(1, SessionError::Unordered { site: SiteId(2) })]);
        assert!(requests.take_questions(at(4)).is_empty() && requests.asked.is_empty());
    }
}
