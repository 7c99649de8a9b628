//! Sessions that were refused for good, and whether what they had seen or written was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{CausalToken, Revision, SessionError, SiteId};

use crate::simulation::rebuilt::Ends;

/// A session that was refused for good.
#[derive(Debug, Clone)]
pub struct RefusedSession {
    pub(super) client: String,
    pub(super) site: String,
    pub(super) at: Duration,
    /// What it had seen and written.
    pub(super) token: CausalToken,
    pub(super) error: SessionError,
}

/// What may have been lost in a run, by which a session may be refused for good.
#[derive(Debug)]
pub struct Losses<'a> {
    /// When the registry first recovered: from then on any session may be.
    pub recovered: Option<Duration>,
    /// Of several regions: when the first failover was decided, or the registry recovered. Then any
    /// may be from there on, as what a region lost is no part of the orders that are noted.
    pub any_since: Option<Duration>,
    /// Sites that were removed while they were lost.
    pub gone: &'a BTreeSet<SiteId>,
    /// The last of each site's writes that is in the order.
    pub ordered: BTreeMap<SiteId, Revision>,
    /// What became of the order as its root changed.
    pub ends: &'a Ends,
}

impl RefusedSession {
    /// The first of them that is no consequence of a loss: nothing that it has seen or written is
    /// lost.
    #[must_use]
    pub fn unexplained(all: &[RefusedSession], losses: &Losses<'_>) -> Option<String> {
        let one = all.iter().find(|one| !one.is_explained(losses))?;
        let (RefusedSession { client, site, error, .. }, at) = (one, one.at.as_secs_f64());
        Some(format!(
            "{client} was refused for good at {site} after {at:.3} s, and nothing of it can have \
             been lost by then: {error}"
        ))
    }

    fn is_explained(&self, losses: &Losses<'_>) -> bool {
        let has_come = |since: Option<Duration>| since.is_some_and(|since| since <= self.at);
        if has_come(losses.recovered) || has_come(losses.any_since) {
            return true;
        }
        match (&self.error, self.token.written) {
            (SessionError::Lost { site }, Some((of, revision))) => {
                let is_ordered = losses.ordered.get(&of).is_some_and(|last| *last >= revision);
                *site == of && losses.gone.contains(site) && !is_ordered
            }
            (error, _) => losses.ends.explains(error, &self.token, self.at),
        }
    }
}

/// Whether no site answers the session any more.
pub(super) fn is_for_good(error: &SessionError) -> bool {
    match error {
        SessionError::Lost { .. } | SessionError::Ended { .. } | SessionError::Foreign => true,
        SessionError::Behind { .. } | SessionError::Unordered { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_refused_for_good_after_a_loss_only() {
        let (gone, ends) = (BTreeSet::from([SiteId(3)]), Ends::default());
        let refused = |s: u64, error: SessionError, written| RefusedSession {
            client: format!("c{s}"),
            site: "west".to_owned(),
            at: Duration::from_secs(s),
            token: CausalToken { written, ..CausalToken::default() },
            error,
        };
        let losses = |recovered: Option<u64>, ordered: u64| Losses {
            recovered: recovered.map(Duration::from_secs),
            any_since: None,
            gone: &gone,
            ordered: BTreeMap::from([(SiteId(3), Revision(ordered))]),
            ends: &ends,
        };
        let unexplained = |one: &RefusedSession, losses: &Losses<'_>| {
            RefusedSession::unexplained(std::slice::from_ref(one), losses)
        };
        let foreign = refused(5, SessionError::Foreign, None);
        assert_eq!(unexplained(&foreign, &losses(Some(4), 0)), None);
        let early = unexplained(&foreign, &losses(Some(7), 0)).unwrap_or_default();
        assert!(early.starts_with("c5 was refused for good at west after 5.000 s"), "{early}");
        assert!(unexplained(&foreign, &losses(None, 0)).is_some());
        let lost = |site: u32, revision| {
            let site = SiteId(site);
            refused(5, SessionError::Lost { site }, Some((site, Revision(revision))))
        };
        assert_eq!(unexplained(&lost(3, 8), &losses(None, 7)), None);
        assert!(unexplained(&lost(3, 7), &losses(None, 7)).is_some(), "it has a place");
        assert!(unexplained(&lost(2, 8), &losses(None, 7)).is_some(), "that site is there");
        assert_eq!(RefusedSession::unexplained(&[], &losses(None, 0)), None);
    }
}
