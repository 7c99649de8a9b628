//! Histories: any text is refused with a sentence that names the place, or is a history that is
//! written and read again as the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| lab::history::check_any(text));
