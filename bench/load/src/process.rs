//! What a server costs: processor time and memory, read from `/proc`.

use std::fs;

use serde::Serialize;

/// The unit of times in `/proc/PID/stat`: part of Linux's ABI, the same on every architecture that
/// we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What one server process used while it was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Usage {
    pub(crate) pid: u32,
    /// Seconds of processor time, user and system together.
    pub(crate) cpu_s: f64,
    /// Resident set at the end.
    pub(crate) rss_bytes: u64,
}

/// Processor seconds that `pid` has used since its start.
pub(crate) fn cpu_s(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    // The second field is the program's name in parentheses and may hold spaces; what follows the
    // last parenthesis starts with field 3. User and system time are fields 14 and 15.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|t| t.parse::<f64>().ok());
    match (ticks(14), ticks(15)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS_PER_SECOND),
        _ => Err(format!("{path} has no processor times")),
    }
}

/// Resident memory of `pid` now.
pub(crate) fn rss_bytes(pid: u32) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| format!("{path} has no VmRSS"))
}

/// Seconds of processor time that this process has used.
pub(crate) fn own_cpu_s() -> Result<f64, String> {
    cpu_s(std::process::id())
}
