//! Log segments: whatever is in the files, opening refuses or shows a log, and never anything that
//! was not written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0..128, rest)) => storage::log::fuzz::open_forged(rest),
        Some((_, rest)) => storage::log::fuzz::open_edited(rest),
        None => {}
    }
});
