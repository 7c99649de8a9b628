//! Starts a core from a site stored in etcd.
//!
//! First an unfinished round of an earlier owner is completed (`redo`), then all rows are read into
//! the local state, which is emptied before: it is only a copy. The core starts behind the log
//! entry that the rows represent, with an empty log, as after a restored backup.
//!
//! The site's *identity* is in etcd too: a process that takes over on another machine is the same
//! node of the same site. Only its address differs, and updating it is the new owner's first
//! change.

use super::etcd::health::Health;
use super::etcd::owner::Owner;
use super::flusher::Flusher;
use super::locked::{Ended, Locked, Op};
use super::output_buffer::{OutputBuffer, Released};
use super::recording::{Changes, Recorded, Recorder};
use super::redo;
use super::rows::{CutRows, end_of};
use crate::config::{Config, EtcdConfig};
use crate::identity::Identity;
use crate::node::{Event, StartError};
use model::Bytes;
use protocol::replica::recovery;
use protocol::site::Recovery;
use protocol::site::machine::{Committed, Machine};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use storage::log::{HardState, LogStart, LogWriter as _, Recovered, Writer};
use storage::state::fjall::{FjallState, FjallView};
use storage::state::{Batch, State as _};
use wire::peer::Member;

const IDENTITY: &[u8] = b"identity";

/// A site in etcd that this process owns, before its core runs.
pub(crate) struct OwnedSite<F = Owner> {
    store: F,
    cut: CutRows,
    recorder: Arc<Recorder>,
    site: Identity,
}

/// Waits until this process owns the site, and empties the local copies in the data directory.
pub(crate) fn take_over(
    config: &Config,
    etcd: &EtcdConfig,
    own: &Identity,
    process: u64,
    health: Health,
) -> Result<OwnedSite, StartError> {
    let mut store = Owner::campaign(etcd, own.incarnation, process, health)?;
    let site = match identify(&mut store, config, etcd, own) {
        Ok(site) => site,
        Err(error) => {
            // The right process need not wait for the end of this lease.
            store.resign();
            return Err(error);
        }
    };
    for copy in ["log", "snapshots", "state"] {
        empty(&config.data.join(copy))?;
    }
    Ok(OwnedSite { store, cut: CutRows::default(), recorder: Arc::default(), site })
}

fn empty(folder: &Path) -> Result<(), StartError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(StartError::System {
            what: "to empty a folder of copies",
            cause: format!("{}: {error}", folder.display()),
        }),
        _ => Ok(()),
    }
}

/// Checks that the site in etcd is this node's, or creates it for this node.
fn identify(
    store: &mut impl Locked,
    config: &Config,
    etcd: &EtcdConfig,
    own: &Identity,
) -> Result<Identity, StartError> {
    let place = format!("etcd's {}", etcd.prefix);
    let found = store.page(IDENTITY, &end_of(IDENTITY), 1)?;
    let Some((_, text)) = found.first() else {
        let mut site = own.clone();
        (site.member, site.let_in) = (false, false);
        save(store, &site)?;
        return Ok(site);
    };
    let site = Identity::parse(place.as_ref(), &String::from_utf8_lossy(text))?;
    site.check(place.as_ref(), &config.site, config.node)?;
    Ok(site)
}

fn save(store: &mut impl Locked, site: &Identity) -> Result<(), Ended> {
    let (key, value) = (Bytes::from_static(IDENTITY), Bytes::from(site.to_toml()));
    store.commit(vec![Op::Put { key, value }])
}

impl<F: Locked> OwnedSite<F> {
    /// The site's identity, which replaces the data directory's.
    pub(crate) fn site(&self) -> &Identity {
        &self.site
    }

    /// Records in etcd that the site has joined a deployment.
    pub(crate) fn was_let_in(&mut self) -> Result<(), StartError> {
        self.site.let_in = true;
        Ok(save(&mut self.store, &self.site)?)
    }

