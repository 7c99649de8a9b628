//! Requests and replies: whatever arrives, in one piece or in two, is read the same way, and never
//! brings a parser down. The first byte is where the input is cut.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((cut, input)) = input.split_first() else { return };
    let (first, second) = input.split_at((*cut as usize).min(input.len()));
    wire::resp::check_any(&[first, second]);
});
