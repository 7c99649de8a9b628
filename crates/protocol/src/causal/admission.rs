//! When a node may serve a request of a session: once it has all that the session has seen and
//! done.
//!
//! | the token names | the node needs |
//! | --- | --- |
//! | a revision of its own site | its state has applied that revision |
//! | a revision of another site | the position of that write, of what is imported here or from the root; from then on the token names that |
//! | a position | the order is imported up to it |
//! | another region | a position here behind all that the token names, from the root; from then on the token names that |
//! | a revision of a site of another region that has left | the same; and the position there, or that it has none, from that region's root |
//!
//! All of them are needed, of every request: that a write is this site's own does not show that
//! this site has what the session saw before it. A request that waits is looked at again whenever
//! the state has moved on, and ends at its deadline with [`SessionError`], and nothing done.

use super::trial::{Bug, Planted};
use super::{AGAIN, resolve};
use model::{CausalToken, Position, Rebuilt, RegionId, Revision, SessionError, SiteId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::causal::{Resolve, Resolved};

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Here {
    pub(crate) region: RegionId,
    /// The other regions, then zeros.
    pub(crate) others: [RegionId; limits::REGIONS_MAX],
    pub(crate) own: SiteId,
    /// The position up to which the order is imported.
    pub(crate) applied: Position,
    /// The position up to which it cannot be void any more; less than `applied` at a root at times.
    pub(crate) released: Position,
    /// The revision of the last command applied.
    pub(crate) revision: Revision,
    /// What part of the order is lost, if a root was.
    pub(crate) rebuilt: Option<Rebuilt>,
    /// Own revisions after the first up to the second may be missing here, though they were
    /// written.
    pub(crate) lacks_own: Option<(Revision, Revision)>,
}

/// Where there is one region.
#[cfg(test)]
pub(crate) const NO_OTHERS: [RegionId; limits::REGIONS_MAX] = [RegionId(0); limits::REGIONS_MAX];

impl Here {
    /// Whether a write is this site's, and its state has it if it is as far as that.
    fn has_own(&self, (site, revision): (SiteId, Revision)) -> bool {
        let is_lacked = |(after, upto)| after < revision && revision <= upto;
        site == self.own && !self.lacks_own.is_some_and(is_lacked)
    }

    /// Whether a session has seen what is lost.
    fn lost(&self, need: Position) -> Option<SessionError> {
        let have = self.rebuilt?.lost_behind(need)?;
        Some(SessionError::Ended { have, need })
    }
}

/// What the root is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    /// The position of this write …
    pub(crate) written: Option<(SiteId, Revision)>,
    /// … or one behind what was seen, and behind it, in another region.
    pub(crate) foreign: Option<(RegionId, Position)>,
}

impl Question {
    fn message(&self) -> Resolve {
        let (site, revision) = self.written.unwrap_or_default();
        let (region, seen) = self.foreign.unwrap_or_default();
        let region = u32::from(region.0);
        Resolve { site: site.0, revision: revision.0, region, seen: seen.0 }
    }

    fn of_answer(answer: &Resolved) -> Question {
        let written =
            (answer.site != 0).then_some((SiteId(answer.site), Revision(answer.revision)));
        let region = RegionId(answer.region as u16);
        let foreign = (answer.region != 0).then_some((region, Position(answer.seen)));
        Question { written, foreign }
    }

    /// What a token has to be asked for.
    fn of_token(token: &CausalToken, own: RegionId) -> Question {
        let is_foreign = token.region != own;
        let foreign = is_foreign.then_some((token.region, token.seen));
        Question { written: token.written, foreign }
    }

    /// What another region's root may be asked for: the position there of what a session has
    /// written.
    fn of_other_root(token: &CausalToken, own: RegionId) -> Option<Question> {
        let is_foreign = token.region != own && token.written.is_some();
        is_foreign.then_some(Question { written: token.written, foreign: None })
    }

