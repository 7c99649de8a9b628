//! The node that a certificate names: `portolan://node/SITE` or `portolan://node/SITE/NODE`, a URI
//! among its alternative names.
//!
//! The signature of a CA alone is not enough; clients may have certificates of the same CA. Only
//! the URI identifies the bearer as a node, and its site.

use model::NodeId;
use rustls::pki_types::CertificateDer;

/// The prefix of the URI of a node.
const ROLE: &str = "portolan://node/";

/// The URIs of a certificate that name the nodes its bearer may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles(Vec<String>);

impl Roles {
    /// The roles in a verified certificate.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Roles {
        let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
            return Roles::default();
        };
        let uris = certificate.valid_uri_names().filter(|uri| uri.starts_with(ROLE));
        Roles(uris.map(str::to_owned).collect())
    }

    #[cfg(test)]
    pub(crate) fn of_uris(uris: &[&str]) -> Roles {
        Roles(uris.iter().map(|uri| (*uri).to_owned()).collect())
    }

    /// Whether the certificate names no node.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether its bearer may be this node.
    pub(crate) fn allow(&self, site: &str, node: NodeId) -> bool {
        let of_site = uri(site);
        let of_node = format!("{of_site}/{}", node.0);
        self.0.iter().any(|found| *found == of_site || *found == of_node)
    }

    /// The URIs, for messages.
    pub(crate) fn shown(&self) -> String {
        let shown = self.0.join(", ");
        shown.chars().filter(|c| !c.is_control()).take(200).collect()
    }
}

/// The URI of any node of a site.
pub(crate) fn uri(site: &str) -> String {
    format!("{ROLE}{site}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn roles(uris: &[&str]) -> Roles {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Roles::of(certificate.der())
    }

    #[test]
    fn a_certificate_names_its_node() {
        let any = roles(&["portolan://node/pier"]);
        assert!(any.allow("pier", NodeId(1)) && any.allow("pier", NodeId(2)));
        assert!(!any.allow("pie", NodeId(1)) && !any.allow("pier-2", NodeId(1)));
        let one = roles(&["https://example.com/", "portolan://node/pier/2"]);
        assert!(one.allow("pier", NodeId(2)) && !one.allow("pier", NodeId(1)));
        assert!(!one.allow("pier", NodeId(22)));
        assert_eq!(one.shown(), "portolan://node/pier/2");
        let none = roles(&["https://example.com/portolan://node/pier"]);
        assert!(none.is_none() && !none.allow("pier", NodeId(1)));
        assert!(roles(&[]).is_none());
        assert!(Roles::of(&CertificateDer::from(vec![1, 2, 3])).is_none());
    }
}
