//! Answers on their way to a client, a node, another site or a job.

use super::{Origin, Output, Site};
use crate::bugs::Bug;
use crate::replica::writes::{self, Settled};
use model::{Answer, Failure, Refusal, SessionToken};
use storage::log::LogReader;
use storage::snapshot::Snapshots;
use storage::state::State;
use wire::entry;
use wire::peer::{self, Content};

impl<S: State, R: LogReader, N: Snapshots> Site<S, R, N> {
    pub(super) fn settle(&mut self, settled: Vec<Settled>) {
        let mut settled = std::collections::VecDeque::from(settled);
        while let Some((origin, mut outcome)) = settled.pop_front() {
            if self.options.planted.is(Bug::DenyForgotten) {
                outcome = writes::forgotten_is_refused(outcome);
            }
            let token = self.sessions.end(origin);
            match origin {
                Origin::Client { ticket, .. } => {
                    self.outputs.push_back(Output::Answer { ticket, outcome, token });
                }
                Origin::Doubtful(ticket) => {
                    let outcome = match self.options.planted.is(Bug::DenyDoubt) {
                        true => outcome.map_err(|_| Failure::NoLeader),
                        false => outcome.map_err(doubted),
                    };
                    self.outputs.push_back(Output::Answer { ticket, outcome, token });
                }
                Origin::Node { node, id, served } => {
                    let reports_members = matches!(
                        outcome,
                        Ok(Answer::Flag(true)) | Err(Failure::NoLeader | Failure::Membership(_))
                    );
                    let members = reports_members.then(|| self.replica.members.clone());
                    let outcome = entry::encode_reply(&outcome);
                    let token = token.map(SessionToken::into_bytes);
                    let is_about_key = served.is_about_key();
                    let served = is_about_key.then(|| self.served_under(served).to_wire());
                    let answer = peer::ForwardedAnswer { id, outcome, members, token, served };
                    self.replica.replies.entry(node).or_default().push(answer);
                }
                Origin::Site { site, node, id, in_doubt, served, .. } => {
                    let outcome = if in_doubt { outcome.map_err(doubted) } else { outcome };
                    let token = token.map(SessionToken::into_bytes);
                    self.answer_site((site, node), (id, served), outcome, token);
                }
                Origin::Routed { id, in_doubt } => {
                    let outcome = if in_doubt { outcome.map_err(doubted) } else { outcome };
                    let now = self.now.monotonic;
                    match self.global.routing.came_back(id, in_doubt, outcome, now) {
                        Some(one) => settled.push_back(one),
                        None => self.session_answered(origin, None),
                    }
                }
                Origin::Job { job, id } => self.job_answered(job, id, outcome),
                Origin::Registrar(id) => self.registrar_answered(id, outcome),
                // A tick that was refused or given up is proposed again when it is due.
                Origin::Discard => self.replica.tick_proposed = false,
            }
        }
    }

    pub(super) fn send_replies(&mut self) {
        for (to, answers) in std::mem::take(&mut self.replica.replies) {
            for answers in peer::in_parts(answers) {
                self.send(to, Content::Answered(peer::Answered { answers }));
            }
        }
    }
}

/// A failure under which nothing was done, for a request that an earlier leader may have done.
fn doubted(failure: Failure) -> Failure {
    match failure {
        Failure::NoLeader
        | Failure::Overloaded { .. }
        | Failure::DiskFull(_)
        | Failure::NotServing(_)
        | Failure::Session(_)
        // It is refused ahead of what is remembered, once its keyspace is adaptive.
        | Failure::Refused(Refusal::CrossSlot) => writes::unknown(
            "a leader was lost that may have carried it out, and no other could tell",
        ),
        known => known,
    }
}
