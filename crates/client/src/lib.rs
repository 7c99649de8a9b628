//! The Rust client: gRPC to one site, with retries that are applied once.
//!
//! A [`Client`] knows several nodes of one site and talks to one of them at a time. A call that
//! meets a dead node, a site between two leaders or a lost answer is sent again, to another node if
//! need be, until its deadline. A write carries the same request id each time, so the site applies
//! it once. What is left is said plainly: [`Error::Unknown`] means that a write may or may not have
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
//! // Only if nobody has moved it in between.
//! let moved = cars.compare_and_set("car:7", found.version, "Pier 41").await?;
//! assert!(moved.applied);
//!
//! // A lock that frees itself after ten seconds.
//! let lock = Put { condition: Condition::IfAbsent, expiry: Expiry::AfterMs(10_000), ..Put::default() };
//! if cars.put_with("lock", "me", lock).await?.applied { /* … */ }
//!
//! // What happens from now on, across broken connections.
//! let mut watch = cars.watch("car:").await?;
//! loop {
//!     let news = watch.next().await?;
//!     for change in news.changes {
//!         println!("{} {:?} {:?}", change.revision, change.kind, change.key);
//!     }
//! }
//! # }
//! ```
//!
//! What it leaves out: it does not find the nodes of a site by itself, and it does not move between
//! sites.

mod batch;
mod call;
mod cluster;
mod connection;
mod deployment;
mod error;
mod keyspace;
mod nodes;
mod order;
mod sequence;
mod stream;
mod tries;

pub use batch::{Batch, BatchOutcome, StepOutcome};
pub use cluster::{Backup, Cluster, KeyspaceInfo};
pub use deployment::Deployment;
pub use error::{ConnectError, Error};
pub use keyspace::{Found, Keyspace, Put, PutOutcome, Watched};
pub use order::MoveOrder;
pub use stream::{Change, News, Scan, ScanRange, Watch};
pub use tries::Trying;
pub use wire::grpc::v1;

use std::sync::Arc;
use std::time::Duration;

/// How a client calls.
#[derive(Clone, Debug)]
pub struct Options {
    /// A call is given up after this, with all its retries.
    pub deadline: Duration,
    /// One attempt is given up after this, and the next node is asked: what a node that hangs costs.
    pub attempt_deadline: Duration,
    /// Name and password, where the nodes have users.
    pub credentials: Option<Credentials>,
    /// TLS, where the nodes have it.
    pub tls: Option<Tls>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            deadline: Duration::from_secs(10),
            attempt_deadline: Duration::from_secs(3),
            credentials: None,
            tls: None,
        }
    }
}

/// Who the client is.
#[derive(Clone)]
pub struct Credentials {
    /// The user's name; without a colon.
    pub name: String,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    /// Without the password: what is printed ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// TLS towards the nodes, in PEM form.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Who signs the nodes' certificates.
    pub ca: String,
    /// Certificate chain and private key of this client, where the nodes ask for one.
    pub identity: Option<(String, String)>,
    /// The name in the nodes' certificates, if it is not the host they are called by.
    pub domain: Option<String>,
}

/// A client of one site. Cheap to clone; clones share connections and the order of requests.
#[derive(Clone)]
pub struct Client {
    caller: Arc<call::Caller>,
}

impl Client {
    /// A client of the site that these nodes belong to: gRPC ports as `host:port` (or
    /// `http://host:port`). Connects when it is first used, so a node that is down is no error here.
    pub fn connect<S: AsRef<str>>(
        nodes: impl IntoIterator<Item = S>,
        options: Options,
    ) -> Result<Client, ConnectError> {
        Ok(Client { caller: Arc::new(call::Caller::new(nodes, options)?) })
    }

    /// The keyspace of this name, read linearizably. That it exists is found out by using it.
    pub fn keyspace(&self, name: impl Into<String>) -> Keyspace {
        Keyspace::new(self.caller.clone(), name.into())
    }

    /// What is being tried, for whoever waits for it: the last call that has not ended. `None`: no call
    /// is under way.
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
