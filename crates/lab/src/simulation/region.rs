//! The region of causal keys: reads of sessions that bypass the cores, as on the threads of fronts,
//! and the order of the region as its root gives it.
//!
//! The order is noted here as soon as any node of the root has applied a part of it, since the root
//! drops what all sites have. Histories take positions from it. What every node of the root has of
//! the last places is compared with it; and where a takeover makes places void, no site but the
//! root before may have shown them.
//!
//! Of several regions, which take each other's writes into their orders, the one order that all
//! agree on is that of the stamps.

use super::node::Process;
use super::{NodeIndex, Simulation};
use model::{
    Answer, CausalToken, CausalWrite, Effect, Failure, KeyspaceId, NO_SITE, Position, Query,
    RegionId, Revision, SessionToken, SiteId, Stamp,
};
use protocol::bugs::Bug;
use protocol::site::machine::causal::session::SessionRead;
use protocol::site::{ReadGate, RegionStanding};
use std::collections::{BTreeMap, BTreeSet};

/// Of several regions the revision of what no site has written is its position, and its region from
/// this bit on.
const REGION_SHIFT: u32 = 60;

/// The revision in the order of all regions of what no site has written: two roots may have given
/// the same position.
#[must_use]
pub fn revision_of_none(region: RegionId, position: Position) -> Revision {
    Revision(position.0 | u64::from(region.0) << REGION_SHIFT)
}

/// A place of the order: the site of the write, and the write.
pub type Ordered = (Position, SiteId, CausalWrite);

/// What became of a place that a session has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the order of its region.
    Kept,
    /// That has lost it, and another region has its write.
    Elsewhere,
    /// No region has it.
    Lost,
}

/// So many of the last places that are noted are compared with those of each node of the root.
const PLACES_COMPARED: usize = 16;

fn last(order: &[Ordered]) -> Position {
    order.last().map_or(Position(0), |last| last.0)
}

/// The first of these places that is another one than is noted of the same count.
fn unlike<'a>(order: &[Ordered], mut found: impl Iterator<Item = &'a Ordered>) -> Option<Position> {
    let noted = &order[order.len().saturating_sub(PLACES_COMPARED)..];
    let noted_as = |one: &Ordered| noted.iter().find(|noted| noted.0.count() == one.0.count());
    let unlike = found.find(|one| noted_as(one).is_some_and(|noted| noted != *one));
    unlike.map(|one| one.0)
}

impl Process {
    /// Answers a query of a session as a front does on its own thread, if this node covers the
    /// token: see `server::Handle::answer_in_session`. The first read of a session is for the core.
    fn answer_in_session(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        token: &SessionToken,
    ) -> Option<(Result<Answer, Failure>, CausalToken)> {
        if self.gate == ReadGate::Closed {
            return None;
        }
        let token = CausalToken::decode(token.bytes())?;
        match self.site.reader().in_session(keyspace, query, None, token) {
            Ok(SessionRead::Answered(answer, token)) => {
                Some((answer.map_err(Failure::Refused), token))
            }
            _ => None,
        }
    }
}

impl<C> Simulation<C> {
    /// The answer of a front to a read of a session.
    pub(super) fn answer_session_here(
        &self,
        node: NodeIndex,
        keyspace: KeyspaceId,
        query: &Query,
        token: &SessionToken,
    ) -> Option<(Result<Answer, Failure>, SessionToken)> {
        let process = self.nodes[node].process.as_ref()?;
        let (outcome, after) = process.answer_in_session(keyspace, query, token)?;
        // As the core has them.
        let planted = self.settings.planted;
        let is_unmerged = planted.is(Bug::ReadsUnmerged)
            || (planted.is(Bug::AbsenceUnseen) && matches!(outcome, Ok(Answer::Value(None))));
        Some((outcome, if is_unmerged { token.clone() } else { after.into_session() }))
    }

    /// The region of a site, by its name; `None`: all nodes of the region are down, or it is in none.
    #[must_use]
    pub fn region_of(&self, name: &str) -> Option<RegionId> {
        // A later life of a site has its number behind the name, and may have left since.
        let name = name.split('#').next().unwrap_or(name);
        let region = &self.sites.iter().find(|site| site.name == name)?.region;
        let is_of_region = |node: &NodeIndex| self.sites[self.nodes[*node].site].region == *region;
        let nodes = (0..self.nodes.len()).filter(is_of_region);
        nodes.filter_map(|node| self.region_standing(node)).map(|one| one.region).next()
    }

    /// How far a node's site is in its region's order; `None`: it is down, or in no region.
    #[must_use]
    pub fn region_standing(&self, node: NodeIndex) -> Option<RegionStanding> {
        self.nodes[node].process.as_ref()?.site.region_standing()
    }

    /// Notes what a node's site has written, before it has any place in the order.
    pub(super) fn note_own(&mut self, node: NodeIndex) {
        let one = &self.nodes[node];
        let Some(process) = &one.process else { return };
        let Some(site) = self.sites[one.site].id else { return };
        let mut noted = self.own_writes.range((site, Revision(0))..=(site, Revision(u64::MAX)));
        let after = noted.next_back().map_or(Revision(0), |((_, revision), _)| *revision);
        let own = process.site.region_own(after);
        self.own_writes.extend(own.into_iter().map(|write| ((site, write.revision), write)));
    }

