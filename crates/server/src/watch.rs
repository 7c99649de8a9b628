//! Watches of changes, fed by the site's change log.
//!
//! A watch has a position, not a queue: it reads the log from there whenever the state has
//! advanced, so that a slow reader costs nothing but the log's retention. The first watch of a
//! keyspace creates a durable cursor named `watch-n<node>`, from which on its changes are kept; a
//! task of the node advances the cursor and drops it after a while without a watch.

use crate::batcher::lock;
use crate::handle::Handle;
use model::{
    Answer, Catalog, Change, Command, Failure, KeyspaceId, Refusal, Request, Revision, limits,
};
use protocol::site::machine;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// The interval at which a node's cursors are advanced. Changes stay at least this long for a watch
/// that was disconnected and resumes.
const CURSOR_INTERVAL: Duration = Duration::from_secs(30);
/// Should a state have been replaced that has nothing newer than what was applied before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Rounds without a watch after which the cursor is dropped.
const IDLE_ROUNDS_MAX: u32 = 20;
/// Changes read at once.
const CHANGES_PER_READ_MAX: usize = 1_000;

/// Changes of some keyspaces, as they come.
pub struct Watch {
    handle: Handle,
    positions: BTreeMap<KeyspaceId, Revision>,
    applied: tokio::sync::watch::Receiver<u64>,
}

impl Watch {
    pub(crate) async fn open(
        handle: Handle,
        keyspaces: Vec<KeyspaceId>,
        after: Option<Revision>,
    ) -> Result<Watch, Failure> {
        // A witness has no changes, and a node that has just started may not know its keyspaces.
        handle.wait_until_current(limits::REQUEST_DEADLINE).await?;
        let applied = handle.shared.applied.subscribe();
        for keyspace in &keyspaces {
            if let Err(machine::Stopped::Refused(refusal)) =
                handle.shared.reader.check_held(*keyspace)
            {
                return Err(refusal.into());
            }
        }
        let positions: BTreeMap<_, _> =
            keyspaces.into_iter().map(|keyspace| (keyspace, Revision(0))).collect();
        // All or none: from here on the watch gives them back when it is dropped.
        handle.shared.watched.add(positions.keys().copied())?;
        let mut watch = Watch { handle, positions, applied };
        for keyspace in watch.positions.keys().copied().collect::<Vec<_>>() {
            let mut now = watch.handle.shared.reader.revision().min(watch.handle.released());
            if !watch.handle.shared.watched.has_cursor(keyspace) {
                let made = watch.handle.call(watch.handle.set_cursor(keyspace, now)).await?;
                if let Answer::Done(revision) = made {
                    now = now.max(revision);
                }
                watch.handle.shared.watched.cursor_made(keyspace);
            }
            watch.positions.insert(keyspace, after.unwrap_or(now));
        }
        Ok(watch)
    }

    /// The next changes, at least one, in the order of their revisions within a keyspace.
    /// [`Refusal::ChangesTrimmed`]: it lagged too far, or asked for too old a revision.
    pub async fn next(&mut self) -> Result<Vec<Change>, Failure> {
        loop {
            self.applied.borrow_and_update();
            let mut changes = Vec::new();
            for (keyspace, position) in &mut self.positions {
                let shared = &self.handle.shared;
                let read = shared.of_whole_state(|| {
                    shared.reader.changes(*keyspace, *position, CHANGES_PER_READ_MAX)
                });
                // While a snapshot is loaded: what was trimmed is known once it is there.
                let Some(read) = read else { continue };
                // Changes that are not durable yet are delivered later.
                let released = self.handle.released();
                let read = match read {
                    Ok(mut read) => {
                        read.retain(|change| change.revision <= released);
                        read
                    }
                    Err(machine::Stopped::Refused(refusal)) => {
                        return Err(Failure::Refused(refusal));
                    }
                    Err(machine::Stopped::Failed(_) | machine::Stopped::Due(_)) => {
                        return Err(Failure::NotServing("its state cannot be read"));
                    }
                };
                if let Some(last) = read.last() {
                    *position = last.revision;
                }
                changes.extend(read);
            }
            if !changes.is_empty() {
                return Ok(changes);
            }
            let next = tokio::time::timeout(LOOK_AGAIN, self.applied.changed()).await;
            if next.is_ok_and(|changed| changed.is_err()) {
                return Err(Failure::NotServing("it is stopping"));
            }
        }
    }

    /// The revision up to which all changes have been delivered.
    pub fn position(&self) -> Revision {
        self.positions.values().copied().min().unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for keyspace in self.positions.keys() {
            self.handle.shared.watched.remove(*keyspace);
        }
    }
}

impl Handle {
    fn cursor_name(&self) -> String {
        format!("watch-{}", self.status().node)
    }

