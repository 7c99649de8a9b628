//! A site's part in holding the registry.

use super::*;
use model::{
    Ballot, DeploymentId, DestinationStep, Epoch, KeyspaceSpec, MoveId, RegistrarAnswer,
    RegistrarStep, Registry, RegistryChange, Revision, Slot, SlotEpochs, SlotSet, Taken, Term,
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

fn learn(site: &mut Site, registry: &Registry) {
    let registry = Box::new(registry.clone());
    site.run(Command::Deployment(DeploymentCommand::LearnRegistry(registry))).unwrap();
}

/// A failover of a is decided and forgotten before c is listed, which has had a slot of a's since.
#[test]
fn a_site_that_hands_its_join_in_confirms_what_it_owns() {
    let (mut a, mut c) = (founded(), Site::new());
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("b")))))
        .unwrap();
    let both = a.copy();
    a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(entry("c")))))
        .unwrap();
    let c_id = SiteId(3);
    c.run(Command::Deployment(DeploymentCommand::Enter {
        site: c_id,
        registry: Box::new((*a.copy()).clone()),
    }))
    .unwrap();
    let (slot, epoch) = (Slot::FIRST, Epoch::counted(2));
    let id = MoveId { from: A, number: 1 };
    let slots = SlotEpochs::gather([(slot, epoch)]);
    let begin = DestinationStep::Begin { slots, open_from: 1, pinned: true };
    let install = DestinationStep::Install { chunks: 0, revision: Revision(0) };
    for step in [begin, install] {
        c.run(Command::Global(GlobalCommand::Destination { id, step })).unwrap();
    }
    assert!(c.machine.serves(slot));

    // b goes on without a, takes its slots and forgets that.
    let begins = Ballot { term: Term { number: 1, site: B }, round: 0, site: B };
    let mut registry = (*both).clone();
    registry.recover(begins, &both);
    registry.version = begins;
    registry.registrars.set = [B].into_iter().collect();
    let at = |round| Ballot { round, ..begins };
    let open = RegistryChange::OpenFailover { lost: A, without: Vec::new() };
    registry.change_at(&open, at(1)).unwrap();
    let taken = vec![Taken { by: B, slots: SlotSet::all(), from: None }];
    let decide = RegistryChange::DecideFailover { opened: at(1), taken };
    registry.change_at(&decide, at(2)).unwrap();
    registry.change_at(&RegistryChange::ForgetFailover(at(2)), at(3)).unwrap();
    registry.version = at(3);

    let confirm = || {
        let (revision, later) = (Revision(0), SlotEpochs::default());
        Command::Deployment(DeploymentCommand::ConfirmAbove { revision, later })
    };
    let mut listed = registry.clone();
    // It learns of the new term before it is listed, or as another site has handed its join in.
    for before in [Some(&registry), None] {
        let mut c = super::restored::with_rows_of(&c);
        if let Some(before) = before {
            learn(&mut c, before);
            assert!(c.machine.is_unconfirmed() && !c.machine.serves(slot));
            c.run(confirm()).unwrap();
            assert!(c.machine.is_unconfirmed(), "it is not listed");
            listed.hand_in(c.machine.to_hand_in().unwrap());
            listed.version = at(4);
        }
        learn(&mut c, &listed);
        assert!(c.machine.to_hand_in().is_none());
        assert!(c.machine.is_unconfirmed() && !c.machine.serves(slot));
        assert!(!c.machine.is_restored(), "its state is complete");
        c.reopen();
        assert!(c.machine.is_unconfirmed() && !c.machine.serves(slot));
        // It goes on as a registrar.
        let promised = c.step(RegistrarStep::Prepare(Ballot { site: B, ..at(9) }));
        assert!(matches!(promised, RegistrarAnswer::Promised(_)));
        // It confirms what others have stated.
        let slots = SlotEpochs::gather([(slot, Epoch::of_failover(at(2)))]);
        let register = GlobalCommand::Register { owner: B, slots };
        c.run(Command::Global(register)).unwrap();
        c.run(confirm()).unwrap();
        assert!(!c.machine.is_unconfirmed() && !c.machine.serves(slot));
        check_state(c.machine.state());
    }
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
