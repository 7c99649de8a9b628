//! The files in a node's data directory: its log, its snapshots and its state.

use super::StartError;
use crate::backup;
use crate::config::Config;
use crate::engine::{Opened, SiteState};
use std::path::Path;
use storage::disk::real::RealDisk;
use storage::log::{Reader, Recovered, Writer};
use storage::snapshot::Folder;
use storage::state::StateError;
use storage::state::fjall::{self, FjallState};

/// What is open of a data directory.
pub(crate) struct Files {
    /// What was found of the log.
    pub(crate) recovered: Recovered,
    pub(crate) writer: Writer,
    pub(crate) reader: Reader,
    pub(crate) snapshots: Folder,
    pub(crate) state: SiteState,
}

impl Files {
    /// Opens them; `engine` fills the state.
    pub(super) fn open(config: &Config, engine: &mut Opened) -> Result<Files, StartError> {
        // First, as they may have filled the disk.
        if let Err(error) = backup::remove_unsent(&config.data) {
            tracing::warn!("backups that were not sent stay in {}: {error}", config.data.display());
        }
        let disk = RealDisk::shared();
        let (recovered, writer, reader) = storage::log::open(&disk, &config.data.join("log"))?;
        let folder = config.data.join("snapshots");
        let snapshots = Folder::open(&disk, &folder, config.disk.reserve_bytes)?;
        let state = engine.fill(open_state(&config.data, state_options(config))?)?;
        if recovered.torn_bytes > 0 {
            tracing::warn!(
                "the log ended in {} bytes of a torn write, which were cut; nothing acknowledged is lost",
                recovered.torn_bytes
            );
        }
        Ok(Files { recovered, writer, reader, snapshots, state })
    }
}

fn state_options(config: &Config) -> fjall::Options {
    // Reading a cached row costs a quarter of reading it from a cached block.
    let block_cache_bytes = config.memory.cache_bytes / 4;
    fjall::Options {
        block_cache_bytes,
        row_cache_bytes: config.memory.cache_bytes - block_cache_bytes,
        memtable_bytes: config.memory.memtable_bytes,
        ..fjall::Options::default()
    }
}

/// Opens the state, or begins a new one if it is damaged: it is rebuilt from snapshot and log.
pub(crate) fn open_state(data: &Path, options: fjall::Options) -> Result<FjallState, StateError> {
    let path = data.join("state");
    match FjallState::open(&path, options) {
        Err(StateError::Damaged { path: at, cause }) => {
            tracing::warn!("the state in {at} is damaged and will be rebuilt: {cause}");
            FjallState::remove(&path)?;
            FjallState::open(&path, options)
        }
        opened => opened,
    }
}