    fn is_of(&self, token: &CausalToken, own: RegionId) -> bool {
        *self == Question::of_token(token, own)
            || Some(*self) == Question::of_other_root(token, own)
    }
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is served.
    Served,
    /// It waits until the state has moved on.
    Waits,
    /// It waits for the position of what its session wrote at another site, or has seen in another
    /// region.
    Resolves(Question),
    /// It is not served.
    Refused(SessionError),
}

/// Whether a session has neither seen nor written anything.
fn begins(token: &CausalToken) -> bool {
    token.seen == Position::default() && token.written.is_none()
}

/// Of a site, the last write that has a position here, and that.
pub(crate) trait Ordered: Fn(SiteId) -> Option<(Revision, Position)> {}

impl<F: Fn(SiteId) -> Option<(Revision, Position)>> Ordered for F {}

/// A token that names a write of another site names its position instead, if that is imported and
/// released here: the root would answer the same, a round trip later. As the root's, the position
/// may be that of a later write of the site. Not one that has seen what is lost: behind that position
/// it would not show.
pub(crate) fn resolve_here(token: &mut CausalToken, here: &Here, ordered_of: &impl Ordered) {
    let Some((site, revision)) = token.written.filter(|_| token.region == here.region) else {
        return;
    };
    // Where the session has seen a later epoch, what is known here of the one before may be void.
    if here.lost(token.seen).is_some() || token.seen.epoch() > here.applied.epoch() {
        return;
    }
    let is_here = |(ordered, position): &(Revision, Position)| {
        let is_lost = here.rebuilt.is_some_and(|rebuilt| rebuilt.lacks(*position));
        *ordered >= revision && *position <= here.applied.min(here.released) && !is_lost
    };
    if let Some((_, position)) = ordered_of(site).filter(|_| site != here.own).filter(is_here) {
        token.written = None;
        token.sees(position);
    }
}

/// Decides of a request by the token of its session.
pub(crate) fn admit(token: &CausalToken, here: &Here, planted: Planted) -> Admission {
    if token.region != here.region {
        return match here.others.contains(&token.region) && token.region != RegionId(0) {
            true if planted.is(Bug::ForeignUnresolved) || begins(token) => Admission::Served,
            true => Admission::Resolves(Question::of_token(token, here.region)),
            false => Admission::Refused(SessionError::Foreign),
        };
    }
    if let Some(lost) = here.lost(token.seen) {
        return Admission::Refused(lost);
    }
    let is_seen = token.seen <= here.applied || planted.is(Bug::SeenIgnored);
    match token.written {
        Some((site, revision)) if here.has_own((site, revision)) => {
            if is_seen && revision <= here.revision { Admission::Served } else { Admission::Waits }
        }
        Some(_) if !planted.is(Bug::WrittenIgnored) => {
            Admission::Resolves(Question::of_token(token, here.region))
        }
        _ if is_seen => Admission::Served,
        _ => Admission::Waits,
    }
}

