//! What can be wrong with a configuration. Each names the flag or the key to change.

use model::KeyspaceError;
use std::net::SocketAddr;

/// Why a configuration is not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The file is no TOML, or says something that is not known here.
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
        /// What may have been meant.
        hint: Option<String>,
    },
    /// One setting's value cannot be used.
    #[error("{setting}: {what}")]
    Value {
        /// The flag or the key.
        setting: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A keyspace cannot be served as stated.
    #[error("[[keyspace]] {0}")]
    Keyspace(#[from] KeyspaceError),
    /// Two things that must differ are the same.
    #[error("{what} {name:?} is there twice; every {what} needs its own")]
    Twice {
        /// What kind of thing.
        what: &'static str,
        /// What they share.
        name: String,
    },
    /// A port would be open to other machines without credentials.
    #[error(
        "--{port} {address} is reachable from other machines, and nothing says who may come in: {needs}, \
         listen on 127.0.0.1, or allow it in so many words with --insecure {words}",
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
