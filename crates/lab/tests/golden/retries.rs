//! A put under a number that is sent to two sites has one effect, wherever the first one is
//! meanwhile.

use super::{A, C, MS, ROOT, Script, Session, expect, golden, golden_in, value};
use lab::simulation::Simulation;
use model::{
    Answer, Body, CausalCommand, ClientId, Command, DeploymentCommand, Failure, Position,
    RegistryChange, RequestId, SessionToken,
};
use protocol::bugs::Bug;

const NUMBER: RequestId = RequestId { client: ClientId(77), sequence: 1, acknowledged_below: 0 };

impl Script {
    /// The first attempt, of which the client sees no answer.
    fn put_unanswered(&mut self, session: &Session, site: usize, key: &str, value: &str) {
        let (keyspace, request) = (self.keyspaces[0], NUMBER);
        let pairs = vec![(key.to_owned().into(), value.to_owned().into())];
        let command = Command::Causal(CausalCommand::Numbered { request, keyspace, pairs });
        let ticket = self.ask(site, Body::Write(command), Some(session.0.clone()), 1_000);
        let outcome = self.answer(ticket, 1_000).0;
        assert!(matches!(outcome, Ok(Answer::Put { .. })), "{outcome:?}");
    }

    /// The next one, at another site.
    fn try_again(
        &mut self,
        session: &Session,
        (tried, site): (usize, usize),
        (key, value): (&str, &str),
    ) -> (Result<Answer, Failure>, Option<SessionToken>) {
        let (keyspace, request, since) = (self.keyspaces[0], NUMBER, Position(0));
        let pairs = vec![(key.to_owned().into(), value.to_owned().into())];
        let tried = self.lab.sites[tried].id.unwrap();
        let retry = CausalCommand::Retry { request, tried, since, keyspace, pairs };
        let body = Body::Write(Command::Causal(retry));
        let ticket = self.ask(site, body, Some(session.0.clone()), 2_000);
        self.answer(ticket, 2_000)
    }

    fn put_again(
        &mut self,
        session: &mut Session,
        sites: (usize, usize),
        pair: (&str, &str),
    ) -> Result<(), String> {
        match self.try_again(session, sites, pair) {
            (Ok(Answer::Placed(_)), Some(token)) => session.0 = token,
            other => return Err(format!("not made again: {other:?}")),
        }
        Ok(())
    }

    fn expect_all(&mut self, key: &str, text: &str) -> Result<(), String> {
        for site in [ROOT, A, C] {
            expect(&self.get(&mut Session::begins(), site, key), &[value(text)], key)?;
        }
        Ok(())
    }
}

/// The first site has made it, cut off: when it comes, what others have made of it stays (X6).
#[test]
fn what_the_first_site_made_of_a_write_that_was_retried_has_no_effect() {
    golden(
        |script| {
            let (mut client, mut other) = (Session::begins(), Session::begins());
            script.lab.part_sites_one_way(A, ROOT);
            script.lab.part_sites_one_way(A, C);
            script.put_unanswered(&client, A, "p:x", "u");
            script.put_again(&mut client, (A, C), ("p:x", "u"))?;
            expect(&script.get(&mut client, C, "p:x"), &[value("u")], "what was retried")?;
            expect(&script.get(&mut other, C, "p:x"), &[value("u")], "the same, of another")?;
            script.put(&mut other, C, "p:x", "v");
            script.pass(1_000);
            script.mend();
            script.expect_all("p:x", "v")
        },
        &[Bug::RetryUnmatched],
    );
}

const BESIDE_ANOTHER: [Option<&str>; 3] = [Some("east"), Some("east"), Some("west")];

/// The same in a region beside another one, which sees the retry as a write like any other. There
/// it cannot be sent again, unless its region has it.
#[test]
fn a_write_is_retried_in_a_region_beside_another_one() {
    let script = |script: &mut Script| -> Result<(), String> {
        let (mut client, mut other) = (Session::begins(), Session::begins());
        script.put(&mut other, C, "q:z", "0");
        script.pass(2_000);
        expect(&script.get(&mut client, ROOT, "q:z"), &[value("0")], "z of the other region")?;
        script.lab.part_sites_one_way(A, ROOT);
        script.lab.part_sites_one_way(A, C);
        script.put_unanswered(&Session::begins(), A, "p:x", "u");
        let there = script.try_again(&client, (A, C), ("p:x", "u")).0;
        if !matches!(there, Err(Failure::Refused(_))) {
            return Err(format!("made in another region: {there:?}"));
        }
        script.put_again(&mut client, (A, ROOT), ("p:x", "u"))?;
        expect(&script.get(&mut client, ROOT, "p:x"), &[value("u")], "what was retried")?;
        script.pass(2_000);
        expect(&script.get(&mut other, C, "p:x"), &[value("u")], "the same, of another")?;
        script.put(&mut other, C, "p:x", "v");
        script.pass(2_000);
        script.put_again(&mut client, (A, ROOT), ("p:x", "u"))?;
        script.mend();
        script.expect_all("p:x", "v")
    };
    golden_in(BESIDE_ANOTHER, 1, script, &[Bug::RetryUnmatched]);
}

