//! The attempts of one call, and the last failure of each node.

use crate::nodes::Nodes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// A call in progress.
#[derive(Clone, Debug)]
pub struct Trying {
    began: Instant,
    /// The address of the node in use.
    pub node: String,
    /// The failures of nodes tried before, as `node: reason`; empty: none.
    pub failed: String,
}

impl Trying {
    /// The time since the call began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The attempts of one call.
pub(crate) struct Tries<'a> {
    nodes: &'a Nodes,
    began: Instant,
    failed: BTreeMap<usize, String>,
    no_nodes: BTreeSet<usize>,
    shown: &'a Mutex<Option<Trying>>,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(
        nodes: &'a Nodes,
        shown: &'a Mutex<Option<Trying>>,
        began: Instant,
    ) -> Tries<'a> {
        Tries { nodes, began, failed: BTreeMap::new(), no_nodes: BTreeSet::new(), shown }
    }

    /// Records an attempt at a node.
    pub(crate) fn begin(&mut self, at: usize) {
        let node = self.nodes.address(at).to_owned();
        self.show(Some(Trying { began: self.began, node, failed: self.reasons() }));
    }

    /// Records a failed attempt at a node.
    pub(crate) fn failed(&mut self, at: usize, why: String) {
        self.no_nodes.remove(&at);
        self.failed.insert(at, why);
    }

    /// Records that the server at this address is not a node; returns whether that holds for all of
    /// them.
    pub(crate) fn are_all_no_nodes(&mut self, at: usize) -> bool {
        self.no_nodes.insert(at);
        self.no_nodes.len() == self.nodes.len()
    }

    /// The last failure of each node.
    pub(crate) fn why(&self) -> String {
        match self.failed.is_empty() {
            true => "no node has answered".to_owned(),
            false => self.reasons(),
        }
    }

    fn reasons(&self) -> String {
        let reasons = self.failed.iter();
        let reasons = reasons.map(|(at, why)| format!("{}: {why}", self.nodes.address(*at)));
        reasons.collect::<Vec<_>>().join("; ")
    }

    fn show(&self, trying: Option<Trying>) {
        *self.shown.lock().expect("no panic while it is held") = trying;
    }
}

impl Drop for Tries<'_> {
    fn drop(&mut self) {
        self.show(None);
    }
}
