//! A site leaves that keeps the mirror of one which is lost: nothing of the mirror goes with it.

use lab::link::Link;
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, BackupChoice, Body, Bytes, Command, Condition, DeploymentCommand, DeploymentId,
    DestinationStep, Epoch, Expiry, Failure, GlobalCommand, KeyspaceId, KeyspaceSpec, Loss, MoveId,
    Promotion, Query, ReadConsistency, RegistryChange, Request, SiteId, Slot, SlotEpochs,
    SourceStep, Write,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Is lost; B keeps its mirror, and leaves then.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;
const D: usize = 3;
pub(super) const KEYS: usize = 200;

pub(super) struct Sites {
    pub(super) lab: Simulation,
    pub(super) keyspace: KeyspaceId,
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(super) fn key(number: usize) -> String {
    format!("car:{number}")
}

impl Sites {
    /// Some sites, with A's mirror at B, caught up.
    pub(super) fn new(count: usize) -> Sites {
        let mut lab = Simulation::new(1, Settings::default());
        lab.trace = Some(String::new());
        for (site, name) in ["a", "b", "c", "d"].into_iter().take(count).enumerate() {
            lab.add_site(name, Link::constant(1.0));
            lab.add_node(site, false);
        }
        lab.set_site_links(|_, _| Link::constant(10.0));
        assert!(lab.run_until(MS * 5_000, |lab| (0..count).all(|site| lab.is_whole(site))));
        let mut sites = Sites { lab, keyspace: KeyspaceId(0) };
        let site = sites.lab.entry(A).unwrap();
        sites.write(
            A,
            Command::Deployment(DeploymentCommand::Found { deployment: DeploymentId(7), site }),
        );
        for site in 1..count {
            let join = RegistryChange::Join(sites.lab.entry(site).unwrap());
            let Answer::Registered { site: id, registry } =
                sites.write(A, Command::Deployment(DeploymentCommand::ChangeRegistry(join)))
            else {
                panic!("not registered")
            };
            sites.write(site, Command::Deployment(DeploymentCommand::Enter { site: id, registry }));
        }
        let backup = RegistryChange::Backup(SiteId(1), BackupChoice::At(SiteId(2)));
        sites.write(A, Command::Deployment(DeploymentCommand::ChangeRegistry(backup)));
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        let Answer::Keyspace(made) = sites.write(A, Command::CreateKeyspace(spec)) else {
            panic!("not made")
        };
        sites.keyspace = made.id;
        let is_ready = move |lab: &Simulation| {
            let held: Vec<usize> = (0..count).map(|site| lab.held_slots(site).0.len()).collect();
            held.iter().all(|held| *held > 0)
                && held.iter().sum::<usize>() == usize::from(Slot::COUNT)
                && lab.registry(0).unwrap().registrars.set.sites().len() == 3
        };
        assert!(sites.lab.run_until(MS * 60_000, is_ready), "{:?}", sites.lab.failure);
        for number in 0..KEYS {
            sites.put(A, &key(number));
        }
        sites.lab.run(MS * 5_000);
        sites
    }

    pub(super) fn ask(&mut self, site: usize, body: Body) -> Result<Answer, Failure> {
        let request = Request::new(body);
        let ticket = self.lab.ask(site, request).unwrap();
        let is_it = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
        assert!(self.lab.run_until(MS * 60_000, is_it), "{:?}", self.lab.failure);
        let at = self.lab.answered.iter().position(|one| one.ticket == ticket).unwrap();
        self.lab.answered.remove(at).outcome
    }

    pub(super) fn write(&mut self, site: usize, command: Command) -> Answer {
        self.ask(site, Body::Write(command)).unwrap()
    }

    fn put(&mut self, site: usize, key: &str) {
        let write = Write::Put {
            key: bytes(key),
            value: bytes(key),
            condition: Condition::Always,
            expiry: Expiry::Never,
            return_old: false,
        };
        self.write(site, Command::Write { keyspace: self.keyspace, write, request: None });
    }

    /// How many of the keys are there.
    fn found(&mut self, site: usize) -> usize {
        let keyspace = self.keyspace;
        let mut is_there = |number: &usize| {
            let query = Query::Get { key: bytes(&key(*number)) };
            let consistency = ReadConsistency::Linearizable;
            let answer = self.ask(site, Body::Read { keyspace, query, consistency }).unwrap();
            matches!(answer, Answer::Value(Some(_)))
        };
        (0..KEYS).filter(|number| is_there(number)).count()
    }

