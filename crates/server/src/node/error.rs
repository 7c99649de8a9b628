//! Why a node does not start.

use crate::engine::etcd::EtcdError;
use crate::engine::locked::Ended;
use crate::identity::IdentityError;
use crate::peers::PeersError;
use crate::tls::TlsError;
use model::SiteName;
use protocol::replica::recovery::RecoveryError;
use std::net::SocketAddr;
use storage::log::LogError;
use storage::snapshot::SnapshotError;
use storage::state::StateError;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory is not this node's, or cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The snapshots cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// Log, snapshot and state do not fit together.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The node has no valid credentials for other nodes, or its secret cannot be used.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// A port cannot be opened.
    #[error("--{flag} {address} cannot be opened: {cause}")]
    Port {
        /// The flag without its dashes.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The etcd cluster of the site's keys cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another process took the site over during the start; started again, this one waits.
    #[error("{0}")]
    Deposed(String),
    /// A token to join with, and no node to join at.
    #[error(
        "there is a token to join with (--join-token-file), but no --join that names a node of the \
         deployment; to begin a deployment, leave the token out"
    )]
    NowhereToJoin,
    /// The site refuses this node.
    #[error("the site refuses this node: {0}")]
    Join(String),
    /// The site has left its deployment, and cannot come back as the same site.
    #[error(
        "site {site} has left its deployment, and {data} has its data from then: to have it join \
         again start it on an empty data directory, or without --join for the keys of its own"
    )]
    Left {
        /// The site.
        site: SiteName,
        /// Its data directory.
        data: String,
    },
    /// The site has joined in another region.
    #[error(
        "site {site} has joined in the region {region}, and stays in it: start its nodes with --region {region} or without \
         it, not with --region {stated}; another region needs another site"
    )]
    OtherRegion {
        /// The site.
        site: SiteName,
        /// Its region.
        region: String,
        /// The one that this node is started with.
        stated: SiteName,
    },
    /// The system refuses a thread or random numbers.
    #[error("the system refuses {what}: {cause}")]
    System {
        /// The request to the system.
        what: &'static str,
        /// The system's error.
        cause: String,
    },
}

impl From<Ended> for StartError {
    fn from(ended: Ended) -> StartError {
        match ended {
            Ended::Lost(why) => StartError::Deposed(why),
            Ended::Failed(why) => EtcdError::Refused(why).into(),
            Ended::Stopped => StartError::Deposed("it was stopped".to_owned()),
        }
    }
}

/// The system refuses something that a start needs.
pub(super) fn system(what: &'static str, cause: impl ToString) -> StartError {
    StartError::System { what, cause: cause.to_string() }
}
