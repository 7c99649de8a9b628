//! The order goes on without the site that had it: at the leader of the site that is to be the
//! root.
//!
//! An operator states that the root is lost, and which site is to look after the order. The
//! registry ends the root's epoch at once ([`model::RegistryChange::Rebuild`]): a site that has
//! that version imports nothing of it any more, so that the position that it reports does not
//! change ([`Reached`], in the new epoch). Once every site has reported, or was not seen for ten
//! seconds, the farthest one has the longest part of the order that any site has:
//!
//! ```text
//! the root's epoch ── an operator ──▶ rebuilding ── this site is the farthest ──▶ another epoch: this site
//!                                        ▲   │
//!                                        └───┘ another site is farther: that one, in the next epoch
//! ```
//!
//! From there on it is as if the lost root had given the order away at that position: sites that
//! are there go on, and all others, the lost one as well if it comes back, get their keys anew.
//! What was ordered behind the position is lost if its origin has imported it with its place, and
//! ordered again if not.
//!
//! A site that does not hold all keyspaces cannot go on with the order, however far it is. One that
//! was getting its keys anew goes on from what it shows, without what it was sent: own writes of
//! which it was sent the places are pending again. If what it shows is void, as the order that was
//! lost had not gone on from there, it reports that it has nothing.

use super::reports::{Ask, Reports};
use super::{Durable, Region};
use model::{Position, RegistryChange, SiteId};
use std::time::Duration;
use wire::causal::Reached;

/// A site that has sent nothing for so long is not waited for.
const SILENT: Duration = Duration::from_secs(10);
/// A change of the registry without effect is asked for again after this.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// What the leader of a root in the place of a lost one has.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    reports: Reports,
    /// Since when it looks.
    since: Option<Duration>,
    changed: Option<Duration>,
    waits_for: Option<Waits>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Waits {
    Reports,
    Another,
    Holder,
}

impl Rebuild {
    /// In this epoch.
    pub(super) fn of(epoch: u16) -> Rebuild {
        Rebuild { reports: Reports::of(epoch), ..Rebuild::default() }
    }

    /// Which sites to ask, and what to have the registry changed to.
    pub(super) fn poll(
        &mut self,
        now: Duration,
        state: &impl Durable,
        region: &Region,
    ) -> (Vec<Ask>, Option<RegistryChange>) {
        let since = *self.since.get_or_insert(now);
        let asks = self.reports.ask(now, region);
        let others = || region.layout.sites.iter().copied().filter(|site| *site != region.own);
        let is_late = since + SILENT <= now;
        if !is_late && !others().all(|site| self.reports.is_fresh(site, now)) {
            self.waits_for = Some(Waits::Reports);
            return (asks, None);
        }
        // With the same part of the order this site goes on.
        let holds_all = |site: &SiteId| region.layout.interest.holds_all(*site);
        let whole = state.whole_upto().filter(|_| holds_all(&region.own));
        let own = whole.map(|applied| (applied, region.own));
        let answering = others().filter(holds_all).filter(|site| self.reports.is_fresh(*site, now));
        let farther = answering.map(|site| (self.reports.applied(site), site));
        let farther = farther.filter(|(applied, _)| match own {
            Some((own, _)) => *applied > own,
            None => *applied > Position(0),
        });
        let Some((cut, root)) = farther.max().or(own) else {
            let holds = holds_all(&region.own);
            self.waits_for = Some(if holds { Waits::Another } else { Waits::Holder });
            return (asks, None);
        };
        // It was the root in the ended epoch, and imports what it has ordered itself.
        if root == region.own && state.order_last() > cut {
            return (asks, None);
        }
        self.waits_for = None;
        if self.changed.is_some_and(|at| now < at + RETRY_AFTER) {
            return (asks, None);
        }
        self.changed = Some(now);
        (asks, Some(Self::change(region, root, cut)))
    }

    fn change(region: &Region, root: SiteId, cut: Position) -> RegistryChange {
        let (id, epoch) = (region.id, region.epoch);
        match root == region.own {
            true => RegistryChange::SettleRebuild { region: id, epoch, cut },
            false => RegistryChange::Rebuild { region: id, epoch, to: root },
        }
    }

    /// A site's leader reports.
    pub(super) fn reached(&mut self, site: SiteId, message: Reached, now: Duration) {
        self.reports.reached(site, message, now);
    }

