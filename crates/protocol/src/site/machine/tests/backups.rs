//! Mirrors and promotions: three sites' machines, and what passes between them.

mod former;
mod handing_on;
mod late;
mod lost_writes;
mod restored;

use super::super::global::tokens::Token;
use super::super::lineage::Whose;
use super::*;
use crate::global::failover::{Context, FailoverJobs, Wanted};
use crate::global::mirroring::MirrorDriver;
use crate::job::{Effect as JobEffect, Job as _, View as JobView};
use crate::site::{Origin, Ticket};
use model::{
    BackupError, Ballot, ClientId, DeploymentId, DestinationStep, Epoch, Failure, KeyspaceSpec,
    Loss, MoveId, RegistryChange, RegistryError, Slot, SlotCopy, SlotEpochs, SlotSet, SourceStep,
};
use std::time::Duration;

const CARS: KeyspaceId = KeyspaceId(1);
/// Holds everything at first; B keeps its mirror.
const A: SiteId = SiteId(1);
const B: SiteId = SiteId(2);
const C: SiteId = SiteId(3);

fn slot(key: &str) -> Slot {
    Slot::of_key(key.as_bytes())
}

fn add(sequence: u64) -> Command {
    Command::Write {
        keyspace: CARS,
        write: Write::Add { key: "n{t}".into(), delta: 1 },
        request: Some(RequestId { client: ClientId(9), sequence, acknowledged_below: 1 }),
    }
}

/// Three sites of a deployment.
struct Three {
    sites: BTreeMap<SiteId, Site>,
    driver: MirrorDriver,
    now: Duration,
    /// How large the commands of streams were.
    sent_bytes: Vec<usize>,
}