    pub(super) fn lose_a(&mut self) {
        self.lab.part_site(A);
        self.lab.run(MS * 2_000);
    }

    fn is_listed(lab: &Simulation, by: usize, site: u32) -> bool {
        lab.registry(by).unwrap().site(SiteId(site)).is_some()
    }

    pub(super) fn promote(&mut self, at: usize, without: Vec<SiteId>) -> Loss {
        let body = Promotion { without, ..Promotion::of(SiteId(1)) }.into();
        match self.ask(at, body).unwrap() {
            Answer::Loss(loss) => *loss,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_leaving_backup_hands_on_what_it_has_of_a_lost_site() {
    let mut sites = Sites::new(4);
    sites.lose_a();
    sites.write(
        C,
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Leave(SiteId(2)))),
    );
    let has_left = |lab: &Simulation| !Sites::is_listed(lab, C, 2);
    assert!(sites.lab.run_until(MS * 120_000, has_left), "{:?}", sites.lab.failure);
    sites.lab.part_site(B);
    sites.lab.run(MS * 2_000);
    let loss = sites.promote(C, Vec::new());
    assert_eq!((loss.done, loss.empty), (true, 0), "{loss:?}");
    assert!(loss.holds > 0 && loss.mirrored == loss.holds);
    assert_eq!(sites.found(D), KEYS);
}

/// The source took the move back while the destination could not be reached, and its request came
/// late.
#[test]
fn a_move_that_never_goes_on_does_not_keep_a_site_from_leaving() {
    let mut sites = Sites::new(3);
    let of_a = sites.lab.held_slots(A).0[0];
    let slots = SlotEpochs::gather([(of_a, Epoch::counted(9))]);
    let begin = DestinationStep::Begin { slots, open_from: 1, pinned: false };
    let id = MoveId { from: SiteId(1), number: 1_000_000 };
    sites.write(C, Command::Global(GlobalCommand::Destination { id, step: begin }));
    sites.write(
        A,
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Leave(SiteId(3)))),
    );
    let has_left = |lab: &Simulation| !Sites::is_listed(lab, A, 3);
    assert!(sites.lab.run_until(MS * 60_000, has_left), "{:?}", sites.lab.failure);
    assert_eq!(sites.found(A), KEYS);
}

#[test]
fn another_backup_in_the_registry_takes_nothing_from_the_one_that_has_the_mirror() {
    let mut sites = Sites::new(4);
    sites.lose_a();
    let other = RegistryChange::Backup(SiteId(1), BackupChoice::At(SiteId(3)));
    sites.write(C, Command::Deployment(DeploymentCommand::ChangeRegistry(other)));
    sites.lab.run(MS * 5_000);
    let loss = sites.promote(D, Vec::new());
    assert_eq!((loss.done, loss.empty), (true, 0), "{loss:?}");
    assert_eq!(sites.found(C), KEYS);
}

#[test]
fn what_is_given_up_by_name_is_handed_to_nobody() {
    let mut sites = Sites::new(4);
    sites.lose_a();
    sites.write(
        C,
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Leave(SiteId(2)))),
    );
    let command = Box::new(Command::Global(GlobalCommand::DiscardCopies { of: SiteId(1) }));
    sites.ask(C, Body::AtSite { site: SiteId(2), command }).unwrap();
    let has_left = |lab: &Simulation| !Sites::is_listed(lab, C, 2);
    assert!(sites.lab.run_until(MS * 120_000, has_left), "{:?}", sites.lab.failure);
    let loss = sites.promote(C, Vec::new());
    assert!(loss.done && loss.empty > 0 && loss.mirrored < loss.holds, "{loss:?}");
    assert!(sites.found(D) < KEYS);
}

