//! A session as an application has it.

use super::error::RoamingError;
use super::place::{Place, SessionStats, Work};
use super::reach::{Call, Elsewhere};
use super::sites::Inner;
use crate::batch::{Batch, BatchOutcome};
use crate::call::{Repeat, kv};
use crate::keyspace::{Found, found, versioned};
use crate::stream::{ScanRange, first_message, take_page};
use crate::{Error, v1};
use model::{Bytes, Item, Revision, Versioned, limits};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use wire::grpc::SESSION_KEY;

/// A session with the causal keyspaces of a deployment, at whatever site it is
/// ([`super::Sites::session`]).
///
/// Clones are the same session. Its calls follow one another. A call that is given up (its future
/// is dropped) may have written.
#[derive(Clone)]
pub struct RoamingSession {
    sites: Arc<Inner>,
    place: Arc<Mutex<Place>>,
}

impl RoamingSession {
    pub(super) fn new(sites: Arc<Inner>, token: Bytes) -> RoamingSession {
        RoamingSession { sites, place: Arc::new(Mutex::new(Place::new(token))) }
    }

    /// The keyspace of this name, in this session. Whether it exists is checked on use.
    pub fn keyspace(&self, name: impl Into<String>) -> RoamingKeyspace {
        RoamingKeyspace { session: self.clone(), name: name.into() }
    }

    /// Its token, once the call in progress has ended. Empty: it has seen nothing.
    pub async fn token(&self) -> Bytes {
        self.place.lock().await.token.clone()
    }

    /// The site that it was at last; `None`: it has been at none.
    pub async fn site(&self) -> Option<String> {
        let site = self.place.lock().await.site;
        site.map(|site| self.sites.names[site].clone())
    }

    /// How it has moved.
    pub async fn stats(&self) -> SessionStats {
        self.place.lock().await.stats
    }

    /// Forgets what it has seen: a new session begins.
    pub async fn begin_anew(&self) {
        self.place.lock().await.begin_anew();
    }
}

/// A keyspace in a roaming session. Cheap to clone.
///
/// Reads are repeated at other sites. With `Roaming::elsewhere`
/// a put that gets no answer, or a batch that only puts, is sent to other sites under its number, and
/// made once. Any other write is repeated at the site that it was sent to, and never made at another one then:
/// [`RoamingError::Unknown`].
#[derive(Clone)]
pub struct RoamingKeyspace {
    session: RoamingSession,
    name: String,
}

impl RoamingKeyspace {
    /// A key's string and version; `None`: there is no such key.
    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Versioned>, RoamingError> {
        Ok(self.read(key.into(), false).await?.found.map(versioned))
    }

    /// The content of a key of any type.
    pub async fn get_any(&self, key: impl Into<Bytes>) -> Result<Option<Found>, RoamingError> {
        Ok(found(self.read(key.into(), true).await?))
    }

    async fn read(&self, key: Bytes, with_fields: bool) -> Result<v1::GetResponse, RoamingError> {
        let make = |_| v1::GetRequest {
            keyspace: self.name.clone(),
            key: key.clone(),
            consistency: v1::Consistency::Linearizable.into(),
            with_point: false,
            with_fields,
        };
        let get = |channel, request| async move { kv(channel).get(request).await };
        self.call(Repeat::Read, make, get).await
    }

