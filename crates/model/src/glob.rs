//! Redis's globs: `*` any bytes, `?` one byte, `[a-z]` and `[^a-z]` one of a class, `\x` the byte x.
//!
//! The corner cases are Redis's (its `stringmatchlen`), because clients have come to rely on them:
//! a class that is not closed ends with the pattern, `[z-a]` is `[a-z]`, a backslash at the very end
//! stands for itself, and there is no way to escape inside a class but a backslash.
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

    #[test]
    fn the_corners_are_those_of_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("a*c", "abbc"),
            ("a**", "a"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("[z-a]", "m"),
            ("[abc", "b"),
            ("a\\*", "a*"),
            ("a\\", "a\\"),
            ("[\\]]", "]"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("?", ""), ("h[^e]llo", "hello"), ("a\\*", "ab"), ("a*b", "abc")]
        {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn a_prefix_ends_where_choice_begins() {
        assert_eq!(literal_prefix(b"car:\\*:*x"), b"car:*:");
        assert_eq!(literal_prefix(b"[a]"), b"");
    }
}
