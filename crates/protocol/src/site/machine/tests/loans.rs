//! Groups that are lent: the machines of up to three sites, and what passes between them.

use super::super::global::copying::Position;
use super::moves::{A, B};
use super::*;
use crate::global::ownership::lending::Part;
use model::{
    Ballot, ClientId, DeploymentId, DestinationStep, Epoch, Group, Keyspace, KeyspaceSpec, Lending,
    Loan, LoanOffer, LoanState, LoanTaken, MoveError, MoveId, Placement, ReadPoint, Registry,
    RegistryChange, ScanFilter, SiteEntry, Slot,
};

pub(super) const CARS: KeyspaceId = KeyspaceId(1);
pub(super) const C: SiteId = SiteId(3);

pub(super) fn lending(step: Lending) -> Command {
    Command::Global(GlobalCommand::Lending(step))
}

pub(super) fn group(key: &'static str) -> Group {
    Group::of_key(CARS, &key.into())
}

pub(super) fn set(key: &'static str, value: &'static str) -> Command {
    Command::Write { keyspace: CARS, write: put(key, value), request: None }
}

pub(super) fn add(key: &'static str, sequence: u64) -> Command {
    let request = RequestId { client: ClientId(8), sequence, acknowledged_below: 0 };
    let write = Write::Add { key: key.into(), delta: 1 };
    Command::Write { keyspace: CARS, write, request: Some(request) }
}

impl Site {
    pub(super) fn value(&self, key: &'static str) -> Result<Option<String>, Refusal> {
        let answer = self.ask_in(CARS, Query::Get { key: key.into() })?;
        let Answer::Value(value) = answer else { panic!("{answer:?}") };
        // Past what is published, from the state alone.
        let many = Query::Exists { keys: vec![key.into(), key.into()] };
        assert_eq!(self.ask_in(CARS, many), Ok(Answer::Integer(2 * i64::from(value.is_some()))));
        Ok(value.map(|found| String::from_utf8(found.value.to_vec()).unwrap()))
    }

    pub(super) fn learns(&mut self, registry: &Registry) {
        let registry = Box::new(registry.clone());
        self.run(Command::Deployment(DeploymentCommand::LearnRegistry(registry))).unwrap();
    }

    pub(super) fn newest(&self) -> Registry {
        (*self.machine.membership().unwrap().registry).clone()
    }

