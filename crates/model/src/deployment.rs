//! A deployment: the sites that keep global keys together, and what all of them must agree on.

use crate::backup::{BackupChoice, Backups};
use crate::failover::{Failovers, Taken};
use crate::recovery::TermBegan;
use crate::{
    Ballot, HOLDERS_MIN, Keyspace, KeyspaceError, KeyspaceId, KeyspaceSpec, NodeId, Position,
    Refusal, Region, RegionId, RegistrarSet, Registrars, RequestId, SiteId, SiteName, StandbyRule,
    Term, limits,
};

/// Which deployment. Drawn at random by the site that began it: two of them never mix. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeploymentId(pub u64);

/// What all sites of a deployment agree on: the sites and their addresses, and the keyspaces.
///
/// A few of the sites, its registrars, hold it: a change is a ballot among them
/// (`protocol::deployment::registry`). Every site keeps a copy of the newest version that it has
/// learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// Which deployment.
    pub deployment: DeploymentId,
    /// The ballot that wrote it.
    pub version: Ballot,
    /// How many changes it has seen. For people, and for clients that count maps.
    pub changes: u64,
    /// The sites that hold it.
    pub registrars: Registrars,
    /// What came of the latest changes, oldest first, so that one that is asked for again is done once.
    pub outcomes: Vec<Remembered>,
    /// What terms that began with a recovery went on from: the last ones, in order.
    pub began: Vec<TermBegan>,
    /// The sites, ordered by id.
    pub sites: Vec<SiteEntry>,
    /// The keyspaces besides the default one, ordered by id.
    pub keyspaces: Vec<Keyspace>,
    /// The id of the next site to join.
    pub site_next: u32,
    /// The id of the next keyspace to be made.
    pub keyspace_next: u32,
    /// The backup of each site.
    pub backups: Backups,
    /// The failovers that matter.
    pub failovers: Failovers,
    /// Sites that joined beyond the end of a term and have handed that in since, ordered by id. One of them
    /// that is not listed has left.
    pub handed_in: Vec<SiteId>,
    /// The regions of causal keyspaces: none, or one of all sites.
    pub regions: Vec<Region>,
}

/// What came of a change that was asked for under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The id.
    pub id: RequestId,
    /// What came of it.
    pub outcome: Result<Changed, RegistryError>,
}

/// What a change was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A site.
    Site(SiteId),
    /// A keyspace that was made.
    Keyspace(KeyspaceId),
    /// A keyspace that was dropped.
    Dropped(KeyspaceId),
    /// Failovers.
    Failovers,
}

/// A site, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteEntry {
    /// Its id.
    pub id: SiteId,
    /// Its name, unique while it is there.
    pub name: SiteName,
    /// Which site of that name: drawn when it began, so that asking to join twice joins once.
    pub incarnation: u64,
    /// How much of the slots it should hold: 100 is one share.
    pub capacity_percent: u32,
    /// Whether it is handing everything over, to leave.
    pub leaving: bool,
    /// Its nodes, ordered by id.
    pub nodes: Vec<NodeEntry>,
}

/// A node of a site, as the other sites see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its id in its site.
    pub node: NodeId,
    /// Its peer port, `host:port`.
    pub peer: String,
    /// Where clients of the Redis Cluster protocol find it, `host:port`; empty: nowhere.
    pub cluster: String,
}

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
    /// The backup of a site, as an operator chooses it.
    Backup(SiteId, BackupChoice),
    /// A keyspace is made. Its id is given to it.
    CreateKeyspace(KeyspaceSpec),
    /// A keyspace is dropped with all it holds, by its name.
    DropKeyspace(String),
    /// A site is lost: it and the others that are named are fenced, until this is decided or called off.
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
    /// A site that was lost has taken over what was decided meanwhile.
    Returned(SiteId),
    /// A site that is up would hold the registry, in the place of one that leaves, or as one more.
    Registrar(SiteId),
    /// A site is to become the root of the region, as an operator wants it. The present root: it is to stay.
    MoveRoot(SiteId),
    /// The root of a region is lost, as an operator says: its epoch ends without it. The site is to find out what there
    /// is of the order. Nothing is changed if that epoch is over.
    Rebuild {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: u16,
        /// The site.
        to: SiteId,
    },
    /// No site has more of a lost root's order than the root of this epoch. It goes on there. Nothing is changed if that
    /// is settled.
    SettleRebuild {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: u16,
        /// How far it has the order.
        cut: Position,
    },
    /// The root of a region has stopped ordering for good in its epoch: another one goes on in the next epoch, or the
    /// same one in a later one. Nothing is changed if that epoch is over.
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
    /// Which site is to be the standby of the region's root, as an operator wants it, and when it takes over.
    SetStandby(StandbyRule),
    /// The root has chosen its standby, where that is left to it. Nothing is changed if its epoch is over.
    NameStandby {
        /// The region.
        region: RegionId,
        /// The epoch.
        epoch: u16,
        /// The standby.
        site: SiteId,
    },
    /// The root releases nothing before its standby has it; or it does. Nothing is changed if the standby is as of
    /// another version.
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
    /// The root is lost, and its standby goes on. Nothing is changed if that is not in sync, or is as of another version.
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

