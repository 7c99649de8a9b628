//! Sites that come and go: what their operators do, one step after the other.
//!
//! A site *enters* as `portolan serve --join` has it: its nodes start on empty disks, any node of
//! any other site is asked to let it in, and what that answers becomes a command in its own log. It
//! *leaves* as `portolan site leave` has it: any node is asked, the site hands everything over, and
//! its nodes are stopped when another site's registry no longer has it. A site that comes back
//! after that is a new site of the old name, on empty disks: another incarnation, with another id.
//!
//! The user of this module calls [`Simulation::see_to`] every [`STEP`] until it reports that
//! nothing is left to do. Requests of operators go directly to a node, unless its site is cut off;
//! now and then the answer is lost on its way back, so that they ask twice.

use super::{NodeIndex, Simulation, node::Down};
use model::{
    Answer, Ballot, Body, Command, DeploymentCommand, Failure, NodeEntry, NodeId, Refusal,
    Registry, RegistryChange, RegistryError, Request, SiteEntry, SiteId,
};
use protocol::site::Ticket;
use std::time::Duration;

/// How often operators poll a site.
pub const STEP: Duration = Duration::from_millis(150);
/// How long they wait for an answer before they ask again.
const TIMEOUT_MS: u64 = 1_500;
/// Of a thousand answers to operators, so many are lost.
const LOST_PERMILLE: u64 = 100;

/// The state of a site in its deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteLifecycle {
    /// No node of it runs: it has not come yet, or has left.
    Outside,
    /// Its nodes run, and it asks to be let in.
    Entering,
    /// It belongs to the deployment, or there is none.
    Inside,
    /// It was ordered to leave, and hands everything over.
    Leaving,
    /// It is out of the registry; its nodes are about to be stopped.
    Left,
}

/// A request of an operator that has no answer yet.
#[derive(Debug)]
pub(super) struct AdminTask {
    outcome: Option<Result<Answer, Failure>>,
}

/// The steps of a site that enters or leaves.
#[derive(Debug, Default)]
pub(super) struct SitePlan {
    asked: Option<Ticket>,
    let_in: Option<(SiteId, Box<Registry>)>,
    /// Its nodes are stopped then.
    stop_at: Duration,
    /// How long they run on after it has left.
    runs_on: Duration,
    /// The latest registry in which it was seen, and whether it was lost there.
    listed: Option<(Ballot, bool)>,
}

impl<C> Simulation<C> {
    /// Whether clients find a site's nodes, and may attach to it.
    #[must_use]
    pub fn is_open(&self, site: usize) -> bool {
        matches!(self.sites[site].lifecycle, SiteLifecycle::Inside | SiteLifecycle::Leaving)
    }

    /// Whether nodes of a site run, or are to.
    #[must_use]
    pub fn is_there(&self, site: usize) -> bool {
        self.sites[site].lifecycle != SiteLifecycle::Outside
    }

    /// Whether a site is on its way in or out.
    #[must_use]
    pub fn is_on_its_way(&self, site: usize) -> bool {
        !matches!(self.sites[site].lifecycle, SiteLifecycle::Inside | SiteLifecycle::Outside)
    }

    /// A site's name, and its incarnation if it is not the first.
    #[must_use]
    pub fn label(&self, site: usize) -> String {
        let group = &self.sites[site];
        match group.life {
            0 | 1 => group.name.clone(),
            life => format!("{}#{life}", group.name),
        }
    }

    /// A site as it asks to be let in.
    #[must_use]
    pub fn entry(&self, site: usize) -> Option<SiteEntry> {
        let group = &self.sites[site];
        let node = |node: u64| NodeEntry {
            node: NodeId(node),
            peer: format!("n{node}"),
            cluster: String::new(),
        };
        Some(SiteEntry {
            id: SiteId(0),
            name: model::SiteName::new(group.name.clone()).ok()?,
            incarnation: group.life << 32 | (site as u64 + 1),
            capacity_percent: group.capacity_percent,
            leaving: false,
            failure_domain: group.failure_domain.clone(),
            region: SiteEntry::stated_region(group.region.as_ref()),
            borrowed_bytes_max: group.borrowed_bytes_max,
            nodes: (1..=group.nodes.len() as u64).map(node).collect(),
        })
    }

