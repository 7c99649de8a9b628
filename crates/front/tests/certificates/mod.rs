//! Certificates for the TLS tests of all ports.

use field::tls::Authority;
use server::config::TlsConfig;

/// An authority, and a certificate of it for `127.0.0.1`. Its files go when it is dropped.
pub(crate) struct Certificates {
    /// The configuration of a port.
    pub(crate) port: TlsConfig,
    /// The authority for clients (PEM).
    pub(crate) ca: String,
    _folder: tempfile::TempDir,
}

pub(crate) fn certificates() -> Certificates {
    let folder = tempfile::tempdir().unwrap();
    let issued = Authority::new(folder.path()).issue("port", None);
    let ca = std::fs::read_to_string(&issued.ca).unwrap();
    let port = TlsConfig { cert: issued.cert, key: issued.key, ca: None };
    Certificates { port, ca, _folder: folder }
}
