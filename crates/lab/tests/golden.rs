//! Orders of events that break causality if one rule is left out, on the cores as they are: each
//! passes, and fails with the bug that leaves the rule out.
//!
//! Three sites, of one node if nothing else is stated: `root` orders, at `a` the client begins, at
//! `c` it must find what it has seen. Links between sites are cut in one direction to hold up what
//! the rule is about.

#[path = "golden/fetched.rs"]
mod fetched;
#[path = "golden/partial.rs"]
mod partial;
#[path = "golden/regions.rs"]
mod regions;
#[path = "golden/retries.rs"]
mod retries;

use lab::link::Link;
use lab::simulation::{Down, NodeIndex, Settings, Simulation};
use model::{
    Answer, Body, Bytes, Command, Condition, DeploymentCommand, DeploymentId, Expiry, Failure,
    KeyspaceId, KeyspaceSpec, Query, ReadConsistency, RegistryChange, Request, SessionToken,
    StandbyChoice, StandbyRule, Write,
};
use protocol::bugs::{Bug, Planted};
use protocol::site::Ticket;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const ROOT: usize = 0;
const A: usize = 1;
const C: usize = 2;

struct Script {
    lab: Simulation,
    /// Two keyspaces, `p` and `q`.
    keyspaces: [KeyspaceId; 2],
}

/// A client's session.
#[derive(Clone)]
struct Session(SessionToken);

impl Session {
    fn begins() -> Session {
        Session(SessionToken::new(Bytes::new()).unwrap())
    }
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Value(String),
    Nothing,
    /// Not served in time.
    Waits,
}

fn value(text: &str) -> Found {
    Found::Value(text.to_owned())
}

impl Script {
    fn of_regions(bug: Option<Bug>, nodes: usize, regions: [Option<&str>; 3]) -> Script {
        let planted = bug.map_or_else(Planted::default, Planted::of);
        let settings =
            Settings { answer_at_front: true, notes_order: true, planted, ..Settings::default() };
        let mut lab = Simulation::new(1, settings);
        for name in ["root", "a", "c"] {
            let site = lab.add_site(name, Link::constant(1.0));
            lab.sites[site].region = regions[site].map(|name| model::SiteName::new(name).unwrap());
            (0..nodes).for_each(|_| {
                lab.add_node(site, false);
            });
        }
        lab.set_site_links(|_, _| Link::constant(5.0));
        assert!(lab.run_until(MS * 20_000, |lab| (0..3).all(|site| lab.is_whole(site))));
        let mut script = Script { lab, keyspaces: [KeyspaceId(0); 2] };
        let entry = |script: &Script, site| script.lab.entry(site).unwrap();
        let site = entry(&script, ROOT);
        let found = DeploymentCommand::Found { deployment: DeploymentId(7), site };
        script.order(ROOT, Command::Deployment(found));
        for site in [A, C] {
            let join = RegistryChange::Join(entry(&script, site));
            let join = Command::Deployment(DeploymentCommand::ChangeRegistry(join));
            let Answer::Registered { site: id, registry } = script.order(ROOT, join) else {
                panic!("not registered")
            };
            let enter = DeploymentCommand::Enter { site: id, registry };
            script.order(site, Command::Deployment(enter));
        }
        for (place, name) in ["p", "q"].into_iter().enumerate() {
            let spec = KeyspaceSpec::causal_region(name, format!("{name}:"));
            let Answer::Keyspace(made) = script.order(ROOT, Command::CreateKeyspace(spec)) else {
                panic!("not made")
            };
            script.keyspaces[place] = made.id;
        }
        script.pass(5_000);
        script
    }

    fn pass(&mut self, ms: u64) {
        self.lab.run(MS * ms as u32);
        assert_eq!(self.lab.failure, None);
    }

    fn ask(&mut self, site: usize, body: Body, token: Option<SessionToken>, ms: u64) -> Ticket {
        let node = self.lab.leader(site).unwrap_or(self.lab.sites[site].nodes[0]);
        self.ask_node(node, body, token, ms)
    }

    fn ask_node(
        &mut self,
        node: NodeIndex,
        body: Body,
        token: Option<SessionToken>,
        ms: u64,
    ) -> Ticket {
        let request = Request { token, deadline_ms: Some(ms), ..Request::new(body) };
        self.lab.ask(node, request).unwrap()
    }

