//! What a server of a Redis Cluster reports of it: read or refused.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = place::view::View::parse(text);
});
