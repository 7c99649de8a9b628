//! The keys of one keyspace.

use crate::batch::{Batch, BatchOutcome};
use crate::call::{Caller, Repeat, kv};
use crate::session::Session;
use crate::stream::{Scan, ScanRange, Watch};
use crate::{Error, v1};
use model::{Bytes, Condition, Expiry, ReadConsistency, Revision, Versioned};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// One keyspace, as one client uses it. Cheap to clone.
///
/// A key has at least 1 byte and at most [`model::limits::KEY_BYTES_MAX`], a value at most
/// [`model::limits::VALUE_BYTES_MAX`]. A keyspace that does not exist is [`Error::Refused`] with
/// `NoKeyspace`, a key that holds a Redis hash the same with `Refused`.
#[derive(Clone)]
pub struct Keyspace {
    caller: Arc<Caller>,
    name: String,
    consistency: ReadConsistency,
    session: Option<Session>,
}

/// How a value is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// The condition of the put. [`Condition::IfVersion`] excludes `return_old`.
    pub condition: Condition,
    /// When the key expires.
    pub expiry: Expiry,
    /// Return the previous string.
    pub return_old: bool,
}

/// The outcome of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutOutcome {
    /// Whether its condition held; if not, nothing was changed.
    pub applied: bool,
    /// The key's version now; 0 when it is absent.
    pub version: Revision,
    /// The previous string, if it was requested and there was one.
    pub old: Option<Bytes>,
}

/// The content of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A string and its version.
    String(Versioned),
    /// The fields of a hash and their values, ordered by name.
    Hash(Vec<(Bytes, Bytes)>),
}

/// The content of a key at one moment, for a batch that depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Watched {
    /// Its string and version; `None`: there is no such key.
    pub found: Option<Versioned>,
    pub(crate) point: Option<v1::ReadPoint>,
}

impl Keyspace {
    pub(crate) fn new(caller: Arc<Caller>, name: String) -> Keyspace {
        Keyspace { caller, name, consistency: ReadConsistency::Linearizable, session: None }
    }

    /// The same keyspace in a session, if it is causal. Without one each call is a session of its
    /// own.
    pub fn in_session(mut self, session: &Session) -> Keyspace {
        self.session = Some(session.clone());
        self
    }