/// Why the registry cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The keyspace cannot be made as stated.
    #[error(transparent)]
    Keyspace(KeyspaceError),
    /// A keyspace with this name or this prefix is there.
    #[error("keyspace {0:?} has this name or prefix already")]
    KeyspaceExists(String),
    /// There is no such keyspace.
    #[error("there is no keyspace {0}; `portolan keyspace list` shows those there are")]
    NoKeyspace(String),
    /// The default keyspace cannot be dropped.
    #[error("the default keyspace cannot be dropped")]
    DefaultKeyspace,
    /// There are as many as there may be.
    #[error("there are {max} keyspaces already; remove one first", max = limits::KEYSPACES_MAX)]
    TooManyKeyspaces,
    /// Enough registrars are left: there is nothing to recover from.
    #[error(
        "most registrars are not named, so nothing is to be recovered; `portolan registry show` shows which do not answer"
    )]
    NoRecovery,
    /// A site to be done without answers.
    #[error("{0} answers; do without sites that are lost only")]
    Answers(SiteName),
    /// Sites that are not named do not answer.
    #[error(
        "cannot be asked what they know of the registry: {0}; bring them back, or name each with --without"
    )]
    Silent(String),
    /// The name is taken.
    #[error(
        "there is a site {0} already; give the new one another --site, or join that site with --node"
    )]
    NameTaken(SiteName),
    /// There is no such site.
    #[error("there is no site {0}; `portolan site list` shows those there are")]
    NoSite(String),
    /// There are as many as there may be.
    #[error("a deployment has at most {max} sites", max = limits::SITES_MAX)]
    TooManySites,
    /// No site would be left.
    #[error("{0} is the last site that stays; it cannot leave")]
    LastSite(SiteName),
    /// One failover at a time, and no site leaves meanwhile.
    #[error(
        "a failover of {0} is under way; wait for its end, or ask for `portolan site promote` of that site again"
    )]
    FailoverOpen(SiteName),
    /// What only a leaving site had copies of would go after it.
    #[error("{0} has taken copies over from the site that leaves, and leaves itself or is gone")]
    ReceiverLeaves(SiteName),
    /// It was decided or called off.
    #[error("the failover was called off: the lost site answers, or somebody else has ended it")]
    NoFailover,
    /// The order of causal keyspaces would go with it.
    #[error(
        "{0} is the root of the region: it orders the writes of causal keyspaces, until another site is the root"
    )]
    Root(SiteName),
    /// The root of the region is not lost.
    #[error(
        "{0} is the root of the region and can be reached: `region move-root` has another site order and loses \
         nothing; `region rebuild --force` goes on without it"
    )]
    RootAnswers(String),
    /// There is no region.
    #[error("there is no region: there was never a causal keyspace")]
    NoRegion,
    /// The site cannot be the root.
    #[error("{0} is to leave, and cannot become the root of the region; name a site that stays")]
    RootLeaves(SiteName),
    /// The root would be its own standby.
    #[error("{0} is the root of the region; name another site as its standby")]
    StandbyIsRoot(SiteName),
    /// The site cannot be the standby.
    #[error("{0} is to leave, and cannot be the standby of the root; name a site that stays")]
    StandbyLeaves(SiteName),
    /// It would be its own.
    #[error("{0} cannot be its own backup; name another site")]
    OwnBackup(SiteName),
    /// These sites need all causal keyspaces.
    #[error(
        "{0} must hold the keyspace, too: the root of the region, its standby and the site that is to be the root hold \
         all causal keyspaces"
    )]
    MustHold(SiteName),
    /// A site lacks causal keyspaces by their rules.
    #[error(
        "{0} does not hold all causal keyspaces: `portolan keyspace list` shows which sites hold which; the root of the \
         region and its standby need all"
    )]
    HoldsNotAll(SiteName),
    /// The region would have a root whose place no other site can take.
    #[error(
        "fewer than {min} sites that stay would hold all causal keyspaces, and no site could take the place of the root: name \
         more sites with --sites, or none, so that all hold the keyspace",
        min = HOLDERS_MIN
    )]
    TooFewHold,
    /// The contents of causal keyspaces would go with it.
    #[error(
        "{0} is the last site that stays and holds all causal keyspaces; it cannot leave until those that other sites lack \
         are dropped: `portolan keyspace list` shows which sites hold which"
    )]
    LastHolder(SiteName),
    /// Slots of a lost site may be at sites that its failover did not ask, and no other failover would take them.
    #[error(
        "the failover of {0} did not ask all sites, and what they have of its slots would be served by none: ask for \
         `portolan site promote {0}` again, without `--without` but for sites that are lost, and remove it then"
    )]
    NotAllAsked(SiteName),
}

