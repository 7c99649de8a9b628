//! Conditions on a whole configuration, beyond each value by itself.

use super::{Config, ConfigError, TlsConfig};
use model::{KeyspaceSpec, SiteId, limits};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Refuses a configuration that cannot be served or must not be.
/// `has_secret`: its data directory has one for the peer port.
pub(super) fn check(config: &Config, has_secret: bool) -> Result<(), ConfigError> {
    if config.node.0 == 0 {
        return Err(value("--node", "a node's id is 1 or more"));
    }
    check_names(config)?;
    check_addresses(config)?;
    check_numbers(config)?;
    super::engine::check(config)?;
    super::clients::check(&config.clients)?;
    super::placement::check(config.placement)?;
    super::peers::check(config)?;
    check_tls(config)?;
    check_credentials(config, has_secret)
}

fn check_names(config: &Config) -> Result<(), ConfigError> {
    let (mut names, mut prefixes, mut users) = (HashSet::new(), HashSet::new(), HashSet::new());
    for keyspace in &config.keyspaces {
        // The ids of its sites are not known yet.
        let has_sites = config.lend_to.contains_key(&keyspace.name);
        let lend_to = if has_sites { vec![SiteId(1)] } else { Vec::new() };
        KeyspaceSpec { lend_to, ..keyspace.clone() }.check()?;
        if keyspace.name == "default" || !names.insert(&keyspace.name) {
            return Err(twice("keyspace name", &keyspace.name));
        }
        if !prefixes.insert(&keyspace.prefix) {
            return Err(twice("keyspace prefix", &String::from_utf8_lossy(&keyspace.prefix)));
        }
    }
    if config.keyspaces.len() > limits::KEYSPACES_MAX {
        let what = format!(
            "there are {}, and at most {} can be",
            config.keyspaces.len(),
            limits::KEYSPACES_MAX
        );
        return Err(value("[[keyspace]]", &what));
    }
    for user in &config.users {
        user.check().map_err(|what| value(&format!("[[user]] {:?}", user.name), &what))?;
        if !users.insert(&user.name) {
            return Err(twice("user name", &user.name));
        }
    }
    let mut addresses = HashSet::new();
    let ports = &config.ports;
    let all = [ports.redis, ports.redis_cluster, ports.grpc, Some(ports.peer), ports.admin];
    for address in all.into_iter().flatten() {
        // Port 0 asks the system for any free one, so it may be asked for more than once.
        if address.port() != 0 && !addresses.insert(address) {
            return Err(twice("listening address", &address.to_string()));
        }
    }
    Ok(())
}

/// Checks the addresses of other nodes. A node that joins repeats its request without end, so an
/// address at which no node can ever answer must be refused here.
fn check_addresses(config: &Config) -> Result<(), ConfigError> {
    let join = config.join.iter().map(|address| ("--join", address));
    let advertise = config.ports.advertise.iter().map(|address| ("--advertise", address));
    let cluster = config.ports.advertise_redis_cluster.iter();
    let cluster = cluster.map(|address| ("--advertise-redis-cluster", address));
    for (setting, address) in join.chain(advertise).chain(cluster) {
        if !is_host_and_port(address) {
            return Err(value(setting, &format!("{address:?} is not HOST:PORT")));
        }
    }
    let ports = &config.ports;
    if let Some(address) = ports.redis_cluster
        && address.ip().is_unspecified()
        && ports.advertise_redis_cluster.is_none()
    {
        let what = format!(
            "clients cannot be redirected to {address}: set the address by which they reach this port \
             with --advertise-redis-cluster HOST:PORT"
        );
        return Err(value("--redis-cluster", &what));
    }
    Ok(())
}

