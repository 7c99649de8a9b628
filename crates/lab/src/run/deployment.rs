//! Where a world has a global keyspace, its sites are one deployment: the first begins it, the
//! others join, and the slots go where they belong.

use std::time::Duration;

use model::{
    Answer, Body, Command, DeploymentCommand, DeploymentId, KeyspaceId, Registry, RegistryChange,
    SiteEntry, SiteId, Slot, SlotRun,
};

use super::Run;
use super::form::TIMEOUT;
use crate::history::{Owner, RingMember};
use crate::verdict::{self, Verdict};

/// Which site was seen to own a slot at an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Serving {
    /// By its place in the world.
    site: usize,
    /// Which life of it.
    life: u64,
    /// Its id in the deployment.
    pub(super) id: SiteId,
    /// Since when, in true time.
    pub(super) since: Duration,
}

impl Run<'_> {
    /// Whether the sites of this world form a deployment.
    pub(super) fn is_deployment(&self) -> bool {
        self.world.is_deployment()
    }

    /// Makes the sites one deployment with the world's keyspaces; each keyspace's id.
    pub(super) fn form_deployment(&mut self) -> Result<Vec<KeyspaceId>, String> {
        let deployment = DeploymentId(self.seed.max(1));
        let found =
            Command::Deployment(DeploymentCommand::Found { deployment, site: self.entry(0)? });
        self.ask(0, Body::Write(found))?;
        for site in self.sites_inside().into_iter().skip(1) {
            let join = Command::Deployment(DeploymentCommand::ChangeRegistry(
                RegistryChange::Join(self.entry(site)?),
            ));
            let Answer::Registered { site: id, registry } = self.ask(0, Body::Write(join))? else {
                return Err("joining was answered by something else".to_owned());
            };
            self.ask(
                site,
                Body::Write(Command::Deployment(DeploymentCommand::Enter { site: id, registry })),
            )?;
        }
        let mut ids = Vec::new();
        for spec in &self.world.keyspaces {
            match self.ask(0, Body::Write(Command::CreateKeyspace(spec.clone())))? {
                Answer::Keyspace(made) => ids.push(made.id),
                other => return Err(format!("a keyspace was answered by {other:?}")),
            }
        }
        self.wait_for_registries()?;
        self.wait_for_slots()?;
        Ok(ids)
    }

    fn entry(&self, site: usize) -> Result<SiteEntry, String> {
        let entry = self.lab.entry(site);
        entry.ok_or_else(|| format!("{} is no name of a site", self.world.sites[site].name))
    }

    /// Waits until every site has the same registry, which lists all nodes.
    fn wait_for_registries(&mut self) -> Result<(), String> {
        let sites = self.sites_inside();
        let agreed = self.lab.run_until(TIMEOUT, |lab| {
            let registries = sites.iter().map(|site| {
                let leader = lab.leader(*site)?;
                lab.registry(leader)
            });
            let Some(all) = registries.collect::<Option<Vec<_>>>() else { return false };
            let whole = |registry: &Registry| {
                let nodes = |at: usize| lab.sites[sites[at]].nodes.len();
                registry.sites.len() == sites.len()
                    && registry
                        .sites
                        .iter()
                        .enumerate()
                        .all(|(at, one)| one.nodes.len() == nodes(at))
            };
            whole(&all[0]) && all.iter().all(|one| one.version == all[0].version)
        });
        if let Some(why) = self.lab.failure.take() {
            return Err(why);
        }
        if agreed { Ok(()) } else { Err("the sites did not find each other in time".to_owned()) }
    }

    /// Until every slot is where it belongs: no site gives any away, and none is left at the first.
    fn wait_for_slots(&mut self) -> Result<(), String> {
        let until = self.lab.now() + TIMEOUT;
        while self.lab.now() < until && self.lab.failure.is_none() {
            self.lab.run(Duration::from_secs(1));
            let held = self.sites_inside().into_iter().map(|site| {
                let leader = self.lab.leader(site)?;
                Some(self.lab.held_slots(leader).0.len())
            });
            let held: Vec<_> = held.collect();
            let total: usize = held.iter().flatten().sum();
            if total == usize::from(Slot::COUNT) && held.iter().all(|held| *held > Some(0)) {
                return Ok(());
            }
        }
        Err(self.lab.failure.take().unwrap_or_else(|| "slots did not arrive".to_owned()))
    }

    /// Writes down the sites' pointers on the ring, once it has come to rest, or should have.
    pub(super) fn look_at_ring(&mut self) {
        if !self.is_deployment() || self.failure.is_some() {
            return;
        }
        let sites = self.sites_inside();
        let until = self.lab.now() + TIMEOUT;
        loop {
            self.history.rings = sites.iter().flat_map(|site| self.ring_of(*site)).collect();
            let judged = verdict::ring::judge(&self.history);
            if matches!(judged, Verdict::Holds { .. }) || self.lab.now() >= until {
                return;
            }
            self.lab.run(Duration::from_secs(1));
        }
    }

    fn ring_of(&self, site: usize) -> Vec<RingMember> {
        let Some(leader) = self.lab.leader(site) else { return Vec::new() };
        let at_us = self.now_us();
        let name = self.lab.label(site);
        let text = |point: u64| format!("{point:016x}");
        let pointers = self.lab.ring(leader).into_iter();
        let member = pointers.map(|(point, predecessor, successors)| RingMember {
            at_us,
            point: text(point),
            site: name.clone(),
            predecessor: predecessor.map(text),
            successors: successors.into_iter().map(text).collect(),
        });
        member.collect()
    }

    /// Which site holds each slot now, by the slots' numbers.
    pub(super) fn owner_of_each_slot(&self) -> Vec<usize> {
        let mut owners = vec![0; usize::from(Slot::COUNT)];
        for site in 0..self.world.sites.len() {
            let leader = self.lab.leader(site);
            let held = leader.map(|leader| self.lab.held_slots(leader).0).unwrap_or_default();
            held.into_iter().for_each(|slot| owners[usize::from(slot.number())] = site);
        }
        owners
    }

    /// Writes down the owners of slots from here on; once for each slot and epoch, and again for
    /// another owner.
    pub(super) fn note_owners(&mut self) {
        for held in std::mem::take(&mut self.lab.held) {
            self.judge_owners(&held);
            let at_us = held.at.as_micros() as u64;
            let who = Serving { site: held.site, life: held.life, id: held.id, since: held.at };
            let name = self.world.sites[held.site].name.as_str();
            let name = match held.life {
                0 | 1 => name.to_owned(),
                life => format!("{name}#{life}"),
            };
            for (run, epoch) in held.slots.runs() {
                let owners = self.owners.entry(epoch).or_default();
                let is_new = |run: &SlotRun| {
                    let known = owners.get(run.first);
                    known.is_none_or(|known| (known.site, known.life) != (who.site, who.life))
                };
                let alike = run.cut(|slot| owners.run_at(slot).0);
                let new: Vec<SlotRun> = alike.filter(is_new).collect();
                for run in new {
                    owners.set(run, Some(who));
                    let failovers = &mut self.failovers;
                    let number = failovers.iter().position(|known| *known == epoch.failover);
                    let number = number.unwrap_or_else(|| {
                        failovers.push(epoch.failover);
                        failovers.len() - 1
                    });
                    self.history.owners.extend(run.slots().map(|slot| Owner {
                        at_us,
                        unit: format!("slot/{slot}"),
                        // Rounds begin anew after a recovery of the registry: only the whole ballot
                        // names a failover.
                        epoch: ((number as u64) << 32) + epoch.count,
                        owner: name.clone(),
                    }));
                }
            }
        }
    }
}