    /// Notes what a node of the root has of the order, beyond what is noted, and looks at what is.
    pub(super) fn note_order(&mut self, node: NodeIndex) {
        let Some(standing) = self.region_standing(node).filter(|one| one.is_root) else { return };
        let begun = standing.begun;
        let has_begun = begun.epoch() == standing.epoch;
        let begins = has_begun && self.ends.note_root(standing.region, begun);
        let before = self.order_of.get(&standing.region).map_or(Position(0), |order| last(order));
        let last_epoch = self.ends.last_epoch(standing.region);
        // It does not know yet that another one is the root, or has not begun as the next one.
        let is_former = standing.epoch < before.epoch().max(last_epoch);
        if is_former || (!has_begun && last_epoch > 0) {
            return;
        }
        if begins {
            let registry = self.registry(node);
            let region = registry.as_ref().and_then(|registry| registry.region(standing.region));
            let cut = region.and_then(|region| region.cut).unwrap_or(begun);
            let order = self.order_of.entry(standing.region).or_default();
            // A standby has taken over: what lies behind that was not released. Or the order was
            // rebuilt.
            if self.ends.go_on_from(standing.region, cut, order) {
                self.gave_places_up = true;
                self.judge_takeover(node, before.epoch(), &standing);
            }
        }
        let site = self.sites[self.nodes[node].site].id;
        self.root_of.extend(site.map(|site| ((standing.region, standing.epoch), site)));
        let order = self.order_of.entry(standing.region).or_default();
        let after = last(order);
        let is_looked_at =
            self.looked_at.insert(node, standing.order_last) == Some(standing.order_last);
        // Another root begins where the one before ended, in an epoch of its own.
        let has_more = standing.order_last.count() > after.count();
        if is_looked_at && !has_more {
            return;
        }
        let Some(process) = self.nodes[node].process.as_ref() else { return };
        let from = order.iter().rev().nth(PLACES_COMPARED).map_or(Position(0), |one| one.0);
        let found = process.site.region_order(from);
        let unlike = unlike(order, found.iter().filter(|one| one.0 > begun));
        let more: Vec<Ordered> = found.into_iter().filter(|one| one.0 > after).collect();
        let is_gap = has_more && more.first().is_none_or(|one| one.0.count() != after.count() + 1);
        if unlike.is_some() || is_gap {
            let name = self.name(node);
            let what = match unlike {
                Some(place) => format!("{name} has another write at {place} than was noted"),
                None => format!("{name} has dropped the order after {after} at once"),
            };
            return self.fail(what);
        }
        if has_more {
            self.judge_expiries(node, &standing, &more);
            self.order_of.entry(standing.region).or_default().extend(more);
        }
    }

    /// Another site goes on with the order, and lacks places that the root before had given: no
    /// site but that root may have shown them. Not so after a rebuild, which goes on with what most
    /// sites have, and after a recovery of the registry, which may have forgotten epochs.
    fn judge_takeover(&mut self, node: NodeIndex, before: u16, standing: &RegionStanding) {
        let registry = self.registry(node);
        let region = registry.as_ref().and_then(|registry| registry.region(standing.region));
        let begun = standing.begun;
        let is_rebuilt = region.and_then(|region| region.rebuilt).is_some_and(|rebuilt| {
            before < rebuilt.end.until && rebuilt.end.until <= begun.epoch()
        });
        if region.is_none() || is_rebuilt || self.recovered.is_some() {
            return;
        }
        let Some(root) = self.root_of.get(&(standing.region, before)).copied() else { return };
        for other in 0..self.nodes.len() {
            let Some(shows) = self.region_standing(other) else { continue };
            let is_of_region = shows.region == standing.region && !shows.is_resyncing;
            let is_root = self.sites[self.nodes[other].site].id == Some(root);
            let is_void = shows.applied.epoch() == before && shows.applied.count() > begun.count();
            if is_of_region && is_void && !is_root {
                let (name, shown) = (self.name(other).to_owned(), shows.applied);
                let what = format!(
                    "a place that was shown is void: {name} has the order up to {shown}, and the next \
                     root goes on behind {begun}"
                );
                return self.fail(what);
            }
        }
    }

    /// The root lets no key expire before its moment, by its log time. Of several regions moments
    /// are by the clock of all orders, and are not looked at.
    fn judge_expiries(&mut self, node: NodeIndex, standing: &RegionStanding, more: &[Ordered]) {
        if self.order_of.len() > 1 || more.iter().any(|one| one.0.epoch() != standing.epoch) {
            return;
        }
        let log_time_ms = standing.log_time_ms;
        let effects = more.iter().flat_map(|one| one.2.effects.iter().map(move |it| (one, it)));
        let early = effects.into_iter().find_map(|(one, effect)| {
            let Effect::Expire { key, site, revision } = effect else { return None };
            let of = self.write_of((*site, *revision), standing.region, more)?;
            let of = (of.keyspace == one.2.keyspace).then_some(of)?;
            let mut moments = of.effects.iter().rev().filter_map(|effect| match effect {
                Effect::SetExpiry { key: of, at_ms: Some(ms) } if of == key => Some(*ms),
                _ => None,
            });
            let ms = moments.next().filter(|ms| *ms > log_time_ms)?;
            Some((String::from_utf8_lossy(key).into_owned(), ms))
        });
        if let Some((key, ms)) = early {
            let name = self.name(node).to_owned();
            self.fail(format!(
                "{name} lets {key} expire at {log_time_ms} ms, its moment is {ms} ms"
            ));
        }
    }

