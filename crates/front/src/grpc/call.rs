//! Common to all calls: check the caller's rights, set the deadline, record the outcome.

use super::session::CallSession;
use model::{
    Answer, Body, Command, Keyspace, KeyspaceId, Query, ReadConsistency, Refusal, Request, limits,
};
use prometheus_client::metrics::counter::Counter;
use server::durations::Durations;
use server::users::{Right, User};
use server::{Handle, Outcome};
use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tonic::metadata::{AsciiMetadataKey, MetadataValue};
use tonic::{Response, Status};
use wire::grpc::{Reason, SESSION_KEY, status};

/// The keyspace of a request without one.
const DEFAULT_KEYSPACE: &str = "default";

/// The time that an answer to a call of a session has for its way, at most.
const ANSWER_MS: u64 = 250;

/// The methods, in the order of [`Method`].
const NAMES: [&str; 40] = [
    "get",
    "put",
    "delete",
    "compare_and_set",
    "batch",
    "scan",
    "watch",
    "status",
    "add_node",
    "remove_node",
    "transfer_leader",
    "create_keyspace",
    "list_keyspaces",
    "show_keyspace",
    "drop_keyspace",
    "backup",
    "list_sites",
    "list_slots",
    "move_slots",
    "pause_move",
    "leave_site",
    "set_backup",
    "promote_backup",
    "show_registry",
    "recover_registry",
    "make_join_token",
    "list_failovers",
    "list_jobs",
    "switch_job",
    "explain_placement",
    "show_placement_ledger",
    "show_region",
    "move_root",
    "rebuild_region",
    "set_standby",
    "list_lost_writes",
    "alter_keyspace",
    "pin_group",
    "unpin_group",
    "list_pins",
];

/// A method of the three services, by its place in [`NAMES`].
#[derive(Clone, Copy)]
pub(crate) enum Method {
    Get,
    Put,
    Delete,
    CompareAndSet,
    Batch,
    Scan,
    Watch,
    Status,
    AddNode,
    RemoveNode,
    TransferLeader,
    CreateKeyspace,
    ListKeyspaces,
    ShowKeyspace,
    DropKeyspace,
    Backup,
    ListSites,
    ListSlots,
    MoveSlots,
    PauseMove,
    LeaveSite,
    SetBackup,
    PromoteBackup,
    ShowRegistry,
    RecoverRegistry,
    MakeJoinToken,
    ListFailovers,
    ListJobs,
    SwitchJob,
    ExplainPlacement,
    ShowPlacementLedger,
    ShowRegion,
    MoveRoot,
    RebuildRegion,
    SetStandby,
    ListLostWrites,
    AlterKeyspace,
    PinGroup,
    UnpinGroup,
    ListPins,
}

/// The node as one worker calls it. All services are implemented on this type.
#[derive(Clone)]
pub(crate) struct Callee {
    pub(crate) handle: Handle,
    metrics: Arc<[(Durations, Counter)]>,
}

impl Callee {
    pub(crate) fn new(handle: Handle) -> Callee {
        let of = |name| {
            (handle.metrics().operation("grpc", name), handle.metrics().errors("grpc", name))
        };
        let metrics = NAMES.into_iter().map(of).collect();
        Callee { handle, metrics }
    }

    /// Performs a call: measures it, and counts it if it fails.
    pub(crate) async fn measured<T>(
        &self,
        method: Method,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let began = self.handle.clock().monotonic();
        let outcome = call.await;
        self.observe(method, began, outcome.is_err());
        outcome.map(Response::new)
    }

    fn observe(&self, method: Method, began: Duration, has_failed: bool) {
        let (duration, errors) = &self.metrics[method as usize];
        duration.observe(self.handle.clock().monotonic() - began);
        if has_failed {
            errors.inc();
        }
    }

    /// The same for a call in a session, whose token goes back with the answer.
    pub(crate) async fn measured_in_session<T>(
        &self,
        method: Method,
        call: impl Future<Output = Result<(T, CallSession), Status>>,
    ) -> Result<Response<T>, Status> {
        let began = self.handle.clock().monotonic();
        let outcome = call.await;
        self.observe(method, began, outcome.is_err());
        let (answer, session) = outcome?;
        let mut response = Response::new(answer);
        if let Some(sealed) = session.sealed(&self.handle) {
            let value = MetadataValue::from_bytes(&sealed);
            response.metadata_mut().insert_bin(SESSION_KEY, value);
        }
        Ok(response)
    }

