//! World files: any text is refused with a sentence and a line that is there, or is a world whose
//! links have delays.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| lab::world::check_any(text));
