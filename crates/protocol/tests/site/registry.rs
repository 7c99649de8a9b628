//! The registry of several sites in the lab's virtual time: changed with a site away, by several at
//! once, asked for again; recovered; and what a site is asked under a registry that it does not
//! have yet.

use lab::link::Link;
use lab::simulation::{Settings, Simulation};
use model::{
    Answer, Ballot, Body, ClientId, Command, DeploymentCommand, DeploymentId, Failure, Keyspace,
    KeyspaceSpec, Refusal, RegistrarStep, Registry, RegistryChange, RegistryView, Request,
    RequestId, SiteEntry, SiteId, SiteName, Slot, Write,
};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Sites {
    lab: Simulation,
    count: usize,
}

fn create(name: &str) -> RegistryChange {
    RegistryChange::CreateKeyspace(KeyspaceSpec::linearizable_global(name, format!("{name}:")))
}

fn change(change: RegistryChange) -> Body {
    Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(change)))
}

fn numbered(sequence: u64, change: RegistryChange) -> Body {
    let id = RequestId { client: ClientId(77), sequence, acknowledged_below: 0 };
    Body::Registry { change: Box::new(change), id: Some(id) }
}

impl Sites {
    fn new(count: usize) -> Sites {
        let mut lab = Simulation::new(1, Settings { mirrors: false, ..Settings::default() });
        lab.trace = Some(String::new());
        for (site, name) in NAMES.into_iter().take(count).enumerate() {
            lab.add_site(name, Link::constant(1.0));
            lab.add_node(site, false);
        }
        lab.set_site_links(|_, _| Link::constant(10.0));
        assert!(lab.run_until(MS * 5_000, |lab| (0..count).all(|site| lab.is_whole(site))));
        let mut sites = Sites { lab, count };
        let site = sites.lab.entry(0).unwrap();
        let found =
            Command::Deployment(DeploymentCommand::Found { deployment: DeploymentId(7), site });
        sites.ask(0, Body::Write(found)).unwrap();
        for site in 1..count {
            let join = change(RegistryChange::Join(sites.lab.entry(site).unwrap()));
            // Any site of the deployment is asked.
            let Answer::Registered { site: id, registry } = sites.ask(site - 1, join).unwrap()
            else {
                panic!("not registered")
            };
            sites
                .ask(
                    site,
                    Body::Write(Command::Deployment(DeploymentCommand::Enter {
                        site: id,
                        registry,
                    })),
                )
                .unwrap();
        }
        let wanted = count.min(3);
        let is_ready = |lab: &Simulation| {
            let one = |site| lab.registry(site).unwrap();
            (0..count).all(|site| one(site).registrars.set.sites().len() == wanted)
                && (0..count).all(|site| one(site).version == one(0).version)
                && (0..count).all(|site| !lab.held_slots(site).0.is_empty())
        };
        assert!(sites.lab.run_until(MS * 60_000, is_ready), "{:?}", sites.lab.failure);
        sites
    }

    /// Asks all at the same moment.
    fn ask_all(&mut self, asked: Vec<(usize, Body)>) -> Vec<Result<Answer, Failure>> {
        let request = |body| Request::new(body);
        let tickets: Vec<_> = asked
            .into_iter()
            .map(|(site, body)| self.lab.ask(site, request(body)).unwrap())
            .collect();
        let is_done = |lab: &Simulation| {
            tickets.iter().all(|ticket| lab.answered.iter().any(|one| one.ticket == *ticket))
        };
        assert!(self.lab.run_until(MS * 30_000, is_done), "{:?}", self.lab.failure);
        let mut answered = std::mem::take(&mut self.lab.answered);
        let outcomes = tickets.iter().map(|ticket| {
            let at = answered.iter().position(|one| one.ticket == *ticket).unwrap();
            answered.remove(at).outcome
        });
        outcomes.collect()
    }

    fn ask(&mut self, site: usize, body: Body) -> Result<Answer, Failure> {
        self.ask_all(vec![(site, body)]).remove(0)
    }

    fn made(&mut self, site: usize, body: Body) -> Keyspace {
        match self.ask(site, body) {
            Ok(Answer::Keyspace(made)) => *made,
            other => panic!("{other:?}"),
        }
    }

