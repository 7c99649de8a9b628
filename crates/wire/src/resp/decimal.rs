//! Decimal integers, read and written without going through `str` or an allocation.

use bytes::BytesMut;

/// The longest: `-9223372036854775808`.
const I64_DIGITS_MAX: usize = 20;

/// Reads a whole slice as Redis does: an optional `-`, no `+`, no spaces, no leading zeros (but
/// `0` itself), in the range of an i64.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < I64_DIGITS_MAX => {}
        _ => return None,
    }
    let mut magnitude: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Appends a number's digits.
pub(super) fn put_i64(out: &mut BytesMut, value: i64) {
    let mut digits = [0u8; I64_DIGITS_MAX];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "0x1"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"99999999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value: i64) {
            let mut out = BytesMut::new();
            put_i64(&mut out, value);
            prop_assert_eq!(out.to_vec(), value.to_string().into_bytes());
            prop_assert_eq!(parse_i64(&out), Some(value));
        }
    }
}