    /// What it waits for, for people.
    pub(super) fn waits_for(&self) -> Option<&'static str> {
        self.waits_for.map(|what| match what {
            Waits::Reports => "waits for each site's report how far it has the order, ten seconds at most",
            Waits::Another => {
                "waits for a site that holds all causal keyspaces and has them whole: what this one shows was lost before, \
                 and it got them anew when the root was lost"
            }
            Waits::Holder => {
                "waits for a site that holds all causal keyspaces: none answers. Bring one back, or drop those that no site \
                 is left of"
            }
        })
    }

    /// When it must be polled at the latest, while there is something to find out.
    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        let since = self.since?;
        let changed = self.changed.map(|at| at + RETRY_AFTER);
        let all = self.reports.next_due().chain(changed).chain([since + SILENT]);
        all.filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Store, region, write};
    use super::*;
    use model::RegionId;

    const AT: fn(u64) -> Duration = Duration::from_secs;
    const ID: RegionId = RegionId(1);

    fn report(rebuild: &mut Rebuild, site: u32, count: u64, at: Duration) {
        let applied = if count == 0 { 0 } else { Position::new(1, count).0 };
        let message = Reached { epoch: 65, applied, taken: applied, again: true, waits: false };
        rebuild.reached(SiteId(site), message, at);
    }

    /// Site 1 of three, in the place of a lost root, with so much of the order.
    fn looks(count: u64) -> (Rebuild, Store, Region) {
        let mut store = Store::of(1);
        store.applied = Position::new(1, count);
        let region = Region { epoch: 65, is_rebuilding: true, has_begun: false, ..region(1) };
        (Rebuild::of(65), store, region)
    }

    fn settled(cut: u64) -> Option<RegistryChange> {
        let cut = Position::new(1, cut);
        Some(RegistryChange::SettleRebuild { region: ID, epoch: 65, cut })
    }

    #[test]
    fn the_farthest_site_that_answers_goes_on() {
        let (mut rebuild, store, region) = looks(5);
        let (asks, change) = rebuild.poll(AT(0), &store, &region);
        assert_eq!((asks.len(), change), (2, None), "both are asked");
        report(&mut rebuild, 2, 5, AT(1));
        assert_eq!(rebuild.poll(AT(1), &store, &region).1, None, "one has reported nothing");
        assert!(rebuild.waits_for().is_some());
        report(&mut rebuild, 3, 7, AT(1));
        let to_third = RegistryChange::Rebuild { region: ID, epoch: 65, to: SiteId(3) };
        assert_eq!(rebuild.poll(AT(1), &store, &region).1, Some(to_third));
        assert_eq!(rebuild.poll(AT(2), &store, &region).1, None, "under way");
        // It answers no more: what it has is as good as lost.
        report(&mut rebuild, 2, 5, AT(11));
        assert_eq!(rebuild.poll(AT(11), &store, &region).1, settled(5));
    }

    #[test]
    fn a_silent_site_is_waited_for_a_moment() {
        let (mut rebuild, store, region) = looks(5);
        for second in 0..10 {
            report(&mut rebuild, 2, 4, AT(second));
            assert_eq!(rebuild.poll(AT(second), &store, &region).1, None);
            assert!(rebuild.next_due(AT(second)).is_some());
        }
        report(&mut rebuild, 2, 4, AT(10));
        assert_eq!(rebuild.poll(AT(10), &store, &region).1, settled(5));
    }

    #[test]
    fn a_site_without_all_its_keys_does_not_go_on() {
        let (mut rebuild, mut store, region) = looks(5);
        store.resyncing = true;
        [2, 3].into_iter().for_each(|site| report(&mut rebuild, site, 0, AT(0)));
        assert_eq!(rebuild.poll(AT(0), &store, &region).1, None);
        assert!(rebuild.waits_for().is_some_and(|why| why.contains("whole")));
        report(&mut rebuild, 2, 3, AT(1));
        let other = RegistryChange::Rebuild { region: ID, epoch: 65, to: SiteId(2) };
        assert_eq!(rebuild.poll(AT(1), &store, &region).1, Some(other));
    }

    #[test]
    fn the_root_that_was_imports_its_order_first() {
        let (mut rebuild, mut store, region) = looks(0);
        [1, 2].into_iter().for_each(|revision| store.order(SiteId(2), write(revision)));
        [2, 3].into_iter().for_each(|site| report(&mut rebuild, site, 0, AT(0)));
        assert_eq!(rebuild.poll(AT(0), &store, &region).1, None);
        store.applied = Position::new(1, 2);
        assert_eq!(rebuild.poll(AT(0), &store, &region).1, settled(2));
    }
}
