//! A region: the site that orders its writes, and the site that can take its place.
//!
//! The registry states which site is the root, in which epoch, and whether the standby is in sync.
//! Each change of the standby has the version of the registry that made it ([`Standby::since`]);
//! what the root or the standby asks for names that version and does nothing under another one. So
//! of a root that goes on without its standby and a standby that takes the root's place, one has
//! its way, and what is late has none.

use crate::deployment::described;
use crate::{
    Ballot, Changed, KeyspaceSpec, Position, Registry, RegistryError, SiteEntry, SiteId, Term,
    limits,
};

/// A registry that is recovered may have forgotten takeovers. The order goes on so many epochs
/// later. 2^10.
pub const EPOCHS_FORGOTTEN: u16 = 1_024;

/// So many sites of a region that stay hold all causal keyspaces, once a keyspace names its sites:
/// the root, and one that can take its place.
pub const REPLICAS_MIN: usize = 2;

/// A region of a deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u16);

/// A root that has given its order to a site, and goes on itself since that is silent, skips the
/// epochs that a registry may have had and forgotten: that of the site, and those of sites after
/// it. 2^6.
pub const EPOCHS_SKIPPED: u16 = 64;

/// A region: the sites that name it ([`SiteEntry::region`]), which are those that name the same one
/// as its root. Sites that name none are one region. Regions are made with the first causal
/// keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Which one. Another root without the order of the one before is another region.
    pub id: RegionId,
    /// Of the positions that the root gives. Another site that goes on has the next one, a root
    /// that goes on itself has one that is [`EPOCHS_SKIPPED`] higher.
    pub epoch: u16,
    /// The site that orders.
    pub root: SiteId,
    /// The last position of the epoch before, which the root goes on from; `None`: the root is the
    /// first one.
    pub cut: Option<Position>,
    /// The site that an operator wants as the root.
    pub next: Option<SiteId>,
    /// Set once the order went on without the root that had it.
    pub rebuilt: Option<Rebuilt>,
    /// The site that can take the root's place, if there is one.
    pub standby: Option<Standby>,
    /// How the standby is chosen, and when it takes over.
    pub standby_rule: StandbyRule,
}

/// A site that has the order as far as it is released, so that it can take the place of a root that
/// is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standby {
    /// The site.
    pub site: SiteId,
    /// Whether nothing is released before it has it: then it may take over.
    pub in_sync: bool,
    /// The version of the registry that states it. Whatever is asked for under another one is not
    /// done.
    pub since: Ballot,
}

/// How a region has a standby, as an operator wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StandbyRule {
    /// Which site.
    pub choice: StandbyChoice,
    /// Whether it takes over by an operator's command only.
    pub by_hand: bool,
}

/// Which site is to be the standby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StandbyChoice {
    /// None.
    #[default]
    Off,
    /// The one that is nearest to the root, from three sites on.
    Nearest,
    /// This one.
    At(SiteId),
}

/// What is known of the ends of orders whose root was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rebuilt {
    /// The last one; while it is looked for, the one before, or none.
    pub end: LostEnd,
    /// The ends before it that the order has gone on from, the latest first. Of more than there is
    /// room for the earliest are one: what one of them has lost counts as lost since.
    pub earlier: [LostEnd; limits::EARLIER_ENDS_MAX],
    /// The sites report how far they are, and nothing is ordered until the end is known.
    pub is_open: bool,
}

/// The end of an order whose root was lost. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LostEnd {
    /// The first epoch after it. What lies in earlier ones …
    pub until: u16,
    /// … behind this position is lost: no site that goes on has it.
    pub above: Position,
}

impl Rebuilt {
    /// Of one rebuild.
    pub fn of(end: LostEnd) -> Rebuilt {
        Rebuilt { end, earlier: Default::default(), is_open: false }
    }

    /// Whether a session that has seen a position has seen what is lost.
    pub fn lacks(&self, seen: Position) -> bool {
        self.lost_behind(seen).is_some()
    }

