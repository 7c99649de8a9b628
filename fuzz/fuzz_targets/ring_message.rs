//! The messages of sites about their ring: whatever arrives is refused, or leaves the one who hears
//! it with pointers that a ring can have.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::global::ring::check_any_message(bytes));
