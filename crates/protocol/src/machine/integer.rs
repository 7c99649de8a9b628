//! What Redis takes for an integer: the shortest decimal form of an i64 and nothing else. No
//! spaces, no plus sign, no leading zeros, no minus zero.

/// The number that these bytes spell.
pub(crate) fn parse(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_shortest = match digits {
        b"0" => digits.len() == bytes.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_shortest {
        return None;
    }
    // What is left for the standard library to refuse is what does not fit.
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_shortest_form_is_taken() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            assert_eq!(parse(number.to_string().as_bytes()), Some(number));
        }
    }

    #[test]
    fn every_other_form_is_refused() {
        for text in [
            "",
            "-",
            "+1",
            " 1",
            "1 ",
            "01",
            "-0",
            "-01",
            "00",
            "1.0",
            "1e3",
            "0x1",
            "abc",
            "1\0",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
