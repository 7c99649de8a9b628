//! The thread for long work on the disk: snapshots, spare log segments.

use crate::node::Event;
use protocol::site::NotInstalled;
use std::sync::mpsc;
use storage::log::Spare;
use storage::snapshot::{Folder, SnapshotError, SnapshotHead, Snapshots};
use storage::state::fjall::{FjallState, FjallView};

/// A piece of long work.
pub(crate) enum BackgroundTask {
    WriteSnapshot { head: SnapshotHead, view: FjallView },
    InstallSnapshot { index: u64 },
    PrepareSpare(Spare),
}

/// Does the tasks, one after the other, until all senders are gone.
pub(crate) fn run(
    tasks: mpsc::Receiver<BackgroundTask>,
    snapshots: Folder,
    state: FjallState,
    events: mpsc::Sender<Event>,
) {
    for task in tasks {
        let event = match task {
            BackgroundTask::WriteSnapshot { head, view } => {
                // The log may be cut behind a snapshot, so the state must not lag behind it.
                let written = snapshots.write(&head, &view).and_then(|()| Ok(view.flush()?));
                if let Err(error) = &written {
                    tracing::warn!("a snapshot was not written, and is tried again later: {error}");
                }
                Event::SnapshotWritten(written.map(|()| head).map_err(|error| error.to_string()))
            }
            BackgroundTask::InstallSnapshot { index } => {
                Event::SnapshotInstalled(install(&snapshots, &state, index))
            }
            BackgroundTask::PrepareSpare(spare) => {
                if let Err(error) = spare.prepare() {
                    tracing::debug!("no spare log segment: {error}");
                }
                continue;
            }
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

fn install(
    snapshots: &Folder,
    state: &FjallState,
    index: u64,
) -> Result<SnapshotHead, NotInstalled> {
    let head = snapshots.finish(index).map_err(|error| {
        tracing::warn!("a snapshot that was received is asked for again: {error}");
        NotInstalled::of_finish(&error)
    })?;
    let failed = |error: SnapshotError| NotInstalled::Failed(error.to_string());
    snapshots.load(index, state).map_err(failed)?;
    state.flush().map_err(|error| failed(error.into()))?;
    Ok(head)
}
