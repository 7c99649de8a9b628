//! Authentication of links: the proofs that nodes exchange, and which nodes are accepted.
//!
//! | module | |
//! | --- | --- |
//! | [`secret`] | secrets and their files |
//! | [`mac`] | keys derived from them, and MACs of a handshake |
//! | [`token`] | tokens with which a new node joins |
//! | [`role`] | the node that a certificate names |
//! | [`judge`] | whether a node's evidence is enough |
//! | [`seal`] | sessions' tokens, which only nodes of the deployment read |
//!
//! A node without users, secrets and certificates, with its peer port on loopback, requires no
//! proof: every program that can reach it may do everything anyway. Any other node requires both
//! ends of
//! every link to prove that they belong together: by a secret, if the node has one, else by their
//! certificates. Between sites the proof uses the deployment's secret; between nodes of one site
//! the site's secret, which is derived from the deployment's unless the site has its own.
//!
//! A secret proves that a node belongs to the site or the deployment; the node's id is its own
//! claim, which cannot be changed on the way. A certificate can name the one node.

pub(crate) mod judge;
pub(crate) mod mac;
pub(crate) mod role;
pub(crate) mod seal;
pub(crate) mod secret;
pub(crate) mod token;

pub use secret::{Hidden, SecretError};
pub use token::{JoinToken, TokenError, TokenScope, check_any};

use crate::clock::Clock;
use crate::config::{Config, PeersConfig, is_remote};
use bytes::Bytes;
use judge::{Evidence, NotProved, Policy};
use mac::{End, Key, Transcript};
use model::{DeploymentId, NodeId, SessionToken, SiteName, limits};
use prost::Message as _;
use role::Roles;
use seal::Seals;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use wire::peer::Hello;
use wire::proof::{Proof, Secrets, TokenClaims};

/// The files of a data directory with the secrets that a node received when it joined.
const FILE: &str = "peer-secret";
const SITE_FILE: &str = "site-secret";

/// Why a node has no usable credentials.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// A secret or its file is not usable.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The join token is not usable.
    #[error("--join-token: {0}")]
    Token(#[from] TokenError),
    /// The certificate of the peer port does not name a node.
    #[error(
        "[tls.peer] cert {cert}: it does not state that it is a node of this site, so no other node would \
         accept it: it needs {uri} among its alternative names (URI), or all nodes need a secret \
         ([peers] secret_file)",
        cert = cert.display()
    )]
    CertificateWithoutRole {
        /// The file.
        cert: PathBuf,
        /// The URI that it must contain.
        uri: String,
    },
    /// The system provides no random numbers.
    #[error("the system refuses random numbers: {0}")]
    Random(String),
}

/// The secrets of a node. The first of each list is used for its own proofs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Keyring {
    deployment: Vec<Hidden>,
    /// The site's own secrets, if it has any.
    site: Vec<Hidden>,
}

/// The two parties of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nodes of one site.
    Site,
    /// Nodes of different sites of a deployment.
    Deployment,
}

/// This node's credentials, and what it requires of other nodes.
pub(crate) struct PeerAuth {
    site: SiteName,
    /// A proof is required even without a secret: there are users, or TLS, or the port is remote.
    always_asks: bool,
    accept_unproved: bool,
    keyring: RwLock<Keyring>,
    /// The keys for sessions' tokens, made of the keyring when a token comes.
    seals: RwLock<Option<Arc<Seals>>>,
    clock: Clock,
}

/// Whether a data directory contains a secret.
pub fn has_secret(data: &Path) -> bool {
    data.join(FILE).exists() || data.join(SITE_FILE).exists()
}

impl PeerAuth {
    /// Reads the configured credentials, or else those in the data directory.
    pub(crate) fn open(config: &Config, clock: Clock) -> Result<PeerAuth, PeersError> {
        let peers = &config.peers;
        let deployment = secrets_of(
            ("PORTOLAN_PEER_SECRET", &peers.secret),
            ("--peer-secret-file", &peers.secret_file),
            &config.data.join(FILE),
        )?;
        let site = secrets_of(
            ("PORTOLAN_SITE_SECRET", &peers.site_secret),
            ("--site-secret-file", &peers.site_secret_file),
            &config.data.join(SITE_FILE),
        )?;
        let always_asks = !config.users.is_empty()
            || config.tls.peer.is_some()
            || (is_remote(&config.ports.peer) && !config.insecure);
        Ok(PeerAuth {
            site: config.site.clone(),
            always_asks,
            accept_unproved: peers.accept_unproved.unwrap_or(false),
            keyring: RwLock::new(Keyring { deployment, site }),
            seals: RwLock::default(),
            clock,
        })
    }

