//! TLS of each port, from PEM files.
//!
//! Towards clients a port presents its certificate, and requests theirs only when a `ca` is
//! configured. Between nodes it is mutual: each side presents its certificate and accepts only
//! those that the site's `ca` has signed; [`crate::peers`] checks whether the bearer is a node.
//! Versions 1.2 and 1.3, the suites of `ring`. Files are read once, at start; a renewed certificate
//! needs a restart of the node (one at a time, the site stays available).

use crate::config::TlsConfig;
use crate::peers::role::Roles;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ConnectionCommon, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a port's TLS cannot be set up. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read, or contains nothing of the kind.
    #[error("{path} must hold {what} in PEM form: {cause}", path = path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it must hold.
        what: &'static str,
        /// The reader's error.
        cause: String,
    },
    /// Certificate and key cannot be used (together).
    #[error("{cert} and {key} cannot be used together: {cause}", cert = cert.display(), key = key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The authority's certificates cannot be used.
    #[error("{path} cannot be used as ca: {cause}", path = path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        cause: String,
    },
    /// The peer port needs a CA to verify other nodes.
    #[error("[tls.peer] needs a ca: nodes prove themselves to each other")]
    PeerWithoutCa,
    /// The address of a peer has no name that a certificate could be for.
    #[error("{0:?} is no host name or IP address that a certificate could be for")]
    Name(String),
}

/// The accepting side of a client port (Redis, gRPC, admin). `alpn`: the protocols it speaks, most
/// wanted first (`h2` for gRPC, `http/1.1` for the admin port, none for Redis).
pub fn client_port(tls: &TlsConfig, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = accepting(tls)?;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Both sides of the links between nodes.
pub struct PeerTls {
    /// For links that other nodes open.
    pub accept: Arc<ServerConfig>,
    /// For links that this node opens.
    pub connect: Arc<ClientConfig>,
}

impl PeerTls {
    /// Reads certificate, key and authority. The certificate must allow both roles.
    pub fn load(tls: &TlsConfig) -> Result<PeerTls, TlsError> {
        let ca = tls.ca.as_deref().ok_or(TlsError::PeerWithoutCa)?;
        let (chain, key) = identity(tls)?;
        let connect = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for both versions")
            .with_root_certificates(roots(ca)?)
            .with_client_auth_cert(chain, key)
            .map_err(|error| unusable_pair(tls, &error))?;
        Ok(PeerTls { accept: Arc::new(accepting(tls)?), connect: Arc::new(connect) })
    }
}

/// The TLS session of a link between nodes.
pub(crate) struct Session {
    /// A value that only the two ends of this connection have (RFC 5705).
    pub(crate) channel: Vec<u8>,
    /// The roles in the other end's certificate.
    pub(crate) roles: Roles,
}

/// The exporter label of [`Session::channel`].
const CHANNEL_LABEL: &[u8] = b"EXPORTER-portolan-peer-proof";

impl Session {
    /// The session of a connection after its handshake.
    pub(crate) fn of<Side>(connection: &ConnectionCommon<Side>) -> std::io::Result<Session> {
        let channel = connection.export_keying_material(vec![0; 32], CHANNEL_LABEL, None);
        let shown = connection.peer_certificates().and_then(|chain| chain.first());
        Ok(Session {
            channel: channel.map_err(std::io::Error::other)?,
            roles: shown.map(Roles::of).unwrap_or_default(),
        })
    }
}

/// The roles in the certificate of a port.
pub(crate) fn own_roles(tls: &TlsConfig) -> Result<Roles, TlsError> {
    Ok(certificates(&tls.cert)?.first().map(Roles::of).unwrap_or_default())
}

/// The name that the certificate of the peer at `address` (`host:port`) must be for.
pub fn peer_name(address: &str) -> Result<ServerName<'static>, TlsError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(address.to_owned()))
}

fn accepting(tls: &TlsConfig) -> Result<ServerConfig, TlsError> {
    let (chain, key) = identity(tls)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions");
    let builder = match &tls.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(ca)?.into(), provider())
                    .build()
                    .map_err(|error| TlsError::Ca { path: ca.clone(), cause: error.to_string() })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder.with_single_cert(chain, key).map_err(|error| unusable_pair(tls, &error))
}

/// The suites are named here; a process-wide default could be set by other code.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn identity(
    tls: &TlsConfig,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let chain = certificates(&tls.cert)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key)
        .map_err(|error| unreadable(&tls.key, "a private key", &error))?;
    Ok((chain, key))
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Ca { path: path.to_owned(), cause: error.to_string() })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificates";
    let found = CertificateDer::pem_file_iter(path)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| unreadable(path, what, &error))?;
    match found.is_empty() {
        true => Err(unreadable(path, what, &"there is none in it")),
        false => Ok(found),
    }
}

