//! A deployment: the sites that keep global keys together, and what all of them must agree on.

mod change;
mod error;
mod pins;
mod regions;

use crate::backup::Backups;
use crate::failover::Failovers;
use crate::recovery::TermBegan;
use crate::{
    Ballot, Keyspace, KeyspaceId, NodeId, Region, RegistrarSet, Registrars, RequestId, SiteId,
    SiteName, Term,
};
pub use change::RegistryChange;
pub use error::RegistryError;
pub use pins::Pin;
pub(crate) use regions::described;

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
    /// What came of the latest changes, oldest first, so that one that is asked for again is done
    /// once.
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
    /// Sites that joined beyond the end of a term and have handed that in since, ordered by id. One
    /// of them that is not listed has left.
    pub handed_in: Vec<SiteId>,
    /// The regions of causal keyspaces, ordered by id: none before there is one, then one of each
    /// name that a site that stays has.
    pub regions: Vec<Region>,
    /// Groups that stay at one site, ordered; at most [`crate::limits::PINS_MAX`].
    pub pins: Vec<Pin>,
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
    /// What it can fail together with: sites of one name. `None`: it fails alone.
    pub failure_domain: Option<SiteName>,
    /// The region that it is of, from when it joins: sites of one name. `None`: that of the sites
    /// that name none.
    pub region: Option<SiteName>,
    /// How many bytes of other sites' groups it takes. `None`: as many as come.
    pub borrowed_bytes_max: Option<u64>,
    /// Its nodes, ordered by id.
    pub nodes: Vec<NodeEntry>,
}

impl SiteEntry {
    /// A site that stays, with one share of the slots, a failure domain of its own, no region and
    /// no nodes yet.
    pub fn new(id: SiteId, name: SiteName) -> SiteEntry {
        let (incarnation, capacity_percent) = (u64::from(id.0), 100);
        let (leaving, failure_domain, region, nodes) = (false, None, None, Vec::new());
        SiteEntry {
            id,
            name,
            incarnation,
            capacity_percent,
            leaving,
            failure_domain,
            region,
            borrowed_bytes_max: None,
            nodes,
        }
    }

    /// The failure domain of a site that one of its nodes states. A node that states none leaves
    /// what is known; the name `none` states that the site fails alone.
    pub fn domain(stated: Option<&SiteName>, known: Option<&SiteName>) -> Option<SiteName> {
        stated.or(known).filter(|name| name.as_str() != "none").cloned()
    }

    /// The bytes of others' groups that a site takes which one of its nodes states. A node that states
    /// none leaves what is known; 0 is no limit.
    pub fn limit(stated: Option<u64>, known: Option<u64>) -> Option<u64> {
        stated.or(known).filter(|bytes| *bytes > 0)
    }

    /// The region that the name `none`, or no name, stands for.
    pub fn stated_region(name: Option<&SiteName>) -> Option<SiteName> {
        name.filter(|name| name.as_str() != "none").cloned()
    }
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
            pins: Vec::new(),
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

    /// A site by its id.
    pub fn site(&self, id: SiteId) -> Option<&SiteEntry> {
        let at = self.sites.binary_search_by_key(&id, |site| site.id).ok()?;
        Some(&self.sites[at])
    }

    /// Whether two sites can fail together, as far as is stated.
    pub fn fail_together(&self, one: SiteId, other: SiteId) -> bool {
        let domain = |site| self.site(site).and_then(|site| site.failure_domain.as_ref());
        one == other || domain(one).is_some_and(|of_one| domain(other) == Some(of_one))
    }

    /// A site by its name.
    pub fn site_named(&self, name: &str) -> Option<&SiteEntry> {
        self.sites.iter().find(|site| site.name.as_str() == name)
    }
}
