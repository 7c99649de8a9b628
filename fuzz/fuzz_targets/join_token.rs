//! Join tokens: any text is refused or read, and what is read is written as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| server::peers::check_any(text));