    /// A node that requires no proof and has none.
    #[cfg(test)]
    pub(crate) fn open_to_all(site: SiteName) -> PeerAuth {
        PeerAuth {
            site,
            always_asks: false,
            accept_unproved: false,
            keyring: RwLock::default(),
            seals: RwLock::default(),
            clock: Clock::start(),
        }
    }

    /// Whether other nodes must prove that they belong here.
    pub(crate) fn asks(&self) -> bool {
        self.always_asks || self.has_secret()
    }

    /// The same, without exception.
    pub(crate) fn insists(&self) -> bool {
        self.asks() && !self.accept_unproved
    }

    /// Whether it has a secret of any kind.
    pub(crate) fn has_secret(&self) -> bool {
        let keyring = self.keyring();
        !keyring.deployment.is_empty() || !keyring.site.is_empty()
    }

    /// Whether it needs no join token: it has all secrets that one obtains, or configured ones.
    pub(crate) fn is_enrolled(&self, peers: &PeersConfig) -> bool {
        peers.has_secret() || !self.keyring().deployment.is_empty()
    }

    fn keyring(&self) -> Keyring {
        self.keyring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keys(&self, scope: Scope) -> Vec<Key> {
        let keyring = self.keyring();
        match scope {
            Scope::Deployment => keyring.deployment.iter().map(Key::of_deployment).collect(),
            Scope::Site => {
                let own = if keyring.site.is_empty() { &keyring.deployment } else { &keyring.site };
                own.iter().map(|secret| Key::of_site(secret, self.site.as_str())).collect()
            }
        }
    }

    /// The parties of a link to this node.
    fn scope(&self, other: &Hello) -> Scope {
        if other.site == self.site.as_str() { Scope::Site } else { Scope::Deployment }
    }

    /// This node's proof at its end of a connection.
    pub(crate) fn prove(&self, other: &Hello, of: &Transcript<'_>, end: End) -> Proof {
        let keys = self.keys(self.scope(other));
        let macs = keys.iter().map(|key| key.prove(of, end, &[])).collect();
        Proof { macs, ..Proof::default() }
    }

    /// Checks the proof of the node at the other `end`.
    pub(crate) fn judge(
        &self,
        other: &Hello,
        roles: Option<&Roles>,
        of: &Transcript<'_>,
        end: End,
        proof: Option<&Proof>,
    ) -> Result<(), NotProved> {
        let scope = self.scope(other);
        let keys = self.keys(scope);
        let macs = proof.map_or(&[][..], |proof| &proof.macs);
        let is_right = |is, key: &Key| is | key.verify(of, end, &[], macs);
        let policy = Policy {
            to: match scope {
                Scope::Site => format!("site {}", self.site),
                Scope::Deployment => format!("the deployment of site {}", self.site),
            },
            asks: self.asks(),
            accept_unproved: self.accept_unproved,
            has_secret: !keys.is_empty(),
        };
        let evidence = Evidence {
            site: &other.site,
            node: NodeId(other.node),
            knows_proofs: !other.challenge.is_empty(),
            shows_macs: !macs.is_empty(),
            mac_is_right: keys.iter().fold(false, is_right),
            roles,
        };
        policy.judge(&evidence)
    }

    /// Makes a join token.
    pub(crate) fn make_token(
        &self,
        scope: TokenScope,
        life: Duration,
    ) -> Result<(String, u64), TokenError> {
        if life < Duration::from_secs(1) || life > limits::JOIN_TOKEN_LIFE_MAX {
            return Err(TokenError::Life { life });
        }
        let (key, site) = match scope {
            TokenScope::Site => (self.keys(Scope::Site), self.site.to_string()),
            TokenScope::Deployment => (self.keys(Scope::Deployment), String::new()),
        };
        let whose = self.whose(scope);
        let key = key.into_iter().next().ok_or(TokenError::NoSecret { whose: whose.clone() })?;
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|_| TokenError::NoSecret { whose })?;
        let expires_ms = self.clock.now().wall_ms + life.as_millis() as u64;
        let claims = TokenClaims { site, expires_ms, nonce: Bytes::copy_from_slice(&nonce) };
        Ok((JoinToken::make(&claims, &key).to_text(), expires_ms))
    }

