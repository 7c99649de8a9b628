//! How two nodes prove to each other that they belong together, before any other message.
//!
//! Each [`Hello`](crate::peer::Hello) carries a challenge. If either side asks for a proof, the
//! node that connected sends a [`Proof`], and the other answers with its own or with a [`Refused`]
//! and closes. Until then frames have at most [`limits::PEER_HELLO_BYTES_MAX`] bytes. What the MACs
//! are made of is `server`'s matter; here is only what travels.

use bytes::Bytes;
use model::limits;

/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 32;
/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;

/// One frame of the handshake.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Handshake {
    /// What it is; `None` when a newer version sends something unknown here.
    #[prost(oneof = "Step", tags = "140, 141")]
    pub step: Option<Step>,
}

/// What a frame of the handshake is.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Step {
    /// The sender has a secret.
    #[prost(message, tag = "140")]
    Proof(Proof),
    /// The sender does not go on with the receiver.
    #[prost(message, tag = "141")]
    Refused(Refused),
}

/// A proof that the sender has a secret.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Proof {
    /// A MAC of the handshake under each of the sender's secrets; none if it has no secret. At most
    /// [`limits::PEER_SECRETS_MAX`].
    #[prost(bytes = "bytes", repeated, tag = "140")]
    pub macs: Vec<Bytes>,
    /// From a node that has a join token: [`TokenClaims`], as they are in the token.
    #[prost(bytes = "bytes", tag = "141")]
    pub token: Bytes,
    /// To a node that has shown a join token: [`Secrets`], encrypted.
    #[prost(bytes = "bytes", tag = "142")]
    pub sealed: Bytes,
}

/// Why the sender does not go on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refused {
    /// A sentence for the operator of the receiver.
    #[prost(string, tag = "140")]
    pub why: String,
}

/// The content of a join token; its maker vouches for it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TokenClaims {
    /// The site that its bearer may become a node of; empty: the bearer may begin a site of the
    /// deployment.
    #[prost(string, tag = "140")]
    pub site: String,
    /// When it expires, in milliseconds since 1970.
    #[prost(uint64, tag = "141")]
    pub expires_ms: u64,
    /// Drawn when it was made, so that no two tokens are the same.
    #[prost(bytes = "bytes", tag = "142")]
    pub nonce: Bytes,
}

/// What the bearer of a join token is given.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Secrets {
    /// The deployment's secrets, the one to prove with first.
    #[prost(string, repeated, tag = "140")]
    pub deployment: Vec<String>,
    /// The site's own, if it has any besides.
    #[prost(string, repeated, tag = "141")]
    pub site: Vec<String>,
}

impl From<Proof> for Handshake {
    fn from(proof: Proof) -> Handshake {
        Handshake { step: Some(Step::Proof(proof)) }
    }
}

impl From<Refused> for Handshake {
    fn from(refused: Refused) -> Handshake {
        Handshake { step: Some(Step::Refused(refused)) }
    }
}

impl Proof {
    /// Whether it can be one at all.
    pub fn is_well_formed(&self) -> bool {
        self.macs.len() <= limits::PEER_SECRETS_MAX
            && self.macs.iter().all(|mac| mac.len() == MAC_BYTES)
    }
}

/// What must hold for any bytes whatever: they are refused or understood, and what is understood is
/// written and read again as the same. For fuzzing.
pub fn check_any(bytes: &[u8]) {
    fn again<M: prost::Message + Default + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        let Ok(message) = M::decode(bytes) else { return };
        assert_eq!(M::decode(message.encode_to_vec().as_slice()).as_ref(), Ok(&message));
    }
    again::<Handshake>(bytes);
    again::<TokenClaims>(bytes);
    again::<Secrets>(bytes);
    again::<crate::peer::Hello>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Hello;
    use proptest::prelude::*;
    use prost::Message as _;

    #[test]
    fn a_hello_without_a_challenge_is_read() {
        // Written once by protocol 1 before links were proved, never to be changed.
        let old =
            b"\x08\x01\x12\x04pier\x18\x07\x21\x09\0\0\0\0\0\0\0\x29\x05\0\0\0\0\0\0\0\x30\x02";
        let hello = Hello::decode(&old[..]).unwrap();
        assert_eq!((hello.protocol, hello.site.as_str(), hello.node), (1, "pier", 7));
        assert_eq!((hello.incarnation, hello.deployment, hello.site_id), (9, 5, 2));
        assert!(hello.challenge.is_empty() && !hello.asks_proof);
        assert_eq!(hello.encode_to_vec(), old, "without a challenge it is written as ever");
    }

    #[test]
    fn format_1_of_the_handshake_is_read() {
        // Written once by the first version that proves links, never to be changed.
        let format_1 = b"\xe2\x08\x10\xe2\x08\x03abc\xea\x08\x01t\xf2\x08\x03\x01\x02\x03";
        let proof = Proof {
            macs: vec![Bytes::from_static(b"abc")],
            token: Bytes::from_static(b"t"),
            sealed: Bytes::from_static(b"\x01\x02\x03"),
        };
        assert!(!proof.is_well_formed(), "a MAC has 32 bytes");
        let message = Handshake::from(proof);
        assert_eq!(
            Handshake::decode(&format_1[..]),
            Ok(message.clone()),
            "this build writes {:02x?}",
            message.encode_to_vec()
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            check_any(&bytes);
        }

        #[test]
        fn any_proof_survives_the_way(
            macs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
            token in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let macs = macs.into_iter().map(Bytes::from).collect();
            let proof = Proof { macs, token: token.into(), sealed: Bytes::new() };
            check_any(&Handshake::from(proof).encode_to_vec());
        }
    }
}
