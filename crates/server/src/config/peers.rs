//! A node's credentials for other nodes, and what other nodes must prove.
//!
//! Secrets come from files or the environment, not from the configuration file or the command line:
//! configuration files are shown and copied, and every user of a machine can see command lines.

use super::{Config, ConfigError};
use crate::peers::{Hidden, JoinToken};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toml::{Table, Value};

/// The settings of `[peers]`, and the secrets that are given as values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PeersConfig {
    /// The deployment's secrets; from the environment only.
    #[serde(skip)]
    pub secret: Option<Hidden>,
    /// The file with the deployment's secrets.
    pub secret_file: Option<PathBuf>,
    /// The site's own secrets, if it has any; from the environment only.
    #[serde(skip)]
    pub site_secret: Option<Hidden>,
    /// The file with the site's secrets.
    pub site_secret_file: Option<PathBuf>,
    /// The token with which the node joins.
    #[serde(skip)]
    pub join_token: Option<Hidden>,
    /// The file with the token.
    pub join_token_file: Option<PathBuf>,
    /// Whether nodes without proof are accepted, with a warning.
    pub accept_unproved: Option<bool>,
}

impl PeersConfig {
    /// Whether a secret, or a token that obtains one, is given.
    pub fn is_given(&self) -> bool {
        self.has_secret() || self.join_token.is_some() || self.join_token_file.is_some()
    }

    /// Whether a secret is given.
    pub fn has_secret(&self) -> bool {
        self.secret.is_some()
            || self.secret_file.is_some()
            || self.site_secret.is_some()
            || self.site_secret_file.is_some()
    }
}

/// The secrets that are given as values, by the environment or a flag. No file contains them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// [`PeersConfig::secret`].
    pub secret: Option<Hidden>,
    /// [`PeersConfig::site_secret`].
    pub site_secret: Option<Hidden>,
    /// [`PeersConfig::join_token`].
    pub join_token: Option<Hidden>,
}

impl Secrets {
    /// Removes the keys of a lower layer that these replace: a value and a file are two forms of
    /// one setting.
    pub(super) fn replace(&self, settings: &mut Table) {
        let Some(Value::Table(peers)) = settings.get_mut("peers") else { return };
        for (secret, file) in [
            (&self.secret, "secret_file"),
            (&self.site_secret, "site_secret_file"),
            (&self.join_token, "join_token_file"),
        ] {
            if secret.is_some() {
                peers.remove(file);
            }
        }
    }
}

/// Refuses contradictory settings.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let peers = &config.peers;
    let twice = [
        ("PORTOLAN_PEER_SECRET", peers.secret.is_some() && peers.secret_file.is_some()),
        ("PORTOLAN_SITE_SECRET", peers.site_secret.is_some() && peers.site_secret_file.is_some()),
        ("--join-token", peers.join_token.is_some() && peers.join_token_file.is_some()),
    ];
    if let Some((setting, _)) = twice.into_iter().find(|(_, is_twice)| *is_twice) {
        let what = "is given, and a file with it too; give one of them".to_owned();
        return Err(ConfigError::Value { setting: setting.to_owned(), what });
    }
    if let Some(token) = &peers.join_token {
        let wrong = |error: crate::peers::TokenError| ConfigError::Value {
            setting: "--join-token".to_owned(),
            what: error.to_string(),
        };
        JoinToken::parse(token.reveal()).map_err(wrong)?;
    }
    Ok(())
}

/// Warnings about settings that are allowed but risky.
pub(super) fn warnings(config: &Config, peer_is_remote: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.peers.accept_unproved == Some(true) {
        warnings.push(
            "[peers] accept_unproved: every program that reaches the peer port is accepted as a node; \
             remove it as soon as all nodes have the secret"
                .to_owned(),
        );
    }
    if peer_is_remote && config.tls.peer.is_none() && config.peers.is_given() {
        warnings.push(
            "--peer is reachable from other machines without TLS: an attacker between the nodes \
             can read and change their messages"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, file};
    use super::*;
    use std::collections::BTreeMap;

    fn resolve(text: &str, over: PeersConfig) -> Result<Config, ConfigError> {
        let mut layer = Layer::of(&BTreeMap::from([("peers", &over)])).unwrap();
        let PeersConfig { secret, site_secret, join_token, .. } = over;
        layer.secrets = Secrets { secret, site_secret, join_token };
        Config::resolve(file::parse("portolan.toml", text)?, layer)
    }

    fn secret() -> Option<Hidden> {
        Some(Hidden::new("do-not-show-this-0123456789abcdef"))
    }

    #[test]
    fn files_are_shown_and_secrets_are_not() {
        let text = "[peers]\nsecret_file = \"a\"\nsite_secret_file = \"b\"\n\
                    join_token_file = \"c\"\naccept_unproved = true";
        let config = resolve(text, PeersConfig::default()).unwrap();
        assert_eq!(resolve(&config.to_toml(), PeersConfig::default()), Ok(config));
        let given = PeersConfig { secret: secret(), ..PeersConfig::default() };
        let config = resolve("", given).unwrap();
        for shown in [config.to_toml(), format!("{config:?}"), format!("{:?}", config.warnings())] {
            assert!(!shown.contains("do-not-show"), "{shown}");
        }
        let inside = "[peers]\nsecret = \"do-not-show-this\"";
        let refused = resolve(inside, PeersConfig::default()).unwrap_err().to_string();
        assert!(refused.contains("secret_file") && !refused.contains("do-not"), "{refused}");
    }

    #[test]
    fn what_stands_higher_takes_the_place_of_both() {
        let given = PeersConfig { secret: secret(), ..PeersConfig::default() };
        let config = resolve("[peers]\nsecret_file = \"a\"", given.clone()).unwrap();
        assert_eq!(config.peers, given);
        let both = PeersConfig { secret_file: Some("a".into()), ..given };
        let refused = resolve("", both).unwrap_err().to_string();
        assert!(refused.starts_with("PORTOLAN_PEER_SECRET: "), "{refused}");
        let token = PeersConfig { join_token: secret(), ..PeersConfig::default() };
        let refused = resolve("", token).unwrap_err().to_string();
        assert!(refused.starts_with("--join-token: ") && !refused.contains("do-not"), "{refused}");
    }

    #[test]
    fn a_remote_peer_port_may_ask_for_a_secret_instead_of_tls() {
        let remote = "[listen]\npeer = \"0.0.0.0:9999\"";
        let given = PeersConfig { secret: secret(), ..PeersConfig::default() };
        let config = resolve(remote, given).unwrap();
        assert!(config.warnings()[0].contains("without TLS"), "{:?}", config.warnings());
        let refused = resolve(remote, PeersConfig::default()).unwrap_err().to_string();
        assert!(refused.contains("[peers] secret_file"), "{refused}");
        let kept = |has| {
            let file = file::parse("f", remote).unwrap();
            Config::resolve_on(file, Layer::default(), |_| has)
        };
        assert!(kept(true).is_ok() && kept(false).is_err());
    }
}
