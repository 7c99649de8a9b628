//! Configuration errors. Each names the flag or the key to change.

use model::KeyspaceError;
use std::net::SocketAddr;

/// Why a configuration is not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not TOML, or contains an unknown key or value.
    #[error("{file}:{line}:{column}: {what}{}", hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default())]
    File {
        /// Which file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong there.
        what: String,
        /// The nearest known key.
        hint: Option<String>,
    },
    /// One setting's value cannot be used.
    #[error("{setting}: {what}")]
    Value {
        /// Its flag or key.
        setting: String,
        /// What is wrong with it, and what is allowed.
        what: String,
    },
    /// The same, in a sentence that names the setting.
    #[error("{0}")]
    Setting(String),
    /// The keyspace cannot be served with these settings.
    #[error("[[keyspace]] {0}")]
    Keyspace(#[from] KeyspaceError),
    /// Two entries that must differ are equal.
    #[error("{what} {name:?} is there twice; every {what} needs its own")]
    Twice {
        /// The kind of entry.
        what: &'static str,
        /// The shared name.
        name: String,
    },
    /// A port would be open to other machines without credentials.
    #[error(
        "--{port} {address} is reachable from other machines without credentials: {needs}, \
         listen on 127.0.0.1, or allow it explicitly with --insecure {words}",
        needs = if *port == "peer" {
            "give the nodes certificates ([tls.peer] with cert, key and ca) or a secret ([peers] secret_file)"
        } else {
            "add a [[user]] (see `portolan hash-password`)"
        },
        words = super::INSECURE_WORDS
    )]
    OpenToTheWorld {
        /// The port: its flag without the dashes.
        port: &'static str,
        /// Where it would listen.
        address: SocketAddr,
    },
}