/// A refusal of a keyspace reads as that of a site that belongs to no deployment.
impl From<RegistryError> for Refusal {
    fn from(error: RegistryError) -> Refusal {
        match error {
            RegistryError::Keyspace(error) => Refusal::Keyspace(error),
            RegistryError::KeyspaceExists(name) => Refusal::KeyspaceExists { name },
            RegistryError::NoKeyspace(name) => Refusal::NoKeyspace(name),
            RegistryError::DefaultKeyspace => Refusal::DefaultKeyspace,
            RegistryError::TooManyKeyspaces => {
                Refusal::TooMany { what: "keyspaces", max: limits::KEYSPACES_MAX }
            }
            other => Refusal::Registry(other),
        }
    }
}

impl Registry {
    /// One without sites and registrars, as of that change.
    pub fn empty(deployment: DeploymentId, changes: u64) -> Registry {
        Registry {
            deployment,
            version: Ballot { term: Term::default(), round: changes, site: SiteId(0) },
            changes,
            registrars: Registrars::default(),
            outcomes: Vec::new(),
            began: Vec::new(),
            sites: Vec::new(),
            keyspaces: Vec::new(),
            site_next: 1,
            keyspace_next: 1,
            backups: Backups::default(),
            failovers: Failovers::default(),
            handed_in: Vec::new(),
            regions: Vec::new(),
        }
    }

    /// This site is the only registrar from here on.
    pub fn begin(&mut self, own: SiteId) {
        let set: RegistrarSet = [own].into_iter().collect();
        self.version = Ballot { round: self.version.round + 1, site: own, ..self.version };
        self.registrars = Registrars { set, since: self.version, before: set };
    }

    /// How many registrars are missing.
    pub fn registrars_missing(&self) -> usize {
        let staying = self.staying().count();
        let there = self.staying().filter(|site| self.registrars.set.contains(site.id)).count();
        RegistrarSet::size_for(staying).saturating_sub(there)
    }

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

    /// A site by its id.
    pub fn site(&self, id: SiteId) -> Option<&SiteEntry> {
        let at = self.sites.binary_search_by_key(&id, |site| site.id).ok()?;
        Some(&self.sites[at])
    }

