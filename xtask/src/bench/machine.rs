//! The machine that figures come from, in the words that a reader needs to judge them.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::command::output;

/// What a figure depends on beside the programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: f64,
    pub(super) kernel: String,
    /// Of the folder where the stores keep their data.
    pub(super) filesystem: String,
    /// Processes that wanted to run in the minute before the first measurement.
    pub(super) load_average: f64,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, cores, memory_gib, kernel, filesystem, load_average } = self;
        write!(
            f,
            "{processor}, {cores} cores, {memory_gib:.0} GiB of memory, {kernel}, {filesystem}; load average \
             before: {load_average}"
        )
    }
}

/// Describes this machine; `data` is where the stores will keep their data.
pub(super) fn describe(data: &Path) -> Result<Machine, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo")?, "MemTotal").unwrap_or_default();
    let memory_kib: f64 =
        memory.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or_default();
    let load = read("/proc/loadavg")?;
    let machine = Machine {
        processor: field(&read("/proc/cpuinfo")?, "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_gib: memory_kib / 1024.0 / 1024.0,
        kernel: output("uname", &["-sr"])?,
        filesystem: output("stat", &["-f", "-c", "%T", &data.display().to_string()])?,
        load_average: load.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
    };
    if machine.load_average > 0.5 {
        eprintln!(
            "warning: the load average is {}: something else is running, and the figures will \
             show it",
            machine.load_average
        );
    }
    Ok(machine)
}

/// What a folder takes on its disk.
pub(super) fn disk_bytes(folder: &Path) -> Result<u64, String> {
    let said = output("du", &["-s", "-B1", &folder.display().to_string()])?;
    let bytes = said.split_whitespace().next().and_then(|n| n.parse().ok());
    bytes.ok_or_else(|| format!("du prints {said:?}"))
}
