//! A site's engine while its node starts: where the site's identity and rows come from.

use super::SiteState;
use super::etcd::health::Health;
use super::shell::Shell;
use super::takeover::{self, OwnedSite, Running};
use crate::config::{Config, Engine};
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::node::{Event, Files, StartError};
use protocol::replica::recovery;
use protocol::site::Recovery;
use std::sync::{Arc, mpsc};
use storage::state::fjall::FjallState;

/// An engine before the core runs.
pub(crate) enum Opened {
    /// The node's own log is the truth.
    Embedded,
    /// An etcd cluster is, and this process owns the site there.
    Etcd(Box<OwnedSite>, Health),
}

impl Opened {
    /// Opens the engine of the configuration. For etcd this waits until the process owns the site,
    /// whose identity there replaces `own`. `process` identifies this process among those of the
    /// site.
    pub(crate) fn open(
        config: &Config,
        own: &mut Identity,
        process: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Opened, StartError> {
        let Engine::Etcd(etcd) = &config.engine else { return Ok(Opened::Embedded) };
        let health = Health::new(metrics);
        let kept = takeover::take_over(config, etcd, own, process, health.clone())?;
        *own = kept.site().clone();
        Ok(Opened::Etcd(Box::new(kept), health))
    }

    /// The condition of the etcd cluster, where there is one.
    pub(crate) fn health(&self) -> Option<Health> {
        match self {
            Opened::Embedded => None,
            Opened::Etcd(_, health) => Some(health.clone()),
        }
    }

    /// The state that the core will run on. Rows of etcd replace what `state` has.
    pub(crate) fn fill(&mut self, state: FjallState) -> Result<SiteState, StartError> {
        match self {
            Opened::Embedded => Ok(SiteState::silent(state)),
            Opened::Etcd(kept, _) => kept.fill(state),
        }
    }

    /// The replica as the files, or etcd's rows, leave it. `address`: of this node's peer port.
    pub(crate) fn recover(
        &mut self,
        files: &mut Files,
        address: &str,
    ) -> Result<Recovery<SiteState>, StartError> {
        let Files { recovered, writer, snapshots, state, .. } = files;
        match self {
            Opened::Embedded => {
                let mut warn = |what: String| tracing::warn!("{what}");
                Ok(recovery::recover(recovered, writer, snapshots, state.clone(), &mut warn)?)
            }
            Opened::Etcd(kept, _) => {
                let (found, replica) = kept.recover(state.clone(), address, writer)?;
                *recovered = found;
                Ok(replica)
            }
        }
    }

    /// The part for the site's thread; and for etcd what runs on a thread of its own.
    pub(crate) fn run(
        self,
        events: mpsc::Sender<Event>,
    ) -> (Shell, Option<impl FnOnce() + Send + 'static>) {
        match self {
            Opened::Embedded => (Shell::Embedded, None),
            Opened::Etcd(kept, _) => {
                let (running, flusher): (Running, _) = kept.run(events);
                (Shell::Etcd(Box::new(running)), Some(flusher))
            }
        }
    }
}