/// The first site orders for its region later, and has its own attempt as one without an effect: the
/// other region, which was cut off, does not get it from there.
#[test]
fn the_first_site_has_its_place_without_an_effect_when_it_is_the_root() {
    let script = |script: &mut Script| -> Result<(), String> {
        let (mut client, mut other) = (Session::begins(), Session::begins());
        [ROOT, A].into_iter().for_each(|site| script.lab.part_sites(site, C));
        script.lab.part_sites_one_way(A, ROOT);
        let mut first = Session::begins();
        script.put_unanswered(&first, A, "p:x", "u");
        expect(&script.get(&mut first, A, "p:x"), &[value("u")], "x at the first site")?;
        script.put_again(&mut client, (A, ROOT), ("p:x", "u"))?;
        script.put(&mut other, ROOT, "p:x", "w");
        script.lab.mend_sites(A, ROOT);
        script.pass(5_000);
        expect(&script.get(&mut Session::begins(), A, "p:x"), &[value("w")], "x there")?;
        let to = script.lab.sites[A].id.unwrap();
        let moved = RegistryChange::MoveRoot(to);
        script.order(ROOT, Command::Deployment(DeploymentCommand::ChangeRegistry(moved)));
        let root_moved = |lab: &Simulation| {
            let registry = lab.leader(A).and_then(|leader| lab.registry(leader));
            registry.is_some_and(|registry| registry.regions.iter().any(|one| one.root == to))
        };
        assert!(script.lab.run_until(MS * 60_000, root_moved));
        script.mend();
        // What it wrote there has no effect, which does not come to the other region.
        expect(&script.get(&mut first, C, "p:x"), &[value("w")], "x for the first session")?;
        script.expect_all("p:x", "w")
    };
    golden_in(BESIDE_ANOTHER, 1, script, &[]);
}

/// It has its place already: the answer is that place.
#[test]
fn a_retried_write_that_has_its_place_is_not_made_again() {
    golden(
        |script| {
            let (mut client, mut other) = (Session::begins(), Session::begins());
            script.put(&mut client, C, "p:y", "1");
            script.pass(1_000);
            script.put_unanswered(&client, A, "p:x", "u");
            script.pass(1_000);
            expect(&script.get(&mut other, C, "p:x"), &[value("u")], "x at c")?;
            script.put(&mut other, C, "p:x", "v");
            script.pass(1_000);
            script.put_again(&mut client, (A, C), ("p:x", "u"))?;
            expect(&script.get(&mut client, C, "p:x"), &[value("v")], "x behind it")?;
            script.pass(1_000);
            script.expect_all("p:x", "v")
        },
        &[Bug::RetryForgotten],
    );
}

/// What the first site wrote before lies under the retry, at that site and at all others (X7).
#[test]
fn what_the_first_site_wrote_before_lies_under_the_retry() {
    golden(
        |script| {
            let mut client = Session::begins();
            script.lab.part_sites_one_way(A, ROOT);
            script.lab.part_sites_one_way(A, C);
            script.put(&mut Session::begins(), A, "p:x", "w");
            script.put(&mut Session::begins(), A, "p:y", "1");
            // It never came to a.
            script.put_again(&mut client, (A, C), ("p:x", "u"))?;
            script.pass(1_000);
            expect(&script.get(&mut client, C, "p:x"), &[value("u")], "x at c")?;
            expect(&script.get(&mut Session::begins(), A, "p:x"), &[value("u")], "x at a")?;
            script.put_unanswered(&Session::begins(), A, "p:x", "late");
            expect(&script.get(&mut Session::begins(), A, "p:x"), &[value("u")], "x at a, late")?;
            script.mend();
            script.expect_all("p:x", "u")?;
            script.put(&mut client, C, "p:x", "v");
            script.pass(1_000);
            script.expect_all("p:y", "1")?;
            script.expect_all("p:x", "v")
        },
        &[Bug::RetryUnmatched],
    );
}

/// The root is lost with the first site's attempt on its way: the standby matches it.
#[test]
fn a_standby_that_goes_on_matches_what_the_first_site_offers() {
    golden(
        |script| {
            script.with_standby();
            let (mut client, mut other) = (Session::begins(), Session::begins());
            script.lab.part_sites_one_way(C, ROOT);
            script.lab.part_sites_one_way(C, A);
            script.put(&mut other, C, "p:x", "w");
            script.put_unanswered(&client, C, "p:x", "u");
            script.put_again(&mut client, (C, A), ("p:x", "u"))?;
            script.put(&mut client, A, "p:x", "v");
            script.pass(1_000);
            script.lab.mend_sites(A, C);
            script.lose_root();
            script.lab.rejoin_site(ROOT);
            script.mend();
            script.expect_all("p:x", "v")
        },
        &[Bug::RetryUnmatched],
    );
}
