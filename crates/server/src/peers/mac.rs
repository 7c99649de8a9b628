//! The cryptography of proofs: keys derived from secrets, and MACs of a handshake under them.
//!
//! HMAC-SHA-256 and ChaCha20-Poly1305, both of `ring`; MACs are compared in constant time. There is
//! a derived key for each purpose, so that a proof for one purpose is useless for another. A MAC
//! covers the end that made it, both hellos byte for byte (site, node, incarnation, protocol,
//! challenges: no answer fits another connection, and a changed hello is detected), and under TLS a
//! value that only the two ends of this connection have (RFC 5705), so that no third party can
//! relay proofs.

use super::secret::Hidden;
use bytes::Bytes;
use ring::{aead, hmac};

/// The end of a connection that makes a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The one that connected.
    Dialler = 1,
    /// The one that accepted.
    Acceptor = 2,
}

/// The handshake that a proof covers.
#[derive(Clone, Copy)]
pub(crate) struct Transcript<'a> {
    /// The hello of the node that connected, as it was sent.
    pub(crate) dialler: &'a [u8],
    /// The hello of the node that accepted.
    pub(crate) acceptor: &'a [u8],
    /// The value that binds the proof to a TLS connection; empty on a plain one.
    pub(crate) channel: &'a [u8],
}

