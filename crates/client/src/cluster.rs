//! The site's members, keyspaces and backup. Needs the right `admin` on `*`, where there are users.
//!
//! What changes something bears a number, so that it is done once when it is sent again, at any
//! node of the site. Keyspaces of a site that belongs to no deployment are the exception:
//! [`Cluster::keyspaces`] shows what came of it.

use crate::call::{Caller, Repeat, cluster};
use crate::error::{Verdict, judge};
use crate::{Error, v1};
use model::{Alteration, Bytes, KeyspaceSpec, NodeId, SiteId};
use std::sync::Arc;
use std::time::Duration;
use tonic::Streaming;

/// The administration of one site.
#[derive(Clone)]
pub struct Cluster {
    caller: Arc<Caller>,
}

/// A keyspace with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceInfo {
    /// Its id.
    pub id: u32,
    /// Its definition at creation.
    pub spec: KeyspaceSpec,
}

impl Cluster {
    pub(crate) fn new(caller: Arc<Caller>) -> Cluster {
        Cluster { caller }
    }

    /// The site as seen by the node in use.
    pub async fn status(&self) -> Result<v1::StatusResponse, Error> {
        let ask = |channel, request| async move { cluster(channel).status(request).await };
        Ok(self.caller.call(Repeat::Read, v1::StatusRequest {}, ask).await?.into_inner())
    }

    /// Adds a node, which becomes a voter once it has caught up. `address`: its peer port; `force`:
    /// also if a node of this id is a member.
    pub async fn add_node(
        &self,
        node: NodeId,
        address: impl Into<String>,
        witness: bool,
        force: bool,
    ) -> Result<(), Error> {
        let address = address.into();
        let number = self.caller.sequence.begin();
        let request = Some(number.id());
        let message = v1::AddNodeRequest { node: node.0, address, witness, force, request };
        let add = |channel, request| async move { cluster(channel).add_node(request).await };
        self.caller.call(Repeat::Numbered, message, add).await.map(drop)
    }

    /// Makes a token with which a new node may join the site, or with which a new site may join the
    /// deployment. `life`: how long it is good for.
    pub async fn make_join_token(
        &self,
        deployment: bool,
        life: Duration,
    ) -> Result<v1::MakeJoinTokenResponse, Error> {
        let message = v1::MakeJoinTokenRequest { deployment, life_ms: life.as_millis() as u64 };
        let make =
            |channel, request| async move { cluster(channel).make_join_token(request).await };
        Ok(self.caller.call(Repeat::Read, message, make).await?.into_inner())
    }

    /// Removes a node. `force`: also if it can be reached while another voter cannot.
    pub async fn remove_node(&self, node: NodeId, force: bool) -> Result<(), Error> {
        let number = self.caller.sequence.begin();
        let message = v1::RemoveNodeRequest { node: node.0, force, request: Some(number.id()) };
        let remove = |channel, request| async move { cluster(channel).remove_node(request).await };
        self.caller.call(Repeat::Numbered, message, remove).await.map(drop)
    }

    /// Hands leadership to a node. Asked again, it does nothing if that node leads.
    pub async fn transfer_leader(&self, node: NodeId) -> Result<(), Error> {
        let message = v1::TransferLeaderRequest { node: node.0 };
        let hand =
            |channel, request| async move { cluster(channel).transfer_leader(request).await };
        self.caller.call(Repeat::Numbered, message, hand).await.map(drop)
    }

    /// The jobs that the site's leader runs beside requests.
    pub async fn jobs(&self) -> Result<Vec<v1::Job>, Error> {
        let list = |channel, request| async move { cluster(channel).list_jobs(request).await };
        let listed = self.caller.call(Repeat::Read, v1::ListJobsRequest {}, list).await?;
        Ok(listed.into_inner().jobs)
    }

    /// Pauses a job at the site's leader, or resumes it. Returns all of them. When another node
    /// leads, all jobs go on.
    pub async fn switch_job(&self, name: &str, paused: bool) -> Result<Vec<v1::Job>, Error> {
        let message = v1::SwitchJobRequest { job: name.to_owned(), paused };
        let switch = |channel, request| async move { cluster(channel).switch_job(request).await };
        Ok(self.caller.call(Repeat::Numbered, message, switch).await?.into_inner().jobs)
    }

