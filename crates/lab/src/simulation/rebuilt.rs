//! What was lost with a root of causal keys: by where the next root began, and by what the registry
//! states.

use super::Simulation;
use super::region::Ordered;
use model::{CausalToken, Position, Rebuilt, RegionId, Registry, Revision, SessionError, SiteId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What became of the order as its root changed.
#[derive(Debug, Default)]
pub struct Ends {
    /// By epoch of a region: where the root of it began.
    begun: BTreeMap<(RegionId, u16), Position>,
    /// By epoch of a region: behind which position its root was to go on. It may have been lost
    /// before it did, and sites that had the order up to there show the beginning of that epoch.
    cuts: BTreeMap<(RegionId, u16), Position>,
    /// Writes with places that another root has not gone on from.
    void: BTreeMap<(SiteId, Revision), Position>,
    /// All that ever had such a place, whatever became of it.
    once_void: BTreeSet<(SiteId, Revision)>,
    /// The orders with such places, as they were.
    left: Vec<(RegionId, Vec<Ordered>)>,
    /// What the registry stated as lost, and when a node first had that.
    stated: Vec<(Duration, RegionId, Rebuilt)>,
}

impl Ends {
    /// Whether that is new.
    pub(super) fn note_root(&mut self, region: RegionId, begun: Position) -> bool {
        self.begun.insert((region, begun.epoch()), begun).is_none()
    }

    fn note_cut(&mut self, region: RegionId, epoch: u16, cut: Position) {
        self.cuts.insert((region, epoch), cut);
    }

    /// The place that a position names. The beginning of an epoch is the end of what that goes on
    /// from; that of a first one, and of one that nothing is known of, is no place.
    fn place(&self, region: RegionId, of: Position) -> Option<Position> {
        let mut at = of;
        while let Some(cut) = self.cuts.get(&(region, at.epoch()))
            && cut.epoch() < at.epoch()
            && (at.count() == cut.count() || at.count() == 0)
        {
            at = *cut;
        }
        (at.count() > 0).then_some(at)
    }

    /// The epoch of the last root that has begun where another one ended.
    pub(super) fn last_epoch(&self, region: RegionId) -> u16 {
        let mut of_region = self.begun.range((region, 0)..=(region, u16::MAX));
        of_region.next_back().map_or(0, |((_, epoch), _)| *epoch)
    }

    /// Another root goes on behind this position. Places that are noted behind it are void; whether
    /// there are any. A rebuild may go on from an order that a rebuild before it has given up.
    pub(super) fn go_on_from(
        &mut self,
        region: RegionId,
        cut: Position,
        order: &mut Vec<Ordered>,
    ) -> bool {
        let end = self.place(region, cut);
        let has_cut = |order: &[Ordered]| {
            end.is_none_or(|end| order.iter().rev().any(|place| place.0 == end))
        };
        let before = order.clone();
        let is_it = |(of, left): &&(RegionId, Vec<Ordered>)| *of == region && has_cut(left);
        if !has_cut(order)
            && let Some((_, left)) = self.left.iter().rev().find(is_it)
        {
            order.clone_from(left);
        }
        order.retain(|one| one.0.count() <= cut.count());
        for (_, site, write) in order.iter() {
            self.void.remove(&(*site, write.revision));
        }
        let upto = before.iter().zip(order.iter()).take_while(|(one, other)| one == other).count();
        for (place, site, write) in &before[upto..] {
            self.void.insert((*site, write.revision), *place);
            self.once_void.insert((*site, write.revision));
        }
        let has_void = upto < before.len();
        if has_void {
            self.left.push((region, before));
        }
        has_void
    }

    /// Whether a write had a place in the order that was lost with a root.
    #[must_use]
    pub fn had_void_place(&self, site: SiteId, revision: Revision) -> bool {
        self.void.contains_key(&(site, revision))
    }

    /// Whether a write had such a place at some time, and may have another one since.
    #[must_use]
    pub fn was_void(&self, site: SiteId, revision: Revision) -> bool {
        self.once_void.contains(&(site, revision))
    }

    /// Whether a session that has seen this much has seen what is not in the order.
    #[must_use]
    pub fn is_void(&self, region: RegionId, seen: Position, order: &[Ordered]) -> bool {
        let Some(seen) = self.place(region, seen) else { return false };
        let there = order.get(seen.count() as usize - 1);
        there.is_none_or(|(place, ..)| *place != seen)
    }

    /// A registry states ends. While another one is looked for, it states those before that.
    fn note_stated(&mut self, at: Duration, region: RegionId, rebuilt: Rebuilt) {
        let rebuilt = Rebuilt { is_open: false, ..rebuilt };
        if !self.stated.iter().any(|(_, of, known)| (*of, *known) == (region, rebuilt)) {
            self.stated.push((at, region, rebuilt));
        }
    }

    /// Whether a session with this token was refused for what the registry had stated by then.
    #[must_use]
    pub fn explains(&self, error: &SessionError, token: &CausalToken, at: Duration) -> bool {
        let SessionError::Ended { have, need } = error else { return false };
        // Another region than that of the session does not state it.
        let is_foreign = *have == Position::default();
        let is_stated = |(since, region, rebuilt): &(Duration, RegionId, Rebuilt)| {
            let behind = rebuilt.lost_behind(*need);
            *since <= at
                && *region == token.region
                && (behind == Some(*have) || (behind.is_some() && is_foreign))
        };
        *need == token.seen && self.stated.iter().any(is_stated)
    }
}

impl<C> Simulation<C> {
    /// A node has this registry now.
    pub(super) fn note_rebuilt(&mut self, registry: &Registry) {
        for region in &registry.regions {
            if let Some(cut) = region.cut.filter(|_| !region.is_rebuilding()) {
                self.ends.note_cut(region.id, region.epoch, cut);
            }
            let Some(rebuilt) = region.rebuilt else { continue };
            self.ends.note_stated(self.now, region.id, rebuilt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{CausalWrite, KeyspaceId, LostEnd};

    const REGION: RegionId = RegionId(1);

    /// So many places of an epoch, behind others.
    fn ordered(order: &mut Vec<Ordered>, epoch: u16, count: u64) {
        for _ in 0..count {
            let count = order.len() as u64 + 1;
            let (revision, keyspace) = (Revision(u64::from(epoch) << 32 | count), KeyspaceId(3));
            let (seen, effects) = (Position(0), Vec::new());
            let write = CausalWrite { revision, seen, keyspace, effects };
            order.push((Position::new(epoch, count), SiteId(1), write));
        }
    }

    #[test]
    fn what_lies_behind_where_a_root_goes_on_is_void() {
        let (mut ends, mut order) = (Ends::default(), Vec::new());
        let begins = |ends: &mut Ends, order: &mut Vec<Ordered>, cut: Position, epoch| {
            ends.note_cut(REGION, epoch, cut);
            ends.note_root(REGION, Position::new(epoch, cut.count()));
            ends.go_on_from(REGION, cut, order)
        };
        ordered(&mut order, 1, 10);
        assert!(begins(&mut ends, &mut order, Position::new(1, 7), 65));
        ordered(&mut order, 65, 5);
        let void = |ends: &Ends, order: &[Ordered], epoch, count| {
            ends.is_void(REGION, Position::new(epoch, count), order)
        };
        assert!(!void(&ends, &order, 1, 7) && void(&ends, &order, 1, 8));
        assert!(!void(&ends, &order, 65, 7) && !void(&ends, &order, 65, 12));
        assert!(ends.had_void_place(SiteId(1), Revision(1 << 32 | 9)));
        assert_eq!(ends.last_epoch(REGION), 65);
        // The new root is lost, too, and the order goes on where the lost one had ended.
        assert!(begins(&mut ends, &mut order, Position::new(1, 9), 130));
        ordered(&mut order, 130, 1);
        assert_eq!(order.iter().map(|one| one.0.epoch()).max(), Some(130));
        assert!(!void(&ends, &order, 1, 9) && void(&ends, &order, 1, 10));
        assert!(void(&ends, &order, 65, 8) && !void(&ends, &order, 65, 7));
        assert!(!ends.had_void_place(SiteId(1), Revision(1 << 32 | 9)));
        assert!(!begins(&mut ends, &mut order, Position::new(130, 10), 131));
    }

    #[test]
    fn a_root_that_was_lost_before_it_began_has_a_beginning() {
        let (mut ends, mut order) = (Ends::default(), Vec::new());
        let begins = |ends: &mut Ends, order: &mut Vec<Ordered>, cut: Position, epoch| {
            ends.note_cut(REGION, epoch, cut);
            ends.note_root(REGION, Position::new(epoch, cut.count()));
            ends.go_on_from(REGION, cut, order)
        };
        let void = |ends: &Ends, order: &[Ordered], epoch, count| {
            ends.is_void(REGION, Position::new(epoch, count), order)
        };
        ordered(&mut order, 1, 10);
        // That of epoch 65 never begins: a site that showed 1.7 shows 65.7.
        ends.note_cut(REGION, 65, Position::new(1, 7));
        assert!(!void(&ends, &order, 65, 7));
        assert!(begins(&mut ends, &mut order, Position::new(65, 7), 129));
        ordered(&mut order, 129, 3);
        assert!(!void(&ends, &order, 65, 7) && !void(&ends, &order, 129, 10));
        assert!(!void(&ends, &order, 1, 7) && void(&ends, &order, 1, 8));
        // One goes on from what that of 129 gave up, and never begins; then that of 129 is back.
        ends.note_cut(REGION, 193, Position::new(1, 9));
        assert!(void(&ends, &order, 193, 9), "1.9 is not there");
        assert!(!begins(&mut ends, &mut order, Position::new(129, 10), 257));
        assert!(void(&ends, &order, 193, 9));
        // Or the order goes on from there after all.
        assert!(begins(&mut ends, &mut order, Position::new(193, 9), 321));
        assert_eq!(order.last().map(|place| place.0), Some(Position::new(1, 9)));
        assert!(!void(&ends, &order, 193, 9) && void(&ends, &order, 129, 10));
    }

    #[test]
    fn registries_state_ends_before_another_is_found() {
        let end = LostEnd { until: 65, above: Position::new(1, 907) };
        let explains = |rebuilt: Rebuilt| {
            let mut ends = Ends::default();
            ends.note_stated(Duration::from_secs(5), REGION, rebuilt);
            let (have, need) = (end.above, Position::new(1, 910));
            let token = CausalToken { region: REGION, seen: need, ..CausalToken::default() };
            ends.explains(&SessionError::Ended { have, need }, &token, Duration::from_secs(6))
        };
        assert!(explains(Rebuilt::of(end)));
        assert!(explains(Rebuilt { is_open: true, ..Rebuilt::of(end) }));
        assert!(!explains(Rebuilt { is_open: true, ..Rebuilt::of(LostEnd::default()) }));
    }

    #[test]
    fn a_session_is_refused_for_what_was_stated() {
        let mut ends = Ends::default();
        let above = Position::new(1, 907);
        let at = Duration::from_secs;
        ends.stated.push((at(5), REGION, Rebuilt::of(LostEnd { until: 65, above })));
        let refused = |have, need: Position, seen, second| {
            let token = CausalToken { region: REGION, seen, ..CausalToken::default() };
            ends.explains(&SessionError::Ended { have, need }, &token, at(second))
        };
        let seen = Position::new(1, 910);
        assert!(refused(above, seen, seen, 5));
        assert!(!refused(above, seen, seen, 4), "nothing was stated by then");
        assert!(!refused(above, seen, Position::new(1, 909), 5), "it has seen less");
        assert!(!refused(above, above, above, 5), "that is there");
        assert!(!refused(Position::new(1, 900), seen, seen, 5), "another end was stated");
        let later = Position::new(65, 908);
        assert!(!refused(above, later, later, 5));
    }
}
