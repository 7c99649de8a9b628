//! The Rust client: gRPC with retries that are applied once, and sessions that move among sites.
//!
//! A [`Client`] has several nodes of one site and uses one of them at a time. A call that meets a
//! failed node, a site without a leader or a lost answer is repeated, at another node if need be,
//! until its deadline. A write carries the same request id each time, so the site applies it once.
//! The remaining uncertainty is explicit: [`Error::Unknown`] means that a write may or may not have
//! been applied, every other error means that it was not.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{Client, Options, Put};
//! use model::{Condition, Expiry};
//!
//! let client = Client::connect(["127.0.0.1:7380", "127.0.0.2:7380"], Options::default())?;
//! let cars = client.keyspace("cars");
//!
//! cars.put("car:7", "Pier 39").await?;
//! let found = cars.get("car:7").await?.expect("it was just put");
//!
//! // Only if the car has not been moved in between.
//! let moved = cars.compare_and_set("car:7", found.version, "Pier 41").await?;
//! assert!(moved.applied);
//!
//! // A lock that is released after ten seconds.
//! let lock = Put { condition: Condition::IfAbsent, expiry: Expiry::AfterMs(10_000), ..Put::default() };
//! if cars.put_with("lock", "me", lock).await?.applied { /* … */ }
//!
//! // All changes from now on, across broken connections.
//! let mut watch = cars.watch("car:").await?;
//! loop {
//!     let update = watch.next().await?;
//!     for change in update.changes {
//!         println!("{} {:?} {:?}", change.revision, change.kind, change.key);
//!     }
//! }
//! # }
//! ```
//!
//! A client is of one site. With causal keyspaces a program may be at any site of the deployment: a
//! [`RoamingSession`] of [`Sites`] goes on elsewhere by itself when its site fails or another one
//! is nearer, and has there what it has seen. (A program that moves by itself takes a [`Session`]
//! along.)
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{Options, Roaming, RoamingError, Sites};
//!
//! let addresses = [
//!     ("pier", vec!["10.0.1.1:7380"]),
//!     ("harbour", vec!["10.0.2.1:7380", "10.0.2.2:7380"]),
//! ];
//! let sites = Sites::connect(addresses, &Options::default(), Roaming::default())?;
//! let session = sites.session();
//! let cars = session.keyspace("cars");
//! match cars.put("car:7", "Pier 39").await {
//!     Ok(_) => {}
//!     // Sent, and no answer: it may have been made.
//!     Err(RoamingError::Unknown(_)) => {}
//!     // No site that answers has what the session has seen: call again, or go on without.
//!     Err(RoamingError::Behind(_) | RoamingError::Unordered(_)) => session.begin_anew().await,
//!     Err(error) => return Err(error.into()),
//! }
//! let found = cars.get("car:7").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Left out: the client does not discover sites or their nodes.

mod batch;
mod call;
mod cluster;
mod connection;
mod deployment;
mod error;
mod keyspace;
mod nodes;
mod order;
mod roaming;
mod sequence;
mod session;
mod stream;
mod tries;

pub use batch::{Batch, BatchOutcome, StepOutcome};
pub use cluster::{Backup, Cluster, KeyspaceInfo};
pub use deployment::Deployment;
pub use error::{ConnectError, Error};
pub use keyspace::{Found, Keyspace, Put, PutOutcome, Watched};
pub use order::MoveOrder;
pub use roaming::{
    Roaming, RoamingError, RoamingKeyspace, RoamingScan, RoamingSession, SessionStats, Sites,
    SitesError,
};
pub use session::Session;
pub use stream::{Change, Scan, ScanRange, Watch, WatchUpdate};
pub use tries::Trying;
pub use wire::grpc::v1;

use std::sync::Arc;
use std::time::Duration;

/// The options of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time limit of a call with all its retries.
    pub deadline: Duration,
    /// The time limit of one attempt, after which the next node is tried.
    pub attempt_deadline: Duration,
    /// Name and password, if the nodes have users.
    pub credentials: Option<Credentials>,
    /// TLS, if the nodes use it.
    pub tls: Option<Tls>,
    /// By what the sites know this client: up to 256 printable ASCII characters. Where keyspaces
    /// are adaptive, keys follow it: a program that goes to another site gives the same name there,
    /// and no other program does. `None`: a random one.
    pub name: Option<String>,
    /// Its calls may wait, those of a program that copies or counts keys, say: no key follows it.
    pub uncounted: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            deadline: Duration::from_secs(10),
            attempt_deadline: Duration::from_secs(3),
            credentials: None,
            tls: None,
            name: None,
            uncounted: false,
        }
    }
}

/// The client's credentials.
#[derive(Clone)]
pub struct Credentials {
    /// The user's name; without a colon.
    pub name: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    /// Hides the password, since debug output ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// TLS towards the nodes, in PEM form.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The CA that signs the nodes' certificates.
    pub ca: String,
    /// Certificate chain and private key of this client, if the nodes require one.
    pub identity: Option<(String, String)>,
    /// The name in the nodes' certificates, if it differs from the host in their addresses.
    pub domain: Option<String>,
}

/// A client of one site. Cheap to clone; clones share connections and the order of requests.
#[derive(Clone)]
pub struct Client {
    caller: Arc<call::Caller>,
}

impl Client {
    /// A client of the site that these nodes belong to: gRPC ports as `host:port` (or
    /// `http://host:port`). Connects on first use, so a node that is down is no error here.
    pub fn connect<S: AsRef<str>>(
        nodes: impl IntoIterator<Item = S>,
        options: Options,
    ) -> Result<Client, ConnectError> {
        Ok(Client { caller: Arc::new(call::Caller::new(nodes, options)?) })
    }

    /// The keyspace of this name, with linearizable reads. Whether it exists is checked on use.
    pub fn keyspace(&self, name: impl Into<String>) -> Keyspace {
        Keyspace::new(self.caller.clone(), name.into())
    }

    /// The call in progress, for progress displays: the last one that has not ended. `None`: there
    /// is none.
    pub fn trying(&self) -> Option<Trying> {
        self.caller.trying()
    }

    /// The site's administration.
    pub fn cluster(&self) -> Cluster {
        Cluster::new(self.caller.clone())
    }

    /// The deployment's administration.
    pub fn deployment(&self) -> Deployment {
        Deployment::new(self.caller.clone())
    }
}