    /// Every key that a scan of this site finds, in pages of so many.
    pub(super) fn keys(&self, examine_max: usize) -> Vec<String> {
        let (mut from, mut keys) = (Bytes::new(), Vec::new());
        loop {
            let filter = ScanFilter::default();
            let scan = Query::Scan { from, until: None, examine_max, filter, with_values: false };
            let Ok(Answer::Page { items, next }) = self.ask_in(CARS, scan) else { panic!() };
            let text = |item: model::Item| String::from_utf8(item.key.to_vec()).unwrap();
            keys.extend(items.into_iter().map(text));
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        assert_eq!(self.machine.reader().count(CARS).unwrap(), keys.len() as u64);
        keys.sort();
        keys
    }

    pub(super) fn part_of(&self, key: &'static str) -> Part {
        self.machine.part(&group(key)).map(|part| part.borrowed.part).unwrap_or_default()
    }

    pub(super) fn lend(&mut self, to: SiteId, key: &'static str) -> LoanOffer {
        self.run(lending(Lending::Lend { to, groups: vec![group(key)] })).unwrap();
        self.machine.offer(&group(key)).unwrap().expect("it is lent")
    }

    pub(super) fn offered_by(&self, from: SiteId, offer: &LoanOffer) -> Command {
        let (revision, log_time_ms) = (self.machine.revision(), self.machine.log_time_to_send_ms());
        lending(Lending::Offer { from, revision, log_time_ms, offers: vec![offer.clone()] })
    }

    pub(super) fn report(&self, by: SiteId, key: &'static str) -> Command {
        let parts = self.machine.loan_report(&group(key)).unwrap();
        let (revision, log_time_ms) = (self.machine.revision(), self.machine.log_time_to_send_ms());
        let parts = parts.into_iter().collect();
        lending(Lending::Report { by, revision, log_time_ms, parts })
    }

    pub(super) fn give_back(&mut self, key: &'static str) {
        let loan = self.machine.part(&group(key)).unwrap().borrowed.loan;
        self.run(lending(Lending::GiveBack { loans: vec![(group(key), loan)] })).unwrap();
    }

    pub(super) fn reopened(mut self) -> Site {
        self.reopen();
        self
    }
}

pub(super) fn taken(answer: Result<Answer, Refusal>) -> Vec<LoanTaken> {
    match answer {
        Ok(Answer::Borrowed(taken)) => taken,
        other => panic!("{other:?}"),
    }
}

/// The first site owns all slots and has keys of two groups of an adaptive keyspace.
pub(super) fn sites() -> (Site, Site, Site) {
    sites_with(Placement::Adaptive)
}

/// The same with another placement.
pub(super) fn sites_with(placement: Placement) -> (Site, Site, Site) {
    let (mut a, mut b, mut c) = (Site::new(), Site::new(), Site::new());
    let deployment = DeploymentId(7);
    a.run(Command::Deployment(DeploymentCommand::Found { deployment, site: entry("a") })).unwrap();
    for name in ["b", "c"] {
        let join = RegistryChange::Join(SiteEntry { incarnation: 1, ..entry(name) });
        a.run(Command::Deployment(DeploymentCommand::ChangeRegistry(join))).unwrap();
    }
    let mut registry = a.newest();
    let cars = KeyspaceSpec::linearizable_global("cars", "car:");
    let spec = KeyspaceSpec { placement, ..cars };
    registry.keyspaces.push(Keyspace { id: CARS, spec });
    registry.keyspace_next = CARS.0 + 1;
    registry.version.round += 1;
    a.learns(&registry);
    for (site, own) in [(&mut b, B), (&mut c, C)] {
        let registry = Box::new(registry.clone());
        site.run(Command::Deployment(DeploymentCommand::Enter { site: own, registry })).unwrap();
    }
    for (key, value) in [("x{7}", "1"), ("y{7}", "2"), ("z{8}", "3")] {
        a.run(set(key, value)).unwrap();
    }
    (a, b, c)
}

/// The owner takes the borrower's report, and the borrower follows its answer.
pub(super) fn settle(
    owner: &mut Site,
    at: SiteId,
    borrower: &mut Site,
    by: SiteId,
    key: &'static str,
) {
    let answer = owner.run(borrower.report(by, key)).unwrap();
    let Answer::Lent { revision, states, .. } = answer else { panic!("{answer:?}") };
    borrower.run(lending(Lending::Follow { owner: at, revision, states })).unwrap();
}

pub(super) fn lent(a: &mut Site, b: &mut Site, key: &'static str) -> LoanOffer {
    let offer = a.lend(B, key);
    let parts = taken(b.run(a.offered_by(A, &offer)));
    assert_eq!(parts[0].part, Part::Held);
    a.run(lending(Lending::Answered { by: B, parts })).unwrap();
    offer
}

#[test]
fn a_group_is_served_by_its_borrower_and_comes_back() {
    let (mut a, mut b, _) = sites();
    let slot = Slot::of_key(b"x{7}");
    let offer = a.lend(B, "x{7}");
    assert_eq!(a.value("x{7}"), Err(Refusal::NotHeld(slot)));
    assert_eq!(a.run(set("y{7}", "9")), Err(Refusal::NotHeld(slot)));
    assert_eq!(a.value("z{8}"), Ok(Some("3".into())), "the other groups stay");
    assert_eq!(b.value("x{7}"), Err(Refusal::NotHeld(slot)), "it has not arrived");
    // Twice: the second one changes nothing.
    for _ in 0..2 {
        let parts = taken(b.run(a.offered_by(A, &offer)));
        assert_eq!((parts[0].part, parts[0].loan), (Part::Held, offer.row.loan));
        a.run(lending(Lending::Answered { by: B, parts })).unwrap();
        b = b.reopened();
    }
    assert_eq!(a.machine.offered().count(), 0);
    assert_eq!(b.value("x{7}"), Ok(Some("1".into())));
    b.run(set("x{7}", "4")).unwrap();
    b.run(set("w{7}", "5")).unwrap();
    b.write_in(CARS, Write::Delete { keys: vec!["y{7}".into()] }).unwrap();
    assert_eq!(
        (a.keys(1), b.keys(1)),
        (vec!["z{8}".to_owned()], vec!["w{7}".into(), "x{7}".into()])
    );

    // Its writes come to the slot's owner, which does not serve them.
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(A, &group("7"))]);
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(b.machine.parts_due().count(), 0);
    assert_eq!(
        (a.keys(5), a.value("x{7}")),
        (vec!["z{8}".to_owned()], Err(Refusal::NotHeld(slot)))
    );

    b.run(set("x{7}", "6")).unwrap();
    b.give_back("x{7}");
    assert_eq!(b.value("x{7}"), Err(Refusal::NotHeld(slot)), "it waits for the owner");
    let late = b.report(B, "x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    let all = || vec!["w{7}".to_owned(), "x{7}".into(), "z{8}".into()];
    assert_eq!((a.keys(2), a.value("x{7}")), (all(), Ok(Some("6".into()))));
    a.run(set("x{7}", "7")).unwrap();
    a.run(late).unwrap();
    assert_eq!(
        a.reopened().value("x{7}"),
        Ok(Some("7".into())),
        "a late report brings nothing back"
    );

    // What was borrowed stays until the owner's mirror has it.
    assert_eq!(b.part_of("x{7}"), Part::Retained);
    let back = b.machine.part(&group("x{7}")).unwrap().back.unwrap();
    for (position, part) in [(back - 1, Part::Retained), (back, Part::Never)] {
        let slots = model::SlotEpochs::gather([(slot, Epoch::counted(1))]);
        let supersede = GlobalCommand::Supersede { slots, generation: 9, position };
        b.run(Command::Global(supersede)).unwrap();
        assert_eq!(b.part_of("x{7}"), part);
    }
    assert_eq!(b.keys(3), Vec::<String>::new());
}

