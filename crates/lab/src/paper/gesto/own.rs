//! Portolan's own causal keys as one more store: whole sites, of one node each, over the same
//! delays.
//!
//! Cores, logs and jobs are the ones that `serve` runs. A commit takes [`COMMIT`] at the site of a
//! write, at the root, and at the site that imports, where the models' stores have no disk. A read,
//! a write, a move, and to order, to import and to apply a write of another site take what the
//! models' processors take for it ([`Costs`](crate::baselines::Costs)), but nothing waits for a
//! processor: so there is no rate to compare, and no processor time.
//!
//! A keyspace stands for the keys that are everywhere, and one for each group of sites that hold
//! the others. Two sites have to hold all causal keys, so the one nearest to the root holds those
//! of other groups, too; nothing is measured of that. It is the standby where there is one: then the
//! root releases a place once that has it. A client has a session; going to another site, it asks
//! there for what it has seen and written.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{
    Bytes, CausalToken, KeyspaceId, KeyspaceSpec, Miss, Position, RegistryChange, Request,
    Revision, SessionToken, SiteId, StandbyChoice, StandbyRule,
};
use protocol::site::Ticket;

use crate::baselines::{Answer, Ask, Layout, Spent, Store, Version, Visible};
use crate::link::Link;
use crate::paper::sites::{MS, Sites, get, key, put};
use crate::simulation::{Settings, Stepped};

/// How long a commit takes.
pub const COMMIT: Duration = Duration::from_micros(350);
const VALUE_BYTES: usize = 100;

/// What happens between clients and sites.
enum Call {
    /// A request is there.
    Arrive(usize),
    /// Its answer is there.
    Answer(usize),
}

struct Client {
    token: SessionToken,
    site: usize,
    asked: Ask,
    asked_us: u64,
}

/// A write, for whom it matters when it becomes visible.
#[derive(Clone, Copy)]
struct Issued {
    site: usize,
    key: u32,
    at_us: u64,
}

/// See the module.
pub struct Own {
    sites: Sites<Call>,
    layout: Layout,
    began: Duration,
    /// By group of sites; the last one is everywhere.
    keyspaces: Vec<KeyspaceId>,
    /// By place: the site of the simulation.
    at: Vec<usize>,
    clients: Vec<Client>,
    waiting: BTreeMap<Ticket, usize>,
    issued: BTreeMap<(SiteId, Revision), Issued>,
    /// Writes in their order, as far as it was looked at.
    placed: Vec<(Position, Option<Issued>)>,
    /// How many of these each site has imported.
    imported: Vec<usize>,
    visible: Vec<Visible>,
}

impl Own {
    /// At rest; with a standby that is in sync, or with none.
    ///
    /// # Panics
    /// If the sites do not come up.
    #[must_use]
    pub fn new(layout: &Layout, has_standby: bool) -> Own {
        let settings = Settings {
            sync: (COMMIT, COMMIT),
            answer_at_front: true,
            notes_order: true,
            ..Settings::default()
        };
        // The first site is the root: it makes the keyspaces.
        let places = places(layout);
        let (delay_us, of) = (layout.delay_us.clone(), places.clone());
        let links = move |one: usize, other: usize| {
            Link::constant(delay_us[of[one]][of[other]] as f64 / 1_000.0)
        };
        let mut sites = Sites::new(&vec![1; layout.sites()], settings, links, 1);
        let mut at = vec![0; layout.sites()];
        places.iter().enumerate().for_each(|(site, place)| at[*place] = site);
        let beside = beside_root(layout);
        let keyspaces = (0..=layout.groups.len()).map(|group| {
            let (name, prefix) = (format!("g{group}"), format!("{group}:"));
            let held = layout.groups.get(group).map(|held| held.iter().chain([&beside]));
            let mut held: Vec<SiteId> =
                held.into_iter().flatten().map(|place| sites.id(at[*place])).collect();
            held.sort_unstable();
            held.dedup();
            let spec = KeyspaceSpec::causal_region(name, prefix);
            sites.make(KeyspaceSpec { sites: held, miss: Miss::Refuse, ..spec })
        });
        let keyspaces = keyspaces.collect();
        if has_standby {
            let choice = StandbyChoice::At(sites.id(at[beside]));
            sites.change(RegistryChange::SetStandby(StandbyRule { choice, by_hand: false }));
        }
        sites.lab.run(5_000 * MS);
        let client = |home: &usize| Client {
            token: SessionToken::new(Bytes::new()).expect("it is short"),
            site: *home,
            asked: Ask::Move(*home),
            asked_us: 0,
        };
        Own {
            began: sites.lab.now(),
            clients: layout.homes.iter().map(client).collect(),
            imported: vec![0; layout.sites()],
            layout: layout.clone(),
            sites,
            keyspaces,
            at,
            waiting: BTreeMap::new(),
            issued: BTreeMap::new(),
            placed: Vec::new(),
            visible: Vec::new(),
        }
    }

    fn now_us(&self) -> u64 {
        (self.sites.lab.now() - self.began).as_micros() as u64
    }

    fn keyspace(&self, number: u32) -> (KeyspaceId, Bytes) {
        let group = self.layout.group(number).unwrap_or(self.layout.groups.len());
        (self.keyspaces[group], key(&format!("{group}:"), number))
    }