    /// The state with all rows from etcd; its changes are recorded from here on.
    pub(crate) fn fill(&mut self, state: FjallState) -> Result<Recorded<FjallState>, StartError> {
        redo::recover(&mut self.store)?;
        let began = std::time::Instant::now();
        let mut take = |rows: Vec<(Bytes, Bytes)>| {
            let mut batch = Batch::with_capacity(rows.len());
            rows.into_iter().for_each(|(key, value)| batch.put(key, value));
            state.commit(batch).map_err(|error| Ended::Failed(error.to_string()))
        };
        let rows = self.cut.read(&mut self.store, &mut take)?;
        // Checks that no other process has written meanwhile: the rows read might not be
        // consistent.
        self.store.check()?;
        if rows > 0 {
            tracing::info!("read {rows} rows from etcd in {} ms", began.elapsed().as_millis());
        }
        Ok(Recorded::recording(state, self.recorder.clone()))
    }

    /// The core's state as of the rows; without rows a new site is created. `address`: of this
    /// process's peer port.
    pub(crate) fn recover(
        &mut self,
        state: Recorded<FjallState>,
        address: &str,
        writer: &mut Writer,
    ) -> Result<(Recovered, Recovery<Recorded<FjallState>>), StartError> {
        let wrong = |error: &dyn ToString| StartError::System {
            what: "to go on with what is in etcd",
            cause: error.to_string(),
        };
        let mut machine = Machine::open(state.clone()).map_err(|error| wrong(&error))?;
        let member = Member {
            node: self.site.node,
            address: address.to_owned(),
            incarnation: self.site.incarnation,
            witness: false,
            since: 0,
        };
        let members = recovery::first_members(member);
        let encoded = recovery::encode_members(&members);
        if machine.members().map_err(|error| wrong(&error))?.as_ref() != Some(&encoded) {
            let last = machine.applied();
            let (index, term) = (last.index + 1, last.term + 1);
            let entry = Committed { index, term, batch: None, members: Some(encoded) };
            machine.apply(&[entry], &mut Vec::new()).map_err(|error| wrong(&error))?;
            let changes = self.recorder.take();
            redo::flush(&mut self.store, &mut self.cut, &changes, &mut || {})?;
        }
        if !self.site.member {
            self.site.member = true;
            save(&mut self.store, &self.site)?;
        }
        let applied = machine.applied();
        let start = LogStart { index: applied.index, term: applied.term };
        writer.restart(start)?;
        let recovered = Recovered {
            hard_state: HardState { term: applied.term, vote: 0, commit: applied.index },
            start,
            last_index: applied.index,
            terms: Vec::new(),
            torn_bytes: 0,
        };
        Ok((recovered, Recovery { state, machine, members, snapshot: None }))
    }
}

/// The parts that are needed while the core runs.
pub(crate) struct Running {
    /// The outputs that the site's thread holds back.
    pub(super) buffer: OutputBuffer<FjallView>,
    /// Outputs that may leave since the last round.
    pub(super) released: Option<Released<FjallView>>,
    /// When set, all waiting for etcd ends.
    stopping: Arc<AtomicBool>,
}

impl OwnedSite {
    /// Returns the part for the site's thread, and the function to run on a thread of its own.
    pub(crate) fn run(mut self, events: mpsc::Sender<Event>) -> (Running, impl FnOnce() + Send) {
        let (rounds, inbox) = mpsc::channel::<Changes>();
        let room = events.clone();
        self.store.report_room(Box::new(move |full| {
            let _ = room.send(full.map_or(Event::DiskHasRoom, Event::DiskFull));
        }));
        let buffer = OutputBuffer::new(self.recorder, rounds);
        let stopping = self.store.stopping();
        let flusher = Flusher { store: self.store, cut: self.cut, rounds: inbox, events };
        let run = move || {
            if let Some(mut store) = flusher.run() {
                store.resign();
            }
        };
        (Running { buffer, released: None, stopping }, run)
    }
}

impl Running {
    /// Ends all waiting for etcd.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