impl Three {
    fn new() -> Three {
        let [mut a, mut b, mut c] = [Site::new(), Site::new(), Site::new()];
        a.run(Command::Deployment(DeploymentCommand::Found {
            deployment: DeploymentId(7),
            site: entry("a"),
        }))
        .unwrap();
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        a.run(Command::CreateKeyspace(spec)).unwrap();
        for name in ["b", "c"] {
            a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Join(
                entry(name),
            ))))
            .unwrap();
        }
        let choice = model::BackupChoice::At(B);
        a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(RegistryChange::Backup(
            A, choice,
        ))))
        .unwrap();
        let registry = Box::new((**a.machine.registry().unwrap()).clone());
        b.run(Command::Deployment(DeploymentCommand::Enter {
            site: B,
            registry: registry.clone(),
        }))
        .unwrap();
        c.run(Command::Deployment(DeploymentCommand::Enter { site: C, registry })).unwrap();
        let sites = [(A, a), (B, b), (C, c)].into();
        Three { sites, driver: MirrorDriver::new(0), now: Duration::ZERO, sent_bytes: Vec::new() }
    }

    fn at(&mut self, site: SiteId) -> &mut Site {
        self.sites.get_mut(&site).unwrap()
    }

    fn put(&mut self, key: &'static str, value: &'static str) {
        self.at(A).write_in(CARS, put(key, value)).unwrap();
    }

    /// Sends B all that there is of A.
    fn mirror(&mut self) {
        self.mirror_to(B, &[]);
    }

    /// Sends A's backup, and its former one if there is one, all that there is of A. These sites do
    /// not answer.
    fn mirror_to(&mut self, backup: SiteId, silent: &[SiteId]) {
        self.driver.wake(&SlotSet::all());
        let mut quiet = 0;
        while quiet < 3 {
            self.now += Duration::from_millis(600);
            let (driver, now) = (&mut self.driver, self.now);
            let view = JobView { backup: Some(backup), ..self.sites[&A].view(now) };
            let effects = driver.poll(&view);
            let is_heard = |effect: &JobEffect| match effect {
                JobEffect::Ask { to, .. } => !silent.contains(to),
                _ => true,
            };
            quiet = if effects.iter().any(is_heard) { 0 } else { quiet + 1 };
            for effect in effects {
                match effect {
                    JobEffect::Propose(command) => drop(self.at(A).run(command)),
                    JobEffect::Ask { id: Some(id), to, .. } if silent.contains(&to) => {
                        let view = self.sites[&A].view(self.now);
                        let none = Err(Failure::NoLeader);
                        assert!(self.driver.answered(id, none, &view).is_empty());
                    }
                    JobEffect::Ask { id: Some(id), to, command, .. } => {
                        self.sent_bytes.push(command.properties().size_bytes);
                        // Twice: the second one changes nothing.
                        drop(self.at(to).run(command.clone()));
                        let outcome = self.at(to).run(command).map_err(Failure::Refused);
                        let view = self.sites[&A].view(self.now);
                        for more in self.driver.answered(id, outcome, &view) {
                            let JobEffect::Propose(command) = more else { panic!("{more:?}") };
                            drop(self.at(A).run(command));
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// The mirror's answer about a key.
    fn mirrored(&self, key: &'static str) -> Result<Option<String>, Refusal> {
        let query = Query::Get { key: key.into() };
        let answer = refused(self.sites[&B].machine.ask_mirror(A, CARS, &query))?;
        let Answer::Value(value) = answer else { panic!("{answer:?}") };
        Ok(value.map(|found| String::from_utf8(found.value.to_vec()).unwrap()))
    }

    fn held(&self, site: SiteId, key: &'static str) -> Result<Option<String>, Refusal> {
        let answer = self.sites[&site].ask_in(CARS, Query::Get { key: key.into() })?;
        let Answer::Value(value) = answer else { panic!("{answer:?}") };
        Ok(value.map(|found| String::from_utf8(found.value.to_vec()).unwrap()))
    }

    /// Has A failed over, asked at B; A does not answer, nor do the `silent` sites.
    fn promote(
        &mut self,
        accept: bool,
        silent: &[SiteId],
        without: &[SiteId],
    ) -> Result<Loss, Failure> {
        let mut jobs = FailoverJobs::default();
        let silent = [&[A], silent].concat();
        let contact_since = move |site: SiteId, _| !silent.contains(&site);
        let wanted = Wanted {
            origin: Origin::client(Ticket(1)),
            lost: A,
            by: B,
            without: without.to_vec(),
            accept,
            reported: None,
            id: None,
            deadline: Duration::from_secs(1_000_000),
        };
        let mut wanted = Some(wanted);
        let mut answers: Vec<(u64, Result<Answer, Failure>)> = Vec::new();
        loop {
            self.now += Duration::from_secs(1);
            let registry = self.sites[&B].machine.registry().unwrap().clone();
            let view = Context {
                now: self.now,
                own: B,
                registry: &registry,
                caught_up_ms: 5,
                contact_since: &contact_since,
            };
            let mut effects = match wanted.take() {
                Some(wanted) => jobs.want(wanted, &view),
                None => jobs.advance(A, &view),
            };
            for (id, outcome) in answers.drain(..) {
                effects.extend(jobs.take_answer(id, outcome, &view));
            }
            for effect in effects {
                match effect {
                    JobEffect::Ask { id: Some(id), to, command, .. } => {
                        let outcome = self.at(to).run(command).map_err(Failure::Refused);
                        answers.push((id, outcome));
                    }
                    JobEffect::Change { id, change, .. } => {
                        let outcome = self.change(B, &change).map_err(Failure::Refused);
                        answers.extend(id.map(|id| (id, outcome)));
                    }
                    JobEffect::Settle(
                        _,
                        Ok(Answer::Loss(loss) | Answer::Foretold { loss, .. }),
                    ) => {
                        return Ok(*loss);
                    }
                    JobEffect::Settle(_, outcome) => return Err(outcome.unwrap_err()),
                    _ => {}
                }
            }
        }
    }

    /// Registrars have chosen a change that a site proposed.
    fn change(&mut self, site: SiteId, change: &RegistryChange) -> Result<Answer, Refusal> {
        let mut registry = (**self.sites[&site].machine.registry().unwrap()).clone();
        let version = model::Ballot { round: registry.version.round + 1, site, ..registry.version };
        registry.change_at(change, version).map_err(Refusal::from)?;
        registry.version = version;
        self.at(site).run(Command::Deployment(DeploymentCommand::LearnRegistry(Box::new(registry))))
    }

    /// A site receives the registry that B has.
    fn hears(&mut self, site: SiteId) {
        let registry = Box::new((**self.sites[&B].machine.registry().unwrap()).clone());
        self.at(site).run(Command::Deployment(DeploymentCommand::LearnRegistry(registry))).unwrap();
    }

    /// A lost site learns of that from B, and the registry has its return.
    fn is_back(&mut self, site: SiteId) {
        self.hears(site);
        let known = self.sites[&site].machine.registry().unwrap().version;
        self.change(B, &RegistryChange::ReturnedBy { site, known }).unwrap();
    }

    /// Hands a key's slot from one site to another; `until`: how far that comes.
    fn give(&mut self, key: &str, from: SiteId, to: SiteId, until: &str) -> u64 {
        let slots: SlotSet = [slot(key)].into_iter().collect();
        let begin = SourceStep::Begin { slots, to, pinned: false };
        let number = match self
            .at(from)
            .run(Command::Global(GlobalCommand::Source { number: 0, step: begin }))
            .unwrap()
        {
            Answer::Done(number) => number.0,
            other => panic!("{other:?}"),
        };
        let one = self.sites[&from].machine.outgoing()[&number].clone();
        let slots = self.sites[&from].machine.epochs_to_give(number, &one);
        let id = MoveId { from, number };
        let begin = DestinationStep::Begin { slots, open_from: number, pinned: false };
        self.at(to).run(Command::Global(GlobalCommand::Destination { id, step: begin })).unwrap();
        self.at(from)
            .run(Command::Global(GlobalCommand::Source { number, step: SourceStep::Freeze }))
            .unwrap();
        if until == "frozen" {
            return number;
        }
        let install = self.install(from, 0);
        self.at(to).run(Command::Global(GlobalCommand::Destination { id, step: install })).unwrap();
        if until == "installed" {
            return number;
        }
        self.at(from)
            .run(Command::Global(GlobalCommand::Source { number, step: SourceStep::Release }))
            .unwrap();
        number
    }

    fn install(&self, from: SiteId, chunks: u64) -> DestinationStep {
        let machine = &self.sites[&from].machine;
        DestinationStep::Install { chunks, revision: machine.revision() }
    }
}

#[test]
fn a_mirror_has_what_its_original_has() {
    let mut three = Three::new();
    three.put("x", "old");
    three.put("gone", "1");
    three.mirror();
    assert_eq!(three.mirrored("x"), Ok(Some("old".into())));
    assert_eq!(three.held(B, "x"), Err(Refusal::NotHeld(slot("x"))), "it is not served");
    three.put("x", "new");
    three.put("y", "2");
    three.at(A).write_in(CARS, Write::Delete { keys: vec!["gone".into()] }).unwrap();
    let timed = put_with("timed", "t", Condition::Always, Expiry::AtMs(5_000));
    three.at(A).write_in(CARS, timed).unwrap();
    assert_eq!(three.mirrored("x"), Ok(Some("old".into())), "it lags");
    three.mirror();
    for (key, value) in [("x", Some("new")), ("y", Some("2")), ("gone", None), ("timed", Some("t"))]
    {
        assert_eq!(three.mirrored(key), Ok(value.map(str::to_owned)), "{key}");
    }
    let mirror = three.sites[&B].machine.mirrors()[&A].clone();
    assert_eq!((mirror.holds, mirror.complete.len()), (16_384, 16_384));
    assert_eq!(three.sites[&B].machine.mirrored_keys(A), 3);
    assert_eq!(mirror.revision, three.sites[&A].machine.revision().0);
    three.at(B).now_ms = 6_000;
    three.at(B).tick();
    assert_eq!(three.mirrored("timed"), Ok(None), "expired at its time");
    three.at(B).reopen();
    assert_eq!(three.mirrored("x"), Ok(Some("new".into())));
    three.at(A).write_in(CARS, Write::Clear).unwrap();
    three.put("z", "after");
    three.mirror();
    let found = ["x", "y", "z"].map(|key| three.mirrored(key).unwrap());
    assert_eq!(found, [None, None, Some("after".to_owned())]);
    for _ in 0..3 {
        three.at(B).tick();
    }
    assert_eq!(three.sites[&B].rows(tables::GARBAGE), 0);
}

#[test]
fn slots_come_into_a_mirror_and_leave_it() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.give("x", A, C, "released");
    three.mirror();
    let kept = three.sites[&B].machine.copy_of(slot("x")).unwrap();
    assert_eq!(kept.tag.epoch, Epoch::counted(1), "no report that another copy is safe");
    assert!(!three.sites[&B].machine.mirrors()[&A].complete.contains(slot("x")));
    three.at(C).write_in(CARS, put("x", "at c")).unwrap();
    let number = three.at(C).machine.revision().0;
    three.give("x", C, A, "released");
    assert!(number > 0);
    three.put("x", "back");
    three.mirror();
    assert_eq!(three.mirrored("x"), Ok(Some("back".into())));
    let complete = &three.sites[&B].machine.mirrors()[&A].complete;
    assert_eq!(complete.get(slot("x")), Some(&Epoch::counted(3)));
}

#[test]
fn a_site_that_is_not_the_backup_begins_no_mirror() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.other_backup(C);
    assert_eq!(three.mirrored("x"), Ok(Some("1".into())), "what it has stays");
    let begin = Command::Global(GlobalCommand::Mirror {
        from: A,
        number: 1_000,
        step: model::MirrorStep::Begin,
    });
    let not_ours = Refusal::Backup(BackupError::NotTheBackup);
    assert_eq!(three.at(B).run(begin), Err(not_ours));
    for _ in 0..3 {
        three.at(B).tick();
    }
    assert_eq!(three.sites[&B].rows(tables::MIRRORED), 0);
}

#[test]
fn a_mirror_that_is_too_far_behind_begins_anew() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let first = three.sites[&A].machine.own_mirror().unwrap();
    // As when the change log has grown too long for its slowest reader.
    let cursor = Command::DropCursor { name: "mirror".into(), keyspace: CARS };
    three.at(A).run(cursor).unwrap();
    three.put("x", "2");
    three.put("y", "3");
    three.mirror();
    let second = three.sites[&A].machine.own_mirror().unwrap();
    assert!(second.number > first.number);
    assert_eq!(three.mirrored("x"), Ok(Some("2".into())));
    let old = Command::Global(GlobalCommand::Mirror {
        from: A,
        number: first.number,
        step: model::MirrorStep::Begin,
    });
    assert_eq!(three.at(B).run(old), Err(Refusal::Backup(BackupError::Outdated)));
}

#[test]
fn others_take_over_from_a_lost_site_which_gives_up_when_it_returns() {
    let mut three = Three::new();
    three.put("x", "mirrored");
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    three.put("x", "in the lag");
    three.put("y", "in the lag");
    assert_eq!(three.at(A).run(add(2)), Ok(Answer::Integer(2)));
    let reported = three.promote(false, &[], &[]).unwrap();
    assert_eq!(
        (reported.done, reported.holds, reported.mirrored, reported.keys),
        (false, 16_384, 16_384, 2)
    );
    let failovers = |three: &Three| three.sites[&B].machine.registry().unwrap().failovers.clone();
    assert!(failovers(&three).is_empty(), "asking changes nothing");
    let done = three.promote(true, &[], &[]).unwrap();
    assert_eq!((done.done, done.mirrored, done.empty), (true, 16_384, 0));
    assert_eq!(three.held(B, "x"), Ok(Some("mirrored".into())));
    assert_eq!(three.held(B, "y"), Ok(None));
    let decided = Epoch::of_failover(failovers(&three).decided[0].decided);
    assert_eq!(three.sites[&B].machine.token(slot("x")), Token::Held(decided));
    // Reads past the core name it, too.
    let served = |at| {
        three.sites[&at]
            .machine
            .reader()
            .served_under(KeyspaceId(1), &Query::Get { key: "x".into() })
            .failover
    };
    assert_eq!((served(B), served(C)), (decided.failover, Ballot::FIRST));
    // Remembered answers came along; what was in the lag was never applied here.
    assert_eq!(three.at(B).run(add(1)), Ok(Answer::Integer(1)));
    assert_eq!(three.at(B).run(add(2)), Ok(Answer::Integer(2)));
    let Ok(Answer::Put { version, .. }) = three.at(B).write_in(CARS, put("x", "after")) else {
        panic!("not put")
    };
    assert!(version > three.sites[&A].machine.revision(), "no version is given twice");
    three.hears(A);
    assert_eq!(three.held(A, "x"), Err(Refusal::NotHeld(slot("x"))));
    let retained = three.sites[&A].machine.copy_of(slot("x")).unwrap();
    assert_eq!(retained, SlotCopy::retained(Epoch::counted(1), A), "until B has a mirror");
    three.at(A).reopen();
    assert_eq!(three.sites[&A].machine.copy_of(slot("x")), Some(retained));
    three.is_back(A);
    assert!(!three.sites[&B].machine.registry().unwrap().is_lost(A));
    assert!(!failovers(&three).is_empty(), "C does not know it yet");
}

#[test]
fn a_site_that_was_away_during_a_failover_learns_of_it_afterwards() {
    let mut three = Three::new();
    three.put("x", "mirrored");
    three.mirror();
    // It passes to C unseen by B; then both are lost.
    three.give("x", A, C, "installed");
    three.at(C).write_in(CARS, put("x", "at c")).unwrap();
    three.promote(true, &[C], &[C]).unwrap();
    assert_eq!(three.held(B, "x"), Ok(Some("mirrored".into())), "C was named");
    three.hears(A);
    three.is_back(A);
    assert_eq!(
        three.held(C, "x"),
        Ok(Some("at c".into())),
        "a stale owner that the failover names"
    );
    three.hears(C);
    assert_eq!(three.held(C, "x"), Err(Refusal::NotHeld(slot("x"))));
    assert!(three.sites[&C].machine.copy_of(slot("x")).is_some(), "what it had is a copy");
}

#[test]
fn a_copy_outlives_its_site_being_the_backup() {
    let mut three = Three::new();
    three.put("x", "mirrored");
    three.mirror();
    // A is lost; an operator names another backup for it first.
    let other = RegistryChange::Backup(A, model::BackupChoice::At(C));
    three.change(B, &other).unwrap();
    let done = three.promote(true, &[], &[]).unwrap();
    assert_eq!((done.mirrored, done.empty, done.by), (16_384, 0, B));
    assert_eq!(three.held(B, "x"), Ok(Some("mirrored".into())));
}

#[test]
fn slots_that_are_not_mirrored_whole_begin_empty_and_that_is_said() {
    let mut three = Three::new();
    three.put("x", "never mirrored");
    let reported = three.promote(false, &[], &[]).unwrap();
    assert_eq!((reported.holds, reported.mirrored, reported.empty), (16_384, 0, 16_384));
    three.give("x", A, C, "released");
    three.at(C).write_in(CARS, put("x", "never mirrored")).unwrap();
    three.give("x", C, A, "released");
    let done = three.promote(true, &[], &[]).unwrap();
    assert_eq!((done.mirrored, done.empty), (1, 16_383), "C has retained it");
    three.hears(C);
    assert_eq!(three.held(C, "x"), Ok(Some("never mirrored".into())));
}

#[test]
fn what_comes_too_late_for_the_mirror_is_with_its_source_again() {
    for until in ["frozen", "installed", "released"] {
        let mut three = Three::new();
        three.put("x", "1");
        three.give("x", A, C, "released");
        three.mirror();
        three.at(C).write_in(CARS, put("x", "at c")).unwrap();
        three.give("x", C, A, until);
        let done = three.promote(true, &[], &[]).unwrap();
        assert!(done.done, "{until}");
        assert_eq!(three.held(C, "x"), Err(Refusal::NotHeld(slot("x"))), "{until}: not yet known");
        three.hears(C);
        assert_eq!(three.held(C, "x"), Ok(Some("at c".into())), "{until}");
        assert_eq!(three.sites[&C].machine.outgoing().len(), 0, "{until}");
    }
}

#[test]
fn a_copy_goes_when_its_owner_says_that_another_is_safe() {
    let mut three = Three::new();
    three.put("x", "1");
    three.give("x", A, C, "released");
    let retained = three.sites[&A].machine.copy_of(slot("x"));
    assert_eq!(retained, Some(SlotCopy::retained(Epoch::counted(1), A)));
    let safe = |epoch, generation, by| {
        let slots = SlotEpochs::gather([(slot("x"), Epoch::counted(epoch))]);
        Command::Global(GlobalCommand::SupersedeBy { slots, generation, position: 90, by })
    };
    three.at(A).run(safe(1, 900, C)).unwrap();
    assert!(three.sites[&A].machine.copy_of(slot("x")).is_some(), "that is an older one");
    three.at(A).run(safe(2, 0, SiteId(9))).unwrap();
    assert!(three.sites[&A].machine.copy_of(slot("x")).is_some(), "of a site that is gone");
    three.at(A).run(safe(2, 0, C)).unwrap();
    assert_eq!(three.sites[&A].machine.copy_of(slot("x")), None);
    for _ in 0..3 {
        three.at(A).tick();
    }
    assert_eq!(three.sites[&A].rows(tables::GARBAGE), 0);
    assert_eq!(three.sites[&A].rows(tables::COPIED), 0);
}

#[test]
fn what_a_lost_site_reports_as_safe_does_not_count() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.give("x", A, C, "released");
    let slots = SlotEpochs::gather([(slot("x"), Epoch::counted(2))]);
    let report = GlobalCommand::SupersedeBy { slots, generation: 0, position: 90, by: A };
    assert!(three.promote(true, &[], &[]).unwrap().done);
    three.at(B).run(Command::Global(report.clone())).unwrap();
    assert!(three.sites[&B].machine.copy_of(slot("x")).is_some(), "it is lost");
    three.is_back(A);
    three.at(B).run(Command::Global(report)).unwrap();
    assert_eq!(three.sites[&B].machine.copy_of(slot("x")), None);
}

#[test]
fn a_site_that_learns_of_a_higher_epoch_stops_serving() {
    let mut three = Three::new();
    three.put("x", "1");
    let slots = SlotEpochs::gather([(slot("x"), Epoch::counted(5))]);
    three.at(A).run(Command::Global(GlobalCommand::Register { owner: C, slots })).unwrap();
    assert_eq!(three.held(A, "x"), Err(Refusal::NotHeld(slot("x"))));
    assert!(three.sites[&A].machine.copy_of(slot("x")).is_some());
}

#[test]
fn a_stale_owner_gives_up_what_it_is_handed_anew() {
    for hears_in_between in [false, true] {
        let mut three = Three::new();
        three.put("x", "1");
        three.mirror();
        three.give("x", A, C, "released");
        three.at(C).write_in(CARS, put("x", "unseen")).unwrap();
        assert!(three.promote(true, &[C], &[C]).unwrap().done);
        assert_eq!(three.held(C, "x"), Ok(Some("unseen".into())), "a stale owner");
        // B hands it to C, which has not learned of the failover.
        three.give("x", B, C, "installed");
        assert_eq!(three.held(C, "x"), Ok(None), "what B sent, and not what was there");
        if hears_in_between {
            three.hears(C);
        }
        let number = *three.sites[&B].machine.outgoing().keys().next().unwrap();
        three
            .at(B)
            .run(Command::Global(GlobalCommand::Source { number, step: SourceStep::Release }))
            .unwrap();
        three.hears(C);
        assert_eq!(three.held(B, "x"), Err(Refusal::NotHeld(slot("x"))));
        assert_eq!(three.held(C, "x"), Ok(None), "one of them serves it");
    }
}

#[test]
fn who_cannot_be_asked_must_be_named() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let reported = three.promote(false, &[C], &[]).unwrap();
    assert_eq!(reported.silent, [C]);
    let silent = three.promote(true, &[C], &[]);
    let is_silent = |outcome: &Result<Loss, Failure>| {
        matches!(outcome, Err(Failure::Refused(Refusal::Backup(BackupError::Silent(_)))))
    };
    assert!(is_silent(&silent), "{silent:?}");
    assert!(three.promote(true, &[C], &[C]).unwrap().done);
    let again = three.promote(true, &[], &[]).unwrap();
    assert_eq!(
        (again.done, again.holds),
        (true, 0),
        "that all were asked is decided: A may be removed"
    );
    let again = three.promote(true, &[], &[]);
    assert_eq!(
        again,
        Err(Failure::Refused(Refusal::Backup(BackupError::Promoted(B)))),
        "all is taken"
    );
}

