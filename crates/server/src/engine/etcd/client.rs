//! One call to one of the endpoints, with a deadline.
//!
//! A failed call may have taken effect: the caller must decide whether it can be repeated. The next
//! call goes to the next endpoint. Connections are made when needed and made again after they
//! break; TLS is rustls with the configured CA only.

use super::api::auth_client::AuthClient;
use super::api::kv_client::KvClient;
use super::api::lease_client::LeaseClient;
use super::api::{
    AuthenticateRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseRevokeRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use crate::batcher::lock;
use crate::config::EtcdConfig;
use model::limits;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status};

/// The deadline of one call: longer than an etcd election usually takes.
const CALL_DEADLINE: Duration = Duration::from_secs(3);
const CONNECT_DEADLINE: Duration = Duration::from_secs(1);
/// A connection that is silent for this long is probed, and dropped after the same time again.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// The largest page of rows, and protobuf's overhead.
const ANSWER_BYTES_MAX: usize =
    limits::ETCD_PAGE_ROWS_MAX * (limits::ETCD_ROW_BYTES_MAX + (64 << 10) + 1_024);

/// Why etcd cannot be used as configured.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    /// A file cannot be read.
    #[error("--etcd-{flag} {path}: {cause}", path = path.display())]
    File {
        /// The last part of the flag's name.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// An endpoint cannot be used.
    #[error("--etcd-endpoints {endpoint}: {cause}")]
    Endpoint {
        /// Its address.
        endpoint: String,
        /// What is wrong with it, or with the credentials for it.
        cause: String,
    },
    /// etcd refuses the request and would refuse it again.
    #[error("etcd: {0}")]
    Refused(String),
}

/// Why a call has no result.
#[derive(Clone, Debug)]
pub(super) enum CallError {
    /// It may succeed later or at another endpoint.
    Again(String),
    /// etcd has no room.
    Full(String),
    /// It would be refused again; the text names what to change.
    Refused(String),
}

/// An etcd cluster.
pub(super) struct Client {
    endpoints: Vec<(String, Channel)>,
    /// The index of the endpoint in use.
    turn: AtomicUsize,
    user: Option<(String, String)>,
    /// The user's login token; `None`: a login is needed.
    token: Mutex<Option<MetadataValue<tonic::metadata::Ascii>>>,
}

fn read(flag: &'static str, path: &Path) -> Result<String, EtcdError> {
    let cause = |cause: std::io::Error| EtcdError::File {
        flag,
        path: path.to_owned(),
        cause: cause.to_string(),
    };
    std::fs::read_to_string(path).map_err(cause)
}

impl Client {
    /// Reads the files; does not connect yet. Must run in a runtime.
    pub(super) fn new(config: &EtcdConfig) -> Result<Client, EtcdError> {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &config.ca {
            tls = tls.ca_certificate(Certificate::from_pem(read("ca", ca)?));
        }
        if let (Some(cert), Some(key)) = (&config.cert, &config.key) {
            tls = tls.identity(Identity::from_pem(read("cert", cert)?, read("key", key)?));
        }
        let user = match (&config.user, &config.password_file) {
            (Some(user), Some(file)) => {
                Some((user.clone(), read("password-file", file)?.trim_end().to_owned()))
            }
            _ => None,
        };
        let channel = |text: &String| {
            let wrong = |cause: tonic::transport::Error| {
                let cause = std::error::Error::source(&cause)
                    .map_or_else(|| cause.to_string(), ToString::to_string);
                EtcdError::Endpoint { endpoint: text.clone(), cause }
            };
            let mut endpoint = Endpoint::from_shared(text.clone())
                .map_err(wrong)?
                .connect_timeout(CONNECT_DEADLINE)
                .http2_keep_alive_interval(SILENCE_MAX)
                .keep_alive_timeout(SILENCE_MAX)
                .tcp_nodelay(true);
            if text.starts_with("https://") {
                endpoint = endpoint.tls_config(tls.clone()).map_err(wrong)?;
            }
            Ok((text.clone(), endpoint.connect_lazy()))
        };
        let endpoints = config.endpoints.iter().map(channel).collect::<Result<_, EtcdError>>()?;
        Ok(Client { endpoints, turn: AtomicUsize::new(0), user, token: Mutex::new(None) })
    }

    /// The endpoint of the next call.
    pub(super) fn endpoint(&self) -> &str {
        &self.here().1.0
    }

    fn here(&self) -> (usize, &(String, Channel)) {
        let turn = self.turn.load(Ordering::Relaxed);
        (turn, &self.endpoints[turn % self.endpoints.len()])
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        self.call(request, async |channel, request| {
            let mut client = KvClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
            client.range(request).await
        })
        .await
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, CallError> {
        self.call(request, async |channel, request| KvClient::new(channel).txn(request).await).await
    }

    pub(super) async fn grant(&self, ttl: Duration) -> Result<LeaseGrantResponse, CallError> {
        let request = LeaseGrantRequest { ttl: ttl.as_secs() as i64 };
        self.call(request, async |channel, request| {
            LeaseClient::new(channel).lease_grant(request).await
        })
        .await
    }

    pub(super) async fn revoke(&self, lease: i64) -> Result<(), CallError> {
        let request = LeaseRevokeRequest { id: lease };
        self.call(request, async |channel, request| {
            LeaseClient::new(channel).lease_revoke(request).await
        })
        .await
        .map(drop)
    }

    /// Renews the lease. `false`: the lease is gone.
    pub(super) async fn keep_alive(&self, lease: i64) -> Result<bool, CallError> {
        let request = LeaseKeepAliveRequest { id: lease };
        self.call(request, async |channel, request: Request<LeaseKeepAliveRequest>| {
            let (metadata, extensions, body) = request.into_parts();
            let stream = Request::from_parts(metadata, extensions, tokio_stream::once(body));
            let mut answers =
                LeaseClient::new(channel).lease_keep_alive(stream).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unavailable("no answer"))
        })
        .await
        .map(|answer| answer.ttl > 0)
    }

