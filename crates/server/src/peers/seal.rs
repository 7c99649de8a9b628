//! Sessions' tokens as clients carry them: sealed, so that a client can neither read what a site
//! has written nor ask for what no site has given.
//!
//! ```text
//! sealed = key id (1 byte) ‖ nonce (12) ‖ token, encrypted (24 for causal keys) ‖ tag (16)
//! ```
//!
//! AES-256-GCM-SIV (RFC 8452): many nodes draw nonces for one key, and one that is drawn twice
//! shows no more than whether two tokens are equal. The key is derived from the deployment's secret
//! and its id, so all nodes of the deployment open what one has sealed, and no other deployment
//! does. Of two secrets the first seals and both open, as for proofs. A deployment without a secret
//! has a key of its id alone, under key id 0: it trusts every program that reaches its nodes
//! anyway.
//!
//! The key id is no secret: it finds the key, and the tag decides.

use super::mac::Key;
use super::secret::Hidden;
use aes_gcm_siv::aead::{Aead as _, KeyInit as _, Payload};
use aes_gcm_siv::{Aes256GcmSiv, Nonce};
use model::{Bytes, DeploymentId, SessionToken, limits};

const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
/// What sealing adds to a token.
const ADDED_BYTES: usize = 1 + NONCE_BYTES + TAG_BYTES;
/// The key of a deployment without a secret.
const NO_SECRET: u8 = 0;

/// The keys of a deployment for tokens of sessions.
pub(crate) struct Seals {
    deployment: DeploymentId,
    /// The first one seals.
    keys: Vec<(u8, Aes256GcmSiv)>,
}

impl Seals {
    pub(super) fn new(deployment: DeploymentId, secrets: &[Hidden]) -> Seals {
        let of = deployment.0.to_be_bytes();
        let seal = |id: u8, key: [u8; 32]| (id, Aes256GcmSiv::new(&key.into()));
        let mut keys: Vec<_> = secrets
            .iter()
            .map(|secret| Key::of_sessions(secret.reveal(), &of))
            .map(|(id, key)| seal(id.max(NO_SECRET + 1), key))
            .collect();
        if keys.is_empty() {
            keys.push(seal(NO_SECRET, Key::of_sessions("", &of).1));
        }
        Seals { deployment, keys }
    }

    /// Whether they are this deployment's.
    pub(super) fn are_of(&self, deployment: DeploymentId) -> bool {
        self.deployment == deployment
    }

    /// Seals a token under a random nonce.
    pub(super) fn seal(&self, token: &SessionToken, nonce: [u8; NONCE_BYTES]) -> Bytes {
        let (id, key) = &self.keys[0];
        let payload = Payload { msg: token.bytes(), aad: &[*id] };
        let body = key.encrypt(&Nonce::from(nonce), payload).expect("a token is not too long");
        [&[*id][..], &nonce, &body].concat().into()
    }

    /// Opens what a node of this deployment has sealed; `None`: none has.
    pub(crate) fn open(&self, sealed: &[u8]) -> Option<SessionToken> {
        if sealed.len() > limits::SESSION_TOKEN_BYTES_MAX + ADDED_BYTES {
            return None;
        }
        let (id, rest) = sealed.split_first()?;
        let (nonce, body) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let of_id = self.keys.iter().filter(|(key_id, _)| key_id == id);
        let opened = of_id.filter_map(|(_, key)| {
            key.decrypt(&Nonce::from(*nonce), Payload { msg: body, aad: &[*id] }).ok()
        });
        SessionToken::new(opened.into_iter().next()?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{CausalToken, Position, Revision, SiteId};

    fn seals(deployment: u64, letters: &str) -> Seals {
        let secrets: Vec<_> =
            letters.chars().map(|letter| Hidden::new(letter.to_string().repeat(32))).collect();
        Seals::new(DeploymentId(deployment), &secrets)
    }

    fn token() -> SessionToken {
        let written = Some((SiteId(3), Revision(8)));
        CausalToken { seen: Position::new(1, 9), written, ..CausalToken::default() }.into_session()
    }

    #[test]
    fn only_its_deployment_opens_a_token() {
        let sealed = seals(7, "a").seal(&token(), [5; 12]);
        assert_eq!(sealed.len(), 53);
        assert_eq!(seals(7, "a").open(&sealed), Some(token()));
        for other in [seals(8, "a"), seals(7, "b"), seals(7, "")] {
            assert_eq!(other.open(&sealed), None);
        }
        let open = seals(7, "").seal(&token(), [5; 12]);
        assert_eq!(seals(7, "").open(&open), Some(token()));
        assert_eq!(seals(8, "").open(&open), None);
    }

    #[test]
    fn secrets_are_changed_one_node_after_the_other() {
        let (old, adds, swaps, new) =
            (seals(7, "o"), seals(7, "on"), seals(7, "no"), seals(7, "n"));
        for pair in [[&old, &adds], [&adds, &swaps], [&swaps, &new]] {
            for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                assert_eq!(other.open(&one.seal(&token(), [1; 12])), Some(token()));
            }
        }
        assert_eq!(new.open(&old.seal(&token(), [1; 12])), None);
    }

    #[test]
    fn what_is_changed_on_the_way_does_not_open() {
        let seals = seals(7, "a");
        let sealed = seals.seal(&token(), [5; 12]);
        for at in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert_eq!(seals.open(&changed), None, "byte {at}");
            assert_eq!(seals.open(&sealed[..at]), None, "cut to {at} bytes");
        }
        assert_eq!(seals.open(&[0; 4096]), None);
    }

    #[test]
    fn tokens_are_sealed_as_they_were() {
        // These bytes never change: nodes of two versions must open each other's tokens.
        let sealed = seals(7, "a").seal(&token(), [5; 12]);
        let hex: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, SEALED);
    }

    const SEALED: &str = "020505050505050505050505052b16ef4dcb1a88b3bd9ef7f083ea7e43\
                          2d396847708a835f1868f75f583dc6e4e7a451099096abcd";
}
