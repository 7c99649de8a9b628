//! `[clients]`: how long a client may be idle, and how many connections may be without a login.

use super::{ConfigError, forms};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Timeouts of client connections, and the share reserved for clients that have logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientsConfig {
    /// If there are users: a connection that has not logged in by then is closed. `None`: never.
    #[serde(rename = "login_timeout_s", with = "forms::seconds_or_never")]
    pub login_timeout: Option<Duration>,
    /// A Redis client that has sent no request for so long is closed, unless it is subscribed to
    /// channels. `None`: never, which is Redis's `timeout 0`.
    #[serde(rename = "idle_timeout_s", with = "forms::seconds_or_never")]
    pub idle_timeout: Option<Duration>,
    /// A connection that has been silent for so long is probed, to find out whether its other side
    /// is still there. `None`: it is not probed.
    #[serde(rename = "keepalive_s", with = "forms::seconds_or_never")]
    pub keepalive: Option<Duration>,
    /// If there are users: this percentage of a port's connections is reserved for clients that
    /// have logged in.
    pub reserved_percent: u8,
}

/// The largest share of a port that can be reserved.
const RESERVED_PERCENT_MAX: u8 = 90;
/// The longest time that can be set, in seconds: a day.
const SECONDS_MAX: u64 = 24 * 60 * 60;

impl Default for ClientsConfig {
    fn default() -> ClientsConfig {
        ClientsConfig {
            login_timeout: Some(Duration::from_secs(10)),
            idle_timeout: None,
            keepalive: Some(Duration::from_secs(300)),
            reserved_percent: 10,
        }
    }
}

/// Refuses contradictory or impossible settings.
pub(super) fn check(config: &ClientsConfig) -> Result<(), ConfigError> {
    let value = |setting: &str, what: String| ConfigError::Value { setting: setting.into(), what };
    for (setting, span) in [
        ("clients.login_timeout_s", config.login_timeout),
        ("clients.idle_timeout_s", config.idle_timeout),
        ("clients.keepalive_s", config.keepalive),
    ] {
        if span.is_some_and(|span| span.as_secs() > SECONDS_MAX) {
            return Err(value(setting, format!("must be at most {SECONDS_MAX}; 0: never")));
        }
    }
    if config.reserved_percent > RESERVED_PERCENT_MAX {
        let what = format!("must be 0 to {RESERVED_PERCENT_MAX}: logins need connections, too");
        return Err(value("clients.reserved_percent", what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Layer, file};
    use super::*;

    #[test]
    fn clients_are_borne_with_as_redis_does_unless_it_is_said_otherwise() {
        let resolve = |text: &str| Config::resolve(file::parse("f", text)?, Layer::default());
        let default = resolve("").unwrap().clients;
        assert_eq!(default, ClientsConfig::default());
        assert_eq!(default.idle_timeout, None);
        let text = "[clients]\nlogin_timeout_s = 3\nidle_timeout_s = 60\nkeepalive_s = 0\n\
                    reserved_percent = 50\n";
        let said = resolve(text).unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(said.clients.login_timeout, Some(3 * second));
        assert_eq!(said.clients.idle_timeout, Some(60 * second));
        assert_eq!((said.clients.keepalive, said.clients.reserved_percent), (None, 50));
        assert_eq!(resolve(&said.to_toml()), Ok(said));
        let over = file::parse("over", "[clients]\nidle_timeout_s = 0").unwrap();
        let never = Config::resolve(file::parse("f", text).unwrap(), over).unwrap();
        assert_eq!(never.clients.idle_timeout, None);
        for (wrong, named) in [
            ("[clients]\nreserved_percent = 91", "clients.reserved_percent"),
            ("[clients]\nidle_timeout_s = 86401", "clients.idle_timeout_s"),
            ("[clients]\nidle_timeout = 1", "did you mean idle_timeout_s?"),
        ] {
            let refused = resolve(wrong).unwrap_err().to_string();
            assert!(refused.contains(named), "{refused}");
        }
    }
}
