//! The end of a run: each key that was written is read once more, and what replicas hold is compared.

use std::collections::BTreeSet;

use model::{Body, Bytes, Query, ReadConsistency};

use super::form::PATIENCE;
use super::{Run, digest};
use crate::clients;
use crate::history::{Action, Operation, ReplicaState};

/// Keys of one site that are read once more at the end.
const AUDIT_KEYS_MAX: usize = 2_000;

impl Run<'_> {
    /// Reads each key that was written once more.
    pub(super) fn audit(&mut self) {
        let Some(crowd) = &mut self.crowd else { return };
        let globals: BTreeSet<_> = crowd.global_keyspaces().collect();
        let mut seen = BTreeSet::new();
        let mut counts = vec![0_usize; self.world.sites.len()];
        for (site, key, keyspace) in std::mem::take(&mut crowd.written) {
            let is_global = globals.contains(&keyspace);
            if is_global && !seen.insert(key.clone()) {
                continue;
            }
            counts[site] += 1;
            if counts[site] > AUDIT_KEYS_MAX {
                continue;
            }
            let call_us = self.now_us();
            let query = Query::Get { key: Bytes::from(key.clone()) };
            let consistency = ReadConsistency::Linearizable;
            let outcome = match self.ask(site, Body::Read { keyspace, query, consistency }) {
                Ok(answer) => clients::understood(answer),
                Err(why) => return self.fail(why),
            };
            let name = self.world.sites[site].name.clone();
            self.history.operations.push(Operation {
                client: format!("auditor-{name}"),
                site: Some(name.to_string()),
                key: if is_global { key.clone() } else { format!("{name}:{key}") },
                call_us,
                return_us: Some(self.now_us()),
                action: Action::Get,
                outcome,
                stale: false,
            });
        }
    }

    pub(super) fn look_at_states(&mut self) {
        for site in 0..self.world.sites.len() {
            // What is under way at one replica is not yet at another.
            if !self.lab.run_until(PATIENCE, |lab| lab.is_whole(site)) {
                let name = &self.world.sites[site].name;
                return self.fail(format!("{name} does not come to rest"));
            }
            let at_us = self.now_us();
            for node in self.lab.sites[site].nodes.clone() {
                if self.lab.nodes[node].witness {
                    continue;
                }
                let mut bytes = Vec::new();
                for (key, value) in self.lab.rows(node).unwrap_or_default() {
                    for part in [key, value] {
                        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
                        bytes.extend_from_slice(&part);
                    }
                }
                self.history.states.push(ReplicaState {
                    at_us,
                    group: self.world.sites[site].name.to_string(),
                    replica: self.lab.name(node).to_owned(),
                    digest: digest(&bytes),
                });
            }
        }
    }
}
