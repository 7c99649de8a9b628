//! What was lost with a root of causal keys: by where the next root began, and by what the registry
//! states.

use super::Simulation;
use super::region::Ordered;
use model::{CausalToken, Position, Rebuilt, RegionId, Registry, Revision, SessionError, SiteId};
use std::collections::BTreeMap;
use std::time::Duration;

/// What became of the order as its root changed.
#[derive(Debug, Default)]
pub struct Ends {
    /// By epoch of a region: where the root of it began.
    begun: BTreeMap<(RegionId, u16), Position>,
    /// By epoch of a region: where its root was to begin. It may have been lost before it did, and
    /// sites that had the order up to there have a position of that epoch.
    begins: BTreeMap<(RegionId, u16), Position>,
    /// Writes with places that another root has not gone on from.
    void: BTreeMap<(SiteId, Revision), Position>,
    /// The orders with such places, as they were.
    left: Vec<(RegionId, Vec<Ordered>)>,
    /// What the registry stated as lost, and when a node first had that.
    stated: Vec<(Duration, Rebuilt)>,
}

impl Ends {
    /// Whether that is new.
    pub(super) fn note_root(&mut self, region: RegionId, begun: Position) -> bool {
        self.note_begin(region, begun);
        self.begun.insert((region, begun.epoch()), begun).is_none()
    }

    fn note_begin(&mut self, region: RegionId, begin: Position) {
        self.begins.insert((region, begin.epoch()), begin);
    }

    /// So many places lie before an epoch.
    fn before_epoch(&self, region: RegionId, epoch: u16) -> u64 {
        self.begins.get(&(region, epoch)).map_or(0, |begin| begin.count())
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
        let begun = self.before_epoch(region, cut.epoch());
        let has_cut =
            |order: &[Ordered]| cut.count() <= begun || order.iter().rev().any(|one| one.0 == cut);
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

    /// Whether a session that has seen this much has seen what is not in the order.
    #[must_use]
    pub fn is_void(&self, region: RegionId, seen: Position, order: &[Ordered]) -> bool {
        let begun = self.before_epoch(region, seen.epoch());
        // The first place of an epoch stands for where that began.
        let seen =
            Position::new(seen.epoch(), if seen.count() == 0 { begun } else { seen.count() });
        let Some(before) = seen.count().checked_sub(1) else { return false };
        let Some((place, ..)) = order.get(before as usize) else { return true };
        // What an epoch began with has places of those before.
        match seen.count() > begun {
            true => place.epoch() != seen.epoch(),
            false => place.epoch() > seen.epoch(),
        }
    }

    /// Whether a session with this token was refused for what the registry had stated by then.
    #[must_use]
    pub fn explains(&self, error: &SessionError, token: &CausalToken, at: Duration) -> bool {
        let SessionError::Ended { have, need } = error else { return false };
        let is_stated = |(since, rebuilt): &(Duration, Rebuilt)| {
            *since <= at && rebuilt.lost_behind(*need) == Some(*have)
        };
        *need == token.seen && self.stated.iter().any(is_stated)
    }
}

impl<C> Simulation<C> {
    /// A node has this registry now.
    pub(super) fn note_rebuilt(&mut self, registry: &Registry) {
        for region in &registry.regions {
            if let Some(begin) = region.begin() {
                self.ends.note_begin(region.id, begin);
            }
            let Some(rebuilt) = region.rebuilt else { continue };
            // While another end is looked for, those before it are stated.
            let rebuilt = Rebuilt { is_open: false, ..rebuilt };
            let is_known = |(_, known): &(Duration, Rebuilt)| *known == rebuilt;
            if !self.ends.stated.iter().any(is_known) {
                self.ends.stated.push((self.now, rebuilt));
            }
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
        ordered(&mut order, 1, 10);
        ends.note_begin(REGION, Position::new(65, 7));
        assert!(!ends.is_void(REGION, Position::new(65, 7), &order));
        ends.note_root(REGION, Position::new(129, 7));
        assert!(ends.go_on_from(REGION, Position::new(65, 7), &mut order));
        ordered(&mut order, 129, 3);
        let void = |epoch, count| ends.is_void(REGION, Position::new(epoch, count), &order);
        assert!(!void(65, 7) && !void(1, 7) && !void(129, 10));
        assert!(void(65, 8) && void(1, 8));
    }

    #[test]
    fn a_session_is_refused_for_what_was_stated() {
        let mut ends = Ends::default();
        let above = Position::new(1, 907);
        let at = Duration::from_secs;
        ends.stated.push((at(5), Rebuilt::of(LostEnd { until: 65, above })));
        let refused = |have, need: Position, seen, second| {
            let token = CausalToken { seen, ..CausalToken::default() };
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