    fn whose(&self, scope: TokenScope) -> String {
        match scope {
            TokenScope::Site => format!("site {}", self.site),
            TokenScope::Deployment => format!("the deployment of site {}", self.site),
        }
    }

    /// The secrets for a node with a join token, if the token is right.
    pub(crate) fn accept_token(
        &self,
        other: &Hello,
        of: &Transcript<'_>,
        proof: &Proof,
    ) -> Result<Proof, TokenError> {
        let claims = TokenClaims::decode(proof.token.clone()).map_err(|_| TokenError::Malformed)?;
        let scope = match claims.site.is_empty() {
            true => TokenScope::Deployment,
            false => TokenScope::Site,
        };
        let (found, own) = (self.whose(scope), self.site.as_str());
        if scope == TokenScope::Site && (claims.site != own || other.site != own) {
            let for_site = claims.site.chars().filter(|c| !c.is_control()).take(64).collect();
            return Err(TokenError::OtherSite { for_site, found: format!("site {own}") });
        }
        let keys = self.keys(match scope {
            TokenScope::Site => Scope::Site,
            TokenScope::Deployment => Scope::Deployment,
        });
        if keys.is_empty() {
            return Err(TokenError::NoSecret { whose: found });
        }
        let candidates = keys.iter().map(|key| Key::of_bytes(&key.of_token(&proof.token)));
        let right = candidates.fold(None, |right, key| {
            match key.verify(of, End::Dialler, &[&proof.token], &proof.macs) {
                true => Some(key),
                false => right,
            }
        });
        let key = right.ok_or(TokenError::WrongSecret { whose: found })?;
        // The claims are authentic from here on.
        let now_ms = self.clock.now().wall_ms;
        if now_ms >= claims.expires_ms {
            let ago = Duration::from_millis(now_ms - claims.expires_ms);
            return Err(TokenError::Expired { ago });
        }
        let texts =
            |secrets: &[Hidden]| secrets.iter().map(|one| one.reveal().to_owned()).collect();
        let keyring = self.keyring();
        let given = Secrets {
            deployment: texts(&keyring.deployment),
            site: match scope {
                TokenScope::Site => texts(&keyring.site),
                TokenScope::Deployment => Vec::new(),
            },
        };
        let sealed = key.seal(of, &given.encode_to_vec());
        let macs = vec![key.prove(of, End::Acceptor, &[&sealed])];
        Ok(Proof { macs, sealed, ..Proof::default() })
    }

    /// The proof of a token's bearer.
    pub(crate) fn show_token(token: &JoinToken, of: &Transcript<'_>) -> Proof {
        let macs = vec![token.key().prove(of, End::Dialler, &[token.claims()])];
        Proof { macs, token: token.claims().clone(), ..Proof::default() }
    }

    /// Stores durably the secrets that the bearer of a token received. `None`: the answering node
    /// does not have the secret of the token.
    pub(crate) fn take_given(
        &self,
        token: &JoinToken,
        of: &Transcript<'_>,
        proof: &Proof,
        data: &Path,
    ) -> Option<Result<(), SecretError>> {
        let key = token.key();
        if !key.verify(of, End::Acceptor, &[&proof.sealed], &proof.macs) {
            return None;
        }
        let given = Secrets::decode(key.open(of, &proof.sealed)?.as_slice()).ok()?;
        let hidden = |texts: Vec<String>| texts.into_iter().map(Hidden::from).collect::<Vec<_>>();
        let given = Keyring { deployment: hidden(given.deployment), site: hidden(given.site) };
        Some(self.keep(given, data))
    }

