//! One request of a session to one site: to its nodes in turn, and what their answers mean for the
//! session.
//!
//! A put may be of one site, or be sent to several ([`Elsewhere`]): then it has the number of the
//! first one, and states in each attempt which one that is, and whether it may have been made
//! there.

use super::error::RoamingError;
use super::place::{Failed, Work, lock};
use crate::call::{Caller, Repeat, Unanswered, kv};
use crate::error::{Verdict, judge};
use crate::sequence::Begun;
use crate::{Error, v1};
use model::Bytes;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use wire::grpc::{AGAIN_KEY, Lack, Reason, SESSION_KEY, TRIED_KEY};

/// The key that is read to attach to a site and to measure it. Nothing need be there.
const ATTACH_KEY: &[u8] = b"portolan.attach";
/// Before the nodes of a site are asked again for a write that was sent.
const PAUSE: Duration = Duration::from_millis(50);
/// A failure this long before the end of an attempt is one because of it.
const TIMER: Duration = Duration::from_millis(5);

/// One call of a session.
pub(super) struct Call<'a, Make, Ask> {
    pub(super) sites: &'a [Caller],
    pub(super) keyspace: &'a str,
    pub(super) repeat: Repeat,
    /// For how long a write that was sent is asked for.
    pub(super) settle: Duration,
    /// Of a put that other sites may be asked for.
    pub(super) elsewhere: Option<Elsewhere<'a>>,
    /// The message; with the number of a write, which is the site's.
    pub(super) make: Make,
    pub(super) ask: Ask,
}

/// A put that other sites may be asked for once it was sent in vain.
pub(super) struct Elsewhere<'a> {
    /// The names of all sites.
    pub(super) names: &'a [MetadataValue<Ascii>],
    /// Where it is tried first.
    pub(super) first: Mutex<Option<First<'a>>>,
}

pub(super) struct First<'a> {
    site: usize,
    number: Begun<'a>,
    /// It may have been made there. Until then another site can be the first one.
    was_sent: bool,
}

/// What an attempt states about those before it.
#[derive(Clone, Copy)]
struct Tried<'a> {
    /// The name of the site that is tried first.
    first: &'a MetadataValue<Ascii>,
    /// It may have been made there.
    was_sent: bool,
}

impl Tried<'_> {
    /// A later attempt states that at the first site, too: that may have left since, and be another
    /// one of this name.
    fn state_in(self, metadata: &mut MetadataMap) {
        metadata.insert(TRIED_KEY, self.first.clone());
        if self.was_sent {
            metadata.insert(AGAIN_KEY, MetadataValue::from_static(""));
        }
    }
}

impl<'a> Elsewhere<'a> {
    /// The number of an attempt at a site, and which site is tried first.
    fn attempt(&self, site: usize, sites: &'a [Caller]) -> (v1::RequestId, Tried<'a>) {
        let mut first = lock(&self.first);
        if first.as_ref().is_none_or(|first| !first.was_sent && first.site != site) {
            *first = Some(First { site, number: sites[site].sequence.begin(), was_sent: false });
        }
        let first = first.as_ref().expect("it was just set");
        let tried = Tried { first: &self.names[first.site], was_sent: first.was_sent };
        (first.number.id(), tried)
    }

    fn was_sent(&self) {
        if let Some(first) = lock(&self.first).as_mut() {
            first.was_sent = true;
        }
    }
}

impl<Make, Ask, M, R, F> Work for Call<'_, Make, Ask>
where
    Make: Fn(Option<v1::RequestId>) -> M + Sync,
    Ask: Fn(Channel, Request<M>) -> F + Sync,
    M: Clone + Send + Sync,
    F: Future<Output = Result<Response<R>, Status>> + Send,
    R: Send,
{
    type Answer = R;

    /// The answer's token is dropped: it has seen all that the site shows, and the application none
    /// of that.
    async fn attach(&self, site: usize, token: &Bytes, limit: Duration) -> Result<(), Failed> {
        let get = |channel, request| async move { kv(channel).get(request).await };
        let (caller, repeat) = (&self.sites[site], Repeat::Read);
        let read = Round { caller, token, repeat, tried: None, limit };
        let message = a_read(self.keyspace, v1::Consistency::Linearizable);
        match read.ask(message, &get, Instant::now() + limit, self.settle).await {
            Ok(_) => Ok(()),
            // Who may not read waits in the call itself.
            Err(Failed::Final(RoamingError::Refused(Error::Denied(_)))) => Ok(()),
            Err(failed) => Err(failed),
        }
    }

    async fn send(
        &self,
        site: usize,
        token: &Bytes,
        limit: Duration,
        late: Instant,
    ) -> Result<(R, Bytes), Failed> {
        let (caller, repeat) = (&self.sites[site], self.repeat);
        let of_site = self.elsewhere.is_none() && repeat == Repeat::Numbered;
        let number = of_site.then(|| caller.sequence.begin());
        let attempt = self.elsewhere.as_ref().map(|put| put.attempt(site, self.sites));
        let id = attempt.map(|(id, _)| id).or(number.as_ref().map(|number| number.id()));
        let tried = attempt.map(|(_, tried)| tried);
        let round = Round { caller, token, repeat, tried, limit };
        let asked = round.ask((self.make)(id), &self.ask, late, self.settle).await;
        if let (Some(put), Err(Failed::Sent(_))) = (&self.elsewhere, &asked) {
            put.was_sent();
        }
        let response = asked?;
        let token = token_of(response.metadata());
        Ok((response.into_inner(), token))
    }
}

