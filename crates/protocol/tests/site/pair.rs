//! Two sites of one node, or three, 10 ms apart, with one global keyspace.

use lab::link::Link;
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, Body, Bytes, Cache, ClientName, Command, Condition, DeploymentCommand, DeploymentId,
    Expiry, Failure, GlobalCommand, KeyspaceId, KeyspaceSpec, NodeEntry, NodeId, Query,
    ReadConsistency, RegistryChange, Request, SiteEntry, SiteId, SiteName, Slot, SourceStep, Write,
};
use protocol::site::Status;
use std::time::Duration;

pub(super) const WEST: usize = 0;
pub(super) const EAST: usize = 1;
pub(super) const NORTH: usize = 2;
const NAMES: [&str; 3] = ["west", "east", "north"];
pub(super) const MS: Duration = Duration::from_millis(1);
/// To the other site and back.
pub(super) const WAY: Duration = Duration::from_millis(20);

pub(super) struct Sites {
    pub(super) lab: Simulation,
    pub(super) keyspace: KeyspaceId,
    /// Who asks from now on.
    pub(super) client: ClientName,
}

fn entry(site: usize) -> SiteEntry {
    SiteEntry {
        id: SiteId(0),
        name: SiteName::new(NAMES[site]).unwrap(),
        incarnation: site as u64 + 1,
        capacity_percent: 100,
        leaving: false,
        failure_domain: None,
        region: None,
        borrowed_bytes_max: None,
        nodes: vec![NodeEntry { node: NodeId(1), peer: "n1".into(), cluster: String::new() }],
    }
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) fn value(answer: Answer) -> Option<String> {
    let Answer::Value(value) = answer else { panic!("{answer:?}") };
    value.map(|found| String::from_utf8_lossy(&found.value).into_owned())
}

impl Sites {
    pub(super) fn new(cache: Cache) -> Sites {
        Sites::with(Settings::default(), cache)
    }

    pub(super) fn with(settings: Settings, cache: Cache) -> Sites {
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        Sites::of_keyspace(settings, KeyspaceSpec { cache, ..spec })
    }

    pub(super) fn of_keyspace(settings: Settings, spec: KeyspaceSpec) -> Sites {
        Sites::of_sites(2, settings, spec)
    }

    pub(super) fn of_sites(count: usize, settings: Settings, spec: KeyspaceSpec) -> Sites {
        Sites::limited(count, settings, spec, |_| None)
    }

    /// Sites of which some take only so many bytes of others' groups.
    pub(super) fn limited(
        count: usize,
        settings: Settings,
        spec: KeyspaceSpec,
        limit_bytes: impl Fn(usize) -> Option<u64>,
    ) -> Sites {
        let mut lab = Simulation::new(1, settings);
        lab.trace = Some(String::new());
        for (site, name) in NAMES.into_iter().take(count).enumerate() {
            lab.add_site(name, Link::constant(1.0));
            lab.sites[site].borrowed_bytes_max = limit_bytes(site);
            lab.add_node(site, false);
        }
        lab.set_site_links(|_, _| Link::constant(10.0));
        assert!(lab.run_until(MS * 5_000, |lab| (0..count).all(|site| lab.is_whole(site))));
        let mut sites = Sites { lab, keyspace: KeyspaceId(0), client: ClientName::NONE };
        sites.write(
            WEST,
            Command::Deployment(DeploymentCommand::Found {
                deployment: DeploymentId(7),
                site: entry(WEST),
            }),
        );
        for other in 1..count {
            let join = RegistryChange::Join(entry(other));
            let join = Command::Deployment(DeploymentCommand::ChangeRegistry(join));
            let Answer::Registered { site, registry } = sites.write(WEST, join) else {
                panic!("not registered")
            };
            let enter = DeploymentCommand::Enter { site, registry };
            sites.write(other, Command::Deployment(enter));
        }
        let Answer::Keyspace(made) = sites.write(WEST, Command::CreateKeyspace(spec)) else {
            panic!("not made")
        };
        sites.keyspace = made.id;
        assert!(sites.lab.run_until(MS * 60_000, |lab| {
            let mut held = (0..count).map(|site| lab.held_slots(site).0.len());
            held.clone().all(|held| held > 0)
                && held.by_ref().sum::<usize>() == usize::from(Slot::COUNT)
        }));
        sites.lab.run(MS * 3_000);
        sites
    }

