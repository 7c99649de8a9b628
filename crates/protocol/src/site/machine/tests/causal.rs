//! Causal keys: three sites' machines, of which the first one is the root, and what passes between
//! them by hand.

use super::super::causal::session::{CausalPoint, Lacks, SessionRead};
use super::*;
use model::{
    CausalCommand, CausalToken, CausalWrite, DeploymentId, Effect, Guard, Import, KeyspaceSpec,
    Kind, Offer, Position, Region, RegionId, Registry, RegistryChange, RegistryError, Step, limits,
};
use model::{Resync, ResyncItem};
use std::sync::Arc;

pub(super) const CARTS: KeyspaceId = KeyspaceId(1);
const ORDERS: KeyspaceId = KeyspaceId(2);
pub(super) const A: SiteId = SiteId(1);
pub(super) const B: SiteId = SiteId(2);
pub(super) const C: SiteId = SiteId(3);

impl Site {
    pub(super) fn copy_of_registry(&self) -> Arc<Registry> {
        self.machine.membership().unwrap().registry.clone()
    }

    pub(super) fn learn(&mut self, registry: &Registry) {
        let learn = DeploymentCommand::LearnRegistry(Box::new(registry.clone()));
        self.run(Command::Deployment(learn)).unwrap();
    }

    pub(super) fn own(&self) -> SiteId {
        self.machine.membership().unwrap().own
    }

    pub(super) fn causal(&mut self, command: CausalCommand) -> Result<Answer, Refusal> {
        self.run(Command::Causal(command))
    }

    /// All that it has for the order.
    pub(super) fn offer(&self) -> Offer {
        let after = self.machine.causal().own_ordered();
        let writes = self.machine.unordered(after, usize::MAX).unwrap();
        Offer { site: self.own(), after, writes }
    }

    pub(super) fn take_offer(&mut self, offer: Offer) -> Result<Answer, Refusal> {
        self.causal(CausalCommand::Order { epoch: 1, offer })
    }

    pub(super) fn import_from(&mut self, root: &Site) -> Result<Answer, Refusal> {
        let (own, from) = (self.own(), self.machine.causal().applied());
        let entries = root.machine.ordered(from, usize::MAX).unwrap().into_iter();
        let entries = entries.map(|(position, site, write)| match site == own {
            true => Import::Own(position),
            false => Import::Other { position, site, write },
        });
        let upto = root.machine.causal().order_last();
        self.causal(CausalCommand::Import { from, upto, entries: entries.collect() })
    }

    pub(super) fn read_in_session(
        &self,
        keyspace: KeyspaceId,
        query: &Query,
        token: CausalToken,
    ) -> SessionRead {
        self.machine.reader().in_session(keyspace, query, None, token).unwrap()
    }

