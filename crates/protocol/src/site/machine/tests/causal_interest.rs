//! A causal keyspace that two of three sites hold.

use super::super::causal::session::{Lacks, SessionRead};
use super::causal::*;
use super::*;
use model::{
    Bytes, CausalCommand, CausalToken, CausalWrite, Import, KeyspaceError, KeyspaceSpec, Position,
    Region, RegistryChange, RegistryError, Resync, ResyncItem, StandbyChoice, StandbyRule, Step,
};

const PLANS: KeyspaceId = KeyspaceId(2);

fn plans(sites: &[SiteId]) -> KeyspaceSpec {
    KeyspaceSpec { sites: sites.to_vec(), ..KeyspaceSpec::causal_region("plans", "plan:") }
}

/// The third one does not hold `plans`.
fn two_of_three() -> [Site; 3] {
    let [mut a, mut b, mut c] = three_sites();
    a.run(Command::CreateKeyspace(plans(&[B, A, B]))).unwrap();
    for site in [&mut b, &mut c] {
        site.learn(&a.copy_of_registry());
    }
    [a, b, c]
}

fn read(site: &Site, key: &'static str) -> SessionRead {
    site.read_in_session(PLANS, &Query::Get { key: key.into() }, CausalToken::default())
}

fn found(site: &Site, key: &'static str) -> Option<Bytes> {
    match site.ask_in(PLANS, Query::Get { key: key.into() }).unwrap() {
        Answer::Value(value) => value.map(|found| found.value),
        other => panic!("{other:?}"),
    }
}

/// The order as it goes to a site: without the content that this does not hold.
fn covered(site: &Site, keyspace: KeyspaceId, write: CausalWrite) -> CausalWrite {
    let spec = site.machine.spec(keyspace).unwrap();
    match spec.is_held_by(site.own()) {
        true => write,
        false => CausalWrite { effects: Vec::new(), ..write },
    }
}

#[test]
fn what_is_not_held_has_its_place_and_nothing_else() {
    let [mut a, mut b, mut c] = two_of_three();
    b.write_in(PLANS, put("p", "1")).unwrap();
    b.put_cart("k", "1");
    order(&mut a, &b);
    b.import_from(&a).unwrap();
    let from = c.machine.causal().applied();
    let entries = a.machine.ordered(from, usize::MAX).unwrap();
    let whole = entries.clone().into_iter();
    let upto = a.machine.causal().order_last();
    let import = |entries: Vec<Import>| CausalCommand::Import { from, upto, entries };
    // Content of what is held must not be missing.
    let bare = whole.clone().map(|(position, site, write)| {
        let write = CausalWrite { effects: Vec::new(), ..write };
        Import::Other { position, site, write }
    });
    let bare: Vec<Import> = bare.collect();
    let refused = c.causal(import(bare)).unwrap_err();
    assert!(refused.to_string().contains("without the content"), "{refused}");
    let held = whole.map(|(position, site, write)| {
        let write = covered(&c, write.keyspace, write);
        Import::Other { position, site, write }
    });
    let held: Vec<Import> = held.collect();
    c.causal(import(held)).unwrap();
    assert_eq!(c.cart("k"), Some("1".into()));
    assert_eq!(c.machine.causal().applied(), upto, "a token may name it");
    let ordered = c.machine.causal().ordered_of(B).unwrap();
    assert_eq!(ordered, a.machine.causal().ordered_of(B).unwrap());
    // It neither reads nor writes there, and a transaction elsewhere does not read it.
    assert_eq!(read(&c, "p"), SessionRead::Lacks(Lacks::Keyspace));
    let refused = |outcome: Result<Answer, Refusal>| {
        assert!(matches!(outcome, Err(Refusal::NotCausal(_))), "{outcome:?}");
    };
    refused(c.ask_in(PLANS, Query::Get { key: "p".into() }));
    refused(c.ask_in(PLANS, Query::Count));
    refused(c.write_in(PLANS, put("p", "2")));
    let steps = vec![Step::ReadIn { keyspace: PLANS, query: Query::Count }];
    let transaction =
        Command::Transaction { keyspace: CARTS, guards: vec![], steps, request: None };
    let Answer::Steps(steps) = c.run(transaction).unwrap() else { panic!("no steps") };
    refused(steps.into_iter().next().unwrap());
    assert_eq!(found(&b, "p"), Some("1".into()));
}

