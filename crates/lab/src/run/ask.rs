//! Asking sites from beside them, as an operator does: all sites at the same time, each one
//! question after the other.
//!
//! At the same time, because a large world has much to do in every moment: what is asked of ten
//! thousand sites in turn takes ten thousand times as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{Answer, Body, Failure, Request, limits};
use protocol::site::Ticket;

use super::form::TIMEOUT;
use super::{Run, TEND};
use crate::simulation::Stepped;

/// A question that a site has answered.
pub(super) struct Reply<Q> {
    /// The site.
    pub(super) site: usize,
    /// What it was about.
    pub(super) about: Q,
    /// The answer.
    pub(super) answer: Answer,
    /// When it was first asked.
    pub(super) call_us: u64,
    /// When it was answered.
    pub(super) return_us: u64,
}

/// What a site is being asked.
struct Turn<Q> {
    about: Q,
    body: Body,
    since: Duration,
    /// The attempt that has no answer yet.
    ticket: Option<Ticket>,
    /// When the request is repeated.
    again_at: Duration,
    /// Why the last attempt failed.
    last: Failure,
}

/// The questions that are out.
struct Round<Q> {
    turns: BTreeMap<usize, Turn<Q>>,
    /// When the request to each site is repeated; one entry a turn.
    again: BTreeSet<(Duration, usize)>,
    asked: BTreeMap<Ticket, usize>,
    replies: Vec<Reply<Q>>,
}

impl<Q> Round<Q> {
    /// The next question to a site, to be asked at once.
    fn begin(&mut self, site: usize, now: Duration, question: Option<(Q, Body)>) {
        if let Some((about, body)) = question {
            let last = Failure::NoLeader;
            let turn = Turn { about, body, since: now, ticket: None, again_at: now, last };
            self.turns.insert(site, turn);
            self.again.insert((now, site));
        }
    }

    fn ask_again_at(&mut self, site: usize, at: Duration) {
        if let Some(turn) = self.turns.get_mut(&site) {
            self.again.remove(&(turn.again_at, site));
            turn.again_at = at;
            self.again.insert((at, site));
        }
    }
}