#[test]
fn what_was_not_asked_for_is_taken_by_a_second_failover() {
    let mut three = Three::new();
    three.put("x", "1");
    three.give("x", A, C, "released");
    three.at(C).write_in(CARS, put("x", "2")).unwrap();
    three.mirror();
    three.give("x", C, A, "released");
    // The backup has not received it yet; the former owner has the records, and is down.
    let first = three.promote(true, &[C], &[C]).unwrap();
    assert!(first.done);
    assert_eq!(three.held(B, "x"), Err(Refusal::NotHeld(slot("x"))), "it is not begun empty");
    let again = three.promote(true, &[], &[]).unwrap();
    assert_eq!((again.done, again.holds, again.empty), (true, 1, 0));
    three.hears(C);
    assert_eq!(three.held(C, "x"), Ok(Some("2".into())));
}

#[test]
fn a_fence_ends_with_its_failover() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let number = three.give("x", A, B, "frozen");
    let open = RegistryChange::OpenFailover { lost: A, without: vec![C] };
    three.change(B, &open).unwrap();
    let id = MoveId { from: A, number };
    let install = three.install(A, 0);
    let install = Command::Global(GlobalCommand::Destination { id, step: install });
    let fenced = three.at(B).run(install.clone());
    assert!(matches!(fenced, Err(Refusal::Move(model::MoveError::NotReady(_)))), "{fenced:?}");
    three.hears(A);
    assert_eq!(three.held(A, "y"), Err(Refusal::NotHeld(slot("y"))), "it serves nothing");
    three.at(A).reopen();
    assert_eq!(three.held(A, "y"), Err(Refusal::NotHeld(slot("y"))));
    let opened = three.sites[&B].machine.registry().unwrap().failovers.open.clone().unwrap();
    three.change(B, &RegistryChange::CloseFailover(opened.opened)).unwrap();
    three.hears(A);
    assert_eq!(three.held(A, "y"), Ok(None));
    assert_eq!(three.at(B).run(install), Ok(Answer::Installed));
    assert!(three.held(B, "x").is_ok());
}

