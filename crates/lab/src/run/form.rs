//! The beginning of a run: sites are formed, keyspaces made, keys loaded.

use std::collections::BTreeSet;

use model::{Answer, Body, Bytes, Command, Failure, KeyspaceId, Request, Write, limits};

use super::{Run, TEND};
use crate::history::{Action, Operation, Outcome};
use crate::simulation::Stepped;

/// How long a site may take to form, and to answer.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
/// Keys that are loaded by one command.
const LOAD_KEYS: usize = 200;

impl Run<'_> {
    /// Begins all sites; the keyspace of each group of clients at each site.
    pub(super) fn form(&mut self) -> Result<Vec<Vec<KeyspaceId>>, String> {
        self.lab.set_site_links(self.world.site_links());
        for (place, site) in self.world.sites.iter().enumerate() {
            self.lab.add_site(site.name.as_str(), self.world.node_link(place));
        }
        // One node of each site after the other: a site's first must be there for the next to join.
        let most = self.world.sites.iter().map(|site| site.nodes).max().unwrap_or(1);
        for number in 1..=most {
            for (place, site) in self.world.sites.iter().enumerate() {
                if number <= site.nodes {
                    self.lab.add_node(place, site.witness && number == site.nodes);
                }
            }
        }
        for place in 0..self.world.sites.len() {
            let formed = self.lab.run_until(PATIENCE, |lab| lab.is_whole(place));
            if let Some(why) = self.lab.failure.take() {
                return Err(why);
            }
            if !formed {
                return Err(format!("{} did not form", self.world.sites[place].name));
            }
        }
        let mut ids = Vec::new();
        if self.is_deployment() {
            let sites = self.world.sites.len();
            ids = self.form_deployment()?.into_iter().map(|id| vec![id; sites]).collect();
        }
        for spec in &self.world.keyspaces[ids.len()..] {
            let command = Command::CreateKeyspace(spec.clone());
            let mut by_site = Vec::new();
            for site in 0..self.world.sites.len() {
                match self.ask(site, Body::Write(command.clone()))? {
                    Answer::Keyspace(made) => by_site.push(made.id),
                    other => return Err(format!("a keyspace was answered by {other:?}")),
                }
            }
            ids.push(by_site);
        }
        let default = vec![KeyspaceId::DEFAULT; self.world.sites.len()];
        let groups = self.world.clients.iter();
        let keyspaces: Vec<Vec<KeyspaceId>> = groups
            .map(|group| group.keyspace.map_or_else(|| default.clone(), |place| ids[place].clone()))
            .collect();
        self.load(&keyspaces)?;
        Ok(keyspaces)
    }

    /// Puts what the workloads expect to be there.
    fn load(&mut self, keyspaces: &[Vec<KeyspaceId>]) -> Result<(), String> {
        let mut loaded = BTreeSet::new();
        for (group, by_site) in self.world.clients.iter().zip(keyspaces) {
            let prefix = group.keyspace.map(|place| &self.world.keyspaces[place].prefix);
            let prefix =
                prefix.map_or_else(Default::default, |prefix| String::from_utf8_lossy(prefix));
            let keys: Vec<String> =
                group.workload.keys_to_load().map(|key| format!("{prefix}{key}")).collect();
            let padding = ".".repeat(group.workload.value_bytes().saturating_sub(12));
            for (site, keyspace) in by_site.iter().enumerate() {
                for chunk in keys.chunks(LOAD_KEYS) {
                    let is_global = group.is_global(self.world);
                    let scope = if is_global { 0 } else { site };
                    let fresh: Vec<&String> =
                        chunk.iter().filter(|key| loaded.insert((scope, (*key).clone()))).collect();
                    if is_global {
                        // Keys of different slots are not put together.
                        for key in fresh {
                            self.load_some(site, *keyspace, &[key], &padding, true)?;
                        }
                    } else {
                        self.load_some(site, *keyspace, &fresh, &padding, false)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn load_some(
        &mut self,
        site: usize,
        keyspace: KeyspaceId,
        keys: &[&String],
        padding: &str,
        is_global: bool,
    ) -> Result<(), String> {
        if keys.is_empty() {
            return Ok(());
        }
        let name = self.world.sites[site].name.clone();
        let call_us = self.now_us();
        let pairs = keys
            .iter()
            .map(|key| (Bytes::from((*key).clone()), Bytes::from(format!("loaded {padding}"))));
        let write = Write::PutMany { pairs: pairs.collect(), if_all_absent: false };
        self.ask(site, Body::Write(Command::Write { keyspace, write, request: None }))?;
        let return_us = Some(self.now_us());
        for key in keys {
            self.history.operations.push(Operation {
                client: format!("loader-{name}"),
                site: Some(name.to_string()),
                key: if is_global { (*key).clone() } else { format!("{name}:{key}") },
                call_us,
                return_us,
                action: Action::Put { value: "loaded".to_owned() },
                outcome: Outcome::Written { version: None },
                stale: false,
            });
        }
        Ok(())
    }

    /// Asks a site's leader, from beside it, until it is answered.
    pub(super) fn ask(&mut self, site: usize, body: Body) -> Result<Answer, String> {
        let until = self.lab.now() + PATIENCE;
        let mut last = Failure::NoLeader;
        while self.lab.now() < until && self.lab.failure.is_none() {
            let leader = self.lab.leader(site);
            let request = Request { body: body.clone(), deadline_ms: None };
            if let Some(ticket) = leader.and_then(|leader| self.lab.ask(leader, request)) {
                let deadline = self.lab.now() + limits::REQUEST_DEADLINE + TEND;
                loop {
                    if let Some(place) =
                        self.lab.answered.iter().position(|answered| answered.ticket == ticket)
                    {
                        match self.lab.answered.swap_remove(place).outcome {
                            Ok(answer) => return Ok(answer),
                            Err(failure) => last = failure,
                        }
                        break;
                    }
                    if matches!(self.lab.step(deadline), Stepped::Nothing) {
                        break;
                    }
                }
            }
            self.lab.run(TEND);
        }
        Err(format!("{} does not answer: {last}", self.world.sites[site].name))
    }
}
