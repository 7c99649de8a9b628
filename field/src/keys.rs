//! One key of a node, written and read over its Redis port. Asked again until the node answers.

use std::time::Duration;

use crate::resp::Client;
use crate::{Node, eventually};

/// How long one answer may take.
const DEADLINE: Duration = Duration::from_secs(15);
/// How long the node may fail to answer.
const LIMIT: Duration = Duration::from_secs(60);

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