    /// A site that is outside starts on empty disks and asks to be let in. `false`: it is not
    /// outside.
    pub fn enter(&mut self, site: usize) -> bool {
        let group = &mut self.sites[site];
        if group.lifecycle != SiteLifecycle::Outside {
            return false;
        }
        group.lifecycle = SiteLifecycle::Entering;
        group.life += 1;
        (group.id, group.plan) = (None, SitePlan::default());
        let (label, nodes) = (self.label(site), self.sites[site].nodes.clone());
        self.note(|| format!("{label} comes"));
        for node in nodes {
            self.nodes[node].begin_anew();
            self.start(node);
        }
        true
    }

    /// A site is ordered to leave; its nodes run on for so long after it is out. `false`: it is not
    /// inside, or fewer than two others would stay.
    pub fn leave(&mut self, site: usize, runs_on: Duration) -> bool {
        let stay =
            |group: &&super::Group| group.lifecycle == SiteLifecycle::Inside && group.id.is_some();
        let others = self.sites.iter().filter(stay).count();
        let group = &mut self.sites[site];
        if group.lifecycle != SiteLifecycle::Inside || group.id.is_none() || others <= 2 {
            return false;
        }
        group.lifecycle = SiteLifecycle::Leaving;
        group.plan = SitePlan { runs_on, ..SitePlan::default() };
        let label = self.label(site);
        self.note(|| format!("{label} is ordered to leave"));
        true
    }

    /// Does the next step of a site's coming or going; whether it is on its way.
    pub fn see_to(&mut self, site: usize) -> bool {
        let heard = match self.sites[site].plan.asked {
            Some(ticket) => match self.admin_task_outcome(ticket) {
                Some(outcome) => {
                    self.sites[site].plan.asked = None;
                    Some(outcome)
                }
                None => return true,
            },
            None => None,
        };
        match self.sites[site].lifecycle {
            SiteLifecycle::Outside | SiteLifecycle::Inside => return false,
            SiteLifecycle::Entering => self.enter_on(site, heard),
            SiteLifecycle::Leaving => self.leave_on(site, heard),
            SiteLifecycle::Left => {
                if self.sites[site].plan.stop_at <= self.now {
                    self.stop_site(site);
                }
            }
        }
        self.is_on_its_way(site)
    }

    fn enter_on(&mut self, site: usize, heard: Option<Result<Answer, Failure>>) {
        if let Some(Ok(Answer::Registered { site: id, registry })) = heard {
            self.sites[site].plan.let_in = Some((id, registry));
        }
        let leader = self.leader(site);
        if leader.is_some_and(|leader| self.registry(leader).is_some()) {
            // Clients find a site when all of its nodes serve for the deployment. A witness
            // holds no registry: it is a member when its process runs.
            let serves = |node: &NodeIndex| match self.nodes[*node].witness {
                true => self.nodes[*node].process.is_some(),
                false => self.registry(*node).is_some(),
            };
            if self.sites[site].nodes.iter().all(serves) {
                let label = self.label(site);
                self.note(|| format!("{label} is in"));
                self.sites[site].lifecycle = SiteLifecycle::Inside;
                self.sites_entered += 1;
            }
            return;
        }
        let asked = match self.sites[site].plan.let_in.clone() {
            Some((id, registry)) => {
                let enter = Command::Deployment(DeploymentCommand::Enter { site: id, registry });
                leader.and_then(|leader| self.ask_aside(leader, Body::Write(enter)))
            }
            None => {
                let Some(entry) = self.entry(site).filter(|_| leader.is_some()) else { return };
                let join = Command::Deployment(DeploymentCommand::ChangeRegistry(
                    RegistryChange::Join(entry),
                ));
                self.ask_another(site, Body::Write(join))
            }
        };
        self.sites[site].plan.asked = asked;
    }