/// The failover is called off: the site has its keys, and its mirror has to have them, too.
#[test]
fn a_fenced_site_clears_nothing() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.change(B, &RegistryChange::OpenFailover { lost: A, without: vec![] }).unwrap();
    three.hears(A);
    let cleared = three.at(A).write_in(CARS, Write::Clear);
    assert!(matches!(cleared, Err(Refusal::Move(model::MoveError::NotReady(_)))), "{cleared:?}");
    let opened = three.sites[&B].machine.registry().unwrap().failovers.open.clone().unwrap();
    three.change(B, &RegistryChange::CloseFailover(opened.opened)).unwrap();
    three.hears(A);
    three.mirror();
    assert_eq!(
        (three.held(A, "x"), three.mirrored("x")),
        (Ok(Some("1".into())), Ok(Some("1".into())))
    );
    assert!(three.at(A).write_in(CARS, Write::Clear).is_ok());
}

/// Its first chunk has all changes, and not yet all slots.
#[test]
fn a_mirror_is_caught_up_when_it_has_all_slots() {
    let mut three = Three::new();
    three.at(B).now_ms += 5_000;
    let number = 1_000;
    let mirror = |step| Command::Global(GlobalCommand::Mirror { from: A, number, step });
    three.at(B).run(mirror(model::MirrorStep::Begin)).unwrap();
    for (sequence, complete) in ["x", "y"].into_iter().enumerate() {
        let complete = SlotEpochs::gather([(slot(complete), Epoch::counted(1))]);
        let chunk = model::MirrorStep::Chunk {
            sequence: sequence as u64,
            resume: Bytes::new(),
            gone: SlotSet::default(),
            items: Vec::new(),
            reached: Some(model::Reached { revision: Revision(7), complete, holds: 2 }),
        };
        three.at(B).run(mirror(chunk)).unwrap();
        let caught_up_ms = three.sites[&B].machine.mirrors()[&A].caught_up_ms;
        assert_eq!(caught_up_ms > 0, sequence == 1, "{caught_up_ms}");
    }
}