#[test]
fn no_offer_is_taken_that_is_late_or_for_another_site() {
    let (mut a, mut b, mut c) = sites();
    let first = lent(&mut a, &mut b, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(taken(b.run(a.offered_by(A, &first)))[0].part, Part::Retained, "it had that loan");
    let second = a.lend(C, "x{7}");
    assert!(second.row.loan > first.row.loan);
    assert_eq!(
        taken(b.run(a.offered_by(A, &second)))[0].part,
        Part::Retained,
        "it is for another one"
    );
    assert_eq!(taken(c.run(a.offered_by(A, &second)))[0].part, Part::Held);
    assert_eq!(c.value("x{7}"), Ok(Some("4".into())));
    // A report of the loan before is not one of this.
    let answer = a.run(b.report(B, "x{7}")).unwrap();
    let Answer::Lent { states, .. } = answer else { panic!("{answer:?}") };
    let [LoanState { stands: false, loan, .. }] = states[..] else { panic!("{states:?}") };
    assert_eq!(loan, first.row.loan);
    // The row stays until the borrower is past it.
    let part = LoanTaken { group: group("7"), loan: second.row.loan, part: Part::Held };
    a.run(lending(Lending::Answered { by: C, parts: vec![part.clone()] })).unwrap();
    assert!(a.value("x{7}").is_err());
    let past = Loan { count: part.loan.count + 1, ..part.loan };
    let parts = vec![LoanTaken { loan: past, part: Part::Never, ..part }];
    a.run(lending(Lending::Answered { by: C, parts })).unwrap();
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())), "the borrower has something else");
}

#[test]
fn a_repeated_write_is_applied_once_wherever_the_group_is() {
    let (mut a, mut b, _) = sites();
    assert_eq!(a.run(add("n{7}", 1)), Ok(Answer::Integer(1)));
    lent(&mut a, &mut b, "n{7}");
    assert_eq!(b.run(add("n{7}", 1)), Ok(Answer::Integer(1)), "done by the owner");
    assert_eq!(b.run(add("n{7}", 2)), Ok(Answer::Integer(2)));
    let mut b = b.reopened();
    b.give_back("n{7}");
    settle(&mut a, A, &mut b, B, "n{7}");
    assert_eq!(a.run(add("n{7}", 2)), Ok(Answer::Integer(2)), "done by the borrower");
    assert_eq!(a.run(add("n{7}", 3)), Ok(Answer::Integer(3)));
}

/// What WATCH finds of an absent key: its version, and the moment.
fn watch(site: &Site) -> (Revision, ReadPoint) {
    match site.ask_in(CARS, Query::Watch { keys: vec!["q{7}".into()] }) {
        Ok(Answer::Watched { versions, point }) => (versions[0], point),
        other => panic!("{other:?}"),
    }
}

/// What EXEC does with it.
fn put_if(site: &mut Site, (version, point): (Revision, ReadPoint)) -> Answer {
    let key = Bytes::from("q{7}");
    let guards = vec![model::Guard { key, version, absent_since: Some(point) }];
    let steps = vec![model::Step::Write(put("q{7}", "v"))];
    site.run(Command::Transaction { keyspace: CARS, guards, steps, request: None }).unwrap()
}

