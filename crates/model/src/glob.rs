//! Redis's globs: `*` any bytes, `?` one byte, `[a-z]` and `[^a-z]` one of a class, `\x` the byte
//! x.
//!
//! The corner cases are Redis's (its `stringmatchlen`), because clients have come to rely on them:
//! a class that is not closed ends with the pattern, `[z-a]` is `[a-z]`, a backslash at the very
//! end stands for itself, and there is no way to escape inside a class but a backslash.
//!
//! Where Redis goes back to try another length for every star, this goes back to the last star
//! only. The outcome is the same, as what a star may skip the next one may skip too, and a hostile
//! pattern costs at most the product of both lengths.

/// Whether a pattern matches all of a text.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut rest = pattern;
    let mut at = 0;
    // Behind the last star, and where in the text it was tried last.
    let mut star: Option<(&[u8], usize)> = None;
    loop {
        if let [b'*', behind @ ..] = rest {
            rest = behind;
            star = Some((behind, at));
            continue;
        }
        let step = text.get(at).and_then(|&byte| one(rest, byte));
        if let Some(behind) = step {
            rest = behind;
            at += 1;
        } else if at == text.len() && rest.is_empty() {
            return true;
        } else if let Some((behind, tried)) = star
            && tried < text.len()
        {
            rest = behind;
            at = tried + 1;
            star = Some((behind, at));
        } else {
            return false;
        }
    }
}

/// Matches one byte with the first element of a pattern, which is no star. The rest of the pattern
/// if that succeeds.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => class(rest, byte),
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// Matches one byte with a class, whose opening bracket is behind.
fn class(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', escaped, behind @ ..] => {
                is_in |= *escaped == byte;
                behind
            }
            [a, b'-', b, behind @ ..] => {
                is_in |= (*a.min(b)..=*a.max(b)).contains(&byte);
                behind
            }
            [literal, behind @ ..] => {
                is_in |= *literal == byte;
                behind
            }
        };
    }
    (is_in != is_negated).then_some(rest)
}

/// What every text that a pattern matches begins with: keys without it need not be looked at.
pub fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        rest = match rest {
            [] | [b'*' | b'?' | b'[', ..] => return prefix,
            [b'\\', escaped, behind @ ..] => {
                prefix.push(*escaped);
                behind
            }
            [literal, behind @ ..] => {
                prefix.push(*literal);
                behind
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn globs_match_as_in_redis() {
        let cases = [
            // The pattern, what it matches, and what it does not.
            ("", vec![""], vec!["a"]),
            ("*", vec!["", "a", "abc"], vec![]),
            ("**", vec!["a", "abc"], vec![]),
            ("a*", vec!["a", "ab", "a*"], vec!["", "ba"]),
            ("*a", vec!["a", "ba", "aa"], vec!["", "ab"]),
            ("*a*b", vec!["ab", "aab", "axbxb"], vec!["ba", "aba"]),
            ("a?c", vec!["abc", "a?c"], vec!["ac", "abbc"]),
            ("?", vec!["a"], vec!["", "ab"]),
            ("h[ae]llo", vec!["hello", "hallo"], vec!["hillo", "h[ae]llo"]),
            ("h[^e]llo", vec!["hallo", "h^llo"], vec!["hello"]),
            ("h[a-b]llo", vec!["hallo", "hbllo"], vec!["hcllo", "h-llo"]),
            ("[z-a]", vec!["a", "m", "z"], vec!["A"]),
            ("[a-]", vec!["a", "]", "^"], vec!["-", "b"]),
            ("[-a]", vec!["-", "a"], vec!["b"]),
            ("[]a]", vec![], vec!["]", "a", "a]"]),
            ("[^]a]", vec!["xa]", "]a]"], vec!["a"]),
            ("[ab", vec!["a", "b"], vec!["c", "[ab"]),
            ("[^", vec!["a", "^"], vec!["", "ab"]),
            ("[", vec![], vec!["[", "a"]),
            ("[\\]]", vec!["]"], vec!["\\", "a"]),
            ("[\\-a]", vec!["-", "a"], vec!["\\"]),
            ("[a\\", vec!["a", "\\"], vec!["b"]),
            ("\\*", vec!["*"], vec!["a", "\\*"]),
            ("\\a", vec!["a"], vec!["\\a"]),
            ("a\\", vec!["a\\"], vec!["a"]),
            ("\\\\", vec!["\\"], vec!["\\\\"]),
            ("*[b]", vec!["b", "ab"], vec!["a"]),
            ("car:*:speed", vec!["car:7:speed", "car::speed"], vec!["car:7", "xcar:7:speed"]),
        ];
        for (pattern, matching, others) in cases {
            for text in matching {
                assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern:?} {text:?}");
            }
            for text in others {
                assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern:?} {text:?}");
            }
        }
    }

    #[test]
    fn bytes_are_no_text() {
        assert!(matches(b"[\xf0-\xff]?", b"\xff\x00"));
        assert!(!matches(b"[\xf0-\xff]?", b"\xef\x00"));
    }

    #[test]
    fn many_stars_do_not_take_long() {
        // Tried length by length for each star, this would not end in a lifetime.
        let pattern = b"a*".repeat(500);
        let mut text = vec![b'a'; 2_000];
        assert!(matches(&pattern, &text));
        text.push(b'b');
        assert!(!matches(&[&pattern[..], b"c"].concat(), &text));
    }

    /// By the rules, length by length.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| slow(rest, &text[skip..])),
            _ => match text {
                [] => false,
                [byte, behind @ ..] => one(pattern, *byte).is_some_and(|rest| slow(rest, behind)),
            },
        }
    }

    proptest! {
        #[test]
        fn going_back_to_the_last_star_is_enough(
            pattern in "[ab*?\\[\\]^\\\\-]{0,8}",
            text in "[ab\\]-]{0,8}",
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), slow(pattern, text));
            if matches(pattern, text) {
                prop_assert!(text.starts_with(&literal_prefix(pattern)));
            }
        }
    }
}