impl Run<'_> {
    /// Asks the leader of one site.
    pub(super) fn ask(&mut self, site: usize, body: Body) -> Result<Answer, String> {
        let mut body = Some(body);
        let replies =
            self.ask_all(|other| (other == site).then(|| body.take()).flatten().map(|b| ((), b)))?;
        let reply = replies.into_iter().next();
        reply.map(|reply| reply.answer).ok_or_else(|| "a question was not asked".to_owned())
    }

    /// Asks the leader of each site, from beside it, whatever `next` has for that site, until all
    /// is answered. The answers by site, each site's in their order.
    pub(super) fn ask_all<Q>(
        &mut self,
        mut next: impl FnMut(usize) -> Option<(Q, Body)>,
    ) -> Result<Vec<Reply<Q>>, String> {
        let mut round = Round {
            turns: BTreeMap::new(),
            again: BTreeSet::new(),
            asked: BTreeMap::new(),
            replies: Vec::new(),
        };
        for site in self.sites_inside() {
            round.begin(site, self.lab.now(), next(site));
        }
        while let Some((at, site)) = round.again.first().copied() {
            if self.lab.failure.is_some() {
                break;
            }
            if at <= self.lab.now() {
                self.attempt(&mut round, site)?;
            } else {
                // What falls due of the run's own meanwhile is thrown away.
                let _: Stepped<_> = self.lab.step(at);
            }
            for answered in std::mem::take(&mut self.lab.answered) {
                if let Some(site) = round.asked.remove(&answered.ticket) {
                    self.receive(&mut round, site, answered.outcome, &mut next);
                }
            }
        }
        match (&self.lab.failure, round.turns.first_key_value()) {
            (Some(why), Some(_)) => Err(why.clone()),
            _ => {
                round.replies.sort_by_key(|reply| reply.site);
                Ok(round.replies)
            }
        }
    }

    /// Asks a site's leader, if there is one.
    fn attempt<Q>(&mut self, round: &mut Round<Q>, site: usize) -> Result<(), String> {
        let now = self.lab.now();
        let Some(turn) = round.turns.get_mut(&site) else { return Ok(()) };
        if now >= turn.since + TIMEOUT {
            let name = &self.world.sites[site].name;
            return Err(format!("{name} does not answer: {}", turn.last));
        }
        if let Some(late) = turn.ticket.take() {
            round.asked.remove(&late);
        }
        let request = Request::new(turn.body.clone());
        let leader = self.lab.leader(site);
        let ticket = leader.and_then(|leader| self.lab.ask(leader, request));
        turn.ticket = ticket;
        if let Some(ticket) = ticket {
            round.asked.insert(ticket, site);
        }
        let rest = if ticket.is_some() { limits::REQUEST_DEADLINE + TEND } else { TEND };
        round.ask_again_at(site, now + rest);
        Ok(())
    }

    /// A site has answered, one way or the other.
    fn receive<Q>(
        &mut self,
        round: &mut Round<Q>,
        site: usize,
        outcome: Result<Answer, Failure>,
        next: &mut impl FnMut(usize) -> Option<(Q, Body)>,
    ) {
        let now = self.lab.now();
        match outcome {
            Ok(answer) => {
                let Some(turn) = round.turns.remove(&site) else { return };
                round.again.remove(&(turn.again_at, site));
                round.replies.push(Reply {
                    site,
                    about: turn.about,
                    answer,
                    call_us: turn.since.as_micros() as u64,
                    return_us: now.as_micros() as u64,
                });
                round.begin(site, now, next(site));
            }
            Err(failure) => {
                if let Some(turn) = round.turns.get_mut(&site) {
                    turn.ticket = None;
                    turn.last = failure;
                }
                round.ask_again_at(site, now + TEND);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::history::Action;
    use crate::run::{Options, run};
    use crate::world::World;

    /// A hundred sites whose disks are slow, with something to make, to load and to read again.
    const WORLD: &str = "name = 'hundred'
title = 'A hundred sites'
duration_s = 2
area = { south = 44, west = 6, north = 48, east = 12 }
[links]
client_site = { base_ms = 5 }
site_site = { base_ms = 5 }
node_node = { base_ms = 1 }
[node]
sync_ms = [20, 20]
[grid]
rows = 10
columns = 10
spacing_m = 4000
center = { lat = 46, lon = 9 }
prefix = 's'
[[keyspace]]
name = 'x'
prefix = 'x:'
[[clients]]
name = 'c'
count = 100
keyspace = 'x'
attach = { rule = 'spread' }
workload = { kind = 'ycsb', variant = 'a', records = 300, value_bytes = 20 }
pace = { loop = 'open', rate_hz = 2.0 }
";

    #[test]
    fn a_hundred_sites_are_asked_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hundred.toml");
        std::fs::write(&path, WORLD).unwrap();
        let world = World::load(&path, None).unwrap();
        let ran = run(&world, &Options::default());
        assert_eq!(ran.wrongs(), [""; 0]);
        // One after the other, the loading alone would take a hundred times two fsyncs.
        let besides = ran.figures.virtual_time - world.duration;
        assert!(besides < Duration::from_secs(2), "{besides:?}");
        let of = |client: &str, site: &str| {
            let operations = ran.history.operations.iter();
            let by = format!("{client}-{site}");
            operations.filter(|one| one.client == by).collect::<Vec<_>>()
        };
        for site in ["s-0-0", "s-9-9"] {
            let loaded = of("loader", site);
            assert_eq!(loaded.len(), 300);
            // In two commands, one after the other.
            assert!(loaded[0].return_us <= Some(loaded[299].call_us), "{site}");
            assert!(loaded.iter().all(|one| one.key.starts_with(&format!("{site}:x:user"))));
            let audited = of("auditor", site);
            assert!(!audited.is_empty() && audited.iter().all(|one| one.action == Action::Get));
            assert!(audited.is_sorted_by_key(|one| one.call_us));
        }
    }
}
