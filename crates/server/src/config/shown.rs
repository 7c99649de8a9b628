//! The effective configuration as file text that gives it again.

use super::{Config, INSECURE_WORDS, TlsConfig};
use model::Placement;
use std::fmt::Write;
use std::net::SocketAddr;

/// All settings, defaults included, in the order of the guide.
pub(super) fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    write(&mut out, config).expect("a string takes all that is written to it");
    out
}

fn write(out: &mut String, config: &Config) -> std::fmt::Result {
    writeln!(out, "site = {}", quoted(config.site.as_str()))?;
    writeln!(out, "node = {}", config.node.0)?;
    writeln!(out, "data = {}", quoted(&config.data.to_string_lossy()))?;
    writeln!(out, "capacity = {}", f64::from(config.capacity_percent) / 100.0)?;
    writeln!(out, "join = [{}]", list(config.join.iter().map(String::as_str)))?;
    writeln!(out, "witness = {}", config.witness)?;
    if config.insecure {
        writeln!(out, "insecure = {}", quoted(INSECURE_WORDS))?;
    }

    super::engine::show(out, &config.engine)?;

    let ports = &config.ports;
    let port = |address: Option<SocketAddr>| match address {
        Some(address) => quoted(&address.to_string()),
        None => quoted("off"),
    };
    writeln!(out, "\n[listen]")?;
    writeln!(out, "redis = {}", port(ports.redis))?;
    writeln!(out, "redis_cluster = {}", port(ports.redis_cluster))?;
    writeln!(out, "grpc = {}", port(ports.grpc))?;
    writeln!(out, "peer = {}", port(Some(ports.peer)))?;
    writeln!(out, "admin = {}", port(ports.admin))?;
    if let Some(advertise) = &ports.advertise {
        writeln!(out, "advertise = {}", quoted(advertise))?;
    }
    if let Some(advertise) = &ports.advertise_redis_cluster {
        writeln!(out, "advertise_redis_cluster = {}", quoted(advertise))?;
    }

    let tls = &config.tls;
    let ports_tls =
        [("redis", &tls.redis), ("grpc", &tls.grpc), ("peer", &tls.peer), ("admin", &tls.admin)];
    for (port, tls) in ports_tls {
        if let Some(TlsConfig { cert, key, ca }) = tls {
            writeln!(out, "\n[tls.{port}]")?;
            writeln!(out, "cert = {}", quoted(&cert.to_string_lossy()))?;
            writeln!(out, "key = {}", quoted(&key.to_string_lossy()))?;
            if let Some(ca) = ca {
                writeln!(out, "ca = {}", quoted(&ca.to_string_lossy()))?;
            }
        }
    }

    super::peers::show(out, &config.peers)?;

    for keyspace in &config.keyspaces {
        writeln!(out, "\n[[keyspace]]")?;
        writeln!(out, "name = {}", quoted(&keyspace.name))?;
        writeln!(out, "prefix = {}", quoted(&String::from_utf8_lossy(&keyspace.prefix)))?;
        writeln!(out, "consistency = {}", quoted(&keyspace.consistency.to_string()))?;
        writeln!(out, "scope = {}", quoted(&keyspace.scope.to_string()))?;
        if keyspace.placement == Placement::Adaptive {
            writeln!(out, "placement = \"adaptive\"")?;
        }
        writeln!(out, "lease_reads = {}", keyspace.lease_reads)?;
        if keyspace.cache.is_on() {
            writeln!(out, "cache = \"{}\"", keyspace.cache)?;
            writeln!(out, "cache_bytes_max = {}", keyspace.cache.bytes_max())?;
        }
        if let Some(age_ms_max) = keyspace.cache.age_ms_max() {
            writeln!(out, "cache_age_ms_max = {age_ms_max}")?;
        }
    }

    for user in &config.users {
        writeln!(out, "\n[[user]]")?;
        writeln!(out, "name = {}", quoted(&user.name))?;
        writeln!(out, "password_hash = {}", quoted(&user.password_hash))?;
        let grants = user.rights.iter().map(|grant| {
            let allow = list(grant.allow.iter().map(|right| right.as_str()));
            format!("{{ keyspace = {}, allow = [{allow}] }}", quoted(&grant.keyspace))
        });
        writeln!(out, "rights = [{}]", grants.collect::<Vec<_>>().join(", "))?;
    }

    let (raft, disk, memory, front) = (&config.raft, &config.disk, &config.memory, &config.front);
    writeln!(out, "\n[raft]")?;
    writeln!(out, "election_timeout_ms = {}", raft.election_timeout.as_millis())?;
    writeln!(out, "heartbeat_ms = {}", raft.heartbeat.as_millis())?;
    writeln!(out, "\n[handover]")?;
    writeln!(out, "bytes_per_s_max = {}", config.handover_bytes_per_s_max)?;
    writeln!(out, "\n[disk]")?;
    writeln!(out, "reserve_bytes = {}", disk.reserve_bytes)?;
    writeln!(out, "log_bytes_before_snapshot = {}", disk.log_bytes_before_snapshot)?;
    writeln!(out, "\n[memory]")?;
    writeln!(out, "cache_bytes = {}", memory.cache_bytes)?;
    writeln!(out, "memtable_bytes = {}", memory.memtable_bytes)?;
    writeln!(out, "\n[front]")?;
    writeln!(out, "threads = {}", front.threads)?;
    writeln!(out, "connections_max = {}", front.connections_max)?;
    super::clients::show(out, &config.clients)
}

pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

pub(super) fn list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(quoted).collect::<Vec<_>>().join(", ")
}