    fn keep(&self, keyring: Keyring, data: &Path) -> Result<(), SecretError> {
        // The deployment's last: where it is, all are, should the process end between them.
        for (secrets, file) in [(&keyring.site, SITE_FILE), (&keyring.deployment, FILE)] {
            if !secrets.is_empty() {
                secret::write(&data.join(file), secrets)?;
            }
        }
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = keyring;
        *self.seals.write().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// The keys for tokens of the sessions of this deployment.
    pub(crate) fn seals(&self, deployment: DeploymentId) -> Arc<Seals> {
        let made = self.seals.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(seals) = made.filter(|seals| seals.are_of(deployment)) {
            return seals;
        }
        let mut seals = self.seals.write().unwrap_or_else(PoisonError::into_inner);
        let made = Arc::new(Seals::new(deployment, &self.keyring().deployment));
        seals.insert(made).clone()
    }

    /// Seals a token of a session; `None`: the system provides no random numbers.
    pub(crate) fn seal(&self, deployment: DeploymentId, token: &SessionToken) -> Option<Bytes> {
        let mut nonce = [0; 12];
        getrandom::fill(&mut nonce).ok()?;
        Some(self.seals(deployment).seal(token, nonce))
    }

    /// Creates a secret for a new site that requires proofs, so that other nodes can join.
    pub(crate) fn begin(&self, data: &Path) -> Result<(), PeersError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| PeersError::Random(error.to_string()))?;
        let keyring = Keyring { deployment: vec![secret::of_random(bytes)], site: Vec::new() };
        Ok(self.keep(keyring, data)?)
    }
}

/// The join token of a configuration, if there is one.
pub(crate) fn join_token(config: &Config) -> Result<Option<JoinToken>, PeersError> {
    let peers = &config.peers;
    let text = match (&peers.join_token, &peers.join_token_file) {
        (Some(token), _) => token.reveal().to_owned(),
        (None, Some(file)) => secret::read("--join-token-file", file)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(JoinToken::parse(&text)?))
}

/// Makes sure that a node which requires proofs can check them.
pub(crate) fn begin_secret(
    config: &Config,
    auth: &PeerAuth,
    is_alone: bool,
) -> Result<(), PeersError> {
    if !auth.asks() || auth.has_secret() || config.tls.peer.is_some() {
        return Ok(());
    }
    if is_alone {
        auth.begin(&config.data)?;
        tracing::info!(
            "the peer port requires a secret, which was generated and is in {}; `portolan site token` \
             lets others join",
            config.data.join(FILE).display()
        );
        return Ok(());
    }
    tracing::warn!(
        "the peer port requires a proof that others are nodes, and this one has no secret to check \
         that with, so it has no links: give all nodes the same secret (PORTOLAN_PEER_SECRET, or \
         secret_file in [peers])"
    );
    Ok(())
}

/// Refuses a certificate of the peer port that other nodes would refuse.
pub(crate) fn check_certificate(
    config: &Config,
    auth: &PeerAuth,
    roles: &Roles,
) -> Result<(), PeersError> {
    let Some(tls) = &config.tls.peer else { return Ok(()) };
    let must_say = !config.peers.is_given() && auth.insists() && !auth.has_secret();
    // A certificate that names another node would be refused even with the secret.
    if roles.allow(config.site.as_str(), config.node) || (roles.is_none() && !must_say) {
        return Ok(());
    }
    let uri = role::uri(config.site.as_str());
    Err(PeersError::CertificateWithoutRole { cert: tls.cert.clone(), uri })
}

fn secrets_of(
    given: (&'static str, &Option<Hidden>),
    file: (&'static str, &Option<PathBuf>),
    kept: &Path,
) -> Result<Vec<Hidden>, SecretError> {
    if let (setting, Some(text)) = given {
        return secret::parse(setting, text.reveal());
    }
    let (setting, path) = match file {
        (setting, Some(path)) => (setting, path.as_path()),
        _ if kept.exists() => ("the data directory", kept),
        _ => return Ok(Vec::new()),
    };
    secret::parse(&format!("{setting} {}", path.display()), &secret::read(setting, path)?)
}

#[cfg(test)]
mod tests;
