//! Decides whether a node's evidence is enough: no sockets, no clocks, a table.

use super::role::{self, Roles};
use model::NodeId;

/// What this node requires of other nodes.
pub(crate) struct Policy {
    /// The site or deployment that they must belong to, for messages.
    pub(crate) to: String,
    /// Whether it requires a proof.
    pub(crate) asks: bool,
    /// Whether nodes without a proof, or of a version without proofs, are accepted nevertheless.
    pub(crate) accept_unproved: bool,
    /// Whether it has a secret to check proofs with.
    pub(crate) has_secret: bool,
}

/// The claims and evidence of a node.
pub(crate) struct Evidence<'a> {
    /// The site that it claims.
    pub(crate) site: &'a str,
    /// The node id that it claims.
    pub(crate) node: NodeId,
    /// Whether its protocol has proofs.
    pub(crate) knows_proofs: bool,
    /// Whether it sent any MAC,
    pub(crate) shows_macs: bool,
    /// and a correct one.
    pub(crate) mac_is_right: bool,
    /// The roles in its certificate; `None`: there is no TLS.
    pub(crate) roles: Option<&'a Roles>,
}

/// Why a node is refused. Reported to its operator and to this node's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotProved {
    #[error(
        "{who} does not prove that it belongs to {to}: start it with the secret of the other nodes \
         (PORTOLAN_PEER_SECRET, or secret_file in [peers]); or, to let it join, with a token that \
         `portolan site token` makes there (--join-token-file)"
    )]
    NoSecret { who: String, to: String },
    #[error(
        "{who} has another secret than {to}: all nodes need the same (PORTOLAN_PEER_SECRET, secret_file \
         in [peers], or peer-secret in the data directory)"
    )]
    OtherSecret { who: String, to: String },
    #[error(
        "the node that {who} links to requires a proof that others belong to {to}, and has no secret to \
         check one with: give all nodes the same one (PORTOLAN_PEER_SECRET, or secret_file in [peers])"
    )]
    NothingToCheckWith { who: String, to: String },
    #[error(
        "{who} shows a certificate that does not state that it is a node: it needs {uri} among its \
         alternative names (URI), or all nodes need a secret ([peers] secret_file)"
    )]
    NoRole { who: String, uri: String },
    #[error("{who} shows the certificate of another: it states {states}")]
    OtherRole { who: String, states: String },
    #[error(
        "{who} speaks an older protocol, which has no proofs: start the new version there; until all nodes \
         have it, accept_unproved in [peers] lets it in"
    )]
    Older { who: String },
}

impl Policy {
    /// The decision.
    pub(crate) fn judge(&self, shown: &Evidence<'_>) -> Result<(), NotProved> {
        let who = || format!("{} of site {}", shown.node, shown.site);
        let to = || self.to.clone();
        let is_allowed = shown.roles.is_some_and(|roles| roles.allow(shown.site, shown.node));
        // A certificate that names another node is refused, whatever else is presented.
        if let Some(roles) = shown.roles.filter(|roles| !roles.is_none() && !is_allowed) {
            return Err(NotProved::OtherRole { who: who(), states: roles.shown() });
        }
        if !self.asks {
            return Ok(());
        }
        let proved = if self.has_secret { shown.mac_is_right } else { is_allowed };
        // Not with a wrong secret: a node that has a secret must have the right one.
        let is_let_in = self.accept_unproved && !(self.has_secret && shown.shows_macs);
        if proved || is_let_in {
            return Ok(());
        }
        Err(match (self.has_secret, shown.roles) {
            (true, _) if !shown.knows_proofs => NotProved::Older { who: who() },
            (true, _) if shown.shows_macs => NotProved::OtherSecret { who: who(), to: to() },
            (true, _) => NotProved::NoSecret { who: who(), to: to() },
            (false, Some(_)) => NotProved::NoRole { who: who(), uri: role::uri(shown.site) },
            (false, None) => NotProved::NothingToCheckWith { who: who(), to: to() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: Policy =
        Policy { to: String::new(), asks: true, accept_unproved: false, has_secret: true };
    const STRANGER: Evidence<'_> = Evidence {
        site: "pier",
        node: NodeId(1),
        knows_proofs: true,
        shows_macs: false,
        mac_is_right: false,
        roles: None,
    };

    #[test]
    fn a_secret_decides_where_there_is_one() {
        let wrong = Evidence { shows_macs: true, ..STRANGER };
        let right = Evidence { mac_is_right: true, ..wrong };
        assert_eq!(CLOSED.judge(&right), Ok(()));
        assert!(matches!(CLOSED.judge(&STRANGER), Err(NotProved::NoSecret { .. })));
        assert!(matches!(CLOSED.judge(&wrong), Err(NotProved::OtherSecret { .. })));
        let older = Evidence { knows_proofs: false, ..STRANGER };
        assert!(matches!(CLOSED.judge(&older), Err(NotProved::Older { .. })));
        let empty = Policy { has_secret: false, ..CLOSED };
        assert!(matches!(empty.judge(&right), Err(NotProved::NothingToCheckWith { .. })));
    }

    #[test]
    fn a_node_on_loopback_without_anything_asks_for_nothing() {
        let open = Policy { asks: false, has_secret: false, ..CLOSED };
        assert_eq!(open.judge(&STRANGER), Ok(()));
        assert_eq!(open.judge(&Evidence { knows_proofs: false, ..STRANGER }), Ok(()));
    }

    #[test]
    fn certificates_decide_where_there_is_no_secret_and_never_lie() {
        let by_role = Policy { has_secret: false, ..CLOSED };
        let roles = |uri: &str| Roles::of_uris(&[uri]);
        let none = Roles::default();
        let shown = |roles| Evidence { roles: Some(roles), ..STRANGER };
        let right = roles("portolan://node/pier");
        assert_eq!(by_role.judge(&shown(&right)), Ok(()));
        assert!(matches!(by_role.judge(&shown(&none)), Err(NotProved::NoRole { .. })));
        let other = roles("portolan://node/quay");
        assert!(matches!(by_role.judge(&shown(&other)), Err(NotProved::OtherRole { .. })));
        let lie = Evidence { mac_is_right: true, shows_macs: true, ..shown(&other) };
        assert!(matches!(CLOSED.judge(&lie), Err(NotProved::OtherRole { .. })));
        let right = Evidence { mac_is_right: true, shows_macs: true, ..shown(&none) };
        assert_eq!(CLOSED.judge(&right), Ok(()), "a secret needs no role besides");
        let role_alone = roles("portolan://node/pier");
        assert!(CLOSED.judge(&shown(&role_alone)).is_err(), "with a secret, the secret decides");
    }

    #[test]
    fn while_secrets_are_introduced_silence_is_let_in_and_a_wrong_secret_is_not() {
        let lenient = Policy { accept_unproved: true, ..CLOSED };
        assert_eq!(lenient.judge(&STRANGER), Ok(()));
        assert_eq!(lenient.judge(&Evidence { knows_proofs: false, ..STRANGER }), Ok(()));
        assert!(lenient.judge(&Evidence { shows_macs: true, ..STRANGER }).is_err());
    }
}
