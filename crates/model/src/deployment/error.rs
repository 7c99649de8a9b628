//! Why a change of the registry is refused.

use crate::{KeyspaceError, REPLICAS_MIN, Refusal, SiteName, limits};

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
    /// The site that leaves has to ask the others again.
    #[error(
        "a failover was decided since the other sites reported what they have; the site that leaves asks them again"
    )]
    FailoverDecided,
    /// What only a leaving site had copies of would go after it.
    #[error("{0} has taken copies over from the site that leaves, and leaves itself or is gone")]
    ReceiverLeaves(SiteName),
    /// It was decided or called off.
    #[error("the failover was called off: the lost site answers, or another site has ended it")]
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
        "fewer than {min} sites of the region that stay would hold all causal keyspaces, and no site could take the place of the \
         root: name more sites with --sites, or none, so that all hold the keyspace",
        min = REPLICAS_MIN
    )]
    TooFewHold,
    /// The contents of causal keyspaces would go with it.
    #[error(
        "{0} is the last site that stays and holds all causal keyspaces; it cannot leave until those that other sites lack \
         are dropped: `portolan keyspace list` shows which sites hold which"
    )]
    LastReplica(SiteName),
    /// None of its groups is ever lent.
    #[error(
        "keyspace {0:?} is not adaptive, so its keys are where the hash has them; only keyspaces with scope global and \
         placement adaptive have keys that can be elsewhere (`portolan keyspace alter`)"
    )]
    PinPlacement(String),
    /// Such a group is never lent.
    #[error(
        "the key, or its tag, is longer than {max} bytes, and such keys stay at home; give it a {{tag}}",
        max = limits::LOANS_TAG_BYTES_MAX
    )]
    PinTag,
    /// Its keyspace is not lent there.
    #[error(
        "keyspace {keyspace:?} may not be lent to {site}: `portolan keyspace alter {keyspace} --lend-to …` with that site \
         allows it"
    )]
    PinLendTo {
        /// The keyspace.
        keyspace: String,
        /// The site.
        site: SiteName,
    },
    /// There are as many as there may be.
    #[error(
        "there are {max} pins already; `portolan placement unpin` takes one away, and keys with one tag need one pin",
        max = limits::PINS_MAX
    )]
    TooManyPins,
    /// There is nothing to take away.
    #[error("the key is not pinned; `portolan placement pins` shows those that are")]
    NoPin,
    /// Slots of a lost site may be at sites that its failover did not ask, and no other failover
    /// would take them.
    #[error(
        "the failover of {0} did not ask all sites, or is of before a recovery of the registry, and what they have of its \
         slots would be served by none: ask for \
         `portolan site promote {0}` again, without `--without` but for sites that are lost, and remove it then"
    )]
    NotAllAsked(SiteName),
    /// A region that begins after others would lack what these have ordered.
    #[error(
        "no site is of {name}, and regions are named before the first causal keyspace is made; join it to one of: {all} \
         (`--region`)"
    )]
    NewRegion {
        /// The region.
        name: String,
        /// What the others are called.
        all: String,
    },
    /// There are as many as there may be.
    #[error("a deployment has at most {max} regions", max = limits::REGIONS_MAX)]
    TooManyRegions,
    /// The order of its region would go with it.
    #[error(
        "{0} is the last site of its region that stays; it cannot leave while there are causal keyspaces: another site has to \
         join the region before"
    )]
    LastOfRegion(SiteName),
    /// It cannot order there.
    #[error("{0} is of another region; a region's root and standby are of its own sites")]
    OtherRegion(SiteName),
    /// The region would have no root.
    #[error(
        "no site of {0} that stays would hold the keyspace; name one with --sites, and a second one if there are two"
    )]
    NoneHolds(String),
    /// The region is to be named.
    #[error("there are several regions; name one (`--region`)")]
    WhichRegion,
    /// There is no such region.
    #[error("there is no region {0}; `portolan region show` shows those there are")]
    NoRegionNamed(String),
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