#[test]
fn a_site_that_the_others_have_removed_serves_nothing() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.promote(true, &[], &[]).unwrap();
    three.change(B, &RegistryChange::Remove(A)).unwrap();
    three.hears(A);
    assert!(Slot::all().all(|slot| !three.sites[&A].machine.holding(slot).token.is_own()));
    assert_eq!(three.held(A, "x"), Err(Refusal::NotHeld(slot("x"))));
}

/// The source took the move back, its request arrived late, and it left: no other site would end
/// what it began, and a site with an open arrival does not leave.
#[test]
fn what_a_site_began_that_has_left_ends() {
    let mut three = Three::new();
    let slots: SlotSet = [slot("x")].into_iter().collect();
    let begin = SourceStep::Begin { slots, to: C, pinned: false };
    let number = match three
        .at(A)
        .run(Command::Global(GlobalCommand::Source { number: 0, step: begin }))
        .unwrap()
    {
        Answer::Done(number) => number.0,
        other => panic!("{other:?}"),
    };
    let one = three.sites[&A].machine.outgoing()[&number].clone();
    let slots = three.sites[&A].machine.epochs_to_give(number, &one);
    let taken_back = SourceStep::Abort { refused: false };
    three.at(A).run(Command::Global(GlobalCommand::Source { number, step: taken_back })).unwrap();
    let begin = DestinationStep::Begin { slots, open_from: number, pinned: false };
    let id = MoveId { from: A, number };
    three
        .at(C)
        .run(Command::Global(GlobalCommand::Destination { id, step: begin.clone() }))
        .unwrap();
    assert_eq!(three.sites[&C].machine.arrivals().len(), 1);
    three.change(B, &RegistryChange::Remove(A)).unwrap();
    three.hears(C);
    assert_eq!(three.sites[&C].machine.arrivals().len(), 0);
    let again = three.at(C).run(Command::Global(GlobalCommand::Destination { id, step: begin }));
    assert_eq!(again, Err(Refusal::Move(model::MoveError::Refused)));
}

