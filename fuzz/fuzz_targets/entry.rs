//! Log entries, requests and replies: no bytes may panic, and what can be read is written as it
//! was.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::entry::check_any(bytes));