    fn leave_on(&mut self, site: usize, heard: Option<Result<Answer, Failure>>) {
        let Some(id) = self.sites[site].id else { return };
        let must_stay = |heard: &Result<Answer, Failure>| {
            let Err(Failure::Refused(Refusal::Registry(error))) = heard else { return false };
            // The root of causal keys stays, too, and the last site that could be it; and a lost
            // one of which sites were not asked.
            matches!(
                error,
                RegistryError::LastSite(_)
                    | RegistryError::Root(_)
                    | RegistryError::LastReplica(_)
                    | RegistryError::NotAllAsked(_)
            )
        };
        if heard.is_some_and(|heard| must_stay(&heard)) {
            self.sites[site].lifecycle = SiteLifecycle::Inside;
            return;
        }
        // Another site's registry counts: the operator asks any node.
        let others = (0..self.sites.len()).filter(|other| *other != site && self.is_open(*other));
        let leaders: Vec<NodeIndex> = others.filter_map(|other| self.leader(other)).collect();
        let registries = leaders.into_iter().filter_map(|leader| self.registry(leader));
        let known = registries.filter(|registry| registry.site_next > id.0);
        let (mut entries, mut latest) = (Vec::new(), None);
        for registry in known {
            let entry = registry.site(id).map(|entry| entry.leaving);
            if entry.is_some() {
                latest = latest.max(Some((registry.version, registry.is_lost(id))));
            }
            entries.push(entry);
        }
        // The latest registry that lists the site states how it went; one without it does not.
        let plan = &mut self.sites[site].plan;
        plan.listed = plan.listed.max(latest);
        if entries.contains(&None) {
            let label = self.label(site);
            self.note(|| format!("{label} has left"));
            if self.sites[site].plan.listed.is_some_and(|(_, is_lost)| is_lost) {
                self.removed_lost.insert(id);
            }
            let stop_at = self.now + self.sites[site].plan.runs_on;
            self.sites[site].lifecycle = SiteLifecycle::Left;
            self.sites[site].plan.stop_at = stop_at;
        } else if !entries.contains(&Some(true)) {
            let leave =
                Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Leave(id)));
            let asked = self.ask_another(site, Body::Write(leave));
            self.sites[site].plan.asked = asked;
        }
    }

    fn stop_site(&mut self, site: usize) {
        let label = self.label(site);
        self.note(|| format!("{label} is stopped"));
        for node in self.sites[site].nodes.clone() {
            self.crash(node, &Down::Killed);
            // Its disk is not used again.
            self.nodes[node].retire();
        }
        self.sites[site].lifecycle = SiteLifecycle::Outside;
        self.sites[site].id.into_iter().for_each(|id| self.note_stopped(id));
    }

    // ---- what operators ask ---------------------------------------------------------------------

    /// Asks a node of another site that is there and not cut off.
    fn ask_another(&mut self, site: usize, body: Body) -> Option<Ticket> {
        let reached = |other: &usize| {
            *other != site && self.is_open(*other) && !self.between.is_cut(site, *other)
        };
        let others: Vec<usize> = (0..self.sites.len()).filter(reached).collect();
        if others.is_empty() {
            return None;
        }
        let other = *self.random.pick(&others);
        let nodes = self.sites[other].nodes.clone();
        let node = *self.random.pick(&nodes);
        self.ask_aside(node, body)
    }

    fn ask_aside(&mut self, node: NodeIndex, body: Body) -> Option<Ticket> {
        let request = Request { deadline_ms: Some(TIMEOUT_MS), ..Request::new(body) };
        let ticket = self.announce(node)?;
        self.admin_tasks.insert(ticket, AdminTask { outcome: None });
        self.take_or_wait(node, ticket, request);
        Some(ticket)
    }

    /// The outcome of an admin task; `None`: nothing yet.
    fn admin_task_outcome(&mut self, ticket: Ticket) -> Option<Result<Answer, Failure>> {
        let Some(task) = self.admin_tasks.get(&ticket) else {
            return Some(Err(Failure::Unknown { why: "no site was asked" }));
        };
        task.outcome.as_ref()?;
        self.admin_tasks.remove(&ticket).and_then(|task| task.outcome)
    }

    /// Keeps an answer that is an operator's; gives back any other.
    pub(super) fn receive(
        &mut self,
        ticket: Ticket,
        outcome: Result<Answer, Failure>,
    ) -> Option<Result<Answer, Failure>> {
        if !self.admin_tasks.contains_key(&ticket) {
            return Some(outcome);
        }
        let is_lost = self.random.chance(LOST_PERMILLE);
        let lost = Err(Failure::Unknown { why: "the answer was lost" });
        let outcome = Some(if is_lost { lost } else { outcome });
        self.admin_tasks.insert(ticket, AdminTask { outcome });
        None
    }
}