/// Asks the nodes of one site.
struct Round<'a> {
    caller: &'a Caller,
    token: &'a Bytes,
    repeat: Repeat,
    /// If it may be tried elsewhere.
    tried: Option<Tried<'a>>,
    limit: Duration,
}

impl Round<'_> {
    /// Every node once, within the limit; after a write was sent, until its outcome is known or it
    /// took too long. One that may be sent elsewhere is asked for once more at each node that
    /// answers.
    async fn ask<M, R, F>(
        &self,
        message: M,
        ask: &(impl Fn(Channel, Request<M>) -> F + Sync),
        late: Instant,
        settle: Duration,
    ) -> Result<Response<R>, Failed>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let nodes = self.caller.nodes();
        let (mut ends, mut was_sent) = (late.min(Instant::now() + self.limit), false);
        let mut asked_again = 0;
        let mut last = Failed::Away { why: "no node has answered".to_owned(), is_silent: false };
        for tried in 0usize.. {
            let left_nodes = nodes.len().saturating_sub(tried);
            let left = ends.saturating_duration_since(Instant::now());
            if left.is_zero() || left_nodes == 0 && !was_sent {
                break;
            }
            if was_sent && self.tried.is_some() {
                if asked_again == nodes.len() {
                    break;
                }
                asked_again += 1;
            }
            if left_nodes == 0 {
                sleep(PAUSE.min(left)).await;
            }
            // A node that hangs leaves time for the others.
            let this_late = if left_nodes > 1 { Instant::now() + left / 2 } else { ends };
            let (at, channel) = nodes.current();
            let said = self.tried.map(|one| Tried { was_sent: one.was_sent || was_sent, ..one });
            let in_session = |channel, mut request: Request<M>| {
                let token = MetadataValue::from_bytes(self.token);
                request.metadata_mut().insert_bin(SESSION_KEY, token);
                if let Some(said) = said {
                    said.state_in(request.metadata_mut());
                }
                ask(channel, request)
            };
            let asked =
                self.caller.attempt(at, channel, message.clone(), this_late, &in_session).await;
            let failed = match asked {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            let address = nodes.address(at);
            nodes.leave(at);
            last = match judged(&failed, Instant::now() + TIMER >= this_late) {
                Meant::Done(error) if !was_sent || self.tried.is_none() && error.settles() => {
                    return Err(Failed::Final(RoamingError::Refused(error)));
                }
                Meant::Done(error) => return Err(self.without_answer(error.to_string())),
                Meant::Overloaded(error) if !was_sent => {
                    return Err(Failed::Final(RoamingError::Refused(error)));
                }
                Meant::Ended(error) if !was_sent => return Err(Failed::Final(error)),
                Meant::Lacks(error) => Failed::Lacks(error),
                Meant::Overloaded(error) => away(address, &error.to_string(), false),
                Meant::Ended(error) => away(address, &error.to_string(), false),
                Meant::Away { why, is_silent } => away(address, &why, is_silent),
                Meant::Perhaps { why, is_silent } => {
                    if self.repeat == Repeat::Numbered && !was_sent {
                        (was_sent, ends) = (true, late.min(Instant::now() + settle));
                    }
                    if was_sent && is_silent && self.tried.is_some() {
                        // The others need not be so slow.
                        return Err(self.without_answer(format!("{address}: {why}")));
                    }
                    away(address, &why, is_silent)
                }
            };
        }
        Err(match last {
            Failed::Away { why, .. } if was_sent => self.without_answer(why),
            Failed::Lacks(error) if was_sent => self.without_answer(error.to_string()),
            last => last,
        })
    }

    /// A write was sent, and there is no answer.
    fn without_answer(&self, why: String) -> Failed {
        if self.tried.is_some() { Failed::Sent(why) } else { Failed::Unknown(why) }
    }
}

fn away(address: &str, why: &str, is_silent: bool) -> Failed {
    Failed::Away { why: format!("{address}: {why}"), is_silent }
}

/// What a failed attempt means for a session.
#[derive(Debug)]
enum Meant {
    /// The site refuses it.
    Done(Error),
    /// The site has too much to do: not a reason to go to another one, which would soon have the
    /// same.
    Overloaded(Error),
    /// The session cannot go on.
    Ended(RoamingError),
    /// The node has not what the session has seen.
    Lacks(RoamingError),
    /// Nothing was done.
    Away { why: String, is_silent: bool },
    /// It may have been done.
    Perhaps { why: String, is_silent: bool },
}