    /// If a session that has seen a position has seen what is lost: behind which position.
    pub fn lost_behind(&self, seen: Position) -> Option<Position> {
        let ends = std::iter::once(self.end).chain(self.earlier);
        let lost = ends.filter(|end| seen.epoch() < end.until && seen > end.above);
        lost.map(|end| end.above).min()
    }

    /// If a place is lost by an end that is known by itself: behind which one. Behind ends that count
    /// as one lie places that are not lost.
    fn known_lost_behind(&self, place: Position) -> Option<Position> {
        let mut known = *self;
        known.earlier[limits::EARLIER_ENDS_MAX - 1] = LostEnd::default();
        known.lost_behind(place)
    }

    /// The end is found: the order goes on behind this position, in this epoch. If that is of an
    /// order that a rebuild before has given up, the end of that is void, for later epochs.
    fn settled(&self, cut: Position, epoch: u16) -> Rebuilt {
        let before = std::iter::once(self.end).chain(self.earlier);
        let before = before.filter(|end| end.until != 0);
        let (kept, void): (Vec<LostEnd>, Vec<LostEnd>) =
            before.partition(|end| end.until <= cut.epoch());
        // What that order had lost itself may be void by an end that is void now, or be one of
        // those that count as one: all that any has lost counts as lost before it.
        let lowest = kept.iter().chain(&void).map(|end| end.above).min();
        let of_void = lowest.filter(|_| !void.is_empty());
        let of_void = of_void.map(|above| LostEnd { until: cut.epoch(), above });
        let mut before = of_void.into_iter().chain(kept);
        let mut earlier: [LostEnd; limits::EARLIER_ENDS_MAX] =
            std::array::from_fn(|_| before.next().unwrap_or_default());
        for end in before {
            let last = &mut earlier[limits::EARLIER_ENDS_MAX - 1];
            last.above = last.above.min(end.above);
        }
        Rebuilt { end: LostEnd { until: epoch, above: cut }, earlier, is_open: false }
    }
}

impl Region {
    /// A new one.
    pub fn new(id: RegionId, epoch: u16, root: SiteId) -> Region {
        let (standby, standby_rule) = Default::default();
        Region { id, epoch, root, cut: None, next: None, rebuilt: None, standby, standby_rule }
    }

    /// Whether the end of a lost root's order is being looked for.
    pub fn is_rebuilding(&self) -> bool {
        self.rebuilt.is_some_and(|rebuilt| rebuilt.is_open)
    }

    /// Whether a place of its order is known to be lost: of the last rebuilds, which have an end of
    /// their own each. What is not lost must not be waited for, as it comes no more.
    pub fn lacks(&self, place: Position) -> bool {
        self.rebuilt.is_some_and(|rebuilt| rebuilt.known_lost_behind(place).is_some())
    }

    /// The last place up to a position that is not lost.
    pub fn kept_upto(&self, position: Position) -> Position {
        let behind = self.rebuilt.and_then(|rebuilt| rebuilt.known_lost_behind(position));
        behind.unwrap_or(position)
    }

    /// Whether another region that has this registry takes places up to a position: not what is
    /// lost, and of an epoch only once it is known where that begins.
    pub fn may_be_taken(&self, upto: Position) -> bool {
        let is_known = match self.is_rebuilding() {
            true => upto.epoch() < self.epoch,
            false => upto.epoch() <= self.epoch,
        };
        is_known && !self.lacks(upto)
    }

    /// Where the root goes on: what has the order of the epoch before up to its end is here.
    /// `None`: at the beginning, or it is [not known yet](Self::is_rebuilding).
    pub fn begin(&self) -> Option<Position> {
        let cut = self.cut.filter(|_| !self.is_rebuilding());
        cut.map(|cut| Position::new(self.epoch, cut.count()))
    }