fn unreadable(path: &Path, what: &'static str, cause: &impl ToString) -> TlsError {
    TlsError::Pem { path: path.to_owned(), what, cause: cause.to_string() }
}

fn unusable_pair(tls: &TlsConfig, cause: &impl ToString) -> TlsError {
    TlsError::Pair { cert: tls.cert.clone(), key: tls.key.clone(), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use field::tls::{Authority, Certificates};
    use rustls::{ClientConnection, Connection, ServerConnection};

    /// A CA, and certificates for loopback that it signed.
    struct Office {
        authority: Authority,
        _folder: tempfile::TempDir,
    }

    impl Office {
        fn new() -> Office {
            let folder = tempfile::tempdir().unwrap();
            Office { authority: Authority::new(folder.path()), _folder: folder }
        }

        fn issue(&self, name: &str) -> TlsConfig {
            let Certificates { ca, cert, key } = self.authority.issue(name, None);
            TlsConfig { cert, key, ca: Some(ca) }
        }
    }

    /// Shakes hands in memory. Returns the error of the side that refuses.
    fn handshake(
        client: Arc<ClientConfig>,
        server: Arc<ServerConfig>,
    ) -> Result<(), rustls::Error> {
        let name = peer_name("localhost:7381").unwrap();
        let mut client = Connection::from(ClientConnection::new(client, name).unwrap());
        let mut server = Connection::from(ServerConnection::new(server).unwrap());
        while client.is_handshaking() || server.is_handshaking() {
            for turn in 0..2 {
                let (from, to) = match turn {
                    0 => (&mut client, &mut server),
                    _ => (&mut server, &mut client),
                };
                let mut sent = Vec::new();
                while from.wants_write() {
                    from.write_tls(&mut sent).unwrap();
                }
                let mut unread = &sent[..];
                while !unread.is_empty() {
                    to.read_tls(&mut unread).unwrap();
                    to.process_new_packets()?;
                }
            }
        }
        // In 1.3 a client is done before the server has checked its certificate.
        let mut sent = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut sent).unwrap();
        }
        Ok(())
    }

    #[test]
    fn nodes_trust_certificates_of_one_authority_alone() {
        let (ours, theirs) = (Office::new(), Office::new());
        let a = PeerTls::load(&ours.issue("a")).unwrap();
        let b = PeerTls::load(&ours.issue("b")).unwrap();
        let other = PeerTls::load(&theirs.issue("s")).unwrap();
        handshake(a.connect.clone(), b.accept.clone()).unwrap();
        handshake(b.connect, a.accept.clone()).unwrap();
        handshake(a.connect, other.accept).unwrap_err();
        handshake(other.connect, a.accept).unwrap_err();
    }

    #[test]
    fn a_client_port_asks_for_certificates_only_with_a_ca() {
        let office = Office::new();
        let with_ca = office.issue("port");
        let without_ca = TlsConfig { ca: None, ..with_ca.clone() };
        let roots = roots(with_ca.ca.as_deref().unwrap()).unwrap();
        let nameless = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let nameless = Arc::new(nameless);
        handshake(nameless.clone(), client_port(&without_ca, &[]).unwrap()).unwrap();
        handshake(nameless, client_port(&with_ca, &[]).unwrap()).unwrap_err();
    }

    #[test]
    fn errors_name_the_file() {
        let office = Office::new();
        let good = office.issue("good");
        let said = |tls: TlsConfig| client_port(&tls, &[]).unwrap_err().to_string();

        let absent = said(TlsConfig { key: "absent.key".into(), ..good.clone() });
        assert!(absent.starts_with("absent.key must hold a private key"), "{absent}");
        let swapped = said(TlsConfig { cert: good.key.clone(), ..good.clone() });
        assert!(swapped.contains("good.key must hold certificates"), "{swapped}");
        let mixed = said(TlsConfig { key: office.issue("other").key, ..good.clone() });
        assert!(mixed.contains("cannot be used together"), "{mixed}");
        let refused = PeerTls::load(&TlsConfig { ca: None, ..good });
        assert!(matches!(refused, Err(TlsError::PeerWithoutCa)));
    }

    #[test]
    fn a_peer_is_called_by_its_host() {
        for (address, host) in
            [("a.example:1", "a.example"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:7", "::1")]
        {
            assert_eq!(peer_name(address).unwrap().to_str(), host);
        }
        assert!(peer_name("a b:1").is_err());
    }
}
