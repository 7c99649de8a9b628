//! The end of a run: each key that was written is read once more, and what replicas hold is
//! compared.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{Body, Bytes, KeyspaceId, Query, ReadConsistency};

use super::form::TIMEOUT;
use super::{Run, digest};
use crate::clients;
use crate::history::{Action, Operation, ReplicaState};
use crate::simulation::NodeIndex;

/// Keys of one site that are read once more at the end.
const AUDIT_KEYS_MAX: usize = 2_000;

impl Run<'_> {
    /// Reads each key that was written once more.
    pub(super) fn audit(&mut self) {
        let Some(clients) = &mut self.clients else { return };
        let globals: BTreeSet<KeyspaceId> = clients.global_keyspaces().collect();
        let written = std::mem::take(&mut clients.written);
        let lives: Vec<u64> = self.lab.sites.iter().map(|group| group.life).collect();
        let inside = self.sites_inside();
        let Some(first) = inside.first().copied() else { return };
        let mut seen = BTreeSet::new();
        let mut keys: BTreeMap<usize, VecDeque<(String, KeyspaceId)>> = BTreeMap::new();
        for (site, life, key, keyspace) in written {
            // A global key is read once, from one of the sites that wrote it.
            let is_global = globals.contains(&keyspace);
            if is_global && !seen.insert(key.clone()) {
                continue;
            }
            // What a site kept for itself left with it.
            let is_here = inside.contains(&site) && lives[site] == life;
            if !is_here && !is_global {
                continue;
            }
            let site = if inside.contains(&site) { site } else { first };
            let keys = keys.entry(site).or_default();
            if keys.len() < AUDIT_KEYS_MAX {
                keys.push_back((key, keyspace));
            }
        }
        let replies = self.ask_all(|site| {
            let (key, keyspace) = keys.get_mut(&site)?.pop_front()?;
            let query = Query::Get { key: Bytes::from(key.clone()) };
            let consistency = ReadConsistency::Linearizable;
            Some(((key, keyspace), Body::Read { keyspace, query, consistency }))
        });
        let replies = match replies {
            Ok(replies) => replies,
            Err(why) => return self.fail(why),
        };
        self.history.operations.extend(replies.into_iter().map(|reply| {
            let name = &self.world.sites[reply.site].name;
            let (key, keyspace) = reply.about;
            let label = self.lab.label(reply.site);
            Operation {
                client: format!("auditor-{name}"),
                site: Some(name.to_string()),
                key: if globals.contains(&keyspace) { key } else { format!("{label}:{key}") },
                call_us: reply.call_us,
                waited_us: 0,
                return_us: Some(reply.return_us),
                action: Action::Get,
                outcome: clients::understood(reply.answer),
                stale: false,
                together: None,
            }
        }));
    }

    pub(super) fn look_at_states(&mut self) {
        for site in self.sites_inside() {
            // What is under way at one replica is not yet at another.
            if !self.lab.run_until(TIMEOUT, |lab| lab.is_whole(site)) {
                let name = &self.world.sites[site].name;
                return self.fail(format!("{name} does not come to rest"));
            }
            let at_us = self.now_us();
            let mut first = None;
            for node in self.lab.sites[site].nodes.clone() {
                if self.lab.nodes[node].witness {
                    continue;
                }
                let mut bytes = Vec::new();
                let rows = self.lab.rows(node).unwrap_or_default();
                self.note_differences(node, first.get_or_insert_with(|| rows.clone()), &rows);
                for (key, value) in rows {
                    for part in [key, value] {
                        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
                        bytes.extend_from_slice(&part);
                    }
                }
                self.history.states.push(ReplicaState {
                    at_us,
                    group: self.lab.label(site),
                    replica: self.lab.name(node).to_owned(),
                    digest: digest(&bytes),
                });
            }
        }
    }

    /// Writes into the trace in which rows a replica differs from another one of its site.
    fn note_differences(
        &mut self,
        node: NodeIndex,
        one: &BTreeMap<Vec<u8>, Vec<u8>>,
        other: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) {
        let keys: BTreeSet<&Vec<u8>> = one.keys().chain(other.keys()).collect();
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let row = |row: Option<&Vec<u8>>| row.map_or_else(|| "none".to_owned(), |row| text(row));
        for key in keys.into_iter().filter(|key| one.get(*key) != other.get(*key)) {
            let (one, other) = (row(one.get(key)), row(other.get(key)));
            let name = self.lab.name(node).to_owned();
            let line = format!("{name} differs in row {}: {other}, and not {one}", text(key));
            self.lab.note(|| line);
        }
    }
}