    /// One call, in the session if there is one.
    async fn call<M, R, F>(
        &self,
        repeat: Repeat,
        message: M,
        attempt: impl Fn(Channel, Request<M>) -> F,
    ) -> Result<R, Error>
    where
        M: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let Some(session) = &self.session else {
            return Ok(self.caller.call(repeat, message, attempt).await?.into_inner());
        };
        let mut turn = session.turn().await;
        let in_session = |channel, mut request: Request<M>| {
            turn.write(request.metadata_mut());
            attempt(channel, request)
        };
        let response = self.caller.call(repeat, message, in_session).await?;
        turn.read(response.metadata());
        Ok(response.into_inner())
    }

    /// The same keyspace with stale reads from the asked node: perhaps outdated, but without
    /// waiting, even while the site has no leader.
    pub fn stale(mut self) -> Keyspace {
        self.consistency = ReadConsistency::Stale;
        self
    }

    /// A key's string and version; `None`: there is no such key.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Versioned>, Error> {
        Ok(self.ask(self.get_request(key)).await?.found.map(versioned))
    }

    /// The content of a key of any type; with the possible age of the answer, if a stale read was
    /// answered by the backup of an unreachable site.
    pub async fn get_any(
        &self,
        key: impl Into<Bytes>,
    ) -> Result<(Option<Found>, Option<Duration>), Error> {
        let got = self.ask(v1::GetRequest { with_fields: true, ..self.get_request(key) }).await?;
        let age = got.backup_age_ms.map(Duration::from_millis);
        Ok((found(got), age))
    }

    /// The present content of a key, never stale, for a batch that is applied only if the key has
    /// not changed ([`Batch::only_if_unchanged`]).
    pub async fn watch_key(&self, key: impl Into<Bytes>) -> Result<Watched, Error> {
        let consistency = v1::Consistency::Linearizable.into();
        let message = v1::GetRequest { consistency, with_point: true, ..self.get_request(key) };
        let got = self.ask(message).await?;
        Ok(Watched { found: got.found.map(versioned), point: got.point })
    }

    fn get_request(&self, key: impl Into<Bytes>) -> v1::GetRequest {
        v1::GetRequest {
            keyspace: self.name.clone(),
            key: key.into(),
            consistency: self.consistency(),
            with_point: false,
            with_fields: false,
        }
    }

    async fn ask(&self, message: v1::GetRequest) -> Result<v1::GetResponse, Error> {
        let get = |channel, request| async move { kv(channel).get(request).await };
        self.call(Repeat::Read, message, get).await
    }

    /// Puts a string. Returns its version.
    pub async fn put(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<Revision, Error> {
        Ok(self.put_with(key, value, Put::default()).await?.version)
    }

    /// Puts a string with a condition, an expiry, or returning the previous string.
    pub async fn put_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        put: Put,
    ) -> Result<PutOutcome, Error> {
        let (key, value) = (key.into(), value.into());
        let condition = match put.condition {
            Condition::Always => v1::PutCondition::Always,
            Condition::IfAbsent => v1::PutCondition::IfAbsent,
            Condition::IfPresent => v1::PutCondition::IfPresent,
            Condition::IfVersion(version) => {
                return self.set_if(key, version, value, put.expiry).await;
            }
        };
        let begun = self.caller.sequence.begin();
        let message = v1::PutRequest {
            keyspace: self.name.clone(),
            key,
            value,
            condition: condition.into(),
            expiry: expiry(put.expiry),
            return_old: put.return_old,
            request: Some(begun.id()),
        };
        let put = |channel, request| async move { kv(channel).put(request).await };
        Ok(put_outcome(self.call(Repeat::Numbered, message, put).await?))
    }

    /// Puts a string if the key still has this version (0: is still absent). The key keeps no
    /// expiry.
    pub async fn compare_and_set(
        &self,
        key: impl Into<Bytes>,
        expected: Revision,
        value: impl Into<Bytes>,
    ) -> Result<PutOutcome, Error> {
        self.set_if(key.into(), expected, value.into(), Expiry::Never).await
    }

    async fn set_if(
        &self,
        key: Bytes,
        expected: Revision,
        value: Bytes,
        expires: Expiry,
    ) -> Result<PutOutcome, Error> {
        let begun = self.caller.sequence.begin();
        let message = v1::CompareAndSetRequest {
            keyspace: self.name.clone(),
            key,
            expected_version: expected.0,
            value,
            expiry: expiry(expires),
            request: Some(begun.id()),
        };
        let set = |channel, request| async move { kv(channel).compare_and_set(request).await };
        Ok(put_outcome(self.call(Repeat::Numbered, message, set).await?))
    }

    /// Removes a key. Returns whether it existed.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool, Error> {
        self.remove(key.into(), None).await
    }

    /// Removes a key if it still has this version. Returns whether it was removed.
    pub async fn delete_if(&self, key: impl Into<Bytes>, version: Revision) -> Result<bool, Error> {
        self.remove(key.into(), Some(version.0)).await
    }

    async fn remove(&self, key: Bytes, if_version: Option<u64>) -> Result<bool, Error> {
        let begun = self.caller.sequence.begin();
        let message = v1::DeleteRequest {
            keyspace: self.name.clone(),
            key,
            if_version,
            request: Some(begun.id()),
        };
        let delete = |channel, request| async move { kv(channel).delete(request).await };
        Ok(self.call(Repeat::Numbered, message, delete).await?.deleted)
    }

    /// Applies several steps atomically, or none of them.
    pub async fn batch(&self, batch: Batch) -> Result<BatchOutcome, Error> {
        let begun = self.caller.sequence.begin();
        let message = batch.into_request(self.name.clone(), begun.id());
        let all = |channel, request| async move { kv(channel).batch(request).await };
        Ok(BatchOutcome::from(self.call(Repeat::Numbered, message, all).await?))
    }

    /// Scans keys in byte order.
    pub fn scan(&self, range: ScanRange) -> Scan {
        let (caller, session) = (self.caller.clone(), self.session.clone());
        Scan::new(caller, session, self.name.clone(), range, self.consistency())
    }

    /// Watches the changes of keys that begin with `prefix`, from now on.
    pub async fn watch(&self, prefix: impl Into<Bytes>) -> Result<Watch, Error> {
        self.watch_after(prefix, None, false).await
    }

    /// Watches the changes after a revision (`None`: from now), with or without the strings.
    /// [`Error::Refused`] with `ChangesTrimmed`: they are no longer kept; scan, and watch again.
    pub async fn watch_after(
        &self,
        prefix: impl Into<Bytes>,
        after: Option<Revision>,
        with_values: bool,
    ) -> Result<Watch, Error> {
        let request = v1::WatchRequest {
            keyspace: self.name.clone(),
            prefix: prefix.into(),
            after_revision: after.map(|revision| revision.0),
            with_values,
        };
        Watch::open(self.caller.clone(), request).await
    }

    fn consistency(&self) -> i32 {
        match self.consistency {
            ReadConsistency::Linearizable => v1::Consistency::Linearizable.into(),
            ReadConsistency::Stale | ReadConsistency::Backup => v1::Consistency::Stale.into(),
        }
    }
}

/// The content of a key of any type.
pub(crate) fn found(got: v1::GetResponse) -> Option<Found> {
    let fields = |hash: v1::Hash| hash.fields.into_iter().map(|one| (one.name, one.value));
    match got.hash {
        Some(hash) => Some(Found::Hash(fields(hash).collect())),
        None => got.found.map(|found| Found::String(versioned(found))),
    }
}

pub(crate) fn versioned(found: v1::Versioned) -> Versioned {
    Versioned { value: found.value, version: Revision(found.version) }
}

pub(crate) fn put_outcome(response: v1::PutResponse) -> PutOutcome {
    PutOutcome { applied: response.applied, version: Revision(response.version), old: response.old }
}

pub(crate) fn expiry(expiry: Expiry) -> Option<v1::Expiry> {
    use v1::expiry::When;
    let when = match expiry {
        Expiry::Never => return None,
        Expiry::Keep => When::Keep(true),
        Expiry::AfterMs(ms) => When::AfterMs(ms),
        Expiry::AtMs(ms) | Expiry::AtLogMs(ms) => When::AtMs(ms),
    };
    Some(v1::Expiry { when: Some(when) })
}
