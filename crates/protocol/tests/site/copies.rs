//! Copies of remote keys between two sites of one node, 10 ms apart.

use lab::link::Link;
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, Body, Bytes, Cache, Command, Condition, DeploymentId, Expiry, Failure, Giving,
    KeyspaceId, KeyspaceSpec, NodeEntry, NodeId, Query, ReadConsistency, RegistryChange, Request,
    SiteEntry, SiteId, SiteName, Slot, Write,
};
use protocol::site::Status;
use std::time::Duration;

const WEST: usize = 0;
const EAST: usize = 1;
const MS: Duration = Duration::from_millis(1);
/// To the other site and back.
const WAY: Duration = Duration::from_millis(20);

struct Sites {
    lab: Simulation,
    keyspace: KeyspaceId,
}

fn entry(site: usize) -> SiteEntry {
    SiteEntry {
        id: SiteId(0),
        name: SiteName::new(["west", "east"][site]).unwrap(),
        incarnation: site as u64 + 1,
        capacity_percent: 100,
        leaving: false,
        nodes: vec![NodeEntry { node: NodeId(1), peer: "n1".into(), cluster: String::new() }],
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn value(answer: Answer) -> Option<String> {
    let Answer::Value(value) = answer else { panic!("{answer:?}") };
    value.map(|found| String::from_utf8_lossy(&found.value).into_owned())
}

impl Sites {
    fn new(cache: Cache) -> Sites {
        let mut lab = Simulation::new(1, Settings::default());
        lab.trace = Some(String::new());
        for (site, name) in ["west", "east"].into_iter().enumerate() {
            lab.add_site(name, Link::constant(1.0));
            lab.add_node(site, false);
        }
        lab.set_site_links(|_, _| Link::constant(10.0));
        assert!(lab.run_until(MS * 5_000, |lab| lab.is_whole(WEST) && lab.is_whole(EAST)));
        let mut sites = Sites { lab, keyspace: KeyspaceId(0) };
        sites.write(WEST, Command::Found { deployment: DeploymentId(7), site: entry(WEST) });
        let join = Command::ChangeRegistry(RegistryChange::Join(entry(EAST)));
        let Answer::Registered { site, registry } = sites.write(WEST, join) else {
            panic!("not registered")
        };
        sites.write(EAST, Command::Enter { site, registry });
        let spec = KeyspaceSpec { cache, ..KeyspaceSpec::linearizable_global("cars", "car:") };
        let Answer::Keyspace(made) = sites.write(WEST, Command::CreateKeyspace(spec)) else {
            panic!("not made")
        };
        sites.keyspace = made.id;
        assert!(sites.lab.run_until(MS * 60_000, |lab| {
            let held = |site: usize| lab.held_slots(site).0.len();
            held(WEST) > 0 && held(WEST) + held(EAST) == usize::from(Slot::COUNT)
        }));
        sites.lab.run(MS * 3_000);
        sites
    }

    /// The first key of this name and a number that a site holds.
    fn key_at(&self, site: usize, name: &str) -> String {
        let held = self.lab.held_slots(site).0;
        let keys = (0..).map(|number| format!("car:{name}{number}"));
        let mut held = keys.filter(|key| held.contains(&Slot::of_key(key.as_bytes())));
        held.next().unwrap()
    }

    /// Asks, and says how long it took.
    fn ask(&mut self, site: usize, body: Body) -> (Answer, Duration) {
        let before = self.lab.now();
        let (answers, took) = self.ask_all(site, vec![body]);
        let answer = answers.into_iter().next().unwrap().unwrap();
        assert!(took <= self.lab.now() - before);
        (answer, took)
    }

    /// Asks several things at the same moment.
    fn ask_all(
        &mut self,
        site: usize,
        bodies: Vec<Body>,
    ) -> (Vec<Result<Answer, Failure>>, Duration) {
        let began = self.lab.now();
        let request = |body| Request { body, deadline_ms: None, redirect: false };
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

    fn write(&mut self, site: usize, command: Command) -> Answer {
        self.ask(site, Body::Write(command)).0
    }

    fn put(&mut self, site: usize, key: &str, text: &str) {
        let write = Write::Put {
            key: bytes(key),
            value: bytes(text),
            condition: Condition::Always,
            expiry: Expiry::Never,
            return_old: false,
        };
        self.write(site, Command::Write { keyspace: self.keyspace, write, request: None });
    }

    fn read(&self, query: Query, consistency: ReadConsistency) -> Body {
        Body::Read { keyspace: self.keyspace, query, consistency }
    }

    fn get(&mut self, site: usize, key: &str) -> (Option<String>, Duration) {
        let read = self.read(Query::Get { key: bytes(key) }, ReadConsistency::Linearizable);
        let (answer, took) = self.ask(site, read);
        (value(answer), took)
    }

    fn get_stale(&mut self, site: usize, key: &str) -> (Option<String>, Duration) {
        let read = self.read(Query::Get { key: bytes(key) }, ReadConsistency::Stale);
        let (answer, took) = self.ask(site, read);
        (value(answer), took)
    }

    fn status(&self, site: usize) -> Status {
        self.lab.status(site).unwrap()
    }

    /// Stale reads from copies, reads that were found unchanged, and others.
    fn counted(&self, site: usize) -> (u64, u64, u64) {
        let copies = self.status(site).copies;
        (copies.hits, copies.unchanged, copies.misses)
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn the_holder_says_whether_a_copy_is_still_right() {
    let mut sites = Sites::new(Cache::of("validated", None, None).unwrap());
    let key = sites.key_at(WEST, "a");
    let long = "x".repeat(10_000);
    sites.put(WEST, &key, &long);
    assert_eq!(sites.get(EAST, &key), (Some(long.clone()), WAY));
    let from = sites.lab.trace.as_ref().unwrap().len();
    // It goes to the holder all the same, which says a word.
    assert_eq!(sites.get(EAST, &key), (Some(long.clone()), WAY));
    let trace = &sites.lab.trace.as_ref().unwrap()[from..];
    assert!(trace.contains("Answered unchanged"), "{trace}");
    assert_eq!(sites.counted(EAST), (0, 1, 1));
    // Stale reads are not answered from it in this keyspace, but found unchanged too.
    assert_eq!(sites.get_stale(EAST, &key), (Some(long), WAY));
    assert_eq!(sites.counted(EAST), (0, 2, 1));
    // Written at the holder, at the asker, deleted: always what is there.
    sites.put(WEST, &key, "second");
    assert_eq!(sites.get(EAST, &key).0, some("second"));
    sites.put(EAST, &key, "third");
    assert_eq!(sites.get(EAST, &key).0, some("third"));
    let write = Write::Delete { keys: vec![bytes(&key)] };
    let delete = Command::Write { keyspace: sites.keyspace, write, request: None };
    sites.write(WEST, delete);
    assert_eq!(sites.get(EAST, &key).0, None);
    assert_eq!(sites.counted(EAST), (0, 2, 4));
    // That a key is absent is known, too, until it is there.
    assert_eq!(sites.get(EAST, &key).0, None);
    assert_eq!(sites.counted(EAST), (0, 3, 4));
    sites.put(WEST, &key, "fourth");
    assert_eq!(sites.get(EAST, &key).0, some("fourth"));
    // Nobody copies what is here.
    assert_eq!(sites.get(WEST, &key).0, some("fourth"));
    assert_eq!((sites.counted(WEST), sites.status(EAST).copies.copies), ((0, 0, 0), 1));
}

#[test]
fn a_young_copy_answers_stale_reads_without_asking() {
    let mut sites = Sites::new(Cache::of("stale", None, Some(500)).unwrap());
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "first");
    assert_eq!(sites.get_stale(EAST, &key), (some("first"), WAY));
    assert_eq!(sites.get_stale(EAST, &key), (some("first"), Duration::ZERO));
    // Written elsewhere: seen at once by whoever must, by others when the copy is old.
    sites.put(WEST, &key, "second");
    assert_eq!(sites.get_stale(EAST, &key), (some("first"), Duration::ZERO));
    assert_eq!(sites.get(EAST, &key), (some("second"), WAY));
    assert_eq!(sites.get_stale(EAST, &key), (some("second"), Duration::ZERO));
    sites.put(WEST, &key, "third");
    sites.lab.run(MS * 600);
    assert_eq!(sites.get_stale(EAST, &key), (some("third"), WAY));
    // Written here: seen here.
    sites.put(EAST, &key, "fourth");
    assert_eq!(sites.get_stale(EAST, &key), (some("fourth"), WAY));
    assert_eq!(sites.counted(EAST).0, 3);
    // The other site is out of reach: a young copy still answers.
    sites.lab.part_sites(WEST, EAST);
    assert_eq!(sites.get_stale(EAST, &key), (some("fourth"), Duration::ZERO));
}

#[test]
fn a_slot_that_moves_makes_everything_miss() {
    let mut sites = Sites::new(Cache::of("validated", None, None).unwrap());
    let key = sites.key_at(WEST, "a");
    sites.put(WEST, &key, "here");
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    let slot = Slot::of_key(key.as_bytes());
    let slots = || [slot].into_iter().collect();
    let (west, east) = (SiteId(1), SiteId(2));
    for (from, to, number) in [(WEST, east, EAST), (EAST, west, WEST)] {
        let step = Giving::Begin { slots: slots(), to, pinned: true };
        sites.write(from, Command::Giving { number: 0, step });
        let arrived = |lab: &Simulation| lab.held_slots(number).0.contains(&slot);
        assert!(sites.lab.run_until(MS * 20_000, arrived));
    }
    // Held here in between, the copy went.
    assert_eq!(sites.status(EAST).copies.copies, 0);
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    assert_eq!(sites.counted(EAST), (0, 0, 2));
    assert_eq!(sites.get(EAST, &key).0, some("here"));
    assert_eq!(sites.counted(EAST), (0, 1, 2));
}

#[test]
fn a_copy_that_went_meanwhile_is_asked_for_again() {
    let mut sites = Sites::new(Cache::of("validated", Some(4 << 10), None).unwrap());
    let (a, b) = (sites.key_at(WEST, "a"), sites.key_at(WEST, "b"));
    let long = "x".repeat(2_500);
    sites.put(WEST, &a, &long);
    sites.put(WEST, &b, &long);
    assert_eq!(sites.get(EAST, &a).0, Some(long.clone()));
    // The other one's value comes first, and there is no room for both.
    let read =
        |key: &str| sites.read(Query::Get { key: bytes(key) }, ReadConsistency::Linearizable);
    let both = vec![read(&b), read(&a)];
    let (answers, took) = sites.ask_all(EAST, both);
    for answer in answers {
        assert_eq!(value(answer.unwrap()), Some(long.clone()));
    }
    assert_eq!(took, 2 * WAY);
    assert_eq!(sites.counted(EAST), (0, 0, 3));
    assert_eq!(sites.status(EAST).copies.evictions, 2);
}