    /// Whether a root releases nothing that its standby does not have. `held`: the version under
    /// which it has committed to that.
    pub fn holds(&self, held: Option<Ballot>) -> bool {
        self.standby.is_some_and(|standby| standby.in_sync || held == Some(standby.since))
    }

    /// Whether a site takes nothing more of the order, as it is a standby that is to take over.
    /// `frozen`: the version under which it has committed to that.
    pub fn is_frozen(&self, site: SiteId, frozen: Option<Ballot>) -> bool {
        self.standby.is_some_and(|one| one.site == site && frozen == Some(one.since))
    }

    /// The standby, if this is the epoch and the version that it is of.
    fn stands(&self, epoch: u16, since: Ballot) -> Option<Standby> {
        let standby = self.standby.filter(|standby| standby.since == since);
        standby.filter(|_| self.epoch == epoch && !self.is_rebuilding())
    }

    /// Its standby is in sync, or is not any more; `None`: that was asked for under another
    /// version. That it is not may be stated twice: what the root has committed to under the
    /// version before ends with it.
    #[must_use]
    pub fn synced(
        &self,
        (epoch, since): (u16, Ballot),
        in_sync: bool,
        version: Ballot,
    ) -> Option<Region> {
        let standby = self.stands(epoch, since).filter(|standby| !in_sync || !standby.in_sync)?;
        let standby = Some(Standby { in_sync, since: version, ..standby });
        Some(Region { standby, ..*self })
    }

    /// The standby is the root, behind its last position; `None`: it is not in sync, or was asked
    /// for under another version.
    #[must_use]
    pub fn taken_over(
        &self,
        (epoch, since): (u16, Ballot),
        cut: Position,
        version: Ballot,
    ) -> Option<Region> {
        let standby = self.stands(epoch, since).filter(|standby| standby.in_sync)?;
        // The lost root may have given its order to a site whose epoch a recovered registry has
        // forgotten.
        let is_recovered = version.term != Term::default();
        let next = epoch.checked_add(if is_recovered { EPOCHS_SKIPPED } else { 1 })?;
        Some(Region { cut: Some(cut), ..self.of_root(standby.site, next, version) })
    }

    /// Its order ends, and a site looks for the end, so many epochs later.
    fn rebuilding(&self, by: SiteId, more: u16, version: Ballot) -> Option<Region> {
        let epoch = self.epoch.checked_add(more)?;
        // Until the end is known only what was lost before is: what sites show now may be kept.
        let before = self.rebuilt.unwrap_or_else(|| Rebuilt::of(LostEnd::default()));
        let rebuilt = Rebuilt { is_open: true, ..before };
        let of_root = self.of_root(by, epoch, version);
        Some(Region { next: None, rebuilt: Some(rebuilt), ..of_root })
    }

    /// With another root, or the same one in another epoch. A standby that becomes the root has the
    /// root before it as its standby.
    #[must_use]
    fn of_root(&self, root: SiteId, epoch: u16, version: Ballot) -> Region {
        let other = |site: SiteId| if site == root { self.root } else { site };
        let of = |one: Standby| Standby { site: other(one.site), in_sync: false, since: version };
        let choice = match self.standby_rule.choice {
            StandbyChoice::At(site) => StandbyChoice::At(other(site)),
            choice => choice,
        };
        let standby_rule = StandbyRule { choice, ..self.standby_rule };
        let next = self.next.filter(|next| *next != root);
        Region { epoch, root, next, standby: self.standby.map(of), standby_rule, ..*self }
    }
}