    /// A write by its identity, of what is noted and what is about to be.
    fn write_of<'a>(
        &'a self,
        (site, revision): (SiteId, Revision),
        region: RegionId,
        more: &'a [Ordered],
    ) -> Option<&'a CausalWrite> {
        let is_it = |one: &&Ordered| one.1 == site && one.2.revision == revision;
        let ordered = || self.order_of.get(&region).into_iter().flatten().chain(more).find(is_it);
        let own = self.own_writes.get(&(site, revision));
        own.or_else(|| ordered().map(|one| &one.2))
    }

    /// The order of a region that is the only one, as far as it was given.
    #[must_use]
    pub fn ordered(&self) -> &[Ordered] {
        self.order_of.values().next().map_or(&[], Vec::as_slice)
    }

    /// The order in which writes count: of one region its own, of several that of their stamps.
    #[must_use]
    pub fn order(&self) -> Vec<Ordered> {
        if self.order_of.len() < 2 {
            return self.order_of.values().flatten().cloned().collect();
        }
        // What a region has lost, and another one had taken, is a write like others: as it is in the
        // order that gave its stamp, or took it from there. Its own region has it as of no site then.
        let mut all: BTreeMap<Stamp, (u8, Ordered)> = BTreeMap::new();
        for (region, order) in &self.order_of {
            for (at, site, write) in order {
                let Some((stamp, taken)) = write.stamp() else { continue };
                let (of, place) = taken.unwrap_or((*region, *at));
                let far = match (taken, of == stamp.region) {
                    (None, _) => 0,
                    (Some(_), true) => 1,
                    (Some(_), false) => 2 + u8::from(*site == NO_SITE),
                };
                if all.get(&stamp).is_some_and(|(known, _)| *known <= far) {
                    continue;
                }
                let mut write = write.clone();
                if *site == NO_SITE && far < 2 {
                    write.revision = revision_of_none(of, place);
                }
                all.insert(stamp, (far, (*at, *site, write)));
            }
        }
        let all = all.into_values().map(|(_, ordered)| ordered);
        let numbered = all.zip(1..);
        numbered.map(|((_, site, write), at)| (Position::new(1, at), site, write)).collect()
    }

    /// The writes that other regions have taken, and that have no place in the order of their own one:
    /// it may have been lost before any of its nodes showed it here.
    #[must_use]
    pub fn lost_at_home(&self) -> BTreeSet<(SiteId, Revision)> {
        let entries = || self.order_of.values().flatten();
        let of_own = entries().filter_map(|one| one.2.stamp()).filter(|(_, taken)| taken.is_none());
        let own: BTreeSet<Stamp> = of_own.map(|(stamp, _)| stamp).collect();
        let is_lost = |one: &&Ordered| {
            one.2.stamp().is_some_and(|(stamp, taken)| taken.is_some() && !own.contains(&stamp))
        };
        entries().filter(is_lost).map(|(_, site, write)| (*site, write.revision)).collect()
    }

    /// Whether a region has lost a place that a session has seen, and whether another one had taken
    /// it, so that the write is there still.
    #[must_use]
    pub fn fate_of(&self, region: RegionId, seen: Position) -> Fate {
        let none = Vec::new();
        if !self.ends.is_void(region, seen, self.order_of.get(&region).unwrap_or(&none)) {
            return Fate::Kept;
        }
        let others = self.order_of.iter().filter(|(of, _)| **of != region);
        let mut taken = others.flat_map(|(_, order)| order).filter_map(|one| one.2.stamp()?.1);
        let is_it = |(of, place): (RegionId, Position)| {
            of == region && place.epoch() == seen.epoch() && place >= seen
        };
        match taken.any(is_it) {
            true => Fate::Elsewhere,
            false => Fate::Lost,
        }
    }

    /// Whether each root has taken what the others have ordered.
    #[must_use]
    pub fn regions_are_joined(&self, roots: &[NodeIndex]) -> bool {
        let of = |node: NodeIndex| Some((node, self.region_standing(node)?));
        let all: Vec<_> = roots.iter().filter_map(|node| of(*node)).collect();
        let has = |node: NodeIndex, other: &RegionStanding| {
            let process = self.nodes[node].process.as_ref();
            process.is_some_and(|one| one.site.region_taken(other.region) >= other.order_last)
        };
        all.iter().all(|(node, own)| {
            let mut others = all.iter().filter(|(_, other)| other.region != own.region);
            others.all(|(_, other)| has(*node, other))
        })
    }
}