    /// The keyspace that a call names, if the caller has the right there. A caller without it does
    /// not learn whether the keyspace exists.
    pub(crate) async fn keyspace<T>(
        &self,
        request: &tonic::Request<T>,
        name: impl Fn(&T) -> &str,
        right: Right,
    ) -> Result<Arc<Keyspace>, Status> {
        let user = caller(request);
        self.keyspace_of(request, user, name(request.get_ref()), right).await
    }

    /// The same, with the session of the call.
    pub(crate) async fn keyspace_in_session<T>(
        &self,
        request: &tonic::Request<T>,
        name: impl Fn(&T) -> &str,
        right: Right,
    ) -> Result<(Arc<Keyspace>, CallSession), Status> {
        let user = caller(request);
        let keyspace = self.keyspace_of(request, user, name(request.get_ref()), right).await?;
        let session = CallSession::of(request, &keyspace, user, &self.handle)?;
        Ok((keyspace, session))
    }

    async fn keyspace_of<T>(
        &self,
        request: &tonic::Request<T>,
        user: &User,
        name: &str,
        right: Right,
    ) -> Result<Arc<Keyspace>, Status> {
        let name = if name.is_empty() { DEFAULT_KEYSPACE } else { name };
        if !user.may(name, right) {
            return Err(denied(user, right, name));
        }
        if let Some(found) = self.handle.catalog().by_name(name) {
            return Ok(found.clone());
        }
        // A call's future has room for all that it may wait for, and is moved as a whole. What calls
        // seldom wait for has room of its own.
        Box::pin(self.know_keyspaces(request)).await?;
        let found = self.handle.catalog().by_name(name).cloned();
        found.ok_or_else(|| status(&Refusal::NoKeyspace(name.to_owned()).into()))
    }

    /// Waits until this node has the keyspaces that there were when it started, within the call's
    /// time.
    pub(crate) async fn know_keyspaces<T>(
        &self,
        request: &tonic::Request<T>,
    ) -> Result<(), Status> {
        let asked = deadline_ms(request).map(|ms| Duration::from_millis(in_time_to_say_so(ms)));
        let timeout = asked.unwrap_or(limits::REQUEST_DEADLINE);
        self.handle.wait_until_current(timeout).await.map_err(|failure| status(&failure))
    }

    /// Checks that the caller may administer the site.
    pub(crate) fn administrator<T>(&self, request: &tonic::Request<T>) -> Result<(), Status> {
        let user = caller(request);
        match user.may_everywhere(Right::Admin) {
            true => Ok(()),
            false => Err(denied(user, Right::Admin, "*")),
        }
    }

    /// Sends a query of this node itself, which no key follows.
    pub(crate) async fn read(
        &self,
        keyspace: KeyspaceId,
        query: Query,
        consistency: ReadConsistency,
        deadline_ms: Option<u64>,
    ) -> Result<Answer, Status> {
        let mut session = CallSession::uncounted();
        let answer = self.read_in(&mut session, keyspace, query, consistency, deadline_ms).await;
        answer.map(|(answer, _)| answer)
    }

    /// Sends a query in the session of its call; with the answer's age, if it came from the backup
    /// of an unreachable site.
    pub(crate) async fn read_in(
        &self,
        session: &mut CallSession,
        keyspace: KeyspaceId,
        query: Query,
        consistency: ReadConsistency,
        deadline_ms: Option<u64>,
    ) -> Result<(Answer, Option<Duration>), Status> {
        let Some(token) = session.token() else {
            let client = session.client();
            let here = self.handle.answer_here(keyspace, &query, consistency, (false, client));
            if let Some(outcome) = here {
                return answered(outcome).map(|answer| (answer, None));
            }
            let request = Request::read(keyspace, query, consistency);
            let request = Request { deadline_ms, client, ..request };
            let (outcome, age) = Box::pin(self.handle.call_marked(request)).await;
            return answered(outcome).map(|answer| (answer, age));
        };
        if let Some(outcome) = session.answer_here(&self.handle, keyspace, &query) {
            return answered(outcome).map(|answer| (answer, None));
        }
        let request = Request::read(keyspace, query, ReadConsistency::Linearizable);
        let deadline_ms = deadline_ms.map(in_time_to_say_so);
        let request = Request { deadline_ms, token: Some(token), ..request };
        let reply = Box::pin(self.handle.call_in_session(request)).await;
        session.note(&reply);
        answered(reply.outcome).map(|answer| (answer, None))
    }

