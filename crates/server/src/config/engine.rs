//! Where a site's keys are kept, and the settings for that.

use super::shown::{list, quoted};
use super::{Config, ConfigError};
use model::{SiteName, limits};
use std::fmt::Write;
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

impl Engine {
    /// The value of the setting `engine`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Engine::Embedded => "embedded",
            Engine::Etcd(_) => "etcd",
        }
    }
}

/// The value of the setting `engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Its members' client addresses: `http://HOST:PORT`, or `https://` for TLS.
    pub endpoints: Vec<String>,
    /// The prefix of all etcd keys of the site; no slash at its end.
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

/// The settings of one layer.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are those of EtcdConfig, which says it")]
pub struct EtcdLayer {
    pub endpoints: Vec<String>,
    pub prefix: Option<String>,
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    pub lease_ttl_s: Option<u64>,
}

impl EtcdLayer {
    pub(super) fn over(self, below: EtcdLayer) -> EtcdLayer {
        EtcdLayer {
            endpoints: match self.endpoints.is_empty() {
                true => below.endpoints,
                false => self.endpoints,
            },
            prefix: self.prefix.or(below.prefix),
            ca: self.ca.or(below.ca),
            cert: self.cert.or(below.cert),
            key: self.key.or(below.key),
            user: self.user.or(below.user),
            password_file: self.password_file.or(below.password_file),
            lease_ttl_s: self.lease_ttl_s.or(below.lease_ttl_s),
        }
    }

    /// The engine that these settings select.
    pub(super) fn onto(self, word: EngineWord, site: &SiteName) -> Result<Engine, ConfigError> {
        if word == EngineWord::Embedded {
            if self != EtcdLayer::default() {
                let what = "is for a site that keeps its keys in etcd; add --engine etcd, or \
                            leave it out";
                return Err(value("[etcd]", what));
            }
            return Ok(Engine::Embedded);
        }
        let mut config = EtcdConfig::default();
        if !self.endpoints.is_empty() {
            // etcd's own tools accept an address without a scheme, too.
            let named = |text: String| match text.contains("://") {
                true => text,
                false => format!("http://{text}"),
            };
            config.endpoints = self.endpoints.into_iter().map(named).collect();
        }
        // Two sites may share a cluster, so the default prefix contains the site's name.
        config.prefix = self.prefix.unwrap_or_else(|| format!("/portolan/{site}"));
        (config.ca, config.cert, config.key) = (self.ca, self.cert, self.key);
        (config.user, config.password_file) = (self.user, self.password_file);
        if let Some(ttl_s) = self.lease_ttl_s {
            config.lease_ttl = Duration::from_secs(ttl_s);
        }
        Ok(Engine::Etcd(config))
    }
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
    let prefix = &etcd.prefix;
    if prefix.is_empty()
        || prefix.len() >= limits::ETCD_PREFIX_BYTES_MAX
        || prefix.ends_with('/')
        || prefix.contains(char::is_control)
    {
        let what = format!(
            "{prefix:?} must have 1 to {} bytes and no slash at its end",
            limits::ETCD_PREFIX_BYTES_MAX - 1
        );
        return Err(value("--etcd-prefix", what));
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

/// Writes the settings as configuration file text.
pub(super) fn show(out: &mut String, engine: &Engine) -> std::fmt::Result {
    writeln!(out, "engine = {}", quoted(engine.as_str()))?;
    let Engine::Etcd(etcd) = engine else { return Ok(()) };
    writeln!(out, "\n[etcd]")?;
    writeln!(out, "endpoints = [{}]", list(etcd.endpoints.iter().map(String::as_str)))?;
    writeln!(out, "prefix = {}", quoted(&etcd.prefix))?;
    let files = [
        ("ca", &etcd.ca),
        ("cert", &etcd.cert),
        ("key", &etcd.key),
        ("password_file", &etcd.password_file),
    ];
    for (name, file) in files {
        if let Some(file) = file {
            writeln!(out, "{name} = {}", quoted(&file.to_string_lossy()))?;
        }
    }
    if let Some(user) = &etcd.user {
        writeln!(out, "user = {}", quoted(user))?;
    }
    writeln!(out, "lease_ttl_s = {}", etcd.lease_ttl.as_secs())
}
