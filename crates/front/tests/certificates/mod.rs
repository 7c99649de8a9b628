//! Certificates for the TLS tests of all ports.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use server::config::TlsConfig;

/// An authority, and a certificate of it for `127.0.0.1`. Its files go when it is dropped.
pub(crate) struct Certificates {
    /// The configuration of a port.
    pub(crate) port: TlsConfig,
    /// The authority for clients (PEM).
    pub(crate) ca: String,
    _office: tempfile::TempDir,
}

pub(crate) fn certificates() -> Certificates {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &ca).unwrap();
    let office = tempfile::tempdir().unwrap();
    let port = TlsConfig {
        cert: office.path().join("port.pem"),
        key: office.path().join("port.key"),
        ca: None,
    };
    std::fs::write(&port.cert, cert.pem()).unwrap();
    std::fs::write(&port.key, key.serialize_pem()).unwrap();
    Certificates { port, ca: ca.pem(), _office: office }
}