    fn set_cursor(&self, keyspace: KeyspaceId, position: Revision) -> Request {
        Request::write(Command::SetCursor { name: self.cursor_name(), keyspace, position })
    }

    /// Advances the cursors of watched keyspaces, as long as the node runs.
    pub(crate) async fn keep_cursors(self) {
        let mut before = self.shared.reader.revision();
        loop {
            tokio::time::sleep(CURSOR_INTERVAL).await;
            let now = self.shared.reader.revision();
            for (keyspace, wanted) in self.shared.watched.round() {
                let name = self.cursor_name();
                let request = match wanted {
                    true => self.set_cursor(keyspace, before),
                    // A watch has opened since the round began.
                    false if self.shared.watched.is_watched(keyspace) => continue,
                    false => Request::write(Command::DropCursor { name, keyspace }),
                };
                // Tried again in the next round.
                let _ = self.call(request).await;
            }
            before = now;
        }
    }
}

#[derive(Default)]
struct WatchedKeyspace {
    watches: usize,
    has_cursor: bool,
    idle_rounds: u32,
}

/// The watched keyspaces of this node.
#[derive(Default)]
pub(crate) struct Watched(Mutex<BTreeMap<KeyspaceId, WatchedKeyspace>>);

impl Watched {
    /// Counts a watch of these keyspaces, which are distinct: in each of them, or in none if there
    /// is no room for all.
    fn add(&self, keyspaces: impl ExactSizeIterator<Item = KeyspaceId>) -> Result<(), Failure> {
        let mut watched = lock(&self.0);
        let present = watched.values().map(|one| one.watches).sum::<usize>();
        if present + keyspaces.len() > limits::WATCHES_MAX {
            let (what, max) = ("watches of this node", limits::WATCHES_MAX);
            return Err(Failure::Refused(Refusal::TooMany { what, max }));
        }
        keyspaces.for_each(|keyspace| watched.entry(keyspace).or_default().watches += 1);
        Ok(())
    }

    fn remove(&self, keyspace: KeyspaceId) {
        if let Some(one) = lock(&self.0).get_mut(&keyspace) {
            one.watches = one.watches.saturating_sub(1);
        }
    }

    fn has_cursor(&self, keyspace: KeyspaceId) -> bool {
        lock(&self.0).get(&keyspace).is_some_and(|one| one.has_cursor)
    }

    fn is_watched(&self, keyspace: KeyspaceId) -> bool {
        lock(&self.0).get(&keyspace).is_some_and(|one| one.watches > 0)
    }

    fn cursor_made(&self, keyspace: KeyspaceId) {
        lock(&self.0).entry(keyspace).or_default().has_cursor = true;
    }

    /// The keyspaces with a cursor, and whether it is still needed; entries that are not are
    /// removed.
    fn round(&self) -> Vec<(KeyspaceId, bool)> {
        let mut watched = lock(&self.0);
        let mut round = Vec::new();
        watched.retain(|keyspace, one| {
            one.idle_rounds = if one.watches > 0 { 0 } else { one.idle_rounds + 1 };
            let wanted = one.idle_rounds < IDLE_ROUNDS_MAX;
            if one.has_cursor {
                round.push((*keyspace, wanted));
            }
            wanted
        });
        round
    }
}

/// Every keyspace there is, for a watch of everything.
pub fn all_keyspaces(catalog: &Catalog) -> Vec<KeyspaceId> {
    catalog.all().into_iter().map(|keyspace| keyspace.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_may_open_after_its_keyspace_was_found_idle() {
        let (watched, keyspace) = (Watched::default(), KeyspaceId(1));
        watched.add([keyspace].into_iter()).unwrap();
        watched.cursor_made(keyspace);
        watched.remove(keyspace);
        for _ in 1..IDLE_ROUNDS_MAX {
            assert_eq!(watched.round(), [(keyspace, true)]);
        }
        assert_eq!(watched.round(), [(keyspace, false)]);
        assert!(!watched.is_watched(keyspace));
        watched.add([keyspace].into_iter()).unwrap();
        assert!(watched.is_watched(keyspace) && !watched.has_cursor(keyspace));
    }

    #[test]
    fn a_refused_watch_takes_no_places() {
        let watched = Watched::default();
        let keyspaces = |ids: std::ops::Range<u32>| ids.map(KeyspaceId);
        for _ in 1..limits::WATCHES_MAX {
            watched.add(keyspaces(0..1)).unwrap();
        }
        let refused = watched.add(keyspaces(1..3));
        assert!(matches!(refused, Err(Failure::Refused(Refusal::TooMany { .. }))), "{refused:?}");
        watched.add(keyspaces(1..2)).unwrap();
        assert!(watched.add(keyspaces(2..3)).is_err());
        watched.remove(KeyspaceId(0));
        watched.add(keyspaces(2..3)).unwrap();
    }
}
