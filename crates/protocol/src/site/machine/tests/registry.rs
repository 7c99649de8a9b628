//! A site's part in holding the registry.

use super::*;
use model::{
    Ballot, DeploymentId, KeyspaceSpec, RegistrarAnswer, RegistrarStep, Registry, RegistryChange,
};
use std::sync::Arc;

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
    assert_eq!(a.run(registrar), Err(NOT_ALONE));
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
    assert_eq!(a.run(join), Err(NOT_ALONE));
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
