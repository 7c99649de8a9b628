//! TLS to the servers of a cluster.

use crate::view::Address;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// What makes TLS impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file is not what it should be.
    #[error("{path}: no {what} in it: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
        /// Why it cannot be read.
        cause: String,
    },
    /// The certificate and the key do not fit.
    #[error("{cert} and {key}: {cause}")]
    Pair {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why not.
        cause: String,
    },
}

/// How to make connections secret: whose certificates are trusted, and what to show.
#[derive(Clone)]
pub struct Tls(TlsConnector);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Trusts the certificates that `ca` has signed; `identity` is a certificate and its key, for
    /// servers that ask for one (they do by default). All files are PEM.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(ca: &Path, identity: Option<(&Path, &Path)>) -> Result<Tls, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| unreadable(ca, "CA certificate", &error))?;
        }
        // The suites are named here; a process-wide default could be set by other code.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| unreadable(key, "private key", &error))?;
                let pair = builder.with_client_auth_cert(certificates(cert)?, secret);
                pair.map_err(|error| TlsError::Pair {
                    cert: cert.to_owned(),
                    key: key.to_owned(),
                    cause: error.to_string(),
                })?
            }
        };
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }

    /// Secures a connection to a server, whose certificate must be for its host.
    pub(crate) async fn secure(
        &self,
        address: &Address,
        socket: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(address.host.clone()).map_err(std::io::Error::other)?;
        self.0.connect(name, socket).await
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let found = CertificateDer::pem_file_iter(path)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|error| unreadable(path, what, &error))?;
    match found.is_empty() {
        true => Err(unreadable(path, what, &"it has none")),
        false => Ok(found),
    }
}

fn unreadable(path: &Path, what: &'static str, cause: &impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), what, cause: cause.to_string() }
}
