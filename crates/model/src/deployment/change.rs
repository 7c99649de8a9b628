//! Changes of the registry, and how each is applied.

use super::{Changed, NodeEntry, Pin, Registry, RegistryError, Remembered, SiteEntry};
use crate::backup::BackupChoice;
use crate::failover::Taken;
use crate::{
    Alteration, Ballot, Bytes, Keyspace, KeyspaceError, KeyspaceId, KeyspaceSpec, Placement,
    Position, RegionId, RequestId, SiteId, SiteName, StandbyRule, limits,
};

/// A change of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryChange {
    /// A site joins. Its id is given to it; a repetition by the same incarnation gets the same one.
    Join(SiteEntry),
    /// A site's present description of itself.
    Update(SiteEntry),
    /// A node's present addresses.
    Node(SiteId, NodeEntry),
    /// A site is going to leave: nothing more is handed to it.
    Leave(SiteId),
    /// A site has handed everything over and is gone.
    Remove(SiteId),
    /// The same; other sites have what only it had copies of. They stay.
    RemoveTo {
        /// The site.
        site: SiteId,
        /// Those others.
        destinations: Vec<SiteId>,
    },
    /// The same, by what the other sites reported under a registry with these decisions of
    /// failovers. After another one, a site may need the copies that it did without.
    RemoveBy {
        /// The site.
        site: SiteId,
        /// Those others.
        destinations: Vec<SiteId>,
        /// The decisions ([`crate::failover::Failovers::decisions`]).
        decisions: Vec<Ballot>,
    },
    /// The backup of a site, as an operator chooses it.
    Backup(SiteId, BackupChoice),
    /// A keyspace is made. Its id is given to it.
    CreateKeyspace(KeyspaceSpec),
    /// A keyspace is dropped with all it holds, by its name.
    DropKeyspace(String),
    /// What decides where the keys of a global keyspace are, from here on.
    AlterKeyspace {
        /// The keyspace's name.
        name: String,
        /// The placement.
        placement: Placement,
    },
    /// The same of more than the placement.
    Alter {
        /// The keyspace's name.
        name: String,
        /// What is to be another.
        by: Alteration,
    },
    /// A group stays at a site, or goes there, wherever it is used. Its earlier pin ends.
    Pin(Pin),
    /// A group is not pinned any more.
    Unpin {
        /// Its keyspace.
        keyspace: KeyspaceId,
        /// The tag of its keys.
        tag: Bytes,
    },
    /// A site is lost: it and the others that are named are fenced, until this is decided or called
    /// off.
    OpenFailover {
        /// The lost site.
        lost: SiteId,
        /// Sites that are not asked what they have.
        without: Vec<SiteId>,
    },
    /// Slots of the lost site are taken by others.
    DecideFailover {
        /// The version that opened it.
        opened: Ballot,
        /// Which site takes which slots.
        taken: Vec<Taken>,
    },
    /// A failover is called off.
    CloseFailover(Ballot),
    /// Every listed site has a version with this decision.
    ForgetFailover(Ballot),
    /// A site that was lost has taken over all that is decided of it by now.
    Returned(SiteId),
    /// A site that was lost has taken over what was decided of it up to a version.
    ReturnedBy {
        /// The site.
        site: SiteId,
        /// The version that it has.
        known: Ballot,
    },
    /// A site that is up would hold the registry, in the place of one that leaves, or as one more.
    Registrar(SiteId),
    /// A site is to become the root of the region, as an operator wants it. The present root: it is
    /// to stay.
    MoveRoot(SiteId),
    /// The root of a region is lost, as an operator states: its epoch ends without it. The site is
    /// to find out what there is of the order. Nothing is changed if that epoch is over.
    Rebuild {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: u16,
        /// The site.
        to: SiteId,
    },
    /// No site has more of a lost root's order than the root of this epoch. It goes on there.
    /// Nothing is changed if that is settled.
    SettleRebuild {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: u16,
        /// How far it has the order.
        cut: Position,
    },
    /// The root of a region has stopped ordering for good in its epoch: another one goes on in the
    /// next epoch, or the same one in a later one. Nothing is changed if that epoch is over.
    ChangeRoot {
        /// The region.
        region: RegionId,
        /// The epoch that ends.
        epoch: u16,
        /// The site that goes on.
        to: SiteId,
        /// The last position of that epoch.
        cut: Position,
    },
    /// Which site is to be the standby of the region's root, as an operator wants it, and when it
    /// takes over.
    SetStandby(StandbyRule),
    /// The same of one of several regions.
    SetStandbyOf {
        /// The region.
        region: RegionId,
        /// The rule.
        rule: StandbyRule,
    },
    /// The root has chosen its standby, where that is left to it. Nothing is changed if its epoch
    /// is over.
    NameStandby {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: u16,
        /// The standby.
        site: SiteId,
    },
    /// The root releases nothing before its standby has it; or it does. Nothing is changed if the
    /// standby is as of another version.
    SyncStandby {
        /// The region.
        region: RegionId,
        /// The root's epoch.
        epoch: u16,
        /// The version.
        since: Ballot,
        /// Whether it is in sync.
        in_sync: bool,
    },
    /// The root is lost, and its standby goes on. Nothing is changed if that is not in sync, or is
    /// as of another version.
    TakeOver {
        /// The region.
        region: RegionId,
        /// The epoch that ends.
        epoch: u16,
        /// The version.
        since: Ballot,
        /// How far the standby has the order. It takes nothing more under that version.
        cut: Position,
    },
}

