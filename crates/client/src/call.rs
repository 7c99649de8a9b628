//! One call: attempts at one node after the other until it succeeds, is refused or times out.

use crate::error::{Verdict, judge};
use crate::nodes::Nodes;
use crate::sequence::Sequence;
use crate::tries::{Tries, Trying};
use crate::{ConnectError, Credentials, Error, Options};
use model::{ClientId, limits};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use wire::grpc::v1::cluster_client::ClusterClient;
use wire::grpc::v1::deployment_client::DeploymentClient;
use wire::grpc::v1::kv_client::KvClient;
use wire::grpc::{CLIENT_KEY, Lack, UNCOUNTED_KEY};

/// The first pause before the same site is tried again; it doubles up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_LAST: Duration = Duration::from_millis(300);
/// After a pause, an attempt is only made if it has at least this long. If the deadline cut an
/// attempt short, an outcome that is certainly "not applied" would become "unknown".
const ATTEMPT_MIN: Duration = Duration::from_millis(100);

/// Whether a call may be repeated after its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Repeat it, and its outcome is never unknown: it changes nothing.
    Read,
    /// Repeat it: it has a request id, or done twice is done once. Until an answer arrives its
    /// outcome is unknown.
    Numbered,
}

/// A failed attempt.
pub(crate) struct Unanswered {
    pub(crate) status: Status,
    /// It was not sent: there was no connection meanwhile.
    pub(crate) was_never_sent: bool,
}

/// Calls the nodes of one site.
pub(crate) struct Caller {
    nodes: Nodes,
    options: Options,
    authorization: Option<MetadataValue<Ascii>>,
    /// The same in all calls.
    name: MetadataValue<Ascii>,
    /// The numbers of this client's writes.
    pub(crate) sequence: Sequence,
    /// Makes the pauses of clients differ that lost the same node.
    jitter: Mutex<StdRng>,
    trying: Mutex<Option<Trying>>,
}

impl Caller {
    pub(crate) fn new<S: AsRef<str>>(
        nodes: impl IntoIterator<Item = S>,
        options: Options,
    ) -> Result<Caller, ConnectError> {
        let mut random = StdRng::from_os_rng();
        Ok(Caller {
            nodes: Nodes::new(nodes, &options)?,
            authorization: options.credentials.as_ref().map(basic).transpose()?,
            name: match &options.name {
                Some(name) => checked(name)?,
                None => MetadataValue::from(random.random::<u64>()),
            },
            options,
            sequence: Sequence::new(ClientId(random.random_range(1..=u64::MAX))),
            jitter: Mutex::new(random),
            trying: Mutex::default(),
        })
    }

