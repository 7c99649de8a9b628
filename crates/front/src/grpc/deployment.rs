//! The service `Deployment`: sites, and the slots they hold.

use super::call::{Callee, Method, deadline_ms};
use super::registry::{name_of, names_of, outcome_of, site_named, site_shown};
use super::{failovers, orders, placement, regions};
use model::{
    AcceptedLoss, Answer, BackupChoice, Body, Command, GlobalCommand, Promotion, Refusal, Registry,
    RegistryChange, RegistryError, SiteEntry, SiteId, SlotSet, SourceStep, StandbyChoice,
    StandbyRule,
};
use server::{MapView, Owned, Standing, backup_of};
use std::collections::BTreeSet;
use tonic::{Request, Response, Status, async_trait};
use wire::entry;
use wire::grpc::{Invalid, Reason, request_id, status, v1};

#[async_trait]
impl v1::deployment_server::Deployment for Callee {
    async fn list_sites(
        &self,
        request: Request<v1::ListSitesRequest>,
    ) -> Result<Response<v1::ListSitesResponse>, Status> {
        self.measured(Method::ListSites, async {
            self.administrator(&request)?;
            if self.handle.status().deployment.is_none() {
                // A witness has none, and a node that has just started has not read it yet: another
                // node is asked.
                self.know_keyspaces(&request).await?;
                self.publish().await;
            }
            let Some(deployment) = self.handle.status().deployment.clone() else {
                return Ok(v1::ListSitesResponse::default());
            };
            let map = self.handle.map_view().await;
            let slots_of = |site: SiteId| {
                let owned = map.owners.iter().filter(|owned| owned.site == site);
                owned.map(|owned| owned.slots.len()).sum()
            };
            // The oldest, if all are known.
            let age_of = |site: SiteId| {
                let owned = map.owners.iter().filter(|owned| owned.site == site);
                let ages = owned.map(|owned| hint_age_ms(owned.standing));
                ages.collect::<Option<Vec<_>>>()?.into_iter().max()
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
                    slots_age_ms: age_of(site.id).filter(|_| site.id != deployment.own),
                    liveness: liveness_of(&map, site.id).to_owned(),
                    backup: backup_of(registry, site.id)
                        .map(|backup| name_of(registry, backup))
                        .unwrap_or_default(),
                    mirror: self.mirror(deployment.own, site.id),
                    lost_to: lost_to(registry, site.id),
                    failure_domain: domain_of(site),
                    region: site.region.as_ref().map(ToString::to_string).unwrap_or_default(),
                }
            };
            Ok(v1::ListSitesResponse {
                own: deployment.own.0,
                deployment: registry.deployment.0,
                version: registry.changes,
                sites: registry.sites.iter().map(site).collect(),
            })
        })
        .await
    }

    async fn explain_placement(
        &self,
        request: Request<v1::ExplainPlacementRequest>,
    ) -> Result<Response<v1::ExplainPlacementResponse>, Status> {
        self.measured(Method::ExplainPlacement, async {
            self.administrator(&request)?;
            self.know_keyspaces(&request).await?;
            self.explain(deadline_ms(&request), request.into_inner().key).await
        })
        .await
    }

    async fn pin_group(
        &self,
        request: Request<v1::PinGroupRequest>,
    ) -> Result<Response<v1::PinGroupResponse>, Status> {
        self.measured(Method::PinGroup, async {
            self.change_pin(request, |asked| (asked.key, Some(asked.site), asked.request)).await?;
            Ok(v1::PinGroupResponse {})
        })
        .await
    }

    async fn unpin_group(
        &self,
        request: Request<v1::UnpinGroupRequest>,
    ) -> Result<Response<v1::UnpinGroupResponse>, Status> {
        self.measured(Method::UnpinGroup, async {
            self.change_pin(request, |asked| (asked.key, None, asked.request)).await?;
            Ok(v1::UnpinGroupResponse {})
        })
        .await
    }

    async fn list_pins(
        &self,
        request: Request<v1::ListPinsRequest>,
    ) -> Result<Response<v1::ListPinsResponse>, Status> {
        self.measured(Method::ListPins, async {
            self.administrator(&request)?;
            self.know_keyspaces(&request).await?;
            let pins = self.pins(deadline_ms(&request)).await?;
            Ok(v1::ListPinsResponse { pins })
        })
        .await
    }

    async fn show_placement_ledger(
        &self,
        request: Request<v1::ShowPlacementLedgerRequest>,
    ) -> Result<Response<v1::ShowPlacementLedgerResponse>, Status> {
        self.measured(Method::ShowPlacementLedger, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let registry = self.registry().await?;
            let body = Body::ShowPlacementLedger;
            let answer = self.ask(body, deadline_ms).await?;
            let site = self.handle.site().as_str();
            match answer {
                Answer::PlacementLedger(ledger) => Ok(placement::ledger(&registry, site, &ledger)),
                Answer::LedgerOfLoans(ledger, loans) => {
                    let catalog = self.handle.catalog();
                    let loans = Some(placement::loans(&registry, &catalog, &loans));
                    let ledger = placement::ledger(&registry, site, &ledger);
                    Ok(v1::ShowPlacementLedgerResponse { loans, ..ledger })
                }
                _ => unreachable!("a question about the ledger is answered with it"),
            }
        })
        .await
    }

    async fn list_slots(
        &self,
        request: Request<v1::ListSlotsRequest>,
    ) -> Result<Response<v1::ListSlotsResponse>, Status> {
        self.measured(Method::ListSlots, async {
            self.administrator(&request)?;
            let registry = self.registry().await?;
            let mut owners = Vec::new();
            for Owned { slots, site, standing } in self.handle.map_view().await.owners {
                let site = name_of(&registry, site);
                owners.extend(slots.ranges().iter().map(|(first, last)| v1::SlotRange {
                    first: u32::from(*first),
                    last: u32::from(*last),
                    site: site.clone(),
                    confirmed: standing == Standing::Confirmed,
                    age_ms: hint_age_ms(standing),
                }));
            }
            owners.sort_by_key(|range| range.first);
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
            Ok(v1::ListSlotsResponse { owners, moves: moves.collect() })
        })
        .await
    }

    async fn move_slots(
        &self,
        request: Request<v1::MoveSlotsRequest>,
    ) -> Result<Response<v1::MoveSlotsResponse>, Status> {
        self.measured(Method::MoveSlots, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let to = site_named(&registry, &asked.to)?;
            let wanted: SlotSet =
                asked.slots.parse().map_err(|what| Invalid::Value { field: "slots", what })?;
            let id = match request_id(asked.request)? {
                Some(id) => id,
                None => orders::own_number(),
            };
            let requests = orders::requests(&registry, id, &wanted, to, deadline_ms);
            let answers = orders::answers(&registry, self.handle.call_many(requests).await);
            let hints = self.handle.slot_map().await;
            Ok(orders::reported(&registry, &wanted, to, &answers, &hints))
        })
        .await
    }

    async fn pause_move(
        &self,
        request: Request<v1::PauseMoveRequest>,
    ) -> Result<Response<v1::PauseMoveResponse>, Status> {
        self.measured(Method::PauseMove, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let step = SourceStep::Pause(asked.paused);
            let body =
                Body::Write(Command::Global(GlobalCommand::Source { number: asked.number, step }));
            self.ask(body, deadline_ms).await?;
            Ok(v1::PauseMoveResponse {})
        })
        .await
    }

    async fn leave_site(
        &self,
        request: Request<v1::LeaveSiteRequest>,
    ) -> Result<Response<v1::LeaveSiteResponse>, Status> {
        self.measured(Method::LeaveSite, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let id = request_id(asked.request)?;
            if asked.discard.contains(&asked.site) {
                return Err(Reason::Invalid.status("a site keeps no mirror of itself to discard"));
            }
            let known = id.and_then(|id| outcome_of(&registry, id));
            // What it is to discard may not have reached it, unless it has left by now.
            let is_over = asked.discard.is_empty() || registry.site_named(&asked.site).is_none();
            if let Some(outcome) = known.filter(|outcome| outcome.is_err() || is_over) {
                return outcome.map(|()| v1::LeaveSiteResponse {});
            }
            let discard = asked.discard.iter().map(|name| site_named(&registry, name));
            let discard = discard.collect::<Result<Vec<_>, _>>()?;
            let site = site_named(&registry, &asked.site)?;
            let change = RegistryChange::Leave(site);
            self.ask(Body::Registry { change: Box::new(change), id }, deadline_ms).await?;
            // Once it is marked as leaving, no site streams its mirror there any more.
            for of in discard {
                let command = Box::new(Command::Global(GlobalCommand::DiscardCopies { of }));
                let body = Body::AtSite { site, command };
                self.ask(body, deadline_ms).await?;
            }
            Ok(v1::LeaveSiteResponse {})
        })
        .await
    }

    async fn set_backup(
        &self,
        request: Request<v1::SetBackupRequest>,
    ) -> Result<Response<v1::SetBackupResponse>, Status> {
        self.measured(Method::SetBackup, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let change = || {
                let site = site_named(&registry, &asked.site)?;
                use v1::set_backup_request::Choice;
                let choice = match &asked.choice {
                    Some(Choice::At(at)) => BackupChoice::At(site_named(&registry, at)?),
                    Some(Choice::Next(true)) => BackupChoice::Next,
                    Some(Choice::Off(true)) => BackupChoice::Off,
                    _ => return Err(Invalid::Missing("choice").into()),
                };
                Ok(RegistryChange::Backup(site, choice))
            };
            self.change_registry(&registry, request_id(asked.request)?, deadline_ms, change)
                .await?;
            Ok(v1::SetBackupResponse {})
        })
        .await
    }

    async fn promote_backup(
        &self,
        request: Request<v1::PromoteBackupRequest>,
    ) -> Result<Response<v1::PromoteBackupResponse>, Status> {
        self.measured(Method::PromoteBackup, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let lost = site_named(&registry, &asked.site)?;
            let by = match asked.at.as_str() {
                "" => None,
                at => Some(site_named(&registry, at)?),
            };
            let without = asked.without.iter().map(|name| site_named(&registry, name));
            let mut without = without.collect::<Result<Vec<_>, _>>()?;
            without.sort_unstable();
            without.dedup();
            if by == Some(lost) {
                return Err(Reason::Invalid.status("the lost site cannot take over from itself"));
            }
            if let Some(one) = without.iter().find(|one| **one == lost || self.is_own(**one)) {
                let name = name_of(&registry, *one);
                return Err(Reason::Invalid.status(match *one == lost {
                    true => format!("{name} is the lost site: it is not asked anyway"),
                    false => format!("{name} answers this request, so it can be asked"),
                }));
            }
            let id = request_id(asked.request)?.filter(|_| asked.accept_loss);
            let reported = match asked.accepted.is_empty() || !asked.accept_loss {
                true => None,
                false => Some(entry::decode_taken(asked.accepted).map_err(|_| {
                    Reason::Invalid.status("`accepted` is not what a site has foretold")
                })?),
            };
            let accepts = match (id, reported) {
                (_, None) if !asked.accept_loss => AcceptedLoss::Nothing,
                (id, None) => AcceptedLoss::AsFound { id },
                (Some(id), Some(reported)) => AcceptedLoss::AsReported { id, reported },
                (None, Some(_)) => {
                    return Err(Reason::Invalid.status("`accepted` needs `request`, too"));
                }
            };
            let promotion = Promotion { lost, by, without, accepts };
            let request = model::Request { deadline_ms, ..model::Request::new(promotion.into()) };
            let answer = self.handle.call(request).await;
            let answer = answer.map_err(|failure| failovers::refused(&registry, &failure))?;
            let (loss, foretold) = match answer {
                Answer::Loss(loss) => (loss, bytes::Bytes::new()),
                Answer::Foretold { loss, taken } => (loss, entry::encode_taken(&taken)),
                _ => unreachable!("a promotion is answered with what is lost"),
            };
            let now_ms = self.handle.clock().now().wall_ms;
            Ok(v1::PromoteBackupResponse {
                by: name_of(&registry, loss.by),
                done: loss.done,
                holds: loss.holds,
                mirrored: loss.mirrored,
                keys: loss.keys,
                revision: loss.revision.0,
                caught_up_ago_ms: ago(now_ms, loss.caught_up_ms),
                answers: loss.answers,
                silent: loss.silent.iter().map(|site| name_of(&registry, *site)).collect(),
                empty: loss.empty,
                foretold,
            })
        })
        .await
    }

    async fn show_registry(
        &self,
        request: Request<v1::ShowRegistryRequest>,
    ) -> Result<Response<v1::ShowRegistryResponse>, Status> {
        self.measured(Method::ShowRegistry, async {
            self.administrator(&request)?;
            self.view(Body::ShowRegistry, deadline_ms(&request)).await
        })
        .await
    }

    async fn recover_registry(
        &self,
        request: Request<v1::RecoverRegistryRequest>,
    ) -> Result<Response<v1::ShowRegistryResponse>, Status> {
        self.measured(Method::RecoverRegistry, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let without = asked.without.iter().map(|name| site_shown(&registry, name));
            let without = without.collect::<Result<Vec<_>, _>>()?;
            let body = Body::RecoverRegistry { without, accept: asked.accept };
            self.view(body, deadline_ms).await
        })
        .await
    }

    async fn show_region(
        &self,
        request: Request<v1::ShowRegionRequest>,
    ) -> Result<Response<v1::ShowRegionResponse>, Status> {
        self.measured(Method::ShowRegion, async {
            self.administrator(&request)?;
            let registry = self.registry().await?;
            let own = registry.site_named(self.handle.site().as_str());
            let own =
                own.and_then(|site| registry.region_of(site.id)).or(match registry.has_regions() {
                    true => None,
                    false => registry.regions.first(),
                });
            let others =
                registry.regions.iter().filter(|one| own.is_none_or(|own| own.id != one.id));
            let others = others.map(|region| regions::shown(&registry, region)).collect();
            let Some(region) = own else {
                return Ok(v1::ShowRegionResponse { others, ..v1::ShowRegionResponse::default() });
            };
            let (here, held) = (self.handle.causal(), self.handle.held());
            Ok(v1::ShowRegionResponse {
                applied_epoch: u32::from(here.applied.epoch()),
                applied_count: here.applied.count(),
                last_revision: here.last_revision.0,
                ordered_revision: here.own_ordered.0,
                held_keys: held.keys,
                held_bytes: held.bytes,
                others,
                ..regions::shown(&registry, region)
            })
        })
        .await
    }

    async fn move_root(
        &self,
        request: Request<v1::MoveRootRequest>,
    ) -> Result<Response<v1::MoveRootResponse>, Status> {
        self.measured(Method::MoveRoot, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let change = || Ok(RegistryChange::MoveRoot(site_named(&registry, &asked.to)?));
            self.change_registry(&registry, request_id(asked.request)?, deadline_ms, change)
                .await?;
            Ok(v1::MoveRootResponse {})
        })
        .await
    }

    async fn set_standby(
        &self,
        request: Request<v1::SetStandbyRequest>,
    ) -> Result<Response<v1::SetStandbyResponse>, Status> {
        self.measured(Method::SetStandby, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let change = || {
                use v1::set_standby_request::Choice;
                let choice = match &asked.choice {
                    Some(Choice::At(name)) => StandbyChoice::At(site_named(&registry, name)?),
                    Some(Choice::Nearest(_)) => StandbyChoice::Nearest,
                    Some(Choice::Off(_)) => StandbyChoice::Off,
                    None => return Err(Invalid::Missing("choice").into()),
                };
                let rule = StandbyRule { choice, by_hand: asked.by_hand };
                let of_named = matches!(choice, StandbyChoice::At(_)) && asked.region.is_empty();
                if !of_named {
                    let region = regions::asked(&registry, self.handle.site(), &asked.region)?.id;
                    if registry.has_regions() {
                        return Ok(RegistryChange::SetStandbyOf { region, rule });
                    }
                }
                Ok(RegistryChange::SetStandby(rule))
            };
            self.change_registry(&registry, request_id(asked.request)?, deadline_ms, change)
                .await?;
            Ok(v1::SetStandbyResponse {})
        })
        .await
    }

    async fn rebuild_region(
        &self,
        request: Request<v1::RebuildRegionRequest>,
    ) -> Result<Response<v1::RebuildRegionResponse>, Status> {
        self.measured(Method::RebuildRegion, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let asked = request.into_inner();
            let registry = self.registry().await?;
            let id = request_id(asked.request)?;
            if let Some(outcome) = id.and_then(|id| outcome_of(&registry, id)) {
                // The region has another root by now.
                return outcome.map(|()| v1::RebuildRegionResponse::default());
            }
            let region = regions::asked(&registry, self.handle.site(), &asked.region)?;
            let lost = name_of(&registry, region.root);
            let own = self.handle.site().to_string();
            let view = self.handle.map_view().await;
            // The site that is asked, if the order can go on there.
            let is_own = registry.full_replicas(&region).any(|site| site.name.as_str() == own);
            let can = |site: &&SiteEntry| site.id != region.root && !view.lost.contains(&site.id);
            let other = registry.full_replicas(&region).find(can).filter(|_| !is_own);
            let other = other.map_or(own, |site| site.name.to_string());
            let to = if asked.to.is_empty() { other } else { asked.to };
            let is_away = view.lost.contains(&region.root) || view.silent.contains(&region.root);
            let change = || {
                if !is_away && !asked.force {
                    let answers = Refusal::Registry(RegistryError::RootAnswers(lost.clone()));
                    return Err(status(&answers.into()));
                }
                let to = site_named(&registry, &to)?;
                Ok(RegistryChange::Rebuild { region: region.id, epoch: region.epoch, to })
            };
            self.change_registry(&registry, id, deadline_ms, change).await?;
            Ok(v1::RebuildRegionResponse { lost })
        })
        .await
    }

    async fn list_failovers(
        &self,
        request: Request<v1::ListFailoversRequest>,
    ) -> Result<Response<v1::ListFailoversResponse>, Status> {
        self.measured(Method::ListFailovers, async {
            self.administrator(&request)?;
            let registry = self.registry().await?;
            let known = self.handle.status().failovers_known.clone();
            let all = &registry.failovers;
            let decided = all.decided.iter().map(|one| failovers::decided(&registry, one, &known));
            let open = all.open.iter().map(|one| v1::Failover {
                id: one.opened.to_string(),
                lost: name_of(&registry, one.lost),
                without: names_of(&registry, &one.without),
                open: true,
                ..v1::Failover::default()
            });
            Ok(v1::ListFailoversResponse { failovers: decided.chain(open).collect() })
        })
        .await
    }

    async fn list_lost_writes(
        &self,
        request: Request<v1::ListLostWritesRequest>,
    ) -> Result<Response<v1::ListLostWritesResponse>, Status> {
        self.measured(Method::ListLostWrites, async {
            self.administrator(&request)?;
            let deadline_ms = deadline_ms(&request);
            let v1::ListLostWritesRequest { site, failover, page } = request.into_inner();
            let registry = self.registry().await?;
            let own = || self.handle.site().to_string();
            let at = site_named(&registry, &if site.is_empty() { own() } else { site })?;
            let failover = match failover.is_empty() {
                true => None,
                false => Some(failovers::parse(&failover)?),
            };
            let body = Body::ListLostWrites { at, failover, page };
            let answer = self.ask(body, deadline_ms).await?;
            let Answer::LostWrites(lost) = answer else {
                unreachable!("a question about lost writes is answered with them")
            };
            Ok(failovers::lost_writes(*lost, &self.handle.catalog()))
        })
        .await
    }
}