/// Whether this can be the address of a peer port. Whether a node answers there is found out later.
pub fn is_host_and_port(address: &str) -> bool {
    let parts = address.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn check_numbers(config: &Config) -> Result<(), ConfigError> {
    let raft = &config.raft;
    if raft.heartbeat < Duration::from_millis(5) {
        return Err(value("raft.heartbeat_ms", "must be at least 5"));
    }
    if raft.heartbeat * 3 > raft.election_timeout {
        let what = format!(
            "must be at least three heartbeats ({} ms): a follower that misses one must not stand for \
             election",
            3 * raft.heartbeat.as_millis()
        );
        return Err(value("raft.election_timeout_ms", &what));
    }
    if raft.election_timeout > Duration::from_secs(60) {
        return Err(value("raft.election_timeout_ms", "must be at most 60000"));
    }
    let at_least = |setting, bytes: u64, min: u64| match bytes < min {
        true => Err(value(setting, &format!("must be at least {min}"))),
        false => Ok(()),
    };
    at_least(
        "disk.log_bytes_before_snapshot",
        config.disk.log_bytes_before_snapshot,
        2 * limits::LOG_SEGMENT_BYTES,
    )?;
    at_least("memory.cache_bytes", config.memory.cache_bytes, 1 << 20)?;
    at_least("memory.memtable_bytes", config.memory.memtable_bytes, 1 << 20)?;
    let front = &config.front;
    if !(1..=256).contains(&front.threads) {
        return Err(value("front.threads", "must be 1 to 256"));
    }
    if !(1..=limits::CONNECTIONS_MAX).contains(&front.connections_max) {
        let what = format!("must be 1 to {}", limits::CONNECTIONS_MAX);
        return Err(value("front.connections_max", &what));
    }
    Ok(())
}

fn check_tls(config: &Config) -> Result<(), ConfigError> {
    match &config.tls.peer {
        Some(TlsConfig { ca: None, .. }) => Err(value(
            "[tls.peer] ca",
            "missing: nodes prove themselves to each other, so it must name the CA of their \
             certificates",
        )),
        _ => Ok(()),
    }
}

/// The rule of the module's head: a port that is not on loopback needs credentials.
fn check_credentials(config: &Config, has_secret: bool) -> Result<(), ConfigError> {
    if config.insecure {
        return Ok(());
    }
    let ports = &config.ports;
    let clients = [
        ("redis", ports.redis),
        ("redis-cluster", ports.redis_cluster),
        ("grpc", ports.grpc),
        ("admin", ports.admin),
    ];
    for (port, address) in clients {
        if let Some(address) = address.filter(is_remote)
            && config.users.is_empty()
        {
            return Err(ConfigError::OpenToTheWorld { port, address });
        }
    }
    let proves = config.tls.peer.is_some() || config.peers.is_given() || has_secret;
    if is_remote(&ports.peer) && !proves {
        return Err(ConfigError::OpenToTheWorld { port: "peer", address: ports.peer });
    }
    Ok(())
}

/// Warnings about settings that are allowed but risky.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let (ports, tls) = (&config.ports, &config.tls);
    if config.insecure {
        warnings.push(
            "--insecure: ports that other machines reach may be open without credentials"
                .to_owned(),
        );
    }
    warnings.extend(super::engine::warning(config));
    warnings.extend(super::peers::warnings(config, is_remote(&ports.peer)));
    let clients = [
        ("redis", ports.redis, &tls.redis),
        ("redis-cluster", ports.redis_cluster, &tls.redis),
        ("grpc", ports.grpc, &tls.grpc),
        ("admin", ports.admin, &tls.admin),
    ];
    for (port, address, tls) in clients {
        if address.is_some_and(|a| is_remote(&a)) && tls.is_none() && !config.users.is_empty() {
            warnings.push(format!(
                "--{port} is reachable from other machines without TLS: passwords travel in the clear"
            ));
        }
    }
    warnings
}

/// Whether other machines may reach it.
pub(crate) fn is_remote(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

fn twice(what: &'static str, name: &str) -> ConfigError {
    ConfigError::Twice { what, name: name.to_owned() }
}

fn value(setting: &str, what: &str) -> ConfigError {
    ConfigError::Value { setting: setting.to_owned(), what: what.to_owned() }
}