#[test]
fn versions_go_on_and_what_was_watched_does_not_outlive_a_loan() {
    let (mut a, mut b, _) = sites();
    let at_home = watch(&a);
    let version = a.machine.revision();
    lent(&mut a, &mut b, "x{7}");
    assert_eq!(put_if(&mut b, at_home), Answer::Aborted, "it was watched elsewhere");
    let here = watch(&b);
    assert!(matches!(put_if(&mut b, here), Answer::Steps(_)));
    b.write_in(CARS, Write::Delete { keys: vec!["q{7}".into()] }).unwrap();
    b.run(set("x{7}", "5")).unwrap();
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!(put_if(&mut a, at_home), Answer::Aborted, "it was there in between");
    let again = watch(&a);
    assert!(matches!(put_if(&mut a, again), Answer::Steps(_)));
    let versions = a.ask_in(CARS, Query::Versions { keys: vec!["x{7}".into()] });
    let Ok(Answer::Versions(versions)) = versions else { panic!("{versions:?}") };
    assert!(versions[0] > version && a.machine.revision() > versions[0]);
}

/// The owner may have lost what it was given of the loan, and is given all of it again; what is
/// watched at the borrower holds meanwhile.
#[test]
fn what_was_watched_before_a_loan_does_not_hold_after_a_repeated_offer() {
    let (mut a, mut b, _) = sites();
    let write_and_remove = |site: &mut Site| {
        site.run(set("q{7}", "1")).unwrap();
        site.write_in(CARS, Write::Delete { keys: vec!["q{7}".into()] }).unwrap();
    };
    let at_home = watch(&a);
    write_and_remove(&mut a);
    let offer = lent(&mut a, &mut b, "x{7}");
    let in_loan = watch(&b);
    assert_eq!(taken(b.run(a.offered_by(A, &offer)))[0].part, Part::Held);
    assert_eq!(put_if(&mut b, at_home), Answer::Aborted, "it was there in between");
    assert!(matches!(put_if(&mut b, in_loan), Answer::Steps(_)));
    b.write_in(CARS, Write::Delete { keys: vec!["q{7}".into()] }).unwrap();
    let in_loan = watch(&b);
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    write_and_remove(&mut a);
    let offer = lent(&mut a, &mut b, "x{7}");
    assert_eq!(taken(b.run(a.offered_by(A, &offer)))[0].part, Part::Held);
    assert_eq!(put_if(&mut b, in_loan), Answer::Aborted, "it was watched in another loan");
}

#[test]
fn a_key_expires_where_it_is_served_and_as_late_as_it_would_have() {
    let (mut a, mut b, _) = sites();
    b.now_ms = 50_000;
    let with_expiry = put_with("x{7}", "1", Condition::Always, Expiry::AfterMs(1_000));
    a.write_in(CARS, with_expiry).unwrap();
    a.now_ms = 1_400;
    a.tick();
    lent(&mut a, &mut b, "x{7}");
    b.now_ms = 50_599;
    b.tick();
    assert_eq!(b.value("x{7}"), Ok(Some("1".into())));
    // Its copy at home goes by itself, and comes again with the next report if it was prolonged.
    a.now_ms = 3_000;
    a.tick();
    let expiry = Expiry::AfterMs(10_000);
    let condition = model::ExpiryCondition::Always;
    b.write_in(CARS, Write::SetExpiry { key: "x{7}".into(), expiry, condition }).unwrap();
    settle(&mut a, A, &mut b, B, "x{7}");
    b.now_ms = 60_599;
    b.tick();
    assert_eq!(b.value("x{7}"), Ok(None));
    assert_eq!(b.keys(5), ["y{7}"]);
    assert_eq!(b.machine.parts_due().count(), 1, "the owner gets to know");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!((a.value("x{7}"), a.keys(5)), (Ok(None), vec!["y{7}".to_owned(), "z{8}".into()]));
}

#[test]
fn keys_of_several_groups_are_not_one_request() {
    let (mut a, b, _) = sites();
    // Two tags of one slot.
    let other = (0..)
        .map(|n| format!("{{{n}}}"))
        .find(|key| Slot::of_key(key.as_bytes()) == Slot::of_key(b"{7}") && key != "{7}");
    let keys: Vec<Bytes> = vec!["{7}".into(), other.unwrap().into()];
    assert_eq!(a.ask_in(CARS, Query::GetMany { keys: keys.clone() }), Err(Refusal::CrossSlot));
    assert_eq!(a.write_in(CARS, Write::Delete { keys: keys.clone() }), Err(Refusal::CrossSlot));
    drop(b);
}

/// Hands slots of the first site to another one.
pub(super) fn hand_over(a: &mut Site, to: &mut Site, at: SiteId, key: &'static str) {
    hand_over_slowly(a, to, at, key, |_| {});
}

