//! Mirrors and promotions: three sites' machines, and what passes between them.

use super::super::tokens::Token;
use super::*;
use crate::global::mirroring::{MirrorDriver, Wish};
use crate::global::promotion::{Promotions, Sight, Wanted, Wish as Promoted};
use crate::site::{Origin, Ticket};
use model::{
    BackupError, Body, ClientId, DeploymentId, Epoch, Failure, Giving, KeyspaceSpec, Loss,
    MoveError, MoveId, Receiving, RegistryChange, Slot, SlotEpochs, SlotSet,
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
}

impl Three {
    fn new() -> Three {
        let [mut a, mut b, mut c] = [Site::new(), Site::new(), Site::new()];
        a.run(Command::Found { deployment: DeploymentId(7), site: entry("a") }).unwrap();
        let spec = KeyspaceSpec::linearizable_global("cars", "car:");
        a.run(Command::CreateKeyspace(spec)).unwrap();
        for name in ["b", "c"] {
            a.run(Command::ChangeRegistry(RegistryChange::Join(entry(name)))).unwrap();
        }
        let choice = model::BackupChoice::At(B);
        a.run(Command::ChangeRegistry(RegistryChange::Backup(A, choice))).unwrap();
        let registry = Box::new((**a.machine.registry().unwrap()).clone());
        b.run(Command::Enter { site: B, registry: registry.clone() }).unwrap();
        c.run(Command::Enter { site: C, registry }).unwrap();
        let sites = [(A, a), (B, b), (C, c)].into();
        Three { sites, driver: MirrorDriver::new(0), now: Duration::ZERO }
    }

    fn at(&mut self, site: SiteId) -> &mut Site {
        self.sites.get_mut(&site).unwrap()
    }

    fn put(&mut self, key: &'static str, value: &'static str) {
        self.at(A).write_in(CARS, put(key, value)).unwrap();
    }

