//! What the state engine costs: `cargo run --release -p storage --example measure_state [keys]`.
//!
//! Prints µs per put in batches, per get of keys just written and of keys spread over the disk, the
//! resident memory, and how long opening takes after the process was killed.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a program that measures: it reads the clock and prints"
)]

use std::path::Path;
use std::time::Instant;
use storage::state::fjall::{FjallState, Options};
use storage::state::{Batch, Read, State};

fn key(number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("k/{spread:016x}").into_bytes()
}

/// Time that this thread has had on a processor: other processes do not count.
fn busy_us() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = schedstat.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    ns.unwrap_or(0.0) / 1e3
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .map_or(0, |kb| kb / 1024)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(1_000_000, |text| text.parse().expect("a number"));
    let folder = arguments.next().unwrap_or_else(|| "target/measure_state".to_owned());
    let again = arguments.next().is_some();
    let path = Path::new(&folder);
    let mut options = Options::default();
    for (name, place) in [
        ("CACHE_MB", &mut options.block_cache_bytes),
        ("ROWS_MB", &mut options.row_cache_bytes),
        ("MEMTABLE_MB", &mut options.memtable_bytes),
    ] {
        if let Ok(text) = std::env::var(name) {
            *place = text.parse::<u64>().expect("a number") << 20;
        }
    }
    if !again {
        FjallState::remove(path).expect("old folder");
    }
    let started = Instant::now();
    let state = FjallState::open(path, options).expect("open");
    println!(
        "open        {:>8.1} ms, {} MB resident",
        started.elapsed().as_secs_f64() * 1e3,
        resident_mb()
    );
    if !again {
        let started = busy_us();
        let mut slowest = 0.0_f64;
        for first in (0..keys).step_by(256) {
            let mut batch = Batch::default();
            for number in first..(first + 256).min(keys) {
                batch.put(key(number), vec![number as u8; 100]);
            }
            let begun = Instant::now();
            state.commit(batch).expect("commit");
            slowest = slowest.max(begun.elapsed().as_secs_f64() * 1e3);
        }
        let took = busy_us() - started;
        println!(
            "put         {:>8.2} us each in batches of 256, slowest batch {slowest:.1} ms, {} MB resident",
            took / keys as f64,
            resident_mb()
        );
    }
    let reads = 200_000.min(keys);
    for (name, from, step) in [("newest", keys - reads, 1), ("spread", 0, keys / reads)] {
        for round in ["first", "again"] {
            let started = busy_us();
            for number in 0..reads {
                assert!(state.get(&key(from + number * step)).expect("get").is_some());
            }
            println!(
                "get {name} {round} {:>8.2} us each, {} MB resident",
                (busy_us() - started) / reads as f64,
                resident_mb()
            );
        }
    }
    let started = busy_us();
    for _ in 0..reads {
        std::hint::black_box(state.view());
    }
    println!("view        {:>8.2} us each", (busy_us() - started) / reads as f64);
    let started = busy_us();
    let mut seen = 0_u64;
    state
        .view()
        .scan(b"", None, &mut |_, _| {
            seen += 1;
            true
        })
        .expect("scan");
    println!(
        "scan        {:>8.2} us each of {seen}, {} MB resident, {} MB on disk",
        (busy_us() - started) / seen as f64,
        resident_mb(),
        state.size_bytes() >> 20
    );
    std::process::abort();
}