    fn view(&mut self, site: usize, body: Body) -> RegistryView {
        match self.ask(site, body) {
            Ok(Answer::RegistryView(view)) => *view,
            other => panic!("{other:?}"),
        }
    }

    fn registry(&self, site: usize) -> Arc<model::Registry> {
        self.lab.registry(site).unwrap()
    }

    /// Waits until all sites have one version.
    fn agree(&mut self) {
        let count = self.count;
        let one = |lab: &Simulation, site| lab.registry(site).unwrap();
        let is_one = |lab: &Simulation| (0..count).all(|site| one(lab, site) == one(lab, 0));
        assert!(self.lab.run_until(MS * 20_000, is_one), "{:?}", self.lab.failure);
    }
}

#[test]
fn any_one_of_three_may_be_away_when_the_registry_is_changed() {
    let mut sites = Sites::new(3);
    for (away, name) in NAMES.into_iter().enumerate().take(3) {
        sites.lab.part_site(away);
        let asked = (away + 1) % 3;
        let made = sites.made(asked, change(create(name)));
        assert!(sites.registry(asked).keyspaces.contains(&made));
        sites.lab.rejoin_site(away);
        sites.agree();
        assert_eq!(sites.registry(away).keyspaces.len(), away + 1, "it learns of it");
    }
}

#[test]
fn a_site_joins_and_leaves_while_a_registrar_is_away() {
    let mut sites = Sites::new(4);
    let registrars = sites.registry(0).registrars.set;
    assert_eq!(registrars.sites().len(), 3);
    // The fourth one holds nothing of it: it is asked, and it leaves.
    sites.lab.part_site(1);
    let left = sites.ask(3, change(RegistryChange::Leave(SiteId(4))));
    assert!(matches!(left, Ok(Answer::Registered { site: SiteId(4), .. })), "{left:?}");
    sites.lab.rejoin_site(1);
    let has_left =
        |lab: &Simulation| (0..3).all(|site| lab.registry(site).unwrap().site(SiteId(4)).is_none());
    assert!(sites.lab.run_until(MS * 60_000, has_left), "{:?}", sites.lab.failure);
    // A registrar leaves: two are left, and hold it.
    sites.ask(0, change(RegistryChange::Leave(SiteId(3)))).unwrap();
    let two = |lab: &Simulation| {
        (0..2).all(|site| {
            let registry = lab.registry(site).unwrap();
            registry.registrars.set.sites() == [SiteId(1), SiteId(2)]
        })
    };
    assert!(sites.lab.run_until(MS * 60_000, two), "{:?}", sites.lab.failure);
}

#[test]
fn changes_at_one_moment_are_all_made_and_a_name_is_given_once() {
    let mut sites = Sites::new(3);
    let asked = (0..3).map(|site| (site, change(create(NAMES[site])))).collect();
    let mut ids: Vec<_> = sites
        .ask_all(asked)
        .into_iter()
        .map(|outcome| match outcome {
            Ok(Answer::Keyspace(made)) => made.id,
            other => panic!("{other:?}"),
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let same = (0..3).map(|site| (site, change(create("same")))).collect();
    let outcomes = sites.ask_all(same);
    let taken = Err(Failure::Refused(Refusal::KeyspaceExists { name: "same".into() }));
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == taken).count(), 2);
    sites.agree();
}

