//! The thread for long work on the disk: snapshots, spare log segments.

use crate::node::Event;
use std::sync::mpsc;
use storage::log::Spare;
use storage::snapshot::{Folder, SnapshotHead, Snapshots};
use storage::state::fjall::{FjallState, FjallView};

/// A piece of long work.
pub(crate) enum Chore {
    WriteSnapshot { head: SnapshotHead, view: FjallView },
    InstallSnapshot { index: u64 },
    PrepareSpare(Spare),
}

/// Does chores, one after the other, until all senders are gone.
pub(crate) fn run(
    chores: mpsc::Receiver<Chore>,
    snapshots: Folder,
    state: FjallState,
    events: mpsc::Sender<Event>,
) {
    for chore in chores {
        let event = match chore {
            Chore::WriteSnapshot { head, view } => {
                // The log may be cut behind a snapshot, so the state must not lag behind it.
                let written = snapshots.write(&head, &view).and_then(|()| Ok(view.flush()?));
                if let Err(error) = &written {
                    tracing::warn!("a snapshot was not written, and is tried again later: {error}");
                }
                Event::SnapshotWritten(written.map(|()| head).map_err(|error| error.to_string()))
            }
            Chore::InstallSnapshot { index } => {
                let installed = snapshots
                    .finish(index)
                    .and_then(|head| snapshots.load(index, &state).map(|()| head))
                    .and_then(|head| state.flush().map(|()| head).map_err(Into::into));
                Event::SnapshotInstalled(installed.map_err(|error| error.to_string()))
            }
            Chore::PrepareSpare(spare) => {
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