/// The same; something happens at the destination before it owns them.
fn hand_over_slowly(
    a: &mut Site,
    to: &mut Site,
    at: SiteId,
    key: &'static str,
    meanwhile: impl FnOnce(&mut Site),
) {
    let slots = [Slot::of_key(key.as_bytes())].into_iter().collect();
    let begin = model::SourceStep::Begin { slots, to: at, pinned: false };
    let begin = Command::Global(GlobalCommand::Source { number: 0, step: begin });
    let Ok(Answer::Done(number)) = a.run(begin) else { panic!() };
    let (number, id) = (number.0, MoveId { from: A, number: number.0 });
    let one = a.machine.outgoing()[&number].clone();
    let slots = a.machine.epochs_to_give(number, &one);
    let receive =
        |to: &mut Site, step| to.run(Command::Global(GlobalCommand::Destination { id, step }));
    receive(to, DestinationStep::Begin { slots, open_from: number, pinned: false }).unwrap();
    let (mut at, mut sequence) = (Position::first(&one), 0);
    for round in 0..2 {
        loop {
            let chunk = a.machine.chunk(number, &one, &at).unwrap();
            if chunk.items.is_empty() && chunk.next == at {
                break;
            }
            let resume = wire::row::encode(&chunk.next).into();
            receive(to, DestinationStep::Chunk { sequence, resume, items: chunk.items }).unwrap();
            (at, sequence) = (chunk.next, sequence + 1);
        }
        if round == 0 {
            a.give(number, model::SourceStep::Freeze).unwrap();
        }
    }
    meanwhile(to);
    let revision = a.machine.revision();
    let install = DestinationStep::Install { chunks: sequence, revision };
    assert_eq!(receive(to, install), Ok(Answer::Installed));
    a.give(number, model::SourceStep::Release).unwrap();
}

#[test]
fn a_slot_moves_under_its_lent_groups() {
    let (mut a, mut b, mut c) = sites();
    let offer = lent(&mut a, &mut b, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    hand_over(&mut a, &mut c, C, "x{7}");
    let mut c = c.reopened();
    assert_eq!(c.machine.borrower_of(&group("7")), Some((B, offer.row.loan, false)));
    assert!(c.value("x{7}").is_err() && a.value("x{7}").is_err());
    assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
    // The former owner names the next one.
    let answer = a.run(b.report(B, "x{7}")).unwrap();
    let Answer::Lent { states, elsewhere, .. } = answer else { panic!("{answer:?}") };
    assert_eq!((states, elsewhere[0].1.0), (vec![], C));
    b.give_back("x{7}");
    settle(&mut c, C, &mut b, B, "x{7}");
    assert_eq!((c.value("x{7}"), b.part_of("x{7}")), (Ok(Some("4".into())), Part::Retained));
    assert!(a.machine.lent().next().is_none(), "its rows are its copy's");
}

/// The former owner leaves then: a borrower with nothing to report has no other way to learn the
/// new one.
#[test]
fn an_idle_borrower_learns_the_new_owner_by_its_offer() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    hand_over(&mut a, &mut c, C, "x{7}");
    let offer = c.machine.offer(&group("7")).unwrap().expect("it is asked again");
    let parts = taken(b.run(c.offered_by(C, &offer)));
    assert_eq!((parts[0].part, parts[0].loan), (Part::Held, offer.row.loan));
    assert_eq!(b.machine.part(&group("7")).unwrap().owner, C);
    b.run(set("x{7}", "4")).unwrap();
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(C, &group("7"))]);
    // An offer of the owner before, that is late, changes nothing.
    let mut late = offer.clone();
    late.epoch = Epoch::counted(1);
    taken(b.run(a.offered_by(A, &late)));
    assert_eq!(b.machine.part(&group("7")).unwrap().owner, C);
    settle(&mut c, C, &mut b, B, "x{7}");
    assert_eq!(b.machine.parts_due().count(), 0);
}

#[test]
fn keys_that_expire_while_their_slot_moves_are_not_counted_at_its_next_owner() {
    let (mut a, mut b, mut c) = sites();
    let with_expiry = put_with("v{7}", "1", Condition::Always, Expiry::AfterMs(1_000));
    a.write_in(CARS, with_expiry).unwrap();
    lent(&mut a, &mut b, "x{7}");
    hand_over_slowly(&mut a, &mut c, C, "x{7}", |c| {
        c.now_ms += 5_000;
        c.tick();
    });
    // The scan has nothing of the lent group, and counts as much.
    assert_eq!(c.keys(5), Vec::<String>::new());
}