    /// Runs until an answer is there.
    fn answer(
        &mut self,
        ticket: Ticket,
        ms: u64,
    ) -> (Result<Answer, Failure>, Option<SessionToken>) {
        let is_there = |lab: &Simulation| lab.answered.iter().any(|one| one.ticket == ticket);
        assert!(self.lab.run_until(MS * (ms as u32 + 5_000), is_there), "{:?}", self.lab.failure);
        let at = self.lab.answered.iter().position(|one| one.ticket == ticket).unwrap();
        let answered = self.lab.answered.remove(at);
        (answered.outcome, answered.token)
    }

    fn order(&mut self, site: usize, command: Command) -> Answer {
        for _ in 0..50 {
            let ticket = self.ask(site, Body::Write(command.clone()), None, 5_000);
            match self.answer(ticket, 5_000).0 {
                Ok(answer) => return answer,
                Err(Failure::Refused(refusal)) => panic!("{refusal}"),
                Err(_) => self.pass(100),
            }
        }
        panic!("no answer")
    }

    /// A write in a session, answered by the site alone.
    fn write(&mut self, session: &mut Session, site: usize, keyspace: usize, write: Write) {
        let keyspace = self.keyspaces[keyspace];
        let body = Body::Write(Command::Write { keyspace, write, request: None });
        let ticket = self.ask(site, body, Some(session.0.clone()), 2_000);
        let (outcome, token) = self.answer(ticket, 2_000);
        outcome.unwrap();
        session.0 = token.unwrap();
    }

    fn put(&mut self, session: &mut Session, site: usize, key: &str, text: &str) {
        self.put_with(session, site, (key, text), Expiry::Never);
    }

    fn put_with(
        &mut self,
        session: &mut Session,
        site: usize,
        (key, text): (&str, &str),
        expiry: Expiry,
    ) {
        let keyspace = usize::from(key.starts_with('q'));
        let write = Write::Put {
            key: key.to_owned().into(),
            value: text.to_owned().into(),
            condition: Condition::Always,
            expiry,
            return_old: false,
        };
        self.write(session, site, keyspace, write);
    }

    fn delete(&mut self, session: &mut Session, site: usize, key: &str) {
        let keys = vec![key.to_owned().into()];
        let keyspace = usize::from(key.starts_with('q'));
        self.write(session, site, keyspace, Write::Delete { keys });
    }

    /// A read in a session; it is waited for that long.
    fn get(&mut self, session: &mut Session, site: usize, key: &str) -> Found {
        let keyspace = self.keyspaces[usize::from(key.starts_with('q'))];
        let query = Query::Get { key: key.to_owned().into() };
        let consistency = ReadConsistency::Linearizable;
        let body = Body::Read { keyspace, query, consistency };
        let ticket = self.ask(site, body, Some(session.0.clone()), 300);
        let (outcome, token) = self.answer(ticket, 300);
        match outcome {
            Ok(Answer::Value(found)) => {
                session.0 = token.unwrap();
                found.map_or(Found::Nothing, |found| value(&String::from_utf8_lossy(&found.value)))
            }
            Err(
                Failure::Session(_)
                | Failure::Unknown { .. }
                | Failure::NoLeader
                | Failure::NotServing(_),
            ) => Found::Waits,
            other => panic!("{other:?}"),
        }
    }

    /// `a` is the standby of the root, and in sync.
    fn with_standby(&mut self) {
        let choice = StandbyChoice::At(self.lab.sites[A].id.unwrap());
        let rule = RegistryChange::SetStandby(StandbyRule { choice, by_hand: false });
        self.order(ROOT, Command::Deployment(DeploymentCommand::ChangeRegistry(rule)));
        let in_sync = |lab: &Simulation| {
            let region = |site: usize| lab.registry(lab.leader(site)?)?.regions.last().copied();
            let standby = |site: usize| region(site).and_then(|region| region.standby);
            (0..3).all(|site| standby(site).is_some_and(|standby| standby.in_sync))
        };
        assert!(self.lab.run_until(MS * 20_000, in_sync));
    }

    /// The root is lost, and `a` goes on by itself.
    fn lose_root(&mut self) {
        self.lab.part_site(ROOT);
        let is_root = |lab: &Simulation| {
            let standing = lab.leader(A).and_then(|node| lab.region_standing(node));
            standing.is_some_and(|standing| standing.is_root)
        };
        assert!(self.lab.run_until(MS * 15_000, is_root), "no site goes on");
        self.pass(3_000);
    }