impl Registry {
    /// The region of that id.
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.regions.iter().find(|region| region.id == id)
    }

    /// A site that is needed as the root of a region stays.
    pub(crate) fn check_no_root(&self, id: SiteId) -> Result<(), RegistryError> {
        let is_root = self.regions.iter().any(|region| region.root == id);
        match self.site(id).filter(|_| is_root && self.has_causal()) {
            Some(root) => Err(RegistryError::Root(root.name.clone())),
            None => Ok(()),
        }
    }

    /// Whether a site holds all causal keyspaces, as a root and its standby need.
    pub fn holds_all_causal(&self, site: SiteId) -> bool {
        self.keyspaces.iter().all(|one| !one.spec.is_causal() || one.spec.is_held_by(site))
    }

    /// The sites of a region that stay and hold all causal keyspaces.
    pub fn full_replicas(&self, region: &Region) -> impl Iterator<Item = &SiteEntry> {
        self.staying_of(region).filter(|site| self.holds_all_causal(site.id))
    }

    /// A site stays if no other one of its region could be the root: what others lack of causal
    /// keyspaces would go with it. So does the last one of a region beside others.
    pub(crate) fn check_not_last_replica(&self, id: SiteId) -> Result<(), RegistryError> {
        let Some(site) = self.site(id).filter(|site| !site.leaving) else { return Ok(()) };
        let others = self.staying().filter(|one| one.id != id && one.region == site.region);
        let others: Vec<SiteId> = others.map(|one| one.id).collect();
        let is_last = match others.is_empty() {
            true => return self.check_not_last_of_region(site),
            false => self.holds_all_causal(id),
        };
        match is_last && !others.into_iter().any(|one| self.holds_all_causal(one)) {
            true => Err(RegistryError::LastReplica(site.name.clone())),
            false => Ok(()),
        }
    }

    fn check_not_last_of_region(&self, site: &SiteEntry) -> Result<(), RegistryError> {
        match self.has_regions() && self.has_causal() {
            true => Err(RegistryError::LastOfRegion(site.name.clone())),
            false => Ok(()),
        }
    }

    /// A site of the region that holds all can be its root or its standby.
    fn check_can_order(&self, site: &SiteEntry, region: &Region) -> Result<(), RegistryError> {
        match (self.is_in(site, region), self.holds_all_causal(site.id)) {
            (false, _) => Err(RegistryError::OtherRegion(site.name.clone())),
            (true, false) => Err(RegistryError::HoldsNotAll(site.name.clone())),
            (true, true) => Ok(()),
        }
    }

    /// Makes the regions of a causal keyspace that is to be, if there are none.
    pub(crate) fn make_region_of(
        &mut self,
        spec: &KeyspaceSpec,
        version: Ballot,
    ) -> Result<(), RegistryError> {
        for site in &spec.sites {
            self.site(*site).ok_or_else(|| RegistryError::NoSite(site.to_string()))?;
        }
        let before = self.regions.clone();
        let made = self.make_regions(spec, version);
        let checked = made.and_then(|()| {
            self.regions.iter().try_for_each(|region| self.check_held(spec, region))
        });
        if checked.is_err() {
            self.regions = before;
        }
        checked
    }

    /// The root of a region, and what is to take its place, hold a keyspace.
    fn check_held(&self, spec: &KeyspaceSpec, region: &Region) -> Result<(), RegistryError> {
        let standby = region.standby.map(|standby| standby.site);
        let mut need = [Some(region.root), region.next, standby].into_iter().flatten();
        let lacks = need.find(|site| !spec.is_held_by(*site));
        if let Some(site) = lacks.and_then(|site| self.site(site)) {
            return Err(RegistryError::MustHold(site.name.clone()));
        }
        let staying = self.staying_of(region).count();
        // The order of a region of one site ends with that site, whatever it holds.
        let min = if self.has_regions() { REPLICAS_MIN.min(staying) } else { REPLICAS_MIN };
        let replicas = self.full_replicas(region).filter(|site| spec.is_held_by(site.id)).count();
        match !spec.sites.is_empty() && replicas < min {
            true => Err(RegistryError::TooFewHold),
            false => Ok(()),
        }
    }

    /// Makes the regions of causal keyspaces, or other ones in the place of those whose root is
    /// gone: that order had no keyspace any more.
    fn make_regions(&mut self, spec: &KeyspaceSpec, version: Ballot) -> Result<(), RegistryError> {
        let before = std::mem::take(&mut self.regions);
        if !before.is_empty() && self.has_causal() {
            self.regions = before;
            return Ok(());
        }
        let names = self.names_staying();
        if names.len() > limits::REGIONS_MAX {
            return Err(RegistryError::TooManyRegions);
        }
        let name_of = |region: &Region| match self.site(region.root) {
            Some(root) => Some(root.region.clone()),
            None => (before.len() == 1 && names.len() == 1).then(|| names[0].clone()),
        };
        let of = |name| before.iter().find(|one| name_of(one).as_ref() == Some(name));
        let stays = |region: &Region| self.stays(region.root);
        // The ids of regions that end are forgotten: then no other one keeps its id, so that all
        // are above those. One that is new lacks what the others have ordered: then all begin anew.
        let ended =
            before.iter().any(|one| names.iter().all(|name| name_of(one).as_ref() != Some(name)));
        let ended = ended || before.iter().any(|one| !stays(one));
        let ended = ended || (!before.is_empty() && names.iter().any(|name| of(name).is_none()));
        let mut id = before.iter().map(|region| region.id.0).max().unwrap_or_default();
        // No position is of two regions.
        let mut epoch = before.iter().map(|region| region.epoch).max().unwrap_or_default();
        let mut made = Vec::new();
        for name in &names {
            let earlier = of(name);
            if let Some(kept) = earlier.filter(|one| !ended && stays(one)) {
                made.push(*kept);
                continue;
            }
            let can = self.staying().filter(|site| site.region == *name);
            let can = can.filter(|site| self.holds_all_causal(site.id));
            let root = can.map(|site| site.id).filter(|site| spec.is_held_by(*site)).min();
            let root = root.ok_or_else(|| match names.len() {
                1 => RegistryError::NoSite("that stays".to_owned()),
                _ => RegistryError::NoneHolds(described(name.as_ref())),
            })?;
            (id, epoch) = (id + 1, epoch + 1);
            // An operator's choice outlives the region.
            let standby_rule = earlier.map(|region| region.standby_rule).unwrap_or_default();
            made.push(Region { standby_rule, ..Region::new(RegionId(id), epoch, root) });
        }
        if made.is_empty() {
            return Err(RegistryError::NoSite("that stays".to_owned()));
        }
        made.sort_by_key(|region| region.id);
        self.regions = made;
        self.settle_standby(version);
        Ok(())
    }

    /// A site that cannot be a root any more is not wanted as one.
    pub(crate) fn forget_next_root(&mut self, id: SiteId, version: Ballot) {
        for region in self.regions.iter_mut().filter(|region| region.next == Some(id)) {
            region.next = None;
        }
        self.settle_standby(version);
    }

    /// A region is another one than before.
    fn put_region(&mut self, changed: Region, version: Ballot) {
        for region in self.regions.iter_mut().filter(|region| region.id == changed.id) {
            *region = changed;
        }
        self.changes += 1;
        self.settle_standby(version);
    }

    /// A site that leaves, or is gone, or is the root, is no standby; the one that is wanted is.
    fn settle_standby(&mut self, version: Ballot) {
        let mut regions = std::mem::take(&mut self.regions);
        let is_only = regions.len() == 1;
        for region in &mut regions {
            let name = self.site(region.root).map(|root| &root.region);
            let of = self.staying().filter(|site| match name {
                Some(name) => site.region == *name,
                None => is_only,
            });
            let of = of.filter(|site| self.holds_all_causal(site.id));
            let staying: Vec<SiteId> = of.map(|site| site.id).collect();
            let (root, rule) = (region.root, &mut region.standby_rule);
            let can = |site: SiteId| site != root && staying.contains(&site);
            if let StandbyChoice::At(site) = rule.choice
                && !can(site)
            {
                rule.choice = StandbyChoice::Nearest;
            }
            let kept = region.standby.filter(|standby| can(standby.site));
            let wanted = match rule.choice {
                StandbyChoice::Off => None,
                StandbyChoice::Nearest => kept.map(|standby| standby.site),
                StandbyChoice::At(site) => Some(site),
            };
            let new = |site| Standby { site, in_sync: false, since: version };
            region.standby = wanted.map(|site| {
                kept.filter(|standby| standby.site == site).unwrap_or_else(|| new(site))
            });
        }
        self.regions = regions;
    }

    /// A standby is wanted, another one, or none, by an operator. `of`: the region, which may be
    /// missing if there is one only or a site is named.
    pub(crate) fn set_standby(
        &mut self,
        of: Option<RegionId>,
        rule: StandbyRule,
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        let region = match (of, rule.choice) {
            (Some(id), _) => self.region(id),
            (None, StandbyChoice::At(at)) if self.has_regions() => self.region_of(at),
            (None, _) if self.has_regions() => return Err(RegistryError::WhichRegion),
            (None, _) => self.regions.first(),
        };
        let region = *region.ok_or(RegistryError::NoRegion)?;
        if let StandbyChoice::At(at) = rule.choice {
            let site = self.site(at).ok_or_else(|| RegistryError::NoSite(at.to_string()))?;
            if at == region.root {
                return Err(RegistryError::StandbyIsRoot(site.name.clone()));
            }
            if site.leaving {
                return Err(RegistryError::StandbyLeaves(site.name.clone()));
            }
            self.check_can_order(site, &region)?;
        }
        if region.standby_rule != rule {
            self.put_region(Region { standby_rule: rule, ..region }, version);
        }
        Ok(Changed::Site(region.root))
    }

    /// The root has chosen its standby. Nothing is changed if it may not, or is another one by now.
    pub(crate) fn name_standby(
        &mut self,
        (id, epoch): (RegionId, u16),
        site: SiteId,
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        let is_it = |region: &&Region| (region.id, region.epoch) == (id, epoch);
        let region = self.regions.iter().find(is_it).copied();
        let may = |region: &Region| {
            let other = region.standby.is_none_or(|one| one.site != site && !one.in_sync);
            let other = other && self.can_order(site, region);
            region.standby_rule.choice == StandbyChoice::Nearest && other
        };
        if let Some(region) = region.filter(may) {
            let standby = Some(Standby { site, in_sync: false, since: version });
            self.put_region(Region { standby, ..region }, version);
        }
        Ok(Changed::Site(site))
    }

    /// What becomes of a region, if anything does.
    pub(crate) fn change_region(
        &mut self,
        id: RegionId,
        version: Ballot,
        change: impl Fn(&Region) -> Option<Region>,
    ) -> Result<Changed, RegistryError> {
        let region = self.region(id).ok_or(RegistryError::NoRegion)?;
        if let Some(changed) = change(region) {
            self.put_region(changed, version);
        }
        let root = self.region(id).ok_or(RegistryError::NoRegion)?.root;
        Ok(Changed::Site(root))
    }

    /// In another term of the registry no standby is in sync, and one may be the root: what is
    /// forgotten may state it. So the present epoch ends as that of a lost root does, and the site
    /// that recovers looks for its end.
    pub(crate) fn recover_regions(&mut self, version: Ballot) {
        let has_standby = |region: &Region| {
            region.standby.is_some() || region.standby_rule.choice != StandbyChoice::Off
        };
        let rebuilding = |region: &Region| {
            let mut region = *region;
            if let Some(standby) = &mut region.standby {
                (standby.in_sync, standby.since) = (false, version);
            }
            let mut replicas = self.full_replicas(&region).map(|site| site.id);
            let by = self.can_order(version.term.site, &region).then_some(version.term.site);
            let by = by.filter(|by| self.stays(*by)).or_else(|| replicas.next());
            let rebuilt = by.and_then(|by| region.rebuilding(by, EPOCHS_FORGOTTEN, version));
            rebuilt.unwrap_or(region)
        };
        let of = |region: &Region| if has_standby(region) { rebuilding(region) } else { *region };
        self.regions = self.regions.iter().map(of).collect();
        self.settle_standby(version);
    }

    pub(crate) fn move_root(&mut self, to: SiteId) -> Result<Changed, RegistryError> {
        let site = self.site(to).ok_or_else(|| RegistryError::NoSite(to.to_string()))?;
        if site.leaving {
            return Err(RegistryError::RootLeaves(site.name.clone()));
        }
        let region = *self.region_of(to).ok_or(RegistryError::NoRegion)?;
        self.check_can_order(site, &region)?;
        let next = Some(to).filter(|to| *to != region.root);
        for one in self.regions.iter_mut().filter(|one| one.id == region.id && one.next != next) {
            one.next = next;
            self.changes += 1;
        }
        Ok(Changed::Site(to))
    }

    pub(crate) fn change_root(
        &mut self,
        (id, epoch): (RegionId, u16),
        to: SiteId,
        (cut, version): (Position, Ballot),
    ) -> Result<Changed, RegistryError> {
        let is_it = |region: &&Region| (region.id, region.epoch) == (id, epoch);
        let Some(region) = self.regions.iter().find(is_it) else { return Ok(Changed::Site(to)) };
        let site = self.site(to).ok_or_else(|| RegistryError::NoSite(to.to_string()))?;
        // The present root may go on whatever it is to do: no other site may.
        if site.leaving && to != region.root {
            return Err(RegistryError::RootLeaves(site.name.clone()));
        }
        self.check_can_order(site, region)?;
        // The root gives its order to one site. That may have an epoch already, of which this
        // registry has nothing since it was recovered. So asked for again it is the same one, and
        // that of the root itself is another one.
        let more = if to == region.root { EPOCHS_SKIPPED } else { 1 };
        // There are no more positions than that.
        let next = epoch.checked_add(more).ok_or(RegistryError::NoRegion)?;
        let changed = Region { cut: Some(cut), ..region.of_root(to, next, version) };
        self.put_region(changed, version);
        Ok(Changed::Site(to))
    }

    /// The present root's order ends, with an end that is to be found.
    pub(crate) fn rebuild(
        &mut self,
        (id, epoch): (RegionId, u16),
        to: SiteId,
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        let site = self.site(to).ok_or_else(|| RegistryError::NoSite(to.to_string()))?;
        let is_it = |region: &&Region| (region.id, region.epoch) == (id, epoch);
        let found = self.regions.iter().find(is_it);
        // The farthest one has to go on even if it leaves: it has what no other site has. It hands
        // the order on then.
        if site.leaving && !found.is_some_and(Region::is_rebuilding) {
            return Err(RegistryError::RootLeaves(site.name.clone()));
        }
        let Some(region) = found else {
            return match self.holds_all_causal(to) {
                true => Ok(Changed::Site(to)),
                false => Err(RegistryError::HoldsNotAll(site.name.clone())),
            };
        };
        self.check_can_order(site, region)?;
        // The lost root may have given its order to a site whose epoch this registry has forgotten.
        let more = if region.is_rebuilding() { 1 } else { EPOCHS_SKIPPED };
        let changed = region.rebuilding(to, more, version).ok_or(RegistryError::NoRegion)?;
        self.put_region(changed, version);
        Ok(Changed::Site(to))
    }

    pub(crate) fn settle_rebuild(
        &mut self,
        (id, epoch): (RegionId, u16),
        cut: Position,
    ) -> Result<Changed, RegistryError> {
        let is_it = |region: &&mut Region| (region.id, region.epoch) == (id, epoch);
        let Some(region) = self.regions.iter_mut().find(is_it) else {
            return Err(RegistryError::NoRegion);
        };
        if let Some(open) = region.rebuilt.filter(|rebuilt| rebuilt.is_open) {
            let rebuilt = Some(open.settled(cut, epoch));
            *region = Region { cut: Some(cut), rebuilt, ..*region };
            self.changes += 1;
        }
        Ok(Changed::Site(region.root))
    }
}