    fn get(&self, key: &'static str, token: CausalToken) -> (Option<String>, CausalToken) {
        match self.read_in_session(CARTS, &Query::Get { key: key.into() }, token) {
            SessionRead::Answered(Ok(Answer::Value(value)), token) => {
                (value.map(|found| String::from_utf8(found.value.to_vec()).unwrap()), token)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The same state, to read from while it changes.
    pub(super) fn twin(&self) -> Site {
        let state = MemoryState::new();
        let mut batch = storage::state::Batch::default();
        for (key, row) in dump(self.machine.state()) {
            batch.put(key, row);
        }
        storage::state::State::commit(&state, batch).unwrap();
        Site { machine: Machine::open(state).unwrap(), now_ms: self.now_ms }
    }

    fn version_in(&self, keyspace: KeyspaceId, key: &'static str) -> Revision {
        match self.ask_in(keyspace, Query::Versions { keys: vec![key.into()] }).unwrap() {
            Answer::Versions(versions) => versions[0],
            other => panic!("no versions: {other:?}"),
        }
    }

    pub(super) fn cart(&self, key: &'static str) -> Option<String> {
        self.get(key, CausalToken::default()).0
    }

    pub(super) fn put_cart(&mut self, key: &'static str, value: &'static str) {
        self.write_in(CARTS, put(key, value)).unwrap();
    }

    fn point(&self) -> CausalPoint {
        self.machine.reader().causal()
    }

    pub(super) fn fields(&self, key: &'static str) -> Vec<(Bytes, Bytes)> {
        match self.ask_in(CARTS, Query::HashGetAll { key: key.into() }).unwrap() {
            Answer::Fields(fields) => fields,
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn set(key: &'static str, field: &'static str, value: &'static str) -> Write {
    Write::HashSet { key: key.into(), fields: vec![(field.into(), value.into())] }
}

pub(super) fn unset(key: &'static str, field: &'static str) -> Write {
    Write::HashDelete { key: key.into(), fields: vec![field.into()] }
}

pub(super) fn delete(key: &'static str) -> Write {
    Write::Delete { keys: vec![key.into()] }
}

pub(super) fn change(change: RegistryChange) -> Command {
    Command::Deployment(DeploymentCommand::ChangeRegistry(change))
}

/// Three sites of a deployment with a causal keyspace.
pub(super) fn three_sites() -> [Site; 3] {
    let (mut a, mut b, mut c) = (Site::new(), Site::new(), Site::new());
    let found = DeploymentCommand::Found { deployment: DeploymentId(7), site: entry("a") };
    a.run(Command::Deployment(found)).unwrap();
    for name in ["b", "c"] {
        a.run(change(RegistryChange::Join(entry(name)))).unwrap();
    }
    a.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("carts", "cart:"))).unwrap();
    for (site, id) in [(&mut b, B), (&mut c, C)] {
        let registry = Box::new((*a.copy_of_registry()).clone());
        site.run(Command::Deployment(DeploymentCommand::Enter { site: id, registry })).unwrap();
    }
    [a, b, c]
}

/// What a site has goes to the order.
pub(super) fn order(root: &mut Site, site: &Site) {
    root.take_offer(site.offer()).unwrap();
}

pub(super) fn order_own(root: &mut Site) {
    root.take_offer(root.offer()).unwrap();
}

fn at(count: u64) -> Position {
    Position::new(1, count)
}

#[test]
fn the_first_causal_keyspace_makes_the_region() {
    let mut alone = Site::new();
    let spec = KeyspaceSpec::causal_region("carts", "cart:");
    assert_eq!(alone.run(Command::CreateKeyspace(spec)), Err(Refusal::NoDeployment));
    let [mut a, b, _] = three_sites();
    let region = Region::new(RegionId(1), 1, A);
    assert_eq!((a.machine.region(), b.machine.region()), (Some(&region), Some(&region)));
    assert_eq!((a.machine.is_root(), b.machine.is_root()), (true, false));
    assert_eq!(b.point(), CausalPoint { region: RegionId(1), own: B, ..CausalPoint::default() });
    let root_stays = Err(Refusal::Registry(RegistryError::Root(entry("a").name)));
    assert_eq!(a.run(change(RegistryChange::Remove(A))), root_stays);

    // Another root begins another order, as nothing is left of the one before.
    a.put_cart("x", "1");
    a.run(Command::DropKeyspace { name: "carts".into() }).unwrap();
    assert!(a.machine.causal().unordered_bytes() > 0, "the chain stays whole");
    a.run(change(RegistryChange::Leave(A))).unwrap();
    a.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("more", "more:"))).unwrap();
    assert_eq!(a.machine.region(), Some(&Region::new(RegionId(2), 2, B)));
    let causal = a.machine.causal();
    assert_eq!((causal.region(), causal.unordered_bytes()), (RegionId(2), 0));
    assert_eq!(a.rows(tables::CAUSAL), 1);
    a.reopen();
    assert_eq!(a.machine.causal().region(), RegionId(2));
}

#[test]
fn what_is_no_assignment_is_refused_and_waits_for_no_order() {
    let [mut a, ..] = three_sites();
    a.put_cart("x", "1");
    let before = a.machine.causal().last_revision();
    let (add, append) = (
        Write::Add { key: "x".into(), delta: 1 },
        Write::Append { key: "x".into(), suffix: "1".into() },
    );
    for write in [add, append, Write::Clear] {
        assert!(matches!(a.write_in(CARTS, write), Err(Refusal::NotCausal(_))));
    }
    assert_eq!(a.write_in(CARTS, set("x", "f", "1")), Err(Refusal::WrongType));
    assert_eq!(a.write_in(CARTS, unset("x", "f")), Err(Refusal::WrongType));
    a.write(put("own", "1")).unwrap();
    let clear = a.run(write(Write::ClearAll));
    assert!(matches!(clear, Err(Refusal::NotCausal(_))), "all are cleared, or none");
    assert!(a.text("own").is_some());
    a.run(Command::ClearAll).unwrap();
    assert_eq!(a.text("own"), None, "causal keys have a clear of their own");
    let guard = Guard { key: "x".into(), version: Revision(1), absent_since: None };
    let watch =
        Command::Transaction { keyspace: CARTS, guards: vec![guard], steps: vec![], request: None };
    assert!(matches!(a.run(watch), Err(Refusal::NotCausal(_))));
    assert_eq!(a.machine.causal().last_revision(), before);
    assert_eq!(a.cart("x").as_deref(), Some("1"));
}

#[test]
fn a_transaction_is_one_write() {
    let [mut a, mut b, _] = three_sites();
    a.put_cart("y", "0");
    let steps = vec![
        Step::Write(put("x", "1")),
        Step::Write(set("y", "f", "1")),
        Step::Read(Query::Get { key: "x".into() }),
        Step::Write(delete("y")),
        Step::Write(set("y", "f", "2")),
        Step::Write(Write::Add { key: "x".into(), delta: 1 }),
    ];
    let all = Command::Transaction { keyspace: CARTS, guards: vec![], steps, request: None };
    let Answer::Steps(outcomes) = a.run(all).unwrap() else { panic!("no steps") };
    let refused: Vec<_> = outcomes.iter().map(Result::is_err).collect();
    assert_eq!(refused, [false, true, false, false, false, true]);
    let offer = a.offer();
    assert_eq!(offer.writes.len(), 2);
    let effects = vec![
        Effect::Put { key: "x".into(), value: "1".into() },
        Effect::Delete { key: "y".into() },
        Effect::SetFields { key: "y".into(), fields: vec![("f".into(), "2".into())] },
    ];
    assert_eq!(offer.writes[1].effects, effects);
    order_own(&mut a);
    b.import_from(&a).unwrap();
    assert_eq!(b.cart("x").as_deref(), Some("1"));
    assert_eq!(b.fields("y"), [("f".into(), "2".into())]);
}

#[test]
fn each_write_has_one_position() {
    let [mut a, mut b, _] = three_sites();
    for value in ["1", "2", "3"] {
        b.put_cart("x", value);
    }
    let all = b.offer();
    let revisions: Vec<_> = all.writes.iter().map(|write| write.revision).collect();
    let part = |from: usize, until: usize| Offer {
        site: B,
        after: if from == 0 { Revision(0) } else { revisions[from - 1] },
        writes: all.writes[from..until].to_vec(),
    };
    // After a gap nothing is done, and the answer states where to resume.
    assert_eq!(a.take_offer(part(1, 3)), Ok(Answer::Done(Revision(0))));
    assert_eq!(a.take_offer(part(0, 2)), Ok(Answer::Done(revisions[1])));
    assert_eq!(a.machine.causal().order_last(), at(2));
    // Again, overlapping, and from its beginning.
    assert_eq!(a.take_offer(part(0, 2)), Ok(Answer::Done(revisions[1])));
    assert_eq!(a.take_offer(part(0, 3)), Ok(Answer::Done(revisions[2])));
    assert_eq!(a.machine.causal().ordered_of(B), Some((revisions[2], at(3))));
    let ordered = a.machine.ordered(at(1), usize::MAX).unwrap();
    let expected = [(at(2), B, all.writes[1].clone()), (at(3), B, all.writes[2].clone())];
    assert_eq!(ordered, expected);
    assert_eq!(a.machine.ordered(at(1), 1).unwrap().len(), 1, "the first one whatever it takes");

    // In its epoch, at its root, of sites that are there.
    let other_epoch = CausalCommand::Order { epoch: 2, offer: part(0, 3) };
    assert!(matches!(a.causal(other_epoch), Err(Refusal::NotCausal(_))));
    assert!(matches!(b.take_offer(part(0, 3)), Err(Refusal::NotCausal(_))));
    let stranger = Offer { site: SiteId(9), ..part(0, 3) };
    assert!(matches!(a.take_offer(stranger), Err(Refusal::NotCausal(_))));

    a.causal(CausalCommand::Trim { upto: at(2) }).unwrap();
    assert_eq!(a.machine.causal().trimmed_upto(), at(2));
    assert_eq!(a.machine.ordered(Position(0), usize::MAX).unwrap(), expected[1..]);
    a.causal(CausalCommand::Trim { upto: at(9) }).unwrap();
    let causal = a.machine.causal();
    assert_eq!((causal.trimmed_upto(), causal.order_bytes()), (at(3), 0));
    assert_eq!(a.take_offer(part(0, 3)), Ok(Answer::Done(revisions[2])), "it stays ordered");
}

#[test]
fn a_batch_is_imported_once_and_whole() {
    let [mut a, mut b, mut c] = three_sites();
    b.put_cart("x", "1");
    order(&mut a, &b);
    let before = dump(c.machine.state());
    let write = b.offer().writes.remove(0);
    let other =
        |position, write: &CausalWrite| Import::Other { position, site: B, write: write.clone() };
    let mut unknown = write.clone();
    unknown.keyspace = ORDERS;
    let import = |from, upto, entries| CausalCommand::Import { from, upto, entries };
    // Not from here; not in order; beyond its end.
    for command in [
        import(at(1), at(2), vec![other(at(2), &write)]),
        import(Position(0), at(2), vec![other(at(2), &write), other(at(1), &write)]),
        import(Position(0), at(1), vec![other(at(2), &write)]),
    ] {
        c.causal(command).unwrap();
    }
    // Of a keyspace that the registry has not brought yet: none of the batch.
    let batch = vec![other(at(1), &write), other(at(2), &unknown)];
    let refused = c.causal(import(Position(0), at(2), batch));
    assert_eq!(refused, Err(Refusal::NoKeyspace(ORDERS.to_string())));
    // As a state of before a restore would have it.
    let own = c.causal(import(Position(0), at(1), vec![Import::Own(at(1))]));
    assert!(matches!(own, Err(Refusal::NotCausal(_))));
    let mut after = dump(c.machine.state());
    after.insert(tables::HEAD.into(), before[tables::HEAD].clone());
    assert_eq!(after, before, "nothing was done");

    c.import_from(&a).unwrap();
    let version = c.version_in(CARTS, "x");
    c.causal(import(Position(0), at(1), vec![other(at(1), &write)])).unwrap();
    assert_eq!((c.cart("x").as_deref(), c.version_in(CARTS, "x")), (Some("1"), version));
    // Coverage without entries.
    c.causal(import(at(1), at(5), vec![])).unwrap();
    assert_eq!(c.point().applied, at(5));
}

/// X3: what is pending stays on top until its own position.
#[test]
fn a_pending_write_is_not_overtaken_and_restored() {
    let [mut r, mut a, _] = three_sites();
    a.put_cart("x", "a");
    r.put_cart("x", "r");
    order_own(&mut r);
    order(&mut r, &a);
    let of_root = r.machine.ordered(Position(0), usize::MAX).unwrap().remove(0);
    let first = vec![Import::Other { position: of_root.0, site: A, write: of_root.2 }];
    a.causal(CausalCommand::Import { from: Position(0), upto: at(1), entries: first }).unwrap();
    assert_eq!(a.cart("x").as_deref(), Some("a"));
    a.reopen();
    a.import_from(&r).unwrap();
    assert_eq!(a.cart("x").as_deref(), Some("a"));
    assert_eq!(a.machine.causal().unordered_bytes(), 0);
    r.import_from(&r.twin()).unwrap();
    assert_eq!(r.cart("x").as_deref(), Some("a"));
}

/// X11, as far as it is about one region: fields are registers of their own.
#[test]
fn fields_are_written_each_for_itself() {
    let [mut r, mut a, _] = three_sites();
    r.write_in(CARTS, set("h", "f", "r")).unwrap();
    r.write_in(CARTS, set("h", "g", "r")).unwrap();
    a.write_in(CARTS, set("h", "f", "a")).unwrap();
    order_own(&mut r);
    a.import_from(&r).unwrap();
    let both = [("f".into(), "a".into()), ("g".into(), "r".into())];
    assert_eq!(a.fields("h"), both, "f is pending, g is free");
    order(&mut r, &a);
    let twin = r.twin();
    r.import_from(&twin).unwrap();
    a.import_from(&r).unwrap();
    assert_eq!((r.fields("h"), a.fields("h")), (both.to_vec(), both.to_vec()));

    // A string under pending fields leaves them; one over them does not come up again.
    a.write_in(CARTS, set("h", "f", "a2")).unwrap();
    r.put_cart("h", "string");
    order_own(&mut r);
    a.import_from(&r).unwrap();
    assert_eq!(a.fields("h"), [("f".into(), "a2".into())]);
    // Under a deleted field a string shows.
    a.write_in(CARTS, delete("i")).unwrap();
    order(&mut r, &a);
    a.import_from(&r).unwrap();
    a.write_in(CARTS, unset("i", "f")).unwrap();
    r.put_cart("i", "string");
    order_own(&mut r);
    a.import_from(&r).unwrap();
    assert_eq!(a.cart("i").as_deref(), Some("string"));
    r.write_in(CARTS, delete("h")).unwrap();
    order_own(&mut r);
    a.import_from(&r).unwrap();
    assert_eq!(a.fields("h"), [], "its own position lies before");
}

#[test]
fn a_dropped_keyspace_leaves_no_gap_in_the_chain() {
    let [mut a, mut b, mut c] = three_sites();
    a.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("orders", "order:"))).unwrap();
    let with_both = a.copy_of_registry();
    b.learn(&with_both);
    c.learn(&with_both);
    b.put_cart("x", "1");
    b.write_in(ORDERS, put("y", "2")).unwrap();
    a.run(Command::DropKeyspace { name: "carts".into() }).unwrap();
    b.learn(&a.copy_of_registry());
    assert!(matches!(b.write_in(CARTS, put("x", "2")), Err(Refusal::NoKeyspace(_))));
    order(&mut a, &b);
    assert_eq!(a.machine.causal().order_last(), at(2));
    for site in [&mut b, &mut c] {
        site.import_from(&a).unwrap();
        assert_eq!(site.machine.causal().applied(), at(2));
        let y = site.ask_in(ORDERS, Query::Exists { keys: vec!["y".into()] });
        assert_eq!(y, Ok(Answer::Integer(1)));
    }
    assert_eq!(b.machine.causal().unordered_bytes(), 0);
    assert_eq!(c.cart("x").as_deref(), Some("1"), "it has not learned of the drop");
}