impl Transcript<'_> {
    /// `more`: further content of the proof.
    fn bytes(&self, end: End, more: &[&[u8]]) -> Vec<u8> {
        let mut bytes = b"portolan peer proof 1".to_vec();
        bytes.push(end as u8);
        for part in [self.channel, self.dialler, self.acceptor].iter().chain(more) {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// A key for one purpose.
#[derive(Clone)]
pub(crate) struct Key(hmac::Key);

impl Key {
    /// The key for proofs between nodes of one site.
    pub(crate) fn of_site(secret: &Hidden, site: &str) -> Key {
        Key::derive(secret.reveal().as_bytes(), "portolan peer site 1", site.as_bytes())
    }

    /// The key for proofs between nodes of different sites of a deployment.
    pub(crate) fn of_deployment(secret: &Hidden) -> Key {
        Key::derive(secret.reveal().as_bytes(), "portolan peer deployment 1", b"")
    }

    /// The key for the bearer of a token with these claims.
    pub(crate) fn of_token(&self, claims: &[u8]) -> [u8; 32] {
        self.tag("portolan join token 1", claims)
    }

    /// The key, and the id of it, for the tokens of a deployment's sessions.
    pub(crate) fn of_sessions(secret: &str, deployment: &[u8]) -> (u8, [u8; 32]) {
        let secret = Key::of_bytes(secret.as_bytes());
        let [id, ..] = secret.tag("portolan session key 1", deployment);
        (id, secret.tag("portolan session token 1", deployment))
    }

    /// The key in a token.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    fn derive(secret: &[u8], purpose: &str, of: &[u8]) -> Key {
        Key::of_bytes(&Key::of_bytes(secret).tag(purpose, of))
    }

    fn tag(&self, purpose: &str, of: &[u8]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(&(purpose.len() as u64).to_be_bytes());
        context.update(purpose.as_bytes());
        context.update(of);
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// A MAC of the handshake.
    pub(crate) fn prove(&self, of: &Transcript<'_>, end: End, more: &[&[u8]]) -> Bytes {
        Bytes::copy_from_slice(hmac::sign(&self.0, &of.bytes(end, more)).as_ref())
    }

    /// Whether one of the MACs was made with this key.
    pub(crate) fn verify(
        &self,
        of: &Transcript<'_>,
        end: End,
        more: &[&[u8]],
        macs: &[Bytes],
    ) -> bool {
        let bytes = of.bytes(end, more);
        // All MACs are checked, so that the time does not depend on which one is correct.
        macs.iter().fold(false, |is, mac| is | hmac::verify(&self.0, &bytes, mac).is_ok())
    }

    /// Encrypts for the other end of this connection.
    pub(crate) fn seal(&self, of: &Transcript<'_>, plain: &[u8]) -> Bytes {
        let (key, nonce) = self.sealing(of);
        let mut bytes = plain.to_vec();
        key.seal_in_place_append_tag(nonce, aead::Aad::empty(), &mut bytes)
            .expect("a few secrets are not too long");
        bytes.into()
    }

    /// Decrypts what the other end has sealed.
    pub(crate) fn open(&self, of: &Transcript<'_>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (key, nonce) = self.sealing(of);
        let mut bytes = sealed.to_vec();
        let length = key.open_in_place(nonce, aead::Aad::empty(), &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }

    /// A key for one use: it depends on both ends' challenges.
    fn sealing(&self, of: &Transcript<'_>) -> (aead::LessSafeKey, aead::Nonce) {
        let key = self.tag("portolan join seal 1", &of.bytes(End::Acceptor, &[]));
        let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, &key).expect("it has 32 bytes");
        (aead::LessSafeKey::new(key), aead::Nonce::assume_unique_for_key([0; 12]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Transcript<'_> = Transcript { dialler: b"d", acceptor: b"a", channel: b"" };

    fn key(letter: &str) -> Key {
        Key::of_deployment(&Hidden::new(letter.repeat(32)))
    }

    #[test]
    fn a_proof_is_of_one_key_one_end_and_one_connection() {
        let mac = key("x").prove(&OF, End::Dialler, &[]);
        let holds = |key: &Key, of: &Transcript<'_>, end, more: &[&[u8]]| {
            key.verify(of, end, more, &[Bytes::from_static(b"?"), mac.clone()])
        };
        assert!(holds(&key("x"), &OF, End::Dialler, &[]));
        assert!(!holds(&key("y"), &OF, End::Dialler, &[]));
        assert!(!holds(&key("x"), &OF, End::Acceptor, &[]), "it is sent back");
        assert!(!holds(&key("x"), &OF, End::Dialler, &[b""]));
        let others = [
            Transcript { dialler: b"e", ..OF },
            Transcript { acceptor: b"e", ..OF },
            Transcript { channel: b"c", ..OF },
            Transcript { dialler: b"da", acceptor: b"", channel: b"" },
        ];
        for other in others {
            assert!(!holds(&key("x"), &other, End::Dialler, &[]));
        }
        let secret = Hidden::new("x".repeat(32));
        assert!(!holds(&Key::of_site(&secret, "pier"), &OF, End::Dialler, &[]));
    }

    #[test]
    fn what_is_sealed_is_for_one_connection() {
        let sealed = key("x").seal(&OF, b"secrets");
        assert_eq!(key("x").open(&OF, &sealed).as_deref(), Some(&b"secrets"[..]));
        assert_eq!(key("y").open(&OF, &sealed), None);
        assert_eq!(key("x").open(&Transcript { acceptor: b"b", ..OF }, &sealed), None);
        assert_eq!(key("x").open(&OF, &sealed[1..]), None);
    }

    #[test]
    fn keys_are_derived_as_they_were() {
        // These values never change: nodes of two versions must derive the same keys.
        let secret = Hidden::new("0123456789abcdef0123456789abcdef");
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let site = Key::of_site(&secret, "pier").prove(&OF, End::Dialler, &[]);
        let deployment = Key::of_deployment(&secret).prove(&OF, End::Acceptor, &[b"claims"]);
        assert_eq!(hex(&site), SITE_MAC);
        assert_eq!(hex(&deployment), DEPLOYMENT_MAC);
    }

    const SITE_MAC: &str = "be76139b82c9da78bc7294a92b0bdd9a1212a65583096494e3a1d71b825ebaaf";
    const DEPLOYMENT_MAC: &str = "7e09bfab29135d8e8cb6bc512a1560b7732441cc0649fa069856557fd5a52fe5";
}
