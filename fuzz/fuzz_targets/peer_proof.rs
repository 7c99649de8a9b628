//! Frames of the handshake between nodes: whatever arrives is refused or understood; what is
//! understood is written and read again as the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::proof::check_any(bytes));