    /// All is delivered from now on.
    fn mend(&mut self) {
        for (one, other) in [(ROOT, A), (ROOT, C), (A, C)] {
            self.lab.mend_sites(one, other);
        }
        self.pass(10_000);
    }
}

/// A script passes as it is, and fails with each of these bugs.
fn golden(script: impl Fn(&mut Script) -> Result<(), String>, bugs: &[Bug]) {
    golden_of(1, script, bugs);
}

/// The same with so many nodes a site.
fn golden_of(nodes: usize, script: impl Fn(&mut Script) -> Result<(), String>, bugs: &[Bug]) {
    golden_in([None; 3], nodes, script, bugs);
}

/// The same with sites of these regions.
fn golden_in(
    regions: [Option<&str>; 3],
    nodes: usize,
    script: impl Fn(&mut Script) -> Result<(), String>,
    bugs: &[Bug],
) {
    script(&mut Script::of_regions(None, nodes, regions)).unwrap();
    for bug in bugs {
        let mut with_bug = Script::of_regions(Some(*bug), nodes, regions);
        let found = catch_unwind(AssertUnwindSafe(|| script(&mut with_bug)));
        // Some of them the lab finds before the script does: nothing happens any more then.
        let found = match with_bug.lab.failure.take() {
            Some(failure) => Err(failure),
            None => found.unwrap_or_else(|panic| resume_unwind(panic)),
        };
        eprintln!("{}: {found:?}", bug.name());
        assert!(found.is_err(), "{} is not found", bug.name());
    }
}

fn expect(found: &Found, allowed: &[Found], what: &str) -> Result<(), String> {
    match allowed.contains(found) {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}")),
    }
}

/// The highest position that a session has seen is of the target's own write. That does not mean
/// that the target has what lies before it.
#[test]
fn a_sites_own_write_does_not_show_that_it_has_what_came_before() {
    golden(
        |script| {
            script.lab.part_sites_one_way(ROOT, C);
            script.lab.part_sites_one_way(A, C);
            script.put(&mut Session::begins(), ROOT, "p:x", "1");
            script.pass(500);
            script.put(&mut Session::begins(), C, "p:y", "1");
            script.pass(3_000);
            let mut client = Session::begins();
            expect(&script.get(&mut client, A, "p:x"), &[value("1")], "x at a")?;
            expect(&script.get(&mut client, A, "p:y"), &[value("1")], "y at a")?;
            let x = script.get(&mut client.clone(), C, "p:x");
            expect(&x, &[Found::Waits], "x at c, which has its own y and not x")?;
            script.mend();
            expect(&script.get(&mut client, C, "p:x"), &[value("1")], "x at c in the end")
        },
        &[Bug::AttachWithoutSeen],
    );
}

/// What a session wrote at the site that it left becomes a position that it takes along.
#[test]
fn what_was_written_elsewhere_is_taken_along_as_a_position() {
    golden(
        |script| {
            script.lab.part_sites_one_way(A, ROOT);
            script.lab.part_sites_one_way(A, C);
            let mut client = Session::begins();
            script.put(&mut client, A, "p:x", "1");
            // It only passes by at the root, which does not have the write.
            script.get(&mut client, ROOT, "p:other");
            script.pass(500);
            let x = script.get(&mut client.clone(), C, "p:x");
            expect(&x, &[Found::Waits], "x at c, which has nothing")?;
            script.mend();
            expect(&script.get(&mut client, C, "p:x"), &[value("1")], "x at c in the end")
        },
        &[Bug::AttachWithoutWritten],
    );
}

/// A pending write stays on top until its own position is known.
#[test]
fn a_pending_write_is_not_overtaken_and_restored() {
    golden(
        |script| {
            script.lab.part_sites_one_way(A, ROOT);
            script.put(&mut Session::begins(), A, "p:x", "a");
            script.put(&mut Session::begins(), ROOT, "p:x", "r");
            let mut reader = Session::begins();
            for _ in 0..20 {
                let x = script.get(&mut reader, A, "p:x");
                expect(&x, &[value("a")], "x at a, where a is pending")?;
                script.pass(100);
            }
            script.mend();
            for site in [ROOT, A, C] {
                let x = script.get(&mut Session::begins(), site, "p:x");
                expect(&x, &[value("a")], "x in the end: a was ordered last")?;
            }
            Ok(())
        },
        &[Bug::ImportOverPending],
    );
}