#[test]
fn what_came_back_is_not_given_by_the_move_it_was_taken_from() {
    let mut three = Three::new();
    three.put("x", "1");
    three.put("y", "1");
    let begin = |slots: SlotSet, to| {
        let step = SourceStep::Begin { slots, to, pinned: false };
        Command::Global(GlobalCommand::Source { number: 0, step })
    };
    let both: SlotSet = [slot("x"), slot("y")].into_iter().collect();
    let Answer::Done(first) = three.at(A).run(begin(both, C)).unwrap() else { panic!("it begins") };
    // Another site owns one of them by now, and hands it back.
    let at = |epoch| SlotEpochs::gather([(slot("y"), Epoch::counted(epoch))]);
    three.at(A).run(Command::Global(GlobalCommand::Register { owner: B, slots: at(5) })).unwrap();
    let id = MoveId { from: B, number: 9 };
    let begin_back = DestinationStep::Begin { slots: at(6), open_from: 9, pinned: true };
    three.at(A).run(Command::Global(GlobalCommand::Destination { id, step: begin_back })).unwrap();
    let install = three.install(B, 0);
    assert_eq!(
        three.at(A).run(Command::Global(GlobalCommand::Destination { id, step: install })),
        Ok(Answer::Installed)
    );
    let one: SlotSet = [slot("y")].into_iter().collect();
    let Answer::Done(second) = three.at(A).run(begin(one, B)).unwrap() else { panic!("it begins") };
    let machine = &three.sites[&A].machine;
    let given = |number| machine.epochs_to_give(number, &machine.outgoing()[&number]);
    let x = SlotEpochs::gather([(slot("x"), Epoch::counted(2))]);
    assert_eq!((given(first.0), given(second.0)), (x, at(7)), "or two sites would serve it");
}

