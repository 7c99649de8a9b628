//! A group of nodes that replicate one log.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::resp::Client;
use crate::{Node, NodeOptions, eventually};

/// How long a site may take to accept writes after a start or a failure.
const WRITES_MAX: Duration = Duration::from_secs(60);

/// Nodes 1 to n of one site, each a process; a node that was killed keeps its place.
#[derive(Debug)]
pub struct Site {
    /// In the order of their numbers, which start at 1.
    pub nodes: Vec<Node>,
}

impl Site {
    /// Starts `count` nodes with their data in `folder`: the first creates the site, the others
    /// join it one after the other. `adjust` may change each node's options first.
    #[must_use]
    pub fn start(folder: &Path, count: u64, adjust: impl Fn(&mut NodeOptions)) -> Self {
        let mut nodes: Vec<Node> = Vec::new();
        for number in 1..=count {
            let mut options = NodeOptions::new(folder, number);
            options.join = nodes.first().map(|first| first.options.peer);
            adjust(&mut options);
            nodes.push(options.start());
        }
        let site = Self { nodes };
        site.wait_voters(count as usize);
        site.wait_writable();
        site
    }

    /// The Redis addresses of all nodes, including those that are down.
    #[must_use]
    pub fn redis(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.options.redis).collect()
    }

    /// Process ids of the nodes that are up.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().filter(|node| node.is_up()).map(Node::pid).collect()
    }

    /// The leader among the nodes that are up, as an index into `nodes`.
    ///
    /// # Errors
    /// When no node reports within a minute that it leads.
    pub fn leader(&self) -> Result<usize, String> {
        eventually(WRITES_MAX, || {
            let leads = |node: &Node| node.is_up() && node.status().is_ok_and(|s| s.leads());
            self.nodes.iter().position(leads).ok_or_else(|| "no node leads".to_owned())
        })
    }

    /// Waits until every node that is up has that many voters in its member list. A node votes only
    /// once it has caught up; until then the site survives fewer failures than its number of nodes
    /// allows.
    ///
    /// # Panics
    /// When that takes more than a minute.
    pub fn wait_voters(&self, voters: usize) {
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            let there = eventually(WRITES_MAX, || {
                let status = node.status()?;
                if status.voters() == voters { Ok(()) } else { Err(format!("{status:?}")) }
            });
            assert!(there.is_ok(), "node {}: {}", node.options.node, there.unwrap_err());
        }
    }

    /// Waits until a write through every node that is up succeeds.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub fn wait_writable(&self) {
        for node in self.nodes.iter().filter(|node| node.is_up()) {
            let written = eventually(WRITES_MAX, || {
                Client::connect(node.options.redis, Duration::from_secs(5))
                    .map_err(|e| e.to_string())?
                    .call(&["SET", "field:writable", "yes"])
                    .map_err(|e| e.to_string())
            });
            assert!(written.is_ok(), "node {}: {}", node.options.node, written.unwrap_err());
        }
    }
}
