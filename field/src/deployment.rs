//! Several sites as one deployment, each of one node: how tests start them, and what its operators
//! see.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::{Node, NodeOptions, eventually};

/// How long sites may take to agree on something.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A site of one node with its data in `folder`. It joins the deployment of `join`.
#[must_use]
pub fn options(folder: &Path, site: &str, join: Option<&Node>) -> NodeOptions {
    let mut options = NodeOptions::new(&folder.join(site), 1);
    site.clone_into(&mut options.site);
    options.join = join.map(|node| node.options.peer);
    options
}

/// The causal keyspace `cars` with the prefix `car:`, which all of these sites have then.
///
/// # Panics
/// When they do not come to that within the limit.
pub fn create_causal(nodes: &[Node]) {
    let spec = ["cars", "--prefix", "car:", "--consistency", "causal", "--scope", "region"];
    create_keyspace(nodes, &nodes[1], &spec);
}

/// A keyspace that one of these sites is asked for, and that all of them have then.
fn create_keyspace(nodes: &[Node], at: &Node, spec: &[&str]) {
    let create = [&["keyspace", "create"], spec].concat();
    let made = eventually(LIMIT, || match at.cli(&create) {
        // An attempt of before, whose answer did not come.
        Err(why) if why.contains("has this name or prefix already") => Ok(String::new()),
        made => made,
    });
    made.expect("a deployment takes a keyspace");
    for node in nodes {
        let knows = eventually(LIMIT, || match node.cli(&["keyspace", "list"])? {
            list if list.contains(spec[0]) => Ok(()),
            list => Err(list),
        });
        knows.expect("a keyspace gets about");
    }
}

/// Sites of these names, the first of which begins the deployment and the others join by the one
/// before, and a global keyspace `ledger` with the prefix `ledger:` that all of them have.
///
/// # Panics
/// When they do not come to that within the limit.
#[must_use]
pub fn start<const N: usize>(folder: &Path, names: [&str; N]) -> [Node; N] {
    let mut nodes: Vec<Node> = Vec::new();
    for name in names {
        let node = options(folder, name, nodes.last()).start();
        nodes.push(node);
    }
    create_keyspace(&nodes, &nodes[N - 1], &["ledger", "--prefix", "ledger:", "--scope", "global"]);
    nodes.try_into().expect("as many nodes as names")
}

/// The output of a command that prints JSON.
///
/// # Errors
/// What it prints when it fails.
pub fn json(node: &Node, words: &[&str]) -> Result<Value, String> {
    serde_json::from_str(&node.cli(words)?).map_err(|error| error.to_string())
}

/// How many slots each site holds, by a node's map.
///
/// # Errors
/// When it cannot be asked.
pub fn slots(node: &Node) -> Result<Vec<(String, u64)>, String> {
    let listed = json(node, &["site", "list", "--json"])?;
    let sites = listed["sites"].as_array().cloned().unwrap_or_default();
    let site = |site: &Value| {
        (site["name"].as_str().unwrap_or("").to_owned(), site["slots"].as_u64().unwrap_or(0))
    };
    Ok(sites.iter().map(site).collect())
}

/// The mirror of a site, as a node shows it.
///
/// # Errors
/// When it cannot be asked.
pub fn mirror(node: &Node, site: &str) -> Result<Value, String> {
    Ok(json(node, &["site", "show", site, "--json"])?["mirror"].clone())
}

/// Waits until all that a site holds is mirrored, as these nodes show it.
///
/// # Panics
/// When it is not within the limit.
pub fn wait_mirrored(site: &str, nodes: &[&Node]) {
    for node in nodes {
        let whole = eventually(LIMIT, || match mirror(node, site)? {
            mirror if mirror["behind"] == 0 && mirror["complete"] == mirror["holds"] => {
                match mirror["holds"].as_u64() {
                    Some(1..) => Ok(()),
                    _ => Err(format!("{site} holds nothing")),
                }
            }
            mirror => Err(mirror.to_string()),
        });
        assert!(whole.is_ok(), "the mirror of {site} at {}: {whole:?}", node.options.site);
    }
}

/// Waits until these nodes have one and the same version of the registry, so that each has what any
/// of them has decided.
///
/// # Panics
/// When they do not within the limit.
pub fn wait_one_registry(nodes: &[&Node]) {
    let same = eventually(LIMIT, || {
        let version =
            |node: &&Node| Ok(json(node, &["registry", "show", "--json"])?["version"].clone());
        let versions = nodes.iter().map(version).collect::<Result<Vec<Value>, String>>()?;
        match versions.iter().all(|version| *version == versions[0]) {
            true => Ok(()),
            false => Err(format!("{versions:?}")),
        }
    });
    same.expect("the registry gets about");
}
