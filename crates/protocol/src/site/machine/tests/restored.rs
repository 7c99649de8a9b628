//! A state that was restored from a backup: what it owns is confirmed with the other sites first.

use super::super::deployment::mark_restored;
use super::*;
use crate::job::{Effect, Job};
use crate::site::confirming::Confirming;
use model::{
    DeploymentId, Epoch, KeyspaceSpec, RegistryChange, Slot, SlotEpochs, SlotSet, SourceStep,
};
use std::time::Duration;
use storage::state::{Batch as Rows, State as _};

const CARS: KeyspaceId = KeyspaceId(1);
const B: SiteId = SiteId(2);
const C: SiteId = SiteId(3);

/// The founder of a deployment of three sites with a key, and another one of them.
fn two_of_three() -> [Site; 2] {
    let [mut a, mut b] = [Site::new(), Site::new()];
    let found = DeploymentCommand::Found { deployment: DeploymentId(7), site: entry("a") };
    a.run(Command::Deployment(found)).unwrap();
    a.run(Command::CreateKeyspace(KeyspaceSpec::linearizable_global("cars", "car:"))).unwrap();
    for name in ["b", "c"] {
        let join = RegistryChange::Join(entry(name));
        a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(join))).unwrap();
    }
    let registry = Box::new((**a.machine.registry().unwrap()).clone());
    b.run(Command::Deployment(DeploymentCommand::Enter { site: B, registry })).unwrap();
    a.write_in(CARS, put("car:1", "old")).unwrap();
    [a, b]
}

/// A site with the rows of another one, as a backup of it has them.
pub(super) fn restored(of: &Site) -> Site {
    let copy = with_rows_of(of);
    let state = copy.machine.state().clone();
    mark_restored(&state).unwrap();
    Site { machine: Machine::open(state).unwrap(), ..copy }
}

/// A site with the rows of another one.
pub(super) fn with_rows_of(of: &Site) -> Site {
    let (state, mut rows) = (MemoryState::new(), Rows::default());
    let mut copy = |key, value| {
        rows.put(key, value);
        true
    };
    of.machine.state().scan(b"", None, &mut copy).unwrap();
    state.commit(rows).unwrap();
    Site { machine: Machine::open(state).unwrap(), now_ms: of.now_ms }
}

fn asked(effects: &[Effect]) -> Vec<(u64, SiteId)> {
    let of = |effect: &Effect| match effect {
        Effect::Ask { id: Some(id), to, .. } => (*id, *to),
        other => panic!("{other:?}"),
    };
    effects.iter().map(of).collect()
}