/// A freezes a slot of this key for C, which has not received the move; then A cannot be reached,
/// and C leaves.
fn strand(sites: &mut Sites, key: &str) -> Slot {
    let slot = Slot::of_key(key.as_bytes());
    sites.lab.part_site(C);
    let slots = [slot].into_iter().collect();
    let begin = SourceStep::Begin { slots, to: SiteId(3), pinned: true };
    let Answer::Done(number) =
        sites.write(A, Command::Global(GlobalCommand::Source { number: 0, step: begin }))
    else {
        panic!("not begun")
    };
    sites.write(
        A,
        Command::Global(GlobalCommand::Source { number: number.0, step: SourceStep::Freeze }),
    );
    sites.lab.part_site(A);
    sites.lab.rejoin_site(C);
    sites.write(
        B,
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Leave(SiteId(3)))),
    );
    let has_left = |lab: &Simulation| !Sites::is_listed(lab, B, 3);
    assert!(sites.lab.run_until(MS * 180_000, has_left), "{:?}", sites.lab.failure);
    slot
}

fn key_of_a(sites: &Sites) -> String {
    let held = sites.lab.held_slots(A).0;
    (0..KEYS).map(key).find(|key| held.contains(&Slot::of_key(key.as_bytes()))).unwrap()
}

#[test]
fn what_is_frozen_for_a_site_that_has_left_is_served_again() {
    let mut sites = Sites::new(4);
    let key = key_of_a(&sites);
    let slot = strand(&mut sites, &key);
    // A needs the inventories of all others.
    sites.lab.part_site(D);
    sites.lab.rejoin_site(A);
    sites.lab.run(MS * 20_000);
    assert!(!Sites::is_listed(&sites.lab, A, 3));
    assert!(!sites.lab.held_slots(A).0.contains(&slot), "d may own it");
    sites.lab.rejoin_site(D);
    let is_held = |lab: &Simulation| lab.held_slots(A).0.contains(&slot);
    assert!(sites.lab.run_until(MS * 20_000, is_held), "{:?}", sites.lab.failure);
    sites.lab.run(MS * 5_000);
    assert_eq!(sites.found(D), KEYS);
}

#[test]
fn what_the_site_that_left_had_handed_on_is_not_served_again() {
    let mut sites = Sites::new(4);
    let key = key_of_a(&sites);
    let slot = strand(&mut sites, &key);
    // As if C had taken it, and given it to B, which D has learned of.
    let slots = SlotEpochs::gather([(slot, Epoch::counted(20))]);
    sites.write(D, Command::Global(GlobalCommand::Register { owner: SiteId(2), slots }));
    sites.lab.rejoin_site(A);
    sites.lab.run(MS * 30_000);
    assert!(!Sites::is_listed(&sites.lab, A, 3));
    assert!(!sites.lab.held_slots(A).0.contains(&slot), "b owns it");
}

#[test]
fn what_was_lost_with_a_site_that_was_removed_is_served_again_where_it_came_from() {
    let mut sites = Sites::new(4);
    let key = key_of_a(&sites);
    let slot = strand(&mut sites, &key);
    // As if C had taken it, and been removed after a failover that could not ask A.
    let slots = SlotEpochs::gather([(slot, Epoch::counted(20))]);
    sites.write(D, Command::Global(GlobalCommand::Register { owner: SiteId(3), slots }));
    sites.lab.rejoin_site(A);
    let is_held = |lab: &Simulation| lab.held_slots(A).0.contains(&slot);
    assert!(sites.lab.run_until(MS * 30_000, is_held), "{:?}", sites.lab.failure);
    sites.lab.run(MS * 5_000);
    assert_eq!(sites.found(D), KEYS);
}

#[test]
fn the_job_shows_whose_copies_only_the_leaving_site_has() {
    let mut sites = Sites::new(3);
    let why = |lab: &Simulation| {
        let jobs = lab.status(B).unwrap().jobs;
        jobs.into_iter().find(|job| job.name == model::JobName::Leave).unwrap().last_error
    };
    sites.lose_a();
    let leave = RegistryChange::Leave(SiteId(2));
    sites.write(C, Command::Deployment(DeploymentCommand::ChangeRegistry(leave)));
    // What B has given to C, and C's mirror: C has them itself, and its next backup would be A.
    let waits = |lab: &Simulation| why(lab).contains("slots of ");
    assert!(sites.lab.run_until(MS * 240_000, waits), "{}", why(&sites.lab));
    assert!(why(&sites.lab).ends_with("and no other site can take it"), "{}", why(&sites.lab));
    sites.lab.part_site(C);
    let is_alone = |lab: &Simulation| why(lab) == "waits: no other site can be reached";
    assert!(sites.lab.run_until(MS * 60_000, is_alone), "{}", why(&sites.lab));
}
