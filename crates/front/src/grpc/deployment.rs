//! The service `Deployment`: sites, and the slots they hold.

use super::call::{Callee, Method, deadline_ms};
use model::{
    Answer, Body, Command, Failure, Giving, MoveError, Refusal, Registry, RegistryChange,
    RegistryError, SiteId, SlotSet, limits,
};
use std::sync::Arc;
use tonic::{Request, Response, Status, async_trait};
use wire::grpc::{Invalid, status, v1};

#[async_trait]
impl v1::deployment_server::Deployment for Callee {
    async fn list_sites(
        &self,
        request: Request<v1::ListSitesRequest>,
    ) -> Result<Response<v1::ListSitesResponse>, Status> {
        self.measured(Method::ListSites, async {
            self.administrator(&request).await?;
            let Some(deployment) = self.handle.status().deployment.clone() else {
                return Ok(v1::ListSitesResponse::default());
            };
            let map = self.handle.slot_map().await;
            let slots_of = |site: SiteId| {
                map.iter().filter(|(_, holder)| *holder == site).map(|(slots, _)| slots.len()).sum()
            };
            let registry = &deployment.registry;
            let site = |site: &model::SiteEntry| {
                let slots: usize = slots_of(site.id);
                v1::Site {
                    id: site.id.0,
                    name: site.name.to_string(),
                    capacity_percent: site.capacity_percent,
                    leaving: site.leaving,
                    nodes: site.nodes.iter().map(node).collect(),
                    slots: slots as u32,
                }
            };
            Ok(v1::ListSitesResponse {
                own: deployment.own.0,
                deployment: registry.deployment.0,
                version: registry.version,
                sites: registry.sites.iter().map(site).collect(),
            })
        })
        .await
    }

    async fn list_slots(
        &self,
        request: Request<v1::ListSlotsRequest>,
    ) -> Result<Response<v1::ListSlotsResponse>, Status> {
        self.measured(Method::ListSlots, async {
            self.administrator(&request).await?;
            let registry = self.registry()?;
            let mut holders = Vec::new();
            for (slots, site) in self.handle.slot_map().await {
                let site = name_of(&registry, site);
                holders.extend(slots.ranges().iter().map(|(first, last)| v1::SlotRange {
                    first: u32::from(*first),
                    last: u32::from(*last),
                    site: site.clone(),
                }));
            }
            holders.sort_by_key(|range| range.first);
            let status_now = self.handle.status();
            let moves = status_now.moves.iter().map(|one| v1::SlotMove {
                number: one.number,
                to: name_of(&registry, one.what.to),
                slots: one.what.slots.to_string(),
                keys: one.keys,
                sent_bytes: one.sent_bytes,
                copied: one.copied,
                lag: one.lag,
                paused: one.what.paused,
                frozen: one.what.frozen.is_some(),
            });
            Ok(v1::ListSlotsResponse { holders, moves: moves.collect() })
        })
        .await
    }

    async fn move_slots(
        &self,
        request: Request<v1::MoveSlotsRequest>,
    ) -> Result<Response<v1::MoveSlotsResponse>, Status> {
        self.measured(Method::MoveSlots, async {
            self.administrator(&request).await?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry()?;
            let to = site_named(&registry, &asked.to)?;
            let wanted: SlotSet =
                asked.slots.parse().map_err(|what| Invalid::Value { field: "slots", what })?;
            let mut moves = Vec::new();
            for (held, holder) in self.handle.slot_map().await {
                let slots: Vec<_> = held.iter().filter(|slot| wanted.contains(*slot)).collect();
                if holder == to {
                    continue;
                }
                for some in slots.chunks(limits::SLOTS_PER_MOVE_MAX) {
                    let slots: SlotSet = some.iter().copied().collect();
                    let step = Giving::Begin { slots: slots.clone(), to, pinned: true };
                    let command = Command::Giving { number: 0, step };
                    let body = Body::AtSite { site: holder, command: Box::new(command) };
                    let request = model::Request { body, deadline_ms, redirect: false };
                    let number = match self.handle.call(request).await {
                        Ok(Answer::Done(number)) => number,
                        // They have moved on since this node heard of them.
                        Err(Failure::Refused(Refusal::Move(MoveError::NotHeld))) => continue,
                        Ok(_) => unreachable!("a move is answered with its number"),
                        Err(failure) => return Err(status(&failure)),
                    };
                    let from = name_of(&registry, holder);
                    let slots = slots.to_string();
                    moves.push(v1::BegunMove { from, number: number.0, slots });
                }
            }
            Ok(v1::MoveSlotsResponse { moves })
        })
        .await
    }

    async fn pause_move(
        &self,
        request: Request<v1::PauseMoveRequest>,
    ) -> Result<Response<v1::PauseMoveResponse>, Status> {
        self.measured(Method::PauseMove, async {
            self.administrator(&request).await?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let step = Giving::Pause(asked.paused);
            let body = Body::Write(Command::Giving { number: asked.number, step });
            self.ask(model::Request { body, deadline_ms, redirect: false }).await?;
            Ok(v1::PauseMoveResponse {})
        })
        .await
    }

    async fn leave_site(
        &self,
        request: Request<v1::LeaveSiteRequest>,
    ) -> Result<Response<v1::LeaveSiteResponse>, Status> {
        self.measured(Method::LeaveSite, async {
            self.administrator(&request).await?;
            let deadline_ms = deadline_ms(&request);
            let registry = self.registry()?;
            let site = site_named(&registry, &request.into_inner().site)?;
            let body = Body::Write(Command::ChangeRegistry(RegistryChange::Leave(site)));
            self.ask(model::Request { body, deadline_ms, redirect: false }).await?;
            Ok(v1::LeaveSiteResponse {})
        })
        .await
    }
}

impl Callee {
    fn registry(&self) -> Result<Arc<Registry>, Status> {
        let status_now = self.handle.status();
        let registry = status_now.deployment.as_ref().map(|member| member.registry.clone());
        registry.ok_or_else(|| status(&Failure::Refused(Refusal::NoDeployment)))
    }
}

fn site_named(registry: &Registry, name: &str) -> Result<SiteId, Status> {
    let missing = || {
        let error = RegistryError::NoSite(name.to_owned());
        status(&Failure::Refused(Refusal::Registry(error)))
    };
    registry.site_named(name).map(|site| site.id).ok_or_else(missing)
}

fn name_of(registry: &Registry, site: SiteId) -> String {
    registry.site(site).map_or_else(|| site.to_string(), |site| site.name.to_string())
}

fn node(node: &model::NodeEntry) -> v1::SiteNode {
    v1::SiteNode { node: node.node.0, peer: node.peer.clone(), cluster: node.cluster.clone() }
}