/// How long ago a moment was, both in milliseconds since 1970; `None`: it never was.
fn ago(now_ms: u64, then_ms: u64) -> Option<u64> {
    (then_ms > 0).then(|| now_ms.saturating_sub(then_ms))
}

impl Callee {
    /// A site's mirror, as far as this node has its progress.
    fn mirror(&self, own: SiteId, of: SiteId) -> Option<v1::Mirror> {
        let status_now = self.handle.status();
        if of == own {
            return status_now.mirror.as_ref().map(|mirror| v1::Mirror {
                holds: mirror.holds,
                complete: mirror.complete,
                behind: Some(mirror.behind),
                caught_up_ago_ms: mirror.caught_up_ago.map(|ago| ago.as_millis() as u64),
                keys: 0,
                revision: 0,
            });
        }
        let now_ms = self.handle.clock().now().wall_ms;
        let kept = status_now.mirrors_kept.iter().find(|kept| kept.from == of)?;
        Some(v1::Mirror {
            holds: kept.holds,
            complete: kept.complete,
            behind: kept.behind,
            caught_up_ago_ms: ago(now_ms, kept.caught_up_ms),
            keys: kept.keys,
            revision: kept.revision.0,
        })
    }
}

/// What a site can fail together with.
fn domain_of(site: &SiteEntry) -> String {
    site.failure_domain.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The age of a hint, if it is one and that is known.
fn hint_age_ms(standing: Standing) -> Option<u64> {
    match standing {
        Standing::Hint { age } => age.map(|age| age.as_millis() as u64),
        Standing::Confirmed => None,
    }
}

/// Who has taken the slots of a lost site; empty: it is not lost.
fn lost_to(registry: &Registry, site: SiteId) -> String {
    if !registry.is_lost(site) {
        return String::new();
    }
    let decided = registry.failovers.decided.iter();
    let decided = decided.filter(|one| one.lost == site && !one.returned);
    let takers: BTreeSet<SiteId> =
        decided.flat_map(|one| &one.taken).map(|taken| taken.by).collect();
    match takers.is_empty() {
        true => "no site".to_owned(),
        false => takers.iter().map(|by| name_of(registry, *by)).collect::<Vec<_>>().join(", "),
    }
}

/// Whether a site answers the asked one.
fn liveness_of(map: &MapView, site: SiteId) -> &'static str {
    match (map.lost.contains(&site), map.silent.contains(&site)) {
        (true, _) => "unreachable",
        (false, true) => "silent",
        (false, false) => "reached",
    }
}

fn node(node: &model::NodeEntry) -> v1::SiteNode {
    v1::SiteNode { node: node.node.0, peer: node.peer.clone(), cluster: node.cluster.clone() }
}
