//! The sites that sessions of a program may use, and the tasks that measure them.

use super::distance::{Distances, Roaming};
use super::error::SitesError;
use super::place::lock;
use super::reach::ping;
use super::session::RoamingSession;
use crate::call::Caller;
use crate::{ConnectError, Options};
use model::Bytes;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::sleep;
use tonic::metadata::{Ascii, MetadataValue};

/// The time limit of a ping.
const PING_DEADLINE: Duration = Duration::from_secs(1);

/// The sites of a deployment that sessions may use. Cheap to clone; the sessions of a program share
/// one, with its connections. Has to be made and used inside one Tokio runtime.
#[derive(Clone)]
pub struct Sites {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) names: Vec<String>,
    pub(super) callers: Vec<Caller>,
    pub(super) distances: Mutex<Distances>,
    pub(super) rule: Roaming,
    /// The names as calls carry them; fewer than sites: one of them cannot be a site's name.
    pub(super) tried: Vec<MetadataValue<Ascii>>,
    /// Keyspaces whose puts are not sent elsewhere: they are not causal, or not at all sites.
    stay: Mutex<BTreeSet<String>>,
    is_measuring: AtomicBool,
}

impl Sites {
    /// Sites by their names in the deployment (`portolan site list`), each with the gRPC ports of
    /// its nodes as `host:port`: under other names a put that gets no answer is not sent to another
    /// site. Connects on first use. The deadlines are those of `roaming`; `options` has credentials
    /// and TLS.
    pub fn connect<N: Into<String>, S: AsRef<str>>(
        sites: impl IntoIterator<Item = (N, Vec<S>)>,
        options: &Options,
        roaming: Roaming,
    ) -> Result<Sites, SitesError> {
        let rule = roaming.checked()?;
        let (mut names, mut callers) = (Vec::new(), Vec::new());
        for (name, nodes) in sites {
            names.push(name.into());
            callers.push(Caller::new(nodes, options.clone())?);
        }
        if callers.is_empty() {
            return Err(ConnectError::NoNode.into());
        }
        let distances = Mutex::new(Distances::new(names.len()));
        let tried = names.iter().filter_map(|name| name.parse().ok()).collect();
        let (stay, is_measuring) = (Mutex::default(), AtomicBool::new(false));
        let inner = Inner { names, callers, distances, rule, tried, stay, is_measuring };
        Ok(Sites { inner: Arc::new(inner) })
    }

    /// A session that has seen nothing.
    pub fn session(&self) -> RoamingSession {
        self.session_of_token(Bytes::new())
    }

    /// Goes on with the session of a token: of another process, or from PORTOLAN.TOKEN (decoded).
    pub fn session_of_token(&self, token: impl Into<Bytes>) -> RoamingSession {
        RoamingSession::new(self.inner.clone(), token.into())
    }

    /// The median of the last pings of a site; `None`: too few were answered, or there is no such
    /// site.
    pub fn distance(&self, site: &str) -> Option<Duration> {
        lock(&self.inner.distances).of(self.inner.find(site)?)
    }
}

impl Inner {
    pub(super) fn find(&self, site: &str) -> Option<usize> {
        self.names.iter().position(|name| name == site)
    }

    /// Whether puts of this keyspace may be sent to another site.
    pub(super) fn go_elsewhere(&self, keyspace: &str) -> bool {
        let names_all = self.tried.len() == self.names.len();
        self.rule.elsewhere
            && self.names.len() > 1
            && names_all
            && !lock(&self.stay).contains(keyspace)
    }

    /// They may not.
    pub(super) fn stays_there(&self, keyspace: &str) {
        lock(&self.stay).insert(keyspace.to_owned());
    }

    /// Measures from now on, if there is something to choose. What is read for that is a key of
    /// this keyspace.
    pub(super) fn measure(self: &Arc<Inner>, keyspace: &str) {
        if !self.rule.nearer || self.names.len() < 2 {
            return;
        }
        if self.is_measuring.swap(true, Ordering::Relaxed) {
            return;
        }
        for site in 0..self.names.len() {
            let (inner, keyspace) = (Arc::downgrade(self), keyspace.to_owned());
            tokio::spawn(measure_one(inner, site, keyspace, self.rule.ping_every));
        }
    }
}

/// Measures a site until there is no session and no handle any more.
async fn measure_one(inner: Weak<Inner>, site: usize, keyspace: String, every: Duration) {
    while let Some(inner) = inner.upgrade() {
        match ping(&inner.callers[site], &keyspace, PING_DEADLINE).await {
            Some(took) => lock(&inner.distances).answered(site, took),
            None => lock(&inner.distances).failed(site),
        }
        drop(inner);
        sleep(every).await;
    }
}
