//! A keyspace that the root and `a` hold and of which `c` holds keys on demand, in the place of
//! `q`.

use super::{A, C, Found, MS, ROOT, Script, Session, expect, golden, value};
use model::{
    Answer, Body, Command, Failure, KeyspaceSpec, Miss, Query, ReadConsistency, SiteId, Write,
    limits,
};
use protocol::bugs::Bug;

impl Script {
    fn with_fetched(&mut self) {
        let sites = [ROOT, A].map(|site| self.lab.sites[site].id.unwrap());
        let sites: Vec<SiteId> = sites.into();
        let miss = Miss::Fetch { held_bytes_max: limits::CAUSAL_HELD_BYTES_MIN };
        let spec = KeyspaceSpec { sites, miss, ..KeyspaceSpec::causal_region("s", "s:") };
        let Answer::Keyspace(made) = self.order(ROOT, Command::CreateKeyspace(spec)) else {
            panic!("not made")
        };
        self.keyspaces[1] = made.id;
        self.pass(3_000);
    }

    fn set_field(&mut self, session: &mut Session, site: usize, key: &'static str) {
        let fields = vec![("f".into(), "1".into())];
        self.write(session, site, 1, Write::HashSet { key: key.into(), fields });
    }

    /// A field of a hash: its token counts all that the site shows.
    fn field(&mut self, session: &mut Session, site: usize, key: &'static str) -> Found {
        let query = Query::HashGet { key: key.into(), field: "f".into() };
        let (keyspace, consistency) = (self.keyspaces[1], ReadConsistency::Linearizable);
        let body = Body::Read { keyspace, query, consistency };
        let ticket = self.ask(site, body, Some(session.0.clone()), 300);
        let (outcome, token) = self.answer(ticket, 300);
        match outcome {
            Ok(Answer::Value(found)) => {
                session.0 = token.unwrap();
                found.map_or(Found::Nothing, |found| value(&String::from_utf8_lossy(&found.value)))
            }
            Err(Failure::Session(_) | Failure::NotServing(_) | Failure::Unknown { .. }) => {
                Found::Waits
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_held(&self, site: usize) -> bool {
        let node = self.lab.leader(site).unwrap();
        self.lab.region_standing(node).unwrap().held.keys > 0
    }
}

/// What a key holds comes at a place of the order: a session that sees it there sees what comes
/// before.
#[test]
fn what_is_fetched_does_not_show_before_its_place() {
    golden(
        |script| {
            script.with_fetched();
            // The content of x comes late: `c` asks for it once it has its place.
            script.lab.part_sites_one_way(A, C);
            let mut writer = Session::begins();
            script.put(&mut writer, A, "p:x", "1");
            script.set_field(&mut writer, A, "q:y");
            let mut reader = Session::begins();
            let mut is_seen = false;
            for _ in 0..40 {
                if script.field(&mut reader, C, "q:y") == value("1") {
                    is_seen = true;
                    let x = script.get(&mut reader, C, "p:x");
                    expect(&x, &[value("1"), Found::Waits], "x at c, where y was seen")?;
                }
                script.pass(5);
            }
            assert!(is_seen && script.is_held(C), "c holds nothing of y");
            Ok(())
        },
        &[Bug::FetchedOutside],
    );
}

/// What the root has ordered and not imported is a part of what it sends: the site skips the places
/// before.
#[test]
fn what_is_fetched_has_all_that_lies_before_its_place() {
    golden(
        |script| {
            script.with_fetched();
            script.with_standby();
            // The standby does not get its own write's place, so that the root does not import it.
            script.lab.part_sites_one_way(ROOT, A);
            script.put(&mut Session::begins(), A, "q:x", "1");
            script.pass(100);
            script.get(&mut Session::begins(), C, "q:x");
            script.mend();
            let x = script.get(&mut Session::begins(), C, "q:x");
            assert!(script.is_held(C), "c holds nothing of x");
            expect(&x, &[value("1")], "x at c")
        },
        &[Bug::FetchedUnfolded],
    );
}

/// Held means: every later write to the key comes.
#[test]
fn what_is_held_on_demand_is_kept_up() {
    golden(
        |script| {
            script.with_fetched();
            let mut client = Session::begins();
            script.put(&mut client, A, "q:x", "1");
            expect(&script.get(&mut client, C, "q:x"), &[value("1")], "x at c")?;
            assert!(script.is_held(C), "c holds nothing of x");
            let mut writer = Session::begins();
            script.put(&mut writer, A, "q:x", "2");
            script.pass(1_000);
            expect(&script.get(&mut writer, A, "q:x"), &[value("2")], "x at a")?;
            // The root is lost: what is held is read, and written.
            script.lab.part_site(ROOT);
            script.lab.run(MS * 1_000);
            expect(&script.get(&mut writer.clone(), C, "q:x"), &[value("2")], "x at c, then")?;
            script.put(&mut writer, C, "q:x", "3");
            expect(&script.get(&mut writer, C, "q:x"), &[value("3")], "x at c in the end")
        },
        &[Bug::CoveredFetched],
    );
}

/// A site does not take for absent what it does not hold.
#[test]
fn what_is_not_fetched_is_not_taken_for_absent() {
    golden(
        |script| {
            script.with_fetched();
            let mut client = Session::begins();
            script.put(&mut client, A, "q:y", "1");
            script.pass(1_000);
            expect(&script.get(&mut client, A, "q:y"), &[value("1")], "y at a")?;
            script.pass(1_000);
            expect(&script.get(&mut client, C, "q:y"), &[value("1")], "y, asked at c")
        },
        &[Bug::AnswersUnfetched],
    );
}

/// A site of one node answers reads beside its core, and those that it cannot answer go there.
#[test]
fn what_is_asked_without_a_session_is_fetched_too() {
    golden(
        |script| {
            script.with_fetched();
            script.put(&mut Session::begins(), A, "q:x", "1");
            let query = Query::Get { key: "q:x".into() };
            let (keyspace, consistency) = (script.keyspaces[1], ReadConsistency::Linearizable);
            let ticket = script.ask(C, Body::Read { keyspace, query, consistency }, None, 300);
            let (outcome, _) = script.answer(ticket, 300);
            assert!(matches!(outcome, Ok(Answer::Value(Some(_)))), "{outcome:?}");
            assert!(script.is_held(C), "c holds nothing of x");
            Ok(())
        },
        &[],
    );
}
