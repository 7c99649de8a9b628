//! The service `Cluster`: members, keyspaces, status.

use super::call::{Callee, Method, caller, deadline_ms};
use model::{
    Alteration, Answer, Body, Command, DeploymentCommand, JobName, JobStatus, KeyspaceSpec, NodeId,
    OperatorCommand, Query, ReadConsistency, Refusal, RegistryChange, RequestId, limits,
};
use server::config::is_host_and_port;
use server::peers::TokenScope;
use server::users::Right;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};
use wire::grpc::{self as convert, Invalid, Reason, request_id, status, v1};

#[async_trait]
impl v1::cluster_server::Cluster for Callee {
    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        self.measured(Method::Status, async {
            self.administrator(&request)?;
            Ok(status_of(&self.handle))
        })
        .await
    }

    async fn add_node(
        &self,
        request: Request<v1::AddNodeRequest>,
    ) -> Result<Response<v1::AddNodeResponse>, Status> {
        self.measured(Method::AddNode, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let add = request.into_inner();
            if !is_host_and_port(&add.address) {
                let what = format!("{:?} is not host:port", add.address);
                return Err(Invalid::Value { field: "address", what }.into());
            }
            let node = node_id(add.node)?;
            let v1::AddNodeRequest { address, witness, force, request, .. } = add;
            let id = request_id(request)?;
            let command = OperatorCommand::AddNode { node, address, witness, force, id };
            self.ask(Body::Operator(command), deadline_ms).await?;
            Ok(v1::AddNodeResponse {})
        })
        .await
    }

    async fn remove_node(
        &self,
        request: Request<v1::RemoveNodeRequest>,
    ) -> Result<Response<v1::RemoveNodeResponse>, Status> {
        self.measured(Method::RemoveNode, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let remove = request.into_inner();
            let node = node_id(remove.node)?;
            let (force, id) = (remove.force, request_id(remove.request)?);
            let command = OperatorCommand::RemoveNode { node, force, id };
            self.ask(Body::Operator(command), deadline_ms).await?;
            Ok(v1::RemoveNodeResponse {})
        })
        .await
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::TransferLeaderResponse>, Status> {
        self.measured(Method::TransferLeader, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let body = Body::TransferLeader { node: node_id(request.into_inner().node)? };
            self.ask(body, deadline_ms).await?;
            Ok(v1::TransferLeaderResponse {})
        })
        .await
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        self.measured(Method::ListJobs, async {
            self.administrator(&request)?;
            self.jobs(Body::ListJobs, deadline_ms(&request)).await
        })
        .await
    }

    async fn switch_job(
        &self,
        request: Request<v1::SwitchJobRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        self.measured(Method::SwitchJob, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let v1::SwitchJobRequest { job, paused } = request.into_inner();
            let Ok(job) = job.parse() else {
                let names = JobName::ALL.map(JobName::as_str).join(", ");
                let what = format!("there is no job {job:?}; there are {names}");
                return Err(Invalid::Value { field: "job", what }.into());
            };
            self.jobs(Body::SwitchJob { job, paused }, deadline_ms).await
        })
        .await
    }

    async fn create_keyspace(
        &self,
        request: Request<v1::CreateKeyspaceRequest>,
    ) -> Result<Response<v1::Keyspace>, Status> {
        self.measured(Method::CreateKeyspace, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let id = convert::request_id(asked.request)?;
            let spec = asked.spec.ok_or(Invalid::Missing("spec"))?;
            let spec = KeyspaceSpec::try_from(spec)?;
            spec.check().map_err(|error| status(&Refusal::Keyspace(error).into()))?;
            let body = self.keyspace_change(RegistryChange::CreateKeyspace(spec), id);
            match self.ask(body, deadline_ms).await? {
                Answer::Keyspace(made) => {
                    // Another site may have made it; the client may use it here, next.
                    self.handle.wait_for_keyspace(made.id).await;
                    Ok(convert::keyspace(&made))
                }
                _ => unreachable!("a creation is answered with the keyspace"),
            }
        })
        .await
    }

    async fn list_keyspaces(
        &self,
        request: Request<v1::ListKeyspacesRequest>,
    ) -> Result<Response<v1::ListKeyspacesResponse>, Status> {
        self.measured(Method::ListKeyspaces, async {
            let user = caller(&request);
            self.know_keyspaces(&request).await?;
            let catalog = self.handle.catalog();
            let is_shown =
                |name: &str| user.may(name, Right::Read) || user.may_everywhere(Right::Admin);
            let all = catalog.all().into_iter().filter(|one| is_shown(&one.spec.name));
            Ok(v1::ListKeyspacesResponse { keyspaces: all.map(convert::keyspace).collect() })
        })
        .await
    }

    async fn show_keyspace(
        &self,
        request: Request<v1::ShowKeyspaceRequest>,
    ) -> Result<Response<v1::ShowKeyspaceResponse>, Status> {
        self.measured(Method::ShowKeyspace, async {
            let found = self.keyspace(&request, |show| &show.name, Right::Read).await?;
            let consistency = ReadConsistency::Linearizable;
            let count = self.read(found.id, Query::Count, consistency, deadline_ms(&request));
            let keys = match count.await {
                Ok(Answer::Integer(keys)) => Some(keys.unsigned_abs()),
                Ok(_) => unreachable!("a count is answered with a number"),
                // Its rule can be shown without the sites that hold it.
                Err(_) if !self.handle.holds(found.id) => None,
                Err(status) => return Err(status),
            };
            let keyspace = Some(convert::keyspace(&found));
            let (keys, keys_unknown) = (keys.unwrap_or_default(), keys.is_none());
            Ok(v1::ShowKeyspaceResponse { keyspace, keys, keys_unknown })
        })
        .await
    }

    async fn alter_keyspace(
        &self,
        request: Request<v1::AlterKeyspaceRequest>,
    ) -> Result<Response<v1::Keyspace>, Status> {
        self.measured(Method::AlterKeyspace, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let by = convert::alteration(&asked)?;
            let v1::AlterKeyspaceRequest { name, request, .. } = asked;
            let id = convert::request_id(request)?;
            let change = match by {
                // Sites of an earlier version know this one.
                Alteration { placement: Some(placement), lend_to: None, priority: None } => {
                    RegistryChange::AlterKeyspace { name, placement }
                }
                by if by == Alteration::default() => {
                    return Err(Invalid::Missing("placement, lend_to or priority").into());
                }
                by => RegistryChange::Alter { name, by },
            };
            match self.ask(self.keyspace_change(change, id), deadline_ms).await? {
                Answer::Keyspace(altered) => Ok(convert::keyspace(&altered)),
                _ => unreachable!("a change of a keyspace is answered with the keyspace"),
            }
        })
        .await
    }

    async fn drop_keyspace(
        &self,
        request: Request<v1::DropKeyspaceRequest>,
    ) -> Result<Response<v1::DropKeyspaceResponse>, Status> {
        self.measured(Method::DropKeyspace, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let v1::DropKeyspaceRequest { name, request } = request.into_inner();
            let id = convert::request_id(request)?;
            let body = self.keyspace_change(RegistryChange::DropKeyspace(name), id);
            self.ask(body, deadline_ms).await?;
            Ok(v1::DropKeyspaceResponse {})
        })
        .await
    }

    async fn make_join_token(
        &self,
        request: Request<v1::MakeJoinTokenRequest>,
    ) -> Result<Response<v1::MakeJoinTokenResponse>, Status> {
        self.measured(Method::MakeJoinToken, async {
            self.administrator(&request)?;
            let asked = request.into_inner();
            let scope = match asked.deployment {
                true => TokenScope::Deployment,
                false => TokenScope::Site,
            };
            let life = match asked.life_ms {
                0 => limits::JOIN_TOKEN_LIFE_DEFAULT,
                ms => Duration::from_millis(ms),
            };
            let made = self.handle.make_join_token(scope, life);
            let (token, expires_ms) =
                made.map_err(|error| Reason::Refused.status(error.to_string()))?;
            Ok(v1::MakeJoinTokenResponse { token, expires_ms })
        })
        .await
    }

    type BackupStream = ReceiverStream<Result<v1::BackupChunk, Status>>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        self.measured(Method::Backup, async {
            self.administrator(&request)?;
            super::backup::stream(self.handle.clone())
        })
        .await
    }
}

