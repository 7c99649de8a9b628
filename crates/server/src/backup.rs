//! Backup of a site while it runs, and a new site from a backup.
//!
//! A backup is a snapshot file like those the log is cut behind: a whole state as of one log entry,
//! checksummed. Any data node can write one of what it has applied. Restoring makes the data
//! directory of a new site of one node; more join as they would any site. In a deployment the new
//! site confirms with the others what it owns before it serves it (`protocol::site::confirming`).

use crate::engine::SiteState;
use crate::handle::Shared;
use crate::identity::{self, Identity, IdentityError};
use crate::node::open_state;
use model::{NodeId, Revision, SiteName};
use protocol::replica::recovery::{self, RecoveryError};
use protocol::site::machine::deployment::mark_restored;
use protocol::site::machine::{self, Machine};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use storage::disk::real::RealDisk;
use storage::log::{LogError, LogStart, LogWriter as _};
use storage::snapshot::{
    Folder, SnapshotError, SnapshotFile, SnapshotHead, Snapshots as _, write_file_while,
};
use storage::state::fjall::Options;
use storage::state::{State as _, StateError};
use wire::peer::Member;

/// Why a node makes no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It is a witness, has just started, or is loading a snapshot.
    #[error(
        "this node has no whole state: it is a witness, has just started, or is loading a \
         snapshot; ask another node of the site"
    )]
    NotWhole,
    /// The file cannot be written, or is not wanted any more.
    #[error(transparent)]
    File(#[from] SnapshotError),
}

/// How the names of files end that are written beside a node's data to be sent to a client.
const SENDING: &str = ".sending";

/// Where a backup that is sent to a client is written, by its number in the process.
pub fn sending_path(data: &Path, number: u64) -> PathBuf {
    data.join(format!("backup-{number}{SENDING}"))
}

/// Removes the backups of a process that ended while it sent them.
pub(crate) fn remove_unsent(data: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(SENDING) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Whether [`write`] finds a state.
pub(crate) fn is_possible(shared: &Shared) -> bool {
    shared.is_current.load(Ordering::Acquire) && shared.of_whole_state(|| ()).is_some()
}

pub(crate) fn write(
    shared: &Shared,
    path: &Path,
    is_wanted: &dyn Fn() -> bool,
) -> Result<Revision, BackupError> {
    let failed = |cause: String| SnapshotError::Io { path: path.display().to_string(), cause };
    let is_current = shared.is_current.load(Ordering::Acquire);
    let viewed = shared.of_whole_state(|| {
        let view = shared.reader.view();
        let head = recovery::head_of(&view);
        (view, head)
    });
    let Some((view, head)) = viewed.filter(|_| is_current) else {
        return Err(BackupError::NotWhole);
    };
    let (head, revision) = head.map_err(|error| failed(error.to_string()))?;
    let disk = RealDisk::shared();
    write_file_while(&disk, path, &head, &view, shared.reserve_bytes, is_wanted)?;
    Ok(revision)
}

/// Why a backup cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The directory is not empty.
    #[error("--data {0} holds data already; restore into an empty directory")]
    NotEmpty(String),
    /// The log cannot be begun.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The state cannot be filled.
    #[error(transparent)]
    State(#[from] StateError),
    /// The backup's content makes no sense.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The site cannot be begun.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The system refuses random numbers.
    #[error("the system refuses random numbers: {0}")]
    System(String),
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The revision the state is of.
    pub revision: Revision,
    /// Rows that were loaded.
    pub rows: u64,
    /// Whether the site belongs to a deployment with others, which it asks what they own before it
    /// serves a slot.
    pub confirms: bool,
}

/// Makes the data directory of a new site of one node from a backup, checking every block of it
/// first. `address`: the node's peer port. The directory must be empty or absent.
pub fn restore(
    backup: &Path,
    data: &Path,
    site: &SiteName,
    node: NodeId,
    address: &str,
) -> Result<Restored, RestoreError> {
    let disk = RealDisk::shared();
    let file = SnapshotFile::open(&disk, backup)?;
    let verified = file.verify()?;
    let occupied = data.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(RestoreError::NotEmpty(data.display().to_string()));
    }
    let _lock = identity::lock_directory(data)?;
    let snapshots = Folder::open(&disk, &data.join("snapshots"), 0)?;
    let head = snapshots.import(&file)?;
    let state = SiteState::silent(open_state(data, Options::default())?);
    snapshots.load(head.index, &state)?;
    let confirms = mark_restored(&state)?;

    // One entry more than the backup has: the new site's membership.
    let incarnation = getrandom::u64().map_err(|error| RestoreError::System(error.to_string()))?;
    let incarnation = incarnation.max(1);
    let address = address.to_string();
    let member = Member { node: node.0, address, incarnation, ..Member::default() };
    let mut machine = Machine::open(state.clone())?;
    let last = machine.applied();
    let (index, term) = (last.index + 1, last.term + 1);
    let mut members = recovery::first_members(member);
    members.nodes.iter_mut().for_each(|member| member.since = index);
    let encoded = recovery::encode_members(&members);
    let entry = machine::Committed { index, term, batch: None, members: Some(encoded.clone()) };
    machine.apply(&[entry], &mut Vec::new())?;
    snapshots.write(&SnapshotHead { index, term, members: encoded }, &state.view())?;
    let (_, mut writer, _) = storage::log::open(&disk, &data.join("log"))?;
    writer.restart(LogStart { index, term })?;

    // Last of all, so that a directory half restored is never taken for a member's.
    let mut own = Identity::open(data, site, node, false, incarnation)?;
    own.became_member(data, &members)?;
    Ok(Restored { revision: machine.revision(), rows: verified.rows, confirms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unsent_backups_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let kept = data.path().join("identity.toml");
        std::fs::write(&kept, "").unwrap();
        std::fs::write(sending_path(data.path(), 0), "part").unwrap();
        std::fs::write(sending_path(data.path(), 12), "part").unwrap();
        remove_unsent(data.path()).unwrap();
        let left: Vec<_> =
            data.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [kept]);
    }
}