    /// Puts a string. Returns its version at the site; 0: it got no answer there, and was made by
    /// way of another one.
    pub async fn put(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Result<Revision, RoamingError> {
        let (key, value) = (key.into(), value.into());
        let make = |request| v1::PutRequest {
            keyspace: self.name.clone(),
            key: key.clone(),
            value: value.clone(),
            condition: v1::PutCondition::Always.into(),
            expiry: None,
            return_old: false,
            request,
        };
        let put = |channel, request| async move { kv(channel).put(request).await };
        let response = self.once(Some(key.len()), make, put).await?;
        Ok(Revision(response.version))
    }

    /// Puts, at other sites if need be. `keys_bytes`: of the keys together; `None`: it does more
    /// than overwrite them.
    async fn once<M, R, F>(
        &self,
        keys_bytes: Option<usize>,
        make: impl Fn(Option<v1::RequestId>) -> M + Sync,
        ask: impl Fn(Channel, Request<M>) -> F + Sync,
    ) -> Result<R, RoamingError>
    where
        M: Clone + Send + Sync,
        F: Future<Output = Result<Response<R>, Status>> + Send,
        R: Send,
    {
        let sites = &self.session.sites;
        let mut refused = None;
        let fits = keys_bytes.is_some_and(|bytes| bytes <= limits::CAUSAL_NUMBERED_KEYS_BYTES_MAX);
        if fits && sites.go_elsewhere(&self.name) {
            let elsewhere = Some(Elsewhere { names: &sites.tried, first: Default::default() });
            let call = Call { elsewhere, ..self.of(Repeat::Numbered, &make, &ask) };
            match self.roam(&call).await {
                Ok(response) => return Ok(response),
                // The keyspace may be of another kind, the site have another name or too many
                // numbers that wait: it is a put like any other then.
                Err(RoamingError::Refused(
                    error @ (Error::Invalid(_) | Error::Refused { .. } | Error::Exhausted(_)),
                )) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        let response = self.call(Repeat::Numbered, make, ask).await?;
        if let Some(Error::Invalid(_)) = refused {
            sites.stays_there(&self.name);
        }
        Ok(response)
    }

    /// Removes a key. Returns whether it existed at the site.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool, RoamingError> {
        let key = key.into();
        let make = |request| v1::DeleteRequest {
            keyspace: self.name.clone(),
            key: key.clone(),
            if_version: None,
            request,
        };
        let delete = |channel, request| async move { kv(channel).delete(request).await };
        Ok(self.call(Repeat::Numbered, make, delete).await?.deleted)
    }

    /// Applies several steps as one write, or none of them. Puts without guards, conditions and
    /// expiries may go on at another site like a [`RoamingKeyspace::put`], and have no version then.
    pub async fn batch(&self, batch: Batch) -> Result<BatchOutcome, RoamingError> {
        let make = |request: Option<v1::RequestId>| {
            batch.clone().into_request(self.name.clone(), request.expect("a write has a number"))
        };
        let all = |channel, request| async move { kv(channel).batch(request).await };
        Ok(BatchOutcome::from(self.once(batch.put_keys_bytes(), make, all).await?))
    }

    /// Scans keys in byte order, page by page: each page is a call of the session.
    pub fn scan(&self, range: ScanRange) -> RoamingScan {
        let request = range.request(self.name.clone(), v1::Consistency::Linearizable.into());
        RoamingScan { keyspace: self.clone(), request, page: VecDeque::new(), done: false }
    }

    /// Goes on at this site; if that is not possible, the session stays where it is.
    pub async fn move_to(&self, site: &str, within: Duration) -> Result<(), RoamingError> {
        let sites = &self.session.sites;
        let Some(site) = sites.find(site) else {
            let why = format!("there is no site {site:?} among those of the session");
            return Err(RoamingError::Refused(Error::Invalid(why)));
        };
        let make = |_| ();
        let none = |_, _: Request<()>| async { Ok(Response::new(())) };
        let attach = self.of(Repeat::Read, make, none);
        self.session.place.lock().await.move_to(&attach, site, within, &sites.rule).await
    }

    fn of<Make, Ask>(&self, repeat: Repeat, make: Make, ask: Ask) -> Call<'_, Make, Ask> {
        let sites = &self.session.sites;
        let settle = sites.rule.settle;
        let (keyspace, elsewhere) = (&self.name[..], None);
        Call { sites: &sites.callers, keyspace, repeat, settle, elsewhere, make, ask }
    }

    /// One call, at whatever site serves it.
    async fn call<M, R, F>(
        &self,
        repeat: Repeat,
        make: impl Fn(Option<v1::RequestId>) -> M + Sync,
        ask: impl Fn(Channel, Request<M>) -> F + Sync,
    ) -> Result<R, RoamingError>
    where
        M: Clone + Send + Sync,
        F: Future<Output = Result<Response<R>, Status>> + Send,
        R: Send,
    {
        self.roam(&self.of(repeat, make, ask)).await
    }

    async fn roam<W: Work>(&self, call: &W) -> Result<W::Answer, RoamingError> {
        let sites = &self.session.sites;
        sites.measure(&self.name);
        self.session.place.lock().await.roam(call, &sites.distances, &sites.rule).await
    }
}

/// A running scan of a session. Keys that are written meanwhile may or may not be returned; every
/// other key is returned once, also when the session moves in between.
pub struct RoamingScan {
    keyspace: RoamingKeyspace,
    request: v1::ScanRequest,
    page: VecDeque<Item>,
    done: bool,
}

impl RoamingScan {
    /// The next key in byte order; `None`: there is no more. After an error the scan goes on where
    /// it was.
    pub async fn next(&mut self) -> Result<Option<Item>, RoamingError> {
        loop {
            if let Some(item) = self.page.pop_front() {
                return Ok(Some(item));
            }
            if self.done {
                return Ok(None);
            }
            let make = |_| self.request.clone();
            let page = self.keyspace.call(Repeat::Read, make, first_page).await?;
            (self.page, self.done) = take_page(&mut self.request, page);
        }
    }
}

/// Opens a scan, takes its first page with its token, and ends it.
async fn first_page(
    channel: Channel,
    request: Request<v1::ScanRequest>,
) -> Result<Response<v1::ScanResponse>, Status> {
    let (_, page) = first_message(kv(channel).scan(request).await?).await?;
    let token = page.session.clone();
    let mut response = Response::new(page);
    if !token.is_empty() {
        response.metadata_mut().insert_bin(SESSION_KEY, MetadataValue::from_bytes(&token));
    }
    Ok(response)
}