#[test]
fn the_borrower_becomes_the_owner_of_the_slot() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "n{7}");
    assert_eq!(b.run(add("n{7}", 1)), Ok(Answer::Integer(1)));
    hand_over(&mut a, &mut b, B, "n{7}");
    let mut b = b.reopened();
    assert_eq!((b.value("n{7}"), b.part_of("n{7}")), (Ok(Some("1".into())), Part::Retained));
    assert_eq!(b.run(add("n{7}", 1)), Ok(Answer::Integer(1)), "done as the borrower");
    assert_eq!(b.keys(2), ["n{7}", "x{7}", "y{7}"]);
}

#[test]
fn a_dropped_keyspace_takes_its_loans_along() {
    let (mut a, mut b, _) = sites();
    lent(&mut a, &mut b, "x{7}");
    let mut registry = a.newest();
    registry.keyspaces.clear();
    registry.version = Ballot { round: registry.version.round + 1, ..registry.version };
    for site in [&mut a, &mut b] {
        site.learns(&registry);
        assert!(site.machine.lent().next().is_none() && site.machine.parts().next().is_none());
        assert_eq!((site.rows(tables::LENT), site.rows(tables::PARTS)), (0, 0));
    }
}

/// The registry, with a failover that is open, or one that is decided so.
pub(super) fn failover(
    registry: &Registry,
    lost: SiteId,
    taken: Option<(SiteId, &str, bool)>,
) -> Registry {
    let mut next = registry.clone();
    next.version.round += 1;
    let version = next.version;
    let Some((by, key, has_copy)) = taken else {
        assert_eq!(next.failovers.open(version, lost, &[]), Ok(true));
        return next;
    };
    let opened = next.failovers.open.as_ref().unwrap().opened;
    let slots = [Slot::of_key(key.as_bytes())].into_iter().collect();
    let from = has_copy.then(|| (Epoch::counted(1), 0));
    assert!(next.failovers.decide(version, opened, vec![model::Taken { by, slots, from }]));
    next
}