fn judged(failed: &Unanswered, is_late: bool) -> Meant {
    let status = &failed.status;
    let message = || status.message().to_owned();
    match Lack::of(status) {
        Some(Lack::Behind) => return Meant::Lacks(RoamingError::Behind(message())),
        Some(Lack::Unordered) => return Meant::Lacks(RoamingError::Unordered(message())),
        Some(Lack::Lost) => return Meant::Ended(RoamingError::Lost(message())),
        Some(Lack::BadToken) => return Meant::Ended(RoamingError::BadToken(message())),
        None => {}
    }
    let reason = Reason::of(status);
    if reason == Some(Reason::Overloaded) {
        return Meant::Overloaded(Error::Exhausted(message()));
    }
    let is_silent = reason.is_none() && is_late;
    match judge(status) {
        Verdict::Final(Error::Unknown(why)) => Meant::Perhaps { why, is_silent: false },
        Verdict::Final(error) => Meant::Done(error),
        Verdict::Again(why) | Verdict::NoNode(why) => Meant::Away { why, is_silent },
        Verdict::Perhaps(why) if failed.was_never_sent => Meant::Away { why, is_silent },
        Verdict::Perhaps(why) => Meant::Perhaps { why, is_silent },
    }
}

/// The time that a site takes to answer a read of one key; `None`: it does not answer.
pub(super) async fn ping(caller: &Caller, keyspace: &str, limit: Duration) -> Option<Duration> {
    let nodes = caller.nodes();
    for _ in 0..nodes.len() {
        let (at, channel) = nodes.current();
        if nodes.are_cut(at).is_some()
            && !answers(caller, at, channel.clone(), keyspace, limit).await
        {
            nodes.leave(at);
            continue;
        }
        // Over a connection that is there.
        let began = Instant::now();
        if answers(caller, at, channel, keyspace, limit).await {
            return Some(began.elapsed());
        }
        nodes.leave(at);
    }
    None
}

async fn answers(
    caller: &Caller,
    at: usize,
    channel: Channel,
    keyspace: &str,
    limit: Duration,
) -> bool {
    let get = |channel, request| async move { kv(channel).get(request).await };
    let message = a_read(keyspace, v1::Consistency::Stale);
    match caller.attempt(at, channel, message, Instant::now() + limit, &get).await {
        Ok(_) => true,
        Err(failed) => !matches!(
            Reason::of(&failed.status),
            None | Some(Reason::NotServing | Reason::NoLeader | Reason::Overloaded)
        ),
    }
}

fn a_read(keyspace: &str, consistency: v1::Consistency) -> v1::GetRequest {
    v1::GetRequest {
        keyspace: keyspace.to_owned(),
        key: Bytes::from_static(ATTACH_KEY),
        consistency: consistency.into(),
        with_point: false,
        with_fields: true,
    }
}

/// The token of an answer; empty: it has none.
fn token_of(metadata: &MetadataMap) -> Bytes {
    metadata.get_bin(SESSION_KEY).and_then(|value| value.to_bytes().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: Status, was_never_sent: bool) -> Meant {
        judged(&Unanswered { status, was_never_sent }, false)
    }

    #[test]
    fn what_a_session_lacks_has_its_name() {
        let lacks = |lack: Lack, reason: Reason| of(lack.mark(reason.status("why")), false);
        let (session, why) = (Reason::Session, || "why".to_owned());
        assert!(matches!(
            lacks(Lack::Behind, session),
            Meant::Lacks(RoamingError::Behind(text)) if text == why()
        ));
        assert!(matches!(
            lacks(Lack::Unordered, session),
            Meant::Lacks(RoamingError::Unordered(_))
        ));
        assert!(matches!(lacks(Lack::Lost, Reason::Refused), Meant::Ended(RoamingError::Lost(_))));
        assert!(matches!(
            lacks(Lack::BadToken, Reason::Invalid),
            Meant::Ended(RoamingError::BadToken(_))
        ));
        assert!(matches!(of(Reason::Invalid.status(""), false), Meant::Done(Error::Invalid(_))));
    }

    #[test]
    fn only_what_may_have_been_sent_is_perhaps_done() {
        let broken = || Status::unavailable("connection reset");
        assert!(matches!(of(broken(), true), Meant::Away { is_silent: false, .. }));
        assert!(matches!(of(broken(), false), Meant::Perhaps { .. }));
        assert!(matches!(of(Reason::NoLeader.status(""), false), Meant::Away { .. }));
        assert!(matches!(of(Reason::Overloaded.status(""), false), Meant::Overloaded(_)));
        let late = Unanswered { status: broken(), was_never_sent: false };
        assert!(matches!(judged(&late, true), Meant::Perhaps { is_silent: true, .. }));
        let slow = Unanswered { status: Reason::NoLeader.status(""), was_never_sent: false };
        assert!(matches!(judged(&slow, true), Meant::Away { is_silent: false, .. }), "it answers");
    }
}