fn node_id(node: u64) -> Result<NodeId, Invalid> {
    match node {
        0 => Err(Invalid::Missing("node")),
        node => Ok(NodeId(node)),
    }
}

impl Callee {
    /// Asks something that is answered with the jobs.
    async fn jobs(
        &self,
        body: Body,
        deadline_ms: Option<u64>,
    ) -> Result<v1::ListJobsResponse, Status> {
        let answer = self.ask(body, deadline_ms).await?;
        let Answer::Jobs(jobs) = answer else {
            unreachable!("a request about jobs is answered with the jobs")
        };
        Ok(v1::ListJobsResponse { jobs: jobs.iter().map(job_of).collect() })
    }

    /// A change of the keyspaces: of the deployment's, under its number, or of a site that belongs
    /// to none.
    fn keyspace_change(&self, change: RegistryChange, id: Option<RequestId>) -> Body {
        let known = self.handle.status();
        // A witness has no data; its site's leader has the answer.
        let own = |one: &&wire::peer::Member| one.node == known.node.0;
        let is_witness = known.members.nodes.iter().find(own).is_some_and(|one| one.witness);
        match change {
            change if known.deployment.is_some() || is_witness => {
                Body::Registry { change: Box::new(change), id }
            }
            RegistryChange::CreateKeyspace(spec) => Body::Write(Command::CreateKeyspace(spec)),
            RegistryChange::DropKeyspace(name) => Body::Write(Command::DropKeyspace { name }),
            change => Body::Write(Command::Deployment(DeploymentCommand::ChangeRegistry(change))),
        }
    }
}