    /// Performs one call. `attempt` makes a request of `message` on a channel.
    pub(crate) async fn call<M, R, F>(
        &self,
        repeat: Repeat,
        message: M,
        attempt: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<R, Error>
    where
        M: Clone,
        F: Future<Output = Result<R, Status>>,
    {
        self.call_at(repeat, message, attempt).await.map(|(_, answer)| answer)
    }

    /// The same; returns the node that answered too.
    pub(crate) async fn call_at<M, R, F>(
        &self,
        repeat: Repeat,
        message: M,
        attempt: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<(usize, R), Error>
    where
        M: Clone,
        F: Future<Output = Result<R, Status>>,
    {
        let began = Instant::now();
        let late = began + self.options.deadline;
        let mut tries = Tries::new(&self.nodes, &self.trying, began);
        let mut perhaps_done = false;
        for tried in 0usize.. {
            let this_late = late.min(Instant::now() + self.options.attempt_deadline);
            let (at, channel) = self.nodes.current();
            tries.begin(at);
            let (status, never_sent) =
                match self.attempt(at, channel, message.clone(), this_late, &attempt).await {
                    Ok(answer) => return Ok((at, answer)),
                    Err(failed) => (failed.status, failed.was_never_sent),
                };
            match judge(&status) {
                Verdict::Final(error) if !perhaps_done => return Err(error),
                Verdict::Final(error) if error.settles() && Lack::of(&status).is_none() => {
                    return Err(error);
                }
                Verdict::Final(error) => return Err(Error::Unknown(error.to_string())),
                Verdict::NoNode(why) => {
                    tries.failed(at, why);
                    if tries.are_all_no_nodes(at) {
                        break;
                    }
                }
                Verdict::Again(why) => tries.failed(at, why),
                Verdict::Perhaps(why) => {
                    tries.failed(at, why);
                    match repeat {
                        _ if never_sent => {}
                        Repeat::Read => {}
                        Repeat::Numbered => perhaps_done = true,
                    }
                }
            }
            self.nodes.leave(at);
            let pause = self.pause(tried);
            if !is_worth_trying(late.saturating_duration_since(Instant::now()), pause) {
                break;
            }
            sleep(pause).await;
        }
        let why = tries.why();
        Err(if perhaps_done { Error::Unknown(why) } else { Error::Unavailable(why) })
    }

    /// One attempt at one node.
    pub(crate) async fn attempt<M, R, F>(
        &self,
        at: usize,
        channel: Channel,
        message: M,
        late: Instant,
        attempt: &impl Fn(Channel, Request<M>) -> F,
    ) -> Result<R, Unanswered>
    where
        F: Future<Output = Result<R, Status>>,
    {
        let was_cut = self.nodes.are_cut(at);
        let request = self.request(message, late);
        let answer = match timeout_at(late, attempt(channel, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::new(Code::DeadlineExceeded, "it did not answer in time")),
        };
        answer.map_err(|status| {
            let was_never_sent = was_cut.is_some_and(|then| self.nodes.are_cut_since(at, then));
            Unanswered { status, was_never_sent }
        })
    }

    /// How long one attempt may take.
    pub(crate) fn attempt_deadline(&self) -> Duration {
        self.options.attempt_deadline
    }

    /// The nodes of the site.
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The call in progress and its failed attempts; `None`: there is none.
    pub(crate) fn trying(&self) -> Option<Trying> {
        self.trying.lock().expect("no panic while it is held").clone()
    }

    /// A request with credentials and a deadline.
    fn request<M>(&self, message: M, late: Instant) -> Request<M> {
        let mut request = self.open_ended(message);
        request.set_timeout(late.saturating_duration_since(Instant::now()));
        request
    }

    /// A request with credentials, for a stream without a deadline.
    fn open_ended<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request.metadata_mut().insert(CLIENT_KEY, self.name.clone());
        if self.options.uncounted {
            request.metadata_mut().insert(UNCOUNTED_KEY, MetadataValue::from_static("1"));
        }
        request
    }

    /// Removes the deadline from a call that opens a stream: it applies only to the opening.
    pub(crate) fn streaming<M>(&self, request: Request<M>) -> Request<M> {
        self.open_ended(request.into_inner())
    }

    /// The pause before the next attempt: none until every node was tried once.
    fn pause(&self, tried: usize) -> Duration {
        let Some(round) = (tried + 1).checked_sub(self.nodes.len()) else { return Duration::ZERO };
        let longest = PAUSE_LAST.min(PAUSE_FIRST * 2u32.pow(round.min(10) as u32));
        longest
            .mul_f64(self.jitter.lock().expect("no panic while it is held").random_range(0.5..1.0))
    }
}

/// Whether the time until the deadline is enough for a pause and an attempt after it.
fn is_worth_trying(left: Duration, pause: Duration) -> bool {
    left > if pause.is_zero() { pause } else { pause + ATTEMPT_MIN }
}

/// The keys' service on a channel.
pub(crate) fn kv(channel: Channel) -> KvClient<Channel> {
    let bytes_max = limits::COMMAND_BYTES_MAX;
    KvClient::new(channel).max_decoding_message_size(bytes_max).max_encoding_message_size(bytes_max)
}

/// The administration's service on a channel.
pub(crate) fn cluster(channel: Channel) -> ClusterClient<Channel> {
    ClusterClient::new(channel).max_decoding_message_size(limits::COMMAND_BYTES_MAX)
}

/// The deployment's service on a channel.
pub(crate) fn deployment(channel: Channel) -> DeploymentClient<Channel> {
    DeploymentClient::new(channel).max_decoding_message_size(limits::COMMAND_BYTES_MAX)
}

/// The `authorization` metadata of HTTP's Basic scheme (RFC 7617).
fn checked(name: &str) -> Result<MetadataValue<Ascii>, ConnectError> {
    let fits = (1..=limits::CLIENT_NAME_BYTES_MAX).contains(&name.len());
    let is_printable = name.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    let name = name.parse().ok().filter(|_| fits && is_printable);
    name.ok_or(ConnectError::Name)
}

fn basic(credentials: &Credentials) -> Result<MetadataValue<Ascii>, ConnectError> {
    if credentials.name.contains(':') {
        return Err(ConnectError::Credentials);
    }
    let pair = format!("{}:{}", credentials.name, credentials.password);
    let mut value: MetadataValue<Ascii> = format!("Basic {}", base64(pair.as_bytes()))
        .parse()
        .expect("base64 is made of printable characters");
    value.set_sensitive(true);
    Ok(value)
}

/// Base64 with padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number =
            three.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let known = digit <= three.len();
            let value = (number >> (18 - 6 * digit)) & 63;
            text.push(if known { DIGITS[value as usize] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_attempt_is_begun_that_the_deadline_would_cut_short() {
        let ms = Duration::from_millis;
        assert!(is_worth_trying(ms(1), ms(0)), "every node is asked once, however late it is");
        assert!(!is_worth_trying(ms(0), ms(0)));
        assert!(is_worth_trying(ms(301), ms(200)));
        assert!(!is_worth_trying(ms(299), ms(200)), "it would have 99 ms");
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
