//! What clients send of their latencies and keys: in JSON or packed, it is refused or has sane
//! values.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| place::clients::check_any(bytes));
