//! Three sites, each a region of its own, whose roots take each other's writes.

use super::{A, C, Found, ROOT, Script, Session, expect, golden_in, value};
use model::{
    Body, Bytes, Command, DeploymentCommand, Expiry, Failure, Query, ReadConsistency,
    RegistryChange, SessionError, Write,
};
use protocol::bugs::Bug;

const REGIONS: [Option<&str>; 3] = [Some("east"), Some("west"), None];

fn golden(script: impl Fn(&mut Script) -> Result<(), String>, bugs: &[Bug]) {
    golden_in(REGIONS, 1, script, bugs);
}

/// A session that goes on in another region waits there for what it has seen and written.
#[test]
fn a_session_takes_what_it_has_seen_to_another_region() {
    golden(
        |script| {
            script.lab.part_sites(ROOT, C);
            let mut client = Session::begins();
            script.put(&mut client, ROOT, "p:x", "1");
            let mut other = Session::begins();
            script.pass(1_000);
            expect(&script.get(&mut other, A, "p:x"), &[value("1")], "x in the region beside")?;
            for session in [client.clone(), other.clone()] {
                let x = script.get(&mut session.clone(), C, "p:x");
                expect(&x, &[Found::Waits], "x in the region that is cut off")?;
            }
            script.mend();
            for mut session in [client, other] {
                expect(&script.get(&mut session, C, "p:x"), &[value("1")], "x in the end")?;
            }
            Ok(())
        },
        &[Bug::ForeignUnresolved],
    );
}

/// A session gets an answer in another region once the site that it wrote at has left: its write is
/// there, or lost.
#[test]
fn a_site_that_has_left_is_waited_for_in_no_region() {
    let script = |script: &mut Script| -> Result<(), String> {
        let mut ordered = Session::begins();
        script.put(&mut ordered, A, "p:x", "1");
        script.pass(1_000);
        script.lab.part_site(A);
        let mut lost = Session::begins();
        script.put(&mut lost, A, "p:y", "1");
        let y = script.get(&mut lost.clone(), C, "p:y");
        expect(&y, &[Found::Waits], "y, while its site may be back")?;
        let left = RegistryChange::Remove(script.lab.sites[A].id.unwrap());
        script.order(ROOT, Command::Deployment(DeploymentCommand::ChangeRegistry(left)));
        script.pass(2_000);
        expect(&script.get(&mut ordered, C, "p:x"), &[value("1")], "x, which has its place")?;
        let keyspace = script.keyspaces[0];
        let (query, consistency) =
            (Query::Get { key: "p:y".into() }, ReadConsistency::Linearizable);
        let body = Body::Read { keyspace, query, consistency };
        let ticket = script.ask(C, body, Some(lost.0.clone()), 2_000);
        match script.answer(ticket, 2_000).0 {
            Err(Failure::Session(SessionError::Lost { .. })) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    golden_in([Some("east"), Some("east"), Some("west")], 1, script, &[]);
}

/// A region that has an effect from one region has its cause from another one.
#[test]
fn no_effect_comes_to_a_third_region_before_its_cause() {
    golden(
        |script| {
            script.lab.part_sites(ROOT, C);
            script.put(&mut Session::begins(), ROOT, "p:x", "1");
            script.pass(1_000);
            let mut client = Session::begins();
            expect(&script.get(&mut client, A, "p:x"), &[value("1")], "x, the cause")?;
            script.put(&mut client, A, "q:y", "1");
            script.pass(2_000);
            let mut reader = Session::begins();
            if script.get(&mut reader, C, "q:y") == value("1") {
                let x = script.get(&mut reader, C, "p:x");
                expect(&x, &[value("1")], "the cause of what was read")?;
            }
            script.mend();
            expect(&script.get(&mut Session::begins(), C, "q:y"), &[value("1")], "y in the end")
        },
        &[Bug::BridgeUnordered],
    );
}

/// Two regions write while they are cut off from each other: all end with what has the higher
/// stamp, field by field.
#[test]
fn all_regions_end_with_the_later_of_two_writes() {
    golden(
        |script| {
            script.lab.part_sites(ROOT, C);
            script.lab.part_sites(A, C);
            script.put(&mut Session::begins(), ROOT, "p:x", "early");
            script.pass(1_000);
            script.put(&mut Session::begins(), C, "p:x", "late");
            script.pass(1_000);
            script.mend();
            script.pass(2_000);
            for site in [ROOT, A, C] {
                let x = script.get(&mut Session::begins(), site, "p:x");
                expect(&x, &[value("late")], "what was written last")?;
            }
            Ok(())
        },
        &[Bug::BridgeUnstamped],
    );
}

/// A key expires in all regions, and one that was given more time elsewhere does not.
#[test]
fn a_key_expires_once_all_regions_have_come_so_far() {
    golden(
        |script| {
            let for_ms = Expiry::AfterMs;
            script.put_with(&mut Session::begins(), ROOT, ("p:x", "1"), for_ms(6_000));
            script.put_with(&mut Session::begins(), ROOT, ("p:z", "1"), for_ms(6_000));
            script.pass(2_000);
            script.lab.part_sites(ROOT, C);
            script.lab.part_sites(A, C);
            let key = Bytes::from("p:z");
            let condition = model::ExpiryCondition::Always;
            let longer = Write::SetExpiry { key, expiry: for_ms(60_000), condition };
            script.write(&mut Session::begins(), C, 0, longer);
            script.pass(9_000);
            let x = script.get(&mut Session::begins(), ROOT, "p:x");
            expect(&x, &[value("1")], "x while a region is cut off")?;
            script.mend();
            script.pass(4_000);
            for site in [ROOT, A, C] {
                let mut session = Session::begins();
                expect(&script.get(&mut session, site, "p:x"), &[Found::Nothing], "x is gone")?;
                expect(&script.get(&mut session, site, "p:z"), &[value("1")], "z stays")?;
            }
            Ok(())
        },
        &[],
    );
}
