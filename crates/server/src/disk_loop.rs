//! The thread that makes writes durable.
//!
//! It writes everything that waits, makes it durable with one fsync, then reports it. Meanwhile the
//! site's thread continues and the next batch gathers.
//!
//! The thread also checks the free space: below the reserve it reports that before a write fails,
//! so that client writes are refused while there is still room for everything else. A write that
//! fails for lack of room is repeated until it succeeds.

use crate::metrics::Metrics;
use crate::node::Event;
use protocol::replica::raft::Persist;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use storage::log::{LogError, LogStart, LogWriter, Writer};

/// A job for the disk's thread.
pub(crate) enum DiskJob {
    Persist(Persist),
    Cut(LogStart),
    Stop,
}

/// The interval at which the free space is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before a write that found no room is repeated.
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// The most jobs of one fsync.
const BATCH_JOBS_MAX: usize = 256;

pub(crate) struct DiskLoop {
    pub(crate) writer: Writer,
    pub(crate) jobs: mpsc::Receiver<DiskJob>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) data: PathBuf,
    pub(crate) reserve_bytes: u64,
    /// Whether writes here must be durable. If a site's keys are kept elsewhere, its log is only
    /// its core's memory.
    pub(crate) durable: bool,
}

impl DiskLoop {
    /// Runs until a stop job arrives, or until the disk fails.
    pub(crate) fn run(mut self) {
        let mut is_full = false;
        let mut look_at = Instant::now();
        loop {
            if look_at <= Instant::now() {
                look_at = Instant::now() + LOOK_INTERVAL;
                self.look(&mut is_full);
            }
            let first = match self.jobs.recv_timeout(LOOK_INTERVAL) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut jobs = vec![first];
            jobs.extend(self.jobs.try_iter().take(BATCH_JOBS_MAX - 1));
            match self.perform(jobs, &mut is_full) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let _ = self.events.send(Event::Failed(error.to_string()));
                    return;
                }
            }
        }
    }

    /// Returns `false` after a stop job.
    fn perform(&mut self, jobs: Vec<DiskJob>, is_full: &mut bool) -> Result<bool, LogError> {
        let mut unsynced = None;
        for job in jobs {
            match job {
                DiskJob::Persist(persist) => {
                    self.write(&persist, is_full)?;
                    unsynced = Some(persist.number);
                }
                DiskJob::Cut(start) => self.writer.cut(start)?,
                DiskJob::Stop => return Ok(false),
            }
        }
        if let Some(number) = unsynced {
            if self.durable {
                let started = Instant::now();
                self.writer.sync()?;
                self.metrics.fsync.observe(started.elapsed());
            }
            let _ = self.events.send(Event::Persisted(number));
        }
        self.metrics.log_bytes.set(self.writer.size_bytes() as i64);
        if let Some(spare) = self.writer.spare_due() {
            let _ = self.events.send(Event::SpareDue(spare));
        }
        Ok(true)
    }

    fn write(&mut self, persist: &Persist, is_full: &mut bool) -> Result<(), LogError> {
        loop {
            let restarted = persist.restart.map_or(Ok(()), |start| self.writer.restart(start));
            match restarted.and_then(|()| self.writer.write(&persist.append)) {
                Err(LogError::Full { path, cause }) => {
                    *is_full = true;
                    let why = format!("no room for the log in {path}: {cause}");
                    if self.events.send(Event::DiskFull(why)).is_err() {
                        return Ok(());
                    }
                    std::thread::sleep(TRY_AGAIN);
                }
                done => return done,
            }
        }
    }

    /// Checks the free space and reports a change between enough and too little.
    fn look(&mut self, is_full: &mut bool) {
        let Ok(found) = rustix::fs::statvfs(&self.data) else { return };
        let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        self.metrics.disk_free_bytes.set(free_bytes as i64);
        let full = free_bytes < self.reserve_bytes;
        if full != *is_full {
            *is_full = full;
            let event = match full {
                true => Event::DiskFull(format!(
                    "{} MiB are free in {}, fewer than the reserve of {} MiB",
                    free_bytes >> 20,
                    self.data.display(),
                    self.reserve_bytes >> 20
                )),
                false => Event::DiskHasRoom,
            };
            let _ = self.events.send(event);
        }
    }
}