fn job_of(job: &JobStatus) -> v1::Job {
    v1::Job {
        name: job.name.to_string(),
        about: job.name.about().to_owned(),
        paused: job.paused,
        left: job.left,
        unit: job.name.unit().to_owned(),
        sent_bytes: job.sent_bytes,
        steps: job.steps,
        steps_per_min: job.steps_per_min,
        errors: job.errors,
        last_error: job.last_error.clone(),
        last_error_ago_ms: job.last_error_ago_ms,
    }
}

fn status_of(handle: &server::Handle) -> v1::StatusResponse {
    let status = handle.status();
    let member = |member: &wire::peer::Member| {
        let role = match (status.members.voters.contains(&member.node), member.witness) {
            (false, _) => v1::Role::Learner,
            (true, false) => v1::Role::Voter,
            (true, true) => v1::Role::Witness,
        };
        let known = status.progress.iter().find(|(node, ..)| node.0 == member.node);
        let match_index = match member.node == status.node.0 {
            true => Some(status.last_index),
            false => known.map(|(_, index, _)| *index),
        };
        v1::Member {
            node: member.node,
            address: member.address.clone(),
            role: role.into(),
            match_index,
        }
    };
    v1::StatusResponse {
        site: handle.site().to_string(),
        node: status.node.0,
        leader: status.leader.map_or(0, |leader| leader.0),
        term: status.term,
        commit_index: status.committed_index,
        applied_index: status.applied_index,
        revision: status.revision.0,
        members: status.members.nodes.iter().map(member).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        remote: status.deployment.is_some().then(|| remote_of(&status)),
        etcd: handle.etcd().map(|etcd| v1::Etcd {
            endpoint: etcd.endpoint,
            round_trip_us: etcd.round_trip.as_micros() as u64,
            transactions: etcd.transactions,
            retries: etcd.retries,
            last_error: etcd.last_error.unwrap_or_default(),
            failing_for_ms: etcd.failing_for.as_millis() as u64,
        }),
    }
}

fn remote_of(status: &server::Status) -> v1::Remote {
    let copies = status.copies;
    v1::Remote {
        waiting: status.routed as u64,
        direct: status.routed_direct.0,
        redirected: status.routed_direct.1,
        lookups: status.ring_lookups.0,
        lookup_messages: status.ring_lookups.1,
        pointers: status.ring_pointers as u64,
        copies: Some(v1::Copies {
            count: copies.copies,
            bytes: copies.bytes,
            hits: copies.hits,
            unchanged: copies.unchanged,
            misses: copies.misses,
            evictions: copies.evictions,
        }),
    }
}
