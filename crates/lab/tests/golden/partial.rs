//! A keyspace that the root and `a` hold and `c` does not, in the place of `q`.

use super::{A, C, Found, MS, ROOT, Script, Session, expect, golden, value};
use model::{Answer, Command, KeyspaceSpec, SiteId};
use protocol::bugs::Bug;

impl Script {
    fn with_partial(&mut self) {
        let sites = [ROOT, A].map(|site| self.lab.sites[site].id.unwrap());
        let sites: Vec<SiteId> = sites.into();
        let spec = KeyspaceSpec { sites, ..KeyspaceSpec::causal_region("s", "s:") };
        let Answer::Keyspace(made) = self.order(ROOT, Command::CreateKeyspace(spec)) else {
            panic!("not made")
        };
        self.keyspaces[1] = made.id;
        self.pass(3_000);
    }
}

/// A request that another site carries out is a part of its session: the next one, at the site that
/// passed it on, waits for what it has seen.
#[test]
fn what_was_seen_elsewhere_holds_back_the_next_local_read() {
    golden(
        |script| {
            script.with_partial();
            // The content of x comes late: `c` asks for it once it has its place.
            script.lab.part_sites_one_way(A, C);
            let mut writer = Session::begins();
            script.put(&mut writer, A, "p:x", "1");
            script.put(&mut writer, A, "q:y", "1");
            let mut reader = Session::begins();
            let mut is_seen = false;
            for _ in 0..40 {
                if script.get(&mut reader, C, "q:y") == value("1") {
                    is_seen = true;
                    let x = script.get(&mut reader, C, "p:x");
                    expect(&x, &[value("1"), Found::Waits], "x at c, where y was seen")?;
                }
                script.pass(5);
            }
            assert!(is_seen, "the root does not answer for y");
            Ok(())
        },
        &[Bug::ForwardedUnmerged],
    );
}

/// A site that does not hold a keyspace answers for it by one that does.
#[test]
fn what_is_not_held_is_not_taken_for_absent() {
    golden(
        |script| {
            script.with_partial();
            let mut client = Session::begins();
            script.put(&mut client, A, "q:y", "1");
            script.pass(1_000);
            // From here on `c` covers all that the session has seen.
            expect(&script.get(&mut client, A, "q:y"), &[value("1")], "y at a")?;
            script.pass(1_000);
            expect(&script.get(&mut client, C, "q:y"), &[value("1")], "y, asked at c")
        },
        &[Bug::AnswersUnheld],
    );
}

/// One position states what a site has, whatever it holds: a session that has seen a place of what
/// is not held is served, and what is held has its content.
#[test]
fn a_place_is_covered_only_where_its_keyspace_is_not_held() {
    golden(
        |script| {
            script.with_partial();
            script.lab.part_sites_one_way(A, C);
            let mut client = Session::begins();
            script.put(&mut client, A, "p:x", "1");
            script.put(&mut client, A, "q:y", "1");
            script.pass(1_000);
            expect(&script.get(&mut client, A, "q:y"), &[value("1")], "y at a")?;
            script.pass(5_000);
            expect(&script.get(&mut client, C, "p:x"), &[value("1")], "x at c, behind y")
        },
        &[Bug::CoveredHeld],
    );
}

/// A session wrote by way of the root, which is lost then. The other site that holds the keyspace
/// does not answer it as if it had written nothing.
#[test]
fn another_holder_lacks_what_was_written_at_a_lost_root() {
    golden(
        |script| {
            script.with_partial();
            script.lab.part_sites_one_way(ROOT, A);
            let mut client = Session::begins();
            script.put(&mut client, C, "q:y", "1");
            script.lab.part_site(ROOT);
            for _ in 0..20 {
                script.lab.run(MS * 1_000);
                expect(&script.get(&mut client, C, "q:y"), &[Found::Waits], "y, asked at c")?;
            }
            Ok(())
        },
        &[Bug::AttachWithoutWritten],
    );
}