/// The same state, opened again: what is not held stays so.
fn a_copy(site: &Site) -> Site {
    site.twin()
}

#[test]
fn what_is_not_held_is_not_held_after_a_start() {
    let [_, b, c] = two_of_three();
    assert_eq!(read(&a_copy(&c), "p"), SessionRead::Lacks(Lacks::Keyspace));
    assert!(matches!(read(&a_copy(&b), "p"), SessionRead::Answered(..)));
}

#[test]
fn a_resync_leaves_out_what_is_not_held() {
    let [mut a, mut b, mut c] = two_of_three();
    b.write_in(PLANS, put("p", "1")).unwrap();
    b.put_cart("k", "1");
    order(&mut a, &b);
    a.import_from(&a.twin()).unwrap();
    let start = a.machine.causal().order_last();
    a.causal(CausalCommand::Trim { upto: start }).unwrap();
    b.write_in(PLANS, put("p", "2")).unwrap();
    order(&mut a, &b);
    let (floor, end) = (start, a.machine.causal().order_last());
    let ordered = Revision(0);
    let begin = Resync::Begin { epoch: 1, floor, start, ordered, resume: "r".into() };
    c.causal(CausalCommand::Resync(begin)).unwrap();
    let records =
        a.machine.causal_records(None, usize::MAX, &|keyspace| keyspace == CARTS).unwrap();
    assert!(
        records
            .items
            .iter()
            .all(|item| matches!(item, ResyncItem::Record { keyspace, .. } if *keyspace == CARTS))
    );
    let entries = a.machine.ordered(start, usize::MAX).unwrap().into_iter();
    let entries = entries.map(|(position, site, write)| {
        let write = covered(&c, write.keyspace, write);
        ResyncItem::Entry { position, site, write }
    });
    let items = records.items.into_iter().chain(entries).collect();
    let chunks = 1;
    let Ok(Answer::Staged { chunks: sequence, .. }) =
        c.causal(CausalCommand::Resync(Resync::Switch { start, chunks, upto: Position(0) }))
    else {
        panic!("it was begun")
    };
    let chunk = Resync::Chunk { start, sequence, resume: "s".into(), items };
    c.causal(CausalCommand::Resync(chunk)).unwrap();
    let switch = Resync::Switch { start, chunks: sequence + 1, upto: end };
    assert_eq!(c.causal(CausalCommand::Resync(switch)), Ok(Answer::Installed));
    assert_eq!((c.cart("k"), c.machine.causal().applied()), (Some("1".into()), end));
    assert_eq!(read(&c, "p"), SessionRead::Lacks(Lacks::Keyspace));
}