#[test]
fn it_serves_what_no_other_site_reports_as_its_own() {
    let [a, mut b] = two_of_three();
    let mut a = restored(&a);
    let key = Slot::of_key(b"car:1");
    assert!(a.machine.is_restored() && !a.machine.serves(key));
    assert_eq!(a.ask_in(CARS, Query::Get { key: "car:1".into() }), Err(Refusal::NotHeld(key)));
    assert_eq!(a.write_in(CARS, put("car:1", "lost")), Err(Refusal::NotHeld(key)));

    // By now half of the slots are C's, as B has learned; A's key is not among them.
    let (low, high) = ("0-8191", "8192-16383");
    let gone: SlotSet = if key.number() < 8_192 { high } else { low }.parse().unwrap();
    let gone = SlotEpochs(vec![(gone, Epoch::counted(2))]);
    let register = GlobalCommand::Register { owner: C, slots: gone.clone() };
    b.run(Command::Global(register.clone())).unwrap();

    let (mut job, mut now) = (Confirming::default(), Duration::from_secs(1));
    let effects = job.poll(&a.view(now));
    let all = asked(&effects);
    assert_eq!(all.iter().map(|(_, to)| *to).collect::<Vec<_>>(), [B, C]);
    let waits_for = Job::<MemoryState>::waits_for(&job, &a.view(now)).unwrap();
    assert!(waits_for.contains("until b, c have stated"), "{waits_for}");
    assert!(waits_for.contains("`portolan site leave`"), "{waits_for}");
    let Effect::Ask { command, .. } = &effects[0] else { panic!("{effects:?}") };
    let inventory = b.run(command.clone()).unwrap();
    job.answered(all[0].0, Ok(inventory), &a.view(now));
    assert!(job.poll(&a.view(now)).is_empty(), "C has not answered, and is not asked at once");
    now += Duration::from_secs(2);
    let all = asked(&job.poll(&a.view(now)));
    assert_eq!(all.iter().map(|(_, to)| *to).collect::<Vec<_>>(), [C]);
    let nothing = Answer::Inventory(Box::default());
    job.answered(all[0].0, Ok(nothing), &a.view(now));

    let effects = job.poll(&a.view(now));
    let [Effect::Propose(command)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*command, Command::Global(register));
    a.run(command.clone()).unwrap();
    assert!(!a.machine.serves(key), "not confirmed yet");
    let effects = job.poll(&a.view(now));
    let [Effect::Propose(command)] = &effects[..] else { panic!("{effects:?}") };
    let (revision, later) = (model::Revision(0), SlotEpochs::default());
    let above = DeploymentCommand::ConfirmAbove { revision, later };
    assert_eq!(*command, Command::Deployment(above));
    a.run(command.clone()).unwrap();
    let gone = gone.slots();
    assert!(Slot::all().all(|slot| a.machine.serves(slot) != gone.contains(slot)));
    assert!(job.poll(&a.view(now)).is_empty());
    let again = Machine::open(a.machine.state().clone()).unwrap();
    assert!(!again.is_restored() && again.serves(key), "as the state has it");
}

#[test]
fn it_hands_nothing_over_before() {
    let [a, _] = two_of_three();
    let mut a = restored(&a);
    let slots = SlotSet::all();
    let begin = SourceStep::Begin { slots, to: B, pinned: false };
    let begun = a.run(Command::Global(GlobalCommand::Source { number: 0, step: begin }));
    if let Ok(Answer::Done(number)) = begun {
        let freeze = GlobalCommand::Source { number: number.0, step: SourceStep::Freeze };
        let frozen = a.run(Command::Global(freeze));
        let token = a.machine.token(Slot::of_key(b"car:1"));
        assert!(frozen.is_err() && token.serves(), "{frozen:?} {token:?}");
    }
}

#[test]
fn a_site_without_others_is_not_marked() {
    let mut a = Site::new();
    a.write(put("a", "1")).unwrap();
    assert!(!restored(&a).machine.is_restored());
    let found = DeploymentCommand::Found { deployment: DeploymentId(7), site: entry("a") };
    a.run(Command::Deployment(found)).unwrap();
    assert!(!restored(&a).machine.is_restored());
}

#[test]
fn it_takes_no_part_in_the_registry_before_but_in_a_recovery() {
    let [a, _] = two_of_three();
    let mut a = restored(&a);
    let version = a.machine.registry().unwrap().version;
    let ballot = model::Ballot { round: version.round + 1, site: B, ..version };
    let prepare = |ballot| {
        Command::Deployment(DeploymentCommand::Registrar(model::RegistrarStep::Prepare(ballot)))
    };
    assert!(matches!(a.run(prepare(ballot)), Err(Refusal::Move(_))));
    let term = model::Term { number: version.term.number + 1, site: B };
    // A recovery that followed the backup may have begun that term, and this be a change in it.
    assert!(matches!(a.run(prepare(model::Ballot { term, ..ballot })), Err(Refusal::Move(_))));
    let promised = a.run(prepare(model::Ballot { term, round: 0, site: B }));
    assert!(matches!(promised, Ok(Answer::Registrar(_))), "{promised:?}");
    let (revision, later) = (model::Revision(0), SlotEpochs::default());
    let confirm = DeploymentCommand::ConfirmAbove { revision, later };
    a.run(Command::Deployment(confirm)).unwrap();
    let promised = a.run(prepare(model::Ballot { term, round: ballot.round + 1, site: B }));
    assert!(matches!(promised, Ok(Answer::Registrar(_))), "{promised:?}");
}