    /// The first key of this name and a number that a site holds.
    pub(super) fn key_at(&self, site: usize, name: &str) -> String {
        let held = self.lab.held_slots(site).0;
        let keys = (0..).map(|number| format!("car:{name}{number}"));
        let mut held = keys.filter(|key| held.contains(&Slot::of_key(key.as_bytes())));
        held.next().unwrap()
    }

    /// Asks, and returns how long it took.
    pub(super) fn ask(&mut self, site: usize, body: Body) -> (Answer, Duration) {
        let before = self.lab.now();
        let (answers, took) = self.ask_all(site, vec![body]);
        let answer = answers.into_iter().next().unwrap().unwrap();
        assert!(took <= self.lab.now() - before);
        (answer, took)
    }

    /// Asks several writes that the core takes one after the other, as those of a pipeline.
    pub(super) fn write_together(&mut self, site: usize, writes: Vec<Write>) -> Vec<Answer> {
        let request = |write| {
            let command = Command::Write { keyspace: self.keyspace, write, request: None };
            Request { client: self.client, ..Request::write(command) }
        };
        let requests = writes.into_iter().map(request).collect();
        let tickets = self.lab.ask_together(site, requests);
        let is_done = |lab: &Simulation| {
            tickets.iter().all(|ticket| lab.answered.iter().any(|one| one.ticket == *ticket))
        };
        assert!(self.lab.run_until(MS * 30_000, is_done), "{:?}", self.lab.failure);
        let mut answered = std::mem::take(&mut self.lab.answered);
        let answers = tickets.iter().map(|ticket| {
            let at = answered.iter().position(|one| one.ticket == *ticket).unwrap();
            answered.remove(at).outcome.unwrap()
        });
        answers.collect()
    }

    /// Asks several things at the same moment.
    pub(super) fn ask_all(
        &mut self,
        site: usize,
        bodies: Vec<Body>,
    ) -> (Vec<Result<Answer, Failure>>, Duration) {
        let began = self.lab.now();
        let client = self.client;
        let request = |body| Request { client, ..Request::new(body) };
        let asked = bodies.into_iter().map(|body| self.lab.ask(site, request(body)).unwrap());
        let tickets: Vec<_> = asked.collect();
        let is_done = |lab: &Simulation| {
            tickets.iter().all(|ticket| lab.answered.iter().any(|one| one.ticket == *ticket))
        };
        assert!(self.lab.run_until(MS * 30_000, is_done), "{:?}", self.lab.failure);
        let mut answered = std::mem::take(&mut self.lab.answered);
        let outcomes = tickets.iter().map(|ticket| {
            let at = answered.iter().position(|one| one.ticket == *ticket).unwrap();
            answered.remove(at).outcome
        });
        (outcomes.collect(), self.lab.now() - began)
    }

    pub(super) fn write(&mut self, site: usize, command: Command) -> Answer {
        self.ask(site, Body::Write(command)).0
    }

    pub(super) fn put(&mut self, site: usize, key: &str, text: &str) {
        let write = Write::Put {
            key: bytes(key),
            value: bytes(text),
            condition: Condition::Always,
            expiry: Expiry::Never,
            return_old: false,
        };
        self.write(site, Command::Write { keyspace: self.keyspace, write, request: None });
    }

    pub(super) fn read(&self, query: Query, consistency: ReadConsistency) -> Body {
        Body::Read { keyspace: self.keyspace, query, consistency }
    }

    pub(super) fn get(&mut self, site: usize, key: &str) -> (Option<String>, Duration) {
        let read = self.read(Query::Get { key: bytes(key) }, ReadConsistency::Linearizable);
        let (answer, took) = self.ask(site, read);
        (value(answer), took)
    }

    pub(super) fn get_stale(&mut self, site: usize, key: &str) -> (Option<String>, Duration) {
        let read = self.read(Query::Get { key: bytes(key) }, ReadConsistency::Stale);
        let (answer, took) = self.ask(site, read);
        (value(answer), took)
    }

    pub(super) fn status(&self, site: usize) -> Status {
        self.lab.status(site).unwrap()
    }

    /// Hands a slot to the other site and waits until it is there.
    pub(super) fn hand_over(&mut self, slot: Slot, from: usize) {
        let (to, id) = [(EAST, SiteId(2)), (WEST, SiteId(1))][from];
        let slots = [slot].into_iter().collect();
        let step = SourceStep::Begin { slots, to: id, pinned: true };
        self.write(from, Command::Global(GlobalCommand::Source { number: 0, step }));
        let arrived = |lab: &Simulation| lab.held_slots(to).0.contains(&slot);
        assert!(self.lab.run_until(MS * 20_000, arrived));
    }
}

pub(super) fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}