/// What a site reports in the open failover.
pub(super) fn claims(
    site: &mut Site,
    registry: &Registry,
    lost: SiteId,
) -> Vec<(Group, model::LoanClaim)> {
    let failover = registry.failovers.open.as_ref().map(|open| open.opened);
    let registry = Box::new(registry.clone());
    match site.run(Command::Global(GlobalCommand::Inventory { registry, lost, failover })) {
        Ok(Answer::InventoryOfLoans(_, claims)) => claims,
        Ok(Answer::Inventory(_)) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// A site that is to take slots has what is claimed in the open failover.
pub(super) fn prepare(taker: &mut Site, open: &Registry, claims: Vec<(Group, model::LoanClaim)>) {
    let opened = open.failovers.open.as_ref().unwrap().opened;
    taker.run(lending(Lending::Prepare { opened, claims })).unwrap();
}

#[test]
fn a_failover_of_the_owner_adopts_what_its_borrowers_claim() {
    for is_prepared in [true, false] {
        let (mut a, mut b, mut c) = sites();
        let offer = lent(&mut a, &mut b, "x{7}");
        b.run(set("x{7}", "4")).unwrap();
        let open = failover(&a.newest(), A, None);
        let claimed = claims(&mut b, &open, A);
        assert_eq!((claimed[0].0.clone(), claimed[0].1.loan), (group("7"), offer.row.loan));
        assert_eq!(claims(&mut c, &open, A), []);
        assert_eq!(b.value("x{7}"), Ok(Some("4".into())), "it serves on meanwhile");
        let opened = open.failovers.open.as_ref().unwrap().opened;
        let other = Ballot { round: opened.round + 9, ..opened };
        let of_other = Lending::Prepare { opened: other, claims: claimed.clone() };
        assert!(c.run(lending(of_other)).is_err(), "no such failover is open");
        if is_prepared {
            prepare(&mut c, &open, claimed);
            c = c.reopened();
            assert_eq!(c.machine.claims(), 1);
        }
        let decided = failover(&open, A, Some((C, "x{7}", false)));
        for site in [&mut b, &mut c] {
            site.learns(&decided);
        }
        assert_eq!(c.machine.claims(), 0);
        assert_eq!(b.part_of("x{7}"), Part::Unconfirmed);
        assert!(b.value("x{7}").is_err(), "the taker has to confirm it");
        // Without the claim the taker serves the group, empty, and the borrower does not.
        assert_eq!(c.value("x{7}").is_err(), is_prepared);
        settle(&mut c, C, &mut b, B, "x{7}");
        let part = if is_prepared { Part::Held } else { Part::Retained };
        assert_eq!(b.part_of("x{7}"), part);
        if is_prepared {
            assert_eq!(b.value("x{7}"), Ok(Some("4".into())));
            b.give_back("x{7}");
            settle(&mut c, C, &mut b, B, "x{7}");
            assert_eq!(c.value("x{7}"), Ok(Some("4".into())));
        }
        // The former owner follows.
        a.learns(&decided);
        assert!(a.value("x{7}").is_err() && a.machine.lent().next().is_none());
    }
}

/// The borrower does not serve the part then, and the taker has what was reported before.
#[test]
fn a_key_that_expires_in_an_unconfirmed_part_is_reported() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    let expires = put_with("v{7}", "1", Condition::Always, Expiry::AfterMs(1_000));
    b.write_in(CARS, expires).unwrap();
    let open = failover(&a.newest(), A, None);
    let claimed = claims(&mut b, &open, A);
    claims(&mut c, &open, A);
    prepare(&mut c, &open, claimed);
    let decided = failover(&open, A, Some((C, "x{7}", false)));
    for site in [&mut b, &mut c] {
        site.learns(&decided);
    }
    c.run(b.report(B, "x{7}")).unwrap();
    assert_eq!(b.part_of("v{7}"), Part::Unconfirmed);
    let changed = |b: &Site| b.machine.part(&group("7")).unwrap().changed;
    let reported = changed(&b);
    b.now_ms += 5_000;
    b.tick();
    assert!(changed(&b) > reported);
    settle(&mut c, C, &mut b, B, "x{7}");
    b.give_back("x{7}");
    settle(&mut c, C, &mut b, B, "x{7}");
    assert_eq!((c.value("v{7}"), c.value("x{7}")), (Ok(None), Ok(Some("1".into()))));
}

/// The owner was lost with a write that it had not answered and its mirror had not got; the
/// borrower has it.
#[test]
fn a_write_from_before_a_loan_is_not_applied_again_after_a_failover_of_the_owner() {
    let (mut a, mut b, mut c) = sites();
    assert_eq!(a.run(add("n{7}", 5)), Ok(Answer::Integer(1)));
    lent(&mut a, &mut b, "n{7}");
    let open = failover(&a.newest(), A, None);
    let claimed = claims(&mut b, &open, A);
    claims(&mut c, &open, A);
    prepare(&mut c, &open, claimed);
    let decided = failover(&open, A, Some((C, "n{7}", false)));
    for site in [&mut b, &mut c] {
        site.learns(&decided);
    }
    settle(&mut c, C, &mut b, B, "n{7}");
    b.give_back("n{7}");
    settle(&mut c, C, &mut b, B, "n{7}");
    assert_eq!(c.value("n{7}"), Ok(Some("1".into())));
    assert_eq!(c.run(add("n{7}", 5)), Ok(Answer::Integer(1)), "done by the first owner");
}

/// The borrower has the offer of the taker before the decision, and is lost itself after a report.
#[test]
fn a_borrower_that_knows_the_taker_by_its_offer_reports_all_answers() {
    let (mut a, mut b, mut c) = sites();
    assert_eq!(a.run(add("n{7}", 5)), Ok(Answer::Integer(1)));
    lent(&mut a, &mut b, "n{7}");
    let open = failover(&a.newest(), A, None);
    let claimed = claims(&mut b, &open, A);
    claims(&mut c, &open, A);
    prepare(&mut c, &open, claimed);
    c.learns(&failover(&open, A, Some((C, "n{7}", false))));
    let offer = c.machine.offer(&group("n{7}")).unwrap().expect("it is adopted");
    let parts = taken(b.run(c.offered_by(C, &offer)));
    assert_eq!(parts[0].part, Part::Held);
    settle(&mut c, C, &mut b, B, "n{7}");
    let open = failover(&c.newest(), B, None);
    claims(&mut c, &open, B);
    c.learns(&failover(&open, B, Some((C, "n{7}", true))));
    assert_eq!(c.value("n{7}"), Ok(Some("1".into())), "it is home, as reported");
    assert_eq!(c.run(add("n{7}", 5)), Ok(Answer::Integer(1)), "done by the first owner");
}

#[test]
fn what_was_given_back_after_the_copy_comes_again() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    hand_over(&mut a, &mut c, C, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    b.give_back("x{7}");
    settle(&mut c, C, &mut b, B, "x{7}");
    assert_eq!((b.part_of("x{7}"), c.value("x{7}")), (Part::Retained, Ok(Some("4".into()))));
    // The new owner is lost; what the source has retained has the loan, and not what came back.
    let open = failover(&c.newest(), C, None);
    let claimed = claims(&mut b, &open, C);
    claims(&mut a, &open, C);
    prepare(&mut a, &open, claimed);
    let decided = failover(&open, C, Some((A, "x{7}", true)));
    for site in [&mut a, &mut b] {
        site.learns(&decided);
    }
    assert!(a.value("x{7}").is_err(), "its borrower has the only copy");
    assert_eq!(b.machine.parts_due().collect::<Vec<_>>(), [(A, &group("7"))]);
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!((a.value("x{7}"), b.part_of("x{7}")), (Ok(Some("4".into())), Part::Retained));
}

/// The borrower was named with the lost site, and may have nothing of the group any more.
#[test]
fn a_taker_asks_a_borrower_that_the_failover_did_not_ask() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    hand_over(&mut a, &mut c, C, "x{7}");
    b.give_back("x{7}");
    settle(&mut c, C, &mut b, B, "x{7}");
    let open = failover(&c.newest(), C, None);
    claims(&mut a, &open, C);
    a.learns(&failover(&open, C, Some((A, "x{7}", true))));
    assert!(a.value("x{7}").is_err(), "by its records it is lent");
    assert_eq!(a.machine.offered().collect::<Vec<_>>(), [(B, &group("7"))]);
}

