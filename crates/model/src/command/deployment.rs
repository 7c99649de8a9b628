//! Commands of a site's place in its deployment: the registry, and who may change it.

use super::Properties;
use crate::{
    Ballot, Bytes, DeploymentId, Registry, RegistryChange, Revision, SiteEntry, SiteId, SlotEpochs,
};
use std::fmt;

/// A command of a site's place in its deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentCommand {
    /// Begins a deployment of this site, which holds all slots. Does nothing in a site that belongs
    /// to one.
    Found { deployment: DeploymentId, site: SiteEntry },
    /// Enters a deployment that has taken this site in under this id.
    Enter { site: SiteId, registry: Box<Registry> },
    /// Changes the registry. As a request it is a change that any site can be asked for
    /// ([`crate::Answer::Registered`]); as an entry of a log, the change of a site that is the only
    /// registrar.
    ChangeRegistry(RegistryChange),
    /// Takes a newer version of the registry over.
    LearnRegistry(Box<Registry>),
    /// Keeps the site's pointers of the ring, opaque here.
    SetRing(Bytes),
    /// Every other site has stated what it owns, and this one's records agree: a site that was
    /// restored from a backup serves its slots again.
    Confirm,
    /// The same, with what others have of the site's life before it was restored.
    ConfirmAbove {
        /// Copies of its slots, up to this revision.
        revision: Revision,
        /// Slots of its own that they have learned of at later epochs of its.
        later: SlotEpochs,
    },
    /// A step of this site as one that holds the registry, or as one that changes it.
    /// [`crate::Answer::Registrar`].
    Registrar(RegistrarStep),
}

/// A step of a registrar, or of a site that makes an attempt to change the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrarStep {
    /// Writes down a ballot for an attempt of this site's, above one that was refused.
    Reserve(Ballot),
    /// Writes down a ballot that begins the next term.
    ReserveTerm,
    /// Promises to refuse lower ballots.
    Prepare(Ballot),
    /// Accepts a registry of this ballot.
    Accept(Ballot, Box<Registry>),
}

impl DeploymentCommand {
    pub(super) fn properties(&self) -> Properties {
        match self {
            DeploymentCommand::ChangeRegistry(_)
            | DeploymentCommand::Registrar(RegistrarStep::Prepare(_) | RegistrarStep::Accept(..)) => {
                Properties::new(true, true)
            }
            DeploymentCommand::Found { .. }
            | DeploymentCommand::Enter { .. }
            | DeploymentCommand::LearnRegistry(_)
            | DeploymentCommand::SetRing(_)
            | DeploymentCommand::Confirm
            | DeploymentCommand::ConfirmAbove { .. }
            | DeploymentCommand::Registrar(_) => Properties::new(true, false),
        }
    }
}

impl fmt::Display for DeploymentCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeploymentCommand::Found { site, .. } => write!(f, "found {}", site.name),
            DeploymentCommand::Enter { site, registry } => {
                write!(f, "enter as {site}, registry {}", registry.version)
            }
            DeploymentCommand::ChangeRegistry(change) => change.fmt(f),
            DeploymentCommand::LearnRegistry(registry) => {
                write!(f, "learn registry {}", registry.version)
            }
            DeploymentCommand::Registrar(step) => match step {
                RegistrarStep::Reserve(_) => f.write_str("reserve a ballot"),
                RegistrarStep::ReserveTerm => f.write_str("reserve a term"),
                RegistrarStep::Prepare(ballot) => write!(f, "promise {ballot}"),
                RegistrarStep::Accept(ballot, _) => write!(f, "accept {ballot}"),
            },
            DeploymentCommand::Confirm => f.write_str("confirm the slots of a restored site"),
            DeploymentCommand::ConfirmAbove { revision, .. } => {
                write!(f, "confirm the slots of a restored site, above {revision}")
            }
            other @ DeploymentCommand::SetRing(_) => write!(f, "{other:?}"),
        }
    }
}

impl fmt::Display for RegistryChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryChange::Join(site) => write!(f, "join {}", site.name),
            RegistryChange::Update(site) => write!(f, "update {}", site.name),
            RegistryChange::Remove(site)
            | RegistryChange::RemoveTo { site, .. }
            | RegistryChange::RemoveBy { site, .. } => {
                write!(f, "remove {site}")
            }
            RegistryChange::Registrar(site) => write!(f, "registrar {site}"),
            RegistryChange::CreateKeyspace(spec) => write!(f, "create keyspace {}", spec.name),
            other => write!(f, "{other:?}"),
        }
    }
}
