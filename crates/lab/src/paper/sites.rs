//! Whole sites, where a model would beg the question: the cores, the logs and the jobs that `serve`
//! runs, as one deployment in virtual time.

use std::time::Duration;

use model::{
    Answer, Body, Bytes, Command, Condition, DeploymentCommand, DeploymentId, Expiry, KeyspaceId,
    KeyspaceSpec, Query, ReadConsistency, RegistryChange, Request, SiteId, Slot, Write,
};
use protocol::site::Ticket;

use crate::link::Link;
use crate::simulation::{Settings, Simulation};

pub(super) const MS: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sites of a deployment, numbered as they joined.
pub(super) struct Sites<C = ()> {
    pub(super) lab: Simulation<C>,
}

impl<C> Sites<C> {
    /// So many sites, with as many nodes each as stated.
    pub(super) fn new(
        nodes: &[usize],
        settings: Settings,
        links: impl Fn(usize, usize) -> Link + 'static,
        seed: u64,
    ) -> Sites<C> {
        let mut lab = Simulation::new(seed, settings);
        for (site, nodes) in nodes.iter().enumerate() {
            lab.add_site(format!("s{site}"), Link::constant(0.1));
            for _ in 0..*nodes {
                lab.add_node(site, false);
            }
        }
        lab.set_site_links(links);
        let mut sites = Sites { lab };
        sites.wait(|lab| (0..nodes.len()).all(|site| lab.is_whole(site)));
        let entry = |sites: &Sites<C>, site| sites.lab.entry(site).expect("the site is up");
        let site = entry(&sites, 0);
        let found = DeploymentCommand::Found { deployment: DeploymentId(7), site };
        sites.order(0, Command::Deployment(found));
        for other in 1..nodes.len() {
            let join = RegistryChange::Join(entry(&sites, other));
            let join = Command::Deployment(DeploymentCommand::ChangeRegistry(join));
            let Answer::Registered { site, registry } = sites.order(0, join) else {
                unreachable!("a join is answered by the registry")
            };
            let enter = DeploymentCommand::Enter { site, registry };
            sites.order(other, Command::Deployment(enter));
        }
        sites
    }

    /// Makes a keyspace.
    pub(super) fn make(&mut self, spec: KeyspaceSpec) -> KeyspaceId {
        let Answer::Keyspace(made) = self.order(0, Command::CreateKeyspace(spec)) else {
            unreachable!("making a keyspace is answered by it")
        };
        made.id
    }

    /// Changes the registry.
    pub(super) fn change(&mut self, change: RegistryChange) {
        self.order(0, Command::Deployment(DeploymentCommand::ChangeRegistry(change)));
    }

    /// Each site has its share of the slots.
    pub(super) fn share_slots(&mut self, count: usize) {
        self.wait(|lab| {
            let held = |site| lab.leader(site).map_or(0, |node| lab.held_slots(node).0.len());
            (0..count).all(|site| held(site) > 0)
                && (0..count).map(held).sum::<usize>() == usize::from(Slot::COUNT)
        });
    }

    /// The id of a site.
    pub(super) fn id(&self, site: usize) -> SiteId {
        self.lab.sites[site].id.expect("it has joined")
    }

    /// Asks the leader of a site, from beside it.
    pub(super) fn ask(&mut self, site: usize, request: Request) -> Ticket {
        let node = self.lab.leader(site).expect("the site has a leader");
        self.lab.ask(node, request).expect("the node is up")
    }

    /// Waits for all of these answers; others are dropped.
    pub(super) fn answers(&mut self, tickets: &[Ticket]) -> Vec<Answer> {
        let is_there =
            |lab: &Simulation<C>, ticket| lab.answered.iter().any(|one| one.ticket == ticket);
        self.wait(|lab| tickets.iter().all(|ticket| is_there(lab, *ticket)));
        let answered = std::mem::take(&mut self.lab.answered);
        let mine = answered.into_iter().filter(|one| tickets.contains(&one.ticket));
        mine.map(|one| one.outcome.expect("nothing fails here")).collect()
    }

    pub(super) fn wait(&mut self, holds: impl Fn(&Simulation<C>) -> bool) {
        assert!(self.lab.run_until(TIMEOUT, holds), "{:?}", self.lab.failure);
    }

    fn order(&mut self, site: usize, command: Command) -> Answer {
        let ticket = self.ask(site, Request::new(Body::Write(command)));
        self.answers(&[ticket]).remove(0)
    }
}

/// A key by its number, behind a prefix.
pub(super) fn key(prefix: &str, number: impl std::fmt::Display) -> Bytes {
    Bytes::from(format!("{prefix}{number}").into_bytes())
}

/// Puts a value of so many bytes.
pub(super) fn put(keyspace: KeyspaceId, key: Bytes, bytes: usize) -> Body {
    let write = Write::Put {
        key,
        value: Bytes::from(vec![b'x'; bytes]),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    Body::Write(Command::Write { keyspace, write, request: None })
}

/// A linearizable read; of a session, what it covers.
pub(super) fn get(keyspace: KeyspaceId, key: Bytes) -> Body {
    let consistency = ReadConsistency::Linearizable;
    Body::Read { keyspace, query: Query::Get { key }, consistency }
}