    /// Makes a keyspace.
    pub async fn create_keyspace(&self, spec: &KeyspaceSpec) -> Result<KeyspaceInfo, Error> {
        let number = self.caller.sequence.begin();
        let (spec, request) = (Some(wire::grpc::keyspace_spec(spec)), Some(number.id()));
        let message = v1::CreateKeyspaceRequest { spec, request };
        let make =
            |channel, request| async move { cluster(channel).create_keyspace(request).await };
        info(self.caller.call(Repeat::Numbered, message, make).await?.into_inner())
    }

    /// All keyspaces, ordered by id.
    pub async fn keyspaces(&self) -> Result<Vec<KeyspaceInfo>, Error> {
        let list = |channel, request| async move { cluster(channel).list_keyspaces(request).await };
        let message = v1::ListKeyspacesRequest {};
        let listed = self.caller.call(Repeat::Read, message, list).await?.into_inner();
        listed.keyspaces.into_iter().map(info).collect()
    }

    /// One keyspace, and its number of keys; `None`: its site does not hold it, and no site that
    /// does has answered.
    pub async fn keyspace(&self, name: &str) -> Result<(KeyspaceInfo, Option<u64>), Error> {
        let show = |channel, request| async move { cluster(channel).show_keyspace(request).await };
        let message = v1::ShowKeyspaceRequest { name: name.to_owned() };
        let shown = self.caller.call(Repeat::Read, message, show).await?.into_inner();
        let keys = (!shown.keys_unknown).then_some(shown.keys);
        Ok((info(shown.keyspace.unwrap_or_default())?, keys))
    }

    /// Changes what decides where the keys of a global keyspace are.
    pub async fn alter_keyspace(&self, name: &str, by: Alteration) -> Result<KeyspaceInfo, Error> {
        let number = self.caller.sequence.begin();
        let list = |sites: Vec<SiteId>| sites.into_iter().map(|site| site.0).collect();
        let message = v1::AlterKeyspaceRequest {
            name: name.to_owned(),
            placement: by.placement.map(|to| to.to_string()).unwrap_or_default(),
            request: Some(number.id()),
            lend_to: by.lend_to.map(|sites| v1::LendTo { sites: list(sites) }),
            priority: by.priority.unwrap_or_default().into(),
        };
        let alter =
            |channel, request| async move { cluster(channel).alter_keyspace(request).await };
        info(self.caller.call(Repeat::Numbered, message, alter).await?.into_inner())
    }

    /// Removes a keyspace with all its keys.
    pub async fn drop_keyspace(&self, name: &str) -> Result<(), Error> {
        let drop_it =
            |channel, request| async move { cluster(channel).drop_keyspace(request).await };
        let number = self.caller.sequence.begin();
        let message = v1::DropKeyspaceRequest { name: name.to_owned(), request: Some(number.id()) };
        self.caller.call(Repeat::Numbered, message, drop_it).await.map(drop)
    }

    /// The whole site as of one moment, as one file in chunks.
    pub async fn backup(&self) -> Result<Backup, Error> {
        let caller = &self.caller;
        let begin = |channel, request| async move {
            cluster(channel).backup(caller.streaming(request)).await
        };
        let opened = caller.call(Repeat::Read, v1::BackupRequest {}, begin).await?;
        Ok(Backup { stream: opened.into_inner(), position: 0 })
    }
}

/// A running backup. It cannot resume after a broken connection: the file is of one moment.
pub struct Backup {
    stream: Streaming<v1::BackupChunk>,
    position: u64,
}

impl Backup {
    /// The next bytes of the file and the length of the whole; `None`: it is complete.
    pub async fn next(&mut self) -> Result<Option<(Bytes, u64)>, Error> {
        let chunk = match self.stream.message().await {
            Ok(chunk) => chunk,
            Err(status) => {
                return Err(match judge(&status) {
                    Verdict::Final(error) => error,
                    Verdict::Again(why) | Verdict::Perhaps(why) | Verdict::NoNode(why) => {
                        Error::Unavailable(why)
                    }
                });
            }
        };
        let Some(chunk) = chunk else { return Ok(None) };
        if chunk.offset != self.position {
            let what = format!("a chunk at {} came where {} was due", chunk.offset, self.position);
            return Err(Error::Unavailable(what));
        }
        self.position += chunk.bytes.len() as u64;
        Ok(Some((chunk.bytes, chunk.total_bytes)))
    }
}

fn info(keyspace: v1::Keyspace) -> Result<KeyspaceInfo, Error> {
    let spec = keyspace.spec.unwrap_or_default();
    let spec = KeyspaceSpec::try_from(spec).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(KeyspaceInfo { id: keyspace.id, spec })
}
