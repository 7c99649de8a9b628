//! Causes come first, nothing is older than the past, and a request reads one state.
//!
//! All that is in a session's past has a position up to the highest that the session has seen, if
//! causes come first. So a read that finds the last version up to there is right, and no past need
//! be known. That is nearly every read of a store that shows prefixes of the order. Only if some
//! read fails this test are exact pasts computed ([`Past`]).

use super::facts::{Facts, Found, Rank};
use super::past::Past;
use super::{Flaw, violation};
use crate::history::{Promise, Seen};
use crate::verdict::Violation;

/// Looks for what breaks it.
pub(super) fn judge(facts: &Facts<'_>) -> Result<(), Flaw> {
    let mut is_doubtful = false;
    for chain in &facts.sessions {
        // The highest position that the session has seen, and whose.
        let mut seen: Option<(Rank, usize)> = None;
        for &index in chain {
            is_doubtful |= take_request(facts, index, &mut seen)?;
        }
    }
    if is_doubtful { Past::of(facts)?.judge() } else { Ok(()) }
}

/// Judges one request by positions; returns whether its past has to be known.
fn take_request(
    facts: &Facts<'_>,
    index: usize,
    seen: &mut Option<(Rank, usize)>,
) -> Result<bool, Violation> {
    let request = &facts.history.requests[index];
    if !request.is_done() {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(request.reads.len());
    for read in &request.reads {
        let one = facts.found(read).map_err(|why| from_nowhere(facts, read, index, &why))?;
        if let Found::Version(write, _) = one
            && let Some(position) = facts.writes[write].position
        {
            *seen = (*seen).max(Some((position, write)));
        }
        found.push(one);
    }
    let upto = seen.map_or(Rank::default(), |(position, _)| position);
    let mut is_doubtful = false;
    for (read, found) in request.reads.iter().zip(found) {
        let latest = facts.latest(facts.register(&read.register), upto);
        is_doubtful |= match (found, latest) {
            (Found::Version(_, rank), Some((latest, ..))) => latest > rank,
            (Found::Nothing, Some(_)) => true,
            _ => false,
        };
    }
    if let Some(write) = facts.write_of(request)
        && let Some(position) = facts.writes[write].position
    {
        if let Some((highest, cause)) = *seen
            && highest >= position
        {
            return Err(out_of_order(facts, write, cause));
        }
        for assigned in &request.writes {
            let latest = facts.latest(facts.register(&assigned.register), upto);
            let rank = facts.rank_of(write, &assigned.register).unwrap_or(position);
            is_doubtful |= latest.is_some_and(|(latest, ..)| latest > rank);
        }
        *seen = Some((position, write));
    }
    Ok(is_doubtful)
}

fn from_nowhere(facts: &Facts<'_>, read: &Seen, index: usize, why: &str) -> Violation {
    let request = &facts.history.requests[index];
    let what = format!("what was found comes from nowhere: {why}: {request}.");
    violation(facts.history, Promise::Causal, read.register.to_string(), what, &[index])
}

fn out_of_order(facts: &Facts<'_>, effect: usize, cause: usize) -> Violation {
    let place = |write: usize| facts.writes[write].position.unwrap_or_default();
    let what = format!(
        "an effect was ordered before its cause: {} has {}, and its session had seen {}, which has {}.",
        facts.describe(effect),
        place(effect),
        facts.describe(cause),
        place(cause),
    );
    let requests = [facts.writes[cause].request, facts.writes[effect].request];
    let shows: Vec<usize> = requests.into_iter().flatten().collect();
    let assigned = shows.last().and_then(|at| facts.history.requests[*at].writes.first());
    let key = assigned.map(|assigned| assigned.register.to_string()).unwrap_or_default();
    violation(facts.history, Promise::Causal, key, what, &shows)
}
