//! A put under a number that is sent to two sites has one effect, wherever the first one is
//! meanwhile.

use super::{A, C, ROOT, Script, Session, expect, golden, golden_in, value};
use model::{
    Answer, Body, CausalCommand, ClientId, Command, Failure, Position, RequestId, SessionToken,
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

/// The same in a region beside another one: the later attempt is made through a site of either, and
/// all of it is ordered in the region of the first site.
#[test]
fn a_write_is_retried_through_another_region() {
    for asked in [ROOT, C] {
        let script = move |script: &mut Script| -> Result<(), String> {
            let (mut client, mut other) = (Session::begins(), Session::begins());
            // It has seen something of the other region, too.
            script.put(&mut Session::begins(), C, "q:z", "0");
            script.pass(2_000);
            expect(&script.get(&mut client, C, "q:z"), &[value("0")], "z at c")?;
            script.lab.part_sites_one_way(A, ROOT);
            script.lab.part_sites_one_way(A, C);
            script.put_unanswered(&Session::begins(), A, "p:x", "u");
            script.put_again(&mut client, (A, asked), ("p:x", "u"))?;
            expect(&script.get(&mut client, asked, "p:x"), &[value("u")], "what was retried")?;
            script.pass(2_000);
            expect(&script.get(&mut other, C, "p:x"), &[value("u")], "the same, of another")?;
            script.put(&mut other, C, "p:x", "v");
            script.pass(2_000);
            script.put_again(&mut client, (A, asked), ("p:x", "u"))?;
            script.mend();
            script.pass(2_000);
            script.expect_all("p:x", "v")
        };
        let regions = [Some("east"), Some("east"), Some("west")];
        golden_in(regions, 1, script, &[Bug::RetryUnmatched]);
    }
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