/// That nothing was found is something that a session has seen.
#[test]
fn an_absent_key_has_a_position() {
    golden(
        |script| {
            let mut writer = Session::begins();
            script.put(&mut writer, ROOT, "p:x", "1");
            script.pass(3_000);
            script.lab.part_sites_one_way(ROOT, C);
            script.delete(&mut writer, ROOT, "p:x");
            script.pass(500);
            let mut client = Session::begins();
            // Twice: the second one has a token.
            for _ in 0..2 {
                expect(&script.get(&mut client, A, "p:x"), &[Found::Nothing], "x at a")?;
            }
            let x = script.get(&mut client.clone(), C, "p:x");
            expect(&x, &[Found::Waits], "x at c, which has not seen the removal")?;
            script.mend();
            expect(&script.get(&mut client, C, "p:x"), &[Found::Nothing], "x at c in the end")
        },
        &[Bug::AbsenceUnseen, Bug::ReadsUnmerged],
    );
}

/// The root's time removes a key, at a place of the order: no site shows less before it has that
/// place, and no write behind it is undone.
#[test]
fn a_key_expires_where_the_order_says_so() {
    golden(
        |script| {
            let expiry = Expiry::AfterMs(1_500);
            script.put_with(&mut Session::begins(), A, ("p:x", "1"), expiry);
            script.pass(1_000);
            expect(&script.get(&mut Session::begins(), C, "p:x"), &[value("1")], "x at c")?;
            script.lab.part_sites_one_way(ROOT, C);
            script.pass(2_000);
            let mut reader = Session::begins();
            expect(&script.get(&mut reader, A, "p:x"), &[Found::Nothing], "x at a")?;
            let x = script.get(&mut Session::begins(), C, "p:x");
            expect(&x, &[value("1")], "x at c, by whose clock it is gone")?;
            let x = script.get(&mut reader.clone(), C, "p:x");
            expect(&x, &[Found::Waits], "x at c, for who has seen that it is gone")?;
            // Behind the removal, as it turns out.
            script.put(&mut Session::begins(), C, "p:x", "2");
            script.mend();
            for site in [ROOT, A, C] {
                let x = script.get(&mut Session::begins(), site, "p:x");
                expect(&x, &[value("2")], "x in the end")?;
            }
            expect(&script.get(&mut reader, C, "p:x"), &[value("2")], "x at c in the end")
        },
        &[Bug::ExpireByOwnClock],
    );
}

/// A clear removes what the root has ordered before it, and what its session has written; at a site
/// that was cut off nothing that came behind it.
#[test]
fn a_clear_has_one_place_for_all_sites() {
    golden(
        |script| {
            let mut client = Session::begins();
            script.put(&mut Session::begins(), ROOT, "p:x", "1");
            script.pass(1_000);
            script.lab.part_sites_one_way(A, ROOT);
            script.put(&mut Session::begins(), A, "p:y", "a");
            script.put(&mut client, C, "p:z", "1");
            script.write(&mut client, C, 0, Write::Clear);
            for key in ["p:x", "p:z"] {
                let found = script.get(&mut client, C, key);
                expect(&found, &[Found::Nothing], "at c, for who has cleared")?;
            }
            script.pass(1_000);
            let y = script.get(&mut Session::begins(), A, "p:y");
            expect(&y, &[value("a")], "y at a, where it has no place yet")?;
            script.mend();
            for site in [ROOT, A, C] {
                let mut reader = Session::begins();
                expect(&script.get(&mut reader, site, "p:x"), &[Found::Nothing], "x")?;
                expect(&script.get(&mut reader, site, "p:y"), &[value("a")], "y")?;
                expect(&script.get(&mut reader, site, "p:z"), &[Found::Nothing], "z")?;
            }
            Ok(())
        },
        &[Bug::ClearPending],
    );
}

