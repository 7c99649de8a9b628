//! The beginning of a run: sites are formed, keyspaces made, keys loaded.

use std::collections::BTreeSet;

use model::{Answer, Body, Bytes, Command, KeyspaceId, Write};

use super::Run;
use crate::clients::Ids;
use crate::history::{Action, Operation, Outcome};

/// How long a site may take to form, and to answer.
pub(super) const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
/// Keys that are loaded by one command.
const LOAD_KEYS: usize = 200;

impl Run<'_> {
    /// Begins all sites; the ids of the world's keyspaces.
    pub(super) fn form(&mut self) -> Result<Ids, String> {
        self.lab.set_site_links(self.world.site_links());
        for (place, site) in self.world.sites.iter().enumerate() {
            self.lab.add_site(site.name.as_str(), self.world.node_link(place));
            self.lab.sites[place].capacity_percent = (site.capacity * 100.0) as u32;
            self.lab.sites[place].failure_domain.clone_from(&site.failure_domain);
            self.lab.sites[place].region.clone_from(&site.region);
            self.lab.sites[place].borrowed_bytes_max = site.borrowed_bytes_max;
            if site.spare {
                self.lab.keep_outside(place);
            }
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
        for place in self.sites_inside() {
            let formed = self.lab.run_until(TIMEOUT, |lab| lab.is_whole(place));
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
            let body = Body::Write(Command::CreateKeyspace(spec.clone()));
            let mut asked = BTreeSet::new();
            let replies = self.ask_all(|site| asked.insert(site).then(|| ((), body.clone())))?;
            let id = |answer: Answer| match answer {
                Answer::Keyspace(made) => Ok(made.id),
                other => Err(format!("a keyspace was answered by {other:?}")),
            };
            let by_site = replies.into_iter().map(|reply| id(reply.answer));
            ids.push(by_site.collect::<Result<Vec<KeyspaceId>, String>>()?);
        }
        let ids = Ids(ids);
        self.load(&ids)?;
        Ok(ids)
    }

    /// Puts what the workloads expect to be there.
    fn load(&mut self, ids: &Ids) -> Result<(), String> {
        let world = self.world;
        let mut loaded = BTreeSet::new();
        let groups = world.clients.iter();
        let all = groups.flat_map(|group| group.keyspaces().map(move |keyspace| (group, keyspace)));
        for (group, keyspace) in all {
            let prefix = world.prefix(keyspace);
            let keys: Vec<String> =
                group.workload.keys_to_load().map(|key| format!("{prefix}{key}")).collect();
            let padding = ".".repeat(group.workload.value_bytes().saturating_sub(12));
            let value = Bytes::from(format!("loaded {padding}"));
            let is_global = world.is_global(keyspace);
            // Keys of different slots are not put together.
            let count = if is_global { 1 } else { LOAD_KEYS };
            let mut chunks: Vec<_> = world.sites.iter().map(|_| keys.chunks(count)).collect();
            let replies = self.ask_all(|site| {
                // Another group may have loaded them.
                let mut fresh = chunks[site].by_ref().map(|chunk| {
                    let scope = (!is_global).then_some(site);
                    let keys = chunk.iter().filter(|key| loaded.insert((scope, (*key).clone())));
                    keys.cloned().collect::<Vec<String>>()
                });
                let keys = fresh.find(|keys| !keys.is_empty())?;
                let pairs = keys.iter().map(|key| (Bytes::from(key.clone()), value.clone()));
                let write = Write::PutMany { pairs: pairs.collect(), if_all_absent: false };
                let keyspace = ids.of(keyspace, site);
                Some((keys, Body::Write(Command::Write { keyspace, write, request: None })))
            })?;
            for reply in replies {
                let name = &world.sites[reply.site].name;
                self.history.operations.extend(reply.about.iter().map(|key| Operation {
                    client: format!("loader-{name}"),
                    site: Some(name.to_string()),
                    key: if is_global { key.clone() } else { format!("{name}:{key}") },
                    call_us: reply.call_us,
                    waited_us: 0,
                    return_us: Some(reply.return_us),
                    action: Action::Put { value: "loaded".to_owned() },
                    outcome: Outcome::Written { version: None },
                    stale: false,
                    together: None,
                }));
            }
        }
        Ok(())
    }
}
