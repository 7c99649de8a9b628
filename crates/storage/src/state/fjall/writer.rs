//! The thread that writes changes to the engine.
//!
//! Commits go to [`Recent`] first; when that is full it is handed to this thread, and the next
//! changes gather while it is written. A commit waits only when those are full too.

use super::super::StateError;
use super::engine::Engine;
use super::recent::{Leaving, Recent};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it is looked whether the tree's memory is written.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The engine with its thread. Dropping it stops the thread after the waiting changes are written.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    engine: Engine,
    recent: RwLock<Recent>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

/// The state of the thread.
#[derive(Default)]
struct Progress {
    /// To be written, or being written.
    job: Option<Arc<Leaving>>,
    stop: bool,
    /// Why the engine accepts no more changes.
    failed: Option<StateError>,
}

impl Writer {
    pub(super) fn start(engine: Engine) -> Result<Writer, StateError> {
        let path = engine.path().to_owned();
        let shared = Arc::new(Shared {
            engine,
            recent: RwLock::new(Recent::new()),
            progress: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = shared.clone();
        #[expect(
            clippy::disallowed_methods,
            reason = "as the engine's own threads: when it runs cannot be seen from outside"
        )]
        let thread = std::thread::Builder::new().name("state".to_owned()).spawn(move || own.run());
        let thread = thread.map_err(|error| StateError::Io { path, cause: error.to_string() })?;
        Ok(Writer { shared, thread: Some(thread) })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(super) fn recent(&self) -> RwLockReadGuard<'_, Recent> {
        self.shared.recent.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn recent_mut(&self) -> RwLockWriteGuard<'_, Recent> {
        self.shared.recent_mut()
    }

    /// Whether the engine accepts changes.
    pub(super) fn check(&self) -> Result<(), StateError> {
        self.shared.progress().failed.clone().map_or(Ok(()), Err)
    }

    /// Hands the collected changes to the thread, once the previous ones are written.
    pub(super) fn send(&self) -> Result<(), StateError> {
        let progress = self.shared.arrived();
        if let Some(failed) = &progress.failed {
            return Err(failed.clone());
        }
        self.shared.leave(progress, |_| true);
        Ok(())
    }

    /// Hands the collected changes to the thread if `wanted`, unless that would have to wait.
    pub(super) fn send_if(&self, wanted: impl FnOnce(&Recent) -> bool) {
        let progress = self.shared.progress();
        if progress.job.is_none() && progress.failed.is_none() {
            self.shared.leave(progress, wanted);
        }
    }

    /// Waits until all handed changes are written.
    pub(super) fn wait(&self) -> Result<(), StateError> {
        self.shared.arrived().failed.clone().map_or(Ok(()), Err)
    }

    /// Drops the collected changes and those that the engine did not accept.
    pub(super) fn discard(&self) {
        let mut progress = self.shared.arrived();
        progress.failed = None;
        *self.shared.recent_mut() = Recent::new();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        {
            let mut progress = self.shared.arrived();
            progress.stop = true;
            if progress.failed.is_none() {
                self.shared.leave(progress, |_| true);
            }
        }
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut progress = self.progress();
            let job = loop {
                if let Some(job) = &progress.job {
                    break job.clone();
                }
                if progress.stop {
                    return;
                }
                progress = self.wait_for_change(progress);
            };
            drop(progress);
            let written = self.wait_for_room().and_then(|()| self.engine.write(&job));
            if written.is_ok() {
                self.recent_mut().leaving = None;
            }
            let mut progress = self.progress();
            progress.job = None;
            progress.failed = written.err();
            self.changed.notify_all();
        }
    }

    /// Waits until there is little in the tree's memory, if there was too much.
    #[allow(
        clippy::disallowed_methods,
        reason = "the engine's own thread writes it, and announces nothing"
    )]
    fn wait_for_room(&self) -> Result<(), StateError> {
        if self.engine.seal_if_full()? {
            while self.engine.has_sealed()? {
                std::thread::sleep(LOOK_INTERVAL);
            }
        }
        Ok(())
    }

    /// Hands the collected changes to the thread, if there are any and they are `wanted`.
    fn leave(&self, mut progress: MutexGuard<'_, Progress>, wanted: impl FnOnce(&Recent) -> bool) {
        let mut recent = self.recent_mut();
        if recent.filling.changes().len() == 0 || !wanted(&recent) {
            return;
        }
        let leaving = Arc::new(recent.filling.take());
        recent.leaving = Some(leaving.clone());
        progress.job = Some(leaving);
        self.changed.notify_all();
    }

    /// Waits until no changes are being written.
    fn arrived(&self) -> MutexGuard<'_, Progress> {
        let mut progress = self.progress();
        while progress.job.is_some() {
            progress = self.wait_for_change(progress);
        }
        progress
    }

    fn wait_for_change<'a>(&self, progress: MutexGuard<'a, Progress>) -> MutexGuard<'a, Progress> {
        self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent_mut(&self) -> RwLockWriteGuard<'_, Recent> {
        self.recent.write().unwrap_or_else(PoisonError::into_inner)
    }
}
