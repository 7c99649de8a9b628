//! The disk itself: how long an append of one block takes to be durable.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

const BLOCK_BYTES: usize = 4096;
const APPENDS: usize = 300;

/// Times of an append of 4 KiB with its fdatasync, in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Fdatasync {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Measures in `folder`, which is where the stores keep their data.
pub(super) fn fdatasync(folder: &Path) -> Result<Fdatasync, String> {
    let path = folder.join("fdatasync.probe");
    let measure = || -> std::io::Result<Vec<f64>> {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let block = [0x5a; BLOCK_BYTES];
        let mut times = Vec::with_capacity(APPENDS);
        for _ in 0..APPENDS {
            let began = Instant::now();
            file.write_all(&block)?;
            file.sync_data()?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    };
    let times = measure();
    let removed = std::fs::remove_file(&path);
    let mut times = times.map_err(|e| format!("{}: {e}", path.display()))?;
    removed.map_err(|e| format!("{}: {e}", path.display()))?;
    times.sort_by(f64::total_cmp);
    Ok(Fdatasync { p50_us: times[APPENDS / 2], p99_us: times[APPENDS * 99 / 100] })
}
