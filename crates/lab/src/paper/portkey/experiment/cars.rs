//! Whole sites with an adaptive keyspace.

use std::time::Duration;

use model::{
    Body, Bytes, ClientName, Command, GlobalCommand, Group, KeyspaceId, KeyspaceSpec, Lending,
    Placement, Request, SiteId, Slot,
};
use protocol::site::Ticket;

use crate::link::{Latency, Link};
use crate::paper::sites::{MS, Sites, get, key, put};
use crate::simulation::{Settings, Simulation};

/// Sites of a node each, whose commits take a millisecond; the node of a site has its number.
pub(super) struct Cars {
    pub(super) sites: Sites,
    keyspace: KeyspaceId,
    pub(super) client: ClientName,
}

impl Cars {
    /// `lend_to`: the sites that may borrow, by their ids; empty: all.
    pub(super) fn new(count: usize, links: Latency, lend_to: &[u32]) -> Cars {
        let settings = Settings { sync: (MS, MS), answer_at_front: true, ..Settings::default() };
        let mut sites = Sites::new(&vec![1; count], settings, move |_, _| Link::of(links), 1);
        let keyspace = sites.make(KeyspaceSpec {
            placement: Placement::Adaptive,
            lend_to: lend_to.iter().map(|id| SiteId(*id)).collect(),
            ..KeyspaceSpec::linearizable_global("cars", "car:")
        });
        sites.share_slots(count);
        sites.lab.run(3_000 * MS);
        Cars { sites, keyspace, client: ClientName::NONE }
    }

    /// Keys whose slots a site owns.
    pub(super) fn keys_of(&self, site: usize, count: usize) -> Vec<Bytes> {
        let held = self.sites.lab.held_slots(site).0;
        let is_held = |key: &Bytes| held.binary_search(&Slot::of_key(key)).is_ok();
        (0..).map(|number: u64| key("car:", number)).filter(is_held).take(count).collect()
    }

    pub(super) fn group(&self, key: &Bytes) -> Group {
        Group::of_key(self.keyspace, key)
    }

    /// Whether a site serves a group.
    pub(super) fn serves(lab: &Simulation, site: usize, group: &Group) -> bool {
        lab.serves_group(site, group).is_some()
    }

    pub(super) fn put(&mut self, site: usize, key: &Bytes, bytes: usize) -> Ticket {
        self.ask(site, put(self.keyspace, key.clone(), bytes))
    }

    /// How long a read takes.
    pub(super) fn read(&mut self, site: usize, key: &Bytes) -> Duration {
        let (began, ticket) = (self.sites.lab.now(), self.ask_read(site, key));
        self.sites.answers(&[ticket]);
        self.sites.lab.now() - began
    }

    pub(super) fn ask_read(&mut self, site: usize, key: &Bytes) -> Ticket {
        self.ask(site, get(self.keyspace, key.clone()))
    }

    pub(super) fn lend(&mut self, site: usize, step: Lending) -> Ticket {
        self.ask(site, Body::Write(Command::Global(GlobalCommand::Lending(step))))
    }

    pub(super) fn ask(&mut self, site: usize, body: Body) -> Ticket {
        self.sites.ask(site, Request { client: self.client, ..Request::new(body) })
    }
}
