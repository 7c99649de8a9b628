//! A site's part in holding the registry, and registries of before there were registrars.

use super::*;
use model::{
    Ballot, DeploymentId, KeyspaceSpec, RegistrarAnswer, RegistrarSet, RegistrarStep, Registrars,
    Registry, RegistryChange, Term,
};
use std::sync::Arc;
use storage::state::State as _;

const A: SiteId = SiteId(1);
const B: SiteId = SiteId(2);

fn ballot(round: u64, site: u32) -> Ballot {
    Ballot { round, site: SiteId(site), ..Ballot::default() }
}

impl Site {
    fn copy(&self) -> Arc<Registry> {
        self.machine.registry().unwrap().clone()
    }

    fn step(&mut self, step: RegistrarStep) -> RegistrarAnswer {
        match self.run(Command::Deployment(DeploymentCommand::Registrar(step))).unwrap() {
            Answer::Registrar(answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

fn founded() -> Site {
    let mut a = Site::new();
    a.run(Command::Deployment(DeploymentCommand::Found {
        deployment: DeploymentId(7),
        site: entry("a"),
    }))
    .unwrap();
    a
}

/// A site of a version without registrars, whose registry has seen some changes.
fn of_before() -> Site {
    let mut a = founded();
    let mut registry = (*a.copy()).clone();
    registry.changes = 41;
    registry.version = Registry::version_of_before(41);
    registry.registrars = Registrars::default();
    let mut row = vec![1, 1, 1];
    row.extend_from_slice(&wire::entry::encode_registry(&registry));
    assert_eq!(row[3..6], [1, 7, 41], "as it was written then");
    let state = a.machine.state().clone();
    let mut batch = storage::state::Batch::default();
    batch.put(tables::DEPLOYMENT, row);
    batch.remove(tables::REGISTRAR);
    state.commit(batch).unwrap();
    a.reopen();
    a
}

#[test]
fn a_site_alone_changes_its_registry_by_one_command() {
    let mut a = founded();
    let before = a.copy();
    assert_eq!((before.version, before.registrars.set.sites()), (ballot(1, 1), &[A][..]));
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("b")))))
        .unwrap();
    let after = a.copy();
    assert_eq!((after.version, after.changes, after.sites.len()), (ballot(2, 1), 2, 2));
    let spec = KeyspaceSpec::linearizable_global("cars", "car:");
    assert!(matches!(a.run(Command::CreateKeyspace(spec)), Ok(Answer::Keyspace(_))));
    // Who holds it does not change so: the other one must promise, too.
    let registrar =
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Registrar(B)));
    assert_eq!(a.run(registrar), Err(Refusal::NotHeld(Registry::slot())));
    a.reopen();
    assert_eq!(a.copy().keyspaces.len(), 1);
}

#[test]
fn what_was_promised_and_accepted_stays_so() {
    let mut a = founded();
    let RegistrarAnswer::Reserved(own) = a.step(RegistrarStep::Reserve(ballot(6, 2))) else {
        panic!("not reserved")
    };
    assert_eq!(own, ballot(7, 1));
    let promised = a.step(RegistrarStep::Prepare(ballot(9, 2)));
    assert!(matches!(promised, RegistrarAnswer::Promised(accepted) if *accepted == *a.copy()));
    let refused = RegistrarAnswer::Refused(ballot(9, 2));
    assert_eq!(a.step(RegistrarStep::Prepare(own)), refused);
    let mut registry = (*a.copy()).clone();
    registry.version = ballot(9, 2);
    registry.change(&RegistryChange::Join(entry("b"))).unwrap();
    let value = Box::new(registry);
    let accept = RegistrarStep::Accept(ballot(9, 2), value.clone());
    assert_eq!(a.step(accept.clone()), RegistrarAnswer::Accepted);
    assert_eq!(a.step(accept), RegistrarAnswer::Accepted, "again");
    assert_eq!(a.copy().sites.len(), 1, "it may not be chosen");
    // It cannot go on by itself from what may not be chosen.
    let join =
        Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("c"))));
    assert_eq!(a.run(join), Err(Refusal::NotHeld(Registry::slot())));
    a.reopen();
    let acceptor = a.machine.acceptor().unwrap();
    assert_eq!((acceptor.promised(), acceptor.used()), (ballot(9, 2), own));
    assert_eq!(acceptor.accepted().sites.len(), 2);
    let accept = RegistrarStep::Accept(ballot(8, 2), value.clone());
    assert_eq!(
        a.run(Command::Deployment(DeploymentCommand::Registrar(accept))),
        Err(Refusal::NoDeployment),
        "of another ballot"
    );
    a.run(Command::Deployment(DeploymentCommand::LearnRegistry(value))).unwrap();
    assert_eq!((a.copy().sites.len(), a.copy().version), (2, ballot(9, 2)));
    a.reopen();
    check_state(a.machine.state());
}

