//! A node's credentials for other nodes, and what other nodes must prove.
//!
//! Secrets come from files or the environment, not from the configuration file or the command line:
//! configuration files are shown and copied, and every user of a machine can see command lines.

use super::shown::quoted;
use super::{Config, ConfigError};
use crate::peers::{Hidden, JoinToken};
use serde::Deserialize;
use std::fmt::Write;
use std::path::PathBuf;

/// The settings of `[peers]`. As one layer's part: `None` is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeersConfig {
    /// The deployment's secrets; from the environment only.
    pub secret: Option<Hidden>,
    /// The file with the deployment's secrets.
    pub secret_file: Option<PathBuf>,
    /// The site's own secrets, if it has any; from the environment only.
    pub site_secret: Option<Hidden>,
    /// The file with the site's secrets.
    pub site_secret_file: Option<PathBuf>,
    /// The token with which the node joins.
    pub join_token: Option<Hidden>,
    /// The file with the token.
    pub join_token_file: Option<PathBuf>,
    /// Whether nodes without proof are accepted, with a warning.
    pub accept_unproved: Option<bool>,
}

impl PeersConfig {
    pub(super) fn over(self, below: PeersConfig) -> PeersConfig {
        // A value and a file are two forms of one setting.
        fn either(
            above: (Option<Hidden>, Option<PathBuf>),
            below: (Option<Hidden>, Option<PathBuf>),
        ) -> (Option<Hidden>, Option<PathBuf>) {
            if above == (None, None) { below } else { above }
        }
        let (secret, secret_file) =
            either((self.secret, self.secret_file), (below.secret, below.secret_file));
        let (site_secret, site_secret_file) = either(
            (self.site_secret, self.site_secret_file),
            (below.site_secret, below.site_secret_file),
        );
        let (join_token, join_token_file) = either(
            (self.join_token, self.join_token_file),
            (below.join_token, below.join_token_file),
        );
        PeersConfig {
            secret,
            secret_file,
            site_secret,
            site_secret_file,
            join_token,
            join_token_file,
            accept_unproved: self.accept_unproved.or(below.accept_unproved),
        }
    }

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

/// `[peers]` of the file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct PeersTable {
    secret_file: Option<PathBuf>,
    site_secret_file: Option<PathBuf>,
    join_token_file: Option<PathBuf>,
    accept_unproved: Option<bool>,
}

impl PeersTable {
    pub(super) fn into_layer(self) -> PeersConfig {
        PeersConfig {
            secret_file: self.secret_file,
            site_secret_file: self.site_secret_file,
            join_token_file: self.join_token_file,
            accept_unproved: self.accept_unproved,
            ..PeersConfig::default()
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

/// Writes the settings as configuration file text, without secret values.
pub(super) fn show(out: &mut String, peers: &PeersConfig) -> std::fmt::Result {
    let files = [
        ("secret_file", &peers.secret_file),
        ("site_secret_file", &peers.site_secret_file),
        ("join_token_file", &peers.join_token_file),
    ];
    if files.iter().all(|(_, file)| file.is_none()) && peers.accept_unproved.is_none() {
        return Ok(());
    }
    writeln!(out, "\n[peers]")?;
    for (key, file) in files {
        if let Some(file) = file {
            writeln!(out, "{key} = {}", quoted(&file.to_string_lossy()))?;
        }
    }
    match peers.accept_unproved {
        Some(accept) => writeln!(out, "accept_unproved = {accept}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Layer, file};
    use super::*;

    fn resolve(text: &str, over: PeersConfig) -> Result<Config, ConfigError> {
        let over = Layer { peers: over, ..Layer::default() };
        Config::resolve(file::parse("portolan.toml", text)?, over)
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