    /// A site by its name.
    pub fn site_named(&self, name: &str) -> Option<&SiteEntry> {
        self.sites.iter().find(|site| site.name.as_str() == name)
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
        let site = Changed::Site;
        match change {
            RegistryChange::Join(entry) => {
                if let Some(there) = self.site_named(entry.name.as_str()) {
                    let same = there.incarnation == entry.incarnation;
                    let taken = RegistryError::NameTaken(entry.name.clone());
                    return if same { Ok(site(there.id)) } else { Err(taken) };
                }
                if self.sites.len() >= limits::SITES_MAX {
                    return Err(RegistryError::TooManySites);
                }
                let id = SiteId(self.site_next);
                self.site_next += 1;
                self.sites.push(SiteEntry { id, leaving: false, ..entry.clone() });
                self.changes += 1;
                Ok(site(id))
            }
            RegistryChange::Update(entry) => {
                let site_there = self.site_mut(entry.id)?;
                let updated = SiteEntry {
                    name: site_there.name.clone(),
                    incarnation: site_there.incarnation,
                    leaving: site_there.leaving,
                    ..entry.clone()
                };
                if *site_there != updated {
                    *site_there = updated;
                    self.changes += 1;
                }
                Ok(site(entry.id))
            }
            RegistryChange::Node(id, entry) => {
                let nodes = &mut self.site_mut(*id)?.nodes;
                match nodes.binary_search_by_key(&entry.node, |node| node.node) {
                    Ok(at) if nodes[at] == *entry => return Ok(site(*id)),
                    Ok(at) => nodes[at] = entry.clone(),
                    Err(at) => nodes.insert(at, entry.clone()),
                }
                self.changes += 1;
                Ok(site(*id))
            }
            // The asked site may not have known yet that the site is lost: that one has nothing to hand over
            // any more, and does not answer.
            RegistryChange::Leave(id) if self.is_lost(*id) => {
                self.check_all_asked(*id)?;
                self.change_at(&RegistryChange::Remove(*id), version)
            }
            RegistryChange::Leave(id) => {
                if self.failovers.open.as_ref().is_some_and(|open| open.lost == *id) {
                    self.check_no_failover()?;
                }
                let others_stay = self.sites.iter().any(|site| site.id != *id && !site.leaving);
                self.check_not_last_holder(*id)?;
                let leaver = self.site_mut(*id)?;
                if !others_stay {
                    return Err(RegistryError::LastSite(leaver.name.clone()));
                }
                if !std::mem::replace(&mut leaver.leaving, true) {
                    self.changes += 1;
                    self.forget_next_root(*id, version);
                }
                Ok(site(*id))
            }
            RegistryChange::Remove(id) => {
                self.check_no_failover()?;
                self.check_no_root(*id)?;
                let at = self.sites.iter().position(|site| site.id == *id);
                if let Some(at) = at {
                    self.sites.remove(at);
                    self.backups.forget(*id);
                    self.failovers.site_gone(*id);
                    self.forget_next_root(*id, version);
                    let others = |site: &SiteId| *site != *id;
                    let set = self.registrars.set.sites().iter().copied().filter(others);
                    self.registrars.set = set.collect();
                    if self.registrars.set.is_empty() {
                        let rest: Vec<SiteId> = self.sites.iter().map(|site| site.id).collect();
                        self.registrars.set = self.choose_registrars(&rest);
                    }
                    self.changes += 1;
                }
                Ok(site(*id))
            }
            RegistryChange::RemoveTo { site, destinations } => {
                let stays = |id: &SiteId| self.staying().any(|entry| entry.id == *id);
                if let Some(gone) = destinations.iter().find(|id| !stays(id)) {
                    let unnamed = SiteName::new(gone.to_string()).expect("a site's id is a name");
                    let name = self.site(*gone).map_or(unnamed, |entry| entry.name.clone());
                    return Err(RegistryError::ReceiverLeaves(name));
                }
                self.change_at(&RegistryChange::Remove(*site), version)
            }
            RegistryChange::Backup(id, choice) => {
                let name = self.site_mut(*id)?.name.clone();
                match choice {
                    BackupChoice::At(at) if at == id => return Err(RegistryError::OwnBackup(name)),
                    BackupChoice::At(at) => drop(self.site_mut(*at)?),
                    _ => {}
                }
                self.changes += u64::from(self.backups.choose(*id, *choice));
                Ok(site(*id))
            }
            RegistryChange::OpenFailover { lost, without } => {
                self.site_mut(*lost)?;
                let opened = self.failovers.open(version, *lost, without);
                self.changes +=
                    u64::from(opened.or_else(|_| self.check_no_failover().map(|()| false))?);
                Ok(site(*lost))
            }
            RegistryChange::DecideFailover { opened, taken } => {
                let open = self.failovers.open.as_ref().ok_or(RegistryError::NoFailover)?;
                let lost = open.lost;
                if !self.failovers.decide(version, *opened, taken.clone()) {
                    return Err(RegistryError::NoFailover);
                }
                if self.keyspaces.iter().any(|keyspace| keyspace.spec.lends()) {
                    self.failovers.note_last(lost, version);
                }
                self.changes += 1;
                Ok(site(lost))
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
                Ok(site(*id))
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
            RegistryChange::SetStandby(rule) => self.set_standby(*rule, version),
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
            RegistryChange::Registrar(id) => {
                self.site_mut(*id)?;
                let stays =
                    |site: &SiteEntry| site.id == *id || self.registrars.set.contains(site.id);
                let is_staying = self.staying().any(|site| site.id == *id);
                if is_staying && !self.registrars.set.contains(*id) && self.registrars_missing() > 0
                {
                    let set = self.staying().filter(|site| stays(site)).map(|site| site.id);
                    self.registrars.set = set.collect();
                    self.changes += 1;
                }
                Ok(site(*id))
            }
        }
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
        let mut spec = spec.clone();
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

    fn drop_keyspace(&mut self, name: &str) -> Result<Changed, RegistryError> {
        if name == KeyspaceSpec::default_keyspace().name {
            return Err(RegistryError::DefaultKeyspace);
        }
        let at = self.keyspaces.iter().position(|keyspace| keyspace.spec.name == name);
        let at = at.ok_or_else(|| RegistryError::NoKeyspace(name.to_owned()))?;
        self.changes += 1;
        Ok(Changed::Dropped(self.keyspaces.remove(at).id))
    }

    fn site_mut(&mut self, id: SiteId) -> Result<&mut SiteEntry, RegistryError> {
        let site = self.sites.iter_mut().find(|site| site.id == id);
        site.ok_or_else(|| RegistryError::NoSite(id.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientId;

    fn entry(name: &str, incarnation: u64) -> SiteEntry {
        SiteEntry {
            id: SiteId(0),
            name: SiteName::new(name).unwrap(),
            incarnation,
            capacity_percent: 100,
            leaving: false,
            nodes: Vec::new(),
        }
    }

    fn registry() -> Registry {
        Registry {
            sites: vec![SiteEntry { id: SiteId(1), ..entry("a", 1) }],
            site_next: 2,
            ..Registry::empty(DeploymentId(7), 1)
        }
    }

    #[test]
    fn a_site_joins_once_however_often_it_asks() {
        let mut registry = registry();
        let join = RegistryChange::Join(entry("b", 9));
        assert_eq!(registry.change(&join), Ok(Changed::Site(SiteId(2))));
        assert_eq!(registry.change(&join), Ok(Changed::Site(SiteId(2))));
        assert_eq!((registry.changes, registry.sites.len()), (2, 2));
        let other = RegistryChange::Join(entry("b", 10));
        assert!(matches!(registry.change(&other), Err(RegistryError::NameTaken(_))));
    }

    #[test]
    fn ids_are_not_used_again() {
        let mut registry = registry();
        assert_eq!(
            registry.change(&RegistryChange::Join(entry("b", 9))),
            Ok(Changed::Site(SiteId(2)))
        );
        assert_eq!(
            registry.change(&RegistryChange::Remove(SiteId(2))),
            Ok(Changed::Site(SiteId(2)))
        );
        assert_eq!(
            registry.change(&RegistryChange::Join(entry("b", 9))),
            Ok(Changed::Site(SiteId(3)))
        );
    }

    #[test]
    fn the_last_site_that_stays_stays() {
        let mut registry = registry();
        registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
        assert_eq!(
            registry.change(&RegistryChange::Leave(SiteId(1))),
            Ok(Changed::Site(SiteId(1)))
        );
        let last = registry.change(&RegistryChange::Leave(SiteId(2)));
        assert!(matches!(last, Err(RegistryError::LastSite(_))));
        assert!(registry.change(&RegistryChange::Leave(SiteId(9))).is_err());
    }

    #[test]
    fn a_lost_site_that_is_to_leave_is_removed_and_not_while_its_failover_is_open() {
        let mut registry = registry();
        registry.change(&RegistryChange::Join(entry("b", 9))).unwrap();
        let (lost, at) = (SiteId(2), |round| Ballot { round, ..Ballot::FIRST });
        registry.failovers.open(at(5), lost, &[]).unwrap();
        let early = registry.change(&RegistryChange::Leave(lost));
        assert!(matches!(early, Err(RegistryError::FailoverOpen(_))), "{early:?}");
        assert!(registry.failovers.decide(at(6), at(5), Vec::new()));
        registry.change(&RegistryChange::Leave(lost)).unwrap();
        assert_eq!(registry.site(lost), None, "it could not hand anything over");
    }

    #[test]
    fn a_lost_site_stays_while_a_site_that_was_not_asked_may_have_its_slots() {
        let mut registry = registry();
        for (name, incarnation) in [("b", 9), ("c", 10)] {
            registry.change(&RegistryChange::Join(entry(name, incarnation))).unwrap();
        }
        let ([a, b, c], at) =
            ([SiteId(1), SiteId(2), SiteId(3)], |round| Ballot { round, ..Ballot::FIRST });
        let decide = |registry: &mut Registry, round, lost, without: &[SiteId]| {
            let slots: crate::SlotSet = "7".parse().unwrap();
            let taken = vec![Taken { by: a, slots, from: None }];
            registry.failovers.open(at(round), lost, without).unwrap();
            assert!(registry.failovers.decide(at(round + 1), at(round), taken));
        };
        let refused = |registry: &mut Registry, id| {
            let outcome = registry.change(&RegistryChange::Leave(id));
            matches!(outcome, Err(RegistryError::NotAllAsked(_)))
        };
        decide(&mut registry, 5, b, &[a]);
        assert!(refused(&mut registry, b), "a may have slots of b");
        decide(&mut registry, 7, b, &[]);
        let mut both = registry.clone();
        registry.change(&RegistryChange::Leave(b)).unwrap();
        // Of two that are lost, neither of which was asked, the last one stays for a failover that asks all.
        decide(&mut both, 9, b, &[c]);
        assert!(refused(&mut both, b), "c is not lost");
        let mut asked = both.clone();
        decide(&mut asked, 11, c, &[]);
        assert!(refused(&mut asked, b), "no other failover has to come");
        decide(&mut both, 11, c, &[b]);
        both.change(&RegistryChange::Leave(b)).unwrap();
        assert!(refused(&mut both, c), "slots of b may be at no other site");
        decide(&mut both, 13, c, &[]);
        both.change(&RegistryChange::Leave(c)).unwrap();
        assert_eq!(both.sites.len(), 1);
    }

    #[test]
    fn an_update_changes_what_a_site_says_of_itself_only() {
        let mut registry = registry();
        let nodes = vec![NodeEntry { node: NodeId(1), peer: "h:1".into(), cluster: String::new() }];
        let update = SiteEntry { id: SiteId(1), nodes: nodes.clone(), ..entry("zzz", 5) };
        let update = RegistryChange::Update(update);
        registry.change(&update).unwrap();
        registry.change(&update).unwrap();
        let site = registry.site(SiteId(1)).unwrap();
        assert_eq!((site.name.as_str(), site.incarnation, &site.nodes), ("a", 1, &nodes));
        assert_eq!(registry.changes, 2);
    }

    #[test]
    fn a_change_that_is_asked_for_again_is_done_once() {
        let mut registry = registry();
        let id = |sequence| RequestId {
            client: ClientId(5),
            sequence,
            acknowledged_below: sequence.saturating_sub(1),
        };
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let create = RegistryChange::CreateKeyspace(spec.clone());
        let made = Ok(Changed::Keyspace(KeyspaceId(1)));
        let version = registry.version;
        assert_eq!(registry.change_once(id(1), &create, version), made);
        assert_eq!(registry.change_once(id(1), &create, version), made);
        let taken = Err(RegistryError::KeyspaceExists("cars".into()));
        assert_eq!(registry.change_once(id(2), &create, version), taken);
        let dropped = RegistryChange::DropKeyspace("cars".into());
        let gone = Ok(Changed::Dropped(KeyspaceId(1)));
        assert_eq!(registry.change_once(id(3), &dropped, version), gone);
        assert_eq!(registry.change_once(id(2), &create, version), taken, "as it was then");
        assert_eq!(registry.outcomes.len(), 2, "what was acknowledged is forgotten");
        let again = RegistryChange::CreateKeyspace(spec);
        assert_eq!(registry.change(&again), Ok(Changed::Keyspace(KeyspaceId(2))));
    }

    #[test]
    fn registrars_are_as_many_as_the_sites_need() {
        let mut registry = registry();
        registry.begin(SiteId(1));
        let registrars = |registry: &Registry| -> Vec<u32> {
            registry.registrars.set.sites().iter().map(|site| site.0).collect()
        };
        for id in 2..=10 {
            registry.change(&RegistryChange::Join(entry(&format!("s{id}"), id))).unwrap();
        }
        for id in 2..=10 {
            registry.change(&RegistryChange::Registrar(SiteId(id))).unwrap();
        }
        assert_eq!(registrars(&registry), [1, 2, 3, 4, 5]);
        registry.change(&RegistryChange::Leave(SiteId(2))).unwrap();
        assert_eq!(
            (registrars(&registry), registry.registrars_missing()),
            (vec![1, 2, 3, 4, 5], 1)
        );
        registry.change(&RegistryChange::Registrar(SiteId(7))).unwrap();
        assert_eq!(registrars(&registry), [1, 3, 4, 5, 7]);
        registry.change(&RegistryChange::Remove(SiteId(5))).unwrap();
        assert_eq!(registrars(&registry), [1, 3, 4, 7]);
    }
}
