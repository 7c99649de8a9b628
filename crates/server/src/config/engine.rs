//! Where a site's keys are kept, and the settings for that.

use super::{Config, ConfigError, forms};
use model::{SiteName, limits};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::path::PathBuf;
use std::time::Duration;

/// Where a site's keys are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// In the site's own log, at its nodes.
    #[default]
    Embedded,
    /// In an existing etcd cluster.
    Etcd(EtcdConfig),
}

/// The value of the setting `engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineWord {
    /// `embedded`.
    #[default]
    Embedded,
    /// `etcd`.
    Etcd,
}

impl std::str::FromStr for EngineWord {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineWord, String> {
        match text {
            "embedded" => Ok(EngineWord::Embedded),
            "etcd" => Ok(EngineWord::Etcd),
            _ => Err(format!("{text:?} is no engine: use embedded or etcd")),
        }
    }
}

/// The etcd cluster that a site keeps its keys in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdConfig {
    /// Its members' client addresses: `http://HOST:PORT`, or `https://` for TLS.
    pub endpoints: Vec<String>,
    /// The prefix of all etcd keys of the site; no slash at its end.
    #[serde(default, deserialize_with = "prefix")]
    pub prefix: String,
    /// The CA that signed etcd's certificates. Required for TLS.
    pub ca: Option<PathBuf>,
    /// The client certificate; always with a `key`.
    pub cert: Option<PathBuf>,
    /// The client certificate's private key.
    pub key: Option<PathBuf>,
    /// The etcd user; always with a `password_file`.
    pub user: Option<String>,
    /// The file with that user's password.
    pub password_file: Option<PathBuf>,
    /// The TTL of the owner's lease: a failed process stays the owner for this long.
    #[serde(rename = "lease_ttl_s", with = "forms::seconds")]
    pub lease_ttl: Duration,
}

impl Default for EtcdConfig {
    fn default() -> EtcdConfig {
        EtcdConfig {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/portolan/site".to_owned(),
            ca: None,
            cert: None,
            key: None,
            user: None,
            password_file: None,
            lease_ttl: Duration::from_secs(10),
        }
    }
}

impl Engine {
    /// The value of the setting `engine`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Engine::Embedded => "embedded",
            Engine::Etcd(_) => "etcd",
        }
    }

    /// The engine that the settings select.
    pub(super) fn of(
        word: EngineWord,
        etcd: Option<EtcdConfig>,
        site: &SiteName,
    ) -> Result<Engine, ConfigError> {
        if word == EngineWord::Embedded {
            if etcd.is_some() {
                let what = "is for a site that keeps its keys in etcd; add --engine etcd, or \
                            leave it out";
                return Err(value("[etcd]", what));
            }
            return Ok(Engine::Embedded);
        }
        let absent = || EtcdConfig { prefix: String::new(), ..EtcdConfig::default() };
        let mut etcd = etcd.unwrap_or_else(absent);
        for endpoint in &mut etcd.endpoints {
            // etcd's own tools accept an address without a scheme, too.
            if !endpoint.contains("://") {
                endpoint.insert_str(0, "http://");
            }
        }
        // Two sites may share a cluster, so the default prefix contains the site's name.
        if etcd.prefix.is_empty() {
            etcd.prefix = format!("/portolan/{site}");
        }
        Ok(Engine::Etcd(etcd))
    }

    /// The settings that select it.
    pub(super) fn settings(&self) -> (EngineWord, Option<EtcdConfig>) {
        match self {
            Engine::Embedded => (EngineWord::Embedded, None),
            Engine::Etcd(etcd) => (EngineWord::Etcd, Some(etcd.clone())),
        }
    }
}

/// Reads a prefix that is set; one that is absent is empty until the site's name is known.
fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let prefix = String::deserialize(deserializer)?;
    if prefix.is_empty()
        || prefix.len() >= limits::ETCD_PREFIX_BYTES_MAX
        || prefix.ends_with('/')
        || prefix.contains(char::is_control)
    {
        return Err(de::Error::custom(format!(
            "--etcd-prefix: {prefix:?} must have 1 to {} bytes and no slash at its end",
            limits::ETCD_PREFIX_BYTES_MAX - 1
        )));
    }
    Ok(prefix)
}

fn value(setting: &str, what: impl Into<String>) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), what: what.into() }
}

/// Refuses settings with which the site cannot run.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Engine::Etcd(etcd) = &config.engine else { return Ok(()) };
    if config.witness {
        let what = "a site on etcd has one node, which holds the data: etcd has the copies";
        return Err(value("--witness", what));
    }
    for endpoint in &etcd.endpoints {
        let rest = ["http://", "https://"].iter().find_map(|scheme| endpoint.strip_prefix(scheme));
        let rest = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let plain = |host: &str| {
            host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
        };
        if !rest.is_some_and(|rest| super::is_host_and_port(rest) && plain(rest)) {
            let what = format!("{endpoint:?} is not http://HOST:PORT or https://HOST:PORT");
            return Err(value("--etcd-endpoints", what));
        }
    }
    let any_tls = etcd.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"));
    if any_tls && etcd.ca.is_none() {
        let what = "missing: for https:// endpoints it must name the CA of etcd's certificates";
        return Err(value("--etcd-ca", what));
    }
    if !any_tls && (etcd.ca.is_some() || etcd.cert.is_some()) {
        let what = "certificates are for https:// endpoints, and there is none";
        return Err(value("--etcd-endpoints", what));
    }
    if etcd.cert.is_some() != etcd.key.is_some() {
        return Err(value("--etcd-cert", "belongs with --etcd-key: give both or neither"));
    }
    if etcd.user.is_some() != etcd.password_file.is_some() {
        return Err(value(
            "--etcd-user",
            "belongs with --etcd-password-file: give both or neither",
        ));
    }
    if !(2..=600).contains(&etcd.lease_ttl.as_secs()) {
        return Err(value("--etcd-lease-ttl-s", "must be 2 to 600"));
    }
    Ok(())
}

/// The warning about settings that are allowed but risky.
pub(super) fn warning(config: &Config) -> Option<String> {
    let Engine::Etcd(etcd) = &config.engine else { return None };
    let is_remote = |endpoint: &&String| {
        let host = endpoint.strip_prefix("http://").and_then(|rest| rest.rsplit_once(':'));
        let host = host.map(|(host, _)| host.trim_matches(['[', ']']));
        host.is_some_and(|host| match host.parse::<std::net::IpAddr>() {
            Ok(address) => !address.to_canonical().is_loopback(),
            Err(_) => host != "localhost",
        })
    };
    let remote = etcd.endpoints.iter().find(is_remote)?;
    Some(format!("--etcd-endpoints {remote}: keys and values travel to etcd without TLS"))
}