    /// Tells B all there is to tell of A.
    fn mirror(&mut self) {
        self.driver.look_again();
        let mut quiet = 0;
        while quiet < 3 {
            self.now += Duration::from_millis(600);
            let (driver, now) = (&mut self.driver, self.now);
            let wishes = driver.advance(&self.sites[&A].machine, Some(B), now);
            quiet = if wishes.is_empty() { quiet + 1 } else { 0 };
            for wish in wishes {
                match wish {
                    Wish::Propose(command) => drop(self.at(A).run(command)),
                    Wish::Ask { id, body: Body::Write(command), .. } => {
                        // Twice: the second one changes nothing.
                        drop(self.at(B).run(command.clone()));
                        let outcome = self.at(B).run(command).map_err(Failure::Refused);
                        let machine = &self.sites[&A].machine;
                        let more = self.driver.answered(machine, id, outcome, self.now);
                        if let Some(Wish::Propose(command)) = more {
                            drop(self.at(A).run(command));
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// What the mirror says of a key.
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

    /// Asks B to take over from A, which does not answer; nor does anybody who is `silent`.
    fn promote(
        &mut self,
        accept: bool,
        silent: &[SiteId],
        without: &[SiteId],
    ) -> Result<Loss, Failure> {
        let mut promotions = Promotions::default();
        let silent = [&[A], silent].concat();
        let heard_since = move |site: SiteId, _| !silent.contains(&site);
        let origin = Origin::Client(Ticket(1));
        let wanted = Wanted {
            origin,
            lost: A,
            without: without.to_vec(),
            accept,
            deadline: Duration::from_secs(1_000_000),
        };
        let mut wanted = Some(wanted);
        let mut answers: Vec<(u64, Result<Answer, Failure>)> = Vec::new();
        loop {
            self.now += Duration::from_secs(1);
            let machine = &self.sites[&B].machine;
            let registry = machine.registry().unwrap().clone();
            let sight = Sight {
                now: self.now,
                own: B,
                registry: &registry,
                mirror: machine.mirrors().get(&A),
                revision: machine.revision().0,
                in_step_ms: 5,
                heard_since: &heard_since,
            };
            let mut wishes = match wanted.take() {
                Some(wanted) => promotions.want(wanted, &sight),
                None => promotions.advance(A, &sight),
            };
            for (id, outcome) in answers.drain(..) {
                wishes.extend(promotions.answered(id, outcome, &sight));
            }
            for wish in wishes {
                let (id, site, command) = match wish {
                    Promoted::Call(_) => continue,
                    Promoted::Ask { id, to, body: Body::Write(command) } => (id, to, command),
                    Promoted::Here { id, command } => (id, B, command),
                    Promoted::Change { id, change } => {
                        self.change(B, &change);
                        let registry =
                            Box::new((**self.sites[&B].machine.registry().unwrap()).clone());
                        answers.push((id, Ok(Answer::Registered { site: B, registry })));
                        continue;
                    }
                    Promoted::Settle(_, Ok(Answer::Loss(loss))) => return Ok(*loss),
                    Promoted::Settle(_, outcome) => return Err(outcome.unwrap_err()),
                    other => panic!("{other:?}"),
                };
                let outcome = self.at(site).run(command).map_err(Failure::Refused);
                answers.push((id, outcome));
            }
        }
    }

    /// Registrars have chosen a change that a site proposed.
    fn change(&mut self, site: SiteId, change: &RegistryChange) {
        let mut registry = (**self.sites[&site].machine.registry().unwrap()).clone();
        registry.change(change).unwrap();
        registry.version.round += 1;
        registry.version.site = site;
        self.at(site).run(Command::LearnRegistry(Box::new(registry))).unwrap();
    }

    /// A site hears of the registry that B has.
    fn hears(&mut self, site: SiteId) {
        let registry = Box::new((**self.sites[&B].machine.registry().unwrap()).clone());
        self.at(site).run(Command::LearnRegistry(registry)).unwrap();
    }

    /// Hands a key's slot from one site to another; `until`: how far that comes.
    fn give(&mut self, key: &str, from: SiteId, to: SiteId, until: &str) -> u64 {
        let slots: SlotSet = [slot(key)].into_iter().collect();
        let begin = Giving::Begin { slots, to, pinned: false };
        let number = match self.at(from).run(Command::Giving { number: 0, step: begin }).unwrap() {
            Answer::Done(number) => number.0,
            other => panic!("{other:?}"),
        };
        let one = self.sites[&from].machine.giving()[&number].clone();
        let slots = self.sites[&from].machine.epochs_to_give(&one);
        let id = MoveId { from, number };
        let begin = Receiving::Begin { slots, open_from: number, pinned: false };
        self.at(to).run(Command::Receiving { id, step: begin }).unwrap();
        self.at(from).run(Command::Giving { number, step: Giving::Freeze }).unwrap();
        if until == "frozen" {
            return number;
        }
        let install = self.install(from, 0);
        self.at(to).run(Command::Receiving { id, step: install }).unwrap();
        if until == "installed" {
            return number;
        }
        self.at(from).run(Command::Giving { number, step: Giving::Release }).unwrap();
        number
    }

    /// What a site keeps of a move is safe elsewhere.
    fn forget(&mut self, site: SiteId, number: u64) -> Result<Answer, Refusal> {
        self.at(site).run(Command::Giving { number, step: Giving::Forget })
    }

    fn install(&self, from: SiteId, pieces: u64) -> Receiving {
        let machine = &self.sites[&from].machine;
        Receiving::Install {
            pieces,
            log_time_ms: machine.log_time_ms(),
            revision: machine.revision(),
            registry: None,
        }
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
    assert_eq!((mirror.holds, mirror.whole.len(), mirror.keys()), (16_384, 16_384, 3));
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
    assert_eq!(three.mirrored("x"), Err(Refusal::NotHeld(slot("x"))));
    assert_eq!(three.sites[&B].machine.mirror_of(slot("x")), None);
    three.at(C).write_in(CARS, put("x", "at c")).unwrap();
    let number = three.at(C).machine.revision().0;
    three.give("x", C, A, "released");
    assert!(number > 0);
    three.put("x", "back");
    three.mirror();
    assert_eq!(three.mirrored("x"), Ok(Some("back".into())));
    let whole = &three.sites[&B].machine.mirrors()[&A].whole;
    assert_eq!(whole[&slot("x")], Epoch(3));
}

#[test]
fn whoever_is_not_the_backup_keeps_no_mirror() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    let off = RegistryChange::Backup(A, model::BackupChoice::At(C));
    three.at(A).run(Command::ChangeRegistry(off)).unwrap();
    let registry = Box::new((**three.sites[&A].machine.registry().unwrap()).clone());
    three.at(B).run(Command::LearnRegistry(registry)).unwrap();
    assert!(three.sites[&B].machine.mirrors().is_empty());
    let begin = Command::Mirror { from: A, number: 1_000, step: model::Mirroring::Begin };
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
    let old = Command::Mirror { from: A, number: first.number, step: model::Mirroring::Begin };
    assert_eq!(three.at(B).run(old), Err(Refusal::Backup(BackupError::Outdated)));
}

#[test]
fn a_backup_takes_over_and_the_ghost_gives_up() {
    let mut three = Three::new();
    three.put("x", "mirrored");
    assert_eq!(three.at(A).run(add(1)), Ok(Answer::Integer(1)));
    three.mirror();
    three.put("x", "in the lag");
    three.put("y", "in the lag");
    assert_eq!(three.at(A).run(add(2)), Ok(Answer::Integer(2)));
    let told = three.promote(false, &[], &[]).unwrap();
    assert_eq!((told.done, told.holds, told.mirrored, told.keys), (false, 16_384, 16_384, 2));
    assert!(three.sites[&B].machine.fences().is_empty(), "asking changes nothing");
    let done = three.promote(true, &[], &[]).unwrap();
    assert_eq!((done.done, done.mirrored, done.empty), (true, 16_384, 0));
    assert_eq!(three.held(B, "x"), Ok(Some("mirrored".into())));
    assert_eq!(three.held(B, "y"), Ok(None));
    assert_eq!(three.sites[&B].machine.token(slot("x")), Token::Held(Epoch(1).far_on()));
    // What is known of requests came along; what was in the lag was never applied here.
    assert_eq!(three.at(B).run(add(1)), Ok(Answer::Integer(1)));
    assert_eq!(three.at(B).run(add(2)), Ok(Answer::Integer(2)));
    let Ok(Answer::Put { version, .. }) = three.at(B).write_in(CARS, put("x", "after")) else {
        panic!("not put")
    };
    assert!(version > three.sites[&A].machine.revision(), "no version is given twice");
    // The others know where it is, and take nothing from before.
    three.hears(C);
    assert_eq!(three.sites[&C].machine.holder(slot("x")), Some((B, Epoch(1).far_on())));
    let id = MoveId { from: A, number: 1_000 };
    let begin = Receiving::Begin {
        slots: SlotEpochs(vec![("77".parse().unwrap(), Epoch(2).far_on())]),
        open_from: 1_000,
        pinned: false,
    };
    let begin = Command::Receiving { id, step: begin };
    assert_eq!(three.at(C).run(begin), Err(Refusal::Move(MoveError::Refused)));
    // The ghost serves until it hears of it, and never again.
    three.put("x", "by the ghost");
    three.hears(A);
    assert_eq!(three.held(A, "x"), Err(Refusal::NotHeld(slot("x"))));
    assert_eq!(three.sites[&A].machine.holder(slot("x")), Some((B, Epoch(1).far_on())));
    assert_eq!(three.sites[&A].machine.held().len(), 0);
    for _ in 0..3 {
        three.at(A).tick();
    }
    assert_eq!(three.sites[&A].rows(tables::RECORDS), 0, "what it had is thrown away");
    assert_eq!(three.held(B, "x"), Ok(Some("after".into())));
    // It says so, and is a site like any other again.
    let from = three.sites[&A].machine.revision().next();
    let promotion = three.sites[&B].machine.registry().unwrap().backups.promotions[0].clone();
    let back = RegistryChange::Return(A, promotion.number, from);
    three.change(B, &back);
    three.hears(A);
    three.hears(C);
    three.at(B).write_in(CARS, Write::Delete { keys: vec!["x".into()] }).unwrap();
    three.at(B).write_in(CARS, Write::Delete { keys: vec!["n{t}".into()] }).unwrap();
    three.give("x", B, A, "released");
    three.put("x", "home");
    three.give("x", A, C, "released");
    for site in [A, B, C] {
        three.at(site).reopen();
    }
}

#[test]
fn what_others_hold_is_not_taken_and_what_was_on_its_way_is_settled() {
    let mut three = Three::new();
    for key in ["to c", "frozen to c", "from c"] {
        three.put(key, "1");
        three.at(A).write_in(CARS, Write::Delete { keys: vec![key.into()] }).unwrap();
    }
    three.mirror();
    // All of this is news that the mirror has not heard.
    three.give("to c", A, C, "installed");
    let frozen = three.give("frozen to c", A, C, "frozen");
    three.give("from c", A, C, "released");
    three.at(C).write_in(CARS, put("from c", "at c")).unwrap();
    three.at(C).write_in(CARS, Write::Delete { keys: vec!["from c".into()] }).unwrap();
    three.give("from c", C, A, "installed");
    let done = three.promote(true, &[], &[]).unwrap();
    // C holds one slot, and still another one that it was about to give away.
    assert_eq!((done.mirrored, done.empty), (16_382, 0));
    three.hears(C);
    assert_eq!(three.sites[&C].machine.token(slot("to c")), Token::Held(Epoch(2)));
    assert_eq!(three.sites[&C].machine.token(slot("from c")), Token::Held(Epoch(3).far_on()));
    assert_eq!(three.sites[&B].machine.token(slot("frozen to c")), Token::Held(Epoch(1).far_on()));
    let id = MoveId { from: A, number: frozen };
    let install = three.install(A, 0);
    let late = three.at(C).run(Command::Receiving { id, step: install });
    assert_eq!(late, Err(Refusal::Move(MoveError::Refused)), "what comes late is not taken");
    three.hears(A);
    let held = |site: SiteId, key: &str| three.sites[&site].machine.token(slot(key)).serves();
    for key in ["to c", "frozen to c", "from c", "elsewhere"] {
        let holders: Vec<_> = [A, B, C].into_iter().filter(|site| held(*site, key)).collect();
        assert_eq!(holders.len(), 1, "{key}: {holders:?}");
    }
}

#[test]
fn slots_that_are_not_mirrored_whole_begin_empty_and_that_is_said() {
    let mut three = Three::new();
    three.give("x", A, C, "released");
    three.mirror();
    let number = three.give("x", C, A, "released");
    three.put("x", "never mirrored");
    // Too early: the mirror does not have it.
    three.forget(C, number).unwrap();
    let done = three.promote(true, &[], &[]).unwrap();
    assert_eq!((done.mirrored, done.empty), (16_383, 1));
    assert_eq!(three.held(B, "x"), Ok(None));
    assert_eq!(three.sites[&B].machine.token(slot("x")), Token::Held(Epoch(3).far_on()));
}

#[test]
fn what_comes_too_late_for_the_mirror_is_with_its_giver_again() {
    let mut three = Three::new();
    for key in ["x", "y"] {
        three.give(key, A, C, "released");
    }
    three.at(C).write_in(CARS, put("x", "at c")).unwrap();
    let versions = three.sites[&C].machine.revision();
    three.mirror();
    let number = three.give("x", C, A, "released");
    three.give("y", C, A, "released");
    assert_eq!(three.held(C, "x"), Err(Refusal::NotHeld(slot("x"))), "it is A's");
    assert_eq!(three.sites[&C].machine.reader().count(CARS).unwrap(), 0);
    three.at(C).reopen();
    three.put("x", "in the lag");
    let done = three.promote(true, &[], &[]).unwrap();
    assert_eq!((done.mirrored, done.empty), (16_382, 0));
    // Who was fenced may say what it likes.
    assert_eq!(three.forget(C, number), Err(Refusal::Move(MoveError::NoReceiver)));
    let far = Epoch(3).far_on();
    assert_eq!(three.sites[&B].machine.holder(slot("x")), Some((C, far)));
    three.hears(C);
    assert_eq!(three.sites[&C].machine.token(slot("x")), Token::Held(far));
    assert_eq!(three.held(C, "x"), Ok(Some("at c".into())));
    assert_eq!(three.held(C, "y"), Ok(None));
    assert_eq!(three.forget(C, number), Err(Refusal::Move(MoveError::NoMove(number))));
    let Ok(Answer::Put { version, .. }) = three.at(C).write_in(CARS, put("x", "after")) else {
        panic!("not put")
    };
    assert!(version.0 > versions.0 + (1 << 31), "no version is given twice");
    three.at(C).reopen();
    // The ghost knows where to send whoever asks.
    three.hears(A);
    assert_eq!(three.sites[&A].machine.holder(slot("x")), Some((C, far)));
}

#[test]
fn what_is_safe_or_has_come_back_is_kept_no_more() {
    let mut three = Three::new();
    for key in ["x", "y", "z"] {
        three.give(key, A, C, "released");
        three.at(C).write_in(CARS, put(key, "at c")).unwrap();
    }
    let timed = put_with("z", "t", Condition::Always, Expiry::AtMs(5_000));
    three.at(C).write_in(CARS, timed).unwrap();
    let before = three.sites[&C].rows(tables::RECORDS);
    let numbers = ["x", "y", "z"].map(|key| three.give(key, C, A, "released"));
    assert_eq!(three.sites[&C].rows(tables::RECORDS), before, "all of it is kept");
    three.forget(C, numbers[0]).unwrap();
    three.give("y", A, C, "released");
    assert_eq!(three.sites[&C].machine.kept().keys().collect::<Vec<_>>(), [&numbers[2]]);
    assert_eq!(three.sites[&C].machine.open_from(), Some(numbers[2]));
    assert_eq!(three.held(C, "y"), Ok(None), "what came back is what is there");
    three.at(C).now_ms = 6_000;
    for _ in 0..3 {
        three.at(C).tick();
    }
    assert_eq!(three.sites[&C].rows(tables::RECORDS), 0, "kept records expire, too");
    three.at(C).reopen();
    let open = three.give("y", C, A, "installed");
    let not_ready = Refusal::Move(MoveError::NotReady("the move has not ended here"));
    assert_eq!(three.forget(C, open), Err(not_ready));
}

#[test]
fn who_cannot_be_asked_must_be_named() {
    let mut three = Three::new();
    three.put("x", "1");
    three.put("y", "1");
    three.mirror();
    // C has a slot that B does not know of, and cannot be asked.
    three.give("x", A, C, "installed");
    let silent = Failure::Refused(Refusal::Backup(BackupError::Silent("c".into())));
    assert_eq!(three.promote(true, &[C], &[]), Err(silent));
    assert_eq!(three.promote(false, &[C], &[]).unwrap().silent, [C]);
    let done = three.promote(true, &[C], &[C]).unwrap();
    assert_eq!((done.done, done.mirrored), (true, 16_384));
    // Now both hold it, at epochs that are far apart; the lower one gives way.
    assert_eq!(three.sites[&C].machine.token(slot("x")), Token::Held(Epoch(2)));
    three.hears(C);
    let far = Epoch(1).far_on();
    assert_eq!(three.sites[&C].machine.token(slot("x")), Token::Gone { epoch: far, to: B });
    assert_eq!(three.held(B, "x"), Ok(Some("1".into())));
}

#[test]
fn two_backups_do_not_both_take_over() {
    let mut three = Three::new();
    three.mirror();
    let fence = |by, number, step| Command::Fence { lost: A, by, number, step };
    three.at(C).run(fence(C, 9, model::Fencing::Set)).unwrap();
    let fenced = Failure::Refused(Refusal::Backup(BackupError::Fenced(C)));
    assert_eq!(three.promote(true, &[], &[]), Err(fenced));
    // What B had fenced is free again, and it takes over when C gives up.
    assert!(
        !three.sites[&B].machine.fences().contains_key(&A)
            || three.sites[&B].machine.fences()[&A].0 == B
    );
    three.at(C).run(fence(C, 9, model::Fencing::Lift)).unwrap();
    assert!(three.promote(true, &[], &[]).unwrap().done);
    let again = Failure::Refused(Refusal::Backup(BackupError::Promoted(B)));
    assert_eq!(three.promote(true, &[], &[]), Err(again));
}

#[test]
fn nothing_passes_to_or_from_a_fenced_site() {
    let mut three = Three::new();
    three.mirror();
    let number = three.give("x", A, C, "frozen");
    let fence = |step| Command::Fence { lost: A, by: B, number: 9, step };
    three.at(C).run(fence(model::Fencing::Set)).unwrap();
    three.at(B).run(fence(model::Fencing::Set)).unwrap();
    let install = three.install(A, 0);
    let install = Command::Receiving { id: MoveId { from: A, number }, step: install };
    assert_eq!(three.at(C).run(install), Err(Refusal::Move(MoveError::Refused)));
    let own = three.sites[&A].machine.own_mirror().unwrap().number;
    let begin = Command::Mirror { from: A, number: own, step: model::Mirroring::Begin };
    assert_eq!(three.at(B).run(begin.clone()), Err(Refusal::Backup(BackupError::Outdated)));
    three.at(B).run(fence(model::Fencing::Lift)).unwrap();
    assert!(three.at(B).run(begin).is_ok());
    // The lost site itself is not to be fenced.
    assert!(three.at(A).run(fence(model::Fencing::Set)).is_err());
}

#[test]
fn a_site_that_the_others_have_removed_serves_nothing() {
    let mut three = Three::new();
    three.put("x", "1");
    three.mirror();
    three.promote(true, &[], &[]).unwrap();
    three.change(B, &RegistryChange::Remove(A));
    three.hears(A);
    assert_eq!(three.sites[&A].machine.held().len(), 0);
    assert_eq!(three.held(A, "x"), Err(Refusal::NotHeld(slot("x"))));
}