/// Two keyspaces of a site have one order.
#[test]
fn a_keyspace_does_not_overtake_another() {
    golden(
        |script| {
            let mut client = Session::begins();
            // The offer of the first write is lost; that of the second comes at once.
            script.lab.part_sites_one_way(A, ROOT);
            script.put(&mut client, A, "p:x", "1");
            script.pass(20);
            script.lab.mend_sites(A, ROOT);
            script.put(&mut client, A, "q:y", "1");
            for _ in 0..100 {
                let mut reader = Session::begins();
                let y = script.get(&mut reader, C, "q:y");
                let x = script.get(&mut reader, C, "p:x");
                if y == value("1") {
                    expect(&x, &[value("1")], "x at c, where y is there")?;
                }
                script.pass(20);
            }
            script.mend();
            expect(&script.get(&mut client, C, "q:y"), &[value("1")], "y at c in the end")
        },
        &[Bug::OffersUnchained],
    );
}

/// The root has the content of what it has ordered, whatever becomes of the site that it comes
/// from.
#[test]
fn what_is_ordered_has_its_content_at_the_root() {
    golden(
        |script| {
            script.lab.part_sites_one_way(A, C);
            script.put(&mut Session::begins(), A, "p:x", "1");
            script.pass(12);
            script.lab.part_site(A);
            script.put(&mut Session::begins(), ROOT, "p:y", "1");
            script.pass(8_000);
            expect(&script.get(&mut Session::begins(), C, "p:y"), &[value("1")], "y at c")?;
            expect(&script.get(&mut Session::begins(), C, "p:x"), &[value("1")], "x at c")
        },
        &[Bug::PayloadSkipped],
    );
}

/// A node on an empty disk has no keyspaces yet: it passes on what its leader must not carry out.
#[test]
fn a_node_without_a_state_does_not_admit_a_session() {
    golden_of(
        3,
        |script| {
            script.lab.part_sites_one_way(A, ROOT);
            let mut client = Session::begins();
            script.put(&mut client, A, "p:x", "1");
            let leader = script.lab.leader(ROOT).unwrap();
            let nodes = script.lab.sites[ROOT].nodes.clone();
            let node = nodes.into_iter().find(|node| *node != leader).unwrap();
            script.lab.crash(node, &Down::Killed);
            script.lab.replace_disk(node);
            let is_empty = |lab: &Simulation| {
                let status = lab.status(node);
                status.is_some_and(|one| one.applied_index == 0 && one.leader.is_some())
            };
            assert!(script.lab.run_until(MS * 20_000, is_empty), "it has its state at once");
            let keyspace = script.keyspaces[0];
            let write = Write::Put {
                key: "p:y".into(),
                value: "1".into(),
                condition: Condition::Always,
                expiry: Expiry::Never,
                return_old: false,
            };
            let body = Body::Write(Command::Write { keyspace, write, request: None });
            let ticket = script.ask_node(node, body, Some(client.0.clone()), 500);
            match script.answer(ticket, 500).0 {
                Ok(answer) => Err(format!("y is written before x is ordered: {answer:?}")),
                Err(_) => Ok(()),
            }
        },
        &[Bug::ForwardUnadmitted],
    );
}

/// What is ordered and not at the standby yet is shown to no client. So it is nothing that is lost
/// with the root.
#[test]
fn a_lost_root_takes_nothing_along_that_was_seen() {
    golden(
        |script| {
            script.with_standby();
            let (mut writer, mut client) = (Session::begins(), Session::begins());
            script.put(&mut writer, ROOT, "p:x", "1");
            script.pass(1_000);
            script.lab.part_sites_one_way(ROOT, A);
            script.put(&mut writer, ROOT, "p:x", "2");
            script.pass(500);
            // Whatever it sees here, it sees at the new root, too.
            let seen = script.get(&mut client, C, "p:x");
            script.lose_root();
            for site in [A, C] {
                let x = script.get(&mut client, site, "p:x");
                expect(&x, &[value("2"), value("1")], "x without the root")?;
                if seen == value("2") {
                    expect(&x, &[value("2")], "x, which was 2 before")?;
                }
            }
            // The writer waits for its write, or for the root.
            expect(&script.get(&mut writer.clone(), C, "p:x"), &[Found::Waits], "x, written as 2")?;
            script.put(&mut Session::begins(), C, "p:y", "1");
            script.pass(1_000);
            expect(&script.get(&mut Session::begins(), A, "p:y"), &[value("1")], "y")?;
            script.lab.rejoin_site(ROOT);
            script.mend();
            for site in [ROOT, A, C] {
                let x = script.get(&mut writer, site, "p:x");
                expect(&x, &[value("2")], "x in the end")?;
            }
            Ok(())
        },
        &[Bug::ReleasedEarly],
    );
}

