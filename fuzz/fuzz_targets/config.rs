//! The configuration file: any text is refused with a sentence, or gives a configuration that can
//! be shown as a file and read back.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| server::config::check_any(text));
