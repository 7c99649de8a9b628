//! Join tokens: what lets a new node in once, before it has the secret itself.
//!
//! A token is what it says (for which site, until when, a random number) and a key that is derived
//! from that and the secret of whoever made it. Nobody remembers tokens: every node with the secret
//! derives the key again from what the token says. The bearer shows what it says and proves that it has the
//! key, which is never sent.

use super::mac::Key;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use model::limits;
use prost::Message as _;
use std::fmt;
use std::time::Duration;
use wire::proof::TokenClaims;

/// What a token's text begins with: the version of its format, too.
const HEAD: &str = "portolan-join-1";

/// A join token, as its bearer has it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    claims: Bytes,
    key: [u8; 32],
}

/// What the bearer of a token may become.
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
    /// It is no token.
    #[error("this is no join token of this version; it begins with {HEAD}. and is one line")]
    Malformed,
    /// Its time is over.
    #[error(
        "the join token expired {} s ago; `portolan site token` makes another (if it was made just \
         now, the machines' clocks differ)",
        ago.as_secs()
    )]
    Expired {
        /// How long ago that was.
        ago: Duration,
    },
    /// It was not made with a secret that is known here.
    #[error(
        "the join token was not made with the secret of {whose}: make another there with `portolan \
         site token`"
    )]
    WrongSecret {
        /// Whose secret.
        whose: String,
    },
    /// It is for a node of another site.
    #[error("the join token is for a node of site {for_site}, and {found} was asked to let it in")]
    OtherSite {
        /// The site that it is for.
        for_site: String,
        /// What was found.
        found: String,
    },
    /// There is nothing to make it of, or to check it with.
    #[error(
        "{whose} has no secret that a join token could be made of; it gets one with [peers] secret_file \
         or PORTOLAN_PEER_SECRET, and by itself if it is a site of one node that has users"
    )]
    NoSecret {
        /// Who has none.
        whose: String,
    },
    /// It would be good for too long, or not at all.
    #[error(
        "a join token is good for {} s to {} s, not for {} s",
        1,
        limits::JOIN_TOKEN_LIFE_MAX.as_secs(),
        life.as_secs()
    )]
    Life {
        /// What was asked for.
        life: Duration,
    },
}

impl JoinToken {
    /// A token that says this, made with a key of a site or a deployment.
    pub(crate) fn make(claims: &TokenClaims, key: &Key) -> JoinToken {
        let claims = Bytes::from(claims.encode_to_vec());
        let key = key.of_token(&claims);
        JoinToken { claims, key }
    }

    /// Reads the text of one.
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

    /// What it says, as it is sent.
    pub(crate) fn claims(&self) -> &Bytes {
        &self.claims
    }

    /// What its bearer proves with that it has it.
    pub(crate) fn key(&self) -> Key {
        Key::of_bytes(&self.key)
    }

    /// The text that the bearer is given.
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

/// What must hold for any text whatever: it is refused or read, and what is read is written as it
/// was. For fuzzing.
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
        // Made once by the first version that has tokens, never to be changed.
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