    /// Sends a write in the session of its call.
    pub(crate) async fn write_in(
        &self,
        session: &mut CallSession,
        command: Command,
        deadline_ms: Option<u64>,
    ) -> Result<Answer, Status> {
        let token = session.token();
        let deadline_ms = match token {
            Some(_) => deadline_ms.map(in_time_to_say_so),
            None => deadline_ms,
        };
        let client = session.client();
        let request = Request { deadline_ms, token, client, ..Request::write(command) };
        let reply = self.handle.call_in_session(request).await;
        session.note(&reply);
        answered(reply.outcome)
    }

    /// Sends any request to the site.
    pub(crate) async fn ask(&self, body: Body, deadline_ms: Option<u64>) -> Result<Answer, Status> {
        answered(self.handle.call(Request { deadline_ms, ..Request::new(body) }).await)
    }
}

fn answered(outcome: Outcome) -> Result<Answer, Status> {
    outcome.map_err(|failure| status(&failure))
}

fn denied(user: &User, right: Right, keyspace: &str) -> Status {
    let (name, right) = (user.name(), right.as_str());
    Reason::Denied
        .status(format!("user {name:?} lacks the right {right:?} on keyspace {keyspace:?}"))
}

/// The user of a call, whom [`Identified`](super::caller::Identified) has found.
pub(crate) fn caller<T>(request: &tonic::Request<T>) -> &User {
    request.extensions().get::<Arc<User>>().expect("every request's caller is identified")
}

/// Read once: a text is read anew for each call.
static TIMEOUT: LazyLock<AsciiMetadataKey> =
    LazyLock::new(|| AsciiMetadataKey::from_static("grpc-timeout"));

/// The time limit of the call: the caller's, from the header `grpc-timeout`, and at most the site's
/// own limit. `None`: the caller does not set one.
pub(crate) fn deadline_ms<T>(request: &tonic::Request<T>) -> Option<u64> {
    let header = request.metadata().get(&*TIMEOUT)?.to_str().ok()?;
    let asked = timeout(header)?.min(limits::REQUEST_DEADLINE);
    Some((asked.as_millis() as u64).max(1))
}

/// The limit of a request that waits for what its session has seen. Sooner than that of its call,
/// at which the connection gives up on both ends: otherwise the client would never learn that the
/// site is behind.
fn in_time_to_say_so(deadline_ms: u64) -> u64 {
    deadline_ms - (deadline_ms / 4).min(ANSWER_MS)
}

/// A `grpc-timeout`: up to eight digits and a unit.
fn timeout(header: &str) -> Option<Duration> {
    let (digits, unit) = header.split_at_checked(header.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_those_of_the_specification() {
        assert_eq!(timeout("2S"), Some(Duration::from_secs(2)));
        assert_eq!(timeout("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(timeout("1H"), Some(Duration::from_secs(3600)));
        for not_one in ["", "S", "1", "-1S", "123456789S", "1é", "1s"] {
            assert_eq!(timeout(not_one), None, "{not_one}");
        }
    }

    #[test]
    fn a_session_is_told_before_its_call_ends() {
        assert_eq!(in_time_to_say_so(1000), 750);
        assert_eq!(in_time_to_say_so(10_000), 9_750);
        assert_eq!(in_time_to_say_so(1), 1);
    }

    #[test]
    fn every_method_has_its_name() {
        assert_eq!(NAMES[Method::Backup as usize], "backup");
        assert_eq!(NAMES[Method::LeaveSite as usize], "leave_site");
        assert_eq!(NAMES[Method::PromoteBackup as usize], "promote_backup");
        assert_eq!(NAMES[Method::MakeJoinToken as usize], "make_join_token");
        assert_eq!(NAMES[Method::ShowRegion as usize], "show_region");
        assert_eq!(NAMES[Method::AlterKeyspace as usize], "alter_keyspace");
        assert_eq!(NAMES[Method::ListPins as usize], "list_pins");
        assert_eq!(NAMES.len(), Method::ListPins as usize + 1);
        assert_eq!(NAMES[Method::Watch as usize], "watch");
    }
}
