//! What making a batch durable costs: `cargo run --release -p storage --example measure_log`.
//!
//! Prints µs per batch of one entry, written and synced, with and without spare segments, beside
//! what the disk itself takes for an fdatasync of a page that is there and of a file that grows.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a measurement is made of clocks, files and threads"
)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use storage::disk::real::RealDisk;
use storage::log::{Append, Entry, LogStart, LogWriter};

fn report(name: &str, mut took_us: Vec<f64>) {
    took_us.sort_by(f64::total_cmp);
    let at = |part: f64| took_us[((took_us.len() - 1) as f64 * part) as usize];
    println!(
        "{name:28} p50 {:>7.1}  p90 {:>7.1}  p99 {:>8.1}  p99.9 {:>8.1}  most {:>9.1} us",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

fn time(count: u64, mut body: impl FnMut(u64)) -> Vec<f64> {
    let one = |number| {
        let started = Instant::now();
        body(number);
        started.elapsed().as_secs_f64() * 1e6
    };
    (0..count).map(one).collect()
}

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "target/measure_log".to_owned());
    let folder = PathBuf::from(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("folder");

    let file = std::fs::File::create(folder.join("raw")).expect("file");
    let grown = time(2_000, |number| {
        file.write_all_at(&[1; 4096], number * 4096).expect("write");
        file.sync_data().expect("sync");
    });
    report("disk: 4 KiB, file grows", grown);
    let over = time(2_000, |number| {
        file.write_all_at(&[2; 4096], number * 4096).expect("write");
        file.sync_data().expect("sync");
    });
    report("disk: 4 KiB, over old", over);

    for (bytes, count) in [(256, 20_000), (16 << 10, 8_000)] {
        for spares in [false, true] {
            let name = format!("log: {bytes} B{}", if spares { ", spares" } else { "" });
            report(&name, log(&folder.join(&name), bytes, count, spares));
        }
    }
    std::fs::remove_dir_all(&folder).expect("folder");
}

fn log(folder: &Path, bytes: usize, count: u64, spares: bool) -> Vec<f64> {
    let (_, mut writer, _) = storage::log::open(&RealDisk::shared(), folder).expect("open");
    let payload = model::Bytes::from(vec![7; bytes]);
    let mut helpers = Vec::new();
    let mut cuts = Vec::new();
    let took = time(count, |number| {
        let entry = Entry { index: number + 1, term: 1, kind: 0, payload: payload.clone() };
        writer.write(&Append { hard_state: None, entries: vec![entry] }).expect("write");
        writer.sync().expect("sync");
        if let Some(spare) = writer.spare_due().filter(|_| spares) {
            helpers.push(std::thread::spawn(|| spare.prepare()));
        }
        if number % 4000 == 3999 {
            let begun = Instant::now();
            writer.cut(LogStart { index: number - 1000, term: 1 }).expect("cut");
            cuts.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    });
    for helper in helpers {
        helper.join().expect("no panic").expect("spare");
    }
    report("  of which cuts", cuts);
    took
}
