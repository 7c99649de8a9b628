//! The service `Kv`: keys.

use super::call::{Callee, Method, deadline_ms};
use super::retries::tried;
use super::watch::Changes;
use model::limits;
use server::users::Right;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};
use wire::grpc::{self as convert, Reason, ScanPlan, v1};

/// Keys that one page of a scan visits. Small enough that a page is answered at once, large enough
/// that the cost per page is small.
const SCAN_PAGE_ITEMS: usize = 1_000;

#[async_trait]
impl v1::kv_server::Kv for Callee {
    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        self.measured_in_session(Method::Get, async {
            let asked = self.keyspace_in_session(&request, |get| &get.keyspace, Right::Read);
            let (keyspace, mut session) = asked.await?;
            let deadline_ms = deadline_ms(&request);
            let get = request.into_inner();
            let mut consistency = convert::consistency(get.consistency)?;
            let mut point = None;
            if get.with_point {
                // The guard is read before the value, so that it covers changes in between.
                consistency = model::ReadConsistency::Linearizable;
                let query = convert::point_of_get(&get)?;
                let read = self.read_in(&mut session, keyspace.id, query, consistency, deadline_ms);
                let (answer, _) = read.await?;
                point = Some(convert::point(answer));
            }
            let fields = get.with_fields.then(|| convert::fields_of_get(&get)).transpose()?;
            let query = convert::get(get)?;
            let read = self.read_in(&mut session, keyspace.id, query, consistency, deadline_ms);
            let (got, age) = match (read.await, fields) {
                (Err(refused), Some(fields)) if Reason::of(&refused) == Some(Reason::Refused) => {
                    let read =
                        self.read_in(&mut session, keyspace.id, fields, consistency, deadline_ms);
                    let (answer, age) = read.await?;
                    (convert::got_fields(answer), age)
                }
                (read, _) => read.map(|(answer, age)| (convert::got(answer), age))?,
            };
            let backup_age_ms = age.map(|age| age.as_millis() as u64);
            Ok((v1::GetResponse { backup_age_ms, point, ..got }, session))
        })
        .await
    }

    async fn put(
        &self,
        request: Request<v1::PutRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        self.measured_in_session(Method::Put, async {
            let asked = self.keyspace_in_session(&request, |put| &put.keyspace, Right::Write);
            let (keyspace, mut session) = asked.await?;
            if request.get_ref().return_old {
                self.keyspace(&request, |put| &put.keyspace, Right::Read).await?;
            }
            let deadline_ms = deadline_ms(&request);
            let tried = tried(&request)?;
            let command = convert::put(keyspace.id, request.into_inner())?;
            let command = match tried {
                Some(tried) => self.retriable(command, &keyspace, tried)?,
                None => command,
            };
            let answer = self.write_in(&mut session, command, deadline_ms).await?;
            Ok((convert::was_put(answer)?, session))
        })
        .await
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        self.measured_in_session(Method::Delete, async {
            let asked = self.keyspace_in_session(&request, |delete| &delete.keyspace, Right::Write);
            let (keyspace, mut session) = asked.await?;
            let deadline_ms = deadline_ms(&request);
            let command = convert::delete(keyspace.id, request.into_inner())?;
            let answer = self.write_in(&mut session, command, deadline_ms).await?;
            Ok((convert::was_deleted(answer)?, session))
        })
        .await
    }

    async fn compare_and_set(
        &self,
        request: Request<v1::CompareAndSetRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        self.measured_in_session(Method::CompareAndSet, async {
            let asked = self.keyspace_in_session(&request, |set| &set.keyspace, Right::Write);
            let (keyspace, mut session) = asked.await?;
            let deadline_ms = deadline_ms(&request);
            let command = convert::compare_and_set(keyspace.id, request.into_inner())?;
            let answer = self.write_in(&mut session, command, deadline_ms).await?;
            Ok((convert::was_put(answer)?, session))
        })
        .await
    }

    async fn batch(
        &self,
        request: Request<v1::BatchRequest>,
    ) -> Result<Response<v1::BatchResponse>, Status> {
        self.measured_in_session(Method::Batch, async {
            let asked = self.keyspace_in_session(&request, |batch| &batch.keyspace, Right::Write);
            let (keyspace, mut session) = asked.await?;
            if reads(request.get_ref()) {
                self.keyspace(&request, |batch| &batch.keyspace, Right::Read).await?;
            }
            let deadline_ms = deadline_ms(&request);
            let (tried, steps) = (tried(&request)?, request.get_ref().steps.len());
            let command = convert::batch(keyspace.id, request.into_inner())?;
            let Some(tried) = tried else {
                let answer = self.write_in(&mut session, command, deadline_ms).await?;
                return Ok((convert::was_batched(answer)?, session));
            };
            let command = self.retriable(command, &keyspace, tried)?;
            let answer = self.write_in(&mut session, command, deadline_ms).await?;
            Ok((convert::was_batched_once(answer, steps)?, session))
        })
        .await
    }

    type ScanStream = ReceiverStream<Result<v1::ScanResponse, Status>>;

    async fn scan(
        &self,
        request: Request<v1::ScanRequest>,
    ) -> Result<Response<Self::ScanStream>, Status> {
        self.measured(Method::Scan, async {
            let asked = self.keyspace_in_session(&request, |scan| &scan.keyspace, Right::Read);
            let (keyspace, mut session) = asked.await?;
            let mut plan = ScanPlan::new(request.into_inner())?;
            // One page waits while the previous one is being sent.
            let (pages, stream) = mpsc::channel(1);
            let callee = self.clone();
            tokio::spawn(async move {
                loop {
                    let query = plan.page(SCAN_PAGE_ITEMS);
                    let (id, consistency) = (keyspace.id, plan.consistency);
                    let answer = callee.read_in(&mut session, id, query, consistency, None).await;
                    let (page, more) = match answer.map(|(answer, _)| plan.take(answer)) {
                        Ok((page, more)) => {
                            let session = session.sealed(&callee.handle).unwrap_or_default();
                            (Ok(v1::ScanResponse { session, ..page }), more)
                        }
                        Err(status) => (Err(status), false),
                    };
                    if pages.send(page).await.is_err() || !more {
                        return;
                    }
                }
            });
            Ok(ReceiverStream::new(stream))
        })
        .await
    }

    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.measured(Method::Watch, async {
            let keyspace = self.keyspace(&request, |watch| &watch.keyspace, Right::Read).await?;
            Changes::follow(self, keyspace.id, request.into_inner()).await
        })
        .await
    }
}

/// Whether a batch returns the content of a key to its caller.
fn reads(batch: &v1::BatchRequest) -> bool {
    use v1::step::Step;
    let tells = |step: &v1::Step| match &step.step {
        Some(Step::Get(_)) => true,
        Some(Step::Put(put)) => put.return_old,
        _ => false,
    };
    batch.steps.iter().any(tells)
}

const _: () = assert!(SCAN_PAGE_ITEMS <= limits::SCAN_PAGE_ITEMS_MAX);