#[test]
fn a_root_and_its_standby_hold_all() {
    let [mut a, ..] = two_of_three();
    let registry = a.copy_of_registry();
    let made = &registry.keyspaces.last().unwrap().spec;
    assert_eq!(made.sites, [A, B], "in order, each once");
    let lacks = RegistryError::HoldsNotAll(entry("c").name);
    assert_eq!(refused(&mut a, change(RegistryChange::MoveRoot(C))), lacks);
    let at = |site| StandbyRule { choice: StandbyChoice::At(site), ..StandbyRule::default() };
    assert_eq!(refused(&mut a, change(RegistryChange::SetStandby(at(C)))), lacks);
    let Region { id, epoch, .. } = *registry.regions.last().unwrap();
    let rebuild = RegistryChange::Rebuild { region: id, epoch, to: C };
    assert_eq!(refused(&mut a, change(rebuild)), lacks);
    let cut = Position::new(1, 1);
    let root = RegistryChange::ChangeRoot { region: id, epoch, to: C, cut };
    assert_eq!(refused(&mut a, change(root)), lacks);
    let name = RegistryChange::NameStandby { region: id, epoch, site: C };
    a.run(change(name)).unwrap();
    assert_eq!(a.copy_of_registry().regions.last().unwrap().standby, None);
    a.run(change(RegistryChange::SetStandby(at(B)))).unwrap();
    // A keyspace that they would not hold is not made.
    let of = |name: &str, sites: &[SiteId]| {
        let spec = KeyspaceSpec {
            sites: sites.to_vec(),
            ..KeyspaceSpec::causal_region(name.to_owned(), name.to_owned())
        };
        Command::CreateKeyspace(spec)
    };
    let must = |name| RegistryError::MustHold(entry(name).name);
    assert_eq!(refused(&mut a, of("x", &[B, C])), must("a"));
    assert_eq!(refused(&mut a, of("x", &[A, C])), must("b"));
    assert_eq!(refused(&mut a, of("x", &[A, B, SiteId(9)])), RegistryError::NoSite("s9".into()));
    a.run(of("x", &[A, B])).unwrap();
    let site = KeyspaceSpec { sites: vec![A], ..KeyspaceSpec::linearizable_site("y", "y:") };
    let error = KeyspaceError::SitesConsistency("y".into());
    let made = change(RegistryChange::CreateKeyspace(site));
    assert_eq!(a.run(made), Err(Refusal::Keyspace(error)));
}

/// Three sites in a registry without a causal keyspace.
fn three_without_a_keyspace() -> Site {
    let mut a = Site::new();
    let found = DeploymentCommand::Found { deployment: model::DeploymentId(7), site: entry("a") };
    a.run(Command::Deployment(found)).unwrap();
    for name in ["b", "c"] {
        a.run(change(RegistryChange::Join(entry(name)))).unwrap();
    }
    a
}

fn refused(a: &mut Site, asked: Command) -> RegistryError {
    match a.run(asked) {
        Err(Refusal::Registry(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_keyspace_has_its_root_where_it_is_held() {
    let mut a = three_without_a_keyspace();
    a.run(Command::CreateKeyspace(plans(&[C, B]))).unwrap();
    assert_eq!(a.copy_of_registry().regions.last().unwrap().root, B);
}

#[test]
fn two_sites_that_stay_hold_all_causal_keyspaces() {
    let mut a = three_without_a_keyspace();
    // One site could never give the order to another one.
    let too_few = RegistryError::TooFewHold;
    assert_eq!(refused(&mut a, Command::CreateKeyspace(plans(&[B]))), too_few);
    assert!(a.copy_of_registry().regions.is_empty(), "nor is there a region");
    a.run(Command::CreateKeyspace(plans(&[A, B]))).unwrap();
    let more = KeyspaceSpec { sites: vec![A, C], ..KeyspaceSpec::causal_region("x", "x:") };
    assert_eq!(refused(&mut a, Command::CreateKeyspace(more.clone())), too_few);
    // One that all sites hold changes nothing, and one that leaves counts as none.
    a.run(Command::CreateKeyspace(KeyspaceSpec::causal_region("all", "all:"))).unwrap();
    a.run(change(RegistryChange::Leave(C))).unwrap();
    a.run(Command::DropKeyspace { name: "plans".into() }).unwrap();
    assert_eq!(refused(&mut a, Command::CreateKeyspace(more)), too_few);
}

#[test]
fn the_last_site_that_holds_all_does_not_leave() {
    let mut a = three_without_a_keyspace();
    a.run(Command::CreateKeyspace(plans(&[A, B]))).unwrap();
    a.run(change(RegistryChange::Leave(B))).unwrap();
    let last = RegistryError::LastReplica(entry("a").name);
    assert_eq!(refused(&mut a, change(RegistryChange::Leave(A))), last);
    // Others may leave, also twice.
    a.run(change(RegistryChange::Leave(B))).unwrap();
    a.run(Command::DropKeyspace { name: "plans".into() }).unwrap();
    a.run(change(RegistryChange::Leave(A))).unwrap();
    assert!(!a.copy_of_registry().site(C).unwrap().leaving);
}