    fn arrive(&mut self, client: usize) {
        let Client { asked, site, token, .. } = &self.clients[client];
        let read = |number| {
            let (keyspace, key) = self.keyspace(number);
            get(keyspace, key)
        };
        let body = match *asked {
            Ask::Read(number) => read(number),
            // Of a key that is everywhere, so that only the session decides.
            Ask::Move(_) => read(0),
            Ask::Write(number) => {
                let (keyspace, key) = self.keyspace(number);
                put(keyspace, key, VALUE_BYTES)
            }
        };
        let request = Request { token: Some(token.clone()), ..Request::new(body) };
        let site = self.at[*site];
        let ticket = self.sites.ask(site, request);
        self.waiting.insert(ticket, client);
        self.look();
    }

    /// Sends answers on their way, and notes what has become visible.
    fn look(&mut self) {
        for answered in std::mem::take(&mut self.sites.lab.answered) {
            let Some(client) = self.waiting.remove(&answered.ticket) else { continue };
            let answer = answered.outcome;
            assert!(answer.is_ok(), "{answer:?}");
            let Client { token, site, asked, asked_us } = &mut self.clients[client];
            *token = answered.token.expect("a session has a token");
            let known = CausalToken::decode(token.bytes());
            if let (Ask::Write(key), Some(known)) = (*asked, known)
                && let Some(written) = known.written
            {
                let issued = Issued { site: *site, key, at_us: *asked_us };
                self.issued.insert(written, issued);
            }
            let way_us = self.layout.client_us(client, *site);
            self.sites.lab.call_after(Duration::from_micros(way_us), Call::Answer(client));
        }
        for (position, site, write) in &self.sites.lab.ordered()[self.placed.len()..] {
            self.placed.push((*position, self.issued.remove(&(*site, write.revision))));
        }
        for place in 0..self.at.len() {
            self.look_at(place);
        }
    }

    fn look_at(&mut self, place: usize) {
        let costs = self.layout.costs;
        let work_us = costs.order_us + costs.import_us + costs.apply_us;
        let node = self.sites.lab.sites[self.at[place]].nodes[0];
        let now_us = self.now_us() + work_us as u64;
        let Some(standing) = self.sites.lab.region_standing(node) else { return };
        while let Some((position, issued)) = self.placed.get(self.imported[place])
            && *position <= standing.applied
        {
            self.imported[place] += 1;
            if let Some(Issued { site, key, at_us }) = *issued
                && site != place
                && self.layout.holds(place, key)
            {
                let (issued_us, visible_us) = (at_us, now_us);
                self.visible.push(Visible { from: site, at: place, issued_us, visible_us });
            }
        }
    }
}

/// The place of the site that holds all beside the root: the nearest one.
pub(super) fn beside_root(layout: &Layout) -> usize {
    let to_root_us = |place: &usize| layout.delay_us[*place][layout.root];
    let others = (0..layout.sites()).filter(|place| *place != layout.root);
    others.min_by_key(to_root_us).unwrap_or(layout.root)
}

/// The places in the order in which their sites join: the root first.
fn places(layout: &Layout) -> Vec<usize> {
    let others = (0..layout.sites()).filter(|place| *place != layout.root);
    std::iter::once(layout.root).chain(others).collect()
}

impl Store for Own {
    fn ask(&mut self, at_us: u64, client: usize, ask: Ask) {
        let Layout { costs, .. } = self.layout;
        let cost_us = match ask {
            Ask::Read(_) => costs.read_us,
            Ask::Write(_) => costs.write_us,
            Ask::Move(_) => costs.attach_us,
        };
        let one = &mut self.clients[client];
        (one.asked, one.asked_us) = (ask, at_us);
        if let Ask::Move(site) = ask {
            one.site = site;
        }
        let after_us = at_us.saturating_sub(self.now_us())
            + self.layout.client_us(client, self.clients[client].site)
            + cost_us as u64;
        self.sites.lab.call_after(Duration::from_micros(after_us), Call::Arrive(client));
    }

    fn advance(&mut self, until_us: u64) -> Option<Answer> {
        let until = self.began + Duration::from_micros(until_us);
        loop {
            match self.sites.lab.step(until) {
                Stepped::Call(Call::Arrive(client)) => self.arrive(client),
                Stepped::Call(Call::Answer(client)) => {
                    let (at_us, version) = (self.now_us(), Version::default());
                    return Some(Answer { at_us, client, version });
                }
                Stepped::Something => self.look(),
                Stepped::Nothing => {
                    assert_eq!(self.sites.lab.failure, None);
                    return None;
                }
            }
        }
    }

    /// Nothing of it is counted.
    fn spent(&self) -> Spent {
        Spent::default()
    }

    fn take_visible(&mut self) -> Vec<Visible> {
        std::mem::take(&mut self.visible)
    }

    /// Not known: the worlds of the lab judge what these cores do.
    fn order(&self) -> Vec<Version> {
        Vec::new()
    }

    /// The same.
    fn shows(&self, _: usize, _: u32) -> Version {
        Version::default()
    }
}
