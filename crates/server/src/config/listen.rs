//! `[listen]`: where a node listens.

use super::forms::text;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::SocketAddr;

/// Where a node listens. A port that is `None` is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ports {
    /// The Redis protocol.
    #[serde(with = "port")]
    pub redis: Option<SocketAddr>,
    /// The Redis Cluster protocol.
    #[serde(with = "port")]
    pub redis_cluster: Option<SocketAddr>,
    /// gRPC.
    #[serde(with = "port")]
    pub grpc: Option<SocketAddr>,
    /// The other nodes of the site.
    #[serde(deserialize_with = "peer")]
    pub peer: SocketAddr,
    /// Health, metrics and status over HTTP.
    #[serde(with = "port")]
    pub admin: Option<SocketAddr>,
    /// How other nodes reach the peer port (`host:port`); `None`: as it is bound.
    pub advertise: Option<String>,
    /// How clients reach the Redis Cluster port (`host:port`); `None`: as it is bound.
    pub advertise_redis_cluster: Option<String>,
}

impl Default for Ports {
    fn default() -> Ports {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Ports {
            redis: Some(loopback(7379)),
            redis_cluster: None,
            grpc: Some(loopback(7380)),
            peer: loopback(7381),
            admin: Some(loopback(7070)),
            advertise: None,
            advertise_redis_cluster: None,
        }
    }
}

/// Where one port listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// The port is closed (`off`).
    Off,
    /// At this address.
    At(SocketAddr),
}

impl std::str::FromStr for Listen {
    type Err = String;

    /// `off`, `ADDRESS:PORT` or `localhost:PORT`.
    fn from_str(text: &str) -> Result<Listen, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().map(Listen::At).map_err(|_| {
            format!(
                "{text:?} is no address to listen on: use IP:PORT (like 127.0.0.1:7379), or off to \
                 keep the port closed"
            )
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Off => f.write_str("off"),
            Listen::At(address) => address.fmt(f),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        text::serialize(self, serializer)
    }
}

/// A port that can be off.
mod port {
    use super::{Deserializer, Listen, Serialize, Serializer, SocketAddr, text};

    pub(super) fn serialize<S: Serializer>(
        port: &Option<SocketAddr>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        port.map_or(Listen::Off, Listen::At).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        Ok(match text::deserialize(deserializer)? {
            Listen::Off => None,
            Listen::At(address) => Some(address),
        })
    }
}

/// The peer port, which cannot be off.
fn peer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    port::deserialize(deserializer)?.ok_or_else(|| {
        de::Error::custom("--peer: the peer port cannot be off: a site can always be joined")
    })
}
