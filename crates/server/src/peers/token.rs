//! Join tokens: a new node uses one to join, before it has the secret itself.
//!
//! A token consists of its claims (site, expiry, a random number) and a key that is derived from
//! the claims and the secret of the node that made it. Tokens are not stored: every node with the
//! secret derives the key again from the claims. The bearer sends the claims and proves that it has
//! the key, which is never sent.

use super::mac::Key;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use model::limits;
use prost::Message as _;
use std::fmt;
use std::time::Duration;
use wire::proof::TokenClaims;

/// The prefix of a token's text, with the version of its format.
const HEAD: &str = "portolan-join-1";

/// A join token, with its key.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    claims: Bytes,
    key: [u8; 32],
}

/// What a token allows its bearer to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScope {
    /// A node of the site where the token is made.
    Site,
    /// The first node of a new site of the deployment.
    Deployment,
}

/// Why a token is not accepted, or not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is not a token.
    #[error("this is no join token of this version; it begins with {HEAD}. and is one line")]
    Malformed,
    /// It has expired.
    #[error(
        "the join token expired {} s ago; `portolan site token` makes another (if it was made just \
         now, the machines' clocks differ)",
        ago.as_secs()
    )]
    Expired {
        /// The time since then.
        ago: Duration,
    },
    /// It was not made with a secret of this node.
    #[error(
        "the join token was not made with the secret of {whose}: make another there with `portolan \
         site token`"
    )]
    WrongSecret {
        /// The owner of the expected secret.
        whose: String,
    },
    /// It is for a node of another site.
    #[error("the join token is for a node of site {for_site}, and {found} received it")]
    OtherSite {
        /// The site that it is for.
        for_site: String,
        /// The site that was asked.
        found: String,
    },
    /// There is no secret to make or check it with.
    #[error(
        "{whose} has no secret that a join token could be made of; it gets one with [peers] secret_file \
         or PORTOLAN_PEER_SECRET, and by itself if it is a site of one node that has users"
    )]
    NoSecret {
        /// The site or deployment without a secret.
        whose: String,
    },
    /// The requested lifetime is too long or too short.
    #[error(
        "a join token is valid for {} s to {} s, not for {} s",
        1,
        limits::JOIN_TOKEN_LIFE_MAX.as_secs(),
        life.as_secs()
    )]
    Life {
        /// The requested lifetime.
        life: Duration,
    },
}

impl JoinToken {
    /// Makes a token with these claims, with a key of a site or a deployment.
    pub(crate) fn make(claims: &TokenClaims, key: &Key) -> JoinToken {
        let claims = Bytes::from(claims.encode_to_vec());
        let key = key.of_token(&claims);
        JoinToken { claims, key }
    }

    /// Reads the text of a token.
    pub fn parse(text: &str) -> Result<JoinToken, TokenError> {
        let text = text.trim();
        if text.len() > limits::JOIN_TOKEN_BYTES_MAX {
            return Err(TokenError::Malformed);
        }
        let mut parts = text.split('.');
        let (Some(HEAD), Some(claims), Some(key), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        let decode = |part| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
        let claims = Bytes::from(decode(claims)?);
        TokenClaims::decode(claims.clone()).map_err(|_| TokenError::Malformed)?;
        let key = decode(key)?.try_into().map_err(|_| TokenError::Malformed)?;
        Ok(JoinToken { claims, key })
    }

    /// The claims as they are sent.
    pub(crate) fn claims(&self) -> &Bytes {
        &self.claims
    }

    /// The key with which the bearer proves that it has the token.
    pub(crate) fn key(&self) -> Key {
        Key::of_bytes(&self.key)
    }

    /// The text of the token.
    pub(crate) fn to_text(&self) -> String {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        format!("{HEAD}.{}.{}", encode(&self.claims), encode(&self.key))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinToken(hidden)")
    }
}

/// Checks for any text that it is refused or read, and that a read token is written as it was. For
/// fuzzing.
pub fn check_any(text: &str) {
    if let Ok(token) = JoinToken::parse(text) {
        assert_eq!(JoinToken::parse(&token.to_text()), Ok(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::secret::Hidden;
    use proptest::prelude::*;

    fn token() -> JoinToken {
        let nonce = Bytes::from_static(&[7; 16]);
        let claims = TokenClaims { site: "pier".into(), expires_ms: 1_700_000_000_000, nonce };
        JoinToken::make(&claims, &Key::of_site(&Hidden::new("s".repeat(32)), "pier"))
    }

    #[test]
    fn a_token_is_one_word_and_read_again() {
        let text = token().to_text();
        assert!(!text.contains(char::is_whitespace) && text.starts_with("portolan-join-1."));
        assert_eq!(JoinToken::parse(&format!(" {text}\n")), Ok(token()));
        for wrong in ["", "portolan-join-1", "portolan-join-1..", &text[1..], &format!("{text}.")] {
            assert_eq!(JoinToken::parse(wrong), Err(TokenError::Malformed), "{wrong}");
        }
        assert_eq!(format!("{:?}", token()), "JoinToken(hidden)");
    }

    #[test]
    fn a_token_of_format_1_is_read() {
        // Made by the first version with tokens; never change it.
        assert_eq!(token().to_text(), FORMAT_1);
    }

    const FORMAT_1: &str = "portolan-join-1.4ggEcGllcugIgNCV_7wx8ggQBwcHBwcHBwcHBwcHBwcH\
        Bw.O4fg_McdLJQXSBSq3wuZDptIfrZKHa-N-j4RSqtrdvg";

    proptest! {
        #[test]
        fn any_text_is_refused_or_read(text in ".{0,60}", tail in "[A-Za-z0-9_.-]{0,90}") {
            check_any(&text);
            check_any(&format!("{HEAD}.{tail}"));
        }

        #[test]
        fn a_token_that_was_changed_is_another(
            at in any::<prop::sample::Index>(), letter in "[A-Za-z0-9_-]",
        ) {
            let mut text = token().to_text();
            let at = at.index(text.len());
            text.replace_range(at..=at, &letter);
            check_any(&text);
        }
    }
}