/// What a request whose deadline has come is answered.
fn late(token: &CausalToken, here: &Here) -> SessionError {
    if token.region != here.region {
        let behind = SessionError::Behind { have: here.applied, need: token.seen };
        return token.written.map_or(behind, |(site, _)| SessionError::Unordered { site });
    }
    if let Some(lost) = here.lost(token.seen) {
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
    /// As it came.
    came: CausalToken,
    /// What that stands for, as far as is known.
    token: CausalToken,
    deadline: Duration,
}

impl<T> Request<T> {
    /// How much of this region's order its session had seen when it came.
    fn seen(&self, here: &Here) -> Position {
        if self.came.region == here.region { self.came.seen } else { Position(0) }
    }
}

/// The requests that wait at a node.
#[derive(Debug)]
pub(crate) struct Requests<T> {
    planted: Planted,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Request<T>>,
    waiting_bytes: usize,
    last_id: u64,
    /// What is asked for, of which region's root, and when it was last.
    asked: BTreeMap<Question, (RegionId, Option<Duration>)>,
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
        if let Admission::Resolves(question) = self.admit(&token, here) {
            self.asked.entry(question).or_insert((here.region, None));
        }
        self.last_id += 1;
        self.waiting_bytes += bytes;
        let came = token;
        self.waiting.insert(self.last_id, Request { what, bytes, came, token, deadline });
        self.looked_at = None;
        Ok(())
    }

    /// The requests of sessions that have seen what is lost, by what is known now: the position of
    /// what they wrote may lie behind that by now.
    pub(crate) fn take_lost(&mut self, here: &Here) -> Vec<(T, SessionError)> {
        if self.looked_at == Some(*here) || here.rebuilt.is_none() {
            return Vec::new();
        }
        let lost = self.take_where(|one| here.lost(one.seen(here)).is_some());
        if !lost.is_empty() {
            self.forget_questions(here.region);
        }
        let error = |one: Request<T>| {
            let lost = here.lost(one.seen(here))?;
            Some((one.what, lost))
        };
        lost.into_iter().filter_map(error).collect()
    }

    /// What may be served now, with the token of its session by now. [`Self::take_lost`] comes
    /// first.
    pub(crate) fn take_admitted(
        &mut self,
        here: &Here,
        ordered_of: impl Ordered,
    ) -> Vec<(T, CausalToken)> {
        if self.waiting.is_empty() || self.looked_at == Some(*here) {
            return Vec::new();
        }
        self.looked_at = Some(*here);
        self.forget_void(here);
        self.waiting.values_mut().for_each(|one| resolve_here(&mut one.token, here, &ordered_of));
        let planted = self.planted;
        let admitted = self.take_where(|one| admit(&one.token, here, planted) == Admission::Served);
        self.forget_questions(here.region);
        admitted.into_iter().map(|one| (one.what, one.token)).collect()
    }

    /// Where a place that was found for a token is lost by now, the token counts as it came: what it
    /// names has, or gets, another place.
    fn forget_void(&mut self, here: &Here) {
        let planted = self.planted;
        let is_void =
            |token: &CausalToken| token.region == here.region && here.lost(token.seen).is_some();
        for one in self.waiting.values_mut().filter(|one| is_void(&one.token)) {
            one.token = one.came;
            if let Admission::Resolves(question) = admit(&one.token, here, planted) {
                self.asked.entry(question).or_insert((here.region, None));
            }
        }
    }

    /// Where what a session of another region has written has its place only that region's root
    /// knows: it is asked, too, of those that wait by now. The place may have no effect, which does
    /// not come here; and of a site that has left there may be none.
    pub(crate) fn ask_of_written(&mut self, own: RegionId) {
        for Request { token, .. } in self.waiting.values() {
            let question = Question::of_other_root(token, own);
            if let Some(question) = question.filter(|one| one.written.is_some()) {
                self.asked.entry(question).or_insert((token.region, None));
            }
        }
    }

    /// Up to where requests wait for the order of this site's region.
    pub(crate) fn awaited(&self, here: &Here) -> Option<Position> {
        let waits =
            |one: &&Request<T>| one.token.region == here.region && one.token.seen > here.applied;
        self.waiting.values().filter(waits).map(|one| one.token.seen).max()
    }

    /// The questions that are due, each for a node of a region's root, and whether the node that
    /// was asked before has not answered.
    pub(crate) fn take_questions(&mut self, now: Duration) -> Vec<(RegionId, Resolve, bool)> {
        let is_due = |at: &Option<Duration>| at.is_none_or(|at| at + AGAIN <= now);
        let due = self.asked.iter_mut().filter(|(_, (_, at))| is_due(at));
        let question =
            |(question, (region, at)): (&Question, &mut (RegionId, Option<Duration>))| {
                let again = at.replace(now).is_some();
                (*region, question.message(), again)
            };
        due.map(question).collect()
    }

    /// Another node of the root is to be asked.
    pub(crate) fn ask_again(&mut self) {
        self.asked.values_mut().for_each(|(_, at)| *at = None);
    }

    /// A position is known, of the region `own`: the tokens that were asked for name that from here
    /// on. What can never be served is given back.
    pub(crate) fn resolved(&mut self, answer: Resolved, own: RegionId) -> Vec<(T, SessionError)> {
        let question = Question::of_answer(&answer);
        let position = Position(answer.position);
        let Some(asked) = self.asked.remove(&question) else { return Vec::new() };
        self.looked_at = None;
        let is_of = |token: &CausalToken| question.is_of(token, own);
        if let (Some((_, need)), resolve::LOST) = (question.foreign, position) {
            // Where the place of what was written is lost, the write is not: it gets another one.
            let waiting = self.waiting.values_mut().filter(|one| is_of(&one.token));
            for one in waiting.filter(|one| one.came.seen < need && one.came.written.is_some()) {
                one.token = one.came;
                self.asked.entry(Question::of_token(&one.came, own)).or_insert((own, None));
            }
            let lost = self.take_where(|one| is_of(&one.token));
            self.forget_questions(own);
            let error = SessionError::Ended { have: Position::default(), need };
            return lost.into_iter().map(|one| (one.what, error.clone())).collect();
        }
        if position == Position::default() && question.foreign.is_none() {
            let lost = self.take_where(|one| is_of(&one.token));
            self.forget_questions(own);
            let error = SessionError::Lost { site: SiteId(answer.site) };
            return lost.into_iter().map(|one| (one.what, error.clone())).collect();
        }
        // A root of before a rebuild answers with a place that is void. The present one has an epoch
        // that is no earlier than any that a session has seen: it is asked again.
        let is_void = |token: &CausalToken| {
            token.region == own
                && question.foreign.is_none()
                && position.epoch() < token.seen.epoch()
        };
        if self.waiting.values().any(|one| is_of(&one.token) && is_void(&one.token)) {
            self.asked.insert(question, asked);
        }
        let waiting = self.waiting.values_mut();
        for one in waiting.filter(|one| is_of(&one.token) && !is_void(&one.token)) {
            if question.foreign.is_some() {
                one.token = CausalToken { region: own, ..CausalToken::default() };
            }
            one.token.written = None;
            one.token.sees(position);
            if one.token.region != own {
                // It is a position of the other region: what is behind it here is asked for.
                let behind = Question::of_token(&one.token, own);
                self.asked.entry(behind).or_insert((own, None));
            }
        }
        Vec::new()
    }

    /// What has waited until its deadline.
    pub(crate) fn give_up(&mut self, now: Duration, here: &Here) -> Vec<(T, SessionError)> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let given_up = self.take_where(|one| one.deadline <= now);
        self.forget_questions(here.region);
        given_up.into_iter().map(|one| (one.what, late(&one.token, here))).collect()
    }

    /// All that wait: none is admitted any more.
    pub(crate) fn take_all(&mut self) -> Vec<T> {
        self.asked.clear();
        self.take_where(|_| true).into_iter().map(|one| one.what).collect()
    }

    /// Asks no more for what no request waits for.
    fn forget_questions(&mut self, own: RegionId) {
        if self.asked.is_empty() {
            return;
        }
        let of = |one: &Request<T>| {
            let asked = Question::of_token(&one.token, own);
            [Some(asked), Question::of_other_root(&one.token, own)]
        };
        let waiting: BTreeSet<_> = self.waiting.values().flat_map(of).flatten().collect();
        self.asked.retain(|question, _| waiting.contains(question));
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
    use model::LostEnd;

    const REGION: RegionId = RegionId(1);

    fn here(applied: u64, revision: u64) -> Here {
        let (applied, revision) = (Position(applied), Revision(revision));
        let (rebuilt, lacks_own) = (None, None);
        let mut others = NO_OTHERS;
        others[0] = RegionId(5);
        let (own, released) = (SiteId(1), applied);
        Here { region: REGION, others, own, applied, released, revision, rebuilt, lacks_own }
    }

    fn take(requests: &mut Requests<u8>, here: &Here) -> Vec<(u8, CausalToken)> {
        requests.take_admitted(here, |_| None)
    }

    fn token(seen: u64, written: Option<(u32, u64)>) -> CausalToken {
        let written = written.map(|(site, revision)| (SiteId(site), Revision(revision)));
        CausalToken { region: REGION, seen: Position(seen), written }
    }

    fn of_region(region: u16, token: CausalToken) -> CausalToken {
        CausalToken { region: RegionId(region), ..token }
    }

    fn resolves(written: Option<(u32, u64)>, foreign: Option<(u16, u64)>) -> Admission {
        let written = written.map(|(site, revision)| (SiteId(site), Revision(revision)));
        let foreign = foreign.map(|(region, seen)| (RegionId(region), Position(seen)));
        Admission::Resolves(Question { written, foreign })
    }

    /// It writes at each, and sees all that others have written so far.
    #[test]
    fn a_session_at_ten_thousand_sites_has_a_token_of_one_size() {
        let mut session = token(0, None);
        for site in 1..=10_000_u32 {
            let ordered = u64::from(site) * 3;
            let here = Here { own: SiteId(site), ..here(ordered, 7) };
            let last = |of: SiteId| (of.0 + 1 == site).then_some((Revision(8), Position(ordered)));
            resolve_here(&mut session, &here, &last);
            assert_eq!(admit(&session, &here, Planted::none()), Admission::Served);
            session.sees(here.applied);
            session.writes(SiteId(site), Revision(8));
            assert_eq!(session.into_session().bytes().len(), CausalToken::BYTES);
        }
        assert_eq!(session, token(30_000, Some((10_000, 8))));
    }

    #[test]
    fn a_session_of_another_region_waits_for_a_position_here() {
        let mut requests = Requests::new(Planted::none());
        let (at, foreign) = (Duration::from_secs, of_region(5, token(40, Some((9, 7)))));
        requests.push((1, 1), foreign, at(10), &here(5, 9)).unwrap();
        let question = Resolve { site: 9, revision: 7, region: 5, seen: 40 };
        assert_eq!(requests.take_questions(at(1)), [(REGION, question, false)]);
        let other = Resolved { site: 9, revision: 7, position: 6, ..Resolved::default() };
        assert!(requests.resolved(other, REGION).is_empty());
        assert!(take(&mut requests, &here(9, 9)).is_empty(), "that is no answer to it");
        let answer = Resolved { region: 5, seen: 40, ..other };
        let lost = Resolved { position: resolve::LOST.0, ..answer };
        let mut others = Requests::new(Planted::none());
        others.push((2, 1), foreign, at(10), &here(5, 9)).unwrap();
        let ended = SessionError::Ended { have: Position(0), need: Position(40) };
        assert_eq!(others.resolved(lost, REGION), [(2, ended)]);
        assert!(requests.resolved(answer, REGION).is_empty());
        assert!(take(&mut requests, &here(5, 9)).is_empty());
        assert_eq!(take(&mut requests, &here(6, 9)), [(1, token(6, None))]);
    }

    #[test]
    fn of_a_site_of_another_region_that_has_left_that_regions_root_is_asked_too() {
        let at = Duration::from_secs;
        let other = RegionId(5);
        let waits = |what: u8| {
            let mut requests = Requests::new(Planted::none());
            let foreign = of_region(5, token(40, Some((9, 7))));
            requests.push((what, 1), foreign, at(10), &here(5, 9)).unwrap();
            assert_eq!(requests.take_questions(at(0)).len(), 1, "this region's root");
            requests.ask_of_written(REGION);
            let question = Resolve { site: 9, revision: 7, ..Resolve::default() };
            assert_eq!(requests.take_questions(at(0)), [(other, question, false)]);
            assert!(take(&mut requests, &here(6, 9)).is_empty());
            requests.ask_of_written(REGION);
            assert_eq!(requests.take_questions(at(1)).len(), 2, "both again");
            requests
        };
        let of_left = |position| Resolved { site: 9, revision: 7, position, ..Resolved::default() };
        // It has no place, and gets none.
        let lost = waits(1).resolved(of_left(0), REGION);
        assert_eq!(lost, [(1, SessionError::Lost { site: SiteId(9) })]);
        // It has one there, which is lost: it gets another one.
        let mut requests = waits(4);
        assert!(requests.resolved(of_left(60), REGION).is_empty());
        let lost = Resolved { region: 5, seen: 60, position: u64::MAX, ..Resolved::default() };
        assert!(requests.resolved(lost, REGION).is_empty());
        requests.ask_of_written(REGION);
        assert_eq!(requests.take_questions(at(3)).len(), 2, "both again, as it came");
        // It has one there, by which this region's root is asked from then on.
        for (position, seen) in [(60, 60), (30, 40)] {
            let mut requests = waits(2);
            assert!(requests.resolved(of_left(position), REGION).is_empty());
            requests.ask_of_written(REGION);
            let behind = Resolve { region: 5, seen, ..Resolve::default() };
            let due = requests.take_questions(at(1));
            assert_eq!(due, [(REGION, behind, false)], "the others are answered, or end");
            let answer = Resolved { region: 5, seen, position: 6, ..Resolved::default() };
            assert!(requests.resolved(answer, REGION).is_empty());
            assert_eq!(take(&mut requests, &here(6, 9)), [(2, token(6, None))]);
        }
        // This region's root is the first one to answer.
        let mut requests = waits(3);
        let answer = Resolved { region: 5, seen: 40, ..of_left(6) };
        assert!(requests.resolved(answer, REGION).is_empty());
        assert_eq!(take(&mut requests, &here(6, 9)), [(3, token(6, None))]);
        assert!(requests.resolved(of_left(0), REGION).is_empty(), "too late to count");
    }

    #[test]
    fn all_that_a_token_names_is_needed() {
        use Admission::{Refused, Served, Waits};
        let cases = [
            (token(5, None), Served),
            (token(6, None), Waits),
            (token(5, Some((1, 9))), Served),
            (token(5, Some((1, 10))), Waits),
            // Its own write alone shows nothing: the session saw more before it came.
            (token(6, Some((1, 9))), Waits),
            (token(0, Some((2, 1))), resolves(Some((2, 1)), None)),
            (of_region(5, token(3, None)), resolves(None, Some((5, 3)))),
            (of_region(5, token(3, Some((2, 1)))), resolves(Some((2, 1)), Some((5, 3)))),
            (of_region(2, token(0, None)), Refused(SessionError::Foreign)),
            (of_region(0, token(7, None)), Refused(SessionError::Foreign)),
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
        let question =
            |site, revision| (REGION, Resolve { site, revision, ..Resolve::default() }, false);
        assert_eq!(questions, [question(2, 4), question(3, 1)], "each once");
        assert!(requests.take_questions(at(1)).is_empty());
        assert!(take(&mut requests, &here(5, 9)).is_empty());
        let answer =
            |site, revision, position| Resolved { site, revision, position, ..Resolved::default() };
        assert!(requests.resolved(answer(2, 4, 6), REGION).is_empty());
        let lost = requests.resolved(answer(3, 1, 0), REGION);
        assert_eq!(lost, [(4, SessionError::Lost { site: SiteId(3) })]);
        let admitted = take(&mut requests, &here(6, 9));
        assert_eq!(admitted, [(2, token(6, None)), (3, token(6, None))]);
        let late = requests.give_up(at(10), &here(6, 9));
        let (have, need) = (Position(6), Position(7));
        assert_eq!(late, [(1, SessionError::Behind { have, need })]);
        assert!(requests.waiting.is_empty());
    }

    #[test]
    fn a_write_that_is_imported_here_needs_no_question() {
        let written = token(3, Some((2, 4)));
        let resolved = |here: &Here, ordered: u64, position: u64| {
            let mut token = written;
            resolve_here(&mut token, here, &|site| {
                assert_eq!(site, SiteId(2));
                Some((Revision(ordered), Position(position)))
            });
            token
        };
        assert_eq!(resolved(&here(6, 9), 4, 6), token(6, None));
        assert_eq!(resolved(&here(6, 9), 5, 2), token(3, None), "it forgets nothing");
        assert_eq!(resolved(&here(6, 9), 3, 6), written, "that was an earlier write");
        assert_eq!(resolved(&here(5, 9), 4, 6), written, "that is not imported");
        let root = Here { released: Position(5), ..here(6, 9) };
        assert_eq!(resolved(&root, 4, 6), written, "that may be void");
        let rebuilt = Some(Rebuilt::of(LostEnd { until: 2, above: Position(5) }));
        let lost = Here { rebuilt, ..here(6, 9) };
        assert_eq!(resolved(&lost, 4, 6), written, "the root may have given it another place");
        for mut other in [token(3, Some((1, 4))), of_region(5, written), token(3, None)] {
            let before = other;
            resolve_here(&mut other, &here(6, 9), &|_| Some((Revision(4), Position(6))));
            assert_eq!(other, before);
        }
    }

    #[test]
    fn a_session_that_has_seen_what_is_lost_is_not_served_once_its_write_has_a_place() {
        let mut requests = Requests::new(Planted::none());
        let at = Duration::from_secs;
        let seen = Position::new(1, 8);
        let session = CausalToken { seen, ..token(0, Some((2, 4))) };
        let kept = CausalToken { seen: Position::new(1, 5), ..session };
        let before = Here { applied: seen, released: seen, ..here(0, 9) };
        for (what, token) in [(1, session), (2, kept)] {
            requests.push((what, 1), token, at(3), &before).unwrap();
        }
        assert!(requests.take_lost(&before).is_empty());
        assert!(requests.take_admitted(&before, |_| None).is_empty());
        // The root that goes on has given the write a place, and this site imports that.
        let place = Position::new(65, 9);
        assert!(requests.resolved(answer(place), REGION).is_empty());
        let rebuilt = Some(Rebuilt::of(LostEnd { until: 65, above: Position::new(1, 5) }));
        let after = Here { applied: place, released: place, rebuilt, ..here(0, 9) };
        let have = Position::new(1, 5);
        let ended = SessionError::Ended { have, need: seen };
        assert_eq!(requests.take_lost(&after), [(1, ended.clone())]);
        let served = CausalToken { seen: place, written: None, ..kept };
        assert_eq!(requests.take_admitted(&after, |_| None), [(2, served)]);
        // One that comes now, too, though what it wrote is imported here.
        let mut late = session;
        resolve_here(&mut late, &after, &|_| Some((Revision(4), place)));
        assert_eq!(admit(&late, &after, Planted::none()), Admission::Refused(ended));
    }

    /// Where site 2's revision 4 is.
    fn answer(position: Position) -> Resolved {
        Resolved { site: 2, revision: 4, position: position.0, ..Resolved::default() }
    }

    #[test]
    fn a_place_of_before_a_rebuild_is_not_taken_for_the_present_one() {
        let mut requests = Requests::new(Planted::none());
        let (void, place) = (Position::new(1, 8), Position::new(65, 20));
        let seen = Position::new(65, 12);
        let session = CausalToken { seen, ..token(0, Some((2, 4))) };
        // A site that does not know of the rebuild yet has imported the place of before.
        let behind = Here { applied: void, released: void, ..here(0, 9) };
        let mut late = session;
        resolve_here(&mut late, &behind, &|_| Some((Revision(4), void)));
        assert_eq!(late, session);
        requests.push((1, 1), session, Duration::from_secs(3), &behind).unwrap();
        assert_eq!(requests.take_questions(Duration::ZERO).len(), 1);
        // So has the lost root.
        assert!(requests.resolved(answer(void), REGION).is_empty());
        let ahead = Here { applied: seen, released: seen, ..here(0, 9) };
        assert!(requests.take_admitted(&ahead, |_| None).is_empty());
        assert_eq!(requests.take_questions(Duration::from_secs(2)).len(), 1, "again");
        assert!(requests.resolved(answer(place), REGION).is_empty());
        let there = Here { applied: place, released: place, ..here(0, 9) };
        let served = CausalToken { seen: place, written: None, ..session };
        assert_eq!(requests.take_admitted(&there, |_| None), [(1, served)]);
    }

    #[test]
    fn a_place_that_is_lost_while_a_request_waits_is_asked_for_again() {
        let mut requests = Requests::new(Planted::none());
        let session = CausalToken { seen: Position::new(1, 3), ..token(0, Some((2, 4))) };
        let end = Position::new(1, 5);
        let before = Here { applied: end, released: end, ..here(0, 9) };
        requests.push((1, 1), session, Duration::from_secs(3), &before).unwrap();
        assert_eq!(requests.take_questions(Duration::ZERO).len(), 1);
        assert!(requests.resolved(answer(Position::new(1, 8)), REGION).is_empty());
        assert!(requests.take_admitted(&before, |_| None).is_empty());
        // The root that answered is lost with that place.
        let begun = Position::new(65, 5);
        let rebuilt = Some(Rebuilt::of(LostEnd { until: 65, above: end }));
        let after = Here { applied: begun, released: begun, rebuilt, ..before };
        assert!(requests.take_lost(&after).is_empty());
        assert!(requests.take_admitted(&after, |_| None).is_empty());
        assert_eq!(requests.take_questions(Duration::ZERO).len(), 1);
        let place = Position::new(65, 7);
        assert!(requests.resolved(answer(place), REGION).is_empty());
        let there = Here { applied: place, released: place, ..after };
        let served = CausalToken { seen: place, written: None, ..session };
        assert_eq!(requests.take_admitted(&there, |_| None), [(1, served)]);
    }

    #[test]
    fn an_import_answers_what_was_asked_for() {
        let mut requests = Requests::new(Planted::none());
        let at = Duration::from_secs;
        for (what, site) in [(1, 2), (2, 3)] {
            let written = token(0, Some((site, 4)));
            requests.push((what, 1), written, at(3), &here(5, 9)).unwrap();
        }
        assert_eq!(requests.take_questions(at(0)).len(), 2);
        let ordered_of = |site| (site == SiteId(2)).then_some((Revision(4), Position(6)));
        assert!(requests.take_admitted(&here(5, 9), ordered_of).is_empty());
        assert_eq!(requests.take_admitted(&here(6, 9), ordered_of), [(1, token(6, None))]);
        let question = Resolve { site: 3, revision: 4, ..Resolve::default() };
        assert_eq!(requests.take_questions(at(1)), [(REGION, question, true)], "of the other one");
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
        let question = Resolve { site: 2, revision: 4, ..Resolve::default() };
        assert_eq!(requests.take_questions(at(0)), [(REGION, question, false)]);
        assert_eq!(requests.take_questions(at(1)), [(REGION, question, true)], "of another node");
        let late = requests.give_up(at(3), &here(5, 9));
        assert_eq!(late, [(1, SessionError::Unordered { site: SiteId(2) })]);
        assert!(requests.take_questions(at(4)).is_empty() && requests.asked.is_empty());
    }
}