#[test]
fn a_site_does_not_go_while_who_has_its_copies_leaves() {
    let mut three = Three::new();
    three.change(B, &RegistryChange::Leave(C)).unwrap();
    let gone = RegistryChange::RemoveTo { site: B, destinations: vec![C] };
    let leaves = RegistryError::ReceiverLeaves(SiteName::new("c").unwrap());
    assert_eq!(three.change(B, &gone), Err(Refusal::Registry(leaves)));
    let open = RegistryChange::OpenFailover { lost: A, without: Vec::new() };
    three.change(B, &open).unwrap();
    let gone = RegistryChange::RemoveTo { site: B, destinations: Vec::new() };
    assert!(matches!(
        three.change(B, &gone),
        Err(Refusal::Registry(RegistryError::FailoverOpen(_)))
    ));
}

#[test]
fn a_failover_takes_what_was_frozen_for_a_site_that_left_meanwhile() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.give("x", A, C, "frozen");
    three.promote(true, &[], &[]).unwrap();
    assert_eq!(three.held(B, "x"), Ok(Some("1".into())));
    three.change(B, &RegistryChange::Remove(C)).unwrap();
    three.hears(A);
    let owned = three.sites[&A].machine.token(slot("x"));
    assert!(matches!(owned, Token::Gone { to: B, .. }), "{owned:?}");
    let copy = three.sites[&A].machine.copy_of(slot("x"));
    assert_eq!(copy, Some(SlotCopy::retained(Epoch::counted(1), A)));
    assert!(three.sites[&A].machine.outgoing().is_empty());
}