/// A standby that is restored from a backup has acknowledged what it does not have.
#[test]
fn a_restored_standby_does_not_take_over_with_an_old_part_of_the_order() {
    golden(
        |script| {
            script.with_standby();
            let (mut writer, mut client) = (Session::begins(), Session::begins());
            script.put(&mut writer, ROOT, "p:x", "1");
            script.pass(1_000);
            let standby = script.lab.leader(A).unwrap();
            let backup = script.lab.back_up(standby).unwrap();
            script.put(&mut writer, ROOT, "p:x", "2");
            script.pass(1_000);
            expect(&script.get(&mut client, C, "p:x"), &[value("2")], "x, which is released")?;
            // It is restored, and lacks that; before it has it again, the root is lost.
            script.lab.part_sites(ROOT, A);
            script.lab.restore(standby, backup);
            script.lab.part_site(ROOT);
            let is_root = |lab: &Simulation| {
                let standing = lab.leader(A).and_then(|node| lab.region_standing(node));
                standing.is_some_and(|standing| standing.is_root)
            };
            if script.lab.run_until(MS * 30_000, is_root) {
                return Err("it is the root".to_owned());
            }
            for site in [A, C] {
                let x = script.get(&mut client, site, "p:x");
                expect(&x, &[value("2"), Found::Waits], "x, which was 2 before")?;
            }
            script.lab.rejoin_site(ROOT);
            script.mend();
            for site in [ROOT, A, C] {
                expect(&script.get(&mut client, site, "p:x"), &[value("2")], "x in the end")?;
            }
            // Once it is in sync again, it takes over as any other one.
            script.with_standby();
            script.put(&mut writer, ROOT, "p:x", "3");
            script.pass(1_000);
            script.lose_root();
            expect(&script.get(&mut writer, C, "p:x"), &[value("3")], "x at the new root")?;
            Ok(())
        },
        &[Bug::RestoredUnmarked],
    );
}

/// A root that is restored from a backup gives no position that others have of its life before.
#[test]
fn a_restored_root_orders_nothing_under_positions_that_others_have() {
    golden(
        |script| {
            let (mut writer, mut client) = (Session::begins(), Session::begins());
            script.put(&mut writer, ROOT, "p:x", "1");
            script.pass(1_000);
            let root = script.lab.leader(ROOT).unwrap();
            let backup = script.lab.back_up(root).unwrap();
            for (site, key) in [(A, "p:a"), (C, "p:c"), (ROOT, "p:x")] {
                script.put(&mut Session::begins(), site, key, "2");
            }
            script.pass(1_000);
            expect(&script.get(&mut client, C, "p:x"), &[value("2")], "x, of the root")?;
            expect(&script.get(&mut client, C, "p:a"), &[value("2")], "a")?;
            script.lab.restore(root, backup);
            script.put(&mut Session::begins(), A, "p:y", "3");
            script.put(&mut Session::begins(), C, "p:z", "3");
            script.pass(40_000);
            for site in [ROOT, A, C] {
                let all = [("p:x", "2"), ("p:a", "2"), ("p:c", "2"), ("p:y", "3"), ("p:z", "3")];
                for (key, text) in all {
                    let found = script.get(&mut client, site, key);
                    expect(&found, &[value(text)], &format!("{key} at {site}"))?;
                }
            }
            // What it writes from here on is new everywhere.
            script.put(&mut client, ROOT, "p:x", "4");
            script.pass(1_000);
            for site in [A, C, ROOT] {
                expect(&script.get(&mut client, site, "p:x"), &[value("4")], "x in the end")?;
            }
            Ok(())
        },
        &[Bug::RestoredUnmarked],
    );
}

/// A site that is restored from a backup gets its own later writes from the order, and gives no
/// revision again.
#[test]
fn a_restored_site_has_its_own_later_writes_from_the_order() {
    golden(
        |script| {
            let mut writer = Session::begins();
            script.put(&mut writer, A, "p:x", "1");
            script.pass(1_000);
            let site = script.lab.leader(A).unwrap();
            let backup = script.lab.back_up(site).unwrap();
            script.put(&mut writer, A, "p:x", "2");
            script.put(&mut writer, A, "p:y", "2");
            script.pass(1_000);
            script.lab.restore(site, backup);
            script.pass(10_000);
            // Its session is served what it wrote, from the order.
            expect(&script.get(&mut writer, A, "p:y"), &[value("2")], "y, written before")?;
            script.put(&mut writer, A, "p:x", "3");
            script.pass(2_000);
            for site in [ROOT, A, C] {
                expect(&script.get(&mut writer, site, "p:x"), &[value("3")], "x")?;
                expect(&script.get(&mut writer, site, "p:y"), &[value("2")], "y")?;
            }
            Ok(())
        },
        &[Bug::RestoredUnmarked],
    );
}