/// What is in memory of the oldest own write is what a restart finds: the oldest that has a row.
#[test]
fn the_oldest_own_writes_go_and_the_next_ones_begin_behind_them() {
    let [mut a, mut b, _] = three_sites();
    let value = Bytes::from(vec![b'x'; 1 << 20]);
    for round in 0..3 {
        for n in 0..20 {
            let put = Write::Put {
                key: format!("{round}-{n}").into(),
                value: value.clone(),
                condition: Condition::Always,
                expiry: Expiry::Never,
                return_old: false,
            };
            b.write_in(CARTS, put).unwrap();
        }
        b.reopen();
        order(&mut a, &b);
        b.import_from(&a).unwrap();
        b.reopen();
        let kept = b.machine.causal_own(Revision(0)).unwrap();
        let first = kept.first().map(|write| write.revision.0);
        // Of the rounds 20, then at most 32 MiB.
        assert_eq!(kept.len(), if round == 0 { 20 } else { 31 });
        assert_eq!(
            kept.last().map(|write| write.revision.0 - first.unwrap() + 1),
            Some(kept.len() as u64)
        );
    }
}

#[test]
fn too_much_without_a_position_is_refused() {
    let [mut a, ..] = three_sites();
    let big = Bytes::from(vec![b'x'; limits::VALUE_BYTES_MAX]);
    let put = |value: &Bytes| Write::Put {
        key: "x".into(),
        value: value.clone(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        return_old: false,
    };
    let run = |a: &mut Site, value: &Bytes| {
        let write = Command::Write { keyspace: CARTS, write: put(value), request: None };
        a.entry_unchecked(vec![write]).pop().unwrap()
    };
    for _ in 0..4 {
        run(&mut a, &big).unwrap();
    }
    let waiting = a.machine.causal().unordered_bytes();
    assert_eq!(run(&mut a, &"1".into()), Err(Refusal::Unordered(waiting)));
    order_own(&mut a);
    let twin = a.twin();
    a.import_from(&twin).unwrap();
    run(&mut a, &"1".into()).unwrap();
    assert!(a.machine.causal().order_bytes() >= limits::CAUSAL_UNORDERED_BYTES_MAX);
}

#[test]
fn a_token_names_what_was_read() {
    let [mut r, mut a, _] = three_sites();
    let begins = CausalToken::default();
    let token = |seen, written| CausalToken { region: RegionId(1), seen, written };
    r.put_cart("x", "1");
    r.put_cart("y", "1");
    let of_y = r.machine.causal().last_revision();
    order_own(&mut r);
    a.import_from(&r).unwrap();
    // The version's position, not all that the site has.
    assert_eq!(a.get("x", begins), (Some("1".into()), token(at(1), None)));
    // An absent key: all of it.
    assert_eq!(a.get("z", begins), (None, token(at(2), None)));
    // At the root's site they are own writes without a position: it has not imported it.
    assert_eq!(r.get("y", begins), (Some("1".into()), token(Position(0), Some((A, of_y)))));
    let twin = r.twin();
    r.import_from(&twin).unwrap();
    assert_eq!(r.get("y", begins).1, token(at(2), None), "ordered: somewhere in what it has");
    // Of a hash it is not known who wrote which field.
    a.write_in(CARTS, set("h", "f", "1")).unwrap();
    let own = a.machine.causal().last_revision();
    let query = Query::HashGet { key: "h".into(), field: "f".into() };
    let SessionRead::Answered(_, of_hash) = a.read_in_session(CARTS, &query, begins) else {
        panic!("not answered")
    };
    assert_eq!(of_hash, token(at(2), Some((B, own))));
    // A refusal states what is there, too.
    let refused = a.read_in_session(CARTS, &Query::Get { key: "h".into() }, begins);
    assert_eq!(refused, SessionRead::Answered(Err(Refusal::WrongType), of_hash));
    for query in [Query::Count, Query::Exists { keys: vec!["x".into(), "q".into()] }] {
        let SessionRead::Answered(Ok(_), all) = a.read_in_session(CARTS, &query, begins) else {
            panic!("not answered")
        };
        assert_eq!(all, of_hash, "{query:?}");
    }
    assert_eq!(a.machine.reader().causal().covering(begins), of_hash);
    // What the session has written here gives way to the position once it has one.
    order(&mut r, &a);
    a.import_from(&r).unwrap();
    assert_eq!(a.get("x", of_hash).1, token(at(3), None));
}

/// X1, X2: what a site lacks does not depend on who wrote it.
#[test]
fn a_site_covers_a_token_or_says_what_it_lacks() {
    let [mut r, mut a, mut c] = three_sites();
    r.put_cart("x", "1");
    order_own(&mut r);
    c.put_cart("y", "2");
    order(&mut r, &c);
    a.import_from(&r).unwrap();
    let (_, token) = a.get("x", CausalToken::default());
    let (_, token) = a.get("y", token);
    assert_eq!(token.seen, at(2));
    let lacks = |site: &Site, token: &CausalToken| site.machine.reader().lacks(token);
    assert_eq!(lacks(&c, &token), Some(Lacks::Order(at(2))), "y is its own, x is not there");
    let query = Query::Get { key: "x".into() };
    let read = c.read_in_session(CARTS, &query, token);
    assert_eq!(read, SessionRead::Lacks(Lacks::Order(at(2))));
    c.import_from(&r).unwrap();
    assert_eq!(c.get("x", token).0.as_deref(), Some("1"));

    a.put_cart("z", "3");
    let of_z = a.machine.causal().last_revision();
    let mut wrote = a.point().covering(token);
    assert_eq!(wrote.written, Some((B, of_z)));
    assert_eq!(lacks(&a, &wrote), None);
    assert_eq!(lacks(&c, &wrote), Some(Lacks::PositionOf(B, of_z)));
    let ahead = CausalToken { written: Some((B, Revision(1_000))), ..wrote };
    assert_eq!(lacks(&a, &ahead), Some(Lacks::Revision(Revision(1_000))));
    let foreign = CausalToken { region: RegionId(2), ..token };
    assert_eq!(lacks(&a, &foreign), Some(Lacks::Region));
    assert_eq!(lacks(&a, &CausalToken::default()), None);
    // Once it is ordered its position takes its place.
    order(&mut r, &a);
    let (upto, position) = r.machine.causal().ordered_of(B).unwrap();
    assert!(upto >= of_z);
    (wrote.written, wrote.seen) = (None, wrote.seen.max(position));
    assert_eq!(lacks(&c, &wrote), Some(Lacks::Order(at(3))));
    c.import_from(&r).unwrap();
    assert_eq!(c.get("z", wrote).0.as_deref(), Some("3"));
}

#[test]
fn records_have_a_position_if_others_wrote_them() {
    let [mut r, mut a, _] = three_sites();
    r.put_cart("x", "1");
    order_own(&mut r);
    a.import_from(&r).unwrap();
    a.put_cart("y", "1");
    let record = |key: &str| {
        let all = dump(a.machine.state());
        let found =
            all.iter().find(|(at, _)| at[0] == tables::RECORDS && at.ends_with(key.as_bytes()));
        Record::decode(found.unwrap().1.clone()).unwrap()
    };
    assert_eq!((record("x").position, record("x").kind), (at(1).0, Kind::String));
    assert_eq!(record("y").position, 0);
}

fn import_own(root: &mut Site) {
    let from = root.machine.causal().applied();
    let upto = root.machine.causal().order_last();
    let entries = root.machine.ordered(from, usize::MAX).unwrap().into_iter();
    let entries = entries.map(|(position, site, write)| match site == A {
        true => Import::Own(position),
        false => Import::Other { position, site, write },
    });
    let entries = entries.collect();
    root.causal(CausalCommand::Import { from, upto, entries }).unwrap();
}

fn cart(site: &Site, key: &'static str) -> Option<Bytes> {
    match site.ask_in(CARTS, Query::Get { key: key.into() }).unwrap() {
        Answer::Value(value) => value.map(|found| found.value),
        other => panic!("{other:?}"),
    }
}

/// All of a resync but its switch: the root's records, and the order after its start.
pub(super) fn resync(
    root: &Site,
    to: &mut Site,
    start: Position,
    floor: Position,
) -> Result<u64, Refusal> {
    let ordered = root.machine.causal().ordered_of(to.own()).unwrap_or_default().0;
    let begin = Resync::Begin { epoch: 1, floor, start, ordered, resume: "r".into() };
    let Answer::Staged { chunks, .. } = to.causal(CausalCommand::Resync(begin))? else {
        panic!("it needs nothing")
    };
    let items = root.machine.causal_records(None, usize::MAX, &|_| true).unwrap().items;
    let entries = root.machine.ordered(start, usize::MAX).unwrap().into_iter();
    let entries =
        entries.map(|(position, site, write)| ResyncItem::Entry { position, site, write });
    let items = root.machine.retries().into_iter().chain(items).chain(entries).collect();
    let chunk = Resync::Chunk { start, sequence: chunks, resume: "s".into(), items };
    // It may come twice.
    to.causal(CausalCommand::Resync(chunk.clone()))?;
    let answer = to.causal(CausalCommand::Resync(chunk))?;
    assert_eq!(answer, Answer::Staged { chunks: chunks + 1, resume: "s".into() });
    Ok(chunks + 1)
}

#[test]
fn a_resync_takes_the_place_of_a_prefix_at_once() {
    let [mut a, mut b, mut c] = three_sites();
    c.put_cart("gone", "1");
    c.put_cart("kept", "1");
    order(&mut a, &c);
    import_own(&mut a);
    c.import_from(&a).unwrap();
    c.put_cart("mine", "ordered");
    order(&mut a, &c);
    c.put_cart("mine", "pending");
    let pending = c.machine.revision();
    b.write_in(CARTS, Write::Delete { keys: vec!["gone".into()] }).unwrap();
    b.put_cart("kept", "2");
    order(&mut a, &b);
    // The root shows a write of its own that has no position yet.
    import_own(&mut a);
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    a.put_cart("root", "1");
    order_own(&mut a);
    let end = a.machine.causal().order_last();
    let chunks = resync(&a, &mut c, start, start).unwrap();
    // The old prefix, and nothing is imported.
    assert_eq!(cart(&c, "kept"), Some("1".into()));
    assert_eq!(c.point().applied, at(2));
    let other = CausalCommand::Import { from: at(2), upto: end, entries: vec![] };
    c.causal(other).unwrap();
    assert_eq!(c.point().applied, at(2));
    let switch = |chunks, upto| CausalCommand::Resync(Resync::Switch { start, chunks, upto });
    for early in [switch(chunks, start), switch(chunks - 1, end)] {
        assert!(matches!(c.causal(early), Ok(Answer::Staged { .. })));
    }
    assert_eq!(c.causal(switch(chunks, end)), Ok(Answer::Installed));
    let found = ["gone", "kept", "mine", "root"].map(|key| cart(&c, key));
    let wanted = [None, Some("2".into()), Some("pending".into()), Some("1".into())];
    assert_eq!(found, wanted);
    assert_eq!((c.point().applied, c.point().last_revision), (end, pending));
    assert_eq!(c.offer().writes.len(), 1, "the one without a position");
    let count = c.ask_in(CARTS, Query::Count).unwrap();
    assert_eq!(count, Answer::Integer(3));
    // What comes late does nothing, and the order goes on.
    assert!(matches!(c.causal(switch(chunks, end)), Err(Refusal::NotCausal(_))));
    let late =
        Resync::Begin { epoch: 1, floor: start, start, ordered: Revision(0), resume: Bytes::new() };
    assert_eq!(c.causal(CausalCommand::Resync(late)), Ok(Answer::Installed));
    order(&mut a, &c);
    c.import_from(&a).unwrap();
    assert_eq!(c.machine.causal().unordered_bytes(), 0);
    import_own(&mut a);
    assert_eq!(cart(&a, "mine"), Some("pending".into()));
}

#[test]
fn a_resync_goes_on_or_begins_anew() {
    let [mut a, mut b, mut c] = three_sites();
    b.put_cart("x", "1");
    order(&mut a, &b);
    import_own(&mut a);
    a.causal(CausalCommand::Trim { upto: at(1) }).unwrap();
    resync(&a, &mut c, at(1), at(1)).unwrap();
    let begin = |floor, start| {
        CausalCommand::Resync(Resync::Begin {
            epoch: 1,
            floor,
            start,
            ordered: Revision(0),
            resume: "r".into(),
        })
    };
    // Another leader goes on, with other numbers.
    let Ok(Answer::Staged { chunks, resume }) = c.causal(begin(at(1), at(7))) else { panic!() };
    assert_eq!(&resume[..], b"s");
    let late = Resync::Chunk { start: at(1), sequence: 1, resume: "x".into(), items: vec![] };
    let unmoved = Answer::Staged { chunks, resume };
    assert_eq!(c.causal(CausalCommand::Resync(late)), Ok(unmoved));
    // The order behind what has come is gone.
    let Ok(Answer::Staged { resume, .. }) = c.causal(begin(at(5), at(7))) else { panic!() };
    assert_eq!(&resume[..], b"r");
    // A keyspace that ends takes along what has come of it.
    resync(&a, &mut c, at(8), at(8)).unwrap();
    a.run(change(RegistryChange::DropKeyspace("carts".into()))).unwrap();
    c.learn(&a.copy_of_registry());
    assert!(c.machine.causal().is_resyncing());
    // A state from before a restore lacks writes that are ordered.
    let ahead = Resync::Begin {
        epoch: 1,
        floor: at(9),
        start: at(9),
        ordered: Revision(900),
        resume: Bytes::new(),
    };
    assert!(matches!(c.causal(CausalCommand::Resync(ahead)), Err(Refusal::NotCausal(_))));
}