    /// Makes a call at the endpoint in use, logged in if there is a user.
    async fn call<Q, A>(
        &self,
        request: Q,
        make: impl AsyncFnOnce(Channel, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        let (turn, (_, channel)) = self.here();
        let making = async {
            let mut request = Request::new(request);
            if let Some(token) = self.token(channel).await? {
                request.metadata_mut().insert("token", token);
            }
            make(channel.clone(), request).await
        };
        let made = tokio::time::timeout(CALL_DEADLINE, making).await;
        let status = match made {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded(format!("no answer within {CALL_DEADLINE:?}")),
        };
        let error = meaning(&status);
        if matches!(error, CallError::Again(_)) {
            // The token may have expired, even if the error names another cause.
            *lock(&self.token) = None;
            let next = turn.wrapping_add(1);
            let _ = self.turn.compare_exchange(turn, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(error)
    }

    async fn token(
        &self,
        channel: &Channel,
    ) -> Result<Option<MetadataValue<tonic::metadata::Ascii>>, Status> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        if let Some(token) = lock(&self.token).clone() {
            return Ok(Some(token));
        }
        let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
        let answer = AuthClient::new(channel.clone()).authenticate(request).await?;
        let token = MetadataValue::try_from(answer.into_inner().token)
            .map_err(|_| Status::internal("a token that is no text"))?;
        *lock(&self.token) = Some(token.clone());
        Ok(Some(token))
    }
}

/// What a status means for the caller.
fn meaning(status: &Status) -> CallError {
    let text = match std::error::Error::source(status).and_then(deepest) {
        Some(cause) => format!("{} ({cause})", status.message()),
        None => status.message().to_owned(),
    };
    let hint = |hint: &str| CallError::Refused(format!("{text}; {hint}"));
    match status.code() {
        Code::ResourceExhausted if text.contains("space") => CallError::Full(text),
        Code::ResourceExhausted if text.contains("larger") => {
            hint("start etcd with its default --max-request-bytes of 1.5 MiB, or more")
        }
        Code::InvalidArgument if text.contains("auth store is old") => CallError::Again(text),
        Code::InvalidArgument if text.contains("too many operations") => {
            hint("start etcd with its default --max-txn-ops of 128, or more")
        }
        Code::InvalidArgument if text.contains("too large") => {
            hint("start etcd with its default --max-request-bytes of 1.5 MiB, or more")
        }
        Code::InvalidArgument if text.contains("user name is empty") => {
            hint("it wants a user: give --etcd-user and --etcd-password-file")
        }
        Code::InvalidArgument if text.contains("authentication failed") => {
            hint("check --etcd-user and --etcd-password-file")
        }
        Code::FailedPrecondition if text.contains("not enabled") => {
            hint("it has no users: leave --etcd-user out")
        }
        Code::PermissionDenied => {
            hint("give the user of --etcd-user a role that may read and write below --etcd-prefix")
        }
        Code::Unimplemented => hint("is that an etcd 3.4 or newer?"),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
            CallError::Refused(text)
        }
        _ => CallError::Again(text),
    }
}

/// The innermost cause of an error: "transport error" alone does not help.
fn deepest(mut error: &(dyn std::error::Error + 'static)) -> Option<String> {
    while let Some(source) = error.source() {
        error = source;
    }
    Some(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_errors_are_retried_and_others_name_a_remedy() {
        let again = [
            Status::unavailable("etcdserver: no leader"),
            Status::deadline_exceeded("x"),
            Status::unauthenticated("etcdserver: invalid auth token"),
            Status::invalid_argument("etcdserver: revision of auth store is old"),
            Status::resource_exhausted("etcdserver: too many requests"),
        ];
        for status in again {
            assert!(matches!(meaning(&status), CallError::Again(_)), "{status:?}");
        }
        let full =
            meaning(&Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
        assert!(matches!(full, CallError::Full(_)));
        let refused = [
            (Status::permission_denied("etcdserver: permission denied"), "--etcd-prefix"),
            (Status::invalid_argument("etcdserver: user name is empty"), "--etcd-user"),
            (Status::invalid_argument("etcdserver: request is too large"), "--max-request-bytes"),
            (Status::invalid_argument("etcdserver: too many operations in txn request"), "txn-ops"),
        ];
        for (status, word) in refused {
            let CallError::Refused(text) = meaning(&status) else { panic!("{status:?}") };
            assert!(text.contains(word), "{text}");
        }
    }
}