#[test]
fn a_change_that_is_asked_for_again_is_made_once() {
    let mut sites = Sites::new(3);
    let made = sites.made(0, numbered(1, create("x")));
    assert_eq!(sites.made(0, numbered(1, create("x"))), made, "its answer was lost");
    assert_eq!(sites.made(2, numbered(1, create("x"))), made, "at another site");
    // At all of them at once.
    let asked = (0..3).map(|site| (site, numbered(2, create("y")))).collect();
    let outcomes = sites.ask_all(asked);
    assert!(matches!(outcomes[0], Ok(Answer::Keyspace(_))), "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
    sites.agree();
    assert_eq!(sites.registry(1).keyspaces.len(), 2);
}

#[test]
fn of_two_sites_one_is_lost_and_the_registry_goes_on() {
    let mut sites = Sites::new(2);
    sites.lab.part_site(0);
    let refused = sites.ask(1, change(create("x"))).unwrap_err();
    assert!(matches!(refused, Failure::NotServing(_) | Failure::Unknown { .. }), "{refused}");
    let view = sites.view(1, Body::ShowRegistry);
    assert_eq!((view.has_majority, &view.silent[..]), (false, &[SiteId(1)][..]));
    let recover = |accept| Body::RecoverRegistry { without: vec![SiteId(1)], accept };
    let view = sites.view(1, recover(false));
    assert!(!view.recovered && view.silent.is_empty() && view.answering.is_empty());
    let view = sites.view(1, recover(true));
    assert!(view.recovered && view.version.term.number == 1, "{view:?}");
    // The answer was lost, and it is asked for again.
    let again = sites.view(1, recover(true));
    assert!(again.recovered && again.version.term.number == 1, "{again:?}");
    let made = sites.made(1, change(create("y")));
    // The other one has not learned of it, and comes back.
    sites.lab.rejoin_site(0);
    sites.agree();
    assert_eq!(sites.registry(0).keyspaces.last(), Some(&made));
    let two = |lab: &Simulation| lab.registry(0).unwrap().registrars.set.sites().len() == 2;
    assert!(sites.lab.run_until(MS * 20_000, two), "it holds the registry again");
    let view = sites.view(0, recover(false));
    assert_eq!(view.answering, [SiteId(1)], "who answers is not lost");
    assert!(sites.ask(1, recover(true)).is_err());
}

#[test]
fn nothing_is_recovered_while_most_registrars_answer() {
    let mut sites = Sites::new(3);
    sites.lab.part_site(2);
    let recover = |without| Body::RecoverRegistry { without, accept: true };
    let none = Failure::Refused(Refusal::Registry(model::RegistryError::NoRecovery));
    assert_eq!(sites.ask(0, recover(vec![SiteId(3)])), Err(none));
    // Two are lost; only one of them is named.
    sites.lab.part_site(1);
    let silent = sites.ask(0, recover(vec![SiteId(3)])).unwrap_err();
    assert!(silent.to_string().contains("most registrars are not named"), "{silent}");
    let view = sites.view(0, recover(vec![SiteId(2), SiteId(3)]));
    assert!(view.recovered && view.has_majority, "{view:?}");
}

/// A write of a key that adds one to it, in a slot that a site holds.
fn count_at(sites: &Sites, site: usize, keyspace: &Keyspace) -> Body {
    let held = sites.lab.held_slots(site).0;
    let name = &keyspace.spec.name;
    let mut keys = (0..).map(|number| format!("{name}:{number}"));
    let key = keys.find(|key| held.contains(&Slot::of_key(key.as_bytes()))).unwrap();
    let write = Write::Add { key: key.into(), delta: 1 };
    Body::Write(Command::Write { keyspace: keyspace.id, write, request: None })
}

#[test]
fn what_a_keyspace_holds_outlives_a_recovery_that_did_not_know_of_it() {
    let mut sites = Sites::new(3);
    sites.lab.part_site(2);
    let made = sites.made(0, change(create("new")));
    let count = count_at(&sites, 0, &made);
    assert_eq!(sites.ask(0, count.clone()), Ok(Answer::Integer(1)));
    // The third one, which has not learned of the keyspace, goes on without the two that made it.
    sites.lab.part_site(0);
    sites.lab.part_site(1);
    let recover = Body::RecoverRegistry { without: vec![SiteId(1), SiteId(2)], accept: true };
    let view = sites.view(2, recover);
    assert!(view.recovered, "{view:?}");
    assert!(sites.registry(2).keyspaces.is_empty());
    (0..3).for_each(|site| sites.lab.rejoin_site(site));
    let is_back = |lab: &Simulation| {
        (0..3).all(|site| lab.registry(site).unwrap().keyspaces.contains(&made))
            && (0..3).all(|site| lab.registry(site).unwrap().version.term.number == 1)
    };
    assert!(sites.lab.run_until(MS * 60_000, is_back), "it is handed in");
    assert_eq!(sites.ask(0, count), Ok(Answer::Integer(2)), "what it held is there");
}

/// Both sides of a recovery create a keyspace of one name.
#[test]
fn what_a_keyspace_holds_outlives_another_one_of_its_name() {
    let mut sites = Sites::new(3);
    sites.lab.part_site(2);
    let made = sites.made(0, change(create("new")));
    let count = count_at(&sites, 0, &made);
    assert_eq!(sites.ask(0, count.clone()), Ok(Answer::Integer(1)));
    sites.lab.part_site(0);
    sites.lab.part_site(1);
    let recover = Body::RecoverRegistry { without: vec![SiteId(1), SiteId(2)], accept: true };
    assert!(sites.view(2, recover).recovered);
    let other = sites.made(2, change(create("new")));
    (0..3).for_each(|site| sites.lab.rejoin_site(site));
    let named = |lab: &Simulation, site: usize, id| {
        let registry = lab.registry(site).unwrap();
        let one = registry.keyspaces.iter().find(|one| one.id == id);
        one.map(|one| one.spec.name.clone())
    };
    let is_back = |lab: &Simulation| (0..3).all(|site| named(lab, site, made.id).is_some());
    assert!(sites.lab.run_until(MS * 60_000, is_back), "it is handed in");
    assert_eq!(named(&sites.lab, 1, made.id), Some(format!("new-{}", made.id.0)));
    assert_eq!(named(&sites.lab, 1, other.id), Some("new".into()));
    assert_eq!(sites.ask(0, count), Ok(Answer::Integer(2)), "what it held is there");
    let count = count_at(&sites, 0, &other);
    assert_eq!(sites.ask(0, count), Ok(Answer::Integer(1)), "they are two");
}

#[test]
fn a_site_that_joined_beyond_the_end_of_a_term_has_not_left() {
    let mut sites = Sites::new(3);
    sites.lab.part_site(2);
    sites.lab.add_site(NAMES[3], Link::constant(1.0));
    sites.lab.add_node(3, false);
    assert!(sites.lab.run_until(MS * 5_000, |lab| lab.is_whole(3)));
    let join = change(RegistryChange::Join(sites.lab.entry(3).unwrap()));
    let Ok(Answer::Registered { site: id, registry }) = sites.ask(0, join) else {
        panic!("not registered")
    };
    sites
        .ask(3, Body::Write(Command::Deployment(DeploymentCommand::Enter { site: id, registry })))
        .unwrap();
    // The third one goes on without those in its registry, which does not have this one.
    [0, 1, 3].into_iter().for_each(|site| sites.lab.part_site(site));
    let recover = Body::RecoverRegistry { without: vec![SiteId(1), SiteId(2)], accept: true };
    assert!(sites.view(2, recover).recovered);
    (0..4).for_each(|site| sites.lab.rejoin_site(site));
    let is_listed = |lab: &Simulation| {
        (0..4).all(|site| lab.registry(site).unwrap().version.term.number == 1)
            && (0..4).all(|site| lab.registry(site).unwrap().site(id).is_some())
    };
    let mut steps = 0;
    while !is_listed(&sites.lab) {
        sites.lab.run(MS);
        assert!(!sites.lab.sites[3].has_left, "its shell would remember that for good");
        steps += 1;
        assert!(steps < 60_000, "it is handed in");
    }
}

#[test]
fn a_recovery_that_ended_half_way_is_asked_for_again() {
    let mut sites = Sites::new(4);
    sites.lab.part_site(1);
    sites.lab.part_site(2);
    let recover = |without| Body::RecoverRegistry { without, accept: true };
    let body = recover(vec![SiteId(2), SiteId(3)]);
    let ticket = sites.lab.ask(0, Request::new(body)).unwrap();
    // The fourth one answers the call, and is away when it is to promise.
    sites.lab.run(MS * 1_000);
    sites.lab.part_site(3);
    let is_answered = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
    assert!(sites.lab.run_until(MS * 30_000, is_answered));
    assert!(sites.lab.answered.pop().unwrap().outcome.is_err());
    (0..4).for_each(|site| sites.lab.rejoin_site(site));
    sites.lab.run(MS * 3_000);
    let view = sites.view(0, recover(Vec::new()));
    // Each attempt has a term of its own.
    assert!(view.recovered && view.version.term.number >= 2, "{view:?}");
    sites.made(0, change(create("x")));
    sites.agree();
}

/// Two of three registrars have promised a term that has no value: its recovery ended half-way.
#[test]
fn a_recovery_that_blocks_all_changes_is_repeated_once_all_sites_answer() {
    let mut sites = Sites::new(4);
    for site in [0, 1] {
        let step = DeploymentCommand::Registrar(RegistrarStep::ReserveTerm);
        sites.ask(site, Body::Write(Command::Deployment(step))).unwrap();
    }
    sites.lab.part_site(3);
    for site in [0, 2] {
        let blocked = sites.ask(site, change(create("x"))).unwrap_err();
        let why = "a recovery of the registry has ended half-way";
        assert!(
            matches!(&blocked, Failure::NotServing(text) if text.starts_with(why)),
            "{blocked:?}"
        );
    }
    sites.lab.rejoin_site(3);
    sites.made(0, change(create("x")));
    assert!(sites.registry(0).version.term.number >= 2);
    sites.agree();
    sites.made(3, change(create("y")));
}

/// a has accepted that d joins. b and c are lost: they may have let d in, and made it a registrar.
#[test]
fn a_site_that_may_have_joined_is_asked_or_named_by_its_number() {
    let mut sites = Sites::new(3);
    let known = sites.registry(0);
    let at = Ballot { round: known.version.round + 1, site: SiteId(1), ..known.version };
    let entry =
        SiteEntry { id: SiteId(0), name: SiteName::new("d").unwrap(), ..known.sites[2].clone() };
    let entry = SiteEntry { incarnation: 77, ..entry };
    let mut joined = Registry::clone(&known);
    joined.change_at(&RegistryChange::Join(entry), at).unwrap();
    joined.version = at;
    let unlisted = joined.sites.last().unwrap().id;
    let step = RegistrarStep::Accept(at, Box::new(joined));
    sites.ask(0, Body::Write(Command::Deployment(DeploymentCommand::Registrar(step)))).unwrap();
    sites.lab.part_site(1);
    sites.lab.part_site(2);
    let recover = |accept, more: &[SiteId]| {
        let without = [&[SiteId(2), SiteId(3)], more].concat();
        Body::RecoverRegistry { without, accept }
    };
    assert_eq!(sites.view(0, recover(false, &[])).silent, [unlisted]);
    let silent = model::RegistryError::Silent(unlisted.to_string());
    let refused = Failure::Refused(Refusal::Registry(silent));
    assert_eq!(sites.ask(0, recover(true, &[])), Err(refused));
    assert!(sites.view(0, recover(true, &[unlisted])).recovered);
    assert!(sites.registry(0).site(unlisted).is_none());
}

/// c is refused, and another site's recovery ends that before c is asked again.
#[test]
fn a_block_that_another_site_has_ended_is_over() {
    let mut sites = Sites::new(3);
    for site in [0, 1] {
        let step = DeploymentCommand::Registrar(RegistrarStep::ReserveTerm);
        sites.ask(site, Body::Write(Command::Deployment(step))).unwrap();
    }
    let short = Request { deadline_ms: Some(1_000), ..Request::new(change(create("x"))) };
    let ticket = sites.lab.ask(2, short).unwrap();
    let is_answered = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
    assert!(sites.lab.run_until(MS * 5_000, is_answered));
    sites.lab.answered.clear();
    sites.made(0, change(create("y")));
    sites.agree();
    let term = sites.registry(2).version.term;
    sites.lab.run(MS * 30_000);
    assert_eq!(sites.registry(2).version.term, term);
}

#[test]
fn a_site_learns_the_registry_that_a_request_rests_on_before_it_is_served() {
    let mut sites = Sites::new(3);
    // b receives nothing of what a and c agree on.
    sites.lab.hold_sites(0, 1);
    sites.lab.hold_sites(2, 1);
    let made = sites.made(0, change(create("new")));
    let held = sites.lab.held_slots(1).0;
    let mut keys = (0..).map(|number| format!("new:{number}"));
    let key = keys.find(|key| held.contains(&Slot::of_key(key.as_bytes()))).unwrap();
    sites.lab.drop_held(0, 1, usize::MAX);
    sites.lab.release_sites(0, 1);
    assert!(sites.registry(1).keyspaces.is_empty());
    let write = Write::Add { key: key.into(), delta: 1 };
    let write = Command::Write { keyspace: made.id, write, request: None };
    let before = sites.lab.now();
    assert_eq!(sites.ask(0, Body::Write(write)), Ok(Answer::Integer(1)));
    // There, for the registry, back with it, and the write's own way back; and two entries of the
    // log.
    assert!(sites.lab.now() - before < MS * 60, "{:?}", sites.lab.now() - before);
    assert_eq!(sites.registry(1).keyspaces, [made]);
}
