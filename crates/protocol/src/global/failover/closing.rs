//! Failovers that are open too long end, and decisions that every site has are forgotten.
//!
//! Any site's leader does this by changes of the registry, not only the one that opened the
//! failover.

use crate::global::ownership::takeover;
use crate::global::ownership::trial::Planted;
use crate::job::{Effect, View};
use model::{Ballot, Registry, RegistryChange, SiteId};
use std::collections::BTreeMap;
use std::time::Duration;
use storage::state::State;

/// A failover that has been open for this long goes on no more: it is called off.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// One change in this time, at most.
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Closing {
    open_since: OpenSince,
    /// Of each decision of a failover the version of the registry in which this leader first saw
    /// it, in the term that there is: it may have been handed in long after it was decided.
    seen_in: BTreeMap<Ballot, Ballot>,
    next_change: Duration,
}

/// A failover that is open, and since when this leader has seen it so.
#[derive(Debug, Default)]
struct OpenSince(Option<(Ballot, Duration)>);

impl OpenSince {
    /// Whether it goes on no more. What an earlier leadership of this node saw does not count: a
    /// leader in between may have gone on with it.
    fn is_abandoned(&mut self, open: Option<Ballot>, now: Duration) -> bool {
        let since = self.0.filter(|(of, _)| Some(*of) == open);
        self.0 = since.or(open.map(|opened| (opened, now)));
        self.0.is_some_and(|(_, since)| since + ABANDONED_AFTER <= now)
    }

    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Closing {
    /// This node leads no more.
    pub(super) fn stop(&mut self) {
        self.open_since.forget();
    }

    pub(super) fn poll<S: State>(
        &mut self,
        view: &View<'_, S>,
        planted: Planted,
    ) -> Option<Effect> {
        let member = view.machine.membership()?;
        let (own, registry, now) = (member.own, &member.registry, view.now);
        if registry.failovers.is_empty() {
            self.open_since.forget();
            self.seen_in.clear();
            return None;
        }
        let mut change = None;
        let opened = registry.failovers.open.as_ref().map(|open| open.opened);
        let is_abandoned = self.open_since.is_abandoned(opened, now);
        if let Some(open) = &registry.failovers.open {
            // A site that answers is not lost, whatever the failover states.
            if open.fences(own) || is_abandoned {
                change = Some(RegistryChange::CloseFailover(open.opened));
            }
        }
        change = change.or_else(|| own_return(own, registry));
        let is_there =
            |decided: &Ballot| registry.failovers.decided.iter().any(|one| one.decided == *decided);
        self.seen_in
            .retain(|decided, version| is_there(decided) && version.term == registry.version.term);
        for one in &registry.failovers.decided {
            let seen_in = *self.seen_in.entry(one.decided).or_insert(registry.version);
            let listed = registry.sites.iter().map(|site| site.id);
            let knows = |site| site == own || view.versions.has(site, seen_in);
            let taker = one.taken.first().map(|taken| taken.by);
            // One site makes the change; any other, if that one is gone.
            let is_first = one.decided.site == own
                || registry.site(one.decided.site).is_none()
                    && registry.staying().next().is_some_and(|site| site.id == own);
            let is_known = takeover::may_be_forgotten(listed, (one.lost, taker), knows, planted);
            if is_first && is_known {
                change = change.or(Some(RegistryChange::ForgetFailover(one.decided)));
            }
        }
        self.at_intervals(change, now)
    }

    /// What does not wait for the job to be resumed.
    pub(super) fn poll_paused<S: State>(&mut self, view: &View<'_, S>) -> Option<Effect> {
        let member = view.machine.membership()?;
        self.at_intervals(own_return(member.own, &member.registry), view.now)
    }

    fn at_intervals(&mut self, change: Option<RegistryChange>, now: Duration) -> Option<Effect> {
        let change = change.filter(|_| self.next_change <= now)?;
        self.next_change = now + CHANGE_INTERVAL;
        Some(Effect::change(change, 2 * CHANGE_INTERVAL))
    }
}

/// A site that was lost, and learns of that, is back.
fn own_return(own: SiteId, registry: &Registry) -> Option<RegistryChange> {
    let known = registry.version;
    registry.is_lost(own).then_some(RegistryChange::ReturnedBy { site: own, known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_is_called_off_by_a_leader_that_has_seen_nothing_come_of_it() {
        let opened = Some(Ballot { round: 5, ..Ballot::FIRST });
        let later = Some(Ballot { round: 6, ..Ballot::FIRST });
        let mut since = OpenSince::default();
        let at = Duration::from_secs;
        assert!(!since.is_abandoned(opened, at(100)) && !since.is_abandoned(opened, at(159)));
        assert!(since.is_abandoned(opened, at(160)));
        assert!(!since.is_abandoned(later, at(160)), "another one");
        assert!(!since.is_abandoned(None, at(900)) && !since.is_abandoned(later, at(900)));
        since.forget();
        assert!(!since.is_abandoned(later, at(2_000)), "another node led meanwhile");
    }
}