#[test]
fn what_is_frozen_is_served_again_only_when_its_receiver_has_left() {
    let mut three = Three::new();
    three.put("x", "1");
    let number = three.give("x", A, C, "frozen");
    let again = Epoch::counted(3);
    let slots = SlotEpochs::gather([(slot("x"), again)]);
    let reclaim =
        Command::Global(GlobalCommand::Source { number, step: SourceStep::Reclaim { slots } });
    assert!(three.at(A).run(reclaim.clone()).is_err(), "it may install it");
    three.change(B, &RegistryChange::Remove(C)).unwrap();
    let open = RegistryChange::OpenFailover { lost: A, without: Vec::new() };
    three.change(B, &open).unwrap();
    three.hears(A);
    assert!(three.at(A).run(reclaim.clone()).is_err(), "a failover may take it");
    let opened = three.sites[&B].machine.registry().unwrap().failovers.open.clone().unwrap();
    three.change(B, &RegistryChange::CloseFailover(opened.opened)).unwrap();
    three.hears(A);
    three.at(A).run(reclaim.clone()).unwrap();
    assert_eq!(three.sites[&A].machine.token(slot("x")), Token::Held(again));
    assert_eq!(three.held(A, "x"), Ok(Some("1".into())));
    assert!(three.at(A).run(reclaim).is_err(), "it is over");
}

#[test]
fn what_is_frozen_for_a_site_that_left_does_not_begin_empty_in_a_failover() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    // B gives it on to C, which leaves: all that is left is what B has frozen.
    three.give("x", A, B, "released");
    three.give("x", B, C, "frozen");
    three.change(B, &RegistryChange::Remove(C)).unwrap();
    let reported = three.promote(false, &[], &[]).unwrap();
    assert_eq!(reported.empty, 0, "{reported:?}");
    three.promote(true, &[], &[]).unwrap();
    assert!(matches!(three.sites[&B].machine.token(slot("x")), Token::Held(_)));
    assert!(three.sites[&B].machine.outgoing().is_empty());
}

#[test]
fn what_a_site_was_giving_when_it_was_removed_is_not_installed_any_more() {
    let mut three = Three::new();
    three.put("x", "1");
    let number = three.give("x", A, C, "frozen");
    three.change(B, &RegistryChange::Remove(A)).unwrap();
    three.hears(C);
    let step = three.install(A, 0);
    let late = three
        .at(C)
        .run(Command::Global(GlobalCommand::Destination { id: MoveId { from: A, number }, step }));
    assert_eq!(late, Err(Refusal::Move(model::MoveError::Refused)));
}
