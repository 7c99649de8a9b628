//! Certificates for a test: an authority of its own, and a certificate of it for loopback.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// PEM files in one folder.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// Who signed.
    pub ca: PathBuf,
    /// Valid for `localhost` and `127.0.0.1`, for servers and clients.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Makes an authority and a certificate in `folder`.
///
/// # Panics
/// When the folder cannot be written.
#[must_use]
pub fn certificates(folder: &Path) -> Certificates {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "portolan field tests");
    let authority = KeyPair::generate()
        .and_then(|key| CertifiedIssuer::self_signed(authority, key))
        .expect("an authority can be made");

    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().expect("a key can be made");
    let certificate = CertificateParams::new(names)
        .and_then(|params| params.signed_by(&key, &authority))
        .expect("a certificate can be made");

    let write = |name: &str, pem: &str| {
        let path = folder.join(name);
        fs::write(&path, pem).expect("a test's folder can be written");
        path
    };
    Certificates {
        ca: write("ca.pem", &authority.pem()),
        cert: write("node.pem", &certificate.pem()),
        key: write("node.key", &key.serialize_pem()),
    }
}
