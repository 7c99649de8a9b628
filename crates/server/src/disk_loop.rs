//! The thread that makes writes durable.
//!
//! It writes everything that waits, makes it durable with one fsync, then reports it. Meanwhile the
//! site's thread continues and the next batch gathers.
//!
//! The thread also checks the free space: below the reserve it reports that before a write fails,
//! so that client writes are refused while there is still room for everything else. A job that
//! fails for lack of room is repeated until it succeeds. Cuts pass the writes that wait: they make
//! room.

use crate::metrics::Metrics;
use crate::node::Event;
use protocol::replica::raft::Persist;
use std::collections::VecDeque;
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
/// The pause before a job that found no room is repeated.
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

    /// Returns `false` after a stop job, or when the site's thread has ended.
    fn perform(&mut self, jobs: Vec<DiskJob>, is_full: &mut bool) -> Result<bool, LogError> {
        let mut jobs = VecDeque::from(jobs);
        let mut unsynced = None;
        while let Some(job) = jobs.front() {
            let done = match job {
                DiskJob::Persist(persist) => self.write(persist),
                DiskJob::Cut(start) => self.writer.cut(*start),
                DiskJob::Stop => return Ok(false),
            };
            match done {
                Ok(()) => {
                    if let Some(DiskJob::Persist(persist)) = jobs.pop_front() {
                        unsynced = Some(persist.number);
                    }
                }
                Err(LogError::Full { path, cause }) => {
                    self.sync(unsynced.take())?;
                    *is_full = true;
                    let why = format!("no room for the log in {path}: {cause}");
                    if self.events.send(Event::DiskFull(why)).is_err() {
                        return Ok(false);
                    }
                    std::thread::sleep(TRY_AGAIN);
                    jobs.extend(self.jobs.try_iter());
                    // A cut drops entries that were reported durable: none of a write that waits.
                    let waits = |job: &DiskJob| !matches!(job, DiskJob::Cut(_));
                    jobs.make_contiguous().sort_by_key(waits);
                }
                Err(error) => return Err(error),
            }
        }
        self.sync(unsynced)?;
        self.metrics.log_bytes.set(self.writer.size_bytes() as i64);
        if let Some(spare) = self.writer.spare_due() {
            let _ = self.events.send(Event::SpareDue(spare));
        }
        Ok(true)
    }

    fn write(&mut self, persist: &Persist) -> Result<(), LogError> {
        let restarted = persist.restart.map_or(Ok(()), |start| self.writer.restart(start));
        restarted.and_then(|()| self.writer.write(&persist.append))
    }

    /// Makes what was written durable and reports it, up to this number.
    fn sync(&mut self, unsynced: Option<u64>) -> Result<(), LogError> {
        let Some(number) = unsynced else { return Ok(()) };
        if self.durable {
            let started = Instant::now();
            self.writer.sync()?;
            self.metrics.fsync.observe(started.elapsed());
        }
        let _ = self.events.send(Event::Persisted(number));
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::Bytes;
    use std::path::Path;
    use storage::disk::memory::MemoryDisk;
    use storage::log::{Append, Entry, Options, open_with};

    fn entry(index: u64, len: usize) -> Append {
        let entry = Entry { index, term: 1, kind: 0, payload: Bytes::from(vec![7; len]) };
        Append { entries: vec![entry], ..Append::default() }
    }

    fn persist(number: u64, append: Append) -> DiskJob {
        DiskJob::Persist(Persist { number, restart: None, append })
    }

    /// A loop over a disk with `free_bytes` left and a log of 100 entries of 500 bytes.
    fn disk_loop(
        free_bytes: u64,
    ) -> (MemoryDisk, DiskLoop, mpsc::Sender<DiskJob>, mpsc::Receiver<Event>) {
        const CAPACITY: u64 = 1 << 20;
        let memory = MemoryDisk::new();
        let disk = memory.shared();
        let options = Options { segment_bytes: 4096, grow_bytes: 0, reserve_bytes: 0 };
        let (_, mut writer, _) = open_with(&disk, Path::new("/log"), options).unwrap();
        (1..=100).for_each(|index| writer.write(&entry(index, 500)).unwrap());
        writer.sync().unwrap();
        memory.set_capacity(Some(CAPACITY));
        let used_bytes = CAPACITY - disk.free_bytes(Path::new("/log")).unwrap();
        memory.set_capacity(Some(used_bytes + free_bytes));
        let (sender, jobs) = mpsc::channel();
        let (events, inbox) = mpsc::channel();
        let disk_loop = DiskLoop {
            writer,
            jobs,
            events,
            metrics: Arc::new(Metrics::default()),
            data: std::env::temp_dir(),
            reserve_bytes: 0,
            durable: true,
        };
        (memory, disk_loop, sender, inbox)
    }

    /// The next event of one of two kinds: the number that is durable, or `None` for a full disk.
    fn next(inbox: &mpsc::Receiver<Event>) -> Option<u64> {
        loop {
            match inbox.recv_timeout(Duration::from_secs(10)).expect("an event") {
                Event::Persisted(number) => return Some(number),
                Event::DiskFull(_) => return None,
                Event::Failed(why) => panic!("the loop has ended: {why}"),
                _ => {}
            }
        }
    }

    #[test]
    fn a_cut_makes_room_for_the_write_that_waits() {
        let (_memory, disk_loop, jobs, inbox) = disk_loop(4_000);
        jobs.send(persist(1, entry(101, 10))).unwrap();
        jobs.send(persist(2, entry(102, 8_000))).unwrap();
        let thread = std::thread::spawn(move || disk_loop.run());
        assert_eq!(next(&inbox), Some(1), "what is written is durable before the disk waits");
        assert_eq!(next(&inbox), None);
        jobs.send(DiskJob::Cut(LogStart { index: 90, term: 1 })).unwrap();
        let done = (0..20).find_map(|_| next(&inbox));
        assert_eq!(done, Some(2));
        jobs.send(DiskJob::Stop).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn a_cut_without_room_is_repeated() {
        let (memory, disk_loop, jobs, inbox) = disk_loop(0);
        jobs.send(DiskJob::Cut(LogStart { index: 90, term: 1 })).unwrap();
        jobs.send(persist(1, entry(101, 3_000))).unwrap();
        let thread = std::thread::spawn(move || disk_loop.run());
        assert_eq!(next(&inbox), None);
        memory.set_capacity(None);
        let done = (0..20).find_map(|_| next(&inbox));
        assert_eq!(done, Some(1));
        jobs.send(DiskJob::Stop).unwrap();
        thread.join().unwrap();
    }
}