#[test]
fn a_registry_of_before_there_were_registrars_is_its_slots_owners() {
    let mut a = of_before();
    let copy = a.copy();
    assert!(copy.is_of_before());
    assert_eq!((copy.version, copy.changes), (ballot(41, 0), 41));
    assert_eq!(copy.version.term, Term::default());
    a.run(Command::Deployment(DeploymentCommand::Registrar(RegistrarStep::Adopt))).unwrap();
    let adopted = a.copy();
    assert_eq!((adopted.version, adopted.changes), (ballot(42, 1), 41));
    let set: RegistrarSet = [A].into_iter().collect();
    assert_eq!(adopted.registrars, Registrars { set, since: ballot(42, 1), before: set });
    a.run(Command::Deployment(DeploymentCommand::Registrar(RegistrarStep::Adopt))).unwrap();
    assert_eq!(a.copy(), adopted, "once");
    // A site that does not own the slot waits until it learns of that.
    let mut b = Site::new();
    b.run(Command::Deployment(DeploymentCommand::Enter {
        site: B,
        registry: Box::new((*copy).clone()),
    }))
    .unwrap();
    b.run(Command::Deployment(DeploymentCommand::Registrar(RegistrarStep::Adopt))).unwrap();
    assert!(b.copy().is_of_before());
    b.run(Command::Deployment(DeploymentCommand::LearnRegistry(Box::new((*adopted).clone()))))
        .unwrap();
    assert_eq!(b.copy(), adopted);
    // What the log of that version holds is applied as then.
    let mut again = of_before();
    again
        .run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry(
            "b",
        )))))
        .unwrap();
    assert_eq!((again.copy().changes, again.copy().version), (42, ballot(43, 1)));
}

#[test]
fn a_site_that_was_done_without_hands_in_who_joined_there() {
    let (mut a, mut b, mut c) = (founded(), Site::new(), Site::new());
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("b")))))
        .unwrap();
    let both = a.copy();
    b.run(Command::Deployment(DeploymentCommand::Enter {
        site: B,
        registry: Box::new((*both).clone()),
    }))
    .unwrap();
    // Site a lets c in; b goes on without a.
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("c")))))
        .unwrap();
    c.run(Command::Deployment(DeploymentCommand::Enter {
        site: SiteId(3),
        registry: Box::new((*a.copy()).clone()),
    }))
    .unwrap();
    let RegistrarAnswer::TermReserved(begins, accepted) = b.step(RegistrarStep::ReserveTerm) else {
        panic!("not reserved")
    };
    let mut recovered = *accepted;
    recovered.recover(begins, &b.copy());
    recovered.version = begins;
    recovered.registrars.set = [B].into_iter().collect();
    for site in [&mut a, &mut b, &mut c] {
        site.run(Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(
            recovered.clone(),
        ))))
        .unwrap();
    }
    let kept = |site: &Site| site.machine.to_hand_in().map(|kept| kept.joins.len());
    assert_eq!([kept(&a), kept(&b), kept(&c)], [Some(1), None, Some(1)]);
    a.reopen();
    assert_eq!(kept(&a), Some(1), "it is durable");
    let mut handed_in = recovered.clone();
    handed_in.hand_in(a.machine.to_hand_in().unwrap());
    handed_in.version.round += 1;
    for site in [&mut a, &mut b, &mut c] {
        site.run(Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(
            handed_in.clone(),
        ))))
        .unwrap();
        assert_eq!((kept(site), site.copy().sites.len()), (None, 3));
    }
    assert!(handed_in.site_next > 1_000, "no id is given twice");
}
