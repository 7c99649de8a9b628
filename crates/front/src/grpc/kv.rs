//! The service `Kv`: keys.

use super::call::{Callee, Method, deadline_ms};
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
        self.measured(Method::Get, async {
            let keyspace = self.keyspace(&request, |get| &get.keyspace, Right::Read).await?;
            let deadline_ms = deadline_ms(&request);
            let get = request.into_inner();
            let mut consistency = convert::consistency(get.consistency)?;
            let mut point = None;
            if get.with_point {
                // The guard is read before the value, so that it covers changes in between.
                consistency = model::ReadConsistency::Linearizable;
                let query = convert::point_of_get(&get)?;
                let answer = self.read(keyspace.id, query, consistency, deadline_ms).await?;
                point = Some(convert::point(answer));
            }
            let fields = get.with_fields.then(|| convert::fields_of_get(&get)).transpose()?;
            let query = convert::get(get)?;
            let read = |query| self.read_marked(keyspace.id, query, consistency, deadline_ms);
            let (got, age) = match (read(query).await, fields) {
                (Err(refused), Some(fields)) if Reason::of(&refused) == Some(Reason::Refused) => {
                    let (answer, age) = read(fields).await?;
                    (convert::got_fields(answer), age)
                }
                (read, _) => read.map(|(answer, age)| (convert::got(answer), age))?,
            };
            let backup_age_ms = age.map(|age| age.as_millis() as u64);
            Ok(v1::GetResponse { backup_age_ms, point, ..got })
        })
        .await
    }

    async fn put(
        &self,
        request: Request<v1::PutRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        self.measured(Method::Put, async {
            let keyspace = self.keyspace(&request, |put| &put.keyspace, Right::Write).await?;
            if request.get_ref().return_old {
                self.keyspace(&request, |put| &put.keyspace, Right::Read).await?;
            }
            let deadline_ms = deadline_ms(&request);
            let command = convert::put(keyspace.id, request.into_inner())?;
            Ok(convert::was_put(self.write(command, deadline_ms).await?))
        })
        .await
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        self.measured(Method::Delete, async {
            let keyspace = self.keyspace(&request, |delete| &delete.keyspace, Right::Write).await?;
            let deadline_ms = deadline_ms(&request);
            let command = convert::delete(keyspace.id, request.into_inner())?;
            Ok(convert::was_deleted(self.write(command, deadline_ms).await?))
        })
        .await
    }

    async fn compare_and_set(
        &self,
        request: Request<v1::CompareAndSetRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        self.measured(Method::CompareAndSet, async {
            let keyspace = self.keyspace(&request, |set| &set.keyspace, Right::Write).await?;
            let deadline_ms = deadline_ms(&request);
            let command = convert::compare_and_set(keyspace.id, request.into_inner())?;
            Ok(convert::was_put(self.write(command, deadline_ms).await?))
        })
        .await
    }

    async fn batch(
        &self,
        request: Request<v1::BatchRequest>,
    ) -> Result<Response<v1::BatchResponse>, Status> {
        self.measured(Method::Batch, async {
            let keyspace = self.keyspace(&request, |batch| &batch.keyspace, Right::Write).await?;
            if reads(request.get_ref()) {
                self.keyspace(&request, |batch| &batch.keyspace, Right::Read).await?;
            }
            let deadline_ms = deadline_ms(&request);
            let command = convert::batch(keyspace.id, request.into_inner())?;
            Ok(convert::was_batched(self.write(command, deadline_ms).await?))
        })
        .await
    }

    type ScanStream = ReceiverStream<Result<v1::ScanResponse, Status>>;

    async fn scan(
        &self,
        request: Request<v1::ScanRequest>,
    ) -> Result<Response<Self::ScanStream>, Status> {
        self.measured(Method::Scan, async {
            let keyspace = self.keyspace(&request, |scan| &scan.keyspace, Right::Read).await?;
            let mut plan = ScanPlan::new(request.into_inner())?;
            // One page waits while the previous one is being sent.
            let (pages, stream) = mpsc::channel(1);
            let callee = self.clone();
            tokio::spawn(async move {
                loop {
                    let query = plan.page(SCAN_PAGE_ITEMS);
                    let answer = callee.read(keyspace.id, query, plan.consistency, None).await;
                    let (page, more) = match answer.map(|answer| plan.take(answer)) {
                        Ok((page, more)) => (Ok(page), more),
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

impl Callee {
    async fn write(
        &self,
        command: model::Command,
        deadline_ms: Option<u64>,
    ) -> Result<model::Answer, Status> {
        self.ask(model::Request { deadline_ms, ..model::Request::write(command) }).await
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
