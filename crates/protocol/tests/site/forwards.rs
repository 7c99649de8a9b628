//! A node that lags behind its own site's log sends requests to a site that was taken for lost.

use lab::link::Link;
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, Body, Bytes, Command, Condition, DeploymentCommand, DeploymentId, Expiry, Failure,
    GlobalCommand, Group, JobName, KeyspaceId, KeyspaceSpec, Lending, LoanPart, Placement,
    Promotion, Query, ReadConsistency, RegistryChange, Request, SiteId, Slot, SlotSet, SourceStep,
    Write,
};
use protocol::bugs::{Bug, Planted};
use protocol::site::Ticket;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Of one node; it is lost.
const WEST: usize = 0;
/// Of three nodes, one of which is cut off from the others.
const EAST: usize = 1;
/// Of one node.
const NORTH: usize = 2;
const NODES: [usize; 3] = [1, 3, 1];
/// The nodes of the sites of one node.
const AT_WEST: usize = 0;
const AT_NORTH: usize = 4;

struct Sites {
    lab: Simulation,
    keyspace: KeyspaceId,
    key: String,
    /// The node of east that is cut off from the others.
    alone: usize,
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl Sites {
    /// Until the follower has read a key of west's, and is cut off from its site.
    fn new(planted: Planted) -> Sites {
        Sites::with(planted, Placement::Off)
    }

    fn with(planted: Planted, placement: Placement) -> Sites {
        let mut lab = Simulation::new(1, Settings { planted, ..Settings::default() });
        lab.trace = Some(String::new());
        for (site, name) in ["west", "east", "north"].into_iter().enumerate() {
            lab.add_site(name, Link::constant(1.0));
            for _ in 0..NODES[site] {
                lab.add_node(site, false);
            }
        }
        lab.set_site_links(|_, _| Link::constant(10.0));
        assert!(lab.run_until(MS * 20_000, |lab| (0..3).all(|site| lab.is_whole(site))));
        let (keyspace, key) = (KeyspaceId(0), String::new());
        let mut sites = Sites { lab, keyspace, key, alone: 0 };
        let west = sites.lab.entry(WEST).unwrap();
        let found = Command::Deployment(DeploymentCommand::Found {
            deployment: DeploymentId(7),
            site: west,
        });
        sites.ask(AT_WEST, Body::Write(found)).unwrap();
        for (site, node) in [(EAST, 1), (NORTH, AT_NORTH)] {
            let join = RegistryChange::Join(sites.lab.entry(site).unwrap());
            let join = Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(join)));
            let Answer::Registered { site: id, registry } = sites.ask(AT_WEST, join).unwrap()
            else {
                panic!("not registered")
            };
            sites
                .ask(
                    node,
                    Body::Write(Command::Deployment(DeploymentCommand::Enter {
                        site: id,
                        registry,
                    })),
                )
                .unwrap();
        }
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let spec = KeyspaceSpec { placement, ..spec };
        let made = sites.ask(AT_WEST, Body::Write(Command::CreateKeyspace(spec))).unwrap();
        let Answer::Keyspace(made) = made else { panic!("not made") };
        sites.keyspace = made.id;
        let is_ready = |lab: &Simulation| {
            let held = |node| lab.held_slots(node).0.len();
            let all = [AT_WEST, 1, AT_NORTH].map(held);
            all.iter().all(|count| *count > 0)
                && all.iter().sum::<usize>() == usize::from(Slot::COUNT)
        };
        assert!(sites.lab.run_until(MS * 60_000, is_ready), "{:?}", sites.lab.failure);
        sites.lab.run(MS * 5_000);
        let held = sites.lab.held_slots(AT_WEST).0;
        let keys = (0..).map(|number| format!("car:{number}"));
        sites.key = { keys }.find(|key| held.contains(&Slot::of_key(key.as_bytes()))).unwrap();
        sites.put(AT_WEST, "old").unwrap();
        let leader = sites.lab.leader(EAST).unwrap();
        sites.alone = (1..4).find(|node| *node != leader).unwrap();
        assert_eq!(sites.get(sites.alone), Ok(Some("old".to_owned())));
        sites.lab.run(MS * 3_000);
        sites
    }

    fn send(&mut self, node: usize, body: Body) -> Ticket {
        self.lab.ask(node, Request::new(body)).unwrap()
    }

    /// What has come of a request, within a time.
    fn outcome(&mut self, ticket: Ticket, within: Duration) -> Option<Result<Answer, Failure>> {
        let is_it = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
        if !self.lab.run_until(within, is_it) {
            return None;
        }
        let at = self.lab.answered.iter().position(|one| one.ticket == ticket)?;
        Some(self.lab.answered.remove(at).outcome)
    }

    fn ask(&mut self, node: usize, body: Body) -> Result<Answer, Failure> {
        let ticket = self.send(node, body);
        self.outcome(ticket, MS * 30_000).expect("an answer")
    }

    fn write(&self, text: &str) -> Body {
        let write = Write::Put {
            key: bytes(&self.key),
            value: bytes(text),
            condition: Condition::Always,
            expiry: Expiry::Never,
            return_old: false,
        };
        Body::Write(Command::Write { keyspace: self.keyspace, write, request: None })
    }

    fn read(&self) -> Body {
        let query = Query::Get { key: bytes(&self.key) };
        let consistency = ReadConsistency::Linearizable;
        Body::Read { keyspace: self.keyspace, query, consistency }
    }

    fn put(&mut self, node: usize, text: &str) -> Result<Answer, Failure> {
        self.ask(node, self.write(text))
    }

    fn get(&mut self, node: usize) -> Result<Option<String>, Failure> {
        self.ask(node, self.read()).map(value)
    }

    /// West is lost, others take over from it, and the key is written anew; the follower, which has
    /// received nothing of all that, reaches west again.
    fn fail_over(&mut self) {
        self.lab.isolate(EAST, self.alone as u64);
        self.lab.part_site(WEST);
        self.lab.run(MS * 1_500);
        let body = Promotion::of(SiteId(1)).into();
        let done = self.ask(AT_NORTH, body);
        assert!(matches!(&done, Ok(Answer::Loss(loss)) if loss.done), "{done:?}");
        self.put(AT_NORTH, "new").unwrap();
        assert_eq!(self.get(AT_NORTH), Ok(Some("new".to_owned())));
        self.lab.rejoin_site(WEST);
    }

    /// North gets the slot of the key and lends its group to west, of which the follower learns
    /// nothing: it takes west for the slot's owner.
    fn lend(&mut self) {
        self.lab.isolate(EAST, self.alone as u64);
        for node in [AT_WEST, AT_NORTH] {
            self.ask(node, Body::SwitchJob { job: JobName::Place, paused: true }).unwrap();
        }
        let slot = Slot::of_key(self.key.as_bytes());
        let slots: SlotSet = [slot].into_iter().collect();
        let step = SourceStep::Begin { slots, to: SiteId(3), pinned: true };
        let begin = GlobalCommand::Source { number: 0, step };
        self.ask(AT_WEST, Body::Write(Command::Global(begin))).unwrap();
        let has_moved = |lab: &Simulation| lab.held_slots(AT_NORTH).0.contains(&slot);
        assert!(self.lab.run_until(MS * 10_000, has_moved));
        let group = Group::of_key(self.keyspace, &bytes(&self.key));
        let lend = Lending::Lend { to: SiteId(1), groups: vec![group.clone()] };
        self.ask(AT_NORTH, Body::Write(Command::Global(GlobalCommand::Lending(lend)))).unwrap();
        let is_lent = |lab: &Simulation| {
            let part = lab.part(AT_WEST, &group);
            part.is_some_and(|part| part.borrowed.part == LoanPart::Held)
        };
        assert!(self.lab.run_until(MS * 5_000, is_lent));
    }

    /// The follower belongs to its site again.
    fn mend(&mut self) {
        for other in 1..=3 {
            if other != self.alone as u64 {
                self.lab.mend(EAST, self.alone as u64, other);
            }
        }
    }
}