/// It claims the loan before, of which it has kept its part. (The lab: `lending` 830002.)
#[test]
fn a_taker_asks_a_borrower_that_claims_an_earlier_loan() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.give_back("x{7}");
    settle(&mut a, A, &mut b, B, "x{7}");
    let offer = a.lend(B, "x{7}");
    hand_over(&mut a, &mut c, C, "x{7}");
    let open = failover(&c.newest(), C, None);
    let claimed = claims(&mut b, &open, C);
    assert!(claimed[0].1.loan < offer.row.loan);
    claims(&mut a, &open, C);
    prepare(&mut a, &open, claimed);
    let decided = failover(&open, C, Some((A, "x{7}", true)));
    for site in [&mut a, &mut b] {
        site.learns(&decided);
    }
    assert_eq!(a.machine.offered().collect::<Vec<_>>(), [(B, &group("7"))]);
    let offer = a.machine.offer(&group("7")).unwrap().expect("it is lent");
    assert_eq!(taken(b.run(a.offered_by(A, &offer)))[0].part, Part::Held);
    assert_eq!(b.value("x{7}"), Ok(Some("1".into())));
}

#[test]
fn a_group_of_a_lost_borrower_is_home_with_what_it_has_sent() {
    let (mut a, mut b, mut c) = sites();
    lent(&mut a, &mut b, "x{7}");
    b.run(set("x{7}", "4")).unwrap();
    settle(&mut a, A, &mut b, B, "x{7}");
    b.run(set("x{7}", "5")).unwrap();
    let open = failover(&a.newest(), B, None);
    for site in [&mut a, &mut c] {
        claims(site, &open, B);
    }
    assert!(a.value("x{7}").is_err());
    // Versions that only the borrower has given are not given again.
    for _ in 0..20 {
        b.run(set("x{7}", "6")).unwrap();
    }
    let decided = failover(&open, B, Some((C, "nothing", false)));
    a.learns(&decided);
    assert!(a.machine.revision() > b.machine.revision());
    let to_lost = lending(Lending::Lend { to: B, groups: vec![group("8")] });
    assert_eq!(a.run(to_lost), Err(MoveError::NoDestination.into()), "it is not back yet");
    assert_eq!(a.value("x{7}"), Ok(Some("4".into())), "and not what only the borrower had");
    let again = a.lend(C, "x{7}");
    assert_eq!(taken(c.run(a.offered_by(A, &again)))[0].part, Part::Held);
    // It comes back: what it has is not served, and kept.
    b.learns(&decided);
    assert!(b.value("x{7}").is_err());
    assert_eq!(b.part_of("x{7}"), Part::Retained);
    let parted = a.run(b.report(B, "x{7}"));
    assert!(matches!(parted, Err(Refusal::Move(MoveError::NotReady(_)))), "{parted:?}");
    let mut returned = decided.clone();
    assert!(returned.failovers.all_returned(B));
    returned.version.round += 1;
    for site in [&mut a, &mut b, &mut c] {
        site.learns(&returned);
    }
    settle(&mut a, A, &mut b, B, "x{7}");
    assert_eq!((b.part_of("x{7}"), c.value("x{7}")), (Part::Retained, Ok(Some("4".into()))));
    // An offer from before its failover is void, whatever its number.
    let mut late = again;
    (late.row.to, late.row.loan.count) = (B, 99);
    late.row.known = Ballot { round: 0, ..Ballot::FIRST };
    assert_eq!(taken(b.run(a.offered_by(A, &late)))[0].part, Part::Retained);
}