/// A session that asks for the position of its write does not get one that may be lost.
#[test]
fn a_position_that_is_lost_with_the_root_is_told_to_nobody() {
    golden(
        |script| {
            script.with_standby();
            let mut client = Session::begins();
            script.lab.part_sites_one_way(ROOT, A);
            script.put(&mut client, ROOT, "p:x", "1");
            let (keyspace, consistency) = (script.keyspaces[0], ReadConsistency::Linearizable);
            let query = Query::Get { key: "p:x".into() };
            let body = Body::Read { keyspace, query, consistency };
            // It waits at c until the standby is the root.
            let ticket = script.ask(C, body, Some(client.0.clone()), 20_000);
            script.pass(500);
            script.lose_root();
            match script.answer(ticket, 20_000).0 {
                Err(Failure::Session(_)) => {}
                other => return Err(format!("x without what the session wrote: {other:?}")),
            }
            script.lab.rejoin_site(ROOT);
            script.mend();
            expect(&script.get(&mut client, C, "p:x"), &[value("1")], "x in the end")
        },
        &[Bug::ResolvedUnreleased],
    );
}

/// A clear whose place may be lost with the root is not acknowledged, and the keys are there.
#[test]
fn a_clear_that_is_lost_with_the_root_is_acknowledged_to_nobody() {
    golden(
        |script| {
            script.with_standby();
            let mut client = Session::begins();
            script.put(&mut client, C, "p:x", "1");
            script.pass(1_000);
            script.lab.part_sites_one_way(ROOT, A);
            let (keyspace, write) = (script.keyspaces[0], Write::Clear);
            let body = Body::Write(Command::Write { keyspace, write, request: None });
            let ticket = script.ask(C, body, Some(client.0.clone()), 2_000);
            script.pass(500);
            script.lose_root();
            let cleared = script.answer(ticket, 2_000).0;
            let x = script.get(&mut client, A, "p:x");
            if cleared.is_ok() {
                expect(&x, &[Found::Nothing], "x, which was cleared")?;
            }
            expect(&x, &[value("1")], "x without the root")?;
            // The new root clears, and the lost one has that when it is back.
            script.write(&mut client, C, 0, Write::Clear);
            script.lab.rejoin_site(ROOT);
            script.mend();
            for site in [ROOT, A, C] {
                let x = script.get(&mut client, site, "p:x");
                expect(&x, &[Found::Nothing], "x in the end")?;
            }
            Ok(())
        },
        &[Bug::ClearedUnreleased],
    );
}

/// What expires just as the root is lost expires at the standby, for all.
#[test]
fn keys_expire_at_the_standby_that_goes_on() {
    golden(
        |script| {
            script.with_standby();
            let (mut client, mut reader) = (Session::begins(), Session::begins());
            let soon = Expiry::AfterMs(2_000);
            script.put_with(&mut client, C, ("p:x", "1"), soon);
            script.put_with(&mut client, C, ("p:y", "1"), Expiry::AfterMs(6_000));
            script.pass(1_000);
            script.lab.part_sites_one_way(ROOT, A);
            script.pass(1_500);
            // It has a place at the root, which no client has seen.
            let x = script.get(&mut reader, C, "p:x");
            expect(&x, &[value("1")], "x, whose expiry is not released")?;
            script.lose_root();
            for site in [A, C] {
                for key in ["p:x", "p:y"] {
                    let found = script.get(&mut reader, site, key);
                    expect(&found, &[Found::Nothing], "what is due at the new root")?;
                }
            }
            script.put(&mut client, C, "p:x", "2");
            script.lab.rejoin_site(ROOT);
            script.mend();
            for site in [ROOT, A, C] {
                let x = script.get(&mut client, site, "p:x");
                expect(&x, &[value("2")], "x in the end")?;
            }
            Ok(())
        },
        &[],
    );
}
