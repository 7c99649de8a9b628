//! The ring's pointers as a site keeps them: any bytes are refused, or are pointers that are
//! written again as the same bytes and can be asked.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| protocol::global::ring::check_any_row(bytes));
