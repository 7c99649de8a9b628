//! Keys of a node, written and read over its Redis port. Requests are repeated until the node
//! answers.

use std::time::Duration;

use crate::resp::{Client, Value};
use crate::{Node, eventually};

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// How long the node may fail to answer.
const LIMIT: Duration = Duration::from_secs(300);
/// How many keys are asked for at a time.
const PIPELINE: usize = 250;

/// Sets a key.
///
/// # Panics
/// The node does not answer within the limit.
pub fn write(node: &Node, key: &str, value: &str) {
    eventually(LIMIT, || {
        Client::connect(node.options.redis, DEADLINE)
            .map_err(|e| e.to_string())?
            .call(&["SET", key, value])
            .map_err(|e| e.to_string())
    })
    .unwrap_or_else(|e| panic!("SET {key} through node {}: {e}", node.options.node));
}

/// The value of a key.
///
/// # Panics
/// The node does not answer within the limit.
pub fn read(node: &Node, key: &str) -> Option<String> {
    let value = eventually(LIMIT, || {
        Client::connect(node.options.redis, DEADLINE)
            .map_err(|e| e.to_string())?
            .call(&["GET", key])
            .map_err(|e| e.to_string())
    });
    let value = value.unwrap_or_else(|e| panic!("GET {key} from node {}: {e}", node.options.node));
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Writes keys in pipelines, the value of each being its own name and `value`.
///
/// # Panics
/// The node does not acknowledge all of them within the limit.
pub fn write_all(node: &Node, keys: &[String], value: &str) {
    for some in keys.chunks(PIPELINE) {
        let written = eventually(LIMIT, || {
            let values: Vec<String> = some.iter().map(|key| format!("{key} {value}")).collect();
            let pairs = some.iter().zip(&values);
            let words = pairs.map(|(key, value)| ["SET", key.as_str(), value.as_str()]);
            pipeline(node, &words.collect::<Vec<_>>()).map(drop)
        });
        written.unwrap_or_else(|e| panic!("writing through node {}: {e}", node.options.site));
    }
}

/// The keys that do not have the value that [`write_all`] gave them, as this node reads them.
///
/// # Panics
/// The node does not answer within the limit.
#[must_use]
pub fn differing(node: &Node, keys: &[String], value: &str) -> Vec<String> {
    let mut differing = Vec::new();
    for some in keys.chunks(PIPELINE) {
        let words: Vec<_> = some.iter().map(|key| ["GET", key.as_str()]).collect();
        let found = eventually(LIMIT, || pipeline(node, &words));
        let found = found.unwrap_or_else(|e| panic!("reading through {}: {e}", node.options.site));
        for (key, found) in some.iter().zip(found) {
            let expected = format!("{key} {value}");
            if found.bytes() != Some(expected.as_bytes()) {
                differing.push(format!("{key}: {found:?}"));
            }
        }
    }
    differing
}

fn pipeline<const N: usize>(node: &Node, commands: &[[&str; N]]) -> Result<Vec<Value>, String> {
    let mut client =
        Client::connect(node.options.redis, DEADLINE).map_err(|error| error.to_string())?;
    for words in commands {
        client.send(words).map_err(|error| error.to_string())?;
    }
    commands.iter().map(|_| client.receive().map_err(|error| error.to_string())).collect()
}