impl Registry {
    /// What came of the change with this id, if it is remembered.
    pub fn outcome(&self, id: RequestId) -> Option<&Result<Changed, RegistryError>> {
        let is_it =
            |one: &&Remembered| (one.id.client, one.id.sequence) == (id.client, id.sequence);
        self.outcomes.iter().find(is_it).map(|one| &one.outcome)
    }

    /// Applies a change once, and remembers what came of it. `version`: the ballot that writes it.
    pub fn change_once(
        &mut self,
        id: RequestId,
        change: &RegistryChange,
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        if let Some(outcome) = self.outcome(id) {
            return outcome.clone();
        }
        let outcome = self.change_at(change, version);
        self.outcomes
            .retain(|one| one.id.client != id.client || one.id.sequence >= id.acknowledged_below);
        if self.outcomes.len() >= limits::REGISTRY_OUTCOMES_MAX {
            self.outcomes.remove(0);
        }
        self.outcomes.push(Remembered { id, outcome: outcome.clone() });
        outcome
    }

    /// Applies a change, of this version. See [`Registry::change_at`].
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change(&mut self, change: &RegistryChange) -> Result<Changed, RegistryError> {
        self.change_at(change, self.version)
    }

    /// Applies a change. Answers with what it was about. The changes are counted up if anything is
    /// other than before; the proposer writes the version, which is given for changes that record
    /// it.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn change_at(
        &mut self,
        change: &RegistryChange,
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        match change {
            RegistryChange::Join(entry) => self.join(entry),
            RegistryChange::Update(entry) => self.update(entry),
            RegistryChange::Node(id, entry) => self.note_node(*id, entry),
            RegistryChange::Leave(id) => self.leave(*id, version),
            RegistryChange::Remove(id) => self.remove(*id, version),
            RegistryChange::RemoveTo { site, destinations } => {
                self.check_stay(destinations)?;
                self.remove(*site, version)
            }
            RegistryChange::RemoveBy { site, destinations, decisions } => {
                self.check_decisions(decisions)?;
                self.check_stay(destinations)?;
                self.remove(*site, version)
            }
            RegistryChange::Backup(id, choice) => self.choose_backup(*id, *choice),
            RegistryChange::OpenFailover { lost, without } => {
                self.open_failover(*lost, without, version)
            }
            RegistryChange::DecideFailover { opened, taken } => {
                self.decide_failover(*opened, taken, version)
            }
            RegistryChange::CloseFailover(opened) => {
                self.changes += u64::from(self.failovers.close(*opened));
                Ok(Changed::Failovers)
            }
            RegistryChange::ForgetFailover(decided) => {
                self.changes += u64::from(self.failovers.forget(*decided));
                Ok(Changed::Failovers)
            }
            RegistryChange::Returned(id) => {
                self.changes += u64::from(self.failovers.all_returned(*id));
                Ok(Changed::Site(*id))
            }
            RegistryChange::ReturnedBy { site, known } => {
                self.changes += u64::from(self.failovers.returned_by(*site, *known));
                Ok(Changed::Site(*site))
            }
            RegistryChange::MoveRoot(to) => self.move_root(*to),
            RegistryChange::Rebuild { region, epoch, to } => {
                self.rebuild((*region, *epoch), *to, version)
            }
            RegistryChange::SettleRebuild { region, epoch, cut } => {
                self.settle_rebuild((*region, *epoch), *cut)
            }
            RegistryChange::ChangeRoot { region, epoch, to, cut } => {
                self.change_root((*region, *epoch), *to, (*cut, version))
            }
            RegistryChange::SetStandby(rule) => self.set_standby(None, *rule, version),
            RegistryChange::SetStandbyOf { region, rule } => {
                self.set_standby(Some(*region), *rule, version)
            }
            RegistryChange::NameStandby { region, epoch, site } => {
                self.name_standby((*region, *epoch), *site, version)
            }
            RegistryChange::SyncStandby { region, epoch, since, in_sync } => {
                let of = (*epoch, *since);
                self.change_region(*region, version, |one| one.synced(of, *in_sync, version))
            }
            RegistryChange::TakeOver { region, epoch, since, cut } => {
                let of = (*epoch, *since);
                self.change_region(*region, version, |one| one.taken_over(of, *cut, version))
            }
            RegistryChange::CreateKeyspace(spec) => self.create_keyspace(spec, version),
            RegistryChange::DropKeyspace(name) => self.drop_keyspace(name),
            RegistryChange::AlterKeyspace { name, placement } => {
                self.alter_keyspace(name, &Alteration::of_placement(*placement))
            }
            RegistryChange::Alter { name, by } => self.alter_keyspace(name, by),
            RegistryChange::Pin(pin) => self.pin(pin),
            RegistryChange::Unpin { keyspace, tag } => self.unpin(*keyspace, tag),
            RegistryChange::Registrar(id) => self.add_registrar(*id),
        }
    }

    fn join(&mut self, entry: &SiteEntry) -> Result<Changed, RegistryError> {
        if let Some(there) = self.site_named(entry.name.as_str()) {
            let same = there.incarnation == entry.incarnation;
            let taken = RegistryError::NameTaken(entry.name.clone());
            return if same { Ok(Changed::Site(there.id)) } else { Err(taken) };
        }
        if self.sites.len() >= limits::SITES_MAX {
            return Err(RegistryError::TooManySites);
        }
        self.check_region(entry.region.as_ref())?;
        let id = SiteId(self.site_next);
        self.site_next += 1;
        self.sites.push(SiteEntry { id, leaving: false, ..entry.clone() });
        self.changes += 1;
        Ok(Changed::Site(id))
    }

    fn update(&mut self, entry: &SiteEntry) -> Result<Changed, RegistryError> {
        let site_there = self.site_mut(entry.id)?;
        let updated = SiteEntry {
            name: site_there.name.clone(),
            incarnation: site_there.incarnation,
            leaving: site_there.leaving,
            region: site_there.region.clone(),
            ..entry.clone()
        };
        if *site_there != updated {
            *site_there = updated;
            self.changes += 1;
        }
        Ok(Changed::Site(entry.id))
    }

    fn note_node(&mut self, id: SiteId, entry: &NodeEntry) -> Result<Changed, RegistryError> {
        let nodes = &mut self.site_mut(id)?.nodes;
        match nodes.binary_search_by_key(&entry.node, |node| node.node) {
            Ok(at) if nodes[at] == *entry => return Ok(Changed::Site(id)),
            Ok(at) => nodes[at] = entry.clone(),
            Err(at) => nodes.insert(at, entry.clone()),
        }
        self.changes += 1;
        Ok(Changed::Site(id))
    }

    fn leave(&mut self, id: SiteId, version: Ballot) -> Result<Changed, RegistryError> {
        // The asked site may not have known yet that the site is lost: that one has nothing to hand
        // over any more, and does not answer.
        if self.is_lost(id) {
            self.check_all_asked(id)?;
            return self.remove(id, version);
        }
        if self.failovers.open.as_ref().is_some_and(|open| open.lost == id) {
            self.check_no_failover()?;
        }
        let others_stay = self.sites.iter().any(|site| site.id != id && !site.leaving);
        self.check_not_last_replica(id)?;
        let leaver = self.site_mut(id)?;
        if !others_stay {
            return Err(RegistryError::LastSite(leaver.name.clone()));
        }
        if !std::mem::replace(&mut leaver.leaving, true) {
            self.changes += 1;
            self.forget_next_root(id, version);
        }
        Ok(Changed::Site(id))
    }

    fn remove(&mut self, id: SiteId, version: Ballot) -> Result<Changed, RegistryError> {
        self.check_no_failover()?;
        self.check_no_root(id)?;
        let Some(at) = self.sites.iter().position(|site| site.id == id) else {
            return Ok(Changed::Site(id));
        };
        self.sites.remove(at);
        self.pins.retain(|pin| pin.site != id);
        self.backups.forget(id);
        self.failovers.site_gone(id);
        self.failovers.forget_last(|id| self.sites.iter().any(|site| site.id == id));
        self.forget_next_root(id, version);
        let others = |site: &SiteId| *site != id;
        self.registrars.set = self.registrars.set.sites().iter().copied().filter(others).collect();
        if self.registrars.set.is_empty() {
            let rest: Vec<SiteId> = self.sites.iter().map(|site| site.id).collect();
            self.registrars.set = self.choose_registrars(&rest);
        }
        self.changes += 1;
        Ok(Changed::Site(id))
    }

    /// Sites that are to have what only a leaving site has copies of must stay themselves.
    fn check_stay(&self, destinations: &[SiteId]) -> Result<(), RegistryError> {
        let stays = |id: &SiteId| self.staying().any(|entry| entry.id == *id);
        let Some(gone) = destinations.iter().find(|id| !stays(id)) else { return Ok(()) };
        let unnamed = SiteName::new(gone.to_string()).expect("a site's id is a name");
        let name = self.site(*gone).map_or(unnamed, |entry| entry.name.clone());
        Err(RegistryError::ReceiverLeaves(name))
    }

    /// What sites reported before a failover was decided is not what they have after it: a site
    /// that leaves may have taken slots, or have the only copy beside that of a site that has.
    fn check_decisions(&self, known: &[Ballot]) -> Result<(), RegistryError> {
        let is_known = self.failovers.decisions().iter().all(|one| known.contains(one));
        is_known.then_some(()).ok_or(RegistryError::FailoverDecided)
    }

    fn choose_backup(
        &mut self,
        id: SiteId,
        choice: BackupChoice,
    ) -> Result<Changed, RegistryError> {
        let name = self.site_mut(id)?.name.clone();
        match choice {
            BackupChoice::At(at) if at == id => return Err(RegistryError::OwnBackup(name)),
            BackupChoice::At(at) => drop(self.site_mut(at)?),
            _ => {}
        }
        self.changes += u64::from(self.backups.choose(id, choice));
        Ok(Changed::Site(id))
    }

    fn open_failover(
        &mut self,
        lost: SiteId,
        without: &[SiteId],
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        self.site_mut(lost)?;
        let opened = self.failovers.open(version, lost, without);
        let is_news = opened.or_else(|_| self.check_no_failover().map(|()| false))?;
        self.changes += u64::from(is_news);
        Ok(Changed::Site(lost))
    }

    fn decide_failover(
        &mut self,
        opened: Ballot,
        taken: &[Taken],
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        let open = self.failovers.open.as_ref().ok_or(RegistryError::NoFailover)?;
        let lost = open.lost;
        if !self.failovers.decide(version, opened, taken.to_vec()) {
            return Err(RegistryError::NoFailover);
        }
        // Whatever the keyspaces are now: a recovered registry may have forgotten that one was
        // adaptive.
        self.failovers.note_last(lost, version);
        self.changes += 1;
        Ok(Changed::Site(lost))
    }

    fn add_registrar(&mut self, id: SiteId) -> Result<Changed, RegistryError> {
        self.site_mut(id)?;
        let stays = |site: &SiteEntry| site.id == id || self.registrars.set.contains(site.id);
        let is_staying = self.staying().any(|site| site.id == id);
        if is_staying && !self.registrars.set.contains(id) && self.registrars_missing() > 0 {
            let set = self.staying().filter(|site| stays(site)).map(|site| site.id);
            self.registrars.set = set.collect();
            self.changes += 1;
        }
        Ok(Changed::Site(id))
    }

    fn check_no_failover(&self) -> Result<(), RegistryError> {
        let Some(open) = &self.failovers.open else { return Ok(()) };
        let unnamed = || SiteName::new(open.lost.to_string()).expect("a site's id is a name");
        let name = self.site(open.lost).map_or_else(unnamed, |site| site.name.clone());
        Err(RegistryError::FailoverOpen(name))
    }

    fn create_keyspace(
        &mut self,
        spec: &KeyspaceSpec,
        version: Ballot,
    ) -> Result<Changed, RegistryError> {
        spec.check().map_err(RegistryError::Keyspace)?;
        let default = KeyspaceSpec::default_keyspace();
        let specs = self.keyspaces.iter().map(|keyspace| &keyspace.spec);
        let mut all = specs.chain(std::iter::once(&default));
        if let Some(there) = all.find(|one| one.name == spec.name || one.prefix == spec.prefix) {
            return Err(RegistryError::KeyspaceExists(there.name.clone()));
        }
        // The default one is not listed.
        if self.keyspaces.len() + 1 >= limits::KEYSPACES_MAX {
            return Err(RegistryError::TooManyKeyspaces);
        }
        let mut spec = KeyspaceSpec { was_adaptive: false, ..spec.clone() };
        spec.lend_to.iter().try_for_each(|site| self.check_site(*site))?;
        spec.order_lend_to();
        if spec.is_causal() {
            spec.sites.sort_unstable();
            spec.sites.dedup();
            self.make_region_of(&spec, version)?;
        }
        let id = KeyspaceId(self.keyspace_next);
        self.keyspace_next += 1;
        self.keyspaces.push(Keyspace { id, spec });
        self.changes += 1;
        Ok(Changed::Keyspace(id))
    }

    /// The place of a keyspace in the list, which the default one is not in.
    fn keyspace_named(&self, name: &str) -> Result<usize, RegistryError> {
        let at = self.keyspaces.iter().position(|keyspace| keyspace.spec.name == name);
        at.ok_or_else(|| RegistryError::NoKeyspace(name.to_owned()))
    }

    fn alter_keyspace(&mut self, name: &str, by: &Alteration) -> Result<Changed, RegistryError> {
        if name == KeyspaceSpec::default_keyspace().name {
            return Err(RegistryError::Keyspace(KeyspaceError::PlacementScope(name.to_owned())));
        }
        let at = self.keyspace_named(name)?;
        by.lend_to.iter().flatten().try_for_each(|site| self.check_site(*site))?;
        let keyspace = &mut self.keyspaces[at];
        let spec = keyspace.spec.altered(by);
        spec.check().map_err(RegistryError::Keyspace)?;
        if by.has_rules() && !spec.is_adaptive() {
            let name = spec.name;
            return Err(RegistryError::Keyspace(KeyspaceError::RulesPlacement(name)));
        }
        let id = keyspace.id;
        if keyspace.spec != spec {
            keyspace.spec = spec;
            self.changes += 1;
        }
        Ok(Changed::Keyspace(id))
    }

    fn drop_keyspace(&mut self, name: &str) -> Result<Changed, RegistryError> {
        if name == KeyspaceSpec::default_keyspace().name {
            return Err(RegistryError::DefaultKeyspace);
        }
        let at = self.keyspace_named(name)?;
        self.changes += 1;
        let id = self.keyspaces.remove(at).id;
        self.pins.retain(|pin| pin.keyspace != id);
        Ok(Changed::Dropped(id))
    }

    fn check_site(&self, id: SiteId) -> Result<(), RegistryError> {
        self.site(id).map(|_| ()).ok_or_else(|| RegistryError::NoSite(id.to_string()))
    }

    fn site_mut(&mut self, id: SiteId) -> Result<&mut SiteEntry, RegistryError> {
        let site = self.sites.iter_mut().find(|site| site.id == id);
        site.ok_or_else(|| RegistryError::NoSite(id.to_string()))
    }
}

#[cfg(test)]
mod tests;
