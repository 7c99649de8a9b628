//! Certificates for a test: a CA of its own, and certificates signed by it for loopback.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

/// PEM files in one folder.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The CA's certificate.
    pub ca: PathBuf,
    /// Valid for `localhost` and `127.0.0.1`, for servers and clients.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A CA.
pub struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Creates one, with its files in `folder`.
    ///
    /// # Panics
    /// When the folder cannot be written.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "portolan field tests");
        let issuer = KeyPair::generate()
            .and_then(|key| CertifiedIssuer::self_signed(params, key))
            .expect("an authority can be made");
        let authority = Self { folder: folder.to_owned(), issuer };
        authority.write("ca.pem", &authority.issuer.pem());
        authority
    }

    /// Signs a certificate with files of this name; `role`: the URI that identifies its node.
    ///
    /// # Panics
    /// When the folder cannot be written.
    #[must_use]
    pub fn issue(&self, name: &str, role: Option<&str>) -> Certificates {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names of loopback are names");
        params
            .subject_alt_names
            .extend(role.map(|uri| SanType::URI(uri.try_into().expect("a role is ASCII"))));
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be made");
        Certificates {
            ca: self.folder.join("ca.pem"),
            cert: self.write(&format!("{name}.pem"), &certificate.pem()),
            key: self.write(&format!("{name}.key"), &key.serialize_pem()),
        }
    }

    fn write(&self, name: &str, pem: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, pem).expect("a test's folder can be written");
        path
    }
}

/// Creates a CA and a certificate in `folder`, for a node of the site `field`.
///
/// # Panics
/// When the folder cannot be written.
#[must_use]
pub fn certificates(folder: &Path) -> Certificates {
    Authority::new(folder).issue("node", Some("portolan://node/field"))
}
