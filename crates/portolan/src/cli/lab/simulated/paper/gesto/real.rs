//! The five stores in real time: a clock, and a local socket that carries their messages.

use super::super::super::super::super::failed::Failed;
use lab::baselines::real::Reality;
use lab::paper::gesto::Size;
use lab::paper::gesto::real::{Round, points, rounds};
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// A wait that is shorter than this is spent on the core: a thread that sleeps is late by as much.
const SLEPT_MIN: Duration = Duration::from_micros(200);
/// The largest frame; a list of dependencies that is longer goes in several.
const FRAME_BYTES_MAX: usize = 4_096;

/// Of one run.
struct Here {
    began: Instant,
    way: (UnixStream, UnixStream),
    frame: Vec<u8>,
    failure: Option<std::io::Error>,
}

impl Here {
    fn new() -> std::io::Result<Here> {
        let (began, way) = (Instant::now(), UnixStream::pair()?);
        let frame = vec![7; FRAME_BYTES_MAX];
        Ok(Here { began, way, frame, failure: None })
    }
}

impl Reality for Here {
    fn now_us(&mut self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn wait_until(&mut self, at_us: u64) {
        let at = self.began + Duration::from_micros(at_us);
        let left = at.checked_duration_since(Instant::now());
        if let Some(left) = left.filter(|left| *left >= SLEPT_MIN) {
            thread::sleep(left - SLEPT_MIN / 2);
        }
        while Instant::now() < at {
            std::hint::spin_loop();
        }
    }

    fn carry(&mut self, bytes: u64) {
        let mut left = bytes as usize;
        while left > 0 {
            let part = left.min(FRAME_BYTES_MAX);
            let (to, from) = &mut self.way;
            let carried = to
                .write_all(&self.frame[..part])
                .and_then(|()| from.read_exact(&mut self.frame[..part]));
            self.failure = self.failure.take().or(carried.err());
            left -= part;
        }
    }
}

/// All rounds.
pub(super) fn measure(size: Size) -> Result<Vec<Round>, Failed> {
    let (count, measured_us) = rounds(size);
    let mut all = Vec::new();
    for number in 1..=count {
        for point in points(size) {
            show_progress(&format!("in real time, round {number} of {count}: {point}"));
            let failed = |error: std::io::Error| Failed::no(Some(format!("in real time: {error}")));
            let mut here = Here::new().map_err(failed)?;
            let Some(measured) = point.run_in_real_time(measured_us, &mut here) else { continue };
            if let Some(error) = here.failure.take() {
                return Err(failed(error));
            }
            all.push(Round::of(point, &measured));
        }
    }
    show_progress("");
    Ok(all)
}

/// One line that each following one replaces, if a person looks at it.
fn show_progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
        let _ = std::io::stderr().flush();
    }
}