fn value(answer: Answer) -> Option<String> {
    let Answer::Value(value) = answer else { panic!("{answer:?}") };
    value.map(|found| String::from_utf8_lossy(&found.value).into_owned())
}

#[test]
fn a_node_that_lags_hands_out_no_answer_of_a_site_that_was_lost() {
    let mut sites = Sites::new(Planted::none());
    sites.fail_over();
    let read = sites.send(sites.alone, sites.read());
    let write = sites.send(sites.alone, sites.write("late"));
    assert_eq!(sites.outcome(read, MS * 200), None, "{:?}", sites.lab.trace);
    sites.mend();
    let ticket = sites.send(sites.alone, sites.read());
    let came = sites.outcome(write, MS * 20_000).expect("an answer");
    assert!(matches!(came, Err(Failure::Unknown { .. })), "{came:?}");
    let came = sites.outcome(ticket, MS * 20_000).expect("an answer");
    assert_eq!(came.map(value), Ok(Some("new".to_owned())));
    sites.put(sites.alone, "later").unwrap();
    assert_eq!(sites.get(AT_NORTH), Ok(Some("later".to_owned())));
    assert_eq!(sites.get(AT_WEST), Ok(Some("later".to_owned())));
}

/// It takes the borrower of a group for the owner of its slot.
#[test]
fn a_node_that_lags_hands_out_no_answer_of_a_borrower_that_was_lost() {
    let mut sites = Sites::with(Planted::none(), Placement::Adaptive);
    sites.lend();
    sites.fail_over();
    let read = sites.send(sites.alone, sites.read());
    let write = sites.send(sites.alone, sites.write("late"));
    assert_eq!(sites.outcome(read, MS * 200), None, "{:?}", sites.lab.trace);
    sites.mend();
    let came = sites.outcome(read, MS * 20_000).expect("an answer");
    assert_eq!(came.map(value), Ok(Some("new".to_owned())));
    let came = sites.outcome(write, MS * 20_000).expect("an answer");
    assert!(matches!(came, Err(Failure::Unknown { .. })), "{came:?}");
    assert_eq!(sites.get(sites.alone), Ok(Some("new".to_owned())));
}

#[test]
fn without_the_read_index_an_overwritten_value_is_read() {
    let mut sites = Sites::new(Planted::of(Bug::ForwardUnindexed));
    sites.fail_over();
    let read = sites.send(sites.alone, sites.read());
    let came = sites.outcome(read, MS * 200).expect("an answer");
    assert_eq!(came.map(value), Ok(Some("old".to_owned())), "the bug is found");
}

#[test]
fn an_answer_takes_no_longer_where_all_is_well() {
    let mut sites = Sites::new(Planted::none());
    for node in 1..4 {
        let ticket = sites.send(node, sites.read());
        // To west and back; the index comes meanwhile, from the leader beside it.
        assert_eq!(
            sites.outcome(ticket, MS * 20).map(|one| one.map(value)).unwrap().unwrap(),
            Some("old".to_owned())
        );
    }
}
